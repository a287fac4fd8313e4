//! Monitoring: statistics that a worker collects on its partitions for adaptation (`ATraPos §V-D`, thesis §4.4).
//!
//! # Statistics
//!
//! Each partition of a family has, with its owner, two arrays over its *sub-partitions*: the cost of actions, in ticks
//! of the worker's clock (cycles where it has a cycle counter), and synchronization points (`meetings`), with the other data that
//! took part and the bytes exchanged. They are read and emptied once per interval ([`Collected`]), and sub-partitions
//! of equally many rows are cut again.
//!
//! # Sampling
//!
//! The paper records every action. Here one event in [`Monitor::sample_every`] is recorded, at random distances, and
//! stands for that many: an ordinary transaction pays for counting down. An *event* is the end of a transaction at its
//! home, its first suspension there, or an action for a transaction of another worker. Its cost is the time since its
//! task was last polled (or its message taken; of a direct transaction, since it began): the time of procedure, accesses and commit, without that of other tasks
//! in between. Idle time, which a worker spends looking for work, is no load. An access to a range is charged to all sub-partitions
//! that the range reaches into. What is read in place, on a partition that another worker has lent, is on no partition of this worker: its
//! cost is summed apart, and no scheme changes it.
//!
//! Events are recorded more often where fewer happen, or each takes longer, down to each, as far as that costs little ([`Pace`]): so a worker with a
//! hundred events in a second is known as well as one with a million, and rare events that take most of the time are recorded each. A worker that
//! shares its thread with others has its part of the time alone.
//!
//! The recorded ends of transactions at their homes are counted by [class](crate::stored::StoredProcedure::CLASS) ([`ClassCounts`]): the dynamic information of
//! `ATraPos §V-A`, by which a change of the load shows that the throughput does not tell.
//!
//! The sums of what samples stand for and of its squares tell how far samples can be trusted: a few that are very expensive, or stand for
//! very many events, say less than as many alike. A worker begins with every event, so that its first records do not stand for many.
//!
//! Owns: the arrays, and the choice of the events that are recorded. Never: decides on adaptation, or writes a cache
//! line that another worker reads.
//!
//! Invariants: boundaries of sub-partitions ascend strictly inside the partition; both arrays have one entry per
//! sub-partition; memory is bounded.

mod classes;
mod meetings;

pub use classes::{ClassCounts, OTHERS};

use std::cell::{Cell, RefCell};
use std::time::Duration;

use atrapos_partition::monitor::{Meetings, PartitionMonitor};
use atrapos_partition::partition::{Partition, PartitionId, Tables};
use atrapos_partition::schema::{Catalog, TableId};
use atrapos_runtime::{Clock, Ticks, WorkerId};
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::LockTarget;

use crate::branch::Access;
use crate::shard::EngineWorker;
use crate::tx::rounds::Rounds;

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
    /// The events that were recorded, as far as they concern its own partitions.
    pub samples: Samples,
    /// The cost of accesses to partitions that others have lent, in ticks, extrapolated from the sample.
    pub in_place: u64,
    /// The ticks in which the worker found work.
    pub busy: Ticks,
    /// The ticks in which it found none, or others of its thread had their turn.
    pub idle: Ticks,
    /// The number of workers of its thread.
    pub of_thread: usize,
    /// Transactions by class since the opening, with their home here.
    pub classes: ClassCounts,
}

/// The end of a transaction at its home.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedTxn<'a> {
    /// Its synchronization points with other workers.
    pub(crate) rounds: &'a Rounds,
    /// Its class; `None` if it does not count: it is a part of another instance's transaction, or runs again.
    pub(crate) class: Option<&'static str>,
}

/// The events that a worker has recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Samples {
    /// Their number.
    pub count: u64,
    /// The sum of the costs that they stand for, in ticks.
    pub sum: f64,
    /// The sum of the squares of these.
    pub squares: f64,
}

