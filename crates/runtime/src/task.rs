//! Tasks: futures in recycled slots, and the queue of those that are ready to be polled.
//!
//! Owns: the slots, the free list, the ready queue, and the futures from `spawn` until they finish or are cleared.
//! Never: uses an atomic, or the allocator once the slots it needs exist. Nothing here is shared between threads but what a
//! future's poll reads of its own task when it clones its waker ([`Origin`]).
//!
//! # Invariants
//! - A slot is in the ready queue at most once, exactly while its state has `QUEUED`; so a queue as long as the number
//!   of slots never overflows.
//! - A slot is freed only while it is not queued: one that finishes while queued is freed when it is popped.
//! - The generation of a slot changes when its task finishes, so a wake with an old id is ignored.
//!
//! # Why the unsafe code is sound
//! - Slots are allocated in chunks that never move and are freed only with the slab, so a pinned future stays put.
//! - The ready queue holds pointers to slots of this slab; they come from this file only. The index in a [`TaskId`] may
//!   come from another worker and is checked.
//! - The functions of a slot are written with its future, for its type. The future is polled only while the slot is
//!   `LIVE`, it is not polled again after it finished, and it is dropped exactly once: by the poll that finished it, or
//!   by `clear`. Polls do not nest (`polling`), so no future is dropped under its own poll.
//! - No reference to a growing vector lives across a call into a future.
//! - The waker in a poll's context leads to the slab's [`Origin`]. A context is borrowed for one poll, so whatever thread uses
//!   that waker does so while the poll lasts; meanwhile the slab stays where it is, and nobody writes its origin. What
//!   outlives the poll is a clone, which is a [`TaskWaker`] of its own.

use std::cell::{Cell, UnsafeCell};
use std::future::Future;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;
use std::task::{Context, Waker};

use crate::WorkerId;
use crate::prefetch::prefetch_line;
use crate::shared::RuntimeId;

mod context;
mod id;
mod slot;
mod yield_now;

use context::{CONTEXT_WAKER, Origin};
pub use id::TaskId;
pub use slot::INLINE_TASK_BYTES;
use slot::{
    Body, INLINE_TASK_ALIGN, LIVE, QUEUED, Slot, drop_inline, drop_nothing, poll_inline, poll_nothing,
};
pub use yield_now::YieldNow;

/// Slots are allocated this many at a time.
const CHUNK_SLOTS: usize = 64;

/// Number of ready tasks below which they are all in the cache.
const LONG_QUEUE: usize = 96;
/// Number of polls ahead for which the memory of a task is prefetched, and of its cache lines: most futures use no
/// more.
const POLLED_AHEAD: usize = 2;
const LINES_AHEAD: usize = 10;

/// All tasks of one worker.
pub(crate) struct Tasks {
    /// Next position to pop, and next to push; both only grow.
    ready_head: Cell<usize>,
    ready_tail: Cell<usize>,
    /// A ring of slots, at least as long as there are slots.
    ready: Cell<NonNull<NonNull<Slot>>>,
    ready_mask: Cell<usize>,
    chunks: UnsafeCell<Vec<NonNull<Slot>>>,
    slots: Cell<u32>,
    free: Cell<u32>,
    live: Cell<usize>,
    origin: Origin,
    polling: Cell<bool>,
    /// Set by `clear`: what is spawned afterwards is dropped at once.
    closed: Cell<bool>,
}

/// Ends the free list.
const NO_SLOT: u32 = u32::MAX;

impl Tasks {
    /// No tasks yet, of worker `home` of `runtime`.
    pub(crate) fn new(runtime: RuntimeId, home: WorkerId) -> Self {
        Self {
            ready_head: Cell::new(0),
            ready_tail: Cell::new(0),
            ready: Cell::new(NonNull::dangling()),
            ready_mask: Cell::new(0),
            chunks: UnsafeCell::new(Vec::new()),
            slots: Cell::new(0),
            free: Cell::new(NO_SLOT),
            live: Cell::new(0),
            origin: Origin { runtime, home, current: Cell::new(TaskId::NONE) },
            polling: Cell::new(false),
            closed: Cell::new(false),
        }
    }

