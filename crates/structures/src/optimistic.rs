//! `Tree`: a B+-tree from `u64`, or from byte strings, to `u64` that threads search without latches and change under latches of single nodes.
//!
//! Owns: the nodes, and single attempts at each operation. Never: repeats an attempt, or decides what to do between two of them: that
//! is what structures on this tree differ in.
//!
//! # Protocol
//! Optimistic lock coupling (Leis et al., *The ART of Practical Synchronization*), as in the tree of `baselines`, for keys and values
//! of one word (which may say where the bytes of a key are, `keep`): readers compare versions before and after they have read a node, parent before child. Writers latch the nodes that they
//! change in the version in which they have read them, and give up if they cannot, so nobody waits with a latch. Full nodes
//! are split on the way down. Leaves that get empty leave the tree with the inner nodes that lead to nothing else; nodes are not
//! merged otherwise, and the root is never lowered.
//!
//! The range of a node's keys gets smaller only when the node is split or leaves the tree, which raises its version; it gets
//! larger when a neighbour leaves, which nobody has to notice.
//!
//! # Subscriptions
//! An attempt may depend on something else that has to stay as it is, as a hardware transaction does on a lock that it has read: it
//! is asked before the attempt takes effect, and if it does not hold the attempt has no effect.
//!
//! # Memory
//! Nodes stay until the tree is dropped and are used again (`arena`), so a reader needs no epoch.

mod arena;
mod insert;
mod keep;
#[cfg(all(test, loom))]
mod loom_models;
mod node;
mod remove;
mod scan;
mod sync;
#[cfg(all(test, debug_assertions, not(loom)))]
mod tests;
#[cfg(not(loom))]
mod together;

use crossbeam_utils::CachePadded;

use crate::planted::{Bug, pause, planted};
use arena::Arena;
pub use keep::{Keep, Strings, Words};
use node::Node;
pub(crate) use scan::Page;
#[cfg(not(loom))]
pub(crate) use scan::scan_pages;
pub(crate) use sync::Spin;
use sync::{Acquire, AtomicU64};
#[cfg(not(loom))]
pub(crate) use together::GROUP;

/// Levels of inner nodes that a tree may have; every level but the root's multiplies the leaves by 31 at least when it grows.
const MAX_HEIGHT: usize = 24;

/// Bits of the root's number in the word that also has the height.
const NUMBER_BITS: u32 = 48;

/// Reasons for which an attempt met another thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interruption {
    /// A node was latched.
    Latched,
    /// A node, or what the attempt depends on, has changed.
    Changed,
}

/// Reasons for which an attempt has to be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restart {
    /// It met another thread.
    Interrupted(Interruption),
    /// It has made room for itself, by splitting a node.
    Split,
}

impl From<Interruption> for Restart {
    fn from(interruption: Interruption) -> Restart {
        Restart::Interrupted(interruption)
    }
}

/// Results of an attempt.
pub(crate) type Attempt<R> = Result<R, Restart>;

/// Contention that a session has met, as counts since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contention {
    /// Operations that were done.
    pub operations: u64,
    /// Attempts that were given up because another thread had changed what they had read: aborts, in the words of transactional
    /// memory.
    pub failed_validations: u64,
    /// Attempts that were given up because another thread had a latch, or the lock that all fall back to.
    pub busy: u64,
    /// Operations that were done under the lock that all fall back to.
    pub fallbacks: u64,
}

impl Contention {
    /// Attempts that were given up, per operation; 0 without operations.
    #[must_use]
    pub fn abort_ratio(&self) -> f64 {
        (self.failed_validations + self.busy) as f64 / self.operations.max(1) as f64
    }

    /// Notes an attempt that was given up.
    pub(crate) fn note(&mut self, restart: Restart) {
        match restart {
            Restart::Interrupted(Interruption::Changed) => self.failed_validations += 1,
            Restart::Interrupted(Interruption::Latched) => self.busy += 1,
            Restart::Split => {}
        }
    }

    /// Adds what another session has met.
    pub fn add(&mut self, other: Contention) {
        self.operations += other.operations;
        self.failed_validations += other.failed_validations;
        self.busy += other.busy;
        self.fallbacks += other.fallbacks;
    }
}

/// Something that an attempt depends on besides the tree.
pub(crate) trait Subscription {
    /// Returns whether it still is as it was when the attempt began.
    fn holds(&self) -> bool;

    /// As a result.
    #[inline]
    fn check(&self) -> Attempt<()> {
        if self.holds() { Ok(()) } else { Err(Interruption::Changed.into()) }
    }
}

