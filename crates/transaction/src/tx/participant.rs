//! Execution of actions for a transaction that has its home on another worker: at once, after waiting for a lock, or by
//! forwarding them to the worker to which the data has moved.
//!
//! A worker that gets an action on data it does not own (the sender's scheme was older) forwards it to the owner, notes
//! this in the transaction's branch, and forwards the transaction's end as well ([`Branch::passed_to`]). Messages
//! between two workers arrive in order, so a partition always arrives before an action that was forwarded to it. An
//! action that waits for a lock when its partition moves to another worker is woken, and locates its data again.

use std::cell::RefCell;
use std::ops::{Deref, Range};
use std::rc::Rc;

use atrapos_durability::wal::Epoch;
use atrapos_partition::abort::Abort;
use atrapos_partition::action::{Action, DependentAction, ErasedOperation, Following, Operation};
use atrapos_partition::partition::PartitionId;
use atrapos_partition::planted::{Bug, planted};
use atrapos_runtime::{Lost, Reply, WorkerId};
use atrapos_storage::lock::{LockMode, TxnId};
use smallvec::SmallVec;

use super::access::{conflicts, execute};
use super::lock_wait::{RunOutcome, ended, queue_and_run};
use super::phase::PlannedPhase;
use crate::branch::Branch;
use crate::lending;
use crate::messages::call_action;
use crate::shard::{EngineWorker, Shard};
use crate::tx::{Origin, TxnState};

/// The reply to one or more actions, sent to the home of their transaction.
#[derive(Debug)]
pub struct ActionReply<T> {
    /// The result for the procedure.
    pub(super) result: Result<T, Abort>,
    /// The dependents of the changes.
    pub(super) dependents: Vec<DependentAction>,
    /// The redo of the changes.
    pub(super) redo: Vec<u8>,
    /// The newest epoch on which the accesses may depend.
    pub(super) observed: Epoch,
}

impl<T> ActionReply<T> {
    /// Creates the reply from the result and the changes of the branch since its last reply.
    fn new(
        shard: &Shard,
        branch: &BranchRef,
        result: Result<T, Abort>,
        dependents: Vec<DependentAction>,
    ) -> ActionReply<T> {
        match (&shard.commit_waiters, branch) {
            (Some(commit_waiters), BranchRef::Participant(branch)) => {
                let mut branch = branch.borrow_mut();
                let observed = branch
                    .observed_since(branch.told, &commit_waiters.undurable.borrow())
                    .max(branch.observed);
                branch.told = branch.accesses.len();
                ActionReply { result, dependents, redo: branch.redo.take(), observed }
            }
            // At the transaction's home, redo and epochs are in its state already.
            _ => ActionReply { result, dependents, redo: Vec::new(), observed: Epoch(0) },
        }
    }
}

/// The branch of a transaction on this worker, whether or not it has its home here. There is one at most, since the
/// locks and the undo of a transaction on one worker belong together. Code that keeps it across an await must check
/// afterwards that it is not closed.
#[derive(Clone)]
pub enum BranchRef {
    /// The branch of a transaction that has its home on another worker, or has ended.
    Participant(Rc<RefCell<Branch>>),
    /// The branch of a transaction at its home, to which data that it uses has moved.
    Home(Rc<TxnState>),
}

impl BranchRef {
    /// Records that data or an action of the transaction is sent on to `worker`, which must receive its end.
    pub fn pass_to(&self, worker: WorkerId) {
        match self {
            // The home sends the end to its participants itself.
            BranchRef::Home(state) => state.add_participant(worker),
            BranchRef::Participant(branch) => branch.borrow_mut().pass_to(worker),
        }
    }
}

impl Deref for BranchRef {
    type Target = RefCell<Branch>;

    #[inline]
    fn deref(&self) -> &RefCell<Branch> {
        match self {
            BranchRef::Participant(branch) => branch,
            BranchRef::Home(state) => &state.home,
        }
    }
}

/// Runs, at the owner, an action of a transaction that has its home on another worker, and replies.
pub fn on_action(
    worker: &Rc<EngineWorker>,
    origin: Origin,
    action: Action<ErasedOperation>,
    reply: Reply<ActionReply<ErasedOperation>>,
) {
    let (shard, txn) = (worker.shard(), origin.txn);
    let branch = shard.branch_of(worker, txn);
    reach(&branch, origin);
    let mut effects = Effects::default();
    let left = match run_free(worker, txn, &branch, action, &mut effects, false) {
        AtOnce::Done(first) => match follow_free(worker, txn, &branch, first, &mut effects) {
            Ok(done) => {
                reply.send(worker, ActionReply::new(shard, &branch, done, effects.dependents));
                for place in effects.read.into_iter().filter(|place| lending::is_shared(shard, place.table)) {
                    lending::note_read(worker, txn, place);
                }
                return;
            }
            Err(following) => following,
        },
        AtOnce::Locked(action) | AtOnce::Elsewhere(action) => Left { first: None, action },
    };
    let own = Rc::clone(worker);
    worker.spawn(async move {
        let dependents = RefCell::new(effects.dependents);
        let done = run_left(&own, origin, &branch, left, &dependents).await;
        let reply_with = ActionReply::new(own.shard(), &branch, done, dependents.take());
        drop(branch);
        reply.send(&own, reply_with);
    });
}

