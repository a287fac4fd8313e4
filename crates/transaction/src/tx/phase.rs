//! Phases: actions that a transaction runs together, and awaits together (a synchronization point).
//!
//! A phase whose rows are all here, with no lock of another transaction on them, runs at once, in the order in which its
//! actions are given: nothing of it waits, so no order is needed to prevent a deadlock. Any other phase becomes a batch with
//! the types of its operations erased, which goes from owner to owner; that code is compiled once.
//!
//! Invariants
//! - The owners of the data of a phase are visited in their order, one after another. The actions on the data of one run
//!   together if none has to wait, otherwise in the order of their keys, independent of the order in which they are given.
//!   So transactions that access the same rows queue for them in the same order.
//! - The result of a phase is the same either way: actions on different keys do not depend on each other, those on one key
//!   run in the order in which they are given, and a phase with ranges never runs at once.

use std::ops::Range;
use std::pin::Pin;

use atrapos_partition::abort::Abort;
use atrapos_partition::action::{Action, ActionBatch, DependentAction, ErasedOperation, Operation, Request};
use atrapos_partition::partition::{PartitionId, Tables};
use atrapos_partition::range::KeyRange;
use atrapos_partition::routing::{FamilyScheme, InstanceId};
use atrapos_partition::schema::{CatalogTag, TableId};
use atrapos_partition::undo::Mark;
use atrapos_runtime::{Call, WorkerId};
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::{LockMode, LockTarget, TxnId};
use smallvec::SmallVec;

use super::access::{Accessor, NotedTogether, execute_free, is_free, is_free_in};
use super::split::Split;
use super::{ActionReply, Tx};
use crate::branch::Branch;
use crate::lending;
use crate::lookups::BATCH;
use crate::messages::call_actions;
use crate::shard::{EngineWorker, Shard};
use crate::trace::Stage;

/// An action of a phase, with the owner of its data at the beginning of the phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Planned {
    owner: WorkerId,
    /// Its index among the actions.
    pub(crate) at: usize,
}

/// Actions of a batch that run together.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Chosen<'a> {
    All,
    Some(&'a [Planned]),
}

impl Chosen<'_> {
    /// The number of the actions.
    pub(crate) fn count(self, requests: &[Request]) -> usize {
        match self {
            Chosen::All => requests.len(),
            Chosen::Some(planned) => planned.len(),
        }
    }

    /// The index among the actions of the one at a place of their order.
    pub(crate) fn at(self, place: usize) -> usize {
        match self {
            Chosen::All => place,
            Chosen::Some(planned) => planned[place].at,
        }
    }
}

/// The actions of a phase, with the order in which they run. It goes to their owners in turn, and comes back with results.
#[derive(Debug)]
pub struct PlannedPhase {
    actions: ActionBatch,
    /// Those of one owner are a group, together and, if one of them is on a range, in the order of their keys.
    order: SmallVec<[Planned; BATCH]>,
}

impl PlannedPhase {
    /// Runs a group if nothing of it has to wait and its data is all here. Returns false if not; nothing of it has run then.
    pub(super) fn run_free(
        &mut self,
        worker: &EngineWorker,
        txn: TxnId,
        branch: (&mut Branch, &mut Vec<DependentAction>),
        group: &Range<usize>,
    ) -> Result<bool, Abort> {
        execute_free(worker, txn, branch, &mut self.actions, &self.order[group.clone()])
    }

    /// Counts what a group reads here, for a transaction of another worker. Returns the partitions of shared tables among it.
    pub(super) fn count_reads(&self, shard: &Shard, group: &Range<usize>) -> SmallVec<[PartitionId; BATCH]> {
        let requests = self.order[group.clone()].iter().map(|planned| &self.actions.requests()[planned.at]);
        let reads = |request: &&Request| request.mode == LockMode::Shared;
        let mut tables: SmallVec<[TableId; BATCH]> = SmallVec::new();
        for request in requests.clone().filter(reads) {
            if !tables.contains(&request.table) {
                tables.push(request.table);
            }
        }
        if requests.clone().all(|request| reads(&request)) {
            tables.iter().for_each(|table| lending::count_message(shard, *table));
        }
        tables.retain(|table| lending::is_shared(shard, *table));
        if tables.is_empty() {
            return SmallVec::new();
        }
        let of_shared = requests.filter(reads).filter(|request| tables.contains(&request.table));
        of_shared.map(|request| request.locate(&shard.tables.borrow()).0).collect()
    }

