//! An instance among the others: it listens for those with a greater number, connects to those with a smaller one, and does so
//! again when an instance comes back.
//!
//! Two instances with `a` and `b` workers have `max(a, b)` links, link `i` between worker `i mod a` of the one and `i mod b` of the
//! other. So every worker has a link to each instance, and the greater of the workers' numbers is that of the link.
//!
//! Clients connect to the same socket; each is served by a thread of its own (`server`).
//!
//! Owns: the threads that establish links, and those that serve clients. Never: uses a link; the workers do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use atrapos::{Database, Division, InstanceId, Registry, WorkerId};
use atrapos_channel::{
    Accepted, Channel, ChannelError, ChannelKind, ConnectOptions, DeploymentId, EndId, Hello, ListenOptions,
    Listener, Secret, Watcher, connect,
};

use crate::server;

/// The place of an instance in its deployment.
#[derive(Clone, Debug)]
pub struct MemberOptions {
    /// The deployment.
    pub deployment: DeploymentId,
    /// The directory of its sockets.
    pub directory: PathBuf,
    /// The way of the messages.
    pub kind: ChannelKind,
    /// The addresses on which the instances listen for TCP, if messages go that way.
    pub tcp: Vec<std::net::SocketAddr>,
    /// The secret that those who connect by TCP must know; none if the identity of the deployment is enough.
    pub secret: Option<Secret>,
    /// The procedures that clients may call; none if there are no clients.
    pub registry: Option<Arc<Registry>>,
}

/// The links of an instance, kept up by threads until this is dropped.
pub struct Member {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member").field("linked", &self.linked()).finish_non_exhaustive()
    }
}

struct Shared {
    db: Arc<Database>,
    division: Division,
    options: MemberOptions,
    watcher: Watcher,
    stopping: AtomicBool,
    links: Mutex<Links>,
    clients: Mutex<Vec<JoinHandle<()>>>,
    changed: Condvar,
}

/// The instances that are linked, and the sentences about failures.
#[derive(Default)]
struct Links {
    linked: BTreeSet<InstanceId>,
    failures: Vec<String>,
}

/// The time between two looks at the request to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The shortest and the longest pause before another attempt to connect.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Sentences about failures that are kept.
const FAILURES_MAX: usize = 64;

/// Clients that an instance serves at a time: each takes a thread.
const CLIENTS_MAX: usize = 1024;

/// The ends of the links from another instance that have been accepted so far, by their numbers.
type Ends = BTreeMap<usize, Box<dyn Channel>>;

/// The own ends of all links with another instance, in the order of their numbers.
type OwnEnds = Vec<Box<dyn Channel>>;

impl Member {
    /// Joins the deployment: listens, and begins to connect.
    ///
    /// # Errors
    /// Fails if the database is no instance, or the socket cannot be made.
    pub fn join(db: Arc<Database>, options: MemberOptions) -> Result<Member, ChannelError> {
        let Some(division) = db.division().cloned() else {
            return Err(ChannelError::Refused(
                "a database that is no instance cannot join a deployment; build it as an instance".to_owned(),
            ));
        };
        let own = division.instance;
        let watcher = Watcher::start()?;
        let (instance, workers) = (atrapos_channel::InstanceId(own.0), db.workers() as u16);
        let mut listen =
            ListenOptions::new(&options.directory, options.deployment, instance, workers, watcher.clone());
        listen.tcp = options.tcp.get(usize::from(own.0)).copied();
        listen.secret.clone_from(&options.secret);
        let listener = Listener::bind(listen)?;
        let shared = Arc::new(Shared {
            db,
            division,
            options,
            watcher,
            stopping: AtomicBool::new(false),
            links: Mutex::default(),
            clients: Mutex::default(),
            changed: Condvar::new(),
        });
        let observer = Arc::clone(&shared);
        let observe = move |lost: InstanceId| observer.lose(lost);
        shared
            .db
            .on_link_lost(Arc::new(observe))
            .map_err(|abort| ChannelError::Refused(abort.to_string()))?;
        let mut member = Member { shared: Arc::clone(&shared), threads: Vec::new() };
        member.start("atrapos-accept", move |shared| shared.accept_links(listener))?;
        for lower in (0..own.0).map(InstanceId) {
            member.start("atrapos-connect", move |shared| shared.keep_connected(lower))?;
        }
        Ok(member)
    }

