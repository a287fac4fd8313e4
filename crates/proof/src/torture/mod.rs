//! Torture: transactions for a process that is killed at any moment, and the proof, when it has been started again,
//! that no promise it gave was broken and no transaction was applied in part.
//!
//! Owns: the schema, the clients and the checks. Never: kills a process, or keeps files; the caller does both.
//!
//! A database is opened ([`Torture::schema`]), checked against the facts of the [`Witness`] ([`Torture::check`]),
//! filled if it is empty ([`Torture::prepare`]), and put under load ([`Torture::run`]) until the process dies or is
//! asked to stop. Then the next process does the same. The load:
//!
//! - *Witness clients* write the number of the transaction into rows on several workers, and replace a row of theirs
//!   now and then. The witness is told before each transaction is handed over, and after it was reported as committed.
//! - *Readers* read those rows and tell the witness what they were shown: it must not be lost either.
//! - *Transfers* move money between purses, whose total never changes; some abort on purpose.
//! - *Definers* create, change and drop tables, which are written and read meanwhile (`made.rs`). The witness is told
//!   of statements as of transactions.
//! - TATP sessions on the workers, and checkpoints one after the other.
//!
//! Conditions checked after every start: all rows of a client are of the same transaction; it is at least as new as the
//! newest one that was acknowledged or shown to a reader, and was handed over at some time; the total is right; the
//! definitions of each definer are those before its last statement or those after it, as a whole, and those after it if
//! it was acknowledged; and TATP's tables are those of its population as far as transactions never change them.

mod check;
mod clients;
mod made;
pub mod schema;
mod witness;

use std::sync::atomic::AtomicBool;

