//! The state of a transaction at its home ([`TxnState`]), and of each of its operations that suspends it
//! ([`OperationGuard`]). Never: runs an action, or ends a transaction ([`super::commit`]).
//!
//! Invariants
//! - A state is reused for another transaction only if no other reference to it exists: a task that runs one of the
//!   transaction's actions on data that has moved to the home may go on after the transaction has ended, and must find
//!   that it has.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use atrapos_durability::wal::{Epoch, GlobalId};
use atrapos_partition::abort::{Abort, AbortReason, Advice};
use atrapos_partition::action::DependentAction;
use atrapos_partition::planted::{Bug, planted};
use atrapos_runtime::WorkerId;
use atrapos_storage::lock::TxnId;

use crate::age::Age;
use crate::branch::Branch;
use crate::central::Attendance;
use crate::distributed::coordinator::Remote;
use crate::shard::EngineWorker;
use crate::trace::{Stage, Trace};
use crate::tx::rounds::Rounds;
use crate::tx::savepoint::Savepoints;
use crate::wal::siblings::Heard;

/// The state of a transaction at its home. Recycled.
#[derive(Debug, Default)]
pub struct TxnState {
    /// Its number, by which it owns locks; zero until one is needed.
    pub(super) txn: Cell<TxnId>,
    /// The age of its first attempt: attempts after a deadlock keep their seniority.
    pub(crate) age: Cell<Age>,
    /// Its branch at its home.
    pub home: RefCell<Branch>,
    /// Other workers on which it has run actions.
    pub(crate) participants: RefCell<Vec<WorkerId>>,
    /// The reason for which the transaction can only abort; set by a failed action.
    pub(super) doomed: RefCell<Option<Abort>>,
    /// True if it runs no more operations: it can only abort, or is [closed](TxnState::close), if there is no reason.
    pub(super) is_doomed: Cell<bool>,
    /// True if its last operation has run, and locks may be released.
    is_closed: Cell<bool>,
    /// The number of operations that have suspended the transaction and have not ended ([`OperationGuard`]), with the flag
    /// [`VOTES`].
    pub(super) outstanding: Cell<u32>,
    /// True if one of its own operations is about to suspend it: a procedure that suspends in any other future would
    /// never go on.
    pub(super) suspends: Cell<bool>,
    /// The newest epoch observed on other workers that was not durable.
    pub(super) observed: Cell<Epoch>,
    /// Its synchronization points with other workers, if events are recorded.
    pub(super) rounds: RefCell<Rounds>,
    /// The dependents of the writes made so far; empty between actions.
    pub(crate) dependents: RefCell<Vec<DependentAction>>,
    /// The savepoints that can be rolled back to.
    pub(super) savepoints: RefCell<Savepoints>,
    /// Its part in other instances, if it has one.
    pub(crate) remote: RefCell<Option<Box<Remote>>>,
    /// The transaction whose subordinate it is, if it is one.
    pub(crate) coordinator: Cell<Option<GlobalId>>,
    /// The number of the client that it works for ([`Tx::set_client`](super::Tx::set_client)); zero if nobody has said.
    pub(crate) client: Cell<u32>,
    /// The class that it is counted under ([`Tx::set_class`](super::Tx::set_class)), empty if nobody has said; `None` if its end does not
    /// count, since it runs again.
    pub(crate) class: Cell<Option<&'static str>>,
    /// The round of the WAL in which it last went on after waiting for its client.
    pub(crate) heard: Heard,
    /// The trace or recording.
    pub(crate) trace: Trace,
    /// Its part of the system state that workers share.
    pub(crate) attendance: Cell<Attendance>,
}

impl TxnState {
    /// Creates the state of a transaction whose redo has at most so many bytes.
    pub(crate) fn bounded(redo_bytes_max: usize) -> TxnState {
        TxnState {
            home: RefCell::new(Branch::bounded(redo_bytes_max)),
            class: Cell::new(Some("")),
            ..TxnState::default()
        }
    }

    /// Its number.
    #[inline]
    pub(crate) fn txn(&self) -> TxnId {
        self.txn.get()
    }

    /// Gives the transaction a number and registers it on this worker, before it becomes known to others.
    pub(crate) fn ensure_known(self: &Rc<Self>, worker: &EngineWorker) -> TxnId {
        if self.txn.get() == TxnId(0) {
            let txn = if self.age.get() == Age::NONE {
                debug_assert!(self.attendance.get().txn == TxnId(0), "who attends has an age");
                self.age.set(worker.shard().ages.next(worker.step_time()));
                worker.shard().new_own_txn(worker.id())
            } else {
                self.number_of_aged(worker)
            };
            self.txn.set(txn);
            worker.shard().active.borrow_mut().insert(txn, Rc::clone(self));
        }
        self.txn()
    }

    /// Returns the number of a transaction that has an age: an attempt after a deadlock, or a transaction that has attended to
    /// the shared system state since its beginning.
    #[cold]
    fn number_of_aged(&self, worker: &EngineWorker) -> TxnId {
        let Attendance { txn, .. } = self.attendance.get();
        if txn == TxnId(0) { worker.shard().new_txn(worker.id()) } else { txn }
    }

    /// Adds a worker on which the transaction runs, or is about to run, actions.
    pub(crate) fn add_participant(&self, worker: WorkerId) {
        let mut participants = self.participants.borrow_mut();
        if !participants.contains(&worker) {
            participants.push(worker);
        }
    }

