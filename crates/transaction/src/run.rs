//! The execution of one action of a transaction: a future written by hand, because it is the path of every access.
//!
//! A local action is executed in its first poll, as a direct call. But if the transaction has accessed no data yet,
//! other tasks are ready to run, and the key was not looked up by its route already, the look-up is deferred and made
//! together with theirs ([`crate::lookups`]), and the action is executed in its second poll. Only an action that has to
//! wait for a lock, or has dependents on other workers, uses a boxed future.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use atrapos_partition::abort::Abort;
use atrapos_partition::action::{Action, ErasedOperation, Operation};
use atrapos_partition::partition::PartitionId;
use atrapos_runtime::{Call, WorkerId};
use atrapos_storage::Position;

use crate::lookups::LookupTicket;
use crate::trace::Stage;
use crate::tx::{ActionReply, OperationGuard, Tx};

/// An action that a transaction runs: await it. See [`Tx::run`].
#[must_use = "an action does nothing until it is awaited"]
pub struct Run<'t, 'w, O: Operation> {
    tx: &'t Tx<'w>,
    /// The action, until it is executed or sent. It is kept outside the state, since moving it from state to state
    /// would cost more than the look-up.
    action: Option<Action<O>>,
    step: Step<'t, O>,
}

enum Step<'t, O: Operation> {
    Start,
    Refused(Abort),
    LookingUp(PartitionId, LookupTicket),
    Sent(Call<ActionReply<ErasedOperation>>, OperationGuard<'t>),
    Waiting(Pin<Box<dyn Future<Output = Result<ErasedOperation, Abort>> + 't>>),
    Dependents(Option<O::Output>, Pin<Box<dyn Future<Output = Result<(), Abort>> + 't>>),
}

/// The partition on the home that holds the data, and the position in its tree, if it was looked up.
type Located = (PartitionId, Option<Position>);

/// Moving it is sound: parts that need a fixed address are boxed.
impl<O: Operation> Unpin for Run<'_, '_, O> {}

impl<'t, 'w, O: Operation> Run<'t, 'w, O> {
    /// Creates the execution of an action.
    #[inline(always)]
    pub(crate) fn new(tx: &'t Tx<'w>, action: Action<O>) -> Run<'t, 'w, O> {
        Run { tx, action: Some(action), step: Step::Start }
    }

    /// Creates the execution of an action that could not be made, which ends with `abort`.
    #[cold]
    pub(crate) fn refused(tx: &'t Tx<'w>, abort: Abort) -> Run<'t, 'w, O> {
        Run { tx, action: None, step: Step::Refused(abort) }
    }

    /// Locates the data, in the first poll. The action is not executed yet if another worker owns the data, or the
    /// look-up is deferred.
    #[inline(always)]
    fn locate(&mut self) -> Result<Located, Poll<Result<O::Output, Abort>>> {
        let (worker, state) = (self.tx.worker(), self.tx.state());
        let shard = worker.shard();
        let action = self.action.as_ref().expect("an action is started once");
        if !self.tx.admits(action) {
            return Err(Poll::Ready(Err(self.tx.refusal(action))));
        }
        if !action.from_end
            && let Some((place, position)) = self.tx.routed_to(action.table, action.key())
        {
            return Ok((place, Some(position)));
        }
        let (place, owner) = action.locate(&shard.tables.borrow());
        if owner != worker.id() {
            return Err(self.send(owner));
        }
        if state.home.borrow().is_untouched() && shard.lookups.pays(worker) {
            let ticket = shard.lookups.defer(worker, place, action.key());
            self.step = Step::LookingUp(place, ticket);
            state.suspending();
            return Err(Poll::Pending);
        }
        Ok((place, None))
    }

    /// Sends the action to the worker that owns the data.
    #[inline(never)]
    fn send(&mut self, owner: WorkerId) -> Poll<Result<O::Output, Abort>> {
        let action = self.action.take().expect("an action is sent once");
        self.step = Step::Sent(self.tx.send(owner, action.erase()), OperationGuard::begin(self.tx.state()));
        self.poll_step()
    }

    /// Continues an action whose look-up was deferred, in the second poll.
    #[inline(always)]
    fn looked_up(
        &mut self,
        place: PartitionId,
        ticket: LookupTicket,
    ) -> Result<Located, Poll<Result<O::Output, Abort>>> {
        let worker = self.tx.worker();
        let lookups = &worker.shard().lookups;
        let position = lookups.take(worker, ticket);
        // The position is a hint, which the tree checks.
        if !lookups.is_stale(ticket) {
            return Ok((place, Some(position)));
        }
        // The scheme has changed since the look-up was deferred, so the data is located again.
        let action = self.action.as_ref().expect("an action whose look-up was deferred is still there");
        let (place, owner) = action.locate(&worker.shard().tables.borrow());
        if owner == worker.id() { Ok((place, Some(position))) } else { Err(self.send(owner)) }
    }

    /// Executes the action on data of the home.
    #[inline(always)]
    fn execute(&mut self, (place, position): Located) -> Poll<Result<O::Output, Abort>> {
        let action = self.action.as_ref().expect("an action is executed once");
        if self.tx.conflicts_here(place, action) {
            return self.wait();
        }
        let action = self.action.take().expect("it was just looked at");
        match self.tx.execute_here(place, action, position) {
            Ok(result) => self.run_dependents(result),
            Err(abort) => Poll::Ready(Err(abort)),
        }
    }

    #[cold]
    fn wait(&mut self) -> Poll<Result<O::Output, Abort>> {
        let tx = self.tx;
        let action = self.action.take().expect("an action that waits is still there").erase();
        self.step = Step::Waiting(Box::pin(tx.wait_and_run(action)));
        self.poll_step()
    }

    /// Runs the dependents of the action, which has been executed.
    #[inline(always)]
    fn run_dependents(&mut self, result: O::Output) -> Poll<Result<O::Output, Abort>> {
        match self.tx.run_dependents_here() {
            Ok(false) => Poll::Ready(Ok(result)),
            Ok(true) => {
                let tx = self.tx;
                self.step = Step::Dependents(Some(result), Box::pin(tx.run_dependents()));
                self.poll_step()
            }
            Err(abort) => Poll::Ready(Err(abort)),
        }
    }

    #[cold]
    #[inline(never)]
    fn poll_step(&mut self) -> Poll<Result<O::Output, Abort>> {
        let context = &mut Context::from_waker(std::task::Waker::noop());
        match &mut self.step {
            Step::Sent(call, _) => match Pin::new(call).poll(context) {
                Poll::Pending => {
                    self.tx.state().suspending();
                    Poll::Pending
                }
                Poll::Ready(returned) => {
                    if let Step::Sent(_, guard) = std::mem::replace(&mut self.step, Step::Start) {
                        guard.disarm();
                    }
                    match self.tx.received(returned) {
                        Ok(done) => self.run_dependents(done.into_output::<O>()),
                        Err(abort) => Poll::Ready(Err(abort)),
                    }
                }
            },
            Step::Waiting(waiting) => match waiting.as_mut().poll(context) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Ok(done)) => self.run_dependents(done.into_output::<O>()),
                Poll::Ready(Err(abort)) => Poll::Ready(Err(abort)),
            },
            Step::Dependents(result, running) => match running.as_mut().poll(context) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Ok(())) => Poll::Ready(Ok(result.take().expect("the result is handed out once"))),
                Poll::Ready(Err(abort)) => Poll::Ready(Err(abort)),
            },
            Step::Refused(abort) => Poll::Ready(Err(self.tx.refuse(abort.clone()))),
            Step::Start | Step::LookingUp(..) => unreachable!("`poll` makes these steps itself"),
        }
    }
}

impl<O: Operation> Future for Run<'_, '_, O> {
    type Output = Result<O::Output, Abort>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<O::Output, Abort>> {
        let located = match &self.step {
            Step::Start => self.locate(),
            Step::LookingUp(place, ticket) => {
                let (place, ticket) = (*place, *ticket);
                self.looked_up(place, ticket)
            }
            _ => return self.poll_step(),
        };
        match located {
            Ok(located) => self.execute(located),
            Err(not_here) => not_here,
        }
    }
}

impl<O: Operation> std::fmt::Debug for Run<'_, '_, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let step = match &self.step {
            Step::Start => "start",
            Step::Refused(_) => "refused",
            Step::LookingUp(..) => Stage::Execute.name(),
            Step::Sent(..) => "sent",
            Step::Waiting(_) => Stage::Lock.name(),
            Step::Dependents(..) => "dependents",
        };
        f.debug_struct("Run").field("step", &step).finish_non_exhaustive()
    }
}
