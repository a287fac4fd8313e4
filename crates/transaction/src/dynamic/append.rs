//! Rows of tables without a primary key: each gets a hidden key, the number of its transaction's home and a counter of
//! it.
//!
//! So the rows that a worker appends are adjacent, and appending is local if the worker owns their partition. The
//! counter belongs to the worker. The first append of the worker to the table since the database was opened starts it
//! after the last existing row; an aborted append may leave a gap.

use atrapos_catalog::Value;
use atrapos_partition::abort::Abort;
use atrapos_partition::dynamic::{InsertRow, TableHandle, invalid};
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::LockMode;

use crate::tx::Tx;

impl Tx<'_> {
    /// Appends a row to a table without a primary key, and returns its hidden key. Columns that are left out get their
    /// defaults, or NULL.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run); [`InvalidValue`](atrapos_partition::abort::AbortReason::InvalidValue) when the columns make no row of the table, or it has
    /// a key of its own.
    pub async fn append(
        &mut self,
        table: &TableHandle,
        columns: &[(&str, Value)],
    ) -> Result<Vec<Value>, Abort> {
        let row = self.appended(table, table.layout.new_row(columns))?;
        let (key, encoded) = self.next_hidden_key(table).await?;
        self.run(table.on_key(LockMode::Exclusive, encoded, InsertRow::new(row, true))).await?;
        Ok(key)
    }

    /// Appends rows as [`append`](Tx::append) does, in one phase: each of the values of all columns, in their order.
    ///
    /// # Errors
    /// Those of [`append`](Tx::append).
    pub async fn append_values(&mut self, table: &TableHandle, rows: Vec<Vec<Value>>) -> Result<(), Abort> {
        let mut actions = Vec::with_capacity(rows.len());
        for values in rows {
            let row = self.appended(table, table.layout.new_row_of_values(values))?;
            let (_, encoded) = self.next_hidden_key(table).await?;
            actions.push(table.on_key(LockMode::Exclusive, encoded, InsertRow::new(row, true)));
        }
        self.join_each(actions, drop).await
    }

    /// Returns the bytes of a row that has been made without a key.
    fn appended(
        &self,
        table: &TableHandle,
        made: Result<(Option<KeyBuf>, Vec<u8>), Abort>,
    ) -> Result<Vec<u8>, Abort> {
        match made {
            Ok((None, row)) => Ok(row),
            Ok((Some(_), _)) => {
                let name = table.name();
                Err(self.refuse(invalid(format!(
                    "table '{name}' has a key of its own; insert rows into it with Tx::insert_row"
                ))))
            }
            Err(abort) => Err(self.refuse(abort)),
        }
    }

    /// Returns the next hidden key of this worker in a table, as values and encoded.
    async fn next_hidden_key(&mut self, table: &TableHandle) -> Result<(Vec<Value>, KeyBuf), Abort> {
        let number = self.next_hidden(table).await?;
        let key = vec![Value::Unsigned(self.home().0.into()), Value::Unsigned(number.into())];
        let encoded = table.hidden_key(self.home(), number).map_err(|abort| self.refuse(abort))?;
        Ok((key, encoded))
    }

    /// Returns the next number of this worker in a table.
    async fn next_hidden(&mut self, table: &TableHandle) -> Result<u64, Abort> {
        let is_known = self.worker().shard().appended.borrow().contains_key(&table.id());
        let last = if is_known { 0 } else { self.last_hidden(table).await? };
        let mut appended = self.worker().shard().appended.borrow_mut();
        // Other transactions may have read the last number meanwhile, and used later ones.
        let counter = appended.entry(table.id()).or_insert(last);
        match counter.checked_add(1) {
            Some(next) => {
                *counter = next;
                Ok(next)
            }
            None => {
                drop(appended);
                Err(self.refuse(invalid(format!("table '{}' has no hidden keys left", table.name()))))
            }
        }
    }

    /// Returns the greatest number of this worker among the rows of a table; zero if there is none.
    async fn last_hidden(&mut self, table: &TableHandle) -> Result<u64, Abort> {
        let of_worker = [Value::Unsigned(self.home().0.into())];
        let range = table.prefix(&of_worker).map_err(|abort| self.refuse(abort))?;
        let Some(last) = self.scan_backward(table, range, 1).await?.pop() else { return Ok(0) };
        match last.key(table).map_err(|abort| self.refuse(abort))?.get(1) {
            Some(Value::Unsigned(number)) => Ok(u64::try_from(*number).unwrap_or(u64::MAX)),
            _ => Ok(0),
        }
    }
}
