//! The results of a run, and the errors that keep it from having one.
//!
//! Owns: results and errors as data, and their arithmetic. Never: measures.

use std::time::Duration;

use atrapos::{Abort, Statistics};
use atrapos_workloads::{ClassTally, SetupError};
use hdrhistogram::Histogram;

/// Result of the transactions of one class in the measured interval.
#[derive(Clone, Debug)]
pub struct ClassResult {
    /// The class's name.
    pub name: &'static str,
    /// Counts of their outcomes.
    pub tally: ClassTally,
    /// Latencies of completed transactions in nanoseconds, as their clients saw them.
    pub latency_ns: Histogram<u64>,
}

/// Result of one worker in the measured interval.
#[derive(Clone, Debug)]
pub struct WorkerResult {
    /// The core it was placed on, if it was.
    pub core: Option<usize>,
    /// Share of the time in which it found work, from 0 to 1.
    pub busy_ratio: f64,
    /// Its transactions and actions.
    pub transactions: Statistics,
}

/// Writes and syncs of the WAL in the measured interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalResult {
    /// Bytes written, headers included.
    pub bytes: u64,
    /// Times a stream was synced.
    pub syncs: u64,
}

/// Result of a run.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// Length of the measured interval.
    pub elapsed: Duration,
    /// Results by class, in the workload's order.
    pub classes: Vec<ClassResult>,
    /// Results by worker.
    pub workers: Vec<WorkerResult>,
    /// Sum over the workers.
    pub statistics: Statistics,
    /// Result of the WAL; `None` for a database in memory.
    pub wal: Option<WalResult>,
    /// Transactions of the measured interval that committed changes.
    pub updates: u64,
    /// Outcomes of all transactions of the clients, warm-up and end included: for the
    /// [`Ledger`](atrapos_workloads::Ledger) of the auditor.
    pub tallies_all: Vec<ClassTally>,
    /// True if the run was interrupted early.
    pub interrupted: bool,
}

impl RunResult {
    /// Returns the rate of completed transactions (committed ones and expected failures) per second.
    #[must_use]
    pub fn throughput_tps(&self) -> f64 {
        self.per_second(self.classes.iter().map(|class| class.tally.completed()).sum())
    }

    /// Returns the rate of committed transactions per second.
    #[must_use]
    pub fn committed_tps(&self) -> f64 {
        self.per_second(self.classes.iter().map(|class| class.tally.committed).sum())
    }

    /// Returns `count` in the measured interval as a rate.
    #[must_use]
    pub fn per_second(&self, count: u64) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
    }
}

/// Reasons for which a run could not start or could not finish.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// No client could be set up.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// A client could not be started, or was cut off.
    #[error("a client could not run to its end: {0}")]
    Client(#[from] Abort),
    /// A transaction was aborted for a reason that no workload allows for.
    #[error("a transaction of class {class} was aborted for a reason that should not occur: {abort}")]
    Broken {
        /// The class's name.
        class: &'static str,
        /// The abort.
        abort: Abort,
    },
}
