//! Popularity of the records of a set: uniform, or by Zipf's distribution, with popular records next to each other or
//! spread over the set.
//!
//! Owns: the order of popularity. Never: knows the records; records are numbers from 0.
//!
//! Zipf's distribution is over ranks, and rank 1 is the most popular. A record's rank is assigned in one of two ways.
//! *Scrambled*, as in YCSB, popular records are spread over all of them; YCSB hashes the rank, with collisions, but
//! here ranks are permuted, so that every record has one rank and the distribution is exactly Zipf's. *Unscrambled*,
//! record 0 is the most popular, and popular records are adjacent: on few workers, or one.

use std::sync::{Arc, Mutex, PoisonError};

use crate::random::Random;
use crate::zipf::Zipf;

/// A pseudorandom permutation of the numbers from 0 to `n - 1`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permutation {
    n: u64,
    /// One less than the smallest power of two that is at least `n`.
    mask: u64,
    shift: u32,
}

impl Permutation {
    /// Creates the permutation of `n` numbers, at least one and at most 2^63.
    pub(crate) fn new(n: u64) -> Permutation {
        let size = n.next_power_of_two();
        Permutation { n, mask: size - 1, shift: (size.trailing_zeros() / 2).max(1) }
    }

    /// Returns the image of `number`, which is below `n`.
    #[inline]
    pub(crate) fn of(&self, number: u64) -> u64 {
        let mut number = number;
        loop {
            // Each step is a permutation of the numbers up to the mask: adding, multiplying by an odd number, shifting
            // into itself.
            number = number.wrapping_add(0x5851_f42d_4c95_7f2d) & self.mask;
            number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) & self.mask;
            number ^= number >> self.shift;
            number = number.wrapping_mul(0xd6e8_feb8_6659_fd93) & self.mask;
            number ^= number >> self.shift;
            // A result that is too large is permuted again: a cycle that begins below `n` returns there.
            if number < self.n {
                return number;
            }
        }
    }
}

/// Distributions by their number of ranks.
type ByRanks = Vec<(u64, Arc<Zipf>)>;

/// A cache of distributions by number of ranks: making one takes longer than many draws, and clients can share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Zipfs {
    theta: f64,
    made: Arc<Mutex<ByRanks>>,
}

impl Zipfs {
    /// Creates a cache of distributions with exponent `theta`; `None` if there is no such distribution.
    pub(crate) fn new(theta: f64) -> Option<Zipfs> {
        Zipf::new(1, theta).map(|_| Zipfs { theta, made: Arc::default() })
    }

    /// Returns the distribution over `n` ranks, at least one.
    pub(crate) fn over(&self, n: u64) -> Arc<Zipf> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, zipf)) = made.iter().find(|(ranks, _)| *ranks == n) {
            return Arc::clone(zipf);
        }
        let zipf = Arc::new(Zipf::new(n.max(1), self.theta).expect("the exponent was checked"));
        made.push((n, Arc::clone(&zipf)));
        zipf
    }
}

/// Draws records by popularity.
#[derive(Clone, Debug)]
pub(crate) struct Popularity {
    n: u64,
    /// The distribution of ranks; `None` if it is uniform.
    zipf: Option<Arc<Zipf>>,
    /// The permutation of ranks; `None` if record `r` has rank `r + 1`.
    scramble: Option<Permutation>,
}

impl Popularity {
    /// Creates the popularity of `n` records (at least one). Without `zipfs`, or with an exponent of 0, it is uniform.
    pub(crate) fn new(n: u64, zipfs: Option<&Zipfs>, scrambled: bool) -> Popularity {
        let zipf = zipfs.filter(|zipfs| zipfs.theta > 0.0).map(|zipfs| zipfs.over(n));
        Popularity { n, zipf, scramble: scrambled.then(|| Permutation::new(n)) }
    }

    /// Draws a rank, counted from 0, the most popular one.
    #[inline]
    pub(crate) fn rank(&self, random: &mut Random) -> u64 {
        match &self.zipf {
            Some(zipf) => zipf.draw(random) - 1,
            None => random.below(self.n),
        }
    }

    /// Returns the record of a rank.
    #[inline]
    pub(crate) fn record(&self, rank: u64) -> u64 {
        self.scramble.map_or(rank, |scramble| scramble.of(rank))
    }

    /// Draws a record.
    #[inline]
    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        let rank = self.rank(random);
        if self.zipf.is_none() { rank } else { self.record(rank) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chi_square::assert_fits;

    #[test]
    fn permutations_are_permutations() {
        for n in (1..70).chain([127, 128, 129, 1000, 4096, 100_003]) {
            let permutation = Permutation::new(n);
            let mut seen = vec![false; n as usize];
            (0..n).for_each(|number| seen[permutation.of(number) as usize] = true);
            assert!(seen.iter().all(|seen| *seen), "{n}");
        }
    }

    #[test]
    fn neighbours_are_spread() {
        let permutation = Permutation::new(10_000);
        // The images of the first tenth of the numbers, counted by tenths.
        let mut counts = [0; 10];
        (0..1000).for_each(|number| counts[permutation.of(number) as usize / 1000] += 1);
        assert!(counts.iter().all(|count| (60..140).contains(count)), "{counts:?}");
    }

    fn shares(n: u64, theta: f64) -> Vec<f64> {
        let total: f64 = (1..=n).map(|rank| (rank as f64).powf(-theta)).sum();
        (1..=n).map(|rank| (rank as f64).powf(-theta) / total).collect()
    }

    #[test]
    fn scrambled_records_have_zipf_s_distribution_by_rank() {
        let (n, theta) = (300, 0.99);
        let zipfs = Zipfs::new(theta).expect("a distribution");
        for scrambled in [true, false] {
            let popularity = Popularity::new(n, Some(&zipfs), scrambled);
            let mut random = Random::of_stream(61, u64::from(scrambled));
            let mut counts = vec![0; n as usize];
            (0..200_000).for_each(|_| counts[popularity.draw(&mut random) as usize] += 1);
            let mut expected = vec![0.0; n as usize];
            for (rank, share) in (0..).zip(shares(n, theta)) {
                expected[popularity.record(rank) as usize] = share;
            }
            assert_fits("records", &counts, &expected);
            let top = (0..n).max_by_key(|record| counts[*record as usize]);
            assert_eq!(top == Some(0), !scrambled, "record 0 is the most popular where nothing is scrambled");
        }
    }

    #[test]
    fn without_skew_all_are_alike() {
        for zipfs in [None, Zipfs::new(0.0)] {
            let popularity = Popularity::new(50, zipfs.as_ref(), true);
            let mut random = Random::of_stream(62, 0);
            let mut counts = [0; 50];
            (0..50_000).for_each(|_| counts[popularity.draw(&mut random) as usize] += 1);
            assert_fits("records", &counts, &[0.02; 50]);
        }
    }

    #[test]
    fn distributions_are_made_once() {
        let zipfs = Zipfs::new(0.5).expect("a distribution");
        assert!(Arc::ptr_eq(&zipfs.over(10), &zipfs.clone().over(10)));
        assert!(!Arc::ptr_eq(&zipfs.over(10), &zipfs.over(11)));
        assert!(Zipfs::new(-1.0).is_none() && Zipfs::new(f64::NAN).is_none());
    }
}
