//! The command line of `atrapos experiment`.
//!
//! Owns: names, defaults and help texts. Never: judges values beyond their syntax.

use std::path::PathBuf;

use atrapos_cli::args::AdaptationArgs;
use atrapos_experiments::scenario::Scenario;
use clap::{Args, Subcommand, ValueEnum};

use super::islands::IslandsCommand;

/// An experiment of one of the two kinds.
#[derive(Debug, Args)]
#[command(subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
pub(crate) struct ExperimentCommand {
    #[command(subcommand)]
    pub(crate) other: Option<OtherExperiment>,
    #[command(flatten)]
    pub(crate) adapting: ExperimentArgs,
}

/// An experiment in which no database adapts itself.
#[derive(Debug, Subcommand)]
pub(crate) enum OtherExperiment {
    #[command(flatten)]
    Islands(IslandsCommand),
    /// The controller on simulated machines, 2 to 96 cores: beside a fixed scheme and the best one, in many scenarios.
    ///
    /// Time is virtual: the result depends on the options alone, not on this machine.
    #[command(name = "adapt-world")]
    World(WorldArgs),
}

/// Options of adapt-world.
#[derive(Debug, Args)]
pub(crate) struct WorldArgs {
    /// Scenarios to run: names of the project's own, or files (docs/experiments.md has both) [default: all of the project's].
    #[arg(long = "scenario", value_name = "NAME|FILE", value_delimiter = ',')]
    pub(crate) scenarios: Vec<String>,
    /// Machines to simulate: two, 2x8, 4x6, 8x10, 12x8 [default: all].
    #[arg(long = "machine", value_name = "M", value_delimiter = ',')]
    pub(crate) machines: Vec<String>,
    /// Also print every decision of the controller.
    #[arg(long)]
    pub(crate) decisions: bool,
    /// Instead of the scenarios one by one, print what comes of all of them when each setting of the controller is halved and doubled; or each of
    /// these.
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        num_args = 0..,
        require_equals = true,
        conflicts_with = "decisions"
    )]
    pub(crate) sensitivity: Option<Vec<String>>,
    /// Seed of all random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Also write the result as one JSON object to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) adaptation: AdaptationArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ExperimentArgs {
    /// Experiment to run.
    #[arg(value_enum, value_name = "EXPERIMENT", required = true)]
    pub(crate) experiment: Option<Experiment>,
    /// Run only the side that keeps its scheme; of atrapos-fig6 only what it begins with, centralized and plp.
    #[arg(long = "static")]
    pub(crate) fixed: bool,
    /// Length of a phase, in seconds [default: such that everything takes about a minute].
    #[arg(long, value_name = "S", help_heading = "Measurement")]
    pub(crate) seconds_per_phase: Option<f64>,
    /// Number of runs, each with fresh databases, of all sides of an adapt- experiment, or of all rungs of atrapos-fig6. Medians count;
    /// ratios of sides are those of all runs together.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Measurement")]
    pub(crate) rounds: u32,
    /// Pairs of runs that monitoring-cost compares.
    #[arg(long, value_name = "N", default_value_t = 10, help_heading = "Measurement")]
    pub(crate) pairs: u32,
    #[command(flatten)]
    pub(crate) result: ResultArgs,
    /// TATP subscribers (and at most so many items of TPC-C), or rows of the table of repartition-cost or of each of atrapos-fig6 [default:
    /// 800000; 100000 for monitoring-cost and adapt-apart].
    #[arg(long, value_name = "N", help_heading = "Workload")]
    pub(crate) rows: Option<u64>,
    /// Sessions per worker: clients that live on the worker, ask for any data, and run one transaction after the other.
    #[arg(long, value_name = "N", default_value_t = 128, help_heading = "Workload")]
    pub(crate) sessions: usize,
    /// Workers, each a thread that owns a part of the data [default: one per usable core].
    #[arg(long, value_name = "N", help_heading = "Machine")]
    pub(crate) workers: Option<usize>,
    /// The machine to place workers on: `live`, a description such as "pack:2 l3:4 core:8 pu:1", or a machine file (.toml).
    #[arg(long, value_name = "T", default_value = "live", help_heading = "Machine")]
    pub(crate) topology: String,
    /// Leave threads where the kernel puts them.
    #[arg(long, help_heading = "Machine")]
    pub(crate) no_pin: bool,
    #[command(flatten)]
    pub(crate) adaptation: AdaptationArgs,
}

