//! The command line.
//!
//! Owns: names, defaults and help. Never: judges a value beyond its syntax.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use crate::peer::{Durability, WorkName};

/// Compare `atrapos` with what else a Rust programmer could choose: the same workloads, data, threads and durability, the same audits.
///
/// Without options everything is measured, which takes six minutes.
#[derive(Debug, Parser)]
#[command(name = "atrapos-compare", version)]
pub struct Args {
    /// Workloads to run, separated by commas [default: all].
    #[arg(long, value_enum, value_name = "W", value_delimiter = ',')]
    pub workload: Vec<WorkName>,
    /// Stores to compare with, separated by commas [default: all that were compiled in].
    #[arg(long, value_name = "P", value_delimiter = ',')]
    pub peer: Vec<String>,
    /// Durability to measure with [default: both].
    #[arg(long, value_enum, value_name = "D")]
    pub durability: Option<DurabilityArg>,
    /// Length of a measured interval, in seconds.
    #[arg(long, value_name = "S", default_value_t = 0.8, allow_negative_numbers = true)]
    pub seconds: f64,
    /// Rounds; sides take turns in each, and the median counts.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub rounds: usize,
    /// Threads of each store, and workers of atrapos [default: one per core].
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Threads tried besides with synchronous durability, for stores that make several commits durable at once.
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub many_threads: usize,
    /// Sessions on each worker of atrapos [default: 64 in memory; 256 to 2,048 with synchronous durability, by the speed of the disk].
    #[arg(long, value_name = "N")]
    pub sessions: Option<usize>,
    /// Size of the data: 1 is 100,000 subscribers, 16 branches of 10,000 accounts, 100,000 records of a thousand bytes, 20,000 rows.
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_negative_numbers = true)]
    pub scale: f64,
    /// Directory for the stores, each in one of its own that is removed at the end [default: the system's for temporary files].
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// File for the results.
    #[arg(long, value_name = "FILE", default_value = "compare.json")]
    pub json: PathBuf,
}

/// Durability on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DurabilityArg {
    /// Nothing is synced.
    None,
    /// A commit is acknowledged when it is on the device.
    Synchronous,
}

impl From<DurabilityArg> for Durability {
    fn from(given: DurabilityArg) -> Durability {
        match given {
            DurabilityArg::None => Durability::None,
            DurabilityArg::Synchronous => Durability::Synchronous,
        }
    }
}
