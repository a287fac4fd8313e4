//! Actions of one phase that run at several places, with the types of their operations erased for all of them together.
//!
//! The operations are in one box, in which each is replaced by its result. A worker that is sent the actions on its data gets
//! the whole batch, and returns it: nothing is moved or allocated for each action.
//!
//! Invariant: an operation runs once, in the batch or taken out of it. Its place has its result then, or nothing.

use std::any::Any;

use atrapos_storage::lock::LockTarget;
use atrapos_storage::{KeyBuf, prefetch_value};

use super::erased::{AnyOperation, Content};
use super::{Action, CopiedRow, ErasedOperation, MissingTable, Operation, Request, RowContext};
use crate::abort::Abort;

/// Actions that run in one phase. See the module's introduction.
pub struct ActionBatch {
    requests: Vec<Request>,
    operations: Box<dyn AnyOperations>,
}

impl std::fmt::Debug for ActionBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ActionBatch").field("requests", &self.requests).finish_non_exhaustive()
    }
}

trait AnyOperations: Send {
    fn get(&self, at: usize) -> &dyn AnyOperation;
    fn get_mut(&mut self, at: usize) -> &mut dyn AnyOperation;
    fn take(&mut self, at: usize) -> ErasedOperation;
    fn put_back(&mut self, at: usize, done: ErasedOperation);
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl<O: Operation> AnyOperations for Vec<Content<O>> {
    fn get(&self, at: usize) -> &dyn AnyOperation {
        &self[at]
    }

    fn get_mut(&mut self, at: usize) -> &mut dyn AnyOperation {
        &mut self[at]
    }

    fn take(&mut self, at: usize) -> ErasedOperation {
        ErasedOperation::of(self[at].take_operation())
    }

    fn put_back(&mut self, at: usize, done: ErasedOperation) {
        self[at] = Content::Output(done.into_output::<O>());
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl ActionBatch {
    /// Creates a batch of the actions, in their order.
    pub fn new<O: Operation>(actions: impl Iterator<Item = Action<O>>) -> ActionBatch {
        let count = actions.size_hint().0;
        let (mut requests, mut operations) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for Action { request, operation } in actions {
            requests.push(request);
            operations.push(Content::Operation(operation));
        }
        ActionBatch { requests, operations: Box::new(operations) }
    }

    /// Creates a batch of operations, each with its request, in their order.
    pub fn of_parts<O: Operation>(
        requests: Vec<Request>,
        operations: impl Iterator<Item = O>,
    ) -> ActionBatch {
        let operations: Vec<Content<O>> = operations.map(Content::Operation).collect();
        debug_assert_eq!(requests.len(), operations.len(), "each operation has a request");
        ActionBatch { requests, operations: Box::new(operations) }
    }

    /// Returns what the actions ask for, in their order.
    #[inline]
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Returns [`Operation::maintains`] of an operation that has not run.
    #[inline]
    pub fn maintains(&self, at: usize) -> bool {
        self.operations.get(at).maintains()
    }

    /// Returns the bytes of an operation or its result, without what is elsewhere in memory.
    #[must_use]
    pub fn bytes(&self, at: usize) -> usize {
        size_of_val(self.operations.get(at))
    }

    /// Asks for the memory of an action, which another worker has written.
    #[inline]
    pub fn prefetch(&self, at: usize) {
        prefetch_value(&self.requests[at]);
        prefetch_value(self.operations.get(at));
    }

    /// Returns an action that has not run, to be run in place.
    #[inline]
    pub fn action(&mut self, at: usize) -> (&mut Request, BatchedOperation<'_>) {
        (&mut self.requests[at], BatchedOperation(self.operations.get_mut(at)))
    }

    /// Takes out an action that has not run. Its result is [put back](ActionBatch::put_back).
    pub fn take(&mut self, at: usize) -> Action<ErasedOperation> {
        let Request { table, tag, mode, from_end, ref mut target } = self.requests[at];
        let target = std::mem::replace(target, LockTarget::Key(KeyBuf::new()));
        let request = Request { table, tag, mode, from_end, target };
        Action { request, operation: self.operations.take(at) }
    }

    /// Puts the result of an action back that was taken out.
    pub fn put_back(&mut self, at: usize, done: ErasedOperation) {
        self.operations.put_back(at, done);
    }

    /// Returns the results of the operations, which were all of the type `O` and have all run, in the order of the actions.
    pub fn into_outputs<O: Operation>(self) -> impl Iterator<Item = O::Output> {
        let operations = self.operations.into_any().downcast::<Vec<Content<O>>>();
        let operations = operations.unwrap_or_else(|_| unreachable!("a batch is asked for its own type"));
        operations.into_iter().map(Content::into_output)
    }
}

/// An operation of a batch, to be run in place.
pub struct BatchedOperation<'a>(&'a mut dyn AnyOperation);

impl BatchedOperation<'_> {
    /// Returns [`Operation::is_unlocked`].
    #[inline]
    pub fn is_unlocked(&self) -> bool {
        self.0.is_unlocked()
    }

    /// Returns [`Operation::maintains`].
    #[inline]
    pub fn maintains(&self) -> bool {
        self.0.maintains()
    }

    /// Runs the operation and keeps its result.
    ///
    /// # Errors
    /// Those of the operation.
    #[inline]
    pub fn apply(self, at: &mut RowContext<'_>) -> Result<(), Abort> {
        self.0.apply(at)
    }

    /// Runs the operation on a copy of its row, and keeps its result; returns `None`, and it has not run, if it needs more than that.
    #[inline]
    pub fn apply_to_copy(self, at: &mut CopiedRow<'_>) -> Option<Result<(), Abort>> {
        self.0.apply_to_copy(at)
    }

    /// Completes the operation without its table, and keeps the result.
    ///
    /// # Errors
    /// Those of the operation.
    pub fn without_table(self, missing: MissingTable) -> Result<(), Abort> {
        self.0.without_table(missing)
    }
}

impl std::fmt::Debug for BatchedOperation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BatchedOperation")
    }
}
