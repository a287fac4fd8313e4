//! The command line of the experiments of islands and of virtual domains: one command for each family of figures.
//!
//! Owns: names, defaults and help texts. Never: judges values beyond their syntax.

use atrapos_cli::args::{ChannelsArg, DurabilityArg};
use atrapos_domain_loads::{Design, Mix};
use atrapos_structures::Kind as Structure;
use atrapos_workloads::micro::Kind;
use clap::{Args, Subcommand, ValueEnum};

use crate::args::experiment::ResultArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum IslandsCommand {
    /// Throughput by the share of multisite transactions: Figures 11, 14, 25 and 28 of Islands, Figure 3 of ATraPos.
    #[command(name = "islands-multisite")]
    Multisite(MultisiteArgs),
    /// Time of a transaction by the number of its rows: Figures 17, 18 and 27 of Islands.
    #[command(name = "islands-rows")]
    Rows(RowsArgs),
    /// Throughput by skew: Figure 20 of Islands.
    #[command(name = "islands-skew")]
    Skew(SkewArgs),
    /// Throughput by the number of workers: Figure 19 of Islands, Figures 1, 2 and 5 of ATraPos.
    #[command(name = "islands-workers")]
    Workers(WorkersArgs),
    /// Throughput of TPC-B, Payment or New-Order by the share of remote work: Figures 8, 22, 23 and 24 of Islands.
    #[command(name = "islands-standard")]
    Standard(StandardArgs),
    /// Throughput of the transactions of TATP and TPC-C: Figure 8 of ATraPos.
    #[command(name = "islands-mixes")]
    Mixes(MixesArgs),
    /// Throughput of Payment by the placement of instances: Figure 6 of Islands.
    #[command(name = "islands-placement")]
    Placement(PlacementArgs),
    /// Messages of 256 bytes by channel: Figure 2 of Islands.
    #[command(name = "islands-channels")]
    Channels(ChannelsArgs),
    /// Increments of counters by who shares them: Figures 5 and 7 of Islands.
    #[command(name = "islands-counters")]
    Counters(IslandsArgs),
    /// Work and atomic operations of a transaction by what they are for: Figures 13, 15 and 26 of Islands, Figure 4 of ATraPos.
    ///
    /// Counts the instructions of the processes by callgrind, which takes minutes; they are no times.
    #[command(name = "islands-breakdown")]
    Breakdown(BreakdownArgs),
    /// Throughput of structures under loads of YCSB by design: the baselines of *Virtual domains*, and configured.
    #[command(name = "domains-designs", mut_arg("rounds", of_seven))]
    DomainsDesigns(DomainsDesignsArgs),
    /// Time of a client per delegated operation by the size of its bursts, beside direct use.
    #[command(name = "domains-burst", mut_arg("rounds", of_seven))]
    DomainsBurst(DomainsBurstArgs),
    /// Throughput of the same records in few or many structures: Figure 11 of *Virtual domains*.
    #[command(name = "domains-structures", mut_arg("rounds", of_seven))]
    DomainsStructures(DomainsStructuresArgs),
    /// Throughput of New-Order and Payment by the share of remote transactions, on structures without isolation by design, and on the
    /// engine with isolation: Figure 13 of *Virtual domains*, right.
    #[command(name = "domains-tpcc", mut_arg("rounds", of_seven))]
    DomainsTpcc(DomainsTpccArgs),
    /// The same by the number of threads: Figure 13 of *Virtual domains*, left.
    #[command(name = "domains-tpcc-threads", mut_arg("rounds", of_seven))]
    DomainsTpccThreads(DomainsTpccThreadsArgs),
}

/// The rounds of experiments of virtual domains: medians of seven, as in the paper.
fn of_seven(rounds: clap::Arg) -> clap::Arg {
    rounds.default_value("7")
}

