//! Snapshots: the state of the database at one moment between transactions, kept while a checkpoint is written of it.
//!
//! A database with a WAL needs none: its checkpoints are fuzzy and the WAL repairs them. Without one, a checkpoint has
//! to be transactionally consistent by itself, including rows and indexes.
//!
//! # Operation
//!
//! 1. Every worker begins to hold the snapshot of an epoch that has not begun.
//! 2. The epoch is advanced to it. A transaction is in the snapshot unless its home reads this epoch or a later one
//!    when it commits. The home sends this epoch to the participants, so a transaction is in the snapshot on all
//!    workers or on none; and a transaction that depends on another reads the epoch after it, so the snapshot contains
//!    all transactions on which those in it depend.
//! 3. All messages under way are delivered: transactions that are unfinished from now on are not in the snapshot.
//! 4. While the checkpoint walks the trees, a transaction that is not in the snapshot and commits leaves, on each
//!    worker, the before-images of the keys it has changed ([`Snapshot::keep`]), unless they were kept or written
//!    before. A key is written with its kept image; otherwise with the before-image of an unfinished transaction;
//!    otherwise with its current row.
//!
//! Each worker keeps the images of keys in its own partitions. Those of a key range move with it to another worker.
//!
//! # Costs
//!
//! One comparison for a transaction that has changed something. While a snapshot is held, a copy of each row that is changed
//! before it is written, in memory.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use atrapos_durability::wal::Epoch;
use atrapos_partition::abort::Abort;
use atrapos_partition::partition::{PartitionId, Tables};
use atrapos_partition::schema::TableId;
pub use atrapos_partition::undo::Before;
use atrapos_partition::undo::UndoLog;
use atrapos_runtime::Handle;
use atrapos_storage::KeyBuf;

use crate::jobs::on_all_workers;
use crate::shard::Shard;
use crate::wal::Wal;

/// Keys of one table with their before-images.
pub type Kept = BTreeMap<KeyBuf, Before>;

/// The snapshot that one worker holds, if it holds one.
#[derive(Debug, Default)]
pub struct Snapshots {
    is_held: Cell<bool>,
    held: RefCell<Option<Snapshot>>,
}

/// See the module's introduction.
#[derive(Debug)]
pub struct Snapshot {
    /// The first epoch that is not in the snapshot.
    until: Epoch,
    wal: Arc<Wal>,
    /// The parts of the snapshot, by table.
    tables: Vec<TableSnapshot>,
    /// The number of images kept so far, including those written since.
    kept: u64,
}

#[derive(Debug, Default)]
struct TableSnapshot {
    /// Images of keys that have changed since.
    kept: Kept,
    /// Key ranges that have been written: first keys, and first keys beyond. They do not overlap.
    written: BTreeMap<KeyBuf, Option<KeyBuf>>,
}

impl TableSnapshot {
    fn is_written(&self, key: &KeyBuf) -> bool {
        let range = self.written.range::<KeyBuf, _>(..=key).next_back();
        range.is_some_and(|(_, end)| end.as_ref().is_none_or(|end| key < end))
    }

    fn add_written(&mut self, from: &KeyBuf, until: Option<&KeyBuf>) {
        // A part of a checkpoint is written in order, so mostly a range ends where this one begins.
        let before = self.written.range_mut::<KeyBuf, _>(..=from).next_back();
        match before {
            Some((_, end)) if end.as_ref() == Some(from) => *end = until.cloned(),
            _ => {
                self.written.insert(from.clone(), until.cloned());
            }
        }
    }
}

