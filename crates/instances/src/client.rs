//! A client of a deployment: calls stored procedures by name from another process.
//!
//! A call goes to the instance that owns its home key. A client that has the schema knows it ([`Router`]); for any other an
//! instance that is asked in vain runs nothing and names the right one.
//!
//! Owns: the connections, one for each instance, made when a call needs it and again when the instance is back. Never: runs a
//! procedure, or calls again what may have run.

mod connection;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use atrapos::{CallError, InstanceId, RegisterError, Registry, Schema, StoredProcedure, decode, encode};
use atrapos_channel::{
    ChannelError, ChannelKind, ConnectOptions, EndId, Hello, MESSAGE_BYTES_MAX, Secret, Watcher, connect,
};

use self::connection::{Answer, Connection};
use crate::description::{Description, DirectoryError, read_secret};
use crate::protocol::Outcome;
use crate::router::{Router, RouterError, SchemaHandles};

/// Choices of a client.
#[derive(Clone, Copy, Debug)]
pub struct ClientOptions {
    /// The way of the messages; that of the deployment if none is chosen.
    pub kind: Option<ChannelKind>,
    /// The longest wait for an instance that is not there. A call that has been sent waits for its answer without an end.
    pub patience: Duration,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions { kind: None, patience: Duration::from_secs(10) }
    }
}

/// Reasons for which a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The call was refused, or its transaction aborted: nothing has changed, unless the reason of the abort says that this is
    /// not known.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The directory has no deployment that this program can use.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The schema or the procedures are not those of the deployment.
    #[error(transparent)]
    Router(#[from] RouterError),
    /// Nothing was asked of the instance, as it does not answer or refuses this client.
    #[error("nothing was called: {0}")]
    NotCalled(ChannelError),
    /// The instance was lost before its answer.
    #[error(
        "{instance} was lost before its answer ({why}), so the transaction has committed or has not; look at the data before you call \
         again"
    )]
    Lost {
        /// The instance.
        instance: InstanceId,
        /// The cause.
        why: String,
    },
    /// The answer makes no sense.
    #[error("{0} has answered nonsense; use one version of the program for the deployment and its clients")]
    Nonsense(InstanceId),
    /// The transaction has committed.
    #[error(
        "the transaction has committed, but its result of {0} bytes is longer than an answer may be; ask for less at once"
    )]
    ResultTooLong(u64),
}

/// The longest wait for an instance in whose place others may be asked.
const PATIENCE_WITH_ANY: Duration = Duration::from_millis(500);

/// Bytes of a request besides its name and arguments, at most.
const REQUEST_HEAD_BYTES: usize = 32;

/// A client of a deployment. Threads share it: their calls are under way at the same time.
pub struct Client {
    directory: PathBuf,
    description: Description,
    secret: Secret,
    options: ClientOptions,
    watcher: Watcher,
    connections: Vec<Mutex<Option<Arc<Connection>>>>,
    /// The first choice of a call whose home is not known.
    next: AtomicUsize,
    router: Option<Router>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("description", &self.description).finish_non_exhaustive()
    }
}

impl Client {
    /// Becomes a client of the deployment in a directory. Connections are made when calls need them.
    ///
    /// # Errors
    /// Fails if the directory has no deployment, or threads cannot be started.
    pub fn connect(directory: &Path, options: ClientOptions) -> Result<Client, ClientError> {
        let description = Description::read(directory)?;
        let secret = read_secret(directory)?;
        let watcher = Watcher::start().map_err(ClientError::NotCalled)?;
        let connections = description.workers.iter().map(|_| Mutex::default()).collect();
        let directory = directory.to_owned();
        let next = AtomicUsize::new(0);
        Ok(Client { directory, description, secret, options, watcher, connections, next, router: None })
    }

    /// Has calls of the procedures that `register` adds go to their instance at once.
    ///
    /// # Errors
    /// Fails if the schema contradicts itself, or a procedure or the keys of the instances do not fit it.
    pub fn with_schema(
        mut self,
        schema: Schema,
        register: impl FnOnce(&mut Registry, &SchemaHandles) -> Result<(), RegisterError>,
    ) -> Result<Client, ClientError> {
        self.router = Some(Router::new(schema, &self.description.workers, &self.description.keys, register)?);
        Ok(self)
    }

    /// The deployment.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Runs a procedure and waits for its result.
    ///
    /// # Errors
    /// The reason for which there is none.
    pub fn call<P: StoredProcedure>(&self, procedure: &P) -> Result<P::Result, ClientError> {
        Ok(decode(&self.call_named(P::NAME, &encode(procedure)?)?)?)
    }

