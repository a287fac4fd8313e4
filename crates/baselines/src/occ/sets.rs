//! The sets that a transaction keeps: what it has read, where it found nothing, and what it is going to write.
//!
//! Owns: the entries and the way to find one. Never: follows a pointer.
//!
//! Invariants: all sets are emptied at the end of a transaction, and keep their memory for the next one; a record is in the
//! write set once.

use std::collections::HashMap;
use std::ptr::NonNull;

use atrapos_partition::schema::TableId;
use rustc_hash::FxBuildHasher;

use crate::tree::node::Node;
use crate::tree::record::Header;

/// A record that was read, and the TID that it had.
#[derive(Clone, Copy)]
pub(super) struct Read {
    pub(super) record: NonNull<Header>,
    pub(super) tid: u64,
}

/// A leaf that was searched, and the version that it had.
#[derive(Clone, Copy)]
pub(super) struct NodeRead {
    pub(super) leaf: NonNull<Node>,
    pub(super) version: u64,
}

/// A record that is going to be written.
#[derive(Clone, Copy)]
pub(super) struct Write {
    pub(super) record: NonNull<Header>,
    /// The TID at the first access: the record is locked only in this state.
    pub(super) tid: u64,
    pub(super) table: TableId,
    /// Set if this transaction put the record into the tree.
    pub(super) is_own: bool,
    /// The bytes of the new row in the arena; none if the row is removed.
    pub(super) row: Option<(usize, usize)>,
}

/// Entries up to which the write set is searched from its end.
const SEARCHED: usize = 24;

/// The write set, and the bytes of its rows.
#[derive(Default)]
pub(super) struct Writes {
    entries: Vec<Write>,
    arena: Vec<u8>,
    /// A bit for each record that is in the set: most reads are of records that are not.
    filter: u64,
    /// Places of the records, once there are many.
    places: HashMap<usize, usize, FxBuildHasher>,
}

fn bit(record: NonNull<Header>) -> u64 {
    let hash = (record.addr().get() as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    1 << (hash >> 58)
}

impl Writes {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The place of a record in the set.
    #[inline]
    pub(super) fn find(&self, record: NonNull<Header>) -> Option<usize> {
        if self.filter & bit(record) == 0 { None } else { self.search(record) }
    }

    fn search(&self, record: NonNull<Header>) -> Option<usize> {
        if self.entries.len() <= SEARCHED {
            return self.entries.iter().rposition(|write| write.record == record);
        }
        self.places.get(&record.addr().get()).copied()
    }

    /// The row that is going to be written at a place.
    #[inline]
    pub(super) fn row(&self, at: usize) -> Option<&[u8]> {
        self.entries[at].row.map(|(from, len)| &self.arena[from..from + len])
    }

    /// Adds a record that is not in the set.
    #[inline]
    pub(super) fn add(&mut self, write: Write, row: Option<&[u8]>) {
        let row = row.map(|row| self.keep(row));
        self.filter |= bit(write.record);
        self.entries.push(Write { row, ..write });
        match self.entries.len() {
            len if len <= SEARCHED => {}
            len if len == SEARCHED + 1 => {
                let places = self.entries.iter().enumerate();
                self.places.extend(places.map(|(at, write)| (write.record.addr().get(), at)));
            }
            len => {
                self.places.insert(write.record.addr().get(), len - 1);
            }
        }
    }

    /// Replaces the row at a place.
    pub(super) fn set(&mut self, at: usize, row: Option<&[u8]>) {
        let kept = match (self.entries[at].row, row) {
            (Some((from, len)), Some(row)) if row.len() <= len => {
                self.arena[from..from + row.len()].copy_from_slice(row);
                Some((from, row.len()))
            }
            (_, row) => row.map(|row| self.keep(row)),
        };
        self.entries[at].row = kept;
    }

    #[inline]
    fn keep(&mut self, row: &[u8]) -> (usize, usize) {
        let from = self.arena.len();
        self.arena.extend_from_slice(row);
        (from, row.len())
    }

    /// Sorts the set by address; from now on nothing is found by [`Writes::find`].
    pub(super) fn sort(&mut self) {
        self.entries.sort_unstable_by_key(|write| write.record.addr());
    }

    /// Returns whether a record is in the sorted set.
    pub(super) fn has_sorted(&self, record: NonNull<Header>) -> bool {
        self.entries.binary_search_by_key(&record.addr(), |write| write.record.addr()).is_ok()
    }

    #[inline]
    pub(super) fn entries(&self) -> &[Write] {
        &self.entries
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        if self.entries.len() > SEARCHED {
            self.places.clear();
        }
        self.entries.clear();
        self.arena.clear();
        self.filter = 0;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_writes_are_found() {
        let mut headers = vec![0_u64; 200];
        let pointers: Vec<NonNull<Header>> =
            headers.iter_mut().map(|header| NonNull::from(header).cast()).collect();
        let mut writes = Writes::default();
        for count in [0, 1, SEARCHED, SEARCHED + 1, SEARCHED + 2, 200] {
            for (at, record) in pointers[..count].iter().enumerate() {
                let write = Write { record: *record, tid: 0, table: TableId(0), is_own: false, row: None };
                assert_eq!(writes.find(*record), None);
                writes.add(write, (at % 3 > 0).then_some(&vec![at as u8; at][..]));
                writes.set(at / 2, Some(&[7; 3]));
            }
            for (at, record) in pointers.iter().enumerate() {
                assert_eq!(writes.find(*record), (at < count).then_some(at));
                if at < count {
                    let expected = if at < count.div_ceil(2) {
                        Some(vec![7; 3])
                    } else if at % 3 > 0 {
                        Some(vec![at as u8; at])
                    } else {
                        None
                    };
                    assert_eq!(writes.row(at).map(<[u8]>::to_vec), expected);
                }
            }
            writes.sort();
            assert!(
                pointers.iter().enumerate().all(|(at, record)| writes.has_sorted(*record) == (at < count))
            );
            writes.clear();
        }
    }
}
