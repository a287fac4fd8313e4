//! The threads that pump workers: starting them, pinning them, letting them sleep, and ending them in order.
//!
//! Owns: the threads. Never: prints, except for the one sentence before it stops a process whose engine panicked.
//! No unsafe code.
//!
//! # Shutdown
//! Phase 1 stops admission: inboxes and control lanes refuse. Phase 2 drains: everything in flight completes, which is found out by
//! counting ([`Shared::activity`]). Phase 3 ends the workers. If phase 2 takes longer than its deadline, phase 3 drops the
//! tasks that are left, and whoever waits for them outside gets [`Lost`](crate::Lost).
//!
//! # Invariants
//! - A worker is pumped by one thread for its whole life, which may pump others in turn (`division.rs`, `turns.rs`); a shard is
//!   made, used and dropped on that thread.
//! - A ring's memory is touched first by its receiver's thread, after pinning.
//! - A panic that reaches a worker's thread stops the process: half of a transaction's effects may be in the shard.

use std::num::NonZero;
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle, available_parallelism, park_timeout};
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::handle::Handle;
use crate::host::ThreadHost;
use crate::ring::ring_bytes_valid;
use crate::rng::Seed;
use crate::shared::{Lanes, Phase, Shared, lock};
use crate::stats::WorkerSnapshot;
use crate::worker::{Limits, Shard};
use crate::{WorkerId, current};

mod division;
mod error;
pub(crate) mod hosted;
mod start;
mod turns;
mod worker_thread;

use division::Division;
pub use error::StartError;
use start::Start;
use worker_thread::{Seat, ThreadEnd, stop_process_on_panic};

/// Greatest number of workers; more are taken for a mistake: the rings between all pairs would fill the memory.
const WORKERS_MAX: usize = 1024;
/// Greatest number of slots; more are taken for a mistake: an inbox is where clients wait, not where requests are kept.
const INBOX_SLOTS_MAX: usize = 1 << 20;

/// Settings with which a runtime is started. Make one with [`RuntimeBuilder::new`] and change what differs.
#[derive(Debug, Clone)]
pub struct RuntimeBuilder {
    /// Number of workers, from 1 to 1024.
    pub workers: usize,
    /// The processing unit of each worker, by the operating system's number; `None` for a worker that may run anywhere,
    /// and `None` for the list if all may.
    pub cpus: Option<Vec<Option<usize>>>,
    /// Set if workers are to be pinned to the processing units in `cpus`. Those pinned to the same one share a thread.
    pub pin: bool,
    /// Number of spare workers, the last ones, which have next to nothing to run until they are given a processing unit: each has a
    /// thread of its own, is pinned nowhere, and does not count as one more than there are processing units.
    pub spare: usize,
    /// Threads among which the other workers that are not pinned are divided, at least one; `None` for one per worker, but no more than
    /// the processing units that the calling thread may use.
    pub threads: Option<usize>,
    /// Bytes of each ring between two workers, a power of two.
    pub ring_bytes: usize,
    /// Closures that each worker's inbox holds, a power of two.
    pub inbox_slots: usize,
    /// Work that one step does at most.
    pub limits: Limits,
    /// Time that an idle worker spins at most before it sleeps.
    pub spin_max: Duration,
    /// Set if idle workers let other threads run instead of spinning: for a process that has busy threads beside its
    /// workers. With more threads of workers than processing units they do so anyway.
    pub yield_when_idle: bool,
    /// Time that [`Runtime::drop`] waits for requests in flight.
    pub shutdown_deadline: Duration,
    /// Seed from which the workers' seeds derive.
    pub seed: Seed,
    /// The host of the workers' threads, if they share them with its tasks. Idle workers do not spin then: they return to it.
    pub host: Option<Arc<dyn ThreadHost>>,
}

/// Bytes of all rings to one worker together, unless there are so many that they would be too small.
const RINGS_BYTES: usize = 256 << 10;
/// The least and the greatest size of a ring that is not set.
const RING_BYTES: std::ops::RangeInclusive<usize> = 4 << 10..=64 << 10;

/// Returns the bytes of each ring among so many workers: there is one for each ordered pair, so their memory grows with the square
/// of their number.
fn ring_bytes_of(workers: usize) -> usize {
    let share = RINGS_BYTES / workers.max(1);
    let power = share.checked_ilog2().map_or(0, |bits| 1 << bits);
    power.clamp(*RING_BYTES.start(), *RING_BYTES.end())
}

