//! Spans of time: months, days and microseconds, each counted apart, as a month has no fixed number of days.
//!
//! Owns: the value ([`Interval`]), its texts and its arithmetic. Never: knows a calendar but by `datetime`.
//!
//! Invariant: two are compared with months of 30 days and days of 24 hours, so that values that are shown otherwise may be equal.

use std::cmp::Ordering;
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};

use crate::datetime::{DAY, date_of_days, days_of_date};
use crate::error::{SqlError, SqlState};

const HOUR: i64 = 3_600_000_000;
const MINUTE: i64 = 60_000_000;
const SECOND: i64 = 1_000_000;

/// A span of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interval {
    /// Months; a year has twelve.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Microseconds.
    pub micros: i64,
}

impl Interval {
    fn span(self) -> i128 {
        (i128::from(self.months) * 30 + i128::from(self.days)) * i128::from(DAY) + i128::from(self.micros)
    }
}

impl PartialEq for Interval {
    fn eq(&self, other: &Interval) -> bool {
        self.span() == other.span()
    }
}

impl Eq for Interval {}

impl PartialOrd for Interval {
    fn partial_cmp(&self, other: &Interval) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Interval {
    fn cmp(&self, other: &Interval) -> Ordering {
        self.span().cmp(&other.span())
    }
}

impl Hash for Interval {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.span().hash(state);
    }
}

#[cold]
fn beyond() -> SqlError {
    SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "interval out of range")
}

#[cold]
fn beyond_timestamp() -> SqlError {
    SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp out of range")
}

impl Interval {
    /// The sum of two.
    pub(crate) fn add(self, other: Interval) -> Result<Interval, SqlError> {
        Ok(Interval {
            months: self.months.checked_add(other.months).ok_or_else(beyond)?,
            days: self.days.checked_add(other.days).ok_or_else(beyond)?,
            micros: self.micros.checked_add(other.micros).ok_or_else(beyond)?,
        })
    }

    /// The span backward.
    pub(crate) fn negated(self) -> Result<Interval, SqlError> {
        Ok(Interval {
            months: self.months.checked_neg().ok_or_else(beyond)?,
            days: self.days.checked_neg().ok_or_else(beyond)?,
            micros: self.micros.checked_neg().ok_or_else(beyond)?,
        })
    }

    /// The span so many times: parts of a month become days of a thirtieth of one, parts of a day microseconds.
    pub(crate) fn times(self, factor: f64) -> Result<Interval, SqlError> {
        let months = f64::from(self.months) * factor;
        let more_days = round_micros((months - months.trunc()) * 30.0);
        let days = f64::from(self.days) * factor;
        let more_micros = round_micros(days - days.trunc() + more_days - more_days.trunc()) * DAY as f64;
        let micros = self.micros as f64 * factor + more_micros;
        let is_int = |number: f64| number.is_finite() && number.abs() <= f64::from(i32::MAX);
        let all_days = days.trunc() + more_days.trunc();
        if !is_int(months) || !is_int(all_days) || !(-9.2e18..9.2e18).contains(&micros) {
            return Err(beyond());
        }
        Ok(Interval { months: months as i32, days: all_days as i32, micros: micros.round_ties_even() as i64 })
    }

    /// The moment that is the span after another. A day that the month does not have is the last one of it.
    pub(crate) fn after(self, moment: i64) -> Result<i64, SqlError> {
        let (mut days, time) = (moment.div_euclid(DAY), moment.rem_euclid(DAY));
        if self.months != 0 {
            let (year, month, day) = date_of_days(days);
            let months = year * 12 + month - 1 + i64::from(self.months);
            let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
            let next = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
            let last = days_of_date(next.0, next.1, 1) - days_of_date(year, month, 1);
            days = days_of_date(year, month, day.min(last));
        }
        let days = days + i64::from(self.days);
        let moment = days.checked_mul(DAY).and_then(|start| start.checked_add(time));
        moment.and_then(|moment| moment.checked_add(self.micros)).ok_or_else(beyond_timestamp)
    }

