//! Foreign keys: the engine's references that they become, when a table is made and later.
//!
//! Owns: which index a foreign key goes through, and the error of a reference to no row. Never: checks a row; the engine does.
//!
//! The engine finds the rows that refer to another by an index. Where the table has none that begins with the columns, it gets one
//! that is no index of the schema, named after the foreign key, which goes with it.

use std::sync::Arc;

use atrapos::catalog::{ForeignKeyDef, IndexDef, IndexPart, OnDelete, PrimaryKey, TableDef};
use atrapos::{DefineError, NewForeignKey};

use super::create::index_def;
use super::draft::Draft;
use super::{Change, refused};
use crate::error::{SqlError, SqlState};
use crate::schema::{ForeignMeta, IndexMeta, TableEntry};

/// The engine's name of the index that goes with a foreign key.
pub(crate) fn own_index(engine: &str, foreign: &ForeignMeta) -> String {
    format!("{engine}~{}", foreign.name)
}

/// The definition of that index.
fn own_index_meta(engine: &str, foreign: &ForeignMeta) -> IndexMeta {
    IndexMeta {
        name: own_index(engine, foreign),
        engine: None,
        columns: foreign.columns.iter().map(|column| (*column, false)).collect(),
        unique: false,
        primary: false,
        constraint: false,
        number: None,
    }
}

/// The index of a table that begins with the columns of a foreign key.
pub(crate) fn index_of<'i>(indexes: &'i [IndexMeta], foreign: &ForeignMeta) -> Option<&'i IndexMeta> {
    let begins = |index: &&IndexMeta| {
        let columns = index.columns.iter().take(foreign.columns.len());
        columns.copied().eq(foreign.columns.iter().map(|column| (*column, false)))
    };
    indexes.iter().find(begins)
}

pub(crate) fn on_delete(foreign: &ForeignMeta) -> OnDelete {
    if foreign.cascade { OnDelete::Cascade } else { OnDelete::Restrict }
}

/// The error of a row that refers to none; `key` has the values of its columns, as texts, if they are known.
#[cold]
pub(crate) fn no_parent(table: &TableEntry, foreign: &ForeignMeta, key: Option<&[String]>) -> SqlError {
    let (name, parent) = (&table.name, &foreign.parent);
    let columns: Vec<&str> = foreign.columns.iter().map(|column| &*table.columns[*column].name).collect();
    let detail = match key {
        Some(values) => {
            format!(
                "Key ({})=({}) is not present in table \"{parent}\".",
                columns.join(", "),
                values.join(", ")
            )
        }
        None => format!("Key is not present in table \"{parent}\"."),
    };
    SqlError::new(
        SqlState::FOREIGN_KEY_VIOLATION,
        format!("insert or update on table \"{name}\" violates foreign key constraint \"{}\"", foreign.name),
    )
    .detail(detail)
    .table(name)
    .constraint(&foreign.name)
}

fn index_columns(index: &IndexDef) -> Vec<usize> {
    let column = |part: &IndexPart| match part {
        IndexPart::Column(key) => usize::from(key.column),
        // No foreign key of a statement has such a part.
        IndexPart::Computed { .. } => usize::MAX,
    };
    index.parts.iter().map(column).collect()
}

fn key_columns(table: &TableDef) -> Vec<usize> {
    match &table.key {
        PrimaryKey::Columns(columns) => columns.iter().map(|key| usize::from(key.column)).collect(),
        PrimaryKey::Hidden => Vec::new(),
    }
}

