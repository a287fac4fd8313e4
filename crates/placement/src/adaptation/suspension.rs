//! The clock of adaptation, which stands still while adaptation is suspended, and the waits of the adapting thread on it.
//!
//! Owns: the clock, and what ends a wait. Never: looks at what was observed.
//!
//! Invariants: a turn that has begun ends before [`Adaptive::suspend`] returns, and none begins before the [`Suspension`] is dropped:
//! it keeps the scheme. What happens meanwhile takes no time on this clock, so a pause of the load within it is no change of the load.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use atrapos_runtime::Ticks;

use super::{Adaptive, Waited};

/// State of the waits of the adapting thread, and the time that has not passed for it.
#[derive(Debug, Default)]
pub(super) struct Wake {
    nudged: bool,
    /// The moment of the suspension that lasts.
    suspended: Option<Ticks>,
    /// The time of all suspensions before.
    skipped: Ticks,
}

impl Wake {
    /// Returns a moment of the workers' clock on that of adaptation.
    fn on_own_clock(&self, now: Ticks) -> Ticks {
        self.suspended.unwrap_or(now).since(self.skipped)
    }
}

/// Adaptation that stands still until this is dropped. The scheme stays as it is; statements, checkpoints and all else that needs the
/// scheme to stay, or changes it, wait.
#[must_use = "adaptation goes on when this is dropped"]
pub struct Suspension<'a> {
    adaptive: &'a Adaptive,
    _scheme: MutexGuard<'a, ()>,
}

impl std::fmt::Debug for Suspension<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Suspension").finish_non_exhaustive()
    }
}

impl Drop for Suspension<'_> {
    fn drop(&mut self) {
        let now = self.adaptive.handle.clock().now();
        let mut wake = self.adaptive.lock_wake();
        if let Some(from) = wake.suspended.take() {
            wake.skipped = wake.skipped.after(now.since(from));
        }
        drop(wake);
        self.adaptive.wake.1.notify_all();
    }
}

impl Adaptive {
    fn lock_wake(&self) -> MutexGuard<'_, Wake> {
        self.wake.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Suspends adaptation, after a turn that is under way.
    pub fn suspend(&self) -> Suspension<'_> {
        let scheme = self.keep_scheme();
        let now = self.handle.clock().now();
        self.lock_wake().suspended = Some(now);
        Suspension { adaptive: self, _scheme: scheme }
    }

    /// Returns true while adaptation is suspended.
    pub(super) fn is_suspended(&self) -> bool {
        self.lock_wake().suspended.is_some()
    }

    /// Returns the time on the clock of adaptation.
    pub(super) fn now(&self) -> Ticks {
        self.lock_wake().on_own_clock(self.handle.clock().now())
    }

    /// Returns the nanoseconds since the opening, on the clock of adaptation.
    pub(super) fn since_opening_ns(&self) -> u64 {
        self.handle.clock().ns(self.now().since(self.opened))
    }

    /// Waits until `time` has passed on the clock of adaptation, or until a nudge.
    pub(super) fn wait(&self, time: Duration) -> Waited {
        let clock = self.handle.clock();
        let mut wake = self.lock_wake();
        let until = wake.on_own_clock(clock.now()).after(clock.ticks(time));
        loop {
            if self.stopping.load(Ordering::SeqCst) {
                return Waited::Closing;
            }
            if std::mem::take(&mut wake.nudged) {
                return Waited::Nudged;
            }
            if wake.suspended.is_some() {
                wake = self.wake.1.wait(wake).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let left = until.since(wake.on_own_clock(clock.now()));
            if left == Ticks::ZERO {
                return Waited::Passed;
            }
            // A nanosecond more than the ticks, so that it is not woken just before.
            let left = Duration::from_nanos(clock.ns(left) + 1);
            wake = self.wake.1.wait_timeout(wake, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends the wait of the adapting thread.
    pub(super) fn nudge(&self) {
        self.lock_wake().nudged = true;
        self.wake.1.notify_all();
    }
}
