//! TPC-C (specification 5.11): nine tables of a wholesale supplier, five transactions.
//!
//! Owns: the assembly of its parts into a [`Workload`]. The parts: [`schema`], the population ([`generator`],
//! [`nurand`]), the inputs of clients ([`parameters`]) and their timing ([`terminal`]), the transactions
//! ([`procedures`]) and the proof of their effects (`audit`).
//!
//! # Results
//!
//! One New-Order in a hundred names an item that does not exist and is rolled back: an [`Outcome::ExpectedFailure`], as
//! is a delivery that finds no order in any of its districts. The specification counts orders per minute, rolled back
//! ones included; its metric, tpmC, also requires think times, audits and prices, so the metric reported here has
//! another name.
//!
//! # Differences from the specification
//!
//! - Without think times (the default) a client is not tied to a warehouse: it draws one for every transaction, so that any
//!   number of clients loads all warehouses alike.
//! - A delivery is one transaction that reads the numbers of the next orders and one per district, and Stock-Level is
//!   three, one per statement; the specification leaves that open.
//! - The items of an order are all looked up before anything is changed, so that a rollback has nothing to undo.
//! - Dates come from the machine's monotonic clock, beginning at the date of the load.

mod audit;
pub mod generator;
mod load;
pub mod nurand;
pub mod options;
pub mod parameters;
pub mod procedures;
pub mod schema;
mod shares;
pub mod stored;
pub mod terminal;

use std::hint::black_box;
use std::time::Duration;

use atrapos::{
    Abort, AbortReason, Database, Handles, LoadError, LoadProgress, Procedures, RegisterError, Schema,
    Scheme, WorkerId,
};
use atrapos_runtime::Clock;
use atrapos_runtime::rng::Seed;

use crate::client::Client;
use crate::keys::KeySet;
use crate::ledger::Ledger;
use crate::random::Random;
use crate::room::{self, NotEnoughMemory};
use crate::shares::NoShare;
use crate::workload::{AuditError, AuditReport, ClassId, Outcome, Reach, SetupError, Workload};
use generator::{CUSTOMERS, ITEMS, LOADED_AT, Population, Scale};
use parameters::{Class, Mix, Parameters, Remote};
use procedures::{DeliverFrom, StatusOf};
use schema::{DISTRICTS, Moment, Tables};
use stored::{
    CountLow, Deliver, NewOrder, NextOrder, NextOrders, Payment, RecentItems, StatusOfOrder, StockLevel,
};
use terminal::{Deliveries, DeliveryRequest, Queues, TERMINALS_PER_WAREHOUSE, Terminal};

/// Default number of warehouses.
pub const WAREHOUSES_DEFAULT: u64 = 2;

/// Greatest number of warehouses.
pub const WAREHOUSES_MAX: u64 = 32_767;

/// The possible numbers of items, and of customers per district: fewer than the specification's for small machines and
/// tests, up to those for which the specification requires room (clause 1.3).
const ITEMS_POSSIBLE: std::ops::RangeInclusive<u64> = 100..=200_000;
const CUSTOMERS_POSSIBLE: std::ops::RangeInclusive<u64> = 10..=96_000;

/// Configuration of TPC-C.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TpccConfig {
    /// Number of warehouses.
    pub warehouses: u64,
    /// Number of items; the specification has 100,000.
    pub items: u64,
    /// Customers per district; the specification has 3,000.
    pub customers: u64,
    /// Transactions that are run.
    pub mix: Mix,
    /// Shares of payments and order lines with other warehouses.
    pub remote: Remote,
    /// The mode in which deliveries are made.
    pub deliveries: Deliveries,
    /// True if terminals belong to warehouses, enter their inputs, and think.
    pub think: bool,
    /// True if each table and index is a family of its own.
    pub apart: bool,
    /// Seed of the population and the inputs.
    pub seed: u64,
}

impl Default for TpccConfig {
    fn default() -> TpccConfig {
        TpccConfig {
            warehouses: WAREHOUSES_DEFAULT,
            items: ITEMS.into(),
            customers: CUSTOMERS.into(),
            mix: Mix::Standard,
            remote: Remote::STANDARD,
            deliveries: Deliveries::Interactive,
            think: false,
            apart: false,
            seed: 1,
        }
    }
}

