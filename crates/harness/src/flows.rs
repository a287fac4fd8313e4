//! The flow graphs of a workload's transaction classes, by running its own procedures in recording mode (`ATraPos
//! §V-A`).
//!
//! Owns: the small database on which they run, and the number of runs. Never: knows the steps of any procedure.
//!
//! Invariants: the same workload gives the same graphs; its database is its own, and is discarded afterwards.

use std::cell::RefCell;

use atrapos::{
    Abort, AnyProcedure, AnyResult, ClassRecording, Database, LoadError, LoadProgress, OpenError,
    RecordedFlow, RecordedRun, Route, SchemaError,
};
use atrapos_workloads::{Blocking, Client, Reach, SetupError, Workload};

use crate::outside::block_on;

/// Transactions recorded with each configuration of a workload: enough that parameters which agree by chance in
/// half of them are not taken for a key.
const TRANSACTIONS: u32 = 256;

/// Reasons for which transactions could not be recorded.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    /// The configuration to record is invalid.
    #[error("what is to be recorded is not possible: {0}")]
    Configuration(atrapos_workloads::registry::BadOptions),
    /// The small database could not be opened.
    #[error("the database to record on could not be opened: {0}")]
    Open(#[from] OpenError),
    /// The small database could not be loaded.
    #[error("the database to record on could not be loaded: {0}")]
    Load(#[from] LoadError),
    /// A client could not be set up.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// A transaction could not be recorded.
    #[error("a transaction could not be recorded: {0}")]
    Record(#[from] Abort),
    /// A run was recorded on another database.
    #[error(transparent)]
    Run(#[from] SchemaError),
}

/// A client that records what it runs.
struct Recording<'a> {
    db: &'a Database,
    /// The last recorded run, until it is taken.
    last: RefCell<Option<Result<RecordedRun, Abort>>>,
}

impl Blocking for Recording<'_> {
    fn run(&self, route: &Route, procedure: AnyProcedure) -> Result<AnyResult, Abort> {
        let (outcome, last) = match self.db.record_any(route, procedure) {
            Ok((outcome, run)) => (outcome, Ok(run)),
            Err(abort) => (Err(abort.clone()), Err(abort)),
        };
        self.last.replace(Some(last));
        outcome
    }
}

/// Returns the flow graph of every transaction class of `workload`, in the order of [`Workload::classes`].
///
/// Runs the transactions on a small database of one worker in memory, created for this. A class of which no transaction
/// ran has no actions.
///
/// # Errors
/// Returns an error if that database cannot be created or used.
pub fn flows<W: Workload>(workload: &W) -> Result<Vec<RecordedFlow>, FlowError> {
    let configurations = workload.to_record();
    let Some(first) = configurations.first() else { return Ok(Vec::new()) };
    let db = Database::builder(first.schema())
        .workers(1)
        .pin(false)
        .place_memory(false)
        .huge_pages(false)
        .fixed_scheme()
        .in_memory()?;
    first.load(&db, &LoadProgress::default())?;
    let names = workload.classes();
    let mut classes: Vec<ClassRecording> = names.iter().map(|_| ClassRecording::new(&db)).collect();
    let client = Recording { db: &db, last: RefCell::default() };
    for configuration in &configurations {
        let mut state = configuration.state(&db, Reach::Everywhere, 0)?;
        for _ in 0..TRANSACTIONS {
            let (class, _) = block_on(W::transaction(&Client::Blocking(&client), &mut state));
            if let Some(run) = client.last.take() {
                classes[class.index()].add(run?)?;
            }
        }
    }
    Ok(classes.iter().zip(names).map(|(class, name)| class.flow(name)).collect())
}
