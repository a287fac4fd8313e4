//! Encrypted TCP: TLS 1.3 between two instances that know the same secret.
//!
//! Owns: the keys of this process, and records on their way in and out. Never: decides who the other side is. There are no
//! certificates: each process makes a key of its own, whoever answers is accepted, and the handshake of the channel
//! (`handshake`, `secret`) proves that both know the secret. Its proofs are of this very connection, by key material that only
//! its two ends can derive (RFC 5705), so that nobody can sit between.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use ring::rand::SystemRandom;
use ring::signature::Ed25519KeyPair;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring as suites, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, InvalidMessage, ServerConfig,
    ServerConnection, SignatureScheme,
};

use crate::error::{Attempt, ChannelError};
use crate::transport::{Socket, Transport, failure};

/// The label of the key material that proofs are bound to.
const BINDING_LABEL: &[u8] = b"EXPORTER-atrapos-channel";
/// Reads of the socket for one read of a channel: a peer that sends records without content keeps nobody busy.
const READS_MAX: usize = 8;

/// The accepting side of encrypted connections.
pub(crate) struct TlsServer(Arc<ServerConfig>);

impl TlsServer {
    /// Makes the key of this process.
    pub(crate) fn new() -> Result<Self, ChannelError> {
        let attempt = "make a key for encrypted connections";
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).attempt(attempt)?;
        let key = suites::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(key.as_ref())).attempt(attempt)?;
        let public = key.public_key().ok_or(Errno::NOTSUP).attempt(attempt)?;
        let public = CertificateDer::from(public.as_ref().to_vec());
        let resolver = AlwaysResolvesServerRawPublicKeys::new(Arc::new(CertifiedKey::new(vec![public], key)));
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .attempt(attempt)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(resolver));
        // Nothing is resumed.
        config.send_tls13_tickets = 0;
        Ok(Self(Arc::new(config)))
    }

    /// The stream over a connection that was accepted.
    pub(crate) fn accept(&self, socket: Socket) -> Result<Tls, ChannelError> {
        let connection =
            ServerConnection::new(Arc::clone(&self.0)).attempt("accept an encrypted connection")?;
        Ok(Tls::new(socket, connection.into()))
    }
}

/// The stream over a connection that this side has made.
pub(crate) fn connect(socket: Socket) -> Result<Tls, ChannelError> {
    let attempt = "make an encrypted connection";
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .attempt(attempt)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyKey))
        .with_no_client_auth();
    config.enable_sni = false;
    config.resumption = Resumption::disabled();
    let name = ServerName::try_from("atrapos").expect("a name of letters");
    let connection = ClientConnection::new(Arc::new(config), name).attempt(attempt)?;
    Ok(Tls::new(socket, connection.into()))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(suites::default_provider())
}

/// Accepts any key whose owner answers: the channel's own handshake proves who that is.
#[derive(Debug)]
struct AnyKey;

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _key: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("version 1.2 is not spoken".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        let algorithms = suites::default_provider().signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &key, signature, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// An encrypted stream over a socket.
pub(crate) struct Tls {
    socket: Socket,
    connection: Connection,
    /// Decrypted bytes that were not read.
    readable: usize,
    /// The peer sends no more.
    ended: bool,
    /// No keys were agreed on, and none will be: what is written, the sentence of a refusal, goes as it is.
    failed: bool,
}

impl Tls {
    fn new(socket: Socket, connection: Connection) -> Self {
        Self { socket, connection, readable: 0, ended: false, failed: false }
    }

    /// Writes records that are ready, as far as the socket takes them.
    fn write_records(&mut self) -> Result<(), ChannelError> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Plain(&self.socket)) {
                Ok(_) => {}
                Err(error) if is_later(&error) => break,
                Err(error) => return Err(io_failure("write to an encrypted channel", &error)),
            }
        }
        Ok(())
    }

    /// Reads and decrypts what has arrived. Returns false if nothing has.
    fn read_records(&mut self) -> Result<bool, ChannelError> {
        match self.connection.read_tls(&mut Plain(&self.socket)) {
            Ok(0) => self.ended = true,
            Ok(_) => {}
            Err(error) if is_later(&error) => return Ok(false),
            Err(error) => return Err(io_failure("read from an encrypted channel", &error)),
        }
        let handshaking = self.connection.is_handshaking();
        match self.connection.process_new_packets() {
            Ok(state) => {
                self.readable = state.plaintext_bytes_to_read();
                self.ended |= state.peer_has_closed();
            }
            Err(error) if handshaking => {
                self.failed = true;
                return Err(disagreement(&error));
            }
            Err(error) => {
                return Err(ChannelError::Nonsense(format!("what it sends cannot be decrypted ({error})")));
            }
        }
        self.write_records()?;
        Ok(true)
    }
}

impl Transport for Tls {
    fn read(&mut self, into: &mut [u8]) -> Result<Option<usize>, ChannelError> {
        for _ in 0..READS_MAX {
            if self.readable > 0 {
                let bytes = self.connection.reader().read(into).attempt("read what was decrypted")?;
                self.readable -= bytes;
                return Ok(Some(bytes));
            }
            if self.ended {
                return Ok(Some(0));
            }
            if !self.read_records()? {
                break;
            }
        }
        Ok(None)
    }

    fn write(&mut self, from: &[u8]) -> Result<usize, ChannelError> {
        if self.failed {
            return self.socket.write(from);
        }
        let mut taken = 0;
        loop {
            self.write_records()?;
            if taken == from.len() || self.connection.wants_write() {
                return Ok(taken);
            }
            let bytes = self.connection.writer().write(&from[taken..]).attempt("encrypt a message")?;
            if bytes == 0 {
                return Ok(taken);
            }
            taken += bytes;
        }
    }

    fn input(&self) -> &Arc<OwnedFd> {
        self.socket.input()
    }

    fn has_buffered(&self) -> bool {
        self.readable > 0
    }

    fn is_behind(&self) -> bool {
        self.connection.wants_write()
    }

    fn binding(&self) -> Result<Vec<u8>, ChannelError> {
        let bytes = self.connection.export_keying_material([0; 32], BINDING_LABEL, None);
        Ok(bytes.attempt("derive keys of an encrypted connection")?.to_vec())
    }
}

/// The socket below, as the library takes it.
struct Plain<'a>(&'a Socket);

impl Read for Plain<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(self.0.receive(into)?)
    }
}

impl Write for Plain<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        Ok(self.0.send(from)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The error for a peer with which no keys can be agreed on.
fn disagreement(error: &rustls::Error) -> ChannelError {
    match error {
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => ChannelError::Refused(
            "this end demands the shared secret of the deployment, and the other does not encrypt: \
             give all instances the same shared secret, and the same release"
                .into(),
        ),
        _ => ChannelError::Nonsense(format!(
            "no encryption can be agreed on ({error}): give all instances the same shared secret, and the same release"
        )),
    }
}

/// Returns whether the call is to be made again when the socket is ready.
fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn io_failure(attempt: &str, error: &io::Error) -> ChannelError {
    match Errno::from_io_error(error) {
        Some(error) => failure(attempt, error),
        None => ChannelError::io(attempt, error),
    }
}

#[cfg(test)]
mod tests;
