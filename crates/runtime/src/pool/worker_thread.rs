//! The life of a thread of workers: it is pinned, makes their shards, steps them, sleeps while there is nothing to do, and stops
//! the process when a panic reaches it.
//!
//! Owns: the loop of a thread with one worker; that of a thread with several is in `turns.rs`.

use std::any::Any;
use std::cell::Cell;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::RuntimeBuilder;
use super::hosted::pump_hosted;
use super::start::{RingEnds, Start};
use super::turns::pump_in_turn;
use crate::WorkerId;
use crate::affinity;
use crate::clock::{Clock, Ticks};
use crate::park::SpinBudget;
use crate::shared::{Lanes, Phase, Shared};
use crate::worker::{Parts, Shard, Worker};

/// The end of a thread of workers, as it leaves it behind.
#[derive(Debug, Default)]
pub(super) struct ThreadEnd {
    pub(super) tasks_dropped: usize,
    pub(super) shards_leaked: usize,
}

/// Everything that a thread of workers starts with.
pub(super) struct Seat<S: Shard> {
    /// The workers, at least one, in the order of their turns.
    pub(super) workers: Vec<(WorkerId, Lanes<S>)>,
    pub(super) shared: Arc<Shared<S>>,
    pub(super) start: Arc<Start<S>>,
    pub(super) configuration: Arc<RuntimeBuilder>,
    /// Set if idle workers let other threads run.
    pub(super) yields: bool,
}

impl<S: Shard> Seat<S> {
    /// The life of a thread of workers. A panic that leaves it is about the worker that `current` names then.
    pub(super) fn run(self, current: &Rc<Cell<WorkerId>>, factory: &impl Fn(WorkerId) -> S) -> ThreadEnd {
        let (configuration, yields) = (Arc::clone(&self.configuration), self.yields);
        self.pin();
        let Some(workers) = self.make_workers(current, factory) else {
            return ThreadEnd::default();
        };
        if !configuration.host.as_ref().is_some_and(|host| pump_hosted(&workers, current, host)) {
            for worker in &workers {
                worker.shared().port(worker.id()).parker.adopt_current_thread();
            }
            match &*workers {
                [worker] => pump(worker, &configuration, yields),
                several => pump_in_turn(several, current, &configuration, yields),
            }
        }
        let end_one = |worker: &Rc<Worker<S>>| {
            current.set(worker.id());
            worker.end()
        };
        let tasks_dropped = workers.iter().map(end_one).sum();
        // The shards are dropped here, on their own thread.
        let drop_one = |worker: Rc<Worker<S>>| {
            current.set(worker.id());
            usize::from(Rc::try_unwrap(worker).is_err())
        };
        ThreadEnd { tasks_dropped, shards_leaked: workers.into_iter().map(drop_one).sum() }
    }

    /// Pins the thread to the processing unit of its workers, if they have one: they all have the same.
    fn pin(&self) {
        let (first, _) = self.workers[0];
        if let Some(cpu) = self.configuration.cpus.as_ref().and_then(|cpus| cpus[first.index()])
            && self.configuration.pin
            && let Err(error) = affinity::pin_current_thread(cpu)
        {
            for (id, _) in &self.workers {
                self.start.warn(*id, error.to_string());
            }
        }
    }

    /// Makes the workers of the thread, unless the start was aborted.
    fn make_workers(
        self,
        current: &Cell<WorkerId>,
        factory: &impl Fn(WorkerId) -> S,
    ) -> Option<Vec<Rc<Worker<S>>>> {
        let Self { workers, shared, start, configuration, .. } = self;
        let ids: Vec<WorkerId> = workers.iter().map(|(id, _)| *id).collect();
        let rings = start.exchange_rings(&ids, configuration.ring_bytes)?;
        let made = workers.into_iter().zip(rings).map(|((id, lanes), RingEnds { outgoing, incoming })| {
            current.set(id);
            let shared = Arc::clone(&shared);
            let (limits, seed) = (configuration.limits, configuration.seed);
            Worker::new(Parts { id, shared, outgoing, incoming, lanes, limits, seed }, factory(id))
        });
        let made: Vec<_> = made.collect();
        start.report_running(made.len());
        Some(made)
    }
}

/// Steps a worker until the runtime has stopped, and lets it sleep when there is nothing to do.
fn pump<S: Shard>(worker: &Rc<Worker<S>>, configuration: &RuntimeBuilder, yields: bool) {
    let clock = worker.clock().clone();
    let mut spin = SpinBudget::new(clock.ticks(configuration.spin_max), yields);
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

/// Runs a thread of workers, beginning with `first`; a panic that reaches it stops the process after one sentence about the worker
/// that was current.
pub(super) fn stop_process_on_panic<T>(first: WorkerId, run: impl FnOnce(&Rc<Cell<WorkerId>>) -> T) -> T {
    let current = Rc::new(Cell::new(first));
    // Asserted: nothing of the thread's state is looked at after a panic but the number of the worker.
    match catch_unwind(AssertUnwindSafe(|| run(&current))) {
        Ok(end) => end,
        Err(panic) => {
            let worker = current.get();
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

pub(super) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}
