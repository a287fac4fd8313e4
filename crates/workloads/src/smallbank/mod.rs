//! SmallBank: customers with savings and checking accounts, and short transactions that concentrate on popular
//! customers (Alomari, Cahill, Fekete and Röhm, ICDE 2008; `SendPayment` and the mix as in H-Store).
//!
//! Owns: the assembly of its parts into a [`Workload`]. The parts: [`schema`], the requests of clients
//! ([`parameters`]), the transactions ([`procedures`]) and the proof of their effects (`audit`).
//!
//! It was designed to show anomalies below serializability: `WriteCheck` decides by a sum of which it writes one part,
//! while `TransactSavings` writes the other.
//!
//! Amounts are drawn from one cent to 100 dollars, and `TransactSavings` withdraws as often as it deposits. A
//! withdrawal that an account does not cover is an expected failure: a complete transaction that has changed nothing.

mod audit;
pub mod options;
pub mod parameters;
pub mod procedures;
pub mod schema;
mod shares;
pub mod stored;

use std::hint::black_box;

use atrapos::{
    Abort, AbortReason, Database, Handles, LoadError, LoadProgress, Procedures, RegisterError, Schema,
};
use atrapos_runtime::rng::Seed;

use crate::client::Client;
use crate::keys::KeySet;
use crate::ledger::Ledger;
use crate::popularity::{Popularity, Zipfs};
use crate::random::Random;
use crate::room::{self, NotEnoughMemory};
use crate::shares::NoShare;
use crate::workload::{AuditError, AuditReport, ClassId, Outcome, Reach, SetupError, Workload};
use parameters::{Class, Mix, Parameters, Skew};
use schema::{Account, Checking, Saving, Tables, loaded, name_of};
use stored::{Amalgamate, Balance, DepositChecking, SendPayment, TransactSavings, WriteCheck};

/// Default number of customers.
pub const CUSTOMERS_DEFAULT: u64 = 100_000;
/// Default exponent of Zipf's distribution.
pub const THETA_DEFAULT: f64 = 0.99;
/// Default share of the requests that goes to a hotspot.
pub const HOTSPOT_SHARE_DEFAULT: f64 = 0.25;
/// Greatest number of customers: more have no names.
pub const CUSTOMERS_MAX: u64 = 999_999_999_999_999;

/// Configuration of SmallBank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmallBankConfig {
    /// Number of customers.
    pub customers: u64,
    /// Transaction classes that are run.
    pub mix: Mix,
    /// Skew of the choice of customers.
    pub skew: Skew,
    /// True if each table and index is a family of its own.
    pub apart: bool,
    /// Seed of the population and the choices.
    pub seed: u64,
}

impl Default for SmallBankConfig {
    fn default() -> SmallBankConfig {
        SmallBankConfig {
            customers: CUSTOMERS_DEFAULT,
            mix: Mix::Standard,
            skew: Skew::Zipf(THETA_DEFAULT),
            apart: false,
            seed: 1,
        }
    }
}

/// Reasons for which a configuration is not possible.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum BadSmallBank {
    /// There are not enough customers for a payment, or more than have names.
    #[error("{0} customers are not possible; use 2 to {CUSTOMERS_MAX}")]
    Customers(u64),
    /// The value is not an exponent.
    #[error("the Zipf exponent {0} is not possible; use 0 (uniform) or more")]
    Theta(f64),
    /// The hotspot is empty.
    #[error("a hotspot of 0 customers is not possible; use at least 1, or none at all")]
    Hotspot,
    /// The value is not a share.
    #[error("the share {0} of a hotspot is not possible; use 0 to 1")]
    Share(f64),
}

/// One configuration of SmallBank.
#[derive(Clone, Debug)]
pub struct SmallBank {
    config: SmallBankConfig,
    zipfs: Option<Zipfs>,
}

