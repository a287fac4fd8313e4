//! Tests of the lock table: small scenarios by hand, and every step of long random runs against the rules.

use proptest::prelude::*;

use super::*;

fn key(byte: u8) -> LockTarget {
    LockTarget::Key(KeyBuf::from_slice(&[byte]))
}

fn range(lower: u8, upper: u8) -> LockTarget {
    LockTarget::Range { lower: KeyBuf::from_slice(&[lower]), upper: Some(KeyBuf::from_slice(&[upper])) }
}

fn release(table: &mut LockTable, owner: u64, targets: &[LockTarget]) -> Vec<u64> {
    let mut granted = Vec::new();
    table.release(TxnId(owner), targets.iter(), &mut granted);
    granted.into_iter().map(|ticket| ticket.0).collect()
}

/// A request on account of which nobody else is granted anything.
fn ask(
    table: &mut LockTable,
    owner: TxnId,
    target: &LockTarget,
    mode: LockMode,
    ticket: LockTicket,
) -> LockOutcome {
    let mut granted = Vec::new();
    let outcome = table.request(owner, target, mode, ticket, &mut granted);
    assert_eq!(granted, [], "others were granted something");
    outcome
}

use LockMode::{Exclusive, Shared};
use LockOutcome::{Granted, Queued};

#[test]
fn readers_share_and_a_writer_waits_for_all_of_them() {
    let mut table = LockTable::new();
    for owner in 1..=5 {
        assert_eq!(ask(&mut table, TxnId(owner), &key(7), Shared, LockTicket(owner)), Granted);
    }
    assert_eq!(ask(&mut table, TxnId(9), &key(7), Exclusive, LockTicket(9)), Queued);
    for owner in 1..=4 {
        assert_eq!(release(&mut table, owner, &[key(7)]), Vec::<u64>::new());
    }
    assert_eq!(release(&mut table, 5, &[key(7)]), vec![9]);
    assert_eq!(release(&mut table, 9, &[key(7)]), Vec::<u64>::new());
    assert!(table.is_empty());
}

#[test]
fn a_reader_does_not_pass_a_waiting_writer() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(1), &key(7), Shared, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &key(7), Exclusive, LockTicket(2)), Queued);
    assert_eq!(ask(&mut table, TxnId(3), &key(7), Shared, LockTicket(3)), Queued);
    assert!(table.conflicts(TxnId(4), &key(7), Shared));
    assert_eq!(release(&mut table, 1, &[key(7)]), vec![2]);
    assert_eq!(release(&mut table, 2, &[key(7)]), vec![3]);
}

#[test]
fn an_upgrade_goes_first_and_waits_only_for_the_other_readers() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(1), &key(7), Shared, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &key(7), Shared, LockTicket(2)), Granted);
    assert_eq!(ask(&mut table, TxnId(3), &key(7), Exclusive, LockTicket(3)), Queued);
    assert_eq!(ask(&mut table, TxnId(1), &key(7), Exclusive, LockTicket(4)), Queued);
    assert_eq!(release(&mut table, 2, &[key(7)]), vec![4]);
    assert!(table.holds(TxnId(1), &key(7), Exclusive));
    // Asking again for what it holds is granted although others wait.
    assert_eq!(ask(&mut table, TxnId(1), &key(7), Shared, LockTicket(5)), Granted);
    assert_eq!(release(&mut table, 1, &[key(7)]), vec![3]);
}

#[test]
fn a_range_keeps_writers_out_of_gaps_too() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(1), &range(3, 6), Shared, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &key(2), Exclusive, LockTicket(2)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &key(6), Exclusive, LockTicket(3)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &key(4), Shared, LockTicket(4)), Granted);
    assert_eq!(ask(&mut table, TxnId(3), &key(5), Exclusive, LockTicket(5)), Queued);
    assert_eq!(release(&mut table, 1, &[range(3, 6)]), vec![5]);
}

