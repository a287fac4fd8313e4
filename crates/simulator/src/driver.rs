//! Sides of a scenario: the same load on a database that adapts itself, and on one with a fixed scheme.
//!
//! Owns: the loop around the controller, as the adapting thread of a database has it: a look at the processing units each second, a glance each
//! shortest interval, an observation at the end of the controller's interval or when units were lost or are back, a trace and a plan when it asks
//! for them, and the plan carried out step by step. Never: decides, or tells the controller what it did not see.

use std::time::Duration;

use atrapos_adapt::{
    AdaptError, Controller, ControllerSettings, CoreChange, CoreWatch, Decision, Extents, Mix, Observation,
    Plan, Platform, Verdict, WaitReason, WorkerIndex,
};

use crate::hardware::{GHZ, MachineKind};
use crate::layout::Layout;
use crate::monitor::Tally;
use crate::scenario::Scenario;
use crate::world::{Counters, World};

/// Time for which workers are left alone between two steps of a plan that concern them, in seconds, and between any two steps: as a database
/// waits, so that transactions go on. 80 rearrangements of two steps each, most of them of the same worker, take it 78 ms (`docs/benchmarks.md`).
const STEP_PAUSE_S: f64 = 0.000_5;
const STEP_PAUSE_ALL_S: f64 = 0.000_1;
/// Times at which loads are read within the shortest interval, as a database does.
const SHORT_TIMES: u32 = 10;
/// Time at the beginning of a phase that does not count as settled: three of the controller's shortest intervals. Of a phase that is hardly
/// longer it is half.
const SETTLING_S: f64 = 3.0;
const LEAST_SETTLED_S: f64 = 1.0;

/// Results of a side in one phase.
#[derive(Debug, Clone, PartialEq)]
pub struct PhaseResult {
    /// Transactions per second over the whole phase; where transactions come by themselves, those that the busiest worker could
    /// serve if it had nothing to wait for.
    pub tps: f64,
    /// The same, without the first three seconds.
    pub settled_tps: f64,
    /// The least over a second.
    pub worst_tps: f64,
    /// The busiest worker over the mean, settled.
    pub load_max_ratio: f64,
    /// Number of times that the scheme was changed.
    pub repartitionings: usize,
    /// When it was changed for the first time, in seconds since the phase began.
    pub first_change_s: Option<f64>,
    /// Evaluations of the model.
    pub evaluations: usize,
}

/// A change of the scheme: what was predicted of it, and what came.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Promise {
    /// When it was decided, in seconds since the beginning.
    pub at_s: f64,
    /// The share by which the time of the busiest worker was predicted to shrink.
    pub predicted_gain: f64,
    /// The throughput of the interval before and of one second after the last step; as a gain, comparable to the prediction.
    pub measured_gain: f64,
}

/// Results of one side.
#[derive(Debug, Clone, Default)]
pub struct Side {
    /// By phase.
    pub phases: Vec<PhaseResult>,
    /// Decisions, in order.
    pub decisions: Vec<Decision>,
    /// Changes for a gain that were followed by a second of the same load.
    pub promises: Vec<Promise>,
    /// The layout at the end of each phase.
    pub(crate) layouts: Vec<Layout>,
}

fn settling_s(phase_s: f64) -> f64 {
    if phase_s >= SETTLING_S + LEAST_SETTLED_S { SETTLING_S } else { 0.5 * phase_s }
}

/// Throughput between two moments. See [`PhaseResult::tps`].
fn throughput(before: &Counters, after: &Counters, has_arrivals: bool) -> f64 {
    let seconds = (after.at_s - before.at_s).max(1e-9);
    let tps = (after.committed - before.committed) / seconds;
    if !has_arrivals {
        return tps;
    }
    let busy = before.busy_ns.iter().zip(&after.busy_ns).map(|(before, after)| after - before);
    let busiest = busy.fold(0.0, f64::max) * 1e-9 / seconds;
    if busiest > 0.0 { tps / busiest } else { 0.0 }
}

