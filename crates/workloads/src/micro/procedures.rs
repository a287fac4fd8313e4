//! The two transactions of the microbenchmark as stored procedures.

use atrapos::{Abort, RowEdit, RowView, TableRef, Transaction};

use super::{Counter, Counters};

atrapos::stored_procedures! {
    /// Reads rows. See [`read`]. Its home is that of the first one.
    pub ReadRows("micro.read", "read") { rows: Vec<u64> } -> u64;
    tables TableRef<Counters>: |db| db.table();
    home: |own, table| table.at(own.rows.first().unwrap_or(&0));
    run: |own, tx, table| read(tx, *table, &own.rows);

    /// Adds one to rows. See [`update`]. Its home is that of the first one.
    pub UpdateRows("micro.update", "update") { rows: Vec<u64> } -> ();
    tables TableRef<Counters>: |db| db.table();
    home: |own, table| table.at(own.rows.first().unwrap_or(&0));
    run: |own, tx, table| update(tx, *table, &own.rows);
}

/// Detail of the abort of a transaction that does not find a row.
pub const NO_ROW: &str = "a row of the microbenchmark is missing";

/// Reads `rows` as one phase and returns the sum of their counters.
///
/// # Errors
/// Fails like [`Transaction::run`]; also if a row is missing.
pub async fn read(tx: &mut impl Transaction, table: TableRef<Counters>, rows: &[u64]) -> Result<u64, Abort> {
    tx.declare_last();
    let count = |row: RowView<'_, Counter>| row.get(|column| column.count);
    let sum = if let [row] = rows {
        tx.view(table, *row, count).await?
    } else {
        tx.join_all(rows.iter().map(|row| table.view(*row, count))).await?.into_iter().sum()
    };
    sum.ok_or_else(|| Abort::user(NO_ROW))
}

/// Adds one to the counter of each of `rows`, as one phase.
///
/// # Errors
/// Fails like [`Transaction::run`]; also if a row is missing.
pub async fn update(tx: &mut impl Transaction, table: TableRef<Counters>, rows: &[u64]) -> Result<(), Abort> {
    let add_one = |row: &mut RowEdit<'_, Counter>| row.change(|column| column.count, |count| count + 1);
    tx.declare_last();
    let all_there = if let [row] = rows {
        tx.edit(table, *row, add_one).await?.is_some()
    } else {
        let updated = tx.join_all(rows.iter().map(|row| table.edit(*row, add_one))).await?;
        updated.iter().all(Option::is_some)
    };
    if all_there { Ok(()) } else { Err(Abort::user(NO_ROW)) }
}
