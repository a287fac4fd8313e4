//! [`Peers`]: the parts that a client's transaction has in other instances.
//!
//! Owns: the client's links, which are made when they are first needed, and what is to be told by each with the next request: the rows
//! that were replaced. Never: decides how a transaction ends.
//!
//! Invariant: a part that has aborted is closed on both sides; so is one whose link has ended.

use std::collections::BTreeMap;

use atrapos_channel::ChannelError;
use atrapos_durability::wal::GlobalId;
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::routing::InstanceId;
use atrapos_partition::schema::TableId;
use atrapos_storage::KeyBuf;

use super::Shared;
use super::line::Line;
use super::wire::{Operation, Reader, Replaced, Request, reply};
use crate::planted::{Bug, planted};

/// The parts of the running transaction, and the links to the instances that they are in.
pub(super) struct Peers<'e> {
    shared: &'e Shared,
    /// One for each instance; that of this one is never used.
    all: Vec<Peer>,
    age: u64,
    request: Vec<u8>,
}

/// Another instance.
#[derive(Default)]
struct Peer {
    line: Option<Line>,
    /// Set if the running transaction has a part there.
    is_open: bool,
    /// Set if the other instance was told of an end since it has answered last.
    is_unsettled: bool,
    /// Commits that it was told of on this link and has not acknowledged, if it logs.
    unacknowledged: Vec<GlobalId>,
    /// Set if that part has changed something.
    has_changes: bool,
    /// Rows that were replaced since the last request.
    replaced: BTreeMap<(TableId, KeyBuf), Vec<u8>>,
    reply: Vec<u8>,
}

impl Peer {
    fn close(&mut self) {
        self.is_open = false;
        self.has_changes = false;
        self.replaced.clear();
    }
}

/// Returns the abort of a transaction that cannot reach one of its parts.
fn unreachable(instance: InstanceId, why: &str) -> Abort {
    let sentence = format!(
        "{instance} cannot be reached, and the transaction needs rows of it: {why}; see whether it runs"
    );
    Abort::explained(AbortReason::Unreachable, sentence)
}

impl<'e> Peers<'e> {
    pub(super) fn new(shared: &'e Shared) -> Peers<'e> {
        let all = (0..shared.options.instances).map(|_| Peer::default()).collect();
        Peers { shared, all, age: 0, request: Vec::new() }
    }

    /// Begins a transaction, which has no parts yet.
    pub(super) fn begin(&mut self, age: u64) {
        self.age = age;
    }

    /// The instances in which the transaction has parts with changes, or without.
    pub(super) fn parts(&self, has_changes: bool) -> Vec<InstanceId> {
        let of_kind = |at: &usize| self.all[*at].is_open && self.all[*at].has_changes == has_changes;
        (0..self.all.len()).filter(of_kind).map(|at| InstanceId(at as u16)).collect()
    }

    /// Returns true if the transaction has a part anywhere.
    pub(super) fn is_open(&self) -> bool {
        self.all.iter().any(|peer| peer.is_open)
    }

    /// Notes that the part in an instance has changed something.
    pub(super) fn note_change(&mut self, instance: InstanceId) {
        self.all[usize::from(instance.0)].has_changes = true;
    }

    /// Notes the new row of a key, which the transaction has read to replace it.
    ///
    /// # Errors
    /// Fails if the transaction has read nothing there.
    pub(super) fn replace(
        &mut self,
        instance: InstanceId,
        table: TableId,
        key: &[u8],
        row: &[u8],
    ) -> Result<(), Abort> {
        let peer = &mut self.all[usize::from(instance.0)];
        if !peer.is_open {
            return Err(Abort::because(AbortReason::Misuse, "a row was to be replaced that is not there"));
        }
        peer.has_changes = true;
        peer.replaced.insert((table, KeyBuf::from(key)), row.to_vec());
        Ok(())
    }

    /// Returns the new row of a key, if the other instance has not been told of it.
    pub(super) fn replaced(&self, instance: InstanceId, table: TableId, key: &[u8]) -> Option<&[u8]> {
        let replaced = &self.all[usize::from(instance.0)].replaced;
        if replaced.is_empty() {
            return None;
        }
        replaced.get(&(table, KeyBuf::from(key))).map(Vec::as_slice)
    }

    /// Asks an instance for an operation, and waits for what it returns.
    pub(super) fn call(
        &mut self,
        instance: InstanceId,
        operation: &Operation<'_>,
    ) -> Result<Reader<'_>, Abort> {
        self.send(instance, operation)?;
        self.wait(instance)?;
        // It was read once before.
        match reply(&self.all[usize::from(instance.0)].reply) {
            Ok(Ok(returned)) => Ok(returned),
            Ok(Err(abort)) => Err(abort),
            Err(nonsense) => Err(unreachable(instance, nonsense)),
        }
    }

    /// Asks several instances for an operation at the same time, and waits for all.
    ///
    /// # Errors
    /// Fails with the first abort, when all have answered.
    pub(super) fn call_all(
        &mut self,
        instances: &[InstanceId],
        operation: &Operation<'_>,
    ) -> Result<(), Abort> {
        let mut outcome = Ok(());
        let sent: Vec<InstanceId> = instances
            .iter()
            .copied()
            .filter(|instance| {
                let sent = self.send(*instance, operation);
                let is_sent = sent.is_ok();
                outcome = std::mem::replace(&mut outcome, Ok(())).and(sent);
                is_sent
            })
            .collect();
        for instance in sent {
            let answered = self.wait(instance).and_then(|()| self.note_vote(instance, operation));
            outcome = outcome.and(answered);
        }
        if planted(Bug::VotesNotHeeded) { Ok(()) } else { outcome }
    }