impl SmallBank {
    /// Creates the benchmark with this configuration.
    ///
    /// # Errors
    /// Fails with the reason for which the configuration is not possible, and the possible values.
    pub fn new(config: SmallBankConfig) -> Result<SmallBank, BadSmallBank> {
        if !(2..=CUSTOMERS_MAX).contains(&config.customers) {
            return Err(BadSmallBank::Customers(config.customers));
        }
        let zipfs = match config.skew {
            Skew::Zipf(theta) => Some(Zipfs::new(theta).ok_or(BadSmallBank::Theta(theta))?),
            Skew::Hotspot { customers: 0, .. } => return Err(BadSmallBank::Hotspot),
            Skew::Hotspot { share, .. } if !(0.0..=1.0).contains(&share) => {
                return Err(BadSmallBank::Share(share));
            }
            Skew::Hotspot { .. } => None,
        };
        Ok(SmallBank { config, zipfs })
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &SmallBankConfig {
        &self.config
    }
}

/// Bytes of the encoded rows and keys of a customer: account, savings, checking.
const ENCODED_BYTES_PER_CUSTOMER: u64 = (15 + 8) + 2 * (8 + 8);

/// Bytes of memory per customer, all overhead included: measured and rounded up.
const RESIDENT_BYTES_PER_CUSTOMER: u64 = 160;

/// Customers of the database on which transactions are recorded.
const RECORDED_CUSTOMERS: u64 = 1_000;

/// State of one SmallBank client.
#[derive(Clone, Debug)]
pub struct SmallBankState {
    tables: Tables,
    parameters: Parameters,
}

/// Keeps the seeds of clients apart from those of the population.
const CLIENT_STREAM: u64 = u64::MAX - 3;

impl Workload for SmallBank {
    type State = SmallBankState;

    fn classes(&self) -> &'static [&'static str] {
        &Class::NAMES
    }

    fn updates(&self, class: ClassId) -> bool {
        Class::ALL.get(class.index()).is_some_and(|class| class.updates())
    }

    fn only_reads(&self) -> bool {
        matches!(self.config.mix, Mix::Only(class) if !class.updates())
    }

    fn to_record(&self) -> Vec<SmallBank> {
        let customers = self.config.customers.min(RECORDED_CUSTOMERS);
        let of = |class| SmallBank {
            config: SmallBankConfig { customers, mix: Mix::Only(class), ..self.config },
            zipfs: self.zipfs.clone(),
        };
        Class::ALL.map(of).into()
    }

    fn schema(&self) -> Schema {
        let schema = schema::schema(self.config.customers);
        if self.config.apart { schema.apart() } else { schema }
    }

    fn encoded_bytes(&self) -> u64 {
        self.config.customers * ENCODED_BYTES_PER_CUSTOMER
    }

    fn check_memory(&self, available_bytes: u64) -> Result<(), NotEnoughMemory> {
        room::check("customers", self.config.customers, RESIDENT_BYTES_PER_CUSTOMER, available_bytes)
    }

    fn expected_rows(&self) -> u64 {
        3 * self.config.customers
    }

    fn load(&self, db: &Database, progress: &LoadProgress) -> Result<u64, LoadError> {
        let tables = Tables::of(db).map_err(|error| LoadError::Source(error.to_string()))?;
        let SmallBankConfig { customers, seed, .. } = self.config;
        db.load(progress, move |loader| {
            for customer in loader.share_of(tables.savings, 0, customers - 1).into_iter().flatten() {
                let (savings, checking) = loaded(seed, customer);
                loader.add(tables.account, &name_of(customer), &Account { customer })?;
                loader.add(tables.savings, &customer, &Saving { balance: savings })?;
                loader.add(tables.checking, &customer, &Checking { balance: checking })?;
            }
            Ok(())
        })
    }

    fn register(&self, registry: &mut impl Procedures, handles: &impl Handles) -> Result<(), RegisterError> {
        registry.register::<Balance>(handles)?;
        registry.register::<DepositChecking>(handles)?;
        registry.register::<TransactSavings>(handles)?;
        registry.register::<Amalgamate>(handles)?;
        registry.register::<WriteCheck>(handles)?;
        registry.register::<SendPayment>(handles)
    }

    fn distributed_share(&self, _parts: usize) -> Result<f64, NoShare> {
        shares::distributed()
    }

    fn state(&self, db: &Database, reach: Reach, stream: u64) -> Result<SmallBankState, SetupError> {
        let tables = Tables::of(db)?;
        let SmallBankConfig { customers, mix, skew, seed, .. } = self.config;
        let own = match reach {
            Reach::Everywhere => KeySet::range(0, customers - 1).expect("there are two customers at least"),
            Reach::OwnedBy(worker) => {
                KeySet::owned_by(&db.scheme(), tables.savings.id(), 0, customers - 1, worker)
                    .filter(|own| own.len() > 1)
                    .ok_or(SetupError::NothingOwned { worker })?
            }
        };
        let popularity = Popularity::new(own.len(), self.zipfs.as_ref(), true);
        let random = Random::of_stream(Seed(seed).derive(CLIENT_STREAM).0, stream);
        Ok(SmallBankState { tables, parameters: Parameters::new(mix, skew, own, popularity, random) })
    }

