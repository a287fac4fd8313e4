//! [`InstanceClient`]: a thread's access to all instances, and the end of its transactions.
//!
//! Owns: the two phases of a commit, in the order in which locks, validation and decision make it serializable. Never: waits for a
//! part while it decides: when all votes are in, the commit of the home is the decision.
//!
//! # Order
//! - *With locks* all locks are held when the procedure has ended. So all parts are asked to prepare at once; one without changes
//!   releases its locks then.
//! - *Optimistic* parts lock what they write, and everything that was read is validated after the last of these locks (as in FaRM:
//!   Dragojević et al., "No compromises", SOSP 2015). If a part validated before another one had locked, two transactions
//!   could each write what the other one has read. The home locks first; a single other part with changes locks and validates by one
//!   message; several ones lock first and validate by another message, with those that have only read.
//! - *One phase* is enough for a transaction that has a single part elsewhere and none at home.

use super::peers::Peers;
use super::routed::Routed;
use super::wire::Operation;
use super::{AGES, Shared};
use crate::durable::{ClientLog, NOT_DURABLE};
use crate::planted::{Place, at};
use crate::rows::Branch;
use crate::session::{Attempt, BranchBody, EngineClient};
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
}

impl<'e> InstanceClient<'e> {
    pub(super) fn new(shared: &'e Shared) -> InstanceClient<'e> {
        let (client, peers) = (shared.engine.client(), Peers::new(shared));
        InstanceClient { shared, client, peers, next_age: 0, ages: 0, age: 0, tries_again: false }
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
        let InstanceClient { shared, client, peers, .. } = self;
        peers.begin(age);
        client.run_branch(age, &mut |branch: &mut dyn Branch| {
            let mut routed = Routed::new(shared, branch, peers);
            let ran = body(&mut routed).and_then(|()| commit(&mut routed));
            ran.map_err(|abort| end_aborted(&mut routed, abort))
        })
    }

    fn attempt_logged(&mut self, _body: &mut Attempt<'_>, _log: &mut ClientLog<'_>) -> Result<(), Abort> {
        Err(Abort::because(AbortReason::Misuse, NOT_DURABLE))
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
}

/// The first sleep between two attempts.
const BACK_OFF: std::time::Duration = std::time::Duration::from_micros(20);

/// Commits a transaction in all its parts.
fn commit(routed: &mut Routed<'_, '_>) -> Result<(), Abort> {
    let Routed { branch, peers, is_local, .. } = routed;
    if !peers.is_open() {
        return branch.commit_alone();
    }
    let parts = [peers.parts(true), peers.parts(false)].concat();
    if let ([only], false) = (&parts[..], *is_local) {
        peers.call_all(&[*only], &Operation::CommitAlone)?;
        peers.close(*only);
        branch.commit();
        return Ok(());
    }
    if branch.is_optimistic() {
        lock_and_validate(*branch, peers)?;
    } else {
        branch.lock()?;
        peers.call_all(&parts, &Operation::Prepare)?;
    }
    at(Place::BeforeDecision);
    branch.commit();
    // Those without changes have ended with their votes.
    peers.parts(true).into_iter().for_each(|writer| peers.end(writer, &Operation::Commit));
    Ok(())
}

/// Locks what the optimistic parts write, and validates what they have read after that.
fn lock_and_validate(branch: &mut dyn Branch, peers: &mut Peers<'_>) -> Result<(), Abort> {
    let (writers, readers) = (peers.parts(true), peers.parts(false));
    branch.lock()?;
    if let [writer] = &writers[..] {
        peers.call_all(&[*writer], &Operation::Prepare)?;
        peers.call_all(&readers, &Operation::Validate)?;
    } else {
        peers.call_all(&writers, &Operation::Lock)?;
        peers.call_all(&[writers, readers].concat(), &Operation::Validate)?;
    }
    branch.validate()
}

/// Aborts a transaction in all its parts. Returns the reason: an optimistic one believes what it has concluded only if everything that it
/// has read was there at one moment.
fn end_aborted(routed: &mut Routed<'_, '_>, abort: Abort) -> Abort {
    let Routed { branch, peers, .. } = routed;
    let mut cause = abort;
    if branch.is_optimistic() && cause.reason().advice() != Advice::Retry {
        let open = [peers.parts(true), peers.parts(false)].concat();
        let validated = peers.call_all(&open, &Operation::Validate).and_then(|()| branch.validate());
        cause = validated.err().unwrap_or(cause);
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
