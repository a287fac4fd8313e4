//! The worker: a state machine that hosts one shard, and whose `step` is all that a thread or a pump ever calls.
//!
//! Owns: its shard, its tasks, open calls and timers, its ends of the rings to and from all workers, its inbox, its control
//! lane, and the local queues behind full rings. Never: blocks, reads the time (a step is told it), or shares anything of the above.
//! No unsafe code.
//!
//! # Invariants
//! - Messages from one worker to another arrive in the order they were sent, spilled or not.
//! - While anything is spilled, no client's request is admitted; so the local queues are bounded by what is in flight.
//! - The control lane is drained in every step, whatever is spilled or in flight.
//! - Counters that tell how far a worker is are shown in the order that [`Shared::activity`] relies on: what is
//!   unfinished and what was sent before what was received, and what was sent before it is published.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use crate::WorkerId;
use crate::call::{self, Call, Calls, Reply};
use crate::clock::{Clock, Ticks};
use crate::current::Bearer;
use crate::handle::Handle;
use crate::incoming::Incoming;
use crate::outgoing::{Backlog, Outgoing};
use crate::ring::Producer;
use crate::rng::Seed;
use crate::shared::{Host, Lanes, RuntimeId, Shared};
use crate::stats::WorkerStats;
use crate::task::{TaskId, Tasks, YieldNow};
use crate::timer::{Sleep, Timers};
use crate::waker::TaskWaker;

mod shard;
mod step;

pub use shard::{Limits, Shard};

/// The part of a worker that does not depend on its shard's type, shared with the futures that wait on the worker.
pub(crate) struct Core {
    pub(crate) tasks: Tasks,
    pub(crate) calls: Calls,
    pub(crate) timers: Timers,
    /// The time of the current step.
    pub(crate) step_time: Cell<Ticks>,
    /// The time of the latest step that has run anything.
    pub(crate) quiet_since: Cell<Ticks>,
    pub(crate) stopping: Cell<bool>,
    /// Unfinished tasks that do not count against [`Limits::tasks_in_flight`].
    control_tasks: Cell<usize>,
}

/// One unfinished control task: counted while this exists.
struct ControlTask(Rc<Core>);

impl ControlTask {
    fn begin(core: &Rc<Core>) -> Self {
        core.control_tasks.set(core.control_tasks.get() + 1);
        Self(Rc::clone(core))
    }
}

impl Drop for ControlTask {
    fn drop(&mut self) {
        self.0.control_tasks.set(self.0.control_tasks.get() - 1);
    }
}

/// One worker. It lives on its thread and is reached there through `Rc`; nothing of it is `Send`.
///
/// Tasks and message handlers get it as `&Rc<Worker<S>>`. A shard must not keep such an `Rc`, or neither is ever freed.
///
/// ```compile_fail,E0277
/// struct Nothing;
/// impl atrapos_runtime::Shard for Nothing {}
/// fn leaves_its_thread<T: Send>() {}
/// leaves_its_thread::<std::rc::Rc<atrapos_runtime::Worker<Nothing>>>();
/// ```
///
/// Two workers, one asking the other:
/// ```
/// use std::rc::Rc;
/// use atrapos_runtime::{RuntimeBuilder, Shard, WorkerId};
///
/// struct Greeter(&'static str);
/// impl Shard for Greeter {}
///
/// let names = ["Bernstein", "Gray"];
/// let runtime = RuntimeBuilder::new(2).start(move |worker| Greeter(names[worker.index()]))?;
/// let answer = runtime.handle().request(WorkerId(0), |here, sender| {
///     let here = Rc::clone(here);
///     Rc::clone(&here).spawn(async move {
///         let name = here.call(WorkerId(1), |there, reply| reply.send(there, there.shard().0));
///         sender.send(name.await);
///     });
/// })?;
/// assert_eq!(answer.wait(), Ok(Ok("Gray")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Worker<S: Shard> {
    core: Rc<Core>,
    outgoing: Box<[Outgoing<Host<S>>]>,
    backlog: Backlog,
    /// Messages sent so far; shown in `stats` once per publication.
    sent: Cell<u64>,
    /// The destinations with unpublished messages; the first `dirty_len` entries count.
    dirty: Box<[Cell<WorkerId>]>,
    dirty_len: Cell<usize>,
    id: WorkerId,
    runtime: RuntimeId,
    limits: Cell<Limits>,
    /// The time for which one step polls tasks.
    polling: Ticks,
    /// The number of polls between two looks at the clock, by the length of the latest ones.
    untimed: Cell<usize>,
    /// Set if steps publish what they sent. The pump delays it to try other orders of events.
    publishing: Cell<bool>,
    received: Cell<u64>,
    incoming: Incoming<Host<S>>,
    lanes: Lanes<S>,
    stats: Arc<WorkerStats>,
    shared: Arc<Shared<S>>,
    /// The number of workers that this one's thread pumps.
    of_thread: Cell<usize>,
    seed: Seed,
    shard: S,
}

