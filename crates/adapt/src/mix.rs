//! The mix of an interval: how many transactions of each class there were.
//!
//! Owns: the counts, and what distance of two mixes is no noise. Never: says what transactions of a class do; see
//! [`ClassFlow`](crate::ClassFlow).
//!
//! Invariant: counts are positive and finite.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The transactions of each class in some time. Those of no class have the empty name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Mix {
    /// Transactions by class.
    transactions: BTreeMap<String, f64>,
    /// The number of samples that they were extrapolated from.
    samples: f64,
}

impl Mix {
    /// The mix of these numbers of transactions, which so many samples stand for. Numbers that are none, and those that are not above zero,
    /// are left out.
    pub fn new<N: Into<String>>(transactions: impl IntoIterator<Item = (N, f64)>, samples: f64) -> Self {
        let counted = transactions.into_iter().filter(|(_, count)| count.is_finite() && *count > 0.0);
        let mut by_class = BTreeMap::new();
        for (class, count) in counted {
            *by_class.entry(class.into()).or_insert(0.0) += count;
        }
        Self { transactions: by_class, samples: if samples.is_nan() { 0.0 } else { samples.max(0.0) } }
    }

    /// Returns whether no transaction was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }

    /// The classes with their shares of all transactions, the greatest first.
    #[must_use]
    pub fn shares(&self) -> Vec<(&str, f64)> {
        let all: f64 = self.transactions.values().sum();
        let mut shares: Vec<_> =
            self.transactions.iter().map(|(class, count)| (class.as_str(), count / all)).collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1));
        shares
    }

    /// Half of the sum of the differences of all shares: the share of transactions that are of another class, from 0 to 1. 0 where one of
    /// the mixes is empty.
    #[must_use]
    pub fn distance(&self, other: &Self) -> f64 {
        if self.is_empty() || other.is_empty() {
            return 0.0;
        }
        let (all, other_all): (f64, f64) =
            (self.transactions.values().sum(), other.transactions.values().sum());
        let share = |mix: &Self, class: &String, all: f64| mix.transactions.get(class).unwrap_or(&0.0) / all;
        let differs = |class: &String| (share(self, class, all) - share(other, class, other_all)).abs();
        let more: f64 = self.transactions.keys().map(differs).sum();
        let only_there = other.transactions.keys().filter(|class| !self.transactions.contains_key(*class));
        (more + only_there.map(differs).sum::<f64>()) / 2.0
    }

    /// The distance that two mixes of one load may have because they are of samples, at most so many standard deviations: of `k` classes in
    /// `n` samples the mean of the differences is about the root of `k / n`.
    #[must_use]
    pub fn noise(&self, other: &Self, deviations: f64) -> f64 {
        let classes = self.transactions.len().max(other.transactions.len()) as f64;
        let of = |samples: f64| if samples > 0.0 { classes / samples } else { f64::INFINITY };
        deviations / 2.0 * (of(self.samples) + of(other.samples)).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_is_the_share_of_other_transactions() {
        let half = Mix::new([("a", 50.0), ("b", 50.0)], 100.0);
        assert_eq!(half.distance(&half), 0.0);
        assert_eq!(half.distance(&Mix::new([("a", 3.0), ("b", 1.0)], 4.0)), 0.25);
        assert_eq!(half.distance(&Mix::new([("c", 7.0)], 7.0)), 1.0);
        assert_eq!(Mix::new([("c", 7.0)], 7.0).distance(&half), 1.0);
        assert_eq!(half.distance(&Mix::default()), 0.0);
    }

    #[test]
    fn few_samples_are_noise() {
        let (few, many) = (Mix::new([("a", 1.0), ("b", 1.0)], 2.0), Mix::new([("a", 1.0)], 1e6));
        assert!(few.noise(&many, 3.0) > 1.0);
        assert!(many.noise(&many, 3.0) < 0.01);
        assert!(Mix::default().noise(&many, 3.0).is_infinite());
    }

    #[test]
    fn numbers_that_are_none_are_left_out() {
        let mix = Mix::new([("a", f64::NAN), ("b", -1.0), ("c", 0.0), ("d", 2.0), ("", 6.0)], f64::NAN);
        assert_eq!(mix.shares(), [("", 0.75), ("d", 0.25)]);
        assert!(!mix.is_empty() && Mix::new([("c", 0.0)], 1.0).is_empty());
    }
}
