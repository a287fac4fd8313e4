//! A single-producer single-consumer byte ring that carries closures.
//!
//! Owns: the ring's memory, the two indices, and every closure between `push` and its run. One ring lies between each
//! ordered pair of workers (the inbox of `Virtual domains §5.2`, split by sender so that no two senders meet in one).
//! Never: blocks, allocates after construction, or uses an atomic read-modify-write.
//!
//! # Layout
//! Records lie back to back at multiples of 16 bytes: a 16-byte header (function, record length) and the closure
//! inline. A record never wraps: what is left before the end of the memory becomes a pad record without a function.
//! Indices count bytes from the ring's beginning and are never reduced; their low bits are the position.
//!
//! The producers' indices of the rings to one receiver are one array (`Tails`): each in a line of its own where the rings are
//! few, side by side where they are many (as the clients of `Virtual domains §5.2` share a line of responses), since a receiver looks at
//! all of them in each step.
//!
//! # Protocol
//! The producer writes records privately and makes them visible with one release store in [`Producer::publish`]. The
//! consumer reads that index with acquire once per batch, runs the closures in place, and hands the space back with
//! one release store per batch. Each side keeps a private copy of the other's index and looks at the shared one only
//! when the copy says that nothing is left.
//!
//! # Why the unsafe code is sound
//! - `Producer` and `Consumer` are neither `Sync` nor `Clone`, so each side has one thread at a time.
//! - The producer writes only bytes in `[tail, head + capacity)`, the consumer reads only bytes in `[head, tail)`; the
//!   release/acquire pairs on `tail` and `head` order the writes and reads of the same bytes. (loom: `ring_*`.)
//! - A header's function was made for the type of the closure behind it, in the same `write_record` call. It moves the
//!   closure out; the consumer advances its index before it calls, so no closure is moved out twice, even if a
//!   closure unwinds or drains the same ring again.
//! - Closures are `Send + 'static`, so they may run and be dropped on whichever thread holds the consumer.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::NonNull;

use crossbeam_utils::CachePadded;

use crate::planted::{Bug, ordering, planted};
use crate::prefetch::{CACHE_LINE, prefetch_line};
use crate::sync::{Arc, AtomicUsize, Ordering, Shadow};

mod record;

use record::Header;
pub(crate) use record::{GRANULE, Invoke, drop_record, fits_record, invoke, record_bytes, write_record};

/// The smallest ring: an eighth of it holds a header and a closure of a few words.
pub const RING_BYTES_MIN: usize = 1 << 10;
/// The largest ring: record lengths are 32 bits wide.
pub const RING_BYTES_MAX: usize = 1 << 30;
/// A record may take at most this share of a ring; larger closures are boxed.
const RECORD_SHARE: usize = 8;

/// The number of rings to one receiver up to which each index has a line of its own.
const SPREAD_MAX: usize = 8;
/// Indices in a line (of the pair of lines that processors fetch together).
const INDICES_OF_LINE: usize = 16;

/// The producers' indices of the rings to one receiver: of each ring, everything below is published. Written by the producers.
pub(crate) struct Tails {
    lines: Box<[CachePadded<[AtomicUsize; INDICES_OF_LINE]>]>,
    /// The distance of two rings' indices.
    stride: usize,
}

impl Tails {
    fn new(rings: usize) -> Self {
        let stride = if rings <= SPREAD_MAX { INDICES_OF_LINE } else { 1 };
        let line = |_| CachePadded::new(std::array::from_fn(|_| AtomicUsize::new(0)));
        Self { lines: (0..(rings * stride).div_ceil(INDICES_OF_LINE)).map(line).collect(), stride }
    }

    /// The index of one ring, which has to be one of them.
    #[inline(always)]
    pub(crate) fn of(&self, ring: usize) -> &AtomicUsize {
        let at = ring * self.stride;
        &self.lines[at / INDICES_OF_LINE][at % INDICES_OF_LINE]
    }
}

struct Ring<C> {
    /// The index of this ring in `tails`.
    tail: NonNull<AtomicUsize>,
    /// Keeps `tail` alive.
    _tails: Arc<Tails>,
    /// Written by the consumer: everything below has been moved out.
    head: CachePadded<AtomicUsize>,
    buffer: NonNull<u8>,
    capacity: usize,
    shadow: Shadow,
    context: PhantomData<fn(&C)>,
}

// SAFETY: the memory behind `buffer` is shared by exactly one producer and one consumer under the protocol above, and
// what lies in it is `Send`.
unsafe impl<C> Send for Ring<C> {}
// SAFETY: as above; the indices are atomics and the memory is only reached through the two ends.
unsafe impl<C> Sync for Ring<C> {}

