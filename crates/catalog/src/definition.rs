//! The definitions themselves: tables, indexes, foreign keys, and the list of all of them.
//!
//! Owns the shape of a definition and what follows from it alone: names, the parts of keys, the columns of rows. It checks
//! nothing (`check` does) and is only a list of names, numbers and types.
//!
//! Invariant: tables and indexes are referred to by *number*, their place in [`Definitions::trees`], as WAL records and
//! checkpoints do; a place is not given to another while anything may still refer to it ([`TreeDef::Dropped`]).

use atrapos_storage::{ColumnType, KeyPart};

use crate::key::KeyField;
use crate::value::Value;

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnDef {
    /// Its name, unique in the table; a [`placeholder`] when nobody has named it.
    pub name: String,
    /// Type of its values.
    pub ty: ColumnType,
    /// Set if it may be NULL.
    pub nullable: bool,
    /// Value of the column in a row that gives none; without a default, the row has to give one, or is NULL there if it
    /// may be.
    pub default: Option<Value>,
}

impl ColumnDef {
    /// A column that is never NULL and has no default.
    pub fn new(name: impl Into<String>, ty: ColumnType) -> ColumnDef {
        ColumnDef { name: name.into(), ty, nullable: false, default: None }
    }
}

/// The name of a part of a key that nobody has named, by its number from 1. It agrees with every name.
#[must_use]
pub fn placeholder(number: usize) -> String {
    format!("#{number}")
}

/// Returns whether a name is the [`placeholder`] of one.
#[must_use]
pub fn is_placeholder(name: &str) -> bool {
    name.starts_with('#')
}

/// A column as a part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyColumn {
    /// Its place among the columns of the table.
    pub column: u16,
    /// Set if greater values come first.
    pub descending: bool,
}

impl KeyColumn {
    /// A column whose smaller values come first.
    #[must_use]
    pub const fn ascending(column: u16) -> KeyColumn {
        KeyColumn { column, descending: false }
    }
}

/// The primary key of a table, by which its rows are clustered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrimaryKey {
    /// These columns, which are kept in the key and not in the row.
    Columns(Vec<KeyColumn>),
    /// No declared column: the worker that inserted the row and a counter of it are the key, so that appending stays
    /// local.
    Hidden,
}

/// The parts of a hidden key: a worker's number and its counter.
const HIDDEN_KEY: [ColumnType; 2] = [ColumnType::Unsigned(2), ColumnType::Unsigned(8)];

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDef {
    /// Its name, unique among tables and indexes.
    pub name: String,
    /// Its columns, those of its key included. A table that is declared as types has those of its key first.
    pub columns: Vec<ColumnDef>,
    /// Its primary key.
    pub key: PrimaryKey,
    /// The family of tables and indexes that are cut at the same keys.
    pub family: String,
    /// Set if rows come from loading alone, so that reading them needs no locks.
    pub read_only: bool,
    /// The keys at which its family is cut when it is new, ascending. Partitions move.
    pub splits: Vec<Vec<u8>>,
}

impl TableDef {
    /// The key as it is encoded.
    #[must_use]
    pub fn key_fields(&self) -> Vec<KeyField> {
        match &self.key {
            PrimaryKey::Columns(columns) => columns.iter().filter_map(|key| self.key_field(*key)).collect(),
            PrimaryKey::Hidden => HIDDEN_KEY.map(|ty| KeyField { part: KeyPart::ascending(ty) }).to_vec(),
        }
    }

    /// A column as a part of a key; nothing if the table has no such column.
    pub(crate) fn key_field(&self, key: KeyColumn) -> Option<KeyField> {
        let column = self.columns.get(usize::from(key.column))?;
        let part = KeyPart { ty: column.ty, descending: key.descending, nullable: column.nullable };
        Some(KeyField { part })
    }

    /// Names of the parts of its key.
    #[must_use]
    pub fn key_names(&self) -> Vec<&str> {
        let PrimaryKey::Columns(columns) = &self.key else { return vec!["#worker", "#row"] };
        let named = columns.iter().filter_map(|key| self.columns.get(usize::from(key.column)));
        named.map(|column| column.name.as_str()).collect()
    }

    /// Returns whether the column in this place is part of the key, and so not in the row.
    #[must_use]
    pub fn is_in_key(&self, place: usize) -> bool {
        match &self.key {
            PrimaryKey::Columns(columns) => columns.iter().any(|key| usize::from(key.column) == place),
            PrimaryKey::Hidden => false,
        }
    }

    /// The columns that are in the row: all but those of the key, in order.
    pub fn row_columns(&self) -> impl Iterator<Item = &ColumnDef> {
        self.columns.iter().enumerate().filter(|(place, _)| !self.is_in_key(*place)).map(|(_, column)| column)
    }
}

/// A part of the key of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexPart {
    /// A column of the table.
    Column(KeyColumn),
    /// A key that a function of the program computes from a row.
    Computed {
        /// Its name; a [`placeholder`] when nobody has named it.
        name: String,
        /// Its type.
        part: KeyPart,
    },
}

/// An index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDef {
    /// Its name, unique among tables and indexes.
    pub name: String,
    /// The number of the table whose rows it finds.
    pub of: u16,
    /// The parts of its key. Where two rows may have the same one, the primary key follows in the entry.
    pub parts: Vec<IndexPart>,
    /// Set if two rows may not have the same key. Keys with a NULL in them are all different, as in SQL.
    pub unique: bool,
    /// The family of tables and indexes that are cut at the same keys.
    pub family: String,
    /// The keys at which its family is cut when it is new, ascending. Partitions move.
    pub splits: Vec<Vec<u8>>,
}

