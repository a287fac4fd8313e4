//! Options of TATP.
//!
//! Owns: names, defaults and help of its options, and what they mean. Never: judges a value; the workload does.

use clap::{Args, ValueEnum};
use serde_json::json;

use super::parameters::{Class, Mix};
use super::{SUBSCRIBERS_DEFAULT, Tatp};
use crate::keys::KeyChoice;
use crate::registry::{
    ApartArgs, BadOptions, Choice, Classes, Common, EXPLAINED_SEED, Options, Visitor, mixes,
};
use crate::text::count;

/// TATP: seven short transactions on the subscribers of a phone network.
///
/// A known share of most transactions asks for rows that are not there. Such an expected failure is a complete
/// transaction and counts in the throughput; the share of successes is shown beside it.
#[derive(Debug, Args)]
#[command(after_help = mixes("seven", &Class::STANDARD_PERCENT, &Class::NAMES))]
pub struct TatpOptions {
    /// Number of subscribers.
    #[arg(long, value_name = "N", default_value_t = SUBSCRIBERS_DEFAULT, help_heading = "Workload")]
    subscribers: u64,
    /// Transactions to run: `standard`, or one class alone (see below).
    #[arg(long, value_name = "M", default_value = "standard", help_heading = "Workload")]
    mix: String,
    /// Distribution of the subscribers.
    #[arg(long, value_enum, default_value_t = Keys::Uniform, help_heading = "Workload")]
    keys: Keys,
    #[command(flatten)]
    apart: ApartArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Keys {
    /// All alike.
    Uniform,
    /// By the specification's non-uniform distribution.
    Nurand,
}

impl Options for TatpOptions {
    const NAME: &'static str = "tatp";
    const CLASSES: &'static [Classes] = &[Classes { when: None, names: &Class::NAMES }];

    type Explained = Tatp;

    fn explained() -> Result<Vec<Tatp>, BadOptions> {
        Ok(vec![Tatp::new(SUBSCRIBERS_DEFAULT, Mix::Standard, KeyChoice::Uniform, EXPLAINED_SEED)?])
    }

    fn configure<V: Visitor>(&self, common: Common, visitor: V) -> Result<V::Output, BadOptions> {
        let mix: Mix = self.mix.parse()?;
        let (choice, keys) = match self.keys {
            Keys::Uniform => (KeyChoice::Uniform, "uniform"),
            Keys::Nurand => (KeyChoice::NonUniform, "nurand"),
        };
        let workload = Tatp::new(self.subscribers, mix, choice, common.seed)?;
        let workload = if self.apart.apart { workload.apart() } else { workload };
        let title =
            format!("{} subscribers, mix {mix}, keys {keys}{}", count(self.subscribers), self.apart.title());
        let settings = json!({
            "subscribers": self.subscribers,
            "mix": mix.to_string(),
            "keys": keys,
            "apart": self.apart.apart,
        });
        Ok(visitor.visit(workload, Choice::new(title, settings)))
    }
}
