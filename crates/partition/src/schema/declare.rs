//! The schema that a program declares as types, and the translation of its types into definitions.
//!
//! Owns: the list of declarations a database is opened with ([`Schema`]), and the translation of a type into a
//! definition. Never: checks declarations against stored definitions; the catalog does ([`super::Catalog`]).

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use atrapos_catalog::{
    ColumnDef, Definitions, ForeignKeyDef, IndexDef, IndexPart, KeyColumn, KeyPart, OnDelete, PrimaryKey,
    TableDef, TreeDef, placeholder,
};
use atrapos_storage::{Column, Key, KeyBuf, Row};

use super::catalog::ENTRY_BYTES;
use super::extract::{Extract, Extractor, ParentKeyOf, extract_of};
use super::meta::{Code, key_bytes};
use super::{Index, Table, decode_key, decode_row};
use crate::action::guarded;

/// The boundaries of the partitions of a family in a new database.
#[derive(Clone, Debug)]
pub enum Splits {
    /// One equal slice per worker of a range of leading unsigned 64-bit integers.
    Even {
        /// The first integer of the range.
        first: u64,
        /// The last one.
        last: u64,
    },
    /// At these routing prefixes (ascending); partition `i` goes to worker `i mod workers`.
    At(Vec<KeyBuf>),
    /// At the routing prefixes (ascending) that a function computes from the number of workers.
    By(SplitFn),
}

/// A function from the number of workers to routing prefixes.
#[derive(Clone)]
pub struct SplitFn(pub(crate) Arc<dyn Fn(usize) -> Vec<KeyBuf> + Send + Sync>);

impl std::fmt::Debug for SplitFn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SplitFn")
    }
}

/// The way to find the children of a parent row, to refuse its deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChildLookup {
    /// The child's primary key begins with the parent's key.
    ByKeyPrefix,
    /// The keys of this index begin with the parent's key.
    ByIndex(&'static str),
}

pub(super) struct TableDecl {
    pub(super) name: &'static str,
    pub(super) type_id: TypeId,
    pub(super) definition: TableDef,
    pub(super) expected_row_bytes: usize,
}

pub(super) struct IndexDecl {
    pub(super) name: &'static str,
    pub(super) type_id: TypeId,
    /// The definition, in which the number of the table is not set yet.
    pub(super) definition: IndexDef,
    pub(super) table: &'static str,
    pub(super) extract: Extract,
    pub(super) key_from: Option<&'static [&'static str]>,
    pub(super) row_columns: &'static [Column],
}

pub(super) struct ForeignKeyDecl {
    pub(super) child: &'static str,
    pub(super) parent: &'static str,
    pub(super) extract: Extract,
    pub(super) enforced: bool,
    pub(super) lookup: ChildLookup,
}

