//! Packing: the contents of nodes taken out, changed, and written into one or two nodes again.
//!
//! Owns the computation of what fits a page, and the choice of prefix. Every change that moves records (splits,
//! merges, compaction, a shorter prefix) goes this way; changes that find room in place never come here.
//! It touches only the nodes it is given and never allocates pages.
//!
//! Invariant: what `fits` can be packed, and packing leaves no dead bytes.

use crate::key::{KeyBuf, common_prefix_len};
use crate::node::{HEAD_BYTES, HEADER_PREFIX_BYTES, NodePtr, RECORD_BYTES, StoredRow, arrays_end, cap_for};
use std::ops::Range;

/// A part of the byte store of a list.
#[derive(Clone, Copy, Default)]
struct Part {
    start: u32,
    len: u32,
}

/// The byte store of a list.
#[derive(Default)]
struct Store(Vec<u8>);

impl Store {
    fn put(&mut self, bytes: &[u8]) -> Part {
        let start = self.0.len() as u32;
        self.0.extend_from_slice(bytes);
        Part { start, len: bytes.len() as u32 }
    }

    fn put_key(&mut self, node: NodePtr, index: usize, key: &mut KeyBuf) -> Part {
        node.key_into(index, key);
        self.put(key)
    }

    fn get(&self, part: Part) -> &[u8] {
        &self.0[part.start as usize..(part.start + part.len) as usize]
    }
}

fn stored_prefix_bytes(prefix_len: usize) -> usize {
    if prefix_len > HEADER_PREFIX_BYTES { prefix_len } else { 0 }
}

/// The length of the prefix to use, given the longest there is: that one if it fits, as it makes heads tell most.
///
/// A longer prefix can take a few bytes *more* (it is stored once, and what it saves may be nothing: short suffixes
/// live in the heads anyway). So what fitted before might not with the longest prefix; then it does with one a head
/// shorter at most, or with what the header holds.
fn fitting_prefix(longest: usize, fits: impl Fn(usize) -> bool) -> Option<usize> {
    let shorter = longest.saturating_sub(HEAD_BYTES)..=longest;
    let mut candidates = shorter.rev().chain((longest > HEADER_PREFIX_BYTES).then_some(HEADER_PREFIX_BYTES));
    candidates.find(|&prefix| fits(prefix))
}

struct LeafEntry {
    key: Part,
    /// The stored row: its bytes, or a reference to them.
    row: Part,
    is_elsewhere: bool,
    version: u64,
}

/// The entries of one or two leaves.
#[derive(Default)]
pub(crate) struct LeafList {
    store: Store,
    entries: Vec<LeafEntry>,
}

impl LeafList {
    pub(crate) fn clear(&mut self) {
        self.store.0.clear();
        self.entries.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn key(&self, index: usize) -> &[u8] {
        self.store.get(self.entries[index].key)
    }

    /// Appends the entries of `leaf`.
    pub(crate) fn unpack(&mut self, leaf: NodePtr) {
        let mut key = KeyBuf::new();
        for index in 0..leaf.count() {
            let key = self.store.put_key(leaf, index, &mut key);
            let row = leaf.stored_row(index);
            let (is_elsewhere, row) = (row.is_elsewhere(), self.store.put(row.bytes()));
            self.entries.push(LeafEntry { key, row, is_elsewhere, version: leaf.version(index) });
        }
    }

    pub(crate) fn insert(&mut self, index: usize, key: &[u8], row: StoredRow<'_>, version: u64) {
        let (key, is_elsewhere) = (self.store.put(key), row.is_elsewhere());
        let row = self.store.put(row.bytes());
        self.entries.insert(index, LeafEntry { key, row, is_elsewhere, version });
    }

    pub(crate) fn push(&mut self, key: &[u8], row: StoredRow<'_>, version: u64) {
        self.insert(self.len(), key, row, version);
    }

    pub(crate) fn replace(&mut self, index: usize, row: StoredRow<'_>, version: u64) {
        let bytes = self.store.put(row.bytes());
        let entry = &mut self.entries[index];
        (entry.row, entry.is_elsewhere) = (bytes, row.is_elsewhere());
        entry.version = version;
    }

    fn stored_row(&self, entry: &LeafEntry) -> StoredRow<'_> {
        StoredRow::of_parts(self.store.get(entry.row), entry.is_elsewhere)
    }

    /// Takes the last entry off again.
    pub(crate) fn pop(&mut self) {
        self.entries.pop();
    }

    /// Size of a page with all entries, whose keys and rows have `bytes`, if it had no prefix.
    pub(crate) fn bytes_without_prefix(&self, bytes: usize) -> usize {
        arrays_end(true, cap_for(self.len())) + RECORD_BYTES * self.len() + bytes
    }

    /// Moves the last entry into an otherwise emptied list.
    pub(crate) fn keep_last(&mut self) {
        if let Some(entry) = self.entries.pop() {
            let (key, row) = (self.store.get(entry.key).to_vec(), self.store.get(entry.row).to_vec());
            self.clear();
            self.push(&key, StoredRow::of_parts(&row, entry.is_elsewhere), entry.version);
        }
    }

