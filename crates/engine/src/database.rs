//! The database as its users see it: opened from a schema, asked to run procedures, closed.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use atrapos_adapt::Platform;
use atrapos_durability::backup::{BackupError, BackupReport, backup};
use atrapos_durability::directory::DirectoryError;
use atrapos_durability::file::{FileSystem, RealFiles};
use atrapos_durability::manifest::{Manifest, StoredColumn};
use atrapos_durability::wal::WalError;
use atrapos_runtime::affinity;
use atrapos_runtime::memory::{HugeChunks, MemoryOptions};
use atrapos_runtime::oneshot::{Receiver, oneshot};
use atrapos_runtime::{Clock, Handle, Runtime, RuntimeBuilder, WorkerId, WorkerSnapshot};
use atrapos_storage::{Memory, Tree, TreeConfig};
use atrapos_topology::{CpuId, CpuSet, LiveOptions, Machine};

use crate::abort::{Abort, AbortReason};
use crate::action::panicked_in;
use crate::adaptation::{Adaptation, AdaptationEvent, AdaptingThread, Adaptive};
use crate::checkpoint::{CheckpointFailure, CheckpointReport, Pace};
use crate::durable::{Durable, DurableThreads, Opened, Policy};
use crate::memory::TreeMemory;
use crate::monitor::Monitor;
use crate::partition::{Partition, TableShard, Tables};
use crate::procedure::{Procedure, Session, run_here, run_recorded, run_traced};
use crate::recording::RecordedRun;
use crate::recovery::{RecoveryError, RecoveryProgress, RecoveryReport};
use crate::repartition::{RepartitionReport, SchemeBoard, SchemeChange};
use crate::routing::{Route, Scheme};
use crate::schema::{Catalog, Dependency, Index, IndexRef, Schema, SchemaError, Table, TableId, TableRef};
use crate::shard::{EngineWorker, Shard, ShardOptions};
use crate::stats::{EngineStats, Statistics};
use crate::trace::TraceEvent;
use crate::wal::{Durability, Hardening, Wal};

/// Why a database could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The schema contradicts itself.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A setting makes no sense.
    #[error("{0}")]
    Setting(String),
    /// The workers could not be started.
    #[error("the workers could not be started: {0}")]
    Start(String),
    /// The database in the directory has other tables than were declared.
    #[error("the database in {} has another schema: {difference}; open it with the schema it was created with", path.display())]
    OtherSchema {
        /// The directory.
        path: PathBuf,
        /// The first difference.
        difference: String,
    },
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// What is in the directory cannot be recovered.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// The WAL of the new incarnation cannot be written.
    #[error(transparent)]
    Wal(#[from] WalError),
}

/// Collects the settings of a database before it is opened.
#[derive(Debug)]
pub struct Builder {
    /// `None`: the schema is the one stored in the directory.
    schema: Option<Schema>,
    workers: Option<usize>,
    machine: Option<Machine>,
    pin: bool,
    place_memory: bool,
    huge_pages: bool,
    inbox_slots: usize,
    policy: Policy,
    files: Arc<dyn FileSystem>,
    adaptation: Option<Adaptation>,
}

impl Builder {
    /// How the database adapts its partitioning and placement to what it observes (by default as [`Adaptation::default`]
    /// says). With one worker there is nothing to choose.
    #[must_use]
    pub fn adaptation(mut self, adaptation: Adaptation) -> Builder {
        self.adaptation = Some(adaptation);
        self
    }

    /// The database keeps the scheme it starts with, unless it is changed [by hand](Database::repartition), and observes
    /// nothing.
    #[must_use]
    pub fn fixed_scheme(mut self) -> Builder {
        self.adaptation = None;
        self
    }

