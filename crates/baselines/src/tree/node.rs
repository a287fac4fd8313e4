//! The nodes of the tree: their layout, their versions, and the search inside one of them. (Changes: [`super::latch`].)
//!
//! Owns: the version word and the arrays of a node. Never: goes from one node to another.
//!
//! # Layout
//! A node begins with a cache line of bounds and counts; then come the codes and the heads of its keys ([`super::key`]), each
//! contiguous, and then the pointers: to records in a leaf, to separators and children in an inner node. A search reads heads;
//! it follows a pointer to a whole key only when two long keys have the same head. Separator `i` is the smallest key that
//! child `i + 1` may hold.
//!
//! # Versions
//! The version word is a latch bit, an obsolete bit and a counter. Readers take no latch: they load an even, unlatched word with
//! acquire, read, issue an acquire fence, and compare the word again ([`Node::check`]). Writers set the latch bit by a
//! compare-and-exchange with acquire, issue a release fence, write, and store the word with a higher counter with release. A
//! reader that saw anything of a later writer sees the changed word, too. A node that leaves the tree gets the obsolete bit.
//!
//! # Why the unsafe code is sound
//! - All fields are atomics, or never change: shared references to a node are sound while it is allocated.
//! - Pointers that a reader has loaded are followed only after the word was compared: then they were in the node at a
//!   moment after the reader's thread was pinned, so the collector keeps what they lead to.
//! - Pointers to nodes are kept as they came from the allocation, never made from references to parts of them.

use std::hint::select_unpredictable;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::{NonNull, null_mut};

use super::key::{Blob, LONG, common_prefix, head};
use super::record::{Header, Record};
use super::sync::{Acquire, AtomicPtr, AtomicU8, AtomicU16, AtomicU64, Relaxed, Spin, fence};
use crate::planted::{Bug, planted};

/// Entries of a leaf, and separators of an inner node, at most.
#[cfg(not(loom))]
pub(crate) const CAPACITY: usize = 64;
#[cfg(loom)]
pub(crate) const CAPACITY: usize = 3;

/// Set while a writer has the latch.
pub(super) const LATCHED: u64 = 1;
/// Set from the moment at which the node has left the tree.
pub(super) const OBSOLETE: u64 = 2;
/// The lowest bit of the counter.
pub(super) const COUNT: u64 = 4;

/// The version of a node that was just made.
pub(crate) const FIRST_VERSION: u64 = COUNT;

/// Somebody has changed a node meanwhile: the operation starts again at the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Restart;

/// The part that leaves and inner nodes have in common.
#[repr(C, align(64))]
pub(crate) struct Node {
    pub(super) version: AtomicU64,
    /// The smallest key that may be in the node; null if there is none.
    pub(super) low: AtomicPtr<Blob>,
    /// The smallest key that may not; null if there is none.
    pub(super) high: AtomicPtr<Blob>,
    count: AtomicU16,
    pub(super) prefix: AtomicU16,
    /// One more than the place of the last insertion: where the next one comes if keys arrive in order.
    pub(super) expected: AtomicU16,
    /// Levels below this one.
    level: u16,
    codes: [AtomicU8; CAPACITY],
    heads: [AtomicU64; CAPACITY],
}

/// A node whose entries are records.
#[repr(C)]
pub(crate) struct Leaf {
    node: Node,
    pub(super) records: [AtomicPtr<Header>; CAPACITY],
}

/// A node whose entries are separators, with one child more.
#[repr(C)]
pub(crate) struct Inner {
    node: Node,
    pub(super) separators: [AtomicPtr<Blob>; CAPACITY],
    pub(super) children: [AtomicPtr<Node>; CAPACITY + 1],
}

/// A node that stays allocated during `'g`.
#[derive(Clone, Copy)]
pub(crate) struct NodeRef<'g> {
    node: NonNull<Node>,
    guard: PhantomData<&'g Node>,
}

/// The bounds of a node: the smallest key that may be in it, and the smallest one above those.
pub(super) type Bounds<'g> = (Option<&'g [u8]>, Option<&'g [u8]>);

/// Copies of the bounds of a node, null where it has none.
pub(crate) type Fences = (*mut Blob, *mut Blob);

