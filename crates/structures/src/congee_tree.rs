//! `congee`: an adaptive radix tree with optimistic lock coupling, by the crate of that name; for comparison.
//!
//! Its keys are integers of a word by its nature: nodes are found by one byte of the key on each of eight levels, so no key may be the beginning of
//! another one, as byte strings may.
//!
//! Owns: the tree. Never: pins an epoch between operations.

use congee::{Congee, DefaultAllocator};

use crate::structure::{Refused, Shared, Unordered};

/// Entries that a scan copies at a time.
const PAGE: usize = 64;

/// See the module's introduction. Keys are `u64`.
pub struct CongeeTree {
    tree: Congee<usize, usize>,
}

impl CongeeTree {
    /// Creates an empty tree.
    #[must_use]
    pub fn new() -> CongeeTree {
        CongeeTree { tree: Congee::new(DefaultAllocator {}) }
    }
}

impl Default for CongeeTree {
    fn default() -> CongeeTree {
        CongeeTree::new()
    }
}

impl Shared<u64> for CongeeTree {
    type Session = ();

    const ORDERED: bool = true;

    fn session(&self) {}

    #[inline]
    fn read(&self, (): &mut (), key: &u64) -> Option<u64> {
        self.tree.get(&(*key as usize), &self.tree.pin()).map(|value| value as u64)
    }

    #[inline]
    fn update(&self, (): &mut (), key: &u64, value: u64) -> bool {
        let guard = self.tree.pin();
        self.tree.compute_if_present(&(*key as usize), |_| Some(value as usize), &guard).is_some()
    }

    fn insert(&self, (): &mut (), key: &u64, value: u64) -> Result<bool, Refused> {
        let guard = self.tree.pin();
        let old = self.tree.compute_or_insert(*key as usize, |old| old.unwrap_or(value as usize), &guard);
        old.map(|old| old.is_none()).map_err(|_| Refused::OutOfMemory)
    }

    fn remove(&self, (): &mut (), key: &u64) -> bool {
        self.tree.remove(&(*key as usize), &self.tree.pin()).is_some()
    }

    fn scan(
        &self,
        (): &mut (),
        from: &u64,
        limit: usize,
        visit: &mut dyn FnMut(&u64, u64),
    ) -> Result<usize, Unordered> {
        let (guard, mut page, mut visited) = (self.tree.pin(), [(0, 0); PAGE], 0);
        let mut next = Some(*from as usize);
        while let Some(from) = next.filter(|_| visited < limit) {
            let wanted = PAGE.min(limit - visited);
            let copied = self.tree.range(&from, &usize::MAX, &mut page[..wanted], &guard);
            for (key, value) in &page[..copied] {
                visit(&(*key as u64), *value as u64);
            }
            visited += copied;
            next = page[..copied].last().and_then(|(last, _)| last.checked_add(1));
        }
        Ok(visited)
    }
}