    /// Sorts actions in the order of their owners and keys; actions on one key keep theirs.
    pub(super) fn sort(&mut self, group: &Range<usize>) {
        let requests = self.actions.requests();
        let rank = |planned: &Planned| {
            let request = &requests[planned.at];
            (planned.owner, request.table, request.key(), planned.at)
        };
        self.order[group.clone()].sort_unstable_by(|a, b| rank(a).cmp(&rank(b)));
    }

    /// Returns the actions.
    pub(crate) fn into_actions(self: Box<Self>) -> ActionBatch {
        self.actions
    }

    /// Takes out the action at a place of the order.
    pub(super) fn take(&mut self, place: usize) -> Action<ErasedOperation> {
        self.actions.take(self.order[place].at)
    }

    /// Puts back the result of the action that was taken from a place of the order.
    pub(super) fn put_back(&mut self, place: usize, done: ErasedOperation) {
        self.actions.put_back(self.order[place].at, done);
    }
}

/// The partition in which the latest action of a phase was free to run: most often that of the next one, too.
struct LatestFree<'a> {
    /// `None` if there was no action, or the partition has locks that may conflict.
    free: Option<FreePartition<'a>>,
    /// The number of times that it was looked for.
    changes: usize,
}

/// A partition that is here, in which accesses in a mode conflict with nothing.
struct FreePartition<'a> {
    table: TableId,
    mode: LockMode,
    scheme: &'a FamilyScheme,
    /// The index of the partition in the scheme.
    index: usize,
    place: PartitionId,
}

/// The state of a phase after the attempt to run it at once.
pub(super) enum AtOnce<O: Operation> {
    /// It has run.
    Ran,
    /// None of its actions has run.
    Waits(ActionBatch),
    /// Its actions here have run, and the rest is of one other instance.
    Split(Split<O>),
}

/// Takes the actions whose accesses were noted, from number `first` on, back out of a branch, and makes them again of their
/// operations. None has run.
#[cold]
#[inline(never)]
pub(super) fn take_back<O: Operation>(
    tag: CatalogTag,
    branch: &mut Branch,
    first: usize,
    operations: SmallVec<[O; BATCH]>,
) -> Vec<Action<O>> {
    debug_assert!(branch.entered <= first, "accesses that are entered stay");
    let noted = branch.accesses[first..].iter_mut().zip(operations);
    let actions = noted.map(|(access, operation)| {
        let target = std::mem::replace(&mut access.target, LockTarget::Key(KeyBuf::new()));
        let (table, mode) = (access.partition.table, access.mode);
        Action { request: Request { table, tag, mode, from_end: false, target }, operation }
    });
    let actions = actions.collect();
    branch.accesses.truncate(first);
    actions
}

/// Notes the accesses of actions, and takes their operations, and returns whether all are in one partition. Fails with the
/// first action that may not run now; those before it are noted.
#[inline(always)]
pub(super) fn note_free<O: Operation>(
    worker: &EngineWorker,
    txn: TxnId,
    branch: &mut Branch,
    actions: &mut impl Iterator<Item = Action<O>>,
    operations: &mut SmallVec<[O; BATCH]>,
) -> Result<bool, Option<Action<O>>> {
    if branch.suspended {
        return Err(None);
    }
    let tables = &*worker.shard().tables.borrow();
    let mut latest = LatestFree { free: None, changes: 0 };
    // Each action stays where it is until its key is noted: taken apart, it would be copied.
    for mut action in actions {
        let place = free_behind(worker, txn, tables, &action.request, &mut latest);
        let (Some(place), LockTarget::Key(key)) = (place, &mut action.request.target) else {
            return Err(Some(action));
        };
        branch.note_key(place, action.request.mode, key, action.operation.is_unlocked());
        operations.push(action.operation);
    }
    Ok(latest.changes <= 1)
}

/// Returns the partition like [`free_here`], for an action that follows another one of its phase.
#[inline(always)]
fn free_behind<'t>(
    worker: &EngineWorker,
    txn: TxnId,
    tables: &'t Tables,
    request: &Request,
    latest: &mut LatestFree<'t>,
) -> Option<PartitionId> {
    if let LockTarget::Key(key) = &request.target
        && let Some(FreePartition { table, mode, scheme, index, place }) = &latest.free
        && *table == request.table
        && *mode == request.mode
        && request.tag == worker.shard().tag
        && scheme.partition_of(key) == *index
    {
        return Some(*place);
    }
    let place = free_here(worker, txn, tables, request)?;
    let scheme = &*tables.shards[place.table.at()].scheme;
    let index = scheme.partition_of(request.key());
    let mode = request.mode;
    let is_free = is_free_in(tables.partition(place), mode);
    latest.free = is_free.then_some(FreePartition { table: place.table, mode, scheme, index, place });
    latest.changes += 1;
    Some(place)
}

