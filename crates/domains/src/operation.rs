//! Operations: tasks of one type that a worker runs together, so that their cache misses overlap.
//!
//! Owns: how a group of them is taken out of its slots and answered. Never: decides which slots are in a group (`polled`).
//!
//! # Invariants
//! - A group is of consecutive slots of one ring, with operations of one type on the same structures, in the ring's order; so grouping
//!   changes the order of nothing.
//! - A panic is the result of the whole group: the first operation has what the panic carried, the others its message.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrayvec::ArrayVec;

use crate::planted::{Bug, planted};
use crate::structures::{Key, Missing, Reach, Target};
use crate::task::{Failure, Job, drop_request, keys_of, take_job, write_failure, write_panic, write_reply};

/// Operations of a group at most.
pub const GROUP_MAX: usize = 16;

/// Operations that run together, or their replies.
pub type Group<V> = ArrayVec<V, GROUP_MAX>;

/// A task as a value, which a worker runs together with those of its type that come right behind it in the same ring.
///
/// ```
/// use atrapos_domains::{Configuration, Domains, Group, Operation, Owned};
/// use atrapos_topology::{LiveOptions, Machine};
///
/// /// Reads one place of a table.
/// struct Read(usize);
///
/// impl Operation<Owned<Vec<u64>>> for Read {
///     type Reply = u64;
///     fn run_group(reads: Group<Self>, table: &mut Vec<u64>) -> Group<u64> {
///         // An index that waits for memory would ask for all of it here first.
///         reads.into_iter().map(|Read(at)| table[at]).collect()
///     }
/// }
///
/// let machine = Machine::live(&LiveOptions::new(None));
/// let domains = Domains::start(&machine, &Configuration::one_worker_each(&["d"]))?;
/// let table = domains.at("d")?.place_owned("squares", (0..100_u64).map(|n| n * n).collect::<Vec<_>>())?;
/// let mut burst = domains.client().burst(&table, 14)?;
/// let mut sum = 0;
/// for at in 0..100 {
///     sum += burst.push_operation(Read(at))?.transpose()?.unwrap_or(0);
/// }
/// sum += burst.drain().sum::<Result<u64, _>>()?;
/// assert_eq!(sum, 328_350);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Operation<T: Target>: Sized + Send + 'static {
    /// The result of one operation.
    type Reply: Send + 'static;

    /// Runs operations, with the same effects as one after the other, and returns the reply of each in their order.
    fn run_group(operations: Group<Self>, access: T::Access<'_>) -> Group<Self::Reply>;
}

/// An operation as a job.
pub(crate) struct Single<O>(pub(crate) O);

impl<T: Target, O: Operation<T>> Job<T> for Single<O> {
    type Reply = O::Reply;
    const RUN_GROUP: Option<RunGroup> = Some(run_group::<T, O>);

    #[inline]
    unsafe fn run(self, keys: &T::Keys, reach: &Reach) -> O::Reply {
        // SAFETY: by this function's own contract.
        let mut replies = unsafe { run_checked::<T, O>([self.0].into_iter().collect(), keys, reach) };
        replies.pop().unwrap_or_else(|| unreachable!("there is a reply for each operation"))
    }
}

/// The memory of one slot: payload and reply word.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) payload: *mut u8,
    pub(crate) word: *mut u8,
}

/// The end of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GroupEnd {
    /// The first so many are answered.
    Answered { count: usize, failed: bool },
    /// None is: this structure is not here.
    Elsewhere(Key),
}

/// Runs the operations of the first slots that are on the same structures.
///
/// # Safety
/// Each slot has a request of the table's type, in the caller's turn.
pub(crate) type RunGroup = unsafe fn(slots: &[Memory], reach: &Reach) -> GroupEnd;

unsafe fn run_group<T: Target, O: Operation<T>>(slots: &[Memory], reach: &Reach) -> GroupEnd {
    // SAFETY: each slot has a request of this type.
    let keys_at = |slot: &Memory| unsafe { keys_of::<T, Single<O>>(slot.payload) };
    let Some(keys) = slots.first().map(keys_at) else {
        return GroupEnd::Answered { count: 0, failed: false };
    };
    match T::find(&keys, reach) {
        Ok(()) => {}
        Err(Missing::Elsewhere(key)) => return GroupEnd::Elsewhere(key),
        Err(Missing::Failed(failure)) => {
            // SAFETY: the request is there still, nobody uses it after this, and the word is the caller's to write.
            unsafe { refuse::<T, O>(slots[0], failure) };
            return GroupEnd::Answered { count: 1, failed: true };
        }
    }
    let alike = |slot: &&Memory| keys_at(slot) == keys || planted(Bug::GroupOfAllKeys);
    let slots = &slots[..slots.iter().take(GROUP_MAX).take_while(alike).count()];
    // SAFETY: the requests are there, and this is where they end.
    let operations = slots.iter().map(|slot| unsafe { take_job::<T, Single<O>>(slot.payload) }.0).collect();
    // SAFETY: all keys were found, and this worker runs one task or group at a time.
    let result = catch_unwind(AssertUnwindSafe(|| unsafe { run_checked::<T, O>(operations, &keys, reach) }));
    let failed = result.is_err();
    match result {
        Ok(replies) => {
            for (slot, reply) in slots.iter().zip(replies) {
                // SAFETY: payload and word are this operation's, and the request has been moved out.
                unsafe { write_reply(slot.payload, slot.word, reply) };
            }
        }
        Err(panic) => {
            T::poison(&keys, reach);
            // SAFETY: as above.
            unsafe { fail_all(slots, panic) };
        }
    }
    GroupEnd::Answered { count: slots.len(), failed }
}

/// Runs operations, and panics unless each has a reply.
///
/// # Safety
/// All keys were found in this reach, and no access to it exists.
#[inline(always)]
unsafe fn run_checked<T: Target, O: Operation<T>>(
    operations: Group<O>,
    keys: &T::Keys,
    reach: &Reach,
) -> Group<O::Reply> {
    let count = operations.len();
    // SAFETY: by this function's own contract.
    let replies = O::run_group(operations, unsafe { T::access(keys, reach) });
    assert!(
        replies.len() == count,
        "`run_group` gave {} replies to {count} operations; it must give one to each",
        replies.len()
    );
    replies
}

/// # Safety
/// The slot has a request of this type, which is gone afterwards, and is the caller's to write.
#[cold]
unsafe fn refuse<T: Target, O: Operation<T>>(slot: Memory, failure: Failure) {
    // SAFETY: by this function's own contract.
    unsafe { drop_request::<T, Single<O>>(slot.payload) };
    // SAFETY: as above.
    unsafe { write_failure(slot.word, failure) };
}

/// Answers every operation of a group with its panic.
///
/// # Safety
/// The slots are the caller's to write, and their requests are gone.
#[cold]
unsafe fn fail_all(slots: &[Memory], panic: Box<dyn Any + Send>) {
    let message = crate::task::message_of(&*panic).unwrap_or_else(|| "without a message".to_owned());
    let mut panic = Some(panic);
    for slot in slots {
        let of_group = || -> Box<dyn Any + Send> {
            Box::new(format!("an operation of the same group panicked: {message}"))
        };
        let panic = panic.take().unwrap_or_else(of_group);
        // SAFETY: by this function's own contract.
        unsafe { write_panic(slot.payload, slot.word, panic) };
    }
}
