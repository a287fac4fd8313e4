//! Adapter from the memory of the runtime (huge pages, placement near a worker) to the trees of the storage.

#![expect(
    unsafe_code,
    reason = "the storage takes its memory through an unsafe trait, and only this file knows both sides of it"
)]

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Arc;

use atrapos_runtime::memory::HugeChunks;
use atrapos_storage::Memory;

/// Memory for trees in huge pages where they can be had, preferably from one memory node: that of the worker that owns them.
#[derive(Debug)]
pub struct TreeMemory {
    chunks: Arc<HugeChunks>,
    node: Option<usize>,
}

impl TreeMemory {
    /// Memory from `chunks`, preferably of memory node `node`.
    #[must_use]
    pub fn new(chunks: Arc<HugeChunks>, node: Option<usize>) -> TreeMemory {
        TreeMemory { chunks, node }
    }
}

// SAFETY: `HugeChunks` maps fresh pages for every chunk, of at least the size and alignment asked for, and unmaps them only
// when they are freed.
unsafe impl Memory for TreeMemory {
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.chunks.allocate(layout.size(), layout.align(), self.node).ok()
    }

    unsafe fn free(&self, address: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller promises that the chunk came from `allocate` with this layout and that nothing uses it.
        unsafe { self.chunks.free(address, layout.size()) };
    }
}
