//! Functions that tell of the connection, the database and its catalogs.

use super::texts::quote_ident;
use super::{ANY, Function, int, invalid_parameter, lenient, strict, text, variadic, volatile};
use crate::catalogs;
use crate::datetime::DAY;
use crate::error::{SqlError, SqlState};
use crate::expr::Env;
use crate::format::text_of;
use crate::roles::{Object, Privileges, denied};
use crate::schema::TableEntry;
use crate::session;
use crate::settings::SERVER_VERSION;
use crate::types::SqlType::{
    self, Bool, Date, Int2, Int4, Int4Array, Int8, Name, NameArray, NodeTree, Oid, Regclass, Regtype, Text,
    Time, Timestamp, Timestamptz, Uuid, Xid8,
};
use crate::types::{Modifier, format_type};
use crate::value::Value;

pub(super) static FUNCTIONS: &[Function] = &[
    strict("now", &[], Timestamptz, |env, _| Ok(Value::Timestamp(env.session.began))),
    strict("current_timestamp", &[], Timestamptz, |env, _| Ok(Value::Timestamp(env.session.began))),
    strict("localtimestamp", &[], Timestamp, |env, _| Ok(Value::Timestamp(env.session.began))),
    strict("localtime", &[], Time, |env, _| Ok(Value::Time(env.session.began.rem_euclid(DAY)))),
    strict("current_date", &[], Date, |env, _| Ok(Value::Date(env.session.began.div_euclid(DAY) as i32))),
    strict("transaction_timestamp", &[], Timestamptz, |env, _| Ok(Value::Timestamp(env.session.began))),
    strict("statement_timestamp", &[], Timestamptz, |env, _| Ok(Value::Timestamp(env.session.began))),
    volatile("clock_timestamp", &[], Timestamptz, |_, _| Ok(Value::Timestamp(session::now()))),
    strict("version", &[], Text, |_, _| {
        Ok(Value::from(format!("PostgreSQL {SERVER_VERSION} (atrapos {})", env!("CARGO_PKG_VERSION"))))
    }),
    strict("current_database", &[], Name, |env, _| Ok(Value::text(&env.session.database))),
    strict("current_catalog", &[], Name, |env, _| Ok(Value::text(&env.session.database))),
    strict("current_schema", &[], Name, |_, _| Ok(Value::text("public"))),
    strict("current_schemas", &[Bool], NameArray, |_, a| {
        let all = matches!(a.first(), Some(Value::Bool(true)));
        let names: &[&str] = if all { &["pg_catalog", "public"] } else { &["public"] };
        Ok(Value::Array(names.iter().map(Value::text).collect()))
    }),
    strict("current_user", &[], Name, |env, _| Ok(Value::text(&env.session.user))),
    strict("session_user", &[], Name, |env, _| Ok(Value::text(&env.session.session_user))),
    strict("user", &[], Name, |env, _| Ok(Value::text(&env.session.user))),
    strict("current_role", &[], Name, |env, _| Ok(Value::text(&env.session.user))),
    strict("current_setting", &[Text], Text, |env, a| env.session.settings.get(text(a, 0)).map(Value::text)),
    strict("current_setting", &[Text, Bool], Text, |env, a| {
        let value = env.session.settings.get(text(a, 0)).map(Value::text);
        if matches!(a.get(1), Some(Value::Bool(true))) { Ok(value.unwrap_or(Value::Null)) } else { value }
    }),
    volatile("pg_blocking_pids", &[Int4], Int4Array, |env, a| {
        Ok(Value::Array(catalogs::locks::blocking(env, int(a, 0)).into_iter().map(Value::Int).collect()))
    }),
    strict("pg_backend_pid", &[], Int4, |env, _| Ok(Value::Int(env.session.process_id.into()))),
    volatile("txid_current", &[], Int8, |env, _| Ok(transaction(env))),
    volatile("pg_current_xact_id", &[], Xid8, |env, _| Ok(transaction(env))),
    strict("pg_is_in_recovery", &[], Bool, |_, _| Ok(Value::Bool(false))),
    strict("pg_encoding_to_char", &[Int4], Name, |_, _| Ok(Value::text("UTF8"))),
    strict("pg_table_is_visible", &[Oid], Bool, |_, a| {
        let oid = u32::try_from(int(a, 0)).unwrap_or(0);
        Ok(Value::Bool(!catalogs::is_of_standard(oid)))
    }),
    strict("pg_type_is_visible", &[Oid], Bool, |_, _| Ok(Value::Bool(true))),
    strict("pg_collation_is_visible", &[Oid], Bool, |_, _| Ok(Value::Bool(true))),
    strict("pg_function_is_visible", &[Oid], Bool, |_, _| Ok(Value::Bool(true))),
    strict("pg_relation_is_publishable", &[Regclass], Bool, |_, _| Ok(Value::Bool(false))),
    lenient("format_type", &[Oid, Int4], Text, |_, a| {
        let Some(Value::Int(oid)) = a.first() else { return Ok(Value::Null) };
        let ty = u32::try_from(*oid).ok().and_then(SqlType::from_oid);
        let code = a.get(1).and_then(Value::as_int).unwrap_or(-1);
        Ok(Value::from(ty.map_or("???".to_owned(), |ty| format_type(ty, Modifier::from_code(ty, code)))))
    }),
    strict("pg_get_expr", &[NodeTree, Oid], Text, |_, a| Ok(Value::text(text(a, 0)))),
    strict("pg_get_expr", &[NodeTree, Oid, Bool], Text, |_, a| Ok(Value::text(text(a, 0)))),
    strict("pg_get_constraintdef", &[Oid], Text, |env, a| constraint_definition(env, int(a, 0))),
    strict("pg_get_constraintdef", &[Oid, Bool], Text, |env, a| constraint_definition(env, int(a, 0))),
    strict("pg_get_indexdef", &[Oid], Text, |env, a| index_definition(env, int(a, 0), 0)),
    strict("pg_get_indexdef", &[Oid, Int4, Bool], Text, |env, a| index_definition(env, int(a, 0), int(a, 1))),
    lenient("pg_get_triggerdef", &[Oid, Bool], Text, |_, _| Ok(Value::Null)),
    lenient("pg_get_ruledef", &[Oid, Bool], Text, |_, _| Ok(Value::Null)),
    strict("pg_get_viewdef", &[Oid], Text, |env, a| Ok(view_definition(env, int(a, 0)))),
    strict("pg_get_viewdef", &[Oid, Bool], Text, |env, a| Ok(view_definition(env, int(a, 0)))),
    // No table is a partition.
    lenient("pg_partition_ancestors", &[Regclass], Regclass, |_, _| Ok(Value::Null)),
    strict("pg_get_function_result", &[Oid], Text, |_, a| {
        Ok(super::of(int(a, 0)).map_or(Value::Null, |function| Value::text(function.result.name())))
    }),
    strict("pg_get_function_arguments", &[Oid], Text, |_, a| {
        Ok(super::of(int(a, 0)).map_or(Value::Null, |function| Value::from(described(function))))
    }),
    lenient("pg_get_statisticsobjdef_columns", &[Oid], Text, |_, _| Ok(Value::Null)),
    lenient("pg_get_partkeydef", &[Oid], Text, |_, _| Ok(Value::Null)),
    strict("obj_description", &[Oid], Text, |env, a| Ok(comment_of(env, int(a, 0), 0))),
    strict("obj_description", &[Oid, Name], Text, |env, a| Ok(comment_of(env, int(a, 0), 0))),
    lenient("shobj_description", &[Oid, Name], Text, |_, _| Ok(Value::Null)),
    strict("col_description", &[Oid, Int4], Text, |env, a| Ok(comment_of(env, int(a, 0), int(a, 1)))),
    strict("to_regclass", &[Text], Regclass, |env, a| {
        let oid = env.schema.oid_of(&crate::cast::unquoted(text(a, 0)));
        Ok(oid.map_or(Value::Null, |oid| Value::Int(oid.into())))
    }),
    strict("to_regtype", &[Text], Regtype, |_, a| {
        let ty = SqlType::from_name(&text(a, 0).to_lowercase());
        Ok(ty.map_or(Value::Null, |ty| Value::Int(ty.oid().into())))
    }),
    volatile("nextval", &[Regclass], Int8, |env, a| {
        let sequence = sequence(env, int(a, 0))?;
        require_of_sequence(env, sequence.name(), Privileges::USAGE.and(Privileges::UPDATE))?;
        let number = sequence.take()?.ok_or_else(|| needs_block(sequence.name()))?;
        env.session.taken.note(sequence.name(), number);
        Ok(Value::Int(number))
    }),
    volatile("currval", &[Regclass], Int8, |env, a| {
        let sequence = sequence(env, int(a, 0))?;
        require_of_sequence(env, sequence.name(), Privileges::USAGE.and(Privileges::SELECT))?;
        let last = env.session.taken.of(sequence.name());
        last.map(Value::Int).ok_or_else(|| {
            SqlError::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("currval of sequence \"{}\" is not yet defined in this session", sequence.name()),
            )
        })
    }),
    volatile("lastval", &[], Int8, |env, _| {
        env.session.taken.last().map(Value::Int).ok_or_else(|| {
            SqlError::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "lastval is not yet defined in this session",
            )
        })
    }),
    volatile("setval", &[Regclass, Int8], Int8, |env, a| Err(needs_set(env, a, true))),
    volatile("setval", &[Regclass, Int8, Bool], Int8, |env, a| {
        Err(needs_set(env, a, matches!(a.get(2), Some(Value::Bool(true)))))
    }),
    strict("pg_get_serial_sequence", &[Text, Text], Text, |env, a| {
        let table = env.schema.table(&crate::cast::unquoted(text(a, 0)))?;
        let column = table.column(text(a, 1)).ok_or_else(|| table.no_column(text(a, 1)))?;
        let name = table.meta.columns[column].sequence.as_deref();
        Ok(name.map_or(Value::Null, |name| Value::from(format!("public.{}", quote_ident(name)))))
    }),
    volatile("gen_random_uuid", &[], Uuid, |_, _| {
        use std::hash::{BuildHasher, RandomState};
        let (high, low) = (RandomState::new().hash_one(0_u8), RandomState::new().hash_one(1_u8));
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&high.to_be_bytes());
        uuid[8..].copy_from_slice(&low.to_be_bytes());
        uuid[6] = uuid[6] & 0x0f | 0x40;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        Ok(Value::Uuid(uuid))
    }),
    variadic("pg_typeof", &[ANY], Regtype, |_, a| {
        Ok(Value::Int(a.first().map_or(SqlType::Unknown, Value::natural_type).oid().into()))
    }),
    strict("pg_column_size", &[ANY], Int2, |_, _| Err(SqlError::unsupported("the function pg_column_size"))),
];

