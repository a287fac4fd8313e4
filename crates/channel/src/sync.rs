//! The synchronization primitives of the ring and of the protocol of sleeping, from `std` or from loom's model checker.
//!
//! Owns: nothing. Never: adds behaviour of its own. Invariant: code that is modelled (`ring`, `sleep`, `bell`) takes its
//! atomics and fences from here, so that what loom explores is what runs.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, fence};

pub(crate) use std::sync::atomic::Ordering;

/// Tells loom which thread touches which words of raw memory; without loom it is nothing at all.
///
/// A ring keeps its messages in raw memory that loom cannot see. A shadow has one loom cell per word of that memory: each
/// access to the memory is preceded by one to its shadow, and loom reports a race on the shadow exactly where there would
/// be one on the memory.
#[derive(Default)]
pub(crate) struct Shadow {
    #[cfg(loom)]
    cells: Vec<loom::cell::UnsafeCell<()>>,
}

impl Shadow {
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) fn new(_words: usize) -> Self {
        Self {}
    }

    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) fn access(&self, _byte: usize, _bytes: usize) {}

    #[cfg(loom)]
    pub(crate) fn new(words: usize) -> Self {
        Self { cells: (0..words).map(|_| loom::cell::UnsafeCell::new(())).collect() }
    }

    /// Declares an exclusive access to the words of `bytes` bytes from `byte` on.
    #[cfg(loom)]
    pub(crate) fn access(&self, byte: usize, bytes: usize) {
        for cell in &self.cells[byte / 8..(byte + bytes).div_ceil(8)] {
            cell.with_mut(|_| ());
        }
    }
}
