//! Admission: how many transactions a worker has under way while deadlocks are frequent, or many transactions wait for locks.
//!
//! Owns: the limit on the transactions that have their home here and have suspended, and the queue of those that wait to begin.
//! Never: holds back a transaction while there are no deadlocks and few wait for locks, or one that holds locks; decides which cycle
//! is broken ([`crate::deadlock`]).
//!
//! The chance of a deadlock grows with the square of the number of transactions that hold locks while they wait for others
//! (Gray et al. 1981), and each costs what its detection takes, during which nobody gets its rows: beyond some number of
//! transactions under way the throughput collapses, which is thrashing (Thomasian 1993). How many are too many depends
//! on the workload, so the limit is learnt, by additive increase and multiplicative decrease: each transaction that ends as
//! the victim of a deadlock halves it, at most once per [pause](Admission::pause); each pause without a deadlock raises it, by one
//! at first, and by twice as many in each further one. A limit beyond the number of states that a worker keeps is none.
//! Without a limit nothing is counted.
//!
//! The first deadlock is found when transactions have waited for a while, and by then all that came may have begun. So a worker with
//! 128 requests that wait for its locks sets the limit to the number that is under way, or to 128: who comes now would wait behind them.
//!
//! A transaction that finds as many under way as may be waits, before it has accessed anything. A victim that is run again goes before those that are new.
//! Transactions that never suspend pass without being asked: they hold no locks.
//!
//! Invariants:
//! - Who waits here holds nothing that others wait for.
//! - Nobody waits for ever, whatever those under way wait for: a client may keep one of them open until another transaction
//!   has run. While some wait and none ends, each pause raises the limit above the number under way.
//! - If there is room and some wait, the first of them has been woken: by the end of a transaction, by a limit that was raised, by
//!   the one before it, which passed, or by one that went away.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::Poll;

use atrapos_runtime::{TaskId, Ticks};

use crate::shard::{EngineWorker, POOL};

/// The pause, as a multiple of the time after which a waiting request is checked for deadlocks: several are found and broken in it.
const PAUSE_FACTOR: u64 = 8;

/// The number of requests that wait for locks of one worker at which its own transactions are limited, before any deadlock is found.
const CROWD: usize = 128;

/// The place of a transaction that waits: victims first, and in the order in which they came.
type Place = (bool, u64);

/// See the module's introduction.
#[derive(Debug)]
pub struct Admission {
    /// The number of transactions under way at which no other begins; `usize::MAX` if there is no limit.
    limit: Cell<usize>,
    /// The number that the next pause without a deadlock adds to the limit.
    increase: Cell<usize>,
    /// The time at which the current pause ends.
    pause_ends: Cell<Ticks>,
    /// The time of the latest end of a transaction under way, or of the raise that stood in for one.
    progress: Cell<Ticks>,
    /// The length of a pause.
    pause: Ticks,
    waiting: RefCell<BTreeMap<Place, TaskId>>,
    next_place: Cell<u64>,
}

impl Admission {
    /// Creates the admission of a worker that checks a waiting request for deadlocks after `check_after`.
    pub(crate) fn new(check_after: Ticks) -> Admission {
        Admission {
            limit: Cell::new(usize::MAX),
            increase: Cell::new(1),
            pause_ends: Cell::new(Ticks(0)),
            progress: Cell::new(Ticks(0)),
            pause: Ticks(check_after.0.saturating_mul(PAUSE_FACTOR)),
            waiting: RefCell::default(),
            next_place: Cell::new(0),
        }
    }

    /// Returns true if the number of transactions under way is limited.
    #[inline(always)]
    pub(crate) fn is_limited(&self) -> bool {
        self.limit.get() != usize::MAX
    }