/// Effects of deleting a row on the rows that refer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDelete {
    /// Refuses the deletion while there are such rows.
    Restrict,
    /// Deletes them with it.
    Cascade,
}

/// A reference from rows of one table to those of another: the key of the parent is the beginning of the child's own key, or
/// of the child's key in an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignKeyDef {
    /// The number of the table that refers.
    pub child: u16,
    /// The number of the table referred to.
    pub parent: u16,
    /// The number of the index whose keys begin with the key of the parent; none: the child's own do.
    pub through: Option<u16>,
    /// Set if violations are refused. Otherwise only partitioning makes use of the reference.
    pub enforced: bool,
    /// Effect of deleting a row on the rows that refer to it.
    pub on_delete: OnDelete,
}

/// Definition of a numbered object: a table or an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeDef {
    /// A table.
    Table(TableDef),
    /// An index.
    Index(IndexDef),
    /// A table or index that was dropped. Its number may still be in the WAL.
    Dropped,
}

impl TreeDef {
    /// Its name; empty for one that was dropped.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            TreeDef::Table(table) => &table.name,
            TreeDef::Index(index) => &index.name,
            TreeDef::Dropped => "",
        }
    }

    /// Its family; empty for one that was dropped.
    #[must_use]
    pub fn family(&self) -> &str {
        match self {
            TreeDef::Table(table) => &table.family,
            TreeDef::Index(index) => &index.family,
            TreeDef::Dropped => "",
        }
    }

    /// The keys at which its family is cut when it is new.
    #[must_use]
    pub fn splits(&self) -> &[Vec<u8>] {
        match self {
            TreeDef::Table(table) => &table.splits,
            TreeDef::Index(index) => &index.splits,
            TreeDef::Dropped => &[],
        }
    }

    /// The table, if it is one.
    #[must_use]
    pub fn as_table(&self) -> Option<&TableDef> {
        match self {
            TreeDef::Table(table) => Some(table),
            _ => None,
        }
    }

    /// The index, if it is one.
    #[must_use]
    pub fn as_index(&self) -> Option<&IndexDef> {
        match self {
            TreeDef::Index(index) => Some(index),
            _ => None,
        }
    }

    /// Word for it in messages.
    #[must_use]
    pub fn noun(&self) -> &'static str {
        match self {
            TreeDef::Table(_) => "table",
            TreeDef::Index(_) => "index",
            TreeDef::Dropped => "dropped table",
        }
    }
}

/// All objects of a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definitions {
    /// Tables and indexes, by number.
    pub trees: Vec<TreeDef>,
    /// References between tables.
    pub foreign_keys: Vec<ForeignKeyDef>,
}

impl Definitions {
    /// The table of this number.
    #[must_use]
    pub fn table(&self, number: u16) -> Option<&TableDef> {
        self.trees.get(usize::from(number))?.as_table()
    }

    /// The index of this number.
    #[must_use]
    pub fn index(&self, number: u16) -> Option<&IndexDef> {
        self.trees.get(usize::from(number))?.as_index()
    }

    /// The name of the table or index of this number.
    #[must_use]
    pub fn name_of(&self, number: u16) -> &str {
        match self.trees.get(usize::from(number)) {
            None | Some(TreeDef::Dropped) => "(no such table)",
            Some(tree) => tree.name(),
        }
    }

    /// The number of the table or index with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<u16> {
        let is_it = |tree: &TreeDef| *tree != TreeDef::Dropped && tree.name() == name;
        self.trees.iter().position(is_it).and_then(|place| u16::try_from(place).ok())
    }

    /// The key of a table, or the key of an index without the primary key that may follow it in entries. Nothing for what does
    /// not exist.
    #[must_use]
    pub fn key_fields(&self, number: u16) -> Vec<KeyField> {
        match self.trees.get(usize::from(number)) {
            Some(TreeDef::Table(table)) => table.key_fields(),
            Some(TreeDef::Index(index)) => index.key_fields(self.table(index.of)),
            None | Some(TreeDef::Dropped) => Vec::new(),
        }
    }

    /// Names of the parts of [`key_fields`](Definitions::key_fields).
    #[must_use]
    pub fn key_names(&self, number: u16) -> Vec<&str> {
        match self.trees.get(usize::from(number)) {
            Some(TreeDef::Table(table)) => table.key_names(),
            Some(TreeDef::Index(index)) => index.key_names(self.table(index.of)),
            None | Some(TreeDef::Dropped) => Vec::new(),
        }
    }
}

impl IndexDef {
    /// The key as it is encoded, without the primary key that may follow it in entries. `table` is the one whose rows it finds.
    #[must_use]
    pub fn key_fields(&self, table: Option<&TableDef>) -> Vec<KeyField> {
        let field = |part: &IndexPart| match part {
            IndexPart::Column(key) => table?.key_field(*key),
            IndexPart::Computed { part, .. } => Some(KeyField { part: *part }),
        };
        self.parts.iter().filter_map(field).collect()
    }

    fn key_names<'a>(&'a self, table: Option<&'a TableDef>) -> Vec<&'a str> {
        let name = |part: &'a IndexPart| match part {
            IndexPart::Column(key) => Some(table?.columns.get(usize::from(key.column))?.name.as_str()),
            IndexPart::Computed { name, .. } => Some(name.as_str()),
        };
        self.parts.iter().filter_map(name).collect()
    }
}
