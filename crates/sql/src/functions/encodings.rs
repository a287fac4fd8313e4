//! Functions of texts that quote, encode, digest or format.

use std::fmt::Write as _;

use super::texts::{quote_ident, shown};
use super::{ANY, Function, int, invalid_parameter, lenient, strict, text, variadic};
use crate::error::{SqlError, SqlState};
use crate::types::SqlType::{Bytea, Int4, Int8, Text};
use crate::value::Value;

pub(super) static FUNCTIONS: &[Function] = &[
    strict("initcap", &[Text], Text, |_, a| Ok(capitalized(text(a, 0)))),
    strict("bit_length", &[Text], Int4, |_, a| Ok(Value::Int(text(a, 0).len() as i64 * 8))),
    strict("md5", &[Text], Text, |_, a| Ok(Value::from(hex(&md5(text(a, 0).as_bytes()))))),
    strict("md5", &[Bytea], Text, |_, a| Ok(Value::from(hex(&md5(bytes(a)))))),
    strict("to_hex", &[Int4], Text, |_, a| Ok(Value::from(format!("{:x}", int(a, 0) as u32)))),
    strict("to_hex", &[Int8], Text, |_, a| Ok(Value::from(format!("{:x}", int(a, 0))))),
    strict("translate", &[Text, Text, Text], Text, |_, a| {
        let (from, to) = (text(a, 1).chars().collect::<Vec<_>>(), text(a, 2).chars().collect::<Vec<_>>());
        let change = |c: char| match from.iter().position(|other| *other == c) {
            Some(at) => to.get(at).copied(),
            None => Some(c),
        };
        Ok(Value::from(text(a, 0).chars().filter_map(change).collect::<String>()))
    }),
    strict("overlay", &[Text, Text, Int4], Text, |_, a| {
        overlay(text(a, 0), text(a, 1), int(a, 2), text(a, 1).chars().count() as i64)
    }),
    strict("overlay", &[Text, Text, Int4, Int4], Text, |_, a| {
        overlay(text(a, 0), text(a, 1), int(a, 2), int(a, 3))
    }),
    lenient("quote_nullable", &[Text], Text, |_, a| {
        Ok(Value::from(a.first().and_then(Value::as_text).map_or_else(|| "NULL".to_owned(), quote_literal)))
    }),
    strict("encode", &[Bytea, Text], Text, |_, a| match text(a, 1) {
        "hex" => Ok(Value::from(hex(bytes(a)))),
        "base64" => Ok(Value::from(base64(bytes(a)))),
        other => Err(unknown_encoding(other)),
    }),
    strict("decode", &[Text, Text], Bytea, |_, a| match text(a, 1) {
        "hex" => crate::format::parse(&format!("\\x{}", text(a, 0)), Bytea),
        "base64" => from_base64(text(a, 0)).map(|bytes| Value::Bytes(bytes.into())),
        other => Err(unknown_encoding(other)),
    }),
    variadic("format", &[Text, ANY], Text, |_, a| format(a)),
];

fn bytes(values: &[Value]) -> &[u8] {
    match values.first() {
        Some(Value::Bytes(bytes)) => bytes,
        _ => &[],
    }
}

fn capitalized(whole: &str) -> Value {
    let mut out = String::with_capacity(whole.len());
    let mut is_inside = false;
    for c in whole.chars() {
        if is_inside {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        is_inside = c.is_alphanumeric();
    }
    Value::from(out)
}

fn overlay(whole: &str, part: &str, from: i64, count: i64) -> Result<Value, SqlError> {
    if from < 1 || count < 0 {
        return Err(SqlError::new(SqlState("22011"), "negative substring length not allowed"));
    }
    let (start, end) = ((from - 1) as usize, (from - 1 + count) as usize);
    let before = whole.chars().take(start);
    Ok(Value::from(before.chain(part.chars()).chain(whole.chars().skip(end)).collect::<String>()))
}

fn quote_literal(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The text of bytes in base 64, in lines of 76 characters.
fn base64(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (at, chunk) in bytes.chunks(3).enumerate() {
        if at > 0 && at % 19 == 0 {
            out.push('\n');
        }
        let word =
            chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            let is_there = digit <= chunk.len();
            let value = word >> (18 - 6 * digit) & 63;
            out.push(if is_there { BASE64[value as usize] as char } else { '=' });
        }
    }
    out
}

fn from_base64(text: &str) -> Result<Vec<u8>, SqlError> {
    let invalid = || invalid_parameter("invalid base64 text");
    let (mut out, mut word, mut bits) = (Vec::new(), 0_u32, 0);
    for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'=') {
        let value = BASE64.iter().position(|digit| *digit == byte).ok_or_else(invalid)?;
        word = word << 6 | value as u32;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push((word >> bits) as u8);
            word &= (1 << bits) - 1;
        }
    }
    if bits >= 6 { Err(invalid()) } else { Ok(out) }
}

