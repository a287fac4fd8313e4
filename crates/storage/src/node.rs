//! Nodes: the layout of a page and the operations on one page.
//!
//! Owns every offset inside a page. It never follows a pointer to another page (that is the tree's business), and it
//! allocates nothing.
//!
//! ```text
//!  0        48          +4*cap                                                      heap_at        page end
//!  +--------+-----------+------------------------------------------+----------------+-------------------+
//!  | header | heads     | leaf:  offsets u16*cap                   | free           | heap: records,    |
//!  |        | i32 * cap | inner: children ptr*(cap+1),             |                | the prefix when   |
//!  |        |           |        rows u32*(cap+1), suffixes u16*cap|                | it exceeds 8 bytes|
//!  +--------+-----------+------------------------------------------+----------------+-------------------+
//!
//!  record of a leaf:  version u64 | suffix length u16 | row length u16 | suffix after the head | row
//!  suffix of an inner entry: its length when at most 4, otherwise the offset of: length u16 | suffix after the head
//! ```
//!
//! All keys of a node begin with its *prefix*, which is not repeated. What follows is the *suffix*; its first four
//! bytes, filled up with zeros, are the *head*, as an integer of the same order, so that a search compares integers in
//! one dense array. Heads are signed, with the sign bit flipped, because that is what vector units compare; unused ones
//! are the greatest integer, so that a search may look at whole vectors. Bytes after the head are stored in the heap, and a key whose suffix fits the head stores none.
//! Short suffixes and small integers as keys make the prefix decide a lot: the first bytes of big-endian numbers are
//! the same almost everywhere, and so every node, inner ones too, has the prefix its own keys have in common.
//!
//! Invariants: `heads` is sorted up to `cap`, and keys are strictly ascending; `cap` is a multiple of 8 and at least `count`; the
//! arrays end at or before `heap_at`; the bytes in the heap are those of live records, of the prefix, and `dead`.
//!
//! # Safety
//! A [`NodePtr`] is a promise that the page behind it is alive, exclusive to one tree and has been initialised by
//! [`NodePtr::init`]. Making one is the unsafe step; the tree that owns the pages keeps the promise, and the borrow of
//! the tree decides who may read or write. Indexes are checked in debug builds.

use crate::key::KeyBuf;
use crate::prefetch::prefetch;
use std::cmp::Ordering;
use std::hint::select_unpredictable;
use std::ptr::NonNull;

/// Bytes before the first head.
pub(crate) const HEADER_BYTES: usize = 48;
/// Bytes of a leaf record that are neither key nor row.
pub(crate) const RECORD_BYTES: usize = 12;
/// Slots by which the arrays of a node grow: the block a search compares at once.
pub(crate) const CAP_STEP: usize = 8;
/// Bytes a leaf needs for one more slot.
pub(crate) const LEAF_SLOT_BYTES: usize = 6;
/// Bytes an inner node needs for one more slot.
pub(crate) const INNER_SLOT_BYTES: usize = 18;
/// Bytes of the first child and its row count.
const FIRST_CHILD_BYTES: usize = 12;
/// Bytes of a suffix that live in the head.
pub(crate) const HEAD_BYTES: usize = 4;
/// Bytes of the prefix that live in the header.
pub(crate) const HEADER_PREFIX_BYTES: usize = 8;

#[repr(C)]
pub(crate) struct Header {
    /// The first eight bytes of the prefix as a big-endian integer, zeros behind a shorter one.
    prefix8: u64,
    /// All ones for those bytes of `prefix8` that are part of the prefix.
    prefix_mask: u64,
    /// The leaf before this one in the tree; unused in inner nodes.
    prev: Option<NodePtr>,
    /// The leaf behind this one in the tree; in a free page, the next free page.
    next: Option<NodePtr>,
    /// Entries of a leaf; separators of an inner node, which has one child more.
    count: u16,
    cap: u16,
    prefix_len: u16,
    /// Where the whole prefix is, when it has more than eight bytes; otherwise 0.
    prefix_at: u16,
    heap_at: u16,
    /// Bytes in the heap that belong to nothing any more.
    dead: u16,
    /// Steps down to the leaves.
    level: u8,
    /// How many of the latest inserts came each directly behind the one before.
    ascending: u8,
    /// The slot of the latest insert.
    last_insert: u16,
}

const _: () = assert!(size_of::<Header>() == HEADER_BYTES);

/// The leaf of every tree without rows, so that a look-up needs no special case. It is never written.
struct EmptyLeaf(Header);

// SAFETY: it is never written, and has no pointers.
unsafe impl Sync for EmptyLeaf {}

