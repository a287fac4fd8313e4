//! The workloads of `atrapos` on what else a Rust programmer could choose: the same data, the same requests, the same threads, the same
//! durability, and the same auditors.
//!
//! - [`peer`]: the interface of every store; [`peers`] has them all, [`kv`] what stores of bytes by key have in common.
//! - [`requests`]: population and requests, by the generators of the workloads; [`record`]: their rows as one type.
//! - [`driver`]: client threads; [`side`]: a store that is loaded, or `atrapos` itself; [`audit`](mod@audit).
//! - [`bench`](mod@bench): the table; [`report`]: how it is shown; [`args`]: the command line.
//!
//! Owns: everything about peers. Never: judges a result, or prints (but for [`run_from_args`]).

#![deny(unsafe_code)]

pub mod args;
pub mod audit;
pub mod bench;
pub mod driver;
pub mod kv;
pub mod peer;
pub mod peers;
pub mod record;
pub mod report;
pub mod requests;
pub mod side;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

use crate::args::Args;
use crate::bench::{BenchError, Plan};

/// Runs the command line of the process. The exit status is 0, 1 for failures, and 2 for bad input.
#[must_use]
pub fn run_from_args() -> ExitCode {
    match compare(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If nobody reads it, the exit status tells.
            let _ = writeln!(std::io::stderr(), "error: {error}");
            error.exit_code()
        }
    }
}

/// Measures what was asked for, prints the table and writes the file.
fn compare(args: &Args) -> Result<(), BenchError> {
    let plan = Plan::of(args)?;
    remove_when_interrupted(&plan)?;
    let results = bench::run(&plan, &mut |line| {
        let _ = writeln!(std::io::stderr(), "{line}");
    })?;
    let printed = writeln!(std::io::stdout(), "{}", report::table(&plan, &results));
    let written = std::fs::write(&args.json, report::json(&plan, &results));
    written.map_err(|error| BenchError::Failed(format!("{}: {error}", args.json.display())))?;
    printed.map_err(|error| BenchError::Failed(format!("the table could not be printed: {error}")))
}

/// Exit status of a program that Ctrl-C ends.
const INTERRUPTED: i32 = 130;

/// Has Ctrl-C remove the stores, which may be of gigabytes.
fn remove_when_interrupted(plan: &Plan) -> Result<(), BenchError> {
    let directory = plan.directory().to_owned();
    let handler = move || {
        let _ = std::fs::remove_dir_all(&directory);
        std::process::exit(INTERRUPTED);
    };
    ctrlc::set_handler(handler)
        .map_err(|error| BenchError::Failed(format!("Ctrl-C cannot be handled: {error}")))
}
