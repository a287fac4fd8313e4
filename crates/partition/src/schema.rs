//! The schema of a database: tables, their secondary indexes, foreign keys, and the families of tables that share
//! partition boundaries.
//!
//! A table is a type that implements [`Table`], or a definition made at run time; an index is a type that implements
//! [`Index`], or a definition. A [`Schema`] lists the types of a program; a database turns it, or the definitions
//! stored with it, into its [`Catalog`], in which every table *and every index* has a [`TableId`]: the entries of an
//! index are rows of a tree of their own, partitioned by their own key.
//!
//! Owns: the traits that programs implement, and handles. The declarations are in `declare`, the catalog made of them
//! in `catalog`, the keys that follow from rows in `extract`, and the catalogs of clients and workers in `published`.
//!
//! Invariants: numbers are dense, in order of creation, and never used again; names are unique; an index and a foreign key name
//! tables created before them.

mod catalog;
mod declare;
mod extract;
mod meta;
mod published;

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};

use atrapos_storage::{Key, Row};

use crate::abort::{Abort, AbortReason};
use crate::routing::Route;

pub use catalog::{Catalog, NO_FAMILY, unknown_table};
pub use declare::{ParentKey, Schema, SchemaError, Splits};
pub use meta::{Dependency, Phase, TableMeta, TreeKind};
pub use published::PublishedCatalog;

/// A table: the type of its primary key, the type of its rows, and its name.
///
/// The rows are clustered by key; a row does not repeat its key. The leading part of the key is the *routing prefix*:
/// tables of one [`FAMILY`](Table::FAMILY) begin their keys with the same routing prefix and share their partition
/// boundaries, so that (say) all rows of one subscriber, in all tables of the family, are on one worker.
pub trait Table: 'static {
    /// The primary key.
    type Key: Key;
    /// The rows.
    type Row: Row;
    /// The name, unique in the schema.
    const NAME: &'static str;
    /// The family whose partition boundaries the table shares; by default one of its own.
    const FAMILY: &'static str = Self::NAME;
    /// True if rows come from `Database::load` alone: a procedure that would write the table does not compile, and
    /// reading its rows takes no locks and waits for nothing to become durable.
    ///
    /// ```compile_fail
    /// # use atrapos::{Abort, Database, Schema, Table, row};
    /// # row! { #[derive(Clone)] pub struct Price { pub cents: u32 } }
    /// struct Prices;
    /// impl Table for Prices {
    ///     type Key = u32;
    ///     type Row = Price;
    ///     const NAME: &'static str = "prices";
    ///     const READ_ONLY: bool = true;
    /// }
    /// # let db = Database::builder(Schema::new().table::<Prices>()).in_memory().unwrap();
    /// # let prices = db.table::<Prices>().unwrap();
    /// db.run(prices.at(&1), async move |tx| tx.update(prices, 1, |price| price.cents += 1).await)?;
    /// # Ok::<(), Abort>(())
    /// ```
    const READ_ONLY: bool = false;
    /// Names of the parts of the key, which are columns like those of the row; parts of tuples in it count one by one.
    /// A part beyond them has no name, which agrees with any name in a database that is opened.
    const KEY_COLUMNS: &'static [&'static str] = &[];
}

/// A secondary index over a table. Its entries are partitioned by their own key and changed in the same transaction
/// as the rows.
pub trait Index: 'static {
    /// The table whose rows are found.
    type Table: Table;
    /// The key under which they are found.
    type Key: Key;
    /// The name, unique in the schema (among tables too).
    const NAME: &'static str;
    /// The family whose partition boundaries the entries share; by default one of its own.
    const FAMILY: &'static str = Self::NAME;
    /// True if no two rows may have the same index key.
    const UNIQUE: bool;
    /// Names of the parts of the index key, for display: see `ClassRecording`.
    const KEY_COLUMNS: &'static [&'static str] = &[];
    /// The columns of a row, all of fixed size, of which (and of the primary key) the index key is made; `None` if they
    /// are not declared. An update that changes none of them leaves the entry unchanged without computing the key.
    const KEY_FROM: Option<&'static [&'static str]> = None;
    /// The index key of a row.
    fn key(key: &<Self::Table as Table>::Key, row: &<Self::Table as Table>::Row) -> Self::Key;
}

