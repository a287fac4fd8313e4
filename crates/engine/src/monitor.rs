//! What a worker observes of its partitions for the sake of adaptation (`ATraPos §V-D`, thesis §4.4).
//!
//! # What is kept
//!
//! Each partition of a family has, with its owner, two arrays over its *sub-partitions*: the cost of actions, in ticks of
//! the worker's clock (cycles where it has a cycle counter), and synchronization points, with the data they met with and the bytes exchanged. They are read
//! and emptied once per interval ([`Collected`]) and then cut anew into sub-partitions of equally many rows.
//!
//! # What it costs
//!
//! The paper records every action. Here one event in [`Monitor::sample_every`] is recorded, at random distances, and stands
//! for that many: an ordinary transaction pays for counting down. An *event* is the end of a transaction at its home, its
//! first suspension there, or an action for a transaction from elsewhere. Its cost is the time since its task was last polled (or
//! its message taken): what procedure, accesses and commit take, and nothing of what is done for others, or for nobody, in
//! between. A worker that has little to do spends more on looking for work, which is no load.
//!
//! Owns: the arrays, and when something is recorded. Never: decides anything, writes a line that another worker reads.
//!
//! Invariants: boundaries of sub-partitions ascend strictly inside the partition; both arrays have one entry per
//! sub-partition; memory is bounded.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use atrapos_runtime::{Clock, Ticks, WorkerId};
use atrapos_storage::lock::LockTarget;
use atrapos_storage::{KeyBuf, Tree};

use crate::branch::Access;
use crate::partition::{PartitionId, Tables};
use crate::schema::{Catalog, TableId};
use crate::shard::EngineWorker;

/// Synchronization points of one sub-partition of which the partners are remembered; more are only counted.
const REMEMBERED: usize = 16;

/// Partners of one synchronization point that are remembered.
const PARTNERS: usize = 16;

/// Bytes that every exchange is taken to have besides the rows.
const KEY_BYTES: u64 = 16;

/// One key of a table that takes part in a synchronization point.
pub(crate) type Partner = (TableId, KeyBuf);

/// One synchronization point, but for the sub-partition it is noted under.
#[derive(Clone, Debug)]
pub(crate) struct Meeting {
    /// What it met with: the table and key of each.
    pub(crate) partners: Vec<Partner>,
    /// Bytes that were exchanged.
    pub(crate) bytes: u64,
}

/// The synchronization points of a sub-partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meetings {
    /// How many were recorded.
    pub(crate) count: u64,
    /// Some of them, each as likely as any other.
    pub(crate) remembered: Vec<Meeting>,
}

/// The two arrays of one partition, kept with its first table.
#[derive(Clone, Debug)]
pub(crate) struct PartitionMonitor {
    /// First keys of all sub-partitions but the first.
    bounds: Vec<KeyBuf>,
    costs: Vec<u64>,
    meetings: Vec<Meetings>,
}

impl PartitionMonitor {
    fn new(bounds: Vec<KeyBuf>) -> PartitionMonitor {
        let parts = bounds.len() + 1;
        PartitionMonitor { bounds, costs: vec![0; parts], meetings: vec![Meetings::default(); parts] }
    }

    /// Cuts a partition into at most `parts` sub-partitions of about equally many rows.
    pub(crate) fn of(tree: &Tree, lower: Option<&[u8]>, parts: usize) -> PartitionMonitor {
        let rows = tree.len();
        let cut = |part: usize| tree.key_at(rows * part as u64 / parts as u64);
        let mut bounds: Vec<KeyBuf> = (1..parts).filter_map(cut).collect();
        bounds.dedup();
        // A first row is where the partition begins, for all purposes.
        let first = tree.first_key();
        bounds.retain(|bound| lower.is_none_or(|lower| **bound > *lower) && first.as_ref() != Some(bound));
        PartitionMonitor::new(bounds)
    }

    fn part_of(&self, key: &[u8]) -> usize {
        self.bounds.partition_point(|bound| **bound <= *key)
    }

    /// The arrays from `cut` on, for the partition that begins there. What was recorded between two boundaries around the cut
    /// is shared out evenly.
    pub(crate) fn split(&mut self, cut: &KeyBuf) -> PartitionMonitor {
        let at = self.bounds.partition_point(|bound| bound < cut);
        let mut right = PartitionMonitor {
            bounds: self.bounds.split_off(at),
            costs: self.costs.split_off(at + 1),
            meetings: self.meetings.split_off(at + 1),
        };
        if right.bounds.first() == Some(cut) {
            right.bounds.remove(0);
        } else {
            let half = self.costs[at] / 2;
            self.costs[at] -= half;
            right.costs.insert(0, half);
            let shared = &mut self.meetings[at];
            let half = shared.count / 2;
            shared.count -= half;
            right.meetings.insert(0, Meetings { count: half, remembered: shared.remembered.clone() });
        }
        right
    }

