//! A fixed number of transactions of one class, by sessions on one worker, for counting their instructions: the difference
//! between two runs, divided by the difference of their numbers. `scripts/instructions` does it. In a directory, which must be new,
//! the database is durable, and nobody waits for commits.
//!
//! `instructions tatp|tpcc|ycsb|micro|columns <class|standard> <sessions> <transactions> [directory]`
//!
//! The classes of `columns` are `read-narrow`, `read-wide`, `update-narrow` and `update-wide`: one session reads two columns of a
//! row, or updates one, of 4 columns and 32 bytes or of 20 columns and 300 bytes.
//!
//! The classes of `micro` are `read-N` and `update-N`: N of the 2,000 rows of one site.
//!
//! The classes of `ycsb` are its letters or shares of kinds; it has 2,000 records of 1,000 bytes.
//!
//! TATP has 2,000 subscribers. TPC-C has one warehouse of 1,000 items and 100 customers per district, and nothing remote.

#![expect(clippy::print_stderr, reason = "a program says what is wrong with its arguments")]

use std::hint::black_box;
use std::pin::pin;
use std::process::ExitCode;

use atrapos::{Database, Durability, LoadProgress, Schema, Session, Table, Tx, WorkerId, row};
use atrapos_workloads::micro::{Kind, Micro, MicroConfig};
use atrapos_workloads::tatp::Tatp;
use atrapos_workloads::tpcc::{Tpcc, TpccConfig};
use atrapos_workloads::ycsb::mix::Mix;
use atrapos_workloads::ycsb::schema::Wide as WideRecord;
use atrapos_workloads::ycsb::{Ycsb, YcsbConfig};
use atrapos_workloads::{Client, KeyChoice, Reach, Workload};

/// Runs one session: its share of the transactions, counting those that have committed or failed as the workload expects.
async fn run_one<W: Workload>(session: &Session, state: &mut W::State, transactions: u64) -> u64 {
    let mut completed = 0;
    for _ in 0..transactions {
        let (_, outcome) = pin!(W::transaction(&Client::Session(session, None), state)).await;
        completed += u64::from(outcome.is_ok());
    }
    completed
}

/// Loads the workload and runs its transactions.
fn run<W: Workload>(
    workload: &W,
    sessions: u64,
    transactions: u64,
) -> Result<(), Box<dyn std::error::Error>> {
    let builder = Database::builder(workload.schema()).workers(1).pin(false).huge_pages(false);
    // The fifth argument is a directory: with it commits are written there, and nobody waits for them.
    let db = match std::env::args().nth(5) {
        Some(directory) => builder.durability(Durability::Relaxed { max_loss_ms: 100 }).open(directory)?,
        None => builder.in_memory()?,
    };
    workload.load(&db, &LoadProgress::default())?;
    let share = transactions / sessions;
    let mut handles = Vec::new();
    for stream in 0..sessions {
        let mut state = workload.state(&db, Reach::Everywhere, stream + 1)?;
        let body = async move |session: Session| run_one::<W>(&session, &mut state, share).await;
        handles.push(db.spawn_session(WorkerId(0), body)?);
    }
    let mut completed = 0;
    for handle in handles {
        completed += handle.join()?;
    }
    if completed == share * sessions { Ok(()) } else { Err("a transaction was aborted".into()) }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match counted(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!(
                "error: {error}; use tatp|tpcc|ycsb|micro|columns <class|standard> <sessions> <transactions> [directory]"
            );
            ExitCode::from(2)
        }
    }
}

row! {
    /// A row of 4 columns and 32 bytes.
    #[derive(Clone, Debug)]
    #[expect(missing_docs, reason = "columns that mean nothing")]
    pub struct Narrow {
        pub a: u64,
        pub b: u64,
        pub c: u64,
        pub d: u64,
    }
}

row! {
    /// A row of 20 columns and 300 bytes.
    #[derive(Clone, Debug)]
    #[expect(missing_docs, reason = "columns that mean nothing")]
    pub struct Wide {
        pub a: u64,
        pub b: u64,
        pub c: u64,
        pub d: u64,
        pub e: u64,
        pub f: u64,
        pub g: u64,
        pub h: u64,
        pub i: u64,
        pub j: u64,
        pub k: [u8; 22],
        pub l: [u8; 22],
        pub m: [u8; 22],
        pub n: [u8; 22],
        pub o: [u8; 22],
        pub p: [u8; 22],
        pub q: [u8; 22],
        pub r: [u8; 22],
        pub s: [u8; 22],
        pub t: [u8; 22],
    }
}

struct NarrowRows;
impl Table for NarrowRows {
    type Key = u64;
    type Row = Narrow;
    const NAME: &'static str = "narrow";
}

struct WideRows;
impl Table for WideRows {
    type Key = u64;
    type Row = Wide;
    const NAME: &'static str = "wide";
}

/// Rows of each of these tables.
const ROWS: u64 = 2_000;