    /// Tasks that have not finished.
    #[inline]
    pub(crate) fn live(&self) -> usize {
        self.live.get()
    }

    /// Tasks that are ready to be polled.
    #[inline]
    pub(crate) fn ready_len(&self) -> usize {
        self.ready_tail.get() - self.ready_head.get()
    }

    /// The task being polled, or `NONE`.
    #[inline]
    pub(crate) fn current(&self) -> TaskId {
        self.origin.current.get()
    }

    /// # Safety
    /// `index` is below `self.slots`.
    #[inline(always)]
    unsafe fn slot(&self, index: u32) -> NonNull<Slot> {
        // SAFETY: this shared reference to the vector ends within this function, and nothing is called meanwhile.
        let chunks = unsafe { &*self.chunks.get() };
        // SAFETY: there are `slots / CHUNK_SLOTS` chunks, and `index` is below `slots`.
        let chunk = unsafe { *chunks.get_unchecked(index as usize / CHUNK_SLOTS) };
        // SAFETY: a chunk has `CHUNK_SLOTS` slots.
        unsafe { chunk.add(index as usize % CHUNK_SLOTS) }
    }

    /// # Safety
    /// `slot` belongs to this slab.
    #[inline(always)]
    unsafe fn at(&self, slot: NonNull<Slot>) -> &Slot {
        // SAFETY: slots are initialized, are only reached through shared references, and live as long as the slab.
        unsafe { slot.as_ref() }
    }

