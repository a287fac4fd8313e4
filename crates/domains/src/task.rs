//! Tasks in their slots: a request is written by a client, run in place by a worker, and replaced by its reply.
//!
//! Owns: the layout of a slot's payload and of a reply, and the functions per type of task behind one pointer
//! ([`TaskTable`]). Never: knows of slots' turns (`inbox`) or of rings (`client`).
//!
//! # Layout
//! - A request is its closure, before it the keys of its structures but the first, which the slot has beside the payload, where anybody may
//!   read it: inline if that fits [`PAYLOAD_BYTES`] (a closure of up to 48 bytes on one structure does), else boxed with its pointer in the
//!   payload: one allocation, said by [`is_inline`].
//! - A reply of up to 8 bytes lies in the word of the reply line, one of up to [`PAYLOAD_BYTES`] in the payload, a larger one
//!   is boxed with its pointer in the word. Of a task that failed the word has a [`Failure`], and the payload what the panic carried.
//!
//! # Why the unsafe code is sound
//! Each function of a table is written with the request or the reply of its own type, by a client that chose the table for
//! that type; the caller passes the payload and the word of the slot whose header named the table, in its turn. What is
//! read is moved out, exactly once: a request by `run` that did not answer [`Outcome::Elsewhere`], or by `drop_request`; a
//! reply by `take_reply` or `drop_reply`.

use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use crate::structures::{Key, Missing, Reach, Target};

/// Bytes of a slot beside its header and the key of a structure.
pub(crate) const PAYLOAD_BYTES: usize = 48;
const PAYLOAD_ALIGN: usize = 8;
const WORD_BYTES: usize = 8;

/// Reasons for which a task has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// The task panicked; this is what the panic carried. An owned structure is poisoned by it.
    #[error("the task panicked ({0}); its structure is poisoned if it is an owned one: replace it")]
    Panicked(Panic),
    /// A task before this one panicked while it had the owned structure, which nobody has replaced since.
    #[error(
        "an earlier task panicked inside this owned structure: replace the structure before further tasks"
    )]
    Poisoned,
    /// The structure was removed, or is one of other domains than the client's.
    #[error(
        "the structure was removed from these domains, or is in others: place it again, or drop its handle"
    )]
    Removed,
    /// The session of its worker could not be made: making it panicked.
    #[error("making the structure's session for its worker panicked: mend `Sessions::session`")]
    NoSession,
    /// The structures of the task came to lie with different workers after it was submitted.
    #[error("the structures of this task no longer lie with one worker: move them into one domain")]
    Apart,
    /// The task was cancelled before it ran.
    #[error("the task was cancelled before it ran")]
    Cancelled,
    /// The wait was inside a task whose worker would wait for itself, over other workers perhaps. A wait that is refused at once leaves the
    /// task to run all the same, and uses up its future, if it was one's; one that comes to be in vain because a structure moved ends with its task,
    /// which does not run. What was pushed to a burst is still to be taken from it.
    #[error(
        "a task waited for one that its own worker has to run: return the future from the task before it is polled or waited for, or call from outside"
    )]
    WouldDeadlock,
    /// The domains were shut down before the task ran.
    #[error("the domains were shut down before the task ran")]
    ShutDown,
}

/// The payload of a panic.
// In a mutex, so that the error may be looked at by several threads; it is never locked for longer than a look.
pub struct Panic(Mutex<Box<dyn Any + Send>>);

impl Panic {
    pub(crate) fn new(carried: Box<dyn Any + Send>) -> Self {
        Self(Mutex::new(carried))
    }

    /// The payload of the panic, for `std::panic::resume_unwind`.
    #[must_use]
    pub fn into_inner(self) -> Box<dyn Any + Send> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its message, if it carried one.
    #[must_use]
    pub fn message(&self) -> Option<String> {
        message_of(&**self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The message that a panic carried, if it carried one.
pub(crate) fn message_of(carried: &(dyn Any + Send)) -> Option<String> {
    let text = carried.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| carried.downcast_ref::<String>().cloned())
}

impl std::fmt::Display for Panic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.message().as_deref().unwrap_or("without a message"))
    }
}

impl std::fmt::Debug for Panic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Panic").field(&self.message()).finish()
    }
}

impl TaskError {
    /// The same reason once more, for another task that it ended; of a panic, its message.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Panicked(panic) => Self::Panicked(Panic::new(Box::new(panic.to_string()))),
            Self::Poisoned => Self::Poisoned,
            Self::Removed => Self::Removed,
            Self::NoSession => Self::NoSession,
            Self::Apart => Self::Apart,
            Self::Cancelled => Self::Cancelled,
            Self::WouldDeadlock => Self::WouldDeadlock,
            Self::ShutDown => Self::ShutDown,
        }
    }
}

/// The same reasons as a worker writes them: a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
#[repr(u64)]
pub enum Failure {
    Panicked,
    Poisoned,
    Removed,
    NoSession,
    Apart,
    Cancelled,
    WouldDeadlock,
    ShutDown,
}

