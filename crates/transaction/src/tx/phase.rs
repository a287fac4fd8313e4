//! Phases: actions that a transaction runs together, and awaits together (a synchronization point).
//!
//! Invariant: the actions of a phase run in the order of their owners and keys, independent of the order in which they
//! are given, so that transactions that access the same rows queue for them in the same order.

use atrapos_partition::abort::Abort;
use atrapos_partition::action::{Action, ErasedOperation, Operation};
use atrapos_partition::partition::{Partition, PartitionId};
use atrapos_partition::schema::TableId;
use atrapos_runtime::{Call, WorkerId};
use atrapos_storage::lock::LockTarget;
use atrapos_storage::{KeyBuf, Position, Probe, locate_batch};

use super::{ActionReply, Tx};
use crate::messages::call_actions;
use crate::trace::Stage;

/// An action of a phase, with the location of its data at the beginning of the phase, and its rank.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Planned {
    owner: WorkerId,
    table: TableId,
    key: KeyBuf,
    /// Its index among the actions, and among the results.
    at: usize,
    partition: u32,
}

impl Planned {
    fn place(&self) -> PartitionId {
        PartitionId { table: self.table, partition: self.partition }
    }
}

/// The rank by which the actions of a phase are ordered.
type Rank = (WorkerId, TableId, KeyBuf);

impl Tx<'_> {
    /// Runs actions of one kind as one phase, without their dependents.
    pub(super) async fn run_phase<O: Operation>(
        &self,
        actions: Vec<Action<O>>,
    ) -> Result<Vec<O::Output>, Abort> {
        let mut ordered = Vec::with_capacity(actions.len());
        for (at, action) in actions.iter().enumerate() {
            if !self.admits(action) {
                return Err(self.refusal(action));
            }
            let (place, owner) = action.locate(&self.worker.shard().tables.borrow());
            let (table, partition) = (place.table, place.partition);
            ordered.push(Planned { owner, table, key: action.key().clone(), at, partition });
        }
        ordered.sort_unstable();
        let mut actions: Vec<Option<Action<O>>> = actions.into_iter().map(Some).collect();
        let mut take = move |at: usize| actions[at].take().expect("an action is run once");
        let mut results: Vec<Option<O::Output>> = Vec::new();
        results.resize_with(ordered.len(), || None);
        for group in ordered.chunk_by(|a, b| a.owner == b.owner) {
            let owner = group[0].owner;
            if owner == self.worker.id() {
                let positions = self.locate_together(group);
                for (planned, position) in group.iter().zip(positions) {
                    results[planned.at] = Some(self.perform(take(planned.at), position).await?);
                }
                continue;
            }
            let sent = group.iter().map(|planned| take(planned.at).erase()).collect();
            let returned = self.receive(self.send_all(owner, sent)).await?;
            for (planned, result) in group.iter().zip(returned) {
                results[planned.at] = Some(result.into_output::<O>());
            }
        }
        Ok(results.into_iter().map(|result| result.expect("every action returned")).collect())
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

    /// Runs an action of a phase on the owner of its data, without its dependents.
    async fn perform<O: Operation>(
        &self,
        action: Action<O>,
        position: Option<Position>,
    ) -> Result<O::Output, Abort> {
        let (place, owner) = action.locate(&self.worker.shard().tables.borrow());
        if owner != self.worker.id() {
            return Ok(self.receive(self.send(owner, action.erase())).await?.into_output::<O>());
        }
        self.state.trace.in_phase();
        // The key that the route names was looked up already.
        let position = position.or_else(|| match &action.target {
            LockTarget::Key(key) => self.routed_to(action.table, key).map(|(_, position)| position),
            LockTarget::Range { .. } => None,
        });
        if self.conflicts_here(place, &action) {
            return Ok(self.wait_and_run(action.erase()).await?.into_output::<O>());
        }
        self.execute_outlined(place, action, position)
    }

    /// Returns the rank of an action in its phase.
    fn rank<O: Operation>(&self, action: &Action<O>) -> Result<Rank, Abort> {
        if !self.admits(action) {
            return Err(self.refusal(action));
        }
        let (_, owner) = action.locate(&self.worker.shard().tables.borrow());
        Ok((owner, action.table, action.key().clone()))
    }

    /// Looks up the keys of the home's own actions of a phase with their cache misses overlapping. The positions are
    /// hints: the trees search again after changes.
    fn locate_together(&self, actions: &[Planned]) -> Vec<Option<Position>> {
        if actions.len() < 2 {
            return vec![None; actions.len()];
        }
        let tables = self.worker.shard().tables.borrow();
        let tree = |planned: &Planned| tables.owned_at(planned.place()).map(Partition::tree);
        // Keys in partitions that have moved since the phase began are skipped.
        let mut probes: Vec<Probe<'_>> =
            actions.iter().filter_map(|planned| Some(Probe::new(tree(planned)?, &planned.key))).collect();
        locate_batch(&mut probes);
        let mut found = probes.iter().map(|probe| probe.position);
        actions.iter().map(|planned| tree(planned).and_then(|_| found.next())).collect()
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
