//! Catalogs of tables and what belongs to them.

use super::{Catalog, INFORMATION_SCHEMA, PG_CATALOG, PUBLIC, ROLE, catalogs, constraints, namespace_of};
use crate::expr::{Env, Row};
use crate::roles::{Item, Object, Roles};
use crate::schema::TableEntry;
use crate::types::Modifier;
use crate::types::SqlType::{
    self, AclItemArray, Bool, Char, Float4, Int2, Int2Array, Int2Vector, Int4, Int8, Name, NodeTree, Oid,
    OidArray, OidVector, TextArray,
};
use crate::value::Value;

pub(super) static CATALOGS: &[Catalog] = &[
    Catalog { schema: "pg_catalog", name: "pg_class", oid: 1259, columns: CLASS, rows: classes },
    Catalog { schema: "pg_catalog", name: "pg_attribute", oid: 1249, columns: ATTRIBUTE, rows: attributes },
    Catalog { schema: "pg_catalog", name: "pg_index", oid: 2610, columns: INDEX, rows: indexes },
    Catalog {
        schema: "pg_catalog",
        name: "pg_constraint",
        oid: 2606,
        columns: CONSTRAINT,
        rows: constraint_rows,
    },
    Catalog { schema: "pg_catalog", name: "pg_attrdef", oid: 2604, columns: ATTRDEF, rows: defaults },
    Catalog { schema: "pg_catalog", name: "pg_namespace", oid: 2615, columns: NAMESPACE, rows: namespaces },
    Catalog { schema: "pg_catalog", name: "pg_sequence", oid: 2224, columns: SEQUENCE, rows: sequences },
    Catalog {
        schema: "pg_catalog",
        name: "pg_description",
        oid: 2609,
        columns: DESCRIPTION,
        rows: descriptions,
    },
    Catalog { schema: "pg_catalog", name: "pg_depend", oid: 2608, columns: DEPEND, rows: depends },
];

const CLASS: &[(&str, SqlType)] = &[
    ("oid", Oid),
    ("relname", Name),
    ("relnamespace", Oid),
    ("reltype", Oid),
    ("reloftype", Oid),
    ("relowner", Oid),
    ("relam", Oid),
    ("relfilenode", Oid),
    ("reltablespace", Oid),
    ("relpages", Int4),
    ("reltuples", Float4),
    ("relallvisible", Int4),
    ("reltoastrelid", Oid),
    ("relhasindex", Bool),
    ("relisshared", Bool),
    ("relpersistence", Char),
    ("relkind", Char),
    ("relnatts", Int2),
    ("relchecks", Int2),
    ("relhasrules", Bool),
    ("relhastriggers", Bool),
    ("relhassubclass", Bool),
    ("relrowsecurity", Bool),
    ("relforcerowsecurity", Bool),
    ("relispopulated", Bool),
    ("relreplident", Char),
    ("relispartition", Bool),
    ("relrewrite", Oid),
    ("relacl", AclItemArray),
    ("reloptions", TextArray),
    ("relpartbound", NodeTree),
];

/// The number of the access method of indexes in `pg_am`.
const BTREE: u32 = 403;
/// The number of the access method of tables.
const HEAP: u32 = 2;

fn int(number: impl Into<i64>) -> Value {
    Value::Int(number.into())
}

fn text(text: &str) -> Value {
    Value::text(text)
}

fn class(
    oid: u32,
    name: &str,
    namespace: u32,
    kind: &str,
    columns: usize,
    has_index: bool,
    checks: usize,
) -> Row {
    let is_false = || Value::Bool(false);
    let access = match kind {
        "r" => HEAP,
        "i" => BTREE,
        _ => 0,
    };
    vec![
        int(oid),
        text(name),
        int(namespace),
        int(0),
        int(0),
        int(ROLE),
        int(access),
        int(oid),
        int(0),
        int(0),
        Value::Float(-1.0),
        int(0),
        int(0),
        Value::Bool(has_index),
        is_false(),
        text("p"),
        text(kind),
        Value::Int(columns as i64),
        Value::Int(checks as i64),
        is_false(),
        is_false(),
        is_false(),
        is_false(),
        is_false(),
        Value::Bool(true),
        text("d"),
        is_false(),
        int(0),
        Value::Null,
        Value::Null,
        Value::Null,
    ]
}

/// Places of an owner and of an access list in a row of `pg_class`.
const OWNER: usize = 5;
const ACCESS: usize = 28;

/// A class with its owner and its access list.
fn owned(mut row: Row, roles: &Roles, name: &str, object: Object) -> Row {
    row[OWNER] = int(roles.owner_of(name));
    if let Some(access) = roles.relations.get(name).filter(|access| access.granted.is_some()) {
        row[ACCESS] = shown(roles, &access.items(object));
    }
    row
}

