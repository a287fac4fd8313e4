//! Resident memory of a database with idle workers: `idle_workers <workers>`
//!
//! Opens an empty database with the tables of TATP in memory, runs a transaction on each worker, and prints by how many bytes
//! the resident memory of the process has grown. The difference of two runs, divided by the difference of their workers, is
//! the memory of an idle worker. The allocator is that of the system.

#![expect(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a program says what it measures and what is wrong"
)]

use std::process::ExitCode;

use atrapos::{Database, Route, Tx, WorkerId};
use atrapos_workloads::tatp::schema::schema;

type Error = Box<dyn std::error::Error>;

/// Resident bytes of this process, as Linux counts them.
fn resident_bytes() -> Result<u64, Error> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("the kernel tells no VmRSS")?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes * 1024)
}

/// Bytes by which the process has grown after `workers` workers have run a transaction each.
fn growth(workers: usize) -> Result<u64, Error> {
    let before = resident_bytes()?;
    let db = Database::builder(schema(100_000)).workers(workers).pin(false).in_memory()?;
    for worker in 0..workers {
        let worker = WorkerId(u16::try_from(worker)?);
        db.run(Route::worker(worker), async |_: &mut Tx<'_>| Ok(()))?;
    }
    Ok(resident_bytes()?.saturating_sub(before))
}

fn main() -> ExitCode {
    let measured = std::env::args().nth(1).ok_or_else(|| "no number of workers is given".into());
    match measured.and_then(|workers| growth(workers.parse()?)) {
        Ok(bytes) => {
            println!("{bytes} bytes");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}; use idle_workers <workers>");
            ExitCode::FAILURE
        }
    }
}