impl Samples {
    /// Returns the samples of both.
    #[must_use]
    pub fn and(self, other: Samples) -> Samples {
        let Samples { count, sum, squares } = other;
        Samples { count: self.count + count, sum: self.sum + sum, squares: self.squares + squares }
    }

    /// Returns those that came after `earlier`, which were the first of them; none if they were not.
    #[must_use]
    pub fn since(self, earlier: Samples) -> Samples {
        let Samples { count, sum, squares } = earlier;
        match self.count.checked_sub(count) {
            Some(count) => Samples { count, sum: self.sum - sum, squares: self.squares - squares },
            None => Samples::default(),
        }
    }

    /// Returns the mean square of what they stand for over the square of its mean: 1 if all are alike.
    #[must_use]
    pub fn dispersion(&self) -> f64 {
        if self.sum > 0.0 { (self.squares * self.count as f64 / (self.sum * self.sum)).max(1.0) } else { 1.0 }
    }
}

/// Records of a worker since the last collection.
#[derive(Clone, Debug)]
pub struct SoFar {
    /// The cost on the partitions that it owns now, and on those that others have lent; where workers share threads, the time for which it
    /// was busy.
    pub load: u64,
    /// The events.
    pub samples: Samples,
    /// Transactions by class since the opening, with their home here.
    pub classes: ClassCounts,
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
    samples: Cell<Samples>,
    classes: RefCell<ClassCounts>,
    in_place: Cell<u64>,
    usual: Cell<Usual>,
    /// The duration in ticks up to which an event is always plausible.
    grace: u64,
    pace: Cell<Pace>,
    /// The greatest mean distance; 0 if no events are recorded.
    sample_every: Cell<u32>,
    /// The same while events are recorded: the setting.
    period: u32,
    /// The busy and idle ticks of the worker at the last collection.
    spent: Cell<(u64, u64)>,
    /// The number of sub-partitions per partition.
    parts: usize,
    /// The first table of each family: its partitions keep the arrays.
    first_of: RefCell<Vec<TableId>>,
}

/// The pace at which events are recorded.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// The mean distance between recorded events, at most `sample_every`; an event stands for so many.
    distance: u32,
    /// Records since the distance was judged last, and when that was.
    records: u32,
    since: Ticks,
    /// The mean time that a record takes, in ticks.
    cost: u64,
    /// The time between records, in ticks, above which the distance halves whatever they take.
    seldom: u64,
}

impl Pace {
    /// Counts a record: the distance halves if records take very little of the worker's time since it was judged, and doubles if they take
    /// more. So many workers have the thread in turns.
    fn count(&mut self, now: Ticks, workers: usize, sample_every: u32) {
        self.records += 1;
        let (taken, judged) = (now.since(self.since).0 / workers as u64, u64::from(JUDGED));
        let is_seldom = taken > judged * (self.cost * SELDOM).min(self.seldom);
        if !is_seldom && self.records < JUDGED {
            return;
        }
        if is_seldom {
            self.distance = (self.distance / 2).max(1);
        } else if taken < judged * self.cost * OFTEN {
            self.distance = (self.distance * 2).min(sample_every);
        }
        (self.records, self.since) = (0, now);
    }

    /// Notes what a record has taken. A preemption in it counts as a few.
    fn took(&mut self, ticks: u64) {
        self.cost = ((7 * self.cost + ticks.min(8 * self.cost)) / 8).max(1);
    }
}

/// The mean duration of the events recorded lately, in ticks, and their number.
#[derive(Clone, Copy, Debug, Default)]
struct Usual {
    mean: f64,
    of: u32,
}

impl Usual {
    /// Returns the cost charged for an event that took `ticks`, and the mean with it. Implausible durations are cut: a sample during
    /// which the operating system preempted the worker for milliseconds would outweigh thousands. What is usual is a mean of
    /// what the events took, not of what they were charged, so that events that are rarely but really long are charged in full.
    fn charge(self, ticks: u64, grace: u64) -> (u64, Usual) {
        let charged = ticks.min((self.mean * PLAUSIBLE) as u64 + grace);
        let of = (self.of + 1).min(USUAL_OF);
        (charged, Usual { mean: self.mean + (ticks as f64 - self.mean) / f64::from(of), of })
    }
}