fn load_max_ratio(before: &Counters, after: &Counters) -> f64 {
    let busy: Vec<f64> =
        before.busy_ns.iter().zip(&after.busy_ns).map(|(before, after)| after - before).collect();
    let mean = busy.iter().sum::<f64>() / busy.len() as f64;
    if mean > 0.0 { busy.iter().copied().fold(0.0, f64::max) / mean } else { 1.0 }
}

/// The part of a side that knows what time it is.
struct Run<'s> {
    world: World<'s>,
    /// End of each phase in seconds.
    ends: Vec<f64>,
    phase: usize,
    began: Counters,
    settled: Option<Counters>,
    second: Counters,
    worst_tps: f64,
    side: Side,
    in_phase: PhaseCount,
}

#[derive(Default)]
struct PhaseCount {
    repartitionings: usize,
    first_change_s: Option<f64>,
    evaluations: usize,
}

impl<'s> Run<'s> {
    fn new(world: World<'s>) -> Self {
        let mut end = 0.0;
        let ends = world.scenario.phases.iter().map(|phase| {
            end += phase.seconds;
            end
        });
        let ends = ends.collect();
        let began = world.counters();
        Self {
            ends,
            phase: 0,
            settled: None,
            second: began.clone(),
            began,
            worst_tps: f64::INFINITY,
            side: Side::default(),
            in_phase: PhaseCount::default(),
            world,
        }
    }

    fn is_over(&self) -> bool {
        self.phase == self.ends.len()
    }

    fn has_arrivals(&self) -> bool {
        self.world.scenario.phases[self.phase].arrivals_per_s.is_some()
    }

    /// Lets time pass, over the ends of phases. Returns false when all are over.
    fn advance(&mut self, until_s: f64) -> bool {
        while !self.is_over() {
            let end_s = self.ends[self.phase];
            let settled_s = self.began.at_s + settling_s(end_s - self.began.at_s);
            let mut next_s = until_s.min(end_s).min(self.second.at_s + 1.0);
            if self.settled.is_none() {
                next_s = next_s.min(settled_s);
            }
            self.world.run_until(next_s);
            if self.settled.is_none() && next_s >= settled_s - 1e-9 {
                self.settled = Some(self.world.counters());
            }
            if next_s >= self.second.at_s + 1.0 - 1e-9 {
                let now = self.world.counters();
                self.worst_tps = self.worst_tps.min(throughput(&self.second, &now, self.has_arrivals()));
                self.second = now;
            }
            if next_s >= end_s - 1e-9 {
                self.end_phase();
            } else if next_s >= until_s - 1e-9 {
                break;
            }
        }
        !self.is_over()
    }

    fn end_phase(&mut self) {
        let now = self.world.counters();
        let settled = self.settled.take().unwrap_or_else(|| self.began.clone());
        let has_arrivals = self.has_arrivals();
        let PhaseCount { repartitionings, first_change_s, evaluations } = std::mem::take(&mut self.in_phase);
        let tps = throughput(&self.began, &now, has_arrivals);
        self.side.phases.push(PhaseResult {
            tps,
            settled_tps: throughput(&settled, &now, has_arrivals),
            worst_tps: if self.worst_tps.is_finite() { self.worst_tps } else { tps },
            load_max_ratio: load_max_ratio(&settled, &now),
            repartitionings,
            first_change_s,
            evaluations,
        });
        self.side.layouts.push(self.world.layout.clone());
        self.phase += 1;
        (self.worst_tps, self.began, self.second) = (f64::INFINITY, now.clone(), now);
        if !self.is_over() {
            self.world.begin_phase(self.phase);
        }
    }

