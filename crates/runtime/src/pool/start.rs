//! The start of a runtime: its threads make the rings between all workers, and meet before any of them steps.
//!
//! Invariant: a ring's memory is touched first by its receiver's thread.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::WorkerId;
use crate::ring::{Consumer, Producer, ring};
use crate::shared::{Host, lock};
use crate::worker::Shard;

/// The barrier at which the threads of a runtime meet before any of them steps.
pub(super) struct Start<S: Shard> {
    state: Mutex<StartState<S>>,
    changed: Condvar,
}

struct StartState<S: Shard> {
    /// By origin and destination; put there by the destination's thread, taken by the origin's.
    producers: Vec<Vec<Option<Producer<Host<S>>>>>,
    /// Threads that have put in all their producers.
    ready: usize,
    /// Threads that have made their shard.
    running: usize,
    aborted: bool,
    warnings: Vec<(WorkerId, String)>,
}

impl<S: Shard> Start<S> {
    pub(super) fn new(workers: usize) -> Self {
        let producers = (0..workers).map(|_| (0..workers).map(|_| None).collect()).collect();
        let state = StartState { producers, ready: 0, running: 0, aborted: false, warnings: Vec::new() };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(super) fn abort(&self) {
        lock(&self.state).aborted = true;
        self.changed.notify_all();
    }

    /// Makes the rings to worker `to` on the calling thread and exchanges their producers for those from it. Returns
    /// nothing if the start was aborted.
    #[expect(
        clippy::type_complexity,
        reason = "the two lists of ring ends of one worker, taken apart at once"
    )]
    pub(super) fn exchange_rings(
        &self,
        to: WorkerId,
        ring_bytes: usize,
    ) -> Option<(Vec<Producer<Host<S>>>, Vec<Consumer<Host<S>>>)> {
        let workers = lock(&self.state).producers.len();
        // Outside the lock: this touches memory.
        let (producers, consumers): (Vec<_>, Vec<_>) = (0..workers).map(|_| ring(ring_bytes)).unzip();
        let mut state = lock(&self.state);
        for (from, producer) in producers.into_iter().enumerate() {
            state.producers[from][to.index()] = Some(producer);
        }
        state.ready += 1;
        self.changed.notify_all();
        while state.ready < workers && !state.aborted {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.aborted {
            return None;
        }
        let outgoing = std::mem::take(&mut state.producers[to.index()]);
        let outgoing = outgoing.into_iter().map(|ring| ring.expect("every worker has put in its rings"));
        Some((outgoing.collect(), consumers))
    }

    pub(super) fn report_running(&self) {
        lock(&self.state).running += 1;
        self.changed.notify_all();
    }

    pub(super) fn warn(&self, worker: WorkerId, warning: String) {
        lock(&self.state).warnings.push((worker, warning));
    }

    /// Waits until all shards are made, and returns the warnings, in the order of the workers and each only once.
    pub(super) fn wait_until_running(&self) -> Vec<String> {
        let mut state = lock(&self.state);
        let workers = state.producers.len();
        while state.running < workers {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.warnings.sort();
        std::mem::take(&mut state.warnings)
            .into_iter()
            .map(|(worker, warning)| format!("worker {worker} runs unpinned: {warning}"))
            .collect()
    }
}
