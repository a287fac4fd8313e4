//! YCSB, the Yahoo! Cloud Serving Benchmark: core workloads A to F, one operation per transaction or several.
//!
//! Owns: the assembly of its parts into a [`Workload`]. The parts: [`schema`] (records of two shapes, keys), the
//! requests of clients ([`mix`], [`parameters`]), the operations ([`procedures`]) and the proof of their effects
//! (`audit`).
//!
//! Records are ten columns of 100 bytes, as in YCSB, or one of 8, as in the paper on virtual domains. An update writes
//! one column.
//!
//! With one operation per transaction every kind of operation is a class of its own. Transactions of several
//! operations, as research engines run them, are of two classes, with and without writes; see [`procedures`] for the
//! order in which they access their records.

mod audit;
pub mod copies;
pub mod mix;
pub mod options;
pub mod parameters;
pub mod procedures;
pub mod schema;
mod shares;
pub mod stored;

use std::hint::black_box;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayVec;
use atrapos::{
    Abort, Database, Handles, LoadError, LoadProgress, Procedures, RegisterError, Schema, Table as _,
    TableRef, UPCOMING_MAX, Upcoming,
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
use mix::{Distribution, Kind, Mix};
use parameters::{Op, Parameters, Setting};
use procedures::Order;
use schema::{Keys, Record};
use stored::{Insert, Operations, Read, ReadModifyWrite, Scan, Update};

/// Default number of records.
pub const ROWS_DEFAULT: u64 = 100_000;
/// Default exponent of Zipf's distribution.
pub const THETA_DEFAULT: f64 = 0.99;
/// Greatest number of operations in one transaction; more are not the subject of the benchmark.
pub const OPERATIONS_MAX: usize = 256;

/// Configuration of YCSB.
#[derive(Clone, Debug, PartialEq)]
pub struct YcsbConfig {
    /// Number of records that are loaded.
    pub rows: u64,
    /// Operations that are run.
    pub mix: Mix,
    /// The distribution by which keys are chosen.
    pub distribution: Distribution,
    /// Exponent of Zipf's distribution, at least 0; 0 is uniform.
    pub theta: f64,
    /// True if popular records are spread over all; otherwise they are adjacent.
    pub scrambled: bool,
    /// Operations per transaction.
    pub operations: usize,
    /// The order in which they run.
    pub order: Order,
    /// True if the table is declared as [shared](Schema::shared).
    pub shared: bool,
    /// Seed of the choices of all clients.
    pub seed: u64,
}

impl Default for YcsbConfig {
    /// Returns the configuration of workload A.
    fn default() -> YcsbConfig {
        let mix: Mix = "a".parse().expect("a letter that there is");
        YcsbConfig {
            rows: ROWS_DEFAULT,
            distribution: mix.distribution(),
            mix,
            theta: THETA_DEFAULT,
            scrambled: true,
            operations: 1,
            order: Order::default(),
            shared: false,
            seed: 1,
        }
    }
}

/// Reasons for which a configuration is not possible.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum BadYcsb {
    /// There are no records, or more than keys can tell apart.
    #[error("{0} rows are not possible; use 1 to {max}", max = Keys::ROWS_MAX)]
    Rows(u64),
    /// There are no operations per transaction, or more different ones than there are records.
    #[error("a transaction cannot have {operations} operations on different rows of {rows}; use 1 to {max}", max = (*.rows).min(OPERATIONS_MAX as u64))]
    Operations {
        /// Number of operations requested.
        operations: usize,
        /// Number of records.
        rows: u64,
    },
    /// The value is not an exponent.
    #[error("the Zipf exponent {0} is not possible; use 0 (uniform) or more")]
    Theta(f64),
}

/// One configuration of YCSB, with records of shape `R`: [`Wide`](schema::Wide) or [`Narrow`](schema::Narrow).
#[derive(Clone, Debug)]
pub struct Ycsb<R> {
    config: YcsbConfig,
    keys: Keys,
    zipfs: Zipfs,
    /// Number of lanes of insertions given to clients; common to all clones, so that no two clients insert the same
    /// key.
    lanes: Arc<AtomicU64>,
    record: PhantomData<fn() -> R>,
}

