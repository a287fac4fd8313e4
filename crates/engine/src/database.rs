//! The public interface of an open database: running procedures, sessions, and administration.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use atrapos_catalog::{ColumnDef, Definitions};
use atrapos_durability::backup::{BackupError, BackupReport, backup};
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::action::panicked_in;
use atrapos_partition::dynamic::{IndexHandle, TableHandle};
use atrapos_partition::routing::{Route, Scheme};
use atrapos_partition::schema::{
    Dependency, Index, IndexRef, PublishedCatalog, Schema, SchemaError, Table, TableId, TableRef,
};
use atrapos_placement::adaptation::{AdaptationEvent, AdaptingThread, Adaptive};
use atrapos_placement::repartition::{RepartitionReport, SchemeChange};
use atrapos_runtime::memory::HugeChunks;
use atrapos_runtime::oneshot::{Receiver, oneshot};
use atrapos_runtime::{Handle, Runtime, SubmitError, WorkerId, WorkerSnapshot};
use atrapos_transaction::jobs::{self, settle, start_on_worker};
use atrapos_transaction::procedure::{
    BoxedProcedure, Procedure, Session, run_here, run_recorded, run_traced,
};
use atrapos_transaction::recording::RecordedRun;
use atrapos_transaction::shard::{EngineWorker, Shard};
use atrapos_transaction::stats::{EngineStats, Statistics};
use atrapos_transaction::trace::TraceEvent;
use atrapos_transaction::waiting;

use crate::builder::{Builder, OpenError};
use crate::checkpoint::{CheckpointFailure, CheckpointReport, Pace};
use crate::closing::Closing;
use crate::durable::{Durable, DurableThreads};
use crate::recovery::RecoveryReport;

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
    pub(crate) cpus: Vec<Option<usize>>,
    pub(crate) chunks: Arc<HugeChunks>,
    pub(crate) pinned: bool,
    /// The time that a schema statement waits for transactions.
    pub(crate) patience: Duration,
    /// The state of the directory, if there is one, and its threads until the database closes.
    pub(crate) durable: Option<(Arc<Durable>, DurableThreads)>,
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

/// Statistics of one worker since the database was opened.
#[derive(Clone, Debug)]
pub struct WorkerReport {
    /// The core it was placed on, if it was placed.
    pub core: Option<usize>,
    /// Its transactions.
    pub transactions: Statistics,
    /// Its steps, messages and busy time.
    pub runtime: WorkerSnapshot,
}

/// Outcome of closing a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloseReport {
    /// Transactions and sessions that had not ended by the deadline and were aborted.
    pub dropped: usize,
    /// The failure that kept the directory from being closed in order, if any. Transactions reported as committed before the
    /// failure are durable all the same.
    pub failure: Option<String>,
}

impl Database {
    /// Starts collecting the settings of a database with this schema.
    #[must_use]
    pub fn builder(schema: Schema) -> Builder {
        Builder::new(Some(schema))
    }

    /// Opens an existing database with the schema that is stored with it. Handles of tables are
    /// returned by [`table`](Database::table); a table with indexes can be changed after [`index`](Database::index) was
    /// called for each of them, because their key functions are code and not stored.
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

