//! The part of a load on one worker.
//!
//! Owns: rows on their way into trees or to other workers, and the journal of the rows added. Never: removes a row; the load
//! does, by the journal.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use atrapos_catalog::Value;
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::action::MissingTable;
use atrapos_partition::dynamic::TableHandle;
use atrapos_partition::partition::PartitionId;
use atrapos_partition::routing::{Destination, InstanceId};
use atrapos_partition::schema::{Table, TableId, TableRef, unknown_table};
use atrapos_runtime::WorkerId;
use atrapos_storage::lock::{LockMode, LockTarget};
use atrapos_storage::{BulkError, BulkLoader, DisplayKey, InsertError, Key, KeyBuf, Row, TreeConfig};
use atrapos_transaction::shard::EngineWorker;
use atrapos_transaction::unfinished::LoadJournal;

use super::{LoadError, LoadProgress};

/// A row or index entry on its way to the tree it belongs to.
pub(super) type RawRow = (TableId, KeyBuf, Box<[u8]>);

/// Adds the rows of a load on one worker. See [`Database::load`](crate::Database::load).
pub struct Loader<'a> {
    worker: &'a Rc<EngineWorker>,
    bulk: BTreeMap<PartitionId, BulkLoader>,
    journal: LoadJournal,
    elsewhere: BTreeMap<WorkerId, Vec<RawRow>>,
    row: Vec<u8>,
    rows: u64,
    /// The first row that could not be added. The load fails even if the caller's closure ignores the error.
    failed: Option<LoadError>,
    progress: &'a LoadProgress,
}

/// Rows between two reports of progress.
const REPORT_EVERY: u64 = 4096;

