//! The text and binary formats of values, as they go over the wire.
//!
//! Owns: the bytes of a value in either [`Format`]. Never: pads a `character(n)`, or finds the name of an object's number: who
//! knows the column and the catalog does (`exec::output`).
//!
//! Invariant: what is encoded in a format is decoded from it to an equal value, but that a `real` is rounded to its 32 bits.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::datetime::{
    DAY, EPOCH_DAYS, parse_date, parse_time, parse_timestamp, push_date, push_time, push_timestamp,
};
use crate::error::{SqlError, SqlState};
use crate::interval::Interval;
use crate::json::Json;
use crate::network::Network;
use crate::numeric::Numeric;
use crate::types::SqlType;
use crate::value::Value;

/// The form in which a value goes over the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// As people write it.
    #[default]
    Text,
    /// As machines do.
    Binary,
}

impl Format {
    /// Returns the format of a value by its place, of formats that have no element (all text), one for all, or one for each.
    #[must_use]
    pub fn of(formats: &[Format], at: usize) -> Format {
        match formats {
            [] => Format::Text,
            [one] => *one,
            all => all.get(at).copied().unwrap_or_default(),
        }
    }

    /// The format of a code of the protocol.
    ///
    /// # Errors
    /// When the code is neither 0 nor 1.
    pub fn from_code(code: i16) -> Result<Format, SqlError> {
        match code {
            0 => Ok(Format::Text),
            1 => Ok(Format::Binary),
            other => {
                Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, format!("unsupported format code: {other}")))
            }
        }
    }

    /// The code of the protocol.
    #[must_use]
    pub fn code(self) -> i16 {
        match self {
            Format::Text => 0,
            Format::Binary => 1,
        }
    }
}

/// Appends a value that is not NULL in a format. (NULL has no bytes: the protocol gives it a length of -1.)
pub fn encode(value: &Value, ty: SqlType, format: Format, out: &mut Vec<u8>) {
    match format {
        Format::Text => encode_text(value, ty, out),
        Format::Binary => encode_binary(value, ty, out),
    }
}

/// The text of a value that is not NULL.
#[must_use]
pub fn text_of(value: &Value, ty: SqlType) -> String {
    let mut out = Vec::new();
    encode_text(value, ty, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

fn encode_text(value: &Value, ty: SqlType, out: &mut Vec<u8>) {
    let mut text = String::new();
    match value {
        Value::Null => return,
        Value::Bool(value) => text.push(if *value { 't' } else { 'f' }),
        Value::Int(number) => {
            push_integer(*number, out);
            return;
        }
        Value::Float(number) => push_float(*number, ty == SqlType::Float4, &mut text),
        Value::Numeric(number) => {
            let _ = write!(text, "{number}");
        }
        Value::Text(value) => {
            out.extend_from_slice(value.as_bytes());
            return;
        }
        Value::Network(own) => text.push_str(&own.text(false)),
        Value::Bytes(bytes) => {
            text.push_str("\\x");
            for byte in bytes.iter() {
                let _ = write!(text, "{byte:02x}");
            }
        }
        Value::Date(days) => push_date(*days, &mut text),
        Value::Time(time) => push_time(*time, &mut text),
        Value::Timestamp(moment) => push_timestamp(*moment, ty == SqlType::Timestamptz, &mut text),
        Value::Interval(span) => span.push(&mut text),
        Value::Uuid(uuid) => push_uuid(uuid, &mut text),
        Value::Array(elements) => {
            encode_array_text(elements, ty, out);
            return;
        }
        Value::Record(record) => {
            record.encode_text(out);
            return;
        }
    }
    out.extend_from_slice(text.as_bytes());
}

fn push_integer(number: i64, out: &mut Vec<u8>) {
    let mut digits = [0_u8; 20];
    let (mut at, mut rest) = (digits.len(), number.unsigned_abs());
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends the shortest digits that lead back to the number, with an exponent where PostgreSQL has one.
fn push_float(number: f64, is_single: bool, out: &mut String) {
    if !number.is_finite() {
        out.push_str(if number.is_nan() {
            "NaN"
        } else if number > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        });
        return;
    }
    let scientific = if is_single { format!("{:e}", number as f32) } else { format!("{number:e}") };
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let most = if is_single { 6 } else { 15 };
    if (-4..most).contains(&exponent) {
        let _ = if is_single { write!(out, "{}", number as f32) } else { write!(out, "{number}") };
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "{mantissa}e{sign}{:02}", exponent.abs());
    }
}

fn push_uuid(uuid: &[u8; 16], out: &mut String) {
    for (at, byte) in uuid.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        let _ = write!(out, "{byte:02x}");
    }
}

