//! Options of YCSB.
//!
//! Owns: names, defaults and help of its options, and what they mean. Never: judges a value; the workload does.

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::mix::{Distribution, Kind, Mix};
use super::procedures::Order;
use super::schema::{Narrow, Record, Wide};
use super::{ROWS_DEFAULT, SEVERAL, THETA_DEFAULT, Ycsb, YcsbConfig};
use crate::registry::{BadOptions, Choice, Classes, Common, EXPLAINED_SEED, Options, Visitor};
use crate::text::count;

/// YCSB: reads, updates, insertions and scans of single records, or several of them per transaction.
#[derive(Debug, Args)]
#[command(after_help = "\
Mixes: a (half reads, half updates), b (95% reads, 5% updates), c (reads), d (95% reads of the newest records, 5% insertions), \
e (95% scans of up to 100 records, 5% insertions), f (half reads, half read-modify-writes).")]
pub struct YcsbOptions {
    /// Operations to run: a core workload by its letter (see below).
    #[arg(long, visible_alias = "letter", value_name = "M", default_value = "a", help_heading = "Workload")]
    mix: String,
    /// Instead of a letter: updates in this share, from 0 to 1, and reads.
    #[arg(long, value_name = "P", conflicts_with = "mix", help_heading = "Workload")]
    updates: Option<f64>,
    /// Number of records loaded.
    #[arg(long, value_name = "N", default_value_t = ROWS_DEFAULT, help_heading = "Workload")]
    rows: u64,
    /// Shape of a record.
    #[arg(long = "record-shape", value_enum, default_value_t = Shape::Wide, help_heading = "Workload")]
    shape: Shape,
    /// Distribution of the keys [default: zipf; with mix d latest].
    #[arg(long, value_enum, help_heading = "Workload")]
    distribution: Option<Distribution>,
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
    #[arg(long, value_enum, default_value_t = Order::Sorted, help_heading = "Workload")]
    order: Order,
    /// Declare the table as shared: workers read what they do not own in place, until somebody writes it.
    #[arg(long, help_heading = "Workload")]
    shared: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shape {
    /// Ten columns of 100 bytes, of which an update writes one.
    #[value(name = Wide::SHAPE)]
    Wide,
    /// One column of 8 bytes.
    #[value(name = Narrow::SHAPE)]
    Narrow,
}

impl Options for YcsbOptions {
    const NAME: &'static str = "ycsb";
    const CLASSES: &'static [Classes] = &[
        Classes { when: None, names: &Kind::NAMES },
        Classes { when: Some("of several operations"), names: &SEVERAL },
    ];

    type Explained = Ycsb<Wide>;

    fn explained() -> Result<Vec<Ycsb<Wide>>, BadOptions> {
        // The classes of single operations, and those of sixteen.
        let config = YcsbConfig { mix: Mix::of_updates(0.5)?, seed: EXPLAINED_SEED, ..YcsbConfig::default() };
        let of = |operations| Ycsb::new(YcsbConfig { operations, ..config.clone() });
        Ok(vec![of(1)?, of(16)?])
    }

    fn configure<V: Visitor>(&self, common: Common, visitor: V) -> Result<V::Output, BadOptions> {
        match self.shape {
            Shape::Wide => self.of_shape::<Wide, V>(common, visitor),
            Shape::Narrow => self.of_shape::<Narrow, V>(common, visitor),
        }
    }
}

impl YcsbOptions {
    fn of_shape<R: Record, V: Visitor>(&self, common: Common, visitor: V) -> Result<V::Output, BadOptions> {
        let mix: Mix = match self.updates {
            Some(updates) => Mix::of_updates(updates)?,
            None => self.mix.parse()?,
        };
        let distribution = self.distribution.unwrap_or(mix.distribution());
        let &YcsbOptions { rows, theta, unscrambled, ops_per_txn, order, shared, .. } = self;
        let workload = Ycsb::<R>::new(YcsbConfig {
            rows,
            mix: mix.clone(),
            distribution,
            theta,
            scrambled: !unscrambled,
            operations: ops_per_txn,
            order,
            shared,
            seed: common.seed,
        })?;
        let skew = if distribution == Distribution::Uniform { String::new() } else { format!(" {theta}") };
        let title = format!(
            "mix {mix}, {} rows of {} bytes, {}{skew}, {ops_per_txn} per transaction",
            count(rows),
            R::SHAPE,
            distribution.name(),
        );
        let shares: Map<String, Value> = Kind::NAMES
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
            "shared": shared,
        });
        Ok(visitor.visit(workload, Choice::new(title, settings)))
    }
}
