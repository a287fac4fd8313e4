//! The command line: what can be asked for, with the help that explains it.
//!
//! Owns: names, defaults and help texts; those of the workloads' own options come from the workloads. Never: judges values beyond
//! their syntax, so that all refusals that need knowledge of the engine or the machine are made in one voice, elsewhere.

mod advise;
mod bench;
mod deploy;
mod explain;
mod run;
mod serve;
mod system;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use self::advise::ChannelsArg;
pub(crate) use self::advise::{AdviseArgs, AdviseCommand, WorkloadAdvise};
pub(crate) use self::bench::{BenchCommand, OtherBench, RawArgs, RecoveryArgs, WorkloadBench};
pub(crate) use self::deploy::{CallArgs, DeployArgs, DeployCommand};
pub(crate) use self::explain::ExplainArgs;
pub use self::run::{AdaptationArgs, CommonArgs, DurabilityArg, EngineArg, ObservingArgs};
pub(crate) use self::run::{DurabilityArgs, InstanceArgs, LocksArg, RoutingArg, RunArgs};
#[cfg(feature = "server")]
pub(crate) use self::serve::AuthenticationArg;
pub(crate) use self::serve::{ServeArgs, SqlArgs};
pub use self::system::PartitioningArg;
pub(crate) use self::system::SystemArgs;
use crate::tools::Tool;

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
  atrapos bench tatp                         load 100,000 subscribers, run the standard mix for 5 s
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
  atrapos bench tatp --engine plp            PLP: the same engine with central system state and a naive scheme
  atrapos advise micro --kind update --multisite 0.2
                                             one database or several instances: measured, predicted, and why
  atrapos deploy tatp --instances 2          two databases with half of the subscribers each, until Ctrl-C
  atrapos call DIR tatp.get-subscriber-data 01ac02
                                             call a procedure of them: subscriber 300
  atrapos serve DIR                          serve a database to clients of PostgreSQL
  atrapos sql DIR                            a shell of SQL on it
  atrapos bench raw                          what this machine can do without any engine
  atrapos bench domains --structure hash-map --all-designs
                                             a structure used directly, or by virtual domains, by every design
  atrapos domains compose --structures FILE --topology 8x24.toml
                                             virtual domains for structures whose sizes are known, on another machine
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
    /// Find the deployment that is best for a workload: one database, or several instances that divide the data.
    ///
    /// Measures for every number of instances what a transaction takes that stays on its worker, and one that does not, predicts the
    /// throughput for every share of remote work, and compares predictions with measurements.
    Advise {
        #[command(subcommand)]
        workload: AdviseCommand,
    },
    /// Start instances of a workload's database, each in a process of its own, and keep them going until Ctrl-C.
    ///
    /// The keys are divided among the instances; transactions over several of them commit in two phases. The data is in memory: an
    /// instance that has ended is started again with the population of the workload. Others call the stored procedures of the
    /// workload through the directory that is printed.
    Deploy {
        #[command(subcommand)]
        workload: DeployCommand,
    },
    /// Serve a database to clients of PostgreSQL: psql, drivers of any language, load generators. Until Ctrl-C or SIGTERM.
    ///
    /// The database is created if there is none. A password is generated then, shown once, and kept as what verifies it only. A
    /// request to end has new clients refused and sessions end with their transactions; a second one ends the process at once, from
    /// which the database recovers as from a crash.
    Serve(Box<ServeArgs>),
    /// Open a shell of SQL on a database that is being served on this machine by the same user; no password is needed.
    ///
    /// Statements end with a semicolon. Exit status 1 means that a statement failed or the server went away, 2 that none is there.
    Sql(SqlArgs),
    /// Call a stored procedure of a deployment by its name, and print its encoded result in hexadecimal digits.
    ///
    /// The encoding is in docs/procedure-format.md. Exit status 1 means that the transaction aborted or the instance was lost, 2
    /// that there is no such deployment or procedure, or the arguments are none of it.
    Call(CallArgs),
    /// Show what transactions do: the flow graph of a transaction class, recorded from its procedure.
    ///
    /// The boxes are actions: R reads a row, S scans a range, U updates, I inserts, D deletes. Those of one phase run together;
    /// an arrow says that a key of the second action comes from the first. Synchronization points, where actions exchange data,
    /// are marked at the end of their phase, with the bytes exchanged by one transaction on average. The transactions run on a small
    /// database in memory, with arguments as a benchmark chooses them.
    #[command(after_help = explain::classes_help())]
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
    #[command(flatten)]
    Tool(Tool),
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
    /// Directory of the copy: empty, or not there yet.
    #[arg(value_name = "TO")]
    pub(crate) to: PathBuf,
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