    /// The number of transactions that wait to begin.
    fn waiting_len(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Notes that one of `under_way` transactions ends as the victim of a deadlock.
    fn lower(&self, now: Ticks, under_way: usize) {
        if self.is_limited() && now < self.pause_ends.get() && self.increase.get() == 1 {
            return;
        }
        self.limit_to(now, (self.limit.get().min(under_way) / 2).max(1));
    }

    /// Limits the transactions, if there is no limit yet: so many wait for locks that more of them would make a jam before the first deadlock is found.
    fn close(&self, now: Ticks, limit: usize) {
        if !self.is_limited() {
            self.limit_to(now, limit);
        }
    }

    /// Sets the limit, and begins a pause.
    fn limit_to(&self, now: Ticks, limit: usize) {
        if !self.is_limited() {
            self.progress.set(now);
        }
        self.limit.set(limit);
        self.increase.set(1);
        self.pause_ends.set(Ticks(now.0.saturating_add(self.pause.0)));
    }

    /// Raises the limit, if a pause has passed without a deadlock, or without the end of any transaction while some wait. Returns
    /// true if it did.
    fn raise(&self, now: Ticks, under_way: usize) -> bool {
        let mut limit = self.limit.get();
        // Nobody may have asked for several pauses.
        while now >= self.pause_ends.get() && limit < POOL {
            limit = limit.saturating_add(self.increase.get());
            self.increase.set(self.increase.get().saturating_mul(2));
            self.pause_ends.set(Ticks(self.pause_ends.get().0.saturating_add(self.pause.0)));
        }
        if now.0 >= self.progress.get().0.saturating_add(self.pause.0) && self.waiting_len() > 0 {
            limit = limit.max(under_way.saturating_add(1));
            self.progress.set(now);
        }
        if limit >= POOL {
            limit = usize::MAX;
        }
        limit != self.limit.replace(limit)
    }

    /// The time of the next raise, if any transaction waits.
    fn next_raise(&self) -> Option<Ticks> {
        let stalled = Ticks(self.progress.get().0.saturating_add(self.pause.0));
        (self.waiting_len() > 0).then(|| stalled.min(self.pause_ends.get()))
    }

    /// Wakes the first transaction that waits, if `under_way` leave room for it.
    fn wake_first(&self, worker: &EngineWorker, under_way: usize) {
        if under_way < self.limit.get()
            && let Some((_, task)) = self.waiting.borrow().first_key_value()
        {
            worker.wake(*task);
        }
    }
}

/// Returns the number of transactions that have their home on a worker and have suspended.
fn under_way(worker: &EngineWorker) -> usize {
    worker.shard().active.borrow().len()
}

/// Notes that a transaction with its home here ends as the victim of a deadlock.
#[cold]
pub(crate) fn on_deadlock(worker: &EngineWorker) {
    worker.shard().admission.lower(worker.step_time(), under_way(worker));
}

/// Notes that one more request has begun to wait here for a lock, of `waiting` now.
#[inline]
pub(crate) fn on_wait(worker: &EngineWorker, waiting: usize) {
    if waiting >= CROWD {
        // Those that wait here may have their homes elsewhere, and then few are under way.
        worker.shard().admission.close(worker.step_time(), under_way(worker).max(CROWD));
    }
}

/// Notes the end of a transaction that was under way.
#[inline]
pub(crate) fn on_end(worker: &EngineWorker) {
    let admission = &worker.shard().admission;
    if admission.is_limited() {
        admission.progress.set(worker.step_time());
        admission.wake_first(worker, under_way(worker));
    }
}

/// Raises the limit when it is time. Returns true if it did.
#[inline]
pub(crate) fn step(worker: &EngineWorker, now: Ticks) -> bool {
    let admission = &worker.shard().admission;
    let raised = admission.is_limited() && admission.raise(now, under_way(worker));
    if raised {
        admission.wake_first(worker, under_way(worker));
    }
    raised
}

/// The time of the next step, if any transaction waits.
#[inline]
pub(crate) fn next_step(worker: &EngineWorker) -> Option<Ticks> {
    let admission = &worker.shard().admission;
    admission.is_limited().then(|| admission.next_raise()).flatten()
}

/// Waits until a transaction may begin here. `again` says that it was the victim of a deadlock.
#[inline(always)]
pub(crate) async fn admit(worker: &EngineWorker, again: bool) {
    if worker.shard().admission.is_limited() && !has_room(worker) {
        Box::pin(wait(worker, again)).await;
    }
}

/// Returns true if a transaction may begin here at once, and none waits.
#[cold]
fn has_room(worker: &EngineWorker) -> bool {
    let admission = &worker.shard().admission;
    admission.waiting_len() == 0 && under_way(worker) < admission.limit.get()
}

#[cold]
async fn wait(worker: &EngineWorker, again: bool) {
    let admission = &worker.shard().admission;
    let place = (!again, admission.next_place.get());
    admission.next_place.set(place.1 + 1);
    let mut waits = false;
    let _waiter = Waiter { worker, place };
    poll_fn(|_| {
        let mut waiting = admission.waiting.borrow_mut();
        let is_first = waiting.first_key_value().is_none_or(|(first, _)| *first >= place);
        if worker.is_stopping() || (is_first && under_way(worker) < admission.limit.get()) {
            return Poll::Ready(());
        }
        if !waits {
            waits = true;
            worker.shard().stats.held_back.add(1);
            waiting.insert(place, worker.current_task());
        }
        Poll::Pending
    })
    .await;
}

/// A transaction that waits. Dropped, it leaves the queue, and the next one has its turn.
struct Waiter<'w> {
    worker: &'w EngineWorker,
    place: Place,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let admission = &self.worker.shard().admission;
        admission.waiting.borrow_mut().remove(&self.place);
        admission.wake_first(self.worker, under_way(self.worker));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECK_AFTER: Ticks = Ticks(100);
    const PAUSE: u64 = CHECK_AFTER.0 * PAUSE_FACTOR;

