//! Accesses of a subordinate to one key that are made at once, without a phase.
//!
//! Never: waits, or makes an access to data that is not here.

use std::rc::Rc;

use atrapos_partition::abort::Abort;
use atrapos_partition::action::{Action, Operation};
use atrapos_partition::partition::PartitionId;

use super::TxnState;
use super::access::{conflicts, execute};
use crate::shard::EngineWorker;

/// Runs an action on a key if the key is on this worker and no lock of another transaction conflicts, and returns the partition
/// with the result; otherwise returns `None`, and nothing has happened. The transaction is suspended, so that the lock is entered.
pub(crate) fn run_at_once<O: Operation>(
    worker: &EngineWorker,
    state: &Rc<TxnState>,
    action: Action<O>,
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
    Some(execute(shard, txn, state, place, &mut request, operation, None).map(|done| (place, done)))
}
