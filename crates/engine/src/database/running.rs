//! Running of procedures from outside the workers: submission to their homes, and the futures of their outcomes.
//!
//! Owns: the way of a request into a worker. Never: runs a procedure on the caller's thread, or blocks a worker's.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::routing::Route;
use atrapos_runtime::oneshot::{Receiver, oneshot};
use atrapos_runtime::{SubmitError, WorkerId};
use atrapos_transaction::procedure::{
    AnyProcedure, AnyResult, Procedure, result_of, run_here, run_recorded, run_traced,
};
use atrapos_transaction::recording::RecordedRun;
use atrapos_transaction::shard::EngineWorker;
use atrapos_transaction::stored::{CallError, PreparedCall, Registry};
use atrapos_transaction::trace::TraceEvent;
use atrapos_transaction::waiting;

use super::{Database, ON_WORKER, refuse_on_worker};

impl Database {
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
        self.run_any(&route, AnyProcedure::new(procedure)).map(result_of)
    }

    /// Runs a procedure whose type is erased, like [`run`](Database::run).
    ///
    /// # Errors
    /// As [`run`](Database::run).
    pub fn run_any(&self, route: &Route, procedure: AnyProcedure) -> Result<AnyResult, Abort> {
        refuse_on_worker()?;
        wait(self.submit_any(route, procedure)?)
    }

    /// Runs the procedure of a name with encoded arguments, and waits for its encoded result ([`encode`](crate::encode),
    /// [`decode`](crate::decode)).
    ///
    /// # Errors
    /// Fails if there is no such procedure, the bytes are no arguments of it, or its transaction aborts.
    pub fn call(&self, registry: &Registry, name: &str, arguments: &[u8]) -> Result<Vec<u8>, CallError> {
        let PreparedCall { route, procedure, .. } = registry.prepare(name, arguments)?;
        Ok(result_of(self.run_any(&route, procedure)?))
    }

    /// Submits a prepared call to its home, as [`submit`](Database::submit) does. The outcome is the encoded result.
    ///
    /// # Errors
    /// As [`submit`](Database::submit).
    pub fn submit_call(&self, call: PreparedCall) -> Result<Submitted<Vec<u8>>, Abort> {
        self.submit_any(&call.route, call.procedure).map(Submitted::of)
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
        self.submit_any(&route, AnyProcedure::new(procedure)).map(Submitted::of)
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
        let (request, outcome) = request(AnyProcedure::new(procedure));
        self.handle.try_submit(self.home(&route), request).map_err(|error| not_accepted(&error))?;
        Ok(Submitted::of(outcome))
    }

    /// Submits a procedure whose type is erased.
    fn submit_any(&self, route: &Route, procedure: AnyProcedure) -> Result<Outcome, Abort> {
        let (request, outcome) = request(procedure);
        self.hand_over(self.home(route), request)?;
        Ok(outcome)
    }

    /// Submits a request to a worker. While its inbox is full the caller waits, unless this is the thread of a worker of any
    /// database: two workers could wait for each other.
    pub(super) fn hand_over(
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
        let (outcome, run) = self.record_any(&route, AnyProcedure::new(procedure))?;
        Ok((outcome.map(result_of), run))
    }

    /// Records a procedure whose type is erased, like [`record`](Database::record).
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

/// The outcome of a submitted transaction, or of a session.
pub(crate) type Outcome = Receiver<Result<AnyResult, Abort>>;

/// Waits for an outcome.
pub(crate) fn wait(outcome: Outcome) -> Result<AnyResult, Abort> {
    waiting::wait(outcome).flatten()
}

/// Returns the request that runs a procedure on its home, and the future of its outcome.
pub(crate) fn request(procedure: AnyProcedure) -> (impl FnOnce(&Rc<EngineWorker>) + Send + 'static, Outcome) {
    let (sender, receiver) = oneshot();
    let request = move |worker: &Rc<EngineWorker>| {
        let own = Rc::clone(worker);
        worker.spawn(async move { sender.send(run_here(&own, procedure.erased()).await) });
    };
    (request, receiver)
}

/// The outcome of a submitted transaction: a future for any executor, a session included; [`wait`](Submitted::wait) blocks
/// for it.
#[derive(Debug)]
#[must_use = "only the caller learns the outcome"]
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
