//! The processing units of a simulated machine and the workers' threads on them, as an operating system has it.
//!
//! Owns: which units are online, where others run, where each thread may run and does, and the times of both. Never: judges whether a
//! worker has lost its unit: there is as much to see as in a database ([`CoreSight`]), and [`atrapos_adapt::CoreWatch`] judges.
//!
//! - A thread that is pinned runs on the unit of its worker. When that goes offline, the kernel lets it run everywhere.
//! - A thread that may run everywhere runs on the unit of its worker, too, if that is online and free of others, and otherwise on the one at the
//!   same position in the next island. Threads on one unit share it if they have anything to do: if their workers own anything.
//! - Others have a real-time priority, as a program on cores of its own often has. They leave a twentieth of the time to a thread that
//!   must stay: `sched_rt_runtime_us` is 950,000 by default, of a second (the kernel's *Real-Time group scheduling*).
//!
//! Invariant: at least one unit is online and free of others.

use std::collections::BTreeMap;

use atrapos_adapt::{CoreSight, WorkerSight};
use atrapos_topology::{CpuId, CpuSet, ThreadTime, UnitTime};

use crate::hardware::MachineKind;
use crate::scenario::PhaseSpec;

/// The factor on all times of a thread beside others: see the module's introduction.
const BESIDE_OTHERS: f64 = 20.0;

/// The processing unit of a worker.
#[derive(Debug, Clone)]
struct Unit {
    cpu: CpuId,
    is_online: bool,
    has_others: bool,
    /// Time for which threads of workers have run there.
    busy_ns: f64,
    /// Time in which nothing ran there, until `counted_ns`, when workers had run for `busy_counted_ns`.
    idle_ns: f64,
    counted_ns: f64,
    busy_counted_ns: f64,
}

impl Unit {
    fn is_fit(&self) -> bool {
        self.is_online && !self.has_others
    }

    /// Counts what it was idle until now.
    fn count(&mut self, now_ns: f64) {
        let busy_ns = self.busy_ns - self.busy_counted_ns;
        if !self.has_others {
            self.idle_ns += (now_ns - self.counted_ns - busy_ns).max(0.0);
        }
        (self.counted_ns, self.busy_counted_ns) = (now_ns, self.busy_ns);
    }
}

/// The thread of a worker.
#[derive(Debug, Clone)]
struct Thread {
    is_pinned: bool,
    /// The worker on whose unit it runs.
    runs_at: usize,
    /// The factor on its times, because it does not have the unit for itself.
    stretch: f64,
    ran_ns: f64,
    waited_ns: f64,
    turns: u64,
}

/// The units and threads of a machine, one of each per worker.
#[derive(Debug, Clone)]
pub(crate) struct Cores {
    island_workers: usize,
    units: Vec<Unit>,
    threads: Vec<Thread>,
}

impl Cores {
    /// All threads pinned to units that nobody else uses.
    pub(crate) fn new(kind: MachineKind) -> Self {
        let unit = |cpu: CpuId| Unit {
            cpu,
            is_online: true,
            has_others: false,
            busy_ns: 0.0,
            idle_ns: 0.0,
            counted_ns: 0.0,
            busy_counted_ns: 0.0,
        };
        let thread = |runs_at: usize| Thread {
            is_pinned: true,
            runs_at,
            stretch: 1.0,
            ran_ns: 0.0,
            waited_ns: 0.0,
            turns: 0,
        };
        Self {
            island_workers: kind.island_workers(),
            units: kind.machine().placement(kind.workers()).into_iter().map(unit).collect(),
            threads: (0..kind.workers()).map(thread).collect(),
        }
    }

    /// Takes the units from which a phase takes them, and brings the others back; [`place`](Self::place) has to follow.
    pub(crate) fn begin_phase(&mut self, phase: &PhaseSpec, now_ns: f64) {
        for (worker, (unit, thread)) in self.units.iter_mut().zip(&mut self.threads).enumerate() {
            unit.count(now_ns);
            let island = Some(worker / self.island_workers);
            unit.is_online = phase.offline_island != island;
            unit.has_others = phase.busy_island == island;
            thread.is_pinned &= unit.is_online;
        }
    }

    /// Lets the thread of a worker run on these units only: on its own, or wherever it may.
    pub(crate) fn run_on(&mut self, worker: usize, cpus: &CpuSet) {
        self.threads[worker].is_pinned = cpus.len() == 1 && cpus.contains(self.units[worker].cpu);
    }

    /// Moves the threads to the units where they run now, if these workers own something.
    pub(crate) fn place(&mut self, owns: &[bool]) {
        let workers = self.units.len();
        let mut sharing = vec![0.0; workers];
        for (worker, owns) in owns.iter().enumerate() {
            let is_at_home = self.threads[worker].is_pinned || self.units[worker].is_fit();
            let fit = (0..workers)
                .map(|step| (worker + step * self.island_workers) % workers)
                .find(|other| self.units[*other].is_fit());
            let runs_at = if is_at_home { worker } else { fit.unwrap_or(worker) };
            self.threads[worker].runs_at = runs_at;
            sharing[runs_at] += f64::from(u8::from(*owns));
        }
        for thread in &mut self.threads {
            let beside = if self.units[thread.runs_at].has_others { BESIDE_OTHERS } else { 1.0 };
            thread.stretch = beside * f64::max(sharing[thread.runs_at], 1.0);
        }
    }

    /// The factor on all times of a worker.
    pub(crate) fn stretch(&self, worker: usize) -> f64 {
        self.threads[worker].stretch
    }

