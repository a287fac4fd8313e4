//! Workers: they serve the rings of their buffers, and change what they have when they are told to.
//!
//! Owns: the state machine ([`Worker`]) and what others see of it ([`WorkerShared`]). Never: starts a thread (`pump`).
//!
//! # Invariants
//! - A step never blocks, and runs every ring once round at most.
//! - Messages to a worker (`tell`) are handled in order, before the rings of the step.
//! - A task that is not within reach is passed on to where its structure went, and its ring waits for it: no task of the ring
//!   overtakes it. Whoever runs it tells the buffer's server how it ended.
//! - A structure that is to come was sent before its route was changed: so it is among the messages when a task asks for it. Whoever takes a
//!   structure or a buffer in says that it has it: the one that it was sent to may have left meanwhile.
//! - A worker that has left has nothing but what it is told to itself: to come back, or to end.
//!
//! Why the unsafe code is sound: a buffer names a worker of its own domains, which keep all their workers.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use atrapos_runtime::Parker;
use atrapos_topology::CpuId;

use crate::barrier;
use crate::change::{self, Done};
use crate::domains::{Inner, WorkerReport};
use crate::inbox::Buffer;
use crate::planted::{Bug, planted};
use crate::polled::{Host, Notice, POLLED, Passed, Polled, Stray, TOLD, run_in};
use crate::structures::{Key, Known, OwnedValue, Place, Reach, Route};
use crate::task::{Failure, Outcome, drop_quietly};

/// Rounds of messages that a worker handles at its end: some are told again until others have done their part, who may have ended.
const END_ROUNDS_MAX: u32 = 1_000;
/// Times that a task is passed on before its structures count as apart.
const HOPS_MAX: u32 = 64;
/// Steps between two looks at how long tasks take.
const STEPS_PER_LOOK: u32 = 256;
/// Tasks that take longer than this are answered one by one.
const LONG_TASK: Duration = Duration::from_micros(2);

/// The unit of a worker that runs anywhere.
const NO_CPU: u32 = u32::MAX;

/// A message to a worker. It runs on the worker, between two tasks.
pub(crate) type Message = Box<dyn FnOnce(&mut Worker) + Send>;

#[derive(Default)]
struct Messages {
    queue: VecDeque<Message>,
    /// The worker that gets them, once this one has left.
    heir: Option<Arc<WorkerShared>>,
    /// Set once nobody will handle any.
    closed: bool,
    /// Set when the worker itself is to end.
    deadline: Option<Instant>,
}

/// The part of a worker that others see.
pub(crate) struct WorkerShared {
    pub(crate) index: u32,
    /// The domain it belongs to.
    pub(crate) domain: AtomicU32,
    /// The processing unit that it was given; [`NO_CPU`] if it runs anywhere.
    cpu: AtomicU32,
    /// The buffer in which its clients lease slots.
    pub(crate) buffer: Arc<Buffer>,
    pub(crate) parker: Parker,
    messages: Mutex<Messages>,
    /// Reasons to look up between two tasks.
    notice: Notice,
    /// Times that it has come back.
    returns: AtomicU32,
    /// Tasks that it ran.
    pub(crate) tasks: AtomicU64,
    /// Steps in which it ran any.
    pub(crate) busy_steps: AtomicU64,
}

impl std::fmt::Debug for WorkerShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerShared").field("index", &self.index).finish_non_exhaustive()
    }
}

