//! Loads that do not stay where they are: the loads of the latest intervals by key, and schemes judged by all of them.
//!
//! A scheme that is made for one interval is worse than none where the load is elsewhere in the next. Where it has moved several times
//! within the longest intervals, a scheme is worth its throughput over the loads of all these intervals.
//!
//! Owns: the loads of the latest intervals, and which of them count. Never: searches; see [`spread`](crate::spread).
//!
//! Invariants: memory is bounded; loads are shares of the whole, so that a load that only rises or falls has not moved.

use std::collections::VecDeque;

use super::Rules;
use super::trend::{self, Gridded};
use crate::cost::{Weights, evaluate};
use crate::error::AdaptError;
use crate::extents::{Extents, TraceKey};
use crate::ids::{TableIndex, WorkerIndex};
use crate::platform::Platform;
use crate::scheme::PlannedScheme;
use crate::trace::WorkloadTrace;
use crate::workload::Workload;

/// Number of intervals that are remembered, and of their slices and partners of synchronization points in all.
const NOTED_MAX: usize = 12;
const NOTED_SIZE_MAX: usize = 1 << 19;
/// Number of moments of that time at which the load is looked at.
const COMING: usize = 16;

/// The load of one interval.
#[derive(Debug, Clone)]
struct Noted {
    at_ns: u64,
    /// Number of samples of equal cost; `None` where it is not of samples.
    samples: Option<f64>,
    extents: Extents,
    /// Costs of actions alone and synchronization points, by slices of `extents`; costs add up to 1.
    workload: Workload,
}

impl Noted {
    fn of(at_ns: u64, trace: &WorkloadTrace, mut workload: Workload) -> Option<Self> {
        let extents = Extents::of(trace)?;
        let total = workload.work_cycles();
        (total > 0.0).then(|| {
            workload.scale(1.0 / total);
            Self { at_ns, samples: trace.samples_effective(), extents, workload }
        })
    }

    fn size(&self) -> usize {
        let partners = self.workload.sync_points().iter().map(|point| point.partners.len());
        self.workload.all_costs().len() + partners.sum::<usize>()
    }

    fn table_count(&self) -> usize {
        self.extents.table_count()
    }

    fn table(&self, table: usize) -> (&[TraceKey], &[f64]) {
        (self.extents.starts(table), self.workload.table_costs(TableIndex(table as u32)))
    }

    /// The first key of the last slice of a table, and its share of the load.
    fn end(&self, table: usize) -> Option<(&TraceKey, f64)> {
        if table >= self.table_count() {
            return None;
        }
        let (starts, shares) = self.table(table);
        starts.last().zip(shares.last().copied())
    }

    /// The least and the greatest number of rows that a table can have: a trace may give all slices of a partition equally many, rounded up.
    fn rows(&self, table: usize) -> (f64, f64) {
        let rows = self.extents.rows(table);
        let said = rows.iter().sum::<f64>();
        (said - rows.len() as f64, said)
    }

    /// The share of the load that has certainly moved across some key. Where a key is inside of a slice of the other load, any division
    /// of that slice is possible.
    fn moved(&self, other: &Self) -> f64 {
        let both = (0..self.table_count()).map(|table| (self.table(table), other.table(table)));
        both.map(|(a, b)| one_sided(a, b).max(one_sided(b, a))).fold(0.0, f64::max)
    }

    /// Returns true if the load was another one then.
    fn differs(&self, other: &Self, rules: &Rules) -> bool {
        let variance = |noted: &Self| noted.samples.map_or(0.0, |samples| 1.0 / samples.max(1.0));
        let noise = rules.moved_deviations * (variance(self) + variance(other)).sqrt();
        self.table_count() != other.table_count() || self.moved(other) > rules.moved_min + noise
    }
}

/// The greatest difference of the two cumulative loads at the first keys of `a`.
fn one_sided(a: (&[TraceKey], &[f64]), b: (&[TraceKey], &[f64])) -> f64 {
    let (mut of_a, mut low, mut at, mut most) = (0.0, 0.0, 0, 0.0_f64);
    for (key, share) in a.0.iter().zip(a.1) {
        while b.0.get(at + 1).is_some_and(|next| next <= key) {
            low += b.1[at];
            at += 1;
        }
        let begins_here = b.0.get(at).is_some_and(|begin| begin == key);
        let high = if begins_here { low } else { low + b.1.get(at).copied().unwrap_or(0.0) };
        most = most.max(low - of_a).max(of_a - high);
        of_a += share;
    }
    most
}

