//! The synchronization primitives of the lock manager and the log, from `std` or from loom's model checker.
//!
//! Owns: nothing. Never: adds behaviour of its own. Invariant: code that is modelled takes its atomics, fences, locks and
//! threads from here, so that what loom explores is what runs.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicU32, AtomicU64, fence},
};
#[cfg(not(loom))]
pub(crate) use std::thread;

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicU32, AtomicU64, fence},
};
#[cfg(loom)]
pub(crate) use loom::thread;

pub(crate) use std::sync::atomic::Ordering;

/// Locks a mutex whose holders never panic while they hold it; a poisoned one is taken as it is, because every
/// critical section of this crate leaves its data whole at each point where it could unwind.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Waits a moment for another thread that is running; loom, which has no such moments, lets the other thread run.
#[inline(always)]
pub(crate) fn pause() {
    #[cfg(not(loom))]
    std::hint::spin_loop();
    #[cfg(loom)]
    thread::yield_now();
}

/// Tells loom that the thread has exclusive access to memory that loom cannot see; without loom it is nothing at all.
#[derive(Default)]
pub(crate) struct Shadow {
    #[cfg(loom)]
    cell: loom::cell::UnsafeCell<()>,
}

impl Shadow {
    /// Declares an exclusive access: loom reports two that are not ordered.
    #[inline(always)]
    pub(crate) fn access(&self) {
        #[cfg(loom)]
        self.cell.with_mut(|_| ());
    }
}