/// Reasons for which a configuration is not possible.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum BadTpcc {
    /// There are no warehouses, or too many.
    #[error("{0} warehouses are not possible; choose from 1 to {WAREHOUSES_MAX}")]
    Warehouses(u64),
    /// There are too few items, or too many.
    #[error(
        "{0} items are not possible; choose from {least} to {most}, the specification has {ITEMS}",
        least = ITEMS_POSSIBLE.start(), most = ITEMS_POSSIBLE.end()
    )]
    Items(u64),
    /// There are too few customers, or too many.
    #[error(
        "{0} customers per district are not possible; choose from {least} to {most}, the specification has {CUSTOMERS}",
        least = CUSTOMERS_POSSIBLE.start(), most = CUSTOMERS_POSSIBLE.end()
    )]
    Customers(u64),
    /// The value is not a share.
    #[error("the share {share} of remote {what} is not possible; use 0 to 1")]
    Remote {
        /// Payments or order lines.
        what: &'static str,
        /// The share that was requested.
        share: f64,
    },
}

/// One configuration of TPC-C.
#[derive(Clone, Debug)]
pub struct Tpcc {
    config: TpccConfig,
    population: Population,
    queues: Queues,
    /// True if transactions are recorded: then no order is rolled back, because the recording of a rolled-back order
    /// would make every action of the transaction optional.
    is_recorded: bool,
}

impl Tpcc {
    /// Creates the benchmark with this configuration.
    ///
    /// # Errors
    /// Fails with the reason for which the configuration is not possible, and the possible values.
    pub fn new(config: TpccConfig) -> Result<Tpcc, BadTpcc> {
        let TpccConfig { warehouses, items, customers, remote, seed, .. } = config;
        if !(1..=WAREHOUSES_MAX).contains(&warehouses) {
            return Err(BadTpcc::Warehouses(warehouses));
        }
        if !ITEMS_POSSIBLE.contains(&items) {
            return Err(BadTpcc::Items(items));
        }
        if !CUSTOMERS_POSSIBLE.contains(&customers) {
            return Err(BadTpcc::Customers(customers));
        }
        for (what, share) in [("payments", remote.payments), ("order lines", remote.lines)] {
            if !(0.0..=1.0).contains(&share) {
                return Err(BadTpcc::Remote { what, share });
            }
        }
        let scale = Scale { warehouses: warehouses as u16, items: items as u32, customers: customers as u32 };
        let population = Population::new(seed, scale);
        Ok(Tpcc { config, population, queues: Queues::default(), is_recorded: false })
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &TpccConfig {
        &self.config
    }

    /// Returns the population.
    #[must_use]
    pub fn population(&self) -> &Population {
        &self.population
    }

    /// Audits like [`audit`](Workload::audit) a database whose transactions were not counted, for instance after a
    /// crash: everything but the numbers of orders and payments is checked.
    ///
    /// # Errors
    /// The first discrepancy found.
    pub fn audit_uncounted(&self, db: &Database) -> Result<AuditReport, AuditError> {
        audit::audit(&self.population, db, None)
    }

    fn client(&self, tables: Tables, parameters: Parameters, terminal: Terminal) -> TpccState {
        TpccState { tables, parameters, terminal, clock: Clock::real(), is_recorded: self.is_recorded }
    }

    fn parameters(
        &self,
        db: &Database,
        tables: Tables,
        reach: Reach,
        stream: u64,
    ) -> Result<Parameters, SetupError> {
        let scale = self.population.scale();
        let all = 1..=scale.warehouses;
        let warehouses = match reach {
            Reach::Everywhere => KeySet::of_sorted(all.map(u64::from)),
            Reach::OwnedBy(worker) => {
                KeySet::of_sorted(owned_by(&db.scheme(), tables, scale, worker).into_iter().map(u64::from))
            }
        };
        let warehouses = warehouses.ok_or(match reach {
            Reach::Everywhere => SetupError::NothingOwned { worker: WorkerId(0) },
            Reach::OwnedBy(worker) => SetupError::NothingOwned { worker },
        })?;
        let random = Random::of_stream(Seed(self.config.seed).derive(CLIENT_STREAM).0, stream);
        let TpccConfig { mix, remote, .. } = self.config;
        let parameters = Parameters::new(mix, remote, scale, self.population.constants(), warehouses, random);
        Ok(if self.is_recorded { parameters.without_rollbacks() } else { parameters })
    }
}

/// Returns the warehouses of a worker, ascending.
fn owned_by(scheme: &Scheme, tables: Tables, scale: Scale, worker: WorkerId) -> Vec<u16> {
    let family = scheme.family(tables.warehouse.id());
    let owner = |w_id: u16| family.owner(family.partition_of(&w_id.to_be_bytes()));
    (1..=scale.warehouses).filter(|w_id| owner(*w_id) == worker).collect()
}

/// Warehouses, items and customers per district of the database on which transactions are recorded, such that every
/// delivery finds an order.
const RECORDED: (u64, u64, u64) = (2, 1_000, 600);

/// Memory of a database per encoded byte, in percent: 1.45 times with two warehouses and 1.24 times with eight were
/// measured, and rounded up.
const RESIDENT_PER_ENCODED_PERCENT: u64 = 150;

/// Bytes by which the tables of a worker grow in a second, measured at 210,000 transactions of the standard mix (330 bytes each),
/// 210,000 New-Orders (700), and 650,000 Payments (65).
const GROWTH_BYTES_PER_SECOND: u64 = 72 << 20;
const GROWTH_BYTES_PER_SECOND_NEW_ORDER: u64 = 150 << 20;
const GROWTH_BYTES_PER_SECOND_PAYMENT: u64 = 45 << 20;
/// The same for halves of both, of which there are 300,000.
const GROWTH_BYTES_PER_SECOND_HALVES: u64 = 115 << 20;

/// Keeps the seeds of clients apart from those of the population.
const CLIENT_STREAM: u64 = u64::MAX;
/// Keeps the seeds of servers apart from those of terminals.
const SERVER_STREAM: u64 = 1 << 63;

/// State of one TPC-C client.
#[derive(Clone, Debug)]
pub struct TpccState {
    tables: Tables,
    parameters: Parameters,
    terminal: Terminal,
    clock: Clock,
    /// True if each transaction is run in one piece, so that all of it is recorded.
    is_recorded: bool,
}

impl TpccState {
    /// Returns the simulated time of day of the benchmark.
    #[inline]
    fn moment(&self) -> Moment {
        LOADED_AT + self.clock.ns(self.clock.now()) / 1000
    }
}

impl Workload for Tpcc {
    type State = TpccState;

