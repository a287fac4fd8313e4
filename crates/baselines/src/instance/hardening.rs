//! [`Hardening`]: the log of an instance, and the commits of transactions whose home it is.
//!
//! # Protocol
//! Presumed abort, as in the partitioned engine (decision 65), with the records of the central log:
//!
//! 1. A part with changes logs *prepared*, with them, while their rows are locked, and votes when that is durable. A part that has only read
//!    releases its locks, and votes when what it has read is durable.
//! 2. The home that has all votes logs *decided*, with its own changes, releases its locks, and tells the parts when that is durable.
//!    An abort is not logged: a home that knows nothing of a transaction has aborted it.
//! 3. A part that is told logs *ended* and releases its locks. Its next vote or answer on the same link, which waits for all that
//!    the log had then, acknowledges it.
//! 4. What all parts have acknowledged is *forgotten*, many transactions by one record.
//!
//! A prepared part whose link ends is *in doubt*, and asks its home until that has an answer ([`in_doubt`](super::in_doubt)); so does one
//! that recovery finds prepared. Decisions that are not acknowledged when a link or a process ends are kept for as long as the directory exists: of
//! each client a few dozen at most.
//!
//! # Why nothing vanishes that was told
//! Within an instance, whoever depends on a commit is behind it in the log ([`durable`](crate::durable)). Across instances nobody can
//! depend on what is not durable yet: a part tells of its reads, by its vote or by an abort for reasons of the transaction, when everything
//! that had a position in its log is durable, which is before the decision; and what a transaction has written elsewhere is locked
//! until its decision is durable at its home.
//!
//! # Invariants
//! - "Aborted" is answered only for transactions that have not been decided and will not be: those that vote are in the list from before the first
//!   request to prepare.
//! - Incarnations of an instance differ, durably, before anything runs: identities are never used again.
//!
//! Owns: these commits. Never: holds a row.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use atrapos_durability::wal::GlobalId;
use atrapos_partition::abort::Abort;
use atrapos_partition::routing::InstanceId;
use rustc_hash::FxBuildHasher;

use crate::durable::distributed::{PlaceOf, Resumed, begin_record, encode_id};
use crate::durable::{ClientLog, Store};
use crate::log::Ticket;
use crate::planted::{Bug, planted};
use crate::redo::{RecordKind, RedoRecord};
use crate::rows::Branch;

/// Acknowledged commits that one record forgets.
const FORGOTTEN: usize = 32;

/// See the module's introduction.
pub(super) struct Hardening {
    pub(super) store: Store,
    instance: InstanceId,
    incarnation: u32,
    transactions: AtomicU64,
    commits: Mutex<Commits>,
}

#[derive(Default)]
struct Commits {
    of: HashMap<GlobalId, Commit, FxBuildHasher>,
    /// Acknowledged ones whose record is not written yet.
    acknowledged: Vec<GlobalId>,
}

/// A commit that not all parts have acknowledged.
enum Commit {
    /// The votes are being collected.
    Voting,
    /// It is decided, and durable when the ticket is; these have not acknowledged it.
    Decided(Ticket, Vec<InstanceId>),
}

/// The answer to a part in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Aborted,
    Committed,
    /// Ask again.
    Undecided,
}

impl Hardening {
    /// Begins another incarnation of an instance, durably.
    ///
    /// # Errors
    /// Fails if the log cannot be written.
    pub(super) fn begin(store: Store, place: PlaceOf, resumed: &Resumed) -> Result<Hardening, Abort> {
        let mut redo = RedoRecord::default();
        place.write_opened(&mut redo);
        store.log.wait(store.log.commit(redo.bytes())?)?;
        // Nobody knows who has acknowledged them.
        let decided = resumed.decided.iter().map(|id| (*id, Commit::Decided(Ticket::default(), Vec::new())));
        let commits = Commits { of: decided.collect(), acknowledged: Vec::new() };
        Ok(Hardening {
            store,
            instance: place.instance,
            incarnation: resumed.openings + 1,
            transactions: AtomicU64::new(0),
            commits: Mutex::new(commits),
        })
    }

