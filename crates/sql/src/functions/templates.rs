//! Templates of dates, times and numbers: `to_char`, `to_date`, `to_timestamp` and `to_number`.
//!
//! Owns: the patterns of templates. A letter that begins none is a letter of the text. Never: knows another language than English.
//! Left out, and refused: Roman numerals, `EEEE`, and time zones but UTC.

use std::fmt::Write as _;

use super::intervals::unknown_unit;
use super::numbers::iso_week;
use super::{Function, int, invalid_parameter, strict, text};
use crate::datetime::{DAY, date_of_days, days_of_date};
use crate::error::{SqlError, SqlState};
use crate::format::out_of_range;
use crate::interval::Interval;
use crate::numeric::Numeric;
use crate::types::SqlType::{
    self, Date, Float8, Int8, Interval as Span, Numeric as Num, Text, Timestamp, Timestamptz,
};
use crate::value::Value;

pub(super) static FUNCTIONS: &[Function] = &[
    strict("to_char", &[Timestamp, Text], Text, |_, a| shown(&Moment::of(a), text(a, 1))),
    strict("to_char", &[Timestamptz, Text], Text, |_, a| shown(&Moment::of(a), text(a, 1))),
    strict("to_char", &[Span, Text], Text, |_, a| shown(&Moment::of(a), text(a, 1))),
    strict("to_char", &[Int8, Text], Text, |_, a| integer(int(a, 0), text(a, 1))),
    strict("to_char", &[Num, Text], Text, |_, a| match a.first() {
        Some(Value::Numeric(value)) => number(*value, text(a, 1)).map(Value::from),
        _ => Ok(Value::Null),
    }),
    strict("to_char", &[Float8, Text], Text, |_, a| match a.first() {
        Some(Value::Float(value)) => number(Numeric::of_f64(*value, 15)?, text(a, 1)).map(Value::from),
        _ => Ok(Value::Null),
    }),
    strict("to_date", &[Text, Text], Date, |_, a| {
        Ok(Value::Date(read(text(a, 0), text(a, 1))?.div_euclid(DAY) as i32))
    }),
    strict("to_timestamp", &[Text, Text], Timestamptz, |_, a| {
        read(text(a, 0), text(a, 1)).map(Value::Timestamp)
    }),
    strict("to_number", &[Text, Text], Num, |_, a| read_number(text(a, 0), text(a, 1))),
];

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// The patterns, the longer ones before those that they begin with.
const PATTERNS: [&str; 50] = [
    "HH24", "HH12", "HH", "MI", "SSSSS", "SSSS", "SS", "MS", "US", "A.M.", "P.M.", "AM", "PM", "Y,YYY",
    "YYYY", "YYY", "YY", "IYYY", "IYY", "IY", "IDDD", "IW", "ID", "I", "MONTH", "MON", "MM", "DAY", "DDD",
    "DD", "DY", "D", "WW", "W", "CC", "J", "Q", "TZH", "TZM", "TZ", "OF", "B.C.", "A.D.", "BC", "AD", "FF3",
    "FF6", "RM", "Y", "FX",
];

/// A piece of a template.
enum Piece {
    Literal(char),
    /// A pattern, as it was written, without padding if `fills` is unset, with an ordinal's ending behind it if one is wanted.
    Pattern {
        name: &'static str,
        written: String,
        fills: bool,
        ordinal: Option<bool>,
    },
}

fn pieces(template: &str) -> Vec<Piece> {
    let (mut found, mut rest, mut fills) = (Vec::new(), template, true);
    while let Some(c) = rest.chars().next() {
        if let Some(quoted) = rest.strip_prefix('"') {
            let end = quoted.find('"').unwrap_or(quoted.len());
            found.extend(quoted[..end].chars().map(Piece::Literal));
            rest = quoted.get(end + 1..).unwrap_or("");
            continue;
        }
        if rest.get(..2).is_some_and(|word| word.eq_ignore_ascii_case("fm")) {
            fills = false;
            rest = &rest[2..];
            continue;
        }
        let is_next =
            |name: &&&str| rest.get(..name.len()).is_some_and(|word| word.eq_ignore_ascii_case(name));
        let Some(name) = PATTERNS.iter().find(is_next) else {
            found.push(Piece::Literal(c));
            rest = &rest[c.len_utf8()..];
            continue;
        };
        let written = rest[..name.len()].to_owned();
        rest = &rest[name.len()..];
        let ordinal = match rest.get(..2) {
            Some("th") => Some(false),
            Some("TH") => Some(true),
            _ => None,
        };
        rest = if ordinal.is_some() { &rest[2..] } else { rest };
        found.push(Piece::Pattern { name, written, fills, ordinal });
        fills = true;
    }
    found
}

