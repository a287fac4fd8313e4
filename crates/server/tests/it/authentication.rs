//! Passwords, as a driver proves them, and encryption.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_postgres::config::{ChannelBinding as Binding, SslMode};
use tokio_postgres::tls::{ChannelBinding, NoTls, TlsConnect};
use tokio_postgres::{Config, Error};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::raw::{DATABASE, Running};

const CERTIFICATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/certificate.pem");
const KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/key.pem");

fn config(running: &Running, user: &str, password: &str) -> Config {
    let mut config = Config::new();
    config.host("127.0.0.1").port(running.address().port()).user(user).password(password).dbname(DATABASE);
    config
}

async fn log_in(config: &Config) -> Result<(), Error> {
    let (client, connection) = config.connect(NoTls).await?;
    let running = tokio::spawn(connection);
    drop(client);
    running.await.expect("no panic")
}

/// Returns SQLSTATE and message of a refusal.
fn refusal(error: &Error) -> (String, String) {
    let error = error.as_db_error().expect("the server has answered");
    (error.code().code().to_owned(), error.message().to_owned())
}

#[tokio::test]
async fn passwords_are_proved() {
    let running = Running::with_password("correct horse");
    log_in(&config(&running, "ada", "correct horse")).await.expect("logged in");
    for user in ["ada", "nobody"] {
        let refused = log_in(&config(&running, user, "wrong")).await.expect_err("refused");
        let message = format!("password authentication failed for user \"{user}\"");
        assert_eq!(refusal(&refused), ("28P01".to_owned(), message));
    }
    // Failures, however many at a time, keep nobody out.
    let guesses: Vec<_> = (0..50)
        .map(|guess| {
            let config = config(&running, "ada", &format!("guess {guess}"));
            tokio::spawn(async move { log_in(&config).await.is_err() })
        })
        .collect();
    log_in(&config(&running, "ada", "correct horse")).await.expect("logged in");
    for guess in guesses {
        assert!(guess.await.expect("no panic"));
    }
}

#[tokio::test]
async fn roles_log_in_by_the_passwords_that_statements_give_them() {
    let running = Running::with_password("correct horse");
    let (owner, connection) =
        config(&running, "ada", "correct horse").connect(NoTls).await.expect("logged in");
    let owner_runs = tokio::spawn(connection);
    let run = async |text: &str| owner.batch_execute(text).await.expect("it runs");
    run("CREATE USER bob PASSWORD 'first'; CREATE ROLE eve PASSWORD 'hers'; CREATE USER idle").await;
    log_in(&config(&running, "bob", "first")).await.expect("logged in");
    // Nobody learns whether a role has a password, or may log in, without proving one.
    for (user, password) in [("bob", "second"), ("eve", "wrong"), ("idle", "wrong"), ("nobody", "wrong")] {
        let refused = log_in(&config(&running, user, password)).await.expect_err("refused");
        assert_eq!(refusal(&refused).0, "28P01", "{user}");
    }
    let refused = log_in(&config(&running, "eve", "hers")).await.expect_err("refused");
    assert_eq!(refusal(&refused).0, "28000");
    run("ALTER ROLE bob PASSWORD 'second'; ALTER ROLE eve LOGIN").await;
    log_in(&config(&running, "bob", "second")).await.expect("logged in");
    log_in(&config(&running, "eve", "hers")).await.expect("logged in");
    assert!(log_in(&config(&running, "bob", "first")).await.is_err());
    let stored = owner.query_one("SELECT rolpassword FROM pg_authid WHERE rolname = 'bob'", &[]).await;
    let stored: String = stored.expect("a row").get(0);
    assert!(stored.starts_with("SCRAM-SHA-256$4096:"), "{stored}");
    run(&format!("CREATE USER copy PASSWORD '{stored}'; DROP ROLE bob")).await;
    log_in(&config(&running, "copy", "second")).await.expect("a verifier is kept as it is");
    let refused = log_in(&config(&running, "bob", "second")).await.expect_err("refused");
    assert_eq!(refusal(&refused).0, "28P01");
    let (bob, connection) = config(&running, "copy", "second").connect(NoTls).await.expect("logged in");
    let bob_runs = tokio::spawn(connection);
    assert_eq!(
        bob.execute("CREATE TABLE t (a int)", &[])
            .await
            .expect_err("refused")
            .code()
            .map(tokio_postgres::error::SqlState::code),
        Some("42501")
    );
    drop((owner, bob));
    let _ = (owner_runs.await, bob_runs.await);
}

/// TLS for the driver, with the test's certificate as the only one that is trusted.
struct Encrypted {
    binding: Option<Vec<u8>>,
}

struct EncryptedStream {
    stream: TlsStream<TcpStream>,
    binding: Option<Vec<u8>>,
}

impl TlsConnect<TcpStream> for Encrypted {
    type Stream = EncryptedStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<EncryptedStream>> + Send>>;

    fn connect(self, stream: TcpStream) -> Self::Future {
        Box::pin(async move {
            let mut roots = rustls::RootCertStore::empty();
            let certificate = CertificateDer::from_pem_file(CERTIFICATE).expect("a certificate");
            roots.add(certificate).expect("a certificate to trust");
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = rustls::ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .expect("versions")
                .with_root_certificates(roots)
                .with_no_client_auth();
            let name = ServerName::try_from("localhost").expect("a name");
            let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
            Ok(EncryptedStream { stream, binding: self.binding })
        })
    }
}

impl tokio_postgres::tls::TlsStream for EncryptedStream {
    fn channel_binding(&self) -> ChannelBinding {
        self.binding.clone().map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

impl AsyncRead for EncryptedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for EncryptedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

/// Logs in by an encrypted connection that the client takes to be bound to `binding`.
async fn log_in_encrypted(config: &Config, binding: Option<Vec<u8>>) -> Result<(), Error> {
    let address = format!("127.0.0.1:{}", config.get_ports()[0]);
    let stream = TcpStream::connect(address).await.expect("connected");
    let (client, connection) = config.connect_raw(stream, Encrypted { binding }).await?;
    let running = tokio::spawn(connection);
    drop(client);
    running.await.expect("no panic")
}

#[tokio::test]
async fn passwords_are_bound_to_the_certificate() {
    let running = Running::start_with(Some("secret"), |options| {
        options.trust = false;
        options.tls = Some((CERTIFICATE.into(), KEY.into()));
    });
    let mut config = config(&running, "ada", "secret");
    config.ssl_mode(SslMode::Require).channel_binding(Binding::Require);
    let certificate = CertificateDer::from_pem_file(CERTIFICATE).expect("a certificate");
    // Signed with SHA-384, so that it is not by chance the hash that most certificates have.
    let hash = ring::digest::digest(&ring::digest::SHA384, &certificate);
    log_in_encrypted(&config, Some(hash.as_ref().to_vec())).await.expect("logged in");
    let refused = log_in_encrypted(&config, Some(vec![7; 48])).await.expect_err("another certificate");
    assert_eq!(refusal(&refused).0, "28000");
    config.channel_binding(Binding::Disable);
    log_in_encrypted(&config, None).await.expect("logged in without a binding");
    config.password("wrong");
    let refused = log_in_encrypted(&config, None).await.expect_err("a wrong password");
    assert_eq!(refusal(&refused).0, "28P01");
}
