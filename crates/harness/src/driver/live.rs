//! Latencies of a run while it goes on, for those who watch it.
//!
//! Owns: the request for them, and the answer. Never: costs a client anything: the thread that waits for the end of a run reads their
//! counters, and only if somebody has asked since it did so last.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use atrapos::Ticks;
use atrapos_runtime::Clock;

use crate::latency::{BUCKETS, histogram_ns};
use crate::recorder::Snapshot;

/// The age beyond which earlier counters say nothing of the present.
const STALE_AFTER: Duration = Duration::from_secs(5);

/// The latencies of a run's clients at a moment.
#[derive(Debug, Default)]
pub struct LiveLatency {
    wanted: AtomicBool,
    latest: Mutex<Option<Quantiles>>,
}

/// Quantiles of latencies, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantiles {
    /// The median.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
}

impl LiveLatency {
    /// Takes the latest latencies, and asks for the next ones, which are there within about a fifth of a second while a run goes on.
    pub fn take(&self) -> Option<Quantiles> {
        self.wanted.store(true, Ordering::Relaxed);
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, quantiles: Option<Quantiles>) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = quantiles;
    }
}

/// The counters that were read last for [`LiveLatency`].
#[derive(Default)]
pub(super) struct LatestCounters(Option<(Instant, Snapshot)>);

impl LatestCounters {
    /// Answers a request, if there is one: with the latencies since the counters were read last, or by reading them for the next time.
    pub(super) fn answer(&mut self, live: &LiveLatency, read: impl FnOnce() -> Snapshot) {
        if !live.wanted.swap(false, Ordering::Relaxed) {
            return;
        }
        let now = (Instant::now(), read());
        match self.0.take().filter(|(at, _)| now.0.duration_since(*at) < STALE_AFTER) {
            Some((_, before)) => live.put(quantiles(&now.1.since(&before))),
            None => live.wanted.store(true, Ordering::Relaxed),
        }
        self.0 = Some(now);
    }
}

/// Returns the quantiles of the transactions of all classes; `None` if there were none.
fn quantiles(counted: &Snapshot) -> Option<Quantiles> {
    let mut all = vec![0; BUCKETS];
    for class in &counted.latencies {
        all.iter_mut().zip(class).for_each(|(sum, count)| *sum += count);
    }
    let clock = Clock::real();
    let histogram = histogram_ns(&all, |ticks| clock.ns(Ticks(ticks)));
    let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
    (!histogram.is_empty()).then(|| Quantiles { p50_us: at(0.5), p99_us: at(0.99) })
}

#[cfg(test)]
mod tests {
    use atrapos_workloads::{ClassId, Outcome};

    use super::*;
    use crate::recorder::Recorder;

    #[test]
    fn counters_are_read_when_somebody_asks_and_answered_from_the_second_reading_on() {
        let (live, mut latest, recorder) =
            (LiveLatency::default(), LatestCounters::default(), Recorder::new(1));
        let read = || Snapshot::sum([&recorder], 1);
        latest.answer(&live, || panic!("nobody has asked"));
        assert_eq!(live.take(), None);
        recorder.record(ClassId(0), &Ok(Outcome::Succeeded), Ticks(1 << 30));
        latest.answer(&live, read);
        recorder.record(ClassId(0), &Ok(Outcome::Succeeded), Ticks(1_000));
        latest.answer(&live, read);
        latest.answer(&live, || panic!("it is answered"));
        let found = live.take().expect("one transaction since the first reading");
        let expected = Clock::real().ns(Ticks(1_000)) as f64 / 1e3;
        assert!((found.p99_us / expected - 1.0).abs() < 0.03, "{found:?} for {expected}");
        latest.answer(&live, read);
        assert_eq!(live.take(), None, "no transaction since");
    }
}
