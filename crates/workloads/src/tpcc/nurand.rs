//! Non-uniform random numbers (clause 2.1.6): `NURand(A, x, y) = ((rnd(0, A) | rnd(x, y)) + C) mod (y - x + 1) + x`.
//!
//! Owns: the function and its constants `C`, one set per seed. Never: knows the purpose of the numbers.

use crate::random::Random;

/// The constant `A` for last names.
pub const A_C_LAST: u32 = 255;
/// The constant `A` for customers' numbers.
pub const A_C_ID: u32 = 1023;
/// The constant `A` for items.
pub const A_I_ID: u32 = 8191;

/// Differences between the constants of loading and running that clause 2.1.6.1 allows, except for [`DELTA_EXCEPT`].
pub const DELTA: std::ops::RangeInclusive<u32> = 65..=119;
/// Differences in that range that the clause excludes.
pub const DELTA_EXCEPT: [u32; 2] = [96, 112];

/// The constants `C`, from 0 to `A` each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constants {
    /// Constant for last names while loading.
    pub c_last_load: u32,
    /// Constant for last names while transactions run.
    pub c_last_run: u32,
    /// Constant for customers' numbers.
    pub c_id: u32,
    /// Constant for items.
    pub i_id: u32,
}

impl Constants {
    /// Draws constants that the specification allows.
    #[must_use]
    pub fn draw(random: &mut Random) -> Constants {
        let c_last_load = random.small(A_C_LAST + 1);
        let deltas = DELTA.filter(|delta| !DELTA_EXCEPT.contains(delta));
        let nth = random.small(deltas.clone().count() as u32) as usize;
        let delta = deltas.into_iter().nth(nth).unwrap_or(*DELTA.start());
        // One of the two is in range, since the difference is less than half of it.
        let c_last_run =
            if c_last_load + delta <= A_C_LAST { c_last_load + delta } else { c_last_load - delta };
        let (c_id, i_id) = (random.small(A_C_ID + 1), random.small(A_I_ID + 1));
        Constants { c_last_load, c_last_run, c_id, i_id }
    }
}

/// Draws `NURand(a, first, last)` with the constant `c`.
#[inline]
pub fn nurand(random: &mut Random, a: u32, c: u32, first: u32, last: u32) -> u32 {
    let spread = random.small(a + 1);
    let uniform = first + random.small(last - first + 1);
    ((spread | uniform) + c) % (last - first + 1) + first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chi_square::assert_fits;

    /// Returns the distribution by definition, over every pair of the two uniform draws.
    fn exact(a: u32, c: u32, first: u32, last: u32) -> Vec<f64> {
        let n = last - first + 1;
        let mut shares = vec![0.0; n as usize];
        for spread in 0..=a {
            for uniform in first..=last {
                shares[(((spread | uniform) + c) % n) as usize] += 1.0 / (f64::from(a + 1) * f64::from(n));
            }
        }
        shares
    }

    #[test]
    fn numbers_fit_the_definition() {
        let mut random = Random::of_stream(5, 0);
        let constants = Constants::draw(&mut random);
        for (a, c, first, last, draws) in [
            (A_C_LAST, constants.c_last_load, 0, 999, 400_000),
            (A_C_LAST, constants.c_last_run, 0, 999, 400_000),
            (A_C_ID, constants.c_id, 1, 3000, 900_000),
            (A_I_ID, constants.i_id, 1, 500, 300_000),
        ] {
            let mut counts = vec![0; (last - first + 1) as usize];
            (0..draws).for_each(|_| {
                counts[(nurand(&mut random, a, c, first, last) - first) as usize] += 1;
            });
            let exact = exact(a, c, first, last);
            // Numbers that hardly ever occur are counted together with the one before.
            let (mut shares, mut observed): (Vec<f64>, Vec<u64>) = (vec![0.0], vec![0]);
            for (share, count) in exact.iter().zip(counts) {
                let (last_share, last_count) =
                    (shares.last_mut().expect("one"), observed.last_mut().expect("one"));
                *last_share += share;
                *last_count += count;
                if *last_share * f64::from(draws) >= 20.0 {
                    shares.push(0.0);
                    observed.push(0);
                }
            }
            let (rest, few) = (shares.pop().unwrap_or(0.0), observed.pop().unwrap_or(0));
            *shares.last_mut().expect("several") += rest;
            *observed.last_mut().expect("several") += few;
            assert!(shares.len() > 100, "the test would show little");
            assert_fits("NURand", &observed, &shares);
            let most = exact.iter().copied().fold(0.0, f64::max);
            assert!(most * exact.len() as f64 > 1.5, "it is not uniform");
        }
    }

    #[test]
    fn constants_are_those_that_are_allowed() {
        for seed in 0..2000 {
            let constants = Constants::draw(&mut Random::of_stream(seed, 0));
            let Constants { c_last_load, c_last_run, c_id, i_id } = constants;
            assert!(c_last_load <= A_C_LAST && c_last_run <= A_C_LAST && c_id <= A_C_ID && i_id <= A_I_ID);
            let delta = c_last_load.abs_diff(c_last_run);
            assert!(DELTA.contains(&delta) && !DELTA_EXCEPT.contains(&delta), "{constants:?}");
            assert_eq!(constants, Constants::draw(&mut Random::of_stream(seed, 0)));
        }
    }
}
