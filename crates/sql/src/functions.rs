//! The functions of expressions: one table of them, by which the binder finds them and `pg_proc` lists them.
//!
//! Owns: names, types and effects of functions. Never: aggregates (`aggregate` has those) or functions that return rows.

mod arrays;
pub(crate) mod conversions;
mod documents;
mod encodings;
mod intervals;
mod numbers;
mod privileges;
mod session;
mod system;
mod templates;
mod texts;

use crate::error::{SqlError, SqlState};
use crate::expr::Env;
use crate::types::SqlType;
use crate::value::Value;

pub(crate) use documents::{canonical, json_array, json_object};
pub(crate) use session::{NEEDS_LOCK, nothing};
pub(crate) use system::{NEEDS_BLOCK, NEEDS_SET};
pub(crate) use texts::{like, quote_ident};

/// The number of the first function in `pg_proc`.
const FIRST_OID: u32 = 9_000;

/// A type of an argument that takes values of any type.
pub(crate) const ANY: SqlType = SqlType::Void;

/// A function.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) arguments: &'static [SqlType],
    pub(crate) result: SqlType,
    /// Set if the last argument may be given any number of times.
    pub(crate) is_variadic: bool,
    /// Set if it is NULL whenever an argument is, and not called then.
    pub(crate) is_strict: bool,
    /// Set if it may return something else each time.
    pub(crate) is_volatile: bool,
    pub(crate) run: fn(&Env, &[Value]) -> Result<Value, SqlError>,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Function {
    pub(crate) fn call(&self, env: &Env, arguments: &[Value]) -> Result<Value, SqlError> {
        if self.is_strict && arguments.iter().any(Value::is_null) {
            return Ok(Value::Null);
        }
        (self.run)(env, arguments)
    }

    /// The type of the argument in a place; `None` if it takes fewer.
    pub(crate) fn argument(&self, at: usize) -> Option<SqlType> {
        let last = self.arguments.last().copied().filter(|_| self.is_variadic);
        self.arguments.get(at).copied().or(last)
    }

    /// Returns true if it may be given so many arguments.
    pub(crate) fn takes(&self, count: usize) -> bool {
        count == self.arguments.len() || (self.is_variadic && count + 1 >= self.arguments.len())
    }
}

type Run = fn(&Env, &[Value]) -> Result<Value, SqlError>;

const fn strict(name: &'static str, arguments: &'static [SqlType], result: SqlType, run: Run) -> Function {
    Function { name, arguments, result, is_variadic: false, is_strict: true, is_volatile: false, run }
}

const fn lenient(name: &'static str, arguments: &'static [SqlType], result: SqlType, run: Run) -> Function {
    Function { name, arguments, result, is_variadic: false, is_strict: false, is_volatile: false, run }
}

const fn variadic(name: &'static str, arguments: &'static [SqlType], result: SqlType, run: Run) -> Function {
    Function { name, arguments, result, is_variadic: true, is_strict: false, is_volatile: false, run }
}

const fn volatile(name: &'static str, arguments: &'static [SqlType], result: SqlType, run: Run) -> Function {
    Function { name, arguments, result, is_variadic: false, is_strict: true, is_volatile: true, run }
}

/// All functions.
pub(crate) fn all() -> impl Iterator<Item = &'static Function> {
    texts::FUNCTIONS
        .iter()
        .chain(numbers::FUNCTIONS)
        .chain(intervals::FUNCTIONS)
        .chain(arrays::FUNCTIONS)
        .chain(encodings::FUNCTIONS)
        .chain(templates::FUNCTIONS)
        .chain(documents::FUNCTIONS)
        .chain(system::FUNCTIONS)
        .chain(privileges::FUNCTIONS)
        .chain(session::FUNCTIONS)
}

/// The functions of a name.
pub(crate) fn named(name: &str) -> impl Iterator<Item = &'static Function> {
    all().filter(move |function| function.name == name)
}

/// All functions with their numbers in `pg_proc`.
pub(crate) fn numbered() -> impl Iterator<Item = (u32, &'static Function)> {
    (FIRST_OID..).zip(all())
}

/// The number of the first function of a name.
pub(crate) fn oid_of(name: &str) -> Option<u32> {
    let own = numbered().find(|(_, function)| function.name == name).map(|(oid, _)| oid);
    own.or_else(|| {
        let mut conversions = conversions::all();
        let found = conversions.find(|(ty, conversion)| conversions::name_of(*ty, *conversion) == name);
        found.map(|(ty, conversion)| conversions::oid_of(ty, conversion))
    })
}

/// The function of a number.
fn of(oid: i64) -> Option<&'static Function> {
    all().nth(usize::try_from(oid - i64::from(FIRST_OID)).ok()?)
}

/// The name of the function of a number.
pub(crate) fn name_of(oid: u32) -> Option<String> {
    let own = of(oid.into()).map(|function| function.name.to_owned());
    own.or_else(|| {
        let mut conversions = conversions::all();
        let found = conversions.find(|(ty, conversion)| conversions::oid_of(*ty, *conversion) == oid);
        found.map(|(ty, conversion)| conversions::name_of(ty, conversion))
    })
}

fn text(values: &[Value], at: usize) -> &str {
    values.get(at).and_then(Value::as_text).unwrap_or("")
}

fn int(values: &[Value], at: usize) -> i64 {
    values.get(at).and_then(Value::as_int).unwrap_or(0)
}

fn float(values: &[Value], at: usize) -> f64 {
    match values.get(at) {
        Some(Value::Float(number)) => *number,
        _ => 0.0,
    }
}

#[cold]
fn invalid_parameter(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_function_is_there_twice() {
        let mut signatures: Vec<_> = all().map(|function| (function.name, function.arguments)).collect();
        let count = signatures.len();
        signatures.sort_unstable();
        signatures.dedup();
        assert_eq!(signatures.len(), count);
        for function in all() {
            assert!(oid_of(function.name).and_then(name_of).as_deref() == Some(function.name));
        }
    }
}
