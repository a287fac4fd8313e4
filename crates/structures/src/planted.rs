//! Planted bugs, by which tests of the optimistic tree can be shown to fail, and pauses, which make rare interleavings frequent.
//!
//! Owns: the list of deliberate mistakes, and the switch that turns one of them on: for a thread, in builds with debug assertions; for a
//! process, in loom models. Never: changes anything in a release build, where [`planted`] is a constant.
//!
//! Invariant: each planted bug has a test that must fail with it: histories of threads (`optimistic/tests.rs`), or a loom model
//! (`optimistic/loom_models.rs`). Orderings and fences are checked by loom alone: processors that order stores hide what is missing.

use std::sync::atomic::Ordering;

/// One deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A search does not look at the version of a leaf again.
    LeafNotValidated,
    /// A descent does not look at the version of an inner node again.
    InnerNotValidated,
    /// A release of a latch leaves the version as it was.
    VersionKept,
    /// An update in place writes without holding up changes of the leaf.
    WritesUnannounced,
    /// A writer takes a latch whatever the version has become.
    LatchedBlindly,
    /// A descent for several keys does not look at the version of an inner node again.
    GroupInnerNotValidated,
    /// A search for several keys does not look at the version of a leaf again.
    GroupLeafNotValidated,
    /// A root that was split before its version was read is taken for the root.
    RootNotChecked,
    /// A reader leaves out the fence between what it has read and the version.
    ReaderFenceLeftOut,
    /// A writer leaves out the fence between taking the latch and what it writes.
    WriterFenceLeftOut,
    /// A version is read with a relaxed load.
    VersionReadRelaxed,
    /// A latch is taken with a relaxed exchange.
    LatchTakenRelaxed,
    /// A latch is released with a relaxed store.
    LatchReleasedRelaxed,
    /// An update in place ends with a relaxed store.
    WriteEndedRelaxed,
    /// The bytes of a key are written over without a fence behind the removal of the key that had them.
    BlockReusedUnfenced,
    /// A separator of two leaves has the bytes of a key that is in one of them.
    SeparatorNotCopied,
}

/// The ordering at a place where a bug may be planted: the sound one, or relaxed.
#[inline(always)]
pub(crate) fn ordering(bug: Bug, sound: Ordering) -> Ordering {
    if planted(bug) { Ordering::Relaxed } else { sound }
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
    const PAUSE_EVERY: u64 = 16;

    /// Returns true if the bug is planted in this thread now.
    #[inline]
    pub fn planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }

    /// Lets other threads run now and then, in threads that [`with`] has made pause.
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

    /// Runs `run` with the bug, if any, planted in this thread, and with pauses at moments that follow from the seed.
    pub fn with<R>(bug: Option<Bug>, seed: u64, run: impl FnOnce() -> R) -> R {
        struct Reset;
        impl Drop for Reset {
            fn drop(&mut self) {
                PLANTED.set(None);
                PAUSES.set(None);
            }
        }
        PLANTED.set(bug);
        PAUSES.set(Some(seed | 1));
        let _reset = Reset;
        run()
    }
}

pub(crate) use switch::pause;
pub use switch::planted;
#[cfg(all(debug_assertions, not(loom)))]
pub use switch::with;