    /// Runs the procedure of a name with encoded arguments, and waits for its encoded result.
    ///
    /// # Errors
    /// The reason for which there is none.
    pub fn call_named(&self, name: &str, arguments: &[u8]) -> Result<Vec<u8>, ClientError> {
        let bytes = name.len().saturating_add(arguments.len());
        if bytes > MESSAGE_BYTES_MAX - REQUEST_HEAD_BYTES {
            let max = MESSAGE_BYTES_MAX - REQUEST_HEAD_BYTES;
            let why = format!("they have {bytes} bytes, and a call at most {max}; send less at once");
            return Err(CallError::Arguments(why).into());
        }
        let home = self.router.as_ref().map_or(Ok(None), |router| router.home(name, arguments))?;
        let (mut instance, mut outcome) = match home {
            Some(home) => (home, self.ask(home, self.options.patience, name, arguments)?),
            None => self.ask_any(name, arguments)?,
        };
        // Instances agree on the owners of all keys, so one that is named is the right one.
        if let Outcome::Elsewhere(named) = outcome {
            if usize::from(named) >= self.connections.len() {
                return Err(ClientError::Nonsense(instance));
            }
            instance = InstanceId(named);
            outcome = self.ask(instance, self.options.patience, name, arguments)?;
        }
        match outcome {
            Outcome::Done(result) => Ok(result),
            Outcome::Failed(failure) => {
                Err(failure.into_error().map_or(ClientError::Nonsense(instance), ClientError::Call))
            }
            Outcome::ResultTooLong { bytes } => Err(ClientError::ResultTooLong(bytes)),
            Outcome::Elsewhere(_) | Outcome::Cut(_) => Err(ClientError::Nonsense(instance)),
        }
    }

    /// Asks an instance that answers: one to which there is a connection, if possible.
    fn ask_any(&self, name: &str, arguments: &[u8]) -> Result<(InstanceId, Outcome), ClientError> {
        let instances = self.connections.len();
        let first = self.next.fetch_add(1, Ordering::Relaxed) % instances;
        let mut order: Vec<usize> = (first..instances).chain(0..first).collect();
        order.sort_by_key(|instance| !self.is_connected(*instance));
        let last = order.pop().expect("a deployment has instances");
        for instance in order.into_iter().map(|instance| InstanceId(instance as u16)) {
            let patience = self.options.patience.min(PATIENCE_WITH_ANY);
            match self.ask(instance, patience, name, arguments) {
                Err(ClientError::NotCalled(ChannelError::Unreachable(_))) => {}
                outcome => return outcome.map(|outcome| (instance, outcome)),
            }
        }
        let last = InstanceId(last as u16);
        self.ask(last, self.options.patience, name, arguments).map(|outcome| (last, outcome))
    }

    fn is_connected(&self, instance: usize) -> bool {
        // One that another thread connects to right now is not connected yet.
        let connection = self.connections[instance].try_lock();
        connection
            .is_ok_and(|connection| connection.as_ref().is_some_and(|connection| !connection.has_ended()))
    }

    fn ask(
        &self,
        instance: InstanceId,
        patience: Duration,
        name: &str,
        arguments: &[u8],
    ) -> Result<Outcome, ClientError> {
        let deadline = Instant::now() + patience;
        loop {
            let connection = self.connection(instance, deadline)?;
            match connection.call(name, arguments) {
                Answer::Outcome(outcome) => return Ok(outcome),
                Answer::Lost(why) => return Err(ClientError::Lost { instance, why }),
                Answer::NotSent(why) => {
                    if Instant::now() >= deadline {
                        return Err(ClientError::NotCalled(ChannelError::Unreachable(why)));
                    }
                }
            }
        }
    }

    /// Returns the connection to an instance; makes it if there is none, or it has ended.
    fn connection(&self, instance: InstanceId, deadline: Instant) -> Result<Arc<Connection>, ClientError> {
        let mut connection =
            self.connections[usize::from(instance.0)].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = connection.as_ref().filter(|connection| !connection.has_ended()) {
            return Ok(Arc::clone(connection));
        }
        let hello = Hello {
            deployment: self.description.deployment(),
            from: EndId::CLIENT,
            to: EndId { instance: atrapos_channel::InstanceId(instance.0), worker: 0 },
            kind: self.options.kind.unwrap_or(self.description.channel),
        };
        let mut options = ConnectOptions::new(&self.directory, self.watcher.clone());
        options.tcp = self.description.tcp.get(usize::from(instance.0)).copied();
        options.secret = Some(self.secret.clone());
        let channel = connect(&options, hello, deadline).map_err(ClientError::NotCalled)?;
        let made = Arc::new(Connection::start(channel).map_err(ClientError::NotCalled)?);
        *connection = Some(Arc::clone(&made));
        Ok(made)
    }
}
