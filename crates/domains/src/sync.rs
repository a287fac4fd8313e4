//! The synchronization primitives of the inbox, from `std` or from loom's model checker.
//!
//! Owns: nothing. Invariant: what is modelled (`inbox`, `barrier`) takes its atomics, fences and cells from here, so that
//! what loom explores is what runs.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, fence},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, fence},
};

pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::Ordering;

/// Locks a mutex whose holders never panic while they hold it; a poisoned one is taken as it is, because every critical section
/// of this crate leaves its data whole at each point where it could unwind.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Raw memory that two threads hand to each other, watched by loom where it runs.
#[derive(Debug)]
pub(crate) struct Handed<T> {
    #[cfg(not(loom))]
    cell: std::cell::UnsafeCell<std::mem::MaybeUninit<T>>,
    #[cfg(loom)]
    cell: loom::cell::UnsafeCell<std::mem::MaybeUninit<T>>,
}

impl<T> Handed<T> {
    pub(crate) fn new() -> Self {
        #[cfg(not(loom))]
        let cell = std::cell::UnsafeCell::new(std::mem::MaybeUninit::uninit());
        #[cfg(loom)]
        let cell = loom::cell::UnsafeCell::new(std::mem::MaybeUninit::uninit());
        Self { cell }
    }

    /// The address of the memory, for the thread whose turn it is.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) fn address(&self) -> *mut u8 {
        self.cell.get().cast()
    }

    /// The address of the memory, for the thread whose turn it is; loom reports a race with any other access.
    #[cfg(loom)]
    pub(crate) fn address(&self) -> *mut u8 {
        self.cell.with_mut(|memory| memory.cast())
    }
}
