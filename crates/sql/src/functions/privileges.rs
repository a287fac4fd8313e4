//! Functions that tell what a role may do, and those that only some may call.

use super::{Function, int, strict, text, volatile};
use crate::cancel::CancelReason;
use crate::cast::unquoted;
use crate::error::{SqlError, SqlState};
use crate::expr::Env;
use crate::roles::{Item, Object, Privileges, no_role};
use crate::schema::no_relation;
use crate::types::SqlType::{Bool, Int2, Int4, Name, Oid, Text};
use crate::value::Value;

pub(super) static FUNCTIONS: &[Function] = &[
    strict("pg_get_userbyid", &[Oid], Name, |env, a| {
        Ok(Value::from(
            u32::try_from(int(a, 0)).map_or_else(|_| String::new(), |id| env.schema.roles.name_of(id)),
        ))
    }),
    strict("has_table_privilege", &[Text, Text], Bool, |env, a| of_relation(env, None, &a[0], text(a, 1))),
    strict("has_table_privilege", &[Oid, Text], Bool, |env, a| of_relation(env, None, &a[0], text(a, 1))),
    strict("has_table_privilege", &[Name, Text, Text], Bool, |env, a| {
        of_relation(env, Some(&a[0]), &a[1], text(a, 2))
    }),
    strict("has_table_privilege", &[Name, Oid, Text], Bool, |env, a| {
        of_relation(env, Some(&a[0]), &a[1], text(a, 2))
    }),
    strict("has_table_privilege", &[Oid, Oid, Text], Bool, |env, a| {
        of_relation(env, Some(&a[0]), &a[1], text(a, 2))
    }),
    strict("has_any_column_privilege", &[Text, Text], Bool, |env, a| of_any_column(env, None, a)),
    strict("has_any_column_privilege", &[Oid, Text], Bool, |env, a| of_any_column(env, None, a)),
    strict("has_any_column_privilege", &[Name, Text, Text], Bool, |env, a| {
        of_any_column(env, a.first(), &a[1..])
    }),
    strict("has_any_column_privilege", &[Name, Oid, Text], Bool, |env, a| {
        of_any_column(env, a.first(), &a[1..])
    }),
    strict("has_column_privilege", &[Text, Text, Text], Bool, |env, a| of_column(env, None, a)),
    strict("has_column_privilege", &[Text, Int2, Text], Bool, |env, a| of_column(env, None, a)),
    strict("has_column_privilege", &[Oid, Text, Text], Bool, |env, a| of_column(env, None, a)),
    strict("has_column_privilege", &[Oid, Int2, Text], Bool, |env, a| of_column(env, None, a)),
    strict("has_column_privilege", &[Name, Text, Text, Text], Bool, |env, a| {
        of_column(env, a.first(), &a[1..])
    }),
    strict("has_column_privilege", &[Name, Text, Int2, Text], Bool, |env, a| {
        of_column(env, a.first(), &a[1..])
    }),
    strict("has_column_privilege", &[Name, Oid, Text, Text], Bool, |env, a| {
        of_column(env, a.first(), &a[1..])
    }),
    strict("has_column_privilege", &[Name, Oid, Int2, Text], Bool, |env, a| {
        of_column(env, a.first(), &a[1..])
    }),
    strict("has_sequence_privilege", &[Text, Text], Bool, |env, a| of_relation(env, None, &a[0], text(a, 1))),
    strict("has_sequence_privilege", &[Oid, Text], Bool, |env, a| of_relation(env, None, &a[0], text(a, 1))),
    strict("has_sequence_privilege", &[Name, Text, Text], Bool, |env, a| {
        of_relation(env, Some(&a[0]), &a[1], text(a, 2))
    }),
    strict("has_schema_privilege", &[Text, Text], Bool, |env, a| of_schema(env, None, &a[0], text(a, 1))),
    strict("has_schema_privilege", &[Oid, Text], Bool, |env, a| of_schema(env, None, &a[0], text(a, 1))),
    strict("has_schema_privilege", &[Name, Text, Text], Bool, |env, a| {
        of_schema(env, Some(&a[0]), &a[1], text(a, 2))
    }),
    strict("has_database_privilege", &[Text, Text], Bool, |env, a| of_database(env, None, text(a, 1))),
    strict("has_database_privilege", &[Oid, Text], Bool, |env, a| of_database(env, None, text(a, 1))),
    strict("has_database_privilege", &[Name, Text, Text], Bool, |env, a| {
        of_database(env, Some(&a[0]), text(a, 2))
    }),
    strict("pg_has_role", &[Text, Text], Bool, |env, a| has_role(env, None, &a[0], text(a, 1))),
    strict("pg_has_role", &[Oid, Text], Bool, |env, a| has_role(env, None, &a[0], text(a, 1))),
    strict("pg_has_role", &[Name, Text, Text], Bool, |env, a| has_role(env, Some(&a[0]), &a[1], text(a, 2))),
    strict("pg_has_role", &[Name, Oid, Text], Bool, |env, a| has_role(env, Some(&a[0]), &a[1], text(a, 2))),
    strict("pg_has_role", &[Oid, Oid, Text], Bool, |env, a| has_role(env, Some(&a[0]), &a[1], text(a, 2))),
    volatile("pg_cancel_backend", &[Int4], Bool, |env, a| ask(env, int(a, 0), CancelReason::Request)),
    volatile("pg_terminate_backend", &[Int4], Bool, |env, a| ask(env, int(a, 0), CancelReason::Termination)),
];