    /// Notes that a part has ended with its vote, if it has no changes.
    fn note_vote(&mut self, instance: InstanceId, operation: &Operation<'_>) -> Result<(), Abort> {
        if !matches!(operation, Operation::Validate(_) | Operation::Prepare(_)) {
            return Ok(());
        }
        self.acknowledge(instance);
        let read = |returned: Result<Reader<'_>, Abort>| {
            let mut returned = returned.map_err(|_| "it has a vote that is none")?;
            returned.bool()
        };
        match reply(&self.all[usize::from(instance.0)].reply).and_then(read) {
            Ok(true) => {
                self.note_change(instance);
                Ok(())
            }
            Ok(false) => {
                self.close(instance);
                Ok(())
            }
            Err(nonsense) => Err(self.cut_nonsense(instance, nonsense)),
        }
    }

    /// Notes that everything is durable that an instance was told before it has answered last.
    fn acknowledge(&mut self, instance: InstanceId) {
        if let Some(hardening) = self.shared.hardening() {
            hardening.acknowledge(instance, &mut self.all[usize::from(instance.0)].unacknowledged);
        }
    }

    /// Tells an instance that a prepared part commits, and keeps in mind that it has to acknowledge it.
    pub(super) fn end_committed(&mut self, instance: InstanceId, id: GlobalId) {
        self.end(instance, &Operation::Commit);
        let peer = &mut self.all[usize::from(instance.0)];
        // Without a link it will ask.
        if peer.line.is_some() {
            peer.unacknowledged.push(id);
        }
        if planted(Bug::ForgottenWhenTold) {
            self.acknowledge(instance);
        }
    }

    /// Cuts the links to all instances off without a word.
    pub(super) fn cut_all(&mut self) {
        for peer in &mut self.all {
            peer.line = None;
            peer.close();
        }
    }

    /// Tells an instance how its part ends, which closes it. There is no answer, and who cannot be reached has lost its data, or asks.
    pub(super) fn end(&mut self, instance: InstanceId, operation: &Operation<'_>) {
        if *operation != Operation::Abort || !planted(Bug::AbortNotSent) {
            let _ = self.send(instance, operation);
            self.all[usize::from(instance.0)].is_unsettled = true;
        }
        self.close(instance);
    }

    /// Notes that the part in an instance has ended.
    pub(super) fn close(&mut self, instance: InstanceId) {
        self.all[usize::from(instance.0)].close();
    }

    /// Aborts all parts.
    pub(super) fn abort(&mut self) {
        for at in 0..self.all.len() {
            if self.all[at].is_open {
                self.all[at].replaced.clear();
                self.end(InstanceId(at as u16), &Operation::Abort);
            } else {
                self.all[at].close();
            }
        }
    }

    /// Sends an operation, with the rows that were replaced before it.
    fn send(&mut self, instance: InstanceId, operation: &Operation<'_>) -> Result<(), Abort> {
        let peer = &mut self.all[usize::from(instance.0)];
        let rows = peer.replaced.iter().map(|((table, key), row)| Replaced { table: *table, key, row });
        Request::encode(&mut self.request, self.age, rows, operation);
        peer.replaced.clear();
        let line = match &mut peer.line {
            Some(line) => line,
            None if peer.is_open => return Err(unreachable(instance, "its link has ended")),
            None => {
                let connected = self.shared.connect(instance);
                let line = connected.map_err(|error| unreachable(instance, &error.to_string()))?;
                peer.line.insert(line)
            }
        };
        let sent = line.send(&self.request);
        peer.is_open = true;
        sent.map_err(|error| self.cut(instance, &error))
    }

    /// Waits for the answer of an instance, which is in its buffer then.
    fn wait(&mut self, instance: InstanceId) -> Result<(), Abort> {
        let peer = &mut self.all[usize::from(instance.0)];
        let Some(line) = &mut peer.line else { return Err(unreachable(instance, "its link has ended")) };
        if let Err(error) = line.receive(&mut peer.reply, None) {
            return Err(self.cut(instance, &error));
        }
        peer.is_unsettled = false;
        match reply(&peer.reply) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(abort)) => {
                peer.close();
                Err(abort)
            }
            Err(nonsense) => Err(self.cut(instance, &ChannelError::Nonsense(nonsense.to_owned()))),
        }
    }

    /// Cuts the link to an instance off, where the part of the transaction aborts. A message that is too long leaves the link as it was; the
    /// part there is told.
    fn cut(&mut self, instance: InstanceId, error: &ChannelError) -> Abort {
        let peer = &mut self.all[usize::from(instance.0)];
        if let ChannelError::TooLong { .. } = error {
            return Abort::explained(AbortReason::TransactionTooLarge, error.to_string());
        }
        peer.line = None;
        // What was told last may be lost: it stays known to who asks.
        peer.unacknowledged.clear();
        peer.close();
        unreachable(instance, &error.to_string())
    }

    /// Cuts off who has sent an answer that makes no sense.
    pub(super) fn cut_nonsense(&mut self, instance: InstanceId, nonsense: &str) -> Abort {
        self.cut(instance, &ChannelError::Nonsense(nonsense.to_owned()))
    }
}

impl Drop for Peers<'_> {
    /// Waits until the ends of all transactions are done everywhere: whoever looks at the data of all instances sees them.
    fn drop(&mut self) {
        self.abort();
        for at in 0..self.all.len() {
            if self.all[at].is_unsettled && self.all[at].line.is_some() {
                // Who cannot be reached has lost its data, or asks.
                let instance = InstanceId(at as u16);
                if self.call(instance, &Operation::Settle).is_ok() {
                    self.acknowledge(instance);
                }
            }
        }
    }
}