/// The end of one attempt to run a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The reply is written.
    Done,
    /// The failure is written; the request is gone.
    Failed,
    /// This structure is not here; the request is as it was.
    Elsewhere(Key),
}

/// The functions of one type of task. Eight bytes aligned: the low bits of its address carry a header's tags.
#[repr(align(8))]
pub(crate) struct TaskTable {
    /// Runs the request in the payload, whose first structure is `first`, and writes reply or failure.
    pub(crate) run: unsafe fn(first: Key, payload: *mut u8, word: *mut u8, reach: &Reach) -> Outcome,
    /// Drops the request in the payload.
    pub(crate) drop_request: unsafe fn(payload: *mut u8),
    /// Drops the reply of a task that did not fail.
    pub(crate) drop_reply: unsafe fn(payload: *mut u8, word: *mut u8),
}

/// Work on the structures that a target names.
pub(crate) trait Job<T: Target>: Send + 'static {
    type Reply: Send + 'static;
    /// # Safety
    /// All keys were found in this reach, and no access to it exists.
    unsafe fn run(self, keys: &T::Keys, reach: &Reach) -> Self::Reply;
}

/// A closure as a job.
pub(crate) struct Closure<F>(pub(crate) F);

impl<T: Target, F, R> Job<T> for Closure<F>
where
    F: for<'a> FnOnce(T::Access<'a>) -> R + Send + 'static,
    R: Send + 'static,
{
    type Reply = R;
    #[inline(always)]
    unsafe fn run(self, keys: &T::Keys, reach: &Reach) -> R {
        // SAFETY: by this function's own contract.
        (self.0)(unsafe { T::access(keys, reach) })
    }
}

struct Request<T: Target, J> {
    /// The keys of its structures but the first.
    rest: T::Rest,
    job: J,
}

/// The functions for jobs `J` on targets `T`.
struct TableOf<T, J>(PhantomData<fn(T, J)>);

impl<T: Target, J: Job<T>> TableOf<T, J> {
    const TABLE: TaskTable = TaskTable {
        run: run::<T, J>,
        drop_request: drop_request::<T, J>,
        drop_reply: drop_reply::<J::Reply>,
    };
}

/// The table for jobs of this type.
pub(crate) fn table<T: Target, J: Job<T>>() -> &'static TaskTable {
    &TableOf::<T, J>::TABLE
}

/// Returns whether a value of type `V` lies in memory of so many bytes.
const fn fits<V>(bytes: usize) -> bool {
    size_of::<V>() <= bytes && align_of::<V>() <= PAYLOAD_ALIGN
}

/// Returns whether tasks with this closure on this target cost no allocation.
pub(crate) const fn is_inline<T: Target, J>() -> bool {
    fits::<Request<T, J>>(PAYLOAD_BYTES)
}

/// Writes a request.
///
/// # Safety
/// `payload` leads to [`PAYLOAD_BYTES`] writable bytes, aligned to eight, in the caller's turn.
#[inline(always)]
pub(crate) unsafe fn write_request<T: Target, J: Job<T>>(payload: *mut u8, rest: T::Rest, job: J) {
    let request = Request::<T, J> { rest, job };
    if is_inline::<T, J>() {
        // SAFETY: it fits, and the caller lends the memory.
        unsafe { payload.cast::<Request<T, J>>().write(request) };
    } else {
        // SAFETY: a pointer fits.
        unsafe { payload.cast::<*mut Request<T, J>>().write(Box::into_raw(Box::new(request))) };
    }
}

/// The request in a payload, wherever it lies.
///
/// # Safety
/// The payload has a request of this type.
#[inline(always)]
unsafe fn request<T: Target, J>(payload: *const u8) -> *const Request<T, J> {
    if is_inline::<T, J>() {
        payload.cast()
    } else {
        // SAFETY: a request of this type that is not inline is a pointer.
        unsafe { payload.cast::<*const Request<T, J>>().read() }
    }
}

/// Moves the job out of a payload.
///
/// # Safety
/// The payload has a request of this type, which is gone afterwards.
#[inline(always)]
pub(crate) unsafe fn take_job<T: Target, J: Job<T>>(payload: *mut u8) -> J {
    // SAFETY: by this function's own contract.
    let request = unsafe { request::<T, J>(payload) };
    if is_inline::<T, J>() {
        // SAFETY: it is there, and the caller uses it no more.
        unsafe { request.read().job }
    } else {
        // SAFETY: it came from `Box::into_raw`, and the caller uses it no more.
        unsafe { Box::from_raw(request.cast_mut()).job }
    }
}

