//! Requests between workers: the caller's future and the handler's promise to answer.
//!
//! Owns: one table of open calls per worker, and the values of answers from their arrival until the caller takes them
//! (the futures of `Virtual domains §5.2`, without a shared cache line: the answer travels back over the ring).
//! Never: touches an atomic. A [`Call`] belongs to the worker that made it.
//!
//! # Invariants
//! - Each [`Reply`] completes its call exactly once: with a value, or as lost when it is dropped. A call that is
//!   dropped early keeps its entry until that completion has come, so an entry is never reused under a reply that is
//!   still on its way, and no generation counter can wrap.
//!
//! # Why the unsafe code is sound
//! - An entry's bytes hold an `R` (or a `Box<R>`) exactly while its state is `Answered`. The types agree, because the
//!   entry's index is only held by the one `Call<R>` and the one `Reply<R>` that were made together, and completions
//!   are applied only on the worker (same runtime, same id) that holds the entry.
//! - The table is reached by one thread and by one function at a time: no reference to it lives while anything outside
//!   this file runs, destructors of answers included.

use std::cell::UnsafeCell;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::shared::RuntimeId;
use crate::task::TaskId;
use crate::worker::{Core, Shard, Worker};
use crate::{WorkerId, current};

/// The handler dropped its [`Reply`] (or, outside the runtime, its oneshot sender) without an answer: it was stopped,
/// or it gave up. Whether its effects took place is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lost;

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request was dropped without an answer, as happens when the runtime stops: ask again once it runs")
    }
}

impl std::error::Error for Lost {}

/// An answer of up to this size (and alignment of at most 16) lies in the table; a larger one is boxed on arrival.
const INLINE_ANSWER_BYTES: usize = 112;

#[repr(C, align(16))]
struct Answer(MaybeUninit<[u8; INLINE_ANSWER_BYTES]>);

impl Answer {
    const fn fits<R>() -> bool {
        size_of::<R>() <= INLINE_ANSWER_BYTES && align_of::<R>() <= 16
    }

    #[inline]
    fn write<R>(&mut self, value: R) {
        let bytes = self.0.as_mut_ptr();
        if const { Self::fits::<R>() } {
            // SAFETY: the answer is large and aligned enough for an `R`; it is `MaybeUninit`, so nothing is dropped.
            unsafe { bytes.cast::<R>().write(value) };
        } else {
            // SAFETY: a box fits.
            unsafe { bytes.cast::<Box<R>>().write(Box::new(value)) };
        }
    }

    /// # Safety
    /// `write::<R>` was called since the last `take`.
    #[inline]
    unsafe fn take<R>(&self) -> R {
        let bytes = self.0.as_ptr();
        if const { Self::fits::<R>() } {
            // SAFETY: written as an `R`, and taken once.
            unsafe { bytes.cast::<R>().read() }
        } else {
            // SAFETY: written as a `Box<R>`, and taken once.
            *unsafe { bytes.cast::<Box<R>>().read() }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In the free list; the next entry of it is in `next_free`.
    Free,
    /// The answer has not come; the call is alive.
    Waiting,
    /// The answer has not come; the call was dropped.
    Abandoned,
    /// The answer is in the entry.
    Answered,
    /// The reply was dropped without an answer.
    Lost,
}

struct Entry {
    waiter: TaskId,
    next_free: u32,
    state: State,
    answer: Answer,
}

const NO_ENTRY: u32 = u32::MAX;

/// The open calls of one worker.
pub(crate) struct Calls {
    table: UnsafeCell<Table>,
}

struct Table {
    entries: Vec<Entry>,
    free: u32,
    /// Number of entries that are not in the free list.
    open: usize,
}

impl Calls {
    pub(crate) fn new() -> Self {
        Self { table: UnsafeCell::new(Table { entries: Vec::new(), free: NO_ENTRY, open: 0 }) }
    }

    /// # Safety
    /// While the reference is used, no other is made: nothing outside this file is called, nor any destructor of `R`.
    #[expect(clippy::mut_from_ref, reason = "one thread, and one user at a time by the contract")]
    #[inline(always)]
    unsafe fn table(&self) -> &mut Table {
        // SAFETY: the caller keeps to the contract, and `Calls` is not `Sync`.
        unsafe { &mut *self.table.get() }
    }

    #[inline]
    fn open(&self) -> u32 {
        // SAFETY: only methods of the table are called.
        let table = unsafe { self.table() };
        if table.free == NO_ENTRY {
            table.grow();
        }
        let index = table.free;
        let entry = &mut table.entries[index as usize];
        table.free = entry.next_free;
        table.open += 1;
        entry.state = State::Waiting;
        entry.waiter = TaskId::NONE;
        index
    }

    /// Puts an answer into its entry and returns the task that waits for it.
    #[inline]
    fn complete<R>(&self, index: u32, value: R) -> TaskId {
        // SAFETY: only methods of the table are called; a value nobody wants is dropped after the last use.
        let table = unsafe { self.table() };
        let entry = &mut table.entries[index as usize];
        if entry.state == State::Waiting {
            entry.answer.write(value);
            entry.state = State::Answered;
            return entry.waiter;
        }
        table.close_abandoned(index);
        drop(value);
        TaskId::NONE
    }

    #[cold]
    fn lose(&self, index: u32) -> TaskId {
        // SAFETY: only methods of the table are called.
        let table = unsafe { self.table() };
        let entry = &mut table.entries[index as usize];
        if entry.state == State::Waiting {
            entry.state = State::Lost;
            return entry.waiter;
        }
        table.close_abandoned(index);
        TaskId::NONE
    }

    /// Calls whose answer has not come, or was not taken.
    #[inline]
    pub(crate) fn open_len(&self) -> usize {
        // SAFETY: a number is read.
        unsafe { self.table() }.open
    }
}

impl Table {
    #[cold]
    fn grow(&mut self) {
        let first = self.entries.len();
        let length = (first * 2).max(64);
        self.entries.resize_with(length, || Entry {
            waiter: TaskId::NONE,
            next_free: NO_ENTRY,
            state: State::Free,
            answer: Answer(MaybeUninit::uninit()),
        });
        self.open += length - first;
        for index in (first..length).rev() {
            self.close(u32::try_from(index).expect("a worker has fewer than 2^32 open calls"));
        }
    }

    #[cold]
    fn close_abandoned(&mut self, index: u32) {
        debug_assert_eq!(self.entries[index as usize].state, State::Abandoned);
        self.close(index);
    }

    #[inline]
    fn close(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        entry.state = State::Free;
        self.open -= 1;
        entry.next_free = self.free;
        self.free = index;
    }
}

/// The answer to a request that was sent to another worker: a future for the tasks of the worker that sent it.
///
/// It wakes the task that polled it last. Dropping it early is safe: the answer is discarded when it comes.
#[must_use = "the answer to a call is only known by awaiting it"]
pub struct Call<R> {
    core: Rc<Core>,
    /// The call's entry; `NO_ENTRY` once the answer was taken.
    index: u32,
    answer: PhantomData<R>,
}

impl<R> Unpin for Call<R> {}

impl<R: Send + 'static> Future for Call<R> {
    type Output = Result<R, Lost>;

    /// # Panics
    /// If polled again after it was ready.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let index = self.index;
        assert!(index != NO_ENTRY, "a call must not be polled after its answer was taken");
        // SAFETY: only methods of the table are called, and the answer is moved, not dropped.
        let table = unsafe { self.core.calls.table() };
        let entry = &mut table.entries[index as usize];
        let result = match entry.state {
            State::Waiting => {
                entry.waiter = self.core.tasks.current();
                return Poll::Pending;
            }
            // SAFETY: the entry is this call's, is answered, and is closed at once.
            State::Answered => Ok(unsafe { entry.answer.take::<R>() }),
            _ => Err(Lost),
        };
        table.close(index);
        self.index = NO_ENTRY;
        Poll::Ready(result)
    }
}

