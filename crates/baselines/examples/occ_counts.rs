//! One kind of transaction of `shared-occ`, many times, for an instruction counter: what two runs with different counts differ
//! by is what the transactions take.
//!
//! ```text
//! cargo build --release -p atrapos-baselines --example occ_counts
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/occ_counts update 100000
//! ```
//!
//! Kinds: `nothing`, `read`, `absent`, `update`, `insert` (in order), `insert-random`, `remove`, `scan` (of 20 rows),
//! `new-order` (the accesses of TPC-C's NewOrder with ten lines). The table has 200,000 rows of 100 bytes with keys of 8 bytes.

use std::ops::ControlFlow;
use std::process::ExitCode;

use atrapos_baselines::occ::{OccClient, OccEngine, OccTransaction};
use atrapos_baselines::{Intent, RowTransaction};
use atrapos_partition::abort::Abort;
use atrapos_partition::schema::TableId;

const ROWS: u64 = 200_000;
const ROW: [u8; 100] = [7; 100];
const TABLE: TableId = TableId(0);
const LINES: TableId = TableId(1);

/// A number that follows from another one, and seems random.
fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (number ^ number >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

fn key(number: u64) -> [u8; 8] {
    (2 * (mixed(number) % ROWS)).to_be_bytes()
}

fn update(tx: &mut OccTransaction<'_>, number: u64) -> Result<(), Abort> {
    let mut row = ROW;
    if let Some(found) = tx.read(TABLE, &key(number), Intent::Write)? {
        row.copy_from_slice(found);
    }
    row[number as usize % 100] ^= 1;
    tx.replace(TABLE, &key(number), &row)
}

/// Reads three rows, updates eleven and inserts twelve, as NewOrder does.
fn new_order(tx: &mut OccTransaction<'_>, number: u64) -> Result<(), Abort> {
    for read in 0..13 {
        tx.read(TABLE, &key(100 * number + read), Intent::Read)?;
    }
    for line in 0..11 {
        update(tx, 100 * number + 50 + line)?;
    }
    for line in 0..12 {
        tx.insert(LINES, &(16 * number + line).to_be_bytes(), &ROW[..60])?;
    }
    Ok(())
}

fn scan(tx: &mut OccTransaction<'_>, number: u64) -> Result<(), Abort> {
    let mut left = 20;
    tx.scan(TABLE, (&key(number), None), false, &mut |_, _| {
        left -= 1;
        Ok(if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(())
}

fn run(client: &mut OccClient, kind: &str, number: u64) -> Result<(), Abort> {
    let mut tx = client.begin();
    match kind {
        "nothing" => {}
        "read" => {
            tx.read(TABLE, &key(number), Intent::Read)?;
        }
        "absent" => {
            tx.read(TABLE, &(2 * (number % ROWS) + 1).to_be_bytes(), Intent::Read)?;
        }
        "update" => update(&mut tx, number)?,
        "insert" => {
            tx.insert(LINES, &number.to_be_bytes(), &ROW)?;
        }
        "insert-random" => {
            tx.insert(LINES, &mixed(number).to_be_bytes(), &ROW)?;
        }
        "remove" => {
            tx.remove(TABLE, &key(number))?;
        }
        "scan" => scan(&mut tx, number)?,
        "new-order" => new_order(&mut tx, number)?,
        _ => return Err(Abort::user("there is no such kind of transaction")),
    }
    tx.commit()
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (kind, count) = (arguments.next(), arguments.next().and_then(|count| count.parse().ok()));
    let (Some(kind), Some(count)) = (kind, count) else { return ExitCode::from(2) };
    let engine = OccEngine::with_epoch_period(2, None);
    let rows = (0..ROWS).map(|number| ((2 * number).to_be_bytes(), ROW));
    if engine.load(TABLE, rows).is_err() {
        return ExitCode::FAILURE;
    }
    let mut client = engine.client();
    let ran = (0..count).try_for_each(|number| run(&mut client, &kind, number));
    if ran.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
