//! One access on the worker that owns its data: the check for conflicting locks, and the run of its operation.
//!
//! Owns: the only way from an action to its operation's context ([`RowContext`]), for accesses that are made at once
//! ([`execute`]), together ([`Accessor::execute_noted`]), and for those that have waited for their lock ([`execute_granted`]). Never: waits, or sends a
//! message.
//!
//! An operation is compiled where a home makes a single access or a phase of its own, and, with its type erased, for all
//! actions that are sent or wait ([`ErasedOperation`]).
//!
//! Invariant: an access is noted in its branch, and its lock entered when the branch is entered, before its operation runs.

use atrapos_partition::abort::Abort;
use atrapos_partition::action::{
    AccessKind, ActionBatch, BatchedOperation, DependentAction, ErasedOperation, MissingTable, Operation,
    Request, RowContext,
};
use atrapos_partition::panic_guard::PanicGuard;
use atrapos_partition::partition::{Partition, PartitionId, Tables};
use atrapos_partition::planted;
use atrapos_partition::range::KeyRange;
use atrapos_storage::lock::{LockMode, LockTarget, TxnId};
use atrapos_storage::{KeyBuf, Position};
use smallvec::SmallVec;

use super::participant::note_event;
use super::phase::Planned;
use crate::branch::{Access, Branch};
use crate::lookups::{BATCH, Positions, locate_accesses, locate_keys};
use crate::shard::{EngineWorker, Shard};

/// Returns true if a lock of another transaction conflicts with an access to a partition of this worker. `maintains` is that
/// of its operation.
#[inline(always)]
pub(super) fn conflicts(
    tables: &Tables,
    txn: TxnId,
    partition: PartitionId,
    request: &Request,
    maintains: bool,
) -> bool {
    let is_locked = match tables.owned_at(partition) {
        Some(found) => !is_free_in(found, request.mode),
        None => tables.is_open(partition, maintains),
    };
    is_locked && conflicts_with_some(tables, txn, partition, request)
}

/// Returns true if this worker has the partition, its table is not closed, and no lock of another transaction conflicts with the
/// access.
#[inline(always)]
pub(super) fn is_free(tables: &Tables, txn: TxnId, partition: PartitionId, request: &Request) -> bool {
    tables.owned_at(partition).is_some_and(|found| {
        is_free_in(found, request.mode) || !conflicts_with_some(tables, txn, partition, request)
    })
}

/// Returns true if an access in this mode conflicts with nothing in a partition, whatever it is for.
#[inline(always)]
pub(super) fn is_free_in(partition: &Partition, mode: LockMode) -> bool {
    partition.locks.is_empty() || partition.locks.admits_all(mode)
}

