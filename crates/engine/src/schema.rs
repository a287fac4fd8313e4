//! What a database holds: tables, their secondary indexes, foreign keys, and which tables share partition boundaries.
//!
//! A table is a type that implements [`Table`]; an index is a type that implements [`Index`]. A [`Schema`] lists them; a
//! database turns the list into its [`Catalog`], in which every table *and every index* has a [`TableId`]: the entries
//! of an index are rows of a tree of their own, partitioned by their own key.
//!
//! Invariants: ids are dense and in order of declaration; names are unique; an index and a foreign key name
//! tables declared before them.

use std::any::TypeId;
use std::collections::{BTreeSet, HashMap};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use atrapos_catalog::{
    ColumnDef, Definitions, ForeignKeyDef, IndexDef, IndexPart, KeyColumn, KeyPart, OnDelete, PrimaryKey,
    TableDef, TreeDef, placeholder,
};
use atrapos_storage::{Column, Key, KeyBuf, Row, column_bytes};

use crate::abort::{Abort, AbortReason};
use crate::action::guarded;
use crate::dynamic::Layouts;
use crate::routing::{Route, Scheme};

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
    /// Whether rows come from [`Database::load`](crate::Database::load) alone: a procedure that would write the table does not
    /// compile, and reading its rows takes no locks and waits for nothing to become durable.
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
    /// Names of the parts of the key, which are columns as those of the row are; parts of tuples in it count one by one. A part
    /// beyond them has no name, which agrees with whatever it is called in a database that is opened.
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
    /// Whether two rows may not have the same index key.
    const UNIQUE: bool;
    /// Names of the parts of the index key, for people: see [`ClassRecording`](crate::ClassRecording).
    const KEY_COLUMNS: &'static [&'static str] = &[];
    /// The columns of a row, all of fixed size, of which (and of the primary key) the index key is made; `None` when that is not
    /// said. An update that leaves these as they are leaves the entry as it is, and need not compute the key to know.
    const KEY_FROM: Option<&'static [&'static str]> = None;
    /// The index key of a row.
    fn key(key: &<Self::Table as Table>::Key, row: &<Self::Table as Table>::Row) -> Self::Key;
}

/// Number of a table or index in its catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId(pub u16);

impl TableId {
    pub(crate) fn at(self) -> usize {
        usize::from(self.0)
    }
}

/// Tells the catalog of one open database from that of another in the same process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CatalogTag(u32);

impl CatalogTag {
    fn new() -> CatalogTag {
        static NEXT_TAG: AtomicU32 = AtomicU32::new(1);
        CatalogTag(NEXT_TAG.fetch_add(1, Ordering::Relaxed))
    }
}

/// A handle of table `T` in one open database; copy it into procedures. Get it from
/// [`Database::table`](crate::Database::table).
pub struct TableRef<T: Table> {
    pub(crate) id: TableId,
    pub(crate) tag: CatalogTag,
    marker: PhantomData<fn() -> T>,
}

/// A handle of index `I` in one open database; copy it into procedures. Get it from
/// [`Database::index`](crate::Database::index).
pub struct IndexRef<I: Index> {
    pub(crate) id: TableId,
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
    pub fn id(self) -> TableId {
        self.id
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
    pub fn id(self) -> TableId {
        self.id
    }
}

/// Where the partitions of a family begin when the database is new.
#[derive(Clone, Debug)]
pub(crate) enum Splits {
    /// `workers` equal slices of this range of leading unsigned 64-bit integers.
    Even { first: u64, last: u64 },
    /// Exactly at these routing prefixes (ascending); partition `i` goes to worker `i mod workers`.
    At(Vec<KeyBuf>),
    /// From the number of workers to the routing prefixes at which partitions begin, ascending.
    By(SplitFn),
}

#[derive(Clone)]
pub(crate) struct SplitFn(pub(crate) Arc<dyn Fn(usize) -> Vec<KeyBuf> + Send + Sync>);

impl std::fmt::Debug for SplitFn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SplitFn")
    }
}

/// From the stored bytes of key and row to a key of another tree.
pub(crate) type Extract = Arc<dyn Fn(&[u8], &[u8]) -> Result<KeyBuf, Abort> + Send + Sync>;