/// The list of tables, indexes and foreign keys a database is opened with.
///
/// Declarations are checked together when the database is opened; each mistake is one sentence.
#[derive(Default)]
pub struct Schema {
    pub(super) tables: Vec<TableDecl>,
    pub(super) indexes: Vec<IndexDecl>,
    pub(super) foreign_keys: Vec<ForeignKeyDecl>,
    pub(super) splits: Vec<(&'static str, Splits)>,
    pub(super) shared: Vec<&'static str>,
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

impl SchemaError {
    /// Creates an error from a sentence that describes it.
    #[doc(hidden)]
    pub fn new(why: String) -> SchemaError {
        SchemaError(why)
    }
}

/// A function from key and row of a child to the key of its parent.
pub type ParentKey<Child, Parent> =
    fn(&<Child as Table>::Key, &<Child as Table>::Row) -> <Parent as Table>::Key;

impl Schema {
    /// Creates an empty schema.
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
            type_id: TypeId::of::<I>(),
            definition: index_definition::<I>(0),
            table: I::Table::NAME,
            extract: extract_of::<I>(),
            key_from: I::KEY_FROM,
            row_columns: <I::Table as Table>::Row::COLUMNS,
        });
        self
    }

    /// Declares that rows of `Child` refer to rows of `Parent`, the parent's key being the first part of the child's
    /// own key. With `enforced`, a child cannot be inserted without its parent, nor a parent deleted before its
    /// children; otherwise the dependency is only used for partitioning.
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

    /// Declares that a table, with its indexes, is *shared*: read by transactions of all workers and rarely written. A worker that reads
    /// a partition of it some times reads the rows in place from then on, without messages, until a write recalls them; then they are
    /// read by messages again, until reads prevail. Nothing else changes: not isolation, nor durability, nor the placement.
    /// It is not stored in the database, so each opening declares it, or not. A database that adapts itself shares other tables, too,
    /// when it finds them so, and while that pays.
    #[must_use]
    pub fn shared(mut self, table: &'static str) -> Schema {
        self.shared.push(table);
        self
    }

    /// Declares that the family's routing prefix begins with a `u64` (or is one) between `first` and `last`: a new
    /// database cuts that range into one equal partition per worker.
    #[must_use]
    pub fn split_evenly(mut self, family: &'static str, first: u64, last: u64) -> Schema {
        self.splits.push((family, Splits::Even { first, last }));
        self
    }

    /// Declares that the partitions of a new database begin at these routing prefixes (the first partition begins at
    /// the smallest key). Partition `i` goes to worker `i mod workers`.
    #[must_use]
    pub fn split_at<K: Key>(mut self, family: &'static str, prefixes: &[K]) -> Schema {
        let mut cuts: Vec<KeyBuf> = prefixes.iter().map(Key::encode).collect();
        cuts.sort();
        cuts.dedup();
        self.splits.push((family, Splits::At(cuts)));
        self
    }

    /// Declares the boundaries of partitions as [`split_at`](Schema::split_at) does, with prefixes computed from the
    /// number of workers.
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

    /// Makes each table and index that is declared so far a family of its own. At first it is cut at the keys at which its family would
    /// have been, and has the same owners; from then on each may be cut and moved by itself.
    #[must_use]
    pub fn apart(mut self) -> Schema {
        let tables = self.tables.iter_mut().map(|table| (table.name, &mut table.definition.family));
        let indexes = self.indexes.iter_mut().map(|index| (index.name, &mut index.definition.family));
        let (mut families, mut splits) = (Vec::new(), Vec::new());
        for (name, family) in tables.chain(indexes) {
            let cuts = self.splits.iter().rfind(|(split, _)| *split == *family);
            splits.extend(cuts.map(|(_, cuts)| (name, cuts.clone())));
            families.push(std::mem::replace(family, name.to_owned()));
        }
        // Boundaries of a family that does not exist stay a mistake.
        self.splits.retain(|(split, _)| !families.iter().any(|family| family == split));
        self.splits.extend(splits);
        self
    }
}

/// The name of a part of a key, or a placeholder if the program has not named it.
fn part_name(names: &[&str], at: usize) -> String {
    names.get(at).map_or_else(|| placeholder(at + 1), |name| (*name).to_owned())
}

