//! The keys of a node: the prefix that all have, and the suffix of each.
//!
//! Reads only, under the promise of a [`NodePtr`]; indexes are checked in debug builds.

use super::{HEAD_BYTES, HEADER_BYTES, HEADER_PREFIX_BYTES, NodePtr, RECORD_BYTES};
use crate::key::KeyBuf;

impl NodePtr {
    #[inline(always)]
    pub(crate) fn prefix_len(self) -> usize {
        usize::from(self.header().prefix_len)
    }

    /// Appends the prefix to `key`.
    #[inline]
    pub(crate) fn append_prefix(self, key: &mut KeyBuf) {
        let len = self.prefix_len();
        if len <= HEADER_PREFIX_BYTES {
            key.extend_from_slice(&self.header().prefix_bytes()[..len]);
        } else {
            key.extend_from_slice(self.bytes(self.prefix_at(), len));
        }
    }

    /// Length of the suffix of entry `index`, and where its bytes after the head are.
    #[inline(always)]
    pub(super) fn suffix_location<const LEAF: bool>(self, index: usize) -> (usize, usize) {
        debug_assert!(index < self.count() && LEAF == self.is_leaf());
        if LEAF {
            let record = self.record_at(index);
            (self.read_u16(record + 8), record + RECORD_BYTES)
        } else {
            let suffix = self.stored_suffix(index);
            if suffix <= HEAD_BYTES { (suffix, HEADER_BYTES) } else { (self.read_u16(suffix), suffix + 2) }
        }
    }

    #[inline]
    pub(super) fn any_suffix_location(self, index: usize) -> (usize, usize) {
        if self.is_leaf() {
            self.suffix_location::<true>(index)
        } else {
            self.suffix_location::<false>(index)
        }
    }

    /// The stored form of the suffix of separator `index` in an inner node: its length when at most [`HEAD_BYTES`],
    /// otherwise the offset of the rest of it.
    #[inline(always)]
    pub(crate) fn stored_suffix(self, index: usize) -> usize {
        debug_assert!(!self.is_leaf() && index < self.count());
        // SAFETY: the index is that of a separator.
        usize::from(unsafe { *self.suffixes().add(index) })
    }

    /// Appends the whole key of entry (or separator) `index` to `key`, however long it is.
    #[inline(never)]
    fn append_key(self, index: usize, key: &mut KeyBuf) {
        self.append_prefix(key);
        let (len, rest_at) = self.any_suffix_location(index);
        let head = (self.head(index) ^ i32::MIN).to_be_bytes();
        key.extend_from_slice(&head[..len.min(HEAD_BYTES)]);
        if len > HEAD_BYTES {
            key.extend_from_slice(self.bytes(rest_at, len - HEAD_BYTES));
        }
    }

    /// Writes the whole key of entry (or separator) `index` over `key`.
    #[inline]
    pub(crate) fn key_into(self, index: usize, key: &mut KeyBuf) {
        let (len, rest_at) = self.any_suffix_location(index);
        let rest = self.bytes(rest_at, len.saturating_sub(HEAD_BYTES));
        let prefix = (self.header().prefix_bytes(), self.prefix_len());
        let head = ((self.head(index) ^ i32::MIN).to_be_bytes(), len.min(HEAD_BYTES));
        if !key.set_from_parts(prefix, head, rest) {
            key.clear();
            self.append_key(index, key);
        }
    }

    /// The whole key of entry (or separator) `index`.
    pub(crate) fn key(self, index: usize) -> KeyBuf {
        let mut key = KeyBuf::new();
        self.key_into(index, &mut key);
        key
    }

    /// Length of the suffix of entry `index`.
    pub(crate) fn suffix_len(self, index: usize) -> usize {
        self.any_suffix_location(index).0
    }

    /// Offset and length of the heap bytes of the suffix of separator `index`: none when it fits the head.
    pub(crate) fn separator_heap(self, index: usize) -> Option<(usize, usize)> {
        let (len, rest_at) = self.suffix_location::<false>(index);
        (len > HEAD_BYTES).then(|| (rest_at - 2, len - HEAD_BYTES + 2))
    }
}