    fn classes(&self) -> &'static [&'static str] {
        &Class::NAMES
    }

    fn updates(&self, class: ClassId) -> bool {
        Class::ALL.get(class.index()).is_some_and(|class| class.updates())
    }

    fn only_reads(&self) -> bool {
        matches!(self.config.mix, Mix::Only(class) if !class.updates())
    }

    fn to_record(&self) -> Vec<Tpcc> {
        let (warehouses, items, customers) = RECORDED;
        let of = |mix| {
            let config = TpccConfig { warehouses, items, customers, mix, ..self.config };
            let config = TpccConfig { deliveries: Deliveries::Interactive, think: false, ..config };
            Tpcc::new(config).map(|tpcc| Tpcc { is_recorded: true, ..tpcc })
        };
        Class::ALL.into_iter().filter_map(|class| of(Mix::Only(class)).ok()).collect()
    }

    fn schema(&self) -> Schema {
        let schema = schema::schema(self.population.scale().warehouses);
        if self.config.apart { schema.apart() } else { schema }
    }

    fn encoded_bytes(&self) -> u64 {
        self.config.warehouses * load::encoded_bytes_per_warehouse(self.population.scale())
    }

    fn growth_bytes_per_second(&self) -> u64 {
        match self.config.mix {
            // Terminals that think make few rows.
            _ if self.config.think => 0,
            Mix::Standard => GROWTH_BYTES_PER_SECOND,
            Mix::NewOrderPayment => GROWTH_BYTES_PER_SECOND_HALVES,
            Mix::Only(Class::NewOrder) => GROWTH_BYTES_PER_SECOND_NEW_ORDER,
            Mix::Only(Class::Payment) => GROWTH_BYTES_PER_SECOND_PAYMENT,
            Mix::Only(_) => 0,
        }
    }

    fn check_memory(&self, available_bytes: u64) -> Result<(), NotEnoughMemory> {
        let each =
            load::encoded_bytes_per_warehouse(self.population.scale()) * RESIDENT_PER_ENCODED_PERCENT / 100;
        room::check("warehouses", self.config.warehouses, each, available_bytes)
    }

    fn expected_rows(&self) -> u64 {
        self.config.warehouses * load::rows_per_warehouse(self.population.scale())
    }

    fn load(&self, db: &Database, progress: &LoadProgress) -> Result<u64, LoadError> {
        load::load(self.population, db, progress)
    }

