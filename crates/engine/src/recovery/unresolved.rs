//! What the WAL of an instance says of transactions over several instances that have not come to their end everywhere.
//!
//! Owns: the balance of the notes: what was prepared and has not ended, what was decided and is not forgotten. It does not depend on
//! the order of the notes: identities are never used again. Never: asks another instance; the instance does when it is linked.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use atrapos_durability::wal::{GlobalId, Note};
use atrapos_partition::abort::Abort;
use atrapos_partition::planted::{Bug, planted};
use atrapos_runtime::{Handle, WorkerId};
use atrapos_storage::lock::TxnId;
use atrapos_transaction::distributed;
use atrapos_transaction::jobs::{on_all_workers, start_task_on_worker};
use atrapos_transaction::shard::{EngineWorker, Shard};
use atrapos_transaction::waiting;

use super::RecoveryError;

/// See the module's introduction.
#[derive(Debug, Default)]
pub(crate) struct Unresolved {
    prepared: HashMap<GlobalId, Vec<u8>>,
    ended: HashSet<GlobalId>,
    /// The instances of each decision, two bytes each.
    decided: HashMap<GlobalId, Vec<u8>>,
    forgotten: HashSet<GlobalId>,
}

impl Unresolved {
    /// Takes in a note.
    pub(super) fn add(&mut self, note: Note<'_>) {
        match note {
            Note::Prepared { of, rows } => drop(self.prepared.insert(of, rows.to_vec())),
            Note::Ended { of, .. } => drop(self.ended.insert(of)),
            Note::Decided { of, instances } => drop(self.decided.insert(of, instances.to_vec())),
            Note::Forgotten { of } => drop(self.forgotten.insert(of)),
        }
    }

    /// Returns the numbers of transactions in doubt and of decisions that were not acknowledged.
    pub(super) fn counts(&self) -> (u64, u64) {
        let open = |of: &&GlobalId| !self.ended.contains(of);
        let kept = |of: &&GlobalId| !self.forgotten.contains(of);
        (self.prepared.keys().filter(open).count() as u64, self.decided.keys().filter(kept).count() as u64)
    }

    /// Brings the transactions in doubt back with their locks, and the decisions, each on the worker that will have the link to the
    /// other's.
    pub(crate) fn resume(self, handle: &Handle<Shard>) -> Result<(), RecoveryError> {
        let Unresolved { prepared, ended, decided, forgotten } = self;
        let workers = handle.workers();
        if prepared.is_empty() && decided.is_empty() {
            return Ok(());
        }
        let worker_of = move |of: &GlobalId| usize::from(TxnId(of.txn).home()) % workers;
        let mut parts: Vec<Vec<(GlobalId, Vec<u8>)>> = vec![Vec::new(); workers];
        let in_doubt = prepared.into_iter().filter(|(of, _)| !ended.contains(of));
        for (of, rows) in in_doubt.filter(|_| !planted(Bug::InDoubtForgotten)) {
            parts[worker_of(&of)].push((of, rows));
        }
        let started = parts.into_iter().enumerate().map(|(worker, mut part)| {
            part.sort_unstable_by_key(|(of, _)| *of);
            start_task_on_worker(handle, WorkerId(worker as u16), async move |worker: Rc<EngineWorker>| {
                distributed::recover_prepared(&worker, part).await
            })
        });
        let started = started.collect::<Result<Vec<_>, Abort>>()?;
        for task in started {
            waiting::wait(task)??;
        }
        let decisions: Vec<(GlobalId, Vec<u8>)> =
            decided.into_iter().filter(|(of, _)| !forgotten.contains(of)).collect();
        on_all_workers(handle, move |worker| {
            for (of, instances) in decisions.iter().filter(|(of, _)| worker_of(of) == worker.id().index()) {
                distributed::recover_decision(worker, *of, instances);
            }
        })?;
        Ok(())
    }
}