/// The number of times that the load has become another one: the way that it has gone, over the greatest distance between any two of the loads. An interval
/// that has a part of two loads is half of the way.
fn turns(recent: &[&Noted], rules: &Rules) -> f64 {
    let (mut way, mut reference) = (0.0, 0);
    let mut greatest = 0.0_f64;
    for (at, noted) in recent.iter().enumerate() {
        if noted.differs(recent[reference], rules) {
            way += noted.moved(recent[reference]);
            reference = at;
        }
        let distances = recent[..at].iter().map(|other| noted.moved(other));
        greatest = distances.fold(greatest, f64::max);
    }
    if greatest > 0.0 { way / greatest } else { 0.0 }
}

/// The loads of the latest intervals, the latest last.
#[derive(Debug, Clone, Default)]
pub(super) struct Flux {
    rules: Rules,
    noted: VecDeque<Noted>,
    /// Set if the latest interval had the load of the one before.
    steady: bool,
}

/// The loads by which a scheme is judged, by slices of one trace; costs of each add up to 1.
#[derive(Debug, Clone)]
pub(super) struct Outlook {
    loads: Vec<Workload>,
}

impl Flux {
    pub(super) const fn new(rules: Rules) -> Self {
        Self { rules, noted: VecDeque::new(), steady: false }
    }

    /// Remembers the load of an interval that ended at `at_ns`: `workload` has the costs of actions alone of `trace`. The one that ended at `kept_ns` stays
    /// when others are forgotten.
    pub(super) fn note(
        &mut self,
        at_ns: u64,
        trace: &WorkloadTrace,
        workload: Workload,
        kept_ns: Option<u64>,
    ) {
        let Some(noted) = Noted::of(at_ns, trace, workload) else { return };
        if self.noted.back().is_some_and(|last| last.table_count() != noted.table_count()) {
            self.noted.clear();
        }
        self.steady = self.noted.back().is_some_and(|last| !noted.differs(last, &self.rules));
        self.noted.push_back(noted);
        let size = |noted: &VecDeque<Noted>| noted.iter().map(Noted::size).sum::<usize>();
        while self.noted.len() > NOTED_MAX || self.noted.len() > 1 && size(&self.noted) > NOTED_SIZE_MAX {
            let last = self.noted.len() - 1;
            let is_kept = |noted: &Noted| kept_ns == Some(noted.at_ns);
            let oldest = self.noted.iter().position(|noted| !is_kept(noted)).filter(|at| *at < last);
            self.noted.remove(oldest.unwrap_or(0));
        }
    }

    /// Returns whether the latest interval had the load of the one before.
    pub(super) const fn is_steady(&self) -> bool {
        self.steady
    }

    /// The samples of the intervals after `since_ns`, the latest of them that [`pooled`](Self::pooled) may take.
    pub(super) fn samples_since(&self, since_ns: u64) -> f64 {
        let since = self.noted.iter().filter(|noted| noted.at_ns > since_ns);
        since.filter_map(|noted| noted.samples).sum()
    }

    /// The latest interval together with those before it that had the same load, as far back as `since_ns`, and the number of their samples: as
    /// many as say more of `workers` workers than sampling noise hides. `None` if the latest is the only one.
    pub(super) fn pooled(&self, since_ns: u64, workers: usize) -> Option<(Workload, f64)> {
        let last = self.noted.back()?;
        let (mut samples, mut pooled) = (last.samples?, None);
        for noted in self.noted.iter().rev().skip(1) {
            let is_of_use = noted.at_ns > since_ns && samples < self.rules.pooled_samples * workers as f64;
            let Some(more) = noted.samples.filter(|_| is_of_use && !noted.differs(last, &self.rules)) else {
                break;
            };
            let mut workload = noted.workload.resampled(&noted.extents, &last.extents, &last.workload);
            workload.scale(more);
            let of_last = || {
                let mut workload = last.workload.clone();
                workload.scale(samples);
                workload
            };
            pooled.get_or_insert_with(of_last).add(&workload);
            samples += more;
        }
        pooled.map(|pooled| (pooled, samples))
    }

