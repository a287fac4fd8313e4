//! A running transaction as its procedure sees it ([`Tx`]). What the engine keeps for it is in [`core`]; what its actions do
//! where their data is, in [`owner`].
//!
//! # Life of a transaction, from here
//!
//! - **route** and the hand-over to the home worker: [`crate::procedure`].
//! - **execute**: [`Tx::run`]. An action on the home's own data is a direct call ([`attempt`]): no message, no lock, no
//!   atomic, no allocation. Any other action is sent to its owner ([`on_action`]) and the transaction suspends.
//! - **lock**: a transaction that has not suspended only checks that nothing is in its way. When it suspends for the first
//!   time its footprint is entered in the lock tables ([`TxnState::enter_locks`]). Actions from another worker lock at once.
//! - **log**: the redo record of the transaction is made when it commits (there is none without a WAL).
//! - **release**: [`TxnGuard::finish`] drops the undo, or applies it, and releases the locks, here and at the participants.
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

mod core;
mod owner;

use std::future::poll_fn;
use std::ops::ControlFlow;
use std::pin::pin;
use std::rc::Rc;

use atrapos_runtime::{Call, Lost, WorkerId};
use atrapos_storage::lock::{LockMode, LockTarget, TxnId};
use atrapos_storage::{KeyBuf, Position, Probe, locate_batch};

use crate::abort::Abort;
use crate::action::{
    Action, CollectKeys, Collected, Delete, DependentAction, Fold, Folded, Get, Operation, Read, Update,
};
use crate::lookups::RouteHint;
use crate::partition::PartitionId;
use crate::planted::{Bug, planted};
use crate::range::KeyRange;
use crate::recording::RecordedAccess;
use crate::routing::head_of;
use crate::run::Run;
use crate::schema::{Index, IndexRef, Table, TableId, TableRef, decode_key};
use crate::shard::EngineWorker;
use crate::trace::Stage;

pub(crate) use core::{Ending, HalfWay, TxnGuard, TxnState};
pub(crate) use owner::{BranchRef, Returned};
use owner::{Reported, RunOutcome, attempt, on_action, on_actions, queue_and_run};

