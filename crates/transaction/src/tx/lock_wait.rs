//! Actions that have to wait for a lock: they are queued on the owner of the data, and run when the lock is granted.
//!
//! Invariant: the branch notes a lock when it is requested, so that the end of the transaction releases it in any case.
//! A wait whose partition is split, merged or moved ends, and the action locates its data again.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::action::{
    Action, DependentAction, ErasedOperation, MissingTable, Operation, Request, WhenLocked,
};
use atrapos_partition::partition::PartitionId;
use atrapos_partition::range::KeyRange;
use atrapos_storage::lock::{LockMode, LockOutcome, LockTarget, LockTicket, TxnId};

use super::access::{conflicts, execute, execute_granted};
use crate::admission;
use crate::branch::{Access, Branch};
use crate::lending::{must_recall, recall};
use crate::lock_waits::{LockWaitEntry, LockWaitState};
use crate::shard::EngineWorker;

/// The outcome of an action that had to wait.
pub(super) enum RunOutcome {
    /// It was run, or refused.
    Done(Result<ErasedOperation, Abort>),
    /// Its partition has changed, or has been recalled from those who had borrowed it: its data has to be located again.
    Moved(Action<ErasedOperation>),
}

/// Takes the lock of an action, waiting for it if need be, and runs the action. The transaction must be known and, at its
/// home, its footprint entered.
pub(super) async fn queue_and_run(
    worker: &Rc<EngineWorker>,
    txn: TxnId,
    branch: &RefCell<Branch>,
    partition: PartitionId,
    action: Action<ErasedOperation>,
    dependents: &RefCell<Vec<DependentAction>>,
) -> RunOutcome {
    if !worker.shard().tables.borrow().is_open(partition, action.operation.maintains()) {
        let missing = MissingTable::new(&worker.shard().tables.borrow(), partition.table);
        return RunOutcome::Done(action.operation.without_table(missing));
    }
    if must_recall(worker.shard(), partition, action.request.mode) {
        return match recall(worker, partition).await {
            Ok(()) => RunOutcome::Moved(action),
            Err(abort) => RunOutcome::Done(Err(abort)),
        };
    }
    let shard = worker.shard();
    match action.operation.when_locked() {
        WhenLocked::Waits => {}
        WhenLocked::GivesUp => {
            let maintains = action.operation.maintains();
            if conflicts(&shard.tables.borrow(), txn, partition, &action.request, maintains) {
                return RunOutcome::Done(action.operation.without_lock());
            }
        }
        WhenLocked::Ignores => {
            let Action { mut request, operation } = action;
            let state = (&mut *branch.borrow_mut(), &mut *dependents.borrow_mut());
            return RunOutcome::Done(execute(shard, txn, state, partition, &mut request, operation, None));
        }
    }
    match queue(worker, txn, branch, partition, &action.request).await {
        Ok(Some((access, left_out))) => {
            let (mut branch, mut dependents) = (branch.borrow_mut(), dependents.borrow_mut());
            debug_assert!(!branch.closed, "the end of a transaction takes back what was granted to it");
            let done =
                execute_granted(shard, &mut branch, access, left_out, action.operation, &mut dependents);
            RunOutcome::Done(done)
        }
        Ok(None) => RunOutcome::Moved(action),
        Err(abort) => RunOutcome::Done(Err(abort)),
    }
}

/// Takes a lock, waiting for it if need be. Returns the index of the access in the branch, and the part of a range
/// beyond the partition; `None` if the partition has changed, so that the data has to be located again.
async fn queue(
    worker: &Rc<EngineWorker>,
    txn: TxnId,
    branch: &RefCell<Branch>,
    partition: PartitionId,
    request: &Request,
) -> Result<Option<(usize, Option<KeyRange>)>, Abort> {
    let Request { mode, from_end, ref target, .. } = *request;
    let (part, left_out) = worker.shard().tables.borrow().cut_to_partition(partition, target, from_end);
    let target = part.unwrap_or_else(|| target.clone());
    let access = {
        let mut branch = branch.borrow_mut();
        if branch.closed {
            return Err(ended());
        }
        // An unlocked read waits only for the lock of a load, and takes a lock like any other access.
        debug_assert!(!branch.has_unentered(), "a transaction that waits has entered its footprint");
        branch.accesses.push(Access {
            partition,
            mode,
            target: target.clone(),
            unlocked: false,
            joined: false,
        });
        branch.entered = branch.accesses.len();
        branch.entered - 1
    };
    match LockWait::wait(worker, txn, partition, mode, &target, access).await? {
        WaitOutcome::Granted(access) => Ok(Some((access, left_out))),
        WaitOutcome::Moved => Ok(None),
    }
}

/// Waits in the queue of a lock until it is granted or refused, or until the partition has changed. Dropped, it leaves the
/// queue.
struct LockWait<'a> {
    worker: &'a Rc<EngineWorker>,
    ticket: LockTicket,
}

/// The outcome of a wait.
enum WaitOutcome {
    /// The lock is held, by the access with this index in the branch.
    Granted(usize),
    /// The partition was split, merged or moved: the data has to be located again. The request holds no lock, unless it
    /// had been granted already.
    Moved,
}

impl LockWait<'_> {
    async fn wait(
        worker: &Rc<EngineWorker>,
        txn: TxnId,
        partition: PartitionId,
        mode: LockMode,
        target: &LockTarget,
        access: usize,
    ) -> Result<WaitOutcome, Abort> {
        let shard = worker.shard();
        let ticket = shard.new_ticket();
        let outcome = shard.request_lock(worker, txn, partition, mode, target, ticket);
        shard.stats.locks_entered.add(1);
        if outcome == LockOutcome::Granted {
            return Ok(WaitOutcome::Granted(access));
        }
        shard.stats.lock_waits.add(1);
        let entry = LockWaitEntry {
            owner: txn,
            partition,
            target: target.clone(),
            task: worker.current_task(),
            state: LockWaitState::Queued,
            since: worker.step_time(),
            access,
        };
        let waiting = {
            let mut waits = shard.waits.borrow_mut();
            waits.insert(ticket, entry);
            waits.queued_len()
        };
        admission::on_wait(worker, waiting);
        let wait = LockWait { worker, ticket };
        poll_fn(|_| {
            let waits = shard.waits.borrow();
            // The end of a transaction removes its requests.
            let Some(entry) = waits.get(wait.ticket) else { return Poll::Ready(Err(ended())) };
            match entry.state {
                LockWaitState::Queued => Poll::Pending,
                LockWaitState::Granted => Poll::Ready(Ok(WaitOutcome::Granted(entry.access))),
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
            "the transaction was one of several that waited for each other, and was chosen as the victim; run it again",
        ),
        reason => Abort::because(reason, "the transaction was aborted while one of its actions waited"),
    }
}

/// Creates the abort of an action whose transaction has ended before it. Its result is not used.
#[cold]
pub(super) fn ended() -> Abort {
    refused(AbortReason::User)
}