/// The number of a role that an argument names, or that of the session.
fn role(env: &Env, value: Option<&Value>) -> Result<u32, SqlError> {
    match value {
        None => Ok(env.session.role),
        Some(Value::Int(id)) => Ok(u32::try_from(*id).unwrap_or(0)),
        Some(name) => {
            let name = text(std::slice::from_ref(name), 0);
            env.schema.roles.named(name).map(|role| role.id).ok_or_else(|| no_role(name))
        }
    }
}

/// The privileges of a list; each may ask for the option to grant it, too.
fn list(list: &str, all: Privileges) -> Result<Vec<(Privileges, bool)>, SqlError> {
    let one = |word: &str| {
        let upper = word.trim().to_uppercase();
        let (name, grants) = match upper.strip_suffix("WITH GRANT OPTION") {
            Some(name) => (name.trim(), true),
            None => (&*upper, false),
        };
        let known = Privileges::named(name).filter(|known| all.has_all(*known));
        known.map(|known| (known, grants)).ok_or_else(|| {
            SqlError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("unrecognized privilege type: \"{word}\""),
            )
        })
    };
    list.split(',').map(one).collect()
}

/// Returns true if a role has one of the privileges of a list.
fn has(env: &Env, role: u32, object: Object, name: &str, wanted: &str) -> Result<Value, SqlError> {
    let wanted = list(wanted, object.all())?;
    Ok(Value::Bool(has_one(env, role, object, name, &wanted)))
}

fn has_one(env: &Env, role: u32, object: Object, name: &str, wanted: &[(Privileges, bool)]) -> bool {
    let roles = &env.schema.roles;
    let access = if object == Object::Schema { roles.schema.clone() } else { roles.access(name) };
    has_of(env, role, access.owner, roles.privileges(role, object, name), &access.items(object), wanted)
}

/// Returns true if a role has one of some privileges among those that it holds, or the option to grant it by an access list.
fn has_of(
    env: &Env,
    role: u32,
    owner: u32,
    held: Privileges,
    items: &[Item],
    wanted: &[(Privileges, bool)],
) -> bool {
    let roles = &env.schema.roles;
    let all = roles.is_superuser(role);
    let options = roles.options(role, owner, items);
    let has = |(privilege, grants): &(Privileges, bool)| {
        all || if *grants { options.has_all(*privilege) } else { held.has_all(*privilege) }
    };
    wanted.iter().any(has)
}

/// The table, view or sequence that an argument names; `None` for a number that none has.
fn relation(env: &Env, relation: &Value) -> Option<String> {
    match relation {
        Value::Int(oid) => u32::try_from(*oid).ok().and_then(|oid| env.schema.name_of(oid)),
        name => Some(unquoted(text(std::slice::from_ref(name), 0))),
    }
}

/// The kind of a relation; `None` for a catalog.
fn kind(env: &Env, name: &str) -> Result<Option<Object>, SqlError> {
    match env.schema.object(name) {
        None if crate::catalogs::oid_of(name).is_none() => Err(no_relation(name)),
        object => Ok(object),
    }
}

/// Catalogs are read by all, and written by nobody.
fn of_catalog(wanted: &[(Privileges, bool)]) -> Value {
    Value::Bool(wanted.iter().any(|(one, grants)| *one == Privileges::SELECT && !grants))
}

fn of_relation(env: &Env, who: Option<&Value>, of: &Value, wanted: &str) -> Result<Value, SqlError> {
    let role = role(env, who)?;
    let Some(name) = relation(env, of) else { return Ok(Value::Null) };
    match kind(env, &name)? {
        Some(object) => has(env, role, object, &name, wanted),
        None => Ok(of_catalog(&list(wanted, Object::Table.all())?)),
    }
}

/// Returns true if a role has one of the privileges of a list of the whole relation, or of some column of it.
fn of_any_column(env: &Env, who: Option<&Value>, arguments: &[Value]) -> Result<Value, SqlError> {
    let role = role(env, who)?;
    let Some(name) = relation(env, &arguments[0]) else { return Ok(Value::Null) };
    let wanted = list(text(arguments, 1), Privileges::OF_COLUMNS)?;
    let Some(object) = kind(env, &name)? else { return Ok(of_catalog(&wanted)) };
    let access = env.schema.roles.access(&name);
    let of_some = access.columns.keys().any(|column| has_column(env, role, &name, column, &wanted));
    Ok(Value::Bool(of_some || has_one(env, role, object, &name, &wanted)))
}

fn has_column(env: &Env, role: u32, name: &str, column: &str, wanted: &[(Privileges, bool)]) -> bool {
    let roles = &env.schema.roles;
    let access = roles.access(name);
    let held = roles.column_privileges(role, name, column);
    has_of(env, role, access.owner, held, access.items_of(column), wanted)
}

