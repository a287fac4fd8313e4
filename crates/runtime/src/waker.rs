//! Wakers of the standard library for the tasks of workers: for futures that know nothing of workers.
//!
//! Owns: the way from a wake, on whatever thread it happens, to the worker whose task is to be polled. Never: is made unless a
//! future asks for it: what waits for this runtime's calls, timers and shards is woken by the number of its task, without any
//! of this.
//!
//! # Protocol
//! A wake hands its waker to the task's worker, unless it is on its way there already (`told`): so what lies among a worker's
//! notices is bounded by the number of wakers. The worker takes the mark back *before* the task is polled. A wake that
//! finds the mark has its effects seen by that poll, for both change the mark by exchanges (acquire and release); one that
//! comes later hands the waker over again. (loom: `waker_*`.)

use std::sync::Arc;
use std::task::{Wake, Waker};

use crate::planted::{Bug, ordering, planted};
use crate::shared::RuntimeId;
use crate::sync::{AtomicBool, Ordering};
use crate::task::{TaskId, Tasks};
use crate::{WorkerId, current};

/// The waker of one task.
pub(crate) struct TaskWaker {
    runtime: RuntimeId,
    home: WorkerId,
    task: TaskId,
    told: Told,
}

impl TaskWaker {
    pub(crate) fn waker(runtime: RuntimeId, home: WorkerId, task: TaskId) -> Waker {
        Waker::from(Arc::new(TaskWaker { runtime, home, task, told: Told::new() }))
    }

    /// The worker whose task it is.
    pub(crate) fn home(&self) -> WorkerId {
        self.home
    }

    /// The waker has come to its worker, whose tasks these are.
    pub(crate) fn arrive(&self, tasks: &Tasks) {
        self.told.arrive();
        tasks.wake(self.task);
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if self.told.tell() {
            current::wake(self.runtime, self);
        }
    }
}

/// Set while a waker is on its way to its worker.
pub(crate) struct Told(AtomicBool);

impl Told {
    pub(crate) fn new() -> Told {
        Told(AtomicBool::new(false))
    }

    /// Returns whether the caller that wakes has to hand the waker over; otherwise it is on its way.
    pub(crate) fn tell(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// The waker has arrived. Called before what it wakes looks around.
    pub(crate) fn arrive(&self) {
        if planted(Bug::WakerStaysTold) {
            return;
        }
        self.0.swap(false, ordering(Bug::WakerArrival, Ordering::AcqRel));
    }
}
