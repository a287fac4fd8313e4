//! A running transaction: what a procedure sees ([`Tx`]), and what the engine keeps for it ([`TxCore`]).
//!
//! # Life of a transaction, from here
//!
//! - **route** and the hand-over to the home worker: [`crate::procedure`].
//! - **execute**: [`Tx::run`]. An action on the home's own data is a direct call ([`attempt`]): no message, no lock, no
//!   atomic, no allocation. Any other action is sent to its owner ([`on_action`]) and the transaction suspends.
//! - **lock**: a transaction that has not suspended only checks that nothing is in its way. When it suspends for the first
//!   time its footprint is entered in the lock tables ([`TxCore::enter_locks`]). Actions from another worker lock at once.
//! - **log**: the redo record of the transaction is made when it commits (there is none without a WAL).
//! - **release**: [`Scope::finish`] drops the undo, or applies it, and releases the locks, here and at the participants.
//!
//! # Why this is serializable
//!
//! Strict two-phase locking on keys and key ranges: a transaction that suspends holds a lock on everything it has read,
//! written or found absent until its outcome is decided. One that never suspends runs while nothing else does on that
//! worker and touches only that worker's data, so it needs no locks of its own; it waits for (and thereby becomes one of
//! those who hold) the locks of others that are in its way.
//!
//! # Why nothing waits for ever
//!
//! Queues are fair, and cycles of waiting transactions are found and broken by [`crate::deadlock`].

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::ops::ControlFlow;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use atrapos_durability::wal::Epoch;
use atrapos_runtime::{Call, Lost, Reply, WorkerId};
use atrapos_storage::lock::{LockMode, LockOutcome, LockOwner, LockTarget, LockTicket};
use atrapos_storage::{KeyBuf, Position, Probe, locate_batch};

use crate::abort::{Abort, AbortReason};
use crate::action::{Action, Apply, CollectKeys, Delete, Fold, Folded, Follower, Get, Operation, Update};
use crate::branch::{Branch, Held};
use crate::lookups::Routed;
use crate::partition::Place;
use crate::planted::{self, Bug, planted};
use crate::range::KeyRange;
use crate::routing::head_of;
use crate::run::Run;
use crate::schema::{Index, IndexRef, Table, TableId, TableRef, decode_key};
use crate::section::EngineSection;
use crate::shard::{EngineWorker, Shard};
use crate::trace::{Stage, Trace};
use crate::waits::{Wait, WaitState};
use crate::wal::Hardening;

/// What the engine keeps for a transaction at its home worker. Recycled.
#[derive(Debug, Default)]
pub(crate) struct TxCore {
    /// Its number as an owner of locks; zero as long as nobody needs one.
    owner: Cell<u64>,
    /// The number of its first attempt: attempts made after a deadlock keep their seniority.
    pub(crate) age: Cell<u64>,
    pub(crate) home: RefCell<Branch>,
    /// Other workers on which it has run actions.
    pub(crate) participants: RefCell<Vec<WorkerId>>,
    /// Set when an action failed: the transaction can only abort, for this reason.
    doomed: RefCell<Option<Abort>>,
    is_doomed: Cell<bool>,
    /// Actions sent whose results have not been taken.
    outstanding: Cell<u32>,
    /// Set by an operation of its own that is about to suspend it: a procedure that suspends in anything else would never
    /// go on.
    suspends: Cell<bool>,
    /// The newest epoch of what was seen elsewhere that was not durable.
    observed: Cell<u64>,
    /// What must follow the writes made so far; empty between actions.
    pub(crate) followers: RefCell<Vec<Follower>>,
    pub(crate) trace: Trace,
}

impl TxCore {
    #[inline]
    pub(crate) fn owner(&self) -> LockOwner {
        LockOwner(self.owner.get())
    }

    /// Gives the transaction a number and makes it known to this worker: others are about to hear of it.
    fn ensure_known(self: &Rc<Self>, worker: &EngineWorker) -> LockOwner {
        if self.owner.get() == 0 {
            let owner = worker.shard().new_owner(worker.id());
            self.owner.set(owner.0);
            if self.age.get() == 0 {
                self.age.set(owner.0);
            }
            worker.shard().active.borrow_mut().insert(owner, Rc::clone(self));
        }
        self.owner()
    }

    /// The transaction suspends: enters its footprint in the lock tables unless that was done before.
    pub(crate) fn enter_locks(self: &Rc<Self>, worker: &EngineWorker) {
        if self.home.borrow().entered || self.home.borrow().is_untouched() {
            return;
        }
        let owner = self.ensure_known(worker);
        let shard = worker.shard();
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
    fn doomed_for(&self) -> Abort {
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

/// An operation that suspends its transaction is under way. Given up before its end, it dooms the transaction: what it
/// has done, or would have done, may be half of something.
pub(crate) struct HalfWay<'a>(pub(crate) &'a TxCore);

impl HalfWay<'_> {
    /// The operation has come to its end.
    #[inline]
    pub(crate) fn disarm(self) {
        std::mem::forget(self);
    }
}

impl Drop for HalfWay<'_> {
    #[cold]
    fn drop(&mut self) {
        // Nothing of the transaction's own suspends it any more.
        self.0.suspends.set(false);
        self.0.doom(&Abort::because(
            AbortReason::Misuse,
            "the procedure gave up waiting for one of its own actions; await every action to its end",
        ));
    }
}

/// The right to end a transaction, exactly once: dropped without being asked, it aborts.
pub(crate) struct Scope<'w> {
    worker: &'w Rc<EngineWorker>,
    core: Option<Rc<TxCore>>,
}

