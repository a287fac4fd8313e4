//! Positions: where an entry was found, and whether that still holds.
//!
//! Owns the structure stamps. It never dereferences a node.
//! Invariant: no two states of structure, of any trees in the process, have the same stamp. So a position whose stamp
//! is that of a tree was made by this tree, and nothing has moved an entry since.

use crate::node::{NodePtr, Slot};

/// Stamps a tree takes at a time from the counter of the process.
const STAMPS_PER_BLOCK: u64 = 1 << 28;

#[expect(
    clippy::disallowed_types,
    reason = "stamps must differ between all trees of the process or a position of one tree could name memory of \
              another; it is touched when a tree is made and once per 2^28 changes of its structure"
)]
static NEXT_BLOCK: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(STAMPS_PER_BLOCK);

/// The stamp of the present structure of a tree.
#[derive(Debug)]
pub(crate) struct Stamp(u64);

impl Stamp {
    pub(crate) fn new() -> Stamp {
        Stamp(NEXT_BLOCK.fetch_add(STAMPS_PER_BLOCK, std::sync::atomic::Ordering::Relaxed))
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> u64 {
        self.0
    }

    /// Makes all positions taken so far stale.
    #[inline(always)]
    pub(crate) fn advance(&mut self) {
        self.0 += 1;
        if self.0.is_multiple_of(STAMPS_PER_BLOCK) {
            self.next_block();
        }
    }

    #[cold]
    fn next_block(&mut self) {
        *self = Stamp::new();
    }
}

/// The place that a key has, or would have, in a tree: the result of [`Tree::locate`](crate::Tree::locate).
///
/// A position stays good until an entry of the tree moves (by an insert, a remove, a split or an append); afterwards
/// those who take one look the key up again. It costs nothing to keep one too long.
#[derive(Debug, Clone, Copy)]
pub struct Position {
    pub(crate) leaf: NodePtr,
    pub(crate) stamp: u64,
    /// Twice the index in the leaf, and 1 more if the key was there: whole words are copied by words.
    slot: u64,
}

impl Position {
    /// A position that is stale for every tree.
    #[inline]
    #[must_use]
    pub fn unknown() -> Position {
        Position { leaf: NodePtr::empty_leaf(), stamp: 0, slot: 0 }
    }

    #[inline]
    pub(crate) fn new(leaf: NodePtr, stamp: u64, slot: Slot) -> Position {
        Position { leaf, stamp, slot: (slot.index as u64) << 1 | u64::from(slot.found) }
    }

    /// The index in the leaf.
    #[inline]
    pub(crate) fn index(&self) -> usize {
        (self.slot >> 1) as usize
    }

    /// Returns whether the key was there when the position was taken.
    #[inline]
    #[must_use]
    pub fn is_found(&self) -> bool {
        self.slot & 1 == 1
    }
}

impl Default for Position {
    fn default() -> Position {
        Position::unknown()
    }
}

// SAFETY: the node is only followed by the tree whose stamp the position has, under a borrow of that tree.
unsafe impl Send for Position {}
// SAFETY: as above; a position has no interior mutability.
unsafe impl Sync for Position {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_used_up_block_is_followed_by_a_fresh_one() {
        let mut stamp = Stamp(7 * STAMPS_PER_BLOCK - 1);
        stamp.advance();
        let other = Stamp::new();
        assert_eq!(stamp.get() % STAMPS_PER_BLOCK, 0);
        assert_ne!(stamp.get(), other.get());
        stamp.advance();
        assert_eq!(stamp.get() % STAMPS_PER_BLOCK, 1);
    }
}
