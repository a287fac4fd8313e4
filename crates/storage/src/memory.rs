//! Memory: where the pages of trees come from.
//!
//! Owns the [`Memory`] seam (a provider may place chunks on a NUMA node or ask for huge pages), the default
//! provider, the sets of chunks that keep pages alive, and the page allocator of one tree. It never looks inside
//! pages, except for the link of a free one.
//!
//! Invariants: a chunk lives as long as any tree that may have a page in it; a page is in exactly one place: in use
//! in one tree, in its free list, or in the untouched rest of a chunk. A chunk that no page was ever taken from may be given
//! back early.

use crate::node::NodePtr;
use std::alloc::Layout;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;
use thiserror::Error;

/// The provider of memory had none left. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("no memory is left for {bytes} more bytes of table pages; free some, or store fewer or smaller rows")]
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

/// The first chunk of a tree, in bytes; each further one has twice the size of the one before.
const SMALLEST_CHUNK_BYTES: usize = 64 << 10;
/// The largest chunk, in bytes; also its alignment: the huge page of the common architectures.
const LARGEST_CHUNK_BYTES: usize = 2 << 20;

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
type ChunkList = std::sync::Mutex<Vec<Chunk>>;

/// The chunks one tree and all that were split from it have taken from a provider.
pub(crate) struct ChunkSet {
    memory: Arc<dyn Memory>,
    chunks: ChunkList,
}

impl ChunkSet {
    pub(crate) fn new(memory: Arc<dyn Memory>) -> ChunkSet {
        ChunkSet { memory, chunks: ChunkList::default() }
    }

    fn lock(&self) -> impl std::ops::DerefMut<Target = Vec<Chunk>> + '_ {
        // The list is whole after every single operation, so a panic elsewhere while it was held did no harm.
        self.chunks.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn allocate(&self, bytes: usize, page_bytes: usize) -> Result<NonNull<u8>, OutOfMemory> {
        let align = if bytes >= LARGEST_CHUNK_BYTES { LARGEST_CHUNK_BYTES } else { page_bytes };
        let layout = Layout::from_size_align(bytes, align).map_err(|_| OutOfMemory { bytes })?;
        let mut chunks = self.lock();
        // The entry is made first: once the memory is there, nothing may fail that would leak it.
        chunks.try_reserve(1).map_err(|_| OutOfMemory { bytes })?;
        let address = self.memory.allocate(layout).ok_or(OutOfMemory { bytes })?;
        chunks.push(Chunk { address, layout });
        Ok(address)
    }

    /// Whether `page` is an address where a page of `page_bytes` can be in one of the chunks.
    fn holds(&self, page: usize, page_bytes: usize) -> bool {
        self.lock().iter().any(|chunk| {
            let start = chunk.address.addr().get();
            page >= start
                && page + page_bytes <= start + chunk.layout.size()
                && (page - start).is_multiple_of(page_bytes)
        })
    }

    fn bytes(&self) -> usize {
        self.lock().iter().map(|chunk| chunk.layout.size()).sum()
    }

    /// Frees the chunk of `bytes` bytes at `address`, if it is one of these.
    ///
    /// # Safety
    /// No page of it is in use, and the caller forgets about those that could be taken.
    unsafe fn release(&self, address: NonNull<u8>, bytes: usize) -> bool {
        let mut chunks = self.lock();
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
        for chunk in self.lock().drain(..) {
            // SAFETY: the chunk came from this provider with this layout, it leaves the list here and only here, and
            // every tree with pages in it holds this set, so none is left.
            unsafe { self.memory.free(chunk.address, chunk.layout) };
        }
    }
}

/// The untouched rest of a chunk.
struct Region {
    next: NonNull<u8>,
    pages: usize,
}

/// The page allocator of one tree.
pub(crate) struct Pages {
    page_bytes: usize,
    /// Sets that hold pages of this tree; chunks are added to the first. More than one after appending a tree that
    /// was not split from this one.
    homes: Vec<Arc<ChunkSet>>,
    /// Pages are taken from the last one; further chunks come in front.
    regions: VecDeque<Region>,
    free_first: Option<NodePtr>,
    free_last: Option<NodePtr>,
    /// Pages in the free list and in the regions.
    available: usize,
    next_chunk_bytes: usize,
}

impl Pages {
    pub(crate) fn new(page_bytes: usize, memory: Arc<dyn Memory>) -> Pages {
        Pages::of_homes(page_bytes, vec![Arc::new(ChunkSet::new(memory))])
    }

