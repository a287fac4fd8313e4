//! Actions: the pieces of a transaction that run where the data is.
//!
//! An [`Action`] names a table, a key or range in it, and an [`Operation`] to run there. The same action runs as a
//! direct call when the transaction's home owns the data, and as a message to the owner when it does not. It is plain
//! data and a closure, so it can travel; its result is returned by value.
//!
//! Operations are thin: the code that changes a row works on encoded keys and encoded rows ([`RowContext`], in
//! `context`), and is compiled once. The operations of typed tables (`point`, `range`) and those of tables known by
//! definition ([`crate::dynamic`]) encode and decode around it.
//!
//! A write to a table with indexes or enforced foreign keys has *dependents* (`dependent`): further actions, computed
//! at the row and run by the transaction in the same phase: after all its rows are changed, first the changes of index
//! entries, then the checks of foreign keys.

mod access;
mod batch;
mod chain;
mod context;
mod copy;
mod dependent;
mod erased;
mod kind;
mod locked;
mod point;
mod range;

use std::panic::{AssertUnwindSafe, catch_unwind};

use atrapos_runtime::WorkerId;
use atrapos_storage::lock::{LockMode, LockTarget};
use atrapos_storage::{KeyBuf, RowError};

use crate::abort::{Abort, AbortReason};
use crate::partition::{PartitionId, Tables};
use crate::range::KeyRange;
use crate::schema::{CatalogTag, TableId, TreeKind, corrupt};

pub use access::{RowAccess, refuse_duplicate};
pub use batch::{ActionBatch, BatchedOperation};
pub use chain::{Chain, Chained, Following};
pub(crate) use context::Replaced;
pub use context::{ChangeRow, RowChange, RowContext};
pub use copy::{CopiedRow, CopiedRows, CopyRows, LockKey, PutImage, ReplaceImage};
pub use dependent::{Dependent, DependentAction, follow_change};
pub use erased::ErasedOperation;
pub use kind::{AccessKind, OperationKind, ResultShape};
pub use locked::{DespiteLocks, UnlessLocked, WhenLocked};
pub use point::{Delete, Edit, Get, Insert, Lookup, Read, Update, View};
pub use range::{CollectKeys, Collected, DeleteRange, Fold, FoldKeys, Folded, RangeChanged, UpdateRange};

