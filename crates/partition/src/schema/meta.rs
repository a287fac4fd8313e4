//! What the catalog knows of one tree: what it holds, what has to follow a write to it, and what types say of it.
//!
//! Owns: how the entry of a row in an index is made, and where the children of a row are. Never: knows other trees but by their
//! numbers.

use std::any::TypeId;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use atrapos_catalog::{KeyCodec, OnDelete, Value};
use atrapos_storage::{Column, KeyBuf, column_bytes};

use super::TableId;
use super::declare::SchemaError;
use super::extract::{Extractor, ParentKeyOf, ReferenceShape, children_of};
use crate::abort::Abort;
use crate::range::KeyRange;

/// What a tree holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeKind {
    /// Rows of a table.
    Rows,
    /// Entries of an index: index key (and, when not unique, the primary key after it) to primary key.
    Entries {
        /// The table whose rows are found.
        of: TableId,
        /// True when no two rows may have the same index key.
        unique: bool,
    },
    /// Nothing any more.
    Dropped,
}

/// How far a tree has come into being.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// It can be used.
    #[default]
    Ready,
    /// Every write of its table maintains it, but entries of rows from before may be missing.
    Building,
    /// It is there, and nobody uses it.
    Announced,
}

/// What the types of a program say of a tree; unknown until they are asked for in a database opened without a schema. Clones learn
/// it together.
#[derive(Clone, Default)]
pub(super) struct Code {
    /// The type it was declared as, if it is known.
    pub(super) type_id: Arc<OnceLock<TypeId>>,
    /// Its key function.
    pub(super) extract: Extractor,
    /// The bytes of a row of which an index key is made; unknown unless the index has said so.
    pub(super) key_bytes: Arc<OnceLock<KeyBytes>>,
    /// Zero when the definition has to do.
    pub(super) expected_row_bytes: usize,
}

/// Where columns are in the bytes of a row, and what they are of the row that has them.
pub(super) type KeyBytes = Box<[Range<usize>]>;

/// An index as seen from its table.
pub struct IndexMeta {
    /// The number of the index.
    pub id: TableId,
    /// Whether a key is there once.
    pub(super) unique: bool,
    /// Its key function.
    pub(super) extract: Extractor,
    /// Of which bytes of a row its key is made, if that is known.
    pub(super) key_bytes: Arc<OnceLock<KeyBytes>>,
    /// Of a unique index whose key may have a NULL: keys that do are all different.
    pub(super) with_nulls: Option<KeyCodec>,
}

impl IndexMeta {
    /// Whether a row that is replaced is known to keep its index key.
    #[inline]
    pub(crate) fn keeps_key(&self, before: &[u8], after: &[u8]) -> bool {
        let is_same = |bytes: &Range<usize>| before.get(bytes.clone()) == after.get(bytes.clone());
        self.key_bytes.get().is_some_and(|ranges| ranges.iter().all(is_same))
    }

    /// The key of the entry of a row: the index key and, unless it is the only one that may have it, the primary key.
    pub fn entry(&self, key: &[u8], row: &[u8]) -> Result<KeyBuf, Abort> {
        let mut entry = self.extract.call(key, row)?;
        if !self.unique || self.has_null(&entry) {
            entry.extend_from_slice(key);
        }
        Ok(entry)
    }

    fn has_null(&self, index_key: &[u8]) -> bool {
        let Some(codec) = &self.with_nulls else { return false };
        codec.decode(index_key).is_ok_and(|values| values.iter().any(Value::is_null))
    }
}

/// Where the columns an index key is made of are in the bytes of a row.
pub(super) fn key_bytes(
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
pub struct ParentMeta {
    /// The table referred to.
    pub parent: TableId,
    /// The key of the parent that a row refers to.
    pub key: Arc<ParentKeyOf>,
}

/// A foreign key as seen from the parent: a row of the tree `through` whose key begins with the parent's key is a child.
pub struct ChildMeta {
    /// The tree in which the children are found.
    pub through: TableId,
    /// What a deletion of the parent does.
    pub(crate) on_delete: OnDelete,
    /// How the children are found in that tree, where their keys do not simply begin with the parent's.
    pub(super) shape: Option<ReferenceShape>,
}

impl ChildMeta {
    /// Where in the tree `through` the children of the row with this key are.
    pub(crate) fn range(&self, key: &KeyBuf) -> Result<KeyRange, Abort> {
        children_of(self.shape.as_ref(), key)
    }
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
pub struct TableMeta {
    /// The name.
    pub name: &'static str,
    /// What only code can say of it.
    pub(super) code: Code,
    /// What it holds.
    pub kind: TreeKind,
    /// Whether it can be used.
    pub(crate) phase: Phase,
    /// [`NO_FAMILY`](super::NO_FAMILY) for one that was dropped.
    pub family: usize,
    /// The size of its rows for which pages are made, in bytes.
    pub expected_row_bytes: usize,
    /// Its indexes.
    pub indexes: Vec<IndexMeta>,
    /// What its rows refer to.
    pub parents: Vec<ParentMeta>,
    /// What refers to its rows.
    pub children: Vec<ChildMeta>,
    /// Whether a write to the table has to look beyond its own row.
    pub has_dependents: bool,
}
