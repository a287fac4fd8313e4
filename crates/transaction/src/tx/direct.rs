//! Direct transactions: stored procedures that need nothing but free data of their home run to their end in one poll
//! ([`attempt`]).
//!
//! While such a transaction runs, no other task of its worker does, and nobody else reaches its data. So it keeps no footprint:
//! no list of accesses, no number, no locks. It keeps the before-images of its changes, and their redo. A procedure is compiled
//! for it once more ([`DirectTx`] is a [`Transaction`] of its own), with all its operations as plain calls, and its future is made,
//! polled and dropped in one function, so that nothing of it has to be in memory.
//!
//! When it comes to data of another worker, to a lock of another transaction that conflicts, to a table that a statement has
//! closed, or to an order that matters (a phase with ranges), it *gives up*: its operation stays pending, the future is dropped, its
//! changes are undone, and [`Tx`](super::Tx) runs the procedure again from the beginning. So a procedure may run twice, as after a
//! deadlock, and `Tx` reports a procedure that awaits anything but its own operations. When many give up, the next ones are not
//! attempted for a while; those that leave their instance before they have changed anything do not count. A procedure that knows
//! from its arguments that it needs data elsewhere says so ([`StoredProcedure::stays_home`]). One that the monitor records keeps a list
//! of its accesses, for the monitor alone.
//!
//! Owns: the memory of direct transactions, which a worker has once. Never: waits, enters a lock, or sends a message.
//!
//! # Serializability
//!
//! Strict two-phase locking asks that the locks of all accesses are held at one moment. Here that moment is the whole
//! transaction, which nothing interrupts: each access has checked that no lock of another transaction conflicts, and no lock can
//! be entered before the transaction has ended. This is the argument of [`super`] for transactions that do not suspend, without
//! the list by which they could.
//!
//! # Invariants
//! - A transaction that has given up has changed nothing when `Tx` begins it again.
//! - After an operation has failed no other runs, and the transaction aborts, whatever its procedure returns.
//! - Its outcome waits for the newest epoch that it has observed. Of one that has changed something and aborts, that is the
//!   newest of all: after its first change it does not look for epochs any more, since its own record would be newer.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use atrapos_durability::wal::Epoch;
use atrapos_partition::abort::{Abort, AbortReason, Advice};
use atrapos_partition::action::{Action, DependentAction, Request, RowContext, RowOperation, panicked};
use atrapos_partition::panic_guard::PanicGuard;
use atrapos_partition::partition::{PartitionId, Tables};
use atrapos_partition::planted::{Bug, planted};
use atrapos_partition::range::KeyRange;
use atrapos_partition::routing::InstanceId;
use atrapos_storage::lock::{LockMode, LockTarget, TxnId};
use atrapos_storage::{KeyBuf, Position};
use smallvec::SmallVec;

use super::access::{Accessor, NotedTogether, is_free};
use super::phase::note_free;
use super::rounds::Rounds;
use crate::age::Age;
use crate::branch::{Access, Branch};
use crate::lookups::{BATCH, RouteHint};
use crate::monitor::EndedTxn;
use crate::shard::{EngineWorker, Shard};
use crate::stored::StoredProcedure;
use crate::transaction::{RowPhase, RunAction, Transaction};
use crate::wal::CommitWaiters;

/// The memory of the direct transactions of a worker, one after another. Empty between them.
#[derive(Debug)]
pub(crate) struct DirectMemory {
    /// The before-images, the redo and the scratch space; accesses are noted only while a phase of several actions runs.
    branch: Branch,
    /// The dependents of the changes of the operation or phase that runs.
    dependents: Vec<DependentAction>,
    /// The accesses of a transaction that the monitor records.
    touched: Vec<Access>,
    /// The transactions that are not attempted now, since many have given up.
    skipped: u32,
    /// Grows with each that gives up and shrinks with each that commits; at [`TOO_MANY`] the next [`SKIPPED`] are not attempted.
    given_up: u64,
    /// Number of transactions that had committed when the latest one gave up.
    committed: u64,
    /// The class of the transaction that runs, if it is recorded; `None` if its end does not count, since it runs again.
    class: Option<&'static str>,
}

