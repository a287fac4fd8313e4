//! Joins the runtime's huge pages to the trees of the storage, as the engine does for its own, so that the bare tree is
//! measured in the memory it has in a database.
//!
//! Owns: [`TreeMemory`]. Never: does anything else. Sound because a chunk of `HugeChunks` is fresh pages of at least the
//! size and alignment asked for that stay mapped until they are freed.

#![expect(
    unsafe_code,
    reason = "the storage takes its memory through an unsafe trait, and only this file implements it"
)]

use std::alloc::Layout;
use std::ptr::NonNull;

use atrapos_runtime::memory::HugeChunks;
use atrapos_storage::Memory;

/// Memory for a tree, in huge pages where they can be had.
#[derive(Debug, Default)]
pub(super) struct TreeMemory(HugeChunks);

// SAFETY: `HugeChunks` maps fresh pages for every chunk, of at least the size and alignment asked for, and unmaps them only
// when they are freed.
unsafe impl Memory for TreeMemory {
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.0.allocate(layout.size(), layout.align(), None).ok()
    }

    unsafe fn free(&self, address: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller promises that the chunk came from `allocate` with this layout and that nothing uses it.
        unsafe { self.0.free(address, layout.size()) };
    }
}
