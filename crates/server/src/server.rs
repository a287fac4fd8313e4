//! A running server: its listeners, its threads, and its end.
//!
//! Owns: sockets that listen, the threads on which connections are served, and the order of the end. Never: serves a connection itself.
//!
//! Invariants: whatever serves a connection waits for neither a worker nor a disk but as a future; the number of connections is bounded
//! by the places of [`Admission`].

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use atrapos_sql::{ConnectOptions, Connection, SqlDatabase, SqlError, SqlState};
use atrapos_watch::report::Latency;
use thiserror::Error;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::watch;

use crate::admission::Admission;
use crate::auth::passwords::Passwords;
use crate::counters::Counters;
use crate::errors::fatal;
use crate::handshake::{self, Client, Peer};
use crate::http::{self, Monitor, Tokens};
use crate::latency::Latencies;
use crate::listener::{self, Listener};
use crate::session::Session;
use crate::sessions::{Registered, Sessions};
use crate::shutdown::Phase;
use crate::slow_log::SlowLog;
use crate::stream::{Channel, Socket};
use crate::tls::{Tls, TlsError};
use crate::worker_threads::WorkerThreads;

/// The time in which a client has to log in.
const LOGIN_TIME: Duration = Duration::from_secs(20);

/// The version of the protocol from which on secrets of cancel requests may be long.
const LONG_SECRETS: u32 = 3 << 16 | 2;

/// The time that sessions have to go when the server ends.
const END_TIME: Duration = Duration::from_secs(5);

/// The pause between two looks at the number of sessions, while the server waits for them to go.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The settings of a server.
#[derive(Debug)]
pub struct ServerOptions {
    /// Addresses to listen at; port 0 chooses one.
    pub listen: Vec<SocketAddr>,
    /// A directory for a Unix socket, open to all users of the machine. Unix sockets are named by the port of the first address.
    pub socket_directory: Option<PathBuf>,
    /// A directory for a Unix socket that is open to the user who runs the server, without a password; nobody else may look into it.
    pub private_directory: Option<PathBuf>,
    /// An address for the dashboard, `/metrics` and `/health`.
    pub http: Option<SocketAddr>,
    /// Set to trust everybody on this machine, and refuse others; otherwise roles prove their passwords.
    pub trust: bool,
    /// The files of a certificate chain and its private key, in PEM form.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Sessions at a time.
    pub max_connections: usize,
    /// Threads on which clients log in, and which serve connections with TLS; without `worker_threads` all connections.
    pub threads: usize,
    /// The threads of the database's workers, if it was [opened](atrapos::Builder::thread_host) with them: they serve connections without TLS.
    pub worker_threads: Option<Arc<WorkerThreads>>,
    /// The log of statements that take long; `None` for none.
    pub slow_log: Option<SlowLog>,
    /// The token that requests for the dashboard's numbers and for `/metrics` have to carry (`Authorization: Bearer TOKEN`). `None` makes
    /// one for the dashboard ([`Server::generated_token`]), and answers all requests for metrics.
    pub http_token: Option<String>,
}

/// A server that does not start.
#[derive(Debug, Error)]
pub enum ServerError {
    /// An address, or the path of a socket, cannot be listened at.
    #[error("it cannot be listened at {at}: {error}")]
    Listen {
        /// The address or path.
        at: String,
        /// The reason.
        error: io::Error,
    },
    /// Everybody would be trusted who reaches the machine.
    #[error(
        "without authentication only addresses of this machine can be listened at, and {0} is none; use --auth scram"
    )]
    Trusting(SocketAddr),
    /// The certificate or its key cannot be used.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// Threads cannot be started.
    #[error("the threads of the server cannot be started: {0}")]
    Threads(io::Error),
    /// The system has no random numbers.
    #[error("the operating system returned no random numbers, without which nobody can log in")]
    Random,
}

