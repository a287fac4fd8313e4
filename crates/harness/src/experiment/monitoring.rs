//! The cost of observing: throughput with and without it, for the transactions of `ATraPos §VI-C`, Table II.
//!
//! Owns: the measurement. Never: lets a controller act on the observations, so that both databases keep one scheme.
//!
//! The databases of a pair are loaded anew for every pair, since the placement of memory makes a difference as large as
//! that in question. In each pair the two take turns: one, the other, the other, the one, on the same cores; so drift
//! of the machine hits both alike, and the median of the pairs' ratios counts. The database that observes is asked for
//! its statistics as often as a controller that is not calm would ask, so that folding them is part of the cost.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use atrapos::{Adaptation, Database};
use atrapos_workloads::tatp::Tatp;
use atrapos_workloads::tatp::parameters::{Class, Mix};
use atrapos_workloads::{KeyChoice, Ledger, Workload};

use super::comparison::Ratio;
use super::{ExperimentError, Setup, Watched, audit_and_close};
use crate::driver::{self, Clients, Progress, Routing, RunOptions};

/// The transactions of Table II.
pub const MIXES: [Mix; 4] = [
    Mix::Only(Class::GetSubscriberData),
    Mix::Only(Class::GetNewDestination),
    Mix::Only(Class::UpdateSubscriberData),
    Mix::Standard,
];

/// Cost of observing for the transactions of one mix.
#[derive(Clone, Debug, PartialEq)]
pub struct MonitoringCost {
    /// The mix.
    pub mix: Mix,
    /// Transactions per second without observing, by pair.
    pub off_tps: Vec<f64>,
    /// The same while observing; empty if only the static side was wanted.
    pub on_tps: Vec<f64>,
}

impl MonitoringCost {
    /// Returns throughput while observing over throughput without, by pair.
    #[must_use]
    pub fn ratios(&self) -> Vec<f64> {
        self.on_tps
            .iter()
            .zip(&self.off_tps)
            .filter(|(_, off)| **off > 0.0)
            .map(|(on, off)| on / off)
            .collect()
    }

    /// Returns the median of the ratios.
    #[must_use]
    pub fn ratio(&self) -> Option<Ratio> {
        Ratio::median_of(&self.ratios())
    }
}

/// Time for which transactions run before each part that is measured.
const WARM_UP: Duration = Duration::from_millis(100);

fn warm_up(setup: &Setup<'_>) -> Duration {
    WARM_UP.min(setup.phase / 2)
}

/// Returns the time of the whole experiment besides loading.
#[must_use]
pub fn length(setup: &Setup<'_>, pairs: u32) -> Duration {
    let sides = if setup.static_only { 1 } else { 2 };
    (setup.phase + warm_up(setup) * 2) * pairs * sides * MIXES.len() as u32
}

/// One of the two databases of a pair.
struct Side<'a> {
    db: Database,
    ledger: Ledger,
    /// Interval at which statistics are requested, if there are any.
    asked_every: Option<Duration>,
    setup: &'a Setup<'a>,
    /// Runs made so far: each draws other random numbers.
    runs: u64,
}

impl Side<'_> {
    /// Measures the throughput of half a phase.
    fn measure(
        &mut self,
        workload: &Tatp,
        interrupt: &AtomicBool,
        what: &str,
        watch: &mut dyn FnMut(Watched<'_>),
    ) -> Result<f64, ExperimentError> {
        let per_worker = NonZeroUsize::new(self.setup.sessions).unwrap_or(NonZeroUsize::MIN);
        self.runs += 1;
        let options = RunOptions {
            clients: Clients::sessions(per_worker),
            routing: Routing::Any,
            warmup: warm_up(self.setup),
            measured: self.setup.phase / 2,
            run: self.runs,
            live: None,
        };
        let mut asked = Instant::now();
        let mut failed = None;
        let mut look = |_: Progress| {
            if self.asked_every.is_some_and(|every| asked.elapsed() >= every) {
                asked = Instant::now();
                failed = self.db.workload_trace().err().or(failed.take());
            }
        };
        let result = driver::run(&self.db, workload, &options, interrupt, &mut look)?;
        if let Some(abort) = failed {
            return Err(abort.into());
        }
        if interrupt.load(Ordering::Relaxed) {
            return Err(ExperimentError::Interrupted);
        }
        self.ledger.add(&result.tallies_all);
        let tps = result.throughput_tps();
        watch(Watched { what, elapsed: options.warmup + options.measured, tps });
        Ok(tps)
    }
}

