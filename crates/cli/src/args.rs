//! The command line: what can be asked for, with the help that explains it.
//!
//! Owns: names, defaults and help texts. Never: judges values beyond their syntax, so that all refusals that need knowledge
//! of the engine or the machine are made in one voice, elsewhere.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// An in-memory, serializable transaction engine that adapts itself to hardware islands.
///
/// This command measures it on your machine, and shows what your machine looks like to it.
#[derive(Debug, Parser)]
// Of an option given twice the last one counts, so that a script can append to what it was given.
#[command(version, arg_required_else_help = true, args_override_self = true, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  atrapos bench tatp                         load 100,000 subscribers, run the standard mix for 10 s
  atrapos bench tatp --mix get-subscriber-data --routing owner --subscribers 800000
                                             the fastest transaction there is, each worker on its own data
  atrapos bench tatp --clients 4 --runs 5    four client threads outside the engine; the median of five runs
  atrapos bench micro --kind update --multisite 0.2
                                             10-row updates, one in five across workers
  atrapos bench raw                          what this machine can do without any engine
  atrapos topology --measure                 the islands of this machine, timed rather than believed

Exit status: 0 on success, 1 when a run or its audit failed, 2 when what was asked for makes no sense.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Load a database, run transactions on it, audit it, and report what came out.
    Bench {
        #[command(subcommand)]
        benchmark: BenchCommand,
    },
    /// Show the machine: nested islands of cores, their distances, and where each piece of knowledge comes from.
    Topology(TopologyArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// TATP: seven short transactions on the subscribers of a phone network.
    ///
    /// A known share of most transactions asks for rows that are not there. Such an expected failure is a complete
    /// transaction and counts in the throughput; the share of successes is shown beside it.
    #[command(after_help = "\
Mixes: standard (all seven, 35/10/35/2/14/2/2 in a hundred), get-subscriber-data, get-new-destination, \
get-access-data, update-subscriber-data, update-location, insert-call-forwarding, delete-call-forwarding.")]
    Tatp(TatpArgs),
    /// Read or update a few rows of 250 bytes, on one worker or on several.
    Micro(MicroArgs),
    /// The limits of the machine: bare lookups, messages and increments, without any engine around them.
    Raw(RawArgs),
}

/// What every measurement takes.
#[derive(Debug, Args)]
pub(crate) struct CommonArgs {
    /// Length of the measured interval, in seconds.
    #[arg(long, value_name = "S", default_value_t = 10.0, help_heading = "Measurement")]
    pub(crate) seconds: f64,
    /// Where all random choices follow from; the same seed loads the same rows.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Measurement")]
    pub(crate) seed: u64,
    /// Also write the result as one JSON object to this file, which appears when the measurement is complete.
    #[arg(long, value_name = "FILE", help_heading = "Measurement")]
    pub(crate) json: Option<PathBuf>,
    /// The machine to place workers on: `live`, a description such as "pack:2 l3:4 core:8 pu:1", or a machine file (.toml).
    #[arg(long, value_name = "T", default_value = "live", help_heading = "Machine")]
    pub(crate) topology: String,
    /// Leave threads where the kernel puts them.
    #[arg(long, help_heading = "Machine")]
    pub(crate) no_pin: bool,
}

/// What every benchmark that runs transactions takes.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// How long transactions run before they are measured, in seconds.
    #[arg(long, value_name = "S", default_value_t = 2.0, help_heading = "Measurement")]
    pub(crate) warmup: f64,
    /// How often to measure. The median counts; the database is loaded once.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Measurement")]
    pub(crate) runs: u32,
    /// Workers, each a thread that owns a part of the data [default: one per usable core].
    #[arg(long, value_name = "N", help_heading = "Machine")]
    pub(crate) workers: Option<usize>,
    /// Take memory from wherever the kernel gives it, not from the worker's own node.
    #[arg(long, help_heading = "Machine")]
    pub(crate) no_place_memory: bool,
    /// Sessions per worker: clients that live on the worker and run one transaction after the other [default: 32].
    #[arg(long, value_name = "N", conflicts_with = "clients", help_heading = "Clients")]
    pub(crate) sessions: Option<usize>,
    /// Run from N client threads outside the engine instead of sessions on the workers.
    #[arg(long, value_name = "N", help_heading = "Clients")]
    pub(crate) clients: Option<usize>,
    /// Which data clients choose: any, or only what their worker owns.
    #[arg(long, value_enum, default_value_t = RoutingArg::Any, help_heading = "Clients")]
    pub(crate) routing: RoutingArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RoutingArg {
    /// All of it: with W workers, all but one in W requests go to another worker.
    Any,
    /// Only what the client's own worker owns.
    Owner,
}

#[derive(Debug, Args)]
pub(crate) struct TatpArgs {
    /// Number of subscribers.
    #[arg(long, value_name = "N", default_value_t = atrapos_workloads::tatp::SUBSCRIBERS_DEFAULT, help_heading = "Workload")]
    pub(crate) subscribers: u64,
    /// Transactions to run: `standard`, or one class alone (see below).
    #[arg(long, value_name = "M", default_value = "standard", help_heading = "Workload")]
    pub(crate) mix: String,
    /// How subscribers are chosen.
    #[arg(long, value_enum, default_value_t = KeysArg::Uniform, help_heading = "Workload")]
    pub(crate) keys: KeysArg,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeysArg {
    /// All alike.
    Uniform,
    /// By the specification's non-uniform distribution.
    Nurand,
}

#[derive(Debug, Args)]
pub(crate) struct MicroArgs {
    /// What transactions do with their rows.
    #[arg(long, value_enum, default_value_t = KindArg::Read, help_heading = "Workload")]
    pub(crate) kind: KindArg,
    /// Rows per transaction, all different.
    #[arg(long, value_name = "N", default_value_t = 10, help_heading = "Workload")]
    pub(crate) rows: usize,
    /// Rows per site; there is one site per worker.
    #[arg(long, value_name = "N", default_value_t = 10_000, help_heading = "Workload")]
    pub(crate) rows_per_site: u64,
    /// Probability that a transaction is multisite: one row of its own site, the others of all data.
    #[arg(long, value_name = "P", default_value_t = 0.0, help_heading = "Workload")]
    pub(crate) multisite: f64,
    /// Skew: choose rows by Zipf's distribution with this exponent; 0 chooses all alike.
    #[arg(long, value_name = "S", default_value_t = 0.0, help_heading = "Workload")]
    pub(crate) zipf: f64,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KindArg {
    /// Read them.
    Read,
    /// Add one to each row's counter.
    Update,
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
pub(crate) struct TopologyArgs {
    /// The machine to show: `live`, a description such as "pack:8 l3:2 core:5 pu:1", or a machine file (.toml).
    #[arg(long, value_name = "T", default_value = "live")]
    pub(crate) topology: String,
    /// Time round trips between the cores of this machine and derive its islands from them. For machines that lie, as most
    /// virtual ones do.
    #[arg(long)]
    pub(crate) measure: bool,
    /// Print one JSON object.
    #[arg(long, conflicts_with = "toml")]
    pub(crate) json: bool,
    /// Print a machine file, to be given to --topology later.
    #[arg(long)]
    pub(crate) toml: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