    /// How many workers own the data. By default one per usable core of the machine.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Builder {
        self.workers = Some(workers);
        self
    }

    /// The machine to place the workers on. By default the one this process runs on, as the kernel describes it.
    #[must_use]
    pub fn machine(mut self, machine: Machine) -> Builder {
        self.machine = Some(machine);
        self
    }

    /// Whether workers are pinned to cores (on by default, best effort: a refusal is a warning). On a machine that is only
    /// described, or with more workers than usable cores, nothing is pinned.
    #[must_use]
    pub fn pin(mut self, pin: bool) -> Builder {
        self.pin = pin;
        self
    }

    /// Whether a worker's memory is placed on its own node (on by default, best effort).
    #[must_use]
    pub fn place_memory(mut self, place: bool) -> Builder {
        self.place_memory = place;
        self
    }

    /// Whether huge pages are asked for (on by default, best effort).
    #[must_use]
    pub fn huge_pages(mut self, huge: bool) -> Builder {
        self.huge_pages = huge;
        self
    }

    /// Requests from outside threads that may wait at one worker before the next has to (1,024 by default).
    #[must_use]
    pub fn inbox_slots(mut self, slots: usize) -> Builder {
        self.inbox_slots = slots;
        self
    }

    /// When callers are told that their transactions committed ([`Durability::Synchronous`] by default). Of no effect on a
    /// database [in memory](Builder::in_memory).
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Builder {
        self.policy.durability = durability;
        self
    }

    /// Bytes of WAL after which a checkpoint is made (1 GiB by default). More makes checkpoints rarer and recovery longer.
    #[must_use]
    pub fn checkpoint_wal_bytes(mut self, bytes: u64) -> Builder {
        self.policy.checkpoint_wal_bytes = bytes;
        self
    }

    /// Makes a checkpoint after this time, if anything has changed (off by default).
    #[must_use]
    pub fn checkpoint_every(mut self, every: Duration) -> Builder {
        self.policy.checkpoint_every = Some(every);
        self
    }

    /// Bytes of a segment file of the WAL (64 MiB by default): they are reserved ahead.
    #[must_use]
    pub fn segment_bytes(mut self, bytes: u64) -> Builder {
        self.policy.segment_bytes = bytes;
        self
    }

    /// The files the database is kept in: those of the operating system by default, or a model of them.
    #[must_use]
    pub fn files(mut self, files: Arc<dyn FileSystem>) -> Builder {
        self.files = files;
        self
    }

    /// Opens a new, empty database that lives in memory only and ends with the process.
    ///
    /// # Errors
    /// A contradictory schema or setting, or threads that cannot be started; each in one sentence.
    pub fn in_memory(self) -> Result<Database, OpenError> {
        self.start(None)
    }

    /// Opens the database in the directory `path`, or creates one there. Whatever was ever reported as committed is in it.
    ///
    /// # Errors
    /// As for [`in_memory`](Builder::in_memory); a directory that is in use, damaged, of another schema, or of something
    /// else; files that cannot be written.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Database, OpenError> {
        self.open_watched(path, &RecoveryProgress::default())
    }

    /// Like [`open`](Builder::open), for callers who show how far recovery is.
    ///
    /// # Errors
    /// As for [`open`](Builder::open).
    pub fn open_watched(
        self,
        path: impl AsRef<Path>,
        progress: &RecoveryProgress,
    ) -> Result<Database, OpenError> {
        self.start(Some((path.as_ref(), progress)))
    }

    fn start(self, directory: Option<(&Path, &RecoveryProgress)>) -> Result<Database, OpenError> {
        let catalog = match (self.schema, directory) {
            (Some(schema), _) => Catalog::new(schema)?,
            (None, Some((path, _))) => match Manifest::read(&*self.files, path)? {
                Some(manifest) => Catalog::stored(&manifest.schema),
                None => return Err(DirectoryError::Missing { path: path.to_owned() }.into()),
            },
            (None, None) => {
                return Err(OpenError::Setting(
                    "a database in memory has no stored schema; declare one with Database::builder"
                        .to_owned(),
                ));
            }
        };
        let catalog = Arc::new(catalog);
        let machine = self.machine.unwrap_or_else(live_machine);
        let workers = self.workers.unwrap_or_else(|| machine.default_workers());
        check_workers(workers)?;
        if self.inbox_slots == 0 {
            return Err(OpenError::Setting(
                "an inbox of zero slots takes no request; use at least 1".to_owned(),
            ));
        }
        if let Durability::Relaxed { max_loss_ms: 0 } = self.policy.durability {
            return Err(OpenError::Setting(
                "relaxed durability that may lose 0 ms is synchronous durability; ask for that, or for at least 1 ms"
                    .to_owned(),
            ));
        }
        if let Some(adaptation) = &self.adaptation {
            adaptation.check()?;
        }
        // Nothing is observed where there is nothing to choose.
        let observing = self.adaptation.filter(|adaptation| workers > 1 || !adaptation.act);
        let observing = observing.map(|adaptation| (adaptation.sample_every, adaptation.sub_partitions));
        let scheme = Arc::new(Scheme::naive(&catalog, workers)?);
        let stats: Vec<Arc<EngineStats>> = (0..workers).map(|_| Arc::default()).collect();
        let placement = machine.placement(workers);
        // A described machine's cores are not this one's; and several workers on one core are better moved about.
        let pin = self.pin && machine.is_live() && workers <= machine.usable_cpus().len();
        let cpus: Vec<Option<usize>> = placement.iter().map(|cpu| Some(cpu.0 as usize)).collect();
        let node = |cpu: &CpuId| machine.cpu(*cpu).map(|cpu| cpu.node.0 as usize);
        let several = pin && self.place_memory && machine.nodes().len() > 1;
        let nodes: Vec<Option<usize>> =
            placement.iter().map(|cpu| several.then(|| node(cpu)).flatten()).collect();
        let opened = match directory {
            None => None,
            Some((path, progress)) => {
                let stream_of = dense(placement.iter().map(|cpu| node(cpu).unwrap_or(0)));
                let streams = stream_of.iter().max().map_or(1, |last| last + 1);
                let stored = catalog.describe(&scheme);
                let opened =
                    Opened::new(Arc::clone(&self.files), path, &stored, streams, self.policy.clone())?;
                let wal = opened.wal(stream_of);
                Some((opened, wal, progress))
            }
        };
        let wal = opened.as_ref().map(|(_, wal, _)| Arc::clone(wal));
        let chunks = Arc::new(HugeChunks::new(MemoryOptions {
            huge_pages: self.huge_pages,
            bind_to_node: self.place_memory,
        }));
        let factory = {
            let (catalog, scheme, stats) = (Arc::clone(&catalog), Arc::clone(&scheme), stats.clone());
            let chunks = Arc::clone(&chunks);
            let clock = Clock::real();
            move |worker: WorkerId| {
                ON_WORKER.set(true);
                let memory = Arc::new(TreeMemory::new(Arc::clone(&chunks), nodes[worker.index()]));
                let stats = Arc::clone(&stats[worker.index()]);
                let (catalog, scheme) = (Arc::clone(&catalog), Arc::clone(&scheme));
                new_shard(worker, catalog, scheme, memory, stats, &clock, wal.clone(), observing)
            }
        };
        let mut runtime = RuntimeBuilder::new(workers);
        runtime.cpus = Some(cpus.clone());
        runtime.pin = pin;
        runtime.inbox_slots = self.inbox_slots.next_power_of_two();
        runtime.limits.tasks_in_flight = TASKS_IN_FLIGHT;
        // Those for whom an idle worker waits, the flushers, need a core to get on with it.
        let flushers =
            opened.as_ref().map_or(0, |(_, wal, _)| if wal.logs() { wal.streams.len() } else { 0 });
        runtime.yield_when_idle = flushers > 0 && workers + flushers > machine.usable_cpus().len();
        let runtime = runtime.start(factory).map_err(|error| OpenError::Start(error.to_string()))?;
        let durable = match opened {
            None => None,
            Some((opened, wal, progress)) => {
                Some(opened.recover(wal, runtime.handle(), &scheme, progress)?)
            }
        };
        let board = Arc::new(SchemeBoard::new(scheme));
        let platform = Platform::new(&machine, &placement).ok();
        let cores = if pin { cpus.clone() } else { vec![None; workers] };
        let adaptive = Adaptive::new(
            runtime.handle(),
            Arc::clone(&catalog),
            board,
            stats.clone(),
            self.adaptation,
            platform,
            cores,
        );
        let adapting = adaptive.start()?;
        Ok(Database {
            handle: runtime.handle(),
            runtime: Some(runtime),
            catalog,
            adaptive,
            adapting,
            stats,
            cpus,
            chunks,
            pinned: pin,
            durable,
        })
    }
}

