//! Recording mode: the accesses of a procedure, noted while it runs (`ATraPos §V-A`, `thesis §4.3.1`).
//!
//! Owns: the notes of one run ([`RecordedRun`]); `ClassRecording` of `atrapos` folds those of several runs into a flow
//! graph. Never: changes the behaviour of a transaction; costs more, for one that is not recorded, than a check of
//! whether it is traced.
//!
//! A run is recorded on a single worker, where every action is a direct call: the accesses of a procedure do not depend
//! on the placement of data. They are recorded during the run, one action at a time, with the key and the rows found,
//! because procedures are code and not statements.
//!
//! Invariants: accesses are in the order in which they happened; phases ascend; an access that was refused is noted too.

use std::ops::Bound;

use atrapos_partition::action::{OperationKind, ResultShape};
use atrapos_partition::partition::{PartitionId, Tables};
use atrapos_partition::schema::{CatalogTag, TableId};
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::LockTarget;

/// One access of a run.
#[derive(Clone, Debug)]
pub struct RecordedAccess {
    /// The table or index.
    pub table: TableId,
    /// The kind of the operation.
    pub kind: OperationKind,
    /// Number of the phase it ran in.
    pub phase: u32,
    /// The key or range that was requested.
    pub asked: LockTarget,
    /// The part of it that was visited.
    visited: LockTarget,
    /// The rows in the target before or after the access.
    pub rows: Vec<(KeyBuf, Vec<u8>)>,
    /// Bytes of keys, rows and values that go to the data or come back.
    pub bytes: u64,
}

/// The greatest number of rows that is noted of one access; further ones add no information.
const ROWS_MAX: usize = 1024;

/// Returns the rows of `target` in the partition `place`.
fn rows_of(tables: &Tables, place: PartitionId, target: &LockTarget) -> Vec<(KeyBuf, Vec<u8>)> {
    let Some(partition) = tables.owned_at(place) else { return Vec::new() };
    match target {
        LockTarget::Key(key) => {
            partition.tree().get(key).map(|row| (key.clone(), row.bytes.to_vec())).into_iter().collect()
        }
        LockTarget::Range { lower, upper } => {
            let upper = upper.as_ref().map_or(Bound::Unbounded, |upper| Bound::Excluded(&**upper));
            let mut range = partition.tree().range(Bound::Included(&**lower), upper);
            let rows = std::iter::from_fn(|| range.next().map(|entry| (entry.key(), entry.bytes().to_vec())));
            rows.take(ROWS_MAX).collect()
        }
    }
}

fn key_bytes(target: &LockTarget) -> usize {
    match target {
        LockTarget::Key(key) => key.len(),
        LockTarget::Range { lower, upper } => lower.len() + upper.as_ref().map_or(0, |upper| upper.len()),
    }
}

impl RecordedAccess {
    /// Begins the record of an access that is about to be made.
    pub(crate) fn begin(
        tables: &Tables,
        place: PartitionId,
        asked: &LockTarget,
        kind: OperationKind,
    ) -> RecordedAccess {
        let rows = match asked {
            LockTarget::Key(_) => rows_of(tables, place, asked),
            // The visited part of a range is known after the access.
            LockTarget::Range { .. } => Vec::new(),
        };
        let (asked, visited) = (asked.clone(), asked.clone());
        RecordedAccess { table: place.table, kind, phase: 0, asked, visited, rows, bytes: 0 }
    }

    fn end(&mut self, tables: &Tables, place: PartitionId, visited: &LockTarget) {
        let before = self.rows.len();
        self.rows.extend(rows_of(tables, place, visited));
        self.visited.clone_from(visited);
        let found = match visited {
            // A row that exists before and after the access counts once.
            LockTarget::Key(_) => &self.rows[..before],
            LockTarget::Range { .. } => &self.rows[..],
        };
        let found = found.iter().map(|(key, row)| match self.kind.brings {
            ResultShape::Nothing => 0,
            ResultShape::Rows => row.len(),
            ResultShape::KeysAndRows => key.len() + row.len(),
        });
        self.bytes = (key_bytes(&self.asked) + self.kind.values + found.sum::<usize>()) as u64;
    }

    /// Returns true if `next` continues where this access has stopped: in a range that lies in several partitions, or
    /// is read by pages.
    fn goes_on_with(&self, next: &RecordedAccess) -> bool {
        let (LockTarget::Range { lower, upper }, LockTarget::Range { lower: from, upper: to }) =
            (&self.asked, &next.asked)
        else {
            return false;
        };
        let LockTarget::Range { lower: visited_from, upper: visited_to } = &self.visited else {
            return false;
        };
        let forward = upper == to && lower < from && visited_to.as_ref() == Some(from);
        let backward = lower == from && upper != to && to.as_ref() == Some(visited_from);
        self.table == next.table && self.kind.follows == next.kind.follows && (forward || backward)
    }
}

/// Records the accesses of a running transaction.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    accesses: Vec<RecordedAccess>,
    phase: u32,
    /// True if the next access belongs to the current phase, together with others.
    is_in_phase: bool,
    /// True if an access had to wait, and was not recorded.
    missed: bool,
}

impl Recorder {
    /// Begins a phase.
    pub(crate) fn next_phase(&mut self) {
        self.phase += 1;
    }

    /// Assigns the next access to the current phase, with others.
    pub(crate) fn in_phase(&mut self) {
        self.is_in_phase = true;
    }

    /// Notes that an access has to wait, and is not recorded.
    pub(crate) fn note_missed(&mut self) {
        self.is_in_phase = false;
        self.missed = true;
    }

    /// Records an access that was made, with the part of the range that it `visited`.
    pub(crate) fn note(
        &mut self,
        mut access: RecordedAccess,
        visited: Option<&LockTarget>,
        tables: &Tables,
        place: PartitionId,
    ) {
        let is_in_phase = std::mem::take(&mut self.is_in_phase);
        let Some(visited) = visited else {
            self.missed = true;
            return;
        };
        access.end(tables, place, visited);
        if let Some(last) = self.accesses.last_mut()
            && last.goes_on_with(&access)
        {
            last.rows.extend(access.rows);
            last.visited = access.visited;
            last.bytes += access.bytes;
            return;
        }
        if !is_in_phase && !access.kind.follows {
            self.phase += 1;
        }
        access.phase = self.phase;
        self.accesses.push(access);
    }

    /// Returns the recorded run.
    pub(crate) fn finish(self, tag: CatalogTag, aborted: bool) -> RecordedRun {
        RecordedRun { tag, accesses: self.accesses, aborted, missed: self.missed }
    }
}

/// The accesses of one run of a procedure: see `Database::record`.
#[derive(Clone, Debug)]
pub struct RecordedRun {
    #[doc(hidden)]
    pub tag: CatalogTag,
    #[doc(hidden)]
    pub accesses: Vec<RecordedAccess>,
    #[doc(hidden)]
    pub aborted: bool,
    missed: bool,
}

impl RecordedRun {
    /// The number of its accesses, including those of indexes and foreign keys.
    #[must_use]
    pub fn accesses(&self) -> usize {
        self.accesses.len()
    }

    /// Returns true if the transaction aborted.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        self.aborted
    }

    /// Returns true if every access was recorded.
    #[doc(hidden)]
    pub fn is_complete(&self) -> bool {
        !self.missed
    }
}
