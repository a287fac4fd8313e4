//! The doorbell: one word per process, in memory that all its peers map, on which its watcher sleeps.
//!
//! Owns: the word, and the system calls that sleep and wake on it. Never: says for whom it rang (`sleep`).
//!
//! # Protocol
//! Whoever rings first marks the sleep word of a side as rung, then increments the bell with release. The watcher reads
//! the bell with acquire, looks for sides that were rung for, and sleeps only if the bell has not changed since. So a mark that
//! it did not see has changed the bell. (loom: `sleep_through_the_bell`.)
//!
//! A process that may ring may also sleep on the word: all sleepers are woken, so that it takes nobody's wake-up.

#[cfg(not(loom))]
use crate::memory::{Memory, PAGE_BYTES};
use crate::planted::{Bug, planted};
use crate::sync::{AtomicU32, Ordering};

/// A doorbell of this process or of a peer.
pub(crate) struct Bell {
    #[cfg(not(loom))]
    memory: Memory,
    #[cfg(loom)]
    futex: futex::Futex,
}

/// What a bell showed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rings(u32);

impl Bell {
    /// Bytes of memory of a bell.
    #[cfg(not(loom))]
    pub(crate) const BYTES: usize = PAGE_BYTES;

    /// The bell in memory that is shared, zero at first.
    #[cfg(not(loom))]
    pub(crate) fn in_mapping(memory: Memory) -> Self {
        Self { memory }
    }

    /// A bell between threads of a model.
    #[cfg(all(loom, test))]
    pub(crate) fn in_model() -> Self {
        Self { futex: futex::Futex::new() }
    }

    #[cfg(not(loom))]
    fn word(&self) -> &AtomicU32 {
        // SAFETY: the memory is a page, aligned, and lives as long as `self`; an atomic may have any bytes, whoever writes them.
        unsafe { self.memory.base().cast::<AtomicU32>().as_ref() }
    }

    #[cfg(loom)]
    fn word(&self) -> &AtomicU32 {
        self.futex.word()
    }

    /// Wakes the watcher, or keeps it from falling asleep.
    #[cold]
    pub(crate) fn ring(&self) {
        self.word().fetch_add(1, Ordering::Release);
        self.wake();
    }

    /// What the bell shows now.
    pub(crate) fn rings(&self) -> Rings {
        Rings(self.word().load(Ordering::Acquire))
    }

    /// Sleeps until the bell shows something else. May return early without a reason.
    pub(crate) fn wait(&self, seen: Rings) {
        let seen = if planted(Bug::BellReadLate) { self.rings() } else { seen };
        self.sleep(seen);
    }

    #[cfg(not(loom))]
    fn wake(&self) {
        // Failure is impossible with an address that is mapped, and there is nobody to tell.
        let _woken =
            rustix::thread::futex::wake(self.word(), rustix::thread::futex::Flags::empty(), i32::MAX as u32);
    }

    #[cfg(not(loom))]
    fn sleep(&self, seen: Rings) {
        // The ways to fail are the reasons to return: another value, a signal.
        let _woken =
            rustix::thread::futex::wait(self.word(), rustix::thread::futex::Flags::empty(), seen.0, None);
    }

    #[cfg(loom)]
    fn wake(&self) {
        self.futex.wake();
    }

    #[cfg(loom)]
    fn sleep(&self, seen: Rings) {
        self.futex.wait(seen.0);
    }
}

/// The kernel's sleep on a word, as a model: it compares and falls asleep in one step.
#[cfg(loom)]
mod futex {
    use crate::sync::{AtomicU32, Ordering};

    pub(super) struct Futex {
        word: AtomicU32,
        queue: loom::sync::Mutex<()>,
        woken: loom::sync::Condvar,
    }

    impl Futex {
        #[cfg(test)]
        pub(super) fn new() -> Self {
            Self {
                word: AtomicU32::new(0),
                queue: loom::sync::Mutex::new(()),
                woken: loom::sync::Condvar::new(),
            }
        }

        pub(super) fn word(&self) -> &AtomicU32 {
            &self.word
        }

        pub(super) fn wait(&self, seen: u32) {
            let queue = self.queue.lock().expect("no holder panics");
            if self.word.load(Ordering::Relaxed) == seen {
                drop(self.woken.wait(queue).expect("no holder panics"));
            }
        }

        pub(super) fn wake(&self) {
            drop(self.queue.lock().expect("no holder panics"));
            self.woken.notify_all();
        }
    }
}
