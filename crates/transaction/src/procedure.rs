//! Execution of procedures: on the current worker, on the home from another worker, and again after a deadlock or when
//! the WAL had no room for their records.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use atrapos_durability::wal::Epoch;
use atrapos_partition::abort::{Abort, AbortReason, Advice};
use atrapos_partition::action::panicked;
use atrapos_partition::dynamic::{IndexHandle, TableHandle};
use atrapos_partition::routing::{Destination, InstanceId, Route};
use atrapos_partition::schema::{Index, IndexRef, SchemaError, Table, TableRef};
use atrapos_runtime::{Lost, Reply, WorkerId};
use atrapos_storage::{Key, Position};

use crate::distributed::coordinator::decide;
use crate::lookups::{LookupTicket, RouteHint};
use crate::messages::{call_procedure, call_stored};
use crate::recording::{RecordedRun, Recorder};
use crate::shard::EngineWorker;
use crate::stored::StoredProcedure;
use crate::trace::{Stage, TraceEvent};
use crate::tx::{Tx, TxnGuard, TxnState, UNDECIDED, attempt};

/// The number of attempts of a transaction that is the victim of deadlocks, before the abort is returned to its caller.
/// A retried transaction is older than all that begin after it, so it loses only to those that were under way, though
/// repeatedly where hundreds request the same rows. A new transaction by the caller would lose the age.
const ATTEMPTS: u32 = 1024;

/// A stored procedure: an async closure over a transaction. It may run more than once (after a deadlock) and, from
/// another thread, is sent to the transaction's home: so it owns what it captures.
pub trait Procedure<R>: AsyncFn(&mut Tx<'_>) -> Result<R, Abort> + Send + 'static {}

impl<R, P: AsyncFn(&mut Tx<'_>) -> Result<R, Abort> + Send + 'static> Procedure<R> for P {}

/// The result of a procedure, of whatever type.
pub type AnyResult = Box<dyn Any + Send>;

/// A future of a result of whatever type.
pub(crate) type AnyFuture<'a> = Pin<Box<dyn Future<Output = Result<AnyResult, Abort>> + 'a>>;

/// A procedure whose type is erased, with that of its result: all code but the paths that every transaction takes is
/// compiled once for such procedures, not once for each.
pub trait ErasedProcedure {
    /// Runs it once. The future is on the heap, and so is the result.
    fn call<'a>(&'a self, tx: &'a mut Tx<'_>) -> AnyFuture<'a>;
}

/// A procedure, or a reference to one, whose result goes in a box.
struct Erased<P, R>(P, PhantomData<fn() -> R>);

impl<R: Send + 'static, P: AsyncFn(&mut Tx<'_>) -> Result<R, Abort>> ErasedProcedure for Erased<P, R> {
    fn call<'a>(&'a self, tx: &'a mut Tx<'_>) -> AnyFuture<'a> {
        Box::pin(async move { (self.0)(tx).await.map(|result| -> AnyResult { Box::new(result) }) })
    }
}

/// A procedure as a session runs it: called where it is, as often as that takes, and sent only if its home is elsewhere.
trait Runnable<R> {
    /// Runs it once.
    fn call<'t>(&'t self, tx: &'t mut Tx<'_>) -> impl Future<Output = Result<R, Abort>>;

    /// Returns the procedure, to be sent to its home.
    fn into_procedure(self) -> impl Procedure<R>;
}

/// A procedure that the session is given.
struct Given<P>(P);

impl<R, P: Procedure<R>> Runnable<R> for Given<P> {
    #[inline(always)]
    fn call<'t>(&'t self, tx: &'t mut Tx<'_>) -> impl Future<Output = Result<R, Abort>> {
        (self.0)(tx)
    }

    fn into_procedure(self) -> impl Procedure<R> {
        self.0
    }
}

/// A stored procedure that stays with the caller: its arguments are copied only if it is sent.
struct Lent<'a, P: StoredProcedure> {
    procedure: &'a P,
    tables: &'a P::Tables,
}

