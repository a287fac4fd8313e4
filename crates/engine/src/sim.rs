//! Simulation of the engine on one thread, from a seed: the same workers, messages, locks and transactions, stepped in a
//! pseudo-random order with a virtual clock. The same seed gives the same run, so a failure can be repeated.

mod adapting;
mod deployment;
mod statements;
mod stepper;
mod wire;

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use adapting::Adapting;
use atrapos_channel::Channel;
use atrapos_durability::file::FileSystem;
use atrapos_partition::abort::Abort;
use atrapos_partition::dynamic::{IndexHandle, TableHandle};
use atrapos_partition::routing::{Division, InstanceId, Route, Scheme};
use atrapos_partition::schema::{
    Catalog, Index, IndexRef, PublishedCatalog, Schema, SchemaError, Table, TableId, TableRef,
};
use atrapos_placement::published_scheme::PublishedScheme;
use atrapos_placement::repartition::{RepartitionReport, SchemeChange, carry_out};
use atrapos_runtime::{Handle, Ticks, WorkerId};
use atrapos_storage::{HeapMemory, Memory};
use atrapos_transaction::central::{ActiveTransaction, CentralState, SystemState};
use atrapos_transaction::distributed;
use atrapos_transaction::lending;
use atrapos_transaction::lookups::NEAR_BYTES;
use atrapos_transaction::procedure::{AnyProcedure, Procedure, result_of, run_here};
use atrapos_transaction::session::Session;
use atrapos_transaction::shard::{EngineWorker, Shard};
use atrapos_transaction::stats::{EngineStats, Statistics};
use atrapos_transaction::waiting::{self, Token};
use atrapos_transaction::wal::WalLayout;
pub use deployment::Deployment;
use stepper::{SimulatedWal, Stepper};

use crate::assembly::Parts;
use crate::builder::OpenError;
use crate::durable::{DirectoryContents, Durable, Policy};
use crate::recovery::RecoveryProgress;

/// A database whose workers all run on the caller's thread, one pseudo-randomly chosen step at a time.
pub struct Simulation {
    stepper: Rc<RefCell<Stepper>>,
    workers: Vec<Rc<EngineWorker>>,
    handle: Handle<Shard>,
    catalogs: Arc<PublishedCatalog>,
    scheme: Arc<PublishedScheme>,
    stats: Vec<Arc<EngineStats>>,
    /// The system state that workers share, if they share any.
    system_state: Option<Arc<SystemState>>,
    /// The state of the directory, if there is one.
    durable: Option<Arc<Durable>>,
    adapting: Option<Adapting>,
    /// True for an instance of a deployment.
    is_instance: bool,
    /// Held by a task that changes the scheme, or needs it unchanged.
    scheme_token: Token,
    /// The number of steps that may be made while statements wait.
    statement_steps: Rc<Cell<u64>>,
}

/// The interval in ticks at which a change of the scheme tries again to take the token.
const LOOK_EVERY: u64 = 1_000;

/// The outcome of a transaction in a simulation, once it has ended.
#[derive(Debug)]
pub struct Outcome<R>(Rc<RefCell<Option<R>>>);

impl<R> Outcome<R> {
    /// Takes the outcome, if the transaction has ended and it was not taken before.
    #[must_use]
    pub fn take(&self) -> Option<R> {
        self.0.borrow_mut().take()
    }
}

/// Steps after which a recovery is stuck.
const RECOVERY_STEPS: u64 = 1_000_000;

impl Simulation {
    /// Creates an empty database on `workers` simulated workers.
    ///
    /// # Errors
    /// Fails if the schema contradicts itself, or there is no worker.
    pub fn new(schema: Schema, workers: usize, seed: u64) -> Result<Simulation, SchemaError> {
        let own = CentralState::default();
        match Simulation::start_with(schema, workers, seed, None, None, own, Arc::new(HeapMemory)) {
            Ok(simulation) => Ok(simulation),
            Err(OpenError::Schema(error)) => Err(error),
            Err(error) => Err(SchemaError::new(error.to_string())),
        }
    }

