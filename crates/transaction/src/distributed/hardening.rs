//! The part of two-phase commit that outlives the processes: its notes in the WAL, and what waits until they are durable.
//!
//! # Protocol
//!
//! Presumed abort (Mohan, Lindsay and Obermarck 1986). The notes are those of [`Note`].
//!
//! 1. A subordinate that has made its changes logs *prepared*, with the rows, and votes when that is durable. From then on it holds
//!    its locks until it is told the outcome.
//! 2. The coordinator that has all votes logs *decided*, with its own changes and the numbers of the instances that have prepared, and
//!    tells them when that is durable. An abort is not logged: a coordinator that knows nothing of a transaction has aborted
//!    it.
//! 3. A subordinate that is told logs *ended*, with its changes, releases its locks, and tells the coordinator when that is durable.
//! 4. The coordinator that has heard of all logs *forgotten*.
//!
//! A subordinate that has changed nothing releases its locks when it is asked to prepare, and votes when what it has read is durable:
//! what the transaction decides may depend on it.
//!
//! # After a crash, or the end of a link
//!
//! A prepared subordinate whose coordinator cannot be reached is *in doubt*: nobody decides alone. After a crash, recovery brings it
//! back with its locks before anything else runs. When there is a link to the worker of the coordinator again the subordinate
//! asks, and the coordinator tells the outcomes of decisions that were not acknowledged; both may happen, and the second one finds
//! nothing to do.
//!
//! # Invariants
//!
//! - A decision is kept until every instance that has prepared the transaction has logged its end durably. So no answer "I know
//!   nothing of it" is given for a transaction that has committed.
//! - A checkpoint logs again what is in doubt or not acknowledged, in an epoch that it does not replace ([`log_again`]).
//! - Numbers of transactions begin anew with each incarnation of a database, so identities that outlive one have its number.
//!
//! Owns: prepared transactions in doubt, decisions, and what waits for the WAL. Never: decides.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use atrapos_durability::wal::{Epoch, GlobalId, Note};
use atrapos_partition::abort::Abort;
use atrapos_partition::planted::{Bug, planted};
use atrapos_partition::routing::InstanceId;
use atrapos_storage::lock::TxnId;
use smallvec::SmallVec;

use super::steps::CommitStep;
use super::subordinate::{self, Prepared};
use super::wire::Message;
use super::{Link, Peers, lose_link};
use crate::deadlock::home_of;
use crate::shard::{EngineWorker, FastMap};
use crate::tx::TxnState;
use crate::wal::CommitWaiters;

/// See the module's introduction.
#[derive(Default)]
pub(super) struct Hardening {
    /// The incarnation of this instance's database, counted from 1; 0 in memory.
    pub(super) incarnation: u32,
    /// The work to do when an epoch is durable, ascending.
    waiting: RefCell<VecDeque<(Epoch, Due)>>,
    /// Prepared transactions whose coordinators could not be reached.
    pub(super) in_doubt: RefCell<FastMap<GlobalId, InDoubt>>,
    /// Decisions to commit that have not been acknowledged by all.
    decided: RefCell<FastMap<GlobalId, Decision>>,
}

/// A prepared transaction in doubt.
pub(super) struct InDoubt {
    pub(super) state: Rc<TxnState>,
    pub(super) prepared: Prepared,
}

struct Decision {
    /// The instances that have prepared it and have not acknowledged.
    instances: SmallVec<[InstanceId; 2]>,
    is_durable: bool,
}

/// Work to do when an epoch is durable.
pub(super) enum Due {
    /// Vote to commit.
    Vote { link: Rc<Link>, txn: TxnId },
    /// Tell the outcome of a decision.
    Tell(GlobalId),
    /// Acknowledge an outcome.
    Acknowledge(GlobalId),
}

/// The instances of a note, two bytes each.
fn encode_instances(instances: &[InstanceId]) -> Vec<u8> {
    instances.iter().flat_map(|instance| instance.0.to_le_bytes()).collect()
}

