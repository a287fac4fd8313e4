//! Arguments that commands which measure have in common.
//!
//! Owns: names, defaults and help texts. Never: judges values beyond their syntax.

use std::path::PathBuf;

use atrapos_instances::ChannelKind;
use atrapos_instances::plan::Placement;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::SystemArgs;

/// Arguments of every measurement.
#[derive(Debug, Args)]
pub struct CommonArgs {
    /// Length of the measured interval, in seconds.
    #[arg(long, value_name = "S", default_value_t = 5.0, help_heading = "Measurement")]
    pub seconds: f64,
    /// Seed of all random choices; the same seed loads the same rows.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Measurement")]
    pub seed: u64,
    /// Also write the result as one JSON object to this file, which appears when the measurement is complete.
    #[arg(long, value_name = "FILE", help_heading = "Measurement")]
    pub json: Option<PathBuf>,
    /// The machine to place workers on: `live`, a description such as "pack:2 l3:4 core:8 pu:1", or a machine file (.toml).
    #[arg(long, value_name = "T", default_value = "live", help_heading = "Machine")]
    pub topology: String,
    /// Leave threads where the kernel puts them.
    #[arg(long, help_heading = "Machine")]
    pub no_pin: bool,
}

/// Arguments of every benchmark that runs transactions.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Length of the run before the measured interval, in seconds.
    #[arg(long, value_name = "S", default_value_t = 1.0, help_heading = "Measurement")]
    pub(crate) warmup: f64,
    /// Number of measurements. The median counts; the database is loaded once.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Measurement")]
    pub(crate) runs: u32,
    /// Workers, each a thread that owns a part of the data [default: one per usable core].
    #[arg(long, value_name = "N", help_heading = "Machine")]
    pub(crate) workers: Option<usize>,
    /// Take memory from wherever the kernel gives it, not from the worker's own node.
    #[arg(long, help_heading = "Machine")]
    pub(crate) no_place_memory: bool,
    /// Memory to prepare before the first measurement, by which tables can grow without page faults, in MiB [default: what
    /// such a workload is known to take, at most 2048 and a quarter of what is available].
    #[arg(long, value_name = "MIB", help_heading = "Machine")]
    pub(crate) reserve: Option<u64>,
    /// WAL to fill with zeros before the first measurement, in MiB: a sync of it takes less [default: what a run of this
    /// length may write, at most 1024 and a quarter of what is free].
    #[arg(long, value_name = "MIB", help_heading = "Machine")]
    pub(crate) wal_reserve: Option<u64>,
    /// The engine that runs the transactions. Those with shared data have threads as clients: --clients, or one per worker (of `domains`: as
    /// many as there are processing units that workers leave).
    #[arg(long, value_enum, default_value_t = EngineArg::Atrapos, help_heading = "Machine")]
    pub(crate) engine: EngineArg,
    /// The structure of all tables of --engine domains: owned-tree, or owned-hash-map, which has no ranges [default: owned-tree].
    #[arg(long, value_name = "NAME", help_heading = "Machine")]
    pub(crate) structure: Option<String>,
    /// Locks of transactions of --engine shared-2pl. Without them, the load may only read.
    #[arg(long, value_enum, default_value_t = LocksArg::Auto, help_heading = "Machine")]
    pub(crate) locks: LocksArg,
    #[command(flatten)]
    pub(crate) instances: InstanceArgs,
    /// Sessions per worker: clients that live on the worker and run one transaction after the other [default: 64; 8 with bursts; with
    /// synchronous durability 256 to 2048, the more the slower the disk].
    #[arg(long, value_name = "N", conflicts_with = "clients", help_heading = "Clients")]
    pub(crate) sessions: Option<usize>,
    /// Transactions that a session, or a thread of an engine with shared data, commits before the first of them is acknowledged as
    /// durable; it waits when there are as many [default: 1, so that it waits for each; for a thread as many as a worker would
    /// have sessions].
    #[arg(long, value_name = "N", help_heading = "Clients")]
    pub(crate) pipeline: Option<usize>,
    /// Transactions that a session draws together, at most 16, so that the worker looks their keys up together; it runs them one after
    /// another, and their latencies begin with the first [default: 16 with --routing owner; otherwise, and where a session waits for each to
    /// be durable, 1, so that each is drawn when its turn comes].
    #[arg(long, value_name = "N", conflicts_with = "clients", help_heading = "Clients")]
    pub(crate) burst: Option<usize>,
    /// Run from N client threads outside the engine instead of sessions on the workers.
    #[arg(long, value_name = "N", help_heading = "Clients")]
    pub(crate) clients: Option<usize>,
    /// Which data clients choose: any, or only what their worker owns; the database then keeps its scheme.
    #[arg(long, value_enum, default_value_t = RoutingArg::Any, help_heading = "Clients")]
    pub(crate) routing: RoutingArg,
    #[command(flatten)]
    pub(crate) durability: DurabilityArgs,
    #[command(flatten)]
    pub(crate) system: SystemArgs,
    /// Keep the scheme the database begins with, and observe nothing.
    #[arg(long = "static", conflicts_with = "record", help_heading = "Adaptation")]
    pub(crate) fixed: bool,
    /// Observe without changing anything, and write what was observed to this file, for `atrapos plan`.
    #[arg(long, value_name = "FILE", help_heading = "Adaptation")]
    pub(crate) record: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) adaptation: AdaptationArgs,
}