/// Options of every experiment of islands or of virtual domains.
#[derive(Debug, Args)]
pub(crate) struct IslandsArgs {
    /// Length of the measurement of a point in a round, in seconds.
    #[arg(long, value_name = "S", default_value_t = 1.0, help_heading = "Measurement")]
    pub(crate) seconds: f64,
    /// Number of measurements of each point. The series take turns; the median of the rounds counts.
    #[arg(long, value_name = "N", default_value_t = 3, help_heading = "Measurement")]
    pub(crate) rounds: u32,
    #[command(flatten)]
    pub(crate) result: ResultArgs,
    /// Workers of each design in all [default: one per usable core]. More than there are cores are marked as oversubscribed.
    #[arg(long, value_name = "N", help_heading = "Machine")]
    pub(crate) workers: Option<usize>,
    /// Leave threads where the kernel puts them.
    #[arg(long, help_heading = "Machine")]
    pub(crate) no_pin: bool,
}

/// Options of the experiments whose points are benchmarks.
#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    /// The way of the messages between instances: shm (shared memory), unix (Unix sockets), pipe, tcp (on this machine) or all.
    #[arg(long, value_name = "C", default_value = "shm", help_heading = "Designs")]
    pub(crate) channel: ChannelsArg,
    /// When transactions are reported as committed.
    #[arg(long, value_enum, default_value_t = DurabilityArg::None, help_heading = "Designs")]
    pub(crate) durability: DurabilityArg,
    /// Length of the run before the measurement of a point, in seconds.
    #[arg(long, value_name = "S", default_value_t = 0.3, help_heading = "Measurement")]
    pub(crate) warmup: f64,
    #[command(flatten)]
    pub(crate) common: IslandsArgs,
}

/// Options of the experiments that compare designs.
#[derive(Debug, Args)]
pub(crate) struct DesignsArgs {
    /// Designs to compare: one database whose workers own their data, instances that divide the data (every number that divides the
    /// workers), and engines whose threads share it, in one process or inside instances.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "D,D",
        default_value = "database,instances,shared-2pl,shared-occ,plp",
        help_heading = "Designs"
    )]
    pub(crate) designs: Vec<DesignArg>,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DesignArg {
    /// Workers that own the data, in one process.
    Database,
    /// Databases that divide the data, each in a process of its own.
    Instances,
    /// Threads that share the data: two-phase locking with a central lock manager.
    #[value(name = "shared-2pl")]
    Shared2pl,
    /// Threads that share the data: validated when they commit.
    SharedOcc,
    /// Workers that own the data and share the system state.
    Plp,
    /// Instances with shared-2pl inside; in memory only.
    #[value(name = "instances-shared-2pl")]
    InstancesShared2pl,
    /// Instances with shared-occ inside; in memory only.
    InstancesSharedOcc,
}

