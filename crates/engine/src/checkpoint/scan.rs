//! Scan of the trees for a checkpoint, a slice at a time, on the workers that own them.
//!
//! Owns: the parts of a checkpoint on their way between the workers, and the rows as they were before changes that the
//! checkpoint leaves out. Never: writes a file.

use std::collections::{BTreeMap, btree_map};
use std::iter::Peekable;
use std::ops::Bound;
use std::rc::Rc;

use atrapos_durability::checkpoint::{CheckpointError, PartEncoder};
use atrapos_partition::partition::{Closing, Partition, PartitionId};
use atrapos_partition::planted::{Bug, planted};
use atrapos_partition::schema::TableId;
use atrapos_runtime::WorkerId;
use atrapos_storage::KeyBuf;
use atrapos_transaction::branch::Branch;
use atrapos_transaction::shard::{EngineWorker, Shard};
use atrapos_transaction::snapshot::{Before, Snapshot};

/// Rows after which a slice ends: it takes a worker some tens of microseconds at most.
const SLICE_ROWS: usize = 256;

/// Bytes after which a slice ends.
const SLICE_BYTES: u64 = 32 << 10;

/// A key range of a tree that one part of a checkpoint covers.
pub(super) struct Section {
    table: TableId,
    lower: KeyBuf,
    upper: Option<KeyBuf>,
}

/// A part of a checkpoint, passed between the workers, which fill it, and the thread that writes it. It begins with the key
/// ranges of one worker; if one of them has moved to another worker, the part is sent there too.
pub(super) struct PartScan {
    pub(super) encoder: PartEncoder,
    sections: Vec<Section>,
    at: usize,
    /// The key to continue with in the present section; `None` at its beginning.
    next: Option<KeyBuf>,
    /// The owner of the next key.
    pub(super) owner: WorkerId,
    pub(super) failed: Option<CheckpointError>,
    /// Rows kept for the snapshot by the worker that has filled the last slice.
    pub(super) kept: u64,
}

impl PartScan {
    /// Returns the scan of some sections, which begin on worker `owner`.
    pub(super) fn new(encoder: PartEncoder, sections: Vec<Section>, owner: WorkerId) -> PartScan {
        PartScan { encoder, sections, at: 0, next: None, owner, failed: None, kept: 0 }
    }

    pub(super) fn is_done(&self) -> bool {
        self.at == self.sections.len() || self.failed.is_some()
    }

    /// Writes one slice on this worker, if it owns the next key.
    pub(super) fn slice(&mut self, worker: &EngineWorker) {
        let shard = worker.shard();
        let Some(section) = self.sections.get(self.at) else { return };
        let tables = shard.tables.borrow();
        let from = self.next.as_ref().unwrap_or(&section.lower).clone();
        let (place, owner) = tables.locate(section.table, &from);
        self.owner = owner;
        if owner != worker.id() {
            return;
        }
        if self.next.is_none() {
            self.encoder.begin_section(section.table.0, &section.lower, section.upper.as_deref());
        }
        // The partition may end before the section does, or after it: it may have been split, or joined to others.
        let (_, end) = tables.shards[section.table.at()].bounds(place);
        let (goes_on, until) = match (end, section.upper.as_deref()) {
            (Some(end), upper) if upper.is_none_or(|upper| end < upper) => (true, Some(KeyBuf::from(end))),
            (_, upper) => (false, upper.map(KeyBuf::from)),
        };
        match self.walk(shard, place, tables.partition(place), &from, until.as_ref()) {
            Ok(Some(next)) => self.next = Some(next),
            Ok(None) if goes_on => self.next = until,
            Ok(None) => {
                self.next = None;
                self.at += 1;
            }
            Err(error) => self.failed = Some(error),
        }
    }

    /// Writes the rows of a partition from key `from` to `until`. Returns the key to continue with, or `None` at the end.
    fn walk(
        &mut self,
        shard: &Shard,
        place: PartitionId,
        partition: &Partition,
        from: &KeyBuf,
        until: Option<&KeyBuf>,
    ) -> Result<Option<KeyBuf>, CheckpointError> {
        let unfinished = if planted(Bug::CheckpointOfUnfinished) {
            BTreeMap::new()
        } else {
            unfinished(shard, place, from, until)
        };
        shard.snapshots.with(|mut snapshot| {
            let mut befores = Befores {
                place,
                until,
                unfinished: unfinished.into_iter().peekable(),
                snapshot: snapshot.as_deref_mut(),
            };
            let next = self.walk_beside(partition, from, &mut befores)?;
            if let Some(snapshot) = snapshot {
                snapshot.add_written(place, from, next.as_ref().or(until));
                self.kept = snapshot.kept();
            }
            Ok(next)
        })
    }

