//! The database as its users see it: opened from a schema, asked to run procedures, closed.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::Pin;
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
    AnyProcedure, AnyResult, Procedure, Session, result_of, run_here, run_recorded, run_traced,
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
/// Worker threads never wait for a database: on one, in a session or a procedure, what would block refuses. One exception works:
/// a database whose last owner is there may be dropped there. It closes in the background then, and its directory can be
/// opened again when that is done.
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
    /// How long a statement that defines something waits for transactions.
    pub(crate) patience: Duration,
    /// With a directory: what keeps it, and its threads until the database closes.
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

/// What one worker did since the database was opened.
#[derive(Clone, Debug)]
pub struct WorkerReport {
    /// The core it was placed on, if it was placed.
    pub core: Option<usize>,
    /// Its transactions.
    pub transactions: Statistics,
    /// Its steps, messages and busy time.
    pub runtime: WorkerSnapshot,
}

/// What was left when a database was closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloseReport {
    /// Transactions and sessions that had not ended by the deadline and were aborted.
    pub dropped: usize,
    /// Why the directory could not be brought to an orderly end. What was reported as committed is durable all the same,
    /// up to the failure.
    pub failure: Option<String>,
}

impl Database {
    /// Starts collecting the settings of a database with this schema.
    #[must_use]
    pub fn builder(schema: Schema) -> Builder {
        Builder::new(Some(schema))
    }

    /// Opens an existing database with the schema that is stored with it. Tables are then asked for with
    /// [`table`](Database::table); one that has indexes can be changed once these have been asked for as well
    /// ([`index`](Database::index)), because their key functions are code and not stored.
    ///
    /// # Errors
    /// As for [`Builder::open`].
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
    /// The handle of table `T`.
    ///
    /// # Errors
    /// When the database has no such table.
    pub fn table<T: Table>(&self) -> Result<TableRef<T>, SchemaError> {
        self.catalogs.visible().table()
    }

    /// The handle of index `I`.
    ///
    /// # Errors
    /// When the database has no such index.
    pub fn index<I: Index>(&self) -> Result<IndexRef<I>, SchemaError> {
        self.catalogs.visible().index()
    }

    /// The handle of the table with this name, whether or not a program has declared it as types.
    ///
    /// # Errors
    /// When the database has no such table.
    pub fn table_named(&self, name: &str) -> Result<TableHandle, SchemaError> {
        self.catalogs.visible().table_named(name)
    }

    /// The handle of the index with this name, whether or not a program has declared it as types.
    ///
    /// # Errors
    /// When the database has no such index.
    pub fn index_named(&self, name: &str) -> Result<IndexHandle, SchemaError> {
        self.catalogs.visible().index_named(name)
    }

    /// Names of all tables and indexes, in the order of their numbers.
    pub fn table_names(&self) -> impl Iterator<Item = (TableId, &'static str)> + use<> {
        let catalog = self.catalogs.visible();
        catalog.live().map(|(table, meta)| (table, meta.name)).collect::<Vec<_>>().into_iter()
    }

    /// The columns of a table, those of its key included; none for an index or a number that names no table.
    #[must_use]
    pub fn columns(&self, table: TableId) -> Vec<ColumnDef> {
        let catalog = self.catalogs.visible();
        catalog.definitions.table(table.0).map_or_else(Vec::new, |table| table.columns.clone())
    }

    /// What exists, as data. A family is cut at the keys that are there when the database is new; see
    /// [`scheme`](Database::scheme) for today's.
    #[must_use]
    pub fn definitions(&self) -> Definitions {
        self.catalogs.visible().definitions.clone()
    }

    /// The declared dependencies between tables.
    #[must_use]
    pub fn dependencies(&self) -> Vec<Dependency> {
        self.catalogs.visible().dependencies.clone()
    }

