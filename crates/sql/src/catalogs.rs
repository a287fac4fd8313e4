//! The catalogs: `pg_catalog` and `information_schema` as tables whose rows are made when they are read.
//!
//! Owns: the list of catalogs, their columns and their rows, of the snapshot that a statement is planned with. Never: reads the
//! engine; and never changes, so a statement that writes a catalog is refused.

mod empty;
pub(crate) mod locks;
mod objects;
mod roles;
mod server;
mod standard;
mod statistics;

use std::sync::Arc;

use crate::expr::{Env, Row};
use crate::plan::OutputColumn;
use crate::roles::SUPERUSER;
use crate::schema::{Schema, TableEntry};
use crate::types::{Modifier, SqlType};

pub(crate) use statistics::DATABASE_OID;

/// A catalog, by its place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VirtualTable(usize);

/// The definition of a catalog.
struct Catalog {
    schema: &'static str,
    name: &'static str,
    oid: u32,
    columns: &'static [(&'static str, SqlType)],
    rows: fn(&Env) -> Vec<Row>,
}

/// The number of `pg_catalog` in `pg_namespace`.
pub(crate) const PG_CATALOG: u32 = 11;
/// The number of `public`.
pub(crate) const PUBLIC: u32 = 2200;
/// The number of `information_schema`.
pub(crate) const INFORMATION_SCHEMA: u32 = 13_000;
/// The number of the role that owns what the database begins with.
const ROLE: u32 = SUPERUSER;

fn catalogs() -> impl Iterator<Item = &'static Catalog> {
    objects::CATALOGS
        .iter()
        .chain(server::CATALOGS)
        .chain(roles::CATALOGS)
        .chain(statistics::CATALOGS)
        .chain(locks::CATALOGS)
        .chain(standard::CATALOGS)
        .chain(empty::CATALOGS)
}

fn catalog(table: VirtualTable) -> Option<&'static Catalog> {
    catalogs().nth(table.0)
}

/// The catalog of a name; without a schema, one of `pg_catalog`.
pub(crate) fn find(schema: Option<&str>, name: &str) -> Option<VirtualTable> {
    let schema = schema.unwrap_or("pg_catalog");
    catalogs().position(|catalog| catalog.schema == schema && catalog.name == name).map(VirtualTable)
}

/// The number of a catalog in `pg_class`.
pub(crate) fn oid_of(name: &str) -> Option<u32> {
    catalogs()
        .find(|catalog| catalog.schema == "pg_catalog" && catalog.name == name)
        .map(|catalog| catalog.oid)
}

/// The name of the catalog of a number.
pub(crate) fn name_of(oid: u32) -> Option<String> {
    catalogs().find(|catalog| catalog.oid == oid).map(|catalog| catalog.name.to_owned())
}

/// Returns true for a catalog of `information_schema`, whose names are found with that of the schema alone.
pub(crate) fn is_of_standard(oid: u32) -> bool {
    catalogs().any(|catalog| catalog.oid == oid && catalog.schema == "information_schema")
}

/// The number of a schema.
pub(crate) fn namespace_of(name: &str) -> Option<u32> {
    match name {
        "pg_catalog" => Some(PG_CATALOG),
        "public" => Some(PUBLIC),
        "information_schema" => Some(INFORMATION_SCHEMA),
        _ => None,
    }
}

/// The name of the schema of a number.
pub(crate) fn namespace_name(oid: u32) -> Option<&'static str> {
    match oid {
        PG_CATALOG => Some("pg_catalog"),
        PUBLIC => Some("public"),
        INFORMATION_SCHEMA => Some("information_schema"),
        _ => None,
    }
}

/// The columns of a catalog.
pub(crate) fn columns(table: VirtualTable) -> Vec<OutputColumn> {
    let Some(catalog) = catalog(table) else { return Vec::new() };
    let column = |(at, (name, ty)): (i16, &(&str, SqlType))| OutputColumn {
        name: (*name).to_owned(),
        ty: *ty,
        modifier: Modifier::None,
        origin: (catalog.oid, at),
    };
    (1..).zip(catalog.columns).map(column).collect()
}

/// Returns true for a catalog that tells of passwords.
pub(crate) fn is_secret(table: VirtualTable) -> bool {
    catalog(table).is_some_and(|catalog| matches!(catalog.name, "pg_authid" | "pg_shadow"))
}

/// Returns true for a catalog that tells of the locks that transactions hold.
pub(crate) fn tells_of_locks(table: VirtualTable) -> bool {
    catalog(table).is_some_and(|catalog| matches!(catalog.name, "pg_locks" | "pg_stat_activity"))
}

/// The rows of a catalog.
pub(crate) fn rows(table: VirtualTable, env: &Env) -> Vec<Row> {
    catalog(table).map_or_else(Vec::new, |catalog| (catalog.rows)(env))
}

/// A constraint, as `pg_constraint` has it.
pub(crate) struct Constraint {
    pub(crate) oid: u32,
    pub(crate) name: String,
    pub(crate) table: Arc<TableEntry>,
    /// `p`, `u`, `f` or `c`.
    pub(crate) kind: char,
    pub(crate) columns: Vec<usize>,
    /// The index that it is enforced by.
    pub(crate) index: u32,
    pub(crate) parent: Option<Arc<TableEntry>>,
    pub(crate) cascade: bool,
    pub(crate) expression: String,
}

/// The number of the first constraint; each table has a thousand.
const FIRST_CONSTRAINT_OID: u32 = 1_000_000;

/// All constraints.
pub(crate) fn constraints(schema: &Schema) -> Vec<Constraint> {
    let mut all = Vec::new();
    for table in schema.tables.values() {
        let base = FIRST_CONSTRAINT_OID + (table.oid - crate::schema::FIRST_OID) * 1000;
        let mut next = base..;
        let mut add = |name: &str, kind, columns, index, parent, cascade, expression: &str| {
            all.push(Constraint {
                oid: next.next().unwrap_or(base),
                name: name.to_owned(),
                table: Arc::clone(table),
                kind,
                columns,
                index,
                parent,
                cascade,
                expression: expression.to_owned(),
            });
        };
        for index in table.indexes.iter().filter(|index| index.meta.constraint) {
            let columns = index.meta.columns.iter().map(|(column, _)| *column).collect();
            let kind = if index.meta.primary { 'p' } else { 'u' };
            add(&index.meta.name, kind, columns, index.oid, None, false, "");
        }
        for foreign in &table.meta.foreign_keys {
            let parent = schema.tables.get(&foreign.parent).cloned();
            add(&foreign.name, 'f', foreign.columns.clone(), 0, parent, foreign.cascade, "");
        }
        for check in &table.meta.checks {
            add(&check.name, 'c', Vec::new(), 0, None, false, &check.expression);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_catalog_is_there_twice() {
        let mut names: Vec<_> = catalogs().map(|catalog| (catalog.schema, catalog.name)).collect();
        let mut oids: Vec<u32> = catalogs().map(|catalog| catalog.oid).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        oids.sort_unstable();
        oids.dedup();
        assert_eq!((names.len(), oids.len()), (count, count));
    }
}
