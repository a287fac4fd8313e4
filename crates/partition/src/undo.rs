//! The undo log: before-images of the changes of a transaction on one worker, by which all of them, or those since a
//! savepoint, are undone.
//!
//! Every change has a [`Mark`], which tells between which savepoints it was made. A rollback to a savepoint undoes the
//! changes made between two marks. Meanwhile a partition may be moving between workers, with the before-images of
//! changes in it; so each log remembers the marks that were rolled back, and undoes such changes when they arrive
//! later.
//!
//! Invariant: no change is made with a mark that was rolled back.

use std::collections::BTreeMap;
use std::ops::Range;

use atrapos_storage::{KeyBuf, Overwritten, OverwrittenBytes};

use crate::partition::{PartitionId, Tables};
use crate::planted::{Bug, planted};
use crate::reused::Reused;
use crate::schema::TableId;

/// A moment of a transaction: the number of savepoints it had set and rolled back to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u32);

impl Mark {
    /// The next mark; `None` after four billion.
    pub fn next(self) -> Option<Mark> {
        self.0.checked_add(1).map(Mark)
    }
}

/// The image of a row before a change, version and bytes; `None` if there was no row.
pub type Before = Option<(u64, Vec<u8>)>;

/// The before-image of one key, or of those bytes of its row that an edit has overwritten.
#[derive(Debug)]
struct Undo {
    partition: PartitionId,
    key: KeyBuf,
    /// The version of the row and the position of its bytes in [`UndoLog::rows`]; `None` if there was no row.
    row: Option<(u64, Range<usize>)>,
    /// True if these bytes are those that an edit has [overwritten](atrapos_storage::Overwritten), not the whole row.
    is_edit: bool,
    /// True if the tree has reserved the memory that putting the row back may need.
    set_aside: bool,
    /// The mark at which the change was made.
    mark: Mark,
}

impl Undo {
    /// Creates one that is written before it is read.
    fn nothing() -> Undo {
        let partition = PartitionId { table: TableId(0), partition: 0 };
        let (key, mark) = (KeyBuf::new(), Mark::default());
        Undo { partition, key, row: None, is_edit: false, set_aside: false, mark }
    }

    /// Bytes of the row before the change.
    fn row_bytes(&self) -> usize {
        self.row.as_ref().map_or(0, |(_, row)| row.len())
    }

    /// Restores the before-image of the key. `rows` are those of its log.
    fn put_back(self, rows: &[u8], tables: &mut Tables) {
        if planted(Bug::UndoSkipsSecondTable) && self.partition.table == TableId(1) {
            return;
        }
        let tree = &mut tables.partition_mut(self.partition).tree;
        let Some((version, row)) = self.row else {
            let removed = tree.remove(&self.key);
            assert!(removed, "undo found no row where the transaction had inserted one");
            return;
        };
        let row = &rows[row];
        if self.is_edit {
            let found = tree.get_mut(&self.key);
            assert!(found.is_some(), "undo found no row where the transaction had changed one");
            if let Some(mut found) = found {
                let mut overwritten = OverwrittenBytes::of(row);
                if planted(Bug::EditUndoneInPart) {
                    let last = overwritten.next();
                    last.into_iter().for_each(|(place, old)| found.bytes_mut()[place].copy_from_slice(old));
                } else {
                    overwritten.restore(found.bytes_mut());
                }
                found.set_version(version);
            }
            return;
        }
        let put_back = if self.set_aside {
            tree.put_back(&self.key, row, version)
        } else {
            // The tree has a row of the same length, or a longer one, under the key.
            match tree.update(&self.key, row, version) {
                Ok(false) => tree.insert(&self.key, row, version),
                updated => updated.map(drop),
            }
        };
        assert!(put_back.is_ok(), "undo could not put a row back: {put_back:?}");
    }
}

/// The before-images of the changes that a transaction has made on one worker.
#[derive(Debug, Default)]
pub struct UndoLog {
    changes: Reused<Undo>,
    rows: Vec<u8>,
    /// The number of changes for which trees have reserved memory.
    set_aside: usize,
    /// The mark of the changes that are made now.
    mark: Mark,
    /// True if changes with earlier marks follow changes with later ones: they came here with a partition.
    is_out_of_order: bool,
    /// The ranges of marks that were rolled back, ascending: changes in these ranges are undone, also when they come
    /// from another worker later.
    rolled_back: Vec<Range<Mark>>,
}

impl UndoLog {
    /// Adds a change of `key`, which had no row.
    #[inline]
    pub(crate) fn remember_absent(&mut self, partition: PartitionId, key: &KeyBuf) {
        self.push(partition, key, None, (false, false));
    }

    /// Adds a change of `key`, with the row that it had.
    #[inline]
    pub(crate) fn remember_row(&mut self, partition: PartitionId, key: &KeyBuf, version: u64, row: &[u8]) {
        self.push(partition, key, Some((version, row)), (false, false));
    }

