//! Latencies: counted in a plain array while transactions run, shown as a histogram afterwards.
//!
//! Owns: the mapping of times to buckets, and back. Never: reads a clock.
//!
//! Recording one transaction must cost a handful of instructions and no allocation, so a session adds one to a counter
//! of a fixed array. Buckets are as wide as 1/64 of what they count (as those of an HDR histogram of about two
//! significant digits); the array becomes an [`hdrhistogram::Histogram`] when a run is over.
//!
//! Invariant: every time has exactly one bucket, and buckets ascend with times.

use hdrhistogram::Histogram;

/// Buckets per doubling of the time: a recorded time is at most 1/64 too small.
const SUB_BUCKETS_LOG2: u32 = 6;
const SUB_BUCKETS: u64 = 1 << SUB_BUCKETS_LOG2;
/// Times of this many ticks or more are counted as the longest: five minutes of a 3 GHz counter.
const TICKS_LOG2_MAX: u32 = 40;

/// Number of buckets.
pub const BUCKETS: usize = ((TICKS_LOG2_MAX - SUB_BUCKETS_LOG2 + 1) << SUB_BUCKETS_LOG2) as usize;

/// Returns the bucket of a time in ticks.
#[inline]
#[must_use]
pub fn bucket_of(ticks: u64) -> usize {
    let ticks = ticks.min((1 << TICKS_LOG2_MAX) - 1);
    // A time below two doublings of the sub-buckets has a bucket of its own: this shift is zero.
    let shift = (u64::BITS - (ticks | SUB_BUCKETS).leading_zeros()) - (SUB_BUCKETS_LOG2 + 1);
    ((u64::from(shift) << SUB_BUCKETS_LOG2) + (ticks >> shift)) as usize
}

/// Returns the longest time of a bucket, in ticks.
#[must_use]
pub fn longest_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * SUB_BUCKETS {
        return bucket;
    }
    let shift = (bucket >> SUB_BUCKETS_LOG2) - 1;
    let first = (bucket - (shift << SUB_BUCKETS_LOG2)) << shift;
    first + (1 << shift) - 1
}

/// Converts counts per bucket to a histogram in nanoseconds.
///
/// # Panics
/// Never: the histogram resizes itself.
#[must_use]
pub fn histogram_ns(counts: &[u64], ns_of_ticks: impl Fn(u64) -> u64) -> Histogram<u64> {
    let mut histogram =
        Histogram::new(3).expect("three significant digits are within what a histogram takes");
    for (bucket, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let recorded = histogram.record_n(ns_of_ticks(longest_of(bucket)), *count);
        recorded.expect("a histogram that resizes itself takes every number");
    }
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        let mut first = 0;
        for bucket in 0..BUCKETS {
            assert_eq!(bucket_of(first), bucket, "first tick of bucket {bucket}");
            let last = longest_of(bucket);
            assert_eq!(bucket_of(last), bucket, "last tick of bucket {bucket}");
            first = last + 1;
        }
        assert_eq!(first, 1 << TICKS_LOG2_MAX);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    proptest! {
        #[test]
        fn a_time_is_shown_at_most_a_sixty_fourth_too_long(ticks in 0_u64..(1 << TICKS_LOG2_MAX)) {
            let shown = longest_of(bucket_of(ticks));
            prop_assert!(shown >= ticks && shown - ticks <= ticks / 64, "{ticks} shown as {shown}");
        }
    }

    #[test]
    fn counts_become_percentiles() {
        let mut counts = vec![0; BUCKETS];
        for ticks in 1..=1000 {
            counts[bucket_of(ticks * 100)] += 1;
        }
        let histogram = histogram_ns(&counts, |ticks| ticks / 2);
        assert_eq!(histogram.len(), 1000);
        for (quantile, expected) in [(0.5, 25_000.0), (0.95, 47_500.0), (0.99, 49_500.0), (1.0, 50_000.0)] {
            let shown = histogram.value_at_quantile(quantile) as f64;
            assert!((shown / expected - 1.0).abs() < 0.03, "{quantile}: {shown} instead of {expected}");
        }
    }
}
