//! Names of types and objects, as the grammar has them.

use sqlparser::ast;

use super::ident;
use crate::error::{SqlError, SqlState};
use crate::types::{Modifier, SqlType};

/// The type that a statement names.
pub(crate) fn data_type(ty: &ast::DataType) -> Result<(SqlType, Modifier), SqlError> {
    let text = ty.to_string();
    let mut name = String::new();
    let mut numbers: Vec<u64> = Vec::new();
    let mut is_inside = false;
    let mut number = String::new();
    for c in text.chars() {
        match c {
            '(' => is_inside = true,
            ')' | ',' if is_inside => {
                let digits = number.trim();
                numbers.push(digits.parse().map_err(|_| no_type(&text))?);
                number.clear();
                is_inside = c == ',';
            }
            c if is_inside => number.push(c),
            c => name.extend(c.to_lowercase()),
        }
    }
    // `"char"` is another type than `char`.
    let is_quoted_char = name.contains("\"char\"");
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ").replace('"', "");
    let found = match name.strip_prefix("pg_catalog.").unwrap_or(&name) {
        "char" if is_quoted_char => Some(SqlType::Char),
        "char[]" if is_quoted_char => Some(SqlType::CharArray),
        "char" => Some(SqlType::Bpchar),
        "timestamp without time zone" => Some(SqlType::Timestamp),
        "timestamp with time zone" => Some(SqlType::Timestamptz),
        "serial" | "serial4" => Some(SqlType::Int4),
        "bigserial" | "serial8" => Some(SqlType::Int8),
        "smallserial" | "serial2" => Some(SqlType::Int2),
        "float" => Some(if numbers.first().is_some_and(|digits| *digits <= 24) {
            SqlType::Float4
        } else {
            SqlType::Float8
        }),
        other => SqlType::from_name(other),
    };
    // `interval day to second` and the like say which fields are kept; all are here.
    let found = found.or_else(|| name.starts_with("interval ").then_some(SqlType::Interval));
    let found = found.ok_or_else(|| no_type(&text))?;
    Ok((found, modifier(found, &numbers, is_quoted_char)?))
}

fn modifier(ty: SqlType, numbers: &[u64], is_quoted_char: bool) -> Result<Modifier, SqlError> {
    let invalid = |message: String| SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message);
    match (ty, numbers) {
        (SqlType::Bpchar, []) if !is_quoted_char => Ok(Modifier::Length(1)),
        (SqlType::Varchar | SqlType::Bpchar, [length]) => {
            let length = u32::try_from(*length).ok().filter(|length| (1..=10_485_760).contains(length));
            length.map(Modifier::Length).ok_or_else(|| {
                invalid(format!("length for type {ty} must be at least 1 and at most 10485760"))
            })
        }
        (SqlType::Numeric, [precision, rest @ ..]) => {
            let (precision, scale) = (*precision, rest.first().copied().unwrap_or(0));
            if !(1..=38).contains(&precision) {
                return Err(SqlError::unsupported(format!("a numeric of {precision} digits"))
                    .hint("A numeric has from 1 to 38 digits."));
            }
            if scale > precision {
                return Err(SqlError::unsupported(
                    "a numeric with more digits behind the point than there are",
                ));
            }
            Ok(Modifier::Digits(precision as u8, scale as u8))
        }
        // Moments always have six digits behind the second; fewer would have to be rounded to.
        (SqlType::Timestamp | SqlType::Timestamptz | SqlType::Time, [digits]) if *digits < 6 => {
            Err(SqlError::unsupported(format!("{ty} with a precision of {digits}")))
        }
        _ => Ok(Modifier::None),
    }
}

#[cold]
fn no_type(text: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("type \"{}\" does not exist", text.to_lowercase()))
}

/// The schema, if it is named, and the name of a table or function.
pub(crate) fn object_name(name: &ast::ObjectName) -> Result<(Option<String>, String), SqlError> {
    let parts: Option<Vec<String>> = name.0.iter().map(|part| part.as_ident().map(ident)).collect();
    let mut parts = parts.ok_or_else(|| SqlError::unsupported(format!("the name {name}")))?;
    let last = parts.pop().unwrap_or_default();
    let schema = parts.pop();
    match schema.as_deref() {
        None | Some("public" | "pg_catalog" | "information_schema") if parts.len() <= 1 => Ok((schema, last)),
        Some(schema) => {
            Err(SqlError::new(SqlState::INVALID_SCHEMA_NAME, format!("schema \"{schema}\" does not exist")))
        }
        None => Ok((None, last)),
    }
}
