//! Runs: rows that arrive in the order of their keys, in one place of a tree or in several.
//!
//! Owns: what is known of the latest insert, and the leaves that a run fills one after the other, without moving a row.
//! Never: finds the place of a row that belongs to no run.
//!
//! Invariant: what is known of the latest insert holds while the tree has the stamp that it had right after it.

use super::insert::{InsertError, separator_of_cut};
use super::pack::shortest_separator;
use super::{MAX_HEIGHT, Path, Tree};
use crate::key::common_prefix_len;
use crate::node::{NodePtr, Prefix, SearchKey, Slot, StoredRow};
use std::cmp::Ordering;

/// Inserts in a row, each directly behind the one before, after which a full leaf is cut at the insert rather than in
/// the middle: rows arrive in key order there, and the left part gets no more of them.
const ASCENDING_RUN: u8 = 8;

/// The position of the row that was inserted last.
pub(super) struct LatestInsert {
    /// The stamp of the tree right after the insert; 0, which no tree has, if it does not tell where the row is.
    pub(super) stamp: u64,
    pub(super) leaf: NodePtr,
    pub(super) index: usize,
    /// The way to the leaf.
    pub(super) path: Path,
}

impl LatestInsert {
    /// Tells nothing.
    pub(super) fn none() -> LatestInsert {
        LatestInsert { stamp: 0, leaf: NodePtr::empty_leaf(), index: 0, path: Path::new() }
    }
}

impl Tree {
    /// The slot of `key` in the leaf of the latest insert, if it belongs directly behind the row that was inserted there
    /// and nothing has changed since: rows often come in the order of their keys.
    #[inline]
    pub(super) fn slot_behind_latest(&self, key: &SearchKey<'_>) -> Option<usize> {
        let LatestInsert { stamp, leaf, index, path } = &self.latest;
        let next = index + 1;
        if *stamp != self.stamp.get() {
            return None;
        }
        let head = leaf.head_behind_prefix(key).ok()?;
        if leaf.order_of::<true>(*index, key, head) != Ordering::Less {
            return None;
        }
        let is_there = if next < leaf.count() {
            leaf.order_of::<true>(next, key, head) == Ordering::Greater
        } else {
            // The leaf ends before the first separator on its right, going up.
            let right = path.steps().iter().find(|(node, index)| *index < node.count());
            right.is_none_or(|&(node, index)| match node.head_behind_prefix(key) {
                Ok(head) => node.order_of::<false>(index, key, head) == Ordering::Greater,
                Err(prefix) => prefix == Prefix::Before,
            })
        };
        debug_assert!(
            !is_there || *leaf == self.leaf_of(key) && leaf.find(key) == Slot { index: next, found: false }
        );
        is_there.then_some(next)
    }

    /// Puts a row behind the last one of a full leaf, into a leaf of its own: rows arrive in key order here. No record moves.
    /// The new leaf has the prefix that the row has in common with the whole full leaf: most likely that of the next rows,
    /// too.
    pub(super) fn insert_behind(
        &mut self,
        leaf: NodePtr,
        path: &Path,
        key: &[u8],
        row: StoredRow<'_>,
        version: u64,
    ) -> Result<(), InsertError> {
        if self.height() == MAX_HEIGHT {
            return Err(InsertError::TreeFull(self.rows));
        }
        self.reserve(self.height() + 1)?;
        let right = self.take_node(0);
        let (prefix, suffix) = key.split_at(common_prefix_len(key, &leaf.key(0)));
        right.reset(self.config.page_bytes, prefix, 1);
        let fits = right.insert_entry(0, suffix, row, version);
        assert!(fits, "an empty page holds one row");
        let mut scratch = self.take_scratch();
        self.link_behind(leaf, &separator_of_cut(leaf, right), right, path, &mut scratch);
        self.put_scratch(scratch);
        Ok(())
    }

    /// Cuts a leaf in two before entry `index`, behind the rows that have come in key order. `key`, which comes
    /// between, belongs to the left part.
    pub(super) fn cut_behind_run(
        &mut self,
        leaf: NodePtr,
        path: &Path,
        index: usize,
        key: &[u8],
    ) -> Result<(), InsertError> {
        debug_assert!(!self.undoing, "for a change that is undone, the pages of one cut are set aside");
        if self.height() == MAX_HEIGHT {
            return Err(InsertError::TreeFull(self.rows));
        }
        self.reserve(self.height() + 1)?;
        let right = self.take_node(0);
        let mut scratch = self.take_scratch();
        scratch.leaf.unpack(leaf);
        let (entries, page_bytes) = (scratch.leaf.len(), self.config.page_bytes);
        scratch.leaf.pack(0..index, leaf, page_bytes);
        scratch.leaf.pack(index..entries, right, page_bytes);
        let separator = shortest_separator(key, &right.key(0));
        self.link_behind(leaf, &separator, right, path, &mut scratch);
        self.put_scratch(scratch);
        self.stamp.advance();
        Ok(())
    }

    /// The preferred place to cut `leaf` if an insert at `index` makes it too full, if there is reason to prefer one.
    pub(super) fn cut_wish(&self, leaf: NodePtr, index: usize) -> Option<usize> {
        let (ascending, last) = leaf.insert_pattern();
        let at_the_end_of_the_tree = index == leaf.count() && leaf.next().is_none();
        let in_order = ascending >= ASCENDING_RUN && index == last + 1;
        (at_the_end_of_the_tree || in_order).then_some(index)
    }
}
