//! Planted bugs of the log, which prove that its tests can fail.
//!
//! Owns: the list of deliberate mistakes, and the switch that turns one of them on for the current thread, and for the daemon
//! of a log that this thread starts. Never: changes anything in a build without debug assertions, where
//! [`planted`] is a constant and folds away.
//!
//! Invariant: each bug has a test that detects it (`tests/it/log`, or `loom_models.rs`, which names the bug to a
//! child process by the variable `ATRAPOS_PLANTED_BUG`).

use crate::primitives::Ordering;

/// One deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The daemon writes what is reserved, whether it is filled or not.
    HolesWritten,
    /// Records are acknowledged when they are written, before the sync.
    ToldBeforeSync,
    /// The log goes on after a sync that has failed.
    FailureForgotten,
    /// The checksum of a record does not depend on its position.
    PositionNotChecked,
    /// The space of records is given away again before they are written.
    SpaceFreedEarly,
    /// The leader of a group opens its slot again although members still look for their position. (loom)
    SlotReopenedEarly,
    /// The position of a group is published with a relaxed store. (loom)
    BasePublishedRelaxed,
    /// A member of a group that joins does not count. (loom)
    MemberNotCounted,
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

/// The ordering at a place where a bug may be planted: the sound one, or relaxed.
#[inline(always)]
pub(super) fn ordering(bug: Bug, sound: Ordering) -> Ordering {
    if planted(bug) { Ordering::Relaxed } else { sound }
}

/// Returns `run` with the bug of this thread planted in it as well.
pub(super) fn inherited<R>(run: impl FnOnce() -> R) -> impl FnOnce() -> R {
    #[cfg(all(debug_assertions, not(loom)))]
    {
        let bug = switched::current();
        move || match bug {
            Some(bug) => with(bug, run),
            None => run(),
        }
    }
    #[cfg(not(all(debug_assertions, not(loom))))]
    run
}

#[cfg(all(debug_assertions, not(loom)))]
pub use switched::{planted, with};

#[cfg(all(debug_assertions, not(loom)))]
mod switched {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Returns true if the bug is planted in this thread now.
    #[inline]
    pub fn planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }

    /// The bug that is planted in this thread.
    pub(in super::super) fn current() -> Option<Bug> {
        PLANTED.get()
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
