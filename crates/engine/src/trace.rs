//! The stages of one transaction, recorded on request: for people who want to see where a transaction goes.

use std::cell::{Cell, RefCell};

use atrapos_runtime::WorkerId;

use crate::shard::EngineWorker;

/// A stage in the life of a transaction, with the name it has everywhere: in the documentation, the code and the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// The request goes to the worker that owns its routing key.
    Route,
    /// The procedure runs; its actions run where their data is.
    Execute,
    /// Locks are entered, waited for or granted.
    Lock,
    /// The redo record is written.
    Log,
    /// The outcome is decided; locks are released.
    Release,
    /// The epoch of the transaction becomes durable and the reply is given.
    Harden,
}

impl Stage {
    /// The stage's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Stage::Route => "route",
            Stage::Execute => "execute",
            Stage::Lock => "lock",
            Stage::Log => "log",
            Stage::Release => "release",
            Stage::Harden => "harden",
        }
    }
}

/// Something that happened to a traced transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// The stage it belongs to.
    pub stage: Stage,
    /// The worker on which it was noted: the transaction's home.
    pub worker: WorkerId,
    /// What happened.
    pub what: String,
}

/// The trace of a running transaction: off unless somebody asked.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    on: Cell<bool>,
    events: RefCell<Vec<TraceEvent>>,
}

impl Trace {
    pub(crate) fn open(&self) {
        self.on.set(true);
    }

    /// Notes an event. Costs one comparison when nobody asked.
    #[inline]
    pub(crate) fn event(&self, worker: &EngineWorker, stage: Stage, what: impl FnOnce() -> String) {
        if self.on.get() {
            self.events.borrow_mut().push(TraceEvent { stage, worker: worker.id(), what: what() });
        }
    }

    /// Ends the trace and hands over what was noted.
    pub(crate) fn close(&self) -> Vec<TraceEvent> {
        self.on.set(false);
        self.events.take()
    }
}
