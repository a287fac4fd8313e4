//! The physical limits of this machine, to compare transactions with: lookups, messages and increments without any
//! engine around them.
//!
//! Owns: the list of measurements and the order of their turns. Never: judges the numbers.
//!
//! All are made in one process, in rounds in which every measurement has its turn: a disturbance meets all of them, and
//! the result is the median of the rounds. Parts with two threads pin them, best effort.

mod increments;
mod lookups;
mod messages;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use atrapos_runtime::affinity::pin_current_thread;

use crate::median;

/// Options of the measurement.
#[derive(Clone, Debug)]
pub struct RawOptions {
    /// Rows of 100 bytes in every structure.
    pub rows: u64,
    /// Lookups per structure and round. The numbers of messages and increments are chosen to take about as long.
    pub lookups: u64,
    /// Fewest rounds.
    pub rounds_min: usize,
    /// Further rounds are made until this much time has passed.
    pub seconds: Duration,
    /// The processing units of the two threads; `None` leaves them to the kernel.
    pub cpus: Option<[usize; 2]>,
    /// Seed of the keys.
    pub seed: u64,
}

impl Default for RawOptions {
    fn default() -> RawOptions {
        RawOptions {
            rows: 800_000,
            lookups: 500_000,
            rounds_min: 5,
            seconds: Duration::from_secs(10),
            cpus: None,
            seed: 1,
        }
    }
}

/// Results: medians of the rounds. `tps` are lookups per second, `ns` nanoseconds per operation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RawResult {
    /// Lookups in the engine's tree on one thread, one at a time.
    pub tree_tps: f64,
    /// Lookups in the engine's tree on one thread, sixteen at once.
    pub tree_interleaved_tps: f64,
    /// Lookups in `std::collections::BTreeMap` on one thread.
    pub btreemap_tps: f64,
    /// Lookups of two threads, each in a `BTreeMap` of its own; their sum.
    pub btreemap_2t_tps: f64,
    /// Lookups in a `hashbrown::HashMap` on one thread.
    pub hashbrown_tps: f64,
    /// One request to another worker and its reply, one after the other.
    pub message_roundtrip_ns: f64,
    /// The same, per request with its reply, when sixteen are under way at once.
    pub message_batched_ns: f64,
    /// Sixteen at once through a pair of bare single-producer single-consumer rings of plain values (`rtrb`).
    pub ring_batched_ns: f64,
    /// One increment of an atomic that two threads share.
    pub increment_shared_ns: f64,
    /// One increment of an atomic of the thread's own, while another thread does the same with its.
    pub increment_private_ns: f64,
}

impl RawResult {
    /// Names of the numbers, as in JSON.
    pub const NAMES: [&'static str; 10] = [
        "tree_tps",
        "tree_interleaved_tps",
        "btreemap_tps",
        "btreemap_2t_tps",
        "hashbrown_tps",
        "message_roundtrip_ns",
        "message_batched_ns",
        "ring_batched_ns",
        "increment_shared_ns",
        "increment_private_ns",
    ];

    /// Returns the numbers, in the order of [`NAMES`](RawResult::NAMES).
    #[must_use]
    pub fn values(&self) -> [f64; 10] {
        [
            self.tree_tps,
            self.tree_interleaved_tps,
            self.btreemap_tps,
            self.btreemap_2t_tps,
            self.hashbrown_tps,
            self.message_roundtrip_ns,
            self.message_batched_ns,
            self.ring_batched_ns,
            self.increment_shared_ns,
            self.increment_private_ns,
        ]
    }

    fn of_values(values: [f64; 10]) -> RawResult {
        let [
            tree_tps,
            tree_interleaved_tps,
            btreemap_tps,
            btreemap_2t_tps,
            hashbrown_tps,
            message_roundtrip_ns,
            message_batched_ns,
            ring_batched_ns,
            increment_shared_ns,
            increment_private_ns,
        ] = values;
        RawResult {
            tree_tps,
            tree_interleaved_tps,
            btreemap_tps,
            btreemap_2t_tps,
            hashbrown_tps,
            message_roundtrip_ns,
            message_batched_ns,
            ring_batched_ns,
            increment_shared_ns,
            increment_private_ns,
        }
    }
}

/// Results of all rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct RawReport {
    /// The medians.
    pub median: RawResult,
    /// Every round.
    pub rounds: Vec<RawResult>,
    /// Time the rounds took.
    pub elapsed: Duration,
}

/// Reasons for which nothing was measured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RawError {
    /// No rows, or more than a tree holds.
    #[error("{0} rows cannot be looked up in a tree; choose from 1 to 4294967295")]
    Rows(u64),
    /// The rows do not fit.
    #[error(transparent)]
    Memory(#[from] atrapos_workloads::NotEnoughMemory),
    /// The tree could not be built.
    #[error("the tree could not be built: {0}")]
    Tree(String),
    /// Workers could not be started, or did not answer.
    #[error("two workers to send messages could not be run: {0}")]
    Workers(String),
    /// The measurement was interrupted before the first round was over.
    #[error("interrupted before anything was measured")]
    Interrupted,
}

