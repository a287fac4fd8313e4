//! Searching in one node.
//!
//! Owns the comparison of keys with prefixes, heads and suffixes. It reads one page and changes nothing.
//!
//! A search compares whole vectors of heads and takes its decisions without branches on data: where a key is in a node is
//! as good as random, and a wrongly guessed branch costs as much as all of the rest. It also lets a processor that looks
//! far ahead begin the next look-up while this one waits for memory.

use super::{HEAD_BYTES, HEADER_PREFIX_BYTES, NO_HEAD, NodePtr, VECTOR, head_of};
use crate::key::first_eight;
use std::cmp::Ordering;

/// Masks by the length of a prefix: all ones for those bytes of the two integers of a header that are part of it.
static PREFIX_MASKS: [[u64; 2]; HEADER_PREFIX_BYTES + 1] = {
    let mut masks = [[0; 2]; HEADER_PREFIX_BYTES + 1];
    let mut len = 1;
    while len <= HEADER_PREFIX_BYTES {
        let all = u128::MAX << (128 - 8 * len);
        masks[len] = [(all >> 64) as u64, all as u64];
        len += 1;
    }
    masks
};

/// The first of these integers alone, for prefixes of less than eight bytes.
static SHORT_PREFIX_MASKS: [u64; 8] = {
    let mut masks = [0; 8];
    let mut len = 0;
    while len < masks.len() {
        masks[len] = PREFIX_MASKS[len][0];
        len += 1;
    }
    masks
};

/// A key being looked for, with its first sixteen bytes as two integers (zeros behind a shorter one), so that nodes are
/// compared in registers.
#[derive(Clone, Copy)]
pub(crate) struct SearchKey<'a> {
    pub(crate) bytes: &'a [u8],
    first: u64,
    second: u64,
    /// The longest prefix with which the key is compared in one register: the key has as many bytes, and the first eight, with
    /// zeros behind, have the head behind the prefix.
    short_prefix_max: usize,
}

impl<'a> SearchKey<'a> {
    #[inline(always)]
    pub(crate) fn new(bytes: &'a [u8]) -> SearchKey<'a> {
        let len = bytes.len();
        let (first, second) = match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
            (Some(first), Some(_)) if len == 8 => (u64::from_be_bytes(*first), 0),
            // The last eight bytes overlap the first eight; what they share is shifted out.
            (Some(first), Some(last)) if len < 16 => {
                (u64::from_be_bytes(*first), u64::from_be_bytes(*last) << (8 * (16 - len)))
            }
            (Some(first), Some(_)) => {
                let second = bytes[8..].first_chunk().map_or(0, |second| u64::from_be_bytes(*second));
                (u64::from_be_bytes(*first), second)
            }
            _ => (first_eight(bytes), 0),
        };
        let short_prefix_max = if len > 8 { 8 - HEAD_BYTES } else { len.min(7) };
        SearchKey { bytes, first, second, short_prefix_max }
    }

    /// The head of what follows the first `prefix_len` bytes, which the key has.
    #[inline(always)]
    fn head_after(&self, prefix_len: usize) -> i32 {
        if prefix_len <= self.short_prefix_max {
            return head_in(self.first, prefix_len);
        }
        if prefix_len > HEADER_PREFIX_BYTES - HEAD_BYTES {
            return head_of(&self.bytes[prefix_len..]);
        }
        let both = (u128::from(self.first) << 64) | u128::from(self.second);
        ((both << (8 * prefix_len)) >> 96) as i32 ^ i32::MIN
    }
}

/// The head among the first eight bytes of a key, behind the first `prefix_len`.
#[inline(always)]
fn head_in(first: u64, prefix_len: usize) -> i32 {
    ((first << (8 * prefix_len)) >> 32) as i32 ^ i32::MIN
}

/// The result of looking for a key in a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    /// The entry with the key, or where it would be inserted.
    pub(crate) index: usize,
    pub(crate) found: bool,
}

/// The entry of a leaf that a key may be at, as far as the heads tell.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Candidate {
    /// The first entry whose head is not smaller.
    pub(crate) index: usize,
    /// Set if its head is the same.
    pub(crate) possible: bool,
}

/// Order of a key relative to the prefix of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prefix {
    /// Sorts before every key of the node.
    Before,
    /// Begins with the prefix.
    Same,
    /// Sorts behind every key of the node.
    Behind,
}

/// What follows the prefix and the head of a key that is looked for in a node.
struct KeyRest<'a> {
    bytes: &'a [u8],
    /// The first eight of the bytes.
    first: u64,
    /// Bytes of the key behind the prefix.
    suffix_len: usize,
}

