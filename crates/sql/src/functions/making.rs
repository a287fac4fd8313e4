//! Functions that make dates, times, moments and intervals of their parts.

use super::{Function, float, int, invalid_parameter, strict, text};
use crate::datetime::{DAY, day_of};
use crate::error::{SqlError, SqlState};
use crate::interval::Interval;
use crate::types::SqlType::{Date, Float8, Int4, Interval as Span, Text, Time, Timestamp, Timestamptz};
use crate::value::Value;

const PARTS: &[&str] = &["year", "month", "mday", "hour", "min", "sec"];
const NOTHING: &[Value] = &[
    Value::Int(0),
    Value::Int(0),
    Value::Int(0),
    Value::Int(0),
    Value::Int(0),
    Value::Int(0),
    Value::Float(0.0),
];

pub(super) static FUNCTIONS: &[Function] = &[
    strict("make_date", &[Int4, Int4, Int4], Date, |_, a| date(a).map(Value::Date))
        .named(&["year", "month", "day"]),
    strict("make_time", &[Int4, Int4, Float8], Time, |_, a| {
        time(int(a, 0), int(a, 1), float(a, 2)).map(Value::Time)
    })
    .named(&["hour", "min", "sec"]),
    strict("make_timestamp", &[Int4, Int4, Int4, Int4, Int4, Float8], Timestamp, |_, a| {
        moment(a).map(Value::Timestamp)
    })
    .named(PARTS),
    strict("make_timestamptz", &[Int4, Int4, Int4, Int4, Int4, Float8], Timestamptz, |_, a| {
        moment(a).map(Value::Timestamp)
    })
    .named(PARTS),
    strict("make_timestamptz", &[Int4, Int4, Int4, Int4, Int4, Float8, Text], Timestamptz, |_, a| {
        Ok(Value::Timestamp(moment(a)? - offset(text(a, 6))?))
    })
    .named(&["year", "month", "mday", "hour", "min", "sec", "timezone"]),
    strict("make_interval", &[Int4, Int4, Int4, Int4, Int4, Int4, Float8], Span, |_, a| {
        interval(a).map(Value::Interval)
    })
    .named(&["years", "months", "weeks", "days", "hours", "mins", "secs"])
    .defaulting(NOTHING),
];

#[cold]
fn out_of_range(what: &str, parts: &str) -> SqlError {
    SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("{what} field value out of range: {parts}"))
}

/// The days of the date of the first three numbers. Years before the first are below zero.
fn date(values: &[Value]) -> Result<i32, SqlError> {
    let (year, month, day) = (int(values, 0), int(values, 1), int(values, 2));
    let shown = || out_of_range("date", &format!("{year}-{month:02}-{day:02}"));
    day_of(year.abs(), year < 0, month, day).ok_or_else(shown)
}

fn time(hours: i64, minutes: i64, seconds: f64) -> Result<i64, SqlError> {
    let micros = (seconds * 1e6).round_ties_even();
    let time = (hours * 60 + minutes) * 60_000_000 + micros as i64;
    let fits = (0..=24).contains(&hours)
        && (0..60).contains(&minutes)
        && (0.0..=60e6).contains(&micros)
        && time <= DAY;
    if fits { Ok(time) } else { Err(out_of_range("time", &format!("{hours}:{minutes:02}:{seconds:02}"))) }
}

fn moment(values: &[Value]) -> Result<i64, SqlError> {
    let days = date(values)?;
    Ok(i64::from(days) * DAY + time(int(values, 3), int(values, 4), float(values, 5))?)
}

/// The microseconds by which the clocks of a zone are ahead of UTC: zones are UTC and numbers of hours from it.
fn offset(zone: &str) -> Result<i64, SqlError> {
    if super::intervals::is_utc(zone) {
        return Ok(0);
    }
    if zone.starts_with(|c: char| c.is_ascii_digit()) {
        let error = invalid_parameter(format!("invalid input syntax for type numeric time zone: \"{zone}\""));
        return Err(error.hint("Numeric time zones must have \"-\" or \"+\" as first character."));
    }
    let unknown = || {
        invalid_parameter(format!("time zone \"{zone}\" not recognized"))
            .hint("The zones are UTC and offsets from it, such as '-02:00'.")
    };
    if !zone.starts_with(['+', '-']) {
        return Err(unknown());
    }
    let clock = if zone.contains(':') { zone.to_owned() } else { format!("{zone}:00") };
    let offset = Interval::parse(&clock).map_err(|_| unknown())?;
    // PostgreSQL knows zones up to here.
    let most = 16 * 3_600_000_000;
    if offset.micros.abs() < most { Ok(offset.micros) } else { Err(unknown()) }
}

fn interval(values: &[Value]) -> Result<Interval, SqlError> {
    let beyond = || SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "interval out of range");
    let seconds = (float(values, 6) * 1e6).round_ties_even();
    if !(-9.2e18..9.2e18).contains(&seconds) {
        return Err(beyond());
    }
    let minutes = int(values, 4) * 60 + int(values, 5);
    let micros = (minutes * 60_000_000).checked_add(seconds as i64);
    Ok(Interval {
        months: i32::try_from(int(values, 0) * 12 + int(values, 1)).map_err(|_| beyond())?,
        days: i32::try_from(int(values, 2) * 7 + int(values, 3)).map_err(|_| beyond())?,
        micros: micros.ok_or_else(beyond)?,
    })
}
