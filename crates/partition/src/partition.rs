//! The partitions that one worker owns, by table, and the catalog that describes them.
//!
//! A partition is a key range of one table or index: its tree, its lock table and the source of its row versions. It
//! belongs to one worker; no other worker touches it, unless it is lent for reading (`lend`).
//!
//! A table is *closed* while a statement drops or changes it: its partitions are set apart, so that an access does not
//! find them ([`Tables::open_mut`]), while transactions that have used them can still be undone and release their locks
//! ([`Tables::partition_mut`]). Only accesses that follow from earlier writes may still use them, if the statement
//! allows it ([`Closing`]).

mod fill;
mod lend;

use std::sync::Arc;

use atrapos_runtime::WorkerId;
use atrapos_storage::lock::{LockMode, LockTable, LockTarget};
use atrapos_storage::{AppendRefusal, KeyBuf, OutOfMemory, Tree};

use crate::monitor::PartitionMonitor;
use crate::range::KeyRange;
use crate::routing::FamilyScheme;
use crate::schema::{Catalog, TableId};

pub use fill::ReplayError;

/// The identifier of a partition: its table, and its number in the family's scheme, which stays the same as long as the
/// partition exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId {
    /// The table or index.
    pub table: TableId,
    /// Its number in the scheme of the family.
    pub partition: u32,
}

/// A key range of one table or index: see the module's introduction.
#[derive(Debug)]
pub struct Partition {
    /// The rows. Changed in this crate only, so that every change has a version, a before-image, redo and dependents.
    pub(crate) tree: Tree,
    /// The locks on the rows, and the requests for them.
    pub locks: LockTable,
    /// Version of the newest write. Versions of one partition only grow, so two writes of the same key, on the same row
    /// or across a deletion, are always in order.
    version: u64,
    /// The statistics of the partitions of the family in this key range; kept with the first table of the family.
    pub monitor: Option<Box<PartitionMonitor>>,
    /// Its part in lending.
    lent: lend::Lent,
}

impl Partition {
    /// The rows, for reading.
    #[inline(always)]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Creates a partition whose newest write has this version.
    pub fn new(tree: Tree, version: u64) -> Partition {
        Partition { tree, locks: LockTable::new(), version, monitor: None, lent: lend::Lent::No }
    }

    /// Allocates the memory that [`split`](Partition::split) needs.
    pub fn prepare_split(&mut self) -> Result<(), OutOfMemory> {
        self.tree.prepare_split()
    }

    /// Cuts the partition, which is prepared for it, at `key` and returns the part from there on. Both keep the
    /// version, so that later writes on either side are newer than the existing rows. `beyond` has the size of each
    /// before-image in the new part for which memory is reserved; the reservations move with it. The caller handles the
    /// lock tables.
    pub fn split(&mut self, key: &KeyBuf, beyond: Vec<usize>) -> Partition {
        let (mut tree, _) = self.tree.split_off(key).expect("the tree was prepared for the cut");
        self.tree.cede(&mut tree, beyond);
        let mut half = Partition::new(tree, self.version);
        half.monitor = self.monitor.as_mut().map(|monitor| Box::new(monitor.split(key)));
        half
    }

    /// Allocates the memory that [`join`](Partition::join) needs.
    pub fn prepare_join(&mut self, next: &Partition) -> Result<(), AppendRefusal> {
        self.tree.prepare_append(&next.tree)
    }

    /// Joins the partition that follows in key order, from `cut` on, to this one, which is prepared for it.
    pub fn join(&mut self, cut: &KeyBuf, next: Partition) {
        let Partition { tree, version, monitor, .. } = next;
        self.tree.append(tree).expect("the tree was prepared for the other one");
        self.raise_version(version);
        if let (Some(left), Some(right)) = (&mut self.monitor, monitor) {
            left.join(cut, *right);
        }
    }

    /// Raises the version, so that later writes get versions beyond `version`.
    pub fn raise_version(&mut self, version: u64) {
        self.version = self.version.max(version);
    }

    /// The version of the newest write.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the version of the next write.
    #[inline]
    pub fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }
}

