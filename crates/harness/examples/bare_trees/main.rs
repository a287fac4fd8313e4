//! Transactions of the workloads on bare trees, without an engine: what is left when routing, isolation, undo, redo and sessions
//! are taken away. A lower bound of what an engine on these trees can need.
//!
//! `bare_trees <class> time [seconds] [rounds]`: transactions per second of two pinned threads, each with trees of its own.
//! `bare_trees <class> count <transactions>`: one thread, for counting instructions under callgrind, with the sizes of
//! `crates/workloads/examples/instructions.rs`.
//!
//! The classes are `get-subscriber-data`, whose keys are looked up sixteen at a time (`time`) or one by one (`count`);
//! `update-subscriber-data`; `tpcc`, the standard mix of TPC-C on one warehouse for each thread, and each of its classes alone, whose
//! items, stocks and lines of one order are looked up together. Inputs are drawn and rows are read, changed in place and made by the
//! code of the workloads. All of TPC-C is local and rolls nothing back.

#![expect(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a program says what it measures and what is wrong"
)]

mod subscribers;
mod warehouse;

use std::process::ExitCode;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use atrapos::Row;
use atrapos_runtime::affinity::pin_current_thread;
use atrapos_runtime::memory::{HugeChunks, MemoryOptions, PreparedChunks};
use atrapos_storage::{Tree, TreeConfig};
use atrapos_workloads::tatp::SUBSCRIBERS_DEFAULT;
use atrapos_workloads::tatp::parameters::Class;
use atrapos_workloads::tpcc::generator::Scale;
use atrapos_workloads::tpcc::parameters::Mix;
use subscribers::{Subscribers, TOGETHER};
use warehouse::WarehouseTrees;

type Error = Box<dyn std::error::Error>;

/// Seed of all data and inputs.
const SEED: u64 = 42;
/// Transactions between two looks at the clock.
const BETWEEN_LOOKS: u64 = 64;
/// Memory in huge pages, like that of an engine.
fn memory() -> Arc<dyn atrapos_storage::Memory> {
    let chunks = HugeChunks::new(MemoryOptions { huge_pages: true, bind_to_node: false });
    Arc::new(atrapos::TreeMemory::new(Arc::new(PreparedChunks::new(chunks)), None))
}

fn tree<R: Row>() -> Tree {
    Tree::new(TreeConfig::for_rows_of(R::FIXED_BYTES), memory())
}

/// Inserts a row, encoded in `scratch`.
#[inline]
fn insert<R: Row>(tree: &mut Tree, key: &[u8], row: &R, scratch: &mut Vec<u8>) -> Result<(), Error> {
    scratch.clear();
    row.encode(scratch);
    Ok(tree.insert(key, scratch, 0)?)
}

/// The transactions of a thread.
trait Bare: Send {
    /// Runs some transactions and returns their number.
    fn run_some(&mut self) -> Result<u64, Error>;
}

/// Makes the transactions of one of two threads; `is_small` has the sizes of what counts instructions.
fn bare(class: &str, thread: u64, is_small: bool) -> Result<Box<dyn Bare>, Error> {
    let class = match class {
        "get-subscriber-data" => Class::GetSubscriberData,
        "update-subscriber-data" => Class::UpdateSubscriberData,
        _ => {
            let mix: Mix = if class == "tpcc" { Mix::Standard } else { class.parse()? };
            let small = Scale { warehouses: 1, items: 1_000, customers: 100 };
            let (scale, w_id) = if is_small { (small, 1) } else { (Scale::of(2), 1 + thread as u16) };
            return Ok(Box::new(WarehouseTrees::new(scale, w_id, mix)?));
        }
    };
    let (subscribers, part) = if is_small { (2_000, (0, 1)) } else { (SUBSCRIBERS_DEFAULT, (thread, 2)) };
    Ok(Box::new(Subscribers::new(subscribers, class, part, if is_small { 1 } else { TOGETHER })?))
}

/// Runs transactions for about this long and returns how many were run per second.
fn run(bare: &mut dyn Bare, time: Duration) -> Result<f64, Error> {
    let (began, mut done) = (Instant::now(), 0);
    while began.elapsed() < time {
        for _ in 0..BETWEEN_LOOKS {
            done += bare.run_some()?;
        }
    }
    Ok(done as f64 / began.elapsed().as_secs_f64())
}

/// Runs the rounds and prints the sum of both threads for each.
fn measure(class: &str, seconds: f64, rounds: u32) -> Result<(), Error> {
    let mut threads = [bare(class, 0, false)?, bare(class, 1, false)?];
    for _ in 0..rounds {
        let barrier = Barrier::new(2);
        let time = Duration::from_secs_f64(seconds);
        let rates = std::thread::scope(|scope| {
            let barrier = &barrier;
            let [one, other] = &mut threads;
            let threads = [(0, one), (1, other)].map(|(cpu, bare)| {
                scope.spawn(move || {
                    // Best effort: an unpinned thread measures too.
                    let _ = pin_current_thread(cpu);
                    barrier.wait();
                    run(bare.as_mut(), time).map_err(|error| error.to_string())
                })
            });
            threads.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        println!("{:.0} transactions/s", rates.into_iter().sum::<Result<f64, String>>()?);
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let at = |place: usize, default: &'static str| arguments.get(place).map_or(default, String::as_str);
    let run = || -> Result<(), Error> {
        match at(1, "time") {
            "time" => measure(at(0, "new-order"), at(2, "2").parse()?, at(3, "1").parse()?),
            "count" => {
                let mut bare = bare(at(0, "new-order"), 0, true)?;
                let (mut done, wanted) = (0, at(2, "1024").parse::<u64>()?);
                while done < wanted {
                    done += bare.run_some()?;
                }
                Ok(())
            }
            other => Err(format!("'{other}' is neither 'time' nor 'count'").into()),
        }
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!(
                "error: {error}; use bare_trees <class> time [seconds] [rounds] or bare_trees <class> count <transactions>"
            );
            ExitCode::from(2)
        }
    }
}
