//! Changing one node.
//!
//! Owns every write into a page, apart from links and rows. A change finds room or says that there is none; it never moves
//! a record to make room, and never touches another page.

use super::{
    CAP_STEP, HEAD_BYTES, HEADER_PREFIX_BYTES, INNER_SLOT_BYTES, LEAF_SLOT_BYTES, NO_HEAD, NodePtr,
    RECORD_BYTES, StoredRow, VECTOR, arrays_end, cap_for, head_of,
};
use crate::key::first_eight;

impl NodePtr {
    /// Empties the node and gives it a prefix and room for `count` entries. Links and level stay.
    pub(crate) fn reset(self, page_bytes: usize, prefix: &[u8], count: usize) {
        let header = self.header_mut();
        header.prefix = [first_eight(prefix), first_eight(prefix.get(8..).unwrap_or_default())];
        header.prefix_len = prefix.len() as u16;
        header.count = 0;
        header.cap = cap_for(count) as u16;
        header.heap_at = page_bytes as u16;
        header.dead = 0;
        header.prefix_at = 0;
        header.ascending = 0;
        header.last_insert = 0;
        self.clear_heads(0);
        if prefix.len() > HEADER_PREFIX_BYTES {
            let at = self.push_heap(prefix.len());
            self.header_mut().prefix_at = at;
            self.write_bytes(usize::from(at), prefix);
        }
    }

    /// Marks the heads from `first` on as unused.
    fn clear_heads(self, first: usize) {
        for index in first..self.cap() {
            // SAFETY: the index is inside the array of heads.
            unsafe { *self.heads().add(index) = NO_HEAD };
        }
        if !self.is_leaf() {
            // All of them: another capacity may give hints another meaning.
            self.set_hints(0);
        }
    }

    /// Brings the hints of an inner node up to date with its heads from `first` on.
    fn set_hints(self, first: usize) {
        for hint in (first / self.hint_step()).min(VECTOR - 1)..VECTOR {
            // SAFETY: the hint is one of the array.
            unsafe { *self.hints().add(hint) = self.expected_hint(hint) };
        }
    }

    /// Reserves `bytes` of the heap, which must be free, and tells where they are.
    #[inline(always)]
    fn push_heap(self, bytes: usize) -> u16 {
        let header = self.header_mut();
        header.heap_at -= bytes as u16;
        header.heap_at
    }

    #[inline(always)]
    fn write_record(self, suffix: &[u8], row: StoredRow<'_>, version: u64) -> u16 {
        let rest = suffix.get(HEAD_BYTES..).unwrap_or_default();
        let at = self.push_heap(RECORD_BYTES + rest.len() + row.len());
        let record = usize::from(at);
        // SAFETY: the record was just reserved.
        unsafe { self.base().add(record).cast::<u64>().write_unaligned(version) };
        self.write_u16(record + 8, suffix.len());
        self.write_u16(record + 10, usize::from(row.length));
        if !rest.is_empty() {
            self.write_bytes(record + RECORD_BYTES, rest);
        }
        self.write_bytes(record + RECORD_BYTES + rest.len(), row.bytes);
        at
    }

    /// Inserts an entry into a leaf if there is room without moving records; tells whether it did.
    #[inline]
    pub(crate) fn insert_entry(self, index: usize, suffix: &[u8], row: StoredRow<'_>, version: u64) -> bool {
        let (count, cap) = (self.count(), self.cap());
        debug_assert!(index <= count);
        let record = RECORD_BYTES + suffix.len().saturating_sub(HEAD_BYTES) + row.len();
        let growth = if count + 1 == cap { CAP_STEP * LEAF_SLOT_BYTES } else { 0 };
        if self.heap_at() - arrays_end(true, cap) < record + growth {
            return false;
        }
        if growth > 0 {
            let old = self.leaf_offsets();
            self.header_mut().cap += CAP_STEP as u16;
            // SAFETY: the arrays grow into bytes that were found free; the moved offsets are initialised.
            unsafe { std::ptr::copy(old, self.leaf_offsets(), count) };
            self.clear_heads(count);
        }
        let offset = self.write_record(suffix, row, version);
        // SAFETY: there is room for one entry more in both arrays, and `index` is at most the count.
        unsafe {
            let (head, slot) = (self.leaf_heads().add(index), self.leaf_offsets().add(index));
            // At the end, where most rows of a run come, there is nothing to move.
            if index < count {
                std::ptr::copy(head, head.add(1), count - index);
                std::ptr::copy(slot, slot.add(1), count - index);
            }
            *head = head_of(suffix);
            *slot = offset;
        }
        let header = self.header_mut();
        header.count += 1;
        header.ascending =
            if index == usize::from(header.last_insert) + 1 { header.ascending.saturating_add(1) } else { 0 };
        header.last_insert = index as u16;
        true
    }

