//! Conversions of values between types.
//!
//! Owns: which types become which, by themselves or when a statement says so, and how. Never: infers a type; `bind` does.

use std::sync::Arc;

use crate::datetime::DAY;
use crate::error::{SqlError, SqlState};
use crate::format::{fit_integer, out_of_range, parse, text_of, without_padding};
use crate::json::{Json, Kind};
use crate::numeric::Numeric;
use crate::schema::Schema;
use crate::types::{Modifier, SqlType};
use crate::value::Value;

/// When a conversion may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Castability {
    /// Anywhere.
    Implicit,
    /// In the assignment of a value to a column.
    Assignment,
    /// By a cast that the statement has.
    Explicit,
}

/// Returns when values of one type become those of another; `None` if never.
pub(crate) fn castability(from: SqlType, to: SqlType) -> Option<Castability> {
    use SqlType::{Bool, Bpchar, Date, Int4, Numeric, Text, Time, Timestamp, Timestamptz, Unknown, Varchar};
    if from == to || from == Unknown {
        return Some(Castability::Implicit);
    }
    let rank = |ty| match ty {
        SqlType::Int2 => Some(0),
        Int4 => Some(1),
        SqlType::Int8 => Some(2),
        Numeric => Some(3),
        SqlType::Float4 => Some(4),
        SqlType::Float8 => Some(5),
        _ => None,
    };
    if let (Some(one), Some(other)) = (rank(from), rank(to)) {
        return Some(if one < other { Castability::Implicit } else { Castability::Assignment });
    }
    match (from, to) {
        (Date, Timestamp | Timestamptz) | (Timestamp, Timestamptz) | (Time, SqlType::Interval) => {
            Some(Castability::Implicit)
        }
        (Timestamptz, Timestamp | Date | Time) | (Timestamp, Date | Time) | (SqlType::Interval, Time) => {
            Some(Castability::Assignment)
        }
        (SqlType::Cidr, SqlType::Inet) => Some(Castability::Implicit),
        (SqlType::Inet, SqlType::Cidr) => Some(Castability::Assignment),
        (Bool, Int4) | (Int4, Bool) => Some(Castability::Explicit),
        (Numeric, Bool) | (Bool, Numeric) => None,
        (one, other) if one.is_oid() && other.is_oid() => Some(Castability::Implicit),
        (one, other) if one.is_integer() && other.is_oid() => Some(Castability::Implicit),
        (one, Int4 | SqlType::Int8) if one.is_oid() => Some(Castability::Assignment),
        (one, other) if one.is_text() && matches!(other, Text | Varchar | Bpchar | SqlType::Name) => {
            Some(Castability::Implicit)
        }
        (one, SqlType::Regclass) if one.is_text() => Some(Castability::Implicit),
        (one, other) if one.element().is_some() && other.element().is_some() => {
            castability(one.element()?, other.element()?)
        }
        (_, Text | Varchar | Bpchar) => Some(Castability::Assignment),
        (one, _) if one.is_text() => Some(Castability::Explicit),
        (SqlType::Jsonb, other) if other.is_number() || other == Bool => Some(Castability::Explicit),
        (SqlType::Json, SqlType::Jsonb) | (SqlType::Jsonb, SqlType::Json) => Some(Castability::Assignment),
        _ => None,
    }
}

/// Converts a value of a type to another type, and to what its modifier asks for. Texts that are too long are cut if `explicit`,
/// and refused otherwise.
pub(crate) fn cast(
    value: Value,
    from: SqlType,
    to: SqlType,
    modifier: Modifier,
    explicit: bool,
    schema: &Schema,
) -> Result<Value, SqlError> {
    if value.is_null() {
        return Ok(value);
    }
    let converted = if from == to { value } else { convert(value, from, to, schema)? };
    narrow(converted, to, modifier, explicit)
}

