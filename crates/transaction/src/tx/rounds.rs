//! Synchronization points of a transaction in which other workers take part, for the monitor.
//!
//! A *round* is an action, or a phase, of which a part is sent to other workers: the home suspends, and goes on when the replies are
//! there. What a transaction does on data of its home alone needs no round: the monitor has its accesses.
//!
//! Owns: the accesses that were sent, and the bytes that went to other workers and came back. Never: knows a sub-partition.
//!
//! Invariants: rounds are in the order of their beginnings, as is what was sent in them; memory is bounded.

use std::ops::Range;

use atrapos_partition::monitor::Partner;
use atrapos_partition::schema::TableId;
use atrapos_runtime::WorkerId;
use atrapos_storage::KeyBuf;

/// The greatest number of accesses on other workers that are noted of a transaction.
const SENT_MAX: usize = 64;

/// The greatest number of rounds of a transaction that are told apart; what is sent later counts for the last one.
const ROUNDS_MAX: usize = 32;

/// An access on another worker.
#[derive(Debug)]
pub(crate) struct Sent {
    /// The worker that it was sent to.
    pub(crate) to: WorkerId,
    /// What it accesses.
    pub(crate) partner: Partner,
}

#[derive(Debug)]
struct Round {
    /// The accesses at the home that were made in the same phase.
    home: Range<usize>,
    /// The first access that was sent in it.
    first_sent: usize,
    /// Bytes that went to other workers and came back.
    bytes: u64,
}

/// The rounds of a transaction. See the module's introduction.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    rounds: Vec<Round>,
    sent: Vec<Sent>,
}

/// A round, as the monitor reads it.
#[derive(Debug)]
pub(crate) struct RoundRead<'a> {
    /// The accesses at the home that were made in the same phase.
    pub(crate) home: Range<usize>,
    /// The accesses on other workers.
    pub(crate) sent: &'a [Sent],
    /// Bytes that went to other workers and came back.
    pub(crate) bytes: u64,
}

impl Rounds {
    /// Begins a round of a transaction with so many accesses at its home, and returns its number; `None` if no more are told apart.
    pub(super) fn begin(&mut self, accesses: usize) -> Option<usize> {
        if self.rounds.len() == ROUNDS_MAX {
            return None;
        }
        self.rounds.push(Round { home: accesses..accesses, first_sent: self.sent.len(), bytes: 0 });
        Some(self.rounds.len() - 1)
    }

    /// Notes that a round is over, and how many accesses the transaction has at its home now.
    pub(super) fn end(&mut self, round: usize, accesses: usize) {
        if let Some(round) = self.rounds.get_mut(round) {
            round.home.end = accesses.max(round.home.start);
        }
    }

    /// Notes an access on another worker, in the round that began last.
    pub(super) fn send(&mut self, to: WorkerId, table: TableId, key: &KeyBuf) {
        if self.sent.len() < SENT_MAX {
            self.sent.push(Sent { to, partner: (table, key.clone()) });
        }
    }

    /// Notes an access that was made where the latest one was sent to.
    pub(super) fn follow(&mut self, table: TableId, key: &KeyBuf) {
        if let Some(to) = self.sent.last().map(|sent| sent.to) {
            self.send(to, table, key);
        }
    }

    /// Adds bytes to the round that began last.
    #[inline]
    pub(super) fn exchange(&mut self, bytes: usize) {
        if let Some(round) = self.rounds.last_mut() {
            round.bytes += bytes as u64;
        }
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.rounds.clear();
        self.sent.clear();
    }

    /// The rounds, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = RoundRead<'_>> {
        self.rounds.iter().enumerate().map(|(at, round)| {
            let end = self.rounds.get(at + 1).map_or(self.sent.len(), |next| next.first_sent);
            RoundRead {
                home: round.home.clone(),
                sent: &self.sent[round.first_sent..end],
                bytes: round.bytes,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_belongs_to_the_round_before_it() {
        let mut rounds = Rounds::default();
        let key = KeyBuf::from(&[1_u8][..]);
        let first = rounds.begin(2).expect("the first");
        rounds.send(WorkerId(1), TableId(0), &key);
        rounds.send(WorkerId(2), TableId(0), &key);
        rounds.exchange(100);
        rounds.end(first, 5);
        rounds.begin(5).expect("the second");
        rounds.send(WorkerId(1), TableId(3), &key);
        rounds.exchange(7);
        let read: Vec<_> =
            rounds.iter().map(|round| (round.home.clone(), round.sent.len(), round.bytes)).collect();
        assert_eq!(read, [(2..5, 2, 100), (5..5, 1, 7)]);
        rounds.clear();
        assert_eq!(rounds.iter().count(), 0);
    }

    #[test]
    fn memory_is_bounded() {
        let mut rounds = Rounds::default();
        for _ in 0..10 * SENT_MAX {
            rounds.begin(0);
            rounds.send(WorkerId(1), TableId(0), &KeyBuf::new());
            rounds.exchange(1);
        }
        assert_eq!(rounds.iter().count(), ROUNDS_MAX);
        assert_eq!(rounds.iter().map(|round| round.sent.len()).sum::<usize>(), SENT_MAX);
        assert_eq!(rounds.iter().map(|round| round.bytes).sum::<u64>(), 10 * SENT_MAX as u64);
    }
}