impl WorkerShared {
    pub(crate) fn new(index: u32, domain: u32, cpu: Option<CpuId>, groups: usize) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            index,
            domain: AtomicU32::new(domain),
            cpu: AtomicU32::new(cpu.map_or(NO_CPU, |cpu| cpu.0)),
            // The worker keeps its buffer, and the domains keep the worker: so the server outlives the buffer's clients.
            buffer: Buffer::new(groups, this.as_ptr()),
            parker: Parker::new(),
            messages: Mutex::default(),
            notice: Notice::default(),
            returns: AtomicU32::new(0),
            tasks: AtomicU64::new(0),
            busy_steps: AtomicU64::new(0),
        })
    }

    /// The processing unit that it was given; none if it runs anywhere.
    pub(crate) fn cpu(&self) -> Option<CpuId> {
        let cpu = self.cpu.load(Ordering::Relaxed);
        (cpu != NO_CPU).then_some(CpuId(cpu))
    }

    /// Wakes the worker if it sleeps; a barrier lies between this and what it is to find.
    #[inline(always)]
    pub(crate) fn wake_after_fence(&self) {
        self.parker.wake_after_fence();
    }

    fn messages(&self) -> MutexGuard<'_, Messages> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This worker, or if it has left, whoever has what it had.
    pub(crate) fn or_heir(mut self: Arc<Self>) -> Arc<Self> {
        loop {
            let heir = self.messages().heir.clone();
            match heir {
                Some(heir) => self = heir,
                None => return self,
            }
        }
    }

    /// Tells the worker something; if it has left, whoever has what it had. Once it has ended, the message is dropped.
    pub(crate) fn tell(&self, message: Message) {
        let mut messages = self.messages();
        if let Some(heir) = messages.heir.clone() {
            drop(messages);
            return heir.tell(message);
        }
        if messages.closed {
            drop(messages);
            return drop_quietly(message);
        }
        messages.queue.push_back(message);
        drop(messages);
        self.notice.give(TOLD);
        self.parker.wake();
    }

    /// Notes that the task which it runs has polled a future and found nothing: the wait for it ends with the task. Called on its own thread.
    pub(crate) fn note_poll(&self) {
        self.notice.give(POLLED);
    }

    /// Returns whether the task which it runs has polled a future and found nothing.
    pub(crate) fn has_polled(&self) -> bool {
        self.notice.has(POLLED, Ordering::Relaxed)
    }

    /// The worker as a report shows it.
    pub(crate) fn report(&self) -> WorkerReport {
        WorkerReport {
            worker: self.index,
            cpu: self.cpu(),
            returns: self.returns.load(Ordering::Relaxed),
            tasks: self.tasks.load(Ordering::Relaxed),
            busy_steps: self.busy_steps.load(Ordering::Relaxed),
            free_slots: self.buffer.free_slots(),
            requests: self.buffer.requests().len(),
        }
    }

    /// Takes what the worker was told so far, and when it is to end, if it is.
    fn take_messages(&self) -> (VecDeque<Message>, Option<Instant>) {
        let mut messages = self.messages();
        // Under the lock: whoever tells something now sets it again afterwards.
        self.notice.take(TOLD);
        (std::mem::take(&mut messages.queue), messages.deadline)
    }

    /// Has the worker end, also if it has left: once nothing is left to do, or at the deadline.
    pub(crate) fn end_by(&self, deadline: Instant) {
        self.messages().deadline = Some(deadline);
        self.notice.give(TOLD);
        self.parker.wake();
    }

    /// Returns whether it has given all it had to another worker, and has not come back.
    pub(crate) fn has_left(&self) -> bool {
        self.messages().heir.is_some()
    }

    /// Has a worker that has left come back, to `domain` and the unit `cpu`; `first` is what it does first. Its buffer is still with others.
    pub(crate) fn come_back(&self, domain: u32, cpu: Option<CpuId>, first: Message) {
        self.domain.store(domain, Ordering::Release);
        self.cpu.store(cpu.map_or(NO_CPU, |cpu| cpu.0), Ordering::Relaxed);
        // Counted anew: for whoever reads reports it is another worker.
        self.returns.fetch_add(1, Ordering::Relaxed);
        self.tasks.store(0, Ordering::Relaxed);
        self.busy_steps.store(0, Ordering::Relaxed);
        self.messages().heir = None;
        self.tell(first);
    }

    /// Ends the hearing, if nothing is left that it was told, or in any case. Returns whether it has.
    pub(crate) fn close(&self, anyway: bool) -> bool {
        let mut messages = self.messages();
        messages.closed = anyway || messages.queue.is_empty();
        messages.closed
    }

    /// Returns whether nobody will handle what it is told.
    pub(crate) fn is_closed(&self) -> bool {
        self.messages().closed
    }

    /// Sends it an owned structure.
    pub(crate) fn send_owned(&self, owned: OwnedValue, step: change::Step) {
        self.tell(Box::new(move |worker| {
            worker.take_in(owned);
            drop(step);
        }));
    }

    /// Sends it a buffer to serve.
    fn send_polled(&self, polled: Polled) {
        self.tell(Box::new(move |worker| {
            // Said once more: if the one that was told has left since, this is its heir.
            worker.inner.waits.serve(&polled.buffer, &worker.shared);
            worker.polled.push(polled);
        }));
    }

    /// Leaves what it was told, and what it will be, to another worker.
    pub(crate) fn bequeath(&self, to: &Arc<Self>) {
        let mut messages = self.messages();
        messages.heir = Some(Arc::clone(to));
        let left = std::mem::take(&mut messages.queue);
        drop(messages);
        left.into_iter().for_each(|message| to.tell(message));
    }
}

