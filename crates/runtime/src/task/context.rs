//! The waker in the context of every poll.
//!
//! Owns: its table of functions, and the [`Origin`] that it leads to. Never: allocates before a future clones it.
//!
//! # Why the unsafe code is sound
//! The functions of the table are called only through the waker of a context, which is borrowed for one poll; meanwhile the
//! slab that is polling stays where it is, and nobody writes its origin. See the heading of [`super`].

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::task::{RawWaker, RawWakerVTable, Waker};

use super::TaskId;
use crate::WorkerId;
use crate::shared::RuntimeId;
use crate::waker::TaskWaker;

/// The origin of the wakers of these tasks.
pub(super) struct Origin {
    pub(super) runtime: RuntimeId,
    pub(super) home: WorkerId,
    /// The task being polled, or `NONE`. Written between polls only.
    pub(super) current: Cell<TaskId>,
}

/// The waker in the context of every poll: it costs nothing until a future clones it.
pub(super) static CONTEXT_WAKER: RawWakerVTable =
    RawWakerVTable::new(clone_context_waker, wake_by_context, wake_by_context, drop_context_waker);

/// # Safety
/// `origin` points to the origin of the slab that is polling, and the poll lasts.
unsafe fn waker_of_current(origin: *const ()) -> Waker {
    // SAFETY: by the contract it is live; other threads read it only, and nobody writes it during a poll.
    let origin = unsafe { &*origin.cast::<Origin>() };
    TaskWaker::waker(origin.runtime, origin.home, origin.current.get())
}

unsafe fn clone_context_waker(origin: *const ()) -> RawWaker {
    // SAFETY: called through the waker of a poll's context.
    let waker = ManuallyDrop::new(unsafe { waker_of_current(origin) });
    RawWaker::new(waker.data(), waker.vtable())
}

unsafe fn wake_by_context(origin: *const ()) {
    // SAFETY: called through the waker of a poll's context.
    unsafe { waker_of_current(origin) }.wake();
}

unsafe fn drop_context_waker(_: *const ()) {}
