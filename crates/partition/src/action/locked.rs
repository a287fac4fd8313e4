//! Operations that do not wait for locks: one gives up, the other reads in spite of them.
//!
//! Owns: what becomes of an operation when a lock of another transaction conflicts. Never: looks for locks; the transaction does.
//!
//! An operation that gives up takes its lock like any other when it is free. One that reads in spite of locks takes none, and may
//! see what is undone later: its result is a hint where to look, and nothing else.

use super::{Action, MissingTable, Operation, OperationKind, RowContext};
use crate::abort::Abort;

/// The choice of an operation whose lock is not free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenLocked {
    /// It waits.
    #[default]
    Waits,
    /// It does not run.
    GivesUp,
    /// It runs without a lock.
    Ignores,
}

/// An operation whose result is `None` if its lock is not free. See [`Action::unless_locked`].
#[derive(Debug)]
pub struct UnlessLocked<O>(O);

impl<O: Operation> Operation for UnlessLocked<O> {
    type Output = Option<O::Output>;

    fn when_locked(&self) -> WhenLocked {
        WhenLocked::GivesUp
    }

    fn without_lock(self) -> Result<Option<O::Output>, Abort> {
        Ok(None)
    }

    fn is_unlocked(&self) -> bool {
        self.0.is_unlocked()
    }

    fn maintains(&self) -> bool {
        self.0.maintains()
    }

    fn apply(self, at: &mut RowContext<'_>) -> Result<Option<O::Output>, Abort> {
        self.0.apply(at).map(Some)
    }

    fn kind(&self) -> OperationKind {
        self.0.kind()
    }

    fn without_table(self, missing: MissingTable) -> Result<Option<O::Output>, Abort> {
        self.0.without_table(missing).map(Some)
    }
}

/// An operation that reads whatever is there, committed or not. See [`Action::despite_locks`].
#[derive(Debug)]
pub struct DespiteLocks<O>(O);

impl<O: Operation> Operation for DespiteLocks<O> {
    type Output = O::Output;

    fn when_locked(&self) -> WhenLocked {
        WhenLocked::Ignores
    }

    fn is_unlocked(&self) -> bool {
        true
    }

    fn maintains(&self) -> bool {
        self.0.maintains()
    }

    fn apply(self, at: &mut RowContext<'_>) -> Result<O::Output, Abort> {
        self.0.apply(at)
    }

    fn kind(&self) -> OperationKind {
        self.0.kind()
    }

    fn without_table(self, missing: MissingTable) -> Result<O::Output, Abort> {
        self.0.without_table(missing)
    }
}

impl<O: Operation> Action<O> {
    /// Returns the action with a result of `None` instead of a wait, if a lock of another transaction conflicts with it. When it
    /// runs, it takes its lock as always.
    pub fn unless_locked(self) -> Action<UnlessLocked<O>> {
        self.wrap(UnlessLocked)
    }

    /// Returns the action, which only reads, so that it neither waits nor takes a lock. It may read changes that are undone later,
    /// so a transaction that uses it for more than a hint is not serializable.
    pub fn despite_locks(self) -> Action<DespiteLocks<O>> {
        self.wrap(DespiteLocks)
    }
}