/// An [`Extract`] that may not be known yet: that of a database that was opened without declaring its schema.
#[derive(Default)]
pub(crate) struct Extractor(OnceLock<Extract>);

impl Extractor {
    fn known(extract: Extract) -> Extractor {
        Extractor(OnceLock::from(extract))
    }

    #[inline]
    pub(crate) fn call(&self, key: &[u8], row: &[u8]) -> Result<KeyBuf, Abort> {
        match self.0.get() {
            Some(extract) => extract(key, row),
            None => Err(unknown_extract()),
        }
    }
}

#[cold]
fn unknown_extract() -> Abort {
    Abort::because(
        AbortReason::Misuse,
        "the table has an index or an enforced foreign key whose key function is not known, so it cannot be changed; get the \
         handles of its indexes first (`Database::index`), or open the database with its schema",
    )
}

/// How the children of a parent row are found, to refuse its deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ChildLookup {
    /// The child's primary key begins with the parent's key.
    ByKeyPrefix,
    /// The keys of this index begin with the parent's key.
    ByIndex(&'static str),
}

pub(crate) struct TableDecl {
    pub(crate) name: &'static str,
    family: &'static str,
    type_id: TypeId,
    definition: TableDef,
    expected_row_bytes: usize,
}

struct IndexDecl {
    name: &'static str,
    family: &'static str,
    type_id: TypeId,
    /// The number of its table is not known yet.
    definition: IndexDef,
    table: &'static str,
    unique: bool,
    extract: Extract,
    key_from: Option<&'static [&'static str]>,
    row_columns: &'static [Column],
}

struct ForeignKeyDecl {
    child: &'static str,
    parent: &'static str,
    extract: Extract,
    enforced: bool,
    lookup: ChildLookup,
}

/// The list of tables, indexes and foreign keys a database is opened with.
///
/// Declarations are checked together when the database is opened; each mistake is one sentence.
#[derive(Default)]
pub struct Schema {
    tables: Vec<TableDecl>,
    indexes: Vec<IndexDecl>,
    foreign_keys: Vec<ForeignKeyDecl>,
    splits: Vec<(&'static str, Splits)>,
}

impl std::fmt::Debug for Schema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tables: Vec<_> = self.tables.iter().map(|table| table.name).collect();
        let indexes: Vec<_> = self.indexes.iter().map(|index| index.name).collect();
        f.debug_struct("Schema").field("tables", &tables).field("indexes", &indexes).finish_non_exhaustive()
    }
}

/// A mistake in a schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SchemaError(pub(crate) String);

/// From key and row of a child to the key of its parent.
pub type ParentKey<Child, Parent> =
    fn(&<Child as Table>::Key, &<Child as Table>::Row) -> <Parent as Table>::Key;

impl Schema {
    /// An empty schema.
    #[must_use]
    pub fn new() -> Schema {
        Schema::default()
    }

    /// Declares table `T`.
    #[must_use]
    pub fn table<T: Table>(self) -> Schema {
        self.table_with_row_bytes::<T>(0)
    }

    /// Declares table `T` whose rows with variable-size fields are about `bytes` long; pages are sized by it.
    #[must_use]
    pub fn table_with_row_bytes<T: Table>(mut self, bytes: usize) -> Schema {
        self.tables.push(TableDecl {
            name: T::NAME,
            family: T::FAMILY,
            type_id: TypeId::of::<T>(),
            definition: table_definition::<T>(),
            expected_row_bytes: bytes.max(T::Row::FIXED_BYTES),
        });
        self
    }

    /// Declares index `I`; its table must be declared too.
    #[must_use]
    pub fn index<I: Index>(mut self) -> Schema {
        self.indexes.push(IndexDecl {
            name: I::NAME,
            family: I::FAMILY,
            type_id: TypeId::of::<I>(),
            definition: index_definition::<I>(0),
            table: I::Table::NAME,
            unique: I::UNIQUE,
            extract: extract_of::<I>(),
            key_from: I::KEY_FROM,
            row_columns: <I::Table as Table>::Row::COLUMNS,
        });
        self
    }

