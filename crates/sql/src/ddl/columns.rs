//! ALTER TABLE .. DROP COLUMN.
//!
//! Owns: what goes with a column: indexes, checks and foreign keys of its table, and its sequence. Never: changes a row; the engine
//! does.
//!
//! The engine's definition is that which counts: what is kept of a column that the engine has no more is left out when definitions
//! are read ([`TableMeta::without_columns`]), so a crash between the two leaves nothing half done.

use std::sync::Arc;

use super::{Change, refused};
use crate::error::{SqlError, SqlState};
use crate::schema::{ForeignMeta, IndexMeta, TableEntry, TableMeta};

/// Returns true if a column is in an index.
fn has(index: &IndexMeta, at: usize) -> bool {
    index.columns.iter().any(|(column, _)| *column == at)
}

impl Change<'_> {
    /// Drops a column of a table.
    pub(super) fn drop_column(&self, table: &str, name: &str, if_exists: bool) -> Result<(), SqlError> {
        let table = Arc::clone(self.db.schema().table(table)?);
        let Some(at) = table.column(name) else {
            return if if_exists { Ok(()) } else { Err(table.no_column(name)) };
        };
        if table.cluster_key().is_some_and(|key| key.columns.iter().any(|(column, _)| *column == at)) {
            return Err(SqlError::unsupported("ALTER TABLE DROP COLUMN of a column of the primary key")
                .hint("Rows are kept by their primary key: make another table, and INSERT .. SELECT."));
        }
        self.refuse_used(&table.name, "table")?;
        self.refuse_needed(&table, at)?;
        for foreign in table.meta.foreign_keys.iter().filter(|foreign| foreign.columns.contains(&at)) {
            let table = Arc::clone(self.db.schema().table(&table.name)?);
            self.drop_foreign_key(&table, &foreign.name)?;
        }
        let table = Arc::clone(self.db.schema().table(&table.name)?);
        let mut meta = table.meta.clone();
        for index in table.meta.indexes.iter().filter(|index| has(index, at)) {
            if let Some(engine) = &index.engine {
                self.db.database().drop_index(engine).map_err(|error| refused(&error))?;
            }
        }
        meta.indexes.retain(|index| !has(index, at));
        let mut checks = Vec::new();
        for check in meta.checks {
            if !self.names_column(&table, &check.expression, at)? {
                checks.push(check);
            }
        }
        meta.checks = checks;
        self.keep_table(&table.name, &meta)?;
        // Before the column goes: whatever a crash leaves, a later column of its name begins without privileges.
        self.change_column_access(&table.name, name, None)?;
        let engine = &table.handle.columns()[at].name;
        self.db.database().drop_column(&meta.engine, engine).map_err(|error| refused(&error))?;
        let sequence = meta.columns[at].sequence.clone();
        self.keep_table(&table.name, &meta.without_columns(&[at]))?;
        if let Some(sequence) = sequence {
            self.db.kept().write(self.db.database(), format!("sequence:{sequence}"), None)?;
        }
        self.db.reload()
    }

    /// Refuses to drop a column of an index by which a foreign key of other columns finds its rows.
    fn refuse_needed(&self, table: &TableEntry, at: usize) -> Result<(), SqlError> {
        let is_needed = |foreign: &&ForeignMeta| {
            let index = super::foreign::index_of(&table.meta.indexes, foreign);
            !foreign.columns.contains(&at) && index.is_some_and(|index| has(index, at))
        };
        let Some(foreign) = table.meta.foreign_keys.iter().find(is_needed) else { return Ok(()) };
        let column = &table.columns[at].name;
        Err(SqlError::new(
            SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
            format!("cannot drop column {column} of table {} because other objects depend on it", table.name),
        )
        .detail(format!("foreign key {} finds its rows by an index that has the column", foreign.name))
        .hint("Drop the foreign key first, and add it again."))
    }

    /// Returns true if an expression over the columns of a table reads one of them.
    fn names_column(&self, table: &TableEntry, expression: &str, at: usize) -> Result<bool, SqlError> {
        let schema = self.db.schema();
        let columns: Vec<_> =
            table.columns.iter().map(|column| (column.name.clone(), column.ty, column.modifier)).collect();
        let mut binder = crate::bind::Binder::new(&schema, self.text, &[]);
        let bound = binder.expression_of(expression, &columns)?.expr;
        let mut is_named = false;
        bound.visit(&mut |part| {
            is_named |= matches!(part, crate::expr::Expr::Column(column) if *column == at);
        });
        Ok(is_named)
    }
}

impl TableMeta {
    /// The description without some columns, by their numbers, which no index and no foreign key has.
    pub(crate) fn without_columns(&self, gone: &[usize]) -> TableMeta {
        let mut meta = self.clone();
        let follow = |column: &mut usize| *column -= gone.iter().filter(|gone| **gone < *column).count();
        let mut place = 0;
        meta.columns.retain(|_| {
            place += 1;
            !gone.contains(&(place - 1))
        });
        meta.indexes.iter_mut().flat_map(|index| &mut index.columns).for_each(|(column, _)| follow(column));
        meta.foreign_keys.iter_mut().flat_map(|foreign| &mut foreign.columns).for_each(follow);
        meta
    }
}
