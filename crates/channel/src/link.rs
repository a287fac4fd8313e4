//! The layout of the memory that carries a link: for each of two sides three words, and a ring of bytes.
//!
//! Owns: which word lies where. Never: says in which order they are written (`ring`, `sleep`).
//!
//! ```text
//! byte 0      words of side 0: tail | head | sleep, each on cache lines of its own
//!      ..     words of side 1
//!      4096   ring from side 0 to side 1
//!      4096+n ring from side 1 to side 0
//! ```
//! Only a side itself writes its tail and its head. Both write a sleep word: its owner, and the peer that rings.
//! All of it may hold anything if the peer is broken.

use std::mem::size_of;
use std::ptr::NonNull;

use crossbeam_utils::CachePadded;

use crate::memory::{Memory, PAGE_BYTES};
use crate::sync::{AtomicU32, AtomicU64, Shadow};

/// The smallest ring: a quarter of it, the longest record, holds a message of 248 bytes.
pub const RING_BYTES_MIN: usize = 1 << 10;
/// The largest ring.
pub const RING_BYTES_MAX: usize = 1 << 30;
/// The ring of a link that is not told otherwise.
pub const RING_BYTES_DEFAULT: usize = 256 << 10;

/// Returns whether a ring may have this size: a power of two within the bounds.
#[must_use]
pub const fn ring_bytes_valid(bytes: usize) -> bool {
    bytes.is_power_of_two() && bytes >= RING_BYTES_MIN && bytes <= RING_BYTES_MAX
}

/// One of the two ends of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    First,
    Second,
}

impl Side {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// What one side of a link tells the other.
#[repr(C)]
pub(crate) struct SideWords {
    /// Index behind the last byte that this side has published in the ring that it writes.
    pub(crate) tail: CachePadded<AtomicU64>,
    /// Index behind the last byte that this side has taken from the ring that it reads.
    pub(crate) head: CachePadded<AtomicU64>,
    /// The state of this side's sleep (`sleep`).
    pub(crate) sleep: CachePadded<AtomicU32>,
}

impl SideWords {
    #[cfg(any(not(loom), test))]
    fn new() -> Self {
        Self {
            tail: CachePadded::new(AtomicU64::new(0)),
            head: CachePadded::new(AtomicU64::new(0)),
            sleep: CachePadded::new(AtomicU32::new(0)),
        }
    }
}

const _: () = assert!(2 * size_of::<SideWords>() <= PAGE_BYTES, "the words of both sides fit their page");

/// The memory of a link, as one process sees it.
pub(crate) struct Link {
    memory: Memory,
    ring_bytes: usize,
    shadows: [Shadow; 2],
    /// The words are values of this process, not just zeroes of a mapping.
    words_are_ours: bool,
}

impl Link {
    /// Bytes of memory that a link with rings of this size takes.
    pub(crate) const fn bytes(ring_bytes: usize) -> usize {
        // A page at least: memory is shared in pages.
        (PAGE_BYTES + 2 * ring_bytes).next_multiple_of(PAGE_BYTES)
    }

    /// A link in memory of [`bytes`](Self::bytes) bytes that two processes map, all of it zero at first.
    #[cfg(not(loom))]
    pub(crate) fn in_mapping(memory: Memory, ring_bytes: usize) -> Self {
        Self::new(memory, ring_bytes, false)
    }

    /// A link between threads of this process.
    #[cfg(any(not(loom), test))]
    pub(crate) fn in_heap(ring_bytes: usize) -> Self {
        let link = Self::new(Memory::heap(Self::bytes(ring_bytes)), ring_bytes, true);
        for side in [Side::First, Side::Second] {
            // SAFETY: the words lie within the memory, aligned, and nobody else knows of it yet.
            unsafe { link.words_at(side).write(SideWords::new()) };
        }
        link
    }

    #[cfg(any(not(loom), test))]
    fn new(memory: Memory, ring_bytes: usize, words_are_ours: bool) -> Self {
        assert!(
            ring_bytes_valid(ring_bytes),
            "a ring takes a power of two from {RING_BYTES_MIN} to {RING_BYTES_MAX} bytes"
        );
        Self {
            memory,
            ring_bytes,
            shadows: [Shadow::new(ring_bytes / 8), Shadow::new(ring_bytes / 8)],
            words_are_ours,
        }
    }

    fn words_at(&self, side: Side) -> NonNull<SideWords> {
        // SAFETY: both lie in the first page, and a page is the least that memory has.
        unsafe { self.memory.base().cast::<SideWords>().add(side as usize) }
    }

    /// The words of a side.
    #[inline(always)]
    pub(crate) fn words(&self, side: Side) -> &SideWords {
        // SAFETY: they lie in memory that lives as long as `self`, aligned to a page; they consist of atomics, for which any
        // bytes are valid, so that it does not matter what another process writes.
        unsafe { self.words_at(side).as_ref() }
    }

    /// The ring that a side writes: its memory, its size, and what tells loom of accesses to it.
    #[inline(always)]
    pub(crate) fn ring_from(&self, side: Side) -> (NonNull<u8>, usize, &Shadow) {
        // SAFETY: the memory has a page and two rings.
        let buffer = unsafe { self.memory.base().add(PAGE_BYTES + side as usize * self.ring_bytes) };
        (buffer, self.ring_bytes, &self.shadows[side as usize])
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.words_are_ours {
            for side in [Side::First, Side::Second] {
                // SAFETY: written in `in_heap`, and nobody refers to them any more.
                unsafe { self.words_at(side).drop_in_place() };
            }
        }
    }
}
