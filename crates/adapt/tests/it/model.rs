//! A database in virtual time, in a closed loop: as many transactions run as the busiest worker manages, sampled with noise
//! from a seed. It repartitions at once when the controller says so, and cuts each partition into ten sub-partitions then,
//! as the engine does.

use crate::fixture::Random;
use atrapos_adapt::{
    Considered, Controller, ControllerSettings, Decision, Extents, Mix, Observation, PartitionTrace,
    PlannedScheme, Platform, SliceIndex, SubPartition, SyncPointTrace, TRACE_FORMAT, TableIndex, TableTrace,
    TraceKey, Verdict, WaitReason, WorkerIndex, WorkloadTrace,
};

pub(crate) const KEYS: u64 = 1_000_000;
pub(crate) const SUB_PARTITIONS: u64 = 10;
const CYCLES_PER_S: f64 = 2e9;
const STEP_S: f64 = 0.1;

/// A transaction class: which tables it accesses at its key, at what cost, and which of them exchange bytes.
#[derive(Debug, Clone)]
pub(crate) struct Class {
    pub(crate) share: f64,
    pub(crate) actions: Vec<(usize, f64)>,
    pub(crate) sync: Option<(usize, usize, f64)>,
}

/// The load that clients offer.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    pub(crate) classes: Vec<Class>,
    /// `(from, to, share)`: key ranges with a share of the requests of their own; the rest is uniform.
    pub(crate) hot: Vec<(u64, u64, f64)>,
}

impl Load {
    pub(crate) fn uniform() -> Self {
        Self { classes: vec![Class { share: 1.0, actions: vec![(0, 2_000.0)], sync: None }], hot: Vec::new() }
    }

    pub(crate) fn hot(from: u64, to: u64, share: f64) -> Self {
        Self { hot: vec![(from, to, share)], ..Self::uniform() }
    }

    /// The share of requests for keys in a range.
    fn mass(&self, from: u64, to: u64) -> f64 {
        let rest = 1.0 - self.hot.iter().map(|(_, _, share)| share).sum::<f64>();
        let mut mass = rest * (to - from) as f64 / KEYS as f64;
        for (hot_from, hot_to, share) in &self.hot {
            let common = to.min(*hot_to).saturating_sub(from.max(*hot_from));
            mass += share * common as f64 / (hot_to - hot_from) as f64;
        }
        mass
    }
}

/// Errors of measurements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Noise {
    /// Largest relative error of the throughput.
    pub(crate) throughput: f64,
    /// Largest relative error of a worker's load and of the costs of what it owns.
    pub(crate) loads: f64,
    /// Actions that are timed per second and worker.
    pub(crate) samples_per_s: f64,
}

pub(crate) const USUAL_NOISE: Noise = Noise { throughput: 0.03, loads: 0.03, samples_per_s: 5_000.0 };

pub(crate) struct Model {
    pub(crate) platform: Platform,
    pub(crate) controller: Controller,
    pub(crate) available: Vec<bool>,
    /// Availability at the last observation.
    observed_available: Vec<bool>,
    /// By table: where partitions begin, and whose they are.
    pub(crate) tables: Vec<(Vec<u64>, Vec<WorkerIndex>)>,
    pub(crate) now_s: f64,
    pub(crate) noise: Noise,
    /// Factor on the throughput after `.0` repartitionings, in turn: for models that are wrong.
    pub(crate) surprise: fn(usize) -> f64,
    pub(crate) repartitionings: usize,
    random: Random,
}

/// One turn of the controller.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Turn {
    pub(crate) at_s: f64,
    pub(crate) interval_s: f64,
    pub(crate) decision: Decision,
    /// The busiest worker over the mean at the end, before what was decided was done.
    pub(crate) load_max_before: f64,
    /// The same afterwards.
    pub(crate) load_max: f64,
}

impl Turn {
    pub(crate) fn is_repartition(&self) -> bool {
        self.decision.is_repartition()
    }
}

impl Model {
    pub(crate) fn new(platform: Platform, tables: usize, settings: ControllerSettings, seed: u64) -> Self {
        let workers = platform.worker_count();
        let cuts: Vec<u64> = (0..workers as u64).map(|at| at * KEYS / workers as u64).collect();
        let owners: Vec<WorkerIndex> = (0..).take(workers).map(WorkerIndex).collect();
        Self {
            available: vec![true; workers],
            observed_available: vec![true; workers],
            platform,
            controller: Controller::new(settings).expect("settings that make sense"),
            tables: vec![(cuts, owners); tables],
            now_s: 0.0,
            noise: USUAL_NOISE,
            surprise: |_| 1.0,
            repartitionings: 0,
            random: Random(seed),
        }
    }

