//! The public interface of an open database.
//!
//! Owns: the [`Database`], its handles of tables, jobs on its workers, and its end. Procedures are run in [`running`], sessions
//! in [`sessions`]; [`administration`] has changes of the scheme, checkpoints and backups, [`reports`] statistics and failures.
//! Never: blocks a worker's thread.

mod administration;
mod reports;
mod running;
mod sessions;

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use atrapos_catalog::{ColumnDef, Definitions};
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::dynamic::{IndexHandle, TableHandle};
use atrapos_partition::routing::{Division, Scheme};
use atrapos_partition::schema::{
    Catalog, Dependency, Index, IndexRef, PublishedCatalog, Schema, SchemaError, Table, TableId, TableRef,
};
use atrapos_placement::adaptation::{AdaptingThread, Adaptive};
use atrapos_runtime::{Handle, Runtime, WorkerId};
use atrapos_topology::Machine;
use atrapos_transaction::central::SystemState;
use atrapos_transaction::jobs::{self, settle, start_on_worker};
use atrapos_transaction::shard::{EngineWorker, Shard};
use atrapos_transaction::stats::EngineStats;
use atrapos_transaction::stored::Handles;
use atrapos_transaction::waiting;

use crate::builder::{Builder, OpenError};
use crate::closing::Closing;
use crate::durable::{Durable, DurableThreads};
use crate::memory::DatabaseMemory;

pub use self::reports::{BackupFailure, CloseReport, WalStatistics, WorkerReport};
pub use self::running::Submitted;
pub(crate) use self::running::{request, wait};
pub use self::sessions::SessionHandle;

/// An open database. Closing it, or dropping it, completes what is under way and stops the workers.
///
/// Worker threads never wait for a database: on one, in a session or a procedure, functions that would block return
/// [`AbortReason::Misuse`]. The exception is dropping: a database may be dropped on a worker's thread. It closes in the
/// background then, and its directory can be opened again when that is done.
///
/// ```
/// use atrapos::{Abort, Database, Schema, Table, row};
///
/// row! { #[derive(Clone, Debug)] pub struct Account { pub balance: i64 } }
/// struct Accounts;
/// impl Table for Accounts {
///     type Key = u64;
///     type Row = Account;
///     const NAME: &'static str = "accounts";
/// }
///
/// let db = Database::builder(Schema::new().table::<Accounts>()).workers(1).in_memory()?;
/// let accounts = db.table::<Accounts>()?;
/// db.run(accounts.at(&1), async move |tx| tx.insert(accounts, 1, Account { balance: 100 }).await)?;
/// let balance = db.run(accounts.at(&1), async move |tx| {
///     tx.update(accounts, 1, |account| { account.balance -= 30; account.balance }).await
/// })?;
/// assert_eq!(balance, Some(70));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Database {
    pub(crate) handle: Handle<Shard>,
    pub(crate) runtime: Option<Runtime<Shard>>,
    pub(crate) catalogs: Arc<PublishedCatalog>,
    pub(crate) adaptive: Arc<Adaptive>,
    pub(crate) adapting: Option<AdaptingThread>,
    pub(crate) stats: Vec<Arc<EngineStats>>,
    /// The system state that workers share, if they share any.
    pub(crate) system_state: Option<Arc<SystemState>>,
    pub(crate) cpus: Vec<Option<usize>>,
    /// The machine that the workers were placed on.
    pub(crate) machine: Machine,
    /// The memory of the workers, until the database closes.
    pub(crate) memory: Option<DatabaseMemory>,
    /// The time that a schema statement waits for transactions.
    pub(crate) patience: Duration,
    /// The division of the keys, if the database is an instance of a deployment.
    pub(crate) division: Option<Division>,
    /// The state of the directory, if there is one, and its threads until the database closes.
    pub(crate) durable: Option<(Arc<Durable>, DurableThreads)>,
    /// The reasons for which something stored was not taken.
    pub(crate) warnings: Vec<String>,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tables: Vec<_> = self.table_names().map(|(_, name)| name).collect();
        f.debug_struct("Database")
            .field("workers", &self.workers())
            .field("tables", &tables)
            .finish_non_exhaustive()
    }
}

impl Database {
    /// Starts collecting the settings of a database with this schema.
    #[must_use]
    pub fn builder(schema: Schema) -> Builder {
        Builder::new(Some(schema))
    }

    /// Opens an existing database with the schema that is stored with it. Handles of tables are returned by
    /// [`table`](Database::table); a table with indexes can be changed after [`index`](Database::index) was called for each
    /// of them, because their key functions are code and not stored.
    ///
    /// # Errors
    /// The errors of [`Builder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Database, OpenError> {
        Database::existing().open(path)
    }

    /// Starts collecting the settings of a database that exists and is opened with the schema stored with it.
    #[must_use]
    pub fn existing() -> Builder {
        Builder::new(None)
    }
}

impl Handles for Database {
    fn table<T: Table>(&self) -> Result<TableRef<T>, SchemaError> {
        Database::table(self)
    }

    fn index<I: Index>(&self) -> Result<IndexRef<I>, SchemaError> {
        Database::index(self)
    }
}

impl Database {
    /// Returns the handle of table `T`.
    ///
    /// # Errors
    /// Fails if the database has no such table.
    pub fn table<T: Table>(&self) -> Result<TableRef<T>, SchemaError> {
        self.catalogs.visible().table()
    }

    /// Returns the handle of index `I`.
    ///
    /// # Errors
    /// Fails if the database has no such index.
    pub fn index<I: Index>(&self) -> Result<IndexRef<I>, SchemaError> {
        self.catalogs.visible().index()
    }

