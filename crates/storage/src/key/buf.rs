//! [`KeyBuf`]: the owned byte string every key is encoded into.
//!
//! Owns the choice between inline bytes and the heap, and the heap space that a thread keeps for its next long keys: a transaction
//! with a long key takes none from the allocator. It never interprets the bytes.
//! Invariant: two buffers with the same bytes are equal, hash alike and compare alike, wherever the bytes are.

use std::borrow::Borrow;
use std::cell::RefCell;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use super::first_eight;

/// Bytes a [`KeyBuf`] holds without going to the heap. Chosen so that the whole structure is 32 bytes:
/// keys are copied several times on the path of a transaction, and three 8-byte columns with some flags fit.
pub const INLINE_KEY_BYTES: usize = 30;

/// Bytes of a prefix that [`KeyBuf::set_from_parts`] takes at most.
const PREFIX_PART_BYTES: usize = 16;
const _: () = assert!(PREFIX_PART_BYTES + 12 <= INLINE_KEY_BYTES);

/// An encoded key: a byte string of which the first [`INLINE_KEY_BYTES`] bytes live inline.
///
/// Dereferences to `[u8]`. Equality, order and hash are those of the bytes.
pub struct KeyBuf(Repr);

enum Repr {
    Inline { len: u8, bytes: [u8; INLINE_KEY_BYTES] },
    Heap(Vec<u8>),
}

thread_local! {
    /// Heap space of keys that were dropped on this thread.
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// The number of spaces that a thread keeps.
const SPARES_MAX: usize = 32;
/// Bytes of the spaces that are kept: longer keys are rare.
const SPARE_BYTES: usize = 128;

/// Returns empty space for a key of `len` bytes.
fn heap_space(len: usize) -> Vec<u8> {
    let spare = || SPARE.try_with(|spare| spare.try_borrow_mut().ok()?.pop()).ok().flatten();
    let kept = if len <= SPARE_BYTES { spare() } else { None };
    kept.unwrap_or_else(|| Vec::with_capacity(len.next_power_of_two().max(SPARE_BYTES)))
}

#[cold]
#[inline(never)]
fn copy_of(bytes: &[u8]) -> Vec<u8> {
    let mut space = heap_space(bytes.len());
    space.extend_from_slice(bytes);
    space
}

/// Keeps the space of a key for the next one, or frees it.
#[cold]
#[inline(never)]
fn keep_heap_space(mut space: Vec<u8>) {
    if space.capacity() != SPARE_BYTES {
        return;
    }
    space.clear();
    // Nothing is kept on a thread that is ending.
    let _ = SPARE.try_with(|spare| {
        if let Ok(mut spare) = spare.try_borrow_mut()
            && spare.len() < SPARES_MAX
        {
            spare.push(space);
        }
    });
}

impl Drop for KeyBuf {
    #[inline]
    fn drop(&mut self) {
        if let Repr::Heap(space) = &mut self.0 {
            keep_heap_space(std::mem::take(space));
        }
    }
}

impl KeyBuf {
    /// An empty key.
    #[inline]
    #[must_use]
    pub const fn new() -> KeyBuf {
        KeyBuf(Repr::Inline { len: 0, bytes: [0; INLINE_KEY_BYTES] })
    }

    /// A copy of `bytes`.
    #[inline]
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> KeyBuf {
        let mut key = KeyBuf::new();
        key.extend_from_slice(bytes);
        key
    }

    /// The bytes of the key.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            // `min` tells the compiler what the invariant says, so that no bounds check can panic here.
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len).min(INLINE_KEY_BYTES)],
            Repr::Heap(bytes) => bytes,
        }
    }

    /// Returns true if two keys are the same, in fewer instructions than `==` takes: unused bytes may be compared, too. So it
    /// may be false for equal keys if one of them was longer before, or is on the heap.
    #[inline]
    #[must_use]
    pub fn is_surely(&self, other: &KeyBuf) -> bool {
        match (&self.0, &other.0) {
            (Repr::Inline { len, bytes }, Repr::Inline { len: other_len, bytes: other }) => {
                len == other_len && are_same_words(bytes, other, *len)
            }
            (Repr::Heap(bytes), Repr::Heap(other)) => bytes == other,
            _ => false,
        }
    }

    /// Appends `more` bytes at the end.
    #[inline]
    pub fn extend_from_slice(&mut self, more: &[u8]) {
        if let Repr::Inline { len, bytes } = &mut self.0 {
            let start = usize::from(*len);
            let end = start + more.len();
            if end <= INLINE_KEY_BYTES {
                bytes[start..end].copy_from_slice(more);
                *len = end as u8;
                return;
            }
        }
        self.extend_on_heap(more);
    }

    /// Makes the key of the first `prefix.1` bytes of a prefix, the first `head.1` bytes of a head, and up to eight more: in a few words,
    /// since what is walked makes a key of each row. Returns false, and leaves any key, if it is longer than that or on the heap.
    #[inline(always)]
    pub(crate) fn set_from_parts(
        &mut self,
        prefix: ([u8; PREFIX_PART_BYTES], usize),
        head: ([u8; 4], usize),
        rest: &[u8],
    ) -> bool {
        let Repr::Inline { len, bytes } = &mut self.0 else { return false };
        let at = prefix.1;
        if at > PREFIX_PART_BYTES || rest.len() > 8 {
            return false;
        }
        // What is behind each part is overwritten by the next, or not part of the key.
        bytes[..PREFIX_PART_BYTES].copy_from_slice(&prefix.0);
        bytes[at..at + 4].copy_from_slice(&head.0);
        bytes[at + 4..at + 12].copy_from_slice(&first_eight(rest).to_be_bytes());
        *len = (at + head.1 + rest.len()) as u8;
        true
    }

    /// Appends one byte at the end.
    #[inline]
    pub fn push(&mut self, byte: u8) {
        self.extend_from_slice(&[byte]);
    }

    /// Takes the bytes of another key, which has any bytes afterwards.
    #[inline]
    pub fn take_from(&mut self, source: &mut KeyBuf) {
        match (&mut self.0, &source.0) {
            (Repr::Inline { len, bytes }, Repr::Inline { len: source_len, bytes: source }) => {
                *len = *source_len;
                copy_words(bytes, source, *source_len);
            }
            _ => self.exchange(source),
        }
    }

    #[cold]
    #[inline(never)]
    fn exchange(&mut self, source: &mut KeyBuf) {
        std::mem::swap(self, source);
    }

    #[cold]
    #[inline(never)]
    fn copy_slowly(&mut self, source: &KeyBuf) {
        match (&mut self.0, &source.0) {
            (Repr::Heap(bytes), Repr::Heap(source)) => bytes.clone_from(source),
            _ => *self = source.clone(),
        }
    }

    /// Makes the key empty; heap space that was acquired is kept for the next use.
    #[inline]
    pub fn clear(&mut self) {
        match &mut self.0 {
            Repr::Inline { len, .. } => *len = 0,
            Repr::Heap(bytes) => bytes.clear(),
        }
    }

    /// Cuts the key to its first `len` bytes; does nothing when it is no longer than that.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        match &mut self.0 {
            Repr::Inline { len: current, .. } => *current = (*current).min(len.min(INLINE_KEY_BYTES) as u8),
            Repr::Heap(bytes) => bytes.truncate(len),
        }
    }

    #[cold]
    #[inline(never)]
    fn extend_on_heap(&mut self, more: &[u8]) {
        match &mut self.0 {
            Repr::Heap(bytes) => bytes.extend_from_slice(more),
            Repr::Inline { len, bytes } => {
                let inline = &bytes[..usize::from(*len)];
                let mut heap = heap_space(inline.len() + more.len());
                heap.extend_from_slice(inline);
                heap.extend_from_slice(more);
                self.0 = Repr::Heap(heap);
            }
        }
    }
}

