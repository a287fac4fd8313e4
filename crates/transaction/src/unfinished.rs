//! The results of unfinished jobs on one worker: a load, the copy of a table.
//!
//! Owns: what has to be taken back, or put in place, when the job ends. Never: does either; the jobs do.

use atrapos_partition::partition::{Partition, PartitionId};
use atrapos_partition::schema::TableId;
use atrapos_storage::lock::TxnId;
use atrapos_storage::{BulkLoader, KeyBuf};

/// What a load has added on one worker, until it ends.
#[derive(Debug, Default)]
pub struct LoadJournal {
    /// Partitions that were empty: emptied again by taking back.
    pub filled: Vec<PartitionId>,
    /// Rows that were inserted one by one.
    pub inserted: Vec<(PartitionId, KeyBuf)>,
    /// Tables that got rows.
    pub tables: Vec<TableId>,
    /// Partitions that got rows. They are locked as a whole until the load ends: nobody sees it before it is complete, and
    /// durable.
    pub locked: Vec<PartitionId>,
    /// The owner of these locks.
    pub owner: Option<TxnId>,
}

/// The copies of a table that a worker has made so far.
#[derive(Default)]
pub struct Copies {
    /// Copies that are complete, by number of the partition.
    pub partitions: Vec<Option<Box<Partition>>>,
    /// The partition that is being copied, its copy so far, and the key to go on with.
    pub current: Option<(u32, BulkLoader, KeyBuf)>,
}