impl<'w> Scope<'w> {
    #[inline(always)]
    pub(crate) fn begin(worker: &'w Rc<EngineWorker>) -> Scope<'w> {
        Scope { worker, core: Some(worker.shard().take_core()) }
    }

    #[inline]
    pub(crate) fn worker(&self) -> &'w Rc<EngineWorker> {
        self.worker
    }

    #[inline]
    pub(crate) fn core(&self) -> &Rc<TxCore> {
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
        let mut ending = Ending { commit: true, epoch: Epoch(0), needs: 0 };
        if let Some(hardening) = &self.worker.shard().hardening {
            match hardening.harden(self.worker, &core, outcome.is_ok()) {
                Ok(decided) => ending = decided,
                Err(abort) => *outcome = Err(abort),
            }
        }
        ending.commit = outcome.is_ok();
        let stats = &self.worker.shard().stats;
        match &outcome {
            Ok(_) => stats.committed.add(1),
            Err(abort) => {
                stats.aborted[abort.reason() as usize].add(1);
                self.worker.shard().aborted_age.set(core.age.get());
            }
        }
        end(self.worker, core, ending);
        // The scope is over: its destructor has nothing to do.
        std::mem::forget(self);
        ending.needs
    }
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        if let Some(core) = self.core.take() {
            self.worker.shard().stats.aborted[AbortReason::ShuttingDown as usize].add(1);
            end(self.worker, core, Ending { commit: false, epoch: Epoch(0), needs: 0 });
        }
    }
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    pub(crate) commit: bool,
    /// The epoch of its record; zero when it has none.
    pub(crate) epoch: Epoch,
    /// The epoch that has to be durable before anybody is told.
    pub(crate) needs: u64,
}

impl Hardening {
    /// Logs a transaction that commits, and finds out for which epoch its caller has to wait.
    #[inline(always)]
    fn harden(&self, worker: &EngineWorker, core: &TxCore, commit: bool) -> Result<Ending, Abort> {
        let home = core.home.borrow();
        let mut needs = core.observed.get();
        if home.redo.is_empty() || !commit {
            needs = needs.max(home.observed(&self.recent.borrow()));
            if planted(Bug::ReaderToldEarly) {
                needs = 0;
            }
            return Ok(Ending { commit, epoch: Epoch(0), needs });
        }
        self.log(worker, &home, core)
    }

    #[inline(never)]
    fn log(&self, worker: &EngineWorker, home: &Branch, core: &TxCore) -> Result<Ending, Abort> {
        if self.wal.is_failed() {
            return Err(self.wal.refusal());
        }
        let epoch = self.commit(worker, &home.redo);
        core.trace
            .event(worker, Stage::Log, || format!("{} bytes of redo, in epoch {}", home.redo.len(), epoch.0));
        core.trace
            .event(worker, Stage::Harden, || format!("its caller is told when epoch {} is durable", epoch.0));
        home.note_changes(&mut self.recent.borrow_mut(), epoch);
        Ok(Ending { commit: true, epoch, needs: epoch.0 })
    }
}

/// Releases the transaction everywhere and recycles its state.
#[inline(always)]
fn end(worker: &EngineWorker, core: Rc<TxCore>, ending: Ending) {
    let section = EngineSection::enter();
    let shard = worker.shard();
    let commit = ending.commit;
    core.trace.event(worker, Stage::Release, || if commit { "commits" } else { "aborts" }.to_owned());
    if core.owner.get() == 0 && !core.is_doomed.get() {
        core.home.borrow_mut().finish_unseen(commit, &shard.tables);
    } else {
        end_known(worker, &core, ending);
    }
    core.observed.set(0);
    core.age.set(0);
    core.suspends.set(false);
    shard.put_core(core);
    section.leave();
}

#[cold]
#[inline(never)]
fn end_known(worker: &EngineWorker, core: &Rc<TxCore>, ending: Ending) {
    let Ending { commit, epoch, .. } = ending;
    let shard = worker.shard();
    let owner = core.owner();
    for participant in core.participants.borrow_mut().drain(..) {
        worker.send(participant, move |worker| worker.shard().finish_visitor(worker, owner, commit, epoch));
    }
    shard.active.borrow_mut().remove(&owner);
    shard.finish_branch(worker, &mut core.home.borrow_mut(), owner, commit);
    core.owner.set(0);
    core.outstanding.set(0);
    core.followers.borrow_mut().clear();
    core.is_doomed.set(false);
    core.doomed.take();
}

/// Runs an action on a partition of this worker, taking it out of `action`; or leaves it there and returns `None` when a
/// lock of somebody else is in its way.
#[inline(always)]
fn attempt<O: Operation>(
    shard: &Shard,
    owner: LockOwner,
    branch: &mut Branch,
    place: Place,
    action: &mut Option<Action<O>>,
    position: Option<Position>,
    followers: &mut Vec<Follower>,
) -> Option<Result<O::Output, Abort>> {
    let asked = action.as_ref().expect("an action is attempted once");
    let section = EngineSection::enter();
    let mut tables = shard.tables.borrow_mut();
    let partition = tables.partition_mut(place);
    let locks = &mut partition.locks;
    if !locks.is_empty()
        && locks.is_in_the_way(owner, &asked.target, asked.mode)
        && !planted::lets_pass(locks, owner, &asked.target, asked.mode)
    {
        section.leave();
        return None;
    }
    if branch.entered && !planted::leaves_unlocked(&asked.target) {
        shard.stats.locks_entered.add(u64::from(locks.enter(owner, &asked.target, asked.mode)));
    }
    let Some(Action { mode, target, operation, .. }) = action.take() else {
        unreachable!("it was just looked at")
    };
    branch.held.push(Held { place, mode, target });
    let held = branch.held.last_mut().expect("the access was just noted");
    let mut at = Apply {
        catalog: &shard.catalog,
        place,
        partition,
        target: &mut held.target,
        position,
        undo: &mut branch.undo,
        scratch: &mut branch.scratch,
        redo: shard.logs.then_some(&mut branch.redo),
        followers,
        may_narrow: !branch.entered,
    };
    let done = operation.apply(&mut at);
    section.leave();
    Some(done)
}

