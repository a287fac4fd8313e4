//! The steps from a shared-everything system by PLP to ATraPos, for the simple transaction of `ATraPos §V-A`, Figure 6 (thesis
//! §4.3.1, Figure 4.7).
//!
//! Owns: the rungs, and running them in turns. Never: judges how much a step brings.
//!
//! All rungs but the first are this engine with other options: system state that all workers share, or those of an island, or
//! none; and a scheme that is naive, workload-aware or placed. Every rung observes its workload alike, which costs the same, and
//! none adapts. A database is opened, loaded, observed, repartitioned and audited anew for every rung of every round; every other
//! round climbs down.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use atrapos::{Adaptation, CentralState, Database, SchemeSearch, Scope};
use atrapos_baselines::SharedDatabase;
use atrapos_baselines::two_phase::LockingEngine;
use atrapos_harness::driver::{self, Clients, Progress, Routing, RunOptions, RunResult, SharedThreads};
use atrapos_harness::median;
use atrapos_workloads::pair::Pair;
use atrapos_workloads::{ClassTally, Ledger, Workload};

use super::{ExperimentError, Setup, Watched, audit_and_close};

/// One configuration of Figure 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rung {
    /// Threads that share the data, with two-phase locking and a central lock manager.
    Centralized,
    /// PLP: central system state, naive scheme.
    Plp,
    /// System state per island, naive scheme.
    HardwareAware,
    /// System state per island, partitions of equal load in order of the tables.
    WorkloadAware,
    /// System state per island, partitions of equal load, placed where they synchronize.
    Placed,
    /// System state with each worker, naive scheme: this engine without any option, beyond the paper.
    PerWorker,
}

impl Rung {
    /// All of them, in order.
    pub const ALL: [Rung; 6] = [
        Rung::Centralized,
        Rung::Plp,
        Rung::HardwareAware,
        Rung::WorkloadAware,
        Rung::Placed,
        Rung::PerWorker,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Rung::Centralized => "centralized",
            Rung::Plp => "plp",
            Rung::HardwareAware => "hardware-aware",
            Rung::WorkloadAware => "workload-aware",
            Rung::Placed => "placed",
            Rung::PerWorker => "per-worker",
        }
    }

    /// Its shared system state, and the search for its scheme, if it has another one than the naive.
    fn options(self) -> (CentralState, Option<SchemeSearch>) {
        let (scope, search) = match self {
            Rung::Plp => (Scope::Central, None),
            Rung::HardwareAware => (Scope::Island, None),
            Rung::WorkloadAware => (Scope::Island, Some(SchemeSearch::Partitioning)),
            Rung::Placed => (Scope::Island, Some(SchemeSearch::PartitioningAndPlacement)),
            Rung::Centralized | Rung::PerWorker => (Scope::Worker, None),
        };
        (CentralState::all(scope), search)
    }
}

/// One run of a rung.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RungRun {
    /// Transactions per second.
    pub tps: f64,
    /// Accesses to system state that workers share, per transaction.
    pub central_accesses: f64,
    /// Actions on other workers than the home, per transaction.
    pub remote_actions: f64,
}

/// All runs of a rung.
#[derive(Clone, Debug, PartialEq)]
pub struct RungResult {
    /// The rung.
    pub rung: Rung,
    /// Its runs, one per round.
    pub runs: Vec<RungRun>,
}

impl RungResult {
    /// Returns the median of a number over the rounds; 0 without any.
    #[must_use]
    pub fn median(&self, number: impl Fn(&RungRun) -> f64) -> f64 {
        if self.runs.is_empty() { 0.0 } else { median(&mut self.runs.iter().map(number).collect::<Vec<_>>()) }
    }

    /// Returns the median throughput.
    #[must_use]
    pub fn tps(&self) -> f64 {
        self.median(|run| run.tps)
    }

    /// Returns the least and the greatest throughput of a round.
    #[must_use]
    pub fn spread(&self) -> (f64, f64) {
        let tps = || self.runs.iter().map(|run| run.tps);
        (tps().fold(f64::INFINITY, f64::min), tps().fold(0.0, f64::max))
    }
}

/// Share of a phase for which a rung runs before it is measured; what it observes then decides on its scheme.
const WARM_UP: u32 = 4;

