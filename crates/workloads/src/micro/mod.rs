//! The microbenchmark of `Islands §3.2`: each transaction reads or updates a few rows of one site, or of all.
//!
//! Owns: its table, population, transactions and auditor. The rows are chosen by [`parameters`].
//!
//! A *site* is an equal share of the rows, one per worker at first. A local transaction touches rows of one site; a
//! multisite transaction touches one row of its site, and the others anywhere in the data.
//!
//! The auditor's rule: the sum of all counters is the number of rows that committed updates have touched.

pub mod options;
pub mod parameters;
pub mod procedures;
mod shares;

use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::Arc;

use atrapos::{
    Abort, Database, Handles, KeyRange, LoadError, LoadProgress, Procedures, RegisterError, Schema,
    SchemaError, Session, SessionHandle, Table, TableRef, Tx, WorkerId, row,
};

use crate::client::Client;
use crate::keys::KeySet;
use crate::ledger::Ledger;
use crate::random::Random;
use crate::room::{self, NotEnoughMemory};
use crate::shares::NoShare;
use crate::workload::{AuditError, AuditReport, ClassId, Outcome, Reach, SetupError, Workload};
use crate::zipf::Zipf;
use parameters::{Rows, Sites};
use procedures::{ReadRows, UpdateRows};

/// Bytes of a row.
pub const ROW_BYTES: usize = 250;
const PADDING_BYTES: usize = ROW_BYTES - 8;

row! {
    /// A row: a counter, and padding up to 250 bytes.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Counter {
        /// Number of updates of the row by committed transactions.
        pub count: u64,
        /// Padding that repeats the row's key; never changed.
        pub padding: [u8; PADDING_BYTES],
    }
}

impl Counter {
    /// Returns the row of `key` as it is loaded.
    #[must_use]
    pub fn loaded(key: u64) -> Counter {
        let mut padding = [0; PADDING_BYTES];
        for bytes in padding.chunks_mut(8) {
            bytes.copy_from_slice(&key.to_le_bytes()[..bytes.len()]);
        }
        Counter { count: 0, padding }
    }
}

/// The only table, by row number from 0.
#[derive(Debug)]
pub struct Counters;
impl Table for Counters {
    type Key = u64;
    type Row = Counter;
    const NAME: &'static str = "counters";
    const KEY_COLUMNS: &'static [&'static str] = &["row"];
}

/// Kinds of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, clap::ValueEnum)]
pub enum Kind {
    /// Read them.
    #[default]
    Read,
    /// Add one to each row's counter.
    Update,
}

impl Kind {
    /// Returns the name of the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Update => "update",
        }
    }

    /// Returns the names of the classes of its transactions: local ones, and multisite ones.
    #[must_use]
    pub const fn classes(self) -> &'static [&'static str] {
        match self {
            Kind::Read => &["read-local", "read-multisite"],
            Kind::Update => &["update-local", "update-multisite"],
        }
    }
}

/// Configuration of the microbenchmark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MicroConfig {
    /// Number of sites: as many as the database has workers.
    pub sites: usize,
    /// Number of rows in each site.
    pub rows_per_site: u64,
    /// Number of rows that each transaction touches, all different.
    pub rows_per_transaction: usize,
    /// Kind of the transactions.
    pub kind: Kind,
    /// Probability that a transaction is multisite, from 0 to 1.
    pub multisite: f64,
    /// Exponent of the Zipf distribution by which rows are chosen; 0 chooses uniformly.
    pub zipf: f64,
    /// Seed of the choices of all clients.
    pub seed: u64,
}

impl Default for MicroConfig {
    fn default() -> MicroConfig {
        MicroConfig {
            sites: 1,
            rows_per_site: 10_000,
            rows_per_transaction: 10,
            kind: Kind::Read,
            multisite: 0.0,
            zipf: 0.0,
            seed: 1,
        }
    }
}