/// The weight of a transaction that gives up, beside that of one that commits, which is 1: a part of a transaction that runs for
/// nothing is taken for twice as much as one saves that commits.
const GIVEN_UP_WEIGHT: u64 = 2;

/// The sum of weights at which too many transactions have given up.
const TOO_MANY: u64 = 32;

/// The number of transactions that are not attempted when too many have given up.
const SKIPPED: u32 = 512;

impl DirectMemory {
    /// Creates the memory of transactions whose redo has at most so many bytes.
    pub(crate) fn bounded(redo_bytes_max: usize) -> DirectMemory {
        let branch = Branch::bounded(redo_bytes_max);
        let (dependents, touched) = (Vec::new(), Vec::new());
        DirectMemory { branch, dependents, touched, skipped: 0, given_up: 0, committed: 0, class: None }
    }

    /// Counts a transaction that gives up, when so many have committed on the worker.
    fn count_given_up(&mut self, committed: u64) {
        let since = committed.saturating_sub(std::mem::replace(&mut self.committed, committed));
        self.given_up = self.given_up.saturating_sub(since) + GIVEN_UP_WEIGHT;
        if self.given_up >= TOO_MANY {
            (self.given_up, self.skipped) = (0, SKIPPED);
        }
    }
}

/// A running direct transaction.
pub(crate) struct DirectTx<'w> {
    worker: &'w EngineWorker,
    memory: &'w mut DirectMemory,
    routed: Option<&'w RouteHint<'w>>,
    /// The newest epoch that was observed before the first change.
    observed: Epoch,
    /// The reason for which it runs no more operations.
    stopped: Option<Stopped>,
    /// True if the monitor records it.
    is_recorded: bool,
}

/// The reason for which a direct transaction runs no more operations.
enum Stopped {
    /// It has given up; `leaves` if that is for data of another instance.
    GaveUp { leaves: bool },
    /// It has to abort, for this reason.
    Failed(Abort),
}

/// Runs a procedure as a direct transaction. Returns the epoch that has to be durable before the outcome is told, zero if there
/// is none; `None` if it gave up, and then nothing has changed. Compiled once for each procedure.
#[inline(never)]
pub(crate) fn attempt<P: StoredProcedure>(
    worker: &Rc<EngineWorker>,
    procedure: &P,
    tables: &P::Tables,
    routed: Option<&RouteHint<'_>>,
    outcome: &mut Result<P::Result, Abort>,
) -> Option<Epoch> {
    let shard = worker.shard();
    let memory = &mut *shard.direct.as_ref()?.try_borrow_mut().ok()?;
    if memory.skipped > 0 {
        memory.skipped -= 1;
        return None;
    }
    let is_recorded = shard.monitor.records_next();
    if is_recorded {
        shard.monitor.begins(worker);
        memory.class = Some(P::CLASS);
    }
    let mut tx = DirectTx { worker, memory, routed, observed: Epoch(0), stopped: None, is_recorded };
    // The future is made in here, so that it is nothing but local variables of this closure.
    let run = || match pin!(procedure.run(&mut tx, tables)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(ended) => {
            *outcome = ended;
            true
        }
        Poll::Pending => false,
    };
    let has_ended = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(has_ended) => has_ended,
        Err(panic) => {
            *outcome = Err(panicked(panic.as_ref()));
            true
        }
    };
    if has_ended && outcome.is_ok() && tx.stopped.is_none() && tx.memory.branch.undo.is_empty() {
        // It commits, and there is nothing to be logged or forgotten.
        shard.stats.committed.add(1);
        tx.end_event();
        let wait_epoch = if planted(Bug::ReaderToldEarly) { Epoch(0) } else { tx.dependence() };
        return Some(unless_told(shard, wait_epoch));
    }
    if !has_ended || matches!(tx.stopped, Some(Stopped::GaveUp { .. })) {
        tx.undo();
        return None;
    }
    let mut refusal = None;
    let wait_epoch = tx.finish(outcome.as_ref().err().map(Abort::reason), &mut refusal);
    if let Some(abort) = refusal {
        *outcome = Err(abort);
    }
    Some(unless_told(shard, wait_epoch))
}

