//! State shared by the workers of one runtime and its handles: the ports of all workers and the phase of the shutdown.
//!
//! Owns: per worker a port (inbox, control lane, notices, sleep flag, counters), the phase, and the registry by which a
//! reply that is dropped outside the runtime still finds its way home. Never: is written by a running transaction. No
//! unsafe code.
//!
//! # Two lanes
//! Threads outside the runtime reach a worker by two queues of the same kind. The *inbox* is for clients: it is not
//! drained while the worker has as many tasks as it takes, or its rings are full. The *control lane* is for the layer
//! above itself (whoever loads, verifies, saves or closes): it is drained in every step. So a request by the control
//! lane waits for a step, and never for the end of a client's task.
//!
//! Invariants: the phase only advances; both lanes of all workers are closed before any worker knows that it is to
//! stop.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crossbeam_utils::CachePadded;

use crate::clock::Clock;
use crate::inbox::{InboxReceiver, InboxSender, inbox};
use crate::park::Parker;
use crate::stats::WorkerStats;
use crate::waker::TaskWaker;
use crate::worker::{Shard, Worker};
use crate::{WorkerId, call};

/// Tells runtimes of one process apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RuntimeId(u32);

impl RuntimeId {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| next.checked_add(1));
        Self(next.expect("a process starts fewer than 2^32 runtimes"))
    }
}

/// Phases in the life of a runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Phase {
    /// All requests are admitted.
    Running = 0,
    /// No new request is admitted from outside; those in flight complete.
    Draining = 1,
    /// Workers end.
    Stopped = 2,
}

/// Context that a message between workers runs on.
pub(crate) type Host<S> = Rc<Worker<S>>;
/// A message that did not fit where it should have been.
pub(crate) type BoxedMessage<S> = Box<dyn FnOnce(&Host<S>) + Send>;

/// Ways by which others reach one worker.
pub(crate) struct Port<S: Shard> {
    inbox: InboxSender<Host<S>>,
    control: InboxSender<Host<S>>,
    pub(crate) parker: Parker,
    pub(crate) stats: Arc<WorkerStats>,
    notices: Notices<S>,
}

/// One of the two ways from outside to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// The queue of clients.
    Inbox,
    /// The queue of the layer above itself.
    Control,
}

/// The receiving ends of one worker's lanes.
pub(crate) struct Lanes<S: Shard> {
    pub(crate) inbox: InboxReceiver<Host<S>>,
    pub(crate) control: InboxReceiver<Host<S>>,
}

/// Closures that wait in a control lane at most. It is drained in every step, so that one more is a sender that sleeps for a
/// step.
const CONTROL_SLOTS: usize = 64;

/// The queue for the runtime's own notices. It is unbounded, and bounded by the number of calls in flight and of wakers.
struct Notices<S: Shard> {
    /// Set if the queue may have an entry; read once per step.
    pending: CachePadded<AtomicBool>,
    /// `None` once the worker has ended.
    queue: Mutex<Option<Vec<BoxedMessage<S>>>>,
    accepted: AtomicUsize,
    handled: AtomicUsize,
}

/// See the heading.
pub(crate) struct Shared<S: Shard> {
    pub(crate) runtime: RuntimeId,
    pub(crate) clock: Clock,
    phase: CachePadded<AtomicU8>,
    ports: Box<[Port<S>]>,
}

