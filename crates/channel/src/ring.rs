//! A single-producer single-consumer ring of byte strings, in memory that another process may share.
//!
//! Owns: the format of records, and the two indices of each ring. Never: blocks, makes a system call, or trusts what it reads
//! from the memory.
//!
//! # Layout
//! Records lie back to back at multiples of 8 bytes: a word (low half the length in bytes, high half the `Record`) and the
//! bytes. A record never wraps: what is left before the end of the ring becomes a pad. A record takes at most a quarter of the
//! ring; a longer message goes in several. Indices count bytes from the link's beginning and are never reduced.
//!
//! # Protocol
//! The producer writes records privately and publishes them with one release store of its tail; the consumer reads the
//! tail with acquire once per batch, copies the records out, and hands the space back with one release store of its head per
//! batch. Each side keeps copies of both indices: its own, which it never reads back, and the other's as last seen, so
//! that it reads the other's cache line only when the copy says that nothing is left. (loom: `ring_*`.)
//!
//! # What holds with a peer that is broken, or means harm
//! - Every index and every record word that is read is checked before it is used; one that makes no sense is an error and
//!   ends the link. No loop is longer than what the ring can hold.
//! - A message is copied out of the ring before anybody looks at it, so that it does not change while it is read. Which
//!   bytes it has is the peer's word alone: there is no checksum.
//!
//! # Why the unsafe code is sound
//! - Offsets are masked to the ring and lengths checked against its end before memory is accessed.
//! - The consumer reads by relaxed atomic loads of whole words, which are defined whoever writes meanwhile. The producer writes
//!   only what it never reads.
//! - Between two ends that follow the protocol, the release/acquire pairs on tail and head order writes and reads of the
//!   same bytes. There is one producer and one consumer of each ring, because they are neither `Clone` nor made twice.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64 as DataWord;

use crate::error::ChannelError;
use crate::link::{Link, Side};
use crate::planted::{Bug, ordering, planted};
use crate::sync::Ordering;
use crate::{MESSAGE_BYTES_MAX, joined_bytes};

/// Bytes of the word before a record's bytes.
const WORD_BYTES: usize = 8;
/// A record may take at most this share of its ring.
const RECORD_SHARE: usize = 4;

/// What a record is. The numbers are those in memory; zero, as in memory that nobody has written, is none of them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Record {
    /// A message, or the rest of one.
    End = 1,
    /// A part of a message that goes on in the next record.
    More = 2,
    /// Nothing, up to the end of the ring.
    Pad = 3,
}

/// Bytes that a record with a payload of `bytes` bytes takes.
const fn record_bytes(bytes: usize) -> usize {
    WORD_BYTES + bytes.next_multiple_of(WORD_BYTES)
}

/// A ring of `ring_bytes` bytes between two threads of this process.
///
/// # Panics
/// If [`ring_bytes_valid`](crate::ring_bytes_valid) does not hold of the size.
#[cfg(any(not(loom), test))]
#[must_use]
pub fn ring(ring_bytes: usize) -> (Producer, Consumer) {
    let link = Arc::new(Link::in_heap(ring_bytes));
    (Producer::new(Arc::clone(&link), Side::First), Consumer::new(link, Side::Second))
}

/// The sending end of a ring. It belongs to one thread at a time.
pub struct Producer {
    /// Bytes written so far, published or not.
    tail: u64,
    /// Value of `tail` at the last publication.
    published: u64,
    /// The consumer's index as last seen.
    head_seen: u64,
    /// A record may end here without another look: the end of the free space or of the ring.
    limit: u64,
    buffer: NonNull<u8>,
    mask: u64,
    side: Side,
    link: Arc<Link>,
}

// SAFETY: a producer is the only writer of its ring wherever it is.
unsafe impl Send for Producer {}

impl Producer {
    /// The end that writes as `side` of the link. The caller makes one of each.
    pub(crate) fn new(link: Arc<Link>, side: Side) -> Self {
        let (buffer, bytes, _) = link.ring_from(side);
        let capacity = bytes as u64;
        Self { tail: 0, published: 0, head_seen: 0, limit: capacity, buffer, mask: capacity - 1, side, link }
    }