impl<'a> KeyRest<'a> {
    #[inline(always)]
    fn of(key: &SearchKey<'a>, prefix_len: usize) -> KeyRest<'a> {
        let bytes = key.bytes.get(prefix_len + HEAD_BYTES..).unwrap_or_default();
        KeyRest { bytes, first: first_eight(bytes), suffix_len: key.bytes.len() - prefix_len }
    }
}

/// The number of heads smaller than `head` among the sixteen at `heads`, which ascend.
///
/// # Safety
/// All sixteen can be read, and the first is aligned to 16 bytes.
#[inline(always)]
unsafe fn below_in_vector(heads: *const i32, head: i32) -> usize {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{
            __m128i, _mm_cmpgt_epi32, _mm_load_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32,
            _mm_set1_epi32,
        };
        // SAFETY: these instructions are part of every x86-64, and the caller vouches for the four loads.
        let greater = unsafe {
            let wanted = _mm_set1_epi32(head);
            let compare = |quarter: usize| {
                _mm_cmpgt_epi32(wanted, _mm_load_si128(heads.add(4 * quarter).cast::<__m128i>()))
            };
            let low = _mm_packs_epi32(compare(0), compare(1));
            let high = _mm_packs_epi32(compare(2), compare(3));
            _mm_movemask_epi8(_mm_packs_epi16(low, high)) as u32
        };
        greater.trailing_ones() as usize
    }
    #[cfg(any(miri, not(target_arch = "x86_64")))]
    {
        // SAFETY: the caller vouches for all of them.
        let heads = unsafe { &*heads.cast::<[i32; VECTOR]>() };
        heads.iter().map(|&other| i32::from(other < head)).sum::<i32>() as usize
    }
}

impl NodePtr {
    /// The head of what `key` has behind the prefix of the node, if it is [short](SearchKey::short_prefix_max) and the key begins
    /// with it: the case of most nodes.
    #[inline(always)]
    fn head_behind_short_prefix(self, key: &SearchKey<'_>) -> Option<i32> {
        let header = self.header();
        let len = usize::from(header.prefix_len);
        if len > key.short_prefix_max {
            return None;
        }
        // The header has zeros behind the prefix, which leave the bytes of the key there as they are.
        let differing = key.first ^ header.prefix[0];
        (differing & SHORT_PREFIX_MASKS[len % 8] == 0).then(|| head_in(differing, len))
    }

    /// The head of what `key` has behind the prefix of the node; otherwise the order of `key` relative to the prefix.
    #[inline(always)]
    pub(crate) fn head_behind_prefix(self, key: &SearchKey<'_>) -> Result<i32, Prefix> {
        if let Some(head) = self.head_behind_short_prefix(key) {
            return Ok(head);
        }
        match self.compare_prefix(key) {
            Prefix::Same => Ok(key.head_after(self.prefix_len())),
            other => Err(other),
        }
    }

    #[inline(always)]
    pub(crate) fn compare_prefix(self, key: &SearchKey<'_>) -> Prefix {
        let header = self.header();
        let len = usize::from(header.prefix_len);
        let mask = PREFIX_MASKS[len.min(HEADER_PREFIX_BYTES)];
        let differing = (key.first ^ header.prefix[0]) & mask[0] | (key.second ^ header.prefix[1]) & mask[1];
        let is_decided = len <= HEADER_PREFIX_BYTES && len <= key.bytes.len();
        if differing == 0 && is_decided { Prefix::Same } else { self.compare_prefix_slowly(key) }
    }

    #[inline(never)]
    fn compare_prefix_slowly(self, key: &SearchKey<'_>) -> Prefix {
        let len = self.prefix_len();
        let inline = self.header().prefix_bytes();
        let prefix =
            if len <= HEADER_PREFIX_BYTES { &inline[..len] } else { self.bytes(self.prefix_at(), len) };
        let begin = &key.bytes[..len.min(key.bytes.len())];
        // A key that ends inside the prefix is smaller than it, as byte strings compare.
        match begin.cmp(prefix) {
            Ordering::Less => Prefix::Before,
            Ordering::Equal => Prefix::Same,
            Ordering::Greater => Prefix::Behind,
        }
    }

    /// Finds the slot of `key` in a leaf.
    #[inline(always)]
    pub(crate) fn find(self, key: &SearchKey<'_>) -> Slot {
        self.find_at(self.candidate(key), key)
    }