#[test]
fn a_waiting_range_is_fair_to_and_against_writers() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(1), &key(4), Exclusive, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &range(3, 6), Shared, LockTicket(2)), Queued);
    // A later writer inside the waiting range waits behind it.
    assert_eq!(ask(&mut table, TxnId(3), &key(5), Exclusive, LockTicket(3)), Queued);
    assert_eq!(release(&mut table, 1, &[key(4)]), vec![2]);
    assert_eq!(release(&mut table, 2, &[range(3, 6)]), vec![3]);
}

#[test]
fn who_has_a_range_gets_what_lies_in_it_before_those_who_wait_for_it() {
    let mut table = LockTable::new();
    // Two ranges next to each other, as after a cut of the partition.
    assert_eq!(ask(&mut table, TxnId(1), &range(3, 5), Shared, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(1), &range(5, 9), Shared, LockTicket(2)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &key(4), Exclusive, LockTicket(3)), Queued);
    // Reading again what it has read: waiting behind one who waits for it would be waiting for ever.
    for target in [range(3, 9), range(4, 8), range(3, 5), key(4)] {
        assert!(!table.conflicts(TxnId(1), &target, Shared), "{target:?}");
        assert!(table.conflicts(TxnId(3), &target, Shared), "{target:?}");
    }
    for beyond in [range(3, 10), range(2, 5)] {
        assert!(table.conflicts(TxnId(1), &beyond, Shared), "{beyond:?}");
    }
    // And writing: it goes first.
    assert_eq!(ask(&mut table, TxnId(1), &key(4), Exclusive, LockTicket(4)), Granted);
    assert_eq!(release(&mut table, 1, &[range(3, 5), range(5, 9), key(4)]), vec![3]);
}

#[test]
fn taking_a_request_back_lets_those_behind_it_go_on() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(1), &key(7), Shared, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &key(7), Exclusive, LockTicket(2)), Queued);
    assert_eq!(ask(&mut table, TxnId(3), &key(7), Shared, LockTicket(3)), Queued);
    let mut granted = Vec::new();
    assert!(table.cancel(TxnId(2), &key(7), LockTicket(2), &mut granted));
    assert_eq!(granted, vec![LockTicket(3)]);
    assert!(!table.cancel(TxnId(2), &key(7), LockTicket(2), &mut granted));
}

#[test]
fn blockers_are_the_holders_and_those_ahead() {
    let mut table = LockTable::new();
    ask(&mut table, TxnId(1), &key(7), Shared, LockTicket(1));
    ask(&mut table, TxnId(2), &key(7), Exclusive, LockTicket(2));
    ask(&mut table, TxnId(3), &key(7), Shared, LockTicket(3));
    let mut blockers = Vec::new();
    table.blockers(TxnId(3), &key(7), LockTicket(3), &mut blockers);
    assert_eq!(blockers, vec![TxnId(2)]);
    blockers.clear();
    table.blockers(TxnId(2), &key(7), LockTicket(2), &mut blockers);
    assert_eq!(blockers, vec![TxnId(1)]);
}

#[test]
fn who_gets_a_whole_range_gets_its_keys_before_those_who_wait_for_the_range() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(2), &key(1), Exclusive, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(1), &range(0, 2), Exclusive, LockTicket(2)), Queued);
    assert_eq!(ask(&mut table, TxnId(3), &key(1), Shared, LockTicket(3)), Queued);
    assert_eq!(ask(&mut table, TxnId(1), &key(1), Shared, LockTicket(4)), Queued);
    // It is behind the third in the queue of the key, who waits for the range.
    assert_eq!(release(&mut table, 2, &[key(1)]), vec![4, 2]);
    assert_eq!(release(&mut table, 1, &[range(0, 2), key(1)]), vec![3]);
    // The same when somebody else keeps the range waiting still.
    assert_eq!(ask(&mut table, TxnId(4), &key(0), Shared, LockTicket(5)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &key(1), Exclusive, LockTicket(6)), Queued);
    assert_eq!(release(&mut table, 3, &[key(1)]), vec![6]);
    assert_eq!(ask(&mut table, TxnId(1), &range(0, 2), Exclusive, LockTicket(7)), Queued);
    assert_eq!(ask(&mut table, TxnId(3), &key(1), Shared, LockTicket(8)), Queued);
    assert_eq!(ask(&mut table, TxnId(1), &key(1), Shared, LockTicket(9)), Queued);
    assert_eq!(release(&mut table, 2, &[key(1)]), vec![9]);
    assert_eq!(release(&mut table, 4, &[key(0)]), vec![7]);
    assert_eq!(release(&mut table, 1, &[range(0, 2), key(1)]), vec![8]);
}

