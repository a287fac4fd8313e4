//! The tables of the torture besides TATP's, and the values that one transaction of a client leaves in them.
//!
//! Owns: [`Marks`], [`Tokens`] and [`Purses`], their keys and their contents. Never: reads or writes a row.
//!
//! A client has [`ROWS`] marks whose keys are far apart, so that with several workers its transactions are multisite,
//! and at most one token. All of them hold the number of the transaction that wrote them last.

use atrapos::{Database, Schema, SchemaError, Table, TableRef, row};

/// Clients that leave marks.
pub const CLIENTS: usize = 4;
/// Marks of a client: each of its transactions writes all of them.
pub const ROWS: usize = 3;
/// Purses among which money is moved.
pub const PURSES: u64 = 256;
/// The initial balance of a purse.
pub const PURSE_START: i64 = 1_000;
/// The constant total of all purses.
pub const PURSES_TOTAL: i64 = PURSES as i64 * PURSE_START;
/// Every so many transactions a client replaces its token: deletes the row and inserts another.
pub const TOKEN_EVERY: u64 = 3;

row! {
    /// A row that each transaction of its client overwrites.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Mark {
        /// The number of the transaction; 0 as loaded.
        pub value: u64,
        /// The number of the transaction that inserted the client's token; 0 when there is none.
        pub token: u64,
        /// A text derived from client and number, with another length each time.
        pub text: String,
    }
}

row! {
    /// A row that is deleted and inserted again.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Token {
        /// A text derived from client and number.
        pub text: String,
    }
}

row! {
    /// An account.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Purse {
        /// The balance; it may be negative.
        pub balance: i64,
    }
}

impl Mark {
    /// Returns the mark of client `client` as it is loaded.
    #[must_use]
    pub fn loaded(client: usize) -> Mark {
        Mark { value: 0, token: 0, text: text(client, 0) }
    }

    /// Writes transaction `number` of a client over the mark, and returns the mark before it.
    pub fn write(&mut self, client: usize, number: u64) -> Mark {
        let token = if number.is_multiple_of(TOKEN_EVERY) { number } else { self.token };
        std::mem::replace(self, Mark { value: number, token, text: text(client, number) })
    }
}

/// Returns the text of transaction `number` of a client.
#[must_use]
pub fn text(client: usize, number: u64) -> String {
    format!("{client}/{number};").repeat((number % 7) as usize)
}

/// Table `marks`, by row of the client and client.
#[derive(Debug)]
pub struct Marks;
impl Table for Marks {
    type Key = u64;
    type Row = Mark;
    const NAME: &'static str = "marks";
}

/// Returns the key of a client's mark number `row`.
#[must_use]
pub fn mark_key(client: usize, row: usize) -> u64 {
    (row * CLIENTS + client) as u64
}

/// Table `tokens`, by client and number of the transaction.
#[derive(Debug)]
pub struct Tokens;
impl Table for Tokens {
    type Key = (u64, u64);
    type Row = Token;
    const NAME: &'static str = "tokens";
}

/// Table `purses`, by number from 0.
#[derive(Debug)]
pub struct Purses;
impl Table for Purses {
    type Key = u64;
    type Row = Purse;
    const NAME: &'static str = "purses";
}

/// Adds the three tables to a schema, each cut evenly whatever the number of workers.
#[must_use]
pub(super) fn extend(schema: Schema) -> Schema {
    schema
        .table::<Marks>()
        .table::<Tokens>()
        .table::<Purses>()
        .split_evenly(Marks::NAME, 0, (ROWS * CLIENTS) as u64 - 1)
        .split_evenly(Tokens::NAME, 0, CLIENTS as u64 - 1)
        .split_evenly(Purses::NAME, 0, PURSES - 1)
}

/// The handles of the three tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handles {
    pub(super) marks: TableRef<Marks>,
    pub(super) tokens: TableRef<Tokens>,
    pub(super) purses: TableRef<Purses>,
}

impl Handles {
    pub(super) fn of(db: &Database) -> Result<Handles, SchemaError> {
        Ok(Handles { marks: db.table()?, tokens: db.table()?, purses: db.table()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_have_keys_of_their_own_and_say_who_wrote_them() {
        let keys: std::collections::BTreeSet<u64> =
            (0..CLIENTS).flat_map(|client| (0..ROWS).map(move |row| mark_key(client, row))).collect();
        assert_eq!(keys.into_iter().collect::<Vec<_>>(), (0..(CLIENTS * ROWS) as u64).collect::<Vec<_>>());
        let mut mark = Mark::loaded(2);
        assert_eq!(mark.write(2, TOKEN_EVERY), Mark::loaded(2));
        assert_eq!((mark.value, mark.token), (TOKEN_EVERY, TOKEN_EVERY));
        mark.write(2, TOKEN_EVERY + 1);
        assert_eq!((mark.value, mark.token), (TOKEN_EVERY + 1, TOKEN_EVERY));
        assert_ne!(text(1, 5), text(2, 5));
    }
}
