//! The worker's side of a buffer: which rings it has, where each stands, and what was answered.
//!
//! Owns: the worker's copies of the answers and the places in the rings. One at a time per buffer: it moves, with the buffer, from
//! worker to worker. Never: decides what becomes of a task that is not here (`worker`).
//!
//! # Invariant
//! A ring serves the tasks of its own lease alone. Slots change hands while the worker looks through its rings, so it compares the
//! version of the leases after each request that it finds, and leaves one of a lease that it has not read to the next step: run by the
//! ring that had the slots before, it would be one that its own ring waits for in vain.
//!
//! # Why the unsafe code is sound
//! A slot whose toggle differs from the worker's copy of the answers is in the worker's turn (`inbox`), and its header names
//! the table of its request.

use crate::inbox::{Buffer, GROUP_SLOTS, Header, failure_bit, group_of, wake_all};
use crate::planted::{Bug, planted};
use crate::structures::{Key, Reach};
use crate::sync::{Arc, AtomicU8, Ordering};
use crate::task::{Failure, Outcome};

/// Reasons for which a worker looks up between two tasks; several may hold.
#[derive(Debug, Default)]
pub(crate) struct Notice(AtomicU8);

/// It was told something: it serves no more tasks in this step.
pub(crate) const TOLD: u8 = 1;
/// A task of its own has polled a future in vain: what that task waits for ends with it, and the step goes on.
pub(crate) const POLLED: u8 = 2;

impl Notice {
    /// Gives a reason. What it is about was written before.
    pub(crate) fn give(&self, reason: u8) {
        self.0.fetch_or(reason, Ordering::Release);
    }

    /// Takes a reason back, and leaves the other one.
    pub(crate) fn take(&self, reason: u8) {
        self.0.fetch_and(!reason, Ordering::AcqRel);
    }

    /// Returns whether a reason holds.
    #[inline(always)]
    pub(crate) fn has(&self, reason: u8, ordering: Ordering) -> bool {
        self.0.load(ordering) & reason != 0
    }
}

/// The worker that serves a buffer, as far as its rings know it.
pub(crate) trait Host {
    /// The reasons for it to look up.
    fn notice(&self) -> &Notice;
    /// Decides about a task that is not within reach.
    fn pass(&self, buffer: &Arc<Buffer>, stray: Stray) -> Passed;
    /// Ends what the task that has just ended waited for in futures, if it has polled any.
    fn end_polls(&self);
}

/// One ring as its worker sees it.
#[derive(Debug)]
struct Served {
    id: u64,
    first: usize,
    count: usize,
    /// The seat that comes next.
    next: usize,
    /// The task there was passed on: the ring waits for its answer.
    passed: bool,
}

/// A buffer and where its worker stands in it.
#[derive(Debug)]
pub(crate) struct Polled {
    pub(crate) buffer: Arc<Buffer>,
    version: u32,
    rings: Vec<Served>,
    answers: Box<[u64]>,
    /// Per group: the slots whose clients wait for an answer that is not there yet.
    waiting: Box<[u64]>,
}

/// A task that is in a slot but not on the right worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stray {
    pub(crate) slot: usize,
    pub(crate) header: Header,
    pub(crate) key: Key,
}

/// The end of a stray.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passed {
    /// Its structure is here now: try again.
    Retry,
    /// It is refused.
    Refuse(Failure),
    /// Another worker has it, and will say how it ended.
    On,
    /// Its structure is among the messages: try again in the next step.
    Later,
}

impl Polled {
    pub(crate) fn new(buffer: Arc<Buffer>) -> Self {
        let groups = buffer.groups();
        let answers = (0..groups).map(|group| buffer.answers(group)).collect();
        let mut polled =
            Self { version: 0, rings: Vec::new(), answers, waiting: vec![0; groups].into(), buffer };
        polled.refresh();
        polled
    }

