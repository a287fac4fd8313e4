//! The table of YCSB with records of two shapes, and the layout of its keys.
//!
//! Owns: the tables' types, the layout of the keys, and the content of a record after any number of writes. Never:
//! chooses a key.
//!
//! # Keys
//!
//! The high bits of a key are the number of a *slot*, from 0; there is one slot per loaded record. The low bits are 0
//! for the loaded record and something else for records inserted later ([`Keys::inserted`]), which are spread evenly
//! over all slots. So loaded records are in order of their numbers, equal numbers of slots are equal loads before and
//! after any number of insertions, and clients generate distinct keys without coordination.
//!
//! # Records
//!
//! The content of a record follows from its key and from the number of writes to each of its columns. So a reader can
//! check that a record is valid, and the auditor can check the sum of all writes.

use std::fmt::Debug;

use atrapos::{Row, RowEdit, Schema, Table, row};
use serde::{Deserialize, Serialize};

use crate::popularity::Permutation;
use crate::random::mixed;

/// Bytes of a column of a wide record.
pub const COLUMN_BYTES: usize = 100;

/// A record of YCSB.
pub trait Record: Row + Debug + PartialEq + Sync {
    /// The table of such records, by key.
    type Table: Table<Key = u64, Row = Self>;
    /// Number of columns that can be written one by one.
    const COLUMNS_WRITTEN: u32;
    /// Bytes of memory per record, all overhead included: measured and rounded up.
    const RESIDENT_BYTES: u64;
    /// The shape's name on the command line.
    const SHAPE: &'static str;
    /// The names of the stored procedures: read, update, insert, scan, read and write, several operations.
    const PROCEDURES: [&'static str; 6];

    /// Creates the record of `key` as it is loaded or inserted.
    fn new(key: u64) -> Self;

    /// Writes a new value to column number `column`, below [`COLUMNS_WRITTEN`](Record::COLUMNS_WRITTEN), of the record of
    /// `key`.
    fn write_column(record: &mut RowEdit<'_, Self>, key: u64, column: u32);

    /// Returns the record after a write to column number `column`.
    #[must_use]
    fn written(&self, key: u64, column: u32) -> Self {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        let mut record = RowEdit::new(&mut bytes).expect("it was just encoded");
        Self::write_column(&mut record, key, column);
        record.row()
    }

    /// Returns the number of writes to the record of `key`; `None` if writes do not produce its content.
    fn writes(&self, key: u64) -> Option<u64>;
}

row! {
    /// A record of ten columns of 100 bytes.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[expect(missing_docs, reason = "the columns of YCSB, which mean nothing")]
    pub struct Wide {
        pub field0: [u8; COLUMN_BYTES],
        pub field1: [u8; COLUMN_BYTES],
        pub field2: [u8; COLUMN_BYTES],
        pub field3: [u8; COLUMN_BYTES],
        pub field4: [u8; COLUMN_BYTES],
        pub field5: [u8; COLUMN_BYTES],
        pub field6: [u8; COLUMN_BYTES],
        pub field7: [u8; COLUMN_BYTES],
        pub field8: [u8; COLUMN_BYTES],
        pub field9: [u8; COLUMN_BYTES],
    }
}

row! {
    /// A record of one column of 8 bytes.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Narrow {
        /// A number that follows from the key, plus the number of writes.
        pub value: u64,
    }
}

/// The table of wide records.
#[derive(Debug)]
pub struct WideTable;
impl Table for WideTable {
    type Key = u64;
    type Row = Wide;
    const NAME: &'static str = "usertable";
    const KEY_COLUMNS: &'static [&'static str] = &["key"];
}

/// The table of narrow records.
#[derive(Debug)]
pub struct NarrowTable;
impl Table for NarrowTable {
    type Key = u64;
    type Row = Narrow;
    const NAME: &'static str = "usertable";
    const KEY_COLUMNS: &'static [&'static str] = &["key"];
}