    /// Returns the number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.stats.len()
    }

    /// Returns the current partitioning and placement.
    #[must_use]
    pub fn scheme(&self) -> Arc<Scheme> {
        self.adaptive.published().scheme()
    }

    /// Returns failures that did not stop the database, one sentence each: a core that could not be pinned to, memory that
    /// could not be placed.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let pinning = self.runtime.iter().flat_map(|runtime| runtime.warnings().iter().cloned());
        let memory = self.chunks.warnings();
        let checkpoint = self.durable.as_ref().and_then(|(durable, _)| durable.wal.warning());
        pinning.chain(memory.iter().map(ToString::to_string)).chain(checkpoint).collect()
    }

    /// Changes partitioning and placement while transactions run: one partition at a time is split, merged or moved, in the
    /// order given. No transaction aborts because of it. On a database that [adapts itself](Builder::adaptation) the
    /// controller may change it again.
    ///
    /// # Errors
    /// A change that makes no sense (those before it have been made), or the database is shutting down.
    pub fn repartition(
        &self,
        changes: impl IntoIterator<Item = SchemeChange>,
    ) -> Result<RepartitionReport, Abort> {
        refuse_on_worker()?;
        self.adaptive.repartition(changes.into_iter().collect())
    }

    /// Returns the decisions about partitioning and placement since the database was opened, those not to act included, the
    /// oldest first. Only the latest few thousand are kept.
    #[must_use]
    pub fn adaptation_history(&self) -> Vec<AdaptationEvent> {
        self.adaptive.history()
    }

    /// Returns the statistics of the workers since the last call, or since the controller took them last: the cost of actions
    /// by sub-partition and the synchronization points, as a trace from which plans can be made elsewhere.
    ///
    /// # Errors
    /// Fails if the database [does not observe itself](Builder::fixed_scheme), or is shutting down.
    pub fn workload_trace(&self) -> Result<atrapos_adapt::WorkloadTrace, Abort> {
        refuse_on_worker()?;
        self.adaptive.trace()
    }

    /// Takes a worker out of use: all its data moves to the others before this returns. Its thread goes on, and so do its
    /// sessions, whose data is elsewhere then.
    ///
    /// # Errors
    /// Fails if there is no such worker, or no other that may own data.
    pub fn retire_worker(&self, worker: WorkerId) -> Result<RepartitionReport, Abort> {
        refuse_on_worker()?;
        self.adaptive.retire(worker)
    }

    /// Brings a retired worker back, on core `core`, and returns its number. It is given data again when the database next
    /// adapts itself; one with a [fixed scheme](Builder::fixed_scheme) is repartitioned [by hand](Database::repartition).
    ///
    /// # Errors
    /// Fails if no worker has retired.
    pub fn add_worker(&self, core: usize) -> Result<WorkerId, Abort> {
        refuse_on_worker()?;
        self.adaptive.add(core)
    }

    /// Returns, by worker, whether it may own data: all but those that [retired](Database::retire_worker) or lost their core.
    #[must_use]
    pub fn available_workers(&self) -> Vec<bool> {
        self.adaptive.available()
    }

    /// Locks the scheme: it does not change while the guard is held.
    pub(crate) fn keep_scheme(&self) -> MutexGuard<'_, ()> {
        self.adaptive.keep_scheme()
    }

    /// Returns the home of a transaction with this route.
    fn home(&self, route: &Route) -> WorkerId {
        self.adaptive.published().home(route, self.workers())
    }

    /// Runs a procedure as a transaction at the home its route names, and waits for the outcome. While the worker is
    /// overloaded the caller waits.
    ///
    /// # Errors
    /// The reason for which the transaction aborted.
    pub fn run<R: Send + 'static>(&self, route: Route, procedure: impl Procedure<R>) -> Result<R, Abort> {
        refuse_on_worker()?;
        self.submit(route, procedure)?.wait()
    }

    /// Submits a procedure to its home and returns a future of the outcome, which a session may await as well. While the
    /// worker is overloaded the caller waits (without spinning); a caller on a worker's thread, which others may wait for,
    /// is refused.
    ///
    /// # Errors
    /// Fails if the database is shutting down; on a worker's thread with [`AbortReason::Overloaded`] as well.
    pub fn submit<R: Send + 'static>(
        &self,
        route: Route,
        procedure: impl Procedure<R>,
    ) -> Result<Submitted<R>, Abort> {
        let (request, submitted) = request(Box::new(procedure));
        self.hand_over(self.home(&route), request)?;
        Ok(submitted)
    }

    /// Submits a procedure like [`submit`](Database::submit), but refuses at once if the worker is overloaded.
    ///
    /// # Errors
    /// [`AbortReason::Overloaded`]: try again later. [`AbortReason::ShuttingDown`]: open the database again.
    pub fn try_submit<R: Send + 'static>(
        &self,
        route: Route,
        procedure: impl Procedure<R>,
    ) -> Result<Submitted<R>, Abort> {
        let (request, submitted) = request(Box::new(procedure));
        self.handle.try_submit(self.home(&route), request).map_err(|error| not_accepted(&error))?;
        Ok(submitted)
    }

    /// Submits a request to a worker. While its inbox is full the caller waits, unless this is the thread of a worker of any
    /// database: two workers could wait for each other.
    fn hand_over(
        &self,
        worker: WorkerId,
        request: impl FnOnce(&Rc<EngineWorker>) + Send + 'static,
    ) -> Result<(), Abort> {
        let handed = if ON_WORKER.get() {
            self.handle.try_submit(worker, request)
        } else {
            self.handle.submit(worker, request)
        };
        handed.map_err(|error| not_accepted(&error))
    }

    /// Runs a procedure like [`run`](Database::run) and also returns its trace, stage by stage. For inspection: it is slower,
    /// and a deadlock is not retried.
    ///
    /// # Errors
    /// Fails if the database is shutting down.
    pub fn run_traced<R: Send + 'static>(
        &self,
        route: Route,
        procedure: impl Procedure<R>,
    ) -> Result<(Result<R, Abort>, Vec<TraceEvent>), Abort> {
        let procedure: BoxedProcedure<R> = Box::new(procedure);
        self.on_worker_async(self.home(&route), async move |worker: Rc<EngineWorker>| {
            run_traced(&worker, &*procedure).await
        })
    }

    /// Runs a procedure like [`run`](Database::run) and also returns its accesses, for a
    /// [`ClassRecording`](crate::ClassRecording). For analysis of procedures: it is slower, and a deadlock is not retried.
    ///
    /// # Errors
    /// [`AbortReason::Misuse`] if the database has more than one worker, or if a lock of another transaction conflicted;
    /// [`AbortReason::ShuttingDown`].
    pub fn record<R: Send + 'static>(
        &self,
        route: Route,
        procedure: impl Procedure<R>,
    ) -> Result<(Result<R, Abort>, RecordedRun), Abort> {
        if self.workers() > 1 {
            return Err(Abort::because(
                AbortReason::Misuse,
                "accesses are recorded on a single worker, since what they are does not depend on where the data is; open a \
                 database of one worker to record",
            ));
        }
        let procedure: BoxedProcedure<R> = Box::new(procedure);
        let recorded = self.on_worker_async(self.home(&route), async move |worker: Rc<EngineWorker>| {
            run_recorded(&worker, &*procedure).await
        })?;
        if recorded.1.is_complete() {
            return Ok(recorded);
        }
        Err(Abort::because(
            AbortReason::Misuse,
            "a lock of another transaction conflicted with the recorded one; record while nothing else runs",
        ))
    }

    /// Starts a session on a worker: a client that runs there and executes transactions one after the other. The result of
    /// `body` is the session's result; a panic ends the session and nothing else. [`Session`] documents what a session may
    /// await.
    ///
    /// # Errors
    /// Fails if the database is shutting down; on a worker's thread with [`AbortReason::Overloaded`] as well.
    pub fn spawn_session<R: Send + 'static>(
        &self,
        worker: WorkerId,
        body: impl AsyncFnOnce(Session) -> R + Send + 'static,
    ) -> Result<SessionHandle<R>, Abort> {
        let (sender, receiver) = oneshot();
        let start = move |worker: &Rc<EngineWorker>| {
            let session = Session::new(Rc::clone(worker));
            worker.spawn(async move {
                // Pinned where it is made: passed to another function, the whole future would be stored twice.
                let mut body = pin!(body(session));
                let ended = poll_fn(|context| {
                    // A panic of the session's is the session's, not the worker's.
                    match catch_unwind(AssertUnwindSafe(|| body.as_mut().poll(context))) {
                        Ok(polled) => polled.map(Ok),
                        Err(panic) => Poll::Ready(Err(panicked_in("session", panic.as_ref()))),
                    }
                })
                .await;
                sender.send(ended);
            });
        };
        self.hand_over(WorkerId(worker.0 % self.workers() as u16), start)?;
        Ok(SessionHandle { receiver })
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

    /// Runs `job` as a task of a worker and waits for its result.
    fn on_worker_async<R: Send + 'static>(
        &self,
        worker: WorkerId,
        job: impl AsyncFnOnce(Rc<EngineWorker>) -> R + Send + 'static,
    ) -> Result<R, Abort> {
        refuse_on_worker()?;
        let (sender, receiver) = oneshot();
        let start = move |worker: &Rc<EngineWorker>| {
            let own = Rc::clone(worker);
            worker.spawn(async move { sender.send(job(own).await) });
        };
        self.handle.submit(worker, start).map_err(|_| Abort::shutting_down())?;
        receiver.wait().map_err(|_| Abort::shutting_down())
    }

    /// Returns the statistics since the database was opened, summed over all workers.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.stats.iter().fold(Statistics::default(), |sum, stats| sum.plus(&stats.read()))
    }

    /// Returns the statistics of each worker since the database was opened.
    #[must_use]
    pub fn worker_reports(&self) -> Vec<WorkerReport> {
        let snapshots = self.handle.stats();
        snapshots
            .into_iter()
            .zip(&self.stats)
            .zip(&self.cpus)
            .map(|((runtime, stats), cpu)| WorkerReport {
                core: if self.pinned { *cpu } else { None },
                transactions: stats.read(),
                runtime,
            })
            .collect()
    }

    /// Returns the number of rows of a table, or of entries of an index.
    ///
    /// # Errors
    /// Fails if the database is shutting down.
    pub fn len(&self, table: TableId) -> Result<u64, Abort> {
        let _scheme = self.keep_scheme();
        self.settle()?;
        self.count(table)
    }

    /// Returns the number of rows or entries, for a caller that has locked the scheme and called
    /// [`settle`](Database::settle).
    pub(crate) fn count(&self, table: TableId) -> Result<u64, Abort> {
        let count = move |worker: &Rc<EngineWorker>| {
            let tables = worker.shard().tables.borrow();
            tables
                .owned()
                .filter(|(place, _)| place.table == table)
                .map(|(_, part)| part.tree().len())
                .sum::<u64>()
        };
        self.on_all_workers(count).map(|counts| counts.into_iter().sum())
    }

    /// Returns the memory that the trees have allocated from the operating system, in bytes.
    ///
    /// # Errors
    /// Fails if the database is shutting down.
    pub fn memory_bytes(&self) -> Result<usize, Abort> {
        let _scheme = self.keep_scheme();
        let bytes = |worker: &Rc<EngineWorker>| {
            let tables = worker.shard().tables.borrow();
            tables
                .owned()
                .map(|(_, part)| part.tree().bytes())
                .map(|bytes| bytes.page_bytes + bytes.long_rows + bytes.spare)
                .sum::<usize>()
        };
        self.on_all_workers(bytes).map(|bytes| bytes.into_iter().sum())
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

    /// Makes a checkpoint while transactions run, and returns when it is on disk: the next opening begins with it.
    ///
    /// # Errors
    /// Fails if files cannot be written (the previous checkpoint stays valid), or the database has no directory.
    pub fn checkpoint(&self) -> Result<CheckpointReport, CheckpointFailure> {
        refuse_on_worker()?;
        match &self.durable {
            Some((durable, _)) => durable.checkpoint(Pace::Gentle),
            None => Err(Abort::because(
                AbortReason::Misuse,
                "a database in memory has no directory to write a checkpoint to; open it with a path",
            )
            .into()),
        }
    }

    /// Copies the database to the directory `to`, which must be empty or not exist, while transactions run. The copy has all
    /// transactions that were reported as committed before the call; open it like any database.
    ///
    /// # Errors
    /// Fails if files cannot be read or written, `to` is in use, or the database has no directory.
    pub fn backup(&self, to: impl AsRef<Path>) -> Result<BackupReport, BackupFailure> {
        refuse_on_worker()?;
        let Some((durable, _)) = &self.durable else {
            return Err(Abort::because(
                AbortReason::Misuse,
                "a database in memory has no files to copy; open it with a path",
            )
            .into());
        };
        // No checkpoint is published meanwhile, so the copy never has to start over.
        let _state = durable.lock_state();
        Ok(backup(Arc::clone(&durable.fs), durable.directory.path(), to.as_ref())?)
    }

    /// Returns the report of the recovery at opening; `None` for a database in memory.
    #[must_use]
    pub fn recovery_report(&self) -> Option<&RecoveryReport> {
        self.durable.as_ref().map(|(durable, _)| &durable.report)
    }

    /// Returns the statistics of the WAL since the database was opened; `None` for a database in memory.
    #[must_use]
    pub fn wal_statistics(&self) -> Option<WalStatistics> {
        let (durable, _) = self.durable.as_ref()?;
        Some(WalStatistics {
            bytes: durable.wal.bytes(),
            syncs: durable.wal.frames(),
            durable_epoch: durable.wal.durable().0,
        })
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
        Closing { adaptive, adapting, runtime, durable: self.durable.take() }.close(deadline)
    }
}

