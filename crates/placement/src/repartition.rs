//! Changes of the scheme while transactions run: splits, merges and moves, one partition at a time (`ATraPos §V-D`, where the
//! system stops meanwhile; thesis §4.4).
//!
//! # Steps of a change
//!
//! A *coordinator*, a task of one worker, carries out one change after the other; there is one coordinator at a time. Each
//! change concerns one partition of a family: the trees of all its tables and indexes that have this key range.
//!
//! 1. The owner makes the change between two tasks, so that no transaction is inside an action. Splitting and joining trees
//!    touches one path; locks, undo and waits of transactions that are suspended on the partition are assigned to the
//!    partitions that have the rows now. The cost does not depend on the number of rows.
//! 2. In a move, the owner sends the partition to the new owner in one message: trees, version counters, monitoring, and the
//!    locks and undo of each transaction. From then on it forwards actions that still arrive for the partition.
//! 3. The coordinator sends the new scheme to all other workers and publishes it for requests from outside.
//!
//! # Correctness
//!
//! - *Rows* are in one tree at any time, and a tree is with one worker, or in the message between two.
//! - *Locks*: every lock that is held is noted in the branch of its transaction; so the lock tables of the changed partitions
//!   are built anew from the branches. Locks that were compatible remain so.
//! - *Waits*: actions that wait for a lock of a changed partition are woken in the order of arrival and locate the data
//!   again. In a move they are sent on to the new owner.
//! - *Actions on the way* that come to a worker that is not the owner any more are passed on (see
//!   [`atrapos_transaction::tx`]). Messages between two workers keep their order, so they come after the partition.
//! - *Ends*: a transaction's home is not informed of moves. A worker that has passed on data or actions of a transaction
//!   passes on its end. If the home itself passes on data, the new owner becomes a participant.
//! - *Durability*: redo names tables and keys, and versions go with the partition, so the WAL does not depend on the
//!   scheme, and neither does recovery. What was committed and is not durable yet counts for every reader at the new owner
//!   ([`UndurableWrites::inherit`](atrapos_transaction::wal::UndurableWrites::inherit)).
//!
//! Invariant: a change that fails leaves everything as it was.

mod change;
mod locks;
mod moving;
mod on_owner;
mod relocating;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::routing::{FamilyScheme, InstanceId};
use atrapos_partition::schema::{Catalog, TableId, TreeKind};
use atrapos_runtime::{Lost, Reply, Ticks, WorkerId};
use atrapos_storage::{DisplayKey, KeyBuf};
use atrapos_transaction::lending::{allow_everywhere, hold_off_everywhere};
use atrapos_transaction::shard::EngineWorker;

use self::moving::on_move;
use self::on_owner::{on_merge, on_split};
use crate::published_scheme::PublishedScheme;

pub use self::change::{RepartitionReport, SchemeChange};
pub use self::locks::{relock, unsettle};

/// The ratio of the time for which the owners of a change are left alone after it to their time for it. Transactions that have
/// looked up data in a tree that was cut look it up again, so a change costs more than its owners' time.
const GENTLE: u32 = 24;

/// The shortest time between two changes that concern a worker.
const PAUSE_MIN: Duration = Duration::from_micros(300);

/// The longest.
const PAUSE_MAX: Duration = Duration::from_millis(2);

/// The time between any two changes: all other workers take note of the new scheme.
const PAUSE_ALL: Duration = Duration::from_micros(100);

/// The times until which workers are left alone, since they took part in a change. On many workers most changes concern others than
/// the change before.
struct Rest {
    of_worker: Vec<Ticks>,
    of_all: Ticks,
}

impl Rest {
    fn of(worker: &EngineWorker) -> Rest {
        let now = worker.now();
        Rest { of_worker: vec![now; worker.workers()], of_all: now }
    }

    /// Waits until these may be disturbed.
    async fn over(&self, worker: &EngineWorker, concerned: &[WorkerId]) {
        let of_worker = concerned.iter().filter_map(|one| self.of_worker.get(one.index()));
        let until = of_worker.fold(self.of_all, |until, of_worker| Ticks(until.0.max(of_worker.0)));
        if !worker.clock().is_virtual() {
            worker.sleep_until(until).await;
        }
    }

