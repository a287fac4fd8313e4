//! The share of SmallBank's transactions that leave their part of the data.
//!
//! It is 0: a client chooses both customers of a transaction in its own part, and names, savings and checking accounts are cut at the
//! same customers.
//!
//! Owns: this formula. Never: draws a customer.

use crate::shares::NoShare;

/// Returns the share of transactions that leave their part, of however many parts.
pub(super) fn distributed() -> Result<f64, NoShare> {
    Ok(0.0)
}

#[cfg(test)]
mod tests {
    use super::super::parameters::{Mix, Parameters, Skew};
    use super::super::schema::name_of;
    use crate::keys::KeySet;
    use crate::popularity::Popularity;
    use crate::random::Random;
    use crate::shares::counted::{assert_share, parts};

    #[test]
    fn both_customers_are_in_the_part_of_the_client() {
        for skew in [Skew::Zipf(0.0), Skew::Hotspot { customers: 5, share: 0.9 }] {
            let of_part = |part: &KeySet, stream| {
                let popularity = Popularity::new(part.len(), None, true);
                Parameters::new(Mix::Standard, skew, part.clone(), popularity, Random::of_stream(8, stream))
            };
            let share = super::distributed().expect("a formula");
            assert_share(share, &parts(0, 1000, 4), of_part, |client, part| {
                let own = name_of(part.nth(0))..=name_of(part.nth(part.len() - 1));
                let (first, second) = client.names();
                !own.contains(&first) || !own.contains(&second)
            });
        }
    }
}
