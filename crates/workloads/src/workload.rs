//! The seam between a workload and those who run it.
//!
//! Owns: the [`Workload`] trait and the words for what comes out of it. Never: runs anything.

use std::future::Future;
use std::time::Duration;

use atrapos::{Abort, Database, LoadError, LoadProgress, Schema, SchemaError, VerifyError, WorkerId};

use crate::client::Client;
use crate::ledger::Ledger;

/// A transaction class of a workload: its index in [`Workload::classes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(pub u8);

impl ClassId {
    /// The class's position in lists that have one entry per class.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What became of a transaction that was not aborted against its will.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It did what it was asked for.
    Succeeded,
    /// It did what it was asked for, and by it a sum that the auditor knows (money, updates) grew by this much.
    Moved(i64),
    /// Its parameters named something that is not there, or is there already, as the workload's rules expect of a known share
    /// of all transactions. It is complete and has changed nothing.
    ExpectedFailure,
}

/// Which keys a client chooses from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Keys of all data.
    Everywhere,
    /// Only keys that this worker owns.
    OwnedBy(WorkerId),
}

/// Why a client could not be set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// The database was opened with another schema than the workload's.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The worker owns no key that the client could choose.
    #[error("{worker} owns no data of the workload; use fewer workers or more data")]
    NothingOwned {
        /// The worker.
        worker: WorkerId,
    },
}

/// What an auditor has checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditReport {
    /// Rows of tables that were looked at.
    pub rows: u64,
    /// Index entries that agree with their rows.
    pub entries: u64,
    /// References whose parent is there.
    pub references: u64,
}

/// What an auditor has found wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuditError {
    /// The database contradicts itself.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// A table has another number of rows than the committed transactions left in it.
    #[error(
        "table '{table}' has {found} rows where the load and the committed transactions leave {expected}"
    )]
    Count {
        /// The table.
        table: &'static str,
        /// Rows there should be.
        expected: u64,
        /// Rows there are.
        found: u64,
    },
    /// A sum over the data disagrees with the committed transactions.
    #[error("{what} is {found} where the committed transactions make it {expected}")]
    Sum {
        /// What was summed up.
        what: &'static str,
        /// The sum there should be.
        expected: u64,
        /// The sum there is.
        found: u64,
    },
    /// A consistency condition of a benchmark's specification does not hold.
    #[error(
        "consistency condition {number} does not hold in {place}: {what}: {found}, where {expected} is wanted"
    )]
    Condition {
        /// The condition's number in the specification.
        number: u8,
        /// The warehouse, district, order or customer.
        place: String,
        /// What was counted or summed up, and what it has to agree with.
        what: &'static str,
        /// What the other side of the condition says.
        expected: i64,
        /// What was found.
        found: i64,
    },
    /// A sum of money disagrees with the committed transactions, or with another sum.
    #[error("{what} is {found} instead of {expected}")]
    Money {
        /// What was summed up.
        what: &'static str,
        /// The sum there should be.
        expected: i64,
        /// The sum there is.
        found: i64,
    },
    /// A row is not what the population and the committed transactions can have made of it.
    #[error("table '{table}', key {key}: {what}")]
    Row {
        /// The table.
        table: &'static str,
        /// The key, readable.
        key: String,
        /// What is wrong with the row.
        what: &'static str,
    },
    /// A transaction of the auditor did not come through.
    #[error("the audit could not read the database: {0}")]
    Aborted(#[from] Abort),
    /// The database was opened with another schema than the workload's.
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

/// A workload: schema, population, generator, procedures and auditor.
///
/// One value describes one configuration of it, for a given number of workers. Dispatch is static: a
/// transaction of a session costs no box and no virtual call, unless the workload wants it in boxes ([`Client::run_boxed`]).
pub trait Workload: Clone + Send + Sync + 'static {
    /// What one client carries from transaction to transaction: its generator and its handles of tables.
    type State: Send + 'static;

    /// The names of the transaction classes; a [`ClassId`] is an index into them.
    fn classes(&self) -> &'static [&'static str];

    /// Whether transactions of a class change rows when they succeed.
    fn updates(&self, class: ClassId) -> bool;

    /// Small configurations of this workload, of one schema and population, whose clients between them run every class: what
    /// is recorded as its flow graphs. By default the configuration itself.
    fn to_record(&self) -> Vec<Self> {
        vec![self.clone()]
    }

    /// The tables, indexes and references, and where partitions begin.
    fn schema(&self) -> Schema;

    /// Bytes of the rows and keys of a freshly loaded database, encoded, without anything it takes to find them.
    fn encoded_bytes(&self) -> u64;

    /// Refuses a configuration whose data does not fit in `available_bytes` of memory.
    ///
    /// # Errors
    /// Naming how much fits.
    fn check_memory(&self, available_bytes: u64) -> Result<(), crate::NotEnoughMemory>;

    /// Rows that [`load`](Workload::load) adds, or about as many, for progress bars.
    fn expected_rows(&self) -> u64;

    /// Fills an empty database, on all its workers at once. The rows depend on the configuration alone, not on the number of
    /// workers. Returns how many rows were added.
    ///
    /// # Errors
    /// When a worker fails; then nothing of the load remains.
    fn load(&self, db: &Database, progress: &LoadProgress) -> Result<u64, LoadError>;

    /// What a client needs that chooses keys within `reach`. Clients with different `stream`s are independent.
    ///
    /// # Errors
    /// When the database has another schema, or nothing is within reach.
    fn state(&self, db: &Database, reach: Reach, stream: u64) -> Result<Self::State, SetupError>;

    /// One more client for those that choose within `reach`: it does what these defer. None when nothing is deferred.
    ///
    /// # Errors
    /// As [`state`](Workload::state).
    fn server(&self, _db: &Database, _reach: Reach, _stream: u64) -> Result<Option<Self::State>, SetupError> {
        Ok(None)
    }

    /// How long a client waits before its next transaction, without that being part of its latency; asked again after the wait,
    /// until it is `None`.
    #[inline]
    fn pause(_state: &mut Self::State) -> Option<Duration> {
        None
    }

    /// Chooses the next transaction of a client, runs it, and says of which class it was and what became of it.
    fn transaction(
        client: Client<'_>,
        state: &mut Self::State,
    ) -> impl Future<Output = (ClassId, Result<Outcome, Abort>)>;

    /// Proves that a database at rest is what the load and the transactions in `ledger` have made of it.
    ///
    /// # Errors
    /// The first discrepancy found.
    fn audit(&self, db: &Database, ledger: &Ledger) -> Result<AuditReport, AuditError>;
}
