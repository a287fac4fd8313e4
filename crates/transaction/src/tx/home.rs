//! Accesses made by the home of a transaction: direct calls on its own data, actions sent to other workers, waits.
//!
//! Never: touches a tree or a lock table itself ([`super::access`]).

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;

use atrapos_partition::abort::Abort;
use atrapos_partition::action::{Action, ErasedOperation, Operation, Request};
use atrapos_partition::partition::{PartitionId, Tables};
use atrapos_partition::planted::{Bug, planted};
use atrapos_partition::routing::InstanceId;
use atrapos_partition::schema::TableId;
use atrapos_runtime::{Call, Lost, WorkerId};
use atrapos_storage::lock::LockTarget;
use atrapos_storage::{KeyBuf, Position};

use super::access::{conflicts, execute};
use super::lock_wait::{RunOutcome, queue_and_run};
use super::{ActionReply, OperationGuard, Origin, Tx, TxnState};
use crate::lookups::LookupTicket;
use crate::messages::call_action;
use crate::recording::RecordedAccess;
use crate::shard::EngineWorker;
use crate::trace::Stage;

/// The beginning of an access.
pub(crate) enum AccessStart {
    /// The home owns the data and no lock conflicts: the partition, and the position of the key if it was looked up.
    Here(PartitionId, Option<Position>),
    /// The look-up of the key is deferred: the access goes on in the next poll.
    LookingUp(PartitionId, LookupTicket),
    /// A lock of another transaction conflicts.
    Conflict,
    /// This worker owns the data.
    Elsewhere(WorkerId),
    /// The transaction is doomed, or the table is not one of this database.
    Refused,
}

impl<'w> Tx<'w> {
    /// Returns the location of `key`, if it is the one that was looked up by the route.
    #[inline(always)]
    pub(crate) fn routed_to(&self, table: TableId, key: &KeyBuf) -> Option<(PartitionId, Position)> {
        self.routed?.of(table, key, self.worker.shard())
    }

