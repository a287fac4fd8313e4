//! The stages of one transaction, recorded on request for display, and the hooks by which its accesses are recorded for
//! flow graphs ([`crate::recording`]).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use atrapos_runtime::WorkerId;

use crate::recording::Recorder;
use crate::shard::EngineWorker;

/// A stage in the life of a transaction, with the same name in the documentation, the code and the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// The request goes to the worker that owns its routing key.
    Route,
    /// The procedure runs; its actions run on the owners of their data.
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

/// An event of a traced transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// The stage it belongs to.
    pub stage: Stage,
    /// The worker on which it was noted: the transaction's home.
    pub worker: WorkerId,
    /// The description of the event.
    pub what: String,
}

/// The trace of a running transaction: off unless requested, and off when the transaction ends.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    on: Cell<bool>,
    observer: RefCell<Option<Observer>>,
}

/// The receiver of the trace, which owns the notes, so that they outlive the transaction's recycled state.
#[derive(Clone, Debug)]
enum Observer {
    Stages(Rc<RefCell<Vec<TraceEvent>>>),
    Accesses(Rc<RefCell<Recorder>>),
}

impl Trace {
    /// Notes stages in `events` from now on until the transaction ends.
    pub(crate) fn open(&self, events: Rc<RefCell<Vec<TraceEvent>>>) {
        self.observe(Observer::Stages(events));
    }

    /// Notes accesses from now on until the transaction ends.
    pub(crate) fn record(&self, recorder: Rc<RefCell<Recorder>>) {
        self.observe(Observer::Accesses(recorder));
    }

    fn observe(&self, observer: Observer) {
        self.observer.replace(Some(observer));
        self.on.set(true);
    }

    /// Returns true if a trace was requested.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.on.get()
    }

    /// Returns the recorder of accesses, if they are recorded.
    pub(crate) fn recorder(&self) -> Option<Rc<RefCell<Recorder>>> {
        match &*self.observer.borrow() {
            Some(Observer::Accesses(recorder)) => Some(Rc::clone(recorder)),
            _ => None,
        }
    }

    /// Notes an event. Costs one comparison if no trace was requested.
    #[inline]
    pub(crate) fn event(&self, worker: &EngineWorker, stage: Stage, what: impl FnOnce() -> String) {
        if self.on.get() {
            self.note(worker, stage, what);
        }
    }

    #[cold]
    fn note(&self, worker: &EngineWorker, stage: Stage, what: impl FnOnce() -> String) {
        if let Some(Observer::Stages(events)) = &*self.observer.borrow() {
            events.borrow_mut().push(TraceEvent { stage, worker: worker.id(), what: what() });
        }
    }

    /// Notes the end of the transaction, and closes the trace, since the state is about to be reused for another
    /// transaction.
    #[inline]
    pub(crate) fn end(&self, worker: &EngineWorker, how: impl FnOnce() -> String) {
        if self.on.get() {
            self.note(worker, Stage::Release, how);
            self.on.set(false);
            self.observer.take();
        }
    }

    /// Begins a phase of the recording.
    #[inline]
    pub(crate) fn next_phase(&self) {
        if self.on.get()
            && let Some(recorder) = self.recorder()
        {
            recorder.borrow_mut().next_phase();
        }
    }

    /// Assigns the next access to the phase that was begun.
    #[inline]
    pub(crate) fn in_phase(&self) {
        if self.on.get()
            && let Some(recorder) = self.recorder()
        {
            recorder.borrow_mut().in_phase();
        }
    }
}
