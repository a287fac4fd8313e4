//! The engine on one thread, from a seed: the same workers, messages, locks and transactions, stepped in a pseudo-random
//! order with a virtual clock. The same seed gives the same run, so a failure can be repeated.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use atrapos_runtime::rng::Seed;
use atrapos_runtime::{Clock, Pump, Ticks, WorkerId};
use atrapos_storage::HeapMemory;

use crate::abort::Abort;
use crate::database::new_shard;
use crate::procedure::{Procedure, Session, run_here};
use crate::routing::{Route, Scheme};
use crate::schema::{Catalog, Index, IndexRef, Schema, SchemaError, Table, TableRef};
use crate::shard::Shard;
use crate::stats::{EngineStats, Statistics};

/// A database whose workers all run on the caller's thread, one pseudo-randomly chosen step at a time.
pub struct Simulation {
    pump: Pump<Shard>,
    catalog: Arc<Catalog>,
    scheme: Arc<Scheme>,
    stats: Vec<Arc<EngineStats>>,
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
        if workers == 0 {
            return Err(SchemaError("zero workers cannot own data; simulate at least 1".to_owned()));
        }
        let catalog = Arc::new(Catalog::new(schema)?);
        let scheme = Arc::new(Scheme::naive(&catalog, workers)?);
        let stats: Vec<Arc<EngineStats>> = (0..workers).map(|_| Arc::default()).collect();
        let clock = Clock::virtual_from(Ticks(0));
        let pump = Pump::new(workers, Seed(seed), |worker| {
            let stats = Arc::clone(&stats[worker.index()]);
            new_shard(worker, Arc::clone(&catalog), Arc::clone(&scheme), Arc::new(HeapMemory), stats, &clock)
        })
        .map_err(|error| SchemaError(error.to_string()))?;
        Ok(Simulation { pump, catalog, scheme, stats })
    }

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

    /// Hands a procedure to its home. It runs while the simulation is stepped.
    pub fn submit<R: 'static + Send>(
        &self,
        route: &Route,
        procedure: impl Procedure<R>,
    ) -> Outcome<Result<R, Abort>> {
        let home = self.scheme.home(route, self.stats.len());
        let outcome = Outcome(Rc::default());
        let slot = Rc::clone(&outcome.0);
        let worker = Rc::clone(self.pump.worker(home));
        self.pump.worker(home).spawn(async move {
            let result = run_here(&worker, &procedure).await;
            slot.replace(Some(result));
        });
        outcome
    }

    /// Starts a session on a worker.
    pub fn spawn_session<R: 'static>(
        &self,
        worker: WorkerId,
        body: impl AsyncFnOnce(Session) -> R + 'static,
    ) -> Outcome<R> {
        let outcome = Outcome(Rc::default());
        let slot = Rc::clone(&outcome.0);
        let session = Session::new(Rc::clone(self.pump.worker(worker)));
        self.pump.worker(worker).spawn(async move {
            let result = body(session).await;
            slot.replace(Some(result));
        });
        outcome
    }

    /// Steps until every transaction and session has ended and nothing is left to do, at most about `steps_max` steps. When
    /// everybody waits for a time to come, it comes. Returns whether everything came to rest.
    pub fn run(&mut self, steps_max: u64) -> bool {
        let workers = self.pump.workers().to_vec();
        let ended = || workers.iter().all(|worker| worker.tasks_len() == 0);
        self.pump.run_until(ended, steps_max) && self.pump.run_until_idle(steps_max)
    }

    /// A number that stands for everything that happened so far: the same for the same seed.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.pump.trace_hash()
    }

    /// What happened so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.stats.iter().fold(Statistics::default(), |sum, stats| sum.plus(&stats.read()))
    }

    /// Locks held and lock requests waiting, over all workers.
    #[must_use]
    pub fn locks(&self) -> (usize, usize) {
        (0..self.stats.len()).fold((0, 0), |sum, worker| {
            let tables = self.pump.worker(WorkerId(worker as u16)).shard().tables.borrow();
            tables.owned().fold(sum, |(held, waiting), (_, partition)| {
                (held + partition.locks.held_len(), waiting + partition.locks.waiting_len())
            })
        })
    }
}
