//! Encoded rows of whole tables and indexes, out of a database and into another one.
//!
//! Owns: the slices in which a table is read. Never: decodes a row.

use std::ops::ControlFlow;

use atrapos_partition::abort::Abort;
use atrapos_partition::action::{
    AccessKind as Kind, Action, Operation, OperationKind, ResultShape, RowContext,
};
use atrapos_partition::range::KeyRange;
use atrapos_partition::routing::Route;
use atrapos_partition::schema::{TableId, unknown_table};
use atrapos_runtime::WorkerId;
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::LockMode;

use crate::database::Database;

/// Bytes of rows after which a slice ends.
const SLICE_BYTES: usize = 1 << 20;

/// Copies rows of a range until there are enough of them.
#[derive(Debug)]
struct CopyRows;

/// Rows that were copied, and the range that is left.
#[derive(Debug, Default)]
struct Copied {
    bytes: Vec<u8>,
    /// For each row its key, and where its bytes end.
    rows: Vec<(KeyBuf, usize)>,
    rest: Option<KeyRange>,
}

impl Operation for CopyRows {
    type Output = Copied;

    fn apply(self, at: &mut RowContext<'_>) -> Result<Copied, Abort> {
        let mut copied = Copied::default();
        let stopped = at.walk(false, |key, row| {
            copied.bytes.extend_from_slice(row);
            copied.rows.push((KeyBuf::from(key), copied.bytes.len()));
            let is_full = copied.bytes.len() >= SLICE_BYTES;
            Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        copied.rest = if stopped { None } else { at.left_out.take() };
        Ok(copied)
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Scan, 0, ResultShape::KeysAndRows)
    }
}

impl Database {
    /// Visits the encoded rows of a table in the order of their keys, or the entries of an index with the primary keys they lead
    /// to. Each slice of about a MiB is read in a transaction of its own.
    ///
    /// # Errors
    /// Fails if there is no such table, a transaction aborts, or `visit` fails.
    pub fn visit_encoded(
        &self,
        table: TableId,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), Abort>,
    ) -> Result<(), Abort> {
        let catalog = self.catalogs.visible();
        if table.at() >= catalog.tables.len() {
            return Err(unknown_table(table));
        }
        let tag = catalog.tag;
        let mut rest = Some(KeyRange::all());
        while let Some(range) = rest.take() {
            let slice = range.clone();
            let copied = self.run(Route::worker(WorkerId(0)), async move |tx| {
                tx.run(Action::on_range(table, tag, LockMode::Shared, slice.clone(), false, CopyRows)).await
            })?;
            let mut start = 0;
            for (key, end) in &copied.rows {
                visit(key, &copied.bytes[start..*end])?;
                start = *end;
            }
            rest = match (copied.rest, copied.rows.last()) {
                // The partition was read to its end.
                (Some(rest), _) => Some(rest),
                // The slice was full: what comes next begins behind its last key.
                (None, Some((last, _))) if start >= SLICE_BYTES => {
                    let mut lower = last.clone();
                    lower.push(0);
                    Some(KeyRange { lower, upper: None })
                }
                (None, _) => None,
            };
        }
        Ok(())
    }
}
