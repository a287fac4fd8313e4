//! Engines with shared data inside the instances of a deployment: the rows are divided among processes, and in each of them the
//! threads share theirs (the shared-nothing islands of Porobic et al., "OLTP on Hardware Islands", PVLDB 2012).
//!
//! Owns: the parts of transactions in several instances, and the commit that makes them one. Never: protects a row; the engine of
//! the instance that has it does.
//!
//! # How it works
//! - *A client is a thread* with a transaction in the engine of its own instance. Operations on keys of others go over a link of
//!   its own to a thread there, which has a transaction for it: its *part*. Only encoded keys and rows travel ([`wire`]), closures run at home.
//! - *A replaced row travels with the next request*: mostly with the one to prepare, so that an update costs a request for the row, which
//!   locks it exclusively, and nothing until the commit.
//! - *Two phases* ([`client`]): every part locks, validates and votes; the commit at home is the decision. Messages of a link arrive in
//!   order, and the rows that a part has changed are locked until it is told. A link that ends aborts its part (presumed abort).
//! - *A log* ([`hardening`]), if the instance has a directory: votes and decisions are durable before anybody is told, and a part that is
//!   prepared asks its home when a link or a process has ended ([`in_doubt`]).
//! - *Deadlocks* that cross instances are prevented: each lock manager lets a transaction wait for younger ones only
//!   ([`Deadlocks::Prevented`](crate::lock::Deadlocks::Prevented)), and a transaction has one age everywhere. An age is a number that
//!   an instance draws above all that it has seen in requests (Lamport's clocks), so that a transaction that tries again is soon the oldest
//!   of all it meets. Optimistic parts wait for nobody while they hold a lock.
//!
//! # Strict serializability
//! All locks of a transaction, or the validation of all it has read after its last lock on what it writes, hold at one moment between its
//! beginning and its decision. Until the decision arrives at a part, what it has written there is locked, so nobody sees a transaction in one
//! instance and not in another.
//!
//! # Invariants
//! - A client has one part in each instance at most, and a link runs one part at a time.
//! - A part that has voted for the commit, and has changes, holds its locks until it is told, over crashes if there is a log.
//! - An instance that ends logs nothing and votes for nothing from before the moment at which it lets go of rows of parts in doubt.

mod client;
mod hardening;
mod in_doubt;
mod line;
mod ownership;
mod peers;
mod routed;
mod server;
mod steps;
mod wire;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use atrapos_channel::{
    Channel, ChannelError, ChannelKind, ConnectOptions, DeploymentId, EndId, Hello, ListenOptions, Listener,
    Secret, Watcher, connect,
};
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::routing::InstanceId;
use atrapos_partition::schema::TableId;
use atrapos_storage::KeyBuf;
use crossbeam_utils::CachePadded;

use self::client::InstanceClient;
use self::hardening::Hardening;
use self::line::Line;
pub use self::ownership::Ownership;
pub use self::steps::CommitStep;
use self::steps::Stops;
use crate::durable::distributed::{PlaceOf, Resumed};
use crate::durable::{DurableEngine, StoreError};
use crate::planted::inherited;
use crate::rows::Visit;
use crate::session::{Engine, EngineClient, Written};

/// The place of an instance in its deployment.
#[derive(Clone, Debug)]
pub struct InstanceOptions {
    /// The deployment.
    pub deployment: DeploymentId,
    /// The directory of its sockets.
    pub directory: PathBuf,
    /// The way of the messages.
    pub kind: ChannelKind,
    /// The addresses on which the instances listen for TCP, if messages go that way.
    pub tcp: Vec<SocketAddr>,
    /// The secret that those who connect by TCP must know; none if the identity of the deployment is enough.
    pub secret: Option<Secret>,
    /// The number of this instance.
    pub instance: InstanceId,
    /// The number of instances.
    pub instances: usize,
    /// The place where clients of other processes that have connected are handed over; those of an instance without one are cut off.
    pub clients: Option<Sender<Box<dyn Channel>>>,
}

/// The engine of one instance, whose clients may access the rows of all.
pub struct InstanceEngine {
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for InstanceEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InstanceEngine").field("engine", &self.shared.engine).finish_non_exhaustive()
    }
}

/// State that the clients of an instance and the threads that serve others share.
struct Shared {
    engine: Box<dyn Engine>,
    ownership: Ownership,
    options: InstanceOptions,
    watcher: Watcher,
    /// The age that the next clients' transactions get, without the number of the instance.
    ages: CachePadded<AtomicU64>,
    stopping: AtomicBool,
    serving: Mutex<Vec<JoinHandle<()>>>,
    failures: Mutex<Vec<String>>,
    /// None if its data are in memory.
    hardening: Option<Hardening>,
    stops: Stops,
}

/// Ages that a client takes at once.
const AGES: u64 = 16;

/// Bits of an age that are the number of its instance: ages of different instances differ.
const INSTANCE_BITS: u32 = 16;

