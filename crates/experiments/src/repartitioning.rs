//! The cost of changing the scheme (`ATraPos §VI-C`, Figure 9): splits, merges and rearrangements of a table of ten
//! integers, by their number and by the number of rows, at rest and under transactions.
//!
//! Owns: the measurement. Never: lets the database change its scheme by itself.
//!
//! A *rearrangement* moves a boundary: one split, and one merge. Under transactions, windows in which the partitions
//! are rearranged alternate with windows in which they are not, so that drift of the machine hits both alike.

mod integers;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use atrapos::{Database, RepartitionReport, SchemeChange, TableRef, Ticks, WorkerId};
use atrapos_harness::latency::histogram_ns;
use atrapos_harness::median;
use atrapos_harness::recorder::Snapshot;
use atrapos_runtime::Clock;
use atrapos_workloads::{KeySet, Ledger, Workload};
use integers::Integers;
pub use integers::{IntegerRows, TenIntegers};

use super::comparison::Pairs;
use super::crowd::Crowd;
use super::{ExperimentError, Setup, Watched, audit_and_close};

/// Kinds of changes of partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Splits one partition into two.
    Split,
    /// Merges two partitions into one.
    Merge,
    /// Splits and merges: a boundary moves.
    Rearrange,
}

impl Kind {
    /// All of them, in the order of Figure 9.
    pub const ALL: [Kind; 3] = [Kind::Split, Kind::Merge, Kind::Rearrange];

    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Split => "split",
            Kind::Merge => "merge",
            Kind::Rearrange => "rearrange",
        }
    }
}

/// The numbers of changes that are measured; the last is the paper's worst case.
pub const COUNTS: [usize; 4] = [10, 20, 40, 80];

/// Number of repetitions of each, as in the paper.
pub const REPETITIONS: usize = 10;

/// Cost of some changes at rest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Rows of the table.
    pub rows: u64,
    /// The kind of the changes.
    pub kind: Kind,
    /// Number of changes in a row.
    pub count: usize,
    /// Time for which owners did nothing else, in all: mean of the repetitions, in milliseconds.
    pub owner_ms: f64,
    /// Its standard deviation.
    pub owner_ms_sd: f64,
    /// Time until all changes were done: mean, in milliseconds.
    pub wall_ms: f64,
    /// The longest time for which an owner did nothing else in any repetition, in microseconds.
    pub longest_us: f64,
}

/// Effect of the most rearrangements on running transactions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Running {
    /// Number of times that all of them were made.
    pub windows: usize,
    /// Throughput while the scheme stays as it is.
    pub quiet_tps: f64,
    /// Throughput while partitions are rearranged.
    pub busy_tps: f64,
    /// The second and the first in each window and the quiet one before it.
    pub pairs: Pairs,
    /// Time for which owners did nothing else in one window: median, in milliseconds.
    pub owner_ms: f64,
    /// Length of a window: median, in milliseconds.
    pub wall_ms: f64,
    /// The 99.9th percentile of latencies while the scheme stays as it is, in microseconds.
    pub quiet_p999_us: f64,
    /// The longest latency in a quiet window: median over the windows, in microseconds.
    pub quiet_longest_us: f64,
    /// The longest latency in a window of rearrangements: median over the windows, in microseconds.
    pub busy_longest_us: f64,
    /// The longest latency in any quiet window, in microseconds.
    pub quiet_longest_us_max: f64,
    /// The longest latency in any window of rearrangements, in microseconds.
    pub busy_longest_us_max: f64,
}

/// The result of the experiment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RepartitionCosts {
    /// Costs at rest; empty if only the static side was wanted.
    pub costs: Vec<Cost>,
    /// Effects under transactions.
    pub running: Running,
}

/// Boundaries of equal slices of the keys that every worker owns, and others half a slice further.
struct Boundaries {
    table: TableRef<IntegerRows>,
    here: Vec<u64>,
    there: Vec<u64>,
}

impl Boundaries {
    fn new(db: &Database, table: TableRef<IntegerRows>, rows: u64, count: usize) -> Option<Boundaries> {
        let mut boundaries = Boundaries { table, here: Vec::new(), there: Vec::new() };
        let (scheme, workers) = (db.scheme(), db.workers());
        for worker in 0..workers {
            let own = KeySet::owned_by(&scheme, table.id(), 0, rows - 1, WorkerId(worker as u16))?;
            let share = (count * (worker + 1) / workers - count * worker / workers) as u64;
            // Half slices, so that boundaries of both kinds are whole rows.
            let half = own.len() / (2 * (share + 1));
            if half == 0 {
                return None;
            }
            boundaries.here.extend((1..=share).map(|at| own.nth(2 * half * at)));
            boundaries.there.extend((1..=share).map(|at| own.nth(2 * half * at + half)));
        }
        Some(boundaries)
    }