/// Dependence on nothing.
#[derive(Clone, Copy)]
pub(crate) struct Independent;

impl Subscription for Independent {
    #[inline(always)]
    fn holds(&self) -> bool {
        true
    }
}

/// Ways to replace a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replace {
    /// Readers of the leaf are not held up: the value is an atomic word.
    InPlace,
    /// Readers of the leaf begin again, as with transactional memory, where they conflict.
    UnderLatch,
}

/// See the module's introduction.
pub(crate) struct Tree<K> {
    arena: Arena<Node>,
    keys: K,
    /// The height, and the number of the root.
    root: CachePadded<AtomicU64>,
}

/// A node that an attempt has come to, in the version in which it has found it.
#[derive(Clone, Copy)]
struct Visited<'t> {
    node: &'t Node,
    number: u64,
    word: u64,
}

impl<K: Keep> Tree<K> {
    /// Creates an empty tree.
    pub(crate) fn new() -> Tree<K> {
        let arena = Arena::new(Node::new);
        let root = arena.take();
        Tree { arena, keys: K::default(), root: CachePadded::new(AtomicU64::new(root)) }
    }

    /// The root, and the levels of inner nodes.
    #[inline]
    fn root(&self) -> Attempt<(Visited<'_>, usize)> {
        let root = self.root.load(Acquire);
        let visited = self.visit(root & ((1 << NUMBER_BITS) - 1))?;
        // A root that was split before its version was loaded is the root no more.
        if !planted(Bug::RootNotChecked) && self.root.load(Acquire) != root {
            return Err(Interruption::Changed.into());
        }
        Ok((visited, (root >> NUMBER_BITS) as usize))
    }

    #[inline]
    fn visit(&self, number: u64) -> Attempt<Visited<'_>> {
        let node = self.arena.get(number).ok_or(Interruption::Changed)?;
        node.prefetch();
        Ok(Visited { node, number, word: node.stable()? })
    }

    /// The child at a place.
    #[inline]
    fn step(&self, parent: Visited<'_>, at: usize) -> Attempt<Visited<'_>> {
        let number = parent.node.slot(at);
        pause();
        let child = self.visit(number)?;
        // The child may have been split, or taken out, between the look at the parent and the one at its version.
        if !planted(Bug::InnerNotValidated) {
            parent.node.check(parent.word)?;
        }
        Ok(child)
    }

    /// The leaf for a key.
    #[inline]
    fn leaf(&self, key: &K::Key) -> Attempt<Visited<'_>> {
        let (mut visited, height) = self.root()?;
        for _ in 0..height {
            visited = self.step(visited, visited.node.place_of_child(&self.keys, key))?;
        }
        Ok(visited)
    }

    /// Attempts to read the value of a key.
    #[inline]
    pub(crate) fn try_read(&self, key: &K::Key, subscription: &impl Subscription) -> Attempt<Option<u64>> {
        let Visited { node, word, .. } = self.leaf(key)?;
        let at = node.place_in_leaf(&self.keys, key);
        let value = node.has(at, &self.keys, key).then(|| node.slot(at));
        if !planted(Bug::LeafNotValidated) {
            node.check(word)?;
        }
        subscription.check()?;
        Ok(value)
    }

    /// Attempts to replace the value of a key; returns whether it has one.
    #[inline]
    pub(crate) fn try_update(
        &self,
        key: &K::Key,
        value: u64,
        replace: Replace,
        subscription: &impl Subscription,
    ) -> Attempt<bool> {
        let leaf = self.leaf(key)?;
        let Visited { node, word, .. } = leaf;
        let at = node.place_in_leaf(&self.keys, key);
        if !node.has(at, &self.keys, key) {
            node.check(word)?;
            subscription.check()?;
            return Ok(false);
        }
        leaf.replace(at, value, replace, subscription)?;
        Ok(true)
    }
}

impl Visited<'_> {
    /// Attempts to replace the value at a place of a leaf.
    #[inline]
    fn replace(
        self,
        at: usize,
        value: u64,
        replace: Replace,
        subscription: &impl Subscription,
    ) -> Attempt<()> {
        match replace {
            Replace::InPlace => self.node.overwrite(self.word, at, value, || subscription.holds()),
            Replace::UnderLatch => {
                let mut latch = self.node.latch(self.word)?;
                subscription.check()?;
                latch.replace(at, value);
                Ok(())
            }
        }
    }
}
