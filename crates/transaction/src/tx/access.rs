//! One access on the worker that owns its data: the check for conflicting locks, and the run of its operation.
//!
//! Owns: the only way from an action to its operation's context ([`RowContext`]), for accesses that are made at once
//! ([`Accessor::execute`]) and for those that have waited for their lock ([`execute_granted`]). Never: waits, or sends a
//! message.
//!
//! An operation is compiled where a home makes a single access or a phase of its own, and, with its type erased, for all
//! actions that are sent or wait ([`ErasedOperation`]).
//!
//! Invariant: an access is noted in its branch, and its lock entered when the branch is entered, before its operation runs.

use atrapos_partition::abort::Abort;
use atrapos_partition::action::{
    Action, DependentAction, ErasedOperation, MissingTable, Operation, RowContext,
};
use atrapos_partition::panic_guard::PanicGuard;
use atrapos_partition::partition::{PartitionId, Tables};
use atrapos_partition::planted;
use atrapos_partition::range::KeyRange;
use atrapos_storage::Position;
use atrapos_storage::lock::{LockMode, LockTarget, TxnId};

use crate::branch::{Access, Branch};
use crate::shard::Shard;

/// Returns true if a lock of another transaction conflicts with an action on a partition of this worker.
#[inline(always)]
pub(super) fn conflicts<O: Operation>(
    tables: &Tables,
    txn: TxnId,
    partition: PartitionId,
    action: &Action<O>,
) -> bool {
    let is_locked = match tables.owned_at(partition) {
        Some(found) => !found.locks.is_empty(),
        None => tables.is_open(partition, action.operation.maintains()),
    };
    is_locked && conflicts_with_some(tables, txn, partition, &action.target, action.from_end, action.mode)
}

#[inline(never)]
fn conflicts_with_some(
    tables: &Tables,
    txn: TxnId,
    partition: PartitionId,
    target: &LockTarget,
    from_end: bool,
    mode: LockMode,
) -> bool {
    let locks = &tables.partition(partition).locks;
    let (part, _) = tables.cut_to_partition(partition, target, from_end);
    let target = part.as_ref().unwrap_or(target);
    locks.conflicts(txn, target, mode) && !planted::lets_pass(locks, txn, target, mode)
}

/// The state that the accesses of a transaction on one worker are made in, borrowed for one of them or for several.
pub(super) struct Accessor<'a> {
    pub(super) shard: &'a Shard,
    pub(super) tables: &'a mut Tables,
    pub(super) txn: TxnId,
    /// The branch of the transaction on this worker.
    pub(super) branch: &'a mut Branch,
    /// The list that receives the dependents of writes.
    pub(super) dependents: &'a mut Vec<DependentAction>,
}

impl Accessor<'_> {
    /// Runs an action on a partition of this worker. No lock may conflict with it ([`conflicts`]). The caller holds a
    /// [`PanicGuard`].
    #[inline(always)]
    pub(super) fn execute<O: Operation>(
        &mut self,
        partition: PartitionId,
        action: Action<O>,
        position: Option<Position>,
    ) -> Result<O::Output, Abort> {
        let (asked, operation) = Asked::of(action);
        let mut left_out = None;
        let access = self.note(partition, asked, &mut left_out);
        let noted = Noted { access, is_new: true, position, may_narrow: !self.branch.entered };
        self.apply(noted, &mut left_out, operation)
    }

    /// Notes an access in its branch, enters its lock if the branch's are, and returns the index of the access. The part
    /// of a range beyond the partition is put in `left_out`.
    #[inline(always)]
    fn note(&mut self, partition: PartitionId, asked: Asked, left_out: &mut Option<KeyRange>) -> usize {
        let Asked { mode, mut target, from_end, unlocked, maintains } = asked;
        if let LockTarget::Range { .. } = target {
            let (part, rest) = self.tables.cut_to_partition(partition, &target, from_end);
            *left_out = rest;
            if let Some(part) = part {
                target = part;
            }
        }
        if self.branch.entered {
            self.enter(partition, &target, mode, unlocked, maintains);
        }
        self.branch.accesses.push(Access { partition, mode, target, unlocked });
        self.branch.accesses.len() - 1
    }

    /// Enters the lock of an access.
    #[inline(never)]
    fn enter(
        &mut self,
        partition: PartitionId,
        target: &LockTarget,
        mode: LockMode,
        unlocked: bool,
        maintains: bool,
    ) {
        if !unlocked
            && !planted::leaves_unlocked(target)
            && let Some((_, found)) = self.tables.open_mut(partition, maintains)
        {
            self.shard.stats.locks_entered.add(u64::from(found.locks.enter(self.txn, target, mode)));
        }
    }

    /// Creates the context of an operation, and runs it.
    #[inline(always)]
    fn apply<O: Operation>(
        &mut self,
        noted: Noted,
        left_out: &mut Option<KeyRange>,
        operation: O,
    ) -> Result<O::Output, Abort> {
        let branch = &mut *self.branch;
        let access = &mut branch.accesses[noted.access];
        let id = access.partition;
        let Some((catalog, partition)) = self.tables.open_mut(id, operation.maintains()) else {
            if noted.is_new {
                branch.accesses.pop();
            }
            return operation.without_table(MissingTable::new(self.tables, id.table));
        };
        let mut at = RowContext {
            catalog,
            id,
            partition,
            target: &mut access.target,
            left_out,
            position: noted.position,
            undo: &mut branch.undo,
            scratch: &mut branch.scratch,
            redo: self.shard.commit_waiters.is_some().then_some(&mut branch.redo),
            dependents: self.dependents,
            may_narrow: noted.may_narrow,
        };
        operation.apply(&mut at)
    }
}

/// Runs an action as [`Accessor::execute`] does.
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
    let tables = &mut shard.tables.borrow_mut();
    let done = Accessor { shard, tables, txn, branch, dependents }.execute(partition, action, position);
    panic_guard.leave();
    done
}

/// Runs an operation whose lock was queued and has been granted. `access` is the index of the access in the branch.
pub(super) fn execute_granted(
    shard: &Shard,
    branch: &mut Branch,
    access: usize,
    mut left_out: Option<KeyRange>,
    operation: ErasedOperation,
    dependents: &mut Vec<DependentAction>,
) -> Result<ErasedOperation, Abort> {
    let noted = Noted { access, is_new: false, position: None, may_narrow: false };
    let panic_guard = PanicGuard::enter();
    let tables = &mut shard.tables.borrow_mut();
    // The number of the transaction is for entering locks: this one is entered.
    let mut accessor = Accessor { shard, tables, txn: TxnId(0), branch, dependents };
    let done = accessor.apply(noted, &mut left_out, operation);
    panic_guard.leave();
    done
}

/// The request of an action.
struct Asked {
    mode: LockMode,
    target: LockTarget,
    from_end: bool,
    unlocked: bool,
    maintains: bool,
}

impl Asked {
    /// Takes an action apart: the access it asks for, and its operation.
    #[inline(always)]
    fn of<O: Operation>(action: Action<O>) -> (Asked, O) {
        let Action { mode, target, operation, from_end, .. } = action;
        let (unlocked, maintains) = (operation.is_unlocked(), operation.maintains());
        (Asked { mode, target, from_end, unlocked, maintains }, operation)
    }
}

/// An access that is noted in its branch and about to be made.
struct Noted {
    /// The index of the access in the branch.
    access: usize,
    /// True if it is the last access of the branch, which is removed again if the table is missing.
    is_new: bool,
    position: Option<Position>,
    may_narrow: bool,
}
