//! Pages that are set aside, so that what a transaction has removed can be put back whatever happens meanwhile.
//!
//! Owns the count of pending changes and what each may need. A row that was removed, or made shorter, leaves room that others may
//! use before the change is undone; then putting it back takes pages like any insert. So each such change sets aside the most
//! that one insert can take, until it is undone or can no more be undone: a page per level, and one for a new root. Other
//! changes leave what is set aside alone, and fail when nothing else is left. Inserted rows and longer ones need no pages to be
//! undone.
//!
//! Most trees have that many pages anyway, as they acquire them in chunks; what is set aside beyond that is never touched unless
//! it is needed, and large chunks of it go back when nothing is pending.
//!
//! Invariant: for as long as changes are pending, undoing them, in any order and between any other changes, takes no more pages
//! than are there. A change that is undone takes at most a page for each level that there was, and a share of the levels above:
//! a new root begins with two children, and each of the changes that fill it up leaves the page that it had for a root.

use super::{InsertError, RowRef, Tree};
use crate::memory::OutOfMemory;

impl Tree {
    /// Pages that `pending` changes may take when they are undone in a tree of `height` levels.
    pub(super) fn pages_to_undo(pending: usize, height: usize) -> usize {
        pending * (height + 1)
    }

    pub(super) fn set_aside_pages(&self) -> usize {
        Tree::pages_to_undo(self.pending, self.height())
    }

    /// Changes for which pages are set aside.
    #[must_use]
    pub fn pending_changes(&self) -> usize {
        self.pending
    }

    /// Sets aside what undoing one more change may take.
    ///
    /// # Errors
    /// When there is no memory for it.
    #[inline]
    pub fn set_aside(&mut self) -> Result<(), OutOfMemory> {
        self.pages.reserve(Tree::pages_to_undo(self.pending + 1, self.height()))?;
        self.pending += 1;
        Ok(())
    }

    /// Removes the row with `key` like [`remove_with`](Tree::remove_with), and sets aside what putting it back may take.
    ///
    /// # Errors
    /// When there is no memory for that; nothing was changed then.
    #[inline]
    pub fn remove_undoable<T>(
        &mut self,
        key: &[u8],
        look: impl FnOnce(RowRef<'_>) -> T,
    ) -> Result<Option<T>, OutOfMemory> {
        self.set_aside()?;
        let seen = self.remove_with(key, look);
        if seen.is_none() {
            self.settle(1);
        }
        Ok(seen)
    }

    /// So many changes will not be undone: what was set aside for them can be used.
    #[inline]
    pub fn settle(&mut self, changes: usize) {
        debug_assert!(changes <= self.pending, "only changes that are pending can be settled");
        self.pending = self.pending.saturating_sub(changes);
        if self.pending == 0 {
            self.pages.give_back_untouched();
        }
    }

    /// Undoes one change for which pages were set aside: gives `key` the row that it had, whether it has a shorter one or none.
    ///
    /// # Errors
    /// Never for lack of memory. When no such row can have been there: it is too large.
    pub fn put_back(&mut self, key: &[u8], row: &[u8], version: u64) -> Result<(), InsertError> {
        debug_assert!(self.pending > 0, "pages are set aside before a change that may need them");
        self.pending = self.pending.saturating_sub(1);
        self.undoing = true;
        let put_back = match self.update(key, row, version) {
            Ok(false) => self.insert(key, row, version),
            updated => updated.map(drop),
        };
        self.undoing = false;
        self.settle(0);
        put_back
    }

    /// Hands `changes` of the pending changes to a tree that was just split off, with what is set aside for them.
    ///
    /// # Panics
    /// When so many are not pending.
    pub fn cede(&mut self, right: &mut Tree, changes: usize) {
        assert!(changes <= self.pending, "only changes that are pending can be ceded");
        self.pending -= changes;
        right.pending += changes;
        let pages = Tree::pages_to_undo(changes, right.height());
        self.pages.hand_over(&mut right.pages, pages);
    }
}