fn encode_array_text(elements: &[Value], ty: SqlType, out: &mut Vec<u8>) {
    let element = ty.element().unwrap_or(SqlType::Text);
    let is_vector = matches!(ty, SqlType::Int2Vector | SqlType::OidVector);
    if !is_vector {
        out.push(b'{');
    }
    for (at, value) in elements.iter().enumerate() {
        if at > 0 {
            out.push(if is_vector { b' ' } else { b',' });
        }
        if value.is_null() {
            out.extend_from_slice(b"NULL");
            continue;
        }
        let text = text_of(value, element);
        let is_special = |c: char| c.is_whitespace() || matches!(c, '{' | '}' | ',' | '"' | '\\');
        if !text.is_empty() && !text.contains(is_special) && !text.eq_ignore_ascii_case("null") {
            out.extend_from_slice(text.as_bytes());
            continue;
        }
        out.push(b'"');
        for byte in text.bytes() {
            if matches!(byte, b'"' | b'\\') {
                out.push(b'\\');
            }
            out.push(byte);
        }
        out.push(b'"');
    }
    if !is_vector {
        out.push(b'}');
    }
}

fn encode_binary(value: &Value, ty: SqlType, out: &mut Vec<u8>) {
    match value {
        Value::Null => {}
        Value::Bool(value) => out.push(u8::from(*value)),
        Value::Int(number) => match ty {
            SqlType::Int2 => out.extend_from_slice(&(*number as i16).to_be_bytes()),
            SqlType::Int8 | SqlType::Xid8 => out.extend_from_slice(&number.to_be_bytes()),
            _ => out.extend_from_slice(&(*number as u32).to_be_bytes()),
        },
        Value::Float(number) if ty == SqlType::Float4 => {
            out.extend_from_slice(&(*number as f32).to_be_bytes());
        }
        Value::Float(number) => out.extend_from_slice(&number.to_be_bytes()),
        Value::Numeric(number) => number.encode_binary(out),
        Value::Text(text) => {
            if ty == SqlType::Jsonb {
                out.push(1);
            }
            out.extend_from_slice(text.as_bytes());
        }
        Value::Network(own) => own.encode(out),
        Value::Bytes(bytes) => out.extend_from_slice(bytes),
        Value::Date(days) => out.extend_from_slice(&days.wrapping_sub(EPOCH_DAYS).to_be_bytes()),
        Value::Time(time) => out.extend_from_slice(&time.to_be_bytes()),
        Value::Timestamp(moment) => {
            let since = moment.wrapping_sub(i64::from(EPOCH_DAYS) * DAY);
            out.extend_from_slice(&since.to_be_bytes());
        }
        Value::Interval(span) => {
            out.extend_from_slice(&span.micros.to_be_bytes());
            out.extend_from_slice(&span.days.to_be_bytes());
            out.extend_from_slice(&span.months.to_be_bytes());
        }
        Value::Uuid(uuid) => out.extend_from_slice(uuid),
        Value::Array(elements) => encode_array_binary(elements, ty, out),
        Value::Record(record) => record.encode_binary(out),
    }
}

fn encode_array_binary(elements: &[Value], ty: SqlType, out: &mut Vec<u8>) {
    let element = ty.element().unwrap_or(SqlType::Text);
    let has_nulls = elements.iter().any(Value::is_null);
    let is_vector = matches!(ty, SqlType::Int2Vector | SqlType::OidVector);
    out.extend_from_slice(&i32::from(!elements.is_empty() || is_vector).to_be_bytes());
    out.extend_from_slice(&i32::from(has_nulls).to_be_bytes());
    out.extend_from_slice(&element.oid().to_be_bytes());
    if elements.is_empty() && !is_vector {
        return;
    }
    out.extend_from_slice(&(elements.len() as i32).to_be_bytes());
    out.extend_from_slice(&i32::from(!is_vector).to_be_bytes());
    for value in elements {
        if value.is_null() {
            out.extend_from_slice(&(-1_i32).to_be_bytes());
            continue;
        }
        let at = out.len();
        out.extend_from_slice(&[0; 4]);
        encode_binary(value, element, out);
        let length = (out.len() - at - 4) as i32;
        out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    }
}

/// Reads a value that is not NULL.
///
/// A type whose values are numbers of objects takes their names in the text format, too: the value is then a text.
///
/// # Errors
/// When the bytes are no value of the type.
pub fn decode(bytes: &[u8], ty: SqlType, format: Format) -> Result<Value, SqlError> {
    match format {
        Format::Text => {
            let text = std::str::from_utf8(bytes).map_err(|_| not_utf8())?;
            if text.contains('\0') {
                return Err(not_utf8());
            }
            parse(text, ty)
        }
        Format::Binary => decode_binary(bytes, ty),
    }
}

