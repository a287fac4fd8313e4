//! Handles of tables that are looked up by name.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use atrapos_catalog::{ColumnDef, Value};
use atrapos_runtime::WorkerId;
use atrapos_storage::lock::LockMode;
use atrapos_storage::{KeyBuf, prefix_successor};

use super::layout::{KeyLayout, TableLayout};
use super::operation::{DeleteRow, GetColumns, GetRow, InsertRow, ReviseRow, Revision, UpdateRow};
use super::row::DynRow;
use crate::abort::Abort;
use crate::action::{Action, Operation};
use crate::range::KeyRange;
use crate::routing::Route;
use crate::schema::{Catalog, CatalogTag, SchemaError, TableId};

/// A handle of a table in one open database, found by its name. Get it from
/// `Database::table_named`, clone it once per client, and use it by reference: clones share a
/// count, which is written when they are made and dropped.
#[derive(Clone)]
pub struct TableHandle {
    #[doc(hidden)]
    pub tag: CatalogTag,
    #[doc(hidden)]
    pub layout: Arc<TableLayout>,
}

impl fmt::Debug for TableHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableHandle({})", self.layout.name)
    }
}

impl Catalog {
    /// Looks up the table with this name.
    pub fn table_named(&self, name: &str) -> Result<TableHandle, SchemaError> {
        let number = self.definitions.find(name).map(TableId);
        match number.and_then(|number| self.layouts.table(number)) {
            Some(layout) => Ok(TableHandle { tag: self.tag, layout: Arc::clone(layout) }),
            None => {
                Err(SchemaError(format!("this database has no table '{name}'; create it, or name another")))
            }
        }
    }
}

impl TableHandle {
    /// The table's number.
    #[must_use]
    pub fn id(&self) -> TableId {
        self.layout.number
    }

