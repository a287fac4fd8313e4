//! The tables of the histories.
//!
//! Owns: [`Cells`], [`Tombs`] and [`Lists`] and the contents of their rows. Never: reads or writes a row.
//!
//! The engine does not expose the versions of its rows. So each cell carries a version of its own: a number unique to
//! its write, and the number of the version it replaced. A deleted cell leaves its number in a tomb, which is read when
//! the cell is written again; so the versions of a cell form one chain, deletions included. Readers do not touch tombs:
//! only the locks on the cells themselves keep a cell from being inserted or deleted meanwhile.

use atrapos::{Index, IndexRef, Schema, Table, TableRef, row};
use atrapos_history::Found;

/// Number of cells at most.
pub const CELLS: u64 = 48;
/// Groups of cells.
pub const GROUPS: u32 = 6;
/// Lists that are in use at a time.
pub(super) const SLOTS: u64 = 8;

row! {
    /// A row with a version of its own.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Cell {
        /// The number of the version.
        pub version: u64,
        /// The number of the version that it replaced.
        pub over: u64,
        /// The group, which is the key of the index.
        pub group: u32,
        /// A text derived from the version, of many lengths.
        pub text: String,
    }
}

impl Cell {
    /// Creates a version of a cell.
    #[must_use]
    pub fn new(version: u64, over: u64, group: u32) -> Cell {
        Cell { version, over, group, text: "v".repeat((version % 23) as usize) }
    }

    /// Returns the record of a read that found this cell.
    pub(super) fn found(&self) -> Found {
        Found { version: self.version, over: self.over, group: Some(self.group) }
    }
}

row! {
    /// The remains of a deleted cell.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Tomb {
        /// The number of the deletion.
        pub version: u64,
        /// The number of the version that was deleted.
        pub over: u64,
    }
}

impl Tomb {
    /// Returns the record of a read that found no cell.
    pub(super) fn found(tomb: Option<&Tomb>) -> Found {
        tomb.map_or(Found::NEVER, |tomb| Found { version: tomb.version, over: tomb.over, group: None })
    }
}

row! {
    /// A list of numbers.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Numbers {
        /// The numbers, eight bytes each.
        pub bytes: Vec<u8>,
    }
}

impl Numbers {
    /// Creates a list of one number.
    #[must_use]
    pub fn of(number: u64) -> Numbers {
        Numbers { bytes: number.to_be_bytes().to_vec() }
    }

    /// Adds a number.
    pub fn push(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_be_bytes());
    }

    /// Returns the numbers, in order.
    #[must_use]
    pub fn list(&self) -> Vec<u64> {
        let (numbers, _) = self.bytes.as_chunks::<8>();
        numbers.iter().map(|number| u64::from_be_bytes(*number)).collect()
    }
}

/// Table `cells`, by number from 0.
#[derive(Debug)]
pub struct Cells;
impl Table for Cells {
    type Key = u64;
    type Row = Cell;
    const NAME: &'static str = "cells";
}

/// The cells of a group.
#[derive(Debug)]
pub struct ByGroup;
impl Index for ByGroup {
    type Table = Cells;
    type Key = u32;
    const NAME: &'static str = "cells_by_group";
    const UNIQUE: bool = false;
    fn key(_: &u64, cell: &Cell) -> u32 {
        cell.group
    }
}

/// Table `tombs`, by the number of the cell.
#[derive(Debug)]
pub struct Tombs;
impl Table for Tombs {
    type Key = u64;
    type Row = Tomb;
    const NAME: &'static str = "tombs";
}

/// Table `lists`, by slot (the upper half of the key) and the number of lists that the slot had before.
#[derive(Debug)]
pub struct Lists;
impl Table for Lists {
    type Key = u64;
    type Row = Numbers;
    const NAME: &'static str = "lists";
}

/// Returns the key of the list with this number in a slot.
pub(super) fn list_key(slot: u64, number: u64) -> u64 {
    slot << 32 | number
}

/// Returns the schema with all tables. Each is cut between others of its keys.
#[must_use]
pub fn schema() -> Schema {
    let groups: Vec<u32> = (1..GROUPS).collect();
    let slots: Vec<u64> = (1..SLOTS).map(|slot| list_key(slot, 0)).collect();
    Schema::new()
        .table::<Cells>()
        .table::<Tombs>()
        .table_with_row_bytes::<Lists>(1_000)
        .index::<ByGroup>()
        .split_evenly(Cells::NAME, 0, CELLS - 1)
        .split_at(Tombs::NAME, &[CELLS / 5, CELLS / 3, CELLS / 2, CELLS - 9])
        .split_at(Lists::NAME, &slots)
        .split_at(ByGroup::NAME, &groups)
}

/// The handles of the tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handles {
    pub(super) cells: TableRef<Cells>,
    pub(super) by_group: IndexRef<ByGroup>,
    pub(super) tombs: TableRef<Tombs>,
    pub(super) lists: TableRef<Lists>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_keep_their_order() {
        let mut numbers = Numbers::of(7);
        numbers.push(u64::MAX);
        assert_eq!(numbers.list(), [7, u64::MAX]);
        assert_eq!(Tomb::found(None), Found::NEVER);
        assert_eq!(Cell::new(9, 8, 1).found(), Found { version: 9, over: 8, group: Some(1) });
    }
}