impl From<&KeyBuf> for KeyBuf {
    #[inline]
    fn from(key: &KeyBuf) -> KeyBuf {
        key.clone()
    }
}

impl Clone for KeyBuf {
    #[inline]
    fn clone(&self) -> KeyBuf {
        match &self.0 {
            Repr::Inline { len, bytes } => KeyBuf(Repr::Inline { len: *len, bytes: *bytes }),
            Repr::Heap(bytes) => KeyBuf(Repr::Heap(copy_of(bytes))),
        }
    }

    /// Copies the bytes to where this key is.
    #[inline(always)]
    fn clone_from(&mut self, source: &KeyBuf) {
        match (&mut self.0, &source.0) {
            (Repr::Inline { len, bytes }, Repr::Inline { len: source_len, bytes: source }) => {
                *len = *source_len;
                copy_words(bytes, source, *source_len);
            }
            _ => self.copy_slowly(source),
        }
    }
}

/// Copies at least the first `len` bytes of an inline key, in words: a key that was just encoded was stored in words, and a wider
/// load would wait until they have reached the cache.
#[inline(always)]
fn copy_words(to: &mut [u8; INLINE_KEY_BYTES], from: &[u8; INLINE_KEY_BYTES], len: u8) {
    to[..8].copy_from_slice(&from[..8]);
    if len > 8 {
        to[8..16].copy_from_slice(&from[8..16]);
    }
    if len > 16 {
        to[16..].copy_from_slice(&from[16..]);
    }
}

/// Returns true if the words of two inline keys that their first `len` bytes reach into are the same, compared one after another for
/// the reason of [`copy_words`].
#[inline(always)]
fn are_same_words(a: &[u8; INLINE_KEY_BYTES], b: &[u8; INLINE_KEY_BYTES], len: u8) -> bool {
    let is_same = |from: usize| a[from..from + 8] == b[from..from + 8];
    // The last word overlaps the one before.
    is_same(0) && (len <= 8 || is_same(8)) && (len <= 16 || (is_same(16) && is_same(INLINE_KEY_BYTES - 8)))
}

