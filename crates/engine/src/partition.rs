//! The partitions one worker owns, by table.
//!
//! A partition is a key range of one table or index: its tree, its lock table and the source of its row versions. It
//! belongs to one worker; nobody else ever touches it.

use std::sync::Arc;

use atrapos_runtime::WorkerId;
use atrapos_storage::Tree;
use atrapos_storage::lock::LockTable;

use crate::routing::FamilyScheme;
use crate::schema::TableId;

/// A partition: which table, and its index in the family's scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) table: TableId,
    pub(crate) partition: u32,
}

#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) tree: Tree,
    pub(crate) locks: LockTable,
    /// Version of the newest write. Versions of one partition only grow, so two writes of the same key, on the same row
    /// or across a deletion, are always in order.
    version: u64,
}

impl Partition {
    pub(crate) fn new(tree: Tree, version: u64) -> Partition {
        Partition { tree, locks: LockTable::new(), version }
    }

    /// Makes sure that later writes get versions beyond `version`.
    pub(crate) fn raise_version(&mut self, version: u64) {
        self.version = self.version.max(version);
    }

    /// The version of the next write.
    #[inline]
    pub(crate) fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }
}

/// One table as one worker sees it.
#[derive(Debug)]
pub(crate) struct TableShard {
    pub(crate) scheme: Arc<FamilyScheme>,
    /// By partition index; `None` where another worker is the owner.
    pub(crate) partitions: Vec<Option<Box<Partition>>>,
}

/// All tables as one worker sees them.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) shards: Vec<TableShard>,
}

impl Tables {
    /// Where `key` is: its partition and the owner.
    #[inline(always)]
    pub(crate) fn locate(&self, table: TableId, key: &[u8]) -> (Place, WorkerId) {
        let shard = &self.shards[table.at()];
        let partition = shard.scheme.partition_of(key);
        (Place { table, partition: partition as u32 }, shard.scheme.owner(partition))
    }

    /// Like [`locate`](Tables::locate); `None` for a table that is not there.
    #[inline(always)]
    pub(crate) fn locate_checked(&self, table: TableId, key: &[u8]) -> Option<(Place, WorkerId)> {
        (table.at() < self.shards.len()).then(|| self.locate(table, key))
    }

    #[inline]
    pub(crate) fn partition(&self, place: Place) -> &Partition {
        self.shards[place.table.at()].partitions[place.partition as usize]
            .as_deref()
            .expect("a worker asks only for partitions it owns")
    }

    #[inline]
    pub(crate) fn partition_mut(&mut self, place: Place) -> &mut Partition {
        self.shards[place.table.at()].partitions[place.partition as usize]
            .as_deref_mut()
            .expect("a worker asks only for partitions it owns")
    }

    /// The partitions this worker owns.
    pub(crate) fn owned(&self) -> impl Iterator<Item = (Place, &Partition)> {
        self.shards.iter().enumerate().flat_map(|(table, shard)| {
            shard.partitions.iter().enumerate().filter_map(move |(index, partition)| {
                let place = Place { table: TableId(table as u16), partition: index as u32 };
                partition.as_deref().map(|partition| (place, partition))
            })
        })
    }
}