/// Options of the result of an experiment of either kind.
#[derive(Debug, Args)]
pub(crate) struct ResultArgs {
    /// Seed of all random choices.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Measurement")]
    pub(crate) seed: u64,
    /// Also write the result as one JSON object to this file.
    #[arg(long, value_name = "FILE", help_heading = "Measurement")]
    pub(crate) json: Option<PathBuf>,
    /// Also write what was measured as comma-separated values: the throughput over time, each cost, or every
    /// round of every point.
    #[arg(long, value_name = "FILE", help_heading = "Measurement")]
    pub(crate) csv: Option<PathBuf>,
    /// Also draw the result.
    #[arg(long, value_name = "FILE", help_heading = "Measurement")]
    pub(crate) svg: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Experiment {
    /// The class of the transactions changes.
    AdaptWorkload,
    /// Half of the requests go to a fifth of the data, then to a hundredth, then to another.
    AdaptSkew,
    /// A worker is lost, and comes back.
    AdaptFailure,
    /// A long calm, then frequent changes: how often the database looks.
    AdaptFrequency,
    /// Rows are used together in mirrored pairs (k with N-1-k).
    AdaptMirrored,
    /// Tables that may be placed by themselves, or must be together: one hot subscriber of TATP, and one warehouse of TPC-C.
    AdaptApart,
    /// The steps from PLP to ATraPos: shared system state, naive and better schemes.
    AtraposFig6,
    /// Cost of observing.
    MonitoringCost,
    /// Cost of splitting, merging and rearranging partitions.
    RepartitionCost,
}

impl Experiment {
    /// The scenario, for those in which a database adapts.
    pub(crate) fn scenario(self) -> Option<Scenario> {
        match self {
            Experiment::AdaptWorkload => Some(Scenario::Workload),
            Experiment::AdaptSkew => Some(Scenario::Skew),
            Experiment::AdaptFailure => Some(Scenario::Failure),
            Experiment::AdaptFrequency => Some(Scenario::Frequency),
            Experiment::AdaptMirrored => Some(Scenario::Mirrored),
            Experiment::AdaptApart
            | Experiment::AtraposFig6
            | Experiment::MonitoringCost
            | Experiment::RepartitionCost => None,
        }
    }

    /// Its name, as on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Experiment::AdaptWorkload => "adapt-workload",
            Experiment::AdaptSkew => "adapt-skew",
            Experiment::AdaptFailure => "adapt-failure",
            Experiment::AdaptFrequency => "adapt-frequency",
            Experiment::AdaptMirrored => "adapt-mirrored",
            Experiment::AdaptApart => "adapt-apart",
            Experiment::AtraposFig6 => "atrapos-fig6",
            Experiment::MonitoringCost => "monitoring-cost",
            Experiment::RepartitionCost => "repartition-cost",
        }
    }

    /// Seconds of a phase by default.
    pub(crate) fn phase_seconds(self) -> f64 {
        match self.scenario() {
            Some(scenario) => scenario.phase_seconds(),
            None if self == Experiment::MonitoringCost => 0.6,
            None if self == Experiment::AtraposFig6 => 8.0,
            None => 10.0,
        }
    }

    /// Rows or subscribers by default: the paper's, where they need not be loaded many times over.
    pub(crate) fn rows(self) -> u64 {
        if matches!(self, Experiment::MonitoringCost | Experiment::AdaptApart) { 100_000 } else { 800_000 }
    }
}