/// The instances of a deployment.
#[derive(Debug, Args)]
pub(crate) struct InstanceArgs {
    /// Divide the data among N databases, each in a process of its own with its share of the workers; transactions over several of
    /// them commit in two phases. Clients choose data of their own worker.
    #[arg(long, value_name = "N", conflicts_with_all = ["clients", "record", "checkpoint_during"], help_heading = "Instances")]
    pub(crate) instances: Option<usize>,
    /// The way of the messages between instances: shm (shared memory), unix (Unix sockets), pipe or tcp (on this machine).
    #[arg(long, value_name = "C", default_value_t = ChannelKind::Shm, requires = "instances", help_heading = "Instances")]
    pub(crate) channel: ChannelKind,
    /// The processors of an instance: islands (next to each other), spread (of all islands), mixed (half of them so, the others
    /// so) or system (as the operating system chooses).
    #[arg(long, value_name = "P", default_value_t = Placement::Islands, requires = "instances", help_heading = "Instances")]
    pub(crate) placement: Placement,
    /// The place of this process in a deployment that another one has started.
    #[arg(long, value_name = "JSON", hide = true, requires = "instances")]
    pub(crate) member: Option<String>,
}

/// Settings by which a database adapts itself; the engine's default where none is given.
#[derive(Debug, Args)]
pub struct AdaptationArgs {
    /// Settings of the observation.
    #[command(flatten)]
    pub observing: ObservingArgs,
    /// Another setting of the controller, such as imbalance=0.3; a wrong name lists them all, with their units.
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',', help_heading = "Adaptation")]
    pub set: Vec<String>,
}

/// Settings by which a database observes itself, and those that decide most of what follows.
#[derive(Debug, Args)]
pub struct ObservingArgs {
    /// The shortest time between two looks at what was observed, in seconds [default: 1]. The longest is eight times that.
    #[arg(long, value_name = "S", help_heading = "Adaptation")]
    pub interval: Option<f64>,
    /// By which share the throughput must change for the scheme to be thought over [default: 0.1].
    #[arg(long, value_name = "X", help_heading = "Adaptation")]
    pub threshold: Option<f64>,
    /// Sub-partitions per partition: the unit in which load is observed [default: 10].
    #[arg(long, value_name = "N", help_heading = "Adaptation")]
    pub sub_partitions: Option<usize>,
    /// Record one event in so many, on average, or more often where that costs little [default: 1,024].
    #[arg(long, value_name = "N", help_heading = "Adaptation")]
    pub sample_every: Option<u32>,
    /// Divide a table that was declared without split points among the workers when it has so many rows for each; 0 leaves it to the load [default: 1,000].
    #[arg(long, value_name = "N", help_heading = "Adaptation")]
    pub rows_per_worker: Option<u64>,
}

impl AdaptationArgs {
    /// Returns the first option that was given, if one was.
    pub(crate) fn given(&self) -> Option<&'static str> {
        self.observing.given().or((!self.set.is_empty()).then_some("--set"))
    }
}

impl ObservingArgs {
    /// Returns the first option that was given, if one was.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let given = [
            (self.interval.is_some(), "--interval"),
            (self.threshold.is_some(), "--threshold"),
            (self.sub_partitions.is_some(), "--sub-partitions"),
            (self.sample_every.is_some(), "--sample-every"),
            (self.rows_per_worker.is_some(), "--rows-per-worker"),
        ];
        given.into_iter().find(|(given, _)| *given).map(|(_, option)| option)
    }
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

/// Durability of committed transactions, as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DurabilityArg {
    /// When they are certain to survive a crash of process and machine.
    Synchronous,
    /// At once: a crash may lose the last ones, as many as --max-loss-ms says.
    Relaxed,
    /// At once, and nothing is written: the database lives in memory.
    None,
}

/// Engine that a workload runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum EngineArg {
    /// Workers that own the data.
    Atrapos,
    /// The same with the system state of PLP: one list of transactions, one counter, one state lock and one log buffer for all workers,
    /// and a naive scheme.
    Plp,
    /// Threads that share the data; transactions are validated when they commit, as in Silo.
    SharedOcc,
    /// Threads that share the data; transactions lock what they access in one central lock manager.
    #[value(name = "shared-2pl")]
    Shared2pl,
    /// Threads that delegate each operation to the workers of virtual domains, whose structures are the tables; transactions lock what they
    /// access there. In memory only.
    Domains,
}

impl EngineArg {
    /// Returns its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            EngineArg::Atrapos => "atrapos",
            EngineArg::Plp => "plp",
            EngineArg::SharedOcc => "shared-occ",
            EngineArg::Shared2pl => "shared-2pl",
            EngineArg::Domains => "domains",
        }
    }

    /// Returns true if its clients are threads, each of which reaches all data.
    pub fn shares_data(self) -> bool {
        matches!(self, EngineArg::SharedOcc | EngineArg::Shared2pl | EngineArg::Domains)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LocksArg {
    /// On nothing if one thread runs a load that only reads, in each instance if there are several; otherwise on all that they
    /// access. One thread without instances goes without latches, too.
    Auto,
    /// On all that they access, and with latches, as if there were several threads.
    On,
    /// On nothing: a transaction that changes rows is refused.
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RoutingArg {
    /// All of it: with W workers, all but one in W requests go to another worker.
    Any,
    /// Only what the client's own worker owns.
    Owner,
}
