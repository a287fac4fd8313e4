//! Small random numbers for populations and transactions, drawn from a seeded generator with one multiplication each.
//!
//! Owns: draws from ranges. Never: takes randomness from the operating system; a run is repeated by its seed.
//!
//! A draw below `n` maps 64 (or 32) random bits to the range by multiplication. Its bias is at most `n / 2^64` (`n / 2^32`
//! for [`Random::small`]), too small to be observed in any run; this saves the rejection loop of an exact draw.

use atrapos_runtime::rng::{Rng, Seed};
use rand::Rng as _;

use crate::digits;

/// Returns 64 pseudorandom bits that depend on all bits of `number`; they differ for different numbers.
#[inline]
#[must_use]
pub fn mixed(number: u64) -> u64 {
    // The finalizer of MurmurHash3, with the constants of Stafford's variant 13.
    let mut bits = number ^ (number >> 30);
    bits = bits.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits ^= bits >> 27;
    bits = bits.wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// A seeded random number generator with the few draws that workloads need.
#[derive(Clone, Debug)]
pub struct Random {
    rng: Rng,
    /// The half of the last draw that [`Random::small`] has not used yet; valid if `has_spare` is set.
    spare: u32,
    has_spare: bool,
}

impl Random {
    /// Creates the generator of one stream of `seed`; streams of one seed are independent of each other.
    #[must_use]
    pub fn of_stream(seed: u64, stream: u64) -> Random {
        Random { rng: Seed(seed).rng(stream), spare: 0, has_spare: false }
    }

    /// Draws 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.rng.next_u64()
    }

    /// Draws a number from 0 to `n - 1`; 0 if `n` is 0.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// Draws a number from `first` to `last`, both included.
    #[inline]
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        debug_assert!(first <= last, "a range has its ends in order");
        first + self.below(last - first + 1)
    }

    /// Draws a number from 0 to `n - 1` for a small `n`: two such draws cost one draw of 64 bits.
    #[inline]
    pub fn small(&mut self, n: u32) -> u32 {
        let bits = if self.has_spare {
            self.has_spare = false;
            self.spare
        } else {
            let bits = self.bits();
            self.spare = (bits >> 32) as u32;
            self.has_spare = true;
            bits as u32
        };
        ((u64::from(bits) * u64::from(n)) >> 32) as u32
    }

    /// Draws a number from 0 to 1 (excluded), with 53 random bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// Draws `N` decimal digits as text.
    #[inline]
    pub fn digits<const N: usize>(&mut self) -> [u8; N] {
        let mut digits = [b'0'; N];
        for run in digits.chunks_mut(8) {
            run.copy_from_slice(&digits::eight(self.small(100_000_000))[..run.len()]);
        }
        digits
    }

    /// Draws `N` capital letters as text.
    #[inline]
    pub fn letters<const N: usize>(&mut self) -> [u8; N] {
        let mut letters = [b'A'; N];
        for run in letters.chunks_mut(5) {
            let mut rest = self.small(26_u32.pow(5));
            for letter in run {
                *letter = b'A' + (rest % 26) as u8;
                rest /= 26;
            }
        }
        letters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chi_square::assert_fits;

    #[test]
    fn draws_repeat_by_seed_and_stream() {
        let draw = |seed, stream| {
            let mut random = Random::of_stream(seed, stream);
            (random.bits(), random.small(1000), random.digits::<15>(), random.letters::<5>())
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn draws_are_uniform() {
        let mut random = Random::of_stream(11, 0);
        let (mut below, mut small, mut unit) = ([0_u64; 7], [0_u64; 24], [0_u64; 10]);
        let (mut digits, mut letters) = ([0_u64; 10], [0_u64; 26]);
        for _ in 0..100_000 {
            below[random.below(7) as usize] += 1;
            small[random.small(24) as usize] += 1;
            unit[(random.unit() * 10.0) as usize] += 1;
            random.digits::<15>().iter().for_each(|digit| digits[usize::from(digit - b'0')] += 1);
            random.letters::<8>().iter().for_each(|letter| letters[usize::from(letter - b'A')] += 1);
        }
        assert_fits("below", &below, &[1.0 / 7.0; 7]);
        assert_fits("small", &small, &[1.0 / 24.0; 24]);
        assert_fits("unit", &unit, &[0.1; 10]);
        assert_fits("digits", &digits, &[0.1; 10]);
        assert_fits("letters", &letters, &[1.0 / 26.0; 26]);
    }

    #[test]
    fn ranges_include_their_ends() {
        let mut random = Random::of_stream(3, 0);
        let seen: std::collections::BTreeSet<u64> = (0..1000).map(|_| random.between(5, 8)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [5, 6, 7, 8]);
        assert_eq!(random.between(9, 9), 9);
    }
}