    /// Gives leaf entry `index` another row if there is room without moving other records; tells whether it did. What the old
    /// row has elsewhere is the tree's business.
    pub(crate) fn replace_row(self, index: usize, row: StoredRow<'_>, version: u64) -> bool {
        let (row_at, old_len) = self.stored_location(index);
        let record = self.record_at(index);
        if row.len() > old_len {
            let rest_len = row_at - record - RECORD_BYTES;
            let wanted = row_at - record + row.len();
            if self.free_bytes() < wanted {
                return false;
            }
            let at = usize::from(self.push_heap(wanted));
            // SAFETY: both records are inside the page and apart, the new one was just reserved.
            unsafe {
                let page = self.base();
                std::ptr::copy_nonoverlapping(page.add(record), page.add(at), RECORD_BYTES + rest_len);
                *self.leaf_offsets().add(index) = at as u16;
            }
            self.header_mut().dead += (row_at - record + old_len) as u16;
            self.write_u16(at + 10, usize::from(row.length));
            self.write_bytes(at + RECORD_BYTES + rest_len, row.bytes);
        } else {
            self.header_mut().dead += (old_len - row.len()) as u16;
            self.write_u16(record + 10, usize::from(row.length));
            self.write_bytes(row_at, row.bytes);
        }
        self.set_version(index, version);
        true
    }

    /// Removes leaf entry `index`.
    pub(crate) fn remove_entry(self, index: usize) {
        let count = self.count();
        let (record, bytes) = (self.record_at(index), self.record_bytes(index));
        let header = self.header_mut();
        if record == usize::from(header.heap_at) {
            header.heap_at += bytes as u16;
        } else {
            header.dead += bytes as u16;
        }
        // SAFETY: the entries behind `index` move one to the front inside their arrays.
        unsafe {
            let head = self.heads().add(index);
            std::ptr::copy(head.add(1), head, count - index - 1);
            *self.heads().add(count - 1) = NO_HEAD;
            let slot = self.leaf_offsets().add(index);
            std::ptr::copy(slot.add(1), slot, count - index - 1);
        }
        self.header_mut().count -= 1;
    }

    /// Sets the first child of an inner node that was just reset.
    pub(crate) fn set_first_child(self, child: NodePtr, rows: u32) {
        // SAFETY: an inner node has room for one child more than separators, whatever its capacity.
        unsafe {
            *self.children() = child;
            *self.child_rows() = rows;
        }
    }

    /// Inserts into an inner node a separator at `index` and the child on its right, if there is room; tells whether
    /// it did. `suffix` is the separator without the prefix of the node.
    pub(crate) fn insert_child(self, index: usize, suffix: &[u8], child: NodePtr, rows: u32) -> bool {
        let (count, cap) = (self.count(), self.cap());
        debug_assert!(index <= count);
        let heap = if suffix.len() > HEAD_BYTES { suffix.len() - HEAD_BYTES + 2 } else { 0 };
        let growth = if count + 1 == cap { CAP_STEP * INNER_SLOT_BYTES } else { 0 };
        if self.free_bytes() < heap + growth {
            return false;
        }
        if growth > 0 {
            let (children, rows, suffixes) = (self.children(), self.child_rows(), self.suffixes());
            self.header_mut().cap += CAP_STEP as u16;
            // SAFETY: the arrays grow into bytes that were found free, the last array is moved first, and what is
            // moved is initialised.
            unsafe {
                std::ptr::copy(suffixes, self.suffixes(), count);
                std::ptr::copy(rows, self.child_rows(), count + 1);
                std::ptr::copy(children, self.children(), count + 1);
            }
            self.clear_heads(count);
        }
        let location = if heap == 0 {
            suffix.len() as u16
        } else {
            let at = self.push_heap(heap);
            self.write_u16(usize::from(at), suffix.len());
            self.write_bytes(usize::from(at) + 2, &suffix[HEAD_BYTES..]);
            at
        };
        // SAFETY: there is room for one entry more in all arrays, and `index` is at most the count.
        unsafe {
            let head = self.heads().add(index);
            std::ptr::copy(head, head.add(1), count - index);
            *head = head_of(suffix);
            let slot = self.suffixes().add(index);
            std::ptr::copy(slot, slot.add(1), count - index);
            *slot = location;
            let slot = self.children().add(index + 1);
            std::ptr::copy(slot, slot.add(1), count - index);
            *slot = child;
            let slot = self.child_rows().add(index + 1);
            std::ptr::copy(slot, slot.add(1), count - index);
            *slot = rows;
        }
        self.header_mut().count += 1;
        self.set_hints(index);
        true
    }

    /// Removes child `index` of an inner node that has another one, and the separator between it and its neighbour.
    pub(crate) fn remove_child(self, index: usize) {
        let count = self.count();
        debug_assert!(!self.is_leaf() && count > 0 && index <= count);
        let separator = index.saturating_sub(1);
        if let Some((_, bytes)) = self.separator_heap(separator) {
            self.header_mut().dead += bytes as u16;
        }
        // SAFETY: the entries behind the removed ones move one to the front inside their arrays.
        unsafe {
            let head = self.heads().add(separator);
            std::ptr::copy(head.add(1), head, count - separator - 1);
            *self.heads().add(count - 1) = NO_HEAD;
            let slot = self.suffixes().add(separator);
            std::ptr::copy(slot.add(1), slot, count - separator - 1);
            let slot = self.children().add(index);
            std::ptr::copy(slot.add(1), slot, count - index);
            let slot = self.child_rows().add(index);
            std::ptr::copy(slot.add(1), slot, count - index);
        }
        self.header_mut().count -= 1;
        self.set_hints(separator);
    }
}
