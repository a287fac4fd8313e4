//! Finds transactions that wait for each other in a cycle, and makes one of them give way.
//!
//! Nobody sees the whole waits-for graph: each worker knows the queues of its own lock tables, and each transaction's home
//! knows on which workers the transaction has actions. A transaction that has waited for a while sends a *probe* along
//! the edges (edge chasing: Chandy, Misra and Haas 1983, in its form for transactions that wait for several locks
//! at once). From a queue, the probe goes to the homes of those ahead; from a home, to every worker where that transaction
//! may be waiting. A probe that comes back to the transaction it started from has gone round a cycle. It carries the
//! youngest transaction it has met; only the youngest of a cycle gives way, and its own probe, which it also sends, tells
//! it so: hence one victim per cycle and no agreement between workers.
//!
//! A retried transaction keeps the age of its first attempt, so it is not the youngest for ever.
//!
//! Nothing is sent while nothing waits: probes start only for requests that have waited
//! [`ShardOptions::deadlock_check_after`](crate::shard::ShardOptions), and again each time that much more has passed. A probe may follow an
//! edge that has just vanished; then at worst a transaction that would have gone on is retried.

use std::collections::HashSet;
use std::rc::Rc;

use atrapos_runtime::{Ticks, WorkerId};
use atrapos_storage::lock::{LockOwner, LockTicket};

use crate::abort::AbortReason;
use crate::planted::{Bug, planted};
use crate::shard::{EngineWorker, WaitState};

/// Probes this worker has seen, and when it looks again.
#[derive(Debug, Default)]
pub(crate) struct Probes {
    round: u64,
    next_check: Option<Ticks>,
    /// Transactions each probe has passed here, so that it passes each once. Cleared when a new round starts here and
    /// nothing waits, or when it has grown large.
    seen: HashSet<(u64, LockOwner, LockOwner)>,
}

/// Probes remembered before the memory of them is cleared; forgetting one only lets it pass once more.
const SEEN_MAX: usize = 1 << 16;

/// The age of a transaction; ties are impossible because numbers are unique.
type Age = u64;

/// A message that follows the waits-for graph.
#[derive(Clone, Copy, Debug)]
struct Probe {
    round: u64,
    initiator: LockOwner,
    /// Where the initiator waits.
    started_at: WorkerId,
    ticket: LockTicket,
    /// The youngest transaction met so far.
    youngest: Age,
}

/// The worker a transaction has its home on.
pub(crate) fn home_of(owner: LockOwner) -> WorkerId {
    WorkerId(owner.0 as u16)
}

/// When this worker has to look again, if anything waits.
pub(crate) fn next_check(worker: &Rc<EngineWorker>) -> Option<Ticks> {
    if worker.shard().waits.borrow().is_empty() {
        return None;
    }
    Some(worker.shard().probes.borrow().next_check.unwrap_or(Ticks(0)))
}

/// Starts probes for the requests that have waited long enough. Returns whether it did anything.
pub(crate) fn check_waits(worker: &Rc<EngineWorker>, now: Ticks) -> bool {
    let shard = worker.shard();
    if shard.waits.borrow().is_empty() || planted(Bug::NoDeadlockProbe) {
        return false;
    }
    let after = shard.options.deadlock_check_after;
    let round = {
        let mut probes = shard.probes.borrow_mut();
        match probes.next_check {
            Some(at) if now < at => return false,
            _ => probes.next_check = Some(Ticks(now.0 + after.0)),
        }
        probes.round += 1;
        if probes.seen.len() > SEEN_MAX {
            probes.seen.clear();
        }
        probes.round
    };
    let waiting: Vec<(LockOwner, LockTicket)> = shard
        .waits
        .borrow()
        .iter()
        .filter(|(_, wait)| wait.state == WaitState::Queued && now.0 >= wait.since.0 + after.0)
        .map(|(ticket, wait)| (wait.owner, LockTicket(*ticket)))
        .collect();
    let started = !waiting.is_empty();
    for (owner, ticket) in waiting {
        // The worker's number is part of the round, so that rounds of different workers differ.
        let round = round << 16 | u64::from(worker.id().0);
        let probe = Probe { round, initiator: owner, started_at: worker.id(), ticket, youngest: 0 };
        follow_waits(worker, probe, owner);
    }
    started
}

/// At a worker where `waiter` may wait: passes the probe on to those it waits for here.
fn follow_waits(worker: &Rc<EngineWorker>, probe: Probe, waiter: LockOwner) {
    let shard = worker.shard();
    let mut ahead = Vec::new();
    {
        let waits = shard.waits.borrow();
        let tables = shard.tables.borrow();
        for (ticket, wait) in waits.iter() {
            if wait.owner == waiter && wait.state == WaitState::Queued {
                let locks = &tables.partition(wait.place).locks;
                locks.blockers(waiter, &wait.target, LockTicket(*ticket), &mut ahead);
            }
        }
    }
    ahead.sort_unstable();
    ahead.dedup();
    for blocker in ahead {
        if shard.probes.borrow_mut().seen.insert((probe.round, probe.initiator, blocker)) {
            send(worker, home_of(blocker), move |worker| at_home(worker, probe, blocker));
        }
    }
}

/// At the home of `met`, which somebody waits for: is the cycle closed? If not, where may `met` be waiting itself?
fn at_home(worker: &Rc<EngineWorker>, mut probe: Probe, met: LockOwner) {
    let shard = worker.shard();
    // A transaction that has ended waits for nobody.
    let Some(core) = shard.active.borrow().get(&met).cloned() else { return };
    probe.youngest = probe.youngest.max(core.age.get());
    if met == probe.initiator {
        if probe.youngest == core.age.get() {
            let Probe { started_at, ticket, initiator, .. } = probe;
            send(worker, started_at, move |worker| give_way(worker, initiator, ticket));
        }
        return;
    }
    follow_waits(worker, probe, met);
    for participant in core.participants.borrow().iter().copied() {
        send(worker, participant, move |worker| follow_waits(worker, probe, met));
    }
}

/// Where the victim waits: it stops waiting, and aborts.
fn give_way(worker: &Rc<EngineWorker>, victim: LockOwner, ticket: LockTicket) {
    let still_waits = worker
        .shard()
        .waits
        .borrow()
        .get(&ticket.0)
        .is_some_and(|wait| wait.owner == victim && wait.state == WaitState::Queued);
    if still_waits {
        worker.shard().refuse_wait(worker, ticket, AbortReason::Deadlock);
    }
}

fn send(worker: &Rc<EngineWorker>, to: WorkerId, message: impl FnOnce(&Rc<EngineWorker>) + Send + 'static) {
    if to == worker.id() { message(worker) } else { worker.send(to, message) }
}
