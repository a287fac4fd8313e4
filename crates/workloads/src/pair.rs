//! The simple transaction of `ATraPos §V-A`, Figure 6 (thesis Figures 4.6 and 4.7): a row of table A, and one of table B that
//! belongs to it. Or, *mirrored*, of two rows of A: one, and the one that is as far from the end as that is from the beginning.
//!
//! Owns: the two tables, their population, the transaction and the auditor. It is no benchmark of its own but what the experiment
//! with the steps from PLP to ATraPos and the one with mirrored pairs run, so it has no options and is in no list.
//!
//! Both tables have equally many rows and are cut apart: A and B are families of their own, so that a scheme may put what belongs
//! together on different workers. Keys are chosen uniformly. The transactions change nothing; each checks what it has read.
//!
//! The auditor's rule: all rows are there, as they were loaded.

use std::ops::ControlFlow;

use atrapos::{
    Abort, Database, Handles, KeyRange, LoadError, LoadProgress, Procedures, RegisterError, Schema,
    SchemaError, Table, TableRef, Transaction, Tx, row,
};

use crate::client::Client;
use crate::keys::KeySet;
use crate::ledger::Ledger;
use crate::random::Random;
use crate::room::{self, NotEnoughMemory};
use crate::workload::{AuditError, AuditReport, ClassId, Outcome, Reach, SetupError, Workload};

row! {
    /// A row of either table: as many bytes as ten integers.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Numbered {
        /// The number of the row of A that it is, or belongs to.
        pub number: u64,
        /// Padding that repeats the number.
        pub padding: [u8; 32],
    }
}

impl Numbered {
    fn loaded(number: u64) -> Numbered {
        let mut padding = [0; 32];
        for bytes in padding.chunks_mut(8) {
            bytes.copy_from_slice(&number.to_le_bytes()[..bytes.len()]);
        }
        Numbered { number, padding }
    }
}

/// Table A, by number from 0.
#[derive(Debug)]
pub struct A;
impl Table for A {
    type Key = u64;
    type Row = Numbered;
    const NAME: &'static str = "a";
    const KEY_COLUMNS: &'static [&'static str] = &["pk_a"];
}

/// Table B: for each row of A one row, by the key of that and a number of its own.
#[derive(Debug)]
pub struct B;
impl Table for B {
    type Key = (u64, u32);
    type Row = Numbered;
    const NAME: &'static str = "b";
    const KEY_COLUMNS: &'static [&'static str] = &["pk_a", "pk_b"];
}

/// Returns the second part of the key of the row of B that belongs to a row of A.
fn second_of(number: u64) -> u32 {
    (number % 10) as u32
}

/// The handles of both tables in one open database.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "each field is named after its table")]
pub struct Tables {
    pub a: TableRef<A>,
    pub b: TableRef<B>,
}

impl Tables {
    /// Looks up the handles in `db`.
    ///
    /// # Errors
    /// Fails if the database was opened with another schema.
    pub fn of(db: &impl Handles) -> Result<Tables, SchemaError> {
        Ok(Tables { a: db.table()?, b: db.table()? })
    }
}

atrapos::stored_procedures! {
    /// Reads a row of A and one of B. See [`read`]. Its home is that of the row of A.
    pub ReadPair("pair.read", "read") { a: u64, b: u32 } -> u64;
    tables Tables: |db| Tables::of(db);
    home: |own, tables| tables.a.at(&own.a);
    run: |own, tx, tables| read(tx, *tables, own.a, own.b);
}

/// Detail of the abort of a transaction that does not find a row, or another one than was loaded.
pub const NO_PAIR: &str = "a row is missing or was changed";

/// Reads the row `a` of A and the row `(a, b)` of B as one phase, and returns their number.
///
/// # Errors
/// Fails like [`Transaction::run`]; also if a row is missing or was changed.
pub async fn read(tx: &mut impl Transaction, tables: Tables, a: u64, b: u32) -> Result<u64, Abort> {
    let (first, second) = tx.join((tables.a.get(a), tables.b.get((a, b)))).await?;
    let same = first.zip(second).filter(|(first, second)| first.number == a && second.number == a);
    same.map(|(first, _)| first.number).ok_or_else(|| Abort::user(NO_PAIR))
}

