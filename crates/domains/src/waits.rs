//! Waiting inside tasks: which worker waits for what, so that cycles are refused before they close.
//!
//! Owns: the graph. A task that delegates to another domain and blocks stops its own worker; if the other domain does the same in
//! the other direction, neither ever goes on. Such calls are rare and slow anyway, so one lock guards them all.
//!
//! A task that polls a future and finds nothing may be about to sleep until it is woken, as an executor inside the task does, or may go on. Nobody
//! can know, so it counts as waiting ([`may_poll`]) until the task has ended, or the future is ready or dropped.
//!
//! # The graph
//! A worker that waits is a node with edges. It waits for one ring, whose tasks need
//! - the server of the ring's buffer: it runs them, or passes them on and takes their answers back; and
//! - the worker to which a task of the ring was passed on, until that has run it.
//!
//! So three things add edges, and each is refused if it would close a cycle: a worker that begins to wait ([`Waiting::begin`], [`may_poll`]), a task
//! that is passed on because its structure moved ([`Waits::pass`]), and a buffer that goes to another worker ([`Waits::hand_over`]).
//!
//! # Invariants
//! - The graph has no cycle.
//! - What is passed on, or handed over, is told under the lock: so a worker's messages and its edges go to its heir together.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domains::Inner;
use crate::inbox::Buffer;
use crate::planted::{Bug, planted};
use crate::ring::Ring;
use crate::sync::Arc;
use crate::task::Failure;
use crate::worker::{self, WorkerShared};

/// The workers that wait, and the tasks that were passed on.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    graph: Mutex<Graph>,
}

#[derive(Debug, Default)]
struct Graph {
    /// The waits of each worker. One that waits for nothing is not there.
    waiting: HashMap<u32, Vec<Wait>>,
    passed: Vec<Passed>,
}

/// One wait of a worker.
#[derive(Debug)]
struct Wait {
    ring: Slots,
    /// The slot of which it has polled the future; none if it blocks.
    polled: Option<usize>,
}

/// The slots of a ring.
#[derive(Debug)]
struct Slots {
    buffer: Arc<Buffer>,
    range: Range<usize>,
}

/// A task that was passed on and has not run.
#[derive(Debug)]
struct Passed {
    buffer: Arc<Buffer>,
    slot: usize,
    to: u32,
}

impl Slots {
    fn has(&self, buffer: &Arc<Buffer>, slot: usize) -> bool {
        Arc::ptr_eq(&self.buffer, buffer) && self.range.contains(&slot)
    }
}

/// The server of a buffer now.
fn server(buffer: &Buffer) -> u32 {
    // SAFETY: whoever holds a buffer holds the domains, which keep all their workers.
    unsafe { (*buffer.server()).index }
}

impl Graph {
    /// The workers that the tasks of a ring need.
    fn needed_by(&self, slots: &Slots) -> Vec<u32> {
        let passed = self.passed.iter().filter(|passed| slots.has(&passed.buffer, passed.slot));
        let mut needed: Vec<u32> = passed.map(|passed| passed.to).collect();
        if needed.is_empty() || !planted(Bug::ForgetServer) {
            needed.push(server(&slots.buffer));
        }
        needed
    }

    /// Returns whether one of these workers is `worker`, or waits for it, over others perhaps.
    fn reach(&self, mut from: Vec<u32>, worker: u32) -> bool {
        let mut seen = HashSet::new();
        while let Some(at) = from.pop() {
            if at == worker {
                return true;
            }
            if seen.insert(at)
                && let Some(waits) = self.waiting.get(&at)
            {
                from.extend(waits.iter().flat_map(|wait| self.needed_by(&wait.ring)));
            }
        }
        false
    }

    /// Ends those waits of a worker that are not to be kept.
    fn end(&mut self, worker: u32, keep: impl Fn(&Wait) -> bool) {
        if let Some(waits) = self.waiting.get_mut(&worker) {
            waits.retain(keep);
            if waits.is_empty() {
                self.waiting.remove(&worker);
            }
        }
    }
}