    /// Returns the way to the log of a thread that ends parts.
    pub(super) fn client(&self) -> ClientLog<'_> {
        self.store.client()
    }

    fn commits(&self) -> MutexGuard<'_, Commits> {
        self.commits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the identity of a commit that begins, whose parts may ask from now on.
    pub(super) fn begin_commit(&self) -> GlobalId {
        let txn = self.transactions.fetch_add(1, Ordering::Relaxed);
        let id = GlobalId { instance: self.instance.0, incarnation: self.incarnation, txn };
        self.commits().of.insert(id, Commit::Voting);
        id
    }

    /// Notes that a commit was given up, or has no parts to tell.
    pub(super) fn give_up(&self, id: GlobalId) {
        self.commits().of.remove(&id);
    }

    /// Logs the decision to commit, with the changes of the home. Returns the ticket with which it is durable.
    ///
    /// # Errors
    /// Fails if nothing was logged: the transaction has to abort.
    pub(super) fn decide(
        &self,
        id: GlobalId,
        parts: &[InstanceId],
        branch: &mut dyn Branch,
        log: &mut ClientLog<'_>,
    ) -> Result<Ticket, Abort> {
        begin_record(&mut log.redo, RecordKind::Decided, id);
        branch.for_each_change(&mut |table, key, row| log.redo.change(table, key, row));
        let ticket = if planted(Bug::OutcomeToldEarly) {
            log.log.append(log.redo.bytes()).map(|_| Ticket::default())
        } else {
            log.log.commit(log.redo.bytes())
        }?;
        self.commits().of.insert(id, Commit::Decided(ticket, parts.to_vec()));
        Ok(ticket)
    }

    /// Returns the outcome of a transaction whose home this is.
    pub(super) fn answer(&self, id: GlobalId) -> Answer {
        match self.commits().of.get(&id) {
            None => Answer::Aborted,
            Some(Commit::Decided(ticket, _)) if self.store.log.is_durable(*ticket) == Ok(true) => {
                Answer::Committed
            }
            // After a failure of the log nobody knows, until it has been read back.
            Some(_) => Answer::Undecided,
        }
    }

    /// Notes that the ends of commits are durable in an instance, and forgets those that all have acknowledged.
    pub(super) fn acknowledge(&self, instance: InstanceId, ids: &mut Vec<GlobalId>) {
        if ids.is_empty() {
            return;
        }
        let mut commits = self.commits();
        for id in ids.drain(..) {
            if let Some(Commit::Decided(_, parts)) = commits.of.get_mut(&id) {
                parts.retain(|part| *part != instance);
                if parts.is_empty() {
                    commits.of.remove(&id);
                    commits.acknowledged.push(id);
                }
            }
        }
        if commits.acknowledged.len() >= FORGOTTEN {
            self.forget(std::mem::take(&mut commits.acknowledged));
        }
    }

    /// Logs that commits need not be known any more. Nobody waits for it: who knows them longer does no harm.
    fn forget(&self, ids: Vec<GlobalId>) {
        let mut redo = RedoRecord::default();
        redo.begin(RecordKind::Forgotten);
        ids.iter().for_each(|id| redo.push(&encode_id(*id)));
        // A log that has failed is read back, and then they are known.
        let _ = self.store.log.append(redo.bytes());
    }

    /// Writes everything, and ends the log.
    ///
    /// # Errors
    /// Fails if it could not be written.
    pub(super) fn close(self) -> Result<(), Abort> {
        let acknowledged = std::mem::take(&mut self.commits().acknowledged);
        if !acknowledged.is_empty() {
            self.forget(acknowledged);
        }
        self.store.log.close()
    }
}

/// Logs that a part is prepared, with its changes, whose rows are locked. Returns the ticket with which that is durable.
///
/// # Errors
/// Fails if nothing was logged.
pub(super) fn log_prepared(
    id: GlobalId,
    branch: &mut dyn Branch,
    log: &mut ClientLog<'_>,
) -> Result<Ticket, Abort> {
    begin_record(&mut log.redo, RecordKind::Prepared, id);
    branch.for_each_change(&mut |table, key, row| log.redo.change(table, key, row));
    if planted(Bug::VoteBeforeSync) {
        return log.log.append(log.redo.bytes()).map(|_| Ticket::default());
    }
    log.log.commit(log.redo.bytes())
}

/// Logs how a prepared part has ended, while its rows are locked. A log that has failed acknowledges nothing any more, and the part is in doubt
/// when it has been read back.
pub(super) fn log_ended(id: GlobalId, committed: bool, log: &mut ClientLog<'_>) {
    begin_record(&mut log.redo, RecordKind::Ended, id);
    log.redo.push(&[u8::from(committed)]);
    let _ = log.log.append(log.redo.bytes());
}
