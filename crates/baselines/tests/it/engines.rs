//! Tests of every engine with shared data: operations against a model, invariants of threads that conflict, proved histories.

pub(crate) mod histories;
pub(crate) mod model;
mod threads;

use std::ops::ControlFlow;

use atrapos_baselines::domains::TableStructure;
use atrapos_baselines::occ::OccEngine;
use atrapos_baselines::two_phase::{LockingEngine, OneThreadEngine};
use atrapos_baselines::{Engine, EngineClient, Intent, RowTransaction};
use atrapos_partition::abort::{Abort, Advice};
use atrapos_partition::schema::TableId;

pub(crate) use histories::run_and_judge;

pub(crate) const TABLE: TableId = TableId(0);
pub(crate) const OTHER: TableId = TableId(1);

/// Makes an empty engine of three tables.
pub(crate) type MakeEngine = fn() -> Box<dyn Engine>;

/// All engines.
pub(crate) const ENGINES: [MakeEngine; 2] =
    [|| Box::new(OccEngine::new(3)), || Box::new(LockingEngine::new(3))];

/// The engine whose tables are structures in domains, of two workers: the keys of tests are on both.
#[cfg(not(miri))]
pub(crate) const ON_DOMAINS: MakeEngine = || Box::new(crate::domains::engine(TableStructure::OwnedTree));

/// All engines, and inside instances, too, where the system lets processes have links.
pub(crate) fn everywhere() -> impl Iterator<Item = MakeEngine> {
    let engines = ENGINES.into_iter();
    #[cfg(not(miri))]
    let engines = engines.chain(crate::instance::IN_INSTANCES).chain([ON_DOMAINS]);
    engines
}

/// All engines that one client can use.
pub(crate) fn for_one_client() -> impl Iterator<Item = MakeEngine> {
    let one_thread: MakeEngine = || Box::new(OneThreadEngine::new(3));
    everywhere().chain([one_thread])
}

/// Row numbers of a range.
pub(crate) type Numbers = Vec<(u64, u64)>;

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("keys and rows of these tests have eight bytes"))
}

/// Runs a transaction, and again for as long as others are in its way.
pub(crate) fn run<R>(
    client: &mut dyn EngineClient,
    mut body: impl FnMut(&mut dyn RowTransaction) -> Result<R, Abort>,
) -> Result<R, Abort> {
    for attempt in 1.. {
        let mut result = None;
        match client.attempt(&mut |tx| body(tx).map(|done| result = Some(done))) {
            Err(abort) if abort.reason().advice() == Advice::Retry => client.back_off(attempt),
            ended => return ended.map(|()| result.expect("a transaction that has committed has run")),
        }
    }
    unreachable!("a transaction is not tried four billion times")
}

/// Loads rows of numbers.
pub(crate) fn load(engine: &dyn Engine, table: TableId, rows: impl IntoIterator<Item = (u64, u64)>) {
    let row = |(key, row): (u64, u64)| ((&key.to_be_bytes()[..]).into(), row.to_be_bytes().into());
    let rows: Vec<_> = rows.into_iter().map(row).collect();
    engine.load(table, &rows).unwrap_or_else(|abort| panic!("{abort}"));
}

pub(crate) fn get(tx: &mut dyn RowTransaction, table: TableId, key: u64) -> Result<Option<u64>, Abort> {
    Ok(tx.read(table, &key.to_be_bytes(), Intent::Read)?.map(number))
}

/// Inserts a row or replaces the one that is there.
pub(crate) fn put(tx: &mut dyn RowTransaction, table: TableId, key: u64, row: u64) -> Result<(), Abort> {
    let (key, row) = (key.to_be_bytes(), row.to_be_bytes());
    if tx.read(table, &key, Intent::Write)?.is_some() {
        return tx.replace(table, &key, &row);
    }
    tx.insert(table, &key, &row).map(|_| ())
}

pub(crate) fn range(
    tx: &mut dyn RowTransaction,
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
pub(crate) fn rows(engine: &dyn Engine, table: TableId) -> Numbers {
    let mut rows = Vec::new();
    let visited = engine.walk(table, &mut |key, row| {
        rows.push((number(key), number(row)));
        Ok(ControlFlow::Continue(()))
    });
    visited.unwrap_or_else(|abort| panic!("{abort}"));
    rows
}

pub(crate) fn check(engine: &dyn Engine) {
    engine.check().unwrap_or_else(|wrong| panic!("{}: {wrong}", engine.name()));
}