use atrapos::{
    Abort, Builder, CheckpointFailure, Database, DefineError, LoadError, LoadProgress, Schema, SchemaError,
};
use atrapos_harness::driver::RunError;
use atrapos_standard_benchmarks::tatp;
use atrapos_workloads::tatp::parameters::Mix;
use atrapos_workloads::tatp::{BadSubscribers, Tatp};
use atrapos_workloads::{AuditError, KeyChoice, Workload};
pub use check::CheckReport;
pub use clients::Tally;
pub use made::DEFINERS;
pub use made::check::MadeViolation;
use schema::{CLIENTS, Handles, Mark, PURSE_START, PURSES, Purse, ROWS, mark_key};
pub use witness::{Part, READERS, Slot, Witness, WitnessError};

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Rows that are always written together are of different transactions.
    #[error(
        "a transaction is there by halves: the rows of client {client} are of its transactions {found:?}, and always \
         written together"
    )]
    Partial {
        /// The client.
        client: usize,
        /// The transactions, by row; `None` for a row that is missing.
        found: Vec<Option<u64>>,
    },
    /// A promised transaction is lost.
    #[error(
        "a transaction was lost: client {client} has transaction {found} where {promised} had been {how}"
    )]
    Lost {
        /// The client.
        client: usize,
        /// The newest transaction found.
        found: u64,
        /// The oldest transaction that satisfies the promise.
        promised: u64,
        /// The kind of the promise.
        how: &'static str,
    },
    /// A transaction is present that was never committed.
    #[error(
        "a transaction was invented: client {client} has transaction {found} where {submitted} was the last one handed over"
    )]
    Invented {
        /// The client.
        client: usize,
        /// The newest transaction found.
        found: u64,
        /// The last transaction handed over.
        submitted: u64,
    },
    /// The tokens do not match the marks.
    #[error("the tokens of client {client} are {found:?} where its marks say {expected:?}")]
    Token {
        /// The client.
        client: usize,
        /// The tokens that the marks name.
        expected: Vec<u64>,
        /// The tokens found.
        found: Vec<u64>,
    },
    /// The text of a row is not that of its transaction.
    #[error("a row of client {client} has number {value} and another text")]
    Garbled {
        /// The client.
        client: usize,
        /// The number in the row.
        value: u64,
    },
    /// The total of the purses changed.
    #[error("the purses hold {found} in all where they always hold {expected}")]
    Total {
        /// The total found.
        found: i64,
        /// The total expected.
        expected: i64,
    },
    /// Loaded rows are lost.
    #[error("table '{table}' has {found} rows where {expected} were loaded and reported so")]
    Unloaded {
        /// The table.
        table: &'static str,
        /// Rows found.
        found: u64,
        /// Rows loaded.
        expected: u64,
    },
    /// A promise about tables made by statements was broken.
    #[error(transparent)]
    Made(#[from] MadeViolation),
    /// The database violates its own invariants, or TATP's rules.
    #[error(transparent)]
    Audit(#[from] AuditError),
}

/// Reasons for which a round of torture could not continue.
#[derive(Debug, thiserror::Error)]
pub enum TortureError {
    /// A promise was broken.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// The witness failed.
    #[error(transparent)]
    Witness(#[from] WitnessError),
    /// A transaction was aborted for a reason that should not occur.
    #[error("a transaction should not have been aborted: {0}")]
    Abort(#[from] Abort),
    /// A statement failed.
    #[error("a statement should not have failed: {0}")]
    Statement(#[from] DefineError),
    /// TATP could not run.
    #[error("TATP could not run: {0}")]
    Tatp(#[from] RunError),
    /// The data could not be loaded.
    #[error("the data could not be loaded: {0}")]
    Load(#[from] LoadError),
    /// A checkpoint could not be made.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointFailure),
    /// The database has another schema.
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

impl From<MadeViolation> for TortureError {
    fn from(violation: MadeViolation) -> TortureError {
        TortureError::Violation(violation.into())
    }
}

/// The load on a database, the same in every round.
#[derive(Clone, Debug)]
pub struct Torture {
    seed: u64,
    tatp: Tatp,
}

impl Torture {
    /// Creates a torture with `subscribers` TATP subscribers; all choices follow from `seed` and the round.
    ///
    /// # Errors
    /// Returns an error if there cannot be so many subscribers.
    pub fn new(subscribers: u64, seed: u64) -> Result<Torture, BadSubscribers> {
        Ok(Torture { seed, tatp: Tatp::new(subscribers, Mix::Standard, KeyChoice::Uniform, seed)? })
    }

    /// Returns the tables that exist from the beginning.
    #[must_use]
    pub fn schema(&self) -> Schema {
        schema::extend(self.tatp.schema())
    }

    /// Returns the settings of a database that is new, or of one that exists: with all tables that statements have left
    /// in it.
    #[must_use]
    pub fn builder(&self, exists: bool) -> Builder {
        if exists { Database::existing() } else { Database::builder(self.schema()) }
    }

    /// Proves that a database that has just been opened keeps every promise. An empty one does, unless it was loaded
    /// before.
    ///
    /// # Errors
    /// Returns the first promise that was broken, or the reason for which the check could not be made.
    pub fn check(&self, db: &Database, witness: &dyn Witness) -> Result<CheckReport, TortureError> {
        check::check(&self.tatp, db, witness)
    }

    /// Loads the parts that have never been loaded.
    ///
    /// # Errors
    /// Returns an error if a part cannot be loaded, or the witness fails.
    pub fn prepare(&self, db: &Database, witness: &dyn Witness) -> Result<(), TortureError> {
        let handles = Handles::of(db)?;
        if check::is_empty_of(db, Part::Tatp)? {
            self.tatp.load(db, &LoadProgress::default())?;
        }
        witness.write(Slot::Loaded(Part::Tatp), 1)?;
        if check::is_empty_of(db, Part::Marks)? {
            db.load(&LoadProgress::default(), move |loader| {
                for key in (0..ROWS).flat_map(|row| (0..CLIENTS).map(move |client| mark_key(client, row))) {
                    if loader.owns(handles.marks, &key) {
                        loader.add(handles.marks, &key, &Mark::loaded(key as usize % CLIENTS))?;
                    }
                }
                let own = loader.share_of(handles.purses, 0, PURSES - 1);
                own.into_iter()
                    .flatten()
                    .try_for_each(|key| loader.add(handles.purses, &key, &Purse { balance: PURSE_START }))
            })?;
        }
        Ok(witness.write(Slot::Loaded(Part::Marks), 1)?)
    }

    /// Runs the whole load at once until `stop` is set, by the caller or after an error. Returns the work done.
    ///
    /// # Errors
    /// Returns a broken promise that showed while the load ran, or the reason for which it could not continue.
    pub fn run(
        &self,
        db: &Database,
        witness: &dyn Witness,
        round: u64,
        stop: &AtomicBool,
    ) -> Result<Tally, TortureError> {
        clients::run(&*tatp(self.tatp.clone()), self.seed, db, witness, round, stop)
    }
}
