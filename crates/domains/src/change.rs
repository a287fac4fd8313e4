//! Changes under way: whoever asked for one can wait for it, or look.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::domains::{DomainError, Inner};
use crate::worker;

/// A change of domains that workers are carrying out while clients go on.
#[derive(Debug)]
#[must_use = "a change goes on by itself; wait for it where what follows needs it"]
pub struct Change {
    open: Arc<Open>,
    domains: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Open {
    steps: Mutex<usize>,
    ended: Condvar,
}

/// One step of a change; dropped once it is done, or will never be.
#[derive(Debug)]
pub(crate) struct Done {
    open: Arc<Open>,
    step: Option<Step>,
}

/// The number of steps of all changes that are not done: until there are none, messages and routes may lead to where something was.
#[derive(Debug, Default)]
pub(crate) struct Steps(Arc<AtomicUsize>);

/// One of them.
#[derive(Debug)]
pub(crate) struct Step(Arc<AtomicUsize>);

impl Steps {
    pub(crate) fn begin(&self) -> Step {
        self.0.fetch_add(1, Ordering::AcqRel);
        Step(Arc::clone(&self.0))
    }

    /// Returns whether every step is done that was begun before.
    pub(crate) fn are_done(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Change {
    pub(crate) fn new(domains: &Arc<Inner>) -> Self {
        Self { open: Arc::default(), domains: Arc::clone(domains) }
    }

    /// One more step.
    pub(crate) fn step(&self) -> Done {
        *self.open.steps.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Done { open: Arc::clone(&self.open), step: Some(self.domains.steps.begin()) }
    }

    /// Returns whether all its steps are done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        *self.open.steps.lock().unwrap_or_else(PoisonError::into_inner) == 0
    }

    /// Waits until all its steps are done. Not to be called where the workers are stepped by a pump of this thread.
    ///
    /// # Errors
    /// [`DomainError::WouldDeadlock`] inside a task of these domains, unless it is done already: its worker may have a step to do, or others
    /// may wait for it with theirs. The change goes on.
    pub fn wait(self) -> Result<(), DomainError> {
        if !self.is_done() && worker::running(&self.domains).is_some() {
            return Err(DomainError::WouldDeadlock);
        }
        let steps = self.open.steps.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.open.ended.wait_while(steps, |steps| *steps > 0).unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }
}

impl Change {
    /// Waits until all its steps are done, but no longer than `patience`; returns whether they are. The change goes on.
    pub(crate) fn wait_at_most(&self, patience: Duration) -> bool {
        let steps = self.open.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.open.ended.wait_timeout_while(steps, patience, |steps| *steps > 0);
        *waited.unwrap_or_else(PoisonError::into_inner).0 == 0
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        // First: whoever waits for the change finds its steps done.
        drop(self.step.take());
        let mut steps = self.open.steps.lock().unwrap_or_else(PoisonError::into_inner);
        *steps -= 1;
        if *steps == 0 {
            self.open.ended.notify_all();
        }
    }
}