/// Runs an action whose lock was queued and has been granted. `held` is where the branch noted it.
fn run_granted<O: Operation>(
    shard: &Shard,
    branch: &mut Branch,
    held: usize,
    operation: O,
    followers: &mut Vec<Follower>,
) -> Result<O::Output, Abort> {
    let section = EngineSection::enter();
    let mut tables = shard.tables.borrow_mut();
    let held = &mut branch.held[held];
    let place = held.place;
    let mut at = Apply {
        catalog: &shard.catalog,
        place,
        partition: tables.partition_mut(place),
        target: &mut held.target,
        position: None,
        undo: &mut branch.undo,
        scratch: &mut branch.scratch,
        redo: shard.logs.then_some(&mut branch.redo),
        followers,
        may_narrow: false,
    };
    let done = operation.apply(&mut at);
    section.leave();
    done
}

/// Queues for a lock and waits until it is granted or refused. The branch notes the lock at once, so that whatever
/// happens it is released with the others.
struct LockWait<'a> {
    worker: &'a Rc<EngineWorker>,
    ticket: LockTicket,
}

impl LockWait<'_> {
    async fn wait(
        worker: &Rc<EngineWorker>,
        owner: LockOwner,
        place: Place,
        mode: LockMode,
        target: &LockTarget,
    ) -> Result<(), Abort> {
        let shard = worker.shard();
        let ticket = shard.new_ticket();
        let outcome =
            shard.tables.borrow_mut().partition_mut(place).locks.request(owner, target, mode, ticket);
        shard.stats.locks_entered.add(1);
        if outcome == LockOutcome::Granted {
            return Ok(());
        }
        shard.stats.lock_waits.add(1);
        let wait = Wait {
            owner,
            place,
            target: target.clone(),
            task: worker.current_task(),
            state: WaitState::Queued,
            since: worker.step_time(),
        };
        shard.waits.borrow_mut().insert(ticket, wait);
        let wait = LockWait { worker, ticket };
        poll_fn(|_| match wait.state() {
            WaitState::Queued => Poll::Pending,
            WaitState::Granted => Poll::Ready(Ok(())),
            WaitState::Refused(reason) => Poll::Ready(Err(refused(reason))),
        })
        .await
    }

    fn state(&self) -> WaitState {
        let waits = self.worker.shard().waits.borrow();
        waits.get(self.ticket).expect("a wait is there until it is over").state
    }
}

impl Drop for LockWait<'_> {
    fn drop(&mut self) {
        let shard = self.worker.shard();
        shard.refuse_wait(self.worker, self.ticket, AbortReason::Misuse);
        shard.waits.borrow_mut().remove(self.ticket);
    }
}

#[cold]
fn refused(reason: AbortReason) -> Abort {
    match reason {
        AbortReason::Deadlock => Abort::because(
            reason,
            "the transaction was one of several that waited for each other, and gave way; run it again",
        ),
        reason => Abort::because(reason, "the transaction was aborted while one of its actions waited"),
    }
}

/// What actions have done at their owner besides their results.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// What must follow.
    followers: Vec<Follower>,
    /// The redo of what they changed.
    redo: Vec<u8>,
    /// The newest epoch of what they may have seen that was not durable.
    observed: u64,
}

impl Effects {
    /// What the actions run so far by a branch have done, as the transaction's home has to know it.
    fn of(shard: &Shard, branch: &RefCell<Branch>, followers: Vec<Follower>) -> Effects {
        let Some(hardening) = &shard.hardening else { return Effects { followers, ..Effects::default() } };
        let mut branch = branch.borrow_mut();
        let observed = branch.observed(&hardening.recent.borrow());
        Effects { followers, redo: std::mem::take(&mut branch.redo), observed }
    }
}

/// What an action brings back from its owner.
pub(crate) type Returned<O> = (Result<<O as Operation>::Output, Abort>, Effects);

/// What several actions bring back.
type ReturnedAll<O> = (Result<Vec<<O as Operation>::Output>, Abort>, Effects);

/// Runs, at the owner, an action of a transaction that has its home on another worker, and replies.
fn on_action<O: Operation>(
    worker: &Rc<EngineWorker>,
    owner: LockOwner,
    action: Action<O>,
    reply: Reply<Returned<O>>,
) {
    let shard = worker.shard();
    let (place, holder) = shard.tables.borrow().locate(action.table, action.key());
    debug_assert_eq!(holder, worker.id(), "all workers have the same scheme");
    let branch = shard.visitor(owner);
    let mut followers = Vec::new();
    let mut action = Some(action);
    let attempted = attempt(shard, owner, &mut branch.borrow_mut(), place, &mut action, None, &mut followers);
    match (attempted, action) {
        (Some(done), _) => reply.send(worker, (done, Effects::of(shard, &branch, followers))),
        (None, None) => unreachable!("an action that is blocked is still there"),
        (None, Some(action)) => {
            let own = Rc::clone(worker);
            worker.spawn(async move {
                let followers = RefCell::new(followers);
                let done = queue_and_run(&own, owner, &branch, place, action, &followers).await;
                let effects = Effects::of(own.shard(), &branch, followers.take());
                drop(branch);
                reply.send(&own, (done, effects));
            });
        }
    }
}

