//! What the engine keeps for a transaction at its home worker, and how the transaction ends.
//!
//! Owns: the states of a transaction between its beginning and its end ([`TxnState`]), and the right to end it ([`TxnGuard`]).
//! Never: runs an action.
//!
//! Invariants
//! - A transaction ends exactly once, whatever becomes of its procedure.
//! - A state is used again by another transaction only when nobody else has it: a task that runs one of the transaction's
//!   actions where its data has come home may go on when the transaction has ended, and must find that it has.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use atrapos_durability::wal::Epoch;
use atrapos_runtime::WorkerId;
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::TxnId;

use crate::abort::{Abort, AbortReason};
use crate::action::DependentAction;
use crate::age::Age;
use crate::branch::Branch;
use crate::monitor::Partner;
use crate::panic_guard::PanicGuard;
use crate::planted::{Bug, planted};
use crate::schema::TableId;
use crate::shard::EngineWorker;
use crate::trace::{Stage, Trace};
use crate::wal::CommitWaiters;

/// What the engine keeps for a transaction at its home worker. Recycled.
#[derive(Debug, Default)]
pub(crate) struct TxnState {
    /// Its number as an owner of locks; zero as long as nobody needs one.
    owner: Cell<u64>,
    /// The age of its first attempt: attempts made after a deadlock keep their seniority.
    pub(crate) age: Cell<Age>,
    pub(crate) home: RefCell<Branch>,
    /// Other workers on which it has run actions.
    pub(crate) participants: RefCell<Vec<WorkerId>>,
    /// Set when an action failed: the transaction can only abort, for this reason.
    doomed: RefCell<Option<Abort>>,
    pub(super) is_doomed: Cell<bool>,
    /// Operations that have suspended the transaction and have not come to their end ([`HalfWay`]).
    outstanding: Cell<u32>,
    /// Set by an operation of its own that is about to suspend it: a procedure that suspends in anything else would never
    /// go on.
    suspends: Cell<bool>,
    /// The newest epoch of what was seen elsewhere that was not durable.
    pub(super) observed: Cell<u64>,
    /// What it has asked for on other workers: what it has met with, should that be recorded.
    sent: RefCell<Vec<Partner>>,
    /// What must follow the writes made so far; empty between actions.
    pub(crate) dependents: RefCell<Vec<DependentAction>>,
    pub(crate) trace: Trace,
}

impl TxnState {
    /// The state of a transaction whose redo has at most so many bytes.
    pub(crate) fn bounded(redo_bytes_max: usize) -> TxnState {
        TxnState { home: RefCell::new(Branch::bounded(redo_bytes_max)), ..TxnState::default() }
    }

    #[inline]
    pub(crate) fn owner(&self) -> TxnId {
        TxnId(self.owner.get())
    }

    /// Gives the transaction a number and makes it known to this worker: others are about to hear of it.
    pub(super) fn ensure_known(self: &Rc<Self>, worker: &EngineWorker) -> TxnId {
        if self.owner.get() == 0 {
            let owner = worker.shard().new_owner(worker.id());
            self.owner.set(owner.0);
            if self.age.get() == Age::NONE {
                self.age.set(worker.shard().ages.next(worker.step_time()));
            }
            worker.shard().active.borrow_mut().insert(owner, Rc::clone(self));
        }
        self.owner()
    }

    /// Notes that something is asked for on another worker.
    pub(super) fn note_sent(&self, table: TableId, key: &KeyBuf) {
        let mut sent = self.sent.borrow_mut();
        if sent.len() < SENT_MAX {
            sent.push((table, key.clone()));
        }
    }

    /// The transaction has, or is about to have, done something on another worker.
    pub(crate) fn add_participant(&self, worker: WorkerId) {
        let mut participants = self.participants.borrow_mut();
        if !participants.contains(&worker) {
            participants.push(worker);
        }
    }

    /// The transaction suspends: enters its footprint in the lock tables unless that was done before.
    pub(crate) fn enter_locks(self: &Rc<Self>, worker: &EngineWorker) {
        if self.home.borrow().entered || self.home.borrow().is_untouched() {
            return;
        }
        let owner = self.ensure_known(worker);
        let shard = worker.shard();
        if shard.monitor.is_due() {
            shard.monitor.record(worker, &self.home.borrow().held, &[], false);
        }
        let entered = self.home.borrow_mut().enter_locks(owner, &mut shard.tables.borrow_mut());
        shard.stats.locks_entered.add(entered);
        self.trace.event(worker, Stage::Lock, || format!("suspends: {entered} locks entered"));
    }