/// Numbers for groups, dense and in order of their first members.
fn dense(groups: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut seen = Vec::new();
    groups
        .map(|group| {
            seen.iter().position(|known| *known == group).unwrap_or_else(|| {
                seen.push(group);
                seen.len() - 1
            })
        })
        .collect()
}

fn live_machine() -> Machine {
    // Without an affinity mask every online core is taken for usable; pinning then refuses what is not.
    let affinity = affinity::current_thread_cpus().ok();
    let affinity = affinity.map(|cpus| cpus.into_iter().map(|cpu| CpuId(cpu as u32)).collect::<CpuSet>());
    Machine::live(&LiveOptions::new(affinity))
}

/// Sessions and transactions that a worker hosts before it takes no more from outside. Transactions that wait for a device are
/// among them: there have to be enough to keep the worker busy meanwhile.
const TASKS_IN_FLIGHT: usize = 1 << 14;

/// Workers beyond this number are surely a mistake.
const WORKERS_MAX: usize = 4096;

fn check_workers(workers: usize) -> Result<(), OpenError> {
    match workers {
        0 => Err(OpenError::Setting("zero workers cannot own data; use at least 1".to_owned())),
        1..=WORKERS_MAX => Ok(()),
        _ => Err(OpenError::Setting(format!(
            "{workers} workers are more than any machine has cores; use at most {WORKERS_MAX}"
        ))),
    }
}

/// How long a lock request waits before its transaction looks for a deadlock.
const DEADLOCK_CHECK_AFTER: Duration = Duration::from_millis(1);

#[expect(clippy::too_many_arguments, reason = "what a worker is made of")]
pub(crate) fn new_shard(
    worker: WorkerId,
    catalog: Arc<Catalog>,
    scheme: Arc<Scheme>,
    memory: Arc<dyn Memory>,
    stats: Arc<EngineStats>,
    clock: &Clock,
    wal: Option<Arc<Wal>>,
    observing: Option<(u32, usize)>,
) -> Shard {
    let shards = catalog.tables.iter().enumerate().map(|(at, meta)| {
        let family = Arc::clone(&scheme.families[scheme.family_of[at]]);
        let config = TreeConfig::for_rows_of(meta.expected_row_bytes);
        let partitions = (0..family.partitions()).map(|index| {
            let tree = || Box::new(Partition::new(Tree::new(config, Arc::clone(&memory)), 0));
            (family.owner(index) == worker).then(tree)
        });
        TableShard { partitions: partitions.collect(), scheme: family }
    });
    let tables = Tables { shards: shards.collect() };
    let options = ShardOptions { deadlock_check_after: clock.ticks(DEADLOCK_CHECK_AFTER) };
    let hardening = wal.filter(|wal| wal.logs()).map(|wal| {
        let max_loss = match wal.durability {
            Durability::Relaxed { max_loss_ms } => Some(clock.ticks(Duration::from_millis(max_loss_ms))),
            _ => None,
        };
        Hardening::new(wal, catalog.tables.len(), max_loss)
    });
    let monitor = Monitor::new(&catalog, worker, clock, observing);
    Shard::new(catalog, tables, memory, stats, options, hardening, monitor)
}

