//! The experiments of `ATraPos §VI-C` and `§VI-D` (thesis §4.5): workloads and workers change under a database that adapts
//! itself and under one that keeps its scheme, and the two are compared.
//!
//! - [`scenario`]: what changes when (Figures 10 to 13), and running all sides of it;
//! - [`comparison`]: what the sides' throughputs over time say;
//! - [`monitoring`]: what observing costs (Table II);
//! - [`repartitioning`]: what changing the scheme costs (Figure 9).
//!
//! Owns: the experiments and their arithmetic. Never: decides what a database does about a change; judges whether the result is
//! good enough; prints or draws.
//!
//! Invariant: what is returned was measured on databases that passed their audit afterwards.

pub mod comparison;
mod crowd;
pub mod monitoring;
pub mod repartitioning;
pub mod scenario;
mod shifting;
pub mod timeline;

use std::time::{Duration, Instant};

use atrapos::{Abort, Builder, Database, LoadError, LoadProgress, OpenError, Schema};
use atrapos_workloads::tatp::BadSubscribers;
use atrapos_workloads::{AuditError, Ledger, NotEnoughMemory, SetupError, Workload};

use crate::driver::RunError;

pub use shifting::{Shifting, ShiftingState};

/// Why an experiment could not be made, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// There cannot be so many subscribers.
    #[error(transparent)]
    Subscribers(#[from] BadSubscribers),
    /// The data does not fit in memory.
    #[error(transparent)]
    Memory(#[from] NotEnoughMemory),
    /// A setting that makes no sense here.
    #[error("{0}")]
    Setting(String),
    /// A database could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A database could not be loaded.
    #[error("the database could not be loaded: {0}")]
    Load(#[from] LoadError),
    /// The clients did not come through.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The scheme or the workers could not be changed.
    #[error("the database could not be changed: {0}")]
    Change(#[from] Abort),
    /// What was measured is worth nothing: the database is not what the transactions have made of it.
    #[error("the audit failed: {0}")]
    Audit(#[from] AuditError),
    /// Somebody asked for an early end.
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
    /// Whether nothing was begun because what was asked for makes no sense.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            ExperimentError::Subscribers(_)
                | ExperimentError::Memory(_)
                | ExperimentError::Setting(_)
                | ExperimentError::Open(_)
        )
    }
}

/// What is going on, for whoever watches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watched<'a> {
    /// What it is.
    pub what: &'a str,
    /// Time since the last report, of the time an experiment takes besides loading.
    pub elapsed: Duration,
    /// Completed transactions per second since then; 0 when none run.
    pub tps: f64,
}

/// What all experiments need to know.
pub struct Setup<'a> {
    /// Begins to open a database of a schema: with the machine and its pinning; the rest is the experiment's.
    pub open: &'a dyn Fn(Schema) -> Builder,
    /// Workers of every database.
    pub workers: usize,
    /// Sessions on each.
    pub sessions: usize,
    /// Rows of the table, or subscribers.
    pub rows: u64,
    /// What all choices of clients follow from.
    pub seed: u64,
    /// How long a phase takes.
    pub phase: Duration,
    /// Whether only the static side is run.
    pub static_only: bool,
    /// How the adaptive side adapts.
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
    /// Opens a database and loads it. Returns also when it was opened.
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

/// Audits a database nobody uses any more, and closes it.
fn audit_and_close<W: Workload>(db: Database, workload: &W, ledger: &Ledger) -> Result<(), ExperimentError> {
    workload.audit(&db, ledger)?;
    db.close(CLOSE_DEADLINE);
    Ok(())
}

/// How long a database may take to close: its clients have ended by then.
const CLOSE_DEADLINE: Duration = Duration::from_secs(30);
