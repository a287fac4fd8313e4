//! [`Node`]: sorted keys with a slot each, under a word that has the version; and [`Latch`], the right to change one.
//!
//! Owns: the order of loads and stores within a node. Never: follows a slot to another node.
//!
//! In a leaf, the slot of a key is its value. In an inner node, the slot of entry `i` is the child for keys from key `i` on; the key
//! of entry 0 has no meaning, so that the first child takes whatever is below the second one. What a key is in its word, [`Keep`] knows.
//!
//! Invariants: only who has the latch changes keys, counts and children. A value may be replaced by who has set [`WRITING`], which
//! excludes the latch, and which readers ignore: a value is one atomic word. A change raises the version, so who reads the same
//! version before and after has read one state of the node. Words only grow, whatever a node is used for.

use std::cmp::Ordering;

use super::keep::Keep;
use super::sync::{Acquire, AtomicU64, Relaxed, Release, fence};
use super::{Interruption, Restart};
use crate::planted::{Bug, ordering, pause, planted};

/// Entries of a node: with its header it takes 1 KiB.
pub(super) const ENTRIES: usize = if cfg!(loom) { 3 } else { 63 };

/// Set while somebody changes the node.
const LATCHED: u64 = 1;
/// Set while somebody replaces a value.
const WRITING: u64 = 2;
/// The lowest bit of the version.
const VERSION: u64 = 4;

#[repr(align(64))]
pub(super) struct Node {
    word: AtomicU64,
    count: AtomicU64,
    keys: [AtomicU64; ENTRIES],
    slots: [AtomicU64; ENTRIES],
}

impl Node {
    pub(super) fn new() -> Node {
        Node {
            word: AtomicU64::new(0),
            count: AtomicU64::new(0),
            keys: std::array::from_fn(|_| AtomicU64::new(0)),
            slots: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Asks for the lines that a search reads first.
    #[inline(always)]
    pub(super) fn prefetch(&self) {
        #[cfg(not(loom))]
        {
            atrapos_storage::prefetch_value(&self.word);
            atrapos_storage::prefetch_value(&self.keys);
        }
    }

    /// Asks for the header and for as many keys as a node has on average: with random keys nodes are two thirds full.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(super) fn prefetch_search(&self) {
        atrapos_storage::prefetch_value(&self.word);
        atrapos_storage::prefetch_value(&self.keys[..ENTRIES * 2 / 3]);
    }

    /// Asks for a slot.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(super) fn prefetch_slot(&self, at: usize) {
        atrapos_storage::prefetch_value(&self.slots[at.min(ENTRIES - 1)]);
    }

    /// The version, while nobody changes the node.
    #[inline]
    pub(super) fn stable(&self) -> Result<u64, Restart> {
        let word = self.word.load(ordering(Bug::VersionReadRelaxed, Acquire));
        if word & LATCHED == 0 { Ok(word & !WRITING) } else { Err(Interruption::Latched.into()) }
    }

    /// Checks that nothing has changed since the version was read.
    #[inline]
    pub(super) fn check(&self, word: u64) -> Result<(), Restart> {
        pause();
        if !planted(Bug::ReaderFenceLeftOut) {
            fence(Acquire);
        }
        if self.word.load(Relaxed) & !WRITING == word { Ok(()) } else { Err(Interruption::Changed.into()) }
    }

    /// The number of entries; any number up to [`ENTRIES`] if the node is being changed.
    #[inline]
    pub(super) fn count(&self) -> usize {
        (self.count.load(Relaxed) as usize).min(ENTRIES)
    }

    #[inline]
    pub(super) fn key(&self, at: usize) -> u64 {
        self.keys[at].load(Relaxed)
    }

    #[inline]
    pub(super) fn slot(&self, at: usize) -> u64 {
        self.slots[at].load(Relaxed)
    }

    /// The number of keys, of those from `first` on, that are below `key`, plus `first`.
    #[inline(always)]
    fn first_not(&self, first: usize, below: impl Fn(u64) -> bool) -> usize {
        let keys = &self.keys[..self.count()];
        first + keys.get(first..).map_or(0, |keys| keys.partition_point(|key| below(key.load(Relaxed))))
    }

    /// The place that `key` has, or would have, in a leaf.
    #[inline]
    pub(super) fn place_in_leaf<K: Keep>(&self, keys: &K, key: &K::Key) -> usize {
        self.first_not(0, |kept| keys.compare(kept, key) == Ordering::Less)
    }

    /// Returns whether a leaf has `key` at this place.
    #[inline]
    pub(super) fn has<K: Keep>(&self, at: usize, keys: &K, key: &K::Key) -> bool {
        at < self.count() && keys.compare(self.key(at), key) == Ordering::Equal
    }

    /// The place of the child for `key` in an inner node.
    #[inline]
    pub(super) fn place_of_child<K: Keep>(&self, keys: &K, key: &K::Key) -> usize {
        self.first_not(1, |kept| keys.compare(kept, key) != Ordering::Greater) - 1
    }