static EMPTY_LEAF: EmptyLeaf = EmptyLeaf(Header {
    prefix8: 0,
    prefix_mask: 0,
    prev: None,
    next: None,
    count: 0,
    cap: 0,
    prefix_len: 0,
    prefix_at: 0,
    heap_at: HEADER_BYTES as u16,
    dead: 0,
    level: 0,
    ascending: 0,
    last_insert: 0,
});

/// Bytes of header and arrays.
#[inline]
pub(crate) const fn arrays_end(leaf: bool, cap: usize) -> usize {
    if leaf {
        HEADER_BYTES + LEAF_SLOT_BYTES * cap
    } else {
        HEADER_BYTES + FIRST_CHILD_BYTES + INNER_SLOT_BYTES * cap
    }
}

/// The head in slots without an entry: no head is greater.
pub(crate) const NO_HEAD: i32 = i32::MAX;

/// The head of which these are the bytes.
#[inline(always)]
fn head_from(bytes: [u8; HEAD_BYTES]) -> i32 {
    i32::from_be_bytes(bytes) ^ i32::MIN
}

/// The head of a suffix.
#[inline]
pub(crate) fn head_of(suffix: &[u8]) -> i32 {
    if let Some(head) = suffix.first_chunk::<HEAD_BYTES>() {
        return head_from(*head);
    }
    let mut padded = [0; HEAD_BYTES];
    padded[..suffix.len()].copy_from_slice(suffix);
    head_from(padded)
}

/// A key being looked for, with its first sixteen bytes as two integers (zeros behind a shorter one), so that nodes are
/// compared in registers.
#[derive(Clone, Copy)]
pub(crate) struct SearchKey<'a> {
    pub(crate) bytes: &'a [u8],
    first: u64,
    second: u64,
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
            _ => (short_prefix(bytes), 0),
        };
        SearchKey { bytes, first, second }
    }

    /// The head of what follows the first `prefix_len` bytes, which the key has.
    #[inline(always)]
    fn head_after(&self, prefix_len: usize) -> i32 {
        if prefix_len > 8 {
            return head_of(&self.bytes[prefix_len..]);
        }
        // In two steps, as one shift by a whole register is not defined.
        let half = 4 * prefix_len;
        let mut wide = self.first << half << half;
        if self.bytes.len() > 8 {
            wide |= self.second >> (32 - half) >> (32 - half);
        }
        (wide >> 32) as i32 ^ i32::MIN
    }
}

/// The bytes of a key of less than eight, with zeros behind, as an integer.
#[inline(always)]
fn short_prefix(bytes: &[u8]) -> u64 {
    let mut padded = [0; 8];
    for (to, from) in padded.iter_mut().zip(bytes) {
        *to = *from;
    }
    u64::from_be_bytes(padded)
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
    /// Whether its head is the same.
    pub(crate) possible: bool,
}

/// How a key compares with the prefix of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prefix {
    /// It sorts before every key of the node.
    Before,
    /// It begins with the prefix.
    Same,
    /// It sorts behind every key of the node.
    Behind,
}

/// The address of a page in use. See the module for what it promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct NodePtr(NonNull<Header>);

/// Heads that are compared at once.
const VECTOR: usize = 2 * CAP_STEP;

/// The number of heads smaller than `head` among the sixteen at `heads`, which ascend.
#[inline(always)]
fn below_in_vector(heads: &[i32; VECTOR], head: i32) -> usize {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{
            __m128i, _mm_cmpgt_epi32, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32, _mm_set1_epi32,
        };
        // SAFETY: these instructions are part of every x86-64, and the four loads are inside the array.
        let greater = unsafe {
            let wanted = _mm_set1_epi32(head);
            let compare = |quarter: usize| {
                _mm_cmpgt_epi32(wanted, _mm_loadu_si128(heads.as_ptr().add(4 * quarter).cast::<__m128i>()))
            };
            let low = _mm_packs_epi32(compare(0), compare(1));
            let high = _mm_packs_epi32(compare(2), compare(3));
            _mm_movemask_epi8(_mm_packs_epi16(low, high)) as u32
        };
        greater.trailing_ones() as usize
    }
    #[cfg(any(miri, not(target_arch = "x86_64")))]
    {
        heads.iter().map(|&other| i32::from(other < head)).sum::<i32>() as usize
    }
}

