//! The `atrapos` command, as a library: the program is one call of [`run`]. The compiler makes this library while it still
//! generates code for those below, which it would finish before a program.
//!
//! Owns: the conversion of an outcome to an exit status: 0 for success, 1 when an operation failed that should have
//! worked (an audit, say), 2 when the arguments are invalid.
//!
//! Never: does any of the work; the modules do, and mostly the libraries below them.

#![forbid(unsafe_code)]

mod advise;
mod args;
mod backup;
mod bench;
mod call;
mod checkpoints;
mod config;
mod decisions;
mod deploy;
mod domains;
mod drawing;
mod error;
mod experiment;
mod explain;
mod input;
mod inspect;
mod instances;
mod interrupt;
mod json;
mod machine;
mod output;
mod ownership;
mod partitioning;
mod plan;
mod progress;
mod raw;
mod recovery;
mod resident;
#[cfg(feature = "server")]
mod serve;
mod shared;
#[cfg(feature = "server")]
mod sql;
mod store;
mod table;
mod topology;
mod torture;
mod watch;
mod witness;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{BenchCommand, Cli, Command, OtherBench};

/// Runs the command that the arguments of the process name, and returns its exit status.
#[must_use]
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.command {
        Command::Bench { benchmark: BenchCommand::Workload(bench) } => bench::workload(bench),
        Command::Bench { benchmark: BenchCommand::Other(OtherBench::Raw(args)) } => raw::raw(args),
        Command::Bench { benchmark: BenchCommand::Other(OtherBench::Recovery(args)) } => {
            recovery::recovery(args)
        }
        Command::Bench { benchmark: BenchCommand::Other(OtherBench::Domains(args)) } => {
            bench::domains::domains(args)
        }
        Command::Bench { benchmark: BenchCommand::Other(OtherBench::DomainsDesigns(args)) } => {
            bench::domains_designs::domains_designs(args)
        }
        Command::Bench { benchmark: BenchCommand::Other(OtherBench::DomainsStructures(args)) } => {
            bench::domains_structures::domains_structures(args)
        }
        Command::Bench { benchmark: BenchCommand::Other(OtherBench::DomainsService(args)) } => {
            bench::domains_service::domains_service(args)
        }
        Command::Bench { benchmark: BenchCommand::Other(OtherBench::DomainsTpcc(args)) } => {
            bench::domains_tpcc::domains_tpcc(args)
        }
        Command::Advise { workload } => advise::advise(&workload.0),
        Command::Deploy { workload } => deploy::deploy(workload),
        Command::Domains { command } => domains::domains(command),
        #[cfg(feature = "server")]
        Command::Serve(args) => serve::serve(args),
        #[cfg(feature = "server")]
        Command::Sql(args) => sql::sql(args),
        #[cfg(not(feature = "server"))]
        Command::Serve(_) | Command::Sql(_) => Err(error::CliError::bad_input(
            "this program was built without the server; build it with `cargo build --release -p atrapos-cli --features server`",
        )),
        Command::Call(args) => call::call(args),
        Command::Experiment(args) => experiment::experiment(args),
        Command::Topology(args) => topology::topology(args),
        Command::Watch(args) => watch::watch(args),
        Command::Plan(args) => plan::plan(args),
        Command::Explain(args) => explain::explain(args),
        Command::Inspect(args) => inspect::inspect(args),
        Command::Backup(args) => backup::backup(args),
        Command::Torture(args) => torture::torture(args),
        Command::TortureChild(args) => torture::child::run(args),
        Command::TortureHistoryChild(args) => torture::history::run_child(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            interrupt::wait_if_ending();
            output::complain(&format!("error: {error}"));
            error.exit_code()
        }
    }
}