/// A note as the contents of a record without changes.
fn record_of(note: Note<'_>) -> Vec<u8> {
    let mut record = Vec::new();
    note.push(&mut record);
    record
}

impl Hardening {
    pub(super) fn new(incarnation: u32) -> Hardening {
        Hardening { incarnation, ..Hardening::default() }
    }
}

/// Returns the state of the worker's commits, if the database logs.
fn log(worker: &EngineWorker) -> Option<&CommitWaiters> {
    worker.shard().commit_waiters.as_ref()
}

impl Peers {
    /// Returns the identity of a transaction of this instance and incarnation.
    pub(super) fn own_id(&self, txn: TxnId) -> GlobalId {
        GlobalId { instance: self.instance.0, incarnation: self.hardening.incarnation, txn: txn.0 }
    }

    /// Does something when an epoch is durable: at once if it is, or nothing is logged.
    pub(super) fn when_durable(&self, worker: &EngineWorker, epoch: Epoch, due: Due) {
        let early = matches!(due, Due::Vote { .. }) && planted(Bug::VoteBeforeSync)
            || matches!(due, Due::Tell(_)) && planted(Bug::DecisionToldEarly);
        let Some(log) = log(worker).filter(|log| !early && !log.is_durable(epoch)) else {
            return self.perform(due);
        };
        if log.wal.is_failed() {
            return self.refuse(due, log.wal.refusal());
        }
        let mut waiting = self.hardening.waiting.borrow_mut();
        let at = waiting.iter().rposition(|(earlier, _)| *earlier <= epoch).map_or(0, |at| at + 1);
        waiting.insert(at, (epoch, due));
    }

    fn perform(&self, due: Due) {
        // An instance that cannot be reached asks, or is told, when there is a link again.
        match due {
            Due::Vote { link, txn } => {
                self.reached(CommitStep::PreparedDurable);
                let _ = self.send_on(&link, &Message::Vote { txn, result: Ok(()) });
                self.reached(CommitStep::Voted);
            }
            Due::Tell(of) => {
                let instances = match self.hardening.decided.borrow_mut().get_mut(&of) {
                    Some(decision) => {
                        decision.is_durable = true;
                        decision.instances.clone()
                    }
                    None => return,
                };
                self.reached(CommitStep::DecisionDurable);
                for instance in instances {
                    let _ = self.send(instance, &Message::Outcome { of, commit: true });
                }
                self.reached(CommitStep::Told);
            }
            Due::Acknowledge(of) => {
                self.reached(CommitStep::EndDurable);
                let _ = self.send_home(of, &Message::Ended { of });
                self.reached(CommitStep::Acknowledged);
            }
        }
    }

    /// Does what can be done for what never becomes durable, as the WAL has failed: a decision remains unknown until a restart.
    #[cold]
    fn refuse(&self, due: Due, refusal: Abort) {
        if let Due::Vote { link, txn } = due {
            let _ = self.send_on(&link, &Message::Vote { txn, result: Err(refusal) });
        }
    }

    /// Returns true if something waits that is durable now, or never will be.
    pub(super) fn has_durable_news(&self, worker: &EngineWorker) -> bool {
        let waiting = self.hardening.waiting.borrow();
        match (waiting.front(), log(worker)) {
            (Some((epoch, _)), Some(log)) => log.is_durable(*epoch) || log.wal.is_failed(),
            _ => false,
        }
    }

    /// Does what waited for epochs that are durable now. Returns true if there was anything.
    pub(super) fn step_hardening(&self, worker: &Rc<EngineWorker>) -> bool {
        if self.hardening.waiting.borrow().is_empty() {
            return false;
        }
        let Some(log) = log(worker) else { return false };
        if log.wal.is_failed() {
            self.give_up(worker);
            return true;
        }
        let mut found = false;
        loop {
            let mut waiting = self.hardening.waiting.borrow_mut();
            match waiting.front() {
                Some((epoch, _)) if log.is_durable(*epoch) => {}
                Some(_) if !found && worker.ready_len() == 0 => {
                    log.wal.hurry(worker.id());
                    return false;
                }
                _ => return found,
            }
            let due = waiting.pop_front().map(|(_, due)| due);
            drop(waiting);
            found = true;
            due.into_iter().for_each(|due| self.perform(due));
        }
    }

