//! Clients: they submit tasks, and futures of what comes of them.
//!
//! Owns: the rings that a client leases, one per worker that it delegates to. Never: runs a task.
//!
//! A client is used by one thread or asynchronous task at a time (`&mut self`), so nothing it does locks. It is `Send`, and
//! so is every future here; none borrows the client but [`Client::call`]'s own.
//!
//! # Invariants
//! - Seats of a ring are used in order and round. A result that is not taken keeps its seat, and once the ring has come round, those
//!   behind it: take results, or drop their futures.
//! - An ordered client submits to a structure through another ring than the last time only when nothing of the old one is under way.
//! - A client leases slots of the nearest worker of a domain that has enough, and waits only when none has. Then it waits for those of all of
//!   them, and a change of the domains has it look again.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use atrapos_topology::{CpuId, Machine};

use crate::block::{block_on, spin};
use crate::chunk::{Chunk, Results, RunChunk};
use crate::domains::Inner;
use crate::planted::{Bug, planted};
use crate::ring::Ring;
use crate::structures::{Key, Route, Target};
use crate::task::{Closure, Job, TaskError};
use crate::waits::{Waiting, end_poll, may_poll};
use crate::worker::{self, WorkerShared};

/// Tasks that a client can have under way with one worker, where nothing else is said.
pub const WINDOW_DEFAULT: usize = 4;

/// Reasons for which a task is not submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// All seats of the client's ring are under way, or their results are not taken.
    #[error("all seats of this client's ring are in use: take a result, or wait")]
    Full,
    /// Other clients lease all slots of the worker, or of all workers of the domain.
    #[error("all slots of the workers are leased: drop a client or a burst, or configure more slots")]
    NoSlots,
    /// The structure was removed.
    #[error("the structure was removed")]
    Removed,
    /// No one worker reaches all structures of the task.
    #[error(
        "no one worker reaches all structures of this task: move them into one domain, owned ones to one worker"
    )]
    Apart,
    /// The task names a structure twice.
    #[error("the task names one structure twice: name each once")]
    Twice,
    /// The call is made inside a task, and its worker would wait for itself.
    #[error(
        "this call is made inside a task whose own worker it would wait for: use the structure there, or call from outside"
    )]
    WouldDeadlock,
    /// The domains are shutting down.
    #[error("the domains are shutting down")]
    ShutDown,
}

/// A task that was not submitted, and its closure back.
pub struct Refused<F> {
    /// The task that was to run.
    pub task: F,
    /// The reason.
    pub why: Why,
}

impl<F> std::fmt::Debug for Refused<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Refused").field("why", &self.why).finish_non_exhaustive()
    }
}

impl<F> std::fmt::Display for Refused<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.why.fmt(f)
    }
}

impl<F> std::error::Error for Refused<F> {}

