//! Accesses to one key for a transaction of another instance that are made at once, without a phase.
//!
//! Never: waits, or makes an access to data that is not here.

use std::rc::Rc;

use atrapos_partition::abort::Abort;
use atrapos_partition::action::{Action, Operation, Request};
use atrapos_partition::partition::{PartitionId, Tables};
use atrapos_partition::planted::{Bug, planted};
use atrapos_partition::schema::TableId;
use atrapos_storage::lock::{LockMode, LockTarget, TxnId};
use atrapos_storage::{KeyBuf, Position};

use super::TxnState;
use super::access::{conflicts, execute, is_free, is_free_in};
use crate::shard::EngineWorker;

/// Runs an action on a key if the key is on this worker and no lock of another transaction conflicts, and returns the partition
/// with the result; otherwise returns `None`, and nothing has happened. The transaction is suspended, so that the lock is entered. A
/// position of the key is a hint.
pub(crate) fn run_at_once<O: Operation>(
    worker: &EngineWorker,
    state: &Rc<TxnState>,
    action: Action<O>,
    position: Option<Position>,
) -> Option<Result<(PartitionId, O::Output), Abort>> {
    let (shard, txn) = (worker.shard(), state.txn());
    let Action { mut request, operation } = action;
    let place = {
        let tables = shard.tables.borrow();
        if request.table.at() >= tables.shards.len() {
            return None;
        }
        let (place, owner) = request.locate(&tables);
        let is_here = owner == worker.id() && !state.is_doomed.get();
        if !is_here || conflicts(&tables, txn, place, &request, operation.maintains()) {
            return None;
        }
        place
    };
    shard.stats.local_actions.add(1);
    let (mut home, mut dependents) = (state.home.borrow_mut(), state.dependents.borrow_mut());
    let state = (&mut *home, &mut *dependents);
    Some(execute(shard, txn, state, place, &mut request, operation, position).map(|done| (place, done)))
}

/// Returns the partition of a key if the key is on this worker, no lock of another transaction conflicts with a shared one, and its
/// latest change is durable: it may be read until the worker does something else, as under a lock that is released then.
pub(crate) fn free_to_read(
    worker: &EngineWorker,
    tables: &Tables,
    table: TableId,
    key: &[u8],
) -> Option<PartitionId> {
    let (shard, mode) = (worker.shard(), LockMode::Shared);
    let (place, owner) = tables.locate(table, key);
    let partition = tables.owned_at(place).filter(|_| owner == worker.id())?;
    if shard.commit_waiters.is_none() && is_free_in(partition, mode) {
        return Some(place);
    }
    let target = LockTarget::Key(KeyBuf::from(key));
    let request = Request { table, tag: shard.tag, mode, from_end: false, target };
    let is_free = is_free(tables, TxnId(0), place, &request) || planted(Bug::LastReadOfLocked);
    let is_durable = || {
        let waiters = shard.commit_waiters.as_ref();
        waiters
            .is_none_or(|waiters| waiters.is_durable(waiters.undurable.borrow().of(place, &request.target)))
    };
    (is_free && is_durable()).then_some(place)
}
