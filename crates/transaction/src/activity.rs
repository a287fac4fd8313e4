//! The activity of one worker at a moment, as whoever looks at a running database is shown it.
//!
//! Owns: reading it off the worker's state, as a job between two of its tasks. Never: changes anything, or is kept up to date while
//! nobody looks: counters and arrays are those that the engine has anyway.
//!
//! Invariants
//! - A look at the activity takes time by the number of partitions, and of locks and waits only by [`LOCK_WAITS`].
//! - A look at the locks takes time by the number of transactions that are suspended, of the locks of each only by [`LOCKS`].

use atrapos_partition::partition::{PartitionId, Tables};
use atrapos_partition::schema::TableId;
use atrapos_runtime::{Ticks, WorkerId};
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::{LockMode, LockTarget, LockTicket, TxnId};

use crate::branch::Access;
use crate::lock_waits::LockWaitEntry;
use crate::monitor::ClassCounts;
use crate::shard::{EngineWorker, Shard};

/// The number of lock requests of one worker that are shown, the oldest ones.
pub const LOCK_WAITS: usize = 16;

/// The number of accesses of a transaction on one worker whose locks are shown, the first ones.
pub const LOCKS: usize = 1_000;

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
    /// Transactions by class since the opening, with their home here; none if the database does not observe itself.
    pub classes: ClassCounts,
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
        classes: shard.monitor.classes(),
    }
}

fn lock_wait(tables: &Tables, ticket: LockTicket, wait: &LockWaitEntry, now: Ticks) -> LockWait {
    LockWait {
        transaction: wait.owner,
        table: wait.partition.table,
        key: wait.target.first_key().clone(),
        waited: now.since(wait.since),
        behind: blockers(tables, ticket, wait).first().copied(),
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

/// The locks of one worker.
#[derive(Clone, Debug, Default)]
pub struct WorkerLocks {
    /// The locks that transactions hold, and then those that they wait for.
    pub locks: Vec<Lock>,
    /// The clients of transactions with their home here, where they are known.
    pub clients: Vec<(TxnId, u32)>,
}

/// A lock that a transaction holds or waits for.
#[derive(Clone, Debug)]
pub struct Lock {
    /// The transaction.
    pub transaction: TxnId,
    /// The table or index.
    pub table: TableId,
    /// The key or range.
    pub target: LockTarget,
    /// The mode.
    pub mode: LockMode,
    /// The wait for it; `None` if the lock is held.
    pub wait: Option<Wait>,
}

/// The wait for a lock.
#[derive(Clone, Debug)]
pub struct Wait {
    /// The time for which it has lasted.
    pub waited: Ticks,
    /// The transactions that it waits for; none of the waits beyond the [`LOCKS`] oldest ones of a worker.
    pub behind: Vec<TxnId>,
}

/// Returns the locks of a worker, on its thread. Transactions that have never been suspended have none.
pub fn locks(worker: &EngineWorker) -> WorkerLocks {
    let shard = worker.shard();
    let tables = shard.tables.borrow();
    let mut found = WorkerLocks::default();
    shard.each_branch(|owner, branch| {
        let branch = branch.borrow();
        let entered = branch.accesses[..branch.entered].iter().take(LOCKS);
        let held = entered.filter(|access| is_held(&tables, owner, access));
        found.locks.extend(held.map(|access| Lock {
            transaction: owner,
            table: access.partition.table,
            target: access.target.clone(),
            mode: access.mode,
            wait: None,
        }));
    });
    found.locks.extend(waits(shard, &tables, worker.now()));
    let active = shard.active.borrow();
    let clients = active.iter().map(|(txn, state)| (*txn, state.client.get()));
    found.clients.extend(clients.filter(|(_, client)| *client != 0));
    found
}

fn is_held(tables: &Tables, owner: TxnId, access: &Access) -> bool {
    let partition = if access.unlocked { None } else { tables.owned_at(access.partition) };
    partition.is_some_and(|partition| partition.locks.holds(owner, &access.target, access.mode))
}

/// The locks that are waited for, the oldest wait first.
fn waits(shard: &Shard, tables: &Tables, now: Ticks) -> Vec<Lock> {
    let waits = shard.waits.borrow();
    let shown = |(at, (ticket, wait)): (usize, (LockTicket, &LockWaitEntry))| {
        let behind = if at < LOCKS { blockers(tables, ticket, wait) } else { Vec::new() };
        let branch = shard.find_branch(wait.owner)?;
        let mode = branch.borrow().accesses.get(wait.access)?.mode;
        Some(Lock {
            transaction: wait.owner,
            table: wait.partition.table,
            target: wait.target.clone(),
            mode,
            wait: Some(Wait { waited: now.since(wait.since), behind }),
        })
    };
    waits.oldest().enumerate().filter_map(shown).collect()
}

/// The transactions that a request waits for.
fn blockers(tables: &Tables, ticket: LockTicket, wait: &LockWaitEntry) -> Vec<TxnId> {
    let mut blockers = Vec::new();
    if let Some(partition) = tables.owned_at(wait.partition) {
        partition.locks.blockers(wait.owner, &wait.target, ticket, &mut blockers);
    }
    blockers
}
