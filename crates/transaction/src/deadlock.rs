//! Finds transactions that wait for each other in a cycle, and aborts one of them, the victim.
//!
//! Nobody sees the whole waits-for graph: each worker knows the queues of its own lock tables, and each transaction's home
//! knows on which workers the transaction has actions. A transaction that has waited for a while sends a *probe* along
//! the edges (edge chasing: Chandy, Misra and Haas 1983, in its form for transactions that wait for several locks
//! at once). From a home, a probe goes to every worker where the transaction may be waiting; from a queue there, to the
//! homes of those ahead. It carries the youngest transaction it has come by. When it meets the transaction it started from,
//! it has gone round a cycle, of whatever length; the youngest transaction of the cycle is the victim. Whoever finds the same
//! cycle chooses the same victim, so no agreement between workers is needed. A probe that comes by a transaction a second time
//! has run into a cycle of others, or has come there by two ways: a probe is started from there, so that a cycle is found
//! quickly by any of the many who wait for its members.
//!
//! A retried transaction keeps the age of its first attempt ([`crate::age`]), so it is not the youngest for ever: the homes of
//! those it waited for have heard of its age by the probe that came by, and nothing older begins there any more.
//!
//! Nothing is sent while nothing waits: a request starts a probe only after it has waited for
//! [`ShardOptions::deadlock_check_after`](crate::shard::ShardOptions). Long queues without any cycle are
//! normal where many transactions want one key, and a probe may have to walk along all of one; so each worker starts only
//! a few probes at a time: half of them for those who have waited longest (who is in a cycle will be among them sooner or
//! later), half for the others in turn. And the more of its time passing probes on has taken, the longer a worker waits before
//! it starts the next ones, so that looking for cycles never becomes what everybody waits for. A probe may follow an edge that
//! has just vanished; then at worst a transaction that would have gone on is retried.

use std::collections::HashSet;
use std::rc::Rc;

use atrapos_partition::abort::AbortReason;
use atrapos_partition::planted::{Bug, planted};
use atrapos_runtime::{Ticks, WorkerId};
use atrapos_storage::lock::{LockTicket, TxnId};
use rustc_hash::FxBuildHasher;

use crate::age::Age;
use crate::lock_waits::LockWaitState;
use crate::messages;
use crate::shard::{EngineWorker, Shard};
use crate::tx::TxnState;

/// Probes this worker has seen, and when it looks again.
#[derive(Debug, Default)]
pub struct Probes {
    round: u64,
    next_check: Option<Ticks>,
    /// Time that looking, and passing probes on, has taken here since the last look began.
    spent: Ticks,
    /// How many probes were started here because others of this round came by a second time.
    restarts: (u64, usize),
    /// The ticket after which the turn of the others goes on.
    turn: u64,
    /// Transactions each probe has passed here, so that it passes each once. Cleared when it has grown large.
    pub seen: HashSet<(u64, TxnId, TxnId), FxBuildHasher>,
}

impl Probes {
    /// Whether something comes by here for the first time.
    fn is_new(&mut self, what: (u64, TxnId, TxnId)) -> bool {
        // Probes also pass where nothing ever waits, so this is the place to keep it small.
        if self.seen.len() >= SEEN_MAX {
            self.seen.clear();
        }
        self.seen.insert(what)
    }

    fn spend(&mut self, time: Ticks) {
        self.spent = Ticks(self.spent.0 + time.0);
    }
}

/// Probes remembered before the memory of them is cleared; forgetting one only lets it pass once more.
pub const SEEN_MAX: usize = 1 << 16;

/// Probes a worker starts at a time for those who have waited longest; as many again for the others in turn.
const PROBES_AT_A_TIME: usize = 2;

/// Probes a worker starts at a time for transactions that others have come by twice.
const RESTARTS_AT_A_TIME: usize = 4;

/// A worker looks again when so many times the time has passed that passing on probes took since its last look. Hundreds of
/// transactions that wait in one queue make a probe pass all of them, each with all that are ahead of it.
const PAUSE_FACTOR: u64 = 8;

/// A message that follows the waits-for graph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    round: u64,
    initiator: TxnId,
    /// The youngest transaction on its way, the initiator included.
    youngest: (Age, TxnId),
}

/// The worker a transaction has its home on.
pub(crate) fn home_of(owner: TxnId) -> WorkerId {
    WorkerId(owner.home())
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
            _ => {
                let pause = after.0.max(probes.spent.0.saturating_mul(PAUSE_FACTOR));
                probes.next_check = Some(Ticks(now.0.saturating_add(pause)));
                probes.spent = Ticks(0);
            }
        }
        probes.round += 1;
        probes.round
    };
    let due = take_due(worker, now);
    let started = !due.is_empty();
    for owner in due {
        // The worker's number is part of the round, so that rounds of different workers differ.
        let round = round << 16 | u64::from(worker.id().0);
        messages::send_long_wait(worker, round, owner);
    }
    started
}

/// The requests to look into now: some of those that have waited longest, and some others in turn.
fn take_due(worker: &Rc<EngineWorker>, now: Ticks) -> Vec<TxnId> {
    let shard = worker.shard();
    let began = worker.now();
    let mut probes = shard.probes.borrow_mut();
    let after = shard.options.deadlock_check_after;
    let due = shard.waits.borrow().due(now, after, probes.turn, PROBES_AT_A_TIME);
    probes.turn = due.turn;
    probes.spend(worker.now().since(began));
    due.owners
}

