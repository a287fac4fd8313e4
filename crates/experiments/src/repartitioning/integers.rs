//! The table of Figure 9: rows of ten integers. Transactions add one to the first integer of a row.
//!
//! Owns: the table, its population, transactions and auditor. Never: changes its partitions.

use std::ops::ControlFlow;

use atrapos::{
    Abort, Database, Handles, KeyRange, LoadError, LoadProgress, Procedures, RegisterError, Schema, Table,
    TableRef, Tx, row,
};
use atrapos_workloads::room::{self, NotEnoughMemory};
use atrapos_workloads::{
    AuditError, AuditReport, ClassId, Client, KeySet, Ledger, Outcome, Random, Reach, SetupError, Workload,
};

row! {
    /// Ten integers.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[expect(missing_docs, reason = "they mean nothing, but that the first one counts updates")]
    pub struct TenIntegers {
        pub first: u64,
        pub second: u64,
        pub third: u64,
        pub fourth: u64,
        pub fifth: u64,
        pub sixth: u64,
        pub seventh: u64,
        pub eighth: u64,
        pub ninth: u64,
        pub tenth: u64,
    }
}

/// The only table, by row number from 0.
#[derive(Debug)]
pub struct IntegerRows;
impl Table for IntegerRows {
    type Key = u64;
    type Row = TenIntegers;
    const NAME: &'static str = "integers";
}

atrapos::stored_procedures! {
    /// Adds one to the first integer of a row; `None` if there is no such row.
    pub(super) AddOne("integers.add-one", "add-one") { key: u64 } -> Option<()>;
    tables TableRef<IntegerRows>: |db| db.table();
    home: |own, table| table.at(&own.key);
    run: |own, tx, table| tx.update(*table, own.key, |row| row.first += 1);
}

/// The workload over a number of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Integers {
    pub(super) rows: u64,
    pub(super) seed: u64,
}

/// State of one client.
#[derive(Debug)]
pub(super) struct IntegersState {
    table: TableRef<IntegerRows>,
    keys: KeySet,
    random: Random,
}

/// Memory that a row takes in all, estimated generously.
const RESIDENT_BYTES_PER_ROW: u64 = 160;

/// Reason of the abort of a transaction that does not find its row.
const NO_ROW: &str = "a row of the table of integers is missing";

/// Rows audited in one transaction.
const SLICE: u64 = 1024;

impl Workload for Integers {
    type State = IntegersState;

    fn classes(&self) -> &'static [&'static str] {
        &["add-one"]
    }

    fn updates(&self, _: ClassId) -> bool {
        true
    }

    fn schema(&self) -> Schema {
        Schema::new().table::<IntegerRows>().split_evenly(IntegerRows::NAME, 0, self.rows.max(1) - 1)
    }

    fn encoded_bytes(&self) -> u64 {
        self.rows * (8 + 80)
    }

    fn check_memory(&self, available_bytes: u64) -> Result<(), NotEnoughMemory> {
        room::check("rows", self.rows, RESIDENT_BYTES_PER_ROW, available_bytes)
    }

    fn expected_rows(&self) -> u64 {
        self.rows
    }

    fn load(&self, db: &Database, progress: &LoadProgress) -> Result<u64, LoadError> {
        let table = db.table::<IntegerRows>().map_err(|error| LoadError::Source(error.to_string()))?;
        let last = self.rows.max(1) - 1;
        db.load(progress, move |loader| {
            loader.share_of(table, 0, last).into_iter().flatten().try_for_each(|key| {
                let row = TenIntegers {
                    first: 0,
                    second: key,
                    third: key,
                    fourth: key,
                    fifth: key,
                    sixth: key,
                    seventh: key,
                    eighth: key,
                    ninth: key,
                    tenth: key,
                };
                loader.add(table, &key, &row)
            })
        })
    }

    fn register(&self, registry: &mut impl Procedures, handles: &impl Handles) -> Result<(), RegisterError> {
        registry.register::<AddOne>(handles)
    }

    fn state(&self, db: &Database, reach: Reach, stream: u64) -> Result<IntegersState, SetupError> {
        let table = db.table::<IntegerRows>()?;
        let last = self.rows.max(1) - 1;
        let keys = match reach {
            Reach::Everywhere => KeySet::range(0, last),
            Reach::OwnedBy(worker) => KeySet::owned_by(&db.scheme(), table.id(), 0, last, worker),
        };
        let worker = match reach {
            Reach::OwnedBy(worker) => worker,
            Reach::Everywhere => atrapos::WorkerId(0),
        };
        let keys = keys.ok_or(SetupError::NothingOwned { worker })?;
        Ok(IntegersState { table, keys, random: Random::of_stream(self.seed, stream) })
    }

    #[inline]
    async fn transaction(
        client: &Client<'_>,
        state: &mut IntegersState,
    ) -> (ClassId, Result<Outcome, Abort>) {
        let (table, key) = (state.table, state.keys.nth(state.random.below(state.keys.len())));
        let add = AddOne { key };
        let outcome = match client.run(&table, &add).await {
            Ok(Some(())) => Ok(Outcome::Succeeded),
            Ok(None) => Err(Abort::user(NO_ROW)),
            Err(abort) => Err(abort),
        };
        (ClassId(0), outcome)
    }

    fn audit(&self, db: &Database, ledger: &Ledger) -> Result<AuditReport, AuditError> {
        let verified = db.verify()?;
        let table = db.table::<IntegerRows>()?;
        let found = db.len(table.id())?;
        if found != self.rows {
            return Err(AuditError::Count { table: IntegerRows::NAME, expected: self.rows, found });
        }
        let mut sum = 0;
        for first in (0..self.rows).step_by(SLICE as usize) {
            let range = KeyRange::through(&first, &(self.rows - 1).min(first + SLICE - 1));
            let add = async move |tx: &mut Tx<'_>| {
                tx.fold(table, range.clone(), (0, None), |(sum, strange), key: u64, row: TenIntegers| {
                    *sum += row.first;
                    if (row.second, row.tenth) != (key, key) {
                        *strange = Some(key);
                    }
                    ControlFlow::Continue(())
                })
                .await
            };
            let (part, strange) = db.run(table.at(&first), add)?;
            if let Some(key) = strange {
                let (key, what) = (key.to_string(), "an integer was changed that nobody changes");
                return Err(AuditError::Row { table: IntegerRows::NAME, key, what });
            }
            sum += part;
        }
        let expected = ledger.committed(ClassId(0));
        if sum != expected {
            return Err(AuditError::Sum { what: "the sum of all first integers", expected, found: sum });
        }
        Ok(AuditReport { rows: verified.rows, entries: verified.entries, references: verified.references })
    }
}