impl<C> Ring<C> {
    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, 128).expect("a ring's capacity is a power of two below 2^30")
    }

    /// The producer's index: everything below is published.
    #[inline(always)]
    fn tail(&self) -> &AtomicUsize {
        // SAFETY: an index of `_tails`, which is never moved and lives as long as this ring.
        unsafe { self.tail.as_ref() }
    }
}

/// Moves out the record at index `head`, which must lie in published space, and advances `head` behind it before its
/// closure runs. Returns whether it was a closure (and not a pad).
///
/// # Safety
/// `buffer`, `mask` and `shadow` are those of one ring; `head` is the start of a record in it that is published and not
/// yet moved out; the caller is the only consumer.
#[inline(always)]
unsafe fn take<C>(
    buffer: NonNull<u8>,
    mask: usize,
    shadow: &Shadow,
    head: &Cell<usize>,
    context: *const C,
) -> bool {
    let at = head.get();
    let offset = at & mask;
    shadow.access(offset / GRANULE, 1);
    // SAFETY: masked offsets stay inside the buffer.
    let record = unsafe { buffer.as_ptr().add(offset) };
    // SAFETY: a published record starts with an initialized header.
    let Header { invoke, bytes } = unsafe { record.cast::<Header<C>>().read() };
    head.set(at + bytes as usize);
    let Some(invoke) = invoke else { return false };
    shadow.access(offset / GRANULE, bytes as usize / GRANULE);
    // SAFETY: the closure behind the header is the one its function was made for, and `head` has passed it.
    unsafe { invoke(context, record.add(GRANULE)) };
    true
}

impl<C> Drop for Ring<C> {
    fn drop(&mut self) {
        let head = Cell::new(self.head.load(Ordering::Acquire));
        let tail = self.tail().load(Ordering::Acquire);
        while head.get() != tail {
            // SAFETY: both ends are gone, so `[head, tail)` is ours; a null context drops the closure.
            unsafe { take::<C>(self.buffer, self.capacity - 1, &self.shadow, &head, std::ptr::null()) };
        }
        // SAFETY: allocated in `ring` with the same layout.
        unsafe { dealloc(self.buffer.as_ptr(), Self::layout(self.capacity)) };
    }
}

/// The sending end of a ring. It belongs to one thread at a time.
pub struct Producer<C> {
    /// Bytes written so far, published or not.
    tail: Cell<usize>,
    /// A record may be written up to here without another look: the end of the free space or of the memory.
    limit: Cell<usize>,
    /// Value of `tail` at the last publication.
    published: Cell<usize>,
    /// The consumer's index as last seen.
    head_seen: Cell<usize>,
    buffer: NonNull<u8>,
    mask: usize,
    record_bytes_max: usize,
    ring: Arc<Ring<C>>,
}

// SAFETY: a producer is the only writer of its ring wherever it is; what it writes is `Send`. It is not `Sync`.
unsafe impl<C> Send for Producer<C> {}

/// The receiving end of a ring. It belongs to one thread at a time.
pub struct Consumer<C> {
    /// Bytes moved out so far, handed back or not.
    head: Cell<usize>,
    /// The producer's index as last seen.
    tail_seen: Cell<usize>,
    /// Value of `head` when space was last handed back.
    released: Cell<usize>,
    buffer: NonNull<u8>,
    mask: usize,
    ring: Arc<Ring<C>>,
}

// SAFETY: a consumer is the only reader of its ring wherever it is; what it reads is `Send`. It is not `Sync`.
unsafe impl<C> Send for Consumer<C> {}

/// Makes a ring of `bytes` bytes of memory, whose closures run on a context of type `C`.
///
/// The calling thread touches the memory first, so a kernel with a first-touch policy places it on the caller's
/// memory node; that should be the receiver's.
///
/// # Panics
/// If `bytes` is not a power of two between [`RING_BYTES_MIN`] and [`RING_BYTES_MAX`]; see [`ring_bytes_valid`].
#[must_use]
pub fn ring<C>(bytes: usize) -> (Producer<C>, Consumer<C>) {
    ring_of(&Arc::new(Tails::new(1)), 0, bytes)
}

/// Makes `count` rings to one receiver like [`ring`], with their producers' indices.
pub(crate) fn rings<C>(count: usize, bytes: usize) -> (Vec<Producer<C>>, Vec<Consumer<C>>, Arc<Tails>) {
    let tails = Arc::new(Tails::new(count));
    let (producers, consumers) = (0..count).map(|at| ring_of(&tails, at, bytes)).unzip();
    (producers, consumers, tails)
}