unsafe fn run<T: Target, J: Job<T>>(first: Key, payload: *mut u8, word: *mut u8, reach: &Reach) -> Outcome {
    // SAFETY: the caller passes a payload with a request of this type.
    let keys = T::join_keys(first, unsafe { (*request::<T, J>(payload)).rest });
    match T::find(&keys, reach) {
        Ok(()) => {}
        Err(Missing::Elsewhere(key)) => return Outcome::Elsewhere(key),
        Err(Missing::Failed(failure)) => {
            // SAFETY: the request is there still, and nobody uses it after this.
            unsafe { drop_request::<T, J>(payload) };
            // SAFETY: the word is the caller's to write.
            unsafe { write_failure(word, failure) };
            return Outcome::Failed;
        }
    }
    // SAFETY: the request is there, and this is where it ends.
    let job = unsafe { take_job::<T, J>(payload) };
    let result = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: all keys were found, and this worker runs one task at a time.
        unsafe { job.run(&keys, reach) }
    }));
    match result {
        Ok(reply) => {
            // SAFETY: payload and word are this task's, and the request has been moved out.
            unsafe { write_reply(payload, word, reply) };
            Outcome::Done
        }
        Err(panic) => {
            T::poison(&keys, reach);
            // SAFETY: as above; a fat pointer fits the payload.
            unsafe { payload.cast::<Box<dyn Any + Send>>().write(panic) };
            // SAFETY: as above.
            unsafe { write_failure(word, Failure::Panicked) };
            Outcome::Failed
        }
    }
}

unsafe fn drop_request<T: Target, J: Job<T>>(payload: *mut u8) {
    // SAFETY: the caller passes a payload with a request of this type.
    let job = unsafe { take_job::<T, J>(payload) };
    drop_quietly(job);
}

/// Drops what belongs to a user on whatever thread it lies; a panic of its destructor has nobody to go to.
pub(crate) fn drop_quietly<V>(value: V) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value)))
        && let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(panic)))
    {
        // Whatever panics when what its panic carried is dropped may do so for ever.
        std::mem::forget(panic);
    }
}

/// Writes why a task has no result.
///
/// # Safety
/// `word` leads to eight writable bytes, aligned.
#[inline]
pub(crate) unsafe fn write_failure(word: *mut u8, failure: Failure) {
    // SAFETY: by this function's own contract.
    unsafe { word.cast::<u64>().write(failure as u64) };
}

/// # Safety
/// Payload and word are the caller's to write.
#[inline(always)]
unsafe fn write_reply<R>(payload: *mut u8, word: *mut u8, reply: R) {
    if fits::<R>(WORD_BYTES) {
        // SAFETY: it fits the word.
        unsafe { word.cast::<R>().write(reply) };
    } else if fits::<R>(PAYLOAD_BYTES) {
        // SAFETY: it fits the payload.
        unsafe { payload.cast::<R>().write(reply) };
    } else {
        // SAFETY: a pointer fits the word.
        unsafe { word.cast::<*mut R>().write(Box::into_raw(Box::new(reply))) };
    }
}

/// Moves the reply of a task that did not fail out of its slot.
///
/// # Safety
/// The slot has a reply of this type, which is gone afterwards.
#[inline(always)]
pub(crate) unsafe fn take_reply<R>(payload: *mut u8, word: *mut u8) -> R {
    if fits::<R>(WORD_BYTES) {
        // SAFETY: the reply lies in the word.
        unsafe { word.cast::<R>().read() }
    } else if fits::<R>(PAYLOAD_BYTES) {
        // SAFETY: the reply lies in the payload.
        unsafe { payload.cast::<R>().read() }
    } else {
        // SAFETY: the word is a pointer that came from `Box::into_raw`.
        unsafe { *Box::from_raw(word.cast::<*mut R>().read()) }
    }
}

/// Moves the failure of a task out of its slot.
///
/// # Safety
/// The slot has a failure, which is gone afterwards.
#[cold]
pub(crate) unsafe fn take_failure(payload: *mut u8, word: *mut u8) -> TaskError {
    // SAFETY: the word of a failed task is a failure.
    match unsafe { word.cast::<Failure>().read() } {
        Failure::Panicked => {
            // SAFETY: what the panic carried lies in the payload.
            TaskError::Panicked(Panic::new(unsafe { payload.cast::<Box<dyn Any + Send>>().read() }))
        }
        failure => TaskError::from(failure),
    }
}

impl From<Failure> for TaskError {
    /// The same reason; of a panic, without what it carried.
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Panicked => Self::Panicked(Panic::new(Box::new(()))),
            Failure::Poisoned => Self::Poisoned,
            Failure::Removed => Self::Removed,
            Failure::NoSession => Self::NoSession,
            Failure::Apart => Self::Apart,
            Failure::Cancelled => Self::Cancelled,
            Failure::WouldDeadlock => Self::WouldDeadlock,
            Failure::ShutDown => Self::ShutDown,
        }
    }
}

unsafe fn drop_reply<R>(payload: *mut u8, word: *mut u8) {
    // SAFETY: the caller passes a slot with a reply of this type.
    drop_quietly(unsafe { take_reply::<R>(payload, word) });
}