/// The state of each owner as a random run expects it, to check the table against.
#[derive(Debug, Default)]
struct Model {
    held: Vec<(TxnId, LockTarget, LockMode)>,
    waiting: Vec<(TxnId, LockTarget, LockMode, LockTicket)>,
}

fn overlap(a: &LockTarget, b: &LockTarget) -> bool {
    match (a, b) {
        (LockTarget::Key(a), LockTarget::Key(b)) => a == b,
        (LockTarget::Key(key), LockTarget::Range { lower, upper })
        | (LockTarget::Range { lower, upper }, LockTarget::Key(key)) => {
            contains(lower, upper.as_deref(), key)
        }
        (
            LockTarget::Range { lower: one, upper: one_end },
            LockTarget::Range { lower: other, upper: other_end },
        ) => other_end.as_ref().is_none_or(|end| one < end) && one_end.as_ref().is_none_or(|end| other < end),
    }
}

/// The closure of the waits-for relation, by the numbers of owners.
type Reach = [[bool; OWNERS]; OWNERS];

/// Owners of a random run are numbered below this.
const OWNERS: usize = 6;

fn close(reach: &mut Reach) {
    for via in 0..OWNERS {
        for from in 0..OWNERS {
            for to in 0..OWNERS {
                reach[from][to] |= reach[from][via] && reach[via][to];
            }
        }
    }
}

fn at(owner: TxnId) -> usize {
    usize::try_from(owner.0).expect("owners have small numbers")
}

impl Model {
    /// Notes that waiting requests were granted. Those that they passed wait for them by `before`.
    fn grant(&mut self, tickets: &[LockTicket], before: &Reach) -> Result<(), TestCaseError> {
        for ticket in tickets {
            let place = self
                .waiting
                .iter()
                .position(|waiting| waiting.3 == *ticket)
                .expect("granted a ticket that waits");
            let (owner, target, mode, _) = self.waiting.remove(place);
            let later = |(_, _, _, other): &&(_, _, _, LockTicket)| other.0 < ticket.0;
            let passed = self.waiting.iter().filter(later);
            for (other, other_target, other_mode, _) in passed {
                prop_assert!(
                    *other == owner
                        || !mode.conflicts(*other_mode)
                        || !overlap(&target, other_target)
                        || before[at(*other)][at(owner)],
                    "{owner:?} got {target:?} before {other:?}, who does not wait for it"
                );
            }
            self.held.push((owner, target, mode));
        }
        Ok(())
    }

    /// Edges of the waits-for graph by locks that are held.
    fn held_edges(&self) -> Reach {
        let mut reach = Reach::default();
        for (owner, target, mode, _) in &self.waiting {
            for (holder, held, held_mode) in &self.held {
                reach[at(*owner)][at(*holder)] |=
                    owner != holder && held_mode.conflicts(*mode) && overlap(held, target);
            }
        }
        reach
    }

    /// Edges of the waits-for graph as the table reports them.
    fn edges(&self, table: &LockTable) -> Reach {
        let mut reach = self.held_edges();
        for (owner, target, _, ticket) in &self.waiting {
            let mut blockers = Vec::new();
            table.blockers(*owner, target, *ticket, &mut blockers);
            blockers.into_iter().for_each(|other| reach[at(*owner)][at(other)] = true);
        }
        reach
    }

