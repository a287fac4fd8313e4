//! Bursts: many tasks on one structure under way, with slots set aside for them.
//!
//! Owns: the ring of a burst, and the results that it still has. A burst in managed mode (Virtual domains §6) goes on until it is
//! full, then takes the oldest result for each further task.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::block::spin;
use crate::client::{Client, Refused, Why, lease, take_blocking};
use crate::domains::Inner;
use crate::operation::{Operation, Single};
use crate::ring::Ring;
use crate::structures::{Route, Target};
use crate::task::{Closure, Job, TaskError};

/// The size that did best on average in the paper.
pub const BURST_DEFAULT: usize = 14;
/// Tasks of a burst at most.
pub const BURST_MAX: usize = 64;

/// Tasks on one target whose results come in the order of submission.
#[derive(Debug)]
pub struct Burst<T, R> {
    inner: Arc<Inner>,
    target: T,
    ring: Ring,
    /// The ring's worker, or domain, when it was leased.
    routes: Vec<Route>,
    /// The seat of the next task, and the number of tasks under way before it.
    next: usize,
    under_way: usize,
    /// Results of a ring that was given back.
    kept: VecDeque<Result<R, TaskError>>,
    of: PhantomData<fn() -> R>,
}

fn routes_of<T: Target>(target: &T) -> Vec<Route> {
    let mut routes = Vec::new();
    target.each_route(&mut |route| routes.push(route));
    routes
}

impl Client {
    /// Begins a burst of up to `size` tasks under way (1 to [`BURST_MAX`]); its slots are its own.
    ///
    /// # Errors
    /// [`Why`] it cannot: no slots are left, or the structure is gone; or it is called inside a task.
    pub fn burst<T: Target + Clone, R: Send + 'static>(
        &mut self,
        target: &T,
        size: usize,
    ) -> Result<Burst<T, R>, Why> {
        let routes = routes_of(target);
        let worker = self.worker_of(target)?;
        let inner = Arc::clone(self.inner());
        let ring = lease(&inner, worker, size.clamp(1, BURST_MAX), None)?;
        let (target, kept, of) = (target.clone(), VecDeque::new(), PhantomData);
        Ok(Burst { inner, target, ring, routes, next: 0, under_way: 0, kept, of })
    }
}

