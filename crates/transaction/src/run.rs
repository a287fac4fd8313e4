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
use atrapos_partition::action::{Action, ErasedOperation, Operation, Request};
use atrapos_partition::partition::PartitionId;
use atrapos_partition::routing::InstanceId;
use atrapos_partition::schema::TableId;
use atrapos_runtime::Call;
use atrapos_storage::lock::{LockMode, LockTarget};
use atrapos_storage::{KeyBuf, Position};

use crate::lookups::LookupTicket;
use crate::trace::Stage;
use crate::tx::{AccessStart, ActionReply, OperationGuard, Tx};

/// An action that a transaction runs: await it. See [`Tx::run`].
#[must_use = "an action does nothing until it is awaited"]
pub struct Run<'t, 'w, O: Operation> {
    tx: &'t Tx<'w>,
    /// The request of the action. Its target is taken when the action is executed or sent.
    request: Request,
    /// The operation of the action, until it is executed or sent. It is kept outside the state, since moving it from state
    /// to state would cost more than the look-up.
    operation: Option<O>,
    step: Step<'t, O>,
}

/// What a procedure awaits is moved to where it stays, so the steps that are rare are in a box.
enum Step<'t, O: Operation> {
    Start,
    LookingUp(PartitionId, LookupTicket),
    Sent(Call<ActionReply<ErasedOperation>>, OperationGuard<'t>),
    Rare(Box<RareStep<'t, O>>),
}

enum RareStep<'t, O: Operation> {
    Refused(Abort),
    Waiting(Pin<Box<dyn Future<Output = Result<ErasedOperation, Abort>> + 't>>),
    Dependents(Option<O::Output>, Pin<Box<dyn Future<Output = Result<(), Abort>> + 't>>),
}

/// Moving it is sound: parts that need a fixed address are boxed.
impl<O: Operation> Unpin for Run<'_, '_, O> {}

impl<'t, 'w, O: Operation> Run<'t, 'w, O> {
    /// Creates the execution of an action.
    #[inline(always)]
    pub(crate) fn new(tx: &'t Tx<'w>, action: Action<O>) -> Run<'t, 'w, O> {
        Run { tx, request: action.request, operation: Some(action.operation), step: Step::Start }
    }

    /// Creates the execution of an action that could not be made, which ends with `abort`.
    #[cold]
    pub(crate) fn refused(tx: &'t Tx<'w>, abort: Abort) -> Run<'t, 'w, O> {
        let (tag, target) = (tx.worker().shard().tag, LockTarget::Key(KeyBuf::new()));
        let request = Request { table: TableId(0), tag, mode: LockMode::Shared, from_end: false, target };
        Run { tx, request, operation: None, step: Step::Rare(Box::new(RareStep::Refused(abort))) }
    }

    /// Executes the action on data of the home.
    #[inline(always)]
    fn execute(&mut self, place: PartitionId, position: Option<Position>) -> Poll<Result<O::Output, Abort>> {
        let Some(operation) = self.operation.take() else { unreachable!("an action is executed once") };
        let done = self.tx.execute_here(place, &mut self.request, operation, position);
        if done.is_err() || !self.tx.has_dependents() {
            return Poll::Ready(done);
        }
        match done {
            Ok(result) => self.run_dependents(result),
            Err(abort) => Poll::Ready(Err(abort)),
        }
    }

    /// Continues an action that cannot be executed now.
    #[inline(never)]
    fn go_on(&mut self, start: AccessStart) -> Poll<Result<O::Output, Abort>> {
        let tx = self.tx;
        match start {
            AccessStart::LookingUp(place, ticket) => {
                self.step = Step::LookingUp(place, ticket);
                return Poll::Pending;
            }
            AccessStart::Refused => return Poll::Ready(Err(tx.refusal(&self.request))),
            AccessStart::Elsewhere(owner) => {
                let action = self.take_action().erase();
                if let Some(instance) = InstanceId::of_owner(owner) {
                    let running = Box::pin(tx.run_remote(instance, action));
                    self.step = Step::Rare(Box::new(RareStep::Waiting(running)));
                    return self.poll_step();
                }
                self.step = Step::Sent(tx.send(owner, action), OperationGuard::begin(tx.state()));
            }
            AccessStart::Conflict => {
                let action = self.take_action().erase();
                self.step = Step::Rare(Box::new(RareStep::Waiting(Box::pin(tx.wait_and_run(action)))));
            }
            AccessStart::Here(..) => unreachable!("it is executed at once"),
        }
        self.poll_step()
    }

    /// Takes the action, to be sent or to wait.
    fn take_action(&mut self) -> Action<O> {
        let Request { table, tag, mode, from_end, .. } = self.request;
        let target = std::mem::replace(&mut self.request.target, LockTarget::Key(KeyBuf::new()));
        let Some(operation) = self.operation.take() else { unreachable!("an action is run once") };
        Action { request: Request { table, tag, mode, from_end, target }, operation }
    }

    /// Runs the dependents of the action, which has been executed.
    fn run_dependents(&mut self, result: O::Output) -> Poll<Result<O::Output, Abort>> {
        match self.tx.run_dependents_here() {
            Ok(false) => Poll::Ready(Ok(result)),
            Ok(true) => {
                let tx = self.tx;
                let running = RareStep::Dependents(Some(result), Box::pin(tx.run_dependents()));
                self.step = Step::Rare(Box::new(running));
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
            Step::Rare(rare) => match &mut **rare {
                RareStep::Waiting(waiting) => match waiting.as_mut().poll(context) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(Ok(done)) => self.run_dependents(done.into_output::<O>()),
                    Poll::Ready(Err(abort)) => Poll::Ready(Err(abort)),
                },
                RareStep::Dependents(result, running) => running
                    .as_mut()
                    .poll(context)
                    .map_ok(|()| result.take().expect("the result is handed out once")),
                RareStep::Refused(abort) => Poll::Ready(Err(self.tx.refuse(abort.clone()))),
            },
            Step::Start | Step::LookingUp(..) => unreachable!("`poll` makes these steps itself"),
        }
    }
}

impl<O: Operation> Future for Run<'_, '_, O> {
    type Output = Result<O::Output, Abort>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<O::Output, Abort>> {
        let maintains = self.operation.as_ref().is_some_and(Operation::maintains);
        let start = match &self.step {
            Step::Start => self.tx.begin(&self.request, maintains),
            Step::LookingUp(place, ticket) => self.tx.resume(&self.request, maintains, *place, *ticket),
            _ => return self.poll_step(),
        };
        match start {
            AccessStart::Here(place, position) => self.execute(place, position),
            start => self.go_on(start),
        }
    }
}

impl<O: Operation> std::fmt::Debug for Run<'_, '_, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let step = match &self.step {
            Step::Start => "start",
            Step::LookingUp(..) => Stage::Execute.name(),
            Step::Sent(..) => "sent",
            Step::Rare(rare) => match **rare {
                RareStep::Refused(_) => "refused",
                RareStep::Waiting(_) => Stage::Lock.name(),
                RareStep::Dependents(..) => "dependents",
            },
        };
        f.debug_struct("Run").field("step", &step).finish_non_exhaustive()
    }
}
