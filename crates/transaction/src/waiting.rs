//! Waiting of threads that are not workers for results from workers.
//!
//! Owns: the two ways to wait. An ordinary thread sleeps. A thread that steps the workers itself, like that of a
//! simulation during a statement, makes steps until its result has arrived. Also the [`Token`] that such a thread and the tasks
//! of its workers take in turn. Never: chooses the steps.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use atrapos_partition::abort::Abort;
use atrapos_runtime::oneshot::Receiver;

/// A function that makes a step. Returns false if no further step is possible, so that waiting is in vain.
pub type Stepper = Rc<dyn Fn() -> bool>;

thread_local! {
    static STEPPER: RefCell<Option<Stepper>> = const { RefCell::new(None) };
}

/// Runs a function that waits for workers which this thread steps.
pub fn stepping<R>(stepper: Stepper, run: impl FnOnce() -> R) -> R {
    struct Reset(Option<Stepper>);
    impl Drop for Reset {
        fn drop(&mut self) {
            STEPPER.set(self.0.take());
        }
    }
    let _reset = Reset(STEPPER.replace(Some(stepper)));
    run()
}

/// Makes steps until `reached` returns a value. Returns `None` on a thread that steps no workers; an abort if no
/// further step is possible.
pub fn step_until<R>(mut reached: impl FnMut() -> Option<R>) -> Option<Result<R, Abort>> {
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

/// Waits for a value from a worker; returns an abort if the worker drops the sender.
pub fn wait<R: Send>(mut receiver: Receiver<R>) -> Result<R, Abort> {
    let sent = match step_until(|| receiver.try_take()) {
        Some(stepped) => stepped?,
        None => receiver.wait(),
    };
    sent.map_err(|_| Abort::shutting_down())
}

/// Waits like [`wait`], and calls `meanwhile` each time that `every` has passed; never on a thread that steps the workers, whose waits end.
pub fn wait_meanwhile<R: Send>(
    mut receiver: Receiver<R>,
    every: Duration,
    meanwhile: impl Fn(),
) -> Result<R, Abort> {
    if STEPPER.with_borrow(Option::is_some) {
        return wait(receiver);
    }
    loop {
        match receiver.wait_timeout(every) {
            Some(sent) => return sent.map_err(|_| Abort::shutting_down()),
            None => meanwhile(),
        }
    }
}

/// A lock of a thread that steps workers: held by one of their tasks, or by the thread while it waits for them.
#[derive(Clone, Debug, Default)]
pub struct Token(Rc<Cell<bool>>);

/// A token that was taken. Dropping it returns it.
#[derive(Debug)]
pub struct TakenToken(Token);

impl Drop for TakenToken {
    fn drop(&mut self) {
        self.0.0.set(false);
    }
}

impl Token {
    /// Takes the token, unless it is taken.
    #[must_use]
    pub fn try_take(&self) -> Option<TakenToken> {
        (!self.0.replace(true)).then(|| TakenToken(self.clone()))
    }

    /// Steps the workers until the token is free, and takes it.
    ///
    /// # Errors
    /// Fails if no further step is possible.
    pub fn take(&self) -> Result<TakenToken, Abort> {
        step_until(|| self.try_take()).unwrap_or_else(|| Err(Abort::shutting_down()))
    }
}
