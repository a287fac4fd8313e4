//! Staged rows: copies of rows of other instances, on which one transaction works.
//!
//! They are in trees of the transaction's own, one for each table it has staged rows of, so operations run on them as they run on
//! partitions. What the transaction changes is known from the undo log, which also takes it back to a savepoint.
//!
//! Invariants
//! - Every key of a staged tree, and every key that was found absent, is known, with the lock that the subordinate holds.
//! - A known key is not copied again: its staged row is newer.

use std::sync::Arc;

use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::action::{BatchedOperation, DependentAction, RowContext};
use atrapos_partition::partition::{Partition, PartitionId, TableShard, Tables};
use atrapos_partition::range::KeyRange;
use atrapos_partition::routing::nowhere;
use atrapos_partition::schema::{Catalog, TableId};
use atrapos_partition::undo::{Mark, UndoLog};
use atrapos_storage::lock::{LockMode, LockTarget};
use atrapos_storage::{HeapMemory, KeyBuf, Memory, Tree, TreeConfig};

use crate::shard::{FastMap, Shard};

/// See the module's introduction.
pub(super) struct Staged {
    tables: Tables,
    memory: Arc<dyn Memory>,
    undo: UndoLog,
    known: FastMap<(TableId, KeyBuf), Known>,
    scratch: Vec<u8>,
}

/// A key of which the transaction has what its subordinate has.
#[derive(Clone, Copy)]
struct Known {
    /// The lock that the subordinate holds on it.
    mode: LockMode,
    /// Bytes of its row there; `None` if it has none.
    row_bytes: Option<usize>,
}

/// Bytes of changed keys and rows, once for each change, that are told together without a question: a message takes many times as
/// many, whatever its channel.
pub(super) const BYTES_AT_ONCE: usize = 16 << 10;

/// The partition of a table's staged rows.
fn place(table: TableId) -> PartitionId {
    PartitionId { table, partition: 0 }
}

impl Staged {
    /// Creates it without rows.
    pub(super) fn new(shard: &Shard) -> Staged {
        Staged {
            tables: empty(shard.catalog()),
            memory: Arc::new(HeapMemory),
            undo: UndoLog::default(),
            known: FastMap::default(),
            scratch: Vec::new(),
        }
    }

    /// Prepares it for a transaction that sees the catalog of the shard.
    pub(super) fn begin(&mut self, shard: &Shard) {
        if !Arc::ptr_eq(&self.tables.catalog, &shard.tables.borrow().catalog) {
            self.tables = empty(shard.catalog());
        }
    }

    /// Forgets all rows.
    pub(super) fn clear(&mut self) {
        if self.undo.has_set_aside() {
            self.undo.settle(&mut self.tables);
        }
        self.undo.clear();
        for ((table, key), _) in self.known.drain() {
            self.tables.partition_mut(place(table)).unload(&key);
        }
    }

    /// Returns the lock that is held on a known key.
    pub(super) fn lock_on(&self, table: TableId, key: &KeyBuf) -> Option<LockMode> {
        if self.known.is_empty() {
            return None;
        }
        // Looked up by parts, the key would have to be an array of bytes.
        self.known.get(&(table, key.clone())).map(|known| known.mode)
    }

    /// Makes the tree of a table's staged rows, unless there is one.
    pub(super) fn open(&mut self, table: TableId) {
        if self.tables.owned_at(place(table)).is_none() {
            let config = TreeConfig::for_rows_of(self.tables.catalog.tables[table.at()].expected_row_bytes);
            let tree = Tree::for_few_rows(config, Arc::clone(&self.memory));
            self.tables.put(place(table), Box::new(Partition::new(tree, 0)));
        }
    }

    /// Notes the lock on a key, and stages its row unless the key is known.
    pub(super) fn add(
        &mut self,
        table: TableId,
        key: &[u8],
        mode: LockMode,
        row: Option<&[u8]>,
    ) -> Result<(), Abort> {
        self.open(table);
        let known = self.known.entry((table, KeyBuf::from(key)));
        if let std::collections::hash_map::Entry::Occupied(mut known) = known {
            if mode == LockMode::Exclusive {
                known.get_mut().mode = mode;
            }
            return Ok(());
        }
        known.insert_entry(Known { mode, row_bytes: row.map(<[u8]>::len) });
        let Some(row) = row else { return Ok(()) };
        self.tables.partition_mut(place(table)).load(key, row).map_err(|error| {
            Abort::explained(
                AbortReason::OutOfMemory,
                format!("a row of another instance cannot be kept: {error}"),
            )
        })
    }

    /// Runs an operation on the staged rows of a table. `left_out` is the part of its range that is not staged.
    pub(super) fn apply(
        &mut self,
        table: TableId,
        target: &mut LockTarget,
        left_out: &mut Option<KeyRange>,
        dependents: &mut Vec<DependentAction>,
        operation: BatchedOperation<'_>,
    ) -> Result<(), Abort> {
        let Some((catalog, partition)) = self.tables.open_mut(place(table), true) else {
            unreachable!("the rows of an operation are staged before it runs")
        };
        let mut at = RowContext {
            catalog,
            id: place(table),
            partition,
            target,
            left_out,
            position: None,
            undo: &mut self.undo,
            scratch: &mut self.scratch,
            redo: None,
            dependents,
            may_narrow: false,
        };
        operation.apply(&mut at)
    }

    /// Advances the mark of later changes.
    pub(super) fn reach(&mut self, mark: Mark) {
        self.undo.reach(mark);
    }

    /// Undoes the changes in a range of marks.
    pub(super) fn roll_back(&mut self, time: &std::ops::Range<Mark>) {
        self.undo.roll_back(time, &mut self.tables);
    }

    /// Returns true if changes of a table entail others.
    pub(super) fn has_dependents(&self, table: TableId) -> bool {
        self.tables.catalog.tables[table.at()].has_dependents
    }

    /// Returns true if nothing was changed.
    pub(super) fn is_unchanged(&self) -> bool {
        self.undo.is_empty()
    }

    /// Returns true if every changed row has as many bytes as in the instance that it is of: that instance can make the changes in
    /// place, without memory, since it holds their exclusive locks. They fit in a message.
    pub(super) fn changes_fit(&self) -> bool {
        let mut bytes = 0;
        self.undo.keys().all(|(at, key)| {
            let Some(row) = self.tables.partition(at).tree().get(key) else { return false };
            bytes += key.len() + row.bytes.len();
            let fits =
                |known: &Known| known.mode == LockMode::Exclusive && known.row_bytes == Some(row.bytes.len());
            bytes <= BYTES_AT_ONCE && self.known.get(&(at.table, key.clone())).is_some_and(fits)
        })
    }

    /// Returns the changed keys, each once, with their rows now.
    pub(super) fn changed(&self) -> Vec<(TableId, &KeyBuf, Option<&[u8]>)> {
        let mut keys: Vec<(TableId, &KeyBuf)> =
            self.undo.keys().map(|(place, key)| (place.table, key)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.into_iter()
            .map(|(table, key)| {
                let row = self.tables.partition(place(table)).tree().get(key);
                (table, key, row.map(|row| row.bytes))
            })
            .collect()
    }
}

/// Returns the tables of a catalog without rows.
fn empty(catalog: Arc<Catalog>) -> Tables {
    let shards = catalog.tables.iter().map(|_| TableShard::new(Arc::clone(nowhere()), Vec::new()));
    Tables { shards: shards.collect(), catalog }
}
