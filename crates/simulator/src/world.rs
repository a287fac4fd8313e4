//! The simulated database: workers that serve what arrives one after the other, and the calendar of what arrives when.
//!
//! Owns: virtual time. Never: plans, decides, or uses a formula of `atrapos-adapt`.
//!
//! A worker serves messages in the order in which they arrive. As nothing overtakes, the end of a service is known when the
//! message arrives, so the calendar holds arrivals only; a transaction on one worker is one event. A transaction runs at the
//! worker that owns its first access: local accesses at once; for each other worker of a stage it sends one message, suspends,
//! and goes on when all have replied; at its end each of them is sent one to release its locks. Locks themselves are not
//! simulated: what waits for each other here are messages at a worker.
//!
//! Invariants: time never goes back; the same scenario, layout and seed give the same run.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use atrapos_adapt::{CoreSight, WorkerIndex, WorkerTime, WorkloadTrace, busy_per_recorded};
use atrapos_topology::CpuSet;
use smallvec::SmallVec;

use crate::cores::Cores;
use crate::hardware::{Hardware, MachineKind, SOFTWARE};
use crate::layout::Layout;
use crate::load::{Load, Transaction};
use crate::monitor::Monitor;
use crate::scenario::{PhaseSpec, Scenario};

/// Times per second that the system takes a core away, whether or not it has anything to do, and the mean duration, in ns.
const PREEMPTIONS_PER_S: f64 = 1.0;
const PREEMPTION_NS: f64 = 1_000_000.0;
/// The speed of a core differs by this standard deviation from one tenth of a second to the next.
const SPEED_DEVIATION: f64 = 0.02;
const SPEED_NS: f64 = 1e8;
/// A worker pauses for so long while it changes a partition, in ns.
const STEP_NS: f64 = 100_000.0;
/// Time in which a client answers and asks again, in ns.
const CLIENT_NS: f64 = 1_000.0;

/// An arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Arrival {
    /// A client's next transaction.
    Ask,
    /// The next transaction of those that come by themselves; of this phase.
    Come {
        phase: u32,
    },
    Action {
        transaction: u32,
        worker: u32,
    },
    Reply {
        transaction: u32,
    },
    Release {
        from: u32,
        worker: u32,
    },
}

#[derive(Debug, Default)]
struct Running {
    transaction: Transaction,
    home: u32,
    stage: u32,
    pending: u32,
    participants: SmallVec<[u32; 4]>,
    suspended: bool,
    comes_back: bool,
}

#[derive(Debug, Clone)]
struct Worker {
    free_ns: f64,
    busy_ns: f64,
    speed: f64,
    speed_until_ns: f64,
    preempted_ns: f64,
}

/// Counters at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Counters {
    pub(crate) at_s: f64,
    pub(crate) committed: f64,
    /// Of them, those of each class, as many as were simulated.
    pub(crate) by_class: Vec<u64>,
    pub(crate) busy_ns: Vec<f64>,
}

/// A simulated database under the load of a scenario.
#[derive(Debug)]
pub(crate) struct World<'s> {
    pub(crate) scenario: &'s Scenario,
    pub(crate) kind: MachineKind,
    hardware: Hardware,
    /// Real transactions for each that is simulated: all times are longer by this factor.
    pub(crate) dilation: f64,
    now_ns: f64,
    order: u64,
    calendar: BinaryHeap<Reverse<(u64, u64, Arrival)>>,
    workers: Vec<Worker>,
    running: Vec<Running>,
    free: Vec<u32>,
    load: Load<'s>,
    /// Draws that have nothing to do with the load, so that the load is the same whatever happens.
    noise: Load<'s>,
    phase: usize,
    phase_began_ns: f64,
    committed: f64,
    by_class: Vec<u64>,
    pub(crate) layout: Layout,
    pub(crate) monitor: Monitor,
    monitored_since_ns: f64,
    monitored_busy_ns: Vec<f64>,
    cores: Cores,
}

