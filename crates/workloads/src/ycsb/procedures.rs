//! The operations of YCSB as stored procedures.
//!
//! Owns: the effect of each on its record, and the order in which those of one transaction run. Never: draws a random
//! number.
//!
//! # Several operations in one transaction
//!
//! In order of their keys ([`Order::Sorted`]), they run as one phase: in the order of owners and keys in which all
//! transactions run theirs, so that no two ever wait for each other in a cycle, with one message to each owner. In the
//! order in which they were drawn ([`Order::Drawn`]), they run one after the other, each waited for before the next
//! begins, like those of an interactive transaction; then transactions that write can close cycles, which are broken by
//! running one of them again.
//!
//! In both orders a record that is to be written is locked exclusively at once, also if it is read first: no
//! transaction waits to upgrade a lock.

use std::hint::black_box;
use std::ops::ControlFlow;

use atrapos::{Abort, Either, KeyRange, RowEdit, RowView, TableRef, Transaction};
use serde::{Deserialize, Serialize};

use super::copies::Copies;
use super::mix::Kind;
use super::parameters::Op;
use super::schema::{Keys, Record};

/// The order in which the operations of a transaction run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, clap::ValueEnum, Serialize, Deserialize)]
pub enum Order {
    /// All as one phase in order of owners and keys: transactions wait for each other, but never in a cycle.
    // Scans come last.
    #[default]
    Sorted,
    /// One after the other as they were drawn: cycles are broken by running a transaction again.
    Drawn,
}

impl Order {
    /// Returns the order's name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Order::Sorted => "sorted",
            Order::Drawn => "drawn",
        }
    }
}

/// Detail of the abort of a transaction that does not find a record.
pub const NO_RECORD: &str = "a record of YCSB is missing";

fn missing() -> Abort {
    Abort::user(NO_RECORD)
}

/// Reads up to `count` records from `key` on.
///
/// # Errors
/// The errors of [`Transaction::run`].
pub async fn scan<R: Record>(
    tx: &mut impl Transaction,
    table: TableRef<R::Table>,
    keys: Keys,
    key: u64,
    count: u32,
) -> Result<Copies, Abort> {
    // Every slot has its loaded record, so there are enough records before this one.
    let beyond = (key >> keys.shift()) + 1 + u64::from(count);
    let range = KeyRange::between(&key, &keys.loaded(beyond.min(keys.rows())));
    let add = move |found: &mut Copies, key, record: RowView<'_, R>| {
        found.push(key, record.as_bytes());
        if found.keys().len() < count as usize { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    tx.fold_views(table, range, Copies::new(), add).await
}

/// Returns the effect of an update: it returns the old record, if it is requested, and writes a new value to a column.
fn change<R: Record>(op: Op) -> impl FnOnce(&mut RowEdit<'_, R>) -> Option<Copies> + Send + 'static {
    move |record| {
        let before = (op.kind == Kind::ReadModifyWrite).then(|| Copies::of(record.as_bytes()));
        R::write_column(record, op.key, op.detail);
        before
    }
}

/// Runs the operations of one transaction.
///
/// # Errors
/// Fails like [`Transaction::run`]; also if a record is missing.
pub async fn operations<R: Record>(
    tx: &mut impl Transaction,
    table: TableRef<R::Table>,
    keys: Keys,
    ops: &[Op],
    order: Order,
) -> Result<(), Abort> {
    match order {
        Order::Sorted => {
            let points = ops.iter().filter(|op| op.kind != Kind::Scan).map(|op| match op.kind {
                Kind::Insert => table.insert(op.key, R::new(op.key)).right().right(),
                Kind::Update | Kind::ReadModifyWrite => table.edit(op.key, change::<R>(*op)).left().right(),
                Kind::Read | Kind::Scan => table.view(op.key, |record| Copies::of(record.as_bytes())).left(),
            });
            let found = black_box(tx.join_all(points).await?);
            let is_there =
                |result: &Either<Option<Copies>, Either<Option<Option<Copies>>, bool>>| match result {
                    Either::Left(record) => record.is_some(),
                    Either::Right(Either::Left(written)) => written.is_some(),
                    Either::Right(Either::Right(inserted)) => *inserted,
                };
            if !found.iter().all(is_there) {
                return Err(missing());
            }
        }
        Order::Drawn => {
            for op in ops {
                one::<R>(tx, table, *op).await?;
            }
        }
    }
    for op in ops.iter().filter(|op| op.kind == Kind::Scan) {
        black_box(scan::<R>(tx, table, keys, op.key, op.detail).await?);
    }
    Ok(())
}

/// Runs an operation on one record; scans excluded.
async fn one<R: Record>(tx: &mut impl Transaction, table: TableRef<R::Table>, op: Op) -> Result<(), Abort> {
    let is_there = match op.kind {
        Kind::Read => {
            black_box(tx.view(table, op.key, |record| Copies::of(record.as_bytes())).await?).is_some()
        }
        Kind::Update | Kind::ReadModifyWrite => {
            black_box(tx.edit(table, op.key, change::<R>(op)).await?).is_some()
        }
        Kind::Insert => tx.run(table.insert(op.key, R::new(op.key))).await?,
        Kind::Scan => true,
    };
    if is_there { Ok(()) } else { Err(missing()) }
}
