//! The engine on one thread, from a seed: the same workers, messages, locks and transactions, stepped in a pseudo-random
//! order with a virtual clock. The same seed gives the same run, so a failure can be repeated.

mod statements;
mod stepper;

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use atrapos_adapt::{Controller, Platform};
use atrapos_durability::file::FileSystem;
use atrapos_runtime::{Handle, Ticks, WorkerId};
use atrapos_storage::{HeapMemory, Memory};
use atrapos_topology::Machine;

use crate::abort::Abort;
use crate::adaptation::{Adaptation, AdaptationEvent, Now, Observed, decide, without};
use crate::assembly::Parts;
use crate::builder::OpenError;
use crate::durable::{Durable, Policy};
use crate::dynamic::{IndexHandle, TableHandle};
use crate::procedure::{Procedure, Session, run_here};
use crate::published_scheme::PublishedScheme;
use crate::recovery::RecoveryReport;
use crate::repartition::{RepartitionReport, SchemeChange, carry_out};
use crate::routing::{Route, Scheme};
use crate::schema::{Catalog, Index, IndexRef, PublishedCatalog, Schema, SchemaError, Table, TableRef};
use crate::shard::{EngineWorker, Shard};
use crate::stats::{EngineStats, Statistics};

use crate::waiting::Token;
use stepper::{SimulatedWal, Stepper};

/// A database whose workers all run on the caller's thread, one pseudo-randomly chosen step at a time.
pub struct Simulation {
    stepper: Rc<RefCell<Stepper>>,
    workers: Vec<Rc<EngineWorker>>,
    handle: Handle<Shard>,
    catalogs: Arc<PublishedCatalog>,
    scheme: Arc<PublishedScheme>,
    stats: Vec<Arc<EngineStats>>,
    /// With a directory: what keeps it.
    durable: Option<Arc<Durable>>,
    adapting: Option<Adapting>,
    /// Whose turn it is to change the scheme, or to keep it.
    scheme_token: Token,
    /// How many steps may be made while statements wait.
    statement_steps: Rc<Cell<u64>>,
}

/// After how many ticks a change of the scheme looks again whether it is its turn.
const LOOK_EVERY: u64 = 1_000;

/// What makes a simulated database adapt itself.
struct Adapting {
    controller: Controller,
    platform: Platform,
    available: Vec<bool>,
    /// How much time has passed, as far as the controller knows.
    elapsed: Duration,
    committed: u64,
}

/// The outcome of a transaction in a simulation, once it has ended.
#[derive(Debug)]
pub struct Outcome<R>(Rc<RefCell<Option<R>>>);

impl<R> Outcome<R> {
    /// The outcome, if the transaction has ended and nobody has taken it.
    #[must_use]
    pub fn take(&self) -> Option<R> {
        self.0.borrow_mut().take()
    }
}

impl Simulation {
    /// A new, empty database on `workers` simulated workers.
    ///
    /// # Errors
    /// When the schema contradicts itself, or there is no worker.
    pub fn new(schema: Schema, workers: usize, seed: u64) -> Result<Simulation, SchemaError> {
        match Simulation::start(schema, workers, seed, None, None, Arc::new(HeapMemory)) {
            Ok(simulation) => Ok(simulation),
            Err(OpenError::Schema(error)) => Err(error),
            Err(error) => Err(SchemaError(error.to_string())),
        }
    }

    /// As [`new`](Simulation::new), with trees that take their memory from `memory`: it may refuse.
    ///
    /// # Errors
    /// As for [`new`](Simulation::new).
    pub fn with_memory(
        schema: Schema,
        workers: usize,
        seed: u64,
        memory: Arc<dyn Memory>,
    ) -> Result<Simulation, SchemaError> {
        let started = Simulation::start(schema, workers, seed, None, None, memory);
        started.map_err(|error| SchemaError(error.to_string()))
    }

    /// A new, empty database in the new directory `path` of `files`, on `workers` simulated workers that share `streams`
    /// WAL streams. Durability is synchronous. What the directory holds after a crash is seen by opening it with a
    /// [`Builder`](crate::Builder).
    ///
    /// # Errors
    /// As for [`new`](Simulation::new); when the files cannot be written.
    pub fn durable(
        schema: Schema,
        workers: usize,
        streams: usize,
        seed: u64,
        files: Arc<dyn FileSystem>,
        path: &Path,
    ) -> Result<Simulation, OpenError> {
        Simulation::start(schema, workers, seed, Some((streams, files, path)), None, Arc::new(HeapMemory))
    }