/// The parts of a moment, or of an interval, which has no day of a week.
struct Moment {
    year: i64,
    month: i64,
    day: i64,
    micros: i64,
    /// The days since 1970-01-01; none for an interval.
    days: Option<i64>,
}

impl Moment {
    fn of(values: &[Value]) -> Moment {
        match values.first() {
            Some(Value::Timestamp(moment)) => {
                let days = moment.div_euclid(DAY);
                let (year, month, day) = date_of_days(days);
                Moment { year, month, day, micros: moment.rem_euclid(DAY), days: Some(days) }
            }
            Some(Value::Interval(Interval { months, days, micros })) => Moment {
                year: i64::from(months / 12),
                month: i64::from(months % 12),
                day: i64::from(*days),
                micros: *micros,
                days: None,
            },
            _ => Moment { year: 0, month: 0, day: 0, micros: 0, days: None },
        }
    }

    /// The number of a pattern and its digits; `None` for a pattern of words.
    fn number(&self, name: &str) -> Result<Option<(i64, usize)>, SqlError> {
        let (hour, second) = (self.micros / 3_600_000_000, self.micros / 1_000_000);
        let days = || self.days.ok_or_else(|| unknown_unit(name, SqlType::Interval));
        let shown_year = if self.year > 0 || self.days.is_none() { self.year } else { 1 - self.year };
        Ok(Some(match name {
            "HH24" => (hour, 2),
            "HH12" | "HH" => (if hour % 12 == 0 { 12 } else { hour % 12 }, 2),
            "MI" => (second / 60 % 60, 2),
            "SS" => (second % 60, 2),
            "SSSSS" | "SSSS" => (second, 1),
            "MS" | "FF3" => (self.micros / 1000 % 1000, 3),
            "US" | "FF6" => (self.micros % 1_000_000, 6),
            "YYYY" => (shown_year, 4),
            "YYY" => (shown_year % 1000, 3),
            "YY" => (shown_year % 100, 2),
            "Y" => (shown_year % 10, 1),
            "CC" => ((self.year - 1).div_euclid(100) + 1, 2),
            "MM" => (self.month, 2),
            "DD" => (self.day, 2),
            "DDD" => (days()? - days_of_date(self.year, 1, 1) + 1, 3),
            "D" => ((days()? + 4).rem_euclid(7) + 1, 1),
            "ID" => ((days()? + 3).rem_euclid(7) + 1, 1),
            "IW" => (iso_week(days()?).1, 2),
            "IYYY" => (iso_week(days()?).0, 4),
            "IYY" => (iso_week(days()?).0 % 1000, 3),
            "IY" => (iso_week(days()?).0 % 100, 2),
            "I" => (iso_week(days()?).0 % 10, 1),
            "WW" => ((days()? - days_of_date(self.year, 1, 1)) / 7 + 1, 2),
            "W" => ((self.day - 1) / 7 + 1, 1),
            "Q" => ((self.month - 1) / 3 + 1, 1),
            "J" => (days()? + 2_440_588, 1),
            "TZH" | "TZM" => (0, 2),
            _ => return Ok(None),
        }))
    }