/// Reasons for which a call has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// It was not submitted.
    #[error(transparent)]
    Refused(#[from] Why),
    /// It was, and did not end well.
    #[error(transparent)]
    Failed(#[from] TaskError),
}

/// Submits tasks to structures wherever they live.
#[derive(Debug)]
pub struct Client {
    inner: Arc<Inner>,
    window: usize,
    rings: Vec<Held>,
    /// The worker chosen in each domain, and the version of the domain's list then.
    chosen: Vec<Chosen>,
    /// Of an ordered client: the ring last used for each structure.
    #[expect(clippy::box_collection, reason = "the map itself has 48 bytes, which most clients do not need")]
    last: Option<Box<HashMap<Key, u32>>>,
}

#[derive(Debug)]
struct Held {
    worker: u32,
    ring: Arc<Ring>,
    next: usize,
}

#[derive(Debug, Clone, Copy)]
struct Chosen {
    domain: u32,
    version: u32,
    worker: u32,
}

impl Client {
    pub(crate) fn new(inner: Arc<Inner>, window: usize, ordered: bool) -> Self {
        Self { inner, window, rings: Vec::new(), chosen: Vec::new(), last: ordered.then(Box::default) }
    }

    /// The same client with room for `window` tasks under way with each worker (1 to 64). Call it before the first task.
    #[must_use]
    pub fn with_window(mut self, window: usize) -> Self {
        self.window = window.clamp(1, crate::burst::BURST_MAX);
        self
    }

    /// Submits a task and returns the future of its result; gives the closure back if it cannot be submitted now.
    ///
    /// A closure of up to 48 bytes on one structure is submitted without an allocation; a larger one costs one on this thread, which the
    /// worker gives back. A result cannot borrow from the structure:
    ///
    /// ```compile_fail
    /// # use atrapos_domains::{Client, Owned};
    /// fn first(client: &mut Client, list: &Owned<Vec<String>>) {
    ///     let _ = client.try_call(list, |list: &mut Vec<String>| &list[0]);
    /// }
    /// ```
    ///
    /// A copy of what it had can be the result:
    ///
    /// ```
    /// # use atrapos_domains::{Client, Owned};
    /// fn first(client: &mut Client, list: &Owned<Vec<String>>) {
    ///     let _ = client.try_call(list, |list: &mut Vec<String>| list[0].clone());
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Refused`], with the closure.
    pub fn try_call<T, F, R>(&mut self, target: &T, task: F) -> Result<Pending<R>, Refused<F>>
    where
        T: Target,
        F: for<'a> FnOnce(T::Access<'a>) -> R + Send + 'static,
        R: Send + 'static,
    {
        match self.seat(target, None) {
            Ok(held) => {
                let (ring, at) = self.submit_at(held, target, Closure(task));
                Ok(Pending { ring: Some(Arc::clone(ring)), at, of: PhantomData })
            }
            Err(why) => Err(Refused { task, why }),
        }
    }

    /// Submits several tasks as one: one publication, one answer, in the order given. Each has its own result; a panic of one is its
    /// result alone, but poisons an owned structure for those behind it.
    ///
    /// As for [`try_call`](Self::try_call), no result can borrow from the structure:
    ///
    /// ```compile_fail
    /// # use atrapos_domains::{Client, Owned};
    /// fn first(client: &mut Client, list: &Owned<Vec<String>>) {
    ///     let _ = client.bulk(list, vec![|list: &mut Vec<String>| &list[0]]);
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Refused`], with the closures.
    pub fn bulk<T, F, R>(
        &mut self,
        target: &T,
        tasks: Vec<F>,
    ) -> Result<Pending<Results<T, R>>, Refused<Vec<F>>>
    where
        T: Target,
        F: for<'a> FnOnce(T::Access<'a>) -> R + Send + 'static,
        R: Send + 'static,
    {
        match self.seat(target, None) {
            Ok(held) => {
                let mut chunk = Chunk::new(tasks.len());
                tasks.into_iter().for_each(|task| chunk.push_closure(task));
                let (ring, at) = self.submit_at(held, target, RunChunk(chunk));
                Ok(Pending { ring: Some(Arc::clone(ring)), at, of: PhantomData })
            }
            Err(why) => Err(Refused { task: tasks, why }),
        }
    }

    /// Submits a task once there is room, and returns the future of its result.
    ///
    /// As for [`try_call`](Self::try_call), no result can borrow from the structure:
    ///
    /// ```compile_fail
    /// # use atrapos_domains::{Client, Owned};
    /// async fn first(client: &mut Client, list: &Owned<Vec<String>>) {
    ///     let _ = client.submit(list, |list: &mut Vec<String>| &list[0]).await;
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Why`] it never can be; inside a task [`Why::WouldDeadlock`] where there is no room at once.
    pub async fn submit<T, F, R>(&mut self, target: &T, task: F) -> Result<Pending<R>, Why>
    where
        T: Target + Sync,
        F: for<'a> FnOnce(T::Access<'a>) -> R + Send + 'static,
        R: Send + 'static,
    {
        let held = poll_fn(|context| self.poll_seat(target, context)).await?;
        let (ring, at) = self.submit_at(held, target, Closure(task));
        Ok(Pending { ring: Some(Arc::clone(ring)), at, of: PhantomData })
    }

    /// Submits a task once there is room, and waits for its result.
    ///
    /// As for [`try_call`](Self::try_call), no result can borrow from the structure:
    ///
    /// ```compile_fail
    /// # use atrapos_domains::{Client, Owned};
    /// async fn first(client: &mut Client, list: &Owned<Vec<String>>) {
    ///     let _ = client.call(list, |list: &mut Vec<String>| &list[0]).await;
    /// }
    /// ```
    ///
    /// # Errors
    /// [`CallError`] if it could not be submitted, or did not end well.
    pub async fn call<T, F, R>(&mut self, target: &T, task: F) -> Result<R, CallError>
    where
        T: Target + Sync,
        F: for<'a> FnOnce(T::Access<'a>) -> R + Send + 'static,
        R: Send + 'static,
    {
        let pending = self.submit(target, task).await?;
        Ok(pending.await?)
    }

    /// Submits a task and waits for its result on this thread: looking at first, then asleep.
    ///
    /// As for [`try_call`](Self::try_call), no result can borrow from the structure:
    ///
    /// ```compile_fail
    /// # use atrapos_domains::{Client, Owned};
    /// fn first(client: &mut Client, list: &Owned<Vec<String>>) {
    ///     let _ = client.call_blocking(list, |list: &mut Vec<String>| &list[0]);
    /// }
    /// ```
    ///
    /// # Errors
    /// [`CallError`]; among others [`Why::WouldDeadlock`] inside a task whose worker would wait for itself, over other workers too.
    pub fn call_blocking<T, F, R>(&mut self, target: &T, task: F) -> Result<R, CallError>
    where
        T: Target,
        F: for<'a> FnOnce(T::Access<'a>) -> R + Send + 'static,
        R: Send + 'static,
    {
        let held = self.wait_for_seat(target)?;
        // Before the task is submitted: one that would be waited for in vain is not.
        let waiting = Waiting::begin(&self.rings[held].ring).ok_or(Why::WouldDeadlock)?;
        let (ring, at) = self.submit_at(held, target, Closure(task));
        // SAFETY: this call takes the answer of its own task.
        Ok(unsafe { take_blocking(ring, at, waiting) }?)
    }

    /// The ring of the next task on a target, if it has a free seat. Where no slots are left, the waker, if any, is woken once some come back.
    #[inline]
    fn seat<T: Target>(&mut self, target: &T, waker: Option<&Waker>) -> Result<usize, Why> {
        if self.inner.is_closing() {
            return Err(Why::ShutDown);
        }
        let keys = target.keys();
        let worker = self.worker_for(target, &keys, waker)?;
        if self.last.is_some() {
            self.keep_order(T::all(&keys), worker)?;
        }
        let held = self.ring_with(worker, waker)?;
        let Held { ring, next, .. } = &self.rings[held];
        if ring.is_free(*next) { Ok(held) } else { Err(Why::Full) }
    }

    /// Submits a job in the seat that `seat` found.
    #[inline]
    fn submit_at<T: Target, J: Job<T>>(&mut self, held: usize, target: &T, job: J) -> (&Arc<Ring>, usize) {
        let Held { ring, next, .. } = &mut self.rings[held];
        let at = *next;
        *next = if at + 1 == ring.len() { 0 } else { at + 1 };
        ring.submit::<T, J>(at, target.keys(), job);
        (ring, at)
    }

    fn poll_seat<T: Target>(&mut self, target: &T, context: &mut Context<'_>) -> Poll<Result<usize, Why>> {
        loop {
            match self.seat(target, None) {
                // Whose slots it would wait for is not known, or it would have to take results.
                Err(Why::Full | Why::NoSlots) if worker::running(&self.inner).is_some() => {
                    return Poll::Ready(Err(Why::WouldDeadlock));
                }
                Err(Why::Full) => {}
                Err(Why::NoSlots) => match self.seat_later(target, context.waker()) {
                    Some(seat) => return Poll::Ready(seat),
                    None => return Poll::Pending,
                },
                other => return Poll::Ready(other),
            }
            let worker = match self.worker_for(target, &target.keys(), None) {
                Ok(worker) => worker,
                Err(why) => return Poll::Ready(Err(why)),
            };
            let Some(Held { ring, next, .. }) = self.rings.iter().find(|held| held.worker == worker) else {
                // An ordered client waits for its old ring, which has no room for a second waker.
                context.waker().wake_by_ref();
                return Poll::Pending;
            };
            if ring.is_free(*next) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if !ring.wait_until_free(*next, context.waker()) {
                return Poll::Pending;
            }
        }
    }

    /// Has the waker woken once slots come back, or the target moves; unless there are slots now.
    #[cold]
    fn seat_later<T: Target>(&mut self, target: &T, waker: &Waker) -> Option<Result<usize, Why>> {
        loop {
            let routes = routes_of(&self.inner, target);
            match self.seat(target, Some(waker)) {
                // A change that was made before the waker was there has not woken it.
                Err(Why::NoSlots) if routes == routes_of(&self.inner, target) => return None,
                Err(Why::NoSlots) => {}
                Err(Why::Full) => {
                    waker.wake_by_ref();
                    return None;
                }
                other => return Some(other),
            }
        }
    }

    fn wait_for_seat<T: Target>(&mut self, target: &T) -> Result<usize, Why> {
        match self.seat(target, None) {
            Err(Why::Full | Why::NoSlots) => block_on(|context| self.poll_seat(target, context)),
            other => other,
        }
    }

    /// The worker that runs tasks on a target.
    #[inline]
    fn worker_for<T: Target>(
        &mut self,
        target: &T,
        keys: &T::Keys,
        waker: Option<&Waker>,
    ) -> Result<u32, Why> {
        match destination(&self.inner, target, keys)? {
            At::Worker(worker) => Ok(worker),
            At::Domain(domain) => self.choose(target, domain, waker),
        }
    }

    /// The worker that this client delegates to in the domain of shared structures.
    #[inline]
    fn choose<T: Target>(&mut self, target: &T, domain: u32, waker: Option<&Waker>) -> Result<u32, Why> {
        let version = self.inner.domain(domain).version();
        match self.chosen.iter().find(|chosen| chosen.domain == domain) {
            Some(chosen) if chosen.version == version => Ok(chosen.worker),
            _ => self.choose_anew(target, domain, waker),
        }
    }

    /// Chooses the nearest worker with which this client has a ring, or gets one.
    #[cold]
    fn choose_anew<T: Target>(&mut self, target: &T, domain: u32, waker: Option<&Waker>) -> Result<u32, Why> {
        let (domain, version, workers) = workers_of(&self.inner, target, domain)?;
        self.chosen.retain(|chosen| chosen.domain != domain);
        let mut refused = Why::NoSlots;
        for worker in workers {
            match self.ring_with(worker, waker) {
                Ok(_) => {
                    push_exactly(&mut self.chosen, Chosen { domain, version, worker });
                    return Ok(worker);
                }
                Err(why) => refused = why,
            }
        }
        Err(refused)
    }

    /// Sees to it that a task does not overtake those before it on any of its structures.
    fn keep_order(&mut self, keys: &[Key], worker: u32) -> Result<(), Why> {
        let Some(last) = &mut self.last else { return Ok(()) };
        let is_under_way =
            |before: u32| self.rings.iter().any(|held| held.worker == before && !held.ring.is_quiet());
        let noted = if planted(Bug::OrderByFirst) { &keys[..1] } else { keys };
        let overtakes = noted
            .iter()
            .filter_map(|key| last.get(key))
            .any(|&before| before != worker && !planted(Bug::ChangeRingEarly) && is_under_way(before));
        if overtakes {
            return Err(Why::Full);
        }
        last.extend(noted.iter().map(|&key| (key, worker)));
        Ok(())
    }

    /// The ring with a worker, leased now if there is none yet.
    #[inline]
    fn ring_with(&mut self, worker: u32, waker: Option<&Waker>) -> Result<usize, Why> {
        match self.rings.iter().position(|held| held.worker == worker) {
            Some(held) => Ok(held),
            None => {
                let ring = Arc::new(lease(&self.inner, worker, self.window, waker)?);
                push_exactly(&mut self.rings, Held { worker, ring, next: 0 });
                Ok(self.rings.len() - 1)
            }
        }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

/// Adds one to a list that has no room to spare: idle clients are many, and what they use are few workers each.
fn push_exactly<V>(list: &mut Vec<V>, value: V) {
    list.reserve_exact(1);
    list.push(value);
}

/// The worker or domain to which tasks on a target go.
enum At {
    Worker(u32),
    Domain(u32),
}

#[inline]
fn destination<T: Target>(inner: &Inner, target: &T, keys: &T::Keys) -> Result<At, Why> {
    if !T::is_distinct(keys) {
        return Err(Why::Twice);
    }
    let mut owner = None;
    let mut domain = None;
    let mut refused = None;
    target.each_route(&mut |route| match route {
        Route::Removed => refused = Some(Why::Removed),
        Route::Worker(worker) if owner.is_some_and(|owner| owner != worker) => refused = Some(Why::Apart),
        Route::Worker(worker) => owner = Some(worker),
        Route::Domain(other) if domain.is_some_and(|domain| domain != other) => refused = Some(Why::Apart),
        Route::Domain(other) => domain = Some(other),
    });
    match (refused, owner, domain) {
        (Some(why), ..) => Err(why),
        (None, Some(worker), None) => Ok(At::Worker(worker)),
        (None, Some(worker), Some(domain)) => {
            let of = inner.worker(worker).domain.load(Ordering::Acquire);
            if of == domain { Ok(At::Worker(worker)) } else { Err(Why::Apart) }
        }
        (None, None, Some(domain)) => Ok(At::Domain(domain)),
        (None, None, None) => Err(Why::Removed),
    }
}

/// The route with the version of the domain's list of workers.
#[inline(always)]
pub(crate) fn versioned(inner: &Inner, route: Route) -> (Route, u32) {
    match route {
        Route::Domain(domain) => (route, inner.domain(domain).version()),
        Route::Worker(_) | Route::Removed => (route, 0),
    }
}

pub(crate) fn routes_of<T: Target>(inner: &Inner, target: &T) -> Vec<(Route, u32)> {
    let mut routes = Vec::new();
    target.each_route(&mut |route| routes.push(versioned(inner, route)));
    routes
}

/// The workers of the domain of shared structures, the nearest first, with the version of their list. A domain whose workers have just
/// joined another one has none; by then the routes say where they went.
fn workers_of<T: Target>(inner: &Inner, target: &T, mut domain: u32) -> Result<(u32, u32, Vec<u32>), Why> {
    loop {
        let version = inner.domain(domain).version();
        let workers = inner.domain(domain).workers().clone();
        if !workers.is_empty() {
            let workers = workers.iter().map(|&worker| inner.worker(worker));
            return Ok((domain, version, nearest_first(&inner.machine, current_cpu(), workers)));
        }
        let mut now = None;
        target.each_route(&mut |route| {
            if let Route::Domain(domain) = route {
                now = Some(domain);
            }
        });
        match now {
            Some(other) if other != domain => domain = other,
            _ => return Err(Why::Removed),
        }
    }
}

/// Workers by their distance from a processing unit; of those that are equally far, the one with the most free slots is first.
fn nearest_first<'w>(
    machine: &Machine,
    here: Option<CpuId>,
    workers: impl Iterator<Item = &'w Arc<WorkerShared>>,
) -> Vec<u32> {
    let distance = |worker: &WorkerShared| match (here, worker.cpu()) {
        (Some(here), Some(there)) => machine.distance(here, there),
        _ => 0.0,
    };
    let mut by_distance: Vec<(f64, Reverse<usize>, u32)> =
        workers.map(|worker| (distance(worker), Reverse(worker.buffer.free_slots()), worker.index)).collect();
    by_distance.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let tried = if planted(Bug::LeaseNearestOnly) { 1 } else { by_distance.len() };
    by_distance.into_iter().take(tried).map(|(.., worker)| worker).collect()
}

