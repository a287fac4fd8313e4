//! Opening of a database: its settings, and the start of directory, workers and adapting thread.
//!
//! Owns: the order in which the parts are started, after the settings were checked ([`check`]). Never: runs a transaction.

mod check;
mod error;
mod placed;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use atrapos_adapt::WorkloadTrace;
use atrapos_catalog::Definitions;
use atrapos_durability::directory::DirectoryError;
use atrapos_durability::file::{FileSystem, RealFiles};
use atrapos_durability::manifest::Manifest;
use atrapos_partition::routing::Division;
use atrapos_partition::schema::{Catalog, Schema};
use atrapos_placement::adaptation::{
    Adaptation, AdaptingThread, Adaptive, CoreSource, Learned, Site, SystemCores,
};
use atrapos_placement::published_scheme::PublishedScheme;
use atrapos_runtime::memory::{HugeChunks, MemoryOptions};
use atrapos_runtime::{RuntimeBuilder, ThreadHost, slice};
use atrapos_topology::{CpuId, Machine};
use atrapos_transaction::central::{CentralState, SystemState};
use atrapos_transaction::wal::{Durability, Wal, WalLayout};

use self::placed::{Placed, live_machine};
use crate::assembly::Parts;
use crate::database::Database;
use crate::durable::{DirectoryContents, Policy};
use crate::memory::DatabaseMemory;
use crate::memos::Memos;
use crate::recovery::RecoveryProgress;
use crate::refined_costs::CostsMemo;
use crate::stored_scheme::SchemeMemo;
use crate::sync_costs;

pub use self::error::OpenError;

/// Collects the settings of a database before it is opened.
#[derive(Debug)]
pub struct Builder {
    /// The declared schema; `None` for the one stored in the directory.
    schema: Option<Schema>,
    workers: Option<usize>,
    spare_workers: usize,
    machine: Option<Machine>,
    pin: bool,
    place_memory: bool,
    huge_pages: bool,
    reserve_bytes: u64,
    inbox_slots: usize,
    policy: Policy,
    files: Arc<dyn FileSystem>,
    adaptation: Option<Adaptation>,
    central_state: CentralState,
    patience: Duration,
    division: Option<Division>,
    deployment: u128,
    thread_host: Option<Arc<dyn ThreadHost>>,
    core_source: Arc<dyn CoreSource>,
    /// The statistics and the mix for which the first scheme is planned.
    expected: Option<(WorkloadTrace, Vec<(String, f64)>)>,
}

impl Builder {
    pub(crate) fn new(schema: Option<Schema>) -> Builder {
        Builder {
            schema,
            workers: None,
            spare_workers: 0,
            machine: None,
            pin: true,
            place_memory: true,
            huge_pages: true,
            reserve_bytes: 0,
            inbox_slots: 1024,
            policy: Policy::default(),
            files: Arc::new(RealFiles::new()),
            adaptation: Some(Adaptation::default()),
            central_state: CentralState::default(),
            patience: Duration::from_secs(10),
            division: None,
            deployment: 0,
            thread_host: None,
            core_source: Arc::new(SystemCores::default()),
            expected: None,
        }
    }

    /// Sets the adaptation of partitioning and placement to the workload ([`Adaptation::default`] by default). With one
    /// worker it has no effect. Costs of synchronization that have their defaults are those of this machine, if `atrapos topology --measure`
    /// has stored any ([`sync_costs_file`](crate::sync_costs_file)).
    #[must_use]
    pub fn adaptation(mut self, adaptation: Adaptation) -> Builder {
        self.adaptation = Some(adaptation);
        self
    }

    /// Sets what is expected before the first transaction: statistics that a database of the same schema has recorded
    /// ([`Database::workload_trace`], `atrapos bench --record`), with the flow graphs of its transaction classes, and the shares in which these
    /// will run: weights by name, of any sum; without any, as they were recorded. Opening gives the tables the partitions and owners that
    /// `atrapos plan --mix` shows for them, on as many workers as the database has; tables of which nothing was recorded keep their declared ones.
    /// A database that adapts goes on from there, one with a [fixed scheme](Builder::fixed_scheme) keeps it.
    #[must_use]
    pub fn expected_mix(
        mut self,
        recorded: WorkloadTrace,
        mix: impl IntoIterator<Item = (impl Into<String>, f64)>,
    ) -> Builder {
        self.expected =
            Some((recorded, mix.into_iter().map(|(class, share)| (class.into(), share)).collect()));
        self
    }

