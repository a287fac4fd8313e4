//! The functions of expressions: one table of them, by which the binder finds them and `pg_proc` lists them.
//!
//! Owns: names, types and effects of functions, and the rows of those of JSON. Never: aggregates (`aggregate` has those) or which functions
//! return rows (`bind::sets`).

mod arrays;
mod buckets;
mod changes;
pub(crate) mod conversions;
mod curves;
mod documents;
mod elements;
mod encodings;
mod intervals;
mod making;
mod networks;
mod numbers;
mod octets;
mod patterns;
mod privileges;
mod session;
mod sizes;
mod system;
mod templates;
mod texts;

use crate::error::{SqlError, SqlState};
use crate::expr::Env;
use crate::types::SqlType;
use crate::value::Value;

pub(crate) use documents::{canonical, json_array, json_object};
pub(crate) use elements::DocumentRows;
pub(crate) use networks::network_operator;
pub(crate) use session::{NEEDS_LOCK, changes_session, nothing, out_of_place};
pub(crate) use sizes::tells_of_sizes;
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
    /// The names of the arguments; none if they have no names.
    pub(crate) names: &'static [&'static str],
    /// The values of the last arguments where a call leaves them out.
    pub(crate) defaults: &'static [Value],
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

    /// The places of so many arguments, the last of which are given by names; `None` if it does not take them.
    pub(crate) fn places(&self, count: usize, names: &[String]) -> Option<Vec<usize>> {
        let mut places: Vec<usize> = (0..count.checked_sub(names.len())?).collect();
        for name in names {
            let at = self.names.iter().position(|own| own == name).filter(|at| !places.contains(at))?;
            places.push(at);
        }
        let least = self.arguments.len() - self.defaults.len();
        let takes = if self.is_variadic {
            count + 1 >= self.arguments.len()
        } else {
            count <= self.arguments.len() && (0..least).all(|at| places.contains(&at))
        };
        takes.then_some(places)
    }

    /// The value of the argument in a place where a call leaves it out.
    pub(crate) fn default(&self, at: usize) -> Option<&Value> {
        at.checked_sub(self.arguments.len() - self.defaults.len()).and_then(|at| self.defaults.get(at))
    }

    /// The same function with names for its arguments.
    const fn named(self, names: &'static [&'static str]) -> Function {
        Function { names, ..self }
    }

    /// The same function with values for the last arguments, which may be left out.
    const fn defaulting(self, defaults: &'static [Value]) -> Function {
        Function { defaults, ..self }
    }
}

type Run = fn(&Env, &[Value]) -> Result<Value, SqlError>;

const fn function(
    name: &'static str,
    arguments: &'static [SqlType],
    result: SqlType,
    run: Run,
    (is_variadic, is_strict, is_volatile): (bool, bool, bool),
) -> Function {
    Function { name, arguments, names: &[], defaults: &[], result, is_variadic, is_strict, is_volatile, run }
}

const fn strict(name: &'static str, arguments: &'static [SqlType], result: SqlType, run: Run) -> Function {
    function(name, arguments, result, run, (false, true, false))
}

const fn lenient(name: &'static str, arguments: &'static [SqlType], result: SqlType, run: Run) -> Function {
    function(name, arguments, result, run, (false, false, false))
}

const fn variadic(name: &'static str, arguments: &'static [SqlType], result: SqlType, run: Run) -> Function {
    function(name, arguments, result, run, (true, false, false))
}

const fn volatile(name: &'static str, arguments: &'static [SqlType], result: SqlType, run: Run) -> Function {
    function(name, arguments, result, run, (false, true, true))
}

/// All functions.
pub(crate) fn all() -> impl Iterator<Item = &'static Function> {
    texts::FUNCTIONS
        .iter()
        .chain(octets::FUNCTIONS)
        .chain(patterns::FUNCTIONS)
        .chain(numbers::FUNCTIONS)
        .chain(networks::FUNCTIONS)
        .chain(curves::FUNCTIONS)
        .chain(buckets::FUNCTIONS)
        .chain(intervals::FUNCTIONS)
        .chain(making::FUNCTIONS)
        .chain(arrays::FUNCTIONS)
        .chain(encodings::FUNCTIONS)
        .chain(templates::FUNCTIONS)
        .chain(documents::FUNCTIONS)
        .chain(changes::FUNCTIONS)
        .chain(system::FUNCTIONS)
        .chain(sizes::FUNCTIONS)
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
            assert!(function.names.is_empty() || function.names.len() == function.arguments.len());
            assert!(function.defaults.len() <= function.arguments.len());
            assert!(oid_of(function.name).and_then(name_of).as_deref() == Some(function.name));
        }
    }
}
