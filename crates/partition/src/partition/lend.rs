//! Partitions that are lent: read by other workers besides their owner, as long as nobody changes them.
//!
//! Owns: which workers have borrowed a partition, and the borrowed partition that each of them has in its own state, with a
//! lock table of its own. Never: decides when to lend, or sends anything.
//!
//! Invariants
//! - The lock tables of a lent partition and of all that are borrowed from it are [gated](atrapos_storage::lock::LockTable::gate):
//!   an access that would change a row is a conflict.
//! - A worker owns no borrowed partition: it is not counted, saved, verified or moved there.

use std::cell::Cell;

use atrapos_runtime::WorkerId;
use atrapos_storage::lock::LockMode;

use super::{Partition, PartitionId, TableShard, Tables};

/// The part that a partition has in lending.
#[derive(Debug, Default)]
pub(super) enum Lent {
    /// None: its owner alone reads and changes it.
    #[default]
    No,
    /// It is lent to these workers.
    To(Vec<WorkerId>),
    /// It is borrowed.
    Borrowed {
        /// The accesses that were located in it since: by them a loan is judged, so that one more or less does not matter.
        reads: Cell<u64>,
    },
}

impl Partition {
    /// Lends the partition to a worker, for reading: returns what that worker puts in its state.
    pub fn lend(&mut self, to: WorkerId) -> Partition {
        let mut borrowed = Partition::new(self.tree.lend(), self.version);
        borrowed.lent = Lent::Borrowed { reads: Cell::new(0) };
        borrowed.locks.gate();
        self.locks.gate();
        match &mut self.lent {
            Lent::To(borrowers) => borrowers.push(to),
            lent => *lent = Lent::To(vec![to]),
        }
        borrowed
    }

    /// The workers that have borrowed the partition.
    pub fn borrowers(&self) -> &[WorkerId] {
        match &self.lent {
            Lent::To(borrowers) => borrowers,
            Lent::No | Lent::Borrowed { .. } => &[],
        }
    }

    /// Returns true if the partition is borrowed from its owner.
    pub fn is_borrowed(&self) -> bool {
        matches!(self.lent, Lent::Borrowed { .. })
    }

    /// Counts a read of the partition, if it is borrowed; returns true if it is.
    pub(super) fn count_read(&self) -> bool {
        let Lent::Borrowed { reads } = &self.lent else { return false };
        reads.set(reads.get() + 1);
        true
    }

    /// The reads that this worker has made in a borrowed partition; 0 in its own.
    pub fn reads_in_place(&self) -> u64 {
        match &self.lent {
            Lent::Borrowed { reads } => reads.get(),
            Lent::No | Lent::To(_) => 0,
        }
    }

    /// Notes that a worker has given the partition back. After the last one, it may be changed again.
    pub fn given_back(&mut self, from: WorkerId) {
        let Lent::To(borrowers) = &mut self.lent else { return };
        borrowers.retain(|borrower| *borrower != from);
        if borrowers.is_empty() {
            assert!(self.tree.take_back(), "a borrower drops the tree before it says so");
            self.lent = Lent::No;
            self.locks.ungate();
        }
    }
}

impl TableShard {
    /// Removes and returns a borrowed partition; `None` if this worker has none of this number.
    fn take_borrowed(&mut self, number: u32) -> Option<Box<Partition>> {
        let slot = self.partitions.get_mut(number as usize)?;
        slot.take_if(|partition| partition.is_borrowed())
    }
}

impl Tables {
    /// Returns true if worker `own`, whose state this is, may make an access to a partition of `owner`: it is the owner, or the
    /// access reads and the partition is borrowed.
    #[inline]
    pub fn serves(&self, place: PartitionId, owner: WorkerId, own: WorkerId, mode: LockMode) -> bool {
        owner == own || self.lends_to_reader(place, mode)
    }

    #[inline(never)]
    fn lends_to_reader(&self, place: PartitionId, mode: LockMode) -> bool {
        mode == LockMode::Shared && self.owned_at(place).is_some_and(Partition::count_read)
    }

    /// Returns the borrowed partitions that this worker has.
    pub fn borrowed(&self) -> impl Iterator<Item = (PartitionId, &Partition)> {
        self.present().filter(|(_, partition)| partition.is_borrowed())
    }

    /// Removes a borrowed partition, if this worker has it, and returns the number of reads of it here. No branch may have accesses
    /// in it.
    pub fn drop_borrowed(&mut self, place: PartitionId) -> u64 {
        let dropped = self.shards[place.table.at()].take_borrowed(place.partition);
        match dropped.map(|partition| partition.lent) {
            Some(Lent::Borrowed { reads }) => reads.get(),
            _ => 0,
        }
    }
}
