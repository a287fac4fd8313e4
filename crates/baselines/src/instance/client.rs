//! [`InstanceClient`]: a thread's access to all instances, and the end of its transactions.
//!
//! Owns: the two phases of a commit, in the order in which locks, validation and decision make it serializable. Never: waits for a
//! part while it decides: when all votes are in, the commit of the home is the decision, and with a log its record
//! ([`hardening`](super::hardening)).
//!
//! # Order
//! - *With locks* all locks are held when the procedure has ended. So all parts are asked to prepare at once; one without changes
//!   releases its locks then.
//! - *Optimistic* parts lock what they write, and everything that was read is validated after the last of these locks (as in FaRM:
//!   Dragojević et al., "No compromises", SOSP 2015). If a part validated before another one had locked, two transactions
//!   could each write what the other one has read. The home locks first; a single other part with changes locks and validates by one
//!   message; several ones lock first and validate by another message, with those that have only read.
//! - *One phase* is enough for a transaction that has a single part elsewhere and none at home.

use super::hardening::Hardening;
use super::peers::Peers;
use super::routed::Routed;
use super::steps::CommitStep;
use super::wire::Operation;
use super::{AGES, Shared};
use crate::durable::ClientLog;
use crate::log::Ticket;
use crate::planted::{Place, at};
use crate::redo::CommitLog;
use crate::rows::Branch;
use crate::session::{Attempt, BranchBody, EngineClient};
use atrapos_durability::wal::GlobalId;
use atrapos_partition::abort::{Abort, AbortReason, Advice};

/// A client of the engine of an instance, whose transactions may access rows of all instances.
pub(super) struct InstanceClient<'e> {
    shared: &'e Shared,
    client: Box<dyn EngineClient + 'e>,
    peers: Peers<'e>,
    /// The next age, and how many the client has before it takes others.
    next_age: u64,
    ages: u64,
    /// The age of the transaction.
    age: u64,
    tries_again: bool,
    /// None if the data of the instance are in memory.
    log: Option<ClientLog<'e>>,
}

impl<'e> InstanceClient<'e> {
    pub(super) fn new(shared: &'e Shared) -> InstanceClient<'e> {
        let (client, peers) = (shared.engine.client(), Peers::new(shared));
        let log = shared.hardening().map(Hardening::client);
        InstanceClient { shared, client, peers, next_age: 0, ages: 0, age: 0, tries_again: false, log }
    }

    /// Returns the age of the next transaction: that of the last one, if it is another attempt of it.
    fn draw_age(&mut self) -> u64 {
        if !std::mem::take(&mut self.tries_again) {
            if self.ages == 0 {
                (self.next_age, self.ages) = (self.shared.take_ages(), AGES);
            }
            self.age = self.shared.unique_age(self.next_age);
            self.next_age += 1;
            self.ages -= 1;
        }
        self.age
    }
}

impl EngineClient for InstanceClient<'_> {
    fn attempt(&mut self, body: &mut Attempt<'_>) -> Result<(), Abort> {
        let age = self.draw_age();
        let InstanceClient { shared, client, peers, log, .. } = self;
        peers.begin(age);
        let ended = client.run_branch(age, &mut |branch: &mut dyn Branch| {
            let mut routed = Routed::new(shared, branch, peers);
            match body(&mut routed).and_then(|()| commit(&mut routed, log.as_mut())) {
                Ok(ended) => ended,
                Err(abort) => Err(end_aborted(&mut routed, abort)),
            }
        });
        let Some(log) = log else { return ended };
        let ended = log.ended(ended);
        shared.check_alive().and(ended)
    }

    fn attempt_logged(&mut self, body: &mut Attempt<'_>, _log: &mut ClientLog<'_>) -> Result<(), Abort> {
        // An instance has its own log.
        self.attempt(body)
    }

    fn run_branch(&mut self, _age: u64, _body: &mut BranchBody<'_>) -> Result<(), Abort> {
        let why =
            "the transactions of an instance are no parts of others; begin them in the engine within it";
        Err(Abort::because(AbortReason::Misuse, why))
    }

    fn back_off(&mut self, attempt: u32) {
        self.tries_again = true;
        // Who is in the way may wait for a message, and no lock is kept in the meantime.
        match attempt {
            0..=4 => std::thread::yield_now(),
            _ => std::thread::sleep(BACK_OFF * (1 << (attempt - 5).min(6))),
        }
    }

    fn set_pipelined(&mut self, pipelined: bool) {
        if let Some(log) = &mut self.log {
            log.pipelined = pipelined;
        }
    }

    fn take_ticket(&mut self) -> Ticket {
        self.log.as_mut().map_or(Ticket::default(), |log| std::mem::take(&mut log.outcome))
    }

    fn is_acknowledged(&self, ticket: Ticket) -> bool {
        self.log.as_ref().is_none_or(|log| log.log.durable() >= ticket.lsn())
    }

    fn acknowledged(&self, ticket: Ticket) -> Result<(), Abort> {
        self.log.as_ref().map_or(Ok(()), |log| log.log.wait(ticket))?;
        self.shared.check_alive()
    }
}

/// The first sleep between two attempts.
const BACK_OFF: std::time::Duration = std::time::Duration::from_micros(20);

