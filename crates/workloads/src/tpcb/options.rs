//! Options of TPC-B.
//!
//! Owns: names, defaults and help of its options, and what they mean. Never: judges a value; the workload does.

use clap::Args;
use serde_json::json;

use super::{ACCOUNTS_DEFAULT, BRANCHES_DEFAULT, NAMES, REMOTE_DEFAULT, Tpcb, TpcbConfig};
use crate::registry::{ApartArgs, BadOptions, Choice, Classes, Common, EXPLAINED_SEED, Options, Visitor};
use crate::text::count;

/// TPC-B: a bank. Each transaction updates an account, a teller and a branch, and appends to a history.
///
/// It runs where the teller's branch is; a share of the accounts is of other branches, and maybe of other workers. The history
/// grows by 50 bytes of key and row per transaction, besides what the tree adds.
#[derive(Debug, Args)]
pub struct TpcbOptions {
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
    apart: ApartArgs,
}

impl Options for TpcbOptions {
    const NAME: &'static str = "tpcb";
    const CLASSES: &'static [Classes] = &[Classes { when: None, names: &NAMES }];

    type Explained = Tpcb;

    fn explained() -> Result<Vec<Tpcb>, BadOptions> {
        Ok(vec![Tpcb::new(TpcbConfig { seed: EXPLAINED_SEED, ..TpcbConfig::default() })?])
    }

    fn configure<V: Visitor>(&self, common: Common, visitor: V) -> Result<V::Output, BadOptions> {
        let &TpcbOptions { branches, accounts_per_branch, remote, apart } = self;
        let seed = common.seed;
        let workload =
            Tpcb::new(TpcbConfig { branches, accounts_per_branch, remote, apart: apart.apart, seed })?;
        let title = format!(
            "{} branches of {} accounts, {}% remote{}",
            count(branches),
            count(u64::from(accounts_per_branch)),
            remote * 100.0,
            apart.title()
        );
        let settings = json!({ "branches": branches, "accounts_per_branch": accounts_per_branch, "remote": remote, "apart": apart.apart });
        Ok(visitor.visit(workload, Choice::new(title, settings)))
    }
}
