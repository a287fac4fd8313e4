//! The bounded inbox through which threads outside the runtime hand closures to one worker.
//!
//! Owns: the slots and every closure between `send` and its run. Many senders, one receiver. Never: grows; a full inbox
//! refuses, or makes its sender sleep until there is room (back-pressure).
//!
//! # Protocol
//! Each slot has a turn: `t` means "free for the sender that holds ticket t", `t + 1` means "filled under ticket t".
//! A sender takes a ticket by compare-and-swap on `tail`, fills the slot and passes the turn on with a release store;
//! the receiver takes slots in ticket order and frees each for the ticket one lap later. Closing sets a bit in `tail`,
//! so that no ticket is taken after it, and the last ticket is known: the receiver can tell when it has seen all.
//!
//! A sender that finds no room takes the gate, counts itself as waiting, fences and tries again before it sleeps; the
//! receiver frees slots, fences, and reads that count. One of the two sees the other. (loom: `inbox_*`.)
//!
//! # Why the unsafe code is sound
//! - A slot's closure is written only by the holder of its ticket and moved out only by the one receiver after it saw the
//!   turn that the writer released; the turn's release/acquire pairs order both directions.
//! - A slot's function was written for the type of the closure beside it. The receiver advances before it calls.
//! - Closures are `Send + 'static`.

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use crossbeam_utils::CachePadded;

use crate::planted::{Bug, ordering, planted};
use crate::ring::{Invoke, invoke};
use crate::sync::{Arc, AtomicUsize, Condvar, Mutex, Ordering, Shadow, fence, lock, thread};

/// A closure of at most this many bytes (and alignment of at most 16) lies in its slot; a larger one is boxed.
pub(crate) const INLINE_BYTES: usize = 224;

/// The highest bit of `tail`: no more tickets.
const CLOSED: usize = 1 << (usize::BITS - 1);

#[repr(C, align(16))]
struct Payload(MaybeUninit<[u8; INLINE_BYTES]>);

#[repr(C, align(128))]
struct Slot<C> {
    turn: AtomicUsize,
    invoke: UnsafeCell<MaybeUninit<Invoke<C>>>,
    payload: UnsafeCell<Payload>,
}

struct Queue<C> {
    /// The next ticket, and the closed bit. Written by senders.
    tail: CachePadded<AtomicUsize>,
    /// Senders that sleep because the inbox is full, or are about to.
    waiting: CachePadded<AtomicUsize>,
    /// Closures handled so far, shown by the receiver when their consequences are visible.
    handled: CachePadded<AtomicUsize>,
    gate: Mutex<()>,
    room: Condvar,
    slots: Box<[Slot<C>]>,
    shadow: Shadow,
    context: PhantomData<fn(&C)>,
}

// SAFETY: the slots are handed from sender to receiver and back under the protocol above; closures are `Send`.
unsafe impl<C> Send for Queue<C> {}
// SAFETY: as above.
unsafe impl<C> Sync for Queue<C> {}

/// Reasons for which an inbox did not take a closure; gives it back.
pub(crate) enum Refused<F> {
    Full(F),
    Closed(F),
}

/// The sending end; any number of them.
pub(crate) struct InboxSender<C>(Arc<Queue<C>>);

impl<C> Clone for InboxSender<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// The receiving end. It belongs to one thread at a time.
pub(crate) struct InboxReceiver<C> {
    head: Cell<usize>,
    queue: Arc<Queue<C>>,
}

/// Makes an inbox with a power of two of slots.
pub(crate) fn inbox<C>(slots: usize) -> (InboxSender<C>, InboxReceiver<C>) {
    assert!(slots.is_power_of_two() && slots >= 2, "an inbox has a power of two of slots, at least 2");
    let queue = Arc::new(Queue {
        tail: CachePadded::new(AtomicUsize::new(0)),
        waiting: CachePadded::new(AtomicUsize::new(0)),
        handled: CachePadded::new(AtomicUsize::new(0)),
        gate: Mutex::new(()),
        room: Condvar::new(),
        slots: (0..slots)
            .map(|ticket| Slot {
                turn: AtomicUsize::new(ticket),
                invoke: UnsafeCell::new(MaybeUninit::uninit()),
                payload: UnsafeCell::new(Payload(MaybeUninit::uninit())),
            })
            .collect(),
        shadow: Shadow::new(slots),
        context: PhantomData,
    });
    (InboxSender(Arc::clone(&queue)), InboxReceiver { head: Cell::new(0), queue })
}