    fn register(&self, registry: &mut impl Procedures, handles: &impl Handles) -> Result<(), RegisterError> {
        registry.register::<NewOrder>(handles)?;
        registry.register::<Payment>(handles)?;
        registry.register::<StatusOfOrder>(handles)?;
        registry.register::<NextOrders>(handles)?;
        registry.register::<Deliver>(handles)?;
        registry.register::<NextOrder>(handles)?;
        registry.register::<RecentItems>(handles)?;
        registry.register::<CountLow>(handles)?;
        registry.register::<StockLevel>(handles)
    }

    fn distributed_share(&self, parts: usize) -> Result<f64, NoShare> {
        shares::distributed(self, parts)
    }

    fn remote_share(&self) -> Option<f64> {
        Some(self.config.remote.greater())
    }

    fn with_remote_share(&self, share: f64) -> Tpcc {
        Tpcc {
            config: TpccConfig { remote: self.config.remote.scaled_to(share), ..self.config },
            ..self.clone()
        }
    }

    fn state(&self, db: &Database, reach: Reach, stream: u64) -> Result<TpccState, SetupError> {
        let tables = Tables::of(db)?;
        let parameters = self.parameters(db, tables, reach, stream)?;
        let queue = (self.config.deliveries == Deliveries::Deferred).then(|| self.queues.of(reach));
        let terminal = if self.config.think {
            // Streams are numbered from 1 on, in every run.
            let (w_id, d_id) = parameters.seat((stream as u32).wrapping_sub(1));
            Terminal::Human { w_id, d_id, next: None, last: None, queue }
        } else {
            Terminal::Busy { next: None, queue }
        };
        Ok(self.client(tables, parameters, terminal))
    }

    fn server(&self, db: &Database, reach: Reach, stream: u64) -> Result<Option<TpccState>, SetupError> {
        if self.config.deliveries == Deliveries::Interactive {
            return Ok(None);
        }
        let tables = Tables::of(db)?;
        let parameters = self.parameters(db, tables, reach, SERVER_STREAM | stream)?;
        let terminal = Terminal::Server { queue: self.queues.of(reach), request: None };
        Ok(Some(self.client(tables, parameters, terminal)))
    }

    #[inline]
    fn pause(state: &mut TpccState) -> Option<Duration> {
        state.terminal.pause(&mut state.parameters)
    }

    // One function for all classes: a future inside another costs a copy of it. A result that no code reads passes
    // through `black_box`, so that it is returned all the same.
    #[inline]
    async fn transaction(client: &Client<'_>, state: &mut TpccState) -> (ClassId, Result<Outcome, Abort>) {
        let now = state.moment();
        let TpccState { tables, parameters, terminal, .. } = state;
        let tables = *tables;
        let class = terminal.class(parameters);
        let outcome = match class {
            Class::NewOrder => {
                let w_id = terminal.warehouse(parameters);
                let place = NewOrder { input: parameters.new_order(w_id, now) };
                // Looked at where it is: the lines of an order are long.
                match &client.run(&tables, &place).await {
                    Ok(placed) => succeeded(black_box(placed)),
                    Err(abort) if is_rolled_back(abort) => Ok(Outcome::ExpectedFailure),
                    Err(abort) => Err(abort.clone()),
                }
            }
            Class::Payment => {
                let w_id = terminal.warehouse(parameters);
                let pay = Payment { input: parameters.payment(w_id, now) };
                client.run(&tables, &pay).await.and_then(|paid| succeeded(black_box(&paid)))
            }
            Class::OrderStatus => {
                let (w_id, d_id) = (terminal.warehouse(parameters), parameters.district());
                let look = StatusOfOrder { of: StatusOf { w_id, d_id, customer: parameters.customer() } };
                let status = client.run_apart(&tables, &look).await;
                status.and_then(|status| succeeded(black_box(&status)))
            }
            Class::Delivery => {
                let request = terminal.delivery(parameters);
                deliver_all(client, tables, request, now).await
            }
            Class::StockLevel => {
                let (w_id, d_id) = (terminal.warehouse(parameters), terminal.district(parameters));
                let threshold = parameters.threshold();
                if state.is_recorded {
                    let count = StockLevel { w_id, d_id, threshold };
                    let low = client.run_apart(&tables, &count).await;
                    low.and_then(|low| succeeded(&black_box(low)))
                } else {
                    count_low_stock(client, tables, w_id, d_id, threshold).await
                }
            }
        };
        (class.id(), outcome)
    }

    fn audit(&self, db: &Database, ledger: &Ledger) -> Result<AuditReport, AuditError> {
        audit::audit(&self.population, db, Some(ledger))
    }
}

/// Reports success, whatever the result.
#[inline]
fn succeeded<R>(_: &R) -> Result<Outcome, Abort> {
    Ok(Outcome::Succeeded)
}