/// One table in the state of one worker.
#[derive(Debug)]
pub struct TableShard {
    /// The scheme of the table's family: its partitions and their owners.
    pub scheme: Arc<FamilyScheme>,
    /// The partitions, by number; `None` if another worker is the owner, or no partition has the number.
    pub(crate) partitions: Vec<Option<Box<Partition>>>,
    /// The partitions while the table is closed.
    closed: Option<Box<Closed>>,
    /// True if another table has its rows now.
    is_replaced: bool,
}

/// The partitions of a table that is closed.
#[derive(Debug)]
struct Closed {
    partitions: Vec<Option<Box<Partition>>>,
    closing: Closing,
}

/// Treatment, by a closed table, of accesses that follow from earlier writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// They are executed: the statement may still fail, or transactions may be reading the table.
    Maintained,
    /// They are refused, like all other accesses.
    Refused,
    /// They find the table empty: it will not open again.
    Dropped,
    /// They are refused, and it will not open again: its rows are those of another table.
    Replaced,
}

impl TableShard {
    /// Creates a table with the partitions that this worker owns.
    pub fn new(scheme: Arc<FamilyScheme>, partitions: Vec<Option<Box<Partition>>>) -> TableShard {
        TableShard { scheme, partitions, closed: None, is_replaced: false }
    }

    /// Closes the table: sets its partitions apart.
    pub fn close(&mut self, closing: Closing) {
        self.is_replaced |= closing == Closing::Replaced;
        match &mut self.closed {
            Some(closed) => closed.closing = closing,
            None => {
                let partitions = std::mem::take(&mut self.partitions);
                self.closed = Some(Box::new(Closed { partitions, closing }));
            }
        }
    }

    /// Returns true if it is closed.
    pub fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Returns true if it is closed in this way.
    pub fn is_closed_to(&self, closing: Closing) -> bool {
        self.closed.as_ref().is_some_and(|closed| closed.closing == closing)
    }

    /// Returns true if it was dropped, or is about to be, and no other table has its rows.
    pub(crate) fn is_dropped_for_good(&self, is_gone: bool) -> bool {
        !self.is_replaced && (is_gone || self.is_closed_to(Closing::Dropped))
    }

    /// Opens the table again.
    pub fn reopen(&mut self) {
        self.is_replaced = false;
        if let Some(closed) = self.closed.take() {
            self.partitions = closed.partitions;
        }
    }

    /// Drops the partitions. No transaction under way may have used them.
    pub fn clear(&mut self) {
        self.partitions.clear();
        self.closed = None;
    }

    /// Returns true if it has no partitions here, open or closed.
    pub fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    /// The partitions this worker owns, open or closed, with their numbers.
    pub fn all(&self) -> impl Iterator<Item = (u32, &Partition)> {
        let closed = self.closed.iter().flat_map(|closed| &closed.partitions);
        // One of the two lists is always empty.
        let slots = (0..).zip(&self.partitions).chain((0..).zip(closed));
        let owned = slots.filter_map(|(number, slot)| slot.as_deref().map(|partition| (number, partition)));
        owned.filter(|(_, partition)| !partition.is_borrowed())
    }

    #[inline(always)]
    fn at(&self, table: TableId, index: usize) -> (PartitionId, WorkerId) {
        (PartitionId { table, partition: self.scheme.number(index) }, self.scheme.owner(index))
    }

    /// Returns the first key of a partition (empty for the first one), and the first key after it (`None` for the last
    /// one).
    pub fn bounds(&self, place: PartitionId) -> (&[u8], Option<&[u8]>) {
        let index = self.scheme.index_of(place.partition).expect("a partition that is asked for exists");
        (self.scheme.lower(index).unwrap_or(&[]), self.scheme.upper(index))
    }
}

/// Returns the partition of a closed table, if the access may still use it.
#[cold]
fn closed_mut(closed: &mut Closed, place: PartitionId, maintains: bool) -> Option<&mut Partition> {
    if !maintains || closed.closing != Closing::Maintained {
        return None;
    }
    closed.partitions.get_mut(place.partition as usize)?.as_deref_mut()
}