    /// A new, empty database on `workers` simulated workers of a machine that is only described, which observes itself: every
    /// event, with a cost of one tick each. It adapts itself when told to ([`adapt`](Simulation::adapt)).
    ///
    /// # Errors
    /// As for [`new`](Simulation::new); settings that make no sense.
    pub fn adaptive(
        schema: Schema,
        machine: &Machine,
        workers: usize,
        seed: u64,
        adaptation: &Adaptation,
    ) -> Result<Simulation, OpenError> {
        adaptation.check().map_err(OpenError::Setting)?;
        let setting = |error: atrapos_adapt::AdaptError| OpenError::Setting(error.to_string());
        let adapting = Adapting {
            controller: Controller::new(adaptation.controller).map_err(setting)?,
            platform: Platform::for_workers(machine, workers).map_err(setting)?,
            available: vec![true; workers],
            elapsed: Duration::ZERO,
            committed: 0,
        };
        let observing = (adaptation.sample_every, adaptation.sub_partitions);
        let mut simulation =
            Simulation::start(schema, workers, seed, None, Some(observing), Arc::new(HeapMemory))?;
        simulation.adapting = Some(adapting);
        Ok(simulation)
    }

    /// Lets the controller look at what was observed since the last time, as if it had taken `interval`, and carries out what
    /// it decides while sessions go on, in about `steps_max` steps at most. Nothing for a simulation that is not
    /// [adaptive](Simulation::adaptive).
    ///
    /// # Panics
    /// When a change does not come to its end within so many steps.
    pub fn adapt(&mut self, interval: Duration, steps_max: u64) -> Option<AdaptationEvent> {
        let workers = self.workers.iter().map(|worker| worker.shard().monitor.collect(worker)).collect();
        let committed = self.statistics().committed;
        let adapting = self.adapting.as_mut()?;
        adapting.elapsed += interval;
        let before = std::mem::replace(&mut adapting.committed, committed);
        let observed = Observed { workers, elapsed: interval, committed: committed - before };
        let now = Now {
            at_ns: adapting.elapsed.as_nanos() as u64,
            available: adapting.available.clone(),
            platform: without(adapting.platform.clone(), &adapting.available),
        };
        let (mut event, changes) =
            decide(&mut adapting.controller, &observed, now, &self.scheme.scheme(), &self.catalogs.working());
        if let Some(changes) = changes {
            let changed = self.repartition(changes);
            let end = self.steps() + steps_max;
            let outcome = loop {
                self.run_for(1);
                if let Some(outcome) = changed.take() {
                    break outcome;
                }
                assert!(self.steps() < end, "a change of the scheme does not come to its end");
            };
            match outcome {
                Ok(report) => event.report = Some(report),
                Err(abort) => event.failure = Some(abort.to_string()),
            }
        }
        Some(event)
    }

    /// How long the controller would wait before the next [`adapt`](Simulation::adapt).
    #[must_use]
    pub fn adaptation_interval(&self) -> Option<Duration> {
        self.adapting.as_ref().map(|adapting| adapting.controller.interval())
    }

    /// Says whether a worker may own data, from the next [`adapt`](Simulation::adapt) on.
    pub fn set_available(&mut self, worker: WorkerId, available: bool) {
        if let Some(adapting) = &mut self.adapting {
            adapting.available[worker.index()] = available;
        }
    }

    fn start(
        schema: Schema,
        workers: usize,
        seed: u64,
        directory: Option<(usize, Arc<dyn FileSystem>, &Path)>,
        observing: Option<(u32, usize)>,
        memory: Arc<dyn Memory>,
    ) -> Result<Simulation, OpenError> {
        if workers == 0 {
            return Err(SchemaError("zero workers cannot own data; simulate at least 1".to_owned()).into());
        }
        let mut parts = Parts::new(Catalog::new(schema)?, workers)?;
        let (wal, directory) = match directory {
            None => (None, None),
            Some((streams, files, path)) => {
                let definitions = parts.definitions();
                let (wal, directory, manifest) =
                    SimulatedWal::create(&definitions, workers, streams, seed, &files, path)?;
                (Some(wal), Some((files, directory, manifest)))
            }
        };
        parts.wal = wal.as_ref().map(|wal| Arc::clone(&wal.wal));
        parts.observing = observing;
        let pump = parts.on_pump(seed, &memory).map_err(SchemaError)?;
        let Parts { catalogs, scheme, stats, wal: shared, .. } = parts;
        let (handle, workers) = (pump.handle(), pump.workers().to_vec());
        let durable = directory.zip(shared).map(|((files, directory, manifest), wal)| {
            let (policy, report) = (Policy::default(), RecoveryReport::default());
            Arc::new(Durable::new(files, directory, manifest, wal, handle.clone(), policy, report))
        });
        Ok(Simulation {
            stepper: Rc::new(RefCell::new(Stepper { pump, wal })),
            workers,
            handle,
            catalogs,
            scheme: Arc::new(PublishedScheme::new(scheme)),
            stats,
            durable,
            adapting: None,
            scheme_token: Token::default(),
            statement_steps: Rc::new(Cell::new(u64::MAX)),
        })
    }