/// Returns whether an order was rolled back because it named an item that does not exist.
fn is_rolled_back(abort: &Abort) -> bool {
    abort.reason() == AbortReason::User && abort.detail() == procedures::UNUSED_ITEM
}

/// Runs Stock-Level, each statement in a transaction of its own.
async fn count_low_stock(
    client: &Client<'_>,
    tables: Tables,
    w_id: u16,
    d_id: u8,
    threshold: i16,
) -> Result<Outcome, Abort> {
    let look = NextOrder { w_id, d_id };
    let next = client.run_apart(&tables, &look).await?;
    client.give_way().await;
    let collect = RecentItems { w_id, d_id, next };
    let items = client.run_apart(&tables, &collect).await?;
    client.give_way().await;
    let count = CountLow { w_id, items, threshold };
    let low = client.run_apart(&tables, &count).await;
    low.and_then(|low| succeeded(&black_box(low)))
}

/// Delivers the oldest order of every district of a warehouse, each in a transaction of its own.
async fn deliver_all(
    client: &Client<'_>,
    tables: Tables,
    request: DeliveryRequest,
    now: Moment,
) -> Result<Outcome, Abort> {
    let DeliveryRequest { w_id, carrier_id } = request;
    let look = NextOrders { w_id };
    let next = client.run_apart(&tables, &look).await?;
    let mut delivered = 0;
    for (d_id, before) in (1..=DISTRICTS).zip(next) {
        client.give_way().await;
        let deliver = Deliver { from: DeliverFrom { w_id, d_id, before, carrier_id, delivery_d: now } };
        delivered += u32::from(client.run_apart(&tables, &deliver).await?.is_some());
    }
    Ok(if delivered > 0 { Outcome::Succeeded } else { Outcome::ExpectedFailure })
}

/// Returns the number of terminals per worker that the specification requires for a number of warehouses.
#[must_use]
pub fn terminals_per_worker(warehouses: u64, workers: usize) -> usize {
    (warehouses as usize * TERMINALS_PER_WAREHOUSE).div_ceil(workers.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mixes_without_updates_only_read() {
        let only_reads = |mix| {
            Tpcc::new(TpccConfig { mix, ..TpccConfig::default() }).is_ok_and(|workload| workload.only_reads())
        };
        assert!(!only_reads(Mix::Standard) && !only_reads(Mix::NewOrderPayment));
        for class in Class::ALL {
            assert_eq!(only_reads(Mix::Only(class)), !class.updates(), "{class:?}");
        }
    }

    #[test]
    fn senseless_configurations_are_refused() {
        let tpcc = |config: TpccConfig| Tpcc::new(config).map(|tpcc| tpcc.config().warehouses);
        let usual = TpccConfig::default();
        assert_eq!(tpcc(usual), Ok(WAREHOUSES_DEFAULT));
        for warehouses in [0, WAREHOUSES_MAX + 1] {
            assert_eq!(tpcc(TpccConfig { warehouses, ..usual }), Err(BadTpcc::Warehouses(warehouses)));
        }
        for items in [99, 200_001] {
            let refused = tpcc(TpccConfig { items, ..usual }).unwrap_err().to_string();
            assert!(
                refused.contains(&format!("{items} items")) && refused.contains("100 to 200000"),
                "{refused}"
            );
        }
        for customers in [9, 96_001] {
            let refused = tpcc(TpccConfig { customers, ..usual }).unwrap_err().to_string();
            assert!(refused.contains(&format!("{customers} customers")), "{refused}");
        }
        for share in [-0.1, 1.1, f64::NAN] {
            let remote = Remote { payments: share, ..Remote::NONE };
            let refused = tpcc(TpccConfig { remote, ..usual }).unwrap_err().to_string();
            assert!(refused.contains("remote payments") && refused.contains("0 to 1"), "{refused}");
            let remote = Remote { lines: share, ..Remote::NONE };
            assert!(tpcc(TpccConfig { remote, ..usual }).is_err());
        }
        let most =
            Tpcc::new(TpccConfig { warehouses: WAREHOUSES_MAX, ..usual }).expect("the most there can be");
        assert!(most.check_memory(1 << 34).unwrap_err().to_string().contains("warehouses need about"));
    }

    #[test]
    fn every_warehouse_has_ten_terminals() {
        assert_eq!(terminals_per_worker(2, 2), 10);
        assert_eq!(terminals_per_worker(1, 4), 3);
        assert_eq!(terminals_per_worker(8, 1), 80);
    }
}