/// Returns the value of a column of `key` after `writes` writes: their number, and pseudorandom bytes.
fn column(key: u64, number: u32, writes: u64) -> [u8; COLUMN_BYTES] {
    let mut word = mixed(key ^ (u64::from(number) << 56) ^ writes.rotate_left(24));
    let mut value = [0; COLUMN_BYTES];
    value[..8].copy_from_slice(&writes.to_le_bytes());
    for bytes in value[8..].chunks_mut(8) {
        bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
        word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
    value
}

/// Returns the number of writes that is stored in a column.
fn count(value: &[u8; COLUMN_BYTES]) -> u64 {
    value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

impl Wide {
    fn columns(&self) -> [&[u8; COLUMN_BYTES]; 10] {
        [
            &self.field0,
            &self.field1,
            &self.field2,
            &self.field3,
            &self.field4,
            &self.field5,
            &self.field6,
            &self.field7,
            &self.field8,
            &self.field9,
        ]
    }
}

/// Greatest plausible number of writes: a larger count is damage.
const WRITES_MAX: u64 = 1 << 48;

impl Record for Wide {
    type Table = WideTable;
    const COLUMNS_WRITTEN: u32 = 10;
    const RESIDENT_BYTES: u64 = 1_400;
    const SHAPE: &'static str = "10x100";
    const PROCEDURES: [&'static str; 6] = [
        "ycsb-wide.read",
        "ycsb-wide.update",
        "ycsb-wide.insert",
        "ycsb-wide.scan",
        "ycsb-wide.read-modify-write",
        "ycsb-wide.operations",
    ];

    fn new(key: u64) -> Wide {
        let new = |number| column(key, number, 0);
        Wide {
            field0: new(0),
            field1: new(1),
            field2: new(2),
            field3: new(3),
            field4: new(4),
            field5: new(5),
            field6: new(6),
            field7: new(7),
            field8: new(8),
            field9: new(9),
        }
    }

    #[inline]
    fn write_column(record: &mut RowEdit<'_, Wide>, key: u64, number: u32) {
        let choose = |columns: &<Wide as Row>::Columns| match number {
            0 => columns.field0,
            1 => columns.field1,
            2 => columns.field2,
            3 => columns.field3,
            4 => columns.field4,
            5 => columns.field5,
            6 => columns.field6,
            7 => columns.field7,
            8 => columns.field8,
            _ => columns.field9,
        };
        record.change(choose, |value| column(key, number, count(&value) + 1));
    }

    fn writes(&self, key: u64) -> Option<u64> {
        let each = (0..).zip(self.columns()).map(|(number, value)| {
            let writes = count(value);
            (writes < WRITES_MAX && *value == column(key, number, writes)).then_some(writes)
        });
        each.sum()
    }
}

impl Record for Narrow {
    type Table = NarrowTable;
    const COLUMNS_WRITTEN: u32 = 1;
    const RESIDENT_BYTES: u64 = 48;
    const SHAPE: &'static str = "8";
    const PROCEDURES: [&'static str; 6] = [
        "ycsb-narrow.read",
        "ycsb-narrow.update",
        "ycsb-narrow.insert",
        "ycsb-narrow.scan",
        "ycsb-narrow.read-modify-write",
        "ycsb-narrow.operations",
    ];

    fn new(key: u64) -> Narrow {
        Narrow { value: mixed(key) }
    }

    #[inline]
    fn write_column(record: &mut RowEdit<'_, Narrow>, _: u64, _: u32) {
        record.change(|column| column.value, |value| value.wrapping_add(1));
    }

    fn writes(&self, key: u64) -> Option<u64> {
        Some(self.value.wrapping_sub(mixed(key))).filter(|writes| *writes < WRITES_MAX)
    }
}

/// The layout of the keys for a number of loaded records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    rows: u64,
    shift: u32,
}

/// Number of lanes: sequences of insertions that do not collide.
const LANES: u64 = 1 << 24;

impl Keys {
    /// Greatest number of records that keys can tell apart.
    pub const ROWS_MAX: u64 = 1 << 31;

    /// Creates the layout for `rows` loaded records, from 1 to [`ROWS_MAX`](Keys::ROWS_MAX).
    #[must_use]
    pub fn of(rows: u64) -> Keys {
        Keys { rows, shift: rows.leading_zeros() }
    }

    /// Returns the number of loaded records.
    #[must_use]
    pub fn rows(self) -> u64 {
        self.rows
    }

    /// Returns the number of bits of a key below the number of its slot.
    #[must_use]
    pub fn shift(self) -> u32 {
        self.shift
    }

    /// Returns the key of the loaded record number `record`: the first key of its slot. That of `rows` is above all
    /// keys.
    #[inline]
    #[must_use]
    pub fn loaded(self, record: u64) -> u64 {
        record << self.shift
    }

    /// Returns the last key of all slots.
    #[must_use]
    pub fn last(self) -> u64 {
        self.loaded(self.rows) - 1
    }

    /// Returns the key of insertion `number` of lane `lane` (from 0) of clients that insert into `slot`, which they do
    /// once in every `slots` insertions.
    #[inline]
    #[must_use]
    pub fn inserted(self, slot: u64, lane: u64, number: u64, slots: u64) -> u64 {
        self.loaded(slot) | (1 + lane % (LANES - 1) + LANES * (number / slots))
    }

    /// Returns the slot of insertion `number` of lane `lane`, of `slots`: each as often as any other.
    #[inline]
    pub(crate) fn slot(lane: u64, number: u64, slots: u64, order: Permutation) -> u64 {
        order.of((mixed(lane) % slots + number) % slots)
    }

    /// Returns whether the record of `key` was loaded.
    #[must_use]
    pub fn is_loaded(self, key: u64) -> bool {
        key.trailing_zeros() >= self.shift
    }

    /// Returns the first key of every worker but the first: slots in equal parts.
    fn cuts(self, workers: usize) -> Vec<u64> {
        let cut = |part: u128| (u128::from(self.rows) * part / workers as u128) as u64;
        let cuts = (1..workers as u128).map(cut).filter(|slot| *slot > 0);
        let mut cuts: Vec<u64> = cuts.map(|slot| self.loaded(slot)).collect();
        cuts.dedup();
        cuts
    }
}

/// Returns the schema of a database with these loaded records.
#[must_use]
pub fn schema<R: Record>(keys: Keys) -> Schema {
    Schema::new().table::<R::Table>().split_by(R::Table::NAME, move |workers| keys.cuts(workers))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts_writes<R: Record>() {
        let mut record = R::new(77);
        assert_eq!(record.writes(77), Some(0));
        assert_eq!(record.writes(78), None, "it is another record's");
        for at in 0..25 {
            record = record.written(77, at % R::COLUMNS_WRITTEN);
        }
        assert_eq!(record.writes(77), Some(25));
    }

    #[test]
    fn records_tell_whose_they_are_and_how_often_they_were_written() {
        counts_writes::<Wide>();
        counts_writes::<Narrow>();
        assert_eq!((Wide::FIXED_BYTES, Narrow::FIXED_BYTES), (1000, 8));
        let mut torn = Wide::new(5);
        torn = torn.written(5, 3);
        torn.field3[99] ^= 1;
        assert_eq!(torn.writes(5), None);
        torn = Wide::new(5);
        torn.field0 = column(5, 1, 0);
        assert_eq!(torn.writes(5), None, "a column in the place of another");
    }

    #[test]
    fn keys_are_in_slots() {
        for rows in [1, 2, 3, 300, 1 << 20, Keys::ROWS_MAX] {
            let keys = Keys::of(rows);
            assert!(keys.shift() >= 32);
            assert_eq!(keys.last() >> keys.shift(), rows - 1);
            for slot in [0, rows / 2, rows - 1] {
                let key = keys.loaded(slot);
                assert!(keys.is_loaded(key));
                let inserted = keys.inserted(slot, LANES - 2, 200 * rows, rows);
                assert!(!keys.is_loaded(inserted) && inserted > key);
                assert_eq!(inserted >> keys.shift(), slot);
            }
        }
        assert_eq!(Keys::of(100).cuts(4), [25, 50, 75].map(|slot| Keys::of(100).loaded(slot)));
        assert_eq!(Keys::of(2).cuts(5).len(), 1);
    }

    #[test]
    fn insertions_are_spread_evenly_and_never_collide() {
        let keys = Keys::of(30);
        let mut seen = std::collections::BTreeSet::new();
        let mut slots = [0; 30];
        for lane in 0..4 {
            for number in 0..90 {
                let slot = Keys::slot(lane, number, 30, Permutation::new(30));
                slots[slot as usize] += 1;
                assert!(seen.insert(keys.inserted(slot, lane, number, 30)));
            }
        }
        assert_eq!(slots, [12; 30]);
    }
}
