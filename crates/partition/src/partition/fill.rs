//! Changes of a partition outside transactions: loading of rows, and recovery of rows from disk.

use std::sync::Arc;

use atrapos_durability::wal::{Change, FormatError, Op};
use atrapos_storage::{InsertError, Memory, OutOfMemory, Position, Relocation, Tree};

use super::Partition;
use crate::planted::{Bug, planted};

/// Reasons for which a change from the WAL could not be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// There is no memory for the row, or it does not fit a page.
    #[error(transparent)]
    Row(#[from] InsertError),
    /// The bytes of the change are malformed, or do not fit the row.
    #[error(transparent)]
    Format(#[from] FormatError),
}

impl Partition {
    /// Replaces the tree of the partition by one that was built in bulk. No transaction under way may have used the old
    /// one.
    pub fn replace_tree(&mut self, tree: Tree) {
        self.tree = tree;
    }

    /// Adds a row of a load, without before-image and dependents.
    ///
    /// # Errors
    /// Fails if the key is taken, there is no memory, or the row fits no page.
    pub fn load(&mut self, key: &[u8], row: &[u8]) -> Result<(), InsertError> {
        let version = self.next_version();
        self.tree.insert(key, row, version)
    }

    /// Removes a row that an unfinished load has added.
    pub fn unload(&mut self, key: &[u8]) {
        self.tree.remove(key);
    }

    /// Sets the source of memory for later allocations, after the partition has moved to another worker.
    pub fn allocate_from(&mut self, memory: Arc<dyn Memory>) {
        self.tree.allocate_from(memory);
    }

    /// Brings rows from other memory nodes to that of the owner: those of up to `leaves` leaves. See [`Tree::relocate`].
    ///
    /// # Errors
    /// Fails if there is no memory.
    pub fn relocate(&mut self, leaves: usize) -> Result<(usize, Relocation), OutOfMemory> {
        self.tree.relocate(leaves)
    }

    /// Replays a change from the WAL, unless the row is at least as new. `position` is a hint for the position of its
    /// key.
    ///
    /// # Errors
    /// Fails if there is no memory, or the change is not one of this row.
    pub fn replay(&mut self, position: Position, change: &Change<'_>) -> Result<(), ReplayError> {
        self.raise_version(change.version);
        let tree = &mut self.tree;
        let present = tree.row_at_mut(position, change.key);
        if let Some(row) = &present
            && row.version() >= change.version
            && !planted(Bug::VersionsIgnored)
        {
            return Ok(());
        }
        match (&change.op, present) {
            (Op::Put(new), Some(mut row)) if row.bytes().len() == new.len() => {
                row.bytes_mut().copy_from_slice(new);
                row.set_version(change.version);
            }
            (Op::Put(new), Some(_)) => {
                tree.update(change.key, new, change.version)?;
            }
            (Op::Put(new), None) => tree.insert(change.key, new, change.version)?,
            (Op::Patch(patch), Some(mut row)) => {
                patch.apply(row.bytes_mut())?;
                row.set_version(change.version);
            }
            (Op::Remove, Some(_)) => {
                tree.remove(change.key);
            }
            // The checkpoint was taken after the row was removed; the change that removed it follows.
            (Op::Patch(_) | Op::Remove, None) => {}
        }
        Ok(())
    }
}
