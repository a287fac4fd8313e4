//! The catalog's description of one tree: its kind, the dependents of writes to it, and its declared types.
//!
//! Owns: the construction of index entries from rows, and the ranges of the children of rows. Never: refers to another
//! tree except by its number.

use std::any::TypeId;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use atrapos_catalog::{KeyCodec, OnDelete, Value};
use atrapos_storage::{Column, KeyBuf, OverwrittenBytes, column_bytes};

use super::TableId;
use super::declare::SchemaError;
use super::extract::{Extractor, ParentKeyOf, ReferenceShape, children_of};
use crate::abort::Abort;
use crate::range::KeyRange;

/// The kind of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeKind {
    /// Rows of a table.
    Rows,
    /// Entries of an index: index key (and, when not unique, the primary key after it) to primary key.
    Entries {
        /// The table whose rows are found.
        of: TableId,
        /// True if no two rows may have the same index key.
        unique: bool,
    },
    /// Nothing: the tree was dropped.
    Dropped,
}

/// The phase of the creation of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// The tree can be used.
    #[default]
    Ready,
    /// Every write of its table maintains it, but entries of rows from before may be missing.
    Building,
    /// The tree exists, but is not used yet.
    Announced,
}

/// The properties of a tree that types of a program declare. In a database opened without a schema they are unknown
/// until the types are first used. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Code {
    /// The type it was declared as, if it is known.
    pub(super) type_id: Arc<OnceLock<TypeId>>,
    /// Its key function.
    pub(super) extract: Extractor,
    /// The bytes of a row of which an index key is made; unknown unless the index declares its columns.
    pub(super) key_bytes: Arc<OnceLock<KeyBytes>>,
    /// The expected size of a row in bytes; zero to derive it from the definition.
    pub(super) expected_row_bytes: usize,
    /// True if the table is declared as shared; an index follows its table.
    pub(super) is_shared: bool,
}

/// The positions of columns in the bytes of a row.
pub(super) type KeyBytes = Box<[Range<usize>]>;

/// An index, in the description of its table.
pub struct IndexMeta {
    /// The number of the index.
    pub id: TableId,
    /// True if the index is unique.
    pub(super) unique: bool,
    /// Its key function.
    pub(super) extract: Extractor,
    /// The bytes of a row of which its key is made, if known.
    pub(super) key_bytes: Arc<OnceLock<KeyBytes>>,
    /// The codec of the key, for a unique index whose key may contain NULL: such keys are all different.
    pub(super) with_nulls: Option<KeyCodec>,
}

impl IndexMeta {
    /// Returns true if a replaced row is known to keep its index key.
    #[inline]
    pub(crate) fn keeps_key(&self, before: &[u8], after: &[u8]) -> bool {
        let is_same = |bytes: &Range<usize>| before.get(bytes.clone()) == after.get(bytes.clone());
        self.key_bytes.get().is_some_and(|ranges| ranges.iter().all(is_same))
    }

    /// Returns true if the key is known not to be made of any of the bytes that an edit has overwritten.
    #[inline]
    fn is_indifferent_to(&self, overwritten: &[u8]) -> bool {
        let is_apart = |key: &Range<usize>| {
            OverwrittenBytes::of(overwritten)
                .all(|(place, _)| place.end <= key.start || key.end <= place.start)
        };
        self.key_bytes.get().is_some_and(|keys| keys.iter().all(is_apart))
    }

    /// Computes the key of the entry of a row: the index key and, unless it identifies the row, the primary key.
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

/// Returns the positions, in the bytes of a row, of the columns of which an index key is made.
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

/// A foreign key, in the description of the child.
pub struct ParentMeta {
    /// The table referred to.
    pub parent: TableId,
    /// The function that computes the key of the parent.
    pub key: Arc<ParentKeyOf>,
}

/// A foreign key, in the description of the parent: a row of the tree `through` whose key begins with the parent's key
/// is a child.
pub struct ChildMeta {
    /// The tree in which the children are found.
    pub through: TableId,
    /// The action on deletion of the parent.
    pub(crate) on_delete: OnDelete,
    /// The encodings of the keys, if the children's keys in that tree do not simply begin with the parent's.
    pub(super) shape: Option<ReferenceShape>,
}

impl ChildMeta {
    /// Returns the range of the children of the row with this key, in the tree `through`.
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
    /// True if the engine refuses violations.
    pub enforced: bool,
    /// The index through which the children of a parent are found; `None`: they follow it in the order of keys.
    pub through: Option<TableId>,
}

/// The description of one tree.
pub struct TableMeta {
    /// The name.
    pub name: &'static str,
    /// The properties that only code can declare.
    pub(super) code: Code,
    /// True if it may be lent to workers that read it: declared by [`Schema::shared`](super::Schema::shared), for a table and its indexes.
    pub is_shared: bool,
    /// The kind of the tree.
    pub kind: TreeKind,
    /// The phase of its creation.
    pub(crate) phase: Phase,
    /// The number of its family; [`NO_FAMILY`](super::NO_FAMILY) if it was dropped.
    pub family: usize,
    /// The expected size of its rows, by which pages are laid out, in bytes.
    pub expected_row_bytes: usize,
    /// Its indexes.
    pub indexes: Vec<IndexMeta>,
    /// The foreign keys of its rows.
    pub parents: Vec<ParentMeta>,
    /// The foreign keys that refer to its rows.
    pub children: Vec<ChildMeta>,
    /// True if writes to the table have dependents.
    pub has_dependents: bool,
}

impl TableMeta {
    /// Returns true if an edit of a row that has overwritten these bytes is known to have no dependents.
    #[inline]
    pub fn is_indifferent_to(&self, overwritten: &[u8]) -> bool {
        self.parents.is_empty() && self.indexes.iter().all(|index| index.is_indifferent_to(overwritten))
    }
}
