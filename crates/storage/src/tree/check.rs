//! Proving the invariants of a tree.
//!
//! Owns [`Tree::check`], which visits every byte that means something. It trusts nothing it reads: offsets are checked
//! before they are followed, so that damage gives an error and not a second accident. It changes nothing.

use super::{MAX_ROW_BYTES, Tree};
use crate::key::{DisplayKey, KeyBuf};
use crate::memory::Extent;
use crate::node::{HEAD_BYTES, HEADER_PREFIX_BYTES, NO_HEAD, NodePtr, RECORD_BYTES, arrays_end};
use thiserror::Error;

/// The findings of [`Tree::check`] in a sound tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeSummary {
    /// Rows.
    pub rows: u64,
    /// Levels.
    pub height: usize,
    /// Leaves.
    pub leaves: usize,
    /// Nodes above the leaves.
    pub inner_nodes: usize,
    /// Bytes of keys, as the callers gave them.
    pub key_bytes: u64,
    /// Bytes of rows.
    pub row_bytes: u64,
    /// Rows that are too long for a leaf.
    pub long_rows: u64,
    /// Bytes of pages that hold something.
    pub used_bytes: u64,
}

/// The tree is damaged: an invariant does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the tree is damaged at level {level} near key {}: {what}; restore it from a checkpoint", DisplayKey(.near))]
pub struct CheckError {
    /// The level of the node, 0 for a leaf.
    pub level: usize,
    /// A key near the damage.
    pub near: KeyBuf,
    /// The invariant that is broken.
    pub what: &'static str,
}

/// The keys below a node: at least `lower`, less than `upper`.
#[derive(Clone, Default)]
struct Bounds {
    lower: KeyBuf,
    upper: Option<KeyBuf>,
}

struct Walk<'t> {
    tree: &'t Tree,
    summary: TreeSummary,
    previous_leaf: Option<NodePtr>,
    /// Addresses of the long rows, and the memory each takes.
    extents: Vec<(usize, usize)>,
}

impl Tree {
    /// Walks the whole tree and proves all its invariants.
    ///
    /// # Errors
    /// Naming the first invariant that does not hold.
    pub fn check(&self) -> Result<TreeSummary, CheckError> {
        let mut walk = Walk {
            tree: self,
            summary: TreeSummary { height: self.height(), ..TreeSummary::default() },
            previous_leaf: None,
            extents: Vec::new(),
        };
        let fail = |what| CheckError { level: self.inner_levels, near: KeyBuf::new(), what };
        if self.root.is_empty_leaf() {
            if self.rows != 0 || self.inner_levels != 0 {
                return Err(fail("it has rows or levels but no nodes"));
            }
            return Ok(walk.summary);
        }
        walk.node(self.root, self.inner_levels, &Bounds::default())?;
        if walk.previous_leaf.is_some_and(|leaf| leaf.next().is_some()) {
            return Err(fail("the last leaf is linked to another"));
        }
        if walk.summary.rows != self.rows {
            return Err(fail("the number of rows is wrong"));
        }
        walk.extents.sort_unstable();
        if walk.extents.windows(2).any(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
            return Err(fail("two long rows overlap"));
        }
        Ok(walk.summary)
    }
}

