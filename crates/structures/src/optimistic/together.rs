//! Accesses to several keys at once, so that their cache misses overlap.
//!
//! Owns: the interleaved descent: all keys take one step, asking for the memory that the next one needs, and then all take the next. Never:
//! repeats an attempt.
//!
//! Each key follows the protocol of a single attempt by itself: what it has read of a node is validated before it goes on from the
//! child, and in the leaf when it takes effect. That others take their steps in between only makes an attempt longer.

use arrayvec::ArrayVec;

use super::keep::Keep;
use super::{Attempt, Interruption, Replace, Subscription, Tree, Visited};
use crate::planted::{Bug, pause, planted};
use crate::structure::PointAccess;

/// Keys that are looked for together.
pub(crate) const GROUP: usize = 16;

/// The place that a key has, or would have, in a leaf, in the version in which it was found.
#[derive(Clone, Copy)]
pub(crate) struct Place<'t> {
    leaf: Visited<'t>,
    at: usize,
}

impl<K: Keep> Tree<K> {
    /// Attempts to find the places of some keys, [`GROUP`] at most.
    #[inline]
    pub(crate) fn places(&self, accesses: &[PointAccess<'_, K::Key>]) -> ArrayVec<Attempt<Place<'_>>, GROUP> {
        let keys = || accesses.iter().take(GROUP).map(PointAccess::key);
        let (root, height) = match self.root() {
            Ok(root) => root,
            Err(restart) => return keys().map(|_| Err(restart)).collect(),
        };
        let mut descents: ArrayVec<Attempt<Visited<'_>>, GROUP> = keys().map(|_| Ok(root)).collect();
        let mut children = [0; GROUP];
        for _ in 0..height {
            for ((descent, key), child) in descents.iter().zip(keys()).zip(&mut children) {
                let Ok(visited) = descent else { continue };
                *child = visited.node.slot(visited.node.place_of_child(&self.keys, key));
                if let Some(node) = self.arena.get(*child) {
                    node.prefetch_search();
                }
            }
            for (descent, child) in descents.iter_mut().zip(children) {
                *descent = descent.and_then(|parent| self.enter(parent, child));
            }
        }
        let mut places = ArrayVec::new();
        for (descent, key) in descents.into_iter().zip(keys()) {
            places.push(descent.map(|leaf| {
                let at = leaf.node.place_in_leaf(&self.keys, key);
                leaf.node.prefetch_slot(at);
                Place { leaf, at }
            }));
        }
        places
    }

    /// The child of a parent that names it, unless the parent has changed.
    #[inline(always)]
    fn enter<'t>(&'t self, parent: Visited<'t>, number: u64) -> Attempt<Visited<'t>> {
        let node = self.arena.get(number).ok_or(Interruption::Changed)?;
        pause();
        let child = Visited { node, number, word: node.stable()? };
        if !planted(Bug::GroupInnerNotValidated) {
            parent.node.check(parent.word)?;
        }
        Ok(child)
    }

    /// Attempts an access at the place of its key; returns the value that the key has after it.
    #[inline]
    pub(crate) fn try_access_at(
        &self,
        Place { leaf, at }: Place<'_>,
        access: PointAccess<'_, K::Key>,
        replace: Replace,
        subscription: &impl Subscription,
    ) -> Attempt<Option<u64>> {
        let there = leaf.node.has(at, &self.keys, access.key());
        match access {
            PointAccess::Update(_, value) if there => {
                leaf.replace(at, value, replace, subscription)?;
                Ok(Some(value))
            }
            PointAccess::Read(_) | PointAccess::Update(..) => {
                let value = there.then(|| leaf.node.slot(at));
                pause();
                if !planted(Bug::GroupLeafNotValidated) {
                    leaf.node.check(leaf.word)?;
                }
                subscription.check()?;
                Ok(value)
            }
        }
    }
}