impl Waits {
    fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a worker waits for some slots of a buffer: blocks, or has polled the future of one. Returns whether it may.
    fn begin(&self, worker: u32, buffer: &Arc<Buffer>, range: Range<usize>, polled: Option<usize>) -> bool {
        let mut graph = self.graph();
        let ring = Slots { buffer: Arc::clone(buffer), range };
        let closes = graph.reach(graph.needed_by(&ring), worker);
        if !closes {
            let waits = graph.waiting.entry(worker).or_default();
            let is_known = |wait: &Wait| {
                polled.is_some() && wait.polled == polled && Arc::ptr_eq(&wait.ring.buffer, buffer)
            };
            if !waits.iter().any(is_known) {
                waits.push(Wait { ring, polled });
            }
        }
        !closes
    }

    /// A worker blocks no more.
    fn end(&self, worker: u32) {
        self.graph().end(worker, |wait| wait.polled.is_some());
    }

    /// The future of a slot is not polled any more by the task of a worker.
    fn end_poll(&self, worker: u32, buffer: &Arc<Buffer>, slot: usize) {
        self.graph().end(worker, |wait| wait.polled != Some(slot) || !Arc::ptr_eq(&wait.ring.buffer, buffer));
    }

    /// The task of a worker has ended, and with it what its futures were polled for.
    pub(crate) fn end_task(&self, worker: u32) {
        if !planted(Bug::PollKept) {
            self.graph().end(worker, |_| false);
        }
    }

    /// Returns whether a worker waits inside a task.
    pub(crate) fn is_waiting(&self, worker: u32) -> bool {
        self.graph().waiting.contains_key(&worker)
    }

    /// Passes the task in a slot on to the first of some workers, or its heir, that has not ended and does not wait for it, and tells that one.
    ///
    /// # Errors
    /// The reason for which there is none.
    pub(crate) fn pass(
        &self,
        buffer: &Arc<Buffer>,
        slot: usize,
        to: impl IntoIterator<Item = Arc<WorkerShared>>,
        tell: impl FnOnce(&WorkerShared),
    ) -> Result<(), Failure> {
        let mut graph = self.graph();
        let waiting: Vec<u32> = graph
            .waiting
            .iter()
            .filter(|(_, waits)| waits.iter().any(|wait| wait.ring.has(buffer, slot)))
            .map(|(&worker, _)| worker)
            .collect();
        let closes = |to: &Arc<WorkerShared>| {
            waiting.iter().any(|&worker| graph.reach(vec![to.index], worker)) && !planted(Bug::PassUnseen)
        };
        let mut refused = Failure::ShutDown;
        let to = to.into_iter().map(WorkerShared::or_heir).filter(|to| !to.is_closed()).find(|to| {
            refused = Failure::WouldDeadlock;
            !closes(to)
        });
        let to = to.ok_or(refused)?;
        graph.passed.retain(|passed| !passed.is(buffer, slot));
        graph.passed.push(Passed { buffer: Arc::clone(buffer), slot, to: to.index });
        tell(&to);
        Ok(())
    }

    /// Notes that a task that was passed on has run.
    pub(crate) fn ran(&self, buffer: &Arc<Buffer>, slot: usize) {
        self.graph().passed.retain(|passed| !passed.is(buffer, slot));
    }

    /// Tells something to a worker, or its heir; neither leaves meanwhile.
    pub(crate) fn tell(&self, to: &Arc<WorkerShared>, tell: impl FnOnce(&Arc<WorkerShared>)) {
        let _graph = self.graph();
        tell(&Arc::clone(to).or_heir());
    }

    /// Notes that a worker serves a buffer. It does not wait now.
    pub(crate) fn serve(&self, buffer: &Buffer, worker: &Arc<WorkerShared>) {
        let _graph = self.graph();
        if !planted(Bug::ServeUnsaid) {
            buffer.set_server(Arc::as_ptr(worker));
        }
    }