fn ring_of<C>(tails: &Arc<Tails>, at: usize, bytes: usize) -> (Producer<C>, Consumer<C>) {
    assert!(
        ring_bytes_valid(bytes),
        "a ring takes a power of two from {RING_BYTES_MIN} to {RING_BYTES_MAX} bytes"
    );
    let layout = Ring::<C>::layout(bytes);
    // SAFETY: the layout's size is not zero.
    let Some(buffer) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
    // SAFETY: the allocation has `bytes` bytes. Writing them all is the first touch that places the pages.
    unsafe { buffer.as_ptr().write_bytes(0, bytes) };
    let ring = Arc::new(Ring {
        tail: NonNull::from(tails.of(at)),
        _tails: Arc::clone(tails),
        head: CachePadded::new(AtomicUsize::new(0)),
        buffer,
        capacity: bytes,
        shadow: Shadow::new(bytes / GRANULE),
        context: PhantomData,
    });
    let producer = Producer {
        tail: Cell::new(0),
        limit: Cell::new(bytes),
        published: Cell::new(0),
        head_seen: Cell::new(0),
        buffer,
        mask: bytes - 1,
        record_bytes_max: bytes / RECORD_SHARE,
        ring: Arc::clone(&ring),
    };
    let consumer = Consumer {
        head: Cell::new(0),
        tail_seen: Cell::new(0),
        released: Cell::new(0),
        buffer,
        mask: bytes - 1,
        ring,
    };
    (producer, consumer)
}

/// Returns whether [`ring`] accepts this size.
#[must_use]
pub const fn ring_bytes_valid(bytes: usize) -> bool {
    bytes.is_power_of_two() && bytes >= RING_BYTES_MIN && bytes <= RING_BYTES_MAX
}

impl<C> Producer<C> {
    /// Writes a closure into the ring, to be seen by the consumer after the next [`publish`](Self::publish). A closure
    /// larger than an eighth of the ring, or aligned to more than 16 bytes, is boxed.
    ///
    /// # Errors
    /// Gives the closure back when the ring is full.
    #[inline]
    pub fn push<F: FnOnce(&C) + Send + 'static>(&self, closure: F) -> Result<(), F> {
        if !self.fits_inline::<F>() {
            return self.push_boxed(closure);
        }
        let Some(record) = self.claim(const { record_bytes::<F>() }) else { return Err(closure) };
        // SAFETY: the record was claimed for this closure, which fits.
        unsafe { write_record::<C, F>(record, closure) };
        Ok(())
    }

    /// Returns whether an `F` may lie in the ring itself. Small closures decide at compile time.
    #[inline(always)]
    pub(crate) fn fits_inline<F>(&self) -> bool {
        fits_record::<F>()
            && (record_bytes::<F>() <= RING_BYTES_MIN / RECORD_SHARE
                || record_bytes::<F>() <= self.record_bytes_max)
    }

    #[cold]
    #[inline(never)]
    fn push_boxed<F: FnOnce(&C) + Send + 'static>(&self, closure: F) -> Result<(), F> {
        // Room first: a closure that is boxed already could not be given back.
        let Some(record) = self.claim(const { record_bytes::<Box<F>>() }) else { return Err(closure) };
        let boxed = Box::new(closure);
        let run = move |context: &C| (*boxed)(context);
        // SAFETY: a closure that captures one box has a box's size and alignment, for which the record was claimed.
        unsafe { write_record::<C, _>(record, run) };
        Ok(())
    }

    /// Takes the next `bytes` bytes for a record, which the caller must write before it calls anything else here.
    #[inline(always)]
    pub(crate) fn claim(&self, bytes: usize) -> Option<NonNull<u8>> {
        if self.tail.get() + bytes > self.limit.get() && !self.make_room(bytes) {
            return None;
        }
        self.claim_at_once(bytes)
    }

    /// Claims like [`claim`](Self::claim), but does not look for room where there was none before.
    #[inline(always)]
    pub(crate) fn claim_at_once(&self, bytes: usize) -> Option<NonNull<u8>> {
        let tail = self.tail.get();
        if tail + bytes > self.limit.get() {
            return None;
        }
        self.ring.shadow.access((tail & self.mask) / GRANULE, bytes / GRANULE);
        self.tail.set(tail + bytes);
        // SAFETY: a masked index is below the capacity.
        Some(unsafe { self.buffer.add(tail & self.mask) })
    }

    /// Makes [`claim_at_once`](Self::claim_at_once) find no room until the next successful [`claim`](Self::claim).
    pub(crate) fn block(&self) {
        self.limit.set(0);
    }

    /// Looks at the consumer's index again and, at the end of the memory, pads and wraps. Returns whether `bytes` bytes
    /// may now be written at `tail`.
    #[cold]
    #[inline(never)]
    fn make_room(&self, bytes: usize) -> bool {
        let capacity = self.mask + 1;
        let tail = self.tail.get();
        let contiguous = capacity - (tail & self.mask);
        let pad = if contiguous < bytes { contiguous } else { 0 };
        if tail + pad + bytes > self.head_seen.get() + capacity {
            self.head_seen.set(self.ring.head.load(Ordering::Acquire));
            if tail + pad + bytes > self.head_seen.get() + capacity {
                return false;
            }
        }
        if pad > 0 {
            let offset = tail & self.mask;
            self.ring.shadow.access(offset / GRANULE, 1);
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a pad is smaller than a ring, whose size fits 30 bits"
            )]
            let header = Header::<C> { invoke: None, bytes: pad as u32 };
            // SAFETY: the memory up to its end is free, and holds at least one granule as all records are multiples.
            unsafe { self.buffer.add(offset).cast::<Header<C>>().write(header) };
            self.tail.set(tail + pad);
        }
        let tail = self.tail.get();
        self.limit.set((self.head_seen.get() + capacity).min((tail | self.mask) + 1));
        true
    }

    /// Returns whether nothing was written since the last publication.
    #[inline]
    #[must_use]
    pub fn is_published(&self) -> bool {
        self.tail.get() == self.published.get()
    }

    /// Makes everything written so far visible to the consumer. Returns whether there was anything.
    #[inline]
    pub fn publish(&self) -> bool {
        let tail = self.tail.get();
        let fresh = tail != self.published.get();
        if fresh {
            self.published.set(tail);
            self.ring.tail().store(tail, ordering(Bug::RingPublish, Ordering::Release));
        }
        fresh
    }
}

