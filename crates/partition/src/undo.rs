//! How to put back what a transaction changed on one worker: all of it, or what it has changed since a savepoint.
//!
//! Every change has a [`Mark`]: when in its transaction it was made. A rollback to a savepoint undoes the changes made between
//! two marks. A partition may be on its way between workers meanwhile, with what would undo the changes in it; so each log
//! remembers what was rolled back, and undoes what comes to it later.
//!
//! Invariant: no change is made with a mark that was rolled back.

use std::ops::Range;

use atrapos_storage::KeyBuf;

use crate::partition::{PartitionId, Tables};
use crate::planted::{Bug, planted};
use crate::schema::TableId;

/// A moment of a transaction: how many savepoints it had set and rolled back to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u32);

impl Mark {
    /// The next one; none after four billion.
    pub fn next(self) -> Option<Mark> {
        self.0.checked_add(1).map(Mark)
    }
}

/// One key before the transaction changed it.
#[derive(Debug)]
struct Undo {
    place: PartitionId,
    key: KeyBuf,
    /// `None`: there was no row. Otherwise its version and where its bytes are in [`UndoLog::rows`].
    row: Option<(u64, Range<usize>)>,
    /// Whether the tree has set aside what putting the row back may take.
    set_aside: bool,
    /// When in its transaction the change was made.
    mark: Mark,
}

impl Undo {
    /// Bytes of the row before the change.
    fn row_bytes(&self) -> usize {
        self.row.as_ref().map_or(0, |(_, row)| row.len())
    }

    /// Puts the key back to what it was. `rows` are those of its log.
    fn put_back(self, rows: &[u8], tables: &mut Tables) {
        if planted(Bug::UndoSkipsSecondTable) && self.place.table == TableId(1) {
            return;
        }
        let tree = &mut tables.partition_mut(self.place).tree;
        let Some((version, row)) = self.row else {
            let removed = tree.remove(&self.key);
            assert!(removed, "undo found no row where the transaction had inserted one");
            return;
        };
        let row = &rows[row];
        let put_back = if self.set_aside {
            tree.put_back(&self.key, row, version)
        } else {
            // A row of the same length, or a longer one, is there.
            match tree.update(&self.key, row, version) {
                Ok(false) => tree.insert(&self.key, row, version),
                updated => updated.map(drop),
            }
        };
        assert!(put_back.is_ok(), "undo could not put a row back: {put_back:?}");
    }
}

/// How to put back what the transaction changed on this worker.
#[derive(Debug, Default)]
pub struct UndoLog {
    changes: Vec<Undo>,
    rows: Vec<u8>,
    /// Changes for which trees have set something aside.
    set_aside: usize,
    /// That of the changes that are made now.
    mark: Mark,
    /// Whether changes with earlier marks follow others: they have come here with a partition.
    is_out_of_order: bool,
    /// What was rolled back, ascending: changes that were made in these times are undone, wherever they come from.
    rolled_back: Vec<Range<Mark>>,
}

impl UndoLog {
    /// Remembers that `key` had no row.
    #[inline]
    pub(crate) fn remember_absent(&mut self, place: PartitionId, key: &KeyBuf) {
        self.push(place, key.clone(), None, false);
    }

    /// Remembers the row that `key` had.
    #[inline]
    pub(crate) fn remember_row(&mut self, place: PartitionId, key: &KeyBuf, version: u64, row: &[u8]) {
        self.push(place, key.clone(), Some((version, row)), false);
    }

    /// Notes that the tree has set aside what putting back the row that was remembered last may take.
    #[inline]
    pub(crate) fn note_set_aside(&mut self) {
        if let Some(last) = self.changes.last_mut() {
            last.set_aside = true;
            self.set_aside += 1;
        }
    }

    /// The changes of a partition, to keys from `cut` on, for which its tree has set something aside: bytes of the row before each.
    pub fn set_aside_beyond(&self, place: PartitionId, cut: &KeyBuf) -> impl Iterator<Item = usize> {
        let is_beyond = move |undo: &&Undo| undo.set_aside && undo.place == place && undo.key >= *cut;
        self.changes.iter().filter(is_beyond).map(Undo::row_bytes)
    }

    /// The changes stay: what was set aside for undoing them is not needed any more.
    #[cold]
    pub fn settle(&mut self, tables: &mut Tables) {
        for undo in self.changes.iter().filter(|undo| undo.set_aside) {
            tables.partition_mut(undo.place).tree.settle(undo.row_bytes());
        }
        self.set_aside = 0;
    }

    /// The row that was remembered last.
    pub(crate) fn last_row(&self) -> &[u8] {
        match self.changes.last() {
            Some(Undo { row: Some((_, row)), .. }) => &self.rows[row.clone()],
            _ => &[],
        }
    }

    /// The keys that were changed, in order; those changed several times come several times.
    pub fn keys(&self) -> impl Iterator<Item = (PartitionId, &KeyBuf)> {
        self.changes.iter().map(|undo| (undo.place, &undo.key))
    }

    /// All changes in order: where, the key, and what it was before the change, version and row, or nothing.
    pub fn changes(&self) -> impl Iterator<Item = (PartitionId, &KeyBuf, Option<(u64, &[u8])>)> {
        self.changes.iter().map(|undo| {
            let row = undo.row.as_ref().map(|(version, row)| (*version, &self.rows[row.clone()]));
            (undo.place, &undo.key, row)
        })
    }