    /// Number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.stats.len()
    }

    /// Today's partitioning and placement.
    #[must_use]
    pub fn scheme(&self) -> Arc<Scheme> {
        self.adaptive.published().scheme()
    }

    /// What did not go as asked without stopping anything: a core that could not be pinned to, memory that could not be
    /// placed. One sentence each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let pinning = self.runtime.iter().flat_map(|runtime| runtime.warnings().iter().cloned());
        let memory = self.chunks.warnings();
        let checkpoint = self.durable.as_ref().and_then(|(durable, _)| durable.wal.warning());
        pinning.chain(memory.iter().map(ToString::to_string)).chain(checkpoint).collect()
    }

    /// Changes partitioning and placement while transactions go on: one partition at a time is split, merged or moved, in the
    /// order given. Nothing aborts because of it. On a database that [adapts itself](Builder::adaptation) the
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

    /// What the database has decided about its partitioning and placement since it was opened, decisions not to act included;
    /// the oldest first, and the oldest of very many forgotten.
    #[must_use]
    pub fn adaptation_history(&self) -> Vec<AdaptationEvent> {
        self.adaptive.history()
    }

    /// What the workers have observed since this was asked last, or since the controller last looked: the cost of actions by
    /// sub-partition and the synchronization points, as a trace that can be planned from anywhere.
    ///
    /// # Errors
    /// When the database [does not observe itself](Builder::fixed_scheme), or is shutting down.
    pub fn workload_trace(&self) -> Result<atrapos_adapt::WorkloadTrace, Abort> {
        refuse_on_worker()?;
        self.adaptive.trace()
    }

    /// Takes a worker out of use: all it owns goes to the others, before this returns. Its thread goes on, so sessions that
    /// live there do too, and reach their data elsewhere.
    ///
    /// # Errors
    /// When there is no such worker, or no other that may own data.
    pub fn retire_worker(&self, worker: WorkerId) -> Result<RepartitionReport, Abort> {
        refuse_on_worker()?;
        self.adaptive.retire(worker)
    }

    /// Brings a retired worker back, on core `core`, and returns which one it is. It is given data again when the database next
    /// adapts itself; one with a [fixed scheme](Builder::fixed_scheme) is repartitioned [by hand](Database::repartition).
    ///
    /// # Errors
    /// When no worker has retired.
    pub fn add_worker(&self, core: usize) -> Result<WorkerId, Abort> {
        refuse_on_worker()?;
        self.adaptive.add(core)
    }

    /// Which workers may own data: all but those that [retired](Database::retire_worker) or lost their core.
    #[must_use]
    pub fn available_workers(&self) -> Vec<bool> {
        self.adaptive.available()
    }

    /// Keeps the scheme as it is.
    pub(crate) fn keep_scheme(&self) -> MutexGuard<'_, ()> {
        self.adaptive.keep_scheme()
    }

    fn home(&self, route: &Route) -> WorkerId {
        self.adaptive.published().home(route, self.workers())
    }

    /// Runs a procedure as a transaction at the home its route names, and waits for the outcome. When the worker is
    /// overloaded the caller waits its turn.
    ///
    /// # Errors
    /// The reason for which the transaction aborted.
    pub fn run<R: Send + 'static>(&self, route: Route, procedure: impl Procedure<R>) -> Result<R, Abort> {
        self.run_any(&route, AnyProcedure::new(procedure)).map(result_of)
    }

    /// [`run`](Database::run) for a procedure whose type was forgotten.
    ///
    /// # Errors
    /// As [`run`](Database::run).
    pub fn run_any(&self, route: &Route, procedure: AnyProcedure) -> Result<AnyResult, Abort> {
        refuse_on_worker()?;
        wait(self.submit_any(route, procedure)?)
    }

    /// Hands a procedure to its home and returns a future of the outcome, which a session may await as well. When the worker
    /// is overloaded the caller waits its turn (it does not spin); on a worker's thread, which others may wait for, it is
    /// refused.
    ///
    /// # Errors
    /// When the database is shutting down; on a worker's thread [`AbortReason::Overloaded`] as well.
    pub fn submit<R: Send + 'static>(
        &self,
        route: Route,
        procedure: impl Procedure<R>,
    ) -> Result<Submitted<R>, Abort> {
        self.submit_any(&route, AnyProcedure::new(procedure)).map(Submitted::of)
    }

    /// Like [`submit`](Database::submit), but refuses at once when the worker is overloaded.
    ///
    /// # Errors
    /// [`AbortReason::Overloaded`]: try again later. [`AbortReason::ShuttingDown`]: open the database again.
    pub fn try_submit<R: Send + 'static>(
        &self,
        route: Route,
        procedure: impl Procedure<R>,
    ) -> Result<Submitted<R>, Abort> {
        let (request, outcome) = request(AnyProcedure::new(procedure));
        self.handle.try_submit(self.home(&route), request).map_err(|error| not_accepted(&error))?;
        Ok(Submitted::of(outcome))
    }

    fn submit_any(&self, route: &Route, procedure: AnyProcedure) -> Result<Outcome, Abort> {
        let (request, outcome) = request(procedure);
        self.hand_over(self.home(route), request)?;
        Ok(outcome)
    }

    /// Hands a request to a worker. While its inbox is full the caller waits, unless this is a worker's thread, of whatever
    /// database: the two could wait for each other.
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

    /// Runs a procedure like [`run`](Database::run) and also returns what happened to it, stage by stage. For people who
    /// want to look; it is slower, and a deadlock is not retried.
    ///
    /// # Errors
    /// When the database is shutting down.
    pub fn run_traced<R: Send + 'static>(
        &self,
        route: Route,
        procedure: impl Procedure<R>,
    ) -> Result<(Result<R, Abort>, Vec<TraceEvent>), Abort> {
        let (outcome, events) = self.run_any_traced(&route, AnyProcedure::new(procedure))?;
        Ok((outcome.map(result_of), events))
    }

    fn run_any_traced(
        &self,
        route: &Route,
        procedure: AnyProcedure,
    ) -> Result<(Result<AnyResult, Abort>, Vec<TraceEvent>), Abort> {
        self.on_worker_async(self.home(route), async move |worker: Rc<EngineWorker>| {
            run_traced(&worker, procedure.erased()).await
        })
    }

    /// Runs a procedure like [`run`](Database::run) and also returns what it has accessed, for a
    /// [`ClassRecording`](crate::ClassRecording). For learning about procedures: it is slower, and a deadlock is not retried.
    ///
    /// # Errors
    /// [`AbortReason::Misuse`] when the database has more than one worker, or when a lock of another transaction conflicted;
    /// [`AbortReason::ShuttingDown`].
    pub fn record<R: Send + 'static>(
        &self,
        route: Route,
        procedure: impl Procedure<R>,
    ) -> Result<(Result<R, Abort>, RecordedRun), Abort> {
        let (outcome, run) = self.record_any(&route, AnyProcedure::new(procedure))?;
        Ok((outcome.map(result_of), run))
    }

    /// [`record`](Database::record) for a procedure whose type was forgotten.
    ///
    /// # Errors
    /// As [`record`](Database::record).
    pub fn record_any(
        &self,
        route: &Route,
        procedure: AnyProcedure,
    ) -> Result<(Result<AnyResult, Abort>, RecordedRun), Abort> {
        if self.workers() > 1 {
            return Err(Abort::because(
                AbortReason::Misuse,
                "accesses are recorded on a single worker, since what they are does not depend on where the data is; open a \
                 database of one worker to record",
            ));
        }
        let recorded = self.on_worker_async(self.home(route), async move |worker: Rc<EngineWorker>| {
            run_recorded(&worker, procedure.erased()).await
        })?;
        if recorded.1.is_complete() {
            return Ok(recorded);
        }
        Err(Abort::because(
            AbortReason::Misuse,
            "a lock of another transaction conflicted with the recorded one; record while nothing else runs",
        ))
    }

    /// Starts a session on a worker: a client that lives there and runs transactions one after the other. The result of
    /// `body` is the session's result; a panic ends the session and nothing else. What a session may await is said at
    /// [`Session`].
    ///
    /// # Errors
    /// When the database is shutting down; on a worker's thread [`AbortReason::Overloaded`] as well.
    pub fn spawn_session<R: Send + 'static>(
        &self,
        worker: WorkerId,
        body: impl AsyncFnOnce(Session) -> R + Send + 'static,
    ) -> Result<SessionHandle<R>, Abort> {
        let start: SessionBody =
            Box::new(move |session| Box::pin(async move { Box::new(body(session).await) as AnyResult }));
        self.start_session(worker, start).map(|receiver| SessionHandle { receiver, result: PhantomData })
    }

    fn start_session(&self, worker: WorkerId, body: SessionBody) -> Result<Outcome, Abort> {
        let (sender, receiver) = oneshot();
        let start = move |worker: &Rc<EngineWorker>| {
            let mut body = body(Session::new(Rc::clone(worker)));
            worker.spawn(async move {
                let ended = poll_fn(|context| {
                    // A panic of the session's is the session's, not the worker's.
                    match catch_unwind(AssertUnwindSafe(|| body.as_mut().poll(context))) {
                        Ok(polled) => polled.map(Ok),
                        Err(panic) => Poll::Ready(Err(panicked_in("session", panic.as_ref()))),
                    }
                })
                .await;
                // Before its end is told, as if it had never been in a box.
                drop(body);
                sender.send(ended);
            });
        };
        self.hand_over(WorkerId(worker.0 % self.workers() as u16), start)?;
        Ok(receiver)
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

    /// What happened since the database was opened, over all workers.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.stats.iter().fold(Statistics::default(), |sum, stats| sum.plus(&stats.read()))
    }

    /// What each worker did since the database was opened.
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

    /// Number of rows of a table, or of entries of an index.
    ///
    /// # Errors
    /// When the database is shutting down.
    pub fn len(&self, table: TableId) -> Result<u64, Abort> {
        let _scheme = self.keep_scheme();
        self.settle()?;
        self.count(table)
    }

    /// Number of rows or entries, for a caller that keeps the scheme and has let everything settle.
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

    /// Memory the trees have taken from the operating system, in bytes.
    ///
    /// # Errors
    /// When the database is shutting down.
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

    /// Waits until every message that one worker has sent to another so far has arrived: the ends of transactions
    /// that were reported, above all.
    pub(crate) fn settle(&self) -> Result<(), Abort> {
        refuse_on_worker()?;
        settle(&self.handle)
    }

    /// Makes a checkpoint while transactions go on, and returns when it is on disk: the next opening begins with it.
    ///
    /// # Errors
    /// When files cannot be written (the database goes on with the checkpoint before), or the database has no directory.
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

    /// Copies the database to the directory `to`, which must be empty or not exist, while transactions go on. Everything that
    /// was reported as committed before the call is in the copy; open it like any database.
    ///
    /// # Errors
    /// When files cannot be read or written, `to` is in use, or the database has no directory.
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

    /// What opening the database brought back; nothing for a database in memory.
    #[must_use]
    pub fn recovery_report(&self) -> Option<&RecoveryReport> {
        self.durable.as_ref().map(|(durable, _)| &durable.report)
    }

    /// What the WAL has done since the database was opened; nothing for a database in memory.
    #[must_use]
    pub fn wal_statistics(&self) -> Option<WalStatistics> {
        let (durable, _) = self.durable.as_ref()?;
        Some(WalStatistics {
            bytes: durable.wal.bytes(),
            syncs: durable.wal.frames(),
            durable_epoch: durable.wal.durable().0,
        })
    }

    /// The directory and state of a database that has one.
    pub(crate) fn durable(&self) -> Option<&Durable> {
        self.durable.as_ref().map(|(durable, _)| &**durable)
    }

    /// Closes the database: refuses new work, completes what is under way, stops the workers. What has not ended after
    /// `deadline` (a session that goes on for ever, for example) is aborted. Whatever the database is doing itself meanwhile
    /// (a checkpoint, a change of the scheme) is given up; only what has been reported as committed is made durable first,
    /// however long the device takes for it. On a worker's thread it returns at once, and the database closes in the background.
    pub fn close(mut self, deadline: Duration) -> CloseReport {
        self.shut_down(deadline)
    }

    fn shut_down(&mut self, deadline: Duration) -> CloseReport {
        let Some(runtime) = self.runtime.take() else { return CloseReport::default() };
        let (adaptive, adapting) = (Arc::clone(&self.adaptive), self.adapting.take());
        Closing { adaptive, adapting, runtime, durable: self.durable.take() }.close(deadline)
    }
}