impl<R: Record> Ycsb<R> {
    /// Creates the benchmark with this configuration.
    ///
    /// All insertions into a database must come from the clones of one value: the clients of another value would insert
    /// the same keys again.
    ///
    /// # Errors
    /// Fails with the reason for which the configuration is not possible, and the possible values.
    pub fn new(config: YcsbConfig) -> Result<Ycsb<R>, BadYcsb> {
        let YcsbConfig { rows, operations, theta, .. } = config;
        if !(1..=Keys::ROWS_MAX).contains(&rows) {
            return Err(BadYcsb::Rows(rows));
        }
        if operations == 0 || operations as u64 > rows.min(OPERATIONS_MAX as u64) {
            return Err(BadYcsb::Operations { operations, rows });
        }
        let zipfs = Zipfs::new(theta).ok_or(BadYcsb::Theta(theta))?;
        Ok(Ycsb { config, keys: Keys::of(rows), zipfs, lanes: Arc::default(), record: PhantomData })
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &YcsbConfig {
        &self.config
    }

    /// Creates the generator of one more client, which chooses records of the slots in `own`; clients with different
    /// `stream`s are independent.
    #[must_use]
    pub fn parameters(&self, own: KeySet, stream: u64) -> Parameters {
        let YcsbConfig { ref mix, distribution, scrambled, seed, .. } = self.config;
        let zipfs = (distribution != Distribution::Uniform).then_some(&self.zipfs);
        Parameters::new(Setting {
            mix,
            columns: R::COLUMNS_WRITTEN,
            keys: self.keys,
            distribution,
            popularity: Popularity::new(own.len(), zipfs, scrambled),
            own,
            lane: self.lanes.fetch_add(1, Ordering::Relaxed),
            random: Random::of_stream(Seed(seed).derive(CLIENT_STREAM).0, stream),
        })
    }

    /// Returns another configuration that shares the lanes of this one's clients.
    fn with(&self, change: impl FnOnce(&mut YcsbConfig)) -> Ycsb<R> {
        let mut other = self.clone();
        change(&mut other.config);
        other.keys = Keys::of(other.config.rows);
        other
    }
}

/// Records of the database on which transactions are recorded, unless one needs more.
const RECORDED_ROWS: u64 = 1_000;

/// Operations of one row, and scans, that one worker runs in a second at a high rate.
const OPERATIONS_PER_SECOND: f64 = 2_800_000.0;
const SCANS_PER_SECOND: f64 = 300_000.0;

/// The names of the classes of transactions of several operations.
const SEVERAL: [&str; 2] = ["read-only", "read-write"];
/// Transactions of several operations that only read.
const READ_ONLY: ClassId = ClassId(0);
/// Transactions of several operations that write.
const READ_WRITE: ClassId = ClassId(1);

/// State of one YCSB client.
#[derive(Clone, Debug)]
pub struct YcsbState<R: Record> {
    table: TableRef<R::Table>,
    keys: Keys,
    operations: usize,
    order: Order,
    parameters: Parameters,
    /// The operations that were drawn ahead, the next one last.
    drawn: ArrayVec<Op, UPCOMING_MAX>,
}

/// Keeps the seeds of clients apart from those of other workloads.
const CLIENT_STREAM: u64 = u64::MAX - 2;

impl<R: Record> Workload for Ycsb<R> {
    type State = YcsbState<R>;

    fn classes(&self) -> &'static [&'static str] {
        if self.config.operations == 1 { &Kind::NAMES } else { &SEVERAL }
    }

    fn updates(&self, class: ClassId) -> bool {
        if self.config.operations == 1 {
            Kind::ALL.get(class.index()).is_some_and(|kind| kind.writes())
        } else {
            class == READ_WRITE
        }
    }

    fn only_reads(&self) -> bool {
        let shares = Kind::ALL.iter().zip(self.config.mix.shares());
        shares.filter(|(_, share)| *share > 0.0).all(|(kind, _)| !kind.writes())
    }

    fn to_record(&self) -> Vec<Ycsb<R>> {
        let rows = self.config.rows.min(RECORDED_ROWS.max(self.config.operations as u64));
        let of = |mix: Mix| self.with(|config| (config.rows, config.mix) = (rows, mix));
        if self.config.operations == 1 {
            return Kind::ALL.map(|kind| of(Mix::only(kind))).into();
        }
        vec![of(Mix::only(Kind::Read)), of(self.config.mix.clone())]
    }

