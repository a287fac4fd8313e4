//! Statistics: counters that one thread writes with plain stores and anybody reads.
//!
//! Owns: [`Counter`], the counters of a worker, and snapshots of them. Never: a read-modify-write instruction, or a
//! ratio computed by the writer; folding is the reader's work. No unsafe code.
//!
//! Invariant: the counters of one worker lie on cache lines that no other worker writes.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::WorkerId;
use crate::clock::Ticks;

/// A number that only grows, written by one thread and readable by all.
///
/// Adding is a load and a store, not an atomic addition: if two threads added to one counter, additions would be lost
/// (never anything worse). Keep a thread's counters on cache lines of its own.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// A counter at zero.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `n`. Only the owning thread calls this.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// The value now; another thread sees some recent value.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Shows a value that the owning thread keeps elsewhere.
    #[inline]
    pub(crate) fn show(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Shows a value such that whoever reads it with [`get_acquire`](Self::get_acquire) sees all that came before.
    #[inline]
    pub(crate) fn show_release(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    /// Adds `n` such that whoever reads it with [`get_acquire`](Self::get_acquire) sees all that came before.
    #[inline]
    pub(crate) fn add_release(&self, n: u64) {
        self.show_release(self.get().wrapping_add(n));
    }

    #[inline]
    pub(crate) fn get_acquire(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// The counters of one worker, written by it alone.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WorkerStats {
    /// Steps taken.
    pub steps: Counter,
    /// Ticks of steps that found work, with the time until the next step.
    pub busy_ticks: Counter,
    /// Ticks of steps that found none, spinning and parking included; on a thread of several workers, also those of the others' steps.
    pub idle_ticks: Counter,
    /// Times that the worker went to sleep, with all others of its thread.
    pub parks: Counter,
    /// Polls of tasks.
    pub tasks_polled: Counter,
    /// Messages sent to workers (itself included), whether inline, boxed or spilled.
    pub messages_sent: Counter,
    /// Messages run that came from workers.
    pub messages_received: Counter,
    /// Closures run that came from outside threads by the inbox.
    pub inbox_received: Counter,
    /// Closures run that came from outside threads by the control lane.
    pub control_received: Counter,
    /// Messages that found their ring full and waited in the local queue.
    pub spills: Counter,
    /// Work that keeps the worker from being quiet: tasks, spilled messages, and background work found by the last
    /// step.
    pub(crate) unfinished: Counter,
    /// Steps taken since the worker noticed that the runtime is stopping.
    pub(crate) stopping_steps: Counter,
}

impl WorkerStats {
    /// All counters as they are now. Counters of a running worker are not read at one instant.
    #[must_use]
    pub fn snapshot(&self, worker: WorkerId) -> WorkerSnapshot {
        WorkerSnapshot {
            worker,
            steps: self.steps.get(),
            busy_ticks: Ticks(self.busy_ticks.get()),
            idle_ticks: Ticks(self.idle_ticks.get()),
            parks: self.parks.get(),
            tasks_polled: self.tasks_polled.get(),
            messages_sent: self.messages_sent.get(),
            messages_received: self.messages_received.get(),
            inbox_received: self.inbox_received.get(),
            control_received: self.control_received.get(),
            spills: self.spills.get(),
        }
    }
}

/// The counters of one worker at about one instant. See [`WorkerStats`] for their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is documented under the same name in `WorkerStats`")]
pub struct WorkerSnapshot {
    pub worker: WorkerId,
    pub steps: u64,
    pub busy_ticks: Ticks,
    pub idle_ticks: Ticks,
    pub parks: u64,
    pub tasks_polled: u64,
    pub messages_sent: u64,
    pub messages_received: u64,
    pub inbox_received: u64,
    pub control_received: u64,
    pub spills: u64,
}

impl WorkerSnapshot {
    /// The share of time since `earlier` in which the worker found work, from 0 to 1; 0 if no time has passed.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people and controllers to read")]
    pub fn busy_ratio_since(&self, earlier: &Self) -> f64 {
        let busy = self.busy_ticks.since(earlier.busy_ticks).0 as f64;
        let idle = self.idle_ticks.since(earlier.idle_ticks).0 as f64;
        if busy + idle > 0.0 { busy / (busy + idle) } else { 0.0 }
    }

    /// The share of time since the worker started in which it found work.
    #[must_use]
    pub fn busy_ratio(&self) -> f64 {
        let start = Self { busy_ticks: Ticks::ZERO, idle_ticks: Ticks::ZERO, ..*self };
        self.busy_ratio_since(&start)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_differences_for_readers() {
        let stats = WorkerStats::default();
        stats.busy_ticks.add(30);
        stats.idle_ticks.add(10);
        let first = stats.snapshot(WorkerId(3));
        assert_eq!(first.worker, WorkerId(3));
        assert!((first.busy_ratio() - 0.75).abs() < 1e-9);
        assert!((first.busy_ratio_since(&first)).abs() < 1e-9, "no time has passed");
        stats.idle_ticks.add(60);
        stats.busy_ticks.add(20);
        assert!((stats.snapshot(WorkerId(3)).busy_ratio_since(&first) - 0.25).abs() < 1e-9);
    }

    #[test]
    fn counters_of_two_workers_share_no_cache_line() {
        assert_eq!(align_of::<WorkerStats>(), 128);
        assert_eq!(size_of::<WorkerStats>() % 128, 0);
    }
}
