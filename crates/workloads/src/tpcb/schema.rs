//! The four tables of TPC-B, and the boundaries of partitions.
//!
//! Owns: the tables' types. Never: determines their contents after a transaction.
//!
//! All keys begin with the branch, and all tables are of one family: all rows of a branch are on one worker. Branches
//! are declared first, so that partitions are cut between branches and never within one.
//!
//! # History
//!
//! The specification requires every transaction to append a row to the history. A common counter would be written by
//! all transactions, on any worker. Here each teller counts its own entries, in the row that the transaction updates
//! anyway, and the key of an entry is the branch, the teller and that count. So appending costs no lock and no message
//! of its own, inserts at the right end of a teller's entries, and the auditor knows which entries must exist.
//!
//! # Sizes
//!
//! Rows are padded so that key and row together have the bytes that the specification requires at least: 100, and 50
//! for the history.

use atrapos::{Handles, Schema, SchemaError, Table, TableRef, row};

/// Tellers of a branch, numbered from 0.
pub const TELLERS: u8 = 10;

const BRANCH_FILLER: usize = 100 - 8 - 8;
const TELLER_FILLER: usize = 100 - 9 - 16;
const ACCOUNT_FILLER: usize = 100 - 12 - 8;
const HISTORY_FILLER: usize = 50 - 17 - 24;

row! {
    /// A branch of the bank.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Branch {
        /// Sum of the amounts of its tellers, in the smallest unit of money.
        pub balance: i64,
        /// Filler bytes; never changed.
        pub filler: [u8; BRANCH_FILLER],
    }
}

row! {
    /// A teller of a branch.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Teller {
        /// Sum of the amounts of the teller's transactions.
        pub balance: i64,
        /// Number of the teller's entries in the history.
        pub entries: u64,
        /// Filler bytes; never changed.
        pub filler: [u8; TELLER_FILLER],
    }
}

row! {
    /// An account.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Account {
        /// Balance of the account.
        pub balance: i64,
        /// Filler bytes; never changed.
        pub filler: [u8; ACCOUNT_FILLER],
    }
}

row! {
    /// An entry of the history, which records one transaction.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct History {
        /// The branch of the account.
        pub account_branch: u64,
        /// The number of the account in its branch.
        pub account: u32,
        /// Amount added to the balance of the account.
        pub delta: i32,
        /// Time of the client's request, in nanoseconds on the clock of its machine.
        pub time_ns: u64,
        /// Filler bytes; never changed.
        pub filler: [u8; HISTORY_FILLER],
    }
}

/// Returns the filler of a row, which repeats the row's key.
fn filler<const N: usize>(branch: u64, number: u64) -> [u8; N] {
    let pattern = (branch.rotate_left(32) ^ number).to_le_bytes();
    std::array::from_fn(|at| pattern[at % 8])
}

impl Branch {
    /// Returns the row of branch `b_id` as it is loaded.
    #[must_use]
    pub fn loaded(b_id: u64) -> Branch {
        Branch { balance: 0, filler: filler(b_id, 0) }
    }
}

impl Teller {
    /// Returns the row of teller `t_id` of branch `b_id` as it is loaded.
    #[must_use]
    pub fn loaded(b_id: u64, t_id: u8) -> Teller {
        Teller { balance: 0, entries: 0, filler: filler(b_id, u64::from(t_id)) }
    }
}

impl Account {
    /// Returns the row of account `a_id` of branch `b_id` as it is loaded.
    #[must_use]
    pub fn loaded(b_id: u64, a_id: u32) -> Account {
        Account { balance: 0, filler: filler(b_id, u64::from(a_id)) }
    }
}

impl History {
    /// The filler of every entry.
    pub const FILLER: [u8; HISTORY_FILLER] = [b'.'; HISTORY_FILLER];
}

/// The family of all tables.
pub const BRANCH_FAMILY: &str = "branch";

/// Table `branch`, by branch.
#[derive(Debug)]
pub struct Branches;
impl Table for Branches {
    type Key = u64;
    type Row = Branch;
    const NAME: &'static str = "branch";
    const FAMILY: &'static str = BRANCH_FAMILY;
    const KEY_COLUMNS: &'static [&'static str] = &["b_id"];
}