    /// Declares that rows of `Child` refer to rows of `Parent`, the parent's key being the first part of the child's
    /// own key. With `enforced`, a child cannot be inserted without its parent, nor a parent deleted before its
    /// children; otherwise the dependency is only known to partitioning.
    #[must_use]
    pub fn foreign_key_by_prefix<Child: Table, Parent: Table>(
        mut self,
        parent_key: fn(&Child::Key) -> Parent::Key,
        enforced: bool,
    ) -> Schema {
        self.foreign_keys.push(ForeignKeyDecl {
            child: Child::NAME,
            parent: Parent::NAME,
            extract: Arc::new(move |key, _| {
                let key = decode_key::<Child::Key>(key)?;
                guarded(|| parent_key(&key).encode())
            }),
            enforced,
            lookup: ChildLookup::ByKeyPrefix,
        });
        self
    }

    /// Declares that rows of index `ByParent`'s table refer to rows of `Parent`, the parent's key being the first
    /// part of the index key (the index finds the children of a parent). See
    /// [`foreign_key_by_prefix`](Schema::foreign_key_by_prefix) for `enforced`.
    #[must_use]
    pub fn foreign_key_by_index<ByParent: Index, Parent: Table>(
        mut self,
        parent_key: ParentKey<ByParent::Table, Parent>,
        enforced: bool,
    ) -> Schema {
        self.foreign_keys.push(ForeignKeyDecl {
            child: ByParent::Table::NAME,
            parent: Parent::NAME,
            extract: Arc::new(move |key, row| {
                let key = decode_key::<<ByParent::Table as Table>::Key>(key)?;
                let row = decode_row::<<ByParent::Table as Table>::Row>(row)?;
                guarded(|| parent_key(&key, &row).encode())
            }),
            enforced,
            lookup: ChildLookup::ByIndex(ByParent::NAME),
        });
        self
    }

    /// The family's routing prefix begins with a `u64` (or is one) between `first` and `last`: a new database cuts that
    /// range into one equal partition per worker.
    #[must_use]
    pub fn split_evenly(mut self, family: &'static str, first: u64, last: u64) -> Schema {
        self.splits.push((family, Splits::Even { first, last }));
        self
    }

    /// The partitions of a new database begin exactly at these routing prefixes (the first partition begins at the
    /// smallest key). Partition `i` goes to worker `i mod workers`.
    #[must_use]
    pub fn split_at<K: Key>(mut self, family: &'static str, prefixes: &[K]) -> Schema {
        let mut cuts: Vec<KeyBuf> = prefixes.iter().map(Key::encode).collect();
        cuts.sort();
        cuts.dedup();
        self.splits.push((family, Splits::At(cuts)));
        self
    }

    /// Like [`split_at`](Schema::split_at), with the prefixes computed from the number of workers.
    #[must_use]
    pub fn split_by<K: Key>(
        mut self,
        family: &'static str,
        cuts: impl Fn(usize) -> Vec<K> + Send + Sync + 'static,
    ) -> Schema {
        let cuts = move |workers| {
            let mut cuts: Vec<KeyBuf> = cuts(workers).iter().map(Key::encode).collect();
            cuts.sort();
            cuts.dedup();
            cuts
        };
        self.splits.push((family, Splits::By(SplitFn(Arc::new(cuts)))));
        self
    }
}

fn extract_of<I: Index>() -> Extract {
    Arc::new(|key, row| {
        let key = decode_key::<<I::Table as Table>::Key>(key)?;
        let row = decode_row::<<I::Table as Table>::Row>(row)?;
        guarded(|| I::key(&key, &row).encode())
    })
}

#[cold]
fn corrupt(what: &str, error: &dyn std::fmt::Display) -> Abort {
    Abort::explained(
        AbortReason::Corruption,
        format!(
            "a stored {what} does not fit the declared type ({error}); open the database with the schema it was written with"
        ),
    )
}

#[inline]
pub(crate) fn decode_key<K: Key>(bytes: &[u8]) -> Result<K, Abort> {
    K::decode(bytes).map_err(|error| corrupt("key", &error))
}

#[inline]
pub(crate) fn decode_row<R: Row>(bytes: &[u8]) -> Result<R, Abort> {
    R::decode(bytes).map_err(|error| corrupt("row", &error))
}

