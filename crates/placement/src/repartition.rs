//! Changing the scheme while transactions go on: splits, merges and moves, one partition at a time (`ATraPos §V-D`, which stops
//! everything; thesis §4.4).
//!
//! # How it works
//!
//! A *coordinator*, a task of one worker, carries out one change after the other; there is one coordinator at a time. Each
//! change concerns one partition of a family: the trees of all its tables and indexes that have this key range.
//!
//! 1. The owner makes the change between two tasks, so that no transaction is in the middle of anything. Splitting and
//!    joining trees touches one path; whoever is suspended on the partition has locks, undo and waits, and these are put
//!    where the rows are now. Nothing depends on the number of rows.
//! 2. In a move, the owner hands everything to the new owner in one message: trees, version counters, monitoring, and for each
//!    transaction what it holds and how to undo it. From then on it passes on what still comes here.
//! 3. The coordinator tells all other workers, and who routes requests from outside.
//!
//! # Why nothing is lost
//!
//! - *Rows* are in one tree at any time, and a tree is with one worker, or in the message between two.
//! - *Locks*: every lock that is held is noted in the branch of its transaction; so the lock tables of the changed partitions
//!   are built anew from the branches. Locks that were compatible remain so.
//! - *Waits*: who waits for a lock of a changed partition is woken and looks again where the data is, in the order of
//!   arrival. In a move it sends its action on to the new owner.
//! - *Actions on the way* that come to a worker that is not the owner any more are passed on (see [`atrapos_transaction::tx`]). Messages
//!   between two workers keep their order, so they come after the partition.
//! - *Ends*: a transaction's home learns of no moves. A worker that has passed on data or actions of a transaction passes
//!   on its end. If the home itself passes on data, the new owner becomes a participant.
//! - *Durability*: redo names tables and keys, and versions go with the partition, so the WAL does not depend on the
//!   scheme, and neither does recovery. What was committed and is not durable yet counts for every reader at the new owner
//!   ([`UndurableWrites::inherit`](atrapos_transaction::wal::UndurableWrites::inherit)).
//!
//! Invariant: a change that fails leaves everything as it was.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use atrapos_durability::wal::Epoch;
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::panic_guard::PanicGuard;
use atrapos_partition::partition::{Partition, PartitionId};
use atrapos_partition::planted::{Bug, planted};
use atrapos_partition::routing::FamilyScheme;
use atrapos_partition::schema::{Catalog, Table, TableId, TableRef, TreeKind};
use atrapos_runtime::{Lost, Reply, TaskId, Ticks, WorkerId};
use atrapos_storage::lock::{LockTable, LockTicket};
use atrapos_storage::{DisplayKey, Key, KeyBuf};
use atrapos_transaction::branch::{Branch, MovedBranch};
use atrapos_transaction::lock_waits::LockWaitState;
use atrapos_transaction::shard::EngineWorker;
use atrapos_transaction::snapshot::Kept;
use atrapos_transaction::tx::BranchRef;

use crate::published_scheme::PublishedScheme;

/// A change of the scheme. It concerns the family of the table: all tables and indexes that are cut at the same keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemeChange {
    /// The partition that holds `at` ends there, and a new one on the same worker begins.
    Split {
        /// A table or index of the family.
        table: TableId,
        /// First key of the new partition, encoded.
        at: KeyBuf,
    },
    /// The partition that begins at `at` joins the one before it, which is on the same worker.
    Merge {
        /// A table or index of the family.
        table: TableId,
        /// First key of the partition that ends to exist, encoded.
        at: KeyBuf,
    },
    /// The partition that holds `at` goes to another worker.
    Move {
        /// A table or index of the family.
        table: TableId,
        /// A key of the partition, encoded; the empty key is in the first one.
        at: KeyBuf,
        /// The new owner.
        to: WorkerId,
    },
}

impl SchemeChange {
    /// The partition that holds `at` ends there.
    #[must_use]
    pub fn split<T: Table>(table: TableRef<T>, at: &T::Key) -> SchemeChange {
        SchemeChange::Split { table: table.id(), at: at.encode() }
    }