impl<P: StoredProcedure> Runnable<P::Result> for Lent<'_, P> {
    #[inline(always)]
    async fn call<'t>(&'t self, tx: &'t mut Tx<'_>) -> Result<P::Result, Abort> {
        // Called when the future is polled: a panic before it has made its own is caught like any other.
        self.procedure.run(tx, self.tables).await
    }

    fn into_procedure(self) -> impl Procedure<P::Result> {
        self.procedure.clone().into_closure(*self.tables)
    }
}

/// A procedure that a session runs again, whose result goes in a box.
struct Again<'a, X, R>(&'a X, PhantomData<fn() -> R>);

impl<R: Send + 'static, X: Runnable<R>> ErasedProcedure for Again<'_, X, R> {
    fn call<'a>(&'a self, tx: &'a mut Tx<'_>) -> AnyFuture<'a> {
        Box::pin(async move { self.0.call(tx).await.map(|result| -> AnyResult { Box::new(result) }) })
    }
}

/// Unboxes a result.
pub fn result_of<R: 'static>(result: AnyResult) -> R {
    *result.downcast().expect("a procedure returns what its type says")
}

/// A procedure whose type is erased: it is boxed, and so are its future and its result each time it runs. In return the
/// code that runs it is compiled once for all procedures.
pub struct AnyProcedure(Box<dyn ErasedProcedure + Send>);

impl AnyProcedure {
    /// Erases the type of a procedure.
    #[must_use]
    pub fn new<R: Send + 'static>(procedure: impl Procedure<R>) -> AnyProcedure {
        AnyProcedure(Box::new(Erased(procedure, PhantomData)))
    }

    /// The procedure, to be called.
    #[doc(hidden)]
    #[must_use]
    pub fn erased(&self) -> &dyn ErasedProcedure {
        &*self.0
    }
}

impl std::fmt::Debug for AnyProcedure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AnyProcedure").finish_non_exhaustive()
    }
}

/// Runs a procedure as a transaction with its home on this worker, and again if it is the victim of a deadlock.
pub async fn run_here(
    worker: &Rc<EngineWorker>,
    procedure: &dyn ErasedProcedure,
) -> Result<AnyResult, Abort> {
    match call_to_end(TxnGuard::begin(worker), procedure).await {
        Err(abort) if abort.reason().advice() == Advice::Retry => run_again(worker, procedure, abort).await,
        outcome => outcome,
    }
}

/// Polls a procedure whose type is erased until it ends, and ends its transaction accordingly.
async fn call_to_end(guard: TxnGuard<'_>, procedure: &dyn ErasedProcedure) -> Result<AnyResult, Abort> {
    poll_apart_to_end(guard, &async |tx| procedure.call(tx).await, None).await
}

/// Retries a procedure whose first attempt has just ended with `abort`, until it ends otherwise or the attempts are
/// used up.
#[cold]
fn run_again<'a>(
    worker: &'a Rc<EngineWorker>,
    procedure: &'a dyn ErasedProcedure,
    abort: Abort,
) -> AnyFuture<'a> {
    Box::pin(attempt_again(worker, procedure, abort))
}

async fn attempt_again(
    worker: &Rc<EngineWorker>,
    procedure: &dyn ErasedProcedure,
    mut abort: Abort,
) -> Result<AnyResult, Abort> {
    // Read before another transaction can abort. The transaction keeps its seniority through all attempts.
    let age = worker.shard().aborted_age.get();
    for _ in 1..ATTEMPTS {
        if worker.is_stopping() {
            break;
        }
        worker.shard().stats.retried.add(1);
        // The transactions it waited for run first.
        yield_once(worker).await;
        if abort.reason() == AbortReason::Overloaded
            && let Some(commit_waiters) = &worker.shard().commit_waiters
        {
            // It holds no locks meanwhile, and other transactions go on.
            commit_waiters.wait_for_room(worker).await?;
        }
        let guard = TxnGuard::begin(worker);
        guard.state().age.set(age);
        match call_to_end(guard, procedure).await {
            Err(again) if again.reason().advice() == Advice::Retry => abort = again,
            outcome => return outcome,
        }
    }
    Err(abort)
}

/// Lets other ready tasks run.
async fn yield_once(worker: &EngineWorker) {
    let mut yielded = false;
    poll_fn(|_| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        worker.wake(worker.current_task());
        Poll::Pending
    })
    .await;
}

