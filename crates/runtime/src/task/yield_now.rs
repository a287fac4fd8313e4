//! The future of a task that lets others run.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A future that lets the other ready tasks of its worker run once. Made by [`Worker::yield_now`](crate::Worker::yield_now).
#[must_use = "a future does nothing until it is awaited"]
pub struct YieldNow {
    tasks: Rc<crate::worker::Core>,
    yielded: bool,
}

impl YieldNow {
    pub(crate) fn new(tasks: Rc<crate::worker::Core>) -> Self {
        Self { tasks, yielded: false }
    }
}

impl Future for YieldNow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        self.tasks.tasks.wake(self.tasks.tasks.current());
        Poll::Pending
    }
}
