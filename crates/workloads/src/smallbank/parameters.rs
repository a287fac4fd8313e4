//! The next transaction of a SmallBank client: its class, customers and amount.
//!
//! Owns: the mix, the amounts and the skew. Never: runs a transaction.

use std::str::FromStr;

use super::schema::{Name, name_of};
use crate::keys::KeySet;
use crate::popularity::Popularity;
use crate::random::Random;
use crate::workload::ClassId;

/// The six transaction classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[expect(missing_docs, reason = "each is documented at the procedure of its name")]
pub enum Class {
    Balance,
    DepositChecking,
    TransactSavings,
    Amalgamate,
    WriteCheck,
    SendPayment,
}

impl Class {
    /// Every class, in the order of their discriminants.
    pub const ALL: [Class; 6] = [
        Class::Balance,
        Class::DepositChecking,
        Class::TransactSavings,
        Class::Amalgamate,
        Class::WriteCheck,
        Class::SendPayment,
    ];

    /// The names of the classes, in the same order.
    pub const NAMES: [&'static str; 6] =
        ["balance", "deposit-checking", "transact-savings", "amalgamate", "write-check", "send-payment"];

    /// Share of each class in the standard mix, in percent: that of H-Store, which added `SendPayment` to the five of
    /// the original.
    pub const STANDARD_PERCENT: [u8; 6] = [15, 15, 15, 15, 15, 25];

    /// Returns the name of the class.
    #[must_use]
    pub fn name(self) -> &'static str {
        Class::NAMES[self as usize]
    }

    /// Returns whether its transactions change rows when they succeed.
    #[must_use]
    pub fn updates(self) -> bool {
        self != Class::Balance
    }

    /// Returns the number of the class.
    #[must_use]
    pub fn id(self) -> ClassId {
        ClassId(self as u8)
    }
}

/// Transaction classes that are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Mix {
    /// All six, 15/15/15/15/15/25 in a hundred.
    #[default]
    Standard,
    /// One class alone.
    Only(Class),
}

/// Error for a mix that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no mix '{0}'; choose 'standard' or one of {names}", names = Class::NAMES.join(", "))]
pub struct UnknownMix(pub String);

impl FromStr for Mix {
    type Err = UnknownMix;

    fn from_str(name: &str) -> Result<Mix, UnknownMix> {
        if name == "standard" {
            return Ok(Mix::Standard);
        }
        let class = Class::ALL.into_iter().find(|class| class.name() == name);
        class.map(Mix::Only).ok_or_else(|| UnknownMix(name.to_owned()))
    }
}

impl std::fmt::Display for Mix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Mix::Standard => "standard",
            Mix::Only(class) => class.name(),
        })
    }
}

/// Skew of the choice of customers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Skew {
    /// Zipf's distribution with this exponent, spread over all customers; 0 is uniform.
    Zipf(f64),
    /// Hotspot: a number of customers gets a share of the requests, all others the rest; uniform within each.
    Hotspot {
        /// Customers in the hotspot. All of a client's customers are, if it has fewer.
        customers: u64,
        /// Share of the requests that goes to them, from 0 to 1.
        share: f64,
    },
}

/// The largest amount of a transaction, in cents.
pub const AMOUNT_MAX: i64 = 10_000;

/// Draws the classes and parameters of one client.
#[derive(Clone, Debug)]
pub struct Parameters {
    mix: Mix,
    skew: Skew,
    /// The client's customers, at least two.
    own: KeySet,
    popularity: Popularity,
    random: Random,
}

/// Number of times that a second customer equal to the first is drawn again, before the neighbour is taken.
const DRAWS_MAX: usize = 16;

impl Parameters {
    /// Creates a generator; `popularity` is over the customers in `own`, at least two.
    pub(super) fn new(
        mix: Mix,
        skew: Skew,
        own: KeySet,
        popularity: Popularity,
        random: Random,
    ) -> Parameters {
        Parameters { mix, skew, own, popularity, random }
    }

    /// Draws the class of the next transaction.
    #[inline]
    pub fn class(&mut self) -> Class {
        let Mix::Standard = self.mix else {
            let Mix::Only(class) = self.mix else { unreachable!("a mix is the standard one or one class") };
            return class;
        };
        let mut percent = self.random.small(100) as u8;
        for (class, share) in Class::ALL.into_iter().zip(Class::STANDARD_PERCENT) {
            if percent < share {
                return class;
            }
            percent -= share;
        }
        unreachable!("the shares are a hundred together")
    }

    /// Draws the number of a customer among the client's own.
    #[inline]
    fn draw(&mut self) -> u64 {
        let n = self.own.len();
        match self.skew {
            Skew::Zipf(_) => self.popularity.draw(&mut self.random),
            Skew::Hotspot { customers, share } => {
                let hot = customers.min(n);
                let is_hot = self.random.unit() < share || hot == n;
                let rank = if is_hot { self.random.below(hot) } else { hot + self.random.below(n - hot) };
                self.popularity.record(rank)
            }
        }
    }