    /// Asks, and notes what comes of it.
    fn ask(
        &mut self,
        table: &mut LockTable,
        owner: TxnId,
        target: &LockTarget,
        mode: LockMode,
        ticket: LockTicket,
    ) -> Result<(), TestCaseError> {
        let mut before = self.edges(table);
        let asked = (owner, target.clone(), mode, ticket);
        for (other, other_target, other_mode) in
            self.held.iter().cloned().chain(self.waiting.iter().map(|(o, t, m, _)| (*o, t.clone(), *m)))
        {
            before[at(owner)][at(other)] |=
                owner != other && mode.conflicts(other_mode) && overlap(target, &other_target);
        }
        close(&mut before);
        // Who has a lock asks for nothing new, and passes nobody.
        let has = table.holds(owner, target, mode);
        let mut granted = Vec::new();
        let outcome = table.request(owner, target, mode, ticket, &mut granted);
        self.waiting.push(asked);
        match outcome {
            Granted if has => drop(self.waiting.pop()),
            Granted => self.grant(&[ticket], &before)?,
            Queued => {}
        }
        self.grant(&granted, &before)
    }

    /// Takes back a request.
    fn give_up(&mut self, table: &mut LockTable, which: usize) -> Result<(), TestCaseError> {
        let mut before = self.edges(table);
        close(&mut before);
        let (owner, target, _, ticket) = self.waiting.remove(which);
        let mut granted = Vec::new();
        prop_assert!(table.cancel(owner, &target, ticket, &mut granted));
        self.grant(&granted, &before)
    }

    /// Ends an owner, whose requests were taken back.
    fn end(&mut self, table: &mut LockTable, owner: TxnId) -> Result<(), TestCaseError> {
        while let Some(which) = self.waiting.iter().position(|waiting| waiting.0 == owner) {
            self.give_up(table, which)?;
            self.check(table)?;
        }
        let mut before = self.edges(table);
        close(&mut before);
        let targets: Vec<_> =
            self.held.iter().filter(|held| held.0 == owner).map(|held| held.1.clone()).collect();
        self.held.retain(|held| held.0 != owner);
        let mut granted = Vec::new();
        table.release(owner, targets.iter(), &mut granted);
        self.grant(&granted, &before)
    }

    /// Owners that wait for each other in a cycle would do so with any order.
    fn check_cycles(&self, table: &LockTable) -> Result<(), TestCaseError> {
        let (mut held, mut all) = (self.held_edges(), self.edges(table));
        close(&mut held);
        close(&mut all);
        for a in 0..OWNERS {
            for b in 0..OWNERS {
                prop_assert!(
                    a == b || !(all[a][b] && all[b][a]) || (held[a][b] && held[b][a]),
                    "{a} and {b} wait for each other because of the order of arrival: {self:?}"
                );
            }
        }
        Ok(())
    }