/// An action of a phase, with where its data was when the phase began.
struct Planned<O: Operation> {
    owner: WorkerId,
    place: PartitionId,
    /// Its place among the results.
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
    core: &'w Rc<TxnState>,
    routed: Option<&'w RouteHint<'w>>,
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
        core: &'w Rc<TxnState>,
        routed: Option<&'w RouteHint<'w>>,
    ) -> Tx<'w> {
        Tx { worker, core, routed }
    }

    /// Where `key` is, if it is the one that was looked up on the way here.
    #[inline(always)]
    pub(crate) fn routed_to(&self, table: TableId, key: &KeyBuf) -> Option<(PartitionId, Position)> {
        match self.routed {
            Some(routed)
                if routed.place.table == table
                    && same_bytes(routed.key, key)
                    && routed.scheme_changes == self.worker.shard().scheme_changes.get() =>
            {
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
    pub(crate) fn core(&self) -> &'w Rc<TxnState> {
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
        self.note_sent(&action);
        self.core.trace.event(self.worker, Stage::Execute, || {
            format!("{} to worker {}", self.name_of("sends an action on", action.table), to.0)
        });
        self.worker.call(to, move |worker, reply| on_action(worker, owner, action, reply))
    }

    fn note_sent<O: Operation>(&self, action: &Action<O>) {
        if self.worker.shard().monitor.is_on() {
            self.core.note_sent(action.table, action.key());
        }
    }

    fn prepare_remote(&self, to: WorkerId, actions: u64) -> TxnId {
        let owner = self.core.ensure_known(self.worker);
        self.core.add_participant(to);
        self.worker.shard().stats.remote_actions.add(actions);
        owner
    }

    /// Waits for `future`, one of the transaction's own operations.
    async fn suspend<R>(&self, future: impl Future<Output = R>) -> R {
        let mut future = pin!(future);
        let half_way = HalfWay::begin(self.core);
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

    async fn receive<T: Send + 'static>(&self, call: Call<(Result<T, Abort>, Reported)>) -> Result<T, Abort> {
        let returned = self.suspend(call).await;
        self.received(returned)
    }

    /// Takes in what an action brought back from its owner.
    pub(crate) fn received<T>(
        &self,
        returned: Result<(Result<T, Abort>, Reported), Lost>,
    ) -> Result<T, Abort> {
        let result = match returned {
            Ok((result, effects)) => {
                self.core.dependents.borrow_mut().extend(effects.dependents);
                let mut logged = Ok(());
                if !effects.redo.is_empty() && !planted(Bug::RedoElsewhereLost) {
                    logged = self.core.home.borrow_mut().redo.take_in(&effects.redo);
                }
                self.core.observed.set(self.core.observed.get().max(effects.observed));
                logged.and(result)
            }
            Err(Lost) => Err(Abort::shutting_down()),
        };
        self.core
            .trace
            .event(self.worker, Stage::Execute, || "has the result of an action from its owner".to_owned());
        result.inspect_err(|abort| self.core.doom(abort))
    }

    /// Runs an action that found a lock in its way here: waits for the lock, and goes where the data goes meanwhile.
    pub(crate) async fn wait_and_run<O: Operation>(&self, mut action: Action<O>) -> Result<O::Output, Abort> {
        let owner = self.core.ensure_known(self.worker);
        self.core.enter_locks(self.worker);
        self.core.home.borrow_mut().entered = true;
        self.core.trace.event(self.worker, Stage::Lock, || self.name_of("waits for a lock on", action.table));
        loop {
            let (place, holder) = action.locate(&self.worker.shard().tables.borrow());
            if holder != self.worker.id() {
                return self.receive(self.send(holder, action)).await;
            }
            let run =
                queue_and_run(self.worker, owner, &self.core.home, place, action, &self.core.dependents);
            match self.suspend(run).await {
                RunOutcome::Done(done) => return done.inspect_err(|abort| self.core.doom(abort)),
                RunOutcome::Moved(back) => action = back,
            }
        }
    }

    /// Runs the dependents that can run here and now. Returns whether others are left, for [`follow_rest`](Tx::follow_rest).
    #[inline(always)]
    pub(crate) fn follow_now(&self) -> Result<bool, Abort> {
        if self.core.dependents.borrow().is_empty() {
            return Ok(false);
        }
        self.follow_local()
    }

    /// Changes of entries first; checks only when no change is left, so that what a check finds does not depend on where the
    /// entries are.
    #[inline(never)]
    fn follow_local(&self) -> Result<bool, Abort> {
        Ok(self.follow_local_among(DependentAction::is_change)? || self.follow_local_among(|_| true)?)
    }

    /// Runs those of the dependents that are `wanted` and can run here and now. Returns whether wanted ones are left.
    fn follow_local_among(&self, wanted: impl Fn(&DependentAction) -> bool) -> Result<bool, Abort> {
        let shard = self.worker.shard();
        let (mut left, mut is_left) = (0, false);
        loop {
            let dependent = {
                let mut dependents = self.core.dependents.borrow_mut();
                let Some(next) = dependents.get(left) else { return Ok(is_left) };
                if !wanted(next) {
                    left += 1;
                    continue;
                }
                dependents.remove(left)
            };
            let action = dependent.into_action(shard.catalog.tag);
            let (place, owner) = action.locate(&shard.tables.borrow());
            let mut action = Some(action);
            if owner == self.worker.id()
                && let Some(done) = self.attempt_here(place, &mut action, None)
            {
                done?;
            } else {
                let kept = action.expect("an action that was not run is still there");
                self.core.dependents.borrow_mut().insert(left, DependentAction::from_action(kept));
                (left, is_left) = (left + 1, true);
            }
        }
    }

    /// Runs the dependents that must wait, or that belong to other workers, and what follows from them: all changes of entries
    /// before the first check.
    #[cold]
    pub(crate) async fn follow_rest(&self) -> Result<(), Abort> {
        let tag = self.worker.shard().catalog.tag;
        loop {
            let mut dependents = self.core.dependents.take();
            if dependents.is_empty() {
                return Ok(());
            }
            if dependents.iter().any(DependentAction::is_change) && !planted(Bug::ChecksAmongChanges) {
                let (changes, checks) = dependents.into_iter().partition(DependentAction::is_change);
                self.core.dependents.replace(checks);
                dependents = changes;
            }
            let actions = dependents.into_iter().map(|dependent| dependent.into_action(tag));
            self.join_all_bare(actions).await?;
        }
    }

    /// Runs an action of the home's own as a direct call, or leaves it in `action` and returns `None` when a lock is in its
    /// way.
    #[inline(always)]
    pub(crate) fn attempt_here<O: Operation>(
        &self,
        place: PartitionId,
        action: &mut Option<Action<O>>,
        position: Option<Position>,
    ) -> Option<Result<O::Output, Abort>> {
        let shard = self.worker.shard();
        shard.stats.local_actions.add(1);
        if self.core.trace.is_on() {
            return self.attempt_noted(place, action, position);
        }
        self.attempt_at(place, action, position)
    }

    #[inline(always)]
    fn attempt_at<O: Operation>(
        &self,
        place: PartitionId,
        action: &mut Option<Action<O>>,
        position: Option<Position>,
    ) -> Option<Result<O::Output, Abort>> {
        let shard = self.worker.shard();
        let mut home = self.core.home.borrow_mut();
        let mut dependents = self.core.dependents.borrow_mut();
        let attempted =
            attempt(shard, self.core.owner(), &mut home, place, action, position, &mut dependents);
        if let Some(Err(abort)) = &attempted {
            self.core.doom(abort);
        }
        attempted
    }

    /// Like [`attempt_at`](Tx::attempt_at), for a transaction that somebody looks at.
    #[cold]
    #[inline(never)]
    fn attempt_noted<O: Operation>(
        &self,
        place: PartitionId,
        action: &mut Option<Action<O>>,
        position: Option<Position>,
    ) -> Option<Result<O::Output, Abort>> {
        self.core.trace.event(self.worker, Stage::Execute, || self.describe(action, "runs a direct call on"));
        let asked = action.as_ref().expect("an action is attempted once");
        let Some(recorder) = self.core.trace.recorder() else {
            return self.attempt_at(place, action, position);
        };
        let tables = &self.worker.shard().tables;
        let access = RecordedAccess::begin(&tables.borrow(), place, &asked.target, asked.operation.kind());
        let attempted = self.attempt_at(place, action, position);
        let home = self.core.home.borrow();
        let done = attempted.as_ref().and(home.held.last());
        recorder.borrow_mut().note(access, done.map(|held| &held.target), &tables.borrow(), place);
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
        self.core.trace.next_phase();
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
        self.core.trace.next_phase();
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
            let (place, owner) = action.locate(&self.worker.shard().tables.borrow());
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
                    let result = self.perform(planned.action, position).await?;
                    results[planned.at] = Some(result);
                }
                continue;
            }
            let known = self.prepare_remote(owner, group.len() as u64);
            group.iter().for_each(|planned| self.note_sent(&planned.action));
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

    /// Runs an action of a phase where its data is; its dependents are left for later.
    async fn perform<O: Operation>(
        &self,
        action: Action<O>,
        position: Option<Position>,
    ) -> Result<O::Output, Abort> {
        let (place, owner) = action.locate(&self.worker.shard().tables.borrow());
        if owner != self.worker.id() {
            return self.receive(self.send(owner, action)).await;
        }
        self.core.trace.in_phase();
        // What the route names was looked up on the way here.
        let position = position.or_else(|| match &action.target {
            LockTarget::Key(key) => self.routed_to(action.table, key).map(|(_, position)| position),
            LockTarget::Range { .. } => None,
        });
        let mut action = Some(action);
        match (self.attempt_here(place, &mut action, position), action) {
            (Some(done), _) => done,
            (None, None) => unreachable!("an action that is blocked is still there"),
            (None, Some(action)) => self.wait_and_run(action).await,
        }
    }

    /// Where in its phase an action has to be run.
    fn rank<O: Operation>(&self, action: &Action<O>) -> Result<Rank, Abort> {
        if !self.admits(action) {
            return Err(self.refusal(action));
        }
        let (_, owner) = action.locate(&self.worker.shard().tables.borrow());
        Ok((owner, action.table, action.key().clone()))
    }

    /// Looks up the keys of the home's own actions of a phase with their cache misses overlapping. The positions are hints:
    /// the trees look again where something has moved.
    fn locate_together<O: Operation>(&self, actions: &[Planned<O>]) -> Vec<Option<Position>> {
        if actions.len() < 2 {
            return vec![None; actions.len()];
        }
        let tables = self.worker.shard().tables.borrow();
        let tree = |planned: &Planned<O>| tables.owned_at(planned.place).map(|partition| &partition.tree);
        // What has gone elsewhere since the phase began is looked for there.
        let mut probes: Vec<Probe<'_>> = actions
            .iter()
            .filter_map(|planned| Some(Probe::new(tree(planned)?, planned.action.key())))
            .collect();
        locate_batch(&mut probes);
        let mut found = probes.iter().map(|probe| probe.position);
        actions.iter().map(|planned| tree(planned).and_then(|_| found.next())).collect()
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

    /// Reads what a closure makes of a row; `None` when there is none.
    ///
    /// # Errors
    /// As [`run`](Tx::run).
    #[inline]
    pub fn read<T, F, R>(&mut self, table: TableRef<T>, key: T::Key, look: F) -> Run<'_, 'w, Read<T, F>>
    where
        T: Table,
        F: FnOnce(T::Row) -> R + Send + 'static,
        R: Send + 'static,
    {
        self.run(table.read(key, look))
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
            let action = Action::on_range(
                index.id,
                index.tag,
                LockMode::Shared,
                range,
                false,
                CollectKeys { found, limit },
            );
            let collected: Collected = self.run(action).await?;
            (found, rest) = (collected.found, collected.rest);
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
            let operation = Fold::<T, A, F> { accumulator, step, backward, table: std::marker::PhantomData };
            let action = Action::on_range(table.id, table.tag, LockMode::Shared, range, backward, operation);
            let folded: Folded<A, F> = self.run(action).await?;
            (accumulator, step, rest) = (folded.accumulator, folded.step, folded.rest);
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
                                $result = Some(tx.perform(action, None).await?);
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
