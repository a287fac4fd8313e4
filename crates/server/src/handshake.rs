//! The start of a connection: encryption, the protocol's version, who it is, and whether that is true.
//!
//! Owns: everything up to AuthenticationOk. Never: runs a statement; takes a place among sessions.
//!
//! Invariants: whoever fails to prove who it is learns neither whether there is such a user nor which half of a proof was wrong: the
//! answer is the same, and comes after [`FAILED_LOGIN_DELAY`], which costs a timer and no thread.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::time::Duration;

use atrapos_sql::{SqlError, SqlState};
use ring::rand::SystemRandom;

use crate::auth::scram::{Exchange, ScramError};
use crate::errors::{self, fatal};
use crate::protocol::backend::{self, Authentication as Request};
use crate::protocol::body::Body;
use crate::protocol::startup::{FirstPacket, NEWEST, Startup};
use crate::server::Shared;
use crate::shutdown::Phase;
use crate::stream::{Broken, Channel, Socket};

/// The time after which a failed log-in is answered.
const FAILED_LOGIN_DELAY: Duration = Duration::from_millis(500);

/// The place that a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// An address of a network, this machine's own included.
    Network(IpAddr),
    /// A process of this machine, through a Unix socket.
    Local,
    /// A process of the user who runs the server, through the socket inside of the database directory.
    Owner,
}

impl Peer {
    /// Returns the address that places for logging in are counted by.
    pub(crate) fn address(self) -> Option<IpAddr> {
        match self {
            Peer::Network(address) => Some(address),
            Peer::Local | Peer::Owner => None,
        }
    }
}

/// The facts that a client has told, and proved, of itself.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) version: u32,
    pub(crate) user: String,
    /// Settings of the session that it asks for.
    pub(crate) settings: Vec<(String, String)>,
}

/// The reason for which a connection ends before its session.
#[derive(Debug)]
enum Failed {
    /// The client is told.
    Refused(SqlError),
    /// The client is gone, or never spoke the protocol.
    Gone,
}

impl From<SqlError> for Failed {
    fn from(error: SqlError) -> Failed {
        Failed::Refused(error)
    }
}

impl From<std::io::Error> for Failed {
    fn from(_: std::io::Error) -> Failed {
        Failed::Gone
    }
}

impl From<Broken> for Failed {
    fn from(broken: Broken) -> Failed {
        match broken {
            Broken::Socket(_) => Failed::Gone,
            Broken::Length(_) => fatal(SqlState::PROTOCOL_VIOLATION, broken.to_string()).into(),
        }
    }
}

/// The future of a connection's start.
pub(crate) type Starting<'a> = Pin<Box<dyn Future<Output = Option<(Channel, Client)>> + Send + 'a>>;

/// Leads a connection up to its session; `None` if it has ended.
///
/// The future is in a box: a connection has it behind itself for most of its life.
pub(crate) fn start(shared: &Shared, socket: Socket, peer: Peer) -> Starting<'_> {
    Box::pin(async move {
        let mut packet = Vec::new();
        let mut channel = first_packets(shared, Channel::new(socket), &mut packet).await?;
        match greet(shared, &mut channel, peer, &packet).await {
            Ok(client) => Some((channel, client)),
            Err(Failed::Refused(error)) => {
                refuse(channel, &error).await;
                None
            }
            Err(Failed::Gone) => None,
        }
    })
}

/// Tells the client why its connection ends, and ends it.
pub(crate) async fn refuse(mut channel: Channel, error: &SqlError) {
    errors::write(channel.out(), error);
    // Whoever has gone already needs not be told.
    let _ = channel.end().await;
}

/// Reads packets up to the startup message, which is then in `packet`, and agrees on encryption. Whoever sends something else is no
/// client: the connection ends without a word.
async fn first_packets(shared: &Shared, mut channel: Channel, packet: &mut Vec<u8>) -> Option<Channel> {
    let (mut tls_asked, mut gss_asked) = (false, false);
    loop {
        channel.first_packet(packet).await.ok()??;
        match FirstPacket::read(packet) {
            Ok(FirstPacket::Tls) if !tls_asked => {
                tls_asked = true;
                channel = encrypt(shared, channel).await?;
            }
            Ok(FirstPacket::Gss) if !gss_asked => {
                gss_asked = true;
                channel.out().push(b'N');
                channel.send().await.ok()?;
            }
            Ok(FirstPacket::Cancel { process, secret }) => {
                shared.counters.cancel_requests.add_one();
                shared.sessions.cancel(process, secret);
                return None;
            }
            Ok(FirstPacket::Tls | FirstPacket::Gss) | Err(_) => return None,
            Ok(FirstPacket::Startup(_) | FirstPacket::Unsupported { .. }) => return Some(channel),
        }
    }
}