/// An open database. Closing it, or dropping it, completes what is under way and stops the workers.
///
/// ```
/// use atrapos::{Abort, Database, Schema, Table, row};
///
/// row! { #[derive(Clone, Debug)] pub struct Account { pub balance: i64 } }
/// struct Accounts;
/// impl Table for Accounts {
///     type Key = u64;
///     type Row = Account;
///     const NAME: &'static str = "accounts";
/// }
///
/// let db = Database::builder(Schema::new().table::<Accounts>()).workers(1).in_memory()?;
/// let accounts = db.table::<Accounts>()?;
/// db.run(accounts.at(&1), async move |tx| tx.insert(accounts, 1, Account { balance: 100 }).await)?;
/// let balance = db.run(accounts.at(&1), async move |tx| {
///     tx.update(accounts, 1, |account| { account.balance -= 30; account.balance }).await
/// })?;
/// assert_eq!(balance, Some(70));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Database {
    handle: Handle<Shard>,
    runtime: Option<Runtime<Shard>>,
    catalog: Arc<Catalog>,
    adaptive: Arc<Adaptive>,
    adapting: Option<AdaptingThread>,
    stats: Vec<Arc<EngineStats>>,
    cpus: Vec<Option<usize>>,
    chunks: Arc<HugeChunks>,
    pinned: bool,
    /// With a directory: what keeps it, and its threads until the database closes.
    durable: Option<(Arc<Durable>, DurableThreads)>,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tables: Vec<_> = self.table_names().map(|(_, name)| name).collect();
        f.debug_struct("Database")
            .field("workers", &self.workers())
            .field("tables", &tables)
            .finish_non_exhaustive()
    }
}

/// What one worker did since the database was opened.
#[derive(Clone, Debug)]
pub struct WorkerReport {
    /// The core it was placed on, if it was placed.
    pub core: Option<usize>,
    /// Its transactions.
    pub transactions: Statistics,
    /// Its steps, messages and busy time.
    pub runtime: WorkerSnapshot,
}

/// What was left when a database was closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloseReport {
    /// Transactions and sessions that had not ended by the deadline and were aborted.
    pub dropped: usize,
    /// Why the directory could not be brought to an orderly end. What was reported as committed is durable all the same,
    /// up to the failure.
    pub failure: Option<String>,
}

impl Database {
    /// Starts collecting the settings of a database with this schema.
    #[must_use]
    pub fn builder(schema: Schema) -> Builder {
        Builder::new(Some(schema))
    }

    /// Opens an existing database with the schema that is stored with it. Tables are then asked for with
    /// [`table`](Database::table); one that has indexes can be changed once these have been asked for as well
    /// ([`index`](Database::index)), because their key functions are code and not stored.
    ///
    /// # Errors
    /// As for [`Builder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Database, OpenError> {
        Database::existing().open(path)
    }

    /// Starts collecting the settings of a database that exists and is opened with the schema stored with it.
    #[must_use]
    pub fn existing() -> Builder {
        Builder::new(None)
    }
}

impl Builder {
    fn new(schema: Option<Schema>) -> Builder {
        Builder {
            schema,
            workers: None,
            machine: None,
            pin: true,
            place_memory: true,
            huge_pages: true,
            inbox_slots: 1024,
            policy: Policy::default(),
            files: Arc::new(RealFiles::new()),
            adaptation: Some(Adaptation::default()),
        }
    }
}

impl Database {
    /// The handle of table `T`.
    ///
    /// # Errors
    /// When the database has no such table.
    pub fn table<T: Table>(&self) -> Result<TableRef<T>, SchemaError> {
        self.catalog.table()
    }

    /// The handle of index `I`.
    ///
    /// # Errors
    /// When the database has no such index.
    pub fn index<I: Index>(&self) -> Result<IndexRef<I>, SchemaError> {
        self.catalog.index()
    }

    /// Names of all tables and indexes, in the order of their numbers.
    pub fn table_names(&self) -> impl Iterator<Item = (TableId, &'static str)> + '_ {
        self.catalog.tables.iter().enumerate().map(|(at, meta)| (TableId(at as u16), meta.name))
    }

    /// The columns of a table's rows; none for an index or a number that names no table.
    #[must_use]
    pub fn columns(&self, table: TableId) -> &[StoredColumn] {
        self.catalog.tables.get(table.at()).map_or(&[], |meta| &meta.columns)
    }

    /// The declared dependencies between tables.
    #[must_use]
    pub fn dependencies(&self) -> &[Dependency] {
        &self.catalog.dependencies
    }

    /// Number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.stats.len()
    }

    /// Today's partitioning and placement.
    #[must_use]
    pub fn scheme(&self) -> Arc<Scheme> {
        self.adaptive.scheme()
    }

