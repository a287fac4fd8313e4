//! The interface of a running transaction to the operations on its rows: encoded keys and encoded rows.
//!
//! Typed operations, indexes and foreign keys are built on it once, for all engines with shared data.

use std::ops::ControlFlow;

use atrapos_partition::abort::Abort;
use atrapos_partition::schema::TableId;

#[cfg(not(loom))]
use crate::durable::ClientLog;

/// The use that a transaction is going to make of a row that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// It only reads the row.
    Read,
    /// It is going to change the row: an engine that locks takes the exclusive lock at once.
    Write,
}

/// Looks at the key and the row of an entry, and says whether to go on.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, Abort> + 'a;

/// A running transaction of an engine with shared data. Tables and indexes are trees of encoded rows in the order of their
/// encoded keys; the row of an index entry is the primary key that it leads to.
///
/// Transactions are strictly serializable, absent rows and ranges included: what a transaction has found absent stays so
/// until it ends, or it aborts. It sees what it has written itself. An error dooms it: whoever runs it ends it by aborting. The
/// methods block the thread while they wait.
pub trait RowTransaction {
    /// Reads the row of a key; `None` if there is none. The bytes are a copy of the transaction's own.
    ///
    /// # Errors
    /// Fails if the transaction has to abort, for instance because of a deadlock.
    fn read(&mut self, table: TableId, key: &[u8], intent: Intent) -> Result<Option<&[u8]>, Abort>;

    /// Inserts a row; returns false if the key is taken.
    ///
    /// # Errors
    /// Fails if the transaction has to abort, or the row or key is too long.
    fn insert(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Result<bool, Abort>;

    /// Replaces a row that the transaction has read with [`Intent::Write`], by one of the same or another length.
    ///
    /// # Errors
    /// Fails if the transaction has to abort, or the row is too long.
    fn replace(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Result<(), Abort>;

    /// Removes the row of a key; returns false if there is none.
    ///
    /// # Errors
    /// Fails if the transaction has to abort.
    fn remove(&mut self, table: TableId, key: &[u8]) -> Result<bool, Abort>;

    /// Visits the rows whose keys are at least `lower` and below `upper` (`None`: to the end of the table), in the order of their
    /// keys or, `backward`, in the opposite one, until `visit` breaks. Returns true if it did. Only what was visited, with
    /// the gaps between, is protected from changes by others.
    ///
    /// # Errors
    /// Fails if the transaction has to abort, or `visit` fails.
    fn scan(
        &mut self,
        table: TableId,
        range: (&[u8], Option<&[u8]>),
        backward: bool,
        visit: &mut Visit<'_>,
    ) -> Result<bool, Abort>;
}

/// Looks at a change of a transaction: the key, and its row from now on, if there is one.
pub type VisitChange<'a> = dyn FnMut(TableId, &[u8], Option<&[u8]>) + 'a;

/// A running transaction whose end is made in steps, so that it can be the part of a transaction over several instances. Dropped
/// before its end, it aborts.
#[cfg(not(loom))]
pub trait Branch: RowTransaction {
    /// Returns true if it has changed rows.
    fn has_changes(&self) -> bool;

    /// Returns true if it protects what it has read by validation, and not by locks.
    fn is_optimistic(&self) -> bool;

    /// Replaces a row that it has read with [`Intent::Write`] before, without waiting for anybody.
    ///
    /// # Errors
    /// Fails if the transaction has to abort, as the row is not what it was.
    fn replace_read(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Result<(), Abort>;

    /// Locks the rows that it is going to write, without waiting for anybody. No operation follows.
    ///
    /// # Errors
    /// Fails if the transaction has to abort.
    fn lock(&mut self) -> Result<(), Abort>;

    /// Validates that everything it has read is as it was. Before a commit, this follows the locks of all its parts.
    ///
    /// # Errors
    /// Fails if the transaction has to abort.
    fn validate(&mut self) -> Result<(), Abort>;

    /// Visits what it has changed, whose rows are locked.
    fn for_each_change(&mut self, visit: &mut VisitChange<'_>);

    /// Commits what was locked and validated, and logged if there is a log.
    fn commit(&mut self);

    /// Locks, validates, logs and commits at once, where it has no other parts.
    ///
    /// # Errors
    /// Fails if the transaction has to abort, which it has then.
    fn commit_alone(&mut self, log: Option<&mut ClientLog<'_>>) -> Result<(), Abort>;

    /// Aborts: nothing of it remains.
    fn abort(&mut self, why: &Abort);
}
