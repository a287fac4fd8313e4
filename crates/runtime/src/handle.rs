//! The way in for threads outside the runtime.
//!
//! Owns: a reference to the shared part of a runtime. Never: lets an outside thread touch a shard; it hands over closures
//! that the worker runs. No unsafe code.
//!
//! Invariant: a closure that was accepted is run, or dropped when the runtime stops; its caller learns which from the
//! oneshot it captured.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use crate::clock::Clock;
use crate::inbox::Refused;
use crate::oneshot::{Receiver, Sender, oneshot};
use crate::shared::{Lane, Phase, Shared};
use crate::stats::WorkerSnapshot;
use crate::worker::{Shard, Worker};
use crate::{WorkerId, current};

/// Reaches the workers of a runtime from any thread. Cheap to clone.
pub struct Handle<S: Shard> {
    shared: Arc<Shared<S>>,
}

impl<S: Shard> Clone for Handle<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

/// Reasons for which a closure was not accepted. It gives the closure back.
pub enum SubmitError<F> {
    /// The worker's inbox is full: try again later, or use the call that waits.
    Full(WorkerId, F),
    /// The runtime is stopping or has stopped.
    Closed(F),
    /// The runtime has no such worker.
    NoSuchWorker(WorkerId, usize, F),
}

impl<F> SubmitError<F> {
    /// The closure that was not accepted.
    pub fn into_closure(self) -> F {
        match self {
            Self::Full(_, closure) | Self::Closed(closure) | Self::NoSuchWorker(_, _, closure) => closure,
        }
    }

    /// Returns whether trying again later can help.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full(..))
    }

    /// The same error without the closure, to be kept or passed on.
    #[must_use]
    pub fn without_closure(self) -> SubmitError<()> {
        match self {
            Self::Full(worker, _) => SubmitError::Full(worker, ()),
            Self::Closed(_) => SubmitError::Closed(()),
            Self::NoSuchWorker(worker, workers, _) => SubmitError::NoSuchWorker(worker, workers, ()),
        }
    }
}

impl<F> fmt::Display for SubmitError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(worker, _) => {
                write!(
                    f,
                    "the inbox of worker {worker} is full: try again once earlier requests are answered"
                )
            }
            Self::Closed(_) => {
                f.write_str("the runtime is stopping and takes no new requests: start another one")
            }
            Self::NoSuchWorker(worker, workers, _) => {
                write!(f, "there is no worker {worker}: name one of the {workers} workers from w0 on")
            }
        }
    }
}

impl<F> fmt::Debug for SubmitError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(worker, _) => write!(f, "Full({worker})"),
            Self::Closed(_) => f.write_str("Closed"),
            Self::NoSuchWorker(worker, workers, _) => write!(f, "NoSuchWorker({worker} of {workers})"),
        }
    }
}

impl<F> std::error::Error for SubmitError<F> {}

impl<S: Shard> Handle<S> {
    pub(crate) fn new(shared: Arc<Shared<S>>) -> Self {
        Self { shared }
    }

