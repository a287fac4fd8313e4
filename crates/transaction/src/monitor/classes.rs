//! Transactions by class, as a worker has seen them end.
//!
//! Owns: the counts since the opening, extrapolated from the recorded ends of transactions at their homes. Never: costs a transaction that is
//! not recorded anything but to say what it is.
//!
//! Invariant: a worker tells at most [`CLASSES_MAX`] classes apart; it counts further ones together, as [`OTHERS`].

use std::iter::Sum;

/// The number of classes that a worker tells apart.
const CLASSES_MAX: usize = 64;

/// The name under which transactions of further classes are counted.
pub const OTHERS: &str = "(others)";

/// Numbers of transactions by class. Those of no class have the empty name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    counts: Vec<(&'static str, u64)>,
    samples: u64,
}

impl ClassCounts {
    /// Counts a recorded transaction, which stands for so many.
    pub(crate) fn count(&mut self, class: &'static str, stands_for: u64) {
        self.samples += 1;
        let is_known = self.counts.iter().any(|(known, _)| *known == class);
        let has_room = self.counts.len() < CLASSES_MAX;
        self.add(if is_known || has_room { class } else { OTHERS }, stands_for);
    }

    fn add(&mut self, class: &'static str, transactions: u64) {
        match self.counts.iter_mut().find(|(known, _)| *known == class) {
            Some((_, count)) => *count += transactions,
            None => self.counts.push((class, transactions)),
        }
    }

    /// Returns what was counted since `earlier`, counts of the same workers.
    #[must_use]
    pub fn since(&self, earlier: &ClassCounts) -> ClassCounts {
        let before = |class: &str| earlier.counts.iter().find(|(known, _)| *known == class);
        let since = |(class, now): &(&'static str, u64)| {
            (*class, now.saturating_sub(before(class).map_or(0, |(_, count)| *count)))
        };
        let counts = self.counts.iter().map(since).filter(|(_, count)| *count > 0).collect();
        ClassCounts { counts, samples: self.samples.saturating_sub(earlier.samples) }
    }

    /// The classes with their transactions.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.counts.iter().copied()
    }

    /// The recorded transactions that they are extrapolated from.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }
}

/// Each class of several workers: they may be more than one of them tells apart.
impl<'a> Sum<&'a ClassCounts> for ClassCounts {
    fn sum<I: Iterator<Item = &'a ClassCounts>>(workers: I) -> ClassCounts {
        workers.fold(ClassCounts::default(), |mut sum, worker| {
            worker.counts.iter().for_each(|(class, transactions)| sum.add(class, *transactions));
            sum.samples += worker.samples;
            sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_are_told_apart_by_time() {
        let mut counts = ClassCounts::default();
        counts.count("read", 512);
        let before = counts.clone();
        counts.count("read", 256);
        counts.count("write", 1);
        let since = counts.since(&before);
        assert_eq!(
            (since.iter().collect::<Vec<_>>(), since.samples()),
            (vec![("read", 256), ("write", 1)], 2)
        );
        assert_eq!([&before, &since].into_iter().sum::<ClassCounts>(), counts);
        assert_eq!(counts.since(&counts), ClassCounts::default());
    }

    #[test]
    fn classes_are_bounded() {
        let mut counts = ClassCounts::default();
        for at in 0..CLASSES_MAX + 10 {
            counts.count(String::leak(format!("class {at}")), 2);
        }
        assert_eq!(counts.iter().count(), CLASSES_MAX + 1);
        assert_eq!(counts.iter().last(), Some((OTHERS, 20)));
        assert_eq!([&counts].into_iter().sum::<ClassCounts>(), counts);
    }
}
