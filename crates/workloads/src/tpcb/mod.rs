//! TPC Benchmark B (revision 2.0): a bank of branches, tellers and accounts, and one transaction that updates one of
//! each and appends to a history.
//!
//! Owns: the assembly of its parts into a [`Workload`]. The parts: [`schema`], the requests of clients
//! ([`parameters`]), the transaction ([`procedures`]) and the proof of its effects (`audit`).
//!
//! The transaction runs at the branch of its teller. In 15 percent of the transactions (or any other share) the account
//! belongs to another branch, which another worker may own; these *remote* transactions are a class of their own in
//! results.
//!
//! The history grows with every transaction and is never cleared: a long run needs memory for it, 50 bytes of key and row per
//! transaction.

mod audit;
pub mod options;
pub mod parameters;
pub mod procedures;
pub mod schema;
mod shares;
pub mod stored;

use std::hint::black_box;

use atrapos::{Abort, Database, Handles, LoadError, LoadProgress, Procedures, RegisterError, Schema};
use atrapos_runtime::Clock;
use atrapos_runtime::rng::Seed;

use crate::client::Client;
use crate::keys::KeySet;
use crate::ledger::Ledger;
use crate::random::Random;
use crate::room::{self, NotEnoughMemory};
use crate::shares::NoShare;
use crate::workload::{AuditError, AuditReport, ClassId, Outcome, Reach, SetupError, Workload};
use parameters::Parameters;
use schema::{Account, Branch, TELLERS, Tables, Teller};
use stored::AccountUpdate;

/// Default number of branches.
pub const BRANCHES_DEFAULT: u64 = 16;
/// Accounts of a branch in the specification.
pub const ACCOUNTS_DEFAULT: u32 = 100_000;
/// Share of the transactions whose account belongs to another branch, in the specification.
pub const REMOTE_DEFAULT: f64 = 0.15;

/// Configuration of TPC-B.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TpcbConfig {
    /// Number of branches.
    pub branches: u64,
    /// Accounts of each branch. Fewer than the specification's make a small database for tests.
    pub accounts_per_branch: u32,
    /// Probability that the account belongs to another branch than the teller, from 0 to 1.
    pub remote: f64,
    /// True if each table is a family of its own.
    pub apart: bool,
    /// Seed of the choices of all clients.
    pub seed: u64,
}

impl Default for TpcbConfig {
    fn default() -> TpcbConfig {
        TpcbConfig {
            branches: BRANCHES_DEFAULT,
            accounts_per_branch: ACCOUNTS_DEFAULT,
            remote: REMOTE_DEFAULT,
            apart: false,
            seed: 1,
        }
    }
}

/// Reasons for which a configuration is not possible.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum BadTpcb {
    /// There are no branches, or more than can be counted.
    #[error("{0} branches are not possible; use 1 to {BRANCHES_MAX}")]
    Branches(u64),
    /// There are no accounts.
    #[error("branches without accounts are not possible; use 1 to {} accounts per branch", u32::MAX)]
    Accounts,
    /// The value is not a probability.
    #[error("the share {0} of remote transactions is not possible; use 0 to 1")]
    Remote(f64),
}

/// Greatest number of branches: the accounts of more could not be counted.
pub const BRANCHES_MAX: u64 = 1 << 31;

/// One configuration of TPC-B.
#[derive(Clone, Debug, PartialEq)]
pub struct Tpcb {
    config: TpcbConfig,
}

impl Tpcb {
    /// Creates the benchmark with this configuration.
    ///
    /// # Errors
    /// Fails with the reason for which the configuration is not possible, and the possible values.
    pub fn new(config: TpcbConfig) -> Result<Tpcb, BadTpcb> {
        if !(1..=BRANCHES_MAX).contains(&config.branches) {
            return Err(BadTpcb::Branches(config.branches));
        }
        if config.accounts_per_branch == 0 {
            return Err(BadTpcb::Accounts);
        }
        if !(0.0..=1.0).contains(&config.remote) {
            return Err(BadTpcb::Remote(config.remote));
        }
        Ok(Tpcb { config })
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &TpcbConfig {
        &self.config
    }

    /// Creates the generator of one client that uses the tellers of the branches in `own`; clients with different
    /// `stream`s are independent.
    #[must_use]
    pub fn parameters(&self, own: KeySet, stream: u64) -> Parameters {
        let TpcbConfig { branches, accounts_per_branch, remote, seed, .. } = self.config;
        let random = Random::of_stream(Seed(seed).derive(CLIENT_STREAM).0, stream);
        Parameters::new(branches, accounts_per_branch, remote, own, random)
    }
}

/// Bytes of a branch, teller or account, key included.
const RECORD_BYTES: u64 = 100;

/// Rows of the history that one worker adds in a second at a high rate.
const HISTORY_PER_SECOND: u64 = 1_400_000;

/// Bytes of memory by which a row of the history makes its tree grow: 50 were measured.
const RESIDENT_BYTES_PER_HISTORY: u64 = 52;

/// Bytes of memory per account, all overhead included: measured and rounded up.
const RESIDENT_BYTES_PER_ACCOUNT: u64 = 170;

/// Branches and accounts of each on which transactions are recorded.
const RECORDED: (u64, u32) = (8, 50);

/// The names of the transaction classes.
pub const NAMES: [&str; 2] = ["account-update", "account-update-remote"];
/// Transactions whose account belongs to the teller's branch.
pub const LOCAL: ClassId = ClassId(0);
/// Transactions whose account belongs to another branch.
pub const REMOTE: ClassId = ClassId(1);

/// State of one TPC-B client.
#[derive(Clone, Debug)]
pub struct TpcbState {
    tables: Tables,
    parameters: Parameters,
    clock: Clock,
}

/// Keeps the seeds of clients apart from those of other workloads.
const CLIENT_STREAM: u64 = u64::MAX - 1;

impl Workload for Tpcb {
    type State = TpcbState;