    /// The number of workers; their ids are `0..workers`.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.shared.workers()
    }

    /// The runtime's clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Hands a closure to a worker, if its inbox has room. Up to about 200 bytes it lies in the inbox's slot.
    ///
    /// # Errors
    /// Gives the closure back when the inbox is full, the runtime is stopping, or there is no such worker.
    pub fn try_submit<F>(&self, worker: WorkerId, closure: F) -> Result<(), SubmitError<F>>
    where
        F: FnOnce(&Rc<Worker<S>>) + Send + 'static,
    {
        self.hand_over(worker, Lane::Inbox, closure, false)
    }

    /// Hands a closure to a worker, sleeping while its inbox is full. On a thread that runs a worker of this runtime it
    /// never sleeps, since that could be the one to wait for.
    ///
    /// # Errors
    /// Gives the closure back when the runtime is stopping, there is no such worker, or (on a worker's thread only) the
    /// inbox is full.
    pub fn submit<F>(&self, worker: WorkerId, closure: F) -> Result<(), SubmitError<F>>
    where
        F: FnOnce(&Rc<Worker<S>>) + Send + 'static,
    {
        self.hand_over(worker, Lane::Inbox, closure, self.may_sleep())
    }

    /// Hands a closure to a worker by its control lane, which is drained in every step however many tasks are unfinished
    /// there. It is for what the layer above does on its own behalf and waits for, never for requests of clients: nothing
    /// but the number of threads that wait bounds what is begun so. A task that such a closure starts is started with
    /// [`Worker::spawn_control`].
    ///
    /// # Errors
    /// As for [`submit`](Self::submit).
    pub fn submit_control<F>(&self, worker: WorkerId, closure: F) -> Result<(), SubmitError<F>>
    where
        F: FnOnce(&Rc<Worker<S>>) + Send + 'static,
    {
        self.hand_over(worker, Lane::Control, closure, self.may_sleep())
    }

    fn may_sleep(&self) -> bool {
        !current::is_worker_of(self.shared.runtime)
    }

    /// Asks a worker to run `handler` and returns the future of its answer, sleeping while the worker's inbox is full.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit), but the handler is dropped.
    pub fn request<R, F>(&self, worker: WorkerId, handler: F) -> Result<Receiver<R>, SubmitError<()>>
    where
        R: Send + 'static,
        F: FnOnce(&Rc<Worker<S>>, Sender<R>) + Send + 'static,
    {
        let (sender, receiver) = oneshot();
        match self.submit(worker, move |worker| handler(worker, sender)) {
            Ok(()) => Ok(receiver),
            Err(error) => Err(error.without_closure()),
        }
    }

    /// Requests like [`request`](Self::request), but by the [control lane](Self::submit_control).
    ///
    /// # Errors
    /// As for [`submit`](Self::submit), but the handler is dropped.
    pub fn request_control<R, F>(&self, worker: WorkerId, handler: F) -> Result<Receiver<R>, SubmitError<()>>
    where
        R: Send + 'static,
        F: FnOnce(&Rc<Worker<S>>, Sender<R>) + Send + 'static,
    {
        let (sender, receiver) = oneshot();
        match self.submit_control(worker, move |worker| handler(worker, sender)) {
            Ok(()) => Ok(receiver),
            Err(error) => Err(error.without_closure()),
        }
    }

    fn hand_over<F>(
        &self,
        worker: WorkerId,
        lane: Lane,
        closure: F,
        may_sleep: bool,
    ) -> Result<(), SubmitError<F>>
    where
        F: FnOnce(&Rc<Worker<S>>) + Send + 'static,
    {
        if worker.index() >= self.shared.workers() {
            return Err(SubmitError::NoSuchWorker(worker, self.shared.workers(), closure));
        }
        let port = self.shared.port(worker);
        let lane = port.lane(lane);
        let sent = if may_sleep { lane.send(closure) } else { lane.try_send(closure) };
        match sent {
            Ok(()) => {
                port.parker.wake();
                Ok(())
            }
            Err(Refused::Full(closure)) => Err(SubmitError::Full(worker, closure)),
            Err(Refused::Closed(closure)) => Err(SubmitError::Closed(closure)),
        }
    }

    /// Wakes a worker that sleeps, so that its shard looks for what has been published for it
    /// ([`Shard::has_arrivals`]). A number that names no worker wakes nobody.
    pub fn wake(&self, worker: WorkerId) {
        if worker.index() < self.shared.workers() {
            self.shared.port(worker).parker.wake();
        }
    }

    /// The counters of all workers, each as of about now.
    #[must_use]
    pub fn stats(&self) -> Vec<WorkerSnapshot> {
        self.shared.ports().map(|(worker, port)| port.stats.snapshot(worker)).collect()
    }

    /// Begins an orderly shutdown and returns at once: nothing is accepted any more, what is in flight completes. The
    /// owner of the runtime ends it (`Runtime::shutdown`). May be called from anywhere, also twice.
    pub fn begin_shutdown(&self) {
        self.shared.advance(Phase::Draining);
    }

    /// Returns whether a shutdown has begun.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.shared.phase() != Phase::Running
    }
}
