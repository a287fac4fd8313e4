//! Nodes: the layout of a page and the operations on one page.
//!
//! Owns every offset inside a page. It never follows a pointer to another page (that is the tree's business), and it
//! allocates nothing.
//!
//! ```text
//!  leaf:
//!  +--------+-----------+---------------+------------------+-------------------------------------+
//!  | header | heads     | offsets       | free             | heap: records, and the prefix when  |
//!  | 48     | i32 * cap | u16 * cap     |                  | it has more than 16 bytes           |
//!  +--------+-----------+---------------+------------------+-------------------------------------+
//!  inner node:
//!  +--------+----------+-----------+-----------+-----------+-----------+------+------------------+
//!  | header | hints    | heads     | children  | rows      | suffixes  | free | heap: suffixes,  |
//!  | 48     | i32 * 16 | i32 * cap | ptr*(cap+1) u32*(cap+1) | u16 * cap |      | the prefix       |
//!  +--------+----------+-----------+-----------+-----------+-----------+------+------------------+
//!
//!  record of a leaf:  version u64 | suffix length u16 | row length u16 | suffix after the head | row
//!                     (length 65535: the row is elsewhere, and what stands here is its `Extent`)
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
//! The *hints* of an inner node are the heads at the ends of its blocks of heads, together in one cache line: one vector
//! comparison of the hints and one of the block find a child, with two lines read and no branch to guess.
//!
//! Invariants: `heads` is sorted up to `cap`, and keys are strictly ascending; `cap` is a multiple of 8, at least 16, and
//! greater than `count`; the arrays end at or before `heap_at`; the bytes in the heap are those of live records, of the prefix, and `dead`.
//!
//! # Safety
//! A [`NodePtr`] is a promise that the page behind it is alive, exclusive to one tree and has been initialised by
//! [`NodePtr::init`]. Making one is the unsafe step; the tree that owns the pages keeps the promise, and the borrow of
//! the tree decides who may read or write. Indexes are checked in debug builds.

mod arrays;
mod edit;
mod keys;
mod record;
mod search;

pub(crate) use record::StoredRow;
pub(crate) use search::{Candidate, Prefix, SearchKey, Slot};

use std::ptr::NonNull;

/// Bytes before the first head.
pub(crate) const HEADER_BYTES: usize = 48;
/// Bytes of a leaf record that are neither key nor row.
pub(crate) const RECORD_BYTES: usize = 12;
/// Slots by which the arrays of a node grow.
pub(crate) const CAP_STEP: usize = 8;
/// Bytes a leaf needs for one more slot.
pub(crate) const LEAF_SLOT_BYTES: usize = 6;
/// Bytes an inner node needs for one more slot.
pub(crate) const INNER_SLOT_BYTES: usize = 18;
/// Bytes of the first child and its row count.
const FIRST_CHILD_BYTES: usize = 12;
/// Heads that are compared at once.
const VECTOR: usize = 16;
/// Bytes of the hints of an inner node.
const HINT_BYTES: usize = 4 * VECTOR;
/// Bytes of a suffix that live in the head.
pub(crate) const HEAD_BYTES: usize = 4;
/// Bytes of the prefix that live in the header.
pub(crate) const HEADER_PREFIX_BYTES: usize = 16;

#[repr(C)]
pub(crate) struct Header {
    /// The first sixteen bytes of the prefix as two big-endian integers, zeros behind a shorter one.
    prefix: [u64; 2],
    /// The leaf before this one in the tree; unused in inner nodes.
    prev: Option<NodePtr>,
    /// The leaf behind this one in the tree; in a free page, the next free page.
    next: Option<NodePtr>,
    /// Entries of a leaf; separators of an inner node, which has one child more.
    count: u16,
    cap: u16,
    prefix_len: u16,
    /// Offset of the whole prefix when it has more bytes than the header holds; otherwise 0.
    prefix_at: u16,
    heap_at: u16,
    /// Bytes in the heap that belong to nothing any more.
    dead: u16,
    /// Steps down to the leaves.
    level: u8,
    /// Number of the latest inserts that came each directly behind the one before.
    ascending: u8,
    /// The slot of the latest insert.
    last_insert: u16,
}

const _: () = assert!(size_of::<Header>() == HEADER_BYTES);

impl Header {
    /// The bytes of the prefix that live in the header, zeros behind a shorter one.
    #[inline]
    fn prefix_bytes(&self) -> [u8; HEADER_PREFIX_BYTES] {
        ((u128::from(self.prefix[0]) << 64) | u128::from(self.prefix[1])).to_be_bytes()
    }
}

/// The leaf of every tree without rows, so that a look-up needs no special case. It is never written.
#[repr(C, align(64))]
struct EmptyLeaf {
    header: Header,
    heads: [i32; VECTOR],
}

// SAFETY: it is never written, and has no pointers.
unsafe impl Sync for EmptyLeaf {}

static EMPTY_LEAF: EmptyLeaf = EmptyLeaf {
    header: Header {
        prefix: [0; 2],
        prev: None,
        next: None,
        count: 0,
        cap: VECTOR as u16,
        prefix_len: 0,
        prefix_at: 0,
        heap_at: (HEADER_BYTES + LEAF_SLOT_BYTES * VECTOR) as u16,
        dead: 0,
        level: 0,
        ascending: 0,
        last_insert: 0,
    },
    heads: [NO_HEAD; VECTOR],
};

/// Bytes of header and arrays.
#[inline]
pub(crate) const fn arrays_end(leaf: bool, cap: usize) -> usize {
    if leaf {
        HEADER_BYTES + LEAF_SLOT_BYTES * cap
    } else {
        HEADER_BYTES + HINT_BYTES + FIRST_CHILD_BYTES + INNER_SLOT_BYTES * cap
    }
}

/// The capacity of a node with `count` entries that is to have no more.
#[inline]
pub(crate) const fn cap_for(count: usize) -> usize {
    // One slot stays unused, so that a search always ends at a slot.
    let cap = (count + 1).next_multiple_of(CAP_STEP);
    if cap < VECTOR { VECTOR } else { cap }
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

/// The address of a page in use. See the module for what it promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct NodePtr(NonNull<Header>);

impl NodePtr {
    /// The node of a tree without rows; it must never be written.
    #[inline]
    pub(crate) fn empty_leaf() -> NodePtr {
        NodePtr(NonNull::from(&EMPTY_LEAF).cast())
    }

    #[inline]
    pub(crate) fn is_empty_leaf(self) -> bool {
        std::ptr::addr_eq(self.0.as_ptr(), &raw const EMPTY_LEAF)
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
                prefix: [0; 2],
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

    /// Copies the node to a page.
    ///
    /// # Safety
    /// As for [`init`](NodePtr::init).
    pub(crate) unsafe fn copy_to(self, page: NonNull<u8>, page_bytes: usize) -> NodePtr {
        // SAFETY: both are whole pages, and not the same one: this node's is in use.
        unsafe { std::ptr::copy_nonoverlapping(self.base(), page.as_ptr(), page_bytes) };
        NodePtr(page.cast())
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

    /// Number of the latest inserts that came each directly behind the one before, and the slot of the latest.
    pub(crate) fn insert_pattern(self) -> (u8, usize) {
        (self.header().ascending, usize::from(self.header().last_insert))
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
}