    fn schema(&self) -> Schema {
        let schema = schema::schema::<R>(self.keys);
        if self.config.shared { schema.shared(R::Table::NAME) } else { schema }
    }

    fn encoded_bytes(&self) -> u64 {
        self.keys.rows() * (8 + R::FIXED_BYTES as u64)
    }

    fn growth_bytes_per_second(&self) -> u64 {
        let shares = self.config.mix.shares();
        let (inserted, scanned) = (shares[Kind::Insert as usize], shares[Kind::Scan as usize]);
        let seconds = (1.0 - scanned) / OPERATIONS_PER_SECOND + scanned / SCANS_PER_SECOND;
        (inserted * R::RESIDENT_BYTES as f64 / seconds) as u64
    }

    fn check_memory(&self, available_bytes: u64) -> Result<(), NotEnoughMemory> {
        room::check("rows", self.keys.rows(), R::RESIDENT_BYTES, available_bytes)
    }

    fn expected_rows(&self) -> u64 {
        self.keys.rows()
    }

    fn load(&self, db: &Database, progress: &LoadProgress) -> Result<u64, LoadError> {
        let table = db.table::<R::Table>().map_err(|error| LoadError::Source(error.to_string()))?;
        let keys = self.keys;
        db.load(progress, move |loader| {
            for share in loader.share_of(table, 0, keys.last()) {
                let slots =
                    KeySet::range(*share.start(), *share.end()).and_then(|own| own.blocks(keys.shift()));
                for at in 0..slots.as_ref().map_or(0, KeySet::len) {
                    let key = keys.loaded(slots.as_ref().map_or(0, |slots| slots.nth(at)));
                    loader.add(table, &key, &R::new(key))?;
                }
            }
            Ok(())
        })
    }

    fn register(&self, registry: &mut impl Procedures, handles: &impl Handles) -> Result<(), RegisterError> {
        registry.register::<Read<R>>(handles)?;
        registry.register::<Update<R>>(handles)?;
        registry.register::<Insert<R>>(handles)?;
        registry.register::<Scan<R>>(handles)?;
        registry.register::<ReadModifyWrite<R>>(handles)?;
        registry.register::<Operations<R>>(handles)
    }

    fn distributed_share(&self, parts: usize) -> Result<f64, NoShare> {
        shares::distributed(self, parts)
    }

    fn state(&self, db: &Database, reach: Reach, stream: u64) -> Result<YcsbState<R>, SetupError> {
        let table = db.table::<R::Table>()?;
        let YcsbConfig { operations, order, .. } = self.config;
        let keys = self.keys;
        let own = match reach {
            Reach::Everywhere => KeySet::range(0, keys.rows() - 1).expect("there is at least one record"),
            Reach::OwnedBy(worker) => KeySet::owned_by(&db.scheme(), table.id(), 0, keys.last(), worker)
                .and_then(|own| own.blocks(keys.shift()))
                .filter(|own| own.len() >= operations as u64)
                .ok_or(SetupError::NothingOwned { worker })?,
        };
        let parameters = self.parameters(own, stream);
        Ok(YcsbState { table, keys, operations, order, parameters, drawn: ArrayVec::new() })
    }

    #[inline]
    fn draw_ahead(state: &mut YcsbState<R>, count: usize, upcoming: &mut Upcoming) {
        if state.operations > 1 {
            return;
        }
        while state.drawn.len() < count {
            let op = state.parameters.op();
            state.drawn.push(op);
            if op.kind == Kind::Insert {
                // The key of the next insertion, and the latest records, depend on whether this one commits.
                break;
            }
        }
        state.drawn.iter().for_each(|op| upcoming.push(state.table.at(&op.key)));
        state.drawn.reverse();
    }