impl Walk<'_> {
    fn node(&mut self, node: NodePtr, level: usize, bounds: &Bounds) -> Result<u64, CheckError> {
        let fail = |what| Err(CheckError { level, near: bounds.lower.clone(), what });
        if !self.tree.pages.holds(node.address().addr().get()) {
            return fail("a child is not in the memory of the tree");
        }
        let page_bytes = self.tree.config.page_bytes;
        if usize::from(node.level()) != level {
            return fail("a node is at the wrong level");
        }
        let leaf = level == 0;
        if node.count() >= node.cap() || node.cap() < 16 || !node.cap().is_multiple_of(8) {
            return fail("a node has more entries than room");
        }
        if arrays_end(leaf, node.cap()) > node.heap_at() || node.heap_at() > page_bytes {
            return fail("the arrays of a node reach into its heap");
        }
        if leaf && node.count() == 0 {
            return fail("a leaf has no rows");
        }
        if node.prefix_len() > HEADER_PREFIX_BYTES
            && (node.prefix_at() < node.heap_at() || node.prefix_at() + node.prefix_len() > page_bytes)
        {
            return fail("the prefix of a node is outside its heap");
        }
        self.heap(node, level, bounds)?;
        self.keys(node, level, bounds)?;
        self.summary.used_bytes += node.live_bytes(page_bytes) as u64;
        if leaf { self.leaf(node, bounds) } else { self.children(node, level, bounds) }
    }

    /// Every byte of the heap belongs to one record, to the prefix, or is counted as dead.
    fn heap(&self, node: NodePtr, level: usize, bounds: &Bounds) -> Result<(), CheckError> {
        let fail = |what| Err(CheckError { level, near: bounds.lower.clone(), what });
        let (page_bytes, heap_at) = (self.tree.config.page_bytes, node.heap_at());
        let mut parts = Vec::with_capacity(node.count() + 1);
        if node.prefix_len() > HEADER_PREFIX_BYTES {
            parts.push((node.prefix_at(), node.prefix_len()));
        }
        for index in 0..node.count() {
            let Some(location) = node.checked_part(index, page_bytes) else {
                return fail("a record is outside the heap of its node");
            };
            parts.extend(location);
        }
        parts.sort_unstable();
        if parts.windows(2).any(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
            return fail("two records of a node overlap");
        }
        let live: usize = parts.iter().map(|part| part.1).sum();
        if live + node.dead() != page_bytes - heap_at {
            return fail("the dead bytes of a node are counted wrongly");
        }
        Ok(())
    }

    /// Heads agree with suffixes, keys ascend and are inside the bounds.
    fn keys(&mut self, node: NodePtr, level: usize, bounds: &Bounds) -> Result<(), CheckError> {
        if (node.count()..node.cap()).any(|index| node.head(index) != NO_HEAD) {
            return Err(CheckError {
                level,
                near: bounds.lower.clone(),
                what: "an unused head is not marked",
            });
        }
        if level > 0 && !node.hints_are_right() {
            return Err(CheckError {
                level,
                near: bounds.lower.clone(),
                what: "a hint is not the head it stands for",
            });
        }
        let mut previous: Option<KeyBuf> = None;
        let mut key = KeyBuf::new();
        for index in 0..node.count() {
            node.key_into(index, &mut key);
            let fail = |what| Err(CheckError { level, near: key.clone(), what });
            let short = node.suffix_len(index).min(HEAD_BYTES);
            let head = (node.head(index) ^ i32::MIN) as u32;
            if short < HEAD_BYTES && head << (8 * short) != 0 {
                return fail("a head has bytes behind its key");
            }
            if key < bounds.lower || bounds.upper.as_ref().is_some_and(|upper| key >= *upper) {
                return fail("a key is outside the separators above it");
            }
            if previous.as_ref().is_some_and(|previous| *previous >= key) {
                return fail("keys do not ascend");
            }
            previous = Some(key.clone());
            if level == 0 {
                self.summary.key_bytes += key.len() as u64;
            }
        }
        Ok(())
    }

    fn leaf(&mut self, leaf: NodePtr, bounds: &Bounds) -> Result<u64, CheckError> {
        let fail = |what| Err(CheckError { level: 0, near: bounds.lower.clone(), what });
        if leaf.prev() != self.previous_leaf {
            return fail("a leaf is not linked to the one before it");
        }
        if self.previous_leaf.is_some_and(|previous| previous.next() != Some(leaf)) {
            return fail("a leaf is not linked to the one behind it");
        }
        self.previous_leaf = Some(leaf);
        self.summary.leaves += 1;
        self.summary.rows += leaf.count() as u64;
        (0..leaf.count()).try_for_each(|index| self.row(leaf, index))?;
        Ok(leaf.count() as u64)
    }

    /// A long row is where the tree has memory for it.
    fn row(&mut self, leaf: NodePtr, index: usize) -> Result<(), CheckError> {
        let Some(reference) = leaf.reference(index) else {
            self.summary.row_bytes += leaf.row(index).len() as u64;
            return Ok(());
        };
        let fail = |what| Err(CheckError { level: 0, near: leaf.key(index), what });
        if !self.tree.is_long(reference.bytes) || reference.bytes > MAX_ROW_BYTES {
            return fail("a row that is not in its leaf has a length that none can have");
        }
        let taken = Extent::taken_bytes(reference.bytes);
        if !self.tree.has_had_long_rows || !self.tree.pages.holds_extent(reference.address, taken) {
            return fail("a long row is not in the memory of the tree");
        }
        self.summary.row_bytes += reference.bytes as u64;
        self.summary.long_rows += 1;
        self.extents.push((reference.address, taken));
        Ok(())
    }

    fn children(&mut self, node: NodePtr, level: usize, bounds: &Bounds) -> Result<u64, CheckError> {
        self.summary.inner_nodes += 1;
        let mut total = 0;
        let mut lower = bounds.lower.clone();
        for index in 0..=node.count() {
            let upper = if index < node.count() { Some(node.key(index)) } else { bounds.upper.clone() };
            let bounds = Bounds { lower, upper };
            let rows = self.node(node.child(index), level - 1, &bounds)?;
            if rows != u64::from(node.rows(index)) {
                let what = "the rows below a child are counted wrongly";
                return Err(CheckError { level, near: bounds.lower, what });
            }
            total += rows;
            lower = bounds.upper.unwrap_or_default();
        }
        Ok(total)
    }
}

impl NodePtr {
    /// The part of the heap that belongs to entry `index`, if any: `None` when it is not inside the heap.
    #[expect(clippy::option_option, reason = "no part is sound, a part outside the heap is not")]
    fn checked_part(self, index: usize, page_bytes: usize) -> Option<Option<(usize, usize)>> {
        let inside = |at: usize, len: usize| at >= self.heap_at() && at + len <= page_bytes;
        if self.is_leaf() {
            let record = self.record_at(index);
            if !inside(record, RECORD_BYTES) {
                return None;
            }
            let bytes = self.record_bytes(index);
            return inside(record, bytes).then_some(Some((record, bytes)));
        }
        let stored = self.stored_suffix(index);
        if stored <= HEAD_BYTES {
            return Some(None);
        }
        if !inside(stored, 2) {
            return None;
        }
        let (at, bytes) = self.separator_heap(index)?;
        inside(at, bytes).then_some(Some((at, bytes)))
    }
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
