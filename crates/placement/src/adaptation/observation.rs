//! Observation of the workers: counters that are read at any time, and statistics that begin anew when they are collected.
//!
//! Owns: the period that statistics are of. Never: changes the scheme; the caller keeps it from changing while statistics are
//! collected.

use std::time::Duration;

use atrapos_adapt::Observation;
use atrapos_partition::abort::Abort;
use atrapos_runtime::Ticks;
use atrapos_transaction::jobs::on_all_workers;
use atrapos_transaction::monitor::{Collected, WorkerCollected};

use super::Adaptive;

/// Counters at one moment.
#[derive(Clone, Debug)]
pub(super) struct Glance {
    at: Ticks,
    committed: u64,
    /// The observed cost that was not yet collected, by worker.
    loads: Vec<u64>,
}

/// Statistics of the workers since they were collected before.
pub struct Observed {
    /// The records of each worker.
    pub workers: Vec<WorkerCollected>,
    /// The time since they were collected before.
    pub elapsed: Duration,
    /// Transactions committed in that time.
    pub committed: u64,
}

impl Observed {
    pub(super) fn find(&self, family: usize, number: u32) -> Option<&Collected> {
        let of = |collected: &&Collected| collected.family == family && collected.number == number;
        self.workers.iter().flat_map(|worker| &worker.partitions).find(of)
    }
}

impl Adaptive {
    /// Reads the counters.
    pub(super) fn glance(&self) -> Result<Glance, Abort> {
        let loads = on_all_workers(&self.handle, |worker| worker.shard().monitor.load_so_far(worker))?;
        Ok(Glance { at: self.handle.clock().now(), committed: self.committed(), loads })
    }

    /// Returns the difference between two glances; no statistics were collected in between.
    pub(super) fn between(&self, before: &Glance, now: &Glance) -> Observation {
        let elapsed_ns = self.handle.clock().ns(now.at.since(before.at));
        let loads = now.loads.iter().zip(&before.loads);
        Observation {
            at_ns: self.since_opening_ns(),
            throughput_tps: rate(now.committed - before.committed, elapsed_ns),
            // A partition that was moved by hand took its load along.
            loads: loads.map(|(now, before)| now.saturating_sub(*before) as f64).collect(),
            available: self.available(),
            changed_platform: false,
        }
    }

    /// Collects the statistics of the workers, which begin anew.
    pub(super) fn observe(&self) -> Result<Observed, Abort> {
        let workers = on_all_workers(&self.handle, |worker| worker.shard().monitor.collect(worker))?;
        let committed = self.committed();
        let now = self.handle.clock().now();
        let (since, before) = std::mem::replace(&mut self.lock().taken, (now, committed));
        let elapsed = Duration::from_nanos(self.handle.clock().ns(now.since(since)));
        Ok(Observed { workers, elapsed, committed: committed - before })
    }

    /// Returns the number of transactions that have committed since the database was opened.
    fn committed(&self) -> u64 {
        self.stats.iter().map(|stats| stats.read().committed).sum()
    }

    pub(super) fn since_opening_ns(&self) -> u64 {
        let clock = self.handle.clock();
        clock.ns(clock.now().since(self.opened))
    }
}

/// Returns events per second.
pub(super) fn rate(events: u64, nanoseconds: u64) -> f64 {
    events as f64 / (nanoseconds as f64 * 1e-9).max(1e-9)
}

/// Returns the load of a worker: the cost of all actions on its partitions.
pub(super) fn load_of(collected: &WorkerCollected) -> f64 {
    collected.partitions.iter().flat_map(|partition| &partition.costs).map(|cost| *cost as f64).sum()
}