/// Translates a table declared as types into a definition: the parts of its key, then the columns of its rows.
pub(super) fn table_definition<T: Table>() -> TableDef {
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

/// Translates an index declared as types, of the table with the number `of`, into a definition.
pub(super) fn index_definition<I: Index>(of: u16) -> IndexDef {
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

/// The content of a declared schema, as data and code.
pub(super) struct Declared {
    pub(super) definitions: Definitions,
    /// The code of each tree.
    pub(super) codes: Vec<Code>,
    /// The key functions of the foreign keys.
    pub(super) references: Vec<Option<Arc<ParentKeyOf>>>,
}

/// The numbers of the declared tables and indexes, by name.
type Numbers = HashMap<&'static str, u16>;

impl Schema {
    /// Assigns numbers to the declared tables and indexes.
    pub(super) fn into_declared(self) -> Result<Declared, SchemaError> {
        let trees = self.tables.len() + self.indexes.len();
        if trees > usize::from(u16::MAX) {
            return Err(SchemaError(format!("the schema has {trees} tables and indexes; at most 65535 fit")));
        }
        let mut numbers = Numbers::new();
        let mut declared =
            Declared { definitions: Definitions::default(), codes: Vec::new(), references: Vec::new() };
        for table in self.tables {
            if numbers.insert(table.name, declared.codes.len() as u16).is_some() {
                return Err(SchemaError(format!(
                    "the schema declares two tables named '{}'; give one of them another name",
                    table.name
                )));
            }
            declared.definitions.trees.push(TreeDef::Table(table.definition));
            declared.codes.push(Code {
                type_id: Arc::new(OnceLock::from(table.type_id)),
                expected_row_bytes: table.expected_row_bytes,
                ..Code::default()
            });
        }
        for index in self.indexes {
            declared.add_index(index, &mut numbers)?;
        }
        for key in self.foreign_keys {
            declared.add_foreign_key(key, &numbers)?;
        }
        Ok(declared)
    }
}

impl Declared {
    /// Replaces the numbers by those that the same trees have in a database, in which some may have been dropped.
    /// Changes nothing if the database lacks one of them.
    pub(super) fn renumbered(self, stored: &Definitions) -> Declared {
        let numbers: Option<Vec<u16>> =
            self.definitions.trees.iter().map(|tree| stored.find(tree.name())).collect();
        let Some(numbers) = numbers else { return self };
        let mut renumbered = Declared {
            definitions: Definitions {
                trees: vec![TreeDef::Dropped; stored.trees.len()],
                foreign_keys: self.definitions.foreign_keys,
            },
            codes: vec![Code::default(); stored.trees.len()],
            references: self.references,
        };
        let follow = |number: &mut u16| *number = numbers[usize::from(*number)];
        for ((mut tree, code), number) in self.definitions.trees.into_iter().zip(self.codes).zip(&numbers) {
            if let TreeDef::Index(index) = &mut tree {
                follow(&mut index.of);
            }
            renumbered.definitions.trees[usize::from(*number)] = tree;
            renumbered.codes[usize::from(*number)] = code;
        }
        for key in &mut renumbered.definitions.foreign_keys {
            follow(&mut key.child);
            follow(&mut key.parent);
            key.through.iter_mut().for_each(follow);
        }
        renumbered
    }

    fn add_index(&mut self, index: IndexDecl, numbers: &mut Numbers) -> Result<(), SchemaError> {
        let Some(&of) = numbers.get(index.table) else {
            return Err(SchemaError(format!(
                "index '{}' is over table '{}', which the schema does not declare; declare the table",
                index.name, index.table
            )));
        };
        if numbers.insert(index.name, self.codes.len() as u16).is_some() {
            return Err(SchemaError(format!(
                "the schema uses the name '{}' twice; give the index another name",
                index.name
            )));
        }
        self.codes.push(Code {
            type_id: Arc::new(OnceLock::from(index.type_id)),
            extract: Extractor::known(index.extract),
            key_bytes: Arc::new(key_bytes(index.name, index.key_from, index.row_columns)?),
            expected_row_bytes: ENTRY_BYTES,
            is_shared: false,
        });
        self.definitions.trees.push(TreeDef::Index(IndexDef { of, ..index.definition }));
        Ok(())
    }

    fn add_foreign_key(&mut self, key: ForeignKeyDecl, numbers: &Numbers) -> Result<(), SchemaError> {
        let find = |name: &'static str| {
            numbers.get(name).copied().ok_or_else(|| {
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
        let (enforced, on_delete) = (key.enforced, OnDelete::Restrict);
        self.definitions.foreign_keys.push(ForeignKeyDef { child, parent, through, enforced, on_delete });
        self.references.push(Some(Arc::new(ParentKeyOf::Code(Extractor::known(key.extract)))));
        Ok(())
    }
}
