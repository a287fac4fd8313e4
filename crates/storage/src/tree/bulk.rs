//! Building a tree from rows in key order.
//!
//! Owns [`BulkLoader`]: leaves are filled one after another to the wanted degree, inner nodes are made at the end, level
//! by level. It never searches and never splits.

use super::pack::{ChildList, LeafList, shortest_separator};
use super::{MAX_ROW_BYTES, Tree, TreeConfig};
use crate::key::{DisplayKey, KeyBuf, MAX_KEY_BYTES};
use crate::memory::{Memory, OutOfMemory};
use crate::node::{NodePtr, StoredRow};
use std::sync::Arc;
use thiserror::Error;

/// Reasons for which a row was not loaded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BulkError {
    /// The key is not greater than the one before it.
    #[error("key {} follows {}, but rows are loaded in ascending key order; sort them first", DisplayKey(.key), DisplayKey(.previous))]
    OutOfOrder {
        /// The key.
        key: KeyBuf,
        /// The key before it.
        previous: KeyBuf,
    },
    /// The key is the same as the one before it.
    #[error("key {} comes twice; a key names one row", DisplayKey(.0))]
    Duplicate(KeyBuf),
    /// The encoded key is too long.
    #[error("key {} has {bytes} bytes but at most {max} are supported; shorten its strings", DisplayKey(.key))]
    KeyTooLarge {
        /// The key.
        key: KeyBuf,
        /// Bytes of the key.
        bytes: usize,
        /// Bytes supported.
        max: usize,
    },
    /// The encoded row is too long.
    #[error("the row with key {} has {bytes} bytes but a row has at most {max}; shorten it", DisplayKey(.key))]
    RowTooLarge {
        /// The key.
        key: KeyBuf,
        /// Bytes of the row.
        bytes: usize,
        /// Bytes supported.
        max: usize,
    },
    /// More rows than one tree can count.
    #[error("a partition holds at most {0} rows; spread them over more partitions")]
    TreeFull(u64),
    /// No memory for further pages.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// Builds a [`Tree`] from rows that come in ascending key order.
pub struct BulkLoader {
    tree: Tree,
    /// Bytes to which a page is filled.
    fill_bytes: usize,
    /// The rows that are not in a leaf yet.
    pending: LeafList,
    /// Bytes of the keys and rows that are pending.
    pending_bytes: usize,
    /// The leaves so far, with the separator before each.
    leaves: Vec<(KeyBuf, NodePtr)>,
    /// The last key of the last leaf.
    last_of_leaf: KeyBuf,
}

// SAFETY: the nodes are those of the tree that is being built, which is exclusively owned.
unsafe impl Send for BulkLoader {}

impl Tree {
    /// A tree of `rows`, which come as key, row and version in ascending key order, with pages filled to `fill`: 1.0
    /// for the least memory, less to leave room for inserts. Values outside 0.5 to 1.0 are moved to the nearer end.
    ///
    /// # Errors
    /// At the first row that is out of order, too large, or finds no memory.
    pub fn bulk_load<K: AsRef<[u8]>, R: AsRef<[u8]>>(
        config: TreeConfig,
        memory: Arc<dyn Memory>,
        rows: impl IntoIterator<Item = (K, R, u64)>,
        fill: f64,
    ) -> Result<Tree, BulkError> {
        let mut loader = BulkLoader::new(config, memory, fill);
        for (key, row, version) in rows {
            loader.push(key.as_ref(), row.as_ref(), version)?;
        }
        loader.finish()
    }
}

impl BulkLoader {
    /// A loader of an empty tree. `fill` is as for [`Tree::bulk_load`].
    #[must_use]
    pub fn new(config: TreeConfig, memory: Arc<dyn Memory>, fill: f64) -> BulkLoader {
        let fill = if fill.is_nan() { 1.0 } else { fill.clamp(0.5, 1.0) };
        BulkLoader {
            tree: Tree::new(config, memory),
            fill_bytes: (config.page_bytes as f64 * fill) as usize,
            pending: LeafList::default(),
            pending_bytes: 0,
            leaves: Vec::new(),
            last_of_leaf: KeyBuf::new(),
        }
    }

