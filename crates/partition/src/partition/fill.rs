//! Changes of a partition that no transaction makes: rows that are loaded, and those that come back from the disk.

use std::sync::Arc;

use atrapos_durability::wal::{Change, FormatError, Op};
use atrapos_storage::{InsertError, Memory, Position, Tree};

use super::Partition;
use crate::planted::{Bug, planted};

/// Why a change from the WAL could not be made again.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// There is no memory for the row, or it fits no page.
    #[error(transparent)]
    Row(#[from] InsertError),
    /// The bytes of the change say what cannot be.
    #[error(transparent)]
    Format(#[from] FormatError),
}

impl Partition {
    /// Gives the partition another tree, built in bulk. Nobody may use the one before.
    pub fn replace_tree(&mut self, tree: Tree) {
        self.tree = tree;
    }

    /// Adds a row that is loaded. Nothing is kept to undo it, and nothing follows from it.
    ///
    /// # Errors
    /// When the key is taken, there is no memory, or the row fits no page.
    pub fn load(&mut self, key: &[u8], row: &[u8]) -> Result<(), InsertError> {
        let version = self.next_version();
        self.tree.insert(key, row, version)
    }

    /// Takes a row out that an unfinished load has added.
    pub fn unload(&mut self, key: &[u8]) {
        self.tree.remove(key);
    }

    /// Takes memory from `memory` from now on: the partition has come to another worker.
    pub fn allocate_from(&mut self, memory: Arc<dyn Memory>) {
        self.tree.allocate_from(memory);
    }

    /// Makes a change again that the WAL has, unless the row is as new already. `position` is a hint where its key is.
    ///
    /// # Errors
    /// When there is no memory, or the change is not one of this row.
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
            // The checkpoint was taken after the row had gone; the change that removed it follows.
            (Op::Patch(_) | Op::Remove, None) => {}
        }
        Ok(())
    }
}