    fn word(&self, name: &str, written: &str, fills: bool) -> Result<String, SqlError> {
        let days = || self.days.ok_or_else(|| unknown_unit(name, SqlType::Interval));
        let of_case = |word: &str| match written {
            written if written == written.to_uppercase() => word.to_uppercase(),
            written if written.starts_with(char::is_uppercase) => word.to_owned(),
            _ => word.to_lowercase(),
        };
        let month = || MONTHS.get(usize::try_from(self.month - 1).unwrap_or(12)).copied().unwrap_or("");
        let day = || days().map(|days| DAYS[(days + 4).rem_euclid(7) as usize]);
        let half = if self.micros / 3_600_000_000 % 24 < 12 { "AM" } else { "PM" };
        let era = if self.year > 0 { "AD" } else { "BC" };
        let dotted = |word: &str| word.chars().flat_map(|c| [c, '.']).collect::<String>();
        let (word, width) = match name {
            "MONTH" => (of_case(month()), 9),
            "MON" => (of_case(month().get(..3).unwrap_or("")), 0),
            "DAY" => (of_case(day()?), 9),
            "DY" => (of_case(&day()?[..3]), 0),
            // These are written in one case.
            "AM" | "PM" => (
                if written.starts_with(char::is_uppercase) { half.to_owned() } else { half.to_lowercase() },
                0,
            ),
            "A.M." | "P.M." => (of_case(&dotted(half)), 0),
            "AD" | "BC" => (of_case(era), 0),
            "A.D." | "B.C." => (of_case(&dotted(era)), 0),
            "TZ" => (of_case("UTC"), 0),
            "OF" => ("+00".to_owned(), 0),
            "FX" => (String::new(), 0),
            other => return Err(SqlError::unsupported(format!("the pattern {other} of a template"))),
        };
        Ok(if fills { format!("{word:width$}") } else { word })
    }
}

fn ordinal(number: i64, is_upper: bool) -> &'static str {
    let ending = match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    match (is_upper, ending) {
        (false, ending) => ending,
        (true, "st") => "ST",
        (true, "nd") => "ND",
        (true, "rd") => "RD",
        (true, _) => "TH",
    }
}

fn shown(moment: &Moment, template: &str) -> Result<Value, SqlError> {
    let mut out = String::new();
    for piece in pieces(template) {
        let (name, written, fills, ending) = match piece {
            Piece::Literal(c) => {
                out.push(c);
                continue;
            }
            Piece::Pattern { name, written, fills, ordinal } => (name, written, fills, ordinal),
        };
        match moment.number(name)? {
            Some((number, digits)) => {
                let width = if fills || matches!(name, "MS" | "US" | "FF3" | "FF6") { digits } else { 1 };
                let width = width + usize::from(number < 0);
                if name == "TZH" {
                    out.push('+');
                }
                let _ = write!(out, "{number:0width$}");
                if let Some(is_upper) = ending {
                    out.push_str(ordinal(number, is_upper));
                }
            }
            None if name == "Y,YYY" => {
                let _ = write!(out, "{},{:03}", moment.year / 1000, moment.year % 1000);
            }
            None => out.push_str(&moment.word(name, &written, fills)?),
        }
    }
    Ok(Value::from(out))
}

#[cold]
fn mismatch(text: &str, pattern: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_DATETIME_FORMAT, format!("invalid value \"{text}\" for \"{pattern}\""))
}

/// The parts of a moment that is read.
struct Read {
    year: i64,
    month: i64,
    day: i64,
    of_year: i64,
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
    /// 0 for AM, 1 for PM.
    half: Option<i64>,
}

/// Reads a moment by a template; a text that ends early leaves the rest as it is.
fn read(whole: &str, template: &str) -> Result<i64, SqlError> {
    let mut parts =
        Read { year: 1, month: 1, day: 1, of_year: 1, hour: 0, minute: 0, second: 0, micros: 0, half: None };
    let mut rest = whole.trim_start();
    let pieces = pieces(template);
    for (at, piece) in pieces.iter().enumerate() {
        let name = match piece {
            Piece::Literal(_) => {
                // A separator of the template stands for any one of the text.
                rest = rest.strip_prefix(|c: char| !c.is_alphanumeric()).unwrap_or(rest);
                continue;
            }
            Piece::Pattern { name, .. } => *name,
        };
        rest = rest.trim_start();
        if rest.is_empty() {
            break;
        }
        if let Some(length) = parts.read_word(name, rest)? {
            rest = &rest[length..];
            continue;
        }
        // Where a number follows without a separator, a pattern takes the digits that it is written with, and no more.
        let is_tight = matches!(pieces.get(at + 1), Some(Piece::Pattern { .. }));
        let most = match name {
            "YYYY" | "IYYY" if !is_tight => 6,
            "HH24" | "HH12" | "HH" => 2,
            "US" | "FF6" => 6,
            "MS" | "FF3" | "DDD" => 3,
            name => name.len(),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()).min(most);
        parts.read_number(name, &rest[..end]).ok_or_else(|| mismatch(rest, name))?;
        rest = &rest[end..];
    }
    parts.finish(whole)
}

