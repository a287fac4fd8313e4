//! The byte core: changes of rows on encoded keys and encoded rows, independent of the types that a table is declared
//! with.
//!
//! Owns: the order of the steps of a change, which are the tree, the before-image, the redo and the dependents. Never:
//! decodes a row.
//!
//! Invariant: a change that fails has changed nothing, or only what its undo puts back.

use std::ops::{Bound, ControlFlow, Range};

use atrapos_durability::wal;
use atrapos_storage::lock::LockTarget;
use atrapos_storage::{
    InsertError, KeyBuf, OutOfMemory, Overwritten, OverwrittenBytes, Position, RowRef, UndoableUpdate,
};

use super::DependentAction;
use super::access::refuse_duplicate;
use super::dependent::follow_change;
use crate::abort::{Abort, AbortReason};
use crate::partition::{Partition, PartitionId};
use crate::planted::{Bug, planted};
use crate::range::KeyRange;
use crate::redo::Redo;
use crate::schema::Catalog;
use crate::undo::UndoLog;

/// The context of an operation: one partition, to which it has exclusive access while it runs.
pub struct RowContext<'a> {
    /// The catalog as the worker knows it.
    pub catalog: &'a Catalog,
    /// The identifier of the partition.
    pub id: PartitionId,
    /// The partition.
    pub partition: &'a mut Partition,
    /// The key or range that is locked.
    pub target: &'a mut LockTarget,
    /// The part of the target range beyond this partition, which the transaction has to access next.
    pub left_out: &'a mut Option<KeyRange>,
    /// The position at which an interleaved look-up found the key, if one was made.
    pub position: Option<&'a Position>,
    /// The log that receives before-images.
    pub undo: &'a mut UndoLog,
    /// Scratch space in which rows are encoded.
    pub scratch: &'a mut Vec<u8>,
    /// The redo log that receives changes, if the database logs.
    pub redo: Option<&'a mut Redo>,
    /// The list that receives dependent actions.
    pub dependents: &'a mut Vec<DependentAction>,
    /// True if the target may still shrink to the keys that were visited, since it is not entered in the lock table
    /// yet.
    pub may_narrow: bool,
}

/// The row that is replaced.
#[derive(Clone, Copy)]
pub(crate) enum Replaced<'a> {
    /// That of the target key, which was located.
    At(Position),
    /// In a range: that of this key.
    Within(&'a KeyBuf),
}

