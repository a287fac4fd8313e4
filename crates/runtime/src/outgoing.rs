//! One worker's way to one other worker: the producer of their ring, and the local queue behind it.
//!
//! Owns: messages that found the ring full, in heap records of the same form as the ring's, until there is room.
//! Never: lets a later message pass an earlier one, or blocks.
//!
//! A message is written once, where it goes: room for its record is found first, in the ring or else on the heap, and
//! the closure is then moved there. (A closure that could also be handed to a slow path would be assembled on the stack
//! and copied, for a quarter of what sending costs.)
//!
//! # Invariant
//! While the queue is not empty, the producer is blocked, so the fast path finds no room and asks the slow one.
//!
//! # Why the unsafe code is sound
//! - A record on the heap is written by the `send` that allocated it, before anything else can see the queue. It is
//!   moved into the ring bytewise, which is how any value moves, and freed without dropping its closure; or it is
//!   dropped with its closure. It is never both.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::ring::{GRANULE, Producer, drop_record, fits_record, record_bytes, write_record};

/// See the heading.
pub(crate) struct Outgoing<C> {
    ring: Producer<C>,
    /// Messages sent so far, whether inline, boxed or spilled.
    sent: Cell<u64>,
    spilled: RefCell<VecDeque<HeapRecord<C>>>,
}

/// Numbers of messages that wait behind full rings, over all of a worker's ways out.
#[derive(Default)]
pub(crate) struct Backlog {
    now: Cell<usize>,
    ever: Cell<u64>,
}

impl Backlog {
    /// The number of messages that wait now.
    #[inline]
    pub(crate) fn now(&self) -> usize {
        self.now.get()
    }

    /// The number of messages that ever had to wait.
    #[inline]
    pub(crate) fn ever(&self) -> u64 {
        self.ever.get()
    }

    fn add(&self) {
        self.now.set(self.now.get() + 1);
        self.ever.set(self.ever.get() + 1);
    }

    fn remove(&self) {
        self.now.set(self.now.get() - 1);
    }
}

/// A record that waits for room in the ring.
struct HeapRecord<C> {
    record: NonNull<u8>,
    bytes: usize,
    context: PhantomData<fn(&C)>,
}

impl<C> HeapRecord<C> {
    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, GRANULE).expect("a record is smaller than a ring")
    }

    /// Memory for a record, without a closure in it yet.
    fn allocate(bytes: usize) -> NonNull<u8> {
        let layout = Self::layout(bytes);
        // SAFETY: a record has a header at least, so its size is not zero.
        let Some(record) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        record
    }

    /// Frees the memory; the closure in it has been moved away or dropped.
    fn free(record: NonNull<u8>, bytes: usize) {
        // SAFETY: allocated in `allocate` with the same size; the callers give the record up.
        unsafe { dealloc(record.as_ptr(), Self::layout(bytes)) };
    }
}

impl<C> Drop for HeapRecord<C> {
    fn drop(&mut self) {
        // SAFETY: a queued record has a closure, which is dropped here for the only time.
        unsafe { drop_record::<C>(self.record) };
        Self::free(self.record, self.bytes);
    }
}

impl<C> Outgoing<C> {
    pub(crate) fn new(ring: Producer<C>) -> Self {
        Self { ring, sent: Cell::new(0), spilled: RefCell::new(VecDeque::new()) }
    }

    /// The number of messages sent so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// Makes what is in the ring visible to the receiver.
    #[inline]
    pub(crate) fn publish(&self) {
        self.ring.publish();
    }