/// Leases slots for tasks on a target, of the nearest worker that has them. Refused inside a task.
pub(crate) fn lease_for<T: Target>(inner: &Arc<Inner>, target: &T, count: usize) -> Result<Ring, Why> {
    if worker::running(inner).is_some() {
        return Err(Why::WouldDeadlock);
    }
    let workers = match destination(inner, target, &target.keys())? {
        At::Worker(worker) => vec![worker],
        At::Domain(domain) => workers_of(inner, target, domain)?.2,
    };
    let mut refused = Why::NoSlots;
    for worker in workers {
        match lease(inner, worker, count, None) {
            Ok(ring) => return Ok(ring),
            Err(why) => refused = why,
        }
    }
    Err(refused)
}

/// Leases slots of a worker.
fn lease(inner: &Arc<Inner>, worker: u32, count: usize, waker: Option<&Waker>) -> Result<Ring, Why> {
    let shared = inner.worker(worker);
    let Some(lease) = shared.buffer.lease(count, waker) else {
        // Looked at after the waker is known: who waits for slots of a worker that has ended is woken as it ends, or sees it here.
        return Err(if shared.buffer.is_dead() { Why::ShutDown } else { Why::NoSlots });
    };
    // The worker reads the leases before it sleeps; one that sleeps is to read them now.
    shared.parker.wake();
    Ok(Ring::new(Arc::clone(&shared.buffer), &lease, Arc::clone(inner)))
}

