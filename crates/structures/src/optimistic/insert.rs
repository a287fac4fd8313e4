//! Insertion, and splits on the way to it.
//!
//! Owns: the order in which nodes are latched for a split: the parent, then the node, then the new one. Never: waits.

use super::keep::Keep;
use super::node::{ENTRIES, Latch};
use super::sync::Release;
use super::{Attempt, Interruption, MAX_HEIGHT, NUMBER_BITS, Restart, Subscription, Tree, Visited};

impl<K: Keep> Tree<K> {
    /// Attempts to insert a key with a value; returns false if it is there, and changes nothing then.
    pub(crate) fn try_insert(
        &self,
        key: &K::Key,
        value: u64,
        subscription: &impl Subscription,
    ) -> Attempt<bool> {
        let (mut here, height) = self.root()?;
        let mut parent = None;
        for level in (1..=height).rev() {
            if here.node.count() == ENTRIES {
                return Err(self.split(parent, here, level, subscription));
            }
            let child = self.step(here, here.node.place_of_child(&self.keys, key))?;
            parent = Some(here);
            here = child;
        }
        let Visited { node, word, .. } = here;
        let at = node.place_in_leaf(&self.keys, key);
        if node.has(at, &self.keys, key) {
            node.check(word)?;
            subscription.check()?;
            return Ok(false);
        }
        if node.count() == ENTRIES {
            return Err(self.split(parent, here, 0, subscription));
        }
        let mut latch = node.latch(word)?;
        subscription.check()?;
        latch.insert(at, self.keys.keep(key), value);
        Ok(true)
    }

    /// Splits a full node, if nobody else has changed it or its parent, which has room; returns why the attempt begins again.
    #[cold]
    fn split(
        &self,
        parent: Option<Visited<'_>>,
        full: Visited<'_>,
        level: usize,
        subscription: &impl Subscription,
    ) -> Restart {
        match self.try_split(parent, full, level, subscription) {
            Ok(()) => Restart::Split,
            Err(restart) => restart,
        }
    }

    fn try_split(
        &self,
        parent: Option<Visited<'_>>,
        full: Visited<'_>,
        level: usize,
        subscription: &impl Subscription,
    ) -> Attempt<()> {
        let above = parent.map(|parent| parent.node.latch(parent.word)).transpose()?;
        let mut latch = full.node.latch(full.word)?;
        subscription.check()?;
        // What can fail comes before the first change.
        let (right, mut fresh) = self.take()?;
        let Some(mut above) = above else {
            assert!(level + 1 < MAX_HEIGHT, "no memory has so many nodes");
            let (root, mut top) = self.take()?;
            let separator = self.move_tail(&mut latch, &mut fresh, level);
            top.fill_root(full.number, separator, right);
            drop(top);
            // Nobody else can split the root meanwhile: it is latched.
            self.root.store(((level as u64 + 1) << NUMBER_BITS) | root, Release);
            return Ok(());
        };
        let separator = self.move_tail(&mut latch, &mut fresh, level);
        // The separator comes right behind the node that was split.
        let at = above.node().place_of_slot(full.number) + 1;
        above.insert(at, separator, right);
        Ok(())
    }

    /// Moves the second half of a node to a new one; returns what separates them. A leaf keeps the key itself; an inner node has no use any more for the
    /// first key of its second half.
    fn move_tail(&self, from: &mut Latch<'_>, to: &mut Latch<'_>, level: usize) -> u64 {
        let first = from.move_tail(ENTRIES / 2, to);
        if level == 0 { self.keys.keep_again(first) } else { first }
    }

    /// A node that nobody refers to. It is latched, for readers that remember it from an earlier use.
    fn take(&self) -> Attempt<(u64, Latch<'_>)> {
        let number = self.arena.take();
        let node = self.arena.get(number).ok_or(Interruption::Changed)?;
        Ok((number, node.latch(node.stable()?)?))
    }
}
