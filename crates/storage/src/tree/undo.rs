//! Memory set aside so that a removed row can be put back, whatever happens meanwhile.
//!
//! Owns the count of pending changes and what each may need: pages, and the extent of a long row. A row that was
//! removed, or made shorter, leaves room that others may use before the change is undone; then putting it back takes
//! pages like any insert. So each such change sets aside the most that one insert can take, until it is undone or can
//! no more be undone: a page per level, and one for a new root. Other changes leave what is set aside alone, and fail
//! when nothing else is left. Inserted rows and longer ones need no pages to be undone.
//!
//! A long row that was removed, or replaced by one that does not go to the same extent, leaves its extent. That is
//! held, neither in use nor free, until the change is undone or settled: putting the row back copies its bytes to an
//! extent that is there.
//!
//! Most trees have that many pages anyway, as they acquire them in chunks; what is set aside beyond that is never
//! touched unless it is needed, and large chunks of it go back when nothing is pending.
//!
//! Invariant: for as long as changes are pending, undoing them, in any order and between any other changes, takes no
//! more pages than are there. A change that is undone takes at most a page for each level that there was, and a share
//! of the levels above: a new root begins with two children, and each of the changes that fill it up leaves the page
//! that it had for a root.

use super::{InsertError, RowRef, Tree};
use crate::memory::{Extent, OutOfMemory};

/// Outcome of [`Tree::update_undoable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UndoableUpdate {
    /// No row has this key.
    Absent,
    /// The change is made, and undoing it takes no memory.
    Made,
    /// The change is made, and the memory that undoing it may take is set aside.
    SetAside,
}

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

    /// Sets aside the pages that undoing one more change may take.
    fn set_aside(&mut self) -> Result<(), OutOfMemory> {
        self.pages.reserve(Tree::pages_to_undo(self.pending + 1, self.height()))?;
        self.pending += 1;
        Ok(())
    }

    /// Lets go of the pages of one change.
    #[inline]
    fn let_go(&mut self) {
        debug_assert!(self.pending > 0, "only changes that are pending can be settled");
        self.pending = self.pending.saturating_sub(1);
        if self.pending == 0 {
            self.pages.give_back_untouched();
        }
    }

    /// Changes the row with `key` like [`update`](Tree::update), and sets aside what putting the old one back may take.
    ///
    /// # Errors
    /// When the row is too large, or there is no memory, be it for putting back the old one; nothing was changed then.
    #[inline]
    pub fn update_undoable(
        &mut self,
        key: &[u8],
        row: &[u8],
        version: u64,
    ) -> Result<UndoableUpdate, InsertError> {
        let Some((leaf, index)) = self.entry_to_update(key, row)? else { return Ok(UndoableUpdate::Absent) };
        let stays = |extent: Extent| self.is_long(row.len()) && extent.suits(row.len());
        let needs_nothing = match leaf.extent(index) {
            Some(extent) => stays(extent),
            None if self.is_long(row.len()) => size_of::<Extent>() >= leaf.row(index).len(),
            None => row.len() >= leaf.row(index).len(),
        };
        if needs_nothing {
            let displaced = self.replace((leaf, index), key, row, version)?;
            debug_assert!(displaced.is_none(), "a row whose extent is displaced needs it to be undone");
            return Ok(UndoableUpdate::Made);
        }
        self.set_aside()?;
        match self.replace((leaf, index), key, row, version) {
            Ok(displaced) => {
                displaced.into_iter().for_each(|extent| self.pages.hold_extent(extent));
                Ok(UndoableUpdate::SetAside)
            }
            Err(error) => {
                self.let_go();
                Err(error)
            }
        }
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
        let Some((seen, displaced)) = self.take_out(key, look) else {
            self.let_go();
            return Ok(None);
        };
        displaced.into_iter().for_each(|extent| self.pages.hold_extent(extent));
        Ok(Some(seen))
    }

    /// One change, of a row that had `row_bytes` bytes before, will not be undone: what was set aside for it can be used.
    #[inline]
    pub fn settle(&mut self, row_bytes: usize) {
        self.let_go();
        if self.is_long(row_bytes) {
            let held = self.pages.take_held_extent(row_bytes);
            debug_assert!(held.is_some(), "the extent of a long row is held until its change is settled");
            held.into_iter().for_each(|extent| self.pages.give_extent(extent));
        }
    }

    /// Undoes one change for which something was set aside: gives `key` the row that it had, whether it has another one or none.
    ///
    /// # Errors
    /// Never for lack of memory. When no such row can have been there: it is too large.
    pub fn put_back(&mut self, key: &[u8], row: &[u8], version: u64) -> Result<(), InsertError> {
        debug_assert!(self.pending > 0, "what a change may need is set aside before it");
        self.pending = self.pending.saturating_sub(1);
        self.undoing = true;
        let put_back = match self.update(key, row, version) {
            Ok(false) => self.insert(key, row, version),
            updated => updated.map(drop),
        };
        self.undoing = false;
        if self.pending == 0 {
            self.pages.give_back_untouched();
        }
        put_back
    }

    /// Hands pending changes to a tree that was just split off, with what is set aside for them: as many as `row_bytes` has, each of
    /// a row that had so many bytes before.
    ///
    /// # Panics
    /// When so many are not pending.
    pub fn cede(&mut self, right: &mut Tree, row_bytes: impl IntoIterator<Item = usize>) {
        let mut changes = 0;
        for bytes in row_bytes {
            changes += 1;
            if self.is_long(bytes) {
                let held = self.pages.take_held_extent(bytes);
                held.into_iter().for_each(|extent| right.pages.hold_extent(extent));
            }
        }
        assert!(changes <= self.pending, "only changes that are pending can be ceded");
        self.pending -= changes;
        right.pending += changes;
        let pages = Tree::pages_to_undo(changes, right.height());
        self.pages.hand_over(&mut right.pages, pages);
    }
}
