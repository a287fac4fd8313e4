//! Catalogs of roles and of privileges.

use super::Catalog;
use crate::expr::{Env, Row};
use crate::roles::{Item, Object, PUBLIC, Privileges, Role, SUPERUSER};
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
    of_standard("column_privileges", 13_108, COLUMN_PRIVILEGES, |env| column_privileges(env, true)),
    of_standard("role_column_grants", 13_109, COLUMN_PRIVILEGES, |env| column_privileges(env, false)),
    of_standard("enabled_roles", 13_106, &[("role_name", Name)], enabled_roles),
    of_standard("applicable_roles", 13_107, APPLICABLE, applicable_roles),
    of_standard("administrable_role_authorizations", 13_110, APPLICABLE, administrable_roles),
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
    rows_of(env, password, |_| true).collect()
}

fn rows_of<'e>(
    env: &'e Env,
    password: fn(&Role) -> Value,
    of: fn(&Role) -> bool,
) -> impl Iterator<Item = Row> + 'e {
    let row = move |role: &Role| {
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
    env.schema.roles.roles.values().filter(move |role| of(role)).map(row)
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
    let names = AUTHID.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    shown(env, password, &names, |_| true)
}

/// Some columns of roles.
fn shown(env: &Env, password: fn(&Role) -> Value, names: &[&str], of: fn(&Role) -> bool) -> Vec<Row> {
    let places = names.iter().flat_map(|name| ROLES.iter().position(|(other, _)| other == name));
    let places: Vec<usize> = places.collect();
    let roles = rows_of(env, password, of);
    roles.map(|row| places.iter().map(|at| row[*at].clone()).collect()).collect()
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

/// The columns of roles that those of users are.
const OF_USERS: &[&str] = &[
    "rolname",
    "oid",
    "rolcreatedb",
    "rolsuper",
    "rolreplication",
    "rolbypassrls",
    "rolpassword",
    "rolvaliduntil",
    "rolconfig",
];

fn users(env: &Env, password: fn(&Role) -> Value) -> Vec<Row> {
    shown(env, password, OF_USERS, |role| role.login)
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
                Value::Int(role.grantor_of(*of).into()),
                Value::Bool(role.admin_of.contains(of)),
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

/// Tables and views with their columns, for catalogs of privileges.
fn relations(env: &Env) -> Vec<(&String, Object, Vec<&String>)> {
    let tables = env.schema.tables.iter().map(|(name, table)| {
        (name, Object::Table, table.columns.iter().map(|column| &column.name).collect())
    });
    let views =
        env.schema.views.iter().map(|(name, view)| {
            (name, Object::View, view.columns.iter().map(|column| &column.name).collect())
        });
    tables.chain(views).collect()
}

/// A privilege between two roles, for `information_schema`.
struct Granted {
    item: Item,
    privilege: Privileges,
    word: &'static str,
    /// The names of the grantor and the grantee.
    names: [Value; 2],
    is_grantable: Value,
}

/// The privileges of a list that the role has granted or was granted; those that all have if they are wanted.
fn granted(env: &Env, owner: u32, items: &[Item], with_public: bool) -> Vec<Granted> {
    let roles = &env.schema.roles;
    let is_own = |role: u32| roles.acts_as(env.session.role, role);
    let concerns = |item: &&Item| {
        is_own(item.grantor) || if item.grantee == PUBLIC { with_public } else { is_own(item.grantee) }
    };
    let shown = |role: u32| if role == PUBLIC { text("PUBLIC") } else { Value::from(roles.name_of(role)) };
    let all = |item: &Item| {
        let item = *item;
        let is_owner = item.grantee != PUBLIC && roles.acts_as(item.grantee, owner);
        let names = Privileges::NAMES.iter().filter(move |(one, _, _)| item.privileges.has_any(*one));
        names.map(move |(privilege, _, word)| Granted {
            item,
            privilege: *privilege,
            word,
            names: [shown(item.grantor), shown(item.grantee)],
            is_grantable: yes(is_owner || item.options.has_any(*privilege)),
        })
    };
    items.iter().filter(concerns).flat_map(all).collect()
}

fn yes(is: bool) -> Value {
    text(if is { "YES" } else { "NO" })
}

/// Privileges of tables and views.
fn privileges(env: &Env, with_public: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, object, _) in relations(env) {
        let access = env.schema.roles.access(name);
        for granted in granted(env, access.owner, &access.items(object), with_public) {
            let [grantor, grantee] = granted.names;
            rows.push(vec![
                grantor,
                grantee,
                text(&env.session.database),
                text("public"),
                text(name),
                text(granted.word),
                granted.is_grantable,
                yes(granted.privilege == Privileges::SELECT),
            ]);
        }
    }
    rows
}

const COLUMN_PRIVILEGES: &[(&str, SqlType)] = &[
    ("grantor", Name),
    ("grantee", Name),
    ("table_catalog", Name),
    ("table_schema", Name),
    ("table_name", Name),
    ("column_name", Name),
    ("privilege_type", Varchar),
    ("is_grantable", Text),
];

/// Privileges of columns: those that were granted as such, and those of the whole table or view, each once.
fn column_privileges(env: &Env, with_public: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, object, columns) in relations(env) {
        let access = env.schema.roles.access(name);
        let of_table = access.items(object);
        for column in columns {
            let items = [&of_table[..], access.items_of(column)].concat();
            let mut all = granted(env, access.owner, &items, with_public);
            all.retain(|one| Privileges::OF_COLUMNS.has_all(one.privilege));
            let mut known = Vec::new();
            for Granted { item, privilege, word, names, is_grantable } in all {
                let one = (item.grantor, item.grantee, privilege, is_grantable.as_text() == Some("YES"));
                if known.contains(&one) {
                    continue;
                }
                known.push(one);
                let [grantor, grantee] = names;
                let place = [text(&env.session.database), text("public"), text(name), text(column)];
                let row = [grantor, grantee].into_iter().chain(place).chain([text(word), is_grantable]);
                rows.push(row.collect());
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
        let row = |of: &u32| {
            let is_grantable = if role.admin_of.contains(of) { "YES" } else { "NO" };
            vec![text(&role.name), Value::from(roles.name_of(*of)), text(is_grantable)]
        };
        role.member_of.iter().map(row).collect::<Vec<Row>>()
    };
    members.flat_map(row).collect()
}

fn administrable_roles(env: &Env) -> Vec<Row> {
    let mut rows = applicable_roles(env);
    rows.retain(|row| row.last() == Some(&text("YES")));
    rows
}
