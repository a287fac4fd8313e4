//! Keys that follow from a row: the entry of an index, the key of the parent that a foreign key refers to.
//!
//! Owns: the functions that compute such keys, which are code of a program (a type that implements [`Index`]), or
//! follow from definitions alone (indexes on columns, foreign keys). Never: reads a tree.
//!
//! Invariants: a key function is learned once and never forgotten, by all catalogs of a database that have the index;
//! keys made of columns are encoded by their definition ([`KeyCodec`]).

use std::sync::{Arc, OnceLock};

use atrapos_catalog::{IndexDef, IndexPart, KeyCodec, KeyField, PrimaryKey, RowLayout, TableDef, ValueError};
use atrapos_storage::{ColumnType, Key, KeyBuf};

use super::{Index, Table, corrupt, decode_key, decode_row};
use crate::abort::{Abort, AbortReason};
use crate::action::guarded;
use crate::range::KeyRange;

/// A function from the stored bytes of key and row to a key of another tree.
pub(super) type Extract = Arc<dyn Fn(&[u8], &[u8]) -> Result<KeyBuf, Abort> + Send + Sync>;

/// An [`Extract`] that may not be known yet: that of an index with a computed key in a database that was opened without
/// declaring its schema. Clones share it.
#[derive(Clone, Default)]
pub struct Extractor(Arc<OnceLock<Extract>>);

impl Extractor {
    /// Creates a key function that is known.
    pub(super) fn known(extract: Extract) -> Extractor {
        Extractor(Arc::new(OnceLock::from(extract)))
    }

    /// Sets the function, unless it is known.
    pub(super) fn learn(&self, extract: impl FnOnce() -> Extract) {
        self.0.get_or_init(extract);
    }

    /// Computes the key that follows from a stored key and row.
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

/// The key function of an index that is declared as a type.
pub(super) fn extract_of<I: Index>() -> Extract {
    Arc::new(|key, row| {
        let key = decode_key::<<I::Table as Table>::Key>(key)?;
        let row = decode_row::<<I::Table as Table>::Row>(row)?;
        guarded(|| I::key(&key, &row).encode())
    })
}

/// The source of a part of an index key.
enum Source {
    /// This part of the primary key.
    Key(usize),
    /// This column of the row.
    Row(usize),
}

/// The key function of an index whose key consists of columns; `None` for an index with a computed part.
pub(super) fn extract_of_columns(index: &IndexDef, table: &TableDef) -> Option<Extract> {
    let source = |part: &IndexPart| match part {
        IndexPart::Column(key) => source_of(table, key.column),
        IndexPart::Computed { .. } => None,
    };
    let sources: Vec<Source> = index.parts.iter().map(source).collect::<Option<_>>()?;
    let fields = index.key_fields(Some(table));
    let (codec, layout) = (KeyCodec::of_table(table), RowLayout::of_table(table));
    let needs_key = sources.iter().any(|source| matches!(source, Source::Key(_)));
    Some(Arc::new(move |key, row| {
        let parts =
            if needs_key { codec.decode(key).map_err(|error| corrupt("key", &error))? } else { Vec::new() };
        let mut entry = KeyBuf::new();
        for (source, field) in sources.iter().zip(&fields) {
            let put = match source {
                Source::Key(part) => field.encode(&parts[*part], &mut entry),
                Source::Row(column) => {
                    layout.get(row, *column).and_then(|value| field.encode(&value, &mut entry))
                }
            };
            put.map_err(|error| corrupt("row", &error))?;
        }
        Ok(entry)
    }))
}

fn source_of(table: &TableDef, column: u16) -> Option<Source> {
    let place = usize::from(column);
    if let PrimaryKey::Columns(columns) = &table.key
        && let Some(part) = columns.iter().position(|key| key.column == column)
    {
        return Some(Source::Key(part));
    }
    let row_columns = (0..place).filter(|place| !table.is_in_key(*place)).count();
    (place < table.columns.len()).then_some(Source::Row(row_columns))
}

/// The source of the parent's key in a child row.
pub enum ParentKeyOf {
    /// A function of the program.
    Code(Extractor),
    /// The beginning of the child's own key, or of its key in an index.
    Beginning {
        /// The key function of the index; `None` for the child's own key.
        through: Option<Extractor>,
        /// The encodings of that beginning and of the parent's key.
        shape: Option<ReferenceShape>,
    },
}

impl ParentKeyOf {
    /// Computes the key of the parent of a row; `None` if the row refers to no parent, since a part of the reference is
    /// NULL.
    pub fn call(&self, key: &[u8], row: &[u8]) -> Result<Option<KeyBuf>, Abort> {
        match self {
            ParentKeyOf::Code(extractor) => extractor.call(key, row).map(Some),
            ParentKeyOf::Beginning { shape: None, .. } => Err(unknown_extract()),
            ParentKeyOf::Beginning { through: None, shape: Some(shape) } => shape.parent_of(key),
            ParentKeyOf::Beginning { through: Some(index), shape: Some(shape) } => {
                shape.parent_of(&index.call(key, row)?)
            }
        }
    }
}

/// The encodings of a parent's key, in the parent and in the keys of its children.
#[derive(Clone)]
pub struct ReferenceShape {
    parent: KeyCodec,
    /// The corresponding parts of the child's key, or of its key in an index.
    child: Vec<KeyField>,
    /// True if both have the same bytes, since no part of the child's may be NULL.
    is_same: bool,
}

impl ReferenceShape {
    /// Creates the shape; `None` if a part of a key is opaque, so that its end is unknown.
    pub(super) fn new(parent: Vec<KeyField>, mut child: Vec<KeyField>) -> Option<ReferenceShape> {
        child.truncate(parent.len());
        let is_opaque = |field: &KeyField| field.part.ty == ColumnType::Opaque;
        if parent.iter().chain(&child).any(is_opaque) || child.len() < parent.len() {
            return None;
        }
        let is_same = parent == child;
        Some(ReferenceShape { parent: KeyCodec::new(parent), child, is_same })
    }

    fn parent_of(&self, bytes: &[u8]) -> Result<Option<KeyBuf>, Abort> {
        let mut rest = bytes;
        let values: Result<Vec<_>, ValueError> =
            self.child.iter().map(|field| field.decode(&mut rest)).collect();
        let values = values.map_err(|error| corrupt("key", &error))?;
        if self.is_same {
            return Ok(Some(KeyBuf::from(&bytes[..bytes.len() - rest.len()])));
        }
        if values.iter().any(atrapos_catalog::Value::is_null) {
            return Ok(None);
        }
        self.parent.encode(&values).map(Some).map_err(|error| corrupt("key", &error))
    }

    /// Returns the range of the children of the parent with this key.
    fn children_of(&self, key: &[u8]) -> Result<KeyRange, Abort> {
        let values = self.parent.decode(key).map_err(|error| corrupt("key", &error))?;
        let mut prefix = KeyBuf::new();
        for (field, value) in self.child.iter().zip(&values) {
            field.encode(value, &mut prefix).map_err(|error| corrupt("key", &error))?;
        }
        Ok(KeyRange::of_prefix_bytes(&prefix))
    }
}

/// Returns the range of the children of the parent with this key, in the tree through which they are found.
pub(super) fn children_of(shape: Option<&ReferenceShape>, key: &KeyBuf) -> Result<KeyRange, Abort> {
    match shape {
        Some(shape) if !shape.is_same => shape.children_of(key),
        _ => Ok(KeyRange::of_prefix_bytes(key)),
    }
}
