//! Domains: what exists. Its changes while clients go on are in [`reconfiguration`].
//!
//! Owns: the lists of domains and workers, the threads, and the order of changes (one at a time). Never: is on the path of a task.
//!
//! # Invariants
//! - What others see of a worker or a domain is kept until all domains are dropped. A worker that leaves gives all it has away, and waits: the
//!   next worker that is needed with as many slots, on the same memory node, is that one, with its number, its thread and its slots. The number
//!   of a domain that is no more is given to the next one.
//! - Numbers are given anew only when no step of a change is open: then no route or message leads to where something was.
//! - The workers of a domain are a list with a version; a client that sees another version chooses its worker anew.
//! - A change first gives what moves to where it goes, then says so (routes, lists); what comes to the old place meanwhile is passed
//!   on from there. So no task waits for a change to end.

mod placement;
mod reconfiguration;
mod site;

pub use site::Site;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use atrapos_topology::{CpuId, Machine};

use crate::change::{Change, Steps};
use crate::configuration::{Configuration, ConfigurationError, DomainConfiguration, Placement};
use crate::inbox::GROUP_SLOTS;
use crate::planted::{Bug, planted};
use crate::pump::{self, Binding};
use crate::structures::{
    By, Counts, Key, Kind, Owned, OwnedValue, Place, Registry, Retries, Route, SendValue, Sessioned,
    Sessions, Shared, Structure,
};
use crate::task::drop_quietly;
use crate::waits::Waits;
use crate::worker::{WorkerShared, server_of};
use crate::{barrier, client::Client};

/// Workers, and domains, that can ever exist at once.
const COUNT_MAX: usize = 1024;

/// Sentence for a route that leads nowhere: routes name workers and domains that exist, of the domains where the structure is.
const STRANGE: &str =
    "a handle was used with a client of other domains: use a client of the domains where its structure is";

/// Reasons for which domains do not start or do not change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DomainError {
    /// The configuration is refused.
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
    /// The operating system gave no thread.
    #[error(
        "a worker's thread could not be started ({0}): lower the number of workers or raise the limit of threads"
    )]
    Thread(std::io::Error),
    /// There is no such domain.
    #[error("there is no domain `{0}`")]
    NoSuchDomain(String),
    /// There is no such structure.
    #[error("there is no structure `{0}`")]
    NoSuchStructure(String),
    /// The structure of this key was removed, or is one of other domains.
    #[error(
        "there is no structure with key {0} here: it was removed, or placed in other domains; use a handle of one that exists"
    )]
    NoSuchKey(Key),
    /// A structure of this name exists.
    #[error("a structure named `{0}` exists: remove it first, or choose another name")]
    NameTaken(String),
    /// The configuration does not say where a structure lives.
    #[error(
        "the configuration does not say in which domain structure `{0}` lives: add it to [structures], or place it with `at`"
    )]
    NotConfigured(String),
    /// A domain would be left without a worker.
    #[error("domain `{0}` would be left without a worker: merge it into another one instead")]
    LastWorker(String),
    /// A domain cannot become part of itself.
    #[error("domain `{0}` cannot be merged with itself")]
    WithItself(String),
    /// The numbers are used up.
    #[error(
        "there are {COUNT_MAX} {0} already: make fewer, or wait for the changes under way, after which those that are no more do not count"
    )]
    TooMany(&'static str),
    /// Making a structure panicked.
    #[error("making structure `{structure}` panicked ({panic}): mend its constructor")]
    Constructor {
        /// The structure's name.
        structure: String,
        /// The message of the panic.
        panic: String,
    },
    /// The wait for a change was inside a task of the same domains.
    #[error(
        "a task waited for a change of its own domains or for a structure to be made there, which its worker may have to carry out: wait outside of tasks"
    )]
    WouldDeadlock,
    /// The domains are shutting down.
    #[error("the domains are shutting down")]
    ShutDown,
}

/// The part of a domain that others see.
#[derive(Debug)]
pub(crate) struct DomainShared {
    settings: Mutex<DomainConfiguration>,
    /// Its workers' numbers; none once it is no more.
    workers: Mutex<Vec<u32>>,
    version: AtomicU32,
    /// The number of domains that have had this number before.
    life: AtomicU32,
}

