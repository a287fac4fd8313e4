//! The page allocator of one tree, and its share in chunks.
//!
//! Owns which pages are free, and the [extents](super::extents) of the same tree, which take their chunks from the same
//! sets. It never looks inside pages, except for the link of a free one.
//!
//! Invariants: a page is in exactly one place: in use in one tree, in its free list, or in the untouched rest of a chunk. A
//! chunk that no page was ever taken from may be given back early.

use super::chunks::{ChunkSet, LARGEST_CHUNK_BYTES, SMALLEST_CHUNK_BYTES};
use super::extents::{Extent, Extents};
use super::{Memory, OutOfMemory};
use crate::node::NodePtr;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;

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
    /// Memory for the long rows of the tree.
    extents: Extents,
    /// While they are relocated: what is free of it on other memory nodes.
    extents_away: Extents,
    /// The state of the pages on other memory nodes than that of the first set.
    elsewhere: Elsewhere,
}

/// What becomes of the pages that are on other memory nodes than that which further ones are taken from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Elsewhere {
    /// They are used like the others.
    Used,
    /// They are relocated: what is given back goes to the set that it came from.
    Relocated,
    /// No page and no long row is there.
    Left,
}

impl Pages {
    pub(crate) fn new(page_bytes: usize, memory: Arc<dyn Memory>) -> Pages {
        Pages::beginning_with(SMALLEST_CHUNK_BYTES, page_bytes, memory)
    }

