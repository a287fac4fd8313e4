//! The step of a worker: a bounded amount of everything there is to do.
//!
//! Owns: the order of the work in a step, its length, and the order of the counters that it shows. Never: blocks.
//!
//! A step is short in time as well as in number: polls end after [`POLLING`], because meanwhile no message comes in or goes
//! out, and whoever waits for one waits for the end of the polls on both workers.

use std::rc::Rc;
use std::sync::atomic::{Ordering, fence};

use std::time::Duration;

use super::{Limits, Shard, Worker};
use crate::clock::Ticks;
use crate::current;
use crate::shared::Phase;

/// The time after which a step begins no further poll.
pub(super) const POLLING: Duration = Duration::from_micros(20);

/// The greatest number of polls between two looks at the clock.
const POLLS_UNTIMED: usize = 16;

/// The state of one step's end, as its caller needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stepped {
    /// Set if the step found anything to do.
    pub(crate) found: bool,
    /// Number of messages, closures and polls it did.
    pub(crate) events: usize,
}

/// Events that one step has taken in from outside.
#[derive(Debug, Clone, Copy)]
struct Arrived {
    admitted: usize,
    control: usize,
    notices: usize,
}

impl<S: Shard> Worker<S> {
    /// Does a bounded amount of everything there is to do at the time `now`.
    pub(crate) fn step(self: &Rc<Self>, now: Ticks) -> Stepped {
        let entered = current::enter(&**self);
        let limits = self.limits.get();
        self.core.step_time.set(now);
        self.observe_phase();

        let received = self.run_messages(limits.messages_per_ring.max(1));
        let notices = self.run_notices();
        let control = self.lanes.control.drain(self, limits.inbox_per_step.max(1));
        let mut found = self.publish_if_publishing();
        // ATraPos §V-A keeps transactions of one partition on one thread; what is in flight goes before what is new.
        let admitted =
            if self.admits(limits) { self.lanes.inbox.drain(self, limits.inbox_per_step.max(1)) } else { 0 };
        found |= self.core.timers.fire(now, |task| self.core.tasks.wake(task));
        let polled = self.poll_tasks(limits.tasks_per_step.max(1));
        if received + notices + control + admitted + polled > 0 {
            self.core.quiet_since.set(now);
        }
        let background = S::background(self, now);
        found |= self.publish_if_publishing();
        if self.backlog.now() > 0 && self.publishing.get() {
            self.unspill();
            found = true;
        }
        self.show_progress(background, Arrived { admitted, control, notices });
        drop(entered);

        let events = received + notices + control + admitted + polled;
        let found = found || background || events > 0 || self.core.tasks.ready_len() > 0;
        Stepped { found, events }
    }

    /// Returns whether anything is taken from the inbox: the rings keep up, and not too much is in flight.
    #[inline]
    fn admits(&self, limits: Limits) -> bool {
        let counted = self.core.tasks.live() - self.core.control_tasks.get();
        self.backlog.now() == 0 && counted < limits.tasks_in_flight.max(1)
    }

    /// Notices that the runtime has begun to stop: sleeping tasks are woken once, to see it too.
    #[inline]
    fn observe_phase(&self) {
        if self.shared.phase() != Phase::Running && !self.core.stopping.get() {
            self.core.stopping.set(true);
            self.core.timers.fire_all(|task| self.core.tasks.wake(task));
        }
    }

    #[inline]
    fn run_messages(self: &Rc<Self>, messages_per_ring: usize) -> usize {
        let ran = self.incoming.drain(self, messages_per_ring);
        if ran > 0 {
            S::after_messages(self);
        }
        self.received.set(self.received.get() + ran as u64);
        ran
    }

    #[inline]
    fn run_notices(self: &Rc<Self>) -> usize {
        let port = self.shared.port(self.id);
        if !port.has_notices() {
            return 0;
        }
        let notices = port.take_notices();
        let ran = notices.len();
        for notice in notices {
            notice(self);
        }
        ran
    }

    #[inline]
    fn poll_tasks(self: &Rc<Self>, tasks_per_step: usize) -> usize {
        let (mut polled, mut untimed) = (0, self.untimed.get());
        let mut now = self.core.step_time.get();
        let end = now.after(self.polling);
        loop {
            let wanted = untimed.min(tasks_per_step - polled);
            let some = self.core.tasks.poll_ready(wanted);
            polled += some;
            if some < wanted || polled == tasks_per_step {
                break;
            }
            let before = std::mem::replace(&mut now, self.now());
            if now >= end {
                break;
            }
            // Short polls are timed together: looking at the clock costs a part of one.
            let took = now.since(before).0;
            if 2 * took > self.polling.0 {
                untimed = 1;
            } else if 4 * took <= self.polling.0 {
                untimed = (2 * untimed).min(POLLS_UNTIMED);
            }
        }
        self.untimed.set(untimed);
        // What the polls ask of others is not kept back for the background work.
        self.publish_if_publishing();
        polled
    }