    /// Gives its own buffer back to a worker that had left and came back, and tells it; unless it waits, as it may wait for this buffer, or
    /// is gone again. Returns whether it has it.
    pub(crate) fn give_back(&self, to: &Arc<WorkerShared>, tell: impl FnOnce()) -> bool {
        let graph = self.graph();
        if graph.waiting.contains_key(&to.index) || to.has_left() || to.is_closed() {
            return false;
        }
        to.buffer.set_server(Arc::as_ptr(to));
        tell();
        true
    }

    /// Ends the hearing of a worker, if nothing is left that it was told, or in any case; no buffer is handed over to it from then on. Returns
    /// whether it has.
    pub(crate) fn close(&self, worker: &WorkerShared, anyway: bool) -> bool {
        let _graph = self.graph();
        worker.close(anyway)
    }

    /// Gives the buffers of a worker, and the tasks that were passed on to it, to another one, or its heir, and tells that one; unless it
    /// waits, as it may wait for one of them, or has ended. Returns whether it has them.
    pub(crate) fn hand_over<'b>(
        &self,
        from: &WorkerShared,
        to: Arc<WorkerShared>,
        buffers: impl Iterator<Item = &'b Arc<Buffer>>,
        tell: impl FnOnce(&Arc<WorkerShared>),
    ) -> bool {
        let mut graph = self.graph();
        let to = to.or_heir();
        if (graph.waiting.contains_key(&to.index) && !planted(Bug::HandOverToWaiting)) || to.is_closed() {
            return false;
        }
        buffers.for_each(|buffer| buffer.set_server(Arc::as_ptr(&to)));
        let passed = graph.passed.iter_mut().filter(|passed| passed.to == from.index);
        passed.for_each(|passed| passed.to = to.index);
        tell(&to);
        true
    }
}

impl Passed {
    fn is(&self, buffer: &Arc<Buffer>, slot: usize) -> bool {
        Arc::ptr_eq(&self.buffer, buffer) && self.slot == slot
    }
}

/// The permission of a thread to wait for a ring, and the note of it if the thread is inside a task.
#[derive(Debug)]
pub(crate) struct Waiting(Option<(Arc<Inner>, u32)>);

impl Waiting {
    /// Begins to wait; `None` if that would never end.
    #[inline]
    pub(crate) fn begin(ring: &Ring) -> Option<Self> {
        let Some(worker) = worker::running(&ring.domains) else { return Some(Self(None)) };
        let may = ring.domains.waits.begin(worker, ring.shared_buffer(), ring.slots(), None);
        may.then(|| Self(Some((Arc::clone(&ring.domains), worker))))
    }

    /// Begins to wait for the answer in a seat, unless it is there; `None` if it would never come.
    #[inline]
    pub(crate) fn begin_at(ring: &Ring, seat: usize) -> Option<Self> {
        if ring.is_answered(seat) { Some(Self(None)) } else { Self::begin(ring) }
    }
}

impl Drop for Waiting {
    #[inline]
    fn drop(&mut self) {
        if let Some((domains, worker)) = &self.0 {
            domains.waits.end(*worker);
        }
    }
}

/// Returns whether the future of a seat, whose answer is not there, may be polled here: inside a task it may not if the answer cannot come before
/// the task ends. If it may, the task counts as waiting for it from now on.
#[inline]
pub(crate) fn may_poll(ring: &Ring, seat: usize) -> bool {
    let Some(worker) = worker::running(&ring.domains) else { return true };
    if planted(Bug::PollUnseen) {
        return true;
    }
    let slot = ring.slots().start + seat;
    let may = ring.domains.waits.begin(worker, ring.shared_buffer(), ring.slots(), Some(slot));
    if may {
        ring.domains.worker(worker).note_poll();
    }
    // It may have been answered meanwhile, by who would have been waited for.
    may || ring.is_answered(seat)
}

/// Notes that a future of a seat is polled no more. Called before the seat is free.
#[inline]
pub(crate) fn end_poll(ring: &Ring, seat: usize) {
    if let Some(worker) = worker::running(&ring.domains)
        && ring.domains.worker(worker).has_polled()
        && !planted(Bug::PollKeptReady)
    {
        let slot = ring.slots().start + seat;
        ring.domains.waits.end_poll(worker, ring.shared_buffer(), slot);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