/// Measures `pairs` pairs of every mix. The reported times add up to [`length`].
///
/// # Errors
/// See [`ExperimentError`].
pub fn run(
    setup: &Setup<'_>,
    pairs: u32,
    interrupt: &AtomicBool,
    watch: &mut dyn FnMut(Watched<'_>),
) -> Result<Vec<MonitoringCost>, ExperimentError> {
    let tatp = |mix: Mix| Tatp::new(setup.rows, mix, KeyChoice::Uniform, setup.seed);
    let workloads: Vec<Tatp> = MIXES.into_iter().map(tatp).collect::<Result<_, _>>()?;
    let mut costs: Vec<MonitoringCost> = MIXES
        .iter()
        .map(|mix| MonitoringCost { mix: *mix, off_tps: Vec::new(), on_tps: Vec::new() })
        .collect();
    let observing = Adaptation { act: false, ..setup.adaptation };
    let side = |observes: bool| {
        let (db, _) = setup.loaded(&workloads[0], |builder| {
            let builder = builder.workers(setup.workers);
            if observes { builder.adaptation(observing) } else { builder.fixed_scheme() }
        })?;
        let asked_every = observes.then_some(observing.controller.interval);
        Ok::<_, ExperimentError>(Side { db, ledger: Ledger::new(), asked_every, setup, runs: 0 })
    };
    for pair in 0..pairs {
        watch(Watched { what: "loading", elapsed: Duration::ZERO, tps: 0.0 });
        let mut off = side(false)?;
        let mut on = if setup.static_only { None } else { Some(side(true)?) };
        for (workload, cost) in workloads.iter().zip(&mut costs) {
            let what = cost.mix.to_string();
            let (mut off_tps, mut on_tps) = (0.0, 0.0);
            // The side that begins ends as well, and the other one begins in the next pair.
            let begins = pair % 2 == 1;
            for observes in [begins, !begins, !begins, begins] {
                match (observes, &mut on) {
                    (false, _) => off_tps += off.measure(workload, interrupt, &what, watch)? / 2.0,
                    (true, Some(on)) => on_tps += on.measure(workload, interrupt, &what, watch)? / 2.0,
                    (true, None) => {}
                }
            }
            cost.off_tps.push(off_tps);
            if on.is_some() {
                cost.on_tps.push(on_tps);
            }
        }
        for Side { db, ledger, .. } in std::iter::once(off).chain(on) {
            audit_and_close(db, &workloads[0], &ledger)?;
        }
    }
    Ok(costs)
}

/// Refuses data that does not fit in memory.
///
/// # Errors
/// Returns an error that names how much fits.
pub fn check(setup: &Setup<'_>, available_bytes: Option<u64>) -> Result<(), ExperimentError> {
    let sides = if setup.static_only { 1 } else { 2 };
    let tatp = Tatp::new(setup.rows, MIXES[0], KeyChoice::Uniform, setup.seed)?;
    Ok(available_bytes.map_or(Ok(()), |available| tatp.check_memory(available / sides))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_the_pairs_counts() {
        let mut cost = MonitoringCost {
            mix: Mix::Standard,
            off_tps: vec![100.0, 200.0, 100.0],
            on_tps: vec![99.0, 100.0, 101.0],
        };
        assert_eq!(cost.ratios(), [0.99, 0.5, 1.01]);
        assert_eq!(cost.ratio().map(|ratio| ratio.value), Some(0.99));
        cost.on_tps.clear();
        assert_eq!(cost.ratio(), None);
    }
}
