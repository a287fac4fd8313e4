//! Sessions: clients that run on a worker.
//!
//! Owns: the start of a session, and its result. Never: lets the panic of a session end its worker.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use atrapos_partition::abort::Abort;
use atrapos_partition::action::panicked_in;
use atrapos_runtime::WorkerId;
use atrapos_runtime::oneshot::{Receiver, oneshot};
use atrapos_transaction::procedure::Session;
use atrapos_transaction::shard::EngineWorker;

use super::{Database, refuse_on_worker};

impl Database {
    /// Starts a session on a worker: a client that runs there and executes transactions one after the other. The result of
    /// `body` is the session's result; a panic ends the session and nothing else. [`Session`] documents what a session may
    /// await.
    ///
    /// # Errors
    /// Fails if the database is shutting down; on a worker's thread with
    /// [`AbortReason::Overloaded`](crate::AbortReason::Overloaded) as well.
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
