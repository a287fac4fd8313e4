//! A server for a test, and a client that says what it is told to.
//!
//! Owns: starting both, and framing. Never: hides a message.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use atrapos::{Builder, Database, Schema, ThreadHost};
use atrapos_server::{Server, ServerOptions, password_verifier};
use atrapos_sql::{SqlDatabase, SqlOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// The time after which a test gives up waiting for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The name of the database of tests.
pub(crate) const DATABASE: &str = "test";

/// Version 3.0 of the protocol.
pub(crate) const VERSION: u32 = 3 << 16;

/// A server that ends with its test.
pub(crate) struct Running {
    server: Option<Server>,
    database: Arc<SqlDatabase>,
}

impl Running {
    /// Starts a server in memory that trusts everybody, with other options if `change` makes some.
    pub(crate) fn start(change: impl FnOnce(&mut ServerOptions)) -> Running {
        Running::on(Database::builder(Schema::new()).workers(2), None, change)
    }

    /// Starts a server whose superuser has a password, if one is given.
    pub(crate) fn start_with(password: Option<&str>, change: impl FnOnce(&mut ServerOptions)) -> Running {
        Running::on(Database::builder(Schema::new()).workers(2), password, change)
    }

    /// Starts a server for a database with these settings, in memory, whose superuser has a password if one is given.
    pub(crate) fn on(
        builder: Builder,
        password: Option<&str>,
        change: impl FnOnce(&mut ServerOptions),
    ) -> Running {
        let mut options = ServerOptions {
            listen: vec!["127.0.0.1:0".parse().expect("an address")],
            socket_directory: None,
            private_directory: None,
            http: None,
            trust: true,
            tls: None,
            max_connections: 100,
            threads: 1,
            worker_threads: Some(Arc::default()),
            slow_log: None,
            http_token: None,
        };
        change(&mut options);
        let password = password.map(str::to_owned);
        // Opening a database and starting a server wait, which the thread of a test must not.
        let started = std::thread::spawn(move || {
            let mut builder = builder.pin(false);
            if let Some(threads) = &options.worker_threads {
                let host: Arc<dyn ThreadHost> = Arc::clone(threads) as Arc<dyn ThreadHost>;
                builder = builder.thread_host(host);
            }
            let database = builder.in_memory().expect("a database");
            let sql = SqlOptions {
                name: DATABASE.to_owned(),
                superuser: "ada".to_owned(),
                password_verifier: Some(password_verifier),
                ..SqlOptions::default()
            };
            let database = SqlDatabase::open(database, sql).expect("SQL");
            if let Some(password) = password {
                let verifier = password_verifier(&password).expect("a verifier");
                database.set_password_verifier("ada", verifier).expect("it is kept");
            }
            (Server::start(Arc::clone(&database), options).expect("a server"), database)
        });
        let (server, database) = started.join().expect("it starts");
        Running { server: Some(server), database }
    }

    /// The database, for another thread.
    pub(crate) fn shared_database(&self) -> Arc<SqlDatabase> {
        Arc::clone(&self.database)
    }

    /// The database. On a thread that may wait.
    pub(crate) fn database(&self) -> &Database {
        self.database.database()
    }

    /// Starts a server whose superuser proves a password.
    pub(crate) fn with_password(password: &str) -> Running {
        Running::start_with(Some(password), |options| options.trust = false)
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs until it is dropped")
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server().addresses()[0]
    }

    /// Ends the server, on a thread that may wait.
    pub(crate) async fn end(mut self) {
        if let Some(server) = self.server.take() {
            tokio::task::spawn_blocking(move || server.end()).await.expect("it ends");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            let ending = std::thread::spawn(move || server.end());
            let _ = ending.join();
        }
    }
}

/// A message from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) tag: u8,
    pub(crate) body: Vec<u8>,
}