    /// The number of rows so far.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.tree.rows
    }

    /// Returns whether there are no rows so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tree.rows == 0
    }

    /// Adds the next row.
    ///
    /// # Errors
    /// When it is out of order, too large, or finds no memory. The row is not added then, and the loader can go on.
    pub fn push(&mut self, key: &[u8], row: &[u8], version: u64) -> Result<(), BulkError> {
        self.validate(key, row)?;
        if !self.tree.is_long(row.len()) {
            return self.push_stored(key, StoredRow::here(row), version);
        }
        let extent = self.tree.store_elsewhere(row)?;
        let pushed = self.push_stored(key, StoredRow::elsewhere(&extent), version);
        pushed.inspect_err(|_| self.tree.pages.give_extent(extent))
    }

    fn push_stored(&mut self, key: &[u8], row: StoredRow<'_>, version: u64) -> Result<(), BulkError> {
        // A page is looked at closely only when its rows could have filled it.
        self.pending_bytes += key.len() + row.len();
        self.pending.push(key, row, version);
        let count = self.pending.len();
        if count > 1 && !self.surely_fits() && !self.pending.fits(0..count, self.fill_bytes) {
            if let Err(error) = self.tree.reserve(1) {
                self.pending.pop();
                self.pending_bytes -= key.len() + row.len();
                return Err(error.into());
            }
            self.close_leaf(count - 1);
            self.pending.keep_last();
            self.pending_bytes = key.len() + row.len();
        }
        self.tree.rows += 1;
        Ok(())
    }

    fn validate(&self, key: &[u8], row: &[u8]) -> Result<(), BulkError> {
        if let Some(last) = self.pending.len().checked_sub(1) {
            let previous = self.pending.key(last);
            if key == previous {
                return Err(BulkError::Duplicate(KeyBuf::from_slice(key)));
            }
            if key < previous {
                let previous = KeyBuf::from_slice(previous);
                return Err(BulkError::OutOfOrder { key: KeyBuf::from_slice(key), previous });
            }
        }
        if key.len() > MAX_KEY_BYTES {
            let bytes = key.len();
            return Err(BulkError::KeyTooLarge { key: KeyBuf::from_slice(key), bytes, max: MAX_KEY_BYTES });
        }
        if row.len() > MAX_ROW_BYTES {
            let (key, bytes) = (KeyBuf::from_slice(key), row.len());
            return Err(BulkError::RowTooLarge { key, bytes, max: MAX_ROW_BYTES });
        }
        if self.tree.rows >= u64::from(u32::MAX) {
            return Err(BulkError::TreeFull(self.tree.rows));
        }
        Ok(())
    }

    /// Returns whether the pending rows fit even if they had no prefix in common.
    fn surely_fits(&self) -> bool {
        self.pending.bytes_without_prefix(self.pending_bytes) <= self.fill_bytes
    }

    /// Makes a leaf of the first `count` pending rows; its page was reserved.
    fn close_leaf(&mut self, count: usize) {
        let leaf = self.tree.take_node(0);
        self.pending.pack(0..count, leaf, self.tree.config.page_bytes);
        let separator = match self.leaves.last() {
            Some(&(_, previous)) => {
                previous.link(Some(leaf));
                shortest_separator(&self.last_of_leaf, self.pending.key(0))
            }
            None => KeyBuf::new(),
        };
        self.last_of_leaf = KeyBuf::from_slice(self.pending.key(count - 1));
        self.leaves.push((separator, leaf));
    }

    /// The tree.
    ///
    /// # Errors
    /// When there is no memory for the remaining nodes.
    pub fn finish(mut self) -> Result<Tree, BulkError> {
        let count = self.pending.len();
        if count > 0 {
            self.tree.reserve(1)?;
            self.close_leaf(count);
        }
        let mut level = std::mem::take(&mut self.leaves);
        while level.len() > 1 {
            level = self.close_level(&level)?;
        }
        if let Some(&(_, root)) = level.first() {
            self.tree.root = root;
            self.tree.inner_levels = usize::from(root.level());
        }
        Ok(self.tree)
    }

    /// Makes the inner nodes above the nodes of one level.
    fn close_level(&mut self, below: &[(KeyBuf, NodePtr)]) -> Result<Vec<(KeyBuf, NodePtr)>, BulkError> {
        let level = below[0].1.level() + 1;
        let mut nodes = Vec::new();
        let mut list = ChildList::default();
        let mut rest = below;
        while !rest.is_empty() {
            let taken = self.fill_node(&mut list, rest);
            self.tree.reserve(1)?;
            let node = self.tree.take_node(level);
            list.pack(0..taken, node, self.tree.config.page_bytes);
            nodes.push((rest[0].0.clone(), node));
            rest = &rest[taken..];
        }
        Ok(nodes)
    }

    /// Fills `list` with children from the front of `rest`; how many go into one node. At least two unless only one is
    /// left, and never all but one, so that no node gets a single child.
    fn fill_node(&self, list: &mut ChildList, rest: &[(KeyBuf, NodePtr)]) -> usize {
        list.clear();
        let mut taken = 0;
        for (separator, child) in rest {
            list.push(separator, *child, child.total_rows() as u32);
            if taken >= 2 && !list.fits(0..taken + 1, self.fill_bytes) {
                break;
            }
            taken += 1;
        }
        if taken > 2 && rest.len() - taken == 1 { taken - 1 } else { taken }
    }
}