/// The state that all connections of a server share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) database: Arc<SqlDatabase>,
    pub(crate) database_name: String,
    trust: bool,
    pub(crate) passwords: Passwords,
    pub(crate) tls: Option<Tls>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) counters: Counters,
    worker_threads: Option<Arc<WorkerThreads>>,
    slow_log: Option<SlowLog>,
    /// The latencies of requests.
    pub(crate) latencies: Arc<Latencies>,
    pub(crate) tokens: Tokens,
    pub(crate) monitor: Monitor,
    pub(crate) phase: watch::Receiver<Phase>,
}

/// A running server. Dropping it ends it at once.
#[derive(Debug)]
pub struct Server {
    runtime: Runtime,
    shared: Arc<Shared>,
    phase: watch::Sender<Phase>,
    addresses: Vec<SocketAddr>,
    http: Option<SocketAddr>,
    /// Sockets in directories, removed at the end.
    paths: Vec<PathBuf>,
}

impl Server {
    /// Starts a server for a database. Returns when it takes connections. Call it on a thread that may wait.
    ///
    /// # Errors
    /// Fails if an address cannot be listened at, or a file or setting cannot be used; nothing is left running.
    pub fn start(database: Arc<SqlDatabase>, options: ServerOptions) -> Result<Server, ServerError> {
        if options.trust
            && let Some(address) = options.listen.iter().find(|address| !address.ip().is_loopback())
        {
            return Err(ServerError::Trusting(*address));
        }
        let tls = options.tls.as_ref().map(|(certificate, key)| Tls::read(certificate, key)).transpose()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(options.threads.max(1))
            .thread_name("atrapos-server")
            .enable_io()
            .enable_time()
            .build()
            .map_err(ServerError::Threads)?;
        let (phase, watched) = watch::channel(Phase::Running);
        let listeners = runtime.block_on(listener::bind(&options))?;
        let shared = Arc::new(Shared {
            database_name: database.options().name.clone(),
            database,
            trust: options.trust,
            passwords: Passwords::new().map_err(|_| ServerError::Random)?,
            tls,
            admission: Admission::new(options.max_connections),
            sessions: Sessions::new().map_err(|_| ServerError::Random)?,
            counters: Counters::default(),
            worker_threads: options.worker_threads,
            slow_log: options.slow_log,
            latencies: Arc::default(),
            tokens: Tokens::new(options.http_token).map_err(|_| ServerError::Random)?,
            monitor: Monitor::new(),
            phase: watched,
        });
        let mut server =
            Server { runtime, shared, phase, addresses: Vec::new(), http: None, paths: Vec::new() };
        for listener in listeners {
            let shared = Arc::clone(&server.shared);
            match listener {
                Listener::Http(listener) => {
                    server.http = listener.local_addr().ok();
                    server.runtime.spawn(http::serve(shared, listener));
                    continue;
                }
                Listener::Tcp(_, address) => server.addresses.push(address),
                Listener::Unix(_, ref path, _) => server.paths.push(path.clone()),
            }
            server.runtime.spawn(listener::accept(shared, listener));
        }
        Ok(server)
    }

    /// Returns the addresses that are listened at, in the order of the options, with their ports.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the token by which the dashboard may be looked at, if none was chosen: it is shown to whoever starts the server.
    #[must_use]
    pub fn generated_token(&self) -> Option<&str> {
        self.shared.tokens.generated()
    }

    /// Returns the address of the dashboard, `/metrics` and `/health`, if there is one, with its port.
    #[must_use]
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Returns the number of sessions.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.shared.admission.sessions()
    }

    /// Returns a source of the latencies of requests: those that have been answered since it was called last.
    pub fn latency_source(&self) -> impl FnMut() -> Option<Latency> + Send + use<> {
        let latencies = Arc::clone(&self.shared.latencies);
        let mut before = latencies.read();
        move || {
            let now = latencies.read();
            let since = now.since(&before);
            before = now;
            Some(Latency { p50_us: since.quantile_us(0.5)?, p99_us: since.quantile_us(0.99)? })
        }
    }

    /// Begins to drain: new clients are refused (57P03), and sessions end (57P01) as soon as they are in no transaction.
    pub fn drain(&self) {
        self.phase.send_if_modified(|phase| {
            let running = *phase == Phase::Running;
            if running {
                *phase = Phase::Draining;
            }
            running
        });
    }

    /// Ends the server: what runs is cancelled, what is open is undone, all sessions end (57P01). Call it on a thread that may wait; it
    /// takes some seconds at most.
    pub fn end(self) {
        self.phase.send_replace(Phase::Ending);
        let until = Instant::now() + END_TIME;
        self.runtime.block_on(async {
            while self.sessions() > 0 && Instant::now() < until {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        });
        for path in &self.paths {
            // One that is gone already needs not be removed.
            let _ = std::fs::remove_file(path);
        }
        self.runtime.shutdown_timeout(END_TIME);
    }
}

