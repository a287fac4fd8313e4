//! Monitoring: statistics that a worker collects on its partitions for adaptation (`ATraPos §V-D`, thesis §4.4).
//!
//! # Statistics
//!
//! Each partition of a family has, with its owner, two arrays over its *sub-partitions*: the cost of actions, in ticks
//! of the worker's clock (cycles where it has a cycle counter), and synchronization points, with the other data that
//! took part and the bytes exchanged. They are read and emptied once per interval ([`Collected`]), and sub-partitions
//! of equally many rows are cut again.
//!
//! # Sampling
//!
//! The paper records every action. Here one event in [`Monitor::sample_every`] is recorded, at random distances, and
//! stands for that many: an ordinary transaction pays for counting down. An *event* is the end of a transaction at its
//! home, its first suspension there, or an action for a transaction of another worker. Its cost is the time since its
//! task was last polled (or its message taken): the time of procedure, accesses and commit, without that of other tasks
//! in between. Idle time, which a worker spends looking for work, is no load.
//!
//! Owns: the arrays, and the choice of the events that are recorded. Never: decides on adaptation, or writes a cache
//! line that another worker reads.
//!
//! Invariants: boundaries of sub-partitions ascend strictly inside the partition; both arrays have one entry per
//! sub-partition; memory is bounded.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use atrapos_partition::monitor::{Meeting, Meetings, PartitionMonitor, Partner};
use atrapos_partition::partition::{PartitionId, Tables};
use atrapos_partition::schema::{Catalog, TableId};
use atrapos_runtime::{Clock, Ticks, WorkerId};
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::LockTarget;

use crate::branch::Access;
use crate::shard::EngineWorker;

/// The number of partners of one synchronization point that are kept.
const PARTNERS: usize = 16;

/// The assumed bytes of every exchange besides the rows.
const KEY_BYTES: u64 = 16;

/// The statistics of one partition in an interval.
#[derive(Clone, Debug)]
pub struct Collected {
    /// The family of tables.
    pub family: usize,
    /// The number of the partition.
    pub number: u32,
    /// First keys of all sub-partitions but the first.
    pub bounds: Vec<KeyBuf>,
    /// The cost of each sub-partition, extrapolated from the sample.
    pub costs: Vec<u64>,
    /// The synchronization points that began in each sub-partition.
    pub meetings: Vec<Meetings>,
    /// Rows of the family's first table in the partition.
    pub rows: u64,
}

/// The statistics of one worker in an interval.
#[derive(Clone, Debug)]
pub struct WorkerCollected {
    /// The statistics of each partition.
    pub partitions: Vec<Collected>,
    /// Events that were recorded.
    pub samples: u64,
}

/// The sampling state of a worker.
#[derive(Debug)]
pub struct Monitor {
    /// Events until the next one that is recorded. At 1 beginnings are noted, at 0 the event is recorded.
    left: Cell<u32>,
    /// The time at which the event to be recorded began, as far as is known.
    began: Cell<Ticks>,
    /// State of the generator of distances.
    random: Cell<u64>,
    samples: Cell<u64>,
    /// A moving estimate of the duration of an event, in ticks.
    usual: Cell<u64>,
    /// The duration in ticks up to which an event is always plausible.
    grace: u64,
    /// The mean distance between recorded events; 0 if no events are recorded.
    sample_every: u32,
    /// The number of sub-partitions per partition.
    parts: usize,
    /// The first table of each family: its partitions keep the arrays.
    first_of: RefCell<Vec<TableId>>,
}

/// Returns the first table of each table's family.
fn first_of_families(catalog: &Catalog) -> Vec<TableId> {
    let family_of = |at: usize| catalog.tables[at].family;
    let first = |at: usize| (0..=at).find(|other| family_of(*other) == family_of(at)).unwrap_or(at);
    (0..catalog.tables.len()).map(|at| TableId(first(at) as u16)).collect()
}

/// The greatest multiple of the usual duration at which an event is charged in full.
const PLAUSIBLE: u64 = 64;

/// The duration up to which an event is always charged in full.
const GRACE: Duration = Duration::from_micros(100);

/// The countdown if no events are recorded.
const NEVER: u32 = u32::MAX;