    /// The partition that begins at `at` joins the one before it.
    #[must_use]
    pub fn merge<T: Table>(table: TableRef<T>, at: &T::Key) -> SchemeChange {
        SchemeChange::Merge { table: table.id(), at: at.encode() }
    }

    /// The partition that holds `at` goes to worker `to`.
    #[must_use]
    pub fn move_to<T: Table>(table: TableRef<T>, at: &T::Key, to: WorkerId) -> SchemeChange {
        SchemeChange::Move { table: table.id(), at: at.encode(), to }
    }

    fn table(&self) -> TableId {
        match self {
            SchemeChange::Split { table, .. }
            | SchemeChange::Merge { table, .. }
            | SchemeChange::Move { table, .. } => *table,
        }
    }
}

/// What changes of the scheme have taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepartitionReport {
    /// Partitions split.
    pub splits: u64,
    /// Partitions joined to the ones before them.
    pub merges: u64,
    /// Partitions that went to other workers.
    pub moves: u64,
    /// Time for which owners did nothing else, in all.
    pub owner_time: Duration,
    /// The longest time for which an owner did nothing else.
    pub longest: Duration,
}

impl RepartitionReport {
    fn add_time(&mut self, time: Duration) {
        self.owner_time += time;
        self.longest = self.longest.max(time);
    }
}

/// After each change, this many times its owners' time passes before the next: transactions that have looked up data in a tree
/// that was cut look it up again, so a change costs more than its owner's time.
const GENTLE: u32 = 24;

/// The shortest time between two changes.
const PAUSE_MIN: Duration = Duration::from_micros(300);

/// The longest.
const PAUSE_MAX: Duration = Duration::from_millis(2);

/// Carries out changes, in order, as a task of `worker`. Nobody else may do so at the same time.
///
/// # Errors
/// A change that makes no sense, or the database is closing; the changes before have been made.
pub async fn carry_out(
    worker: &Rc<EngineWorker>,
    changes: Vec<SchemeChange>,
    published: &PublishedScheme,
) -> Result<RepartitionReport, Abort> {
    let mut report = RepartitionReport::default();
    let mut done = Ok(());
    for change in changes {
        if worker.is_stopping() {
            done = Err(Abort::shutting_down());
            break;
        }
        let before = report.owner_time;
        done = carry_out_one(worker, change, published, &mut report).await;
        if done.is_err() {
            break;
        }
        if !worker.clock().is_virtual() {
            let pause = (report.owner_time - before) * GENTLE;
            let pause = pause.clamp(PAUSE_MIN, PAUSE_MAX);
            worker.sleep_until(Ticks(worker.now().0 + worker.clock().ticks(pause).0)).await;
        }
    }
    // When this returns, no worker has an older scheme.
    for other in 0..worker.workers() {
        let answer: Result<(), Lost> = worker
            .call(WorkerId(other as u16), |worker: &Rc<EngineWorker>, reply: Reply<()>| {
                reply.send(worker, ());
            })
            .await;
        answer.map_err(|Lost| Abort::shutting_down())?;
    }
    done.map(|()| report)
}