    /// Leaves the others after the WAL has failed: what they wait for never becomes durable.
    #[cold]
    fn give_up(&self, worker: &Rc<EngineWorker>) {
        self.hardening.waiting.borrow_mut().clear();
        let links: Vec<Rc<Link>> = self.links.borrow().clone();
        for link in links {
            lose_link(worker, self, &link, "the WAL of this instance has failed");
        }
    }
}

/// Logs that a subordinate is prepared. Returns the epoch that has to be durable before it votes; zero if nothing is logged.
pub(super) fn log_prepared(worker: &EngineWorker, prepared: &Prepared) -> Result<Epoch, Abort> {
    let Some(log) = log(worker) else { return Ok(Epoch(0)) };
    if log.wal.is_failed() {
        return Err(log.wal.refusal());
    }
    log.commit(worker, &record_of(Note::Prepared { of: prepared.of, rows: &prepared.rows }))
}

/// Logs that a prepared subordinate has aborted, which nobody waits for.
pub(super) fn log_aborted(worker: &EngineWorker, of: GlobalId) {
    if let Some(log) = log(worker) {
        // Not refused, however full the buffer is: its locks are released, and recovery would find it prepared beside another one.
        let _ = log.commit_decided(worker, &record_of(Note::Ended { of, commit: false }));
    }
}

/// Returns the note on the end of a prepared subordinate that commits.
pub(super) fn ended(of: GlobalId) -> Vec<u8> {
    record_of(Note::Ended { of, commit: true })
}

/// Returns the note on the decision that `instances` commit, as they have prepared.
pub(super) fn decided(peers: &Peers, txn: TxnId, instances: &[InstanceId]) -> Vec<u8> {
    record_of(Note::Decided { of: peers.own_id(txn), instances: &encode_instances(instances) })
}

/// Keeps a decision that was logged in `epoch`, and tells the instances when it is durable.
pub(super) fn keep_decision(
    worker: &EngineWorker,
    peers: &Peers,
    txn: TxnId,
    epoch: Epoch,
    instances: SmallVec<[InstanceId; 2]>,
) {
    let of = peers.own_id(txn);
    peers.hardening.decided.borrow_mut().insert(of, Decision { instances, is_durable: false });
    peers.reached(CommitStep::DecisionLogged);
    peers.when_durable(worker, epoch, Due::Tell(of));
}

/// Refuses a message about a transaction whose home is another worker.
fn check_home(worker: &EngineWorker, peers: &Peers, of: GlobalId) -> Result<(), String> {
    if of.instance == peers.instance.0 && home_of(TxnId(of.txn)) == worker.id() {
        return Ok(());
    }
    Err("it speaks of a transaction that this worker cannot have begun".to_owned())
}

/// Takes in an acknowledgement, at the home.
pub(super) fn on_ended(
    worker: &EngineWorker,
    peers: &Peers,
    from: InstanceId,
    of: GlobalId,
) -> Result<(), String> {
    check_home(worker, peers, of)?;
    let mut decided = peers.hardening.decided.borrow_mut();
    let Some(decision) = decided.get_mut(&of) else { return Ok(()) };
    decision.instances.retain(|instance| *instance != from);
    if decision.instances.is_empty() {
        decided.remove(&of);
        if let Some(log) = log(worker) {
            // Without it, the outcome is told once more after a crash.
            let _ = log.commit(worker, &record_of(Note::Forgotten { of }));
            peers.reached(CommitStep::Forgotten);
        }
    }
    Ok(())
}

