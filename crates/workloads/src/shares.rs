//! Data in equal parts, one for each instance of a deployment, and the transactions that leave the part they begin in.
//!
//! The workloads derive their shares of such transactions from their options, each in its own `shares.rs`; what they have in common is
//! here. Clients are at their data: each chooses the first key of a transaction in its own part, and all parts have equally many
//! clients. Tests count the same share in what the generators draw.
//!
//! Owns: the sizes of the parts, and averages over them. Never: knows which keys a transaction touches.

/// A reason for which there is no formula for the share of transactions that leave their part; it says what to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoShare(pub String);

/// Returns the mean over `parts` parts of `of`, which is given the size of a part, for `units` units of data: sites, branches or
/// warehouses, which are divided as evenly as possible and never cut.
///
/// # Errors
/// There are fewer units than parts.
pub(crate) fn mean_of_parts(
    (what, units): (&str, u64),
    parts: usize,
    of: impl Fn(f64) -> f64,
) -> Result<f64, NoShare> {
    if parts == 0 || units < parts as u64 {
        return Err(NoShare(format!(
            "{units} {what} cannot be divided among {parts}; use more {what}, or fewer workers"
        )));
    }
    let cut = |part: usize| (u128::from(units) * part as u128 / parts as u128) as u64;
    let sum: f64 = (0..parts).map(|part| of((cut(part + 1) - cut(part)) as f64)).sum();
    Ok(sum / parts as f64)
}

/// Returns the probability that one of the other units, all alike, is outside of a part of `own` of `units` units.
pub(crate) fn elsewhere(own: f64, units: u64) -> f64 {
    if units > 1 { (units as f64 - own) / (units - 1) as f64 } else { 0.0 }
}

/// Counting what generators draw, for the tests of the formulas.
#[cfg(test)]
pub(crate) mod counted {
    use crate::keys::KeySet;

    /// Draws for each test, over all parts.
    pub(crate) const DRAWS: u32 = 100_000;

    /// Returns the keys of each of `parts` parts of the keys from `first` on, `units` of them.
    pub(crate) fn parts(first: u64, units: u64, parts: u64) -> Vec<KeySet> {
        let cut = |part: u64| first + units * part / parts;
        (0..parts).map(|part| KeySet::range(cut(part), cut(part + 1) - 1).expect("a part has keys")).collect()
    }

    /// Returns whether a part has a key.
    pub(crate) fn has(part: &KeySet, key: u64) -> bool {
        (part.nth(0)..=part.nth(part.len() - 1)).contains(&key)
    }

    /// Asserts that the share is `expected` of [`DRAWS`] draws, by five standard deviations. `leaves` draws the next transaction of
    /// a client in a part, and returns whether it leaves it.
    pub(crate) fn assert_share<C>(
        expected: f64,
        parts: &[KeySet],
        client: impl Fn(&KeySet, u64) -> C,
        leaves: impl Fn(&mut C, &KeySet) -> bool,
    ) {
        let each = DRAWS / parts.len() as u32;
        let mut left = 0;
        for (stream, part) in parts.iter().enumerate() {
            let mut client = client(part, stream as u64);
            left += (0..each).filter(|_| leaves(&mut client, part)).count();
        }
        let draws = f64::from(each) * parts.len() as f64;
        let (found, deviation) = (left as f64 / draws, (expected * (1.0 - expected) / draws).sqrt());
        assert!(
            (found - expected).abs() <= 5.0 * deviation + 1e-9,
            "{found} were counted where the formula says {expected} (parts: {})",
            parts.len()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_even_and_never_empty() {
        assert_eq!(mean_of_parts(("sites", 5), 2, |own| own * own), Ok((4.0 + 9.0) / 2.0));
        let refused = mean_of_parts(("warehouses", 2), 4, |own| own).expect_err("refused").to_string();
        assert!(refused.contains("2 warehouses") && refused.contains("fewer workers"), "{refused}");
        assert_eq!([elsewhere(1.0, 1), elsewhere(2.0, 5), elsewhere(5.0, 5)], [0.0, 0.75, 0.0]);
    }

    #[test]
    #[should_panic(expected = "where the formula says")]
    fn a_wrong_formula_is_noticed() {
        let parts = counted::parts(0, 10, 2);
        let client = |_: &crate::keys::KeySet, stream| crate::random::Random::of_stream(1, stream);
        counted::assert_share(0.52, &parts, client, |random, part| !counted::has(part, random.below(10)));
    }
}
