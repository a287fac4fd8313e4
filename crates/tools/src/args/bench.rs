//! The command line of the benchmarks of structures and domains: `atrapos bench domains`, and others of such names.
//!
//! Owns: names, defaults and help texts. Never: judges values beyond their syntax.

use std::path::PathBuf;

use atrapos_cli::args::CommonArgs;
use clap::{Args, Subcommand};

/// Benchmark to run.
#[derive(Debug, Subcommand)]
pub(crate) enum StructureBench {
    /// A data structure under a load of YCSB: used directly by all threads, or delegated to virtual domains in bursts.
    ///
    /// Rounds alternate between what is compared: a design that delegates and direct use by the same clients, all designs, or bursts of
    /// several sizes. The medians count. In every design each reply is checked, and after the rounds every record.
    #[command(mut_arg("seconds", |seconds| seconds.default_value("0.5").help("Length of a round, in seconds")))]
    Domains(Box<DomainsBenchArgs>),
    /// All designs of several structures and workloads: what the design configured has of the best one, and what the worst rigid one has.
    ///
    /// Designs that come to the same threads are measured once. The design configured is the best of half of the rounds; the other half judges
    /// all. Every reply is checked, and after the rounds every record.
    #[command(name = "domains-designs", mut_arg("seconds", |seconds| seconds.default_value("0.3").help("Length of a round, in seconds")))]
    DomainsDesigns(Box<DomainsDesignsBenchArgs>),
    /// The same records in few or many structures, which virtual domains have in turn, or which are used as in the baselines of *Virtual domains*.
    ///
    /// A client draws the structure of its next operations, as many as a burst has. Every reply is checked, and after each round every record.
    #[command(name = "domains-structures", mut_arg("seconds", |seconds| seconds.default_value("1").help("Length of a round, in seconds")))]
    DomainsStructures(Box<DomainsStructuresBenchArgs>),
    /// The time without service while domains change: how long a client that calls all the time waits for a reply at most.
    ///
    /// A structure moves between two domains of one worker; one of them grows, is split, merged and shrinks again. Without any change the same
    /// times say what the machine itself takes away.
    #[command(name = "domains-service")]
    DomainsService(DomainsServiceBenchArgs),
    /// New-Order and Payment of TPC-C on tables that are structures, used directly by all threads, or delegated to virtual domains.
    ///
    /// Statements are tasks, and nothing isolates transactions from each other, as in *Virtual domains*: the same with full isolation is `bench
    /// tpcc --mix new-order-payment`. What holds because statements are atomic is audited: orders are numbered without gaps and
    /// complete, and all payments and stock add up.
    #[command(name = "domains-tpcc", mut_arg("seconds", |seconds| seconds.default_value("1").help("Length of a round, in seconds")))]
    DomainsTpcc(Box<DomainsTpccBenchArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct DomainsServiceBenchArgs {
    /// Rounds, each of six changes.
    #[arg(long, value_name = "N", default_value_t = 200, help_heading = "Measurement")]
    pub(crate) rounds: u32,
    /// Time between two changes, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 2.0, help_heading = "Measurement")]
    pub(crate) pause: f64,
    /// The machine: `live`, a description such as "pack:8 core:24 pu:2", or a machine file (.toml).
    #[arg(long, value_name = "T", default_value = "live", help_heading = "Machine")]
    pub(crate) topology: String,
    /// Leave threads where the kernel puts them.
    #[arg(long, help_heading = "Machine")]
    pub(crate) no_pin: bool,
    /// Also write the result as one JSON object to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// Clients and workers of virtual domains.
#[derive(Debug, Args)]
pub(crate) struct DelegationArgs {
    /// Tasks of a client under way in each domain, 1 to 64.
    #[arg(long, value_name = "N", default_value_t = atrapos_domains::BURST_DEFAULT, help_heading = "Design")]
    pub(crate) burst: usize,
    /// Client threads that delegate [default: half of the processing units, at least one]. Designs without delegation have as many
    /// threads as clients and workers together.
    #[arg(long, value_name = "N", help_heading = "Design")]
    pub(crate) clients: Option<usize>,
    /// Workers of all domains [default: one for each processing unit that clients leave, at least one].
    #[arg(long, value_name = "N", help_heading = "Design")]
    pub(crate) workers: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct DomainsTpccBenchArgs {
    /// The structure of every table: b-tree, fp-tree, fp-tree-fallback, bw-tree, hash-map, dashmap, papaya, congee, skiplist, owned-tree or
    /// owned-hash-map.
    #[arg(long, value_name = "NAME", default_value = "fp-tree", help_heading = "Workload")]
    pub(crate) structure: String,
    /// Number of warehouses; about 200 MB each.
    #[arg(long, value_name = "N", default_value_t = 8, help_heading = "Workload")]
    pub(crate) warehouses: u64,
    /// Share of the transactions that access a second warehouse, from 0 to 1.
    #[arg(long, value_name = "P", default_value_t = 0.01, help_heading = "Workload")]
    pub(crate) remote: f64,
    /// Number of items. Other numbers than the default are not those of the specification.
    #[arg(long, value_name = "N", default_value_t = 100_000, help_heading = "Workload")]
    pub(crate) items: u64,
    /// Customers per district, and orders at first. Other numbers than the default are not those of the specification.
    #[arg(long, value_name = "N", default_value_t = 3_000, help_heading = "Workload")]
    pub(crate) customers: u64,
    /// Rounds, one after the other on the same tables; their median counts.
    #[arg(long, value_name = "N", default_value_t = 7, help_heading = "Measurement")]
    pub(crate) rounds: u32,
    /// The design: se (threads wherever the system runs them), se-numa (pinned, memory of all nodes), sn-numa (a domain per memory node),
    /// sn-thread (domains of one worker), or configured (domains of --domain-size).
    #[arg(long, value_name = "NAME", default_value = "sn-thread", help_heading = "Design")]
    pub(crate) design: String,
    /// Have threads of the parts of sn-numa or sn-thread use the tables of all parts directly, instead of clients that delegate: the baseline of
    /// Figure 13.
    #[arg(long, help_heading = "Design")]
    pub(crate) direct: bool,
    /// Transactions that a client runs together, their statements phase by phase.
    #[arg(long, value_name = "N", default_value_t = 8, help_heading = "Design")]
    pub(crate) group: usize,
    #[command(flatten)]
    pub(crate) delegation: DelegationArgs,
    /// Workers of each domain of the design configured.
    #[arg(long, value_name = "N", help_heading = "Design")]
    pub(crate) domain_size: Option<usize>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DomainsStructuresBenchArgs {
    /// The kind of all structures, by the names that `bench domains --structure` takes.
    #[arg(long, value_name = "NAME", default_value = "hash-map", help_heading = "Workload")]
    pub(crate) structure: String,
    /// The operations: ycsb-a, ycsb-c, ycsb-d, insert-only or update-only.
    #[arg(long, value_name = "NAME", default_value = "ycsb-c", help_heading = "Workload")]
    pub(crate) workload: String,
    /// Number of structures.
    #[arg(long, value_name = "N", default_value_t = 1_000, help_heading = "Workload")]
    pub(crate) structures: usize,
    /// Records of all structures together, of an 8-byte key and an 8-byte value.
    #[arg(long, value_name = "N", default_value_t = 10_000_000, help_heading = "Workload")]
    pub(crate) records: u64,
    /// Exponent of Zipf's distribution by which the records of a structure are chosen; 0 makes all alike. Structures are chosen alike.
    #[arg(long, value_name = "X", default_value_t = 0.0, help_heading = "Workload")]
    pub(crate) theta: f64,
    /// Rounds, each on structures that were loaded anew; their median counts.
    #[arg(long, value_name = "N", default_value_t = 7, help_heading = "Measurement")]
    pub(crate) rounds: u32,
    /// The design: se (threads wherever the system runs them use all structures), se-numa (pinned, memory of all nodes), sn-numa (a domain per
    /// memory node, with a part of every structure), sn-thread (domains of one worker, with a part of every structure), or configured (domains that
    /// have whole structures in turn).
    #[arg(long, value_name = "NAME", default_value = "configured", help_heading = "Design")]
    pub(crate) design: String,
    /// Number of domains of the design configured, which have the structures in turn [default: one for each worker].
    #[arg(long, value_name = "N", help_heading = "Design")]
    pub(crate) domains: Option<usize>,
    #[command(flatten)]
    pub(crate) delegation: DelegationArgs,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DomainsDesignsBenchArgs {
    /// Structures, by the names that `bench domains --structure` takes [default: all].
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', help_heading = "Workload")]
    pub(crate) structures: Vec<String>,
    /// Operation mixes.
    #[arg(
        long,
        value_name = "NAME,..",
        value_delimiter = ',',
        default_value = "ycsb-a,ycsb-c,ycsb-d",
        help_heading = "Workload"
    )]
    pub(crate) workloads: Vec<String>,
    /// Records that are loaded, of an 8-byte key and an 8-byte value.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, help_heading = "Workload")]
    pub(crate) records: u64,
    /// Exponent of Zipf's distribution by which records are chosen; 0 makes all alike.
    #[arg(long, value_name = "X", default_value_t = 0.99, help_heading = "Workload")]
    pub(crate) theta: f64,
    /// Rounds that choose, and as many others that judge.
    #[arg(long, value_name = "N", default_value_t = 7, help_heading = "Measurement")]
    pub(crate) rounds: u32,
    #[command(flatten)]
    pub(crate) delegation: DelegationArgs,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DomainsBenchArgs {
    /// The structure: b-tree, fp-tree, fp-tree-fallback, bw-tree, hash-map, dashmap, papaya, congee, skiplist, owned-tree or owned-hash-map.
    #[arg(long, value_name = "NAME", default_value = "b-tree", help_heading = "Workload")]
    pub(crate) structure: String,
    /// The operations: ycsb-a (half reads, half updates), ycsb-c (reads), ycsb-d (5% insertions, not of the latest), insert-only or
    /// update-only.
    #[arg(long, value_name = "NAME", default_value = "ycsb-c", help_heading = "Workload")]
    pub(crate) workload: String,
    /// Records that are loaded, of an 8-byte key and an 8-byte value.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, help_heading = "Workload")]
    pub(crate) records: u64,
    /// Exponent of Zipf's distribution by which records are chosen; 0 makes all alike.
    #[arg(long, value_name = "X", default_value_t = 0.99, help_heading = "Workload")]
    pub(crate) theta: f64,
    /// Operations of each client in a round, instead of a length of time.
    #[arg(long, value_name = "N", conflicts_with = "seconds", help_heading = "Measurement")]
    pub(crate) operations: Option<u64>,
    /// Rounds; their median counts.
    #[arg(long, value_name = "N", default_value_t = 7, help_heading = "Measurement")]
    pub(crate) rounds: u32,
    /// The design: se (threads wherever the system runs them), se-numa (pinned, memory of all nodes), sn-numa (a domain per memory node),
    /// sn-thread (domains of one worker), or configured (domains of --domain-size, or the best arrangement found by measuring).
    #[arg(long, value_name = "NAME", default_value = "sn-thread", help_heading = "Design")]
    pub(crate) design: String,
    /// Compare all designs.
    #[arg(long, conflicts_with_all = ["design", "burst_ladder"], help_heading = "Design")]
    pub(crate) all_designs: bool,
    /// Compare bursts of 1, 2, 4, 8, 16, 32 and 64 tasks, and direct use.
    #[arg(long, conflicts_with = "burst", help_heading = "Design")]
    pub(crate) burst_ladder: bool,
    /// Compare the design with direct use by all threads, and with the most that its workers and its clients could do: one thread that makes
    /// operations together without messages, and one that draws them and does nothing else.
    #[arg(long, conflicts_with_all = ["all_designs", "burst_ladder", "alone"], help_heading = "Design")]
    pub(crate) bound: bool,
    /// Run the operations of a burst one after the other, without making their look-ups together.
    #[arg(long, help_heading = "Design")]
    pub(crate) ungrouped: bool,
    /// Measure the design alone, not beside direct use by its clients.
    #[arg(long, conflicts_with_all = ["all_designs", "burst_ladder"], help_heading = "Design")]
    pub(crate) alone: bool,
    #[command(flatten)]
    pub(crate) delegation: DelegationArgs,
    /// Workers of each domain of the design configured [default: found by measuring].
    #[arg(long, value_name = "N", help_heading = "Design")]
    pub(crate) domain_size: Option<usize>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}
