//! Administration of an open database: its scheme and workers, checkpoints and backups.
//!
//! Owns: the refusals of a caller on a worker's thread. Never: decides where data is.

use std::path::Path;
use std::sync::Arc;

use atrapos_durability::backup::{BackupReport, backup};
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_placement::adaptation::{AdaptationEvent, SchemeSearch, Suspension};
use atrapos_placement::repartition::{RepartitionReport, SchemeChange};
use atrapos_runtime::WorkerId;

use super::reports::BackupFailure;
use super::{Database, refuse_on_worker};
use crate::checkpoint::{CheckpointFailure, CheckpointReport, Pace};

impl Database {
    /// Changes partitioning and placement while transactions run: one partition at a time is split, merged or moved, in the
    /// order given. No transaction aborts because of it. On a database that [adapts itself](crate::Builder::adaptation) the
    /// controller may change it again.
    ///
    /// # Errors
    /// A change that makes no sense (those before it have been made), or the database is shutting down.
    pub fn repartition(
        &self,
        changes: impl IntoIterator<Item = SchemeChange>,
    ) -> Result<RepartitionReport, Abort> {
        refuse_on_worker()?;
        self.adaptive.repartition(changes.into_iter().collect())
    }

    /// Chooses partitioning and placement by the statistics since they were taken last, better or not than what there is, and
    /// carries it out while transactions run. For databases that observe themselves without acting
    /// ([`Adaptation::act`](crate::Adaptation)): elsewhere the controller does better, and may change it again.
    ///
    /// # Errors
    /// Fails if nothing was observed, the database [does not observe itself](crate::Builder::fixed_scheme), or is shutting
    /// down.
    pub fn choose_scheme(&self, search: SchemeSearch) -> Result<RepartitionReport, Abort> {
        refuse_on_worker()?;
        self.adaptive.choose(search)
    }

    /// Prepares memory by which tables may grow before a worker meets a page fault: `bytes`, evenly on all workers, besides what
    /// is prepared already. See [`Builder::reserve`](crate::Builder::reserve).
    ///
    /// # Errors
    /// Less memory is available; what was prepared stays. Or the caller is on a worker's thread.
    pub fn reserve(&self, bytes: u64) -> Result<(), Abort> {
        refuse_on_worker()?;
        let refused = |why: String| Abort::explained(AbortReason::OutOfMemory, why);
        self.memory.as_ref().map_or(Ok(()), |memory| memory.reserve(bytes).map_err(refused))
    }

    /// Suspends adaptation until what is returned is dropped: the controller decides nothing, the scheme stays as it is, and for both
    /// no time passes. So whoever stops the load for a while, to back up the machine or to measure something else on it, does not
    /// make the controller look for a reason. A change that is under way ends first. Statements, checkpoints and all else that
    /// changes the scheme or needs it to stay waits for the end, so do not call any from the thread that has suspended adaptation.
    ///
    /// # Errors
    /// The caller is on a worker's thread.
    pub fn suspend_adaptation(&self) -> Result<Suspension<'_>, Abort> {
        refuse_on_worker()?;
        Ok(self.adaptive.suspend())
    }

    /// Returns the decisions about partitioning and placement since the database was opened, those not to act included, the
    /// oldest first. Only the latest few thousand are kept.
    #[must_use]
    pub fn adaptation_history(&self) -> Vec<AdaptationEvent> {
        self.adaptive.history()
    }

    /// Returns the decisions that followed the first `after` ones, the oldest first, each with its number: the first decision of all
    /// has number 1. So whoever shows them as they come passes the number of the last one that he knows. Of those that are not
    /// [kept](Database::adaptation_history) any more none is returned.
    #[must_use]
    pub fn adaptation_history_after(&self, after: u64) -> Vec<(u64, AdaptationEvent)> {
        self.adaptive.history_after(after)
    }

    /// Returns the factor on the given costs of synchronization that the controller has learnt from changes of the scheme; 1 as long as it
    /// has learnt none. A database in a directory keeps it there for the next opening ([`RefinedCosts`](crate::RefinedCosts)).
    #[must_use]
    pub fn sync_factor(&self) -> f64 {
        self.adaptive.sync_factor()
    }

    /// Returns the statistics of the workers since the last call, or since the controller took them last: the cost of actions
    /// by sub-partition and the synchronization points, as a trace from which plans can be made elsewhere.
    ///
    /// # Errors
    /// Fails if the database [does not observe itself](crate::Builder::fixed_scheme), or is shutting down.
    pub fn workload_trace(&self) -> Result<atrapos_adapt::WorkloadTrace, Abort> {
        refuse_on_worker()?;
        self.adaptive.trace()
    }

    /// Has all workers stop recording what the statistics are of, or go on. It is for measurements of what recording costs.
    ///
    /// # Errors
    /// Fails if the database is shutting down.
    #[doc(hidden)]
    pub fn set_recording(&self, records: bool) -> Result<(), Abort> {
        refuse_on_worker()?;
        self.adaptive.set_recording(records)
    }

    /// Takes a worker out of use: all its data moves to the others before this returns. Its thread keeps running, and so do its
    /// sessions, whose data is elsewhere then.
    ///
    /// # Errors
    /// Fails if there is no such worker, or no other that may own data.
    pub fn retire_worker(&self, worker: WorkerId) -> Result<RepartitionReport, Abort> {
        refuse_on_worker()?;
        self.adaptive.retire(worker)
    }

    /// Brings a retired worker back, or else lets a spare one begin, on core `core`, and returns its number. It is given data again when the database next
    /// adapts itself; one with a [fixed scheme](crate::Builder::fixed_scheme) is repartitioned [by
    /// hand](Database::repartition).
    ///
    /// # Errors
    /// Fails if no worker has retired or is spare.
    pub fn add_worker(&self, core: usize) -> Result<WorkerId, Abort> {
        refuse_on_worker()?;
        self.adaptive.add(core)
    }

    /// Returns, by worker, whether it may own data: all but those that [retired](Database::retire_worker) or lost their core.
    #[must_use]
    pub fn available_workers(&self) -> Vec<bool> {
        self.adaptive.available()
    }

    /// Makes a checkpoint while transactions run, and returns when it is on disk: the next opening begins with it.
    ///
    /// # Errors
    /// Fails if files cannot be written (the previous checkpoint stays valid), or the database has no directory.
    pub fn checkpoint(&self) -> Result<CheckpointReport, CheckpointFailure> {
        refuse_on_worker()?;
        match &self.durable {
            Some((durable, _)) => durable.checkpoint(Pace::Gentle),
            None => Err(Abort::because(
                AbortReason::Misuse,
                "a database in memory has no directory to write a checkpoint to; open it with a path",
            )
            .into()),
        }
    }

    /// Copies the database to the directory `to`, which must be empty or not exist, while transactions run. The copy has all
    /// transactions that were reported as committed before the call; open it like any database.
    ///
    /// # Errors
    /// Fails if files cannot be read or written, `to` is in use, or the database has no directory.
    pub fn backup(&self, to: impl AsRef<Path>) -> Result<BackupReport, BackupFailure> {
        refuse_on_worker()?;
        let Some((durable, _)) = &self.durable else {
            return Err(Abort::because(
                AbortReason::Misuse,
                "a database in memory has no files to copy; open it with a path",
            )
            .into());
        };
        // No checkpoint is published meanwhile, so the copy never has to start over.
        let _state = durable.lock_state();
        Ok(backup(Arc::clone(&durable.fs), durable.directory.path(), to.as_ref())?)
    }
}