    /// The home.
    #[inline]
    pub(crate) fn worker(&self) -> &'w Rc<EngineWorker> {
        self.worker
    }

    /// The state of the transaction.
    #[inline]
    pub(crate) fn state(&self) -> &'w Rc<TxnState> {
        self.state
    }

    /// Returns true if an action may be run: the transaction is not doomed and the table is one of this database.
    #[inline(always)]
    pub(super) fn admits(&self, request: &Request) -> bool {
        !self.state.is_doomed.get() && self.worker.shard().tag == request.tag
    }

    /// Creates the abort for an action that is not admitted.
    #[cold]
    pub(crate) fn refusal(&self, request: &Request) -> Abort {
        if let Err(unknown) = self.worker.shard().check(request.table, request.tag) {
            self.state.doom(&unknown);
        }
        self.state.doomed_for()
    }

    /// Dooms the transaction for an action that was refused before it was run, unless it is doomed already.
    #[cold]
    pub(crate) fn refuse(&self, abort: Abort) -> Abort {
        if self.state.is_doomed.get() {
            return self.state.doomed_for();
        }
        self.state.doom(&abort);
        abort
    }

    /// Sends an action to its owner. The transaction's footprint here is entered in the lock tables when it suspends.
    pub(crate) fn send(
        &self,
        to: WorkerId,
        action: Action<ErasedOperation>,
    ) -> Call<ActionReply<ErasedOperation>> {
        let origin = self.prepare_remote(to, 1);
        self.note_sent(to, &action);
        self.state.trace.event(self.worker, Stage::Execute, || {
            format!("{} to worker {}", self.name_of("sends an action on", action.request.table), to.0)
        });
        call_action(self.worker, to, origin, action)
    }

    /// Notes an access on another worker for the monitor.
    pub(super) fn note_sent(&self, to: WorkerId, action: &Action<ErasedOperation>) {
        if self.worker.shard().monitor.is_on() {
            let (accesses, mut rounds) = (self.accesses(), self.state.rounds.borrow_mut());
            rounds.begin(accesses);
            let (table, key) = (action.request.table, action.request.key());
            rounds.send(to, table, key);
            // The operation goes to the owner of the data, and its result comes back in the same place.
            rounds.exchange(key.len() + 2 * action.operation.bytes());
        }
    }

    /// Notes an access that followed the latest one that was sent, on the same worker.
    pub(super) fn note_followed(&self, table: TableId, key: &KeyBuf, done: &ErasedOperation) {
        self.worker.shard().stats.remote_actions.add(1);
        if self.worker.shard().monitor.is_on() {
            let mut rounds = self.state.rounds.borrow_mut();
            rounds.follow(table, key);
            rounds.exchange(key.len() + 2 * done.bytes());
        }
        self.state
            .trace
            .event(self.worker, Stage::Execute, || self.name_of("has run an action there, too, on", table));
    }

    /// Returns true if an action is sent to another worker of this database.
    pub(super) fn is_sent(&self, request: &Request) -> bool {
        self.admits(request) && {
            let (_, server) = self.server_of(&self.worker.shard().tables.borrow(), request);
            server != self.worker.id() && InstanceId::of_owner(server).is_none()
        }
    }

    /// Returns the number of accesses at the home so far.
    pub(super) fn accesses(&self) -> usize {
        self.state.home.borrow().accesses.len()
    }

    /// Makes the transaction known, and `to` one of its participants.
    pub(super) fn prepare_remote(&self, to: WorkerId, actions: u64) -> Origin {
        let txn = self.state.ensure_known(self.worker);
        self.state.add_participant(to);
        self.worker.shard().stats.remote_actions.add(actions);
        Origin { txn, mark: self.state.savepoints.borrow().now(), age: self.state.age.get() }
    }

    /// Waits for something that is none of the transaction's own operations: the next command of its client, say. Meanwhile the
    /// transaction is suspended like any other, with locks on all that it has accessed, for as long as it takes; others
    /// that need them wait. What it waits for must not depend on a transaction that may wait for these locks, for no
    /// deadlock is found that goes through it.
    pub async fn wait_for<R>(&mut self, future: impl Future<Output = R>) -> R {
        let result = self.suspend(future).await;
        if let Some(commit_waiters) = &self.worker.shard().commit_waiters {
            self.state.ensure_known(self.worker);
            commit_waiters.siblings.hear(&self.state.heard);
        }
        result
    }

    /// Lets the other tasks of the home run once. Meanwhile the transaction is suspended, with locks on all that it has accessed: a
    /// long one does so now and then, so that others do not wait for its end.
    pub async fn yield_now(&mut self) {
        self.suspend(self.worker.yield_now()).await;
    }

    /// Waits for `future`, one of the transaction's own operations.
    pub(crate) async fn suspend<R>(&self, future: impl Future<Output = R>) -> R {
        let mut future = pin!(future);
        let guard = OperationGuard::begin(self.state);
        let result = poll_fn(|context| {
            let polled = future.as_mut().poll(context);
            if polled.is_pending() {
                self.state.suspending();
            }
            polled
        })
        .await;
        guard.disarm();
        result
    }

    /// Waits for the answer to an action.
    pub(super) async fn receive<T: Send + 'static>(&self, call: Call<ActionReply<T>>) -> Result<T, Abort> {
        let returned = self.suspend(call).await;
        self.received(returned)
    }

    /// Adds the reply to an action to the state of the transaction, and returns the result.
    pub(crate) fn received<T>(&self, returned: Result<ActionReply<T>, Lost>) -> Result<T, Abort> {
        let result = match returned {
            Ok(ActionReply { result, dependents, redo, observed }) => {
                self.state.dependents.borrow_mut().extend(dependents);
                let mut logged = Ok(());
                self.state.rounds.borrow_mut().exchange(redo.len());
                if !redo.is_empty() && !planted(Bug::RedoElsewhereLost) {
                    logged = self.state.home.borrow_mut().redo.take_in(&redo);
                }
                self.state.observed.set(self.state.observed.get().max(observed));
                logged.and(result)
            }
            Err(Lost) => Err(Abort::shutting_down()),
        };
        self.state
            .trace
            .event(self.worker, Stage::Execute, || "has the result of an action from its owner".to_owned());
        result.inspect_err(|abort| self.state.doom(abort))
    }

    /// Runs an action with which a lock here conflicts: waits for the lock, and follows the data if it moves meanwhile.
    pub(crate) async fn wait_and_run(
        &self,
        mut action: Action<ErasedOperation>,
    ) -> Result<ErasedOperation, Abort> {
        let txn = self.state.ensure_known(self.worker);
        self.state.enter_locks(self.worker);
        self.state
            .trace
            .event(self.worker, Stage::Lock, || self.name_of("waits for a lock on", action.request.table));
        loop {
            let (place, holder) = action.request.locate(&self.worker.shard().tables.borrow());
            if holder != self.worker.id() {
                return self.receive(self.send(holder, action)).await;
            }
            let run =
                queue_and_run(self.worker, txn, &self.state.home, place, action, &self.state.dependents);
            match self.suspend(run).await {
                RunOutcome::Done(done) => return done.inspect_err(|abort| self.state.doom(abort)),
                RunOutcome::Moved(back) => action = back,
            }
        }
    }

    /// Locates the data of an access, in the first poll of its action, and looks for a lock that conflicts with it. Compiled
    /// once, with what is most common apart: data of the home without locks. `maintains` is that of its operation.
    #[inline(never)]
    pub(crate) fn begin(&self, request: &Request, maintains: bool) -> AccessStart {
        if !self.admits(request) {
            return AccessStart::Refused;
        }
        if self.routed.is_none()
            && let LockTarget::Key(key) = &request.target
        {
            let shard = self.worker.shard();
            let tables = shard.tables.borrow();
            let (place, owner) = tables.locate(request.table, key);
            if owner == self.worker.id()
                && tables.owned_at(place).is_some_and(|partition| partition.locks.is_empty())
                && !(self.state.home.borrow().is_untouched() && shard.lookups.pays(self.worker))
            {
                return AccessStart::Here(place, None);
            }
        }
        self.begin_slowly(request, maintains)
    }

    /// Begins an access in any case: the key may be that of the route, or its look-up may be deferred, or its data be elsewhere or
    /// locked.
    #[inline(never)]
    fn begin_slowly(&self, request: &Request, maintains: bool) -> AccessStart {
        if !request.from_end
            && let Some((place, position)) = self.routed_to(request.table, request.key())
        {
            return self.start_at(place, Some(position), request, maintains);
        }
        let shard = self.worker.shard();
        let (place, server) = self.server_of(&shard.tables.borrow(), request);
        if server != self.worker.id() {
            return AccessStart::Elsewhere(server);
        }
        if self.state.home.borrow().is_untouched() && shard.lookups.pays(self.worker) {
            let ticket = shard.lookups.defer(self.worker, place, request.key());
            self.state.suspending();
            return AccessStart::LookingUp(place, ticket);
        }
        self.start_at(place, None, request, maintains)
    }

    /// Returns the partition of an access, and the worker on which it is made: the home, if it may make it itself, or the owner.
    #[inline]
    pub(super) fn server_of(&self, tables: &Tables, request: &Request) -> (PartitionId, WorkerId) {
        let (place, owner) = request.locate(tables);
        let own = self.worker.id();
        (place, if tables.serves(place, owner, own, request.mode) { own } else { owner })
    }

    /// Continues an access whose look-up was deferred, in the second poll of its action.
    #[inline(never)]
    pub(crate) fn resume(
        &self,
        request: &Request,
        maintains: bool,
        place: PartitionId,
        ticket: LookupTicket,
    ) -> AccessStart {
        let lookups = &self.worker.shard().lookups;
        // The position is a hint, which the tree checks.
        let position = lookups.take(self.worker, ticket).map(|(_, position)| position);
        if !lookups.is_stale(ticket) {
            return self.start_at(place, position, request, maintains);
        }
        // The scheme has changed since the look-up was deferred, so the data is located again.
        let (place, server) = self.server_of(&self.worker.shard().tables.borrow(), request);
        if server != self.worker.id() {
            return AccessStart::Elsewhere(server);
        }
        self.start_at(place, position, request, maintains)
    }

    #[inline(always)]
    fn start_at(
        &self,
        place: PartitionId,
        position: Option<Position>,
        request: &Request,
        maintains: bool,
    ) -> AccessStart {
        if self.conflicts_here(place, request, maintains) {
            return AccessStart::Conflict;
        }
        AccessStart::Here(place, position)
    }

    /// Returns true if a lock of another transaction conflicts with an access to data of the home.
    #[inline(always)]
    pub(super) fn conflicts_here(&self, partition: PartitionId, request: &Request, maintains: bool) -> bool {
        let tables = self.worker.shard().tables.borrow();
        let conflicts = conflicts(&tables, self.state.txn(), partition, request, maintains);
        if conflicts && self.state.trace.is_on() {
            drop(tables);
            self.note_conflict(request.table);
        }
        conflicts
    }

    /// Runs an operation on data of the home as a direct call. No lock may conflict with its request, whose target is taken.
    #[inline(always)]
    pub(crate) fn execute_here<O: Operation>(
        &self,
        partition: PartitionId,
        request: &mut Request,
        operation: O,
        position: Option<Position>,
    ) -> Result<O::Output, Abort> {
        let shard = self.worker.shard();
        shard.stats.local_actions.add(1);
        let recorded =
            if self.state.trace.is_on() { self.note_begin(partition, request, &operation) } else { None };
        let done = {
            let (mut home, mut dependents) =
                (self.state.home.borrow_mut(), self.state.dependents.borrow_mut());
            let state = (&mut *home, &mut *dependents);
            execute(shard, self.state.txn(), state, partition, request, operation, position)
        };
        if let Some(access) = recorded {
            self.note_end(access, partition);
        }
        // Looked at where it is: handed to a closure and back, it would be copied.
        if let Err(abort) = &done {
            self.state.doom(abort);
        }
        done
    }

    /// Runs an action as [`execute_here`](Tx::execute_here) does, not inlined.
    #[inline(never)]
    pub(super) fn execute_outlined<O: Operation>(
        &self,
        partition: PartitionId,
        mut action: Action<O>,
        position: Option<Position>,
    ) -> Result<O::Output, Abort> {
        self.execute_here(partition, &mut action.request, action.operation, position)
    }

    /// Notes, for a trace or recording, that an access is about to be made.
    #[cold]
    fn note_begin<O: Operation>(
        &self,
        partition: PartitionId,
        request: &Request,
        operation: &O,
    ) -> Option<RecordedAccess> {
        self.note_call(request.table);
        self.state.trace.recorder()?;
        let tables = self.worker.shard().tables.borrow();
        Some(RecordedAccess::begin(&tables, partition, &request.target, operation.kind()))
    }

    /// Notes, for a trace or recording, that the access was made.
    #[cold]
    fn note_end(&self, access: RecordedAccess, partition: PartitionId) {
        let Some(recorder) = self.state.trace.recorder() else { return };
        let home = self.state.home.borrow();
        let visited = home.accesses.last().map(|access| &access.target);
        recorder.borrow_mut().note(access, visited, &self.worker.shard().tables.borrow(), partition);
    }

    /// Notes, for a trace or recording, that a conflict was found.
    #[cold]
    fn note_conflict(&self, table: TableId) {
        self.note_call(table);
        if let Some(recorder) = self.state.trace.recorder() {
            recorder.borrow_mut().note_missed();
        }
    }

    #[cold]
    fn note_call(&self, table: TableId) {
        self.state.trace.event(self.worker, Stage::Execute, || self.name_of("runs a direct call on", table));
    }

    /// Returns the verb and the table's name, for display.
    #[cold]
    pub(super) fn name_of(&self, verb: &str, table: TableId) -> String {
        format!("{verb} '{}'", self.worker.shard().tables.borrow().catalog.tables[table.at()].name)
    }
}
