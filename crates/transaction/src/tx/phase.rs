//! Phases: actions that a transaction runs together, and awaits together (a synchronization point).
//!
//! Invariant: the actions of a phase run in the order of their owners and keys, independent of the order in which they
//! are given, so that transactions that access the same rows queue for them in the same order.

use arrayvec::ArrayVec;
use atrapos_partition::abort::Abort;
use atrapos_partition::action::{Action, ErasedOperation, Operation};
use atrapos_partition::partition::PartitionId;
use atrapos_partition::schema::TableId;
use atrapos_runtime::{Call, WorkerId};
use atrapos_storage::lock::LockTarget;
use atrapos_storage::{KeyBuf, Position, Probe, first_eight, locate_batch};

use super::{ActionReply, Tx};
use crate::lookups::BATCH;
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

    /// What ranks it in its phase as far as the first bytes of the key tell.
    fn rank(&self) -> (WorkerId, TableId, u64) {
        (self.owner, self.table, self.head)
    }
}

/// The rank by which the actions of a phase are ordered.
type Rank<'a> = (WorkerId, TableId, &'a KeyBuf);

/// The positions of keys that were looked up together, as far as they were.
type Positions = ArrayVec<Option<Position>, BATCH>;

impl Tx<'_> {
    /// Runs actions of one kind as one phase, without their dependents.
    pub(super) async fn run_phase<O: Operation>(
        &self,
        actions: Vec<Action<O>>,
    ) -> Result<Vec<O::Output>, Abort> {
        let ordered = self.plan(&actions)?;
        let mut actions: Vec<Option<Action<O>>> = actions.into_iter().map(Some).collect();
        let mut results: Vec<Option<O::Output>> = Vec::new();
        results.resize_with(ordered.len(), || None);
        for group in ordered.chunk_by(|a, b| a.owner == b.owner) {
            let owner = group[0].owner;
            if owner == self.worker.id() {
                for together in group.chunks(BATCH) {
                    let positions = self.locate_together(together, &actions);
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
            let sent = group.iter().map(|planned| taken(&mut actions, planned.at).erase()).collect();
            let returned = self.receive(self.send_all(owner, sent)).await?;
            for (planned, result) in group.iter().zip(returned) {
                results[planned.at] = Some(result.into_output::<O>());
            }
        }
        Ok(results.into_iter().map(|result| result.expect("every action returned")).collect())
    }

    /// Locates the data of the actions of a phase, and returns the actions in the order in which they run.
    fn plan<O: Operation>(&self, actions: &[Action<O>]) -> Result<Vec<Planned>, Abort> {
        let mut ordered = Vec::with_capacity(actions.len());
        let tables = self.worker.shard().tables.borrow();
        for (at, action) in actions.iter().enumerate() {
            if !self.admits(action) {
                drop(tables);
                return Err(self.refusal(action));
            }
            let (PartitionId { table, partition }, owner) = action.locate(&tables);
            ordered.push(Planned { owner, table, partition, head: first_eight(action.key()), at });
        }
        ordered.sort_unstable_by(|a, b| {
            let by_key = || actions[a.at].key().cmp(actions[b.at].key());
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
    #[inline]
    fn perform_directly<O: Operation>(
        &self,
        action: Action<O>,
        position: Option<Position>,
    ) -> Result<Result<O::Output, Abort>, Action<O>> {
        let (partition, owner) = action.locate(&self.worker.shard().tables.borrow());
        if owner != self.worker.id() || self.state.trace.is_on() || self.conflicts_here(partition, &action) {
            return Err(action);
        }
        let position = position.or_else(|| self.routed_position(&action));
        Ok(self.execute_outlined(partition, action, position))
    }

    /// Runs an action of a phase on the owner of its data, without its dependents.
    async fn perform<O: Operation>(&self, action: Action<O>) -> Result<O::Output, Abort> {
        let (partition, owner) = action.locate(&self.worker.shard().tables.borrow());
        if owner != self.worker.id() {
            return Ok(self.receive(self.send(owner, action.erase())).await?.into_output::<O>());
        }
        self.state.trace.in_phase();
        if self.conflicts_here(partition, &action) {
            return Ok(self.wait_and_run(action.erase()).await?.into_output::<O>());
        }
        let position = self.routed_position(&action);
        self.execute_outlined(partition, action, position)
    }

    /// Returns the position of the key of an action, if it is the one that was looked up by the route.
    #[inline]
    fn routed_position<O: Operation>(&self, action: &Action<O>) -> Option<Position> {
        match &action.target {
            LockTarget::Key(key) => self.routed_to(action.table, key).map(|(_, position)| position),
            LockTarget::Range { .. } => None,
        }
    }

    /// Returns the rank of an action in its phase.
    fn rank<'a, O: Operation>(&self, action: &'a Action<O>) -> Result<Rank<'a>, Abort> {
        if !self.admits(action) {
            return Err(self.refusal(action));
        }
        let (_, owner) = action.locate(&self.worker.shard().tables.borrow());
        Ok((owner, action.table, action.key()))
    }

    /// Looks up the keys of some of the home's own actions of a phase with their cache misses overlapping. The positions
    /// are hints: the trees search again after changes.
    fn locate_together<O: Operation>(
        &self,
        together: &[Planned],
        actions: &[Option<Action<O>>],
    ) -> Positions {
        if together.len() < 2 {
            return together.iter().map(|_| None).collect();
        }
        let tables = self.worker.shard().tables.borrow();
        let mut probes: ArrayVec<Probe<'_>, BATCH> = ArrayVec::new();
        let mut positions = Positions::new();
        for planned in together {
            // Keys in partitions that have moved since the phase began are skipped.
            let partition = tables.owned_at(planned.partition());
            positions.push(partition.map(|_| Position::unknown()));
            if let (Some(partition), Some(action)) = (partition, &actions[planned.at]) {
                probes.push(Probe::new(partition.tree(), action.key()));
            }
        }
        locate_batch(&mut probes);
        for (position, probe) in positions.iter_mut().flatten().zip(&probes) {
            *position = probe.position;
        }
        positions
    }
}

/// Takes an action out of those of its phase.
fn taken<O: Operation>(actions: &mut [Option<Action<O>>], at: usize) -> Action<O> {
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
    ($(($($operation:ident $action:ident $result:ident $at:literal),+))+) => {$(
        impl<$($operation: Operation),+> Phase for ($(Action<$operation>,)+) {
            type Output = ($($operation::Output,)+);

            async fn run(self, tx: &mut Tx<'_>) -> Result<Self::Output, Abort> {
                let ($($action,)+) = self;
                let mut ranked = [$((tx.rank(&$action)?, $at)),+];
                ranked.sort_unstable();
                let order = ranked.map(|(_, at)| at);
                $(let mut $action = Some($action);)+
                $(let mut $result = None;)+
                for at in order {
                    match at {
                        $($at => {
                            if let Some(action) = $action.take() {
                                $result = Some(match tx.perform_directly(action, None) {
                                    Ok(done) => done?,
                                    Err(action) => tx.perform(action).await?,
                                });
                            }
                        })+
                        _ => unreachable!("a phase has no other actions"),
                    }
                }
                tx.finish_phase().await?;
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
