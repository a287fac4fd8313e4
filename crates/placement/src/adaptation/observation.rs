//! Observation of the workers: counters that are read at any time, and statistics that begin anew when they are collected.
//!
//! Owns: the period that statistics are of. Never: changes the scheme; the caller keeps it from changing while statistics are
//! collected.

use std::time::Duration;

use atrapos_adapt::{CYCLES_PER_NS, Mix, Observation, Rules, WorkerTime, busy_per_recorded};
use atrapos_partition::abort::Abort;
use atrapos_runtime::Ticks;
use atrapos_transaction::monitor::{ClassCounts, Collected, Samples, SoFar, WorkerCollected};

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

impl Glance {
    /// The transactions of all workers by class since the opening.
    fn classes(&self) -> ClassCounts {
        self.workers.iter().map(|worker| &worker.classes).sum()
    }

    /// The samples of all workers that are not yet collected.
    fn samples(&self) -> Samples {
        all_samples(self.workers.iter().map(|worker| worker.samples))
    }
}

/// Statistics of the workers since they were collected before.
pub struct Observed {
    /// The records of each worker.
    pub workers: Vec<WorkerCollected>,
    /// The time since they were collected before.
    pub elapsed: Duration,
    /// Cycles of the cost model ([`CYCLES_PER_NS`]) in a tick of the workers' clock, which is something else on each machine.
    pub cycles_per_tick: f64,
    /// The share of its time from which a worker is saturated ([`Rules::saturated`]).
    pub saturated: f64,
    /// Transactions by class.
    pub classes: ClassCounts,
}

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

    /// Returns the time that accesses to lent partitions took on all workers, in ticks: as recorded, or scaled to the time that the workers were
    /// busy, as [`busy`](Observed::busy) is.
    pub(super) fn in_place(&self) -> u64 {
        let recorded = self.workers.iter().map(|worker| worker.in_place as f64);
        let ticks: f64 = match self.busy_per_recorded() {
            Some(scales) => recorded.zip(scales).map(|(ticks, scale)| ticks * scale).sum(),
            None => recorded.sum(),
        };
        ticks.round() as u64
    }

    /// Returns the time that each worker was busy for what it owns, in ticks. Empty if no worker was saturated.
    pub(super) fn busy(&self) -> Vec<u64> {
        let scales = self.busy_per_recorded().unwrap_or_default();
        self.workers
            .iter()
            .zip(scales)
            .map(|(worker, scale)| (load_of(worker) * scale).round() as u64)
            .collect()
    }

    /// Returns the time that each worker was busy over what it has recorded; `None` if no worker was saturated.
    fn busy_per_recorded(&self) -> Option<Vec<f64>> {
        let time = |worker: &WorkerCollected| WorkerTime {
            busy: worker.busy.0 as f64,
            idle: worker.idle.0 as f64,
            of_thread: worker.of_thread,
            recorded: recorded(worker),
        };
        let times: Vec<WorkerTime> = self.workers.iter().map(time).collect();
        busy_per_recorded(&times, self.saturated)
    }
}

/// Returns what a worker has recorded, on its own partitions and on those that others have lent, in ticks.
fn recorded(worker: &WorkerCollected) -> f64 {
    load_of(worker) + worker.in_place as f64
}

fn all_samples(samples: impl Iterator<Item = Samples>) -> Samples {
    samples.fold(Samples::default(), Samples::and)
}

/// Returns the number of samples of equal cost that say as much.
fn effective(samples: Samples) -> f64 {
    samples.count as f64 / samples.dispersion()
}