/// Transactions that are observed at least: few of many, or each of few, are recorded.
const OBSERVED_TRANSACTIONS_MIN: u64 = 1_024;

/// Warm-ups in which so many may come, on a machine that has no time.
const WARM_UPS_MAX: u64 = 100;

/// Returns the rungs that are run.
fn rungs(setup: &Setup<'_>) -> &'static [Rung] {
    // The side that keeps its first scheme and shares what a storage manager has once.
    if setup.static_only { &Rung::ALL[..2] } else { &Rung::ALL }
}

/// Returns the time of the whole experiment besides loading, if no warm-up is repeated.
#[must_use]
pub fn length(setup: &Setup<'_>, rounds: u32) -> Duration {
    (setup.phase + setup.phase / WARM_UP) * rounds * rungs(setup).len() as u32
}

/// Runs all rungs, `rounds` times.
///
/// # Errors
/// See [`ExperimentError`].
pub fn run(
    setup: &Setup<'_>,
    rounds: u32,
    interrupt: &AtomicBool,
    watch: &mut dyn FnMut(Watched<'_>),
) -> Result<Vec<RungResult>, ExperimentError> {
    let workload = Pair::new(setup.rows, setup.seed)?;
    let mut results: Vec<RungResult> =
        rungs(setup).iter().map(|rung| RungResult { rung: *rung, runs: Vec::new() }).collect();
    for round in 0..rounds {
        let count = results.len();
        for at in 0..count {
            let at = if round % 2 == 0 { at } else { count - 1 - at };
            let result = &mut results[at];
            watch(Watched { what: "loading", elapsed: Duration::ZERO, tps: 0.0 });
            let mut climb = Climb { setup, workload: &workload, rung: result.rung, interrupt, watch };
            result.runs.push(match result.rung {
                Rung::Centralized => climb.shared()?,
                _ => climb.partitioned()?,
            });
        }
    }
    Ok(results)
}

/// The run of one rung.
struct Climb<'a> {
    setup: &'a Setup<'a>,
    workload: &'a Pair,
    rung: Rung,
    interrupt: &'a AtomicBool,
    watch: &'a mut dyn FnMut(Watched<'_>),
}