/// Returns true if a role has one of the privileges of a list of a column, or of its whole relation.
fn of_column(env: &Env, who: Option<&Value>, arguments: &[Value]) -> Result<Value, SqlError> {
    let role = role(env, who)?;
    let Some(name) = relation(env, &arguments[0]) else { return Ok(Value::Null) };
    let wanted = list(text(arguments, 2), Privileges::OF_COLUMNS)?;
    let Some(object) = kind(env, &name)? else { return Ok(of_catalog(&wanted)) };
    let schema = &env.schema;
    let of_table = schema.tables.get(&name).into_iter().flat_map(|table| &table.columns);
    let of_view = schema.views.get(&name).into_iter().flat_map(|view| &view.columns);
    let names: Vec<&String> =
        of_table.map(|column| &column.name).chain(of_view.map(|column| &column.name)).collect();
    let found = match &arguments[1] {
        Value::Int(number) => {
            let at = usize::try_from(*number).ok().and_then(|number| number.checked_sub(1));
            at.and_then(|at| names.get(at)).copied()
        }
        column => {
            let column = text(std::slice::from_ref(column), 0);
            let found = names.iter().find(|known| **known == column).copied();
            Some(found.ok_or_else(|| {
                let why = format!("column \"{column}\" of relation \"{name}\" does not exist");
                SqlError::new(SqlState::UNDEFINED_COLUMN, why)
            })?)
        }
    };
    let Some(column) = found else { return Ok(Value::Null) };
    let has = has_one(env, role, object, &name, &wanted) || has_column(env, role, &name, column, &wanted);
    Ok(Value::Bool(has))
}

fn of_schema(env: &Env, who: Option<&Value>, schema: &Value, wanted: &str) -> Result<Value, SqlError> {
    let role = role(env, who)?;
    let name = match schema {
        Value::Int(oid) => match u32::try_from(*oid).ok().and_then(crate::catalogs::namespace_name) {
            Some(name) => name.to_owned(),
            None => return Ok(Value::Null),
        },
        name => text(std::slice::from_ref(name), 0).to_owned(),
    };
    match &name[..] {
        "public" => has(env, role, Object::Schema, &name, wanted),
        "pg_catalog" | "information_schema" => {
            let uses = list(wanted, Object::Schema.all())?
                .iter()
                .any(|(one, grants)| *one == Privileges::USAGE && !grants);
            Ok(Value::Bool(uses))
        }
        _ => Err(SqlError::new(SqlState("3F000"), format!("schema \"{name}\" does not exist"))),
    }
}

/// Everybody who logs in may use the database; what else there is, superusers may.
fn of_database(env: &Env, who: Option<&Value>, wanted: &str) -> Result<Value, SqlError> {
    let role = role(env, who)?;
    let is_for_all = wanted.split(',').any(|word| word.trim().eq_ignore_ascii_case("connect"));
    Ok(Value::Bool(is_for_all || env.schema.roles.is_superuser(role)))
}

fn has_role(env: &Env, who: Option<&Value>, of: &Value, wanted: &str) -> Result<Value, SqlError> {
    let (who, of) = (role(env, who)?, role(env, Some(of))?);
    let roles = &env.schema.roles;
    let has = |word: &str| match &word.trim().to_uppercase()[..] {
        "USAGE" => Ok(roles.acts_as(who, of)),
        "MEMBER" | "SET" => Ok(roles.is_member(who, of)),
        "USAGE WITH ADMIN OPTION"
        | "USAGE WITH GRANT OPTION"
        | "MEMBER WITH ADMIN OPTION"
        | "MEMBER WITH GRANT OPTION" => Ok(roles.is_admin_of(who, of)),
        other => Err(SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("unrecognized privilege type: \"{other}\""),
        )),
    };
    let held: Result<Vec<bool>, SqlError> = wanted.split(',').map(has).collect();
    Ok(Value::Bool(held?.contains(&true)))
}

/// Asks for the end of a connection, or of what it runs; false if there is none of this number.
fn ask(env: &Env, number: i64, reason: CancelReason) -> Result<Value, SqlError> {
    let Ok(number) = i32::try_from(number) else { return Ok(Value::Bool(false)) };
    let roles = &env.schema.roles;
    let found = env.session.connections.activity().into_iter().find(|(known, _)| *known == number);
    let user = found.and_then(|(_, activity)| roles.named(&activity.user).cloned());
    if let Some(user) = user {
        let (verb, what) = match reason {
            CancelReason::Termination => ("terminate", "process is being terminated"),
            _ => ("cancel", "query is being canceled"),
        };
        if user.superuser && !roles.is_superuser(env.session.role) {
            return Err(SqlError::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!("must be a superuser to {verb} what a superuser runs"),
            ));
        }
        if !roles.acts_as(env.session.role, user.id) {
            return Err(SqlError::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!("must be a member of the role whose {what}"),
            ));
        }
    }
    Ok(Value::Bool(env.session.connections.ask(number, reason)))
}
