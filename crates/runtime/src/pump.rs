//! All workers of a runtime on one thread, stepped in an order that a seed decides, on a clock that stands still between
//! steps. For tests: the same seed gives the same run.
//!
//! Owns: the workers, their virtual clock and the generator. Never: starts a thread, parks, or reads a real clock.
//! No unsafe code.
//!
//! # Invariants
//! - A run is a function of the seed, the shards, and the calls made on the pump: the trace hash shows it.
//! - Each step runs the same code as a worker's thread does; the pump only chooses who steps, with which limits, and
//!   whether what it sent is published in this step or later. Nothing is held back for ever: every worker publishes
//!   again in some later step.

use std::rc::Rc;
use std::time::Duration;

use rand::RngExt;

use crate::clock::{Clock, Ticks};
use crate::handle::Handle;
use crate::incoming::Incoming;
use crate::rng::{Rng, Seed};
use crate::shared::{Phase, Shared, worker_id};
use crate::worker::{Limits, Parts, Shard, Worker};
use crate::{WorkerId, pool::RuntimeBuilder, pool::StartError};

/// Ring size of a pump: small, so that tests reach full rings and wrap-arounds.
const RING_BYTES: usize = 4 << 10;
const INBOX_SLOTS: usize = 64;

/// Steps any number of workers on one thread from a seed.
///
/// A panic of a task or message handler passes through to whoever steps the pump.
pub struct Pump<S: Shard> {
    workers: Vec<Rc<Worker<S>>>,
    handle: Handle<S>,
    clock: Clock,
    rng: Rng,
    steps: u64,
    trace_hash: u64,
    tasks_dropped: usize,
}

impl<S: Shard> Pump<S> {
    /// Makes `workers` workers whose every choice derives from `seed`; `factory` makes their shards, in order.
    ///
    /// # Errors
    /// [`StartError`] for no worker, or an absurd number.
    pub fn new(workers: usize, seed: Seed, factory: impl FnMut(WorkerId) -> S) -> Result<Self, StartError> {
        Self::with_rings(workers, seed, RING_BYTES, factory)
    }

    /// Makes a pump like [`new`](Self::new), with rings of a given size.
    ///
    /// # Errors
    /// [`StartError`] for no worker, an absurd number, or an impossible size.
    pub fn with_rings(
        workers: usize,
        seed: Seed,
        ring_bytes: usize,
        mut factory: impl FnMut(WorkerId) -> S,
    ) -> Result<Self, StartError> {
        RuntimeBuilder { ring_bytes, ..RuntimeBuilder::new(workers) }.validate()?;
        let clock = Clock::virtual_from(Ticks(1_000_000));
        let (shared, lanes) = Shared::new(workers, INBOX_SLOTS, clock.clone());
        let mut outgoing: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
        let mut make_rings = || {
            let (producers, incoming) = Incoming::new(workers, ring_bytes);
            outgoing.iter_mut().zip(producers).for_each(|(outgoing, producer)| outgoing.push(producer));
            incoming
        };
        let incoming: Vec<_> = (0..workers).map(|_| make_rings()).collect();
        let ends = outgoing.into_iter().zip(incoming).zip(lanes);
        let workers = ends.enumerate().map(|(index, ((outgoing, incoming), lanes))| {
            let id = worker_id(index);
            let shared = std::sync::Arc::clone(&shared);
            let limits = Limits::default();
            Worker::new(Parts { id, shared, outgoing, incoming, lanes, limits, seed }, factory(id))
        });
        Ok(Self {
            workers: workers.collect(),
            handle: Handle::new(shared),
            clock,
            rng: seed.rng(u64::MAX),
            steps: 0,
            trace_hash: 0,
            tasks_dropped: 0,
        })
    }

    /// All workers, by id. Between steps, tests may spawn on them, send from them, or look at their shards; what is sent
    /// so is published with a later step.
    #[must_use]
    pub fn workers(&self) -> &[Rc<Worker<S>>] {
        &self.workers
    }

    /// One worker.
    ///
    /// # Panics
    /// If there is no such worker.
    #[must_use]
    pub fn worker(&self, worker: WorkerId) -> &Rc<Worker<S>> {
        &self.workers[worker.index()]
    }

    /// The way in for "outside" callers. Use `try_submit`: nobody makes room while this thread waits.
    #[must_use]
    pub fn handle(&self) -> Handle<S> {
        self.handle.clone()
    }

