//! Actions where their data is: run at once, after waiting for a lock, or passed on to where the data has gone.
//!
//! A worker that is asked for data it does not own (the sender's scheme was older) passes the action on to the owner,
//! remembers in the transaction's branch that it did, and passes the transaction's end on as well ([`Branch::passed_to`]).
//! Messages between two workers arrive in order, so a partition is always there before an action that was passed on to it.
//! An action that waits for a lock when its partition goes elsewhere is woken, and looks again where its data is.

use std::cell::RefCell;
use std::future::poll_fn;
use std::ops::Deref;
use std::rc::Rc;
use std::task::Poll;

use atrapos_runtime::{Lost, Reply, WorkerId};
use atrapos_storage::Position;
use atrapos_storage::lock::{LockMode, LockOutcome, LockTarget, LockTicket, TxnId};

use crate::abort::{Abort, AbortReason};
use crate::action::{Action, DependentAction, MissingTable, Operation, RowContext};
use crate::branch::{Access, Branch};
use crate::lock_waits::{LockWaitEntry, LockWaitState};
use crate::panic_guard::PanicGuard;
use crate::partition::PartitionId;
use crate::planted;
use crate::range::KeyRange;
use crate::shard::{EngineWorker, Shard};
use crate::tx::TxnState;

/// Runs an action on a partition of this worker, taking it out of `action`; or leaves it there and returns `None` when a
/// lock of somebody else is in its way.
#[inline(always)]
pub(super) fn attempt<O: Operation>(
    shard: &Shard,
    owner: TxnId,
    branch: &mut Branch,
    place: PartitionId,
    action: &mut Option<Action<O>>,
    position: Option<Position>,
    dependents: &mut Vec<DependentAction>,
) -> Option<Result<O::Output, Abort>> {
    let asked = action.as_ref().expect("an action is attempted once");
    let panic_guard = PanicGuard::enter();
    let mut tables = shard.tables.borrow_mut();
    let (part, left_out) = match &asked.target {
        LockTarget::Key(_) => (None, None),
        LockTarget::Range { .. } => tables.cut_to_partition(place, asked),
    };
    let Some((catalog, partition)) = tables.open_mut(place, O::MAINTAINS) else {
        let Some(Action { operation, .. }) = action.take() else { unreachable!("it was just looked at") };
        let done = operation.without_table(MissingTable::new(&tables.catalog, place.table));
        panic_guard.leave();
        return Some(done);
    };
    let locks = &mut partition.locks;
    let target = part.as_ref().unwrap_or(&asked.target);
    if !locks.is_empty()
        && locks.conflicts(owner, target, asked.mode)
        && !planted::lets_pass(locks, owner, target, asked.mode)
    {
        panic_guard.leave();
        return None;
    }
    if branch.entered && !O::UNLOCKED && !planted::leaves_unlocked(target) {
        shard.stats.locks_entered.add(u64::from(locks.enter(owner, target, asked.mode)));
    }
    let Some(Action { mode, target, operation, .. }) = action.take() else {
        unreachable!("it was just looked at")
    };
    branch.held.push(Access { place, mode, target: part.unwrap_or(target), unlocked: O::UNLOCKED });
    let held = branch.held.last_mut().expect("the access was just noted");
    let mut at = RowContext {
        catalog,
        place,
        partition,
        target: &mut held.target,
        left_out,
        position,
        undo: &mut branch.undo,
        scratch: &mut branch.scratch,
        redo: shard.commit_waiters.is_some().then_some(&mut branch.redo),
        dependents,
        may_narrow: !branch.entered,
    };
    let done = operation.apply(&mut at);
    panic_guard.leave();
    Some(done)
}

/// Runs an action whose lock was queued and has been granted. `held` is where the branch noted it.
fn run_granted<O: Operation>(
    shard: &Shard,
    branch: &mut Branch,
    held: usize,
    left_out: Option<KeyRange>,
    operation: O,
    dependents: &mut Vec<DependentAction>,
) -> Result<O::Output, Abort> {
    let panic_guard = PanicGuard::enter();
    let mut tables = shard.tables.borrow_mut();
    let held = &mut branch.held[held];
    let place = held.place;
    let Some((catalog, partition)) = tables.open_mut(place, O::MAINTAINS) else {
        panic_guard.leave();
        return operation.without_table(MissingTable::new(&tables.catalog, place.table));
    };
    let mut at = RowContext {
        catalog,
        place,
        partition,
        target: &mut held.target,
        left_out,
        position: None,
        undo: &mut branch.undo,
        scratch: &mut branch.scratch,
        redo: shard.commit_waiters.is_some().then_some(&mut branch.redo),
        dependents,
        may_narrow: false,
    };
    let done = operation.apply(&mut at);
    panic_guard.leave();
    done
}