impl<C> Queue<C> {
    #[inline]
    fn slot(&self, ticket: usize) -> (&Slot<C>, usize) {
        let position = ticket & (self.slots.len() - 1);
        (&self.slots[position], position)
    }

    /// Moves the closure of `ticket` out of its slot and runs it, or drops it if `context` is null. The slot is free
    /// afterwards.
    ///
    /// # Safety
    /// The ticket's slot is filled, the caller is the only receiver and has advanced behind the ticket.
    unsafe fn take(&self, ticket: usize, context: *const C) {
        let (slot, position) = self.slot(ticket);
        self.shadow.access(position, 1);
        // SAFETY: a filled slot has a function.
        let invoke = unsafe { (*slot.invoke.get()).assume_init() };
        // SAFETY: the closure in a filled slot is the one its function was made for, and it is taken once.
        unsafe { invoke(context, slot.payload.get().cast()) };
        slot.turn.store(ticket + self.slots.len(), Ordering::Release);
    }
}

impl<C> InboxSender<C> {
    /// Hands a closure over if there is room.
    pub(crate) fn try_send<F: FnOnce(&C) + Send + 'static>(&self, closure: F) -> Result<(), Refused<F>> {
        let ticket = match self.take_ticket() {
            Ok(ticket) => ticket,
            Err(Refused::Full(())) => return Err(Refused::Full(closure)),
            Err(Refused::Closed(())) => return Err(Refused::Closed(closure)),
        };
        if const { size_of::<F>() <= INLINE_BYTES && align_of::<F>() <= 16 } {
            self.fill(ticket, closure);
        } else {
            let boxed = Box::new(closure);
            self.fill(ticket, move |context: &C| (*boxed)(context));
        }
        Ok(())
    }

    /// Hands a closure over, sleeping while there is no room. Only a closed inbox refuses.
    pub(crate) fn send<F: FnOnce(&C) + Send + 'static>(&self, closure: F) -> Result<(), Refused<F>> {
        let mut closure = match self.try_send(closure) {
            Err(Refused::Full(closure)) => closure,
            done => return done,
        };
        let mut gate = lock(&self.0.gate);
        self.0.waiting.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut asleep_first = planted(Bug::InboxRecheck);
        let result = loop {
            if !asleep_first {
                match self.try_send(closure) {
                    Err(Refused::Full(back)) => closure = back,
                    done => break done,
                }
            }
            asleep_first = false;
            gate = self.0.room.wait(gate).unwrap_or_else(std::sync::PoisonError::into_inner);
        };
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
        drop(gate);
        result
    }

    /// Refuses everything from now on, and wakes senders that wait for room.
    pub(crate) fn close(&self) {
        if !planted(Bug::InboxClose) {
            self.0.tail.fetch_or(CLOSED, Ordering::AcqRel);
        }
        let gate = lock(&self.0.gate);
        self.0.room.notify_all();
        drop(gate);
    }

    /// Closures accepted and closures handled, in an order of reading that never makes an unhandled one look handled.
    pub(crate) fn accepted_after_handled(&self) -> (usize, usize) {
        let handled = self.0.handled.load(Ordering::Acquire);
        (self.0.tail.load(Ordering::Acquire) & !CLOSED, handled)
    }

    fn take_ticket(&self) -> Result<usize, Refused<()>> {
        let mut tail = self.0.tail.load(Ordering::Relaxed);
        loop {
            if tail & CLOSED != 0 {
                return Err(Refused::Closed(()));
            }
            let turn = self.0.slot(tail).0.turn.load(Ordering::Acquire);
            if turn == tail {
                match self.0.tail.compare_exchange_weak(tail, tail + 1, Ordering::Relaxed, Ordering::Relaxed)
                {
                    Ok(_) => return Ok(tail),
                    Err(now) => tail = now,
                }
            } else if turn < tail {
                return Err(Refused::Full(()));
            } else {
                // Another sender took this ticket between the two loads.
                tail = self.0.tail.load(Ordering::Relaxed);
            }
        }
    }

    fn fill<F: FnOnce(&C) + Send + 'static>(&self, ticket: usize, closure: F) {
        // Not a `const` assertion: the branch of `try_send` that is not taken would fail it.
        assert!(size_of::<F>() <= INLINE_BYTES && align_of::<F>() <= 16);
        let (slot, position) = self.0.slot(ticket);
        self.0.shadow.access(position, 1);
        // SAFETY: the ticket makes this sender the slot's only user, and the payload holds an `F` (asserted above).
        unsafe { slot.payload.get().cast::<F>().write(closure) };
        // SAFETY: as above.
        unsafe { (*slot.invoke.get()).write(invoke::<C, F>) };
        slot.turn.store(ticket + 1, ordering(Bug::InboxFill, Ordering::Release));
    }
}