/// Table `teller`, by branch and number in the branch.
#[derive(Debug)]
pub struct Tellers;
impl Table for Tellers {
    type Key = (u64, u8);
    type Row = Teller;
    const NAME: &'static str = "teller";
    const FAMILY: &'static str = BRANCH_FAMILY;
    const KEY_COLUMNS: &'static [&'static str] = &["b_id", "t_id"];
}

/// Table `account`, by branch and number in the branch.
#[derive(Debug)]
pub struct Accounts;
impl Table for Accounts {
    type Key = (u64, u32);
    type Row = Account;
    const NAME: &'static str = "account";
    const FAMILY: &'static str = BRANCH_FAMILY;
    const KEY_COLUMNS: &'static [&'static str] = &["b_id", "a_id"];
}

/// Table `history`, by branch, teller, and number of the entry among the teller's.
#[derive(Debug)]
pub struct Histories;
impl Table for Histories {
    type Key = (u64, u8, u64);
    type Row = History;
    const NAME: &'static str = "history";
    const FAMILY: &'static str = BRANCH_FAMILY;
    const KEY_COLUMNS: &'static [&'static str] = &["b_id", "t_id", "entry"];
}

/// The handles of all tables in one open database.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "each field is named after its table")]
pub struct Tables {
    pub branch: TableRef<Branches>,
    pub teller: TableRef<Tellers>,
    pub account: TableRef<Accounts>,
    pub history: TableRef<Histories>,
}

impl Tables {
    /// Looks up the handles in `db`.
    ///
    /// # Errors
    /// Fails if the database was opened with another schema.
    pub fn of(db: &impl Handles) -> Result<Tables, SchemaError> {
        Ok(Tables { branch: db.table()?, teller: db.table()?, account: db.table()?, history: db.table()? })
    }
}

/// Returns the schema of a database of `branches` branches.
#[must_use]
pub fn schema(branches: u64) -> Schema {
    Schema::new()
        .table::<Branches>()
        .table::<Tellers>()
        .table::<Accounts>()
        .table::<Histories>()
        // Transactions insert only entries of the history, after an update of their teller: there is nothing to
        // enforce.
        .foreign_key_by_prefix::<Tellers, Branches>(|(b_id, _)| *b_id, false)
        .foreign_key_by_prefix::<Accounts, Branches>(|(b_id, _)| *b_id, false)
        .foreign_key_by_prefix::<Histories, Tellers>(|(b_id, t_id, _)| (*b_id, *t_id), false)
        .split_by(BRANCH_FAMILY, move |workers| cuts(branches, workers))
}

/// Returns the first branch of every worker but the first: the branches from 0 in equal parts.
fn cuts(branches: u64, workers: usize) -> Vec<u64> {
    let workers = workers as u128;
    let cut = |part: u128| (u128::from(branches) * part / workers) as u64;
    let mut cuts: Vec<u64> = (1..workers).map(cut).filter(|cut| *cut > 0).collect();
    cuts.dedup();
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;
    use atrapos::{Key, Row};

    #[test]
    fn keys_and_rows_have_the_specification_s_bytes() {
        assert_eq!(1_u64.encode().len() + Branch::FIXED_BYTES, 100);
        assert_eq!((1_u64, 1_u8).encode().len() + Teller::FIXED_BYTES, 100);
        assert_eq!((1_u64, 1_u32).encode().len() + Account::FIXED_BYTES, 100);
        assert_eq!((1_u64, 1_u8, 1_u64).encode().len() + History::FIXED_BYTES, 50);
    }

    #[test]
    fn cuts_are_even_and_survive_few_branches() {
        assert_eq!(cuts(16, 4), [4, 8, 12]);
        assert_eq!(cuts(2, 4), [1]);
        assert_eq!(cuts(1, 8), [0_u64; 0]);
    }

    #[test]
    fn fillers_tell_rows_apart() {
        assert_ne!(Account::loaded(1, 2).filler, Account::loaded(2, 1).filler);
        assert_ne!(Teller::loaded(0, 1), Teller::loaded(0, 2));
        assert_ne!(Branch::loaded(1), Branch::loaded(2));
    }
}
