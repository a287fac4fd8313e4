//! Inserting and updating rows.
//!
//! Owns the splitting of nodes that are full. A change either happens whole or, with an error, not at all: pages are
//! reserved before anything is touched.

use super::pack::{Scratch, shortest_separator};
use super::{MAX_HEIGHT, MAX_ROW_BYTES, Path, Tree};
use crate::key::{DisplayKey, KeyBuf, MAX_KEY_BYTES, prefix_successor};
use crate::memory::{Extent, OutOfMemory};
use crate::node::{NodePtr, Prefix, SearchKey, StoredRow};
use thiserror::Error;

/// Reasons for which a row was not stored. The tree is as it was before.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InsertError {
    /// A row with this key exists already.
    #[error("a row with key {} exists already; update it instead", DisplayKey(.0))]
    Duplicate(KeyBuf),
    /// The encoded key is too long.
    #[error("the key has {bytes} bytes but at most {max} are supported; shorten its strings")]
    KeyTooLarge {
        /// Bytes of the key.
        bytes: usize,
        /// Bytes supported.
        max: usize,
    },
    /// The encoded row is too long.
    #[error("the row has {bytes} bytes but a row has at most {max}; shorten it or split it over tables")]
    RowTooLarge {
        /// Bytes of the row.
        bytes: usize,
        /// Bytes supported.
        max: usize,
    },
    /// The tree holds as many rows as it can count.
    #[error("the partition holds {0} rows, as many as one can; split it")]
    TreeFull(u64),
    /// No memory for further pages.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

impl Tree {
    /// Stores a new row.
    ///
    /// # Errors
    /// When the key exists, key or row are too large, or memory is out; nothing was changed then.
    #[inline]
    pub fn insert(&mut self, key: &[u8], row: &[u8], version: u64) -> Result<(), InsertError> {
        if key.len() > MAX_KEY_BYTES || self.is_long(row.len()) || self.is_full() {
            return self.insert_long(key, row, version);
        }
        self.insert_stored(key, StoredRow::here(row), version)
    }

    /// Stores a new row that is too long for a leaf, or refuses what is too much.
    #[cold]
    fn insert_long(&mut self, key: &[u8], row: &[u8], version: u64) -> Result<(), InsertError> {
        if key.len() > MAX_KEY_BYTES || row.len() > MAX_ROW_BYTES || self.is_full() {
            return Err(self.refusal(key, row));
        }
        if self.contains(key) {
            return Err(InsertError::Duplicate(KeyBuf::from_slice(key)));
        }
        let extent = self.store_elsewhere(row)?;
        let stored = self.insert_stored(key, StoredRow::elsewhere(&extent), version);
        stored.inspect_err(|_| self.pages.give_extent(extent))
    }

    #[inline]
    fn insert_stored(&mut self, key: &[u8], row: StoredRow<'_>, version: u64) -> Result<(), InsertError> {
        self.assert_unlent();
        let search = SearchKey::new(key);
        let (index, has_prefix) = match self.slot_behind_latest(&search) {
            Some(index) => (index, true),
            None => {
                let latest = &mut self.latest;
                latest.stamp = 0;
                latest.leaf = latest.path.lead(self.root, self.inner_levels, &self.config, &search);
                let slot = latest.leaf.find(&search);
                if slot.found {
                    return Err(InsertError::Duplicate(KeyBuf::from_slice(key)));
                }
                (slot.index, latest.leaf.compare_prefix(&search) == Prefix::Same)
            }
        };
        let leaf = self.latest.leaf;
        let in_place = has_prefix && leaf.insert_entry(index, &key[leaf.prefix_len()..], row, version);
        if in_place {
            for &(node, index) in self.latest.path.steps() {
                node.set_rows(index, node.rows(index) + 1);
            }
            self.stamp.advance();
            (self.latest.stamp, self.latest.index) = (self.stamp.get(), index);
        } else {
            self.latest.stamp = 0;
            self.insert_slowly(leaf, index, key, row, version)?;
            self.stamp.advance();
        }
        self.rows += 1;
        Ok(())
    }

    /// Gives the row with `key` other bytes, of any permitted length; `false` when there is no such key.
    ///
    /// # Errors
    /// When the row is too large, or memory is out; nothing was changed then.
    #[inline]
    pub fn update(&mut self, key: &[u8], row: &[u8], version: u64) -> Result<bool, InsertError> {
        let Some(entry) = self.entry_to_update(key, row)? else { return Ok(false) };
        if let Some(displaced) = self.replace(entry, key, row, version)? {
            self.pages.give_extent(displaced);
        }
        Ok(true)
    }