    /// Books a service of a worker: it ran for `ran_ns` of the `took_ns`.
    pub(crate) fn book(&mut self, worker: usize, ran_ns: f64, took_ns: f64) {
        let thread = &mut self.threads[worker];
        thread.ran_ns += ran_ns;
        thread.waited_ns += took_ns - ran_ns;
        thread.turns += 1;
        self.units[thread.runs_at].busy_ns += ran_ns;
    }

    /// Returns what there is to see now. `ahead_ns` is the time of each worker that has been booked and not passed.
    pub(crate) fn sight(&mut self, now_ns: f64, ahead_ns: impl Fn(usize) -> f64) -> CoreSight {
        self.units.iter_mut().for_each(|unit| unit.count(now_ns));
        let online: CpuSet = self.units.iter().filter(|unit| unit.is_online).map(|unit| unit.cpu).collect();
        let time = |unit: &Unit| UnitTime { idle: unit.idle_ns as u64, stolen: 0, total: now_ns as u64 };
        let units = self.units.iter().filter(|unit| unit.is_online).map(|unit| (unit.cpu, time(unit)));
        let units: BTreeMap<CpuId, UnitTime> = units.collect();
        let of_worker = |(worker, thread): (usize, &Thread)| {
            let own: CpuSet = [self.units[worker].cpu].into_iter().collect();
            let ahead_ns = ahead_ns(worker);
            let to_run_ns = ahead_ns / thread.stretch;
            WorkerSight {
                cpus: Some(if thread.is_pinned { own } else { online.clone() }),
                time: Some(ThreadTime {
                    ran_ns: (thread.ran_ns - to_run_ns).max(0.0) as u64,
                    waited_ns: (thread.waited_ns - (ahead_ns - to_run_ns)).max(0.0) as u64,
                    turns: thread.turns,
                    is_runnable: ahead_ns > 0.0,
                    cpu: Some(self.units[thread.runs_at].cpu),
                }),
            }
        };
        let workers = self.threads.iter().enumerate().map(of_worker).collect();
        CoreSight { allowed: Some(online.clone()), online: Some(online), quota: None, units, workers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenarios;

    const SECOND_NS: f64 = 1e9;

    /// The first phase of the project's that takes an island's units in the way that `takes` asks for.
    fn phase(takes: impl Fn(&PhaseSpec) -> bool) -> PhaseSpec {
        let phases = scenarios().into_iter().flat_map(|scenario| scenario.phases);
        phases.into_iter().find(|phase| takes(phase)).expect("a phase that takes an island")
    }

    fn share_of(sight: &CoreSight, worker: usize) -> f64 {
        let time = sight.workers[worker].time.expect("a time");
        time.ran_ns as f64 / (time.ran_ns + time.waited_ns) as f64
    }

    #[test]
    fn a_thread_whose_unit_is_offline_shares_that_of_another_one() {
        let mut cores = Cores::new(MachineKind::TwoByEight);
        let owns = vec![true; 16];
        cores.begin_phase(&phase(|phase| phase.offline_island == Some(1)), SECOND_NS);
        cores.place(&owns);
        assert_eq!((cores.stretch(0), cores.stretch(8)), (2.0, 2.0));
        cores.book(8, 1e8, 2e8);
        let sight = cores.sight(2.0 * SECOND_NS, |_| 0.0);
        assert_eq!(share_of(&sight, 8), 0.5);
        let own = cores.units[8].cpu;
        let online = sight.online.expect("a list");
        assert!(!online.contains(own) && online.len() == 8);
        assert_eq!(sight.workers[8].cpus, Some(online));
        // It ran for a tenth of the second on the unit of the other one.
        assert!(sight.units[&cores.units[0].cpu].idle == 19 * 100_000_000);
        // Who owns nothing has nothing to do.
        cores.place(&(0..16).map(|worker| worker < 8).collect::<Vec<_>>());
        assert_eq!(cores.stretch(0), 1.0);
        // The unit is back: the thread runs there, although it may run elsewhere.
        cores.begin_phase(&phase(|phase| phase.offline_island.is_none()), 3.0 * SECOND_NS);
        cores.place(&owns);
        assert_eq!((cores.threads[8].runs_at, cores.stretch(8)), (8, 1.0));
        assert!(!cores.threads[8].is_pinned);
    }

    #[test]
    fn a_thread_beside_others_waits_until_it_may_leave() {
        let mut cores = Cores::new(MachineKind::TwoByEight);
        let owns = vec![true; 16];
        cores.begin_phase(&phase(|phase| phase.busy_island == Some(1)), SECOND_NS);
        cores.place(&owns);
        assert_eq!((cores.stretch(0), cores.stretch(8)), (1.0, 20.0));
        // Half of what is booked has not passed.
        cores.book(8, 1e8, 2e9);
        let sight = cores.sight(2.0 * SECOND_NS, |worker| if worker == 8 { 1e9 } else { 0.0 });
        assert!((share_of(&sight, 8) - 0.05).abs() < 1e-9);
        assert!(sight.workers[8].time.is_some_and(|time| time.is_runnable));
        let unit = sight.units[&cores.units[8].cpu];
        assert_eq!((unit.idle, unit.total), (1_000_000_000, 2_000_000_000));
        cores.run_on(8, &sight.allowed.expect("units"));
        cores.place(&owns);
        assert_eq!((cores.threads[8].runs_at, cores.stretch(8)), (0, 2.0));
    }
}