    /// Returns true if this table is written at the end of its keys, and grows there: its last slice begins later than it did, and has as much of the
    /// load, and the table has more rows. Without more rows it was cut finer, where its last key may be hot.
    pub(super) fn grows_at_end(&self, table: usize) -> bool {
        let latest_first = self.noted.iter().rev();
        let mut ends = latest_first.filter_map(|noted| Some((noted.end(table)?, noted.rows(table))));
        let Some(((begin, share), (rows, _))) = ends.next() else { return false };
        let before = ends.find(|((before, _), _)| *before != begin);
        share >= self.rules.end_min
            && before.is_some_and(|((before, before_share), (_, before_rows))| {
                before < begin && share >= self.rules.end_kept * before_share && rows > before_rows
            })
    }

    /// Returns true if any table grows at the end of its keys.
    pub(super) fn grows(&self) -> bool {
        self.noted.back().is_some_and(|last| (0..last.table_count()).any(|table| self.grows_at_end(table)))
    }

    /// Returns true if the load of the latest interval is another one than that of the one that ended at `at_ns`; `None` where that is not known.
    pub(super) fn has_moved_since(&self, at_ns: u64) -> Option<bool> {
        let then = self.noted.iter().find(|noted| noted.at_ns == at_ns)?;
        Some(self.noted.back()?.differs(then, &self.rules))
    }

    /// The loads that schemes are to be judged by, if the load has moved several times of late: by slices of the latest.
    pub(super) fn outlook(&self, interval_max_ns: u128) -> Option<Outlook> {
        let last = self.noted.back()?;
        let within = |intervals: f64| -> Vec<&Noted> {
            let ns = interval_max_ns as f64 * intervals;
            let is_recent = |noted: &&Noted| super::ns_between(noted.at_ns, last.at_ns) as f64 <= ns;
            self.noted.iter().filter(is_recent).collect()
        };
        let rules = &self.rules;
        let recent = within(rules.more_turns_within);
        let extents = &last.extents;
        let past: Vec<Workload> = recent
            .iter()
            .map(|noted| noted.workload.resampled(&noted.extents, extents, &last.workload))
            .collect();
        let gridded = recent.iter().zip(&past);
        let gridded: Vec<Gridded> =
            gridded.map(|(noted, load)| Gridded::of(noted.at_ns, load.all_costs(), extents)).collect();
        let loads = match (trend::speed(&gridded, rules), gridded.last()) {
            (Some(speed), Some(now)) => {
                let step_ns = (interval_max_ns * u128::from(rules.intervals_to_come)) as f64 / COMING as f64;
                let moved = |at: usize| now.moved_by(speed * step_ns * at as f64, extents);
                (0..=COMING).map(|at| last.workload.with_costs(moved(at))).collect()
            }
            _ if turns(&within(rules.turns_within), rules) >= rules.turns => past,
            _ if turns(&recent, rules) >= rules.more_turns => past,
            _ => return None,
        };
        Some(Outlook { loads })
    }
}

impl Outlook {
    /// Number of intervals that it is of.
    pub(super) fn loads_count(&self) -> usize {
        self.loads.len()
    }

    /// All these loads as one.
    pub(super) fn together(&self) -> Workload {
        let mut together = self.loads[0].clone();
        self.loads[1..].iter().for_each(|load| together.add(load));
        together
    }

    /// A scheme that divides each of these loads evenly, as far as slices allow: the heaviest slices first, each to the worker that has least of
    /// the load in which it would have most. Slices that no load needs stay where they are. What meets is not looked at.
    pub(super) fn dealt(&self, today: &PlannedScheme, platform: &Platform, rules: &Rules) -> PlannedScheme {
        let workload = &self.loads[0];
        let mut owners = today.slice_owners(workload);
        let workers: Vec<WorkerIndex> =
            platform.available_ranks().iter().map(|rank| platform.worker(*rank)).collect();
        let share = |load: &Workload| 1.0 / load.work_cycles().max(f64::MIN_POSITIVE);
        let shares: Vec<f64> = self.loads.iter().map(share).collect();
        let of_slice = |slice: usize| {
            self.loads.iter().zip(&shares).map(move |(load, share)| load.all_costs()[slice] * share)
        };
        let most = |slice: usize| of_slice(slice).fold(0.0, f64::max);
        let mut order: Vec<(f64, usize)> = (0..owners.len()).map(|slice| (most(slice), slice)).collect();
        order.retain(|(most, _)| *most > rules.dealt_min / workers.len() as f64);
        order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut has = vec![vec![0.0; self.loads.len()]; workers.len()];
        for (_, slice) in order {
            let after = |worker: usize| {
                has[worker].iter().zip(of_slice(slice)).map(|(has, more)| has + more).fold(0.0, f64::max)
            };
            let least = (0..workers.len()).map(|worker| (after(worker), worker));
            let Some((_, worker)) = least.min_by(|a, b| a.0.total_cmp(&b.0)) else { continue };
            has[worker].iter_mut().zip(of_slice(slice)).for_each(|(has, more)| *has += more);
            owners[slice] = workers[worker];
        }
        PlannedScheme::from_slice_owners(workload, &owners)
    }

