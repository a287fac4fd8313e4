//! Functions that tell how much memory tables, indexes and the database take, and show numbers of bytes.
//!
//! Owns: nothing; a statement that has one is given the sizes of all tables, which workers were asked for before it.

use super::{Function, int, invalid_parameter, strict, text, volatile};
use crate::error::{SqlError, SqlState};
use crate::expr::Env;
use crate::schema::{IndexEntry, TableEntry};
use crate::types::SqlType::{Int8, Name, Numeric as Num, Oid, Regclass, Text};
use crate::value::Value;

pub(super) static FUNCTIONS: &[Function] = &[
    strict("pg_size_pretty", &[Int8], Text, |_, a| Ok(Value::from(pretty_size(int(a, 0).into())))),
    strict("pg_size_pretty", &[Num], Text, |_, a| match a.first() {
        // Parts of a byte are shown of a few bytes alone.
        Some(Value::Numeric(size)) if size.truncated().abs() < 10 * 1024 => {
            Ok(Value::from(format!("{size} bytes")))
        }
        Some(Value::Numeric(size)) => Ok(Value::from(pretty_size(size.truncated()))),
        _ => Ok(Value::Null),
    }),
    volatile("pg_relation_size", &[Regclass], Int8, |env, a| size_of(env, int(a, 0), Part::Rows)),
    volatile("pg_relation_size", &[Regclass, Text], Int8, |env, a| match text(a, 1) {
        "main" => size_of(env, int(a, 0), Part::Rows),
        // There are none of these beside the rows.
        "fsm" | "vm" | "init" => Ok(Value::Int(0)),
        _ => Err(invalid_parameter("invalid fork name")
            .hint("Valid fork names are \"main\", \"fsm\", \"vm\", and \"init\".")),
    }),
    volatile("pg_table_size", &[Regclass], Int8, |env, a| size_of(env, int(a, 0), Part::Rows)),
    volatile("pg_indexes_size", &[Regclass], Int8, |env, a| size_of(env, int(a, 0), Part::Indexes)),
    volatile("pg_total_relation_size", &[Regclass], Int8, |env, a| size_of(env, int(a, 0), Part::All)),
    volatile("pg_database_size", &[Name], Int8, |env, a| {
        if text(a, 0) == &*env.session.database {
            return size_of_all(env);
        }
        Err(SqlError::new(SqlState("3D000"), format!("database \"{}\" does not exist", text(a, 0))))
    }),
    volatile("pg_database_size", &[Oid], Int8, |env, a| {
        if int(a, 0) == crate::catalogs::DATABASE_OID { size_of_all(env) } else { Ok(Value::Null) }
    }),
];

/// Returns true for the name of a function that needs the sizes of tables.
pub(crate) fn tells_of_sizes(name: &str) -> bool {
    FUNCTIONS.iter().any(|function| function.name == name && function.is_volatile)
}

/// The parts of a table that count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Rows,
    Indexes,
    All,
}

fn bytes_of(env: &Env, id: atrapos::TableId) -> Result<i64, SqlError> {
    let sizes =
        env.sizes.as_ref().ok_or_else(|| SqlError::unsupported("the size of a table in this place"))?;
    Ok(sizes.get(&id).map_or(0, |bytes| i64::try_from(*bytes).unwrap_or(i64::MAX)))
}

/// The bytes of an index; none for the primary key by which the rows are clustered, as they are the table's.
fn index_bytes(env: &Env, index: &IndexEntry) -> Result<i64, SqlError> {
    index.handle.as_ref().map_or(Ok(0), |handle| bytes_of(env, handle.id()))
}

fn table_bytes(env: &Env, table: &TableEntry, part: Part) -> Result<i64, SqlError> {
    let mut sum = if part == Part::Indexes { 0 } else { bytes_of(env, table.handle.id())? };
    for index in table.indexes.iter().filter(|_| part != Part::Rows) {
        sum += index_bytes(env, index)?;
    }
    Ok(sum)
}

/// The bytes of a relation; none for one without rows of its own, NULL for none.
fn size_of(env: &Env, oid: i64, part: Part) -> Result<Value, SqlError> {
    for table in env.schema.tables.values() {
        if i64::from(table.oid) == oid {
            return table_bytes(env, table, part).map(Value::Int);
        }
        if let Some(index) = table.indexes.iter().find(|index| i64::from(index.oid) == oid) {
            return if part == Part::Indexes {
                Ok(Value::Int(0))
            } else {
                index_bytes(env, index).map(Value::Int)
            };
        }
    }
    let is_there = u32::try_from(oid).is_ok_and(|oid| env.schema.name_of(oid).is_some());
    Ok(if is_there { Value::Int(0) } else { Value::Null })
}

fn size_of_all(env: &Env) -> Result<Value, SqlError> {
    let sizes =
        env.sizes.as_ref().ok_or_else(|| SqlError::unsupported("the size of a database in this place"))?;
    Ok(Value::Int(i64::try_from(sizes.values().sum::<usize>()).unwrap_or(i64::MAX)))
}

/// A number of bytes in the largest unit of which it has some.
fn pretty_size(mut size: i128) -> String {
    let mut unit = "bytes";
    if size.abs() < 10 * 1024 {
        return format!("{size} {unit}");
    }
    // One more bit than the unit has, for rounding.
    size /= 512;
    for next in ["kB", "MB", "GB", "TB", "PB"] {
        unit = next;
        if size.abs() < 20 * 1024 - 1 {
            break;
        }
        if next != "PB" {
            size /= 1024;
        }
    }
    format!("{} {unit}", (size + size.signum()) / 2)
}