    /// The virtual clock; a tick is a nanosecond.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Steps taken.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// A digest of all choices and of how much each step did. Equal seeds and inputs give equal digests.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.trace_hash
    }

    /// Steps one worker, chosen by the seed as are its limits and whether it publishes. Returns who it was.
    pub fn step(&mut self) -> WorkerId {
        let index = self.rng.random_range(0..self.workers.len());
        self.clock.advance(Ticks(self.rng.random_range(1..2_000)));
        // Mostly small batches, so that events interleave; sometimes large ones, as under load.
        let most = if self.rng.random_bool(0.2) { 64 } else { 4 };
        let limits = Limits {
            messages_per_ring: self.rng.random_range(1..=most),
            inbox_per_step: self.rng.random_range(1..=most),
            tasks_per_step: self.rng.random_range(1..=most),
            ..Limits::default()
        };
        let publishing = self.rng.random_bool(0.7);
        self.step_worker(index, limits, publishing);
        worker_id(index)
    }

    fn step_worker(&mut self, index: usize, limits: Limits, publishing: bool) -> bool {
        let worker = &self.workers[index];
        worker.set_limits(limits);
        worker.set_publishing(publishing);
        let stepped = worker.step(self.clock.now());
        self.steps += 1;
        let digest = (index as u64) << 48
            | (u64::from(publishing) << 41)
            | (u64::from(stepped.found) << 40)
            | (stepped.events as u64 & 0xFF_FFFF);
        self.trace_hash = Seed(self.trace_hash).derive(digest).0;
        stepped.found
    }

    /// Steps until `condition` holds, at most `steps_max` times. When nobody has anything to do, the clock jumps to the
    /// next deadline. Returns whether the condition holds: false means that the limit was reached, or that nothing
    /// can happen any more.
    pub fn run_until(&mut self, mut condition: impl FnMut() -> bool, steps_max: u64) -> bool {
        let end = self.steps.saturating_add(steps_max);
        while !condition() {
            if self.steps >= end {
                return false;
            }
            // A round over all workers now and then tells whether anything can happen at all.
            if self.steps.is_multiple_of(64) && self.round_is_idle() && !self.jump_to_deadline() {
                return condition();
            }
            self.step();
        }
        true
    }

    /// Steps until nobody has anything to do at the current virtual time (which moves a little with each step), at most
    /// `steps_max` times. Returns whether that was reached. Sleeping tasks stay asleep.
    pub fn run_until_idle(&mut self, steps_max: u64) -> bool {
        let end = self.steps.saturating_add(steps_max);
        while self.steps < end {
            for _ in 0..self.workers.len() * 8 {
                self.step();
            }
            if self.round_is_idle() {
                return true;
            }
        }
        false
    }

    /// Moves the virtual clock forward without stepping anybody.
    pub fn advance(&mut self, duration: Duration) {
        self.clock.advance(self.clock.ticks(duration));
    }

    /// Steps each worker once with full limits, publishing. Returns whether none of them found anything.
    fn round_is_idle(&mut self) -> bool {
        let mut idle = true;
        for index in 0..self.workers.len() {
            idle &= !self.step_worker(index, Limits::default(), true);
        }
        // The round is idle only if nothing that a later worker published is still to be seen by an earlier one.
        idle && !self.workers.iter().any(Worker::has_arrivals)
    }

    /// Moves the clock to the earliest deadline of any worker. Returns whether there is one.
    fn jump_to_deadline(&mut self) -> bool {
        let deadline = self.workers.iter().map(Worker::next_deadline).min().unwrap_or(Ticks::MAX);
        if deadline == Ticks::MAX {
            return false;
        }
        self.clock.advance(deadline.since(self.clock.now()));
        true
    }

    /// Stops admission and steps until everything in flight is complete, at most `steps_max` times. Returns whether that
    /// was reached. The workers live on, without taking anything from outside, until the pump is dropped.
    pub fn drain(&mut self, steps_max: u64) -> bool {
        let shared = std::sync::Arc::clone(self.workers[0].shared());
        shared.advance(Phase::Draining);
        let mut before = None;
        self.run_until(
            || {
                let activity = shared.activity();
                let quiet = activity.is_none() && before == Some(activity);
                before = Some(activity);
                quiet
            },
            steps_max,
        )
    }

    /// Drops all tasks. Returns how many there were. Also happens when the pump is dropped.
    fn end(&mut self) -> usize {
        self.workers[0].shared().advance(Phase::Stopped);
        for worker in &self.workers {
            self.tasks_dropped += worker.end();
        }
        self.tasks_dropped
    }
}

impl<S: Shard> Drop for Pump<S> {
    fn drop(&mut self) {
        self.end();
    }
}
