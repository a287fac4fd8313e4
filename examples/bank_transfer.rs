//! Many transfers between accounts of different workers at once; the sum of all balances never changes.
//!
//! `cargo run --release -p atrapos --example bank_transfer`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use atrapos::{Abort, Database, KeyRange, LoadProgress, Schema, Table, TableRef, Tx, row};

row! {
    /// A bank account.
    #[derive(Clone, Debug)]
    pub struct Account {
        /// In cents.
        pub balance: i64,
    }
}

struct Accounts;

impl Table for Accounts {
    type Key = u64;
    type Row = Account;
    const NAME: &'static str = "accounts";
}

const ACCOUNTS: u64 = 1_000;
const TRANSFERS: u64 = 20_000;

/// Moves `cents` from one account to another, or aborts and moves nothing.
async fn transfer(
    tx: &mut Tx<'_>,
    accounts: TableRef<Accounts>,
    from: u64,
    to: u64,
    cents: i64,
) -> Result<(), Abort> {
    // Both accounts at once, each where it is: a synchronization point.
    let (left, arrived) = tx
        .join((
            accounts.update(from, move |account| {
                account.balance -= cents;
                account.balance
            }),
            accounts.update(to, move |account| account.balance += cents),
        ))
        .await?;
    if arrived.is_none() {
        return Err(Abort::user("there is no account to transfer to"));
    }
    match left {
        Some(balance) if balance >= 0 => Ok(()),
        Some(_) => Err(Abort::user("the balance is too low")),
        None => Err(Abort::user("there is no account to transfer from")),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let schema = Schema::new().table::<Accounts>().split_evenly("accounts", 1, ACCOUNTS);
    let db = Database::builder(schema).workers(2).in_memory()?;
    let accounts = db.table::<Accounts>()?;
    db.load(&LoadProgress::default(), move |loader| {
        for id in loader.share_of(accounts, 1, ACCOUNTS).into_iter().flatten() {
            loader.add(accounts, &id, &Account { balance: 10_000 })?;
        }
        Ok(())
    })?;

    // Hand over everything, then wait: the workers run the transfers concurrently.
    let mut running = Vec::new();
    for i in 0..TRANSFERS {
        let from = i * 7_919 % ACCOUNTS + 1;
        let to = (i * 104_729 + 500) % ACCOUNTS + 1;
        if from == to {
            continue;
        }
        let cents = (i % 5_000) as i64;
        let request =
            db.submit(accounts.at(&from), async move |tx| transfer(tx, accounts, from, to, cents).await)?;
        running.push(request);
    }
    let outcomes: Vec<_> = running.into_iter().map(atrapos::Submitted::wait).collect();
    let refused = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    println!("{} transfers made, {refused} refused for lack of money", outcomes.len() - refused);

    let sum = db.run(accounts.at(&1), async move |tx| {
        let add = |sum: &mut i64, _, account: Account| {
            *sum += account.balance;
            std::ops::ControlFlow::Continue(())
        };
        tx.fold(accounts, KeyRange::all(), 0, add).await
    })?;
    println!("sum of all balances: {sum} cents");
    assert_eq!(sum, ACCOUNTS as i64 * 10_000, "money was made or lost");
    let statistics = db.statistics();
    println!(
        "{} actions ran on their home worker, {} on another; {} locks entered, {} waits",
        statistics.local_actions, statistics.remote_actions, statistics.locks_entered, statistics.lock_waits
    );
    db.verify()?;
    Ok(())
}
