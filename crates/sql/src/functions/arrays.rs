//! Functions of arrays. Those whose result has the type of an argument are given it by the binder (`bind::functions`).

use std::iter::repeat_n;

use super::texts::MAX_BYTES;
use super::{ANY, Function, int, lenient, strict, text, variadic};
use crate::error::{SqlError, SqlState};
use crate::format::text_of;
use crate::types::SqlType::{Bool, Int4, Int4Array, Text, TextArray};
use crate::value::Value;

pub(super) static FUNCTIONS: &[Function] = &[
    lenient("array_cat", &[ANY, ANY], ANY, |_, a| Ok(concatenated(a))),
    lenient("array_fill", &[ANY, Int4Array], ANY, |_, a| filled(a)),
    lenient("array_fill", &[ANY, Int4Array, Int4Array], ANY, |_, a| filled(a)),
    lenient("array_append", &[ANY, ANY], ANY, |_, a| {
        let mut elements = elements(a, 0).to_vec();
        elements.extend(a.get(1).cloned());
        Ok(Value::Array(elements.into()))
    }),
    lenient("array_prepend", &[ANY, ANY], ANY, |_, a| {
        let mut all: Vec<Value> = a.first().cloned().into_iter().collect();
        all.extend_from_slice(elements(a, 1));
        Ok(Value::Array(all.into()))
    }),
    lenient("array_remove", &[ANY, ANY], ANY, |_, a| match (a.first(), a.get(1)) {
        (Some(Value::Array(all)), Some(gone)) => {
            Ok(Value::Array(all.iter().filter(|element| *element != gone).cloned().collect()))
        }
        _ => Ok(Value::Null),
    }),
    strict("arraycontains", &[ANY, ANY], Bool, |_, a| Ok(Value::Bool(contains(a, 0, 1)))),
    strict("arraycontained", &[ANY, ANY], Bool, |_, a| Ok(Value::Bool(contains(a, 1, 0)))),
    strict("arrayoverlap", &[ANY, ANY], Bool, |_, a| {
        let others = elements(a, 1);
        let is_there = |element: &Value| !element.is_null() && others.contains(element);
        Ok(Value::Bool(elements(a, 0).iter().any(is_there)))
    }),
    strict("array_slice", &[ANY, Int4, Int4], ANY, |_, a| {
        let all = elements(a, 0);
        let first = usize::try_from(int(a, 1).max(1) - 1).unwrap_or(0);
        let end = usize::try_from(int(a, 2).max(0)).unwrap_or(0).min(all.len());
        Ok(Value::Array(all.get(first..end).unwrap_or(&[]).into()))
    }),
    strict("array_length", &[ANY, Int4], Int4, |_, a| Ok(length(a))),
    strict("array_upper", &[ANY, Int4], Int4, |_, a| Ok(length(a))),
    strict("array_lower", &[ANY, Int4], Int4, |_, a| {
        Ok(if length(a).is_null() { Value::Null } else { Value::Int(1) })
    }),
    strict("array_ndims", &[ANY], Int4, |_, a| {
        Ok(if elements(a, 0).is_empty() { Value::Null } else { Value::Int(1) })
    }),
    strict("array_dims", &[ANY], Text, |_, a| match elements(a, 0).len() {
        0 => Ok(Value::Null),
        count => Ok(Value::from(format!("[1:{count}]"))),
    }),
    lenient("array_position", &[ANY, ANY], Int4, |_, a| match (a.first(), a.get(1)) {
        (Some(Value::Array(all)), Some(wanted)) => {
            let at = all.iter().position(|element| element == wanted);
            Ok(at.map_or(Value::Null, |at| Value::Int(at as i64 + 1)))
        }
        _ => Ok(Value::Null),
    }),
    lenient("array_positions", &[ANY, ANY], Int4Array, |_, a| match (a.first(), a.get(1)) {
        (Some(Value::Array(all)), Some(wanted)) => {
            let places = (1..).zip(all.iter()).filter(|(_, element)| *element == wanted);
            Ok(Value::Array(places.map(|(at, _)| Value::Int(at)).collect()))
        }
        _ => Ok(Value::Null),
    }),
    lenient("array_replace", &[ANY, ANY, ANY], ANY, |_, a| match a {
        [Value::Array(all), from, to] => {
            let replaced = all.iter().map(|element| if element == from { to } else { element });
            Ok(Value::Array(replaced.cloned().collect()))
        }
        _ => Ok(Value::Null),
    }),
    strict("trim_array", &[ANY, Int4], ANY, |_, a| {
        let all = elements(a, 0);
        let rest = usize::try_from(int(a, 1)).ok().and_then(|gone| all.len().checked_sub(gone));
        let rest = rest.ok_or_else(|| {
            let message = format!("number of elements to trim must be between 0 and {}", all.len());
            SqlError::new(SqlState("2202E"), message)
        })?;
        Ok(Value::Array(all[..rest].into()))
    }),
    variadic("num_nulls", &[ANY], Int4, |_, a| {
        Ok(Value::Int(a.iter().filter(|value| value.is_null()).count() as i64))
    }),
    variadic("num_nonnulls", &[ANY], Int4, |_, a| {
        Ok(Value::Int(a.iter().filter(|value| !value.is_null()).count() as i64))
    }),
    strict("cardinality", &[ANY], Int4, |_, a| Ok(Value::Int(elements(a, 0).len() as i64))),
    strict("array_to_string", &[ANY, Text], Text, |_, a| Ok(joined(a, None))),
    strict("array_to_string", &[ANY, Text, Text], Text, |_, a| Ok(joined(a, Some(text(a, 2))))),
    lenient("string_to_array", &[Text, Text], TextArray, |_, a| split(a)),
    lenient("string_to_array", &[Text, Text, Text], TextArray, |_, a| split(a)),
];