/// The processing unit that this thread runs on.
fn current_cpu() -> Option<CpuId> {
    // SAFETY: the call takes nothing and returns a number.
    let cpu = unsafe { libc::sched_getcpu() };
    u32::try_from(cpu).ok().map(CpuId)
}

/// Waits for the answer of a seat on this thread, and takes it.
///
/// # Safety
/// The caller is who will take the answer of the last task of this seat, and its reply is an `R`.
pub(crate) unsafe fn take_blocking<R>(ring: &Ring, at: usize, waiting: Waiting) -> Result<R, TaskError> {
    if !spin(|| ring.is_answered(at)) {
        block_on(|context| match ring.poll_end(at, context.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        });
    }
    drop(waiting);
    // SAFETY: by this function's own contract; it was waited for.
    unsafe { ring.take_end(at) }
}

/// The future of a task's result. Dropping it detaches: the task runs all the same.
///
/// Polled inside a task, it is [`TaskError::WouldDeadlock`] where its result cannot come before that task has ended, as when both are for one worker.
/// That uses it up like any result: the task that it is of runs, and its result is lost. So return the future from the task without polling it there, and
/// poll it elsewhere; [`is_answered`](Self::is_answered) only looks.
#[must_use = "dropping the future of a task detaches it"]
#[derive(Debug)]
pub struct Pending<R> {
    /// Gone once the answer is taken.
    ring: Option<Arc<Ring>>,
    at: usize,
    of: PhantomData<fn() -> R>,
}

