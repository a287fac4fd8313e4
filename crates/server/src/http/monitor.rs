//! The past that a server remembers of itself for those who look at it.
//!
//! Owns: a sample of the counters for each of the last ten minutes' seconds, and the latest two looks at the workers. Never: asks a worker while
//! nobody looks.
//!
//! Invariant: however many look, the workers are asked as seldom as [`atrapos_watch::look`] says.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use atrapos::Statistics;
use atrapos::activity::Activity;
use atrapos_watch::look::{BETWEEN_LOOKS, Due, Look, Looks};
use serde::Serialize;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::MissedTickBehavior;

use crate::latency::Counted;
use crate::server::Shared;

/// The time between two samples.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// The samples that are kept.
const SAMPLES: usize = 600;

/// See the heading.
#[derive(Debug)]
pub(crate) struct Monitor {
    pub(super) began: Instant,
    history: Mutex<History>,
    looks: AsyncMutex<Looks>,
}

/// The events of a second. Rates are per second.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Sample {
    /// Its number; the first one since the start has number 1.
    pub(super) number: u64,
    /// Milliseconds since the start of the server.
    at_ms: u64,
    committed: f64,
    aborted: f64,
    retried: f64,
    requests: f64,
    /// Microseconds within which half of the requests, and all but a hundredth of them, were answered.
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    local_actions: f64,
    remote_actions: f64,
    locks_entered: f64,
    lock_waits: f64,
    /// Now.
    lag_ms: Option<f64>,
    sessions: usize,
}

#[derive(Debug, Default)]
struct History {
    samples: VecDeque<Sample>,
    taken: u64,
}

/// The counters from which samples follow.
struct Reading {
    at: Instant,
    engine: Statistics,
    latencies: Counted,
}

impl Monitor {
    pub(crate) fn new() -> Monitor {
        Monitor { began: Instant::now(), history: Mutex::default(), looks: AsyncMutex::default() }
    }

    fn history(&self) -> MutexGuard<'_, History> {
        // It is whole before and after each change.
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the samples after the one with this number.
    pub(super) fn samples_after(&self, number: u64) -> Vec<Sample> {
        self.history().samples.iter().filter(|sample| sample.number > number).cloned().collect()
    }

    /// Returns a look that is not old, made now if there is none. Fails if the database is shutting down.
    pub(super) async fn look(&self, shared: &Arc<Shared>) -> Result<Look, atrapos::Abort> {
        // Whoever comes while a look is made waits for it, and takes it, too.
        let mut looks = self.looks.lock().await;
        let earlier = match looks.due(Instant::now()) {
            Due::Nothing(look) => return Ok(look),
            Due::One(earlier) => earlier,
            Due::Two => {
                let first = activity(shared).await?;
                tokio::time::sleep(BETWEEN_LOOKS).await;
                first
            }
        };
        let activity = activity(shared).await?;
        Ok(looks.made(Instant::now(), earlier, activity))
    }
}

/// Asks the workers, on a thread that may wait for them.
async fn activity(shared: &Arc<Shared>) -> Result<Arc<Activity>, atrapos::Abort> {
    let database = Arc::clone(&shared.database);
    let asked = tokio::task::spawn_blocking(move || database.database().activity());
    asked.await.unwrap_or_else(|_| Err(atrapos::Abort::shutting_down())).map(Arc::new)
}

/// Takes a sample each second until the runtime ends.
pub(super) async fn keep_history(shared: Arc<Shared>) {
    let mut second = tokio::time::interval(SAMPLE_EVERY);
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    second.tick().await;
    let mut before = Reading::now(&shared);
    loop {
        second.tick().await;
        let now = Reading::now(&shared);
        let mut sample = now.since(&before, &shared);
        let mut history = shared.monitor.history();
        history.taken += 1;
        sample.number = history.taken;
        if history.samples.len() == SAMPLES {
            history.samples.pop_front();
        }
        history.samples.push_back(sample);
        before = now;
    }
}

impl Reading {
    fn now(shared: &Shared) -> Reading {
        Reading {
            at: Instant::now(),
            engine: shared.database.database().statistics(),
            latencies: shared.latencies.read(),
        }
    }

    fn since(&self, before: &Reading, shared: &Shared) -> Sample {
        let seconds = self.at.duration_since(before.at).as_secs_f64().max(1e-3);
        let rate = |count: u64| count as f64 / seconds;
        let engine = self.engine.since(&before.engine);
        let latencies = self.latencies.since(&before.latencies);
        let lag = shared.database.database().wal_statistics().map(|wal| wal.lag);
        Sample {
            number: 0,
            at_ms: self.at.duration_since(shared.monitor.began).as_millis() as u64,
            committed: rate(engine.committed),
            aborted: rate(engine.aborted_total()),
            retried: rate(engine.retried),
            requests: rate(latencies.count()),
            p50_us: latencies.quantile_us(0.5),
            p99_us: latencies.quantile_us(0.99),
            local_actions: rate(engine.local_actions),
            remote_actions: rate(engine.remote_actions),
            locks_entered: rate(engine.locks_entered),
            lock_waits: rate(engine.lock_waits),
            lag_ms: lag.map(|lag| lag.as_secs_f64() * 1e3),
            sessions: shared.admission.sessions(),
        }
    }
}