/// What a part of a key is called, if the program has named so many.
fn part_name(names: &[&str], at: usize) -> String {
    names.get(at).map_or_else(|| placeholder(at + 1), |name| (*name).to_owned())
}

/// A table that is declared as types, as a definition: the parts of its key, then the columns of its rows.
fn table_definition<T: Table>() -> TableDef {
    let mut columns = Vec::new();
    let mut key = Vec::new();
    for (at, part) in T::Key::parts().into_iter().enumerate() {
        key.push(KeyColumn { column: at as u16, descending: part.descending });
        let column = ColumnDef::new(part_name(T::KEY_COLUMNS, at), part.ty);
        columns.push(ColumnDef { nullable: part.nullable, ..column });
    }
    columns.extend(
        T::Row::COLUMNS
            .iter()
            .map(|column| ColumnDef { nullable: column.nullable, ..ColumnDef::new(column.name, column.ty) }),
    );
    TableDef {
        name: T::NAME.to_owned(),
        columns,
        key: PrimaryKey::Columns(key),
        family: T::FAMILY.to_owned(),
        read_only: T::READ_ONLY,
        splits: Vec::new(),
    }
}

/// An index that is declared as types, of the table with the number `of`, as a definition.
fn index_definition<I: Index>(of: u16) -> IndexDef {
    let computed =
        |(at, part): (usize, KeyPart)| IndexPart::Computed { name: part_name(I::KEY_COLUMNS, at), part };
    IndexDef {
        name: I::NAME.to_owned(),
        of,
        parts: I::Key::parts().into_iter().enumerate().map(computed).collect(),
        unique: I::UNIQUE,
        family: I::FAMILY.to_owned(),
        splits: Vec::new(),
    }
}

/// A name that lives as long as the process; each is kept once.
fn interned(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    match names.get(name) {
        Some(known) => known,
        None => {
            let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
            names.insert(kept);
            kept
        }
    }
}

/// Bytes that a row of a table is expected to have: of a column of variable size, some.
fn expected_row_bytes(table: &TableDef) -> usize {
    table.row_columns().map(|column| column.ty.width().unwrap_or(16)).sum()
}

/// What a tree holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TreeKind {
    /// Rows of a table.
    Rows,
    /// Entries of an index: index key (and, when not unique, the primary key after it) to primary key.
    Entries { of: TableId, unique: bool },
}

/// An index as seen from its table.
pub(crate) struct IndexMeta {
    pub(crate) id: TableId,
    pub(crate) unique: bool,
    pub(crate) extract: Extractor,
    /// The bytes of a row of which its key is made; unknown unless the index has said so.
    key_bytes: OnceLock<KeyBytes>,
}

/// Where columns are in the bytes of a row, and what they are of the row that has them.
type KeyBytes = Box<[Range<usize>]>;

impl IndexMeta {
    /// Whether a row that is replaced is known to keep its index key.
    #[inline]
    pub(crate) fn keeps_key(&self, before: &[u8], after: &[u8]) -> bool {
        let is_same = |bytes: &Range<usize>| before.get(bytes.clone()) == after.get(bytes.clone());
        self.key_bytes.get().is_some_and(|ranges| ranges.iter().all(is_same))
    }
}

/// Where the columns an index key is made of are in the bytes of a row.
fn key_bytes(
    index: &str,
    key_from: Option<&'static [&'static str]>,
    columns: &[Column],
) -> Result<OnceLock<KeyBytes>, SchemaError> {
    let Some(names) = key_from else { return Ok(OnceLock::new()) };
    let mut ranges = Vec::new();
    for name in names {
        let Some(bytes) = column_bytes(columns, name) else {
            return Err(SchemaError(format!(
                "index '{index}' says that its key is made of column '{name}', but its table has no column of that name and of \
                 fixed size; correct Index::KEY_FROM, or leave it out"
            )));
        };
        ranges.extend(bytes);
    }
    Ok(OnceLock::from(ranges.into_boxed_slice()))
}

/// A foreign key as seen from the child.
pub(crate) struct ParentMeta {
    pub(crate) parent: TableId,
    pub(crate) extract: Extractor,
}

/// A foreign key as seen from the parent: a row of the tree `through` whose key begins with the parent's key is a child.
pub(crate) struct ChildMeta {
    pub(crate) through: TableId,
}