impl<'a> Loader<'a> {
    pub(super) fn new(worker: &'a Rc<EngineWorker>, progress: &'a LoadProgress) -> Loader<'a> {
        Loader {
            worker,
            bulk: BTreeMap::new(),
            journal: LoadJournal::default(),
            elsewhere: BTreeMap::new(),
            row: Vec::new(),
            rows: 0,
            failed: None,
            progress,
        }
    }

    /// Returns the worker on which this part of the load runs.
    #[must_use]
    pub fn worker(&self) -> WorkerId {
        self.worker.id()
    }

    /// Returns the number of workers that load.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.worker.workers()
    }

    /// Returns true if this worker owns `key`: the load is fastest if each worker adds the rows it owns.
    #[must_use]
    pub fn owns<T: Table>(&self, table: TableRef<T>, key: &T::Key) -> bool {
        let key = key.encode();
        self.worker.shard().tables.borrow().locate(table.id(), &key).1 == self.worker.id()
    }

    /// Returns the ranges of the integers from `first` to `last`, as leading parts of keys of `table`, that this worker
    /// owns, ascending.
    #[must_use]
    pub fn share_of<T: Table>(
        &self,
        table: TableRef<T>,
        first: u64,
        last: u64,
    ) -> Vec<std::ops::RangeInclusive<u64>> {
        let tables = self.worker.shard().tables.borrow();
        let scheme = &tables.shards[table.id().at()].scheme;
        let cut = |key: &[u8]| atrapos_storage::first_eight(key);
        let mut shares = Vec::new();
        for index in 0..scheme.partitions() {
            if scheme.owner(index) != self.worker.id() {
                continue;
            }
            let from = scheme.lower(index).map_or(0, cut).max(first);
            let to = match scheme.upper(index).map(cut) {
                Some(0) => continue,
                Some(upper) => (upper - 1).min(last),
                None => last,
            };
            if from <= to {
                shares.push(from..=to);
            }
        }
        shares
    }

    /// Adds a row. This is fastest if the worker owns it and the rows of a table come in ascending order of their keys.
    ///
    /// # Errors
    /// A key that exists already, a row or key too large, or a table in use.
    pub fn add<T: Table>(&mut self, table: TableRef<T>, key: &T::Key, row: &T::Row) -> Result<(), LoadError> {
        self.worker.shard().check(table.id(), table.tag())?;
        let mut bytes = std::mem::take(&mut self.row);
        bytes.clear();
        row.encode(&mut bytes);
        let added = self.add_encoded(table.id(), &key.encode(), &bytes);
        self.row = bytes;
        added
    }

    /// Adds a row that is encoded, with its index entries, like [`add`](Loader::add). The bytes are not checked.
    ///
    /// # Errors
    /// As [`add`](Loader::add).
    pub fn add_encoded(&mut self, table: TableId, key: &KeyBuf, row: &[u8]) -> Result<(), LoadError> {
        let catalog = self.worker.shard().catalog();
        let meta = catalog.tables.get(table.at()).ok_or_else(|| unknown_table(table))?;
        let added: Result<(), LoadError> = (|| {
            self.add_raw(table, key, row)?;
            for index in &meta.indexes {
                let entry = index.entry(key, row)?;
                self.add_raw(index.id, &entry, key)?;
            }
            Ok(())
        })();
        if let Err(error) = &added {
            self.failed.get_or_insert_with(|| error.clone());
        }
        self.rows += 1;
        if self.rows.is_multiple_of(REPORT_EVERY) {
            self.progress.rows.fetch_add(REPORT_EVERY, Ordering::Relaxed);
        }
        added
    }

    /// Adds a row of a table that is known by its definition, like [`add`](Loader::add). Columns that are left out get their
    /// defaults, or NULL.
    ///
    /// # Errors
    /// As [`add`](Loader::add); columns that make no row of the table, or a table with a hidden key.
    pub fn add_row(&mut self, table: &TableHandle, columns: &[(&str, Value)]) -> Result<(), LoadError> {
        self.worker.shard().check(table.id(), table.tag)?;
        let (key, row) = table.layout.new_row(columns)?;
        let key = key.ok_or_else(|| {
            Abort::explained(
                AbortReason::InvalidValue,
                format!("table '{}' has no key of its own; append rows to it in transactions", table.name()),
            )
        })?;
        self.add_encoded(table.id(), &key, &row)
    }

    /// Returns true if this worker owns the row with this key of a table that is known by its definition.
    ///
    /// # Errors
    /// Values that are no beginning of a key.
    pub fn owns_row(&self, table: &TableHandle, key: &[Value]) -> Result<bool, Abort> {
        let Destination::Owner(table, key) = table.at(key)?.to else { return Ok(false) };
        Ok(self.worker.shard().tables.borrow().locate(table, &key).1 == self.worker.id())
    }

    /// Returns true if this worker owns the row with this encoded key.
    #[must_use]
    pub fn owns_encoded(&self, table: TableId, key: &KeyBuf) -> bool {
        self.worker.shard().tables.borrow().locate(table, key).1 == self.worker.id()
    }

    /// Adds a row or index entry to the tree it belongs to, or sets it aside for its owner.
    pub(super) fn add_raw(&mut self, table: TableId, key: &KeyBuf, row: &[u8]) -> Result<(), LoadError> {
        let shard = self.worker.shard();
        let mut tables = shard.tables.borrow_mut();
        let (place, owner) = tables.locate(table, key);
        if owner != self.worker.id() {
            // Each instance of a deployment loads the whole population, and keeps what is its own.
            if InstanceId::of_owner(owner).is_none() {
                self.elsewhere.entry(owner).or_default().push((table, key.clone(), row.into()));
            }
            return Ok(());
        }
        let catalog = Arc::clone(&tables.catalog);
        let meta = &catalog.tables[table.at()];
        if tables.owned_at(place).is_none() {
            return Err(MissingTable::new(&tables, table).into_abort().into());
        }
        if let Some(bulk) = self.bulk.get_mut(&place) {
            let version = tables.partition_mut(place).next_version();
            match bulk.push(key, row, version) {
                Err(BulkError::OutOfOrder { .. }) => {
                    // The rows packed so far become the tree; the rest is inserted.
                    let bulk = self.bulk.remove(&place).expect("it was just there");
                    let tree = bulk.finish().map_err(|error| refuse_bulk(meta.name, &error))?;
                    tables.partition_mut(place).replace_tree(tree);
                }
                pushed => return pushed.map_err(|error| refuse_bulk(meta.name, &error)),
            }
        }
        let partition = tables.partition_mut(place);
        if !self.journal.filled.contains(&place) {
            let earlier = shard.loading.borrow();
            if !self.journal.locked.contains(&place) && !earlier.locked.contains(&place) {
                if !partition.locks.is_empty() || shard.is_read_unlocked(table) {
                    return Err(LoadError::Busy { table: meta.name });
                }
                let known = self.journal.owner.or(earlier.owner);
                let owner = known.unwrap_or_else(|| shard.new_txn(self.worker.id()));
                self.journal.owner = Some(owner);
                partition.locks.enter(owner, &everything(), LockMode::Exclusive);
                self.journal.locked.push(place);
            }
            if !self.journal.tables.contains(&table) {
                self.journal.tables.push(table);
            }
            if partition.tree().is_empty() {
                self.journal.filled.push(place);
                let config = TreeConfig::for_rows_of(meta.expected_row_bytes);
                let mut bulk = BulkLoader::new(config, Arc::clone(&shard.memory), FILL);
                let version = partition.next_version();
                bulk.push(key, row, version).map_err(|error| refuse_bulk(meta.name, &error))?;
                self.bulk.insert(place, bulk);
                return Ok(());
            }
        }
        partition.load(key, row).map_err(|error| refuse(meta.name, key, &error))?;
        if !self.journal.filled.contains(&place) {
            self.journal.inserted.push((place, key.clone()));
        }
        Ok(())
    }

    /// Ends this worker's part: all rows added are in the trees and in the shard's journal.
    pub(super) fn finish(mut self) -> Result<BTreeMap<WorkerId, Vec<RawRow>>, LoadError> {
        let shard = self.worker.shard();
        let mut tables = shard.tables.borrow_mut();
        let mut finished = Ok(());
        for (place, bulk) in std::mem::take(&mut self.bulk) {
            match bulk.finish() {
                Ok(tree) => tables.partition_mut(place).replace_tree(tree),
                Err(error) => {
                    finished = Err(refuse_bulk(tables.catalog.tables[place.table.at()].name, &error));
                }
            }
        }
        self.progress.rows.fetch_add(self.rows % REPORT_EVERY, Ordering::Relaxed);
        let mut journal = shard.loading.borrow_mut();
        journal.filled.append(&mut self.journal.filled);
        journal.inserted.append(&mut self.journal.inserted);
        journal.tables.append(&mut self.journal.tables);
        journal.tables.sort_unstable();
        journal.tables.dedup();
        journal.locked.append(&mut self.journal.locked);
        journal.owner = journal.owner.or(self.journal.owner);
        match self.failed {
            Some(failed) => Err(failed),
            None => finished.map(|()| self.elsewhere),
        }
    }
}

/// The fill factor of pages, which leaves some room for rows that grow and for insertions.
pub(crate) const FILL: f64 = 0.97;

/// Returns the range of all keys of a partition.
pub(super) fn everything() -> LockTarget {
    LockTarget::Range { lower: KeyBuf::new(), upper: None }
}

fn refuse_bulk(table: &'static str, error: &BulkError) -> LoadError {
    match error {
        BulkError::Duplicate(key) => LoadError::Duplicate { table, key: DisplayKey(key).to_string() },
        error => LoadError::DoesNotFit { table, why: error.to_string() },
    }
}

fn refuse(table: &'static str, key: &[u8], error: &InsertError) -> LoadError {
    match error {
        InsertError::Duplicate(_) => LoadError::Duplicate { table, key: DisplayKey(key).to_string() },
        error => LoadError::DoesNotFit { table, why: error.to_string() },
    }
}
