//! Redo: the changes of a transaction as a record of the log.
//!
//! Owns: the kinds of records and their bytes, and the interface by which a commit logs its changes ([`CommitLog`]). Never: decides
//! when a commit is acknowledged.
//!
//! A record is a byte with its kind, and then what the kind says. Changes are encoded as in the WAL of the partitioned engine
//! (`docs/wal-format.md`): table, key and the row afterwards, or that there is none. Their versions are 0: the order of the
//! log is the order of the changes of a row.

#![cfg_attr(loom, expect(dead_code, reason = "models have no log of their own"))]

use atrapos_durability::wal::{push_put, push_remove};
use atrapos_partition::abort::Abort;
use atrapos_partition::schema::TableId;

/// The kinds of records. Numbers are for ever. Those from [`RecordKind::Opened`] on are of instances
/// ([`durable::distributed`](crate::durable)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RecordKind {
    /// The changes of a transaction that has committed.
    Commit = 1,
    /// Rows of the population, as changes.
    Rows = 2,
    /// The definitions of the tables, at the beginning of a population.
    Definitions = 3,
    /// The end of a population.
    End = 4,
    /// An instance was opened: its place in its deployment.
    Opened = 5,
    /// The part of a transaction in this instance is prepared: its identity, and its changes.
    Prepared = 6,
    /// A transaction over several instances, whose home this is, commits: its identity, and its changes here.
    Decided = 7,
    /// The part of a transaction in this instance has ended: its identity, and whether it has committed.
    Ended = 8,
    /// Everybody who has prepared these transactions has ended them: their identities.
    Forgotten = 9,
}

impl RecordKind {
    /// Divides a record into its kind and the rest; the error is a number that is no kind, or none.
    pub(crate) fn split(record: &[u8]) -> Result<(RecordKind, &[u8]), Option<u8>> {
        let (kind, rest) = record.split_first().ok_or(None)?;
        let kind = match kind {
            1 => RecordKind::Commit,
            2 => RecordKind::Rows,
            3 => RecordKind::Definitions,
            4 => RecordKind::End,
            5 => RecordKind::Opened,
            6 => RecordKind::Prepared,
            7 => RecordKind::Decided,
            8 => RecordKind::Ended,
            9 => RecordKind::Forgotten,
            other => return Err(Some(*other)),
        };
        Ok((kind, rest))
    }
}

/// A record that is being written.
#[derive(Debug, Default)]
pub(crate) struct RedoRecord {
    bytes: Vec<u8>,
}

impl RedoRecord {
    /// Begins a record, in the memory of the last one.
    #[inline]
    pub(crate) fn begin(&mut self, kind: RecordKind) {
        self.bytes.clear();
        self.bytes.push(kind as u8);
    }

    /// Adds that a key has this row from now on, or none.
    #[inline]
    pub(crate) fn change(&mut self, table: TableId, key: &[u8], row: Option<&[u8]>) {
        match row {
            Some(row) => self.put(table, key, row),
            None => self.remove(table, key),
        }
    }

    /// Adds that a key has this row from now on.
    #[inline]
    pub(crate) fn put(&mut self, table: TableId, key: &[u8], row: &[u8]) {
        push_put(&mut self.bytes, table.0, key, 0, row);
    }

    /// Adds that a key has no row from now on.
    #[inline]
    pub(crate) fn remove(&mut self, table: TableId, key: &[u8]) {
        push_remove(&mut self.bytes, table.0, key, 0);
    }

    /// Adds bytes as they are.
    #[cfg(not(loom))]
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The record so far.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The log of a commit, chosen statically: an engine in memory has none, and not an instruction for it.
pub(crate) trait CommitLog {
    /// Logs what `write` adds to a record, as the changes of a transaction that nothing but this can keep from committing. Called
    /// before anybody else may see one of them, so that a transaction that does is logged behind this one.
    ///
    /// # Errors
    /// Fails if the record is too long, or the log could not be written: nothing was logged.
    fn commit(&mut self, write: impl FnOnce(&mut RedoRecord)) -> Result<(), Abort>;
}

/// No log: data that live in memory alone.
#[derive(Debug)]
pub(crate) struct InMemory;

impl CommitLog for InMemory {
    #[inline(always)]
    fn commit(&mut self, _write: impl FnOnce(&mut RedoRecord)) -> Result<(), Abort> {
        Ok(())
    }
}