/// The worker that serves a buffer of these domains now.
pub(crate) fn server_of<'i>(_domains: &'i Inner, buffer: &Buffer) -> &'i WorkerShared {
    // SAFETY: the domains keep all their workers.
    unsafe { &*buffer.server() }
}

thread_local! {
    /// The worker that runs a task on this thread, and its domains.
    static RUNNING: Cell<Option<(usize, u32)>> = const { Cell::new(None) };
}

/// The worker of `domains` that runs the calling task, if any does.
pub(crate) fn running(domains: &Arc<Inner>) -> Option<u32> {
    let (of, worker) = RUNNING.get()?;
    (of == Arc::as_ptr(domains).addr()).then_some(worker)
}

/// The end of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Worked,
    Idle,
    Ended,
}

/// One worker: the rings it serves and the structures within its reach.
pub(crate) struct Worker {
    pub(crate) shared: Arc<WorkerShared>,
    pub(crate) inner: Arc<Inner>,
    pub(crate) reach: Reach,
    polled: Vec<Polled>,
    /// Set when it is to end: at once where the deadline has passed, else when nothing is left.
    ending: Option<Instant>,
    /// Answers are published one by one, since tasks are long.
    each: bool,
    steps_to_look: u32,
}

impl Worker {
    pub(crate) fn new(shared: Arc<WorkerShared>, inner: Arc<Inner>) -> Self {
        let polled = vec![Polled::new(Arc::clone(&shared.buffer))];
        Self { shared, inner, reach: Reach::default(), polled, ending: None, each: false, steps_to_look: 0 }
    }

    /// Handles messages, then serves every ring once.
    pub(crate) fn step(&mut self) -> Step {
        let before = RUNNING.replace(Some((Arc::as_ptr(&self.inner).addr(), self.shared.index)));
        let step = self.step_as_running();
        RUNNING.set(before);
        step
    }

