//! Functions of bytes: parts of them, single bytes and bits, digests, and texts as bytes.

use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use super::texts::bounded;
use super::{Function, int, invalid_parameter, strict, text};
use crate::error::{SqlError, SqlState};
use crate::types::SqlType::{Bytea, Int4, Int8, Name, Text};
use crate::value::Value;

pub(super) static FUNCTIONS: &[Function] = &[
    strict("length", &[Bytea], Int4, |_, a| Ok(Value::Int(octets(a, 0).len() as i64))),
    strict("length", &[Bytea, Name], Int4, |_, a| {
        Ok(Value::Int(from_text(octets(a, 0), text(a, 1))?.chars().count() as i64))
    }),
    strict("octet_length", &[Bytea], Int4, |_, a| Ok(Value::Int(octets(a, 0).len() as i64))),
    strict("bit_length", &[Bytea], Int4, |_, a| Ok(Value::Int(octets(a, 0).len() as i64 * 8))),
    strict("bit_count", &[Bytea], Int8, |_, a| {
        Ok(Value::Int(octets(a, 0).iter().map(|octet| i64::from(octet.count_ones())).sum()))
    }),
    strict("byteacat", &[Bytea, Bytea], Bytea, |_, a| joined(&[octets(a, 0), octets(a, 1)])),
    strict("substring", &[Bytea, Int4], Bytea, |_, a| part(a, None)),
    strict("substring", &[Bytea, Int4, Int4], Bytea, |_, a| part(a, Some(int(a, 2)))),
    strict("substr", &[Bytea, Int4], Bytea, |_, a| part(a, None)),
    strict("substr", &[Bytea, Int4, Int4], Bytea, |_, a| part(a, Some(int(a, 2)))),
    strict("strpos", &[Bytea, Bytea], Int4, |_, a| Ok(position(octets(a, 0), octets(a, 1)))),
    strict("position", &[Bytea, Bytea], Int4, |_, a| Ok(position(octets(a, 1), octets(a, 0)))),
    strict("btrim", &[Bytea, Bytea], Bytea, |_, a| Ok(trimmed(a, true, true))),
    strict("ltrim", &[Bytea, Bytea], Bytea, |_, a| Ok(trimmed(a, true, false))),
    strict("rtrim", &[Bytea, Bytea], Bytea, |_, a| Ok(trimmed(a, false, true))),
    strict("overlay", &[Bytea, Bytea, Int4], Bytea, |_, a| overlay(a, octets(a, 1).len() as i64)),
    strict("overlay", &[Bytea, Bytea, Int4, Int4], Bytea, |_, a| overlay(a, int(a, 3))),
    strict("get_byte", &[Bytea, Int4], Int4, |_, a| {
        Ok(Value::Int(octets(a, 0)[place(a, int(a, 1), 1)?].into()))
    }),
    strict("set_byte", &[Bytea, Int4, Int4], Bytea, |_, a| {
        let (at, mut changed) = (place(a, int(a, 1), 1)?, octets(a, 0).to_vec());
        changed[at] = int(a, 2) as u8;
        Ok(of(changed))
    }),
    strict("get_bit", &[Bytea, Int8], Int4, |_, a| {
        let at = place(a, int(a, 1), 8)?;
        Ok(Value::Int((octets(a, 0)[at / 8] >> (at % 8) & 1).into()))
    }),
    strict("set_bit", &[Bytea, Int8, Int4], Bytea, |_, a| {
        let (at, mut changed) = (place(a, int(a, 1), 8)?, octets(a, 0).to_vec());
        match int(a, 2) {
            0 => changed[at / 8] &= !(1 << (at % 8)),
            1 => changed[at / 8] |= 1 << (at % 8),
            _ => return Err(invalid_parameter("new bit must be 0 or 1")),
        }
        Ok(of(changed))
    }),
    strict("sha224", &[Bytea], Bytea, |_, a| Ok(of(Sha224::digest(octets(a, 0)).to_vec()))),
    strict("sha256", &[Bytea], Bytea, |_, a| Ok(of(Sha256::digest(octets(a, 0)).to_vec()))),
    strict("sha384", &[Bytea], Bytea, |_, a| Ok(of(Sha384::digest(octets(a, 0)).to_vec()))),
    strict("sha512", &[Bytea], Bytea, |_, a| Ok(of(Sha512::digest(octets(a, 0)).to_vec()))),
    strict("convert_from", &[Bytea, Name], Text, |_, a| from_text(octets(a, 0), text(a, 1)).map(Value::text)),
    strict("convert_to", &[Text, Name], Bytea, |_, a| {
        check_encoding(text(a, 1))?;
        Ok(of(text(a, 0).as_bytes().to_vec()))
    }),
];