/// The end of a cancellation.
#[derive(Debug)]
pub enum Cancelled<R> {
    /// The task has not run and never will.
    Revoked,
    /// It was running, or had run: this is what came of it. With [`TaskError::WouldDeadlock`] nobody knows: it was asked not to run, and its worker has
    /// not decided, or was the one that asks.
    Ran(Result<R, TaskError>),
}

impl<R: Send + 'static> Pending<R> {
    /// Returns whether the result is there.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.is_answered(self.at))
    }

    /// Waits for the result on this thread.
    ///
    /// # Errors
    /// [`TaskError`]; among others [`TaskError::WouldDeadlock`] inside a task whose worker would wait for itself, over other workers too.
    ///
    /// # Panics
    /// If the future was polled to its end before; a poll that was refused with [`TaskError::WouldDeadlock`] is its end, too.
    pub fn wait(mut self) -> Result<R, TaskError> {
        let ring = self.ring.take().unwrap_or_else(|| unreachable!("a finished future is not waited for"));
        let Some(waiting) = Waiting::begin_at(&ring, self.at) else {
            // Dropped as it is: it detaches.
            self.ring = Some(ring);
            return Err(TaskError::WouldDeadlock);
        };
        // This wait takes the place of those of earlier polls.
        end_poll(&ring, self.at);
        // SAFETY: this future was made for the task of this seat, and is used up.
        unsafe { take_blocking(&ring, self.at, waiting) }
    }

    /// Asks that the task not run, and waits until its worker has decided: a worker inside another task decides after it. If that is the task which
    /// awaits this, it has asked, and [`TaskError::WouldDeadlock`] says that it cannot know.
    pub async fn cancel(self) -> Cancelled<R> {
        if let Some(ring) = &self.ring
            && !ring.is_answered(self.at)
        {
            ring.cancel(self.at);
        }
        match self.await {
            Err(TaskError::Cancelled) => Cancelled::Revoked,
            answer => Cancelled::Ran(answer),
        }
    }
}

impl<R: Send + 'static> Future for Pending<R> {
    type Output = Result<R, TaskError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let at = self.at;
        let Some(ring) = &self.ring else { unreachable!("a finished future is not polled") };
        if !ring.is_answered(at) {
            if !may_poll(ring, at) {
                // Used up: a future that is ready is polled no more. Dropped as it is, it detaches.
                drop(Self { ring: self.ring.take(), at, of: PhantomData });
                return Poll::Ready(Err(TaskError::WouldDeadlock));
            }
            if !ring.poll_end(at, context.waker()) {
                return Poll::Pending;
            }
        }
        end_poll(ring, at);
        let Some(ring) = self.ring.take() else { unreachable!("it was there") };
        // SAFETY: this future was made for the task of this seat, and is used up; it has ended.
        Poll::Ready(unsafe { ring.take_end(at) })
    }
}

impl<R> Drop for Pending<R> {
    fn drop(&mut self) {
        if let Some(ring) = &self.ring {
            end_poll(ring, self.at);
            ring.leave(self.at);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
