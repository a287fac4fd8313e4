//! Bursts: many tasks on one target under way, with memory set aside for them.
//!
//! Owns: the chunks of a burst, its ring, and the results that it still has. A burst in managed mode (Virtual domains §6) goes on until
//! it is full, then takes the oldest result for each further task.
//!
//! # When tasks are sent
//! Tasks travel in chunks ([`chunk`](crate::chunk)), because a cache line costs the same with one task or seven. A task is sent at once if
//! nothing is under way; else once half a burst has gathered, or when whoever pushes waits for a result, flushes, or drops the burst. At most
//! [`SENT_MAX`] chunks are sent on their own account, so that one can be filled, one run and one taken at the same time.
//!
//! # Invariants
//! - Chunks use the seats of the ring in order and round, so tasks run, and results come, in the order of the pushes.
//! - When the target has moved, or its domain has other workers, the burst goes to another ring once nothing of the old one is under way.
//! - All tasks of a chunk are on one target: a burst that is turned to another one sends what it has gathered first. So structures by the
//!   thousand need slots for the chunks that are under way, and none for themselves.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::chunk::{Chunk, Results, RunChunk};
use crate::client::{Client, Refused, Why, lease_for, routes_of, take_blocking, versioned};
use crate::domains::Inner;
use crate::operation::Operation;
use crate::planted::{Bug, planted};
use crate::ring::Ring;
use crate::structures::{Route, Target};
use crate::task::TaskError;
use crate::waits::{Waiting, end_poll, may_poll};

/// The size that did best on average in the paper.
pub const BURST_DEFAULT: usize = 14;
/// Tasks of a burst at most.
pub const BURST_MAX: usize = 64;

/// Chunks that are under way unless the burst is flushed or dropped.
const SENT_MAX: usize = 2;
/// Slots of a worker that a burst has, whatever its size: one for each chunk under way, one more for a flush, and one for the end.
pub const BURST_SLOTS: usize = SENT_MAX + 2;

/// A chunk that was sent.
#[derive(Debug, Clone, Copy)]
struct Sent {
    seat: usize,
    tasks: usize,
}

/// Tasks on one target whose results come in the order of submission.
pub struct Burst<T: Target, R: Send + 'static> {
    inner: Arc<Inner>,
    target: T,
    ring: Ring,
    /// The target's workers, or domains with the versions of their lists, when the ring was leased.
    routes: Vec<(Route, u32)>,
    size: usize,
    /// Tasks whose results are not taken.
    len: usize,
    /// Tasks that are not sent.
    filling: Chunk<T, R>,
    /// Results that are not taken, the oldest first; none is empty.
    answered: VecDeque<Chunk<T, R>>,
    /// Chunks without tasks or results.
    spare: Vec<Chunk<T, R>>,
    sent: VecDeque<Sent>,
    next_seat: usize,
    requests: u64,
}

impl Client {
    /// Begins a burst of up to `size` tasks under way (1 to [`BURST_MAX`]); its slots and its memory are its own.
    ///
    /// # Errors
    /// [`Why`] it cannot: no slots are left, or the structure is gone; or it is called inside a task.
    pub fn burst<T: Target + Clone, R: Send + 'static>(
        &mut self,
        target: &T,
        size: usize,
    ) -> Result<Burst<T, R>, Why> {
        let inner = Arc::clone(self.inner());
        let routes = routes_of(&inner, target);
        let ring = lease_for(&inner, target, BURST_SLOTS)?;
        let size = size.clamp(1, BURST_MAX);
        let spare = (0..=SENT_MAX).map(|_| Chunk::new(size)).collect();
        Ok(Burst {
            inner,
            target: target.clone(),
            ring,
            routes,
            size,
            len: 0,
            filling: Chunk::new(size),
            answered: VecDeque::with_capacity(BURST_SLOTS),
            spare,
            sent: VecDeque::with_capacity(BURST_SLOTS),
            next_seat: 0,
            requests: 0,
        })
    }
}