/// The time for which a transaction tries to reach an instance.
const PATIENCE: Duration = Duration::from_millis(100);

/// Sentences about failures that are kept.
const FAILURES_MAX: usize = 64;

impl InstanceEngine {
    /// Joins a deployment: others may access the rows of `engine` from now on. An engine with locks has to prevent deadlocks
    /// ([`Deadlocks::Prevented`](crate::lock::Deadlocks::Prevented)).
    ///
    /// # Errors
    /// Fails if the socket cannot be made, or the system gives no thread.
    pub fn join(
        engine: Box<dyn Engine>,
        ownership: Ownership,
        options: InstanceOptions,
    ) -> Result<InstanceEngine, ChannelError> {
        let shared = Shared::new(engine, ownership, options, None)?;
        let mut joined = InstanceEngine { shared, listening: None };
        joined.listen()?;
        Ok(joined)
    }

    /// Joins a deployment with an engine that has a directory. Transactions that were prepared there before it was closed, or a crash, have
    /// their locks again when this returns, and ask for their outcomes. `engine` prevents deadlocks, as for [`join`](Self::join).
    ///
    /// # Errors
    /// Fails if the directory is of another instance or no instance, the log cannot be written, or the socket cannot be made.
    pub fn join_durable(
        engine: DurableEngine,
        ownership: Ownership,
        options: InstanceOptions,
    ) -> Result<InstanceEngine, StoreError> {
        let (engine, store, resumed) = engine.into_parts();
        let path = store.path.clone();
        let (deployment, instance) = (options.deployment.0, options.instance);
        let place = PlaceOf { deployment, instance, division: ownership.checksum() };
        check_place(place, &resumed).map_err(|(is, cure)| StoreError::OtherPlace {
            path: path.clone(),
            is,
            cure,
        })?;
        let hardening = Hardening::begin(store, place, &resumed)?;
        let shared = Shared::new(engine, ownership, options, Some(hardening))?;
        let locked = in_doubt::bring_back(&shared, resumed.in_doubt);
        // Dropped without another word, it ends the transactions in doubt.
        let mut joined = InstanceEngine { shared, listening: None };
        locked.map_err(|abort| StoreError::InDoubt { path, abort })?;
        joined.listen()?;
        Ok(joined)
    }

    /// Accepts links of others.
    fn listen(&mut self) -> Result<(), ChannelError> {
        let shared = &self.shared;
        let InstanceOptions { directory, deployment, instance, tcp, .. } = &shared.options;
        let own = atrapos_channel::InstanceId(instance.0);
        let mut listen = ListenOptions::new(directory, *deployment, own, 1, shared.watcher.clone());
        listen.tcp = tcp.get(usize::from(own.0)).copied();
        listen.secret.clone_from(&shared.options.secret);
        let listener = Listener::bind(listen)?;
        let accepting = Arc::clone(shared);
        let accept = inherited(move || server::accept(&accepting, listener));
        let listening = thread::Builder::new().name("atrapos-accept".to_owned()).spawn(accept);
        let listening = listening.map_err(|error| ChannelError::Io {
            attempt: "start the thread that accepts links".to_owned(),
            reason: error.to_string(),
        })?;
        self.listening = Some(listening);
        Ok(())
    }

    /// Has the instance stop when it first gets to a step of a commit: from then on it tells nobody anything, and `leave` keeps what its files
    /// are. For tests.
    #[cfg(debug_assertions)]
    #[doc(hidden)]
    pub fn stop_at(&self, step: CommitStep, leave: impl FnOnce() + Send + 'static) {
        self.shared.stops.at(step, Box::new(leave));
    }

    /// Returns true if the instance has stopped at a step.
    #[cfg(debug_assertions)]
    #[doc(hidden)]
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.shared.stops.have_stopped()
    }

    /// Waits until all other instances can be reached.
    ///
    /// # Errors
    /// Fails if one cannot be reached before the deadline.
    pub fn wait_reachable(&self, deadline: Instant) -> Result<(), ChannelError> {
        let all = (0..self.shared.options.instances).map(|instance| InstanceId(instance as u16));
        let mut others = all.filter(|instance| *instance != self.shared.options.instance);
        others.try_for_each(|other| self.shared.connect_until(other, deadline).map(drop))
    }

    /// Returns why links failed or were cut off since this was asked last.
    #[must_use]
    pub fn take_failures(&self) -> Vec<String> {
        std::mem::take(&mut *self.shared.failures())
    }
}

/// Refuses a directory that belongs elsewhere, with what it is and how it can be opened.
fn check_place(place: PlaceOf, resumed: &Resumed) -> Result<(), (&'static str, &'static str)> {
    match resumed.place {
        Some(found) if found == place => Ok(()),
        Some(_) => Err((
            "is of another deployment, is another instance of this one, or had other keys",
            "at its own place",
        )),
        None if resumed.has_commits => Err(("is no instance of a deployment", "as a database of its own")),
        None => Ok(()),
    }
}

