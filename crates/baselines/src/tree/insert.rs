//! Insertion, and the splits that it needs.
//!
//! Owns: the places at which nodes are split. Never: replaces a record.
//!
//! Invariants: a split node keeps the lower part of its entries; the new node is complete before its parent leads to it; a full
//! inner node is split before its child is, so the parent of a node that is split has room.

use std::ptr::{NonNull, null_mut};

use crossbeam_epoch::Guard;

use super::key::{Blob, common_prefix};
use super::latch::Latch;
use super::node::{
    CAPACITY, FIRST_VERSION, Inner, Leaf, Node, NodeRef, Restart, node_memory, prefix_between,
};
use super::record::{Header, Record};
use super::sync::{Relaxed, Release};
use super::{Tree, step};
use crate::planted::pause;

/// Outcomes of an insertion.
pub(crate) enum Insertion<'g> {
    /// The key has a record already.
    Existing(Record<'g>),
    /// The record is in a leaf, whose version has changed.
    New {
        /// The record.
        record: Record<'g>,
        /// The leaf in which the key was found absent.
        leaf: NodeRef<'g>,
        /// The version of the leaf before.
        before: u64,
        /// The version of the leaf after.
        after: u64,
        /// The new leaf, if the leaf was split: it has the first version.
        right: Option<NodeRef<'g>>,
    },
}

/// A node and the version in which it was read.
type Read<'g> = (NodeRef<'g>, u64);

