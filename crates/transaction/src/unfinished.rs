//! The results of unfinished jobs on one worker: a load, the copy of a table.
//!
//! Owns: the results that the end of the job removes again, or makes visible. Never: does either; the jobs do.

use atrapos_partition::partition::{Partition, PartitionId};
use atrapos_partition::schema::TableId;
use atrapos_storage::lock::TxnId;
use atrapos_storage::{BulkLoader, KeyBuf};

/// The journal of a load on one worker: the rows it has added, until it ends.
#[derive(Debug, Default)]
pub struct LoadJournal {
    /// Partitions that were empty: a cancelled load empties them again.
    pub filled: Vec<PartitionId>,
    /// Rows that were inserted one by one.
    pub inserted: Vec<(PartitionId, KeyBuf)>,
    /// Tables that got rows.
    pub tables: Vec<TableId>,
    /// Partitions that got rows. They are locked as a whole until the load ends, so that no transaction reads it before
    /// it is complete and durable.
    pub locked: Vec<PartitionId>,
    /// The owner of these locks.
    pub owner: Option<TxnId>,
}

/// The copies of a table that a worker has made so far.
#[derive(Default)]
pub struct Copies {
    /// Copies that are complete, by number of the partition.
    pub partitions: Vec<Option<Box<Partition>>>,
    /// The partition that is being copied, its unfinished copy, and the key at which copying continues.
    pub current: Option<(u32, BulkLoader, KeyBuf)>,
}
