//! Catalogs of roles and of privileges.

use super::Catalog;
use crate::expr::{Env, Row};
use crate::roles::{Access, Object, PUBLIC, Privileges, Role, SUPERUSER};
use crate::types::SqlType::{self, Bool, Int4, Name, Oid, OidArray, Text, TextArray, Timestamptz, Varchar};
use crate::value::Value;

const fn of_server(
    name: &'static str,
    oid: u32,
    columns: &'static [(&'static str, SqlType)],
    rows: fn(&Env) -> Vec<Row>,
) -> Catalog {
    Catalog { schema: "pg_catalog", name, oid, columns, rows }
}

const fn of_standard(
    name: &'static str,
    oid: u32,
    columns: &'static [(&'static str, SqlType)],
    rows: fn(&Env) -> Vec<Row>,
) -> Catalog {
    Catalog { schema: "information_schema", name, oid, columns, rows }
}

pub(super) static CATALOGS: &[Catalog] = &[
    of_server("pg_roles", 12_000, ROLES, |env| roles(env, |_| Value::text("********"))),
    of_server("pg_user", 12_001, USER, |env| users(env, |_| Value::text("********"))),
    of_server("pg_authid", 1260, AUTHID, authids),
    of_server("pg_shadow", 12_007, USER, |env| users(env, password)),
    of_server("pg_group", 12_008, GROUP, groups),
    of_server("pg_auth_members", 1261, MEMBERS, members),
    of_standard("table_privileges", 13_104, PRIVILEGES, |env| privileges(env, true)),
    of_standard("role_table_grants", 13_105, PRIVILEGES, |env| privileges(env, false)),
    of_standard("enabled_roles", 13_106, &[("role_name", Name)], enabled_roles),
    of_standard("applicable_roles", 13_107, APPLICABLE, applicable_roles),
];

fn text(text: &str) -> Value {
    Value::text(text)
}

fn password(role: &Role) -> Value {
    role.password.as_deref().map_or(Value::Null, text)
}

const ROLES: &[(&str, SqlType)] = &[
    ("rolname", Name),
    ("rolsuper", Bool),
    ("rolinherit", Bool),
    ("rolcreaterole", Bool),
    ("rolcreatedb", Bool),
    ("rolcanlogin", Bool),
    ("rolreplication", Bool),
    ("rolconnlimit", Int4),
    ("rolpassword", Text),
    ("rolvaliduntil", Timestamptz),
    ("rolbypassrls", Bool),
    ("rolconfig", TextArray),
    ("oid", Oid),
];

fn roles(env: &Env, password: fn(&Role) -> Value) -> Vec<Row> {
    let row = |role: &Role| {
        let flag = Value::Bool;
        vec![
            text(&role.name),
            flag(role.superuser),
            flag(role.inherit),
            flag(role.create_role),
            flag(role.create_db),
            flag(role.login),
            // The role that a database begins with has all that PostgreSQL's has.
            flag(role.id == SUPERUSER),
            Value::Int(-1),
            password(role),
            Value::Null,
            flag(role.id == SUPERUSER),
            Value::Null,
            Value::Int(role.id.into()),
        ]
    };
    env.schema.roles.roles.values().map(row).collect()
}

const AUTHID: &[(&str, SqlType)] = &[
    ("oid", Oid),
    ("rolname", Name),
    ("rolsuper", Bool),
    ("rolinherit", Bool),
    ("rolcreaterole", Bool),
    ("rolcreatedb", Bool),
    ("rolcanlogin", Bool),
    ("rolreplication", Bool),
    ("rolbypassrls", Bool),
    ("rolconnlimit", Int4),
    ("rolpassword", Text),
    ("rolvaliduntil", Timestamptz),
];

fn authids(env: &Env) -> Vec<Row> {
    let places = AUTHID.iter().map(|(name, _)| ROLES.iter().position(|(other, _)| other == name));
    let places: Vec<usize> = places.flatten().collect();
    let row = |row: Row| places.iter().map(|at| row[*at].clone()).collect();
    roles(env, password).into_iter().map(row).collect()
}

const USER: &[(&str, SqlType)] = &[
    ("usename", Name),
    ("usesysid", Oid),
    ("usecreatedb", Bool),
    ("usesuper", Bool),
    ("userepl", Bool),
    ("usebypassrls", Bool),
    ("passwd", Text),
    ("valuntil", Timestamptz),
    ("useconfig", TextArray),
];