impl Tree {
    /// Inserts the record that `make` makes for the key, unless the key has one.
    pub(crate) fn insert<'g>(
        &self,
        key: &[u8],
        mut make: impl FnMut() -> NonNull<Header>,
        guard: &'g Guard,
    ) -> Insertion<'g> {
        let mut made = None;
        let inserted = loop {
            if let Ok(inserted) = self.try_insert(key, &mut made, &mut make, guard) {
                break inserted;
            }
        };
        if let (Insertion::Existing(_), Some(unused)) = (&inserted, made) {
            // SAFETY: it was made for this insertion, and nobody else has seen it.
            unsafe { Record::free(unused) };
        }
        inserted
    }

    fn try_insert<'g>(
        &self,
        key: &[u8],
        made: &mut Option<NonNull<Header>>,
        make: &mut impl FnMut() -> NonNull<Header>,
        guard: &'g Guard,
    ) -> Result<Insertion<'g>, Restart> {
        let mut parent: Option<Read<'g>> = None;
        let (mut node, mut word) = self.root(guard)?;
        while !node.is_leaf() {
            if node.count() == CAPACITY {
                self.split_inner(parent, (node, word))?;
                return Err(Restart);
            }
            let (at, is_equal) = node.find_in_inner(key, word)?;
            parent = Some((node, word));
            (node, word) = step(node, word, at + usize::from(is_equal))?;
        }
        let (at, is_there) = node.find_in_leaf(key, word)?;
        if is_there {
            return Ok(Insertion::Existing(node.record(at, word)?));
        }
        let is_full = node.count() == CAPACITY;
        node.check(word)?;
        let header = *made.get_or_insert_with(make);
        // SAFETY: it is freed after it has left the tree, or by `insert` if it does not get there.
        let record = unsafe { Record::from_pointer(header) };
        if is_full {
            return self.split_leaf(parent, (node, word), at, record);
        }
        let mut latch = self.upgrade(node, word)?;
        let after = latch.change();
        latch.insert_record(at, record);
        pause();
        Ok(Insertion::New { record, leaf: node, before: word, after, right: None })
    }

    /// Splits a full leaf, and inserts a record whose place in it is `at`.
    fn split_leaf<'g>(
        &self,
        parent: Option<Read<'g>>,
        (leaf, before): Read<'g>,
        at: usize,
        record: Record<'g>,
    ) -> Result<Insertion<'g>, Restart> {
        let above = parent.map(|(node, word)| self.upgrade(node, word)).transpose()?;
        let mut latch = self.upgrade(leaf, before)?;
        let after = latch.change();
        let word = latch.word();
        // Keys that arrive in order fill the leaves that they leave behind.
        let in_order = at > 0 && at == usize::from(leaf.expected.load(Relaxed));
        let split_at = if in_order { at } else { CAPACITY / 2 };
        let goes_left = at < split_at || (at == split_at && at < CAPACITY);
        let last = if goes_left && at == split_at { record } else { leaf.record(split_at - 1, word)? };
        let first = if at == CAPACITY && at == split_at { record } else { leaf.record(split_at, word)? };
        let (last, first) = (last.key(), first.key());
        let separator = &first[..=common_prefix(last, first)];
        let (right, right_latch) = self.make_right(&latch, separator)?;
        latch.move_tail(split_at, &right_latch);
        self.bound(&latch, separator)?;
        if goes_left {
            latch.insert_record(at, record);
        } else {
            right_latch.insert_record(at - split_at, record);
        }
        pause();
        self.lead_to(above, &latch, Blob::new(separator), right)?;
        Ok(Insertion::New { record, leaf, before, after, right: Some(right_latch.node()) })
    }

    /// Splits a full inner node.
    fn split_inner(&self, parent: Option<Read<'_>>, (node, word): Read<'_>) -> Result<(), Restart> {
        let above = parent.map(|(node, word)| self.upgrade(node, word)).transpose()?;
        let mut latch = self.upgrade(node, word)?;
        latch.change();
        // As for leaves; what moves has two children at least.
        let in_order = usize::from(node.expected.load(Relaxed)) == CAPACITY;
        let middle = if in_order { CAPACITY - 2 } else { CAPACITY / 2 };
        let separator = node.separator(middle, latch.word())?;
        let (right, right_latch) = self.make_right(&latch, separator)?;
        let blob = latch.move_tail(middle, &right_latch);
        self.bound(&latch, separator)?;
        // It moves up; the node's bounds are copies.
        let blob = NonNull::new(blob).ok_or(Restart)?;
        self.remove_memory(Blob::memory(separator.len()));
        self.lead_to(above, &latch, blob, right)
    }

    /// Makes the node that takes the upper part of a latched one, from the separator on. It takes over the upper bound.
    fn make_right<'g>(
        &self,
        latch: &Latch<'g>,
        separator: &[u8],
    ) -> Result<(NonNull<Node>, Latch<'g>), Restart> {
        let node = latch.node();
        let (_, high) = node.bounds(latch.word())?;
        let prefix = prefix_between(Some(separator), high);
        let fences = (Blob::new(separator).as_ptr(), node.high.load(Relaxed));
        let right = if node.is_leaf() {
            Leaf::allocate(prefix, fences)
        } else {
            Inner::allocate(node.level(), prefix, fences, node.pointer())
        };
        self.add_memory(node_memory(node.is_leaf()) + Blob::memory(separator.len()));
        // SAFETY: it is freed after it has left the tree.
        let right_latch = unsafe { NodeRef::from_pointer(right) }.upgrade(FIRST_VERSION)?;
        Ok((right, right_latch))
    }

    /// Gives a node whose upper part was moved its new upper bound.
    fn bound(&self, latch: &Latch<'_>, separator: &[u8]) -> Result<(), Restart> {
        let node = latch.node();
        // The old one has moved with the upper part.
        node.high.store(Blob::new(separator).as_ptr(), Relaxed);
        self.add_memory(Blob::memory(separator.len()));
        let (low, high) = node.bounds(latch.word())?;
        latch.set_prefix(prefix_between(low, high))
    }

    /// Lets the parent lead to a new node, which comes after the latched one; a root gets a parent.
    fn lead_to(
        &self,
        above: Option<Latch<'_>>,
        latch: &Latch<'_>,
        separator: NonNull<Blob>,
        right: NonNull<Node>,
    ) -> Result<(), Restart> {
        // SAFETY: the separator was just made, or taken out of a latched node.
        let key = unsafe { Blob::bytes(separator) };
        self.add_memory(Blob::memory(key.len()));
        let Some(mut above) = above else {
            let left = latch.node();
            let root = Inner::allocate(left.level() + 1, 0, (null_mut(), null_mut()), left.pointer());
            self.add_memory(node_memory(false));
            // SAFETY: it is freed after it has left the tree.
            let new = unsafe { NodeRef::from_pointer(root) }.upgrade(FIRST_VERSION)?;
            new.insert_child(0, separator, right);
            drop(new);
            self.root.store(root.as_ptr(), Release);
            return Ok(());
        };
        above.change();
        let (at, _) = above.node().find_in_inner(key, above.word())?;
        above.insert_child(at, separator, right);
        Ok(())
    }
}
