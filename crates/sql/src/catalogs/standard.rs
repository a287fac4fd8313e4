//! The catalogs of the standard, and the views of PostgreSQL that tell the same in fewer columns.

use super::{Catalog, catalogs};
use crate::expr::{Env, Row};
use crate::functions::quote_ident;
use crate::roles::{Object, SUPERUSER};
use crate::types::SqlType::{self, Bool, Int4, Int8, Name, Text};
use crate::types::{Modifier, format_type};
use crate::value::Value;

pub(super) static CATALOGS: &[Catalog] = &[
    Catalog { schema: "information_schema", name: "tables", oid: 13_100, columns: TABLES, rows: tables },
    Catalog { schema: "information_schema", name: "columns", oid: 13_101, columns: COLUMNS, rows: columns },
    Catalog {
        schema: "information_schema",
        name: "schemata",
        oid: 13_102,
        columns: SCHEMATA,
        rows: schemata,
    },
    Catalog { schema: "information_schema", name: "views", oid: 13_103, columns: VIEWS, rows: views },
    Catalog { schema: "pg_catalog", name: "pg_views", oid: 12_103, columns: PG_VIEWS, rows: pg_views },
    Catalog { schema: "pg_catalog", name: "pg_tables", oid: 12_100, columns: PG_TABLES, rows: pg_tables },
    Catalog { schema: "pg_catalog", name: "pg_indexes", oid: 12_101, columns: PG_INDEXES, rows: pg_indexes },
    Catalog {
        schema: "pg_catalog",
        name: "pg_sequences",
        oid: 12_102,
        columns: PG_SEQUENCES,
        rows: pg_sequences,
    },
];

fn text(text: &str) -> Value {
    Value::text(text)
}

const TABLES: &[(&str, SqlType)] = &[
    ("table_catalog", Name),
    ("table_schema", Name),
    ("table_name", Name),
    ("table_type", Text),
    ("is_insertable_into", Text),
];

/// Returns true for a table or view of which the role has a privilege: the standard shows no others.
fn is_shown(env: &Env, name: &str, object: Object) -> bool {
    !env.schema.roles.privileges(env.session.role, object, name).is_empty()
}

fn tables(env: &Env) -> Vec<Row> {
    let row = |schema: &str, name: &str, kind: &str, writable: &str| {
        vec![text(&env.session.database), text(schema), text(name), text(kind), text(writable)]
    };
    let is_shown = |name: &&String, object| is_shown(env, name, object);
    let tables = env.schema.tables.keys().filter(|name| is_shown(name, Object::Table));
    let own = tables.map(|name| row("public", name, "BASE TABLE", "YES"));
    let views = env.schema.views.keys().filter(|name| is_shown(name, Object::View));
    let views = views.map(|name| row("public", name, "VIEW", "NO"));
    own.chain(views)
        .chain(catalogs().map(|catalog| row(catalog.schema, catalog.name, "VIEW", "NO")))
        .collect()
}

const COLUMNS: &[(&str, SqlType)] = &[
    ("table_catalog", Name),
    ("table_schema", Name),
    ("table_name", Name),
    ("column_name", Name),
    ("ordinal_position", Int4),
    ("column_default", Text),
    ("is_nullable", Text),
    ("data_type", Text),
    ("character_maximum_length", Int4),
    ("numeric_precision", Int4),
    ("numeric_scale", Int4),
    ("udt_schema", Name),
    ("udt_name", Name),
    ("is_identity", Text),
];

fn columns(env: &Env) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in env.schema.tables.values().filter(|table| is_shown(env, &table.name, Object::Table)) {
        for (at, column) in table.columns.iter().enumerate() {
            let (length, precision, scale) = match (column.modifier, column.ty) {
                (Modifier::Length(length), _) => (Some(i64::from(length)), None, None),
                (Modifier::Digits(precision, scale), _) => {
                    (None, Some(i64::from(precision)), Some(i64::from(scale)))
                }
                (_, SqlType::Int2) => (None, Some(16), Some(0)),
                (_, Int4) => (None, Some(32), Some(0)),
                (_, Int8) => (None, Some(64), Some(0)),
                (_, SqlType::Float4) => (None, Some(24), None),
                (_, SqlType::Float8) => (None, Some(53), None),
                _ => (None, None, None),
            };
            let int = |number: Option<i64>| number.map_or(Value::Null, Value::Int);
            let default = column.default.as_deref().filter(|_| column.identity.is_none());
            rows.push(vec![
                text(&env.session.database),
                text("public"),
                text(&table.name),
                text(&column.name),
                Value::Int(at as i64 + 1),
                default.map_or(Value::Null, text),
                text(if column.not_null { "NO" } else { "YES" }),
                Value::from(format_type(column.ty, Modifier::None)),
                int(length),
                int(precision),
                int(scale),
                text("pg_catalog"),
                text(column.ty.internal_name()),
                text(if column.identity.is_some() { "YES" } else { "NO" }),
            ]);
        }
    }
    rows
}