    /// Creates a database like [`new`](Simulation::new), with trees that allocate from `memory`, which may refuse.
    ///
    /// # Errors
    /// The errors of [`new`](Simulation::new).
    pub fn with_memory(
        schema: Schema,
        workers: usize,
        seed: u64,
        memory: Arc<dyn Memory>,
    ) -> Result<Simulation, SchemaError> {
        let own = CentralState::default();
        let started = Simulation::start_with(schema, workers, seed, None, None, own, memory);
        started.map_err(|error| SchemaError::new(error.to_string()))
    }

    /// Creates an empty database in the new directory `path` of `files`, on `workers` simulated workers that share `streams`
    /// WAL streams. Durability is synchronous. A [`Builder`](crate::Builder) opens the directory after a simulated crash.
    ///
    /// # Errors
    /// The errors of [`new`](Simulation::new); files that cannot be written.
    pub fn durable(
        schema: Schema,
        workers: usize,
        streams: usize,
        seed: u64,
        files: Arc<dyn FileSystem>,
        path: &Path,
    ) -> Result<Simulation, OpenError> {
        Simulation::sharing(schema, workers, seed, CentralState::default(), Some((streams, files, path)))
    }

    /// Creates an empty database whose workers share parts of the system state: in memory, or as
    /// [`durable`](Simulation::durable) does in a directory with so many streams. There are as many islands as streams, two
    /// in memory.
    ///
    /// # Errors
    /// The errors of [`durable`](Simulation::durable).
    pub fn sharing(
        schema: Schema,
        workers: usize,
        seed: u64,
        central_state: CentralState,
        directory: Option<(usize, Arc<dyn FileSystem>, &Path)>,
    ) -> Result<Simulation, OpenError> {
        Simulation::start_with(schema, workers, seed, directory, None, central_state, Arc::new(HeapMemory))
    }

    /// Adds the link with this number to another instance.
    fn link(&self, instance: InstanceId, number: usize, channel: Box<dyn Channel>) {
        distributed::add_link(&self.workers[number % self.workers.len()], instance, number, channel);
    }

    /// Closes the links to another instance.
    fn unlink(&self, instance: InstanceId) {
        self.workers.iter().for_each(|worker| distributed::remove_links(worker, instance));
    }

    fn start_with(
        schema: Schema,
        workers: usize,
        seed: u64,
        directory: Option<(usize, Arc<dyn FileSystem>, &Path)>,
        observing: Option<(u32, usize)>,
        central_state: CentralState,
        memory: Arc<dyn Memory>,
    ) -> Result<Simulation, OpenError> {
        let catalog = Arc::new(Catalog::new(schema)?);
        Simulation::start((catalog, None), workers, seed, directory, observing, central_state, memory)
    }

    fn start(
        (catalog, division): (Arc<Catalog>, Option<Division>),
        workers: usize,
        seed: u64,
        directory: Option<(usize, Arc<dyn FileSystem>, &Path)>,
        observing: Option<(u32, usize)>,
        central_state: CentralState,
        memory: Arc<dyn Memory>,
    ) -> Result<Simulation, OpenError> {
        check_workers(workers)?;
        let is_instance = division.is_some();
        let mut parts = Parts::new(catalog, (workers, 0), division)?;
        let islands = directory.as_ref().map_or(2, |(streams, ..)| *streams).clamp(1, workers);
        let island_of: Vec<usize> = (0..workers).map(|worker| worker % islands).collect();
        parts.system_state = SystemState::new(central_state, island_of.clone());
        let opened = match directory {
            None => None,
            Some((_, files, path)) => {
                let (definitions, instance) = (parts.definitions(), parts.instance_record(0));
                let layout = WalLayout::new(central_state.log_buffer, island_of);
                let (streams, policy) = (layout.streams(), Policy::default());
                let opened = DirectoryContents::new(files, path, &definitions, streams, policy, instance)?;
                parts.incarnation = opened.openings();
                parts.wal = Some(opened.wal(layout));
                Some(opened)
            }
        };
        parts.observing = observing;
        parts.near_bytes = near_bytes(seed);
        let pump = parts.on_pump(seed, &memory).map_err(SchemaError::new)?;
        let Parts { catalogs, scheme, stats, system_state, wal, .. } = parts;
        let (handle, workers) = (pump.handle(), pump.workers().to_vec());
        let stepper = Rc::new(RefCell::new(Stepper { pump, wal: None }));
        let durable = match opened.zip(wal) {
            None => None,
            Some((opened, wal)) => {
                let own = Rc::clone(&stepper);
                let left = Cell::new(RECOVERY_STEPS);
                let step: waiting::Stepper = Rc::new(move || {
                    own.borrow_mut().step();
                    left.set(left.get() - 1);
                    left.get() > 0
                });
                let (durable, writers) = waiting::stepping(step, || {
                    let progress = RecoveryProgress::default();
                    opened
                        .recover(&wal, handle.clone(), &scheme, &progress, |_| SimulatedWal::stream_options())
                })?;
                stepper.borrow_mut().wal = Some(SimulatedWal::new(&wal, writers, seed));
                Some(durable)
            }
        };
        Ok(Simulation {
            stepper,
            workers,
            handle,
            catalogs,
            scheme: Arc::new(PublishedScheme::new(scheme)),
            stats,
            system_state,
            durable,
            adapting: None,
            is_instance,
            scheme_token: Token::default(),
            statement_steps: Rc::new(Cell::new(u64::MAX)),
        })
    }