/// Locks a mutex of this crate; see [`crate::sync::lock`] for why poison does not matter.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: Shard> Shared<S> {
    /// The shared part of a runtime, and the receiving ends of its workers' lanes.
    pub(crate) fn new(workers: usize, inbox_slots: usize, clock: Clock) -> (Arc<Self>, Vec<Lanes<S>>) {
        let (ports, lanes): (Vec<_>, Vec<_>) = (0..workers).map(|_| Port::new(inbox_slots)).unzip();
        let shared = Arc::new(Self {
            runtime: RuntimeId::new(),
            clock,
            phase: CachePadded::new(AtomicU8::new(Phase::Running as u8)),
            ports: ports.into_boxed_slice(),
        });
        let registered: Weak<dyn NewsDesk> = Arc::downgrade(&shared) as Weak<dyn NewsDesk>;
        lock(&REGISTRY).push((shared.runtime, registered));
        (shared, lanes)
    }

    pub(crate) fn workers(&self) -> usize {
        self.ports.len()
    }

    #[inline]
    pub(crate) fn port(&self, worker: WorkerId) -> &Port<S> {
        &self.ports[worker.index()]
    }

    pub(crate) fn ports(&self) -> impl Iterator<Item = (WorkerId, &Port<S>)> {
        self.ports.iter().enumerate().map(|(index, port)| (worker_id(index), port))
    }

    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Running,
            1 => Phase::Draining,
            _ => Phase::Stopped,
        }
    }

    /// Closes the lanes, advances the phase, and wakes all workers.
    pub(crate) fn advance(&self, phase: Phase) {
        for port in &self.ports {
            port.inbox.close();
            port.control.close();
        }
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
        self.wake_all();
    }

    fn wake_all(&self) {
        fence(Ordering::SeqCst);
        for port in &self.ports {
            port.parker.wake_after_fence();
        }
    }

    /// Puts a notice into a worker's queue and wakes it. Once the worker has ended, the notice is dropped.
    fn notify(&self, worker: WorkerId, notice: BoxedMessage<S>) {
        let port = self.port(worker);
        {
            let mut queue = lock(&port.notices.queue);
            let Some(queue) = queue.as_mut() else { return };
            queue.push(notice);
            port.notices.accepted.fetch_add(1, Ordering::Release);
        }
        port.notices.pending.store(true, Ordering::Release);
        port.parker.wake();
    }

    /// Counts everything that keeps the runtime from being quiet. Two equal readings in a row that say "nothing" prove
    /// that it is: each worker was passive from the first to the second, for it received nothing in between, and no
    /// message was on its way at the moment between the two, for all that had been sent by then had been received
    /// before.
    ///
    /// What is received is read first, and workers show what they received last (release), after the tasks it became
    /// and the messages these sent: nothing can look received while its consequences are not yet visible.
    pub(crate) fn activity(&self) -> Activity {
        let mut activity = Activity::default();
        for port in &self.ports {
            activity.unaware += usize::from(port.stats.stopping_steps.get_acquire() == 0);
            activity.received += port.stats.messages_received.get_acquire();
            activity.notices_handled += port.notices.handled.load(Ordering::Acquire);
        }
        for port in &self.ports {
            for lane in [&port.inbox, &port.control] {
                let (accepted, handled) = lane.accepted_after_handled();
                activity.lanes_pending += accepted - handled;
                activity.lanes_handled += handled;
            }
            activity.notices_accepted += port.notices.accepted.load(Ordering::Acquire);
        }
        for port in &self.ports {
            activity.unfinished += port.stats.unfinished.get_acquire();
            activity.sent += port.stats.messages_sent.get_acquire();
        }
        activity
    }
}

/// One reading of everything that can keep a runtime from being quiet.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Activity {
    /// Workers that have not yet finished a step in which they knew that the runtime is stopping.
    unaware: usize,
    unfinished: u64,
    sent: u64,
    received: u64,
    lanes_pending: usize,
    lanes_handled: usize,
    notices_accepted: usize,
    notices_handled: usize,
}

impl Activity {
    pub(crate) fn is_none(&self) -> bool {
        self.unaware == 0
            && self.unfinished == 0
            && self.sent == self.received
            && self.lanes_pending == 0
            && self.notices_accepted == self.notices_handled
    }
}

