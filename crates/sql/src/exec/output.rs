//! Rows as the messages that a client gets.

use std::borrow::Cow;
use std::time::Duration;

use crate::cast::name_of;
use crate::error::{SqlError, SqlState};
use crate::expr::Row;
use crate::format::{Format, encode};
use crate::plan::OutputColumn;
use crate::schema::Schema;
use crate::types::SqlType;
use crate::value::Value;

/// The answer of a statement.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Whole DataRow messages, one after the other.
    pub(crate) messages: Vec<u8>,
    pub(crate) count: usize,
    pub(crate) tag: Cow<'static, str>,
    /// The time that it took, if it was run together with others.
    pub(crate) took: Duration,
}

impl Answer {
    /// The answer of a statement that returns no rows.
    pub(crate) fn of_tag(tag: impl Into<Cow<'static, str>>) -> Answer {
        Answer { messages: Vec::new(), count: 0, tag: tag.into(), took: Duration::ZERO }
    }

    /// The tag of a query that returns so many rows.
    pub(crate) fn tag_of_rows(count: usize) -> Cow<'static, str> {
        match count {
            0 => Cow::Borrowed("SELECT 0"),
            1 => Cow::Borrowed("SELECT 1"),
            count => Cow::Owned(format!("SELECT {count}")),
        }
    }

    /// The tag of a statement that has changed so many rows: `words` and the number, or `one` as it is if that is one, as for most.
    pub(crate) fn tag_of_changes(words: &str, count: usize, one: &'static str) -> Cow<'static, str> {
        match count {
            1 => Cow::Borrowed(one),
            count => Cow::Owned(format!("{words} {count}")),
        }
    }

    /// The number of rows that were returned or changed, as the tag tells it.
    pub(crate) fn rows(&self) -> usize {
        self.tag.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(self.count)
    }
}

/// Encodes rows as DataRow messages.
pub(crate) fn encode_rows(
    rows: &[Row],
    columns: &[OutputColumn],
    formats: &[Format],
    schema: &Schema,
    max_bytes: usize,
) -> Result<Vec<u8>, SqlError> {
    // Room for a short row.
    let mut out = Vec::with_capacity(if rows.len() == 1 { 16 + 12 * columns.len() } else { 0 });
    for row in rows {
        let start = out.len();
        out.extend_from_slice(&[b'D', 0, 0, 0, 0]);
        out.extend_from_slice(&(columns.len() as i16).to_be_bytes());
        for (at, (column, value)) in columns.iter().zip(row).enumerate() {
            let format = Format::of(formats, at);
            push_value(value, column, format, schema, &mut out);
        }
        let length = (out.len() - start - 1) as i32;
        out[start + 1..start + 5].copy_from_slice(&length.to_be_bytes());
        if out.len() > max_bytes {
            return Err(SqlError::new(
                SqlState::PROGRAM_LIMIT_EXCEEDED,
                format!("the answer has more than {max_bytes} bytes"),
            )
            .hint("Give the statement a LIMIT, or ask for fewer columns."));
        }
    }
    Ok(out)
}

fn push_value(value: &Value, column: &OutputColumn, format: Format, schema: &Schema, out: &mut Vec<u8>) {
    if value.is_null() {
        out.extend_from_slice(&(-1_i32).to_be_bytes());
        return;
    }
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    match value {
        Value::Int(number) if format == Format::Text && column.ty.is_oid() && column.ty != SqlType::Oid => {
            out.extend_from_slice(name_of(*number as u32, column.ty, schema).as_bytes());
        }
        Value::Text(text) if column.ty == SqlType::Bpchar => {
            out.extend_from_slice(text.as_bytes());
            let padding = super::padding(text, column.modifier);
            out.resize(out.len() + padding, b' ');
        }
        value => encode(value, column.ty, format, out),
    }
    let length = (out.len() - at - 4) as i32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}
