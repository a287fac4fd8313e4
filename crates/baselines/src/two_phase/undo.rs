//! The undo log of a transaction: what its rows were, in the order of the changes.
//!
//! Owns: keys and rows, one behind the other. Never: changes a tree.

use atrapos_partition::schema::TableId;

/// The state to which a change of the row of a key is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before<'a> {
    /// There was no record.
    Nothing,
    /// The row was this one.
    Row(&'a [u8]),
    /// The transaction had removed the row.
    Removed,
}

/// The kinds of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Nothing,
    Row,
    Removed,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    table: TableId,
    kind: Kind,
    /// True if the change was a removal.
    is_removal: bool,
    key_start: usize,
    row_start: usize,
}

/// The log.
#[derive(Debug, Default)]
pub(super) struct Undo {
    entries: Vec<Entry>,
    bytes: Vec<u8>,
}

impl Undo {
    /// Adds what a key had before a change, which is a removal if it `removes`.
    pub(super) fn add(&mut self, table: TableId, key: &[u8], before: Before<'_>, is_removal: bool) {
        let key_start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let row_start = self.bytes.len();
        let kind = match before {
            Before::Nothing => Kind::Nothing,
            Before::Removed => Kind::Removed,
            Before::Row(row) => {
                self.bytes.extend_from_slice(row);
                Kind::Row
            }
        };
        self.entries.push(Entry { table, kind, is_removal, key_start, row_start });
    }

    /// The number of changes.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The table and key of a change, and what the key had before.
    pub(super) fn get(&self, at: usize) -> (TableId, &[u8], Before<'_>) {
        let entry = self.entries[at];
        let end = self.entries.get(at + 1).map_or(self.bytes.len(), |next| next.key_start);
        let key = &self.bytes[entry.key_start..entry.row_start];
        let before = match entry.kind {
            Kind::Nothing => Before::Nothing,
            Kind::Removed => Before::Removed,
            Kind::Row => Before::Row(&self.bytes[entry.row_start..end]),
        };
        (entry.table, key, before)
    }

    /// The tables and keys of removals.
    pub(super) fn removals(&self) -> impl Iterator<Item = (TableId, &[u8])> {
        let removals = self.entries.iter().filter(|entry| entry.is_removal);
        removals.map(|entry| (entry.table, &self.bytes[entry.key_start..entry.row_start]))
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
    }
}