impl DomainShared {
    pub(crate) fn workers(&self) -> MutexGuard<'_, Vec<u32>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline(always)]
    pub(crate) fn version(&self) -> u32 {
        self.version.load(Ordering::Acquire)
    }

    fn settings(&self) -> DomainConfiguration {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn life(&self) -> u32 {
        self.life.load(Ordering::Acquire)
    }

    fn set_workers(&self, change: impl FnOnce(&mut Vec<u32>)) {
        change(&mut self.workers());
        self.version.fetch_add(1, Ordering::Release);
    }
}

/// Requests that ended without having run, or did not end, by the name of their first structure.
#[derive(Debug, Default)]
pub(crate) struct NotDone {
    pub(crate) refused: BTreeMap<String, u64>,
    pub(crate) unanswered: BTreeMap<String, u64>,
}

/// Everything that clients, workers and whoever changes them share.
pub(crate) struct Inner {
    pub(crate) machine: Machine,
    pub(crate) registry: Registry,
    pub(crate) waits: Waits,
    pub(crate) steps: Steps,
    workers: Box<[OnceLock<Arc<WorkerShared>>]>,
    domains: Box<[OnceLock<DomainShared>]>,
    closing: AtomicBool,
    not_done: Mutex<NotDone>,
    /// One change at a time.
    changing: Mutex<Threads>,
    stepped: bool,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}

/// The workers' threads, or the workers that a pump has still to take.
#[derive(Default)]
pub(crate) struct Threads {
    handles: Vec<JoinHandle<()>>,
    pub(crate) born: Vec<Arc<WorkerShared>>,
    workers: usize,
    domains: usize,
}

impl Inner {
    /// The worker of this number.
    pub(crate) fn worker(&self, index: u32) -> &Arc<WorkerShared> {
        self.workers[index as usize].get().unwrap_or_else(|| panic!("{STRANGE}"))
    }

    /// The domain of this number.
    #[inline(always)]
    pub(crate) fn domain(&self, index: u32) -> &DomainShared {
        self.domains[index as usize].get().unwrap_or_else(|| panic!("{STRANGE}"))
    }

    #[inline(always)]
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    pub(crate) fn threads(&self) -> MutexGuard<'_, Threads> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the tasks that are not done at the end, as far as workers have said so.
    pub(crate) fn not_done(&self) -> MutexGuard<'_, NotDone> {
        self.not_done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has clients that wait for slots look where their structures are now, and which workers are there.
    pub(crate) fn wake_waiting(&self) {
        if !planted(Bug::ChangeUnsaid) {
            self.all_workers().for_each(|worker| worker.buffer.wake_waiting());
        }
    }

    fn all_workers(&self) -> impl Iterator<Item = &Arc<WorkerShared>> {
        self.workers.iter().map_while(OnceLock::get)
    }

    pub(crate) fn live_workers_of(&self, domain: u32) -> Vec<Arc<WorkerShared>> {
        self.domain(domain).workers().iter().map(|&worker| Arc::clone(self.worker(worker))).collect()
    }
}

/// Virtual domains with their workers. Dropping it waits for the tasks that are there and ends the workers.
#[derive(Debug)]
pub struct Domains {
    pub(crate) inner: Arc<Inner>,
}

/// The work that a shutdown left undone. It counts requests: the tasks of a burst travel several in one, those of a bulk all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShutdownReport {
    /// Requests that were refused, by the name of their first structure.
    pub refused: BTreeMap<String, u64>,
    /// Workers that were still inside a task at the deadline; their threads and structures are left behind.
    pub still_running: Vec<u32>,
    /// Requests that had no answer when the report was made, by the name of their first structure: those that a worker in `still_running`
    /// is inside of, and those that wait behind them. They run or are refused if that worker's task ever ends.
    pub unanswered: BTreeMap<String, u64>,
}

/// One worker, as a report shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerReport {
    /// Its number.
    pub worker: u32,
    /// The processing unit that it was given: its own if it is pinned, one of its domain's if it migrates there.
    pub cpu: Option<CpuId>,
    /// Times that it has left and come back, perhaps to another domain: what it has run is counted from the last of them.
    pub returns: u32,
    /// Tasks that it has run.
    pub tasks: u64,
    /// Steps in which it ran any: tasks per busy step say how far clients are ahead of it.
    pub busy_steps: u64,
    /// Slots of its buffer that nobody leases.
    pub free_slots: usize,
    /// Requests in its buffer that are not answered now: the one that runs, if any, and those that wait behind it. The tasks of a burst
    /// travel several in a request. Over many reports, the share of those with any is the worker's load.
    pub requests: usize,
}

