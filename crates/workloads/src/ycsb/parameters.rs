//! The next operations of a YCSB client and their keys.
//!
//! Owns: the choice of kinds and of keys. Never: runs an operation.
//!
//! # Distributions
//!
//! *Uniform* and *Zipf* choose among the loaded records. *Latest* chooses by age: the newest record is the most
//! popular, by Zipf's distribution. A client's newest records are those it has inserted itself, followed by the loaded
//! ones in descending order. (YCSB's clients share one counter of insertions. Here they would write it from all
//! workers, and the requests of a client would depend on the speed of others; this way they follow from the seed.)
//!
//! Invariant: the keys of one transaction are all different.

use super::mix::{Distribution, Kind, Mix};
use super::schema::Keys;
use crate::keys::KeySet;
use crate::popularity::{Permutation, Popularity};
use crate::random::Random;
use serde::{Deserialize, Serialize};

/// Greatest number of records that a scan reads.
pub const SCAN_MAX: u32 = 100;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Op {
    /// Kind of the operation.
    pub kind: Kind,
    /// The key it begins with.
    pub key: u64,
    /// The column written, or the number of records scanned.
    pub detail: u32,
}

/// Number of times that a key drawn before is drawn again before the next free one is taken. That happens only where
/// popular keys are in almost every transaction.
const DRAWS_MAX: usize = 16;

/// Draws the operations of one client.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// Limits of the kinds: a kind is drawn if 32 random bits are below its limit and not below the one before.
    limits: [u64; 5],
    columns: u32,
    keys: Keys,
    /// The slots from which the client chooses keys.
    own: KeySet,
    distribution: Distribution,
    popularity: Popularity,
    /// The order in which slots take insertions.
    order: Permutation,
    lane: u64,
    /// Number of insertions that were committed.
    inserted: u64,
    random: Random,
}

/// Arguments of [`Parameters::new`].
pub(super) struct Setting<'a> {
    pub(super) mix: &'a Mix,
    pub(super) columns: u32,
    pub(super) keys: Keys,
    pub(super) own: KeySet,
    pub(super) distribution: Distribution,
    pub(super) popularity: Popularity,
    pub(super) lane: u64,
    pub(super) random: Random,
}

impl Parameters {
    pub(super) fn new(setting: Setting<'_>) -> Parameters {
        let Setting { mix, columns, keys, own, distribution, popularity, lane, random } = setting;
        let mut sum = 0.0;
        let mut limits = mix.shares().map(|share| {
            sum += share;
            (sum * (1_u64 << 32) as f64).round() as u64
        });
        // Rounding takes nothing from the last kind with a share above 0.
        let last = mix.shares().iter().rposition(|share| *share > 0.0).unwrap_or(0);
        limits[last..].fill(1 << 32);
        let order = Permutation::new(own.len());
        Parameters { limits, columns, keys, own, distribution, popularity, order, lane, inserted: 0, random }
    }

    #[inline]
    fn kind(&mut self) -> Kind {
        if self.limits[0] == 1 << 32 {
            return Kind::Read;
        }
        let bits = self.random.bits() >> 32;
        let at = self.limits.iter().position(|limit| bits < *limit).unwrap_or(0);
        Kind::ALL[at]
    }

    /// Returns the key of the loaded record that is number `at` of the client's own.
    #[inline]
    fn loaded(&self, at: u64) -> u64 {
        self.keys.loaded(self.own.nth(at))
    }

    /// Returns the key of the client's insertion `number`.
    #[inline]
    fn insertion(&self, number: u64) -> u64 {
        let slots = self.own.len();
        let slot = self.own.nth(Keys::slot(self.lane, number, slots, self.order));
        self.keys.inserted(slot, self.lane, number, slots)
    }

    /// Draws the key of an existing record.
    #[inline]
    fn existing(&mut self) -> u64 {
        if self.distribution != Distribution::Latest {
            let record = self.popularity.draw(&mut self.random);
            return self.loaded(record);
        }
        let age = self.popularity.rank(&mut self.random);
        match self.inserted.checked_sub(age + 1) {
            Some(number) => self.insertion(number),
            None => {
                let number = self.own.len() - 1 - (age - self.inserted);
                self.loaded(self.popularity.record(number))
            }
        }
    }

    #[inline]
    fn detail(&mut self, kind: Kind) -> u32 {
        match kind {
            Kind::Read | Kind::Insert => 0,
            Kind::Update | Kind::ReadModifyWrite => self.random.small(self.columns),
            Kind::Scan => 1 + self.random.small(SCAN_MAX),
        }
    }

    /// Draws the operation of a transaction with a single one.
    #[inline]
    pub fn op(&mut self) -> Op {
        let kind = self.kind();
        let key = if kind == Kind::Insert { self.insertion(self.inserted) } else { self.existing() };
        Op { kind, key, detail: self.detail(kind) }
    }

    /// Draws the `count` operations of the next transaction, at most as many as there are loaded records to choose
    /// from.
    pub fn transaction(&mut self, count: usize) -> Vec<Op> {
        let mut ops: Vec<Op> = Vec::with_capacity(count);
        let mut insertions = 0;
        while ops.len() < count {
            let kind = self.kind();
            let key = if kind == Kind::Insert {
                insertions += 1;
                self.insertion(self.inserted + insertions - 1)
            } else {
                self.another(&ops)
            };
            ops.push(Op { kind, key, detail: self.detail(kind) });
        }
        ops
    }

