//! The end of a transaction: it is logged, decided and released on all workers, exactly once ([`TxnGuard`]).
//!
//! Invariants
//! - A transaction ends exactly once, even if its procedure panics or is dropped.
//! - Locks are released before the transaction is durable; the acknowledgement waits for the transaction's own epoch,
//!   or the newest it has observed.

use std::rc::Rc;

use atrapos_durability::wal::Epoch;
use atrapos_partition::abort::{Abort, AbortReason, Advice};
use atrapos_partition::panic_guard::PanicGuard;
use atrapos_partition::planted::{Bug, planted};
use atrapos_storage::lock::TxnId;

use super::state::TxnState;
use crate::admission;
use crate::age::Age;
use crate::branch::Branch;
use crate::distributed::coordinator::{end_subordinates, needs_votes};
use crate::messages::send_end;
use crate::monitor::EndedTxn;
use crate::shard::EngineWorker;
use crate::trace::Stage;
use crate::wal::CommitWaiters;

/// The right to end a transaction, exactly once: it aborts the transaction when it is dropped.
pub struct TxnGuard<'w> {
    worker: &'w Rc<EngineWorker>,
    state: Option<Rc<TxnState>>,
}

impl<'w> TxnGuard<'w> {
    /// Begins a transaction.
    #[inline(never)]
    pub(crate) fn begin(worker: &'w Rc<EngineWorker>) -> TxnGuard<'w> {
        TxnGuard { worker, state: Some(worker.shard().take_state(worker)) }
    }

    /// Goes on with a transaction that was handed over undecided.
    pub(crate) fn resume(worker: &'w Rc<EngineWorker>, state: Rc<TxnState>) -> TxnGuard<'w> {
        TxnGuard { worker, state: Some(state) }
    }

    /// The home.
    #[inline]
    pub(crate) fn worker(&self) -> &'w Rc<EngineWorker> {
        self.worker
    }

    /// The state of the transaction.
    #[inline]
    pub(crate) fn state(&self) -> &Rc<TxnState> {
        self.state.as_ref().expect("a guard has its state until it is finished")
    }

    /// Commits or aborts by the procedure's outcome, which becomes an abort if the transaction cannot commit. Returns
    /// the epoch that has to be durable before the outcome is returned to the caller; epoch 0 if there is none, and [`UNDECIDED`]
    /// if other instances have to vote first.
    #[inline]
    #[must_use]
    pub(crate) fn finish<R>(self, outcome: &mut Result<R, Abort>) -> Epoch {
        let mut refusal = None;
        let failed = outcome.as_ref().err().map(Abort::reason);
        let wait_epoch = self.finish_unless(failed, &mut refusal);
        if let Some(abort) = refusal {
            *outcome = Err(abort);
        }
        wait_epoch
    }

    /// Commits, unless the procedure has `failed`; if the transaction cannot commit, `refusal` says why. Compiled once.
    #[inline(never)]
    fn finish_unless(mut self, failed: Option<AbortReason>, refusal: &mut Option<Abort>) -> Epoch {
        let state = self.state.take().expect("a guard is finished once");
        if failed.is_none() && (state.is_doomed.get() || state.outstanding.get() > 0) {
            *refusal = state.cannot_commit();
            if refusal.is_none() && state.awaits_votes() && needs_votes(self.worker, &state) {
                return self.hand_over(state);
            }
        } else if state.awaits_votes() && failed.is_some_and(|failed| state.tells_undurable(failed)) {
            return self.hand_over(state);
        }
        let (mut epoch, mut wait_epoch) = (Epoch(0), Epoch(0));
        if let Some(commit_waiters) = &self.worker.shard().commit_waiters {
            let commit = failed.is_none() && refusal.is_none();
            match commit_waiters.harden(self.worker, &state, commit) {
                Ok(decided) => (epoch, wait_epoch) = decided,
                Err(abort) => *refusal = Some(abort),
            }
        }
        let stats = &self.worker.shard().stats;
        let failed = refusal.as_ref().map(Abort::reason).or(failed);
        match failed {
            None => stats.committed.add(1),
            Some(reason) => {
                stats.aborted[reason as usize].add(1);
                self.worker.shard().aborted_age.set(state.age.get());
                self.worker.shard().aborted_class.set(state.class.get().unwrap_or_default());
                if reason.advice() == Advice::Retry {
                    state.class.set(None);
                }
                if reason == AbortReason::Deadlock {
                    admission::on_deadlock(self.worker);
                }
            }
        }
        end(self.worker, state, Ending { commit: failed.is_none(), epoch });
        // The transaction has ended: the destructor must not abort it.
        std::mem::forget(self);
        wait_epoch
    }

    /// Hands a transaction over to [`decide`](crate::distributed::coordinator::decide), which goes on with it.
    #[cold]
    fn hand_over(self, state: Rc<TxnState>) -> Epoch {
        self.worker.shard().undecided.set(Some(state));
        // It has not ended.
        std::mem::forget(self);
        UNDECIDED
    }
}

/// The epoch that stands for a transaction which is not decided yet: it is handed over to
/// [`decide`](crate::distributed::coordinator::decide).
pub(crate) const UNDECIDED: Epoch = Epoch(u64::MAX);

/// Ends a subordinate that does not log: it has changed nothing, its data is in memory, or it aborts. It is no transaction of its own in the statistics.
pub(crate) fn end_subordinate(worker: &EngineWorker, state: Rc<TxnState>, commit: bool) {
    end(worker, state, Ending { commit, epoch: Epoch(0) });
}

/// Commits a subordinate with changes. Returns the epoch of its record, zero if nothing is logged.
///
/// # Errors
/// The record is refused, and the subordinate has aborted: it commits in one phase, on its own.
pub(crate) fn commit_subordinate_alone(worker: &EngineWorker, state: Rc<TxnState>) -> Result<Epoch, Abort> {
    let logged = match &worker.shard().commit_waiters {
        Some(commit_waiters) => commit_waiters.harden(worker, &state, true),
        None => Ok((Epoch(0), Epoch(0))),
    };
    let epoch = logged.as_ref().map_or(Epoch(0), |(epoch, _)| *epoch);
    end(worker, state, Ending { commit: logged.is_ok(), epoch });
    logged.map(|(_, wait_epoch)| wait_epoch)
}

/// Commits a subordinate as its coordinator has decided, with a note on its end if there is a WAL. Returns the epoch of its record.
pub(crate) fn commit_subordinate(
    worker: &EngineWorker,
    state: Rc<TxnState>,
    ended: impl FnOnce() -> Vec<u8>,
) -> Epoch {
    let mut epoch = Epoch(0);
    if let Some(commit_waiters) = &worker.shard().commit_waiters {
        let mut home = state.home.borrow_mut();
        home.redo.note(&ended());
        epoch = commit_waiters.commit_decided(worker, home.redo.bytes());
        home.note_changes(&mut commit_waiters.undurable.borrow_mut(), epoch);
    }
    end(worker, state, Ending { commit: true, epoch });
    epoch
}

/// Returns the newest epoch on which what a transaction has read depends; zero if nothing is logged.
pub(crate) fn observed(worker: &EngineWorker, state: &TxnState) -> Epoch {
    let Some(commit_waiters) = &worker.shard().commit_waiters else { return Epoch(0) };
    let home = state.home.borrow();
    let noted = home.observed_since(0, &commit_waiters.undurable.borrow());
    state.observed.get().max(home.observed).max(noted)
}

/// Returns true if what a transaction has read so far is durable.
pub(crate) fn has_read_durable(worker: &EngineWorker, state: &TxnState) -> bool {
    let commit_waiters = &worker.shard().commit_waiters;
    commit_waiters.as_ref().is_none_or(|commit_waiters| commit_waiters.is_durable(observed(worker, state)))
}

impl Drop for TxnGuard<'_> {
    fn drop(&mut self) {
        if let Some(state) = self.state.take() {
            self.worker.shard().stats.aborted[AbortReason::ShuttingDown as usize].add(1);
            end(self.worker, state, Ending { commit: false, epoch: Epoch(0) });
        }
    }
}

