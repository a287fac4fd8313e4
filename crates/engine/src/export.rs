//! Encoded rows of whole tables and indexes, out of a database and into another one.
//!
//! Owns: the slices in which a table is read. Never: decodes a row.

use atrapos_partition::abort::Abort;
use atrapos_partition::action::{Action, CopiedRows, CopyRows};
use atrapos_partition::range::KeyRange;
use atrapos_partition::routing::{InstanceId, Route};
use atrapos_partition::schema::{TableId, unknown_table};
use atrapos_runtime::WorkerId;
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::LockMode;

use crate::database::Database;

/// Slices of about a MiB of rows.
const SLICE: CopyRows = CopyRows { rows_max: usize::MAX, bytes_max: 1 << 20, backward: false };

impl Database {
    /// Visits the encoded rows of a table in the order of their keys, or the entries of an index with the primary keys they lead
    /// to. Each slice of about a MiB is read in a transaction of its own. An instance of a deployment visits its own rows.
    ///
    /// # Errors
    /// Fails if there is no such table, a transaction aborts, or `visit` fails.
    pub fn visit_encoded(
        &self,
        table: TableId,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), Abort>,
    ) -> Result<(), Abort> {
        self.visit_slices(table, |slice| slice.iter().try_for_each(|(key, row)| visit(key, row)))
    }

    /// Visits the encoded rows of a table as [`visit_encoded`](Database::visit_encoded) does, a slice at a time.
    ///
    /// # Errors
    /// As [`visit_encoded`](Database::visit_encoded).
    pub fn visit_slices(
        &self,
        table: TableId,
        mut visit: impl FnMut(CopiedRows) -> Result<(), Abort>,
    ) -> Result<(), Abort> {
        let catalog = self.catalogs.visible();
        if table.at() >= catalog.tables.len() {
            return Err(unknown_table(table));
        }
        let tag = catalog.tag;
        for range in self.own_ranges(table) {
            let mut rest = Some(range);
            while let Some(range) = rest.take() {
                let slice = range.clone();
                let mut copied = self.run(Route::worker(WorkerId(0)), async move |tx| {
                    tx.run(Action::on_range(table, tag, LockMode::Shared, slice.clone(), false, SLICE)).await
                })?;
                rest = match copied.rows.last() {
                    // The slice was full: the next one begins behind its last key.
                    Some((last, _)) if copied.stopped => {
                        let mut lower = last.clone();
                        lower.push(0);
                        Some(KeyRange { lower, upper: range.upper })
                    }
                    // The partition was read to its end.
                    _ => copied.rest.take(),
                };
                visit(copied)?;
            }
        }
        Ok(())
    }

    /// Returns the ranges of the keys of a table that are not those of another instance.
    fn own_ranges(&self, table: TableId) -> Vec<KeyRange> {
        let scheme = self.scheme();
        let family = scheme.family(table);
        let mut ranges: Vec<KeyRange> = Vec::new();
        for index in (0..family.partitions()).filter(|at| InstanceId::of_owner(family.owner(*at)).is_none()) {
            let lower = family.lower(index).map_or_else(KeyBuf::new, KeyBuf::from);
            let upper = family.upper(index).map(KeyBuf::from);
            match ranges.last_mut() {
                Some(before) if before.upper.as_ref() == Some(&lower) => before.upper = upper,
                _ => ranges.push(KeyRange { lower, upper }),
            }
        }
        ranges
    }
}
