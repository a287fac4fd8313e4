//! Functions of intervals, and the operators of dates, times and intervals, by their names in `pg_proc`.

use super::{Function, float, invalid_parameter, lenient, strict, text};
use crate::datetime::DAY;
use crate::error::{SqlError, SqlState};
use crate::interval::Interval;
use crate::numeric::Numeric;
use crate::types::SqlType::{
    self, Bool, Date, Float8, Interval as Span, Numeric as Num, Text, Time, Timestamp, Timestamptz,
};
use crate::value::Value;

pub(super) static FUNCTIONS: &[Function] = &[
    strict("interval_pl", &[Span, Span], Span, |_, a| span(a, 0).add(span(a, 1)).map(Value::Interval)),
    strict("interval_mi", &[Span, Span], Span, |_, a| {
        span(a, 0).add(span(a, 1).negated()?).map(Value::Interval)
    }),
    strict("interval_um", &[Span], Span, |_, a| span(a, 0).negated().map(Value::Interval)),
    strict("interval_mul", &[Span, Float8], Span, |_, a| span(a, 0).times(float(a, 1)).map(Value::Interval)),
    strict("interval_div", &[Span, Float8], Span, |_, a| {
        if float(a, 1) == 0.0 {
            return Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
        }
        span(a, 0).times(1.0 / float(a, 1)).map(Value::Interval)
    }),
    strict("timestamp_pl_interval", &[Timestamp, Span], Timestamp, |_, a| after(a, span(a, 1))),
    strict("timestamp_mi_interval", &[Timestamp, Span], Timestamp, |_, a| after(a, span(a, 1).negated()?)),
    strict("timestamptz_pl_interval", &[Timestamptz, Span], Timestamptz, |_, a| after(a, span(a, 1))),
    strict("timestamptz_mi_interval", &[Timestamptz, Span], Timestamptz, |_, a| {
        after(a, span(a, 1).negated()?)
    }),
    strict("timestamp_mi", &[Timestamp, Timestamp], Span, |_, a| {
        Interval::between(moment(a, 1), moment(a, 0)).map(Value::Interval)
    }),
    strict("timestamptz_mi", &[Timestamptz, Timestamptz], Span, |_, a| {
        Interval::between(moment(a, 1), moment(a, 0)).map(Value::Interval)
    }),
    strict("time_pl_interval", &[Time, Span], Time, |_, a| {
        Ok(Value::Time((time(a, 0) + span(a, 1).micros % DAY).rem_euclid(DAY)))
    }),
    strict("time_mi_interval", &[Time, Span], Time, |_, a| {
        Ok(Value::Time((time(a, 0) - span(a, 1).micros % DAY).rem_euclid(DAY)))
    }),
    strict("time_mi_time", &[Time, Time], Span, |_, a| {
        Ok(Value::Interval(Interval { micros: time(a, 0) - time(a, 1), ..Interval::default() }))
    }),
    strict("datetime_pl", &[Date, Time], Timestamp, |_, a| match a.first() {
        Some(Value::Date(days)) => Ok(Value::Timestamp(i64::from(*days) * DAY + time(a, 1))),
        _ => Ok(Value::Null),
    }),
    strict("age", &[Timestamp, Timestamp], Span, |_, a| {
        Interval::age(moment(a, 0), moment(a, 1)).map(Value::Interval)
    }),
    strict("age", &[Timestamptz, Timestamptz], Span, |_, a| {
        Interval::age(moment(a, 0), moment(a, 1)).map(Value::Interval)
    }),
    strict("age", &[Timestamp], Span, |env, a| {
        let today = env.session.began.div_euclid(DAY) * DAY;
        Interval::age(today, moment(a, 0)).map(Value::Interval)
    }),
    strict("justify_hours", &[Span], Span, |_, a| span(a, 0).justified(true, false).map(Value::Interval)),
    strict("justify_days", &[Span], Span, |_, a| span(a, 0).justified(false, true).map(Value::Interval)),
    strict("justify_interval", &[Span], Span, |_, a| span(a, 0).justified(true, true).map(Value::Interval)),
    strict("isfinite", &[Timestamp], Bool, |_, _| Ok(Value::Bool(true))),
    strict("isfinite", &[Span], Bool, |_, _| Ok(Value::Bool(true))),
    strict("date_bin", &[Span, Timestamp, Timestamp], Timestamp, |_, a| date_bin(a)),
    strict("date_bin", &[Span, Timestamptz, Timestamptz], Timestamptz, |_, a| date_bin(a)),
    strict("extract", &[Text, Span], Num, |_, a| extract(text(a, 0), span(a, 1))),
    strict("extract", &[Text, Time], Num, |_, a| extract_time(text(a, 0), time(a, 1))),
    strict("date_part", &[Text, Span], Float8, |_, a| as_float(extract(text(a, 0), span(a, 1))?)),
    strict("date_part", &[Text, Time], Float8, |_, a| as_float(extract_time(text(a, 0), time(a, 1))?)),
    strict("date_trunc", &[Text, Span], Span, |_, a| truncate(text(a, 0), span(a, 1)).map(Value::Interval)),
    lenient("overlaps", &[Timestamp, Timestamp, Timestamp, Timestamp], Bool, |_, a| overlap(a)),
    lenient("overlaps", &[Timestamp, Timestamp, Timestamp, Span], Bool, |_, a| overlap(a)),
    lenient("overlaps", &[Timestamp, Span, Timestamp, Timestamp], Bool, |_, a| overlap(a)),
    lenient("overlaps", &[Timestamp, Span, Timestamp, Span], Bool, |_, a| overlap(a)),
    lenient("overlaps", &[Timestamptz, Timestamptz, Timestamptz, Timestamptz], Bool, |_, a| overlap(a)),
    lenient("overlaps", &[Timestamptz, Timestamptz, Timestamptz, Span], Bool, |_, a| overlap(a)),
    lenient("overlaps", &[Timestamptz, Span, Timestamptz, Timestamptz], Bool, |_, a| overlap(a)),
    lenient("overlaps", &[Timestamptz, Span, Timestamptz, Span], Bool, |_, a| overlap(a)),
    lenient("overlaps", &[Time, Time, Time, Time], Bool, |_, a| overlap(a)),
    lenient("overlaps", &[Time, Time, Time, Span], Bool, |_, a| overlap(a)),
    lenient("overlaps", &[Time, Span, Time, Time], Bool, |_, a| overlap(a)),
    lenient("overlaps", &[Time, Span, Time, Span], Bool, |_, a| overlap(a)),
    strict("timezone", &[Text, Timestamp], Timestamptz, |_, a| in_zone(text(a, 0), moment(a, 1), -1)),
    strict("timezone", &[Text, Timestamptz], Timestamp, |_, a| in_zone(text(a, 0), moment(a, 1), 1)),
];

