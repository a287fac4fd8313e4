//! `atrapos bench ycsb`: its options, and what they mean.
//!
//! Owns: names, defaults and help texts of YCSB. Never: runs anything ([`super::run`] does).

use atrapos_workloads::ycsb::mix::{Distribution, Kind, Mix};
use atrapos_workloads::ycsb::procedures::Order;
use atrapos_workloads::ycsb::schema::{Narrow, Record, Wide};
use atrapos_workloads::ycsb::{ROWS_DEFAULT, THETA_DEFAULT, Ycsb, YcsbConfig};
use clap::{Args, ValueEnum};
use serde_json::json;

use crate::args::RunArgs;
use crate::config::RunConfig;
use crate::error::CliError;
use crate::table;

#[derive(Debug, Args)]
pub(crate) struct YcsbArgs {
    /// Operations to run: a core workload by its letter (see below).
    #[arg(long, visible_alias = "letter", value_name = "M", default_value = "a", help_heading = "Workload")]
    mix: String,
    /// Instead of a letter: updates in this share, from 0 to 1, and reads.
    #[arg(long, value_name = "P", conflicts_with = "mix", help_heading = "Workload")]
    updates: Option<f64>,
    /// Number of records loaded.
    #[arg(long, value_name = "N", default_value_t = ROWS_DEFAULT, help_heading = "Workload")]
    rows: u64,
    /// What a record is.
    #[arg(long = "record-shape", value_enum, default_value_t = ShapeArg::Wide, help_heading = "Workload")]
    shape: ShapeArg,
    /// How keys are chosen [default: zipf; with mix d latest].
    #[arg(long, value_enum, help_heading = "Workload")]
    distribution: Option<DistributionArg>,
    /// Exponent of Zipf's distribution; 0 chooses all alike.
    #[arg(long, value_name = "S", default_value_t = THETA_DEFAULT, help_heading = "Workload")]
    theta: f64,
    /// Leave popular records side by side instead of spreading them over all, so that they are on one worker.
    #[arg(long, help_heading = "Workload")]
    unscrambled: bool,
    /// Operations per transaction, on different records.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Workload")]
    ops_per_txn: usize,
    /// In which order the operations of a transaction access their records.
    #[arg(long, value_enum, default_value_t = OrderArg::Sorted, help_heading = "Workload")]
    order: OrderArg,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ShapeArg {
    /// Ten columns of 100 bytes, of which an update writes one.
    #[value(name = "10x100")]
    Wide,
    /// One column of 8 bytes.
    #[value(name = "8")]
    Narrow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DistributionArg {
    /// By Zipf's distribution.
    Zipf,
    /// The newest records by Zipf's distribution: those a client has inserted, then the last ones loaded.
    Latest,
    /// All alike.
    Uniform,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OrderArg {
    /// All as one phase in order of owners and keys: transactions wait for each other, but never in a cycle.
    Sorted,
    /// One after the other as they were drawn: cycles are broken by running a transaction again.
    Drawn,
}

/// `atrapos bench ycsb`.
pub(crate) fn ycsb(args: &YcsbArgs) -> Result<(), CliError> {
    match args.shape {
        ShapeArg::Wide => run::<Wide>(args),
        ShapeArg::Narrow => run::<Narrow>(args),
    }
}

fn run<R: Record>(args: &YcsbArgs) -> Result<(), CliError> {
    let mix: Mix = match args.updates {
        Some(updates) => Mix::of_updates(updates).map_err(CliError::bad_input)?,
        None => args.mix.parse().map_err(CliError::bad_input)?,
    };
    let distribution = match args.distribution {
        Some(DistributionArg::Zipf) => Distribution::Zipf,
        Some(DistributionArg::Latest) => Distribution::Latest,
        Some(DistributionArg::Uniform) => Distribution::Uniform,
        None => mix.distribution(),
    };
    let order = match args.order {
        OrderArg::Sorted => Order::Sorted,
        OrderArg::Drawn => Order::Drawn,
    };
    let YcsbArgs { rows, theta, unscrambled, ops_per_txn, .. } = *args;
    let workload = Ycsb::<R>::new(YcsbConfig {
        rows,
        mix: mix.clone(),
        distribution,
        theta,
        scrambled: !unscrambled,
        operations: ops_per_txn,
        order,
        seed: args.run.common.seed,
    })
    .map_err(CliError::bad_input)?;
    let config = RunConfig::of(&args.run)?;
    let skew = if distribution == Distribution::Uniform { String::new() } else { format!(" {theta}") };
    let title = format!(
        "mix {mix}, {} rows of {} bytes, {}{skew}, {ops_per_txn} per transaction",
        table::count(rows),
        R::SHAPE,
        distribution.name(),
    );
    let shares: serde_json::Map<_, _> = Kind::NAMES
        .iter()
        .zip(mix.shares())
        .map(|(name, share)| ((*name).to_owned(), json!(share)))
        .collect();
    let settings = json!({
        "mix": mix.to_string(),
        "shares": shares,
        "rows": rows,
        "record_shape": R::SHAPE,
        "distribution": distribution.name(),
        "theta": theta,
        "scrambled": !unscrambled,
        "ops_per_txn": ops_per_txn,
        "order": order.name(),
    });
    super::run(("ycsb", None), &workload, &args.run, config, title, settings)
}
