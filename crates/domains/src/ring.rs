//! Rings: a client's lease on consecutive slots, and the state of each slot on the client's side.
//!
//! Owns: the lease, which goes back to its buffer when the last user of the ring is gone. Never: waits.
//!
//! # Invariants
//! - A slot is `FREE`, `TAKEN` (submitted; a future or burst will take its answer) or `LEFT` (its answer has nobody left). Only the
//!   client makes a free slot taken; only the holder of the task's future frees or leaves it; only the client frees a left one. So
//!   each state has one writer.
//!
//! # Why the unsafe code is sound
//! A ticket is made by `submit` for the type of its task, and is used up by taking or leaving. So a slot's answer is taken once,
//! as what it is.

use std::task::Waker;

use atomic_waker::AtomicWaker;

use crate::barrier;
use crate::domains::Inner;
use crate::inbox::{Buffer, Lease};
use crate::structures::Target;
use crate::sync::{Arc, AtomicBool, AtomicU8, Ordering};
use crate::task::{Job, TaskError, table, write_request};

const FREE: u8 = 0;
const TAKEN: u8 = 1;
const LEFT: u8 = 2;

/// A lease with the states of its slots.
#[derive(Debug)]
pub(crate) struct Ring {
    buffer: Arc<Buffer>,
    id: u64,
    first: usize,
    seats: Box<[AtomicU8]>,
    /// Set while the client waits for a seat, with its waker below.
    wants_seat: AtomicBool,
    client: AtomicWaker,
    /// Keeps the workers alive to which the buffer may point.
    pub(crate) domains: Arc<Inner>,
}

impl Ring {
    pub(crate) fn new(buffer: Arc<Buffer>, lease: &Lease, domains: Arc<Inner>) -> Self {
        let seats = (0..lease.count).map(|_| AtomicU8::new(FREE)).collect();
        Self {
            buffer,
            id: lease.id,
            first: lease.first,
            seats,
            wants_seat: AtomicBool::new(false),
            client: AtomicWaker::new(),
            domains,
        }
    }