impl Shared {
    /// Returns true if nobody is asked for a password.
    pub(crate) fn has_trust(&self) -> bool {
        self.trust
    }

    /// Returns true if whoever comes from there needs no password.
    pub(crate) fn trusts(&self, peer: Peer) -> bool {
        match peer {
            Peer::Owner => true,
            Peer::Local => self.trust,
            Peer::Network(address) => self.trust && address.is_loopback(),
        }
    }

    /// Returns the runtime on the thread of the worker that does what no key leads to for this session, if there is one.
    fn runtime_beside_worker(&self, process: i32) -> Option<Handle> {
        let workers = self.database.database().active_workers();
        self.worker_threads.as_ref()?.of(process.unsigned_abs() as usize, workers)
    }

    /// Begins the session of a client that has logged in.
    fn session(&self, client: Client) -> Result<(Connection, Registered), SqlError> {
        let process_id = self.sessions.number();
        let options = ConnectOptions { user: client.user, process_id, settings: client.settings };
        let connection = self.database.connect(options)?;
        let registered = self
            .sessions
            .register(process_id, client.version >= LONG_SECRETS, connection.cancel_handle())
            .map_err(|_| SqlError::new(SqlState::INTERNAL_ERROR, ServerError::Random.to_string()))?;
        Ok((connection, registered))
    }
}

/// Serves a connection from its first byte to its last.
pub(crate) async fn serve(shared: Arc<Shared>, socket: Socket, peer: Peer) {
    shared.counters.connections.add_one();
    let Some((channel, client)) = log_in(&shared, socket, peer).await else { return };
    let Some(admitted) = shared.admission.admit() else {
        shared.counters.too_many.add_one();
        let error = fatal(SqlState::TOO_MANY_CONNECTIONS, "sorry, too many clients already");
        return handshake::refuse(channel, &error).await;
    };
    let (connection, registered) = match shared.session(client) {
        Ok(session) => session,
        Err(error) => {
            return handshake::refuse(channel, &error.severity(atrapos_sql::Severity::Fatal)).await;
        }
    };
    shared.counters.sessions.add_one();
    let (phase, process, slow_log) = (shared.phase.clone(), registered.process, shared.slow_log.clone());
    let latencies = Arc::clone(&shared.latencies);
    let session = async move |channel: Channel| {
        Session::new(connection, channel, slow_log, latencies).run(&registered, phase).await;
        drop(admitted);
    };
    let Some(runtime) = shared.runtime_beside_worker(process).filter(|_| !channel.is_encrypted()) else {
        return session(channel).await;
    };
    shared.counters.beside_workers.add_one();
    // A socket that cannot change threads is broken, and its session ends here.
    if let Ok(detached) = channel.detach() {
        runtime.spawn(async move {
            if let Ok(channel) = detached.attach() {
                session(channel).await;
            }
        });
    }
}

/// Has a client log in, in time and as long as nobody else needs its place.
async fn log_in(shared: &Shared, socket: Socket, peer: Peer) -> Option<(Channel, Client)> {
    let mut place = shared.admission.half_open(peer.address());
    let (mut channel, client) = tokio::select! {
        started = tokio::time::timeout(LOGIN_TIME, handshake::start(shared, socket, peer)) => started.ok().flatten()?,
        _ = &mut place.displaced => return None,
    };
    channel.lift_limit();
    Some((channel, client))
}