/// Tasks and retries of structures, over all workers.
type Sums = HashMap<Key, (u64, Option<Retries>)>;

/// One structure, as a report shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StructureReport {
    /// Its name.
    pub name: String,
    /// Its domain; `None` while that is changing.
    pub domain: Option<String>,
    /// Set if one worker owns it.
    pub owned: bool,
    /// Tasks on it that its workers have run since they have had it: of a structure that moved, or a domain that shrank, fewer than
    /// before.
    pub tasks: u64,
    /// The contention that its sessions have met, if they count it ([`Sessions::retries`]).
    pub retries: Option<Retries>,
}

/// One domain, as a report shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainReport {
    /// Its name.
    pub name: String,
    /// Its workers.
    pub workers: Vec<WorkerReport>,
    /// The structures that live in it.
    pub structures: Vec<String>,
}

impl Domains {
    /// Starts the workers of a configuration on a machine.
    ///
    /// # Errors
    /// [`DomainError`] if the configuration is refused or a thread cannot be started. A worker that cannot be pinned runs unpinned.
    pub fn start(machine: &Machine, configuration: &Configuration) -> Result<Self, DomainError> {
        Self::begin(machine, configuration, false)
    }

    pub(crate) fn begin(
        machine: &Machine,
        configuration: &Configuration,
        stepped: bool,
    ) -> Result<Self, DomainError> {
        let assigned = configuration.assign(machine)?;
        barrier::register();
        let inner = Arc::new(Inner {
            machine: machine.clone(),
            registry: Registry::default(),
            waits: Waits::default(),
            steps: Steps::default(),
            workers: (0..COUNT_MAX).map(|_| OnceLock::new()).collect(),
            domains: (0..COUNT_MAX).map(|_| OnceLock::new()).collect(),
            closing: AtomicBool::new(false),
            not_done: Mutex::default(),
            changing: Mutex::default(),
            stepped,
        });
        let domains = Self { inner };
        {
            let mut threads = domains.inner.threads();
            for (settings, cpus) in configuration.domains.iter().zip(assigned) {
                let domain = domains.new_domain(&mut threads, settings.clone())?;
                for cpu in &cpus {
                    domains.new_worker(&mut threads, domain, *cpu, &cpus)?;
                }
            }
        }
        *domains.inner.registry.configured() = configuration.structures.clone();
        Ok(domains)
    }

    fn new_domain(&self, threads: &mut Threads, settings: DomainConfiguration) -> Result<u32, DomainError> {
        if let Some((index, ended)) = self.ended_domain() {
            *ended.settings.lock().unwrap_or_else(PoisonError::into_inner) = settings;
            ended.life.fetch_add(1, Ordering::AcqRel);
            return Ok(index as u32);
        }
        let index = threads.domains;
        let slot = self.inner.domains.get(index).ok_or(DomainError::TooMany("domains"))?;
        threads.domains += 1;
        let domain = DomainShared {
            settings: Mutex::new(settings),
            workers: Mutex::default(),
            version: AtomicU32::new(0),
            life: AtomicU32::new(0),
        };
        slot.set(domain).unwrap_or_else(|_| unreachable!("a new number is given once"));
        Ok(index as u32)
    }

    /// A domain that is no more, if nothing can lead there any more.
    fn ended_domain(&self) -> Option<(usize, &DomainShared)> {
        let mut domains = self.inner.domains.iter().map_while(OnceLock::get).enumerate();
        let ended = domains.find(|(_, domain)| domain.workers().is_empty());
        ended.filter(|_| self.inner.steps.are_done() || planted(Bug::ReuseEarly))
    }

