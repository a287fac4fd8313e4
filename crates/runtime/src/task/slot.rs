//! The slots that tasks lie in, and the functions that poll and drop a future in one.
//!
//! Owns: the layout of a slot. Never: decides when a future is polled or dropped: [`super::Tasks`] does, and its heading says why
//! that is sound.

use std::cell::{Cell, UnsafeCell};
use std::future::Future;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::Context;

use super::TaskId;

/// A future of at most this many bytes (and alignment of at most 64) lies in its slot; a larger one is boxed.
pub const INLINE_TASK_BYTES: usize = 1408;
pub(super) const INLINE_TASK_ALIGN: usize = 64;

/// The slot holds a future.
pub(super) const LIVE: u8 = 1;
/// The slot is in the ready queue.
pub(super) const QUEUED: u8 = 2;

/// Polls the future at the pointer; when it is ready, drops it and returns true.
pub(super) type PollFn = unsafe fn(*mut u8, &mut Context<'_>) -> bool;
/// Drops the future at the pointer.
pub(super) type DropFn = unsafe fn(*mut u8);

#[repr(C, align(64))]
pub(super) struct Body(pub(super) UnsafeCell<MaybeUninit<[u8; INLINE_TASK_BYTES]>>);

/// One task. Its size is an odd number of cache lines, so that the heads of a chunk's slots spread over all cache sets.
#[repr(C, align(64))]
pub(super) struct Slot {
    pub(super) poll: Cell<PollFn>,
    pub(super) drop: Cell<DropFn>,
    /// The id of the task in this slot, or of the next one.
    pub(super) id: Cell<TaskId>,
    /// The next slot of the free list, while this one is in it.
    pub(super) next_free: Cell<u32>,
    pub(super) state: Cell<u8>,
    /// Address of the future: in `body`, or in a box.
    pub(super) future: Cell<*const u8>,
    pub(super) body: Body,
}

const _: () = assert!((size_of::<Slot>() / 64) % 2 == 1);

pub(super) unsafe fn poll_inline<F: Future<Output = ()>>(body: *mut u8, context: &mut Context<'_>) -> bool {
    let future = body.cast::<F>();
    // SAFETY: the slot is live, so `future` is a valid `F` that will not move before it is dropped below or in `clear`.
    let polled = unsafe { Pin::new_unchecked(&mut *future) }.poll(context);
    if polled.is_pending() {
        return false;
    }
    // SAFETY: the caller takes the slot out of use after `true`, so nobody reaches the future again.
    unsafe { future.drop_in_place() };
    true
}

pub(super) unsafe fn drop_inline<F>(body: *mut u8) {
    // SAFETY: the caller took the slot out of use and hands over the `F` in it.
    unsafe { body.cast::<F>().drop_in_place() };
}

pub(super) unsafe fn poll_nothing(_: *mut u8, _: &mut Context<'_>) -> bool {
    true
}

pub(super) unsafe fn drop_nothing(_: *mut u8) {}