/// All tables in the state of one worker.
pub struct Tables {
    /// The catalog as this worker knows it.
    pub catalog: Arc<Catalog>,
    /// The tables, by number.
    pub shards: Vec<TableShard>,
}

impl Tables {
    /// Locates `key`: its partition and the owner.
    #[inline(always)]
    pub fn locate(&self, table: TableId, key: &[u8]) -> (PartitionId, WorkerId) {
        let shard = &self.shards[table.at()];
        shard.at(table, shard.scheme.partition_of(key))
    }

    /// Locates the last key below `upper` (`None`: the last key of all): its partition and the owner.
    pub(crate) fn locate_below(&self, table: TableId, upper: Option<&[u8]>) -> (PartitionId, WorkerId) {
        let shard = &self.shards[table.at()];
        shard.at(table, shard.scheme.partition_below(upper))
    }

    /// Cuts a range to the partition `place`, in which it begins (or ends, if walked `from_end`). Returns the part
    /// inside and the rest; `None` for both if the range lies in that partition, or the target is a key.
    pub fn cut_to_partition(
        &self,
        place: PartitionId,
        target: &LockTarget,
        from_end: bool,
    ) -> (Option<LockTarget>, Option<KeyRange>) {
        let LockTarget::Range { lower, upper } = target else { return (None, None) };
        let (first, end) = self.shards[place.table.at()].bounds(place);
        if from_end {
            if first <= &**lower {
                return (None, None);
            }
            let part = LockTarget::Range { lower: KeyBuf::from(first), upper: upper.clone() };
            (Some(part), Some(KeyRange { lower: lower.clone(), upper: Some(KeyBuf::from(first)) }))
        } else {
            match end {
                Some(end) if upper.as_deref().is_none_or(|upper| end < upper) => {
                    let part = LockTarget::Range { lower: lower.clone(), upper: Some(KeyBuf::from(end)) };
                    (Some(part), Some(KeyRange { lower: KeyBuf::from(end), upper: upper.clone() }))
                }
                _ => (None, None),
            }
        }
    }

    /// Locates `key`: its partition and the owner; `None` if the table does not exist.
    #[inline(always)]
    pub fn locate_checked(&self, table: TableId, key: &[u8]) -> Option<(PartitionId, WorkerId)> {
        (table.at() < self.shards.len()).then(|| self.locate(table, key))
    }