/// Answers the question for an outcome, at the home.
pub(super) fn on_ask(
    worker: &EngineWorker,
    peers: &Peers,
    from: InstanceId,
    of: GlobalId,
) -> Result<(), String> {
    check_home(worker, peers, of)?;
    let commit = match peers.hardening.decided.borrow().get(&of) {
        // It is told when it is durable.
        Some(decision) if !decision.is_durable => return Ok(()),
        Some(_) => true,
        None => false,
    };
    if !commit && of == peers.own_id(TxnId(of.txn)) {
        // If it has not ended it was doomed when the link did, which is made sure here.
        if let Some(state) = worker.shard().active.borrow().get(&TxnId(of.txn)) {
            state.doom(&super::unreachable(from));
        }
    }
    let _ = peers.send(from, &Message::Outcome { of, commit });
    Ok(())
}

/// Asks for the outcomes of what is in doubt, and tells those that were decided here, as far as it goes by a link that was added.
pub(super) fn on_linked(peers: &Peers, link: &Link) {
    let doubts = peers.hardening.in_doubt.borrow();
    let is_there =
        |of: &&GlobalId| of.instance == link.instance.0 && home_of(TxnId(of.txn)).index() == link.number;
    for of in doubts.keys().filter(is_there) {
        let _ = peers.send_on(link, &Message::Ask { of: *of });
    }
    if !link.is_own {
        return;
    }
    for (of, decision) in peers.hardening.decided.borrow().iter() {
        if decision.is_durable && decision.instances.contains(&link.instance) {
            let _ = peers.send_on(link, &Message::Outcome { of: *of, commit: true });
        }
    }
}

/// Acknowledges an outcome that finds nothing to do: what it has ended before may not be durable yet.
pub(super) fn acknowledge_again(worker: &EngineWorker, peers: &Peers, of: GlobalId) {
    let epoch = log(worker).map_or(Epoch(0), |log| log.wal.epoch());
    if let Some(log) = log(worker).filter(|log| !log.is_durable(epoch)) {
        log.wal.want(epoch);
    }
    peers.when_durable(worker, epoch, Due::Acknowledge(of));
}

/// Logs what is in doubt or not acknowledged again, since the WAL so far is to be removed. A full buffer does not refuse it: it
/// would keep the WAL from ever becoming shorter.
pub fn log_again(worker: &Rc<EngineWorker>) {
    let (Some(peers), Some(log)) = (worker.shard().peers.get(), log(worker)) else { return };
    if planted(Bug::InDoubtNotLoggedAgain) {
        return;
    }
    let again = |note: Note<'_>| {
        let _ = log.commit_decided(worker, &record_of(note));
    };
    let prepared = |prepared: &Prepared| again(Note::Prepared { of: prepared.of, rows: &prepared.rows });
    peers.hardening.in_doubt.borrow().values().for_each(|doubt| prepared(&doubt.prepared));
    subordinate::each_prepared(peers, prepared);
    for (of, decision) in peers.hardening.decided.borrow().iter() {
        again(Note::Decided { of: *of, instances: &encode_instances(&decision.instances) });
    }
}

/// Keeps a decision that was found in the WAL, and not acknowledged by all.
pub fn recover_decision(worker: &Rc<EngineWorker>, of: GlobalId, instances: &[u8]) {
    let Some(peers) = worker.shard().peers.get() else { return };
    let instances = instances.chunks_exact(2).map(|pair| InstanceId(u16::from_le_bytes([pair[0], pair[1]])));
    let decision = Decision { instances: instances.collect(), is_durable: true };
    peers.hardening.decided.borrow_mut().insert(of, decision);
}

/// Returns the transactions in doubt, and the decisions that were not acknowledged, on this worker.
#[must_use]
pub fn unresolved(worker: &Rc<EngineWorker>) -> (Vec<GlobalId>, Vec<GlobalId>) {
    let Some(peers) = worker.shard().peers.get() else { return (Vec::new(), Vec::new()) };
    let in_doubt = peers.hardening.in_doubt.borrow().keys().copied().collect();
    let decided = peers.hardening.decided.borrow().keys().copied().collect();
    (in_doubt, decided)
}