impl<S: Shard> Port<S> {
    fn new(inbox_slots: usize) -> (Self, Lanes<S>) {
        let (inbox_sender, inbox_receiver) = inbox(inbox_slots);
        let (control_sender, control_receiver) = inbox(CONTROL_SLOTS);
        let port = Self {
            inbox: inbox_sender,
            control: control_sender,
            parker: Parker::new(),
            stats: Arc::new(WorkerStats::default()),
            notices: Notices {
                pending: CachePadded::new(AtomicBool::new(false)),
                queue: Mutex::new(Some(Vec::new())),
                accepted: AtomicUsize::new(0),
                handled: AtomicUsize::new(0),
            },
        };
        (port, Lanes { inbox: inbox_receiver, control: control_receiver })
    }

    /// The sending end of one of the lanes. Whoever sends wakes the worker afterwards.
    pub(crate) fn lane(&self, lane: Lane) -> &InboxSender<Host<S>> {
        match lane {
            Lane::Inbox => &self.inbox,
            Lane::Control => &self.control,
        }
    }

    /// Returns whether there may be notices.
    #[inline]
    pub(crate) fn has_notices(&self) -> bool {
        self.notices.pending.load(Ordering::Acquire)
    }

    /// Takes all notices.
    #[cold]
    pub(crate) fn take_notices(&self) -> Vec<BoxedMessage<S>> {
        self.notices.pending.store(false, Ordering::Relaxed);
        // The flag goes down before the lock is taken: a notice pushed afterwards raises it again.
        lock(&self.notices.queue).as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Counts notices as handled, consequences included.
    pub(crate) fn show_notices_handled(&self, notices: usize) {
        self.notices.handled.fetch_add(notices, Ordering::Release);
    }

    /// Takes no notices any more; what comes later is dropped.
    pub(crate) fn close_notices(&self) {
        let rest = lock(&self.notices.queue).take();
        // Outside the lock: dropping a notice may come back here.
        drop(rest);
    }
}

impl<S: Shard> Drop for Shared<S> {
    fn drop(&mut self) {
        lock(&REGISTRY).retain(|(runtime, _)| *runtime != self.runtime);
    }
}

/// The id of the worker at `index` of a list of all workers.
pub(crate) fn worker_id(index: usize) -> WorkerId {
    WorkerId(u16::try_from(index).expect("a runtime has at most 65,535 workers"))
}

/// Takes news for workers, that a call will not be answered or that a task is to be polled, from a thread that runs no worker
/// of their runtime.
trait NewsDesk: Send + Sync {
    fn report_loss(&self, home: WorkerId, index: u32);
    fn report_wake(&self, waker: Arc<TaskWaker>);
}

impl<S: Shard> NewsDesk for Shared<S> {
    fn report_loss(&self, home: WorkerId, index: u32) {
        self.notify(home, Box::new(move |home| call::on_lost(home, index)));
    }

    fn report_wake(&self, waker: Arc<TaskWaker>) {
        self.notify(waker.home(), Box::new(move |home| waker.arrive(&home.core().tasks)));
    }
}

/// All live runtimes of this process.
static REGISTRY: Mutex<Vec<(RuntimeId, Weak<dyn NewsDesk>)>> = Mutex::new(Vec::new());

fn desk_of(runtime: RuntimeId) -> Option<Arc<dyn NewsDesk>> {
    // The registry is unlocked before its caller goes on: dropping the last reference to a runtime locks it.
    lock(&REGISTRY).iter().find(|(id, _)| *id == runtime).and_then(|(_, desk)| desk.upgrade())
}

/// Tells worker `home` of `runtime`, if that still exists, that its call at `index` will not be answered.
pub(crate) fn lose_from_outside(runtime: RuntimeId, home: WorkerId, index: u32) {
    if let Some(desk) = desk_of(runtime) {
        desk.report_loss(home, index);
    }
}

/// Brings a waker to its worker of `runtime`, if that still exists.
pub(crate) fn wake_from_outside(runtime: RuntimeId, waker: Arc<TaskWaker>) {
    if let Some(desk) = desk_of(runtime) {
        desk.report_wake(waker);
    }
}