/// A static dependency between tables, for the planner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// The table whose rows refer to the other.
    pub child: TableId,
    /// The table referred to.
    pub parent: TableId,
    /// Whether the engine refuses violations.
    pub enforced: bool,
    /// The index through which the children of a parent are found; `None`: they follow it in the order of keys.
    pub through: Option<TableId>,
}

/// Everything the engine knows of one tree.
pub(crate) struct TableMeta {
    pub(crate) name: &'static str,
    /// The type it was declared with; unknown until it is asked for in a database opened without a schema.
    type_id: OnceLock<TypeId>,
    pub(crate) kind: TreeKind,
    pub(crate) family: usize,
    pub(crate) expected_row_bytes: usize,
    pub(crate) indexes: Vec<IndexMeta>,
    pub(crate) parents: Vec<ParentMeta>,
    pub(crate) children: Vec<ChildMeta>,
    /// Whether a write to the table has to look beyond its own row.
    pub(crate) has_dependents: bool,
}

/// The checked schema of an open database: immutable, shared by all workers.
pub(crate) struct Catalog {
    pub(crate) tag: CatalogTag,
    /// What exists, as data; a table has the same number here and in `tables`.
    pub(crate) definitions: Definitions,
    /// Where columns are in keys and rows, by number.
    pub(crate) layouts: Layouts,
    pub(crate) tables: Vec<TableMeta>,
    pub(crate) families: Vec<(&'static str, Option<Splits>)>,
    pub(crate) dependencies: Vec<Dependency>,
}

impl Catalog {
    pub(crate) fn new(schema: Schema) -> Result<Catalog, SchemaError> {
        let mut catalog = Catalog {
            tag: CatalogTag::new(),
            definitions: Definitions::default(),
            layouts: Layouts::default(),
            tables: Vec::new(),
            families: Vec::new(),
            dependencies: Vec::new(),
        };
        let mut names: HashMap<&'static str, TableId> = HashMap::new();
        let trees = schema.tables.len() + schema.indexes.len();
        if trees > usize::from(u16::MAX) {
            return Err(SchemaError(format!("the schema has {trees} tables and indexes; at most 65535 fit")));
        }
        for table in schema.tables {
            let id = TableId(catalog.tables.len() as u16);
            if names.insert(table.name, id).is_some() {
                return Err(SchemaError(format!(
                    "the schema declares two tables named '{}'; give one of them another name",
                    table.name
                )));
            }
            let family = catalog.family(table.family);
            catalog.definitions.trees.push(TreeDef::Table(table.definition));
            catalog.tables.push(TableMeta {
                name: table.name,
                type_id: OnceLock::from(table.type_id),
                kind: TreeKind::Rows,
                family,
                expected_row_bytes: table.expected_row_bytes,
                indexes: Vec::new(),
                parents: Vec::new(),
                children: Vec::new(),
                has_dependents: false,
            });
        }
        for index in schema.indexes {
            let id = TableId(catalog.tables.len() as u16);
            let Some(&table) = names.get(index.table) else {
                return Err(SchemaError(format!(
                    "index '{}' is over table '{}', which the schema does not declare; declare the table",
                    index.name, index.table
                )));
            };
            if names.insert(index.name, id).is_some() {
                return Err(SchemaError(format!(
                    "the schema uses the name '{}' twice; give the index another name",
                    index.name
                )));
            }
            let key_bytes = key_bytes(index.name, index.key_from, index.row_columns)?;
            let family = catalog.family(index.family);
            catalog.tables[table.at()].indexes.push(IndexMeta {
                id,
                unique: index.unique,
                extract: Extractor::known(index.extract),
                key_bytes,
            });
            catalog.tables[table.at()].has_dependents = true;
            catalog.definitions.trees.push(TreeDef::Index(IndexDef { of: table.0, ..index.definition }));
            catalog.tables.push(TableMeta {
                name: index.name,
                type_id: OnceLock::from(index.type_id),
                kind: TreeKind::Entries { of: table, unique: index.unique },
                family,
                expected_row_bytes: 16,
                indexes: Vec::new(),
                parents: Vec::new(),
                children: Vec::new(),
                has_dependents: false,
            });
        }
        for key in schema.foreign_keys {
            let find = |name: &'static str| {
                names.get(name).copied().ok_or_else(|| {
                    SchemaError(format!(
                        "the foreign key from '{}' to '{}' needs '{name}', which the schema does not declare; declare it",
                        key.child, key.parent
                    ))
                })
            };
            let (child, parent) = (find(key.child)?, find(key.parent)?);
            let through = match key.lookup {
                ChildLookup::ByKeyPrefix => None,
                ChildLookup::ByIndex(index) => Some(find(index)?),
            };
            catalog.dependencies.push(Dependency { child, parent, enforced: key.enforced, through });
            catalog.definitions.foreign_keys.push(ForeignKeyDef {
                child: child.0,
                parent: parent.0,
                through: through.map(|index| index.0),
                enforced: key.enforced,
                on_delete: OnDelete::Restrict,
            });
            if key.enforced {
                catalog.link(child, parent, through, Extractor::known(key.extract));
            }
        }
        catalog.definitions.check().map_err(|error| SchemaError(error.to_string()))?;
        catalog.layouts = Layouts::of(&catalog.definitions);
        for (family, splits) in schema.splits {
            let Some(entry) = catalog.families.iter_mut().find(|(name, _)| *name == family) else {
                return Err(SchemaError(format!(
                    "partition boundaries are given for family '{family}', to which no table or index belongs"
                )));
            };
            entry.1 = Some(splits);
        }
        Ok(catalog)
    }

