//! Phases: actions that a transaction runs together, and awaits together (a synchronization point).
//!
//! Invariant: the actions of a phase run in the order of their owners and keys, whatever order they are given in, so that
//! transactions that want the same rows queue for them in the same order.

use atrapos_runtime::WorkerId;
use atrapos_storage::lock::LockTarget;
use atrapos_storage::{KeyBuf, Position, Probe, locate_batch};

use super::Tx;
use crate::abort::Abort;
use crate::action::{Action, Operation};
use crate::messages::call_actions;
use crate::partition::PartitionId;
use crate::schema::TableId;
use crate::trace::Stage;

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

impl Tx<'_> {
    /// Runs actions of one kind as one phase; their dependents are left for later.
    pub(super) async fn run_phase<O: Operation>(
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
            let origin = self.prepare_remote(owner, group.len() as u64);
            group.iter().for_each(|planned| self.note_sent(&planned.action));
            self.state.trace.event(self.worker, Stage::Execute, || {
                format!("sends {} actions to worker {}", group.len(), owner.0)
            });
            let (places, group): (Vec<usize>, Vec<Action<O>>) =
                group.into_iter().map(|planned| (planned.at, planned.action)).unzip();
            let call = call_actions(self.worker, owner, origin, group);
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
        self.state.trace.in_phase();
        // What the route names was looked up on the way here.
        let position = position.or_else(|| match &action.target {
            LockTarget::Key(key) => self.routed_to(action.table, key).map(|(_, position)| position),
            LockTarget::Range { .. } => None,
        });
        if self.conflicts_here(place, &action) {
            return self.wait_and_run(action).await;
        }
        self.execute_here(place, action, position)
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
