//! A simulated deployment: several instances in one thread, with links whose messages arrive after delays that follow from a
//! seed.
//!
//! Owns: the choice of the instance that goes on, and which links there are. Never: makes a step itself ([`Simulation`] does).

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atrapos_durability::file::{FileSystem, ModelFiles};
use atrapos_partition::abort::Abort;
use atrapos_partition::routing::{Division, InstanceId, Route};
use atrapos_partition::schema::{Catalog, Index, IndexRef, Schema, SchemaError, Table, TableRef};
use atrapos_placement::adaptation::{Adaptation, AdaptationEvent};
use atrapos_runtime::WorkerId;
use atrapos_runtime::rng::Seed;
use atrapos_storage::HeapMemory;
use atrapos_topology::Machine;
use atrapos_transaction::central::CentralState;
use atrapos_transaction::distributed;
use atrapos_transaction::distributed::steps;
#[cfg(debug_assertions)]
use atrapos_transaction::distributed::steps::CommitStep;
use atrapos_transaction::procedure::Procedure;
use atrapos_transaction::session::Session;
use atrapos_transaction::stats::Statistics;

use super::adapting::Adapting;
use super::wire::{Wire, WireEnd, lock};
use super::{Outcome, Simulation};
use crate::builder::OpenError;
use crate::checkpoint::{CheckpointFailure, CheckpointReport};
use crate::instance::Unresolved;

/// Simulated instances of one deployment. They share a catalog, so a handle of a table is valid in all of them.
pub struct Deployment {
    catalog: Arc<Catalog>,
    /// The instances; none where one has crashed.
    instances: Vec<Option<Simulation>>,
    division: Division,
    /// The files of each instance, if they have directories.
    files: Option<Vec<ModelFiles>>,
    /// The sampling period in events and the number of sub-partitions of a partition, if they adapt.
    observing: Option<(u32, usize)>,
    wires: Vec<Arc<Mutex<Wire>>>,
    links: Vec<SimulatedLink>,
    /// One in so many messages is disturbed on the links that are made.
    disturbed_one_in: u64,
    /// Ends of links that wait to be added, which happens one by one while steps are made.
    joining: Vec<Joining>,
    turn: Seed,
}

/// The wires of a link between two instances.
struct SimulatedLink {
    between: (InstanceId, InstanceId),
    number: usize,
    wires: [Arc<Mutex<Wire>>; 2],
}

/// An end of a link that is to be added.
struct Joining {
    at: InstanceId,
    to: InstanceId,
    number: usize,
    end: WireEnd,
}

/// The directory of each instance in its files.
const DIRECTORY: &str = "/instance";

impl std::fmt::Debug for Deployment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deployment").field("instances", &self.instances.len()).finish_non_exhaustive()
    }
}

impl Deployment {
    /// Creates empty instances in memory with so many workers each, linked with each other.
    ///
    /// # Errors
    /// The errors of [`Simulation::new`].
    pub fn new(schema: Schema, workers: &[usize], seed: u64) -> Result<Deployment, OpenError> {
        Deployment::divided(schema, &Division::by_workers(InstanceId(0), workers.to_vec()), seed)
    }

    /// Creates empty instances among which the keys are divided as the division says, linked with each other. The instance
    /// that the division is of does not matter.
    ///
    /// # Errors
    /// The errors of [`Simulation::new`], and ranges of keys that do not fit the schema.
    pub fn divided(schema: Schema, division: &Division, seed: u64) -> Result<Deployment, OpenError> {
        Deployment::begin(schema, division, seed, None, None)
    }

    /// Creates instances like [`divided`](Deployment::divided) that adapt on calls of [`adapt`](Deployment::adapt), each on such a
    /// machine.
    ///
    /// # Errors
    /// The errors of [`Simulation::adaptive`] and of [`divided`](Deployment::divided).
    pub fn adaptive(
        schema: Schema,
        division: &Division,
        machine: &Machine,
        seed: u64,
        adaptation: &Adaptation,
    ) -> Result<Deployment, OpenError> {
        let observing = Some((adaptation.sample_every, adaptation.sub_partitions));
        let mut deployment = Deployment::begin(schema, division, seed, None, observing)?;
        for instance in deployment.instances.iter_mut().flatten() {
            instance.adapting = Some(Adapting::new(machine, instance.workers(), adaptation)?);
        }
        Ok(deployment)
    }

    /// Has an instance adapt, as [`Simulation::adapt`] says.
    pub fn adapt(
        &mut self,
        instance: InstanceId,
        interval: Duration,
        steps_max: u64,
    ) -> Option<AdaptationEvent> {
        self.instances[usize::from(instance.0)].as_mut()?.adapt(interval, steps_max)
    }

