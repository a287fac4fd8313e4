//! Deadlock detection: finds transactions that wait for each other in a cycle, and aborts one of them, the victim.
//!
//! The waits-for graph is distributed: each worker knows the queues of its own lock tables, and each transaction's home
//! knows on which workers the transaction has actions. A transaction that has waited for a while sends a *probe* along
//! the edges (edge chasing: Chandy, Misra and Haas 1983, in its form for transactions that wait for several locks at
//! once). From a home, a probe goes to every worker where the transaction may be waiting; from a queue there, to the
//! homes of the transactions ahead. It carries the youngest transaction on its path. A probe that returns to the
//! transaction from which it started has followed a cycle; the youngest transaction of the cycle is the victim. All
//! workers that find the same cycle choose the same victim, so they need no agreement. A probe that reaches a
//! transaction a second time has entered a cycle of other transactions, or has come there by two paths: another probe
//! is started from there, so that a cycle is found quickly from any of the many transactions that wait for its members.
//!
//! A retried transaction keeps the age of its first attempt ([`crate::age`]), so it is not the youngest for ever: the
//! homes of the transactions it waited for have observed its age in the probe, and begin only younger transactions.
//!
//! No message is sent while no request waits: a request starts a probe only after it has waited for
//! [`ShardOptions::deadlock_check_after`](crate::shard::ShardOptions). Long queues without any cycle are normal where
//! many transactions want one key, and a probe may have to walk along all of one; so each worker starts only a few
//! probes at a time: half of them for the requests that have waited longest (those in a cycle will be among them sooner
//! or later), half for the others in turn. And the more time a worker has spent on forwarding probes, the longer it
//! waits before it starts the next ones, which bounds the share of its time that detection takes. A probe may follow an
//! edge that has just vanished; at worst a transaction that would have gone on is retried.
//!
//! Invariant: probes end. Each visits a transaction once, as long as its visits are remembered; forgotten while it is under way, it
//! would go round a cycle for ever. So a worker that remembers as many visits as it has room for lets no probe go on until it may
//! forget them: when as long has passed as it waits between checks.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use atrapos_durability::wal::GlobalId;
use atrapos_partition::abort::AbortReason;
use atrapos_partition::planted::{Bug, planted};
use atrapos_runtime::{Ticks, WorkerId};
use atrapos_storage::lock::{LockTicket, TxnId};
use rustc_hash::FxBuildHasher;

use crate::distributed::GlobalProbe;
use crate::distributed::probes::{self, are_same, identity, own_identity};
use crate::lock_waits::LockWaitState;
use crate::messages;
use crate::shard::EngineWorker;
use crate::tx::TxnState;

/// A visit of a probe: its round, the transaction that has started it, and the transaction that it has come to.
pub type Visit = (u64, GlobalId, TxnId);

/// The probes this worker has seen, and the schedule of its checks.
#[derive(Debug, Default)]
pub struct Probes {
    round: u64,
    next_check: Option<Ticks>,
    /// The time spent here on checks and on forwarding probes since the last check began.
    spent: Ticks,
    /// Probes started here because others arrived a second time.
    restarts: PerRound,
    /// Messages sent from here that ask for such a probe.
    asked: PerRound,
    /// The ticket after which the turn of the other requests goes on.
    turn: u64,
    /// The transactions that each probe has visited here, so that it visits each once.
    pub seen: HashSet<Visit, FxBuildHasher>,
    /// The time at which visits were forgotten last, and the time spent on checks and probes since then.
    forgot: (Ticks, Ticks),
}

/// Counts by round, up to [`RESTARTS_AT_A_TIME`]: of the latest round of each worker that starts them, by its number.
#[derive(Debug, Default)]
struct PerRound(HashMap<u16, (u64, usize), FxBuildHasher>);

impl PerRound {
    /// Returns the count of a round.
    fn of(&mut self, round: u64) -> &mut usize {
        // The number of the worker is in the lowest bits.
        let (latest, count) = self.0.entry(round as u16).or_default();
        if *latest != round {
            (*latest, *count) = (round, 0);
        }
        count
    }

