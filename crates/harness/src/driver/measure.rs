//! The phases of a run, and the counts of the measured one.
//!
//! Owns: the beginning and the end of an interval, and the difference of the counters at its ends. Never: starts or
//! stops a client.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use atrapos::{Database, Statistics, Ticks, WalStatistics, WorkerReport};
use atrapos_runtime::Clock;
use atrapos_workloads::ClassId;

use super::live::LatestCounters;
use super::{ClassResult, LOOK_EVERY, Progress, RunOptions, RunResult, WalResult, WorkerResult};
use crate::latency::histogram_ns;
use crate::recorder::{Recorder, Snapshot};

/// The state of all counters at one end of the measured interval.
struct Moment {
    at: Instant,
    counters: Snapshot,
    workers: Vec<WorkerReport>,
    wal: Option<WalStatistics>,
}

/// Counts at both ends of the measured interval.
pub(super) struct Measured {
    first: Moment,
    last: Moment,
    interrupted: bool,
}

/// Waits for the warm-up and the measured interval to pass.
pub(super) fn measure(
    db: &Database,
    recorders: &[&Recorder],
    classes: usize,
    options: &RunOptions,
    interrupt: &AtomicBool,
    watch: &mut dyn FnMut(Progress),
) -> Measured {
    let moment = || Moment {
        counters: Snapshot::sum(recorders.iter().copied(), classes),
        workers: db.worker_reports(),
        wal: db.wal_statistics(),
        at: Instant::now(),
    };
    let mut latest = LatestCounters::default();
    let mut phase = |measuring: bool, length: Duration| {
        let began = Instant::now();
        let completed = || recorders.iter().map(|recorder| recorder.completed()).sum::<u64>();
        let mut before = (began, completed());
        watch(Progress { measuring, elapsed: Duration::ZERO, tps: 0.0 });
        loop {
            let elapsed = began.elapsed();
            if elapsed >= length || interrupt.load(Ordering::Relaxed) {
                return;
            }
            std::thread::sleep(LOOK_EVERY.min(length - elapsed));
            let now = (Instant::now(), completed());
            let seconds = now.0.duration_since(before.0).as_secs_f64();
            let tps = now.1.saturating_sub(before.1) as f64 / seconds.max(f64::MIN_POSITIVE);
            watch(Progress { measuring, elapsed: began.elapsed(), tps });
            if let Some(live) = &options.live {
                latest.answer(live, || Snapshot::sum(recorders.iter().copied(), classes));
            }
            before = now;
        }
    };
    phase(false, options.warmup);
    // Interrupted during the warm-up: the result covers the run so far.
    let first = moment();
    phase(true, options.measured);
    let last = moment();
    Measured { first, last, interrupted: interrupt.load(Ordering::Relaxed) }
}

/// Builds the result of a run of classes of these names; `updates` marks the classes that change rows.
pub(super) fn result_of(
    names: &[&'static str],
    updates: &dyn Fn(ClassId) -> bool,
    recorders: &[&Recorder],
    measured: Measured,
) -> RunResult {
    let Measured { first, last, interrupted } = measured;
    let clock = Clock::real();
    let Snapshot { tallies, latencies } = last.counters.since(&first.counters);
    let classes_of_updates = tallies.iter().enumerate().filter(|(at, _)| updates(ClassId(*at as u8)));
    let updates = classes_of_updates.map(|(_, tally)| tally.committed).sum();
    let wal = first.wal.zip(last.wal).map(|(first, last)| WalResult {
        bytes: last.bytes.saturating_sub(first.bytes),
        syncs: last.syncs.saturating_sub(first.syncs),
    });
    let classes = names.iter().zip(tallies).zip(&latencies).map(|((name, tally), latency)| ClassResult {
        name,
        tally,
        latency_ns: histogram_ns(latency, |ticks| clock.ns(Ticks(ticks))),
    });
    let workers: Vec<WorkerResult> = first
        .workers
        .iter()
        .zip(&last.workers)
        .map(|(first, last)| WorkerResult {
            core: last.core,
            busy_ratio: last.runtime.busy_ratio_since(&first.runtime),
            transactions: last.transactions.since(&first.transactions),
        })
        .collect();
    RunResult {
        elapsed: last.at.duration_since(first.at),
        classes: classes.collect(),
        statistics: workers.iter().fold(Statistics::default(), |sum, worker| sum.plus(&worker.transactions)),
        workers,
        wal,
        updates,
        tallies_all: Snapshot::sum(recorders.iter().copied(), names.len()).tallies,
        interrupted,
    }
}
