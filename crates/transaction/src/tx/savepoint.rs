//! Savepoints: moments of a transaction to which it can roll back all its changes, on all workers.
//!
//! A rollback undoes the changes in the branches of the transaction, index entries among them, and cuts the redo, which
//! is all at the home when no action is under way. Locks stay: the transaction still relies on the rows that it read,
//! or found absent, since the savepoint.
//!
//! # Completeness of a rollback
//!
//! Partitions may move meanwhile, with the before-images of the changes in them. A rollback visits all participants,
//! and from each the workers to which it has sent data or actions on. A worker that receives a partition after the
//! visit undoes the changes that were rolled back when it arrives (`atrapos_partition::undo::UndoLog`); one that
//! receives it before has it when visited. A partition that leaves a worker before the visit is followed, since
//! messages between two workers arrive in order. When the home has all answers, no change that was rolled back is left
//! on any worker; and no action of the transaction is under way before.

use std::ops::Range;
use std::rc::Rc;

use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::panic_guard::PanicGuard;
use atrapos_partition::planted::{Bug, planted};
use atrapos_partition::schema::CatalogTag;
use atrapos_partition::undo::Mark;
use atrapos_runtime::{Lost, Reply, WorkerId};
use atrapos_storage::lock::TxnId;

use super::{BranchRef, Tx};
use crate::age::Age;
use crate::messages::call_rollback;
use crate::shard::EngineWorker;

/// A moment of a transaction. See [`Tx::savepoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint {
    tag: CatalogTag,
    txn: TxnId,
    mark: Mark,
}

/// The transaction for which an action is sent, and its mark at that time.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// The transaction it belongs to.
    pub(crate) txn: TxnId,
    /// The mark of the changes made from then on.
    pub(crate) mark: Mark,
    /// The age of the transaction.
    pub(crate) age: Age,
}

/// The savepoints of a transaction, at its home.
#[derive(Debug, Default)]
pub(crate) struct Savepoints {
    now: Mark,
    /// The savepoints in the order in which they were set: the mark of the changes after each, and the bytes of redo
    /// before it.
    set: Vec<(Mark, usize)>,
}

impl Savepoints {
    /// The mark of the changes that are made now.
    pub(super) fn now(&self) -> Mark {
        self.now
    }

    /// Removes all savepoints.
    pub(super) fn clear(&mut self) {
        self.now = Mark::default();
        self.set.clear();
    }

    fn advance(&mut self) -> Result<Mark, Abort> {
        self.now = self.now.next().ok_or_else(|| {
            Abort::because(
                AbortReason::TransactionTooLarge,
                "the transaction has set more savepoints than can be counted; make it several transactions",
            )
        })?;
        Ok(self.now)
    }

    /// Removes the savepoints after this one, and returns the bytes of redo before it; `None` if it does not exist.
    fn return_to(&mut self, mark: Mark) -> Option<usize> {
        let at = self.set.binary_search_by_key(&mark, |(set, _)| *set).ok()?;
        self.set.truncate(at + 1);
        Some(self.set[at].1)
    }
}

