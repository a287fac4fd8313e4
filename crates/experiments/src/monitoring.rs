//! The cost of observing: throughput with and without it, for the transactions of `ATraPos §VI-C`, Table II.
//!
//! Owns: the measurement. Never: lets a controller act on the observations, so that the database keeps one scheme.
//!
//! There is one database, since the placement of memory makes a difference larger than that in question, and its sessions go on while it observes in
//! turns: for a slice it records, for two it does not, for two it does, so that drift of the machine hits both alike. A pair is of so many slices that each
//! side has its time, and the median of the pairs' ratios counts. The database is asked for its statistics as often as a controller that is not
//! calm would ask, in time in which it observes, so that folding them is part of the cost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use atrapos::{Adaptation, Database};
use atrapos_workloads::tatp::Tatp;
use atrapos_workloads::tatp::parameters::{Class, Mix};
use atrapos_workloads::{KeyChoice, Ledger, Workload};

use super::comparison::Ratio;
use super::crowd::Crowd;
use super::{ExperimentError, Setup, Watched, audit_and_close};

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

/// Time for which transactions run before the first slice of a pair.
const WARM_UP: Duration = Duration::from_millis(100);

/// Time for which the database observes, or does not, at a stretch.
const SLICE: Duration = Duration::from_millis(25);

fn sides(setup: &Setup<'_>) -> u32 {
    if setup.static_only { 1 } else { 2 }
}

/// Returns the time of the whole experiment besides loading.
#[must_use]
pub fn length(setup: &Setup<'_>, pairs: u32) -> Duration {
    (setup.phase * sides(setup) + WARM_UP) * pairs * MIXES.len() as u32
}

/// Transactions of one side, and the time in which they ended.
#[derive(Clone, Copy, Default)]
struct Part {
    transactions: u64,
    time: Duration,
}

impl Part {
    fn tps(self) -> f64 {
        self.transactions as f64 / self.time.as_secs_f64().max(1e-9)
    }
}

/// The database, with sessions that go on.
struct Measured<'a> {
    db: &'a Database,
    crowd: Crowd<'a>,
    interval: Duration,
    /// Time in which it has observed since its statistics were taken.
    observed: Duration,
}

impl Measured<'_> {
    /// Lets the sessions run for a slice in which the database observes, or does not.
    fn slice(&mut self, observes: bool, length: Duration) -> Result<Part, ExperimentError> {
        self.db.set_recording(observes)?;
        let (began, before) = (Instant::now(), self.crowd.completed());
        std::thread::sleep(length);
        if observes {
            self.observed += length;
        }
        if self.observed >= self.interval {
            self.observed = Duration::ZERO;
            self.db.workload_trace()?;
        }
        Ok(Part { transactions: self.crowd.completed() - before, time: began.elapsed() })
    }
}

/// Measures one pair: throughput without observing, and with it if that is wanted.
fn pair(
    measured: &mut Measured<'_>,
    setup: &Setup<'_>,
    begins: bool,
    interrupt: &AtomicBool,
    report: &mut dyn FnMut(Duration, f64),
) -> Result<(f64, Option<f64>), ExperimentError> {
    let (mut off, mut on) = (Part::default(), Part::default());
    let warm = measured.slice(begins && !setup.static_only, WARM_UP)?;
    report(WARM_UP, warm.tps());
    // Of four slices the two in the middle are of one side.
    let quarters = (setup.phase.as_secs_f64() / SLICE.as_secs_f64() / 2.0).ceil().max(1.0) as u32;
    let slice = setup.phase / (2 * quarters);
    for _ in 0..quarters {
        for observes in [begins, !begins, !begins, begins] {
            if interrupt.load(Ordering::Relaxed) {
                return Err(ExperimentError::Interrupted);
            }
            if observes && setup.static_only {
                continue;
            }
            let part = measured.slice(observes, slice)?;
            let side = if observes { &mut on } else { &mut off };
            side.transactions += part.transactions;
            side.time += part.time;
            report(slice, part.tps());
        }
    }
    Ok((off.tps(), (!setup.static_only).then(|| on.tps())))
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
    watch(Watched { what: "loading", elapsed: Duration::ZERO, tps: 0.0 });
    let (db, _) =
        setup.loaded(&workloads[0], |builder| builder.workers(setup.workers).adaptation(observing))?;
    let mut ledger = Ledger::new();
    // A pair may be shorter than the interval.
    let mut observed = [Duration::ZERO; MIXES.len()];
    for number in 0..pairs {
        for (at, (workload, cost)) in workloads.iter().zip(&mut costs).enumerate() {
            let what = cost.mix.to_string();
            let streams = (u64::from(number) * MIXES.len() as u64 + at as u64) << 32;
            let crowd = Crowd::new(&db, workload, setup.sessions).with_streams_after(streams);
            let interval = observing.controller.interval;
            let mut measured = Measured { db: &db, crowd, interval, observed: observed[at] };
            measured.crowd.gather()?;
            let mut report = |elapsed, tps| watch(Watched { what: &what, elapsed, tps });
            let (off, on) = pair(&mut measured, setup, number % 2 == 1, interrupt, &mut report)?;
            observed[at] = measured.observed;
            measured.crowd.leave(&mut ledger)?;
            cost.off_tps.push(off);
            cost.on_tps.extend(on);
        }
    }
    audit_and_close(db, &workloads[0], &ledger)?;
    Ok(costs)
}

/// Refuses data that does not fit in memory.
///
/// # Errors
/// Returns an error that names how much fits.
pub fn check(setup: &Setup<'_>, available_bytes: Option<u64>) -> Result<(), ExperimentError> {
    let tatp = Tatp::new(setup.rows, MIXES[0], KeyChoice::Uniform, setup.seed)?;
    Ok(available_bytes.map_or(Ok(()), |available| tatp.check_memory(available))?)
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
