//! The transactions that probes have visited on a worker, so that each probe visits each once and ends.
//!
//! Owns: the visits of the latest rounds. Never: remembers more than [`VISITS_MAX`] of them.
//!
//! When there is no room, the round that was heard of first is forgotten, and its probes go no further: those of later rounds
//! follow the same edges. So detection never stands still for want of memory, however many transactions wait. What
//! is forgotten is noted by its starter: rounds of one worker come in the order of their numbers.
//!
//! Invariant: no probe visits a transaction twice, unless it has been under way for longer than [`Visits::note_for`] since its round was
//! forgotten. (A worker that starts again counts its rounds anew: its first ones must not be taken for
//! forgotten ones for ever.)

use std::collections::{HashMap, HashSet, VecDeque};

use atrapos_durability::wal::GlobalId;
use atrapos_runtime::Ticks;
use atrapos_storage::lock::TxnId;
use rustc_hash::FxBuildHasher;

/// A visit of a probe: the transaction that has started it, and the transaction that it has come to.
pub type Visit = (GlobalId, TxnId);

/// The number of visits that a worker remembers.
pub const VISITS_MAX: usize = 1 << 16;

/// The number of rounds of which it does.
const ROUNDS_MAX: usize = 1 << 10;

/// The answer to a probe that comes to a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visited {
    /// It has not been there.
    First,
    /// It has been there.
    Again,
    /// It goes no further: its round is forgotten.
    Refused,
}

/// See the module's introduction.
#[derive(Debug, Default)]
pub struct Visits {
    rounds: HashMap<u64, HashSet<Visit, FxBuildHasher>, FxBuildHasher>,
    /// The rounds in the order in which they were heard of.
    order: VecDeque<u64>,
    len: usize,
    /// The newest forgotten round of each starter, and when it was forgotten.
    forgotten: HashMap<u32, (u64, Ticks), FxBuildHasher>,
    /// An emptied set, for the next round.
    spare: HashSet<Visit, FxBuildHasher>,
}

impl Visits {
    /// The time for which a forgotten round is noted, as a multiple of the time after which a request is checked.
    const NOTE_FACTOR: u64 = 1_024;

    /// The number of visits that are remembered.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns for how long a forgotten round is noted, where a request is checked after `check_after`.
    fn note_for(check_after: Ticks) -> Ticks {
        Ticks(check_after.0.saturating_mul(Self::NOTE_FACTOR))
    }

    /// Adds a visit of a probe of a round. `now` is asked for where a round is forgotten.
    pub(super) fn visit(
        &mut self,
        round: u64,
        visit: Visit,
        check_after: Ticks,
        now: impl Fn() -> Ticks,
    ) -> Visited {
        if self.is_forgotten(round, check_after, &now) {
            return Visited::Refused;
        }
        if !self.rounds.contains_key(&round) {
            if self.order.len() == ROUNDS_MAX {
                self.forget_first(now());
            }
            self.order.push_back(round);
            self.rounds.insert(round, std::mem::take(&mut self.spare));
        }
        if self.rounds.get(&round).is_some_and(|seen| seen.contains(&visit)) {
            return Visited::Again;
        }
        while self.len >= VISITS_MAX {
            if self.order.front() == Some(&round) {
                return Visited::Refused;
            }
            self.forget_first(now());
        }
        self.len += 1;
        self.rounds.entry(round).or_default().insert(visit);
        Visited::First
    }

    /// Returns true if a round is one of those that are forgotten.
    fn is_forgotten(&mut self, round: u64, check_after: Ticks, now: &impl Fn() -> Ticks) -> bool {
        let starter = starter_of(round);
        let Some((newest, at)) = self.forgotten.get(&starter).copied() else { return false };
        if round > newest || self.rounds.contains_key(&round) {
            return false;
        }
        let is_noted = now().since(at) < Self::note_for(check_after);
        if !is_noted {
            self.forgotten.remove(&starter);
        }
        is_noted
    }

    fn forget_first(&mut self, now: Ticks) {
        let Some(round) = self.order.pop_front() else { return };
        let Some(mut seen) = self.rounds.remove(&round) else { return };
        self.len -= seen.len();
        seen.clear();
        self.spare = seen;
        let forgotten = self.forgotten.entry(starter_of(round)).or_insert((round, now));
        *forgotten = (forgotten.0.max(round), now);
    }
}

/// Returns the worker that has started a round, with its instance.
fn starter_of(round: u64) -> u32 {
    (round >> 48) as u32 * (1 << 16) + u32::from(round as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Ticks = Ticks(10);

    fn visit(visits: &mut Visits, round: u64, txn: usize, now: u64) -> Visited {
        let initiator = GlobalId { instance: 0, incarnation: 0, txn: 0 };
        visits.visit(round, (initiator, TxnId(txn as u64)), AFTER, || Ticks(now))
    }

    #[test]
    fn each_transaction_is_visited_once_in_each_round() {
        let mut visits = Visits::default();
        for round in [1 << 16, 2 << 16, 1 << 16 | 1] {
            assert_eq!(visit(&mut visits, round, 7, 0), Visited::First);
            assert_eq!(visit(&mut visits, round, 7, 0), Visited::Again);
        }
        assert_eq!(visits.len(), 3);
    }

    #[test]
    fn the_round_heard_of_first_makes_room_and_its_probes_end() {
        let mut visits = Visits::default();
        let (old, new, other) = (1 << 16, 2 << 16, 1 << 16 | 5);
        assert_eq!(visit(&mut visits, old, 0, 0), Visited::First);
        assert_eq!(visit(&mut visits, other, 0, 0), Visited::First);
        for txn in 0..VISITS_MAX - 2 {
            assert_eq!(visit(&mut visits, new, txn, 0), Visited::First);
        }
        assert_eq!(visit(&mut visits, new, VISITS_MAX, 3), Visited::First);
        assert_eq!(visit(&mut visits, old, 1, 3), Visited::Refused);
        assert_eq!(visit(&mut visits, other, 0, 3), Visited::Again, "another starter's is not forgotten");
        // A round that needs all the room itself ends too.
        assert_eq!(visit(&mut visits, new, VISITS_MAX + 1, 4), Visited::First);
        assert_eq!(visit(&mut visits, new, VISITS_MAX + 2, 4), Visited::Refused);
        assert_eq!(visits.len(), VISITS_MAX);
        assert_eq!(visit(&mut visits, 3 << 16, 1, 4), Visited::First, "a later round goes on");
    }

    #[test]
    fn a_starter_that_counts_anew_is_heard_again() {
        let mut visits = Visits::default();
        for number in 100..101 + ROUNDS_MAX as u64 {
            assert_eq!(visit(&mut visits, number << 16, 1, 5), Visited::First);
        }
        assert_eq!(visits.len(), ROUNDS_MAX);
        let until = 5 + AFTER.0 * Visits::NOTE_FACTOR;
        assert_eq!(visit(&mut visits, 1 << 16, 1, until - 1), Visited::Refused);
        assert_eq!(visit(&mut visits, 1 << 16, 1, until), Visited::First);
        assert_eq!(visit(&mut visits, 1 << 16, 1, until), Visited::Again);
    }
}
