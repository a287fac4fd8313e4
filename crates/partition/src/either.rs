//! Actions of two kinds in one phase: `Tx::join_all` runs them in one order, with one message to each owner.
//!
//! Owns: the operation that is one of two. Never: does anything beyond the operation it holds.

use crate::abort::Abort;
use crate::action::{Action, MissingTable, Operation, OperationKind, RowAccess, RowContext, RowOperation};

/// One of two operations, or the result of one of two. See [`Action::left`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Either<A, B> {
    /// The first.
    Left(A),
    /// The second.
    Right(B),
}

impl<A: Operation, B: Operation> Operation for Either<A, B> {
    type Output = Either<A::Output, B::Output>;

    #[inline]
    fn is_unlocked(&self) -> bool {
        match self {
            Either::Left(operation) => operation.is_unlocked(),
            Either::Right(operation) => operation.is_unlocked(),
        }
    }

    #[inline]
    fn maintains(&self) -> bool {
        match self {
            Either::Left(operation) => operation.maintains(),
            Either::Right(operation) => operation.maintains(),
        }
    }

    fn without_table(self, missing: MissingTable) -> Result<Self::Output, Abort> {
        match self {
            Either::Left(operation) => operation.without_table(missing).map(Either::Left),
            Either::Right(operation) => operation.without_table(missing).map(Either::Right),
        }
    }

    #[inline]
    fn apply(self, at: &mut RowContext<'_>) -> Result<Self::Output, Abort> {
        match self {
            Either::Left(operation) => operation.apply(at).map(Either::Left),
            Either::Right(operation) => operation.apply(at).map(Either::Right),
        }
    }

    fn kind(&self) -> OperationKind {
        match self {
            Either::Left(operation) => operation.kind(),
            Either::Right(operation) => operation.kind(),
        }
    }
}

impl<A: RowOperation, B: RowOperation> RowOperation for Either<A, B> {
    #[inline]
    fn apply_to(self, at: &mut impl RowAccess) -> Result<Self::Output, Abort> {
        match self {
            Either::Left(operation) => operation.apply_to(at).map(Either::Left),
            Either::Right(operation) => operation.apply_to(at).map(Either::Right),
        }
    }
}

impl<O: Operation> Action<O> {
    /// Returns the same action with its operation inside another one.
    #[inline]
    pub(crate) fn wrap<W: Operation>(self, wrap: impl FnOnce(O) -> W) -> Action<W> {
        Action { request: self.request, operation: wrap(self.operation) }
    }

    /// Returns the action as the first of two kinds, for example of reads and updates that `Tx::join_all` runs as one
    /// phase. Each has the same locks and effect as it has alone.
    #[inline]
    pub fn left<B: Operation>(self) -> Action<Either<O, B>> {
        self.wrap(Either::Left)
    }

    /// Returns the action as the second of two kinds. See [`left`](Action::left).
    #[inline]
    pub fn right<A: Operation>(self) -> Action<Either<A, O>> {
        self.wrap(Either::Right)
    }
}