    /// Number of slots.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.seats.len()
    }

    /// The buffer, for whoever notes that it is waited for.
    pub(crate) fn shared_buffer(&self) -> &Arc<Buffer> {
        &self.buffer
    }

    /// Its slots in the buffer.
    pub(crate) fn slots(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.len()
    }

    /// Returns whether seat `at` can be submitted to. Called by the client alone.
    #[inline(always)]
    pub(crate) fn is_free(&self, at: usize) -> bool {
        match self.seats[at].load(Ordering::Acquire) {
            FREE => true,
            LEFT => self.free_left(at),
            _ => false,
        }
    }

    #[cold]
    fn free_left(&self, at: usize) -> bool {
        if !self.is_answered(at) {
            return false;
        }
        // SAFETY: it is answered, and nobody but this client has it any more.
        unsafe { self.buffer.drop_answer(self.first + at) };
        self.seats[at].store(FREE, Ordering::Relaxed);
        true
    }

    /// Returns whether nothing is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        (0..self.len()).all(|at| self.is_answered(at))
    }

    /// Returns whether the last task of seat `at` is answered.
    #[inline(always)]
    pub(crate) fn is_answered(&self, at: usize) -> bool {
        self.buffer.is_answered(self.first + at)
    }

    /// Submits a job in seat `at`, which is free. Called by the client alone.
    #[inline(always)]
    pub(crate) fn submit<T: Target, J: Job<T>>(&self, at: usize, keys: T::Keys, job: J) {
        debug_assert!(self.is_free(at));
        let slot = self.first + at;
        self.seats[at].store(TAKEN, Ordering::Relaxed);
        let (first, rest) = T::split_keys(keys);
        // SAFETY: the seat is free, so it is the client's turn in this slot.
        unsafe { write_request::<T, J>(self.buffer.payload(slot), rest, job) };
        self.buffer.publish(slot, first, table::<T, J>());
        barrier::light();
        self.wake_server();
    }

    /// Wakes the worker if it sleeps; a barrier lies between this and what it is to find.
    #[inline(always)]
    fn wake_server(&self) {
        // SAFETY: workers live as long as the domains, which every ring keeps alive (`_domains`).
        unsafe { (*self.buffer.server()).wake_after_fence() };
    }

    /// Moves the answer of seat `at` out, and frees the seat.
    ///
    /// # Safety
    /// The caller is who will take the answer of the last task of this seat, it is answered, and its reply is an `R`.
    #[inline(always)]
    unsafe fn take<R>(&self, at: usize) -> Result<R, TaskError> {
        // SAFETY: by this function's own contract.
        let answer = unsafe { self.buffer.take(self.first + at) };
        self.set(at, FREE);
        answer
    }

    /// Changes the state of a seat that this caller holds, and tells the client if it waits for one.
    #[inline(always)]
    fn set(&self, at: usize, state: u8) {
        self.seats[at].store(state, Ordering::Release);
        barrier::light();
        if self.wants_seat.load(Ordering::Relaxed) {
            self.client.wake();
        }
    }

    /// Leaves the client's waker for when seat `at`, which was not free, may be. Returns true if it is already.
    pub(crate) fn wait_until_free(&self, at: usize, waker: &Waker) -> bool {
        self.client.register(waker);
        self.wants_seat.store(true, Ordering::Relaxed);
        barrier::heavy();
        let free = self.is_free(at)
            || self.is_lost(at)
            || (self.seats[at].load(Ordering::Acquire) == LEFT && self.wait(at, waker) && self.is_free(at));
        if free {
            self.wants_seat.store(false, Ordering::Relaxed);
        }
        free
    }

    /// Leaves seat `at` to the client: whoever would have taken the answer is gone.
    pub(crate) fn leave(&self, at: usize) {
        self.set(at, LEFT);
    }

    /// Asks not to run the last task of seat `at`.
    pub(crate) fn cancel(&self, at: usize) {
        self.buffer.cancel(self.first + at);
        barrier::light();
        self.wake_server();
    }

    /// Leaves a waker for the answer of seat `at`. Returns true if the answer is there already.
    ///
    /// The worker reads who waits after every step and before it sleeps; the look saves a sleep, no wake-up depends on it.
    pub(crate) fn wait(&self, at: usize, waker: &Waker) -> bool {
        self.buffer.waker(self.first + at).register(waker);
        self.buffer.ask_to_be_woken(self.first + at);
        crate::sync::fence(Ordering::SeqCst);
        self.wake_server();
        self.is_answered(at)
    }

    /// Returns whether the last task of seat `at` has ended: it is answered, or never will be. Else leaves a waker for when it has.
    #[inline]
    pub(crate) fn poll_end(&self, at: usize, waker: &Waker) -> bool {
        self.is_answered(at) || self.wait(at, waker) || self.is_lost(at)
    }

    /// Moves the answer of seat `at` out, if the task was answered; else ends it. Frees the seat.
    ///
    /// # Safety
    /// The caller is who will take the answer of the last task of this seat, it has ended, and its reply is an `R`.
    #[inline(always)]
    pub(crate) unsafe fn take_end<R>(&self, at: usize) -> Result<R, TaskError> {
        if self.is_answered(at) {
            // SAFETY: by this function's own contract, and it is answered.
            return unsafe { self.take(at) };
        }
        // SAFETY: by this function's own contract, and it is lost.
        unsafe { self.abandon(at) };
        Err(TaskError::ShutDown)
    }

    /// Returns whether the last task of seat `at` will never be answered, because the workers have ended.
    fn is_lost(&self, at: usize) -> bool {
        // In this order: a worker answers what it can before it says that it has ended.
        self.buffer.is_dead() && !self.is_answered(at)
    }

    /// Ends the last task of seat `at`, which is lost, and frees the seat.
    ///
    /// # Safety
    /// The caller is who would have taken the answer.
    #[cold]
    unsafe fn abandon(&self, at: usize) {
        // SAFETY: it is lost, and the caller stands in for the client.
        unsafe { self.buffer.abandon(self.first + at) };
        self.set(at, FREE);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let untaken = |(at, seat): (usize, &AtomicU8)| {
            (seat.load(Ordering::Acquire) != FREE).then_some(self.first + at)
        };
        let untaken = self.seats.iter().enumerate().filter_map(untaken).collect();
        self.buffer.give_back(self.id, untaken);
    }
}