    /// No two conflicting locks are held; and whoever waits is blocked by a holder or by somebody who also waits.
    fn check(&self, table: &LockTable) -> Result<(), TestCaseError> {
        for (at, (owner, target, mode)) in self.held.iter().enumerate() {
            for (other, other_target, other_mode) in &self.held[..at] {
                prop_assert!(
                    owner == other || !mode.conflicts(*other_mode) || !overlap(target, other_target),
                    "{owner:?} and {other:?} both hold {target:?} and {other_target:?}"
                );
            }
            prop_assert!(table.holds(*owner, target, *mode));
        }
        for (owner, target, mode, ticket) in &self.waiting {
            let mut blockers = Vec::new();
            table.blockers(*owner, target, *ticket, &mut blockers);
            prop_assert!(
                !blockers.is_empty(),
                "{owner:?} waits for {target:?} {mode:?} and nobody blocks it"
            );
            for blocker in &blockers {
                let holds = self.held.iter().any(|(holder, held, held_mode)| {
                    holder == blocker && held_mode.conflicts(*mode) && overlap(held, target)
                });
                let waits = self.waiting.iter().any(|(waiter, ..)| waiter == blocker);
                prop_assert!(
                    holds || waits,
                    "{blocker:?} is said to block {owner:?} but neither holds nor waits"
                );
            }
        }
        prop_assert_eq!(table.waiting_len(), self.waiting.len());
        self.check_cycles(table)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Ask { owner: u64, low: u8, high: u8, ranged: bool, exclusive: bool },
    End { owner: u64 },
    GiveUp { which: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..OWNERS as u64, 0..6_u8, 0..6_u8, prop::bool::weighted(0.25), any::<bool>())
            .prop_map(|(owner, low, high, ranged, exclusive)| Step::Ask { owner, low, high, ranged, exclusive }),
        3 => (1..OWNERS as u64).prop_map(|owner| Step::End { owner }),
        1 => (0..8_usize).prop_map(|which| Step::GiveUp { which }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 2000 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_runs_keep_the_rules(steps in prop::collection::vec(step(), 1..80)) {
        let mut table = LockTable::new();
        let mut model = Model::default();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Ask { owner, low, high, ranged, exclusive } => {
                    let owner = TxnId(owner);
                    let mode = if exclusive { Exclusive } else { Shared };
                    let target =
                        if ranged { range(low.min(high), low.max(high) + 1) } else { key(low) };
                    // A transaction that waits asks for nothing else at the same place.
                    if model.waiting.iter().any(|waiting| waiting.0 == owner && waiting.1 == target) {
                        continue;
                    }
                    model.ask(&mut table, owner, &target, mode, LockTicket(number as u64))?;
                }
                Step::End { owner } => model.end(&mut table, TxnId(owner))?,
                Step::GiveUp { which } => {
                    if !model.waiting.is_empty() {
                        model.give_up(&mut table, which % model.waiting.len())?;
                    }
                }
            }
            model.check(&table)?;
        }
        // When everybody ends, nobody is left waiting and nothing is left behind.
        for owner in 1..OWNERS as u64 {
            model.end(&mut table, TxnId(owner))?;
            model.check(&table)?;
        }
        prop_assert!(table.is_empty());
    }
}

#[test]
fn an_exclusive_range_keeps_everybody_out_until_it_is_released() {
    let mut locks = LockTable::new();
    let all = LockTarget::Range { lower: KeyBuf::new(), upper: None };
    let key = LockTarget::Key(KeyBuf::from_slice(b"k"));
    let part = LockTarget::Range { lower: KeyBuf::from_slice(b"a"), upper: Some(KeyBuf::from_slice(b"z")) };
    assert!(locks.enter(TxnId(1), &all, Exclusive));
    assert!(!locks.conflicts(TxnId(1), &key, Exclusive));
    let wants = [(&key, Shared), (&part, Shared), (&key, Exclusive)];
    for (at, (target, mode)) in wants.into_iter().enumerate() {
        let (owner, ticket) = (TxnId(2 + at as u64), LockTicket(at as u64));
        assert_eq!(ask(&mut locks, owner, target, mode, ticket), Queued);
        let mut blockers = Vec::new();
        locks.blockers(owner, target, ticket, &mut blockers);
        assert!(blockers.contains(&TxnId(1)), "{blockers:?}");
    }
    let mut granted = Vec::new();
    locks.release(TxnId(1), std::iter::once(&all), &mut granted);
    assert_eq!(granted, [LockTicket(0), LockTicket(1)], "the writer still waits for the readers");
    locks.release(TxnId(2), std::iter::once(&key), &mut granted);
    locks.release(TxnId(3), std::iter::once(&part), &mut granted);
    assert_eq!(granted.last(), Some(&LockTicket(2)));
    locks.release(TxnId(4), std::iter::once(&key), &mut granted);
    assert!(locks.is_empty());
}

