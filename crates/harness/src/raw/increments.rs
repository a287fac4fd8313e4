//! The cost of two threads writing one cache line, against a line each: the reason for the partitioning of this engine.
//!
//! Owns: the two loops. Never: measures the start of its threads.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crossbeam_utils::CachePadded;

use super::{RawOptions, pin};

/// Measures nanoseconds per increment of a counter that two threads share.
pub(super) fn shared(options: &RawOptions, count: u64) -> f64 {
    let counter = CachePadded::new(AtomicU64::new(0));
    let ns = two_threads(options, count, [&counter, &counter]);
    assert_eq!(counter.load(Ordering::Relaxed), 2 * count, "no increment is lost");
    ns
}

/// Measures nanoseconds per increment when each of two threads has its own counter.
pub(super) fn private(options: &RawOptions, count: u64) -> f64 {
    let counters = [const { CachePadded::new(AtomicU64::new(0)) }; 2];
    let ns = two_threads(options, count, [&counters[0], &counters[1]]);
    assert!(counters.iter().all(|counter| counter.load(Ordering::Relaxed) == count), "no increment is lost");
    ns
}

fn two_threads(options: &RawOptions, count: u64, counters: [&AtomicU64; 2]) -> f64 {
    let barrier = Barrier::new(2);
    let ns = std::thread::scope(|scope| {
        let barrier = &barrier;
        let increment = |thread: usize| {
            let counter = counters[thread];
            scope.spawn(move || {
                pin(options, thread);
                barrier.wait();
                let began = Instant::now();
                for _ in 0..count {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
                began.elapsed().as_nanos() as f64 / count as f64
            })
        };
        [increment(0), increment(1)]
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    ns.iter().sum::<f64>() / 2.0
}