fn node(level: u16, prefix: usize, (low, high): Fences) -> Node {
    Node {
        version: AtomicU64::new(FIRST_VERSION),
        low: AtomicPtr::new(low),
        high: AtomicPtr::new(high),
        count: AtomicU16::new(0),
        prefix: AtomicU16::new(prefix as u16),
        expected: AtomicU16::new(0),
        level,
        codes: std::array::from_fn(|_| AtomicU8::new(0)),
        heads: std::array::from_fn(|_| AtomicU64::new(0)),
    }
}

/// The prefix of a node between two bounds. A null bound has none.
pub(crate) fn prefix_between(low: Option<&[u8]>, high: Option<&[u8]>) -> usize {
    match (low, high) {
        (Some(low), Some(high)) => common_prefix(low, high),
        _ => 0,
    }
}

impl Leaf {
    /// Allocates an empty leaf, which takes over its bounds.
    pub(crate) fn allocate(prefix: usize, fences: Fences) -> NonNull<Node> {
        let records = std::array::from_fn(|_| AtomicPtr::new(null_mut()));
        let leaf = Box::new(Leaf { node: node(0, prefix, fences), records });
        NonNull::from(Box::leak(leaf)).cast()
    }
}

impl Inner {
    /// Allocates an inner node with one child, which takes over its bounds.
    pub(crate) fn allocate(level: u16, prefix: usize, fences: Fences, child: NonNull<Node>) -> NonNull<Node> {
        let separators = std::array::from_fn(|_| AtomicPtr::new(null_mut()));
        let children =
            std::array::from_fn(|at| AtomicPtr::new(if at == 0 { child.as_ptr() } else { null_mut() }));
        let inner = Box::new(Inner { node: node(level, prefix, fences), separators, children });
        NonNull::from(Box::leak(inner)).cast()
    }
}

/// Bytes of memory of a node, without its bounds.
pub(crate) fn node_memory(is_leaf: bool) -> usize {
    if is_leaf { size_of::<Leaf>() } else { size_of::<Inner>() }
}

/// Frees a node with its bounds and separators, but not its children or records.
///
/// # Safety
/// `pointer` was allocated here, and nobody uses the node any more.
pub(crate) unsafe fn free_node(pointer: NonNull<Node>) {
    // SAFETY: as the caller promises.
    let node = unsafe { NodeRef::from_pointer(pointer) };
    let mut blobs = vec![node.low.load(Relaxed), node.high.load(Relaxed)];
    if !node.is_leaf() {
        blobs.extend((0..node.count()).map(|at| node.inner().separators[at].load(Relaxed)));
    }
    for blob in blobs.into_iter().filter_map(NonNull::new) {
        // SAFETY: a node owns its bounds and separators.
        unsafe { Blob::free(blob) };
    }
    if node.is_leaf() {
        // SAFETY: a node of level 0 was allocated as a leaf.
        drop(unsafe { Box::from_raw(pointer.as_ptr().cast::<Leaf>()) });
    } else {
        // SAFETY: a node of a higher level was allocated as an inner node.
        drop(unsafe { Box::from_raw(pointer.as_ptr().cast::<Inner>()) });
    }
}

impl Node {
    /// The version, as soon as the node is not latched.
    ///
    /// # Errors
    /// The node is obsolete.
    #[inline]
    pub(crate) fn stable(&self) -> Result<u64, Restart> {
        let mut word = self.version.load(Acquire);
        if word & (LATCHED | OBSOLETE) != 0 {
            let mut spin = Spin::default();
            while word & LATCHED != 0 {
                spin.wait();
                word = self.version.load(Acquire);
            }
            if word & OBSOLETE != 0 {
                return Err(Restart);
            }
        }
        Ok(word)
    }

    /// Says whether what was read since `word` was loaded is of that version.
    ///
    /// # Errors
    /// It may not be.
    #[inline]
    pub(crate) fn check(&self, word: u64) -> Result<(), Restart> {
        fence(Acquire);
        if self.version.load(Relaxed) == word { Ok(()) } else { Err(Restart) }
    }

    /// Says whether the node has a version still, waiting while it is latched.
    #[inline]
    pub(crate) fn is_still(&self, version: u64) -> bool {
        self.stable() == Ok(version)
    }

    /// Returns whether the node is a leaf.
    #[inline]
    pub(crate) fn is_leaf(&self) -> bool {
        self.level == 0
    }

    /// Levels below this one.
    pub(crate) fn level(&self) -> u16 {
        self.level
    }

