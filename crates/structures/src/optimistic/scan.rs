//! Scans, leaf by leaf.
//!
//! Owns: the copy of one leaf. Never: hands out an entry before the leaf is validated.

use std::borrow::Borrow;

use arrayvec::ArrayVec;

use super::keep::Keep;
use super::node::ENTRIES;
use super::{Attempt, Subscription, Tree};
use crate::planted::{Bug, planted};

/// Entries of a leaf.
pub(crate) type Page<K> = ArrayVec<(<K as Keep>::Copied, u64), ENTRIES>;

impl<K: Keep> Tree<K> {
    /// Attempts to copy the entries from `from` on that are in one leaf, as they were at one moment; returns where the next leaf
    /// begins, if there is one.
    pub(crate) fn try_page(
        &self,
        from: &K::Key,
        page: &mut Page<K>,
        subscription: &impl Subscription,
    ) -> Attempt<Option<K::Copied>> {
        page.clear();
        let (mut here, height) = self.root()?;
        let mut end = None;
        for _ in 0..height {
            let at = here.node.place_of_child(&self.keys, from);
            if at + 1 < here.node.count() {
                end = Some(self.keys.copy(here.node.key(at + 1)));
            }
            here = self.step(here, at)?;
        }
        for at in here.node.place_in_leaf(&self.keys, from)..here.node.count() {
            page.push((self.keys.copy(here.node.key(at)), here.node.slot(at)));
        }
        if !planted(Bug::LeafNotValidated) {
            here.node.check(here.word)?;
        }
        subscription.check()?;
        Ok(end)
    }
}

/// Visits at most `limit` entries from `from` on, a page at a time; returns their number.
pub(crate) fn scan_pages<K: Keep>(
    from: &K::Key,
    limit: usize,
    visit: &mut dyn FnMut(&K::Key, u64),
    mut next_page: impl FnMut(&K::Key, &mut Page<K>) -> Option<K::Copied>,
) -> usize {
    let (mut page, mut visited, mut next) = (Page::<K>::new(), 0, None::<K::Copied>);
    while visited < limit {
        let end = next_page(next.as_ref().map_or(from, Borrow::borrow), &mut page);
        for (key, value) in page.iter().take(limit - visited) {
            visit(key.borrow(), *value);
            visited += 1;
        }
        match end {
            Some(_) => next = end,
            None => break,
        }
    }
    visited
}