/// Reasons for which a configuration is not possible.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum BadMicro {
    /// There are no sites.
    #[error("zero sites hold no rows; use at least 1")]
    NoSites,
    /// There are no rows, or more than can be counted.
    #[error("{sites} sites of {rows_per_site} rows are not possible; use 1 to {max} rows per site", max = u64::MAX / 1024 / *.sites as u64)]
    Rows {
        /// Number of sites.
        sites: usize,
        /// Number of rows per site requested.
        rows_per_site: u64,
    },
    /// There are no rows per transaction, or more different ones than exist.
    #[error("a transaction cannot touch {rows} different rows of a site of {rows_per_site}; use 1 to {max}", max = (*.rows_per_site).min(ROWS_PER_TRANSACTION_MAX as u64))]
    RowsPerTransaction {
        /// Number of rows per transaction requested.
        rows: usize,
        /// Number of rows per site.
        rows_per_site: u64,
    },
    /// The value is not a probability.
    #[error("the probability {0} of multisite transactions is not possible; use 0 to 1")]
    Multisite(f64),
    /// The value is not an exponent.
    #[error("the Zipf exponent {0} is not possible; use 0 (uniform) or more")]
    Zipf(f64),
}

/// Greatest number of rows in one transaction; more are not the subject of the benchmark.
pub const ROWS_PER_TRANSACTION_MAX: usize = 1000;

/// One configuration of the microbenchmark.
#[derive(Clone, Debug)]
pub struct Micro {
    config: MicroConfig,
    sites: Sites,
    /// Distributions over all rows, and over the rows of a site, if they are skewed.
    skew: Option<Arc<(Zipf, Zipf)>>,
}

impl Micro {
    /// Creates the microbenchmark with this configuration.
    ///
    /// # Errors
    /// Fails with the reason for which the configuration is not possible, and the possible values.
    pub fn new(config: MicroConfig) -> Result<Micro, BadMicro> {
        let MicroConfig { sites, rows_per_site, rows_per_transaction, multisite, zipf, .. } = config;
        if sites == 0 {
            return Err(BadMicro::NoSites);
        }
        if rows_per_site == 0 || rows_per_site > u64::MAX / 1024 / sites as u64 {
            return Err(BadMicro::Rows { sites, rows_per_site });
        }
        let rows_max = rows_per_site.min(ROWS_PER_TRANSACTION_MAX as u64);
        if rows_per_transaction == 0 || rows_per_transaction as u64 > rows_max {
            return Err(BadMicro::RowsPerTransaction { rows: rows_per_transaction, rows_per_site });
        }
        if !(0.0..=1.0).contains(&multisite) {
            return Err(BadMicro::Multisite(multisite));
        }
        let layout = Sites { sites: sites as u64, rows_per_site };
        // Both are made whatever the exponent, so that a bad one is refused.
        let both =
            Zipf::new(layout.rows(), zipf).zip(Zipf::new(rows_per_site, zipf)).ok_or(BadMicro::Zipf(zipf))?;
        let skew = (zipf > 0.0).then(|| Arc::new(both));
        Ok(Micro { config, sites: layout, skew })
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &MicroConfig {
        &self.config
    }

    /// Creates the generator of one client that chooses rows of all sites; clients with different `stream`s are
    /// independent.
    #[must_use]
    pub fn rows(&self, stream: u64) -> Rows {
        self.rows_of(None, stream)
    }

    fn rows_of(&self, own_sites: Option<Box<[u64]>>, stream: u64) -> Rows {
        let random = Random::of_stream(self.config.seed, stream);
        Rows::new(&self.config, self.sites, own_sites, self.skew.clone(), random)
    }
}

/// Bytes of memory per row, all overhead included: measured and rounded up.
const RESIDENT_BYTES_PER_ROW: u64 = 350;

/// Rows per site when transactions are recorded, unless a transaction touches more.
const RECORDED_ROWS_PER_SITE: u64 = 100;

/// Transactions that stay on their site.
const LOCAL: ClassId = ClassId(0);
/// Transactions that touch other sites, too.
const MULTISITE: ClassId = ClassId(1);

/// State of one client of the microbenchmark.
#[derive(Clone, Debug)]
pub struct MicroState {
    table: TableRef<Counters>,
    kind: Kind,
    rows: Rows,
}

impl Workload for Micro {
    type State = MicroState;

    fn classes(&self) -> &'static [&'static str] {
        self.config.kind.classes()
    }

    fn updates(&self, _: ClassId) -> bool {
        self.config.kind == Kind::Update
    }

    fn to_record(&self) -> Vec<Micro> {
        let MicroConfig { rows_per_site, rows_per_transaction, .. } = self.config;
        let rows_per_site = rows_per_site.min((rows_per_transaction as u64).max(RECORDED_ROWS_PER_SITE));
        let of = |multisite| Micro::new(MicroConfig { sites: 2, rows_per_site, multisite, ..self.config });
        [0.0, 1.0].into_iter().filter_map(|multisite| of(multisite).ok()).collect()
    }