    /// Draws a customer's name.
    #[inline]
    pub fn name(&mut self) -> Name {
        let at = self.draw();
        name_of(self.own.nth(at))
    }

    /// Draws the names of two different customers.
    #[inline]
    pub fn names(&mut self) -> (Name, Name) {
        let first = self.draw();
        let mut second = self.draw();
        for _ in 1..DRAWS_MAX {
            if second != first {
                break;
            }
            second = self.draw();
        }
        if second == first {
            second = (first + 1) % self.own.len();
        }
        (name_of(self.own.nth(first)), name_of(self.own.nth(second)))
    }

    /// Draws an amount: from 1 to [`AMOUNT_MAX`].
    #[inline]
    pub fn amount(&mut self) -> i64 {
        1 + i64::from(self.random.small(AMOUNT_MAX as u32))
    }

    /// Draws an amount to deposit, or below zero to withdraw.
    #[inline]
    pub fn signed_amount(&mut self) -> i64 {
        let amount = self.amount();
        if self.random.small(2) == 0 { amount } else { -amount }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chi_square::assert_fits;
    use crate::popularity::Zipfs;

    fn parameters(mix: Mix, skew: Skew, customers: u64) -> Parameters {
        let zipfs = match skew {
            Skew::Zipf(theta) => Zipfs::new(theta),
            Skew::Hotspot { .. } => None,
        };
        let own = KeySet::range(0, customers - 1).expect("customers");
        let popularity = Popularity::new(customers, zipfs.as_ref(), true);
        Parameters::new(mix, skew, own, popularity, Random::of_stream(81, 1))
    }

    fn number(name: Name) -> usize {
        std::str::from_utf8(&name).ok().and_then(|name| name.parse().ok()).expect("digits")
    }

    #[test]
    fn the_standard_mix_has_its_shares() {
        let mut parameters = parameters(Mix::Standard, Skew::Zipf(0.0), 10);
        let mut counts = [0; 6];
        (0..100_000).for_each(|_| counts[parameters.class() as usize] += 1);
        assert_fits("the mix", &counts, &Class::STANDARD_PERCENT.map(|percent| f64::from(percent) / 100.0));
    }

    #[test]
    fn names_lead_to_mixes_and_back() {
        for (name, class) in Class::NAMES.iter().zip(Class::ALL) {
            assert_eq!(name.parse(), Ok(Mix::Only(class)));
            assert_eq!(Mix::Only(class).to_string(), *name);
            let mut only = parameters(Mix::Only(class), Skew::Zipf(0.0), 10);
            assert!((0..100).all(|_| only.class() == class));
        }
        assert_eq!("standard".parse::<Mix>().map(|mix| mix.to_string()), Ok("standard".to_owned()));
        assert!("rob".parse::<Mix>().unwrap_err().to_string().contains("send-payment"));
    }

    #[test]
    fn skew_is_as_asked_for() {
        let mut uniform = parameters(Mix::Standard, Skew::Zipf(0.0), 20);
        let mut counts = [0; 20];
        (0..50_000).for_each(|_| counts[number(uniform.name())] += 1);
        assert_fits("customers", &counts, &[0.05; 20]);

        let skew = Skew::Hotspot { customers: 5, share: 0.5 };
        let mut hot = parameters(Mix::Standard, skew, 20);
        let mut counts = [0; 20];
        (0..50_000).for_each(|_| counts[number(hot.name())] += 1);
        let mut shares = [0.5 / 15.0; 20];
        (0..5).for_each(|rank| shares[hot.popularity.record(rank) as usize] = 0.1);
        assert_fits("a hotspot", &counts, &shares);

        let mut all_hot = parameters(Mix::Standard, Skew::Hotspot { customers: 50, share: 0.1 }, 20);
        let mut counts = [0; 20];
        (0..50_000).for_each(|_| counts[number(all_hot.name())] += 1);
        assert_fits("a hotspot of all", &counts, &[0.05; 20]);
    }

    #[test]
    fn two_customers_are_two_and_amounts_are_uniform() {
        for (customers, theta) in [(2, 9.0), (1000, 0.99)] {
            let mut parameters = parameters(Mix::Standard, Skew::Zipf(theta), customers);
            assert!((0..5000).map(|_| parameters.names()).all(|(first, second)| first != second));
        }
        let mut parameters = parameters(Mix::Standard, Skew::Zipf(0.0), 10);
        let (mut amounts, mut signs) = ([0; 10], [0; 2]);
        for _ in 0..50_000 {
            amounts[((parameters.amount() - 1) / 1000) as usize] += 1;
            signs[usize::from(parameters.signed_amount() > 0)] += 1;
        }
        assert_fits("amounts", &amounts, &[0.1; 10]);
        assert_fits("signs", &signs, &[0.5; 2]);
    }

    #[test]
    fn parameters_repeat_by_seed() {
        let draw = || {
            let mut parameters = parameters(Mix::Standard, Skew::Zipf(0.99), 100);
            (0..50).map(|_| (parameters.class(), parameters.names(), parameters.amount())).collect::<Vec<_>>()
        };
        assert_eq!(draw(), draw());
    }
}