impl<R> Drop for Call<R> {
    #[inline]
    fn drop(&mut self) {
        if self.index != NO_ENTRY {
            self.abandon();
        }
    }
}

impl<R> Call<R> {
    #[cold]
    fn abandon(&mut self) {
        // SAFETY: only methods of the table are called; the answer is dropped after the last use.
        let table = unsafe { self.core.calls.table() };
        let entry = &mut table.entries[self.index as usize];
        if entry.state == State::Waiting {
            entry.state = State::Abandoned;
            return;
        }
        // SAFETY: the entry is this call's, is answered, and is closed at once.
        let answer = (entry.state == State::Answered).then(|| unsafe { entry.answer.take::<R>() });
        table.close(self.index);
        drop(answer);
    }
}

/// The promise to answer one [`Call`]. Dropped without an answer, it makes the call resolve to [`Lost`].
#[must_use = "a reply that is dropped makes its call resolve to `Lost`"]
pub struct Reply<R> {
    runtime: RuntimeId,
    index: u32,
    /// A `WorkerId` as wide as the other two: a struct without padding is copied in whole words.
    home: u32,
    answer: PhantomData<fn(R)>,
}

impl<R: Send + 'static> Reply<R> {
    /// Sends the answer to the worker that asked, from the worker that this runs on.
    ///
    /// # Panics
    /// If `worker` belongs to another runtime than the call.
    #[inline(always)]
    pub fn send<S: Shard>(self, worker: &Worker<S>, value: R) {
        assert!(worker.runtime() == self.runtime, "a reply must be sent within the runtime of its call");
        let index = self.index;
        let home = self.home();
        // The answer is the completion now; the destructor would report a loss.
        std::mem::forget(self);
        worker.send(home, move |home| {
            let waiter = home.core().calls.complete(index, value);
            home.core().tasks.wake(waiter);
        });
    }
}

impl<R> Reply<R> {
    /// The worker that waits for the answer.
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "it was a `u16`")]
    pub fn home(&self) -> WorkerId {
        WorkerId(self.home as u16)
    }
}

impl<R> Drop for Reply<R> {
    fn drop(&mut self) {
        current::lose(self.runtime, self.home(), self.index);
    }
}

/// Marks the call at `index` of this worker as lost and wakes whoever waits for it.
pub(crate) fn on_lost<S: Shard>(home: &Worker<S>, index: u32) {
    let waiter = home.core().calls.lose(index);
    home.core().tasks.wake(waiter);
}

/// Opens a call on its home worker.
#[inline]
pub(crate) fn open<R>(core: &Rc<Core>, runtime: RuntimeId, home: WorkerId) -> (Call<R>, Reply<R>) {
    let index = core.calls.open();
    let call = Call { core: Rc::clone(core), index, answer: PhantomData };
    (call, Reply { runtime, index, home: u32::from(home.0), answer: PhantomData })
}

#[cfg(all(test, not(loom)))]
mod tests;