/// The first moment that a timestamp may be, in 4713 BC.
const FIRST_MOMENT: i64 = -210_866_803_200_000_000;

/// The beginning of the bin that a moment is in, where one begins at the third argument and each is as long as the first.
fn date_bin(values: &[Value]) -> Result<Value, SqlError> {
    let (stride, moment, origin) = (span(values, 0), moment(values, 1), moment(values, 2));
    if stride.months != 0 {
        return Err(SqlError::unsupported(
            "timestamps cannot be binned into intervals containing months or years",
        ));
    }
    let wrong = |message| SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, message);
    let length = i64::from(stride.days).checked_mul(DAY).and_then(|days| days.checked_add(stride.micros));
    let length = length.ok_or_else(|| wrong("interval out of range"))?;
    if length <= 0 {
        return Err(wrong("stride must be greater than zero"));
    }
    let since = moment.checked_sub(origin).ok_or_else(|| wrong("interval out of range"))?;
    let begin = moment.checked_sub(since.rem_euclid(length)).filter(|begin| *begin >= FIRST_MOMENT);
    begin.map(Value::Timestamp).ok_or_else(|| wrong("timestamp out of range"))
}

fn span(values: &[Value], at: usize) -> Interval {
    match values.get(at) {
        Some(Value::Interval(span)) => *span,
        _ => Interval::default(),
    }
}

fn moment(values: &[Value], at: usize) -> i64 {
    match values.get(at) {
        Some(Value::Timestamp(moment)) => *moment,
        _ => 0,
    }
}

fn time(values: &[Value], at: usize) -> i64 {
    match values.get(at) {
        Some(Value::Time(time)) => *time,
        _ => 0,
    }
}

fn after(values: &[Value], span: Interval) -> Result<Value, SqlError> {
    span.after(moment(values, 0)).map(Value::Timestamp)
}

/// Returns true for the names of UTC.
pub(super) fn is_utc(zone: &str) -> bool {
    matches!(&zone.trim().to_ascii_uppercase()[..], "UTC" | "GMT" | "Z" | "ETC/UTC" | "ZULU" | "UCT")
}

/// A moment as the clocks of a zone show it (`direction` 1), or the moment that they show so. Zones are UTC and offsets from it.
fn in_zone(zone: &str, moment: i64, direction: i64) -> Result<Value, SqlError> {
    let trimmed = zone.trim();
    if is_utc(trimmed) {
        return Ok(Value::Timestamp(moment));
    }
    // A bare offset counts westward, as in POSIX.
    let offset = Interval::parse(trimmed).ok().filter(|_| trimmed.contains(':'));
    match offset {
        Some(offset) => Ok(Value::Timestamp(moment - direction * offset.micros)),
        None => Err(invalid_parameter(format!("time zone \"{zone}\" not recognized"))
            .hint("The zones are UTC and offsets from it, such as '-02:00'.")),
    }
}