    /// Creates empty instances like [`new`](Deployment::new), each in a directory of a file system of its own: they can
    /// [crash](Deployment::crash). Durability is synchronous.
    ///
    /// # Errors
    /// The errors of [`Simulation::durable`].
    pub fn durable(schema: Schema, workers: &[usize], seed: u64) -> Result<Deployment, OpenError> {
        let files = workers.iter().map(|_| ModelFiles::new()).collect();
        let division = Division::by_workers(InstanceId(0), workers.to_vec());
        Deployment::begin(schema, &division, seed, Some(files), None)
    }

    fn begin(
        schema: Schema,
        division: &Division,
        seed: u64,
        files: Option<Vec<ModelFiles>>,
        observing: Option<(u32, usize)>,
    ) -> Result<Deployment, OpenError> {
        let workers = &division.workers;
        // A deployment before, on this thread, may have been dropped in the middle.
        steps::go_on();
        let mut deployment = Deployment {
            catalog: Arc::new(Catalog::new(schema)?),
            instances: workers.iter().map(|_| None).collect(),
            division: division.clone(),
            files,
            observing,
            wires: Vec::new(),
            links: Vec::new(),
            disturbed_one_in: 0,
            joining: Vec::new(),
            turn: Seed(seed),
        };
        for instance in 0..workers.len() {
            deployment.start(InstanceId(instance as u16))?;
        }
        while !deployment.joining.is_empty() {
            deployment.turn = deployment.turn.derive(1);
            deployment.join_some();
        }
        Ok(deployment)
    }

    /// Starts an instance, and begins to link it with those that run: link after link, while steps are made.
    ///
    /// # Errors
    /// The errors of [`Simulation::durable`], and of recovery.
    pub fn start(&mut self, instance: InstanceId) -> Result<(), OpenError> {
        let at = usize::from(instance.0);
        let division = Division { instance, ..self.division.clone() };
        let directory = self.files.as_ref().map(|files| {
            let files: Arc<dyn FileSystem> = Arc::new(files[at].clone());
            (1, files, Path::new(DIRECTORY))
        });
        self.turn = self.turn.derive(u64::MAX);
        let started = Simulation::start(
            (Arc::clone(&self.catalog), Some(division)),
            self.division.workers[at],
            self.turn.derive(instance.0.into()).0,
            directory,
            self.observing,
            CentralState::default(),
            Arc::new(HeapMemory),
        );
        self.instances[at] = Some(started?);
        let others =
            (0..self.instances.len()).filter(|other| *other != at && self.instances[*other].is_some());
        for other in others.collect::<Vec<_>>() {
            let other = InstanceId(other as u16);
            // It may not have seen the end of the links before yet.
            self.instance(other).unlink(instance);
            self.connect(instance, other);
        }
        Ok(())
    }

    /// Stops an instance where it is, as a power cut does if it is given the seed of what remains in its files, or as a kill of the
    /// process does. The others see the ends of its links.
    ///
    /// # Panics
    /// If the instances have no directories, or it has crashed.
    pub fn crash(&mut self, instance: InstanceId, power: Option<u64>) {
        let at = usize::from(instance.0);
        let files = self.files.as_mut().expect("an instance that crashes has a directory");
        files[at] = match power {
            Some(seed) => files[at].power_cut(seed),
            None => files[at].kill(),
        };
        drop(self.instances[at].take().expect("an instance that crashes runs"));
        self.lose(|link| link.between.0 == instance || link.between.1 == instance);
        steps::go_on();
    }

    /// Returns true if an instance runs.
    #[must_use]
    pub fn runs(&self, instance: InstanceId) -> bool {
        self.instances[usize::from(instance.0)].is_some()
    }

    /// Ends the links between two instances, which both see, after what is on its way or without it.
    pub fn lose_links(&mut self, one: InstanceId, other: InstanceId) {
        self.lose(|link| link.between == (one.min(other), one.max(other)));
    }

    /// Ends the link with this number between two instances alone; the others remain.
    pub fn lose_link(&mut self, one: InstanceId, other: InstanceId, number: usize) {
        self.lose(|link| link.between == (one.min(other), one.max(other)) && link.number == number);
    }

    fn lose(&mut self, is_lost: impl Fn(&SimulatedLink) -> bool) {
        for wire in self.links.iter().filter(|link| is_lost(link)).flat_map(|link| &link.wires) {
            lock(wire).is_cut = true;
        }
        self.links.retain(|link| !is_lost(link));
    }