    /// Joins the arrays of the partition that begins at `cut`, right after this one.
    pub(crate) fn join(&mut self, cut: &KeyBuf, right: PartitionMonitor) {
        self.bounds.push(cut.clone());
        self.bounds.extend(right.bounds);
        self.costs.extend(right.costs);
        self.meetings.extend(right.meetings);
    }
}

/// What one partition has recorded in an interval.
#[derive(Clone, Debug)]
pub(crate) struct Collected {
    /// The family of tables.
    pub(crate) family: usize,
    /// The number of the partition.
    pub(crate) number: u32,
    /// First keys of all sub-partitions but the first.
    pub(crate) bounds: Vec<KeyBuf>,
    /// By sub-partition, what is sampled taken for all.
    pub(crate) costs: Vec<u64>,
    /// Synchronization points that were begun there.
    pub(crate) meetings: Vec<Meetings>,
    /// Rows of the family's first table in the partition.
    pub(crate) rows: u64,
}

/// What one worker has recorded in an interval.
#[derive(Clone, Debug)]
pub(crate) struct WorkerCollected {
    /// What was recorded of each partition.
    pub(crate) partitions: Vec<Collected>,
    /// Events that were recorded.
    pub(crate) samples: u64,
}

/// When the next event is recorded.
#[derive(Debug)]
pub(crate) struct Monitor {
    /// Events until the next one that is recorded. At 1 beginnings are noted, at 0 the event is recorded.
    left: Cell<u32>,
    /// When the event to be recorded began, as far as is known.
    began: Cell<Ticks>,
    /// State of the generator of distances.
    random: Cell<u64>,
    samples: Cell<u64>,
    /// About how long an event took lately, in ticks.
    usual: Cell<u64>,
    /// Ticks that an event may take however short others are.
    grace: u64,
    /// Mean distance between recorded events; 0 when nothing is recorded.
    sample_every: u32,
    /// Sub-partitions per partition.
    parts: usize,
    /// The first table of each family: its partitions keep the arrays.
    first_of: RefCell<Vec<TableId>>,
}

/// The first table of each table's family.
fn first_of_families(catalog: &Catalog) -> Vec<TableId> {
    let family_of = |at: usize| catalog.tables[at].family;
    let first = |at: usize| (0..=at).find(|other| family_of(*other) == family_of(at)).unwrap_or(at);
    (0..catalog.tables.len()).map(|at| TableId(first(at) as u16)).collect()
}

/// How many times as long as usual an event may take to be charged in full.
const PLAUSIBLE: u64 = 64;

/// What an event may take in any case.
const GRACE: Duration = Duration::from_micros(100);

/// Countdown where nothing is recorded.
const NEVER: u32 = u32::MAX;

impl Monitor {
    /// What a worker observes with, by one in so many events and so many sub-partitions per partition; nothing without.
    pub(crate) fn new(
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

    /// The tables are those of another catalog from now on.
    pub(crate) fn adopt(&self, catalog: &Catalog) {
        self.first_of.replace(first_of_families(catalog));
    }

    /// Counts an event; true when [`record`](Monitor::record) is to be called for it.
    #[inline(always)]
    pub(crate) fn is_due(&self) -> bool {
        let left = self.left.get() - 1;
        self.left.set(left);
        left <= 1
    }

    /// The worker begins, or goes on with, what may be the next event.
    #[inline(always)]
    pub(crate) fn begins(&self, worker: &EngineWorker) {
        if self.left.get() == 1 {
            self.began.set(worker.now());
        }
    }

    /// Whether anything is recorded.
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

    /// An event that was due. `touched` is what it accessed here, `sent` what it asked for elsewhere; `meets` tells whether
    /// it is the end of a transaction, at which all of it has met.
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
        for held in touched {
            let key = match &held.target {
                LockTarget::Key(key) | LockTarget::Range { lower: key, .. } => key,
            };
            let Some((place, monitor)) = self.monitor_of(&mut tables, held.place) else { continue };
            let part = monitor.part_of(key);
            monitor.costs[part] += each;
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
            // The sub-partition is named by a key of it.
            let key = part.checked_sub(1).map_or_else(KeyBuf::new, |bound| monitor.bounds[bound].clone());
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
            let meetings = &mut monitor.meetings[part];
            meetings.count += 1;
            let meeting = Meeting { partners, bytes };
            if meetings.remembered.len() < REMEMBERED {
                meetings.remembered.push(meeting);
            } else if draw % meetings.count < REMEMBERED as u64 {
                meetings.remembered[(draw % REMEMBERED as u64) as usize] = meeting;
            }
        }
    }

    /// What an event that seems to have taken so long is charged: when the system takes the core away for milliseconds, one
    /// sample would outweigh thousands.
    fn plausible(&self, ticks: u64) -> u64 {
        let usual = self.usual.get();
        let ticks = ticks.min(usual * PLAUSIBLE + self.grace);
        self.usual.set(usual - usual / 16 + ticks / 16);
        ticks
    }

