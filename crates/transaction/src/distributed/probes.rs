//! Deadlock detection across instances: probes that leave an instance, and those that arrive ([`crate::deadlock`]).
//!
//! Invariant: a message about a transaction of an earlier incarnation of this instance's database is about none that is active, and
//! finds nothing to do.
//!
//! Never: looks at a lock table.

use std::rc::Rc;

use atrapos_durability::wal::GlobalId;
use atrapos_partition::planted::{Bug, planted};
use atrapos_partition::routing::InstanceId;
use atrapos_storage::lock::TxnId;

use super::wire::{GlobalProbe, Message};
use super::{Peers, check_own};
use crate::deadlock;
use crate::messages;
use crate::shard::{EngineWorker, Shard};
use crate::tx::TxnState;

/// Returns the identity of a transaction of this instance in its deployment: that of its coordinator for a subordinate.
pub(crate) fn identity(shard: &Shard, state: &TxnState, txn: TxnId) -> GlobalId {
    state.coordinator.get().unwrap_or_else(|| own_identity(shard, txn))
}

/// Returns the identity of a number of this instance and incarnation.
pub(crate) fn own_identity(shard: &Shard, txn: TxnId) -> GlobalId {
    let alone = GlobalId { instance: 0, incarnation: 0, txn: txn.0 };
    shard.peers.get().map_or(alone, |peers| peers.own_id(txn))
}

/// Returns true if both are the same transaction.
pub(crate) fn are_same(one: GlobalId, other: GlobalId) -> bool {
    one == other || planted(Bug::IncarnationIgnored) && (one.instance, one.txn) == (other.instance, other.txn)
}

/// Returns the number of a transaction of this instance, if it is of this incarnation.
fn own_number(peers: &Peers, of: GlobalId) -> Option<TxnId> {
    let txn = TxnId(of.txn);
    are_same(of, peers.own_id(txn)).then_some(txn)
}

/// Sends a probe to the subordinates of a transaction for which others wait.
pub(crate) fn send_to_subordinates(
    worker: &EngineWorker,
    state: &TxnState,
    probe: GlobalProbe,
    waiter: TxnId,
) {
    let waiter = identity(worker.shard(), state, waiter);
    each_subordinate(worker, state, &Message::Probe { probe, waiter });
}

/// Has the subordinates of a victim stop waiting.
pub(crate) fn refuse_at_subordinates(worker: &EngineWorker, state: &TxnState, round: u64, victim: TxnId) {
    let victim = identity(worker.shard(), state, victim);
    each_subordinate(worker, state, &Message::RefuseWaits { round, victim });
}

fn each_subordinate(worker: &EngineWorker, state: &TxnState, message: &Message<'_>) {
    let (Some(peers), remote) = (worker.shard().peers.get(), state.remote.borrow()) else { return };
    for instance in remote.iter().flat_map(|remote| remote.instances()) {
        // A probe that is lost with its link has nothing to find.
        let _ = peers.send(instance, message);
    }
}

/// Sends a probe to the home of a coordinator.
pub(crate) fn send_home(worker: &EngineWorker, coordinator: GlobalId, probe: GlobalProbe) {
    if let Some(peers) = worker.shard().peers.get() {
        let _ = peers.send_home(coordinator, &Message::ProbeHome { probe, met: coordinator });
    }
}

/// Tells the home of a victim, in whatever instance, that it breaks a cycle. If that instance cannot be reached from here, as the cycle
/// goes through others, the initiator of the probe breaks it, which is in the cycle too, and has its home or a subordinate here.
pub(crate) fn send_victim(worker: &EngineWorker, round: u64, victim: GlobalId, initiator: GlobalId) {
    for chosen in [victim, initiator] {
        let told = match worker.shard().peers.get() {
            Some(peers) if peers.instance.0 != chosen.instance => {
                peers.send(InstanceId(chosen.instance), &Message::Victim { round, victim: chosen }).is_ok()
            }
            Some(peers) => {
                if let Some(own) = own_number(peers, chosen) {
                    messages::send_victim(worker, round, own);
                }
                true
            }
            None => {
                messages::send_victim(worker, round, TxnId(chosen.txn));
                true
            }
        };
        if told {
            return;
        }
    }
}

/// Returns the subordinate of a transaction of another instance.
fn subordinate_of(peers: &Peers, from: InstanceId, of: GlobalId) -> Option<Rc<TxnState>> {
    let subordinates = peers.subordinates.borrow();
    let known = subordinates.get(&(from, TxnId(of.txn)))?;
    let is_its = known.state.coordinator.get().is_some_and(|coordinator| are_same(coordinator, of));
    is_its.then(|| Rc::clone(&known.state))
}

/// Follows what the subordinate of a transaction waits for.
pub(super) fn on_probe(
    worker: &Rc<EngineWorker>,
    peers: &Peers,
    from: InstanceId,
    probe: GlobalProbe,
    waiter: GlobalId,
) {
    if let Some(state) = subordinate_of(peers, from, waiter) {
        worker.shard().ages.observe(probe.youngest.0);
        deadlock::pass_on(worker, &state, probe, state.txn());
    }
}

/// Receives a probe for a coordinator of this instance.
pub(super) fn on_probe_home(
    worker: &Rc<EngineWorker>,
    peers: &Peers,
    probe: GlobalProbe,
    met: GlobalId,
) -> Result<(), String> {
    check_own(worker, peers, met)?;
    if let Some(own) = own_number(peers, met) {
        messages::send_probe_home(worker, probe, own);
    }
    Ok(())
}

/// Receives the choice of a victim of this instance.
pub(super) fn on_victim(
    worker: &Rc<EngineWorker>,
    peers: &Peers,
    round: u64,
    victim: GlobalId,
) -> Result<(), String> {
    check_own(worker, peers, victim)?;
    if let Some(own) = own_number(peers, victim) {
        messages::send_victim(worker, round, own);
    }
    Ok(())
}

/// Has the subordinate of a victim stop waiting.
pub(super) fn on_refuse_waits(
    worker: &Rc<EngineWorker>,
    peers: &Peers,
    from: InstanceId,
    round: u64,
    victim: GlobalId,
) {
    if let Some(state) = subordinate_of(peers, from, victim) {
        deadlock::on_victim(worker, round, state.txn());
    }
}