impl RowContext<'_> {
    /// The key that is locked, or the first of the range.
    #[inline]
    pub(crate) fn key(&self) -> &KeyBuf {
        self.target.first_key()
    }

    /// The position of the key, for several accesses to its row.
    #[inline(always)]
    pub(crate) fn locate(&self) -> Position {
        match self.position {
            Some(position) => self.partition.tree.refreshed(*position, self.key()),
            None => self.partition.tree.locate(self.key()),
        }
    }

    /// The row of the key, which was [located](Self::locate), with its version.
    #[inline(always)]
    pub(crate) fn row_at(&self, position: Position) -> Option<(u64, &[u8])> {
        self.partition.tree.row_at(position, self.key()).map(|row| (row.version, row.bytes))
    }

    /// The row of the key, with its version.
    #[inline(always)]
    pub fn row(&self) -> Option<(u64, &[u8])> {
        let found = match self.position {
            Some(position) => self.partition.tree.row_at(*position, self.key()),
            None => self.partition.tree.get(self.key()),
        };
        found.map(|row| (row.version, row.bytes))
    }

    /// Creates the abort of an insertion whose key is taken.
    fn refuse_duplicate(&self) -> Abort {
        refuse_duplicate(self.catalog, self.id.table, self.key())
    }

    #[cold]
    fn refuse(&self, error: &InsertError) -> Abort {
        let table = self.catalog.tables[self.id.table.at()].name;
        let reason = match error {
            InsertError::Duplicate(_) => return self.refuse_duplicate(),
            InsertError::KeyTooLarge { .. } => AbortReason::KeyTooLarge,
            InsertError::RowTooLarge { .. } => AbortReason::RowTooLarge,
            InsertError::OutOfMemory(_) | InsertError::TreeFull(_) => AbortReason::OutOfMemory,
        };
        Abort::explained(reason, format!("table '{table}': {error}"))
    }

    #[cold]
    fn refuse_removal(&self, error: OutOfMemory) -> Abort {
        let table = self.catalog.tables[self.id.table.at()].name;
        Abort::explained(
            AbortReason::OutOfMemory,
            format!(
                "table '{table}': there is no memory in which the change could be undone if it had to be ({} more bytes); \
                 delete or shorten fewer rows per transaction, or free some memory",
                error.bytes
            ),
        )
    }

    /// Runs `work` with the emptied scratch space.
    #[inline(always)]
    pub(crate) fn with_scratch<R>(&mut self, work: impl FnOnce(&mut Self, &mut Vec<u8>) -> R) -> R {
        let mut scratch = std::mem::take(self.scratch);
        scratch.clear();
        let done = work(self, &mut scratch);
        *self.scratch = scratch;
        done
    }

    /// Inserts a row under the target key; returns false if the key is taken. Adds no dependents, unlike
    /// [`insert`](Self::insert).
    #[inline(always)]
    pub fn put(&mut self, row: &[u8]) -> Result<bool, Abort> {
        let version = self.partition.next_version();
        let LockTarget::Key(key) = &*self.target else { unreachable!("insertions lock a key") };
        match self.partition.tree.insert(key, row, version) {
            Ok(()) => {
                self.undo.remember_absent(self.id, key);
                if let Some(redo) = &mut self.redo {
                    redo.push(|redo| wal::push_put(redo, self.id.table.0, key, version, row))?;
                }
                Ok(true)
            }
            Err(InsertError::Duplicate(_)) => Ok(false),
            Err(error) => Err(self.refuse(&error)),
        }
    }

    /// Inserts a row under the target key, and adds its dependents. If the key is taken, fails when `strict`, and
    /// returns `false` otherwise.
    #[inline(always)]
    pub(crate) fn insert(&mut self, row: &[u8], strict: bool) -> Result<bool, Abort> {
        if !self.put(row)? {
            return if strict { Err(self.refuse_duplicate()) } else { Ok(false) };
        }
        let meta = &self.catalog.tables[self.id.table.at()];
        if meta.has_dependents
            && let LockTarget::Key(key) = &*self.target
        {
            follow_change(meta, key, None, Some(row), self.dependents)?;
        }
        Ok(true)
    }

    /// Replaces a row, known to exist with `old_version`, by `new`, and adds the dependents. Its before-image is the last one in
    /// the undo log.
    pub(crate) fn patch(&mut self, row: Replaced<'_>, old_version: u64, new: &[u8]) -> Result<(), Abort> {
        self.put_over(row, old_version, new)?;
        let meta = &self.catalog.tables[self.id.table.at()];
        if meta.has_dependents {
            let key = match (row, &*self.target) {
                (Replaced::Within(key), _) | (Replaced::At(_), LockTarget::Key(key)) => key,
                (Replaced::At(_), LockTarget::Range { .. }) => unreachable!("in a range the key is told"),
            };
            follow_change(meta, key, Some(self.undo.last_row()), Some(new), self.dependents)?;
        }
        Ok(())
    }

    /// Replaces the row of the target key, known to exist at `position` with `old_version`, by `new`. Adds no dependents.
    pub(super) fn patch_image(
        &mut self,
        position: Position,
        old_version: u64,
        new: &[u8],
    ) -> Result<(), Abort> {
        self.put_over(Replaced::At(position), old_version, new)
    }

    /// Replaces a row as [`patch`](Self::patch) does, without dependents.
    #[inline(always)]
    fn put_over(&mut self, row: Replaced<'_>, old_version: u64, new: &[u8]) -> Result<(), Abort> {
        let version = self.partition.next_version();
        let tree = &mut self.partition.tree;
        let (key, found) = match (row, &*self.target) {
            (Replaced::At(position), LockTarget::Key(key)) => (key, tree.row_at_mut(position, key)),
            (Replaced::Within(key), _) => (key, tree.get_mut(key)),
            (Replaced::At(_), LockTarget::Range { .. }) => unreachable!("in a range the key is told"),
        };
        let Some(mut row) = found else { unreachable!("the row was just read") };
        // The undo may put back a row that was not changed, if one of the next steps fails; that changes nothing.
        self.undo.remember_row(self.id, key, old_version, row.bytes());
        if let Some(redo) = &mut self.redo {
            let old = row.bytes();
            redo.push(|redo| wal::push_update(redo, self.id.table.0, key, version, old, new))?;
        }
        let old_len = row.bytes().len();
        if old_len == new.len() {
            row.bytes_mut().copy_from_slice(new);
            row.set_version(version);
        } else {
            let careless = planted(Bug::NothingSetAside);
            let updated = if careless {
                tree.update(key, new, version).map(|_| UndoableUpdate::Made)
            } else {
                tree.update_undoable(key, new, version)
            };
            match updated {
                Ok(UndoableUpdate::SetAside) => self.undo.note_set_aside(),
                Ok(_) => {}
                Err(error) => return Err(self.refuse(&error)),
            }
        }
        Ok(())
    }

    /// Changes bytes of the row of the target key, but not its length, and adds the dependents; `None` if there is no row.
    /// `change` adds what it overwrites to the log before it does so, so a change that fails half-way is undone like any other.
    #[inline(always)]
    pub(crate) fn edit<R>(
        &mut self,
        change: impl FnOnce(&mut [u8], Overwritten<'_>) -> Result<R, Abort>,
    ) -> Result<Option<R>, Abort> {
        let version = self.partition.next_version();
        let position = self.locate();
        let LockTarget::Key(key) = &*self.target else { unreachable!("edits lock a key") };
        let tree = &mut self.partition.tree;
        let Some(mut row) = tree.found_mut(position) else { return Ok(None) };
        let (before, row_bytes) = (row.version(), row.bytes().len());
        let edit = |overwritten: Overwritten<'_>| change(row.bytes_mut(), overwritten);
        let edited = self.undo.remember_edit(self.id, key, before, row_bytes, edit)?;
        row.set_version(version);
        let meta = &self.catalog.tables[self.id.table.at()];
        if self.redo.is_some() || meta.has_dependents && !meta.is_indifferent_to(self.undo.last_overwritten())
        {
            self.follow_edit(position, version)?;
        }
        Ok(Some(edited))
    }

    /// Adds the redo and the dependents of the last change, an edit of the row at `position`, which has `version` now.
    #[inline(never)]
    fn follow_edit(&mut self, position: Position, version: u64) -> Result<(), Abort> {
        let LockTarget::Key(key) = &*self.target else { unreachable!("edits lock a key") };
        let Some(row) = self.partition.tree.row_at(position, key) else {
            unreachable!("the row was just edited")
        };
        let overwritten = self.undo.last_overwritten();
        if let Some(redo) = &mut self.redo {
            let places = OverwrittenBytes::of(overwritten).padded();
            redo.push(|redo| wal::push_edit(redo, self.id.table.0, key, version, places, row.bytes))?;
        }
        let meta = &self.catalog.tables[self.id.table.at()];
        if meta.has_dependents && !meta.is_indifferent_to(overwritten) {
            self.scratch.clear();
            self.scratch.extend_from_slice(row.bytes);
            OverwrittenBytes::of(overwritten).restore(self.scratch);
            follow_change(meta, key, Some(self.scratch), Some(row.bytes), self.dependents)?;
        }
        Ok(())
    }

    /// Removes the row of the target key, or, in a range, that of `within`; returns false if there is none. Adds no
    /// dependents, unlike [`delete`](Self::delete). The before-image of the row is the last one in the undo log.
    pub(crate) fn remove(&mut self, within: Option<&KeyBuf>) -> Result<bool, Abort> {
        let key = match (within, &*self.target) {
            (Some(key), _) | (None, LockTarget::Key(key)) => key,
            (None, LockTarget::Range { .. }) => unreachable!("in a range the key is told"),
        };
        let (undo, id) = (&mut *self.undo, self.id);
        let look = |row: RowRef<'_>| undo.remember_row(id, key, row.version, row.bytes);
        let careless = planted(Bug::NothingSetAside);
        let tree = &mut self.partition.tree;
        let removed =
            if careless { Ok(tree.remove_with(key, look)) } else { tree.remove_undoable(key, look) };
        match removed {
            Err(error) => return Err(self.refuse_removal(error)),
            Ok(None) => return Ok(false),
            Ok(Some(())) => {}
        }
        if !careless {
            self.undo.note_set_aside();
        }
        // The deletion takes a version too, so that a row inserted here later is newer than the deletion.
        let deleted = self.partition.next_version();
        if let Some(redo) = &mut self.redo {
            redo.push(|redo| wal::push_remove(redo, self.id.table.0, key, deleted))?;
        }
        Ok(true)
    }

    /// Removes a row as [`remove`](Self::remove) does, adds its dependents, and returns the row; `None` if there is
    /// none.
    pub(crate) fn delete(&mut self, within: Option<&KeyBuf>) -> Result<Option<&[u8]>, Abort> {
        if !self.remove(within)? {
            return Ok(None);
        }
        let meta = &self.catalog.tables[self.id.table.at()];
        if meta.has_dependents {
            let key = match (within, &*self.target) {
                (Some(key), _) | (None, LockTarget::Key(key)) => key,
                (None, LockTarget::Range { lower, .. }) => lower,
            };
            follow_change(meta, key, Some(self.undo.last_row()), None, self.dependents)?;
        }
        Ok(Some(self.undo.last_row()))
    }

    /// Visits the rows of the target range in this partition until `visit` breaks; narrows the target to the visited
    /// keys if that is still allowed. Returns true if it broke off.
    pub fn walk(
        &mut self,
        backward: bool,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, Abort>,
    ) -> Result<bool, Abort> {
        let LockTarget::Range { lower, upper } = &*self.target else {
            unreachable!("scans lock a range");
        };
        let bound = match upper {
            Some(upper) => Bound::Excluded(&**upper),
            None => Bound::Unbounded,
        };
        let mut range = self.partition.tree.range(Bound::Included(&**lower), bound);
        let mut key = KeyBuf::new();
        let mut stopped = false;
        while let Some(entry) = if backward { range.next_back() } else { range.next() } {
            entry.key_into(&mut key);
            if visit(&key, entry.bytes())?.is_break() {
                stopped = true;
                break;
            }
        }
        if stopped && self.may_narrow {
            let LockTarget::Range { lower, upper } = self.target else { unreachable!("just matched") };
            if backward {
                *lower = key;
            } else {
                // The smallest key after the last one visited.
                key.push(0);
                *upper = Some(key);
            }
        }
        Ok(stopped)
    }

    /// Applies `change` to each row of the target range in this partition, and returns the number of rows. The rows are
    /// copied in small groups, since a tree cannot be changed while it is walked.
    pub fn change_range(&mut self, change: &mut ChangeRow<'_>) -> Result<u64, Abort> {
        let LockTarget::Range { lower, .. } = &*self.target else {
            unreachable!("ranges are locked as such")
        };
        let (mut from, mut changed, mut group, mut new) = (lower.clone(), 0, RowGroup::default(), Vec::new());
        loop {
            self.take_group(&from, &mut group);
            for (key, version, row) in &group.rows {
                new.clear();
                match change(key, &group.bytes[row.clone()], &mut new)? {
                    RowChange::Replace => self.patch(Replaced::Within(key), *version, &new)?,
                    RowChange::Delete => drop(self.delete(Some(key))?),
                }
                changed += 1;
            }
            let Some((last, ..)) = group.rows.last() else { return Ok(changed) };
            from.clone_from(last);
            from.push(0);
        }
    }

    /// Copies the next rows of the target range, from `from` on.
    fn take_group(&self, from: &KeyBuf, group: &mut RowGroup) {
        group.rows.clear();
        group.bytes.clear();
        let LockTarget::Range { upper, .. } = &*self.target else { return };
        let bound = upper.as_ref().map_or(Bound::Unbounded, |upper| Bound::Excluded(&**upper));
        for entry in self.partition.tree.range(Bound::Included(&**from), bound) {
            let start = group.bytes.len();
            group.bytes.extend_from_slice(entry.bytes());
            group.rows.push((entry.key(), entry.version(), start..group.bytes.len()));
            if group.rows.len() == GROUP_ROWS || group.bytes.len() >= GROUP_BYTES {
                return;
            }
        }
    }
}

/// Decides the change of a row, given its key and its bytes, and writes the new bytes.
pub type ChangeRow<'a> = dyn FnMut(&[u8], &[u8], &mut Vec<u8>) -> Result<RowChange, Abort> + 'a;

/// The change of one row of a range.
pub enum RowChange {
    /// The row is replaced by the bytes that were written.
    Replace,
    /// The row is deleted.
    Delete,
}

/// Some rows of a range: for each the key, the version and the position of its bytes.
#[derive(Default)]
struct RowGroup {
    rows: Vec<(KeyBuf, u64, Range<usize>)>,
    bytes: Vec<u8>,
}

/// Rows of a group, at most.
const GROUP_ROWS: usize = 64;

/// Bytes of rows after which a group ends.
const GROUP_BYTES: usize = 64 << 10;
