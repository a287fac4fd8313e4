//! Options of SmallBank.
//!
//! Owns: names, defaults and help of its options, and what they mean. Never: judges a value; the workload does.

use clap::Args;
use serde_json::json;

use super::parameters::{Class, Mix, Skew};
use super::{CUSTOMERS_DEFAULT, HOTSPOT_SHARE_DEFAULT, SmallBank, SmallBankConfig, THETA_DEFAULT};
use crate::registry::{
    ApartArgs, BadOptions, Choice, Classes, Common, EXPLAINED_SEED, Options, Visitor, mixes,
};
use crate::text::count;

/// SmallBank: six short transactions on the accounts of customers of whom some are very popular.
///
/// A withdrawal that the account does not cover is an expected failure, as in TATP: a complete transaction that has changed nothing.
#[derive(Debug, Args)]
#[command(after_help = mixes("six", &Class::STANDARD_PERCENT, &Class::NAMES))]
pub struct SmallBankOptions {
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
    apart: ApartArgs,
}

impl Options for SmallBankOptions {
    const NAME: &'static str = "smallbank";
    const CLASSES: &'static [Classes] = &[Classes { when: None, names: &Class::NAMES }];

    type Explained = SmallBank;

    fn explained() -> Result<Vec<SmallBank>, BadOptions> {
        Ok(vec![SmallBank::new(SmallBankConfig { seed: EXPLAINED_SEED, ..SmallBankConfig::default() })?])
    }

    fn configure<V: Visitor>(&self, common: Common, visitor: V) -> Result<V::Output, BadOptions> {
        let mix: Mix = self.mix.parse()?;
        let &SmallBankOptions { customers, theta, hotspot, hotspot_share: share, apart, .. } = self;
        let skew = match hotspot {
            Some(customers) => Skew::Hotspot { customers, share },
            None => Skew::Zipf(theta),
        };
        let workload =
            SmallBank::new(SmallBankConfig { customers, mix, skew, apart: apart.apart, seed: common.seed })?;
        let chosen = match hotspot {
            Some(hot) => format!("{}% of requests to {}", share * 100.0, count(hot)),
            None => format!("Zipf {theta}"),
        };
        let title = format!("{} customers, mix {mix}, {chosen}{}", count(customers), apart.title());
        let settings = json!({
            "customers": customers,
            "mix": mix.to_string(),
            "theta": hotspot.is_none().then_some(theta),
            "hotspot": hotspot,
            "hotspot_share": hotspot.map(|_| share),
            "apart": apart.apart,
        });
        Ok(visitor.visit(workload, Choice::new(title, settings)))
    }
}
