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
use std::fmt;
use std::future::Future;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::pin::Pin;
use std::ptr::NonNull;
use std::rc::Rc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use crate::WorkerId;
use crate::ring::prefetch_line;
use crate::shared::RuntimeId;
use crate::waker::TaskWaker;

/// A future of at most this many bytes (and alignment of at most 64) lies in its slot; a larger one is boxed.
pub const INLINE_TASK_BYTES: usize = 1408;
const INLINE_TASK_ALIGN: usize = 64;
/// Slots are allocated this many at a time.
const CHUNK_SLOTS: usize = 64;

/// Number of ready tasks below which they are all in the cache.
const LONG_QUEUE: usize = 96;
/// Number of polls ahead for which the memory of a task is prefetched, and of its cache lines: most futures use no
/// more.
const POLLED_AHEAD: usize = 2;
const LINES_AHEAD: usize = 10;

/// Names one task of one worker. Ids of finished tasks are never mistaken for those of their successors in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TaskId {
    index: u32,
    generation: u32,
}

impl TaskId {
    /// Names no task: waking it does nothing.
    pub const NONE: Self = Self { index: u32::MAX, generation: u32::MAX };

    /// The slot of the task: dense from 0, reused after the task finished, fit as an index into a side table.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.index as usize
    }

    /// The id of the next task in the same slot.
    const fn next(self) -> Self {
        Self { index: self.index, generation: self.generation.wrapping_add(1) }
    }

    /// Times that the slot had been used before; together with the index it is unique (until it wraps at 2^32).
    #[inline]
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.generation
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE {
            return f.write_str("t-none");
        }
        write!(f, "t{}.{}", self.index, self.generation)
    }
}

/// The slot holds a future.
const LIVE: u8 = 1;
/// The slot is in the ready queue.
const QUEUED: u8 = 2;

