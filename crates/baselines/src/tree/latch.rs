//! [`Latch`]: the right to change a node, and the changes of its entries.
//!
//! Owns: the order in which the arrays of a node are shifted. Never: chooses a place, or latches a second node.
//!
//! Invariants: only who has the latch stores into a node that others know; what readers see meanwhile they check against the
//! version, so the order of the stores does not matter to them.

use std::ptr::{NonNull, null_mut};

use super::key::Blob;
use super::node::{COUNT, Inner, LATCHED, Node, NodeRef, OBSOLETE, Restart};
use super::record::{Header, Record};
use super::sync::{Acquire, Relaxed, Release, fence};

/// The latch of a node. Dropping it releases it, with a higher version if the node was changed.
pub(crate) struct Latch<'g> {
    node: NodeRef<'g>,
    /// The version before.
    before: u64,
    after: u64,
}

impl<'g> NodeRef<'g> {
    /// Takes the latch if the node has this version.
    ///
    /// # Errors
    /// It has another one, or somebody has the latch.
    #[inline]
    pub(crate) fn upgrade(self, word: u64) -> Result<Latch<'g>, Restart> {
        let taken = self.version.compare_exchange(word, word | LATCHED, Acquire, Relaxed);
        taken.map_err(|_| Restart)?;
        fence(Release);
        Ok(Latch { node: self, before: word, after: word })
    }

    /// Takes the latch if the node has this version, without an atomic exchange.
    ///
    /// # Errors
    /// It has another one.
    ///
    /// # Safety
    /// No other thread uses the node until the latch is dropped.
    #[inline]
    pub(super) unsafe fn upgrade_alone(self, word: u64) -> Result<Latch<'g>, Restart> {
        if self.version.load(Relaxed) != word {
            return Err(Restart);
        }
        // Who has a latch checks what it reads against this word.
        self.version.store(word | LATCHED, Relaxed);
        Ok(Latch { node: self, before: word, after: word })
    }

    /// Takes the latch, waiting for it.
    ///
    /// # Errors
    /// The node is obsolete.
    pub(super) fn latch(self) -> Result<Latch<'g>, Restart> {
        loop {
            if let Ok(latch) = self.upgrade(self.stable()?) {
                return Ok(latch);
            }
        }
    }
}

impl<'g> Latch<'g> {
    /// The latched node.
    pub(crate) fn node(&self) -> NodeRef<'g> {
        self.node
    }

    /// The word by which who has the latch checks: nobody can change it.
    #[inline]
    pub(crate) fn word(&self) -> u64 {
        self.before | LATCHED
    }

    /// Notes that the node is changed; returns the version that it will have.
    #[inline]
    pub(crate) fn change(&mut self) -> u64 {
        self.after = self.before + COUNT;
        self.after
    }

    /// Notes that the node leaves the tree.
    pub(super) fn leave(&mut self) {
        self.after = (self.before + COUNT) | OBSOLETE;
    }

    /// Inserts a record into a leaf with room.
    #[inline]
    pub(crate) fn insert_record(&self, at: usize, record: Record<'_>) {
        let records = &self.node.leaf().records;
        for to in (at + 1..=self.node.count()).rev() {
            records[to].store(records[to - 1].load(Relaxed), Relaxed);
        }
        records[at].store(record.pointer().as_ptr(), Relaxed);
        self.node.open(at, record.key());
    }

    /// Puts another record of the same key at a place.
    pub(crate) fn swap_record(&self, at: usize, record: NonNull<Header>) {
        self.node.leaf().records[at].store(record.as_ptr(), Relaxed);
    }

    /// Removes a record from a leaf.
    pub(crate) fn remove_record(&self, at: usize) {
        let records = &self.node.leaf().records;
        for from in at + 1..self.node.count() {
            records[from - 1].store(records[from].load(Relaxed), Relaxed);
        }
        self.node.close(at);
        self.node.expected.store(0, Relaxed);
    }

    /// Inserts a separator, and the child behind it, into an inner node with room.
    pub(super) fn insert_child(&self, at: usize, separator: NonNull<Blob>, child: NonNull<Node>) {
        let Inner { separators, children, .. } = self.node.inner();
        for to in (at + 1..=self.node.count()).rev() {
            separators[to].store(separators[to - 1].load(Relaxed), Relaxed);
            children[to + 1].store(children[to].load(Relaxed), Relaxed);
        }
        separators[at].store(separator.as_ptr(), Relaxed);
        children[at + 1].store(child.as_ptr(), Relaxed);
        // SAFETY: the separator is owned by the node from now on.
        self.node.open(at, unsafe { Blob::bytes(separator) });
    }

    /// Removes the child at a place of an inner node with two or more, and the separator beside it, which is returned.
    pub(super) fn remove_child(&self, at: usize) -> *mut Blob {
        let Inner { separators, children, .. } = self.node.inner();
        let (count, beside) = (self.node.count(), at.saturating_sub(1));
        let separator = separators[beside].load(Relaxed);
        for from in beside + 1..count {
            separators[from - 1].store(separators[from].load(Relaxed), Relaxed);
        }
        for from in at + 1..=count {
            children[from - 1].store(children[from].load(Relaxed), Relaxed);
        }
        self.node.close(beside);
        separator
    }

    /// Cuts the node off from a place on; in an inner node the separator there is handed out, and what comes after it is
    /// cut off. What is cut off goes to the end of another node, which nobody else knows.
    pub(super) fn move_tail(&self, from: usize, to: &Latch<'_>) -> *mut Blob {
        let (node, count) = (self.node, self.node.count());
        let mut middle = null_mut();
        if node.is_leaf() {
            for at in from..count {
                let record = node.leaf().records[at].load(Relaxed);
                // SAFETY: the records of a latched leaf are in the tree.
                let record = unsafe { Record::from_pointer(NonNull::new(record).expect("below the count")) };
                to.insert_record(to.node.count(), record);
            }
        } else {
            let Inner { separators, children, .. } = node.inner();
            middle = separators[from].load(Relaxed);
            to.node.inner().children[0].store(children[from + 1].load(Relaxed), Relaxed);
            for at in from + 1..count {
                let separator = NonNull::new(separators[at].load(Relaxed)).expect("below the count");
                let child = NonNull::new(children[at + 1].load(Relaxed)).expect("at most the count");
                to.insert_child(to.node.count(), separator, child);
            }
        }
        to.node.expected.store(0, Relaxed);
        node.set_count(from);
        middle
    }

    /// Computes the heads again, for bounds that have been changed.
    pub(super) fn set_prefix(&self, prefix: usize) -> Result<(), Restart> {
        if prefix == self.node.prefix() {
            return Ok(());
        }
        self.node.prefix.store(prefix as u16, Relaxed);
        for at in 0..self.node.count() {
            let key = self.node.key(at, self.word())?;
            self.node.set_head(at, key);
        }
        Ok(())
    }
}

impl Drop for Latch<'_> {
    #[inline]
    fn drop(&mut self) {
        self.node.version.store(self.after, Release);
    }
}
