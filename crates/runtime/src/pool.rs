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
//! - A shard is made, used and dropped on its own thread.
//! - A ring's memory is touched first by its receiver's thread, after pinning.
//! - A panic that reaches a worker's thread stops the process: half of a transaction's effects may be in the shard.

use std::any::Any;
use std::collections::HashSet;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::affinity;
use crate::clock::{Clock, Ticks};
use crate::handle::Handle;
use crate::park::SpinBudget;
use crate::ring::{Consumer, Producer, RING_BYTES_MAX, RING_BYTES_MIN, ring, ring_bytes_valid};
use crate::rng::Seed;
use crate::shared::{Host, Lanes, Phase, Shared, lock, worker_id};
use crate::stats::WorkerSnapshot;
use crate::worker::{Limits, Parts, Shard, Worker};
use crate::{WorkerId, current};

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
    /// Set if workers are to be pinned to the processing units in `cpus`.
    pub pin: bool,
    /// Bytes of each ring between two workers, a power of two.
    pub ring_bytes: usize,
    /// Closures that each worker's inbox holds, a power of two.
    pub inbox_slots: usize,
    /// Work that one step does at most.
    pub limits: Limits,
    /// Time that an idle worker spins at most before it sleeps.
    pub spin_max: Duration,
    /// Set if idle workers let other threads run instead of spinning: for a process that has busy threads beside its
    /// workers. With more workers than processing units they do so anyway.
    pub yield_when_idle: bool,
    /// Time that [`Runtime::drop`] waits for requests in flight.
    pub shutdown_deadline: Duration,
    /// Seed from which the workers' seeds derive.
    pub seed: Seed,
}

impl RuntimeBuilder {
    /// The default configuration for a number of workers: unpinned, rings of 64 KiB, inboxes of 256 slots.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self {
            workers,
            cpus: None,
            pin: true,
            ring_bytes: 64 << 10,
            inbox_slots: 256,
            limits: Limits::default(),
            spin_max: Duration::from_micros(50),
            yield_when_idle: false,
            shutdown_deadline: Duration::from_secs(10),
            seed: Seed::default(),
        }
    }

    /// Starts the workers. `factory` is run once on each worker's own thread (pinned already) and makes its shard.
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
        let oversubscribed = self.yield_when_idle || self.is_oversubscribed();
        let configuration = Arc::new(self);
        let mut threads = Vec::with_capacity(configuration.workers);
        for (index, lanes) in lanes.into_iter().enumerate() {
            let id = worker_id(index);
            let seat = Seat {
                id,
                lanes,
                shared: Arc::clone(&shared),
                start: Arc::clone(&start),
                configuration: Arc::clone(&configuration),
                oversubscribed,
            };
            let factory = Arc::clone(&factory);
            let spawned = thread::Builder::new()
                .name(format!("atrapos-{id}"))
                .spawn(move || stop_process_on_panic(id, move || seat.run(&*factory)));
            match spawned {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    start.abort();
                    for thread in threads {
                        // A thread that saw the abort has nothing to report.
                        let _ = thread.join();
                    }
                    return Err(StartError::Thread { worker: id, error });
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
        if !ring_bytes_valid(self.ring_bytes) {
            return Err(StartError::RingBytes { bytes: self.ring_bytes });
        }
        if !self.inbox_slots.is_power_of_two() || self.inbox_slots < 2 || self.inbox_slots > INBOX_SLOTS_MAX {
            return Err(StartError::InboxSlots { slots: self.inbox_slots });
        }
        Ok(())
    }

    /// Returns whether workers must share processing units, as seen from the calling thread. (A pinned worker would
    /// count one.)
    fn is_oversubscribed(&self) -> bool {
        let pinned: Option<HashSet<usize>> = self.cpus.iter().flatten().copied().collect();
        match pinned {
            Some(cpus) if self.pin && !cpus.is_empty() => self.workers > cpus.len(),
            _ => thread::available_parallelism().is_ok_and(|cpus| self.workers > cpus.get()),
        }
    }
}