/// Runs several actions at their common owner, in order, and replies when the last is done.
fn on_actions<O: Operation>(
    worker: &Rc<EngineWorker>,
    owner: LockOwner,
    actions: Vec<Action<O>>,
    reply: Reply<ReturnedAll<O>>,
) {
    let shard = worker.shard();
    let branch = shard.visitor(owner);
    let mut followers = Vec::new();
    let mut results = Vec::with_capacity(actions.len());
    let mut actions = actions.into_iter();
    while let Some(action) = actions.next() {
        let (place, _) = shard.tables.borrow().locate(action.table, action.key());
        let mut action = Some(action);
        let attempted =
            attempt(shard, owner, &mut branch.borrow_mut(), place, &mut action, None, &mut followers);
        match (attempted, action) {
            (Some(Ok(result)), _) => results.push(result),
            (Some(Err(abort)), _) => {
                return reply.send(worker, (Err(abort), Effects::of(shard, &branch, followers)));
            }
            (None, None) => unreachable!("an action that is blocked is still there"),
            (None, Some(action)) => {
                let own = Rc::clone(worker);
                let followers = RefCell::new(followers);
                worker.spawn(async move {
                    let mut next = Some((place, action));
                    while let Some((place, action)) = next {
                        match queue_and_run(&own, owner, &branch, place, action, &followers).await {
                            Ok(result) => results.push(result),
                            Err(abort) => {
                                let effects = Effects::of(own.shard(), &branch, followers.take());
                                drop(branch);
                                return reply.send(&own, (Err(abort), effects));
                            }
                        }
                        next = actions.next().map(|action| {
                            let (place, _) = own.shard().tables.borrow().locate(action.table, action.key());
                            (place, action)
                        });
                    }
                    let effects = Effects::of(own.shard(), &branch, followers.take());
                    drop(branch);
                    reply.send(&own, (Ok(results), effects));
                });
                return;
            }
        }
    }
    reply.send(worker, (Ok(results), Effects::of(shard, &branch, followers)));
}

/// Takes the lock of an action, waiting for it if need be, and runs the action. The transaction must be known and, at its
/// home, its footprint entered.
async fn queue_and_run<O: Operation>(
    worker: &Rc<EngineWorker>,
    owner: LockOwner,
    branch: &RefCell<Branch>,
    place: Place,
    action: Action<O>,
    followers: &RefCell<Vec<Follower>>,
) -> Result<O::Output, Abort> {
    let Action { mode, target, operation, .. } = action;
    let held = {
        let mut branch = branch.borrow_mut();
        if branch.closed {
            return Err(refused(AbortReason::User));
        }
        branch.held.push(Held { place, mode, target: target.clone() });
        branch.held.len() - 1
    };
    LockWait::wait(worker, owner, place, mode, &target).await?;
    run_granted(worker.shard(), &mut branch.borrow_mut(), held, operation, &mut followers.borrow_mut())
}

/// An action of a phase, with its owner and its place among the results.
struct Planned<O: Operation> {
    owner: WorkerId,
    place: Place,
    at: usize,
    action: Action<O>,
}

/// The order in which the actions of a phase run.
type Rank = (WorkerId, TableId, KeyBuf);

/// A transaction, as its procedure sees it.
///
/// A procedure is an `async fn` over `&mut Tx`. It awaits only the transaction's own operations; each may suspend it
/// while other transactions run. An operation that fails dooms the transaction: whatever the procedure does after it, the
/// transaction aborts and nothing of it remains.
pub struct Tx<'w> {
    worker: &'w Rc<EngineWorker>,
    core: &'w Rc<TxCore>,
    routed: Option<&'w Routed<'w>>,
}

impl std::fmt::Debug for Tx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tx").field("home", &self.worker.id()).finish_non_exhaustive()
    }
}