impl<'s> World<'s> {
    /// A database that begins with the naive layout, in the first phase.
    pub(crate) fn new(scenario: &'s Scenario, kind: MachineKind, seed: u64) -> Self {
        let workers = kind.workers();
        let rate = |phase: &PhaseSpec| {
            let most = workers as f64 / (Load::mean_ns(scenario, phase) * 1e-9).max(1e-9);
            phase.arrivals_per_s.map_or(most, |rate| rate.min(most))
        };
        let fastest = scenario.phases.iter().map(rate).fold(0.0, f64::max);
        let dilation = (fastest / scenario.events_per_s(workers)).max(1.0);
        let load = Load::new(scenario, dilation.round() as u64, seed);
        let layout = Layout::naive(&load.rows, workers, scenario.shifted_by);
        let monitor = Monitor::new(layout.cut(&load.rows), workers, dilation);
        let worker =
            Worker { free_ns: 0.0, busy_ns: 0.0, speed: 1.0, speed_until_ns: 0.0, preempted_ns: 0.0 };
        let mut world = Self {
            scenario,
            kind,
            hardware: Hardware::new(kind),
            dilation,
            now_ns: 0.0,
            order: 0,
            calendar: BinaryHeap::new(),
            workers: vec![worker; workers],
            running: Vec::new(),
            free: Vec::new(),
            load,
            noise: Load::new(scenario, 1, seed ^ 0x5EED),
            phase: 0,
            phase_began_ns: 0.0,
            committed: 0.0,
            by_class: vec![0; scenario.classes.len()],
            layout,
            monitor,
            monitored_since_ns: 0.0,
            monitored_busy_ns: vec![0.0; workers],
            cores: Cores::new(kind),
        };
        for _ in 0..scenario.sessions * workers {
            let at = world.noise.even() * 1e6;
            world.schedule(at, Arrival::Ask);
        }
        world.begin_phase(0);
        world
    }

    pub(crate) fn now_s(&self) -> f64 {
        self.now_ns * 1e-9
    }

