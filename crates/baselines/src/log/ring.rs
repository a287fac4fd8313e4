//! The memory of the log buffer: a ring in which records lie as they lie in the file.
//!
//! Owns: the memory. Never: decides who writes where. Positions are those of the log, and are never reduced; their low bits
//! are the place.
//!
//! # Why the unsafe code is sound
//! - What is reserved belongs to the thread that reserved it until it stores the header; from then on, to the daemon, which
//!   stores zeros and hands the space back. Reserved ranges do not overlap, because the tail passes the durable
//!   position by at most the capacity, and the daemon moves that behind its zeros with a release store, which the
//!   reserving thread (or the leader of its group, who publishes with release) has acquired.
//! - A header is stored with release and loaded with acquire, so whoever sees it sees the record. Headers lie at multiples
//!   of eight bytes, as everything reserved is a multiple. What lies at the position of a header before it is stored
//!   is zero.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// The ring.
pub(super) struct Ring {
    memory: NonNull<u8>,
    capacity: usize,
}

// SAFETY: the memory is shared under the protocol in the heading.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, 128).expect("a ring has at most 2^31 bytes")
    }

    /// Makes a ring of `capacity` bytes, which is a power of two of at least 128.
    pub(super) fn new(capacity: usize) -> Ring {
        debug_assert!(capacity.is_power_of_two() && capacity >= 128);
        let layout = Ring::layout(capacity);
        // SAFETY: the size is not zero.
        let Some(memory) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        Ring { memory, capacity }
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity as u64
    }

    fn place(&self, position: u64) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits are used")]
        let low = position as usize;
        low & (self.capacity - 1)
    }

    fn header(&self, position: u64) -> &AtomicU64 {
        debug_assert!(position.is_multiple_of(8));
        // SAFETY: the place is inside the memory and aligned; the heading says who accesses it when.
        unsafe { AtomicU64::from_ptr(self.memory.add(self.place(position)).cast().as_ptr()) }
    }

    /// Copies bytes to a position.
    ///
    /// # Safety
    /// The caller has reserved the bytes from the position on and has not stored their header.
    pub(super) unsafe fn copy(&self, position: u64, bytes: &[u8]) {
        let place = self.place(position);
        let first = bytes.len().min(self.capacity - place);
        let (start, rest) = bytes.split_at(first);
        // SAFETY: the bytes up to the end of the memory, and those from its beginning on, are the caller's.
        unsafe {
            self.memory.add(place).copy_from_nonoverlapping(NonNull::from(start).cast(), start.len());
            self.memory.copy_from_nonoverlapping(NonNull::from(rest).cast(), rest.len());
        }
    }

    /// Stores the header of a record that is complete behind it.
    pub(super) fn complete(&self, position: u64, header: u64) {
        self.header(position).store(header.to_le(), Ordering::Release);
    }

    /// The header at a position; zero if the record there is not complete.
    pub(super) fn completed(&self, position: u64) -> u64 {
        u64::from_le(self.header(position).load(Ordering::Acquire))
    }

    /// The bytes of complete records, in at most two parts.
    ///
    /// # Safety
    /// The caller is the daemon, has seen the headers of all records in the range, and has not cleared it.
    pub(super) unsafe fn parts(&self, from: u64, to: u64) -> [&[u8]; 2] {
        let place = self.place(from);
        #[expect(clippy::cast_possible_truncation, reason = "a range is not larger than the ring")]
        let bytes = (to - from) as usize;
        let first = bytes.min(self.capacity - place);
        // SAFETY: the range is inside the memory and, until it is cleared, the daemon's.
        unsafe {
            [
                std::slice::from_raw_parts(self.memory.add(place).as_ptr(), first),
                std::slice::from_raw_parts(self.memory.as_ptr(), bytes - first),
            ]
        }
    }

    /// Fills a range with zeros, so that no header is seen there before it is stored.
    ///
    /// # Safety
    /// As for [`parts`](Self::parts), none of which is still in use.
    pub(super) unsafe fn clear(&self, from: u64, to: u64) {
        let place = self.place(from);
        #[expect(clippy::cast_possible_truncation, reason = "a range is not larger than the ring")]
        let bytes = (to - from) as usize;
        let first = bytes.min(self.capacity - place);
        // SAFETY: as in `parts`.
        unsafe {
            self.memory.add(place).write_bytes(0, first);
            self.memory.write_bytes(0, bytes - first);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout.
        unsafe { dealloc(self.memory.as_ptr(), Ring::layout(self.capacity)) };
    }
}
