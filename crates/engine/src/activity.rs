//! The activity of a database at a moment: what its workers do, which load each partition has, what waits for what.
//!
//! For monitors: a page or a terminal that shows a running database. Rates follow from two looks ([`Activity::heat_since`]).
//!
//! Owns: the report, by the names of tables and with keys as people read them. Never: keeps anything up to date while nobody looks; a look is
//! a short job on each worker between two of its transactions ([`atrapos_transaction::activity`]).
//!
//! Invariant: nothing waits for a look, and a look waits for no transaction and no change of the scheme. So it is not of one instant: a
//! partition that is on its way between two workers has no load.

mod heat;
mod key_text;
mod locks;

use std::collections::HashMap;

use atrapos_catalog::Definitions;
use atrapos_partition::abort::Abort;
use atrapos_partition::routing::{FamilyScheme, InstanceId};
use atrapos_partition::schema::{Catalog, TableId};
use atrapos_runtime::{Clock, Ticks};
use atrapos_storage::lock::TxnId;
use atrapos_transaction::activity as of_worker;
use atrapos_transaction::monitor::ClassCounts;
use atrapos_transaction::stats::Statistics;
use serde::{Deserialize, Serialize};

use self::key_text::key_text;
use crate::database::Database;

pub use self::locks::{LockActivity, LockWaitActivity};
pub use atrapos_transaction::monitor::OTHERS;

/// The activity of a database.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// Nanoseconds since the database was opened.
    pub at_ns: u64,
    /// The time since which loads are summed up, in nanoseconds since the opening; `None` if the database does not
    /// [observe itself](crate::Builder::fixed_scheme).
    pub loads_from_ns: Option<u64>,
    /// Counts of all workers since the opening.
    pub statistics: Statistics,
    /// The workers, in the order of their numbers.
    pub workers: Vec<WorkerActivity>,
    /// Transactions of each class, in the order of their names; none if the database does not observe itself.
    #[serde(default)]
    pub classes: Vec<ClassActivity>,
    /// The families of tables, in the order of their creation.
    pub families: Vec<FamilyActivity>,
    /// Lock requests that wait, of each worker the oldest; the oldest first.
    pub lock_waits: Vec<LockWait>,
    /// The state of the WAL; `None` for a database in memory.
    pub durability: Option<DurabilityActivity>,
}

/// The activity of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerActivity {
    /// Its number.
    pub worker: u16,
    /// The processing unit that it was placed on.
    pub cpu: Option<usize>,
    /// True if it is pinned there.
    pub is_pinned: bool,
    /// True if it may own data.
    pub is_available: bool,
    /// Nanoseconds since the opening in which it found work.
    pub busy_ns: u64,
    /// Nanoseconds since the opening in which it found none.
    pub idle_ns: u64,
    /// Transactions committed with their home here.
    pub committed: u64,
    /// Transactions with their home here that have been suspended and have not ended.
    pub suspended: usize,
    /// Transactions of other workers that have accessed data here and have not ended.
    pub participants: usize,
    /// Lock requests that wait here.
    pub waiting: usize,
    /// Messages sent to each worker since the opening.
    pub sent: Vec<u64>,
}

/// Transactions of a class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassActivity {
    /// Its name; empty for transactions of no class, and [`OTHERS`] for those of more classes than are told apart.
    pub name: String,
    /// Transactions since the opening, extrapolated from samples.
    pub transactions: u64,
}

/// A family of tables, which are cut at the same keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FamilyActivity {
    /// Its name.
    pub name: String,
    /// Its tables and indexes.
    pub tables: Vec<String>,
    /// The version of its scheme, which grows by one with every split, merge and move.
    pub version: u64,
    /// Its partitions, in the order of their keys.
    pub partitions: Vec<PartitionActivity>,
}