impl<'w> Tx<'w> {
    #[inline]
    pub(crate) fn new(
        worker: &'w Rc<EngineWorker>,
        core: &'w Rc<TxCore>,
        routed: Option<&'w Routed<'w>>,
    ) -> Tx<'w> {
        Tx { worker, core, routed }
    }

    /// Where `key` is, if it is the one that was looked up on the way here.
    #[inline(always)]
    pub(crate) fn routed_to(&self, table: TableId, key: &KeyBuf) -> Option<(Place, Position)> {
        match self.routed {
            Some(routed) if routed.place.table == table && same_bytes(routed.key, key) => {
                Some((routed.place, routed.position))
            }
            _ => None,
        }
    }

    /// The worker that is the transaction's home.
    #[must_use]
    pub fn home(&self) -> WorkerId {
        self.worker.id()
    }

    /// Runs one action and returns its result.
    ///
    /// # Errors
    /// The reason for which the transaction now has to abort.
    #[inline]
    pub fn run<O: Operation>(&mut self, action: Action<O>) -> Run<'_, 'w, O> {
        Run::new(self, action)
    }

    #[inline]
    pub(crate) fn worker(&self) -> &'w Rc<EngineWorker> {
        self.worker
    }

    #[inline]
    pub(crate) fn core(&self) -> &'w Rc<TxCore> {
        self.core
    }

    /// Whether an action may be run at all: the transaction is not doomed and the table is one of this database.
    #[inline(always)]
    pub(crate) fn admits<O: Operation>(&self, action: &Action<O>) -> bool {
        !self.core.is_doomed.get() && self.worker.shard().catalog.tag == action.tag
    }

    /// Why an action is not admitted.
    #[cold]
    pub(crate) fn refusal<O: Operation>(&self, action: &Action<O>) -> Abort {
        if let Err(unknown) = self.worker.shard().catalog.check(action.table, action.tag) {
            self.core.doom(&unknown);
        }
        self.core.doomed_for()
    }

    /// Sends an action to its owner. What the transaction holds here is entered in the lock tables when it suspends.
    pub(crate) fn send<O: Operation>(&self, to: WorkerId, action: Action<O>) -> Call<Returned<O>> {
        let owner = self.prepare_remote(to, 1);
        self.core.trace.event(self.worker, Stage::Execute, || {
            format!("{} to worker {}", self.name_of("sends an action on", action.table), to.0)
        });
        self.worker.call(to, move |worker, reply| on_action(worker, owner, action, reply))
    }

    fn prepare_remote(&self, to: WorkerId, actions: u64) -> LockOwner {
        let owner = self.core.ensure_known(self.worker);
        let mut participants = self.core.participants.borrow_mut();
        if !participants.contains(&to) {
            participants.push(to);
        }
        self.core.outstanding.set(self.core.outstanding.get() + 1);
        self.worker.shard().stats.remote_actions.add(actions);
        owner
    }

    /// Waits for `future`, one of the transaction's own operations.
    async fn suspend<R>(&self, future: impl Future<Output = R>) -> R {
        let mut future = pin!(future);
        let half_way = HalfWay(self.core);
        let result = poll_fn(|context| {
            let polled = future.as_mut().poll(context);
            if polled.is_pending() {
                self.core.suspending();
            }
            polled
        })
        .await;
        half_way.disarm();
        result
    }

    async fn receive<T: Send + 'static>(&self, call: Call<(Result<T, Abort>, Effects)>) -> Result<T, Abort> {
        let returned = self.suspend(call).await;
        self.received(returned)
    }

    /// Takes in what an action brought back from its owner.
    pub(crate) fn received<T>(
        &self,
        returned: Result<(Result<T, Abort>, Effects), Lost>,
    ) -> Result<T, Abort> {
        self.core.outstanding.set(self.core.outstanding.get() - 1);
        let result = match returned {
            Ok((result, effects)) => {
                self.core.followers.borrow_mut().extend(effects.followers);
                if !effects.redo.is_empty() {
                    self.core.home.borrow_mut().redo.extend_from_slice(&effects.redo);
                }
                self.core.observed.set(self.core.observed.get().max(effects.observed));
                result
            }
            Err(Lost) => Err(Abort::shutting_down()),
        };
        self.core
            .trace
            .event(self.worker, Stage::Execute, || "has the result of an action from its owner".to_owned());
        result.inspect_err(|abort| self.core.doom(abort))
    }

    /// Runs a local action that has to queue for its lock.
    pub(crate) async fn wait_and_run<O: Operation>(
        &self,
        place: Place,
        action: Action<O>,
    ) -> Result<O::Output, Abort> {
        let owner = self.core.ensure_known(self.worker);
        self.core.enter_locks(self.worker);
        self.core.home.borrow_mut().entered = true;
        self.core.trace.event(self.worker, Stage::Lock, || self.name_of("waits for a lock on", action.table));
        let run = queue_and_run(self.worker, owner, &self.core.home, place, action, &self.core.followers);
        self.suspend(run).await.inspect_err(|abort| self.core.doom(abort))
    }

    /// Runs the followers that can run here and now. Returns whether others are left, for [`follow_rest`](Tx::follow_rest).
    #[inline(always)]
    pub(crate) fn follow_now(&self) -> Result<bool, Abort> {
        if self.core.followers.borrow().is_empty() {
            return Ok(false);
        }
        self.follow_local()
    }

    #[inline(never)]
    fn follow_local(&self) -> Result<bool, Abort> {
        let shard = self.worker.shard();
        let mut left = 0;
        loop {
            let follower = {
                let mut followers = self.core.followers.borrow_mut();
                if followers.len() == left {
                    return Ok(left > 0);
                }
                followers.remove(left)
            };
            let action = follower.into_action(shard.catalog.tag);
            let (place, owner) = shard.tables.borrow().locate(action.table, action.key());
            let mut action = Some(action);
            if owner == self.worker.id()
                && let Some(done) = self.attempt_here(place, &mut action, None)
            {
                done?;
            } else {
                let kept = action.expect("an action that was not run is still there");
                self.core.followers.borrow_mut().insert(left, Follower::from_action(kept));
                left += 1;
            }
        }
    }

    /// Runs the followers that must wait, or that belong to other workers.
    #[cold]
    pub(crate) async fn follow_rest(&self) -> Result<(), Abort> {
        let tag = self.worker.shard().catalog.tag;
        let followers = self.core.followers.take();
        let actions = followers.into_iter().map(|follower| follower.into_action(tag));
        self.join_all_bare(actions).await.map(drop)
    }

    /// Runs an action of the home's own as a direct call, or leaves it in `action` and returns `None` when a lock is in its
    /// way.
    #[inline(always)]
    pub(crate) fn attempt_here<O: Operation>(
        &self,
        place: Place,
        action: &mut Option<Action<O>>,
        position: Option<Position>,
    ) -> Option<Result<O::Output, Abort>> {
        let shard = self.worker.shard();
        shard.stats.local_actions.add(1);
        self.core.trace.event(self.worker, Stage::Execute, || self.describe(action, "runs a direct call on"));
        let mut home = self.core.home.borrow_mut();
        let mut followers = self.core.followers.borrow_mut();
        let attempted = attempt(shard, self.core.owner(), &mut home, place, action, position, &mut followers);
        if let Some(Err(abort)) = &attempted {
            self.core.doom(abort);
        }
        attempted
    }

    /// Runs the actions of a phase and awaits their results: a synchronization point.
    ///
    /// The actions run in the order of their owners and keys, whatever order they are given in: transactions that want
    /// the same rows then queue for them in the same order and never wait for each other in a cycle. (What a
    /// transaction does in several phases may still close one; see `deadlock`.)
    ///
    /// # Errors
    /// The reason of the first action that failed; the transaction has to abort.
    pub async fn join<P: Phase>(&mut self, phase: P) -> Result<P::Output, Abort> {
        phase.run(self).await
    }

    /// Runs any number of actions of one kind as one phase, in the order that [`join`](Tx::join) explains; results are in
    /// order of the actions. Actions for the same owner travel in one message.
    ///
    /// # Errors
    /// The reason of the first action that failed; the transaction has to abort.
    pub async fn join_all<O: Operation>(
        &mut self,
        actions: impl IntoIterator<Item = Action<O>>,
    ) -> Result<Vec<O::Output>, Abort> {
        let results = self.join_all_bare(actions).await?;
        if self.follow_now()? {
            Box::pin(self.follow_rest()).await?;
        }
        Ok(results)
    }

    async fn join_all_bare<O: Operation>(
        &self,
        actions: impl IntoIterator<Item = Action<O>>,
    ) -> Result<Vec<O::Output>, Abort> {
        let mut ordered = Vec::new();
        for (at, action) in actions.into_iter().enumerate() {
            if !self.admits(&action) {
                return Err(self.refusal(&action));
            }
            let (place, owner) = self.worker.shard().tables.borrow().locate(action.table, action.key());
            ordered.push(Planned { owner, place, at, action });
        }
        let mut results: Vec<Option<O::Output>> = Vec::new();
        results.resize_with(ordered.len(), || None);
        ordered.sort_by(|a, b| {
            (a.owner, a.place.table, a.action.key()).cmp(&(b.owner, b.place.table, b.action.key()))
        });
        let mut ordered = ordered.into_iter().peekable();
        while let Some(owner) = ordered.peek().map(|planned| planned.owner) {
            let group: Vec<Planned<O>> =
                std::iter::from_fn(|| ordered.next_if(|planned| planned.owner == owner)).collect();
            if owner == self.worker.id() {
                let positions = self.locate_together(&group);
                for (planned, position) in group.into_iter().zip(positions) {
                    let result = self.perform_here(planned.place, planned.action, position).await?;
                    results[planned.at] = Some(result);
                }
                continue;
            }
            let known = self.prepare_remote(owner, group.len() as u64);
            self.core.trace.event(self.worker, Stage::Execute, || {
                format!("sends {} actions to worker {}", group.len(), owner.0)
            });
            let (places, group): (Vec<usize>, Vec<Action<O>>) =
                group.into_iter().map(|planned| (planned.at, planned.action)).unzip();
            let call = self.worker.call(owner, move |worker, reply| on_actions(worker, known, group, reply));
            let returned = self.receive(call).await?;
            for (at, result) in places.into_iter().zip(returned) {
                results[at] = Some(result);
            }
        }
        Ok(results.into_iter().map(|result| result.expect("every action returned")).collect())
    }

    /// Runs an action of the home's own, waiting for its lock if need be.
    async fn perform_here<O: Operation>(
        &self,
        place: Place,
        action: Action<O>,
        position: Option<Position>,
    ) -> Result<O::Output, Abort> {
        let mut action = Some(action);
        match (self.attempt_here(place, &mut action, position), action) {
            (Some(done), _) => done,
            (None, None) => unreachable!("an action that is blocked is still there"),
            (None, Some(action)) => self.wait_and_run(place, action).await,
        }
    }

    /// Runs an action of a phase where its data is; its followers are left for later.
    async fn perform<O: Operation>(&self, action: Action<O>) -> Result<O::Output, Abort> {
        let (place, owner) = self.worker.shard().tables.borrow().locate(action.table, action.key());
        if owner == self.worker.id() {
            return self.perform_here(place, action, None).await;
        }
        self.receive(self.send(owner, action)).await
    }

    /// Where in its phase an action has to be run.
    fn rank<O: Operation>(&self, action: &Action<O>) -> Result<Rank, Abort> {
        if !self.admits(action) {
            return Err(self.refusal(action));
        }
        let (_, owner) = self.worker.shard().tables.borrow().locate(action.table, action.key());
        Ok((owner, action.table, action.key().clone()))
    }

    /// Looks up the keys of the home's own actions of a phase with their cache misses overlapping. The positions are hints:
    /// the trees look again where something has moved.
    fn locate_together<O: Operation>(&self, actions: &[Planned<O>]) -> Vec<Option<Position>> {
        if actions.len() < 2 {
            return vec![None; actions.len()];
        }
        let tables = self.worker.shard().tables.borrow();
        let mut probes: Vec<Probe<'_>> = actions
            .iter()
            .map(|planned| Probe::new(&tables.partition(planned.place).tree, planned.action.key()))
            .collect();
        locate_batch(&mut probes);
        probes.iter().map(|probe| Some(probe.position)).collect()
    }

    #[cold]
    fn describe<O: Operation>(&self, action: &Option<Action<O>>, verb: &str) -> String {
        action.as_ref().map(|action| self.name_of(verb, action.table)).unwrap_or_default()
    }

    #[cold]
    fn name_of(&self, verb: &str, table: TableId) -> String {
        format!("{verb} '{}'", self.worker.shard().catalog.tables[table.at()].name)
    }

    /// Reads a row.
    ///
    /// # Errors
    /// As [`run`](Tx::run).
    #[inline]
    pub fn get<T: Table>(&mut self, table: TableRef<T>, key: T::Key) -> Run<'_, 'w, Get<T>> {
        self.run(table.get(key))
    }

    /// Inserts a row; a key that is taken aborts the transaction.
    ///
    /// # Errors
    /// As [`run`](Tx::run).
    pub async fn insert<T: Table>(
        &mut self,
        table: TableRef<T>,
        key: T::Key,
        row: T::Row,
    ) -> Result<(), Abort> {
        self.run(table.insert(key, row)).await.map(drop)
    }

    /// Changes a row in place; `None` when there is none.
    ///
    /// # Errors
    /// As [`run`](Tx::run).
    #[inline]
    pub fn update<T, F, R>(&mut self, table: TableRef<T>, key: T::Key, change: F) -> Run<'_, 'w, Update<T, F>>
    where
        T: Table,
        F: FnOnce(&mut T::Row) -> R + Send + 'static,
        R: Send + 'static,
    {
        self.run(table.update(key, change))
    }

    /// Deletes a row and returns it, if there was one.
    ///
    /// # Errors
    /// As [`run`](Tx::run).
    pub fn delete<T: Table>(&mut self, table: TableRef<T>, key: T::Key) -> Run<'_, 'w, Delete<T>> {
        self.run(table.delete(key))
    }

    /// Reads the row that a unique index leads to, with its primary key.
    ///
    /// # Errors
    /// As [`run`](Tx::run).
    pub async fn get_by<I: Index>(
        &mut self,
        index: IndexRef<I>,
        table: TableRef<I::Table>,
        key: I::Key,
    ) -> Result<Option<(<I::Table as Table>::Key, <I::Table as Table>::Row)>, Abort> {
        match self.run(index.lookup(key)).await? {
            Some(key) => Ok(self.get(table, key.clone()).await?.map(|row| (key, row))),
            None => Ok(None),
        }
    }

    /// The primary keys of the rows whose index keys lie in `range`, in order of the index, at most `limit`.
    ///
    /// # Errors
    /// As [`run`](Tx::run).
    pub async fn lookup_all<I: Index>(
        &mut self,
        index: IndexRef<I>,
        range: KeyRange,
        limit: usize,
    ) -> Result<Vec<<I::Table as Table>::Key>, Abort> {
        self.worker.shard().catalog.check(index.id, index.tag).inspect_err(|abort| self.core.doom(abort))?;
        let mut found: Vec<KeyBuf> = Vec::new();
        let mut rest = (limit > 0).then_some(range);
        while let Some(range) = rest {
            let (part, next) = self.part_of(index.id, range, false);
            rest = next;
            let action = Action {
                table: index.id,
                tag: index.tag,
                mode: LockMode::Shared,
                target: LockTarget::Range { lower: part.lower, upper: part.upper },
                operation: CollectKeys { found, limit },
            };
            found = self.run(action).await?;
            if found.len() >= limit {
                break;
            }
        }
        found.iter().map(|key| decode_key(key)).collect()
    }

    /// Walks the rows of a range in order of their keys, feeding each to `step` until it breaks, and returns the
    /// accumulator. The closure runs where the rows are. The range, as far as it was walked, is protected from insertions
    /// by others until the transaction ends.
    ///
    /// # Errors
    /// As [`run`](Tx::run).
    #[inline]
    pub async fn fold<T, A, F>(
        &mut self,
        table: TableRef<T>,
        range: KeyRange,
        accumulator: A,
        step: F,
    ) -> Result<A, Abort>
    where
        T: Table,
        A: Send + 'static,
        F: FnMut(&mut A, T::Key, T::Row) -> ControlFlow<()> + Send + 'static,
    {
        self.walk(table, range, false, accumulator, step).await
    }

    /// Like [`fold`](Tx::fold), from the last key to the first.
    ///
    /// # Errors
    /// As [`run`](Tx::run).
    pub async fn fold_backward<T, A, F>(
        &mut self,
        table: TableRef<T>,
        range: KeyRange,
        accumulator: A,
        step: F,
    ) -> Result<A, Abort>
    where
        T: Table,
        A: Send + 'static,
        F: FnMut(&mut A, T::Key, T::Row) -> ControlFlow<()> + Send + 'static,
    {
        self.walk(table, range, true, accumulator, step).await
    }

    #[inline]
    async fn walk<T, A, F>(
        &mut self,
        table: TableRef<T>,
        range: KeyRange,
        backward: bool,
        mut accumulator: A,
        mut step: F,
    ) -> Result<A, Abort>
    where
        T: Table,
        A: Send + 'static,
        F: FnMut(&mut A, T::Key, T::Row) -> ControlFlow<()> + Send + 'static,
    {
        let mut rest = Some(range);
        while let Some(range) = rest {
            self.worker
                .shard()
                .catalog
                .check(table.id, table.tag)
                .inspect_err(|abort| self.core.doom(abort))?;
            let (part, next) = self.part_of(table.id, range, backward);
            rest = next;
            let action = Action {
                table: table.id,
                tag: table.tag,
                mode: LockMode::Shared,
                target: LockTarget::Range { lower: part.lower, upper: part.upper },
                operation: Fold::<T, A, F> { accumulator, step, backward, table: std::marker::PhantomData },
            };
            let folded: Folded<A, F> = self.run(action).await?;
            (accumulator, step) = (folded.accumulator, folded.step);
            if folded.stopped {
                break;
            }
        }
        Ok(accumulator)
    }

    /// The rows of a range in order of their keys, at most `limit`. See [`fold`](Tx::fold) for scans that need no list.
    ///
    /// # Errors
    /// As [`run`](Tx::run).
    pub async fn scan<T: Table>(
        &mut self,
        table: TableRef<T>,
        range: KeyRange,
        limit: usize,
    ) -> Result<Vec<(T::Key, T::Row)>, Abort> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        self.fold(table, range, Vec::new(), collect_up_to(limit)).await
    }

    /// Like [`scan`](Tx::scan), from the last key to the first.
    ///
    /// # Errors
    /// As [`run`](Tx::run).
    pub async fn scan_backward<T: Table>(
        &mut self,
        table: TableRef<T>,
        range: KeyRange,
        limit: usize,
    ) -> Result<Vec<(T::Key, T::Row)>, Abort> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        self.fold_backward(table, range, Vec::new(), collect_up_to(limit)).await
    }

    /// Cuts off the part of `range` that lies in one partition: the first one, or the last when going backward.
    #[inline]
    fn part_of(&self, table: TableId, range: KeyRange, backward: bool) -> (KeyRange, Option<KeyRange>) {
        let tables = self.worker.shard().tables.borrow();
        let scheme = &tables.shards[table.at()].scheme;
        if backward {
            // The partition of the last key below the upper end.
            let index = match &range.upper {
                None => scheme.partitions() - 1,
                Some(upper) => {
                    let index = scheme.partition_of(upper);
                    if index > 0 && scheme.lower(index) == Some(&**upper) { index - 1 } else { index }
                }
            };
            match scheme.lower(index) {
                Some(cut) if *cut > *range.lower => {
                    let cut = KeyBuf::from(cut);
                    let rest = KeyRange { lower: range.lower, upper: Some(cut.clone()) };
                    (KeyRange { lower: cut, upper: range.upper }, Some(rest))
                }
                _ => (range, None),
            }
        } else {
            let index = scheme.partition_of(&range.lower);
            match scheme.upper(index) {
                Some(cut) if range.upper.as_deref().is_none_or(|upper| cut < upper) => {
                    let cut = KeyBuf::from(cut);
                    let rest = KeyRange { lower: cut.clone(), upper: range.upper };
                    (KeyRange { lower: range.lower, upper: Some(cut) }, Some(rest))
                }
                _ => (range, None),
            }
        }
    }
}