    /// Writes rows from key `from` on, those that have changed as they were before. Returns the key to continue with, or
    /// `None` at the end.
    fn walk_beside(
        &mut self,
        partition: &Partition,
        from: &KeyBuf,
        befores: &mut Befores<'_>,
    ) -> Result<Option<KeyBuf>, CheckpointError> {
        let bytes_max = self.encoder.bytes() + SLICE_BYTES;
        let mut written = 0;
        let mut key = KeyBuf::new();
        let end = befores.until.map_or(Bound::Unbounded, |until| Bound::Excluded(&**until));
        let mut rows = partition.tree().range(Bound::Included(&**from), end);
        let mut changed = befores.next(from);
        loop {
            let row = rows.next();
            if let Some(row) = &row {
                row.key_into(&mut key);
            }
            // Deleted rows with lesser keys come before this one.
            while let Some(gone) = changed.take_if(|changed| row.is_none() || *changed < key) {
                if written == SLICE_ROWS || self.encoder.bytes() > bytes_max {
                    return Ok(Some(gone));
                }
                if let Some((version, before)) = befores.take(&gone) {
                    self.encoder.push(&gone, version, &before)?;
                }
                written += 1;
                changed = befores.next(from);
            }
            let Some(row) = row else { return Ok(None) };
            if written == SLICE_ROWS || self.encoder.bytes() > bytes_max {
                return Ok(Some(key));
            }
            if changed.as_ref() == Some(&key) {
                // A row that did not exist before is not written.
                if let Some((version, before)) = befores.take(&key) {
                    self.encoder.push(&key, version, &before)?;
                }
                changed = befores.next(from);
            } else {
                self.encoder.push(&key, row.version(), row.bytes())?;
            }
            written += 1;
        }
    }
}

/// Rows of a range as they were before changes that are not part of the checkpoint, in order of the keys: the versions kept
/// for a snapshot, or else those that unfinished transactions would restore, which are newer.
struct Befores<'a> {
    place: PartitionId,
    until: Option<&'a KeyBuf>,
    unfinished: Peekable<btree_map::IntoIter<KeyBuf, Before>>,
    snapshot: Option<&'a mut Snapshot>,
}

impl Befores<'_> {
    /// Returns the next key, from `from` on.
    fn next(&mut self, from: &KeyBuf) -> Option<KeyBuf> {
        let kept = self.snapshot.as_deref().and_then(|snapshot| snapshot.first(self.place, from, self.until));
        let unfinished = self.unfinished.peek().map(|(key, _)| key);
        kept.into_iter().chain(unfinished).min().cloned()
    }

    /// Takes the earlier row of the next key.
    fn take(&mut self, key: &KeyBuf) -> Before {
        let unfinished = self.unfinished.next_if(|(changed, _)| changed == key).map(|(_, before)| before);
        let kept = self.snapshot.as_deref_mut().and_then(|snapshot| snapshot.take(self.place, key));
        kept.or(unfinished).flatten()
    }
}

/// Returns the key ranges of all tables by their owners, in the scheme of one worker, except those that `leaves_out` says,
/// which is told whether a table is closed.
pub(super) fn sections_by_owner(
    worker: &Rc<EngineWorker>,
    leaves_out: impl Fn(TableId, bool) -> bool,
) -> Vec<Vec<Section>> {
    let tables = worker.shard().tables.borrow();
    let mut sections: Vec<Vec<Section>> = (0..worker.workers()).map(|_| Vec::new()).collect();
    for (table, _) in tables.catalog.live() {
        let shard = &tables.shards[table.at()];
        if leaves_out(table, shard.is_closed_to(Closing::Refused)) {
            continue;
        }
        for index in 0..shard.scheme.partitions() {
            // The rows of another instance are in its own checkpoints.
            let Some(sections) = sections.get_mut(shard.scheme.owner(index).index()) else { continue };
            sections.push(Section {
                table,
                lower: shard.scheme.lower(index).map_or_else(KeyBuf::new, KeyBuf::from),
                upper: shard.scheme.upper(index).map(KeyBuf::from),
            });
        }
    }
    sections
}

/// Returns the rows of a partition that unfinished transactions have changed, from key `from` to `until`, as they were
/// before.
fn unfinished(
    shard: &Shard,
    place: PartitionId,
    from: &KeyBuf,
    until: Option<&KeyBuf>,
) -> BTreeMap<KeyBuf, Before> {
    let mut changed = BTreeMap::new();
    let is_in = |other: PartitionId, key: &KeyBuf| {
        other == place && key >= from && until.is_none_or(|until| key < until)
    };
    let mut add = |branch: &Branch| {
        let before = branch.undo.before(&shard.tables.borrow(), is_in);
        changed.extend(before.into_iter().map(|((_, key), before)| (key.clone(), before)));
    };
    shard.active.borrow().values().for_each(|core| add(&core.home.borrow()));
    shard.participants.borrow().values().for_each(|branch| add(&branch.borrow()));
    changed
}