/// A partition of a family.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartitionActivity {
    /// Its number, which stays the same as long as it exists.
    pub number: u32,
    /// The worker that owns it; `None` if another instance does.
    pub worker: Option<u16>,
    /// The instance that owns it; `None` if this one does.
    pub instance: Option<u16>,
    /// Its first key; `None` for the partition that begins at the smallest key.
    pub lower: Option<String>,
    /// The first key after it; `None` for the partition with the greatest key.
    pub upper: Option<String>,
    /// Rows of each table of the family, in the order of [`FamilyActivity::tables`]; none while it moves, and of another instance's.
    pub rows: Vec<u64>,
    /// First keys of its sub-partitions but the first.
    pub bounds: Vec<String>,
    /// Nanoseconds that actions took in each sub-partition since [`Activity::loads_from_ns`], extrapolated from samples.
    pub load_ns: Vec<u64>,
    /// Synchronization points that began here since then, extrapolated.
    pub sync_points: u64,
    /// Keys and ranges for which there are locks or requests.
    pub locked: usize,
    /// Lock requests that wait.
    pub waiting: usize,
}

/// A lock request that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LockWait {
    /// The worker on which it waits.
    pub worker: u16,
    /// The transaction, as its number among those of its home and that home: `17@w0`.
    pub transaction: String,
    /// The table or index.
    pub table: String,
    /// The key, or the first one of the range.
    pub key: String,
    /// Nanoseconds for which it has waited.
    pub waited_ns: u64,
    /// A transaction that it waits for.
    pub behind: Option<String>,
}

/// The state of the WAL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurabilityActivity {
    /// Nanoseconds since the moment before which all commits are durable; 0 if all are.
    pub lag_ns: u64,
    /// The current epoch.
    pub epoch: u64,
    /// The newest durable epoch.
    pub durable_epoch: u64,
    /// Bytes written since the opening.
    pub bytes: u64,
    /// Times a stream was synced since the opening.
    pub syncs: u64,
    /// The failure after which nothing is written any more, if there was one.
    pub failure: Option<String>,
}

fn classes_activity(of_workers: &[of_worker::WorkerActivity]) -> Vec<ClassActivity> {
    let all: ClassCounts = of_workers.iter().map(|worker| &worker.classes).sum();
    let mut classes: Vec<_> = all
        .iter()
        .map(|(name, transactions)| ClassActivity { name: name.to_owned(), transactions })
        .collect();
    classes.sort_by(|a, b| a.name.cmp(&b.name));
    classes
}

impl Database {
    /// Returns the activity of the database now. Each worker is asked between two of its tasks, which takes time by the number of its
    /// partitions; nobody waits for another. It is meant to be called once a second or so.
    ///
    /// # Errors
    /// Fails if the database is shutting down, or the caller is on a worker's thread.
    pub fn activity(&self) -> Result<Activity, Abort> {
        let of_workers = self.on_all_workers(|worker| of_worker::of(worker))?;
        let (at_ns, loads_from_ns) = self.adaptive.times_ns();
        let catalog = self.catalogs.visible();
        let clock = self.handle.clock();
        let mut activity = Activity {
            at_ns,
            loads_from_ns,
            statistics: self.statistics(),
            workers: self.workers_activity(&of_workers),
            classes: classes_activity(&of_workers),
            families: Vec::new(),
            lock_waits: lock_waits(&of_workers, &catalog.definitions, clock),
            durability: self.durability_activity(),
        };
        let known = PartitionsOf::new(of_workers);
        let scheme = self.scheme();
        let named = scheme.families().zip(&catalog.families).filter(|((_, tables), _)| !tables.is_empty());
        activity.families = named
            .map(|((scheme, tables), (name, _))| known.family(name, scheme, &tables, &catalog, clock))
            .collect();
        Ok(activity)
    }

    fn workers_activity(&self, of_workers: &[of_worker::WorkerActivity]) -> Vec<WorkerActivity> {
        let clock = self.handle.clock();
        let pinned = self.adaptive.cores();
        let available = self.available_workers();
        let reports = self.worker_reports().into_iter().zip(of_workers).enumerate();
        reports
            .map(|(at, (report, activity))| WorkerActivity {
                worker: at as u16,
                cpu: pinned[at].or(self.cpus[at]),
                is_pinned: pinned[at].is_some(),
                is_available: available[at],
                busy_ns: clock.ns(report.runtime.busy_ticks),
                idle_ns: clock.ns(report.runtime.idle_ticks),
                committed: report.transactions.committed,
                suspended: activity.suspended,
                participants: activity.participants,
                waiting: activity.waiting,
                sent: activity.sent.clone(),
            })
            .collect()
    }

