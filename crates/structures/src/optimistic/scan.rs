//! Scans, leaf by leaf.
//!
//! Owns: the copy of one leaf. Never: hands out an entry before the leaf is validated.

use arrayvec::ArrayVec;

use super::node::ENTRIES;
use super::{Attempt, Subscription, Tree};
use crate::planted::{Bug, planted};

/// Entries of a leaf.
pub(crate) type Page = ArrayVec<(u64, u64), ENTRIES>;

impl Tree {
    /// Attempts to copy the entries from `from` on that are in one leaf, as they were at one moment; returns where the next leaf
    /// begins, if there is one.
    pub(crate) fn try_page(
        &self,
        from: u64,
        page: &mut Page,
        subscription: &impl Subscription,
    ) -> Attempt<Option<u64>> {
        page.clear();
        let (mut here, height) = self.root()?;
        let mut end = None;
        for _ in 0..height {
            let at = here.node.place_of_child(from);
            if at + 1 < here.node.count() {
                end = Some(here.node.key(at + 1));
            }
            here = self.step(here, at)?;
        }
        for at in here.node.place_in_leaf(from)..here.node.count() {
            page.push((here.node.key(at), here.node.slot(at)));
        }
        if !planted(Bug::LeafNotValidated) {
            here.node.check(here.word)?;
        }
        subscription.check()?;
        Ok(end)
    }
}

/// Visits at most `limit` entries from `from` on, a page at a time; returns their number.
pub(crate) fn scan_pages(
    mut from: u64,
    limit: usize,
    visit: &mut dyn FnMut(&u64, u64),
    mut next_page: impl FnMut(u64, &mut Page) -> Option<u64>,
) -> usize {
    let (mut page, mut visited) = (Page::new(), 0);
    while visited < limit {
        let end = next_page(from, &mut page);
        for (key, value) in page.iter().take(limit - visited) {
            visit(key, *value);
            visited += 1;
        }
        match end {
            Some(end) => from = end,
            None => break,
        }
    }
    visited
}