/// Queues for a lock and waits until it is granted or refused, or until the partition has changed. The branch notes the
/// lock at once, so that whatever happens it is released with the others.
struct LockWait<'a> {
    worker: &'a Rc<EngineWorker>,
    ticket: LockTicket,
}

/// How a wait ended.
enum WaitOutcome {
    /// The lock is held; the branch notes it at this place.
    Granted(usize),
    /// The partition was split, merged or moved: the data is to be looked for again. Nothing is held on account of the
    /// request, unless it had been granted already.
    Moved,
}

impl LockWait<'_> {
    async fn wait(
        worker: &Rc<EngineWorker>,
        owner: TxnId,
        place: PartitionId,
        mode: LockMode,
        target: &LockTarget,
        held: usize,
    ) -> Result<WaitOutcome, Abort> {
        let shard = worker.shard();
        let ticket = shard.new_ticket();
        let outcome = shard.request_lock(worker, owner, place, mode, target, ticket);
        shard.stats.locks_entered.add(1);
        if outcome == LockOutcome::Granted {
            return Ok(WaitOutcome::Granted(held));
        }
        shard.stats.lock_waits.add(1);
        let wait = LockWaitEntry {
            owner,
            place,
            target: target.clone(),
            task: worker.current_task(),
            state: LockWaitState::Queued,
            since: worker.step_time(),
            held,
        };
        shard.waits.borrow_mut().insert(ticket, wait);
        let wait = LockWait { worker, ticket };
        poll_fn(|_| {
            let waits = shard.waits.borrow();
            // The end of a transaction takes its waits along.
            let Some(wait) = waits.get(wait.ticket) else { return Poll::Ready(Err(ended())) };
            match wait.state {
                LockWaitState::Queued => Poll::Pending,
                LockWaitState::Granted => Poll::Ready(Ok(WaitOutcome::Granted(wait.held))),
                LockWaitState::Moved => Poll::Ready(Ok(WaitOutcome::Moved)),
                LockWaitState::Refused(reason) => Poll::Ready(Err(refused(reason))),
            }
        })
        .await
    }
}

impl Drop for LockWait<'_> {
    fn drop(&mut self) {
        let shard = self.worker.shard();
        shard.refuse_wait(self.worker, self.ticket, AbortReason::Misuse);
        shard.waits.borrow_mut().remove(self.ticket);
    }
}

#[cold]
fn refused(reason: AbortReason) -> Abort {
    match reason {
        AbortReason::Deadlock => Abort::because(
            reason,
            "the transaction was one of several that waited for each other, and gave way; run it again",
        ),
        reason => Abort::because(reason, "the transaction was aborted while one of its actions waited"),
    }
}

/// What becomes of an action whose transaction has ended before it. Nobody waits for its result.
#[cold]
fn ended() -> Abort {
    refused(AbortReason::User)
}

/// What actions have done at their owner besides their results.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    /// What must follow.
    pub(super) dependents: Vec<DependentAction>,
    /// The redo of what they changed.
    pub(super) redo: Vec<u8>,
    /// The newest epoch of what they may have seen that was not durable.
    pub(super) observed: u64,
}

impl Reported {
    /// What a branch has done since its home was told last.
    fn of(shard: &Shard, branch: &BranchRef, dependents: Vec<DependentAction>) -> Reported {
        match (&shard.commit_waiters, branch) {
            (Some(commit_waiters), BranchRef::Visiting(branch)) => {
                let mut branch = branch.borrow_mut();
                let observed = branch
                    .observed_since(branch.told, &commit_waiters.undurable.borrow())
                    .max(branch.observed);
                branch.told = branch.held.len();
                Reported { dependents, redo: branch.redo.take(), observed }
            }
            // At the transaction's own home everything is there already.
            _ => Reported { dependents, ..Reported::default() },
        }
    }
}

