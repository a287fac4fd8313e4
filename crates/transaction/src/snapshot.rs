//! Snapshots: the state the database had at one moment between transactions, kept while a checkpoint is written of it.
//!
//! A database with a WAL needs none: its checkpoints are fuzzy and the WAL repairs them. Without one, a checkpoint has to be
//! a state in itself, rows and indexes and all.
//!
//! # How it works
//!
//! 1. Every worker begins to hold the snapshot of an epoch that has not begun.
//! 2. The epoch is advanced to it. A transaction is in the snapshot unless its home reads this epoch or a later one when it
//!    commits. The home says so to the participants, so a transaction is in the snapshot everywhere or nowhere; and who
//!    depends on a transaction reads the epoch after it, so what is in the snapshot depends on nothing that is not.
//! 3. All messages on the way are let arrive: what looks unfinished from now on is not in the snapshot.
//! 4. While the checkpoint walks the trees, a transaction that is not in the snapshot and commits leaves behind, on each worker,
//!    what the keys it has changed were before ([`Snapshot::keep`]), unless they were kept or written before. A key is
//!    written as it was kept; otherwise as an unfinished transaction would put it back; otherwise as it is.
//!
//! Who holds what: each worker the keys of its own partitions. What was kept of a key range goes with it to another worker.
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
use atrapos_partition::partition::PartitionId;
use atrapos_partition::schema::TableId;
use atrapos_partition::undo::UndoLog;
use atrapos_runtime::Handle;
use atrapos_storage::KeyBuf;

use crate::jobs::on_all_workers;
use crate::shard::Shard;
use crate::wal::Wal;

/// A row as it was, version and bytes; `None` where there was none.
pub type Before = Option<(u64, Vec<u8>)>;

/// Keys of one table with what they were.
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
    /// The first epoch that is not in it.
    until: Epoch,
    wal: Arc<Wal>,
    /// By table.
    tables: Vec<TableSnapshot>,
    /// Rows kept so far, those written since included.
    kept: u64,
}

#[derive(Debug, Default)]
struct TableSnapshot {
    /// What keys were that have changed since.
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
        // A part of a checkpoint is written in order: mostly there is a range that ends where this one begins.
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
    /// Whether this worker holds a snapshot.
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

    /// The epoch in which a transaction commits now, for [`keep`](Snapshots::keep) on every worker where it has changed
    /// something; zero, which is in every snapshot, when none is held.
    #[cold]
    pub(crate) fn epoch_of_commit(&self) -> Epoch {
        self.held.borrow().as_ref().map_or(Epoch(0), |snapshot| snapshot.wal.epoch())
    }

    /// A transaction of `epoch` has committed; `undo` is what it has changed here.
    #[cold]
    #[inline(never)]
    pub(crate) fn keep(&self, undo: &UndoLog, epoch: Epoch) {
        if let Some(snapshot) = &mut *self.held.borrow_mut()
            && epoch >= snapshot.until
        {
            snapshot.keep(undo);
        }
    }

    /// Takes out what was kept of a key range whose tables go to another worker.
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

    /// Takes in what was kept of a key range that has come here.
    pub fn take_in(&self, carried: Vec<(TableId, Kept)>) {
        if let Some(snapshot) = &mut *self.held.borrow_mut() {
            for (table, mut kept) in carried {
                snapshot.tables[table.at()].kept.append(&mut kept);
            }
        }
    }

    /// Runs `walk` with what was kept here.
    pub fn with<R>(&self, walk: impl FnOnce(Option<&mut Snapshot>) -> R) -> R {
        walk(self.held.borrow_mut().as_mut())
    }
}

impl Snapshot {
    fn keep(&mut self, undo: &UndoLog) {
        for (place, key, before) in undo.changes() {
            let table = &mut self.tables[place.table.at()];
            if table.is_written(key) {
                continue;
            }
            // Of several changes the first one is told first.
            table.kept.entry(key.clone()).or_insert_with(|| {
                self.kept += 1;
                before.map(|(version, row)| (version, row.to_vec()))
            });
        }
    }

    /// Rows kept so far: it grows while transactions change what has not been written.
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// The first key of a range that has changed.
    pub fn first(&self, place: PartitionId, from: &KeyBuf, until: Option<&KeyBuf>) -> Option<&KeyBuf> {
        let until = until.map_or(Bound::Unbounded, Bound::Excluded);
        let kept = &self.tables[place.table.at()].kept;
        // A range that is empty the wrong way round would panic; a walk never asks for one.
        kept.range::<KeyBuf, _>((Bound::Included(from), until)).next().map(|(key, _)| key)
    }

    /// Takes out what a key was, if it has changed: it is about to be written.
    pub fn take(&mut self, place: PartitionId, key: &KeyBuf) -> Option<Before> {
        self.tables[place.table.at()].kept.remove(key)
    }

    /// All keys of a range have been written.
    pub fn add_written(&mut self, place: PartitionId, from: &KeyBuf, until: Option<&KeyBuf>) {
        self.tables[place.table.at()].add_written(from, until);
    }
}

/// A snapshot that all workers hold, until this is dropped.
pub struct HeldSnapshot<'a>(&'a Handle<Shard>);

impl<'a> HeldSnapshot<'a> {
    /// Has all workers hold what is in the database before the next epoch. The caller advances the epoch, and nobody else.
    pub fn begin(handle: &'a Handle<Shard>, wal: &Arc<Wal>) -> Result<HeldSnapshot<'a>, Abort> {
        // Whoever holds it already lets go of it even if not all could be told.
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
        // Workers that are gone hold nothing.
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
