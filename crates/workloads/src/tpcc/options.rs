//! Options of TPC-C.
//!
//! Owns: names, defaults and help of its options, and what they mean. Never: judges a value; the workload does.

use clap::Args;
use serde_json::json;

use super::generator::{CUSTOMERS, ITEMS};
use super::parameters::{Class, Mix, Remote};
use super::terminal::Deliveries;
use super::{Tpcc, TpccConfig, WAREHOUSES_DEFAULT, terminals_per_worker};
use crate::registry::{
    ApartArgs, BadOptions, Choice, Classes, Common, EXPLAINED_SEED, Options, Visitor, mixes,
};
use crate::text::count;

/// TPC-C: five transactions of a wholesale supplier with warehouses.
///
/// One New-Order in a hundred is rolled back, as the specification wants it. Such an expected failure is a complete
/// transaction and counts in the throughput and in the new orders per minute, which are not called tpmC, because that takes
/// more than a program. New orders stay: count on about 1 KiB of memory for each.
#[derive(Debug, Args)]
#[command(after_help = mixes("five", &Class::STANDARD_PERCENT, &Class::NAMES))]
pub struct TpccOptions {
    /// Number of warehouses; about 100 MB each.
    #[arg(long, value_name = "N", default_value_t = WAREHOUSES_DEFAULT, help_heading = "Workload")]
    warehouses: u64,
    /// Transactions to run: `standard`, `new-order-payment` (these two, 45 to 43), or one class alone (see below).
    #[arg(long, value_name = "M", default_value = "standard", help_heading = "Workload")]
    mix: String,
    /// Share of remote work, of payments and of order lines alike, from 0 (all of a transaction is at one warehouse) to 1.
    #[arg(long, value_name = "P", conflicts_with_all = ["remote_payment", "remote_lines"], help_heading = "Workload")]
    remote: Option<f64>,
    /// Share of payments by customers of other warehouses [default: 0.15].
    #[arg(long, value_name = "P", help_heading = "Workload")]
    remote_payment: Option<f64>,
    /// Share of order lines supplied by other warehouses [default: 0.01].
    #[arg(long, value_name = "P", help_heading = "Workload")]
    remote_lines: Option<f64>,
    /// Mode of deliveries: clients wait for them, or not.
    #[arg(long, value_enum, default_value_t = Deliveries::Interactive, help_heading = "Workload")]
    delivery: Deliveries,
    /// Clients are terminals that people sit at: each belongs to a warehouse, keys in its inputs and thinks, as the specification
    /// says [default sessions then: ten terminals per warehouse].
    #[arg(long, help_heading = "Workload")]
    think: bool,
    /// Number of items. Other numbers than the default are not those of the specification.
    #[arg(long, value_name = "N", default_value_t = ITEMS.into(), help_heading = "Workload")]
    items: u64,
    /// Customers per district, and orders at first. Other numbers than the default are not those of the specification.
    #[arg(long, value_name = "N", default_value_t = CUSTOMERS.into(), help_heading = "Workload")]
    customers: u64,
    #[command(flatten)]
    apart: ApartArgs,
}

impl Options for TpccOptions {
    const NAME: &'static str = "tpcc";
    const CLASSES: &'static [Classes] = &[Classes { when: None, names: &Class::NAMES }];

    type Explained = Tpcc;

    fn explained() -> Result<Vec<Tpcc>, BadOptions> {
        Ok(vec![Tpcc::new(TpccConfig { seed: EXPLAINED_SEED, ..TpccConfig::default() })?])
    }

    fn configure<V: Visitor>(&self, common: Common, visitor: V) -> Result<V::Output, BadOptions> {
        let mix: Mix = self.mix.parse()?;
        let remote = Remote {
            payments: self.remote.or(self.remote_payment).unwrap_or(Remote::STANDARD.payments),
            lines: self.remote.or(self.remote_lines).unwrap_or(Remote::STANDARD.lines),
        };
        let &TpccOptions { warehouses, items, customers, delivery: deliveries, think, apart, .. } = self;
        let seed = common.seed;
        let config = TpccConfig {
            warehouses,
            items,
            customers,
            mix,
            remote,
            deliveries,
            think,
            apart: apart.apart,
            seed,
        };
        let workload = Tpcc::new(config)?;
        let title = format!(
            "{} warehouses, mix {mix}, {}% remote payments, {}% remote lines, {} deliveries{}{}",
            count(warehouses),
            100.0 * remote.payments,
            100.0 * remote.lines,
            deliveries.name(),
            if think { ", think times" } else { "" },
            apart.title(),
        );
        let settings = json!({
            "warehouses": warehouses,
            "items": items,
            "customers": customers,
            "mix": mix.to_string(),
            "remote_payment": remote.payments,
            "remote_lines": remote.lines,
            "delivery": deliveries.name(),
            "think": think,
            "apart": apart.apart,
        });
        let choice = Choice {
            per_minute: Some(Class::NewOrder.id()),
            sessions_per_worker: think.then(|| terminals_per_worker(warehouses, common.workers)),
            ..Choice::new(title, settings)
        };
        Ok(visitor.visit(workload, choice))
    }
}
