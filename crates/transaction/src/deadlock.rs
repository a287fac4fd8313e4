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
//! Most cycles are of transactions that all wait on one worker: it finds these by itself, all at once, before it starts probes ([`cycles`]), and
//! chooses the same victims. It knows the ages of the transactions of other homes from their actions.
//!
//! Where cycles are found others are likely, and those that wait behind them do nothing else: the next check comes at once,
//! and those after it after pauses that grow until the pace is the usual one.
//!
//! Invariant: probes end. Each visits a transaction once, and goes no further when its visits are forgotten ([`visits`]).

mod cycles;
mod visits;

use std::collections::HashMap;
use std::rc::Rc;

use atrapos_durability::wal::GlobalId;
use atrapos_partition::abort::AbortReason;
use atrapos_partition::planted::{Bug, planted};
use atrapos_runtime::{Ticks, WorkerId};
use atrapos_storage::lock::{LockTicket, TxnId};
use rustc_hash::FxBuildHasher;

use crate::age::Age;
use crate::distributed::GlobalProbe;
use crate::distributed::probes::{self, are_same, identity, own_identity};
use crate::lock_waits::{LockWaitState, LockWaits};
use crate::messages;
use crate::shard::{EngineWorker, Shard};
use crate::tx::TxnState;

use cycles::break_cycles;
use visits::Visited;
pub use visits::{VISITS_MAX, Visit, Visits};

/// The probes this worker has seen, and the schedule of its checks.
#[derive(Debug, Default)]
pub struct Probes {
    round: u64,
    next_check: Option<Ticks>,
    pace: Pace,
    probing: Probing,
    /// The time of the latest check.
    checked: Option<Ticks>,
    /// The time spent here on checks and on forwarding probes since the last check began.
    spent: Ticks,
    /// Probes started here because others arrived a second time.
    restarts: PerRound,
    /// Messages sent from here that ask for such a probe.
    asked: PerRound,
    /// The ticket after which the turn of the other requests goes on.
    turn: u64,
    /// The transactions that each probe has visited here, so that it visits each once.
    pub visits: Visits,
}

/// How soon the next check comes: the sooner, the more of the latest checks were followed by a cycle that was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pace(u32);

impl Pace {
    /// The pace after a cycle was found.
    const FASTEST: Pace = Pace(PAUSE_FACTOR.ilog2());

    /// The time that a request waits before it is checked, where that is `after` without cycles.
    fn after(self, after: Ticks) -> Ticks {
        Ticks(after.0 >> self.0.min(HASTE_MAX))
    }

    /// The pause after a check, where so much time was `spent` on the one before.
    fn pause(self, after: Ticks, spent: Ticks) -> Ticks {
        self.after(after).max(Ticks(spent.0.saturating_mul(PAUSE_FACTOR >> self.0)))
    }

    /// The pace after one more check.
    fn slower(self) -> Pace {
        Pace(self.0.saturating_sub(1))
    }
}

/// How often a worker starts probes: they take the time of other workers too, of which it does not know. The more checks in a row at the usual
/// pace were not followed by a cycle that was found, while some request waited all the time, the fewer of the next ones start probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Probing {
    fruitless: u32,
    skipped: u32,
}

impl Probing {
    /// Returns true if a check at this pace starts probes.
    fn is_due(&mut self, pace: Pace) -> bool {
        if pace != Pace::default() {
            return true;
        }
        self.skipped += 1;
        let every = 1 << (self.fruitless / FRUITLESS_PER_DOUBLING).min(DOUBLINGS_MAX);
        let is_due = self.skipped >= every;
        if is_due {
            *self = Probing { fruitless: self.fruitless.saturating_add(1), skipped: 0 };
        }
        is_due
    }
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

impl Probes {
    /// Notes that a cycle was found: others are likely, and are looked for soon.
    fn found(&mut self, now: Ticks) {
        self.pace = Pace::FASTEST;
        self.probing = Probing::default();
        self.next_check = self.next_check.map(|at| at.min(now));
    }

