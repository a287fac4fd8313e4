//! Dropping of columns.
//!
//! Owns: the definition of a table without a column: the numbers of the other columns in keys and indexes. Never: drops an index,
//! a key or a foreign key with the column; whoever wants that does it before.

use atrapos_catalog::{Definitions, IndexPart, KeyColumn, PrimaryKey, TableDef, TreeDef};
use atrapos_partition::schema::TableId;

use super::{Converter, refuse_computed, with_columns};
use crate::database::Database;
use crate::ddl::{DefineError, Statements, find_table, next_number};

impl Database {
    /// Drops a column of a table. Waits for the transactions that have used the table; those that use it until this returns are
    /// aborted ([`AbortReason::TableChanged`](atrapos_partition::abort::AbortReason)), as are those that use an earlier handle,
    /// which has to be replaced by a new one. Returns the new number of the table.
    ///
    /// Takes memory for a second copy of the table and, for a database with a directory, a checkpoint.
    ///
    /// # Errors
    /// A table or column that does not exist, a column of the primary key or of an index, an index whose key is computed from the
    /// rows by code, transactions that do not end within the patience of the database, a lack of memory, files that cannot be
    /// written. Nothing has changed then.
    pub fn drop_column(&self, table: &str, column: &str) -> Result<TableId, DefineError> {
        self.statements().drop_column(table, column)
    }
}

impl Statements<'_> {
    /// Drops a column. See [`Database::drop_column`].
    pub(crate) fn drop_column(&self, table: &str, column: &str) -> Result<TableId, DefineError> {
        let _statement = self.begin_statement()?;
        let before = self.catalogs.working();
        let old = find_table(&before, table)?;
        let (place, in_row) = droppable(&before.definitions, old, column)?;
        let new = next_number(&before.definitions)?;
        let mut definitions = before.definitions.clone();
        let after = with_columns(&mut definitions, old, new, |table| {
            table.columns.remove(place);
            if let PrimaryKey::Columns(columns) = &mut table.key {
                columns.iter_mut().for_each(|key| close_gap(key, place));
            }
        });
        for tree in &mut definitions.trees {
            let TreeDef::Index(index) = tree else { continue };
            for part in index.parts.iter_mut().filter(|_| index.of == new.0) {
                if let IndexPart::Column(key) = part {
                    close_gap(key, place);
                }
            }
        }
        let converter = Converter::dropping(&before.definitions, old, &after, in_row)?;
        self.rewrite(&before, definitions, converter, old, new)?;
        Ok(new)
    }
}

/// Follows a column to its number when the one at `place` is gone.
fn close_gap(key: &mut KeyColumn, place: usize) {
    if usize::from(key.column) > place {
        key.column -= 1;
    }
}

/// Returns the place of a column that can be dropped among those of its table, and of its rows.
fn droppable(definitions: &Definitions, table: TableId, column: &str) -> Result<(usize, usize), DefineError> {
    let name = definitions.name_of(table.0);
    let of_columns = |table: &TableDef| table.columns.iter().position(|known| known.name == column);
    let found = definitions.table(table.0).and_then(|table| Some((table, of_columns(table)?)));
    let Some((definition, place)) = found else {
        return Err(DefineError::Unknown(format!(
            "table `{name}` has no column `{column}`; name one that it has"
        )));
    };
    if definition.is_in_key(place) {
        return Err(DefineError::InUse(format!(
            "column `{column}` is in the primary key of table `{name}`, by which its rows are kept; make another table"
        )));
    }
    let uses = |part: &IndexPart| matches!(part, IndexPart::Column(key) if usize::from(key.column) == place);
    let mut of_it =
        definitions.trees.iter().filter_map(TreeDef::as_index).filter(|index| index.of == table.0);
    if let Some(index) = of_it.find(|index| index.parts.iter().any(uses)) {
        return Err(DefineError::InUse(format!(
            "column `{column}` of table `{name}` is in index `{}`; drop the index first",
            index.name
        )));
    }
    refuse_computed(definitions, table)?;
    let in_row = (0..place).filter(|before| !definition.is_in_key(*before)).count();
    Ok((place, in_row))
}
