//! [`Table`]: one table of a part: an index, the rows, and the locks.
//!
//! Owns: where a row is. Never: decides whether somebody may look at it.
//!
//! Invariants
//! - The index leads from each key to the number of its row, and nowhere else.
//! - A row that is absent (removed, or an insertion that was undone) stays in the index until its transaction ends, so that undoing takes no memory.

use std::str::FromStr;

use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::LockTable;
use atrapos_structures::{Kind, Owned, OwnedHashMap, OwnedTree, Refused, Unordered};

/// A structure that can be a table of one owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableStructure {
    /// Our B+-tree: ordered.
    #[default]
    OwnedTree,
    /// A hash map: without ranges.
    OwnedHashMap,
}

/// A name of a structure that cannot be a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' cannot be a table of a domain with one worker; choose owned-tree, or owned-hash-map for tables without ranges"
)]
pub struct NoTableStructure(pub String);

impl TableStructure {
    /// Its name, which is that of its kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TableStructure::OwnedTree => Kind::OwnedTree.name(),
            TableStructure::OwnedHashMap => Kind::OwnedHashMap.name(),
        }
    }

    fn make(self) -> Box<dyn Index> {
        match self {
            TableStructure::OwnedTree => Box::new(OwnedTree::<[u8]>::new()),
            TableStructure::OwnedHashMap => Box::new(OwnedHashMap::<[u8]>::new()),
        }
    }
}

impl FromStr for TableStructure {
    type Err = NoTableStructure;

    fn from_str(name: &str) -> Result<TableStructure, NoTableStructure> {
        let all = [TableStructure::OwnedTree, TableStructure::OwnedHashMap];
        let found = all.into_iter().find(|structure| structure.name() == name);
        found.ok_or_else(|| NoTableStructure(name.to_owned()))
    }
}

/// A structure, whichever it is.
trait Index: Send {
    fn find(&mut self, key: &[u8]) -> Option<u64>;
    fn add(&mut self, key: &[u8], number: u64) -> Result<bool, Refused>;
    fn remove(&mut self, key: &[u8]) -> bool;
    fn scan(
        &mut self,
        from: &[u8],
        limit: usize,
        visit: &mut dyn FnMut(&[u8], u64),
    ) -> Result<usize, Unordered>;
}

impl<S: Owned<[u8]>> Index for S {
    fn find(&mut self, key: &[u8]) -> Option<u64> {
        self.read(key)
    }

    fn add(&mut self, key: &[u8], number: u64) -> Result<bool, Refused> {
        self.insert(key, number)
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        Owned::remove(self, key)
    }

    fn scan(
        &mut self,
        from: &[u8],
        limit: usize,
        visit: &mut dyn FnMut(&[u8], u64),
    ) -> Result<usize, Unordered> {
        Owned::scan(self, from, limit, visit)
    }
}

/// The bytes of a row; `None` if it is absent.
pub(super) type Bytes = Option<Box<[u8]>>;
/// Keys and rows.
pub(super) type Rows = Vec<(KeyBuf, Box<[u8]>)>;

struct Slot {
    key: KeyBuf,
    row: Bytes,
}

/// See the module's introduction.
pub(super) struct Table {
    index: Box<dyn Index>,
    slots: Vec<Option<Slot>>,
    /// Numbers that no row has.
    free: Vec<u64>,
    pub(super) locks: LockTable,
}

/// Entries that a scan looks at together.
const PAGE: usize = 64;

fn refusal(refused: &Refused) -> Abort {
    let reason = match refused {
        Refused::KeyTooLong { .. } => AbortReason::KeyTooLarge,
        Refused::OutOfMemory => AbortReason::OutOfMemory,
    };
    Abort::explained(reason, refused.to_string())
}

impl Table {
    pub(super) fn new(structure: TableStructure) -> Table {
        Table { index: structure.make(), slots: Vec::new(), free: Vec::new(), locks: LockTable::new() }
    }

    fn slot(&mut self, number: u64) -> Option<&mut Slot> {
        self.slots.get_mut(number as usize)?.as_mut()
    }

    /// The number of a row, present or absent.
    pub(super) fn number(&mut self, key: &[u8]) -> Option<u64> {
        self.index.find(key)
    }

    /// The row of a key, if it is present.
    pub(super) fn row(&mut self, key: &[u8]) -> Option<&[u8]> {
        let number = self.number(key)?;
        self.slot(number)?.row.as_deref()
    }

