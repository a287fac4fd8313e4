//! Operations whose types are erased: those that are sent to other workers, and those that wait.
//!
//! The code that sends an action to the owner of its data, waits for its lock, forwards it and replies is the same for
//! all operations, and is compiled once. The operation travels in a box, and its result comes back in the same box to
//! the code that knows the types of both.

use std::any::Any;

use super::{Action, CopiedRow, Following, MissingTable, Operation, RowContext, WhenLocked};
use crate::abort::Abort;
use crate::action::OperationKind;

/// An operation, or its result after it has run. See the module's introduction.
pub struct ErasedOperation(Box<dyn AnyOperation>);

impl std::fmt::Debug for ErasedOperation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ErasedOperation")
    }
}

pub(super) trait AnyOperation: Send {
    fn is_unlocked(&self) -> bool;
    fn maintains(&self) -> bool;
    fn kind(&self) -> OperationKind;
    fn when_locked(&self) -> WhenLocked;
    /// Completes it without its lock, and keeps the result.
    fn without_lock(&mut self) -> Result<(), Abort>;
    /// Runs it, and keeps its result.
    fn apply(&mut self, at: &mut RowContext<'_>) -> Result<(), Abort>;
    /// Runs it on a copy of its row, and keeps the result; returns `None`, and has not run, if it needs more.
    fn apply_to_copy(&mut self, at: &mut CopiedRow<'_>) -> Option<Result<(), Abort>>;
    /// Completes it without its table, and keeps the result.
    fn without_table(&mut self, missing: MissingTable) -> Result<(), Abort>;
    /// Takes the action that follows from its result: see [`Operation::take_following`].
    fn take_following(&mut self) -> Option<Action<ErasedOperation>>;
    fn put_following(&mut self, following: Following);
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

/// The content of the box.
pub(super) enum Content<O: Operation> {
    Operation(O),
    Output(O::Output),
    /// Empty: the operation has failed, or is being run.
    Nothing,
}

impl<O: Operation> Content<O> {
    fn operation(&self) -> &O {
        match self {
            Content::Operation(operation) => operation,
            _ => unreachable!("an operation is asked before it runs"),
        }
    }

    pub(super) fn into_output(self) -> O::Output {
        match self {
            Content::Output(output) => output,
            _ => unreachable!("an operation that has run has a result"),
        }
    }

    pub(super) fn take_operation(&mut self) -> O {
        match std::mem::replace(self, Content::Nothing) {
            Content::Operation(operation) => operation,
            _ => unreachable!("an operation runs once"),
        }
    }
}

impl<O: Operation> AnyOperation for Content<O> {
    fn is_unlocked(&self) -> bool {
        self.operation().is_unlocked()
    }

    fn maintains(&self) -> bool {
        self.operation().maintains()
    }

    fn kind(&self) -> OperationKind {
        self.operation().kind()
    }

    fn when_locked(&self) -> WhenLocked {
        self.operation().when_locked()
    }

    fn without_lock(&mut self) -> Result<(), Abort> {
        *self = Content::Output(self.take_operation().without_lock()?);
        Ok(())
    }

    fn apply(&mut self, at: &mut RowContext<'_>) -> Result<(), Abort> {
        *self = Content::Output(self.take_operation().apply(at)?);
        Ok(())
    }

    fn apply_to_copy(&mut self, at: &mut CopiedRow<'_>) -> Option<Result<(), Abort>> {
        match self.take_operation().apply_to_copy(at) {
            Ok(Ok(output)) => {
                *self = Content::Output(output);
                Some(Ok(()))
            }
            Ok(Err(abort)) => Some(Err(abort)),
            Err(operation) => {
                *self = Content::Operation(operation);
                None
            }
        }
    }

    fn without_table(&mut self, missing: MissingTable) -> Result<(), Abort> {
        *self = Content::Output(self.take_operation().without_table(missing)?);
        Ok(())
    }

    fn take_following(&mut self) -> Option<Action<ErasedOperation>> {
        match self {
            Content::Output(output) => O::take_following(output),
            _ => None,
        }
    }

    fn put_following(&mut self, following: Following) {
        if let Content::Output(output) = self {
            O::put_following(output, following);
        }
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl ErasedOperation {
    /// Returns the result of the operation, which was an `O` and has run.
    pub fn into_output<O: Operation>(self) -> O::Output {
        match self.0.into_any().downcast::<Content<O>>() {
            Ok(content) => content.into_output(),
            Err(_) => unreachable!("the result of an operation is asked for with its own type"),
        }
    }

    /// Takes the action that follows from the result, if there is one that has not run.
    pub fn take_following(&mut self) -> Option<Action<ErasedOperation>> {
        self.0.take_following()
    }

    /// Puts the action back that was taken, or its result.
    pub fn put_following(&mut self, following: Following) {
        self.0.put_following(following);
    }

    /// Returns the bytes of the operation or its result, without what is elsewhere in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    pub(super) fn of<O: Operation>(operation: O) -> ErasedOperation {
        ErasedOperation(Box::new(Content::Operation(operation)))
    }
}

impl Operation for ErasedOperation {
    type Output = ErasedOperation;

    fn is_unlocked(&self) -> bool {
        self.0.is_unlocked()
    }

    fn maintains(&self) -> bool {
        self.0.maintains()
    }

    fn when_locked(&self) -> WhenLocked {
        self.0.when_locked()
    }

    fn without_lock(mut self) -> Result<ErasedOperation, Abort> {
        self.0.without_lock()?;
        Ok(self)
    }

    fn apply(mut self, at: &mut RowContext<'_>) -> Result<ErasedOperation, Abort> {
        self.0.apply(at)?;
        Ok(self)
    }

    fn apply_to_copy(mut self, at: &mut CopiedRow<'_>) -> Result<Result<ErasedOperation, Abort>, Self> {
        match self.0.apply_to_copy(at) {
            Some(done) => Ok(done.map(|()| self)),
            None => Err(self),
        }
    }

    fn kind(&self) -> OperationKind {
        self.0.kind()
    }

    fn without_table(mut self, missing: MissingTable) -> Result<ErasedOperation, Abort> {
        self.0.without_table(missing)?;
        Ok(self)
    }
}

impl<O: Operation> Action<O> {
    /// Erases the type of the action's operation.
    #[doc(hidden)]
    pub fn erase(self) -> Action<ErasedOperation> {
        self.wrap(ErasedOperation::of)
    }
}
