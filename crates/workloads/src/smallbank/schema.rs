//! The three tables of SmallBank, their initial contents, and the boundaries of partitions.
//!
//! Owns: the tables' types and their population. Never: changes a balance.
//!
//! Accounts are found by the customer's name and contain the customer's number; savings and checking accounts are found
//! by that number. Both families of tables are cut at the same customers, so that at first all rows of a customer are
//! on one worker.
//!
//! Money is in cents.

use atrapos::{Handles, Schema, SchemaError, Table, TableRef, row};

use crate::digits;
use crate::random::Random;

/// A customer's name: 15 characters, all of them digits.
pub type Name = [u8; 15];

/// Returns the name of customer number `customer`.
#[inline]
#[must_use]
pub fn name_of(customer: u64) -> Name {
    digits::fifteen(customer)
}

row! {
    /// An account, which maps a name to a customer.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Account {
        /// The customer's number.
        pub customer: u64,
    }
}

row! {
    /// A savings account.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Saving {
        /// Balance; never below zero.
        pub balance: i64,
    }
}

row! {
    /// A checking account.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Checking {
        /// Balance; below zero after checks that were not covered.
        pub balance: i64,
    }
}

/// The smallest and the largest balance of an account at first.
pub const BALANCES: (i64, i64) = (1_000_000, 5_000_000);

/// Returns the balances of a customer's savings and checking accounts at first, in the database of `seed`.
#[must_use]
pub fn loaded(seed: u64, customer: u64) -> (i64, i64) {
    let mut random = Random::of_stream(seed, customer);
    let mut balance = || random.between(BALANCES.0.cast_unsigned(), BALANCES.1.cast_unsigned()).cast_signed();
    (balance(), balance())
}

/// The family of savings and checking accounts.
pub const CUSTOMER_FAMILY: &str = "customer";

/// Table `account`, by name.
#[derive(Debug)]
pub struct Accounts;
impl Table for Accounts {
    type Key = Name;
    type Row = Account;
    const NAME: &'static str = "account";
    const KEY_COLUMNS: &'static [&'static str] = &["name"];
}

/// Table `savings`, by customer.
#[derive(Debug)]
pub struct Savings;
impl Table for Savings {
    type Key = u64;
    type Row = Saving;
    const NAME: &'static str = "savings";
    const FAMILY: &'static str = CUSTOMER_FAMILY;
    const KEY_COLUMNS: &'static [&'static str] = &["customer"];
}

/// Table `checking`, by customer.
#[derive(Debug)]
pub struct Checkings;
impl Table for Checkings {
    type Key = u64;
    type Row = Checking;
    const NAME: &'static str = "checking";
    const FAMILY: &'static str = CUSTOMER_FAMILY;
    const KEY_COLUMNS: &'static [&'static str] = &["customer"];
}

/// The handles of all tables in one open database.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "each field is named after its table")]
pub struct Tables {
    pub account: TableRef<Accounts>,
    pub savings: TableRef<Savings>,
    pub checking: TableRef<Checkings>,
}

impl Tables {
    /// Looks up the handles in `db`.
    ///
    /// # Errors
    /// Fails if the database was opened with another schema.
    pub fn of(db: &impl Handles) -> Result<Tables, SchemaError> {
        Ok(Tables { account: db.table()?, savings: db.table()?, checking: db.table()? })
    }
}

/// Returns the first customer of every worker but the first: the numbers from 0 in equal parts.
fn cuts(customers: u64, workers: usize) -> Vec<u64> {
    let workers = workers as u128;
    let cut = |part: u128| (u128::from(customers) * part / workers) as u64;
    let mut cuts: Vec<u64> = (1..workers).map(cut).filter(|cut| *cut > 0).collect();
    cuts.dedup();
    cuts
}

/// Returns the schema of a database of `customers` customers.
#[must_use]
pub fn schema(customers: u64) -> Schema {
    Schema::new()
        .table::<Accounts>()
        .table::<Savings>()
        .table::<Checkings>()
        .split_by(Accounts::NAME, move |workers| cuts(customers, workers).into_iter().map(name_of).collect())
        .split_by(CUSTOMER_FAMILY, move |workers| cuts(customers, workers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_even_and_survive_few_customers() {
        assert_eq!(cuts(100, 4), [25, 50, 75]);
        assert_eq!(cuts(2, 4), [1]);
        assert_eq!(cuts(1, 8), [0_u64; 0]);
    }

    #[test]
    fn balances_depend_on_seed_and_customer_alone() {
        assert_eq!(loaded(1, 5), loaded(1, 5));
        assert_ne!(loaded(1, 5), loaded(2, 5));
        assert_ne!(loaded(1, 5), loaded(1, 6));
        let allowed = BALANCES.0..=BALANCES.1;
        let fits =
            |(savings, checking): (i64, i64)| allowed.contains(&savings) && allowed.contains(&checking);
        assert!((0..1000).all(|customer| fits(loaded(3, customer))));
    }
}
