//! The six transactions of SmallBank as stored procedures.
//!
//! Owns: what each reads and writes, and its rules. Never: draws a random number.
//!
//! Each begins with the customers' names, as in the original. What is asked for of a customer who is not there changes
//! nothing and is answered so. A transaction that would break a rule aborts, also as in the original.
//!
//! # Order of access
//!
//! A row that may be written is locked for that at once. All transactions access savings before checking accounts, and
//! rows of two customers in one phase, which the engine runs in the order of owners, tables and keys. So they wait for
//! each other, but never in a cycle, however popular a customer is. `Amalgamate` learns what to put on the second
//! customer's account from the first one's: it takes the lock of the second one's in the same phase, and puts the money
//! there in the next.

#![expect(
    clippy::manual_async_fn,
    reason = "rustc compiles a `pub async fn` here, and once more where it is used; a function that returns a future only there"
)]

use std::future::Future;

use atrapos::{Abort, Tx};

use super::schema::{Name, Tables};

/// What a check that is not covered costs more, in cents.
pub const PENALTY: i64 = 100;

/// Why `TransactSavings` and `SendPayment` abort.
pub const NOT_COVERED: &str = "there is not enough on the account";

/// Why a transaction aborts whose customer has no savings or checking account.
pub const NO_ACCOUNT: &str = "a customer has no savings or checking account";

fn no_account() -> Abort {
    Abort::user(NO_ACCOUNT)
}

/// The number of the customer with a name.
#[inline]
async fn customer(tx: &mut Tx<'_>, tables: Tables, name: Name) -> Result<Option<u64>, Abort> {
    Ok(tx.get(tables.account, name).await?.map(|account| account.customer))
}

/// The numbers of two customers, if both are there.
async fn customers(
    tx: &mut Tx<'_>,
    tables: Tables,
    names: (Name, Name),
) -> Result<Option<(u64, u64)>, Abort> {
    let (first, second) = tx.join((tables.account.get(names.0), tables.account.get(names.1))).await?;
    Ok(first.zip(second).map(|(first, second)| (first.customer, second.customer)))
}

/// `Balance`: what a customer has on both accounts.
///
/// # Errors
/// The errors of [`Tx::run`].
pub fn balance(
    tx: &mut Tx<'_>,
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

/// `DepositChecking`: puts `amount` on a customer's checking account. Returns whether there is such a customer.
///
/// # Errors
/// The errors of [`Tx::run`].
pub fn deposit_checking(
    tx: &mut Tx<'_>,
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

/// `TransactSavings`: puts `amount` on a customer's savings account, or takes it out when it is below zero. Returns
/// whether there is such a customer.
///
/// # Errors
/// Fails like [`Tx::run`]; also if less than nothing would be left.
pub fn transact_savings(
    tx: &mut Tx<'_>,
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

/// `Amalgamate`: moves all that the first customer has to the second one's checking account. Returns whether there are
/// such customers.
///
/// # Errors
/// The errors of [`Tx::run`].
pub fn amalgamate(
    tx: &mut Tx<'_>,
    tables: Tables,
    names: (Name, Name),
) -> impl Future<Output = Result<bool, Abort>> {
    async move {
        let Some((from, to)) = customers(tx, tables, names).await? else { return Ok(false) };
        let taken = tx
            .join((
                tables.savings.update(from, |row| std::mem::take(&mut row.balance)),
                tables.checking.update(from, |row| std::mem::take(&mut row.balance)),
                // Nothing is changed yet, but the lock is there.
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

/// `WriteCheck`: takes `amount` from a customer's checking account, and [`PENALTY`] more if both accounts together do
/// not cover it. Returns what was taken, if there is such a customer.
///
/// # Errors
/// The errors of [`Tx::run`].
pub fn write_check(
    tx: &mut Tx<'_>,
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

/// `SendPayment`: moves `amount` from the first customer's checking account to the second one's. Returns whether there
/// are such customers.
///
/// # Errors
/// Fails like [`Tx::run`]; also if the first one's checking account does not cover it.
pub fn send_payment(
    tx: &mut Tx<'_>,
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