/// Memory that a row takes in all structures together: five copies of 108 bytes, at their worst filling.
const RESIDENT_BYTES_PER_ROW: u64 = 5 * 220;

/// Measures. `watch` is called after each measurement with the number of measurements done, their number in a round,
/// and the number of the round.
///
/// # Errors
/// Returns an error if the rows do not fit in `available_bytes` (if that is known), something cannot be started, or
/// `interrupt` was set before the first round was over. Set later, it ends the measurement early.
pub fn run(
    options: &RawOptions,
    available_bytes: Option<u64>,
    interrupt: &AtomicBool,
    mut watch: impl FnMut(usize, usize),
) -> Result<RawReport, RawError> {
    if options.rows == 0 || options.rows > u64::from(u32::MAX) {
        return Err(RawError::Rows(options.rows));
    }
    if let Some(available) = available_bytes {
        atrapos_workloads::room::check("rows", options.rows, RESIDENT_BYTES_PER_ROW, available)?;
    }
    let data = lookups::Structures::build(options)?;
    let began = Instant::now();
    let mut rounds: Vec<RawResult> = Vec::new();
    while rounds.len() < options.rounds_min.max(1) || began.elapsed() < options.seconds {
        let round = rounds.len();
        let mut values = [0.0; 10];
        for (at, value) in values.iter_mut().enumerate() {
            if interrupt.load(Ordering::Relaxed) {
                return report(rounds, began);
            }
            *value = measure(at, options, &data, round as u64)?;
            watch(round, at + 1);
        }
        rounds.push(RawResult::of_values(values));
    }
    report(rounds, began)
}

/// Makes measurement `at` of [`RawResult::NAMES`].
fn measure(at: usize, options: &RawOptions, data: &lookups::Structures, round: u64) -> Result<f64, RawError> {
    // A message costs about as much as two lookups in a batch; alone as much as ten. An increment is the fastest of
    // all.
    let count = options.lookups;
    pin(options, 0);
    Ok(match at {
        0 => data.tree(round),
        1 => data.tree_interleaved(round),
        2 => data.btreemap(round),
        3 => data.btreemap_2t(round),
        4 => data.hashbrown(round),
        5 => messages::workers(options, count.div_ceil(10), 1)?,
        6 => messages::workers(options, count, messages::BATCH)?,
        7 => messages::rings(options, count),
        8 => increments::shared(options, count),
        _ => increments::private(options, count.saturating_mul(4)),
    })
}

fn report(rounds: Vec<RawResult>, began: Instant) -> Result<RawReport, RawError> {
    if rounds.is_empty() {
        return Err(RawError::Interrupted);
    }
    let median_of = |at: usize| {
        let mut values: Vec<f64> = rounds.iter().map(|round| round.values()[at]).collect();
        median(&mut values)
    };
    let median = RawResult::of_values(std::array::from_fn(median_of));
    Ok(RawReport { median, elapsed: began.elapsed(), rounds })
}

/// Pins the calling thread as the first or second of two, best effort: without it the numbers are only less steady.
fn pin(options: &RawOptions, thread: usize) {
    if let Some(cpus) = options.cpus {
        let _ = pin_current_thread(cpus[thread]);
    }
}

/// Spins for a while, then yields: with one processing unit the other thread needs it.
fn wait(spins: &mut u32) {
    *spins += 1;
    if *spins < 10_000 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny() -> RawOptions {
        RawOptions {
            rows: 2_000,
            lookups: 640,
            rounds_min: 3,
            seconds: Duration::ZERO,
            ..RawOptions::default()
        }
    }

    #[test]
    fn every_number_is_measured_in_every_round() {
        let mut seen = Vec::new();
        let report =
            run(&tiny(), Some(1 << 40), &AtomicBool::new(false), |round, done| seen.push((round, done)));
        let report = report.expect("nothing prevents it");
        assert_eq!(report.rounds.len(), 3);
        assert_eq!(seen.len(), 30);
        for result in report.rounds.iter().chain([&report.median]) {
            for (name, value) in RawResult::NAMES.iter().zip(result.values()) {
                assert!(value.is_finite() && value > 0.0, "{name} is {value}");
            }
        }
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        let go = AtomicBool::new(false);
        let refused = |rows, available, stop: &AtomicBool| {
            run(&RawOptions { rows, ..tiny() }, available, stop, |_, _| {}).expect_err("refused")
        };
        assert_eq!(refused(0, None, &go), RawError::Rows(0));
        assert_eq!(refused(1 << 32, None, &go), RawError::Rows(1 << 32));
        assert!(matches!(refused(1 << 31, Some(1 << 30), &go), RawError::Memory(_)));
        assert_eq!(refused(100, None, &AtomicBool::new(true)), RawError::Interrupted);
    }
}