impl Snapshots {
    /// Returns true if this worker holds a snapshot.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.is_held.get()
    }

    fn begin(&self, snapshot: Snapshot) {
        self.held.replace(Some(snapshot));
        self.is_held.set(true);
    }

    fn end(&self) {
        self.held.take();
        self.is_held.set(false);
    }

    /// Returns the epoch in which a transaction commits now, for [`keep`](Snapshots::keep) on every worker on which it
    /// has made changes; zero, which is in every snapshot, if none is held.
    #[cold]
    pub(crate) fn epoch_of_commit(&self) -> Epoch {
        self.held.borrow().as_ref().map_or(Epoch(0), |snapshot| snapshot.wal.epoch())
    }

    /// Keeps the before-images `undo` of a transaction of `epoch` that has committed, unless it is in the snapshot. `tables`
    /// have its changes.
    #[cold]
    #[inline(never)]
    pub(crate) fn keep(&self, undo: &UndoLog, epoch: Epoch, tables: &Tables) {
        if let Some(snapshot) = &mut *self.held.borrow_mut()
            && epoch >= snapshot.until
        {
            snapshot.keep(undo, tables);
        }
    }

    /// Removes and returns the images kept of a key range that moves to another worker.
    pub fn carry_off(
        &self,
        tables: &[TableId],
        lower: &KeyBuf,
        upper: Option<&KeyBuf>,
    ) -> Vec<(TableId, Kept)> {
        let mut held = self.held.borrow_mut();
        let Some(snapshot) = &mut *held else { return Vec::new() };
        let take = |table: &TableId| {
            let kept = &mut snapshot.tables[table.at()].kept;
            let mut carried = kept.split_off(lower);
            if let Some(upper) = upper {
                kept.append(&mut carried.split_off(upper));
            }
            (*table, carried)
        };
        tables.iter().map(take).collect()
    }

    /// Adds the images kept of a key range that has moved here.
    pub fn take_in(&self, carried: Vec<(TableId, Kept)>) {
        if let Some(snapshot) = &mut *self.held.borrow_mut() {
            for (table, mut kept) in carried {
                snapshot.tables[table.at()].kept.append(&mut kept);
            }
        }
    }

    /// Runs `walk` with the snapshot held here, if any.
    pub fn with<R>(&self, walk: impl FnOnce(Option<&mut Snapshot>) -> R) -> R {
        walk(self.held.borrow_mut().as_mut())
    }
}

impl Snapshot {
    fn keep(&mut self, undo: &UndoLog, tables: &Tables) {
        let is_needed = |place: PartitionId, key: &KeyBuf| {
            let table = &self.tables[place.table.at()];
            !table.is_written(key) && !table.kept.contains_key(key)
        };
        for ((place, key), before) in undo.before(tables, is_needed) {
            self.kept += 1;
            self.tables[place.table.at()].kept.insert(key.clone(), before);
        }
    }

    /// The number of images kept so far, which grows while transactions change rows that have not been written.
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Returns the first key of a range that has changed.
    pub fn first(&self, place: PartitionId, from: &KeyBuf, until: Option<&KeyBuf>) -> Option<&KeyBuf> {
        let until = until.map_or(Bound::Unbounded, Bound::Excluded);
        let kept = &self.tables[place.table.at()].kept;
        // An inverted range would panic; a walk never requests one.
        kept.range::<KeyBuf, _>((Bound::Included(from), until)).next().map(|(key, _)| key)
    }

    /// Removes and returns the image of a key that is about to be written, if it has changed.
    pub fn take(&mut self, place: PartitionId, key: &KeyBuf) -> Option<Before> {
        self.tables[place.table.at()].kept.remove(key)
    }

    /// Records that all keys of a range have been written.
    pub fn add_written(&mut self, place: PartitionId, from: &KeyBuf, until: Option<&KeyBuf>) {
        self.tables[place.table.at()].add_written(from, until);
    }
}

/// A snapshot that all workers hold, until this is dropped.
pub struct HeldSnapshot<'a>(&'a Handle<Shard>);

impl<'a> HeldSnapshot<'a> {
    /// Makes all workers hold a snapshot of the database before the next epoch. Only the caller may advance the epoch.
    pub fn begin(handle: &'a Handle<Shard>, wal: &Arc<Wal>) -> Result<HeldSnapshot<'a>, Abort> {
        // Created first, so that workers that hold the snapshot already release it even if others could not be reached.
        let held = HeldSnapshot(handle);
        let (until, wal) = (Epoch(wal.epoch().0 + 1), Arc::clone(wal));
        on_all_workers(handle, move |worker| {
            let shard = worker.shard();
            let tables = shard.tables.borrow().shards.iter().map(|_| TableSnapshot::default()).collect();
            shard.snapshots.begin(Snapshot { until, wal, tables, kept: 0 });
        })?;
        Ok(held)
    }
}

impl Drop for HeldSnapshot<'_> {
    fn drop(&mut self) {
        // Workers that have stopped hold no snapshot.
        let _ = on_all_workers(self.0, |worker| worker.shard().snapshots.end());
    }
}

#[cfg(test)]
mod tests {
    use atrapos_storage::Key;

    use super::*;

    #[test]
    fn what_is_written_is_known_by_its_ranges() {
        let mut table = TableSnapshot::default();
        let key = |key: u64| key.encode();
        for (from, until) in [(10, 20), (40, 50), (20, 30), (0, 5)] {
            table.add_written(&key(from), Some(&key(until)));
        }
        assert_eq!(table.written.len(), 3, "ranges that follow each other are one");
        let written: Vec<u64> = (0..60).filter(|at| table.is_written(&key(*at))).collect();
        let expected: Vec<u64> = (0..5).chain(10..30).chain(40..50).collect();
        assert_eq!(written, expected);
        table.add_written(&key(50), None);
        assert!(table.is_written(&key(u64::MAX)) && !table.is_written(&key(35)));
    }
}