impl Change<'_> {
    /// The engine's definitions of the foreign keys of a new table; adds the indexes that they go through.
    pub(super) fn references(
        &self,
        draft: &Draft,
        engine: &str,
        indexes: &mut Vec<IndexDef>,
    ) -> Result<Vec<NewForeignKey>, SqlError> {
        let schema = self.db.schema();
        let mut foreign_keys = Vec::new();
        for foreign in &draft.foreign_keys {
            let through = match index_of(&draft.indexes, foreign) {
                Some(index) => index.engine.clone(),
                None => {
                    let name = own_index(engine, foreign);
                    indexes.push(index_def(name.clone(), &own_index_meta(engine, foreign)));
                    Some(name)
                }
            };
            let parent = if foreign.parent == draft.name {
                engine.to_owned()
            } else {
                schema.table(&foreign.parent)?.meta.engine.clone()
            };
            foreign_keys.push(NewForeignKey { parent, through, on_delete: on_delete(foreign) });
        }
        Ok(foreign_keys)
    }

    /// Adds the last foreign key of a draft to its table; the rows that are there are checked.
    pub(super) fn add_foreign_key(&self, table: &Arc<TableEntry>, draft: Draft) -> Result<(), SqlError> {
        let Some(foreign) = draft.foreign_keys.last() else { return Ok(()) };
        let (database, engine) = (self.db.database(), &table.meta.engine);
        let parent = self.db.schema().table(&foreign.parent)?.meta.engine.clone();
        let own = own_index(engine, foreign);
        self.forget_unfinished(engine, &own)?;
        let (through, is_own) = match index_of(&draft.indexes, foreign) {
            Some(index) => (index.engine.clone(), false),
            None => {
                let index = index_def(own.clone(), &own_index_meta(engine, foreign));
                database.create_index(engine, index).map_err(|error| refused(&error))?;
                (Some(own.clone()), true)
            }
        };
        let key = NewForeignKey { parent, through, on_delete: on_delete(foreign) };
        if let Err(error) = database.add_foreign_key(engine, &key) {
            if is_own {
                database.drop_index(&own).map_err(|error| refused(&error))?;
            }
            return Err(match error {
                DefineError::Violated(why) => SqlError::new(
                    SqlState::FOREIGN_KEY_VIOLATION,
                    format!(
                        "insert or update on table \"{}\" violates foreign key constraint \"{}\"",
                        table.name, foreign.name
                    ),
                )
                .detail(why)
                .table(&table.name)
                .constraint(&foreign.name),
                error => refused(&error),
            });
        }
        let mut meta = table.meta.clone();
        meta.foreign_keys = draft.foreign_keys;
        self.keep_table(&table.name, &meta)?;
        self.db.reload()
    }

    /// Drops a foreign key, and the index that goes with it.
    pub(super) fn drop_foreign_key(&self, table: &TableEntry, name: &str) -> Result<(), SqlError> {
        let mut meta = table.meta.clone();
        let Some(at) = meta.foreign_keys.iter().position(|foreign| foreign.name == name) else {
            return Ok(());
        };
        let foreign = meta.foreign_keys.remove(at);
        let parent = self.db.schema().table(&foreign.parent)?.meta.engine.clone();
        self.drop_reference(&meta.engine, &parent, &foreign)?;
        self.keep_table(&table.name, &meta)?;
        self.db.reload()
    }

    /// Drops the engine's reference that a foreign key is, and the index that goes with it.
    fn drop_reference(&self, child: &str, parent: &str, foreign: &ForeignMeta) -> Result<(), SqlError> {
        let database = self.db.database();
        let definitions = database.definitions();
        let numbers = (definitions.find(child), definitions.find(parent));
        let begins = |columns: &[usize]| columns.starts_with(&foreign.columns);
        let is_it = |key: &&ForeignKeyDef| {
            (Some(key.child), Some(key.parent)) == numbers
                && match key.through.and_then(|index| definitions.index(index)) {
                    Some(index) => begins(&index_columns(index)),
                    None => definitions.table(key.child).is_some_and(|table| begins(&key_columns(table))),
                }
        };
        if let Some(key) = definitions.foreign_keys.iter().find(is_it) {
            let through = key.through.map(|index| definitions.name_of(index));
            database.drop_foreign_key(child, parent, through).map_err(|error| refused(&error))?;
        }
        let own = own_index(child, foreign);
        if definitions.find(&own).is_some() {
            database.drop_index(&own).map_err(|error| refused(&error))?;
        }
        Ok(())
    }

    /// Drops the index of a foreign key of this name that a crash has left without its definition, and the reference through it.
    fn forget_unfinished(&self, child: &str, own: &str) -> Result<(), SqlError> {
        let database = self.db.database();
        let definitions = database.definitions();
        let Some(index) = definitions.find(own) else { return Ok(()) };
        for key in definitions.foreign_keys.iter().filter(|key| key.through == Some(index)) {
            let parent = definitions.name_of(key.parent);
            database.drop_foreign_key(child, parent, Some(own)).map_err(|error| refused(&error))?;
        }
        database.drop_index(own).map_err(|error| refused(&error))
    }
}
