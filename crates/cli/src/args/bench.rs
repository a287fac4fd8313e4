//! The command line of `atrapos bench`: a benchmark for each workload that there is, and a few that are none.
//!
//! Owns: how the options of a workload and those that all runs take become one command. Never: knows a workload by name; there is
//! a registry.

use std::path::PathBuf;

use atrapos_harness::registry::{Entry, Given};
use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};

use super::run::{CommonArgs, RunArgs};
use crate::benchmarks::{entries, entry};
use crate::tools::BenchTool;

/// Benchmark to run.
#[derive(Debug)]
pub(crate) enum BenchCommand {
    Workload(Box<WorkloadBench>),
    Other(OtherBench),
}

/// A workload, and how to run it.
#[derive(Debug)]
pub(crate) struct WorkloadBench {
    /// The options of the workload's own.
    pub(crate) given: Box<dyn Given>,
    pub(crate) run: RunArgs,
}

// These follow the workloads in the list. A doc comment of the enum would become the help of `bench`.
#[derive(Debug, Subcommand)]
pub(crate) enum OtherBench {
    /// The limits of the machine: bare lookups, messages and increments, without any engine around them.
    Raw(RawArgs),
    /// Time that a database takes to come back after its process has ended, compared with making it anew without logging.
    Recovery(RecoveryArgs),
    #[command(flatten)]
    Tool(BenchTool),
}

/// The command of a workload: its own help and options first, then what every run takes.
fn command(entry: &dyn Entry) -> Command {
    let own = entry.command();
    let (about, long_about) = (own.get_about().cloned(), own.get_long_about().cloned());
    // What is added would bring its own description along.
    RunArgs::augment_args(own).about(Resettable::from(about)).long_about(Resettable::from(long_about))
}

impl Subcommand for BenchCommand {
    fn augment_subcommands(bench: Command) -> Command {
        let commands = entries().into_iter().map(|entry| command(&*entry));
        OtherBench::augment_subcommands(bench.subcommands(commands))
    }

    fn augment_subcommands_for_update(bench: Command) -> Command {
        BenchCommand::augment_subcommands(bench)
    }

    fn has_subcommand(name: &str) -> bool {
        entry(name).is_some() || OtherBench::has_subcommand(name)
    }
}

impl FromArgMatches for BenchCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<BenchCommand, clap::Error> {
        let Some((name, chosen)) = matches.subcommand() else {
            return Err(clap::Error::raw(ErrorKind::MissingSubcommand, "choose a benchmark"));
        };
        match entry(name) {
            Some(entry) => {
                let (given, run) = (entry.given(chosen)?, RunArgs::from_arg_matches(chosen)?);
                Ok(BenchCommand::Workload(Box::new(WorkloadBench { given, run })))
            }
            None => OtherBench::from_arg_matches(matches).map(BenchCommand::Other),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = BenchCommand::from_arg_matches(matches)?;
        Ok(())
    }
}

#[derive(Debug, Args)]
pub(crate) struct RawArgs {
    /// Rows of 100 bytes in every structure.
    #[arg(long, value_name = "N", default_value_t = 800_000, help_heading = "Workload")]
    pub(crate) rows: u64,
    /// Lookups per structure and round.
    #[arg(long, value_name = "N", default_value_t = 500_000, help_heading = "Workload")]
    pub(crate) lookups: u64,
    /// Fewest rounds; more are made until the time is up. The median of the rounds counts.
    #[arg(long, value_name = "N", default_value_t = 5, help_heading = "Measurement")]
    pub(crate) runs: u32,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RecoveryArgs {
    /// Number of TATP subscribers.
    #[arg(long, value_name = "N", default_value_t = 800_000)]
    pub(crate) subscribers: u64,
    /// Updates that are logged and replayed.
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    pub(crate) updates: u64,
    /// Numbers of workers to measure with, one after the other.
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,2")]
    pub(crate) workers: Vec<usize>,
    /// Seed of all random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Keep the database here; the directory must be empty or not exist, and only one number of workers makes sense then
    /// [default: a temporary directory].
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Also write the result as one JSON object to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}