    fn durability_activity(&self) -> Option<DurabilityActivity> {
        let wal = self.wal_statistics()?;
        Some(DurabilityActivity {
            lag_ns: u64::try_from(wal.lag.as_nanos()).unwrap_or(u64::MAX),
            epoch: wal.epoch,
            durable_epoch: wal.durable_epoch,
            bytes: wal.bytes,
            syncs: wal.syncs,
            failure: self.durable().and_then(|durable| durable.wal.failure()).map(str::to_owned),
        })
    }
}

/// The partitions of all workers, by the first table of their family and their number.
struct PartitionsOf(HashMap<(TableId, u32), of_worker::PartitionActivity>);

impl PartitionsOf {
    fn new(of_workers: Vec<of_worker::WorkerActivity>) -> PartitionsOf {
        let all = of_workers.into_iter().flat_map(|worker| worker.partitions);
        // A table's number is never used again, while those of families are those of one catalog.
        let named = all.filter_map(|part| {
            let (table, _) = *part.rows.first()?;
            Some(((table, part.number), part))
        });
        PartitionsOf(named.collect())
    }

    fn family(
        &self,
        name: &str,
        scheme: &FamilyScheme,
        tables: &[TableId],
        catalog: &Catalog,
        clock: &Clock,
    ) -> FamilyActivity {
        let live: Vec<TableId> =
            catalog.live().map(|(table, _)| table).filter(|table| tables.contains(table)).collect();
        let text = |key: &[u8]| key_text(&catalog.definitions, live.first().copied(), key);
        let partition = |index: usize| {
            let (owner, number) = (scheme.owner(index), scheme.number(index));
            let instance = InstanceId::of_owner(owner);
            let known = live.iter().find_map(|table| self.0.get(&(*table, number)));
            let rows_of = |table: &TableId| {
                let rows = &known?.rows;
                rows.iter().find(|(of, _)| of == table).map(|(_, rows)| *rows)
            };
            PartitionActivity {
                number,
                worker: instance.is_none().then_some(owner.0),
                instance: instance.map(|instance| instance.0),
                lower: scheme.lower(index).map(text),
                upper: scheme.upper(index).map(text),
                rows: known.map_or_else(Vec::new, |_| {
                    live.iter().map(|table| rows_of(table).unwrap_or(0)).collect()
                }),
                bounds: known.iter().flat_map(|known| &known.bounds).map(|bound| text(bound)).collect(),
                load_ns: known
                    .iter()
                    .flat_map(|known| &known.costs)
                    .map(|cost| clock.ns(Ticks(*cost)))
                    .collect(),
                sync_points: known.map_or(0, |known| known.sync_points),
                locked: known.map_or(0, |known| known.locked),
                waiting: known.map_or(0, |known| known.waiting),
            }
        };
        FamilyActivity {
            name: name.to_owned(),
            tables: live.iter().map(|table| catalog.definitions.name_of(table.0).to_owned()).collect(),
            version: scheme.version(),
            partitions: (0..scheme.partitions()).map(partition).collect(),
        }
    }
}

/// Returns a transaction as people read it: its number among those of its home, and that home.
fn transaction_text(of: TxnId) -> String {
    format!("{}@w{}", of.sequence(), of.home())
}

fn lock_waits(
    of_workers: &[of_worker::WorkerActivity],
    definitions: &Definitions,
    clock: &Clock,
) -> Vec<LockWait> {
    let of = |(worker, activity): (usize, &of_worker::WorkerActivity)| {
        let shown = |wait: &of_worker::LockWait| LockWait {
            worker: worker as u16,
            transaction: transaction_text(wait.transaction),
            table: definitions.name_of(wait.table.0).to_owned(),
            key: key_text(definitions, Some(wait.table), &wait.key),
            waited_ns: clock.ns(wait.waited),
            behind: wait.behind.map(transaction_text),
        };
        activity.lock_waits.iter().map(shown).collect::<Vec<_>>()
    };
    let mut all: Vec<LockWait> = of_workers.iter().enumerate().flat_map(of).collect();
    all.sort_by_key(|wait| std::cmp::Reverse(wait.waited_ns));
    all
}