const SCHEMATA: &[(&str, SqlType)] = &[("catalog_name", Name), ("schema_name", Name), ("schema_owner", Name)];

fn schemata(env: &Env) -> Vec<Row> {
    let row = |name: &str| {
        let owner = env.schema.roles.name_of(SUPERUSER);
        vec![text(&env.session.database), text(name), Value::from(owner)]
    };
    ["pg_catalog", "public", "information_schema"].map(row).to_vec()
}

const VIEWS: &[(&str, SqlType)] =
    &[("table_catalog", Name), ("table_schema", Name), ("table_name", Name), ("view_definition", Text)];

fn views(env: &Env) -> Vec<Row> {
    let row = |(name, view): (&String, &std::sync::Arc<crate::schema::ViewMeta>)| {
        vec![text(&env.session.database), text("public"), text(name), text(&view.text)]
    };
    env.schema.views.iter().map(row).collect()
}

const PG_VIEWS: &[(&str, SqlType)] =
    &[("schemaname", Name), ("viewname", Name), ("viewowner", Name), ("definition", Text)];

fn pg_views(env: &Env) -> Vec<Row> {
    let row = |(name, view): (&String, &std::sync::Arc<crate::schema::ViewMeta>)| {
        let owner = env.schema.roles.name_of(env.schema.roles.owner_of(name));
        vec![text("public"), text(name), Value::from(owner), text(&view.text)]
    };
    env.schema.views.iter().map(row).collect()
}

const PG_TABLES: &[(&str, SqlType)] = &[
    ("schemaname", Name),
    ("tablename", Name),
    ("tableowner", Name),
    ("tablespace", Name),
    ("hasindexes", Bool),
    ("hasrules", Bool),
    ("hastriggers", Bool),
    ("rowsecurity", Bool),
];

fn pg_tables(env: &Env) -> Vec<Row> {
    let row = |schema: &str, name: &str, has_indexes: bool| {
        let no = || Value::Bool(false);
        vec![
            text(schema),
            text(name),
            Value::from(env.schema.roles.name_of(env.schema.roles.owner_of(name))),
            Value::Null,
            Value::Bool(has_indexes),
            no(),
            no(),
            no(),
        ]
    };
    let own = env.schema.tables.values().map(|table| row("public", &table.name, !table.indexes.is_empty()));
    let others = catalogs().filter(|catalog| catalog.schema == "pg_catalog");
    own.chain(others.map(|catalog| row("pg_catalog", catalog.name, false))).collect()
}

const PG_INDEXES: &[(&str, SqlType)] = &[
    ("schemaname", Name),
    ("tablename", Name),
    ("indexname", Name),
    ("tablespace", Name),
    ("indexdef", Text),
];

fn pg_indexes(env: &Env) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in env.schema.tables.values() {
        for index in &table.indexes {
            let columns: Vec<String> = index
                .meta
                .columns
                .iter()
                .map(|(column, _)| quote_ident(&table.columns[*column].name))
                .collect();
            let definition = format!(
                "CREATE {}INDEX {} ON public.{} USING btree ({})",
                if index.meta.unique { "UNIQUE " } else { "" },
                quote_ident(&index.meta.name),
                quote_ident(&table.name),
                columns.join(", ")
            );
            rows.push(vec![
                text("public"),
                text(&table.name),
                text(&index.meta.name),
                Value::Null,
                Value::from(definition),
            ]);
        }
    }
    rows
}

const PG_SEQUENCES: &[(&str, SqlType)] = &[
    ("schemaname", Name),
    ("sequencename", Name),
    ("sequenceowner", Name),
    ("start_value", Int8),
    ("min_value", Int8),
    ("max_value", Int8),
    ("increment_by", Int8),
    ("cycle", Bool),
    ("last_value", Int8),
];

fn pg_sequences(env: &Env) -> Vec<Row> {
    let row = |sequence: &std::sync::Arc<crate::sequence::Sequence>| {
        let (meta, (last, is_called)) = (sequence.meta(), sequence.last());
        vec![
            text("public"),
            text(sequence.name()),
            Value::from(env.schema.roles.name_of(env.schema.roles.owner_of(sequence.name()))),
            Value::Int(meta.start),
            Value::Int(meta.min),
            Value::Int(meta.max),
            Value::Int(meta.increment),
            Value::Bool(meta.cycle),
            if is_called { Value::Int(last) } else { Value::Null },
        ]
    };
    env.schema.sequences.values().map(row).collect()
}
