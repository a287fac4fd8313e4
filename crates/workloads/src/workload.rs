//! The interface between a workload and the code that runs it.
//!
//! Owns: the [`Workload`] trait and the types of its results. Never: runs a transaction.

use std::future::Future;
use std::time::Duration;

use atrapos::{
    Abort, Database, Handles, LoadError, LoadProgress, Procedures, RegisterError, Schema, SchemaError,
    Upcoming, VerifyError, WorkerId,
};

use crate::client::Client;
use crate::ledger::Ledger;
use crate::shares::NoShare;

/// A transaction class of a workload: its index in [`Workload::classes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(pub u8);

impl ClassId {
    /// Returns the class's position in lists that have one entry per class.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The outcome of a transaction that the engine did not abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It succeeded.
    Succeeded,
    /// It succeeded, and a sum that the auditor knows (money, updates) grew by this amount.
    Moved(i64),
    /// Its parameters named a row that does not exist, or that exists already, as the workload's rules expect of a
    /// known share of all transactions. It is complete and has changed nothing.
    ExpectedFailure,
}

/// The data from which a client chooses its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Keys of all data.
    Everywhere,
    /// Only keys that this worker owns.
    OwnedBy(WorkerId),
}

/// Reasons for which a client could not be set up.
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

/// Counts of the things that an auditor has checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditReport {
    /// Rows of tables that were read.
    pub rows: u64,
    /// Index entries that agree with their rows.
    pub entries: u64,
    /// References whose parent row exists.
    pub references: u64,
}

