//! The command line: what can be asked for, with the help that explains it.
//!
//! Owns: names, defaults and help texts. Never: judges values beyond their syntax, so that all refusals that need knowledge
//! of the engine or the machine are made in one voice, elsewhere.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// An in-memory, durable, serializable transaction engine that adapts itself to hardware islands.
///
/// This command measures it on your machine, shows what your machine looks like to it, looks into database directories and
/// copies them, and tries to make the engine break its promises.
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
  atrapos bench tpcc --warehouses 8 --remote 0
                                             TPC-C on eight warehouses, nothing of it across them
  atrapos bench micro --kind update --multisite 0.2
                                             10-row updates, one in five across workers
  atrapos bench tatp --durability none       in memory only: what durability costs is the difference
  atrapos bench ycsb --updates 0.5 --ops-per-txn 16
                                             16 reads and updates of popular rows in each transaction
  atrapos bench raw                          what this machine can do without any engine
  atrapos experiment adapt-skew --svg skew.svg
                                             what a database makes of sudden skew, beside one that keeps its scheme
  atrapos topology --measure                 the islands of this machine, timed rather than believed
  atrapos plan --topology 8x10.toml --trace FILE
                                             which worker should own what, for recorded statistics
  atrapos explain tpcc new-order             what a transaction accesses, in which order, and where it synchronizes
  atrapos inspect DIR                        what a database directory holds, every checksum verified
  atrapos backup DIR TO                      copy a database, also while it is in use; open the copy to restore it
  atrapos torture --kills 200                kill a working database 200 times, and check it each time it comes back
  atrapos torture --power-cuts 20            the same with power cuts, on a file system made for it (as root)

Exit status: 0 on success, 1 when a run or its audit failed or a database is damaged, 2 when what was asked for makes no \
sense.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Load a database, run transactions on it, audit it, and report what came out.
    Bench {
        #[command(subcommand)]
        benchmark: BenchCommand,
    },
    /// Show how a database adapts itself, beside one that does not, or what that costs.
    ///
    /// Reproduces the experiments of the ATraPos paper at the size of this machine.
    Experiment(crate::experiment::args::ExperimentArgs),
    /// Show the machine: nested islands of cores, their distances, and where each piece of knowledge comes from.
    Topology(TopologyArgs),
    /// Show which partitions there should be, and on which workers, for recorded statistics.
    ///
    /// Prints what today's scheme and the proposed one cost, who owns what in each, and the steps from the one to the other.
    /// Slices are the sub-partitions of a table, counted in key order. Nothing is changed.
    Plan(PlanArgs),
    /// Show what transactions do: the flow graph of a transaction class, recorded from its procedure.
    ///
    /// The boxes are actions: R reads a row, S scans a range, U updates, I inserts, D deletes. Those of one phase run together;
    /// an arrow says that a key of the second action comes from the first. Synchronization points, where actions exchange data,
    /// are marked at the end of their phase, with the bytes exchanged by one transaction on average. The transactions run on a small
    /// database in memory, with arguments as a benchmark chooses them.
    #[command(after_help = "\
Classes of tatp: get-subscriber-data, get-new-destination, get-access-data, update-subscriber-data, update-location, \
insert-call-forwarding, delete-call-forwarding.\nClasses of tpcc: new-order, payment, order-status, delivery, stock-level.\n\
Classes of micro: read-local, read-multisite, update-local, update-multisite.\nClasses of tpcb: account-update, account-update-remote.\n\
Classes of ycsb: read, update, insert, scan, read-modify-write; of several operations: read-only, read-write.\n\
Classes of smallbank: balance, deposit-checking, transact-savings, amalgamate, write-check, send-payment.")]
    Explain(ExplainArgs),
    /// Show what a database directory holds, and verify every checksum in it.
    ///
    /// Nothing is locked and nothing is written, so it works beside a running database, too. Exit status 1 means that
    /// something is damaged, 2 that there is no database.
    Inspect(InspectArgs),
    /// Copy a database, also while another process runs it.
    ///
    /// The copy is verified as it is made, and holds everything that was durable when the backup began. To restore it, open
    /// it. Exit status 1 means that the original is damaged or kept changing, 2 that there is no database or no room for the
    /// copy.
    Backup(BackupArgs),
    /// Kill a working database again and again, and check each time it comes back that it kept its promises.
    ///
    /// A child process runs TATP, transactions that write rows on several workers at once, readers, transfers and
    /// checkpoints, until it is killed at a random moment (now and then it is asked to end). The next child opens the
    /// directory with another number of workers and must find everything that was acknowledged to anybody, nothing by
    /// halves, and nothing that was never committed. A file outside the database remembers what was acknowledged.
    Torture(TortureArgs),
    /// What `torture` starts and kills.
    #[command(hide = true)]
    TortureChild(TortureChildArgs),
    /// What `torture --history` starts and kills.
    #[command(hide = true)]
    TortureHistoryChild(TortureHistoryChildArgs),
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
    /// TPC-C: five transactions of a wholesale supplier with warehouses.
    ///
    /// One New-Order in a hundred is rolled back, as the specification wants it. Such an expected failure is a complete
    /// transaction and counts in the throughput and in the new orders per minute, which are not called tpmC, because that takes
    /// more than a program. New orders stay: count on about 1 KiB of memory for each.
    #[command(after_help = "\
