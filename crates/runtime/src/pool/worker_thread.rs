//! The life of a worker's thread: it is pinned, makes its shard, steps its worker, sleeps while there is nothing to do, and
//! stops the process when a panic reaches it.

use std::any::Any;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::RuntimeBuilder;
use super::start::Start;
use crate::WorkerId;
use crate::affinity;
use crate::clock::{Clock, Ticks};
use crate::park::SpinBudget;
use crate::shared::{Lanes, Phase, Shared};
use crate::worker::{Parts, Shard, Worker};

/// The end of a worker's thread, as it leaves it behind.
#[derive(Debug, Default)]
pub(super) struct ThreadEnd {
    pub(super) tasks_dropped: usize,
    pub(super) shard_leaked: bool,
}

/// Everything that one worker's thread starts with.
pub(super) struct Seat<S: Shard> {
    pub(super) id: WorkerId,
    pub(super) lanes: Lanes<S>,
    pub(super) shared: Arc<Shared<S>>,
    pub(super) start: Arc<Start<S>>,
    pub(super) configuration: Arc<RuntimeBuilder>,
    /// Set with more workers than processing units that this process may use.
    pub(super) oversubscribed: bool,
}

impl<S: Shard> Seat<S> {
    /// The life of a worker's thread.
    pub(super) fn run(self, factory: &impl Fn(WorkerId) -> S) -> ThreadEnd {
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
pub(super) fn stop_process_on_panic<T>(worker: WorkerId, run: impl FnOnce() -> T) -> T {
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

pub(super) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}
