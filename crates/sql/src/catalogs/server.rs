//! Catalogs of types, functions and the server itself.

use super::{Catalog, PG_CATALOG, ROLE};
use crate::expr::{Env, Row};
use crate::functions;
use crate::types::SqlType::{
    self, AclItemArray, Bool, Char, Int2, Int4, Name, Oid, OidVector, Regproc, Text, TextArray, Timestamptz,
};
use crate::value::Value;

pub(super) static CATALOGS: &[Catalog] = &[
    Catalog { schema: "pg_catalog", name: "pg_type", oid: 1247, columns: TYPE, rows: types },
    Catalog { schema: "pg_catalog", name: "pg_proc", oid: 1255, columns: PROC, rows: procs },
    Catalog { schema: "pg_catalog", name: "pg_am", oid: 2601, columns: AM, rows: access_methods },
    Catalog { schema: "pg_catalog", name: "pg_database", oid: 1262, columns: DATABASE, rows: databases },
    Catalog { schema: "pg_catalog", name: "pg_settings", oid: 12_002, columns: SETTINGS, rows: settings },
    Catalog {
        schema: "pg_catalog",
        name: "pg_tablespace",
        oid: 1213,
        columns: TABLESPACE,
        rows: tablespaces,
    },
    Catalog { schema: "pg_catalog", name: "pg_collation", oid: 3456, columns: COLLATION, rows: collations },
];

fn int(number: impl Into<i64>) -> Value {
    Value::Int(number.into())
}

fn text(text: &str) -> Value {
    Value::text(text)
}

const TYPE: &[(&str, SqlType)] = &[
    ("oid", Oid),
    ("typname", Name),
    ("typnamespace", Oid),
    ("typowner", Oid),
    ("typlen", Int2),
    ("typbyval", Bool),
    ("typtype", Char),
    ("typcategory", Char),
    ("typispreferred", Bool),
    ("typisdefined", Bool),
    ("typdelim", Char),
    ("typrelid", Oid),
    ("typsubscript", Regproc),
    ("typelem", Oid),
    ("typarray", Oid),
    ("typinput", Regproc),
    ("typoutput", Regproc),
    ("typreceive", Regproc),
    ("typsend", Regproc),
    ("typnotnull", Bool),
    ("typbasetype", Oid),
    ("typtypmod", Int4),
    ("typndims", Int4),
    ("typcollation", Oid),
    ("typdefault", Text),
    ("typacl", AclItemArray),
];

fn category(ty: SqlType) -> &'static str {
    match ty {
        Bool => "B",
        ty if ty.is_number() || ty.is_oid() => "N",
        SqlType::Date | SqlType::Time | SqlType::Timestamp | Timestamptz => "D",
        SqlType::Unknown => "X",
        SqlType::Void => "P",
        Char | SqlType::NodeTree => "Z",
        ty if ty.is_text() => "S",
        ty if ty.element().is_some() => "A",
        _ => "U",
    }
}

fn types(_: &Env) -> Vec<Row> {
    let row = |ty: SqlType| {
        let is_pseudo = matches!(ty, SqlType::Void | SqlType::Unknown);
        let array = ty.array().map_or(0, SqlType::oid);
        vec![
            int(ty.oid()),
            text(ty.internal_name()),
            int(PG_CATALOG),
            int(ROLE),
            int(ty.size()),
            Value::Bool(ty.size() > 0 && ty.size() <= 8),
            text(if is_pseudo { "p" } else { "b" }),
            text(category(ty)),
            Value::Bool(matches!(ty, Bool | SqlType::Float8 | Text | Timestamptz | Oid)),
            Value::Bool(true),
            text(","),
            int(0),
            int(0),
            int(ty.element().map_or(0, SqlType::oid)),
            int(array),
            int(0),
            int(0),
            int(0),
            int(0),
            Value::Bool(false),
            int(0),
            int(-1),
            int(0),
            int(if ty.is_text() { 100_u32 } else { 0 }),
            Value::Null,
            Value::Null,
        ]
    };
    SqlType::all().map(row).collect()
}

