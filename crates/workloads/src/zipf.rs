//! Zipf's distribution, drawn fast enough for the inner loop of a driver.
//!
//! Owns: [`Zipf`]. Never: allocates or computes a power on the usual path of a draw.
//!
//! Rank `k` of `n` is drawn with a probability proportional to `1 / k^s`. The ranks are cut into bins: the first
//! [`SINGLE_RANKS`] ranks are a bin each, and further bins grow with their ranks so that the weights in one differ by
//! little. A draw chooses a bin in proportion to `count * (weight of its first rank)` from an alias table (Walker 1974,
//! Vose 1991), a rank of the bin uniformly, and keeps it with the probability by which its weight is below that of the
//! bin's first; else it starts again. So the distribution is exact. All ranks of a bin are kept with at least the
//! probability of the last one: except for about one draw in a hundred that comparison decides, and no power is
//! computed.

use crate::random::Random;

/// Number of ranks from 1 that have a bin to themselves; each later bin holds one rank per this many preceding ranks.
const SINGLE_RANKS: u64 = 128;

#[derive(Clone, Debug)]
struct Bin {
    first: u64,
    count: u64,
    /// Probability that the bin's last rank is kept, relative to its first.
    kept_min: f64,
    /// The slot of this number in the alias table: this bin with this probability, else the other.
    own: f64,
    other: u32,
}

/// Zipf's distribution over the ranks 1 to `n`, with exponent `s`.
#[derive(Clone, Debug)]
pub struct Zipf {
    bins: Box<[Bin]>,
    s: f64,
}

impl Zipf {
    /// Creates the distribution over `n` ranks (at least one) with exponent `s`; 0 is the uniform distribution. `None`
    /// if there are no ranks, or `s` is negative, infinite or not a number.
    #[must_use]
    pub fn new(n: u64, s: f64) -> Option<Zipf> {
        if n == 0 || !s.is_finite() || s < 0.0 {
            return None;
        }
        let mut bins = Vec::new();
        let mut weights = Vec::new();
        let mut first = 1;
        while first <= n {
            let count = (first / SINGLE_RANKS).max(1).min(n - first + 1);
            let kept_min = ((first + count - 1) as f64 / first as f64).powf(-s);
            weights.push(count as f64 * (first as f64).powf(-s));
            bins.push(Bin { first, count, kept_min, own: 1.0, other: 0 });
            first += count;
        }
        fill_alias_table(&mut bins, &weights);
        Some(Zipf { bins: bins.into_boxed_slice(), s })
    }

    /// Draws a rank, from 1 to `n`.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        loop {
            // The high bits of the product choose the slot, its low bits are the coin within the slot.
            let product = u128::from(random.bits()) * self.bins.len() as u128;
            let slot = &self.bins[(product >> 64) as usize];
            let coin = (product as u64 >> 11) as f64 * (1.0 / (1_u64 << 53) as f64);
            let bin = if coin < slot.own { slot } else { &self.bins[slot.other as usize] };
            if bin.count == 1 {
                return bin.first;
            }
            let rank = bin.first + random.below(bin.count);
            let keep = random.unit();
            if keep < bin.kept_min || keep < (rank as f64 / bin.first as f64).powf(-self.s) {
                return rank;
            }
        }
    }
}

