//! How a database is opened: its settings, and putting workers, log, scheme and adapting thread together.
//!
//! Owns: what is refused before anything starts. Never: runs a transaction.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use atrapos_adapt::Platform;
use atrapos_catalog::Definitions;
use atrapos_durability::directory::DirectoryError;
use atrapos_durability::file::{FileSystem, RealFiles};
use atrapos_durability::manifest::Manifest;
use atrapos_durability::wal::WalError;
use atrapos_runtime::affinity;
use atrapos_runtime::memory::{HugeChunks, MemoryOptions};
use atrapos_runtime::{Clock, RuntimeBuilder, WorkerId};
use atrapos_storage::{Memory, Tree, TreeConfig};
use atrapos_topology::{CpuId, CpuSet, LiveOptions, Machine};

use crate::adaptation::{Adaptation, Adaptive};
use crate::database::{Database, ON_WORKER};
use crate::durable::{DirectoryContents, Policy};
use crate::memory::TreeMemory;
use crate::monitor::Monitor;
use crate::partition::{Partition, TableShard, Tables};
use crate::published_scheme::PublishedScheme;
use crate::recovery::{RecoveryError, RecoveryProgress};
use crate::routing::{FamilyScheme, Scheme, nowhere};
use crate::schema::{Catalog, PublishedCatalog, Schema, SchemaError, TableId, TableMeta, TreeKind};
use crate::shard::{Shard, ShardOptions};
use crate::stats::EngineStats;
use crate::wal::{CommitWaiters, Durability, TRANSACTION_REDO_BYTES_MAX, Wal, WalLimits};

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
    patience: Duration,
}