    /// Has the links lose, double or reorder about one in so many messages from now on; none if that is zero. Messages have numbers:
    /// whoever receives one out of its place ends the link. One that has lost a message ends some time later in any case.
    pub fn disturb(&mut self, one_in: u64) {
        self.disturbed_one_in = one_in;
        self.wires.iter().for_each(|wire| lock(wire).disturbed_one_in = one_in);
    }

    /// Holds up what one instance sends to another on the link with this number, or has it arrive again. Messages on other links
    /// overtake it.
    pub fn hold(&mut self, from: InstanceId, to: InstanceId, number: usize, is_held: bool) {
        let between = (from.min(to), from.max(to));
        let links = self.links.iter().filter(|link| link.between == between && link.number == number);
        for wire in links.flat_map(|link| &link.wires) {
            let mut wire = lock(wire);
            if wire.to == to {
                wire.is_held = is_held;
            }
        }
    }

    /// Begins to link two instances anew, in the place of the links before: link after link, while steps are made.
    pub fn link_again(&mut self, one: InstanceId, other: InstanceId) {
        self.lose_links(one, other);
        self.cut(one, other);
        self.connect(one, other);
    }

    /// Makes a checkpoint of an instance, while the other instances stand still.
    ///
    /// # Errors
    /// The errors of a checkpoint.
    pub fn checkpoint(&self, instance: InstanceId) -> Result<CheckpointReport, CheckpointFailure> {
        self.instance(instance).checkpoint()
    }

    /// Returns the transactions in doubt and the decisions that are not acknowledged, over all instances that run.
    #[must_use]
    pub fn unresolved(&self) -> Unresolved {
        let mut sum = Unresolved::default();
        for worker in self.running().flat_map(|instance| &instance.workers) {
            let (in_doubt, decided) = distributed::unresolved(worker);
            sum.in_doubt += in_doubt.len();
            sum.unacknowledged += decided.len();
        }
        sum
    }

    fn running(&self) -> impl Iterator<Item = &Simulation> {
        self.instances.iter().flatten()
    }

    /// Begins to link the workers of two instances.
    fn connect(&mut self, one: InstanceId, other: InstanceId) {
        self.joining.retain(|end| ![(one, other), (other, one)].contains(&(end.at, end.to)));
        let links = Division { instance: one, ..self.division.clone() }.links_with(other);
        for number in 0..links {
            let wires = [one, other].map(|to| {
                let turn = self.turn.derive(self.wires.len() as u64).0;
                let wire = Arc::new(Mutex::new(Wire::new(to, turn, self.disturbed_one_in)));
                self.wires.push(Arc::clone(&wire));
                wire
            });
            for (own, (at, to)) in [(one, other), (other, one)].into_iter().enumerate() {
                let (incoming, outgoing) = (Arc::clone(&wires[own]), Arc::clone(&wires[1 - own]));
                self.joining.push(Joining { at, to, number, end: WireEnd { at, incoming, outgoing } });
            }
            self.links.push(SimulatedLink { between: (one.min(other), one.max(other)), number, wires });
        }
    }

    /// Adds some end of the links that wait for it.
    fn join_some(&mut self) {
        let at = (self.turn.0 >> 40) as usize % self.joining.len();
        let Joining { at, to, number, end } = self.joining.swap_remove(at);
        if let Some(instance) = &self.instances[usize::from(at.0)] {
            instance.link(to, number, Box::new(end));
        }
    }

    /// Returns an instance.
    ///
    /// # Panics
    /// If it has crashed.
    #[must_use]
    pub fn instance(&self, instance: InstanceId) -> &Simulation {
        self.instances[usize::from(instance.0)].as_ref().expect("an instance that is used runs")
    }

    /// Returns one of the instances that run.
    fn any(&self) -> &Simulation {
        self.running().next().expect("an instance of a deployment runs")
    }

    /// Returns the number of instances.
    #[must_use]
    pub fn instances(&self) -> usize {
        self.instances.len()
    }

    /// Returns the handle of table `T`.
    ///
    /// # Errors
    /// Fails if the instances have no such table.
    pub fn table<T: Table>(&self) -> Result<TableRef<T>, SchemaError> {
        self.any().table()
    }

    /// Returns the handle of index `I`.
    ///
    /// # Errors
    /// Fails if the instances have no such index.
    pub fn index<I: Index>(&self) -> Result<IndexRef<I>, SchemaError> {
        self.any().index()
    }

