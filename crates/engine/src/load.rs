//! Bulk loading of rows, by all workers in parallel, without transactions.
//!
//! A load has phases. First every worker runs the caller's closure, which adds rows; rows of the worker's own partitions go
//! into their trees at once (packed bottom-up as long as they come in order of their keys into an empty tree), with the
//! index entries they need; rows and entries of other workers' partitions are set aside. Then these are sent to their
//! owners; then enforced foreign keys are checked.
//!
//! Invariant: a load is all or nothing. Until it ends each worker keeps a journal of the rows it has added, and if any
//! worker fails, all remove them.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use atrapos_partition::abort::Abort;
use atrapos_partition::action::{MissingTable, guarded};
use atrapos_partition::partition::PartitionId;
use atrapos_partition::schema::{Table, TableId, TableRef};
use atrapos_runtime::WorkerId;
use atrapos_storage::lock::{LockMode, LockTarget, TxnId};
use atrapos_storage::{BulkError, BulkLoader, DisplayKey, InsertError, Key, KeyBuf, Row, Tree, TreeConfig};
use atrapos_transaction::shard::EngineWorker;
use atrapos_transaction::unfinished::LoadJournal;

use crate::checkpoint::Pace;
use crate::database::Database;

/// Reasons for which a load failed. No row of it remains in the database.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// A key occurs twice, or existed before.
    #[error("table '{table}' has key {key} twice, in the rows to load or from before; load each key once")]
    Duplicate {
        /// The table or index.
        table: &'static str,
        /// The encoded key, readable.
        key: String,
    },
    /// A row or key is too large, or memory is out.
    #[error("table '{table}': {why}")]
    DoesNotFit {
        /// The table.
        table: &'static str,
        /// The size and the limit, or the failure.
        why: String,
    },
    /// A row refers to one that does not exist.
    #[error(
        "a row of table '{child}' refers to key {key} of table '{parent}', which has no such row; load that one too"
    )]
    NoParent {
        /// The table of the row.
        child: &'static str,
        /// The table referred to.
        parent: &'static str,
        /// The missing key, readable.
        key: String,
    },
    /// Transactions were using the table.
    #[error("table '{table}' is in use by transactions; load it before they start")]
    Busy {
        /// The table.
        table: &'static str,
    },
    /// The caller's closure failed or panicked, or the database is closing.
    #[error(transparent)]
    Aborted(#[from] Abort),
    /// The caller's closure returned an error of its own.
    #[error("{0}")]
    Source(String),
    /// The rows could not be made durable.
    #[error("the loaded rows could not be saved: {0}")]
    NotSaved(String),
}

/// Progress of a load, shared with the threads that display it.
#[derive(Clone, Debug, Default)]
pub struct LoadProgress {
    rows: Arc<AtomicU64>,
}

impl LoadProgress {
    /// Returns the number of rows added so far (index entries not counted), up to a few thousand behind.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }
}

/// A row or index entry on its way to the tree it belongs to.
type RawRow = (TableId, KeyBuf, Box<[u8]>);