/// The end of a period that begins with the value in a place: the next value, or the moment that it is after the beginning.
fn end_of(values: &[Value], at: usize) -> Result<Value, SqlError> {
    Ok(match (&values[at], &values[at + 1]) {
        (Value::Null, Value::Interval(_)) => Value::Null,
        (Value::Timestamp(moment), Value::Interval(span)) => Value::Timestamp(span.after(*moment)?),
        (Value::Time(time), Value::Interval(span)) => Value::Time((time + span.micros % DAY).rem_euclid(DAY)),
        (_, end) => end.clone(),
    })
}

/// The beginning and the end of a period, in their order; the one that is there comes first. `None` if there is none.
fn period(values: &[Value], at: usize) -> Result<Option<(Value, Value)>, SqlError> {
    let (start, end) = (values[at].clone(), end_of(values, at)?);
    if start.is_null() && end.is_null() {
        return Ok(None);
    }
    // NULL is greater than all others.
    Ok(Some(if start.total_cmp(&end).is_le() { (start, end) } else { (end, start) }))
}

/// Returns whether two periods overlap: each has its beginning, and not its end unless that is its beginning, too. NULL if an end that
/// is not known decides.
fn overlap(values: &[Value]) -> Result<Value, SqlError> {
    let (Some(one), Some(other)) = (period(values, 0)?, period(values, 2)?) else { return Ok(Value::Null) };
    let (first, second) = if one.0.total_cmp(&other.0).is_le() { (one, other) } else { (other, one) };
    let is_known = !first.1.is_null() && !second.1.is_null();
    Ok(match second.0.total_cmp(&first.0).is_eq() {
        true if is_known => Value::Bool(true),
        false if !first.1.is_null() && second.0.total_cmp(&first.1).is_lt() => Value::Bool(true),
        false if is_known => Value::Bool(false),
        _ => Value::Null,
    })
}

fn whole(number: i64) -> Value {
    Value::Numeric(Numeric::of_integer(number.into()))
}

fn as_float(value: Value) -> Result<Value, SqlError> {
    match value {
        Value::Numeric(number) => Ok(Value::Float(number.to_f64())),
        other => Ok(other),
    }
}

fn extract(field: &str, span: Interval) -> Result<Value, SqlError> {
    let (years, seconds) = (i64::from(span.months / 12), span.micros % 60_000_000);
    let micros = |number: i128| Value::Numeric(Numeric { unscaled: number, scale: 6 });
    Ok(match &field.to_ascii_lowercase()[..] {
        "millennium" => whole(years / 1000),
        "century" => whole(years / 100),
        "decade" => whole(years / 10),
        "year" => whole(years),
        "quarter" => whole(i64::from(span.months % 12 / 3 + 1)),
        "month" => whole(i64::from(span.months % 12)),
        "day" => whole(span.days.into()),
        "hour" => whole(span.micros / 3_600_000_000),
        "minute" => whole(span.micros / 60_000_000 % 60),
        "second" => micros(seconds.into()),
        "milliseconds" => Value::Numeric(Numeric { unscaled: seconds.into(), scale: 3 }),
        "microseconds" => whole(seconds),
        "epoch" => {
            // A year has 365 and a quarter days, a month outside of one 30.
            let quarter_days = i128::from(years) * 1461 + i128::from(span.months % 12) * 120;
            let days = i128::from(span.days) * i128::from(DAY);
            micros(quarter_days * i128::from(DAY / 4) + days + i128::from(span.micros))
        }
        _ => return Err(unknown_unit(field, Span)),
    })
}

fn extract_time(field: &str, time: i64) -> Result<Value, SqlError> {
    match &field.to_ascii_lowercase()[..] {
        "hour" | "minute" | "second" | "milliseconds" | "microseconds" | "epoch" => {
            extract(field, Interval { micros: time, ..Interval::default() })
        }
        _ => Err(unknown_unit(field, Time)),
    }
}

#[cold]
pub(super) fn unknown_unit(unit: &str, ty: SqlType) -> SqlError {
    invalid_parameter(format!("unit \"{unit}\" not recognized for type {ty}"))
}

fn truncate(unit: &str, span: Interval) -> Result<Interval, SqlError> {
    let months = |count: i32| Interval { months: span.months / count * count, days: 0, micros: 0 };
    let micros = |count: i64| Interval { micros: span.micros / count * count, ..span };
    Ok(match &unit.to_ascii_lowercase()[..] {
        "millennium" => months(12_000),
        "century" => months(1200),
        "decade" => months(120),
        "year" => months(12),
        "quarter" => months(3),
        "month" => months(1),
        "day" => Interval { micros: 0, ..span },
        "hour" => micros(3_600_000_000),
        "minute" => micros(60_000_000),
        "second" => micros(1_000_000),
        "milliseconds" => micros(1000),
        "microseconds" => span,
        _ => return Err(unknown_unit(unit, Span)),
    })
}
