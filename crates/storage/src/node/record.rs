//! Records of a leaf: versions and rows.
//!
//! Owns what a record says of its row: its bytes, or, for a row that is too long for a leaf, the [`Extent`] where they are.
//! It follows such a reference to read or write the row, and never allocates or frees one: that is the tree's business.
//!
//! The length of a row is read anyway; that it is not a length is how a long row is told, so short rows pay one comparison.
//!
//! # Safety
//! An extent that a record refers to belongs to the tree of its leaf alone, and stays alive as long as the record has it.

use super::{HEAD_BYTES, NodePtr, RECORD_BYTES};
use crate::memory::Extent;
use crate::prefetch::{LINE_BYTES, RowLines, prefetch};

/// Stored in a record in place of the length of a row that lies in an extent.
const ELSEWHERE: u16 = u16::MAX;

/// The part of a record that stands for the row: its bytes, or a reference to them.
#[derive(Clone, Copy)]
pub(crate) struct StoredRow<'a> {
    /// Either the row or an [`Extent`], as it is in memory.
    pub(super) bytes: &'a [u8],
    /// The length field of the record.
    pub(super) length: u16,
}

impl<'a> StoredRow<'a> {
    /// A row that is short enough for a leaf.
    #[inline(always)]
    pub(crate) fn here(row: &'a [u8]) -> StoredRow<'a> {
        StoredRow { bytes: row, length: row.len() as u16 }
    }

    /// A row whose bytes are in `extent`.
    pub(crate) fn elsewhere(extent: &'a Extent) -> StoredRow<'a> {
        const { assert!(size_of::<Extent>() == size_of::<usize>() + 8, "an extent has no padding") };
        // SAFETY: an extent has no padding, so all its bytes are initialised.
        let bytes =
            unsafe { std::slice::from_raw_parts((&raw const *extent).cast::<u8>(), size_of::<Extent>()) };
        StoredRow { bytes, length: ELSEWHERE }
    }

    /// Makes it from the parts that were taken from a record, or are to be written into one.
    pub(crate) fn of_parts(bytes: &'a [u8], is_elsewhere: bool) -> StoredRow<'a> {
        StoredRow { bytes, length: if is_elsewhere { ELSEWHERE } else { bytes.len() as u16 } }
    }

    /// Bytes it takes in a leaf.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) fn is_elsewhere(&self) -> bool {
        self.length == ELSEWHERE
    }
}

/// A reference that nobody has followed yet, which may be damaged: for checks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reference {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
}

impl NodePtr {
    /// Offset of the record of leaf entry `index`.
    #[inline(always)]
    pub(crate) fn record_at(self, index: usize) -> usize {
        debug_assert!(self.is_leaf() && index < self.count());
        // SAFETY: the index is that of an entry.
        usize::from(unsafe { *self.leaf_offsets().add(index) })
    }

    /// Asks for the lines with the record of leaf entry `index`, if it takes `lines` of them and begins in the middle of one.
    #[inline(always)]
    pub(crate) fn prefetch_record(self, index: usize, lines: usize) {
        let record = self.base().wrapping_add(self.record_at(index));
        // The first is always asked for; a range that includes its end would be tested twice for each line.
        prefetch(record);
        for line in 1..lines + 1 {
            prefetch(record.wrapping_add(line * LINE_BYTES));
        }
    }

    /// The lines of the record of leaf entry `index` after the one that it begins in, as [`prefetch_record`](NodePtr::prefetch_record)
    /// asks for them.
    #[inline(always)]
    pub(crate) fn record_lines(self, index: usize, lines: usize) -> RowLines {
        RowLines::new(self.base().wrapping_add(self.record_at(index) + LINE_BYTES), lines)
    }

    #[inline(always)]
    pub(crate) fn version(self, index: usize) -> u64 {
        // SAFETY: a record begins with its version.
        unsafe { self.base().add(self.record_at(index)).cast::<u64>().read_unaligned() }
    }

    #[inline(always)]
    pub(crate) fn set_version(self, index: usize, version: u64) {
        // SAFETY: a record begins with its version.
        unsafe { self.base().add(self.record_at(index)).cast::<u64>().write_unaligned(version) };
    }