/// Adds the rows of a load on one worker. See [`Database::load`].
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
    fn new(worker: &'a Rc<EngineWorker>, progress: &'a LoadProgress) -> Loader<'a> {
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
        let cut = |key: &[u8]| atrapos_partition::routing::head_of(key);
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
        let shard = self.worker.shard();
        shard.check(table.id(), table.tag())?;
        let key = key.encode();
        let mut bytes = std::mem::take(&mut self.row);
        bytes.clear();
        row.encode(&mut bytes);
        let catalog = shard.catalog();
        let meta = &catalog.tables[table.id().at()];
        let added: Result<(), LoadError> = (|| {
            self.add_raw(table.id(), &key, &bytes)?;
            for index in &meta.indexes {
                let entry = index.entry(&key, &bytes)?;
                self.add_raw(index.id, &entry, &key)?;
            }
            Ok(())
        })();
        self.row = bytes;
        if let Err(error) = &added {
            self.failed.get_or_insert_with(|| error.clone());
        }
        self.rows += 1;
        if self.rows.is_multiple_of(REPORT_EVERY) {
            self.progress.rows.fetch_add(REPORT_EVERY, Ordering::Relaxed);
        }
        added
    }

    /// Adds a row or index entry to the tree it belongs to, or sets it aside for its owner.
    fn add_raw(&mut self, table: TableId, key: &KeyBuf, row: &[u8]) -> Result<(), LoadError> {
        let shard = self.worker.shard();
        let mut tables = shard.tables.borrow_mut();
        let (place, owner) = tables.locate(table, key);
        if owner != self.worker.id() {
            self.elsewhere.entry(owner).or_default().push((table, key.clone(), row.into()));
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
    fn finish(mut self) -> Result<BTreeMap<WorkerId, Vec<RawRow>>, LoadError> {
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

impl Database {
    /// Loads rows, by all workers in parallel: `add_rows` runs once on each worker and adds rows through its [`Loader`].
    /// Returns the number of rows added. No transaction may use the tables meanwhile.
    ///
    /// # Errors
    /// Fails if any worker fails; then no row of the load remains.
    pub fn load(
        &self,
        progress: &LoadProgress,
        add_rows: impl Fn(&mut Loader<'_>) -> Result<(), LoadError> + Clone + Send + 'static,
    ) -> Result<u64, LoadError> {
        let before = progress.rows();
        let _definitions = self.catalogs.keep();
        // A checkpoint by another thread meanwhile could have half of the load.
        let _scheme = self.keep_scheme();
        let mut state = self.durable().map(|durable| (durable, durable.lock_state()));
        let loaded = self.load_in_phases(progress, add_rows).and_then(|()| match &mut state {
            // Loaded rows leave no records in the WAL: the load is durable when a checkpoint with them is.
            Some((durable, state)) => match durable.checkpoint_holding(state, Pace::Full) {
                Ok(_) => Ok(()),
                Err(failure) => Err(LoadError::NotSaved(failure.to_string())),
            },
            None => Ok(()),
        });
        match loaded {
            Ok(()) => {
                self.on_all_workers(|worker| {
                    let journal = worker.shard().loading.take();
                    unlock(worker, journal.owner, &journal.locked);
                })?;
                Ok(progress.rows() - before)
            }
            Err(error) => {
                self.on_all_workers(take_back)?;
                Err(error)
            }
        }
    }

    fn load_in_phases(
        &self,
        progress: &LoadProgress,
        add_rows: impl Fn(&mut Loader<'_>) -> Result<(), LoadError> + Clone + Send + 'static,
    ) -> Result<(), LoadError> {
        let progress = progress.clone();
        let added = self.on_all_workers(move |worker| {
            let mut loader = Loader::new(worker, &progress);
            let done = guarded(|| add_rows(&mut loader));
            // The journal has all rows added, also after a failure, so that they can be removed.
            let elsewhere = loader.finish();
            done.map_err(LoadError::from).and_then(|done| done).and(elsewhere)
        })?;
        for part in added {
            for (owner, rows) in part? {
                self.on_worker(owner, move |worker| insert_all(worker, rows))??;
            }
        }
        self.check_parents_of_loaded()
    }

    fn check_parents_of_loaded(&self) -> Result<(), LoadError> {
        for part in self.on_all_workers(check_own_parents)? {
            for (owner, wanted) in part? {
                self.on_worker(owner, move |worker| {
                    let tables = worker.shard().tables.borrow();
                    wanted.into_iter().try_for_each(|wanted| wanted.check(&tables))
                })??;
            }
        }
        Ok(())
    }
}

/// Inserts rows of other workers' closures into this worker's trees.
fn insert_all(worker: &Rc<EngineWorker>, rows: Vec<RawRow>) -> Result<(), LoadError> {
    let progress = LoadProgress::default();
    let mut loader = Loader::new(worker, &progress);
    let done = rows.iter().try_for_each(|(table, key, row)| loader.add_raw(*table, key, row));
    let elsewhere = loader.finish();
    done.and(elsewhere)
        .map(|elsewhere| debug_assert!(elsewhere.is_empty(), "rows were handed to their owner"))
}

/// Returns the range of all keys of a partition.
fn everything() -> LockTarget {
    LockTarget::Range { lower: KeyBuf::new(), upper: None }
}

/// Unlocks the partitions that a load has filled.
fn unlock(worker: &Rc<EngineWorker>, owner: Option<TxnId>, locked: &[PartitionId]) {
    let Some(owner) = owner else { return };
    let shard = worker.shard();
    let mut granted = Vec::new();
    for place in locked {
        let mut tables = shard.tables.borrow_mut();
        tables.partition_mut(*place).locks.release(owner, std::iter::once(&everything()), &mut granted);
    }
    shard.wake_granted(worker, &mut granted);
}

/// Removes the rows that an unfinished load has added on this worker.
fn take_back(worker: &Rc<EngineWorker>) {
    let shard = worker.shard();
    let journal = shard.loading.take();
    let mut tables = shard.tables.borrow_mut();
    for (place, key) in journal.inserted {
        tables.partition_mut(place).unload(&key);
    }
    for place in journal.filled {
        let meta = &tables.catalog.tables[place.table.at()];
        let config = TreeConfig::for_rows_of(meta.expected_row_bytes);
        let tree = Tree::new(config, Arc::clone(&shard.memory));
        tables.partition_mut(place).replace_tree(tree);
    }
    drop(tables);
    unlock(worker, journal.owner, &journal.locked);
}

/// A parent row that has to exist.
struct WantedParent {
    child: TableId,
    parent: TableId,
    key: KeyBuf,
}

impl WantedParent {
    fn check(&self, tables: &atrapos_partition::partition::Tables) -> Result<(), LoadError> {
        let (place, _) = tables.locate(self.parent, &self.key);
        if tables.partition(place).tree().get(&self.key).is_some() {
            return Ok(());
        }
        let names = &tables.catalog.tables;
        Err(LoadError::NoParent {
            child: names[self.child.at()].name,
            parent: names[self.parent.at()].name,
            key: DisplayKey(&self.key).to_string(),
        })
    }
}

/// Checks the enforced foreign keys of the tables just loaded, as far as the parents are on this worker; returns those that
/// other workers have to check.
fn check_own_parents(worker: &Rc<EngineWorker>) -> Result<BTreeMap<WorkerId, Vec<WantedParent>>, LoadError> {
    let shard = worker.shard();
    let tables = shard.tables.borrow();
    let loaded = shard.loading.borrow().tables.clone();
    let mut elsewhere: BTreeMap<WorkerId, Vec<WantedParent>> = BTreeMap::new();
    let mut key = KeyBuf::new();
    for (place, partition) in tables.owned().filter(|(place, _)| loaded.contains(&place.table)) {
        for parent in &tables.catalog.tables[place.table.at()].parents {
            let mut last: Option<KeyBuf> = None;
            for entry in partition.tree().range(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded) {
                entry.key_into(&mut key);
                let Some(wanted) = parent.key.call(&key, entry.bytes())? else { continue };
                // Children of one parent are mostly adjacent.
                if last.as_ref() == Some(&wanted) {
                    continue;
                }
                last = Some(wanted.clone());
                let wanted = WantedParent { child: place.table, parent: parent.parent, key: wanted };
                let owner = tables.locate(wanted.parent, &wanted.key).1;
                if owner == worker.id() {
                    wanted.check(&tables)?;
                } else {
                    elsewhere.entry(owner).or_default().push(wanted);
                }
            }
        }
    }
    Ok(elsewhere)
}
