//! Actions that others follow: the second is made of the result of the first, where the first was run.
//!
//! A transaction that looks up on another worker what to change there waits once instead of twice: both actions travel in one message, as a
//! [`Chain`], whose result has the second, [to be run](Following::Due) or [run](Following::Done). The worker that has run the first runs
//! the second if its data is there; otherwise the transaction does.
//!
//! Owns: the making of the second action. Never: runs it: it takes its own lock, as any action does, so who runs the first looks for that.
//!
//! Invariant: a second action is run once, after the first, or the transaction aborts.

use atrapos_storage::KeyBuf;

use super::{
    Action, ErasedOperation, MissingTable, Operation, OperationKind, RowContext, WhenLocked, guarded,
};
use crate::abort::Abort;
use crate::schema::TableId;

/// An operation of whose result another action is made.
pub struct Chain<O, F> {
    first: O,
    then: F,
}

impl<O, F> std::fmt::Debug for Chain<O, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Chain")
    }
}

/// The result of an operation, and the action that follows from it.
#[derive(Debug)]
pub struct Chained<T> {
    /// The result of the first.
    pub first: T,
    /// The second action, if there is one.
    pub second: Option<Following>,
}

/// An action that follows from the result of another.
#[derive(Debug)]
pub enum Following {
    /// It is to be run.
    Due(Action<ErasedOperation>),
    /// It was run: its table, the first key that it was for, and the result.
    Done(TableId, KeyBuf, ErasedOperation),
}

/// Makes the second action of the result of the first.
fn chained<T, B, F>(mut first: T, then: F) -> Result<Chained<T>, Abort>
where
    B: Operation,
    F: FnOnce(&mut T) -> Option<Action<B>>,
{
    let second = guarded(|| then(&mut first))?;
    Ok(Chained { first, second: second.map(|second| Following::Due(second.erase())) })
}

impl<O, B, F> Operation for Chain<O, F>
where
    O: Operation,
    B: Operation,
    F: FnOnce(&mut O::Output) -> Option<Action<B>> + Send + 'static,
{
    type Output = Chained<O::Output>;

    fn is_unlocked(&self) -> bool {
        self.first.is_unlocked()
    }

    fn maintains(&self) -> bool {
        self.first.maintains()
    }

    fn when_locked(&self) -> WhenLocked {
        self.first.when_locked()
    }

    fn without_lock(self) -> Result<Chained<O::Output>, Abort> {
        chained(self.first.without_lock()?, self.then)
    }

    fn apply(self, at: &mut RowContext<'_>) -> Result<Chained<O::Output>, Abort> {
        chained(self.first.apply(at)?, self.then)
    }

    fn take_following(output: &mut Chained<O::Output>) -> Option<Action<ErasedOperation>> {
        match output.second.take() {
            Some(Following::Due(action)) => Some(action),
            done => {
                output.second = done;
                None
            }
        }
    }

    fn put_following(output: &mut Chained<O::Output>, following: Following) {
        output.second = Some(following);
    }

    fn kind(&self) -> OperationKind {
        self.first.kind()
    }

    fn without_table(self, missing: MissingTable) -> Result<Chained<O::Output>, Abort> {
        chained(self.first.without_table(missing)?, self.then)
    }
}

impl<O: Operation> Action<O> {
    /// Has another action follow, which `then` makes of the result.
    #[doc(hidden)]
    pub fn followed_by<B, F>(self, then: F) -> Action<Chain<O, F>>
    where
        B: Operation,
        F: FnOnce(&mut O::Output) -> Option<Action<B>> + Send + 'static,
    {
        self.wrap(|first| Chain { first, then })
    }
}
