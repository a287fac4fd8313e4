//! `atrapos bench tpcb`: its options, and what they mean.
//!
//! Owns: names, defaults and help texts of TPC-B. Never: runs anything ([`super::run`] does).

use atrapos_workloads::tpcb::{ACCOUNTS_DEFAULT, BRANCHES_DEFAULT, REMOTE_DEFAULT, Tpcb, TpcbConfig};
use clap::Args;
use serde_json::json;

use crate::args::RunArgs;
use crate::config::RunConfig;
use crate::error::CliError;
use crate::table;

#[derive(Debug, Args)]
pub(crate) struct TpcbArgs {
    /// Number of branches, each with ten tellers: the scale of the database.
    #[arg(long, value_name = "N", default_value_t = BRANCHES_DEFAULT, help_heading = "Workload")]
    branches: u64,
    /// Accounts of each branch; the specification has 100,000.
    #[arg(long, value_name = "N", default_value_t = ACCOUNTS_DEFAULT, help_heading = "Workload")]
    accounts_per_branch: u32,
    /// Share of the transactions whose account is of another branch than the teller, from 0 to 1.
    #[arg(long, value_name = "P", default_value_t = REMOTE_DEFAULT, help_heading = "Workload")]
    remote: f64,
    #[command(flatten)]
    run: RunArgs,
}

/// `atrapos bench tpcb`.
pub(crate) fn tpcb(args: &TpcbArgs) -> Result<(), CliError> {
    let TpcbArgs { branches, accounts_per_branch, remote, .. } = *args;
    let seed = args.run.common.seed;
    let workload = Tpcb::new(TpcbConfig { branches, accounts_per_branch, remote, seed });
    let workload = workload.map_err(CliError::bad_input)?;
    let config = RunConfig::of(&args.run)?;
    let title = format!(
        "{} branches of {} accounts, {}% remote",
        table::count(branches),
        table::count(u64::from(accounts_per_branch)),
        remote * 100.0
    );
    let settings =
        json!({ "branches": branches, "accounts_per_branch": accounts_per_branch, "remote": remote });
    super::run(("tpcb", None), &workload, &args.run, config, title, settings)
}
