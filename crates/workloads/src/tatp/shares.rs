//! The share of TATP's transactions that leave their part of the data.
//!
//! It is 0: a transaction names one subscriber, by number or by phone number, and all rows of a subscriber are in one part, as is the
//! entry of the phone number, because the index is cut at the phone numbers of the subscribers at which the tables are cut.
//!
//! Owns: this formula. Never: draws a subscriber.

use crate::shares::NoShare;

/// Returns the share of transactions that leave their part, of however many parts.
pub(super) fn distributed() -> Result<f64, NoShare> {
    Ok(0.0)
}

#[cfg(test)]
mod tests {
    use super::super::parameters::{Mix, Parameters};
    use super::super::schema::sub_nbr;
    use crate::keys::{KeyChoice, KeySet};
    use crate::random::Random;
    use crate::shares::counted::{assert_share, has, parts};

    #[test]
    fn subscribers_and_their_phone_numbers_are_in_the_part_of_the_client() {
        let parts = parts(1, 1000, 4);
        for choice in [KeyChoice::Uniform, KeyChoice::NonUniform] {
            let of_part = |part: &KeySet, stream| {
                Parameters::new(Mix::Standard, choice, part.clone(), Random::of_stream(8, stream))
            };
            let share = super::distributed().expect("a formula");
            assert_share(share, &parts, of_part, |client, part| {
                let (s_id, last) = (client.s_id(), part.nth(part.len() - 1));
                let within = (sub_nbr(part.nth(0))..=sub_nbr(last)).contains(&sub_nbr(s_id));
                !has(part, s_id) || !within
            });
        }
    }
}
