//! Interleaved look-ups: the first accesses of independent transactions, made together so that their cache misses overlap.
//!
//! A transaction that has touched nothing yet may be put off without any isolation being lost. So before a transaction
//! begins (for the key its route names), or at its first access, when others are ready to run, it only notes its key here; when [`BATCH`] keys are there, or nothing else is
//! ready, all are looked up level by level with prefetching, and their transactions go on with the positions found. What
//! a data-oriented engine can do and a thread-per-transaction engine cannot.
//!
//! Invariant: a position that was found is a hint. The tree checks it (no two trees, and no two states of one, have the
//! same stamp) and looks again when something has moved in between.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::Poll;

use arrayvec::ArrayVec;
use atrapos_runtime::TaskId;
use atrapos_storage::{KeyBuf, Position, Probe, locate_batch};

use crate::partition::Place;
use crate::shard::EngineWorker;

/// Look-ups made together. Enough to cover the latency of memory with the misses a core can have in flight.
pub(crate) const BATCH: usize = 16;

#[derive(Debug)]
struct Entry {
    place: Place,
    key: KeyBuf,
    task: TaskId,
    ticket: LookupTicket,
}

/// Names one look-up that was put off. A task may have given up an earlier one: what that one found is not for the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LookupTicket(u64);

impl LookupTicket {
    const NONE: LookupTicket = LookupTicket(u64::MAX);
}

/// The result of a task's latest look-up.
#[derive(Clone, Copy, Debug)]
struct Hint {
    ticket: LookupTicket,
    position: Position,
}

/// What was found out before the transaction began about the key its route names, which it will probably ask for: its
/// place, and its position unless that is unknown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Routed<'a> {
    pub(crate) place: Place,
    pub(crate) key: &'a KeyBuf,
    pub(crate) position: Position,
}

/// The look-ups that wait on one worker.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    waiting: RefCell<ArrayVec<Entry, BATCH>>,
    /// By index of the task.
    hints: RefCell<Vec<Hint>>,
    next_ticket: Cell<u64>,
}

impl Lookups {
    /// Whether putting off a look-up can pay: something else can run meanwhile, or wait with it.
    #[inline]
    pub(crate) fn pays(&self, worker: &EngineWorker) -> bool {
        worker.ready_len() > 0 || !self.waiting.borrow().is_empty()
    }

    /// Puts off the look-up of `key` for the current task, which will be woken.
    #[inline(always)]
    pub(crate) fn put_off(&self, worker: &EngineWorker, place: Place, key: &KeyBuf) -> LookupTicket {
        let ticket = LookupTicket(self.next_ticket.get());
        self.next_ticket.set(ticket.0 + 1);
        let full = {
            let mut waiting = self.waiting.borrow_mut();
            waiting.push(Entry { place, key: key.clone(), task: worker.current_task(), ticket });
            waiting.is_full()
        };
        if full {
            self.flush(worker);
        }
        ticket
    }

    /// Waits for the result of the look-up that was put off for the current task.
    #[inline(always)]
    pub(crate) async fn result(&self, worker: &EngineWorker, ticket: LookupTicket) -> Position {
        // The task is woken when its result is there; looking before that would mostly be in vain.
        let mut asked = false;
        poll_fn(|_| {
            if !std::mem::replace(&mut asked, true) {
                return Poll::Pending;
            }
            match self.take(worker.current_task(), ticket) {
                Some(position) => Poll::Ready(position),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Takes the result of the current task's look-up; `None` while it is still waiting.
    #[inline(always)]
    pub(crate) fn take(&self, task: TaskId, ticket: LookupTicket) -> Option<Position> {
        let hints = self.hints.borrow();
        let hint = hints.get(task.index())?;
        (hint.ticket == ticket).then_some(hint.position)
    }

    /// Makes the waiting look-ups and wakes their tasks. Returns whether there were any.
    #[inline(never)]
    pub(crate) fn flush(&self, worker: &EngineWorker) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.is_empty() {
            return false;
        }
        let tables = worker.shard().tables.borrow();
        let mut probes: ArrayVec<Probe<'_>, BATCH> =
            waiting.iter().map(|entry| Probe::new(&tables.partition(entry.place).tree, &entry.key)).collect();
        locate_batch(&mut probes);
        let mut hints = self.hints.borrow_mut();
        for (entry, probe) in waiting.iter().zip(&probes) {
            let at = entry.task.index();
            if at >= hints.len() {
                hints.resize(at + 1, Hint { ticket: LookupTicket::NONE, position: Position::unknown() });
            }
            hints[at] = Hint { ticket: entry.ticket, position: probe.position };
            worker.wake(entry.task);
        }
        worker.shard().stats.interleaved.add(probes.len() as u64);
        drop(probes);
        waiting.clear();
        true
    }
}