/// What actions that were run at once leave to be done.
#[derive(Default)]
struct Effects {
    dependents: Vec<DependentAction>,
    /// The partitions that were only read.
    read: SmallVec<[PartitionId; 2]>,
}

/// The outcome of an action that is run at once, if it can be.
enum AtOnce {
    Done(Result<ErasedOperation, Abort>),
    /// A lock of another transaction conflicts.
    Locked(Action<ErasedOperation>),
    /// Its data is on another worker.
    Elsewhere(Action<ErasedOperation>),
}

/// An action that could not be run at once, with the result of the one that it follows from, if any.
struct Left {
    first: Option<ErasedOperation>,
    action: Action<ErasedOperation>,
}

/// Runs an action of a transaction of another worker, if its data is here and no lock conflicts. Where `passes_locks`, a planted bug,
/// they are not looked at.
fn run_free(
    worker: &Rc<EngineWorker>,
    txn: TxnId,
    branch: &BranchRef,
    action: Action<ErasedOperation>,
    effects: &mut Effects,
    passes_locks: bool,
) -> AtOnce {
    let shard = worker.shard();
    shard.monitor.begins(worker);
    let (place, holder) = action.request.locate(&shard.tables.borrow());
    if action.request.mode == LockMode::Shared {
        lending::count_message(shard, place.table);
        effects.read.push(place);
    }
    if holder != worker.id() {
        return AtOnce::Elsewhere(action);
    }
    if !passes_locks && conflicts_on_owner(shard, txn, place, &action) {
        return AtOnce::Locked(action);
    }
    let done = execute_on_owner(shard, txn, branch, place, action, &mut effects.dependents);
    note_event(worker, &branch.borrow());
    AtOnce::Done(done)
}

/// Runs the action that follows from a result, if there is one, at once; that of data on another worker is left to the home. Fails with
/// what is left if a lock conflicts.
fn follow_free(
    worker: &Rc<EngineWorker>,
    txn: TxnId,
    branch: &BranchRef,
    first: Result<ErasedOperation, Abort>,
    effects: &mut Effects,
) -> Result<Result<ErasedOperation, Abort>, Left> {
    let mut first = match first {
        Ok(first) => first,
        Err(abort) => return Ok(Err(abort)),
    };
    let Some(action) = first.take_following() else { return Ok(Ok(first)) };
    let (table, key) = (action.request.table, action.request.key().clone());
    let passes_locks = planted(Bug::FollowingNotLocked);
    let following = match run_free(worker, txn, branch, action, effects, passes_locks) {
        AtOnce::Done(Ok(done)) => Following::Done(table, key, done),
        AtOnce::Done(Err(abort)) => return Ok(Err(abort)),
        AtOnce::Elsewhere(action) => Following::Due(action),
        AtOnce::Locked(action) => return Err(Left { first: Some(first), action }),
    };
    first.put_following(following);
    Ok(Ok(first))
}

/// Runs an action that could not be run at once, and the one that follows from it, and returns the result of the first.
async fn run_left(
    worker: &Rc<EngineWorker>,
    origin: Origin,
    branch: &BranchRef,
    Left { first, action }: Left,
    dependents: &RefCell<Vec<DependentAction>>,
) -> Result<ErasedOperation, Abort> {
    let (mut first, mut following) = match first {
        Some(first) => (first, Some(action)),
        None => (run_as_participant(worker, origin, branch, action, dependents).await?, None),
    };
    let Some(action) = following.take().or_else(|| first.take_following()) else { return Ok(first) };
    let (_, holder) = action.request.locate(&worker.shard().tables.borrow());
    let following = if holder == worker.id() {
        let (table, key) = (action.request.table, action.request.key().clone());
        let done = run_as_participant(worker, origin, branch, action, dependents).await?;
        Following::Done(table, key, done)
    } else {
        Following::Due(action)
    };
    first.put_following(following);
    Ok(first)
}

/// Notes where a transaction is whose action has come.
fn reach(branch: &BranchRef, origin: Origin) {
    let mut branch = branch.borrow_mut();
    branch.undo.reach(origin.mark);
    branch.age = origin.age;
}