    /// Carries a plan out, step by step. Returns false when all phases are over.
    fn carry_out(&mut self, plan: &Plan, extents: &Extents) -> bool {
        self.in_phase.repartitionings += 1;
        self.in_phase.first_change_s.get_or_insert(self.world.now_s() - self.began.at_s);
        let mut rested_s = vec![0.0_f64; self.world.kind.workers()];
        for step in &plan.steps {
            let concerned = self.world.layout.concerned(step, extents);
            let until_s = concerned.map(|worker| rested_s[worker as usize]).into_iter().fold(0.0, f64::max);
            if until_s > self.world.now_s() && !self.advance(until_s) {
                return false;
            }
            self.world.layout.apply(step, extents);
            self.world.pause(concerned[0]);
            for worker in concerned {
                rested_s[worker as usize] = self.world.now_s() + STEP_PAUSE_S;
            }
            if !self.advance(self.world.now_s() + STEP_PAUSE_ALL_S) {
                return false;
            }
        }
        self.world.place_threads();
        self.world.begin_statistics();
        true
    }
}

/// Runs all phases of a scenario on a database that keeps its layout: the naive one, or `layout`.
#[must_use]
pub(crate) fn run_fixed(scenario: &Scenario, kind: MachineKind, seed: u64, layout: Option<Layout>) -> Side {
    let mut world = World::new(scenario, kind, seed);
    if let Some(layout) = layout {
        world.layout = layout;
        world.place_threads();
        world.begin_statistics();
    }
    let mut run = Run::new(world);
    run.advance(f64::INFINITY);
    run.side
}

/// Counters and loads, as a database reads them between two moments.
struct Read {
    counters: Counters,
    loads: Vec<f64>,
    samples: Tally,
}

/// Returns the observation between two moments, of which these loads are, of a database whose workers may own data as `available` says.
fn observation(
    world: &World<'_>,
    before: &Read,
    now: &Read,
    (loads, samples): (Vec<f64>, Tally),
    available: Vec<bool>,
) -> Observation {
    let seconds = (now.counters.at_s - before.counters.at_s).max(1e-9);
    Observation {
        at_ns: (now.counters.at_s * 1e9) as u64,
        throughput_tps: (now.counters.committed - before.counters.committed) / seconds,
        loads,
        available,
        changed_platform: false,
        // Locks are not simulated.
        waits: 0.0,
        samples: Some(samples.effective()),
        mix: mix(world, &before.counters, &now.counters),
    }
}

/// The transactions that were simulated between two moments, by class.
fn mix(world: &World<'_>, before: &Counters, now: &Counters) -> Mix {
    let counts = now.by_class.iter().zip(&before.by_class).map(|(now, before)| now - before);
    let samples = counts.clone().sum::<u64>() as f64;
    let names = world.scenario.classes.iter().map(|class| class.name.as_str());
    Mix::new(names.zip(counts.map(|count| count as f64)), samples)
}

fn read(world: &World<'_>) -> Read {
    let loads = world.monitor.loads(&world.layout, world.kind.workers());
    Read { counters: world.counters(), loads, samples: world.monitor.samples() }
}

/// Outcome of a wait.
enum Sensed {
    Passed,
    /// The load is another one than it was, for this reason.
    Changed(WaitReason),
    /// All phases are over.
    Over,
}

/// The adapting thread of a database: its controller, and its watch over the processing units of the workers.
struct Adapting {
    controller: Controller,
    watch: CoreWatch,
    looked_s: f64,
    /// Set if workers have lost or regained their units since the last turn.
    cores_changed: bool,
    platform: Platform,
    /// The share of its time from which a worker is saturated.
    saturated: f64,
    /// Number of workers without a processing unit when a plan was made last, and whether that plan was made because there were more than before: such a plan
    /// is necessary, and what the lost workers would have done without it is not predicted.
    lost: usize,
    was_necessary: bool,
}

impl Adapting {
    fn new(kind: MachineKind, settings: ControllerSettings) -> Result<Self, AdaptError> {
        let (machine, workers) = (kind.machine(), kind.workers());
        let cpus = machine.placement(workers);
        let own: Vec<_> = cpus.iter().copied().map(Some).collect();
        Ok(Self {
            controller: Controller::new(settings)?,
            watch: CoreWatch::new(settings.cores, &own, machine.placement(machine.usable_cpus().len())),
            looked_s: 0.0,
            cores_changed: false,
            platform: Platform::new(&machine, &cpus)?,
            saturated: settings.rules.saturated,
            lost: 0,
            was_necessary: false,
        })
    }