    #[inline]
    fn publish_if_publishing(&self) -> bool {
        self.publishing.get() && self.publish_outgoing()
    }

    /// Publishes what was sent and wakes those receivers that sleep. Returns whether there was anything.
    #[inline]
    pub(super) fn publish_outgoing(&self) -> bool {
        let fresh = self.dirty_len.get() > 0;
        if fresh {
            self.publish_dirty();
        }
        fresh
    }

    #[inline(never)]
    fn publish_dirty(&self) {
        let dirty = &self.dirty[..self.dirty_len.get()];
        self.stats.messages_sent.show(self.sent.get());
        for to in dirty {
            self.outgoing[to.get().index()].publish();
        }
        self.dirty_len.set(0);
        // One fence for all receivers; see `park`.
        fence(Ordering::SeqCst);
        for to in dirty {
            self.shared.port(to.get()).parker.wake_after_fence();
        }
    }

    /// Moves spilled messages into their rings as far as there is room.
    #[cold]
    #[inline(never)]
    fn unspill(&self) {
        self.stats.messages_sent.show(self.sent.get());
        for outgoing in &self.outgoing {
            outgoing.unspill(&self.backlog);
        }
        self.dirty_len.set(0);
        fence(Ordering::SeqCst);
        for (_, port) in self.shared.ports() {
            port.parker.wake_after_fence();
        }
    }

    /// Shows the counters of this step, in the order that [`Shared::activity`] relies on.
    #[inline]
    fn show_progress(&self, background: bool, arrived: Arrived) {
        let stats = &self.stats;
        stats.steps.add(1);
        let unfinished = self.core.tasks.live() + self.backlog.now() + usize::from(background);
        stats.unfinished.show(unfinished as u64);
        if self.core.stopping.get() {
            stats.stopping_steps.add_release(1);
        }
        stats.messages_sent.show(self.sent.get());
        stats.spills.show(self.backlog.ever());
        stats.messages_received.show_release(self.received.get());
        if arrived.admitted > 0 {
            stats.inbox_received.add(arrived.admitted as u64);
            self.lanes.inbox.show_handled();
        }
        if arrived.control > 0 {
            stats.control_received.add(arrived.control as u64);
            self.lanes.control.show_handled();
        }
        if arrived.notices > 0 {
            self.shared.port(self.id).show_notices_handled(arrived.notices);
        }
    }

    /// Returns whether anything has arrived that a step would find. Asked between raising the sleep flag and sleeping.
    pub(crate) fn has_arrivals(self: &Rc<Self>) -> bool {
        self.incoming.any_published()
            || self.lanes.control.has_ready()
            || (self.lanes.inbox.has_ready() && self.admits(self.limits.get()))
            || self.shared.port(self.id).has_notices()
            || (self.shared.phase() != Phase::Running && !self.core.stopping.get())
            || self.shared.phase() == Phase::Stopped
            || S::has_arrivals(self)
    }

    /// Returns whether messages of workers have arrived that the current step has not seen. Of more than eight workers eight are looked at each
    /// time, in turns: a look costs a line that they write, or two.
    #[inline]
    #[must_use]
    pub fn has_messages(&self) -> bool {
        self.incoming.some_published()
    }

    /// The time by which this worker must be stepped again, if nothing arrives; [`Ticks::MAX`] for never.
    pub(crate) fn next_deadline(self: &Rc<Self>) -> Ticks {
        self.core.timers.next().min(S::next_deadline(self).unwrap_or(Ticks::MAX))
    }

    /// Drops all tasks and refuses all that has not been handled. Returns how many tasks there were.
    pub(crate) fn end(self: &Rc<Self>) -> usize {
        let entered = current::enter(&**self);
        self.core.stopping.set(true);
        let dropped = self.core.tasks.clear();
        // The lanes were closed before the phase that was seen: so they are seen closed.
        fence(Ordering::Acquire);
        self.lanes.inbox.drop_rest();
        self.lanes.control.drop_rest();
        self.shared.port(self.id).close_notices();
        self.publish_outgoing();
        self.stats.unfinished.show(0);
        drop(entered);
        dropped
    }
}
