//! The memory that a tree takes.
//!
//! Owns the count, which visits the tree: nothing is counted while it changes.

use super::Tree;
use super::long::extent_bytes;
use crate::node::NodePtr;

/// The memory that a tree takes. All figures are in bytes unless their name says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeBytes {
    /// Pages in use.
    pub pages: usize,
    /// Bytes of the pages in use.
    pub page_bytes: usize,
    /// Bytes of those pages that hold something: rows, keys, and what it takes to find them.
    pub used: usize,
    /// Bytes that rows take which are too long for a page.
    pub long_rows: usize,
    /// Bytes that were acquired, for pages or long rows, and are not in use.
    pub spare: usize,
    /// Bytes of all chunks the tree keeps alive; chunks shared with trees it was split from count in each.
    pub chunks: usize,
}

impl Tree {
    /// Counts the memory that the tree takes. Visits every node, and every record once there was a long row.
    #[must_use]
    pub fn bytes(&self) -> TreeBytes {
        let page_bytes = self.config.page_bytes;
        let mut bytes = TreeBytes {
            spare: self.pages.available() * page_bytes + self.pages.spare_extent_bytes(),
            chunks: self.pages.chunk_bytes(),
            ..TreeBytes::default()
        };
        if !self.root.is_empty_leaf() {
            self.add_bytes(self.root, &mut bytes);
        }
        bytes.page_bytes = bytes.pages * page_bytes;
        bytes
    }

    fn add_bytes(&self, node: NodePtr, bytes: &mut TreeBytes) {
        bytes.pages += 1;
        bytes.used += node.live_bytes(self.config.page_bytes);
        if node.is_leaf() {
            if self.has_had_long_rows {
                bytes.long_rows += extent_bytes(node);
            }
            return;
        }
        for index in 0..=node.count() {
            self.add_bytes(node.child(index), bytes);
        }
    }
}