/// An array of one value, as often as the one element of the second argument says; the first element has the number 1.
fn filled(values: &[Value]) -> Result<Value, SqlError> {
    if values[1..].iter().any(Value::is_null) {
        let message = "dimension array or low bound array cannot be null";
        return Err(SqlError::new(SqlState("22004"), message));
    }
    let (sizes, lower) = (elements(values, 1), values.get(2).map(|_| elements(values, 2)));
    if sizes.iter().chain(lower.unwrap_or_default()).any(Value::is_null) {
        return Err(SqlError::new(SqlState("22004"), "dimension values cannot be null"));
    }
    if lower.is_some_and(|lower| lower.len() != sizes.len()) {
        let message = "wrong number of array subscripts";
        return Err(SqlError::new(SqlState("2202E"), message)
            .detail("Low bound array has different size than dimensions array."));
    }
    let count = match sizes {
        [] => 0,
        [count] => count.as_int().unwrap_or(0),
        _ => return Err(SqlError::unsupported("an array of several dimensions")),
    };
    let count = usize::try_from(count).ok();
    let fits = |count: &usize| count.saturating_mul(bytes_of(&values[0])) <= MAX_BYTES;
    let count = count.filter(fits).ok_or_else(|| {
        SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "the array would be longer than 64 MB")
    })?;
    if count > 0 && lower.is_some_and(|lower| lower.iter().any(|first| first.as_int() != Some(1))) {
        return Err(SqlError::unsupported("an array whose first element has another number than 1"));
    }
    Ok(Value::Array(repeat_n(values[0].clone(), count).collect()))
}

/// The bytes of a value in an array, with those that copies of it share here and have each of their own where they are written.
fn bytes_of(value: &Value) -> usize {
    let shared = match value {
        Value::Text(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::Array(elements) => elements.iter().map(bytes_of).sum(),
        Value::Record(record) => record.values().map(bytes_of).sum(),
        _ => 0,
    };
    size_of::<Value>() + shared
}

fn elements(values: &[Value], at: usize) -> &[Value] {
    match values.get(at) {
        Some(Value::Array(elements)) => elements,
        _ => &[],
    }
}

/// The length in the one dimension; NULL for others, and for an empty array.
fn length(values: &[Value]) -> Value {
    match elements(values, 0).len() {
        0 => Value::Null,
        _ if int(values, 1) != 1 => Value::Null,
        count => Value::Int(count as i64),
    }
}

fn concatenated(values: &[Value]) -> Value {
    match (values.first(), values.get(1)) {
        (Some(Value::Array(one)), Some(Value::Array(other))) => {
            Value::Array(one.iter().chain(other.iter()).cloned().collect())
        }
        (Some(Value::Null), Some(other)) | (Some(other), Some(Value::Null)) => other.clone(),
        _ => Value::Null,
    }
}

fn contains(values: &[Value], whole: usize, part: usize) -> bool {
    let whole = elements(values, whole);
    elements(values, part).iter().all(|element| !element.is_null() && whole.contains(element))
}

fn joined(values: &[Value], null: Option<&str>) -> Value {
    let shown = |element: &Value| match element {
        Value::Null => null.map(str::to_owned),
        Value::Bool(value) => Some(if *value { "t" } else { "f" }.to_owned()),
        element => Some(text_of(element, element.natural_type())),
    };
    let parts: Vec<String> = elements(values, 0).iter().filter_map(shown).collect();
    Value::from(parts.join(text(values, 1)))
}

fn split(values: &[Value]) -> Result<Value, SqlError> {
    let Some(Value::Text(whole)) = values.first() else { return Ok(Value::Null) };
    let parts: Vec<Value> = match values.get(1) {
        _ if whole.is_empty() => Vec::new(),
        Some(Value::Text(separator)) if separator.is_empty() => vec![Value::Text(whole.clone())],
        Some(Value::Text(separator)) => whole.split(&**separator).map(Value::from).collect(),
        _ => whole.chars().map(|c| Value::from(c.to_string())).collect(),
    };
    let is_null = |part: &Value| values.get(2).is_some_and(|null| part == null);
    Ok(Value::Array(parts.into_iter().map(|part| if is_null(&part) { Value::Null } else { part }).collect()))
}