/// Returns the first table of each table's family.
fn first_of_families(catalog: &Catalog) -> Vec<TableId> {
    let family_of = |at: usize| catalog.tables[at].family;
    let first = |at: usize| (0..=at).find(|other| family_of(*other) == family_of(at)).unwrap_or(at);
    (0..catalog.tables.len()).map(|at| TableId(first(at) as u16)).collect()
}

/// The greatest multiple of the usual duration at which an event is charged in full: one event in a hundred may take as long as ten times all
/// others together.
const PLAUSIBLE: f64 = 1024.0;

/// The number of events over which the usual duration is a mean.
const USUAL_OF: u32 = 1024;

/// The time between two records, in multiples of what one takes, below which the distance between them doubles, and above which it halves: records take at
/// most some two hundredth of the time, but for `sample_every`.
const OFTEN: u64 = 256;
const SELDOM: u64 = 1_024;
/// The time between two records above which the distance halves in any case.
const SELDOM_MAX: Duration = Duration::from_millis(1);
/// Records after which the distance is judged, by the mean of the times between them: short and long events come mixed.
const JUDGED: u32 = 64;
/// The time that a record is taken to take before it is known.
const COST: Duration = Duration::from_nanos(250);

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
            samples: Cell::default(),
            classes: RefCell::default(),
            in_place: Cell::default(),
            usual: Cell::default(),
            grace: clock.ticks(GRACE).0,
            pace: Cell::new(Pace {
                distance: if clock.is_virtual() { sample_every } else { 1 },
                records: 0,
                since: Ticks(0),
                cost: clock.ticks(COST).0.max(1),
                seldom: clock.ticks(SELDOM_MAX).0,
            }),
            sample_every: Cell::new(sample_every),
            period: sample_every,
            spent: Cell::default(),
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

    /// Returns true if the next event is recorded: it has to keep its accesses.
    #[inline(always)]
    pub(crate) fn records_next(&self) -> bool {
        self.left.get() <= 1
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
        self.sample_every.get() > 0
    }

    /// Stops recording events, or goes on at the pace that it had.
    pub fn set_recording(&self, records: bool, worker: &EngineWorker) {
        self.sample_every.set(if records { self.period } else { 0 });
        // The time without records says nothing of the pace.
        self.pace.set(Pace { records: 0, since: worker.now(), ..self.pace.get() });
        self.draw();
    }

    fn draw(&self) {
        if !self.is_on() {
            return self.left.set(NEVER);
        }
        // Any distance from 1 on with this mean, so that no pattern of transactions keeps step with it.
        let spread = u64::from(self.pace.get().distance) * 2 - 1;
        self.left.set(1 + (self.random() % spread) as u32);
    }

    /// Returns a random number.
    fn random(&self) -> u64 {
        let mut random = self.random.get();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.random.set(random);
        random
    }

    /// Records an event that was due. `touched` has its accesses here. If it is the end of a transaction at its home, all of its
    /// synchronization points are recorded.
    #[cold]
    #[inline(never)]
    pub(crate) fn record(&self, worker: &EngineWorker, touched: &[Access], ended: Option<EndedTxn<'_>>) {
        let now = worker.now();
        if self.left.get() == 1 {
            return self.began.set(now);
        }
        let mut pace = self.pace.get();
        let stands_for = u64::from(pace.distance);
        if !worker.clock().is_virtual() {
            pace.count(now, worker.workers_of_thread(), self.sample_every.get());
            self.pace.set(pace);
        }
        self.draw();
        let before = self.began.get();
        if self.left.get() == 1 {
            // The next one is recorded as well.
            self.began.set(now);
        }
        if !self.is_on() {
            return;
        }
        if let Some(class) = ended.and_then(|ended| ended.class) {
            self.classes.borrow_mut().count(class, stands_for);
        }
        if touched.is_empty() {
            return;
        }
        // Time before the present step may have been spent waiting for work.
        let began = before.max(worker.step_time());
        let ticks = if worker.clock().is_virtual() { 1 } else { self.plausible(now.since(began).0) };
        self.note(worker, (ticks, stands_for), touched, ended.map(|ended| ended.rounds));
        pace.took(worker.now().since(now).0);
        self.pace.set(pace);
    }

    /// Charges an event of so many ticks, which stands for several, to what it touched, and records its synchronization points.
    fn note(
        &self,
        worker: &EngineWorker,
        (ticks, stands_for): (u64, u64),
        touched: &[Access],
        rounds: Option<&Rounds>,
    ) {
        let each = (ticks * stands_for) / touched.len() as u64;
        let mut tables = worker.shard().tables.borrow_mut();
        let mut own = 0;
        for access in touched {
            let is_in_place = tables.owned_at(access.partition).is_none_or(Partition::is_borrowed);
            if is_in_place {
                continue;
            }
            own += 1;
            let Some((_, monitor)) = self.monitor_of(&mut tables, access.partition) else { continue };
            match &access.target {
                LockTarget::Key(key) => monitor.charge(monitor.part_of(key), each),
                LockTarget::Range { lower, upper } => {
                    monitor.charge_evenly(monitor.parts_of(lower, upper.as_deref()), each);
                }
            }
        }
        self.in_place.set(self.in_place.get() + each * (touched.len() - own) as u64);
        if own > 0 {
            let cost = (ticks * stands_for) as f64 * own as f64 / touched.len() as f64;
            self.samples.set(self.samples.get().and(Samples { count: 1, sum: cost, squares: cost * cost }));
        }
        if let Some(rounds) = rounds {
            self.record_meetings(&mut tables, touched, rounds, stands_for);
        }
    }

    /// Returns the cost charged for an event that took `ticks`.
    fn plausible(&self, ticks: u64) -> u64 {
        let (charged, usual) = self.usual.get().charge(ticks, self.grace);
        self.usual.set(usual);
        charged
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

    /// Returns what was recorded since the last collection, on the partitions this worker owns now.
    ///
    /// A worker that shares its thread has too few of all samples to be compared with others by them: one during which the thread was preempted
    /// may stand for more than all of its work. But its turns are timed. A worker that owns nothing has no load that could be moved.
    pub fn so_far(&self, worker: &EngineWorker) -> SoFar {
        let shard = worker.shard();
        let mut tables = shard.tables.borrow_mut();
        let (mut load, mut owns) = (0, false);
        for at in self.firsts(&tables) {
            let scheme = std::sync::Arc::clone(&tables.shards[at].scheme);
            for index in (0..scheme.partitions()).filter(|index| scheme.owner(*index) == worker.id()) {
                let place = PartitionId { table: TableId(at as u16), partition: scheme.number(index) };
                let monitor = tables.owned_at_mut(place).and_then(|partition| partition.monitor.as_deref());
                load += monitor.map_or(0, PartitionMonitor::load);
                owns = true;
            }
        }
        if owns && worker.workers_of_thread() > 1 && !worker.clock().is_virtual() {
            load = worker.stats().busy_ticks.get() - self.spent.get().0;
        } else if owns {
            load += self.in_place.get();
        }
        SoFar { load, samples: self.samples.get(), classes: self.classes() }
    }

    /// Returns the transactions by class since the opening.
    pub(crate) fn classes(&self) -> ClassCounts {
        self.classes.borrow().clone()
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
        let stats = worker.stats();
        let spent = (stats.busy_ticks.get(), stats.idle_ticks.get());
        let before = self.spent.replace(spent);
        let (busy, idle) = (Ticks(spent.0 - before.0), Ticks(spent.1 - before.1));
        WorkerCollected {
            partitions,
            samples: self.samples.take(),
            in_place: self.in_place.take(),
            busy,
            idle,
            of_thread: worker.workers_of_thread(),
            classes: self.classes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Charges events of these durations, and returns the sums of what they took and of what was charged.
    fn charge(events: impl Iterator<Item = u64>) -> (f64, f64) {
        let (mut usual, mut took, mut charged) = (Usual::default(), 0.0, 0.0);
        for ticks in events {
            let (cost, next) = usual.charge(ticks, 200_000);
            (usual, took, charged) = (next, took + ticks as f64, charged + cost as f64);
        }
        (took, charged)
    }

    #[test]
    fn rare_heavy_events_are_charged_in_full() {
        // One of a hundred takes 8 ms, the others 1 us, at 2 ticks per ns.
        let (took, charged) = charge((0..10_000).map(|at| if at % 100 == 50 { 16_000_000 } else { 2_000 }));
        assert!(charged > 0.98 * took, "{charged} of {took}");
    }

    #[test]
    fn a_preemption_is_cut() {
        let (took, charged) = charge((0..10_000).map(|at| if at == 5_000 { 100_000_000 } else { 2_000 }));
        assert!(charged < 0.3 * took, "{charged} of {took}");
    }

    /// The pace of a worker whose records take 250 ns, after events of these durations, in ns.
    fn paced(events: impl Iterator<Item = u64>) -> Pace {
        paced_among(1, events)
    }

    /// The same where so many workers have the thread in turns.
    fn paced_among(workers: usize, events: impl Iterator<Item = u64>) -> Pace {
        let mut pace = Pace { distance: 512, records: 0, since: Ticks(0), cost: 250, seldom: 1_000_000 };
        let (mut now, mut left) = (0, 512);
        for ns in events {
            now += ns * workers as u64;
            left -= 1;
            if left == 0 {
                pace.count(Ticks(now), workers, 512);
                pace.took(250);
                left = pace.distance;
            }
        }
        pace
    }

    #[test]
    fn events_are_recorded_as_often_as_costs_little() {
        assert_eq!(
            paced((0..1_000_000).map(|_| 100)).distance,
            512,
            "a record takes a two hundredth already"
        );
        // To record each of them would take a twentieth of the time.
        let of_transactions = paced((0..1_000_000).map(|_| 5_000)).distance;
        assert!((16..=64).contains(&of_transactions), "{of_transactions}");
        assert_eq!(
            paced((0..10_000).map(|_| 10_000_000)).distance,
            1,
            "a hundred in a second are recorded each"
        );
    }

    #[test]
    fn a_worker_that_shares_its_thread_records_in_its_own_time() {
        let of_transactions = |workers| paced_among(workers, (0..1_000_000).map(|_| 5_000)).distance;
        assert_eq!(of_transactions(32), of_transactions(1));
    }

    #[test]
    fn rare_heavy_events_are_recorded_nearly_each() {
        for length in 100_000..100_100 {
            let mixed = (0..length).map(|at| if at % 100 == 50 { 8_000_000 } else { 1_000 });
            let distance = paced(mixed).distance;
            assert!(distance <= 4, "{distance} after {length} events");
        }
    }

    #[test]
    fn a_preemption_in_a_record_does_not_stop_the_others() {
        let mut pace = paced((0..1_000_000).map(|_| 5_000));
        pace.took(50_000_000);
        assert!(pace.cost < 500, "{pace:?}");
    }

    #[test]
    fn samples_that_differ_say_less() {
        let even = Samples { count: 100, sum: 100.0, squares: 100.0 };
        assert!((even.dispersion() - 1.0).abs() < 1e-9);
        let one = Samples { count: 1, sum: 100.0, squares: 10_000.0 };
        // 200 of 101 samples: their mean square is 100, the square of their mean nearly 4.
        assert!((even.and(one).dispersion() - 10_100.0 * 101.0 / 40_000.0).abs() < 1e-9);
        assert!((Samples::default().dispersion() - 1.0).abs() < 1e-9);
    }
}
