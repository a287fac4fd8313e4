//! Splits and merges at the owner of a partition, between two of its tasks.
//!
//! Owns: the order in which trees, branches and lock tables change. Never: sends a message.
//!
//! Invariant: memory is reserved in all trees before the first of them changes, so a failure leaves everything as it was.

use std::rc::Rc;
use std::sync::Arc;

use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::panic_guard::PanicGuard;
use atrapos_partition::partition::PartitionId;
use atrapos_partition::routing::FamilyScheme;
use atrapos_partition::schema::TableId;
use atrapos_runtime::Ticks;
use atrapos_storage::KeyBuf;
use atrapos_transaction::shard::EngineWorker;

use super::locks::{relock, unsettle};
use super::{on_scheme, tables_of};

/// Splits a partition, at its owner.
pub(super) fn on_split(
    worker: &Rc<EngineWorker>,
    family: usize,
    cut: &KeyBuf,
    scheme: &Arc<FamilyScheme>,
) -> Result<Ticks, Abort> {
    let began = worker.now();
    let panic_guard = PanicGuard::enter();
    let shard = worker.shard();
    let index = scheme.partition_of(cut);
    let (left, right) = (scheme.number(index - 1), scheme.number(index));
    let family_tables = tables_of(worker, family);
    let place = |table: &TableId, partition| PartitionId { table: *table, partition };
    {
        // When every tree has the memory that its cut takes, no cut fails.
        let mut tables = shard.tables.borrow_mut();
        let mut trees = family_tables.iter();
        let prepared = trees.try_for_each(|table| tables.partition_mut(place(table, left)).prepare_split());
        if let Err(error) = prepared {
            panic_guard.leave();
            return Err(Abort::explained(AbortReason::OutOfMemory, error.to_string()));
        }
    }
    let woken = unsettle(worker, &family_tables, left);
    {
        let mut tables = shard.tables.borrow_mut();
        for table in &family_tables {
            let mut beyond = Vec::new();
            shard.each_branch(|_, branch| {
                beyond.extend(branch.borrow().undo.set_aside_beyond(place(table, left), cut));
            });
            let half = tables.partition_mut(place(table, left)).split(cut, beyond);
            tables.put(place(table, right), Box::new(half));
        }
        shard.each_branch(|_, branch| branch.borrow_mut().renumber(&family_tables, left, Some(cut), right));
        relock(worker, &mut tables, &family_tables, &[left, right]);
    }
    on_scheme(worker, family, scheme);
    woken.into_iter().for_each(|task| worker.wake(task));
    panic_guard.leave();
    Ok(worker.now().since(began))
}

/// Joins a partition to the one before it, at their owner.
pub(super) fn on_merge(
    worker: &Rc<EngineWorker>,
    family: usize,
    cut: &KeyBuf,
    scheme: &Arc<FamilyScheme>,
) -> Result<Ticks, Abort> {
    let began = worker.now();
    let panic_guard = PanicGuard::enter();
    let shard = worker.shard();
    let family_tables = tables_of(worker, family);
    let today = Arc::clone(&shard.tables.borrow().shards[family_tables[0].at()].scheme);
    let index = today.partition_of(cut);
    let (left, right) = (today.number(index - 1), today.number(index));
    let place = |table: &TableId, partition| PartitionId { table: *table, partition };
    {
        let mut tables = shard.tables.borrow_mut();
        // When every tree has the memory that joining takes, nothing fails.
        for table in &family_tables {
            let half = tables.take(place(table, right));
            let prepared = tables.partition_mut(place(table, left)).prepare_join(&half);
            tables.put(place(table, right), half);
            if let Err(error) = prepared {
                panic_guard.leave();
                return Err(Abort::explained(AbortReason::OutOfMemory, error.to_string()));
            }
        }
        for table in &family_tables {
            let half = tables.take(place(table, right));
            tables.partition_mut(place(table, left)).join(cut, *half);
        }
    }
    let mut woken = unsettle(worker, &family_tables, left);
    woken.extend(unsettle(worker, &family_tables, right));
    {
        let mut tables = shard.tables.borrow_mut();
        shard.each_branch(|_, branch| branch.borrow_mut().renumber(&family_tables, right, None, left));
        relock(worker, &mut tables, &family_tables, &[left]);
    }
    on_scheme(worker, family, scheme);
    woken.into_iter().for_each(|task| worker.wake(task));
    panic_guard.leave();
    Ok(worker.now().since(began))
}