    /// Number of keys.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        usize::from(self.count.load(Relaxed)).min(CAPACITY)
    }

    /// Sets the number of keys. Only for who has the latch.
    pub(super) fn set_count(&self, count: usize) {
        self.count.store(count as u16, Relaxed);
    }

    /// Bytes that all keys of the node begin with.
    #[inline]
    pub(super) fn prefix(&self) -> usize {
        usize::from(self.prefix.load(Relaxed))
    }

    /// Prefetches the cache lines that a search reads.
    #[inline]
    pub(super) fn prefetch(&self) {
        #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
        for line in 0..(size_of::<Node>() / 64) {
            let address = std::ptr::from_ref(self).cast::<i8>().wrapping_add(64 * line);
            // SAFETY: a prefetch does not access memory in any way a program can see; every x86-64 processor has it.
            unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address) };
        }
    }

    /// Number of the first heads that are smaller.
    #[inline]
    fn heads_below(&self, count: usize, wanted: u64) -> usize {
        let heads = &self.heads[..count];
        // SAFETY: `from + left` never exceeds the number of heads, and `half` is at least 1.
        let is_below = |at: usize| unsafe { heads.get_unchecked(at) }.load(Relaxed) < wanted;
        let (mut from, mut left) = (0, count);
        while left > 1 {
            let half = left / 2;
            from = select_unpredictable(is_below(from + half - 1), from + half, from);
            left -= half;
        }
        from + usize::from(left == 1 && is_below(from))
    }

    /// The place of the first key that is not smaller, and whether it is equal. `full` gives the whole key at a place.
    #[inline]
    fn find<'g>(
        &self,
        key: &[u8],
        full: impl Fn(usize) -> Result<&'g [u8], Restart>,
    ) -> Result<(usize, bool), Restart> {
        let count = self.count();
        let (head, code) = head(key, self.prefix());
        let at = self.heads_below(count, head);
        if at == count || self.heads[at].load(Relaxed) != head {
            return Ok((at, false));
        }
        let is_alone = at + 1 == count || self.heads[at + 1].load(Relaxed) != head;
        if is_alone && code != LONG {
            let found = self.codes[at].load(Relaxed);
            return Ok((at + usize::from(found < code), found == code));
        }
        self.find_among_equal(at, count, key, full)
    }

    /// The same among keys with the same head, from a place on.
    #[inline(never)]
    fn find_among_equal<'g>(
        &self,
        first: usize,
        count: usize,
        key: &[u8],
        full: impl Fn(usize) -> Result<&'g [u8], Restart>,
    ) -> Result<(usize, bool), Restart> {
        let (head, code) = head(key, self.prefix());
        let end = head.checked_add(1).map_or(count, |next| self.heads_below(count, next));
        let (mut from, mut to) = (first, end);
        while from < to {
            let middle = from.midpoint(to);
            let found = self.codes[middle].load(Relaxed);
            let order = if found == LONG && code == LONG { full(middle)?.cmp(key) } else { found.cmp(&code) };
            match order {
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Equal => return Ok((middle, true)),
                std::cmp::Ordering::Greater => to = middle,
            }
        }
        Ok((from, false))
    }

    /// Makes room for a key at a place, and sets its head. Only for who has the latch.
    pub(super) fn open(&self, at: usize, key: &[u8]) {
        let count = self.count();
        for to in (at + 1..=count).rev() {
            self.codes[to].store(self.codes[to - 1].load(Relaxed), Relaxed);
            self.heads[to].store(self.heads[to - 1].load(Relaxed), Relaxed);
        }
        self.set_head(at, key);
        self.set_count(count + 1);
        self.expected.store(at as u16 + 1, Relaxed);
    }

    /// Removes the head at a place. Only for who has the latch.
    pub(super) fn close(&self, at: usize) {
        let count = self.count();
        for from in at + 1..count {
            self.codes[from - 1].store(self.codes[from].load(Relaxed), Relaxed);
            self.heads[from - 1].store(self.heads[from].load(Relaxed), Relaxed);
        }
        self.set_count(count - 1);
    }

    pub(super) fn set_head(&self, at: usize, key: &[u8]) {
        let (head, code) = head(key, self.prefix());
        self.codes[at].store(code, Relaxed);
        self.heads[at].store(head, Relaxed);
    }
}