/// Returns the epoch for which the caller of a transaction has to wait, zero if its outcome may be told now.
#[inline(always)]
fn unless_told(shard: &Shard, wait_epoch: Epoch) -> Epoch {
    match &shard.commit_waiters {
        Some(commit_waiters) if !commit_waiters.tells(wait_epoch) => wait_epoch,
        _ => Epoch(0),
    }
}

impl<'w> DirectTx<'w> {
    /// Returns the list that knows on which epoch an access depends, if that has to be noted.
    #[inline(always)]
    fn observing(&self) -> Option<&'w CommitWaiters> {
        self.worker.shard().commit_waiters.as_ref().filter(|commit_waiters| !commit_waiters.is_relaxed())
    }

    /// Returns the newest epoch on which the transaction may depend, if it has changed nothing.
    #[inline(always)]
    fn dependence(&self) -> Epoch {
        match &self.worker.shard().commit_waiters {
            Some(commit_waiters) if commit_waiters.is_relaxed() => commit_waiters.undurable.borrow().newest(),
            _ => self.observed,
        }
    }

    /// Counts its end for the monitor.
    #[inline(always)]
    fn end_event(&mut self) {
        if self.is_recorded { self.record() } else { self.worker.shard().monitor.pass() }
    }

    #[cold]
    #[inline(never)]
    fn record(&mut self) {
        let monitor = &self.worker.shard().monitor;
        if monitor.is_due() {
            let ended = EndedTxn { rounds: &Rounds::default(), class: self.memory.class };
            monitor.record(self.worker, &self.memory.touched, Some(ended));
        }
        self.memory.touched.clear();
    }

    /// Keeps for the monitor that the accesses from number `first` on were made in one phase.
    #[cold]
    #[inline(never)]
    fn join_touched(&mut self, first: usize) {
        self.memory.touched.iter_mut().skip(first + 1).for_each(|access| access.joined = true);
    }

    /// Undoes what a transaction that has given up has changed.
    #[cold]
    #[inline(never)]
    fn undo(self) {
        let panic_guard = PanicGuard::enter();
        let shard = self.worker.shard();
        shard.stats.given_up.add(1);
        // One that leaves its instance before it has changed anything has lost little of what it takes in all, and is no reason not
        // to attempt those that stay.
        let has_lost_little = matches!(self.stopped, Some(Stopped::GaveUp { leaves: true }));
        if !has_lost_little || !self.memory.branch.undo.is_empty() {
            self.memory.count_given_up(shard.stats.committed.get());
        }
        self.memory.branch.finish_unseen(planted(Bug::GivenUpNotUndone), shard);
        self.memory.dependents.clear();
        self.memory.touched.clear();
        panic_guard.leave();
    }

    /// Commits, unless the procedure has `failed`; if the transaction cannot commit, `refusal` says why. Returns the epoch that has
    /// to be durable before the outcome is told. Compiled once.
    #[inline(never)]
    fn finish(mut self, failed: Option<AbortReason>, refusal: &mut Option<Abort>) -> Epoch {
        let panic_guard = PanicGuard::enter();
        let shard = self.worker.shard();
        let dependence = self.dependence();
        let branch = &mut self.memory.branch;
        if failed.is_none()
            && let Some(Stopped::Failed(abort)) = &self.stopped
        {
            *refusal = Some(abort.clone());
        }
        let mut wait_epoch = Epoch(0);
        if let Some(commit_waiters) = &shard.commit_waiters {
            let commit = failed.is_none() && refusal.is_none();
            match harden(commit_waiters, self.worker, branch, dependence, commit) {
                Ok(epoch) => wait_epoch = epoch,
                Err(abort) => *refusal = Some(abort),
            }
        }
        let failed = refusal.as_ref().map(Abort::reason).or(failed);
        match failed {
            None => shard.stats.committed.add(1),
            Some(reason) => {
                shard.stats.aborted[reason as usize].add(1);
                shard.aborted_age.set(Age::NONE);
                // What runs again says itself what it is.
                shard.aborted_class.set("");
                if reason.advice() == Advice::Retry {
                    self.memory.class = None;
                }
            }
        }
        self.end_event();
        self.memory.branch.finish_unseen(failed.is_none(), shard);
        self.memory.dependents.clear();
        panic_guard.leave();
        wait_epoch
    }

    /// Returns what an operation returns that does not run: nobody sees it if the transaction has given up.
    #[cold]
    #[inline(never)]
    fn refusal(&self) -> Abort {
        match &self.stopped {
            Some(Stopped::Failed(abort)) => abort.clone(),
            _ => Abort::UNFINISHED,
        }
    }

    /// Gives up for an operation that has run, and that the procedure has not awaited.
    #[cold]
    #[inline(never)]
    fn give_up_unawaited(&mut self) {
        if !matches!(self.stopped, Some(Stopped::GaveUp { .. })) {
            self.stopped = Some(Stopped::GaveUp { leaves: false });
        }
    }

    /// Gives up, unless it has failed.
    fn give_up(&mut self) -> Abort {
        self.give_up_for(None)
    }

    /// Gives up for an access that may not run now, and notes whether it is to data of another instance.
    #[cold]
    #[inline(never)]
    fn give_up_for(&mut self, refused: Option<&Request>) -> Abort {
        let shard = self.worker.shard();
        let is_elsewhere = |request: &Request| {
            let tables = shard.tables.borrow();
            request.tag == shard.tag && InstanceId::of_owner(request.locate(&tables).1).is_some()
        };
        let leaves = shard.peers.get().is_some() && refused.is_some_and(is_elsewhere);
        self.stopped.get_or_insert(Stopped::GaveUp { leaves });
        self.refusal()
    }

    /// Remembers why the transaction has to abort.
    #[cold]
    #[inline(never)]
    fn fail(&mut self, abort: &Abort) {
        self.stopped.get_or_insert_with(|| Stopped::Failed(abort.clone()));
    }

    /// Remembers why the transaction has to abort, and returns it.
    #[cold]
    #[inline(never)]
    fn failed(&mut self, abort: Abort) -> Abort {
        self.fail(&abort);
        abort
    }

    /// Runs an action without its dependents.
    #[inline(always)]
    fn execute<O: RowOperation>(&mut self, action: Action<O>) -> Result<O::Output, Abort> {
        let Action { mut request, operation } = action;
        let shard = self.worker.shard();
        if self.stopped.is_some() {
            return Err(self.refusal());
        }
        let panic_guard = PanicGuard::enter();
        let (is_unlocked, mode) = (operation.is_unlocked(), request.mode);
        let mut left_out = None;
        let mut tables = shard.tables.borrow_mut();
        let Some((place, position)) = self.find(&tables, &mut request, &mut left_out) else {
            panic_guard.leave();
            drop(tables);
            return Err(self.give_up_for(Some(&request)));
        };
        let Some((catalog, partition)) = tables.open_mut(place, false) else {
            unreachable!("a partition that was found is open")
        };
        let DirectMemory { branch, dependents, .. } = &mut *self.memory;
        let mut at = RowContext {
            catalog,
            id: place,
            partition,
            target: &mut request.target,
            left_out: &mut left_out,
            position,
            undo: &mut branch.undo,
            scratch: &mut branch.scratch,
            redo: shard.commit_waiters.is_some().then_some(&mut branch.redo),
            dependents,
            may_narrow: true,
        };
        let done = operation.apply_to(&mut at);
        drop(tables);
        panic_guard.leave();
        if let Some(commit_waiters) = self.observing()
            && !is_unlocked
        {
            self.observe(commit_waiters, place, &request.target);
        }
        if self.is_recorded {
            touch(&mut self.memory.touched, (place, mode), &request.target, false);
        }
        // Not looked at by reference: its parts stay in registers until they are where the caller wants them.
        match done {
            Ok(output) => Ok(output),
            Err(abort) => Err(self.failed(abort)),
        }
    }

    /// Returns the partition of an action if the action may run now, and the position of its key if that was looked up; `None` if
    /// the transaction has to give up. A range is cut to the partition, and its rest left out.
    #[inline(always)]
    fn find(
        &self,
        tables: &Tables,
        request: &mut Request,
        left_out: &mut Option<KeyRange>,
    ) -> Option<(PartitionId, Option<&'w Position>)> {
        let shard = self.worker.shard();
        shard.stats.local_actions.add(1);
        if let LockTarget::Key(key) = &request.target
            && request.tag == shard.tag
        {
            if let Some(routed) = self.routed
                && routed_to(routed, tables, request, key, shard)
            {
                return Some((routed.partition, Some(&routed.position)));
            }
            if let Some(place) = tables.unlocked(request.table, key) {
                return Some((place, None));
            }
        }
        Some((self.find_slowly(tables, request, left_out)?, None))
    }

    /// Finds a partition in any case: there may be locks, or it may be a range.
    #[inline(never)]
    fn find_slowly(
        &self,
        tables: &Tables,
        request: &mut Request,
        left_out: &mut Option<KeyRange>,
    ) -> Option<PartitionId> {
        if request.tag != self.worker.shard().tag {
            return None;
        }
        let (place, owner) = request.locate(tables);
        if !tables.serves(place, owner, self.worker.id(), request.mode)
            || !is_free(tables, TxnId(0), place, request)
        {
            return None;
        }
        if matches!(request.target, LockTarget::Range { .. }) {
            let (part, rest) = tables.cut_to_partition(place, &request.target, request.from_end);
            *left_out = rest;
            if let Some(part) = part {
                request.target = part;
            }
        }
        Some(place)
    }

    /// Notes the newest epoch on which an access may depend.
    #[inline(never)]
    fn observe(&mut self, commit_waiters: &CommitWaiters, place: PartitionId, target: &LockTarget) {
        // Before the first change, which has redo.
        if self.memory.branch.redo.is_empty() {
            self.observed = self.observed.max(commit_waiters.undurable.borrow().of(place, target));
        }
    }

    /// Runs the dependents of the changes of an operation or phase, and theirs: all changes before the first check.
    #[inline(always)]
    fn finish_phase(&mut self) -> Result<(), Abort> {
        if self.memory.dependents.is_empty() { Ok(()) } else { self.run_dependents() }
    }

    #[inline(never)]
    fn run_dependents(&mut self) -> Result<(), Abort> {
        while !self.memory.dependents.is_empty() {
            let change = self.memory.dependents.iter().position(DependentAction::is_change);
            let dependent = self.memory.dependents.remove(change.unwrap_or(0));
            self.execute(dependent.into_action(self.worker.shard().tag))?;
        }
        Ok(())
    }

    /// Runs the actions of a phase, and hands their results to `take`. Their keys are looked up together, so they are noted first.
    #[inline(always)]
    fn execute_together<O: RowOperation>(
        &mut self,
        mut actions: impl Iterator<Item = Action<O>>,
        take: &mut impl FnMut(O::Output),
    ) -> Result<(), Abort> {
        if self.stopped.is_some() {
            return Err(self.refusal());
        }
        let shard = self.worker.shard();
        let mut operations: SmallVec<[O; BATCH]> = SmallVec::new();
        let DirectMemory { branch, dependents, .. } = &mut *self.memory;
        let noted = note_free(self.worker, TxnId(0), branch, &mut actions, &mut operations);
        let one_place = match noted {
            Ok(one_place) => one_place,
            Err(refused) => {
                branch.accesses.clear();
                return Err(self.give_up_for(refused.as_ref().map(|action| &action.request)));
            }
        };
        shard.stats.local_actions.add(operations.len() as u64);
        let tables = &mut shard.tables.borrow_mut();
        let accessor = Accessor { shard, tables, txn: TxnId(0), branch, dependents };
        let done = accessor.execute_noted(NotedTogether { first: 0, one_place }, &mut operations, take);
        self.forget_noted(&done);
        done
    }

    /// Forgets the accesses of a phase that has run, and notes the newest epoch on which they may depend.
    #[inline(never)]
    fn forget_noted(&mut self, done: &Result<(), Abort>) {
        let observing = self.observing();
        let branch = &mut self.memory.branch;
        // Before the first change: a phase that has changed something has redo.
        if let Some(commit_waiters) = observing
            && branch.redo.is_empty()
        {
            let noted = branch.observed_since(0, &commit_waiters.undurable.borrow());
            self.observed = self.observed.max(noted);
        }
        if self.is_recorded {
            for (at, access) in branch.accesses.iter().enumerate() {
                let place = (access.partition, access.mode);
                touch(&mut self.memory.touched, place, &access.target, at > 0);
            }
        }
        branch.accesses.clear();
        if let Err(abort) = done {
            self.fail(abort);
        }
    }
}