    /// Submits a procedure to the instance and the home that its route leads to. It runs while the deployment is stepped.
    pub fn submit<R: 'static + Send>(
        &self,
        route: &Route,
        procedure: impl Procedure<R>,
    ) -> Outcome<Result<R, Abort>> {
        let any = self.instances.iter().position(Option::is_some).unwrap_or_default();
        let instance = self.any().scheme().instance_of(route).unwrap_or(InstanceId(any as u16));
        self.instance(instance).submit(route, procedure)
    }

    /// Starts a session on a worker, by its number among those of all instances.
    pub fn spawn_session<R: 'static>(
        &self,
        mut worker: usize,
        body: impl AsyncFnOnce(Session) -> R + 'static,
    ) -> Outcome<R> {
        for (instance, workers) in self.division.workers.iter().enumerate() {
            match worker.checked_sub(*workers) {
                None => {
                    let instance = self.instance(InstanceId(instance as u16));
                    return instance.spawn_session(WorkerId(worker as u16), body);
                }
                Some(rest) => worker = rest,
            }
        }
        panic!("a session is started on a worker of the deployment");
    }

    /// Steps until every transaction and session has ended, all links are made, no message is on its way and nothing is left to do, at
    /// most about `steps_max` steps. Returns true if that was reached.
    pub fn run(&mut self, steps_max: u64) -> bool {
        let end = self.steps() + steps_max;
        while self.steps() < end {
            self.run_for(64);
            if self.tasks() == 0 && self.joining.is_empty() && self.settle() {
                return true;
            }
        }
        false
    }

    /// Steps without new work until no message is on its way. Returns true if no task has begun.
    fn settle(&mut self) -> bool {
        // What was on its way when a link was cut is lost.
        self.links.retain(|link| link.wires.iter().all(|wire| Arc::strong_count(wire) > 2));
        let links = &self.links;
        self.wires
            .retain(|wire| links.iter().any(|link| link.wires.iter().any(|kept| Arc::ptr_eq(kept, wire))));
        for _ in 0..SETTLE_MAX {
            self.run_for(16 * self.instances.len() as u64);
            if self.tasks() > 0 {
                return false;
            }
            if self.wires.iter().all(|wire| lock(wire).messages.is_empty()) {
                // What has arrived last is done.
                return self
                    .running()
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
            if !self.joining.is_empty() {
                self.join_some();
            }
            let instance = (self.turn.0 >> 8) as usize % self.instances.len();
            let some = 1 + (self.turn.0 >> 32) % 24;
            let Some(instance) = &self.instances[instance] else { continue };
            // When all its tasks wait for a later time, the clock of the instance advances to it.
            instance.stepper.borrow_mut().step_for(some);
            if steps::stopped().is_some() {
                return;
            }
        }
    }

    /// Makes about `steps` steps, until an instance gets to a step of two-phase commit for the `nth` time, counted over all of them.
    /// Returns it: it goes no further, and is to [crash](Deployment::crash) next.
    #[cfg(debug_assertions)]
    pub fn run_to(&mut self, step: CommitStep, nth: u32, steps: u64) -> Option<InstanceId> {
        steps::stop_at(step, nth);
        self.run_for(steps);
        let stopped = steps::stopped();
        if stopped.is_none() {
            steps::go_on();
        }
        stopped
    }

    /// Cuts the links between two instances: each sees the end of the other.
    pub fn cut(&self, one: InstanceId, other: InstanceId) {
        self.instance(one).unlink(other);
        self.instance(other).unlink(one);
    }

    /// Returns the number of steps made so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.running().map(Simulation::steps).sum()
    }

    /// Returns the number of sessions and transactions that have not ended.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.running().map(Simulation::tasks).sum()
    }

    /// Returns the statistics so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.running().fold(Statistics::default(), |sum, instance| sum.plus(&instance.statistics()))
    }

    /// Returns the numbers of locks held and of lock requests waiting.
    #[must_use]
    pub fn locks(&self) -> (usize, usize) {
        let sum =
            |(held, waiting): (usize, usize), (more, others): (usize, usize)| (held + more, waiting + others);
        self.running().map(Simulation::locks).fold((0, 0), sum)
    }

    /// Checks the structure of every tree, as [`Simulation::check_trees`] does.
    ///
    /// # Errors
    /// The first violation, in words.
    pub fn check_trees(&self) -> Result<(), String> {
        self.running().try_for_each(Simulation::check_trees)
    }
}

/// Rounds in which a deployment at rest waits for its last messages.
const SETTLE_MAX: usize = 1_000;