impl Read {
    /// Reads the word of a pattern of words, and returns its length; `None` for a pattern of numbers.
    fn read_word(&mut self, name: &str, rest: &str) -> Result<Option<usize>, SqlError> {
        let names: &[&str] = match name {
            "MONTH" | "MON" => &MONTHS,
            "DAY" | "DY" => &DAYS,
            "AM" | "PM" => &["AM", "PM"],
            "A.M." | "P.M." => &["A.M.", "P.M."],
            _ => return Ok(None),
        };
        let length = |word: &str| if matches!(name, "MON" | "DY") { 3 } else { word.len() };
        let begins = |word: &str| {
            let word = &word[..length(word)];
            rest.get(..word.len()).is_some_and(|part| part.eq_ignore_ascii_case(word))
        };
        let found = names.iter().position(|word| begins(word)).ok_or_else(|| mismatch(rest, name))?;
        match name {
            "MONTH" | "MON" => self.month = found as i64 + 1,
            "DAY" | "DY" => {}
            _ => self.half = Some(found as i64),
        }
        Ok(Some(length(names[found])))
    }

    /// Reads the digits of a pattern; `None` if they are none, or the pattern is not read.
    fn read_number(&mut self, name: &str, digits: &str) -> Option<()> {
        let number: i64 = digits.parse().ok()?;
        match name {
            "YYYY" | "IYYY" => self.year = number,
            "YY" => self.year = number + if number < 70 { 2000 } else { 1900 },
            "MM" => self.month = number,
            "DD" => self.day = number,
            "DDD" => self.of_year = number,
            "HH24" | "HH12" | "HH" => self.hour = number,
            "MI" => self.minute = number,
            "SS" => self.second = number,
            "MS" | "FF3" | "US" | "FF6" => self.micros = format!("{digits:0<6}").parse().ok()?,
            _ => return None,
        }
        Some(())
    }

    fn finish(&self, whole: &str) -> Result<i64, SqlError> {
        let hour = self.half.map_or(self.hour, |half| self.hour % 12 + 12 * half);
        let date = format!("{:04}-{:02}-{:02}", self.year, self.month, self.day);
        let days = i64::from(crate::datetime::parse_date(&date)?) + self.of_year - 1;
        if !(0..24).contains(&hour) || !(0..60).contains(&self.minute) || !(0..60).contains(&self.second) {
            return Err(SqlError::new(
                SqlState::DATETIME_FIELD_OVERFLOW,
                format!("date/time field value out of range: \"{whole}\""),
            ));
        }
        Ok(days * DAY + ((hour * 60 + self.minute) * 60 + self.second) * 1_000_000 + self.micros)
    }
}

/// The parts of a template of a number.
#[derive(Default)]
struct NumberTemplate {
    fills: bool,
    /// The places before the point: `9`, `0`, `,` and letters.
    whole: Vec<char>,
    fraction: Vec<char>,
    has_point: bool,
    /// The digits behind `V`, if the template has it: the number is shown so many times ten.
    shift: Option<u32>,
    sign: Option<&'static str>,
    ordinal: Option<bool>,
}

#[cold]
fn two_points(parsed: &NumberTemplate, second: char) -> SqlError {
    let is_shift = matches!(second, 'V' | 'v');
    if parsed.has_point != is_shift {
        let what = if is_shift { "V" } else { "decimal points" };
        return SqlError::new(SqlState::SYNTAX_ERROR, format!("multiple {what} in a template of a number"));
    }
    SqlError::new(SqlState::SYNTAX_ERROR, "cannot use \"V\" and decimal point together")
}

