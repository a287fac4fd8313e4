//! Composite values, of type `record`: several values, each with a type of its own, as one.
//!
//! Owns: the values, the names of their fields, and how they are written. Never: is a column of a table.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::format::{Format, encode, text_of};
use crate::types::{Modifier, SqlType};
use crate::value::Value;

/// The types of the fields of a composite value, and their names if they are those of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordShape {
    pub(crate) types: Vec<SqlType>,
    /// The names; without them fields are called `f1`, `f2` and so on.
    pub(crate) names: Option<Vec<String>>,
}

impl RecordShape {
    /// The place of the field of a name.
    pub(crate) fn place_of(&self, name: &str) -> Option<usize> {
        (0..self.types.len()).find(|at| self.name(*at) == name)
    }

    /// The name of a field.
    pub(crate) fn name(&self, at: usize) -> String {
        let name = self.names.as_ref().and_then(|names| names.get(at)).cloned();
        name.unwrap_or_else(|| format!("f{}", at + 1))
    }
}

/// A composite value: the types and values of its fields. Two are equal if their values are, whatever they are called.
#[derive(Clone, Debug)]
pub struct Record {
    shape: Arc<RecordShape>,
    values: Vec<Value>,
}

impl PartialEq for Record {
    fn eq(&self, other: &Record) -> bool {
        self.values == other.values
    }
}

impl Eq for Record {}

impl Hash for Record {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.values.hash(state);
    }
}

/// The names and types of the fields of records that have a modifier, in their order.
pub(crate) fn fields(modifier: Modifier) -> Vec<(&'static str, SqlType)> {
    match modifier {
        Modifier::Expanded(element) => vec![("x", element), ("n", SqlType::Int4)],
        Modifier::Member(value) => vec![("key", SqlType::Text), ("value", value)],
        _ => Vec::new(),
    }
}

impl Record {
    /// A value of this shape.
    pub(crate) fn new(shape: Arc<RecordShape>, values: Vec<Value>) -> Record {
        Record { shape, values }
    }

    /// A value of the fields that records with a modifier have.
    pub(crate) fn of_fields(modifier: Modifier, values: Vec<Value>) -> Record {
        let (names, types) = fields(modifier).into_iter().map(|(name, ty)| (name.to_owned(), ty)).unzip();
        Record { shape: Arc::new(RecordShape { types, names: Some(names) }), values }
    }

    /// The values alone.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Value> {
        self.values.iter()
    }

    /// The types and values, in order.
    pub(crate) fn fields(&self) -> impl ExactSizeIterator<Item = (SqlType, &Value)> {
        self.shape.types.iter().copied().zip(&self.values)
    }

    /// The name of a field.
    pub(crate) fn name(&self, at: usize) -> String {
        self.shape.name(at)
    }

    /// Appends it in PostgreSQL's text format: fields in parentheses, in quotes where they need some, NULL as nothing.
    pub(crate) fn encode_text(&self, out: &mut Vec<u8>) {
        out.push(b'(');
        for (at, (ty, value)) in self.fields().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            if value.is_null() {
                continue;
            }
            let text = text_of(value, ty);
            let is_special = |c: char| c.is_whitespace() || matches!(c, '(' | ')' | ',' | '"' | '\\');
            if !text.is_empty() && !text.contains(is_special) {
                out.extend_from_slice(text.as_bytes());
                continue;
            }
            out.push(b'"');
            for byte in text.bytes() {
                if matches!(byte, b'"' | b'\\') {
                    out.push(byte);
                }
                out.push(byte);
            }
            out.push(b'"');
        }
        out.push(b')');
    }

    /// Appends it in PostgreSQL's binary format: the number of fields, then the type, length and bytes of each.
    pub(crate) fn encode_binary(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.values.len() as i32).to_be_bytes());
        for (ty, value) in self.fields() {
            out.extend_from_slice(&ty.oid().to_be_bytes());
            if value.is_null() {
                out.extend_from_slice(&(-1_i32).to_be_bytes());
                continue;
            }
            let at = out.len();
            out.extend_from_slice(&[0; 4]);
            encode(value, ty, Format::Binary, out);
            let length = (out.len() - at - 4) as i32;
            out[at..at + 4].copy_from_slice(&length.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_written_as_postgresql_writes_them() {
        let texts = ["plain", "", "a b", "say \"\\\"", "(1,2)"];
        let mut fields: Vec<_> = texts.map(|text| (SqlType::Text, Value::text(text))).into();
        fields.extend([(SqlType::Int4, Value::Null), (SqlType::Int2, Value::Int(-7))]);
        let mut out = Vec::new();
        let (types, values) = fields.into_iter().unzip();
        Record::new(Arc::new(RecordShape { types, names: None }), values).encode_text(&mut out);
        let text = String::from_utf8(out).expect("texts");
        assert_eq!(text, r#"(plain,"","a b","say ""\\""","(1,2)",,-7)"#);
        let mut out = Vec::new();
        let expanded = Modifier::Expanded(SqlType::Int2);
        Record::of_fields(expanded, vec![Value::Null, Value::Int(3)]).encode_binary(&mut out);
        let expected = [0, 0, 0, 2, 0, 0, 0, 21, 255, 255, 255, 255, 0, 0, 0, 23, 0, 0, 0, 4, 0, 0, 0, 3];
        assert_eq!(out, expected);
    }
}