    /// The place of a child in an inner node that has it and is latched.
    pub(super) fn place_of_slot(&self, child: u64) -> usize {
        let place = self.slots[..self.count()].iter().position(|slot| slot.load(Relaxed) == child);
        place.unwrap_or_else(|| unreachable!("a parent that is latched in its version has the child"))
    }

    /// Takes the latch if the node has this version.
    #[inline]
    pub(super) fn latch(&self, word: u64) -> Result<Latch<'_>, Restart> {
        pause();
        let mut before = word;
        if planted(Bug::LatchedBlindly) {
            before = self.stable()?;
        }
        let acquire = ordering(Bug::LatchTakenRelaxed, Acquire);
        self.word.compare_exchange(before, before | LATCHED, acquire, Relaxed).map_err(|now| {
            if now & !(LATCHED | WRITING) == word { Interruption::Latched } else { Interruption::Changed }
        })?;
        if !planted(Bug::WriterFenceLeftOut) {
            fence(Release);
        }
        Ok(Latch { node: self, before, changed: false })
    }

    /// Replaces the value at a place, if the leaf has this version and `holds` says so; readers are not held up.
    #[inline]
    pub(super) fn overwrite(
        &self,
        word: u64,
        at: usize,
        value: u64,
        holds: impl Fn() -> bool,
    ) -> Result<(), Restart> {
        pause();
        if planted(Bug::WritesUnannounced) {
            self.check(word)?;
            pause();
            self.slots[at].store(value, Relaxed);
            return Ok(());
        }
        self.word.compare_exchange(word, word | WRITING, Acquire, Relaxed).map_err(|now| {
            if now & !(LATCHED | WRITING) == word { Interruption::Latched } else { Interruption::Changed }
        })?;
        pause();
        let result = if holds() {
            self.slots[at].store(value, Relaxed);
            Ok(())
        } else {
            Err(Interruption::Changed.into())
        };
        self.word.store(word, ordering(Bug::WriteEndedRelaxed, Release));
        result
    }
}

/// The latch of a node. Dropping it releases it, with a higher version if the node was changed.
pub(super) struct Latch<'t> {
    node: &'t Node,
    before: u64,
    changed: bool,
}

impl<'t> Latch<'t> {
    /// The latched node.
    pub(super) fn node(&self) -> &'t Node {
        self.node
    }

    /// Inserts an entry into a node with room.
    #[inline]
    pub(super) fn insert(&mut self, at: usize, key: u64, slot: u64) {
        self.changed = true;
        let Node { count, keys, slots, .. } = self.node;
        let entries = self.node.count();
        for to in (at + 1..=entries).rev() {
            keys[to].store(keys[to - 1].load(Relaxed), Relaxed);
            slots[to].store(slots[to - 1].load(Relaxed), Relaxed);
        }
        pause();
        keys[at].store(key, Relaxed);
        slots[at].store(slot, Relaxed);
        count.store(entries as u64 + 1, Relaxed);
        pause();
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, at: usize) {
        self.changed = true;
        let Node { count, keys, slots, .. } = self.node;
        let entries = self.node.count();
        for from in at + 1..entries {
            keys[from - 1].store(keys[from].load(Relaxed), Relaxed);
            slots[from - 1].store(slots[from].load(Relaxed), Relaxed);
        }
        pause();
        count.store(entries as u64 - 1, Relaxed);
    }

    /// Replaces the value at a place, so that readers of the leaf begin again.
    pub(super) fn replace(&mut self, at: usize, value: u64) {
        self.changed = true;
        self.node.slots[at].store(value, Relaxed);
    }

    /// Moves the entries from a place on to another node, which gets them alone; returns the key of the first one.
    pub(super) fn move_tail(&mut self, from: usize, to: &mut Latch<'_>) -> u64 {
        (self.changed, to.changed) = (true, true);
        let entries = self.node.count();
        for at in from..entries {
            to.node.keys[at - from].store(self.node.key(at), Relaxed);
            to.node.slots[at - from].store(self.node.slot(at), Relaxed);
        }
        to.node.count.store((entries - from) as u64, Relaxed);
        pause();
        self.node.count.store(from as u64, Relaxed);
        self.node.key(from)
    }

    /// Makes the node an inner one of two children.
    pub(super) fn fill_root(&mut self, left: u64, separator: u64, right: u64) {
        self.changed = true;
        let Node { count, keys, slots, .. } = self.node;
        for (at, (key, slot)) in [(0, left), (separator, right)].into_iter().enumerate() {
            keys[at].store(key, Relaxed);
            slots[at].store(slot, Relaxed);
        }
        count.store(2, Relaxed);
    }

    /// Takes all entries out of a node that leaves the tree.
    pub(super) fn clear(&mut self) {
        self.changed = true;
        self.node.count.store(0, Relaxed);
    }
}

impl Drop for Latch<'_> {
    #[inline]
    fn drop(&mut self) {
        let raised = if self.changed && !planted(Bug::VersionKept) { VERSION } else { 0 };
        self.node.word.store(self.before + raised, ordering(Bug::LatchReleasedRelaxed, Release));
    }
}