    /// Counts one more; returns false if there are as many as may be.
    fn admits(&mut self, round: u64) -> bool {
        let count = self.of(round);
        let admits = *count < RESTARTS_AT_A_TIME;
        *count += usize::from(admits);
        admits
    }
}

/// The answer to a probe that comes to a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Visited {
    /// It has not been there.
    First,
    /// It has been there.
    Again,
    /// It goes no further: there is no room to remember the visit.
    Refused,
}

impl Probes {
    /// Adds a visit at the time `now`, which is asked for if there is no room.
    fn visit(&mut self, what: Visit, now: impl FnOnce() -> Ticks) -> Visited {
        if self.seen.len() >= SEEN_MAX {
            let (now, (at, spent)) = (now(), self.forgot);
            if now.0 < at.0.saturating_add(spent.0.saturating_mul(PAUSE_FACTOR)) {
                return Visited::Refused;
            }
            self.seen.clear();
            self.forgot = (now, Ticks(0));
        }
        if self.seen.insert(what) { Visited::First } else { Visited::Again }
    }

    /// Counts the time of a piece of work with so many visits, `after` being the wait after which a request is checked. The thread may have been suspended meanwhile: no more counts than
    /// the visits can have taken, or detection would pause for sixty-four times what others have run.
    fn spend(&mut self, after: Ticks, time: Ticks, visits: usize) {
        let visit_max = after.0 / PAUSE_FACTOR;
        let most = visit_max.saturating_mul(1 + visits as u64);
        let time = time.0.min(most);
        self.spent = Ticks(self.spent.0.saturating_add(time));
        self.forgot.1 = Ticks(self.forgot.1.0.saturating_add(time));
    }
}

/// The number of visits that a worker remembers.
pub const SEEN_MAX: usize = 1 << 16;

/// Probes that a worker starts at a time for the requests that have waited longest; it starts as many for the others in
/// turn.
const PROBES_AT_A_TIME: usize = 2;

/// Probes of a round that a worker starts for transactions that others of it have reached twice, and asks others to start.
const RESTARTS_AT_A_TIME: usize = 4;

/// The pause before the next check, as a multiple of the time spent on probes since the last check. If hundreds of
/// transactions wait in one queue, a probe visits all of them, each with all that are ahead of it. Detection takes a
/// sixty-fifth of the time of a worker at most: at 8 it took 5% of TPC-C with 512 sessions on each worker, at 64 it takes 1%.
const PAUSE_FACTOR: u64 = 64;

/// Returns the home of a transaction.
pub(crate) fn home_of(owner: TxnId) -> WorkerId {
    WorkerId(owner.home())
}

/// Returns the time of this worker's next check, if any request waits.
pub(crate) fn next_check(worker: &Rc<EngineWorker>) -> Option<Ticks> {
    if worker.shard().waits.borrow().is_empty() {
        return None;
    }
    Some(worker.shard().probes.borrow().next_check.unwrap_or(Ticks(0)))
}

/// Starts probes for the requests that have waited long enough. Returns true if it did any work.
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

/// Chooses the requests to check now: some of those that have waited longest, and some others in turn.
fn take_due(worker: &Rc<EngineWorker>, now: Ticks) -> Vec<TxnId> {
    let shard = worker.shard();
    let began = worker.now();
    let mut probes = shard.probes.borrow_mut();
    let after = shard.options.deadlock_check_after;
    let due = shard.waits.borrow().due(now, after, probes.turn, PROBES_AT_A_TIME);
    probes.turn = due.turn;
    probes.spend(after, worker.now().since(began), due.owners.len());
    due.owners
}