impl<T: Target + Clone, R: Send + 'static> Burst<T, R> {
    /// Tasks whose results are not taken.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.len() + self.under_way
    }

    /// Whether every result is taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Submits a task if there is room. As for calls, its result cannot borrow from the structure:
    ///
    /// ```compile_fail
    /// # use atrapos_domains::{Burst, Owned};
    /// fn first<'s>(burst: &mut Burst<Owned<Vec<String>>, &'s String>) {
    ///     let _ = burst.try_push(|list: &mut Vec<String>| &list[0]);
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Refused`] with the closure: [`Why::Full`], or the domains are shutting down.
    #[inline]
    pub fn try_push<F>(&mut self, task: F) -> Result<(), Refused<F>>
    where
        F: for<'a> FnOnce(T::Access<'a>) -> R + Send + 'static,
    {
        if let Err(why) = self.ready() {
            return Err(Refused { task, why });
        }
        self.submit(Closure(task));
        Ok(())
    }

    /// Submits an operation if there is room; the worker runs it together with those of its type that come right behind it.
    ///
    /// # Errors
    /// As for [`try_push`](Self::try_push).
    #[inline]
    pub fn try_push_operation<O: Operation<T, Reply = R>>(&mut self, operation: O) -> Result<(), Refused<O>> {
        if let Err(why) = self.ready() {
            return Err(Refused { task: operation, why });
        }
        self.submit(Single(operation));
        Ok(())
    }

    /// Makes the next seat free, or says why it is not.
    #[inline]
    fn ready(&mut self) -> Result<(), Why> {
        if self.inner.is_closing() {
            return Err(Why::ShutDown);
        }
        if self.under_way == self.ring.len() {
            return Err(Why::Full);
        }
        if self.has_moved() { self.follow() } else { Ok(()) }
    }

    /// Submits a job in the next seat, which is free.
    #[inline]
    fn submit<J: Job<T>>(&mut self, job: J) {
        self.ring.submit::<T, J>(self.next, self.target.keys(), job);
        self.next = if self.next + 1 == self.ring.len() { 0 } else { self.next + 1 };
        self.under_way += 1;
    }

    /// Submits a task; if the burst is full, waits for the oldest result first and returns it.
    ///
    /// # Errors
    /// [`Why`] the task was not submitted: the domains are shutting down, or the structure was removed.
    #[inline]
    pub fn push<F>(&mut self, task: F) -> Result<Option<Result<R, TaskError>>, Why>
    where
        F: for<'a> FnOnce(T::Access<'a>) -> R + Send + 'static,
    {
        let oldest = self.make_room();
        let pushed = self.try_push(task).map_err(|refused| refused.why);
        self.after_room(oldest, pushed)
    }

    /// Submits an operation as [`push`](Self::push) does a closure.
    ///
    /// # Errors
    /// As for [`push`](Self::push).
    #[inline]
    pub fn push_operation<O: Operation<T, Reply = R>>(
        &mut self,
        operation: O,
    ) -> Result<Option<Result<R, TaskError>>, Why> {
        let oldest = self.make_room();
        let pushed = self.try_push_operation(operation).map_err(|refused| refused.why);
        self.after_room(oldest, pushed)
    }

    /// Waits for the oldest result if the burst is full.
    #[inline]
    fn make_room(&mut self) -> Option<Result<R, TaskError>> {
        if self.under_way == self.ring.len() { self.pop() } else { None }
    }

    /// Returns what was taken to make room; if nothing was pushed, it is still to be taken.
    #[inline]
    fn after_room(
        &mut self,
        oldest: Option<Result<R, TaskError>>,
        pushed: Result<(), Why>,
    ) -> Result<Option<Result<R, TaskError>>, Why> {
        match pushed {
            Ok(()) => Ok(oldest),
            Err(why) => {
                // `follow` keeps results that are younger than this one.
                oldest.into_iter().for_each(|oldest| self.kept.push_front(oldest));
                Err(why)
            }
        }
    }

    /// Waits for the oldest result; `None` if every one is taken.
    #[inline]
    pub fn pop(&mut self) -> Option<Result<R, TaskError>> {
        if let Some(kept) = self.kept.pop_front() {
            return Some(kept);
        }
        if self.under_way == 0 {
            return None;
        }
        let at = self.oldest();
        self.under_way -= 1;
        spin(|| self.ring.is_answered(at));
        // SAFETY: the burst takes the answer of the task that it submitted in this seat, once.
        Some(unsafe { take_blocking(&self.ring, at) })
    }

    /// The oldest result if it is there.
    #[inline]
    pub fn try_pop(&mut self) -> Option<Result<R, TaskError>> {
        let is_there = !self.kept.is_empty() || (self.under_way > 0 && self.ring.is_answered(self.oldest()));
        if is_there { self.pop() } else { None }
    }

    /// Waits for each result that is not taken, the oldest first.
    pub fn drain(&mut self) -> impl Iterator<Item = Result<R, TaskError>> + '_ {
        std::iter::from_fn(|| self.pop())
    }

    /// The seat of the oldest task under way.
    #[inline]
    fn oldest(&self) -> usize {
        let seats = self.ring.len();
        let at = self.next + seats - self.under_way;
        if at >= seats { at - seats } else { at }
    }

    /// Whether the target has moved since the ring was leased.
    #[inline]
    fn has_moved(&self) -> bool {
        let (mut at, mut moved) = (0, false);
        self.target.each_route(&mut |route| {
            moved |= self.routes[at] != route;
            at += 1;
        });
        moved
    }

    /// Leases a ring where the target is now; the results of the old ring are waited for, so that the order is kept.
    #[cold]
    fn follow(&mut self) -> Result<(), Why> {
        let mut waited = VecDeque::new();
        while let Some(result) = self.pop() {
            waited.push_back(result);
        }
        self.kept = waited;
        let mut client = Client::new(Arc::clone(&self.inner), 1, false);
        self.routes = routes_of(&self.target);
        let worker = client.worker_of(&self.target)?;
        self.ring = lease(&self.inner, worker, self.ring.len(), None)?;
        self.next = 0;
        Ok(())
    }
}
