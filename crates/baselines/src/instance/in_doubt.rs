//! Prepared parts whose home cannot be reached: they ask until they have an answer, and nobody decides in its place.
//!
//! Those that recovery finds get their locks back before anything else runs: each has a thread with a transaction of the engine, as it had one
//! before the crash, which makes its changes again and waits.
//!
//! # Why they do not meet each other
//! They held their locks at the same time before. Changes are made again in the order of their keys, over all of these transactions: an
//! insertion then finds above its key only what was there when it was first made, and locks the same gap.
//!
//! A transaction that meets the rows of one that recovery has brought back does not wait for it: that one has the smallest age, so
//! with two-phase locking all others are aborted, and try again.
//!
//! Owns: these threads, and the questions. Never: decides.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use atrapos_durability::wal::{Change, Changes, GlobalId};
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::routing::InstanceId;

use super::hardening::{Answer, Hardening, log_ended};
use super::line::Line;
use super::steps::CommitStep;
use super::wire::{Operation, Request, reply};
use super::{Shared, server};
use crate::durable::{ClientLog, replay};
use crate::planted::inherited;
use crate::rows::{Branch, RowTransaction};

/// The time between two questions.
const ASK_EVERY: Duration = Duration::from_millis(10);

/// The age of transactions that recovery brings back: they are older than all others.
const AGE: u64 = 0;

/// Asks the home of a part for the outcome until there is one, and ends the part. Returns before if the instance ends: then it is in
/// doubt when it is opened again.
pub(super) fn resolve(shared: &Shared, branch: &mut dyn Branch, id: GlobalId, log: &mut ClientLog<'_>) {
    let mut line = None;
    loop {
        if shared.is_ending() {
            return;
        }
        let committed = match ask(shared, &mut line, id) {
            Some(Answer::Committed) => true,
            Some(Answer::Aborted) => false,
            Some(Answer::Undecided) | None => {
                thread::park_timeout(ASK_EVERY);
                continue;
            }
        };
        end(shared, branch, id, committed, log);
        return;
    }
}

/// Ends a prepared part, durably with what comes behind it in the log.
pub(super) fn end(
    shared: &Shared,
    branch: &mut dyn Branch,
    id: GlobalId,
    committed: bool,
    log: &mut ClientLog<'_>,
) {
    log_ended(id, committed, log);
    if shared.stops.reached(CommitStep::EndLogged) {
        return;
    }
    if committed {
        branch.commit();
    } else {
        branch.abort(&Abort::because(AbortReason::User, "the transaction was aborted at its home"));
    }
}

/// Asks once; none if the home cannot be reached, or says nothing that makes sense.
fn ask(shared: &Shared, line: &mut Option<Line>, id: GlobalId) -> Option<Answer> {
    if usize::from(id.instance) >= shared.options.instances {
        return None;
    }
    let mut kept = match line.take() {
        Some(kept) => kept,
        None => shared.connect(InstanceId(id.instance)).ok()?,
    };
    let (mut request, mut answer) = (Vec::new(), Vec::new());
    Request::encode(&mut request, 0, std::iter::empty(), &Operation::Ask(id));
    let asked = kept.send(&request).and_then(|()| kept.receive(&mut answer, Some(&shared.stopping)));
    if !matches!(asked, Ok(true)) {
        return None;
    }
    let answered = reply(&answer).ok()?.ok()?.answer().ok();
    *line = Some(kept);
    answered
}

/// Turns in which the changes of several transactions are made.
struct Turns {
    /// The transaction whose turn it is, one for each change of all.
    order: Vec<usize>,
    at: Mutex<usize>,
    changed: Condvar,
}

impl Turns {
    /// Waits until it is a transaction's turn, or all turns are over.
    fn wait(&self, transaction: Option<usize>) {
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        while self.order.get(*at).copied() != transaction {
            at = self.changed.wait(at).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn next(&self) {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }
}

/// Brings prepared transactions back, each with its changes, and returns when all have their locks.
///
/// # Errors
/// Fails if one of them cannot lock its rows.
pub(super) fn bring_back(
    shared: &Arc<Shared>,
    in_doubt: std::collections::BTreeMap<GlobalId, Vec<u8>>,
) -> Result<(), Abort> {
    let mut all = Vec::new();
    for (at, (id, changes)) in in_doubt.iter().enumerate() {
        for change in Changes::new(changes) {
            let Change { table, key, .. } =
                change.map_err(|error| Abort::explained(AbortReason::Corruption, error.to_string()))?;
            all.push((table, key, at, *id));
        }
    }
    all.sort();
    let order = all.iter().map(|(_, _, transaction, _)| *transaction).collect();
    let turns = Arc::new(Turns { order, at: Mutex::new(0), changed: Condvar::new() });
    let ((ready, all_ready), count) = (channel(), in_doubt.len());
    for (at, (id, changes)) in in_doubt.into_iter().enumerate() {
        let (own, turns, ready) = (Arc::clone(shared), Arc::clone(&turns), ready.clone());
        let run = inherited(move || one(&own, &turns, (at, id, &changes), &ready));
        let started = thread::Builder::new().name("atrapos-in-doubt".to_owned()).spawn(run);
        let started =
            started.map_err(|error| Abort::explained(AbortReason::OutOfMemory, error.to_string()))?;
        shared.serving().push(started);
    }
    all_ready.into_iter().take(count).collect()
}

/// Runs one transaction that recovery has found prepared, to its end.
fn one(
    shared: &Shared,
    turns: &Turns,
    (at, id, changes): (usize, GlobalId, &[u8]),
    ready: &Sender<Result<(), Abort>>,
) {
    let (mut client, mut log) = (shared.engine.client(), shared.hardening().map(Hardening::client));
    let Some(log) = &mut log else { return };
    let ran = client.run_branch(AGE, &mut |branch: &mut dyn Branch| {
        let locked = lock_again(branch, turns, (at, changes));
        let is_locked = locked.is_ok();
        // The opening has failed if nobody listens.
        let _ = ready.send(locked);
        if is_locked {
            resolve(shared, branch, id, log);
        }
        Ok(())
    });
    if let Err(abort) = ran {
        server::note(shared, &abort);
    }
}

/// Makes the changes again, in turn, and locks their rows.
fn lock_again(branch: &mut dyn Branch, turns: &Turns, (at, changes): (usize, &[u8])) -> Result<(), Abort> {
    // They were read once before.
    let mut changes: Vec<Change<'_>> = Changes::new(changes).filter_map(Result::ok).collect();
    changes.sort_by_key(|change| (change.table, change.key));
    let mut made = Ok(());
    for change in &changes {
        turns.wait(Some(at));
        if made.is_ok() {
            let rows: &mut dyn RowTransaction = branch;
            made = replay(rows, change);
        }
        turns.next();
    }
    turns.wait(None);
    made.and_then(|()| branch.lock())
}