    /// Returns the handle of the table with this name, whether or not a program has declared it as types.
    ///
    /// # Errors
    /// Fails if the database has no such table.
    pub fn table_named(&self, name: &str) -> Result<TableHandle, SchemaError> {
        self.catalogs.visible().table_named(name)
    }

    /// Returns the handle of the index with this name, whether or not a program has declared it as types.
    ///
    /// # Errors
    /// Fails if the database has no such index.
    pub fn index_named(&self, name: &str) -> Result<IndexHandle, SchemaError> {
        self.catalogs.visible().index_named(name)
    }

    /// Returns the names of all tables and indexes, in the order of their numbers.
    pub fn table_names(&self) -> impl Iterator<Item = (TableId, &'static str)> + use<> {
        let catalog = self.catalogs.visible();
        catalog.live().map(|(table, meta)| (table, meta.name)).collect::<Vec<_>>().into_iter()
    }

    /// Returns the catalog: the tables and indexes as they are now.
    #[doc(hidden)]
    #[must_use]
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalogs.visible()
    }

    /// Returns the columns of a table, those of its key included; none for an index or a number that names no table.
    #[must_use]
    pub fn columns(&self, table: TableId) -> Vec<ColumnDef> {
        let catalog = self.catalogs.visible();
        catalog.definitions.table(table.0).map_or_else(Vec::new, |table| table.columns.clone())
    }

    /// Returns the definitions of all tables and indexes. Their cuts are those of a new database; see
    /// [`scheme`](Database::scheme) for the current ones.
    #[must_use]
    pub fn definitions(&self) -> Definitions {
        self.catalogs.visible().definitions.clone()
    }

    /// Returns the declared dependencies between tables.
    #[must_use]
    pub fn dependencies(&self) -> Vec<Dependency> {
        self.catalogs.visible().dependencies.clone()
    }

    /// Returns the number of workers, spare ones included.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.stats.len()
    }

    /// Returns the number of workers that have begun: all but [spare](crate::Builder::spare_workers) ones that no core has appeared for. Those with
    /// smaller numbers are the homes for work that no key leads to.
    #[must_use]
    pub fn active_workers(&self) -> usize {
        self.adaptive.active_workers()
    }

    /// Returns the machine that the workers were placed on when the database was opened.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Returns the current partitioning and placement.
    #[must_use]
    pub fn scheme(&self) -> Arc<Scheme> {
        self.adaptive.published().scheme()
    }

    /// Locks the scheme: it does not change while the guard is held.
    pub(crate) fn keep_scheme(&self) -> MutexGuard<'_, ()> {
        self.adaptive.keep_scheme()
    }

    /// Runs `job` on a worker's thread between transactions and waits for its result.
    pub(crate) fn on_worker<R: Send + 'static>(
        &self,
        worker: WorkerId,
        job: impl FnOnce(&Rc<EngineWorker>) -> R + Send + 'static,
    ) -> Result<R, Abort> {
        refuse_on_worker()?;
        waiting::wait(start_on_worker(&self.handle, worker, job)?)
    }

    /// Runs `job` on every worker at once and collects the results in order of the workers.
    pub(crate) fn on_all_workers<R: Send + 'static>(
        &self,
        job: impl FnOnce(&Rc<EngineWorker>) -> R + Clone + Send + 'static,
    ) -> Result<Vec<R>, Abort> {
        refuse_on_worker()?;
        jobs::on_all_workers(&self.handle, job)
    }

    /// Waits until every message that one worker has sent to another so far has arrived, in particular the ends of
    /// transactions that were reported.
    pub(crate) fn settle(&self) -> Result<(), Abort> {
        refuse_on_worker()?;
        settle(&self.handle)
    }

    /// Returns the state of the directory, if the database has one.
    pub(crate) fn durable(&self) -> Option<&Durable> {
        self.durable.as_ref().map(|(durable, _)| &**durable)
    }

    /// Closes the database: refuses new work, completes transactions and sessions under way, stops the workers. Those that
    /// have not ended after `deadline` (an endless session, for example) are aborted. Background work (a checkpoint, a
    /// change of the scheme) is given up; only transactions that were reported as committed are made durable first, however
    /// long the device takes for it. On a worker's thread it returns at once, and the database closes in the background.
    pub fn close(mut self, deadline: Duration) -> CloseReport {
        self.shut_down(deadline)
    }

    fn shut_down(&mut self, deadline: Duration) -> CloseReport {
        let Some(runtime) = self.runtime.take() else { return CloseReport::default() };
        let (adaptive, adapting) = (Arc::clone(&self.adaptive), self.adapting.take());
        let (durable, memory) = (self.durable.take(), self.memory.take());
        Closing { adaptive, adapting, runtime, durable, memory }.close(deadline)
    }
}

thread_local! {
    /// True if this thread is a worker of a database. Such a thread must not wait for a database: it could be its own.
    pub(crate) static ON_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Returns an error on a worker's thread, which must not block.
pub(crate) fn refuse_on_worker() -> Result<(), Abort> {
    if !ON_WORKER.get() {
        return Ok(());
    }
    Err(Abort::because(
        AbortReason::Misuse,
        "a worker's thread cannot wait for a database; use the transaction or session at hand, or another thread",
    ))
}

/// The deadline for transactions and sessions of a database that is dropped without being closed.
const DROP_DEADLINE: Duration = Duration::from_secs(5);

impl Drop for Database {
    fn drop(&mut self) {
        self.shut_down(DROP_DEADLINE);
    }
}
