//! Phases: actions that a transaction runs together, and awaits together (a synchronization point).
//!
//! A phase whose rows are all here, with no lock of another transaction on them, runs at once, in the order in which its
//! actions are given: nothing of it waits, so no order is needed to prevent a deadlock. Any other phase runs with the types
//! of its operations erased, in the order of owners and keys; that code is compiled once.
//!
//! Invariants
//! - If an action of a phase may wait, the actions run in the order of their owners and keys, independent of the order in
//!   which they are given, so that transactions that access the same rows queue for them in the same order.
//! - The result of a phase is the same either way: actions on different keys do not depend on each other, those on one key
//!   run in the order in which they are given, and a phase with ranges never runs at once.

use atrapos_partition::abort::Abort;
use atrapos_partition::action::{AccessKind, Action, ErasedOperation, Operation, Request};
use atrapos_partition::panic_guard::PanicGuard;
use atrapos_partition::partition::{PartitionId, Tables};
use atrapos_partition::schema::TableId;
use atrapos_runtime::{Call, WorkerId};
use atrapos_storage::lock::LockTarget;
use atrapos_storage::{Position, first_eight};
use smallvec::SmallVec;

use super::access::{Accessor, conflicts};
use super::{ActionReply, Tx};
use crate::lookups::{BATCH, Positions, locate_keys};
use crate::messages::call_actions;
use crate::trace::Stage;

/// An action of a phase, with the location of its data at the beginning of the phase.
#[derive(Clone, Copy)]
struct Planned {
    owner: WorkerId,
    table: TableId,
    partition: u32,
    /// The first eight bytes of its key.
    head: u64,
    /// Its index among the actions, and among the results.
    at: usize,
}

impl Planned {
    fn partition(&self) -> PartitionId {
        PartitionId { table: self.table, partition: self.partition }
    }

    /// Returns its rank in its phase, as far as the first bytes of the key tell.
    fn rank(&self) -> (WorkerId, TableId, u64) {
        (self.owner, self.table, self.head)
    }
}