/// Why a worker did not accept a request.
fn not_accepted<F>(error: &SubmitError<F>) -> Abort {
    match error {
        SubmitError::Full(worker, _) => Abort::explained(
            AbortReason::Overloaded,
            format!("worker {} has as many requests as it takes; try again later", worker.0),
        ),
        SubmitError::Closed(_) | SubmitError::NoSuchWorker(..) => Abort::shutting_down(),
    }
}

/// Why a backup could not be made. What is at its place is not a database.
#[derive(Debug, thiserror::Error)]
pub enum BackupFailure {
    /// Files could not be copied.
    #[error(transparent)]
    Copy(#[from] BackupError),
    /// The database has no directory.
    #[error(transparent)]
    Refused(#[from] Abort),
}

/// What the WAL of a database has done since it was opened.
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
    /// Whether this thread is a worker of a database. One that waited for a database would keep it, or another, waiting.
    pub(crate) static ON_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// The request that runs a procedure on its home, and the future of its outcome.
pub(crate) fn request(procedure: AnyProcedure) -> (impl FnOnce(&Rc<EngineWorker>) + Send + 'static, Outcome) {
    let (sender, receiver) = oneshot();
    let request = move |worker: &Rc<EngineWorker>| {
        let own = Rc::clone(worker);
        worker.spawn(async move { sender.send(run_here(&own, procedure.erased()).await) });
    };
    (request, receiver)
}

/// What a session does, with the types of its future and of its result forgotten.
type SessionBody = Box<dyn FnOnce(Session) -> Pin<Box<dyn Future<Output = AnyResult>>> + Send>;

/// What will have become of a transaction that was handed over, or of a session.
type Outcome = Receiver<Result<AnyResult, Abort>>;

/// Waits for an outcome.
pub(crate) fn wait(outcome: Outcome) -> Result<AnyResult, Abort> {
    waiting::wait(outcome).flatten()
}

/// Refuses to block a worker's thread.
pub(crate) fn refuse_on_worker() -> Result<(), Abort> {
    if !ON_WORKER.get() {
        return Ok(());
    }
    Err(Abort::because(
        AbortReason::Misuse,
        "a worker's thread cannot wait for a database; use the transaction or session at hand, or another thread",
    ))
}

/// How long a database that is dropped without being closed completes what is under way.
const DROP_DEADLINE: Duration = Duration::from_secs(5);

impl Drop for Database {
    fn drop(&mut self) {
        self.shut_down(DROP_DEADLINE);
    }
}

/// The outcome of a transaction that was handed over: a future for any executor, a session included, or to be waited for.
#[derive(Debug)]
#[must_use = "the outcome is known only to who asks for it"]
pub struct Submitted<R: Send + 'static> {
    receiver: Outcome,
    result: PhantomData<fn() -> R>,
}

impl<R: Send + 'static> Submitted<R> {
    fn of(receiver: Outcome) -> Submitted<R> {
        Submitted { receiver, result: PhantomData }
    }

    /// Waits for the outcome.
    ///
    /// # Errors
    /// The reason for which the transaction aborted.
    pub fn wait(self) -> Result<R, Abort> {
        refuse_on_worker()?;
        wait(self.receiver).map(result_of)
    }
}

impl<R: Send + 'static> Future for Submitted<R> {
    type Output = Result<R, Abort>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<R, Abort>> {
        Pin::new(&mut self.receiver)
            .poll(context)
            .map(|outcome| outcome.unwrap_or_else(|_| Err(Abort::shutting_down())).map(result_of))
    }
}

/// A running session.
#[derive(Debug)]
pub struct SessionHandle<R: Send + 'static> {
    receiver: Outcome,
    result: PhantomData<fn() -> R>,
}

impl<R: Send + 'static> SessionHandle<R> {
    /// Waits until the session ends and returns its result.
    ///
    /// # Errors
    /// When the session panicked, or the database was closed before it ended by itself.
    pub fn join(self) -> Result<R, Abort> {
        refuse_on_worker()?;
        wait(self.receiver).map(result_of)
    }
}
