//! Planted bugs, which prove that the tests can fail.
//!
//! Owns: the list of deliberate mistakes and the switch that turns one on: for a thread, in builds with debug assertions, and
//! for a process, in loom models. Never: changes anything in a release build, where `planted` is a constant. Invariant: each
//! bug has a test or a model that detects it (`tests/it/planted.rs`, the unit tests of rings and frames, `loom_models.rs`).

use crate::sync::Ordering;

/// One deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A ring's producer publishes its records with a relaxed store. (loom)
    RingPublish,
    /// A ring's consumer hands space back with a relaxed store. (loom)
    RingRelease,
    /// The sleeper leaves out the fence between setting its sleep word and looking for arrivals. (loom)
    SleeperFence,
    /// The peer leaves out the fence between publishing and reading the sleep word. (loom)
    RingerFence,
    /// The consumer does not look whether the producer sleeps until there is room. (loom)
    RoomNotTold,
    /// The watcher reads its doorbell after it has looked who was rung for. (loom)
    BellReadLate,
    /// A record in a ring may be longer than what is published.
    RecordLengthTrusted,
    /// The checksum of a frame is not compared.
    ChecksumIgnored,
    /// The length of a frame is trusted.
    FrameLengthTrusted,
    /// What did not fit is sent after what was sent later.
    BacklogOvertaken,
    /// A channel of file descriptors is armed although its last wake-up has spent the registration.
    SpentNotRenewed,
    /// The identity of the deployment is not compared.
    DeploymentIgnored,
    /// The proof of the shared secret is not compared.
    ProofIgnored,
}

#[cfg(all(not(debug_assertions), not(loom)))]
mod switch {
    use super::Bug;

    /// Returns true if the bug is planted: never, in a release build.
    #[inline(always)]
    pub const fn planted(_bug: Bug) -> bool {
        false
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
}

#[cfg(all(debug_assertions, not(loom)))]
mod switch {
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

pub use switch::planted;
#[cfg(all(debug_assertions, not(loom)))]
pub use switch::with;

/// The ordering at a place where a bug may be planted: the sound one, or relaxed.
#[inline(always)]
pub(crate) fn ordering(bug: Bug, sound: Ordering) -> Ordering {
    if planted(bug) { Ordering::Relaxed } else { sound }
}