    /// The entry of a leaf that `key` may be at: the first whose head, below the same prefix, is not smaller. Reads no
    /// record.
    #[inline(always)]
    pub(crate) fn candidate(self, key: &SearchKey<'_>) -> Candidate {
        let head = match self.head_behind_prefix(key) {
            Ok(head) => head,
            Err(Prefix::Behind) => return Candidate { index: self.count(), possible: false },
            Err(_) => return Candidate { index: 0, possible: false },
        };
        let index = self.leaf_heads_below(head);
        // SAFETY: a search ends at a slot.
        let possible = unsafe { *self.leaf_heads().add(index) } == head && index < self.count();
        Candidate { index, possible }
    }

    /// Finds the slot of `key` in a leaf, from the `candidate` that its head gave.
    #[inline(always)]
    pub(crate) fn find_at(self, candidate: Candidate, key: &SearchKey<'_>) -> Slot {
        let Candidate { index, possible } = candidate;
        if !possible {
            return Slot { index, found: false };
        }
        match self.compare_suffix::<true>(index, key) {
            Ordering::Equal => Slot { index, found: true },
            Ordering::Greater => Slot { index, found: false },
            Ordering::Less => self.find_among_equal_heads(index + 1, key),
        }
    }

    /// The search among the entries from `from` on that have the head of `key`: the rare case that four bytes do not
    /// decide.
    #[inline(never)]
    fn find_among_equal_heads(self, from: usize, key: &SearchKey<'_>) -> Slot {
        let (mut low, mut high) = (from, self.end_of_head(from, key));
        let rest = KeyRest::of(key, self.prefix_len());
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.compare_rest::<true>(middle, &rest) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Slot { index: middle, found: true },
                Ordering::Greater => high = middle,
            }
        }
        Slot { index: low, found: false }
    }

    /// Behind the last entry, from `from` on, with the head of `key`.
    fn end_of_head(self, from: usize, key: &SearchKey<'_>) -> usize {
        match key.head_after(self.prefix_len()) {
            // Unused heads look the same.
            NO_HEAD => self.count(),
            head if self.is_leaf() => self.leaf_heads_below(head + 1).max(from),
            head => self.inner_heads_below(head + 1).max(from),
        }
    }

    /// The order of entry (or separator) `index` relative to `key`, which has the prefix of the node and `head` behind it.
    #[inline(always)]
    pub(crate) fn order_of<const LEAF: bool>(self, index: usize, key: &SearchKey<'_>, head: i32) -> Ordering {
        debug_assert!(index < self.count() && LEAF == self.is_leaf());
        let heads = if LEAF { self.leaf_heads() } else { self.inner_heads() };
        // SAFETY: the index is that of an entry.
        match unsafe { *heads.add(index) }.cmp(&head) {
            Ordering::Equal => self.compare_suffix::<LEAF>(index, key),
            different => different,
        }
    }

    /// Compares the suffix of entry `index`, whose head equals that of `key`, with the suffix of `key`.
    #[inline(always)]
    fn compare_suffix<const LEAF: bool>(self, index: usize, key: &SearchKey<'_>) -> Ordering {
        let (len, _) = self.suffix_location::<LEAF>(index);
        let key_len = key.bytes.len() - self.prefix_len();
        if len <= HEAD_BYTES && key_len <= HEAD_BYTES {
            // Equal heads: the shorter one ends where the other has zeros.
            return len.cmp(&key_len);
        }
        self.compare_rest::<LEAF>(index, &KeyRest::of(key, self.prefix_len()))
    }

    /// Compares the suffix of entry `index` with that of a key, of which the heads are equal.
    #[inline(always)]
    fn compare_rest<const LEAF: bool>(self, index: usize, key: &KeyRest<'_>) -> Ordering {
        let (len, rest_at) = self.suffix_location::<LEAF>(index);
        let rest = self.bytes(rest_at, len.saturating_sub(HEAD_BYTES));
        if rest.len() <= 8 && key.bytes.len() <= 8 {
            // Where both have the same bytes, the shorter one ends where the other has zeros.
            return (first_eight(rest), len).cmp(&(key.first, key.suffix_len));
        }
        rest.cmp(key.bytes).then(len.cmp(&key.suffix_len))
    }

    /// The child of an inner node where `key` belongs: the number of separators not greater than it.
    #[inline(always)]
    pub(crate) fn child_index(self, key: &SearchKey<'_>) -> usize {
        self.child_index_for::<false>(key)
    }

    /// The child of an inner node where `key` belongs, as [`child_index`](Self::child_index) finds it, for a row that comes if
    /// `COMES`: most rows that come belong behind those that are alike.
    #[inline(always)]
    pub(crate) fn child_index_for<const COMES: bool>(self, key: &SearchKey<'_>) -> usize {
        let head = match self.head_behind_prefix(key) {
            Ok(head) => head,
            Err(Prefix::Behind) => return self.count(),
            Err(_) => return 0,
        };
        let index = self.inner_heads_below(head);
        // SAFETY: a search ends at a slot.
        if unsafe { *self.inner_heads().add(index) } != head {
            return index;
        }
        self.child_index_among_equal_heads::<COMES>(index, key)
    }

    #[inline(never)]
    fn child_index_among_equal_heads<const COMES: bool>(self, from: usize, key: &SearchKey<'_>) -> usize {
        let (mut low, mut high) = (from, self.end_of_head(from, key));
        let rest = KeyRest::of(key, self.prefix_len());
        if COMES && low < high && self.compare_rest::<false>(high - 1, &rest) != Ordering::Greater {
            return high;
        }
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.compare_rest::<false>(middle, &rest) == Ordering::Greater {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    /// The number of heads of a leaf that are smaller than `head`.
    #[inline(always)]
    fn leaf_heads_below(self, head: i32) -> usize {
        let (heads, cap) = (self.leaf_heads(), self.cap());
        // Which vector decides, without branches on data (which one it is, is as good as random) and without waiting from
        // one comparison to the next.
        let mut vectors = 0;
        let mut last = VECTOR - 1;
        while last < cap {
            // SAFETY: the slot is inside the array.
            vectors += usize::from(unsafe { *heads.add(last) } < head);
            last += VECTOR;
        }
        let first = (vectors * VECTOR).min(cap - VECTOR);
        // SAFETY: the vector begins a vector before the end of the array at the latest, at a multiple of eight heads, which
        // is aligned as the array is.
        first + unsafe { below_in_vector(heads.add(first), head) }
    }

    /// The number of heads of an inner node that are smaller than `head`.
    #[inline(always)]
    fn inner_heads_below(self, head: i32) -> usize {
        // SAFETY: an inner node has a vector of hints behind its header, aligned as the page is.
        let block = unsafe { below_in_vector(self.hints(), head) };
        let (heads, cap) = (self.inner_heads(), self.cap());
        if cap > 16 * VECTOR {
            return self.inner_heads_below_in_block(block, head);
        }
        let first = (block * VECTOR).min(cap - VECTOR);
        // SAFETY: the vector begins a vector before the end of the array at the latest, at a multiple of eight heads, which
        // is aligned as the array is.
        first + unsafe { below_in_vector(heads.add(first), head) }
    }

    /// The same for the large blocks of large pages.
    #[inline(never)]
    fn inner_heads_below_in_block(self, block: usize, head: i32) -> usize {
        let (heads, cap, step) = (self.inner_heads(), self.cap(), self.hint_step());
        let start = block * step;
        let mut first = start;
        while first + VECTOR < cap && first + VECTOR < start + step {
            // SAFETY: the slot is inside the array.
            if unsafe { *heads.add(first + VECTOR - 1) } >= head {
                break;
            }
            first += VECTOR;
        }
        let first = first.min(cap - VECTOR);
        // SAFETY: the vector begins a vector before the end of the array at the latest, at a multiple of eight heads, which
        // is aligned as the array is.
        first + unsafe { below_in_vector(heads.add(first), head) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(16))]
    struct Heads([i32; VECTOR]);

    #[test]
    fn a_vector_counts_as_a_loop_does() {
        let values = [i32::MIN, i32::MIN + 1, -2, -1, 0, 1, 2, NO_HEAD - 1, NO_HEAD];
        for low in 0..=VECTOR {
            for high in low..=VECTOR {
                for window in values.windows(3) {
                    // Some of the smallest, some of the middle one, the rest the greatest.
                    let heads = Heads(std::array::from_fn(|i| {
                        window[usize::from(i >= low) + usize::from(i >= high)]
                    }));
                    for head in values {
                        let counted = heads.0.iter().filter(|&&other| other < head).count();
                        // SAFETY: the array is as long and as aligned as is asked for.
                        assert_eq!(unsafe { below_in_vector(heads.0.as_ptr(), head) }, counted);
                    }
                }
            }
        }
    }

    #[test]
    fn heads_are_the_bytes_behind_any_prefix() {
        let bytes: Vec<u8> = (1..=40).map(|byte| byte * 6).collect();
        for len in 0..=bytes.len() {
            let key = SearchKey::new(&bytes[..len]);
            for prefix_len in 0..=len {
                assert_eq!(
                    key.head_after(prefix_len),
                    head_of(&bytes[prefix_len..len]),
                    "{prefix_len} of {len}"
                );
            }
        }
    }
}
