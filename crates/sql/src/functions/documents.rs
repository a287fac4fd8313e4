//! Functions and operators of `json` and `jsonb`, by their names in `pg_proc`.

use super::{ANY, Function, int, lenient, strict, text, variadic};
use crate::error::{SqlError, SqlState};
use crate::expr::Env;
use crate::format::text_of;
use crate::json::{Json as Document, Kind, push_text};
use crate::types::SqlType::{self, Bool, Int4, Json, Jsonb, Text, TextArray};
use crate::value::Value;

pub(super) static FUNCTIONS: &[Function] = &[
    strict("json_object_field", &[Json, Text], Json, |_, a| part(a, Json, |d| d.get_key(text(a, 1)))),
    strict("json_object_field_text", &[Json, Text], Text, |_, a| {
        part_text(a, Json, |d| d.get_key(text(a, 1)))
    }),
    strict("json_array_element", &[Json, Int4], Json, |_, a| part(a, Json, |d| d.at(int(a, 1)))),
    strict("json_array_element_text", &[Json, Int4], Text, |_, a| part_text(a, Json, |d| d.at(int(a, 1)))),
    strict("json_extract_path", &[Json, TextArray], Json, |_, a| part(a, Json, |d| walk(d, &a[1]))),
    strict("json_extract_path_text", &[Json, TextArray], Text, |_, a| part_text(a, Json, |d| walk(d, &a[1]))),
    strict("jsonb_object_field", &[Jsonb, Text], Jsonb, |_, a| part(a, Jsonb, |d| d.get_key(text(a, 1)))),
    strict("jsonb_object_field_text", &[Jsonb, Text], Text, |_, a| {
        part_text(a, Jsonb, |d| d.get_key(text(a, 1)))
    }),
    strict("jsonb_array_element", &[Jsonb, Int4], Jsonb, |_, a| part(a, Jsonb, |d| d.at(int(a, 1)))),
    strict("jsonb_array_element_text", &[Jsonb, Int4], Text, |_, a| part_text(a, Jsonb, |d| d.at(int(a, 1)))),
    strict("jsonb_extract_path", &[Jsonb, TextArray], Jsonb, |_, a| part(a, Jsonb, |d| walk(d, &a[1]))),
    strict("jsonb_extract_path_text", &[Jsonb, TextArray], Text, |_, a| {
        part_text(a, Jsonb, |d| walk(d, &a[1]))
    }),
    strict("jsonb_contains", &[Jsonb, Jsonb], Bool, |_, a| {
        Ok(Value::Bool(read(a, 0, Jsonb)?.contains(&read(a, 1, Jsonb)?)))
    }),
    strict("jsonb_contained", &[Jsonb, Jsonb], Bool, |_, a| {
        Ok(Value::Bool(read(a, 1, Jsonb)?.contains(&read(a, 0, Jsonb)?)))
    }),
    strict("jsonb_exists", &[Jsonb, Text], Bool, |_, a| {
        let is_text = |element: &Document| matches!(&element.kind, Kind::Text(own) if own == text(a, 1));
        Ok(Value::Bool(match &read(a, 0, Jsonb)?.kind {
            Kind::Object(members) => members.iter().any(|(name, _)| name == text(a, 1)),
            Kind::Array(elements) => elements.iter().any(is_text),
            Kind::Text(own) => own == text(a, 1),
            _ => false,
        }))
    }),
    strict("jsonb_concat", &[Jsonb, Jsonb], Jsonb, |_, a| {
        concatenated(read(a, 0, Jsonb)?, read(a, 1, Jsonb)?)
    }),
    strict("jsonb_delete", &[Jsonb, Text], Jsonb, |_, a| {
        let mut document = read(a, 0, Jsonb)?;
        match &mut document.kind {
            Kind::Object(members) => members.retain(|(name, _)| name != text(a, 1)),
            Kind::Array(elements) => {
                elements.retain(|element| !matches!(&element.kind, Kind::Text(own) if own == text(a, 1)));
            }
            _ => return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "cannot delete from scalar")),
        }
        Ok(Value::from(document.shown()))
    }),
    strict("json_typeof", &[Json], Text, |_, a| Ok(Value::text(read(a, 0, Json)?.type_name()))),
    strict("jsonb_typeof", &[Jsonb], Text, |_, a| Ok(Value::text(read(a, 0, Jsonb)?.type_name()))),
    strict("json_array_length", &[Json], Int4, |_, a| length(&read(a, 0, Json)?)),
    strict("jsonb_array_length", &[Jsonb], Int4, |_, a| length(&read(a, 0, Jsonb)?)),
    variadic("json_build_array", &[ANY], Json, |_, a| Ok(Value::from(json_array(a)))),
    variadic("jsonb_build_array", &[ANY], Jsonb, |_, a| canonical(&json_array(a))),
    variadic("json_build_object", &[ANY], Json, |_, a| json_object(a, "{", "}").map(Value::from)),
    variadic("jsonb_build_object", &[ANY], Jsonb, |_, a| canonical(&json_object(a, "{", "}")?)),
    lenient("to_json", &[ANY], Json, of_value),
    lenient("row_to_json", &[SqlType::Record], Json, of_value),
    lenient("to_jsonb", &[ANY], Jsonb, |env, a| match of_value(env, a)? {
        Value::Text(text) => canonical(&text),
        other => Ok(other),
    }),
];

