//! Aggregates of rows in an order that belongs to the call: `name(fraction) WITHIN GROUP (ORDER BY value)`.

use crate::error::{SqlError, SqlState};
use crate::types::SqlType;
use crate::value::Value;

/// An aggregate of ordered rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ordered {
    /// The most frequent value, and the first of several.
    Mode,
    /// The value at a fraction of the way through the rows, between two of them where it is none.
    PercentileCont,
    /// The first value that is at least a fraction of the way through the rows.
    PercentileDisc,
}

impl Ordered {
    pub(super) fn named(name: &str) -> Option<Ordered> {
        Some(match name {
            "mode" => Ordered::Mode,
            "percentile_cont" => Ordered::PercentileCont,
            "percentile_disc" => Ordered::PercentileDisc,
            _ => return None,
        })
    }

    /// Returns true if it takes a fraction, or an array of them.
    pub(crate) fn takes_fraction(self) -> bool {
        self != Ordered::Mode
    }

    /// The type that values of a type are brought to, which is that of the result for one fraction; `None` if it does not take them.
    pub(crate) fn value_type(self, ty: SqlType) -> Option<SqlType> {
        match (self, ty) {
            (Ordered::PercentileCont, SqlType::Interval) => Some(ty),
            (Ordered::PercentileCont, ty) if ty.is_number() => Some(SqlType::Float8),
            (Ordered::PercentileCont, _) => None,
            (_, SqlType::Unknown) => Some(SqlType::Text),
            (_, ty) => Some(ty),
        }
    }

    /// The result for values in their order.
    pub(super) fn finish(self, values: &[Value], fraction: &Value) -> Result<Value, SqlError> {
        if values.is_empty() {
            return Ok(Value::Null);
        }
        match (self, fraction) {
            (Ordered::Mode, _) => Ok(mode(values)),
            (_, Value::Array(fractions)) => fractions
                .iter()
                .map(|fraction| self.percentile(values, fraction))
                .collect::<Result<_, _>>()
                .map(Value::Array),
            _ => self.percentile(values, fraction),
        }
    }

    fn percentile(self, values: &[Value], fraction: &Value) -> Result<Value, SqlError> {
        let Value::Float(fraction) = *fraction else { return Ok(Value::Null) };
        if !(0.0..=1.0).contains(&fraction) {
            let message = format!("percentile value {fraction} is not between 0 and 1");
            return Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message));
        }
        if self == Ordered::PercentileDisc {
            let number = (fraction * values.len() as f64).ceil() as usize;
            return Ok(values[number.max(1) - 1].clone());
        }
        let place = fraction * (values.len() - 1) as f64;
        let (low, high) = (&values[place.floor() as usize], &values[place.ceil() as usize]);
        let part = place - place.floor();
        if part == 0.0 { Ok(low.clone()) } else { between(low, high, part) }
    }
}

/// The value at a part of the way from one to another.
fn between(low: &Value, high: &Value, part: f64) -> Result<Value, SqlError> {
    Ok(match (low, high) {
        (Value::Float(low), Value::Float(high)) => Value::Float(low + part * (high - low)),
        (Value::Interval(low), Value::Interval(high)) => {
            Value::Interval(low.add(high.add(low.negated()?)?.times(part)?)?)
        }
        _ => Value::Null,
    })
}

fn mode(values: &[Value]) -> Value {
    let runs = values.chunk_by(|one, next| one == next);
    let longest = runs.reduce(|best, run| if run.len() > best.len() { run } else { best });
    longest.map_or(Value::Null, |run| run[0].clone())
}