/// Starts a probe, at the home of a transaction that has waited for a while.
pub(crate) fn on_long_wait(worker: &Rc<EngineWorker>, round: u64, waiter: TxnId) {
    let Some(state) = worker.shard().active.borrow().get(&waiter).cloned() else { return };
    // Rounds of different instances differ too, as those of workers do.
    let initiator = identity(worker.shard(), &state, waiter);
    let round = round ^ u64::from(initiator.instance) << 48;
    let probe = GlobalProbe { round, initiator, youngest: (state.age.get(), initiator) };
    pass_on(worker, &state, probe, waiter);
}

/// Forwards a probe, at a worker on which `waiter` may wait, to the transactions it waits for here.
pub(crate) fn on_probe(worker: &Rc<EngineWorker>, probe: GlobalProbe, waiter: TxnId) {
    let shard = worker.shard();
    let began = worker.now();
    let mut ahead = Vec::new();
    {
        let waits = shard.waits.borrow();
        let tables = shard.tables.borrow();
        for (ticket, wait) in waits.of(waiter) {
            if wait.state == LockWaitState::Queued {
                let locks = &tables.partition(wait.partition).locks;
                locks.blockers(waiter, &wait.target, ticket, &mut ahead);
            }
        }
    }
    // It may also wait on a worker to which its data, or its action, was sent on.
    for next in passed_to(worker, (probe.round, probe.initiator, not_itself(waiter)), waiter) {
        messages::send_probe(worker, next, probe, waiter);
    }
    let visits = ahead.len();
    ahead.sort_unstable();
    ahead.dedup();
    for blocker in ahead {
        // In a statement of its own: a message to this worker may run at once.
        let visited =
            shard.probes.borrow_mut().visit((probe.round, probe.initiator, blocker), || worker.now());
        match visited {
            Visited::First => messages::send_probe_home(worker, probe, blocker),
            Visited::Again if are_same(own_identity(shard, blocker), probe.initiator) => {}
            Visited::Again => {
                let admitted = shard.probes.borrow_mut().asked.admits(probe.round);
                if admitted {
                    messages::send_probe_again(worker, probe.round, blocker);
                }
            }
            Visited::Refused => break,
        }
    }
    let after = shard.options.deadlock_check_after;
    shard.probes.borrow_mut().spend(after, worker.now().since(began), visits);
}

/// Starts a probe, at the home of a transaction that a probe has reached twice: it may be in a cycle.
pub fn on_probe_again(worker: &Rc<EngineWorker>, round: u64, met: TxnId) {
    {
        let shard = worker.shard();
        let mut probes = shard.probes.borrow_mut();
        let itself = (round, own_identity(shard, not_itself(met)), not_itself(met));
        if *probes.restarts.of(round) == RESTARTS_AT_A_TIME
            || probes.visit(itself, || worker.now()) != Visited::First
        {
            return;
        }
        *probes.restarts.of(round) += 1;
    }
    on_long_wait(worker, round, met);
}

/// Returns the workers to which data or actions of a visiting transaction were sent on from here; once for each
/// `asker`, since data may have moved back and forth.
fn passed_to(worker: &EngineWorker, asker: Visit, owner: TxnId) -> Vec<WorkerId> {
    let shard = worker.shard();
    let participants = shard.participants.borrow();
    let Some(branch) = participants.get(&owner).filter(|branch| !branch.borrow().passed_to.is_empty()) else {
        return Vec::new();
    };
    if shard.probes.borrow_mut().visit(asker, || worker.now()) != Visited::First {
        return Vec::new();
    }
    branch.borrow().passed_to.clone()
}

/// Returns a name for the path of a transaction, different from that of the transaction: both may be entered for one
/// probe.
fn not_itself(owner: TxnId) -> TxnId {
    TxnId(!owner.0)
}