#[inline(never)]
fn conflicts_with_some(tables: &Tables, txn: TxnId, partition: PartitionId, request: &Request) -> bool {
    let Request { mode, from_end, ref target, .. } = *request;
    let locks = &tables.partition(partition).locks;
    if mode == LockMode::Exclusive && locks.is_gated() {
        // It has to be recalled from its borrowers first.
        return true;
    }
    let part = match target {
        LockTarget::Key(_) => None,
        LockTarget::Range { .. } => tables.cut_to_partition(partition, target, from_end).0,
    };
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
    /// Runs an operation on a partition of this worker. No lock may conflict with its request, whose target is taken.
    #[inline(always)]
    pub(super) fn execute<O: Operation>(
        &mut self,
        partition: PartitionId,
        request: &mut Request,
        operation: O,
    ) -> Result<O::Output, Abort> {
        let panic_guard = PanicGuard::enter();
        let done = self.execute_any(partition, request, Single(operation), None);
        panic_guard.leave();
        done
    }

    /// Runs an operation on a partition of this worker, alone or in its batch. No lock may conflict with its request
    /// ([`conflicts`]), whose target is taken. The caller holds a [`PanicGuard`].
    #[inline(always)]
    fn execute_any<P: Applied>(
        &mut self,
        partition: PartitionId,
        request: &mut Request,
        operation: P,
        position: Option<Position>,
    ) -> Result<P::Output, Abort> {
        let mut left_out = None;
        let access = match &mut request.target {
            LockTarget::Key(key) => {
                let unlocked = operation.is_unlocked();
                self.branch.note_key(partition, request.mode, key, unlocked);
                self.noted(operation.maintains())
            }
            LockTarget::Range { .. } => {
                let unlocked = operation.is_unlocked();
                self.note_range(partition, request, unlocked, operation.maintains(), &mut left_out)
            }
        };
        let noted = Noted { access, is_new: true, position, may_narrow: !self.branch.suspended };
        self.apply(noted, &mut left_out, operation)
    }

    /// Runs the operations of accesses that were noted together, when all of them were free to run, and hands each result to
    /// `take`. Nothing has run on this worker since.
    #[inline(always)]
    pub(super) fn execute_noted<O: Operation>(
        self,
        noted: NotedTogether,
        operations: &mut SmallVec<[O; BATCH]>,
        take: &mut impl FnMut(O::Output),
    ) -> Result<(), Abort> {
        let Accessor { shard, tables, branch, dependents, .. } = self;
        let Branch { accesses, undo, scratch, redo, suspended, .. } = branch;
        let mut accesses = &mut accesses[noted.first..];
        debug_assert!(
            !noted.one_place || accesses.iter().all(|other| other.partition == accesses[0].partition)
        );
        let mut positions = Positions::new();
        // An insertion looks for the place of its row itself, which is often right behind the latest one.
        let is_insert = |operation: &O| operation.kind().kind == AccessKind::Insert;
        if accesses.len() > 1 && !operations.first().is_some_and(is_insert) {
            locate_accesses(tables, accesses, noted.one_place, &mut positions);
        }
        let (mut operations, mut positions) = (operations.drain(..), positions.iter());
        while let Some(Access { partition: id, .. }) = accesses.first() {
            let id = *id;
            let is_in = |access: &Access| access.partition == id;
            let len = accesses.len();
            let len = if noted.one_place { len } else { accesses.iter().take_while(|a| is_in(a)).count() };
            let (run, rest) = accesses.split_at_mut(len);
            accesses = rest;
            let Some((catalog, partition)) = tables.open_mut(id, false) else {
                unreachable!("a partition that was free to be accessed is here")
            };
            let mut run = run.iter_mut();
            let Some(access) = run.next() else { break };
            // One for all of them: most of it stays the same.
            let mut at = RowContext {
                catalog,
                id,
                partition,
                target: &mut access.target,
                left_out: &mut None,
                position: None,
                undo,
                scratch,
                redo: shard.commit_waiters.is_some().then_some(&mut *redo),
                dependents,
                may_narrow: !*suspended,
            };
            for operation in operations.by_ref() {
                at.position = positions.next();
                let panic_guard = PanicGuard::enter();
                let done = operation.apply(&mut at);
                panic_guard.leave();
                take(done?);
                let Some(access) = run.next() else { break };
                at.target = &mut access.target;
            }
        }
        Ok(())
    }

    /// Notes an access to a range. The part of the range beyond the partition is put in
    /// `left_out`.
    #[inline(never)]
    fn note_range(
        &mut self,
        partition: PartitionId,
        request: &mut Request,
        unlocked: bool,
        maintains: bool,
        left_out: &mut Option<KeyRange>,
    ) -> usize {
        let target = std::mem::replace(&mut request.target, LockTarget::Key(KeyBuf::new()));
        let (part, rest) = self.tables.cut_to_partition(partition, &target, request.from_end);
        *left_out = rest;
        let target = part.unwrap_or(target);
        self.branch.accesses.push(Access { partition, mode: request.mode, target, unlocked, joined: false });
        self.noted(maintains)
    }

    /// Enters the lock of the last access, which was just noted, if the locks of its branch are entered, and returns its index.
    #[inline]
    fn noted(&mut self, maintains: bool) -> usize {
        let at = self.branch.accesses.len() - 1;
        if self.branch.suspended {
            self.enter(at, maintains);
        }
        at
    }

    /// Enters the lock of the last access, if it takes one.
    #[inline(never)]
    fn enter(&mut self, access: usize, maintains: bool) {
        self.branch.entered = access + 1;
        let Access { partition, mode, ref target, unlocked, .. } = self.branch.accesses[access];
        if !unlocked
            && !planted::leaves_unlocked(target)
            && let Some((_, found)) = self.tables.open_mut(partition, maintains)
        {
            self.shard.stats.locks_entered.add(u64::from(found.locks.enter(self.txn, target, mode)));
        }
    }

    /// Creates the context of an operation, and runs it.
    #[inline(always)]
    fn apply<P: Applied>(
        &mut self,
        noted: Noted,
        left_out: &mut Option<KeyRange>,
        operation: P,
    ) -> Result<P::Output, Abort> {
        let branch = &mut *self.branch;
        let access = &mut branch.accesses[noted.access];
        let id = access.partition;
        let Some((catalog, partition)) = self.tables.open_mut(id, operation.maintains()) else {
            if noted.is_new {
                branch.forget(noted.access);
            }
            return operation.without_table(MissingTable::new(self.tables, id.table));
        };
        let mut at = RowContext {
            catalog,
            id,
            partition,
            target: &mut access.target,
            left_out,
            position: noted.position.as_ref(),
            undo: &mut branch.undo,
            scratch: &mut branch.scratch,
            redo: self.shard.commit_waiters.is_some().then_some(&mut branch.redo),
            dependents: self.dependents,
            may_narrow: noted.may_narrow,
        };
        operation.apply(&mut at)
    }
}

