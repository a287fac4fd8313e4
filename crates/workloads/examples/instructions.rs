//! A fixed number of transactions of one class, by sessions on one worker, for counting their instructions: the difference
//! between two runs, divided by the difference of their numbers. `scripts/instructions` does it.
//!
//! `instructions tatp|tpcc <class|standard> <sessions> <transactions>`
//!
//! TATP has 2,000 subscribers. TPC-C has one warehouse of 1,000 items and 100 customers per district, and nothing remote.

#![expect(clippy::print_stderr, reason = "a program says what is wrong with its arguments")]

use std::pin::pin;
use std::process::ExitCode;

use atrapos::{Database, LoadProgress, Session, WorkerId};
use atrapos_workloads::tatp::Tatp;
use atrapos_workloads::tpcc::{Tpcc, TpccConfig};
use atrapos_workloads::{Client, KeyChoice, Reach, Workload};

/// Runs one session: its share of the transactions, counting those that have committed or failed as the workload expects.
async fn run_one<W: Workload>(session: &Session, state: &mut W::State, transactions: u64) -> u64 {
    let mut completed = 0;
    for _ in 0..transactions {
        let (_, outcome) = pin!(W::transaction(Client::Session(session), state)).await;
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
    let db = Database::builder(workload.schema()).workers(1).pin(false).huge_pages(false).in_memory()?;
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
            eprintln!("error: {error}; use tatp|tpcc <class|standard> <sessions> <transactions>");
            ExitCode::from(2)
        }
    }
}

fn counted(arguments: &[&str]) -> Result<(), Box<dyn std::error::Error>> {
    let &[workload, mix, sessions, transactions] = arguments else {
        return Err("four arguments are needed".into());
    };
    let (sessions, transactions) = (sessions.parse::<u64>()?.max(1), transactions.parse()?);
    match workload {
        "tatp" => run(&Tatp::new(2_000, mix.parse()?, KeyChoice::Uniform, 1)?, sessions, transactions),
        "tpcc" => {
            let small = TpccConfig { warehouses: 1, items: 1_000, customers: 100, ..TpccConfig::default() };
            run(&Tpcc::new(TpccConfig { mix: mix.parse()?, ..small })?, sessions, transactions)
        }
        _ => Err(format!("there is no workload '{workload}' here").into()),
    }
}
