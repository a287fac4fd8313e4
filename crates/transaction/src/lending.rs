//! Lending: partitions of shared tables that several workers read in place, as long as nobody changes them.
//!
//! A shared table is read on many workers and rarely written: it was declared so, or the controller has found it so
//! ([`set_shared`], by the rules of `crates/adapt/src/sharing.rs`). A worker that has read a partition of it by
//! messages some times *borrows* it: its transactions read the owner's tree themselves from then on, under locks in a lock table
//! of the borrower's. A write *recalls* the partition first: every borrower drops it, and hands the locks that its transactions
//! have there to the owner, in one message.
//!
//! Owns: when a partition is lent, the messages by which it is lent and recalled, what may not be lent now, and the counts of reads
//! by message and in place ([`reads`]). Never: reads or changes a row, or grants a lock.
//!
//! # Correctness
//!
//! - *Rows*: a lent tree does not change. The owner's and the borrowers' lock tables are gated, so that a write is a conflict; it
//!   goes on when all borrowers have dropped their trees. The tree itself refuses changes until then.
//! - *Isolation* is strict two-phase locking, as without lending: while a partition is lent, all locks in it are shared, wherever
//!   they are. It is not lent while somebody holds or awaits an exclusive one, so a borrower reads nothing undecided. When it has been
//!   recalled, all locks in it are in the owner's lock table, as after a move ([`MovedBranch`]); nobody waits at a borrower.
//!   Direct transactions hold no locks, but no message arrives while one runs.
//! - *Ends*: a worker that has handed over locks of a transaction passes on its end, or adds the owner to the participants, as in a
//!   move. Messages between two workers keep their order, so the locks come before the end.
//! - *Deadlocks*: a borrower answers a recall at once, whatever its transactions wait for, so a recall closes no cycle. A write then waits
//!   at the owner like any other.
//! - *Durability*: a partition is lent when all that has been committed in it is durable; so who reads at a borrower waits for nothing.
//! - *Other changes* (a load, a statement, a change of the scheme) hold lending off on all workers first ([`hold_off_everywhere`]),
//!   which recalls all that is lent, if a table is shared or ever was. The controller shares none while one of them is under way.
//! - *A table that is no longer shared* is not lent again; what is lent stays lent until it is recalled.
//!
//! # Procedures
//!
//! A stored procedure whose route [says that it reads](Route::reading) is attempted as a direct transaction where its session lives, if
//! the partition that the route names is lent there ([`admits_in_place`]). Where it needs more than is lent, it gives up, has changed
//! nothing, and is sent to the owner as others are: so it never waits for messages in the middle. One that is sent is counted by
//! its sender, apart from reads by message, and where the table is shared it counts for the loans as one of these.
//!
//! # When it pays
//!
//! A read elsewhere costs two messages; lending to a worker and recalling from it costs three, and more where many transactions have
//! to hand locks over. A borrower counts what it reads in place, and says so when it gives the partition back: the owner lends it again
//! after few reads by message if its loans have paid so far, and after ever more if they have not (`loans`).

mod attempts;
mod loans;
mod reads;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use atrapos_partition::abort::Abort;
use atrapos_partition::partition::{Partition, PartitionId};
use atrapos_partition::planted::{Bug, planted};
use atrapos_partition::routing::{Destination, Route};
use atrapos_partition::schema::TableId;
use atrapos_runtime::{Handle, Lost, Reply, WorkerId};
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::{LockMode, LockTarget, TxnId};
use rustc_hash::FxHashMap;

use self::attempts::Attempts;
use self::loans::Loans;
use self::reads::Counts;
pub use self::reads::{ReadCounts, reads};
use crate::branch::MovedBranch;
use crate::deadlock::home_of;
use crate::jobs::{run_task_on_worker, start_on_worker};
use crate::shard::{EngineWorker, Shard};

/// The state of lending on one worker.
#[derive(Debug, Default)]
pub struct Lending {
    /// The loans of partitions that this worker owns, or has owned, by partition and borrower.
    loans: RefCell<FxHashMap<(PartitionId, WorkerId), Loans>>,
    /// Partitions that writes are recalling, once for each write.
    recalled: RefCell<Vec<PartitionId>>,
    /// The number of those that hold lending off.
    held_off: Cell<u32>,
    /// By table: true if the controller has it shared.
    shared: RefCell<Vec<bool>>,
    /// True once the controller has shared a table: loans may outlast the sharing.
    has_shared: Cell<bool>,
    /// Counts of what was read of each table, by message and in place.
    counts: Counts,
    /// Outcomes of the transactions that were attempted in lent partitions, by table.
    attempts: Attempts,
}