/// Polls a procedure until it ends, and ends its transaction accordingly: the outcome is there when it is durable, or, with
/// `early`, at once, and the epoch to wait for is noted there. The procedure becomes a part of the caller's code:
/// the path that every transaction of a session takes on its own worker.
///
/// It is no `async fn`, and the outcome leaves through a variable of the caller: what an `async fn` is given is copied when it is
/// first polled, and a result is copied once more on its way. Each of these copies waits for the stores before it.
#[inline]
#[expect(clippy::manual_async_fn, reason = "as said above")]
fn poll_to_end<'a, R>(
    guard: TxnGuard<'a>,
    procedure: &'a impl Runnable<R>,
    routed: Option<&'a RouteHint<'_>>,
    early: Option<&'a Cell<Epoch>>,
    outcome: &'a mut Result<R, Abort>,
) -> impl Future<Output = ()> {
    async move {
        let worker = guard.worker();
        {
            let state = guard.state();
            let mut tx = Tx::new(worker, state, routed);
            let mut running = pin!(procedure.call(&mut tx));
            poll_fn(|context| poll_once(worker, state, running.as_mut(), outcome, context)).await;
        }
        let wait_epoch = guard.finish(outcome);
        if wait_epoch > Epoch(0) && needs_more(worker, wait_epoch, early) {
            complete(worker, wait_epoch, early, outcome).await;
        }
    }
}

