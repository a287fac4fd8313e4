//! Locks and lock waits of partitions whose rows change places.
//!
//! Owns: the removal of waits and the rebuilding of lock tables. Never: grants a lock that was not held.

use std::cell::RefCell;

use atrapos_partition::partition::{PartitionId, Tables};
use atrapos_partition::schema::TableId;
use atrapos_runtime::TaskId;
use atrapos_storage::lock::{LockTable, LockTicket};
use atrapos_transaction::branch::Branch;
use atrapos_transaction::lock_waits::LockWaitState;
use atrapos_transaction::shard::EngineWorker;
use atrapos_transaction::tx::BranchRef;

/// Removes the waits for locks of a partition, so that their actions locate the data again. Returns their tasks, in order of
/// arrival: to be woken when the change is complete.
pub fn unsettle(worker: &EngineWorker, family: &[TableId], number: u32) -> Vec<TaskId> {
    let shard = worker.shard();
    let is_in = |place: PartitionId| place.partition == number && family.contains(&place.table);
    let mut concerned: Vec<LockTicket> = shard
        .waits
        .borrow()
        .iter()
        .filter(|(_, wait)| is_in(wait.partition))
        .map(|(ticket, _)| ticket)
        .collect();
    concerned.sort_unstable_by_key(|ticket| ticket.0);
    let mut woken = Vec::new();
    for ticket in concerned {
        let mut waits = shard.waits.borrow_mut();
        let Some(wait) = waits.get(ticket) else { continue };
        let (owner, access, task) = (wait.owner, wait.access, wait.task);
        match wait.state {
            LockWaitState::Queued => {
                waits.settle(ticket, LockWaitState::Moved);
                drop(waits);
                // The access is no longer noted in the branch; it will be where the data is then.
                shard.forget_access(owner, access);
                woken.push(task);
            }
            // It holds the lock, but the rows may be elsewhere when it resumes. Its task has been woken.
            LockWaitState::Granted => waits.settle(ticket, LockWaitState::Moved),
            LockWaitState::Moved | LockWaitState::Refused(_) => {}
        }
    }
    woken
}

/// Rebuilds the lock tables of some partitions from the locks noted in the branches of transactions.
pub fn relock(worker: &EngineWorker, tables: &mut Tables, family: &[TableId], numbers: &[u32]) {
    let is_in = |place: PartitionId| numbers.contains(&place.partition) && family.contains(&place.table);
    for table in family {
        for number in numbers {
            tables.partition_mut(PartitionId { table: *table, partition: *number }).locks = LockTable::new();
        }
    }
    worker.shard().each_branch(|owner, branch: &BranchRef| {
        let branch: &RefCell<Branch> = branch;
        branch.borrow().lock_again(owner, is_in, tables);
    });
}