    /// Called when the procedure returns to the worker without being finished. An error means that nothing would ever
    /// wake it again.
    #[inline(always)]
    pub(crate) fn on_suspend(self: &Rc<Self>, worker: &EngineWorker) -> Result<(), Abort> {
        if !self.suspends.replace(false) {
            return Err(Abort::because(
                AbortReason::Misuse,
                "the procedure awaits something other than its own actions; do that before or after the transaction",
            ));
        }
        if !self.home.borrow().is_untouched() {
            self.enter_locks(worker);
        }
        Ok(())
    }

    /// Why a doomed transaction is doomed.
    #[cold]
    pub(super) fn doomed_for(&self) -> Abort {
        self.doomed.borrow().clone().expect("a doomed transaction knows why")
    }

    /// Why the transaction must not commit although its procedure ended well.
    #[cold]
    fn cannot_commit(&self) -> Option<Abort> {
        if self.is_doomed.get() {
            return Some(self.doomed_for());
        }
        (self.outstanding.get() > 0).then(|| {
            Abort::because(
                AbortReason::Misuse,
                "the procedure ended while one of its actions was still under way; await every action",
            )
        })
    }

    /// An operation of the transaction is about to suspend it.
    #[inline]
    pub(crate) fn suspending(&self) {
        self.suspends.set(true);
    }

    /// An action failed: whatever the procedure does now, the transaction aborts.
    #[cold]
    pub(crate) fn doom(&self, abort: &Abort) {
        if !self.is_doomed.replace(true) {
            self.doomed.replace(Some(abort.clone()));
        }
    }
}

/// Keys asked for on other workers that a transaction remembers.
const SENT_MAX: usize = 32;

/// An operation that suspends its transaction is under way. Given up before its end, it dooms the transaction: what it
/// has done, or would have done, may be half of something. Forgotten, it counts as under way, and the transaction cannot
/// commit.
pub(crate) struct HalfWay<'a>(&'a TxnState);

impl<'a> HalfWay<'a> {
    #[inline]
    pub(crate) fn begin(core: &'a TxnState) -> HalfWay<'a> {
        core.outstanding.set(core.outstanding.get() + 1);
        HalfWay(core)
    }

    /// The operation has come to its end.
    #[inline]
    pub(crate) fn disarm(self) {
        self.0.outstanding.set(self.0.outstanding.get() - 1);
        std::mem::forget(self);
    }
}

impl Drop for HalfWay<'_> {
    #[cold]
    fn drop(&mut self) {
        // Nothing of the transaction's own suspends it any more.
        self.0.suspends.set(false);
        self.0.outstanding.set(self.0.outstanding.get() - 1);
        self.0.doom(&Abort::because(
            AbortReason::Misuse,
            "the procedure gave up waiting for one of its own actions; await every action to its end",
        ));
    }
}

/// The right to end a transaction, exactly once: dropped without being asked, it aborts.
pub(crate) struct TxnGuard<'w> {
    worker: &'w Rc<EngineWorker>,
    core: Option<Rc<TxnState>>,
}

impl<'w> TxnGuard<'w> {
    #[inline(always)]
    pub(crate) fn begin(worker: &'w Rc<EngineWorker>) -> TxnGuard<'w> {
        TxnGuard { worker, core: Some(worker.shard().take_core()) }
    }

    #[inline]
    pub(crate) fn worker(&self) -> &'w Rc<EngineWorker> {
        self.worker
    }

    #[inline]
    pub(crate) fn core(&self) -> &Rc<TxnState> {
        self.core.as_ref().expect("a scope has its core until it is finished")
    }

    /// Commits or aborts by the procedure's outcome, which becomes an abort when the transaction cannot commit. Returns the
    /// epoch that has to be durable before anybody is told of the outcome; zero when nothing has to.
    #[inline(always)]
    #[must_use]
    pub(crate) fn finish<R>(mut self, outcome: &mut Result<R, Abort>) -> u64 {
        let core = self.core.take().expect("a scope is finished once");
        if outcome.is_ok()
            && (core.is_doomed.get() || core.outstanding.get() > 0)
            && let Some(abort) = core.cannot_commit()
        {
            *outcome = Err(abort);
        }
        let (mut epoch, mut needs) = (Epoch(0), 0);
        if let Some(commit_waiters) = &self.worker.shard().commit_waiters {
            match commit_waiters.harden(self.worker, &core, outcome.is_ok()) {
                Ok(decided) => (epoch, needs) = decided,
                Err(abort) => *outcome = Err(abort),
            }
        }
        let stats = &self.worker.shard().stats;
        match &outcome {
            Ok(_) => stats.committed.add(1),
            Err(abort) => {
                stats.aborted[abort.reason() as usize].add(1);
                self.worker.shard().aborted_age.set(core.age.get());
            }
        }
        end(self.worker, core, Ending { commit: outcome.is_ok(), epoch });
        // The scope is over: its destructor has nothing to do.
        std::mem::forget(self);
        needs
    }
}

