//! The worker, if any, that the current thread is stepping.
//!
//! Owns: one thread-local pointer, set for the duration of a step. Its uses are the destructor of a reply that was
//! never sent, and wakers of the standard library: neither has a worker at hand. Never: offers the worker to anybody
//! else.
//!
//! # Why the unsafe code is sound
//! The pointer is set by [`enter`], whose guard borrows the worker and resets the pointer when it ends, also by
//! unwinding; the guard never leaves this crate and is never forgotten. So the pointer is live whenever it is set.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::WorkerId;
use crate::pool::hosted;
use crate::shared::{self, RuntimeId};
use crate::waker::TaskWaker;

/// Services of a worker to a reply that is dropped, or a waker that is woken, while the worker runs.
pub(crate) trait Bearer {
    fn runtime(&self) -> RuntimeId;
    /// Tells worker `home` that its call at `index` will not be answered.
    fn bear_loss(&self, home: WorkerId, index: u32);
    /// Brings a waker to the worker whose task it wakes.
    fn bear_wake(&self, waker: Arc<TaskWaker>);
}

thread_local! {
    static CURRENT: Cell<Option<NonNull<dyn Bearer>>> = const { Cell::new(None) };
}

/// Restores what was current before.
pub(crate) struct Entered<'a> {
    before: Option<NonNull<dyn Bearer>>,
    worker: PhantomData<&'a ()>,
}

/// Makes `worker` the current one until the guard is dropped.
#[inline]
pub(crate) fn enter<'a, W: Bearer + 'static>(worker: &'a W) -> Entered<'a> {
    let bearer: &'a (dyn Bearer + 'static) = worker;
    Entered { before: CURRENT.replace(Some(NonNull::from(bearer))), worker: PhantomData }
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}

/// Brings a waker to its worker in `runtime`, if that still exists, from whatever thread this is.
pub(crate) fn wake(runtime: RuntimeId, waker: Arc<TaskWaker>) {
    if let Some(bearer) = CURRENT.get() {
        // SAFETY: set pointers are live, see the heading.
        let bearer = unsafe { bearer.as_ref() };
        if bearer.runtime() == runtime {
            bearer.bear_wake(waker);
            return;
        }
    }
    if hosted::wake(runtime, &waker) {
        return;
    }
    shared::wake_from_outside(runtime, waker);
}

/// Returns whether the current thread is inside a step of a worker of this runtime.
pub(crate) fn is_worker_of(runtime: RuntimeId) -> bool {
    CURRENT.get().is_some_and(|bearer| {
        // SAFETY: set pointers are live, see the heading.
        unsafe { bearer.as_ref() }.runtime() == runtime
    })
}

/// Tells worker `home` of `runtime` that its call at `index` will not be answered, from whatever thread this is.
#[cold]
pub(crate) fn lose(runtime: RuntimeId, home: WorkerId, index: u32) {
    if let Some(bearer) = CURRENT.get() {
        // SAFETY: set pointers are live, see the heading.
        let bearer = unsafe { bearer.as_ref() };
        if bearer.runtime() == runtime {
            bearer.bear_loss(home, index);
            return;
        }
    }
    shared::lose_from_outside(runtime, home, index);
}
