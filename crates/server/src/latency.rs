//! Latencies of requests, as clients meet them: from the first message of a request to its ReadyForQuery.
//!
//! Owns: the histogram and its quantiles. Never: a lock, or a counter that two threads of workers write in turn: each thread counts in a
//! stripe of its own, unless there are more threads than stripes.
//!
//! Invariant: a quantile is too large by less than a quarter, and never too small.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Buckets of each power of two.
const PER_OCTAVE: usize = 4;
/// The powers of two of nanoseconds that are told apart: from about a microsecond to about a minute.
const FIRST_OCTAVE: u32 = 10;
const LAST_OCTAVE: u32 = 35;
/// The last bucket has all that took longer.
const BUCKETS: usize = (LAST_OCTAVE - FIRST_OCTAVE + 1) as usize * PER_OCTAVE + 1;
const STRIPES: usize = 16;

/// The counts of one stripe.
#[derive(Debug)]
#[repr(align(128))]
struct Stripe {
    buckets: [AtomicU64; BUCKETS],
    nanoseconds: AtomicU64,
}

/// A histogram that many threads add to.
#[derive(Debug)]
pub(crate) struct Latencies(Box<[Stripe]>);

/// Counts of a histogram at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    buckets: Vec<u64>,
    nanoseconds: u64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        let stripe = |_| Stripe {
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            nanoseconds: AtomicU64::new(0),
        };
        Latencies((0..STRIPES).map(stripe).collect())
    }
}

thread_local! {
    /// The stripe of this thread.
    static STRIPE: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES)
    };
}

impl Latencies {
    /// Adds a request.
    pub(crate) fn add(&self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let stripe = &self.0[STRIPE.get()];
        stripe.buckets[bucket_of(nanoseconds)].fetch_add(1, Ordering::Relaxed);
        stripe.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Returns the counts of all threads.
    pub(crate) fn read(&self) -> Counted {
        let sum =
            |bucket: usize| self.0.iter().map(|stripe| stripe.buckets[bucket].load(Ordering::Relaxed)).sum();
        Counted {
            buckets: (0..BUCKETS).map(sum).collect(),
            nanoseconds: self.0.iter().map(|stripe| stripe.nanoseconds.load(Ordering::Relaxed)).sum(),
        }
    }
}

/// The bucket of a duration: the first whose [end](end_of) is not before it.
fn bucket_of(nanoseconds: u64) -> usize {
    if nanoseconds <= 1 << FIRST_OCTAVE {
        return 0;
    }
    // Ends belong to the buckets that they end.
    let before = nanoseconds - 1;
    let octave = before.ilog2();
    if octave > LAST_OCTAVE {
        return BUCKETS - 1;
    }
    let within = (before >> (octave - 2)) as usize % PER_OCTAVE;
    (octave - FIRST_OCTAVE) as usize * PER_OCTAVE + within
}

/// The longest duration of a bucket, in nanoseconds; that of the last one has none.
fn end_of(bucket: usize) -> u64 {
    let octave = FIRST_OCTAVE + (bucket / PER_OCTAVE) as u32;
    (1 << octave) + ((bucket % PER_OCTAVE) as u64 + 1) * (1 << (octave - 2))
}

impl Counted {
    /// Returns the number of requests.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the seconds that they took together.
    pub(crate) fn seconds(&self) -> f64 {
        self.nanoseconds as f64 / 1e9
    }

    /// Returns the requests since an earlier reading.
    pub(crate) fn since(&self, earlier: &Counted) -> Counted {
        let pairs = self.buckets.iter().zip(&earlier.buckets);
        Counted {
            buckets: pairs.map(|(now, before)| now.saturating_sub(*before)).collect(),
            nanoseconds: self.nanoseconds.saturating_sub(earlier.nanoseconds),
        }
    }

    /// Returns the microseconds within which a share of the requests was answered; `None` if there was none.
    pub(crate) fn quantile_us(&self, share: f64) -> Option<f64> {
        let wanted = ((self.count() as f64 * share).ceil() as u64).max(1);
        let mut sum = 0;
        let bucket = self.buckets.iter().position(|count| {
            sum += count;
            sum >= wanted
        })?;
        Some(end_of(bucket) as f64 / 1e3)
    }

    /// Returns pairs of seconds and the number of requests that took at most so long, one for each power of two.
    pub(crate) fn cumulative(&self) -> Vec<(f64, u64)> {
        let up_to = |bucket: usize| self.buckets[..=bucket].iter().sum();
        let ends = (PER_OCTAVE - 1..BUCKETS - 1).step_by(PER_OCTAVE);
        ends.map(|bucket| (end_of(bucket) as f64 / 1e9, up_to(bucket))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_in_the_bucket_that_ends_behind_it() {
        for bucket in 0..BUCKETS - 1 {
            let end = end_of(bucket);
            assert_eq!((bucket_of(end), bucket_of(end + 1)), (bucket, bucket + 1), "{end}");
        }
        assert_eq!((bucket_of(0), bucket_of(u64::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn quantiles_are_at_most_a_quarter_too_large() {
        let latencies = Latencies::default();
        let before = latencies.read();
        assert_eq!(before.quantile_us(0.5), None);
        for microseconds in 1..=1000 {
            latencies.add(Duration::from_micros(microseconds * 10));
        }
        let counted = latencies.read().since(&before);
        assert_eq!(counted.count(), 1000);
        assert!((counted.seconds() - 5.005).abs() < 1e-9);
        for (share, exact) in [(0.001, 10.0), (0.5, 5000.0), (0.99, 9900.0), (1.0, 10_000.0)] {
            let found = counted.quantile_us(share).expect("requests");
            assert!((exact..=exact * 1.25).contains(&found), "{share}: {found} for {exact}");
        }
        let cumulative = counted.cumulative();
        assert!(cumulative.is_sorted());
        assert_eq!(cumulative.last().map(|(_, count)| *count), Some(1000));
    }
}