const PROC: &[(&str, SqlType)] = &[
    ("oid", Oid),
    ("proname", Name),
    ("pronamespace", Oid),
    ("proowner", Oid),
    ("prolang", Oid),
    ("prokind", Char),
    ("proisstrict", Bool),
    ("proretset", Bool),
    ("provolatile", Char),
    ("pronargs", Int2),
    ("prorettype", Oid),
    ("proargtypes", OidVector),
    ("prosrc", Text),
    ("proacl", AclItemArray),
];

fn procs(_: &Env) -> Vec<Row> {
    let row = |function: &functions::Function| {
        let arguments = function.arguments.iter().map(|ty| int(ty.oid())).collect();
        vec![
            int(functions::oid_of(function.name).unwrap_or(0)),
            text(function.name),
            int(PG_CATALOG),
            int(ROLE),
            int(12),
            text("f"),
            Value::Bool(function.is_strict),
            Value::Bool(false),
            text(if function.is_volatile { "v" } else { "s" }),
            Value::Int(function.arguments.len() as i64),
            int(function.result.oid()),
            Value::Array(arguments),
            text(function.name),
            Value::Null,
        ]
    };
    functions::all().map(row).collect()
}

const AM: &[(&str, SqlType)] = &[("oid", Oid), ("amname", Name), ("amhandler", Regproc), ("amtype", Char)];

fn access_methods(_: &Env) -> Vec<Row> {
    let all = [(2, "heap", "t"), (403, "btree", "i")];
    all.map(|(oid, name, kind)| vec![Value::Int(oid), text(name), int(0), text(kind)]).to_vec()
}

const DATABASE: &[(&str, SqlType)] = &[
    ("oid", Oid),
    ("datname", Name),
    ("datdba", Oid),
    ("encoding", Int4),
    ("datlocprovider", Char),
    ("datistemplate", Bool),
    ("datallowconn", Bool),
    ("datconnlimit", Int4),
    ("dattablespace", Oid),
    ("datcollate", Text),
    ("datctype", Text),
    ("daticulocale", Text),
    ("daticurules", Text),
    ("datlocale", Text),
    ("datcollversion", Text),
    ("datacl", AclItemArray),
];

fn databases(env: &Env) -> Vec<Row> {
    vec![vec![
        int(5),
        text(&env.session.database),
        int(ROLE),
        int(6),
        text("c"),
        Value::Bool(false),
        Value::Bool(true),
        int(-1),
        int(1663),
        text("C"),
        text("C"),
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Null,
    ]]
}

const SETTINGS: &[(&str, SqlType)] =
    &[("name", Text), ("setting", Text), ("unit", Text), ("category", Text), ("short_desc", Text)];

fn settings(env: &Env) -> Vec<Row> {
    let row = |(name, value, description): (&str, String, &str)| {
        vec![text(name), Value::from(value), Value::Null, text("Settings"), text(description)]
    };
    env.session.settings.all().map(row).collect()
}

const TABLESPACE: &[(&str, SqlType)] = &[
    ("oid", Oid),
    ("spcname", Name),
    ("spcowner", Oid),
    ("spcacl", AclItemArray),
    ("spcoptions", TextArray),
];

fn tablespaces(_: &Env) -> Vec<Row> {
    vec![vec![int(1663), text("pg_default"), int(ROLE), Value::Null, Value::Null]]
}

const COLLATION: &[(&str, SqlType)] = &[
    ("oid", Oid),
    ("collname", Name),
    ("collnamespace", Oid),
    ("collowner", Oid),
    ("collprovider", Char),
    ("collisdeterministic", Bool),
    ("collencoding", Int4),
];

fn collations(_: &Env) -> Vec<Row> {
    let row = |oid: u32, name: &str| {
        vec![int(oid), text(name), int(PG_CATALOG), int(ROLE), text("c"), Value::Bool(true), int(-1)]
    };
    vec![row(100, "default"), row(950, "C")]
}