    /// What exists, as it is stored: with the cuts that families have in `scheme`.
    pub(crate) fn describe(&self, scheme: &Scheme) -> Definitions {
        let mut definitions = self.definitions.clone();
        for (tree, meta) in definitions.trees.iter_mut().zip(&self.tables) {
            let family = &scheme.families[meta.family];
            let lower = |index| family.lower(index).map(<[u8]>::to_vec);
            let cuts = (1..family.partitions()).filter_map(lower).collect();
            match tree {
                TreeDef::Table(table) => table.splits = cuts,
                TreeDef::Index(index) => index.splits = cuts,
                TreeDef::Dropped => {}
            }
        }
        definitions
    }

    fn family(&mut self, name: &'static str) -> usize {
        if let Some(at) = self.families.iter().position(|(known, _)| *known == name) {
            return at;
        }
        self.families.push((name, None));
        self.families.len() - 1
    }

    /// The catalog of a database that is opened without declaring its schema.
    pub(crate) fn stored(definitions: &Definitions) -> Result<Catalog, SchemaError> {
        let mut catalog = Catalog {
            tag: CatalogTag::new(),
            definitions: definitions.clone(),
            layouts: Layouts::of(definitions),
            tables: Vec::new(),
            families: Vec::new(),
            dependencies: Vec::new(),
        };
        for (number, tree) in definitions.trees.iter().enumerate() {
            let (kind, expected_row_bytes) = match tree {
                TreeDef::Table(table) => (TreeKind::Rows, expected_row_bytes(table)),
                TreeDef::Index(index) => {
                    (TreeKind::Entries { of: TableId(index.of), unique: index.unique }, 16)
                }
                TreeDef::Dropped => {
                    return Err(SchemaError(format!(
                        "table number {number} of the database was dropped, which this version does not know; use a newer one"
                    )));
                }
            };
            let family = catalog.family(interned(tree.family()));
            let cuts = tree.splits().iter().map(|cut| KeyBuf::from_slice(cut)).collect();
            catalog.families[family].1 = Some(Splits::At(cuts));
            catalog.tables.push(TableMeta {
                name: interned(tree.name()),
                type_id: OnceLock::new(),
                kind,
                family,
                expected_row_bytes,
                indexes: Vec::new(),
                parents: Vec::new(),
                children: Vec::new(),
                has_dependents: false,
            });
        }
        catalog.link_stored(definitions);
        Ok(catalog)
    }