    /// Sends a closure: into the ring if there is room, else into the local queue. Returns whether it became the first
    /// unpublished one in the ring. What goes into the queue is counted in `backlog`.
    #[inline(always)]
    pub(crate) fn send<F: FnOnce(&C) + Send + 'static>(&self, closure: F, backlog: &Backlog) -> bool {
        self.sent.set(self.sent.get() + 1);
        if self.ring.fits_inline::<F>() {
            self.send_record(closure, backlog)
        } else {
            self.send_boxed(closure, backlog)
        }
    }

    #[cold]
    #[inline(never)]
    fn send_boxed<F: FnOnce(&C) + Send + 'static>(&self, closure: F, backlog: &Backlog) -> bool {
        let boxed = Box::new(closure);
        self.send_record(move |context: &C| (*boxed)(context), backlog)
    }

    #[inline(always)]
    fn send_record<F: FnOnce(&C) + Send + 'static>(&self, closure: F, backlog: &Backlog) -> bool {
        assert!(fits_record::<F>(), "an over-aligned closure is boxed");
        let bytes = const { record_bytes::<F>() };
        let was_published = self.ring.is_published();
        let (record, in_ring) = match self.ring.claim_at_once(bytes) {
            Some(record) => (record, true),
            None => self.claim_slowly(bytes, backlog),
        };
        // SAFETY: the record is this call's alone, has room for a header and an `F`, and nothing runs in between that
        // could look at the ring or the queue.
        unsafe { write_record::<C, F>(record, closure) };
        was_published && in_ring
    }

    /// Room for a record, in the ring (true) or in the queue (false).
    #[cold]
    #[inline(never)]
    fn claim_slowly(&self, bytes: usize, backlog: &Backlog) -> (NonNull<u8>, bool) {
        let mut spilled = self.spilled.borrow_mut();
        if spilled.is_empty()
            && let Some(record) = self.ring.claim(bytes)
        {
            return (record, true);
        }
        let record = HeapRecord::<C>::allocate(bytes);
        spilled.push_back(HeapRecord { record, bytes, context: PhantomData });
        self.ring.block();
        backlog.add();
        (record, false)
    }

    /// Moves waiting messages into the ring as far as there is room, and publishes the ring.
    pub(crate) fn unspill(&self, backlog: &Backlog) {
        let mut spilled = self.spilled.borrow_mut();
        while let Some(waiting) = spilled.front() {
            let Some(place) = self.ring.claim(waiting.bytes) else {
                self.ring.block();
                break;
            };
            let waiting = spilled.pop_front().expect("it was in front just now");
            // SAFETY: both records have `bytes` bytes and do not overlap; the closure moves with them.
            unsafe { place.copy_from_nonoverlapping(waiting.record, waiting.bytes) };
            HeapRecord::<C>::free(waiting.record, waiting.bytes);
            // Its closure lives in the ring now, and its memory is free.
            std::mem::forget(waiting);
            backlog.remove();
        }
        self.ring.publish();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ring::{RING_BYTES_MIN, ring};

    type Log = RefCell<Vec<usize>>;

    #[test]
    fn what_spills_keeps_its_order_and_arrives_once() {
        let (producer, consumer) = ring::<Log>(RING_BYTES_MIN);
        let (outgoing, backlog, log) = (Outgoing::new(producer), Backlog::default(), Log::default());
        let mut sent = 0;
        for round in 0..50 {
            for _ in 0..round {
                let (value, payload) = (sent, [sent; 9]);
                sent += 1;
                // Every seventh is too large for a ring of this size.
                if value % 7 == 0 {
                    let ballast = [payload; 5];
                    outgoing.send(move |log: &Log| log.borrow_mut().push(ballast[4][8]), &backlog);
                } else {
                    outgoing.send(move |log: &Log| log.borrow_mut().push(payload[8]), &backlog);
                }
            }
            outgoing.unspill(&backlog);
            consumer.drain(&log, 5);
        }
        assert!(backlog.now() > 0 && backlog.ever() > 0, "the ring was never full");
        while consumer.drain(&log, 5) > 0 || backlog.now() > 0 {
            outgoing.unspill(&backlog);
        }
        assert!(log.into_inner().into_iter().eq(0..sent));
    }

    #[test]
    fn the_first_unpublished_message_is_told() {
        let (producer, consumer) = ring::<Log>(RING_BYTES_MIN);
        let (outgoing, backlog) = (Outgoing::new(producer), Backlog::default());
        let send = || outgoing.send(|log: &Log| log.borrow_mut().push(1), &backlog);
        assert!(send());
        assert!(!send());
        outgoing.publish();
        assert!(send());
        outgoing.publish();
        while backlog.now() == 0 {
            send();
        }
        outgoing.publish();
        assert!(!send(), "what spills is not in the ring");
        let log = Log::default();
        consumer.drain(&log, usize::MAX);
        assert!(!send(), "nothing passes what has spilled");
        outgoing.unspill(&backlog);
        assert!(send());
    }

    #[test]
    fn what_is_never_delivered_is_dropped_once() {
        let (producer, consumer) = ring::<Log>(RING_BYTES_MIN);
        let (outgoing, backlog, held) = (Outgoing::new(producer), Backlog::default(), Arc::new(()));
        for _ in 0..100 {
            let held = Arc::clone(&held);
            outgoing.send(move |_: &Log| drop(held), &backlog);
        }
        assert_eq!(Arc::strong_count(&held), 101);
        outgoing.publish();
        consumer.drain(&Log::default(), 7);
        outgoing.unspill(&backlog);
        assert_eq!(Arc::strong_count(&held), 94);
        drop(outgoing);
        drop(consumer);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