/// Polls a procedure like [`poll_to_end`], on all other paths: only its own future is compiled for the procedure, and polled by
/// its address.
async fn poll_apart_to_end<R>(
    guard: TxnGuard<'_>,
    procedure: &impl AsyncFn(&mut Tx<'_>) -> Result<R, Abort>,
    early: Option<&Cell<Epoch>>,
) -> Result<R, Abort> {
    let mut outcome = Err(Abort::UNFINISHED);
    let worker = guard.worker();
    {
        let state = guard.state();
        let mut tx = Tx::new(worker, state, None);
        let running = pin!(procedure(&mut tx));
        poll_apart(worker, state, running, &mut outcome).await;
    }
    let wait_epoch = guard.finish(&mut outcome);
    if wait_epoch > Epoch(0) && needs_more(worker, wait_epoch, early) {
        complete(worker, wait_epoch, early, &mut outcome).await;
    }
    outcome
}

async fn poll_apart<R>(
    worker: &Rc<EngineWorker>,
    state: &Rc<TxnState>,
    mut running: Pin<&mut (dyn Future<Output = Result<R, Abort>> + '_)>,
    outcome: &mut Result<R, Abort>,
) {
    poll_fn(|context| poll_once(worker, state, running.as_mut(), outcome, context)).await;
}

/// Polls a procedure. Ready when it has ended, of itself or because it panicked or awaited what it may not.
#[inline(always)]
fn poll_once<R>(
    worker: &Rc<EngineWorker>,
    state: &Rc<TxnState>,
    running: Pin<&mut (impl Future<Output = Result<R, Abort>> + ?Sized)>,
    outcome: &mut Result<R, Abort>,
    context: &mut Context<'_>,
) -> Poll<()> {
    worker.shard().monitor.begins(worker);
    state.home.borrow_mut().suspended = false;
    // The outcome leaves through a variable of the caller: as the result of each closure it would be copied again.
    let poll = || match running.poll(context) {
        Poll::Ready(ended) => {
            *outcome = ended;
            true
        }
        Poll::Pending => false,
    };
    match catch_unwind(AssertUnwindSafe(poll)) {
        Ok(true) => return Poll::Ready(()),
        Ok(false) => match state.on_suspend(worker) {
            Ok(()) => return Poll::Pending,
            Err(misuse) => *outcome = Err(misuse),
        },
        Err(panic) => *outcome = Err(panicked(panic.as_ref())),
    }
    Poll::Ready(())
}

/// Notes the epoch for a caller who wants the outcome before it is durable; returns false if there is none.
#[inline(always)]
fn is_told_early(early: Option<&Cell<Epoch>>, wait_epoch: Epoch) -> bool {
    early.inspect(|told| told.set(told.get().max(wait_epoch))).is_some()
}

/// Returns true if the outcome of a transaction that depends on `wait_epoch` may be told at once.
fn may_tell(worker: &EngineWorker, wait_epoch: Epoch) -> bool {
    worker.shard().commit_waiters.as_ref().is_none_or(|waiters| waiters.may_tell(worker, wait_epoch))
}

/// Returns true if a transaction that has to wait for an epoch is not complete for its caller: it may not be told yet, or
/// is not decided.
#[inline(always)]
fn needs_more(worker: &EngineWorker, wait_epoch: Epoch, early: Option<&Cell<Epoch>>) -> bool {
    wait_epoch == UNDECIDED || (!is_told_early(early, wait_epoch) && !may_tell(worker, wait_epoch))
}

/// Decides a transaction that is not decided, and waits until its outcome may be told.
async fn complete<R>(
    worker: &Rc<EngineWorker>,
    mut wait_epoch: Epoch,
    early: Option<&Cell<Epoch>>,
    outcome: &mut Result<R, Abort>,
) {
    if wait_epoch == UNDECIDED {
        let (epoch, decided) = decide(worker, outcome.as_ref().err().cloned()).await;
        wait_epoch = epoch;
        if let Err(abort) = decided {
            *outcome = Err(abort);
        }
        if wait_epoch == Epoch(0) || !needs_more(worker, wait_epoch, early) {
            return;
        }
    }
    wait_until_durable(worker, wait_epoch, outcome).await;
}

/// Waits until the outcome of a transaction may be told.
async fn wait_until_durable<R>(worker: &Rc<EngineWorker>, wait_epoch: Epoch, outcome: &mut Result<R, Abort>) {
    if let Some(commit_waiters) = &worker.shard().commit_waiters
        && !commit_waiters.is_durable(wait_epoch)
        && !matches!(outcome, Err(abort) if abort.reason().advice() == Advice::Retry)
        && let Err(abort) = commit_waiters.wait(worker, wait_epoch).await
    {
        *outcome = Err(abort);
    }
}

/// Runs a procedure here with its trace.
pub async fn run_traced(
    worker: &Rc<EngineWorker>,
    procedure: &dyn ErasedProcedure,
) -> (Result<AnyResult, Abort>, Vec<TraceEvent>) {
    let guard = TxnGuard::begin(worker);
    let events = Rc::default();
    let trace = &guard.state().trace;
    trace.open(Rc::clone(&events));
    trace.event(worker, Stage::Route, || format!("runs on its home, worker {}", worker.id().0));
    let outcome = call_to_end(guard, procedure).await;
    (outcome, events.take())
}

/// Runs a procedure here and records what it accesses.
pub async fn run_recorded(
    worker: &Rc<EngineWorker>,
    procedure: &dyn ErasedProcedure,
) -> (Result<AnyResult, Abort>, RecordedRun) {
    let guard = TxnGuard::begin(worker);
    let recorder = Rc::new(RefCell::new(Recorder::default()));
    guard.state().trace.record(Rc::clone(&recorder));
    let outcome = call_to_end(guard, procedure).await;
    let run = recorder.take().finish(worker.shard().tag, outcome.is_err());
    (outcome, run)
}

/// The outcome of a procedure on another worker, and, if its caller did not ask for it to be durable by then, the epoch to wait
/// for.
pub(crate) type ProcedureReply<R> = (Result<R, Abort>, Epoch);

/// Runs a procedure here, as a task of its own, for a caller on another worker, who wants the outcome before it is durable if
/// `is_early`.
pub(crate) fn on_procedure<R: Send + 'static>(
    worker: &Rc<EngineWorker>,
    procedure: impl Procedure<R>,
    is_early: bool,
    reply: Reply<ProcedureReply<R>>,
) {
    let own = Rc::clone(worker);
    worker.spawn(async move {
        let told = Cell::new(Epoch(0));
        let early = is_early.then_some(&told);
        let outcome = match poll_apart_to_end(TxnGuard::begin(&own), &procedure, early).await {
            Err(abort) if abort.reason().advice() == Advice::Retry => {
                run_again(&own, &Erased(&procedure, PhantomData), abort).await.map(result_of)
            }
            outcome => outcome,
        };
        reply.send(&own, (outcome, told.get()));
    });
}

/// Runs a stored procedure here like [`on_procedure`]. Its key is looked up together with those of others.
pub(crate) fn on_stored<P: StoredProcedure>(
    worker: &Rc<EngineWorker>,
    procedure: P,
    tables: P::Tables,
    is_early: bool,
    reply: Reply<ProcedureReply<P::Result>>,
) {
    let own = Rc::clone(worker);
    worker.spawn(async move {
        let session = Session::new(own);
        session.set_pipelined(is_early);
        let route = procedure.home(&tables);
        let mut start = session.start(&route);
        if let Some(ticket) = start.ticket {
            let position = session.worker.shard().lookups.result(&session.worker, ticket).await;
            session.resume(&mut start, ticket, position);
        }
        // A home that no longer owns the key runs it all the same.
        let outcome = session.run_stored_here::<P, true>(start.routed, &tables, &procedure).await;
        reply.send(&session.worker, (outcome, session.told.get()));
    });
}

/// A long-lived client that lives on a worker: it runs one transaction after the other without leaving the worker's
/// thread, except for those whose home is another worker. Get one with `Database::spawn_session`.
///
/// # Futures in a session
///
/// Between its transactions, a session may await any future: its own operations, the outcome of a submitted
/// transaction, a channel or any other future that is completed by another thread and calls its waker. (A transaction
/// awaits its own operations only.) A future that needs an executor of its own, such as a socket or timer of an
/// asynchronous runtime, needs that runtime to run on another thread. A session whose future is never completed ends
/// when the database closes.
///
/// The session's own operations wake the session as a whole, not the waker they are polled with: of several futures
/// at once, poll all (as `join!` and `select!` do), not only those whose own waker was called (as `FuturesUnordered` does).
///
/// Dropping an operation that is under way aborts its transaction, unless its outcome was decided already.
pub struct Session {
    worker: Rc<EngineWorker>,
    /// True if outcomes are returned before they are durable.
    is_pipelined: Cell<bool>,
    /// The epoch that has to be durable for the outcomes that were returned before they were, since the last ticket.
    told: Cell<Epoch>,
}

/// The right to be told when transactions of a [pipelined](Session::set_pipelined) session are durable: those that were returned
/// between the ticket before it and this one. Eight bytes, and nothing is kept in the database for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[must_use = "a transaction of a pipelined session may be acknowledged only when its ticket is"]
pub struct CommitTicket(Epoch);

/// The home that a route leads to.
struct RouteStart<'a> {
    home: WorkerId,
    /// The key that the route names, if its look-up is deferred and the home is this worker.
    routed: Option<RouteHint<'a>>,
    /// The look-up of that key, if it is deferred.
    ticket: Option<LookupTicket>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("worker", &self.worker.id()).finish_non_exhaustive()
    }
}