    /// The longest message that goes as one record.
    pub(crate) fn record_payload_max(&self) -> usize {
        self.capacity() as usize / RECORD_SHARE - WORD_BYTES
    }

    fn capacity(&self) -> u64 {
        self.mask + 1
    }

    /// Writes a message that goes as one record, to be seen by the consumer after the next [`publish`](Self::publish).
    /// Returns false if there is no room.
    ///
    /// # Errors
    /// If the message is longer than a quarter of the ring, and if the consumer's index makes no sense.
    #[inline]
    pub fn push(&mut self, parts: &[&[u8]]) -> Result<bool, ChannelError> {
        let bytes = joined_bytes(parts);
        if bytes > self.record_payload_max() {
            return Err(ChannelError::TooLong { bytes, max: self.record_payload_max() });
        }
        self.push_checked(parts, bytes)
    }

    /// Writes a message of `bytes` bytes, which go as one record, like [`push`](Self::push).
    #[inline]
    pub(crate) fn push_checked(&mut self, parts: &[&[u8]], bytes: usize) -> Result<bool, ChannelError> {
        debug_assert!(bytes == joined_bytes(parts) && bytes <= self.record_payload_max());
        self.write(Record::End, parts, bytes)
    }

    /// Writes as much of a message as the ring has room for, from byte `from` on. Returns the byte to go on from later, and
    /// whether the message is complete.
    #[cfg(not(loom))]
    pub(crate) fn push_from(
        &mut self,
        message: &[u8],
        mut from: usize,
    ) -> Result<(usize, bool), ChannelError> {
        loop {
            let part = &message[from..message.len().min(from + self.record_payload_max())];
            let record = if from + part.len() == message.len() { Record::End } else { Record::More };
            if !self.write(record, &[part], part.len())? {
                return Ok((from, false));
            }
            from += part.len();
            if record == Record::End {
                return Ok((from, true));
            }
        }
    }

    #[inline]
    fn write(&mut self, record: Record, parts: &[&[u8]], bytes: usize) -> Result<bool, ChannelError> {
        let needed = record_bytes(bytes) as u64;
        if self.tail + needed > self.limit && !self.make_room(needed)? {
            return Ok(false);
        }
        self.write_word(record, bytes);
        let mut at = (self.tail & self.mask) as usize + WORD_BYTES;
        self.shadow(at, bytes);
        for part in parts {
            // SAFETY: `needed` bytes from the tail on are before the end of the ring, and they are the producer's; the parts
            // are `bytes` bytes together, and lie elsewhere.
            unsafe { self.buffer.add(at).copy_from_nonoverlapping(NonNull::from(*part).cast(), part.len()) };
            at += part.len();
        }
        self.tail += needed;
        Ok(true)
    }

    /// Looks at the consumer's index again and, at the end of the ring, pads and wraps. Returns whether `needed` bytes may
    /// now be written at the tail.
    #[cold]
    fn make_room(&mut self, needed: u64) -> Result<bool, ChannelError> {
        let contiguous = self.capacity() - (self.tail & self.mask);
        let pad = if contiguous < needed { contiguous } else { 0 };
        if self.tail - self.head_seen + pad + needed > self.capacity() {
            self.head_seen = self.look()?;
            if self.tail - self.head_seen + pad + needed > self.capacity() {
                return Ok(false);
            }
        }
        if pad > 0 {
            self.write_word(Record::Pad, pad as usize - WORD_BYTES);
            self.tail += pad;
        }
        self.limit = (self.head_seen + self.capacity()).min((self.tail | self.mask) + 1);
        Ok(true)
    }

    /// Looks at the consumer's index, which cannot be more than a ring behind or before the tail at all.
    fn look(&self) -> Result<u64, ChannelError> {
        let head = self.link.words(self.side.other()).head.load(Ordering::Acquire);
        if self.tail.wrapping_sub(head) > self.capacity() {
            return Err(ChannelError::Nonsense(format!(
                "it has taken messages up to byte {head} of a ring that is written up to byte {}",
                self.tail
            )));
        }
        Ok(head)
    }