    /// The days and the rest of a span between two moments.
    pub(crate) fn between(from: i64, to: i64) -> Result<Interval, SqlError> {
        let micros = to.checked_sub(from).ok_or_else(beyond)?;
        let days = i32::try_from(micros / DAY).map_err(|_| beyond())?;
        Ok(Interval { months: 0, days, micros: micros % DAY })
    }

    /// The years, months, days and the rest between two moments, as people count age.
    pub(crate) fn age(to: i64, from: i64) -> Result<Interval, SqlError> {
        if to < from {
            return Interval::age(from, to)?.negated();
        }
        let (to_date, from_date) = (date_of_days(to.div_euclid(DAY)), date_of_days(from.div_euclid(DAY)));
        let mut micros = to.rem_euclid(DAY) - from.rem_euclid(DAY);
        let mut days = to_date.2 - from_date.2;
        let mut months = (to_date.0 - from_date.0) * 12 + to_date.1 - from_date.1;
        if micros < 0 {
            micros += DAY;
            days -= 1;
        }
        if days < 0 {
            // The days of the month of the earlier moment are borrowed.
            let (year, month) = (from_date.0, from_date.1);
            let next = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
            days += days_of_date(next.0, next.1, 1) - days_of_date(year, month, 1);
            months -= 1;
        }
        Ok(Interval { months: months as i32, days: days as i32, micros })
    }

    /// Moves whole days out of the microseconds (`hours`) and whole months out of the days (`days`).
    pub(crate) fn justified(self, hours: bool, days: bool) -> Result<Interval, SqlError> {
        let mut out = self;
        if hours {
            let whole = i32::try_from(out.micros / DAY).map_err(|_| beyond())?;
            out = Interval {
                days: out.days.checked_add(whole).ok_or_else(beyond)?,
                micros: out.micros % DAY,
                ..out
            };
        }
        if days {
            out = Interval {
                months: out.months.checked_add(out.days / 30).ok_or_else(beyond)?,
                days: out.days % 30,
                ..out
            };
        }
        if hours && days {
            // One sign for all parts.
            if out.months > 0 && (out.days < 0 || (out.days == 0 && out.micros < 0)) {
                out = Interval { months: out.months - 1, days: out.days + 30, ..out };
            } else if out.months < 0 && (out.days > 0 || (out.days == 0 && out.micros > 0)) {
                out = Interval { months: out.months + 1, days: out.days - 30, ..out };
            }
        }
        if hours {
            if out.days > 0 && out.micros < 0 {
                out = Interval { days: out.days - 1, micros: out.micros + DAY, ..out };
            } else if out.days < 0 && out.micros > 0 {
                out = Interval { days: out.days + 1, micros: out.micros - DAY, ..out };
            }
        }
        Ok(out)
    }

    /// Reads a span: numbers with units, a clock, `year-month`, ISO 8601 with `P`, and `ago` behind it all.
    pub(crate) fn parse(text: &str) -> Result<Interval, SqlError> {
        let invalid = || {
            SqlError::new(
                SqlState::INVALID_DATETIME_FORMAT,
                format!("invalid input syntax for type interval: \"{text}\""),
            )
        };
        let lower = text.trim().to_lowercase();
        if let Some(iso) = lower.strip_prefix('p') {
            return parse_iso(iso).ok_or_else(invalid);
        }
        let lower = lower.strip_prefix('@').unwrap_or(&lower);
        let (lower, is_ago) = match lower.strip_suffix("ago") {
            Some(rest) => (rest.trim_end(), true),
            None => (lower, false),
        };
        let mut words = words_of(lower).into_iter().peekable();
        if words.peek().is_none() {
            return Err(invalid());
        }
        let mut sum = Parts::default();
        while let Some(word) = words.next() {
            if word.contains(':') {
                sum.micros += clock(&word).ok_or_else(invalid)?;
            } else if let Some((years, months)) = word.get(1..).and_then(|rest| rest.split_once('-')) {
                let sign = if word.starts_with('-') { -1.0 } else { 1.0 };
                let years = format!("{}{years}", &word[..1]);
                let (years, months) =
                    (number(&years).ok_or_else(invalid)?, number(months).ok_or_else(invalid)?);
                sum.months += years * 12.0 + sign * months;
            } else {
                let count = number(&word).ok_or_else(invalid)?;
                let unit = words.next_if(|next| next.starts_with(|c: char| c.is_alphabetic()));
                sum.add(count, unit.as_deref().unwrap_or("s")).ok_or_else(invalid)?;
            }
        }
        let done = sum.finish().ok_or_else(beyond)?;
        if is_ago { done.negated() } else { Ok(done) }
    }