/// A partition that is being recalled: it is not lent again meanwhile.
struct Recalling<'a> {
    shard: &'a Shard,
    place: PartitionId,
}

impl<'a> Recalling<'a> {
    fn new(shard: &'a Shard, place: PartitionId) -> Recalling<'a> {
        shard.lending.recalled.borrow_mut().push(place);
        Recalling { shard, place }
    }
}

impl Drop for Recalling<'_> {
    fn drop(&mut self) {
        let mut recalled = self.shard.lending.recalled.borrow_mut();
        if let Some(at) = recalled.iter().position(|place| *place == self.place) {
            recalled.swap_remove(at);
        }
    }
}

impl Lending {
    /// Returns true if the controller has a table shared.
    fn shares(&self, table: TableId) -> bool {
        self.shared.borrow().get(table.at()).copied().unwrap_or(false)
    }
}

/// Returns true if partitions of a table may be lent.
pub(crate) fn is_shared(shard: &Shard, table: TableId) -> bool {
    shard.tables.borrow().catalog.tables[table.at()].is_shared || shard.lending.shares(table)
}

/// Returns true if a partition may be lent here now, or was once.
fn may_have_lent(shard: &Shard) -> bool {
    shard.lending.has_shared.get() || shard.tables.borrow().catalog.tables.iter().any(|table| table.is_shared)
}

/// Has a table shared on this worker from now on, or no longer. A table that is declared as shared stays so. An index is a table of its
/// own here. The caller excludes whoever holds lending off, and does so on all workers.
pub fn set_shared(worker: &EngineWorker, table: TableId, shared: bool) {
    worker.shard().lending.has_shared.set(true);
    let mut marks = worker.shard().lending.shared.borrow_mut();
    if marks.len() <= table.at() {
        marks.resize(table.at() + 1, false);
    }
    marks[table.at()] = shared;
}

/// Counts a message of a transaction of another worker that read a table and changed nothing.
pub(crate) fn count_message(shard: &Shard, table: TableId) {
    shard.lending.counts.add_message(table);
}

/// Returns true if a transaction that only reads may be attempted in a partition of another worker's: it is lent here, and what was
/// attempted in its table lately most often came to its end.
#[inline]
pub(crate) fn admits_in_place(shard: &Shard, place: PartitionId) -> bool {
    shard.tables.borrow().owned_at(place).is_some() && admits_lent(shard, place.table)
}

#[inline(never)]
fn admits_lent(shard: &Shard, table: TableId) -> bool {
    let admits = shard.lending.attempts.admit(table);
    shard.stats.in_place.add(u64::from(admits));
    admits
}

/// Notes that a transaction that was admitted in a lent partition needed more than was lent here.
pub(crate) fn note_refused_in_place(shard: &Shard, table: TableId) {
    shard.lending.attempts.note_refused(table);
}

/// Counts a procedure that is sent to another worker and only reads there, in the table that its route names. Returns true if that may be
/// lent.
#[inline(never)]
pub(crate) fn count_sent(shard: &Shard, table: TableId) -> bool {
    shard.lending.counts.add_sent(table);
    is_shared(shard, table)
}

/// Notes that a transaction of another worker has read in a partition of a shared table of this one, by a message; lends the partition
/// if it pays.
pub(crate) fn note_read(worker: &Rc<EngineWorker>, txn: TxnId, place: PartitionId) {
    note_read_of(worker, home_of(txn), place);
}

/// Notes that worker `reader` has sent a procedure that reads here what `route` leads to.
pub(crate) fn note_sent(worker: &Rc<EngineWorker>, reader: WorkerId, route: &Route) {
    let shard = worker.shard();
    let Destination::Owner(table, key) = &route.to else { return };
    let located = shard.tables.borrow().locate_checked(*table, key);
    if let Some((place, owner)) = located
        && owner == worker.id()
        && is_shared(shard, *table)
    {
        note_read_of(worker, reader, place);
    }
}

