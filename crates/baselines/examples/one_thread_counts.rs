//! One kind of transaction of `shared-2pl` on one thread, many times, for an instruction counter: with latches and locks, without
//! latches, and without locks. What two runs with different counts differ by is what the transactions take.
//!
//! ```text
//! cargo build --release -p atrapos-baselines --example one_thread_counts
//! for count in 20000 40000; do
//!     valgrind --tool=callgrind --collect-bus=yes --callgrind-out-file=/dev/null \
//!         target/release/examples/one_thread_counts unlatched update $count
//! done
//! ```
//!
//! Engines: `latched`, `unlatched`, `unlocked` (it only reads). Kinds: `nothing`, `read`, `reads` (ten rows), `scan` (of 20 rows),
//! `update`, `insert` (in order), `remove`. The table has 100,000 rows of 100 bytes with keys of 8 bytes.

use std::ops::ControlFlow;
use std::process::ExitCode;

use atrapos_baselines::two_phase::{LockingEngine, OneThreadEngine};
use atrapos_baselines::{Engine, Intent, RowTransaction};
use atrapos_partition::abort::Abort;
use atrapos_partition::schema::TableId;

const ROWS: u64 = 100_000;
const ROW: [u8; 100] = [7; 100];
const TABLE: TableId = TableId(0);
const LINES: TableId = TableId(1);

/// A key that follows from a number, and seems random.
fn key(number: u64) -> [u8; 8] {
    let number = (number ^ number >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (2 * ((number ^ number >> 29) % ROWS)).to_be_bytes()
}

fn update(tx: &mut dyn RowTransaction, number: u64) -> Result<(), Abort> {
    let mut row = ROW;
    if let Some(found) = tx.read(TABLE, &key(number), Intent::Write)? {
        row.copy_from_slice(found);
    }
    row[number as usize % 100] ^= 1;
    tx.replace(TABLE, &key(number), &row)
}

fn scan(tx: &mut dyn RowTransaction, number: u64) -> Result<(), Abort> {
    let mut left = 20;
    tx.scan(TABLE, (&key(number), None), false, &mut |_, _| {
        left -= 1;
        Ok(if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(())
}

fn run(tx: &mut dyn RowTransaction, kind: &str, number: u64) -> Result<(), Abort> {
    match kind {
        "nothing" => Ok(()),
        "read" => tx.read(TABLE, &key(number), Intent::Read).map(drop),
        "reads" => (10 * number..10 * number + 10).try_for_each(|number| {
            tx.read(TABLE, &key(number), Intent::Read)?;
            Ok(())
        }),
        "scan" => scan(tx, number),
        "update" => update(tx, number),
        "insert" => tx.insert(LINES, &number.to_be_bytes(), &ROW).map(drop),
        "remove" => tx.remove(TABLE, &(2 * number).to_be_bytes()).map(drop),
        _ => Err(Abort::user("there is no such kind of transaction")),
    }
}

fn engine(name: &str) -> Option<Box<dyn Engine>> {
    match name {
        "latched" => Some(Box::new(LockingEngine::new(2))),
        "unlatched" => Some(Box::new(OneThreadEngine::new(2))),
        "unlocked" => Some(Box::new(LockingEngine::new(2).without_locks())),
        _ => None,
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let engine = arguments.next().and_then(|name| engine(&name));
    let (kind, count) = (arguments.next(), arguments.next().and_then(|count| count.parse().ok()));
    let (Some(engine), Some(kind), Some(count)) = (engine, kind, count) else { return ExitCode::from(2) };
    let rows: Vec<_> =
        (0..ROWS).map(|number| ((&(2 * number).to_be_bytes()[..]).into(), ROW.into())).collect();
    if engine.load(TABLE, &rows).is_err() {
        return ExitCode::FAILURE;
    }
    let mut client = engine.client();
    let ran = (0..count).try_for_each(|number| client.attempt(&mut |tx| run(tx, &kind, number)));
    if ran.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