impl Shared {
    fn new(
        engine: Box<dyn Engine>,
        ownership: Ownership,
        options: InstanceOptions,
        hardening: Option<Hardening>,
    ) -> Result<Arc<Shared>, ChannelError> {
        Ok(Arc::new(Shared {
            engine,
            ownership,
            options,
            watcher: Watcher::start()?,
            ages: CachePadded::new(AtomicU64::new(1)),
            stopping: AtomicBool::new(false),
            serving: Mutex::default(),
            failures: Mutex::default(),
            hardening,
            stops: Stops::default(),
        }))
    }

    /// The log of the instance, if its data are not in memory alone.
    fn hardening(&self) -> Option<&Hardening> {
        self.hardening.as_ref()
    }

    /// Returns true if the instance ends, or has stopped.
    fn is_ending(&self) -> bool {
        #[cfg(debug_assertions)]
        if self.stops.have_stopped() {
            return true;
        }
        self.stopping.load(Ordering::Acquire)
    }

    /// Fails if the instance ends: what it has read since may be of parts in doubt that it has let go of.
    fn check_alive(&self) -> Result<(), Abort> {
        if !self.is_ending() {
            return Ok(());
        }
        Err(Abort::because(AbortReason::ShuttingDown, "the instance ends; start it again"))
    }

    fn serving(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failures(&self) -> MutexGuard<'_, Vec<String>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_failure(&self, sentence: String) {
        let mut failures = self.failures();
        if failures.len() < FAILURES_MAX {
            failures.push(sentence);
        }
    }

    /// Takes [`AGES`] ages that no other client of this instance gets.
    fn take_ages(&self) -> u64 {
        self.ages.fetch_add(AGES, Ordering::Relaxed)
    }

    /// Returns an age that no other instance has.
    fn unique_age(&self, age: u64) -> u64 {
        age << INSTANCE_BITS | u64::from(self.options.instance.0)
    }

    /// Makes transactions that begin here from now on younger than one of another instance.
    fn see_age(&self, age: u64) {
        let next = (age >> INSTANCE_BITS) + 1;
        if self.ages.load(Ordering::Relaxed) < next {
            self.ages.fetch_max(next, Ordering::Relaxed);
        }
    }

    /// Makes a link to another instance, for the calling thread.
    fn connect(&self, other: InstanceId) -> Result<Line, ChannelError> {
        self.connect_until(other, Instant::now() + PATIENCE)
    }

    fn connect_until(&self, other: InstanceId, deadline: Instant) -> Result<Line, ChannelError> {
        let InstanceOptions { directory, deployment, kind, tcp, instance, .. } = &self.options;
        let mut options = ConnectOptions::new(directory, self.watcher.clone());
        options.tcp = tcp.get(usize::from(other.0)).copied();
        options.secret.clone_from(&self.options.secret);
        let end =
            |instance: InstanceId| EndId { instance: atrapos_channel::InstanceId(instance.0), worker: 0 };
        let hello = Hello { deployment: *deployment, from: end(*instance), to: end(other), kind: *kind };
        connect(&options, hello, deadline).map(Line::new)
    }
}

impl Drop for InstanceEngine {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        if let Some(listening) = self.listening.take() {
            // A thread that has panicked has said so.
            let _ = listening.join();
        }
        let serving = std::mem::take(&mut *self.shared.serving());
        serving.iter().for_each(|thread| thread.thread().unpark());
        for thread in serving {
            let _ = thread.join();
        }
    }
}

impl Engine for InstanceEngine {
    fn name(&self) -> &'static str {
        self.shared.engine.name()
    }

    fn client(&self) -> Box<dyn EngineClient + '_> {
        Box::new(InstanceClient::new(&self.shared))
    }

    fn load(&self, table: TableId, rows: &[(KeyBuf, Box<[u8]>)]) -> Result<(), Abort> {
        if self.shared.hardening.is_some() {
            let why =
                "rows are loaded before the directory of an instance is made; insert these by a transaction";
            return Err(Abort::because(AbortReason::Misuse, why));
        }
        self.shared.engine.load(table, rows)
    }

    fn walk(&self, table: TableId, visit: &mut Visit<'_>) -> Result<(), Abort> {
        self.shared.engine.walk(table, visit)
    }

    fn memory_bytes(&self) -> u64 {
        self.shared.engine.memory_bytes()
    }

    fn check(&self) -> Result<(), String> {
        self.shared.engine.check()
    }

    fn written(&self) -> Option<Written> {
        self.shared.hardening().map(|hardening| hardening.store.written())
    }

    fn as_instance(&self) -> Option<&InstanceEngine> {
        Some(self)
    }

    fn close(self: Box<Self>) -> Result<(), Abort> {
        let shared = Arc::clone(&self.shared);
        // The threads of the instance have ended then.
        drop(self);
        Arc::into_inner(shared).and_then(|shared| shared.hardening).map_or(Ok(()), Hardening::close)
    }
}
