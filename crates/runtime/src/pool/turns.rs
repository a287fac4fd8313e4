//! The loop of a thread that pumps several workers: each has its turn, and the thread sleeps when none of them has anything to do.
//!
//! Owns: the order and the length of the turns, and the time that counts as busy or idle for each worker. Never: knows which
//! workers share a thread (`division.rs`), or does anything that one of them waits for.
//!
//! # Invariants
//! - Between two turns of a worker every other worker of its thread has one, busy or not: what a worker waits for comes about, however
//!   much another one has to do. Nothing blocks inside a step, so nothing can wait there for a worker whose turn it is not.
//! - A worker is current (`current.rs`) during its own turns alone.
//! - The thread sleeps only if no worker found anything in a whole round, with the sleep flags of all of them up (`park.rs`), and at most
//!   until the earliest of their deadlines.
//! - The time of a worker is busy in turns that found work. All other time is idle, turns of others included, so that the busy times of
//!   a thread's workers add up to no more than its time.

use std::cell::Cell;
use std::rc::Rc;
use std::task::Waker;
use std::thread;
use std::time::Duration;

use super::RuntimeBuilder;
use crate::WorkerId;
use crate::clock::{Clock, Ticks};
use crate::host::LocalFuture;
use crate::park::{Parker, SpinBudget};
use crate::shared::Phase;
use crate::worker::{Shard, Worker};

/// The workers of a thread, with the time up to which that of each is counted.
pub(super) struct Turns<S: Shard> {
    workers: Vec<(Rc<Worker<S>>, Ticks)>,
    clock: Clock,
    now: Ticks,
    /// The worker whose turn it is, for the sentence about a panic.
    current: Rc<Cell<WorkerId>>,
}

/// Steps workers in turn until the runtime has stopped, and lets the thread sleep when there is nothing to do.
pub(super) fn pump_in_turn<S: Shard>(
    workers: &[Rc<Worker<S>>],
    current: &Rc<Cell<WorkerId>>,
    configuration: &RuntimeBuilder,
    oversubscribed: bool,
) {
    let shared = workers[0].shared();
    let mut turns = Turns::new(workers, current);
    let mut spin = SpinBudget::new(turns.clock.ticks(configuration.spin_max), oversubscribed);
    let mut idle_since: Option<Ticks> = None;
    while shared.phase() != Phase::Stopped {
        if turns.round() {
            idle_since = None;
            if oversubscribed && turns.has_backlog() {
                // A full ring empties only if its receiver runs, perhaps on this very core.
                thread::yield_now();
            }
            continue;
        }
        let since = *idle_since.get_or_insert(turns.now);
        if spin.allows(turns.now.since(since)) {
            spin.pause();
            continue;
        }
        if let Some(slept) = turns.sleep() {
            spin.learn(slept);
        }
        idle_since = None;
    }
}

impl<S: Shard> Turns<S> {
    pub(super) fn new(workers: &[Rc<Worker<S>>], current: &Rc<Cell<WorkerId>>) -> Self {
        let clock = workers[0].shared().clock.clone();
        let now = clock.now();
        workers.iter().for_each(|worker| worker.share_thread(workers.len()));
        let workers = workers.iter().map(|worker| (Rc::clone(worker), now)).collect();
        Turns { workers, clock, now, current: Rc::clone(current) }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.workers[0].0.shared().phase() == Phase::Stopped
    }

    /// Returns true if messages wait behind a full ring, which empties only if its receiver runs.
    pub(super) fn has_backlog(&self) -> bool {
        self.workers.iter().any(|(worker, _)| worker.outgoing_backlog() > 0)
    }

    /// Has the task of `waker` woken by whatever arrives for a worker.
    pub(super) fn adopt_task(&self, waker: &Waker) {
        self.workers().for_each(|worker| worker.shared().port(worker.id()).parker.adopt_task(waker));
    }

    /// Counts the time since the last round as idle, as the thread did something else.
    pub(super) fn resume(&mut self) {
        self.now = self.clock.now();
    }

    fn workers(&self) -> impl Iterator<Item = &Rc<Worker<S>>> + Clone {
        self.workers.iter().map(|(worker, _)| worker)
    }

    /// Gives each worker its turn. Returns whether any of them found work.
    pub(super) fn round(&mut self) -> bool {
        let mut found = false;
        for (worker, counted) in &mut self.workers {
            self.current.set(worker.id());
            let began = self.now;
            let step = worker.step(began);
            self.now = self.clock.now();
            let idle_until = if step.found { began } else { self.now };
            worker.stats().idle_ticks.add(idle_until.since(*counted).0);
            worker.stats().busy_ticks.add(self.now.since(idle_until).0);
            *counted = self.now;
            found |= step.found;
        }
        found
    }

    /// Parks until something arrives for any worker or the next deadline has come. Returns how long, if the thread slept.
    fn sleep(&mut self) -> Option<Ticks> {
        let timeout = self.time_to_sleep()?;
        let slept = Parker::park_in_all(self.parkers(), || self.has_arrivals(), timeout);
        let before = std::mem::replace(&mut self.now, self.clock.now());
        slept.then(|| self.now.since(before))
    }

    /// Suspends the calling task as [`sleep`](Self::sleep) does its thread, with timeouts that `sleep` makes.
    pub(super) async fn suspend(&mut self, sleep: impl FnOnce(Duration) -> LocalFuture) {
        let Some(timeout) = self.time_to_sleep() else { return };
        Parker::suspend_in_all(self.parkers(), || self.has_arrivals(), timeout.map(sleep)).await;
        self.resume();
    }

    /// Returns the time until the earliest deadline, `Some(None)` if there is none; nothing if it has come already. Counts a sleep.
    fn time_to_sleep(&self) -> Option<Option<Duration>> {
        let deadline = self.workers().map(Worker::next_deadline).min().unwrap_or(Ticks::MAX);
        if deadline <= self.now {
            return None;
        }
        self.workers().for_each(|worker| worker.stats().parks.add(1));
        Some((deadline != Ticks::MAX).then(|| Duration::from_nanos(self.clock.ns(deadline.since(self.now)))))
    }

    fn parkers(&self) -> impl Iterator<Item = &Parker> + Clone {
        self.workers().map(|worker| &worker.shared().port(worker.id()).parker)
    }

    fn has_arrivals(&self) -> bool {
        self.workers().any(Worker::has_arrivals)
    }
}
