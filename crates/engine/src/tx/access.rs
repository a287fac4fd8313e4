//! One access where its data is: whether a lock conflicts with it, and running its operation.
//!
//! Owns: the only way from an action to its operation's context ([`RowContext`]), for accesses that are made at once
//! ([`execute`]) and for those whose lock was waited for ([`execute_granted`]). Never: waits, or sends anything.
//!
//! Invariant: an access is noted in its branch, and its lock entered when the branch is entered, before its operation runs.

use atrapos_storage::Position;
use atrapos_storage::lock::{LockTarget, TxnId};

use crate::abort::Abort;
use crate::action::{Action, DependentAction, MissingTable, Operation, RowContext};
use crate::branch::{Access, Branch};
use crate::panic_guard::PanicGuard;
use crate::partition::{PartitionId, Tables};
use crate::planted;
use crate::range::KeyRange;
use crate::shard::Shard;

/// Whether a lock of another transaction conflicts with an action on a partition of this worker.
#[inline(always)]
pub(super) fn conflicts<O: Operation>(
    tables: &Tables,
    txn: TxnId,
    partition: PartitionId,
    action: &Action<O>,
) -> bool {
    match tables.owned_at(partition) {
        Some(found) => !found.locks.is_empty() && conflicts_with_some(tables, txn, partition, action),
        None => {
            tables.is_open(partition, O::MAINTAINS) && conflicts_with_some(tables, txn, partition, action)
        }
    }
}

#[inline(never)]
fn conflicts_with_some<O: Operation>(
    tables: &Tables,
    txn: TxnId,
    partition: PartitionId,
    action: &Action<O>,
) -> bool {
    let locks = &tables.partition(partition).locks;
    let (part, _) = tables.cut_to_partition(partition, action);
    let target = part.as_ref().unwrap_or(&action.target);
    locks.conflicts(txn, target, action.mode) && !planted::lets_pass(locks, txn, target, action.mode)
}

/// Runs an action on a partition of this worker. No lock may conflict with it ([`conflicts`]).
#[inline(always)]
pub(super) fn execute<O: Operation>(
    shard: &Shard,
    txn: TxnId,
    branch: &mut Branch,
    partition: PartitionId,
    action: Action<O>,
    position: Option<Position>,
    dependents: &mut Vec<DependentAction>,
) -> Result<O::Output, Abort> {
    let panic_guard = PanicGuard::enter();
    let mut tables = shard.tables.borrow_mut();
    let (part, left_out) = match &action.target {
        LockTarget::Key(_) => (None, None),
        LockTarget::Range { .. } => tables.cut_to_partition(partition, &action),
    };
    let Action { mode, target, operation, .. } = action;
    let target = part.unwrap_or(target);
    if branch.entered && !O::UNLOCKED && !planted::leaves_unlocked(&target) {
        let Some((_, found)) = tables.open_mut(partition, O::MAINTAINS) else {
            panic_guard.leave();
            return operation.without_table(MissingTable::new(&tables, partition.table));
        };
        shard.stats.locks_entered.add(u64::from(found.locks.enter(txn, &target, mode)));
    }
    branch.held.push(Access { place: partition, mode, target, unlocked: O::UNLOCKED });
    let hints = Hints { access: branch.held.len() - 1, position, left_out, may_narrow: !branch.entered };
    let done = apply(shard, &mut tables, branch, hints, operation, dependents);
    panic_guard.leave();
    done
}

/// Runs an operation whose lock was queued and has been granted. `access` is where the branch noted it.
pub(super) fn execute_granted<O: Operation>(
    shard: &Shard,
    branch: &mut Branch,
    access: usize,
    left_out: Option<KeyRange>,
    operation: O,
    dependents: &mut Vec<DependentAction>,
) -> Result<O::Output, Abort> {
    let panic_guard = PanicGuard::enter();
    let hints = Hints { access, position: None, left_out, may_narrow: false };
    let done = apply(shard, &mut shard.tables.borrow_mut(), branch, hints, operation, dependents);
    panic_guard.leave();
    done
}

/// What is known of an access that is about to be made.
struct Hints {
    /// Where the branch has noted it.
    access: usize,
    position: Option<Position>,
    left_out: Option<KeyRange>,
    may_narrow: bool,
}

/// Makes what an operation works on, and runs it.
#[inline(always)]
fn apply<O: Operation>(
    shard: &Shard,
    tables: &mut Tables,
    branch: &mut Branch,
    hints: Hints,
    operation: O,
    dependents: &mut Vec<DependentAction>,
) -> Result<O::Output, Abort> {
    let access = &mut branch.held[hints.access];
    let place = access.place;
    let Some((catalog, partition)) = tables.open_mut(place, O::MAINTAINS) else {
        if hints.may_narrow {
            // No lock was entered, and there is nothing that was accessed.
            branch.held.pop();
        }
        return operation.without_table(MissingTable::new(tables, place.table));
    };
    let mut at = RowContext {
        catalog,
        place,
        partition,
        target: &mut access.target,
        left_out: hints.left_out,
        position: hints.position,
        undo: &mut branch.undo,
        scratch: &mut branch.scratch,
        redo: shard.commit_waiters.is_some().then_some(&mut branch.redo),
        dependents,
        may_narrow: hints.may_narrow,
    };
    operation.apply(&mut at)
}