    /// A number between -1 and 1.
    fn even(&mut self) -> f64 {
        (self.random.next() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }

    /// Nearly normally distributed, with mean 0 and variance 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.even()).sum::<f64>() / 2.0
    }

    fn partitions(&self, table: usize) -> impl Iterator<Item = (u64, u64, WorkerIndex)> + '_ {
        let (begins, owners) = &self.tables[table];
        let ends = begins[1..].iter().copied().chain(std::iter::once(KEYS));
        begins.iter().copied().zip(ends).zip(owners).map(|((from, to), owner)| (from, to, *owner))
    }

    /// Cycles of one average transaction by owner, and what the busiest core has to do for one.
    pub(crate) fn cycles(&self, load: &Load) -> (Vec<f64>, f64) {
        let mut by_owner = vec![0.0; self.platform.worker_count()];
        for class in &load.classes {
            for (table, cycles) in &class.actions {
                for (from, to, owner) in self.partitions(*table) {
                    by_owner[owner.index()] += class.share * cycles * load.mass(from, to);
                }
            }
            if let Some((a, b, bytes)) = class.sync {
                for (from, to, owners) in self.overlaps(a, b) {
                    let cycles = 2.0 * (bytes + 64.0) * self.platform.distance_among(&owners);
                    for owner in owners {
                        by_owner[owner.index()] += class.share * cycles / 2.0 * load.mass(from, to);
                    }
                }
            }
        }
        // The core of a lost worker is another's: its threads run on that of the next socket.
        let mut by_core = by_owner.clone();
        for worker in (0..by_owner.len()).filter(|worker| !self.available[*worker]) {
            let heir = (worker + 10) % by_owner.len();
            by_core[heir] += by_owner[worker];
            by_core[worker] = 0.0;
        }
        let most = by_core.iter().copied().fold(0.0, f64::max);
        (by_owner, most)
    }

    /// The busiest worker over the mean of the available ones.
    pub(crate) fn load_max(&self, load: &Load) -> f64 {
        let (by_owner, most) = self.cycles(load);
        let available = self.available.iter().filter(|available| **available).count();
        most * available as f64 / by_owner.iter().sum::<f64>()
    }

    fn overlaps(&self, a: usize, b: usize) -> Vec<(u64, u64, [WorkerIndex; 2])> {
        let mut found = Vec::new();
        let mut others = self.partitions(b).peekable();
        for (from, to, owner) in self.partitions(a) {
            while let Some((other_from, other_to, other)) = others.peek().copied() {
                let (low, high) = (from.max(other_from), to.min(other_to));
                if low < high {
                    found.push((low, high, [owner, other]));
                }
                if other_to > to {
                    break;
                }
                others.next();
            }
        }
        found
    }

    /// Runs `load_at`, which gives the load at any second, for as long as the controller waits, and lets it decide.
    pub(crate) fn turn(&mut self, load_at: &dyn Fn(f64) -> Load) -> Turn {
        let interval_s = self.controller.interval().as_secs_f64();
        let steps = (interval_s / STEP_S).round() as usize;
        let mut run = Vec::new();
        let mut loads = vec![0.0; self.platform.worker_count()];
        let mut transactions = 0.0;
        let steps_per_glance =
            (self.controller.settings().interval.as_secs_f64() / STEP_S).round().max(1.0) as usize;
        let (mut glanced_at, mut glanced_transactions, mut glanced_loads) = (0, 0.0, loads.clone());
        for step in 0..steps {
            // Whoever drives the controller lets it observe at once when workers go or come.
            if step - glanced_at == steps_per_glance && self.available == self.observed_available {
                let throughput = (transactions - glanced_transactions) / (steps_per_glance as f64 * STEP_S);
                let seen = Observation {
                    at_ns: ((self.now_s + step as f64 * STEP_S) * 1e9).round() as u64,
                    throughput_tps: throughput * (1.0 + self.noise.throughput * self.even()),
                    loads: (loads.iter().zip(&glanced_loads))
                        .map(|(load, before)| (load - before) * (1.0 + self.noise.loads * self.even()))
                        .collect(),
                    available: self.available.clone(),
                    changed_platform: false,
                    waits: 0.0,
                    samples: None,
                    mix: Mix::default(),
                };
                if let Some(reason) = self.controller.glance(&seen) {
                    return self.begun_anew(step, &seen, reason, load_at);
                }
                (glanced_at, glanced_transactions) = (step, transactions);
                glanced_loads.clone_from(&loads);
            }
            let load = load_at(self.now_s + (step as f64 + 0.5) * STEP_S);
            let (by_owner, most) = self.cycles(&load);
            let count = CYCLES_PER_S / most * STEP_S * (self.surprise)(self.repartitionings);
            transactions += count;
            for (total, cycles) in loads.iter_mut().zip(&by_owner) {
                *total += cycles * count;
            }
            run.push((load, count));
        }
        self.now_s += interval_s;
        let worker_noise: Vec<f64> = loads.iter().map(|_| 1.0 + self.noise.loads * self.even()).collect();
        for (load, noise) in loads.iter_mut().zip(&worker_noise) {
            *load *= noise;
        }
        let observation = Observation {
            at_ns: (self.now_s * 1e9).round() as u64,
            throughput_tps: transactions / interval_s * (1.0 + self.noise.throughput * self.even()),
            loads,
            available: self.available.clone(),
            changed_platform: false,
            waits: 0.0,
            samples: None,
            mix: Mix::default(),
        };
        self.observed_available.clone_from(&self.available);
        let load_max_before = self.load_max(&load_at(self.now_s));
        let decision = self.decide(&observation, &run, interval_s, &worker_noise);
        let load_max = self.load_max(&load_at(self.now_s));
        Turn { at_s: self.now_s, interval_s, decision, load_max_before, load_max }
    }

    /// Lets the controller observe, evaluates and repartitions if it says so, and returns its decision.
    fn decide(
        &mut self,
        observation: &Observation,
        run: &[(Load, f64)],
        interval_s: f64,
        worker_noise: &[f64],
    ) -> Decision {
        match self.controller.observe(observation) {
            Verdict::Wait(reason) => Decision::waited(observation, reason),
            Verdict::Evaluate(trigger) => {
                let trace = self.trace(run, interval_s, worker_noise);
                let lost: Vec<WorkerIndex> = (0..)
                    .map(WorkerIndex)
                    .take(self.available.len())
                    .filter(|worker| !self.available[worker.index()])
                    .collect();
                let platform = self.platform.clone().without(&lost).expect("some are left");
                let Considered { decision, plan, extents } =
                    self.controller.consider(trigger, &trace, &platform).expect("statistics that fit");
                assert_eq!(decision.is_repartition(), plan.is_some());
                if let Some(plan) = plan {
                    assert!(!plan.steps.is_empty(), "a repartitioning without a step");
                    self.repartition(&plan.scheme, &extents.expect("a trace with keys"));
                }
                decision
            }
        }
    }

    /// A turn that was cut short after some steps, because something is different.
    fn begun_anew(
        &mut self,
        steps: usize,
        seen: &Observation,
        reason: WaitReason,
        load_at: &dyn Fn(f64) -> Load,
    ) -> Turn {
        let interval_s = steps as f64 * STEP_S;
        self.now_s += interval_s;
        let decision = Decision::waited(seen, reason);
        let load_max = self.load_max(&load_at(self.now_s));
        Turn { at_s: self.now_s, interval_s, decision, load_max_before: load_max, load_max }
    }

    /// Turns until the end of second `end_s`.
    pub(crate) fn run_until(&mut self, end_s: f64, load_at: &dyn Fn(f64) -> Load) -> Vec<Turn> {
        let mut turns = Vec::new();
        while self.now_s + self.controller.interval().as_secs_f64() <= end_s + 1e-6 {
            turns.push(self.turn(load_at));
        }
        turns
    }

    /// Beginnings of the sub-partitions of a partition: at least one key each.
    fn cut(from: u64, to: u64) -> Vec<u64> {
        let count = SUB_PARTITIONS.min(to - from);
        (0..count).map(|at| from + at * (to - from) / count).collect()
    }

    fn repartition(&mut self, scheme: &PlannedScheme, extents: &Extents) {
        self.repartitionings += 1;
        let tables = (0..).map(TableIndex).zip(scheme.tables()).map(|(table, new)| {
            let key =
                |cut: &u32| extents.start(table, SliceIndex(*cut)).bytes().try_into().expect("a number");
            let cuts = new.cuts().iter().map(|cut| u64::from_be_bytes(key(cut)));
            (std::iter::once(0).chain(cuts).collect(), new.owners().to_vec())
        });
        self.tables = tables.collect();
    }

    /// The trace that monitoring would have recorded while `run` ran.
    fn trace(&mut self, run: &[(Load, f64)], seconds: f64, worker_noise: &[f64]) -> WorkloadTrace {
        let samples = self.noise.samples_per_s * seconds * self.platform.worker_count() as f64;
        let cost = |table: usize, from: u64, to: u64| -> f64 {
            let of = |load: &Load| -> f64 {
                let actions = load.classes.iter().flat_map(|class| {
                    class
                        .actions
                        .iter()
                        .filter(|(at, _)| *at == table)
                        .map(|(_, cycles)| class.share * cycles)
                });
                actions.sum::<f64>() * load.mass(from, to)
            };
            run.iter().map(|(load, count)| count * of(load)).sum()
        };
        let total: f64 = (0..self.tables.len()).map(|table| cost(table, 0, KEYS)).sum();
        let mut tables = Vec::new();
        for table in 0..self.tables.len() {
            let partitions: Vec<_> = self.partitions(table).collect();
            let mut traces = Vec::new();
            for (from, to, worker) in partitions {
                let begins = Self::cut(from, to);
                let ends = begins[1..].iter().copied().chain(std::iter::once(to));
                let mut cost_cycles = Vec::new();
                let starts = begins.iter().map(|key| TraceKey::new(key.to_be_bytes().to_vec())).collect();
                let rows = begins.iter().copied().zip(ends.clone()).map(|(from, to)| to - from).collect();
                for (from, to) in begins.iter().copied().zip(ends) {
                    let exact = cost(table, from, to);
                    let taken = (samples * exact / total).max(1e-9);
                    let error = 1.0 + self.normal() / taken.sqrt();
                    let sampled = if samples > 0.0 { exact * error.max(0.0) } else { 0.0 };
                    cost_cycles.push((sampled * worker_noise[worker.index()]) as u64);
                }
                traces.push(PartitionTrace { worker, cost_cycles, starts, rows });
            }
            tables.push(TableTrace { name: format!("t{table}"), partitions: traces });
        }
        WorkloadTrace {
            format: TRACE_FORMAT.into(),
            seconds,
            workers: self.platform.worker_count(),
            machine: None,
            samples: Some(samples as u64),
            dispersion: 1.0,
            busy_cycles: Vec::new(),
            in_place_cycles: 0,
            tables,
            sync_points: self.sync_points(run),
            classes: Vec::new(),
        }
    }

    fn sync_points(&self, run: &[(Load, f64)]) -> Vec<SyncPointTrace> {
        let pairs = |load: &Load| -> Vec<(usize, usize)> {
            load.classes.iter().filter_map(|class| class.sync.map(|(a, b, _)| (a, b))).collect()
        };
        let mut all: Vec<(usize, usize)> = run.iter().flat_map(|(load, _)| pairs(load)).collect();
        all.sort_unstable();
        all.dedup();
        let mut points = Vec::new();
        for (a, b) in all {
            let (of_a, of_b) = (self.slices(a), self.slices(b));
            let (mut at_a, mut at_b) = (0, 0);
            while at_a < of_a.len() && at_b < of_b.len() {
                let ((from_a, to_a, slice_a), (from_b, to_b, slice_b)) = (of_a[at_a], of_b[at_b]);
                let (from, to) = (from_a.max(from_b), to_a.min(to_b));
                let (mut bytes, mut count) = (0.0, 0.0);
                for (load, transactions) in run {
                    for class in &load.classes {
                        if let Some((_, _, size)) = class.sync.filter(|(x, y, _)| (*x, *y) == (a, b)) {
                            let times = transactions * class.share * load.mass(from, to);
                            (bytes, count) = (bytes + size * times, count + times);
                        }
                    }
                }
                if count >= 1.0 {
                    let partners = vec![slice_a, slice_b];
                    points.push(SyncPointTrace {
                        partners,
                        bytes: bytes as u64,
                        count: count as u64,
                        again: 0,
                    });
                }
                at_a += usize::from(to_a == to);
                at_b += usize::from(to_b == to);
            }
        }
        points
    }

    fn slices(&self, table: usize) -> Vec<(u64, u64, SubPartition)> {
        let mut slices = Vec::new();
        for (partition, (from, to, _)) in self.partitions(table).enumerate() {
            let begins = Self::cut(from, to);
            let ends = begins[1..].iter().copied().chain(std::iter::once(to));
            for (sub_partition, (from, to)) in begins.iter().copied().zip(ends).enumerate() {
                let place = (table as u32, partition as u32, sub_partition as u32);
                slices.push((from, to, SubPartition::from(place)));
            }
        }
        slices
    }
}