/// Fills the alias table by Vose's method: every slot is shared by at most two bins, such that all slots are equally
/// likely.
fn fill_alias_table(bins: &mut [Bin], weights: &[f64]) {
    let mean = weights.iter().sum::<f64>() / weights.len() as f64;
    let mut share: Vec<f64> = weights.iter().map(|weight| weight / mean).collect();
    let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..bins.len()).partition(|&at| share[at] < 1.0);
    while let (Some(less), Some(more)) = (small.pop(), large.pop()) {
        bins[less].own = share[less];
        bins[less].other = more as u32;
        share[more] -= 1.0 - share[less];
        if share[more] < 1.0 { small.push(more) } else { large.push(more) }
    }
    // The rest differs from 1 by rounding alone, and keeps its slots to itself.
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chi_square::assert_fits;
    use rand_distr::Distribution;

    const DRAWS: usize = 300_000;

    /// Returns the group of a rank; groups double in size, so that every group has enough counts for a test.
    fn group(rank: u64) -> usize {
        (u64::BITS - rank.leading_zeros()) as usize - 1
    }

    fn exact_shares(n: u64, s: f64) -> Vec<f64> {
        let weight = |k: u64| (k as f64).powf(-s);
        let total: f64 = (1..=n).map(weight).sum();
        let mut shares = vec![0.0; group(n) + 1];
        (1..=n).for_each(|k| shares[group(k)] += weight(k) / total);
        shares
    }

    #[test]
    fn draws_fit_the_definition() {
        for (n, s) in [(1_000, 0.0), (100_000, 0.5), (100_000, 0.99), (50_000, 1.0), (5_000, 1.2)] {
            let zipf = Zipf::new(n, s).expect("a distribution");
            let mut random = Random::of_stream(41, n);
            let mut counts = vec![0; group(n) + 1];
            for _ in 0..DRAWS {
                let rank = zipf.draw(&mut random);
                assert!((1..=n).contains(&rank), "rank {rank} of {n}");
                counts[group(rank)] += 1;
            }
            assert_fits(&format!("Zipf over {n} with {s}"), &counts, &exact_shares(n, s));
        }
    }

    #[test]
    fn single_ranks_fit_the_definition_within_and_beyond_the_single_bins() {
        let (n, s) = (400, 0.8);
        let zipf = Zipf::new(n, s).expect("a distribution");
        let mut random = Random::of_stream(42, 0);
        let mut counts = vec![0; n as usize];
        (0..DRAWS).for_each(|_| counts[zipf.draw(&mut random) as usize - 1] += 1);
        let total: f64 = (1..=n).map(|k| (k as f64).powf(-s)).sum();
        let shares: Vec<f64> = (1..=n).map(|k| (k as f64).powf(-s) / total).collect();
        assert_fits("Zipf by rank", &counts, &shares);
    }

    #[test]
    fn draws_agree_with_another_generator() {
        let (n, s) = (1_000_000, 0.9);
        let zipf = Zipf::new(n, s).expect("a distribution");
        let theirs = rand_distr::Zipf::new(n as f64, s).expect("a distribution");
        let mut random = Random::of_stream(43, 0);
        let mut their_rng = atrapos_runtime::rng::Seed(43).rng(1);
        let (mut ours, mut other) = (vec![0_u64; group(n) + 1], vec![0_u64; group(n) + 1]);
        for _ in 0..DRAWS {
            ours[group(zipf.draw(&mut random))] += 1;
            other[group(theirs.sample(&mut their_rng) as u64)] += 1;
        }
        // Both samples against their sum: a test of two samples of equal size.
        let chi_square: f64 = ours
            .iter()
            .zip(&other)
            .map(|(a, b)| (*a as f64 - *b as f64).powi(2) / (a + b).max(1) as f64)
            .sum();
        let freedom = (ours.len() - 1) as f64;
        assert!(
            chi_square < freedom + 4.75 * (2.0 * freedom).sqrt(),
            "chi-square {chi_square:.1} at {freedom} degrees of freedom: ours {ours:?}, theirs {other:?}"
        );
    }

    #[test]
    fn senseless_parameters_are_refused_and_extreme_ones_work() {
        assert!(Zipf::new(0, 1.0).is_none());
        assert!(Zipf::new(5, -0.1).is_none());
        assert!(Zipf::new(5, f64::NAN).is_none());
        assert!(Zipf::new(5, f64::INFINITY).is_none());
        let mut random = Random::of_stream(44, 0);
        assert_eq!(Zipf::new(1, 3.0).expect("one rank").draw(&mut random), 1);
        let steep = Zipf::new(u64::from(u32::MAX), 50.0).expect("a distribution");
        assert!((0..100).all(|_| steep.draw(&mut random) == 1));
        let huge = Zipf::new(1 << 50, 0.0).expect("a distribution");
        assert!(huge.bins.len() < 5_000, "{} bins", huge.bins.len());
        assert!((0..100).map(|_| huge.draw(&mut random)).max() > Some(1 << 40));
    }
}
