//! Planted bugs of the lock manager and of the engine that uses it, which prove that its tests can fail.
//!
//! Owns: the list of deliberate mistakes, and the switch that turns one of them on for the current thread. Never: changes
//! anything in a build without debug assertions, where [`planted`] is a constant and folds away.
//!
//! Invariant: each bug has a test that detects it (`tests/it/lock`, `tests/it/two_phase.rs`, or `loom_models.rs`, which names the bug to a
//! child process by the variable `ATRAPOS_PLANTED_BUG`).

use crate::primitives::Ordering;

/// One deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A conflicting request passes over inherited locks instead of invalidating them.
    InheritedKept,
    /// A waiter does not mark the locks that it waits for: their owners pass them on without looking for it.
    HoldersNotMarked,
    /// A protected gap does not hold up insertions into it.
    InsertIntoProtected,
    /// A new request is granted before a conflicting one that has come earlier.
    WaiterOvertaken,
    /// An upgrade waits for the requests that have queued behind its own lock.
    UpgradeQueuesLast,
    /// Cycles are not searched for when an upgrade has to wait.
    UpgradeNotSearched,
    /// Waiting requests ahead in the queue are not followed in the search for cycles.
    QueueNotSearched,
    /// The oldest transaction of a cycle is aborted.
    OldestIsVictim,
    /// When a victim leaves a queue, those behind it are not looked at.
    VictimHoldsUpQueue,
    /// When a lock is released, those that wait for it are not looked at.
    ReleaseForgetsWaiters,
    /// A waiter goes to sleep without noticing that the answer has come. (loom)
    ParkOverwrites,
    /// A waiter that sleeps is answered and not woken. (loom)
    ParkedNotWoken,
    /// A lock is passed on with a relaxed store: who invalidates it does not see what was done under it. (loom)
    PassedOnRelaxed,
    /// A passed-on lock is taken without a compare-and-swap. (loom)
    ReclaimedBlindly,
    /// A blocked transaction does not fence between its waiting and its look at the others. (loom)
    BlockedWithoutFence,
    /// A scan locks the keys that it finds, and no gaps. (engine)
    ScansWithoutGaps,
    /// An insertion does not look again for the next key when its record is in the tree. (engine)
    InsertionNotLookedAtAgain,
    /// An insertion lets others insert into the gap below its key before it has looked for its next key again. (engine)
    NewGapShared,
    /// A removed row leaves the tree at once, before its transaction commits. (engine)
    RemovedAtOnce,
    /// A key that is found absent is not locked. (engine)
    AbsentNotLocked,
    /// An abort leaves rows as they are. (engine)
    UndoLeftOut,
}

/// Returns true if the bug is planted: never, in a release build.
#[cfg(not(any(loom, debug_assertions)))]
#[inline(always)]
pub const fn planted(_bug: Bug) -> bool {
    false
}

/// Returns true if this process was started to run with the bug.
#[cfg(loom)]
pub fn planted(bug: Bug) -> bool {
    static PLANTED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let planted = PLANTED.get_or_init(|| std::env::var("ATRAPOS_PLANTED_BUG").ok());
    planted.as_deref().is_some_and(|name| name == format!("{bug:?}"))
}

/// A place between the first look of an insertion for the next key and its record in the tree, for tests.
#[cfg(not(all(debug_assertions, not(loom))))]
#[inline(always)]
pub(crate) fn between_looks() {}

/// The ordering at a place where a bug may be planted: the sound one, or relaxed.
#[inline(always)]
pub(super) fn ordering(bug: Bug, sound: Ordering) -> Ordering {
    if planted(bug) { Ordering::Relaxed } else { sound }
}

#[cfg(all(debug_assertions, not(loom)))]
pub(crate) use switched::between_looks;
#[cfg(all(debug_assertions, not(loom)))]
pub use switched::{planted, with, with_between_looks};

#[cfg(all(debug_assertions, not(loom)))]
mod switched {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
        static BETWEEN_LOOKS: Cell<Option<Box<dyn FnOnce()>>> = const { Cell::new(None) };
    }

    /// Runs what a test does between the looks of an insertion of this thread, once.
    pub(crate) fn between_looks() {
        if let Some(act) = BETWEEN_LOOKS.take() {
            act();
        }
    }

    /// Runs `run`, and `act` within its first insertion, between the first look for the next key and the record in the tree.
    pub fn with_between_looks<R>(act: impl FnOnce() + 'static, run: impl FnOnce() -> R) -> R {
        BETWEEN_LOOKS.set(Some(Box::new(act)));
        run()
    }

    /// Returns true if the bug is planted in this thread now.
    #[inline]
    pub fn planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }

    /// Runs `run` with the bug planted in this thread.
    pub fn with<R>(bug: Bug, run: impl FnOnce() -> R) -> R {
        struct Reset;
        impl Drop for Reset {
            fn drop(&mut self) {
                PLANTED.set(None);
            }
        }
        PLANTED.set(Some(bug));
        let _reset = Reset;
        run()
    }
}