Mixes: standard (all five, 45/43/4/4/4 in a hundred), new-order, payment, order-status, delivery, stock-level.")]
    Tpcc(TpccArgs),
    /// Read or update a few rows of 250 bytes, on one worker or on several.
    Micro(MicroArgs),
    /// TPC-B: a bank. Each transaction updates an account, a teller and a branch, and appends to a history.
    ///
    /// It runs where the teller's branch is; a share of the accounts is of other branches, and maybe of other workers. The history
    /// grows by 50 bytes of key and row per transaction, besides what the tree adds.
    Tpcb(crate::bench::tpcb::TpcbArgs),
    /// YCSB: reads, updates, insertions and scans of single records, or several of them per transaction.
    #[command(after_help = "\
Mixes: a (half reads, half updates), b (95% reads, 5% updates), c (reads), d (95% reads of the newest records, 5% insertions), \
e (95% scans of up to 100 records, 5% insertions), f (half reads, half read-modify-writes).")]
    Ycsb(crate::bench::ycsb::YcsbArgs),
    /// SmallBank: six short transactions on the accounts of customers of whom some are very popular.
    ///
    /// What an account does not cover is an expected failure, as in TATP: a complete transaction that has changed nothing.
    #[command(after_help = "\
Mixes: standard (all six, 15/15/15/15/15/25 in a hundred), balance, deposit-checking, transact-savings, amalgamate, write-check, \
send-payment.")]
    Smallbank(crate::bench::smallbank::SmallBankArgs),
    /// The limits of the machine: bare lookups, messages and increments, without any engine around them.
    Raw(RawArgs),
    /// How long a database takes to come back after its process has ended, compared with making it anew without logging.
    Recovery(RecoveryArgs),
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
    /// Where all random choices follow from.
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
    /// Sessions per worker: clients that live on the worker and run one transaction after the other [default: 64; with
    /// synchronous durability 256 to 2048, the more the slower the disk].
    #[arg(long, value_name = "N", conflicts_with = "clients", help_heading = "Clients")]
    pub(crate) sessions: Option<usize>,
    /// Run from N client threads outside the engine instead of sessions on the workers.
    #[arg(long, value_name = "N", help_heading = "Clients")]
    pub(crate) clients: Option<usize>,
    /// Which data clients choose: any, or only what their worker owns; the database then keeps its scheme.
    #[arg(long, value_enum, default_value_t = RoutingArg::Any, help_heading = "Clients")]
    pub(crate) routing: RoutingArg,
    #[command(flatten)]
    pub(crate) durability: DurabilityArgs,
    /// Keep the scheme the database begins with, and observe nothing.
    #[arg(long = "static", conflicts_with = "record", help_heading = "Adaptation")]
    pub(crate) fixed: bool,
    /// Observe without changing anything, and write what was observed to this file, for `atrapos plan`.
    #[arg(long, value_name = "FILE", help_heading = "Adaptation")]
    pub(crate) record: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) adaptation: AdaptationArgs,
}