    fn schema(&self) -> Schema {
        let sites = self.sites;
        Schema::new().table::<Counters>().split_by(Counters::NAME, move |workers| sites.cuts(workers))
    }

    fn encoded_bytes(&self) -> u64 {
        self.sites.rows() * (8 + ROW_BYTES as u64)
    }

    fn check_memory(&self, available_bytes: u64) -> Result<(), NotEnoughMemory> {
        room::check("rows", self.sites.rows(), RESIDENT_BYTES_PER_ROW, available_bytes)
    }

    fn expected_rows(&self) -> u64 {
        self.sites.rows()
    }

    fn load(&self, db: &Database, progress: &LoadProgress) -> Result<u64, LoadError> {
        let table = db.table::<Counters>().map_err(|error| LoadError::Source(error.to_string()))?;
        let last = self.sites.rows() - 1;
        db.load(progress, move |loader| {
            let own = loader.share_of(table, 0, last);
            own.into_iter().flatten().try_for_each(|key| loader.add(table, &key, &Counter::loaded(key)))
        })
    }

    fn register(&self, registry: &mut impl Procedures, handles: &impl Handles) -> Result<(), RegisterError> {
        registry.register::<ReadRows>(handles)?;
        registry.register::<UpdateRows>(handles)
    }

    fn distributed_share(&self, parts: usize) -> Result<f64, NoShare> {
        shares::distributed(self, parts)
    }

    fn remote_share(&self) -> Option<f64> {
        Some(self.config.multisite)
    }

    fn with_remote_share(&self, share: f64) -> Micro {
        Micro { config: MicroConfig { multisite: share, ..self.config }, ..self.clone() }
    }

    fn state(&self, db: &Database, reach: Reach, stream: u64) -> Result<MicroState, SetupError> {
        let table = db.table::<Counters>()?;
        let own_sites = match reach {
            Reach::Everywhere => None,
            Reach::OwnedBy(worker) => {
                let own = KeySet::owned_by(&db.scheme(), table.id(), 0, self.sites.rows() - 1, worker);
                // The sites whose first row is on the worker; at first that is one whole site.
                let sites = own.map(|own| self.sites.begun_in(&own)).filter(|sites| !sites.is_empty());
                Some(sites.ok_or(SetupError::NothingOwned { worker })?)
            }
        };
        Ok(MicroState { table, kind: self.config.kind, rows: self.rows_of(own_sites, stream) })
    }

    #[inline]
    async fn transaction(client: &Client<'_>, state: &mut MicroState) -> (ClassId, Result<Outcome, Abort>) {
        let (is_multisite, rows) = state.rows.choose();
        let table = state.table;
        let outcome = match state.kind {
            Kind::Read => client.run(&table, &ReadRows { rows }).await.map(|sum| _ = black_box(sum)),
            Kind::Update => client.run(&table, &UpdateRows { rows }).await,
        };
        (if is_multisite { MULTISITE } else { LOCAL }, outcome.map(|()| Outcome::Succeeded))
    }

    fn audit(&self, db: &Database, ledger: &Ledger) -> Result<AuditReport, AuditError> {
        audit(&self.config, self.sites, db, ledger)
    }
}

/// Rows audited in one transaction: bounds both memory and the pause of the worker.
const SLICE: u64 = 1024;

fn audit(
    config: &MicroConfig,
    sites: Sites,
    db: &Database,
    ledger: &Ledger,
) -> Result<AuditReport, AuditError> {
    let verified = db.verify()?;
    let table = db.table::<Counters>()?;
    let found = db.len(table.id())?;
    if found != sites.rows() {
        return Err(AuditError::Count { table: Counters::NAME, expected: sites.rows(), found });
    }
    // One scheme for all workers: partitions may move meanwhile.
    let (scheme, mut sessions) = (db.scheme(), Vec::new());
    for worker in (0..db.workers()).map(|worker| WorkerId(worker as u16)) {
        if let Some(own) = KeySet::owned_by(&scheme, table.id(), 0, sites.rows() - 1, worker) {
            sessions
                .push(db.spawn_session(worker, async move |session| audit_own(&session, table, &own).await)?);
        }
    }
    let sums: Vec<_> = sessions.into_iter().map(SessionHandle::join).collect();
    let mut found = 0;
    for sum in sums {
        found += sum??;
    }
    let expected = match config.kind {
        Kind::Read => 0,
        Kind::Update => {
            (ledger.committed(LOCAL) + ledger.committed(MULTISITE)) * config.rows_per_transaction as u64
        }
    };
    if found != expected {
        return Err(AuditError::Sum { what: "the sum of all counters", expected, found });
    }
    Ok(AuditReport { rows: verified.rows, entries: verified.entries, references: verified.references })
}