    /// By worker, whether it may own data.
    fn available(&self) -> Vec<bool> {
        (0..self.platform.worker_count()).map(|at| self.watch.has_unit(WorkerIndex(at as u32))).collect()
    }

    /// Lets time pass, and the controller look at the loads of short times, until cores have changed or it notices that the load has.
    fn sense(&mut self, run: &mut Run<'_>, step_s: f64) -> Sensed {
        let mut seen = read(&run.world);
        let began_s = run.world.now_s();
        for time in 1..=SHORT_TIMES {
            if !run.advance(began_s + step_s * f64::from(time) / f64::from(SHORT_TIMES)) {
                return Sensed::Over;
            }
            let now = read(&run.world);
            let observed = observation(&run.world, &seen, &now, loads_between(&seen, &now), self.available());
            let noticed = self.controller.sense(&observed);
            self.look_after_cores(run, &observed, CoreWatch::LOOK_EVERY);
            seen = now;
            if let Some(reason) = noticed {
                return Sensed::Changed(reason);
            }
            if self.cores_changed {
                break;
            }
        }
        Sensed::Passed
    }

    /// Looks at the processing units of the workers, if that has not been done for so long.
    fn look_after_cores(&mut self, run: &mut Run<'_>, observed: &Observation, least: Duration) {
        let now_s = run.world.now_s();
        if now_s - self.looked_s < least.as_secs_f64() - 1e-9 {
            return;
        }
        self.looked_s = now_s;
        let sight = run.world.sight();
        let changes = self.watch.look(observed.at_ns, sight.clone(), &[]);
        run.world.run_on(&self.watch.units_wanted(&sight, &changes, &[]));
        self.cores_changed |= changes.iter().any(|change| !matches!(change, CoreChange::Spare { .. }));
        let of_change = |change| Decision::of_cores(observed.at_ns, observed.throughput_tps, change);
        run.side.decisions.extend(changes.into_iter().map(of_change));
    }

    /// Lets the controller observe, and make a plan if it wants to.
    fn turn(
        &mut self,
        run: &mut Run<'_>,
        observed: Observation,
    ) -> Result<Option<(Plan, Extents, Decision)>, AdaptError> {
        let changed_platform = std::mem::take(&mut self.cores_changed);
        let observed = Observation { changed_platform, ..observed };
        let trigger = match self.controller.observe(&observed) {
            Verdict::Wait(reason) => {
                run.side.decisions.push(Decision::waited(&observed, reason));
                if reason != WaitReason::TooFewSamples {
                    self.controller.note(&run.world.take_statistics(self.saturated), &self.platform)?;
                }
                return Ok(None);
            }
            Verdict::Evaluate(trigger) => trigger,
        };
        run.in_phase.evaluations += 1;
        let trace = run.world.take_statistics(self.saturated);
        let lost = (0..).map(WorkerIndex).zip(&observed.available).filter(|(_, here)| !**here);
        let lost: Vec<WorkerIndex> = lost.map(|(worker, _)| worker).collect();
        self.was_necessary = lost.len() > self.lost;
        self.lost = lost.len();
        let platform = self.platform.clone().without(&lost)?;
        let considered = self.controller.consider(trigger, &trace, &platform)?;
        run.side.decisions.push(considered.decision.clone());
        Ok(considered
            .plan
            .zip(considered.extents)
            .map(|(plan, extents)| (plan, extents, considered.decision)))
    }
}

/// The load of each worker between two moments, and the samples that it is of.
fn loads_between(before: &Read, now: &Read) -> (Vec<f64>, Tally) {
    let loads = now.loads.iter().zip(&before.loads).map(|(now, before)| (now - before).max(0.0));
    (loads.collect(), now.samples.since(before.samples))
}