    /// Indexes and foreign keys of a database that is opened without declaring its schema: their key functions are not known yet.
    fn link_stored(&mut self, definitions: &Definitions) {
        for at in 0..self.tables.len() {
            if let TreeKind::Entries { of, unique } = self.tables[at].kind {
                let table = &mut self.tables[of.at()];
                table.indexes.push(IndexMeta {
                    id: TableId(at as u16),
                    unique,
                    extract: Extractor::default(),
                    key_bytes: OnceLock::new(),
                });
                table.has_dependents = true;
            }
        }
        for key in &definitions.foreign_keys {
            let (child, parent, through) =
                (TableId(key.child), TableId(key.parent), key.through.map(TableId));
            self.dependencies.push(Dependency { child, parent, enforced: key.enforced, through });
            if key.enforced {
                self.link(child, parent, through, Extractor::default());
            }
        }
    }

    /// An enforced foreign key, as seen from both its tables.
    fn link(&mut self, child: TableId, parent: TableId, through: Option<TableId>, extract: Extractor) {
        self.tables[child.at()].parents.push(ParentMeta { parent, extract });
        self.tables[child.at()].has_dependents = true;
        self.tables[parent.at()].children.push(ChildMeta { through: through.unwrap_or(child) });
        self.tables[parent.at()].has_dependents = true;
    }

    pub(crate) fn table<T: Table>(&self) -> Result<TableRef<T>, SchemaError> {
        let id = self.find(TypeId::of::<T>(), "table", T::NAME, || {
            let trees = vec![TreeDef::Table(table_definition::<T>())];
            Definitions { trees, foreign_keys: Vec::new() }
        })?;
        Ok(TableRef { id, tag: self.tag, marker: PhantomData })
    }

    pub(crate) fn index<I: Index>(&self) -> Result<IndexRef<I>, SchemaError> {
        let id = self.find(TypeId::of::<I>(), "index", I::NAME, || {
            let trees = vec![
                TreeDef::Index(index_definition::<I>(1)),
                TreeDef::Table(table_definition::<I::Table>()),
            ];
            Definitions { trees, foreign_keys: Vec::new() }
        })?;
        if let TreeKind::Entries { of, .. } = self.tables[id.at()].kind
            && let Some(index) = self.tables[of.at()].indexes.iter().find(|index| index.id == id)
        {
            // Its table has to be of the type whose rows the key function reads.
            self.table::<I::Table>()?;
            index.extract.0.get_or_init(extract_of::<I>);
            if let Ok(known) = key_bytes(I::NAME, I::KEY_FROM, <I::Table as Table>::Row::COLUMNS)
                && let Some(ranges) = known.into_inner()
            {
                index.key_bytes.get_or_init(|| ranges);
            }
        }
        Ok(IndexRef { id, tag: self.tag, marker: PhantomData })
    }

    /// The table or index of a type. `declared` is what the type says, first what is looked for.
    fn find(
        &self,
        type_id: TypeId,
        what: &str,
        name: &str,
        declared: impl Fn() -> Definitions,
    ) -> Result<TableId, SchemaError> {
        if let Some(at) = self.tables.iter().position(|table| table.type_id.get() == Some(&type_id)) {
            return Ok(TableId(at as u16));
        }
        // In a database opened without its schema, the first type that asks for a table and fits it is the table's type.
        let unknown =
            self.tables.iter().position(|table| table.name == name && table.type_id.get().is_none());
        let Some(at) = unknown else {
            return Err(SchemaError(format!(
                "this database has no {what} '{name}' of that type; declare it in the schema it is opened with"
            )));
        };
        if let Some(difference) = self.definitions.difference_of(at as u16, &declared(), 0) {
            return Err(SchemaError(format!(
                "{what} '{name}' of this database is not of the type that was asked for: {difference}; use the type it was created with"
            )));
        }
        match self.tables[at].type_id.get_or_init(|| type_id) == &type_id {
            true => Ok(TableId(at as u16)),
            false => self.find(type_id, what, name, declared),
        }
    }

    /// Refuses a handle that belongs to another database.
    #[inline]
    pub(crate) fn check(&self, id: TableId, tag: CatalogTag) -> Result<(), Abort> {
        if tag == self.tag {
            return Ok(());
        }
        Err(unknown_table(id))
    }
}

#[cold]
fn unknown_table(id: TableId) -> Abort {
    Abort::explained(
        AbortReason::UnknownTable,
        format!(
            "the procedure uses a handle (number {}) of a table or index of another database; take handles from the database it runs on",
            id.0
        ),
    )
}