/// The parts of a worker besides its shard.
pub(crate) struct Parts<S: Shard> {
    pub(crate) id: WorkerId,
    pub(crate) shared: Arc<Shared<S>>,
    /// One per worker, by destination.
    pub(crate) outgoing: Vec<Producer<Host<S>>>,
    pub(crate) incoming: Incoming<Host<S>>,
    pub(crate) lanes: Lanes<S>,
    pub(crate) limits: Limits,
    pub(crate) seed: Seed,
}

impl<S: Shard> Worker<S> {
    pub(crate) fn new(parts: Parts<S>, shard: S) -> Rc<Self> {
        let Parts { id, shared, outgoing, incoming, lanes, limits, seed } = parts;
        let workers = shared.workers();
        assert!(
            outgoing.len() == workers && incoming.len() == workers,
            "a worker has one ring to and from each worker"
        );
        Rc::new(Self {
            core: Rc::new(Core {
                tasks: Tasks::new(shared.runtime, id),
                calls: Calls::new(),
                timers: Timers::new(),
                step_time: Cell::new(shared.clock.now()),
                quiet_since: Cell::new(shared.clock.now()),
                stopping: Cell::new(false),
                control_tasks: Cell::new(0),
            }),
            outgoing: outgoing.into_iter().map(Outgoing::new).collect(),
            backlog: Backlog::default(),
            sent: Cell::new(0),
            dirty: (0..workers).map(|_| Cell::new(id)).collect(),
            dirty_len: Cell::new(0),
            id,
            runtime: shared.runtime,
            limits: Cell::new(limits),
            polling: shared.clock.ticks(step::POLLING),
            untimed: Cell::new(1),
            publishing: Cell::new(true),
            received: Cell::new(0),
            incoming,
            lanes,
            stats: Arc::clone(&shared.port(id).stats),
            shared,
            of_thread: Cell::new(1),
            seed: seed.derive(id.index() as u64),
            shard,
        })
    }

    /// This worker's id.
    #[inline]
    #[must_use]
    pub fn id(&self) -> WorkerId {
        self.id
    }

    /// The number of workers of the runtime; their ids are `0..workers`.
    #[inline]
    #[must_use]
    pub fn workers(&self) -> usize {
        self.outgoing.len()
    }

    /// The state this worker hosts.
    #[inline]
    #[must_use]
    pub fn shard(&self) -> &S {
        &self.shard
    }

    /// A seed of this worker's own, derived from the runtime's.
    #[must_use]
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// A handle by which threads outside the runtime reach it.
    #[must_use]
    pub fn handle(&self) -> Handle<S> {
        Handle::new(Arc::clone(&self.shared))
    }

    // --- Tasks -----------------------------------------------------------------------------------------------------