/// The way in which a transaction ends.
#[derive(Clone, Copy, Debug)]
pub struct Ending {
    /// True if it commits.
    pub(crate) commit: bool,
    /// The epoch of its record, or, while a snapshot is held, that of its commit; zero if it has none.
    pub(crate) epoch: Epoch,
}

impl CommitWaiters {
    /// Logs a transaction that commits, and determines the epoch for which its caller has to wait. Returns the epoch of
    /// its record, zero if it has none, and the epoch to wait for.
    #[inline(always)]
    fn harden(&self, worker: &EngineWorker, state: &TxnState, commit: bool) -> Result<(Epoch, Epoch), Abort> {
        let home = state.home.borrow();
        let mut wait_epoch = state.observed.get().max(home.observed);
        if home.redo.is_empty() || !commit {
            wait_epoch = wait_epoch.max(home.observed_since(0, &self.undurable.borrow()));
            if planted(Bug::ReaderToldEarly) {
                wait_epoch = Epoch(0);
            }
            return Ok((Epoch(0), wait_epoch));
        }
        self.log(worker, &home, state)
    }

    #[inline(never)]
    fn log(&self, worker: &EngineWorker, home: &Branch, state: &TxnState) -> Result<(Epoch, Epoch), Abort> {
        let epoch = self.log_changes(worker, home)?;
        state.trace.event(worker, Stage::Log, || {
            format!("{} bytes of redo, in epoch {}", home.redo.bytes().len(), epoch.0)
        });
        state
            .trace
            .event(worker, Stage::Harden, || format!("its caller is told when epoch {} is durable", epoch.0));
        Ok((epoch, epoch))
    }