impl<C> Drop for Producer<C> {
    fn drop(&mut self) {
        if !planted(Bug::RingDrop) {
            self.publish();
        }
    }
}

impl<C> Consumer<C> {
    /// Runs up to `records_max` published closures on `context`, in the order they were pushed, and hands their space
    /// back. Returns how many ran.
    #[inline]
    pub fn drain(&self, context: &C, records_max: usize) -> usize {
        if self.head.get() == self.tail_seen.get() {
            let tail = self.ring.tail().load(Ordering::Acquire);
            if tail == self.tail_seen.get() {
                return 0;
            }
            self.tail_seen.set(tail);
        }
        let mut ran = 0;
        let mut prefetched = self.head.get();
        while ran < records_max && self.head.get() != self.tail_seen.get() {
            if self.head.get() >= prefetched {
                prefetched = self.prefetch(prefetched);
            }
            // SAFETY: `head` is below the published `tail`, at a record's start; only this consumer moves records out.
            // The indices are read anew each time, because a closure may itself drain this ring.
            let closure = unsafe { take(self.buffer, self.mask, &self.ring.shadow, &self.head, context) };
            ran += usize::from(closure);
        }
        self.release();
        ran
    }

    /// Asks for the next records' cache lines at once. Where a record lies is only known from the one before it, so
    /// without this each line would be waited for in turn. Returns the index up to which lines were asked for.
    #[inline]
    fn prefetch(&self, from: usize) -> usize {
        const LINES_AHEAD: usize = 16;
        let from = from.max(self.head.get());
        let end = self.tail_seen.get().min(from + LINES_AHEAD * CACHE_LINE);
        let mut at = from;
        while at < end {
            // SAFETY: masked offsets stay inside the buffer.
            prefetch_line(unsafe { self.buffer.as_ptr().add(at & self.mask) });
            at += CACHE_LINE;
        }
        end
    }

    /// The index of the next record: all before it have been moved out.
    #[inline(always)]
    pub(crate) fn index(&self) -> usize {
        self.head.get()
    }

    /// Hands the space of moved-out records back to the producer.
    #[inline]
    fn release(&self) {
        let head = self.head.get();
        if head != self.released.get() {
            self.released.set(head);
            self.ring.head.store(head, ordering(Bug::RingRelease, Ordering::Release));
        }
    }
}

impl<C> Drop for Consumer<C> {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