    /// What did not go as asked without stopping anything: a core that could not be pinned to, memory that could not be
    /// placed. One sentence each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let pinning = self.runtime.iter().flat_map(|runtime| runtime.warnings().iter().cloned());
        let memory = self.chunks.warnings();
        let checkpoint = self.durable.as_ref().and_then(|(durable, _)| durable.wal.warning());
        pinning.chain(memory.iter().map(ToString::to_string)).chain(checkpoint).collect()
    }

    pub(crate) fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Changes partitioning and placement while transactions go on: one partition at a time is split, merged or moved, in the
    /// order given. Nothing aborts because of it. On a database that [adapts itself](Builder::adaptation) the
    /// controller may change it again.
    ///
    /// # Errors
    /// A change that makes no sense (those before it have been made), or the database is shutting down.
    pub fn repartition(
        &self,
        changes: impl IntoIterator<Item = SchemeChange>,
    ) -> Result<RepartitionReport, Abort> {
        refuse_on_worker()?;
        self.adaptive.repartition(changes.into_iter().collect())
    }

    /// What the database has decided about its partitioning and placement since it was opened, decisions not to act included;
    /// the oldest first, and the oldest of very many forgotten.
    #[must_use]
    pub fn adaptation_history(&self) -> Vec<AdaptationEvent> {
        self.adaptive.history()
    }

    /// What the workers have observed since this was asked last, or since the controller last looked: the cost of actions by
    /// sub-partition and the synchronization points, as a trace that can be planned from anywhere.
    ///
    /// # Errors
    /// When the database [does not observe itself](Builder::fixed_scheme), or is shutting down.
    pub fn workload_trace(&self) -> Result<atrapos_adapt::Trace, Abort> {
        refuse_on_worker()?;
        self.adaptive.trace()
    }

    /// Takes a worker out of use: all it owns goes to the others, before this returns. Its thread goes on, so sessions that
    /// live there do too, and reach their data elsewhere.
    ///
    /// # Errors
    /// When there is no such worker, or no other that may own data.
    pub fn retire_worker(&self, worker: WorkerId) -> Result<RepartitionReport, Abort> {
        refuse_on_worker()?;
        self.adaptive.retire(worker)
    }

    /// Brings a retired worker back, on core `core`, and returns which one it is. It is given data again when the database next
    /// adapts itself; one with a [fixed scheme](Builder::fixed_scheme) is repartitioned [by hand](Database::repartition).
    ///
    /// # Errors
    /// When no worker has retired.
    pub fn add_worker(&self, core: usize) -> Result<WorkerId, Abort> {
        refuse_on_worker()?;
        self.adaptive.add(core)
    }

    /// Which workers may own data: all but those that [retired](Database::retire_worker) or lost their core.
    #[must_use]
    pub fn available_workers(&self) -> Vec<bool> {
        self.adaptive.available()
    }

    /// Keeps the scheme as it is.
    pub(crate) fn keep_scheme(&self) -> MutexGuard<'_, ()> {
        self.adaptive.keep_scheme()
    }

    fn home(&self, route: &Route) -> WorkerId {
        self.scheme().home(route, self.workers())
    }

    /// Runs a procedure as a transaction at the home its route names, and waits for the outcome. When the worker is
    /// overloaded the caller waits its turn.
    ///
    /// # Errors
    /// The reason for which the transaction aborted.
    pub fn run<R: Send + 'static>(&self, route: Route, procedure: impl Procedure<R>) -> Result<R, Abort> {
        refuse_on_worker()?;
        self.submit(route, procedure)?.wait()
    }

    /// Hands a procedure to its home and returns a future of the outcome. When the worker is overloaded the caller
    /// waits its turn (it does not spin).
    ///
    /// # Errors
    /// When the database is shutting down.
    pub fn submit<R: Send + 'static>(
        &self,
        route: Route,
        procedure: impl Procedure<R>,
    ) -> Result<Submitted<R>, Abort> {
        let (sender, receiver) = oneshot();
        let request = move |worker: &Rc<EngineWorker>| {
            let own = Rc::clone(worker);
            worker.spawn(async move { sender.send(run_here(&own, &procedure).await) });
        };
        self.handle.submit(self.home(&route), request).map_err(|_| Abort::shutting_down())?;
        Ok(Submitted { receiver })
    }

    /// Like [`submit`](Database::submit), but refuses at once when the worker is overloaded.
    ///
    /// # Errors
    /// [`AbortReason::Overloaded`]: try again later. [`AbortReason::ShuttingDown`]: open the database again.
    pub fn try_submit<R: Send + 'static>(
        &self,
        route: Route,
        procedure: impl Procedure<R>,
    ) -> Result<Submitted<R>, Abort> {
        let (sender, receiver) = oneshot();
        let request = move |worker: &Rc<EngineWorker>| {
            let own = Rc::clone(worker);
            worker.spawn(async move { sender.send(run_here(&own, &procedure).await) });
        };
        let home = self.home(&route);
        match self.handle.try_submit(home, request) {
            Ok(()) => Ok(Submitted { receiver }),
            Err(error) if !error.is_full() => Err(Abort::shutting_down()),
            Err(_) => Err(Abort::explained(
                AbortReason::Overloaded,
                format!("worker {} has as many requests as it takes; try again later", home.0),
            )),
        }
    }

    /// Runs a procedure like [`run`](Database::run) and also returns what happened to it, stage by stage. For people who
    /// want to look; it is slower, and a deadlock is not retried.
    ///
    /// # Errors
    /// When the database is shutting down.
    pub fn run_traced<R: Send + 'static>(
        &self,
        route: Route,
        procedure: impl Procedure<R>,
    ) -> Result<(Result<R, Abort>, Vec<TraceEvent>), Abort> {
        self.on_worker_async(self.home(&route), async move |worker: Rc<EngineWorker>| {
            run_traced(&worker, &procedure).await
        })
    }

    /// Runs a procedure like [`run`](Database::run) and also returns what it has accessed, for a
    /// [`ClassRecording`](crate::ClassRecording). For learning about procedures: it is slower, and a deadlock is not retried.
    ///
    /// # Errors
    /// [`AbortReason::Misuse`] when the database has more than one worker, or when another transaction was in the way;
    /// [`AbortReason::ShuttingDown`].
    pub fn record<R: Send + 'static>(
        &self,
        route: Route,
        procedure: impl Procedure<R>,
    ) -> Result<(Result<R, Abort>, RecordedRun), Abort> {
        if self.workers() > 1 {
            return Err(Abort::because(
                AbortReason::Misuse,
                "accesses are recorded on a single worker, since what they are does not depend on where the data is; open a \
                 database of one worker to record",
            ));
        }
        let recorded = self.on_worker_async(self.home(&route), async move |worker: Rc<EngineWorker>| {
            run_recorded(&worker, &procedure).await
        })?;
        if recorded.1.is_complete() {
            return Ok(recorded);
        }
        Err(Abort::because(
            AbortReason::Misuse,
            "another transaction was in the way of the recorded one; record while nothing else runs",
        ))
    }

    /// Starts a session on a worker: a client that lives there and runs transactions one after the other. The result of
    /// `body` is the session's result; a panic ends the session and nothing else.
    ///
    /// # Errors
    /// When the database is shutting down.
    pub fn spawn_session<R: Send + 'static>(
        &self,
        worker: WorkerId,
        body: impl AsyncFnOnce(Session) -> R + Send + 'static,
    ) -> Result<SessionHandle<R>, Abort> {
        let (sender, receiver) = oneshot();
        let start = move |worker: &Rc<EngineWorker>| {
            let session = Session::new(Rc::clone(worker));
            worker.spawn(async move {
                // Pinned where it is made: handed to another function, the whole future would be there twice.
                let mut body = pin!(body(session));
                let ended = poll_fn(|context| {
                    // A panic of the session's is the session's, not the worker's.
                    match catch_unwind(AssertUnwindSafe(|| body.as_mut().poll(context))) {
                        Ok(polled) => polled.map(Ok),
                        Err(panic) => Poll::Ready(Err(panicked_in("session", panic.as_ref()))),
                    }
                })
                .await;
                sender.send(ended);
            });
        };
        let worker = WorkerId(worker.0 % self.workers() as u16);
        self.handle.submit(worker, start).map_err(|_| Abort::shutting_down())?;
        Ok(SessionHandle { receiver })
    }

    /// Runs `job` on a worker's thread between transactions and waits for its result.
    pub(crate) fn on_worker<R: Send + 'static>(
        &self,
        worker: WorkerId,
        job: impl FnOnce(&Rc<EngineWorker>) -> R + Send + 'static,
    ) -> Result<R, Abort> {
        refuse_on_worker()?;
        start_on_worker(&self.handle, worker, job)?.wait().map_err(|_| Abort::shutting_down())
    }

    fn on_worker_async<R: Send + 'static>(
        &self,
        worker: WorkerId,
        job: impl AsyncFnOnce(Rc<EngineWorker>) -> R + Send + 'static,
    ) -> Result<R, Abort> {
        refuse_on_worker()?;
        let (sender, receiver) = oneshot();
        let start = move |worker: &Rc<EngineWorker>| {
            let own = Rc::clone(worker);
            worker.spawn(async move { sender.send(job(own).await) });
        };
        self.handle.submit(worker, start).map_err(|_| Abort::shutting_down())?;
        receiver.wait().map_err(|_| Abort::shutting_down())
    }

    /// What happened since the database was opened, over all workers.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.stats.iter().fold(Statistics::default(), |sum, stats| sum.plus(&stats.read()))
    }

    /// What each worker did since the database was opened.
    #[must_use]
    pub fn worker_reports(&self) -> Vec<WorkerReport> {
        let snapshots = self.handle.stats();
        snapshots
            .into_iter()
            .zip(&self.stats)
            .zip(&self.cpus)
            .map(|((runtime, stats), cpu)| WorkerReport {
                core: if self.pinned { *cpu } else { None },
                transactions: stats.read(),
                runtime,
            })
            .collect()
    }

    /// Number of rows of a table, or of entries of an index.
    ///
    /// # Errors
    /// When the database is shutting down.
    pub fn len(&self, table: TableId) -> Result<u64, Abort> {
        let _scheme = self.keep_scheme();
        self.settle()?;
        self.count(table)
    }

    /// Number of rows or entries, for a caller that keeps the scheme and has let everything settle.
    pub(crate) fn count(&self, table: TableId) -> Result<u64, Abort> {
        let count = move |worker: &Rc<EngineWorker>| {
            let tables = worker.shard().tables.borrow();
            tables
                .owned()
                .filter(|(place, _)| place.table == table)
                .map(|(_, part)| part.tree.len())
                .sum::<u64>()
        };
        self.on_all_workers(count).map(|counts| counts.into_iter().sum())
    }

    /// Memory the trees have taken from the operating system, in bytes.
    ///
    /// # Errors
    /// When the database is shutting down.
    pub fn memory_bytes(&self) -> Result<usize, Abort> {
        let _scheme = self.keep_scheme();
        let bytes = |worker: &Rc<EngineWorker>| {
            let tables = worker.shard().tables.borrow();
            tables
                .owned()
                .map(|(_, part)| part.tree.bytes())
                .map(|bytes| bytes.page_bytes + bytes.spare)
                .sum::<usize>()
        };
        self.on_all_workers(bytes).map(|bytes| bytes.into_iter().sum())
    }

    /// Runs `job` on every worker at once and collects the results in order of the workers.
    pub(crate) fn on_all_workers<R: Send + 'static>(
        &self,
        job: impl FnOnce(&Rc<EngineWorker>) -> R + Clone + Send + 'static,
    ) -> Result<Vec<R>, Abort> {
        refuse_on_worker()?;
        on_all_workers(&self.handle, job)
    }

    /// Waits until every message that one worker has sent to another so far has arrived: the ends of transactions
    /// that were reported, above all.
    pub(crate) fn settle(&self) -> Result<(), Abort> {
        refuse_on_worker()?;
        settle(&self.handle)
    }

    /// Makes a checkpoint while transactions go on, and returns when it is on disk: the next opening begins with it.
    ///
    /// # Errors
    /// When files cannot be written (the database goes on with the checkpoint before), or the database has no directory.
    pub fn checkpoint(&self) -> Result<CheckpointReport, CheckpointFailure> {
        refuse_on_worker()?;
        match &self.durable {
            Some((durable, _)) => durable.checkpoint(Pace::Gentle),
            None => Err(Abort::because(
                AbortReason::Misuse,
                "a database in memory has no directory to write a checkpoint to; open it with a path",
            )
            .into()),
        }
    }

    /// Copies the database to the directory `to`, which must be empty or not exist, while transactions go on. Everything that
    /// was reported as committed before the call is in the copy; open it like any database.
    ///
    /// # Errors
    /// When files cannot be read or written, `to` is in use, or the database has no directory.
    pub fn backup(&self, to: impl AsRef<Path>) -> Result<BackupReport, BackupFailure> {
        refuse_on_worker()?;
        let Some((durable, _)) = &self.durable else {
            return Err(Abort::because(
                AbortReason::Misuse,
                "a database in memory has no files to copy; open it with a path",
            )
            .into());
        };
        // No checkpoint is published meanwhile, so the copy never has to start over.
        let _state = durable.lock_state();
        Ok(backup(Arc::clone(&durable.fs), durable.directory.path(), to.as_ref())?)
    }

    /// What opening the database brought back; nothing for a database in memory.
    #[must_use]
    pub fn recovery_report(&self) -> Option<&RecoveryReport> {
        self.durable.as_ref().map(|(durable, _)| &durable.report)
    }

    /// What the WAL has done since the database was opened; nothing for a database in memory.
    #[must_use]
    pub fn wal_statistics(&self) -> Option<WalStatistics> {
        let (durable, _) = self.durable.as_ref()?;
        Some(WalStatistics {
            bytes: durable.wal.bytes(),
            syncs: durable.wal.frames(),
            durable_epoch: durable.wal.durable().0,
        })
    }

    /// The directory and state of a database that has one.
    pub(crate) fn durable(&self) -> Option<&Durable> {
        self.durable.as_ref().map(|(durable, _)| &**durable)
    }

    /// Closes the database: refuses new work, completes what is under way, stops the workers. What has not ended after
    /// `deadline` (a session that goes on for ever, for example) is aborted.
    pub fn close(mut self, deadline: Duration) -> CloseReport {
        self.shut_down(deadline)
    }

    fn shut_down(&mut self, deadline: Duration) -> CloseReport {
        self.adaptive.stop(self.adapting.take());
        let Some(runtime) = self.runtime.take() else { return CloseReport::default() };
        let closing = self.durable.take().map(|(durable, threads)| {
            let flushers = threads.before_workers_end(&durable);
            (durable, flushers)
        });
        // Tasks that wait for durability need the flushers to complete.
        let dropped = runtime.shutdown(deadline).tasks_dropped;
        let failure = closing.and_then(|(durable, flushers)| flushers.after_workers_ended(&durable));
        CloseReport { dropped, failure }
    }
}

