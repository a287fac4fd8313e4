//! Functions that tell what a role may do, and those that only some may call.

use super::{Function, int, strict, text, volatile};
use crate::cancel::CancelReason;
use crate::cast::unquoted;
use crate::error::{SqlError, SqlState};
use crate::expr::Env;
use crate::roles::{Object, Privileges, no_role};
use crate::schema::no_relation;
use crate::types::SqlType::{Bool, Int4, Name, Oid, Text};
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
    strict("has_any_column_privilege", &[Text, Text], Bool, |env, a| {
        of_relation(env, None, &a[0], text(a, 1))
    }),
    strict("has_any_column_privilege", &[Oid, Text], Bool, |env, a| {
        of_relation(env, None, &a[0], text(a, 1))
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
fn list(list: &str, object: Object) -> Result<Vec<(Privileges, bool)>, SqlError> {
    let one = |word: &str| {
        let upper = word.trim().to_uppercase();
        let (name, grants) = match upper.strip_suffix("WITH GRANT OPTION") {
            Some(name) => (name.trim(), true),
            None => (&*upper, false),
        };
        let known = Privileges::named(name).filter(|known| object.all().has_all(*known));
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
fn has(
    env: &Env,
    role: u32,
    object: Object,
    name: &str,
    owner: u32,
    wanted: &str,
) -> Result<Value, SqlError> {
    let roles = &env.schema.roles;
    let held = roles.privileges(role, object, name);
    let may_grant = roles.acts_as(role, owner);
    let has =
        |(privilege, grants): &(Privileges, bool)| if *grants { may_grant } else { held.has_all(*privilege) };
    Ok(Value::Bool(list(wanted, object)?.iter().any(has)))
}

fn of_relation(env: &Env, who: Option<&Value>, relation: &Value, wanted: &str) -> Result<Value, SqlError> {
    let role = role(env, who)?;
    let name = match relation {
        Value::Int(oid) => match u32::try_from(*oid).ok().and_then(|oid| env.schema.name_of(oid)) {
            Some(name) => name,
            None => return Ok(Value::Null),
        },
        name => unquoted(text(std::slice::from_ref(name), 0)),
    };
    let Some(object) = env.schema.object(&name) else {
        if crate::catalogs::oid_of(&name).is_none() {
            return Err(no_relation(&name));
        }
        // Catalogs are read by all, and written by nobody.
        let reads =
            list(wanted, Object::Table)?.iter().any(|(one, grants)| *one == Privileges::SELECT && !grants);
        return Ok(Value::Bool(reads));
    };
    has(env, role, object, &name, env.schema.roles.owner_of(&name), wanted)
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
        "public" => has(env, role, Object::Schema, &name, env.schema.roles.schema.owner, wanted),
        "pg_catalog" | "information_schema" => {
            let uses = list(wanted, Object::Schema)?
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
