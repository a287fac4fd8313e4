//! A request for a lock, and the transaction of the agent that makes it, as other threads see them.
//!
//! Owns: the words of a request and of its owner. Never: latches.
//!
//! # The status of a granted request
//! ```text
//!            pass on                   invalidate (by another agent, under the latch)
//!   HELD ─────────────► INHERITED ─────────────────► INVALID
//!    │   ◄─────────────
//!    │      reclaim
//!    └────► WANTED        (another transaction waits for this one: it is released under the latch)
//! ```
//! Every arrow is a compare-and-swap, so of an agent that passes on or reclaims its lock without the latch, and another that
//! invalidates or marks it, one comes first and the other one sees it. (loom: `inherited_*`.)
//!
//! # Why the unsafe code is sound
//! - A request that is linked in a queue belongs to an agent that is alive: an agent unlinks its requests, each under the
//!   latch of its bucket, before it frees them. Who holds that latch may therefore follow links and look at owners.
//! - The cells of a request are read and written under the latch of its bucket, with two exceptions that concern its
//!   owner alone: it reads `granted` while it does not wait (others write that only while it waits), and it writes all
//!   cells of a request that is not linked. A request that was invalidated counts as linked until its owner has had the
//!   latch: the invalidator writes `INVALID` before it unlinks.

use std::cell::Cell;
use std::ptr;

use super::mode::Mode;
use super::name::Name;
use super::queue::Queue;
use super::signal::Signal;
use crate::planted::{Bug, ordering, planted};
use crate::primitives::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

const HELD: u32 = 0;
const WANTED: u32 = 1;
const INHERITED: u32 = 2;
const INVALID: u32 = 3;

/// Outcomes for a granted request that stands in the way of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InTheWay {
    /// It was inherited, and is invalid now: it has to be unlinked.
    Invalidated,
    /// A transaction holds it, and is going to release it under the latch if it was to be marked.
    Held,
}

/// A request, on a cache line of its own.
#[repr(align(64))]
pub(super) struct Request {
    /// Neighbours in the list of granted requests, or in that of waiting ones.
    pub(super) next: Cell<*const Request>,
    pub(super) previous: Cell<*const Request>,
    pub(super) queue: Cell<*const Queue>,
    owner: Cell<*const Owner>,
    pub(super) name: Cell<Name>,
    status: AtomicU32,
    /// The mode that is granted.
    pub(super) granted: Cell<Mode>,
    /// The mode that will be granted when it no longer waits; none if it does not wait.
    pub(super) wanted: Cell<Mode>,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Request>() == 64);

impl Request {
    pub(super) fn new() -> Request {
        Request {
            next: Cell::new(ptr::null()),
            previous: Cell::new(ptr::null()),
            queue: Cell::new(ptr::null()),
            owner: Cell::new(ptr::null()),
            name: Cell::new(Name::DATABASE),
            status: AtomicU32::new(HELD),
            granted: Cell::new(Mode::NONE),
            wanted: Cell::new(Mode::NONE),
        }
    }

    /// Prepares a request, which is not linked, for its queue. Under the latch.
    #[inline(always)]
    pub(super) fn prepare(&self, queue: &Queue, owner: &Owner, name: Name) {
        self.queue.set(queue);
        self.owner.set(owner);
        self.name.set(name);
        self.granted.set(Mode::NONE);
        self.wanted.set(Mode::NONE);
    }

    /// The queue of a linked request. Under the latch.
    #[inline(always)]
    pub(super) fn queue(&self) -> &Queue {
        // SAFETY: queues live as long as the lock table, which lives as long as any agent.
        unsafe { &*self.queue.get() }
    }

    /// The owner of a linked request. Under the latch.
    #[inline(always)]
    pub(super) fn owner(&self) -> &Owner {
        // SAFETY: the heading: the agent of a linked request, with its `Owner`, is alive.
        unsafe { &*self.owner.get() }
    }

    /// Sets the status of a request that is being granted. Under the latch.
    #[inline(always)]
    pub(super) fn set_held(&self, wanted_by_others: bool) {
        self.status.store(if wanted_by_others { WANTED } else { HELD }, Ordering::Relaxed);
    }

