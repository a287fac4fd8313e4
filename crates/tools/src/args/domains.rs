//! Arguments of `atrapos domains`.
//!
//! Owns: names, defaults and help texts. Never: judges values beyond their syntax.

use std::path::PathBuf;

use atrapos_cli::args::CommonArgs;
use clap::{Args, Subcommand, ValueEnum};

/// A step from structures to domains that run.
#[derive(Debug, Subcommand)]
pub(crate) enum DomainsCommand {
    /// Measure throughput over growing domains, per structure and operation mix, and find the sizes that are worth it.
    ///
    /// The size of a structure under a mix is the one before its throughput surely falls. Each size is loaded with long tasks on all
    /// workers of one domain; every reply and every record is checked. Sizes beyond the processing units are marked: they say little
    /// about a larger machine.
    #[command(mut_arg("seconds", |seconds| seconds.default_value("0.2").help("Length of a round, in seconds")))]
    Calibrate(CalibrateArgs),
    /// Compose domains for structures out of a machine's processing units, and show them.
    ///
    /// Sizes come from curves, or from the file of structures. The domains are as large as the sizes allow, the largest first; loads per
    /// worker are as equal as possible; and a domain spans as few islands as possible. The result says how far the fast search is from
    /// the best composition, or that this is not proven.
    Compose(ComposeArgs),
    /// Run a configuration: start its domains, load its structures, use all of them, and audit them.
    ///
    /// Clients use the structures in proportion to the loads that the configuration expects, so the domain that is slowest for its share
    /// limits all. With --adapt a controller changes the domains meanwhile. Exit status 1 means that an audit found something wrong.
    #[command(mut_arg("seconds", |seconds| seconds.default_value("2").help("Length of the run, in seconds")))]
    Run(RunConfigurationArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    /// A structure, as often as there are several [default: b-tree, fp-tree, bw-tree and hash-map].
    #[arg(long, value_name = "NAME", help_heading = "Workload")]
    pub(crate) structure: Vec<String>,
    /// An operation mix, as often as there are several: ycsb-a, ycsb-c, ycsb-d, insert-only or update-only [default: ycsb-c,
    /// update-only and insert-only].
    #[arg(long, value_name = "NAME", help_heading = "Workload")]
    pub(crate) mix: Vec<String>,
    /// Records that are loaded, of an 8-byte key and an 8-byte value.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, help_heading = "Workload")]
    pub(crate) records: u64,
    /// Exponent of Zipf's distribution by which records are chosen; 0 makes all alike.
    #[arg(long, value_name = "X", default_value_t = 0.99, help_heading = "Workload")]
    pub(crate) theta: f64,
    /// Numbers of workers to measure, ascending [default: up to the usable processing units]. A structure with one owner has the size 1
    /// alone.
    #[arg(long, value_name = "N,N,..", value_delimiter = ',', help_heading = "Measurement")]
    pub(crate) sizes: Vec<usize>,
    /// Rounds of each size.
    #[arg(long, value_name = "N", default_value_t = 5, help_heading = "Measurement")]
    pub(crate) rounds: u32,
    /// Confidence with which a decline must be one, and that of the interval of each size.
    #[arg(long, value_name = "X", default_value_t = 0.95, help_heading = "Measurement")]
    pub(crate) confidence: f64,
    /// Write the curves to this file, for `domains compose`.
    #[arg(long, value_name = "CURVES", help_heading = "Measurement")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Kinds of configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KindArg {
    /// Domains of one size: --domain-size, or the one that all structures have.
    Homogeneous,
    /// A domain of its own for each structure, or set of structures that must be together.
    Isolated,
    /// Domains of several sizes, shared by structures.
    Shared,
}

#[derive(Debug, Args)]
pub(crate) struct ComposeArgs {
    /// Curves, as `domains calibrate --output` writes them; not needed if all sizes are given.
    #[arg(value_name = "CURVES")]
    pub(crate) curves: Option<PathBuf>,
    /// A file of structures (.toml): [[structure]] tables with name, kind, mix, load and optionally size, with and isolated;
    /// [[size]] tables with kind, mix and workers.
    #[arg(long, value_name = "FILE", help_heading = "Structures")]
    pub(crate) structures: Option<PathBuf>,
    /// One more structure, as often as there are several: "name=orders,kind=b-tree,mix=ycsb-a,load=3,size=24,with=lines".
    #[arg(long, value_name = "KEY=VALUE,..", help_heading = "Structures")]
    pub(crate) structure: Vec<String>,
    /// A size in workers for all structures of a kind under a mix, as often as there are several: "b-tree/ycsb-c=48".
    #[arg(long, value_name = "KIND/MIX=N", help_heading = "Structures")]
    pub(crate) size: Vec<String>,
    /// The machine: `live`, a description such as "pack:8 core:24 pu:2", or a machine file (.toml).
    #[arg(long, value_name = "T", default_value = "live", help_heading = "Machine")]
    pub(crate) topology: String,
    /// Processing units that domains may have together; the others are left to clients [default: all that are usable].
    #[arg(long, value_name = "N", help_heading = "Machine")]
    pub(crate) workers: Option<u32>,
    /// The kind of configuration.
    #[arg(long, value_enum, default_value_t = KindArg::Shared, help_heading = "Composition")]
    pub(crate) kind: KindArg,
    /// The size of homogeneous domains, in workers [default: that of all structures, if it is the same].
    #[arg(long, value_name = "N", help_heading = "Composition")]
    pub(crate) domain_size: Option<u32>,
    /// Least load per worker of a domain that is not isolated, relative to the load per worker that there would be if all workers were
    /// equally loaded.
    #[arg(long, value_name = "X", default_value_t = 0.0, help_heading = "Composition")]
    pub(crate) load_min: f64,
    /// Greatest load per worker of a domain that is not isolated, relative to the same [default: none].
    #[arg(long, value_name = "X", help_heading = "Composition")]
    pub(crate) load_max: Option<f64>,
    /// Search for the best composition also if there are many structures.
    #[arg(long, help_heading = "Composition")]
    pub(crate) exact: bool,
    /// Steps of the exact search at most.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1_000_000_000,
        requires = "exact",
        help_heading = "Composition"
    )]
    pub(crate) exact_steps: u64,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the configuration to this file (.toml), for `domains run` and for programs.
    #[arg(long, value_name = "CONFIG")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RunConfigurationArgs {
    /// The configuration, as `domains compose --output` writes it.
    #[arg(value_name = "CONFIG")]
    pub(crate) configuration: PathBuf,
    /// Records that are loaded into each structure, of an 8-byte key and an 8-byte value.
    #[arg(long, value_name = "N", default_value_t = 100_000, help_heading = "Workload")]
    pub(crate) records: u64,
    /// The operation mix of all structures [default: that of each in the configuration].
    #[arg(long, value_name = "NAME", help_heading = "Workload")]
    pub(crate) mix: Option<String>,
    /// Exponent of Zipf's distribution by which records are chosen; 0 makes all alike.
    #[arg(long, value_name = "X", default_value_t = 0.99, help_heading = "Workload")]
    pub(crate) theta: f64,
    /// Client threads [default: one for each processing unit that no domain has, at least one].
    #[arg(long, value_name = "N", help_heading = "Workload")]
    pub(crate) clients: Option<usize>,
    /// Tasks of a client under way in each domain, and on one structure before it draws another, 1 to 64.
    #[arg(long, value_name = "N", default_value_t = atrapos_domains::BURST_DEFAULT, help_heading = "Workload")]
    pub(crate) burst: usize,
    /// Let a controller change the domains while clients go on: workers, structures, splits and merges. Every decision is shown.
    #[arg(long, help_heading = "Adaptation")]
    pub(crate) adapt: bool,
    /// Curves, as `domains calibrate --output` writes them: they say what sizes are worth. Without them structures are expected to gain from
    /// workers what their retries leave.
    #[arg(long, value_name = "CURVES", requires = "adapt", help_heading = "Adaptation")]
    pub(crate) curves: Option<PathBuf>,
    /// Length of an observation, in seconds.
    #[arg(long, value_name = "S", default_value_t = 0.1, requires = "adapt", help_heading = "Adaptation")]
    pub(crate) interval: f64,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}