/// Runs an operation on a partition of this worker. No lock may conflict with its request ([`conflicts`]), whose target is taken.
#[inline(always)]
pub(super) fn execute<O: Operation>(
    shard: &Shard,
    txn: TxnId,
    state: (&mut Branch, &mut Vec<DependentAction>),
    partition: PartitionId,
    request: &mut Request,
    operation: O,
    position: Option<Position>,
) -> Result<O::Output, Abort> {
    execute_any(shard, txn, state, partition, request, Single(operation), position)
}

#[inline(always)]
fn execute_any<P: Applied>(
    shard: &Shard,
    txn: TxnId,
    (branch, dependents): (&mut Branch, &mut Vec<DependentAction>),
    partition: PartitionId,
    request: &mut Request,
    operation: P,
    position: Option<Position>,
) -> Result<P::Output, Abort> {
    let panic_guard = PanicGuard::enter();
    let tables = &mut shard.tables.borrow_mut();
    let mut accessor = Accessor { shard, tables, txn, branch, dependents };
    let done = accessor.execute_any(partition, request, operation, position);
    panic_guard.leave();
    done
}

/// Runs some actions of a batch in their order, if all their data is here and no lock of another transaction conflicts with any
/// of them. Returns false if not; none of them has run then. Each counts for the monitor if the transaction has its home on
/// another worker.
pub(super) fn execute_free(
    worker: &EngineWorker,
    txn: TxnId,
    (branch, dependents): (&mut Branch, &mut Vec<DependentAction>),
    actions: &mut ActionBatch,
    chosen: &[Planned],
) -> Result<bool, Abort> {
    let shard = worker.shard();
    // A transaction that has no number yet is at its home.
    let counts = txn != TxnId(0) && txn.home() != worker.id().0;
    if counts {
        chosen.iter().for_each(|planned| actions.prefetch(planned.at));
    }
    let (mut places, mut positions) = (SmallVec::<[PartitionId; BATCH]>::new(), Positions::new());
    {
        let tables = shard.tables.borrow();
        for planned in chosen {
            let request = &actions.requests()[planned.at];
            let (place, owner) = request.locate(&tables);
            if !tables.serves(place, owner, worker.id(), request.mode)
                || conflicts(&tables, txn, place, request, actions.maintains(planned.at))
            {
                return Ok(false);
            }
            places.push(place);
        }
        let keys = chosen.iter().map(|planned| actions.requests()[planned.at].key());
        locate_keys(&tables, places.iter().copied().zip(keys), &mut positions);
    }
    for (at, (planned, place)) in chosen.iter().zip(places).enumerate() {
        if counts {
            shard.monitor.begins(worker);
        }
        let (request, operation) = actions.action(planned.at);
        let position = positions.get(at).copied();
        execute_any(shard, txn, (branch, dependents), place, request, operation, position)?;
        if counts {
            note_event(worker, branch);
        }
    }
    Ok(true)
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
    let done = accessor.apply(noted, &mut left_out, Single(operation));
    panic_guard.leave();
    done
}

/// An operation to be applied: one that is moved there, or one that stays in its batch.
trait Applied {
    type Output;
    fn is_unlocked(&self) -> bool;
    fn maintains(&self) -> bool;
    fn apply(self, at: &mut RowContext<'_>) -> Result<Self::Output, Abort>;
    fn without_table(self, missing: MissingTable) -> Result<Self::Output, Abort>;
}

/// An operation that is not in a batch.
struct Single<O>(O);

impl<O: Operation> Applied for Single<O> {
    type Output = O::Output;

    #[inline(always)]
    fn is_unlocked(&self) -> bool {
        self.0.is_unlocked()
    }

    #[inline(always)]
    fn maintains(&self) -> bool {
        self.0.maintains()
    }

    #[inline(always)]
    fn apply(self, at: &mut RowContext<'_>) -> Result<O::Output, Abort> {
        self.0.apply(at)
    }

    #[inline(always)]
    fn without_table(self, missing: MissingTable) -> Result<O::Output, Abort> {
        self.0.without_table(missing)
    }
}

impl Applied for BatchedOperation<'_> {
    type Output = ();

    fn is_unlocked(&self) -> bool {
        BatchedOperation::is_unlocked(self)
    }

    fn maintains(&self) -> bool {
        BatchedOperation::maintains(self)
    }

    fn apply(self, at: &mut RowContext<'_>) -> Result<(), Abort> {
        BatchedOperation::apply(self, at)
    }

    fn without_table(self, missing: MissingTable) -> Result<(), Abort> {
        BatchedOperation::without_table(self, missing)
    }
}

/// Accesses that are noted in a branch, from number `first` on, and about to be made.
#[derive(Clone, Copy)]
pub(super) struct NotedTogether {
    pub(super) first: usize,
    /// True if they are known to be in one partition.
    pub(super) one_place: bool,
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