    /// Finds the row with `key`, if there is one that `row` may replace.
    #[inline]
    pub(super) fn entry_to_update(
        &self,
        key: &[u8],
        row: &[u8],
    ) -> Result<Option<(NodePtr, usize)>, InsertError> {
        if row.len() > MAX_ROW_BYTES {
            return Err(self.refusal(&[], row));
        }
        self.assert_unlent();
        let search = SearchKey::new(key);
        let leaf = self.leaf_of(&search);
        let slot = leaf.find(&search);
        Ok(slot.found.then_some((leaf, slot.index)))
    }

    /// Gives an entry, which has `key`, another row. Returns what it referred to before and does not any more.
    #[inline]
    pub(super) fn replace(
        &mut self,
        entry: (NodePtr, usize),
        key: &[u8],
        row: &[u8],
        version: u64,
    ) -> Result<Option<Extent>, InsertError> {
        if self.is_long(row.len()) {
            return self.replace_by_long(entry, key, row, version);
        }
        let old = entry.0.extent(entry.1);
        self.replace_stored(entry, key, StoredRow::here(row), version).map(|()| old)
    }

    #[inline]
    pub(super) fn replace_stored(
        &mut self,
        (leaf, index): (NodePtr, usize),
        key: &[u8],
        row: StoredRow<'_>,
        version: u64,
    ) -> Result<(), InsertError> {
        if leaf.replace_row(index, row, version) {
            return Ok(());
        }
        self.replace_slowly(leaf, index, key, row, version)
    }

    /// Returns whether the tree has as many rows as can be counted, removed ones that may come back included.
    #[inline(always)]
    fn is_full(&self) -> bool {
        self.rows + self.pending as u64 >= u64::from(u32::MAX)
    }

    #[cold]
    fn refusal(&self, key: &[u8], row: &[u8]) -> InsertError {
        if key.len() > MAX_KEY_BYTES {
            InsertError::KeyTooLarge { bytes: key.len(), max: MAX_KEY_BYTES }
        } else if row.len() > MAX_ROW_BYTES {
            InsertError::RowTooLarge { bytes: row.len(), max: MAX_ROW_BYTES }
        } else {
            InsertError::TreeFull(self.rows)
        }
    }

    #[cold]
    #[inline(never)]
    fn insert_slowly(
        &mut self,
        leaf: NodePtr,
        index: usize,
        key: &[u8],
        row: StoredRow<'_>,
        version: u64,
    ) -> Result<(), InsertError> {
        let path = &std::mem::replace(&mut self.latest.path, Path::new());
        let leaf = if leaf.is_empty_leaf() {
            self.reserve(1)?;
            self.root = self.take_node(0);
            self.root
        } else {
            leaf
        };
        let wish = self.cut_wish(leaf, index);
        let search = SearchKey::new(key);
        // For a change that is undone, the pages of one cut are set aside, and no rows follow.
        let is_run = wish.is_some() && index > 0 && !self.undoing;
        if is_run && leaf.dead() == 0 && leaf.compare_prefix(&search) == Prefix::Same {
            if index == leaf.count() {
                return self.insert_behind(leaf, path, key, row, version);
            }
            // What follows goes into a leaf of its own, once, so that the next rows come behind the last one of theirs.
            self.cut_behind_run(leaf, path, index, key)?;
            let (leaf, path) = self.path_of(&search);
            return self.insert_behind(leaf, &path, key, row, version);
        }
        let mut scratch = self.take_scratch();
        scratch.leaf.unpack(leaf);
        scratch.leaf.insert(index, key, row, version);
        let stored = self.store_leaf(leaf, path, &mut scratch, wish);
        self.put_scratch(scratch);
        stored
    }

    /// Links `right` into the tree behind `leaf`, of which it was cut.
    pub(super) fn link_behind(
        &mut self,
        leaf: NodePtr,
        separator: &[u8],
        right: NodePtr,
        path: &Path,
        scratch: &mut Scratch,
    ) {
        right.link(leaf.next());
        leaf.link(Some(right));
        self.insert_into_parents(path.steps(), separator, leaf, right, scratch);
    }

    #[cold]
    #[inline(never)]
    fn replace_slowly(
        &mut self,
        leaf: NodePtr,
        index: usize,
        key: &[u8],
        row: StoredRow<'_>,
        version: u64,
    ) -> Result<(), InsertError> {
        let (_, path) = self.path_of(&SearchKey::new(key));
        let mut scratch = self.take_scratch();
        scratch.leaf.unpack(leaf);
        scratch.leaf.replace(index, row, version);
        let stored = self.store_leaf(leaf, &path, &mut scratch, None);
        self.put_scratch(scratch);
        if stored.is_ok() {
            self.stamp.advance();
        }
        stored
    }