impl Adaptive {
    /// The thresholds of the rules.
    pub(super) fn rules(&self) -> Rules {
        self.settings.unwrap_or_default().controller.rules
    }

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
            mix: mix_of(&now.classes().since(&before.classes())),
            // What was recorded before says nothing of these loads.
            samples: Some(effective(now.samples().since(before.samples()))),
            ..self.observation(now, now.counts.since(before.counts), elapsed_ns)
        }
    }

    /// Has the next turn observe what comes after this glance. Returns what it would have come after.
    pub(super) fn observe_from(&self, now: &Glance) -> (Ticks, Counts, ClassCounts) {
        let observed = (now.at, now.counts, now.classes());
        std::mem::replace(&mut self.lock().observed, observed)
    }

    /// Returns what a turn observes: the throughput since the turn before, and all that was recorded since the last collection.
    pub(super) fn since_last_turn(&self, now: &Glance) -> Observation {
        let (since, before, classes_before) = self.observe_from(now);
        let elapsed_ns = self.handle.clock().ns(now.at.since(since));
        Observation {
            mix: mix_of(&now.classes().since(&classes_before)),
            ..self.observation(now, now.counts.since(before), elapsed_ns)
        }
    }

    fn observation(&self, now: &Glance, counts: Counts, elapsed_ns: u64) -> Observation {
        Observation {
            at_ns: self.since_opening_ns(),
            throughput_tps: rate(counts.committed, elapsed_ns),
            waits: counts.waited as f64 / counts.committed.max(1) as f64,
            loads: now.workers.iter().map(|worker| worker.load as f64).collect(),
            available: self.available(),
            changed_platform: false,
            samples: Some(effective(now.samples())),
            mix: Mix::default(),
        }
    }

    /// Collects the statistics of the workers, which begin anew.
    pub(super) fn observe(&self) -> Result<Observed, Abort> {
        let workers = self.ask_all(|worker| worker.shard().monitor.collect(worker))?;
        let now = self.now();
        let classes: ClassCounts = workers.iter().map(|worker| &worker.classes).sum();
        let (since, before) = std::mem::replace(&mut self.lock().taken, (now, classes.clone()));
        let classes = classes.since(&before);
        let elapsed = Duration::from_nanos(self.handle.clock().ns(now.since(since)));
        let cycles_per_tick = CYCLES_PER_NS * self.handle.clock().ns_per_tick();
        let saturated = self.rules().saturated;
        Ok(Observed { workers, elapsed, cycles_per_tick, saturated, classes })
    }

    /// Counts transactions since the database was opened.
    pub(super) fn counts(&self) -> Counts {
        self.stats.iter().map(|stats| stats.read()).fold(Counts::default(), |sum, worker| Counts {
            committed: sum.committed + worker.committed,
            waited: sum.waited + worker.lock_waits,
        })
    }
}

/// Returns counts as a mix.
pub fn mix_of(counts: &ClassCounts) -> Mix {
    let transactions = counts.iter().map(|(class, transactions)| (class, transactions as f64));
    Mix::new(transactions, counts.samples() as f64)
}

/// Returns events per second.
pub fn rate(events: u64, nanoseconds: u64) -> f64 {
    events as f64 / (nanoseconds as f64 * 1e-9).max(1e-9)
}

/// Returns the load of a worker: the cost of all actions on its partitions.
fn load_of(collected: &WorkerCollected) -> f64 {
    collected.partitions.iter().flat_map(|partition| &partition.costs).map(|cost| *cost as f64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker that recorded so many ticks of its own and in place, on a thread of `of_thread` workers.
    fn worker(own: u64, in_place: u64, (busy, idle): (u64, u64), of_thread: usize) -> WorkerCollected {
        let partition = Collected {
            family: 0,
            number: 0,
            bounds: Vec::new(),
            costs: vec![own],
            meetings: Vec::new(),
            rows: 1,
        };
        WorkerCollected {
            partitions: vec![partition],
            samples: Samples::default(),
            in_place,
            busy: Ticks(busy),
            idle: Ticks(idle),
            of_thread,
            classes: ClassCounts::default(),
        }
    }

    fn observed(workers: Vec<WorkerCollected>) -> Observed {
        let saturated = Rules::default().saturated;
        let classes = ClassCounts::default();
        Observed { workers, elapsed: Duration::from_secs(1), cycles_per_tick: 1.0, saturated, classes }
    }

    #[test]
    fn busy_time_is_divided_as_it_was_recorded() {
        let saturated = observed(vec![worker(10, 30, (1_000, 0), 1), worker(40, 0, (1_000, 10), 1)]);
        assert_eq!(saturated.busy(), [250, 1_000]);
        assert_eq!(saturated.in_place(), 750);
        // Each by its own time: a worker that only reads in place has all of its own there.
        let apart = observed(vec![worker(0, 10, (1_000, 0), 1), worker(1_000, 0, (1_000, 0), 1)]);
        assert_eq!((apart.busy(), apart.in_place()), (vec![0, 1_000], 1_000));
        let idle = observed(vec![worker(10, 30, (100, 900), 1), worker(40, 0, (100, 900), 1)]);
        assert_eq!(idle.busy(), [0; 0]);
        assert_eq!(idle.in_place(), 30);
        // What the saturated one has recorded stands for 25 times as much.
        let one = observed(vec![worker(40, 0, (1_000, 0), 1), worker(10, 10, (600, 400), 1)]);
        assert_eq!(one.busy(), [1_000, 250]);
        assert_eq!(one.in_place(), 250);
    }

    #[test]
    fn workers_in_turns_are_saturated_when_their_threads_are() {
        // Two threads of two workers each: one worker has most of its thread's time.
        let turns = [(900, 100), (100, 900), (500, 500), (500, 500)];
        let busy = observed(turns.map(|turns| worker(10, 0, turns, 2)).into());
        assert_eq!(busy.busy(), [900, 100, 500, 500]);
        let idle = observed(turns.map(|(busy, idle)| worker(10, 0, (busy / 2, idle + busy / 2), 2)).into());
        assert_eq!(idle.busy(), [0; 0]);
    }
}