    /// The handle of table `T`.
    ///
    /// # Errors
    /// When the database has no such table.
    pub fn table<T: Table>(&self) -> Result<TableRef<T>, SchemaError> {
        self.catalogs.visible().table()
    }

    /// The handle of index `I`.
    ///
    /// # Errors
    /// When the database has no such index.
    pub fn index<I: Index>(&self) -> Result<IndexRef<I>, SchemaError> {
        self.catalogs.visible().index()
    }

    /// The handle of the table with this name.
    ///
    /// # Errors
    /// When the database has no such table.
    pub fn table_named(&self, name: &str) -> Result<TableHandle, SchemaError> {
        self.catalogs.visible().table_named(name)
    }

    /// The handle of the index with this name.
    ///
    /// # Errors
    /// When the database has no such index.
    pub fn index_named(&self, name: &str) -> Result<IndexHandle, SchemaError> {
        self.catalogs.visible().index_named(name)
    }

    /// Hands a procedure to its home. It runs while the simulation is stepped.
    pub fn submit<R: 'static + Send>(
        &self,
        route: &Route,
        procedure: impl Procedure<R>,
    ) -> Outcome<Result<R, Abort>> {
        let home = self.scheme.home(route, self.stats.len());
        let outcome = Outcome(Rc::default());
        let slot = Rc::clone(&outcome.0);
        let worker = Rc::clone(&self.workers[home.index()]);
        self.workers[home.index()].spawn(async move {
            let result = run_here(&worker, &procedure).await;
            slot.replace(Some(result));
        });
        outcome
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

    /// Today's partitioning and placement, as far as all workers have been told of it.
    #[must_use]
    pub fn scheme(&self) -> Arc<Scheme> {
        self.scheme.scheme()
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
    /// everybody waits for a time to come, it comes. Returns whether everything came to rest.
    pub fn run(&mut self, steps_max: u64) -> bool {
        self.stepper.borrow_mut().run(steps_max)
    }

    /// Makes about `steps` steps, whether or not everything comes to rest.
    pub fn run_for(&mut self, steps: u64) {
        self.stepper.borrow_mut().run_for(steps);
    }

    /// Steps made so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.stepper.borrow().pump.steps()
    }

    /// A number that stands for everything that happened so far: the same for the same seed.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.stepper.borrow().pump.trace_hash()
    }

    /// What happened so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.stats.iter().fold(Statistics::default(), |sum, stats| sum.plus(&stats.read()))
    }

    /// Makes `steps` steps of workers while the flushers stand still, as behind a device that takes very long.
    pub fn run_workers_for(&mut self, steps: u64) {
        let pump = &mut self.stepper.borrow_mut().pump;
        for _ in 0..steps {
            pump.step();
        }
    }

    /// Sessions, transactions and changes of the scheme that have not ended.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.workers.iter().map(|worker| worker.tasks_len()).sum()
    }

    /// The way in for jobs of the engine itself.
    #[cfg(test)]
    pub(crate) fn handle(&self) -> Handle<Shard> {
        self.handle.clone()
    }

    /// Unfinished tasks beyond which a worker takes no more requests from outside.
    #[cfg(test)]
    pub(crate) fn tasks_in_flight(&self) -> usize {
        self.workers[0].limits().tasks_in_flight
    }

    /// Checks the structure of every tree and, once everything has come to rest, that no tree has anything set aside for
    /// changes that may be undone.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check_trees(&self) -> Result<(), String> {
        for worker in &self.workers {
            for (place, partition) in worker.shard().tables.borrow().owned() {
                let table = worker.shard().tables.borrow().catalog.tables[place.table.at()].name;
                partition.tree.check().map_err(|error| format!("{table}: {error}"))?;
                let pending = partition.tree.pending_changes();
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

    /// Locks held and lock requests waiting, over all workers.
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