    /// Returns whether the consumer has handed back space since room was missing.
    pub(crate) fn room_has_grown(&self) -> bool {
        self.link.words(self.side.other()).head.load(Ordering::Acquire) != self.head_seen
    }

    #[inline]
    fn write_word(&self, record: Record, bytes: usize) {
        let at = (self.tail & self.mask) as usize;
        self.shadow(at, WORD_BYTES);
        let word = bytes as u64 | (record as u64) << 32;
        // SAFETY: the tail is a multiple of 8, so the word is aligned and before the end of the ring; it is the producer's.
        unsafe { self.buffer.add(at).cast::<u64>().write(word) };
    }

    #[inline(always)]
    fn shadow(&self, at: usize, bytes: usize) {
        self.link.ring_from(self.side).2.access(at, bytes);
    }

    /// Makes everything written so far visible to the consumer. Returns whether there was anything.
    #[inline]
    pub fn publish(&mut self) -> bool {
        let fresh = self.tail != self.published;
        if fresh {
            self.published = self.tail;
            self.link.words(self.side).tail.store(self.tail, ordering(Bug::RingPublish, Ordering::Release));
        }
        fresh
    }
}

/// The receiving end of a ring. It belongs to one thread at a time.
pub struct Consumer {
    /// Bytes taken so far, handed back or not.
    head: u64,
    /// Value of `head` when space was last handed back.
    released: u64,
    /// The producer's index as last seen, and checked.
    tail_seen: u64,
    buffer: NonNull<u8>,
    mask: u64,
    /// The record that is being handed out.
    copy: Vec<u64>,
    /// The parts of a message of which more are to come.
    parts: Vec<u8>,
    side: Side,
    link: Arc<Link>,
}

// SAFETY: a consumer is the only reader of its ring wherever it is.
unsafe impl Send for Consumer {}

impl Consumer {
    /// The end that reads as `side` of the link what the other side writes. The caller makes one of each.
    pub(crate) fn new(link: Arc<Link>, side: Side) -> Self {
        let (buffer, bytes, _) = link.ring_from(side.other());
        let (copy, parts) = (Vec::new(), Vec::new());
        Self { head: 0, released: 0, tail_seen: 0, buffer, mask: bytes as u64 - 1, copy, parts, side, link }
    }

    /// Returns whether something is published that was not taken, by a fresh look at the producer's index.
    #[inline]
    #[must_use]
    pub fn has_published(&self) -> bool {
        self.link.words(self.side.other()).tail.load(Ordering::Acquire) != self.head
    }

    /// Hands up to `max` messages to `take`, in order, and their space back. Returns how many.
    ///
    /// # Errors
    /// If the producer's index or a record makes no sense; what lay before it was handed out.
    #[inline]
    pub fn receive(&mut self, max: usize, take: &mut dyn FnMut(&[u8])) -> Result<usize, ChannelError> {
        if self.head == self.tail_seen && !self.look()? {
            return Ok(0);
        }
        let mut taken = 0;
        while taken < max && self.head != self.tail_seen {
            taken += usize::from(self.take_record(take)?);
        }
        self.release();
        Ok(taken)
    }

    /// Looks at the producer's index. Returns whether it has moved.
    #[inline]
    fn look(&mut self) -> Result<bool, ChannelError> {
        let tail = self.link.words(self.side.other()).tail.load(Ordering::Acquire);
        let fresh = tail.wrapping_sub(self.head);
        if fresh > self.mask + 1 || !fresh.is_multiple_of(WORD_BYTES as u64) {
            return Err(ChannelError::Nonsense(format!(
                "it has written messages up to byte {tail} of a ring that is read up to byte {}",
                self.head
            )));
        }
        self.tail_seen = tail;
        Ok(fresh != 0)
    }

