//! Core-to-core round trips on the live machine: what `atrapos topology --measure` asks for.
//!
//! Owns: the measurement. Never: runs inside an engine (it starts threads of its own, pins them and spins), nor draws
//! conclusions (the topology crate derives islands from the numbers).
//!
//! Two pinned threads bounce one cache line: each waits for the other's number and answers with the next. A batch of
//! round trips gives a mean, a visit of a pair several batches. All pairs are visited several times over, so that a
//! disturbance that lasts longer than a visit does not decide a pair, and the median of all batches counts. The total
//! time is bounded: what was not reached is left open and said.
//!
//! Up to [`MeasureOptions::all_pairs_cpus_max`] processing units all pairs are measured. Beyond it that would take too
//! long, so each one is paired with those 1, 2, 3, 4, 6, 8, 12, 16, ... and half of all places further on in the list
//! (which is taken as a ring): this reaches every level of nested islands, and the number of pairs grows by `n log n`.
//!
//! Invariant: every thread that was started has ended when a measurement returns, whatever was refused.

use crate::affinity::{PinError, pin_current_thread};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Options of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeasureOptions {
    /// Greatest number of processing units of which every pair is measured; beyond it, a sample.
    pub all_pairs_cpus_max: usize,
    /// Number of visits to all pairs. At least 1.
    pub visits: u32,
    /// Batches per visit; the first one warms up and does not count. At least 2.
    pub batches: u32,
    /// Round trips per batch. At least 1.
    pub round_trips: u32,
    /// Time after which no new measurement begins.
    pub time_max: Duration,
}

impl Default for MeasureOptions {
    fn default() -> Self {
        Self {
            all_pairs_cpus_max: 64,
            visits: 3,
            batches: 8,
            round_trips: 200,
            time_max: Duration::from_secs(20),
        }
    }
}

/// Result of a measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundTrips {
    /// The processing units, in the order of the rows: those given, without repetition.
    pub cpus: Vec<usize>,
    /// Median round trips in nanoseconds, square and symmetric: 0 on the diagonal, NaN where not measured.
    pub ns: Vec<Vec<f64>>,
    /// The number of pairs that were to be measured.
    pub pairs_planned: usize,
    /// The number of pairs that were measured at least once.
    pub pairs_measured: usize,
    /// Refusals and omissions, one sentence each.
    pub warnings: Vec<String>,
}

/// Reasons for which no pair could be measured.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MeasureError {
    /// Fewer than two processing units: there is no pair.
    TooFewCpus {
        /// The number of processing units.
        cpus: usize,
    },
    /// No two threads could be pinned, and unpinned ones measure nothing.
    Pin(PinError),
    /// No thread could be started.
    NoThread {
        /// The message of the operating system.
        message: String,
    },
    /// The time was over before the first pair was done.
    NoTime,
}

impl fmt::Display for MeasureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFewCpus { cpus } => {
                write!(f, "cannot measure round trips between {cpus} cpus: at least two have to be usable")
            }
            Self::Pin(error) => write!(f, "cannot measure round trips without pinned threads: {error}"),
            Self::NoThread { message } => {
                write!(f, "cannot measure round trips: no thread can be started ({message})")
            }
            Self::NoTime => f.write_str(
                "cannot measure round trips: the time was over before the first pair was done; allow more",
            ),
        }
    }
}

impl std::error::Error for MeasureError {}

/// Measures round trips between the given processing units. Blocks for at most about
/// [`time_max`](MeasureOptions::time_max), using two processing units at a time.
///
/// # Errors
/// A [`MeasureError`] when nothing at all could be measured. What could not be measured besides is NaN and a warning.
pub fn measure_round_trips(cpus: &[usize], options: &MeasureOptions) -> Result<RoundTrips, MeasureError> {
    let mut distinct: Vec<usize> = Vec::with_capacity(cpus.len());
    for &cpu in cpus {
        if !distinct.contains(&cpu) {
            distinct.push(cpu);
        }
    }
    if distinct.len() < 2 {
        return Err(MeasureError::TooFewCpus { cpus: distinct.len() });
    }
    let pairs = pairs_to_measure(distinct.len(), options.all_pairs_cpus_max);
    let mut measurement = Measurement {
        cpus: distinct,
        batches_ns: vec![Vec::new(); pairs.len()],
        pairs,
        refused: Vec::new(),
        last_error: None,
        ran_out_of_time: false,
    };
    let deadline = Instant::now().checked_add(options.time_max);
    for _ in 0..options.visits.max(1) {
        measurement.visit_all(options, deadline);
    }
    measurement.finish()
}