async fn carry_out_one(
    worker: &Rc<EngineWorker>,
    change: SchemeChange,
    published: &PublishedScheme,
    report: &mut RepartitionReport,
) -> Result<(), Abort> {
    let table = change.table();
    let catalog = worker.shard().catalog();
    let Some(meta) = catalog.tables.get(table.at()).filter(|meta| meta.kind != TreeKind::Dropped) else {
        return Err(misuse(format!(
            "the database has no table number {}; name one of its {} tables and indexes",
            table.at(),
            catalog.tables.len()
        )));
    };
    let (family, name) = (meta.family, meta.name);
    refuse_closed(worker, &catalog, family)?;
    let today = Arc::clone(&worker.shard().tables.borrow().shards[table.at()].scheme);
    let (owner, scheme, made) = match change {
        SchemeChange::Split { at, .. } => {
            let Some(scheme) = today.split(&at) else {
                return Err(misuse(format!(
                    "table '{name}' has a partition that begins at key {} already; split at another key",
                    DisplayKey(&at)
                )));
            };
            let (scheme, owner) = (Arc::new(scheme), today.owner(today.partition_of(&at)));
            let split = Arc::clone(&scheme);
            report.splits += 1;
            (owner, scheme, call(worker, owner, move |worker| on_split(worker, family, &at, &split)).await?)
        }
        SchemeChange::Merge { at, .. } => {
            let Some(scheme) = today.merge(&at) else {
                return Err(misuse(format!(
                    "no partition of table '{name}' begins at key {}; merge at the first key of one",
                    DisplayKey(&at)
                )));
            };
            let right = today.partition_of(&at);
            let (owner, other) = (today.owner(right - 1), today.owner(right));
            if owner != other {
                return Err(misuse(format!(
                    "the partitions of table '{name}' that meet at key {} are on workers {} and {}; move one of them first",
                    DisplayKey(&at),
                    owner.0,
                    other.0
                )));
            }
            let scheme = Arc::new(scheme);
            let merged = Arc::clone(&scheme);
            report.merges += 1;
            (owner, scheme, call(worker, owner, move |worker| on_merge(worker, family, &at, &merged)).await?)
        }
        SchemeChange::Move { at, to, .. } => {
            if to.index() >= worker.workers() {
                return Err(misuse(format!(
                    "there is no worker {}; the database has workers 0 to {}",
                    to.0,
                    worker.workers() - 1
                )));
            }
            let index = today.partition_of(&at);
            let owner = today.owner(index);
            if owner == to {
                return Ok(());
            }
            let scheme = Arc::new(today.moved(index, to));
            let moved = Arc::clone(&scheme);
            let number = today.number(index);
            let sent = worker.call(owner, move |worker, reply| {
                on_move(worker, family, number, to, &moved, reply);
            });
            report.moves += 1;
            (owner, scheme, sent.await.map_err(|Lost| Abort::shutting_down())?)
        }
    };
    made.into_iter().for_each(|ticks| {
        report.add_time(Duration::from_nanos(worker.clock().ns(ticks)));
    });
    for other in (0..worker.workers()).map(|other| WorkerId(other as u16)).filter(|other| *other != owner) {
        let scheme = Arc::clone(&scheme);
        // The coordinator goes on with the new scheme at once; the others when it reaches them.
        if other == worker.id() {
            on_scheme(worker, family, &scheme);
        } else {
            worker.send(other, move |worker| on_scheme(worker, family, &scheme));
        }
    }
    published.replace_family(family, &scheme);
    Ok(())
}

/// Refuses changes where a statement has closed a table and could not tell whether it counts: nothing of it opens again.
fn refuse_closed(worker: &EngineWorker, catalog: &Catalog, family: usize) -> Result<(), Abort> {
    let of_family = tables_of(worker, family);
    let tables = worker.shard().tables.borrow();
    match of_family.into_iter().find(|table| tables.shards[table.at()].is_closed()) {
        Some(closed) => Err(misuse(format!(
            "'{}' is closed since a statement that changes it could not be saved; open the database again",
            catalog.tables[closed.at()].name
        ))),
        None => Ok(()),
    }
}

fn misuse(why: String) -> Abort {
    Abort::explained(AbortReason::Misuse, why)
}

/// Runs a change at the owner. The coordinator's own worker is asked by a message as well, since a change is made between tasks.
async fn call(
    worker: &Rc<EngineWorker>,
    owner: WorkerId,
    change: impl FnOnce(&Rc<EngineWorker>) -> Result<Ticks, Abort> + Send + 'static,
) -> Result<Vec<Ticks>, Abort> {
    let sent = worker.call(owner, move |worker, reply: Reply<Result<Ticks, Abort>>| {
        let made = change(worker);
        reply.send(worker, made);
    });
    sent.await.map_err(|Lost| Abort::shutting_down())?.map(|ticks| vec![ticks])
}

/// The tables and indexes of a family.
fn tables_of(worker: &EngineWorker, family: usize) -> Vec<TableId> {
    let tables = worker.shard().tables.borrow();
    tables.catalog.live().filter(|(_, meta)| meta.family == family).map(|(table, _)| table).collect()
}

