//! [`Record`]: the state of one key: a TID, the bytes of the row, and the key.
//!
//! Owns: the memory of records, and the protocol by which rows are copied out while they may be overwritten. Never: decides
//! who may overwrite; a transaction's commit does.
//!
//! # The TID word
//! The bits of a TID are, from the lowest: [`LOCKED`], [`ABSENT`] (the key has no row), [`OBSOLETE`] (the record is no longer in
//! its tree: whoever finds it looks again), 29 bits of sequence and 32 bits of epoch. A record's TID never takes a value
//! twice, except that it is locked and unlocked.
//!
//! # Why copies are whole
//! A row is overwritten in place, as in Silo: TPC-C updates rows of the same length all the time. Its bytes are atomic words
//! that are loaded and stored relaxed, so that a copy during an overwrite is no data race but a torn copy, which is noticed
//! and made again. A writer locks the TID, issues a release fence, stores the words, and stores the new TID with release. A
//! reader loads an unlocked TID with acquire, loads the words, issues an acquire fence and loads the TID again. If a word
//! came from a writer that locked later, the fences order the writer's lock before the second load, which finds
//! another TID. (loom: `record_*`.)
//!
//! # Why the unsafe code is sound
//! A record is one allocation: header, words, key. Key, lengths and capacity never change. A [`Record`] exists only for as
//! long as a guard of the collector keeps the allocation: it is made from a pointer that a pinned thread found in the tree.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::NonNull;

use super::sync::{Acquire, AtomicU32, AtomicU64, Relaxed, Release, Spin, fence};
use crate::planted::{Bug, pause, planted};

/// Set while a commit, or the abort of an insertion, owns the record.
pub(crate) const LOCKED: u64 = 1;
/// Set while the key has no row.
pub(crate) const ABSENT: u64 = 2;
/// Set from the moment at which the record has been taken out of its tree, for ever.
pub(crate) const OBSOLETE: u64 = 4;
/// The lowest bit of the sequence.
pub(crate) const SEQUENCE: u64 = 8;
/// The lowest bit of the epoch.
pub(crate) const EPOCH_SHIFT: u32 = 32;
/// Bits that do not order TIDs.
pub(crate) const FLAGS: u64 = LOCKED | ABSENT | OBSOLETE;

/// The beginning of a record; the words of the row and the bytes of the key lie behind it.
#[repr(C)]
pub(crate) struct Header {
    tid: AtomicU64,
    /// Bytes of the row; changes with the words.
    row_bytes: AtomicU32,
    /// Words that the record has room for.
    capacity: u32,
    key_bytes: u32,
}

/// A record that stays allocated during `'g`.
#[derive(Clone, Copy)]
pub(crate) struct Record<'g> {
    header: NonNull<Header>,
    guard: PhantomData<&'g Header>,
}

/// The copy of a row. Its memory is kept for the next copy.
#[derive(Debug, Default)]
pub(crate) struct RowBuffer {
    words: Vec<u64>,
    bytes: usize,
}

impl RowBuffer {
    /// The bytes of the row.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        let bytes = self.bytes.min(8 * self.words.len());
        // SAFETY: the words are initialized, any bytes are valid, and there are at least so many.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast::<u8>(), bytes) }
    }

    #[inline]
    fn room(&mut self, words: usize) -> &mut [u64] {
        if self.words.len() < words {
            self.grow(words);
        }
        &mut self.words[..words]
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, words: usize) {
        self.words.resize(words.next_power_of_two(), 0);
    }
}

/// The word of eight bytes or fewer.
#[inline]
fn word_of(chunk: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..chunk.len()].copy_from_slice(chunk);
    u64::from_ne_bytes(bytes)
}

/// The layout of a record, and where its key begins.
fn layout(capacity: usize, key_bytes: usize) -> (Layout, usize) {
    let key_at = size_of::<Header>() + capacity * size_of::<AtomicU64>();
    let layout = Layout::from_size_align(key_at + key_bytes, align_of::<Header>())
        .expect("keys and rows are far shorter than the address space");
    (layout, key_at)
}