/// Returns true if a lock of another transaction conflicts with an action on its owner.
fn conflicts_on_owner(
    shard: &Shard,
    txn: TxnId,
    partition: PartitionId,
    action: &Action<ErasedOperation>,
) -> bool {
    conflicts(&shard.tables.borrow(), txn, partition, &action.request, action.operation.maintains())
}

/// Runs an action, with which no lock conflicts, on its owner.
fn execute_on_owner(
    shard: &Shard,
    txn: TxnId,
    branch: &BranchRef,
    partition: PartitionId,
    mut action: Action<ErasedOperation>,
    dependents: &mut Vec<DependentAction>,
) -> Result<ErasedOperation, Abort> {
    let state = (&mut *branch.borrow_mut(), dependents);
    execute(shard, txn, state, partition, &mut action.request, action.operation, None)
}

/// Counts, for the monitor, an action run for a transaction of another worker.
pub(super) fn note_event(worker: &EngineWorker, branch: &Branch) {
    let monitor = &worker.shard().monitor;
    if monitor.is_due() {
        let accesses = &branch.accesses;
        monitor.record(worker, &accesses[accesses.len().saturating_sub(1)..], None);
    }
}

/// Runs those actions of a phase whose common owner this worker is, or was, and replies after the last one.
pub fn on_actions(
    worker: &Rc<EngineWorker>,
    origin: Origin,
    mut phase: Box<PlannedPhase>,
    group: Range<usize>,
    reply: Reply<ActionReply<Box<PlannedPhase>>>,
) {
    let shard = worker.shard();
    let branch = shard.branch_of(worker, origin.txn);
    reach(&branch, origin);
    let mut dependents = Vec::new();
    let read = phase.count_reads(shard, &group);
    let done = phase.run_free(worker, origin.txn, (&mut branch.borrow_mut(), &mut dependents), &group);
    match done {
        Ok(true) => {
            reply.send(worker, ActionReply::new(shard, &branch, Ok(phase), dependents));
            read.into_iter().for_each(|place| lending::note_read(worker, origin.txn, place));
        }
        Ok(false) => run_in_order(worker, origin, branch, phase, group, reply),
        Err(abort) => reply.send(worker, ActionReply::new(shard, &branch, Err(abort), dependents)),
    }
}

/// Runs actions of which some have to wait, or to be sent on, as a task, in the order of their keys, and replies.
fn run_in_order(
    worker: &Rc<EngineWorker>,
    origin: Origin,
    branch: BranchRef,
    mut phase: Box<PlannedPhase>,
    group: Range<usize>,
    reply: Reply<ActionReply<Box<PlannedPhase>>>,
) {
    let own = Rc::clone(worker);
    let dependents = RefCell::new(Vec::new());
    worker.spawn(async move {
        let mut done = Ok(());
        phase.sort(&group);
        for place in group {
            let action = phase.take(place);
            match run_as_participant(&own, origin, &branch, action, &dependents).await {
                Ok(result) => phase.put_back(place, result),
                Err(abort) => {
                    done = Err(abort);
                    break;
                }
            }
        }
        let done = done.map(|()| phase);
        let reply_with = ActionReply::new(own.shard(), &branch, done, dependents.take());
        drop(branch);
        reply.send(&own, reply_with);
    });
}

/// Runs an action of another worker's transaction on the owner of its data: here, after waiting for its lock, or on the
/// worker to which the data has moved.
async fn run_as_participant(
    worker: &Rc<EngineWorker>,
    origin: Origin,
    branch: &BranchRef,
    mut action: Action<ErasedOperation>,
    dependents: &RefCell<Vec<DependentAction>>,
) -> Result<ErasedOperation, Abort> {
    let shard = worker.shard();
    loop {
        if branch.borrow().closed {
            return Err(ended());
        }
        let (place, holder) = action.request.locate(&shard.tables.borrow());
        if holder != worker.id() {
            shard.stats.passed_on.add(1);
            branch.pass_to(holder);
            let returned =
                call_action(worker, holder, origin, action).await.map_err(|Lost| Abort::shutting_down())?;
            let mut branch = branch.borrow_mut();
            if branch.closed {
                // Its changes there were undone with its transaction, so their redo must be dropped.
                return Err(ended());
            }
            dependents.borrow_mut().extend(returned.dependents);
            branch.observed = branch.observed.max(returned.observed);
            return branch.redo.take_in(&returned.redo).and(returned.result);
        }
        match queue_and_run(worker, origin.txn, branch, place, action, dependents).await {
            RunOutcome::Done(done) => return done,
            RunOutcome::Moved(back) => action = back,
        }
    }
}