fn users(env: &Env, password: fn(&Role) -> Value) -> Vec<Row> {
    let row = |role: &Role| {
        vec![
            text(&role.name),
            Value::Int(role.id.into()),
            Value::Bool(role.create_db),
            Value::Bool(role.superuser),
            Value::Bool(role.id == SUPERUSER),
            Value::Bool(role.id == SUPERUSER),
            password(role),
            Value::Null,
            Value::Null,
        ]
    };
    env.schema.roles.roles.values().filter(|role| role.login).map(row).collect()
}

const GROUP: &[(&str, SqlType)] = &[("groname", Name), ("grosysid", Oid), ("grolist", OidArray)];

fn groups(env: &Env) -> Vec<Row> {
    let all = &env.schema.roles.roles;
    let row = |role: &Role| {
        let members = all.values().filter(|member| member.member_of.contains(&role.id));
        let members = members.map(|member| Value::Int(member.id.into())).collect();
        vec![text(&role.name), Value::Int(role.id.into()), Value::Array(members)]
    };
    all.values().filter(|role| !role.login).map(row).collect()
}

const MEMBERS: &[(&str, SqlType)] = &[
    ("oid", Oid),
    ("roleid", Oid),
    ("member", Oid),
    ("grantor", Oid),
    ("admin_option", Bool),
    ("inherit_option", Bool),
    ("set_option", Bool),
];

fn members(env: &Env) -> Vec<Row> {
    let mut rows = Vec::new();
    for role in env.schema.roles.roles.values() {
        for of in &role.member_of {
            rows.push(vec![
                Value::Int(i64::from(*of) << 32 | i64::from(role.id)),
                Value::Int((*of).into()),
                Value::Int(role.id.into()),
                Value::Int(SUPERUSER.into()),
                Value::Bool(false),
                Value::Bool(role.inherit),
                Value::Bool(true),
            ]);
        }
    }
    for (oid, row) in (1..).zip(&mut rows) {
        row[0] = Value::Int(oid);
    }
    rows
}

const PRIVILEGES: &[(&str, SqlType)] = &[
    ("grantor", Name),
    ("grantee", Name),
    ("table_catalog", Name),
    ("table_schema", Name),
    ("table_name", Name),
    ("privilege_type", Varchar),
    ("is_grantable", Text),
    ("with_hierarchy", Text),
];

/// Privileges of tables and views that the role has granted or was granted; those that all have if they are wanted.
fn privileges(env: &Env, with_public: bool) -> Vec<Row> {
    let roles = &env.schema.roles;
    let acting = roles.acting(env.session.role);
    let is_super = roles.is_superuser(env.session.role);
    let tables = env.schema.tables.keys().map(|name| (name, Object::Table));
    let views = env.schema.views.keys().map(|name| (name, Object::View));
    let mut rows = Vec::new();
    for (name, object) in tables.chain(views) {
        let Access { owner, .. } = roles.access(name);
        for (grantee, held) in roles.access(name).entries(object) {
            let concerns = is_super || acting.contains(&owner) || acting.contains(&grantee);
            let is_for_all = grantee == PUBLIC && with_public;
            if !concerns && !is_for_all {
                continue;
            }
            let shown = if grantee == PUBLIC { "PUBLIC".to_owned() } else { roles.name_of(grantee) };
            let yes = |is: bool| text(if is { "YES" } else { "NO" });
            for (privilege, _, word) in Privileges::NAMES.iter().filter(|(one, _, _)| held.has_any(*one)) {
                rows.push(vec![
                    Value::from(roles.name_of(owner)),
                    Value::text(&shown),
                    text(&env.session.database),
                    text("public"),
                    text(name),
                    text(word),
                    yes(grantee != PUBLIC && roles.acts_as(grantee, owner)),
                    yes(*privilege == Privileges::SELECT),
                ]);
            }
        }
    }
    rows
}

fn enabled_roles(env: &Env) -> Vec<Row> {
    let roles = &env.schema.roles;
    let acting = |role: &&Role| roles.acts_as(env.session.role, role.id);
    roles.roles.values().filter(acting).map(|role| vec![text(&role.name)]).collect()
}

const APPLICABLE: &[(&str, SqlType)] = &[("grantee", Name), ("role_name", Name), ("is_grantable", Text)];

fn applicable_roles(env: &Env) -> Vec<Row> {
    let roles = &env.schema.roles;
    let members = roles.roles.values().filter(|role| roles.acts_as(env.session.role, role.id));
    let row = |role: &Role| {
        let row = |of: &u32| vec![text(&role.name), Value::from(roles.name_of(*of)), text("NO")];
        role.member_of.iter().map(row).collect::<Vec<Row>>()
    };
    members.flat_map(row).collect()
}
