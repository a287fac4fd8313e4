//! The allocator of a process that links this crate: mimalloc.
//!
//! Owns: the choice, and the call by which each request reaches it. Never: has an interface. It is a crate of its own because the command line
//! is compiled without optimisation, and what the allocator's functions are inlined into is on the path of transactions.
//!
//! A block of mimalloc that has 16 bytes or more lies at a multiple of 16, and any block at a multiple of 8. So a request for an alignment that its
//! size brings along is made without it: its functions for alignments look at the size and at the next free block, and where that is not enough, as
//! for all blocks above a kibibyte, take a longer block and mark its page, which makes it slower to free, too.
//!
//! Why the unsafe code is sound: it hands layouts to an allocator that was made for them, and leaves an alignment out only where every block has it.

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys::{
    mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned, mi_zalloc, mi_zalloc_aligned,
};

#[global_allocator]
static ALLOCATOR: Mimalloc = Mimalloc;

/// The alignment of every block that is as long (`MI_MAX_ALIGN_SIZE`).
const ALIGNMENT_MAX: usize = 16;

/// The allocator.
struct Mimalloc;

/// Returns true if a block of so many bytes has this alignment in any case.
#[inline]
const fn has_alignment(size: usize, alignment: usize) -> bool {
    alignment <= ALIGNMENT_MAX && alignment <= size
}

// SAFETY: mimalloc returns blocks of at least the size and alignment that it is asked for, or null; see above for alignments that are left out.
unsafe impl GlobalAlloc for Mimalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (size, alignment) = (layout.size(), layout.align());
        // SAFETY: any size and any power of two may be asked for.
        unsafe {
            if has_alignment(size, alignment) {
                mi_malloc(size).cast()
            } else {
                mi_malloc_aligned(size, alignment).cast()
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (size, alignment) = (layout.size(), layout.align());
        // SAFETY: any size and any power of two may be asked for.
        unsafe {
            if has_alignment(size, alignment) {
                mi_zalloc(size).cast()
            } else {
                mi_zalloc_aligned(size, alignment).cast()
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _layout: Layout) {
        // SAFETY: the caller has the block from this allocator, and frees it once.
        unsafe { mi_free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let alignment = layout.align();
        // SAFETY: the caller has the block from this allocator, and does not use it again.
        unsafe {
            if has_alignment(size, alignment) {
                mi_realloc(block.cast(), size).cast()
            } else {
                mi_realloc_aligned(block.cast(), size, alignment).cast()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of all sizes and alignments, kept for a while so that pages fill up, are where they have to be, and keep their bytes as they grow.
    #[test]
    fn blocks_have_their_alignment() {
        let mut kept = Vec::new();
        for size in (1..600).chain([1_000, 1_024, 1_025, 4_000, 8_464, 70_000, 3 << 20]) {
            for alignment in [1, 2, 4, 8, 16, 32, 64, 128, 4_096] {
                let layout = Layout::from_size_align(size, alignment).expect("a layout");
                // SAFETY: the layout has bytes.
                let block = unsafe { Mimalloc.alloc(layout) };
                let is_there = !block.is_null() && block.addr() % alignment == 0;
                assert!(is_there, "{size} bytes at {alignment}: {block:?}");
                // SAFETY: the block has these bytes.
                unsafe { block.write_bytes(alignment as u8, size) };
                kept.push((block, layout));
            }
        }
        for (block, layout) in kept {
            let (size, alignment) = (layout.size(), layout.align());
            let more = Layout::from_size_align(2 * size + 1, alignment).expect("a layout");
            // SAFETY: the block was made with this layout above, and the longer one with the other; it is used no more after it was freed.
            unsafe {
                let block = Mimalloc.realloc(block, layout, more.size());
                assert!(block.addr() % alignment == 0, "{} bytes at {alignment}: {block:?}", more.size());
                let bytes = std::slice::from_raw_parts(block, size);
                assert!(bytes.iter().all(|byte| *byte == alignment as u8));
                Mimalloc.dealloc(block, more);
                let zeroed = Mimalloc.alloc_zeroed(layout);
                assert!(zeroed.addr() % alignment == 0, "{size} zeros at {alignment}: {zeroed:?}");
                assert!(std::slice::from_raw_parts(zeroed, size).iter().all(|byte| *byte == 0));
                Mimalloc.dealloc(zeroed, layout);
            }
        }
    }
}
