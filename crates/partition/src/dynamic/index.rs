//! Handles of indexes that are looked up by name, and the actions made with them.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use atrapos_catalog::Value;
use atrapos_storage::KeyBuf;

use super::handle::{TableHandle, range_of};
use super::layout::{IndexLayout, invalid};
use crate::abort::Abort;
use crate::range::KeyRange;
use crate::routing::Route;
use crate::schema::{Catalog, CatalogTag, SchemaError, TableId};

/// A handle of an index in one open database, found by its name. Get it from `Database::index_named`; clone it once per
/// client, like a [`TableHandle`].
#[derive(Clone)]
pub struct IndexHandle {
    #[doc(hidden)]
    pub tag: CatalogTag,
    layout: Arc<IndexLayout>,
    #[doc(hidden)]
    pub table: TableHandle,
}

impl fmt::Debug for IndexHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IndexHandle({})", self.layout.name)
    }
}

impl Catalog {
    /// Looks up the index with this name.
    pub fn index_named(&self, name: &str) -> Result<IndexHandle, SchemaError> {
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

    /// Returns true if no two rows may have the same key.
    #[must_use]
    pub fn is_unique(&self) -> bool {
        self.layout.is_unique
    }

    /// Routes a transaction to the worker that owns the first entry whose key begins with these values.
    ///
    /// # Errors
    /// [`InvalidValue`](crate::abort::AbortReason::InvalidValue) when the values are no beginning of a key.
    pub fn at(&self, key: &[Value]) -> Result<Route, Abort> {
        Ok(Route::to(self.id(), self.layout.key.encode_beginning(key)?))
    }

    /// The entries whose keys begin with these values; all entries when there are none.
    ///
    /// # Errors
    /// [`InvalidValue`](crate::abort::AbortReason::InvalidValue) when the values are no beginning of a key.
    pub fn prefix(&self, values: &[Value]) -> Result<KeyRange, Abort> {
        self.range(Bound::Included(values), Bound::Included(values))
    }

    /// The entries between two bounds, each a key or its leading parts, in the order of the index. See [`TableHandle::range`].
    ///
    /// # Errors
    /// [`InvalidValue`](crate::abort::AbortReason::InvalidValue) when the values are no beginning of a key.
    pub fn range(&self, lower: Bound<&[Value]>, upper: Bound<&[Value]>) -> Result<KeyRange, Abort> {
        range_of(&self.layout.key, lower, upper)
    }

    /// Encodes a whole key of a unique index.
    #[doc(hidden)]
    pub fn whole_key(&self, key: &[Value]) -> Result<KeyBuf, Abort> {
        if !self.layout.is_unique {
            return Err(invalid(format!(
                "index '{}' is not unique, so a key of it may lead to several rows; use Tx::rows_by",
                self.layout.name
            )));
        }
        self.layout.key.encode(key)
    }
}
