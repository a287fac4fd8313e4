//! The snapshot of tables from the engine's definitions and what is kept beside them.
//!
//! Owns: how both are put together, and what is made up for tables that a program has declared. Never: changes either.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use atrapos::Database;
use atrapos::catalog::{Definitions, IndexPart, PrimaryKey, TableDef};

use crate::error::{SqlError, SqlState};
use crate::kept;
use crate::roles::{Access, Role};
use crate::schema::{
    ColumnEntry, ColumnMeta, FIRST_OID, IndexEntry, IndexMeta, Schema, TableEntry, TableMeta, ViewMeta,
    type_of_stored,
};
use crate::sequence::{Sequence, SequenceMeta};
use crate::types::{Modifier, SqlType};

#[cold]
fn unreadable(name: &str, error: &serde_json::Error) -> SqlError {
    SqlError::new(SqlState::DATA_CORRUPTED, format!("the definition of \"{name}\" cannot be read: {error}"))
}

/// The name under which the access to the schema is kept.
pub(crate) const SCHEMA_ACCESS: &str = "schema:public";

/// Puts together the tables of a database.
pub(crate) fn schema(database: &Database, rows: Vec<(String, String)>) -> Result<Schema, SqlError> {
    let definitions = database.definitions();
    let mut schema = Schema { version: 1, ..Schema::default() };
    let mut known: Vec<String> = vec![kept::NAME.to_owned()];
    known.extend(unused(&rows).map(str::to_owned));
    for (name, body) in rows {
        if let Some(name) = name.strip_prefix("sequence:") {
            let meta: SequenceMeta = serde_json::from_str(&body).map_err(|error| unreadable(name, &error))?;
            schema.sequences.insert(name.to_owned(), Arc::new(Sequence::new(name.to_owned(), meta)));
        } else if let Some(name) = name.strip_prefix("view:") {
            let meta: ViewMeta = serde_json::from_str(&body).map_err(|error| unreadable(name, &error))?;
            schema.views.insert(name.to_owned(), Arc::new(meta));
        } else if let Some(name) = name.strip_prefix("role:") {
            let role: Role = serde_json::from_str(&body).map_err(|error| unreadable(name, &error))?;
            schema.roles.roles.insert(role.id, role);
        } else if let Some(name) = name.strip_prefix("access:") {
            let access: Access = serde_json::from_str(&body).map_err(|error| unreadable(name, &error))?;
            schema.roles.relations.insert(name.to_owned(), access);
        } else if name == SCHEMA_ACCESS {
            schema.roles.schema = serde_json::from_str(&body).map_err(|error| unreadable(&name, &error))?;
        } else if let Some(name) = name.strip_prefix("table:") {
            let meta: TableMeta = serde_json::from_str(&body).map_err(|error| unreadable(name, &error))?;
            let Some(entry) = entry(database, name, meta, false) else { continue };
            known.push(entry.meta.engine.clone());
            schema.tables.insert(name.to_owned(), Arc::new(entry));
        }
    }
    for tree in &definitions.trees {
        let Some(table) = tree.as_table().filter(|table| !known.contains(&table.name)) else { continue };
        if let Some(entry) = entry(database, &table.name, declared(&definitions, table), true) {
            schema.tables.entry(table.name.clone()).or_insert_with(|| Arc::new(entry));
        }
    }
    Ok(schema)
}

/// The tables of the engine that count for nothing, by what is kept.
pub(crate) fn unused(rows: &[(String, String)]) -> impl Iterator<Item = &str> {
    rows.iter().filter_map(|(name, _)| name.strip_prefix(kept::UNUSED))
}