    /// Writes the list of the scratch over `leaf`, into a second leaf as well if one does not hold it.
    fn store_leaf(
        &mut self,
        leaf: NodePtr,
        path: &Path,
        scratch: &mut Scratch,
        wish: Option<usize>,
    ) -> Result<(), InsertError> {
        let (list, page_bytes) = (&scratch.leaf, self.config.page_bytes);
        let entries = list.len();
        if list.fits(0..entries, page_bytes) {
            list.pack(0..entries, leaf, page_bytes);
            recount(path.steps());
            return Ok(());
        }
        if self.height() == MAX_HEIGHT {
            return Err(InsertError::TreeFull(self.rows));
        }
        self.reserve(self.height() + 1)?;
        let cut = list.cut(page_bytes, wish);
        let right = self.take_node(0);
        list.pack(0..cut, leaf, page_bytes);
        list.pack(cut..entries, right, page_bytes);
        self.link_behind(leaf, &separator_of_cut(leaf, right), right, path, scratch);
        Ok(())
    }

    /// Adds `right` behind its sibling `left`, the child that the first step took, and counts rows anew all the way up.
    /// Pages for a split of every step and a new root were reserved.
    pub(super) fn insert_into_parents(
        &mut self,
        steps: &[(NodePtr, usize)],
        separator: &[u8],
        left: NodePtr,
        right: NodePtr,
        scratch: &mut Scratch,
    ) {
        let page_bytes = self.config.page_bytes;
        let mut separator = KeyBuf::from_slice(separator);
        let (mut left, mut right) = (left, right);
        for (done, &(node, index)) in steps.iter().enumerate() {
            node.set_rows(index, left.total_rows() as u32);
            let key = SearchKey::new(&separator);
            let in_place = node.compare_prefix(&key) == Prefix::Same
                && node.insert_child(
                    index,
                    &separator[node.prefix_len()..],
                    right,
                    right.total_rows() as u32,
                );
            if in_place {
                recount(&steps[done + 1..]);
                return;
            }
            let list = &mut scratch.children;
            list.clear();
            list.unpack(node, &[]);
            list.insert(index + 1, &separator, right, right.total_rows() as u32);
            let children = list.len();
            if list.fits(0..children, page_bytes) {
                list.pack(0..children, node, page_bytes);
                recount(&steps[done + 1..]);
                return;
            }
            // At the right edge of the tree nodes are left full, as rows arriving in key order like it.
            let at_the_edge =
                index + 2 == children && steps[done..].iter().all(|&(node, index)| index == node.count());
            let cut = list.cut(page_bytes, if at_the_edge { children - 1 } else { children / 2 });
            separator = KeyBuf::from_slice(list.separator(cut));
            right = self.take_node(node.level());
            list.pack(0..cut, node, page_bytes);
            list.pack(cut..children, right, page_bytes);
            left = node;
        }
        self.grow_root(&separator, left, right);
    }

    /// Makes a root with the children `left` and `right`. Its page was reserved.
    pub(super) fn grow_root(&mut self, separator: &[u8], left: NodePtr, right: NodePtr) {
        let root = self.take_node(left.level() + 1);
        root.reset(self.config.page_bytes, separator, 1);
        root.set_first_child(left, left.total_rows() as u32);
        let fits = root.insert_child(0, &[], right, right.total_rows() as u32);
        assert!(fits, "an empty page holds one separator");
        self.root = root;
        self.inner_levels = usize::from(root.level());
    }
}

/// Counts the rows below each step anew, from the bottom up.
pub(super) fn recount(steps: &[(NodePtr, usize)]) {
    for &(node, index) in steps {
        node.set_rows(index, node.child(index).total_rows() as u32);
    }
}

/// The separator between two leaves that were one.
pub(super) fn separator_of_cut(left: NodePtr, right: NodePtr) -> KeyBuf {
    let (last, first) = (left.key(left.count() - 1), right.key(0));
    if right.count() == 1 {
        // A key that had to go alone because it shares no prefix with the rest. The smallest key outside that prefix
        // separates them as well, and sends there whatever else does not have it; else each such key would go alone.
        let mut prefix = KeyBuf::new();
        left.append_prefix(&mut prefix);
        if let Some(end) = prefix_successor(&prefix).filter(|end| end[..] <= first[..] && left.count() > 1) {
            return end;
        }
    }
    shortest_separator(&last, &first)
}