    fn of_homes(page_bytes: usize, homes: Vec<Arc<ChunkSet>>) -> Pages {
        Pages {
            page_bytes,
            homes,
            regions: VecDeque::new(),
            free_first: None,
            free_last: None,
            available: 0,
            next_chunk_bytes: SMALLEST_CHUNK_BYTES,
        }
    }

    /// An allocator without pages for a tree split from this one: it keeps the same chunks alive.
    pub(crate) fn split(&self) -> Pages {
        Pages::of_homes(self.page_bytes, self.homes.clone())
    }

    /// Takes over everything `other` has: O(1) in pages and chunks.
    pub(crate) fn join(&mut self, mut other: Pages) {
        if let (Some(first), Some(last)) = (other.free_first, other.free_last) {
            last.set_next_free(self.free_first);
            self.free_first = Some(first);
            self.free_last = self.free_last.or(Some(last));
        }
        self.regions.append(&mut other.regions);
        self.available += other.available;
        for home in other.homes {
            if !self.homes.iter().any(|known| Arc::ptr_eq(known, &home)) {
                self.homes.push(home);
            }
        }
    }

    /// Takes chunks from `memory` from now on; pages in use stay where they are.
    pub(crate) fn allocate_from(&mut self, memory: Arc<dyn Memory>) {
        let is_of = |home: &Arc<ChunkSet>| std::ptr::addr_eq(Arc::as_ptr(&home.memory), Arc::as_ptr(&memory));
        match self.homes.iter().position(is_of) {
            // A tree that goes to and fro takes up where it left off.
            Some(known) => self.homes.swap(0, known),
            None => self.homes.insert(0, Arc::new(ChunkSet::new(memory))),
        }
        self.next_chunk_bytes = SMALLEST_CHUNK_BYTES;
    }

    /// Makes sure that the next `pages` calls of `take` succeed.
    #[inline]
    pub(crate) fn reserve(&mut self, pages: usize) -> Result<(), OutOfMemory> {
        if self.available >= pages { Ok(()) } else { self.reserve_slowly(pages) }
    }

    #[cold]
    fn reserve_slowly(&mut self, pages: usize) -> Result<(), OutOfMemory> {
        while self.available < pages {
            let bytes = self.next_chunk_bytes;
            let address = self.homes[0].allocate(bytes, self.page_bytes)?;
            self.regions.push_front(Region { next: address, pages: bytes / self.page_bytes });
            self.available += bytes / self.page_bytes;
            self.next_chunk_bytes = (bytes * 2).min(LARGEST_CHUNK_BYTES);
        }
        Ok(())
    }

    /// A page with undefined contents.
    ///
    /// # Panics
    /// When no page was reserved, which is an error in this crate.
    pub(crate) fn take(&mut self) -> NonNull<u8> {
        if let Some(page) = self.free_first {
            self.free_first = page.next_free();
            if self.free_first.is_none() {
                self.free_last = None;
            }
            self.available -= 1;
            return page.address();
        }
        let region = self.regions.back_mut().expect("pages are reserved before they are taken");
        let page = region.next;
        region.pages -= 1;
        self.available -= 1;
        if region.pages == 0 {
            self.regions.pop_back();
        } else {
            // SAFETY: the region has at least one page more, so the address is inside the chunk.
            region.next = unsafe { page.add(self.page_bytes) };
        }
        page
    }

    /// Takes back a page that is no longer part of the tree.
    pub(crate) fn give(&mut self, page: NodePtr) {
        page.set_next_free(self.free_first);
        self.free_first = Some(page);
        self.free_last = self.free_last.or(Some(page));
        self.available += 1;
    }

    /// Hands over `pages` pages that are there to an allocator that was split from this one.
    pub(crate) fn hand_over(&mut self, to: &mut Pages, pages: usize) {
        debug_assert!(self.available >= pages, "only what is there can be handed over");
        let mut left = pages;
        while let Some(region) = self.regions.back_mut().filter(|_| left > 0) {
            let part = region.pages.min(left);
            to.regions.push_front(Region { next: region.next, pages: part });
            to.available += part;
            self.available -= part;
            left -= part;
            region.pages -= part;
            if region.pages == 0 {
                self.regions.pop_back();
            } else {
                // SAFETY: the region has at least one page more, so the address is inside the chunk.
                region.next = unsafe { region.next.add(part * self.page_bytes) };
            }
        }
        for _ in 0..left {
            let page = self.free_first.expect("pages that are available are in a region or free");
            self.free_first = page.next_free();
            self.available -= 1;
            to.give(page);
        }
        if self.free_first.is_none() {
            self.free_last = None;
        }
    }