    fn limited(under_way: usize) -> Admission {
        let admission = Admission::new(CHECK_AFTER);
        admission.lower(Ticks(0), under_way);
        admission
    }

    #[test]
    fn a_deadlock_halves_the_limit_once_in_a_pause() {
        let admission = Admission::new(CHECK_AFTER);
        assert!(!admission.is_limited());
        admission.lower(Ticks(0), 64);
        assert_eq!(admission.limit.get(), 32);
        admission.lower(Ticks(PAUSE - 1), 64);
        assert_eq!(admission.limit.get(), 32, "one of the same jam");
        admission.lower(Ticks(PAUSE), 64);
        assert_eq!(admission.limit.get(), 16);
        (2..20).for_each(|pause| admission.lower(Ticks(pause * PAUSE), 64));
        assert_eq!(admission.limit.get(), 1, "one goes on at least");
    }

    #[test]
    fn pauses_without_a_deadlock_raise_it_ever_faster_until_there_is_none() {
        let admission = limited(16);
        assert!(!admission.raise(Ticks(PAUSE - 1), 8));
        let limits: Vec<usize> = (1..5)
            .map(|pause| {
                assert!(admission.raise(Ticks(pause * PAUSE), 8));
                admission.limit.get()
            })
            .collect();
        assert_eq!(limits, [9, 11, 15, 23]);
        admission.lower(Ticks(4 * PAUSE + 1), 64);
        assert_eq!((admission.limit.get(), admission.increase.get()), (11, 1));
        // Nobody has asked for long.
        assert!(admission.raise(Ticks(40 * PAUSE), 8));
        assert!(!admission.is_limited());
    }

    #[test]
    fn a_crowd_sets_a_limit_where_there_is_none_and_pauses_lift_it() {
        let admission = Admission::new(CHECK_AFTER);
        admission.close(Ticks(0), CROWD);
        assert_eq!(admission.limit.get(), CROWD);
        admission.close(Ticks(1), 2 * CROWD);
        assert_eq!(admission.limit.get(), CROWD, "it waits for the pauses");
        assert!(admission.raise(Ticks(2 * PAUSE), 0));
        assert_eq!(admission.limit.get(), CROWD + 1 + 2);
        assert!(admission.raise(Ticks(40 * PAUSE), 0));
        assert!(!admission.is_limited());
    }

    #[test]
    fn a_pause_in_which_none_ends_makes_room_for_one_that_waits() {
        let admission = limited(8);
        assert_eq!(admission.next_raise(), None, "nobody waits");
        admission.waiting.borrow_mut().insert((true, 0), TaskId::NONE);
        assert_eq!(admission.next_raise(), Some(Ticks(PAUSE)));
        assert!(admission.raise(Ticks(PAUSE), 100));
        assert_eq!(admission.limit.get(), 101);
        assert!(admission.raise(Ticks(2 * PAUSE), 101));
        assert!(admission.limit.get() > 101);
    }
}
