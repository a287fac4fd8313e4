//! Accesses of a transaction to rows of tables known by their definitions, and to tables of either kind.

use atrapos_catalog::Value;
use atrapos_partition::abort::Abort;
use atrapos_partition::action::{Action, Delete, Get, Operation};
use atrapos_partition::dynamic::{DeleteRow, DynRow, GetRow, Revision, TableHandle};
use atrapos_partition::range::KeyRange;
use atrapos_partition::schema::{CatalogTag, Table, TableId, TableRef};

use super::ranges::scan_rows;
use crate::transaction::scan;
use crate::tx::Tx;

mod sealed {
    pub trait Sealed {}
}

/// A table of a database: known as types ([`TableRef`]), or by its definition (a reference to a [`TableHandle`]).
pub trait AnyTable: sealed::Sealed + Copy {
    /// The key of a row: a typed key, or the values of one.
    type Key;
    /// The result of a scan for each row.
    type Entry;
    /// The operation that reads a row.
    type Get: Operation;
    /// The operation that deletes a row.
    type Delete: Operation;

    /// Creates the action that reads a row.
    #[doc(hidden)]
    fn get_action(self, key: Self::Key) -> Result<Action<Self::Get>, Abort>;

    /// Creates the action that deletes a row.
    #[doc(hidden)]
    fn delete_action(self, key: Self::Key) -> Result<Action<Self::Delete>, Abort>;

    /// Returns the table, if transactions may write it.
    #[doc(hidden)]
    fn writable(self) -> Result<Writable, Abort>;

    /// Returns at most `limit` rows of a range, from its beginning or from its end.
    #[doc(hidden)]
    fn scan_in(
        self,
        tx: &mut Tx<'_>,
        range: KeyRange,
        limit: usize,
        backward: bool,
    ) -> impl Future<Output = Result<Vec<Self::Entry>, Abort>>;
}

/// A table that transactions may write.
#[derive(Clone, Copy, Debug)]
pub struct Writable {
    pub(crate) table: TableId,
    pub(crate) tag: CatalogTag,
}

impl<T: Table> sealed::Sealed for TableRef<T> {}

impl<T: Table> AnyTable for TableRef<T> {
    type Key = T::Key;
    type Entry = (T::Key, T::Row);
    type Get = Get<T>;
    type Delete = Delete<T>;

    #[inline(always)]
    fn get_action(self, key: T::Key) -> Result<Action<Get<T>>, Abort> {
        Ok(self.get(key))
    }

    #[inline(always)]
    fn delete_action(self, key: T::Key) -> Result<Action<Delete<T>>, Abort> {
        Ok(self.delete(key))
    }

    fn writable(self) -> Result<Writable, Abort> {
        const { Self::WRITABLE };
        Ok(Writable { table: self.id(), tag: self.tag() })
    }

    async fn scan_in(
        self,
        tx: &mut Tx<'_>,
        range: KeyRange,
        limit: usize,
        backward: bool,
    ) -> Result<Vec<(T::Key, T::Row)>, Abort> {
        scan(tx, self, range, limit, backward).await
    }
}

impl sealed::Sealed for &TableHandle {}

impl<'a> AnyTable for &'a TableHandle {
    type Key = &'a [Value];
    type Entry = DynRow;
    type Get = GetRow;
    type Delete = DeleteRow;

    #[inline(always)]
    fn get_action(self, key: &'a [Value]) -> Result<Action<GetRow>, Abort> {
        self.get(key)
    }

    #[inline(always)]
    fn delete_action(self, key: &'a [Value]) -> Result<Action<DeleteRow>, Abort> {
        self.delete(key)
    }

    fn writable(self) -> Result<Writable, Abort> {
        self.layout.check_writable()?;
        Ok(Writable { table: self.id(), tag: self.tag })
    }

    async fn scan_in(
        self,
        tx: &mut Tx<'_>,
        range: KeyRange,
        limit: usize,
        backward: bool,
    ) -> Result<Vec<DynRow>, Abort> {
        scan_rows(tx, self, range, limit, backward).await
    }
}

impl Tx<'_> {
    /// Runs an action, or returns the abort with which its creation was refused.
    pub(super) async fn run_made<O: Operation>(
        &mut self,
        action: Result<Action<O>, Abort>,
    ) -> Result<O::Output, Abort> {
        match action {
            Ok(action) => self.run(action).await,
            Err(abort) => Err(self.refuse(abort)),
        }
    }

    /// Reads some columns of a row, in the requested order; `None` if there is no row.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run); [`InvalidValue`](atrapos_partition::abort::AbortReason::InvalidValue) as for [`TableHandle::get_columns`].
    pub async fn get_columns(
        &mut self,
        table: &TableHandle,
        key: &[Value],
        columns: &[&str],
    ) -> Result<Option<Vec<Value>>, Abort> {
        self.run_made(table.get_columns(key, columns)).await
    }

    /// Inserts a row of these columns; those left out get their defaults, or NULL. A key that is taken aborts the transaction.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run); [`InvalidValue`](atrapos_partition::abort::AbortReason::InvalidValue) as for [`TableHandle::insert`].
    pub async fn insert_row(&mut self, table: &TableHandle, columns: &[(&str, Value)]) -> Result<(), Abort> {
        self.run_made(table.insert(columns)).await.map(drop)
    }

    /// Inserts a row like [`insert_row`](Tx::insert_row) unless its key is taken; returns true if it was inserted.
    ///
    /// # Errors
    /// Those of [`insert_row`](Tx::insert_row).
    pub async fn insert_row_if_absent(
        &mut self,
        table: &TableHandle,
        columns: &[(&str, Value)],
    ) -> Result<bool, Abort> {
        self.run_made(table.insert_if_absent(columns)).await
    }

    /// Sets columns of a row; returns true if there is such a row.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run); [`InvalidValue`](atrapos_partition::abort::AbortReason::InvalidValue) as for [`TableHandle::update`].
    pub async fn update_row(
        &mut self,
        table: &TableHandle,
        key: &[Value],
        columns: &[(&str, Value)],
    ) -> Result<bool, Abort> {
        self.run_made(table.update(key, columns)).await
    }

    /// Changes a row as `decide` says ([`TableHandle::revise`]), and returns what it returns; `None` if there is no such row.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run), those of `decide`, and [`InvalidValue`](atrapos_partition::abort::AbortReason::InvalidValue) as for
    /// [`TableHandle::revise`].
    pub async fn revise_row<R, F>(
        &mut self,
        table: &TableHandle,
        key: &[Value],
        decide: F,
    ) -> Result<Option<R>, Abort>
    where
        R: Send + 'static,
        F: FnOnce(&DynRow) -> Result<(Revision, R), Abort> + Send + 'static,
    {
        self.run_made(table.revise(key, decide)).await
    }
}
