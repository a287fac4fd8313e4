//! Relocation of partitions that have come from a worker of another memory node: their pages follow in the background.
//!
//! Owns: the task of a worker that brings them, a few leaves at a time, and its pauses. Never: keeps a transaction waiting for longer than some leaves take, or
//! looks at a partition of another worker.
//!
//! A worker has one such task at most, which begins with the first partition that comes from elsewhere and ends when no tree of the worker has pages on another node. A tree that is lent, or has changes
//! that may be undone, or whose structure changes all the time ([`Relocation::Waits`]) is looked at again, ever more seldom.

use std::rc::Rc;
use std::time::Duration;

use atrapos_partition::partition::PartitionId;
use atrapos_partition::schema::TableId;
use atrapos_runtime::Ticks;
use atrapos_storage::Relocation;
use atrapos_transaction::shard::EngineWorker;

use super::{GENTLE, PAUSE_MAX, PAUSE_MIN};

/// Leaves that are brought at once: some ten microseconds.
const LEAVES: usize = 16;

/// The time until trees that wait are looked at again, which doubles up to the longest.
const RETRY: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(8);

/// Begins to bring the pages of the partitions of a worker, if some are elsewhere.
pub(super) fn begin(worker: &Rc<EngineWorker>) {
    if scattered(worker).is_empty() || worker.shard().relocates.replace(true) {
        return;
    }
    let own = Rc::clone(worker);
    worker.spawn_control(async move {
        relocate(&own).await;
        own.shard().relocates.set(false);
    });
}

async fn relocate(worker: &Rc<EngineWorker>) {
    let mut retry = RETRY;
    loop {
        let places = scattered(worker);
        if places.is_empty() {
            return;
        }
        for place in places {
            loop {
                let began = worker.now();
                if worker.is_stopping() || !goes_on(worker, place) {
                    break;
                }
                rest(worker, began).await;
            }
        }
        // In virtual time, a task that sleeps for others is one too many: what waits is left to the next partition that comes.
        if worker.is_stopping() || worker.clock().is_virtual() {
            return;
        }
        sleep(worker, retry).await;
        retry = (retry * 2).min(RETRY_MAX);
    }
}

/// Brings some pages of a partition. Returns whether there are more to bring now.
fn goes_on(worker: &EngineWorker, place: PartitionId) -> bool {
    let mut tables = worker.shard().tables.borrow_mut();
    let Some(partition) = tables.owned_at_mut(place) else { return false };
    // Without memory it stays as it is, and so it does when the next attempt fails.
    let Ok((brought, next)) = partition.relocate(LEAVES) else { return false };
    worker.shard().note_relocated(brought as u64);
    next == Relocation::GoesOn
}

/// Pauses after some pages, so that they take a small part of the worker's time.
async fn rest(worker: &EngineWorker, began: Ticks) {
    if worker.clock().is_virtual() {
        return worker.yield_now().await;
    }
    let took = Duration::from_nanos(worker.clock().ns(worker.now().since(began)));
    sleep(worker, (took * GENTLE).clamp(PAUSE_MIN, PAUSE_MAX)).await;
}

async fn sleep(worker: &EngineWorker, time: Duration) {
    worker.sleep_until(Ticks(worker.now().0 + worker.clock().ticks(time).0)).await;
}

/// Returns the partitions of a worker that have pages on another memory node.
fn scattered(worker: &EngineWorker) -> Vec<PartitionId> {
    let tables = worker.shard().tables.borrow();
    let mut places = Vec::new();
    for (at, table) in tables.shards.iter().enumerate() {
        let own = (0..table.scheme.partitions()).filter(|index| table.scheme.owner(*index) == worker.id());
        let place = |index| PartitionId { table: TableId(at as u16), partition: table.scheme.number(index) };
        let is_scattered = |place: &PartitionId| {
            tables.owned_at(*place).is_some_and(|partition| partition.tree().is_scattered())
        };
        places.extend(own.map(place).filter(is_scattered));
    }
    places
}