/// Reads two columns of a row, or updates one, in each of so many transactions.
async fn run_columns(
    session: &Session,
    mix: &str,
    transactions: u64,
) -> Result<(), Box<dyn std::error::Error>> {
    let (narrow, wide) = (session.table::<NarrowRows>()?, session.table::<WideRows>()?);
    for number in 0..transactions {
        let key = number * 7919 % ROWS;
        match mix {
            "read-narrow" => {
                let read = async move |tx: &mut Tx<'_>| {
                    tx.view(narrow, key, |row| (row.get(|column| column.b), row.get(|column| column.d))).await
                };
                black_box(session.run(&narrow.at(&key), read).await?);
            }
            "read-wide" => {
                let read = async move |tx: &mut Tx<'_>| {
                    tx.view(wide, key, |row| (row.get(|column| column.b), row.get(|column| column.j))).await
                };
                black_box(session.run(&wide.at(&key), read).await?);
            }
            "update-narrow" => {
                let update = async move |tx: &mut Tx<'_>| {
                    tx.edit(narrow, key, |row| row.change(|column| column.c, |value| value + 1)).await
                };
                black_box(session.run(&narrow.at(&key), update).await?);
            }
            "update-wide" => {
                let update = async move |tx: &mut Tx<'_>| {
                    tx.edit(wide, key, |row| row.change(|column| column.i, |value| value + 1)).await
                };
                black_box(session.run(&wide.at(&key), update).await?);
            }
            _ => return Err(format!("there is no mix '{mix}' of columns").into()),
        }
    }
    Ok(())
}

/// Loads a table of narrow rows and one of wide ones and runs transactions on a few of their columns.
fn columns(mix: &str, transactions: u64) -> Result<(), Box<dyn std::error::Error>> {
    let schema = Schema::new().table::<NarrowRows>().table::<WideRows>();
    let db = Database::builder(schema).workers(1).pin(false).huge_pages(false).in_memory()?;
    let mix = mix.to_owned();
    let body = async move |session: Session| {
        let done = async {
            load_columns(&session).await?;
            run_columns(&session, &mix, transactions).await
        };
        done.await.map_err(|error: Box<dyn std::error::Error>| error.to_string())
    };
    Ok(db.spawn_session(WorkerId(0), body)?.join()??)
}

/// Inserts all rows, on the worker: a thread that waits for each would be counted too.
async fn load_columns(session: &Session) -> Result<(), Box<dyn std::error::Error>> {
    let (narrow, wide) = (session.table::<NarrowRows>()?, session.table::<WideRows>()?);
    let [k, l, m, n, o, p, q, r, s, t] = [[b'x'; 22]; 10];
    let [a, b, c, d, e, f, g, h, i, j] = std::array::from_fn(|at| at as u64);
    let row = Wide { a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t };
    let insert = async move |tx: &mut Tx<'_>| {
        for key in 0..ROWS {
            tx.insert(narrow, key, Narrow { a, b, c, d }).await?;
            tx.insert(wide, key, row.clone()).await?;
        }
        Ok(())
    };
    Ok(session.run(&narrow.at(&0), insert).await?)
}

fn counted(arguments: &[&str]) -> Result<(), Box<dyn std::error::Error>> {
    let &[workload, mix, sessions, transactions, ..] = arguments else {
        return Err("four arguments are needed".into());
    };
    let (sessions, transactions) = (sessions.parse::<u64>()?.max(1), transactions.parse()?);
    match workload {
        "tatp" => run(&Tatp::new(2_000, mix.parse()?, KeyChoice::Uniform, 1)?, sessions, transactions),
        "tpcc" => {
            let small = TpccConfig { warehouses: 1, items: 1_000, customers: 100, ..TpccConfig::default() };
            run(&Tpcc::new(TpccConfig { mix: mix.parse()?, ..small })?, sessions, transactions)
        }
        "ycsb" => {
            let mix: Mix = mix.parse()?;
            let distribution = mix.distribution();
            let config = YcsbConfig { mix, distribution, rows: 2_000, ..YcsbConfig::default() };
            run(&Ycsb::<WideRecord>::new(config)?, sessions, transactions)
        }
        "micro" => {
            let (kind, rows) =
                mix.split_once('-').ok_or("a mix of micro is a kind, '-' and a number of rows")?;
            let kind = match kind {
                "read" => Kind::Read,
                "update" => Kind::Update,
                _ => return Err(format!("there is no kind '{kind}' of transactions").into()),
            };
            let config = MicroConfig { kind, rows_per_transaction: rows.parse()?, ..MicroConfig::default() };
            run(
                &Micro::new(MicroConfig { sites: 1, rows_per_site: 2_000, ..config })?,
                sessions,
                transactions,
            )
        }
        "columns" => columns(mix, transactions),
        _ => Err(format!("there is no workload '{workload}' here").into()),
    }
}
