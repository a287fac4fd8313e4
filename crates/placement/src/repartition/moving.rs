//! Moves of a partition from its owner to another worker.
//!
//! Owns: the message that has everything of a partition, its sender and its receiver. Never: leaves a part of it behind.

use std::rc::Rc;
use std::sync::Arc;

use atrapos_durability::wal::Epoch;
use atrapos_partition::panic_guard::PanicGuard;
use atrapos_partition::partition::{Partition, PartitionId};
use atrapos_partition::planted::{Bug, planted};
use atrapos_partition::routing::FamilyScheme;
use atrapos_partition::schema::TableId;
use atrapos_runtime::{Reply, Ticks, WorkerId};
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::LockTable;
use atrapos_transaction::branch::MovedBranch;
use atrapos_transaction::shard::EngineWorker;
use atrapos_transaction::snapshot::Kept;

use super::locks::unsettle;
use super::{on_scheme, relocating, tables_of};

/// A partition on its way to another worker, with everything that belongs to it.
struct Moving {
    family: usize,
    number: u32,
    partitions: Vec<Partition>,
    /// Locks and undo that suspended transactions have on it.
    carried: Vec<MovedBranch>,
    /// Earlier versions of its rows that are kept for a snapshot.
    kept: Vec<(TableId, Kept)>,
    /// The newest epoch of commits at its former owner.
    newest: Epoch,
    scheme: Arc<FamilyScheme>,
}

/// Sends a partition to another worker, at its owner. That worker replies with the time that each of the two took.
pub(super) fn on_move(
    worker: &Rc<EngineWorker>,
    family: usize,
    number: u32,
    to: WorkerId,
    scheme: &Arc<FamilyScheme>,
    reply: Reply<Vec<Ticks>>,
) {
    let began = worker.now();
    let panic_guard = PanicGuard::enter();
    let shard = worker.shard();
    let family_tables = tables_of(worker, family);
    let mut woken = unsettle(worker, &family_tables, number);
    if planted(Bug::WaitersLeftBehind) {
        woken.clear();
    }
    let mut carried = Vec::new();
    let recent = shard.commit_waiters.as_ref().map(|commit_waiters| commit_waiters.undurable.borrow());
    shard.each_branch(|owner, branch| {
        let taken = branch.borrow_mut().carry_off(owner, &family_tables, number, recent.as_deref());
        let Some((taken, places)) = taken else { return };
        carried.push(taken);
        branch.pass_to(to);
        shard.waits.borrow_mut().move_up(owner, &places);
    });
    let newest = recent.as_ref().map_or(Epoch(0), |recent| recent.newest());
    drop(recent);
    let kept = kept_of(worker, &family_tables, number);
    let partitions = {
        let mut tables = shard.tables.borrow_mut();
        let take = |table: &TableId| *tables.take(PartitionId { table: *table, partition: number });
        family_tables.iter().map(take).collect()
    };
    on_scheme(worker, family, scheme);
    let moving = Moving { family, number, partitions, carried, kept, newest, scheme: Arc::clone(scheme) };
    let took = worker.now().since(began);
    worker.send(to, move |worker| {
        let arrived = on_partition(worker, moving);
        reply.send(worker, vec![took, arrived]);
    });
    // The woken tasks send their actions after the partition.
    woken.into_iter().for_each(|task| worker.wake(task));
    panic_guard.leave();
}

/// Takes in a partition, at its new owner.
fn on_partition(worker: &Rc<EngineWorker>, moving: Moving) -> Ticks {
    let began = worker.now();
    let panic_guard = PanicGuard::enter();
    let shard = worker.shard();
    let Moving { family, number, partitions, carried, kept, newest, scheme } = moving;
    let family_tables = tables_of(worker, family);
    if let Some(commit_waiters) = &shard.commit_waiters
        && !planted(Bug::NewestNotInherited)
    {
        commit_waiters.undurable.borrow_mut().inherit(newest);
    }
    {
        let mut tables = shard.tables.borrow_mut();
        for (table, mut partition) in family_tables.iter().zip(partitions) {
            partition.allocate_from(Arc::clone(&shard.memory));
            partition.locks = LockTable::new();
            tables.put(PartitionId { table: *table, partition: number }, Box::new(partition));
        }
    }
    on_scheme(worker, family, &scheme);
    shard.snapshots.take_in(kept);
    for carried in carried {
        shard.take_in(worker, carried);
    }
    relocating::begin(worker);
    panic_guard.leave();
    worker.now().since(began)
}

/// Removes and returns the versions kept for a snapshot of a partition that is about to move.
fn kept_of(worker: &EngineWorker, family: &[TableId], number: u32) -> Vec<(TableId, Kept)> {
    let shard = worker.shard();
    if !shard.snapshots.is_held() {
        return Vec::new();
    }
    let tables = shard.tables.borrow();
    let (lower, upper) =
        tables.shards[family[0].at()].bounds(PartitionId { table: family[0], partition: number });
    shard.snapshots.carry_off(family, &KeyBuf::from(lower), upper.map(KeyBuf::from).as_ref())
}
