//! Timers: tasks that sleep until a time of the worker's clock.
//!
//! Owns: the heap of sleeping tasks of one worker. Never: reads a clock (the step passes the time in) and never makes a
//! worker poll for time: the earliest deadline bounds how long the worker parks. No unsafe code.
//!
//! Invariant: `next` is the earliest deadline in the heap, or the end of time; a step that has nothing due compares once.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::clock::Ticks;
use crate::task::TaskId;
use crate::worker::Core;

pub(crate) struct Timers {
    next: Cell<Ticks>,
    /// Ordered by time, then by the order of going to sleep.
    heap: RefCell<BinaryHeap<Reverse<(Ticks, u64, SleeperId)>>>,
    sleeps: Cell<u64>,
}

/// A task id that takes part in tuples' ordering without having a say in it: the pair before it is unique.
#[derive(Clone, Copy)]
struct SleeperId(TaskId);

impl PartialEq for SleeperId {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl Eq for SleeperId {}
impl PartialOrd for SleeperId {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for SleeperId {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

impl Timers {
    pub(crate) fn new() -> Self {
        Self { next: Cell::new(Ticks::MAX), heap: RefCell::new(BinaryHeap::new()), sleeps: Cell::new(0) }
    }

    /// The earliest deadline, or [`Ticks::MAX`].
    #[inline]
    pub(crate) fn next(&self) -> Ticks {
        self.next.get()
    }

    fn add(&self, at: Ticks, task: TaskId) {
        let order = self.sleeps.get();
        self.sleeps.set(order + 1);
        self.heap.borrow_mut().push(Reverse((at, order, SleeperId(task))));
        self.next.set(self.next.get().min(at));
    }

    /// Wakes everybody whose time has come. Returns whether anybody's had.
    #[inline]
    pub(crate) fn fire(&self, now: Ticks, wake: impl FnMut(TaskId)) -> bool {
        now >= self.next.get() && self.fire_due(now, wake)
    }

    #[cold]
    fn fire_due(&self, now: Ticks, mut wake: impl FnMut(TaskId)) -> bool {
        let mut heap = self.heap.borrow_mut();
        let mut fired = false;
        while let Some(&Reverse((at, _, SleeperId(task)))) = heap.peek() {
            if at > now {
                break;
            }
            heap.pop();
            wake(task);
            fired = true;
        }
        self.next.set(heap.peek().map_or(Ticks::MAX, |&Reverse((at, ..))| at));
        fired
    }

    /// Wakes everybody, whatever the time.
    pub(crate) fn fire_all(&self, wake: impl FnMut(TaskId)) {
        self.fire_due(Ticks::MAX, wake);
    }
}

/// A future that is ready at a time of the worker's clock, or when the runtime begins to stop. Made by
/// [`Worker::sleep_until`](crate::Worker::sleep_until).
///
/// A sleep that begins while the runtime is already stopping waits for its time.
#[must_use = "a future does nothing until it is awaited"]
pub struct Sleep {
    core: Rc<Core>,
    at: Ticks,
    began_stopping: bool,
    registered: TaskId,
}

impl Sleep {
    pub(crate) fn new(core: Rc<Core>, at: Ticks) -> Self {
        let began_stopping = core.stopping.get();
        Self { core, at, began_stopping, registered: TaskId::NONE }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.core.step_time.get() >= self.at || self.core.stopping.get() != self.began_stopping {
            return Poll::Ready(());
        }
        let task = self.core.tasks.current();
        if self.registered != task {
            self.registered = task;
            self.core.timers.add(self.at, task);
        }
        Poll::Pending
    }
}
