//! The loop of a store's clients, and the phases of a measurement: what the harness does for `atrapos`.
//!
//! Owns: client threads, their counts and latencies. Never: chooses a request, or audits.
//!
//! Invariant: when [`run`] returns, every client has ended, and every transaction it began has an outcome in the result.

use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use atrapos_harness::latency::{BUCKETS, bucket_of, histogram_ns};
use atrapos_runtime::{Clock, Ticks};
use atrapos_workloads::{ClassTally, Outcome};

use crate::peer::{Client, Peer, PeerError};
use crate::requests::{Requests, Work};

/// Settings of one measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Client threads.
    pub threads: usize,
    /// Time for which clients run before they are measured.
    pub warmup: Duration,
    /// Length of the measured interval.
    pub measured: Duration,
    /// Tells this round from others on the same store: its clients draw other numbers.
    pub run: u64,
}

/// Result of one measurement.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Completed transactions per second.
    pub tps: f64,
    /// The median latency, in microseconds.
    pub p50_us: f64,
    /// The latency that one transaction in a hundred exceeds, in microseconds.
    pub p99_us: f64,
    /// Outcomes of all transactions by class, warm-up and end included.
    pub tallies: Vec<ClassTally>,
}

const WARMING_UP: u8 = 0;
const MEASURING: u8 = 1;
const STOPPED: u8 = 2;

/// Interval at which the run looks whether a client has failed.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Counts of one client.
struct Counts {
    tallies: Vec<ClassTally>,
    /// Completed transactions of the measured interval by latency.
    latencies: Vec<u64>,
}

/// Runs a workload on a loaded store.
///
/// # Errors
/// Fails if any client fails.
pub fn run(peer: &dyn Peer, work: &Work, round: &Round) -> Result<Measured, PeerError> {
    let phase = AtomicU8::new(WARMING_UP);
    let (elapsed, ends) = std::thread::scope(|scope| {
        let client = |client: usize| {
            let requests = work.requests((round.run << 32) + client as u64 + 1);
            let phase = &phase;
            scope.spawn(move || run_client(peer, requests, phase))
        };
        let clients: Vec<_> = (0..round.threads).map(client).collect();
        let failed = || clients.iter().any(ScopedJoinHandle::is_finished);
        wait(round.warmup, &failed);
        let began = Instant::now();
        phase.store(MEASURING, Ordering::Relaxed);
        wait(round.measured, &failed);
        phase.store(STOPPED, Ordering::Relaxed);
        let elapsed = began.elapsed();
        (elapsed, clients.into_iter().map(ScopedJoinHandle::join).collect::<Vec<_>>())
    });
    let mut sum = Counts { tallies: Vec::new(), latencies: vec![0; BUCKETS] };
    for end in ends {
        let counts = end.unwrap_or_else(|_| Err(PeerError::failed("a client panicked")))?;
        sum.add(&counts);
    }
    Ok(sum.measured(elapsed))
}

/// Sleeps for a time, or until a client has failed.
fn wait(time: Duration, failed: &dyn Fn() -> bool) {
    let end = Instant::now() + time;
    while let Some(rest) = end.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero())
        && !failed()
    {
        std::thread::sleep(rest.min(LOOK_EVERY));
    }
}

fn run_client(peer: &dyn Peer, mut requests: Requests, phase: &AtomicU8) -> Result<Counts, PeerError> {
    let clock = Clock::real();
    let mut counts = Counts { tallies: Vec::new(), latencies: vec![0; BUCKETS] };
    peer.with_client(&mut |client: &mut dyn Client| {
        let mut began = clock.now();
        // One transaction at least, so that a short round on a busy machine has a result.
        loop {
            let (class, outcome) = requests.run_next(client, || clock.ns(began))?;
            let now = clock.now();
            counts.record(class.index(), outcome);
            let phase = phase.load(Ordering::Relaxed);
            if phase == MEASURING {
                counts.latencies[bucket_of(now.since(began).0)] += 1;
            } else if phase == STOPPED {
                return Ok(());
            }
            began = now;
        }
    })?;
    Ok(counts)
}

impl Counts {
    fn record(&mut self, class: usize, outcome: Outcome) {
        if self.tallies.len() <= class {
            self.tallies.resize(class + 1, ClassTally::default());
        }
        let tally = &mut self.tallies[class];
        match outcome {
            Outcome::Succeeded => tally.committed += 1,
            Outcome::Moved(by) => {
                tally.committed += 1;
                tally.moved = tally.moved.wrapping_add(by);
            }
            Outcome::ExpectedFailure => tally.expected_failures += 1,
        }
    }

    fn add(&mut self, other: &Counts) {
        if self.tallies.len() < other.tallies.len() {
            self.tallies.resize(other.tallies.len(), ClassTally::default());
        }
        for (sum, tally) in self.tallies.iter_mut().zip(&other.tallies) {
            *sum = sum.zip(tally, u64::wrapping_add);
        }
        self.latencies.iter_mut().zip(&other.latencies).for_each(|(sum, count)| *sum += count);
    }

    fn measured(self, elapsed: Duration) -> Measured {
        let clock = Clock::real();
        let completed: u64 = self.latencies.iter().sum();
        let latency = histogram_ns(&self.latencies, |ticks| clock.ns(Ticks(ticks)));
        Measured {
            tps: completed as f64 / elapsed.as_secs_f64().max(f64::MIN_POSITIVE),
            p50_us: latency.value_at_quantile(0.5) as f64 / 1e3,
            p99_us: latency.value_at_quantile(0.99) as f64 / 1e3,
            tallies: self.tallies,
        }
    }
}