/// Starts `job` on a worker's thread between transactions.
pub(crate) fn start_on_worker<R: Send + 'static>(
    handle: &Handle<Shard>,
    worker: WorkerId,
    job: impl FnOnce(&Rc<EngineWorker>) -> R + Send + 'static,
) -> Result<Receiver<R>, Abort> {
    handle.request(worker, move |worker, sender| sender.send(job(worker))).map_err(|_| Abort::shutting_down())
}

/// Runs `job` on every worker at once and collects the results in order of the workers.
pub(crate) fn on_all_workers<R: Send + 'static>(
    handle: &Handle<Shard>,
    job: impl FnOnce(&Rc<EngineWorker>) -> R + Clone + Send + 'static,
) -> Result<Vec<R>, Abort> {
    let started: Vec<Receiver<R>> = (0..handle.workers())
        .map(|worker| start_on_worker(handle, WorkerId(worker as u16), job.clone()))
        .collect::<Result<_, _>>()?;
    started.into_iter().map(|result| result.wait().map_err(|_| Abort::shutting_down())).collect()
}

/// Waits until every message that one worker has sent to another so far has arrived, and the ends of transactions that
/// follow data from worker to worker as well.
pub(crate) fn settle(handle: &Handle<Shard>) -> Result<(), Abort> {
    let ends_passed_on = || {
        let counts = on_all_workers(handle, |worker| worker.shard().stats.ends_passed_on.get())?;
        Ok::<u64, Abort>(counts.into_iter().sum())
    };
    loop {
        let before = ends_passed_on()?;
        settle_once(handle)?;
        if ends_passed_on()? == before {
            return Ok(());
        }
    }
}