    /// Reads the leases again: rings that are known keep their place.
    #[cold]
    fn refresh(&mut self) {
        self.version = self.buffer.version();
        let mut old = std::mem::take(&mut self.rings);
        for lease in self.buffer.leases() {
            let known = old.iter().position(|ring| ring.id == lease.id).map(|at| old.swap_remove(at));
            let new =
                || Served { id: lease.id, first: lease.first, count: lease.count, next: 0, passed: false };
            self.rings.push(known.unwrap_or_else(new));
        }
        self.rings.sort_by_key(|ring| ring.first);
    }

    /// Returns whether the leases have changed since they were read: slots may be another ring's by now.
    #[inline(always)]
    fn is_outdated(&self) -> bool {
        self.version != self.buffer.version()
    }

    #[inline(always)]
    fn is_new(&self, slot: usize, header: Header) -> bool {
        let (group, bit) = group_of(slot);
        header.toggle != (self.answers[group] >> bit & 1 != 0)
    }

    /// Notes the answer of a slot, to be published with its group.
    #[inline(always)]
    fn note(&mut self, slot: usize, failed: bool) {
        let (group, bit) = group_of(slot);
        let answers = (self.answers[group] ^ (1 << bit)) & !failure_bit(bit);
        self.answers[group] = if failed { answers | failure_bit(bit) } else { answers };
    }

    /// Publishes the answers of a group, and wakes who waits for them.
    #[inline(always)]
    fn publish(&mut self, group: usize) {
        self.buffer.answer(group, self.answers[group]);
        if self.waiting[group] != 0 {
            self.wake_answered(group);
        }
    }

    #[cold]
    fn wake_answered(&mut self, group: usize) {
        for bit in 0..GROUP_SLOTS {
            let slot = group * GROUP_SLOTS + bit;
            if self.waiting[group] >> bit & 1 != 0 && !self.is_new(slot, self.buffer.header(slot)) {
                self.waiting[group] &= !(1 << bit);
                wake(&self.buffer, slot);
            }
        }
    }

    /// Serves every ring once round at most, and stops between two tasks once the worker is told something. Returns the number of tasks.
    #[inline]
    pub(crate) fn serve(&mut self, reach: &Reach, each: bool, host: &impl Host) -> usize {
        if self.is_outdated() {
            self.refresh();
        }
        let mut tasks = 0;
        for at in 0..self.rings.len() {
            let Served { first, next, passed, .. } = self.rings[at];
            if !passed && self.is_new(first + next, self.buffer.header(first + next)) {
                let (ran, is_told) = self.serve_ring(at, reach, each, host);
                tasks += ran;
                if is_told {
                    break;
                }
            }
        }
        let mut attention = self.buffer.take_attention();
        while attention != 0 {
            let group = attention.trailing_zeros() as usize;
            attention &= attention - 1;
            self.waiting[group] |= self.buffer.take_attention_of(group);
            self.wake_answered(group);
        }
        tasks
    }

    /// Runs what is new in one ring, in its order. Returns the number of tasks, and whether the worker was told something meanwhile.
    fn serve_ring(&mut self, at: usize, reach: &Reach, each: bool, host: &impl Host) -> (usize, bool) {
        let Served { first, count, mut next, .. } = self.rings[at];
        let (mut tasks, mut published, mut is_told) = (0, true, false);
        while tasks < count && !is_told {
            let slot = first + next;
            let header = self.buffer.header(slot);
            // In this order: whoever submits to a slot has leased it before, so the version tells of a lease that is not read yet.
            if !self.is_new(slot, header) || (self.is_outdated() && !planted(Bug::ServeUnread)) {
                break;
            }
            let counted = reach.counted_tasks();
            let ended = self.run(slot, header, reach, host);
            let notice = host.notice().0.load(Ordering::Relaxed);
            if notice != 0 {
                // Before its answer is published: whoever has that may have another worker wait for this one.
                host.end_polls();
                is_told = notice & TOLD != 0 || planted(Bug::PollStops);
            }
            match ended {
                Ok(failed) => self.note(slot, failed),
                Err(Passed::On) if planted(Bug::PassPast) => {}
                Err(passed) => {
                    self.rings[at].passed = passed == Passed::On;
                    break;
                }
            }
            tasks += 1;
            // A chunk is long enough for its client to go on meanwhile.
            let was_chunk = reach.counted_tasks() != counted;
            next = if next + 1 == count { 0 } else { next + 1 };
            let group = group_of(slot).0;
            published = each || was_chunk || group != group_of(first + next).0;
            if published {
                self.publish(group);
            }
        }
        self.rings[at].next = next;
        if !published {
            // The last task was in the group of the seat before `next`.
            let last = first + if next == 0 { count - 1 } else { next - 1 };
            self.publish(group_of(last).0);
        }
        (tasks, is_told)
    }