impl NumberTemplate {
    /// The number of digits before the point.
    fn places(&self) -> usize {
        self.whole.iter().filter(|place| **place != ',').count()
    }

    /// The number that is shown for another one.
    fn shown(&self, value: Numeric) -> Result<Numeric, SqlError> {
        match self.shift {
            None => Ok(value),
            Some(shift) => {
                let factor = 10_i128.checked_pow(shift).ok_or_else(|| out_of_range(Num))?;
                value.checked_mul(Numeric::of_integer(factor))
            }
        }
    }
}

/// The text of an integer, which is one also after `V` has moved its digits.
fn integer(value: i64, template: &str) -> Result<Value, SqlError> {
    let value = Numeric::of_integer(value.into());
    let shown = number_template(template)?.shown(value)?;
    i64::try_from(shown.unscaled).map_err(|_| out_of_range(Int8))?;
    number(value, template).map(Value::from)
}

fn number_template(template: &str) -> Result<NumberTemplate, SqlError> {
    let mut parsed = NumberTemplate { fills: true, ..NumberTemplate::default() };
    let (mut rest, mut sign_at) = (template, None);
    while let Some(c) = rest.chars().next() {
        let word = |word: &str| rest.get(..word.len()).is_some_and(|part| part.eq_ignore_ascii_case(word));
        let length = match c {
            _ if word("FM") => {
                parsed.fills = false;
                2
            }
            _ if word("PR") || word("MI") || word("PL") || word("SG") => {
                let sign = ["PR", "MI", "PL", "SG"].into_iter().find(|sign| word(sign));
                // Only a minus before or behind all digits, or brackets around them, is here.
                if !matches!(sign, Some("PR" | "MI")) {
                    return Err(SqlError::unsupported("PL and SG in a template of a number"));
                }
                let is_before = parsed.whole.is_empty();
                parsed.sign = Some(match sign {
                    Some("PR") => "PR",
                    _ if is_before => "MI",
                    _ => "behind",
                });
                2
            }
            _ if rest.starts_with("th") || rest.starts_with("TH") => {
                parsed.ordinal = Some(rest.starts_with("TH"));
                2
            }
            'S' | 's' => {
                let before = parsed.places() - parsed.shift.unwrap_or(0) as usize;
                sign_at = Some(before).filter(|_| !parsed.has_point);
                parsed.sign = Some(if parsed.has_point { "S behind" } else { "S" });
                1
            }
            '.' | 'D' | 'd' | 'V' | 'v' if parsed.has_point || parsed.shift.is_some() => {
                return Err(two_points(&parsed, c));
            }
            '.' | 'D' | 'd' => {
                parsed.has_point = true;
                1
            }
            'V' | 'v' => {
                parsed.shift = Some(0);
                1
            }
            '9' | '0' | ',' | 'G' | 'g' => {
                if c == '9' {
                    parsed.shift = parsed.shift.map(|shift| shift + 1);
                }
                let place = if matches!(c, 'G' | 'g') { ',' } else { c };
                if parsed.has_point {
                    parsed.fraction.push(place);
                } else {
                    parsed.whole.push(place);
                }
                1
            }
            other => {
                return Err(SqlError::unsupported(format!("'{other}' in a template of a number"))
                    .hint("A template has 9, 0, a point, a comma, V, FM, S, MI, PR and th."));
            }
        };
        rest = &rest[length..];
    }
    // A sign among the digits stands before them.
    if parsed.sign == Some("S") && sign_at == Some(parsed.places()) {
        parsed.sign = Some("S behind");
    }
    Ok(parsed)
}

