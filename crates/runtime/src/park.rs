//! Sleep of idle workers, without a lost wake-up, and the time that they spin before.
//!
//! Owns: the sleep flag of each worker and the adaptive spin budget. Never: polls periodically; a parked thread is
//! woken by whoever publishes something for one of its workers, or by their earliest deadline. No unsafe code.
//!
//! # Protocol
//! The sleeper sets its flag, fences, looks for work once more, and only then parks. A publisher publishes, fences, and
//! reads the flag. Both fences are sequentially consistent, so of the two, at least one sees what the other wrote: the
//! sleeper finds the work, or the publisher finds the flag. (loom: `park_*`.)
//!
//! A thread of several workers has a flag for each of them and sleeps in all at once: it raises all flags before its fence, and
//! looks for work of all workers after it. So a publisher does the same whether or not its receiver has a thread of its own,
//! and reads no state that several workers have in common. Two publishers that find two flags both wake the thread, the second
//! one for nothing. (loom: `park_in_all`.)
//!
//! A pump that shares its thread with the tasks of a host (`host.rs`) sleeps as a task: by the same protocol, with the waker of its task
//! in place of the thread. A wake between the last look and the suspension finds the task running, and has it polled again.

use std::future::poll_fn;
use std::sync::OnceLock;
use std::task::{Poll, Waker};
use std::thread::yield_now;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::clock::Ticks;
use crate::host::LocalFuture;
use crate::planted::{Bug, planted};
use crate::sync::{AtomicBool, Ordering, fence, thread};

/// A place where one thread sleeps; a thread may have several.
pub struct Parker {
    /// Set by the sleeper, reset by the sleeper or by whoever wakes it. Alone on its cache line: publishers read it.
    sleeping: CachePadded<AtomicBool>,
    sleeper: OnceLock<Sleeper>,
}

/// The one who sleeps in a place.
enum Sleeper {
    Thread(thread::Thread),
    Task(Waker),
}

impl std::fmt::Debug for Parker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parker").finish_non_exhaustive()
    }
}

impl Default for Parker {
    fn default() -> Self {
        Self::new()
    }
}

impl Parker {
    /// A place where nobody sleeps yet.
    #[must_use]
    pub fn new() -> Self {
        Self { sleeping: CachePadded::new(AtomicBool::new(false)), sleeper: OnceLock::new() }
    }

    /// Declares the calling thread the one that sleeps here. Has effect once.
    pub fn adopt_current_thread(&self) {
        self.sleeper.get_or_init(|| Sleeper::Thread(thread::current()));
    }

    /// Declares a task the one that sleeps here: its waker, which has to stay the same. Has effect once.
    pub(crate) fn adopt_task(&self, waker: &Waker) {
        self.sleeper.get_or_init(|| Sleeper::Task(waker.clone()));
    }

    /// Sleeps until woken or until the timeout, unless `has_work` finds something once the flag is up. Returns whether
    /// it slept. May return early without a reason.
    pub fn park(&self, has_work: impl FnOnce() -> bool, timeout: Option<Duration>) -> bool {
        Self::park_in_all(std::iter::once(self), has_work, timeout)
    }

