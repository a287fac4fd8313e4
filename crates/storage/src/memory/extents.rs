//! The extents of one tree: memory for rows that are too long for a leaf.
//!
//! Owns which parts of its chunks are free, as blocks of a power of two of *units* (a buddy system): an extent takes the
//! first units of a block, and the others stay free; what is given back is joined with free neighbours. It never looks inside
//! an extent, and never touches pages.
//!
//! An extent that was displaced by a change that may be undone is *held*: it is not free, so that putting the row back finds
//! room whatever happens meanwhile (see `tree::undo`).
//!
//! Invariants: a unit of a chunk is in exactly one place: in an extent in use or held, or in a free block, of one tree. A
//! chunk is aligned to its size, so that a block knows its neighbour and its chunk from its address. At most one chunk is
//! wholly free, whatever else there was went back to the provider, as far as it belongs to one tree.

use super::OutOfMemory;
use super::chunks::{ChunkSet, LARGEST_CHUNK_BYTES, SMALLEST_CHUNK_BYTES};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::ptr::NonNull;
use std::sync::Arc;

/// The least that is taken or given back, in bytes. Extents hold more than a thousand bytes, so little of it is lost.
const UNIT_BYTES: usize = 256;
/// Sizes of blocks: from one unit to the largest chunk.
const ORDERS: usize = (LARGEST_CHUNK_BYTES / UNIT_BYTES).ilog2() as usize + 1;

/// A long row: where its bytes are, and how many. A leaf holds it in place of the row.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) address: NonNull<u8>,
    /// Bytes of the row.
    pub(crate) bytes: u32,
    /// Bytes of the chunk that it is part of.
    chunk_bytes: u32,
}

impl Extent {
    /// Returns whether a row of `bytes` bytes takes exactly the same memory.
    pub(crate) fn suits(&self, bytes: usize) -> bool {
        units_of(self.bytes as usize) == units_of(bytes)
    }

    /// The same memory for a row of `bytes` bytes, which it [suits](Extent::suits).
    pub(crate) fn resized(self, bytes: usize) -> Extent {
        Extent { bytes: bytes as u32, ..self }
    }

    /// Bytes of memory that a row of `bytes` bytes takes.
    pub(crate) fn taken_bytes(bytes: usize) -> usize {
        units_of(bytes) * UNIT_BYTES
    }
}

fn units_of(bytes: usize) -> usize {
    bytes.div_ceil(UNIT_BYTES).max(1)
}

/// A free block. The order of blocks is that of addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Block {
    pub(super) address: NonNull<u8>,
    chunk_bytes: u32,
}

// SAFETY: it is a plain address with a size; whoever has the block has its memory alone.
unsafe impl Send for Block {}

impl Block {
    /// The block `bytes` further on in the same chunk.
    fn at(self, bytes: usize) -> Block {
        Block { address: self.address.map_addr(|address| address.saturating_add(bytes)), ..self }
    }

    /// The other half of the block of twice the size, of which this one of `bytes` is one.
    fn neighbour(self, bytes: usize) -> Block {
        let other = |address: NonZero<usize>| NonZero::new(address.get() ^ bytes).unwrap_or(address);
        Block { address: self.address.map_addr(other), ..self }
    }
}

/// See the module's introduction.
pub(super) struct Extents {
    /// By order: blocks of `UNIT_BYTES << order` bytes.
    free: [BTreeSet<Block>; ORDERS],
    free_bytes: usize,
    /// Chunks that are wholly free.
    free_chunks: usize,
    /// Extents to put rows back to, by their number of units.
    held: BTreeMap<usize, Vec<Extent>>,
    next_chunk_bytes: usize,
}

impl Extents {
    pub(super) fn new() -> Extents {
        Extents {
            free: Default::default(),
            free_bytes: 0,
            free_chunks: 0,
            held: BTreeMap::new(),
            next_chunk_bytes: SMALLEST_CHUNK_BYTES,
        }
    }

    /// Chunks are small again: they come from another provider.
    pub(super) fn begin_small(&mut self) {
        self.next_chunk_bytes = SMALLEST_CHUNK_BYTES;
    }

    /// An extent for a row of `bytes` bytes, at most half of the largest chunk; its content is undefined. A further chunk, if it
    /// takes one, comes from `home`.
    pub(super) fn take(&mut self, bytes: usize, home: &Arc<ChunkSet>) -> Result<Extent, OutOfMemory> {
        let units = units_of(bytes);
        let order = units.next_power_of_two().ilog2() as usize;
        let found = match self.first_free(order).or_else(|| self.take_back(order, home)) {
            Some(found) => found,
            None => self.take_chunk(order, home)?,
        };
        let block = self.free[found].pop_first().expect("a block was found, or made");
        self.free_chunks -= usize::from(UNIT_BYTES << found == block.chunk_bytes as usize);
        self.free_bytes -= units * UNIT_BYTES;
        // The rest of the block, from small parts to large ones.
        let mut rest = units;
        while rest < 1 << found {
            let order = rest.trailing_zeros() as usize;
            self.free[order].insert(block.at(rest * UNIT_BYTES));
            rest += 1 << order;
        }
        Ok(Extent { address: block.address, bytes: bytes as u32, chunk_bytes: block.chunk_bytes })
    }

