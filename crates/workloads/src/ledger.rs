//! Outcomes of transactions: the tallies of a run, and the ledger that an auditor compares a database with.
//!
//! Owns: the sums. Never: counts while transactions run, which is the task of the drivers.

use atrapos::AbortReason;

use crate::workload::ClassId;
#[cfg(doc)]
use crate::workload::Outcome;

/// Outcomes of the transactions of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ClassTally {
    /// Transactions that did their work and committed.
    pub committed: u64,
    /// Transactions that failed as the workload expects of a known share (see [`Outcome::ExpectedFailure`]).
    pub expected_failures: u64,
    /// Sum of the amounts that the committed transactions moved (see [`Outcome::Moved`]).
    pub moved: i64,
    /// Transactions that the engine aborted, by reason, in the order of [`AbortReason::ALL`].
    pub aborted: [u64; AbortReason::ALL.len()],
}

impl ClassTally {
    /// Returns the number of transactions that ran to their end: committed ones and expected failures.
    #[must_use]
    pub fn completed(&self) -> u64 {
        self.committed + self.expected_failures
    }

    /// Combines every count of this tally with the same one of `other`. Sums that moved are combined in two's
    /// complement.
    #[must_use]
    pub fn zip(&self, other: &ClassTally, with: impl Fn(u64, u64) -> u64) -> ClassTally {
        ClassTally {
            committed: with(self.committed, other.committed),
            expected_failures: with(self.expected_failures, other.expected_failures),
            moved: with(self.moved.cast_unsigned(), other.moved.cast_unsigned()).cast_signed(),
            aborted: std::array::from_fn(|at| with(self.aborted[at], other.aborted[at])),
        }
    }
}

/// All outcomes of transactions since a database was loaded, by class, as its auditor needs them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    classes: Vec<ClassTally>,
}

impl Ledger {
    /// Creates the ledger of a database in which no transaction has run since it was loaded.
    #[must_use]
    pub fn new() -> Ledger {
        Ledger::default()
    }

    /// Returns the number of transactions of `class` that committed.
    #[must_use]
    pub fn committed(&self, class: ClassId) -> u64 {
        self.classes.get(class.index()).map_or(0, |tally| tally.committed)
    }

    /// Returns the sum of the amounts that the committed transactions of all classes moved (see [`Outcome::Moved`]).
    #[must_use]
    pub fn moved(&self) -> i64 {
        self.classes.iter().fold(0, |sum, tally| sum.wrapping_add(tally.moved))
    }

    /// Adds the tallies of clients, by class.
    pub fn add(&mut self, tallies: &[ClassTally]) {
        if self.classes.len() < tallies.len() {
            self.classes.resize(tallies.len(), ClassTally::default());
        }
        for (sum, tally) in self.classes.iter_mut().zip(tallies) {
            *sum = sum.zip(tally, u64::wrapping_add);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_adds_up_what_clients_did() {
        let (first, second) = (ClassId(0), ClassId(1));
        let one = ClassTally { committed: 1, ..ClassTally::default() };
        let moved = ClassTally { committed: 2, expected_failures: 1, moved: -20, ..ClassTally::default() };
        let mut ledger = Ledger::new();
        assert_eq!(ledger.committed(first), 0);
        ledger.add(std::slice::from_ref(&one));
        ledger.add(&[one, moved.clone()]);
        assert_eq!((ledger.committed(first), ledger.committed(second)), (2, 2));
        assert_eq!((ledger.moved(), moved.completed()), (-20, 3));
        ledger.add(&[ClassTally::default(), moved]);
        assert_eq!(ledger.moved(), -40, "sums below zero are sums");
    }
}