    /// Counts the time of a piece of work with so many visits, `after` being the wait after which a request is checked. The thread may have been suspended meanwhile: no more counts than
    /// the visits can have taken, or detection would pause for sixty-four times what others have run.
    fn spend(&mut self, after: Ticks, time: Ticks, visits: usize) {
        let visit_max = after.0 / PAUSE_FACTOR;
        let most = visit_max.saturating_mul(1 + visits as u64);
        let time = time.0.min(most);
        self.spent = Ticks(self.spent.0.saturating_add(time));
    }
}

/// Probes that a worker starts at a time for the requests that have waited longest; it starts as many for the others in
/// turn.
const PROBES_AT_A_TIME: usize = 2;

/// Probes of a round that a worker starts for transactions that others of it have reached twice, and asks others to start.
const RESTARTS_AT_A_TIME: usize = 4;

/// The pause before the next check, as a multiple of the time spent on probes since the last check. If hundreds of
/// transactions wait in one queue, a probe visits all of them, each with all that are ahead of it. Detection takes a
/// sixty-fifth of the time of a worker at most: at 8 it took 5% of TPC-C with 512 sessions on each worker, at 64 it takes 1%.
const PAUSE_FACTOR: u64 = 64;

/// Checks without a cycle after which half as many of the next ones start probes.
const FRUITLESS_PER_DOUBLING: u32 = 4;

/// Such halvings at most: every thirty-second check starts probes.
const DOUBLINGS_MAX: u32 = 5;

/// Halvings of the time that a request waits before it is checked, at most, while cycles are found: to a sixteenth.
const HASTE_MAX: u32 = 4;

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
    let round = {
        let mut probes = shard.probes.borrow_mut();
        match probes.next_check {
            Some(at) if now < at => return false,
            _ => {
                let checked = probes.checked.replace(now);
                let oldest = shard.waits.borrow().oldest().next().map(|(_, wait)| wait.since);
                if oldest > checked {
                    // Whoever waited then has gone on.
                    probes.probing = Probing::default();
                }
                probes.pace = probes.pace.slower();
                let pause = probes.pace.pause(shard.options.deadlock_check_after, probes.spent);
                probes.next_check = Some(Ticks(now.0.saturating_add(pause.0)));
                probes.spent = Ticks(0);
            }
        }
        probes.round += 1;
        probes.round
    };
    // The worker's number is part of the round, so that rounds of different workers differ.
    let round = round << 16 | u64::from(worker.id().0);
    let undecided = break_own_cycles(worker, round, now);
    let due = take_due(worker, now);
    if !due.is_empty() {
        let mut probes = shard.probes.borrow_mut();
        let pace = probes.pace;
        if !probes.probing.is_due(pace) {
            return true;
        }
    }
    let started = !due.is_empty();
    for owner in undecided.into_iter().chain(due) {
        messages::send_long_wait(worker, round, owner);
    }
    started
}

/// Breaks the cycles of transactions that all wait here. Returns transactions of some others of which it cannot tell the victims: probes
/// from them will.
fn break_own_cycles(worker: &Rc<EngineWorker>, round: u64, now: Ticks) -> Vec<TxnId> {
    let shard = worker.shard();
    let began = worker.now();
    let after = shard.options.deadlock_check_after;
    let mut broken = {
        let (mut probes, waits) = (shard.probes.borrow_mut(), shard.waits.borrow());
        let waits_from = now.0.saturating_sub(probes.pace.after(after).0);
        let due = waits.oldest().take_while(|(_, wait)| wait.since.0 <= waits_from);
        let roots = due.map(|(_, wait)| wait.owner);
        let broken = break_cycles(
            roots,
            |txn, ahead| blockers(shard, &waits, txn, ahead),
            |txn| age_of(shard, txn),
            VISITS_MAX,
        );
        probes.spend(after, worker.now().since(began), broken.visits);
        broken
    };
    if !broken.victims.is_empty() {
        shard.probes.borrow_mut().found(now);
    }
    for victim in broken.victims {
        messages::send_victim(worker, round, victim);
    }
    broken.undecided.truncate(PROBES_AT_A_TIME);
    broken.undecided
}

/// Appends the transactions that one waits for here.
fn blockers(shard: &Shard, waits: &LockWaits, waiter: TxnId, ahead: &mut Vec<TxnId>) {
    let tables = shard.tables.borrow();
    for (ticket, wait) in waits.of(waiter) {
        if wait.state == LockWaitState::Queued {
            let locks = &tables.partition(wait.partition).locks;
            locks.blockers(waiter, &wait.target, ticket, ahead);
        }
    }
}

/// Returns the place of a transaction in the order of ages, the youngest last, if it is known here.
fn age_of(shard: &Shard, txn: TxnId) -> Option<(Age, GlobalId)> {
    if let Some(state) = shard.active.borrow().get(&txn) {
        return Some((state.age.get(), identity(shard, state, txn)));
    }
    let participants = shard.participants.borrow();
    let age = participants.get(&txn)?.borrow().age;
    (age != Age::NONE).then(|| (age, own_identity(shard, txn)))
}