    /// Appends its text, as PostgreSQL shows it.
    pub(crate) fn push(self, out: &mut String) {
        let start = out.len();
        let mut was_negative = false;
        let parts = [(self.months / 12, "year"), (self.months % 12, "mon"), (self.days, "day")];
        for (count, unit) in parts.into_iter().filter(|(count, _)| *count != 0) {
            let space = if out.len() == start { "" } else { " " };
            let sign = if was_negative && count > 0 { "+" } else { "" };
            let plural = if count == 1 { "" } else { "s" };
            let _ = write!(out, "{space}{sign}{count} {unit}{plural}");
            was_negative = count < 0;
        }
        if self.micros == 0 && out.len() > start {
            return;
        }
        if out.len() > start {
            out.push(' ');
        }
        if self.micros < 0 {
            out.push('-');
        } else if was_negative {
            out.push('+');
        }
        let micros = self.micros.unsigned_abs();
        let seconds = micros / 1_000_000;
        let _ = write!(out, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
        if !micros.is_multiple_of(1_000_000) {
            let fraction = format!(".{:06}", micros % 1_000_000);
            out.push_str(fraction.trim_end_matches('0'));
        }
    }
}

/// A number of days rounded to what microseconds can tell.
fn round_micros(days: f64) -> f64 {
    let factor = 1e6;
    let rounded = (days * factor).round() / factor;
    if (rounded - days).abs() < 1e-9 { rounded } else { days }
}

/// The sums of a text's parts, before parts of months and days are carried on.
#[derive(Default)]
struct Parts {
    months: f64,
    days: f64,
    micros: f64,
}

impl Parts {
    fn add(&mut self, count: f64, unit: &str) -> Option<()> {
        let months = |months: f64| (months, 0.0, 0.0);
        let days = |days: f64| (0.0, days, 0.0);
        let micros = |micros: i64| (0.0, 0.0, micros as f64);
        let (a_month, a_day, a_micro) = match unit {
            "y" | "yr" | "yrs" | "year" | "years" => months(12.0),
            "mon" | "mons" | "month" | "months" => months(1.0),
            "decade" | "decades" | "dec" | "decs" => months(120.0),
            "century" | "centuries" | "c" | "cent" => months(1200.0),
            "millennium" | "millennia" | "mil" | "mils" => months(12_000.0),
            "w" | "week" | "weeks" => days(7.0),
            "d" | "day" | "days" => days(1.0),
            "h" | "hr" | "hrs" | "hour" | "hours" => micros(HOUR),
            "m" | "min" | "mins" | "minute" | "minutes" => micros(MINUTE),
            "s" | "sec" | "secs" | "second" | "seconds" => micros(SECOND),
            "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => micros(1000),
            "us" | "usec" | "usecs" | "microsecond" | "microseconds" => micros(1),
            _ => return None,
        };
        // A part of a unit of days is of hours; a part of a unit of months is of days unless it is whole months.
        let all_months = count * a_month;
        self.months += if a_month >= 12.0 { all_months.round() } else { all_months.trunc() };
        if a_month == 1.0 {
            self.days += ((all_months - all_months.trunc()) * 30.0).trunc();
            self.micros += ((all_months - all_months.trunc()) * 30.0).fract() * DAY as f64;
        }
        let all_days = count * a_day;
        self.days += all_days.trunc();
        self.micros += round_micros(all_days - all_days.trunc()) * DAY as f64 + count * a_micro;
        Some(())
    }