    /// Returns the handle of table `T`.
    ///
    /// # Errors
    /// Fails if the database has no such table.
    pub fn table<T: Table>(&self) -> Result<TableRef<T>, SchemaError> {
        self.catalogs.visible().table()
    }

    /// Returns the handle of index `I`.
    ///
    /// # Errors
    /// Fails if the database has no such index.
    pub fn index<I: Index>(&self) -> Result<IndexRef<I>, SchemaError> {
        self.catalogs.visible().index()
    }

    /// Returns the handle of the table with this name.
    ///
    /// # Errors
    /// Fails if the database has no such table.
    pub fn table_named(&self, name: &str) -> Result<TableHandle, SchemaError> {
        self.catalogs.visible().table_named(name)
    }

    /// Returns the handle of the index with this name.
    ///
    /// # Errors
    /// Fails if the database has no such index.
    pub fn index_named(&self, name: &str) -> Result<IndexHandle, SchemaError> {
        self.catalogs.visible().index_named(name)
    }

    /// Submits a procedure to its home. It runs while the simulation is stepped.
    pub fn submit<R: 'static + Send>(
        &self,
        route: &Route,
        procedure: impl Procedure<R>,
    ) -> Outcome<Result<R, Abort>> {
        let home = self.scheme.home(route, self.stats.len());
        let outcome = Outcome(Rc::default());
        let slot = Rc::clone(&outcome.0);
        let worker = Rc::clone(&self.workers[home.index()]);
        let procedure = AnyProcedure::new(procedure);
        self.workers[home.index()].spawn(async move {
            let result = run_here(&worker, procedure.erased()).await;
            slot.replace(Some(result.map(result_of)));
        });
        outcome
    }

    /// Has a table shared from now on, or no longer, as the controller of a database does. Returns false, and does nothing, while a
    /// statement or a change of the scheme is under way.
    pub fn share(&self, table: TableId, shared: bool) -> bool {
        let (Some(_definitions), Some(_scheme)) = (self.catalogs.try_keep(), self.scheme_token.try_take())
        else {
            return false;
        };
        self.workers.iter().for_each(|worker| lending::set_shared(worker, table, shared));
        true
    }

    /// Changes the scheme while the simulation is stepped, when changes begun before have ended and no statement keeps it.
    pub fn repartition(&self, changes: Vec<SchemeChange>) -> Outcome<Result<RepartitionReport, Abort>> {
        let outcome = Outcome(Rc::default());
        let (slot, published) = (Rc::clone(&outcome.0), Arc::clone(&self.scheme));
        let (worker, token) = (Rc::clone(&self.workers[0]), self.scheme_token.clone());
        self.workers[0].spawn(async move {
            let _scheme = loop {
                match token.try_take() {
                    Some(taken) => break taken,
                    None => worker.sleep_until(Ticks(worker.now().0 + LOOK_EVERY)).await,
                }
            };
            let result = carry_out(&worker, changes, &published).await;
            slot.replace(Some(result));
        });
        outcome
    }

    /// Returns the current partitioning and placement, as far as all workers have adopted it.
    #[must_use]
    pub fn scheme(&self) -> Arc<Scheme> {
        self.scheme.scheme()
    }

    /// Returns the number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.stats.len()
    }

    /// Starts a session on a worker.
    pub fn spawn_session<R: 'static>(
        &self,
        worker: WorkerId,
        body: impl AsyncFnOnce(Session) -> R + 'static,
    ) -> Outcome<R> {
        let outcome = Outcome(Rc::default());
        let slot = Rc::clone(&outcome.0);
        let session = Session::new(Rc::clone(&self.workers[worker.index()]));
        self.workers[worker.index()].spawn(async move {
            let result = body(session).await;
            slot.replace(Some(result));
        });
        outcome
    }

    /// Steps until every transaction and session has ended and nothing is left to do, at most about `steps_max` steps. When
    /// all tasks wait for a later time, the clock advances to it. Returns true if all tasks have ended.
    pub fn run(&mut self, steps_max: u64) -> bool {
        self.stepper.borrow_mut().run(steps_max)
    }

    /// Makes about `steps` steps.
    pub fn run_for(&mut self, steps: u64) {
        self.stepper.borrow_mut().run_for(steps);
    }

    /// Returns the number of steps made so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.stepper.borrow().pump.steps()
    }

    /// Returns the transactions under way, as [`Database::active_transactions`](crate::Database::active_transactions) does.
    #[must_use]
    pub fn active_transactions(&self) -> Option<Vec<ActiveTransaction>> {
        self.system_state.as_ref()?.active()
    }

    /// Returns a hash of the run so far: the same for the same seed.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.stepper.borrow().pump.trace_hash()
    }

    /// Returns the statistics so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.stats.iter().fold(Statistics::default(), |sum, stats| sum.plus(&stats.read()))
    }

    /// Makes `steps` steps of workers and none of the flushers, as with a device that stalls.
    pub fn run_workers_for(&mut self, steps: u64) {
        let pump = &mut self.stepper.borrow_mut().pump;
        for _ in 0..steps {
            pump.step();
        }
    }

    /// Returns the number of sessions, transactions and changes of the scheme that have not ended.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.workers.iter().map(|worker| worker.tasks_len()).sum()
    }

    /// Returns the handle of the workers, for jobs of the engine itself.
    #[cfg(test)]
    pub(crate) fn handle(&self) -> Handle<Shard> {
        self.handle.clone()
    }

    /// Unfinished tasks beyond which a worker takes no more requests from outside.
    #[cfg(test)]
    pub(crate) fn tasks_in_flight(&self) -> usize {
        self.workers[0].limits().tasks_in_flight
    }

    /// Checks the structure of every tree and, if all tasks have ended, that no tree has memory reserved for undo.
    ///
    /// # Errors
    /// The first violation, in words.
    pub fn check_trees(&self) -> Result<(), String> {
        for worker in &self.workers {
            for (place, partition) in worker.shard().tables.borrow().owned() {
                let table = worker.shard().tables.borrow().catalog.tables[place.table.at()].name;
                partition.tree().check().map_err(|error| format!("{table}: {error}"))?;
                let pending = partition.tree().pending_changes();
                if pending > 0 && self.tasks() == 0 {
                    return Err(format!("{table}: something is set aside for {pending} changes"));
                }
            }
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn worker(&self, worker: WorkerId) -> &Rc<EngineWorker> {
        &self.workers[worker.index()]
    }

    /// Returns the numbers of locks held and of lock requests waiting, over all workers.
    #[must_use]
    pub fn locks(&self) -> (usize, usize) {
        (0..self.stats.len()).fold((0, 0), |sum, worker| {
            let tables = self.workers[worker].shard().tables.borrow();
            tables.owned().fold(sum, |(held, waiting), (_, partition)| {
                (held + partition.locks.held_len(), waiting + partition.locks.waiting_len())
            })
        })
    }
}

/// Returns the bytes of data that are near: none for every second seed, so that a few rows try what has to be large otherwise.
fn near_bytes(seed: u64) -> u64 {
    if seed.is_multiple_of(2) { NEAR_BYTES } else { 0 }
}

fn check_workers(workers: usize) -> Result<(), SchemaError> {
    if workers > 0 {
        return Ok(());
    }
    Err(SchemaError::new("zero workers cannot own data; simulate at least 1".to_owned()))
}