    // One function for all classes, as in TATP: a future inside another costs a copy of it.
    #[inline]
    async fn transaction(
        client: &Client<'_>,
        state: &mut SmallBankState,
    ) -> (ClassId, Result<Outcome, Abort>) {
        let (tables, parameters) = (state.tables, &mut state.parameters);
        let class = parameters.class();
        let outcome = match class {
            Class::Balance => {
                let ask = Balance { name: parameters.name() };
                client.run(&tables, &ask).await.map(|sum| moved(black_box(sum).map(|_| 0)))
            }
            Class::DepositChecking => {
                let (name, amount) = (parameters.name(), parameters.amount());
                let deposit = DepositChecking { name, amount };
                client.run(&tables, &deposit).await.map(|is| moved(is.then_some(amount)))
            }
            Class::TransactSavings => {
                let (name, amount) = (parameters.name(), parameters.signed_amount());
                let transact = TransactSavings { name, amount };
                client.run(&tables, &transact).await.map(|is| moved(is.then_some(amount)))
            }
            Class::Amalgamate => {
                let amalgamate = Amalgamate { names: parameters.names() };
                client.run(&tables, &amalgamate).await.map(|is| moved(is.then_some(0)))
            }
            Class::WriteCheck => {
                let (name, amount) = (parameters.name(), parameters.amount());
                let write = WriteCheck { name, amount };
                let taken = client.run(&tables, &write).await;
                taken.map(|taken| moved(taken.map(|taken| -taken)))
            }
            Class::SendPayment => {
                let (names, amount) = (parameters.names(), parameters.amount());
                let send = SendPayment { names, amount };
                client.run(&tables, &send).await.map(|is| moved(is.then_some(0)))
            }
        };
        let outcome = match outcome {
            Err(abort)
                if abort.reason() == AbortReason::User && abort.detail() == procedures::NOT_COVERED =>
            {
                Ok(Outcome::ExpectedFailure)
            }
            outcome => outcome,
        };
        (class.id(), outcome)
    }

    fn audit(&self, db: &Database, ledger: &Ledger) -> Result<AuditReport, AuditError> {
        audit::audit(&self.config, db, ledger)
    }
}

/// Returns the outcome of a transaction by the amount that it deposited, if the customer exists.
#[inline]
fn moved(amount: Option<i64>) -> Outcome {
    amount.map_or(Outcome::ExpectedFailure, Outcome::Moved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mixes_without_updates_only_read() {
        let only_reads = |mix| {
            SmallBank::new(SmallBankConfig { mix, ..SmallBankConfig::default() })
                .is_ok_and(|workload| workload.only_reads())
        };
        assert!(!only_reads(Mix::Standard));
        for class in Class::ALL {
            assert_eq!(only_reads(Mix::Only(class)), !class.updates(), "{class:?}");
        }
    }

    #[test]
    fn senseless_configurations_are_refused() {
        let base = SmallBankConfig::default();
        let refused = |config| SmallBank::new(config).expect_err("refused").to_string();
        assert!(refused(SmallBankConfig { customers: 1, ..base }).contains("1 customers"));
        assert!(refused(SmallBankConfig { customers: u64::MAX, ..base }).contains("use 2 to"));
        assert!(refused(SmallBankConfig { skew: Skew::Zipf(-1.0), ..base }).contains("-1"));
        let hotspot = |customers, share| Skew::Hotspot { customers, share };
        assert!(refused(SmallBankConfig { skew: hotspot(0, 0.5), ..base }).contains("0 customers"));
        assert!(refused(SmallBankConfig { skew: hotspot(9, 1.5), ..base }).contains("1.5"));
        assert!(refused(SmallBankConfig { skew: hotspot(9, f64::NAN), ..base }).contains("NaN"));
        let all = SmallBank::new(SmallBankConfig { customers: CUSTOMERS_MAX, ..base }).expect("all names");
        assert!(all.check_memory(1 << 40).unwrap_err().to_string().contains("customers need about"));
    }
}