    /// The arrays of the partition that `place` belongs to, and where they are kept.
    fn monitor_of<'t>(
        &self,
        tables: &'t mut Tables,
        place: PartitionId,
    ) -> Option<(PartitionId, &'t mut PartitionMonitor)> {
        let first = PartitionId { table: *self.first_of.borrow().get(place.table.at())?, ..place };
        let partition = tables.owned_at_mut(first)?;
        Some((first, partition.monitor.as_deref_mut()?))
    }

    /// The first table of each family.
    fn firsts(&self, tables: &Tables) -> Vec<usize> {
        let first_of = self.first_of.borrow();
        tables.catalog.live().map(|(table, _)| table.at()).filter(|at| first_of[*at].at() == *at).collect()
    }

    /// The cost of all that was recorded since it was taken last, on what this worker owns now.
    pub(crate) fn load_so_far(&self, worker: &EngineWorker) -> u64 {
        let shard = worker.shard();
        let mut tables = shard.tables.borrow_mut();
        let mut load = 0;
        for at in self.firsts(&tables) {
            let scheme = std::sync::Arc::clone(&tables.shards[at].scheme);
            for index in (0..scheme.partitions()).filter(|index| scheme.owner(*index) == worker.id()) {
                let place = PartitionId { table: TableId(at as u16), partition: scheme.number(index) };
                let monitor = tables.owned_at_mut(place).and_then(|partition| partition.monitor.as_deref());
                load += monitor.map_or(0, |monitor| monitor.costs.iter().sum());
            }
        }
        load
    }

    /// Takes what was recorded since the last time, and begins anew. Costs are those of all events, recorded or not.
    pub(crate) fn collect(&self, worker: &EngineWorker) -> WorkerCollected {
        let shard = worker.shard();
        let mut tables = shard.tables.borrow_mut();
        let mut partitions = Vec::new();
        for at in self.firsts(&tables) {
            let family = tables.catalog.tables[at].family;
            let scheme = std::sync::Arc::clone(&tables.shards[at].scheme);
            for index in (0..scheme.partitions()).filter(|index| scheme.owner(*index) == worker.id()) {
                let place = PartitionId { table: TableId(at as u16), partition: scheme.number(index) };
                let Some(partition) = tables.owned_at_mut(place) else { continue };
                let fresh = PartitionMonitor::of(&partition.tree, scheme.lower(index), self.parts);
                let slot =
                    partition.monitor.get_or_insert_with(|| Box::new(PartitionMonitor::new(Vec::new())));
                let PartitionMonitor { bounds, costs, meetings } = std::mem::replace(&mut **slot, fresh);
                let (number, rows) = (scheme.number(index), partition.tree.len());
                partitions.push(Collected { family, number, bounds, costs, meetings, rows });
            }
        }
        for meetings in partitions.iter_mut().flat_map(|partition| &mut partition.meetings) {
            meetings.count *= u64::from(self.sample_every);
        }
        WorkerCollected { partitions, samples: self.samples.take() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atrapos_storage::Key;

    fn monitor(bounds: &[u64], costs: &[u64]) -> PartitionMonitor {
        let mut monitor = PartitionMonitor::new(bounds.iter().map(Key::encode).collect());
        monitor.costs = costs.to_vec();
        monitor
    }

    #[test]
    fn splitting_and_joining_loses_nothing() {
        for cut in [1_u64, 5, 10, 15, 20, 25, 99] {
            let mut left = monitor(&[10, 20, 30], &[7, 100, 11, 13]);
            left.meetings[1].count = 9;
            let right = left.split(&cut.encode());
            assert_eq!(left.costs.len(), left.bounds.len() + 1, "cut at {cut}");
            assert_eq!(right.costs.len(), right.bounds.len() + 1, "cut at {cut}");
            assert!(left.bounds.iter().all(|bound| *bound < cut.encode()));
            assert!(right.bounds.iter().all(|bound| *bound > cut.encode()));
            left.join(&cut.encode(), right);
            assert_eq!(left.costs.iter().sum::<u64>(), 131, "cut at {cut}");
            assert_eq!(left.meetings.iter().map(|meetings| meetings.count).sum::<u64>(), 9, "cut at {cut}");
            assert!(left.bounds.is_sorted_by(|a, b| a < b), "cut at {cut}");
        }
    }

    #[test]
    fn a_key_lies_in_the_sub_partition_that_begins_at_or_before_it() {
        let monitor = monitor(&[10, 20], &[0, 0, 0]);
        let part = |key: u64| monitor.part_of(&key.encode());
        assert_eq!([part(0), part(9), part(10), part(19), part(20), part(u64::MAX)], [0, 0, 1, 1, 2, 2]);
    }
}
