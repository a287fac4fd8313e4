//! Counters of the clients while they run, and the results derived from them afterwards.
//!
//! Owns: one [`Recorder`] per worker (shared by the sessions that live there) or per outside client. Never: is written
//! by two threads, or allocates after it was made.
//!
//! Counters are never reset: the counts of an interval are the difference of two [`Snapshot`]s, one taken at either
//! end. So a client counts every transaction in the same few instructions, warm-up or not, and the auditor's
//! [`Ledger`](atrapos_workloads::Ledger) is complete.
//!
//! Invariant: every counter of a recorder is written by one thread.

use std::sync::atomic::{AtomicBool, Ordering};

use atrapos::{Abort, AbortReason};
use atrapos_runtime::{Counter, Ticks};
use atrapos_workloads::{ClassId, ClassTally, Outcome};
use crossbeam_utils::CachePadded;

use crate::latency::{BUCKETS, bucket_of};

struct ClassCounters {
    committed: Counter,
    expected_failures: Counter,
    /// A signed sum in two's complement.
    moved: Counter,
    aborted: [Counter; AbortReason::ALL.len()],
    latency: Box<[Counter]>,
}

/// The counters of the clients of one thread, and the flag that tells them to stop.
pub struct Recorder {
    /// Flag read by the clients before every transaction; written once. It has a cache line of its own so that reading
    /// it is a hit in the reader's own cache.
    stop: CachePadded<AtomicBool>,
    classes: Box<[ClassCounters]>,
}

impl Recorder {
    /// Creates counters of so many classes.
    pub fn new(classes: usize) -> Recorder {
        let class = || ClassCounters {
            committed: Counter::default(),
            expected_failures: Counter::default(),
            moved: Counter::default(),
            aborted: Default::default(),
            latency: (0..BUCKETS).map(|_| Counter::default()).collect(),
        };
        Recorder {
            stop: CachePadded::new(AtomicBool::new(false)),
            classes: (0..classes).map(|_| class()).collect(),
        }
    }

    /// Counts one transaction that took `span` as seen by its client. Latencies are recorded for completed transactions
    /// only.
    #[inline]
    pub fn record(&self, class: ClassId, outcome: &Result<Outcome, Abort>, span: Ticks) {
        let counters = &self.classes[class.index()];
        match outcome {
            Ok(Outcome::Succeeded) => counters.committed.add(1),
            Ok(Outcome::Moved(by)) => {
                counters.committed.add(1);
                counters.moved.add(by.cast_unsigned());
            }
            Ok(Outcome::ExpectedFailure) => counters.expected_failures.add(1),
            Err(abort) => {
                counters.aborted[abort.reason() as usize].add(1);
                return;
            }
        }
        counters.latency[bucket_of(span.0)].add(1);
    }

    /// Returns true once the clients are to stop.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Tells the clients to stop.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Returns the number of transactions completed so far.
    pub fn completed(&self) -> u64 {
        self.classes.iter().map(|class| class.committed.get() + class.expected_failures.get()).sum()
    }

    /// Returns the current values of all counters, approximately at one moment.
    pub fn snapshot(&self) -> Snapshot {
        let class = |counters: &ClassCounters| {
            let tally = ClassTally {
                committed: counters.committed.get(),
                expected_failures: counters.expected_failures.get(),
                moved: counters.moved.get().cast_signed(),
                aborted: std::array::from_fn(|at| counters.aborted[at].get()),
            };
            (tally, counters.latency.iter().map(Counter::get).collect())
        };
        let (tallies, latencies) = self.classes.iter().map(class).unzip();
        Snapshot { tallies, latencies }
    }
}

/// Counters at some moment, or their increase between two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Transactions, by class.
    pub tallies: Vec<ClassTally>,
    /// Counts per latency bucket, by class.
    pub latencies: Vec<Vec<u64>>,
}

impl Snapshot {
    fn zip(&self, other: &Snapshot, with: impl Fn(u64, u64) -> u64) -> Snapshot {
        let tallies = self.tallies.iter().zip(&other.tallies).map(|(a, b)| a.zip(b, &with)).collect();
        let latency = |(a, b): (&Vec<u64>, &Vec<u64>)| a.iter().zip(b).map(|(a, b)| with(*a, *b)).collect();
        Snapshot { tallies, latencies: self.latencies.iter().zip(&other.latencies).map(latency).collect() }
    }

    /// Sums the counters of several recorders; `classes` is their common number of classes.
    pub fn sum<'a>(recorders: impl IntoIterator<Item = &'a Recorder>, classes: usize) -> Snapshot {
        let none = Snapshot {
            tallies: vec![ClassTally::default(); classes],
            latencies: vec![vec![0; BUCKETS]; classes],
        };
        recorders.into_iter().fold(none, |sum, recorder| sum.zip(&recorder.snapshot(), u64::wrapping_add))
    }

    /// Returns the increase of the counters since `earlier`.
    pub fn since(&self, earlier: &Snapshot) -> Snapshot {
        self.zip(earlier, u64::wrapping_sub)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_the_difference_of_two_snapshots() {
        let recorder = Recorder::new(2);
        let (first, second) = (ClassId(0), ClassId(1));
        recorder.record(first, &Ok(Outcome::Succeeded), Ticks(100));
        let before = Snapshot::sum([&recorder], 2);
        recorder.record(first, &Ok(Outcome::Succeeded), Ticks(100));
        recorder.record(second, &Ok(Outcome::ExpectedFailure), Ticks(7));
        recorder.record(second, &Err(Abort::user("no")), Ticks(7));
        recorder.record(second, &Ok(Outcome::Moved(-30)), Ticks(7));
        recorder.record(second, &Ok(Outcome::Moved(10)), Ticks(7));
        let added = Snapshot::sum([&recorder], 2).since(&before);
        assert_eq!(added.tallies[0].committed, 1);
        assert_eq!((added.tallies[1].committed, added.tallies[1].expected_failures), (2, 1));
        assert_eq!((added.tallies[0].moved, added.tallies[1].moved), (0, -20));
        assert_eq!(added.tallies[1].aborted[AbortReason::User as usize], 1);
        assert_eq!(added.latencies[0].iter().sum::<u64>(), 1);
        assert_eq!(added.latencies[1].iter().sum::<u64>(), 3, "an aborted transaction has no latency");
        assert_eq!(recorder.completed(), 5);
    }
}