/// Chooses the requests to check now: some of those that have waited longest, and some others in turn.
fn take_due(worker: &Rc<EngineWorker>, now: Ticks) -> Vec<TxnId> {
    let shard = worker.shard();
    let began = worker.now();
    let mut probes = shard.probes.borrow_mut();
    let after = shard.options.deadlock_check_after;
    let due = shard.waits.borrow().due(now, probes.pace.after(after), probes.turn, PROBES_AT_A_TIME);
    probes.turn = due.turn;
    probes.spend(after, worker.now().since(began), due.owners.len());
    due.owners
}

/// Starts a probe, at the home of a transaction that has waited for a while.
pub(crate) fn on_long_wait(worker: &Rc<EngineWorker>, round: u64, waiter: TxnId) {
    // Rounds of different instances differ too, as those of workers do.
    let instance = own_identity(worker.shard(), waiter).instance;
    start(worker, round ^ u64::from(instance) << 48, waiter);
}

/// Starts a probe of a round, if the transaction is still there.
fn start(worker: &Rc<EngineWorker>, round: u64, waiter: TxnId) {
    let Some(state) = worker.shard().active.borrow().get(&waiter).cloned() else { return };
    let initiator = identity(worker.shard(), &state, waiter);
    let probe = GlobalProbe { round, initiator, youngest: (state.age.get(), initiator) };
    pass_on(worker, &state, probe, waiter);
}

/// Forwards a probe, at a worker on which `waiter` may wait, along what it waits for here: through the transactions that have
/// their home here by itself, and to the homes of the others.
pub(crate) fn on_probe(worker: &Rc<EngineWorker>, probe: GlobalProbe, waiter: TxnId) {
    let shard = worker.shard();
    let began = worker.now();
    let (mut ahead, mut visits) = (Vec::new(), 0);
    let mut open = vec![(waiter, probe.youngest)];
    while let Some((waiter, youngest)) = open.pop() {
        let probe = GlobalProbe { youngest, ..probe };
        // It may also wait on a worker to which its data, or its action, was sent on.
        for next in passed_to(worker, probe.round, (probe.initiator, not_itself(waiter)), waiter) {
            messages::send_probe(worker, next, probe, waiter);
        }
        ahead.clear();
        blockers(shard, &shard.waits.borrow(), waiter, &mut ahead);
        visits += ahead.len();
        ahead.sort_unstable();
        ahead.dedup();
        for blocker in ahead.iter().copied() {
            match visit(worker, probe.round, (probe.initiator, blocker)) {
                Visited::First if home_of(blocker) != worker.id() => {
                    messages::send_probe_home(worker, probe, blocker);
                }
                Visited::First => {
                    let goes_on = pass_home(worker, probe, blocker);
                    open.extend(goes_on.map(|probe| (blocker, probe.youngest)));
                }
                Visited::Again if are_same(own_identity(shard, blocker), probe.initiator) => {}
                Visited::Again => ask_again(worker, probe.round, blocker),
                Visited::Refused => return,
            }
        }
    }
    let after = shard.options.deadlock_check_after;
    shard.probes.borrow_mut().spend(after, worker.now().since(began), visits);
}

/// Asks for another probe, from a transaction that one has reached twice.
fn ask_again(worker: &Rc<EngineWorker>, round: u64, met: TxnId) {
    let admitted = worker.shard().probes.borrow_mut().asked.admits(round);
    if admitted {
        messages::send_probe_again(worker, round, met);
    }
}

/// Starts a probe, at the home of a transaction that a probe has reached twice: it may be in a cycle.
pub fn on_probe_again(worker: &Rc<EngineWorker>, round: u64, met: TxnId) {
    let shard = worker.shard();
    let itself = (own_identity(shard, not_itself(met)), not_itself(met));
    if *shard.probes.borrow_mut().restarts.of(round) == RESTARTS_AT_A_TIME
        || visit(worker, round, itself) != Visited::First
    {
        return;
    }
    *shard.probes.borrow_mut().restarts.of(round) += 1;
    start(worker, round, met);
}

/// Notes that a probe has come to a transaction here.
fn visit(worker: &EngineWorker, round: u64, visit: Visit) -> Visited {
    let shard = worker.shard();
    let after = shard.options.deadlock_check_after;
    shard.probes.borrow_mut().visits.visit(round, visit, after, || worker.now())
}

/// Returns the workers to which data or actions of a visiting transaction were sent on from here; once for each
/// `asker`, since data may have moved back and forth.
fn passed_to(worker: &EngineWorker, round: u64, asker: Visit, owner: TxnId) -> Vec<WorkerId> {
    let shard = worker.shard();
    let participants = shard.participants.borrow();
    let Some(branch) = participants.get(&owner).filter(|branch| !branch.borrow().passed_to.is_empty()) else {
        return Vec::new();
    };
    if visit(worker, round, asker) != Visited::First {
        return Vec::new();
    }
    branch.borrow().passed_to.clone()
}