    fn prefix(&self, range: &Range<usize>) -> &[u8] {
        if range.is_empty() {
            return &[];
        }
        let first = self.key(range.start);
        &first[..common_prefix_len(first, self.key(range.end - 1))]
    }

    /// Bytes of a page that has the entries in `range` with a prefix of `prefix` bytes.
    fn packed_bytes(&self, range: &Range<usize>, prefix: usize) -> usize {
        let records: usize = self.entries[range.clone()].iter().map(|entry| entry.bytes(prefix)).sum();
        arrays_end(true, cap_for(range.len())) + records + stored_prefix_bytes(prefix)
    }

    /// The length of the prefix with which the entries in `range` fit `limit` bytes.
    fn fitting_prefix(&self, range: &Range<usize>, limit: usize) -> Option<usize> {
        fitting_prefix(self.prefix(range).len(), |prefix| self.packed_bytes(range, prefix) <= limit)
    }

    /// Returns whether the entries in `range` fit `limit` bytes.
    pub(crate) fn fits(&self, range: Range<usize>, limit: usize) -> bool {
        self.fitting_prefix(&range, limit).is_some()
    }

    /// Writes the entries in `range`, which fit, into `leaf`, over what it has.
    pub(crate) fn pack(&self, range: Range<usize>, leaf: NodePtr, page_bytes: usize) {
        let prefix = self.fitting_prefix(&range, page_bytes).expect("only what fits is packed");
        leaf.reset(page_bytes, &self.prefix(&range)[..prefix], range.len());
        for (index, entry) in self.entries[range].iter().enumerate() {
            let suffix = &self.store.get(entry.key)[prefix..];
            let fits = leaf.insert_entry(index, suffix, self.stored_row(entry), entry.version);
            assert!(fits, "the size of a packed page was computed wrongly");
        }
    }

    /// Index at which to cut the list in two that both fit a page: as near to equal bytes as possible, or, with a
    /// `wish`, as near to that index as possible.
    pub(crate) fn cut(&self, page_bytes: usize, wish: Option<usize>) -> usize {
        let aim = wish.unwrap_or_else(|| {
            let sizes = |entry: &LeafEntry| entry.bytes(0) + 2 * HEAD_BYTES;
            let total: usize = self.entries.iter().map(sizes).sum();
            let mut below = 0;
            self.entries
                .iter()
                .take_while(|entry| {
                    below += sizes(entry);
                    2 * below <= total
                })
                .count()
        });
        nearest_cut(self.len(), aim, |cut| {
            self.fits(0..cut, page_bytes) && self.fits(cut..self.len(), page_bytes)
        })
    }
}

impl LeafEntry {
    fn bytes(&self, prefix: usize) -> usize {
        RECORD_BYTES + (self.key.len as usize).saturating_sub(prefix + HEAD_BYTES) + self.row.len as usize
    }
}

/// The index in `1..len` nearest to `aim` for which `fits`.
///
/// # Panics
/// When there is none, which the limits on keys and rows rule out.
fn nearest_cut(len: usize, aim: usize, fits: impl Fn(usize) -> bool) -> usize {
    let aim = aim.clamp(1, len - 1);
    for distance in 0..len {
        let candidates = [aim.checked_sub(distance), Some(aim + distance)];
        for cut in candidates.into_iter().flatten() {
            if (1..len).contains(&cut) && fits(cut) {
                return cut;
            }
        }
    }
    unreachable!("two pages hold the entries of one page and one more of permitted size")
}

struct Child {
    /// The separator before the child; empty and without meaning for the first of a node.
    separator: Part,
    node: NodePtr,
    rows: u32,
}

/// The children of one or two inner nodes.
#[derive(Default)]
pub(crate) struct ChildList {
    store: Store,
    children: Vec<Child>,
}

impl ChildList {
    pub(crate) fn clear(&mut self) {
        self.store.0.clear();
        self.children.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.children.len()
    }

    /// The separator before child `index`.
    pub(crate) fn separator(&self, index: usize) -> &[u8] {
        self.store.get(self.children[index].separator)
    }

    /// Appends a child with the separator before it.
    pub(crate) fn push(&mut self, separator: &[u8], node: NodePtr, rows: u32) {
        self.insert(self.len(), separator, node, rows);
    }

    pub(crate) fn insert(&mut self, index: usize, separator: &[u8], node: NodePtr, rows: u32) {
        let separator = self.store.put(separator);
        self.children.insert(index, Child { separator, node, rows });
    }

    /// Puts `node` in the place of child `index`; its separator stays.
    pub(crate) fn replace(&mut self, index: usize, node: NodePtr) {
        let child = &mut self.children[index];
        child.node = node;
        child.rows = node.total_rows() as u32;
    }