#[cold]
fn unknown_encoding(name: &str) -> SqlError {
    invalid_parameter(format!("unrecognized encoding: \"{name}\"")).hint("The encodings are hex and base64.")
}

/// `format`: `%s`, `%I`, `%L` and `%%`, with the number of an argument if one is written.
fn format(values: &[Value]) -> Result<Value, SqlError> {
    let Some(Value::Text(template)) = values.first() else { return Ok(Value::Null) };
    let (mut out, mut next) = (String::new(), 1);
    let mut rest = &**template;
    while let Some((before, behind)) = rest.split_once('%') {
        out.push_str(before);
        let digits = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
        let (at, behind) = match behind[digits..].strip_prefix('$') {
            Some(behind) if digits > 0 => (rest_number(&rest[before.len() + 1..][..digits])?, behind),
            _ => (next, behind),
        };
        let kind = behind.chars().next().unwrap_or(' ');
        rest = behind.get(kind.len_utf8()..).unwrap_or("");
        if kind == '%' {
            out.push('%');
            continue;
        }
        let value = values.get(at).ok_or_else(|| invalid_parameter("too few arguments for format()"))?;
        next = at + 1;
        match kind {
            's' => out.push_str(&shown(value)),
            'I' if value.is_null() => {
                return Err(SqlError::new(
                    SqlState("22004"),
                    "null values cannot be formatted as an SQL identifier",
                ));
            }
            'I' => out.push_str(&quote_ident(&shown(value))),
            'L' if value.is_null() => out.push_str("NULL"),
            'L' => out.push_str(&quote_literal(&shown(value))),
            other => {
                return Err(invalid_parameter(format!("unrecognized format() type specifier \"{other}\"")));
            }
        }
    }
    out.push_str(rest);
    Ok(Value::from(out))
}

fn rest_number(digits: &str) -> Result<usize, SqlError> {
    digits
        .parse()
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| invalid_parameter("format specifies argument 0, but arguments are numbered from 1"))
}

/// The digest of RFC 1321, which PostgreSQL has for texts; it keeps no secret.
fn md5(message: &[u8]) -> [u8; 16] {
    const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
    let mut padded = message.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&(message.len() as u64).wrapping_mul(8).to_le_bytes());
    let mut state = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for block in padded.chunks_exact(64) {
        let words: Vec<u32> = block
            .chunks_exact(4)
            .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
            .collect();
        let [mut a, mut b, mut c, mut d] = state;
        for round in 0..64_usize {
            let (mixed, at) = match round / 16 {
                0 => ((b & c) | (!b & d), round),
                1 => ((d & b) | (!d & c), (5 * round + 1) % 16),
                2 => (b ^ c ^ d, (3 * round + 5) % 16),
                _ => (c ^ (b | !d), 7 * round % 16),
            };
            let constant = (((round + 1) as f64).sin().abs() * 4_294_967_296.0) as u32;
            let sum = a.wrapping_add(mixed).wrapping_add(constant).wrapping_add(words[at]);
            (a, d, c) = (d, c, b);
            b = b.wrapping_add(sum.rotate_left(SHIFTS[round / 16][round % 4]));
        }
        for (old, new) in state.iter_mut().zip([a, b, c, d]) {
            *old = old.wrapping_add(new);
        }
    }
    let mut digest = [0; 16];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_rfc() {
        assert_eq!(hex(&md5(b"")), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(hex(&md5(b"message digest")), "f96b697d7cb7938d525a2f31aaf161d0");
        let digits = "12345678901234567890123456789012345678901234567890123456789012345678901234567890";
        assert_eq!(hex(&md5(digits.as_bytes())), "57edf4a22be3c955ac49da2e2107b67a");
    }

    #[test]
    fn base_64_leads_back() {
        for length in 0..70_u8 {
            let bytes: Vec<u8> = (0..length).map(|byte| byte.wrapping_mul(37)).collect();
            assert_eq!(from_base64(&base64(&bytes)).unwrap(), bytes);
        }
        assert_eq!(base64(b"any carnal pleas"), "YW55IGNhcm5hbCBwbGVhcw==");
        assert!(from_base64("a").is_err());
    }
}
