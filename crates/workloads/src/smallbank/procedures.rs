//! The six transactions of SmallBank as stored procedures.
//!
//! Owns: the reads and writes of each, and its rules. Never: draws a random number.
//!
//! Each begins with the customers' names, as in the original. A request for a customer who does not exist changes
//! nothing, and the result says so. A transaction that would break a rule aborts, also as in the original.
//!
//! # Order of access
//!
//! A row that may be written is locked exclusively at once. All transactions access savings before checking accounts,
//! and rows of two customers in one phase, which the engine runs in the order of owners, tables and keys. So they wait
//! for each other, but never in a cycle, however popular a customer is. `Amalgamate` computes the amount for the second
//! customer's account from the first one's balances: it locks the second one's account in the same phase, and adds the
//! amount in the next.

#![expect(
    clippy::manual_async_fn,
    reason = "rustc compiles a `pub async fn` here, and once more where it is used; a function that returns a future only there"
)]

use std::future::Future;

use atrapos::{Abort, Transaction};

use super::schema::{Name, Tables};

/// Additional charge for a check that is not covered, in cents.
pub const PENALTY: i64 = 100;

/// Detail of the aborts of `TransactSavings` and `SendPayment`.
pub const NOT_COVERED: &str = "there is not enough on the account";

/// Detail of the abort of a transaction whose customer has no savings or checking account.
pub const NO_ACCOUNT: &str = "a customer has no savings or checking account";

fn no_account() -> Abort {
    Abort::user(NO_ACCOUNT)
}

/// Looks up the number of the customer with a name.
#[inline]
async fn customer(tx: &mut impl Transaction, tables: Tables, name: Name) -> Result<Option<u64>, Abort> {
    Ok(tx.get(tables.account, name).await?.map(|account| account.customer))
}

/// Looks up the numbers of two customers, if both exist.
async fn customers(
    tx: &mut impl Transaction,
    tables: Tables,
    names: (Name, Name),
) -> Result<Option<(u64, u64)>, Abort> {
    let (first, second) = tx.join((tables.account.get(names.0), tables.account.get(names.1))).await?;
    Ok(first.zip(second).map(|(first, second)| (first.customer, second.customer)))
}

/// Runs `Balance`: returns the sum of a customer's two balances.
///
/// # Errors
/// The errors of [`Transaction::run`].
pub fn balance(
    tx: &mut impl Transaction,
    tables: Tables,
    name: Name,
) -> impl Future<Output = Result<Option<i64>, Abort>> {
    async move {
        let Some(customer) = customer(tx, tables, name).await? else { return Ok(None) };
        let savings = tx.get(tables.savings, customer).await?.ok_or_else(no_account)?.balance;
        let checking = tx.get(tables.checking, customer).await?.ok_or_else(no_account)?.balance;
        Ok(Some(savings + checking))
    }
}

/// Runs `DepositChecking`: adds `amount` to a customer's checking account. Returns whether the customer exists.
///
/// # Errors
/// The errors of [`Transaction::run`].
pub fn deposit_checking(
    tx: &mut impl Transaction,
    tables: Tables,
    name: Name,
    amount: i64,
) -> impl Future<Output = Result<bool, Abort>> {
    async move {
        let Some(customer) = customer(tx, tables, name).await? else { return Ok(false) };
        let deposited = tx.update(tables.checking, customer, move |row| row.balance += amount).await?;
        deposited.map(|()| true).ok_or_else(no_account)
    }
}

/// Runs `TransactSavings`: adds `amount` to a customer's savings account, or withdraws it if it is below zero. Returns
/// whether the customer exists.
///
/// # Errors
/// Fails like [`Transaction::run`]; also if the balance would become negative.
pub fn transact_savings(
    tx: &mut impl Transaction,
    tables: Tables,
    name: Name,
    amount: i64,
) -> impl Future<Output = Result<bool, Abort>> {
    async move {
        let Some(customer) = customer(tx, tables, name).await? else { return Ok(false) };
        let change = move |row: &mut super::schema::Saving| {
            row.balance += amount;
            row.balance
        };
        let left = tx.update(tables.savings, customer, change).await?.ok_or_else(no_account)?;
        if left < 0 { Err(Abort::user(NOT_COVERED)) } else { Ok(true) }
    }
}

/// Runs `Amalgamate`: moves both balances of the first customer to the second one's checking account. Returns whether
/// both customers exist.
///
/// # Errors
/// The errors of [`Transaction::run`].
pub fn amalgamate(
    tx: &mut impl Transaction,
    tables: Tables,
    names: (Name, Name),
) -> impl Future<Output = Result<bool, Abort>> {
    async move {
        let Some((from, to)) = customers(tx, tables, names).await? else { return Ok(false) };
        let taken = tx
            .join((
                tables.savings.update(from, |row| std::mem::take(&mut row.balance)),
                tables.checking.update(from, |row| std::mem::take(&mut row.balance)),
                // This changes nothing yet, but takes the lock.
                tables.checking.update(to, |_| ()),
            ))
            .await?;
        let (Some(savings), Some(checking), Some(())) = taken else { return Err(no_account()) };
        tx.update(tables.checking, to, move |row| row.balance += savings + checking)
            .await?
            .ok_or_else(no_account)?;
        Ok(true)
    }
}

/// Runs `WriteCheck`: withdraws `amount` from a customer's checking account, and [`PENALTY`] more if both accounts
/// together do not cover it. Returns the amount withdrawn, if the customer exists.
///
/// # Errors
/// The errors of [`Transaction::run`].
pub fn write_check(
    tx: &mut impl Transaction,
    tables: Tables,
    name: Name,
    amount: i64,
) -> impl Future<Output = Result<Option<i64>, Abort>> {
    async move {
        let Some(customer) = customer(tx, tables, name).await? else { return Ok(None) };
        let savings = tx.get(tables.savings, customer).await?.ok_or_else(no_account)?.balance;
        let write = move |row: &mut super::schema::Checking| {
            let is_covered = savings + row.balance >= amount;
            let taken = if is_covered { amount } else { amount + PENALTY };
            row.balance -= taken;
            taken
        };
        tx.update(tables.checking, customer, write).await?.map(Some).ok_or_else(no_account)
    }
}

/// Runs `SendPayment`: moves `amount` from the first customer's checking account to the second one's. Returns whether
/// both customers exist.
///
/// # Errors
/// Fails like [`Transaction::run`]; also if the first one's checking account does not cover it.
pub fn send_payment(
    tx: &mut impl Transaction,
    tables: Tables,
    names: (Name, Name),
    amount: i64,
) -> impl Future<Output = Result<bool, Abort>> {
    async move {
        let Some((from, to)) = customers(tx, tables, names).await? else { return Ok(false) };
        let take = move |row: &mut super::schema::Checking| {
            row.balance -= amount;
            row.balance
        };
        let put = move |row: &mut super::schema::Checking| row.balance += amount;
        match tx.join((tables.checking.update(from, take), tables.checking.update(to, put))).await? {
            (Some(left), Some(())) if left < 0 => Err(Abort::user(NOT_COVERED)),
            (Some(_), Some(())) => Ok(true),
            _ => Err(no_account()),
        }
    }
}