impl Builder {
    pub(crate) fn new(schema: Option<Schema>) -> Builder {
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
            patience: Duration::from_secs(10),
        }
    }

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

    /// Bytes of redo that one transaction has at most (256 MiB by default, at most 512 MiB): about the keys and bytes it changes.
    /// One that changes more is aborted ([`AbortReason::TransactionTooLarge`](crate::AbortReason::TransactionTooLarge)), since it
    /// is one record of the WAL and kept in memory until it commits. Of no effect on a database [in memory](Builder::in_memory).
    #[must_use]
    pub fn transaction_redo_bytes(mut self, bytes: usize) -> Builder {
        self.policy.limits.transaction_redo_bytes = bytes;
        self
    }

    /// Bytes of committed transactions that wait to be written to the WAL at most (1 GiB by default, shared evenly by the
    /// workers); as much again may be being written. A transaction that finds no room waits until there is, and runs
    /// again: a device that stands still stops transactions, not the process for want of memory.
    #[must_use]
    pub fn wal_buffer_bytes(mut self, bytes: usize) -> Builder {
        self.policy.limits.buffer_bytes = bytes;
        self
    }

    /// How long a statement that drops or changes a table waits for the transactions that have used it (10 s by default). Then
    /// it fails, and the table is as it was.
    #[must_use]
    pub fn statement_patience(mut self, patience: Duration) -> Builder {
        self.patience = patience;
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
            (Some(schema), None) => Catalog::new(schema)?,
            (Some(schema), Some((path, _))) => {
                // A manifest that cannot be read is told of when the directory is opened.
                let manifest = Manifest::read(&*self.files, path).ok().flatten();
                Catalog::of_stored(
                    schema,
                    &manifest.map_or_else(Definitions::default, |manifest| manifest.schema),
                )?
            }
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
        let catalogs = Arc::new(PublishedCatalog::new(Arc::new(catalog)));
        let catalog = catalogs.working();
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
        check_limits(self.policy.limits)?;
        if let Some(adaptation) = &self.adaptation {
            adaptation.check().map_err(OpenError::Setting)?;
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
                let opened = DirectoryContents::new(
                    Arc::clone(&self.files),
                    path,
                    &stored,
                    streams,
                    self.policy.clone(),
                )?;
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
            let (catalogs, scheme, stats) = (Arc::clone(&catalogs), Arc::clone(&scheme), stats.clone());
            let chunks = Arc::clone(&chunks);
            let clock = Clock::real();
            move |worker: WorkerId| {
                ON_WORKER.set(true);
                let memory = Arc::new(TreeMemory::new(Arc::clone(&chunks), nodes[worker.index()]));
                let stats = Arc::clone(&stats[worker.index()]);
                let (catalogs, scheme) = (Arc::clone(&catalogs), Arc::clone(&scheme));
                new_shard(worker, catalogs, scheme, memory, stats, &clock, wal.clone(), observing)
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
        let published = Arc::new(PublishedScheme::new(scheme));
        let platform = Platform::new(&machine, &placement).ok();
        let cores = if pin { cpus.clone() } else { vec![None; workers] };
        let adaptive = Adaptive::new(
            runtime.handle(),
            Arc::clone(&catalogs),
            published,
            stats.clone(),
            self.adaptation,
            platform,
            cores,
        );
        let adapting =
            adaptive.start().map_err(|error| OpenError::Start(format!("thread 'atrapos-adapt': {error}")))?;
        Ok(Database {
            handle: runtime.handle(),
            runtime: Some(runtime),
            catalogs,
            adaptive,
            adapting,
            stats,
            cpus,
            chunks,
            pinned: pin,
            patience: self.patience,
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

fn check_limits(limits: WalLimits) -> Result<(), OpenError> {
    let refuse = |why: String| Err(OpenError::Setting(why));
    match limits {
        WalLimits { transaction_redo_bytes: 0, .. } => {
            refuse("transactions of zero bytes of redo change nothing; allow at least 1".to_owned())
        }
        WalLimits { transaction_redo_bytes: bytes, .. } if bytes > TRANSACTION_REDO_BYTES_MAX => {
            refuse(format!(
                "transactions of {bytes} bytes of redo do not fit a frame of the WAL; allow at most \
             {TRANSACTION_REDO_BYTES_MAX}"
            ))
        }
        WalLimits { buffer_bytes: 0, .. } => {
            refuse("a WAL buffer of zero bytes takes no transaction; use at least 1".to_owned())
        }
        _ => Ok(()),
    }
}

/// The empty partitions that a worker owns of a table with this scheme; none of one that was dropped.
pub(crate) fn new_table(
    worker: WorkerId,
    meta: &TableMeta,
    scheme: Arc<FamilyScheme>,
    memory: &Arc<dyn Memory>,
) -> TableShard {
    let mut partitions = Vec::new();
    if meta.kind != TreeKind::Dropped {
        let config = TreeConfig::for_rows_of(meta.expected_row_bytes);
        for index in (0..scheme.partitions()).filter(|index| scheme.owner(*index) == worker) {
            let number = scheme.number(index) as usize;
            partitions.resize_with(partitions.len().max(number + 1), || None);
            partitions[number] = Some(Box::new(Partition::new(Tree::new(config, Arc::clone(memory)), 0)));
        }
    }
    TableShard::new(scheme, partitions)
}

/// How long a lock request waits before its transaction looks for a deadlock.
const DEADLOCK_CHECK_AFTER: Duration = Duration::from_millis(1);

#[expect(clippy::too_many_arguments, reason = "what a worker is made of")]
pub(crate) fn new_shard(
    worker: WorkerId,
    published: Arc<PublishedCatalog>,
    scheme: Arc<Scheme>,
    memory: Arc<dyn Memory>,
    stats: Arc<EngineStats>,
    clock: &Clock,
    wal: Option<Arc<Wal>>,
    observing: Option<(u32, usize)>,
) -> Shard {
    let catalog = published.working();
    let shards = (0..).map(TableId).zip(&catalog.tables).map(|(table, meta)| {
        let family = Arc::clone(scheme.family_at(table).unwrap_or_else(|| nowhere()));
        new_table(worker, meta, family, &memory)
    });
    let tables = Tables { shards: shards.collect(), catalog: Arc::clone(&catalog) };
    let options = ShardOptions {
        deadlock_check_after: clock.ticks(DEADLOCK_CHECK_AFTER),
        transaction_redo_bytes: wal
            .as_ref()
            .map_or(WalLimits::default(), |wal| wal.limits)
            .transaction_redo_bytes,
    };
    let commit_waiters = wal.filter(|wal| wal.logs()).map(|wal| {
        let max_loss = match wal.durability {
            Durability::Relaxed { max_loss_ms } => Some(clock.ticks(Duration::from_millis(max_loss_ms))),
            _ => None,
        };
        CommitWaiters::new(wal, catalog.tables.len(), max_loss)
    });
    let monitor = Monitor::new(&catalog, worker, clock, observing);
    Shard::new(published, tables, memory, stats, options, commit_waiters, monitor)
}