fn classes(env: &Env) -> Vec<Row> {
    let (mut rows, roles) = (Vec::new(), &env.schema.roles);
    for table in env.schema.tables.values() {
        let (columns, checks) = (table.columns.len(), table.meta.checks.len());
        let row = class(table.oid, &table.name, PUBLIC, "r", columns, !table.indexes.is_empty(), checks);
        rows.push(owned(row, roles, &table.name, Object::Table));
        for index in &table.indexes {
            let mut row = class(index.oid, &index.meta.name, PUBLIC, "i", index.meta.columns.len(), false, 0);
            row[OWNER] = int(roles.owner_of(&table.name));
            rows.push(row);
        }
    }
    for (name, view) in &env.schema.views {
        let row = class(view.oid(), name, PUBLIC, "v", view.columns.len(), false, 0);
        rows.push(owned(row, roles, name, Object::View));
    }
    for sequence in env.schema.sequences.values() {
        let row = class(sequence.oid(), sequence.name(), PUBLIC, "S", 3, false, 0);
        rows.push(owned(row, roles, sequence.name(), Object::Sequence));
    }
    for catalog in catalogs() {
        let namespace = namespace_of(catalog.schema).unwrap_or(PG_CATALOG);
        let kind = if namespace == INFORMATION_SCHEMA { "v" } else { "r" };
        rows.push(class(catalog.oid, catalog.name, namespace, kind, catalog.columns.len(), false, 0));
    }
    rows
}

const DESCRIPTION: &[(&str, SqlType)] =
    &[("objoid", Oid), ("classoid", Oid), ("objsubid", Int4), ("description", SqlType::Text)];

fn descriptions(env: &Env) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in env.schema.tables.values() {
        let columns = table.meta.columns.iter().map(|column| column.comment.as_ref());
        let all = std::iter::once(table.meta.comment.as_ref()).chain(columns);
        for (at, comment) in (0_i64..).zip(all) {
            let Some(comment) = comment else { continue };
            // The number of `pg_class` says what kind of object it is on.
            rows.push(vec![int(table.oid), int(1259_u32), Value::Int(at), text(comment)]);
        }
    }
    rows
}

const ATTRIBUTE: &[(&str, SqlType)] = &[
    ("attrelid", Oid),
    ("attname", Name),
    ("atttypid", Oid),
    ("attlen", Int2),
    ("attnum", Int2),
    ("attcacheoff", Int4),
    ("atttypmod", Int4),
    ("attndims", Int2),
    ("attbyval", Bool),
    ("attalign", Char),
    ("attstorage", Char),
    ("attcompression", Char),
    ("attnotnull", Bool),
    ("atthasdef", Bool),
    ("atthasmissing", Bool),
    ("attidentity", Char),
    ("attgenerated", Char),
    ("attisdropped", Bool),
    ("attislocal", Bool),
    ("attinhcount", Int2),
    ("attstattarget", Int2),
    ("attcollation", Oid),
    ("attacl", AclItemArray),
    ("attoptions", TextArray),
    ("attfdwoptions", TextArray),
];

/// The place of the access list in an attribute.
const COLUMN_ACCESS: usize = 22;

/// An attribute: its relation, name, type, number and modifier; whether it may be NULL and has a default; its identity.
fn attribute(
    of: u32,
    name: &str,
    ty: SqlType,
    at: usize,
    modifier: Modifier,
    flags: (bool, bool),
    identity: &str,
) -> Row {
    vec![
        int(of),
        text(name),
        int(ty.oid()),
        int(ty.size()),
        Value::Int(at as i64 + 1),
        int(-1),
        int(modifier.code()),
        int(i16::from(ty.element().is_some())),
        Value::Bool(ty.size() > 0 && ty.size() <= 8),
        text("i"),
        text(if ty.size() < 0 { "x" } else { "p" }),
        text(""),
        Value::Bool(flags.0),
        Value::Bool(flags.1),
        Value::Bool(false),
        text(identity),
        text(""),
        Value::Bool(false),
        Value::Bool(true),
        int(0),
        int(-1),
        int(if ty.is_text() { 100_u32 } else { 0 }),
        Value::Null,
        Value::Null,
        Value::Null,
    ]
}

/// An access list, as catalogs have it.
fn shown(roles: &Roles, items: &[Item]) -> Value {
    Value::Array(roles.shown(items).into_iter().map(Value::from).collect())
}

