//! Handles of indexes that are found by name, and what a transaction finds through them.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use atrapos_adapt::FlowOperation as Kind;
use atrapos_catalog::Value;
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::LockMode;

use super::handle::{TableHandle, range_of};
use super::layout::{IndexLayout, invalid};
use super::row::DynRow;
use crate::abort::Abort;
use crate::action::{Action, Operation, RowContext};
use crate::database::Database;
use crate::range::KeyRange;
use crate::recording::{OperationKind, ResultShape};
use crate::routing::Route;
use crate::schema::{Catalog, CatalogTag, SchemaError, TableId};
use crate::tx::Tx;

/// A handle of an index in one open database, found by its name. Get it from
/// [`Database::index_named`](crate::Database::index_named); as [`TableHandle`], it is cloned once per client.
#[derive(Clone)]
pub struct IndexHandle {
    tag: CatalogTag,
    layout: Arc<IndexLayout>,
    table: TableHandle,
}

impl fmt::Debug for IndexHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IndexHandle({})", self.layout.name)
    }
}

impl Catalog {
    /// The index with this name.
    pub(crate) fn index_named(&self, name: &str) -> Result<IndexHandle, SchemaError> {
        let number = self.definitions.find(name).map(TableId);
        let layout = number.and_then(|number| self.layouts.index(number));
        let table = layout.and_then(|layout| self.layouts.table(layout.of));
        match (layout, table) {
            (Some(layout), Some(table)) => Ok(IndexHandle {
                tag: self.tag,
                layout: Arc::clone(layout),
                table: TableHandle { tag: self.tag, layout: Arc::clone(table) },
            }),
            _ => Err(SchemaError(format!("this database has no index '{name}'; create it, or name another"))),
        }
    }
}

impl Database {
    /// The handle of the index with this name, whether or not a program has declared it as types.
    ///
    /// # Errors
    /// When the database has no such index.
    pub fn index_named(&self, name: &str) -> Result<IndexHandle, SchemaError> {
        self.catalogs.visible().index_named(name)
    }
}

impl IndexHandle {
    /// The index's number among tables and indexes.
    #[must_use]
    pub fn id(&self) -> TableId {
        self.layout.number
    }

    /// The index's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.layout.name
    }

    /// The table whose rows it finds.
    #[must_use]
    pub fn table(&self) -> &TableHandle {
        &self.table
    }

    /// Whether two rows may not have the same key.
    #[must_use]
    pub fn is_unique(&self) -> bool {
        self.layout.is_unique
    }

    /// Routes a transaction to the worker that owns the first entry whose key begins with these values.
    ///
    /// # Errors
    /// [`InvalidValue`](crate::AbortReason::InvalidValue) when the values are no beginning of a key.
    pub fn at(&self, key: &[Value]) -> Result<Route, Abort> {
        Ok(Route::to(self.id(), self.layout.key.encode_beginning(key)?))
    }

    /// The entries whose keys begin with these values; all entries when there are none.
    ///
    /// # Errors
    /// [`InvalidValue`](crate::AbortReason::InvalidValue) when the values are no beginning of a key.
    pub fn prefix(&self, values: &[Value]) -> Result<KeyRange, Abort> {
        self.range(Bound::Included(values), Bound::Included(values))
    }

    /// The entries between two bounds, each a key or its leading parts, in the order of the index. See [`TableHandle::range`].
    ///
    /// # Errors
    /// [`InvalidValue`](crate::AbortReason::InvalidValue) when the values are no beginning of a key.
    pub fn range(&self, lower: Bound<&[Value]>, upper: Bound<&[Value]>) -> Result<KeyRange, Abort> {
        range_of(&self.layout.key, lower, upper)
    }

    /// One whole key of a unique index.
    fn whole_key(&self, key: &[Value]) -> Result<KeyBuf, Abort> {
        if !self.layout.is_unique {
            return Err(invalid(format!(
                "index '{}' is not unique, so a key of it may lead to several rows; use Tx::rows_by",
                self.layout.name
            )));
        }
        self.layout.key.encode(key)
    }
}

/// Reads one entry of a unique index.
struct LookupKey;

impl Operation for LookupKey {
    type Output = Option<KeyBuf>;

    fn apply(self, at: &mut RowContext<'_>) -> Result<Option<KeyBuf>, Abort> {
        Ok(at.row().map(|(_, primary_key)| KeyBuf::from(primary_key)))
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Read, 0, ResultShape::Rows)
    }
}

impl Tx<'_> {
    /// The row that a key of a unique index leads to. A key with a NULL in it may lead to several rows; this is the first.
    ///
    /// # Errors
    /// As [`run`](Tx::run); [`InvalidValue`](crate::AbortReason::InvalidValue) when the values are no key of the index, or it is
    /// not unique.
    pub async fn row_by(&mut self, index: &IndexHandle, key: &[Value]) -> Result<Option<DynRow>, Abort> {
        let entry = match index.whole_key(key) {
            Ok(entry) => entry,
            Err(abort) => return Err(self.refuse(abort)),
        };
        if key.iter().any(Value::is_null) {
            // In entries of such keys the primary key follows.
            let range = KeyRange::of_prefix_bytes(&entry);
            return Ok(self.rows_through(index, range, 1, false).await?.pop());
        }
        let action = Action::on_key(index.id(), index.tag, LockMode::Shared, entry, LookupKey);
        match self.run(action).await? {
            Some(found) => self.run(index.table.get_encoded(found)).await,
            None => Ok(None),
        }
    }

    /// The rows whose index keys lie in `range`, in order of the index, at most `limit`.
    ///
    /// # Errors
    /// As [`run`](Tx::run).
    pub async fn rows_by(
        &mut self,
        index: &IndexHandle,
        range: KeyRange,
        limit: usize,
    ) -> Result<Vec<DynRow>, Abort> {
        self.rows_through(index, range, limit, false).await
    }

    /// Like [`rows_by`](Tx::rows_by), from the last key to the first.
    ///
    /// # Errors
    /// As [`run`](Tx::run).
    pub async fn rows_by_backward(
        &mut self,
        index: &IndexHandle,
        range: KeyRange,
        limit: usize,
    ) -> Result<Vec<DynRow>, Abort> {
        self.rows_through(index, range, limit, true).await
    }

    async fn rows_through(
        &mut self,
        index: &IndexHandle,
        range: KeyRange,
        limit: usize,
        backward: bool,
    ) -> Result<Vec<DynRow>, Abort> {
        let keys = self.lookup_keys(index.id(), index.tag, range, limit, backward).await?;
        let actions: Vec<_> = keys.into_iter().map(|key| index.table.get_encoded(key)).collect();
        Ok(self.join_all(actions).await?.into_iter().flatten().collect())
    }
}
