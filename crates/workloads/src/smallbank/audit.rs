//! Proves that a SmallBank database is the result of the load and of the committed transactions.
//!
//! Owns: the rules. Never: changes a row.
//!
//! Every customer has an account of the right name, savings and checking; no savings account is below zero; and the sum
//! of all balances is the sum at first plus the deposits of committed transactions, less their withdrawals, penalties
//! included.

use std::ops::ControlFlow;

use atrapos::{Abort, Database, KeyRange, Session, TableRef, Tx};

use super::SmallBankConfig;
use super::schema::{Account, Checking, Name, Saving, Tables, loaded, name_of};
use crate::auditing::{by_owners, slices};
use crate::keys::KeySet;
use crate::ledger::Ledger;
use crate::workload::{AuditError, AuditReport};

pub(super) fn audit(
    config: &SmallBankConfig,
    db: &Database,
    ledger: &Ledger,
) -> Result<AuditReport, AuditError> {
    let verified = db.verify()?;
    let tables = Tables::of(db)?;
    let SmallBankConfig { customers, seed, .. } = *config;
    for (table, name) in [
        (tables.account.id(), "account"),
        (tables.savings.id(), "savings"),
        (tables.checking.id(), "checking"),
    ] {
        let found = db.len(table)?;
        if found != customers {
            return Err(AuditError::Count { table: name, expected: customers, found });
        }
    }
    let audit_own = async move |session: &Session, own: &KeySet| audit_own(session, tables, seed, own).await;
    let parts = by_owners(db, tables.savings.id(), 0, customers - 1, audit_own)?;
    let (found, at_first) = parts.iter().fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
    let expected = at_first + ledger.moved();
    if found != expected {
        return Err(AuditError::Money { what: "what all customers have together", expected, found });
    }
    Ok(AuditReport { rows: verified.rows, entries: verified.entries, references: verified.references })
}

/// Sums the balances of some customers, now and at first.
async fn audit_own(
    session: &Session,
    tables: Tables,
    seed: u64,
    own: &KeySet,
) -> Result<(i64, i64), AuditError> {
    let mut sum = (0, 0);
    for (first, last) in slices(own) {
        let read = async move |tx: &mut Tx<'_>| {
            Ok((
                names(tx, tables, first, last).await?,
                rows(tx, tables.savings, first, last).await?,
                rows(tx, tables.checking, first, last).await?,
            ))
        };
        let (names, savings, checking) = session.run_boxed(&tables.savings.at(&first), read).await?;
        let (mut names, mut savings, mut checking) =
            (names.into_iter(), savings.into_iter(), checking.into_iter());
        for customer in first..=last {
            if names.next() != Some((name_of(customer), Account { customer })) {
                return Err(refuse("account", customer, "the name does not lead to its customer"));
            }
            let Some((_, Saving { balance })) = savings.next().filter(|(found, _)| *found == customer) else {
                return Err(refuse("savings", customer, "the row is missing"));
            };
            if balance < 0 {
                return Err(refuse("savings", customer, "the balance is below zero"));
            }
            let Some((_, Checking { balance: on_checking })) =
                checking.next().filter(|(found, _)| *found == customer)
            else {
                return Err(refuse("checking", customer, "the row is missing"));
            };
            let at_first = loaded(seed, customer);
            sum = (sum.0 + balance + on_checking, sum.1 + at_first.0 + at_first.1);
        }
    }
    Ok(sum)
}

async fn names(
    tx: &mut Tx<'_>,
    tables: Tables,
    first: u64,
    last: u64,
) -> Result<Vec<(Name, Account)>, Abort> {
    let collect = |rows: &mut Vec<(Name, Account)>, key, row| {
        rows.push((key, row));
        ControlFlow::Continue(())
    };
    tx.fold(tables.account, KeyRange::through(&name_of(first), &name_of(last)), Vec::new(), collect).await
}

/// Reads the rows of the customers from `first` to `last`.
async fn rows<T: atrapos::Table<Key = u64>>(
    tx: &mut Tx<'_>,
    table: TableRef<T>,
    first: u64,
    last: u64,
) -> Result<Vec<(u64, T::Row)>, Abort> {
    let collect = |rows: &mut Vec<(u64, T::Row)>, key, row| {
        rows.push((key, row));
        ControlFlow::Continue(())
    };
    tx.fold(table, KeyRange::through(&first, &last), Vec::new(), collect).await
}

fn refuse(table: &'static str, customer: u64, what: &'static str) -> AuditError {
    AuditError::Row { table, key: customer.to_string(), what }
}