/// Returns the abort for a request that a worker did not accept.
fn not_accepted<F>(error: &SubmitError<F>) -> Abort {
    match error {
        SubmitError::Full(worker, _) => Abort::explained(
            AbortReason::Overloaded,
            format!("worker {} has as many requests as it takes; try again later", worker.0),
        ),
        SubmitError::Closed(_) | SubmitError::NoSuchWorker(..) => Abort::shutting_down(),
    }
}

/// Reasons for which a backup could not be made. The directory of the copy is not a database then.
#[derive(Debug, thiserror::Error)]
pub enum BackupFailure {
    /// Files could not be copied.
    #[error(transparent)]
    Copy(#[from] BackupError),
    /// The database has no directory.
    #[error(transparent)]
    Refused(#[from] Abort),
}

/// Statistics of the WAL since the database was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalStatistics {
    /// Bytes written, headers included.
    pub bytes: u64,
    /// Times a stream was synced; each sync makes everything durable that was committed before it.
    pub syncs: u64,
    /// The newest durable epoch.
    pub durable_epoch: u64,
}

thread_local! {
    /// True if this thread is a worker of a database. Such a thread must not wait for a database: it could be its own.
    pub(crate) static ON_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Returns the request that runs a procedure on its home, and the future of its outcome.
pub(crate) fn request<R: Send + 'static>(
    procedure: BoxedProcedure<R>,
) -> (impl FnOnce(&Rc<EngineWorker>) + Send + 'static, Submitted<R>) {
    let (sender, receiver) = oneshot();
    let request = move |worker: &Rc<EngineWorker>| {
        let own = Rc::clone(worker);
        worker.spawn(async move { sender.send(run_here(&own, &*procedure).await) });
    };
    (request, Submitted { receiver })
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

/// The outcome of a submitted transaction: a future for any executor, a session included; [`wait`](Submitted::wait) blocks
/// for it.
#[derive(Debug)]
#[must_use = "the outcome is known only to who asks for it"]
pub struct Submitted<R: Send> {
    receiver: Receiver<Result<R, Abort>>,
}

impl<R: Send> Submitted<R> {
    /// Waits for the outcome.
    ///
    /// # Errors
    /// The reason for which the transaction aborted.
    pub fn wait(self) -> Result<R, Abort> {
        refuse_on_worker()?;
        waiting::wait(self.receiver).flatten()
    }
}

impl<R: Send> Future for Submitted<R> {
    type Output = Result<R, Abort>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<R, Abort>> {
        Pin::new(&mut self.receiver)
            .poll(context)
            .map(|outcome| outcome.unwrap_or_else(|_| Err(Abort::shutting_down())))
    }
}

/// A running session.
#[derive(Debug)]
pub struct SessionHandle<R: Send> {
    receiver: Receiver<Result<R, Abort>>,
}

impl<R: Send> SessionHandle<R> {
    /// Waits until the session ends and returns its result.
    ///
    /// # Errors
    /// Fails if the session panicked, or the database was closed before it ended by itself.
    pub fn join(self) -> Result<R, Abort> {
        refuse_on_worker()?;
        self.receiver.wait().unwrap_or_else(|_| Err(Abort::shutting_down()))
    }
}
