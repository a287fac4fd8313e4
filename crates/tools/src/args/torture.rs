//! The command line of `atrapos torture`, and of the children it kills.
//!
//! Owns: names, defaults and help texts. Never: judges values beyond their syntax.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct TortureArgs {
    /// Number of ends of the database, by a kill or now and then in order.
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
    /// Seed of the lengths of the rounds, numbers of workers and transactions. The machine's own order between two kills is
    /// not repeated by it.
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