    /// Begins to leave those alone who have taken so long for a change.
    fn begin(&mut self, worker: &EngineWorker, concerned: &[WorkerId], taken: Duration) {
        let pause = (taken * GENTLE).clamp(PAUSE_MIN, PAUSE_MAX);
        let after = |pause| Ticks(worker.now().0 + worker.clock().ticks(pause).0);
        for one in concerned {
            if let Some(until) = self.of_worker.get_mut(one.index()) {
                *until = after(pause);
            }
        }
        self.of_all = after(PAUSE_ALL);
    }
}

/// Carries out changes, in order, as a task of `worker`. The caller excludes other coordinators.
///
/// # Errors
/// A change that makes no sense, or the database is closing; the changes before have been made.
pub async fn carry_out(
    worker: &Rc<EngineWorker>,
    changes: Vec<SchemeChange>,
    published: &PublishedScheme,
) -> Result<RepartitionReport, Abort> {
    // What is lent cannot be cut or moved.
    let holds = hold_off_everywhere(worker).await?;
    let done = carry_out_all(worker, changes, published).await;
    if holds {
        allow_everywhere(worker);
    }
    done
}

/// Carries out changes while nothing is lent.
async fn carry_out_all(
    worker: &Rc<EngineWorker>,
    changes: Vec<SchemeChange>,
    published: &PublishedScheme,
) -> Result<RepartitionReport, Abort> {
    let mut report = RepartitionReport::default();
    let (mut done, mut rest) = (Ok(()), Rest::of(worker));
    for change in changes {
        if worker.is_stopping() {
            done = Err(Abort::shutting_down());
            break;
        }
        done = carry_out_one(worker, change, published, &mut report, &mut rest).await;
        if done.is_err() {
            break;
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

/// The family that a change concerns.
struct Family {
    number: usize,
    /// The name of the table that the caller has named.
    table: &'static str,
    /// The scheme before the change.
    today: Arc<FamilyScheme>,
}

impl Family {
    /// Returns the workers that a change concerns: the owner of the partition that holds its key, and who gets it.
    fn concerned(&self, change: &SchemeChange) -> Vec<WorkerId> {
        let owner = |at: &KeyBuf| self.today.owner(self.today.partition_of(at));
        match change {
            SchemeChange::Split { at, .. } | SchemeChange::Merge { at, .. } => vec![owner(at)],
            SchemeChange::Move { at, to, .. } => vec![owner(at), *to],
        }
    }
}

/// A change that its owner has made.
struct Made {
    owner: WorkerId,
    scheme: Arc<FamilyScheme>,
    /// The time that each worker has taken.
    times: Vec<Ticks>,
}

/// Carries out one change and publishes its scheme.
async fn carry_out_one(
    worker: &Rc<EngineWorker>,
    change: SchemeChange,
    published: &PublishedScheme,
    report: &mut RepartitionReport,
    rest: &mut Rest,
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
    refuse_closed(worker, &catalog, meta.family)?;
    let today = Arc::clone(&worker.shard().tables.borrow().shards[table.at()].scheme);
    let family = Family { number: meta.family, table: meta.name, today };
    let concerned = family.concerned(&change);
    rest.over(worker, &concerned).await;
    let before = report.owner_time;
    let made = match change {
        SchemeChange::Split { at, .. } => {
            report.splits += 1;
            split_at(worker, &family, at).await?
        }
        SchemeChange::Merge { at, .. } => {
            report.merges += 1;
            merge_at(worker, &family, at).await?
        }
        SchemeChange::Move { at, to, .. } => match move_at(worker, &family, &at, to).await? {
            Some(made) => {
                report.moves += 1;
                made
            }
            None => return Ok(()),
        },
    };
    made.times.iter().for_each(|ticks| {
        report.add_time(Duration::from_nanos(worker.clock().ns(*ticks)));
    });
    rest.begin(worker, &concerned, report.owner_time - before);
    for other in
        (0..worker.workers()).map(|other| WorkerId(other as u16)).filter(|other| *other != made.owner)
    {
        let (number, scheme) = (family.number, Arc::clone(&made.scheme));
        // The coordinator's worker adopts the new scheme at once; the others when the message reaches them.
        if other == worker.id() {
            on_scheme(worker, number, &scheme);
        } else {
            worker.send(other, move |worker| on_scheme(worker, number, &scheme));
        }
    }
    published.replace_family(family.number, &made.scheme);
    Ok(())
}

/// Splits the partition that holds `at`, by its owner.
async fn split_at(worker: &Rc<EngineWorker>, family: &Family, at: KeyBuf) -> Result<Made, Abort> {
    let Some(scheme) = family.today.split(&at) else {
        return Err(misuse(format!(
            "table '{}' has a partition that begins at key {} already; split at another key",
            family.table,
            DisplayKey(&at)
        )));
    };
    let (scheme, owner) = (Arc::new(scheme), family.today.owner(family.today.partition_of(&at)));
    refuse_other_instance(family, owner)?;
    let (number, split) = (family.number, Arc::clone(&scheme));
    let times = call(worker, owner, move |worker| on_split(worker, number, &at, &split)).await?;
    Ok(Made { owner, scheme, times })
}

/// Joins the partition that begins at `at` to the one before it, by their owner.
async fn merge_at(worker: &Rc<EngineWorker>, family: &Family, at: KeyBuf) -> Result<Made, Abort> {
    let Some(scheme) = family.today.merge(&at) else {
        return Err(misuse(format!(
            "no partition of table '{}' begins at key {}; merge at the first key of one",
            family.table,
            DisplayKey(&at)
        )));
    };
    let right = family.today.partition_of(&at);
    let (owner, other) = (family.today.owner(right - 1), family.today.owner(right));
    if owner != other {
        return Err(misuse(format!(
            "the partitions of table '{}' that meet at key {} are on workers {} and {}; move one of them first",
            family.table,
            DisplayKey(&at),
            owner.0,
            other.0
        )));
    }
    refuse_other_instance(family, owner)?;
    let scheme = Arc::new(scheme);
    let (number, merged) = (family.number, Arc::clone(&scheme));
    let times = call(worker, owner, move |worker| on_merge(worker, number, &at, &merged)).await?;
    Ok(Made { owner, scheme, times })
}

/// Moves the partition that holds `at` to worker `to`. Returns `None` if it is there already.
async fn move_at(
    worker: &Rc<EngineWorker>,
    family: &Family,
    at: &KeyBuf,
    to: WorkerId,
) -> Result<Option<Made>, Abort> {
    if to.index() >= worker.workers() {
        return Err(misuse(format!(
            "there is no worker {}; the database has workers 0 to {}",
            to.0,
            worker.workers() - 1
        )));
    }
    let index = family.today.partition_of(at);
    let owner = family.today.owner(index);
    refuse_other_instance(family, owner)?;
    if owner == to {
        return Ok(None);
    }
    let scheme = Arc::new(family.today.moved(index, to));
    let (number, moved) = (family.number, Arc::clone(&scheme));
    let partition = family.today.number(index);
    let sent = worker.call(owner, move |worker, reply| {
        on_move(worker, number, partition, to, &moved, reply);
    });
    let times = sent.await.map_err(|Lost| Abort::shutting_down())?;
    Ok(Some(Made { owner, scheme, times }))
}

/// Refuses a change of a family with a closed table: the outcome of a statement on it is unknown, and it stays closed.
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

/// Refuses a change of a partition that another instance of a deployment owns.
fn refuse_other_instance(family: &Family, owner: WorkerId) -> Result<(), Abort> {
    InstanceId::of_owner(owner).map_or(Ok(()), |other| {
        Err(misuse(format!("the partition of table '{}' is that of {other}; change it there", family.table)))
    })
}

fn misuse(why: String) -> Abort {
    Abort::explained(AbortReason::Misuse, why)
}

/// Runs a change at the owner, by a message to the coordinator's own worker as well, since changes are made between tasks.
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

/// Returns the tables and indexes of a family.
fn tables_of(worker: &EngineWorker, family: usize) -> Vec<TableId> {
    let tables = worker.shard().tables.borrow();
    tables.catalog.live().filter(|(_, meta)| meta.family == family).map(|(table, _)| table).collect()
}

/// Adopts another scheme of a family, unless this worker has it already.
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
