//! The arrays of a node: heads, offsets, children, and what stands beside them.
//!
//! Owns where each array begins, which follows from the capacity of the node. It never looks into the heap.

use super::{HEADER_BYTES, HINT_BYTES, NO_HEAD, NodePtr, VECTOR};

impl NodePtr {
    /// The hints of an inner node.
    #[inline(always)]
    pub(super) fn hints(self) -> *mut i32 {
        debug_assert!(!self.is_leaf());
        // SAFETY: the page of an inner node is longer than its header.
        unsafe { self.base().add(HEADER_BYTES).cast() }
    }

    /// Heads that one hint stands for: more than a vector only in large pages, which have more of them than sixteen
    /// vectors.
    #[inline(always)]
    pub(super) fn hint_step(self) -> usize {
        match self.cap() {
            0..=256 => VECTOR,
            257..=512 => 2 * VECTOR,
            _ => 4 * VECTOR,
        }
    }

    /// The last head of the block a hint stands for; of the last block and of those that are not there, none.
    pub(super) fn expected_hint(self, hint: usize) -> i32 {
        let end = (hint + 1) * self.hint_step();
        if end < self.cap() { self.head(end - 1) } else { NO_HEAD }
    }

    /// Returns whether every hint agrees with the heads; for checks.
    pub(crate) fn hints_are_right(self) -> bool {
        // SAFETY: the hint is one of the array.
        (0..VECTOR).all(|hint| unsafe { *self.hints().add(hint) } == self.expected_hint(hint))
    }

    #[inline(always)]
    pub(super) fn leaf_heads(self) -> *mut i32 {
        // SAFETY: the page is longer than its header.
        unsafe { self.base().add(HEADER_BYTES).cast() }
    }

    #[inline(always)]
    pub(super) fn inner_heads(self) -> *mut i32 {
        // SAFETY: the page of an inner node is longer than its header and hints.
        unsafe { self.base().add(HEADER_BYTES + HINT_BYTES).cast() }
    }

    #[inline(always)]
    pub(super) fn heads(self) -> *mut i32 {
        if self.is_leaf() { self.leaf_heads() } else { self.inner_heads() }
    }

    #[inline(always)]
    pub(super) fn leaf_offsets(self) -> *mut u16 {
        // SAFETY: the offsets follow the heads inside the page.
        unsafe { self.leaf_heads().add(self.cap()).cast() }
    }

    #[inline(always)]
    pub(super) fn children(self) -> *mut NodePtr {
        // SAFETY: the children follow the heads inside the page.
        unsafe { self.inner_heads().add(self.cap()).cast() }
    }

    #[inline(always)]
    pub(super) fn child_rows(self) -> *mut u32 {
        // SAFETY: the row counts follow the children inside the page.
        unsafe { self.children().add(self.cap() + 1).cast() }
    }

    #[inline(always)]
    pub(super) fn suffixes(self) -> *mut u16 {
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
}