/// Encrypts a connection if the server has a certificate.
async fn encrypt(shared: &Shared, mut channel: Channel) -> Option<Channel> {
    let tls = shared.tls.as_ref().filter(|_| channel.is_tcp());
    channel.out().push(if tls.is_some() { b'S' } else { b'N' });
    channel.send().await.ok()?;
    let Some(tls) = tls else { return Some(channel) };
    if !channel.is_drained() {
        // It was sent before the encryption began: somebody in between may have put it there.
        return None;
    }
    let Socket::Tcp(stream) = channel.into_socket() else { return None };
    let encrypted = tls.acceptor.accept(stream).await.ok()?;
    Some(Channel::new(Socket::Tls(Box::new(encrypted))))
}

/// Agrees with a client on a version and finds out who it is.
async fn greet(shared: &Shared, channel: &mut Channel, peer: Peer, packet: &[u8]) -> Result<Client, Failed> {
    let startup = match FirstPacket::read(packet) {
        Ok(FirstPacket::Startup(startup)) => startup,
        Ok(FirstPacket::Unsupported { major, minor }) => {
            let why = format!("unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.2");
            return Err(fatal(SqlState::FEATURE_NOT_SUPPORTED, why).into());
        }
        _ => return Err(Failed::Gone),
    };
    if startup.needs_negotiation() {
        backend::negotiate_version(channel.out(), NEWEST.min(startup.version), &startup.options);
    }
    if *shared.phase.borrow() != Phase::Running {
        return Err(fatal(errors::CANNOT_CONNECT_NOW, "the database system is shutting down").into());
    }
    let user = startup.parameter("user").filter(|user| !user.is_empty()).ok_or_else(|| {
        fatal(SqlState::INVALID_AUTHORIZATION, "no PostgreSQL user name specified in startup packet")
    })?;
    if !matches!(startup.parameter("replication"), None | Some("false" | "off" | "no" | "0")) {
        return Err(SqlError::unsupported("replication").severity(atrapos_sql::Severity::Fatal).into());
    }
    authenticate(shared, channel, peer, user).await?;
    // Only now: databases are no business of those who have not logged in.
    let database = startup.parameter("database").filter(|name| !name.is_empty()).unwrap_or(user);
    // The owner's shell knows the directory, not the name.
    if database != shared.database_name && peer != Peer::Owner {
        let hint = format!("The database of this server is called \"{}\".", shared.database_name);
        let why = format!("database \"{database}\" does not exist");
        return Err(fatal(errors::UNDEFINED_DATABASE, why).hint(hint).into());
    }
    backend::authentication(channel.out(), &Request::Ok);
    // Nor does it know names of roles, and who may read the files may be everybody.
    let is_unknown = peer == Peer::Owner && shared.database.check_login(user).is_err();
    let user = if is_unknown { shared.database.superuser() } else { user.to_owned() };
    Ok(Client { version: startup.version, user, settings: settings(&startup)? })
}

/// Returns the settings of a startup message, those among its options included.
fn settings(startup: &Startup<'_>) -> Result<Vec<(String, String)>, SqlError> {
    let mut settings = Vec::new();
    for &(name, value) in &startup.parameters {
        match name {
            "user" | "database" | "replication" => {}
            "options" => options(value, &mut settings)?,
            _ => settings.push((name.to_owned(), value.to_owned())),
        }
    }
    Ok(settings)
}