/// An operation on the data. Implemented by the operations of this crate only.
pub trait Operation: Send + 'static {
    /// The result that the transaction gets back.
    type Output: Send + 'static;
    /// Returns true if it only reads data that no transaction changes, so that it conflicts with nothing.
    #[doc(hidden)]
    #[inline]
    fn is_unlocked(&self) -> bool {
        false
    }
    /// Returns true if it follows from an earlier write: a closed table that is still maintained accepts it.
    #[doc(hidden)]
    #[inline]
    fn maintains(&self) -> bool {
        false
    }
    /// Returns what the operation does when a lock of another transaction conflicts with it.
    #[doc(hidden)]
    #[inline]
    fn when_locked(&self) -> WhenLocked {
        WhenLocked::Waits
    }
    /// The result of an operation that [gives up](WhenLocked::GivesUp).
    #[doc(hidden)]
    fn without_lock(self) -> Result<Self::Output, Abort>
    where
        Self: Sized,
    {
        Err(Abort::because(AbortReason::Misuse, "an operation that waits for its lock was not run"))
    }
    /// Runs the operation on the worker that owns the data.
    #[doc(hidden)]
    fn apply(self, at: &mut RowContext<'_>) -> Result<Self::Output, Abort>;
    /// Runs the operation on a copy of the row of its key, if it needs nothing but that; otherwise gives itself back.
    #[doc(hidden)]
    fn apply_to_copy(self, at: &mut CopiedRow<'_>) -> Result<Result<Self::Output, Abort>, Self>
    where
        Self: Sized,
    {
        let _ = at;
        Err(self)
    }
    /// Takes the action that follows from a result, if there is one that has not run: see [`Chain`].
    #[doc(hidden)]
    fn take_following(output: &mut Self::Output) -> Option<Action<ErasedOperation>>
    where
        Self: Sized,
    {
        let _ = output;
        None
    }
    /// Puts the action back that was taken, or its result.
    #[doc(hidden)]
    fn put_following(output: &mut Self::Output, following: Following)
    where
        Self: Sized,
    {
        let _ = output;
        drop(following);
    }
    /// The kind of the operation, for recordings.
    #[doc(hidden)]
    fn kind(&self) -> OperationKind;
    /// The result when the table was dropped, or is closed to the operation.
    #[doc(hidden)]
    fn without_table(self, missing: MissingTable) -> Result<Self::Output, Abort>
    where
        Self: Sized,
    {
        Err(missing.why)
    }
}

/// An operation on rows, whatever keeps them: a partition, or an engine of another design.
pub trait RowOperation: Operation {
    /// Runs the operation where the rows are.
    #[doc(hidden)]
    fn apply_to(self, at: &mut impl RowAccess) -> Result<Self::Output, Abort>;
}

/// A table or index that was dropped, or is closed to an access.
#[derive(Debug)]
pub struct MissingTable {
    why: Abort,
    /// True if it was dropped; otherwise it is closed, or another table has its rows.
    is_dropped: bool,
}

impl MissingTable {
    /// Returns the abort that reports the missing table.
    pub fn into_abort(self) -> Abort {
        self.why
    }

    /// Describes the missing `table` from the catalog and the partitions of this worker.
    #[cold]
    pub fn new(tables: &Tables, table: TableId) -> MissingTable {
        let meta = &tables.catalog.tables[table.at()];
        let is_gone = meta.kind == TreeKind::Dropped;
        let why = if is_gone {
            format!(
                "the table or index with number {} was dropped or changed since the transaction got its handle; get the handle again",
                table.0
            )
        } else {
            format!("'{}' is being dropped or changed; get its handle again in a moment", meta.name)
        };
        let is_dropped = tables.shards[table.at()].is_dropped_for_good(is_gone);
        MissingTable { why: Abort::explained(AbortReason::TableChanged, why), is_dropped }
    }
}

/// A piece of a transaction, to be run by `Tx::run`, `Tx::join` or
/// `Tx::join_all`.
#[derive(Debug)]
#[must_use = "an action does nothing until the transaction runs it"]
pub struct Action<O: Operation> {
    /// The data that it accesses, and how.
    #[doc(hidden)]
    pub request: Request,
    /// The operation it runs there.
    #[doc(hidden)]
    pub operation: O,
}

/// The access that an action asks for, whatever it does there: code on it is compiled once.
#[derive(Debug)]
#[doc(hidden)]
pub struct Request {
    /// The table or index it acts on.
    pub table: TableId,
    /// The database whose handle the action was made with.
    pub tag: CatalogTag,
    /// The lock that it takes.
    pub mode: LockMode,
    /// True if a range is walked from its end, so that its last part comes first.
    pub from_end: bool,
    /// The key or range that it acts on.
    pub target: LockTarget,
}

impl Request {
    /// The partition in which it begins, and the owner.
    #[inline]
    pub fn locate(&self, tables: &Tables) -> (PartitionId, WorkerId) {
        match &self.target {
            LockTarget::Key(key) => tables.locate(self.table, key),
            LockTarget::Range { .. } => self.locate_range(tables),
        }
    }

    #[inline(never)]
    fn locate_range(&self, tables: &Tables) -> (PartitionId, WorkerId) {
        match &self.target {
            LockTarget::Range { upper, .. } if self.from_end => {
                tables.locate_below(self.table, upper.as_deref())
            }
            _ => tables.locate(self.table, self.key()),
        }
    }

    /// The first key it touches.
    #[inline]
    pub fn key(&self) -> &KeyBuf {
        self.target.first_key()
    }
}

impl<O: Operation> Action<O> {
    /// Creates an action on one key.
    #[inline]
    #[doc(hidden)]
    pub fn on_key(table: TableId, tag: CatalogTag, mode: LockMode, key: KeyBuf, operation: O) -> Action<O> {
        let request = Request { table, tag, mode, from_end: false, target: LockTarget::Key(key) };
        Action { request, operation }
    }

    /// Creates an action that reads a range or changes rows of it. The part of the range beyond the partition in which
    /// it begins is left out, and reported in [`RowContext::left_out`].
    #[doc(hidden)]
    pub fn on_range(
        table: TableId,
        tag: CatalogTag,
        mode: LockMode,
        range: KeyRange,
        from_end: bool,
        operation: O,
    ) -> Action<O> {
        let target = LockTarget::Range { lower: range.lower, upper: range.upper };
        Action { request: Request { table, tag, mode, from_end, target }, operation }
    }
}

/// Runs a closure of the user inside engine code, and turns its panic into an abort of the transaction.
#[inline]
pub fn guarded<R>(closure: impl FnOnce() -> R) -> Result<R, Abort> {
    catch_unwind(AssertUnwindSafe(closure)).map_err(|panic| panicked(panic.as_ref()))
}

/// Creates the abort of a procedure that panicked.
#[cold]
pub fn panicked(panic: &(dyn std::any::Any + Send)) -> Abort {
    panicked_in("procedure", panic)
}

/// Creates the abort of a panicked closure of the user; `what` names the closure.
#[cold]
pub fn panicked_in(what: &str, panic: &(dyn std::any::Any + Send)) -> Abort {
    // A view of a damaged row has ended the closure that looked at it.
    if let Some(damage) = panic.downcast_ref::<RowError>() {
        return corrupt("row", damage);
    }
    let message = panic
        .downcast_ref::<&str>()
        .map(|message| (*message).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "with a value that is not text".to_owned());
    Abort::explained(AbortReason::Panic, format!("the {what} panicked: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_of_a_damaged_row_is_not_a_panic_of_the_user() {
        let damage = RowError::Malformed { row: "Account", column: "balance" };
        let abort = guarded(|| std::panic::resume_unwind(Box::new(damage))).map(|(): ()| ()).unwrap_err();
        assert_eq!(abort.reason(), AbortReason::Corruption);
        assert!(abort.to_string().contains("balance"));
    }
}
