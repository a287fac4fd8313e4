//! The queues of the lock table: who holds a lock, and who waits for it.
//!
//! Owns: the lists of a queue, the rules by which requests are granted, and the buckets in which queues are found. Never: waits,
//! except for a latch; searches for deadlocks.
//!
//! # Rules
//! - A new request is granted if it conflicts with no holder and with no request that waits already: nobody overtakes one that
//!   would conflict. Otherwise it waits at the end.
//! - An upgrade, the request of a holder for a stronger mode, is granted if it conflicts with no *other* holder. Otherwise
//!   it waits in its place among the holders, and goes before all new requests: those that conflict with it could not be
//!   granted as long as it holds what it has, so to wait for them would be a deadlock.
//! - When a holder leaves, or a waiting request is withdrawn, waiting requests are granted by the same rules in
//!   the order in which they came.
//!
//! # Invariants
//! - `holders` counts the granted modes of the requests in the list of granted ones, inherited ones included.
//! - Each granted request that conflicts with a waiting one has been marked as waited for, so its owner releases it under the
//!   latch and does not pass it on. (It is marked by the waiting request as it comes; what is granted afterwards is marked if
//!   anybody waits.)
//! - The queues of a bucket are never freed before the table: an empty one is used again for the next name.
//!
//! # Why the unsafe code is sound
//! A queue is reached through [`Latched`] alone, so one thread at a time follows and changes its links; what is linked is
//! alive (see `request`).

use std::cell::Cell;
use std::ptr;

use super::latch::Latch;
use super::mode::{Holders, Mode};
use super::name::Name;
use super::request::{InTheWay, Owner, Request};
use super::signal::Answer;
use crate::planted::{Bug, planted};
use crate::primitives::thread::Thread;

/// The handles of threads that have been answered, to be unparked when no latch is held any more.
pub(super) type Wakes = Vec<Thread>;

/// Outcomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Granted,
    /// It is in the queue, and its owner will be answered.
    Waits,
    /// It would have to wait, and was not to.
    Refused,
    /// It would have to wait for an older transaction.
    Dies,
}

impl Outcome {
    /// Returns true if the request is in no queue.
    pub(super) fn is_refusal(self) -> bool {
        matches!(self, Outcome::Refused | Outcome::Dies)
    }
}

/// Permission of a request to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    Waits,
    Refuses,
}

/// One queue: the lock of one name.
pub(super) struct Queue {
    name: Cell<Name>,
    holders: Cell<Holders>,
    /// The granted requests, the newest first.
    granted: Cell<*const Request>,
    /// The new requests that wait, in their order.
    waiting: Cell<*const Request>,
    waiting_last: Cell<*const Request>,
    /// The next queue of the bucket.
    next: Cell<*const Queue>,
}

/// A latch and the queues under it, on one cache line: the first queue lies in the bucket itself.
#[repr(align(64))]
pub(super) struct Bucket {
    latch: Latch,
    /// The number of upgrades that wait in this bucket.
    upgrades: Cell<u16>,
    first: Queue,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Bucket>() == 64);

// SAFETY: what is in the cells is reached under the latch alone.
unsafe impl Send for Bucket {}
// SAFETY: as above.
unsafe impl Sync for Bucket {}

/// A list of requests, to be walked while the latch is held. What was yielded may be unlinked.
struct Links<'a> {
    next: *const Request,
    queue: std::marker::PhantomData<&'a Queue>,
}

impl<'a> Iterator for Links<'a> {
    type Item = &'a Request;

    fn next(&mut self) -> Option<&'a Request> {
        // SAFETY: linked requests are alive, and the latch is held.
        let request: &'a Request = unsafe { self.next.as_ref() }?;
        self.next = request.next.get();
        Some(request)
    }
}

impl Queue {
    fn new(name: Name) -> Queue {
        Queue {
            name: Cell::new(name),
            holders: Cell::new(Holders::NOBODY),
            granted: Cell::new(ptr::null()),
            waiting: Cell::new(ptr::null()),
            waiting_last: Cell::new(ptr::null()),
            next: Cell::new(ptr::null()),
        }
    }

    fn is_empty(&self) -> bool {
        self.granted.get().is_null() && self.waiting.get().is_null()
    }

    /// The granted requests.
    pub(super) fn granted(&self) -> impl Iterator<Item = &Request> {
        Links { next: self.granted.get(), queue: std::marker::PhantomData }
    }

