//! The `atrapos` command, as a library: the program is one call of [`run`]. The compiler makes this library while it still
//! generates code for those below, which it would finish before a program.
//!
//! Owns: the conversion of an outcome to an exit status: 0 for success, 1 when an operation failed that should have
//! worked (an audit, say), 2 when the arguments are invalid; and what the two programs of the command have in common (public here).
//!
//! Never: does any of the work; the modules do, and mostly the libraries below them. What no database needs to be run or measured is
//! done by a second program, `atrapos-tools`, which [`tools`] starts.

#![forbid(unsafe_code)]

mod advise;
pub mod args;
mod backup;
mod bench;
pub mod benchmarks;
mod call;
mod checkpoints;
pub mod config;
pub mod decisions;
mod deploy;
pub mod error;
mod explain;
mod input;
mod inspect;
mod instances;
pub mod interrupt;
pub mod json;
pub mod machine;
pub mod output;
mod partitioning;
pub mod progress;
mod raw;
mod recovery;
mod resident;
#[cfg(feature = "server")]
mod serve;
mod shared;
#[cfg(feature = "server")]
mod sql;
pub mod store;
pub mod table;
pub mod tools;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use crate::args::{BenchCommand, Cli, Command, OtherBench};
use crate::error::CliError;

/// Runs the command that the arguments of the process name, and returns its exit status.
#[must_use]
pub fn run() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    status(if tools::are_meant(&words) { tools::start(&words) } else { command(&Cli::parse().command) })
}

/// Returns the exit status of a command, after the error that it ended with has been printed.
pub fn status(done: Result<(), CliError>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            interrupt::wait_if_ending();
            output::complain(&format!("error: {error}"));
            error.exit_code()
        }
    }
}

/// Returns the arguments of a command that is going to be run later, as whoever would type it.
///
/// # Errors
/// Returns the first line of what its user would read.
pub fn parse<P: Parser>(words: &[String]) -> Result<P, CliError> {
    let words = std::iter::once("atrapos").chain(words.iter().map(String::as_str));
    P::try_parse_from(words).map_err(|error| {
        let text = error.to_string();
        let why = text.lines().next().unwrap_or_default();
        CliError::bad_input(why.strip_prefix("error: ").unwrap_or(why))
    })
}

/// Refuses a benchmark of a workload that would be refused when it is run.
///
/// # Errors
/// Returns the error that it would end with.
pub fn check_bench(words: &[String]) -> Result<(), CliError> {
    match parse::<Cli>(words)?.command {
        Command::Bench { benchmark: BenchCommand::Workload(bench) } => bench::check(&bench),
        _ => Ok(()),
    }
}

fn command(command: &Command) -> Result<(), CliError> {
    match command {
        Command::Bench { benchmark: BenchCommand::Workload(bench) } => bench::workload(bench),
        Command::Bench { benchmark: BenchCommand::Other(OtherBench::Raw(args)) } => raw::raw(args),
        Command::Bench { benchmark: BenchCommand::Other(OtherBench::Recovery(args)) } => {
            recovery::recovery(args)
        }
        Command::Advise { workload } => advise::advise(&workload.0),
        Command::Deploy { workload } => deploy::deploy(workload),
        #[cfg(feature = "server")]
        Command::Serve(args) => serve::serve(args),
        #[cfg(feature = "server")]
        Command::Sql(args) => sql::sql(args),
        #[cfg(not(feature = "server"))]
        Command::Serve(_) | Command::Sql(_) => Err(CliError::bad_input(
            "this program was built without the server; build it with `cargo build --release -p atrapos-cli --features server`",
        )),
        Command::Call(args) => call::call(args),
        Command::Explain(args) => explain::explain(args),
        Command::Inspect(args) => inspect::inspect(args),
        Command::Backup(args) => backup::backup(args),
        // Listed for the help; the words that name them have gone to the other program.
        Command::Bench { benchmark: BenchCommand::Other(OtherBench::Tool(_)) } | Command::Tool(_) => {
            tools::start(&std::env::args_os().skip(1).collect::<Vec<_>>())
        }
    }
}
