//! Removal of keys, and of leaves that get empty.
//!
//! Owns: the choice of the nodes that leave the tree with a leaf. Never: merges nodes that have something in them.

use arrayvec::ArrayVec;

use super::keep::Keep;
use super::{Attempt, MAX_HEIGHT, Subscription, Tree, Visited};

/// Inner nodes on the way to a leaf, with the place of the child taken.
type Path<'t> = ArrayVec<(Visited<'t>, usize), MAX_HEIGHT>;

impl<K: Keep> Tree<K> {
    /// Attempts to remove a key; returns whether it was there.
    pub(crate) fn try_remove(&self, key: &K::Key, subscription: &impl Subscription) -> Attempt<bool> {
        let (mut here, height) = self.root()?;
        let mut path: Path<'_> = ArrayVec::new();
        for _ in 0..height {
            let at = here.node.place_of_child(&self.keys, key);
            let child = self.step(here, at)?;
            path.push((here, at));
            here = child;
        }
        let at = here.node.place_in_leaf(&self.keys, key);
        if !here.node.has(at, &self.keys, key) {
            here.node.check(here.word)?;
            subscription.check()?;
            return Ok(false);
        }
        let branching = path.iter().rposition(|(inner, _)| inner.node.count() > 1);
        match branching {
            Some(from) if here.node.count() == 1 => self.remove_leaf(&path[from..], here, subscription)?,
            _ => {
                let mut latch = here.node.latch(here.word)?;
                subscription.check()?;
                let kept = here.node.key(at);
                latch.remove(at);
                drop(latch);
                self.keys.give(kept);
            }
        }
        Ok(true)
    }

    /// Takes a leaf with one entry out of the tree, with the inner nodes above it that have no other child. The first node of the path
    /// has several.
    fn remove_leaf(
        &self,
        path: &[(Visited<'_>, usize)],
        leaf: Visited<'_>,
        subscription: &impl Subscription,
    ) -> Attempt<()> {
        let (branching, at) = path[0];
        // Of the first two children, the second one's key is not compared any more when either leaves.
        let kept;
        let leaving = || path[1..].iter().map(|(inner, _)| *inner).chain([leaf]);
        {
            let mut above = branching.node.latch(branching.word)?;
            let mut latches: ArrayVec<_, { MAX_HEIGHT + 1 }> = ArrayVec::new();
            for gone in leaving() {
                latches.push(gone.node.latch(gone.word)?);
            }
            subscription.check()?;
            kept = [branching.node.key(at.max(1)), leaf.node.key(0)];
            above.remove(at);
            latches.iter_mut().for_each(super::node::Latch::clear);
        }
        kept.into_iter().for_each(|kept| self.keys.give(kept));
        leaving().for_each(|gone| self.arena.give(gone.number));
        Ok(())
    }
}