    /// An allocator without pages whose first chunk has so many bytes.
    pub(crate) fn beginning_with(chunk_bytes: usize, page_bytes: usize, memory: Arc<dyn Memory>) -> Pages {
        let mut pages = Pages::of_homes(page_bytes, vec![Arc::new(ChunkSet::new(memory))]);
        pages.next_chunk_bytes = chunk_bytes;
        pages
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
            extents: Extents::new(),
            extents_away: Extents::new(),
            elsewhere: Elsewhere::Used,
        }
    }

    /// An allocator without pages for a tree split from this one: it keeps the same chunks alive.
    pub(crate) fn split(&self) -> Pages {
        Pages::of_homes(self.page_bytes, self.homes.clone())
    }

    /// Takes over everything `other` has: O(1) in pages and chunks; free blocks of extents are joined one by one.
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
        self.extents.join(other.extents, &self.homes);
        self.extents.join(other.extents_away, &self.homes);
        // A relocation begins anew: what was reserved may be pages of other memory nodes.
        self.use_all();
    }

    /// Ends a relocation before its end, if there is one.
    fn use_all(&mut self) {
        let away = std::mem::replace(&mut self.extents_away, Extents::new());
        self.extents.join(away, &self.homes);
        self.elsewhere = Elsewhere::Used;
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
        self.extents.begin_small();
        self.use_all();
    }

    // ---- relocation ----

    /// Returns whether there may be pages on another memory node than that of the first set.
    pub(crate) fn is_scattered(&self) -> bool {
        self.elsewhere != Elsewhere::Left && self.homes[1..].iter().any(|home| self.is_away(home))
    }

    /// Returns whether a set is of another memory node than the first one.
    fn is_away(&self, home: &ChunkSet) -> bool {
        self.homes[0].node().is_some() && home.node() != self.homes[0].node()
    }

    /// The set that has a page of another memory node.
    fn away(&self, address: usize) -> Option<&Arc<ChunkSet>> {
        self.homes_away().find(|home| home.holds(address, self.page_bytes))
    }

    fn homes_away(&self) -> impl Iterator<Item = &Arc<ChunkSet>> {
        self.homes[1..].iter().filter(|home| self.is_away(home))
    }

    /// Returns whether the byte at `address` is on another memory node.
    fn is_byte_away(&self, address: NonNull<u8>) -> bool {
        self.homes_away().any(|home| home.holds_bytes(address.addr().get(), 1))
    }

    /// Returns whether a node is on another memory node.
    pub(crate) fn is_elsewhere(&self, node: NodePtr) -> bool {
        self.away(node.address().addr().get()).is_some()
    }

    /// Returns whether a long row is on another memory node.
    pub(crate) fn is_extent_elsewhere(&self, extent: &Extent) -> bool {
        self.is_byte_away(extent.address)
    }

    /// Returns whether what may be put back to where it was would be on another memory node.
    pub(crate) fn holds_elsewhere(&self) -> bool {
        self.extents.holds_any(|extent| self.is_extent_elsewhere(extent))
    }

    /// From now on no page of another memory node is handed out, nor an extent but for what is undone.
    pub(crate) fn begin_relocation(&mut self) {
        self.elsewhere = Elsewhere::Relocated;
        self.put_back_spare();
        let mut extents = std::mem::replace(&mut self.extents, Extents::new());
        let mut away = std::mem::replace(&mut self.extents_away, Extents::new());
        extents.part(&mut away, &self.homes, |block| self.is_byte_away(block.address));
        (self.extents, self.extents_away) = (extents, away);
    }

    /// Ends the relocation: no page and no extent is elsewhere. The sets of other memory nodes are let go.
    pub(crate) fn end_relocation(&mut self) {
        self.elsewhere = Elsewhere::Left;
        std::mem::replace(&mut self.extents_away, Extents::new()).put_back(&self.homes);
        let node = self.homes[0].node();
        self.homes.retain(|home| home.node() == node);
    }

    /// Returns whether a relocation is under way.
    pub(crate) fn is_relocating(&self) -> bool {
        self.elsewhere == Elsewhere::Relocated
    }

    /// Puts the pages of other memory nodes that are not in use back to their sets.
    fn put_back_spare(&mut self) {
        let mut free = self.free_first.take();
        self.free_last = None;
        let regions = std::mem::take(&mut self.regions);
        self.available = 0;
        while let Some(page) = free {
            free = page.next_free();
            match self.away(page.address().addr().get()) {
                Some(home) => home.put_back(page.address()),
                None => self.keep(page),
            }
        }
        for region in regions {
            match self.away(region.next.addr().get()) {
                Some(home) => (0..region.pages).for_each(|page| {
                    // SAFETY: the region has so many pages, all in one chunk.
                    home.put_back(unsafe { region.next.add(page * self.page_bytes) });
                }),
                None => {
                    self.available += region.pages;
                    self.regions.push_back(region);
                }
            }
        }
    }

    /// Makes sure that the next `pages` calls of `take` succeed.
    #[inline]
    pub(crate) fn reserve(&mut self, pages: usize) -> Result<(), OutOfMemory> {
        if self.available >= pages { Ok(()) } else { self.reserve_slowly(pages) }
    }

    #[cold]
    fn reserve_slowly(&mut self, pages: usize) -> Result<(), OutOfMemory> {
        while self.available < pages {
            let put_back = self.homes[0].take_back(pages - self.available);
            for page in put_back {
                // SAFETY: nothing uses the page, which is in a chunk of the set and has passed to this tree.
                self.keep(unsafe { NodePtr::init(page, self.page_bytes, 0) });
            }
            if self.available >= pages {
                break;
            }
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
        match self.elsewhere {
            Elsewhere::Relocated => match self.away(page.address().addr().get()) {
                Some(home) => home.put_back(page.address()),
                None => self.keep(page),
            },
            Elsewhere::Used | Elsewhere::Left => self.keep(page),
        }
    }

    /// Adds a page to the free ones.
    fn keep(&mut self, page: NodePtr) {
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

    /// Returns whether a page can be at `address`.
    pub(crate) fn holds(&self, address: usize) -> bool {
        self.homes.iter().any(|home| home.holds(address, self.page_bytes))
    }

    // ---- extents ----

    /// An extent for a long row of `bytes` bytes; its content is undefined.
    pub(crate) fn take_extent(&mut self, bytes: usize) -> Result<Extent, OutOfMemory> {
        self.extents.take(bytes, &self.homes[0])
    }

    /// Takes back an extent that is not in use any more.
    pub(crate) fn give_extent(&mut self, extent: Extent) {
        let is_away = self.is_relocating() && self.is_extent_elsewhere(&extent);
        let extents = if is_away { &mut self.extents_away } else { &mut self.extents };
        extents.give(extent, &self.homes);
    }

    /// Keeps an extent that was displaced, to put the row back to.
    pub(crate) fn hold_extent(&mut self, extent: Extent) {
        self.extents.hold(extent);
    }

    /// An extent that was held for a row of `bytes` bytes.
    pub(crate) fn take_held_extent(&mut self, bytes: usize) -> Option<Extent> {
        self.extents.take_held(bytes)
    }

    /// Bytes for extents that were acquired and hold no row.
    pub(crate) fn spare_extent_bytes(&self) -> usize {
        self.extents.spare_bytes() + self.extents_away.spare_bytes()
    }

    /// Returns whether the memory of an extent at `address` is in a chunk, and not free.
    pub(crate) fn holds_extent(&self, address: usize, bytes: usize) -> bool {
        self.homes.iter().any(|home| home.holds_bytes(address, bytes))
            && ![&self.extents, &self.extents_away].iter().any(|extents| extents.is_free(address, bytes))
    }
}

// SAFETY: the addresses are of pages only this allocator hands out; the chunk sets are shared behind a lock.
unsafe impl Send for Pages {}
// SAFETY: every change goes through `&mut self`.
unsafe impl Sync for Pages {}

#[cfg(test)]
mod tests {
    use super::super::HeapMemory;
    use super::*;
    use std::alloc::Layout;

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
