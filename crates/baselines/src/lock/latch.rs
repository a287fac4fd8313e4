//! The latch of a bucket of the lock table: one word, held for some tens of instructions.
//!
//! Owns: the word. Never: puts its waiters to sleep in the kernel; a holder that is not running gets the processor by their
//! yielding. Invariant: whoever holds a latch waits for no other latch, except the search for deadlocks, of which one
//! runs at a time.

use crate::primitives::{AtomicU32, Ordering, Shadow, pause, thread};

/// The times that a latch is looked at before the processor is given to others: longer than a critical section lasts.
const SPINS: u32 = 64;

/// A latch.
#[derive(Default)]
pub(super) struct Latch {
    word: AtomicU32,
    shadow: Shadow,
}

impl Latch {
    /// Takes the latch.
    #[inline(always)]
    pub(super) fn lock(&self) {
        if self.word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_slow();
        }
        self.shadow.access();
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self) {
        let mut spins = 0;
        loop {
            // Looked at before it is written, so that the waiters share the line while they wait.
            if self.word.load(Ordering::Relaxed) == 0
                && self.word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return;
            }
            spins += 1;
            if spins < SPINS {
                pause();
            } else {
                thread::yield_now();
            }
        }
    }

    /// Releases the latch, which the caller holds.
    #[inline(always)]
    pub(super) fn unlock(&self) {
        self.shadow.access();
        self.word.store(0, Ordering::Release);
    }
}