    /// Starts a task: a future that this worker polls until it is ready. It is polled for the first time after what is
    /// ready already. It may be polled without having been woken.
    ///
    /// A future up to [`INLINE_TASK_BYTES`](crate::INLINE_TASK_BYTES) lies in a recycled slot, without allocation; a larger one is boxed. It
    /// waits on this worker's [`Call`]s, [`Sleep`]s, or whoever calls [`wake`](Self::wake); these wake the whole task and leave
    /// the waker of the context alone. Any other future may be awaited too: a clone of that waker (an allocation) wakes the task
    /// from any thread. Once the runtime has stopped, the future is dropped at once and the id names no task.
    #[inline]
    pub fn spawn(self: &Rc<Self>, future: impl Future<Output = ()> + 'static) -> TaskId {
        self.core.tasks.spawn(future)
    }

    /// Starts a task like [`spawn`](Self::spawn) that does not count against [`Limits::tasks_in_flight`]: what a closure of
    /// the [control lane](Handle::submit_control) goes on with.
    pub fn spawn_control(self: &Rc<Self>, future: impl Future<Output = ()> + 'static) -> TaskId {
        let counted = ControlTask::begin(&self.core);
        self.core.tasks.spawn(async move {
            let _counted = counted;
            future.await;
        })
    }

    /// The task that is being polled, or [`TaskId::NONE`] outside polls.
    #[inline]
    #[must_use]
    pub fn current_task(&self) -> TaskId {
        self.core.tasks.current()
    }

    /// Makes a task of this worker ready to be polled. Does nothing if it is already, or has finished.
    #[inline]
    pub fn wake(&self, task: TaskId) {
        self.core.tasks.wake(task);
    }

    /// The time of the latest step in which a message, a closure or a task was run, the current one before its
    /// [background work](Shard::background) included.
    #[inline]
    #[must_use]
    pub fn quiet_since(&self) -> Ticks {
        self.core.quiet_since.get()
    }

    /// Calls to other workers that wait for their replies.
    #[inline]
    #[must_use]
    pub fn open_calls(&self) -> usize {
        self.core.calls.open_len()
    }

    /// Tasks that wait to be polled.
    #[inline]
    #[must_use]
    pub fn ready_len(&self) -> usize {
        self.core.tasks.ready_len()
    }

    /// Tasks that have not finished.
    #[inline]
    #[must_use]
    pub fn tasks_len(&self) -> usize {
        self.core.tasks.live()
    }

    /// A future that lets the other ready tasks run once.
    pub fn yield_now(&self) -> YieldNow {
        YieldNow::new(Rc::clone(&self.core))
    }

    /// A future that is ready once a step begins at `at` or later on this worker's clock, or when the runtime begins to
    /// stop.
    pub fn sleep_until(&self, at: Ticks) -> Sleep {
        Sleep::new(Rc::clone(&self.core), at)
    }

    // --- Messages --------------------------------------------------------------------------------------------------

    /// Sends a closure to be run by worker `to` (which may be this one), after all that was sent to it before. It is
    /// visible to the receiver at the latest when this step ends.
    ///
    /// The closure lies inline in the ring up to an eighth of the ring's size. If the ring is full it waits in a local
    /// queue; see [`outgoing_backlog`](Self::outgoing_backlog).
    ///
    /// # Panics
    /// If there is no such worker.
    #[inline]
    pub fn send(&self, to: WorkerId, message: impl FnOnce(&Rc<Self>) + Send + 'static) {
        let outgoing = &self.outgoing[to.index()];
        self.sent.set(self.sent.get() + 1);
        if outgoing.send(message, &self.backlog) {
            self.mark_dirty(to);
        }
    }

