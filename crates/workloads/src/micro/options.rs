//! Options of the microbenchmark.
//!
//! Owns: names, defaults and help of its options, and what they mean. Never: judges a value; the workload does.

use clap::Args;
use serde_json::json;

use super::{Kind, Micro, MicroConfig};
use crate::registry::{BadOptions, Choice, Classes, Common, EXPLAINED_SEED, Options, Visitor};
use crate::text::count;

/// Read or update a few rows of 250 bytes, on one worker or on several.
#[derive(Debug, Args)]
pub struct MicroOptions {
    /// Operation of transactions on their rows.
    #[arg(long, value_enum, default_value_t = Kind::Read, help_heading = "Workload")]
    kind: Kind,
    /// Rows per transaction, all different.
    #[arg(long, value_name = "N", default_value_t = 10, help_heading = "Workload")]
    rows: usize,
    /// Rows per site; there is one site per worker.
    #[arg(long, value_name = "N", default_value_t = 10_000, help_heading = "Workload")]
    rows_per_site: u64,
    /// Probability that a transaction is multisite: one row of its own site, the others of all data.
    #[arg(long, value_name = "P", default_value_t = 0.0, help_heading = "Workload")]
    multisite: f64,
    /// Skew: choose rows by Zipf's distribution with this exponent; 0 chooses all alike.
    #[arg(long, value_name = "S", default_value_t = 0.0, help_heading = "Workload")]
    zipf: f64,
}

impl Options for MicroOptions {
    const NAME: &'static str = "micro";
    const CLASSES: &'static [Classes] = &[
        Classes { when: None, names: Kind::Read.classes() },
        Classes { when: None, names: Kind::Update.classes() },
    ];

    type Explained = Micro;

    fn explained() -> Result<Vec<Micro>, BadOptions> {
        let of = |kind| Micro::new(MicroConfig { kind, seed: EXPLAINED_SEED, ..MicroConfig::default() });
        Ok(vec![of(Kind::Read)?, of(Kind::Update)?])
    }

    fn configure<V: Visitor>(&self, common: Common, visitor: V) -> Result<V::Output, BadOptions> {
        let &MicroOptions { kind, rows, rows_per_site, multisite, zipf } = self;
        let Common { workers: sites, seed } = common;
        let config =
            MicroConfig { sites, rows_per_site, rows_per_transaction: rows, kind, multisite, zipf, seed };
        let workload = Micro::new(config)?;
        let title = format!(
            "{} of {rows} rows, {sites} sites of {} rows, {}% multisite, Zipf {zipf}",
            kind.name(),
            count(rows_per_site),
            multisite * 100.0,
        );
        let settings = json!({
            "kind": kind.name(),
            "rows": rows,
            "rows_per_site": rows_per_site,
            "sites": sites,
            "multisite": multisite,
            "zipf": zipf,
        });
        Ok(visitor.visit(workload, Choice::new(title, settings)))
    }
}