impl Drop for TxnGuard<'_> {
    fn drop(&mut self) {
        if let Some(core) = self.core.take() {
            self.worker.shard().stats.aborted[AbortReason::ShuttingDown as usize].add(1);
            end(self.worker, core, Ending { commit: false, epoch: Epoch(0) });
        }
    }
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    pub(crate) commit: bool,
    /// The epoch of its record, or, while a snapshot is held, that of its commit; zero when it has none.
    pub(crate) epoch: Epoch,
}

impl CommitWaiters {
    /// Logs a transaction that commits, and finds out for which epoch its caller has to wait. Returns the epoch of its
    /// record, zero when it has none, and the one to wait for.
    #[inline(always)]
    fn harden(&self, worker: &EngineWorker, core: &TxnState, commit: bool) -> Result<(Epoch, u64), Abort> {
        let home = core.home.borrow();
        let mut needs = core.observed.get().max(home.observed);
        if home.redo.is_empty() || !commit {
            needs = needs.max(home.observed_since(0, &self.undurable.borrow()));
            if planted(Bug::ReaderToldEarly) {
                needs = 0;
            }
            return Ok((Epoch(0), needs));
        }
        self.log(worker, &home, core)
    }

    #[inline(never)]
    fn log(&self, worker: &EngineWorker, home: &Branch, core: &TxnState) -> Result<(Epoch, u64), Abort> {
        if self.wal.is_failed() {
            return Err(self.wal.refusal());
        }
        let epoch = self.commit(worker, home.redo.bytes())?;
        core.trace.event(worker, Stage::Log, || {
            format!("{} bytes of redo, in epoch {}", home.redo.bytes().len(), epoch.0)
        });
        core.trace
            .event(worker, Stage::Harden, || format!("its caller is told when epoch {} is durable", epoch.0));
        home.note_changes(&mut self.undurable.borrow_mut(), epoch);
        Ok((epoch, epoch.0))
    }
}

/// Releases the transaction everywhere and recycles its state.
#[inline(always)]
fn end(worker: &EngineWorker, core: Rc<TxnState>, ending: Ending) {
    let panic_guard = PanicGuard::enter();
    let shard = worker.shard();
    let commit = ending.commit;
    if shard.monitor.is_due() {
        shard.monitor.record(worker, &core.home.borrow().held, &core.sent.borrow(), true);
    }
    core.trace.end(worker, || if commit { "commits" } else { "aborts" }.to_owned());
    if core.owner.get() == 0 && !core.is_doomed.get() {
        core.home.borrow_mut().finish_unseen(commit, shard);
        recycle(worker, core);
    } else {
        end_known(worker, core, ending);
    }
    panic_guard.leave();
}

/// Keeps the state of a transaction that has ended, and that nobody else has, for another one.
#[inline(always)]
fn recycle(worker: &EngineWorker, core: Rc<TxnState>) {
    core.observed.set(0);
    core.age.set(Age::NONE);
    core.suspends.set(false);
    worker.shard().put_core(core);
}

#[cold]
#[inline(never)]
fn end_known(worker: &EngineWorker, core: Rc<TxnState>, ending: Ending) {
    let Ending { commit, mut epoch } = ending;
    let shard = worker.shard();
    if commit && shard.snapshots.is_held() {
        // Read once, for all that it has changed anywhere.
        epoch = shard.snapshots.epoch_of_commit();
    }
    let owner = core.owner();
    for participant in core.participants.borrow_mut().drain(..) {
        worker.send(participant, move |worker| worker.shard().on_end(worker, owner, commit, epoch));
    }
    if !commit {
        // Those of its actions that wait here, where their data has come to, must find that it is over.
        shard.end_waits(worker, owner);
    }
    shard.active.borrow_mut().remove(&owner);
    shard.finish_branch(worker, &mut core.home.borrow_mut(), owner, Ending { commit, epoch });
    // Tasks that run its actions here have it too, and go on when they are polled or have an answer.
    if Rc::strong_count(&core) > 1 && !planted(Bug::SharedStateReused) {
        core.home.borrow_mut().closed = true;
        return;
    }
    core.owner.set(0);
    core.outstanding.set(0);
    core.sent.borrow_mut().clear();
    core.dependents.borrow_mut().clear();
    core.is_doomed.set(false);
    core.doomed.take();
    recycle(worker, core);
}