/// The pairs of rows to measure, each once with the smaller row first, for `count` rows.
fn pairs_to_measure(count: usize, all_pairs_max: usize) -> Vec<(usize, usize)> {
    let mut pairs: Vec<(usize, usize)> = if count <= all_pairs_max {
        (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b))).collect()
    } else {
        let steps = steps_around(count);
        let pair = |a: usize, step: usize| {
            let b = (a + step) % count;
            (a.min(b), a.max(b))
        };
        (0..count).flat_map(|a| steps.iter().map(move |&step| pair(a, step))).collect()
    };
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// 1, 2, 3, 4, 6, 8, 12, 16, ... up to half of all, and that half.
fn steps_around(count: usize) -> Vec<usize> {
    let half = count / 2;
    let powers = (0..usize::BITS - 1).map(|bit| 1usize << bit).take_while(|&power| power <= half);
    let mut steps: Vec<usize> = powers.flat_map(|power| [power, power + power / 2]).collect();
    steps.push(half);
    steps.retain(|&step| (1..=half).contains(&step));
    steps.sort_unstable();
    steps.dedup();
    steps
}

struct Measurement {
    cpus: Vec<usize>,
    pairs: Vec<(usize, usize)>,
    /// Nanoseconds per round trip of every counted batch, by pair.
    batches_ns: Vec<Vec<f64>>,
    /// Rows of processing units that no thread can be pinned to.
    refused: Vec<(usize, PinError)>,
    last_error: Option<String>,
    ran_out_of_time: bool,
}

impl Measurement {
    fn visit_all(&mut self, options: &MeasureOptions, deadline: Option<Instant>) {
        for index in 0..self.pairs.len() {
            let (a, b) = self.pairs[index];
            if self.refused.iter().any(|&(row, _)| row == a || row == b) {
                continue;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.ran_out_of_time = true;
                return;
            }
            match bounce(self.cpus[a], self.cpus[b], options, deadline) {
                Ok(mut batches_ns) => self.batches_ns[index].append(&mut batches_ns),
                Err(BounceError::Pin { first, error }) => {
                    self.refused.push((if first { a } else { b }, error));
                }
                Err(BounceError::Thread(message)) => self.last_error = Some(message),
            }
        }
    }

    fn finish(self) -> Result<RoundTrips, MeasureError> {
        let count = self.cpus.len();
        let mut ns = vec![vec![f64::NAN; count]; count];
        for (row, line) in ns.iter_mut().enumerate() {
            line[row] = 0.0;
        }
        let mut pairs_measured = 0;
        for (&(a, b), mut batches_ns) in self.pairs.iter().zip(self.batches_ns) {
            if let Some(median) = median(&mut batches_ns) {
                ns[a][b] = median;
                ns[b][a] = median;
                pairs_measured += 1;
            }
        }
        if pairs_measured == 0 {
            return Err(match (self.refused.into_iter().next(), self.last_error) {
                (Some((_, error)), _) => MeasureError::Pin(error),
                (None, Some(message)) => MeasureError::NoThread { message },
                (None, None) => MeasureError::NoTime,
            });
        }
        let pairs_planned = self.pairs.len();
        let mut warnings: Vec<String> = self.refused.iter().map(|(_, error)| error.to_string()).collect();
        if let Some(message) = self.last_error {
            warnings.push(format!(
                "some pairs were left out, as no thread could be started for them ({message})"
            ));
        }
        if self.ran_out_of_time {
            warnings.push(format!(
                "the time was over with {pairs_measured} of {pairs_planned} pairs measured: allow more for a full picture"
            ));
        }
        Ok(RoundTrips { cpus: self.cpus, ns, pairs_planned, pairs_measured, warnings })
    }
}

/// The middle value; the mean of the two middle ones of an even number. `None` of nothing.
fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        length if length % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

enum BounceError {
    /// A thread could not be pinned: the first of the pair or the second.
    Pin { first: bool, error: PinError },
    /// A thread could not be started.
    Thread(String),
}

/// The line that bounces, alone on it: with the neighbour that some processors fetch along, 128 bytes.
#[repr(align(128))]
struct Ball(AtomicU64);

