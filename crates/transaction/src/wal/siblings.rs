//! The open transactions of one worker whose clients are in the middle of them: PostgreSQL's commit siblings.
//!
//! A worker that has nothing to do but to wait for a sync asks its flusher to hurry. Where clients run their transactions a command at
//! a time it nearly always has nothing to do, for a moment, and each sync would serve a transaction or two, whose processor time it
//! costs. So such a worker is in no hurry while more transactions are about to commit than wait.
//!
//! Invariants
//! - A transaction is counted at most once: in the round in which it last went on, as its state says ([`Heard`]).
//! - A transaction that has not gone on for two rounds is not counted: a client that is idle within a transaction delays nobody.

use std::cell::Cell;

/// The number of the round in which a transaction last went on after waiting for its client; zero if it never did.
pub(crate) type Heard = Cell<u64>;

/// The least number of open transactions for which a sync is delayed: with few, a sync for each costs less than their waiting.
const LEAST: usize = 4;

/// See the module's introduction.
#[derive(Debug)]
pub(crate) struct Siblings {
    /// The number of the round since which transactions go on.
    round: Cell<u64>,
    /// The transactions that last went on in this round.
    now: Cell<usize>,
    /// The transactions that last went on in the round before.
    before: Cell<usize>,
}

impl Default for Siblings {
    fn default() -> Siblings {
        Siblings { round: Cell::new(2), now: Cell::new(0), before: Cell::new(0) }
    }
}

impl Siblings {
    /// Counts a transaction that goes on after waiting for its client. It is known on its worker, so that it [leaves](Siblings::leave).
    pub(crate) fn hear(&self, heard: &Heard) {
        if heard.get() != self.round.get() {
            self.leave(heard);
            heard.set(self.round.get());
            self.now.set(self.now.get() + 1);
        }
    }

    /// Counts a transaction no more.
    pub(crate) fn leave(&self, heard: &Heard) {
        let round = self.round.get();
        match round - heard.replace(0) {
            0 => self.now.set(self.now.get() - 1),
            1 => self.before.set(self.before.get() - 1),
            _ => {}
        }
    }

    /// Begins a round: a sync has served transactions of this worker.
    pub(crate) fn begin_round(&self) {
        self.round.set(self.round.get() + 1);
        self.before.set(self.now.replace(0));
    }

    /// Returns true if more transactions are about to commit than the `waiting` that have.
    #[inline]
    pub(crate) fn are_worth_waiting_for(&self, waiting: usize) -> bool {
        let open = self.now.get() + self.before.get();
        open >= LEAST && open > waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts transactions that go on now.
    fn heard(siblings: &Siblings, transactions: usize) -> Vec<Heard> {
        let all: Vec<Heard> = (0..transactions).map(|_| Heard::default()).collect();
        all.iter().for_each(|heard| siblings.hear(heard));
        all
    }

    #[test]
    fn a_sync_waits_until_as_many_have_committed_as_are_open() {
        let siblings = Siblings::default();
        let open = heard(&siblings, 6);
        for (waiting, transaction) in open.iter().enumerate() {
            // Each of those that wait has left.
            let expected = waiting < 3 && 6 - waiting >= LEAST;
            assert_eq!(siblings.are_worth_waiting_for(waiting), expected, "{waiting} wait");
            siblings.leave(transaction);
        }
        assert_eq!((siblings.now.get(), siblings.before.get()), (0, 0));
    }

    #[test]
    fn few_open_transactions_delay_no_sync() {
        let siblings = Siblings::default();
        let _open = heard(&siblings, LEAST - 1);
        assert!(!siblings.are_worth_waiting_for(1));
    }

    #[test]
    fn idle_transactions_delay_a_sync_for_two_rounds() {
        let siblings = Siblings::default();
        let (idle, active) = (heard(&siblings, LEAST), heard(&siblings, 2));
        siblings.begin_round();
        active.iter().for_each(|transaction| siblings.hear(transaction));
        assert!(siblings.are_worth_waiting_for(1));
        siblings.begin_round();
        active.iter().for_each(|transaction| siblings.hear(transaction));
        assert!(!siblings.are_worth_waiting_for(1));
        // Whoever goes on again counts again, and leaving takes nothing from others.
        siblings.hear(&idle[0]);
        idle.iter().for_each(|transaction| siblings.leave(transaction));
        assert_eq!((siblings.now.get(), siblings.before.get()), (2, 0));
    }
}