    fn finish(self) -> Option<Interval> {
        let fits = |number: f64| number.abs() <= f64::from(i32::MAX);
        if !fits(self.months) || !fits(self.days) || !(-9.2e18..9.2e18).contains(&self.micros) {
            return None;
        }
        Some(Interval {
            months: self.months as i32,
            days: self.days as i32,
            micros: self.micros.round() as i64,
        })
    }
}

/// The words of a text: numbers and letters apart, also where no space is between them.
fn words_of(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for part in text.split_whitespace() {
        let mut word = String::new();
        for c in part.chars() {
            let was_letter = word.chars().last().map(char::is_alphabetic);
            if was_letter.is_some_and(|was| was != c.is_alphabetic()) {
                words.push(std::mem::take(&mut word));
            }
            word.push(c);
        }
        words.push(word);
    }
    words
}

fn number(word: &str) -> Option<f64> {
    let digits = word.trim_start_matches(['+', '-']);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if is_number && word.len() - digits.len() <= 1 { word.parse().ok() } else { None }
}

/// The microseconds of a clock with a sign: hours and minutes, perhaps seconds.
fn clock(word: &str) -> Option<f64> {
    let (rest, sign) = match word.strip_prefix('-') {
        Some(rest) => (rest, -1.0),
        None => (word.strip_prefix('+').unwrap_or(word), 1.0),
    };
    let parts: Vec<f64> = rest.split(':').map(number).collect::<Option<_>>()?;
    let (hours, minutes, seconds) = match parts[..] {
        [hours, minutes] => (hours, minutes, 0.0),
        [hours, minutes, seconds] => (hours, minutes, seconds),
        _ => return None,
    };
    if minutes >= 60.0 || seconds >= 61.0 {
        return None;
    }
    Some(sign * (hours * HOUR as f64 + minutes * MINUTE as f64 + (seconds * 1e6).round()))
}

/// Reads what follows `P` in ISO 8601 with designators.
fn parse_iso(text: &str) -> Option<Interval> {
    let (mut sum, mut digits, mut is_time, mut is_empty) = (Parts::default(), String::new(), false, true);
    for c in text.chars() {
        match c {
            '0'..='9' | '-' | '+' | '.' => digits.push(c),
            't' if digits.is_empty() => is_time = true,
            unit => {
                let unit = match (unit, is_time) {
                    ('m', false) => "mon",
                    ('m', true) => "min",
                    ('y', false) => "y",
                    ('w', false) => "w",
                    ('d', false) => "d",
                    ('h', true) => "h",
                    ('s', true) => "s",
                    _ => return None,
                };
                sum.add(number(&std::mem::take(&mut digits))?, unit)?;
                is_empty = false;
            }
        }
    }
    if digits.is_empty() && !is_empty { sum.finish() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let mut out = String::new();
        Interval::parse(text).unwrap().push(&mut out);
        out
    }

    #[test]
    fn texts_are_read_and_written() {
        for (text, wanted) in [
            ("1 year 2 months 3 days 04:05:06.7", "1 year 2 mons 3 days 04:05:06.7"),
            ("-1 day", "-1 days"),
            ("1 day ago", "-1 days"),
            ("90 minutes", "01:30:00"),
            ("1.5 days", "1 day 12:00:00"),
            ("1-2", "1 year 2 mons"),
            ("P1Y2M3DT4H5M6S", "1 year 2 mons 3 days 04:05:06"),
            ("1 day -01:00:00", "1 day -01:00:00"),
            ("1h30m", "01:30:00"),
            ("0", "00:00:00"),
        ] {
            assert_eq!(shown(text), wanted, "{text}");
        }
        for wrong in ["", "x", "1 thing", "P", "1:2:3:4", "1:99"] {
            assert!(Interval::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_month_later_is_a_day_that_there_is() {
        let moment = |year, month, day| days_of_date(year, month, day) * DAY;
        let month = Interval { months: 1, ..Interval::default() };
        assert_eq!(month.after(moment(2020, 1, 31)).unwrap(), moment(2020, 2, 29));
        assert_eq!(month.after(moment(2021, 12, 31)).unwrap(), moment(2022, 1, 31));
        assert!(Interval::parse("1 month").unwrap() == Interval::parse("30 days").unwrap());
    }
}