    /// Takes a future and makes it ready to be polled for the first time.
    #[inline]
    pub(crate) fn spawn<F: Future<Output = ()> + 'static>(&self, future: F) -> TaskId {
        if const { size_of::<F>() <= INLINE_TASK_BYTES && align_of::<F>() <= INLINE_TASK_ALIGN } {
            self.spawn_inline(future, None)
        } else {
            let boxed = Box::pin(future);
            let address = std::ptr::from_ref(&*boxed).cast();
            self.spawn_inline(boxed, Some(address))
        }
    }

    #[inline]
    fn spawn_inline<F: Future<Output = ()> + 'static>(
        &self,
        future: F,
        elsewhere: Option<*const u8>,
    ) -> TaskId {
        // Not a `const` assertion: the branch of `spawn` that is not taken would fail it. It costs nothing either way.
        assert!(size_of::<F>() <= INLINE_TASK_BYTES && align_of::<F>() <= INLINE_TASK_ALIGN);
        if self.closed.get() {
            return TaskId::NONE;
        }
        if self.free.get() == NO_SLOT {
            self.grow();
        }
        let index = self.free.get();
        // SAFETY: the free list holds indices of existing slots.
        let pointer = unsafe { self.slot(index) };
        // SAFETY: a slot of this slab.
        let slot = unsafe { self.at(pointer) };
        self.free.set(slot.next_free.get());
        // SAFETY: a free slot's body is unused, and large and aligned enough for `F` (asserted above).
        unsafe { slot.body.0.get().cast::<F>().write(future) };
        slot.future.set(elsewhere.unwrap_or(slot.body.0.get().cast_const().cast()));
        slot.poll.set(poll_inline::<F>);
        slot.drop.set(drop_inline::<F>);
        slot.state.set(LIVE | QUEUED);
        self.live.set(self.live.get() + 1);
        self.push_ready(pointer);
        slot.id.get()
    }

    /// Makes a task ready to be polled, unless it is already, or has finished.
    #[inline]
    pub(crate) fn wake(&self, task: TaskId) {
        if task.index >= self.slots.get() {
            return;
        }
        // SAFETY: checked just now.
        let pointer = unsafe { self.slot(task.index) };
        // SAFETY: a slot of this slab.
        let slot = unsafe { self.at(pointer) };
        if slot.id.get() == task && slot.state.get() == LIVE {
            slot.state.set(LIVE | QUEUED);
            self.push_ready(pointer);
        }
    }

    #[inline(always)]
    fn push_ready(&self, slot: NonNull<Slot>) {
        let tail = self.ready_tail.get();
        // SAFETY: the masked position is inside the queue's memory; the queue is not full, because it is as long as
        // there are slots and no slot is in it twice.
        unsafe { self.ready.get().add(tail & self.ready_mask.get()).write(slot) };
        self.ready_tail.set(tail + 1);
    }

    /// Polls ready tasks, oldest first, until `polls_max` were polled or none is ready. Returns how many were polled.
    ///
    /// # Panics
    /// If called from within a poll. A panic of a future passes through; the slab stays whole.
    // Not inlined into the step: the loop keeps its counters in registers this way.
    #[inline(never)]
    pub(crate) fn poll_ready(&self, polls_max: usize) -> usize {
        if self.ready_len() == 0 {
            return 0;
        }
        assert!(!self.polling.replace(true), "a task must not step the worker that polls it");
        let reset = PollingReset(self);
        let origin = std::ptr::from_ref(&self.origin).cast();
        // SAFETY: the functions of the table may be called on any thread while a poll that was handed this waker lasts, see the
        // heading; the waker itself needs no drop.
        let waker = ManuallyDrop::new(unsafe { Waker::new(origin, &CONTEXT_WAKER) });
        let mut context = Context::from_waker(&waker);
        let mut polls = 0;
        while polls < polls_max {
            let head = self.ready_head.get();
            if head == self.ready_tail.get() {
                break;
            }
            // SAFETY: positions from `head` to `tail` were written by `push_ready`.
            let pointer = unsafe { self.ready.get().add(head & self.ready_mask.get()).read() };
            self.ready_head.set(head + 1);
            self.prefetch_after(head);
            // SAFETY: the ready queue holds slots of this slab.
            let slot = unsafe { self.at(pointer) };
            if slot.state.get() != LIVE | QUEUED {
                self.release(slot);
                continue;
            }
            slot.state.set(LIVE);
            self.origin.current.set(slot.id.get());
            polls += 1;
            // SAFETY: the slot is live, its function is the one for its future, and polls do not nest.
            if unsafe { (slot.poll.get())(slot.body.0.get().cast(), &mut context) } {
                self.finish(slot);
            }
        }
        drop(reset);
        polls
    }

    /// Prefetches the tasks to be polled soon, which are not in the cache when many tasks take turns: first the slot,
    /// then the memory it leads to.
    #[inline(always)]
    fn prefetch_after(&self, head: usize) {
        let ready = self.ready_tail.get() - head;
        if ready <= LONG_QUEUE {
            return;
        }
        let at = |ahead: usize| {
            // SAFETY: the positions asked for lie before `tail`, and those were written by `push_ready`.
            unsafe { self.ready.get().add((head + ahead) & self.ready_mask.get()).read() }
        };
        // SAFETY: the ready queue holds slots of this slab.
        let future = unsafe { self.at(at(POLLED_AHEAD)) }.future.get();
        for line in 0..LINES_AHEAD {
            prefetch_line(future.wrapping_add(line * 64));
        }
        prefetch_line(at(2 * POLLED_AHEAD).as_ptr().cast_const().cast());
    }

    /// Takes a slot whose future is gone out of use.
    #[inline]
    fn finish(&self, slot: &Slot) {
        self.live.set(self.live.get() - 1);
        slot.id.set(slot.id.get().next());
        if slot.state.get() & QUEUED == 0 {
            self.release(slot);
        } else {
            // Woken during its last poll: it is queued, and is freed when it is popped.
            slot.state.set(QUEUED);
        }
    }

    #[inline]
    fn release(&self, slot: &Slot) {
        slot.state.set(0);
        slot.next_free.set(self.free.get());
        self.free.set(slot.id.get().index);
    }

    /// Drops every task, and everything spawned from now on. Returns how many were dropped.
    ///
    /// # Panics
    /// If called from within a poll.
    pub(crate) fn clear(&self) -> usize {
        assert!(!self.polling.get(), "a task must not end the worker that polls it");
        self.closed.set(true);
        let before = self.live.get();
        for index in 0..self.slots.get() {
            // SAFETY: below the number of slots, which does not change any more.
            let slot = unsafe { self.slot(index) };
            // SAFETY: a slot of this slab.
            let slot = unsafe { self.at(slot) };
            if slot.state.get() & LIVE != 0 {
                let queued = slot.state.get() & QUEUED;
                slot.state.set(queued);
                slot.id.set(slot.id.get().next());
                self.live.set(self.live.get() - 1);
                // SAFETY: the slot was live and is not any more, so its future is dropped once; no poll is under way.
                unsafe { (slot.drop.get())(slot.body.0.get().cast()) };
            }
        }
        before
    }

    /// Adds a chunk of slots and makes the ready queue long enough for them.
    #[cold]
    #[inline(never)]
    fn grow(&self) {
        let first = self.slots.get();
        let slots = first as usize + CHUNK_SLOTS;
        let slots_new = u32::try_from(slots).expect("a worker holds fewer than 2^32 tasks");
        let chunk: Box<[Slot]> = (first..slots_new)
            .map(|index| Slot {
                poll: Cell::new(poll_nothing),
                drop: Cell::new(drop_nothing),
                id: Cell::new(TaskId { index, generation: 0 }),
                next_free: Cell::new(NO_SLOT),
                state: Cell::new(0),
                future: Cell::new(std::ptr::null()),
                body: Body(UnsafeCell::new(MaybeUninit::uninit())),
            })
            .collect();
        let chunk = NonNull::from(Box::leak(chunk)).cast::<Slot>();
        // SAFETY: no other reference to the vector is alive: `slot` ends its own before it returns.
        unsafe { (*self.chunks.get()).push(chunk) };
        self.grow_ready(slots);
        self.slots.set(slots_new);
        for index in (first..slots_new).rev() {
            // SAFETY: these slots exist as of now.
            let slot = unsafe { self.slot(index) };
            // SAFETY: a slot of this slab.
            self.release(unsafe { self.at(slot) });
        }
    }

    fn grow_ready(&self, slots: usize) {
        let length_old = if self.slots.get() == 0 { 0 } else { self.ready_mask.get() + 1 };
        if length_old >= slots {
            return;
        }
        let length = slots.next_power_of_two();
        let queue: Box<[NonNull<Slot>]> = vec![NonNull::dangling(); length].into_boxed_slice();
        let queue = NonNull::from(Box::leak(queue)).cast::<NonNull<Slot>>();
        for position in self.ready_head.get()..self.ready_tail.get() {
            // SAFETY: positions from head to tail lie in the old queue and hold values.
            let slot = unsafe { self.ready.get().add(position & self.ready_mask.get()).read() };
            // SAFETY: the new queue is longer than the old one and private still.
            unsafe { queue.add(position & (length - 1)).write(slot) };
        }
        self.free_ready(length_old);
        self.ready.set(queue);
        self.ready_mask.set(length - 1);
    }

    fn free_ready(&self, length: usize) {
        if length > 0 {
            let queue = NonNull::slice_from_raw_parts(self.ready.get(), length);
            // SAFETY: the queue was leaked from a box of this length, and its pointer is replaced or gone afterwards.
            drop(unsafe { Box::from_raw(queue.as_ptr()) });
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.clear();
        if self.slots.get() > 0 {
            self.free_ready(self.ready_mask.get() + 1);
        }
        for chunk in self.chunks.get_mut().drain(..) {
            let slots = NonNull::slice_from_raw_parts(chunk, CHUNK_SLOTS);
            // SAFETY: each chunk was leaked from a box of this many slots and is freed once; all futures are gone.
            drop(unsafe { Box::from_raw(slots.as_ptr()) });
        }
    }
}

/// Ends a round of polls, also when a future unwinds.
struct PollingReset<'a>(&'a Tasks);

impl Drop for PollingReset<'_> {
    fn drop(&mut self) {
        self.0.polling.set(false);
        self.0.origin.current.set(TaskId::NONE);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