    /// Disables adaptation: the database keeps the scheme that its tables are declared with, unless it is changed [by hand](Database::repartition), and
    /// collects no statistics for it. A scheme that it [has adapted itself to](crate::read_scheme) before is neither used nor replaced.
    #[must_use]
    pub fn fixed_scheme(mut self) -> Builder {
        self.adaptation = None;
        self
    }

    /// Sets the parts of the system state that workers share: none by default. They make the engine slower, as the systems are
    /// that ATraPos is compared with; that is what they are for.
    #[must_use]
    pub fn central_state(mut self, central_state: CentralState) -> Builder {
        self.central_state = central_state;
        self
    }

    /// Sets the number of workers, which own the data. By default one per usable core of the machine.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Builder {
        self.workers = Some(workers);
        self
    }

    /// Sets the number of spare workers (0 by default), which the database has besides the others. They own nothing until the process may use
    /// more cores than at the opening: a wider affinity mask or cpuset, a core that comes online, a greater quota. Then each core that appears
    /// is given to one of them for good, if the database adapts itself and pins its workers; otherwise [`Database::add_worker`] does so.
    /// Until then a spare worker costs its thread, which sleeps, and the queues between it and each other worker.
    #[must_use]
    pub fn spare_workers(mut self, spare: usize) -> Builder {
        self.spare_workers = spare;
        self
    }

    /// Makes the database an instance of a deployment, with the workers that the division has for it. It keeps the rows whose keys
    /// are its own and reaches the others by [links](Database::link). Such a database refuses schema statements, and adapts inside of its
    /// own keys. In a directory, which belongs to this instance of this [deployment](Builder::deployment) from then on, it logs.
    #[must_use]
    pub fn instance(mut self, division: Division) -> Builder {
        self.workers = division.workers.get(usize::from(division.instance.0)).copied();
        self.division = Some(division);
        self
    }

    /// Sets the identity of the deployment of an [instance](Builder::instance), which its directory keeps (0 by default): so no
    /// instance is opened with a directory of another deployment.
    #[must_use]
    pub fn deployment(mut self, identity: u128) -> Builder {
        self.deployment = identity;
        self
    }

    /// Sets the machine to place the workers on. By default the one this process runs on, as the kernel describes it.
    #[must_use]
    pub fn machine(mut self, machine: Machine) -> Builder {
        self.machine = Some(machine);
        self
    }

    /// Sets the host of the workers' threads, if they share them with its tasks, such as those of clients' sockets: requests of these
    /// tasks need no wake-up of a thread. By default workers have their threads for themselves.
    #[must_use]
    pub fn thread_host(mut self, host: Arc<dyn ThreadHost>) -> Builder {
        self.thread_host = Some(host);
        self
    }

    /// Sets whether workers are pinned to cores (on by default, best effort: a refusal is a warning). On a machine that is
    /// only described, or with more workers than usable cores, none is pinned.
    #[must_use]
    pub fn pin(mut self, pin: bool) -> Builder {
        self.pin = pin;
        self
    }

    /// Sets what tells how the cores of pinned workers are, for a database that adapts itself: the operating system by default. A worker whose core is taken
    /// away, goes offline, is busy with others or exceeds a quota gets another one or owns nothing until it has one
    /// ([`CoreWatch`](atrapos_adapt::CoreWatch) has the rules, [`ControllerSettings::cores`](atrapos_adapt::ControllerSettings) their thresholds).
    /// Cores that appear are used by [spare workers](Builder::spare_workers).
    #[must_use]
    pub fn core_source(mut self, source: Arc<dyn CoreSource>) -> Builder {
        self.core_source = source;
        self
    }

    /// Sets whether a worker's memory is placed on its own node (on by default, best effort).
    #[must_use]
    pub fn place_memory(mut self, place: bool) -> Builder {
        self.place_memory = place;
        self
    }

    /// Sets whether huge pages are requested (on by default, best effort).
    #[must_use]
    pub fn huge_pages(mut self, huge: bool) -> Builder {
        self.huge_pages = huge;
        self
    }

    /// Sets the bytes by which tables may grow before a worker meets a page fault (0 by default), evenly on all workers. The
    /// memory is taken and prepared while the database opens, which takes some 50 to 3,000 ms for a GiB. Beyond it, a thread
    /// prepares memory ahead of tables that grow: what they take within a quarter of a second, at most 32 MiB for each
    /// memory node. See [`Database::reserve`] to do it later, and [`Database::prepared_memory`].
    #[must_use]
    pub fn reserve(mut self, bytes: u64) -> Builder {
        self.reserve_bytes = bytes;
        self
    }

    /// Sets the number of requests from outside that may be queued at one worker (1,024 by default). While the queue is full,
    /// submitting threads wait.
    #[must_use]
    pub fn inbox_slots(mut self, slots: usize) -> Builder {
        self.inbox_slots = slots;
        self
    }

    /// Sets the durability of a transaction at the time its commit is reported ([`Durability::Synchronous`] by default). It
    /// has no effect on a database [in memory](Builder::in_memory).
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Builder {
        self.policy.durability = durability;
        self
    }

    /// Sets the bytes of WAL after which a checkpoint is made (1 GiB by default). More makes checkpoints rarer and recovery
    /// longer. Files of as many bytes stay when a checkpoint has made what is in them unnecessary, and are written again.
    #[must_use]
    pub fn checkpoint_wal_bytes(mut self, bytes: u64) -> Builder {
        self.policy.checkpoint_wal_bytes = bytes;
        self
    }

    /// Sets the time after which a checkpoint is made if the database has changed (off by default).
    #[must_use]
    pub fn checkpoint_every(mut self, every: Duration) -> Builder {
        self.policy.checkpoint_every = Some(every);
        self
    }

    /// Sets the bytes of a segment file of the WAL (64 MiB by default), which are allocated in advance.
    #[must_use]
    pub fn segment_bytes(mut self, bytes: u64) -> Builder {
        self.policy.segment_bytes = bytes;
        self
    }

    /// Sets the bytes of the WAL that are filled with zeros by the opening (none by default), shared evenly by its streams: a
    /// third of the time of each device sync is saved. It takes a second for a gibibyte or two. With as much as is written
    /// until a checkpoint ([`checkpoint_wal_bytes`](Builder::checkpoint_wal_bytes)), all of the WAL is written to such files, as
    /// those that a checkpoint makes unnecessary are used again in any case.
    #[must_use]
    pub fn wal_reserve_bytes(mut self, bytes: u64) -> Builder {
        self.policy.wal_reserve_bytes = bytes;
        self
    }

    /// Sets the maximum bytes of redo of one transaction (256 MiB by default, at most 512 MiB): about the keys and bytes it
    /// changes. A transaction that changes more is aborted
    /// ([`AbortReason::TransactionTooLarge`](atrapos_partition::abort::AbortReason::TransactionTooLarge)), since it is one
    /// record of the WAL and kept in memory until it commits. It has no effect on a database [in
    /// memory](Builder::in_memory).
    #[must_use]
    pub fn transaction_redo_bytes(mut self, bytes: usize) -> Builder {
        self.policy.limits.transaction_redo_bytes = bytes;
        self
    }

    /// Sets the maximum bytes of committed transactions that wait to be written to the WAL (1 GiB by default, shared evenly
    /// by the workers); as much again may be in the course of being written. A transaction that finds no room waits until
    /// there is, and runs again: a device that stalls stops transactions, and the process does not run out of memory.
    #[must_use]
    pub fn wal_buffer_bytes(mut self, bytes: usize) -> Builder {
        self.policy.limits.buffer_bytes = bytes;
        self
    }

    /// Sets the time that a statement that drops or changes a table waits for the transactions that have used it (10 s by
    /// default). After it, the statement fails and the table is unchanged.
    #[must_use]
    pub fn statement_patience(mut self, patience: Duration) -> Builder {
        self.patience = patience;
        self
    }

    /// Sets the file system of the database: that of the operating system by default, or a model of one.
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

    /// Opens the database in the directory `path`, or creates one there. All transactions that were reported as committed
    /// are in it, within the limits of its [`durability`](Builder::durability).
    ///
    /// # Errors
    /// The errors of [`in_memory`](Builder::in_memory); a directory that is in use, damaged, of another schema, or of
    /// something else; files that cannot be written.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Database, OpenError> {
        self.open_watched(path, &RecoveryProgress::default())
    }

    /// Opens a database like [`open`](Builder::open), and reports the progress of recovery.
    ///
    /// # Errors
    /// The errors of [`open`](Builder::open).
    pub fn open_watched(
        self,
        path: impl AsRef<Path>,
        progress: &RecoveryProgress,
    ) -> Result<Database, OpenError> {
        self.start(Some((path.as_ref(), progress)))
    }

    /// Starts the workers and threads of a database, in memory or in a directory.
    fn start(mut self, directory: Option<(&Path, &RecoveryProgress)>) -> Result<Database, OpenError> {
        let machine = self.machine.clone().unwrap_or_else(live_machine);
        let workers = self.workers.unwrap_or_else(|| machine.default_workers());
        self.check(workers)?;
        self.check_division(directory.is_some())?;
        let schema = self.schema.take();
        let catalog = self.catalog(schema, directory.map(|(path, _)| path))?;
        let mut parts = Parts::new(Arc::new(catalog), (workers, self.spare_workers), self.division.take())?;
        let mut warnings: Vec<String> = self.take_sync_costs(&machine).into_iter().collect();
        // Nothing is observed where there is nothing to choose.
        let observing = self.adaptation.filter(|adaptation| parts.stats.len() > 1 || !adaptation.act);
        parts.observing = observing.map(|adaptation| (adaptation.sample_every, adaptation.sub_partitions));
        let placed =
            Placed::new(&machine, workers, self.pin, self.place_memory).with_spares(self.spare_workers);
        parts.system_state = SystemState::new(self.central_state, placed.island_of.clone());
        let opened = match directory {
            None => None,
            Some((path, progress)) => {
                let layout = WalLayout::new(self.central_state.log_buffer, placed.island_of.clone());
                let opened = DirectoryContents::new(
                    Arc::clone(&self.files),
                    path,
                    &parts.definitions(),
                    layout.streams(),
                    self.policy.clone(),
                    parts.instance_record(self.deployment),
                )?;
                parts.incarnation = opened.openings();
                let wal = opened.wal(layout);
                parts.wal = Some(Arc::clone(&wal));
                Some((opened, wal, progress))
            }
        };
        let learned = self.learned(&machine, directory.map(|(path, _)| path), &mut parts, &mut warnings);
        let chunks = HugeChunks::new(self.memory_options());
        let memory = DatabaseMemory::start(chunks, placed.nodes.clone())?;
        memory.reserve(self.reserve_bytes).map_err(OpenError::Setting)?;
        let runtime = self.runtime(&machine, &placed, parts.wal.as_deref());
        let runtime = parts.on_threads(runtime, memory.of_trees()).map_err(OpenError::Start)?;
        let recover = |(opened, wal, progress): (DirectoryContents, _, _)| {
            opened.recover_with_threads(wal, runtime.handle(), &parts.scheme, progress)
        };
        let durable = opened.map(recover).transpose()?;
        let adaptive = Adaptive::new(
            runtime.handle(),
            Arc::clone(&parts.catalogs),
            Arc::new(PublishedScheme::new(parts.scheme)),
            parts.stats.clone(),
            self.adaptation,
            self.site(&machine, placed.placement, placed.pin),
            learned,
        );
        let adapting = self.start_adapting(&adaptive)?;
        Ok(Database {
            handle: runtime.handle(),
            runtime: Some(runtime),
            catalogs: parts.catalogs,
            adaptive,
            adapting,
            stats: parts.stats,
            system_state: parts.system_state,
            cpus: placed.cpus,
            machine,
            memory: Some(memory),
            patience: self.patience,
            division: parts.division,
            durable,
            warnings,
        })
    }

    /// The processing units of the workers, as they are watched.
    fn site(&self, machine: &Machine, cpus: Vec<CpuId>, is_pinned: bool) -> Site {
        let (spare_workers, source) = (self.spare_workers, Arc::clone(&self.core_source));
        Site { machine: machine.clone(), cpus, spare_workers, is_pinned, source }
    }

    /// Gives the tables the scheme that is planned for the mix, if one is expected, and starts the thread that adapts.
    fn start_adapting(&self, adaptive: &Arc<Adaptive>) -> Result<Option<AdaptingThread>, OpenError> {
        if let Some((recorded, mix)) = &self.expected {
            adaptive.begin_with(recorded, mix).map_err(|abort| OpenError::Setting(abort.to_string()))?;
        }
        adaptive.start().map_err(|error| OpenError::Start(format!("thread 'atrapos-adapt': {error}")))
    }

    fn memory_options(&self) -> MemoryOptions {
        MemoryOptions { huge_pages: self.huge_pages, bind_to_node: self.place_memory }
    }

    /// Takes the costs of synchronization that are stored for this machine. Returns the reason, if some are not taken.
    fn take_sync_costs(&mut self, machine: &Machine) -> Option<String> {
        let found = sync_costs::found(self.adaptation, machine, sync_costs::stored());
        self.adaptation = found.adaptation;
        found.warning
    }

    /// Returns what the database in `directory` has learnt, and gives `parts` the scheme that it has adapted itself to. What is there and is not taken is for `warnings`.
    fn learned(
        &self,
        machine: &Machine,
        directory: Option<&Path>,
        parts: &mut Parts,
        warnings: &mut Vec<String>,
    ) -> Learned {
        let (Some(adaptation), Some(path)) = (self.adaptation, directory) else { return Learned::default() };
        let costs = machine.is_live().then(|| {
            let (weights, rules) = (adaptation.controller.planning.weights, adaptation.controller.rules);
            let here = sync_costs::sync_costs_machine(machine);
            CostsMemo::new(&self.files, path, here, weights, rules.sync_factors())
        });
        let (sync_factor, warning) = costs.as_ref().map_or((1.0, None), CostsMemo::found);
        warnings.extend(warning);
        let memos = Memos { costs, scheme: SchemeMemo::new(&self.files, path) };
        let stored = memos.scheme.read().unwrap_or_else(|warning| {
            warnings.push(warning);
            None
        });
        if let Some(stored) = &stored {
            parts.resume(stored, self.spare_workers);
        }
        Learned { sync_factor, keeper: Some(Arc::new(memos)), has_scheme: stored.is_some() }
    }

    /// Returns the settings of the workers' threads.
    fn runtime(&self, machine: &Machine, placed: &Placed, wal: Option<&Wal>) -> RuntimeBuilder {
        let workers = placed.placement.len();
        let mut runtime = RuntimeBuilder::new(placed.cpus.len());
        (runtime.cpus, runtime.spare) = (Some(placed.cpus.clone()), self.spare_workers);
        runtime.pin = placed.pin;
        runtime.inbox_slots = self.inbox_slots.next_power_of_two();
        runtime.limits.tasks_in_flight = TASKS_IN_FLIGHT;
        runtime.host.clone_from(&self.thread_host);
        // Idle workers wait for flushers, which need a core to make progress: they take one, where they may have short slices. A worker
        // that yields would give its core to any thread of the machine, for a whole slice.
        let flushers = wal.map_or(0, |wal| if wal.logs() { wal.streams.len() } else { 0 });
        let crowded = flushers > 0 && workers + flushers > machine.usable_cpus().len();
        runtime.yield_when_idle = crowded && !slice::are_granted();
        runtime
    }

    /// Returns the catalog, declared or stored in the directory.
    fn catalog(&self, schema: Option<Schema>, directory: Option<&Path>) -> Result<Catalog, OpenError> {
        match (schema, directory) {
            (Some(schema), None) => Ok(Catalog::new(schema)?),
            (Some(schema), Some(path)) => {
                // A manifest that cannot be read is reported when the directory is opened.
                let manifest = Manifest::read(&*self.files, path).ok().flatten();
                let stored = manifest.map_or_else(Definitions::default, |manifest| manifest.schema);
                Ok(Catalog::of_stored(schema, &stored)?)
            }
            (None, Some(path)) => match Manifest::read(&*self.files, path)? {
                Some(manifest) => Ok(Catalog::stored(&manifest.schema)),
                None => Err(DirectoryError::Missing { path: path.to_owned() }.into()),
            },
            (None, None) => Err(OpenError::Setting(
                "a database in memory has no stored schema; declare one with Database::builder".to_owned(),
            )),
        }
    }
}

/// Sessions and transactions on a worker beyond which it accepts no more from outside. Transactions that wait for a device
/// are among them: there have to be enough to keep the worker busy meanwhile.
const TASKS_IN_FLIGHT: usize = 1 << 14;
