//! A simulated deployment: several instances in one thread, with links whose messages arrive after delays that follow from a
//! seed.
//!
//! Owns: the choice of the instance that goes on, and the links. Never: makes a step itself ([`Simulation`] does).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use atrapos_channel::{Channel, ChannelError, Wake};
use atrapos_partition::abort::Abort;
use atrapos_partition::routing::{Division, InstanceId, Route};
use atrapos_partition::schema::{Catalog, Index, IndexRef, Schema, SchemaError, Table, TableRef};
use atrapos_runtime::WorkerId;
use atrapos_runtime::rng::Seed;
use atrapos_storage::HeapMemory;
use atrapos_transaction::central::CentralState;
use atrapos_transaction::procedure::{Procedure, Session};
use atrapos_transaction::stats::Statistics;

use super::{Outcome, Simulation};
use crate::builder::OpenError;

/// Simulated instances of one deployment. They share a catalog, so a handle of a table is valid in all of them.
pub struct Deployment {
    instances: Vec<Simulation>,
    links: Vec<Arc<Mutex<Wire>>>,
    turn: Seed,
}

impl std::fmt::Debug for Deployment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deployment").field("instances", &self.instances.len()).finish_non_exhaustive()
    }
}

/// The messages on their way in one direction of a link.
#[derive(Default)]
struct Wire {
    messages: VecDeque<Vec<u8>>,
    /// The number of messages that have been flushed.
    flushed: usize,
    is_cut: bool,
    turn: u64,
}

/// One end of a simulated link.
struct WireEnd {
    incoming: Arc<Mutex<Wire>>,
    outgoing: Arc<Mutex<Wire>>,
}