/// The ball's value before the second thread is there.
const NOT_READY: u64 = u64::MAX;
/// The ball's value when either side gives up.
const OVER: u64 = u64::MAX - 1;
/// A side that has spun this often lets others run: on an oversubscribed machine the partner may be waiting for this
/// very processing unit.
const SPINS_BEFORE_YIELD: u32 = 1 << 14;

/// Waits until the ball has the wanted value. Returns false when it is over, or when the deadline has passed.
fn wait_for(ball: &AtomicU64, wanted: u64, deadline: Option<Instant>) -> bool {
    let mut spins = 0u32;
    loop {
        match ball.load(Ordering::Acquire) {
            value if value == wanted => return true,
            OVER => return false,
            _ => {}
        }
        spins += 1;
        if spins.is_multiple_of(SPINS_BEFORE_YIELD) {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
            std::thread::yield_now();
        }
        std::hint::spin_loop();
    }
}

/// One visit of a pair: nanoseconds per round trip of every batch but the first. Empty when the time is over.
fn bounce(
    first_cpu: usize,
    second_cpu: usize,
    options: &MeasureOptions,
    deadline: Option<Instant>,
) -> Result<Vec<f64>, BounceError> {
    let ball = Ball(AtomicU64::new(NOT_READY));
    let batches = options.batches.max(2);
    let round_trips = options.round_trips.max(1);
    let exchanges = u64::from(batches) * u64::from(round_trips);
    std::thread::scope(|scope| {
        let second = std::thread::Builder::new()
            .name("measure-answer".to_owned())
            .spawn_scoped(scope, || {
                let pinned = pin_current_thread(second_cpu);
                let ready = if pinned.is_ok() { 0 } else { OVER };
                // Not a store: the other side may have given up already, and that must not be overwritten.
                let begun = ball.0.compare_exchange(NOT_READY, ready, Ordering::AcqRel, Ordering::Acquire);
                if begun == Ok(NOT_READY) && pinned.is_ok() {
                    answer(&ball.0, exchanges, deadline);
                }
                pinned
            })
            .map_err(|error| BounceError::Thread(error.to_string()))?;
        let first = std::thread::Builder::new().name("measure-ask".to_owned()).spawn_scoped(scope, || {
            let pinned = pin_current_thread(first_cpu);
            if let Err(error) = pinned {
                ball.0.store(OVER, Ordering::Release);
                return Err(error);
            }
            Ok(ask(&ball.0, batches, round_trips, deadline))
        });
        let first = first.inspect_err(|_| ball.0.store(OVER, Ordering::Release));
        let first = first.map(std::thread::ScopedJoinHandle::join);
        let second = second.join();
        match (first, second) {
            (Err(error), _) => Err(BounceError::Thread(error.to_string())),
            (_, Err(_)) | (Ok(Err(_)), _) => Err(BounceError::Thread("a thread panicked".to_owned())),
            (_, Ok(Err(error))) => Err(BounceError::Pin { first: false, error }),
            (Ok(Ok(Err(error))), _) => Err(BounceError::Pin { first: true, error }),
            (Ok(Ok(Ok(batches_ns))), Ok(Ok(()))) => Ok(batches_ns),
        }
    })
}

fn ask(ball: &AtomicU64, batches: u32, round_trips: u32, deadline: Option<Instant>) -> Vec<f64> {
    let mut batches_ns = Vec::with_capacity(batches as usize);
    let mut value = 0;
    if !wait_for(ball, 0, deadline) {
        ball.store(OVER, Ordering::Release);
        return Vec::new();
    }
    for batch in 0..batches {
        let start = Instant::now();
        for _ in 0..round_trips {
            ball.store(value + 1, Ordering::Release);
            value += 2;
            if !wait_for(ball, value, deadline) {
                ball.store(OVER, Ordering::Release);
                return batches_ns;
            }
        }
        let elapsed_ns = start.elapsed().as_secs_f64() * 1e9;
        if batch > 0 {
            batches_ns.push(elapsed_ns / f64::from(round_trips));
        }
    }
    batches_ns
}

fn answer(ball: &AtomicU64, exchanges: u64, deadline: Option<Instant>) {
    for exchange in 0..exchanges {
        if !wait_for(ball, exchange * 2 + 1, deadline) {
            ball.store(OVER, Ordering::Release);
            return;
        }
        ball.store(exchange * 2 + 2, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
