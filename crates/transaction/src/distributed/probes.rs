//! Deadlock detection across instances: probes that leave an instance, and those that arrive ([`crate::deadlock`]).
//!
//! Never: looks at a lock table.

use std::rc::Rc;

use atrapos_partition::routing::InstanceId;
use atrapos_storage::lock::TxnId;

use super::wire::{GlobalProbe, Message};
use super::{GlobalTxn, Peers, check_own};
use crate::deadlock;
use crate::messages;
use crate::shard::{EngineWorker, Shard};
use crate::tx::TxnState;

/// Returns the identity of a transaction of this instance in its deployment: that of its coordinator for a subordinate.
pub(crate) fn identity(shard: &Shard, state: &TxnState, txn: TxnId) -> GlobalTxn {
    let instance = shard.peers.get().map_or(InstanceId(0), Peers::instance);
    state.coordinator.get().unwrap_or(GlobalTxn { instance, txn })
}

/// Sends a probe to the subordinates of a transaction for which others wait.
pub(crate) fn send_to_subordinates(
    worker: &EngineWorker,
    state: &TxnState,
    probe: GlobalProbe,
    waiter: TxnId,
) {
    let message = Message::Probe { probe, waiter };
    each_subordinate(worker, state, &message);
}

/// Has the subordinates of a victim stop waiting.
pub(crate) fn refuse_at_subordinates(worker: &EngineWorker, state: &TxnState, round: u64, victim: TxnId) {
    each_subordinate(worker, state, &Message::RefuseWaits { round, txn: victim });
}

fn each_subordinate(worker: &EngineWorker, state: &TxnState, message: &Message<'_>) {
    let (Some(peers), remote) = (worker.shard().peers.get(), state.remote.borrow()) else { return };
    for instance in remote.iter().flat_map(|remote| remote.instances()) {
        // A probe that is lost with its link has nothing to find.
        let _ = peers.send(instance, message);
    }
}

/// Sends a probe to the home of a coordinator.
pub(crate) fn send_home(worker: &EngineWorker, coordinator: GlobalTxn, probe: GlobalProbe) {
    if let Some(peers) = worker.shard().peers.get() {
        let _ = peers.send_home(coordinator, &Message::ProbeHome { probe, met: coordinator.txn });
    }
}

/// Tells the home of a victim, in whatever instance, that it breaks a cycle. If that instance cannot be reached from here, as the cycle
/// goes through others, the initiator of the probe breaks it, which is in the cycle too, and has its home or a subordinate here.
pub(crate) fn send_victim(worker: &EngineWorker, round: u64, victim: GlobalTxn, initiator: GlobalTxn) {
    for chosen in [victim, initiator] {
        let told = match worker.shard().peers.get() {
            Some(peers) if peers.instance() != chosen.instance => {
                peers.send(chosen.instance, &Message::Victim { round, txn: chosen.txn }).is_ok()
            }
            _ => {
                messages::send_victim(worker, round, chosen.txn);
                true
            }
        };
        if told {
            return;
        }
    }
}

/// Follows what the subordinate of a transaction waits for.
pub(super) fn on_probe(
    worker: &Rc<EngineWorker>,
    peers: &Peers,
    from: InstanceId,
    probe: GlobalProbe,
    waiter: TxnId,
) {
    let known = peers.subordinates.borrow().get(&(from, waiter)).map(|known| Rc::clone(&known.state));
    if let Some(state) = known {
        worker.shard().ages.observe(probe.youngest.0);
        deadlock::pass_on(worker, &state, probe, state.txn());
    }
}

/// Receives a probe for a coordinator of this instance.
pub(super) fn on_probe_home(worker: &Rc<EngineWorker>, probe: GlobalProbe, met: TxnId) -> Result<(), String> {
    check_own(worker, met)?;
    messages::send_probe_home(worker, probe, met);
    Ok(())
}

/// Receives the choice of a victim of this instance.
pub(super) fn on_victim(worker: &Rc<EngineWorker>, round: u64, victim: TxnId) -> Result<(), String> {
    check_own(worker, victim)?;
    messages::send_victim(worker, round, victim);
    Ok(())
}

/// Has the subordinate of a victim stop waiting.
pub(super) fn on_refuse_waits(
    worker: &Rc<EngineWorker>,
    peers: &Peers,
    from: InstanceId,
    round: u64,
    victim: TxnId,
) {
    let known = peers.subordinates.borrow().get(&(from, victim)).map(|known| Rc::clone(&known.state));
    if let Some(state) = known {
        deadlock::on_victim(worker, round, state.txn());
    }
}
