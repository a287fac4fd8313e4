//! The start of a runtime: its threads make the rings between all workers, and meet before any of them steps.
//!
//! Invariant: a ring's memory is touched first by its receiver's thread.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::WorkerId;
use crate::incoming::Incoming;
use crate::ring::Producer;
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
    /// Workers whose threads have put in all their producers.
    ready: usize,
    /// Workers whose shards are made.
    running: usize,
    aborted: bool,
    warnings: Vec<(WorkerId, String)>,
}

/// One worker's ends of its rings.
pub(super) struct RingEnds<S: Shard> {
    /// By destination.
    pub(super) outgoing: Vec<Producer<Host<S>>>,
    pub(super) incoming: Incoming<Host<S>>,
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

    /// Makes the rings to the workers `to` of the calling thread, and exchanges their producers for those from them. Returns
    /// nothing if the start was aborted.
    pub(super) fn exchange_rings(&self, to: &[WorkerId], ring_bytes: usize) -> Option<Vec<RingEnds<S>>> {
        let workers = lock(&self.state).producers.len();
        let incoming: Vec<_> = to.iter().map(|to| self.make_rings(*to, workers, ring_bytes)).collect();
        let mut state = lock(&self.state);
        state.ready += to.len();
        self.changed.notify_all();
        while state.ready < workers && !state.aborted {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.aborted {
            return None;
        }
        let ends = to.iter().zip(incoming).map(|(to, incoming)| {
            let outgoing = std::mem::take(&mut state.producers[to.index()]);
            let outgoing = outgoing.into_iter().map(|ring| ring.expect("every worker has put in its rings"));
            RingEnds { outgoing: outgoing.collect(), incoming }
        });
        Some(ends.collect())
    }

    /// Makes the rings from all workers to one of the calling thread, and puts in their producers.
    fn make_rings(&self, to: WorkerId, workers: usize, ring_bytes: usize) -> Incoming<Host<S>> {
        // Outside the lock: this touches memory.
        let (producers, incoming) = Incoming::new(workers, ring_bytes);
        let mut state = lock(&self.state);
        for (from, producer) in producers.into_iter().enumerate() {
            state.producers[from][to.index()] = Some(producer);
        }
        incoming
    }

    /// Reports that so many more workers have their shards.
    pub(super) fn report_running(&self, workers: usize) {
        lock(&self.state).running += workers;
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
