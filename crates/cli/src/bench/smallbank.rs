//! `atrapos bench smallbank`: its options, and what they mean.
//!
//! Owns: names, defaults and help texts of SmallBank. Never: runs anything ([`super::run`] does).

use atrapos_workloads::smallbank::parameters::{Mix, Skew};
use atrapos_workloads::smallbank::{
    CUSTOMERS_DEFAULT, HOTSPOT_SHARE_DEFAULT, SmallBank, SmallBankConfig, THETA_DEFAULT,
};
use clap::Args;
use serde_json::json;

use crate::args::RunArgs;
use crate::config::RunConfig;
use crate::error::CliError;
use crate::table;

#[derive(Debug, Args)]
pub(crate) struct SmallBankArgs {
    /// Number of customers.
    #[arg(long, value_name = "N", default_value_t = CUSTOMERS_DEFAULT, help_heading = "Workload")]
    customers: u64,
    /// Transactions to run: `standard`, or one class alone (see below).
    #[arg(long, value_name = "M", default_value = "standard", help_heading = "Workload")]
    mix: String,
    /// Skew: choose customers by Zipf's distribution with this exponent; 0 chooses all alike.
    #[arg(long, value_name = "S", default_value_t = THETA_DEFAULT, help_heading = "Workload")]
    theta: f64,
    /// Instead: customers in a hotspot, which gets a share of the requests; all others get the rest.
    #[arg(long, value_name = "N", conflicts_with = "theta", help_heading = "Workload")]
    hotspot: Option<u64>,
    /// The share of the requests that goes to the hotspot, from 0 to 1.
    #[arg(long, value_name = "P", default_value_t = HOTSPOT_SHARE_DEFAULT, requires = "hotspot", help_heading = "Workload")]
    hotspot_share: f64,
    #[command(flatten)]
    run: RunArgs,
}

/// `atrapos bench smallbank`.
pub(crate) fn smallbank(args: &SmallBankArgs) -> Result<(), CliError> {
    let mix: Mix = args.mix.parse().map_err(CliError::bad_input)?;
    let SmallBankArgs { customers, theta, hotspot, hotspot_share: share, .. } = *args;
    let skew = match hotspot {
        Some(customers) => Skew::Hotspot { customers, share },
        None => Skew::Zipf(theta),
    };
    let seed = args.run.common.seed;
    let workload =
        SmallBank::new(SmallBankConfig { customers, mix, skew, seed }).map_err(CliError::bad_input)?;
    let config = RunConfig::of(&args.run)?;
    let chosen = match hotspot {
        Some(hot) => format!("{}% of requests to {}", share * 100.0, table::count(hot)),
        None => format!("Zipf {theta}"),
    };
    let title = format!("{} customers, mix {mix}, {chosen}", table::count(customers));
    let settings = json!({
        "customers": customers,
        "mix": mix.to_string(),
        "theta": hotspot.is_none().then_some(theta),
        "hotspot": hotspot,
        "hotspot_share": hotspot.map(|_| share),
    });
    super::run(("smallbank", None), &workload, &args.run, config, title, settings)
}