#[cold]
fn not_utf8() -> SqlError {
    SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, "invalid byte sequence for encoding \"UTF8\"")
}

#[cold]
fn invalid_text(ty: SqlType, text: &str) -> SqlError {
    SqlError::new(
        SqlState::INVALID_TEXT_REPRESENTATION,
        format!("invalid input syntax for type {ty}: \"{text}\""),
    )
}

#[cold]
fn invalid_binary(ty: SqlType) -> SqlError {
    SqlError::new(
        SqlState::INVALID_BINARY_REPRESENTATION,
        format!("incorrect binary data format for a value of type {ty}"),
    )
}

/// The error for an integer that does not fit its type.
#[cold]
pub(crate) fn out_of_range(ty: SqlType) -> SqlError {
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("{ty} out of range"))
}

/// Checks the range of an integer type.
pub(crate) fn fit_integer(number: i64, ty: SqlType) -> Result<i64, SqlError> {
    let fits = match ty {
        SqlType::Int2 => i16::try_from(number).is_ok(),
        SqlType::Int4 => i32::try_from(number).is_ok(),
        SqlType::Int8 | SqlType::Xid8 => true,
        _ => u32::try_from(number).is_ok(),
    };
    if fits { Ok(number) } else { Err(out_of_range(ty)) }
}

/// Reads a value from its text.
///
/// # Errors
/// When the text is no value of the type.
pub fn parse(text: &str, ty: SqlType) -> Result<Value, SqlError> {
    Ok(match ty {
        SqlType::Bool => Value::Bool(parse_bool(text)?),
        SqlType::Int2 | SqlType::Int4 | SqlType::Int8 | SqlType::Xid8 => Value::Int(parse_integer(text, ty)?),
        _ if ty.is_oid() => match text.trim().parse::<u32>() {
            Ok(number) => Value::Int(i64::from(number)),
            Err(_) if ty == SqlType::Oid => return Err(invalid_text(ty, text)),
            Err(_) => Value::text(text),
        },
        SqlType::Float4 | SqlType::Float8 => Value::Float(parse_float(text, ty)?),
        SqlType::Numeric => Value::Numeric(Numeric::parse(text)?),
        SqlType::Bpchar => Value::text(without_padding(text)),
        SqlType::Bytea => Value::Bytes(parse_bytes(text)?),
        SqlType::Inet | SqlType::Cidr => Value::Network(Network::parse(text, ty)?),
        SqlType::Date => Value::Date(parse_date(text)?),
        SqlType::Time => Value::Time(parse_time(text)?),
        SqlType::Timestamp => Value::Timestamp(parse_timestamp(text, false)?),
        SqlType::Timestamptz => Value::Timestamp(parse_timestamp(text, true)?),
        SqlType::Interval => Value::Interval(Interval::parse(text)?),
        SqlType::Uuid => Value::Uuid(parse_uuid(text).ok_or_else(|| invalid_text(ty, text))?),
        SqlType::Json => {
            Json::read(text, ty)?;
            Value::text(text)
        }
        SqlType::Jsonb => Value::from(Json::read(text, ty)?.shown()),
        SqlType::Record => return Err(SqlError::unsupported("a composite value in a text")),
        _ => match ty.element() {
            Some(element) => parse_array(text, ty, element)?,
            None => Value::text(text),
        },
    })
}

/// A text without the spaces at its end. (By words: the search of the standard library goes back one character at a time.)
pub(crate) fn without_padding(text: &str) -> &str {
    let mut rest = text.as_bytes();
    while let Some((before, [b' ', b' ', b' ', b' ', b' ', b' ', b' ', b' '])) = rest.split_last_chunk() {
        rest = before;
    }
    let end = rest.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
    &text[..end]
}

fn parse_bool(text: &str) -> Result<bool, SqlError> {
    let word = text.trim().to_ascii_lowercase();
    let begins = |whole: &str, least: usize| word.len() >= least && whole.starts_with(&word);
    if begins("true", 1) || begins("yes", 1) || begins("on", 2) || word == "1" {
        return Ok(true);
    }
    if begins("false", 1) || begins("no", 1) || begins("off", 2) || word == "0" {
        return Ok(false);
    }
    Err(invalid_text(SqlType::Bool, text))
}

