//! Functions that change the session: settings and advisory locks.
//!
//! A function sees the connection's settings as they were given to its statement. What it sets is noted
//! ([`Taken`](crate::session::Taken)), and the connection takes it over when the statement has ended.

use super::{Function, Run, int, text, volatile};
use crate::advisory::{Key, Request};
use crate::error::{SqlError, SqlState};
use crate::expr::Env;
use crate::types::SqlType::{Bool, Int4, Int8, Text, Void};
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
];

/// A function that may wait for a lock, and returns nothing.
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
