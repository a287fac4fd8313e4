//! Adding columns to tables, and dropping them.
//!
//! A table with other columns is a new table: it has a number of its own, and rows of another layout. The old one is closed
//! permanently; each worker makes converted copies of its partitions, a few rows at a time between its other tasks; then the
//! number of the old table is marked as dropped, and indexes and foreign keys are those of the new one. Keys stay as they
//! are, so entries of indexes do, and partitions keep their places.
//!
//! The copies leave no records in the WAL. They are durable, and the statement takes effect, when a checkpoint that has
//! them is published together with the definitions, as after a load.
//!
//! Invariant: no transaction can name the new table before that, and no worker changes the old one once it has begun to
//! convert it.

mod convert;
mod drop;

use std::collections::BTreeMap;
use std::sync::Arc;

use atrapos_catalog::{ColumnDef, Definitions, IndexPart, TableDef, TreeDef};
use atrapos_partition::partition::{Closing, TableShard};
use atrapos_partition::schema::{Catalog, Phase, TableId};

use self::convert::{ConvertError, Converter, cannot_convert, convert_slice};
use super::switch::{HeldState, Until};
use super::{DefineError, Statements, check, find_table, next_number};
use crate::checkpoint::{CheckpointFailure, Pace};
use crate::database::Database;

impl Database {
    /// Adds a column to a table, after the existing ones. Existing rows get its default, or NULL. Waits for the transactions
    /// that have used the table; those that use it until this returns are aborted
    /// ([`AbortReason::TableChanged`](atrapos_partition::abort::AbortReason)), as are those that use an earlier handle, which
    /// has to be replaced by a new one. Returns the new number of the table.
    ///
    /// Takes memory for a second copy of the table and, for a database with a directory, a checkpoint.
    ///
    /// # Errors
    /// A table that does not exist, a column that does, a column that is neither nullable nor has a default, a default that
    /// does not fit, an index whose key is computed from the rows by code, transactions that do not end within the patience
    /// of the database, a lack of memory, files that cannot be written. Nothing has changed then.
    pub fn add_column(&self, table: &str, column: ColumnDef) -> Result<TableId, DefineError> {
        self.statements().add_column(table, column)
    }
}

impl Statements<'_> {
    /// Adds a column. See [`Database::add_column`].
    pub(crate) fn add_column(&self, table: &str, column: ColumnDef) -> Result<TableId, DefineError> {
        let _statement = self.begin_statement()?;
        let before = self.catalogs.working();
        let old = find_table(&before, table)?;
        refuse_column(&before.definitions, old, &column)?;
        let new = next_number(&before.definitions)?;
        let mut definitions = before.definitions.clone();
        let after = with_columns(&mut definitions, old, new, |table| table.columns.push(column));
        let converter = Converter::adding(&before.definitions, old, after)?;
        self.rewrite(&before, definitions, converter, old, new)?;
        Ok(new)
    }

    /// Replaces a table by one of another number whose rows are converted. `definitions` have the new one in its place.
    fn rewrite(
        &self,
        before: &Arc<Catalog>,
        definitions: Definitions,
        converter: Converter,
        old: TableId,
        new: TableId,
    ) -> Result<(), DefineError> {
        check(&definitions)?;
        let converter = Arc::new(converter);
        // Both tables, of one name, while rows are converted; this catalog is never published.
        let mut both = before.definitions.clone();
        both.trees.push(definitions.trees[new.at()].clone());
        let both = Arc::new(before.changed(both, &BTreeMap::from([(new, Phase::Announced)])));
        let after = Arc::new(before.changed(definitions, &BTreeMap::new()));

        let _scheme = self.keep_scheme()?;
        if let Err(error) = self.close_and_drain(before, &[old], Closing::Refused, Until::Unused) {
            self.reopen(&[old])?;
            return Err(error);
        }
        // No checkpoint may have the one table without the other.
        let mut state = self.hold_state();
        let done = self
            .convert(before, &both, &converter, old, new)
            .and_then(|()| self.replace_table(&mut state, &both, &after, old));
        if let Err(error) = done {
            self.forget_copies(before, &both, new)?;
            self.reopen(&[old])?;
            return Err(error);
        }
        Ok(())
    }

    /// Makes the copies, as partitions of the new table. The caller holds scheme and state.
    fn convert(
        &self,
        before: &Catalog,
        both: &Arc<Catalog>,
        converter: &Arc<Converter>,
        old: TableId,
        new: TableId,
    ) -> Result<(), DefineError> {
        self.adopt(both, &self.scheme_of(before, both)?)?;
        loop {
            let converter = Arc::clone(converter);
            let sliced = self.on_all_workers(move |worker| convert_slice(worker, old, &converter))?;
            let done = sliced.into_iter().collect::<Result<Vec<bool>, ConvertError>>();
            let done = done.map_err(|error| cannot_convert(before.tables[old.at()].name, &error))?;
            if done.into_iter().all(|done| done) {
                break;
            }
        }
        self.on_all_workers(move |worker| {
            let shard = worker.shard();
            let copies = shard.copies.take();
            let mut tables = shard.tables.borrow_mut();
            let scheme = Arc::clone(&tables.shards[new.at()].scheme);
            tables.shards[new.at()] = TableShard::new(scheme, copies.partitions);
        })?;
        Ok(())
    }

    /// Makes the new table durable and publishes it.
    fn replace_table(
        &self,
        state: &mut HeldState<'_>,
        both: &Catalog,
        after: &Arc<Catalog>,
        old: TableId,
    ) -> Result<(), DefineError> {
        let scheme = self.scheme_of(both, after)?;
        if let Some((durable, state)) = state {
            let made = durable.checkpoint_defining(state, Pace::Full, Some(after.describe(&scheme)));
            made.map_err(|failure| match failure {
                CheckpointFailure::Refused(abort) => DefineError::Aborted(abort),
                failure => DefineError::NotSaved(failure.to_string()),
            })?;
        }
        // Not as a dropped one: who deletes a parent would find that it has no children, although they are in the new table.
        self.close_trees(&[old], Closing::Replaced)?;
        self.adopt(after, &scheme)?;
        self.catalogs.show(Arc::clone(after));
        Ok(())
    }

    /// Discards the copies of a table after a failure to make or save them. Their number is not reused.
    fn forget_copies(&self, before: &Catalog, both: &Catalog, new: TableId) -> Result<(), DefineError> {
        self.on_all_workers(|worker| drop(worker.shard().copies.take()))?;
        if self.catalogs.working().tables.len() <= new.at() {
            return Ok(());
        }
        let mut definitions = before.definitions.clone();
        definitions.trees.push(TreeDef::Dropped);
        let without = Arc::new(before.changed(definitions, &BTreeMap::new()));
        self.adopt(&without, &self.scheme_of(both, &without)?)?;
        self.catalogs.show(without);
        Ok(())
    }
}

