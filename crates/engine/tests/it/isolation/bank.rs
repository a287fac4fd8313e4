//! Money is moved between accounts while others count it: it is never made or lost, and nobody ever sees it half moved.

use std::ops::ControlFlow;

use atrapos::{Abort, AbortReason, Action, KeyRange, Operation, Route, Schema, TableRef, Tx};

use super::{simulated, threaded};
use crate::support::{Engine, Item, Items, Others, Random, item, until_done};

const EACH: i64 = 100;
const FEW_ACCOUNTS: u64 = 24;
const MANY_ACCOUNTS: u64 = 200;

pub(crate) fn few_accounts() -> Schema {
    Schema::new().table::<Items>().split_evenly("items", 0, FEW_ACCOUNTS - 1)
}

fn many_accounts() -> Schema {
    Schema::new().table::<Items>().split_evenly("items", 0, MANY_ACCOUNTS - 1)
}

/// Number of sessions, and the work of each.
#[derive(Clone, Copy)]
struct Load {
    sessions: usize,
    transactions: u64,
    accounts: u64,
    /// Percentage of the transactions that count all the money.
    counting: u64,
}

pub(crate) fn few(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    transfers(
        engine,
        workers,
        seed,
        Load { sessions: 8, transactions: 12, accounts: FEW_ACCOUNTS, counting: 30 },
    )
}

fn many(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    transfers(
        engine,
        workers,
        seed,
        Load { sessions: 16, transactions: 150, accounts: MANY_ACCOUNTS, counting: 4 },
    )
}

/// The sum of all balances and the number of accounts, as one transaction sees them.
async fn count_money(tx: &mut Tx<'_>, items: TableRef<Items>, backward: bool) -> Result<(i64, u64), Abort> {
    let add = |sum: &mut (i64, u64), _, row: Item| {
        *sum = (sum.0 + row.value, sum.1 + 1);
        ControlFlow::Continue(())
    };
    match backward {
        false => tx.fold(items, KeyRange::all(), (0, 0), add).await,
        true => tx.fold_backward(items, KeyRange::all(), (0, 0), add).await,
    }
}

/// Adds to what is in an account.
fn moving(items: TableRef<Items>, key: u64, cents: i64) -> Action<impl Operation<Output = Option<i64>>> {
    items.update(key, move |row| {
        row.value += cents;
        // Now and then the row changes its length.
        row.text = "x".repeat((row.value.unsigned_abs() % 40) as usize);
        row.value
    })
}