impl Session {
    /// Creates a session on this worker.
    #[doc(hidden)]
    pub fn new(worker: Rc<EngineWorker>) -> Session {
        Session { worker, is_pipelined: Cell::new(false), told: Cell::new(Epoch(0)) }
    }

    /// Sets whether transactions are pipelined: their outcomes are returned when they have committed, before they are durable,
    /// so that the session runs the next one meanwhile (off at first).
    ///
    /// A crash may take back such a transaction, and with it all that have seen it. So nobody outside may be told of an outcome
    /// before the [ticket](Session::take_ticket) that is taken after it is [acknowledged](Session::acknowledged).
    pub fn set_pipelined(&self, pipelined: bool) {
        self.is_pipelined.set(pipelined);
    }

    /// Returns the ticket of the outcomes that were returned to this session since the last one was taken.
    #[inline]
    pub fn take_ticket(&self) -> CommitTicket {
        CommitTicket(self.told.replace(Epoch(0)))
    }

    /// Returns true if the outcomes that a ticket stands for may be acknowledged now.
    #[inline]
    #[must_use]
    pub fn is_acknowledged(&self, ticket: CommitTicket) -> bool {
        let waiters = &self.worker.shard().commit_waiters;
        waiters.as_ref().is_none_or(|waiters| waiters.may_tell(&self.worker, ticket.0))
    }