    /// The changed keys of a partition with what they were before their first change: version and row, or nothing.
    pub fn before(&self, place: PartitionId) -> impl Iterator<Item = (&KeyBuf, Option<(u64, &[u8])>)> {
        let row = |undo: &Undo| undo.row.as_ref().map(|(version, row)| (*version, &self.rows[row.clone()]));
        // Told backwards: who keeps the last of each key keeps what was there first.
        self.changes
            .iter()
            .rev()
            .filter(move |undo| undo.place == place)
            .map(move |undo| (&undo.key, row(undo)))
    }

    /// Puts every changed key back to what it was, last change first.
    pub fn apply(&mut self, tables: &mut Tables) {
        while let Some(undo) = self.changes.pop() {
            undo.put_back(&self.rows, tables);
        }
        self.rows.clear();
        self.set_aside = 0;
    }

    /// Changes are made at `mark` from now on, or later.
    pub fn reach(&mut self, mark: Mark) {
        self.mark = self.mark.max(mark);
    }

    /// Undoes the changes made in a time of the transaction, those as well that come here with a partition later; what is changed
    /// from now on is later than that. Returns false when that was done before.
    pub fn roll_back(&mut self, time: &Range<Mark>, tables: &mut Tables) -> bool {
        if self.mark >= time.end {
            return false;
        }
        self.mark = time.end;
        // Times after this savepoint are within this one.
        let later = self.rolled_back.partition_point(|earlier| earlier.start < time.start);
        self.rolled_back.truncate(later);
        self.rolled_back.push(time.clone());
        if self.is_out_of_order {
            self.undo_rolled_back(tables);
            return true;
        }
        let first = self.changes.partition_point(|undo| undo.mark < time.start);
        let undone = self.changes.split_off(first);
        self.put_back(undone, tables);
        true
    }

    /// Undoes those of the changes that were rolled back.
    pub fn undo_rolled_back(&mut self, tables: &mut Tables) {
        if self.rolled_back.is_empty() {
            return;
        }
        let (changes, rolled_back) = (&mut self.changes, &self.rolled_back);
        let is_rolled_back = |undo: &mut Undo| {
            let begun = rolled_back.partition_point(|time| time.start <= undo.mark);
            begun.checked_sub(1).is_some_and(|last| undo.mark < rolled_back[last].end)
        };
        let undone: Vec<Undo> = changes.extract_if(.., is_rolled_back).collect();
        self.put_back(undone, tables);
    }

    /// Puts back what some changes, which were taken out, have changed.
    fn put_back(&mut self, undone: Vec<Undo>, tables: &mut Tables) {
        for undo in undone.into_iter().rev() {
            self.set_aside -= usize::from(undo.set_aside);
            let own = undo.row.as_ref().map(|(_, row)| row.clone());
            undo.put_back(&self.rows, tables);
            // The rows of what was changed last are at the end.
            if let Some(own) = own.filter(|own| own.end == self.rows.len()) {
                self.rows.truncate(own.start);
            }
        }
    }

    /// Whether nothing was changed.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Whether trees have set something aside for a change.
    #[inline]
    pub fn has_set_aside(&self) -> bool {
        self.set_aside > 0
    }

    /// Changes of some partitions, to keys from `cut` on (all without a cut), lie in partition `to` now.
    pub fn renumber(&mut self, is_in: impl Fn(PartitionId) -> bool, cut: Option<&KeyBuf>, to: u32) {
        for undo in self.changes.iter_mut().filter(|undo| is_in(undo.place)) {
            if cut.is_none_or(|cut| undo.key >= *cut) {
                undo.place.partition = to;
            }
        }
    }

    /// Takes out the changes of some partitions, in order.
    pub fn carry_off(&mut self, is_in: impl Fn(PartitionId) -> bool) -> UndoLog {
        let mut carried = UndoLog::default();
        let rolled_back = std::mem::take(&mut self.rolled_back);
        let mut kept = UndoLog { mark: self.mark, rolled_back, ..UndoLog::default() };
        for undo in self.changes.drain(..) {
            let log = if is_in(undo.place) { &mut carried } else { &mut kept };
            log.copy(undo, &self.rows);
        }
        *self = kept;
        carried
    }

    /// Adds the changes of a partition that has come here.
    pub fn take_in(&mut self, carried: UndoLog) {
        for undo in carried.changes {
            self.copy(undo, &carried.rows);
        }
    }

    /// Adds a change of another log, whose rows are `rows`.
    fn copy(&mut self, undo: Undo, rows: &[u8]) {
        self.is_out_of_order |= self.changes.last().is_some_and(|last| undo.mark < last.mark);
        let mark = std::mem::replace(&mut self.mark, undo.mark);
        let row = undo.row.map(|(version, row)| (version, &rows[row]));
        self.push(undo.place, undo.key, row, undo.set_aside);
        self.mark = mark;
    }

    #[inline(always)]
    fn push(&mut self, place: PartitionId, key: KeyBuf, row: Option<(u64, &[u8])>, set_aside: bool) {
        let row = row.map(|(version, row)| {
            let start = self.rows.len();
            self.rows.extend_from_slice(row);
            (version, start..self.rows.len())
        });
        self.set_aside += usize::from(set_aside);
        self.changes.push(Undo { place, key, row, set_aside, mark: self.mark });
    }

    /// Forgets the changes; those that stay are settled.
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