    fn split(&self) -> Vec<SchemeChange> {
        self.here.iter().map(|key| SchemeChange::split(self.table, key)).collect()
    }

    fn merge(&self) -> Vec<SchemeChange> {
        self.here.iter().map(|key| SchemeChange::merge(self.table, key)).collect()
    }

    /// Moves every boundary half a slice, and next time back.
    fn rearrange(&mut self) -> Vec<SchemeChange> {
        let moved = self.here.iter().zip(&self.there).flat_map(|(from, to)| {
            [SchemeChange::split(self.table, to), SchemeChange::merge(self.table, from)]
        });
        let changes = moved.collect();
        std::mem::swap(&mut self.here, &mut self.there);
        changes
    }
}

/// Returns numbers of rows: an eighth, all, and 12.5 times as many (10^5, 8 * 10^5 and 10^7 by default).
fn sizes(rows: u64) -> [u64; 3] {
    [rows / 8, rows, rows * 25 / 2]
}

/// Returns the time of the whole experiment besides loading and the measurements at rest.
#[must_use]
pub fn length(setup: &Setup<'_>) -> Duration {
    setup.phase
}

/// Measures everything. The reported times add up to [`length`].
///
/// # Errors
/// See [`ExperimentError`].
pub fn run(
    setup: &Setup<'_>,
    interrupt: &AtomicBool,
    watch: &mut dyn FnMut(Watched<'_>),
) -> Result<RepartitionCosts, ExperimentError> {
    let mut result = RepartitionCosts::default();
    for rows in sizes(setup.rows) {
        if setup.static_only && rows != setup.rows {
            continue;
        }
        watch(Watched { what: "loading", elapsed: Duration::ZERO, tps: 0.0 });
        let workload = Integers { rows, seed: setup.seed };
        let (db, _) = setup.loaded(&workload, |builder| builder.workers(setup.workers).fixed_scheme())?;
        if !setup.static_only {
            for count in COUNTS {
                result.costs.extend(at_rest(&db, rows, count)?);
            }
        }
        let mut ledger = Ledger::new();
        if rows == setup.rows {
            (result.running, ledger) = under_load(&db, &workload, setup, interrupt, watch)?;
        }
        if interrupt.load(Ordering::Relaxed) {
            return Err(ExperimentError::Interrupted);
        }
        audit_and_close(db, &workload, &ledger)?;
    }
    Ok(result)
}

fn boundaries(db: &Database, rows: u64, count: usize) -> Result<Boundaries, ExperimentError> {
    let table = db.table::<IntegerRows>().map_err(|error| ExperimentError::Setting(error.to_string()))?;
    Boundaries::new(db, table, rows, count).ok_or_else(|| too_few(db.workers()))
}

fn too_few(workers: usize) -> ExperimentError {
    let least = least_rows(workers);
    ExperimentError::Setting(format!(
        "{} partitions on {workers} workers need more rows to be cut from; use at least {least} --rows",
        COUNTS[COUNTS.len() - 1]
    ))
}

/// Returns the number of rows from which the smallest table has two half slices per boundary, and each worker some.
fn least_rows(workers: usize) -> u64 {
    8 * 4 * (COUNTS[COUNTS.len() - 1] as u64 + 2 * workers as u64)
}

/// Refuses tables that are too small, or do not fit in memory.
///
/// # Errors
/// Returns an error that names how many rows are needed, or how many fit.
pub fn check(setup: &Setup<'_>, available_bytes: Option<u64>) -> Result<(), ExperimentError> {
    if setup.rows < least_rows(setup.workers) {
        return Err(too_few(setup.workers));
    }
    let rows_max = u64::MAX / 1024;
    if setup.rows > rows_max {
        return Err(ExperimentError::Setting(format!(
            "{} rows cannot be counted; use at most {rows_max} --rows",
            setup.rows
        )));
    }
    let largest = Integers { rows: sizes(setup.rows)[2], seed: setup.seed };
    Ok(available_bytes.map_or(Ok(()), |available| largest.check_memory(available))?)
}

/// Measures the costs of `count` changes of each kind while nothing else runs.
fn at_rest(db: &Database, rows: u64, count: usize) -> Result<[Cost; 3], ExperimentError> {
    let mut boundaries = boundaries(db, rows, count)?;
    let mut taken: [Vec<(RepartitionReport, Duration)>; 3] = Default::default();
    let timed = |changes: Vec<SchemeChange>| {
        let began = Instant::now();
        let report = db.repartition(changes)?;
        Ok::<_, ExperimentError>((report, began.elapsed()))
    };
    for _ in 0..REPETITIONS {
        taken[0].push(timed(boundaries.split())?);
        taken[2].push(timed(boundaries.rearrange())?);
        taken[1].push(timed(boundaries.merge())?);
    }
    let cost = |(kind, taken): (Kind, Vec<(RepartitionReport, Duration)>)| {
        let owner: Vec<f64> = taken.iter().map(|(report, _)| ms(report.owner_time)).collect();
        let (owner_ms, owner_ms_sd) = mean_and_deviation(&owner);
        let wall: Vec<f64> = taken.iter().map(|(_, wall)| ms(*wall)).collect();
        let longest = taken.iter().map(|(report, _)| report.longest).max().unwrap_or_default();
        let (wall_ms, longest_us) = (mean_and_deviation(&wall).0, 1000.0 * ms(longest));
        Cost { rows, kind, count, owner_ms, owner_ms_sd, wall_ms, longest_us }
    };
    let mut kinds = Kind::ALL.into_iter();
    Ok(taken.map(|taken| cost((kinds.next().unwrap_or(Kind::Rearrange), taken))))
}

fn ms(time: Duration) -> f64 {
    1000.0 * time.as_secs_f64()
}

/// Returns the mean and standard deviation of a sample.
fn mean_and_deviation(numbers: &[f64]) -> (f64, f64) {
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count.max(1.0);
    let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

/// Length of each quiet window. A window in which partitions are rearranged is as long as the rearrangement takes.
const QUIET: Duration = Duration::from_millis(100);

/// Pause after a rearrangement, so that the transactions it held up end and are counted with it.
const AFTERMATH: Duration = Duration::from_millis(5);

/// Transactions in some windows.
#[derive(Default)]
struct Windows {
    transactions: u64,
    time: Duration,
    /// Latencies by bucket, of all windows.
    latencies: Vec<u64>,
    /// The longest latency of each window, in microseconds.
    longest_us: Vec<f64>,
}

impl Windows {
    /// Adds the transactions between two moments, and the latencies up to a third.
    fn add(&mut self, from: &Moment, to: &Moment, aftermath: &Moment) {
        self.transactions += to.completed.saturating_sub(from.completed);
        self.time += to.at.duration_since(from.at);
        let latencies = aftermath.counters.since(&from.counters).latencies.swap_remove(0);
        if self.latencies.is_empty() {
            self.latencies = vec![0; latencies.len()];
        }
        self.latencies.iter_mut().zip(&latencies).for_each(|(sum, count)| *sum += count);
        self.longest_us.push(quantile_us(&latencies, 1.0));
    }

    fn tps(&self) -> f64 {
        self.transactions as f64 / self.time.as_secs_f64().max(1e-9)
    }
}

fn quantile_us(latencies: &[u64], quantile: f64) -> f64 {
    let clock = Clock::real();
    let histogram = histogram_ns(latencies, |ticks| clock.ns(Ticks(ticks)));
    if histogram.is_empty() { 0.0 } else { histogram.value_at_quantile(quantile) as f64 / 1000.0 }
}

struct Moment {
    at: Instant,
    completed: u64,
    counters: Snapshot,
}

impl Moment {
    /// The throughput from this moment to a later one.
    fn tps_until(&self, later: &Moment) -> f64 {
        let seconds = later.at.duration_since(self.at).as_secs_f64();
        later.completed.saturating_sub(self.completed) as f64 / seconds.max(1e-9)
    }
}

/// Rearranges partitions again and again under transactions.
fn under_load(
    db: &Database,
    workload: &Integers,
    setup: &Setup<'_>,
    interrupt: &AtomicBool,
    watch: &mut dyn FnMut(Watched<'_>),
) -> Result<(Running, Ledger), ExperimentError> {
    let mut boundaries = boundaries(db, workload.rows, COUNTS[COUNTS.len() - 1])?;
    let mut crowd = Crowd::new(db, workload, setup.sessions);
    crowd.gather()?;
    let moment = || {
        let (completed, counters) = (crowd.completed(), crowd.snapshot());
        Moment { at: Instant::now(), completed, counters }
    };
    if !setup.static_only {
        db.repartition(boundaries.split())?;
    }
    std::thread::sleep(QUIET);
    let began = Instant::now();
    let (mut quiet, mut busy) = (Windows::default(), Windows::default());
    let (mut owner_ms, mut wall_ms, mut pairs) = (Vec::new(), Vec::new(), Pairs::default());
    while (began.elapsed() < setup.phase || quiet.longest_us.is_empty()) && !interrupt.load(Ordering::Relaxed)
    {
        let from = moment();
        std::thread::sleep(QUIET);
        let to = moment();
        quiet.add(&from, &to, &to);
        let quiet_tps = from.tps_until(&to);
        if !setup.static_only {
            let changes = boundaries.rearrange();
            let from = moment();
            let report = db.repartition(changes)?;
            let to = moment();
            std::thread::sleep(AFTERMATH);
            busy.add(&from, &to, &moment());
            pairs.0.push((from.tps_until(&to), quiet_tps));
            owner_ms.push(ms(report.owner_time));
            wall_ms.push(ms(to.at.duration_since(from.at)));
        }
        watch(Watched { what: "rearranging", elapsed: from.at.elapsed(), tps: quiet.tps() });
    }
    if !setup.static_only {
        db.repartition(boundaries.merge())?;
    }
    let mut ledger = Ledger::new();
    crowd.leave(&mut ledger)?;
    let middle = |numbers: &[f64]| if numbers.is_empty() { 0.0 } else { median(&mut numbers.to_vec()) };
    let most = |numbers: &[f64]| numbers.iter().copied().fold(0.0, f64::max);
    let running = Running {
        windows: busy.longest_us.len(),
        quiet_tps: quiet.tps(),
        busy_tps: if busy.longest_us.is_empty() { 0.0 } else { busy.tps() },
        pairs,
        owner_ms: middle(&owner_ms),
        wall_ms: middle(&wall_ms),
        quiet_p999_us: quantile_us(&quiet.latencies, 0.999),
        quiet_longest_us: middle(&quiet.longest_us),
        busy_longest_us: middle(&busy.longest_us),
        quiet_longest_us_max: most(&quiet.longest_us),
        busy_longest_us_max: most(&busy.longest_us),
    };
    Ok((running, ledger))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deviation_is_that_of_a_sample() {
        assert_eq!(mean_and_deviation(&[2.0, 4.0]), (3.0, 2.0_f64.sqrt()));
        assert_eq!(mean_and_deviation(&[5.0]), (5.0, 0.0));
        assert_eq!(mean_and_deviation(&[]), (0.0, 0.0));
    }

    #[test]
    fn boundaries_move_and_come_back() {
        for workers in [1, 2, 3, 8] {
            let rows = sizes(least_rows(workers))[0];
            let workload = Integers { rows, seed: 1 };
            let db = Database::builder(workload.schema()).workers(workers).pin(false).fixed_scheme();
            let db = db.in_memory().expect("a database");
            workload.load(&db, &Default::default()).expect("an empty database takes the load");
            let table = db.table::<IntegerRows>().expect("the table");
            let before = db.scheme();
            let partitions = before.family(table.id()).partitions();
            for count in COUNTS {
                let mut boundaries = boundaries(&db, rows, count).expect("enough rows");
                db.repartition(boundaries.split()).expect("splits");
                let split = db.scheme();
                assert_eq!(split.family(table.id()).partitions(), partitions + count);
                let report = db.repartition(boundaries.rearrange()).expect("rearrangements");
                assert_eq!((report.splits, report.merges), (count as u64, count as u64));
                assert_ne!(db.scheme().family(table.id()).cuts(), split.family(table.id()).cuts());
                db.repartition(boundaries.rearrange()).expect("rearrangements back");
                assert_eq!(db.scheme().family(table.id()).cuts(), split.family(table.id()).cuts());
                db.repartition(boundaries.merge()).expect("merges");
                assert_eq!(db.scheme().family(table.id()).cuts(), before.family(table.id()).cuts());
            }
            workload.audit(&db, &Ledger::new()).expect("nothing is lost");
        }
    }
}