/// Reads options as of a command line: `-c name=value` and `--name=value`, with a backslash before a space that belongs to a value.
fn options(text: &str, settings: &mut Vec<(String, String)>) -> Result<(), SqlError> {
    let mut words = vec![String::new()];
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => words.last_mut().expect("one at least").extend(letters.next()),
            letter if letter.is_whitespace() => words.push(String::new()),
            letter => words.last_mut().expect("one at least").push(letter),
        }
    }
    let mut words = words.into_iter().filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("--").or_else(|| word.strip_prefix("-c")) {
            Some("") if word == "-c" => words.next(),
            setting => setting.map(str::to_owned),
        };
        let (name, value) =
            setting.as_deref().and_then(|setting| setting.split_once('=')).ok_or_else(|| {
                let why = format!("invalid command-line argument for server process: {word}");
                fatal(SqlState::SYNTAX_ERROR, why).hint("Options are settings: -c name=value.")
            })?;
        // As in PostgreSQL, dashes of an option's name are underscores.
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(())
}

/// Makes a client prove who it is, if it has to.
async fn authenticate(shared: &Shared, channel: &mut Channel, peer: Peer, user: &str) -> Result<(), Failed> {
    if shared.trusts(peer) {
        return Ok(());
    }
    if shared.has_trust() {
        let why = "connections from this address are not allowed by this server";
        return Err(fatal(SqlState::INVALID_AUTHORIZATION, why).into());
    }
    let certificate = shared.tls.as_ref().filter(|_| channel.is_encrypted()).map(|tls| &*tls.end_point);
    let (verifier, is_known) = shared.passwords.of(&shared.database, user);
    let failed = match scram(channel, Exchange::new(verifier, certificate)).await? {
        Ok(()) if is_known => return Ok(()),
        Ok(()) => ScramError::Proof,
        Err(failed) => failed,
    };
    shared.counters.failed_logins.add_one();
    tokio::time::sleep(FAILED_LOGIN_DELAY).await;
    Err(match failed {
        ScramError::Proof => {
            let why = format!("password authentication failed for user \"{user}\"");
            fatal(errors::INVALID_PASSWORD, why).into()
        }
        ScramError::Binding => fatal(SqlState::INVALID_AUTHORIZATION, failed.to_string()).into(),
        ScramError::Random => fatal(SqlState::INTERNAL_ERROR, failed.to_string()).into(),
        ScramError::Malformed(_) | ScramError::Unsupported(_) => {
            fatal(SqlState::PROTOCOL_VIOLATION, failed.to_string()).into()
        }
    })
}

/// Exchanges the messages of SCRAM.
async fn scram(channel: &mut Channel, exchange: Exchange<'_>) -> Result<Result<(), ScramError>, Failed> {
    backend::authentication(channel.out(), &Request::Sasl(exchange.mechanisms()));
    let mut message = Vec::new();
    password(channel, &mut message).await?;
    let mut body = Body::new(b'p', &message);
    let (mechanism, first) = body
        .string()
        .and_then(|mechanism| Ok((mechanism, body.value()?)))
        .map_err(|error| errors::malformed(&error).severity(atrapos_sql::Severity::Fatal))?;
    let challenged = match exchange.challenge(mechanism, first.unwrap_or_default(), &SystemRandom::new()) {
        Ok(challenged) => challenged,
        Err(failed) => return Ok(Err(failed)),
    };
    backend::authentication(channel.out(), &Request::SaslContinue(&challenged.server_first));
    password(channel, &mut message).await?;
    Ok(challenged
        .finish(&message)
        .map(|last| backend::authentication(channel.out(), &Request::SaslFinal(&last))))
}

/// Sends what there is and takes an answer to a request for authentication.
async fn password(channel: &mut Channel, message: &mut Vec<u8>) -> Result<(), Failed> {
    channel.send().await?;
    match channel.message(message).await? {
        Some(b'p') => Ok(()),
        // As when psql has no password and asks its user for one.
        None | Some(b'X') => Err(Failed::Gone),
        Some(other) => {
            let why = format!("expected SASL response, got message type {other}");
            Err(fatal(SqlState::PROTOCOL_VIOLATION, why).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_settings() {
        let read = |text: &str| {
            let mut settings = Vec::new();
            options(text, &mut settings).map(|()| settings)
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(read(" "), Ok(vec![]));
        assert_eq!(
            read("-c geqo=off  --statement-timeout=5min -cDateStyle=ISO,\\ MDY"),
            Ok(vec![pair("geqo", "off"), pair("statement_timeout", "5min"), pair("DateStyle", "ISO, MDY")])
        );
        for bad in ["-c", "-c geqo", "geqo=off", "-B 3"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
