//! Removing rows.
//!
//! Owns the merging of thin nodes. A remove needs no memory and cannot fail.
//! A node that falls below a quarter is merged with a neighbour under the same parent when the two fill no more than
//! three quarters of a page, so that alternating inserts and removes do not split and merge in turn.

use super::pack::Scratch;
use super::{RowRef, Tree, row_ref};
use crate::memory::Extent;
use crate::node::{HEADER_BYTES, NodePtr, SearchKey};

impl Tree {
    /// Removes the row with `key`; `false` when there is none.
    #[inline]
    pub fn remove(&mut self, key: &[u8]) -> bool {
        self.remove_with(key, |_| ()).is_some()
    }

    /// Removes the row with `key` after `look` saw it, and returns what `look` made of it (a copy, for an undo);
    /// `None` when there is no such row.
    pub fn remove_with<T>(&mut self, key: &[u8], look: impl FnOnce(RowRef<'_>) -> T) -> Option<T> {
        let (seen, displaced) = self.take_out(key, look)?;
        if let Some(extent) = displaced {
            self.pages.give_extent(extent);
        }
        Some(seen)
    }

    /// Removes the row with `key` after `look` saw it. Returns what `look` made of it, and what the row had elsewhere.
    pub(super) fn take_out<T>(
        &mut self,
        key: &[u8],
        look: impl FnOnce(RowRef<'_>) -> T,
    ) -> Option<(T, Option<Extent>)> {
        self.assert_unlent();
        let search = SearchKey::new(key);
        let (leaf, path) = self.path_of(&search);
        let slot = leaf.find(&search);
        if !slot.found {
            return None;
        }
        let (seen, extent) = (look(row_ref(leaf, slot.index)), leaf.extent(slot.index));
        leaf.remove_entry(slot.index);
        self.rows -= 1;
        self.stamp.advance();
        for &(node, index) in path.steps() {
            node.set_rows(index, node.rows(index) - 1);
        }
        if leaf.count() == 0 || leaf.live_bytes(self.config.page_bytes) < self.thin() {
            self.thicken(leaf, path.steps());
        }
        Some((seen, extent))
    }

    /// Live bytes below which a node is merged if possible.
    fn thin(&self) -> usize {
        self.config.page_bytes / 4
    }

    /// Merges or drops `leaf`, which is thin or empty, and then every node on the way up that became thin by it.
    fn thicken(&mut self, leaf: NodePtr, steps: &[(NodePtr, usize)]) {
        let mut scratch = self.take_scratch();
        let mut node = leaf;
        for (done, &(parent, index)) in steps.iter().enumerate() {
            let empty = if node.is_leaf() { node.count() == 0 } else { false };
            if empty {
                self.drop_leaf(node);
                if parent.count() == 0 {
                    // The only child: the parent goes with it, and so on up.
                    self.drop_chain(&steps[done..]);
                    break;
                }
                parent.remove_child(index);
            } else if let Some(left) = self.merge_with_neighbour(node, parent, index, &mut scratch) {
                let right = parent.child(left + 1);
                self.pages.give(right);
                parent.remove_child(left + 1);
                parent.set_rows(left, parent.child(left).total_rows() as u32);
            } else {
                break;
            }
            if parent.live_bytes(self.config.page_bytes) >= self.thin() {
                break;
            }
            node = parent;
        }
        self.put_scratch(scratch);
        if self.inner_levels == 0 && !self.root.is_empty_leaf() && self.root.count() == 0 {
            self.pages.give(self.root);
            self.root = NodePtr::empty_leaf();
        }
        self.lower_root();
    }

    /// Takes an empty leaf out of the chain and gives its page back.
    fn drop_leaf(&mut self, leaf: NodePtr) {
        match leaf.prev() {
            Some(prev) => prev.link(leaf.next()),
            None => {
                if let Some(next) = leaf.next() {
                    next.unlink_prev();
                }
            }
        }
        self.pages.give(leaf);
    }

    /// Drops the node of the first step, whose only child is gone, and its parents as long as they have no other child.
    fn drop_chain(&mut self, steps: &[(NodePtr, usize)]) {
        for (done, &(node, _)) in steps.iter().enumerate() {
            self.pages.give(node);
            match steps.get(done + 1) {
                Some(&(parent, _)) if parent.count() == 0 => {}
                Some(&(parent, index)) => {
                    parent.remove_child(index);
                    return;
                }
                None => {
                    self.root = NodePtr::empty_leaf();
                    self.inner_levels = 0;
                }
            }
        }
    }

    /// Merges child `index` of `parent` with the one on its right, or on its left, into the left page of the two. The
    /// index of that page, or `None` when they are too large together.
    fn merge_with_neighbour(
        &self,
        node: NodePtr,
        parent: NodePtr,
        index: usize,
        scratch: &mut Scratch,
    ) -> Option<usize> {
        debug_assert_eq!(parent.child(index), node);
        let right = (index < parent.count()).then_some(index);
        let left = index.checked_sub(1);
        [right, left].into_iter().flatten().find(|&left| self.merge(parent, left, scratch))
    }

    /// Packs children `left` and `left + 1` of `parent` into the first if they fit; tells whether they did.
    fn merge(&self, parent: NodePtr, left: usize, scratch: &mut Scratch) -> bool {
        let (page_bytes, full) = (self.config.page_bytes, self.config.page_bytes / 4 * 3);
        let (a, b) = (parent.child(left), parent.child(left + 1));
        if a.live_bytes(page_bytes) + b.live_bytes(page_bytes) - HEADER_BYTES > full {
            return false;
        }
        if a.is_leaf() {
            merge_leaves(a, b, full, page_bytes, scratch)
        } else {
            merge_inner(a, b, &parent.key(left), full, page_bytes, scratch)
        }
    }
}

/// Packs two neighbouring leaves into the first if they take at most `full` bytes together; tells whether they do. The
/// second is out of the chain then.
pub(super) fn merge_leaves(
    a: NodePtr,
    b: NodePtr,
    full: usize,
    page_bytes: usize,
    scratch: &mut Scratch,
) -> bool {
    let list = &mut scratch.leaf;
    list.clear();
    list.unpack(a);
    list.unpack(b);
    let entries = list.len();
    let fits = list.fits(0..entries, full);
    if fits {
        list.pack(0..entries, a, page_bytes);
        a.link(b.next());
    }
    fits
}

/// Packs two neighbouring inner nodes, with the separator between them, into the first if they take at most `full`
/// bytes together; tells whether they do.
pub(super) fn merge_inner(
    a: NodePtr,
    b: NodePtr,
    separator: &[u8],
    full: usize,
    page_bytes: usize,
    scratch: &mut Scratch,
) -> bool {
    let list = &mut scratch.children;
    list.clear();
    list.unpack(a, &[]);
    list.unpack(b, separator);
    let children = list.len();
    let fits = list.fits(0..children, full);
    if fits {
        list.pack(0..children, a, page_bytes);
    }
    fits
}