/// Returns the partition of the key of an action if it is here and no lock of another transaction than `txn` conflicts.
#[inline(never)]
pub(super) fn free_here(
    worker: &EngineWorker,
    txn: TxnId,
    tables: &Tables,
    request: &Request,
) -> Option<PartitionId> {
    let LockTarget::Key(key) = &request.target else { return None };
    if request.tag != worker.shard().tag {
        return None;
    }
    let (place, owner) = tables.locate(request.table, key);
    let is_here = tables.serves(place, owner, worker.id(), request.mode);
    (is_here && is_free(tables, txn, place, request)).then_some(place)
}

impl Tx<'_> {
    /// Runs actions of one kind as one phase, with their dependents, and hands their results to `take` in the order of the
    /// actions.
    pub(super) async fn run_together<O: Operation>(
        &self,
        actions: impl Iterator<Item = Action<O>>,
        mut take: impl FnMut(O::Output),
    ) -> Result<(), Abort> {
        match self.run_at_once(actions, &mut take)? {
            AtOnce::Ran => {}
            AtOnce::Waits(actions) => self.run_phase(actions).await?.into_outputs::<O>().for_each(take),
            AtOnce::Split(split) => self.run_split(split, take).await?,
        }
        if self.has_dependents() { self.finish_phase().await } else { Ok(()) }
    }

    /// Runs the actions of a phase at once if all may run now, or those of the home if the others are of one other instance.
    fn run_at_once<O: Operation>(
        &self,
        mut actions: impl Iterator<Item = Action<O>>,
        take: &mut impl FnMut(O::Output),
    ) -> Result<AtOnce<O>, Abort> {
        let shard = self.worker.shard();
        let branch = &mut *self.state.home.borrow_mut();
        let first = branch.accesses.len();
        let mut operations: SmallVec<[O; BATCH]> = SmallVec::new();
        let runs = !self.state.is_doomed.get() && !self.state.trace.is_on();
        let noted = if runs {
            note_free(self.worker, self.state.txn(), branch, &mut actions, &mut operations)
        } else {
            Err(None)
        };
        let one_place = match noted {
            Ok(one_place) => one_place,
            Err(Some(refused)) if runs && shard.peers.get().is_some() => {
                return self.split((branch, first), operations, refused, actions, take);
            }
            Err(refused) => {
                let noted = take_back(shard.tag, branch, first, operations);
                return Ok(AtOnce::Waits(ActionBatch::new(noted.into_iter().chain(refused).chain(actions))));
            }
        };
        self.run_noted((branch, NotedTogether { first, one_place }), &mut operations, take)?;
        Ok(AtOnce::Ran)
    }

    /// Runs the actions of the home whose accesses were noted.
    #[inline(always)]
    pub(super) fn run_noted<O: Operation>(
        &self,
        (branch, noted): (&mut Branch, NotedTogether),
        operations: &mut SmallVec<[O; BATCH]>,
        take: &mut impl FnMut(O::Output),
    ) -> Result<(), Abort> {
        let shard = self.worker.shard();
        shard.stats.local_actions.add(operations.len() as u64);
        branch.join_from(noted.first);
        let accessor = Accessor {
            shard,
            tables: &mut shard.tables.borrow_mut(),
            txn: self.state.txn(),
            branch,
            dependents: &mut self.state.dependents.borrow_mut(),
        };
        let done = accessor.execute_noted(noted, operations, take);
        // Looked at where it is: handed to a closure and back, it would be copied.
        if let Err(abort) = &done {
            self.state.doom(abort);
        }
        done
    }

    /// Runs some actions of the home, of any kinds, all of which may run now.
    #[inline(always)]
    fn run_together_here<R>(
        &self,
        actions: usize,
        run: impl FnOnce(Accessor<'_>) -> Result<R, Abort>,
    ) -> Result<R, Abort> {
        let shard = self.worker.shard();
        shard.stats.local_actions.add(actions as u64);
        let branch = &mut *self.state.home.borrow_mut();
        let first = branch.accesses.len();
        let done = run(Accessor {
            shard,
            tables: &mut shard.tables.borrow_mut(),
            txn: self.state.txn(),
            branch,
            dependents: &mut self.state.dependents.borrow_mut(),
        });
        branch.join_from(first);
        // Looked at where it is: handed to a closure and back, it would be copied.
        if let Err(abort) = &done {
            self.state.doom(abort);
        }
        done
    }

    /// Returns the partition of the key of an action if the action may run now, without an order among those of its phase.
    fn free_here(&self, tables: &Tables, request: &Request) -> Option<PartitionId> {
        let runs = !self.state.is_doomed.get() && !self.state.trace.is_on();
        if runs { free_here(self.worker, self.state.txn(), tables, request) } else { None }
    }

    /// Runs actions as one phase, without their dependents, and returns them with their results.
    pub(super) async fn run_phase(&self, actions: ActionBatch) -> Result<ActionBatch, Abort> {
        let phase = self.plan(actions)?;
        self.run_planned(phase).await
    }

    /// Runs a planned phase, as [`run_phase`](Tx::run_phase) does. Its future is copied when it is awaited first, so what is long or
    /// rare is in futures on the heap.
    pub(crate) async fn run_planned(&self, mut phase: Box<PlannedPhase>) -> Result<ActionBatch, Abort> {
        let round = self.begin_round(&phase);
        let mut next = 0;
        while let Some(&Planned { owner, .. }) = phase.order.get(next) {
            self.check_not_doomed()?;
            let count = phase.order[next..].iter().take_while(|planned| planned.owner == owner).count();
            let group = next..next + count;
            next = group.end;
            if let Some(instance) = InstanceId::of_owner(owner) {
                let PlannedPhase { actions, order } = &mut *phase;
                let is_last = self.is_last && group.end == order.len();
                self.run_group_remote(instance, actions, Chosen::Some(&order[group]), is_last).await?;
            } else if owner != self.worker.id() {
                phase = self.receive(self.send_group(owner, phase, group)).await?;
            } else if !self.run_free_here(&mut phase, &group)? {
                self.run_each_here(&mut phase, group).await?;
            }
        }
        if let Some(round) = round {
            self.state.rounds.borrow_mut().end(round, self.accesses());
        }
        Ok(phase.actions)
    }

    /// Begins a synchronization point for the monitor, if other workers have a part of the phase.
    fn begin_round(&self, phase: &PlannedPhase) -> Option<usize> {
        let is_elsewhere = |planned: &Planned| {
            planned.owner != self.worker.id() && InstanceId::of_owner(planned.owner).is_none()
        };
        if !self.worker.shard().monitor.is_on() || !phase.order.iter().any(is_elsewhere) {
            return None;
        }
        self.state.rounds.borrow_mut().begin(self.accesses())
    }

    /// Runs a group of a phase on data of the home one by one, as some of them have to wait.
    #[cold]
    fn run_each_here<'a>(
        &'a self,
        phase: &'a mut PlannedPhase,
        group: Range<usize>,
    ) -> Pin<Box<dyn Future<Output = Result<(), Abort>> + 'a>> {
        Box::pin(async move {
            phase.sort(&group);
            for place in group {
                self.check_not_doomed()?;
                let action = phase.take(place);
                phase.put_back(place, self.perform(action).await?);
            }
            Ok(())
        })
    }

    /// Fails if the transaction has been doomed while it waited: a subordinate may have ended.
    fn check_not_doomed(&self) -> Result<(), Abort> {
        if self.state.is_doomed.get() { Err(self.state.doomed_for()) } else { Ok(()) }
    }

    /// Locates the data of the actions of a phase, and plans the order in which they run.
    #[inline(never)]
    pub(crate) fn plan(&self, actions: ActionBatch) -> Result<Box<PlannedPhase>, Abort> {
        let mut phase = Box::new(PlannedPhase { actions, order: SmallVec::new() });
        let PlannedPhase { actions, order } = &mut *phase;
        let tables = self.worker.shard().tables.borrow();
        let mut has_ranges = false;
        for (at, request) in actions.requests().iter().enumerate() {
            if !self.admits(request) {
                drop(tables);
                return Err(self.refusal(request));
            }
            has_ranges |= matches!(request.target, LockTarget::Range { .. });
            order.push(Planned { owner: self.server_of(&tables, request).1, at });
        }
        order.sort_unstable();
        if has_ranges {
            let all = 0..order.len();
            phase.sort(&all);
        }
        Ok(phase)
    }

    /// Runs a planned phase if all its data is here and nothing of it has to wait. Returns false if not; nothing of it has run
    /// then.
    pub(crate) fn run_now(&self, phase: &mut PlannedPhase) -> Result<bool, Abort> {
        let is_here = phase.order.iter().all(|planned| planned.owner == self.worker.id());
        let all = 0..phase.order.len();
        Ok(is_here && self.run_free_here(phase, &all)?)
    }

    /// Returns the part of a request's range that the owner of its beginning has; `None` if it has all of it.
    pub(crate) fn part_of_owner(&self, request: &Request) -> Option<KeyRange> {
        let tables = self.worker.shard().tables.borrow();
        let (place, _) = request.locate(&tables);
        match tables.cut_to_partition(place, &request.target, request.from_end).0 {
            Some(LockTarget::Range { lower, upper }) => Some(KeyRange { lower, upper }),
            _ => None,
        }
    }

    /// Returns the mark of the changes that are made now.
    pub(crate) fn mark(&self) -> Mark {
        self.state.savepoints.borrow().now()
    }

    /// Runs a group of a phase on data of the home, as [`PlannedPhase::run_free`] does.
    #[inline(never)]
    fn run_free_here(&self, phase: &mut PlannedPhase, group: &Range<usize>) -> Result<bool, Abort> {
        if self.state.trace.is_on() {
            return Ok(false);
        }
        let (mut home, mut dependents) = (self.state.home.borrow_mut(), self.state.dependents.borrow_mut());
        let first = home.accesses.len();
        let ran = phase.run_free(self.worker, self.state.txn(), (&mut home, &mut dependents), group);
        if let Ok(true) = ran {
            home.join_from(first);
            self.worker.shard().stats.local_actions.add(group.len() as u64);
        }
        ran.inspect_err(|abort| self.state.doom(abort))
    }

    /// Sends a phase to the common owner of the data of a group of its actions.
    fn send_group(
        &self,
        owner: WorkerId,
        phase: Box<PlannedPhase>,
        group: Range<usize>,
    ) -> Call<ActionReply<Box<PlannedPhase>>> {
        let origin = self.prepare_remote(owner, group.len() as u64);
        if self.worker.shard().monitor.is_on() {
            let mut rounds = self.state.rounds.borrow_mut();
            for planned in &phase.order[group.clone()] {
                let request = &phase.actions.requests()[planned.at];
                rounds.send(owner, request.table, request.key());
                rounds.exchange(request.key().len() + 2 * phase.actions.bytes(planned.at));
            }
        }
        self.state.trace.event(self.worker, Stage::Execute, || {
            format!("sends {} actions to worker {}", group.len(), owner.0)
        });
        call_actions(self.worker, owner, origin, phase, group)
    }

    /// Runs an action of a phase on the owner of its data, without its dependents.
    async fn perform(&self, action: Action<ErasedOperation>) -> Result<ErasedOperation, Abort> {
        let (partition, server) = self.server_of(&self.worker.shard().tables.borrow(), &action.request);
        if server != self.worker.id() {
            return self.receive(self.send(server, action)).await;
        }
        self.state.trace.in_phase();
        if self.conflicts_here(partition, &action.request, action.operation.maintains()) {
            return self.wait_and_run(action).await;
        }
        self.execute_outlined(partition, action, None)
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
    ($(($($operation:ident $action:ident $place:ident $request:ident),+))+) => {$(
        impl<$($operation: Operation),+> Phase for ($(Action<$operation>,)+) {
            type Output = ($($operation::Output,)+);

            async fn run(self, tx: &mut Tx<'_>) -> Result<Self::Output, Abort> {
                let ($($action,)+) = self;
                let places = {
                    let tables = tx.worker.shard().tables.borrow();
                    let places = || Some(($(tx.free_here(&tables, &$action.request)?,)+));
                    places()
                };
                if let Some(($($place,)+)) = places {
                    $(let Action { request: mut $request, operation: $action } = $action;)+
                    let done = tx.run_together_here([$($place),+].len(), |mut accessor| {
                        Ok(($(accessor.execute($place, &mut $request, $action)?,)+))
                    })?;
                    if tx.has_dependents() {
                        tx.finish_phase().await?;
                    }
                    return Ok(done);
                }
                let actions = ActionBatch::new([$($action.erase()),+].into_iter());
                let mut done = tx.run_phase(actions).await?.into_outputs::<ErasedOperation>();
                tx.finish_phase().await?;
                let mut next = || done.next().expect("every action returned");
                Ok(($(next().into_output::<$operation>(),)+))
            }
        }
    )+};
}

phases! {
    (A a pa ra)
    (A a pa ra, B b pb rb)
    (A a pa ra, B b pb rb, C c pc rc)
    (A a pa ra, B b pb rb, C c pc rc, D d pd rd)
    (A a pa ra, B b pb rb, C c pc rc, D d pd rd, E e pe re)
    (A a pa ra, B b pb rb, C c pc rc, D d pd rd, E e pe re, F f pf rf)
    (A a pa ra, B b pb rb, C c pc rc, D d pd rd, E e pe re, F f pf rf, G g pg rg)
    (A a pa ra, B b pb rb, C c pc rc, D d pd rd, E e pe re, F f pf rf, G g pg rg, H h ph rh)
}
