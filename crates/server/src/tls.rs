//! TLS of the server.
//!
//! Owns: reading a certificate and its key, and the hash of the certificate that clients are bound to. Never: verifies clients by
//! certificates.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ring::digest;
use rustls::ServerConfig;
use rustls::crypto::ring as suites;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use tokio_rustls::TlsAcceptor;

/// A certificate or key that cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read as PEM.
    #[error("the {what} {path} cannot be read: {error}; give a file in PEM form")]
    File {
        /// "certificate" or "private key".
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        error: rustls::pki_types::pem::Error,
    },
    /// The certificate has a form or an algorithm that is not known.
    #[error("the certificate {0} is signed by an algorithm that is not known; use RSA, ECDSA or Ed25519")]
    Certificate(PathBuf),
    /// Certificate and key do not fit.
    #[error("the certificate and the private key cannot be used: {0}")]
    Unusable(rustls::Error),
}

/// The configuration that encrypted connections need.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) acceptor: TlsAcceptor,
    /// The hash of the certificate (`tls-server-end-point` of RFC 5929).
    pub(crate) end_point: Arc<[u8]>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the certificate chain and its private key.
    pub(crate) fn read(certificate: &Path, key: &Path) -> Result<Tls, TlsError> {
        let unreadable = |what, path: &Path, error| TlsError::File { what, path: path.to_owned(), error };
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| unreadable("certificate", certificate, error))?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable("private key", key, error))?;
        let end_point = chain
            .first()
            .and_then(|certificate| end_point_hash(certificate))
            .ok_or_else(|| TlsError::Certificate(certificate.to_owned()))?;
        let config = ServerConfig::builder_with_provider(Arc::new(suites::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Unusable)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(TlsError::Unusable)?;
        Ok(Tls { acceptor: TlsAcceptor::from(Arc::new(config)), end_point: end_point.as_ref().into() })
    }
}

/// Returns the hash of a certificate by the hash function of its signature, with SHA-256 instead of MD5 and SHA-1, and for
/// signatures without one of their own.
fn end_point_hash(certificate: &[u8]) -> Option<digest::Digest> {
    Some(digest::digest(hash_of_signature(signature_algorithm(certificate)?)?, certificate))
}

/// Object identifiers of signatures, encoded, and the hash function of each.
fn hash_of_signature(identifier: &[u8]) -> Option<&'static digest::Algorithm> {
    const RSA: [u8; 8] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
    const ECDSA: [u8; 7] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03];
    const ED25519: [u8; 3] = [0x2b, 0x65, 0x70];
    match (identifier.strip_prefix(&RSA[..]), identifier.strip_prefix(&ECDSA[..])) {
        // With MD5, SHA-1 and SHA-256.
        (Some([4 | 5 | 11]), _) | (_, Some([2])) => Some(&digest::SHA256),
        (Some([12]), _) | (_, Some([3])) => Some(&digest::SHA384),
        (Some([13]), _) | (_, Some([4])) => Some(&digest::SHA512),
        _ if identifier == ED25519 => Some(&digest::SHA256),
        _ => None,
    }
}

/// Finds the identifier of a certificate's signature: `SEQUENCE { tbs, SEQUENCE { OBJECT IDENTIFIER, .. }, .. }`.
fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    const SEQUENCE: u8 = 0x30;
    const OBJECT_IDENTIFIER: u8 = 0x06;
    let (outer, _) = element(certificate, SEQUENCE)?;
    let (_, after) = element(outer, SEQUENCE)?;
    let (algorithm, _) = element(after, SEQUENCE)?;
    element(algorithm, OBJECT_IDENTIFIER).map(|(identifier, _)| identifier)
}

/// Takes an element with this tag off DER, and returns its content and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, first], rest) = der.split_first_chunk()?;
    if found != tag {
        return None;
    }
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if length.len() > size_of::<u32>() {
            return None;
        }
        (length.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte)), rest)
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_signature() {
        // A certificate in outline: its parts are looked at from outside only.
        let certificate = |identifier: &[u8]| {
            let algorithm = [&[0x06, u8::try_from(identifier.len()).expect("short")], identifier].concat();
            let tail = [&[0x30, u8::try_from(algorithm.len()).expect("short")], &algorithm[..]].concat();
            let body = [&[0x30, 0x81, 0x03, 1, 2, 3], &tail[..]].concat();
            [&[0x30, 0x82, 0, u8::try_from(body.len()).expect("short")], &body[..]].concat()
        };
        for (identifier, hash) in [
            (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b][..], &digest::SHA256),
            (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0d], &digest::SHA512),
            (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03], &digest::SHA384),
            (&[0x2b, 0x65, 0x70], &digest::SHA256),
        ] {
            let der = certificate(identifier);
            let found = end_point_hash(&der).expect("a known algorithm");
            assert_eq!(found.as_ref(), digest::digest(hash, &der).as_ref());
        }
        assert!(end_point_hash(&certificate(&[0x2a, 0x03])).is_none());
        assert!(end_point_hash(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff, 0]).is_none(), "longer than it is");
    }
}
