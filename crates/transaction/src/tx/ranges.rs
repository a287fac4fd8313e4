//! Changes of all rows of a range, under one exclusive lock of the range in each partition.

use atrapos_partition::abort::Abort;
use atrapos_partition::action::{DeleteRange, Operation, RangeChanged, UpdateRange};
use atrapos_partition::range::KeyRange;
use atrapos_partition::schema::{CatalogTag, Table, TableId, TableRef};

use super::Tx;
use crate::dynamic::AnyTable;
use crate::transaction::change_range;

impl Tx<'_> {
    /// Changes every row of a range in place, in order of their keys, and returns the number of rows. The closure runs
    /// on the owners of the rows. The range is locked exclusively, as a whole in each partition, until the transaction
    /// ends: no other transaction reads, changes or inserts a row in it.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run).
    pub async fn update_range<T, F>(
        &mut self,
        table: TableRef<T>,
        range: KeyRange,
        change: F,
    ) -> Result<u64, Abort>
    where
        T: Table,
        F: FnMut(&T::Key, &mut T::Row) + Send + 'static,
    {
        let update = UpdateRange::<T, F>::new(change);
        self.change_range((table.id(), table.tag()), range, update).await
    }

    /// Deletes every row of a range and returns the number of rows. The range is locked as by
    /// [`update_range`](Tx::update_range).
    ///
    /// # Errors
    /// Those of [`run`](Tx::run); [`InvalidValue`](atrapos_partition::abort::AbortReason::InvalidValue) when the table is read-only.
    pub async fn delete_range<A: AnyTable>(&mut self, table: A, range: KeyRange) -> Result<u64, Abort> {
        match table.writable() {
            Ok(found) => self.change_range((found.table, found.tag), range, DeleteRange).await,
            Err(abort) => Err(self.refuse(abort)),
        }
    }

    /// Runs an operation on a range, partition by partition, and returns the number of changed rows.
    pub(crate) async fn change_range<O: Operation<Output = RangeChanged<O>>>(
        &mut self,
        table: (TableId, CatalogTag),
        range: KeyRange,
        operation: O,
    ) -> Result<u64, Abort> {
        change_range(table, range, operation, async |action| self.run(action).await).await
    }
}