impl Monitor {
    /// Creates the monitor of a worker, which records one in so many events, with so many sub-partitions per partition;
    /// without these settings it records no events.
    pub fn new(
        catalog: &Catalog,
        worker: WorkerId,
        clock: &Clock,
        settings: Option<(u32, usize)>,
    ) -> Monitor {
        let (sample_every, parts) = settings.unwrap_or((0, 1));
        let monitor = Monitor {
            left: Cell::new(NEVER),
            began: Cell::new(Ticks(0)),
            random: Cell::new(u64::from(worker.0) + 1),
            samples: Cell::new(0),
            usual: Cell::new(0),
            grace: clock.ticks(GRACE).0,
            sample_every,
            parts,
            first_of: RefCell::new(first_of_families(catalog)),
        };
        monitor.draw();
        monitor
    }

    /// Switches to the tables of another catalog.
    pub fn adopt(&self, catalog: &Catalog) {
        self.first_of.replace(first_of_families(catalog));
    }

    /// Counts an event; returns true if [`record`](Monitor::record) has to be called for it.
    #[inline(always)]
    pub(crate) fn is_due(&self) -> bool {
        let left = self.left.get() - 1;
        self.left.set(left);
        left <= 1
    }

    /// Returns true if the next event is recorded, or the beginning of the one after it: it has to keep its accesses.
    #[inline(always)]
    pub(crate) fn records_soon(&self) -> bool {
        self.left.get() <= 2
    }

    /// Counts an event that is not recorded.
    #[inline(always)]
    pub(crate) fn pass(&self) {
        self.left.set(self.left.get() - 1);
    }

    /// Notes that the worker begins, or resumes, a task that may be the next event.
    #[inline(always)]
    pub(crate) fn begins(&self, worker: &EngineWorker) {
        if self.left.get() == 1 {
            self.began.set(worker.now());
        }
    }

