//! Progress, result and failures of a recovery.
//!
//! Owns: the counters that a caller may read while a recovery runs. Never: reads a file.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use atrapos_durability::checkpoint::CheckpointError;
use atrapos_durability::wal::WalError;
use atrapos_partition::abort::Abort;

/// Reasons for which a database could not be recovered. Nothing was changed on disk.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The WAL cannot be read.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// The checkpoint cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Rows do not fit the trees, or memory is out.
    #[error("table '{table}' could not be restored: {why}")]
    Restore {
        /// The table.
        table: &'static str,
        /// The failure.
        why: String,
    },
    /// The WAL does not begin where the checkpoint ends.
    #[error("{0}")]
    Gap(String),
    /// The WAL has records, with valid checksums, that do not fit the database.
    #[error("{0}")]
    Unfit(String),
    /// The workers stopped meanwhile.
    #[error(transparent)]
    Stopped(#[from] Abort),
}

/// Progress of a recovery, shared with the threads that display it.
#[derive(Clone, Debug, Default)]
pub struct RecoveryProgress(pub(super) Arc<Progress>);

/// Counters of a recovery.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) rows_total: AtomicU64,
    pub(super) rows: AtomicU64,
    pub(super) bytes_total: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) changes: AtomicU64,
}

impl RecoveryProgress {
    /// Returns the number of rows of the checkpoint loaded so far, and their total.
    #[must_use]
    pub fn rows(&self) -> (u64, u64) {
        (self.0.rows.load(Ordering::Relaxed), self.0.rows_total.load(Ordering::Relaxed))
    }

    /// Returns the bytes of WAL replayed so far, and their total.
    #[must_use]
    pub fn wal_bytes(&self) -> (u64, u64) {
        (self.0.bytes.load(Ordering::Relaxed), self.0.bytes_total.load(Ordering::Relaxed))
    }

    /// Returns the number of changes replayed so far.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::Relaxed)
    }
}

/// Result of a recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Rows taken from the checkpoint, index entries included.
    pub rows: u64,
    /// Changes taken from the WAL.
    pub changes: u64,
    /// Bytes of WAL read.
    pub wal_bytes: u64,
    /// Bytes that had not been written to their end when the database stopped, and were cut off, by file.
    pub torn: Vec<(PathBuf, u64)>,
    /// Transactions of other instances that were prepared here, and whose outcomes have to be asked for.
    pub in_doubt: u64,
    /// Transactions decided here whose outcomes may not have reached all other instances.
    pub unacknowledged: u64,
}