/// The microbenchmark.
#[derive(Debug, Args)]
#[command(next_help_heading = "Workload")]
pub(crate) struct MicroArgs {
    /// Operation of transactions on their rows.
    #[arg(long, value_enum, default_value_t = Kind::Read)]
    pub(crate) kind: Kind,
    /// Rows per site; there is one site per worker.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) rows_per_site: u64,
    #[command(flatten)]
    pub(crate) designs: DesignsArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Workload")]
pub(crate) struct MultisiteArgs {
    /// Rows per transaction.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) rows: u64,
    /// Shares of multisite transactions to measure at, from 0 to 1.
    #[arg(long, value_name = "P,P", value_delimiter = ',', default_value = "0,0.2,0.4,0.6,0.8,1")]
    pub(crate) at: Vec<f64>,
    #[command(flatten)]
    pub(crate) micro: MicroArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Workload")]
pub(crate) struct RowsArgs {
    /// Probability that a transaction is multisite: 0 for Figure 17 (local), 1 for Figure 18.
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub(crate) multisite: f64,
    /// Numbers of rows to measure at.
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "2,10,20,40,60,80,100")]
    pub(crate) at: Vec<u64>,
    #[command(flatten)]
    pub(crate) micro: MicroArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Workload")]
pub(crate) struct SkewArgs {
    /// Rows per transaction.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) rows: u64,
    /// Probability that a transaction is multisite.
    #[arg(long, value_name = "P", default_value_t = 0.2)]
    pub(crate) multisite: f64,
    /// Exponents of Zipf's distribution to measure at.
    #[arg(long, value_name = "S,S", value_delimiter = ',', default_value = "0,0.25,0.5,0.75,1")]
    pub(crate) at: Vec<f64>,
    #[command(flatten)]
    pub(crate) micro: MicroArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Workload")]
pub(crate) struct WorkersArgs {
    /// Rows per transaction: 1 for the figures of ATraPos, 10 for that of Islands.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) rows: u64,
    /// Probability that a transaction is multisite: 0 for the figures of ATraPos, 0.2 for that of Islands.
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub(crate) multisite: f64,
    #[command(flatten)]
    pub(crate) micro: MicroArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StandardArg {
    /// TPC-B: the account is of another branch.
    Tpcb,
    /// The payments of TPC-C: the customer is of another warehouse.
    Payment,
    /// The new orders of TPC-C: order lines are supplied by another warehouse.
    NewOrder,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Workload")]
pub(crate) struct StandardArgs {
    /// Transactions to run.
    #[arg(value_enum, value_name = "WORKLOAD", help_heading = None)]
    pub(crate) workload: StandardArg,
    /// Branches or warehouses [default: one per worker].
    #[arg(long, value_name = "N")]
    pub(crate) scale: Option<u64>,
    /// Shares of remote transactions (of new orders: of remote order lines) to measure at, from 0 to 1; the standard ones are 0.15,
    /// 0.15 and 0.01 [default: 0, the standard one, 0.25, 0.5, 0.75, 1].
    #[arg(long, value_name = "P,P", value_delimiter = ',')]
    pub(crate) at: Vec<f64>,
    #[command(flatten)]
    pub(crate) designs: DesignsArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Workload")]
pub(crate) struct MixesArgs {
    /// Number of TATP subscribers.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) subscribers: u64,
    /// Warehouses of TPC-C [default: one per worker].
    #[arg(long, value_name = "N")]
    pub(crate) scale: Option<u64>,
    #[command(flatten)]
    pub(crate) designs: DesignsArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Workload")]
pub(crate) struct PlacementArgs {
    /// Warehouses [default: one per worker].
    #[arg(long, value_name = "N")]
    pub(crate) scale: Option<u64>,
    /// Share of remote payments.
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub(crate) remote: f64,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Workload")]
pub(crate) struct ChannelsArgs {
    /// Messages that are sent before the sender flushes.
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,16")]
    pub(crate) batch: Vec<usize>,
    #[command(flatten)]
    pub(crate) common: IslandsArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Workload")]
pub(crate) struct BreakdownArgs {
    /// Rows per transaction.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) rows: u64,
    /// Shares of multisite transactions to count at, from 0 to 1.
    #[arg(long, value_name = "P,P", value_delimiter = ',', default_value = "0,0.5,1")]
    pub(crate) at: Vec<f64>,
    #[command(flatten)]
    pub(crate) micro: MicroArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Workload")]
pub(crate) struct DomainsDesignsArgs {
    /// Structures, by the names that `bench domains --structure` takes.
    #[arg(
        long,
        value_name = "NAME,NAME",
        value_delimiter = ',',
        default_value = "b-tree,fp-tree,bw-tree,hash-map"
    )]
    pub(crate) structures: Vec<Structure>,
    /// Operation mixes, by the names that `bench domains --workload` takes.
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',', default_value = "ycsb-a,ycsb-c,ycsb-d")]
    pub(crate) workloads: Vec<Mix>,
    /// Records that are loaded into each structure.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) records: u64,
    #[command(flatten)]
    pub(crate) common: IslandsArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Workload")]
pub(crate) struct DomainsBurstArgs {
    /// Structures, by the names that `bench domains --structure` takes.
    #[arg(
        long,
        value_name = "NAME,NAME",
        value_delimiter = ',',
        default_value = "b-tree,fp-tree,bw-tree,hash-map,owned-tree,owned-hash-map"
    )]
    pub(crate) structures: Vec<Structure>,
    /// Operation mix, by the names that `bench domains --workload` takes.
    #[arg(long, value_name = "NAME", default_value = "ycsb-c")]
    pub(crate) workload: Mix,
    /// Sizes of bursts to measure at, from 1 to 64.
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,2,4,8,16,32,64")]
    pub(crate) at: Vec<usize>,
    /// Records that are loaded into each structure.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) records: u64,
    #[command(flatten)]
    pub(crate) common: IslandsArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Workload")]
pub(crate) struct DomainsStructuresArgs {
    /// Kinds of structures, by the names that `bench domains-structures --structure` takes.
    #[arg(
        long,
        value_name = "NAME,NAME",
        value_delimiter = ',',
        default_value = "b-tree,fp-tree,hash-map,owned-tree"
    )]
    pub(crate) structures: Vec<Structure>,
    /// Operation mix, by the names that `bench domains-structures --workload` takes.
    #[arg(long, value_name = "NAME", default_value = "ycsb-c")]
    pub(crate) workload: Mix,
    /// Designs, by the names that `bench domains-structures --design` takes. Structures with one owner have points where domains have one worker.
    #[arg(
        long,
        value_name = "NAME,NAME",
        value_delimiter = ',',
        default_value = "configured,se,se-numa,sn-thread"
    )]
    pub(crate) designs: Vec<Design>,
    /// Numbers of structures to measure at.
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,16,64,256,1024")]
    pub(crate) at: Vec<usize>,
    /// Records of all structures together.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) records: u64,
    #[command(flatten)]
    pub(crate) common: IslandsArgs,
}

/// The tables of New-Order and Payment.
#[derive(Debug, Args)]
#[command(next_help_heading = "Workload")]
pub(crate) struct DomainsTablesArgs {
    /// Structures of the tables, by the names that `bench domains-tpcc --structure` takes.
    #[arg(
        long,
        value_name = "NAME,NAME",
        value_delimiter = ',',
        default_value = "fp-tree,bw-tree,owned-hash-map"
    )]
    pub(crate) structures: Vec<Structure>,
    /// Number of warehouses.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) warehouses: u64,
    /// Number of items.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) items: u64,
    /// Customers per district.
    #[arg(long, value_name = "N", default_value_t = 3_000)]
    pub(crate) customers: u64,
    #[command(flatten)]
    pub(crate) common: IslandsArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Workload")]