/// Returns a name for the path of a transaction, different from that of the transaction: both may be entered for one
/// probe.
fn not_itself(owner: TxnId) -> TxnId {
    TxnId(!owner.0)
}

/// Receives a probe, at the home of `met`, for which a transaction waits.
pub(crate) fn on_probe_at_home(worker: &Rc<EngineWorker>, probe: GlobalProbe, met: TxnId) {
    if let Some(probe) = pass_home(worker, probe, met) {
        on_probe(worker, probe, met);
    }
}

/// Passes a probe through the home of `met`, for which a transaction waits: chooses the victim if the cycle is closed, and
/// otherwise forwards the probe to the other workers on which `met` may be waiting itself, and returns it for this one.
fn pass_home(worker: &Rc<EngineWorker>, mut probe: GlobalProbe, met: TxnId) -> Option<GlobalProbe> {
    let shard = worker.shard();
    // Transactions that begin here from now on are younger than all on the probe's path, including the one that waits
    // for `met`.
    shard.ages.observe(probe.youngest.0);
    // A transaction that has ended waits for no other.
    let state = shard.active.borrow().get(&met).cloned()?;
    let itself = identity(shard, &state, met);
    if are_same(itself, probe.initiator) {
        shard.probes.borrow_mut().found(worker.step_time());
        let (_, victim) = probe.youngest;
        probes::send_victim(worker, probe.round, victim, probe.initiator);
        return None;
    }
    if state.coordinator.get().is_some() {
        // What it waits for is known at its coordinator's home.
        probes::send_home(worker, itself, probe);
        return None;
    }
    probe.youngest = probe.youngest.max((state.age.get(), itself));
    leave(worker, &state, probe, met);
    Some(probe)
}

/// Forwards a probe to all workers on which a transaction may be waiting.
pub(crate) fn pass_on(worker: &Rc<EngineWorker>, state: &TxnState, probe: GlobalProbe, waiter: TxnId) {
    leave(worker, state, probe, waiter);
    on_probe(worker, probe, waiter);
}

/// Forwards a probe to all other workers on which a transaction may be waiting.
fn leave(worker: &Rc<EngineWorker>, state: &TxnState, probe: GlobalProbe, waiter: TxnId) {
    for participant in state.participants.borrow().iter().copied() {
        messages::send_probe(worker, participant, probe, waiter);
    }
    probes::send_to_subordinates(worker, state, probe, waiter);
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
    for next in passed_to(worker, round, (own_identity(shard, not_itself(victim)), victim), victim) {
        messages::send_refuse_waits(worker, next, round, victim);
    }
    if !queued.is_empty() {
        shard.probes.borrow_mut().found(worker.step_time());
    }
    for ticket in queued {
        shard.refuse_wait(worker, ticket, AbortReason::Deadlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn checks_come_soon_after_a_cycle_and_then_ever_later() {
        let after = Ticks(1_600);
        let mut pace = Pace::FASTEST;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            pauses.push((pace.after(after).0, pace.pause(after, Ticks(200)).0));
            pace = pace.slower();
        }
        let (spent, usual) = ([200, 400, 800, 1_600, 3_200, 6_400, 12_800], 200 * PAUSE_FACTOR);
        assert_eq!(pauses[..7].iter().map(|(_, pause)| *pause).collect::<Vec<_>>(), spent);
        assert_eq!(
            pauses[..7].iter().map(|(after, _)| *after).collect::<Vec<_>>(),
            [100, 100, 100, 200, 400, 800, 1_600]
        );
        assert_eq!(pauses[7], (1_600, usual));
        assert_eq!(Pace::default(), Pace(0), "without cycles it is slow");
        let mut probes = Probes { next_check: Some(Ticks(900)), ..Probes::default() };
        probes.found(Ticks(100));
        assert_eq!((probes.pace, probes.next_check), (Pace::FASTEST, Some(Ticks(100))));
    }

    #[test]
    fn the_longer_no_cycle_is_found_the_fewer_checks_start_probes() {
        let mut probes = Probes::default();
        let started =
            |probes: &mut Probes| (0..64).filter(|_| probes.probing.is_due(Pace::default())).count();
        assert_eq!([started(&mut probes), started(&mut probes), started(&mut probes)], [16, 4, 2]);
        (0..10).for_each(|_| {
            started(&mut probes);
        });
        assert_eq!(started(&mut probes), 2, "every thirty-second");
        assert!(probes.probing.is_due(Pace::FASTEST), "where cycles are found, all do");
        probes.found(Ticks(0));
        assert!(probes.probing.is_due(Pace::default()) && probes.probing.is_due(Pace::default()));
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
