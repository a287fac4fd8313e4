//! Days and moments: the calendar, and the texts of dates and times in ISO order.
//!
//! Owns: conversions between days and dates of the Gregorian calendar, and the texts that are read and written. Never: reads a
//! clock, or knows a time zone but by its offset; the zone of sessions is UTC.

use crate::error::{SqlError, SqlState};

/// Microseconds of a day.
pub(crate) const DAY: i64 = 86_400_000_000;
/// Days from 1970-01-01 to 2000-01-01, from which binary formats count.
pub(crate) const EPOCH_DAYS: i32 = 10_957;
/// The greatest year; PostgreSQL goes further.
const MAX_YEAR: i64 = 99_999;

/// The number of days from 1970-01-01 to a date. Months and days count from 1.
#[must_use]
pub(crate) fn days_of_date(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that a leap day is the last of its year.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The date of a day: year, month, day of the month.
#[must_use]
pub(crate) fn date_of_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

fn days_of_month(year: i64, month: i64) -> i64 {
    let (next_year, next) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    days_of_date(next_year, next, 1) - days_of_date(year, month, 1)
}

fn invalid(ty: &str, text: &str) -> SqlError {
    SqlError::new(
        SqlState::INVALID_DATETIME_FORMAT,
        format!("invalid input syntax for type {ty}: \"{text}\""),
    )
}

fn overflow(text: &str) -> SqlError {
    SqlError::new(
        SqlState::DATETIME_FIELD_OVERFLOW,
        format!("date/time field value out of range: \"{text}\""),
    )
}

fn number(text: &str) -> Option<i64> {
    if text.is_empty() || text.len() > 9 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// Reads a date: `year-month-day`, with `BC` behind it for years before the first.
///
/// # Errors
/// When it is none.
pub(crate) fn parse_date(text: &str) -> Result<i32, SqlError> {
    parse_days(text.trim(), "date", text)
}

fn parse_days(date: &str, ty: &str, whole: &str) -> Result<i32, SqlError> {
    let (date, is_before) = match date.strip_suffix("BC").or_else(|| date.strip_suffix("bc")) {
        Some(date) => (date.trim_end(), true),
        None => (date, false),
    };
    let mut parts = date.split('-').map(number);
    let (Some(Some(year)), Some(Some(month)), Some(Some(day)), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(invalid(ty, whole));
    };
    day_of(year, is_before, month, day).ok_or_else(|| overflow(whole))
}

/// The days since 1970-01-01 of a date, the year of which is counted from 1, backward if it is before the first; `None` for no date.
pub(crate) fn day_of(year: i64, is_before: bool, month: i64, day: i64) -> Option<i32> {
    if !(1..=12).contains(&month) || !(1..=MAX_YEAR).contains(&year) || (is_before && year > 4713) {
        return None;
    }
    let year = if is_before { 1 - year } else { year };
    if day < 1 || day > days_of_month(year, month) {
        return None;
    }
    i32::try_from(days_of_date(year, month, day)).ok()
}

/// Reads a time of the day: `hours:minutes`, `:seconds` and a fraction of them, in microseconds.
///
/// # Errors
/// When it is none.
pub(crate) fn parse_time(text: &str) -> Result<i64, SqlError> {
    parse_clock(text.trim(), "time", text)
}

fn parse_clock(clock: &str, ty: &str, whole: &str) -> Result<i64, SqlError> {
    let mut parts = clock.split(':');
    let hours = parts.next().and_then(number).ok_or_else(|| invalid(ty, whole))?;
    let minutes = parts.next().and_then(number).ok_or_else(|| invalid(ty, whole))?;
    let (seconds, micros) = match parts.next() {
        None => (0, 0),
        Some(seconds) => {
            let (seconds, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
            let digits: String = fraction.chars().chain("000000".chars()).take(6).collect();
            if fraction.len() > 9 {
                return Err(invalid(ty, whole));
            }
            let micros = number(&digits).ok_or_else(|| invalid(ty, whole))?;
            let is_up = fraction.as_bytes().get(6).is_some_and(|digit| *digit >= b'5');
            (number(seconds).ok_or_else(|| invalid(ty, whole))?, micros + i64::from(is_up))
        }
    };
    if parts.next().is_some() {
        return Err(invalid(ty, whole));
    }
    let time = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros;
    if hours > 24 || minutes > 59 || seconds > 60 || time > DAY {
        return Err(overflow(whole));
    }
    Ok(time)
}

/// Reads a moment, in microseconds since 1970-01-01: a date, perhaps a time, perhaps an offset (`Z`, `UTC`, `+01`, `-02:30`). Without
/// `zoned`, an offset is read and left out, as PostgreSQL does.
///
/// # Errors
/// When it is none.
pub(crate) fn parse_timestamp(text: &str, zoned: bool) -> Result<i64, SqlError> {
    let ty = if zoned { "timestamp with time zone" } else { "timestamp" };
    let trimmed = text.trim();
    if trimmed.eq_ignore_ascii_case("epoch") {
        return Ok(0);
    }
    let split = trimmed.find(['T', 't', ' ']);
    let (date, rest) = match split {
        Some(at) => (&trimmed[..at], trimmed[at + 1..].trim()),
        None => (trimmed, ""),
    };
    let (rest, era) = match rest.strip_suffix("BC").or_else(|| rest.strip_suffix("bc")) {
        Some(rest) => (rest.trim_end(), " BC"),
        None => (rest, ""),
    };
    let days = parse_days(&format!("{date}{era}"), ty, text)?;
    let (clock, offset) = split_offset(rest, ty, text)?;
    let time = if clock.is_empty() { 0 } else { parse_clock(clock, ty, text)? };
    let moment = i64::from(days).checked_mul(DAY).and_then(|days| days.checked_add(time));
    let moment = moment.ok_or_else(|| overflow(text))?;
    if zoned { moment.checked_sub(offset).ok_or_else(|| overflow(text)) } else { Ok(moment) }
}

/// The clock of a text, and the offset behind it in microseconds.
fn split_offset<'a>(text: &'a str, ty: &str, whole: &str) -> Result<(&'a str, i64), SqlError> {
    for zone in ["UTC", "utc", "GMT", "Z", "z"] {
        if let Some(clock) = text.strip_suffix(zone) {
            return Ok((clock.trim_end(), 0));
        }
    }
    let Some(at) = text.rfind(['+', '-']) else { return Ok((text, 0)) };
    let (clock, offset) = (text[..at].trim_end(), &text[at + 1..]);
    let (hours, minutes) = match offset.split_once(':') {
        Some((hours, minutes)) => (number(hours), number(minutes)),
        None if offset.len() == 4 => {
            (number(offset.get(..2).unwrap_or("")), number(offset.get(2..).unwrap_or("")))
        }
        None => (number(offset), Some(0)),
    };
    let (Some(hours), Some(minutes)) = (hours, minutes) else { return Err(invalid(ty, whole)) };
    if hours > 15 || minutes > 59 {
        return Err(overflow(whole));
    }
    let offset = (hours * 60 + minutes) * 60 * 1_000_000;
    Ok((clock, if text.as_bytes()[at] == b'-' { -offset } else { offset }))
}

/// Appends a date.
pub(crate) fn push_date(days: i32, out: &mut String) {
    let (year, month, day) = date_of_days(i64::from(days));
    let shown = if year > 0 { year } else { 1 - year };
    out.push_str(&format!("{shown:04}-{month:02}-{day:02}"));
    if year <= 0 {
        out.push_str(" BC");
    }
}

/// Appends a time of the day.
pub(crate) fn push_time(time: i64, out: &mut String) {
    let (seconds, micros) = (time / 1_000_000, time % 1_000_000);
    out.push_str(&format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60));
    if micros != 0 {
        let fraction = format!(".{micros:06}");
        out.push_str(fraction.trim_end_matches('0'));
    }
}

/// Appends a moment, with the offset of UTC if it is `zoned`.
pub(crate) fn push_timestamp(moment: i64, zoned: bool, out: &mut String) {
    let (year, month, day) = date_of_days(moment.div_euclid(DAY));
    let shown = if year > 0 { year } else { 1 - year };
    out.push_str(&format!("{shown:04}-{month:02}-{day:02} "));
    push_time(moment.rem_euclid(DAY), out);
    if zoned {
        out.push_str("+00");
    }
    if year <= 0 {
        out.push_str(" BC");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, zoned: bool) -> String {
        let mut out = String::new();
        push_timestamp(parse_timestamp(text, zoned).unwrap(), zoned, &mut out);
        out
    }

    #[test]
    fn days_and_dates_lead_to_each_other() {
        assert_eq!(days_of_date(1970, 1, 1), 0);
        assert_eq!(days_of_date(2000, 1, 1), i64::from(EPOCH_DAYS));
        for days in (-1_000_000..1_000_000).step_by(37) {
            let (year, month, day) = date_of_days(days);
            assert_eq!(days_of_date(year, month, day), days);
        }
    }

    #[test]
    fn texts_are_read_and_written() {
        assert_eq!(shown("2026-11-25 03:04:05.5", false), "2026-11-25 03:04:05.5");
        assert_eq!(shown("2026-11-25T03:04:05+02:30", true), "2026-11-25 00:34:05+00");
        assert_eq!(shown("2026-11-25 03:04:05+02", false), "2026-11-25 03:04:05");
        assert_eq!(shown("1969-12-31 23:59:59.999999", false), "1969-12-31 23:59:59.999999");
        assert_eq!(shown("0044-03-15 12:00 BC", false), "0044-03-15 12:00:00 BC");
        for wrong in [
            "",
            "2026",
            "2026-13-01",
            "2026-02-29",
            "2026-01-01 25:00",
            "x",
            "2026-01-01 1:2:3:4",
            "0000-01-01",
        ] {
            assert!(parse_timestamp(wrong, true).is_err(), "{wrong}");
        }
        assert!(parse_date("2024-02-29").is_ok());
        assert_eq!(parse_time("24:00").unwrap(), DAY);
    }
}
