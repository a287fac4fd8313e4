//! Catalogs of types, functions and the server itself.

use super::{Catalog, PG_CATALOG, ROLE};
use crate::expr::{Env, Row};
use crate::functions;
use crate::functions::conversions::{self, Conversion};
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
        SqlType::Inet | SqlType::Cidr => "I",
        SqlType::Unknown => "X",
        SqlType::Void | SqlType::Record => "P",
        Char | SqlType::NodeTree => "Z",
        ty if ty.is_text() => "S",
        ty if ty.element().is_some() => "A",
        _ => "U",
    }
}

fn types(_: &Env) -> Vec<Row> {
    let row = |ty: SqlType| {
        let is_pseudo = matches!(ty, SqlType::Void | SqlType::Unknown | SqlType::Record);
        let array = ty.array().map_or(0, SqlType::oid);
        let conversion = |conversion| int(conversions::oid_of(ty, conversion));
        vec![
            int(ty.oid()),
            text(ty.internal_name()),
            int(PG_CATALOG),
            int(ROLE),
            int(ty.size()),
            Value::Bool(ty.size() > 0 && ty.size() <= 8),
            text(if is_pseudo { "p" } else { "b" }),
            text(category(ty)),
            Value::Bool(matches!(ty, Bool | SqlType::Float8 | SqlType::Inet | Text | Timestamptz | Oid)),
            Value::Bool(true),
            text(","),
            int(0),
            int(0),
            int(ty.element().map_or(0, SqlType::oid)),
            int(array),
            conversion(Conversion::Input),
            conversion(Conversion::Output),
            conversion(Conversion::Receive),
            conversion(Conversion::Send),
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
    ("procost", SqlType::Float4),
    ("prorows", SqlType::Float4),
    ("provariadic", Oid),
    ("prosupport", Regproc),
    ("prokind", Char),
    ("prosecdef", Bool),
    ("proleakproof", Bool),
    ("proisstrict", Bool),
    ("proretset", Bool),
    ("provolatile", Char),
    ("proparallel", Char),
    ("pronargs", Int2),
    ("pronargdefaults", Int2),
    ("prorettype", Oid),
    ("proargtypes", OidVector),
    ("proallargtypes", SqlType::OidArray),
    ("proargmodes", SqlType::CharArray),
    ("proargnames", TextArray),
    ("proargdefaults", SqlType::NodeTree),
    ("protrftypes", SqlType::OidArray),
    ("prosrc", Text),
    ("probin", Text),
    ("prosqlbody", SqlType::NodeTree),
    ("proconfig", TextArray),
    ("proacl", AclItemArray),
];

/// The numbers of types of which there are no values here: those that functions of types read and write, and any array.
const CSTRING: u32 = 2275;
const ANY_ARRAY: u32 = 2277;
const INTERNAL: u32 = 2281;

/// A row of `pg_proc`.
fn proc(oid: u32, name: &str, arguments: Vec<u32>, result: u32, is_strict: bool, is_volatile: bool) -> Row {
    vec![
        int(oid),
        text(name),
        int(PG_CATALOG),
        int(ROLE),
        int(12),
        Value::Float(1.0),
        Value::Float(0.0),
        int(0),
        int(0),
        text("f"),
        Value::Bool(false),
        Value::Bool(false),
        Value::Bool(is_strict),
        Value::Bool(false),
        text(if is_volatile { "v" } else { "s" }),
        text("s"),
        Value::Int(arguments.len() as i64),
        int(0),
        int(result),
        Value::Array(arguments.into_iter().map(int).collect()),
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Null,
        text(name),
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Null,
    ]
}

fn procs(_: &Env) -> Vec<Row> {
    let conversions = conversions::all().map(|(ty, conversion)| {
        let is_array = conversions::is_plain_array(ty);
        let own = if is_array { ANY_ARRAY } else { ty.oid() };
        let (argument, result) = match conversion {
            Conversion::Input => (CSTRING, own),
            Conversion::Output => (own, CSTRING),
            Conversion::Receive => (INTERNAL, own),
            Conversion::Send => (own, SqlType::Bytea.oid()),
        };
        let mut arguments = vec![argument];
        if is_array && argument != own {
            // The type of the elements and the modifier of the column.
            arguments.extend([Oid.oid(), Int4.oid()]);
        }
        let (oid, name) = (conversions::oid_of(ty, conversion), conversions::name_of(ty, conversion));
        proc(oid, &name, arguments, result, true, false)
    });
    let functions = functions::numbered().map(|(oid, function)| {
        let arguments = function.arguments.iter().map(|ty| ty.oid()).collect();
        proc(oid, function.name, arguments, function.result.oid(), function.is_strict, function.is_volatile)
    });
    conversions.chain(functions).collect()
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
        Value::Int(super::DATABASE_OID),
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
