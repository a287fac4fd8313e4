//! The activity of one worker at a moment, as whoever looks at a running database is shown it.
//!
//! Owns: reading it off the worker's state, as a job between two of its tasks. Never: changes anything, or is kept up to date while
//! nobody looks: counters and arrays are those that the engine has anyway.
//!
//! Invariant: a look takes time by the number of partitions, and of locks and waits only by [`LOCK_WAITS`].

use atrapos_partition::partition::{PartitionId, Tables};
use atrapos_partition::schema::TableId;
use atrapos_runtime::{Ticks, WorkerId};
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::{LockTicket, TxnId};

use crate::lock_waits::LockWaitEntry;
use crate::shard::EngineWorker;

/// The number of lock requests of one worker that are shown, the oldest ones.
pub const LOCK_WAITS: usize = 16;

/// The activity of one worker.
#[derive(Clone, Debug)]
pub struct WorkerActivity {
    /// The partitions that it owns.
    pub partitions: Vec<PartitionActivity>,
    /// Transactions with their home here that have been suspended.
    pub suspended: usize,
    /// Transactions of other workers that have accessed data here.
    pub participants: usize,
    /// Lock requests that wait.
    pub waiting: usize,
    /// The oldest of them, at most [`LOCK_WAITS`].
    pub lock_waits: Vec<LockWait>,
    /// Messages sent to each worker.
    pub sent: Vec<u64>,
}

/// One partition of a family of tables.
#[derive(Clone, Debug)]
pub struct PartitionActivity {
    /// The number of the family.
    pub family: usize,
    /// The number of the partition.
    pub number: u32,
    /// Rows of each table and index of the family, in the order of their numbers.
    pub rows: Vec<(TableId, u64)>,
    /// First keys of all sub-partitions but the first; none if the database does not observe itself.
    pub bounds: Vec<KeyBuf>,
    /// The cost of each sub-partition since statistics began anew, in ticks, extrapolated from samples.
    pub costs: Vec<u64>,
    /// Synchronization points that began here since then.
    pub sync_points: u64,
    /// Keys and ranges for which there are locks or requests.
    pub locked: usize,
    /// Lock requests that wait.
    pub waiting: usize,
}

/// A lock request that waits.
#[derive(Clone, Debug)]
pub struct LockWait {
    /// The transaction.
    pub transaction: TxnId,
    /// The table or index.
    pub table: TableId,
    /// The key, or the first one of the range.
    pub key: KeyBuf,
    /// The time for which it has waited.
    pub waited: Ticks,
    /// A transaction that it waits for.
    pub behind: Option<TxnId>,
}

/// Returns the activity of a worker, on its thread.
pub fn of(worker: &EngineWorker) -> WorkerActivity {
    let shard = worker.shard();
    let tables = shard.tables.borrow();
    let waits = shard.waits.borrow();
    let lock_waits = waits.oldest().take(LOCK_WAITS);
    WorkerActivity {
        partitions: partitions(&tables, worker.id()),
        suspended: shard.active.borrow().len(),
        participants: shard.participants.borrow().len(),
        waiting: waits.queued_len(),
        lock_waits: lock_waits.map(|(ticket, wait)| lock_wait(&tables, ticket, wait, worker.now())).collect(),
        sent: (0..worker.workers()).map(|to| worker.sent_to(WorkerId(to as u16))).collect(),
    }
}

fn lock_wait(tables: &Tables, ticket: LockTicket, wait: &LockWaitEntry, now: Ticks) -> LockWait {
    let mut blockers = Vec::new();
    if let Some(partition) = tables.owned_at(wait.partition) {
        partition.locks.blockers(wait.owner, &wait.target, ticket, &mut blockers);
    }
    LockWait {
        transaction: wait.owner,
        table: wait.partition.table,
        key: wait.target.first_key().clone(),
        waited: now.since(wait.since),
        behind: blockers.first().copied(),
    }
}

/// Returns the partitions of all families, by the trees of their tables that are open.
fn partitions(tables: &Tables, own: WorkerId) -> Vec<PartitionActivity> {
    let mut found: Vec<PartitionActivity> = Vec::new();
    for (table, meta) in tables.catalog.live() {
        let scheme = &tables.shards[table.at()].scheme;
        for index in (0..scheme.partitions()).filter(|index| scheme.owner(*index) == own) {
            let (family, number) = (meta.family, scheme.number(index));
            let Some(partition) = tables.owned_at(PartitionId { table, partition: number }) else { continue };
            let known = found.iter().position(|known| known.family == family && known.number == number);
            let at = known.unwrap_or_else(|| {
                found.push(PartitionActivity::new(family, number));
                found.len() - 1
            });
            let activity = &mut found[at];
            activity.rows.push((table, partition.tree().len()));
            activity.locked += partition.locks.locked_len();
            activity.waiting += partition.locks.waiting_len();
            if let Some(monitor) = &partition.monitor {
                activity.bounds = monitor.bounds().to_vec();
                activity.costs = monitor.costs().to_vec();
                activity.sync_points = monitor.meetings_len();
            }
        }
    }
    found
}

impl PartitionActivity {
    fn new(family: usize, number: u32) -> PartitionActivity {
        PartitionActivity {
            family,
            number,
            rows: Vec::new(),
            bounds: Vec::new(),
            costs: Vec::new(),
            sync_points: 0,
            locked: 0,
            waiting: 0,
        }
    }
}