/// Number of a table or index in its catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId(pub u16);

impl TableId {
    /// The number as an index.
    #[doc(hidden)]
    pub fn at(self) -> usize {
        usize::from(self.0)
    }
}

/// Identifies the catalog of one open database among those of the same process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogTag(u32);

impl CatalogTag {
    fn new() -> CatalogTag {
        static NEXT_TAG: AtomicU32 = AtomicU32::new(1);
        CatalogTag(NEXT_TAG.fetch_add(1, Ordering::Relaxed))
    }
}

/// A handle of table `T` in one open database; copy it into procedures. Get it from
/// `Database::table`.
pub struct TableRef<T: Table> {
    /// The number of the table.
    pub(crate) id: TableId,
    /// The database it belongs to.
    pub(crate) tag: CatalogTag,
    marker: PhantomData<fn() -> T>,
}

/// A handle of index `I` in one open database; copy it into procedures. Get it from
/// `Database::index`.
pub struct IndexRef<I: Index> {
    /// The number of the index.
    pub(crate) id: TableId,
    /// The database it belongs to.
    pub(crate) tag: CatalogTag,
    marker: PhantomData<fn() -> I>,
}

impl<T: Table> Clone for TableRef<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Table> Copy for TableRef<T> {}
impl<I: Index> Clone for IndexRef<I> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<I: Index> Copy for IndexRef<I> {}

impl<T: Table> std::fmt::Debug for TableRef<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TableRef({})", T::NAME)
    }
}
impl<I: Index> std::fmt::Debug for IndexRef<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IndexRef({})", I::NAME)
    }
}

impl<T: Table> TableRef<T> {
    /// Routes a transaction to the worker that owns `key` (the transaction's home).
    #[must_use]
    pub fn at(self, key: &T::Key) -> Route {
        Route::to(self.id, key.encode())
    }

    /// Routes a transaction to the worker that owns the first key beginning with `prefix`.
    #[must_use]
    pub fn at_prefix(self, prefix: &impl Key) -> Route {
        Route::to(self.id, prefix.encode())
    }

    /// The table's number.
    #[must_use]
    #[inline]
    pub fn id(self) -> TableId {
        self.id
    }

    /// The database it belongs to.
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn tag(self) -> CatalogTag {
        self.tag
    }
}

impl<I: Index> IndexRef<I> {
    /// Routes a transaction to the worker that owns the index entries of `key`.
    #[must_use]
    pub fn at(self, key: &I::Key) -> Route {
        Route::to(self.id, key.encode())
    }

    /// The index's number among tables and indexes.
    #[must_use]
    #[inline]
    pub fn id(self) -> TableId {
        self.id
    }

    /// The database it belongs to.
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn tag(self) -> CatalogTag {
        self.tag
    }
}

#[cold]
pub(crate) fn corrupt(what: &str, error: &dyn std::fmt::Display) -> Abort {
    Abort::explained(
        AbortReason::Corruption,
        format!(
            "a stored {what} does not fit the declared type ({error}); open the database with the schema it was written with"
        ),
    )
}

/// Decodes a key of a declared type.
#[inline]
pub fn decode_key<K: Key>(bytes: &[u8]) -> Result<K, Abort> {
    K::decode(bytes).map_err(|error| corrupt("key", &error))
}

/// Decodes a row of a declared type.
#[inline]
pub(crate) fn decode_row<R: Row>(bytes: &[u8]) -> Result<R, Abort> {
    R::decode(bytes).map_err(|error| corrupt("row", &error))
}
