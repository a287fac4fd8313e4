//! Planted bugs, which prove that the tests can fail, and pauses, which make rare interleavings frequent.
//!
//! Owns: the list of deliberate mistakes and the switch that turns one on: for a thread, in builds with debug assertions, and
//! for a process, in loom models. Never: changes anything in a release build, where `planted` is a constant and `pause` is
//! empty. Invariant: each bug has a test or a model that detects it (`tests/it/occ/planted.rs`, `occ/loom_models.rs`).

/// One deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A commit does not validate the leaves that were searched: phantoms.
    NodesNotValidated,
    /// A commit does not validate the rows that were read: lost updates, write skew.
    ReadsNotValidated,
    /// A reader does not look at the TID again after it has copied a row: torn rows.
    TornReads,
    /// A reader, and a commit, take a record that is no longer in its tree for the newest state of its key.
    ObsoleteIgnored,
    /// An insertion into a leaf that the transaction has searched itself takes over the newest version of the leaf, although
    /// others have changed it between.
    OwnInsertHidesOthers,
    /// An abort leaves the rows that it has inserted.
    InsertsKept,
    /// A reader of a row leaves out the fence between the copy and the second look at the TID.
    CopyFenceLeftOut,
    /// A writer of a row leaves out the fence between the lock and the copy.
    OverwriteFenceLeftOut,
    /// A commit leaves out the fence between its locks and its validation.
    CommitFenceLeftOut,
    /// A search does not look at the version of a leaf again.
    LeafNotValidated,
    /// A descent does not look at the version of an inner node again.
    InnerNotValidated,
    /// A leaf is removed although somebody has inserted into it after it was found empty.
    EmptinessNotChecked,
}

#[cfg(all(not(debug_assertions), not(loom)))]
mod switch {
    use super::Bug;

    /// Returns true if the bug is planted: never, in a release build.
    #[inline(always)]
    pub const fn planted(_bug: Bug) -> bool {
        false
    }

    /// Lets other threads run now and then; does nothing in a release build.
    #[inline(always)]
    pub(crate) fn pause() {}

    /// Runs `run`: there are no pauses in a release build.
    pub fn with_pauses<R>(_seed: u64, run: impl FnOnce() -> R) -> R {
        run()
    }
}

#[cfg(loom)]
mod switch {
    use super::Bug;

    /// Returns true if this process was started to run with the bug.
    pub fn planted(bug: Bug) -> bool {
        static PLANTED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
        let planted = PLANTED.get_or_init(|| std::env::var("ATRAPOS_PLANTED_BUG").ok());
        planted.as_deref().is_some_and(|name| name == format!("{bug:?}"))
    }

    /// Does nothing: loom switches threads itself.
    #[inline(always)]
    pub(crate) fn pause() {}
}

#[cfg(all(debug_assertions, not(loom)))]
mod switch {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
        static PAUSES: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// One in so many pauses gives way to another thread.
    const PAUSE_EVERY: u64 = 32;

    /// Returns true if the bug is planted in this thread now.
    #[inline]
    pub fn planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }

    /// Lets other threads run now and then, in threads that [`with_pauses`] has made pause.
    #[inline]
    pub(crate) fn pause() {
        let Some(mut state) = PAUSES.get() else { return };
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        PAUSES.set(Some(state));
        if state.is_multiple_of(PAUSE_EVERY) {
            std::thread::yield_now();
        }
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

    /// Runs `run` with pauses in this thread, at moments that follow from the seed.
    pub fn with_pauses<R>(seed: u64, run: impl FnOnce() -> R) -> R {
        struct Reset;
        impl Drop for Reset {
            fn drop(&mut self) {
                PAUSES.set(None);
            }
        }
        PAUSES.set(Some(seed | 1));
        let _reset = Reset;
        run()
    }
}

pub(crate) use switch::pause;
pub use switch::planted;
#[cfg(all(debug_assertions, not(loom)))]
pub use switch::with;
#[cfg(not(loom))]
pub use switch::with_pauses;
