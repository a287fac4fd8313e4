//! Functions that change the session, settings and advisory locks, and those that make it sleep.
//!
//! A function sees the connection's settings as they were given to its statement. What it sets is noted
//! ([`Taken`](crate::session::Taken)), and the connection takes it over when the statement has ended.

use std::time::Duration;

use super::system::{NEEDS_BLOCK, NEEDS_SET};
use super::{Function, Run, float, int, text, volatile};
use crate::advisory::{Key, Request};
use crate::error::{SqlError, SqlState};
use crate::expr::Env;
use crate::session::now;
use crate::types::SqlType::{Bool, Float8, Int4, Int8, Interval, Text, Timestamptz, Void};
use crate::value::Value;

pub(super) static FUNCTIONS: &[Function] = &[
    volatile("set_config", &[Text, Text, Bool], Text, |env, a| {
        let mut settings = (*env.session.settings).clone();
        settings.set(text(a, 0), text(a, 1))?;
        let is_local = matches!(a.get(2), Some(Value::Bool(true)));
        env.session.taken.set(text(a, 0), text(a, 1), is_local);
        Ok(Value::text(settings.get(text(a, 0))?))
    }),
    waits("pg_advisory_lock", &[Int8], |env, a| lock(env, a, false, false)),
    waits("pg_advisory_lock", &[Int4, Int4], |env, a| lock(env, a, false, false)),
    waits("pg_advisory_lock_shared", &[Int8], |env, a| lock(env, a, true, false)),
    waits("pg_advisory_lock_shared", &[Int4, Int4], |env, a| lock(env, a, true, false)),
    waits("pg_advisory_xact_lock", &[Int8], |env, a| lock(env, a, false, true)),
    waits("pg_advisory_xact_lock", &[Int4, Int4], |env, a| lock(env, a, false, true)),
    waits("pg_advisory_xact_lock_shared", &[Int8], |env, a| lock(env, a, true, true)),
    waits("pg_advisory_xact_lock_shared", &[Int4, Int4], |env, a| lock(env, a, true, true)),
    tells("pg_try_advisory_lock", &[Int8], |env, a| try_lock(env, a, false, false)),
    tells("pg_try_advisory_lock", &[Int4, Int4], |env, a| try_lock(env, a, false, false)),
    tells("pg_try_advisory_lock_shared", &[Int8], |env, a| try_lock(env, a, true, false)),
    tells("pg_try_advisory_lock_shared", &[Int4, Int4], |env, a| try_lock(env, a, true, false)),
    tells("pg_try_advisory_xact_lock", &[Int8], |env, a| try_lock(env, a, false, true)),
    tells("pg_try_advisory_xact_lock", &[Int4, Int4], |env, a| try_lock(env, a, false, true)),
    tells("pg_try_advisory_xact_lock_shared", &[Int8], |env, a| try_lock(env, a, true, true)),
    tells("pg_try_advisory_xact_lock_shared", &[Int4, Int4], |env, a| try_lock(env, a, true, true)),
    tells("pg_advisory_unlock", &[Int8], |env, a| unlock(env, a, false)),
    tells("pg_advisory_unlock", &[Int4, Int4], |env, a| unlock(env, a, false)),
    tells("pg_advisory_unlock_shared", &[Int8], |env, a| unlock(env, a, true)),
    tells("pg_advisory_unlock_shared", &[Int4, Int4], |env, a| unlock(env, a, true)),
    volatile("pg_advisory_unlock_all", &[], Void, |env, _| {
        env.session.connections.advisory.unlock_all(env.session.process_id);
        Ok(nothing())
    }),
    waits("pg_sleep", &[Float8], |env, a| sleep(env, float(a, 0) * 1e6)),
    waits("pg_sleep_for", &[Interval], |env, a| {
        let now = now();
        let until = match a.first() {
            Some(Value::Interval(span)) => span.after(now)?,
            _ => now,
        };
        sleep(env, (until - now) as f64)
    }),
    waits("pg_sleep_until", &[Timestamptz], |env, a| {
        let until = match a.first() {
            Some(Value::Timestamp(until)) => *until,
            _ => i64::MIN,
        };
        sleep(env, until.saturating_sub(now()) as f64)
    }),
];

/// The longest sleep, in microseconds: ten years.
const SLEEP_MAX: f64 = 3.2e14;

/// Lets the statement sleep once it may, behind the expression that the call is in.
fn sleep(env: &Env, micros: f64) -> Result<Value, SqlError> {
    env.session.taken.sleep(Duration::from_micros(micros.clamp(0.0, SLEEP_MAX) as u64));
    Ok(nothing())
}

/// A function that may wait, and returns nothing.
const fn waits(name: &'static str, arguments: &'static [crate::types::SqlType], run: Run) -> Function {
    volatile(name, arguments, Void, run)
}

/// A function that says whether it has done something to a lock.
const fn tells(name: &'static str, arguments: &'static [crate::types::SqlType], run: Run) -> Function {
    volatile(name, arguments, Bool, run)
}

/// The value of a function that returns nothing.
pub(crate) fn nothing() -> Value {
    Value::text("")
}

/// Returns true for the name of one of these functions.
pub(crate) fn changes_session(name: &str) -> bool {
    FUNCTIONS.iter().any(|function| function.name == name)
}

/// The state by which the executor knows that an expression waits for an advisory lock.
pub(crate) const NEEDS_LOCK: SqlState = SqlState("\0lock");

/// Returns the error of a statement in which an expression waits where none can; other errors as they are.
pub(crate) fn out_of_place(error: SqlError) -> SqlError {
    let (what, hint) = match error.code {
        NEEDS_LOCK => (
            "a function that waits for an advisory lock".to_owned(),
            "pg_try_advisory_lock does not wait, and may be called anywhere.",
        ),
        NEEDS_BLOCK => (
            format!("nextval of \"{}\"", error.message),
            "Call it in VALUES, in a SELECT list or as a default.",
        ),
        NEEDS_SET => (format!("setval of \"{}\"", error.message), "Call it in a SELECT list."),
        _ => return error,
    };
    SqlError::new(
        SqlState::FEATURE_NOT_SUPPORTED,
        format!("{what} is not supported in this place of a statement"),
    )
    .hint(hint)
}

fn request(values: &[Value], is_shared: bool, of_transaction: bool) -> Request {
    let key = match values {
        [_, _] => Key::pair(int(values, 0), int(values, 1)),
        _ => Key::single(int(values, 0)),
    };
    Request { key, is_shared, of_transaction }
}

/// Takes a lock if it is free; otherwise tells the executor which one to wait for.
fn lock(env: &Env, values: &[Value], is_shared: bool, of_transaction: bool) -> Result<Value, SqlError> {
    let wanted = request(values, is_shared, of_transaction);
    if env.session.lock_advisory(wanted) {
        return Ok(nothing());
    }
    env.session.taken.wants(wanted);
    Err(SqlError::new(
        NEEDS_LOCK,
        "the function waits for an advisory lock, which it can only as a whole expression",
    ))
}

fn try_lock(env: &Env, values: &[Value], is_shared: bool, of_transaction: bool) -> Result<Value, SqlError> {
    Ok(Value::Bool(env.session.lock_advisory(request(values, is_shared, of_transaction))))
}

fn unlock(env: &Env, values: &[Value], is_shared: bool) -> Result<Value, SqlError> {
    let session = &env.session;
    let given = request(values, is_shared, false);
    Ok(Value::Bool(session.connections.advisory.unlock(session.process_id, given)))
}
