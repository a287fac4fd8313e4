//! Proves that a TPC-B database is the result of the committed transactions.
//!
//! Owns: the rules. Never: changes a row.
//!
//! It checks the consistency conditions of the specification (clause 2.3.2) and a little more:
//!
//! - the balance of every branch is the sum of those of its tellers;
//! - the balance of every teller is the sum of its entries in the history, which are numbered without a gap;
//! - the balances of all branches, of all tellers, of all accounts, and all amounts in the history have one sum, and it
//!   is what committed transactions were asked to put on accounts;
//! - the history has one entry per committed transaction;
//! - every entry was put on the account that it names. Accounts are not compared with their entries one by one, which
//!   are spread over all workers: both sides are multiplied by a random-looking number of the account and summed up;
//! - every row is there, with its filler, and the engine's own proof ([`Database::verify`]) succeeds.

use std::ops::ControlFlow;

use atrapos::{Abort, Database, KeyRange, Session, Tx};

use super::schema::{Account, Branch, History, TELLERS, Tables, Teller};
use super::{LOCAL, REMOTE, TpcbConfig};
use crate::auditing::{SLICE, by_owners};
use crate::keys::KeySet;
use crate::ledger::Ledger;
use crate::random::mixed;
use crate::workload::{AuditError, AuditReport};

/// Sums over the rows of some branches.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    branches: i64,
    tellers: i64,
    accounts: i64,
    history: i64,
    entries: u64,
    /// Sum of the balances of accounts, each multiplied by a number of the account.
    accounts_weighted: u64,
    /// Sum of the amounts in the history, each multiplied by the number of its account.
    history_weighted: u64,
}

impl Sums {
    fn plus(self, other: Sums) -> Sums {
        Sums {
            branches: self.branches.wrapping_add(other.branches),
            tellers: self.tellers.wrapping_add(other.tellers),
            accounts: self.accounts.wrapping_add(other.accounts),
            history: self.history.wrapping_add(other.history),
            entries: self.entries + other.entries,
            accounts_weighted: self.accounts_weighted.wrapping_add(other.accounts_weighted),
            history_weighted: self.history_weighted.wrapping_add(other.history_weighted),
        }
    }
}

fn weighted((b_id, a_id): (u64, u32), amount: i64) -> u64 {
    mixed(mixed(b_id) ^ u64::from(a_id)).wrapping_mul(amount.cast_unsigned())
}

pub(super) fn audit(config: &TpcbConfig, db: &Database, ledger: &Ledger) -> Result<AuditReport, AuditError> {
    let verified = db.verify()?;
    let tables = Tables::of(db)?;
    let TpcbConfig { branches, accounts_per_branch, .. } = *config;
    let audit_own = async move |session: &Session, own: &KeySet| {
        let mut sums = Sums::default();
        for at in 0..own.len() {
            sums = sums.plus(audit_branch(session, tables, own.nth(at), accounts_per_branch).await?);
        }
        Ok(sums)
    };
    let parts = by_owners(db, tables.branch.id(), 0, branches - 1, audit_own)?;
    let sums = parts.into_iter().fold(Sums::default(), Sums::plus);
    let committed = ledger.committed(LOCAL) + ledger.committed(REMOTE);
    for (table, name, expected) in [
        (tables.branch.id(), "branch", branches),
        (tables.teller.id(), "teller", branches * u64::from(TELLERS)),
        (tables.account.id(), "account", branches * u64::from(accounts_per_branch)),
        (tables.history.id(), "history", committed),
        (tables.history.id(), "history", sums.entries),
    ] {
        let found = db.len(table)?;
        if found != expected {
            return Err(AuditError::Count { table: name, expected, found });
        }
    }
    for (what, found) in [
        ("the sum of all branches' balances", sums.branches),
        ("the sum of all tellers' balances", sums.tellers),
        ("the sum of all accounts' balances", sums.accounts),
        ("the sum of all amounts in the history", sums.history),
    ] {
        let expected = ledger.moved();
        if found != expected {
            return Err(AuditError::Money { what, expected, found });
        }
    }
    if sums.accounts_weighted != sums.history_weighted {
        return Err(AuditError::Sum {
            what: "the checksum of which account has which balance",
            expected: sums.history_weighted,
            found: sums.accounts_weighted,
        });
    }
    Ok(AuditReport { rows: verified.rows, entries: verified.entries, references: verified.references })
}

