//! Removal of records, and of the leaves that it leaves empty.
//!
//! Owns: the order in which the nodes around an empty leaf are latched. Never: frees what others may know.
//!
//! # Empty leaves
//! An empty leaf is removed with the chain of ancestors that lead to nothing else: the lowest ancestor with another child (the
//! *fork*) loses the chain, and the neighbour beside the chain, with everything along its edge, takes over the range. One
//! thread at a time does this. It latches from top to bottom, the fork in the version in which it was read, and waits for
//! the rest; writers of other kinds do not wait with a latch, so nobody waits for it in a circle.

use std::ptr::null_mut;
use std::sync::PoisonError;

use crossbeam_epoch::Guard;

use super::key::Blob;
use super::latch::Latch;
use super::node::{NodeRef, Restart, node_memory, prefix_between};
use super::record::Record;
use super::sync::{Relaxed, Release};
use super::{Target, Tree, retire_blob, retire_node, step};
use crate::planted::{Bug, pause, planted};

/// The lowest ancestor of a leaf that has another child.
#[derive(Clone, Copy)]
struct Fork<'g> {
    node: NodeRef<'g>,
    word: u64,
    /// The child on the way to the leaf.
    at: usize,
}

impl Tree {
    /// Takes out a record which its caller has locked, and which is in the tree. The caller hands it to the collector.
    pub(crate) fn remove(&self, record: Record<'_>, guard: &Guard) {
        let is_empty = loop {
            if let Ok(is_empty) = self.try_remove(record, guard) {
                break is_empty;
            }
        };
        if is_empty {
            let _held = self.removal.lock().unwrap_or_else(PoisonError::into_inner);
            while self.try_remove_empty(record.key(), guard).is_err() {}
        }
    }

    /// Returns whether the leaf is empty now.
    fn try_remove(&self, record: Record<'_>, guard: &Guard) -> Result<bool, Restart> {
        let (leaf, word) = self.descend(Target::At(record.key()), guard)?;
        let (at, is_there) = leaf.find_in_leaf(record.key(), word)?;
        let mut latch = self.upgrade(leaf, word)?;
        debug_assert!(is_there, "who has locked a record keeps it in the tree");
        latch.change();
        latch.remove_record(at);
        pause();
        Ok(leaf.count() == 0)
    }

    /// Removes the leaf that a key leads to, if it is empty and not the only one.
    fn try_remove_empty(&self, key: &[u8], guard: &Guard) -> Result<(), Restart> {
        let mut fork = None;
        let (mut node, mut word) = self.root(guard)?;
        while !node.is_leaf() {
            let (at, is_equal) = node.find_in_inner(key, word)?;
            let at = at + usize::from(is_equal);
            if node.count() > 0 {
                fork = Some(Fork { node, word, at });
            }
            (node, word) = step(node, word, at)?;
        }
        let count = node.count();
        node.check(word)?;
        match fork {
            Some(fork) if count == 0 => self.cut(fork, guard),
            _ => Ok(()),
        }
    }

    fn cut(&self, Fork { node, word, at }: Fork<'_>, guard: &Guard) -> Result<(), Restart> {
        let mut above = node.upgrade(word)?;
        let mut chain = vec![node.child(at, above.word())?.latch()?];
        while let Some(last) = chain.last().filter(|last| !last.node().is_leaf()) {
            if last.node().count() > 0 {
                return Err(Restart);
            }
            let next = last.node().child(0, last.word())?.latch()?;
            chain.push(next);
        }
        let is_empty = chain.last().is_some_and(|leaf| leaf.node().count() == 0);
        if !is_empty && !planted(Bug::EmptinessNotChecked) {
            // Somebody has inserted into the leaf meanwhile.
            return Ok(());
        }
        let (goes_left, beside) = if at > 0 { (true, at - 1) } else { (false, 1) };
        let mut edge = vec![node.child(beside, above.word())?.latch()?];
        while let Some(last) = edge.last().filter(|last| !last.node().is_leaf()) {
            let along = if goes_left { last.node().count() } else { 0 };
            let next = last.node().child(along, last.word())?.latch()?;
            edge.push(next);
        }
        pause();
        for latch in &mut edge {
            self.extend(latch, &chain[0], goes_left, guard)?;
        }
        above.change();
        let separator = above.remove_child(at);
        self.forget_blob(separator, guard);
        for latch in &mut chain {
            self.forget(latch, guard);
        }
        let root = node.pointer().as_ptr();
        if node.count() == 0 && self.root.load(Relaxed) == root {
            self.root.store(edge[0].node().pointer().as_ptr(), Release);
            self.forget(&mut above, guard);
        }
        Ok(())
    }

    /// Extends the range of a node to that of a neighbour which is removed.
    fn extend(
        &self,
        latch: &mut Latch<'_>,
        removed: &Latch<'_>,
        goes_left: bool,
        guard: &Guard,
    ) -> Result<(), Restart> {
        let node = latch.node();
        let (low, high) = removed.node().bounds(removed.word())?;
        let (bound, of_node) = if goes_left { (high, &node.high) } else { (low, &node.low) };
        let copy = bound.map_or(null_mut(), |bound| {
            self.add_memory(Blob::memory(bound.len()));
            Blob::new(bound).as_ptr()
        });
        let before = of_node.load(Relaxed);
        of_node.store(copy, Relaxed);
        self.forget_blob(before, guard);
        latch.change();
        let (low, high) = node.bounds(latch.word())?;
        latch.set_prefix(prefix_between(low, high))
    }

    /// Hands a node that is in the tree no more to the collector, with its bounds.
    fn forget(&self, latch: &mut Latch<'_>, guard: &Guard) {
        latch.leave();
        let node = latch.node();
        self.remove_memory(node_memory(node.is_leaf()));
        for bound in [&node.low, &node.high] {
            let blob = bound.load(Relaxed);
            bound.store(null_mut(), Relaxed);
            self.forget_blob(blob, guard);
        }
        // SAFETY: its parent, or the root pointer, leads to it no more; its latch is held for a moment still, by this thread,
        // which is pinned.
        unsafe { retire_node(node, guard) };
    }

    /// Hands a copy of a key that is in the tree no more to the collector.
    fn forget_blob(&self, blob: *mut Blob, guard: &Guard) {
        if let Some(known) = std::ptr::NonNull::new(blob) {
            // SAFETY: it is freed later.
            self.remove_memory(Blob::memory(unsafe { Blob::bytes(known) }.len()));
        }
        // SAFETY: no node has it any more.
        unsafe { retire_blob(blob, guard) };
    }
}