impl Document {
    /// The value of a key of an object.
    fn get_key(&self, key: &str) -> Option<&Document> {
        if matches!(self.kind, Kind::Object(_)) { self.get(key) } else { None }
    }
}

pub(super) fn read(values: &[Value], at: usize, ty: SqlType) -> Result<Document, SqlError> {
    Document::read(text(values, at), ty)
}

/// The one form of a document of type `jsonb`.
pub(crate) fn canonical(text: &str) -> Result<Value, SqlError> {
    Ok(Value::from(Document::read(text, Jsonb)?.shown()))
}

fn part(
    values: &[Value],
    ty: SqlType,
    find: impl Fn(&Document) -> Option<&Document>,
) -> Result<Value, SqlError> {
    let document = read(values, 0, ty)?;
    Ok(find(&document).map_or(Value::Null, |part| Value::text(part.slice(text(values, 0)))))
}

fn part_text(
    values: &[Value],
    ty: SqlType,
    find: impl Fn(&Document) -> Option<&Document>,
) -> Result<Value, SqlError> {
    let document = read(values, 0, ty)?;
    Ok(match find(&document).map(|part| (&part.kind, part)) {
        None | Some((Kind::Null, _)) => Value::Null,
        Some((Kind::Text(own), _)) => Value::text(own),
        Some((_, part)) => Value::text(part.slice(text(values, 0))),
    })
}

fn walk<'d>(document: &'d Document, path: &Value) -> Option<&'d Document> {
    let Value::Array(path) = path else { return None };
    path.iter().try_fold(document, |part, key| part.get(key.as_text()?))
}

fn length(document: &Document) -> Result<Value, SqlError> {
    match &document.kind {
        Kind::Array(elements) => Ok(Value::Int(elements.len() as i64)),
        _ => Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "cannot get array length of a non-array")),
    }
}

fn concatenated(mut one: Document, other: Document) -> Result<Value, SqlError> {
    one.kind = match (one.kind.clone(), other.kind.clone()) {
        (Kind::Object(mut members), Kind::Object(others)) => {
            members.extend(others);
            Kind::Object(members)
        }
        (Kind::Array(mut elements), Kind::Array(others)) => {
            elements.extend(others);
            Kind::Array(elements)
        }
        (Kind::Array(mut elements), _) => {
            elements.push(other);
            Kind::Array(elements)
        }
        (_, Kind::Array(others)) => Kind::Array(std::iter::once(one.clone()).chain(others).collect()),
        (Kind::Object(_), _) | (_, Kind::Object(_)) => {
            return Err(SqlError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                "invalid concatenation of jsonb objects",
            ));
        }
        _ => Kind::Array(vec![one.clone(), other]),
    };
    Ok(Value::from(one.shown()))
}

/// Appends a value as JSON: numbers and truth values as they are, all else as a text. A value does not say whether it is JSON: the
/// binder hands values of JSON types on as they are, and brings others to JSON before.
fn push_value(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Int(_) | Value::Numeric(_) => out.push_str(&text_of(value, value.natural_type())),
        Value::Float(number) if number.is_finite() => out.push_str(&text_of(value, SqlType::Float8)),
        Value::Timestamp(_) => push_text(&text_of(value, SqlType::Timestamp).replace(' ', "T"), out),
        Value::Array(elements) => {
            out.push('[');
            for (at, element) in elements.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                push_value(element, out);
            }
            out.push(']');
        }
        Value::Record(record) => {
            out.push('{');
            for (at, (ty, value)) in record.fields().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                push_text(&record.name(at), out);
                out.push(':');
                push_typed(value, ty, out);
            }
            out.push('}');
        }
        value => push_text(&text_of(value, value.natural_type()), out),
    }
}

/// The same for a value of a type: one that is JSON is no text in it.
fn push_typed(value: &Value, ty: SqlType, out: &mut String) {
    match value.as_text() {
        Some(document) if matches!(ty, Json | Jsonb) => out.push_str(document),
        _ => push_value(value, out),
    }
}

fn of_value(_: &Env, values: &[Value]) -> Result<Value, SqlError> {
    let Some(value) = values.first().filter(|value| !value.is_null()) else { return Ok(Value::Null) };
    let mut out = String::new();
    push_value(value, &mut out);
    Ok(Value::from(out))
}

/// An array of values that are texts of JSON.
pub(crate) fn json_array(values: &[Value]) -> String {
    let mut out = String::from("[");
    for (at, value) in values.iter().enumerate() {
        out.push_str(if at > 0 { ", " } else { "" });
        out.push_str(value.as_text().unwrap_or("null"));
    }
    out.push(']');
    out
}

/// An object of keys and values, one after the other; the values are texts of JSON.
pub(crate) fn json_object(values: &[Value], begin: &str, end: &str) -> Result<String, SqlError> {
    if values.len() % 2 == 1 {
        return Err(SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            "argument list must have even number of elements",
        ));
    }
    let mut out = String::from(begin);
    for (at, pair) in values.chunks_exact(2).enumerate() {
        if pair[0].is_null() {
            return Err(SqlError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                "argument of a key must not be null",
            ));
        }
        out.push_str(if at > 0 { ", " } else { "" });
        push_text(&text_of(&pair[0], pair[0].natural_type()), &mut out);
        out.push_str(" : ");
        out.push_str(pair[1].as_text().unwrap_or("null"));
    }
    out.push_str(end);
    Ok(out)
}