    /// Returns true if events are recorded.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.sample_every > 0
    }

    fn draw(&self) {
        if self.sample_every == 0 {
            return self.left.set(NEVER);
        }
        // Any distance from 1 on with a mean of `sample_every`, so that no pattern of transactions keeps step with it.
        let mut random = self.random.get();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.random.set(random);
        let spread = u64::from(self.sample_every) * 2 - 1;
        self.left.set(1 + (random % spread) as u32);
    }

    /// Records an event that was due. `touched` has its accesses here, `sent` those on other workers; `meets` is true
    /// for the end of a transaction, which is a synchronization point of all its accesses.
    #[cold]
    #[inline(never)]
    pub(crate) fn record(&self, worker: &EngineWorker, touched: &[Access], sent: &[Partner], meets: bool) {
        let now = worker.now();
        if self.left.get() == 1 {
            return self.began.set(now);
        }
        self.draw();
        let before = self.began.get();
        if self.left.get() == 1 {
            // The next one is recorded as well.
            self.began.set(now);
        }
        if self.sample_every == 0 || touched.is_empty() {
            return;
        }
        self.samples.set(self.samples.get() + 1);
        // Time before the present step may have been spent waiting for work.
        let began = before.max(worker.step_time());
        let ticks = if worker.clock().is_virtual() { 1 } else { self.plausible(now.since(began).0) };
        let each = (ticks * u64::from(self.sample_every)) / touched.len() as u64;
        let shard = worker.shard();
        let mut tables = shard.tables.borrow_mut();
        let mut units: Vec<(PartitionId, usize)> = Vec::new();
        for access in touched {
            let key = match &access.target {
                LockTarget::Key(key) | LockTarget::Range { lower: key, .. } => key,
            };
            let Some((place, monitor)) = self.monitor_of(&mut tables, access.partition) else { continue };
            let part = monitor.part_of(key);
            monitor.charge(part, each);
            if meets && !units.contains(&(place, part)) {
                units.push((place, part));
            }
        }
        if !meets || units.len() + sent.len() < 2 {
            return;
        }
        let row_bytes = |tables: &Tables, table: TableId| {
            tables.catalog.tables[table.at()].expected_row_bytes as u64 + KEY_BYTES
        };
        let Some((&(place, part), others)) = units.split_first() else { return };
        let mut partners: Vec<Partner> = Vec::new();
        for (other, part) in others {
            let Some((_, monitor)) = self.monitor_of(&mut tables, *other) else { continue };
            // A key in the sub-partition stands for it.
            let key = monitor.lower(*part).cloned().unwrap_or_default();
            let key = if key.is_empty() {
                KeyBuf::from(tables.shards[other.table.at()].bounds(*other).0)
            } else {
                key
            };
            partners.push((other.table, key));
        }
        partners.extend(sent.iter().cloned());
        partners.truncate(PARTNERS);
        let bytes = partners.iter().map(|(table, _)| row_bytes(&tables, *table)).sum();
        let draw = self.random.get();
        if let Some((_, monitor)) = self.monitor_of(&mut tables, place) {
            monitor.note_meeting(part, Meeting { partners, bytes }, draw);
        }
    }

    /// Returns the cost charged for an event that took `ticks`. Implausible durations are cut: a sample during which
    /// the operating system preempted the worker for milliseconds would outweigh thousands.
    fn plausible(&self, ticks: u64) -> u64 {
        let usual = self.usual.get();
        let ticks = ticks.min(usual * PLAUSIBLE + self.grace);
        self.usual.set(usual - usual / 16 + ticks / 16);
        ticks
    }

    /// Returns the arrays of the partition that `place` belongs to, and the partition that keeps them.
    fn monitor_of<'t>(
        &self,
        tables: &'t mut Tables,
        place: PartitionId,
    ) -> Option<(PartitionId, &'t mut PartitionMonitor)> {
        let first = PartitionId { table: *self.first_of.borrow().get(place.table.at())?, ..place };
        let partition = tables.owned_at_mut(first)?;
        Some((first, partition.monitor.as_deref_mut()?))
    }

    /// Returns the first table of each family.
    fn firsts(&self, tables: &Tables) -> Vec<usize> {
        let first_of = self.first_of.borrow();
        tables.catalog.live().map(|(table, _)| table.at()).filter(|at| first_of[*at].at() == *at).collect()
    }

    /// Returns the cost recorded since the last collection, on the partitions this worker owns now.
    pub fn load_so_far(&self, worker: &EngineWorker) -> u64 {
        let shard = worker.shard();
        let mut tables = shard.tables.borrow_mut();
        let mut load = 0;
        for at in self.firsts(&tables) {
            let scheme = std::sync::Arc::clone(&tables.shards[at].scheme);
            for index in (0..scheme.partitions()).filter(|index| scheme.owner(*index) == worker.id()) {
                let place = PartitionId { table: TableId(at as u16), partition: scheme.number(index) };
                let monitor = tables.owned_at_mut(place).and_then(|partition| partition.monitor.as_deref());
                load += monitor.map_or(0, PartitionMonitor::load);
            }
        }
        load
    }

    /// Takes the statistics since the last collection, and resets them. Costs are extrapolated to all events.
    pub fn collect(&self, worker: &EngineWorker) -> WorkerCollected {
        let shard = worker.shard();
        let mut tables = shard.tables.borrow_mut();
        let mut partitions = Vec::new();
        for at in self.firsts(&tables) {
            let family = tables.catalog.tables[at].family;
            let scheme = std::sync::Arc::clone(&tables.shards[at].scheme);
            for index in (0..scheme.partitions()).filter(|index| scheme.owner(*index) == worker.id()) {
                let place = PartitionId { table: TableId(at as u16), partition: scheme.number(index) };
                let Some(partition) = tables.owned_at_mut(place) else { continue };
                let fresh = PartitionMonitor::of(partition.tree(), scheme.lower(index), self.parts);
                let slot =
                    partition.monitor.get_or_insert_with(|| Box::new(PartitionMonitor::new(Vec::new())));
                let (bounds, costs, meetings) = std::mem::replace(&mut **slot, fresh).into_parts();
                let (number, rows) = (scheme.number(index), partition.tree().len());
                partitions.push(Collected { family, number, bounds, costs, meetings, rows });
            }
        }
        for meetings in partitions.iter_mut().flat_map(|partition| &mut partition.meetings) {
            meetings.count *= u64::from(self.sample_every);
        }
        WorkerCollected { partitions, samples: self.samples.take() }
    }
}