/// Uses another scheme of a family from now on, unless this worker has it already.
fn on_scheme(worker: &EngineWorker, family: usize, scheme: &Arc<FamilyScheme>) {
    let shard = worker.shard();
    let family = tables_of(worker, family);
    let mut tables = shard.tables.borrow_mut();
    if tables.shards[family[0].at()].scheme.version() >= scheme.version() {
        return;
    }
    tables.adopt(&family, scheme);
    drop(tables);
    shard.scheme_changes.set(shard.scheme_changes.get() + 1);
    shard.lookups.outdate();
}

/// At the owner: splits a partition.
fn on_split(
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

/// At the owner: joins a partition to the one before it.
fn on_merge(
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

/// A partition on its way to another worker, with everything that belongs to it.
struct Moving {
    family: usize,
    number: u32,
    partitions: Vec<Partition>,
    /// What suspended transactions hold on it.
    carried: Vec<MovedBranch>,
    /// What was kept of it for a snapshot.
    kept: Vec<(TableId, Kept)>,
    /// The newest epoch of what was committed where it was.
    newest: Epoch,
    scheme: Arc<FamilyScheme>,
}

/// At the owner: hands a partition to another worker. The answer, how long both took, comes from there.
fn on_move(
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
    // They send their actions after it.
    woken.into_iter().for_each(|task| worker.wake(task));
    panic_guard.leave();
}

/// At the new owner: takes a partition in.
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
        let owner = carried.owner;
        let branch = shard.branch_of(worker, owner);
        let first = branch.borrow().accesses.len();
        let mut tables = shard.tables.borrow_mut();
        branch.borrow_mut().take_in(carried);
        branch.borrow_mut().undo.undo_rolled_back(&mut tables);
        let branch = branch.borrow();
        for access in &branch.accesses[first..] {
            access.enter(owner, &mut tables);
        }
    }
    panic_guard.leave();
    worker.now().since(began)
}

/// Takes out what was kept for a snapshot of a partition that is about to go.
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

/// Makes everybody who waits for a lock of a partition look again for its data. Returns their tasks, in order of arrival: to
/// be woken when the partition is where it will be.
pub fn unsettle(worker: &EngineWorker, family: &[TableId], number: u32) -> Vec<TaskId> {
    let shard = worker.shard();
    let is_in = |place: PartitionId| place.partition == number && family.contains(&place.table);
    let mut concerned: Vec<LockTicket> = shard
        .waits
        .borrow()
        .iter()
        .filter(|(_, wait)| is_in(wait.partition))
        .map(|(ticket, _)| ticket)
        .collect();
    concerned.sort_unstable_by_key(|ticket| ticket.0);
    let mut woken = Vec::new();
    for ticket in concerned {
        let mut waits = shard.waits.borrow_mut();
        let Some(wait) = waits.get(ticket) else { continue };
        let (owner, access, task) = (wait.owner, wait.access, wait.task);
        match wait.state {
            LockWaitState::Queued => {
                waits.settle(ticket, LockWaitState::Moved);
                drop(waits);
                // What is not held is not noted any more; it will be, where the data is then.
                shard.forget_access(owner, access);
                woken.push(task);
            }
            // It holds the lock, but the rows may be elsewhere when it goes on. Its task has been woken.
            LockWaitState::Granted => waits.settle(ticket, LockWaitState::Moved),
            LockWaitState::Moved | LockWaitState::Refused(_) => {}
        }
    }
    woken
}

/// Builds the lock tables of some partitions anew from what transactions hold.
pub fn relock(
    worker: &EngineWorker,
    tables: &mut atrapos_partition::partition::Tables,
    family: &[TableId],
    numbers: &[u32],
) {
    let is_in = |place: PartitionId| numbers.contains(&place.partition) && family.contains(&place.table);
    for table in family {
        for number in numbers {
            tables.partition_mut(PartitionId { table: *table, partition: *number }).locks = LockTable::new();
        }
    }
    worker.shard().each_branch(|owner, branch: &BranchRef| {
        let branch: &RefCell<Branch> = branch;
        branch.borrow().lock_again(owner, is_in, tables);
    });
}
