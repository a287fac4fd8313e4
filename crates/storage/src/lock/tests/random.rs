//! Random runs of the lock table, every step of them checked against the rules.

use proptest::prelude::*;

use super::*;

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
        let is_only_read =
            self.held.iter().all(|(_, target, mode)| *mode == Shared && matches!(target, LockTarget::Key(_)));
        prop_assert_eq!(table.admits_all(Shared), is_only_read && self.waiting.is_empty());
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