impl Default for KeyBuf {
    fn default() -> KeyBuf {
        KeyBuf::new()
    }
}

impl Deref for KeyBuf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsRef<[u8]> for KeyBuf {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for KeyBuf {
    #[inline]
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl From<&[u8]> for KeyBuf {
    fn from(bytes: &[u8]) -> KeyBuf {
        KeyBuf::from_slice(bytes)
    }
}

impl PartialEq for KeyBuf {
    #[inline]
    fn eq(&self, other: &KeyBuf) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for KeyBuf {}

impl PartialOrd for KeyBuf {
    #[inline]
    fn partial_cmp(&self, other: &KeyBuf) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for KeyBuf {
    #[inline]
    fn cmp(&self, other: &KeyBuf) -> Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

impl Hash for KeyBuf {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

impl fmt::Debug for KeyBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&DisplayKey(self), f)
    }
}

/// Shows key bytes in hexadecimal, shortened in the middle when they are long; for messages.
#[derive(Clone, Copy)]
pub struct DisplayKey<'a>(pub &'a [u8]);

impl fmt::Display for DisplayKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 24;
        f.write_str("0x")?;
        for byte in self.0.iter().take(SHOWN) {
            write!(f, "{byte:02x}")?;
        }
        if self.0.len() > SHOWN {
            write!(f, "... ({} bytes)", self.0.len())?;
        }
        Ok(())
    }
}

impl fmt::Debug for DisplayKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::hash_map::DefaultHasher;

    fn hash(key: &KeyBuf) -> u64 {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        hasher.finish()
    }

    #[test]
    fn the_whole_buffer_is_32_bytes() {
        assert_eq!(size_of::<KeyBuf>(), 32);
    }

    #[test]
    fn growing_across_the_inline_border_keeps_the_bytes() {
        let mut key = KeyBuf::new();
        let mut model = Vec::new();
        for i in 0..200u8 {
            key.push(i);
            model.push(i);
            assert_eq!(&key[..], &model[..]);
        }
    }

    #[test]
    fn keys_are_surely_the_same_only_if_they_are_equal() {
        let keys = [&b""[..], b"a", b"ab", b"ab\0", &[7; INLINE_KEY_BYTES], &[7; 40], &[7; 41]];
        for (at, key) in keys.iter().enumerate() {
            for (other_at, other) in keys.iter().enumerate() {
                let same = KeyBuf::from_slice(key).is_surely(&KeyBuf::from_slice(other));
                assert_eq!(same, at == other_at, "{key:?} and {other:?}");
            }
        }
        let mut used = KeyBuf::from_slice(b"longer");
        used.truncate(2);
        assert_eq!(used, KeyBuf::from_slice(b"lo"));
        assert!(used.is_surely(&used.clone()));
    }

    #[test]
    fn heap_and_inline_bytes_are_the_same_key() {
        let mut heap = KeyBuf::from_slice(&[7; 100]);
        heap.truncate(5);
        let inline = KeyBuf::from_slice(&[7; 5]);
        assert_eq!(heap, inline);
        assert_eq!(heap.cmp(&inline), Ordering::Equal);
        assert_eq!(hash(&heap), hash(&inline));
        heap.clear();
        assert!(heap.is_empty());
    }

    #[test]
    fn a_key_takes_the_bytes_of_any_other() {
        let lengths = [0, 1, 7, 8, 9, 15, 16, 17, 23, 24, 29, 30, 31, 100];
        for (earlier, len) in lengths.iter().flat_map(|earlier| lengths.map(|len| (*earlier, len))) {
            let bytes: Vec<u8> = (1..=len as u8).collect();
            let (mut copy, mut taken) =
                (KeyBuf::from_slice(&vec![0xff; earlier]), KeyBuf::from_slice(&vec![0xee; earlier]));
            copy.clone_from(&KeyBuf::from_slice(&bytes));
            taken.take_from(&mut KeyBuf::from_slice(&bytes));
            assert!(copy[..] == bytes && taken[..] == bytes, "{len} bytes after {earlier}");
            copy.push(9);
            assert_eq!((copy.len(), copy.last()), (len + 1, Some(&9)));
        }
    }

    #[test]
    fn truncate_never_grows() {
        let mut key = KeyBuf::from_slice(b"abc");
        key.truncate(60);
        assert_eq!(&key[..], b"abc");
        key.truncate(1);
        assert_eq!(&key[..], b"a");
    }

    #[test]
    fn display_shortens_long_keys() {
        assert_eq!(format!("{:?}", KeyBuf::from_slice(&[0xab, 1])), "0xab01");
        assert!(format!("{}", DisplayKey(&[0; 30])).ends_with("... (30 bytes)"));
    }
}