fn parse_integer(text: &str, ty: SqlType) -> Result<i64, SqlError> {
    let trimmed = text.trim();
    let digits = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid_text(ty, text));
    }
    let beyond = || {
        SqlError::new(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            format!("value \"{text}\" is out of range for type {ty}"),
        )
    };
    let number: i64 = trimmed.parse().map_err(|_| beyond())?;
    fit_integer(number, ty).map_err(|_| beyond())
}

fn parse_float(text: &str, ty: SqlType) -> Result<f64, SqlError> {
    let trimmed = text.trim();
    let is_number = trimmed.bytes().any(|byte| byte.is_ascii_digit());
    let number: f64 = trimmed.parse().map_err(|_| invalid_text(ty, text))?;
    let number = if ty == SqlType::Float4 { f64::from(number as f32) } else { number };
    if is_number && !number.is_finite() {
        return Err(SqlError::new(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            format!("\"{text}\" is out of range for type {ty}"),
        ));
    }
    Ok(number)
}

fn parse_bytes(text: &str) -> Result<Arc<[u8]>, SqlError> {
    let invalid = || invalid_text(SqlType::Bytea, text);
    let mut bytes = Vec::with_capacity(text.len() / 2);
    if let Some(hex) = text.strip_prefix("\\x") {
        let digit = |byte: u8| (byte as char).to_digit(16).ok_or_else(invalid);
        let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        for pair in digits.chunks(2) {
            let [high, low] = pair else { return Err(invalid()) };
            bytes.push((digit(*high)? * 16 + digit(*low)?) as u8);
        }
        return Ok(bytes.into());
    }
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        if *first != b'\\' {
            bytes.push(*first);
            rest = behind;
        } else if behind.first() == Some(&b'\\') {
            bytes.push(b'\\');
            rest = &behind[1..];
        } else {
            let octal =
                behind.get(..3).filter(|octal| octal.iter().all(|digit| (b'0'..=b'7').contains(digit)));
            let octal = octal.ok_or_else(invalid)?;
            let number = octal.iter().fold(0_u32, |number, digit| number * 8 + u32::from(digit - b'0'));
            bytes.push(u8::try_from(number).map_err(|_| invalid())?);
            rest = &behind[3..];
        }
    }
    Ok(bytes.into())
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let inner = text.trim();
    let inner = inner.strip_prefix('{').and_then(|inner| inner.strip_suffix('}')).unwrap_or(inner);
    let digits: Vec<u8> = inner.bytes().filter(|byte| *byte != b'-').collect();
    if digits.len() != 32 {
        return None;
    }
    let mut uuid = [0; 16];
    for (byte, pair) in uuid.iter_mut().zip(digits.chunks(2)) {
        *byte = ((pair[0] as char).to_digit(16)? * 16 + (pair[1] as char).to_digit(16)?) as u8;
    }
    Some(uuid)
}

fn parse_array(text: &str, ty: SqlType, element: SqlType) -> Result<Value, SqlError> {
    let malformed = || {
        SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, format!("malformed array literal: \"{text}\""))
    };
    if matches!(ty, SqlType::Int2Vector | SqlType::OidVector) {
        let elements: Result<Vec<Value>, SqlError> =
            text.split_whitespace().map(|part| parse(part, element)).collect();
        return elements.map(|elements| Value::Array(elements.into()));
    }
    let inner =
        text.trim().strip_prefix('{').and_then(|text| text.strip_suffix('}')).ok_or_else(malformed)?;
    let mut elements = Vec::new();
    let mut characters = inner.chars().peekable();
    if inner.trim().is_empty() {
        return Ok(Value::Array(elements.into()));
    }
    loop {
        while characters.next_if(|c| c.is_whitespace()).is_some() {}
        let (mut part, mut is_quoted) = (String::new(), false);
        if characters.next_if_eq(&'"').is_some() {
            is_quoted = true;
            loop {
                match characters.next().ok_or_else(malformed)? {
                    '"' => break,
                    '\\' => part.push(characters.next().ok_or_else(malformed)?),
                    other => part.push(other),
                }
            }
        } else {
            while let Some(c) = characters.next_if(|c| *c != ',') {
                match c {
                    '{' | '}' | '"' => return Err(malformed()),
                    '\\' => part.push(characters.next().ok_or_else(malformed)?),
                    other => part.push(other),
                }
            }
            part.truncate(part.trim_end().len());
            if part.is_empty() {
                return Err(malformed());
            }
        }
        while characters.next_if(|c| c.is_whitespace()).is_some() {}
        let is_null = !is_quoted && part.eq_ignore_ascii_case("null");
        elements.push(if is_null { Value::Null } else { parse(&part, element)? });
        match characters.next() {
            None => return Ok(Value::Array(elements.into())),
            Some(',') => {}
            Some(_) => return Err(malformed()),
        }
    }
}