#[test]
fn exclusive_ranges_wait_for_each_other_where_they_overlap() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(1), &range(3, 6), Exclusive, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &range(6, 9), Exclusive, LockTicket(2)), Granted);
    for (owner, target, mode) in [
        (3, range(5, 7), Exclusive),
        (4, range(0, 4), Shared),
        (5, key(4), Shared),
        (6, key(8), Exclusive),
        // It is free, but somebody waits for it who came before.
        (7, key(6), Shared),
    ] {
        assert_eq!(ask(&mut table, TxnId(owner), &target, mode, LockTicket(owner)), Queued, "{target:?}");
    }
    // Its own rows cost their owner nothing.
    assert_eq!(ask(&mut table, TxnId(1), &key(5), Exclusive, LockTicket(8)), Granted);
    assert_eq!(release(&mut table, 1, &[range(3, 6), key(5)]), vec![5, 4]);
    assert_eq!(release(&mut table, 2, &[range(6, 9)]), vec![6, 3]);
    assert_eq!(release(&mut table, 3, &[range(5, 7)]), vec![7]);
}

#[test]
fn who_reads_behind_a_waiting_exclusive_range_waits_too() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(1), &key(4), Shared, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &range(3, 6), Exclusive, LockTicket(2)), Queued);
    assert_eq!(ask(&mut table, TxnId(3), &key(5), Shared, LockTicket(3)), Queued);
    assert_eq!(ask(&mut table, TxnId(4), &range(5, 8), Shared, LockTicket(4)), Queued);
    assert_eq!(ask(&mut table, TxnId(5), &key(7), Shared, LockTicket(5)), Granted);
    assert_eq!(ask(&mut table, TxnId(1), &key(4), Shared, LockTicket(6)), Granted, "it has it");
    let mut blockers = Vec::new();
    table.blockers(TxnId(3), &key(5), LockTicket(3), &mut blockers);
    assert_eq!(blockers, [TxnId(2)]);
    // Who waits for it goes on when it gives up.
    let mut granted = Vec::new();
    assert!(table.cancel(TxnId(2), &range(3, 6), LockTicket(2), &mut granted));
    assert_eq!(granted, [LockTicket(3), LockTicket(4)]);
}

#[test]
fn a_range_that_is_read_is_changed_before_those_who_wait_for_it() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(1), &range(3, 6), Shared, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &key(4), Exclusive, LockTicket(2)), Queued);
    assert_eq!(ask(&mut table, TxnId(3), &range(2, 5), Exclusive, LockTicket(3)), Queued);
    assert_eq!(ask(&mut table, TxnId(1), &range(3, 6), Exclusive, LockTicket(4)), Granted);
    assert!(table.holds(TxnId(1), &range(3, 6), Exclusive));
    // Two who have read the same cannot both change it: that takes an abort.
    assert_eq!(release(&mut table, 1, &[range(3, 6)]), vec![2]);
    assert_eq!(release(&mut table, 2, &[key(4)]), vec![3]);
}

#[test]
fn an_upgrade_passes_a_scan_that_waits_for_it_at_second_hand() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(1), &key(4), Shared, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &key(4), Exclusive, LockTicket(2)), Queued);
    assert_eq!(ask(&mut table, TxnId(3), &range(3, 6), Shared, LockTicket(3)), Queued);
    assert_eq!(ask(&mut table, TxnId(1), &key(4), Exclusive, LockTicket(4)), Granted);
}

#[test]
fn a_scan_passes_a_writer_that_waits_for_a_key_it_has_read() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(1), &key(4), Shared, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &key(4), Exclusive, LockTicket(2)), Queued);
    assert_eq!(ask(&mut table, TxnId(1), &range(3, 6), Shared, LockTicket(3)), Granted);
}