/// Brings a value of a type to what a modifier asks for.
pub(crate) fn narrow(
    value: Value,
    ty: SqlType,
    modifier: Modifier,
    explicit: bool,
) -> Result<Value, SqlError> {
    match (modifier, value) {
        (Modifier::Digits(precision, scale), Value::Numeric(number)) => {
            number.fit(precision, scale).map(Value::Numeric)
        }
        (Modifier::Length(length), Value::Text(text)) => {
            let length = length as usize;
            // As many bytes as characters at least.
            if text.len() <= length || text.chars().count() <= length {
                return Ok(Value::Text(text));
            }
            let at = text.char_indices().nth(length).map_or(text.len(), |(at, _)| at);
            if explicit || text[at..].bytes().all(|byte| byte == b' ') {
                return Ok(Value::text(&text[..at]));
            }
            Err(SqlError::new(
                SqlState::STRING_DATA_RIGHT_TRUNCATION,
                format!("value too long for type {}", crate::types::format_type(ty, modifier)),
            ))
        }
        (_, value) => Ok(value),
    }
}

fn convert(value: Value, from: SqlType, to: SqlType, schema: &Schema) -> Result<Value, SqlError> {
    if from == SqlType::Jsonb && (to.is_number() || to == SqlType::Bool) {
        return of_document(value.as_text().unwrap_or(""), to);
    }
    if to.is_number() {
        return to_number(value, to);
    }
    if to.is_oid() {
        return to_oid(value, to, schema);
    }
    if to.is_text() {
        return Ok(match value {
            Value::Text(text) if to == SqlType::Bpchar => Value::text(without_padding(&text)),
            Value::Text(text) => Value::Text(text),
            Value::Network(own) => Value::from(own.text(true)),
            Value::Bool(value) => Value::text(if value { "true" } else { "false" }),
            Value::Int(number) if from.is_oid() && from != SqlType::Oid => {
                Value::from(name_of(number as u32, from, schema))
            }
            value => Value::from(text_of(&value, from)),
        });
    }
    match (value, to) {
        (Value::Text(text), _) => parse(&text, to),
        (Value::Network(own), _) => Ok(Value::Network(own.of_type(to))),
        (Value::Int(number), SqlType::Bool) => Ok(Value::Bool(number != 0)),
        (Value::Date(days), SqlType::Timestamp | SqlType::Timestamptz) => {
            Ok(Value::Timestamp(i64::from(days) * DAY))
        }
        (Value::Time(time), SqlType::Interval) => {
            Ok(Value::Interval(crate::interval::Interval { micros: time, ..Default::default() }))
        }
        (Value::Interval(span), SqlType::Time) => Ok(Value::Time(span.micros.rem_euclid(DAY))),
        (Value::Timestamp(moment), SqlType::Date) => Ok(Value::Date(moment.div_euclid(DAY) as i32)),
        (Value::Timestamp(moment), SqlType::Time) => Ok(Value::Time(moment.rem_euclid(DAY))),
        (Value::Array(elements), _) if to.element().is_some() => {
            let (one, other) =
                (from.element().unwrap_or(SqlType::Text), to.element().unwrap_or(SqlType::Text));
            let each = |element: &Value| cast(element.clone(), one, other, Modifier::None, true, schema);
            let elements: Result<Vec<Value>, SqlError> = elements.iter().map(each).collect();
            Ok(Value::Array(Arc::from(elements?)))
        }
        // The zone of sessions is UTC, so that moments with and without one are the same numbers.
        (value, _) => Ok(value),
    }
}

fn to_number(value: Value, to: SqlType) -> Result<Value, SqlError> {
    let integer = |number: i128| {
        let number = i64::try_from(number).map_err(|_| out_of_range(to))?;
        fit_integer(number, to).map(Value::Int)
    };
    Ok(match (value, to) {
        (Value::Text(text), _) => parse(&text, to)?,
        (Value::Bool(value), _) => Value::Int(value.into()),
        (Value::Int(number), SqlType::Numeric) => Value::Numeric(Numeric::of_integer(number.into())),
        (Value::Int(number), SqlType::Float4) => Value::Float(f64::from(number as f32)),
        (Value::Int(number), SqlType::Float8) => Value::Float(number as f64),
        (Value::Int(number), _) => integer(number.into())?,
        (Value::Numeric(number), SqlType::Numeric) => Value::Numeric(number),
        (Value::Numeric(number), SqlType::Float4) => Value::Float(f64::from(number.to_f64() as f32)),
        (Value::Numeric(number), SqlType::Float8) => Value::Float(number.to_f64()),
        (Value::Numeric(number), _) => integer(number.round_to_integer())?,
        (Value::Float(number), SqlType::Numeric) => Value::Numeric(Numeric::of_f64(number, 15)?),
        (Value::Float(number), SqlType::Float4) => Value::Float(f64::from(number as f32)),
        (Value::Float(number), SqlType::Float8) => Value::Float(number),
        (Value::Float(number), _) => {
            let rounded = number.round_ties_even();
            if !(-9.3e18..9.3e18).contains(&rounded) {
                return Err(out_of_range(to));
            }
            integer(rounded as i128)?
        }
        (other, _) => {
            return Err(SqlError::new(
                SqlState::CANNOT_COERCE,
                format!("cannot cast type {} to {to}", other.natural_type()),
            ));
        }
    })
}

