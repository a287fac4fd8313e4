//! The transaction of TPC-B as a stored procedure.
//!
//! Owns: its reads and writes, in the order of the specification (clause 1.2). Never: draws a random number.
//!
//! The account comes first, as in the specification. That order is the best one here, too: the transaction may have to
//! wait for an account of another worker and for nothing else, and meanwhile it holds no row as much in demand as a
//! branch.

#![expect(
    clippy::manual_async_fn,
    reason = "rustc compiles a `pub async fn` here, and once more where it is used; a function that returns a future only there"
)]

use std::future::Future;

use atrapos::{Abort, Transaction};

use super::parameters::Request;
use super::schema::{History, Tables};

/// Detail of the abort of a transaction that does not find a row.
pub const NO_ROW: &str = "the branch, teller or account is not there";

/// Runs `AccountUpdate`: adds an amount to the balances of an account, a teller and a branch, appends it to the
/// history, and returns the new balance of the account.
///
/// # Errors
/// Fails like [`Transaction::run`]; also if the account, teller or branch does not exist.
pub fn account_update(
    tx: &mut impl Transaction,
    tables: Tables,
    request: Request,
    time_ns: u64,
) -> impl Future<Output = Result<i64, Abort>> {
    async move {
        let Request { b_id, t_id, account, delta } = request;
        let put = move |row: &mut super::schema::Account| {
            row.balance += delta;
            row.balance
        };
        let Some(balance) = tx.update(tables.account, account, put).await? else {
            return Err(Abort::user(NO_ROW));
        };
        let count = move |row: &mut super::schema::Teller| {
            let entry = row.entries;
            row.balance += delta;
            row.entries += 1;
            entry
        };
        let Some(entry) = tx.update(tables.teller, (b_id, t_id), count).await? else {
            return Err(Abort::user(NO_ROW));
        };
        if tx.update(tables.branch, b_id, move |row| row.balance += delta).await?.is_none() {
            return Err(Abort::user(NO_ROW));
        }
        let row = History {
            account_branch: account.0,
            account: account.1,
            delta: delta as i32,
            time_ns,
            filler: History::FILLER,
        };
        tx.run(tables.history.insert((b_id, t_id, entry), row)).await?;
        Ok(balance)
    }
}