    /// Sleeps like [`park`](Self::park) in several places at once, each of which the calling thread has adopted: a wake in any of
    /// them ends it.
    pub fn park_in_all<'a>(
        places: impl Iterator<Item = &'a Self> + Clone,
        has_work: impl FnOnce() -> bool,
        timeout: Option<Duration>,
    ) -> bool {
        let sleep = Self::raise(places.clone(), has_work);
        if sleep {
            park_thread(timeout);
        }
        Self::lower(places);
        sleep
    }

    /// Suspends the calling task like [`park_in_all`](Self::park_in_all) does its thread, in places that the task has adopted;
    /// `timeout` is ready when it is to end in any case.
    pub(crate) async fn suspend_in_all<'a>(
        places: impl Iterator<Item = &'a Self> + Clone,
        has_work: impl FnOnce() -> bool,
        mut timeout: Option<LocalFuture>,
    ) -> bool {
        let sleep = Self::raise(places.clone(), has_work);
        if sleep {
            let mut suspended = false;
            poll_fn(|context| {
                let over = timeout.as_mut().is_some_and(|timeout| timeout.as_mut().poll(context).is_ready());
                if std::mem::replace(&mut suspended, true) || over { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
        Self::lower(places);
        sleep
    }

    /// Raises the flags of these places, and looks for work. Returns whether the caller is to sleep.
    fn raise<'a>(places: impl Iterator<Item = &'a Self>, has_work: impl FnOnce() -> bool) -> bool {
        let raised = if planted(Bug::ParkOneFlag) { 1 } else { usize::MAX };
        for place in places.take(raised) {
            place.sleeping.store(true, Ordering::Relaxed);
        }
        if !planted(Bug::ParkSleeperFence) {
            fence(Ordering::SeqCst);
        }
        planted(Bug::ParkRecheck) || !has_work()
    }

    fn lower<'a>(places: impl Iterator<Item = &'a Self>) {
        for place in places {
            place.sleeping.store(false, Ordering::Relaxed);
        }
    }

    /// Wakes the sleeper if it sleeps. Whatever it is to find has been published before.
    pub fn wake(&self) {
        if !planted(Bug::ParkWakerFence) {
            fence(Ordering::SeqCst);
        }
        self.wake_after_fence();
    }

    /// Wakes like [`wake`](Self::wake), for a caller that has fenced since it published.
    #[inline]
    pub fn wake_after_fence(&self) {
        if self.sleeping.load(Ordering::Relaxed) {
            self.unpark();
        }
    }

    #[cold]
    fn unpark(&self) {
        // Later publishers need not pay for the system call as well. If the sleeper sets its flag again meanwhile, it
        // looks for work after that, and this wake-up comes as a spurious one.
        self.sleeping.store(false, Ordering::Relaxed);
        match self.sleeper.get() {
            Some(Sleeper::Thread(thread)) => thread.unpark(),
            Some(Sleeper::Task(waker)) => waker.wake_by_ref(),
            None => {}
        }
    }
}

#[cfg(not(loom))]
fn park_thread(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => thread::park_timeout(timeout),
        None => thread::park(),
    }
}

#[cfg(loom)]
fn park_thread(_timeout: Option<Duration>) {
    thread::park();
}

/// The time for which an idle worker keeps looking before it sleeps: longer where short waits are common, shorter where
/// they are not.
pub(crate) struct SpinBudget {
    now: Ticks,
    max: Ticks,
    /// Set with more workers than processing units: let others run instead of waiting busily.
    oversubscribed: bool,
}

impl SpinBudget {
    pub(crate) fn new(max: Ticks, oversubscribed: bool) -> Self {
        Self { now: Ticks(max.0 / 4), max, oversubscribed }
    }

    /// Returns whether a worker that has been idle for this long should still spin.
    pub(crate) fn allows(&self, idle: Ticks) -> bool {
        idle < self.now
    }

    /// Waits for a moment within the budget.
    pub(crate) fn pause(&self) {
        if self.oversubscribed {
            yield_now();
        } else {
            std::hint::spin_loop();
        }
    }

    /// Learns from how long a sleep took: one that spinning a little longer would have saved was a mistake.
    pub(crate) fn learn(&mut self, slept: Ticks) {
        let now = if slept < self.max { self.now.0.saturating_mul(2) } else { self.now.0 / 2 };
        self.now = Ticks(now.clamp(self.max.0 / 16, self.max.0));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_spin_budget_follows_what_sleeps_cost() {
        let mut budget = SpinBudget::new(Ticks(1600), false);
        for _ in 0..10 {
            budget.learn(Ticks(10));
        }
        assert!(
            budget.allows(Ticks(1599)) && !budget.allows(Ticks(1600)),
            "short sleeps raise it to its bound"
        );
        for _ in 0..10 {
            budget.learn(Ticks(1_000_000));
        }
        assert!(budget.allows(Ticks(99)) && !budget.allows(Ticks(100)), "long ones lower it to a sixteenth");
    }

    #[test]
    fn nobody_sleeps_on_work() {
        let parker = Parker::new();
        parker.adopt_current_thread();
        assert!(!parker.park(|| true, None));
        assert!(parker.park(|| false, Some(Duration::from_millis(1))));
        // A wake between raising the flag and parking is kept.
        assert!(parker.park(
            || {
                parker.wake();
                false
            },
            None
        ));
    }
}
