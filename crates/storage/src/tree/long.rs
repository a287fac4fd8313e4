//! Rows that are too long for a leaf.
//!
//! Owns their bytes: writes them to an extent, which the leaf then refers to, and gives the extent back when nothing does any
//! more. It never looks at keys, and never changes a leaf but for a reference.
//!
//! Invariants: a row is elsewhere if and only if it has more than [`TreeConfig::leaf_row_bytes`](super::TreeConfig::leaf_row_bytes);
//! each extent has one reference, in a leaf of the tree that owns it, or is held for a change that may be undone.

use super::Tree;
use crate::memory::{Extent, OutOfMemory};
use crate::node::{NodePtr, StoredRow};

impl Tree {
    /// Returns whether a row of `bytes` bytes goes to an extent.
    #[inline(always)]
    pub(super) fn is_long(&self, bytes: usize) -> bool {
        bytes > self.config.leaf_row_bytes()
    }

    /// Writes a long row to an extent of its own: when a change is being undone, to one that is held for the row.
    ///
    /// # Errors
    /// When there is no memory; nothing was changed then.
    pub(super) fn store_elsewhere(&mut self, row: &[u8]) -> Result<Extent, OutOfMemory> {
        let held = if self.undoing { self.pages.take_held_extent(row.len()) } else { None };
        let extent = match held {
            Some(extent) => {
                self.note_put_back();
                extent
            }
            None => self.pages.take_extent(row.len())?,
        };
        self.has_had_long_rows = true;
        fill(extent, row);
        Ok(extent)
    }

    /// Gives leaf entry `index` a long row. Returns what the entry referred to before and does not any more.
    ///
    /// # Errors
    /// When there is no memory; nothing was changed then.
    #[cold]
    pub(super) fn replace_by_long(
        &mut self,
        (leaf, index): (NodePtr, usize),
        key: &[u8],
        row: &[u8],
        version: u64,
    ) -> Result<Option<Extent>, super::InsertError> {
        let old = leaf.extent(index);
        // What is undone was displaced: then what is there now is to be given back.
        if let Some(old) = old.filter(|old| old.suits(row.len()) && !self.undoing) {
            let extent = old.resized(row.len());
            fill(extent, row);
            leaf.set_extent(index, extent);
            leaf.set_version(index, version);
            return Ok(None);
        }
        let extent = self.store_elsewhere(row)?;
        match self.replace_stored((leaf, index), key, StoredRow::elsewhere(&extent), version) {
            Ok(()) => Ok(old),
            Err(error) => {
                self.pages.give_extent(extent);
                Err(error)
            }
        }
    }
}

/// Writes a row over an extent that has room for it.
fn fill(extent: Extent, row: &[u8]) {
    debug_assert!(extent.suits(row.len()), "an extent is filled with a row that it was taken for");
    // SAFETY: the extent has memory for the row, belongs to the tree that is exclusively borrowed, and nothing else refers to
    // it; `row` is not part of it, as whoever has the row does not borrow the tree.
    unsafe { std::ptr::copy_nonoverlapping(row.as_ptr(), extent.address.as_ptr(), row.len()) };
}

/// Bytes that the long rows of a leaf take.
pub(super) fn extent_bytes(leaf: NodePtr) -> usize {
    let extents = (0..leaf.count()).filter_map(|index| leaf.extent(index));
    extents.map(|extent| Extent::taken_bytes(extent.bytes as usize)).sum()
}