/// How a database adapts itself. What is not given is the engine's default.
#[derive(Debug, Args)]
pub(crate) struct AdaptationArgs {
    /// The shortest time between two looks at what was observed, in seconds [default: 1]. The longest is eight times that.
    #[arg(long, value_name = "S", help_heading = "Adaptation")]
    pub(crate) interval: Option<f64>,
    /// By which share the throughput must change for the scheme to be thought over [default: 0.1].
    #[arg(long, value_name = "X", help_heading = "Adaptation")]
    pub(crate) threshold: Option<f64>,
    /// Sub-partitions per partition: the unit in which load is observed [default: 10].
    #[arg(long, value_name = "N", help_heading = "Adaptation")]
    pub(crate) sub_partitions: Option<usize>,
    /// Record one event in so many, on average [default: 64].
    #[arg(long, value_name = "N", help_heading = "Adaptation")]
    pub(crate) sample_every: Option<u32>,
}

/// When transactions are reported as committed, and where the database is kept.
#[derive(Debug, Args)]
pub(crate) struct DurabilityArgs {
    /// When clients are told that their transactions committed.
    #[arg(long, value_enum, default_value_t = DurabilityArg::Synchronous, help_heading = "Durability")]
    pub(crate) durability: DurabilityArg,
    /// With relaxed durability: milliseconds of committed transactions that a crash may lose [default: 100].
    #[arg(long, value_name = "N", help_heading = "Durability")]
    pub(crate) max_loss_ms: Option<u64>,
    /// The directory to make the database in, and keep it: empty, or not there yet [default: a temporary one].
    #[arg(long, value_name = "DIR", help_heading = "Durability")]
    pub(crate) dir: Option<PathBuf>,
    /// Make checkpoints one after the other while it measures, to see what they cost.
    #[arg(long, help_heading = "Durability")]
    pub(crate) checkpoint_during: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DurabilityArg {
    /// When they are certain to survive a crash of process and machine.
    Synchronous,
    /// At once: a crash may lose the last ones, as many as --max-loss-ms says.
    Relaxed,
    /// At once, and nothing is written: the database lives in memory.
    None,
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
pub(crate) struct TpccArgs {
    /// Number of warehouses; about 100 MB each.
    #[arg(long, value_name = "N", default_value_t = atrapos_workloads::tpcc::WAREHOUSES_DEFAULT, help_heading = "Workload")]
    pub(crate) warehouses: u64,
    /// Transactions to run: `standard`, or one class alone (see below).
    #[arg(long, value_name = "M", default_value = "standard", help_heading = "Workload")]
    pub(crate) mix: String,
    /// Share of remote work, of payments and of order lines alike, from 0 (all of a transaction is at one warehouse) to 1.
    #[arg(long, value_name = "P", conflicts_with_all = ["remote_payment", "remote_lines"], help_heading = "Workload")]
    pub(crate) remote: Option<f64>,
    /// Share of payments by customers of other warehouses [default: 0.15].
    #[arg(long, value_name = "P", help_heading = "Workload")]
    pub(crate) remote_payment: Option<f64>,
    /// Share of order lines supplied by other warehouses [default: 0.01].
    #[arg(long, value_name = "P", help_heading = "Workload")]
    pub(crate) remote_lines: Option<f64>,
    /// Whether clients wait for their deliveries.
    #[arg(long, value_enum, default_value_t = DeliveryArg::Interactive, help_heading = "Workload")]
    pub(crate) delivery: DeliveryArg,
    /// Clients are terminals that people sit at: each belongs to a warehouse, keys in its inputs and thinks, as the specification
    /// says [default sessions then: ten terminals per warehouse].
    #[arg(long, help_heading = "Workload")]
    pub(crate) think: bool,
    /// Number of items. Other numbers than the default are not those of the specification.
    #[arg(long, value_name = "N", default_value_t = atrapos_workloads::tpcc::generator::ITEMS.into(), help_heading = "Workload")]
    pub(crate) items: u64,
    /// Customers per district, and orders at first. Other numbers than the default are not those of the specification.
    #[arg(long, value_name = "N", default_value_t = atrapos_workloads::tpcc::generator::CUSTOMERS.into(), help_heading = "Workload")]
    pub(crate) customers: u64,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeliveryArg {
    /// They do; a delivery is ten orders.
    Interactive,
    /// They do not: deliveries are queued, and made by one more session on each worker.
    Deferred,
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

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// The machine to plan for: `live`, a description such as "pack:8 core:10 pu:1", or a machine file (.toml).
    #[arg(long, value_name = "T", default_value = "live")]
    pub(crate) topology: String,
    /// The statistics to plan for, as `bench --record` writes them.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: PathBuf,
    /// Find the best scheme there is by an integer program, and say how far the usual search is from it. For small cases.
    #[arg(long)]
    pub(crate) exact: bool,
    /// How long the integer program may take, in seconds.
    #[arg(long, value_name = "S", default_value_t = 60.0, requires = "exact")]
    pub(crate) exact_seconds: f64,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The workload: `tatp`, `tpcc`, `micro`, `tpcb`, `ycsb` or `smallbank`.
    #[arg(value_name = "WORKLOAD")]
    pub(crate) workload: String,
    /// The transaction class, or `all`.
    #[arg(value_name = "CLASS", default_value = "all")]
    pub(crate) class: String,
    /// Print the graph for Graphviz.
    #[arg(long, conflicts_with = "json")]
    pub(crate) dot: bool,
    /// Print the graph as JSON, as it is in traces; `all` prints a list. Tables have their numbers: those of the schema in order,
    /// then the indexes.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// The database directory.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// The database directory.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Where the copy goes: a directory that is empty, or not there yet.
    #[arg(value_name = "TO")]
    pub(crate) to: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct TortureArgs {
    /// How often the database is ended, by a kill or now and then in order.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) kills: u32,
    /// Cut the power so many times, instead of only killing the process: the database is on a file system of its own in a file,
    /// which loses after each round whatever was not synced. As root, with loop devices and e2fsprogs; where that cannot be
    /// had, one line says that it was skipped.
    #[arg(long, value_name = "N", conflicts_with = "kills")]
    pub(crate) power_cuts: Option<u32>,
    /// Instead: run so many random transactions over rows and lists (multisite, with scans, look-ups, aborts, and partitions that
    /// move), write down what each saw, and prove that there is an order in which they could have run. The process is killed
    /// `--kills` times meanwhile; with `--kills 0` the databases are in memory. Prints the smallest contradiction there is, and
    /// ends with exit status 1 then.
    #[arg(long, value_name = "N", conflicts_with_all = ["power_cuts", "subscribers", "seconds_per_round"])]
    pub(crate) history: Option<u64>,
    /// Where the lengths of the rounds, numbers of workers and transactions follow from. What the machine does between two
    /// kills is not repeated by it.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
    /// The directory to work in, kept afterwards: empty, or not there yet [default: a temporary one, kept only if a promise
    /// was broken].
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// The longest time a child runs after it is ready, in seconds.
    #[arg(long, value_name = "S", default_value_t = 0.15)]
    pub(crate) seconds_per_round: f64,
    /// Number of TATP subscribers.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub(crate) subscribers: u64,
    /// Make a mistake on purpose, to show that it is found.
    #[cfg(debug_assertions)]
    #[arg(long, value_name = "BUG")]
    pub(crate) planted: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TortureChildArgs {
    #[arg(long)]
    pub(crate) database: PathBuf,
    #[arg(long)]
    pub(crate) witness: PathBuf,
    #[arg(long)]
    pub(crate) seed: u64,
    #[arg(long)]
    pub(crate) round: u64,
    #[arg(long)]
    pub(crate) workers: usize,
    #[arg(long)]
    pub(crate) topology: String,
    #[arg(long)]
    pub(crate) subscribers: u64,
    #[cfg(debug_assertions)]
    #[arg(long)]
    pub(crate) planted: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TortureHistoryChildArgs {
    #[arg(long)]
    pub(crate) database: PathBuf,
    #[arg(long)]
    pub(crate) log: PathBuf,
    #[arg(long)]
    pub(crate) seed: u64,
    #[arg(long)]
    pub(crate) round: u64,
    #[arg(long)]
    pub(crate) transactions: u64,
    #[arg(long)]
    pub(crate) workers: usize,
    #[arg(long)]
    pub(crate) topology: String,
    #[cfg(debug_assertions)]
    #[arg(long)]
    pub(crate) planted: Option<String>,
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