    /// Logs the changes of a branch, and notes them for readers. Returns the epoch of the record.
    #[inline]
    pub(super) fn log_changes(&self, worker: &EngineWorker, branch: &Branch) -> Result<Epoch, Abort> {
        if self.wal.is_failed() {
            return Err(self.wal.refusal());
        }
        let epoch = self.commit(worker, branch.redo.bytes())?;
        branch.note_changes(&mut self.undurable.borrow_mut(), epoch);
        Ok(epoch)
    }
}

/// Releases the transaction on all workers and recycles its state.
#[inline(always)]
fn end(worker: &EngineWorker, state: Rc<TxnState>, ending: Ending) {
    let panic_guard = PanicGuard::enter();
    let shard = worker.shard();
    let commit = ending.commit;
    if shard.monitor.is_due() {
        let class = state.class.get().filter(|_| state.coordinator.get().is_none());
        let (home, rounds) = (state.home.borrow(), state.rounds.borrow());
        shard.monitor.record(worker, &home.accesses, Some(EndedTxn { rounds: &rounds, class }));
    }
    state.trace.end(worker, || if commit { "commits" } else { "aborts" }.to_owned());
    if state.txn() == TxnId(0) && !state.is_doomed.get() {
        state.home.borrow_mut().finish_unseen(commit, shard);
        recycle(worker, state);
    } else {
        end_known(worker, state, ending);
    }
    panic_guard.leave();
}

/// Recycles the state of a transaction that has ended, unless other references to it exist.
#[inline(always)]
fn recycle(worker: &EngineWorker, state: Rc<TxnState>) {
    state.observed.set(Epoch(0));
    state.age.set(Age::NONE);
    state.suspends.set(false);
    state.client.set(0);
    state.class.set(Some(""));
    worker.shard().put_state(state);
}

#[cold]
#[inline(never)]
fn end_known(worker: &EngineWorker, state: Rc<TxnState>, ending: Ending) {
    let Ending { commit, mut epoch } = ending;
    let shard = worker.shard();
    if commit && shard.snapshots.is_held() {
        // Read once, for its changes on all workers.
        epoch = shard.snapshots.epoch_of_commit();
    }
    if let Some(commit_waiters) = &shard.commit_waiters {
        commit_waiters.siblings.leave(&state.heard);
    }
    let txn = state.txn();
    end_subordinates(worker, txn, &state.remote, ending);
    state.coordinator.set(None);
    for participant in state.participants.borrow_mut().drain(..) {
        send_end(worker, participant, txn, commit, epoch);
    }
    if !commit {
        // Its actions that wait here, to where their data has moved, must find that the transaction has ended.
        shard.end_waits(worker, txn);
    }
    shard.active.borrow_mut().remove(&txn);
    admission::on_end(worker);
    shard.finish_branch(worker, &mut state.home.borrow_mut(), txn, Ending { commit, epoch });
    // Tasks that run its actions here refer to the state too, and go on when they are polled or receive an answer.
    if Rc::strong_count(&state) > 1 && !planted(Bug::SharedStateReused) {
        state.home.borrow_mut().closed = true;
        shard.leave_system_state(&state);
        return;
    }
    state.txn.set(TxnId(0));
    state.outstanding.set(0);
    state.rounds.borrow_mut().clear();
    state.dependents.borrow_mut().clear();
    state.savepoints.borrow_mut().clear();
    state.reopen();
    recycle(worker, state);
}
