//! Keys by their order: the first, the last, and those with so many before them.
//!
//! Owns the use of the row counts of inner nodes. It changes nothing.

use super::Tree;
use crate::key::KeyBuf;
use crate::node::{NodePtr, SearchKey};

impl Tree {
    /// The smallest key.
    #[must_use]
    pub fn first_key(&self) -> Option<KeyBuf> {
        (!self.is_empty()).then(|| self.first_leaf().key(0))
    }

    /// The greatest key.
    #[must_use]
    pub fn last_key(&self) -> Option<KeyBuf> {
        let leaf = self.last_leaf();
        (!self.is_empty()).then(|| leaf.key(leaf.count() - 1))
    }

    /// The number of rows with keys less than `key`. Visits one node per level.
    #[must_use]
    pub fn rank(&self, key: &[u8]) -> u64 {
        let key = SearchKey::new(key);
        let (leaf, path) = self.path_of(&key);
        let before =
            |&(node, index): &(NodePtr, usize)| (0..index).map(|i| u64::from(node.rows(i))).sum::<u64>();
        path.steps().iter().map(before).sum::<u64>() + leaf.find(&key).index as u64
    }

    /// The key with exactly `rank` smaller ones; `None` when there are no more than `rank` rows. Visits one node per
    /// level, so that a partition can be cut into parts of equally many rows.
    #[must_use]
    pub fn key_at(&self, rank: u64) -> Option<KeyBuf> {
        if rank >= self.rows {
            return None;
        }
        let (mut node, mut rest) = (self.root, rank);
        for _ in 0..self.inner_levels {
            let mut index = 0;
            while rest >= u64::from(node.rows(index)) {
                rest -= u64::from(node.rows(index));
                index += 1;
            }
            node = node.child(index);
        }
        Some(node.key(rest as usize))
    }
}
