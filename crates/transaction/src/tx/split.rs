//! Phases of which a part is in one other instance: the home's part runs as it was noted ([`Tx::split`]).
//!
//! Owns: the order of the results of such a phase. Never: sends a message.
//!
//! Invariant: the accesses of the home are noted before the other instance is asked for anything, or none of the phase has run.

use atrapos_partition::abort::Abort;
use atrapos_partition::action::{Action, ActionBatch, Operation, Request};
use atrapos_partition::partition::Tables;
use atrapos_partition::routing::InstanceId;
use atrapos_storage::lock::{LockTarget, TxnId};
use smallvec::SmallVec;

use super::Tx;
use super::access::NotedTogether;
use super::phase::{AtOnce, Chosen, free_here, take_back};
use crate::branch::Branch;
use crate::lookups::BATCH;
use crate::shard::EngineWorker;

/// A phase of which the rows here have been accessed, and those of one other instance have not.
pub(super) struct Split<O: Operation> {
    instance: InstanceId,
    /// The accesses to rows of that instance.
    requests: Vec<Request>,
    /// Their operations.
    operations: Vec<O>,
    behind: Behind<O::Output>,
}

/// Results of actions on rows of the home that stand behind the first action on a row of the other instance, each with its place behind that one.
struct Behind<R> {
    results: std::iter::Peekable<std::vec::IntoIter<(usize, R)>>,
    /// The place of the result that comes next.
    at: usize,
}

impl<R> Behind<R> {
    fn new(results: Vec<(usize, R)>) -> Behind<R> {
        Behind { results: results.into_iter().peekable(), at: 0 }
    }

    /// Hands the results that stand before the next one from the other instance to `take`, and then that one.
    fn take_next(&mut self, done: R, take: &mut impl FnMut(R)) {
        while let Some((_, here)) = self.results.next_if(|(place, _)| *place == self.at) {
            take(here);
            self.at += 1;
        }
        take(done);
        self.at += 1;
    }

    /// Hands the results that are left to `take`.
    fn take_rest(self, mut take: impl FnMut(R)) {
        self.results.for_each(|(_, here)| take(here));
    }
}

/// The actions of a phase from the first one on that is not on free rows of the home.
struct Rest<O: Operation> {
    /// The instance of those that are on rows of another one.
    instance: InstanceId,
    requests: Vec<Request>,
    operations: Vec<O>,
    /// Places behind the first of them of those on free rows of the home, which are noted.
    behind: SmallVec<[usize; BATCH]>,
}

impl<O: Operation> Rest<O> {
    /// Notes the accesses of further actions on free rows of the home, and keeps those on rows of the other instance. Fails with the first
    /// action that is neither.
    fn note(
        &mut self,
        (worker, txn): (&EngineWorker, TxnId),
        branch: &mut Branch,
        operations: &mut SmallVec<[O; BATCH]>,
        actions: &mut impl Iterator<Item = Action<O>>,
    ) -> Result<(), Action<O>> {
        let tables = &*worker.shard().tables.borrow();
        for mut action in actions {
            if instance_of(worker, tables, &action.request) == Some(self.instance) {
                self.requests.push(action.request);
                self.operations.push(action.operation);
                continue;
            }
            let place = free_here(worker, txn, tables, &action.request);
            let (Some(place), LockTarget::Key(key)) = (place, &mut action.request.target) else {
                return Err(action);
            };
            branch.note_key(place, action.request.mode, key, action.operation.is_unlocked());
            self.behind.push(self.requests.len() + self.behind.len());
            operations.push(action.operation);
        }
        Ok(())
    }

    /// Returns the actions in their order, with those that were noted as `noted`.
    fn put_together(self, noted: impl Iterator<Item = Action<O>>) -> Vec<Action<O>> {
        let Rest { requests, operations, behind, .. } = self;
        let count = requests.len() + behind.len();
        let remote = requests.into_iter().zip(operations);
        let mut remote = remote.map(|(request, operation)| Action { request, operation });
        let (mut noted, mut behind) = (noted, behind.into_iter().peekable());
        let next = |at| if behind.next_if_eq(&at).is_some() { noted.next() } else { remote.next() };
        (0..count).filter_map(next).collect()
    }
}

