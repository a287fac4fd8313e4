//! Changes of the scheme as a caller names them, and the report of them.
//!
//! Owns: the names of the changes. Never: makes one.

use std::time::Duration;

use atrapos_partition::schema::{Table, TableId, TableRef};
use atrapos_runtime::WorkerId;
use atrapos_storage::{Key, KeyBuf};

/// A change of the scheme. It concerns the family of the table: all tables and indexes that are cut at the same keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemeChange {
    /// Splits the partition that holds `at`: it ends there, and a new one on the same worker begins.
    Split {
        /// A table or index of the family.
        table: TableId,
        /// First key of the new partition, encoded.
        at: KeyBuf,
    },
    /// Joins the partition that begins at `at` to the one before it, which is on the same worker.
    Merge {
        /// A table or index of the family.
        table: TableId,
        /// First key of the partition that ends to exist, encoded.
        at: KeyBuf,
    },
    /// Moves the partition that holds `at` to another worker.
    Move {
        /// A table or index of the family.
        table: TableId,
        /// A key of the partition, encoded; the empty key is in the first one.
        at: KeyBuf,
        /// The new owner.
        to: WorkerId,
    },
}

impl SchemeChange {
    /// Returns a change that splits the partition that holds `at` there.
    #[must_use]
    pub fn split<T: Table>(table: TableRef<T>, at: &T::Key) -> SchemeChange {
        SchemeChange::Split { table: table.id(), at: at.encode() }
    }

    /// Returns a change that joins the partition that begins at `at` to the one before it.
    #[must_use]
    pub fn merge<T: Table>(table: TableRef<T>, at: &T::Key) -> SchemeChange {
        SchemeChange::Merge { table: table.id(), at: at.encode() }
    }

    /// Returns a change that moves the partition that holds `at` to worker `to`.
    #[must_use]
    pub fn move_to<T: Table>(table: TableRef<T>, at: &T::Key, to: WorkerId) -> SchemeChange {
        SchemeChange::Move { table: table.id(), at: at.encode(), to }
    }

    pub(super) fn table(&self) -> TableId {
        match self {
            SchemeChange::Split { table, .. }
            | SchemeChange::Merge { table, .. }
            | SchemeChange::Move { table, .. } => *table,
        }
    }
}

/// Number and cost of changes of the scheme.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepartitionReport {
    /// Partitions split.
    pub splits: u64,
    /// Partitions joined to the ones before them.
    pub merges: u64,
    /// Partitions that went to other workers.
    pub moves: u64,
    /// Total time for which owners did nothing else.
    pub owner_time: Duration,
    /// The longest time for which an owner did nothing else.
    pub longest: Duration,
}

impl RepartitionReport {
    pub(super) fn add_time(&mut self, time: Duration) {
        self.owner_time += time;
        self.longest = self.longest.max(time);
    }
}