/// The number of heads smaller than `head` among the `cap` at `heads`.
#[inline(always)]
fn heads_below(heads: *const i32, cap: usize, head: i32) -> usize {
    let blocks = cap / CAP_STEP;
    if blocks < 2 {
        // SAFETY: all slots have heads.
        return (0..cap).filter(|&index| unsafe { *heads.add(index) } < head).count();
    }
    // SAFETY: the last head of a block before the last one.
    let below = |block: usize| unsafe { *heads.add(block * CAP_STEP - 1) } < head;
    // Find the two neighbouring blocks between which it is decided, by halves, and compare these at once. Without
    // branches on data: which half it is is as good as random, and a wrong guess costs more than a step. The first step
    // makes a power of two of the blocks: the first so many, or the last so many.
    let mut window = 1 << blocks.ilog2();
    let mut first = select_unpredictable(below(window.min(blocks - 1)), blocks - window, 0);
    while window > 2 {
        window /= 2;
        first = select_unpredictable(below(first + window), first + window, first);
    }
    // SAFETY: the block and the one behind it are inside the array.
    let vector = unsafe { &*heads.add(first * CAP_STEP).cast::<[i32; VECTOR]>() };
    first * CAP_STEP + below_in_vector(vector, head)
}

impl NodePtr {
    /// The node of a tree without rows; it must never be written.
    #[inline]
    pub(crate) fn empty_leaf() -> NodePtr {
        NodePtr(NonNull::from(&EMPTY_LEAF.0))
    }

    #[inline]
    pub(crate) fn is_empty_leaf(self) -> bool {
        std::ptr::eq(self.0.as_ptr(), &raw const EMPTY_LEAF.0)
    }

    /// Makes an empty node of a page.
    ///
    /// # Safety
    /// `page` has `page_bytes` bytes that are exclusive to the tree, stay alive as long as it, and are aligned to 8.
    pub(crate) unsafe fn init(page: NonNull<u8>, page_bytes: usize, level: u8) -> NodePtr {
        let node = NodePtr(page.cast());
        // SAFETY: the caller hands over the page.
        unsafe {
            node.0.write(Header {
                prefix8: 0,
                prefix_mask: 0,
                prev: None,
                next: None,
                count: 0,
                cap: 0,
                prefix_len: 0,
                prefix_at: 0,
                heap_at: page_bytes as u16,
                dead: 0,
                level,
                ascending: 0,
                last_insert: 0,
            });
        }
        node
    }

    /// Empties the node and gives it a prefix and room for `count` entries. Links and level stay.
    pub(crate) fn reset(self, page_bytes: usize, prefix: &[u8], count: usize) {
        let header = self.header_mut();
        let mut prefix8 = [0; HEADER_PREFIX_BYTES];
        let inline = prefix.len().min(HEADER_PREFIX_BYTES);
        prefix8[..inline].copy_from_slice(&prefix[..inline]);
        header.prefix8 = u64::from_be_bytes(prefix8);
        let mut mask = [0; HEADER_PREFIX_BYTES];
        mask[..inline].fill(0xff);
        header.prefix_mask = u64::from_be_bytes(mask);
        header.prefix_len = prefix.len() as u16;
        header.count = 0;
        header.cap = count.next_multiple_of(CAP_STEP) as u16;
        header.heap_at = page_bytes as u16;
        header.dead = 0;
        header.prefix_at = 0;
        header.ascending = 0;
        header.last_insert = 0;
        self.clear_heads(0);
        if prefix.len() > HEADER_PREFIX_BYTES {
            header.prefix_at = self.push_heap(prefix.len());
            self.write_bytes(usize::from(self.header().prefix_at), prefix);
        }
    }

    #[inline(always)]
    pub(crate) fn address(self) -> NonNull<u8> {
        self.0.cast()
    }

    #[inline(always)]
    fn base(self) -> *mut u8 {
        self.0.as_ptr().cast()
    }

