//! Counts of commits, aborts and memory: each client has its own, which only it writes.
//!
//! Owns: the counters. Never: makes two clients write one cache line.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use atrapos_partition::abort::AbortReason;
use crossbeam_utils::CachePadded;

/// Counts of the transactions of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OccStatistics {
    /// Transactions that committed.
    pub commits: u64,
    /// Transactions that aborted, by reason, in the order of [`AbortReason::ALL`]. Those that were dropped, or aborted by
    /// [`OccTransaction::abort`](super::OccTransaction::abort), count as aborted by the user.
    pub aborts: [u64; AbortReason::ALL.len()],
}

impl OccStatistics {
    /// Number of transactions that aborted for a reason.
    #[must_use]
    pub fn aborted_for(&self, reason: AbortReason) -> u64 {
        self.aborts[reason as usize]
    }
}

/// Bytes of memory that an engine's data take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OccMemory {
    /// Bytes of the nodes of the trees.
    pub nodes: u64,
    /// Bytes of the records in the trees: keys and rows, with their headers and what rows may grow.
    pub records: u64,
}

/// The counters of one client.
#[derive(Debug)]
pub(crate) struct Counters {
    commits: AtomicU64,
    aborts: [AtomicU64; AbortReason::ALL.len()],
    /// Bytes of records inserted, less those removed; wraps, because records are removed by others than have inserted them.
    record_bytes: AtomicU64,
}

impl Counters {
    fn new() -> Counters {
        Counters {
            commits: AtomicU64::new(0),
            aborts: std::array::from_fn(|_| AtomicU64::new(0)),
            record_bytes: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(crate) fn committed(&self) {
        add(&self.commits, 1);
    }

    pub(crate) fn aborted(&self, reason: AbortReason) {
        add(&self.aborts[reason as usize], 1);
    }

    pub(crate) fn record_added(&self, bytes: usize) {
        add(&self.record_bytes, bytes as u64);
    }

    pub(crate) fn record_removed(&self, bytes: usize) {
        add(&self.record_bytes, (bytes as u64).wrapping_neg());
    }
}

/// Adds to a counter that only this thread writes.
#[inline]
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// The counters of all clients of an engine, past ones included.
#[derive(Debug, Default)]
pub(crate) struct AllCounters(Mutex<Vec<Arc<CachePadded<Counters>>>>);

impl AllCounters {
    /// Counters for a new client, those of one that is gone if there are any.
    pub(crate) fn of_client(&self) -> Arc<CachePadded<Counters>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(free) = all.iter().find(|counters| Arc::strong_count(counters) == 1) {
            // What the client before has counted is seen from here on: its reference was released after it.
            fence(Ordering::Acquire);
            return Arc::clone(free);
        }
        let counters = Arc::new(CachePadded::new(Counters::new()));
        all.push(Arc::clone(&counters));
        counters
    }

    pub(crate) fn statistics(&self) -> OccStatistics {
        let mut sum = OccStatistics { commits: 0, aborts: [0; AbortReason::ALL.len()] };
        for counters in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            sum.commits += counters.commits.load(Ordering::Relaxed);
            for (sum, count) in sum.aborts.iter_mut().zip(&counters.aborts) {
                *sum += count.load(Ordering::Relaxed);
            }
        }
        sum
    }

    pub(crate) fn record_bytes(&self) -> u64 {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().fold(0, |sum, counters| sum.wrapping_add(counters.record_bytes.load(Ordering::Relaxed)))
    }
}