fn octets(values: &[Value], at: usize) -> &[u8] {
    match values.get(at) {
        Some(Value::Bytes(octets)) => octets,
        _ => &[],
    }
}

fn of(octets: Vec<u8>) -> Value {
    Value::Bytes(octets.into())
}

fn joined(parts: &[&[u8]]) -> Result<Value, SqlError> {
    bounded(parts.iter().map(|part| part.len()).sum())?;
    Ok(of(parts.concat()))
}

#[cold]
fn negative_length() -> SqlError {
    SqlError::new(SqlState("22011"), "negative substring length not allowed")
}

/// So many bytes from the one of a number on, from 1; bytes before the first one count.
fn part(values: &[Value], count: Option<i64>) -> Result<Value, SqlError> {
    let (whole, first) = (octets(values, 0), int(values, 1));
    let end = match count {
        Some(count) if count < 0 => return Err(negative_length()),
        Some(count) => first.saturating_add(count) - 1,
        None => whole.len() as i64,
    };
    let begin = usize::try_from(first.max(1) - 1).unwrap_or(0).min(whole.len());
    let end = usize::try_from(end.max(0)).unwrap_or(0).clamp(begin, whole.len());
    Ok(of(whole[begin..end].to_vec()))
}

fn position(whole: &[u8], part: &[u8]) -> Value {
    let at = if part.is_empty() { Some(0) } else { memchr::memmem::find(whole, part) };
    Value::Int(at.map_or(0, |at| at as i64 + 1))
}

fn trimmed(values: &[Value], at_start: bool, at_end: bool) -> Value {
    let (mut rest, gone) = (octets(values, 0), octets(values, 1));
    while let [first, behind @ ..] = rest
        && at_start
        && gone.contains(first)
    {
        rest = behind;
    }
    while let [before @ .., last] = rest
        && at_end
        && gone.contains(last)
    {
        rest = before;
    }
    of(rest.to_vec())
}

fn overlay(values: &[Value], count: i64) -> Result<Value, SqlError> {
    let (whole, first) = (octets(values, 0), int(values, 2));
    if first < 1 {
        return Err(negative_length());
    }
    let place = |place: i64| usize::try_from(place.max(0)).unwrap_or(0).min(whole.len());
    let (before, behind) = (&whole[..place(first - 1)], &whole[place((first - 1).saturating_add(count))..]);
    joined(&[before, octets(values, 1), behind])
}

/// The place of a byte, or of a bit, of the first argument, from 0.
fn place(values: &[Value], at: i64, per_byte: i64) -> Result<usize, SqlError> {
    let last = octets(values, 0).len() as i64 * per_byte - 1;
    if !(0..=last).contains(&at) {
        let message = format!("index {at} out of valid range, 0..{last}");
        return Err(SqlError::new(SqlState("2202E"), message));
    }
    Ok(at as usize)
}

/// Refuses the name of an encoding that is not that of all texts here.
fn check_encoding(name: &str) -> Result<(), SqlError> {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    if matches!(plain.to_ascii_lowercase().as_str(), "utf8" | "unicode") {
        return Ok(());
    }
    Err(SqlError::unsupported(format!("the encoding \"{name}\"")).hint("Texts are of UTF8."))
}

fn from_text<'a>(octets: &'a [u8], encoding: &str) -> Result<&'a str, SqlError> {
    check_encoding(encoding)?;
    let valid = std::str::from_utf8(octets).map_err(|error| error.valid_up_to());
    let wrong = match valid.map(|text| (text, text.find('\0'))) {
        Ok((text, None)) => return Ok(text),
        Ok((_, Some(zero))) => zero,
        Err(invalid) => invalid,
    };
    let octet = octets.get(wrong).copied().unwrap_or(0);
    let message = format!("invalid byte sequence for encoding \"UTF8\": 0x{octet:02x}");
    Err(SqlError::new(SqlState("22021"), message))
}
