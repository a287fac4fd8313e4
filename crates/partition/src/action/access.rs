//! The interface of operations to the rows they work on ([`RowAccess`]), whatever keeps them.
//!
//! A partition implements it ([`RowContext`]); so can an engine of another design, which then runs the same operations, and
//! with them the same procedures. The operations of one engine alone implement [`Operation`](super::Operation) only.

use std::ops::ControlFlow;

use atrapos_storage::{DisplayKey, KeyBuf, Overwritten};

use super::context::{ChangeRow, Replaced};
use super::{DependentAction, RowContext};
use crate::abort::{Abort, AbortReason};
use crate::range::KeyRange;
use crate::schema::{Catalog, TableId, TreeKind};

/// The row, or the range of rows, that an operation works on: encoded keys and encoded rows.
///
/// All methods fail if the transaction has to abort, for a reason of the engine's own or the caller's.
pub trait RowAccess {
    /// The catalog.
    fn catalog(&self) -> &Catalog;

    /// The table or index.
    fn table(&self) -> TableId;

    /// The key of the row, or the first of the range.
    fn key(&self) -> &KeyBuf;

    /// The list to which dependents of changes are added. The methods that change rows add theirs, but for `put` and `remove`.
    fn dependents(&mut self) -> &mut Vec<DependentAction>;

    /// Takes the part of the range that is left for another access.
    fn take_left_out(&mut self) -> Option<KeyRange>;

    /// Reads the row of the key; `None` if there is none.
    fn row(&mut self) -> Result<Option<&[u8]>, Abort>;

    /// Inserts the row that `encode` writes, under the key. If that is taken, fails when `strict`, and returns false otherwise.
    fn insert(&mut self, strict: bool, encode: impl FnOnce(&mut Vec<u8>)) -> Result<bool, Abort>;

    /// Replaces the row of the key by the one that `make` writes, given the old one; `None` if there is no row.
    fn replace<R>(
        &mut self,
        make: impl FnOnce(&[u8], &mut Vec<u8>) -> Result<R, Abort>,
    ) -> Result<Option<R>, Abort>;

    /// Changes bytes of the row of the key, but not its length; `None` if there is no row. `change` adds what it overwrites to the
    /// log before it does so.
    fn edit<R>(
        &mut self,
        change: impl FnOnce(&mut [u8], Overwritten<'_>) -> Result<R, Abort>,
    ) -> Result<Option<R>, Abort>;

    /// Deletes the row of the key and returns it; `None` if there is none.
    fn delete(&mut self) -> Result<Option<&[u8]>, Abort>;

    /// Inserts a row under the key, without dependents; returns false if the key is taken.
    fn put(&mut self, row: &[u8]) -> Result<bool, Abort>;

    /// Deletes the row of the key, without dependents; returns false if there is none.
    fn remove(&mut self) -> Result<bool, Abort>;

    /// Visits the rows of the range until `visit` breaks; returns true if it did.
    fn walk(
        &mut self,
        backward: bool,
        visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, Abort>,
    ) -> Result<bool, Abort>;

    /// Applies `change` to each row of the range, and returns the number of rows.
    fn change_range(&mut self, change: &mut ChangeRow<'_>) -> Result<u64, Abort>;
}

impl RowAccess for RowContext<'_> {
    #[inline(always)]
    fn catalog(&self) -> &Catalog {
        self.catalog
    }

    #[inline(always)]
    fn table(&self) -> TableId {
        self.id.table
    }

    #[inline(always)]
    fn key(&self) -> &KeyBuf {
        self.key()
    }

    #[inline(always)]
    fn dependents(&mut self) -> &mut Vec<DependentAction> {
        self.dependents
    }

    #[inline(always)]
    fn take_left_out(&mut self) -> Option<KeyRange> {
        self.left_out.take()
    }

    #[inline(always)]
    fn row(&mut self) -> Result<Option<&[u8]>, Abort> {
        Ok(RowContext::row(self).map(|(_, row)| row))
    }

    #[inline(always)]
    fn insert(&mut self, strict: bool, encode: impl FnOnce(&mut Vec<u8>)) -> Result<bool, Abort> {
        self.with_scratch(|at, encoded| {
            encode(encoded);
            RowContext::insert(at, encoded, strict)
        })
    }

    #[inline(always)]
    fn replace<R>(
        &mut self,
        make: impl FnOnce(&[u8], &mut Vec<u8>) -> Result<R, Abort>,
    ) -> Result<Option<R>, Abort> {
        self.with_scratch(|at, new| {
            let position = at.locate();
            let Some((version, old)) = at.row_at(position) else { return Ok(None) };
            let result = make(old, new)?;
            at.patch(Replaced::At(position), version, new)?;
            Ok(Some(result))
        })
    }

    #[inline(always)]
    fn edit<R>(
        &mut self,
        change: impl FnOnce(&mut [u8], Overwritten<'_>) -> Result<R, Abort>,
    ) -> Result<Option<R>, Abort> {
        RowContext::edit(self, change)
    }

    #[inline(always)]
    fn delete(&mut self) -> Result<Option<&[u8]>, Abort> {
        RowContext::delete(self, None)
    }

    #[inline(always)]
    fn put(&mut self, row: &[u8]) -> Result<bool, Abort> {
        RowContext::put(self, row)
    }

    #[inline(always)]
    fn remove(&mut self) -> Result<bool, Abort> {
        RowContext::remove(self, None)
    }

    #[inline(always)]
    fn walk(
        &mut self,
        backward: bool,
        visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, Abort>,
    ) -> Result<bool, Abort> {
        RowContext::walk(self, backward, visit)
    }

    #[inline(always)]
    fn change_range(&mut self, change: &mut ChangeRow<'_>) -> Result<u64, Abort> {
        RowContext::change_range(self, change)
    }
}

/// Creates the abort of an insertion whose key is taken.
#[cold]
pub fn refuse_duplicate(catalog: &Catalog, table: TableId, key: &KeyBuf) -> Abort {
    let meta = &catalog.tables[table.at()];
    let what = if meta.kind == TreeKind::Rows { "table" } else { "unique index" };
    Abort::explained(
        AbortReason::DuplicateKey,
        format!(
            "{what} '{}' already has a row with key {}; use another key, or update the row",
            meta.name,
            DisplayKey(key)
        ),
    )
}