    /// Offset of the stored row of leaf entry `index`, and its length field.
    #[inline(always)]
    fn row_location(self, index: usize) -> (usize, usize) {
        let record = self.record_at(index);
        let suffix_len = self.read_u16(record + 8);
        (record + RECORD_BYTES + suffix_len.saturating_sub(HEAD_BYTES), self.read_u16(record + 10))
    }

    /// Offset of the stored row of leaf entry `index`, and the number of its bytes there.
    #[inline(always)]
    pub(super) fn stored_location(self, index: usize) -> (usize, usize) {
        let (at, length) = self.row_location(index);
        (at, if length == usize::from(ELSEWHERE) { size_of::<Extent>() } else { length })
    }

    /// The stored row of leaf entry `index`.
    pub(crate) fn stored_row<'a>(self, index: usize) -> StoredRow<'a> {
        let (at, len) = self.stored_location(index);
        StoredRow { bytes: self.bytes(at, len), length: self.row_location(index).1 as u16 }
    }

    /// The row of leaf entry `index`.
    #[inline(always)]
    pub(crate) fn row<'a>(self, index: usize) -> &'a [u8] {
        let (at, length) = self.row_location(index);
        if length == usize::from(ELSEWHERE) { self.row_elsewhere(at) } else { self.bytes(at, length) }
    }

    #[cold]
    fn row_elsewhere<'a>(self, at: usize) -> &'a [u8] {
        let extent = self.extent_at(at);
        // SAFETY: the extent is the row's own, alive and written, and not changed while the tree is borrowed.
        unsafe { std::slice::from_raw_parts(extent.address.as_ptr(), extent.bytes as usize) }
    }

    /// The row of leaf entry `index`, for writing.
    #[inline(always)]
    pub(crate) fn row_mut<'a>(self, index: usize) -> &'a mut [u8] {
        let (at, length) = self.row_location(index);
        if length == usize::from(ELSEWHERE) {
            return self.row_elsewhere_mut(at);
        }
        // SAFETY: the row is inside the page and written; the caller holds the exclusive borrow of the tree.
        unsafe { std::slice::from_raw_parts_mut(self.base().add(at), length) }
    }

    #[cold]
    fn row_elsewhere_mut<'a>(self, at: usize) -> &'a mut [u8] {
        let extent = self.extent_at(at);
        // SAFETY: the extent is the row's own, alive and written; the caller holds the exclusive borrow of the tree.
        unsafe { std::slice::from_raw_parts_mut(extent.address.as_ptr(), extent.bytes as usize) }
    }

    /// The extent of leaf entry `index`, if its row is elsewhere.
    #[inline(always)]
    pub(crate) fn extent(self, index: usize) -> Option<Extent> {
        let (at, length) = self.row_location(index);
        if length == usize::from(ELSEWHERE) { Some(self.extent_at(at)) } else { None }
    }

    fn extent_at(self, at: usize) -> Extent {
        // SAFETY: the record says that an extent is stored there.
        unsafe { self.base().add(at).cast::<Extent>().read_unaligned() }
    }

    /// Writes another extent over that of leaf entry `index`.
    pub(crate) fn set_extent(self, index: usize, extent: Extent) {
        let (at, length) = self.row_location(index);
        debug_assert!(length == usize::from(ELSEWHERE), "only a reference is replaced by one");
        // SAFETY: the record says that an extent is stored there.
        unsafe { self.base().add(at).cast::<Extent>().write_unaligned(extent) };
    }

    /// The extent of leaf entry `index`, if its row is elsewhere, as plain numbers.
    pub(crate) fn reference(self, index: usize) -> Option<Reference> {
        let (at, length) = self.row_location(index);
        if length != usize::from(ELSEWHERE) {
            return None;
        }
        // SAFETY: the fields are inside the record, which is checked to be in its page, and have any value.
        unsafe {
            let extent = self.base().add(at).cast::<Extent>();
            let address = (&raw const (*extent).address).cast::<usize>().read_unaligned();
            let bytes = (&raw const (*extent).bytes).read_unaligned();
            Some(Reference { address, bytes: bytes as usize })
        }
    }

    /// Bytes of the record of leaf entry `index`.
    pub(crate) fn record_bytes(self, index: usize) -> usize {
        let (row_at, row_len) = self.stored_location(index);
        row_at + row_len - self.record_at(index)
    }
}
