//! Functions of numbers, dates and times.

use super::intervals::unknown_unit;
use super::{Function, float, int, invalid_parameter, nothing, strict, text, volatile};
use crate::datetime::{DAY, date_of_days, days_of_date};
use crate::error::{SqlError, SqlState};
use crate::format::out_of_range;
use crate::numeric::Numeric;
use crate::types::SqlType::{self, Float8, Int4, Int8, Numeric as Num, Text, Timestamp, Timestamptz, Void};
use crate::value::Value;

pub(super) static FUNCTIONS: &[Function] = &[
    strict("scale", &[Num], Int4, |_, a| Ok(Value::Int(number(a, 0).scale.into()))),
    strict("min_scale", &[Num], Int4, |_, a| Ok(Value::Int(trimmed(number(a, 0)).scale.into()))),
    strict("trim_scale", &[Num], Num, |_, a| Ok(num(a, 0, trimmed))),
    strict("abs", &[Int4], Int4, |_, a| absolute(int(a, 0), Int4)),
    strict("abs", &[Int8], Int8, |_, a| absolute(int(a, 0), Int8)),
    strict("abs", &[Num], Num, |_, a| Ok(num(a, 0, |n| if n.unscaled < 0 { n.negate() } else { n }))),
    strict("abs", &[Float8], Float8, |_, a| Ok(Value::Float(float(a, 0).abs()))),
    strict("round", &[Num], Num, |_, a| number(a, 0).rescale(0).map(Value::Numeric)),
    strict("round", &[Num, Int4], Num, |_, a| round(number(a, 0), int(a, 1))),
    strict("round", &[Float8], Float8, |_, a| Ok(Value::Float(float(a, 0).round_ties_even()))),
    strict("trunc", &[Num], Num, |_, a| truncate(number(a, 0))),
    strict("trunc", &[Num, Int4], Num, |_, a| {
        let scale = u8::try_from(int(a, 1).clamp(0, 38)).unwrap_or(38);
        let factor = Numeric { unscaled: 1, scale };
        let rest = number(a, 0).checked_rem(factor)?;
        number(a, 0).checked_sub(rest)?.rescale(scale).map(Value::Numeric)
    }),
    strict("div", &[Num, Num], Num, |_, a| {
        let rest = number(a, 0).checked_rem(number(a, 1))?;
        number(a, 0).checked_sub(rest)?.checked_div(number(a, 1))?.rescale(0).map(Value::Numeric)
    }),
    strict("gcd", &[Int4, Int4], Int4, |_, a| gcd(int(a, 0), int(a, 1), Int4).map(Value::Int)),
    strict("gcd", &[Int8, Int8], Int8, |_, a| gcd(int(a, 0), int(a, 1), Int8).map(Value::Int)),
    strict("lcm", &[Int4, Int4], Int4, |_, a| lcm(int(a, 0), int(a, 1), Int4)),
    strict("lcm", &[Int8, Int8], Int8, |_, a| lcm(int(a, 0), int(a, 1), Int8)),
    strict("log", &[Float8], Float8, |_, a| logarithm(float(a, 0), f64::log10)),
    strict("log10", &[Float8], Float8, |_, a| logarithm(float(a, 0), f64::log10)),
    strict("cbrt", &[Float8], Float8, |_, a| Ok(Value::Float(float(a, 0).cbrt()))),
    strict("degrees", &[Float8], Float8, |_, a| finite(float(a, 0).to_degrees())),
    strict("radians", &[Float8], Float8, |_, a| Ok(Value::Float(float(a, 0).to_radians()))),
    strict("factorial", &[Int8], Num, |_, a| {
        let last = i128::from(int(a, 0));
        if last < 0 {
            return Err(SqlError::new(
                SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                "factorial of a negative number is undefined",
            ));
        }
        let product = (1..=last.min(40)).try_fold(1_i128, i128::checked_mul);
        product.map(|product| Value::Numeric(Numeric::of_integer(product))).ok_or_else(|| out_of_range(Num))
    }),
    strict("trunc", &[Float8], Float8, |_, a| Ok(Value::Float(float(a, 0).trunc()))),
    strict("floor", &[Num], Num, |_, a| floor(number(a, 0))),
    strict("floor", &[Float8], Float8, |_, a| Ok(Value::Float(float(a, 0).floor()))),
    strict("ceil", &[Num], Num, |_, a| floor(number(a, 0).negate()).map(|v| num(&[v], 0, Numeric::negate))),
    strict("ceil", &[Float8], Float8, |_, a| Ok(Value::Float(float(a, 0).ceil()))),
    strict("ceiling", &[Num], Num, |_, a| {
        floor(number(a, 0).negate()).map(|v| num(&[v], 0, Numeric::negate))
    }),
    strict("ceiling", &[Float8], Float8, |_, a| Ok(Value::Float(float(a, 0).ceil()))),
    strict("mod", &[Int4, Int4], Int4, |_, a| modulo(int(a, 0), int(a, 1))),
    strict("mod", &[Int8, Int8], Int8, |_, a| modulo(int(a, 0), int(a, 1))),
    strict("mod", &[Num, Num], Num, |_, a| number(a, 0).checked_rem(number(a, 1)).map(Value::Numeric)),
    strict("sign", &[Num], Num, |_, a| Ok(num(a, 0, |n| Numeric::of_integer(n.unscaled.signum())))),
    strict("sign", &[Float8], Float8, |_, a| {
        let number = float(a, 0);
        Ok(Value::Float(if number == 0.0 { 0.0 } else { number.signum() }))
    }),
    strict("power", &[Float8, Float8], Float8, |_, a| finite(float(a, 0).powf(float(a, 1)))),
    strict("pow", &[Float8, Float8], Float8, |_, a| finite(float(a, 0).powf(float(a, 1)))),
    strict("sqrt", &[Float8], Float8, |_, a| {
        if float(a, 0) < 0.0 {
            return Err(SqlError::new(SqlState("2201F"), "cannot take square root of a negative number"));
        }
        Ok(Value::Float(float(a, 0).sqrt()))
    }),
    strict("exp", &[Float8], Float8, |_, a| finite(float(a, 0).exp())),
    strict("ln", &[Float8], Float8, |_, a| logarithm(float(a, 0), f64::ln)),
    strict("pi", &[], Float8, |_, _| Ok(Value::Float(std::f64::consts::PI))),
    volatile("random", &[], Float8, |env, _| {
        Ok(Value::Float(env.session.taken.seeded().unwrap_or_else(random)))
    }),
    volatile("setseed", &[Float8], Void, |env, a| {
        let seed = float(a, 0);
        if !(-1.0..=1.0).contains(&seed) {
            let message = format!("setseed parameter {seed} is out of allowed range [-1,1]");
            return Err(invalid_parameter(message));
        }
        env.session.taken.seed(seed);
        Ok(nothing())
    }),
    strict("date_trunc", &[Text, Timestamp], Timestamp, |_, a| date_trunc(text(a, 0), moment(a, 1))),
    strict("date_trunc", &[Text, Timestamptz], Timestamptz, |_, a| date_trunc(text(a, 0), moment(a, 1))),
    strict("extract", &[Text, Timestamp], Num, |_, a| extract(text(a, 0), moment(a, 1))),
    strict("extract", &[Text, Timestamptz], Num, |_, a| extract(text(a, 0), moment(a, 1))),
    strict("date_part", &[Text, Timestamp], Float8, |_, a| part(text(a, 0), moment(a, 1))),
    strict("date_part", &[Text, Timestamptz], Float8, |_, a| part(text(a, 0), moment(a, 1))),
    strict("to_timestamp", &[Float8], Timestamptz, |_, a| {
        let micros = float(a, 0) * 1e6;
        if !(-9e18..9e18).contains(&micros) {
            return Err(SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp out of range"));
        }
        Ok(Value::Timestamp(micros.round() as i64))
    }),
];

fn number(values: &[Value], at: usize) -> Numeric {
    match values.get(at) {
        Some(Value::Numeric(number)) => *number,
        _ => Numeric::of_integer(0),
    }
}

/// The number without zeros at the end of its fraction.
fn trimmed(mut number: Numeric) -> Numeric {
    while number.scale > 0 && number.unscaled % 10 == 0 {
        number = Numeric { unscaled: number.unscaled / 10, scale: number.scale - 1 };
    }
    number
}

fn num(values: &[Value], at: usize, change: impl Fn(Numeric) -> Numeric) -> Value {
    Value::Numeric(change(number(values, at)))
}

fn moment(values: &[Value], at: usize) -> i64 {
    match values.get(at) {
        Some(Value::Timestamp(moment)) => *moment,
        _ => 0,
    }
}

fn absolute(number: i64, ty: SqlType) -> Result<Value, SqlError> {
    let number = number.checked_abs().ok_or_else(|| out_of_range(ty))?;
    crate::format::fit_integer(number, ty).map(Value::Int)
}

fn modulo(one: i64, other: i64) -> Result<Value, SqlError> {
    if other == 0 {
        return Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
    }
    Ok(Value::Int(one.wrapping_rem(other)))
}

fn logarithm(number: f64, of: fn(f64) -> f64) -> Result<Value, SqlError> {
    if number > 0.0 {
        return Ok(Value::Float(of(number)));
    }
    Err(SqlError::new(SqlState("2201E"), "cannot take logarithm of a number that is not positive"))
}

fn gcd(one: i64, other: i64, ty: SqlType) -> Result<i64, SqlError> {
    let (mut one, mut other) = (one.unsigned_abs(), other.unsigned_abs());
    while other != 0 {
        (one, other) = (other, one % other);
    }
    let number = i64::try_from(one).map_err(|_| out_of_range(ty))?;
    crate::format::fit_integer(number, ty)
}

fn lcm(one: i64, other: i64, ty: SqlType) -> Result<Value, SqlError> {
    if one == 0 || other == 0 {
        return Ok(Value::Int(0));
    }
    let multiple = (one / gcd(one, other, Int8)?).checked_mul(other).and_then(i64::checked_abs);
    crate::format::fit_integer(multiple.ok_or_else(|| out_of_range(ty))?, ty).map(Value::Int)
}

fn finite(number: f64) -> Result<Value, SqlError> {
    if number.is_finite() {
        return Ok(Value::Float(number));
    }
    Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow"))
}

fn round(number: Numeric, places: i64) -> Result<Value, SqlError> {
    if places >= 0 {
        let scale = u8::try_from(places.min(38)).unwrap_or(38);
        return number.rescale(scale).map(Value::Numeric);
    }
    let Some(factor) = 10_i128.checked_pow(u32::try_from(-places.max(-39)).unwrap_or(39)) else {
        return Ok(Value::Numeric(Numeric::of_integer(0)));
    };
    let whole = Numeric::of_integer(factor);
    let quotient = number.checked_div(whole)?.rescale(0)?;
    quotient.checked_mul(whole).map(Value::Numeric)
}

fn truncate(number: Numeric) -> Result<Value, SqlError> {
    let rest = number.checked_rem(Numeric::of_integer(1))?;
    number.checked_sub(rest)?.rescale(0).map(Value::Numeric)
}

fn floor(number: Numeric) -> Result<Value, SqlError> {
    let rest = number.checked_rem(Numeric::of_integer(1))?;
    let whole = number.checked_sub(rest)?.rescale(0)?;
    let below = if rest.unscaled < 0 { whole.checked_sub(Numeric::of_integer(1))? } else { whole };
    Ok(Value::Numeric(below))
}

/// A number from 0 up to 1, from the hasher's random keys and a counter: good enough for samples, and not for secrets.
fn random() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    use std::sync::atomic::{AtomicU64, Ordering};
    thread_local! {
        static KEYS: RandomState = RandomState::new();
    }
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let bits = KEYS.with(|keys| keys.hash_one(COUNT.fetch_add(1, Ordering::Relaxed)));
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

fn date_trunc(unit: &str, moment: i64) -> Result<Value, SqlError> {
    let days = moment.div_euclid(DAY);
    let (year, month, _) = date_of_days(days);
    let of = |size: i64| Ok(Value::Timestamp(moment.div_euclid(size) * size));
    let on = |year: i64, month: i64| Ok(Value::Timestamp(days_of_date(year, month, 1) * DAY));
    match unit.to_ascii_lowercase().as_str() {
        "microseconds" => of(1),
        "milliseconds" => of(1000),
        "second" => of(1_000_000),
        "minute" => of(60_000_000),
        "hour" => of(3_600_000_000),
        "day" => of(DAY),
        // 1970-01-01 was a Thursday.
        "week" => Ok(Value::Timestamp(((days + 3).div_euclid(7) * 7 - 3) * DAY)),
        "month" => on(year, month),
        "quarter" => on(year, (month - 1) / 3 * 3 + 1),
        "year" => on(year, 1),
        "decade" => on(year.div_euclid(10) * 10, 1),
        // The first century began with the year 1.
        "century" => on((year - 1).div_euclid(100) * 100 + 1, 1),
        "millennium" => on((year - 1).div_euclid(1000) * 1000 + 1, 1),
        _ => Err(unknown_unit(unit, Timestamp)),
    }
}

fn extract(field: &str, moment: i64) -> Result<Value, SqlError> {
    let (days, time) = (moment.div_euclid(DAY), moment.rem_euclid(DAY));
    let (year, month, day) = date_of_days(days);
    let whole = |number: i64| Ok(Value::Numeric(Numeric::of_integer(number.into())));
    let micros = |number: i64| Ok(Value::Numeric(Numeric { unscaled: number.into(), scale: 6 }));
    match field.to_ascii_lowercase().as_str() {
        "year" => whole(year),
        "month" => whole(month),
        "day" => whole(day),
        "quarter" => whole((month - 1) / 3 + 1),
        "hour" => whole(time / 3_600_000_000),
        "minute" => whole(time / 60_000_000 % 60),
        "second" => micros(time % 60_000_000),
        "milliseconds" => Ok(Value::Numeric(Numeric { unscaled: (time % 60_000_000).into(), scale: 3 })),
        "microseconds" => whole(time % 60_000_000),
        "epoch" => micros(moment),
        "dow" => whole((days + 4).rem_euclid(7)),
        "isodow" => whole((days + 3).rem_euclid(7) + 1),
        "doy" => whole(days - days_of_date(year, 1, 1) + 1),
        "week" => whole(iso_week(days).1),
        "isoyear" => whole(iso_week(days).0),
        "decade" => whole(year.div_euclid(10)),
        "century" => whole((year - 1).div_euclid(100) + 1),
        "millennium" => whole((year - 1).div_euclid(1000) + 1),
        // The sessions' zone is UTC.
        "timezone" | "timezone_hour" | "timezone_minute" => whole(0),
        _ => Err(unknown_unit(field, Timestamp)),
    }
}

/// The year and the number of a day's week: weeks begin on Mondays, and belong to the year that has their Thursday.
pub(super) fn iso_week(days: i64) -> (i64, i64) {
    let thursday = (days + 3).div_euclid(7) * 7;
    let (year, _, _) = date_of_days(thursday);
    (year, (thursday - days_of_date(year, 1, 1)) / 7 + 1)
}

fn part(field: &str, moment: i64) -> Result<Value, SqlError> {
    match extract(field, moment)? {
        Value::Numeric(number) => Ok(Value::Float(number.to_f64())),
        other => Ok(other),
    }
}