/// Reasons for which a runtime did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// No worker, or an absurd number.
    #[error("cannot start {workers} workers: choose from 1 to {WORKERS_MAX}, about one per core")]
    Workers {
        /// The number that was asked for.
        workers: usize,
    },
    /// The list of processing units does not match the workers.
    #[error("{cpus} processing units are given for {workers} workers: give one entry per worker, or no list")]
    Cpus {
        /// Entries in the list.
        cpus: usize,
        /// Workers asked for.
        workers: usize,
    },
    /// An impossible size of the rings.
    #[error(
        "rings cannot have {bytes} bytes: choose a power of two from {RING_BYTES_MIN} to {RING_BYTES_MAX}"
    )]
    RingBytes {
        /// The size that was asked for.
        bytes: usize,
    },
    /// An impossible size of the inboxes.
    #[error("inboxes cannot have {slots} slots: choose a power of two from 2 to {INBOX_SLOTS_MAX}")]
    InboxSlots {
        /// The number that was asked for.
        slots: usize,
    },
    /// The operating system refused a thread.
    #[error(
        "the system refuses a thread for worker {worker} ({error}): start fewer workers or raise the limit on threads"
    )]
    Thread {
        /// The worker of the thread.
        worker: WorkerId,
        /// The error of the system.
        error: std::io::Error,
    },
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
            done.shards_leaked += usize::from(end.shard_leaked);
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
            thread::park_timeout(pause);
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

/// The end of a worker's thread, as it leaves it behind.
#[derive(Debug, Default)]
struct ThreadEnd {
    tasks_dropped: usize,
    shard_leaked: bool,
}

/// The barrier at which the threads of a runtime meet before any of them steps.
struct Start<S: Shard> {
    state: Mutex<StartState<S>>,
    changed: Condvar,
}

struct StartState<S: Shard> {
    /// By origin and destination; put there by the destination's thread, taken by the origin's.
    producers: Vec<Vec<Option<Producer<Host<S>>>>>,
    /// Threads that have put in all their producers.
    ready: usize,
    /// Threads that have made their shard.
    running: usize,
    aborted: bool,
    warnings: Vec<(WorkerId, String)>,
}