    /// Appends the children of `node`, with `separator` before the first.
    pub(crate) fn unpack(&mut self, node: NodePtr, separator: &[u8]) {
        self.push(separator, node.child(0), node.rows(0));
        let mut key = KeyBuf::new();
        for index in 0..node.count() {
            let separator = self.store.put_key(node, index, &mut key);
            self.children.push(Child { separator, node: node.child(index + 1), rows: node.rows(index + 1) });
        }
    }

    fn prefix(&self, range: &Range<usize>) -> &[u8] {
        if range.len() < 2 {
            return &[];
        }
        let first = self.separator(range.start + 1);
        &first[..common_prefix_len(first, self.separator(range.end - 1))]
    }

    /// Bytes of a page that has the children in `range` with a prefix of `prefix` bytes.
    fn packed_bytes(&self, range: &Range<usize>, prefix: usize) -> usize {
        let separators = &self.children[range.start + 1..range.end];
        let suffixes: usize = separators
            .iter()
            .map(|child| match (child.separator.len as usize).saturating_sub(prefix + HEAD_BYTES) {
                0 => 0,
                rest => rest + 2,
            })
            .sum();
        arrays_end(false, cap_for(separators.len())) + suffixes + stored_prefix_bytes(prefix)
    }

    /// The length of the prefix with which the children in `range`, at least one, fit `limit` bytes.
    fn fitting_prefix(&self, range: &Range<usize>, limit: usize) -> Option<usize> {
        fitting_prefix(self.prefix(range).len(), |prefix| self.packed_bytes(range, prefix) <= limit)
    }

    /// Returns whether the children in `range`, at least one, fit `limit` bytes.
    pub(crate) fn fits(&self, range: Range<usize>, limit: usize) -> bool {
        self.fitting_prefix(&range, limit).is_some()
    }

    /// Writes the children in `range`, at least one, which fit, into `node`, over what it has.
    pub(crate) fn pack(&self, range: Range<usize>, node: NodePtr, page_bytes: usize) {
        let prefix = self.fitting_prefix(&range, page_bytes).expect("only what fits is packed");
        node.reset(page_bytes, &self.prefix(&range)[..prefix], range.len() - 1);
        let first = &self.children[range.start];
        node.set_first_child(first.node, first.rows);
        for (index, child) in self.children[range.start + 1..range.end].iter().enumerate() {
            let suffix = &self.store.get(child.separator)[prefix..];
            let fits = node.insert_child(index, suffix, child.node, child.rows);
            assert!(fits, "the size of a packed page was computed wrongly");
        }
    }

    /// Index at which to cut the list in two that both fit a page, as near to `aim` as possible.
    pub(crate) fn cut(&self, page_bytes: usize, aim: usize) -> usize {
        nearest_cut(self.len(), aim, |cut| {
            self.fits(0..cut, page_bytes) && self.fits(cut..self.len(), page_bytes)
        })
    }
}

/// The working memory of a tree for changes that move records.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) leaf: LeafList,
    pub(crate) children: ChildList,
}

/// The shortest key that is greater than `left` and not greater than `right`, which is greater than `left`.
pub(crate) fn shortest_separator(left: &[u8], right: &[u8]) -> KeyBuf {
    let common = common_prefix_len(left, right);
    KeyBuf::from_slice(&right[..(common + 1).min(right.len())])
}

// SAFETY: the lists are working memory that is empty of meaning between two calls on the tree that owns it.
unsafe impl Send for ChildList {}
// SAFETY: every use goes through `&mut Tree`.
unsafe impl Sync for ChildList {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_as_short_as_can_be() {
        assert_eq!(&shortest_separator(b"apple", b"banana")[..], b"b");
        assert_eq!(&shortest_separator(b"abcd", b"abzz")[..], b"abz");
        assert_eq!(&shortest_separator(b"ab", b"abc")[..], b"abc");
        assert_eq!(&shortest_separator(b"", b"\0")[..], b"\0");
    }

    #[test]
    fn cuts_follow_bytes_or_the_wish() {
        let mut list = LeafList::default();
        for i in 0..10u8 {
            list.push(&[i], StoredRow::here(&vec![0; if i == 0 { 900 } else { 100 }]), 0);
        }
        assert_eq!(list.cut(4096, None), 1);
        assert_eq!(list.cut(4096, Some(9)), 9);
        assert_eq!(list.cut(4096, Some(40)), 9);
        // Left of the wish is more than this page holds, so the cut moves.
        let cut = list.cut(1300, Some(9));
        assert!(list.fits(0..cut, 1300) && list.fits(cut..10, 1300));
    }

    #[test]
    fn keeping_the_last_entry() {
        let mut list = LeafList::default();
        list.push(b"a", StoredRow::here(b"1"), 1);
        list.push(b"b", StoredRow::here(b"22"), 2);
        list.keep_last();
        assert_eq!((list.len(), list.key(0)), (1, &b"b"[..]));
        assert_eq!(list.packed_bytes(&(0..1), 1), arrays_end(true, 16) + RECORD_BYTES + 2);
    }
}
