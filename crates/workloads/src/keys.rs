//! Choice of keys by clients: sets of keys, and the probability of each key.
//!
//! Owns: sets of integer keys (all of a table, or those of one worker) and the uniform and TATP's non-uniform choice
//! among them. Never: knows the meaning of the keys.

use atrapos::{Scheme, TableId, WorkerId};

use crate::random::Random;

/// A non-empty set of integer keys, as ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySet {
    first: u64,
    /// Number of keys in the first range.
    count: u64,
    /// Further ranges in ascending order: the number of the range's first key in the set, and that key.
    more: Box<[(u64, u64)]>,
    total: u64,
}

impl KeySet {
    /// Returns the set of the keys from `first` to `last`; `None` if there are none.
    #[must_use]
    pub fn range(first: u64, last: u64) -> Option<KeySet> {
        KeySet::of_ranges(&[(first, last)])
    }

    /// Returns the set of those keys from `first` to `last`, as leading parts of the keys of `table`, that `worker`
    /// owns by a scheme; `None` if there are none. A caller that distributes keys to several workers uses one scheme
    /// for all of them.
    #[must_use]
    pub fn owned_by(
        scheme: &Scheme,
        table: TableId,
        first: u64,
        last: u64,
        worker: WorkerId,
    ) -> Option<KeySet> {
        let family = scheme.family(table);
        let cut = |key: &[u8]| {
            let mut head = [0; 8];
            let len = key.len().min(8);
            head[..len].copy_from_slice(&key[..len]);
            u64::from_be_bytes(head)
        };
        let owned = (0..family.partitions()).filter(|index| family.owner(*index) == worker);
        let ranges: Vec<(u64, u64)> = owned
            .filter_map(|index| {
                let from = family.lower(index).map_or(first, |key| cut(key).max(first));
                let to = match family.upper(index).map(cut) {
                    Some(upper) => upper.checked_sub(1)?.min(last),
                    None => last,
                };
                (from <= to).then_some((from, to))
            })
            .collect();
        KeySet::of_ranges(&ranges)
    }

    /// Creates a set of keys that are in ascending order; `None` if there are none.
    #[must_use]
    pub fn of_sorted(keys: impl IntoIterator<Item = u64>) -> Option<KeySet> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for key in keys {
            match ranges.last_mut() {
                Some((_, last)) if last.checked_add(1) == Some(key) => *last = key,
                _ => ranges.push((key, key)),
            }
        }
        KeySet::of_ranges(&ranges)
    }

    /// Returns the set of those blocks of `2^bits` keys each, numbered from 0, whose first key is in this set; `None`
    /// if there is none.
    #[must_use]
    pub fn blocks(&self, bits: u32) -> Option<KeySet> {
        let block = 1_u64 << bits;
        let ends = self.more.iter().map(|(start, _)| *start).chain([self.total]);
        let starts = [(0, self.first)].into_iter().chain(self.more.iter().copied());
        let ranges: Vec<(u64, u64)> = starts
            .zip(ends)
            .filter_map(|((start, first), end)| {
                let last = first + (end - start - 1);
                let (from, to) = (first.div_ceil(block), last / block);
                (from <= to).then_some((from, to))
            })
            .collect();
        KeySet::of_ranges(&ranges)
    }

    fn of_ranges(ranges: &[(u64, u64)]) -> Option<KeySet> {
        let mut total = 0;
        let mut starts = Vec::new();
        for (first, last) in ranges.iter().filter(|(first, last)| first <= last) {
            starts.push((total, *first));
            total += last - first + 1;
        }
        let (_, first) = *starts.first()?;
        let count = starts.get(1).map_or(total, |(start, _)| *start);
        Some(KeySet { first, count, more: starts.split_off(1).into_boxed_slice(), total })
    }

    /// Returns the number of keys; at least 1.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u64 {
        self.total
    }

    /// Returns false always: a set without keys cannot be made.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Returns key number `at`, counted from 0 in ascending order.
    #[inline]
    #[must_use]
    pub fn nth(&self, at: u64) -> u64 {
        debug_assert!(at < self.total, "key number {at} of {}", self.total);
        if at < self.count { self.first + at } else { self.nth_of_more(at) }
    }

    fn nth_of_more(&self, at: u64) -> u64 {
        let range = self.more.partition_point(|(start, _)| *start <= at) - 1;
        let (start, first) = self.more[range];
        first + (at - start)
    }
}

/// The distribution by which keys are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum KeyChoice {
    /// Uniform: all keys with equal probability.
    #[default]
    Uniform,
    /// TATP's non-uniform distribution: `(rnd(0, A) | rnd(1, n)) mod n`, which favours keys with many one bits.
    NonUniform,
    /// Hotspot: a share of the requests goes to a range of the keys, the rest to all others, uniformly within each.
    /// Ends of the range beyond the last key are cut off, and it has at least one key.
    Hot {
        /// Share of the requests that go to the range, in percent.
        requests_percent: u8,
        /// Beginning of the range, in thousandths of the keys.
        first_permille: u16,
        /// Length of the range, in thousandths of the keys.
        size_permille: u16,
    },
}