    fn classes(&self) -> &'static [&'static str] {
        &NAMES
    }

    fn updates(&self, _: ClassId) -> bool {
        true
    }

    fn to_record(&self) -> Vec<Tpcb> {
        let (branches, accounts_per_branch) = RECORDED;
        let of =
            |remote| Tpcb { config: TpcbConfig { branches, accounts_per_branch, remote, ..self.config } };
        vec![of(0.0), of(1.0)]
    }

    fn schema(&self) -> Schema {
        let schema = schema::schema(self.config.branches);
        if self.config.apart { schema.apart() } else { schema }
    }

    fn encoded_bytes(&self) -> u64 {
        self.expected_rows() * RECORD_BYTES
    }

    fn growth_bytes_per_second(&self) -> u64 {
        HISTORY_PER_SECOND * RESIDENT_BYTES_PER_HISTORY
    }

    fn check_memory(&self, available_bytes: u64) -> Result<(), NotEnoughMemory> {
        let accounts = u64::from(self.config.accounts_per_branch) + u64::from(TELLERS) + 1;
        room::check("branches", self.config.branches, accounts * RESIDENT_BYTES_PER_ACCOUNT, available_bytes)
    }

    fn expected_rows(&self) -> u64 {
        self.config.branches * (1 + u64::from(TELLERS) + u64::from(self.config.accounts_per_branch))
    }

    fn load(&self, db: &Database, progress: &LoadProgress) -> Result<u64, LoadError> {
        let tables = Tables::of(db).map_err(|error| LoadError::Source(error.to_string()))?;
        let TpcbConfig { branches, accounts_per_branch, .. } = self.config;
        db.load(progress, move |loader| {
            for b_id in loader.share_of(tables.branch, 0, branches - 1).into_iter().flatten() {
                loader.add(tables.branch, &b_id, &Branch::loaded(b_id))?;
                for t_id in 0..TELLERS {
                    loader.add(tables.teller, &(b_id, t_id), &Teller::loaded(b_id, t_id))?;
                }
                for a_id in 0..accounts_per_branch {
                    loader.add(tables.account, &(b_id, a_id), &Account::loaded(b_id, a_id))?;
                }
            }
            Ok(())
        })
    }

    fn register(&self, registry: &mut impl Procedures, handles: &impl Handles) -> Result<(), RegisterError> {
        registry.register::<AccountUpdate>(handles)
    }

    fn distributed_share(&self, parts: usize) -> Result<f64, NoShare> {
        shares::distributed(self, parts)
    }

    fn remote_share(&self) -> Option<f64> {
        Some(self.config.remote)
    }

    fn with_remote_share(&self, share: f64) -> Tpcb {
        Tpcb { config: TpcbConfig { remote: share, ..self.config } }
    }

    fn state(&self, db: &Database, reach: Reach, stream: u64) -> Result<TpcbState, SetupError> {
        let tables = Tables::of(db)?;
        let branches = self.config.branches;
        let own = match reach {
            Reach::Everywhere => KeySet::range(0, branches - 1).expect("there is at least one branch"),
            Reach::OwnedBy(worker) => {
                KeySet::owned_by(&db.scheme(), tables.branch.id(), 0, branches - 1, worker)
                    .ok_or(SetupError::NothingOwned { worker })?
            }
        };
        Ok(TpcbState { tables, parameters: self.parameters(own, stream), clock: Clock::real() })
    }

    #[inline]
    async fn transaction(client: &Client<'_>, state: &mut TpcbState) -> (ClassId, Result<Outcome, Abort>) {
        let (tables, request) = (state.tables, state.parameters.request());
        let class = if request.is_remote() { REMOTE } else { LOCAL };
        let time_ns = state.clock.ns(state.clock.now());
        let update = AccountUpdate { request, time_ns };
        let outcome = client.run(&tables, &update).await;
        (
            class,
            outcome.map(|balance| {
                black_box(balance);
                Outcome::Moved(request.delta)
            }),
        )
    }

    fn audit(&self, db: &Database, ledger: &Ledger) -> Result<AuditReport, AuditError> {
        audit::audit(&self.config, db, ledger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senseless_configurations_are_refused() {
        let base = TpcbConfig::default();
        let refused = |config| Tpcb::new(config).expect_err("refused").to_string();
        assert!(refused(TpcbConfig { branches: 0, ..base }).contains("0 branches"));
        assert!(refused(TpcbConfig { branches: u64::MAX, ..base }).contains("use 1 to"));
        assert!(refused(TpcbConfig { accounts_per_branch: 0, ..base }).contains("without accounts"));
        assert!(refused(TpcbConfig { remote: 1.01, ..base }).contains("1.01"));
        assert!(refused(TpcbConfig { remote: f64::NAN, ..base }).contains("NaN"));
        let largest = TpcbConfig { branches: BRANCHES_MAX, accounts_per_branch: u32::MAX, ..base };
        let largest = Tpcb::new(largest).expect("possible somewhere");
        assert!(largest.check_memory(1 << 40).unwrap_err().to_string().contains("branches need about"));
    }
}