    /// Adds an edit of the row of `key`, which has `version` and `row_bytes`, by which `edit` appends what it overwrites, before it does so.
    #[inline]
    pub(crate) fn remember_edit<R>(
        &mut self,
        partition: PartitionId,
        key: &KeyBuf,
        version: u64,
        row_bytes: usize,
        edit: impl FnOnce(Overwritten<'_>) -> R,
    ) -> R {
        let start = self.rows.len();
        let edited = edit(Overwritten::new(&mut self.rows, row_bytes));
        self.note(partition, key, Some((version, start..self.rows.len())), (true, false));
        edited
    }

    /// Records that the tree has reserved the memory that putting back the last before-image may need.
    #[inline]
    pub(crate) fn note_set_aside(&mut self) {
        if let Some(last) = self.changes.last_mut() {
            last.set_aside = true;
            self.set_aside += 1;
        }
    }

    /// Returns the sizes of the before-images of a partition, for keys from `cut` on, for which its tree has reserved
    /// memory.
    pub fn set_aside_beyond(&self, partition: PartitionId, cut: &KeyBuf) -> impl Iterator<Item = usize> {
        let is_beyond = move |undo: &&Undo| undo.set_aside && undo.partition == partition && undo.key >= *cut;
        self.changes.iter().filter(is_beyond).map(Undo::row_bytes)
    }

    /// Releases the memory reserved for undoing the changes, which stay.
    #[cold]
    pub fn settle(&mut self, tables: &mut Tables) {
        for undo in self.changes.iter().filter(|undo| undo.set_aside) {
            tables.partition_mut(undo.partition).tree.settle(undo.row_bytes());
        }
        self.set_aside = 0;
    }

    /// What the last change, an edit, has overwritten.
    #[inline]
    pub(crate) fn last_overwritten(&self) -> &[u8] {
        debug_assert!(self.changes.last().is_some_and(|undo| undo.is_edit), "the last change is an edit");
        self.last_row()
    }

    /// The row of the last before-image, which is not of an edit.
    #[inline]
    pub(crate) fn last_row(&self) -> &[u8] {
        match self.changes.last() {
            Some(Undo { row: Some((_, row)), .. }) => &self.rows[row.clone()],
            _ => &[],
        }
    }

    /// Returns the changed keys in order, once per change.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = (PartitionId, &KeyBuf)> {
        self.changes.iter().map(|undo| (undo.partition, &undo.key))
    }

    /// Returns the keys that `is_wanted` with the images that they had before the first change. `tables` have the rows as the
    /// last change has left them.
    pub fn before(
        &self,
        tables: &Tables,
        is_wanted: impl Fn(PartitionId, &KeyBuf) -> bool,
    ) -> BTreeMap<(PartitionId, &KeyBuf), Before> {
        let mut before: BTreeMap<(PartitionId, &KeyBuf), Before> = BTreeMap::new();
        // From the last change back, so that the image that is left is that of the first one.
        for undo in self.changes.iter().rev().filter(|undo| is_wanted(undo.partition, &undo.key)) {
            let place = (undo.partition, &undo.key);
            let Some((version, row)) = &undo.row else {
                before.insert(place, None);
                continue;
            };
            let row = &self.rows[row.clone()];
            if !undo.is_edit {
                before.insert(place, Some((*version, row.to_vec())));
                continue;
            }
            let current = || {
                let row = tables.partition(undo.partition).tree.get(&undo.key);
                row.map(|row| (row.version, row.bytes.to_vec()))
            };
            match before.entry(place).or_insert_with(current) {
                Some(image) => {
                    OverwrittenBytes::of(row).restore(&mut image.1);
                    image.0 = *version;
                }
                None => debug_assert!(false, "a row that was edited was there"),
            }
        }
        before
    }

    /// Undoes every change, the last one first.
    pub fn apply(&mut self, tables: &mut Tables) {
        while let Some(undo) = self.changes.pop() {
            undo.put_back(&self.rows, tables);
        }
        self.rows.clear();
        self.set_aside = 0;
    }

    /// Advances the mark of later changes to at least `mark`.
    pub fn reach(&mut self, mark: Mark) {
        self.mark = self.mark.max(mark);
    }

    /// Undoes the changes in a range of marks, including those that come here with a partition later; changes made from
    /// now on get later marks. Returns false if that was done before.
    pub fn roll_back(&mut self, time: &Range<Mark>, tables: &mut Tables) -> bool {
        if self.mark >= time.end {
            return false;
        }
        self.mark = time.end;
        // Ranges that begin after this savepoint are contained in this one.
        let later = self.rolled_back.partition_point(|earlier| earlier.start < time.start);
        self.rolled_back.truncate(later);
        self.rolled_back.push(time.clone());
        if self.is_out_of_order {
            self.undo_rolled_back(tables);
            return true;
        }
        let first = self.changes.partition_point(|undo| undo.mark < time.start);
        let mut changes = self.changes.take();
        let undone = changes.split_off(first);
        self.changes.extend(changes);
        self.put_back(undone, tables);
        true
    }