/// A table of a name; `None` if the engine has none of the name that is kept.
pub(crate) fn entry(
    database: &Database,
    name: &str,
    meta: TableMeta,
    is_declared: bool,
) -> Option<TableEntry> {
    let handle = database.table_named(&meta.engine).ok()?;
    let oid = |known: Option<u16>, number: atrapos::TableId| FIRST_OID + u32::from(known.unwrap_or(number.0));
    // A column that a crash has dropped without what is kept of it.
    let is_there = |kept: &ColumnMeta| {
        let name = kept.engine.as_ref().unwrap_or(&kept.name);
        handle.columns().iter().any(|stored| stored.name == *name)
    };
    let gone: Vec<usize> =
        (0..meta.columns.len()).filter(|column| !is_there(&meta.columns[*column])).collect();
    let meta = if gone.is_empty() { meta } else { meta.without_columns(&gone) };
    let mut columns = Vec::new();
    for (at, stored) in handle.columns().iter().enumerate() {
        // A column that a crash has added without what is kept of it is as a program would have declared it.
        let is_same = |kept: &&ColumnMeta| *kept.engine.as_ref().unwrap_or(&kept.name) == stored.name;
        let kept = meta.columns.get(at).filter(is_same);
        let (ty, modifier) = match kept {
            Some(kept) => {
                let ty = SqlType::from_oid(kept.ty).unwrap_or(SqlType::Text);
                (ty, Modifier::from_code(ty, kept.modifier.into()))
            }
            None => type_of_stored(stored),
        };
        columns.push(ColumnEntry {
            name: kept.map_or_else(|| stored.name.clone(), |kept| kept.name.clone()),
            ty,
            modifier,
            not_null: !stored.nullable || kept.is_some_and(|kept| kept.not_null),
            default: kept.and_then(|kept| kept.default.clone()),
            identity: kept.and_then(|kept| kept.identity),
            stored: stored.ty,
        });
    }
    let mut indexes = Vec::new();
    for index in &meta.indexes {
        let found = match &index.engine {
            None => None,
            Some(engine) => match database.index_named(engine) {
                Ok(found) => Some(found),
                Err(_) => continue,
            },
        };
        // The key that rows are clustered by has no tree of its own; its number is beyond those of trees.
        let number = match &found {
            Some(found) => oid(index.number, found.id()),
            None => oid(meta.number, handle.id()) + 70_000,
        };
        indexes.push(IndexEntry { meta: index.clone(), handle: found, oid: number });
    }
    Some(TableEntry {
        name: name.to_owned(),
        oid: oid(meta.number, handle.id()),
        meta,
        columns,
        indexes,
        handle,
        is_declared,
        is_closed: AtomicBool::new(false),
    })
}

/// The description that would be kept of a table that a program has declared.
fn declared(definitions: &Definitions, table: &TableDef) -> TableMeta {
    let columns = table.columns.iter().map(|column| {
        let (ty, modifier) = type_of_stored(column);
        ColumnMeta {
            name: column.name.clone(),
            ty: ty.oid(),
            modifier: modifier.code(),
            not_null: !column.nullable,
            default: None,
            identity: None,
            sequence: None,
            engine: None,
            comment: None,
        }
    });
    let mut indexes = Vec::new();
    if let PrimaryKey::Columns(columns) = &table.key {
        let columns = columns.iter().map(|key| (usize::from(key.column), key.descending)).collect();
        let name = format!("{}_pkey", table.name);
        indexes.push(IndexMeta {
            name,
            engine: None,
            columns,
            unique: true,
            primary: true,
            constraint: true,
            number: None,
        });
    }
    let number = definitions.find(&table.name);
    for tree in &definitions.trees {
        let Some(index) = tree.as_index().filter(|index| Some(index.of) == number) else { continue };
        let columns: Option<Vec<(usize, bool)>> = index
            .parts
            .iter()
            .map(|part| match part {
                IndexPart::Column(key) => Some((usize::from(key.column), key.descending)),
                IndexPart::Computed { .. } => None,
            })
            .collect();
        let Some(columns) = columns else { continue };
        indexes.push(IndexMeta {
            name: index.name.clone(),
            engine: Some(index.name.clone()),
            columns,
            unique: index.unique,
            primary: false,
            constraint: false,
            number: None,
        });
    }
    TableMeta {
        engine: table.name.clone(),
        columns: columns.collect(),
        indexes,
        checks: Vec::new(),
        foreign_keys: Vec::new(),
        comment: None,
        number: None,
    }
}