/// Returns the sum of the counters of a worker's rows; every row must exist, with its padding.
async fn audit_own(session: &Session, table: TableRef<Counters>, own: &KeySet) -> Result<u64, AuditError> {
    let mut sum = 0;
    let mut at = 0;
    while at < own.len() {
        let first = own.nth(at);
        let count =
            (1..SLICE.min(own.len() - at)).take_while(|next| own.nth(at + next) == first + next).count();
        let last = first + count as u64;
        let read = async move |tx: &mut Tx<'_>| {
            let wanted: Wanted = (first, Ok(0));
            tx.fold(table, KeyRange::through(&first, &last), wanted, check_row).await
        };
        let (next, part) = session.run_boxed(&table.at(&first), read).await?;
        sum += part.map_err(|what| refuse(next, what))?;
        if next != last + 1 {
            return Err(refuse(next, "the row is missing"));
        }
        at += last - first + 1;
    }
    Ok(sum)
}

/// State of an audit: the key that must come next, and the sum so far or the mistake in the row of that key.
type Wanted = (u64, Result<u64, &'static str>);

fn check_row(wanted: &mut Wanted, key: u64, row: Counter) -> ControlFlow<()> {
    let (next, sum) = wanted;
    if key != *next {
        return ControlFlow::Break(());
    }
    match sum {
        Ok(_) if row.padding != Counter::loaded(key).padding => *sum = Err("the padding was changed"),
        Ok(sum) => {
            *sum += row.count;
            *next += 1;
            return ControlFlow::Continue(());
        }
        Err(_) => {}
    }
    ControlFlow::Break(())
}

fn refuse(key: u64, what: &'static str) -> AuditError {
    AuditError::Row { table: Counters::NAME, key: key.to_string(), what }
}

/// Returns the handle of the table in `db`, for tests and experiments that read rows themselves.
///
/// # Errors
/// Fails if the database was opened with another schema.
pub fn table_of(db: &Database) -> Result<TableRef<Counters>, SchemaError> {
    db.table()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senseless_configurations_are_refused() {
        let base = MicroConfig { sites: 2, ..MicroConfig::default() };
        let refused = |config| Micro::new(config).expect_err("refused").to_string();
        assert!(refused(MicroConfig { sites: 0, ..base }).contains("zero sites"));
        assert!(refused(MicroConfig { rows_per_site: 0, ..base }).contains("0 rows"));
        assert!(refused(MicroConfig { rows_per_site: u64::MAX, ..base }).contains("not possible"));
        assert!(refused(MicroConfig { rows_per_transaction: 0, ..base }).contains("use 1 to 1000"));
        assert!(refused(MicroConfig { rows_per_site: 5, ..base }).contains("use 1 to 5"));
        assert!(refused(MicroConfig { rows_per_transaction: 1001, ..base }).contains("use 1 to 1000"));
        assert!(refused(MicroConfig { multisite: 1.5, ..base }).contains("1.5"));
        assert!(refused(MicroConfig { multisite: f64::NAN, ..base }).contains("NaN"));
        assert!(refused(MicroConfig { zipf: -1.0, ..base }).contains("-1"));
        assert!(Micro::new(MicroConfig { multisite: 1.0, zipf: 2.0, ..base }).is_ok());
        let large = Micro::new(MicroConfig { rows_per_site: 1 << 40, ..base }).expect("possible somewhere");
        assert!(large.check_memory(1 << 34).is_err());
    }

    #[test]
    fn rows_have_250_bytes_and_say_which_they_are() {
        use atrapos::Row;
        assert_eq!(Counter::FIXED_BYTES, 250);
        assert_ne!(Counter::loaded(1), Counter::loaded(1 << 56));
    }
}
