//! The synchronization primitives of this crate's lock-free code, from `std` or from loom's model checker.
//!
//! Owns: nothing. Never: adds behaviour of its own. Invariant: code that is modelled (`ring`, `park`, `inbox`, `oneshot`,
//! `published`, `waker`) takes its atomics, fences, locks and threads from here, so that what loom explores is what runs.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc, Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8, AtomicUsize, fence},
};
#[cfg(not(loom))]
pub(crate) use std::thread;

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc, Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8, AtomicUsize, fence},
};
#[cfg(loom)]
pub(crate) use loom::thread;

pub(crate) use std::sync::atomic::Ordering;

/// Locks a mutex whose holders never panic while they hold it; a poisoned one is taken as it is, because every
/// critical section of this crate leaves its data whole at each point where it could unwind.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Tells loom which thread touches which cells of raw memory; without loom it is nothing at all.
///
/// The rings keep their payloads in raw memory that loom cannot see. A shadow has one loom cell per granule of that
/// memory: each access to the memory is preceded by an access to its shadow, and loom reports a race on the shadow
/// exactly where there would be one on the memory.
pub(crate) struct Shadow {
    #[cfg(loom)]
    cells: Vec<loom::cell::UnsafeCell<()>>,
}

impl Shadow {
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn new(_cells: usize) -> Self {
        Self {}
    }

    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn access(&self, _first: usize, _count: usize) {}

    #[cfg(loom)]
    pub(crate) fn new(cells: usize) -> Self {
        Self { cells: (0..cells).map(|_| loom::cell::UnsafeCell::new(())).collect() }
    }

    /// Declares an exclusive access to `count` cells from `first` on.
    #[cfg(loom)]
    pub(crate) fn access(&self, first: usize, count: usize) {
        for cell in &self.cells[first..first + count] {
            cell.with_mut(|_| ());
        }
    }
}
