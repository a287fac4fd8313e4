//! Memory: where the pages and the long rows of trees come from.
//!
//! Owns the [`Memory`] seam (a provider may place chunks on a NUMA node or ask for huge pages) and the default providers.
//! The modules below own the sets of chunks, and what one tree takes of them: pages for its nodes and extents for its long
//! rows. It never looks inside what it hands out.

mod chunks;
mod extents;
mod pages;

pub(crate) use extents::Extent;
pub(crate) use pages::Pages;

use std::alloc::Layout;
use std::ptr::NonNull;
use thiserror::Error;

/// The provider of memory had none left. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("no memory is left for {bytes} more bytes of tables; free some, or store fewer or smaller rows")]
pub struct OutOfMemory {
    /// The bytes that were asked for.
    pub bytes: usize,
}

/// A source of large chunks of memory, shared by any number of trees on any threads.
///
/// Chunks are between 64 KiB and 2 MiB; those of 2 MiB are aligned to 2 MiB, so that a provider may ask the
/// operating system to back them by huge pages.
///
/// # Safety
/// `allocate` returns memory that is valid for reads and writes, aligned and of the size of the layout, used by
/// nobody else, and that stays so until `free` is called with the same address and layout.
pub unsafe trait Memory: Send + Sync {
    /// Memory for `layout`, whose size is never zero; `None` when there is none.
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>>;

    /// Gives back what `allocate` returned.
    ///
    /// # Safety
    /// `address` was returned by `allocate` of this provider for the same `layout`, was not freed since, and nothing
    /// uses it any more.
    unsafe fn free(&self, address: NonNull<u8>, layout: Layout);

    /// The memory node that chunks are on, where there is a choice; always the same.
    fn node(&self) -> Option<usize> {
        None
    }
}

/// Memory from the global allocator of the program.
#[derive(Debug, Clone, Copy, Default)]
pub struct HeapMemory;

// SAFETY: the global allocator promises exactly what the trait asks for.
unsafe impl Memory for HeapMemory {
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: chunk layouts never have size zero.
        NonNull::new(unsafe { std::alloc::alloc(layout) })
    }

    unsafe fn free(&self, address: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller promises that `allocate` returned this address for this layout.
        unsafe { std::alloc::dealloc(address.as_ptr(), layout) };
    }
}

/// Memory from the global allocator of the program, as long as somebody permits it: for limits, and for tests of what happens
/// without memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct RationedMemory<F> {
    permits: F,
}

impl<F: Fn(usize) -> bool> RationedMemory<F> {
    /// Memory for every chunk for which `permits`, given its size in bytes, says yes.
    pub fn new(permits: F) -> RationedMemory<F> {
        RationedMemory { permits }
    }
}

// SAFETY: what is permitted is handed through to `HeapMemory`.
unsafe impl<F: Fn(usize) -> bool + Send + Sync> Memory for RationedMemory<F> {
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        (self.permits)(layout.size()).then(|| HeapMemory.allocate(layout)).flatten()
    }

    unsafe fn free(&self, address: NonNull<u8>, layout: Layout) {
        // SAFETY: the promise of the caller, as every address came from `HeapMemory`.
        unsafe { HeapMemory.free(address, layout) };
    }
}