    fn step_as_running(&mut self) -> Step {
        let told = self.shared.notice.has(TOLD, Ordering::Acquire);
        if told {
            self.handle_messages();
        }
        self.steps_to_look = self.steps_to_look.wrapping_sub(1);
        let started = (self.steps_to_look & (STEPS_PER_LOOK - 1) == 0).then(Instant::now);
        let late = self.ending.is_some_and(|deadline| Instant::now() >= deadline);
        let tasks = if late { 0 } else { self.serve() };
        if tasks > 0 {
            self.shared
                .tasks
                .store(self.shared.tasks.load(Ordering::Relaxed) + tasks as u64, Ordering::Relaxed);
            self.shared
                .busy_steps
                .store(self.shared.busy_steps.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            if let Some(started) = started {
                self.each = started.elapsed() > LONG_TASK * tasks as u32;
            }
        }
        match self.ending {
            Some(_) if late || self.is_done(tasks) => {
                self.end();
                Step::Ended
            }
            _ if tasks > 0 || told => Step::Worked,
            _ => Step::Idle,
        }
    }

    fn handle_messages(&mut self) {
        let (messages, deadline) = self.shared.take_messages();
        self.ending = self.ending.into_iter().chain(deadline).min();
        for message in messages {
            if self.shared.has_left() {
                // What it had has gone to its heir, and so does this.
                self.shared.tell(message);
            } else {
                message(self);
                self.end_polls();
            }
        }
    }

    fn serve(&mut self) -> usize {
        let mut polled = std::mem::take(&mut self.polled);
        let served: usize = polled.iter_mut().map(|one| one.serve(&self.reach, self.each, &*self)).sum();
        self.polled = polled;
        served + self.reach.take_tasks()
    }

    /// Decides about a task that is not within reach and was passed on so many times.
    #[cold]
    fn pass_on(&self, buffer: &Arc<Buffer>, stray: Stray, hops: u32) -> Passed {
        let domain = self.shared.domain.load(Ordering::Relaxed);
        let to = match self.inner.registry.reach(stray.key, domain, &self.reach) {
            Known::Here => return Passed::Retry,
            Known::NoSession => return Passed::Refuse(Failure::NoSession),
            Known::At(Route::Removed) => return Passed::Refuse(Failure::Removed),
            Known::At(Route::Worker(worker)) => {
                let to = Arc::clone(self.inner.worker(worker)).or_heir();
                if to.index == self.shared.index {
                    return Passed::Later;
                }
                vec![to]
            }
            Known::At(Route::Domain(domain)) => self.inner.live_workers_of(domain),
        };
        if to.is_empty() {
            // They have just joined another domain: the route says so by now.
            return Passed::Later;
        }
        if hops >= HOPS_MAX {
            return Passed::Refuse(Failure::Apart);
        }
        let slot = stray.slot;
        let passed = self.inner.waits.pass(buffer, slot, to, |to| {
            buffer.set_passed(slot, true);
            let buffer = Arc::clone(buffer);
            to.tell(Box::new(move |worker| worker.take_stray(buffer, stray, hops + 1)));
        });
        passed.map_or_else(Passed::Refuse, |()| Passed::On)
    }

    /// Runs a task that another worker passed on, or passes it on again.
    fn take_stray(&mut self, buffer: Arc<Buffer>, mut stray: Stray, hops: u32) {
        let failed = loop {
            match run_in(&buffer, stray.slot, stray.header, &self.reach) {
                Outcome::Done => break false,
                Outcome::Failed => break true,
                Outcome::Elsewhere(key) => stray.key = key,
            }
            match self.pass_on(&buffer, stray, hops) {
                Passed::Retry => {}
                Passed::On => return,
                Passed::Later => {
                    let again: Message = Box::new(move |worker| worker.take_stray(buffer, stray, hops + 1));
                    return self.shared.tell(again);
                }
                Passed::Refuse(failure) => {
                    buffer.refuse(stray.slot, stray.header, failure);
                    break true;
                }
            }
        };
        self.shared.tasks.store(self.shared.tasks.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.end_polls();
        self.inner.waits.ran(&buffer, stray.slot);
        self.send_back(buffer, stray.slot, failed);
    }

    /// Tells the server of a buffer how a task that it had passed on ended.
    fn send_back(&self, buffer: Arc<Buffer>, slot: usize, failed: bool) {
        let server = server_of(&self.inner, &buffer);
        server.tell(Box::new(move |worker| worker.take_back(buffer, slot, failed)));
    }

    fn take_back(&mut self, buffer: Arc<Buffer>, slot: usize, failed: bool) {
        match self.polled.iter_mut().find(|polled| Arc::ptr_eq(&polled.buffer, &buffer)) {
            Some(polled) => polled.came_back(slot, failed),
            None if buffer.is_dead() => {}
            // The buffer has gone to another worker meanwhile, or is on its way here.
            None => self.send_back(buffer, slot, failed),
        }
    }

    /// Gives an owned structure to another worker, and says so to clients.
    fn give(&self, key: Key, to: &Arc<WorkerShared>) {
        let (Some(place), Some(owned)) = (self.inner.registry.place(key), self.reach.take(key)) else {
            return;
        };
        let step = self.inner.steps.begin();
        self.inner.waits.tell(to, |to| {
            to.send_owned(owned, step);
            place.set_route(to.index);
        });
        self.inner.wake_waiting();
    }

    /// Takes in an owned structure. If it was meant for a worker that has left meanwhile, tasks come here from now on.
    fn take_in(&self, owned: OwnedValue) {
        let key = owned.key;
        self.reach.install(owned);
        let place = self.inner.registry.place(key);
        let is_said = |place: &Place| place.route() == Route::Worker(self.shared.index);
        if place.as_ref().is_some_and(|place| is_said(place)) || planted(Bug::RouteToLeft) {
            return;
        }
        // Behind the giver, who says where it sent it under the same lock.
        let mut is_there = false;
        self.inner.waits.tell(&self.shared, |_| {
            is_there = place.is_some_and(|place| place.set_route(self.shared.index));
        });
        if !is_there {
            // It was removed on its way.
            drop_quietly(self.reach.take(key));
        }
    }

    /// Moves an owned structure to another worker, from wherever it is by now.
    pub(crate) fn move_on(&mut self, key: Key, to: Arc<WorkerShared>, done: Done) {
        if self.reach.has(key) {
            if to.index != self.shared.index {
                self.give(key, &to);
            }
            return drop(done);
        }
        self.follow(key, Box::new(move |worker| worker.move_on(key, to, done)));
    }

    /// Replaces an owned structure, wherever it is by now.
    pub(crate) fn replace(&mut self, owned: OwnedValue, done: Done) {
        let key = owned.key;
        if self.reach.has(key) {
            drop_quietly(self.reach.take(key));
            self.reach.install(owned);
            return drop(done);
        }
        self.follow(key, Box::new(move |worker| worker.replace(owned, done)));
    }

    /// Tells something to the worker that has a structure which is not here, or will have it; nobody, if it was removed, or workers end.
    fn follow(&self, key: Key, message: Message) {
        let route = self.inner.registry.place(key).map_or(Route::Removed, |place| place.route());
        match route {
            Route::Worker(worker) if !self.inner.is_closing() && !planted(Bug::LoseGone) => {
                self.inner.worker(worker).tell(message);
            }
            Route::Worker(_) | Route::Domain(_) | Route::Removed => drop_quietly(message),
        }
    }

    /// Joins another domain.
    pub(crate) fn join(&self, domain: u32) {
        self.shared.domain.store(domain, Ordering::Release);
        self.reach.forget_shared();
    }

    /// Gives everything to another worker of the domain, or its heir, and has nothing to do until it comes back; what it is told from now on goes there. Does so later if that
    /// one waits inside a task: it may wait for this one.
    pub(crate) fn leave(&mut self, to: Arc<WorkerShared>, done: Done) {
        if self.inner.is_closing() {
            // It ends anyway, and the other one may have ended.
            return drop(done);
        }
        let to = to.or_heir();
        if !self.inner.waits.is_waiting(to.index) && self.leave_now(&to) {
            return drop(done);
        }
        self.shared.tell(Box::new(move |worker| worker.leave(to, done)));
    }

    fn leave_now(&mut self, to: &Arc<WorkerShared>) -> bool {
        for key in self.reach.owned_keys() {
            self.give(key, to);
        }
        let mut polled = std::mem::take(&mut self.polled);
        let buffers: Vec<Arc<Buffer>> = polled.iter().map(|polled| Arc::clone(&polled.buffer)).collect();
        let has_left = self.inner.waits.hand_over(&self.shared, Arc::clone(to), buffers.iter(), |to| {
            for polled in std::mem::take(&mut polled) {
                to.send_polled(polled);
            }
            self.shared.bequeath(to);
        });
        self.polled = polled;
        if has_left {
            self.reach.forget_shared();
        }
        has_left
    }

    /// Gives the buffer of a worker that came back to it.
    pub(crate) fn give_back(&mut self, to: Arc<WorkerShared>, step: change::Step) {
        if self.inner.is_closing() || to.has_left() {
            return drop(step);
        }
        let given = match self.polled.iter().position(|polled| Arc::ptr_eq(&polled.buffer, &to.buffer)) {
            Some(at) => {
                let polled = &mut self.polled;
                self.inner.waits.give_back(&to, || {
                    let polled = polled.swap_remove(at);
                    to.send_polled(polled);
                })
            }
            None => false,
        };
        if !given {
            // It has gone on, or is on its way here; or the other one waits.
            let server = server_of(&self.inner, &to.buffer);
            server.tell(Box::new(move |worker| worker.give_back(to, step)));
        }
    }

    /// Begins to end: once nothing is left to do, or at the deadline.
    pub(crate) fn end_by(&mut self, deadline: Instant) {
        self.ending = Some(deadline);
    }

    fn is_done(&self, tasks: usize) -> bool {
        tasks == 0
            && !self.shared.notice.has(TOLD, Ordering::Acquire)
            && self.polled.iter().all(|polled| polled.passed_on() == 0 && !polled.has_work())
    }

    /// Refuses what is left, also of what comes meanwhile, and says so to the clients.
    fn end(&mut self) {
        for round in 1.. {
            self.refuse_all();
            if self.inner.waits.close(&self.shared, round == END_ROUNDS_MAX) {
                return;
            }
            self.handle_messages();
        }
    }

    fn refuse_all(&mut self) {
        let inner = Arc::clone(&self.inner);
        // Locked all the while: whoever reports sees all of a buffer's requests as they were, or none of them.
        let mut not_done = inner.not_done();
        for mut polled in std::mem::take(&mut self.polled) {
            polled.end(&mut |key, refused| {
                let counts = if refused { &mut not_done.refused } else { &mut not_done.unanswered };
                *counts.entry(inner.registry.name_of(key)).or_default() += 1;
            });
        }
    }

    /// Returns whether there is anything to do. Called once the worker has said that it sleeps.
    pub(crate) fn has_work_after_barrier(&self) -> bool {
        barrier::heavy();
        self.shared.notice.has(TOLD, Ordering::SeqCst) || self.polled.iter().any(Polled::has_work)
    }

    /// Frees slots of clients that are gone.
    pub(crate) fn tidy(&self) {
        self.polled.iter().for_each(|polled| polled.buffer.reclaim_abandoned());
    }
}

impl Host for Worker {
    fn notice(&self) -> &Notice {
        &self.shared.notice
    }

    fn pass(&self, buffer: &Arc<Buffer>, stray: Stray) -> Passed {
        self.pass_on(buffer, stray, 0)
    }

    #[inline]
    fn end_polls(&self) {
        if self.shared.has_polled() {
            self.shared.notice.take(POLLED);
            self.inner.waits.end_task(self.shared.index);
        }
    }
}