/// The number of the transaction, which it has from the first time on that it asks for it.
fn transaction(env: &Env) -> Value {
    let session = &env.session;
    Value::Int(session.taken.transaction(|| session.connections.next_transaction()))
}

fn view_definition(env: &Env, oid: i64) -> Value {
    let view = env.schema.views.values().find(|view| i64::from(view.oid()) == oid);
    view.map_or(Value::Null, |view| Value::from(format!(" {};", view.text)))
}

/// A number of bytes in the largest unit in which it has two digits or more.
/// The arguments of a function, as a definition would have them.
fn described(function: &Function) -> String {
    let argument = |(at, ty): (usize, &SqlType)| {
        let named = function.names.get(at).map_or(String::new(), |name| format!("{name} "));
        let default = function.default(at).map(|value| format!(" DEFAULT {}", text_of(value, *ty)));
        format!("{named}{ty}{}", default.unwrap_or_default())
    };
    function.arguments.iter().enumerate().map(argument).collect::<Vec<_>>().join(", ")
}

/// The comment on a table, or on its column of a number from 1.
fn comment_of(env: &Env, oid: i64, column: i64) -> Value {
    let table = env.schema.tables.values().find(|table| i64::from(table.oid) == oid);
    let comment = table.and_then(|table| match usize::try_from(column - 1) {
        Err(_) => table.meta.comment.as_ref(),
        Ok(at) => table.meta.columns.get(at)?.comment.as_ref(),
    });
    comment.map_or(Value::Null, Value::text)
}

