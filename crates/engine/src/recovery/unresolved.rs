//! Transactions over several instances that have not come to their end everywhere, as the WAL of one instance has them.
//!
//! Owns: the balance of the notes: what was prepared and has not ended, what was decided and is not forgotten. It does not depend on
//! the order in which the notes are read, which is that of no stream: identities are never used again. Never: asks another instance;
//! the instance does when it is linked.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::rc::Rc;

use atrapos_durability::manifest::InstanceRecord;
use atrapos_durability::wal::{GlobalId, Note};
use atrapos_partition::abort::Abort;
use atrapos_partition::planted::{Bug, planted};
use atrapos_partition::routing::Division;
use atrapos_runtime::{Handle, WorkerId};
use atrapos_storage::lock::TxnId;
use atrapos_transaction::distributed;
use atrapos_transaction::jobs::{on_all_workers, start_task_on_worker};
use atrapos_transaction::shard::{EngineWorker, Shard};
use atrapos_transaction::waiting;
use rustc_hash::FxBuildHasher;

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

/// The error of a note that makes no sense.
#[cold]
fn unfit(why: &str) -> RecoveryError {
    RecoveryError::Unfit(format!(
        "the WAL has a transaction over several instances that cannot be resolved ({why}); the manifest and the WAL are not of one \
         database, or it was written by another version of atrapos"
    ))
}

impl Unresolved {
    /// Takes in a note.
    pub(super) fn add(&mut self, note: Note<'_>) {
        match note {
            Note::Prepared { of, rows } if !self.ended.contains(&of) => {
                self.prepared.insert(of, rows.to_vec());
            }
            Note::Decided { of, instances } if !self.forgotten.contains(&of) => {
                self.decided.insert(of, instances.to_vec());
            }
            Note::Prepared { .. } | Note::Decided { .. } => {}
            // A checkpoint has logged some of them twice.
            Note::Ended { of, .. } => {
                self.prepared.remove(&of);
                self.ended.insert(of);
            }
            Note::Forgotten { of } => {
                self.decided.remove(&of);
                self.forgotten.insert(of);
            }
        }
    }

    /// Returns the numbers of transactions in doubt and of decisions that were not acknowledged.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.prepared.len() as u64, self.decided.len() as u64)
    }

    /// Refuses notes that no instance of the deployment can have logged.
    fn check(&self, place: Option<&InstanceRecord>) -> Result<(), RecoveryError> {
        let Some(place) = place else { return Err(unfit("the database is no instance of a deployment")) };
        let workers = Division::decode_workers(&place.division).unwrap_or_default();
        let is_possible = |of: &GlobalId| {
            let workers = workers.get(usize::from(of.instance)).copied().unwrap_or(0);
            usize::from(TxnId(of.txn).home()) < workers
        };
        let is_there = |instances: &Vec<u8>| {
            let mut instances = instances.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
            instances.all(|instance| usize::from(instance) < workers.len() && instance != place.instance)
        };
        let prepared_fit = self.prepared.keys().all(|of| of.instance != place.instance && is_possible(of));
        let decided_fit = self
            .decided
            .iter()
            .all(|(of, instances)| of.instance == place.instance && is_possible(of) && is_there(instances));
        if prepared_fit && decided_fit {
            Ok(())
        } else {
            Err(unfit("no instance of its deployment can have begun it"))
        }
    }

    /// Refuses two transactions that are prepared with one row: the second one would wait for its lock for ever. A transaction has
    /// each of its rows once.
    fn check_rows(&self) -> Result<(), RecoveryError> {
        let rows = || self.prepared.values().flat_map(|rows| distributed::rows_of_prepared(rows));
        let mut hashes = Vec::new();
        for row in rows() {
            hashes.push(FxBuildHasher.hash_one(row.map_err(unfit)?));
        }
        // Sorted hashes take a fraction of the time of a table of rows, which is needed only if two are equal.
        hashes.sort_unstable();
        if hashes.array_windows().all(|[one, next]| one != next) {
            return Ok(());
        }
        let mut seen = HashSet::new();
        for row in rows() {
            if !seen.insert(row.map_err(unfit)?) {
                return Err(unfit("another one is prepared with the same row"));
            }
        }
        Ok(())
    }

    /// Brings the transactions in doubt back with their locks, and the decisions, each on the worker that will have the link to the
    /// other's.
    pub(crate) fn resume(
        self,
        handle: &Handle<Shard>,
        place: Option<&InstanceRecord>,
    ) -> Result<(), RecoveryError> {
        if self.prepared.is_empty() && self.decided.is_empty() {
            return Ok(());
        }
        self.check(place)?;
        self.check_rows()?;
        let Unresolved { prepared, decided, .. } = self;
        let workers = handle.workers();
        let worker_of = move |of: &GlobalId| usize::from(TxnId(of.txn).home()) % workers;
        let mut parts: Vec<Vec<(GlobalId, Vec<u8>)>> = vec![Vec::new(); workers];
        for (of, rows) in prepared.into_iter().filter(|_| !planted(Bug::InDoubtForgotten)) {
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
        let decisions: Vec<(GlobalId, Vec<u8>)> = decided.into_iter().collect();
        on_all_workers(handle, move |worker| {
            for (of, instances) in decisions.iter().filter(|(of, _)| worker_of(of) == worker.id().index()) {
                distributed::recover_decision(worker, *of, instances);
            }
        })?;
        Ok(())
    }
}
