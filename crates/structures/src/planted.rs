//! Planted bugs, by which tests of the optimistic tree can be shown to fail, and pauses, which make rare interleavings frequent.
//!
//! Owns: the list of deliberate mistakes, and the switch that turns one of them on: for a thread, in builds with debug assertions. Never: changes anything in a release build, where [`planted`] is a constant.
//!
//! Invariant: histories of threads (`optimistic/tests.rs`) must fail with each planted bug.

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
}

#[cfg(any(not(debug_assertions), loom))]
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