    /// Adds a worker to a domain: one that has left another comes back, or there is a new one.
    fn new_worker(
        &self,
        threads: &mut Threads,
        domain: u32,
        cpu: CpuId,
        of_domain: &[CpuId],
    ) -> Result<(), DomainError> {
        let settings = self.inner.domain(domain).settings();
        let unit = (settings.placement != Placement::Anywhere).then_some(cpu);
        let binding = self.binding(&settings, unit, of_domain);
        let groups = settings.slots.div_ceil(GROUP_SLOTS);
        let is_full = threads.workers == COUNT_MAX;
        let index = match self.worker_that_left(groups, cpu, is_full) {
            Some(spare) => {
                self.call_back(&spare, domain, unit, binding);
                spare.index
            }
            None => {
                let index = threads.workers as u32;
                self.start_worker(threads, binding, move || WorkerShared::new(index, domain, unit, groups))?;
                index
            }
        };
        self.inner.domain(domain).set_workers(|workers| workers.push(index));
        self.inner.wake_waiting();
        Ok(())
    }

    fn start_worker(
        &self,
        threads: &mut Threads,
        binding: Binding,
        make: impl FnOnce() -> Arc<WorkerShared> + Send + 'static,
    ) -> Result<(), DomainError> {
        let slot = self.inner.workers.get(threads.workers).ok_or(DomainError::TooMany("workers"))?;
        let shared = if self.inner.stepped {
            let shared = make();
            threads.born.push(Arc::clone(&shared));
            shared
        } else {
            let started = pump::start(threads.workers as u32, make, Arc::clone(&self.inner), binding);
            let (shared, thread) = started.map_err(DomainError::Thread)?;
            threads.handles.push(thread);
            shared
        };
        threads.workers += 1;
        slot.set(shared).unwrap_or_else(|_| unreachable!("a new number is given once"));
        Ok(())
    }

    /// A worker that has left and has so many slots, if nothing can lead there any more: one on the memory node of `cpu`, where its slots
    /// are; or, if there are no more numbers, on any.
    fn worker_that_left(&self, groups: usize, cpu: CpuId, on_any_node: bool) -> Option<Arc<WorkerShared>> {
        if !self.inner.steps.are_done() && !planted(Bug::ReuseEarly) {
            return None;
        }
        let node = |cpu: CpuId| self.inner.machine.cpu(cpu).map(|cpu| cpu.node);
        let is_near = |worker: &WorkerShared| match worker.cpu() {
            Some(its) => node(its) == node(cpu),
            None => true,
        };
        let left =
            self.inner.all_workers().filter(|worker| worker.has_left() && worker.buffer.groups() == groups);
        left.filter(|worker| on_any_node || is_near(worker)).min_by_key(|worker| !is_near(worker)).cloned()
    }

    /// Has a worker that has left come back, and others give its buffer back to it.
    fn call_back(&self, worker: &Arc<WorkerShared>, domain: u32, unit: Option<CpuId>, binding: Binding) {
        let stepped = self.inner.stepped;
        self.inner.waits.tell(worker, |_| {
            worker.come_back(
                domain,
                unit,
                Box::new(move |_| {
                    if !stepped {
                        binding.bind();
                    }
                }),
            );
        });
        let server = server_of(&self.inner, &worker.buffer);
        let (worker, step) = (Arc::clone(worker), self.inner.steps.begin());
        server.tell(Box::new(move |server| server.give_back(worker, step)));
    }

    fn find_domain(&self, name: &str) -> Result<u32, DomainError> {
        let known = self.inner.domains.iter().map_while(OnceLock::get);
        let found = known
            .enumerate()
            .find(|(_, domain)| domain.settings().name == name && !domain.workers().is_empty());
        found.map(|(index, _)| index as u32).ok_or_else(|| DomainError::NoSuchDomain(name.to_owned()))
    }

    fn find_place(&self, structure: Structure<'_>) -> Result<Arc<Place>, DomainError> {
        let registry = &self.inner.registry;
        match structure.0 {
            By::Name(name) => {
                registry.named(name).ok_or_else(|| DomainError::NoSuchStructure(name.to_owned()))
            }
            By::Key(key) => registry.place(key).ok_or(DomainError::NoSuchKey(key)),
        }
    }