impl<T: Target + Clone, R: Send + 'static> Burst<T, R> {
    /// Tasks whose results are not taken.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Requests that it has sent so far. Each has several tasks, and one answer.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Returns whether every result is taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a task if there is room. It is sent with those behind it (see [`flush`](Self::flush)). As for calls, its result cannot borrow
    /// from the structure:
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
        if let Err(why) = self.room() {
            return Err(Refused { task, why });
        }
        self.filling.push_closure(task);
        self.pushed();
        Ok(())
    }

    /// Adds an operation if there is room; the worker runs it together with those of its type that come right behind it.
    ///
    /// # Errors
    /// As for [`try_push`](Self::try_push).
    #[inline]
    pub fn try_push_operation<O: Operation<T, Reply = R>>(&mut self, operation: O) -> Result<(), Refused<O>> {
        if let Err(why) = self.room() {
            return Err(Refused { task: operation, why });
        }
        self.filling.push_operation(operation);
        self.pushed();
        Ok(())
    }

    /// Adds a task; if the burst is full, waits for the oldest result first and returns it. No result can borrow from the structure:
    ///
    /// ```compile_fail
    /// # use atrapos_domains::{Burst, Owned};
    /// fn first<'s>(burst: &mut Burst<Owned<Vec<String>>, &'s String>) {
    ///     let _ = burst.push(|list: &mut Vec<String>| &list[0]);
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Why`] the task was not added: the domains are shutting down, or this is inside a task whose worker would wait for itself.
    #[inline]
    pub fn push<F>(&mut self, task: F) -> Result<Option<Result<R, TaskError>>, Why>
    where
        F: for<'a> FnOnce(T::Access<'a>) -> R + Send + 'static,
    {
        self.refuse_if_closing()?;
        let oldest = self.make_room()?;
        self.filling.push_closure(task);
        self.pushed();
        Ok(oldest)
    }

    /// Adds an operation as [`push`](Self::push) does a closure.
    ///
    /// # Errors
    /// As for [`push`](Self::push).
    #[inline]
    pub fn push_operation<O: Operation<T, Reply = R>>(
        &mut self,
        operation: O,
    ) -> Result<Option<Result<R, TaskError>>, Why> {
        self.refuse_if_closing()?;
        let oldest = self.make_room()?;
        self.filling.push_operation(operation);
        self.pushed();
        Ok(oldest)
    }

    /// Adds a task as [`push`](Self::push) does, but waits for the oldest result as a future. One that is dropped before it is ready has added
    /// nothing and taken nothing. As for all calls, no result can borrow from the structure:
    ///
    /// ```compile_fail
    /// # use atrapos_domains::{Burst, Owned};
    /// async fn first<'s>(burst: &mut Burst<Owned<Vec<String>>, &'s String>) {
    ///     let _ = burst.push_async(|list: &mut Vec<String>| &list[0]).await;
    /// }
    /// ```
    ///
    /// ```
    /// # use atrapos_domains::{Burst, Owned};
    /// async fn first(burst: &mut Burst<Owned<Vec<String>>, String>) {
    ///     let _ = burst.push_async(|list: &mut Vec<String>| list[0].clone()).await;
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Why`] the task was not added: the domains are shutting down, or this is inside a task ([`Why::WouldDeadlock`]) and the oldest result cannot come
    /// before that has ended.
    pub async fn push_async<F>(&mut self, task: F) -> Result<Option<Result<R, TaskError>>, Why>
    where
        F: for<'a> FnOnce(T::Access<'a>) -> R + Send + 'static,
    {
        self.refuse_if_closing()?;
        let oldest = self.make_room_async().await?;
        self.filling.push_closure(task);
        self.pushed();
        Ok(oldest)
    }

    /// Adds an operation as [`push_async`](Self::push_async) does a closure.
    ///
    /// # Errors
    /// As for [`push_async`](Self::push_async).
    pub async fn push_operation_async<O: Operation<T, Reply = R>>(
        &mut self,
        operation: O,
    ) -> Result<Option<Result<R, TaskError>>, Why> {
        self.refuse_if_closing()?;
        let oldest = self.make_room_async().await?;
        self.filling.push_operation(operation);
        self.pushed();
        Ok(oldest)
    }

    /// Turns the burst to another target: tasks that are pushed from now on are on that. What was pushed before stays where it is, and
    /// results come in the order of the pushes. The targets should be of one domain, or owned by one worker: for each change of the
    /// worker the burst waits until nothing is under way, or the tasks are passed on.
    ///
    /// ```
    /// # use atrapos_domains::{Configuration, Domains};
    /// # use atrapos_topology::{LiveOptions, Machine};
    /// # let machine = Machine::live(&LiveOptions::new(None));
    /// # let domains = Domains::start(&machine, &Configuration::one_worker_each(&["counters"]))?;
    /// let site = domains.at("counters")?;
    /// let counters = ["a", "b"].map(|name| site.place_owned(name, 0_u64));
    /// let [a, b] = counters.map(Result::unwrap);
    /// let mut burst = domains.client().burst(&a, 14)?;
    /// burst.push(|a| *a += 1)?;
    /// burst.turn_to(&b)?;
    /// burst.push(|b| *b += 1)?;
    /// assert_eq!(burst.drain().filter(Result::is_ok).count(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Why::WouldDeadlock`] where it would have to wait inside a task whose worker would wait for itself; it stays as it is.
    pub fn turn_to(&mut self, target: &T) -> Result<(), Why> {
        if !self.try_turn_to(target) {
            self.receive()?;
            self.try_turn_to(target);
        }
        Ok(())
    }

    /// Turns the burst to another target as [`turn_to`](Self::turn_to) does, unless it would have to wait for a result; then it
    /// stays as it is, and this returns false.
    pub fn try_turn_to(&mut self, target: &T) -> bool {
        if self.filling.waiting() > 0 && !planted(Bug::TurnUnsent) {
            if self.sent.len() > SENT_MAX {
                return false;
            }
            self.send();
        }
        self.target.clone_from(target);
        true
    }

    /// Sends the tasks that wait for company. To be called before waiting for an effect of theirs by other means than their results.
    ///
    /// # Errors
    /// [`Why::WouldDeadlock`] where it would have to wait inside a task whose worker would wait for itself; the tasks are sent later.
    pub fn flush(&mut self) -> Result<(), Why> {
        if self.filling.waiting() > 0 {
            if self.sent.len() > SENT_MAX {
                self.receive()?;
            }
            self.send();
        }
        Ok(())
    }

    /// Waits for the oldest result; `None` if every one is taken. Inside a task whose worker would wait for itself it is
    /// [`TaskError::WouldDeadlock`], and the result is still to be taken elsewhere.
    #[inline]
    pub fn pop(&mut self) -> Option<Result<R, TaskError>> {
        self.next().unwrap_or(Some(Err(TaskError::WouldDeadlock)))
    }

    /// Waits for the oldest result as a future; `None` if every one is taken. A future that is dropped before it is ready has taken nothing. Inside
    /// a task it is [`TaskError::WouldDeadlock`] where [`pop`](Self::pop) would be, and the result is still to be taken elsewhere.
    pub async fn pop_async(&mut self) -> Option<Result<R, TaskError>> {
        let next = Oldest(self).await;
        next.unwrap_or(Some(Err(TaskError::WouldDeadlock)))
    }

    /// The oldest result if it is there.
    #[inline]
    pub fn try_pop(&mut self) -> Option<Result<R, TaskError>> {
        if self.answered.is_empty()
            && let Some(&Sent { seat, tasks }) = self.sent.front()
            && self.ring.is_answered(seat)
        {
            self.sent.pop_front();
            // SAFETY: the burst takes the answer of the chunk that it sent in this seat, once, and it is there.
            let answer = unsafe { self.ring.take_end(seat) };
            self.take_in(tasks, answer);
        }
        self.send_if_due();
        self.taken()
    }

    /// Waits for each result that is not taken, the oldest first. Where [`pop`](Self::pop) refuses to wait, it ends with that.
    pub fn drain(&mut self) -> impl Iterator<Item = Result<R, TaskError>> + '_ {
        let mut refused = false;
        std::iter::from_fn(move || {
            if refused {
                return None;
            }
            self.next().unwrap_or_else(|_| {
                refused = true;
                Some(Err(TaskError::WouldDeadlock))
            })
        })
    }

    /// Waits for the oldest result, unless it would wait for itself.
    #[inline(always)]
    fn next(&mut self) -> Result<Option<Result<R, TaskError>>, Why> {
        match self.taken() {
            None if self.len > 0 => {
                self.send_if_due();
                self.receive()?;
                self.send_if_due();
                Ok(self.taken())
            }
            oldest => Ok(oldest),
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Result<R, TaskError>>, Why>> {
        if let Some(oldest) = self.taken() {
            return Poll::Ready(Ok(Some(oldest)));
        }
        self.send_if_due();
        let Some(&Sent { seat, tasks }) = self.sent.front() else { return Poll::Ready(Ok(None)) };
        if !self.ring.is_answered(seat) {
            if !may_poll(&self.ring, seat) {
                return Poll::Ready(Err(Why::WouldDeadlock));
            }
            if !self.ring.poll_end(seat, context.waker()) {
                return Poll::Pending;
            }
        }
        end_poll(&self.ring, seat);
        self.sent.pop_front();
        // SAFETY: the burst takes the answer of the chunk that it sent in this seat, once, and it has ended.
        let answer = unsafe { self.ring.take_end(seat) };
        self.take_in(tasks, answer);
        self.send_if_due();
        Poll::Ready(Ok(self.taken()))
    }

    /// Takes an answered result.
    #[inline(always)]
    fn taken(&mut self) -> Option<Result<R, TaskError>> {
        let oldest = self.answered.front_mut()?;
        let result = oldest.take();
        if oldest.results() == 0 {
            self.recycle();
        }
        self.len -= usize::from(result.is_some());
        result
    }

    #[inline(always)]
    fn refuse_if_closing(&self) -> Result<(), Why> {
        if self.inner.is_closing() { Err(Why::ShutDown) } else { Ok(()) }
    }

    #[inline(always)]
    fn room(&self) -> Result<(), Why> {
        self.refuse_if_closing()?;
        if self.len == self.size { Err(Why::Full) } else { Ok(()) }
    }

    /// Takes the oldest result if the burst is full.
    #[inline(always)]
    fn make_room(&mut self) -> Result<Option<Result<R, TaskError>>, Why> {
        if self.len == self.size { self.next() } else { Ok(None) }
    }

    /// Takes the oldest result if the burst is full, as a future: the only place where pushing waits. What it has taken there, it returns in the
    /// same poll.
    async fn make_room_async(&mut self) -> Result<Option<Result<R, TaskError>>, Why> {
        if self.len == self.size { Oldest(self).await } else { Ok(None) }
    }

    #[inline(always)]
    fn pushed(&mut self) {
        self.len += 1;
        if self.sent.is_empty() || self.filling.waiting() >= self.size.div_ceil(SENT_MAX) {
            self.send_if_due();
        }
    }

    /// Sends what waits if nothing is under way or enough has gathered, unless the burst is about to go to another ring.
    fn send_if_due(&mut self) {
        let enough = self.filling.waiting() >= self.size.div_ceil(SENT_MAX) && self.sent.len() < SENT_MAX;
        if (enough && !self.has_moved()) || (self.sent.is_empty() && self.filling.waiting() > 0) {
            self.send();
        }
    }

    /// Sends what waits; there is a free seat.
    fn send(&mut self) {
        if self.sent.is_empty() && self.has_moved() {
            self.follow();
        }
        let spare = self.spare.pop().unwrap_or_else(|| Chunk::new(self.size));
        let chunk = std::mem::replace(&mut self.filling, spare);
        self.requests += 1;
        self.sent.push_back(Sent { seat: self.next_seat, tasks: chunk.waiting() });
        self.ring.submit::<T, _>(self.next_seat, self.target.keys(), RunChunk(chunk));
        self.next_seat = (self.next_seat + 1) % self.ring.len();
    }

    /// Makes the chunk whose results are taken ready for others.
    #[inline(always)]
    fn recycle(&mut self) {
        if let Some(mut chunk) = self.answered.pop_front() {
            chunk.clear();
            self.spare.push(chunk);
        }
    }

    /// Waits for the oldest chunk that was sent, unless it would wait for itself.
    fn receive(&mut self) -> Result<(), Why> {
        let Some(&Sent { seat, tasks }) = self.sent.front() else { return Ok(()) };
        let waiting = Waiting::begin_at(&self.ring, seat).ok_or(Why::WouldDeadlock)?;
        self.sent.pop_front();
        // SAFETY: the burst takes the answer of the chunk that it sent in this seat, once.
        let answer = unsafe { take_blocking(&self.ring, seat, waiting) };
        self.take_in(tasks, answer);
        Ok(())
    }

    /// Takes in the answer of a chunk of so many tasks.
    #[inline(always)]
    fn take_in(&mut self, tasks: usize, answer: Result<Results<T, R>, TaskError>) {
        let chunk = match answer {
            Ok(Results(chunk)) => {
                chunk.prefetch(tasks);
                chunk
            }
            Err(error) => self.failed(tasks, &error),
        };
        self.answered.push_back(chunk);
    }

    /// A chunk of tasks that have all failed.
    #[cold]
    fn failed(&self, tasks: usize, error: &TaskError) -> Chunk<T, R> {
        let mut chunk = Chunk::new(self.size);
        chunk.fail(tasks, error);
        chunk
    }

    /// Returns whether the target has moved since the ring was leased, or its domain has other workers.
    #[inline]
    fn has_moved(&self) -> bool {
        let (mut at, mut moved) = (0, false);
        self.target.each_route(&mut |route| {
            moved |= self.routes[at] != versioned(&self.inner, route);
            at += 1;
        });
        moved
    }

    /// Leases a ring where the target is now. Where that cannot be, the old one goes on, whose worker passes the tasks on or says why not.
    #[cold]
    fn follow(&mut self) {
        let routes = routes_of(&self.inner, &self.target);
        if let Ok(ring) = lease_for(&self.inner, &self.target, BURST_SLOTS) {
            (self.ring, self.routes, self.next_seat) = (ring, routes, 0);
        }
    }
}

/// The oldest result as a future. Once this is gone, whatever task has polled it does not wait for the result any more.
struct Oldest<'b, T: Target + Clone, R: Send + 'static>(&'b mut Burst<T, R>);

impl<T: Target + Clone, R: Send + 'static> Future for Oldest<'_, T, R> {
    type Output = Result<Option<Result<R, TaskError>>, Why>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_next(context)
    }
}

impl<T: Target + Clone, R: Send + 'static> Drop for Oldest<'_, T, R> {
    fn drop(&mut self) {
        if let Some(sent) = self.0.sent.front() {
            end_poll(&self.0.ring, sent.seat);
        }
    }
}

impl<T: Target, R: Send + 'static> std::fmt::Debug for Burst<T, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Burst").field("len", &self.len).field("size", &self.size).finish_non_exhaustive()
    }
}

impl<T: Target, R: Send + 'static> Drop for Burst<T, R> {
    /// Sends what was pushed: a task runs although nobody takes its result.
    fn drop(&mut self) {
        if self.filling.waiting() > 0 && !self.inner.is_closing() {
            let chunk = std::mem::replace(&mut self.filling, Chunk::new(0));
            self.ring.submit::<T, _>(self.next_seat, self.target.keys(), RunChunk(chunk));
        }
    }
}