/// At the home of a transaction that has waited for a while: sends a probe off.
pub(crate) fn on_long_wait(worker: &Rc<EngineWorker>, round: u64, initiator: TxnId) {
    let Some(state) = worker.shard().active.borrow().get(&initiator).cloned() else { return };
    let probe = Probe { round, initiator, youngest: (state.age.get(), initiator) };
    pass_on(worker, &state, probe, initiator);
}

/// At a worker where `waiter` may wait: passes the probe on to those it waits for here.
pub(crate) fn on_probe(worker: &Rc<EngineWorker>, probe: Probe, waiter: TxnId) {
    let shard = worker.shard();
    let began = worker.now();
    let mut ahead = Vec::new();
    {
        let waits = shard.waits.borrow();
        let tables = shard.tables.borrow();
        for (ticket, wait) in waits.of(waiter) {
            if wait.state == LockWaitState::Queued {
                let locks = &tables.partition(wait.place).locks;
                locks.blockers(waiter, &wait.target, ticket, &mut ahead);
            }
        }
    }
    // It may also wait where its data, or its action, has gone on to.
    for next in passed_to(shard, (probe.round, probe.initiator, not_itself(waiter)), waiter) {
        messages::send_probe(worker, next, probe, waiter);
    }
    ahead.sort_unstable();
    ahead.dedup();
    for blocker in ahead {
        if shard.probes.borrow_mut().is_new((probe.round, probe.initiator, blocker)) {
            messages::send_probe_home(worker, probe, blocker);
        } else if blocker != probe.initiator {
            messages::send_probe_again(worker, probe.round, blocker);
        }
    }
    shard.probes.borrow_mut().spend(worker.now().since(began));
}

/// At the home of a transaction that a probe has come by twice: it may be in a cycle.
pub fn on_probe_again(worker: &Rc<EngineWorker>, round: u64, met: TxnId) {
    {
        let mut probes = worker.shard().probes.borrow_mut();
        if probes.restarts.0 != round {
            probes.restarts = (round, 0);
        }
        if probes.restarts.1 == RESTARTS_AT_A_TIME
            || !probes.is_new((round, not_itself(met), not_itself(met)))
        {
            return;
        }
        probes.restarts.1 += 1;
    }
    on_long_wait(worker, round, met);
}

/// The workers to which something of a visiting transaction has gone on from here, told once to each `asker`: data may
/// have gone to and fro.
fn passed_to(shard: &Shard, asker: (u64, TxnId, TxnId), owner: TxnId) -> Vec<WorkerId> {
    let participants = shard.participants.borrow();
    let Some(branch) = participants.get(&owner).filter(|branch| !branch.borrow().passed_to.is_empty()) else {
        return Vec::new();
    };
    if !shard.probes.borrow_mut().is_new(asker) {
        return Vec::new();
    }
    branch.borrow().passed_to.clone()
}

/// A name for a transaction's way, other than the transaction's own: both may be noted of one probe.
fn not_itself(owner: TxnId) -> TxnId {
    TxnId(!owner.0)
}

/// At the home of `met`, which somebody waits for: is the cycle closed? If not, where may `met` be waiting itself?
pub(crate) fn on_probe_at_home(worker: &Rc<EngineWorker>, mut probe: Probe, met: TxnId) {
    let shard = worker.shard();
    // Whatever begins here from now on is younger than all that the probe has come by, the one that waits for `met` included.
    shard.ages.observe(probe.youngest.0);
    // A transaction that has ended waits for nobody.
    let Some(state) = shard.active.borrow().get(&met).cloned() else { return };
    if met == probe.initiator {
        let (_, victim) = probe.youngest;
        let round = probe.round;
        messages::send_victim(worker, round, victim);
        return;
    }
    probe.youngest = probe.youngest.max((state.age.get(), met));
    pass_on(worker, &state, probe, met);
}

/// Follows the waits of a transaction wherever it may be waiting.
fn pass_on(worker: &Rc<EngineWorker>, state: &TxnState, probe: Probe, waiter: TxnId) {
    for participant in state.participants.borrow().iter().copied() {
        messages::send_probe(worker, participant, probe, waiter);
    }
    on_probe(worker, probe, waiter);
}

/// At the home of the victim of a cycle: refuses it what it waits for, wherever that is.
pub(crate) fn on_victim(worker: &Rc<EngineWorker>, round: u64, victim: TxnId) {
    let Some(state) = worker.shard().active.borrow().get(&victim).cloned() else { return };
    for participant in state.participants.borrow().iter().copied() {
        messages::send_refuse_waits(worker, participant, round, victim);
    }
    on_refuse_waits(worker, round, victim);
}

/// Where the victim may wait: it stops waiting, and aborts. Nothing happens when it has got its lock meanwhile.
pub(crate) fn on_refuse_waits(worker: &Rc<EngineWorker>, round: u64, victim: TxnId) {
    let shard = worker.shard();
    let queued: Vec<LockTicket> = {
        let waits = shard.waits.borrow();
        waits
            .of(victim)
            .filter(|(_, wait)| wait.state == LockWaitState::Queued)
            .map(|(ticket, _)| ticket)
            .collect()
    };
    for next in passed_to(shard, (round, not_itself(victim), victim), victim) {
        messages::send_refuse_waits(worker, next, round, victim);
    }
    for ticket in queued {
        shard.refuse_wait(worker, ticket, AbortReason::Deadlock);
    }
}