/// What an action brings back from its owner.
pub(crate) type Returned<O> = (Result<<O as Operation>::Output, Abort>, Reported);

/// What several actions bring back.
pub(super) type ReturnedAll<O> = (Result<Vec<<O as Operation>::Output>, Abort>, Reported);

/// The branch of a transaction on this worker, whether or not it has its home here. There is one at most, since the locks
/// and the undo of a transaction on one worker have to go together. Whoever has it across an await looks afterwards whether
/// it is closed.
#[derive(Clone)]
pub(crate) enum BranchRef {
    /// Its home is elsewhere, or it has ended.
    Visiting(Rc<RefCell<Branch>>),
    /// Data that it uses elsewhere has come to its home.
    Home(Rc<TxnState>),
}

impl BranchRef {
    /// Something of the transaction goes on to `worker`, which has to be told of its end.
    pub(crate) fn pass_to(&self, worker: WorkerId) {
        match self {
            // The home tells its participants of the end itself.
            BranchRef::Home(core) => core.add_participant(worker),
            BranchRef::Visiting(branch) => branch.borrow_mut().pass_to(worker),
        }
    }
}

impl Deref for BranchRef {
    type Target = RefCell<Branch>;

    #[inline]
    fn deref(&self) -> &RefCell<Branch> {
        match self {
            BranchRef::Visiting(branch) => branch,
            BranchRef::Home(core) => &core.home,
        }
    }
}

/// Runs, at the owner, an action of a transaction that has its home on another worker, and replies.
pub(super) fn on_action<O: Operation>(
    worker: &Rc<EngineWorker>,
    owner: TxnId,
    action: Action<O>,
    reply: Reply<Returned<O>>,
) {
    let shard = worker.shard();
    shard.monitor.begins(worker);
    let (place, holder) = action.locate(&shard.tables.borrow());
    let branch = shard.branch_of(worker, owner);
    let mut dependents = Vec::new();
    let mut action = Some(action);
    if holder == worker.id() {
        let attempted =
            attempt(shard, owner, &mut branch.borrow_mut(), place, &mut action, None, &mut dependents);
        if let Some(done) = attempted {
            note_event(worker, &branch);
            return reply.send(worker, (done, Reported::of(shard, &branch, dependents)));
        }
    }
    let action = action.expect("an action that was not run is still there");
    let own = Rc::clone(worker);
    worker.spawn(async move {
        let dependents = RefCell::new(dependents);
        let done = run_as_participant(&own, owner, &branch, action, &dependents).await;
        let effects = Reported::of(own.shard(), &branch, dependents.take());
        drop(branch);
        reply.send(&own, (done, effects));
    });
}

/// An action of a transaction from elsewhere was run: for the monitor.
fn note_event(worker: &EngineWorker, branch: &BranchRef) {
    let monitor = &worker.shard().monitor;
    if monitor.is_due() {
        let held = &branch.borrow().held;
        monitor.record(worker, &held[held.len().saturating_sub(1)..], &[], false);
    }
}

/// Runs several actions at their common owner, in order, and replies when the last is done.
pub(super) fn on_actions<O: Operation>(
    worker: &Rc<EngineWorker>,
    owner: TxnId,
    actions: Vec<Action<O>>,
    reply: Reply<ReturnedAll<O>>,
) {
    let shard = worker.shard();
    let branch = shard.branch_of(worker, owner);
    let mut dependents = Vec::new();
    let mut results = Vec::with_capacity(actions.len());
    let mut actions = actions.into_iter();
    while let Some(action) = actions.next() {
        shard.monitor.begins(worker);
        let (place, holder) = action.locate(&shard.tables.borrow());
        let mut action = Some(action);
        let attempted = if holder == worker.id() {
            attempt(shard, owner, &mut branch.borrow_mut(), place, &mut action, None, &mut dependents)
        } else {
            None
        };
        match (attempted, action) {
            (Some(Ok(result)), _) => {
                note_event(worker, &branch);
                results.push(result);
            }
            (Some(Err(abort)), _) => {
                return reply.send(worker, (Err(abort), Reported::of(shard, &branch, dependents)));
            }
            (None, None) => unreachable!("an action that was not run is still there"),
            (None, Some(action)) => {
                let own = Rc::clone(worker);
                let dependents = RefCell::new(dependents);
                worker.spawn(async move {
                    let mut next = Some(action);
                    let mut done = Ok(());
                    while let Some(action) = next {
                        match run_as_participant(&own, owner, &branch, action, &dependents).await {
                            Ok(result) => results.push(result),
                            Err(abort) => {
                                done = Err(abort);
                                break;
                            }
                        }
                        next = actions.next();
                    }
                    let effects = Reported::of(own.shard(), &branch, dependents.take());
                    drop(branch);
                    reply.send(&own, (done.map(|()| results), effects));
                });
                return;
            }
        }
    }
    reply.send(worker, (Ok(results), Reported::of(shard, &branch, dependents)));
}