    /// Asks worker `to` (which may be this one) to run `handler`, and returns a future of the answer that the handler
    /// gives through its [`Reply`], at once or later.
    ///
    /// # Panics
    /// If there is no such worker.
    #[inline]
    pub fn call<R: Send + 'static>(
        &self,
        to: WorkerId,
        handler: impl FnOnce(&Rc<Self>, Reply<R>) + Send + 'static,
    ) -> Call<R> {
        let (call, reply) = call::open(&self.core, self.runtime, self.id);
        self.send(to, move |worker| handler(worker, reply));
        call
    }

    /// Messages sent to worker `to` so far; 0 if there is no such worker.
    #[must_use]
    pub fn sent_to(&self, to: WorkerId) -> u64 {
        self.outgoing.get(to.index()).map_or(0, Outgoing::sent)
    }

    /// Messages that wait behind a full ring. While there are any, nothing is taken from the inbox.
    #[inline]
    #[must_use]
    pub fn outgoing_backlog(&self) -> usize {
        self.backlog.now()
    }

    /// Returns whether sources of new work that live on this worker (hosted sessions, say) may start more: the rings
    /// keep up and the runtime is not stopping.
    #[inline]
    #[must_use]
    pub fn may_admit(&self) -> bool {
        self.backlog.now() == 0 && !self.core.stopping.get()
    }

    /// Returns whether the runtime is stopping: work in flight completes, new work should not begin.
    #[inline]
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.core.stopping.get()
    }

    /// Makes what was sent so far visible to its receivers now rather than at the end of the step.
    pub fn publish(&self) {
        self.publish_outgoing();
    }

    #[inline]
    fn mark_dirty(&self, to: WorkerId) {
        let length = self.dirty_len.get();
        self.dirty[length].set(to);
        self.dirty_len.set(length + 1);
    }

    // --- Time and numbers ------------------------------------------------------------------------------------------

    /// The time now on this worker's clock. See [`step_time`](Self::step_time) for a cheaper and coarser one.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Ticks {
        self.shared.clock.now()
    }

    /// The time at which the current step began.
    #[inline]
    #[must_use]
    pub fn step_time(&self) -> Ticks {
        self.core.step_time.get()
    }

    /// The number of workers that this one's thread pumps in turn, itself included: they share what is near to a core.
    #[must_use]
    pub fn workers_of_thread(&self) -> usize {
        self.of_thread.get()
    }

    /// Notes the number of workers that this one's thread pumps.
    pub(crate) fn share_thread(&self, workers: usize) {
        self.of_thread.set(workers);
    }

    /// Returns true if the current step has taken as long as polls take in a step: what else a message could do at once should
    /// be a task then.
    #[inline]
    #[must_use]
    pub fn is_step_long(&self) -> bool {
        self.now() >= self.step_time().after(self.polling)
    }

    /// The clock of this runtime.
    #[inline]
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// This worker's counters. Those of a step are shown at its end.
    #[inline]
    #[must_use]
    pub fn stats(&self) -> &WorkerStats {
        &self.stats
    }

    /// Amounts of work that one step does at most.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits.get()
    }

    /// Changes how much one step does at most, from the next step on. Zero counts as one.
    pub fn set_limits(&self, limits: Limits) {
        self.limits.set(limits);
    }

    pub(crate) fn core(&self) -> &Rc<Core> {
        &self.core
    }

    #[inline]
    pub(crate) fn runtime(&self) -> RuntimeId {
        self.runtime
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<S>> {
        &self.shared
    }

    /// Makes the next steps keep or publish what they send.
    pub(crate) fn set_publishing(&self, publishing: bool) {
        self.publishing.set(publishing);
    }
}

impl<S: Shard> Bearer for Worker<S> {
    fn runtime(&self) -> RuntimeId {
        self.runtime
    }

    fn bear_loss(&self, home: WorkerId, index: u32) {
        self.send(home, move |home| call::on_lost(home, index));
    }

    fn bear_wake(&self, waker: Arc<TaskWaker>) {
        if waker.home() == self.id {
            waker.arrive(&self.core.tasks);
        } else {
            self.send(waker.home(), move |home| waker.arrive(&home.core.tasks));
        }
    }
}