/// Receives a probe, at the home of `met`, for which a transaction waits: chooses the victim if the cycle is closed,
/// and otherwise forwards the probe to the workers on which `met` may be waiting itself.
pub(crate) fn on_probe_at_home(worker: &Rc<EngineWorker>, mut probe: GlobalProbe, met: TxnId) {
    let shard = worker.shard();
    // Transactions that begin here from now on are younger than all on the probe's path, including the one that waits
    // for `met`.
    shard.ages.observe(probe.youngest.0);
    // A transaction that has ended waits for no other.
    let Some(state) = shard.active.borrow().get(&met).cloned() else { return };
    let itself = identity(shard, &state, met);
    if are_same(itself, probe.initiator) {
        let (_, victim) = probe.youngest;
        probes::send_victim(worker, probe.round, victim, probe.initiator);
        return;
    }
    if state.coordinator.get().is_some() {
        // What it waits for is known at its coordinator's home.
        probes::send_home(worker, itself, probe);
        return;
    }
    probe.youngest = probe.youngest.max((state.age.get(), itself));
    pass_on(worker, &state, probe, met);
}

/// Forwards a probe to all workers on which a transaction may be waiting.
pub(crate) fn pass_on(worker: &Rc<EngineWorker>, state: &TxnState, probe: GlobalProbe, waiter: TxnId) {
    for participant in state.participants.borrow().iter().copied() {
        messages::send_probe(worker, participant, probe, waiter);
    }
    probes::send_to_subordinates(worker, state, probe, waiter);
    on_probe(worker, probe, waiter);
}

/// Refuses the lock requests of the victim of a cycle, from its home, on all workers on which it may wait.
pub(crate) fn on_victim(worker: &Rc<EngineWorker>, round: u64, victim: TxnId) {
    let Some(state) = worker.shard().active.borrow().get(&victim).cloned() else { return };
    for participant in state.participants.borrow().iter().copied() {
        messages::send_refuse_waits(worker, participant, round, victim);
    }
    probes::refuse_at_subordinates(worker, &state, round, victim);
    on_refuse_waits(worker, round, victim);
}

/// Refuses the lock requests of the victim on this worker, so that it aborts. Does nothing if its lock was granted
/// meanwhile.
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
    for next in passed_to(worker, (round, own_identity(shard, not_itself(victim)), victim), victim) {
        messages::send_refuse_waits(worker, next, round, victim);
    }
    for ticket in queued {
        shard.refuse_wait(worker, ticket, AbortReason::Deadlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visits_are_not_forgotten_while_their_probes_go_on() {
        let mut probes = Probes::default();
        let initiator = GlobalId { instance: 0, incarnation: 0, txn: 0 };
        let visit = |probes: &mut Probes, txn: usize, now: u64| {
            probes.visit((1, initiator, TxnId(txn as u64)), || Ticks(now))
        };
        assert!((0..SEEN_MAX).all(|txn| visit(&mut probes, txn, 0) == Visited::First));
        probes.spend(Ticks(64_000_000), Ticks(1_000), SEEN_MAX);
        let until = 1_000 * PAUSE_FACTOR;
        assert_eq!(visit(&mut probes, SEEN_MAX, until - 1), Visited::Refused);
        assert_eq!(visit(&mut probes, 7, until - 1), Visited::Refused);
        assert_eq!(visit(&mut probes, 7, until), Visited::First);
        assert_eq!(visit(&mut probes, 7, until), Visited::Again);
    }

    #[test]
    fn rounds_of_several_workers_are_counted_apart() {
        let mut counts = PerRound::default();
        let admitted = (0..3 * RESTARTS_AT_A_TIME)
            .filter(|at| counts.admits(if at % 2 == 0 { 1 << 16 } else { 1 << 16 | 5 }))
            .count();
        assert_eq!(admitted, 2 * RESTARTS_AT_A_TIME);
        assert!(counts.admits(2 << 16 | 5));
    }

    #[test]
    fn time_counts_as_far_as_visits_can_have_taken_it() {
        let after = Ticks(64_000);
        let spent = |time, visits| {
            let mut probes = Probes::default();
            probes.spend(after, Ticks(time), visits);
            probes.spent
        };
        assert_eq!(spent(900, 0), Ticks(900));
        assert_eq!(spent(1_000_000_000, 0), Ticks(1_000), "the thread was suspended");
        assert_eq!(spent(9_000_000, 10_000), Ticks(9_000_000), "a long queue takes its time");
    }
}
