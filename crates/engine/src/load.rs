//! Bulk loading of rows, by all workers in parallel, without transactions.
//!
//! A load has phases. First every worker runs the caller's closure, which adds rows; rows of the worker's own partitions go
//! into their trees at once (packed bottom-up as long as they come in order of their keys into an empty tree), with the
//! index entries they need; rows and entries of other workers' partitions are set aside. Then these are sent to their
//! owners; then enforced foreign keys are checked, unless that is left to the caller.
//!
//! Invariant: a load is all or nothing. Until it ends each worker keeps a journal of the rows it has added, and if any
//! worker fails, all remove them.

mod loader;
mod parents;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use atrapos_partition::abort::Abort;
use atrapos_partition::action::guarded;
use atrapos_partition::partition::PartitionId;
use atrapos_storage::lock::TxnId;
use atrapos_storage::{Tree, TreeConfig};
use atrapos_transaction::lending::HeldOff;
use atrapos_transaction::shard::EngineWorker;

use self::loader::{RawRow, everything};
use self::parents::check_own_parents;
use crate::checkpoint::Pace;
use crate::database::{Database, refuse_on_worker};
use crate::ddl::HeldState;

pub(crate) use self::loader::FILL;
pub use self::loader::Loader;
pub use self::parents::Reference;

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
        self.load_and(progress, add_rows, Self::check_parents_of_loaded, |state| match state {
            // Loaded rows leave no records in the WAL: the load is durable when a checkpoint with them is.
            Some((durable, state)) => match durable.checkpoint_holding(state, Pace::Full) {
                Ok(_) => Ok(()),
                Err(failure) => Err(LoadError::NotSaved(failure.to_string())),
            },
            None => Ok(()),
        })
    }

    /// Loads rows like [`load`](Database::load), but leaves it to a later checkpoint to make them durable
    /// ([`save_loaded`](Database::save_loaded)): a crash before finds all of them, or some, or none. It is left to the caller to check
    /// their foreign keys ([`references_of`](Database::references_of)). For tables that count for nothing until they are complete.
    ///
    /// # Errors
    /// As [`load`](Database::load).
    pub fn load_unsaved(
        &self,
        progress: &LoadProgress,
        add_rows: impl Fn(&mut Loader<'_>) -> Result<(), LoadError> + Clone + Send + 'static,
    ) -> Result<u64, LoadError> {
        self.load_and(progress, add_rows, |_| Ok(()), |_| Ok(()))
    }

    /// Makes the rows of loads durable that have left this to a later checkpoint. Without a WAL, what is committed is durable with
    /// the next snapshot, and so are they.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub fn save_loaded(&self) -> Result<(), LoadError> {
        refuse_on_worker()?;
        match self.durable().filter(|durable| durable.wal.logs()) {
            Some(durable) => {
                durable.checkpoint(Pace::Full).map_err(|failure| LoadError::NotSaved(failure.to_string()))?;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Loads rows, and has them checked, and made durable while no checkpoint by another thread is under way.
    fn load_and(
        &self,
        progress: &LoadProgress,
        add_rows: impl Fn(&mut Loader<'_>) -> Result<(), LoadError> + Clone + Send + 'static,
        check: impl FnOnce(&Database) -> Result<(), LoadError>,
        save: impl FnOnce(&mut HeldState<'_>) -> Result<(), LoadError>,
    ) -> Result<u64, LoadError> {
        let before = progress.rows();
        let _definitions = self.catalogs.keep();
        // A checkpoint by another thread meanwhile could have half of the load.
        let _scheme = self.keep_scheme();
        refuse_on_worker()?;
        let _held_off = HeldOff::new(&self.handle)?;
        let mut state = self.durable().map(|durable| (durable, durable.lock_state()));
        let loaded = self.load_in_phases(progress, add_rows);
        let loaded = loaded.and_then(|()| check(self)).and_then(|()| save(&mut state));
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
        Ok(())
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