    /// The new requests that wait, in their order.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Request> {
        Links { next: self.waiting.get(), queue: std::marker::PhantomData }
    }

    #[inline(always)]
    fn push_granted(&self, request: &Request, mode: Mode) {
        request.granted.set(mode);
        request.wanted.set(Mode::NONE);
        self.holders.set(self.holders.get().with(mode));
        let first = self.granted.get();
        request.next.set(first);
        request.previous.set(ptr::null());
        // SAFETY: linked requests are alive, and the latch is held.
        if let Some(first) = unsafe { first.as_ref() } {
            first.previous.set(request);
        }
        self.granted.set(request);
    }

    #[inline(always)]
    fn remove_granted(&self, request: &Request) {
        self.holders.set(self.holders.get().without(request.granted.get()));
        let (previous, next) = (request.previous.get(), request.next.get());
        // SAFETY: linked requests are alive, and the latch is held.
        match unsafe { previous.as_ref() } {
            Some(previous) => previous.next.set(next),
            None => self.granted.set(next),
        }
        // SAFETY: as above.
        if let Some(next) = unsafe { next.as_ref() } {
            next.previous.set(previous);
        }
    }

    fn push_waiting(&self, request: &Request, mode: Mode) {
        request.wanted.set(mode);
        request.next.set(ptr::null());
        let last = self.waiting_last.get();
        request.previous.set(last);
        // SAFETY: linked requests are alive, and the latch is held.
        match unsafe { last.as_ref() } {
            Some(last) => last.next.set(request),
            None => self.waiting.set(request),
        }
        self.waiting_last.set(request);
    }

    fn remove_waiting(&self, request: &Request) {
        let (previous, next) = (request.previous.get(), request.next.get());
        // SAFETY: linked requests are alive, and the latch is held.
        match unsafe { previous.as_ref() } {
            Some(previous) => previous.next.set(next),
            None => self.waiting.set(next),
        }
        // SAFETY: as above.
        match unsafe { next.as_ref() } {
            Some(next) => next.previous.set(previous),
            None => self.waiting_last.set(previous),
        }
    }

    /// Returns true if a waiting request conflicts with the mode of a new one.
    fn waiting_exclude(&self, mode: Mode, upgrades: bool) -> bool {
        if planted(Bug::WaiterOvertaken) {
            return false;
        }
        self.waiting().any(|waiting| waiting.wanted.get().conflicts(mode))
            || (upgrades && self.granted().any(|holder| holder.wanted.get().conflicts(mode)))
    }

    /// Returns true if a request with this mode may wait for those in its way: all of them are younger, if that matters.
    fn may_wait(&self, request: &Request, mode: Mode) -> bool {
        let owner = request.owner();
        if !owner.waits_for_younger || planted(Bug::YoungerWaits) {
            return true;
        }
        let in_the_way = |other: &Request| {
            !ptr::eq(other, request)
                && (other.granted.get().conflicts(mode) || other.wanted.get().conflicts(mode))
        };
        let mut others = self.granted().chain(self.waiting()).filter(|other| in_the_way(other));
        others.all(|other| owner.youth() < other.owner().youth())
    }

    /// Finds a request that waits for a holder with this mode, and is younger.
    fn younger_waiter(&self, holder: &Request, mode: Mode) -> Option<&Request> {
        let waits = |other: &&Request| {
            !ptr::eq(*other, holder)
                && other.wanted.get().conflicts(mode)
                && other.owner().youth() > holder.owner().youth()
        };
        self.granted().chain(self.waiting()).find(waits)
    }

    /// Invalidates the inherited requests that conflict with the mode, and marks the others if `mark` says so.
    fn clear_the_way(&self, mode: Mode, except: *const Request, mark: bool) {
        for holder in self.granted() {
            if ptr::eq(holder, except) || !holder.granted.get().conflicts(mode) {
                continue;
            }
            let mark = mark && !planted(Bug::HoldersNotMarked);
            if holder.get_out_of_the_way(mark) == InTheWay::Invalidated {
                self.remove_granted(holder);
            }
        }
    }
}

impl Bucket {
    pub(super) fn new() -> Bucket {
        Bucket { latch: Latch::default(), upgrades: Cell::new(0), first: Queue::new(Name::DATABASE) }
    }