fn refuse_column(definitions: &Definitions, table: TableId, column: &ColumnDef) -> Result<(), DefineError> {
    let (name, added) = (definitions.name_of(table.0), &column.name);
    if definitions.table(table.0).is_some_and(|table| table.columns.iter().any(|known| known.name == *added))
    {
        return Err(DefineError::NameTaken(format!(
            "table `{name}` has a column `{added}` already; choose another name"
        )));
    }
    if column.default.is_none() && !column.nullable {
        return Err(DefineError::Contradiction(format!(
            "the rows of table `{name}` have no value for the new column `{added}`; give it a default, or let it be NULL"
        )));
    }
    refuse_computed(definitions, table)
}

/// Refuses other columns for a table of which an index is computed from rows by code.
fn refuse_computed(definitions: &Definitions, table: TableId) -> Result<(), DefineError> {
    let name = definitions.name_of(table.0);
    let is_computed = |part: &IndexPart| matches!(part, IndexPart::Computed { .. });
    let of_it = definitions.trees.iter().filter_map(TreeDef::as_index).filter(|index| index.of == table.0);
    match of_it.into_iter().find(|index| index.parts.iter().any(is_computed)) {
        Some(index) => Err(DefineError::InUse(format!(
            "index `{}` of table `{name}` is computed from rows with the columns that there are, by code of a program; drop the \
             index first",
            index.name
        ))),
        None => Ok(()),
    }
}

/// Changes the definition of a table, which gets a new number. Returns the table.
fn with_columns(
    definitions: &mut Definitions,
    old: TableId,
    new: TableId,
    change: impl FnOnce(&mut TableDef),
) -> TableDef {
    let before = std::mem::replace(&mut definitions.trees[old.at()], TreeDef::Dropped);
    let TreeDef::Table(mut table) = before else { unreachable!("it was found as a table") };
    change(&mut table);
    // Its family exists, and keeps its current cuts.
    let is_alone = !definitions.trees.iter().any(|tree| tree.family() == table.family);
    if !is_alone {
        table.splits.clear();
    }
    definitions.trees.push(TreeDef::Table(table.clone()));
    let follow = |number: &mut u16| {
        if *number == old.0 {
            *number = new.0;
        }
    };
    for tree in &mut definitions.trees {
        if let TreeDef::Index(index) = tree {
            follow(&mut index.of);
        }
    }
    for key in &mut definitions.foreign_keys {
        follow(&mut key.child);
        follow(&mut key.parent);
    }
    table
}