pub(crate) struct DomainsTpccArgs {
    /// Shares of remote transactions to measure at.
    #[arg(long, value_name = "P,P", value_delimiter = ',', default_value = "0,0.01,0.25,0.5,0.75")]
    pub(crate) at: Vec<f64>,
    #[command(flatten)]
    pub(crate) tables: DomainsTablesArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Workload")]
pub(crate) struct DomainsTpccThreadsArgs {
    /// Share of remote transactions.
    #[arg(long, value_name = "P", default_value_t = 0.01)]
    pub(crate) remote: f64,
    /// Numbers of threads to measure at, clients and workers together [default: 2, 4, 8, .. up to --workers].
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    pub(crate) at: Vec<usize>,
    #[command(flatten)]
    pub(crate) tables: DomainsTablesArgs,
}

impl IslandsCommand {
    /// The options that all have.
    pub(crate) fn common(&self) -> &IslandsArgs {
        let designs = match self {
            IslandsCommand::Multisite(args) => &args.micro.designs,
            IslandsCommand::Rows(args) => &args.micro.designs,
            IslandsCommand::Skew(args) => &args.micro.designs,
            IslandsCommand::Workers(args) => &args.micro.designs,
            IslandsCommand::Breakdown(args) => &args.micro.designs,
            IslandsCommand::Standard(args) => &args.designs,
            IslandsCommand::Mixes(args) => &args.designs,
            IslandsCommand::Placement(args) => return &args.runs.common,
            IslandsCommand::Channels(args) => return &args.common,
            IslandsCommand::Counters(common) => return common,
            IslandsCommand::DomainsDesigns(args) => return &args.common,
            IslandsCommand::DomainsBurst(args) => return &args.common,
            IslandsCommand::DomainsStructures(args) => return &args.common,
            IslandsCommand::DomainsTpcc(args) => return &args.tables.common,
            IslandsCommand::DomainsTpccThreads(args) => return &args.tables.common,
        };
        &designs.runs.common
    }
}
