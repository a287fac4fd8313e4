//! The experiments of `ATraPos §VI-C` and `§VI-D` (thesis §4.5): workloads and workers change under a database that
//! adapts itself and under one that keeps its scheme, and the two are compared.
//!
//! - [`scenario`]: scenarios of changes (Figures 10 to 13), and running all sides of one;
//! - [`apart`]: tables that may be placed by themselves, or together (beyond the paper);
//! - [`comparison`]: the sides' throughputs over time, compared;
//! - [`counters`]: counters that threads share (Islands, Figures 5 and 7);
//! - [`ladder`]: the steps from PLP to ATraPos (Figure 6);
//! - [`monitoring`]: the cost of observing (Table II);
//! - [`repartitioning`]: the cost of changing the scheme (Figure 9);
//! - [`synchronization`]: the processor time of a synchronization, for the cost model.
//!
//! Owns: the experiments and their arithmetic. Never: decides how a database reacts to a change; judges whether the
//! result is good enough; prints or draws.
//!
//! Invariant: every returned measurement of databases was made on ones that passed their audit afterwards.

pub mod apart;
pub mod comparison;
pub mod counters;
mod crowd;
pub mod ladder;
pub mod monitoring;
pub mod repartitioning;
pub mod scenario;
mod shifting;
pub mod synchronization;
pub mod timeline;

use std::time::{Duration, Instant};

use atrapos::{Abort, Builder, Database, LoadError, LoadProgress, OpenError, Schema};
use atrapos_harness::driver::RunError;
use atrapos_workloads::pair::BadPair;
use atrapos_workloads::tatp::BadSubscribers;
use atrapos_workloads::tpcc::BadTpcc;
use atrapos_workloads::{AuditError, Ledger, NotEnoughMemory, SetupError, Workload};
pub use shifting::{Shifting, ShiftingState};

/// Reasons for which an experiment could not start or could not finish.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The number of subscribers is impossible.
    #[error(transparent)]
    Subscribers(#[from] BadSubscribers),
    /// The number of rows is impossible.
    #[error(transparent)]
    Rows(#[from] BadPair),
    /// The size of TPC-C is impossible.
    #[error(transparent)]
    Tpcc(#[from] BadTpcc),
    /// The data does not fit in memory.
    #[error(transparent)]
    Memory(#[from] NotEnoughMemory),
    /// A setting that is invalid for the experiment.
    #[error("{0}")]
    Setting(String),
    /// A database could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A database could not be loaded.
    #[error("the database could not be loaded: {0}")]
    Load(#[from] LoadError),
    /// The clients failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The engine with shared data could not be filled, or not be copied for its audit.
    #[error("the engine with shared data could not be copied: {0}")]
    Shared(String),
    /// The scheme or the workers could not be changed.
    #[error("the database could not be changed: {0}")]
    Change(#[from] Abort),
    /// The measurement is invalid: the database is not in the state that its transactions must have produced.
    #[error("the audit failed: {0}")]
    Audit(#[from] AuditError),
    /// The experiment was interrupted early.
    #[error(
        "the experiment was interrupted, and a part of it says nothing; run it to its end, or with fewer --seconds-per-phase"
    )]
    Interrupted,
}

impl From<SetupError> for ExperimentError {
    fn from(error: SetupError) -> ExperimentError {
        ExperimentError::Run(error.into())
    }
}

impl ExperimentError {
    /// Returns true if the experiment was refused because of a setting, before anything was started.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            ExperimentError::Subscribers(_)
                | ExperimentError::Rows(_)
                | ExperimentError::Tpcc(_)
                | ExperimentError::Memory(_)
                | ExperimentError::Setting(_)
                | ExperimentError::Open(_)
        )
    }
}

/// Progress of an experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watched<'a> {
    /// Name of the current step.
    pub what: &'a str,
    /// Time since the last report, of the time an experiment takes besides loading.
    pub elapsed: Duration,
    /// Completed transactions per second since then; 0 if none run.
    pub tps: f64,
}

/// Settings that all experiments share.
pub struct Setup<'a> {
    /// Begins to open a database of a schema, with the machine and its pinning; the experiment makes the other
    /// settings.
    pub open: &'a dyn Fn(Schema) -> Builder,
    /// Workers of every database.
    pub workers: usize,
    /// Sessions on each worker.
    pub sessions: usize,
    /// Rows of the table, or number of subscribers.
    pub rows: u64,
    /// Seed of all choices of clients.
    pub seed: u64,
    /// Length of a phase.
    pub phase: Duration,
    /// True if only the static side is run.
    pub static_only: bool,
    /// Settings by which the adaptive side adapts.
    pub adaptation: atrapos::Adaptation,
}

impl std::fmt::Debug for Setup<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup")
            .field("workers", &self.workers)
            .field("sessions", &self.sessions)
            .field("rows", &self.rows)
            .field("phase", &self.phase)
            .finish_non_exhaustive()
    }
}

impl Setup<'_> {
    /// Opens a database and loads it. Returns also the moment at which it was opened.
    fn loaded<W: Workload>(
        &self,
        workload: &W,
        settings: impl FnOnce(Builder) -> Builder,
    ) -> Result<(Database, Instant), ExperimentError> {
        let db = settings((self.open)(workload.schema())).in_memory()?;
        let opened = Instant::now();
        workload.load(&db, &LoadProgress::default())?;
        Ok((db, opened))
    }
}

/// Audits a database that has no users any more, and closes it.
fn audit_and_close<W: Workload>(db: Database, workload: &W, ledger: &Ledger) -> Result<(), ExperimentError> {
    workload.audit(&db, ledger)?;
    db.close(CLOSE_DEADLINE);
    Ok(())
}

/// Time that closing a database may take: its clients have ended by then.
const CLOSE_DEADLINE: Duration = Duration::from_secs(30);
