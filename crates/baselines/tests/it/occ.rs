//! `shared-occ`: its operations against a model, its isolation step by step and by threads, and proved histories.

mod histories;
mod isolation;
mod model;
mod planted;
mod threads;

use std::ops::ControlFlow;

use atrapos_baselines::occ::{OccEngine, OccTransaction};
use atrapos_baselines::{Intent, RowTransaction};
use atrapos_partition::abort::Abort;
use atrapos_partition::schema::TableId;

const TABLE: TableId = TableId(0);
const OTHER: TableId = TableId(1);

/// Row numbers of a range.
type Numbers = Vec<(u64, u64)>;

fn engine() -> OccEngine {
    OccEngine::with_epoch_period(3, None)
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("keys and rows of these tests have eight bytes"))
}

/// Loads rows of numbers.
fn load(engine: &OccEngine, table: TableId, rows: impl IntoIterator<Item = (u64, u64)>) {
    let rows = rows.into_iter().map(|(key, row)| (key.to_be_bytes(), row.to_be_bytes()));
    engine.load(table, rows).unwrap_or_else(|abort| panic!("{abort}"));
}

fn get(tx: &mut OccTransaction<'_>, table: TableId, key: u64) -> Result<Option<u64>, Abort> {
    Ok(tx.read(table, &key.to_be_bytes(), Intent::Read)?.map(number))
}

/// Inserts a row or replaces the one that is there.
fn put(tx: &mut OccTransaction<'_>, table: TableId, key: u64, row: u64) -> Result<(), Abort> {
    let (key, row) = (key.to_be_bytes(), row.to_be_bytes());
    if tx.read(table, &key, Intent::Write)?.is_some() {
        return tx.replace(table, &key, &row);
    }
    tx.insert(table, &key, &row).map(|_| ())
}

fn range(
    tx: &mut OccTransaction<'_>,
    table: TableId,
    (from, to): (u64, Option<u64>),
    backward: bool,
) -> Result<Numbers, Abort> {
    let (mut found, to) = (Vec::new(), to.map(u64::to_be_bytes));
    let to = to.as_ref().map(|to| &to[..]);
    tx.scan(table, (&from.to_be_bytes(), to), backward, &mut |key, row| {
        found.push((number(key), number(row)));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// The rows of a table that nobody changes.
fn rows(engine: &OccEngine, table: TableId) -> Numbers {
    let mut rows = Vec::new();
    let visited = engine.for_each(table, |key, row| rows.push((number(key), number(row))));
    visited.unwrap_or_else(|abort| panic!("{abort}"));
    rows
}

fn check(engine: &OccEngine) {
    engine.check().unwrap_or_else(|wrong| panic!("{wrong}"));
}
