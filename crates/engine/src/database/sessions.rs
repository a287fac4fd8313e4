//! Sessions: clients that run on a worker.
//!
//! Owns: the start of a session, and its result. Never: lets the panic of a session end its worker.

use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use atrapos_partition::abort::Abort;
use atrapos_partition::action::panicked_in;
use atrapos_runtime::WorkerId;
use atrapos_runtime::oneshot::oneshot;
use atrapos_transaction::procedure::{AnyResult, result_of};
use atrapos_transaction::session::Session;
use atrapos_transaction::shard::EngineWorker;

use super::running::{Outcome, wait};
use super::{Database, refuse_on_worker};

/// The body of a session, with the types of its future and of its result erased.
type SessionBody = Box<dyn FnOnce(Session) -> Pin<Box<dyn Future<Output = AnyResult>>> + Send>;

impl Database {
    /// Starts a session on a worker: a client that runs there and executes transactions one after the other. The result of
    /// `body` is the session's result; a panic ends the session and nothing else. [`Session`] documents what a session may
    /// await.
    ///
    /// # Errors
    /// Fails if the database is shutting down; on a worker's thread with
    /// [`AbortReason::Overloaded`](atrapos_partition::abort::AbortReason::Overloaded) as well.
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
                    // A panic of the session ends the session, not the worker.
                    match catch_unwind(AssertUnwindSafe(|| body.as_mut().poll(context))) {
                        Ok(polled) => polled.map(Ok),
                        Err(panic) => Poll::Ready(Err(panicked_in("session", panic.as_ref()))),
                    }
                })
                .await;
                // Dropped before its end is reported, as a body that is not boxed would be.
                drop(body);
                sender.send(ended);
            });
        };
        self.hand_over(WorkerId(worker.0 % self.workers() as u16), start)?;
        Ok(receiver)
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
    /// Fails if the session panicked, or the database was closed before it ended by itself.
    pub fn join(self) -> Result<R, Abort> {
        refuse_on_worker()?;
        wait(self.receiver).map(result_of)
    }
}