fn attributes(env: &Env) -> Vec<Row> {
    let mut rows = Vec::new();
    let roles = &env.schema.roles;
    let with_access = |mut row: Row, relation: &str, column: &str| {
        let items = roles.relations.get(relation).map_or(&[][..], |access| access.items_of(column));
        if !items.is_empty() {
            row[COLUMN_ACCESS] = shown(roles, items);
        }
        row
    };
    for (name, view) in &env.schema.views {
        for (at, column) in view.columns.iter().enumerate() {
            let ty = SqlType::from_oid(column.ty).unwrap_or(SqlType::Text);
            let modifier = Modifier::from_code(ty, column.modifier.into());
            let row = attribute(view.oid(), &column.name, ty, at, modifier, (false, false), "");
            rows.push(with_access(row, name, &column.name));
        }
    }
    for table in env.schema.tables.values() {
        for (at, column) in table.columns.iter().enumerate() {
            let identity = column.identity.map(String::from).unwrap_or_default();
            let has_default = column.default.is_some() && column.identity.is_none();
            let flags = (column.not_null, has_default);
            let row = attribute(table.oid, &column.name, column.ty, at, column.modifier, flags, &identity);
            rows.push(with_access(row, &table.name, &column.name));
        }
        for index in &table.indexes {
            for (at, (column, _)) in index.meta.columns.iter().enumerate() {
                let column = &table.columns[*column];
                rows.push(attribute(
                    index.oid,
                    &column.name,
                    column.ty,
                    at,
                    column.modifier,
                    (false, false),
                    "",
                ));
            }
        }
    }
    for sequence in env.schema.sequences.values() {
        for (at, (name, ty)) in
            [("last_value", Int8), ("log_cnt", Int8), ("is_called", Bool)].into_iter().enumerate()
        {
            rows.push(attribute(sequence.oid(), name, ty, at, Modifier::None, (true, false), ""));
        }
    }
    for catalog in catalogs() {
        for (at, (name, ty)) in catalog.columns.iter().enumerate() {
            rows.push(attribute(catalog.oid, name, *ty, at, Modifier::None, (false, false), ""));
        }
    }
    rows
}

const INDEX: &[(&str, SqlType)] = &[
    ("indexrelid", Oid),
    ("indrelid", Oid),
    ("indnatts", Int2),
    ("indnkeyatts", Int2),
    ("indisunique", Bool),
    ("indnullsnotdistinct", Bool),
    ("indisprimary", Bool),
    ("indisexclusion", Bool),
    ("indimmediate", Bool),
    ("indisclustered", Bool),
    ("indisvalid", Bool),
    ("indcheckxmin", Bool),
    ("indisready", Bool),
    ("indislive", Bool),
    ("indisreplident", Bool),
    ("indkey", Int2Vector),
    ("indcollation", OidVector),
    ("indclass", OidVector),
    ("indoption", Int2Vector),
    ("indexprs", NodeTree),
    ("indpred", NodeTree),
];

fn array(values: impl Iterator<Item = i64>) -> Value {
    Value::Array(values.map(Value::Int).collect())
}

fn numbers(columns: &[usize]) -> Value {
    array(columns.iter().map(|column| *column as i64 + 1))
}

fn indexes(env: &Env) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in env.schema.tables.values() {
        for index in &table.indexes {
            let columns: Vec<usize> = index.meta.columns.iter().map(|(column, _)| *column).collect();
            let zeros = || array(columns.iter().map(|_| 0));
            let count = || Value::Int(columns.len() as i64);
            rows.push(vec![
                int(index.oid),
                int(table.oid),
                count(),
                count(),
                Value::Bool(index.meta.unique),
                Value::Bool(false),
                Value::Bool(index.meta.primary),
                Value::Bool(false),
                Value::Bool(true),
                Value::Bool(index.handle.is_none()),
                Value::Bool(true),
                Value::Bool(false),
                Value::Bool(true),
                Value::Bool(true),
                Value::Bool(false),
                numbers(&columns),
                zeros(),
                zeros(),
                // The order of a part: descending, and with NULLs first then.
                array(index.meta.columns.iter().map(|(_, descending)| if *descending { 3 } else { 0 })),
                Value::Null,
                Value::Null,
            ]);
        }
    }
    rows
}

const CONSTRAINT: &[(&str, SqlType)] = &[
    ("oid", Oid),
    ("conname", Name),
    ("connamespace", Oid),
    ("contype", Char),
    ("condeferrable", Bool),
    ("condeferred", Bool),
    ("convalidated", Bool),
    ("conrelid", Oid),
    ("contypid", Oid),
    ("conindid", Oid),
    ("conparentid", Oid),
    ("confrelid", Oid),
    ("confupdtype", Char),
    ("confdeltype", Char),
    ("confmatchtype", Char),
    ("conislocal", Bool),
    ("coninhcount", Int2),
    ("connoinherit", Bool),
    ("conkey", Int2Array),
    ("confkey", Int2Array),
    ("conpfeqop", OidArray),
    ("conbin", NodeTree),
];