    /// Enters what the transaction, which suspends, has accessed since its last suspension in the lock tables.
    pub(crate) fn enter_locks(self: &Rc<Self>, worker: &EngineWorker) {
        if !self.home.borrow().has_unentered() {
            return;
        }
        let txn = self.ensure_known(worker);
        let shard = worker.shard();
        if shard.monitor.is_due() {
            shard.monitor.record(worker, &self.home.borrow().accesses, None);
        }
        let entered = self.home.borrow_mut().enter_locks(txn, &mut shard.tables.borrow_mut());
        shard.stats.locks_entered.add(entered);
        self.trace.event(worker, Stage::Lock, || format!("suspends: {entered} locks entered"));
    }

    /// Handles a suspension: called when the procedure returns to the worker unfinished. Returns an error if no event
    /// would ever wake it again.
    #[inline(always)]
    pub(crate) fn on_suspend(self: &Rc<Self>, worker: &EngineWorker) -> Result<(), Abort> {
        if !self.suspends.replace(false) {
            return Err(Abort::because(
                AbortReason::Misuse,
                "the procedure awaits something other than its own actions; do that before or after the transaction",
            ));
        }
        self.home.borrow_mut().suspended = true;
        self.enter_locks(worker);
        Ok(())
    }

    /// The reason for which a transaction runs no more operations. Whoever asks has tried one: a transaction that was closed is doomed
    /// by that.
    #[cold]
    pub(super) fn doomed_for(&self) -> Abort {
        let after_last = || {
            Abort::because(
                AbortReason::Misuse,
                "the procedure has declared its last operation, and runs another one; declare the last one only",
            )
        };
        self.doomed.borrow_mut().get_or_insert_with(after_last).clone()
    }

    /// Closes the transaction: some of its locks are released, so it may not acquire any more. It commits if its procedure succeeds.
    pub(crate) fn close(&self) {
        self.is_closed.set(true);
        self.is_doomed.set(true);
    }

    /// Opens the state of a transaction that has ended, for the next one.
    pub(super) fn reopen(&self) {
        self.is_closed.set(false);
        self.recover();
    }

    /// The reason for which the transaction must not commit although its procedure succeeded, if there is one.
    #[cold]
    pub(super) fn cannot_commit(&self) -> Option<Abort> {
        if self.is_doomed.get() && self.doomed.borrow().is_some() {
            return Some(self.doomed_for());
        }
        (self.operations() > 0).then(|| {
            Abort::because(
                AbortReason::Misuse,
                "the procedure ended while one of its actions was still under way; await every action",
            )
        })
    }

    /// The number of operations that have suspended the transaction and have not ended.
    pub(super) fn operations(&self) -> u32 {
        self.outstanding.get() & !VOTES
    }

    /// Gives the transaction a part in other instances, made by `begin`, unless it has one.
    pub(crate) fn begin_remote(&self, begin: impl FnOnce() -> Box<Remote>) {
        self.remote.borrow_mut().get_or_insert_with(begin);
        self.outstanding.set(self.outstanding.get() | VOTES);
    }

    /// Returns true if other instances have to vote before the transaction commits.
    pub(super) fn awaits_votes(&self) -> bool {
        self.outstanding.get() & VOTES != 0
    }

    /// Returns true if the abort of its procedure tells of something that it has read in another instance, and that may not be
    /// durable there.
    #[cold]
    pub(super) fn tells_undurable(&self, failed: AbortReason) -> bool {
        let remote = self.remote.borrow();
        failed.advice() != Advice::Retry
            && !planted(Bug::RemoteFailureToldEarly)
            && remote.as_ref().is_some_and(|remote| remote.has_read_undurable())
    }

    /// Notes that other instances have voted.
    pub(crate) fn set_voted(&self) {
        self.outstanding.set(self.operations());
    }

    /// Notes that an operation of the transaction is about to suspend it.
    #[inline]
    pub(crate) fn suspending(&self) {
        self.suspends.set(true);
    }

    /// Clears the doom of the transaction, which was rolled back to before the failed action.
    pub(super) fn recover(&self) {
        self.is_doomed.set(self.is_closed.get());
        self.doomed.take();
    }

    /// Dooms the transaction after an action failed: it aborts independent of later operations.
    #[cold]
    pub(crate) fn doom(&self, abort: &Abort) {
        self.is_doomed.set(true);
        self.doomed.borrow_mut().get_or_insert_with(|| abort.clone());
    }
}

/// A flag beside the number of operations: other instances have to vote before the transaction commits. There, because a
/// transaction that ends looks at that number anyway.
const VOTES: u32 = 1 << 31;

/// A guard for an operation that suspends its transaction. Dropped before the end of the operation, it dooms the
/// transaction, since the operation may be incomplete. Leaked, it counts as under way, and the transaction cannot
/// commit.
pub struct OperationGuard<'a>(&'a TxnState);

impl<'a> OperationGuard<'a> {
    /// Begins an operation that suspends the transaction.
    #[inline]
    pub(crate) fn begin(state: &'a TxnState) -> OperationGuard<'a> {
        state.outstanding.set(state.outstanding.get() + 1);
        OperationGuard(state)
    }

    /// Ends the operation.
    #[inline]
    pub(crate) fn disarm(self) {
        self.0.outstanding.set(self.0.outstanding.get() - 1);
        std::mem::forget(self);
    }
}

impl Drop for OperationGuard<'_> {
    #[cold]
    fn drop(&mut self) {
        // None of the transaction's own operations suspends it any more.
        self.0.suspends.set(false);
        self.0.outstanding.set(self.0.outstanding.get() - 1);
        self.0.doom(&Abort::because(
            AbortReason::Misuse,
            "the procedure gave up waiting for one of its own actions; await every action to its end",
        ));
    }
}