    /// Draws the key of an existing record that no operation of `ops` has.
    #[inline]
    fn another(&mut self, ops: &[Op]) -> u64 {
        let is_new = |key: u64| ops.iter().all(|op| op.key != key);
        for _ in 0..DRAWS_MAX {
            let key = self.existing();
            if is_new(key) {
                return key;
            }
        }
        let n = self.own.len();
        let mut at = self.random.below(n);
        while !is_new(self.loaded(at)) {
            at = (at + 1) % n;
        }
        self.loaded(at)
    }

    /// Counts insertions that were committed.
    #[inline]
    pub fn committed(&mut self, insertions: u64) {
        self.inserted += insertions;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chi_square::assert_fits;
    use crate::popularity::Zipfs;

    fn parameters(mix: &Mix, distribution: Distribution, rows: u64, scrambled: bool) -> Parameters {
        let zipfs = Zipfs::new(0.99).expect("a distribution");
        let zipfs = (distribution != Distribution::Uniform).then_some(&zipfs);
        Parameters::new(Setting {
            mix,
            columns: 10,
            keys: Keys::of(rows),
            own: KeySet::range(0, rows - 1).expect("records"),
            distribution,
            popularity: Popularity::new(rows, zipfs, scrambled),
            lane: 3,
            random: Random::of_stream(71, 1),
        })
    }

    #[test]
    fn letters_have_ycsb_s_shares() {
        for letter in ["a", "b", "c", "d", "e", "f"] {
            let mix: Mix = letter.parse().expect("a letter");
            assert_eq!((mix.to_string().as_str(), mix.shares().iter().sum::<f64>()), (letter, 1.0));
            assert_eq!(mix.distribution() == Distribution::Latest, letter == "d");
            let mut parameters = parameters(&mix, mix.distribution(), 1000, true);
            let (mut kinds, mut details) = ([0; 5], [0; 100]);
            for _ in 0..100_000 {
                let op = parameters.op();
                kinds[op.kind as usize] += 1;
                match op.kind {
                    Kind::Scan => details[op.detail as usize - 1] += 1,
                    kind => assert!(op.detail < 10 && (kind.writes() || op.detail == 0)),
                }
            }
            let there: Vec<usize> = (0..5).filter(|kind| mix.shares()[*kind] > 0.0).collect();
            let counts: Vec<u64> = there.iter().map(|kind| kinds[*kind]).collect();
            let shares: Vec<f64> = there.iter().map(|kind| mix.shares()[*kind]).collect();
            assert_eq!(counts.iter().sum::<u64>(), 100_000, "nothing else is drawn");
            if there.len() > 1 {
                assert_fits(letter, &counts, &shares);
            }
            if letter == "e" {
                assert_fits("lengths of scans", &details, &[0.01; 100]);
            }
        }
    }

    /// Returns Zipf's shares of the ages, those beyond the first in groups of doubling size.
    fn shares_by_age(n: u64) -> Vec<f64> {
        let weight = |rank: u64| (rank as f64).powf(-0.99);
        let total: f64 = (1..=n).map(weight).sum();
        let mut shares = vec![0.0; n.ilog2() as usize + 1];
        (1..=n).for_each(|rank| shares[rank.ilog2() as usize] += weight(rank) / total);
        shares
    }

    #[test]
    fn the_newest_records_are_the_most_popular() {
        let rows = 1000;
        let read = Mix::only(Kind::Read);
        for insertions in [0, 40, 5000] {
            let mut parameters = parameters(&read, Distribution::Latest, rows, true);
            let mut ages = std::collections::BTreeMap::new();
            for record in 0..rows {
                let key = parameters.loaded(parameters.popularity.record(record));
                ages.insert(key, rows - 1 - record + insertions);
            }
            for number in 0..insertions {
                assert_eq!(ages.insert(parameters.insertion(number), insertions - 1 - number), None);
            }
            parameters.committed(insertions);
            let mut counts = vec![0; shares_by_age(rows).len()];
            for _ in 0..100_000 {
                let age = ages[&parameters.op().key];
                counts[(age + 1).ilog2() as usize] += 1;
            }
            assert_fits("ages", &counts, &shares_by_age(rows));
        }
    }

    #[test]
    fn insertions_go_everywhere_and_are_forgotten_unless_committed() {
        let insert = Mix::only(Kind::Insert);
        let mut parameters = parameters(&insert, Distribution::Zipf, 1000, true);
        let first = parameters.op();
        assert_eq!(parameters.op(), first, "it was not committed");
        let mut tenths = [0; 10];
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..10_000 {
            let key = parameters.op().key;
            assert!(seen.insert(key));
            tenths[((key >> parameters.keys.shift()) / 100) as usize] += 1;
            parameters.committed(1);
        }
        assert_eq!(tenths, [1000; 10]);
    }

    #[test]
    fn keys_of_a_transaction_are_different() {
        for (rows, count) in [(16, 16), (1000, 16), (100_000, 64)] {
            for distribution in [Distribution::Zipf, Distribution::Latest, Distribution::Uniform] {
                let mix: Mix = "d".parse().expect("a letter");
                let mut parameters = parameters(&mix, distribution, rows, false);
                for _ in 0..300 {
                    let ops = parameters.transaction(count);
                    let mut keys: Vec<u64> = ops.iter().map(|op| op.key).collect();
                    keys.sort_unstable();
                    keys.dedup();
                    assert_eq!(keys.len(), count);
                    parameters.committed(ops.iter().filter(|op| op.kind == Kind::Insert).count() as u64);
                }
            }
        }
    }

    #[test]
    fn operations_repeat_by_seed() {
        let draw = || {
            let mix: Mix = "a".parse().expect("a letter");
            let mut parameters = parameters(&mix, Distribution::Zipf, 500, true);
            (0..50).map(|_| parameters.transaction(4)).collect::<Vec<_>>()
        };
        assert_eq!(draw(), draw());
    }
}
