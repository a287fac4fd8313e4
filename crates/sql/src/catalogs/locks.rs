//! The catalog of locks, and what follows from it: who waits, and for whom.
//!
//! Owns: the rows of `pg_locks`, wait events of `pg_stat_activity`, the answer of `pg_blocking_pids`. Never: asks the engine: the connection
//! has looked before the statement ran.

use std::collections::BTreeMap;

use atrapos::activity::LockActivity;

use super::Catalog;
use super::statistics::DATABASE_OID;
use crate::advisory::Held;
use crate::expr::{Env, Row};
use crate::schema::FIRST_OID;
use crate::session::now;
use crate::types::SqlType::{self, Bool, Int2, Int4, Oid, Text, Timestamptz};
use crate::value::Value;

pub(super) static CATALOGS: &[Catalog] =
    &[Catalog { schema: "pg_catalog", name: "pg_locks", oid: 12_005, columns: LOCKS, rows: locks }];

/// The columns of PostgreSQL, and the key of a lock of rows.
const LOCKS: &[(&str, SqlType)] = &[
    ("locktype", Text),
    ("database", Oid),
    ("relation", Oid),
    ("page", Int4),
    ("tuple", Int2),
    ("virtualxid", Text),
    ("transactionid", Oid),
    ("classid", Oid),
    ("objid", Oid),
    ("objsubid", Int2),
    ("virtualtransaction", Text),
    ("pid", Int4),
    ("mode", Text),
    ("granted", Bool),
    ("fastpath", Bool),
    ("waitstart", Timestamptz),
    ("key", Text),
];

fn locks(env: &Env) -> Vec<Row> {
    let (advisory, moment) = (&env.session.connections.advisory, now());
    let of_rows = of_rows(env).iter().map(|lock| row_of(lock, moment));
    let held = advisory.all().into_iter().map(|lock| advisory_row(lock, true));
    let wanted = advisory.waiting().into_iter().map(|lock| advisory_row(lock, false));
    of_rows.chain(held).chain(wanted).collect()
}

fn of_rows(env: &Env) -> &[LockActivity] {
    env.locks.as_deref().map_or(&[], Vec::as_slice)
}

fn row_of(lock: &LockActivity, now: i64) -> Row {
    let key = match &lock.until {
        None => lock.key.clone(),
        Some(until) => format!("[{}, {until})", lock.key),
    };
    let waited = lock.wait.as_ref().map(|wait| i64::try_from(wait.waited_ns / 1000).unwrap_or(i64::MAX));
    vec![
        Value::text(lock_type(lock)),
        Value::Int(DATABASE_OID),
        Value::Int(i64::from(FIRST_OID) + i64::from(lock.table.0)),
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Null,
        Value::text(&lock.transaction),
        lock.client.map_or(Value::Null, |client| Value::Int(client.into())),
        mode(!lock.is_exclusive),
        Value::Bool(waited.is_none()),
        Value::Bool(false),
        waited.map_or(Value::Null, |waited| Value::Timestamp(now.saturating_sub(waited))),
        Value::from(key),
    ]
}

fn advisory_row(lock: Held, is_granted: bool) -> Row {
    vec![
        Value::text("advisory"),
        Value::Int(DATABASE_OID),
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Int(lock.key.class.into()),
        Value::Int(lock.key.object.into()),
        Value::Int(if lock.key.is_pair { 2 } else { 1 }),
        Value::Null,
        Value::Int(lock.owner.into()),
        mode(lock.is_shared),
        Value::Bool(is_granted),
        Value::Bool(false),
        Value::Null,
        Value::Null,
    ]
}

/// The kind of a lock of rows: that of a key, or of a range of a table.
fn lock_type(lock: &LockActivity) -> &'static str {
    if lock.until.is_none() { "tuple" } else { "relation" }
}

fn mode(is_shared: bool) -> Value {
    Value::text(if is_shared { "ShareLock" } else { "ExclusiveLock" })
}

/// The connections that wait for locks, with the kind of lock.
pub(super) fn waits(env: &Env) -> BTreeMap<i32, &'static str> {
    let of_rows = of_rows(env).iter().filter(|lock| lock.wait.is_some());
    let of_clients = of_rows.filter_map(|lock| Some((i32::try_from(lock.client?).ok()?, lock_type(lock))));
    let advisory = env.session.connections.advisory.waiting();
    advisory.iter().map(|wanted| (wanted.owner, "advisory")).chain(of_clients).collect()
}

/// The connections for whose locks a connection waits.
pub(crate) fn blocking(env: &Env, process_id: i64) -> Vec<i64> {
    let is_of_it = |lock: &&LockActivity| lock.client.is_some_and(|client| i64::from(client) == process_id);
    let waits = of_rows(env).iter().filter(is_of_it).filter_map(|lock| lock.wait.as_ref());
    let mut found: Vec<i64> = waits.flat_map(|wait| &wait.behind).map(|client| i64::from(*client)).collect();
    let advisory = &env.session.connections.advisory;
    let held = advisory.all();
    for wanted in advisory.waiting().iter().filter(|wanted| i64::from(wanted.owner) == process_id) {
        let conflicting = held.iter().filter(|held| held.conflicts(wanted));
        found.extend(conflicting.map(|held| i64::from(held.owner)));
    }
    found.sort_unstable();
    found.dedup();
    found
}
