//! [`Session`]: the tables of one part as one worker reaches them: for each an index, which is a structure of any kind, and its rows.
//!
//! Owns: the keys, and what becomes of a kind of structure. Never: knows what a statement does.
//!
//! A key is one number: warehouse, district, number, and line, from the highest bits down. The index over customers' names leads from a
//! district and a name to the customer whom Payment means by it (clause 2.5.2.2), since no transaction of this load changes a name. So no
//! structure needs an order.

use std::sync::Arc;

use atrapos_storage::{FixedStr, Row, RowEdit};
use atrapos_structures::{Access, Kind, Owned, Refused, Shared, Visit};

use super::rows::{Rows, Segments};

/// The tables, and the index over customers' names, whose values are customers' numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Warehouse,
    District,
    Customer,
    History,
    NewOrder,
    Order,
    OrderLine,
    Stock,
    Item,
    CustomerByName,
}

/// Number of tables, the index included.
const TABLES: usize = Table::CustomerByName as usize + 1;

/// Returns the key of a row; parts that the table's key has not are 0.
#[inline]
pub(super) fn key(w_id: u16, d_id: u8, number: u32, line: u8) -> u64 {
    u64::from(w_id) << 48 | u64::from(d_id) << 40 | u64::from(number) << 8 | u64::from(line)
}

/// Returns the key of a customer's last name. All names of TPC-C have numbers of their own.
pub(super) fn name_key(w_id: u16, d_id: u8, name: &FixedStr<16>) -> u64 {
    const FNV: (u32, u32) = (0x811c_9dc5, 0x0100_0193);
    let number = name.padded().iter().fold(FNV.0, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(FNV.1));
    key(w_id, d_id, number, 0)
}

/// A structure as one worker reaches it.
trait Index: Send {
    fn find(&mut self, key: u64) -> Option<u64>;
    fn add(&mut self, key: u64, value: u64) -> Result<bool, Refused>;
}

struct OwnedIndex<S>(S);

impl<S: Owned<u64>> Index for OwnedIndex<S> {
    fn find(&mut self, key: u64) -> Option<u64> {
        self.0.read(&key)
    }

    fn add(&mut self, key: u64, value: u64) -> Result<bool, Refused> {
        self.0.insert(&key, value)
    }
}

struct SharedIndex<S: Shared<u64>> {
    structure: Arc<S>,
    session: S::Session,
}

impl<S: Shared<u64>> Index for SharedIndex<S> {
    fn find(&mut self, key: u64) -> Option<u64> {
        self.structure.read(&mut self.session, &key)
    }

    fn add(&mut self, key: u64, value: u64) -> Result<bool, Refused> {
        self.structure.insert(&mut self.session, &key, value)
    }
}

/// Makes a structure and as many reaches of it as there are workers; one of one that has one owner.
struct Open(usize);

impl Visit<u64> for Open {
    type Output = Vec<Box<dyn Index>>;

    fn shared<S: Shared<u64> + 'static>(self, make: fn() -> S) -> Self::Output {
        let structure = Arc::new(make());
        let open = |_| {
            let session = structure.session();
            Box::new(SharedIndex { structure: Arc::clone(&structure), session }) as Box<dyn Index>
        };
        (0..self.0).map(open).collect()
    }

    fn owned<S: Owned<u64> + 'static>(self, make: fn() -> S) -> Self::Output {
        vec![Box::new(OwnedIndex(make()))]
    }
}

/// The tables of one part as one worker reaches them.
pub(crate) struct Session {
    indexes: Vec<Box<dyn Index>>,
    rows: Vec<Rows>,
    /// Memory for encoding.
    encoded: Vec<u8>,
}

impl Session {
    /// Makes the empty tables of a part, of structures of a kind, for so many workers.
    pub(super) fn for_workers(kind: Kind, workers: usize) -> Vec<Session> {
        let new = |_| Session { indexes: Vec::new(), rows: Vec::new(), encoded: Vec::new() };
        let mut sessions: Vec<Session> = (0..workers).map(new).collect();
        for _ in 0..TABLES {
            for (session, index) in sessions.iter_mut().zip(kind.visit(Open(workers))) {
                session.indexes.push(index);
            }
            let shared = Arc::new(Segments::new());
            let is_owned = kind.support().access == Access::Owned;
            for session in &mut sessions {
                let rows = if is_owned { Rows::Owned(Vec::new()) } else { Rows::shared(&shared) };
                session.rows.push(rows);
            }
        }
        sessions
    }

    /// Finds what an index has under a key.
    pub(super) fn find(&mut self, table: Table, key: u64) -> Option<u64> {
        self.indexes[table as usize].find(key)
    }

    /// Adds an entry of an index that is no table; returns whether the key was free.
    pub(super) fn add(&mut self, table: Table, key: u64, value: u64) -> Result<bool, Refused> {
        self.indexes[table as usize].add(key, value)
    }

    /// Edits the row of a key, which is atomic; `None` if there is none.
    #[inline]
    pub(super) fn edit<R: Row, T>(
        &mut self,
        table: Table,
        key: u64,
        edit: impl FnOnce(&mut RowEdit<'_, R>) -> T,
    ) -> Option<T> {
        let number = self.find(table, key)?;
        self.rows[table as usize].with(number, |row| RowEdit::new(row).ok().map(|mut row| edit(&mut row)))?
    }

    /// Inserts a row; returns whether the key was free.
    #[inline]
    pub(super) fn insert<R: Row>(&mut self, table: Table, key: u64, row: &R) -> Result<bool, Refused> {
        self.encoded.clear();
        row.encode(&mut self.encoded);
        let number = self.rows[table as usize].add(Box::from(self.encoded.as_slice()));
        self.add(table, key, number.ok_or(Refused::OutOfMemory)?)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use atrapos_workloads::tpcc::generator::{NAMES, last_name};

    use super::*;

    #[test]
    fn keys_and_names_are_distinct() {
        let keys =
            [key(1, 2, 3, 4), key(1, 2, 4, 3), key(2, 1, 3, 4), key(1, 2, u32::MAX, 4), key(1, 3, 0, 4)];
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
        let names: HashSet<u64> = (0..NAMES).map(|number| name_key(1, 1, &last_name(number))).collect();
        assert_eq!(names.len(), NAMES as usize);
    }
}