    /// Gives back large chunks that were never touched, but for one: the next that is needed is to be had at once.
    #[inline]
    pub(crate) fn give_back_untouched(&mut self) {
        if self.regions.len() > 1 {
            self.give_back_chunks();
        }
    }

    #[cold]
    fn give_back_chunks(&mut self) {
        let pages = LARGEST_CHUNK_BYTES / self.page_bytes;
        while self.regions.len() > 1 && self.regions[0].pages == pages && self.regions[1].pages == pages {
            let address = self.regions[0].next;
            // SAFETY: a region as large as the largest chunk is a whole one, of which no page was taken; it is forgotten
            // below.
            let released = |home: &Arc<ChunkSet>| unsafe { home.release(address, LARGEST_CHUNK_BYTES) };
            if !self.homes.iter().any(released) {
                return;
            }
            self.regions.pop_front();
            self.available -= pages;
        }
    }

    /// Bytes of all chunks this tree keeps alive, shared ones included.
    pub(crate) fn chunk_bytes(&self) -> usize {
        self.homes.iter().map(|home| home.bytes()).sum()
    }

    /// Pages that were acquired and are not in use.
    pub(crate) fn available(&self) -> usize {
        self.available
    }

    /// Whether a page can be at `address`.
    pub(crate) fn holds(&self, address: usize) -> bool {
        self.homes.iter().any(|home| home.holds(address, self.page_bytes))
    }
}

// SAFETY: the addresses are of pages only this allocator hands out; the chunk sets are shared behind a lock.
unsafe impl Send for Pages {}
// SAFETY: every change goes through `&mut self`.
unsafe impl Sync for Pages {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts what is allocated, and refuses to go over a limit.
    pub(crate) struct Limited {
        left: std::cell::Cell<usize>,
    }

    // SAFETY: the tests of this module use it on one thread.
    unsafe impl Send for Limited {}
    // SAFETY: as above.
    unsafe impl Sync for Limited {}

    // SAFETY: hands through to the global allocator.
    unsafe impl Memory for Limited {
        fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
            self.left.set(self.left.get().checked_sub(layout.size())?);
            HeapMemory.allocate(layout)
        }

        unsafe fn free(&self, address: NonNull<u8>, layout: Layout) {
            self.left.set(self.left.get() + layout.size());
            // SAFETY: the promise of the caller.
            unsafe { HeapMemory.free(address, layout) };
        }
    }

    #[test]
    fn chunks_double_and_come_back_with_the_last_user() {
        let memory = Arc::new(Limited { left: std::cell::Cell::new(1 << 20) });
        let mut pages = Pages::new(4096, memory.clone());
        pages.reserve(1).unwrap();
        assert_eq!(memory.left.get(), (1 << 20) - (64 << 10));
        pages.reserve(17).unwrap();
        assert_eq!(memory.left.get(), (1 << 20) - (192 << 10));
        assert_eq!(pages.available(), 48);
        let other = pages.split();
        drop(pages);
        assert_eq!(other.chunk_bytes(), 192 << 10);
        drop(other);
        assert_eq!(memory.left.get(), 1 << 20);
    }

    #[test]
    fn exhaustion_is_an_error_and_changes_nothing() {
        let memory = Arc::new(Limited { left: std::cell::Cell::new(64 << 10) });
        let mut pages = Pages::new(4096, memory);
        assert_eq!(pages.reserve(17), Err(OutOfMemory { bytes: 128 << 10 }));
        assert_eq!(pages.available(), 16);
        assert!(pages.reserve(16).is_ok());
    }

    #[test]
    fn joining_keeps_foreign_chunks_alive() {
        let memory = Arc::new(Limited { left: std::cell::Cell::new(1 << 20) });
        let mut left = Pages::new(4096, memory.clone());
        let mut right = Pages::new(4096, memory.clone());
        left.reserve(1).unwrap();
        right.reserve(1).unwrap();
        left.join(right);
        assert_eq!(left.available(), 32);
        assert_eq!(left.chunk_bytes(), 128 << 10);
        let page = left.take().addr().get();
        assert!(left.holds(page) && !left.holds(page + 1));
        drop(left);
        assert_eq!(memory.left.get(), 1 << 20);
    }
}