async fn audit_branch(
    session: &Session,
    tables: Tables,
    b_id: u64,
    accounts: u32,
) -> Result<Sums, AuditError> {
    let route = tables.branch.at(&b_id);
    let read = async move |tx: &mut Tx<'_>| {
        let branch = tx.get(tables.branch, b_id).await?;
        Ok((branch, tx.scan(tables.teller, KeyRange::prefix(&b_id), usize::MAX).await?))
    };
    let (branch, tellers) = session.run_boxed(&route, read).await?;
    let Some(branch) = branch else { return Err(refuse("branch", b_id, "the row is missing")) };
    if branch.filler != Branch::loaded(b_id).filler {
        return Err(refuse("branch", b_id, "the filler was changed"));
    }
    let mut sums = Sums { branches: branch.balance, ..Sums::default() };
    for (at, ((_, t_id), teller)) in (0..).zip(&tellers) {
        if *t_id != at || *t_id >= TELLERS {
            return Err(refuse("teller", (b_id, at.min(*t_id)), "there is another teller instead"));
        }
        if teller.filler != Teller::loaded(b_id, *t_id).filler {
            return Err(refuse("teller", (b_id, *t_id), "the filler was changed"));
        }
        let history = audit_history(session, tables, (b_id, *t_id), teller.entries).await?;
        if history.history != teller.balance {
            return Err(refuse("teller", (b_id, *t_id), "the balance is not the sum of its history"));
        }
        sums.tellers = sums.tellers.wrapping_add(teller.balance);
        sums = sums.plus(history);
    }
    if sums.tellers != branch.balance {
        return Err(refuse("branch", b_id, "the balance is not the sum of its tellers' balances"));
    }
    Ok(sums.plus(audit_accounts(session, tables, b_id, accounts).await?))
}

/// State of a walk over numbered rows: the number that must come next, the sums so far, and the mistake in the row of
/// that number.
type Walked = (u64, Sums, Option<&'static str>);

/// Adds row number `number` to the sums; a mistake in it stops the walk.
fn step(
    walked: &mut Walked,
    number: u64,
    wrong: Option<&'static str>,
    add: impl FnOnce(&mut Sums),
) -> ControlFlow<()> {
    let (next, sums, refused) = walked;
    if number != *next {
        return ControlFlow::Break(());
    }
    if wrong.is_some() {
        *refused = wrong;
        return ControlFlow::Break(());
    }
    add(sums);
    *next += 1;
    ControlFlow::Continue(())
}

/// Walks rows number 0 to `count - 1` by `read`, which reads the rows of a slice.
async fn walk(
    table: &'static str,
    count: u64,
    key: impl Fn(u64) -> String,
    read: impl AsyncFn(u64, u64) -> Result<Walked, Abort>,
) -> Result<Sums, AuditError> {
    let mut sums = Sums::default();
    let mut first = 0;
    while first < count {
        let last = count.min(first + SLICE) - 1;
        let (next, part, wrong) = read(first, last).await?;
        if let Some(what) = wrong.or((next != last + 1).then_some("the row is missing")) {
            return Err(AuditError::Row { table, key: key(next), what });
        }
        sums = sums.plus(part);
        first = last + 1;
    }
    Ok(sums)
}

async fn audit_accounts(
    session: &Session,
    tables: Tables,
    b_id: u64,
    accounts: u32,
) -> Result<Sums, AuditError> {
    let read = async |first: u64, last: u64| {
        let range = KeyRange::through(&(b_id, first as u32), &(b_id, last as u32));
        let fold = async move |tx: &mut Tx<'_>| {
            let begin: Walked = (first, Sums::default(), None);
            let check = |walked: &mut Walked, (b_id, a_id): (u64, u32), row: Account| {
                let wrong =
                    (row.filler != Account::loaded(b_id, a_id).filler).then_some("the filler was changed");
                step(walked, u64::from(a_id), wrong, |sums| {
                    sums.accounts = sums.accounts.wrapping_add(row.balance);
                    sums.accounts_weighted =
                        sums.accounts_weighted.wrapping_add(weighted((b_id, a_id), row.balance));
                })
            };
            tx.fold(tables.account, range.clone(), begin, check).await
        };
        session.run_boxed(&tables.branch.at(&b_id), fold).await
    };
    walk("account", u64::from(accounts), |a_id| format!("({b_id}, {a_id})"), read).await
}

async fn audit_history(
    session: &Session,
    tables: Tables,
    (b_id, t_id): (u64, u8),
    entries: u64,
) -> Result<Sums, AuditError> {
    let read = async |first: u64, last: u64| {
        let range = KeyRange::through(&(b_id, t_id, first), &(b_id, t_id, last));
        let fold = async move |tx: &mut Tx<'_>| {
            let begin: Walked = (first, Sums::default(), None);
            let check = |walked: &mut Walked, (_, _, entry): (u64, u8, u64), row: History| {
                let wrong = (row.filler != History::FILLER).then_some("the filler was changed");
                step(walked, entry, wrong, |sums| {
                    let delta = i64::from(row.delta);
                    sums.entries += 1;
                    sums.history = sums.history.wrapping_add(delta);
                    sums.history_weighted = sums
                        .history_weighted
                        .wrapping_add(weighted((row.account_branch, row.account), delta));
                })
            };
            tx.fold(tables.history, range.clone(), begin, check).await
        };
        session.run_boxed(&tables.branch.at(&b_id), fold).await
    };
    walk("history", entries, |entry| format!("({b_id}, {t_id}, {entry})"), read).await
}

fn refuse(table: &'static str, key: impl std::fmt::Debug, what: &'static str) -> AuditError {
    AuditError::Row { table, key: format!("{key:?}"), what }
}