fn constraint_rows(env: &Env) -> Vec<Row> {
    let row = |found: super::Constraint| {
        let is_foreign = found.kind == 'f';
        let parent_key = found.parent.as_ref().and_then(|parent| parent.cluster_key());
        let parent_index = found
            .parent
            .as_ref()
            .and_then(|parent| parent.indexes.iter().find(|index| index.handle.is_none()));
        vec![
            int(found.oid),
            text(&found.name),
            int(PUBLIC),
            Value::from(found.kind.to_string()),
            Value::Bool(false),
            Value::Bool(false),
            Value::Bool(true),
            int(found.table.oid),
            int(0),
            int(parent_index.map_or(found.index, |index| index.oid)),
            int(0),
            int(found.parent.as_ref().map_or(0, |parent| parent.oid)),
            text(if is_foreign { "a" } else { " " }),
            text(if !is_foreign {
                " "
            } else if found.cascade {
                "c"
            } else {
                "a"
            }),
            text(if is_foreign { "s" } else { " " }),
            Value::Bool(true),
            int(0),
            Value::Bool(!is_foreign),
            if found.columns.is_empty() { Value::Null } else { numbers(&found.columns) },
            parent_key
                .map_or(Value::Null, |key| array(key.columns.iter().map(|(column, _)| *column as i64 + 1))),
            Value::Null,
            if found.kind == 'c' { text(&found.expression) } else { Value::Null },
        ]
    };
    constraints(&env.schema).into_iter().map(row).collect()
}

const ATTRDEF: &[(&str, SqlType)] = &[("oid", Oid), ("adrelid", Oid), ("adnum", Int2), ("adbin", NodeTree)];

fn defaults(env: &Env) -> Vec<Row> {
    let of_table = |table: &std::sync::Arc<TableEntry>| {
        let with_default = table.columns.iter().enumerate().filter(|(_, column)| column.identity.is_none());
        let row = |(at, column): (usize, &crate::schema::ColumnEntry)| {
            let default = column.default.as_deref()?;
            let oid = 500_000_000 + i64::from(table.oid) * 4096 + at as i64;
            Some(vec![Value::Int(oid), int(table.oid), Value::Int(at as i64 + 1), text(default)])
        };
        with_default.filter_map(row).collect::<Vec<Row>>()
    };
    env.schema.tables.values().flat_map(of_table).collect()
}

const NAMESPACE: &[(&str, SqlType)] =
    &[("oid", Oid), ("nspname", Name), ("nspowner", Oid), ("nspacl", AclItemArray)];

fn namespaces(env: &Env) -> Vec<Row> {
    let all = [(PG_CATALOG, "pg_catalog"), (PUBLIC, "public"), (INFORMATION_SCHEMA, "information_schema")];
    let roles = &env.schema.roles;
    let items = || shown(roles, &roles.schema.items(Object::Schema));
    let access = |oid| if oid == PUBLIC { items() } else { Value::Null };
    all.map(|(oid, name)| vec![int(oid), text(name), int(ROLE), access(oid)]).to_vec()
}

const SEQUENCE: &[(&str, SqlType)] = &[
    ("seqrelid", Oid),
    ("seqtypid", Oid),
    ("seqstart", Int8),
    ("seqincrement", Int8),
    ("seqmax", Int8),
    ("seqmin", Int8),
    ("seqcache", Int8),
    ("seqcycle", Bool),
];

fn sequences(env: &Env) -> Vec<Row> {
    let row = |sequence: &std::sync::Arc<crate::sequence::Sequence>| {
        let meta = sequence.meta();
        vec![
            int(sequence.oid()),
            int(Int8.oid()),
            int(meta.start),
            int(meta.increment),
            int(meta.max),
            int(meta.min),
            int(1),
            Value::Bool(meta.cycle),
        ]
    };
    env.schema.sequences.values().map(row).collect()
}

const DEPEND: &[(&str, SqlType)] = &[
    ("classid", Oid),
    ("objid", Oid),
    ("objsubid", Int4),
    ("refclassid", Oid),
    ("refobjid", Oid),
    ("refobjsubid", Int4),
    ("deptype", Char),
];

/// Sequences that go with columns.
fn depends(env: &Env) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in env.schema.tables.values() {
        for (at, column) in table.meta.columns.iter().enumerate() {
            let sequence = column.sequence.as_ref().and_then(|name| env.schema.sequences.get(name));
            let Some(sequence) = sequence else { continue };
            let kind = if column.identity.is_some() { "i" } else { "a" };
            rows.push(vec![
                int(1259),
                int(sequence.oid()),
                int(0),
                int(1259),
                int(table.oid),
                Value::Int(at as i64 + 1),
                text(kind),
            ]);
        }
    }
    rows
}