/// Runs all phases of a scenario on a database that adapts itself.
///
/// # Errors
/// [`AdaptError`] for settings with which no controller works.
pub(crate) fn run_adaptive(
    scenario: &Scenario,
    kind: MachineKind,
    seed: u64,
    settings: ControllerSettings,
) -> Result<Side, AdaptError> {
    let mut adapting = Adapting::new(kind, settings)?;
    let mut run = Run::new(World::new(scenario, kind, seed));
    let (mut collected, mut seen) = (read(&run.world), read(&run.world));
    let mut waited_s = 0.0;
    let mut judged: Option<(f64, f64, usize)> = None;
    loop {
        let step_s = settings.interval.min(adapting.controller.interval()).as_secs_f64();
        let changed = match adapting.sense(&mut run, step_s) {
            Sensed::Passed => None,
            Sensed::Changed(reason) => Some(reason),
            Sensed::Over => return Ok(run.side),
        };
        waited_s += step_s;
        let now = read(&run.world);
        // Of two loads a throughput is no measure of either.
        judged = judged.filter(|_| changed.is_none());
        judge(&mut run, &mut judged, &seen, &now);
        let cores_changed = adapting.cores_changed;
        if changed.is_none() && !cores_changed && adapting.watch.is_in_doubt() {
            // Whether a worker has lost its unit is known before long.
            seen = now;
            continue;
        }
        let glanced = observation(&run.world, &seen, &now, loads_between(&seen, &now), adapting.available());
        let is_due = waited_s >= adapting.controller.interval().as_secs_f64() - 1e-9;
        // Cores that have changed are for an observation, at once.
        let glance = || adapting.controller.glance(&glanced);
        let noticed = if cores_changed { None } else { changed.or_else(glance) };
        if let Some(reason) = noticed {
            run.side.decisions.push(Decision::waited(&glanced, reason));
            run.world.begin_statistics();
            (collected, waited_s) = (read(&run.world), 0.0);
        }
        if noticed.is_some() || !is_due && !cores_changed {
            seen = read(&run.world);
            continue;
        }
        adapting.look_after_cores(&mut run, &glanced, CoreWatch::LOOK_SOONEST);
        if !adapting.cores_changed && adapting.watch.is_in_doubt() {
            // A plan is not made of statistics of a worker's waiting for its unit.
            seen = now;
            continue;
        }
        waited_s = 0.0;
        let observed =
            observation(&run.world, &collected, &now, (now.loads.clone(), now.samples), adapting.available());
        let throughput_tps = observed.throughput_tps;
        let plan = adapting.turn(&mut run, observed)?;
        collected = read(&run.world);
        if let Some((plan, extents, decision)) = plan {
            if !run.carry_out(&plan, &extents) {
                return Ok(run.side);
            }
            collected = read(&run.world);
            let of_gain = decision.predicted.filter(|_| !adapting.was_necessary);
            judged = of_gain.map(|predicted| (predicted.gain, throughput_tps, run.phase));
        }
        seen = read(&run.world);
    }
}

/// Compares the second after a change with what was predicted of it, if the load is the same and clients ask all the time.
fn judge(run: &mut Run<'_>, judged: &mut Option<(f64, f64, usize)>, before: &Read, now: &Read) {
    let Some((predicted_gain, before_tps, phase)) = judged.take() else { return };
    let spec = &run.world.scenario.phases[phase];
    let is_steady = spec.flip_seconds == 0.0 && spec.wander_per_s == 0.0 && spec.arrivals_per_s.is_none();
    // A throughput of two phases is no measure of either.
    if phase != run.phase || !is_steady || run.began.at_s + 1.0 > before.counters.at_s {
        return;
    }
    let after_tps = throughput(&before.counters, &now.counters, false);
    let measured_gain = 1.0 - before_tps / after_tps.max(1e-9);
    run.side.promises.push(Promise { at_s: now.counters.at_s, predicted_gain, measured_gain });
}

/// Cycles of processor time, from ns.
pub(crate) fn cycles(ns: f64) -> f64 {
    ns * GHZ
}