impl<'g> Record<'g> {
    /// Allocates a record with room for a row of so many bytes and a little more; the row itself is left empty.
    pub(crate) fn allocate(key: &[u8], row_bytes: usize, tid: u64) -> NonNull<Header> {
        // Allocators round up to 16 bytes anyway.
        let capacity = row_bytes.div_ceil(16) * 2;
        let (layout, key_at) = layout(capacity, key.len());
        // SAFETY: the layout is not empty.
        let Some(memory) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        let header = memory.cast::<Header>();
        let words = capacity as u32;
        let first = Header {
            tid: AtomicU64::new(tid),
            row_bytes: AtomicU32::new(0),
            capacity: words,
            key_bytes: key.len() as u32,
        };
        // SAFETY: all writes are inside the allocation, which nobody else knows yet.
        unsafe {
            header.write(first);
            let words = header.add(1).cast::<AtomicU64>();
            for at in 0..capacity {
                words.add(at).write(AtomicU64::new(0));
            }
            memory.add(key_at).copy_from_nonoverlapping(NonNull::from(key).cast(), key.len());
        }
        header
    }

    /// A record that lives during `'g`.
    ///
    /// # Safety
    /// `header` was made by [`Record::allocate`] and is not freed during `'g`.
    #[inline]
    pub(crate) unsafe fn from_pointer(header: NonNull<Header>) -> Record<'g> {
        Record { header, guard: PhantomData }
    }

    /// Frees a record.
    ///
    /// # Safety
    /// `header` was made by [`Record::allocate`], and nobody uses it any more.
    pub(crate) unsafe fn free(header: NonNull<Header>) {
        // SAFETY: as the caller promises.
        let record = unsafe { Record::from_pointer(header) };
        let (layout, _) = layout(record.header().capacity as usize, record.header().key_bytes as usize);
        // SAFETY: as the caller promises; the layout is that of the allocation.
        unsafe { dealloc(header.as_ptr().cast(), layout) };
    }

    /// The identity of the record.
    #[inline]
    pub(crate) fn pointer(self) -> NonNull<Header> {
        self.header
    }

    /// Bytes of memory that the record takes.
    pub(crate) fn memory(self) -> usize {
        layout(self.header().capacity as usize, self.header().key_bytes as usize).0.size()
    }

    #[inline]
    fn header(self) -> &'g Header {
        // SAFETY: a record lives during `'g`.
        unsafe { self.header.as_ref() }
    }

    #[inline]
    fn words(self) -> &'g [AtomicU64] {
        let words = self.header().capacity as usize;
        // SAFETY: so many initialized words lie behind the header, in the same allocation.
        unsafe { std::slice::from_raw_parts(self.header.add(1).cast::<AtomicU64>().as_ptr(), words) }
    }

    /// The key.
    #[inline]
    pub(crate) fn key(self) -> &'g [u8] {
        let (words, bytes) = (self.header().capacity as usize, self.header().key_bytes as usize);
        // SAFETY: the key lies behind the words, in the same allocation, and never changes.
        unsafe {
            let key = self.header.add(1).cast::<AtomicU64>().add(words).cast::<u8>();
            std::slice::from_raw_parts(key.as_ptr(), bytes)
        }
    }

    /// Returns whether a row of so many bytes fits into the record.
    #[inline]
    pub(crate) fn fits(self, row_bytes: usize) -> bool {
        row_bytes <= 8 * self.header().capacity as usize
    }

    /// The TID as it is, locked or not.
    #[inline]
    pub(crate) fn tid_now(self) -> u64 {
        self.header().tid.load(Acquire)
    }

    /// The TID, when it is not locked.
    #[inline]
    pub(crate) fn tid(self) -> u64 {
        let tid = self.tid_now();
        if tid & LOCKED == 0 { tid } else { self.wait() }
    }

    #[cold]
    fn wait(self) -> u64 {
        let mut spin = Spin::default();
        loop {
            let tid = self.tid_now();
            if tid & LOCKED == 0 {
                return tid;
            }
            spin.wait();
        }
    }

    /// Copies the row and returns the TID that it has; copies nothing if there is none.
    #[inline]
    pub(crate) fn read(self, row: &mut RowBuffer) -> u64 {
        loop {
            let tid = self.tid();
            if tid & (ABSENT | OBSOLETE) != 0 && !(tid & ABSENT == 0 && planted(Bug::ObsoleteIgnored)) {
                return tid;
            }
            row.bytes = self.header().row_bytes.load(Relaxed) as usize;
            let words = self.words();
            let words = &words[..row.bytes.div_ceil(8).min(words.len())];
            for (to, from) in row.room(words.len()).iter_mut().zip(words) {
                *to = from.load(Relaxed);
                pause();
            }
            if !planted(Bug::CopyFenceLeftOut) {
                fence(Acquire);
            }
            if self.header().tid.load(Relaxed) == tid || planted(Bug::TornReads) {
                return tid;
            }
        }
    }

    /// Locks the record if its TID is the expected one; waits while somebody else holds it.
    #[inline]
    pub(crate) fn lock(self, expected: u64) -> bool {
        let tid = &self.header().tid;
        let mut spin = Spin::default();
        loop {
            match tid.compare_exchange(expected, expected | LOCKED, Acquire, Relaxed) {
                Ok(_) => break,
                Err(now) if now & !LOCKED != expected => return false,
                // The weak model check aside, only a lock can have been in the way.
                Err(_) => spin.wait(),
            }
        }
        if !planted(Bug::OverwriteFenceLeftOut) {
            fence(Release);
        }
        true
    }

    /// Locks the record if its TID is the expected one and nobody holds it.
    #[cfg(not(loom))]
    pub(crate) fn try_lock(self, expected: u64) -> bool {
        self.tid_now() == expected && {
            let locked =
                self.header().tid.compare_exchange(expected, expected | LOCKED, Acquire, Relaxed).is_ok();
            if locked {
                fence(Release);
            }
            locked
        }
    }

    /// Locks the record whatever its TID is, which it returns.
    pub(crate) fn lock_any(self) -> u64 {
        loop {
            let tid = self.tid();
            if self.lock(tid) {
                return tid;
            }
        }
    }

    /// Overwrites the row, which fits. Only for the thread that has locked the record, or that has just allocated it.
    #[inline]
    pub(crate) fn overwrite(self, row: &[u8]) {
        self.header().row_bytes.store(row.len() as u32, Relaxed);
        let (chunks, rest) = row.as_chunks::<8>();
        let words = self.words();
        for (word, chunk) in words.iter().zip(chunks) {
            word.store(u64::from_ne_bytes(*chunk), Relaxed);
            pause();
        }
        if let (false, Some(word)) = (rest.is_empty(), words.get(chunks.len())) {
            word.store(word_of(rest), Relaxed);
        }
    }

    /// Gives the record a TID, and thereby unlocks it. Only for the thread that has locked it.
    #[inline]
    pub(crate) fn unlock(self, tid: u64) {
        self.header().tid.store(tid, Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn rows_of_every_length_come_back() {
        let header = Record::allocate(b"the key", 100, SEQUENCE);
        // SAFETY: it is freed at the end of this function.
        let record = unsafe { Record::from_pointer(header) };
        let mut buffer = RowBuffer::default();
        for len in (0..=100).rev().chain(0..=100) {
            let row: Vec<u8> = (0..len).map(|at| at as u8 ^ 0x5a).collect();
            assert!(record.fits(row.len()) && record.lock(SEQUENCE));
            record.overwrite(&row);
            record.unlock(SEQUENCE);
            assert_eq!((record.read(&mut buffer), buffer.bytes()), (SEQUENCE, &row[..]));
        }
        assert!(!record.fits(113) && record.key() == b"the key" && record.memory() >= 107);
        // SAFETY: nobody else knows it.
        unsafe { Record::free(header) };
    }

    #[test]
    fn a_record_is_locked_only_in_the_expected_state() {
        let header = Record::allocate(b"", 0, ABSENT);
        // SAFETY: it is freed at the end of this function.
        let record = unsafe { Record::from_pointer(header) };
        assert!(!record.lock(SEQUENCE));
        assert!(record.lock(ABSENT));
        assert_eq!(record.tid_now(), ABSENT | LOCKED);
        record.unlock(SEQUENCE);
        assert!(!record.lock(ABSENT) && record.lock_any() == SEQUENCE);
        record.unlock(SEQUENCE | OBSOLETE);
        let mut buffer = RowBuffer::default();
        assert_eq!(record.read(&mut buffer), SEQUENCE | OBSOLETE);
        // SAFETY: nobody else knows it.
        unsafe { Record::free(header) };
    }
}