impl KeyChoice {
    /// Returns `A` of the specification for `n` keys.
    #[must_use]
    pub fn spread(n: u64) -> u64 {
        match n {
            0..=1_000_000 => 65_535,
            1_000_001..=10_000_000 => 1_048_575,
            _ => 2_097_151,
        }
    }

    /// Chooses a key of the set.
    #[inline]
    pub fn choose(self, keys: &KeySet, random: &mut Random) -> u64 {
        let n = keys.len();
        match self {
            KeyChoice::Uniform => keys.nth(random.below(n)),
            KeyChoice::NonUniform => {
                let a = random.below(KeyChoice::spread(n) + 1);
                keys.nth((a | random.between(1, n)) % n)
            }
            KeyChoice::Hot { requests_percent, first_permille, size_permille } => {
                let first = (n * u64::from(first_permille) / 1000).min(n - 1);
                let count = (n * u64::from(size_permille) / 1000).clamp(1, n - first);
                let is_hot = random.small(100) < u32::from(requests_percent) || count == n;
                let at = if is_hot {
                    first + random.below(count)
                } else {
                    let other = random.below(n - count);
                    if other < first { other } else { other + count }
                };
                keys.nth(at)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chi_square::assert_fits;

    #[test]
    fn ranges_are_counted_through() {
        let set = KeySet::of_ranges(&[(5, 6), (10, 10), (3, 2), (20, 22)]).expect("keys");
        assert_eq!((0..set.len()).map(|at| set.nth(at)).collect::<Vec<_>>(), [5, 6, 10, 20, 21, 22]);
        assert_eq!(KeySet::range(2, 1), None);
        assert_eq!(KeySet::of_sorted([5, 6, 10, 20, 21, 22]), Some(set.clone()));
        assert_eq!(KeySet::of_sorted([]), None);
        assert!(!set.is_empty());
    }

    #[test]
    fn blocks_are_those_that_begin_in_the_set() {
        let set = KeySet::of_ranges(&[(0, 3), (6, 17), (18, 19), (33, 40)]).expect("keys");
        let blocks = set.blocks(3).expect("blocks");
        assert_eq!((0..blocks.len()).map(|at| blocks.nth(at)).collect::<Vec<_>>(), [0, 1, 2, 5]);
        assert_eq!(KeySet::range(1, 7).expect("keys").blocks(3), None);
        let all = KeySet::range(0, u64::MAX - 1).expect("keys").blocks(60).expect("blocks");
        assert_eq!((all.len(), all.nth(15)), (16, 15));
    }

    #[test]
    fn uniform_choice_is_uniform_over_all_ranges() {
        let set = KeySet::of_ranges(&[(0, 2), (10, 11)]).expect("keys");
        let mut random = Random::of_stream(1, 0);
        let mut counts = [0; 5];
        for _ in 0..50_000 {
            let key = KeyChoice::Uniform.choose(&set, &mut random);
            counts[[0, 1, 2, 10, 11].iter().position(|known| *known == key).expect("a key of the set")] += 1;
        }
        assert_fits("uniform choice", &counts, &[0.2; 5]);
    }

    #[test]
    fn a_hot_range_gets_its_share_of_the_requests() {
        let set = KeySet::range(1, 20).expect("keys");
        let hot = |first_permille, size_permille| {
            let choice = KeyChoice::Hot { requests_percent: 50, first_permille, size_permille };
            let mut random = Random::of_stream(3, 0);
            let mut counts = [0; 20];
            (0..50_000).for_each(|_| counts[choice.choose(&set, &mut random) as usize - 1] += 1);
            counts
        };
        let mut shares = [0.5 / 16.0; 20];
        shares[5..9].fill(0.5 / 4.0);
        assert_fits("a hot range", &hot(250, 200), &shares);
        let mut shares = [0.5 / 19.0; 20];
        shares[19] = 0.5;
        assert_fits("a hot range beyond the last key", &hot(1000, 500), &shares);
        assert_fits("a hot range of all keys", &hot(0, 1000), &[0.05; 20]);
    }

    /// Returns the distribution by definition, over every pair of the two uniform draws.
    fn exact(n: u64) -> Vec<f64> {
        let spread = KeyChoice::spread(n);
        let mut shares = vec![0.0; n as usize];
        for a in 0..=spread {
            for b in 1..=n {
                shares[((a | b) % n) as usize] += 1.0 / ((spread + 1) * n) as f64;
            }
        }
        shares
    }

    #[test]
    fn non_uniform_choice_is_the_specification_s() {
        let n = 40;
        let set = KeySet::range(1, n).expect("keys");
        let mut random = Random::of_stream(2, 0);
        let mut counts = vec![0; n as usize];
        for _ in 0..200_000 {
            counts[KeyChoice::NonUniform.choose(&set, &mut random) as usize - 1] += 1;
        }
        let exact = exact(n);
        let (least, most) =
            (exact.iter().copied().fold(1.0, f64::min), exact.iter().copied().fold(0.0, f64::max));
        assert!(most > 1.001 * least, "the choice is not uniform");
        assert_fits("non-uniform choice", &counts, &exact);
        assert_eq!([1, 1_000_001, 10_000_001].map(KeyChoice::spread), [65_535, 1_048_575, 2_097_151]);
    }
}