impl Message {
    /// Returns a field of an error or a notice.
    pub(crate) fn field(&self, code: u8) -> Option<String> {
        assert!(matches!(self.tag, b'E' | b'N'), "{self:?}");
        self.body
            .split(|&byte| byte == 0)
            .find(|field| field.first() == Some(&code))
            .map(|field| String::from_utf8_lossy(&field[1..]).into_owned())
    }

    /// Returns severity and SQLSTATE of an error.
    pub(crate) fn error(&self) -> (String, String) {
        (self.field(b'V').expect("a severity"), self.field(b'C').expect("a state"))
    }
}

/// Returns the types of messages as a text.
pub(crate) fn tags(messages: &[Message]) -> String {
    messages.iter().map(|message| char::from(message.tag)).collect()
}

/// A message to the server.
pub(crate) fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("short");
    [&[tag][..], &length.to_be_bytes(), body].concat()
}

/// A first packet: a code, and what follows it.
pub(crate) fn packet(code: u32, rest: &[u8]) -> Vec<u8> {
    let length = u32::try_from(rest.len() + 8).expect("short");
    [&length.to_be_bytes()[..], &code.to_be_bytes(), rest].concat()
}

/// A startup message.
pub(crate) fn startup(version: u32, parameters: &[&str]) -> Vec<u8> {
    let mut rest = Vec::new();
    for parameter in parameters {
        rest.extend_from_slice(parameter.as_bytes());
        rest.push(0);
    }
    rest.push(0);
    packet(version, &rest)
}

/// The messages by which a client that guesses begins to prove a password, and fails.
pub(crate) fn guess() -> Vec<u8> {
    let first = b"n,,n=,r=abcdefghijklmnopqrstuvwx";
    let length = u32::try_from(first.len()).expect("short");
    let begins = message(b'p', &[&b"SCRAM-SHA-256\0"[..], &length.to_be_bytes(), first].concat());
    [begins, message(b'p', b"c=biws,r=abc,p=AAAA")].concat()
}

/// A connection.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
}

impl Raw {
    pub(crate) async fn connect(address: SocketAddr) -> Raw {
        Raw { stream: TcpStream::connect(address).await.expect("a connection") }
    }

    /// Connects from another address of this machine.
    pub(crate) async fn connect_from(own: Ipv4Addr, address: SocketAddr) -> Raw {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((own, 0).into()).expect("an address of this machine");
        Raw { stream: socket.connect(address).await.expect("a connection") }
    }

    /// Connects and logs in. Returns the messages up to the first ReadyForQuery, too.
    pub(crate) async fn logged_in(address: SocketAddr) -> (Raw, Vec<Message>) {
        let mut raw = Raw::connect(address).await;
        raw.send(&startup(VERSION, &["user", "ada", "database", DATABASE])).await;
        let greeting = raw.until_ready().await;
        assert_eq!(greeting.last().expect("a message").tag, b'Z', "{greeting:?}");
        (raw, greeting)
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("sent");
    }

    pub(crate) async fn byte(&mut self) -> u8 {
        tokio::time::timeout(PATIENCE, self.stream.read_u8()).await.expect("in time").expect("a byte")
    }

    /// Reads a message; `None` if the server has ended the connection.
    pub(crate) async fn read(&mut self) -> Option<Message> {
        tokio::time::timeout(PATIENCE, async {
            let tag = self.stream.read_u8().await.ok()?;
            let length = self.stream.read_u32().await.expect("a whole message");
            assert!((4..1 << 24).contains(&length), "a length of {length} after {tag}");
            let mut body = vec![0; length as usize - 4];
            self.stream.read_exact(&mut body).await.expect("a whole message");
            Some(Message { tag, body })
        })
        .await
        .expect("an answer in time")
    }

    /// Reads messages up to ReadyForQuery or the end.
    pub(crate) async fn until_ready(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        while let Some(message) = self.read().await {
            messages.push(message);
            if messages.last().is_some_and(|message| message.tag == b'Z') {
                break;
            }
        }
        messages
    }

    /// Reads messages up to the end.
    pub(crate) async fn until_end(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        while let Some(message) = self.read().await {
            messages.push(message);
        }
        messages
    }
}
