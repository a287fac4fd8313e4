//! A row of a table that is known by its definition: its bytes, decoded column by column on access.

use std::fmt;

use atrapos_catalog::Value;
use atrapos_storage::KeyBuf;

use super::handle::TableHandle;
use super::layout::invalid;
use crate::abort::Abort;
use crate::schema::TableId;

/// The greatest size of a row, in bytes, that is stored without an allocation. With its key such a row has less than 128 bytes, which are
/// moved without a call.
const INLINE_ROW_BYTES: usize = 62;

/// The bytes of a row.
#[derive(Clone)]
enum RowBytes {
    Inline { len: u8, bytes: [u8; INLINE_ROW_BYTES] },
    Heap(Box<[u8]>),
}

/// A row that was read: a copy of its stored key and columns. Values are decoded column by column, with the handle of
/// its table.
#[derive(Clone)]
pub struct DynRow {
    table: TableId,
    key: KeyBuf,
    row: RowBytes,
}

impl fmt::Debug for DynRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynRow")
            .field("key", &self.key)
            .field("bytes", &self.row().len())
            .finish_non_exhaustive()
    }
}

impl PartialEq for DynRow {
    fn eq(&self, other: &DynRow) -> bool {
        self.table == other.table && self.key == other.key && self.row() == other.row()
    }
}

impl Eq for DynRow {}

impl DynRow {
    #[inline]
    #[doc(hidden)]
    pub fn new(table: TableId, key: KeyBuf, row: &[u8]) -> DynRow {
        let row = if row.len() <= INLINE_ROW_BYTES {
            let mut bytes = [0; INLINE_ROW_BYTES];
            bytes[..row.len()].copy_from_slice(row);
            RowBytes::Inline { len: row.len() as u8, bytes }
        } else {
            RowBytes::Heap(row.into())
        };
        DynRow { table, key, row }
    }

    #[inline]
    pub(super) fn row(&self) -> &[u8] {
        match &self.row {
            RowBytes::Inline { len, bytes } => &bytes[..usize::from(*len).min(INLINE_ROW_BYTES)],
            RowBytes::Heap(bytes) => bytes,
        }
    }

    /// The key as it is stored.
    #[must_use]
    pub fn encoded_key(&self) -> &KeyBuf {
        &self.key
    }

    /// The value of the column with this number.
    ///
    /// # Errors
    /// [`InvalidValue`](crate::abort::AbortReason::InvalidValue) when the row is not of this table, or the table has no such column.
    #[inline]
    pub fn at(&self, table: &TableHandle, column: usize) -> Result<Value, Abort> {
        self.check(table)?;
        if column >= table.layout.columns.len() {
            return Err(invalid(format!(
                "table '{}' has no column number {column}; it has {}",
                table.name(),
                table.columns().len()
            )));
        }
        table.layout.value(&self.key, self.row(), column)
    }

    /// The value of the column with this name.
    ///
    /// # Errors
    /// Those of [`at`](DynRow::at).
    pub fn get(&self, table: &TableHandle, column: &str) -> Result<Value, Abort> {
        self.at(table, table.layout.column(column)?)
    }

    /// The values of all columns, in the order of the definition.
    ///
    /// # Errors
    /// Those of [`at`](DynRow::at).
    pub fn values(&self, table: &TableHandle) -> Result<Vec<Value>, Abort> {
        self.check(table)?;
        table.layout.values(&self.key, self.row())
    }

    /// The values of the key, including a hidden one; they find the row again.
    ///
    /// # Errors
    /// Those of [`at`](DynRow::at).
    pub fn key(&self, table: &TableHandle) -> Result<Vec<Value>, Abort> {
        self.check(table)?;
        table.layout.key.codec.decode(&self.key).map_err(|error| table.layout.corrupt(&error))
    }

    #[inline]
    fn check(&self, table: &TableHandle) -> Result<(), Abort> {
        if self.table == table.id() { Ok(()) } else { Err(self.refuse(table)) }
    }

    #[cold]
    fn refuse(&self, table: &TableHandle) -> Abort {
        let number = self.table.0;
        invalid(format!(
            "the row is of table number {number} and not of '{}'; use the handle by which it was read",
            table.name()
        ))
    }
}