    // One function for all classes, as in TATP: a future inside another costs a copy of it.
    #[inline]
    async fn transaction(client: &Client<'_>, state: &mut YcsbState<R>) -> (ClassId, Result<Outcome, Abort>) {
        if state.operations > 1 {
            return several(client, state).await;
        }
        let (table, keys, shape) = (state.table, state.keys, PhantomData);
        let drawn = state.drawn.pop();
        let Op { kind, key, detail } = drawn.unwrap_or_else(|| state.parameters.op());
        let missing = || Abort::user(procedures::NO_RECORD);
        let outcome = match kind {
            Kind::Read => {
                let found = client.run(&table, &Read::<R> { key, shape }).await;
                found.and_then(|record| black_box(record).map(|_| Outcome::Succeeded).ok_or_else(missing))
            }
            Kind::Update => {
                let written = client.run(&table, &Update::<R> { key, column: detail, shape }).await;
                written.and_then(|written| written.map(|()| Outcome::Moved(1)).ok_or_else(missing))
            }
            Kind::Insert => {
                let inserted = client.run(&table, &Insert::<R> { key, shape }).await;
                state.parameters.committed(u64::from(inserted.is_ok()));
                inserted.map(|_| Outcome::Moved(1))
            }
            Kind::Scan => {
                let scan = Scan::<R> { key, keys, count: detail, shape };
                client.run(&table, &scan).await.map(|found| {
                    black_box((found.keys(), found.bytes()));
                    Outcome::Succeeded
                })
            }
            Kind::ReadModifyWrite => {
                let modify = ReadModifyWrite::<R> { key, column: detail, shape };
                let found = client.run(&table, &modify).await;
                found.and_then(|before| black_box(before).map(|_| Outcome::Moved(1)).ok_or_else(missing))
            }
        };
        (kind.id(), outcome)
    }

    fn audit(&self, db: &Database, ledger: &Ledger) -> Result<AuditReport, AuditError> {
        audit::audit(self, db, ledger)
    }
}

/// Runs a transaction of several operations.
async fn several<R: Record>(
    client: &Client<'_>,
    state: &mut YcsbState<R>,
) -> (ClassId, Result<Outcome, Abort>) {
    let (table, keys, order) = (state.table, state.keys, state.order);
    let ops = state.parameters.transaction(state.operations);
    let writes = ops.iter().filter(|op| op.kind.writes()).count();
    let insertions = ops.iter().filter(|op| op.kind == Kind::Insert).count() as u64;
    let run = Operations::<R> { key: ops[0].key, keys, ops, order, shape: PhantomData };
    let outcome = client.run_apart(&table, &run).await;
    if outcome.is_ok() {
        state.parameters.committed(insertions);
    }
    let class = if writes > 0 { READ_WRITE } else { READ_ONLY };
    (class, outcome.map(|()| Outcome::Moved(writes as i64)))
}

#[cfg(test)]
mod tests {
    use super::schema::{Narrow, Wide};
    use super::*;

    #[test]
    fn only_mixes_without_writes_only_read() {
        let only_reads = |mix: Mix, operations| {
            let config = YcsbConfig { mix, operations, ..YcsbConfig::default() };
            Ycsb::<Wide>::new(config).is_ok_and(|workload| workload.only_reads())
        };
        for operations in [1, 4] {
            assert!(only_reads(Mix::only(Kind::Read), operations));
            assert!(!only_reads(Mix::of_updates(1e-6).expect("a share"), operations));
        }
        assert!(only_reads(Mix::only(Kind::Scan), 1));
        assert!(!only_reads(Mix::only(Kind::Insert), 1));
    }

    #[test]
    fn senseless_configurations_are_refused() {
        let base = YcsbConfig::default();
        let refused = |change: fn(&mut YcsbConfig)| {
            let mut config = base.clone();
            change(&mut config);
            Ycsb::<Wide>::new(config).expect_err("refused").to_string()
        };
        assert!(refused(|config| config.rows = 0).contains("0 rows"));
        assert!(refused(|config| config.rows = u64::MAX).contains("use 1 to"));
        assert!(refused(|config| config.operations = 0).contains("0 operations"));
        assert!(refused(|config| config.operations = 257).contains("use 1 to 256"));
        assert!(refused(|config| (config.rows, config.operations) = (5, 6)).contains("use 1 to 5"));
        assert!(refused(|config| config.theta = -0.5).contains("-0.5"));
        assert!(refused(|config| config.theta = f64::NAN).contains("NaN"));
        let largest = YcsbConfig { rows: Keys::ROWS_MAX, ..base };
        let largest = Ycsb::<Narrow>::new(largest).expect("possible somewhere");
        assert!(largest.check_memory(1 << 34).unwrap_err().to_string().contains("rows need about"));
        assert!(largest.check_memory(1 << 40).is_ok());
    }
}