    /// Takes the record at the head, which is below the tail. Returns whether it ended a message.
    #[inline]
    fn take_record(&mut self, take: &mut dyn FnMut(&[u8])) -> Result<bool, ChannelError> {
        let at = (self.head & self.mask) as usize;
        let (record, bytes) = self.record_at(at)?;
        if record != Record::Pad {
            self.copy_out(at + WORD_BYTES, bytes);
        }
        self.head += record_bytes(bytes) as u64;
        if record == Record::Pad {
            return Ok(false);
        }
        // SAFETY: the copy has at least `bytes` bytes, all of them initialized.
        let copy = unsafe { std::slice::from_raw_parts(self.copy.as_ptr().cast::<u8>(), bytes) };
        if record == Record::End && self.parts.is_empty() {
            take(copy);
            return Ok(true);
        }
        if self.parts.len() + bytes > MESSAGE_BYTES_MAX {
            return Err(ChannelError::Nonsense(format!("a message of it exceeds {MESSAGE_BYTES_MAX} bytes")));
        }
        self.parts.extend_from_slice(copy);
        if record == Record::End {
            take(&self.parts);
            // A message that takes several records is rare: its memory is not kept.
            self.parts = Vec::new();
        }
        Ok(record == Record::End)
    }

    /// Reads and checks the word of the record at byte `at` of the ring, which is published.
    #[inline]
    fn record_at(&self, at: usize) -> Result<(Record, usize), ChannelError> {
        self.shadow(at, WORD_BYTES);
        // SAFETY: the head is a multiple of 8, so the word is aligned and before the end of the ring.
        let word = unsafe { self.buffer.add(at).cast::<DataWord>().as_ref() }.load(Ordering::Relaxed);
        let bytes = (word & u64::from(u32::MAX)) as usize;
        let record = match word >> 32 {
            1 => Record::End,
            2 => Record::More,
            3 => Record::Pad,
            _ => return Err(ChannelError::Nonsense(format!("a message of it begins with {word:#018x}"))),
        };
        let published = (self.tail_seen - self.head) as usize;
        let contiguous = self.mask as usize + 1 - at;
        let beyond = record_bytes(bytes) > published && !planted(Bug::RecordLengthTrusted);
        if beyond || record_bytes(bytes) > contiguous {
            return Err(ChannelError::Nonsense(format!(
                "a message of it has {bytes} bytes where {published} are written, and {contiguous} can be"
            )));
        }
        Ok((record, bytes))
    }

    /// Copies `bytes` bytes from byte `at` of the ring on.
    #[inline]
    fn copy_out(&mut self, at: usize, bytes: usize) {
        self.shadow(at, bytes);
        let words = bytes.div_ceil(WORD_BYTES);
        if self.copy.len() < words {
            self.copy.resize(words.next_power_of_two(), 0);
        }
        // SAFETY: the record was checked to end within the ring, and it begins at a multiple of 8.
        let ring =
            unsafe { std::slice::from_raw_parts(self.buffer.add(at).cast::<DataWord>().as_ptr(), words) };
        // Eight at a time: compilers do not unroll atomic loads.
        let (copies, ring_chunks) = (self.copy[..words].chunks_exact_mut(8), ring.chunks_exact(8));
        let rest = ring_chunks.remainder();
        for (copy, ring) in copies.zip(ring_chunks) {
            for at in 0..8 {
                copy[at] = ring[at].load(Ordering::Relaxed);
            }
        }
        for (copy, word) in self.copy[words - rest.len()..].iter_mut().zip(rest) {
            *copy = word.load(Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn shadow(&self, at: usize, bytes: usize) {
        self.link.ring_from(self.side.other()).2.access(at, bytes);
    }

    /// Hands the space of what was taken back to the producer.
    #[inline]
    fn release(&mut self) {
        if self.head != self.released {
            self.released = self.head;
            self.link.words(self.side).head.store(self.head, ordering(Bug::RingRelease, Ordering::Release));
        }
    }

    /// Bytes taken and handed back since the link began.
    #[cfg(not(loom))]
    pub(crate) fn released(&self) -> u64 {
        self.released
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