    /// Hands a granted request over to the next transaction of its agent. Returns false if somebody waits: it has to be released.
    #[inline]
    pub(super) fn pass_on(&self) -> bool {
        let order = ordering(Bug::PassedOnRelaxed, Ordering::Release);
        self.status.compare_exchange(HELD, INHERITED, order, Ordering::Relaxed).is_ok()
    }

    /// Takes over a request that an earlier transaction of the agent has passed on. Returns false if it is invalid.
    #[inline]
    pub(super) fn reclaim(&self) -> bool {
        if planted(Bug::ReclaimedBlindly) {
            self.status.store(HELD, Ordering::Relaxed);
            return true;
        }
        // Relaxed: only the agent itself writes `INHERITED`, so it has nothing to learn from it; if the request is invalid, the
        // latch brings what has happened since.
        self.status.compare_exchange(INHERITED, HELD, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Returns true if another agent has invalidated the request. It has been unlinked once its latch has been taken.
    pub(super) fn is_invalid(&self) -> bool {
        self.status.load(Ordering::Acquire) == INVALID
    }

    /// Invalidates a granted request if it is inherited; otherwise marks it as waited for, if `mark` says so. Under
    /// the latch.
    pub(super) fn get_out_of_the_way(&self, mark: bool) -> InTheWay {
        let mut status = self.status.load(Ordering::Relaxed);
        loop {
            let next = match status {
                INHERITED if planted(Bug::InheritedKept) => return InTheWay::Invalidated,
                INHERITED => INVALID,
                HELD if mark => WANTED,
                _ => return InTheWay::Held,
            };
            // Acquire: what the owner has done under the lock is done before whoever invalidates it goes on.
            match self.status.compare_exchange_weak(status, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(INHERITED) => return InTheWay::Invalidated,
                Ok(_) => return InTheWay::Held,
                Err(now) => status = now,
            }
        }
    }
}

/// The running transaction of an agent, as others see it. One for each agent, on cache lines of its own.
#[repr(align(128))]
pub(super) struct Owner {
    pub(super) signal: Signal,
    /// The bucket in which it waits, plus one; zero if it does not wait. Written under the latch of that bucket.
    waits_in: AtomicU32,
    /// The request with which it waits.
    waits_with: AtomicPtr<Request>,
    /// The older of two transactions has the smaller stamp.
    pub(super) stamp: AtomicU64,
    /// The number of the agent: decides between equal stamps.
    pub(super) number: u32,
    /// Set if it waits for younger transactions only.
    pub(super) waits_for_younger: bool,
    /// The last search for cycles that has come here. Used by the one search that runs.
    pub(super) searched: AtomicU64,
}

impl Owner {
    pub(super) fn new(number: u32, waits_for_younger: bool) -> Owner {
        Owner {
            signal: Signal::default(),
            waits_in: AtomicU32::new(0),
            waits_with: AtomicPtr::new(ptr::null_mut()),
            stamp: AtomicU64::new(0),
            number,
            waits_for_younger,
            searched: AtomicU64::new(0),
        }
    }

    /// Declares that the transaction waits with the request. Under the latch of the bucket.
    pub(super) fn set_waiting(&self, bucket: u32, request: &Request) {
        self.signal.expect();
        self.waits_with.store(ptr::from_ref(request).cast_mut(), Ordering::Relaxed);
        self.waits_in.store(bucket + 1, Ordering::Release);
    }

    /// Declares that the transaction does not wait any more. Under the latch of the bucket.
    pub(super) fn clear_waiting(&self) {
        self.waits_in.store(0, Ordering::Release);
    }

    /// The bucket in which the transaction waits. It may be true no longer, unless the latch of the bucket is held.
    pub(super) fn waits_in(&self) -> Option<u32> {
        self.waits_in.load(Ordering::Acquire).checked_sub(1)
    }

    /// The request with which the transaction waits in a bucket whose latch the caller holds.
    pub(super) fn waits_with(&self, bucket: u32) -> Option<&Request> {
        if self.waits_in() != Some(bucket) {
            return None;
        }
        // SAFETY: the transaction waits with the request in this bucket, so the request is linked there.
        Some(unsafe { &*self.waits_with.load(Ordering::Relaxed) })
    }

    /// The transaction's age: the greater, the younger.
    pub(super) fn youth(&self) -> (u64, u32) {
        (self.stamp.load(Ordering::Relaxed), self.number)
    }
}
