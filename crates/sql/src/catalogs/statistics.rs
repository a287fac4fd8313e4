//! Catalogs of what goes on: connections, counts of the database.
//!
//! Columns of PostgreSQL for what is not counted here are left out, so that nobody takes a zero for a count.

use atrapos::AbortReason;

use super::{Catalog, ROLE};
use crate::activity::{ActivityState, told_part};
use crate::expr::{Env, Row};
use crate::types::SqlType::{self, Float8, Int4, Int8, Name, Oid, Text, Timestamptz};
use crate::value::Value;

pub(super) static CATALOGS: &[Catalog] = &[
    Catalog {
        schema: "pg_catalog",
        name: "pg_stat_activity",
        oid: 12_003,
        columns: ACTIVITY,
        rows: activity,
    },
    Catalog {
        schema: "pg_catalog",
        name: "pg_stat_database",
        oid: 12_004,
        columns: DATABASE,
        rows: database,
    },
    Catalog {
        schema: "pg_catalog",
        name: "pg_stat_statements",
        oid: 12_006,
        columns: STATEMENTS,
        rows: statements,
    },
];

/// The number of the one database.
pub(crate) const DATABASE_OID: i64 = 5;

const ACTIVITY: &[(&str, SqlType)] = &[
    ("datid", Oid),
    ("datname", Name),
    ("pid", Int4),
    ("usesysid", Oid),
    ("usename", Name),
    ("application_name", Text),
    ("backend_start", Timestamptz),
    ("xact_start", Timestamptz),
    ("query_start", Timestamptz),
    ("state_change", Timestamptz),
    ("wait_event_type", Text),
    ("wait_event", Text),
    ("state", Text),
    ("query", Text),
    ("backend_type", Text),
];

fn activity(env: &Env) -> Vec<Row> {
    let moment = |moment: Option<i64>| moment.map_or(Value::Null, Value::Timestamp);
    let roles = &env.schema.roles;
    let waits = super::locks::waits(env);
    let row = |(number, activity): (i32, std::sync::Arc<crate::activity::Activity>)| {
        let mut doing = activity.doing();
        let role = roles.named(&activity.user).map_or(0, |role| role.id);
        let mut wait = wait_event(waits.get(&number).copied(), doing.state);
        if env.session.connections.is_asleep(number) {
            wait = (Value::text("Timeout"), Value::text("PgSleep"));
        }
        if !roles.acts_as(env.session.role, role) {
            doing.query = "<insufficient privilege>".into();
            wait = (Value::Null, Value::Null);
        }
        vec![
            Value::Int(DATABASE_OID),
            Value::text(&env.session.database),
            Value::Int(number.into()),
            Value::Int(role.into()),
            Value::text(&activity.user),
            Value::from(doing.application),
            Value::Timestamp(activity.began),
            moment(doing.transaction_began),
            moment(doing.query_began),
            Value::Timestamp(doing.changed),
            wait.0,
            wait.1,
            Value::text(doing.state.name()),
            Value::text(told_part(&doing.query)),
            Value::text("client backend"),
        ]
    };
    env.session.connections.activity().into_iter().map(row).collect()
}

/// The kind and the name of what a connection waits for: a lock, or the next statement of its client.
fn wait_event(lock: Option<&'static str>, state: ActivityState) -> (Value, Value) {
    match (state, lock) {
        (ActivityState::Active, Some(lock)) => (Value::text("Lock"), Value::text(lock)),
        (ActivityState::Active, None) => (Value::Null, Value::Null),
        _ => (Value::text("Client"), Value::text("ClientRead")),
    }
}

const DATABASE: &[(&str, SqlType)] = &[
    ("datid", Oid),
    ("datname", Name),
    ("numbackends", Int4),
    ("xact_commit", Int8),
    ("xact_rollback", Int8),
    ("deadlocks", Int8),
];

/// Counts since the database was opened; transactions of the engine's own users count, too.
fn database(env: &Env) -> Vec<Row> {
    let Some(engine) = env.session.engine.upgrade() else { return Vec::new() };
    let statistics = engine.statistics();
    let count = |count: u64| Value::Int(i64::try_from(count).unwrap_or(i64::MAX));
    vec![vec![
        Value::Int(DATABASE_OID),
        Value::text(&env.session.database),
        count(env.session.connections.activity().len() as u64),
        count(statistics.committed),
        count(statistics.aborted_total()),
        count(statistics.aborted_for(AbortReason::Deadlock)),
    ]]
}

const STATEMENTS: &[(&str, SqlType)] = &[
    ("userid", Oid),
    ("dbid", Oid),
    ("queryid", Int8),
    ("query", Text),
    ("calls", Int8),
    ("total_exec_time", Float8),
    ("mean_exec_time", Float8),
    ("rows", Int8),
];

/// Executions that have succeeded, by their texts; times are in milliseconds.
fn statements(env: &Env) -> Vec<Row> {
    let row = |(text, total): (String, crate::counts::Total)| {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let milliseconds = total.nanoseconds as f64 / 1e6;
        vec![
            Value::Int(ROLE.into()),
            Value::Int(DATABASE_OID),
            Value::Int(hasher.finish() as i64),
            Value::from(text),
            Value::Int(total.calls as i64),
            Value::Float(milliseconds),
            Value::Float(milliseconds / (total.calls.max(1) as f64)),
            Value::Int(total.rows as i64),
        ]
    };
    env.session.counts.all().into_iter().filter(|(_, total)| total.calls > 0).map(row).collect()
}