    /// Returns a partition that this worker owns, whether or not its table is closed: for transactions that have used
    /// it, and for changes of the scheme.
    #[inline]
    pub fn partition(&self, place: PartitionId) -> &Partition {
        let shard = &self.shards[place.table.at()];
        let slot = |slots: &'_ [Option<Box<Partition>>]| {
            slots.get(place.partition as usize).is_some_and(Option::is_some)
        };
        let slots = match &shard.closed {
            Some(closed) if !slot(&shard.partitions) => &closed.partitions,
            _ => &shard.partitions,
        };
        slots[place.partition as usize].as_deref().expect("a worker asks only for partitions it owns")
    }

    /// Returns the partition that has `key`, if this worker owns it, its table is not closed, and nobody has or wants a lock there.
    #[inline(never)]
    pub fn unlocked(&self, table: TableId, key: &KeyBuf) -> Option<PartitionId> {
        let shard = self.shards.get(table.at())?;
        let number = shard.scheme.number(shard.scheme.partition_of(key));
        let partition = shard.partitions.get(number as usize)?.as_deref()?;
        partition.locks.is_empty().then_some(PartitionId { table, partition: number })
    }

    /// Returns true if this worker owns or has borrowed the partition `place`, its table is not closed, and no access in this mode conflicts
    /// with a lock there, whatever its key is. Counts a read of a partition that is borrowed.
    #[inline]
    pub fn admits(&self, place: PartitionId, mode: LockMode) -> bool {
        let Some(partition) = self.owned_at(place) else { return false };
        if partition.locks.is_empty() {
            return true;
        }
        let admits = partition.locks.admits_all(mode);
        if admits {
            partition.count_read();
        }
        admits
    }

    /// Returns the partition `place`, if this worker owns or has borrowed it and its table is not closed.
    #[inline]
    pub fn owned_at(&self, place: PartitionId) -> Option<&Partition> {
        self.shards[place.table.at()].partitions.get(place.partition as usize)?.as_deref()
    }

    /// Returns the partition `place` for changes, if this worker owns or has borrowed it and its table is not closed.
    pub fn owned_at_mut(&mut self, place: PartitionId) -> Option<&mut Partition> {
        self.shards[place.table.at()].partitions.get_mut(place.partition as usize)?.as_deref_mut()
    }

    /// Returns the catalog and the partition `place`, which this worker owns, for an access; `None` if the table was
    /// dropped, or is closed to the access. `maintains` is true for an access that follows from an earlier write.
    #[inline(always)]
    pub fn open_mut(&mut self, place: PartitionId, maintains: bool) -> Option<(&Catalog, &mut Partition)> {
        let shard = &mut self.shards[place.table.at()];
        match shard.partitions.get_mut(place.partition as usize) {
            Some(Some(partition)) => Some((&self.catalog, partition)),
            _ => Some((&self.catalog, closed_mut(shard.closed.as_deref_mut()?, place, maintains)?)),
        }
    }

    /// Returns true if an access finds the partition `place`: see [`open_mut`](Tables::open_mut).
    pub fn is_open(&self, place: PartitionId, maintains: bool) -> bool {
        let maintained = || self.shards[place.table.at()].is_closed_to(Closing::Maintained);
        self.owned_at(place).is_some() || (maintains && maintained())
    }

    /// Returns a partition that this worker owns for changes, whether or not its table is closed.
    #[inline]
    pub fn partition_mut(&mut self, place: PartitionId) -> &mut Partition {
        let shard = &mut self.shards[place.table.at()];
        let slot = shard.partitions.get_mut(place.partition as usize).and_then(Option::as_deref_mut);
        let closed = shard.closed.as_deref_mut();
        slot.or_else(|| {
            closed.and_then(|closed| closed.partitions.get_mut(place.partition as usize)?.as_deref_mut())
        })
        .expect("a worker asks only for partitions it owns")
    }

    /// Removes and returns a partition, to be joined to another one or sent to another worker.
    pub fn take(&mut self, place: PartitionId) -> Box<Partition> {
        let slot = &mut self.shards[place.table.at()].partitions[place.partition as usize];
        slot.take().expect("a worker gives away only partitions it owns")
    }

    /// Adds a partition under a number that has none.
    pub fn put(&mut self, place: PartitionId, partition: Box<Partition>) {
        let slots = &mut self.shards[place.table.at()].partitions;
        let at = place.partition as usize;
        if at >= slots.len() {
            slots.resize_with(at + 1, || None);
        }
        let before = slots[at].replace(partition);
        assert!(before.is_none(), "a number names one partition");
    }

    /// Replaces the scheme of a family.
    pub fn adopt(&mut self, tables: &[TableId], scheme: &Arc<FamilyScheme>) {
        for table in tables {
            self.shards[table.at()].scheme = Arc::clone(scheme);
        }
    }

    /// The partitions this worker owns.
    pub fn owned(&self) -> impl Iterator<Item = (PartitionId, &Partition)> {
        self.present().filter(|(_, partition)| !partition.is_borrowed())
    }

    /// The partitions this worker owns or has borrowed.
    fn present(&self) -> impl Iterator<Item = (PartitionId, &Partition)> {
        self.shards.iter().enumerate().flat_map(|(table, shard)| {
            shard.partitions.iter().enumerate().filter_map(move |(index, partition)| {
                let place = PartitionId { table: TableId(table as u16), partition: index as u32 };
                partition.as_deref().map(|partition| (place, partition))
            })
        })
    }

    /// Returns the bytes of the lines of memory that the rows of this worker take, as far as look-ups fetch them.
    pub fn line_bytes(&self) -> u64 {
        self.owned().map(|(_, partition)| partition.tree().line_bytes()).sum()
    }
}