    fn spec(&self) -> &'s PhaseSpec {
        &self.scenario.phases[self.phase]
    }

    fn schedule(&mut self, at_ns: f64, arrival: Arrival) {
        self.order += 1;
        self.calendar.push(Reverse((at_ns as u64, self.order, arrival)));
    }

    /// Begins a phase now.
    pub(crate) fn begin_phase(&mut self, phase: usize) {
        let had_arrivals = phase > 0 && self.spec().arrivals_per_s.is_some();
        self.phase = phase;
        self.phase_began_ns = self.now_ns;
        self.cores.begin_phase(&self.scenario.phases[phase], self.now_ns);
        self.place_threads();
        if self.spec().arrivals_per_s.is_some() {
            self.schedule(self.now_ns, Arrival::Come { phase: phase as u32 });
        } else if had_arrivals {
            // Clients that did not ask while transactions came by themselves.
            for _ in 0..self.scenario.sessions * self.workers.len() {
                self.schedule(self.now_ns, Arrival::Ask);
            }
        }
    }

    /// Lets the threads run where they do with what their workers own now.
    pub(crate) fn place_threads(&mut self) {
        let mut owns = vec![false; self.workers.len()];
        for owner in self.layout.tables.iter().flat_map(|table| &table.owners) {
            owns[*owner as usize] = true;
        }
        self.cores.place(&owns);
    }

    /// What a database sees of its processing units and of its workers' threads.
    pub(crate) fn sight(&mut self) -> CoreSight {
        let (now_ns, workers) = (self.now_ns, &self.workers);
        self.cores.sight(now_ns, |worker| (workers[worker].free_ns - now_ns).max(0.0))
    }

    /// Lets the threads of workers run on other processing units.
    pub(crate) fn run_on(&mut self, wanted: &[(WorkerIndex, CpuSet)]) {
        wanted.iter().for_each(|(worker, cpus)| self.cores.run_on(worker.index(), cpus));
        self.place_threads();
    }

    pub(crate) fn counters(&self) -> Counters {
        Counters {
            at_s: self.now_s(),
            committed: self.committed,
            by_class: self.by_class.clone(),
            busy_ns: self.workers.iter().map(|worker| worker.busy_ns).collect(),
        }
    }

    /// The statistics since they were taken last, which begin anew. A worker that was busy for a share of `saturated` of its time is saturated.
    pub(crate) fn take_statistics(&mut self, saturated: f64) -> WorkloadTrace {
        let passed_ns = self.now_ns - self.monitored_since_ns;
        let loads = self.monitor.loads(&self.layout, self.workers.len());
        let times = self.workers.iter().zip(&self.monitored_busy_ns).zip(&loads);
        let times = times.map(|((worker, before), recorded)| {
            let busy = worker.busy_ns - before;
            WorkerTime { busy, idle: (passed_ns - busy).max(0.0), of_thread: 1, recorded: *recorded }
        });
        let scales = busy_per_recorded(&times.collect::<Vec<_>>(), saturated).unwrap_or_default();
        let busy: Vec<f64> = loads.iter().zip(scales).map(|(recorded, scale)| recorded * scale).collect();
        let seconds = (passed_ns * 1e-9).max(1e-9);
        let trace = self.monitor.trace(self.scenario, &self.layout, &busy, seconds);
        self.begin_statistics();
        trace
    }

    /// Discards the statistics.
    pub(crate) fn begin_statistics(&mut self) {
        self.monitored_since_ns = self.now_ns;
        self.monitored_busy_ns = self.workers.iter().map(|worker| worker.busy_ns).collect();
        self.monitor.restart(self.layout.cut(&self.load.rows));
    }

    /// Occupies a worker that changes a partition.
    pub(crate) fn pause(&mut self, worker: u32) {
        let worker = &mut self.workers[worker as usize];
        worker.free_ns = worker.free_ns.max(self.now_ns) + STEP_NS;
        worker.busy_ns += STEP_NS;
    }

    /// Lets time pass until second `until_s`.
    pub(crate) fn run_until(&mut self, until_s: f64) {
        let until_ns = (until_s * 1e9).round();
        while let Some(Reverse((at, _, _))) = self.calendar.peek() {
            if *at as f64 > until_ns {
                break;
            }
            let Some(Reverse((at, _, arrival))) = self.calendar.pop() else { break };
            self.now_ns = self.now_ns.max(at as f64);
            self.arrive(arrival);
        }
        self.now_ns = self.now_ns.max(until_ns);
    }

    fn arrive(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Ask => {
                if self.spec().arrivals_per_s.is_none() {
                    self.begin(true);
                }
            }
            Arrival::Come { phase } => self.come(phase as usize),
            Arrival::Action { transaction, worker } => self.act(transaction, worker),
            Arrival::Reply { transaction } => self.reply(transaction),
            Arrival::Release { from, worker } => {
                let ns = self.hardware.message_ns(from as usize, worker as usize, 0.0);
                self.serve(worker, ns);
            }
        }
    }

    fn come(&mut self, phase: usize) {
        let spec = self.spec();
        let Some(rate) = spec.arrivals_per_s.filter(|_| phase == self.phase) else { return };
        let passed = (self.now_ns - self.phase_began_ns) * 1e-9 / spec.seconds;
        // Down to the middle and up again.
        let ebb = spec.ebb_to.map_or(1.0, |to| to + (1.0 - to) * (2.0 * passed - 1.0).abs());
        let next = self.load.between_events(1e9 * self.dilation / (rate * ebb));
        self.schedule(self.now_ns + next, Arrival::Come { phase: phase as u32 });
        self.begin(false);
    }

    /// Occupies a worker for `ns` of real time, from when it is free. Returns when it is done.
    fn serve(&mut self, worker: u32, ns: f64) -> f64 {
        let (now_ns, dilation) = (self.now_ns, self.dilation);
        let state = &mut self.workers[worker as usize];
        let start = state.free_ns.max(now_ns);
        if start >= state.speed_until_ns {
            state.speed = (1.0 + SPEED_DEVIATION * self.noise.normal()).max(0.5);
            state.speed_until_ns = start + SPEED_NS;
        }
        let ran = ns * dilation * state.speed;
        let mut took = ran * self.cores.stretch(worker as usize);
        let mut late = 0.0;
        if start >= state.preempted_ns {
            if state.preempted_ns > 0.0 {
                // What of it was over before there was anything to do has delayed nothing.
                let away_ns =
                    (state.preempted_ns + self.noise.between_events(PREEMPTION_NS) - start).max(0.0);
                // A worker that had nothing to do begins later; any other one was away in the middle of something.
                *(if start > state.free_ns { &mut late } else { &mut took }) += away_ns;
            }
            state.preempted_ns = start + self.noise.between_events(1e9 / PREEMPTIONS_PER_S);
        }
        state.free_ns = start + late + took;
        state.busy_ns += took;
        self.cores.book(worker as usize, ran, took);
        state.free_ns
    }

    fn begin(&mut self, comes_back: bool) {
        let at_s = (self.now_ns - self.phase_began_ns) * 1e-9;
        let mut transaction = self.load.draw(self.spec(), at_s);
        for access in &mut transaction.accesses {
            access.owner = self.layout.owner(access.table, access.key);
        }
        let home = transaction.accesses[0].owner;
        let at = self.free.pop().unwrap_or_else(|| {
            self.running.push(Running::default());
            self.running.len() as u32 - 1
        });
        let running = &mut self.running[at as usize];
        running.participants.clear();
        (running.home, running.stage, running.pending) = (home, 0, 0);
        (running.suspended, running.comes_back) = (false, comes_back);
        running.transaction = transaction;
        let base_ns = self.scenario.classes[running.transaction.class].base_ns * running.transaction.factor;
        self.go_on(at, base_ns);
    }

    /// Runs a transaction at its home from its present stage to its next suspension or to its end, after `ns` of work.
    fn go_on(&mut self, at: u32, mut ns: f64) {
        let running = &self.running[at as usize];
        let (home, mut stage) = (running.home, running.stage);
        let class = &self.scenario.classes[running.transaction.class];
        let factor = running.transaction.factor;
        let mut remote: SmallVec<[u32; 4]> = SmallVec::new();
        while remote.is_empty() && (stage as usize) < class.stages.len() {
            for access in running.transaction.accesses.iter().filter(|access| access.stage == stage) {
                if access.owner == home {
                    ns += access.ns * factor;
                } else if !remote.contains(&access.owner) {
                    remote.push(access.owner);
                }
            }
            if remote.is_empty() {
                stage += 1;
            }
        }
        if remote.is_empty() {
            return self.end(at, ns);
        }
        let keep = 16.0;
        ns += SOFTWARE.suspension_ns;
        ns += remote
            .iter()
            .map(|worker| self.hardware.message_ns(home as usize, *worker as usize, keep))
            .sum::<f64>();
        let running = &mut self.running[at as usize];
        (running.stage, running.pending) = (stage, remote.len() as u32);
        for worker in &remote {
            if !running.participants.contains(worker) {
                running.participants.push(*worker);
            }
        }
        let is_first = !std::mem::replace(&mut running.suspended, true);
        let done_ns = self.serve(home, ns);
        if is_first {
            self.record(at, home, ns, Some(stage));
        }
        for worker in remote {
            let latency = self.hardware.latency_ns(home as usize, worker as usize) * self.dilation;
            self.schedule(done_ns + latency, Arrival::Action { transaction: at, worker });
        }
    }

    fn act(&mut self, at: u32, worker: u32) {
        let running = &self.running[at as usize];
        let (home, stage) = (running.home, running.stage);
        let transaction = &running.transaction;
        let bytes = self.scenario.classes[transaction.class].bytes;
        let mine = transaction.accesses.iter().filter(|a| a.stage == stage && a.owner == worker);
        let mut ns = mine.map(|access| access.ns * transaction.factor).sum::<f64>();
        ns += self.hardware.message_ns(home as usize, worker as usize, 16.0);
        ns += self.hardware.message_ns(worker as usize, home as usize, bytes);
        let done_ns = self.serve(worker, ns);
        self.record(at, worker, ns, Some(stage));
        let latency = self.hardware.latency_ns(worker as usize, home as usize) * self.dilation;
        self.schedule(done_ns + latency, Arrival::Reply { transaction: at });
    }

    fn reply(&mut self, at: u32) {
        let running = &mut self.running[at as usize];
        let home = running.home;
        running.pending -= 1;
        let is_last = running.pending == 0;
        let bytes = self.scenario.classes[running.transaction.class].bytes;
        // All workers of a stage are as far as the first, near enough.
        let from = running.participants[running.pending as usize % running.participants.len()];
        let ns = self.hardware.message_ns(from as usize, home as usize, bytes);
        if !is_last {
            self.serve(home, ns);
            return;
        }
        self.running[at as usize].stage += 1;
        self.go_on(at, ns);
    }

    fn end(&mut self, at: u32, mut ns: f64) {
        let running = &self.running[at as usize];
        let home = running.home;
        let participants = running.participants.clone();
        ns += participants
            .iter()
            .map(|worker| self.hardware.message_ns(home as usize, *worker as usize, 0.0))
            .sum::<f64>();
        let done_ns = self.serve(home, ns);
        self.record(at, home, ns, None);
        for worker in participants {
            let latency = self.hardware.latency_ns(home as usize, worker as usize) * self.dilation;
            self.schedule(done_ns + latency, Arrival::Release { from: home, worker });
        }
        self.committed += self.dilation;
        self.by_class[self.running[at as usize].transaction.class] += 1;
        self.free.push(at);
        if self.running[at as usize].comes_back {
            self.schedule(done_ns + CLIENT_NS * self.dilation, Arrival::Ask);
        }
    }

    /// Lets the monitor see an event of `worker`: of the accesses up to a stage, or the end of a transaction.
    fn record(&mut self, at: u32, worker: u32, ns: f64, stage: Option<u32>) {
        let draw = self.noise.even();
        let now_ns = self.workers[worker as usize].free_ns;
        let Some(stands_for) = self.monitor.is_due(worker as usize, now_ns, draw) else { return };
        let running = &self.running[at as usize];
        let transaction = &running.transaction;
        let touched: SmallVec<[(u32, u64); 4]> = transaction
            .accesses
            .iter()
            .filter(|access| access.owner == worker && stage.is_none_or(|stage| access.stage <= stage))
            .map(|access| (access.table, access.key))
            .collect();
        if touched.is_empty() {
            return;
        }
        self.monitor.charge(ns * self.dilation, stands_for, &touched);
        if stage.is_none() {
            self.record_points(at, stands_for);
        }
    }

    /// Lets the monitor see the synchronization points of a transaction: one of each stage.
    fn record_points(&mut self, at: u32, stands_for: f64) {
        let transaction = &self.running[at as usize].transaction;
        let class = &self.scenario.classes[transaction.class];
        let mut met = Vec::new();
        for stage in (0..).take(class.stages.len()) {
            let of_stage = transaction.accesses.iter().filter(|access| access.stage == stage);
            let keys: SmallVec<[(u32, u64); 4]> = std::iter::once(&transaction.accesses[0])
                .chain(of_stage)
                .map(|access| (access.table, access.key))
                .collect();
            let draw = self.noise.even();
            self.monitor.meet(&keys, &mut met, class.bytes, stands_for, draw);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::World;
    use crate::{MachineKind, scenarios};

    #[test]
    fn every_stage_is_a_synchronization_point() {
        let scenarios = scenarios();
        let points = |name: &str| {
            let scenario = scenarios.iter().find(|scenario| scenario.name == name).expect("a scenario");
            let mut world = World::new(scenario, MachineKind::Two, 1);
            world.run_until(1.0);
            let committed = world.committed;
            let points = world.take_statistics(0.9).sync_points;
            let sum = |of: fn(&atrapos_adapt::SyncPointTrace) -> u64| {
                points.iter().map(of).sum::<u64>() as f64 / committed
            };
            (sum(|point| point.count), sum(|point| point.again))
        };
        let (count, again) = points("mirrored");
        assert!((0.85..1.15).contains(&count) && again == 0.0, "{count} of a transaction, {again} again");
        let (count, again) = points("in-stages");
        assert!((2.5..3.5).contains(&count), "{count} of a transaction");
        assert!((0.6..0.73).contains(&(again / count)), "{again} of {count} again");
    }
}