impl<'g> NodeRef<'g> {
    /// A node that lives during `'g`.
    ///
    /// # Safety
    /// `node` was allocated here and is not freed during `'g`.
    #[inline]
    pub(crate) unsafe fn from_pointer(node: NonNull<Node>) -> NodeRef<'g> {
        NodeRef { node, guard: PhantomData }
    }

    /// The identity of the node.
    #[inline]
    pub(crate) fn pointer(self) -> NonNull<Node> {
        self.node
    }

    /// The node as the leaf that it is.
    #[inline]
    pub(crate) fn leaf(self) -> &'g Leaf {
        debug_assert!(self.is_leaf());
        // SAFETY: only nodes of level 0 are asked for, which were allocated as leaves; they live during `'g`.
        unsafe { self.node.cast::<Leaf>().as_ref() }
    }

    /// The node as the inner node that it is.
    #[inline]
    pub(crate) fn inner(self) -> &'g Inner {
        debug_assert!(!self.is_leaf());
        // SAFETY: only nodes of a higher level are asked for, which were allocated as inner nodes; they live during `'g`.
        unsafe { self.node.cast::<Inner>().as_ref() }
    }

    /// The record at a place, which is below the count; `word` is the version of what was read.
    #[inline]
    pub(crate) fn record(self, at: usize, word: u64) -> Result<Record<'g>, Restart> {
        let header = self.leaf().records[at].load(Relaxed);
        self.check(word)?;
        let header = NonNull::new(header).ok_or(Restart)?;
        // SAFETY: the check says that the record was in the tree after this thread was pinned.
        Ok(unsafe { Record::from_pointer(header) })
    }

    /// Appends pointers to the records at places, without a check.
    pub(crate) fn copy_records(self, places: impl Iterator<Item = usize>, to: &mut Vec<*mut Header>) {
        let records = &self.leaf().records;
        to.extend(places.map(|at| records[at].load(Relaxed)));
    }

    /// The separator at a place, which is below the count.
    pub(super) fn separator(self, at: usize, word: u64) -> Result<&'g [u8], Restart> {
        let blob = self.inner().separators[at].load(Relaxed);
        self.check(word)?;
        let blob = NonNull::new(blob).ok_or(Restart)?;
        // SAFETY: the check says that the separator was in the tree after this thread was pinned.
        Ok(unsafe { Blob::bytes(blob) })
    }

    /// The child at a place, which is at most the count.
    #[inline]
    pub(super) fn child(self, at: usize, word: u64) -> Result<NodeRef<'g>, Restart> {
        let child = self.inner().children[at].load(Relaxed);
        if !planted(Bug::InnerNotValidated) {
            self.check(word)?;
        }
        let child = NonNull::new(child).ok_or(Restart)?;
        // SAFETY: the check says that the child was in the tree after this thread was pinned.
        Ok(unsafe { NodeRef::from_pointer(child) })
    }

    /// The whole key at a place of any node.
    pub(super) fn key(self, at: usize, word: u64) -> Result<&'g [u8], Restart> {
        if self.is_leaf() { Ok(self.record(at, word)?.key()) } else { self.separator(at, word) }
    }

    /// The bounds of the node.
    #[inline]
    pub(super) fn bounds(self, word: u64) -> Result<Bounds<'g>, Restart> {
        let (low, high) = (self.low.load(Relaxed), self.high.load(Relaxed));
        self.check(word)?;
        // SAFETY: the check says that both were in the tree after this thread was pinned.
        let bytes = |blob| NonNull::new(blob).map(|blob| unsafe { Blob::bytes(blob) });
        Ok((bytes(low), bytes(high)))
    }

    /// The place of the first key of a leaf that is not smaller, and whether it is equal.
    #[inline]
    pub(crate) fn find_in_leaf(self, key: &[u8], word: u64) -> Result<(usize, bool), Restart> {
        self.find(key, |at| Ok(self.record(at, word)?.key()))
    }

    /// The place of the first separator that is not smaller, and whether it is equal.
    #[inline]
    pub(super) fn find_in_inner(self, key: &[u8], word: u64) -> Result<(usize, bool), Restart> {
        self.find(key, |at| self.separator(at, word))
    }
}

impl Deref for NodeRef<'_> {
    type Target = Node;

    #[inline]
    fn deref(&self) -> &Node {
        // SAFETY: the node lives as long as the reference to it.
        unsafe { self.node.as_ref() }
    }
}