/// Discrepancies that an auditor finds.
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
        /// Expected number of rows.
        expected: u64,
        /// Number of rows found.
        found: u64,
    },
    /// A sum over the data disagrees with the committed transactions.
    #[error("{what} is {found} where the committed transactions make it {expected}")]
    Sum {
        /// Name of the sum.
        what: &'static str,
        /// Expected sum.
        expected: u64,
        /// Sum found.
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
        /// Name of the count or sum, and of the value that it has to equal.
        what: &'static str,
        /// Value of the other side of the condition.
        expected: i64,
        /// Value found.
        found: i64,
    },
    /// A sum of money disagrees with the committed transactions, or with another sum.
    #[error("{what} is {found} instead of {expected}")]
    Money {
        /// Name of the sum.
        what: &'static str,
        /// Expected sum.
        expected: i64,
        /// Sum found.
        found: i64,
    },
    /// A row cannot be the result of the population and the committed transactions.
    #[error("table '{table}', key {key}: {what}")]
    Row {
        /// The table.
        table: &'static str,
        /// The key in readable form.
        key: String,
        /// The mistake in the row.
        what: &'static str,
    },
    /// A transaction of the auditor failed.
    #[error("the audit could not read the database: {0}")]
    Aborted(#[from] Abort),
    /// The database was opened with another schema than the workload's.
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

/// A workload: schema, population, generator, procedures and auditor.
///
/// One value describes one configuration of it, for a given number of workers. Dispatch is static: a transaction of a
/// session costs no box and no virtual call, unless the workload requests boxes ([`Client::run_apart`]).
pub trait Workload: Clone + Send + Sync + 'static {
    /// State that one client keeps from transaction to transaction: its generator and its handles of tables.
    type State: Send + 'static;

    /// Returns the names of the transaction classes; a [`ClassId`] is an index into them.
    fn classes(&self) -> &'static [&'static str];

    /// Returns whether transactions of a class change rows when they succeed.
    fn updates(&self, class: ClassId) -> bool;

    /// Returns true if no transaction of this configuration changes a row, whatever clients draw. An engine that relies on it refuses
    /// changes, so a wrong answer aborts transactions and harms no row. The default is that no class updates.
    fn only_reads(&self) -> bool {
        (0..self.classes().len()).all(|class| !self.updates(ClassId(class as u8)))
    }

    /// Returns small configurations of this workload, of one schema and population, whose clients together run every
    /// class: their transactions are recorded as its flow graphs. The default is the configuration itself.
    fn to_record(&self) -> Vec<Self> {
        vec![self.clone()]
    }

    /// Returns the schema: tables, indexes and references, and the boundaries of partitions.
    fn schema(&self) -> Schema;

    /// Returns the encoded bytes of the rows and keys of a freshly loaded database, without the structures that find
    /// them.
    fn encoded_bytes(&self) -> u64;

    /// Returns the bytes by which the tables of one worker grow in a second at a high rate of transactions, roughly: memory
    /// that a measurement has prepared before it begins. The default is none.
    fn growth_bytes_per_second(&self) -> u64 {
        0
    }

    /// Refuses a configuration whose data does not fit in `available_bytes` of memory.
    ///
    /// # Errors
    /// Fails with the amount of data that fits.
    fn check_memory(&self, available_bytes: u64) -> Result<(), crate::NotEnoughMemory>;

    /// Returns the number of rows that [`load`](Workload::load) adds, or an estimate, for progress bars.
    fn expected_rows(&self) -> u64;

    /// Loads the population into an empty database, on all its workers at once. The rows depend on the configuration
    /// alone, not on the number of workers. Returns the number of rows added.
    ///
    /// # Errors
    /// Fails if a worker fails; then nothing of the load remains.
    fn load(&self, db: &Database, progress: &LoadProgress) -> Result<u64, LoadError>;

    /// Adds the stored procedures of the workload to a registry, for a database with its schema.
    ///
    /// # Errors
    /// Fails if the database has another schema, or a name is taken.
    fn register(&self, registry: &mut impl Procedures, handles: &impl Handles) -> Result<(), RegisterError>;

    /// Returns the share of transactions that leave the part of the data they begin in, when the data is divided into `parts` parts as
    /// the schema divides it among workers, and each client chooses the first key in its own part: with instances as parts, the share
    /// of distributed transactions. The default is for workloads that never run in several instances.
    ///
    /// # Errors
    /// Fails if there is no formula for this configuration.
    fn distributed_share(&self, _parts: usize) -> Result<f64, NoShare> {
        Err(NoShare(
            "this workload has no formula for its distributed transactions; choose another one".to_owned(),
        ))
    }

    /// Returns the option that decides how much work is remote, from 0 to 1; `None` if there is no such option.
    fn remote_share(&self) -> Option<f64> {
        None
    }

    /// Returns the same workload, of the same schema and population, with another [`remote_share`](Workload::remote_share), which has
    /// no effect if there is no such option.
    #[must_use]
    fn with_remote_share(&self, _share: f64) -> Self {
        self.clone()
    }

    /// Creates the state of a client that chooses keys within `reach`. Clients with different `stream`s are
    /// independent.
    ///
    /// # Errors
    /// Fails if the database has another schema, or no key is within reach.
    fn state(&self, db: &Database, reach: Reach, stream: u64) -> Result<Self::State, SetupError>;

    /// Creates the state of one more client, which does the work that clients with this `reach` defer. `None` if they
    /// defer none.
    ///
    /// # Errors
    /// The errors of [`state`](Workload::state).
    fn server(&self, _db: &Database, _reach: Reach, _stream: u64) -> Result<Option<Self::State>, SetupError> {
        Ok(None)
    }

    /// Returns the time that a client waits before its next transaction, which is not part of its latency; called again
    /// after the wait, until it returns `None`.
    #[inline]
    fn pause(_state: &mut Self::State) -> Option<Duration> {
        None
    }

    /// Draws the next `count` transactions of a client, at most [`UPCOMING_MAX`](atrapos::UPCOMING_MAX), and notes their routes in
    /// `upcoming`, so that their keys can be looked up together. [`transaction`](Workload::transaction) then runs them in their order.
    /// The default draws none.
    #[inline]
    fn draw_ahead(_state: &mut Self::State, _count: usize, _upcoming: &mut Upcoming) {}

    /// Chooses the next transaction of a client unless it was [drawn](Workload::draw_ahead) before, runs it, and returns its class and
    /// its outcome.
    fn transaction(
        client: &Client<'_>,
        state: &mut Self::State,
    ) -> impl Future<Output = (ClassId, Result<Outcome, Abort>)>;

    /// Proves that a database at rest is the result of the load and of the transactions in `ledger`.
    ///
    /// # Errors
    /// The first discrepancy found.
    fn audit(&self, db: &Database, ledger: &Ledger) -> Result<AuditReport, AuditError>;
}