/// Moves money between two accounts in one of several ways.
async fn transfer(
    tx: &mut Tx<'_>,
    items: TableRef<Items>,
    (from, to): (u64, u64),
    cents: i64,
    kind: u64,
) -> Result<(), Abort> {
    match kind {
        // Both in one phase.
        0..=2 => {
            if cents % 2 == 0 {
                tx.declare_last();
            }
            tx.join((moving(items, from, -cents), moving(items, to, cents))).await?;
        }
        // One after the other.
        3 | 4 => {
            tx.run(moving(items, from, -cents)).await?;
            tx.declare_last();
            tx.run(moving(items, to, cents)).await?;
        }
        // Read first, write what was computed from it.
        5 if from != to => {
            let (a, b) = tx.join((items.get(from), items.get(to))).await?;
            if let (Some(a), Some(b)) = (a, b) {
                let (a, b) = (a.value - cents, b.value + cents);
                tx.update(items, to, move |row| row.value = b).await?;
                tx.update(items, from, move |row| row.value = a).await?;
            }
        }
        // The account moves to another row as a whole.
        _ if from != to => {
            if let Some(row) = tx.delete(items, from).await? {
                let taken = tx.update(items, to, move |other| other.value += row.value).await?;
                if taken.is_none() {
                    return Err(Abort::user("there is no such account"));
                }
                tx.insert(items, from, item(0)).await?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn transfers(engine: &mut Engine, workers: usize, seed: u64, load: Load) -> Result<(), String> {
    let items = engine.table::<Items>();
    let (accounts, money) = (load.accounts, EACH * load.accounts as i64);
    let opened = engine.run(items.at(&0), async move |tx| {
        tx.join_all((0..accounts).map(|key| items.insert(key, item(EACH)))).await.map(drop)
    });
    opened.map_err(|abort| abort.to_string())?;
    let random = Random::new(seed);
    let sums = engine.sessions(load.sessions, workers, async move |session, at| {
        let mut random = random.part(at);
        let mut wrong = None;
        for _ in 0..load.transactions {
            let (from, to) = (random.below(accounts), random.below(accounts));
            let (cents, kind, aborts) = (random.below(30) as i64, random.below(7), random.chance(20));
            let (counting, backward) = (random.chance(load.counting), random.chance(50));
            let route = if random.chance(50) { items.at(&from) } else { Route::worker(session.worker()) };
            let ran = until_done(session, &route, async move |tx| {
                if counting {
                    return count_money(tx, items, backward).await.map(Some);
                }
                transfer(tx, items, (from, to), cents, kind).await?;
                if aborts { Err(Abort::user("as planned")) } else { Ok(None) }
            })
            .await;
            match ran {
                Ok(Some(counted)) if counted != (money, accounts) => {
                    wrong = Some(format!("counted {counted:?}"));
                }
                Err(abort) if abort.reason() != AbortReason::User => wrong = Some(abort.to_string()),
                _ => {}
            }
        }
        wrong
    })?;
    if let Some(wrong) = sums.into_iter().flatten().next() {
        return Err(wrong);
    }
    let left = engine.run(items.at(&0), async move |tx| count_money(tx, items, false).await);
    match left.map_err(|abort| abort.to_string())? {
        counted if counted == (money, accounts) => Ok(()),
        counted => Err(format!("in the end there are {counted:?}")),
    }
}

#[test]
fn money_is_never_made_or_lost_simulated() {
    simulated(100, few_accounts, few);
}

#[test]
fn money_is_never_made_or_lost_on_threads() {
    threaded(2, many_accounts, many);
}

/// Two tables whose rows always change together.
pub(crate) fn pairs() -> Schema {
    crate::support::two_tables()
}

/// A row of one table and the row of the same key in the other are inserted, changed and deleted together or not at all;
/// everybody who looks at both sees the same.
pub(crate) fn twins(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    let (items, others) = (engine.table::<Items>(), engine.table::<Others>());
    let random = Random::new(seed);
    let sums = engine.sessions(8, workers, async move |session, at| {
        let mut random = random.part(at);
        let mut wrong = None;
        for _ in 0..15 {
            let (key, value, kind) = (random.below(6) * 18, random.below(1000) as i64, random.below(6));
            let aborts = random.chance(30);
            let ran = until_done(session, &Route::worker(session.worker()), async move |tx| {
                match kind {
                    0 => drop(
                        tx.join((
                            items.insert_if_absent(key, item(value)),
                            others.insert_if_absent(key, item(value)),
                        ))
                        .await?,
                    ),
                    1 => {
                        tx.update(items, key, move |row| row.value = value).await?;
                        tx.update(others, key, move |row| row.value = value).await?;
                    }
                    2 => drop(tx.join((items.delete(key), others.delete(key))).await?),
                    3 => {
                        let (a, b) = (tx.get(items, key).await?, tx.get(others, key).await?);
                        return Ok((a != b).then(|| format!("row {key} is {a:?} here and {b:?} there")));
                    }
                    _ => {
                        let range = KeyRange::between(&0_u64, &(key + 1));
                        let a = tx.scan(items, range.clone(), usize::MAX).await?;
                        let b = tx.scan_backward(others, range, usize::MAX).await?;
                        let agree = a.iter().eq(b.iter().rev());
                        return Ok((!agree).then(|| format!("there are {a:?} here and {b:?} there")));
                    }
                }
                if aborts { Err(Abort::user("as planned")) } else { Ok(None) }
            })
            .await;
            match ran {
                Ok(None) => {}
                Ok(Some(differ)) => wrong = Some(differ),
                Err(abort) if abort.reason() == AbortReason::User => {}
                Err(abort) => wrong = Some(abort.to_string()),
            }
        }
        wrong
    })?;
    sums.into_iter().flatten().next().map_or(Ok(()), Err)
}

#[test]
fn rows_that_belong_together_are_always_seen_together_simulated() {
    simulated(100, pairs, twins);
}

#[test]
fn rows_that_belong_together_are_always_seen_together_on_threads() {
    threaded(20, pairs, twins);
}
