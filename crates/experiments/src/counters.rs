//! Increments of counters that threads share, or do not (Islands, Figures 5 and 7).
//!
//! Owns: the loops. Never: chooses who shares a counter, or on which processor a thread runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

/// Increments between two looks at the clock's flag.
const BATCH: u64 = 256;

/// A thread that increments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incrementing {
    /// The index of its counter.
    pub counter: usize,
    /// The processor that it is pinned to; `None` for any.
    pub cpu: Option<usize>,
}

/// Returns the increments per second of all threads together. A counter is an atomic number, or one behind a lock if `locked`.
///
/// # Panics
/// If an increment was lost.
#[must_use]
pub fn increments_per_s(threads: &[Incrementing], locked: bool, measured: Duration) -> f64 {
    let counters = threads.iter().map(|thread| thread.counter + 1).max().unwrap_or(0);
    if locked {
        let counters: Vec<CachePadded<Mutex<u64>>> = (0..counters).map(|_| CachePadded::default()).collect();
        let lock = |counter: usize| counters[counter].lock().unwrap_or_else(PoisonError::into_inner);
        let rate = run(threads, measured, &|counter| *lock(counter) += 1);
        rate.checked((0..counters.len()).map(|counter| *lock(counter)).sum())
    } else {
        let counters: Vec<CachePadded<AtomicU64>> = (0..counters).map(|_| CachePadded::default()).collect();
        let rate = run(threads, measured, &|counter| {
            counters[counter].fetch_add(1, Ordering::Relaxed);
        });
        rate.checked(counters.iter().map(|counter| counter.load(Ordering::Relaxed)).sum())
    }
}

/// Increments, and the time that they took.
struct Rate {
    increments: u64,
    elapsed: Duration,
}

impl Rate {
    fn checked(&self, counted: u64) -> f64 {
        assert_eq!(counted, self.increments, "no increment is lost");
        self.increments as f64 / self.elapsed.as_secs_f64()
    }
}

fn run(threads: &[Incrementing], measured: Duration, increment: &(dyn Fn(usize) + Sync)) -> Rate {
    let (stop, start) = (AtomicBool::new(false), Barrier::new(threads.len() + 1));
    std::thread::scope(|scope| {
        let run_one = |thread: Incrementing| {
            let (stop, start) = (&stop, &start);
            scope.spawn(move || {
                if let Some(cpu) = thread.cpu {
                    // Unpinned, the thread only measures something less exact.
                    let _ = atrapos_runtime::affinity::pin_current_thread(cpu);
                }
                start.wait();
                let mut done = 0;
                while !stop.load(Ordering::Relaxed) {
                    (0..BATCH).for_each(|_| increment(thread.counter));
                    done += BATCH;
                }
                done
            })
        };
        let running: Vec<_> = threads.iter().copied().map(run_one).collect();
        start.wait();
        let began = Instant::now();
        std::thread::sleep(measured);
        stop.store(true, Ordering::Relaxed);
        let elapsed = began.elapsed();
        let join = |thread: std::thread::ScopedJoinHandle<'_, u64>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        Rate { increments: running.into_iter().map(join).sum(), elapsed }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_increments_its_counter() {
        let threads = |counters: [usize; 2]| counters.map(|counter| Incrementing { counter, cpu: None });
        for counters in [[0, 0], [0, 1]] {
            for locked in [false, true] {
                let rate = increments_per_s(&threads(counters), locked, Duration::from_millis(20));
                assert!(rate > 0.0, "{counters:?}, {locked}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "no increment is lost")]
    fn a_lost_increment_is_noticed() {
        let _ = Rate { increments: 2, elapsed: Duration::from_secs(1) }.checked(1);
    }
}