/// The state by which the executor knows that a sequence needs a block before the expression can be evaluated.
pub(crate) const NEEDS_BLOCK: SqlState = SqlState("\0block");
/// The state by which it knows that a sequence is to be set.
pub(crate) const NEEDS_SET: SqlState = SqlState("\0set");

fn needs_block(sequence: &str) -> SqlError {
    SqlError::new(NEEDS_BLOCK, sequence)
}

/// Names the sequence, the number and whether it was given out: `name`, and the rest as the detail.
fn needs_set(env: &Env, values: &[Value], is_called: bool) -> SqlError {
    let found = sequence(env, int(values, 0)).and_then(|sequence| {
        require_of_sequence(env, sequence.name(), Privileges::UPDATE).map(|()| sequence)
    });
    match found {
        Ok(sequence) => SqlError::new(NEEDS_SET, sequence.name()).detail(format!(
            "{} {}",
            int(values, 1),
            u8::from(is_called)
        )),
        Err(error) => error,
    }
}

/// Refuses what takes one of these privileges of a sequence to a role that has none of them. The sequence of an identity column is used by
/// whoever may insert rows.
fn require_of_sequence(env: &Env, name: &str, one_of: Privileges) -> Result<(), SqlError> {
    let (roles, role) = (&env.schema.roles, env.session.role);
    if roles.is_superuser(role) || roles.privileges(role, Object::Sequence, name).has_any(one_of) {
        return Ok(());
    }
    let is_identity = |table: &&std::sync::Arc<TableEntry>| {
        let mut columns = table.meta.columns.iter();
        columns.any(|column| column.identity.is_some() && column.sequence.as_deref() == Some(name))
    };
    let table = env.schema.tables.values().find(is_identity);
    let held = |table: &std::sync::Arc<TableEntry>| {
        let of_columns = roles.any_column_privileges(role, &table.name);
        roles.privileges(role, Object::Table, &table.name).and(of_columns)
    };
    match table.map(held) {
        Some(held) if held.has_all(Privileges::INSERT) && one_of.has_any(Privileges::USAGE) => Ok(()),
        _ => Err(denied(Object::Sequence, name)),
    }
}

