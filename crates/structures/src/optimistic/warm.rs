//! Looking for several keys at once, so that the cache misses of the operations on them overlap.
//!
//! Owns: the interleaved descent. Never: validates what it reads, or has any effect but on time: operations follow that do.

use arrayvec::ArrayVec;

use super::node::Node;
use super::{NUMBER_BITS, Tree};

/// Keys that are looked for together.
pub(crate) const GROUP: usize = 16;

impl Tree {
    /// Asks for the memory that reads and updates of some keys need, [`GROUP`] at most: all descents take one step, and then
    /// all take the next.
    pub(crate) fn warm(&self, keys: impl Iterator<Item = u64>) {
        let root = self.root.load(super::Acquire);
        let Some(first) = self.arena.get(root & ((1 << NUMBER_BITS) - 1)) else { return };
        let mut descents: ArrayVec<(u64, &Node), GROUP> = keys.take(GROUP).map(|key| (key, first)).collect();
        for _ in 0..root >> NUMBER_BITS {
            for (key, node) in &mut descents {
                // A node that has become a leaf meanwhile has values in its slots, which need not name a node.
                let Some(child) = self.arena.get(node.slot(node.place_of_child(*key))) else { continue };
                child.prefetch_search();
                *node = child;
            }
        }
        for (key, leaf) in descents {
            leaf.prefetch_slot(leaf.place_in_leaf(key));
        }
    }
}