/// Commits a transaction in all its parts. Returns its outcome when it has ended everywhere, or ends without this client.
///
/// # Errors
/// Fails if it has to abort in all its parts.
fn commit(
    routed: &mut Routed<'_, '_>,
    mut log: Option<&mut ClientLog<'_>>,
) -> Result<Result<(), Abort>, Abort> {
    let Routed { shared, branch, peers, is_local, .. } = routed;
    if !peers.is_open() {
        return branch.commit_alone(log).map(Ok);
    }
    let parts = [peers.parts(true), peers.parts(false)].concat();
    if let ([only], false) = (&parts[..], *is_local) {
        let committed = peers.call_all(&[*only], &Operation::CommitAlone);
        let committed = committed.map_err(|abort| lost_alone(abort, log.is_some()));
        if committed.as_ref().is_err_and(|abort| abort.reason() != AbortReason::OutcomeUnknown) {
            return committed.map(Ok);
        }
        peers.close(*only);
        branch.commit();
        if let Some(log) = &mut log {
            // It has read and written nothing here.
            log.note_written(Ticket::default());
        }
        return Ok(committed);
    }
    let id = shared.hardening().map_or(NO_COMMIT, Hardening::begin_commit);
    let voted = if branch.is_optimistic() {
        lock_and_validate(*branch, peers, id)
    } else {
        branch.lock().and_then(|()| peers.call_all(&parts, &Operation::Prepare(id)))
    };
    let Some((hardening, log)) = shared.hardening().zip(log) else {
        voted?;
        at(Place::BeforeDecision);
        branch.commit();
        // Those without changes have ended with their votes.
        peers.parts(true).into_iter().for_each(|writer| peers.end(writer, &Operation::Commit));
        return Ok(Ok(()));
    };
    voted.inspect_err(|_| hardening.give_up(id))?;
    at(Place::BeforeDecision);
    if shared.stops.reached(CommitStep::VotesIn) {
        peers.cut_all();
        return Ok(shared.check_alive());
    }
    decide(routed, id, (hardening, log))
}

/// Decides to commit, when all votes are there, and tells the parts when that is durable.
fn decide(
    routed: &mut Routed<'_, '_>,
    id: GlobalId,
    (hardening, log): (&Hardening, &mut ClientLog<'_>),
) -> Result<Result<(), Abort>, Abort> {
    let Routed { shared, branch, peers, .. } = routed;
    let writers = peers.parts(true);
    if writers.is_empty() {
        // A commit of its own: nobody asks.
        hardening.give_up(id);
        if branch.has_changes() {
            log.commit(|redo| branch.for_each_change(&mut |table, key, row| redo.change(table, key, row)))?;
        }
        branch.commit();
        return Ok(Ok(()));
    }
    let ticket = hardening.decide(id, &writers, *branch, log).inspect_err(|_| hardening.give_up(id))?;
    branch.commit();
    log.note_written(ticket);
    let mut decided = Ok(());
    if !shared.stops.reached(CommitStep::DecisionLogged) {
        decided = log.log.wait(ticket);
    }
    if decided.is_err() || shared.stops.reached(CommitStep::DecisionDurable) {
        // The parts are in doubt, and ask.
        peers.cut_all();
        return Ok(decided.and_then(|()| shared.check_alive()));
    }
    for writer in writers {
        peers.end_committed(writer, id);
    }
    if shared.stops.reached(CommitStep::Told) {
        peers.cut_all();
    }
    Ok(Ok(()))
}

/// The identity of commits that nobody asks about, as nothing is logged.
const NO_COMMIT: GlobalId = GlobalId { instance: 0, incarnation: 0, txn: 0 };

/// Returns the abort of a transaction that commits in one instance alone: if that cannot be reached any more, and has a log, it may have
/// committed.
fn lost_alone(abort: Abort, is_durable: bool) -> Abort {
    if abort.reason() != AbortReason::Unreachable || !is_durable {
        return abort;
    }
    let sentence = format!("{abort}; whether the transaction has committed there is known when it is back");
    Abort::explained(AbortReason::OutcomeUnknown, sentence)
}

/// Locks what the optimistic parts write, and validates what they have read after that.
fn lock_and_validate(branch: &mut dyn Branch, peers: &mut Peers<'_>, id: GlobalId) -> Result<(), Abort> {
    let (writers, readers) = (peers.parts(true), peers.parts(false));
    branch.lock()?;
    if let [writer] = &writers[..] {
        peers.call_all(&[*writer], &Operation::Prepare(id))?;
        peers.call_all(&readers, &Operation::Validate(id))?;
    } else {
        peers.call_all(&writers, &Operation::Lock)?;
        peers.call_all(&[writers, readers].concat(), &Operation::Validate(id))?;
    }
    branch.validate()
}

/// Aborts a transaction in all its parts. Returns the reason: one that the transaction has concluded is believed only if everything that it
/// has read was there at one moment, and told when that is durable.
fn end_aborted(routed: &mut Routed<'_, '_>, abort: Abort) -> Abort {
    let Routed { shared, branch, peers, .. } = routed;
    let mut cause = abort;
    let confirms = branch.is_optimistic() || shared.hardening().is_some();
    if confirms && cause.reason().advice() != Advice::Retry {
        let open = [peers.parts(true), peers.parts(false)].concat();
        let confirmed = peers.call_all(&open, &Operation::Confirm);
        let confirmed =
            if branch.is_optimistic() { confirmed.and_then(|()| branch.validate()) } else { confirmed };
        cause = confirmed.err().unwrap_or(cause);
    }
    peers.abort();
    branch.abort(&cause);
    cause
}

impl std::fmt::Debug for InstanceClient<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InstanceClient").field("age", &self.age).finish_non_exhaustive()
    }
}