/// The number or truth value that a document of type `jsonb` is.
fn of_document(document: &str, to: SqlType) -> Result<Value, SqlError> {
    match Json::read(document, SqlType::Jsonb)?.kind {
        Kind::Bool(value) if to == SqlType::Bool => Ok(Value::Bool(value)),
        Kind::Number(digits) if to == SqlType::Float8 || to == SqlType::Float4 => parse(&digits, to),
        Kind::Number(digits) if to != SqlType::Bool => {
            to_number(Value::Numeric(Numeric::parse(&digits)?), to)
        }
        kind => {
            let word = match kind {
                Kind::Number(_) => "numeric",
                Kind::Array(_) | Kind::Object(_) => "array or object",
                Kind::Null => "null",
                Kind::Bool(_) => "boolean",
                Kind::Text(_) => "string",
            };
            Err(SqlError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("cannot cast jsonb {word} to type {to}"),
            ))
        }
    }
}

/// The number of an object, by its number or its name.
fn to_oid(value: Value, to: SqlType, schema: &Schema) -> Result<Value, SqlError> {
    let text = match value {
        Value::Text(text) => text,
        Value::Int(number) => return fit_integer(number, SqlType::Oid).map(Value::Int),
        other => return Ok(other),
    };
    if let Ok(number) = text.trim().parse::<u32>() {
        return Ok(Value::Int(number.into()));
    }
    let name = unquoted(&text);
    let found = match to {
        SqlType::Regclass => schema.oid_of(&name).ok_or_else(|| crate::schema::no_relation(&name))?,
        SqlType::Regtype => SqlType::from_name(&name).map(SqlType::oid).ok_or_else(|| {
            SqlError::new(SqlState::UNDEFINED_OBJECT, format!("type \"{name}\" does not exist"))
        })?,
        SqlType::Regnamespace => crate::catalogs::namespace_of(&name).ok_or_else(|| {
            SqlError::new(SqlState::INVALID_SCHEMA_NAME, format!("schema \"{name}\" does not exist"))
        })?,
        SqlType::Regproc => crate::functions::oid_of(&name).ok_or_else(|| {
            SqlError::new(SqlState::UNDEFINED_FUNCTION, format!("function \"{name}\" does not exist"))
        })?,
        _ => return parse(&text, to),
    };
    Ok(Value::Int(found.into()))
}

/// A name without its schema and quotes.
pub(crate) fn unquoted(text: &str) -> String {
    let name = text.trim();
    let name = ["pg_catalog.", "public.", "information_schema."]
        .iter()
        .find_map(|schema| name.strip_prefix(schema))
        .unwrap_or(name);
    match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => name.to_lowercase(),
    }
}

/// The name that a number is shown as in a type of numbers of objects.
pub(crate) fn name_of(oid: u32, ty: SqlType, schema: &Schema) -> String {
    let found = match ty {
        _ if oid == 0 => Some("-".to_owned()),
        SqlType::Regclass => schema.name_of(oid),
        SqlType::Regtype => SqlType::from_oid(oid).map(|ty| ty.name().to_owned()),
        SqlType::Regnamespace => crate::catalogs::namespace_name(oid).map(str::to_owned),
        SqlType::Regproc => crate::functions::name_of(oid),
        _ => None,
    };
    found.unwrap_or_else(|| oid.to_string())
}