fn number(value: Numeric, template: &str) -> Result<String, SqlError> {
    let parsed = number_template(template)?;
    let places = parsed.fraction.iter().filter(|place| **place != ',').count();
    let rounded = parsed.shown(value)?.rescale(u8::try_from(places).unwrap_or(38))?;
    let is_negative = rounded.unscaled < 0;
    let digits = format!("{:0>width$}", rounded.unscaled.unsigned_abs().to_string(), width = places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    let whole = if whole == "0" { "" } else { whole };
    let room = parsed.places();
    let is_too_long = whole.len() > room;
    let mut body = String::new();
    let (mut at, mut is_open) = (0, false);
    let first_zero = parsed.whole.iter().position(|place| *place == '0').unwrap_or(usize::MAX);
    for (place_at, place) in parsed.whole.iter().enumerate() {
        if *place == ',' {
            body.push_str(if is_open {
                ","
            } else if parsed.fills {
                " "
            } else {
                ""
            });
            continue;
        }
        let digit = (at + whole.len()).checked_sub(room).and_then(|digit| whole.as_bytes().get(digit));
        at += 1;
        match digit {
            _ if is_too_long => body.push('#'),
            Some(digit) => {
                is_open = true;
                body.push(*digit as char);
            }
            None if place_at >= first_zero => {
                is_open = true;
                body.push('0');
            }
            // A number without a whole part shows one zero if nothing is behind the point.
            None if at == room && !parsed.has_point => body.push('0'),
            None if parsed.fills => body.push(' '),
            None => {}
        }
    }
    if parsed.has_point {
        if whole.is_empty() && !body.ends_with(|c: char| c.is_ascii_digit()) && !parsed.fills && places == 0 {
            body.push('0');
        }
        body.push('.');
        let kept = if is_too_long { "#".repeat(places) } else { fraction.to_owned() };
        let least = parsed.fraction.iter().rposition(|place| *place == '0').map_or(0, |at| at + 1);
        let shown =
            if parsed.fills { &kept[..] } else { &kept[..kept.trim_end_matches('0').len().max(least)] };
        body.push_str(shown);
    }
    Ok(signed(&parsed, &body, is_negative, whole))
}

/// Puts the sign to the digits, where the template has it.
fn signed(parsed: &NumberTemplate, body: &str, is_negative: bool, whole: &str) -> String {
    let blanks = body.len() - body.trim_start().len();
    let (padding, digits) = body.split_at(blanks);
    let mut out = match parsed.sign {
        Some("PR") if is_negative => format!("{padding}<{digits}>"),
        Some("PR") if parsed.fills => format!("{padding} {digits} "),
        Some("MI") if is_negative => format!("-{body}"),
        Some("behind") if is_negative => format!("{body}-"),
        Some("behind") if parsed.fills => format!("{body} "),
        Some("S") => format!("{padding}{}{digits}", if is_negative { '-' } else { '+' }),
        Some("S behind") => format!("{body}{}", if is_negative { '-' } else { '+' }),
        None if is_negative => format!("{padding}-{digits}"),
        Some("MI") | None if parsed.fills => format!(" {body}"),
        _ => body.to_owned(),
    };
    if let Some(is_upper) = parsed.ordinal.filter(|_| !is_negative && !parsed.has_point) {
        let last: i64 =
            whole.get(whole.len().saturating_sub(2)..).and_then(|end| end.parse().ok()).unwrap_or(0);
        out.push_str(ordinal(last, is_upper));
    }
    out
}

fn read_number(whole: &str, template: &str) -> Result<Value, SqlError> {
    let shift = number_template(template)?.shift;
    let digits: String = whole.chars().filter(|c| c.is_ascii_digit() || matches!(c, '.' | '-')).collect();
    let is_bracketed = whole.contains('<') && whole.contains('>');
    let parsed = Numeric::parse(digits.trim_matches('-'));
    let value = parsed
        .map_err(|_| invalid_parameter(format!("invalid input syntax for type numeric: \"{whole}\"")))?;
    let value = match shift {
        None => value,
        Some(shift) => {
            let scale = shift.max(16);
            let factor = 10_i128.checked_pow(scale - shift).ok_or_else(|| out_of_range(Num))?;
            let scale = u8::try_from(scale).map_err(|_| out_of_range(Num))?;
            value.checked_mul(Numeric { unscaled: factor, scale })?
        }
    };
    Ok(Value::Numeric(if digits.contains('-') || is_bracketed { value.negate() } else { value }))
}