/// Polls the future at the pointer; when it is ready, drops it and returns true.
type PollFn = unsafe fn(*mut u8, &mut Context<'_>) -> bool;
/// Drops the future at the pointer.
type DropFn = unsafe fn(*mut u8);

#[repr(C, align(64))]
struct Body(UnsafeCell<MaybeUninit<[u8; INLINE_TASK_BYTES]>>);

/// One task. Its size is an odd number of cache lines, so that the heads of a chunk's slots spread over all cache sets.
#[repr(C, align(64))]
struct Slot {
    poll: Cell<PollFn>,
    drop: Cell<DropFn>,
    /// The id of the task in this slot, or of the next one.
    id: Cell<TaskId>,
    /// The next slot of the free list, while this one is in it.
    next_free: Cell<u32>,
    state: Cell<u8>,
    /// Address of the future: in `body`, or in a box.
    future: Cell<*const u8>,
    body: Body,
}

const _: () = assert!((size_of::<Slot>() / 64) % 2 == 1);

unsafe fn poll_inline<F: Future<Output = ()>>(body: *mut u8, context: &mut Context<'_>) -> bool {
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

unsafe fn drop_inline<F>(body: *mut u8) {
    // SAFETY: the caller took the slot out of use and hands over the `F` in it.
    unsafe { body.cast::<F>().drop_in_place() };
}

/// The origin of the wakers of these tasks.
struct Origin {
    runtime: RuntimeId,
    home: WorkerId,
    /// The task being polled, or `NONE`. Written between polls only.
    current: Cell<TaskId>,
}

/// The waker in the context of every poll: it costs nothing until a future clones it.
static CONTEXT_WAKER: RawWakerVTable =
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

unsafe fn poll_nothing(_: *mut u8, _: &mut Context<'_>) -> bool {
    true
}

unsafe fn drop_nothing(_: *mut u8) {}

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

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::RefCell;

    use proptest::prelude::*;

    use super::*;

    fn tasks() -> Tasks {
        Tasks::new(RuntimeId::new(), WorkerId(0))
    }

    /// Polled `polls` times before it is ready; writes its name down each time.
    struct Countdown {
        polls: usize,
        name: usize,
        log: Rc<RefCell<Vec<usize>>>,
        alive: Rc<Cell<usize>>,
    }

    impl Countdown {
        fn new(name: usize, polls: usize, log: &Rc<RefCell<Vec<usize>>>, alive: &Rc<Cell<usize>>) -> Self {
            alive.set(alive.get() + 1);
            Self { polls, name, log: Rc::clone(log), alive: Rc::clone(alive) }
        }
    }

    impl Drop for Countdown {
        fn drop(&mut self) {
            self.alive.set(self.alive.get() - 1);
        }
    }

    impl Future for Countdown {
        type Output = ();
        fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            let name = self.name;
            self.log.borrow_mut().push(name);
            if self.polls == 0 {
                return Poll::Ready(());
            }
            self.polls -= 1;
            Poll::Pending
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Spawn { polls: usize, large: bool },
        Wake(usize),
        Poll(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0..4usize, proptest::bool::weighted(0.1)).prop_map(|(polls, large)| Step::Spawn { polls, large }),
            4 => (0..200usize).prop_map(Step::Wake),
            2 => (1..40usize).prop_map(Step::Poll),
        ];
        proptest::collection::vec(step, 1..if cfg!(miri) { 60 } else { 400 })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 3 } else { 256 }, ..ProptestConfig::default() })]

        /// Tasks are polled in the order they became ready, each once per wake, and stale ids wake nobody.
        #[test]
        fn behaves_like_a_list_of_futures(steps in steps()) {
            let tasks = tasks();
            let log = Rc::default();
            let alive = Rc::default();
            // The model: for every task ever, its id and the polls it still needs (none when finished).
            let mut model: Vec<(TaskId, Option<usize>)> = Vec::new();
            let mut ready: Vec<usize> = Vec::new();
            for step in steps {
                match step {
                    Step::Spawn { polls, large } => {
                        let countdown = Countdown::new(model.len(), polls, &log, &alive);
                        let id = if large {
                            let ballast = [7u8; INLINE_TASK_BYTES];
                            tasks.spawn(async move { countdown.await; assert_eq!(ballast[INLINE_TASK_BYTES - 1], 7); })
                        } else {
                            tasks.spawn(countdown)
                        };
                        ready.push(model.len());
                        model.push((id, Some(polls)));
                    }
                    Step::Wake(which) => if !model.is_empty() {
                        let name = which % model.len();
                        tasks.wake(model[name].0);
                        if model[name].1.is_some() && !ready.contains(&name) {
                            ready.push(name);
                        }
                    },
                    Step::Poll(most) => {
                        let polled = tasks.poll_ready(most);
                        let expected: Vec<usize> = ready.drain(..most.min(ready.len())).collect();
                        prop_assert_eq!(polled, expected.len());
                        prop_assert_eq!(&*log.borrow(), &expected);
                        log.borrow_mut().clear();
                        for name in expected {
                            model[name].1 = model[name].1.and_then(|polls| polls.checked_sub(1));
                        }
                    }
                }
                let live = model.iter().filter(|(_, polls)| polls.is_some()).count();
                prop_assert_eq!(tasks.live(), live);
                prop_assert_eq!(alive.get(), live);
                prop_assert_eq!(tasks.ready_len(), ready.len());
            }
            drop(tasks);
            prop_assert_eq!(alive.get(), 0);
        }
    }

    #[test]
    fn a_task_woken_in_its_last_poll_frees_its_slot_once() {
        let tasks = Rc::new(tasks());
        let inner = Rc::clone(&tasks);
        let first = tasks.spawn(async move { inner.wake(inner.current()) });
        assert_eq!(tasks.poll_ready(1), 1);
        assert_eq!((tasks.live(), tasks.ready_len()), (0, 1));
        let second = tasks.spawn(async {});
        assert_ne!(first.index(), second.index(), "the first slot is queued still");
        assert_eq!(tasks.poll_ready(8), 1);
        let third = tasks.spawn(async {});
        assert!([first.index(), second.index()].contains(&third.index()));
        assert_eq!(tasks.poll_ready(8), 1);
    }

    #[test]
    fn tasks_may_spawn_while_they_are_polled() {
        let tasks = Rc::new(tasks());
        let (inner, ran) = (Rc::clone(&tasks), Rc::new(Cell::new(0)));
        let counter = Rc::clone(&ran);
        tasks.spawn(async move {
            for _ in 0..3 * CHUNK_SLOTS {
                let counter = Rc::clone(&counter);
                inner.spawn(async move { counter.set(counter.get() + 1) });
            }
        });
        assert_eq!(tasks.poll_ready(usize::MAX), 1 + 3 * CHUNK_SLOTS);
        assert_eq!(ran.get(), 3 * CHUNK_SLOTS);
    }

    #[test]
    fn ids_of_other_workers_and_none_wake_nobody() {
        let tasks = tasks();
        tasks.wake(TaskId::NONE);
        tasks.wake(TaskId { index: 5, generation: 0 });
        assert_eq!(tasks.ready_len(), 0);
    }

    #[test]
    fn after_clear_nothing_is_taken() {
        let tasks = tasks();
        let held = Rc::new(());
        let captured = Rc::clone(&held);
        tasks.spawn(async move {
            let _captured = captured;
            std::future::pending::<()>().await;
        });
        assert_eq!(tasks.poll_ready(8), 1);
        assert_eq!(tasks.clear(), 1);
        assert_eq!(Rc::strong_count(&held), 1);
        assert_eq!(tasks.spawn(async {}), TaskId::NONE);
        assert_eq!(tasks.poll_ready(8), 0);
    }

    #[test]
    fn a_panic_passes_through_and_leaves_the_slab_whole() {
        let tasks = tasks();
        let held = Rc::new(());
        let captured = Rc::clone(&held);
        tasks.spawn(async move {
            let _captured = captured;
            panic!("planted");
        });
        tasks.spawn(async {});
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| tasks.poll_ready(8)));
        assert!(panic.is_err());
        assert_eq!(tasks.poll_ready(8), 1, "the other task is polled");
        drop(tasks);
        assert_eq!(Rc::strong_count(&held), 1, "the future that panicked is dropped");
    }
}
