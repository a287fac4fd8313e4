//! The tools of the `atrapos` command, as a library: the program `atrapos-tools` is one call of [`run`].
//!
//! - `bench`: structures under loads, used directly or by virtual domains;
//! - `domains`: how many workers structures gain from, and domains composed of such sizes;
//! - `experiment`: databases that adapt beside others, and designs compared by islands;
//! - `plan`: the decisions of the adaptive engine for recorded statistics;
//! - `topology`: the structure of the machine, and its costs;
//! - `torture`: a database that is killed again and again;
//! - `watch`: a running database in the terminal.
//!
//! Owns: what these print, and the order of their steps. Never: does what the first program does: whatever is no tool, such as the
//! benchmark that an experiment starts, is handed to [`atrapos_cli::run`].

#![forbid(unsafe_code)]

mod args;
mod bench;
mod domains;
mod drawing;
mod experiment;
mod ownership;
mod plan;
mod topology;
mod torture;
mod watch;
mod witness;

use std::ffi::OsString;
use std::process::ExitCode;

use atrapos_cli::error::CliError;
use clap::{Parser, Subcommand};

use crate::args::{Cli, Command, StructureBench};

/// Runs the command that the arguments of the process name, and returns its exit status.
#[must_use]
pub fn run() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    // Torture starts children of this program by names that no list has.
    let is_own = words
        .first()
        .and_then(|word| word.to_str())
        .is_some_and(|word| word != "bench" && Command::has_subcommand(word));
    if is_own || atrapos_cli::tools::are_meant(&words) {
        atrapos_cli::status(command(&Cli::parse().command))
    } else {
        atrapos_cli::run()
    }
}

fn command(command: &Command) -> Result<(), CliError> {
    match command {
        Command::Bench { benchmark } => bench(benchmark),
        Command::Domains { command } => domains::domains(command),
        Command::Experiment(args) => experiment::experiment(args),
        Command::Topology(args) => topology::topology(args),
        Command::Plan(args) => plan::plan(args),
        Command::Watch(args) => watch::watch(args),
        Command::Torture(args) => torture::torture(args),
        Command::TortureChild(args) => torture::child::run(args),
        Command::TortureHistoryChild(args) => torture::history::run_child(args),
    }
}

fn bench(benchmark: &StructureBench) -> Result<(), CliError> {
    match benchmark {
        StructureBench::Domains(args) => bench::domains::domains(args),
        StructureBench::DomainsDesigns(args) => bench::domains_designs::domains_designs(args),
        StructureBench::DomainsStructures(args) => bench::domains_structures::domains_structures(args),
        StructureBench::DomainsService(args) => bench::domains_service::domains_service(args),
        StructureBench::DomainsTpcc(args) => bench::domains_tpcc::domains_tpcc(args),
    }
}