/// Runs an action of another worker's transaction wherever its data is: here, after waiting for its lock, or at the worker
/// it has gone to.
async fn run_as_participant<O: Operation>(
    worker: &Rc<EngineWorker>,
    owner: TxnId,
    branch: &BranchRef,
    mut action: Action<O>,
    dependents: &RefCell<Vec<DependentAction>>,
) -> Result<O::Output, Abort> {
    let shard = worker.shard();
    loop {
        if branch.borrow().closed {
            return Err(ended());
        }
        let (place, holder) = action.locate(&shard.tables.borrow());
        if holder != worker.id() {
            shard.stats.passed_on.add(1);
            branch.pass_to(holder);
            let call = worker.call(holder, move |worker, reply| on_action(worker, owner, action, reply));
            let (result, effects) = call.await.map_err(|Lost| Abort::shutting_down())?;
            let mut branch = branch.borrow_mut();
            if branch.closed {
                // What it has changed there was undone with its transaction: no redo of it may be kept.
                return Err(ended());
            }
            dependents.borrow_mut().extend(effects.dependents);
            branch.observed = branch.observed.max(effects.observed);
            return branch.redo.take_in(&effects.redo).and(result);
        }
        match queue_and_run(worker, owner, branch, place, action, dependents).await {
            RunOutcome::Done(done) => return done,
            RunOutcome::Moved(back) => action = back,
        }
    }
}

/// What became of an action that had to wait.
pub(super) enum RunOutcome<O: Operation> {
    /// It was run, or refused.
    Done(Result<O::Output, Abort>),
    /// Its partition has changed: look again where its data is.
    Moved(Action<O>),
}

/// Takes the lock of an action, waiting for it if need be, and runs the action. The transaction must be known and, at its
/// home, its footprint entered.
pub(super) async fn queue_and_run<O: Operation>(
    worker: &Rc<EngineWorker>,
    owner: TxnId,
    branch: &RefCell<Branch>,
    place: PartitionId,
    action: Action<O>,
    dependents: &RefCell<Vec<DependentAction>>,
) -> RunOutcome<O> {
    if !worker.shard().tables.borrow().is_open(place, O::MAINTAINS) {
        let missing = MissingTable::new(&worker.shard().catalog(), place.table);
        return RunOutcome::Done(action.operation.without_table(missing));
    }
    let (part, left_out) = worker.shard().tables.borrow().cut_to_partition(place, &action);
    let target = part.unwrap_or_else(|| action.target.clone());
    let held = {
        let mut branch = branch.borrow_mut();
        if branch.closed {
            return RunOutcome::Done(Err(ended()));
        }
        // It waits, so there is something that it has to wait for: a load. That ends with a lock like any other.
        branch.held.push(Access { place, mode: action.mode, target: target.clone(), unlocked: false });
        branch.held.len() - 1
    };
    match LockWait::wait(worker, owner, place, action.mode, &target, held).await {
        Ok(WaitOutcome::Granted(held)) => {
            let (mut branch, mut dependents) = (branch.borrow_mut(), dependents.borrow_mut());
            debug_assert!(!branch.closed, "the end of a transaction takes back what was granted to it");
            let shard = worker.shard();
            RunOutcome::Done(run_granted(
                shard,
                &mut branch,
                held,
                left_out,
                action.operation,
                &mut dependents,
            ))
        }
        Ok(WaitOutcome::Moved) => RunOutcome::Moved(action),
        Err(abort) => RunOutcome::Done(Err(abort)),
    }
}
