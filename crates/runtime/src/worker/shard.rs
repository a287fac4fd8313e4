//! The layer above, as a worker sees it: the state that it hosts, and the amounts of work per step.

use std::rc::Rc;

use super::Worker;
use crate::clock::Ticks;

/// The state of the layer above that one worker hosts, and what that layer does besides its tasks.
pub trait Shard: Sized + 'static {
    /// The rest of the work of the messages that a step has taken in, which may be put off until all of them have come; called before
    /// the step does anything else.
    fn after_messages(worker: &Rc<Worker<Self>>) {
        let _ = worker;
    }

    /// One bounded slice of the shard's own background work; called once per step. Returns whether it found work: a
    /// worker whose shard says no may go to sleep, and a shutdown waits until it says no.
    fn background(worker: &Rc<Worker<Self>>, now: Ticks) -> bool {
        let _ = (worker, now);
        false
    }

    /// Returns whether anything that threads outside have published waits for [`background`](Self::background). Asked
    /// between raising the worker's sleep flag and sleeping; whoever publishes such a thing calls [`Handle::wake`](crate::Handle::wake)
    /// after it.
    fn has_arrivals(worker: &Rc<Worker<Self>>) -> bool {
        let _ = worker;
        false
    }

    /// The time by which [`background`](Self::background) wants to be called, on the worker's clock. Asked before the
    /// worker goes to sleep; `None` lets it sleep until something arrives.
    fn next_deadline(worker: &Rc<Worker<Self>>) -> Option<Ticks> {
        let _ = worker;
        None
    }
}

/// Amounts of work of each kind that one step does at most. Smaller limits bound the time between two looks at a ring;
/// larger ones amortize more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Messages run per incoming ring and step.
    pub messages_per_ring: usize,
    /// Closures from outside run per step, of each lane.
    pub inbox_per_step: usize,
    /// Tasks polled per step.
    pub tasks_per_step: usize,
    /// Unfinished tasks beyond which nothing more is taken from the inbox: what waits outside is bounded by the inbox, and
    /// what waits inside by this. [Control tasks](Worker::spawn_control) do not count.
    pub tasks_in_flight: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { messages_per_ring: 128, inbox_per_step: 32, tasks_per_step: 64, tasks_in_flight: 1024 }
    }
}