/// Keeps an access for the monitor.
#[cold]
#[inline(never)]
fn touch(
    touched: &mut Vec<Access>,
    (partition, mode): (PartitionId, LockMode),
    target: &LockTarget,
    joined: bool,
) {
    touched.push(Access { partition, mode, target: target.clone(), unlocked: false, joined });
}

/// Returns true if a key is the one that was looked up by the route, and no lock where it is conflicts with a request.
#[inline(never)]
fn routed_to(
    routed: &RouteHint<'_>,
    tables: &Tables,
    request: &Request,
    key: &KeyBuf,
    shard: &Shard,
) -> bool {
    routed.is_of(request.table, key, shard) && tables.admits(routed.partition, request.mode)
}

/// Logs a transaction that commits. Returns the epoch for which its caller has to wait.
#[inline(always)]
fn harden(
    commit_waiters: &CommitWaiters,
    worker: &EngineWorker,
    branch: &Branch,
    observed: Epoch,
    commit: bool,
) -> Result<Epoch, Abort> {
    if branch.redo.is_empty() {
        return Ok(if planted(Bug::ReaderToldEarly) { Epoch(0) } else { observed });
    }
    if !commit {
        return Ok(commit_waiters.undurable.borrow().newest());
    }
    commit_waiters.log_changes(worker, branch)
}