fn decode_binary(bytes: &[u8], ty: SqlType) -> Result<Value, SqlError> {
    let wrong = || invalid_binary(ty);
    let eight = || <[u8; 8]>::try_from(bytes).map_err(|_| wrong());
    let four = || <[u8; 4]>::try_from(bytes).map_err(|_| wrong());
    Ok(match ty {
        SqlType::Bool => match bytes {
            [byte] => Value::Bool(*byte != 0),
            _ => return Err(wrong()),
        },
        SqlType::Int2 => Value::Int(i16::from_be_bytes(bytes.try_into().map_err(|_| wrong())?).into()),
        SqlType::Int4 => Value::Int(i32::from_be_bytes(four()?).into()),
        SqlType::Int8 | SqlType::Xid8 => Value::Int(i64::from_be_bytes(eight()?)),
        _ if ty.is_oid() => Value::Int(u32::from_be_bytes(four()?).into()),
        SqlType::Float4 => Value::Float(f32::from_be_bytes(four()?).into()),
        SqlType::Float8 => Value::Float(f64::from_be_bytes(eight()?)),
        SqlType::Numeric => Value::Numeric(Numeric::decode_binary(bytes)?),
        SqlType::Bytea => Value::Bytes(bytes.into()),
        SqlType::Inet | SqlType::Cidr => Value::Network(Network::decode(bytes, ty).ok_or_else(wrong)?),
        SqlType::Date => Value::Date(i32::from_be_bytes(four()?).checked_add(EPOCH_DAYS).ok_or_else(wrong)?),
        SqlType::Time => {
            let time = i64::from_be_bytes(eight()?);
            if !(0..=DAY).contains(&time) {
                return Err(wrong());
            }
            Value::Time(time)
        }
        SqlType::Timestamp | SqlType::Timestamptz => {
            let since = i64::from_be_bytes(eight()?);
            Value::Timestamp(since.checked_add(i64::from(EPOCH_DAYS) * DAY).ok_or_else(wrong)?)
        }
        SqlType::Interval => {
            let (micros, rest) = bytes.split_first_chunk::<8>().ok_or_else(wrong)?;
            let (days, months) = rest.split_first_chunk::<4>().ok_or_else(wrong)?;
            Value::Interval(Interval {
                months: i32::from_be_bytes(months.try_into().map_err(|_| wrong())?),
                days: i32::from_be_bytes(*days),
                micros: i64::from_be_bytes(*micros),
            })
        }
        SqlType::Uuid => Value::Uuid(bytes.try_into().map_err(|_| wrong())?),
        SqlType::Jsonb => match bytes.split_first() {
            Some((1, json)) => decode(json, SqlType::Jsonb, Format::Text)?,
            _ => return Err(wrong()),
        },
        _ => match ty.element() {
            Some(element) => decode_array_binary(bytes, ty, element)?,
            None => return decode(bytes, ty, Format::Text),
        },
    })
}

fn decode_array_binary(bytes: &[u8], ty: SqlType, element: SqlType) -> Result<Value, SqlError> {
    let wrong = || invalid_binary(ty);
    let mut rest = bytes;
    let word = |rest: &mut &[u8]| -> Result<i32, SqlError> {
        let (word, behind) = rest.split_first_chunk::<4>().ok_or_else(wrong)?;
        *rest = behind;
        Ok(i32::from_be_bytes(*word))
    };
    let (dimensions, _nulls, of) = (word(&mut rest)?, word(&mut rest)?, word(&mut rest)?);
    if of as u32 != element.oid()
        && !(element.is_text() && SqlType::from_oid(of as u32).is_some_and(SqlType::is_text))
    {
        return Err(wrong());
    }
    if dimensions == 0 {
        return Ok(Value::Array(Arc::from([])));
    }
    if dimensions != 1 {
        return Err(SqlError::unsupported("an array of several dimensions"));
    }
    let (count, _lower) = (word(&mut rest)?, word(&mut rest)?);
    let mut elements = Vec::new();
    for _ in 0..count {
        let length = word(&mut rest)?;
        if length == -1 {
            elements.push(Value::Null);
            continue;
        }
        let length = usize::try_from(length).map_err(|_| wrong())?;
        let (value, behind) = rest.split_at_checked(length).ok_or_else(wrong)?;
        elements.push(decode_binary(value, element)?);
        rest = behind;
    }
    if rest.is_empty() { Ok(Value::Array(elements.into())) } else { Err(wrong()) }
}

#[cfg(test)]
#[path = "format/tests.rs"]
mod tests;