    /// The measure of all loads one after the other under a scheme.
    pub(super) fn strain(
        &self,
        scheme: &PlannedScheme,
        platform: &Platform,
        weights: &Weights,
    ) -> Result<Strain, AdaptError> {
        let count = self.loads.len() as f64;
        let mut sum = Strain { busy_max: 0.0, load_max: 0.0, sync: 0.0 };
        for load in &self.loads {
            let cost = evaluate(load, platform, scheme, weights)?;
            // The throughput over all of them is that of the mean of these.
            sum.busy_max += 1.0 / cost.busy_max_ratio();
            sum.load_max += cost.load_max_ratio();
            sum.sync += cost.sync_ratio();
        }
        Ok(Strain { busy_max: count / sum.busy_max, load_max: sum.load_max / count, sync: sum.sync / count })
    }
}

/// Measures of a scheme under several loads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Strain {
    /// The busiest worker, its synchronization included, over the mean work: the throughput is the inverse of it.
    pub(super) busy_max: f64,
    /// The load of the most loaded worker over the mean.
    pub(super) load_max: f64,
    /// Synchronization as a share of the work.
    pub(super) sync: f64,
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::memory::Rejected;
    use super::super::{Controller, ControllerSettings, Trigger, Verdict, WaitReason};
    use super::*;
    use crate::trace::{PartitionTrace, TRACE_FORMAT, TableTrace};
    use atrapos_topology::Machine;

    const SECOND: u64 = 1_000_000_000;
    const INTERVAL_MAX_NS: u128 = 8 * SECOND as u128;

    /// A thousand keys in two partitions of ten slices, a hundred keys of which, from `hot` on, have nearly all of the load.
    pub(in crate::controller) fn trace(hot: u64) -> WorkloadTrace {
        let partition = |worker: u32| {
            let starts = (0..10).map(|slice| 500 * u64::from(worker) + 50 * slice);
            let cost = |start: u64| {
                (start..start + 50).map(|key| if (key + 1000 - hot) % 1000 < 100 { 100 } else { 1 })
            };
            PartitionTrace {
                worker: WorkerIndex(worker),
                cost_cycles: starts.clone().map(|start| cost(start).sum()).collect(),
                starts: starts.map(|start| TraceKey::new(start.to_be_bytes().to_vec())).collect(),
                rows: vec![50; 10],
            }
        };
        WorkloadTrace {
            format: TRACE_FORMAT.into(),
            seconds: 1.0,
            workers: 2,
            machine: None,
            samples: Some(100_000),
            dispersion: 1.0,
            busy_cycles: Vec::new(),
            in_place_cycles: 0,
            tables: vec![TableTrace { name: "t".into(), partitions: vec![partition(0), partition(1)] }],
            sync_points: Vec::new(),
            classes: Vec::new(),
        }
    }

    /// A table that had a thousand keys and has 500 more in each second: those of the latest second have half of the load, and all keys together the
    /// rest.
    fn growing(seconds: u64) -> Flux {
        let mut flux = Flux::default();
        for second in 1..=seconds {
            let mut trace = trace(100);
            let keys = 500 + 500 * second;
            let starts = (0..20).map(|slice| slice * keys / 20);
            let starts: Vec<TraceKey> = starts.map(|key| TraceKey::new(key.to_be_bytes().to_vec())).collect();
            let partitions = &mut trace.tables[0].partitions;
            for (partition, starts) in partitions.iter_mut().zip(starts.chunks(10)) {
                (partition.starts, partition.cost_cycles) = (starts.to_vec(), vec![100; 10]);
                partition.rows = vec![keys / 20; 10];
            }
            partitions[1].cost_cycles[9] = 2_000;
            note(&mut flux, second, &trace);
        }
        flux
    }

    fn note(flux: &mut Flux, second: u64, trace: &WorkloadTrace) {
        flux.note(second * SECOND, trace, trace.workload().expect("a workload"), None);
    }

    /// The trace with the second partition in other slices, which have equally many of its rows, rounded up, and nearly all of the load in the last one.
    fn hot_at_end(starts: &[u64]) -> WorkloadTrace {
        let mut trace = trace(100);
        let partition = &mut trace.tables[0].partitions[1];
        partition.starts = starts.iter().map(|key| TraceKey::new(key.to_be_bytes().to_vec())).collect();
        partition.rows = vec![500_u64.div_ceil(starts.len() as u64); starts.len()];
        partition.cost_cycles = vec![1; starts.len()];
        partition.cost_cycles[starts.len() - 1] = 20_000;
        trace
    }

    fn flux(hot: &[u64]) -> Flux {
        let mut flux = Flux::default();
        for (second, hot) in (1..).zip(hot) {
            note(&mut flux, second, &trace(*hot));
        }
        flux
    }

    /// The greatest share of one slice in each load of the outlook, by its place.
    fn hottest(outlook: &Outlook) -> Vec<usize> {
        let place = |load: &Workload| {
            let costs = load.all_costs().iter().enumerate();
            costs.max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(at, _)| at)
        };
        outlook.loads.iter().map(place).collect()
    }

    #[test]
    fn an_end_that_is_as_hot_wherever_it_begins_grows() {
        assert!(!growing(1).grows(), "one interval does not tell");
        assert!(growing(2).grows() && growing(9).grows());
        assert_eq!(
            (growing(2).grows_at_end(0), growing(2).grows_at_end(1)),
            (true, false),
            "there is one table"
        );
        // A hot range that ends with the table is no growth, nor is a table that is cut finer there.
        assert!(!flux(&[900; 6]).grows());
        let mut finer = flux(&[500; 2]);
        let mut trace = trace(500);
        let starts = (0..10).map(|slice| 900 + 10 * slice);
        trace.tables[0].partitions[1].starts =
            starts.map(|key: u64| TraceKey::new(key.to_be_bytes().to_vec())).collect();
        trace.tables[0].partitions[1].cost_cycles = vec![10; 10];
        note(&mut finer, 9, &trace);
        assert!(!finer.grows());
    }

    #[test]
    fn a_hot_last_key_that_is_cut_out_is_no_growth() {
        let mut flux = Flux::default();
        note(&mut flux, 1, &hot_at_end(&[500, 600, 700, 800, 900]));
        // Seven slices of 72 rows are said to have four more than there are.
        note(&mut flux, 2, &hot_at_end(&[500, 600, 700, 800, 900, 950, 999]));
        assert!(!flux.grows());
        let mut more = hot_at_end(&[500, 600, 700, 800, 900, 950, 1_200]);
        more.tables[0].partitions[1].rows[6] += 200;
        note(&mut flux, 3, &more);
        assert!(flux.grows(), "it has rows that it had not");
    }

    #[test]
    fn the_load_of_what_was_turned_down_is_known_as_long_as_that_holds() {
        let mut controller = Controller::new(ControllerSettings::default()).expect("settings");
        let machine = Machine::synthetic("core:2 pu:1").expect("a machine");
        let platform = Platform::for_workers(&machine, 2).expect("a platform");
        let trigger = Trigger::Imbalance { busiest: WorkerIndex(0), over_mean: 1.0 };
        for second in 1..=60 {
            controller.at_ns = second * SECOND;
            controller.note(&trace(100), &platform).expect("a trace that fits");
            if second == 1 {
                let situation = controller.situation();
                controller.rejected = Some(Rejected { situation, is_of_swing: false });
            }
        }
        assert_eq!(controller.flux.has_moved_since(SECOND), Some(false));
        assert_eq!(controller.flux.noted.len(), NOTED_MAX);
        assert_eq!(controller.unless_rejected(trigger), Verdict::Wait(WaitReason::TurnedDown { trigger }));
        controller.at_ns = 61 * SECOND;
        controller.note(&trace(700), &platform).expect("a trace that fits");
        assert_eq!(controller.unless_rejected(trigger), Verdict::Evaluate(trigger), "the load is elsewhere");
    }

    #[test]
    fn one_change_is_followed_and_there_and_back_again_is_flux() {
        assert!(flux(&[100; 6]).outlook(INTERVAL_MAX_NS).is_none());
        assert!(flux(&[100, 100, 100, 700, 700]).outlook(INTERVAL_MAX_NS).is_none());
        assert!(flux(&[100, 100, 100, 700, 700, 100]).outlook(INTERVAL_MAX_NS).is_some());
        // Back again after longer than can be followed.
        assert!(flux(&[100, 700, 700, 700, 700, 700, 700, 700, 100]).outlook(INTERVAL_MAX_NS).is_none());
        let moved = flux(&[100, 100, 700]);
        assert_eq!((moved.has_moved_since(SECOND), moved.has_moved_since(9)), (Some(true), None));
        assert_eq!(flux(&[100, 700, 100]).has_moved_since(SECOND), Some(false));
    }

    #[test]
    fn intervals_of_the_same_load_since_the_change_are_pooled() {
        let samples = |flux: &Flux, since_s: u64, workers| {
            flux.pooled(since_s * SECOND, workers).map(|(_, samples)| samples)
        };
        let (one, workers) = (flux(&[100]).samples_since(0), 1_000_000);
        let four = flux(&[100, 100, 100, 100]);
        assert_eq!(four.samples_since(SECOND), 3.0 * one, "the first ends after a second");
        assert_eq!(samples(&flux(&[100]), 0, workers), None);
        assert_eq!(samples(&four, 0, workers), Some(4.0 * one));
        assert_eq!(samples(&four, 1, workers), Some(3.0 * one));
        assert_eq!(samples(&four, 0, 2), None, "more would say nothing");
        assert_eq!(samples(&flux(&[700, 700, 100, 100]), 0, workers), Some(2.0 * one), "another load before");
        let (pooled, _) = flux(&[100, 100]).pooled(0, workers).expect("two of them");
        assert!((pooled.work_cycles() - 2.0 * one).abs() < 1e-6 * one, "{}", pooled.work_cycles());
    }

    #[test]
    fn slices_are_dealt_so_that_each_load_is_even() {
        let outlook = flux(&[100, 700, 100, 700, 100]).outlook(INTERVAL_MAX_NS).expect("it goes to and fro");
        let machine = Machine::synthetic("core:2 pu:1").expect("a machine");
        let platform = Platform::for_workers(&machine, 2).expect("a platform");
        let today = trace(100).scheme().expect("a scheme");
        let strain = |scheme: &PlannedScheme| {
            outlook.strain(scheme, &platform, &Weights::default()).expect("a scheme that fits").busy_max
        };
        let dealt = outlook.dealt(&today, &platform, &Rules::DEFAULT);
        assert!(strain(&dealt) < 1.1 && strain(&today) > 1.5, "{} {}", strain(&dealt), strain(&today));
    }

    #[test]
    fn a_load_that_moves_on_and_on_is_expected_where_it_will_be() {
        let outlook = flux(&[100, 120, 140, 160]).outlook(INTERVAL_MAX_NS).expect("a trend");
        let places = hottest(&outlook);
        // From key 160 on by 20 keys per second, for 16 seconds.
        assert!(places[0].abs_diff(4) <= 1 && places[COMING].abs_diff(10) <= 1, "{places:?}");
        assert!(places.is_sorted(), "{places:?}");
        let machine = Machine::synthetic("core:2 pu:1").expect("a machine");
        let platform = Platform::for_workers(&machine, 2).expect("a platform");
        let stripes =
            crate::spread::spread(&trace(160).workload().expect("a workload"), &platform, &Rules::DEFAULT);
        let strain = |scheme: &PlannedScheme| {
            outlook.strain(scheme, &platform, &Weights::default()).expect("a scheme that fits").busy_max
        };
        let today = trace(160).scheme().expect("a scheme");
        assert!(strain(&stripes) < 1.2 && strain(&today) > 1.5, "{} {}", strain(&stripes), strain(&today));
    }
}