    /// The table's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.layout.name
    }

    /// The columns, those of the key included, in the order of the definition.
    #[must_use]
    pub fn columns(&self) -> &[ColumnDef] {
        &self.layout.columns
    }

    /// Routes a transaction to the worker that owns the row with this key, or the first row whose key begins with these values.
    ///
    /// # Errors
    /// [`InvalidValue`](crate::abort::AbortReason::InvalidValue) when the values are no beginning of a key.
    pub fn at(&self, key: &[Value]) -> Result<Route, Abort> {
        Ok(Route::to(self.id(), self.layout.key.encode_beginning(key)?))
    }

    /// The rows whose keys begin with these values; all rows when there are none.
    ///
    /// # Errors
    /// [`InvalidValue`](crate::abort::AbortReason::InvalidValue) when the values are no beginning of a key.
    pub fn prefix(&self, values: &[Value]) -> Result<KeyRange, Abort> {
        self.range(Bound::Included(values), Bound::Included(values))
    }

    /// The rows between two bounds, each a key or its leading parts, in the order of the keys. A bound that is included covers
    /// all keys that begin with it; one that is excluded covers none of them.
    ///
    /// # Errors
    /// [`InvalidValue`](crate::abort::AbortReason::InvalidValue) when the values are no beginning of a key.
    pub fn range(&self, lower: Bound<&[Value]>, upper: Bound<&[Value]>) -> Result<KeyRange, Abort> {
        range_of(&self.layout.key, lower, upper)
    }

    #[inline]
    fn key(&self, values: &[Value]) -> Result<KeyBuf, Abort> {
        self.layout.key.encode(values)
    }

    #[inline]
    #[doc(hidden)]
    pub fn on_key<O: Operation>(&self, mode: LockMode, key: KeyBuf, operation: O) -> Action<O> {
        Action::on_key(self.layout.number, self.tag, mode, key, operation)
    }

    /// Reads the row with this key, if there is one.
    ///
    /// # Errors
    /// [`InvalidValue`](crate::abort::AbortReason::InvalidValue) when the values are no key of the table.
    #[inline]
    pub fn get(&self, key: &[Value]) -> Result<Action<GetRow>, Abort> {
        Ok(self.get_encoded(self.key(key)?))
    }

    /// Reads the row with an encoded key.
    #[inline]
    #[doc(hidden)]
    pub fn get_encoded(&self, key: KeyBuf) -> Action<GetRow> {
        self.on_key(LockMode::Shared, key, GetRow)
    }

    /// Reads some columns of the row with this key, in the requested order. Only these are sent.
    ///
    /// # Errors
    /// [`InvalidValue`](crate::abort::AbortReason::InvalidValue) when the values are no key of the table, or there is no such column.
    pub fn get_columns(&self, key: &[Value], columns: &[&str]) -> Result<Action<GetColumns>, Abort> {
        let columns: Result<Vec<usize>, Abort> =
            columns.iter().map(|name| self.layout.column(name)).collect();
        Ok(self.on_key(LockMode::Shared, self.key(key)?, GetColumns::new(columns?)))
    }

    /// Inserts a row. Columns that are left out get their defaults, or NULL; a key that is taken aborts the transaction
    /// ([`DuplicateKey`](crate::abort::AbortReason::DuplicateKey)).
    ///
    /// # Errors
    /// [`InvalidValue`](crate::abort::AbortReason::InvalidValue) when the columns make no row of the table, or its key is hidden (see
    /// `Tx::append`).
    pub fn insert(&self, columns: &[(&str, Value)]) -> Result<Action<InsertRow>, Abort> {
        self.insertion(columns, true)
    }

    /// Inserts a row like [`insert`](TableHandle::insert) unless its key is taken; returns true if it was inserted.
    ///
    /// # Errors
    /// Those of [`insert`](TableHandle::insert).
    pub fn insert_if_absent(&self, columns: &[(&str, Value)]) -> Result<Action<InsertRow>, Abort> {
        self.insertion(columns, false)
    }

    /// Inserts a row of the values of all columns, in their order, as [`insert`](TableHandle::insert) does.
    ///
    /// # Errors
    /// Those of [`insert`](TableHandle::insert).
    pub fn insert_values(&self, values: Vec<Value>) -> Result<Action<InsertRow>, Abort> {
        self.insertion_of(self.layout.new_row_of_values(values)?, true)
    }

    /// Inserts a row of the values of all columns, in their order, as [`insert_if_absent`](TableHandle::insert_if_absent) does.
    ///
    /// # Errors
    /// Those of [`insert`](TableHandle::insert).
    pub fn insert_values_if_absent(&self, values: Vec<Value>) -> Result<Action<InsertRow>, Abort> {
        self.insertion_of(self.layout.new_row_of_values(values)?, false)
    }

    /// Encodes the row of the values of all columns, in their order: its key, unless that is hidden, and its bytes.
    ///
    /// # Errors
    /// [`InvalidValue`](crate::abort::AbortReason::InvalidValue) when the values make no row of the table.
    pub fn encode_row(&self, values: Vec<Value>) -> Result<(Option<KeyBuf>, Vec<u8>), Abort> {
        self.layout.new_row_of_values(values)
    }

    /// Encodes the key of a row whose key is hidden: a worker's number, and the number of the row among those of the worker.
    ///
    /// # Errors
    /// [`InvalidValue`](crate::abort::AbortReason::InvalidValue) when the table has a key of its own.
    pub fn hidden_key(&self, worker: WorkerId, number: u64) -> Result<KeyBuf, Abort> {
        self.layout.key.encode(&[Value::Unsigned(worker.0.into()), Value::Unsigned(number.into())])
    }

    fn insertion(&self, columns: &[(&str, Value)], strict: bool) -> Result<Action<InsertRow>, Abort> {
        self.insertion_of(self.layout.new_row(columns)?, strict)
    }

    fn insertion_of(
        &self,
        (key, row): (Option<KeyBuf>, Vec<u8>),
        strict: bool,
    ) -> Result<Action<InsertRow>, Abort> {
        let Some(key) = key else {
            return Err(super::layout::invalid(format!(
                "table '{}' has no key of its own; append rows to it with Tx::append",
                self.layout.name
            )));
        };
        Ok(self.on_key(LockMode::Exclusive, key, InsertRow::new(row, strict)))
    }

    /// Sets columns of the row with this key; returns true if there is such a row.
    ///
    /// # Errors
    /// [`InvalidValue`](crate::abort::AbortReason::InvalidValue) when the values are no key, or do not fit their columns, or a column is
    /// part of the key.
    pub fn update(&self, key: &[Value], columns: &[(&str, Value)]) -> Result<Action<UpdateRow>, Abort> {
        let assigned = self.layout.assignments(columns)?;
        Ok(self.on_key(LockMode::Exclusive, self.key(key)?, UpdateRow::new(assigned)))
    }

    /// Changes the row with this key as `decide` says, which runs on the row's owner, and returns what it returns beside the
    /// change; `None` if there is no row. The row is locked exclusively before it is read, so nothing is decided twice.
    ///
    /// # Errors
    /// [`InvalidValue`](crate::abort::AbortReason::InvalidValue) when the values are no key of the table.
    pub fn revise<R, F>(&self, key: &[Value], decide: F) -> Result<Action<ReviseRow<F>>, Abort>
    where
        R: Send + 'static,
        F: FnOnce(&DynRow) -> Result<(Revision, R), Abort> + Send + 'static,
    {
        Ok(self.on_key(LockMode::Exclusive, self.key(key)?, ReviseRow::new(decide)))
    }

    /// Deletes the row with this key and returns it, if there was one.
    ///
    /// # Errors
    /// [`InvalidValue`](crate::abort::AbortReason::InvalidValue) when the values are no key of the table, or the table is read-only.
    pub fn delete(&self, key: &[Value]) -> Result<Action<DeleteRow>, Abort> {
        self.layout.check_writable()?;
        Ok(self.on_key(LockMode::Exclusive, self.key(key)?, DeleteRow))
    }
}

/// Returns the range between two bounds of keys.
pub(super) fn range_of(
    key: &KeyLayout,
    lower: Bound<&[Value]>,
    upper: Bound<&[Value]>,
) -> Result<KeyRange, Abort> {
    // No key follows those that begin with the greatest possible bytes.
    let nothing = || KeyRange { lower: KeyBuf::new(), upper: Some(KeyBuf::new()) };
    let lower = match lower {
        Bound::Unbounded => KeyBuf::new(),
        Bound::Included(values) => key.encode_beginning(values)?,
        Bound::Excluded(values) => match prefix_successor(&key.encode_beginning(values)?) {
            Some(behind) => behind,
            None => return Ok(nothing()),
        },
    };
    let upper = match upper {
        Bound::Unbounded => None,
        Bound::Included(values) => prefix_successor(&key.encode_beginning(values)?),
        Bound::Excluded(values) => Some(key.encode_beginning(values)?),
    };
    Ok(KeyRange { lower, upper })
}