#[test]
fn a_reader_passes_a_writer_when_a_third_needs_its_lock_and_keeps_the_writer_waiting() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(1), &key(4), Shared, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &key(5), Exclusive, LockTicket(2)), Granted);
    assert_eq!(ask(&mut table, TxnId(3), &key(4), Exclusive, LockTicket(3)), Queued);
    // Behind the writer, as long as nobody needs what it holds.
    assert_eq!(ask(&mut table, TxnId(2), &key(4), Shared, LockTicket(4)), Queued);
    let mut granted = Vec::new();
    let outcome = table.request(TxnId(1), &key(5), Shared, LockTicket(5), &mut granted);
    assert_eq!((outcome, granted), (Queued, vec![LockTicket(4)]));
    assert_eq!(release(&mut table, 2, &[key(4), key(5)]), vec![5]);
    assert_eq!(release(&mut table, 1, &[key(4), key(5)]), vec![3]);
    assert_eq!(release(&mut table, 3, &[key(4)]), Vec::<u64>::new());
    assert!(table.is_empty());
}

#[test]
fn who_holds_nothing_passes_nobody() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(1), &key(4), Shared, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(2), &key(4), Exclusive, LockTicket(2)), Queued);
    assert_eq!(ask(&mut table, TxnId(3), &range(3, 6), Shared, LockTicket(3)), Queued);
    for (ticket, target, mode) in [(4, key(4), Shared), (5, key(5), Exclusive), (6, range(2, 5), Shared)] {
        assert_eq!(ask(&mut table, TxnId(ticket), &target, mode, LockTicket(ticket)), Queued);
    }
    // The holder of what they wait for does, and they come in their order behind it.
    assert_eq!(ask(&mut table, TxnId(1), &key(4), Exclusive, LockTicket(7)), Granted);
    assert_eq!(release(&mut table, 1, &[key(4)]), vec![2]);
    assert_eq!(release(&mut table, 2, &[key(4)]), vec![4, 3, 6]);
    assert_eq!(release(&mut table, 3, &[range(3, 6)]), vec![5]);
}

#[test]
fn what_holds_only_after_a_broken_cycle_is_seen_to() {
    let mut table = LockTable::new();
    for (owner, held) in [(1, 1), (2, 2), (3, 3)] {
        assert_eq!(ask(&mut table, TxnId(owner), &key(held), Exclusive, LockTicket(owner)), Granted);
    }
    assert_eq!(ask(&mut table, TxnId(3), &key(4), Shared, LockTicket(4)), Granted);
    // One waits for the fourth key; two waits behind it for that, and for three; three waits for one.
    assert_eq!(ask(&mut table, TxnId(1), &key(4), Exclusive, LockTicket(5)), Queued);
    assert_eq!(ask(&mut table, TxnId(2), &key(4), Exclusive, LockTicket(6)), Queued);
    assert_eq!(ask(&mut table, TxnId(3), &key(1), Exclusive, LockTicket(7)), Queued);
    assert_eq!(ask(&mut table, TxnId(1), &key(2), Exclusive, LockTicket(8)), Queued);
    // Three is the victim. One needs what two holds, so two is first.
    let mut granted = Vec::new();
    assert!(table.cancel(TxnId(3), &key(1), LockTicket(7), &mut granted));
    assert_eq!(granted, []);
    assert_eq!(release(&mut table, 3, &[key(3), key(4)]), vec![6]);
    assert_eq!(release(&mut table, 2, &[key(2), key(4)]), vec![8, 5]);
}

#[test]
fn who_gets_a_range_gets_what_it_wants_in_it_before_those_who_came_first() {
    let mut table = LockTable::new();
    assert_eq!(ask(&mut table, TxnId(2), &key(4), Exclusive, LockTicket(1)), Granted);
    assert_eq!(ask(&mut table, TxnId(3), &range(0, 5), Exclusive, LockTicket(2)), Queued);
    assert_eq!(ask(&mut table, TxnId(4), &key(4), Shared, LockTicket(3)), Queued);
    assert_eq!(ask(&mut table, TxnId(3), &key(4), Shared, LockTicket(4)), Queued);
    assert_eq!(release(&mut table, 2, &[key(4)]), vec![4, 2]);
    assert_eq!(release(&mut table, 3, &[range(0, 5), key(4)]), vec![3]);
}
