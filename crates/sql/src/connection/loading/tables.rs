//! The tables that take the places of others.
//!
//! Owns: which tables have to be replaced together, and the definition of a table like another one. Never: puts one in its place.

use std::sync::Arc;

use atrapos::catalog::{Definitions, IndexDef, IndexPart, PrimaryKey, TreeDef};
use atrapos::{NewForeignKey, NewTable};

use crate::database::SqlDatabase;
use crate::ddl::foreign::{index_of, on_delete, own_index};
use crate::ddl::refused;
use crate::error::{SqlError, SqlState};
use crate::kept::UNUSED;
use crate::schema::{Schema, TableEntry, TableMeta};

/// Returns true if a table can be loaded in bulk: names alone lead to it and to those that refer to it, so others can take their
/// places.
pub(in crate::connection) fn can_be_loaded(schema: &Schema, table: &Arc<TableEntry>) -> bool {
    group_of(schema, table).is_some()
}

/// A table and all those that refer to it, or to one that does, each behind those that it refers to; `None` if a program has declared
/// one of them, or they refer to each other in a circle.
pub(super) fn group_of(schema: &Schema, table: &Arc<TableEntry>) -> Option<Vec<Arc<TableEntry>>> {
    let refers = |child: &TableEntry, parent: &TableEntry| {
        child.name != parent.name && child.meta.foreign_keys.iter().any(|key| key.parent == parent.name)
    };
    let mut rest = vec![Arc::clone(table)];
    let mut at = 0;
    while let Some(parent) = rest.get(at).cloned() {
        at += 1;
        let children = schema.tables.values().filter(|child| refers(child, &parent));
        let new: Vec<_> =
            children.filter(|child| !rest.iter().any(|known| known.name == child.name)).cloned().collect();
        rest.extend(new);
    }
    if rest.iter().any(|table| table.is_declared) {
        return None;
    }
    let mut group = Vec::new();
    while !rest.is_empty() {
        let is_free = |table: &Arc<TableEntry>| !rest.iter().any(|parent| refers(table, parent));
        let free = rest.iter().position(is_free)?;
        group.push(rest.remove(free));
    }
    Some(group)
}

pub(super) fn is_same(one: &TableEntry, other: &TableEntry) -> bool {
    let bodies = (body_of(&one.meta), body_of(&other.meta));
    one.handle.id() == other.handle.id() && matches!(bodies, (Ok(one), Ok(other)) if one == other)
}

pub(super) fn body_of(meta: &TableMeta) -> Result<String, SqlError> {
    serde_json::to_string(meta).map_err(|error| {
        SqlError::new(SqlState::INTERNAL_ERROR, format!("a definition cannot be written: {error}"))
    })
}

/// Makes an empty table of the engine with the definition of another one; `None` if that has more than is kept of it. `parent` gives
/// the engine's names of the tables that it refers to.
pub(super) fn make_like(
    db: &SqlDatabase,
    before: &TableEntry,
    parent: impl Fn(&str) -> Option<String>,
) -> Result<Option<TableEntry>, SqlError> {
    let definitions = db.database().definitions();
    let number = before.handle.id();
    let Some(table) = definitions.table(number.0) else { return Ok(None) };
    let engine = format!("{}~{}", before.name, definitions.trees.len());
    let mut meta = TableMeta { engine: engine.clone(), ..before.meta.clone() };
    meta.number = Some(meta.number.unwrap_or(number.0));
    let mut indexes: Vec<IndexDef> = Vec::new();
    for tree in definitions.trees.iter().filter_map(TreeDef::as_index).filter(|tree| tree.of == number.0) {
        let own =
            before.meta.foreign_keys.iter().find(|key| own_index(&before.meta.engine, key) == tree.name);
        if let Some(foreign) = own {
            let name = own_index(&engine, foreign);
            indexes.push(IndexDef { name, splits: Vec::new(), ..tree.clone() });
            continue;
        }
        let known = meta.indexes.iter_mut().find(|index| index.engine.as_ref() == Some(&tree.name));
        let is_plain = tree.parts.iter().all(|part| matches!(part, IndexPart::Column(_)));
        // A program may have added an index of its own.
        let Some(known) = known.filter(|_| is_plain) else { return Ok(None) };
        let name = format!("{}~{engine}", known.name);
        known.number = known.number.or(definitions.find(&tree.name));
        known.engine = Some(name.clone());
        // Its family exists, and has cuts.
        indexes.push(IndexDef { name, splits: Vec::new(), ..tree.clone() });
    }
    let mut table = table.clone();
    if table.key == PrimaryKey::Hidden {
        // Its keys are its own.
        table.family.clone_from(&engine);
    }
    table.name.clone_from(&engine);
    table.splits.clear();
    let Some(foreign_keys) = references_like(&definitions, before, &meta, &indexes, parent) else {
        return Ok(None);
    };
    let row = format!("{UNUSED}{engine}");
    db.kept().write(db.database(), row.clone(), Some(String::new()))?;
    let new = NewTable { table, indexes, foreign_keys };
    if let Err(error) = db.database().create_table(new) {
        db.kept().write(db.database(), row, None)?;
        return Err(refused(&error));
    }
    Ok(crate::load::entry(db.database(), &before.name, meta, false))
}

/// The engine's foreign keys of a table that is made like another one, in the order in which that has them; `None` if it has others
/// than are kept.
fn references_like(
    definitions: &Definitions,
    before: &TableEntry,
    meta: &TableMeta,
    indexes: &[IndexDef],
    parent: impl Fn(&str) -> Option<String>,
) -> Option<Vec<NewForeignKey>> {
    let known = definitions.foreign_keys.iter().filter(|key| key.child == before.handle.id().0).count();
    if known != meta.foreign_keys.len() {
        return None;
    }
    let mut references = Vec::new();
    for foreign in &meta.foreign_keys {
        let own = own_index(&meta.engine, foreign);
        let has_own = indexes.iter().any(|index| index.name == own);
        let through = if has_own { Some(own) } else { index_of(&meta.indexes, foreign)?.engine.clone() };
        let is_itself = foreign.parent == before.name;
        let parent = if is_itself { meta.engine.clone() } else { parent(&foreign.parent)? };
        references.push(NewForeignKey { parent, through, on_delete: on_delete(foreign) });
    }
    Some(references)
}
