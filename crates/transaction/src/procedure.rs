//! Execution of procedures: on the current worker, on the home from another worker, and again after a deadlock or when
//! the WAL had no room for their records. Sessions, which most of them come from, are in [`crate::session`].

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
use atrapos_runtime::Reply;

use crate::admission::admit;
use crate::distributed::coordinator::decide;
use crate::lookups::RouteHint;
use crate::recording::{RecordedRun, Recorder};
use crate::shard::EngineWorker;
use crate::stored::StoredProcedure;
use crate::trace::{Stage, TraceEvent};
use crate::tx::{Tx, TxnGuard, TxnState, UNDECIDED};

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
pub(crate) trait Runnable<R> {
    /// Runs it once.
    fn call<'t>(&'t self, tx: &'t mut Tx<'_>) -> impl Future<Output = Result<R, Abort>>;

    /// Returns the procedure, to be sent to its home.
    fn into_procedure(self) -> impl Procedure<R>;
}

/// A procedure that the session is given.
pub(crate) struct Given<P>(pub(crate) P);

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
pub(crate) struct Lent<'a, P: StoredProcedure> {
    pub(crate) procedure: &'a P,
    pub(crate) tables: &'a P::Tables,
}

impl<P: StoredProcedure> Runnable<P::Result> for Lent<'_, P> {
    #[inline(always)]
    async fn call<'t>(&'t self, tx: &'t mut Tx<'_>) -> Result<P::Result, Abort> {
        // Called when the future is polled: a panic before it has made its own is caught like any other.
        tx.set_class(P::CLASS);
        self.procedure.run(tx, self.tables).await
    }

    fn into_procedure(self) -> impl Procedure<P::Result> {
        self.procedure.clone().into_closure(*self.tables)
    }
}

/// A procedure that a session runs again, whose result goes in a box.
pub(crate) struct Again<'a, X, R>(pub(crate) &'a X, pub(crate) PhantomData<fn() -> R>);

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
    admit(worker, false).await;
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
pub(crate) fn run_again<'a>(
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
    let (age, class) = (worker.shard().aborted_age.get(), worker.shard().aborted_class.get());
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
        admit(worker, true).await;
        let guard = TxnGuard::begin(worker);
        guard.state().age.set(age);
        guard.state().class.set(Some(class));
        match call_to_end(guard, procedure).await {
            Err(again) if again.reason().advice() == Advice::Retry => abort = again,
            outcome => return outcome,
        }
    }
    Err(abort)
}

/// Lets other ready tasks run.
pub(crate) async fn yield_once(worker: &EngineWorker) {
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
pub(crate) fn poll_to_end<'a, R>(
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
pub(crate) fn needs_more(worker: &EngineWorker, wait_epoch: Epoch, early: Option<&Cell<Epoch>>) -> bool {
    wait_epoch == UNDECIDED || (!is_told_early(early, wait_epoch) && !may_tell(worker, wait_epoch))
}

/// Decides a transaction that is not decided, and waits until its outcome may be told.
pub(crate) async fn complete<R>(
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

/// Runs a procedure of some class here, as a task of its own, for a caller on another worker, who wants the outcome before it is durable if
/// `is_early`.
pub(crate) fn on_procedure<R: Send + 'static>(
    worker: &Rc<EngineWorker>,
    procedure: impl Procedure<R>,
    (is_early, class): (bool, &'static str),
    reply: Reply<ProcedureReply<R>>,
) {
    let own = Rc::clone(worker);
    worker.spawn(async move {
        let told = Cell::new(Epoch(0));
        let early = is_early.then_some(&told);
        admit(&own, false).await;
        let guard = TxnGuard::begin(&own);
        guard.state().class.set(Some(class));
        let outcome = match poll_apart_to_end(guard, &procedure, early).await {
            Err(abort) if abort.reason().advice() == Advice::Retry => {
                run_again(&own, &Erased(&procedure, PhantomData), abort).await.map(result_of)
            }
            outcome => outcome,
        };
        reply.send(&own, (outcome, told.get()));
    });
}