fn note_read_of(worker: &Rc<EngineWorker>, reader: WorkerId, place: PartitionId) {
    let shard = worker.shard();
    if reader == worker.id() {
        return;
    }
    let is_due = shard.lending.loans.borrow_mut().entry((place, reader)).or_default().note_read();
    if is_due {
        let may_lend = may_lend(shard, place, reader);
        if may_lend {
            lend(worker, place, reader);
        }
        let mut loans = shard.lending.loans.borrow_mut();
        let loans = loans.entry((place, reader)).or_default();
        if may_lend { loans.begin() } else { loans.put_off() }
    }
}

/// Returns true if a partition may be lent to a worker now.
fn may_lend(shard: &Shard, place: PartitionId, to: WorkerId) -> bool {
    let lending = &shard.lending;
    if lending.held_off.get() > 0 || lending.recalled.borrow().contains(&place) {
        return false;
    }
    let tables = shard.tables.borrow();
    let Some(partition) = tables.owned_at(place).filter(|found| !found.is_borrowed()) else { return false };
    let everything = LockTarget::Range { lower: KeyBuf::new(), upper: None };
    let is_durable = shard.commit_waiters.as_ref().is_none_or(|commit_waiters| {
        let newest = commit_waiters.undurable.borrow().of(place, &everything);
        commit_waiters.is_durable(newest)
    });
    let is_durable = is_durable || planted(Bug::LentUndurable);
    partition.locks.is_only_read() && is_durable && !partition.borrowers().contains(&to)
}

/// Lends a partition to a worker.
fn lend(worker: &Rc<EngineWorker>, place: PartitionId, to: WorkerId) {
    let shard = worker.shard();
    let borrowed = shard.tables.borrow_mut().partition_mut(place).lend(to);
    shard.stats.lent.add(1);
    worker.send(to, move |worker| on_lent(worker, place, Box::new(borrowed)));
}

/// Takes in a borrowed partition.
fn on_lent(worker: &Rc<EngineWorker>, place: PartitionId, borrowed: Box<Partition>) {
    let shard = worker.shard();
    shard.tables.borrow_mut().put(place, borrowed);
    outdate(shard);
}

/// Makes locations that were found before be looked for again.
fn outdate(shard: &Shard) {
    shard.scheme_changes.set(shard.scheme_changes.get() + 1);
    shard.lookups.outdate();
}

/// Returns true if an access has to recall the partition, which this worker owns, before it waits for its lock.
pub(crate) fn must_recall(shard: &Shard, place: PartitionId, mode: LockMode) -> bool {
    mode == LockMode::Exclusive && !shard.tables.borrow().partition(place).borrowers().is_empty()
}

/// Recalls a partition from all its borrowers. It may be lent again, or be elsewhere, when this has returned.
///
/// # Errors
/// The database is closing.
pub(crate) async fn recall(worker: &Rc<EngineWorker>, place: PartitionId) -> Result<(), Abort> {
    let shard = worker.shard();
    let _recalling = Recalling::new(shard, place);
    shard.stats.recalled.add(1);
    while let Some(borrower) = next_borrower(shard, place) {
        let owner = worker.id();
        let answer: Result<(), Lost> = worker
            .call(borrower, move |worker: &Rc<EngineWorker>, reply: Reply<()>| {
                on_recall(worker, place, owner);
                reply.send(worker, ());
            })
            .await;
        answer.map_err(|Lost| Abort::shutting_down())?;
    }
    Ok(())
}

fn next_borrower(shard: &Shard, place: PartitionId) -> Option<WorkerId> {
    shard.tables.borrow().owned_at(place).and_then(|partition| partition.borrowers().first().copied())
}

/// Gives a borrowed partition back to its owner, with the locks in it. Does nothing if it was given back already.
fn on_recall(worker: &Rc<EngineWorker>, place: PartitionId, owner: WorkerId) {
    let shard = worker.shard();
    let is_here = shard.tables.borrow().owned_at(place).is_some_and(Partition::is_borrowed);
    if !is_here {
        return;
    }
    let mut carried = Vec::new();
    let recent = shard.commit_waiters.as_ref().map(|commit_waiters| commit_waiters.undurable.borrow());
    shard.each_branch(|txn, branch| {
        let taken = branch.borrow_mut().carry_off(txn, &[place.table], place.partition, recent.as_deref());
        let Some((taken, places)) = taken else { return };
        branch.pass_to(owner);
        shard.waits.borrow_mut().move_up(txn, &places);
        if !planted(Bug::ReadersForgotten) {
            carried.push(taken);
        }
    });
    drop(recent);
    let reads = shard.tables.borrow_mut().drop_borrowed(place);
    shard.lending.counts.add_in_place(place.table, reads);
    outdate(shard);
    let given_back = GivenBack { place, borrower: worker.id(), reads, carried };
    worker.send(owner, move |worker| on_given_back(worker, given_back));
}