atrapos::stored_procedures! {
    /// Reads two rows of A. See [`read_both`]. Its home is that of the first.
    pub ReadMirrored("pair.mirrored", "read") { a: u64, b: u64 } -> u64;
    tables Tables: |db| Tables::of(db);
    home: |own, tables| tables.a.at(&own.a);
    run: |own, tx, tables| read_both(tx, *tables, own.a, own.b);
}

/// Reads the rows `a` and `b` of A as one phase, and returns the sum of their numbers.
///
/// # Errors
/// Fails like [`Transaction::run`]; also if a row is missing or was changed.
pub async fn read_both(tx: &mut impl Transaction, tables: Tables, a: u64, b: u64) -> Result<u64, Abort> {
    let (first, second) = tx.join((tables.a.get(a), tables.a.get(b))).await?;
    let same = first.zip(second).filter(|(first, second)| first.number == a && second.number == b);
    same.map(|(first, second)| first.number + second.number).ok_or_else(|| Abort::user(NO_PAIR))
}

/// The rows that a transaction reads together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Partner {
    /// A row of A, and its row of B.
    OfB,
    /// Rows `k` and `N-1-k` of A.
    Mirrored,
}

/// The workload: so many rows in each table.
#[derive(Clone, Debug)]
pub struct Pair {
    rows: u64,
    seed: u64,
    partner: Partner,
}

/// A number of rows that is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rows} rows in each of two tables are not possible; use 1 to {max}", max = ROWS_MAX)]
pub struct BadPair {
    /// The rows requested.
    pub rows: u64,
}

/// Greatest number of rows in a table: more fit no machine.
const ROWS_MAX: u64 = 1 << 40;

impl Pair {
    /// Creates the workload.
    ///
    /// # Errors
    /// A number of rows that is not possible.
    pub fn new(rows: u64, seed: u64) -> Result<Pair, BadPair> {
        let partner = Partner::OfB;
        if (1..=ROWS_MAX).contains(&rows) { Ok(Pair { rows, seed, partner }) } else { Err(BadPair { rows }) }
    }

    /// Creates the workload that reads rows of A in mirrored pairs.
    ///
    /// # Errors
    /// A number of rows that is not possible.
    pub fn mirrored(rows: u64, seed: u64) -> Result<Pair, BadPair> {
        Ok(Pair { partner: Partner::Mirrored, ..Pair::new(rows, seed)? })
    }
}

/// State of one client: its handles and its generator.
#[derive(Clone, Debug)]
pub struct PairState {
    tables: Tables,
    own: KeySet,
    random: Random,
    /// The last row, if pairs are mirrored.
    mirrored_at: Option<u64>,
}

/// Bytes of memory per pair of rows, all overhead included: measured and rounded up.
const RESIDENT_BYTES_PER_PAIR: u64 = 250;

/// The only class.
const READ: ClassId = ClassId(0);

impl Workload for Pair {
    type State = PairState;