    /// Waits until the outcomes that a ticket stands for may be acknowledged.
    ///
    /// # Errors
    /// [`AbortReason::NotDurable`]: the WAL has failed, and it is not known which of the outcomes survive.
    pub async fn acknowledged(&self, ticket: CommitTicket) -> Result<(), Abort> {
        match &self.worker.shard().commit_waiters {
            Some(waiters) => waiters.wait(&self.worker, ticket.0).await,
            None => Ok(()),
        }
    }

    /// The worker the session lives on.
    #[must_use]
    pub fn worker(&self) -> WorkerId {
        self.worker.id()
    }

    /// Number of workers of the database.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.worker.workers()
    }

    /// Returns true if the database is being closed: a session should end then.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.worker.is_stopping()
    }

    /// The time on the worker's clock, in ticks.
    #[inline]
    #[must_use]
    pub fn now(&self) -> atrapos_runtime::Ticks {
        self.worker.now()
    }

    /// The handle of table `T`.
    ///
    /// # Errors
    /// Fails if the database has no such table.
    pub fn table<T: Table>(&self) -> Result<TableRef<T>, SchemaError> {
        self.worker.shard().published.visible().table()
    }

    /// The handle of index `I`.
    ///
    /// # Errors
    /// Fails if the database has no such index.
    pub fn index<I: Index>(&self) -> Result<IndexRef<I>, SchemaError> {
        self.worker.shard().published.visible().index()
    }

    /// The handle of the table with this name in the session's database.
    ///
    /// # Errors
    /// Fails if the database has no such table.
    pub fn table_named(&self, name: &str) -> Result<TableHandle, SchemaError> {
        self.worker.shard().published.visible().table_named(name)
    }

    /// The handle of the index with this name in the session's database.
    ///
    /// # Errors
    /// Fails if the database has no such index.
    pub fn index_named(&self, name: &str) -> Result<IndexHandle, SchemaError> {
        self.worker.shard().published.visible().index_named(name)
    }

    /// Returns true if the session's worker owns this key of a table.
    #[must_use]
    pub fn owns<T: Table>(&self, table: TableRef<T>, key: &T::Key) -> bool {
        let key = key.encode();
        self.worker.shard().tables.borrow().locate(table.id(), &key).1 == self.worker.id()
    }

    /// Runs a procedure as a transaction: here if the route leads to this worker, otherwise at its home.
    ///
    /// A transaction that was the victim of a deadlock is run again.
    ///
    /// # Errors
    /// The reason for which the transaction aborted.
    #[inline]
    pub fn run<'a, R: Send + 'static>(
        &'a self,
        route: &'a Route,
        procedure: impl Procedure<R>,
    ) -> impl Future<Output = Result<R, Abort>> {
        self.run_runnable(route, Given(procedure))
    }

    /// Runs a stored procedure like [`run`](Session::run). `route` is the way to its home, and `tables` are its handles. The
    /// procedure stays where it is unless its home is elsewhere: the fastest way to run one.
    ///
    /// # Errors
    /// As [`run`](Session::run).
    #[inline]
    #[expect(clippy::manual_async_fn, reason = "an `async fn` copies what it is given, see `poll_to_end`")]
    pub fn run_stored<'a, P: StoredProcedure>(
        &'a self,
        route: &'a Route,
        tables: &'a P::Tables,
        procedure: &'a P,
    ) -> impl Future<Output = Result<P::Result, Abort>> {
        async move {
            let worker = &self.worker;
            let mut start = self.start(route);
            if let Some(ticket) = start.ticket {
                let position = worker.shard().lookups.result(worker, ticket).await;
                self.resume(&mut start, ticket, position);
            }
            if start.home != worker.id() {
                worker.shard().stats.forwarded.add(1);
                let call =
                    call_stored(worker, start.home, procedure.clone(), *tables, self.is_pipelined.get());
                return self.returned(call.await);
            }
            self.run_stored_here::<P, false>(start.routed, tables, procedure).await
        }
    }

    /// Runs a stored procedure on its home, which is here: `APART` in a box if it is no direct transaction, for code that is rare.
    #[inline(always)]
    #[expect(clippy::manual_async_fn, reason = "an `async fn` copies what it is given, see `poll_to_end`")]
    fn run_stored_here<'a, P: StoredProcedure, const APART: bool>(
        &'a self,
        routed: Option<RouteHint<'a>>,
        tables: &'a P::Tables,
        procedure: &'a P,
    ) -> impl Future<Output = Result<P::Result, Abort>> {
        async move {
            let worker = &self.worker;
            let lent = Lent { procedure, tables };
            let mut outcome = Err(Abort::UNFINISHED);
            let attempted = if procedure.stays_home() {
                attempt(worker, procedure, tables, routed.as_ref(), &mut outcome)
            } else {
                None
            };
            match attempted {
                None if APART => self.run_apart(lent, routed.as_ref()).await,
                None => self.run_at_home(lent, routed.as_ref()).await,
                Some(wait_epoch) if wait_epoch == Epoch(0) && outcome.is_ok() => outcome,
                Some(wait_epoch) => {
                    let early = self.is_pipelined.get().then_some(&self.told);
                    if wait_epoch > Epoch(0) && needs_more(worker, wait_epoch, early) {
                        complete(worker, wait_epoch, early, &mut outcome).await;
                    }
                    match outcome {
                        Err(abort) if abort.reason().advice() == Advice::Retry => {
                            run_again(worker, &Again(&lent, PhantomData), abort).await.map(result_of)
                        }
                        outcome => outcome,
                    }
                }
            }
        }
    }

    /// Runs a stored procedure that is no direct transaction on its home, which is here, in a box.
    #[cold]
    #[inline(never)]
    fn run_apart<'a, P: StoredProcedure>(
        &'a self,
        lent: Lent<'a, P>,
        routed: Option<&'a RouteHint<'a>>,
    ) -> Pin<Box<dyn Future<Output = Result<P::Result, Abort>> + 'a>> {
        Box::pin(self.run_at_home(lent, routed))
    }

    #[inline(always)]
    #[expect(clippy::manual_async_fn, reason = "an `async fn` copies what it is given, see `poll_to_end`")]
    fn run_runnable<'a, R: Send + 'static>(
        &'a self,
        route: &'a Route,
        procedure: impl Runnable<R>,
    ) -> impl Future<Output = Result<R, Abort>> {
        async move {
            let worker = &self.worker;
            let mut start = self.start(route);
            if let Some(ticket) = start.ticket {
                let position = worker.shard().lookups.result(worker, ticket).await;
                self.resume(&mut start, ticket, position);
            }
            if start.home == worker.id() {
                self.run_at_home(procedure, start.routed.as_ref()).await
            } else {
                self.forward(start.home, procedure.into_procedure()).await
            }
        }
    }

    /// Runs a procedure on its home, which is here.
    #[inline(always)]
    #[expect(clippy::manual_async_fn, reason = "an `async fn` copies what it is given, see `poll_to_end`")]
    fn run_at_home<'a, R: Send + 'static>(
        &'a self,
        procedure: impl Runnable<R> + 'a,
        routed: Option<&'a RouteHint<'a>>,
    ) -> impl Future<Output = Result<R, Abort>> {
        async move {
            let worker = &self.worker;
            let early = self.is_pipelined.get().then_some(&self.told);
            let mut outcome = Err(Abort::UNFINISHED);
            poll_to_end(TxnGuard::begin(worker), &procedure, routed, early, &mut outcome).await;
            if let Err(abort) = &outcome
                && abort.reason().advice() == Advice::Retry
            {
                let abort = abort.clone();
                outcome = run_again(worker, &Again(&procedure, PhantomData), abort).await.map(result_of);
            }
            outcome
        }
    }

    /// Runs a procedure on its home, another worker.
    #[inline(always)]
    #[expect(clippy::manual_async_fn, reason = "an `async fn` copies what it is given, see `poll_to_end`")]
    fn forward<R: Send + 'static>(
        &self,
        home: WorkerId,
        procedure: impl Procedure<R>,
    ) -> impl Future<Output = Result<R, Abort>> {
        async move {
            let worker = &self.worker;
            worker.shard().stats.forwarded.add(1);
            self.returned(call_procedure(worker, home, procedure, self.is_pipelined.get()).await)
        }
    }

    /// Returns the outcome of a procedure that has run on another worker.
    #[inline(always)]
    fn returned<R>(&self, reply: Result<ProcedureReply<R>, Lost>) -> Result<R, Abort> {
        match reply {
            Ok((outcome, told)) => {
                self.told.set(self.told.get().max(told));
                outcome
            }
            Err(Lost) => {
                Err(Abort::because(AbortReason::ShuttingDown, "the worker that ran the transaction is gone"))
            }
        }
    }

    /// Finds the home that a route leads to. If that is this worker, the key that the route names is looked up, now or, with
    /// those of others, in a moment.
    #[inline(never)]
    fn start<'a>(&self, route: &'a Route) -> RouteStart<'a> {
        let (worker, shard) = (&self.worker, self.worker.shard());
        let mut start = RouteStart { home: worker.id(), routed: None, ticket: None };
        match &route.to {
            Destination::Owner(table, key) => {
                let located = shard.tables.borrow().locate_checked(*table, key);
                // The handle may belong to another database, which the procedure's actions report.
                let Some((partition, home)) = located else { return start };
                start.home = home;
                if home == worker.id() {
                    // Without a look-up there is nothing to hint at: to compare keys would take longer than to locate one.
                    if shard.lookups.pays(worker) {
                        let (position, scheme_changes) = (Position::unknown(), shard.scheme_changes.get());
                        start.routed = Some(RouteHint { partition, key, position, scheme_changes });
                        start.ticket = Some(shard.lookups.defer(worker, partition, key));
                    }
                } else if InstanceId::of_owner(home).is_some() {
                    // The data of another instance is as far from all workers.
                    start.home = worker.id();
                }
            }
            Destination::Worker(home) => start.home = WorkerId(home.0 % worker.workers() as u16),
        }
        start
    }

    /// Goes on with a route whose key has been looked up.
    #[inline(never)]
    fn resume(&self, start: &mut RouteStart<'_>, ticket: LookupTicket, position: Position) {
        let shard = self.worker.shard();
        let Some(routed) = &mut start.routed else { return };
        // The position is a hint, which the tree checks.
        (routed.position, routed.scheme_changes) = (position, shard.scheme_changes.get());
        if shard.lookups.is_stale(ticket) {
            let tables = shard.tables.borrow();
            (routed.partition, start.home) = tables.locate(routed.partition.table, routed.key);
            if start.home != self.worker.id() {
                start.routed = None;
            }
        }
    }

    /// Runs a procedure like [`run`](Session::run), in boxes: slower by some allocations, but compiled once for all procedures
    /// that run like this. For transactions that are rare, or long.
    ///
    /// # Errors
    /// As [`run`](Session::run).
    pub fn run_boxed<R: Send + 'static>(
        &self,
        route: &Route,
        procedure: impl Procedure<R>,
    ) -> impl Future<Output = Result<R, Abort>> {
        self.run_any_as(route, AnyProcedure::new(procedure))
    }

    /// Runs a procedure whose type is erased, and whose results are of type `R`, like [`run_boxed`](Session::run_boxed).
    ///
    /// # Errors
    /// As [`run`](Session::run).
    ///
    /// # Panics
    /// Panics if the results are of another type.
    pub async fn run_any_as<R: 'static>(&self, route: &Route, procedure: AnyProcedure) -> Result<R, Abort> {
        self.run_any(route, procedure).await.map(result_of)
    }

    fn run_any<'a>(&'a self, route: &'a Route, procedure: AnyProcedure) -> AnyFuture<'a> {
        Box::pin(self.run(route, async move |tx| procedure.erased().call(tx).await))
    }

    /// Waits until `ticks` on the worker's clock.
    pub async fn sleep_until(&self, ticks: atrapos_runtime::Ticks) {
        self.worker.sleep_until(ticks).await;
    }

    /// Lets other sessions of this worker run.
    pub async fn yield_now(&self) {
        yield_once(&self.worker).await;
    }
}