impl Tx<'_> {
    /// Sets a savepoint: [`rollback_to`](Tx::rollback_to) undoes the changes made from here on.
    ///
    /// # Errors
    /// The reason for which the transaction is doomed, if it is.
    pub fn savepoint(&mut self) -> Result<Savepoint, Abort> {
        let (worker, state) = (self.worker(), self.state());
        if state.is_doomed.get() {
            return Err(state.doomed_for());
        }
        let txn = state.ensure_known(worker);
        let mark = state.savepoints.borrow_mut().advance().map_err(|abort| self.refuse(abort))?;
        let mut home = state.home.borrow_mut();
        home.undo.reach(mark);
        state.savepoints.borrow_mut().set.push((mark, home.redo.bytes().len()));
        Ok(Savepoint { tag: worker.shard().tag, txn, mark })
    }

    /// Undoes all changes of the transaction since the savepoint, here and on other workers. The savepoint can be
    /// rolled back to again; those set after it are removed. Locks are kept until the transaction ends.
    ///
    /// A transaction that is doomed because an action failed (a key was taken, a foreign key violated, a value did not
    /// fit, or something was too large) can go on. One that is the victim of a deadlock, or has to end because the
    /// database closes, cannot.
    ///
    /// # Errors
    /// The reason for which the transaction is doomed and stays so; [`Misuse`](AbortReason::Misuse), which dooms it, if
    /// the savepoint is not one of this transaction, or was set after one that was rolled back to.
    pub async fn rollback_to(&mut self, savepoint: Savepoint) -> Result<(), Abort> {
        let state = self.state();
        if state.is_doomed.get() && !state.doomed_for().reason().is_of_request() {
            return Err(state.doomed_for());
        }
        let time = self.return_to(savepoint).map_err(|abort| {
            state.recover();
            self.refuse(abort)
        })?;
        let visited = state.participants.borrow().clone();
        for participant in visited {
            let call = call_rollback(self.worker(), participant, savepoint.txn, time.clone());
            self.suspend(call).await.map_err(|Lost| {
                state.recover();
                self.refuse(Abort::shutting_down())
            })?;
        }
        state.recover();
        Ok(())
    }

    /// Returns to a savepoint at the home. Returns the range of marks whose changes are undone.
    fn return_to(&self, savepoint: Savepoint) -> Result<Range<Mark>, Abort> {
        let (worker, state) = (self.worker(), self.state());
        if state.operations() > 0 {
            return Err(Abort::because(
                AbortReason::Misuse,
                "the procedure goes back to a savepoint while one of its actions is still under way; await every action",
            ));
        }
        let is_own = savepoint.tag == worker.shard().tag && savepoint.txn == state.txn();
        let found = is_own.then(|| state.savepoints.borrow_mut().return_to(savepoint.mark)).flatten();
        let Some(redo) = found else {
            return Err(Abort::because(
                AbortReason::Misuse,
                "the savepoint is none of this transaction, or was set after one that it has gone back to; set another",
            ));
        };
        let until = state.savepoints.borrow_mut().advance()?;
        let time = savepoint.mark..until;
        let panic_guard = PanicGuard::enter();
        state.dependents.borrow_mut().clear();
        let mut home = state.home.borrow_mut();
        if !planted(Bug::UndoneRedoKept) {
            home.redo.truncate(redo);
        }
        home.undo.roll_back(&time, &mut worker.shard().tables.borrow_mut());
        if let Some(remote) = &mut *state.remote.borrow_mut() {
            remote.roll_back(&time);
        }
        panic_guard.leave();
        Ok(time)
    }
}

/// Undoes the changes of a transaction in a range of marks at a participant, and on the workers to which data or
/// actions were sent on from here.
pub fn on_rollback(worker: &Rc<EngineWorker>, txn: TxnId, time: Range<Mark>, reply: Reply<()>) {
    let shard = worker.shard();
    let Some(branch) = shard.find_branch(txn) else { return reply.send(worker, ()) };
    let panic_guard = PanicGuard::enter();
    let is_new = branch.borrow_mut().undo.roll_back(&time, &mut shard.tables.borrow_mut());
    panic_guard.leave();
    let passed_to: Vec<WorkerId> = match &branch {
        BranchRef::Participant(branch) if is_new && !planted(Bug::RollbackNotPassedOn) => {
            branch.borrow().passed_to.clone()
        }
        _ => Vec::new(),
    };
    if passed_to.is_empty() {
        return reply.send(worker, ());
    }
    let own = Rc::clone(worker);
    worker.spawn(async move {
        for next in passed_to {
            // A worker that has stopped has nothing to undo.
            let _: Result<(), Lost> = call_rollback(&own, next, txn, time.clone()).await;
        }
        reply.send(&own, ());
    });
}