impl Tx<'_> {
    /// Runs actions of one kind as one phase, with their dependents, and hands their results to `take` in the order of the
    /// actions.
    pub(super) async fn run_together<O: Operation>(
        &self,
        actions: impl Iterator<Item = Action<O>>,
        mut take: impl FnMut(O::Output),
    ) -> Result<(), Abort> {
        if let Some(actions) = self.run_at_once(actions, &mut take)? {
            for done in self.run_phase(actions).await? {
                take(done.into_output::<O>());
            }
        }
        self.finish_phase().await
    }

    /// Runs the actions of a phase at once if all may run now; otherwise returns them, and none has run.
    fn run_at_once<O: Operation>(
        &self,
        actions: impl Iterator<Item = Action<O>>,
        take: &mut impl FnMut(O::Output),
    ) -> Result<Option<Vec<Action<ErasedOperation>>>, Abort> {
        // Filled and emptied where they are: a list that is handed on would be copied.
        let mut together: SmallVec<[Action<O>; BATCH]> = SmallVec::new();
        together.extend(actions);
        let shard = self.worker.shard();
        let tables = &mut *shard.tables.borrow_mut();
        let mut places: SmallVec<[PartitionId; BATCH]> = SmallVec::new();
        for action in &together {
            match self.free_here(tables, &action.request, action.operation.maintains()) {
                Some(place) => places.push(place),
                None => return Ok(Some(together.drain(..).map(Action::erase).collect())),
            }
        }
        shard.stats.local_actions.add(places.len() as u64);
        let mut accessor = Accessor {
            shard,
            tables,
            txn: self.state.txn(),
            branch: &mut self.state.home.borrow_mut(),
            dependents: &mut self.state.dependents.borrow_mut(),
        };
        let mut positions = Positions::new();
        // An insertion looks for the place of its row itself, which is often right behind the latest one.
        let inserts = |action: &Action<O>| action.operation.kind().kind == AccessKind::Insert;
        if together.len() > 1 && !together.first().is_some_and(inserts) {
            let keys = places.iter().copied().zip(together.iter().map(|action| action.request.key()));
            locate_keys(accessor.tables, keys, &mut positions);
        } else {
            positions.resize(places.len(), None);
        }
        for ((place, position), action) in places.iter().zip(&positions).zip(together.drain(..)) {
            let panic_guard = PanicGuard::enter();
            let Action { mut request, operation } = action;
            let done = accessor.execute(*place, &mut request, operation, *position);
            panic_guard.leave();
            take(done.inspect_err(|abort| self.state.doom(abort))?);
        }
        Ok(None)
    }

    /// Returns the partition of the key of an action if the action may run now, without an order among those of its phase.
    #[inline(never)]
    fn free_here(&self, tables: &Tables, request: &Request, maintains: bool) -> Option<PartitionId> {
        let LockTarget::Key(key) = &request.target else { return None };
        if !self.admits(request) || self.state.trace.is_on() {
            return None;
        }
        let (place, owner) = tables.locate(request.table, key);
        let is_free = owner == self.worker.id()
            && tables.owned_at(place).is_some()
            && !conflicts(tables, self.state.txn(), place, request, maintains);
        is_free.then_some(place)
    }

    /// Runs actions as one phase, without their dependents.
    pub(super) async fn run_phase(
        &self,
        actions: Vec<Action<ErasedOperation>>,
    ) -> Result<Vec<ErasedOperation>, Abort> {
        let ordered = self.plan(&actions)?;
        let mut actions: Vec<Option<Action<ErasedOperation>>> = actions.into_iter().map(Some).collect();
        let mut results: Vec<Option<ErasedOperation>> = Vec::new();
        results.resize_with(ordered.len(), || None);
        for group in ordered.chunk_by(|a, b| a.owner == b.owner) {
            let owner = group[0].owner;
            if owner == self.worker.id() {
                for together in group.chunks(BATCH) {
                    let mut positions = Positions::new();
                    {
                        let key = |planned: &Planned| actions[planned.at].as_ref().map(|a| a.request.key());
                        let keys =
                            together.iter().filter_map(|planned| Some((planned.partition(), key(planned)?)));
                        locate_keys(&self.worker.shard().tables.borrow(), keys, &mut positions);
                    }
                    for (planned, position) in together.iter().zip(positions) {
                        let action = taken(&mut actions, planned.at);
                        results[planned.at] = Some(match self.perform_directly(action, position) {
                            Ok(done) => done?,
                            Err(action) => self.perform(action).await?,
                        });
                    }
                }
                continue;
            }
            let sent = group.iter().map(|planned| taken(&mut actions, planned.at)).collect();
            let returned = self.receive(self.send_all(owner, sent)).await?;
            for (planned, result) in group.iter().zip(returned) {
                results[planned.at] = Some(result);
            }
        }
        Ok(results.into_iter().map(|result| result.expect("every action returned")).collect())
    }

    /// Locates the data of the actions of a phase, and returns the actions in the order in which they run.
    fn plan(&self, actions: &[Action<ErasedOperation>]) -> Result<Vec<Planned>, Abort> {
        let mut ordered = Vec::with_capacity(actions.len());
        let tables = self.worker.shard().tables.borrow();
        for (at, action) in actions.iter().enumerate() {
            let request = &action.request;
            if !self.admits(request) {
                drop(tables);
                return Err(self.refusal(request));
            }
            let (PartitionId { table, partition }, owner) = request.locate(&tables);
            ordered.push(Planned { owner, table, partition, head: first_eight(request.key()), at });
        }
        ordered.sort_unstable_by(|a, b| {
            let by_key = || actions[a.at].request.key().cmp(actions[b.at].request.key());
            a.rank().cmp(&b.rank()).then_with(by_key).then(a.at.cmp(&b.at))
        });
        Ok(ordered)
    }

    /// Sends actions to their common owner.
    fn send_all(
        &self,
        owner: WorkerId,
        actions: Vec<Action<ErasedOperation>>,
    ) -> Call<ActionReply<Vec<ErasedOperation>>> {
        let origin = self.prepare_remote(owner, actions.len() as u64);
        actions.iter().for_each(|action| self.note_sent(action));
        self.state.trace.event(self.worker, Stage::Execute, || {
            format!("sends {} actions to worker {}", actions.len(), owner.0)
        });
        call_actions(self.worker, owner, origin, actions)
    }

    /// Runs an action of a phase as a direct call, without its dependents; returns the action if that is not possible.
    fn perform_directly(
        &self,
        action: Action<ErasedOperation>,
        position: Option<Position>,
    ) -> Result<Result<ErasedOperation, Abort>, Action<ErasedOperation>> {
        let (partition, owner) = action.request.locate(&self.worker.shard().tables.borrow());
        if owner != self.worker.id()
            || self.state.trace.is_on()
            || self.conflicts_here(partition, &action.request, action.operation.maintains())
        {
            return Err(action);
        }
        Ok(self.execute_outlined(partition, action, position))
    }

    /// Runs an action of a phase on the owner of its data, without its dependents.
    async fn perform(&self, action: Action<ErasedOperation>) -> Result<ErasedOperation, Abort> {
        let (partition, owner) = action.request.locate(&self.worker.shard().tables.borrow());
        if owner != self.worker.id() {
            return self.receive(self.send(owner, action)).await;
        }
        self.state.trace.in_phase();
        if self.conflicts_here(partition, &action.request, action.operation.maintains()) {
            return self.wait_and_run(action).await;
        }
        self.execute_outlined(partition, action, None)
    }
}