    #[inline(always)]
    fn header<'a>(self) -> &'a Header {
        // SAFETY: the promise of `NodePtr`: the page is alive and initialised.
        unsafe { self.0.as_ref() }
    }

    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "the pointer is a handle by value; the borrow of the tree is exclusive")]
    fn header_mut<'a>(self) -> &'a mut Header {
        // SAFETY: the promise of `NodePtr`, and writers hold the exclusive borrow of the tree. Nothing in this module
        // keeps such a reference over a call that makes another one.
        unsafe { &mut *self.0.as_ptr() }
    }

    // ---- links and plain fields ----

    #[inline(always)]
    pub(crate) fn next_free(self) -> Option<NodePtr> {
        self.header().next
    }

    #[inline(always)]
    pub(crate) fn set_next_free(self, next: Option<NodePtr>) {
        self.header_mut().next = next;
    }

    #[inline(always)]
    pub(crate) fn prev(self) -> Option<NodePtr> {
        self.header().prev
    }

    #[inline(always)]
    pub(crate) fn next(self) -> Option<NodePtr> {
        self.header().next
    }

    /// Makes `next` the leaf behind this one and this one the leaf before `next`.
    pub(crate) fn link(self, next: Option<NodePtr>) {
        self.header_mut().next = next;
        if let Some(next) = next {
            next.header_mut().prev = Some(self);
        }
    }

    /// Makes this leaf the first.
    pub(crate) fn unlink_prev(self) {
        self.header_mut().prev = None;
    }

    #[inline(always)]
    pub(crate) fn count(self) -> usize {
        usize::from(self.header().count)
    }

    #[inline(always)]
    pub(crate) fn cap(self) -> usize {
        usize::from(self.header().cap)
    }

    #[inline(always)]
    pub(crate) fn level(self) -> u8 {
        self.header().level
    }

    #[inline(always)]
    pub(crate) fn is_leaf(self) -> bool {
        self.header().level == 0
    }

    #[inline(always)]
    pub(crate) fn heap_at(self) -> usize {
        usize::from(self.header().heap_at)
    }

    #[inline(always)]
    pub(crate) fn dead(self) -> usize {
        usize::from(self.header().dead)
    }

    #[inline(always)]
    pub(crate) fn prefix_at(self) -> usize {
        usize::from(self.header().prefix_at)
    }

    /// Bytes between the arrays and the heap.
    #[inline(always)]
    pub(crate) fn free_bytes(self) -> usize {
        self.heap_at() - arrays_end(self.is_leaf(), self.cap())
    }

    /// Bytes of the page that hold something.
    pub(crate) fn live_bytes(self, page_bytes: usize) -> usize {
        page_bytes - self.free_bytes() - self.dead()
    }

    /// How many of the latest inserts came each directly behind the one before, and the slot of the latest.
    pub(crate) fn insert_pattern(self) -> (u8, usize) {
        (self.header().ascending, usize::from(self.header().last_insert))
    }

    // ---- arrays ----

    /// Marks the heads from `first` on as unused.
    fn clear_heads(self, first: usize) {
        for index in first..self.cap() {
            // SAFETY: the index is inside the array of heads.
            unsafe { *self.heads().add(index) = NO_HEAD };
        }
    }

    #[inline(always)]
    pub(crate) fn heads(self) -> *mut i32 {
        // SAFETY: the page is longer than its header.
        unsafe { self.base().add(HEADER_BYTES).cast() }
    }

    #[inline(always)]
    fn leaf_offsets(self) -> *mut u16 {
        // SAFETY: the offsets follow the heads inside the page.
        unsafe { self.heads().add(self.cap()).cast() }
    }

    #[inline(always)]
    fn children(self) -> *mut NodePtr {
        // SAFETY: the children follow the heads inside the page.
        unsafe { self.heads().add(self.cap()).cast() }
    }

    #[inline(always)]
    fn child_rows(self) -> *mut u32 {
        // SAFETY: the row counts follow the children inside the page.
        unsafe { self.children().add(self.cap() + 1).cast() }
    }

    #[inline(always)]
    fn suffixes(self) -> *mut u16 {
        // SAFETY: the suffixes follow the row counts inside the page.
        unsafe { self.child_rows().add(self.cap() + 1).cast() }
    }

    #[inline(always)]
    pub(crate) fn head(self, index: usize) -> i32 {
        debug_assert!(index < self.cap());
        // SAFETY: the index is that of a slot.
        unsafe { *self.heads().add(index) }
    }

    /// Child `index` of an inner node.
    #[inline(always)]
    pub(crate) fn child(self, index: usize) -> NodePtr {
        debug_assert!(!self.is_leaf() && index <= self.count());
        // SAFETY: the index is that of a child.
        unsafe { *self.children().add(index) }
    }

    #[inline]
    pub(crate) fn set_child(self, index: usize, child: NodePtr) {
        debug_assert!(!self.is_leaf() && index <= self.count());
        // SAFETY: the index is that of a child.
        unsafe { *self.children().add(index) = child };
    }

    /// Rows below child `index`.
    #[inline(always)]
    pub(crate) fn rows(self, index: usize) -> u32 {
        debug_assert!(!self.is_leaf() && index <= self.count());
        // SAFETY: the index is that of a child.
        unsafe { *self.child_rows().add(index) }
    }

    #[inline(always)]
    pub(crate) fn set_rows(self, index: usize, rows: u32) {
        debug_assert!(!self.is_leaf() && index <= self.count());
        // SAFETY: the index is that of a child.
        unsafe { *self.child_rows().add(index) = rows };
    }

    /// Rows in the subtree of this node.
    pub(crate) fn total_rows(self) -> u64 {
        if self.is_leaf() {
            self.count() as u64
        } else {
            (0..=self.count()).map(|index| u64::from(self.rows(index))).sum()
        }
    }

    /// Bytes `at..at + len` of the page.
    #[inline(always)]
    pub(crate) fn bytes<'a>(self, at: usize, len: usize) -> &'a [u8] {
        // SAFETY: callers take positions and lengths from records of this page, which are inside it, written, and not
        // changed while the tree is borrowed.
        unsafe { std::slice::from_raw_parts(self.base().add(at), len) }
    }

    #[inline(always)]
    fn write_bytes(self, at: usize, bytes: &[u8]) {
        // SAFETY: callers have reserved this part of the heap; `bytes` is never part of a page that is being written.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base().add(at), bytes.len()) };
    }

    #[inline(always)]
    fn read_u16(self, at: usize) -> usize {
        // SAFETY: callers take positions from records of this page.
        usize::from(unsafe { self.base().add(at).cast::<u16>().read_unaligned() })
    }

    #[inline(always)]
    fn write_u16(self, at: usize, value: usize) {
        // SAFETY: callers take positions from records of this page.
        unsafe { self.base().add(at).cast::<u16>().write_unaligned(value as u16) };
    }

    // ---- prefix ----

    #[inline(always)]
    pub(crate) fn prefix_len(self) -> usize {
        usize::from(self.header().prefix_len)
    }

    /// Appends the prefix to `key`.
    #[inline]
    pub(crate) fn append_prefix(self, key: &mut KeyBuf) {
        let len = self.prefix_len();
        if len <= HEADER_PREFIX_BYTES {
            key.extend_from_slice(&self.header().prefix8.to_be_bytes()[..len]);
        } else {
            key.extend_from_slice(self.bytes(self.prefix_at(), len));
        }
    }

    #[inline(always)]
    pub(crate) fn compare_prefix(self, key: &SearchKey<'_>) -> Prefix {
        let header = self.header();
        let differing = (key.first ^ header.prefix8) & header.prefix_mask;
        // A prefix beyond the header makes the second operand differ from zero.
        if differing | u64::from(header.prefix_at) == 0 && key.bytes.len() >= usize::from(header.prefix_len) {
            Prefix::Same
        } else {
            self.compare_prefix_slowly(key)
        }
    }

    #[inline(never)]
    fn compare_prefix_slowly(self, key: &SearchKey<'_>) -> Prefix {
        let len = self.prefix_len();
        let inline = self.header().prefix8.to_be_bytes();
        let prefix = if len <= HEADER_PREFIX_BYTES { &inline[..len] } else { self.bytes(self.prefix_at(), len) };
        let begin = &key.bytes[..len.min(key.bytes.len())];
        // A key that ends inside the prefix is smaller than it, as byte strings compare.
        match begin.cmp(prefix) {
            Ordering::Less => Prefix::Before,
            Ordering::Equal => Prefix::Same,
            Ordering::Greater => Prefix::Behind,
        }
    }

    // ---- search ----

    /// Where `key` is in a leaf.
    #[inline(always)]
    pub(crate) fn find(self, key: &SearchKey<'_>) -> Slot {
        self.find_at(self.candidate(key), key)
    }

    /// The entry of a leaf that `key` may be at: the first whose head, below the same prefix, is not smaller. Reads no
    /// record.
    #[inline(always)]
    pub(crate) fn candidate(self, key: &SearchKey<'_>) -> Candidate {
        match self.compare_prefix(key) {
            Prefix::Same => {
                let head = key.head_after(self.prefix_len());
                let index = heads_below(self.heads(), self.cap(), head);
                let possible = index < self.count() && self.head(index) == head;
                Candidate { index, possible }
            }
            Prefix::Before => Candidate { index: 0, possible: false },
            Prefix::Behind => Candidate { index: self.count(), possible: false },
        }
    }

    /// Where `key`, of which `candidate` is the candidate, is in a leaf.
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
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.compare_suffix::<true>(middle, key) {
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
            head => heads_below(self.heads(), self.cap(), head + 1).max(from),
        }
    }

    /// Compares the suffix of entry `index`, whose head equals that of `key`, with the suffix of `key`.
    #[inline(always)]
    fn compare_suffix<const LEAF: bool>(self, index: usize, key: &SearchKey<'_>) -> Ordering {
        let (len, rest_at) = self.suffix_location::<LEAF>(index);
        let key_len = key.bytes.len() - self.prefix_len();
        if len <= HEAD_BYTES && key_len <= HEAD_BYTES {
            // Equal heads: the shorter one ends where the other has zeros.
            return len.cmp(&key_len);
        }
        let rest = self.bytes(rest_at, len.saturating_sub(HEAD_BYTES));
        let key_rest = key.bytes.get(self.prefix_len() + HEAD_BYTES..).unwrap_or_default();
        rest.cmp(key_rest).then(len.cmp(&key_len))
    }

    /// Length of the suffix of entry `index`, and where its bytes after the head are.
    #[inline(always)]
    fn suffix_location<const LEAF: bool>(self, index: usize) -> (usize, usize) {
        debug_assert!(index < self.count() && LEAF == self.is_leaf());
        if LEAF {
            let record = self.record_at(index);
            (self.read_u16(record + 8), record + RECORD_BYTES)
        } else {
            let suffix = self.stored_suffix(index);
            if suffix <= HEAD_BYTES { (suffix, HEADER_BYTES) } else { (self.read_u16(suffix), suffix + 2) }
        }
    }

    #[inline]
    fn any_suffix_location(self, index: usize) -> (usize, usize) {
        if self.is_leaf() { self.suffix_location::<true>(index) } else { self.suffix_location::<false>(index) }
    }

    /// What an inner node stores for the suffix of separator `index`: its length when at most [`HEAD_BYTES`], otherwise
    /// where the rest of it is.
    #[inline(always)]
    pub(crate) fn stored_suffix(self, index: usize) -> usize {
        debug_assert!(!self.is_leaf() && index < self.count());
        // SAFETY: the index is that of a separator.
        usize::from(unsafe { *self.suffixes().add(index) })
    }

    /// The child of an inner node where `key` belongs: the number of separators not greater than it.
    #[inline(always)]
    pub(crate) fn child_index(self, key: &SearchKey<'_>) -> usize {
        match self.compare_prefix(key) {
            Prefix::Same => {}
            Prefix::Before => return 0,
            Prefix::Behind => return self.count(),
        }
        let head = key.head_after(self.prefix_len());
        let index = heads_below(self.heads(), self.cap(), head);
        if index == self.cap() || self.head(index) != head {
            return index;
        }
        self.child_index_among_equal_heads(index, key)
    }

    #[inline(never)]
    fn child_index_among_equal_heads(self, from: usize, key: &SearchKey<'_>) -> usize {
        let (mut low, mut high) = (from, self.end_of_head(from, key));
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.compare_suffix::<false>(middle, key) == Ordering::Greater {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    // ---- entries ----

    /// Appends the whole key of entry (or separator) `index` to `key`.
    #[inline]
    pub(crate) fn append_key(self, index: usize, key: &mut KeyBuf) {
        self.append_prefix(key);
        let (len, rest_at) = self.any_suffix_location(index);
        let head = (self.head(index) ^ i32::MIN).to_be_bytes();
        key.extend_from_slice(&head[..len.min(HEAD_BYTES)]);
        if len > HEAD_BYTES {
            key.extend_from_slice(self.bytes(rest_at, len - HEAD_BYTES));
        }
    }

    /// The whole key of entry (or separator) `index`.
    pub(crate) fn key(self, index: usize) -> KeyBuf {
        let mut key = KeyBuf::new();
        self.append_key(index, &mut key);
        key
    }

    /// Where the record of leaf entry `index` begins.
    #[inline(always)]
    pub(crate) fn record_at(self, index: usize) -> usize {
        debug_assert!(self.is_leaf() && index < self.count());
        // SAFETY: the index is that of an entry.
        usize::from(unsafe { *self.leaf_offsets().add(index) })
    }

    /// Asks for the lines with the beginning of the record of leaf entry `index`.
    #[inline(always)]
    pub(crate) fn prefetch_record(self, index: usize) {
        let record = self.base().wrapping_add(self.record_at(index));
        prefetch(record);
        prefetch(record.wrapping_add(crate::prefetch::LINE_BYTES));
    }

    #[inline(always)]
    pub(crate) fn version(self, index: usize) -> u64 {
        // SAFETY: a record begins with its version.
        unsafe { self.base().add(self.record_at(index)).cast::<u64>().read_unaligned() }
    }

    #[inline(always)]
    pub(crate) fn set_version(self, index: usize, version: u64) {
        // SAFETY: a record begins with its version.
        unsafe { self.base().add(self.record_at(index)).cast::<u64>().write_unaligned(version) };
    }

    /// Where the row of leaf entry `index` is, and its length.
    #[inline(always)]
    pub(crate) fn row_location(self, index: usize) -> (usize, usize) {
        let record = self.record_at(index);
        let suffix_len = self.read_u16(record + 8);
        (record + RECORD_BYTES + suffix_len.saturating_sub(HEAD_BYTES), self.read_u16(record + 10))
    }

    /// The row of leaf entry `index`.
    #[inline(always)]
    pub(crate) fn row<'a>(self, index: usize) -> &'a [u8] {
        let (at, len) = self.row_location(index);
        self.bytes(at, len)
    }

    /// The row of leaf entry `index`, for writing.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "the pointer is a handle by value; the borrow of the tree is exclusive")]
    pub(crate) fn row_mut<'a>(self, index: usize) -> &'a mut [u8] {
        let (at, len) = self.row_location(index);
        // SAFETY: the row is inside the page and written; the caller holds the exclusive borrow of the tree.
        unsafe { std::slice::from_raw_parts_mut(self.base().add(at), len) }
    }

    /// Length of the suffix of entry `index`.
    pub(crate) fn suffix_len(self, index: usize) -> usize {
        self.any_suffix_location(index).0
    }

    /// Bytes of the record of leaf entry `index`.
    pub(crate) fn record_bytes(self, index: usize) -> usize {
        let (row_at, row_len) = self.row_location(index);
        row_at + row_len - self.record_at(index)
    }

    /// Where the heap bytes of the suffix of separator `index` are, and how many: none when it fits the head.
    pub(crate) fn separator_heap(self, index: usize) -> Option<(usize, usize)> {
        let (len, rest_at) = self.suffix_location::<false>(index);
        (len > HEAD_BYTES).then(|| (rest_at - 2, len - HEAD_BYTES + 2))
    }

    // ---- changes ----

    /// Reserves `bytes` of the heap, which must be free, and tells where they are.
    #[inline(always)]
    fn push_heap(self, bytes: usize) -> u16 {
        let header = self.header_mut();
        header.heap_at -= bytes as u16;
        header.heap_at
    }

    #[inline(always)]
    fn write_record(self, suffix: &[u8], row: &[u8], version: u64) -> u16 {
        let rest = suffix.get(HEAD_BYTES..).unwrap_or_default();
        let at = self.push_heap(RECORD_BYTES + rest.len() + row.len());
        let record = usize::from(at);
        // SAFETY: the record was just reserved.
        unsafe { self.base().add(record).cast::<u64>().write_unaligned(version) };
        self.write_u16(record + 8, suffix.len());
        self.write_u16(record + 10, row.len());
        self.write_bytes(record + RECORD_BYTES, rest);
        self.write_bytes(record + RECORD_BYTES + rest.len(), row);
        at
    }

    /// Inserts an entry into a leaf if there is room without moving records; tells whether it did.
    #[inline]
    pub(crate) fn insert_entry(self, index: usize, suffix: &[u8], row: &[u8], version: u64) -> bool {
        let (count, cap) = (self.count(), self.cap());
        debug_assert!(index <= count);
        let record = RECORD_BYTES + suffix.len().saturating_sub(HEAD_BYTES) + row.len();
        let growth = if count == cap { CAP_STEP * LEAF_SLOT_BYTES } else { 0 };
        if self.free_bytes() < record + growth {
            return false;
        }
        if count == cap {
            let old = self.leaf_offsets();
            self.header_mut().cap += CAP_STEP as u16;
            // SAFETY: the arrays grow into bytes that were found free; the moved offsets are initialised.
            unsafe { std::ptr::copy(old, self.leaf_offsets(), count) };
            self.clear_heads(count);
        }
        let offset = self.write_record(suffix, row, version);
        // SAFETY: there is room for one entry more in both arrays, and `index` is at most the count.
        unsafe {
            let head = self.heads().add(index);
            std::ptr::copy(head, head.add(1), count - index);
            *head = head_of(suffix);
            let slot = self.leaf_offsets().add(index);
            std::ptr::copy(slot, slot.add(1), count - index);
            *slot = offset;
        }
        let header = self.header_mut();
        header.count += 1;
        header.ascending = if index == usize::from(header.last_insert) + 1 { header.ascending.saturating_add(1) } else { 0 };
        header.last_insert = index as u16;
        true
    }

    /// Gives leaf entry `index` another row if there is room without moving other records; tells whether it did.
    pub(crate) fn replace_row(self, index: usize, row: &[u8], version: u64) -> bool {
        let (row_at, old_len) = self.row_location(index);
        let record = self.record_at(index);
        if row.len() > old_len {
            let rest_len = row_at - record - RECORD_BYTES;
            let wanted = row_at - record + row.len();
            if self.free_bytes() < wanted {
                return false;
            }
            let at = usize::from(self.push_heap(wanted));
            // SAFETY: both records are inside the page and apart, the new one was just reserved.
            unsafe {
                let page = self.base();
                std::ptr::copy_nonoverlapping(page.add(record), page.add(at), RECORD_BYTES + rest_len);
                *self.leaf_offsets().add(index) = at as u16;
            }
            self.header_mut().dead += (row_at - record + old_len) as u16;
            self.write_u16(at + 10, row.len());
            self.write_bytes(at + RECORD_BYTES + rest_len, row);
        } else {
            self.header_mut().dead += (old_len - row.len()) as u16;
            self.write_u16(record + 10, row.len());
            self.write_bytes(row_at, row);
        }
        self.set_version(index, version);
        true
    }

    /// Removes leaf entry `index`.
    pub(crate) fn remove_entry(self, index: usize) {
        let count = self.count();
        let (record, bytes) = (self.record_at(index), self.record_bytes(index));
        let header = self.header_mut();
        if record == usize::from(header.heap_at) {
            header.heap_at += bytes as u16;
        } else {
            header.dead += bytes as u16;
        }
        // SAFETY: the entries behind `index` move one to the front inside their arrays.
        unsafe {
            let head = self.heads().add(index);
            std::ptr::copy(head.add(1), head, count - index - 1);
            *self.heads().add(count - 1) = NO_HEAD;
            let slot = self.leaf_offsets().add(index);
            std::ptr::copy(slot.add(1), slot, count - index - 1);
        }
        self.header_mut().count -= 1;
    }

    /// Sets the first child of an inner node that was just reset.
    pub(crate) fn set_first_child(self, child: NodePtr, rows: u32) {
        // SAFETY: an inner node has room for one child more than separators, whatever its capacity.
        unsafe {
            *self.children() = child;
            *self.child_rows() = rows;
        }
    }

    /// Inserts into an inner node a separator at `index` and the child on its right, if there is room; tells whether
    /// it did. `suffix` is the separator without the prefix of the node.
    pub(crate) fn insert_child(self, index: usize, suffix: &[u8], child: NodePtr, rows: u32) -> bool {
        let (count, cap) = (self.count(), self.cap());
        debug_assert!(index <= count);
        let heap = if suffix.len() > HEAD_BYTES { suffix.len() - HEAD_BYTES + 2 } else { 0 };
        let growth = if count == cap { CAP_STEP * INNER_SLOT_BYTES } else { 0 };
        if self.free_bytes() < heap + growth {
            return false;
        }
        if count == cap {
            let (children, rows, suffixes) = (self.children(), self.child_rows(), self.suffixes());
            self.header_mut().cap += CAP_STEP as u16;
            // SAFETY: the arrays grow into bytes that were found free, the last array is moved first, and what is
            // moved is initialised.
            unsafe {
                std::ptr::copy(suffixes, self.suffixes(), count);
                std::ptr::copy(rows, self.child_rows(), count + 1);
                std::ptr::copy(children, self.children(), count + 1);
            }
            self.clear_heads(count);
        }
        let location = if heap == 0 {
            suffix.len() as u16
        } else {
            let at = self.push_heap(heap);
            self.write_u16(usize::from(at), suffix.len());
            self.write_bytes(usize::from(at) + 2, &suffix[HEAD_BYTES..]);
            at
        };
        // SAFETY: there is room for one entry more in all arrays, and `index` is at most the count.
        unsafe {
            let head = self.heads().add(index);
            std::ptr::copy(head, head.add(1), count - index);
            *head = head_of(suffix);
            let slot = self.suffixes().add(index);
            std::ptr::copy(slot, slot.add(1), count - index);
            *slot = location;
            let slot = self.children().add(index + 1);
            std::ptr::copy(slot, slot.add(1), count - index);
            *slot = child;
            let slot = self.child_rows().add(index + 1);
            std::ptr::copy(slot, slot.add(1), count - index);
            *slot = rows;
        }
        self.header_mut().count += 1;
        true
    }

    /// Removes child `index` of an inner node that has another one, and the separator between it and its neighbour.
    pub(crate) fn remove_child(self, index: usize) {
        let count = self.count();
        debug_assert!(!self.is_leaf() && count > 0 && index <= count);
        let separator = index.saturating_sub(1);
        if let Some((_, bytes)) = self.separator_heap(separator) {
            self.header_mut().dead += bytes as u16;
        }
        // SAFETY: the entries behind the removed ones move one to the front inside their arrays.
        unsafe {
            let head = self.heads().add(separator);
            std::ptr::copy(head.add(1), head, count - separator - 1);
            *self.heads().add(count - 1) = NO_HEAD;
            let slot = self.suffixes().add(separator);
            std::ptr::copy(slot.add(1), slot, count - separator - 1);
            let slot = self.children().add(index);
            std::ptr::copy(slot.add(1), slot, count - index);
            let slot = self.child_rows().add(index);
            std::ptr::copy(slot.add(1), slot, count - index);
        }
        self.header_mut().count -= 1;
    }
}