    /// Gives a row other bytes, or makes it absent; returns what it was.
    pub(super) fn set(&mut self, number: u64, row: Bytes) -> Bytes {
        self.slot(number).and_then(|slot| std::mem::replace(&mut slot.row, row))
    }

    /// Adds the row of a key that has no number; returns its number.
    pub(super) fn add(&mut self, key: &[u8], row: Box<[u8]>) -> Result<u64, Abort> {
        let number = self.free.last().copied().unwrap_or(self.slots.len() as u64);
        self.index.add(key, number).map_err(|refused| refusal(&refused))?;
        let slot = Some(Slot { key: KeyBuf::from(key), row: Some(row) });
        match self.free.pop() {
            Some(number) => self.slots[number as usize] = slot,
            None => self.slots.push(slot),
        }
        Ok(number)
    }

    /// Takes a row out if it is absent.
    pub(super) fn take_out_absent(&mut self, number: u64) {
        let Some(place) = self.slots.get_mut(number as usize) else { return };
        if let Some(slot) = place.take_if(|slot| slot.row.is_none()) {
            self.index.remove(&slot.key);
            self.free.push(number);
        }
    }

    /// Returns the rows that are present from `lower` (included) to `upper` (excluded), at most `rows_max`, and whether the scan has stopped for that.
    pub(super) fn scan(
        &mut self,
        lower: &[u8],
        upper: Option<&[u8]>,
        rows_max: usize,
    ) -> Result<(Rows, bool), Abort> {
        let Table { index, slots, .. } = self;
        let (mut rows, mut from, mut is_over) = (Rows::new(), KeyBuf::from(lower), false);
        loop {
            let mut last = None;
            let visited = index.scan(&from, PAGE, &mut |key, number| {
                is_over |= upper.is_some_and(|upper| key >= upper);
                let slot = slots.get(number as usize).and_then(Option::as_ref);
                if let Some(row) = slot.and_then(|slot| slot.row.as_ref()).filter(|_| !is_over) {
                    rows.push((KeyBuf::from(key), row.clone()));
                }
                last = Some(after(key));
            });
            let visited =
                visited.map_err(|unordered| Abort::explained(AbortReason::Misuse, unordered.to_string()))?;
            if rows.len() > rows_max {
                rows.truncate(rows_max);
                return Ok((rows, true));
            }
            match last {
                Some(next) if !is_over && visited == PAGE => from = next,
                _ => return Ok((rows, false)),
            }
        }
    }

    /// The numbers of all rows in the order of their keys.
    pub(super) fn sorted(&self) -> Vec<u64> {
        let mut all: Vec<(&KeyBuf, u64)> =
            (0..).zip(&self.slots).filter_map(|(number, slot)| Some((&slot.as_ref()?.key, number))).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, number)| number).collect()
    }

    /// The key and the row with a number.
    pub(super) fn numbered(&self, number: u64) -> Option<(KeyBuf, Box<[u8]>)> {
        let slot = self.slots.get(number as usize)?.as_ref()?;
        Some((slot.key.clone(), slot.row.clone()?))
    }

    /// Bytes of keys, rows and what leads to them, without the inner nodes of a structure.
    pub(super) fn memory_bytes(&self) -> u64 {
        let of_slot = |slot: &Slot| 2 * slot.key.len() + slot.row.as_ref().map_or(0, |row| row.len());
        let rows: usize = self.slots.iter().flatten().map(of_slot).sum();
        (rows + self.slots.len() * (size_of::<Option<Slot>>() + size_of::<u64>())) as u64
    }

    /// Checks that every row is present, that the index leads to it, and that nothing is locked.
    pub(super) fn check(&mut self) -> Result<(), String> {
        if !self.locks.is_empty() {
            return Err(format!("{} locks are held though no transaction runs", self.locks.held_len()));
        }
        for (number, slot) in (0..).zip(&self.slots) {
            let Some(Slot { key, row }) = slot else { continue };
            if row.is_none() || self.index.find(key) != Some(number) {
                return Err(format!("row {number} is absent, or its key leads elsewhere"));
            }
        }
        Ok(())
    }
}

/// The first key behind one.
pub(super) fn after(key: &[u8]) -> KeyBuf {
    KeyBuf::from(&[key, &[0]].concat()[..])
}
