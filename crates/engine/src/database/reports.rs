//! Reports of a database: statistics, sizes and failures.
//!
//! Owns: the types of the reports, and the sums over the workers. Never: changes the database.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use atrapos_durability::backup::BackupError;
use atrapos_partition::abort::Abort;
use atrapos_partition::schema::TableId;
use atrapos_runtime::memory::PreparedStatistics;
use atrapos_runtime::{Ticks, WorkerSnapshot};
use atrapos_transaction::central::ActiveTransaction;
use atrapos_transaction::shard::EngineWorker;
use atrapos_transaction::stats::Statistics;

use super::Database;
use crate::memory::DatabaseMemory;
use crate::recovery::RecoveryReport;

/// Statistics of one worker since the database was opened.
#[derive(Clone, Debug)]
pub struct WorkerReport {
    /// The core it was placed on, if it was placed.
    pub core: Option<usize>,
    /// Its transactions.
    pub transactions: Statistics,
    /// Its steps, messages and busy time.
    pub runtime: WorkerSnapshot,
}

/// Outcome of closing a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloseReport {
    /// Transactions and sessions that had not ended by the deadline and were aborted.
    pub dropped: usize,
    /// The failure that kept the directory from being closed in order, if any. Transactions reported as committed before the
    /// failure are durable all the same.
    pub failure: Option<String>,
}

/// Reasons for which a backup could not be made. The directory of the copy is not a database then.
#[derive(Debug, thiserror::Error)]
pub enum BackupFailure {
    /// Files could not be copied.
    #[error(transparent)]
    Copy(#[from] BackupError),
    /// The database has no directory.
    #[error(transparent)]
    Refused(#[from] Abort),
}

/// Statistics of the WAL since the database was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalStatistics {
    /// Bytes written, headers included.
    pub bytes: u64,
    /// Times a stream was synced; each sync makes everything durable that was committed before it.
    pub syncs: u64,
    /// The current epoch.
    pub epoch: u64,
    /// The newest durable epoch.
    pub durable_epoch: u64,
    /// The time since the moment before which all commits are durable; zero if all are.
    pub lag: Duration,
}

impl Database {
    /// Returns failures that did not stop the database, one sentence each: a core that could not be pinned to, memory that
    /// could not be placed, stored costs of synchronization or a stored scheme that are not used.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let pinning = self.runtime.iter().flat_map(|runtime| runtime.warnings().iter().cloned());
        let memory = self.memory.iter().flat_map(DatabaseMemory::warnings);
        let checkpoint = self.durable.as_ref().and_then(|(durable, _)| durable.wal.warning());
        let stored = self.warnings.iter().cloned();
        pinning.chain(memory.map(|warning| warning.to_string())).chain(checkpoint).chain(stored).collect()
    }

    /// Returns the statistics since the database was opened, summed over all workers.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.stats.iter().fold(Statistics::default(), |sum, stats| sum.plus(&stats.read()))
    }

    /// Returns the transactions under way, in order of their numbers; `None` if no list of them is
    /// [shared](crate::CentralState). They are those of one moment if state locks are shared, too.
    #[must_use]
    pub fn active_transactions(&self) -> Option<Vec<ActiveTransaction>> {
        self.system_state.as_ref()?.active()
    }

    /// Returns the statistics of each worker since the database was opened.
    #[must_use]
    pub fn worker_reports(&self) -> Vec<WorkerReport> {
        let snapshots = self.handle.stats();
        snapshots
            .into_iter()
            .zip(&self.stats)
            .zip(self.adaptive.cores())
            .map(|((runtime, stats), core)| WorkerReport { core, transactions: stats.read(), runtime })
            .collect()
    }

    /// Returns the time that a span of ticks in a [report](Database::worker_reports) takes.
    #[must_use]
    pub fn duration_of(&self, span: Ticks) -> Duration {
        Duration::from_nanos(self.handle.clock().ns(span))
    }

    /// Returns the number of rows of a table, or of entries of an index.
    ///
    /// # Errors
    /// Fails if the database is shutting down.
    pub fn len(&self, table: TableId) -> Result<u64, Abort> {
        let _scheme = self.keep_scheme();
        self.settle()?;
        self.count(table)
    }

    /// Returns the number of rows or entries, for a caller that has locked the scheme and called
    /// [`settle`](Database::settle).
    pub(crate) fn count(&self, table: TableId) -> Result<u64, Abort> {
        let count = move |worker: &Rc<EngineWorker>| {
            let tables = worker.shard().tables.borrow();
            tables
                .owned()
                .filter(|(place, _)| place.table == table)
                .map(|(_, part)| part.tree().len())
                .sum::<u64>()
        };
        self.on_all_workers(count).map(|counts| counts.into_iter().sum())
    }

    /// Returns the memory that the trees have allocated from the operating system, in bytes.
    ///
    /// # Errors
    /// Fails if the database is shutting down.
    pub fn memory_bytes(&self) -> Result<usize, Abort> {
        let _scheme = self.keep_scheme();
        self.table_bytes().map(|bytes| bytes.into_values().sum())
    }

    /// Returns the memory that the trees of each table and index have allocated from the operating system, in bytes. Visits all of
    /// their pages, each worker those of its own. Changes of the scheme are not held off: what moves meanwhile may be missed, or
    /// counted twice.
    ///
    /// # Errors
    /// Fails if the database is shutting down, or the caller is on a worker's thread.
    pub fn table_bytes(&self) -> Result<HashMap<TableId, usize>, Abort> {
        let bytes = |worker: &Rc<EngineWorker>| {
            let tables = worker.shard().tables.borrow();
            let own = tables.owned().map(|(place, part)| {
                let bytes = part.tree().bytes();
                (place.table, bytes.page_bytes + bytes.long_rows + bytes.spare)
            });
            own.collect::<Vec<_>>()
        };
        let mut sums = HashMap::new();
        for (table, bytes) in self.on_all_workers(bytes)?.into_iter().flatten() {
            *sums.entry(table).or_default() += bytes;
        }
        Ok(sums)
    }

    /// Returns how many chunks of 2 MiB are prepared for tables that grow, and how many were taken with and without being
    /// prepared. A worker that takes one that is not meets its page faults within a transaction.
    #[must_use]
    pub fn prepared_memory(&self) -> PreparedStatistics {
        self.memory.as_ref().map_or_else(PreparedStatistics::default, DatabaseMemory::statistics)
    }

    /// Returns the report of the recovery at opening; `None` for a database in memory.
    #[must_use]
    pub fn recovery_report(&self) -> Option<&RecoveryReport> {
        self.durable.as_ref().map(|(durable, _)| &durable.report)
    }

    /// Returns the statistics of the WAL since the database was opened; `None` for a database in memory.
    #[must_use]
    pub fn wal_statistics(&self) -> Option<WalStatistics> {
        let (durable, _) = self.durable.as_ref()?;
        Some(WalStatistics {
            bytes: durable.wal.bytes(),
            syncs: durable.wal.frames(),
            epoch: durable.wal.epoch().0,
            durable_epoch: durable.wal.durable().0,
            lag: durable.wal.lag().unwrap_or(Duration::ZERO),
        })
    }
}