    /// Takes the latch.
    #[inline(always)]
    pub(super) fn latch(&self) -> Latched<'_> {
        self.latch.lock();
        Latched { bucket: self }
    }

    /// Enters the bucket without its latch.
    ///
    /// # Safety
    /// No other thread uses the bucket until what is returned is dropped.
    #[inline(always)]
    pub(super) unsafe fn enter(&self) -> Latched<'_> {
        Latched { bucket: self }
    }

    /// Frees the queues behind the first one.
    pub(super) fn free(&mut self) {
        let mut next = self.first.next.replace(ptr::null());
        while !next.is_null() {
            // SAFETY: made by `Box::into_raw` in `queue_of`, and nobody else has the table any more.
            let queue = unsafe { Box::from_raw(next.cast_mut()) };
            next = queue.next.get();
        }
    }
}

/// A bucket whose latch the thread holds, or that no other thread can use.
pub(super) struct Latched<'a> {
    bucket: &'a Bucket,
}

impl Drop for Latched<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.bucket.latch.unlock();
    }
}

impl<'a> Latched<'a> {
    /// The queue of the name, if anybody is in it; otherwise an empty one, which gets the name.
    #[inline(always)]
    fn queue_of(&self, name: Name) -> &'a Queue {
        let first = &self.bucket.first;
        if (first.name.get() == name || first.is_empty()) && first.next.get().is_null() {
            first.name.set(name);
            return first;
        }
        self.queue_of_several(name)
    }

    #[inline(never)]
    fn queue_of_several(&self, name: Name) -> &'a Queue {
        let mut empty = None;
        let mut queue = &self.bucket.first;
        loop {
            if queue.is_empty() {
                empty = Some(queue);
            } else if queue.name.get() == name {
                return queue;
            }
            // SAFETY: the queues of a bucket are alive as long as the table.
            match unsafe { queue.next.get().as_ref() } {
                Some(next) => queue = next,
                None => break,
            }
        }
        let queue = empty.unwrap_or_else(|| {
            let new = Box::into_raw(Box::new(Queue::new(name)));
            queue.next.set(new);
            // SAFETY: just made; it is freed with the table.
            unsafe { &*new }
        });
        queue.name.set(name);
        queue
    }

    /// Requests a lock that the owner does not have. `number` is the number of this bucket.
    #[inline(always)]
    pub(super) fn acquire(
        &self,
        request: &Request,
        owner: &Owner,
        (name, number): (Name, u32),
        mode: Mode,
        patience: Patience,
    ) -> Outcome {
        let queue = self.queue_of(name);
        request.prepare(queue, owner, name);
        let waited_for = !queue.waiting.get().is_null() || self.bucket.upgrades.get() > 0;
        if queue.holders.get().exclude(mode) || waited_for {
            return self.acquire_slow(queue, request, number, mode, patience);
        }
        request.set_held(false);
        queue.push_granted(request, mode);
        Outcome::Granted
    }

    #[inline(never)]
    fn acquire_slow(
        &self,
        queue: &Queue,
        request: &Request,
        number: u32,
        mode: Mode,
        patience: Patience,
    ) -> Outcome {
        let waits = patience == Patience::Waits;
        let judged = if planted(Bug::InsertIntoProtected) { mode.without_insert() } else { mode };
        let excluded = || {
            queue.holders.get().exclude(judged)
                || queue.waiting_exclude(judged, self.bucket.upgrades.get() > 0)
        };
        if excluded() {
            queue.clear_the_way(mode, request, waits);
        }
        if excluded() {
            if !waits {
                return Outcome::Refused;
            }
            if !queue.may_wait(request, mode) {
                return Outcome::Dies;
            }
            queue.push_waiting(request, mode);
            request.owner().set_waiting(number, request);
            return Outcome::Waits;
        }
        request.set_held(true);
        queue.push_granted(request, mode);
        Outcome::Granted
    }

    /// Requests a stronger mode for a lock that the owner has.
    pub(super) fn upgrade(
        &self,
        request: &Request,
        number: u32,
        mode: Mode,
        patience: Patience,
        wakes: &mut Wakes,
    ) -> Outcome {
        let queue = request.queue();
        let joined = request.granted.get().join(mode);
        let waits = patience == Patience::Waits;
        let excluded = || {
            queue.holders.get().without(request.granted.get()).exclude(joined)
                || (planted(Bug::UpgradeQueuesLast) && queue.waiting_exclude(joined, false))
        };
        if excluded() {
            queue.clear_the_way(joined, request, waits);
            if excluded() {
                if !waits {
                    return Outcome::Refused;
                }
                if !queue.may_wait(request, joined) {
                    return Outcome::Dies;
                }
                request.wanted.set(joined);
                self.bucket.upgrades.set(self.bucket.upgrades.get() + 1);
                request.owner().set_waiting(number, request);
                self.withdraw_younger(request, joined, wakes);
                return Outcome::Waits;
            }
        }
        self.grant_upgrade(queue, request, joined);
        self.withdraw_younger(request, joined, wakes);
        if !queue.waiting.get().is_null() || self.bucket.upgrades.get() > 0 {
            request.set_held(true);
        }
        Outcome::Granted
    }

    /// Withdraws the younger requests that wait for one that has got a stronger mode, or is before them in its wait for one, where
    /// nobody may wait for an older transaction.
    fn withdraw_younger(&self, request: &Request, joined: Mode, wakes: &mut Wakes) {
        if !request.owner().waits_for_younger || planted(Bug::YoungerKeepsWaiting) {
            return;
        }
        while let Some(younger) = request.queue().younger_waiter(request, joined) {
            self.withdraw(younger, wakes);
        }
    }

    fn grant_upgrade(&self, queue: &Queue, request: &Request, joined: Mode) {
        queue.holders.set(queue.holders.get().without(request.granted.get()).with(joined));
        request.granted.set(joined);
        request.wanted.set(Mode::NONE);
    }

    /// Releases a granted request, and grants what can be granted then.
    #[inline(always)]
    pub(super) fn release(&self, request: &Request, wakes: &mut Wakes) {
        let queue = request.queue();
        queue.remove_granted(request);
        if !queue.waiting.get().is_null() || self.bucket.upgrades.get() > 0 {
            self.grant_after_release(queue, wakes);
        }
    }

    #[inline(never)]
    fn grant_after_release(&self, queue: &Queue, wakes: &mut Wakes) {
        if !planted(Bug::ReleaseForgetsWaiters) {
            self.grant_waiting(queue, wakes);
        }
    }

    /// Takes a waiting request out of its queue, whose owner becomes a victim.
    pub(super) fn withdraw(&self, request: &Request, wakes: &mut Wakes) {
        let queue = request.queue();
        if request.granted.get().is_none() {
            queue.remove_waiting(request);
        } else {
            self.bucket.upgrades.set(self.bucket.upgrades.get() - 1);
        }
        request.wanted.set(Mode::NONE);
        if !planted(Bug::VictimHoldsUpQueue) {
            self.grant_waiting(queue, wakes);
        }
        let owner = request.owner();
        owner.clear_waiting();
        wakes.extend(owner.signal.answer(Answer::Victim));
    }

    /// Grants what waits and can be granted, by the rules in the heading.
    fn grant_waiting(&self, queue: &Queue, wakes: &mut Wakes) {
        let mut ahead = Holders::NOBODY;
        if self.bucket.upgrades.get() > 0 {
            for request in queue.granted().filter(|request| !request.wanted.get().is_none()) {
                let joined = request.wanted.get();
                if queue.holders.get().without(request.granted.get()).exclude(joined) {
                    ahead = ahead.with(joined);
                } else {
                    self.bucket.upgrades.set(self.bucket.upgrades.get() - 1);
                    self.grant_upgrade(queue, request, joined);
                    grant(request, wakes);
                }
            }
        }
        for request in queue.waiting() {
            let mode = request.wanted.get();
            if queue.holders.get().exclude(mode) || ahead.exclude(mode) {
                ahead = ahead.with(mode);
            } else {
                queue.remove_waiting(request);
                queue.push_granted(request, mode);
                grant(request, wakes);
            }
        }
    }
}

/// Tells the owner of a request that has waited that it is granted now. It counts as waited for, whether somebody waits behind it
/// or not: where one has waited others are likely to come, and what is passed on would hold them up.
fn grant(request: &Request, wakes: &mut Wakes) {
    request.set_held(true);
    let owner = request.owner();
    owner.clear_waiting();
    wakes.extend(owner.signal.answer(Answer::Granted));
}