fn lock(wire: &Mutex<Wire>) -> MutexGuard<'_, Wire> {
    wire.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Channel for WireEnd {
    fn on_wake(&mut self, _: Wake) {}

    fn send(&mut self, parts: &[&[u8]]) -> Result<(), ChannelError> {
        lock(&self.outgoing).messages.push_back(parts.concat());
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ChannelError> {
        let mut wire = lock(&self.outgoing);
        wire.flushed = wire.messages.len();
        Ok(())
    }

    fn backlog(&self) -> usize {
        0
    }

    fn receive(&mut self, max: usize, take: &mut dyn FnMut(&[u8])) -> Result<usize, ChannelError> {
        let mut wire = lock(&self.incoming);
        wire.turn = Seed(wire.turn).derive(1).0;
        // Mostly some of what has arrived, sometimes nothing.
        let some = (wire.turn >> 8) as usize % 4;
        let count = wire.flushed.min(max).min(some);
        wire.flushed -= count;
        let taken: Vec<Vec<u8>> = wire.messages.drain(..count).collect();
        let is_cut = wire.is_cut;
        drop(wire);
        taken.iter().for_each(|message| take(message));
        if is_cut { Err(ChannelError::Gone("the link was cut".to_owned())) } else { Ok(count) }
    }

    fn has_arrivals(&mut self) -> bool {
        let wire = lock(&self.incoming);
        wire.flushed > 0 || wire.is_cut
    }

    fn arm(&mut self) {}
}

impl Deployment {
    /// Creates empty instances with so many workers each, linked with each other.
    ///
    /// # Errors
    /// The errors of [`Simulation::new`].
    pub fn new(schema: Schema, workers: &[usize], seed: u64) -> Result<Deployment, OpenError> {
        let catalog = Arc::new(Catalog::new(schema)?);
        let numbers = (0..workers.len()).map(|instance| InstanceId(instance as u16));
        let start = |instance: InstanceId| {
            let division = Division { instance, workers: workers.to_vec() };
            let seed = Seed(seed).derive(instance.0.into()).0;
            let (own, memory) = (workers[usize::from(instance.0)], Arc::new(HeapMemory));
            Simulation::start(
                (Arc::clone(&catalog), Some(division)),
                own,
                seed,
                None,
                None,
                CentralState::default(),
                memory,
            )
        };
        let instances = numbers.clone().map(start).collect::<Result<Vec<_>, _>>()?;
        let mut deployment = Deployment { instances, links: Vec::new(), turn: Seed(seed).derive(u64::MAX) };
        for one in numbers {
            for other in (0..one.0).map(InstanceId) {
                deployment.connect(one, other);
            }
        }
        Ok(deployment)
    }

    /// Links the workers of two instances: each to one of the other, with several links for those of the smaller one.
    fn connect(&mut self, one: InstanceId, other: InstanceId) {
        let workers = |instance: InstanceId| self.instances[usize::from(instance.0)].stats.len();
        let (ones, others) = (workers(one), workers(other));
        let mut ends: [Vec<Box<dyn Channel>>; 2] = [Vec::new(), Vec::new()];
        for _ in 0..ones.max(others) {
            let wires = [(); 2].map(|()| {
                let turn = self.turn.derive(self.links.len() as u64).0;
                let wire = Arc::new(Mutex::new(Wire { turn, ..Wire::default() }));
                self.links.push(Arc::clone(&wire));
                wire
            });
            for (at, ends) in ends.iter_mut().enumerate() {
                let (incoming, outgoing) = (Arc::clone(&wires[at]), Arc::clone(&wires[1 - at]));
                ends.push(Box::new(WireEnd { incoming, outgoing }));
            }
        }
        let [first, second] = ends;
        self.instances[usize::from(one.0)].link(other, first);
        self.instances[usize::from(other.0)].link(one, second);
    }

    /// Returns an instance.
    #[must_use]
    pub fn instance(&self, instance: InstanceId) -> &Simulation {
        &self.instances[usize::from(instance.0)]
    }

    /// Returns the handle of table `T`.
    ///
    /// # Errors
    /// Fails if the instances have no such table.
    pub fn table<T: Table>(&self) -> Result<TableRef<T>, SchemaError> {
        self.instances[0].table()
    }

    /// Returns the handle of index `I`.
    ///
    /// # Errors
    /// Fails if the instances have no such index.
    pub fn index<I: Index>(&self) -> Result<IndexRef<I>, SchemaError> {
        self.instances[0].index()
    }

    /// Submits a procedure to the instance and the home that its route leads to. It runs while the deployment is stepped.
    pub fn submit<R: 'static + Send>(
        &self,
        route: &Route,
        procedure: impl Procedure<R>,
    ) -> Outcome<Result<R, Abort>> {
        let scheme = self.instances[0].scheme();
        let instance = scheme.instance_of(route).unwrap_or_default();
        self.instance(instance).submit(route, procedure)
    }

    /// Starts a session on a worker, by its number among those of all instances.
    pub fn spawn_session<R: 'static>(
        &self,
        mut worker: usize,
        body: impl AsyncFnOnce(Session) -> R + 'static,
    ) -> Outcome<R> {
        for instance in &self.instances {
            match worker.checked_sub(instance.stats.len()) {
                None => return instance.spawn_session(WorkerId(worker as u16), body),
                Some(rest) => worker = rest,
            }
        }
        panic!("a session is started on a worker of the deployment");
    }

    /// Steps until every transaction and session has ended, no message is on its way and nothing is left to do, at most about
    /// `steps_max` steps. Returns true if that was reached.
    pub fn run(&mut self, steps_max: u64) -> bool {
        let end = self.steps() + steps_max;
        while self.steps() < end {
            self.run_for(64);
            if self.tasks() == 0 && self.settle() {
                return true;
            }
        }
        false
    }

    /// Steps without new work until no message is on its way. Returns true if no task has begun.
    fn settle(&mut self) -> bool {
        // What was on its way when a link was cut is lost.
        self.links.retain(|wire| Arc::strong_count(wire) > 1);
        for _ in 0..SETTLE_MAX {
            self.run_for(16 * self.instances.len() as u64);
            if self.tasks() > 0 {
                return false;
            }
            if self.links.iter().all(|wire| lock(wire).messages.is_empty()) {
                // What has arrived last is done.
                return self
                    .instances
                    .iter()
                    .all(|instance| instance.stepper.borrow_mut().pump.run_until_idle(10_000));
            }
        }
        false
    }

    /// Makes about `steps` steps.
    pub fn run_for(&mut self, steps: u64) {
        let end = self.steps() + steps;
        while self.steps() < end {
            self.turn = self.turn.derive(1);
            let instance = (self.turn.0 >> 8) as usize % self.instances.len();
            let some = 1 + (self.turn.0 >> 32) % 24;
            let pump = &mut self.instances[instance].stepper.borrow_mut().pump;
            // When all its tasks wait for a later time, the clock of the instance advances to it.
            pump.run_until(|| false, some);
        }
    }

    /// Cuts the links between two instances: each sees the end of the other.
    pub fn cut(&self, one: InstanceId, other: InstanceId) {
        self.instance(one).unlink(other);
        self.instance(other).unlink(one);
    }

    /// Returns the number of steps made so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.instances.iter().map(Simulation::steps).sum()
    }

    /// Returns the number of sessions and transactions that have not ended.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.instances.iter().map(Simulation::tasks).sum()
    }

    /// Returns the statistics so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.instances.iter().fold(Statistics::default(), |sum, instance| sum.plus(&instance.statistics()))
    }

    /// Returns the numbers of locks held and of lock requests waiting.
    #[must_use]
    pub fn locks(&self) -> (usize, usize) {
        let sum =
            |(held, waiting): (usize, usize), (more, others): (usize, usize)| (held + more, waiting + others);
        self.instances.iter().map(Simulation::locks).fold((0, 0), sum)
    }

    /// Checks the structure of every tree, as [`Simulation::check_trees`] does.
    ///
    /// # Errors
    /// The first violation, in words.
    pub fn check_trees(&self) -> Result<(), String> {
        self.instances.iter().try_for_each(Simulation::check_trees)
    }
}

/// Rounds in which a deployment at rest waits for its last messages.
const SETTLE_MAX: usize = 1_000;