/// Takes an action out of those of its phase.
fn taken(actions: &mut [Option<Action<ErasedOperation>>], at: usize) -> Action<ErasedOperation> {
    actions[at].take().expect("an action is run once")
}

/// A tuple of actions to be run as one phase by [`Tx::join`].
pub trait Phase {
    /// The tuple of their results.
    type Output;
    #[doc(hidden)]
    fn run(self, tx: &mut Tx<'_>) -> impl Future<Output = Result<Self::Output, Abort>>;
}

macro_rules! phases {
    ($(($($operation:ident $action:ident $place:ident),+))+) => {$(
        impl<$($operation: Operation),+> Phase for ($(Action<$operation>,)+) {
            type Output = ($($operation::Output,)+);

            async fn run(self, tx: &mut Tx<'_>) -> Result<Self::Output, Abort> {
                let ($($action,)+) = self;
                let places = {
                    let tables = tx.worker.shard().tables.borrow();
                    let places = || Some(($(tx.free_here(&tables, &$action.request, $action.operation.maintains())?,)+));
                    places()
                };
                if let Some(($($place,)+)) = places {
                    $(let $action = tx.execute_outlined($place, $action, None)?;)+
                    tx.finish_phase().await?;
                    return Ok(($($action,)+));
                }
                let mut done = tx.run_phase(vec![$($action.erase()),+]).await?.into_iter();
                tx.finish_phase().await?;
                let mut next = || done.next().expect("every action returned");
                Ok(($(next().into_output::<$operation>(),)+))
            }
        }
    )+};
}

phases! {
    (A a pa)
    (A a pa, B b pb)
    (A a pa, B b pb, C c pc)
    (A a pa, B b pb, C c pc, D d pd)
    (A a pa, B b pb, C c pc, D d pd, E e pe)
    (A a pa, B b pb, C c pc, D d pd, E e pe, F f pf)
    (A a pa, B b pb, C c pc, D d pd, E e pe, F f pf, G g pg)
    (A a pa, B b pb, C c pc, D d pd, E e pe, F f pf, G g pg, H h ph)
}
