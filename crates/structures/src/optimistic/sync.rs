//! The atomics of the tree, from `std` or from loom's model checker, and the way to wait.
//!
//! Owns: nothing. Never: adds behaviour of its own to an atomic. Invariant: everything that threads share without a mutex is
//! made of these, so that what loom explores is what runs.

#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicU64, fence};
#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicU64, fence};

pub(super) use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Waits for another thread that is about to finish: at first busily, then by giving way, because the other one may have been
/// preempted.
#[derive(Default)]
pub(crate) struct Spin(u32);

impl Spin {
    /// Rounds before the thread gives way.
    #[cfg(not(loom))]
    const BUSY_ROUNDS: u32 = 128;

    /// Waits for a moment.
    #[cold]
    pub(crate) fn wait(&mut self) {
        self.0 += 1;
        #[cfg(loom)]
        loom::thread::yield_now();
        #[cfg(not(loom))]
        if self.0 <= Self::BUSY_ROUNDS {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}
