//! Chunks: what trees have taken from a provider of memory, kept alive as long as any of them may use it.
//!
//! Owns the list of chunks. It never looks inside a chunk, and knows nothing of pages and extents.
//!
//! Invariants: a chunk lives as long as any tree that may have a page or an extent in it, but for those that such a tree
//! gives back because nothing of them is in use.

use super::extents::Block;
use super::{Memory, OutOfMemory};
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Arc;

/// The first chunk of a tree, in bytes; each further one has twice the size of the one before.
pub(super) const SMALLEST_CHUNK_BYTES: usize = 64 << 10;
/// The largest chunk, in bytes; also its alignment: the huge page of the common architectures.
pub(super) const LARGEST_CHUNK_BYTES: usize = 2 << 20;

struct Chunk {
    address: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a chunk is a plain address and a size; whose turn it is to use the memory is decided by the trees.
unsafe impl Send for Chunk {}

#[expect(
    clippy::disallowed_types,
    reason = "trees split from one another share the list and may live on different threads; it is locked once per \
              chunk, never on the path of an access"
)]
type Held = std::sync::Mutex<Contents>;

/// What a set has.
#[derive(Default)]
struct Contents {
    chunks: Vec<Chunk>,
    /// Pages that trees have given back to the set, when they went to another memory node.
    pages: Vec<FreePage>,
    /// The same of free blocks for extents, each with its order.
    blocks: Vec<(Block, usize)>,
}

/// The address of a page that nothing uses.
struct FreePage(NonNull<u8>);

// SAFETY: it is a plain address; who takes it from the list has it alone.
unsafe impl Send for FreePage {}

/// The chunks one tree and all that were split from it have taken from a provider.
pub(super) struct ChunkSet {
    pub(super) memory: Arc<dyn Memory>,
    held: Held,
}

impl ChunkSet {
    pub(super) fn new(memory: Arc<dyn Memory>) -> ChunkSet {
        ChunkSet { memory, held: Held::default() }
    }

    /// The memory node of the chunks, where there is a choice.
    pub(super) fn node(&self) -> Option<usize> {
        self.memory.node()
    }

    fn lock(&self) -> impl std::ops::DerefMut<Target = Contents> + '_ {
        // It is whole after every single operation, so a panic elsewhere while it was held did no harm.
        self.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A further chunk of `bytes` bytes at a multiple of `align`; the largest is aligned to its size in any case.
    pub(super) fn allocate(&self, bytes: usize, align: usize) -> Result<NonNull<u8>, OutOfMemory> {
        let align = if bytes >= LARGEST_CHUNK_BYTES { LARGEST_CHUNK_BYTES } else { align };
        let layout = Layout::from_size_align(bytes, align).map_err(|_| OutOfMemory { bytes })?;
        let chunks = &mut self.lock().chunks;
        // The entry is made first: once the memory is there, nothing may fail that would leak it.
        chunks.try_reserve(1).map_err(|_| OutOfMemory { bytes })?;
        let address = self.memory.allocate(layout).ok_or(OutOfMemory { bytes })?;
        chunks.push(Chunk { address, layout });
        Ok(address)
    }

    /// Returns whether `page` is an address where a page of `page_bytes` can be in one of the chunks.
    pub(super) fn holds(&self, page: usize, page_bytes: usize) -> bool {
        self.lock().chunks.iter().any(|chunk| {
            let start = chunk.address.addr().get();
            page >= start
                && page + page_bytes <= start + chunk.layout.size()
                && (page - start).is_multiple_of(page_bytes)
        })
    }

    /// Returns whether all of `bytes` bytes at `address` are in one of the chunks.
    pub(super) fn holds_bytes(&self, address: usize, bytes: usize) -> bool {
        self.lock().chunks.iter().any(|chunk| {
            let start = chunk.address.addr().get();
            address >= start && address - start + bytes <= chunk.layout.size()
        })
    }

    /// Keeps a page of one of the chunks that nothing uses any more, for trees that take pages from the set.
    pub(super) fn put_back(&self, page: NonNull<u8>) {
        self.lock().pages.push(FreePage(page));
    }

    /// Takes up to `wanted` pages that were put back.
    pub(super) fn take_back(&self, wanted: usize) -> Vec<NonNull<u8>> {
        let pages = &mut self.lock().pages;
        let left = pages.len().saturating_sub(wanted);
        pages.drain(left..).map(|page| page.0).collect()
    }

    /// Keeps a block of one of the chunks that nothing uses any more, for trees that take extents from the set.
    pub(super) fn put_back_block(&self, block: Block, order: usize) {
        self.lock().blocks.push((block, order));
    }

    /// Takes the blocks that were put back.
    pub(super) fn take_back_blocks(&self) -> Vec<(Block, usize)> {
        std::mem::take(&mut self.lock().blocks)
    }

    /// Bytes of all chunks.
    pub(super) fn bytes(&self) -> usize {
        self.lock().chunks.iter().map(|chunk| chunk.layout.size()).sum()
    }

    /// Frees the chunk of `bytes` bytes at `address`, if it is one of these.
    ///
    /// # Safety
    /// No page of it is in use, and the caller forgets about those that could be taken.
    pub(super) unsafe fn release(&self, address: NonNull<u8>, bytes: usize) -> bool {
        let chunks = &mut self.lock().chunks;
        let is_it = |chunk: &Chunk| chunk.address == address && chunk.layout.size() == bytes;
        let Some(at) = chunks.iter().position(is_it) else { return false };
        let chunk = chunks.swap_remove(at);
        // SAFETY: the chunk came from this provider with this layout and has left the list; the caller promises the rest.
        unsafe { self.memory.free(chunk.address, chunk.layout) };
        true
    }
}

impl Drop for ChunkSet {
    fn drop(&mut self) {
        for chunk in self.lock().chunks.drain(..) {
            // SAFETY: the chunk came from this provider with this layout, it leaves the list here and only here, and
            // every tree with pages in it holds this set, so none is left.
            unsafe { self.memory.free(chunk.address, chunk.layout) };
        }
    }
}