    /// Runs one task. Returns whether it failed, or that it did not end here.
    #[inline(always)]
    fn run(&self, slot: usize, header: Header, reach: &Reach, host: &impl Host) -> Result<bool, Passed> {
        loop {
            match run_in(&self.buffer, slot, header, reach) {
                Outcome::Done => return Ok(false),
                Outcome::Failed => return Ok(true),
                Outcome::Elsewhere(key) => match host.pass(&self.buffer, Stray { slot, header, key }) {
                    Passed::Retry => {}
                    Passed::Refuse(failure) => {
                        self.buffer.refuse(slot, header, failure);
                        return Ok(true);
                    }
                    elsewhere @ (Passed::On | Passed::Later) => return Err(elsewhere),
                },
            }
        }
    }

    /// Takes the answer of a task that was passed on: its ring goes on.
    pub(crate) fn came_back(&mut self, slot: usize, failed: bool) {
        self.buffer.set_passed(slot, false);
        self.note(slot, failed);
        self.publish(group_of(slot).0);
        let ring = self.rings.iter_mut().find(|ring| (ring.first..ring.first + ring.count).contains(&slot));
        if let Some(ring) = ring
            && ring.passed
        {
            ring.passed = false;
            ring.next = (slot + 1 - ring.first) % ring.count;
        }
    }

    /// Returns whether there is anything to do.
    pub(crate) fn has_work(&self) -> bool {
        self.is_outdated()
            || (self.buffer.wants_attention() && !planted(Bug::SleepUnasked))
            || self.rings.iter().any(|ring| {
                !ring.passed
                    && self.is_new(ring.first + ring.next, self.buffer.header(ring.first + ring.next))
            })
    }

    /// Tasks that have been passed on and not come back.
    pub(crate) fn passed_on(&self) -> usize {
        self.rings.iter().filter(|ring| ring.passed).count()
    }

    /// Refuses every task that is there, and says that nobody serves the buffer any more. Calls `left` with the first structure of each, and
    /// whether it was refused: one that was passed on and has not come back is not, as it may be running.
    pub(crate) fn end(&mut self, left: &mut dyn FnMut(Key, bool)) {
        self.refresh();
        for at in 0..self.rings.len() {
            let Served { first, count, next, passed, .. } = self.rings[at];
            let seats = (next..count).chain(0..next).map(|seat| first + seat);
            for (slot, is_passed) in seats.zip(std::iter::once(passed).chain(std::iter::repeat(false))) {
                let header = self.buffer.header(slot);
                if !self.is_new(slot, header) {
                    break;
                }
                left(self.buffer.key(slot), !is_passed);
                if !is_passed {
                    self.buffer.refuse(slot, header, Failure::ShutDown);
                    self.note(slot, true);
                    self.publish(group_of(slot).0);
                }
            }
        }
        self.buffer.die();
    }
}

/// Wakes the client of a slot.
fn wake(buffer: &Buffer, slot: usize) {
    wake_all(buffer.waker(slot).take());
}

/// Runs the task in a slot of a buffer, in a worker's turn.
pub(crate) fn run_in(buffer: &Buffer, slot: usize, header: Header, reach: &Reach) -> Outcome {
    if header.cancelled {
        buffer.refuse(slot, header, Failure::Cancelled);
        return Outcome::Failed;
    }
    // SAFETY: it is the worker's turn, so the slot has a request of this table; key, word and payload are the slot's.
    unsafe { ((*header.table).run)(buffer.key(slot), buffer.payload(slot), buffer.word(slot), reach) }
}