/// A partition that a borrower gives back.
struct GivenBack {
    place: PartitionId,
    borrower: WorkerId,
    /// The reads that the borrower has made in place.
    reads: u64,
    /// The locks that its transactions have there.
    carried: Vec<MovedBranch>,
}

/// Takes back a partition that this worker owns, from one borrower, with the locks that its transactions have in it.
fn on_given_back(worker: &Rc<EngineWorker>, given_back: GivenBack) {
    let shard = worker.shard();
    let GivenBack { place, borrower, reads, carried } = given_back;
    let handed_over = carried.len();
    for carried in carried {
        shard.take_in(worker, carried);
    }
    shard.tables.borrow_mut().partition_mut(place).given_back(borrower);
    let price =
        shard.lending.loans.borrow_mut().entry((place, borrower)).or_default().end(reads, handed_over);
    shard.lending.counts.add_price(place.table, price);
}

/// Holds lending off on this worker, and recalls all that it has lent, until [`allow`] is called as often.
async fn hold_off(worker: Rc<EngineWorker>) -> Result<(), Abort> {
    let shard = worker.shard();
    shard.lending.held_off.set(shard.lending.held_off.get() + 1);
    let lent: Vec<PartitionId> = {
        let tables = shard.tables.borrow();
        let lent = tables.owned().filter(|(_, partition)| !partition.borrowers().is_empty());
        lent.map(|(place, _)| place).collect()
    };
    for place in lent {
        recall(&worker, place).await?;
    }
    Ok(())
}

/// Ends one [`hold_off`] on this worker.
fn allow(worker: &Rc<EngineWorker>) {
    let shard = worker.shard();
    let held_off = &shard.lending.held_off;
    held_off.set(held_off.get().saturating_sub(1));
    // Partitions are cut, joined and moved, and tables dropped, while lending is held off.
    let tables = shard.tables.borrow();
    shard.lending.loans.borrow_mut().retain(|(place, _), _| tables.owned_at(*place).is_some());
}

/// Holds lending off on all workers, and recalls all that is lent, until [`allow_everywhere`] is called as often. Does nothing, and
/// returns false, if no table is shared or ever was.
///
/// # Errors
/// The database is closing.
pub async fn hold_off_everywhere(worker: &Rc<EngineWorker>) -> Result<bool, Abort> {
    if !may_have_lent(worker.shard()) {
        return Ok(false);
    }
    for other in (0..worker.workers()).map(|other| WorkerId(other as u16)) {
        let answer: Result<Result<(), Abort>, Lost> = worker
            .call(other, |worker: &Rc<EngineWorker>, reply: Reply<Result<(), Abort>>| {
                let own = Rc::clone(worker);
                worker.spawn_control(async move {
                    let held_off = hold_off(Rc::clone(&own)).await;
                    reply.send(&own, held_off);
                });
            })
            .await;
        answer.map_err(|Lost| Abort::shutting_down())??;
    }
    Ok(true)
}

/// Ends one [`hold_off_everywhere`] that returned true.
pub fn allow_everywhere(worker: &Rc<EngineWorker>) {
    for other in (0..worker.workers()).map(|other| WorkerId(other as u16)) {
        worker.send(other, allow);
    }
}

/// Lending held off on all workers, for a thread that is none, until this is dropped.
pub struct HeldOff<'a> {
    handle: &'a Handle<Shard>,
    /// Set if there is something to be held off.
    holds: bool,
}

impl<'a> HeldOff<'a> {
    /// Holds lending off, if a table is shared or ever was, and recalls all that is lent.
    ///
    /// # Errors
    /// The database is closing.
    pub fn new(handle: &'a Handle<Shard>) -> Result<HeldOff<'a>, Abort> {
        let held = run_task_on_worker(handle, WorkerId(0), async move |worker: Rc<EngineWorker>| {
            hold_off_everywhere(&worker).await
        });
        Ok(HeldOff { handle, holds: held?? })
    }
}

impl Drop for HeldOff<'_> {
    fn drop(&mut self) {
        if self.holds {
            // A database that is closing lends nothing more.
            let _ = start_on_worker(self.handle, WorkerId(0), allow_everywhere);
        }
    }
}