    /// The order of the smallest free block that is at least of `order`.
    fn first_free(&self, order: usize) -> Option<usize> {
        (order..ORDERS).find(|&order| !self.free[order].is_empty())
    }

    /// Takes the blocks that other trees have put back to `home`. The order of a block among all that is free now, as in
    /// [`first_free`](Extents::first_free).
    fn take_back(&mut self, order: usize, home: &Arc<ChunkSet>) -> Option<usize> {
        for (block, order) in home.take_back_blocks() {
            self.give_block(block, order, std::slice::from_ref(home));
        }
        self.first_free(order)
    }

    /// Makes a free block, at least of `order`, of a further chunk; its order.
    fn take_chunk(&mut self, order: usize, home: &ChunkSet) -> Result<usize, OutOfMemory> {
        let bytes = self.next_chunk_bytes.max(UNIT_BYTES << order);
        let address = home.allocate(bytes, bytes)?;
        let order = (bytes / UNIT_BYTES).ilog2() as usize;
        self.free[order].insert(Block { address, chunk_bytes: bytes as u32 });
        self.free_bytes += bytes;
        self.free_chunks += 1;
        self.next_chunk_bytes = (bytes * 2).min(LARGEST_CHUNK_BYTES);
        Ok(order)
    }

    /// Takes back an extent that is not in use any more. A chunk that is wholly free by it goes back to the one of `homes` it
    /// came from, unless it is the only one.
    pub(super) fn give(&mut self, extent: Extent, homes: &[Arc<ChunkSet>]) {
        let block = Block { address: extent.address, chunk_bytes: extent.chunk_bytes };
        let (mut done, units) = (0, units_of(extent.bytes as usize));
        while done < units {
            // An extent begins where a block of at least its size does, so parts from large to small are aligned.
            let order = (units - done).ilog2() as usize;
            self.give_block(block.at(done * UNIT_BYTES), order, homes);
            done += 1 << order;
        }
    }

    fn give_block(&mut self, block: Block, order: usize, homes: &[Arc<ChunkSet>]) {
        let (mut block, mut order) = (block, order);
        self.free_bytes += UNIT_BYTES << order;
        while UNIT_BYTES << order < block.chunk_bytes as usize {
            let neighbour = block.neighbour(UNIT_BYTES << order);
            if !self.free[order].remove(&neighbour) {
                self.free[order].insert(block);
                return;
            }
            block = block.min(neighbour);
            order += 1;
        }
        let bytes = block.chunk_bytes as usize;
        // SAFETY: all of the chunk is free in this tree, so nothing of it is in use anywhere; the block is forgotten.
        let released = |home: &Arc<ChunkSet>| unsafe { home.release(block.address, bytes) };
        if self.free_chunks > 0 && homes.iter().any(released) {
            self.free_bytes -= bytes;
        } else {
            self.free[order].insert(block);
            self.free_chunks += 1;
        }
    }

    /// Takes over what another tree has.
    pub(super) fn join(&mut self, other: Extents, homes: &[Arc<ChunkSet>]) {
        let (mut many, mut few) = (other, std::mem::replace(self, Extents::new()));
        if many.blocks() < few.blocks() {
            std::mem::swap(&mut many, &mut few);
        }
        *self = many;
        for (order, blocks) in few.free.into_iter().enumerate() {
            for block in blocks {
                self.give_block(block, order, homes);
            }
        }
        for (units, mut extents) in few.held {
            self.held.entry(units).or_default().append(&mut extents);
        }
    }

    /// Moves the free blocks of which `is_away` is true of the address to `away`.
    pub(super) fn part(
        &mut self,
        away: &mut Extents,
        homes: &[Arc<ChunkSet>],
        is_away: impl Fn(Block) -> bool,
    ) {
        let all = std::mem::take(&mut self.free);
        (self.free_bytes, self.free_chunks) = (0, 0);
        for (order, blocks) in all.into_iter().enumerate() {
            for block in blocks {
                let to = if is_away(block) { &mut *away } else { &mut *self };
                to.give_block(block, order, homes);
            }
        }
    }

    /// Puts the free blocks back to the sets that they are of, for the other trees that take extents there; whole chunks go back to
    /// the provider.
    pub(super) fn put_back(self, homes: &[Arc<ChunkSet>]) {
        for (order, blocks) in self.free.into_iter().enumerate() {
            let bytes = UNIT_BYTES << order;
            for block in blocks {
                let is_of = |home: &&Arc<ChunkSet>| home.holds_bytes(block.address.addr().get(), bytes);
                let Some(home) = homes.iter().find(is_of) else { continue };
                // SAFETY: all of the chunk is free in this tree, so nothing of it is in use anywhere; the block is forgotten.
                if bytes != block.chunk_bytes as usize || !unsafe { home.release(block.address, bytes) } {
                    home.put_back_block(block, order);
                }
            }
        }
    }