    fn start(
        &mut self,
        name: &str,
        body: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) -> Result<(), ChannelError> {
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || body(&shared));
        self.threads.push(thread.map_err(|error| ChannelError::Io {
            attempt: format!("start thread '{name}'"),
            reason: error.to_string(),
        })?);
        Ok(())
    }

    /// Returns the instances to which there are links.
    #[must_use]
    pub fn linked(&self) -> BTreeSet<InstanceId> {
        self.shared.lock().linked.clone()
    }

    /// Returns why links failed or were refused since this was asked last.
    #[must_use]
    pub fn take_failures(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.lock().failures)
    }

    /// Waits until there are links to all other instances. Returns false if the deadline came first.
    #[must_use]
    pub fn wait_linked(&self, deadline: Instant) -> bool {
        let others = self.shared.division.workers.len() - 1;
        let mut links = self.shared.lock();
        while links.linked.len() < others {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.shared.changed.wait_timeout(links, left);
            links = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that has panicked has nothing more to do.
            let _ = thread.join();
        }
        let clients = std::mem::take(&mut *self.shared.clients());
        clients.iter().for_each(|client| client.thread().unpark());
        for client in clients {
            let _ = client.join();
        }
        // The observer holds this state, and with it the database.
        let _ = self.shared.db.on_link_lost(Arc::new(|_| {}));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clients(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    fn workers(&self, instance: InstanceId) -> usize {
        self.division.workers[usize::from(instance.0)]
    }

    fn note_failure(&self, sentence: String) {
        let mut links = self.lock();
        if links.failures.len() < FAILURES_MAX {
            links.failures.push(sentence);
        }
    }

    /// Notes, on a worker's thread, that an instance cannot be reached any more.
    fn lose(&self, lost: InstanceId) {
        self.lock().linked.remove(&lost);
        self.changed.notify_all();
    }

    /// Hands the ends of all links with an instance to the workers.
    fn link(&self, other: InstanceId, mut ends: OwnEnds) {
        for (number, channel) in ends.iter_mut().enumerate() {
            channel.on_wake(self.db.waker(WorkerId((number % self.db.workers()) as u16)));
        }
        // Links of before may fail still, which is not to be taken for the end of these.
        let _ = self.db.unlink(other);
        // Noted before the workers have them: one that fails at once is noted after.
        self.lock().linked.insert(other);
        if let Err(abort) = self.db.link(other, ends) {
            self.lock().linked.remove(&other);
            self.note_failure(format!("the links to {other} could not be used: {abort}"));
        }
        self.changed.notify_all();
    }

    /// Accepts links of instances with greater numbers.
    fn accept_links(self: &Arc<Self>, mut listener: Listener) {
        let mut waiting: BTreeMap<InstanceId, Ends> = BTreeMap::new();
        while !self.is_stopping() {
            match listener.accept(LOOK_EVERY) {
                Ok(Some(accepted)) if accepted.hello.from.is_client() => self.add_client(accepted.channel),
                Ok(Some(accepted)) => self.add_end(&mut waiting, accepted),
                Ok(None) => {}
                Err(error) => {
                    self.note_failure(error.to_string());
                    thread::sleep(PAUSE_MIN);
                }
            }
            // One that has gone has connected again, or is of no interest.
            let refusals = listener.take_refusals().into_iter();
            for refused in refusals.filter(|refused| !matches!(refused, ChannelError::Gone(_))) {
                self.note_failure(refused.to_string());
            }
        }
    }

    /// Has a thread serve a client.
    fn add_client(self: &Arc<Self>, channel: Box<dyn Channel>) {
        let Some(registry) = self.options.registry.clone() else {
            return self.note_failure("a client has connected, and this instance serves none".to_owned());
        };
        let mut clients = self.clients();
        clients.retain(|client| !client.is_finished());
        if clients.len() == CLIENTS_MAX {
            return self
                .note_failure(format!("a client more than {CLIENTS_MAX} has connected, and was cut off"));
        }
        let shared = Arc::clone(self);
        let served = thread::Builder::new().name("atrapos-client".to_owned()).spawn(move || {
            if let Err(why) = server::serve(&shared.db, &registry, channel, &shared.stopping) {
                shared.note_failure(format!("a client was cut off: {why}"));
            }
        });
        match served {
            Ok(client) => clients.push(client),
            Err(error) => self.note_failure(format!("a client gets no thread, and was cut off: {error}")),
        }
    }

    fn add_end(&self, waiting: &mut BTreeMap<InstanceId, Ends>, Accepted { hello, channel }: Accepted) {
        let other = InstanceId(hello.from.instance.0);
        if other <= self.division.instance || usize::from(other.0) >= self.division.workers.len() {
            self.note_failure(format!(
                "{other} has connected, which is to wait for this one, or is none of the deployment"
            ));
            return;
        }
        let number = usize::from(hello.to.worker.max(hello.from.worker));
        let is_its = |end: EndId, instance| usize::from(end.worker) == number % self.workers(instance);
        if !is_its(hello.to, self.division.instance) || !is_its(hello.from, other) {
            self.note_failure(format!(
                "{other} has connected its worker {} with worker {} here, between which there is no link; give both instances the \
                 same numbers of workers",
                hello.from.worker, hello.to.worker
            ));
            return;
        }
        let ends = waiting.entry(other).or_default();
        if ends.contains_key(&number) {
            // It begins anew: the ends so far are of links that it has given up.
            ends.clear();
        }
        ends.insert(number, channel);
        if ends.len() == self.division.links_with(other) {
            let ends = waiting.remove(&other).unwrap_or_default();
            self.link(other, ends.into_values().collect());
        }
    }

    /// Connects to an instance with a smaller number, again and again.
    fn keep_connected(&self, lower: InstanceId) {
        let mut pause = PAUSE_MIN;
        while !self.is_stopping() {
            match self.connect_all(lower) {
                Ok(ends) => {
                    self.link(lower, ends);
                    pause = PAUSE_MIN;
                    self.wait_until_lost(lower);
                }
                Err(ChannelError::Unreachable(_)) => {}
                Err(error) => {
                    self.note_failure(error.to_string());
                    pause = (2 * pause).min(PAUSE_MAX);
                }
            }
            let links = self.lock();
            if !self.is_stopping() {
                drop(self.changed.wait_timeout(links, pause));
            }
        }
    }

    fn connect_all(&self, lower: InstanceId) -> Result<OwnEnds, ChannelError> {
        let own = self.division.instance;
        let end = |instance: InstanceId, link: usize| EndId {
            instance: atrapos_channel::InstanceId(instance.0),
            worker: (link % self.workers(instance)) as u16,
        };
        let mut options = ConnectOptions::new(&self.options.directory, self.watcher.clone());
        options.tcp = self.options.tcp.get(usize::from(lower.0)).copied();
        options.secret.clone_from(&self.options.secret);
        let connect_one = |link: usize| {
            let (from, to) = (end(own, link), end(lower, link));
            let hello = Hello { deployment: self.options.deployment, from, to, kind: self.options.kind };
            connect(&options, hello, Instant::now() + LOOK_EVERY)
        };
        (0..self.division.links_with(lower)).map(connect_one).collect()
    }

    fn wait_until_lost(&self, other: InstanceId) {
        let mut links = self.lock();
        while links.linked.contains(&other) && !self.is_stopping() {
            links = self.changed.wait(links).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
