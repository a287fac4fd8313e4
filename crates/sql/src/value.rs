//! Values of expressions, columns and parameters, and their order.
//!
//! Owns: [`Value`] and how two of one type compare. Never: converts one (`cast`) or writes one (`format`).

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::interval::Interval;
use crate::network::Network;
use crate::numeric::Numeric;
use crate::record::Record;
use crate::types::SqlType;

/// A value. Its [`SqlType`] is known from its place: several types have one kind of values.
#[derive(Clone, Debug)]
pub enum Value {
    /// NULL.
    Null,
    /// A `boolean`.
    Bool(bool),
    /// An integer of any size, or the number of an object.
    Int(i64),
    /// A number of a floating-point type.
    Float(f64),
    /// A `numeric`.
    Numeric(Numeric),
    /// A text of any type. One of type `character(n)` is here without the spaces that pad it.
    Text(Arc<str>),
    /// A `bytea`.
    Bytes(Arc<[u8]>),
    /// A `date`: days since 1970-01-01.
    Date(i32),
    /// A `time`: microseconds since midnight.
    Time(i64),
    /// A `timestamp` or `timestamptz`: microseconds since 1970-01-01 00:00 (UTC).
    Timestamp(i64),
    /// An `interval`.
    Interval(Interval),
    /// A `uuid`.
    Uuid([u8; 16]),
    /// An `inet` or a `cidr`.
    Network(Network),
    /// An array, of one dimension.
    Array(Arc<[Value]>),
    /// A composite value.
    Record(Arc<Record>),
}

impl Value {
    /// A text.
    #[must_use]
    pub fn text(text: impl AsRef<str>) -> Value {
        Value::Text(Arc::from(text.as_ref()))
    }

    /// Returns true if it is NULL.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The text, if it is one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The integer, if it is one.
    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// The type that a value has when nothing else says which.
    #[must_use]
    pub fn natural_type(&self) -> SqlType {
        match self {
            Value::Null => SqlType::Unknown,
            Value::Bool(_) => SqlType::Bool,
            Value::Int(_) => SqlType::Int8,
            Value::Float(_) => SqlType::Float8,
            Value::Numeric(_) => SqlType::Numeric,
            Value::Text(_) => SqlType::Text,
            Value::Bytes(_) => SqlType::Bytea,
            Value::Date(_) => SqlType::Date,
            Value::Time(_) => SqlType::Time,
            Value::Timestamp(_) => SqlType::Timestamp,
            Value::Interval(_) => SqlType::Interval,
            Value::Uuid(_) => SqlType::Uuid,
            Value::Network(own) if own.is_cidr => SqlType::Cidr,
            Value::Network(_) => SqlType::Inet,
            Value::Record(_) => SqlType::Record,
            Value::Array(elements) => elements
                .iter()
                .find(|element| !element.is_null())
                .and_then(|element| element.natural_type().array())
                .unwrap_or(SqlType::TextArray),
        }
    }

    /// The order of two values of one type, as `ORDER BY` has it: NULL is greater than all others, as is a number that is none.
    /// Texts are compared byte by byte (collation `C`).
    #[must_use]
    pub fn total_cmp(&self, other: &Value) -> Ordering {
        match (self, other) {
            (Value::Null, Value::Null) => Ordering::Equal,
            (Value::Null, _) => Ordering::Greater,
            (_, Value::Null) => Ordering::Less,
            (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
            (Value::Int(one), Value::Int(other)) => one.cmp(other),
            (Value::Float(one), Value::Float(other)) => compare_floats(*one, *other),
            (Value::Numeric(one), Value::Numeric(other)) => one.cmp(other),
            (Value::Text(one), Value::Text(other)) => one.cmp(other),
            (Value::Bytes(one), Value::Bytes(other)) => one.cmp(other),
            (Value::Date(one), Value::Date(other)) => one.cmp(other),
            (Value::Time(one), Value::Time(other)) | (Value::Timestamp(one), Value::Timestamp(other)) => {
                one.cmp(other)
            }
            (Value::Interval(one), Value::Interval(other)) => one.cmp(other),
            (Value::Uuid(one), Value::Uuid(other)) => one.cmp(other),
            (Value::Network(one), Value::Network(other)) => one.cmp(other),
            (Value::Array(one), Value::Array(other)) => compare_lists(one.iter(), other.iter()),
            (Value::Record(one), Value::Record(other)) => compare_lists(one.values(), other.values()),
            // The binder brings both sides to one type.
            (one, other) => one.kind().cmp(&other.kind()),
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Value::Null => 0,
            Value::Bool(_) => 1,
            Value::Int(_) => 2,
            Value::Float(_) => 3,
            Value::Numeric(_) => 4,
            Value::Text(_) => 5,
            Value::Bytes(_) => 6,
            Value::Date(_) => 7,
            Value::Time(_) => 8,
            Value::Timestamp(_) => 9,
            Value::Uuid(_) => 10,
            Value::Array(_) => 11,
            Value::Interval(_) => 12,
            Value::Record(_) => 13,
            Value::Network(_) => 14,
        }
    }
}

/// The order of lists of values: that of the first two that differ, or else the shorter one comes first.
fn compare_lists<'v>(
    mut ones: impl Iterator<Item = &'v Value>,
    mut others: impl Iterator<Item = &'v Value>,
) -> Ordering {
    loop {
        let order = match (ones.next(), others.next()) {
            (None, None) => return Ordering::Equal,
            (Some(one), Some(other)) => one.total_cmp(other),
            (one, other) => one.is_some().cmp(&other.is_some()),
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// The order of numbers in which those that are none come last, and zero has no sign.
fn compare_floats(one: f64, other: f64) -> Ordering {
    one.partial_cmp(&other).unwrap_or_else(|| one.is_nan().cmp(&other.is_nan()))
}

/// Equal as for `GROUP BY` and `DISTINCT`: NULL is equal to NULL.
impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        self.total_cmp(other) == Ordering::Equal
    }
}

impl Eq for Value {}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kind().hash(state);
        match self {
            Value::Null => {}
            Value::Bool(value) => value.hash(state),
            Value::Int(number) | Value::Time(number) | Value::Timestamp(number) => number.hash(state),
            Value::Float(number) if *number == 0.0 => 0_u64.hash(state),
            Value::Float(number) if number.is_nan() => 1_u64.hash(state),
            Value::Float(number) => number.to_bits().hash(state),
            Value::Numeric(number) => number.hash(state),
            Value::Text(text) => text.hash(state),
            Value::Bytes(bytes) => bytes.hash(state),
            Value::Date(days) => days.hash(state),
            Value::Uuid(uuid) => uuid.hash(state),
            Value::Network(own) => own.hash(state),
            Value::Interval(span) => span.hash(state),
            Value::Array(elements) => elements.hash(state),
            Value::Record(record) => record.hash(state),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::text(text)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(Arc::from(text))
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Int(number)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Bool(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_and_what_is_no_number_come_last() {
        let mut values =
            [Value::Null, Value::Float(f64::NAN), Value::Float(1.0), Value::Float(f64::INFINITY)];
        values.sort_by(Value::total_cmp);
        assert!(matches!(values[0], Value::Float(1.0)));
        assert!(values[3].is_null());
        assert_eq!(Value::Float(0.0), Value::Float(-0.0));
        assert_eq!(
            Value::Numeric(Numeric::parse("1.50").unwrap()),
            Value::Numeric(Numeric::parse("1.5").unwrap())
        );
    }
}
