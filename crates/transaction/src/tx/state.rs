//! What the engine keeps for a transaction at its home worker ([`TxnState`]), and for each of its operations that suspends it
//! ([`OperationGuard`]). Never: runs an action, or ends a transaction ([`super::commit`]).
//!
//! Invariants
//! - A state is used again by another transaction only when nobody else has it: a task that runs one of the transaction's
//!   actions where its data has come home may go on when the transaction has ended, and must find that it has.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use atrapos_durability::wal::Epoch;
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::action::DependentAction;
use atrapos_partition::monitor::Partner;
use atrapos_partition::schema::TableId;
use atrapos_runtime::WorkerId;
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::TxnId;

use crate::age::Age;
use crate::branch::Branch;
use crate::shard::EngineWorker;
use crate::trace::{Stage, Trace};
use crate::tx::savepoint::Savepoints;

/// What the engine keeps for a transaction at its home worker. Recycled.
#[derive(Debug, Default)]
pub struct TxnState {
    /// Its number, by which it owns locks; zero as long as nobody needs one.
    pub(super) txn: Cell<TxnId>,
    /// The age of its first attempt: attempts made after a deadlock keep their seniority.
    pub(crate) age: Cell<Age>,
    /// What it has done at its home.
    pub home: RefCell<Branch>,
    /// Other workers on which it has run actions.
    pub(crate) participants: RefCell<Vec<WorkerId>>,
    /// Set when an action failed: the transaction can only abort, for this reason.
    pub(super) doomed: RefCell<Option<Abort>>,
    /// Whether it can only abort.
    pub(super) is_doomed: Cell<bool>,
    /// Operations that have suspended the transaction and have not come to their end ([`OperationGuard`]).
    pub(super) outstanding: Cell<u32>,
    /// Set by an operation of its own that is about to suspend it: a procedure that suspends in anything else would never
    /// go on.
    pub(super) suspends: Cell<bool>,
    /// The newest epoch of what was seen elsewhere that was not durable.
    pub(super) observed: Cell<Epoch>,
    /// What it has asked for on other workers: what it has met with, should that be recorded.
    pub(super) sent: RefCell<Vec<Partner>>,
    /// What must follow the writes made so far; empty between actions.
    pub(crate) dependents: RefCell<Vec<DependentAction>>,
    /// The savepoints that can be rolled back to.
    pub(super) savepoints: RefCell<Savepoints>,
    /// Who looks at it.
    pub(crate) trace: Trace,
}

impl TxnState {
    /// The state of a transaction whose redo has at most so many bytes.
    pub(crate) fn bounded(redo_bytes_max: usize) -> TxnState {
        TxnState { home: RefCell::new(Branch::bounded(redo_bytes_max)), ..TxnState::default() }
    }

    /// Its number.
    #[inline]
    pub(crate) fn txn(&self) -> TxnId {
        self.txn.get()
    }

    /// Gives the transaction a number and makes it known to this worker: others are about to hear of it.
    pub(super) fn ensure_known(self: &Rc<Self>, worker: &EngineWorker) -> TxnId {
        if self.txn.get() == TxnId(0) {
            let txn = worker.shard().new_txn(worker.id());
            self.txn.set(txn);
            if self.age.get() == Age::NONE {
                self.age.set(worker.shard().ages.next(worker.step_time()));
            }
            worker.shard().active.borrow_mut().insert(txn, Rc::clone(self));
        }
        self.txn()
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
        let txn = self.ensure_known(worker);
        let shard = worker.shard();
        if shard.monitor.is_due() {
            shard.monitor.record(worker, &self.home.borrow().held, &[], false);
        }
        let entered = self.home.borrow_mut().enter_locks(txn, &mut shard.tables.borrow_mut());
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
    pub(super) fn cannot_commit(&self) -> Option<Abort> {
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

    /// The transaction is not doomed any more: it has gone back to before what doomed it.
    pub(super) fn recover(&self) {
        self.is_doomed.set(false);
        self.doomed.take();
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
pub struct OperationGuard<'a>(&'a TxnState);

impl<'a> OperationGuard<'a> {
    /// An operation suspends the transaction.
    #[inline]
    pub(crate) fn begin(state: &'a TxnState) -> OperationGuard<'a> {
        state.outstanding.set(state.outstanding.get() + 1);
        OperationGuard(state)
    }

    /// The operation has come to its end.
    #[inline]
    pub(crate) fn disarm(self) {
        self.0.outstanding.set(self.0.outstanding.get() - 1);
        std::mem::forget(self);
    }
}

impl Drop for OperationGuard<'_> {
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