/// Returns the other instance that has the key of an action, if one has.
fn instance_of(worker: &EngineWorker, tables: &Tables, request: &Request) -> Option<InstanceId> {
    let LockTarget::Key(key) = &request.target else { return None };
    if request.tag != worker.shard().tag {
        return None;
    }
    InstanceId::of_owner(tables.locate(request.table, key).1)
}

impl Tx<'_> {
    /// Runs the actions of a phase on free rows of the home, of which those before `refused` are noted from access `first` on, if that
    /// one and all others are on rows of one other instance. So the rows of the home are accessed, and locked, before those of others, as
    /// in any other phase. If not, none has run.
    #[inline(never)]
    pub(super) fn split<O: Operation>(
        &self,
        (branch, first): (&mut Branch, usize),
        mut operations: SmallVec<[O; BATCH]>,
        refused: Action<O>,
        mut actions: impl Iterator<Item = Action<O>>,
        take: &mut impl FnMut(O::Output),
    ) -> Result<AtOnce<O>, Abort> {
        let (shard, before) = (self.worker.shard(), operations.len());
        let instance = instance_of(self.worker, &shard.tables.borrow(), &refused.request);
        let Some(instance) = instance else {
            let noted = take_back(shard.tag, branch, first, operations);
            let all = noted.into_iter().chain(std::iter::once(refused)).chain(actions);
            return Ok(AtOnce::Waits(ActionBatch::new(all)));
        };
        let Action { request, operation } = refused;
        let (requests, remote) = (vec![request], vec![operation]);
        let mut rest = Rest { instance, requests, operations: remote, behind: SmallVec::new() };
        let noted = rest.note((self.worker, self.state.txn()), branch, &mut operations, &mut actions);
        if let Err(refused) = noted {
            let mut noted = take_back(shard.tag, branch, first, operations).into_iter();
            let mut all: Vec<Action<O>> = noted.by_ref().take(before).collect();
            all.extend(rest.put_together(noted));
            return Ok(AtOnce::Waits(ActionBatch::new(
                all.into_iter().chain(std::iter::once(refused)).chain(actions),
            )));
        }
        let Rest { requests, operations: remote, behind: places, .. } = rest;
        let (mut at, mut behind) = (0_usize, Vec::with_capacity(places.len()));
        if !operations.is_empty() {
            let together = NotedTogether { first, one_place: false };
            self.run_noted((branch, together), &mut operations, &mut |done| {
                match at.checked_sub(before) {
                    None => take(done),
                    Some(place) => behind.push((places[place], done)),
                }
                at += 1;
            })?;
        }
        let behind = Behind::new(behind);
        Ok(AtOnce::Split(Split { instance, requests, operations: remote, behind }))
    }

    /// Runs the actions of a phase on rows of the other instance, and hands the results that were not handed over to `take`, in the order
    /// of the actions. Operations that run on copies run as what they are, without a batch of erased ones.
    pub(super) async fn run_split<O: Operation>(
        &self,
        split: Split<O>,
        mut take: impl FnMut(O::Output),
    ) -> Result<(), Abort> {
        let Split { instance, requests, operations, mut behind } = split;
        let has_asked = self.ask_and_wait(instance, &requests, Chosen::All, self.is_last).await?;
        let mut take_next = |done| behind.take_next(done, &mut take);
        if has_asked && self.runs_on_copies() {
            let ran = self.run_on_copies(instance, requests, operations, &mut take_next);
            ran.inspect_err(|abort| self.state.doom(abort))?;
        } else {
            let mut actions = ActionBatch::of_parts(requests, operations.into_iter());
            let ran = self.run_on_staged(instance, &mut actions, Chosen::All, has_asked);
            ran.inspect_err(|abort| self.state.doom(abort))?;
            actions.into_outputs::<O>().for_each(take_next);
        }
        behind.take_rest(take);
        Ok(())
    }
}