    fn classes(&self) -> &'static [&'static str] {
        &["read-pair"]
    }

    fn updates(&self, _: ClassId) -> bool {
        false
    }

    fn schema(&self) -> Schema {
        let last = self.rows - 1;
        let schema = Schema::new().table::<A>().table::<B>();
        schema.split_evenly(A::NAME, 0, last).split_evenly(B::NAME, 0, last)
    }

    fn encoded_bytes(&self) -> u64 {
        // Keys of 8 and 12 bytes, and two rows of 40.
        self.rows * (8 + 12 + 2 * 40)
    }

    fn check_memory(&self, available_bytes: u64) -> Result<(), NotEnoughMemory> {
        room::check("pairs of rows", self.rows, RESIDENT_BYTES_PER_PAIR, available_bytes)
    }

    fn expected_rows(&self) -> u64 {
        2 * self.rows
    }

    fn load(&self, db: &Database, progress: &LoadProgress) -> Result<u64, LoadError> {
        let tables = Tables::of(db).map_err(|error| LoadError::Source(error.to_string()))?;
        let last = self.rows - 1;
        db.load(progress, move |loader| {
            for number in loader.share_of(tables.a, 0, last).into_iter().flatten() {
                loader.add(tables.a, &number, &Numbered::loaded(number))?;
            }
            for number in loader.share_of(tables.b, 0, last).into_iter().flatten() {
                loader.add(tables.b, &(number, second_of(number)), &Numbered::loaded(number))?;
            }
            Ok(())
        })
    }

    fn register(&self, registry: &mut impl Procedures, handles: &impl Handles) -> Result<(), RegisterError> {
        registry.register::<ReadPair>(handles)?;
        registry.register::<ReadMirrored>(handles)
    }

    fn state(&self, db: &Database, reach: Reach, stream: u64) -> Result<PairState, SetupError> {
        let tables = Tables::of(db)?;
        let last = self.rows - 1;
        let own = match reach {
            Reach::Everywhere => KeySet::range(0, last).expect("there is a row"),
            Reach::OwnedBy(worker) => KeySet::owned_by(&db.scheme(), tables.a.id(), 0, last, worker)
                .ok_or(SetupError::NothingOwned { worker })?,
        };
        let mirrored_at = (self.partner == Partner::Mirrored).then_some(last);
        Ok(PairState { tables, own, random: Random::of_stream(self.seed, stream), mirrored_at })
    }

    #[inline]
    async fn transaction(client: &Client<'_>, state: &mut PairState) -> (ClassId, Result<Outcome, Abort>) {
        let a = state.own.nth(state.random.below(state.own.len()));
        if let Some(last) = state.mirrored_at {
            let read = ReadMirrored { a, b: last - a };
            let outcome = client.run(&state.tables, &read).await;
            return (READ, outcome.map(|_| Outcome::Succeeded));
        }
        let read = ReadPair { a, b: second_of(a) };
        let outcome = client.run(&state.tables, &read).await;
        (READ, outcome.map(|_| Outcome::Succeeded))
    }

    fn audit(&self, db: &Database, _: &Ledger) -> Result<AuditReport, AuditError> {
        let verified = db.verify()?;
        let tables = Tables::of(db)?;
        for (table, found) in [(A::NAME, db.len(tables.a.id())?), (B::NAME, db.len(tables.b.id())?)] {
            if found != self.rows {
                return Err(AuditError::Count { table, expected: self.rows, found });
            }
        }
        for first in (0..self.rows).step_by(SLICE as usize) {
            let last = (first + SLICE - 1).min(self.rows - 1);
            let read = async move |tx: &mut Tx<'_>| {
                let a = KeyRange::through(&first, &last);
                let b = KeyRange::through(&(first, 0_u32), &(last, u32::MAX));
                let next = tx.fold(tables.a, a, first, |next, key, row| step(next, key, &row)).await?;
                let check = |next: &mut u64, (key, second): (u64, u32), row: Numbered| {
                    if second == second_of(key) { step(next, key, &row) } else { ControlFlow::Break(()) }
                };
                Ok((next, tx.fold(tables.b, b, first, check).await?))
            };
            let (next_a, next_b) = db.run(tables.a.at(&first), read)?;
            for (table, next) in [(A::NAME, next_a), (B::NAME, next_b)] {
                if next != last + 1 {
                    return Err(AuditError::Row { table, key: next.to_string(), what: NO_PAIR });
                }
            }
        }
        Ok(AuditReport { rows: verified.rows, entries: verified.entries, references: verified.references })
    }
}

/// Rows of each table audited in one transaction: bounds the pause of the workers.
const SLICE: u64 = 1024;

/// Goes on to the next row if this is the one of key `next`, as it was loaded.
fn step(next: &mut u64, key: u64, row: &Numbered) -> ControlFlow<()> {
    if key != *next || *row != Numbered::loaded(key) {
        return ControlFlow::Break(());
    }
    *next += 1;
    ControlFlow::Continue(())
}