impl RuntimeBuilder {
    /// The default configuration for a number of workers: unpinned, rings of 64 KiB or less where there are many, inboxes of
    /// 256 slots.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self {
            workers,
            cpus: None,
            spare: 0,
            pin: true,
            threads: None,
            ring_bytes: ring_bytes_of(workers),
            inbox_slots: 256,
            limits: Limits::default(),
            spin_max: Duration::from_micros(50),
            yield_when_idle: false,
            shutdown_deadline: Duration::from_secs(10),
            seed: Seed::default(),
            host: None,
        }
    }

    /// Starts the workers. `factory` is run once for each worker on its thread (pinned already) and makes its shard.
    ///
    /// A worker that cannot be pinned runs unpinned; [`Runtime::warnings`] says so.
    ///
    /// # Errors
    /// [`StartError`] when the configuration contradicts itself or the system refuses a thread; nothing runs then.
    pub fn start<S, F>(self, factory: F) -> Result<Runtime<S>, StartError>
    where
        S: Shard,
        F: Fn(WorkerId) -> S + Send + Sync + 'static,
    {
        self.validate()?;
        let (shared, lanes) = Shared::new(self.workers, self.inbox_slots, Clock::real());
        let start = Arc::new(Start::new(self.workers));
        let factory = Arc::new(factory);
        // Asked here, before any thread is pinned: a pinned thread is told of one processing unit only.
        let division = Division::new(&self, available_parallelism().map_or(usize::MAX, NonZero::get));
        let yields = self.yield_when_idle || division.oversubscribed;
        let configuration = Arc::new(self);
        let mut lanes: Vec<Option<Lanes<S>>> = lanes.into_iter().map(Some).collect();
        let mut threads = Vec::with_capacity(division.threads.len());
        for workers in division.threads {
            let first = workers[0];
            let with_lanes =
                |id: WorkerId| (id, lanes[id.index()].take().expect("every worker has one thread"));
            let seat = Seat {
                workers: workers.into_iter().map(with_lanes).collect(),
                shared: Arc::clone(&shared),
                start: Arc::clone(&start),
                configuration: Arc::clone(&configuration),
                yields,
            };
            let factory = Arc::clone(&factory);
            let spawned = Builder::new()
                .name(format!("atrapos-{first}"))
                .spawn(move || stop_process_on_panic(first, move |current| seat.run(current, &*factory)));
            match spawned {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    start.abort();
                    for thread in threads {
                        // A thread that saw the abort has nothing to report.
                        let _ = thread.join();
                    }
                    return Err(StartError::Thread { worker: first, error });
                }
            }
        }
        let warnings = start.wait_until_running();
        Ok(Runtime {
            handle: Handle::new(Arc::clone(&shared)),
            shared,
            threads: Mutex::new(threads),
            report: Mutex::new(None),
            warnings,
            shutdown_deadline: configuration.shutdown_deadline,
        })
    }

    pub(crate) fn validate(&self) -> Result<(), StartError> {
        if self.workers == 0 || self.workers > WORKERS_MAX {
            return Err(StartError::Workers { workers: self.workers });
        }
        if let Some(cpus) = &self.cpus
            && cpus.len() != self.workers
        {
            return Err(StartError::Cpus { cpus: cpus.len(), workers: self.workers });
        }
        if self.threads == Some(0) {
            return Err(StartError::Threads);
        }
        if !ring_bytes_valid(self.ring_bytes) {
            return Err(StartError::RingBytes { bytes: self.ring_bytes });
        }
        if !self.inbox_slots.is_power_of_two() || self.inbox_slots < 2 || self.inbox_slots > INBOX_SLOTS_MAX {
            return Err(StartError::InboxSlots { slots: self.inbox_slots });
        }
        Ok(())
    }
}

/// Outcome of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Set if everything in flight completed before the deadline.
    pub drained: bool,
    /// Tasks that were dropped unfinished.
    pub tasks_dropped: usize,
    /// Shards that could not be dropped because something still holds their worker (a bug of the layer above).
    pub shards_leaked: usize,
}

/// Running workers. Dropping it shuts them down.
pub struct Runtime<S: Shard> {
    handle: Handle<S>,
    shared: Arc<Shared<S>>,
    threads: Mutex<Vec<JoinHandle<ThreadEnd>>>,
    report: Mutex<Option<ShutdownReport>>,
    warnings: Vec<String>,
    shutdown_deadline: Duration,
}

impl<S: Shard> Runtime<S> {
    /// The way in for other threads.
    #[must_use]
    pub fn handle(&self) -> Handle<S> {
        self.handle.clone()
    }

    /// The number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.shared.workers()
    }

    /// Settings that could not be honoured but did not stop the start: one sentence each.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The counters of all workers, each as of about now.
    #[must_use]
    pub fn stats(&self) -> Vec<WorkerSnapshot> {
        self.handle.stats()
    }

    /// Stops admission, completes what is in flight, and ends the workers; what is not complete after `deadline` is
    /// dropped. Returns when all threads have ended. Later calls return the first one's report.
    ///
    /// # Panics
    /// If called on a worker of this runtime, which cannot wait for its own end; there, use [`Handle::begin_shutdown`].
    pub fn shutdown(&self, deadline: Duration) -> ShutdownReport {
        assert!(
            !current::is_worker_of(self.shared.runtime),
            "a worker cannot shut down its own runtime and wait for it: call `begin_shutdown`"
        );
        let mut report = lock(&self.report);
        if let Some(report) = *report {
            return report;
        }
        self.shared.advance(Phase::Draining);
        let drained = self.wait_until_quiet(deadline);
        self.shared.advance(Phase::Stopped);
        let mut done = ShutdownReport { drained, tasks_dropped: 0, shards_leaked: 0 };
        for thread in lock(&self.threads).drain(..) {
            let end = thread.join().expect("a panic on a worker's thread has stopped the process");
            done.tasks_dropped += end.tasks_dropped;
            done.shards_leaked += end.shards_leaked;
        }
        *report = Some(done);
        done
    }

    fn wait_until_quiet(&self, deadline: Duration) -> bool {
        let started = Instant::now();
        let mut before = None;
        let mut pause = Duration::from_micros(20);
        loop {
            let activity = self.shared.activity();
            if activity.is_none() && before == Some(activity) {
                return true;
            }
            if started.elapsed() >= deadline {
                return false;
            }
            before = Some(activity);
            park_timeout(pause);
            pause = (pause * 2).min(Duration::from_millis(2));
        }
    }
}

impl<S: Shard> Drop for Runtime<S> {
    fn drop(&mut self) {
        if current::is_worker_of(self.shared.runtime) {
            // The last owner is a task of this runtime: end it without waiting for ourselves.
            self.shared.advance(Phase::Stopped);
            return;
        }
        self.shutdown(self.shutdown_deadline);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