impl<S: Shard> Start<S> {
    fn new(workers: usize) -> Self {
        let producers = (0..workers).map(|_| (0..workers).map(|_| None).collect()).collect();
        let state = StartState { producers, ready: 0, running: 0, aborted: false, warnings: Vec::new() };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn abort(&self) {
        lock(&self.state).aborted = true;
        self.changed.notify_all();
    }

    /// Makes the rings to worker `to` on the calling thread and exchanges their producers for those from it. Returns
    /// nothing if the start was aborted.
    #[expect(
        clippy::type_complexity,
        reason = "the two lists of ring ends of one worker, taken apart at once"
    )]
    fn exchange_rings(
        &self,
        to: WorkerId,
        ring_bytes: usize,
    ) -> Option<(Vec<Producer<Host<S>>>, Vec<Consumer<Host<S>>>)> {
        let workers = lock(&self.state).producers.len();
        // Outside the lock: this touches memory.
        let (producers, consumers): (Vec<_>, Vec<_>) = (0..workers).map(|_| ring(ring_bytes)).unzip();
        let mut state = lock(&self.state);
        for (from, producer) in producers.into_iter().enumerate() {
            state.producers[from][to.index()] = Some(producer);
        }
        state.ready += 1;
        self.changed.notify_all();
        while state.ready < workers && !state.aborted {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.aborted {
            return None;
        }
        let outgoing = std::mem::take(&mut state.producers[to.index()]);
        let outgoing = outgoing.into_iter().map(|ring| ring.expect("every worker has put in its rings"));
        Some((outgoing.collect(), consumers))
    }

    fn report_running(&self) {
        lock(&self.state).running += 1;
        self.changed.notify_all();
    }

    fn warn(&self, worker: WorkerId, warning: String) {
        lock(&self.state).warnings.push((worker, warning));
    }

    /// Waits until all shards are made, and returns the warnings, in the order of the workers and each only once.
    fn wait_until_running(&self) -> Vec<String> {
        let mut state = lock(&self.state);
        let workers = state.producers.len();
        while state.running < workers {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.warnings.sort();
        std::mem::take(&mut state.warnings)
            .into_iter()
            .map(|(worker, warning)| format!("worker {worker} runs unpinned: {warning}"))
            .collect()
    }
}

/// Everything that one worker's thread starts with.
struct Seat<S: Shard> {
    id: WorkerId,
    lanes: Lanes<S>,
    shared: Arc<Shared<S>>,
    start: Arc<Start<S>>,
    configuration: Arc<RuntimeBuilder>,
    /// Set with more workers than processing units that this process may use.
    oversubscribed: bool,
}

impl<S: Shard> Seat<S> {
    /// The life of a worker's thread.
    fn run(self, factory: &impl Fn(WorkerId) -> S) -> ThreadEnd {
        let Self { id, lanes, shared, start, configuration, oversubscribed } = self;
        if let Some(cpu) = configuration.cpus.as_ref().and_then(|cpus| cpus[id.index()])
            && configuration.pin
            && let Err(error) = affinity::pin_current_thread(cpu)
        {
            start.warn(id, error.to_string());
        }
        shared.port(id).parker.adopt_current_thread();
        let Some((outgoing, incoming)) = start.exchange_rings(id, configuration.ring_bytes) else {
            return ThreadEnd::default();
        };
        let parts = Parts {
            id,
            shared,
            outgoing,
            incoming,
            lanes,
            limits: configuration.limits,
            seed: configuration.seed,
        };
        let worker = Worker::new(parts, factory(id));
        start.report_running();
        drop(start);
        pump(&worker, &configuration, oversubscribed);
        let tasks_dropped = worker.end();
        // The shard is dropped here, on its own thread.
        let shard_leaked = Rc::try_unwrap(worker).is_err();
        ThreadEnd { tasks_dropped, shard_leaked }
    }
}

/// Steps a worker until the runtime has stopped, and lets it sleep when there is nothing to do.
fn pump<S: Shard>(worker: &Rc<Worker<S>>, configuration: &RuntimeBuilder, oversubscribed: bool) {
    let clock = worker.clock().clone();
    let mut spin = SpinBudget::new(clock.ticks(configuration.spin_max), oversubscribed);
    let mut idle_since: Option<Ticks> = None;
    let mut now = clock.now();
    while worker.shared().phase() != Phase::Stopped {
        let found = worker.step(now).found;
        let after = clock.now();
        let took = after.since(now);
        now = after;
        if found {
            worker.stats().busy_ticks.add(took.0);
            idle_since = None;
            if worker.outgoing_backlog() > 0 {
                // A full ring empties only if its receiver runs, perhaps on this very core.
                thread::yield_now();
            }
            continue;
        }
        worker.stats().idle_ticks.add(took.0);
        let since = *idle_since.get_or_insert(now);
        if spin.allows(now.since(since)) {
            spin.pause();
            continue;
        }
        let slept = sleep(worker, &clock, now);
        if let Some(slept) = slept {
            spin.learn(slept);
            worker.stats().idle_ticks.add(slept.0);
            now = now.after(slept);
        }
        idle_since = None;
    }
}

/// Parks until something arrives or the next deadline has come. Returns how long, if it slept.
fn sleep<S: Shard>(worker: &Rc<Worker<S>>, clock: &Clock, now: Ticks) -> Option<Ticks> {
    let deadline = worker.next_deadline();
    if deadline <= now {
        return None;
    }
    let timeout = (deadline != Ticks::MAX).then(|| Duration::from_nanos(clock.ns(deadline.since(now))));
    worker.stats().parks.add(1);
    let parker = &worker.shared().port(worker.id()).parker;
    parker.park(|| worker.has_arrivals(), timeout).then(|| clock.now().since(now))
}

/// Runs a worker's thread; a panic that reaches it stops the process after one sentence.
fn stop_process_on_panic<T>(worker: WorkerId, run: impl FnOnce() -> T) -> T {
    // Asserted: nothing of the thread's state is looked at after a panic.
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(end) => end,
        Err(panic) => {
            let message = panic_message(&*panic);
            let mut stderr = std::io::stderr().lock();
            // Nobody is left to tell if standard error is gone.
            let _ = writeln!(
                stderr,
                "atrapos: worker {worker} panicked outside any transaction, which is a bug of the engine; \
                 the process stops: {message}"
            );
            std::process::abort();
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn pinned_workers_share_only_what_they_are_pinned_to() {
        let with = |cpus: Vec<Option<usize>>, pin: bool| {
            let builder = RuntimeBuilder { cpus: Some(cpus), pin, ..RuntimeBuilder::new(3) };
            builder.is_oversubscribed()
        };
        assert!(!with(vec![Some(0), Some(1), Some(2)], true), "one each, however many this thread may use");
        assert!(with(vec![Some(0), Some(1), Some(0)], true), "two on one");
        let cpus = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        for unpinned in
            [with(vec![Some(0), Some(1), Some(0)], false), with(vec![Some(0), Some(1), None], true)]
        {
            assert_eq!(unpinned, cpus < 3, "workers that may run anywhere share what there is");
        }
    }

    #[test]
    fn panics_are_told_whatever_they_carry() {
        assert_eq!(panic_message(&"a sentence"), "a sentence");
        assert_eq!(panic_message(&String::from("a longer sentence")), "a longer sentence");
        assert_eq!(panic_message(&7), "a panic without a message");
    }
}