fn sequence(env: &Env, oid: i64) -> Result<&crate::sequence::Sequence, SqlError> {
    let found = env.schema.sequences.values().find(|sequence| i64::from(sequence.oid()) == oid);
    found.map(|sequence| &**sequence).ok_or_else(|| {
        let name = u32::try_from(oid).ok().and_then(|oid| env.schema.name_of(oid));
        match name {
            Some(name) => SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a sequence")),
            None => invalid_parameter(format!("there is no sequence of number {oid}")),
        }
    })
}

fn columns_of(table: &TableEntry, columns: impl Iterator<Item = usize>) -> String {
    let names: Vec<String> = columns.map(|column| quote_ident(&table.columns[column].name)).collect();
    names.join(", ")
}

fn index_definition(env: &Env, oid: i64, column: i64) -> Result<Value, SqlError> {
    for table in env.schema.tables.values() {
        let Some(index) = table.indexes.iter().find(|index| i64::from(index.oid) == oid) else { continue };
        let part = |(column, descending): &(usize, bool)| {
            let name = quote_ident(&table.columns[*column].name);
            if *descending { format!("{name} DESC") } else { name }
        };
        let parts: Vec<String> = index.meta.columns.iter().map(part).collect();
        if column > 0 {
            let part = usize::try_from(column - 1).ok().and_then(|at| parts.get(at));
            return Ok(part.map_or(Value::Null, Value::text));
        }
        return Ok(Value::from(format!(
            "CREATE {}INDEX {} ON public.{} USING btree ({})",
            if index.meta.unique { "UNIQUE " } else { "" },
            quote_ident(&index.meta.name),
            quote_ident(&table.name),
            parts.join(", ")
        )));
    }
    Ok(Value::Null)
}

fn constraint_definition(env: &Env, oid: i64) -> Result<Value, SqlError> {
    let found = catalogs::constraints(&env.schema).into_iter().find(|found| i64::from(found.oid) == oid);
    let Some(found) = found else { return Ok(Value::Null) };
    let columns = columns_of(&found.table, found.columns.iter().copied());
    Ok(Value::from(match found.kind {
        'p' => format!("PRIMARY KEY ({columns})"),
        'u' => format!("UNIQUE ({columns})"),
        'f' => {
            let parent = found.parent.as_ref();
            let name = parent.map_or(String::new(), |parent| quote_ident(&parent.name));
            let keys = parent.and_then(|parent| Some((parent, parent.cluster_key()?)));
            let keys = keys.map_or(String::new(), |(parent, key)| {
                columns_of(parent, key.columns.iter().map(|(column, _)| *column))
            });
            let cascade = if found.cascade { " ON DELETE CASCADE" } else { "" };
            format!("FOREIGN KEY ({columns}) REFERENCES {name}({keys}){cascade}")
        }
        _ => format!("CHECK (({}))", found.expression),
    }))
}