    /// Returns whether an extent is held of whose address `is_away` is true.
    pub(super) fn holds_any(&self, is_away: impl Fn(&Extent) -> bool) -> bool {
        self.held.values().flatten().any(is_away)
    }

    fn blocks(&self) -> usize {
        self.free.iter().map(BTreeSet::len).sum()
    }

    /// Keeps an extent that was displaced, to put the row back to.
    pub(super) fn hold(&mut self, extent: Extent) {
        self.held.entry(units_of(extent.bytes as usize)).or_default().push(extent);
    }

    /// An extent that was held for a row of `bytes` bytes.
    pub(super) fn take_held(&mut self, bytes: usize) -> Option<Extent> {
        let units = units_of(bytes);
        let extents = self.held.get_mut(&units)?;
        let extent = extents.pop();
        if extents.is_empty() {
            self.held.remove(&units);
        }
        extent.map(|extent| extent.resized(bytes))
    }

    /// Free bytes, those held included.
    pub(super) fn spare_bytes(&self) -> usize {
        let held = self.held.iter().map(|(units, extents)| units * extents.len());
        self.free_bytes + held.sum::<usize>() * UNIT_BYTES
    }

    /// Returns whether an extent that is in use shares memory with a free block.
    pub(super) fn is_free(&self, address: usize, bytes: usize) -> bool {
        let Some(end) = NonZero::new(address + bytes) else { return false };
        let end = Block { address: NonNull::dangling().map_addr(|_| end), chunk_bytes: 0 };
        self.free.iter().enumerate().any(|(order, blocks)| {
            let before = blocks.range(..end).next_back();
            before.is_some_and(|block| block.address.addr().get() + (UNIT_BYTES << order) > address)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HeapMemory, RationedMemory};
    use super::*;

    fn home() -> Vec<Arc<ChunkSet>> {
        vec![Arc::new(ChunkSet::new(Arc::new(HeapMemory)))]
    }

    #[test]
    fn what_is_given_back_becomes_whole_again() {
        let (homes, mut extents) = (home(), Extents::new());
        let mut taken = Vec::new();
        for number in 0..if cfg!(miri) { 60 } else { 600usize } {
            let bytes = 1 + number * 7919 % (if number % 20 == 0 { 1 << 20 } else { 20_000 });
            taken.push(extents.take(bytes, &homes[0]).unwrap());
            if number % 3 == 0 {
                extents.give(taken.swap_remove(number * 31 % taken.len()), &homes);
            }
        }
        let mut places: Vec<_> = taken.iter().map(|extent| (extent.address, extent.bytes)).collect();
        places.sort();
        assert!(places.windows(2).all(|pair| {
            let end = pair[0].0.addr().get() + Extent::taken_bytes(pair[0].1 as usize);
            end <= pair[1].0.addr().get()
        }));
        let used: usize = taken.iter().map(|extent| Extent::taken_bytes(extent.bytes as usize)).sum();
        assert_eq!(used + extents.spare_bytes(), homes[0].bytes());
        for extent in &taken {
            assert!(!extents.is_free(extent.address.addr().get(), extent.bytes as usize));
        }
        for extent in taken {
            extents.give(extent, &homes);
        }
        assert_eq!((extents.blocks(), extents.free_chunks), (1, 1));
        assert_eq!(extents.spare_bytes(), homes[0].bytes());
    }

    #[test]
    fn a_chunk_that_two_trees_freed_becomes_whole_when_they_join() {
        let (homes, mut left) = (home(), Extents::new());
        let all: Vec<_> = (0..30).map(|_| left.take(2_000, &homes[0]).unwrap()).collect();
        let mut right = Extents::new();
        for (number, extent) in all.into_iter().enumerate() {
            if number % 2 == 0 { left.give(extent, &homes) } else { right.give(extent, &homes) }
        }
        assert!(left.blocks() > 1 && right.blocks() > 1);
        left.join(right, &homes);
        assert_eq!((left.blocks(), left.spare_bytes()), (1, SMALLEST_CHUNK_BYTES));
    }

    #[test]
    fn held_extents_are_not_free() {
        let (homes, mut extents) = (home(), Extents::new());
        let extent = extents.take(5_000, &homes[0]).unwrap();
        extents.hold(extent);
        assert_eq!(extents.spare_bytes(), SMALLEST_CHUNK_BYTES);
        assert!(!extents.is_free(extent.address.addr().get(), 5_000));
        assert_eq!(extents.take_held(100_000), None);
        assert_eq!(extents.take_held(5_000), Some(extent));
        assert_eq!(extents.take_held(5_000), None);
    }

    #[test]
    fn without_memory_nothing_is_changed() {
        let memory = Arc::new(RationedMemory::new(|bytes| bytes < 1 << 20));
        let homes = [Arc::new(ChunkSet::new(memory))];
        let mut extents = Extents::new();
        assert_eq!(extents.take(1 << 20, &homes[0]), Err(OutOfMemory { bytes: 1 << 20 }));
        assert_eq!((extents.spare_bytes(), homes[0].bytes()), (0, 0));
        assert!(extents.take(1 << 19, &homes[0]).is_ok());
    }
}