    /// The domain of this name, to place structures in.
    ///
    /// # Errors
    /// [`DomainError::NoSuchDomain`].
    pub fn at(&self, domain: &str) -> Result<Site<'_>, DomainError> {
        let (name, domain) = (domain.to_owned(), self.find_domain(domain)?);
        Ok(Site { domains: self, domain, name, life: self.inner.domain(domain).life() })
    }

    /// The domain that the configuration gives to the structure of this name.
    ///
    /// # Errors
    /// [`DomainError::NotConfigured`] or [`DomainError::NoSuchDomain`].
    pub fn site_of(&self, structure: &str) -> Result<Site<'_>, DomainError> {
        let domain = self.inner.registry.configured().get(structure).cloned();
        self.at(&domain.ok_or_else(|| DomainError::NotConfigured(structure.to_owned()))?)
    }

    /// Places a shared structure where the configuration says. Any number of workers may run tasks on it at once.
    ///
    /// # Errors
    /// As for [`Site::place`], and [`DomainError::NotConfigured`].
    pub fn place<S: Send + Sync + 'static>(
        &self,
        name: &str,
        structure: S,
    ) -> Result<Shared<S>, DomainError> {
        self.site_of(name)?.place(name, structure)
    }

    /// Places a shared structure with a session per worker where the configuration says.
    ///
    /// # Errors
    /// As for [`Site::place`], and [`DomainError::NotConfigured`].
    pub fn place_with_sessions<S: Sessions>(
        &self,
        name: &str,
        structure: S,
    ) -> Result<Sessioned<S>, DomainError> {
        self.site_of(name)?.place_with_sessions(name, structure)
    }

    /// Places an owned structure where the configuration says: with one worker, whose tasks get `&mut`.
    ///
    /// # Errors
    /// As for [`Site::place`], and [`DomainError::NotConfigured`].
    pub fn place_owned<S: Send + 'static>(&self, name: &str, structure: S) -> Result<Owned<S>, DomainError> {
        self.site_of(name)?.place_owned(name, structure)
    }

    /// A client: for one thread, or one asynchronous task, at a time.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(Arc::clone(&self.inner), crate::client::WINDOW_DEFAULT, false)
    }

    /// A client whose tasks on one structure run in the order in which it submits them, over every change of the domains.
    #[must_use]
    pub fn ordered(&self) -> Client {
        Client::new(Arc::clone(&self.inner), crate::client::WINDOW_DEFAULT, true)
    }

    /// Removes a structure, by name, handle or key: tasks that run later fail with [`TaskError::Removed`](crate::TaskError::Removed). It is
    /// dropped by its workers.
    ///
    /// # Errors
    /// [`DomainError::NoSuchStructure`] or, by handle or key, [`DomainError::NoSuchKey`].
    pub fn remove<'a>(&self, structure: impl Into<Structure<'a>>) -> Result<Change, DomainError> {
        let _one_at_a_time = self.inner.threads();
        let key = self.find_place(structure.into())?.key;
        let holders = match self.inner.registry.remove(key) {
            Route::Worker(worker) => vec![Arc::clone(self.inner.worker(worker))],
            Route::Domain(domain) => self.inner.live_workers_of(domain),
            Route::Removed => Vec::new(),
        };
        self.inner.wake_waiting();
        let change = Change::new(&self.inner);
        for worker in holders {
            let done = change.step();
            worker.tell(Box::new(move |worker| {
                drop_quietly(worker.reach.take(key));
                drop(done);
            }));
        }
        Ok(change)
    }

    /// Puts a new value in the place of an owned structure, which heals it if it is poisoned; the old one is dropped by its worker.
    ///
    /// # Errors
    /// [`DomainError::NoSuchKey`] if it was removed.
    pub fn replace<S: Send + 'static>(&self, structure: &Owned<S>, value: S) -> Result<Change, DomainError> {
        let _one_at_a_time = self.inner.threads();
        let Route::Worker(worker) = structure.place.route() else {
            return Err(DomainError::NoSuchKey(structure.key()));
        };
        let owned = OwnedValue::new(structure.key(), SendValue::new(value));
        let change = Change::new(&self.inner);
        let done = change.step();
        self.inner.worker(worker).tell(Box::new(move |worker| worker.replace(owned, done)));
        Ok(change)
    }

    /// All domains that have workers, with their load.
    #[must_use]
    pub fn report(&self) -> Vec<DomainReport> {
        let places = self.inner.registry.places();
        let known = self.inner.domains.iter().map_while(OnceLock::get).enumerate();
        let live = known.filter(|(_, domain)| !domain.workers().is_empty());
        let report = live.map(|(index, domain)| {
            let workers = self.inner.live_workers_of(index as u32);
            let here = |place: &&Arc<Place>| self.domain_of(place) == Some(index as u32);
            DomainReport {
                name: domain.settings().name,
                workers: workers.iter().map(|worker| worker.report()).collect(),
                structures: places.iter().filter(here).map(|place| place.name.clone()).collect(),
            }
        });
        report.collect()
    }

    /// Asks all workers for their counts of each structure, which come between two tasks. `None` if some worker does not answer within
    /// `patience`, because its task lasts.
    #[must_use]
    pub fn structures(&self, patience: Duration) -> Option<Vec<StructureReport>> {
        let change = Change::new(&self.inner);
        let sink: Arc<Mutex<Sums>> = Arc::default();
        let live =
            self.inner.domains.iter().map_while(OnceLock::get).flat_map(|domain| domain.workers().clone());
        for worker in live.collect::<Vec<u32>>() {
            let (done, sink) = (change.step(), Arc::clone(&sink));
            self.inner.worker(worker).tell(Box::new(move |worker| {
                let mut sums = sink.lock().unwrap_or_else(PoisonError::into_inner);
                for Counts { key, tasks, retries } in worker.reach.counts() {
                    let sum = sums.entry(key).or_default();
                    sum.0 += tasks;
                    if let Some(more) = retries {
                        let all = sum.1.get_or_insert_default();
                        all.operations += more.operations;
                        all.retries += more.retries;
                    }
                }
                drop(done);
            }));
        }
        if !change.wait_at_most(patience) {
            return None;
        }
        let sums = sink.lock().unwrap_or_else(PoisonError::into_inner);
        let report = |place: Arc<Place>| {
            let (tasks, retries) = sums.get(&place.key).copied().unwrap_or_default();
            let domain = self.domain_of(&place).map(|domain| self.inner.domain(domain));
            let domain = domain.filter(|domain| !domain.workers().is_empty());
            StructureReport {
                name: place.name.clone(),
                domain: domain.map(|domain| domain.settings().name),
                owned: place.kind == Kind::Owned,
                tasks,
                retries,
            }
        };
        Some(self.inner.registry.places().into_iter().map(report).collect())
    }

    fn domain_of(&self, place: &Place) -> Option<u32> {
        match place.route() {
            Route::Worker(worker) => Some(self.inner.worker(worker).domain.load(Ordering::Acquire)),
            Route::Domain(domain) => Some(domain),
            Route::Removed => None,
        }
    }

    /// Ends the workers: refuses new tasks at once, runs those that are there until the deadline, and says what was not done.
    pub fn shutdown(self, deadline: Duration) -> ShutdownReport {
        self.end(Instant::now() + deadline)
    }

    fn end(&self, deadline: Instant) -> ShutdownReport {
        self.inner.closing.store(true, Ordering::SeqCst);
        let mut threads = self.inner.threads();
        self.inner.all_workers().for_each(|worker| worker.end_by(deadline));
        let mut still_running = Vec::new();
        for (index, handle) in std::mem::take(&mut threads.handles).into_iter().enumerate() {
            // A worker looks at the deadline between two tasks; beyond it, one that is inside a task is left behind.
            while !handle.is_finished() && Instant::now() < deadline + GRACE {
                std::thread::park_timeout(Duration::from_micros(200));
            }
            if handle.is_finished() {
                // A panic of a worker outside tasks was printed by its thread.
                let _ = handle.join();
            } else {
                still_running.push(index as u32);
            }
        }
        let mut not_done = self.inner.not_done();
        let left = self.inner.all_workers().map(|worker| &worker.buffer).filter(|buffer| !buffer.is_dead());
        for key in left.flat_map(|buffer| buffer.requests()) {
            *not_done.unanswered.entry(self.inner.registry.name_of(key)).or_default() += 1;
        }
        let NotDone { refused, unanswered } = std::mem::take(&mut *not_done);
        ShutdownReport { refused, still_running, unanswered }
    }
}

/// Time beyond a deadline in which workers refuse what is left.
const GRACE: Duration = Duration::from_millis(100);
/// Time for which dropping waits for tasks.
const DROP_DEADLINE: Duration = Duration::from_secs(10);

impl Drop for Domains {
    fn drop(&mut self) {
        if !self.inner.is_closing() {
            self.end(Instant::now() + DROP_DEADLINE);
        }
    }
}
