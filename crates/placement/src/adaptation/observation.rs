//! Observation of the workers: counters that are read at any time, and statistics that begin anew when they are collected.
//!
//! Owns: the period that statistics are of. Never: changes the scheme; the caller keeps it from changing while statistics are
//! collected.

use std::time::Duration;

use atrapos_adapt::{CYCLES_PER_NS, Observation};
use atrapos_partition::abort::Abort;
use atrapos_runtime::Ticks;
use atrapos_transaction::monitor::{Collected, Samples, SoFar, WorkerCollected};

use super::Adaptive;

/// Transactions until a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    committed: u64,
    /// Requests for locks that had to wait.
    waited: u64,
}

impl Counts {
    /// The transactions that have committed.
    pub(super) fn committed(self) -> u64 {
        self.committed
    }

    fn since(self, earlier: Counts) -> Counts {
        Counts { committed: self.committed - earlier.committed, waited: self.waited - earlier.waited }
    }
}

/// Counters at one moment.
#[derive(Clone, Debug)]
pub(super) struct Glance {
    at: Ticks,
    counts: Counts,
    /// The records not yet collected, by worker.
    workers: Vec<SoFar>,
}

/// Statistics of the workers since they were collected before.
pub struct Observed {
    /// The records of each worker.
    pub workers: Vec<WorkerCollected>,
    /// The time since they were collected before.
    pub elapsed: Duration,
    /// Cycles of the cost model ([`CYCLES_PER_NS`]) in a tick of the workers' clock, which is something else on each machine.
    pub cycles_per_tick: f64,
}

/// The share of its time from which a worker is saturated.
const SATURATED: f64 = 0.9;

impl Observed {
    /// Returns so many ticks as cycles of the cost model.
    pub(super) fn cycles(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.cycles_per_tick).round() as u64
    }

    pub(super) fn find(&self, family: usize, number: u32) -> Option<&Collected> {
        let of = |collected: &&Collected| collected.family == family && collected.number == number;
        self.workers.iter().flat_map(|worker| &worker.partitions).find(of)
    }

    /// Returns the samples of all workers.
    pub(super) fn samples(&self) -> Samples {
        all_samples(self.workers.iter().map(|worker| worker.samples))
    }

    /// Returns the time that each worker was busy for what it owns, in ticks. Empty if no worker was saturated.
    ///
    /// A worker that is not saturated spends a part of its busy time looking for work, which costs as much however little it finds; what it
    /// has recorded is scaled as that of the saturated ones.
    pub(super) fn busy(&self) -> Vec<u64> {
        let recorded: Vec<f64> = self.workers.iter().map(load_of).collect();
        let is_saturated = |worker: &WorkerCollected| {
            let (busy, idle) = (worker.busy.0 as f64, worker.idle.0 as f64);
            busy > 0.0 && busy >= SATURATED * (busy + idle)
        };
        let saturated =
            self.workers.iter().zip(&recorded).filter(|(worker, load)| is_saturated(worker) && **load > 0.0);
        let (busy, load) = saturated.fold((0.0, 0.0), |(busy, load), (worker, recorded)| {
            (busy + worker.busy.0 as f64, load + recorded)
        });
        if load == 0.0 {
            return Vec::new();
        }
        let scaled = self.workers.iter().zip(&recorded).map(|(worker, recorded)| {
            if is_saturated(worker) { worker.busy.0 } else { (recorded * busy / load) as u64 }
        });
        scaled.collect()
    }
}

fn all_samples(samples: impl Iterator<Item = Samples>) -> Samples {
    samples.fold(Samples::default(), Samples::and)
}

/// Returns the number of samples of equal cost that say as much.
fn effective(samples: Samples) -> f64 {
    samples.count as f64 / samples.dispersion()
}

impl Adaptive {
    /// Reads the counters.
    pub(super) fn glance(&self) -> Result<Glance, Abort> {
        let workers = self.ask_all(|worker| worker.shard().monitor.so_far(worker))?;
        Ok(Glance { at: self.now(), counts: self.counts(), workers })
    }

    /// Returns the difference between two glances; no statistics were collected in between.
    pub(super) fn between(&self, before: &Glance, now: &Glance) -> Observation {
        let elapsed_ns = self.handle.clock().ns(now.at.since(before.at));
        let loads = now.workers.iter().zip(&before.workers);
        Observation {
            // A partition that was moved by hand took its load along.
            loads: loads.map(|(now, before)| now.load.saturating_sub(before.load) as f64).collect(),
            ..self.observation(now, now.counts.since(before.counts), elapsed_ns)
        }
    }

    /// Returns what a turn observes: the throughput since the turn before, and all that was recorded since the last collection.
    pub(super) fn since_last_turn(&self, now: &Glance) -> Observation {
        let (since, before) = std::mem::replace(&mut self.lock().observed, (now.at, now.counts));
        let elapsed_ns = self.handle.clock().ns(now.at.since(since));
        self.observation(now, now.counts.since(before), elapsed_ns)
    }

    fn observation(&self, now: &Glance, counts: Counts, elapsed_ns: u64) -> Observation {
        Observation {
            at_ns: self.since_opening_ns(),
            throughput_tps: rate(counts.committed, elapsed_ns),
            waits: counts.waited as f64 / counts.committed.max(1) as f64,
            loads: now.workers.iter().map(|worker| worker.load as f64).collect(),
            available: self.available(),
            changed_platform: false,
            samples: Some(effective(all_samples(now.workers.iter().map(|worker| worker.samples)))),
        }
    }

    /// Collects the statistics of the workers, which begin anew.
    pub(super) fn observe(&self) -> Result<Observed, Abort> {
        let workers = self.ask_all(|worker| worker.shard().monitor.collect(worker))?;
        let now = self.now();
        let since = std::mem::replace(&mut self.lock().taken, now);
        let elapsed = Duration::from_nanos(self.handle.clock().ns(now.since(since)));
        let cycles_per_tick = CYCLES_PER_NS * self.handle.clock().ns_per_tick();
        Ok(Observed { workers, elapsed, cycles_per_tick })
    }

    /// Counts transactions since the database was opened.
    pub(super) fn counts(&self) -> Counts {
        self.stats.iter().map(|stats| stats.read()).fold(Counts::default(), |sum, worker| Counts {
            committed: sum.committed + worker.committed,
            waited: sum.waited + worker.lock_waits,
        })
    }
}

/// Returns events per second.
pub fn rate(events: u64, nanoseconds: u64) -> f64 {
    events as f64 / (nanoseconds as f64 * 1e-9).max(1e-9)
}

/// Returns the load of a worker: the cost of all actions on its partitions.
fn load_of(collected: &WorkerCollected) -> f64 {
    collected.partitions.iter().flat_map(|partition| &partition.costs).map(|cost| *cost as f64).sum()
}