impl<C> InboxReceiver<C> {
    /// Runs up to `closures_max` closures on `context`, in the order of their tickets. Returns how many ran.
    #[inline]
    pub(crate) fn drain(&self, context: &C, closures_max: usize) -> usize {
        let mut ran = 0;
        while ran < closures_max && self.has_ready() {
            let ticket = self.head.get();
            self.head.set(ticket + 1);
            // SAFETY: the slot is filled, this is the only receiver, and it has advanced.
            unsafe { self.queue.take(ticket, context) };
            ran += 1;
        }
        if ran > 0 {
            self.wake_senders();
        }
        ran
    }

    /// Returns whether a closure is waiting.
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        let ticket = self.head.get();
        self.queue.slot(ticket).0.turn.load(Ordering::Acquire) == ticket + 1
    }

    /// Shows to readers how many closures have been handled, consequences included.
    #[inline]
    pub(crate) fn show_handled(&self) {
        self.queue.handled.store(self.head.get(), Ordering::Release);
    }

    /// Drops all closures that a closed inbox has accepted and not handed out, waiting for senders that are in the
    /// middle of handing over. Returns how many there were.
    pub(crate) fn drop_rest(&self) -> usize {
        let tail = self.queue.tail.load(Ordering::Acquire);
        assert!(tail & CLOSED != 0, "an inbox is closed before its rest is dropped");
        let mut dropped = 0;
        while self.head.get() != tail & !CLOSED {
            let ticket = self.head.get();
            while !self.has_ready() {
                thread::yield_now();
            }
            self.head.set(ticket + 1);
            // SAFETY: the slot is filled, this is the only receiver, and it has advanced.
            unsafe { self.queue.take(ticket, std::ptr::null()) };
            dropped += 1;
        }
        self.show_handled();
        dropped
    }

    fn wake_senders(&self) {
        if !planted(Bug::InboxReceiverFence) {
            fence(Ordering::SeqCst);
        }
        if self.queue.waiting.load(Ordering::Relaxed) > 0 {
            let gate = lock(&self.queue.gate);
            self.queue.room.notify_all();
            drop(gate);
        }
    }
}

impl<C> Drop for InboxReceiver<C> {
    fn drop(&mut self) {
        self.show_handled();
    }
}

impl<C> Drop for Queue<C> {
    fn drop(&mut self) {
        let tail = self.tail.load(Ordering::Acquire) & !CLOSED;
        for ticket in self.handled.load(Ordering::Acquire)..tail {
            // SAFETY: both ends are gone, so every ticket was filled, and those from `handled` on were not taken.
            unsafe { self.take(ticket, std::ptr::null()) };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