impl Climb<'_> {
    /// Makes a run, and notes its transactions in the ledger.
    fn run(
        &mut self,
        length: Duration,
        number: u64,
        ledger: &mut Ledger,
        run: impl FnOnce(
            &RunOptions,
            &AtomicBool,
            &mut dyn FnMut(Progress),
        ) -> Result<RunResult, driver::RunError>,
    ) -> Result<RunResult, ExperimentError> {
        let per_worker = NonZeroUsize::new(self.setup.sessions).unwrap_or(NonZeroUsize::MIN);
        let options = RunOptions {
            clients: Clients::sessions(per_worker),
            routing: Routing::Any,
            warmup: Duration::ZERO,
            measured: length,
            run: number,
            live: None,
        };
        let result = run(&options, self.interrupt, &mut |_| {})?;
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(ExperimentError::Interrupted);
        }
        ledger.add(&result.tallies_all);
        (self.watch)(Watched { what: self.rung.name(), elapsed: length, tps: result.throughput_tps() });
        Ok(result)
    }

    /// Runs a rung of this engine: observes a warm-up, chooses the scheme, measures.
    fn partitioned(&mut self) -> Result<RungRun, ExperimentError> {
        let (central_state, search) = self.rung.options();
        let adaptation = Adaptation { act: false, ..self.setup.adaptation };
        let (workers, workload) = (self.setup.workers, self.workload);
        let (db, _) = self.setup.loaded(workload, |builder| {
            builder.workers(workers).adaptation(adaptation).central_state(central_state)
        })?;
        let mut ledger = Ledger::new();
        // The statistics of loading are discarded.
        db.workload_trace()?;
        let mut completed = 0;
        for number in 0..WARM_UPS_MAX {
            let warm_up = self.setup.phase / WARM_UP;
            let run = |options: &RunOptions, interrupt: &AtomicBool, watch: &mut dyn FnMut(Progress)| {
                driver::run(&db, workload, options, interrupt, watch)
            };
            let result = self.run(warm_up, number + 1, &mut ledger, run)?;
            completed += result.tallies_all.iter().map(ClassTally::completed).sum::<u64>();
            if completed >= OBSERVED_TRANSACTIONS_MIN {
                break;
            }
        }
        if let Some(search) = search {
            db.choose_scheme(search)?;
        }
        let run = |options: &RunOptions, interrupt: &AtomicBool, watch: &mut dyn FnMut(Progress)| {
            driver::run(&db, workload, options, interrupt, watch)
        };
        let result = self.run(self.setup.phase, 0, &mut ledger, run)?;
        audit_and_close(db, workload, &ledger)?;
        Ok(of(&result))
    }

    /// Runs the rung of the engine with shared data, with one thread for each worker of the others.
    fn shared(&mut self) -> Result<RungRun, ExperimentError> {
        let (setup, workload) = (self.setup, self.workload);
        let empty = || -> Result<Database, ExperimentError> {
            Ok((setup.open)(workload.schema()).workers(setup.workers).fixed_scheme().in_memory()?)
        };
        let copied = |error: atrapos_baselines::CopyError| ExperimentError::Shared(error.to_string());
        let (full, _) = setup.loaded(workload, |builder| builder.workers(setup.workers).fixed_scheme())?;
        let handles = empty()?;
        let shared = SharedDatabase::fill(|trees| Box::new(LockingEngine::new(trees)), &full, &handles);
        let shared = shared.map_err(copied)?;
        full.close(super::CLOSE_DEADLINE);
        let mut ledger = Ledger::new();
        let threads = NonZeroUsize::new(setup.workers).unwrap_or(NonZeroUsize::MIN);
        let pipeline = NonZeroUsize::MIN;
        // Those of the workers, which are idle; none if they are not pinned.
        let cpus: Vec<usize> = handles.worker_reports().iter().filter_map(|worker| worker.core).collect();
        let mut one = |climb: &mut Self, length, number| {
            climb.run(length, number, &mut ledger, |options, interrupt, watch| {
                let threads = SharedThreads { threads, cpus: &cpus, pipeline };
                driver::run_shared((&shared, &handles), workload, options, threads, interrupt, watch)
            })
        };
        one(self, setup.phase / WARM_UP, 1)?;
        let result = one(self, setup.phase, 0)?;
        let copy = empty()?;
        shared.copy_to(&copy).map_err(copied)?;
        audit_and_close(copy, workload, &ledger)?;
        handles.close(super::CLOSE_DEADLINE);
        Ok(of(&result))
    }
}

/// Returns the numbers of a run.
fn of(result: &RunResult) -> RungRun {
    let transactions = result.statistics.committed.max(1) as f64;
    RungRun {
        tps: result.throughput_tps(),
        central_accesses: result.statistics.central_accesses as f64 / transactions,
        remote_actions: result.statistics.remote_actions as f64 / transactions,
    }
}

/// Refuses data that does not fit in memory.
///
/// # Errors
/// Returns an error that names how much fits.
pub fn check(setup: &Setup<'_>, available_bytes: Option<u64>) -> Result<(), ExperimentError> {
    let pair = Pair::new(setup.rows, setup.seed)?;
    // The engine with shared data is filled from a database that is there meanwhile.
    Ok(available_bytes.map_or(Ok(()), |available| pair.check_memory(available / 2))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_the_rounds_counts() {
        let run = |tps| RungRun { tps, ..RungRun::default() };
        let mut result = RungResult { rung: Rung::Plp, runs: vec![run(3.0), run(1.0), run(2.0)] };
        assert_eq!((result.tps(), result.spread()), (2.0, (1.0, 3.0)));
        result.runs.clear();
        assert_eq!(result.tps(), 0.0);
    }

    #[test]
    fn each_rung_differs_from_the_one_before_in_one_point() {
        let options: Vec<_> = Rung::ALL[1..5].iter().map(|rung| rung.options()).collect();
        for pair in options.windows(2) {
            assert!((pair[0].0 == pair[1].0) != (pair[0].1 == pair[1].1), "{pair:?}");
        }
        let (own, search) = Rung::PerWorker.options();
        assert_eq!((own, search), (CentralState::default(), None));
    }
}
