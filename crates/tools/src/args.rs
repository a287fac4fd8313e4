//! The command line of what this program does, with the help that explains it.
//!
//! Owns: names, defaults and help texts. Never: judges values beyond their syntax.

mod bench;
mod domains;
pub(crate) mod experiment;
pub(crate) mod islands;
mod torture;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) use self::bench::{
    DomainsBenchArgs, DomainsDesignsBenchArgs, DomainsServiceBenchArgs, DomainsStructuresBenchArgs,
    DomainsTpccBenchArgs, StructureBench,
};
pub(crate) use self::domains::{CalibrateArgs, ComposeArgs, DomainsCommand, KindArg, RunConfigurationArgs};
pub(crate) use self::torture::{TortureArgs, TortureChildArgs, TortureHistoryChildArgs};

/// Tools around the engine, as commands of `atrapos`.
#[derive(Debug, Parser)]
// Of an option given twice the last one counts, so that a script can append to what it was given.
#[command(
    name = "atrapos",
    bin_name = "atrapos",
    version,
    arg_required_else_help = true,
    args_override_self = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure structures under loads, used directly or by virtual domains.
    Bench {
        #[command(subcommand)]
        benchmark: StructureBench,
    },
    /// Configure virtual domains: measure how many workers structures gain from, compose domains of such sizes, and run them.
    Domains {
        #[command(subcommand)]
        command: DomainsCommand,
    },
    /// Show how a database adapts itself, beside one that does not, or what that costs; or compare designs by islands.
    ///
    /// Reproduces the experiments of the ATraPos paper and of *OLTP on hardware islands* at the size of this machine.
    Experiment(Box<experiment::ExperimentCommand>),
    /// Show the machine: nested islands of cores, their distances, and where each piece of knowledge comes from.
    Topology(TopologyArgs),
    /// Show which partitions there should be, and on which workers, for recorded statistics.
    ///
    /// Prints what today's scheme and the proposed one cost, who owns what in each, and the steps from the one to the other.
    /// Slices are the sub-partitions of a table, counted in key order. Nothing is changed.
    Plan(PlanArgs),
    /// Watch a running database: throughput, latency, the load of workers and partitions, owners, and decisions as they are made.
    ///
    /// It is one of this user: `bench`, `serve` and `deploy` offer theirs while they run, and programs that ask for it. At a terminal
    /// the view is brought up to date once a second (arrow keys scroll the partitions, q ends); elsewhere it is printed once.
    /// Exit status 1 means that the database was closed meanwhile, 2 that none is there to be watched.
    Watch(WatchArgs),
    /// Kill a working database again and again, and check each time it comes back that it kept its promises.
    ///
    /// A child process runs TATP, transactions that write rows on several workers at once, readers, transfers and
    /// checkpoints, until it is killed at a random moment (now and then it is asked to end). The next child opens the
    /// directory with another number of workers and must find everything that was acknowledged to anybody, nothing by
    /// halves, and nothing that was never committed. A file outside the database remembers what was acknowledged.
    Torture(TortureArgs),
    /// Child process of `torture`, which kills it.
    #[command(hide = true)]
    TortureChild(TortureChildArgs),
    /// Child process of `torture --history`, which kills it.
    #[command(hide = true)]
    TortureHistoryChild(TortureHistoryChildArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TopologyArgs {
    /// The machine to show: `live`, a description such as "pack:8 l3:2 core:5 pu:1", or a machine file (.toml).
    #[arg(long, value_name = "T", default_value = "live")]
    pub(crate) topology: String,
    /// Time round trips between the cores of this machine and derive its islands from them. For machines that lie, as most
    /// virtual ones do. Times also what a synchronization of two workers costs, and stores it for databases that adapt (in
    /// ~/.cache/atrapos/sync-costs.json, or the file that ATRAPOS_SYNC_COSTS names).
    #[arg(long)]
    pub(crate) measure: bool,
    /// Print one JSON object.
    #[arg(long, conflicts_with = "toml")]
    pub(crate) json: bool,
    /// Print a machine file, to be given to --topology later.
    #[arg(long)]
    pub(crate) toml: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// The machine to plan for: `live`, a description such as "pack:8 core:10 pu:1", or a machine file (.toml).
    #[arg(long, value_name = "T", default_value = "live")]
    pub(crate) topology: String,
    /// Plan for so many workers [default: one for each usable cpu of the machine], however many the statistics are of.
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<usize>,
    /// The statistics to plan for, as `bench --record` writes them.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: PathBuf,
    /// Plan for another mix of transaction classes than the recorded one: names and shares, such as
    /// get-subscriber-data=3,update-location=1. What actions cost, and where, stays as it was recorded; which of them meet follows
    /// from the flow graphs of the classes. Classes that are not named do not run.
    #[arg(long, value_name = "CLASS=SHARE,..", value_delimiter = ',')]
    pub(crate) mix: Vec<String>,
    /// Find the best scheme there is by an integer program, and say how far the usual search is from it. For small cases.
    #[arg(long)]
    pub(crate) exact: bool,
    /// Time limit of the integer program, in seconds.
    #[arg(long, value_name = "S", default_value_t = 60.0, requires = "exact")]
    pub(crate) exact_seconds: f64,
    /// Draw the heat of each slice and who owns it, today and as proposed, as SVG.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// The directory of the database, or the number of its process (PID-N if it has several). A directory whose name is a number
    /// is written with a slash: ./12.
    #[arg(value_name = "DIR|PID")]
    pub(crate) target: OsString,
    /// Print the view once, as text, at a terminal too.
    #[arg(long)]
    pub(crate) once: bool,
    /// Print one JSON object, once.
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn tools_are_listed_by_the_other_program_with_the_same_words() {
        use atrapos_cli::tools::{BenchTool, Tool};
        use clap::CommandFactory;

        let listed = |augment: fn(clap::Command) -> clap::Command| {
            let command = augment(clap::Command::new("list"));
            command
                .get_subcommands()
                .map(|one| (one.get_name().to_owned(), one.get_about().map(ToString::to_string)))
                .collect::<Vec<_>>()
        };
        let mut own = listed(Command::augment_subcommands);
        own.retain(|(name, _)| name != "bench" && !name.starts_with("torture-"));
        assert_eq!(own, listed(Tool::augment_subcommands));
        assert_eq!(listed(StructureBench::augment_subcommands), listed(BenchTool::augment_subcommands));
        assert_eq!(Cli::command().get_name(), "atrapos");
    }
}