/// Whether two keys are the same. Most are short: the common case needs no call.
#[inline(always)]
fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && head_of(a) == head_of(b) && (a.len() <= 8 || a[8..] == b[8..])
}

fn collect_up_to<K: Send, R: Send>(
    limit: usize,
) -> impl FnMut(&mut Vec<(K, R)>, K, R) -> ControlFlow<()> + Send {
    move |rows, key, row| {
        rows.push((key, row));
        if rows.len() >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// A tuple of actions to be run as one phase by [`Tx::join`].
pub trait Phase {
    /// The tuple of their results.
    type Output;
    #[doc(hidden)]
    fn run(self, tx: &mut Tx<'_>) -> impl Future<Output = Result<Self::Output, Abort>>;
}

macro_rules! phases {
    ($(($($operation:ident $action:ident $result:ident $at:literal),+))+) => {$(
        impl<$($operation: Operation),+> Phase for ($(Action<$operation>,)+) {
            type Output = ($($operation::Output,)+);

            async fn run(self, tx: &mut Tx<'_>) -> Result<Self::Output, Abort> {
                let ($($action,)+) = self;
                let mut order = [$((tx.rank(&$action)?, $at)),+];
                order.sort();
                $(let mut $action = Some($action);)+
                $(let mut $result = None;)+
                for (_, at) in order {
                    match at {
                        $($at => {
                            if let Some(action) = $action.take() {
                                $result = Some(tx.perform(action).await?);
                            }
                        })+
                        _ => unreachable!("a phase has no other actions"),
                    }
                }
                if tx.follow_now()? {
                    Box::pin(tx.follow_rest()).await?;
                }
                Ok(($($result.expect("every action returned"),)+))
            }
        }
    )+};
}

phases! {
    (A a ra 0)
    (A a ra 0, B b rb 1)
    (A a ra 0, B b rb 1, C c rc 2)
    (A a ra 0, B b rb 1, C c rc 2, D d rd 3)
    (A a ra 0, B b rb 1, C c rc 2, D d rd 3, E e re 4)
    (A a ra 0, B b rb 1, C c rc 2, D d rd 3, E e re 4, F f rf 5)
    (A a ra 0, B b rb 1, C c rc 2, D d rd 3, E e re 4, F f rf 5, G g rg 6)
    (A a ra 0, B b rb 1, C c rc 2, D d rd 3, E e re 4, F f rf 5, G g rg 6, H h rh 7)
}