impl RunAction for DirectTx<'_> {
    #[inline(always)]
    fn run_action<O: RowOperation>(&mut self, action: Action<O>) -> Result<O::Output, Abort> {
        if matches!(action.request.target, LockTarget::Range { .. }) {
            return Err(self.give_up());
        }
        self.execute(action)
    }
}

/// An operation of a direct transaction, which has run when this was made: a future that held the action would copy it. It is
/// pending for ever if the transaction has given up, and dropped before it is polled it makes the transaction give up: an operation
/// that nobody awaits must not have run.
struct AtOnce<'t, 'w, R> {
    tx: &'t mut DirectTx<'w>,
    done: Option<Result<R, Abort>>,
}

impl<'t, 'w, R> AtOnce<'t, 'w, R> {
    /// Runs the dependents of an operation that is `done`.
    #[inline(always)]
    fn after(tx: &'t mut DirectTx<'w>, mut done: Result<R, Abort>) -> AtOnce<'t, 'w, R> {
        if done.is_ok()
            && let Err(abort) = tx.finish_phase()
        {
            done = Err(abort);
        }
        AtOnce { tx, done: Some(done) }
    }
}

impl<R> Unpin for AtOnce<'_, '_, R> {}

impl<R> Future for AtOnce<'_, '_, R> {
    type Output = Result<R, Abort>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<R, Abort>> {
        if matches!(self.tx.stopped, Some(Stopped::GaveUp { .. })) {
            return Poll::Pending;
        }
        match self.done.take() {
            Some(done) => Poll::Ready(done),
            None => Poll::Pending,
        }
    }
}

impl<R> Drop for AtOnce<'_, '_, R> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.done.is_some() {
            self.tx.give_up_unawaited();
        }
    }
}

impl Transaction for DirectTx<'_> {
    #[inline(always)]
    fn run<O: RowOperation>(&mut self, action: Action<O>) -> impl Future<Output = Result<O::Output, Abort>> {
        let done = self.execute(action);
        AtOnce::after(self, done)
    }

    #[inline(always)]
    fn join<P: RowPhase>(&mut self, phase: P) -> impl Future<Output = Result<P::Output, Abort>> {
        let first = self.memory.touched.len();
        let done = phase.run_each(self);
        if self.is_recorded {
            self.join_touched(first);
        }
        AtOnce::after(self, done)
    }

    #[inline(always)]
    fn join_each<O: RowOperation>(
        &mut self,
        actions: impl IntoIterator<Item = Action<O>>,
        mut take: impl FnMut(O::Output),
    ) -> impl Future<Output = Result<(), Abort>> {
        let done = self.execute_together(actions.into_iter(), &mut take);
        AtOnce::after(self, done)
    }
}