    /// Undoes the changes whose marks were rolled back.
    pub fn undo_rolled_back(&mut self, tables: &mut Tables) {
        if self.rolled_back.is_empty() {
            return;
        }
        let (mut changes, rolled_back) = (self.changes.take(), &self.rolled_back);
        let is_rolled_back = |undo: &mut Undo| {
            let begun = rolled_back.partition_point(|time| time.start <= undo.mark);
            begun.checked_sub(1).is_some_and(|last| undo.mark < rolled_back[last].end)
        };
        let undone: Vec<Undo> = changes.extract_if(.., is_rolled_back).collect();
        self.changes.extend(changes);
        self.put_back(undone, tables);
    }

    /// Undoes some changes, which were removed from the log.
    fn put_back(&mut self, undone: Vec<Undo>, tables: &mut Tables) {
        for undo in undone.into_iter().rev() {
            self.set_aside -= usize::from(undo.set_aside);
            let own = undo.row.as_ref().map(|(_, row)| row.clone());
            undo.put_back(&self.rows, tables);
            // The rows of the last changes are at the end.
            if let Some(own) = own.filter(|own| own.end == self.rows.len()) {
                self.rows.truncate(own.start);
            }
        }
    }

    /// Returns true if there are no changes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Returns true if trees have reserved memory for undoing a change.
    #[inline]
    pub fn has_set_aside(&self) -> bool {
        self.set_aside > 0
    }

    /// Assigns the changes of some partitions, to keys from `cut` on (all keys without a cut), to partition `to`.
    pub fn renumber(&mut self, is_in: impl Fn(PartitionId) -> bool, cut: Option<&KeyBuf>, to: u32) {
        for undo in self.changes.iter_mut().filter(|undo| is_in(undo.partition)) {
            if cut.is_none_or(|cut| undo.key >= *cut) {
                undo.partition = PartitionId { partition: to, ..undo.partition };
            }
        }
    }

    /// Removes and returns the changes of some partitions, in order.
    pub fn carry_off(&mut self, is_in: impl Fn(PartitionId) -> bool) -> UndoLog {
        let mut carried = UndoLog::default();
        let rolled_back = std::mem::take(&mut self.rolled_back);
        let mut kept = UndoLog { mark: self.mark, rolled_back, ..UndoLog::default() };
        for undo in self.changes.take() {
            let log = if is_in(undo.partition) { &mut carried } else { &mut kept };
            log.copy(undo, &self.rows);
        }
        *self = kept;
        carried
    }

    /// Adds the changes of a partition that has moved here.
    pub fn take_in(&mut self, mut carried: UndoLog) {
        for undo in carried.changes.take() {
            self.copy(undo, &carried.rows);
        }
    }

    /// Adds a change of another log, whose rows are `rows`.
    fn copy(&mut self, undo: Undo, rows: &[u8]) {
        self.is_out_of_order |= self.changes.last().is_some_and(|last| undo.mark < last.mark);
        let mark = std::mem::replace(&mut self.mark, undo.mark);
        let row = undo.row.map(|(version, row)| (version, &rows[row]));
        self.push(undo.partition, &undo.key, row, (undo.is_edit, undo.set_aside));
        self.mark = mark;
    }

    #[inline(always)]
    fn push(
        &mut self,
        partition: PartitionId,
        key: &KeyBuf,
        row: Option<(u64, &[u8])>,
        (is_edit, set_aside): (bool, bool),
    ) {
        let row = row.map(|(version, row)| {
            let start = self.rows.len();
            self.rows.extend_from_slice(row);
            (version, start..self.rows.len())
        });
        self.set_aside += usize::from(set_aside);
        self.note(partition, key, row, (is_edit, set_aside));
    }

    #[inline(always)]
    fn note(
        &mut self,
        partition: PartitionId,
        key: &KeyBuf,
        row: Option<(u64, Range<usize>)>,
        (is_edit, set_aside): (bool, bool),
    ) {
        let undo = self.changes.slot(Undo::nothing);
        undo.partition = partition;
        undo.key.clone_from(key);
        undo.row = row;
        (undo.is_edit, undo.set_aside, undo.mark) = (is_edit, set_aside, self.mark);
    }

    /// Removes all changes; changes that stay in the trees must be settled.
    #[inline]
    pub fn clear(&mut self) {
        debug_assert!(self.set_aside == 0, "what was set aside is used or settled before it is forgotten");
        self.changes.clear();
        self.rows.clear();
        self.mark = Mark::default();
        self.is_out_of_order = false;
        self.rolled_back.clear();
    }
}
