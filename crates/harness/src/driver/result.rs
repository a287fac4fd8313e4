//! What comes out of a run, or why nothing does.
//!
//! Owns: results and errors as data, and their arithmetic. Never: measures.

use std::time::Duration;

use atrapos::{Abort, Statistics};
use atrapos_workloads::{ClassTally, SetupError};
use hdrhistogram::Histogram;

/// What the transactions of one class did in the measured interval.
#[derive(Clone, Debug)]
pub struct ClassResult {
    /// The class's name.
    pub name: &'static str,
    /// What became of them.
    pub tally: ClassTally,
    /// Latencies of completed transactions in nanoseconds, as their clients saw them.
    pub latency_ns: Histogram<u64>,
}

/// What one worker did in the measured interval.
#[derive(Clone, Debug)]
pub struct WorkerResult {
    /// The core it was placed on, if it was.
    pub core: Option<usize>,
    /// Share of the time in which it found work, from 0 to 1.
    pub busy_ratio: f64,
    /// Its transactions and actions.
    pub transactions: Statistics,
}

/// What the WAL did in the measured interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalResult {
    /// Bytes written, headers included.
    pub bytes: u64,
    /// Times a stream was synced.
    pub syncs: u64,
}

/// What came out of a run.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// Length of the measured interval.
    pub elapsed: Duration,
    /// By class, in the workload's order.
    pub classes: Vec<ClassResult>,
    /// By worker.
    pub workers: Vec<WorkerResult>,
    /// Sum over the workers.
    pub statistics: Statistics,
    /// The WAL's part; nothing for a database in memory.
    pub wal: Option<WalResult>,
    /// Transactions of the measured interval that committed changes.
    pub updates: u64,
    /// Everything the clients did, warm-up and end included: for the [`Ledger`](atrapos_workloads::Ledger) of the auditor.
    pub tallies_all: Vec<ClassTally>,
    /// Whether somebody asked for an early end.
    pub interrupted: bool,
}

impl RunResult {
    /// Completed transactions (committed ones and expected failures) per second.
    #[must_use]
    pub fn throughput_tps(&self) -> f64 {
        self.per_second(self.classes.iter().map(|class| class.tally.completed()).sum())
    }

    /// Transactions per second that did what they were asked for.
    #[must_use]
    pub fn committed_tps(&self) -> f64 {
        self.per_second(self.classes.iter().map(|class| class.tally.committed).sum())
    }

    /// `count` in the measured interval as a rate.
    #[must_use]
    pub fn per_second(&self, count: u64) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
    }
}

/// Why a run could not be made, or not to its end.
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