fn settle_once(handle: &Handle<Shard>) -> Result<(), Abort> {
    let workers = (0..handle.workers()).map(|worker| WorkerId(worker as u16));
    workers.clone().try_for_each(|from| {
        let others: Vec<WorkerId> = workers.clone().filter(|to| *to != from).collect();
        let (sender, receiver) = oneshot();
        let start = move |worker: &Rc<EngineWorker>| {
            let own = Rc::clone(worker);
            worker.spawn(async move {
                for to in others {
                    // Messages between two workers arrive in order, so the answer comes after everything sent before. A
                    // lost answer means that the worker is gone, and what was sent to it as well.
                    let _ = own.call(to, |worker, reply| reply.send(worker, ())).await;
                }
                sender.send(());
            });
        };
        handle.submit(from, start).map_err(|_| Abort::shutting_down())?;
        receiver.wait().map_err(|_| Abort::shutting_down())
    })
}

/// Why a backup could not be made. What is at its place is not a database.
#[derive(Debug, thiserror::Error)]
pub enum BackupFailure {
    /// Files could not be copied.
    #[error(transparent)]
    Copy(#[from] BackupError),
    /// The database has no directory.
    #[error(transparent)]
    Refused(#[from] Abort),
}

/// What the WAL of a database has done since it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalStatistics {
    /// Bytes written, headers included.
    pub bytes: u64,
    /// Times a stream was synced; each sync makes everything durable that was committed before it.
    pub syncs: u64,
    /// The newest durable epoch.
    pub durable_epoch: u64,
}

thread_local! {
    /// Whether this thread is a worker of a database. One that waited for a database would keep it, or another, waiting.
    static ON_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Refuses to block a worker's thread.
fn refuse_on_worker() -> Result<(), Abort> {
    if !ON_WORKER.get() {
        return Ok(());
    }
    Err(Abort::because(
        AbortReason::Misuse,
        "a worker's thread cannot wait for a database; use the transaction or session at hand, or another thread",
    ))
}

/// How long a database that is dropped without being closed completes what is under way.
const DROP_DEADLINE: Duration = Duration::from_secs(5);

impl Drop for Database {
    fn drop(&mut self) {
        self.shut_down(DROP_DEADLINE);
    }
}

/// The outcome of a transaction that was handed over: a future, or to be waited for.
#[derive(Debug)]
#[must_use = "the outcome is known only to who asks for it"]
pub struct Submitted<R: Send> {
    receiver: Receiver<Result<R, Abort>>,
}

impl<R: Send> Submitted<R> {
    /// Waits for the outcome.
    ///
    /// # Errors
    /// The reason for which the transaction aborted.
    pub fn wait(self) -> Result<R, Abort> {
        refuse_on_worker()?;
        self.receiver.wait().unwrap_or_else(|_| Err(Abort::shutting_down()))
    }
}

impl<R: Send> Future for Submitted<R> {
    type Output = Result<R, Abort>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<R, Abort>> {
        Pin::new(&mut self.receiver)
            .poll(context)
            .map(|outcome| outcome.unwrap_or_else(|_| Err(Abort::shutting_down())))
    }
}

/// A running session.
#[derive(Debug)]
pub struct SessionHandle<R: Send> {
    receiver: Receiver<Result<R, Abort>>,
}

impl<R: Send> SessionHandle<R> {
    /// Waits until the session ends and returns its result.
    ///
    /// # Errors
    /// When the session panicked, or the database was closed before it ended by itself.
    pub fn join(self) -> Result<R, Abort> {
        refuse_on_worker()?;
        self.receiver.wait().unwrap_or_else(|_| Err(Abort::shutting_down()))
    }
}
