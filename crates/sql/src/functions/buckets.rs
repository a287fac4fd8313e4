//! `width_bucket`: the number of the bucket of a histogram that a value falls into.

use num_bigint::BigUint;

use super::{ANY, Function, float, int, strict};
use crate::error::{SqlError, SqlState};
use crate::format::out_of_range;
use crate::numeric::Numeric;
use crate::types::SqlType::{Float8, Int4, Numeric as Num};
use crate::value::Value;

pub(super) static FUNCTIONS: &[Function] = &[
    strict("width_bucket", &[Num, Num, Num, Int4], Int4, |_, a| match a {
        [Value::Numeric(value), Value::Numeric(low), Value::Numeric(high), _] => {
            exact(*value, *low, *high, count(a)?)
        }
        _ => Ok(Value::Null),
    }),
    strict("width_bucket", &[Float8, Float8, Float8, Int4], Int4, |_, a| {
        floating(float(a, 0), float(a, 1), float(a, 2), count(a)?)
    }),
    strict("width_bucket", &[ANY, ANY], Int4, |_, a| match a {
        [value, Value::Array(thresholds)] if !thresholds.iter().any(Value::is_null) => {
            let place = thresholds.partition_point(|threshold| threshold.total_cmp(value).is_le());
            Ok(Value::Int(place as i64))
        }
        _ => Err(SqlError::new(SqlState("22004"), "thresholds array must not contain NULLs")),
    }),
];

#[cold]
fn invalid(message: &str) -> SqlError {
    SqlError::new(SqlState("2201G"), message)
}

/// The number of buckets.
fn count(values: &[Value]) -> Result<u32, SqlError> {
    let count = u32::try_from(int(values, 3)).unwrap_or(0);
    if count > 0 { Ok(count) } else { Err(invalid("count must be greater than zero")) }
}

/// The bucket behind the last one.
fn behind(count: u32) -> Result<Value, SqlError> {
    let number = i64::from(count) + 1;
    if i32::try_from(number).is_ok() { Ok(Value::Int(number)) } else { Err(out_of_range(Int4)) }
}

/// The bucket of an exact number: bounds may go down.
fn exact(value: Numeric, low: Numeric, high: Numeric, count: u32) -> Result<Value, SqlError> {
    if low == high {
        return Err(invalid("lower bound cannot equal upper bound"));
    }
    let is_up = low < high;
    let is_before = if is_up { value < low } else { value > low };
    if is_before {
        return Ok(Value::Int(0));
    }
    let is_behind = if is_up { value >= high } else { value <= high };
    if is_behind {
        return behind(count);
    }
    let scale = value.scale.max(low.scale).max(high.scale);
    let whole = |number: Numeric| number.rescale(scale).map(|number| number.unscaled);
    let low = whole(low)?;
    let (inside, width) = (whole(value)?.abs_diff(low), whole(high)?.abs_diff(low));
    // It is less than the number of buckets, as the value is before the end.
    let before = u32::try_from(BigUint::from(inside) * count / width).unwrap_or(count);
    Ok(Value::Int(i64::from(before) + 1))
}

fn floating(value: f64, low: f64, high: f64, count: u32) -> Result<Value, SqlError> {
    if value.is_nan() || low.is_nan() || high.is_nan() {
        return Err(invalid("operand, lower bound, and upper bound cannot be NaN"));
    }
    if low.is_infinite() || high.is_infinite() {
        return Err(invalid("lower and upper bounds must be finite"));
    }
    if low == high {
        return Err(invalid("lower bound cannot equal upper bound"));
    }
    // Bounds that go down are those of the numbers with other signs.
    let (value, low, high) = if low < high { (value, low, high) } else { (-value, -low, -high) };
    if value < low {
        return Ok(Value::Int(0));
    }
    if value >= high {
        return behind(count);
    }
    let exact = f64::from(count) * (value - low) / (high - low);
    // Halves have room where the numbers have none, and parts where the product has none.
    let part = || (value / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0);
    let number =
        if exact.is_finite() && (high - low).is_finite() { exact } else { f64::from(count) * part() };
    Ok(Value::Int(((number + 1.0) as i64).min(count.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(value: &str, low: &str, high: &str, count: u32) -> Option<i64> {
        let number = |text: &str| Numeric::parse(text).unwrap();
        exact(number(value), number(low), number(high), count).ok()?.as_int()
    }

    #[test]
    fn exact_buckets_begin_where_they_say() {
        assert_eq!(bucket("0", "0", "10", 5), Some(1));
        assert_eq!(bucket("1.9999999999999999999999999999", "0", "10", 5), Some(1));
        assert_eq!(bucket("2", "0", "10", 5), Some(2));
        assert_eq!(bucket("10", "0", "10", 5), Some(6));
        assert_eq!(bucket("-0.1", "0", "10", 5), Some(0));
        assert_eq!(bucket("10", "10", "0", 5), Some(1));
        assert_eq!(bucket("0", "10", "0", 5), Some(6));
        assert_eq!(bucket("11", "10", "0", 5), Some(0));
        let most = "99999999999999999999999999999999999999";
        assert_eq!(bucket("1", &format!("-{most}"), most, i32::MAX as u32), Some(1 << 30));
        assert_eq!(bucket("10", "0", "10", i32::MAX as u32), None);
    }

    #[test]
    fn wide_bounds_of_floats_have_buckets() {
        let bucket =
            |value, low, high| floating(value, low, high, 10).ok().and_then(|bucket| bucket.as_int());
        assert_eq!(bucket(1e308, -1.7e308, 1.7e308), Some(8));
        assert_eq!(bucket(1e308, 0.0, 1.7e308), Some(6));
        assert_eq!(bucket(-1.6e308, 1.7e308, -1.7e308), Some(10));
    }
}
