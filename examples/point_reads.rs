//! The same point reads of the same table, as types or by name, for counting what each costs:
//!
//! ```text
//! valgrind --tool=callgrind --toggle-collect='*point_reads*read_*' \
//!     target/release/examples/point_reads typed 100000
//! valgrind --tool=callgrind --toggle-collect='*point_reads*read_*' \
//!     target/release/examples/point_reads named 100000
//! ```
//!
//! `cargo run --release -p atrapos --example point_reads -- typed 100000`; `none` instead of `typed` runs the same transactions
//! without the reads, so that differences of totals are the cost of the reads alone.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use atrapos::catalog::Value;
use atrapos::{Abort, Database, LoadProgress, Schema, Session, Table, TableHandle, TableRef, WorkerId, row};

row! {
    /// An account of a bank.
    #[derive(Clone, Debug)]
    pub struct Account {
        /// What is in it.
        pub balance: i64,
        /// The branch of the bank.
        pub branch: u32,
        /// How often it was used.
        pub uses: u64,
        /// What the bank calls it.
        pub label: [u8; 24],
    }
}

struct Accounts;

impl Table for Accounts {
    type Key = u64;
    type Row = Account;
    const NAME: &'static str = "accounts";
    const KEY_COLUMNS: &'static [&'static str] = &["number"];
}

/// Rows of the table.
const ROWS: u64 = 10_000;

/// Reads that one transaction makes.
const READS: u64 = 10;

/// The keys that transaction `number` reads: all over the table.
fn keys(number: u64) -> impl Iterator<Item = u64> {
    (0..READS).map(move |at| (number * READS + at).wrapping_mul(0x9e37_79b9_7f4a_7c15) % ROWS)
}

async fn read_typed(session: &Session, accounts: TableRef<Accounts>, number: u64) -> Result<i128, Abort> {
    session
        .run(&accounts.at(&(number % ROWS)), async move |tx| {
            let mut sum = 0;
            for key in keys(number) {
                sum += tx.get(accounts, key).await?.map_or(0, |account| i128::from(account.balance));
            }
            Ok(sum)
        })
        .await
}

async fn read_named(session: &Session, accounts: &TableHandle, number: u64) -> Result<i128, Abort> {
    let route = accounts.at(&[Value::Unsigned(u128::from(number % ROWS))])?;
    let accounts = accounts.clone();
    session
        .run(&route, async move |tx| {
            let mut sum = 0;
            for key in keys(number) {
                let Some(account) = tx.get(&accounts, &[Value::Unsigned(u128::from(key))]).await? else {
                    continue;
                };
                // The number of the column is known: it is looked up once per program.
                if let Value::Signed(balance) = account.at(&accounts, 1)? {
                    sum += balance;
                }
            }
            Ok(sum)
        })
        .await
}

async fn read_nothing(session: &Session, accounts: TableRef<Accounts>, number: u64) -> Result<i128, Abort> {
    session.run(&accounts.at(&(number % ROWS)), async move |_| Ok(keys(number).map(i128::from).sum())).await
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let how = arguments.next().unwrap_or_else(|| "typed".to_owned());
    let reads: u64 = arguments.next().map_or(Ok(1_000), |reads| reads.parse())?;
    let db = Database::builder(Schema::new().table::<Accounts>()).workers(1).pin(false).in_memory()?;
    let (typed, named) = (db.table::<Accounts>()?, db.table_named("accounts")?);
    db.load(&LoadProgress::default(), move |loader| {
        for number in loader.share_of(typed, 0, ROWS - 1).into_iter().flatten() {
            let balance = i64::try_from(number).unwrap_or(0);
            loader.add(typed, &number, &Account { balance, branch: 1, uses: 0, label: [b'x'; 24] })?;
        }
        Ok(())
    })?;
    let session = db.spawn_session(WorkerId(0), async move |session| {
        let mut sum = 0;
        for number in 0..reads.div_ceil(READS) {
            sum += match how.as_str() {
                "named" => read_named(&session, &named, number).await?,
                "none" => read_nothing(&session, typed, number).await?,
                _ => read_typed(&session, typed, number).await?,
            };
        }
        Ok::<i128, Abort>(sum)
    })?;
    println!("{} reads found {} in all", reads.div_ceil(READS) * READS, session.join()??);
    Ok(())
}
