//! How a thread that is no worker waits for what workers do.
//!
//! Owns: the two ways to wait. A thread beside those of the workers sleeps. One that steps the workers itself, as that of a
//! simulation in the middle of a statement, makes steps until what it waits for is there. And the [`Token`] that such a thread and tasks of its workers take turns with.
//! Never: decides which steps.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use atrapos_runtime::oneshot::Receiver;

use crate::abort::Abort;

/// Makes a step. Returns false when there will be no other: the thread waits in vain.
pub(crate) type Stepper = Rc<dyn Fn() -> bool>;

thread_local! {
    static STEPPER: RefCell<Option<Stepper>> = const { RefCell::new(None) };
}

/// Runs something that waits for workers that this thread steps.
pub(crate) fn stepping<R>(stepper: Stepper, run: impl FnOnce() -> R) -> R {
    struct Reset(Option<Stepper>);
    impl Drop for Reset {
        fn drop(&mut self) {
            STEPPER.set(self.0.take());
        }
    }
    let _reset = Reset(STEPPER.replace(Some(stepper)));
    run()
}

/// Makes steps until something is there. Nothing on a thread that steps no workers; an abort when there will be no other step.
pub(crate) fn step_until<R>(mut reached: impl FnMut() -> Option<R>) -> Option<Result<R, Abort>> {
    let stepper = STEPPER.with_borrow(Option::clone)?;
    loop {
        if let Some(reached) = reached() {
            return Some(Ok(reached));
        }
        if !stepper() {
            return Some(Err(Abort::shutting_down()));
        }
    }
}

/// Waits for what a worker sends; an abort when it does not.
pub(crate) fn wait<R: Send>(mut receiver: Receiver<R>) -> Result<R, Abort> {
    let sent = match step_until(|| receiver.try_take()) {
        Some(stepped) => stepped?,
        None => receiver.wait(),
    };
    sent.map_err(|_| Abort::shutting_down())
}

/// What one at a time has on a thread that steps workers: a task of theirs, or who waits for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Token(Rc<Cell<bool>>);

/// A token that was taken. It is there for the next one when this is dropped.
#[derive(Debug)]
pub(crate) struct TakenToken(Token);

impl Drop for TakenToken {
    fn drop(&mut self) {
        self.0.0.set(false);
    }
}

impl Token {
    /// Takes the token, unless somebody has it.
    pub(crate) fn try_take(&self) -> Option<TakenToken> {
        (!self.0.replace(true)).then(|| TakenToken(self.clone()))
    }

    /// Makes steps until the token is there, and takes it.
    pub(crate) fn take(&self) -> Result<TakenToken, Abort> {
        step_until(|| self.try_take()).unwrap_or_else(|| Err(Abort::shutting_down()))
    }
}
