//! The values in encoded keys and rows, by the readable names of their types that the catalog keeps.
//!
//! Owns: taking keys and rows apart, so that a number in a row can be recognized in a key. Never: fails; what is not
//! understood is left out.

use atrapos_durability::manifest::StoredColumn;
use atrapos_storage::lock::LockTarget;
use atrapos_storage::{KeyBuf, prefix_successor};

/// A value, the same however wide the field is that holds it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Value {
    /// A number that is not negative, or a boolean.
    Number(u128),
    /// A negative number.
    Negative(i128),
    /// Text or bytes, without zeros at the end.
    Bytes(Vec<u8>),
}

impl Value {
    fn signed(number: i128) -> Value {
        u128::try_from(number).map_or(Value::Negative(number), Value::Number)
    }

    fn bytes(bytes: &[u8]) -> Value {
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        Value::Bytes(bytes[..end].to_vec())
    }
}

/// The type of a part of a key, or of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Bytes of an unsigned integer.
    Unsigned(usize),
    /// Bytes of a signed integer.
    Signed(usize),
    /// Bytes, or text of fixed size.
    Bytes(usize),
    /// Text of any length: in a key up to two zeros, in a row with its length.
    Text,
    /// Something else: in a key all the rest.
    Unknown,
}

/// The parts of keys of the type that is called `name`; those of tuples one after another.
pub(super) fn parts_of_key(name: &str) -> Vec<Part> {
    let mut names = Vec::new();
    let (mut depth, mut word) = (0_usize, String::new());
    for letter in name.chars() {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match letter {
            '(' | ')' | ',' if depth == 0 => names.push(std::mem::take(&mut word)),
            _ => word.push(letter),
        }
    }
    names.push(word);
    names.iter().map(|name| name.trim()).filter(|name| !name.is_empty()).map(part_of_key).collect()
}

fn part_of_key(name: &str) -> Part {
    let bits = |prefix: &str| name.strip_prefix(prefix)?.parse::<usize>().ok();
    let count = |prefix: &str, end: &str| name.strip_prefix(prefix)?.strip_suffix(end)?.trim().parse().ok();
    if let Some(bits) = bits("u") {
        return Part::Unsigned(bits / 8);
    }
    if let Some(bits) = bits("i") {
        return Part::Signed(bits / 8);
    }
    if let Some(bytes) = count("[u8;", "]").or_else(|| count("FixedStr<", ">")) {
        return Part::Bytes(bytes);
    }
    match name {
        "bool" => Part::Unsigned(1),
        "String" => Part::Text,
        _ => Part::Unknown,
    }
}

/// The values of a key, or of its beginning, and where each ends in it.
pub(super) fn values_of_key(parts: &[Part], key: &[u8]) -> Vec<(usize, Value)> {
    let mut values = Vec::new();
    let mut at = 0;
    for part in parts {
        let rest = &key[at..];
        let (bytes, value) = match *part {
            Part::Unsigned(bytes) => match rest.get(..bytes) {
                Some(field) => (bytes, Value::Number(big_endian(field))),
                None => break,
            },
            Part::Signed(bytes) => match rest.get(..bytes) {
                Some(field) if bytes > 0 && bytes <= 16 => {
                    // The sign bit is flipped, so that negative numbers come first.
                    let flipped = big_endian(field) ^ (1 << (8 * bytes - 1));
                    (bytes, Value::signed(sign_extended(flipped, bytes)))
                }
                _ => break,
            },
            Part::Bytes(bytes) => match rest.get(..bytes) {
                Some(field) => (bytes, Value::bytes(field)),
                None => break,
            },
            Part::Text => match text(rest) {
                Some(read) => read,
                None => break,
            },
            Part::Unknown if rest.is_empty() => break,
            Part::Unknown => (rest.len(), Value::Bytes(rest.to_vec())),
        };
        at += bytes;
        values.push((at, value));
    }
    values
}

/// Zero bytes are written as `00 FF`, the end as `00 00`.
fn text(bytes: &[u8]) -> Option<(usize, Value)> {
    let mut text = Vec::new();
    let mut at = 0;
    loop {
        match (*bytes.get(at)?, bytes.get(at + 1)) {
            (0, Some(0)) => return Some((at + 2, Value::bytes(&text))),
            (0, None) => return None,
            (0, Some(_)) => {
                text.push(0);
                at += 2;
            }
            (byte, _) => {
                text.push(byte);
                at += 1;
            }
        }
    }
}

fn big_endian(field: &[u8]) -> u128 {
    field.iter().fold(0, |number, byte| (number << 8) | u128::from(*byte))
}

fn sign_extended(number: u128, bytes: usize) -> i128 {
    let unused = 128 - 8 * bytes as u32;
    ((number << unused) as i128) >> unused
}

/// What an access asks for, by part of the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// The leading parts that have one value.
    pub(super) fixed: Vec<Value>,
    /// The bounds of the part after them, in a range.
    pub(super) bounds: Vec<Value>,
}

impl Asked {
    /// Takes a key or the bounds of a range apart.
    pub(super) fn of(parts: &[Part], target: &LockTarget) -> Asked {
        match target {
            LockTarget::Key(key) => {
                let fixed = values_of_key(parts, key).into_iter().map(|(_, value)| value).collect();
                Asked { fixed, bounds: Vec::new() }
            }
            LockTarget::Range { lower, upper } => {
                let values = values_of_key(parts, lower);
                let is_fixed = |(end, _): &&(usize, Value)| lies_within(upper.as_ref(), &lower[..*end]);
                let fixed: Vec<Value> =
                    values.iter().take_while(is_fixed).map(|(_, value)| value.clone()).collect();
                let at = fixed.len();
                let upper = upper.as_ref().map(|upper| values_of_key(parts, upper)).unwrap_or_default();
                let bounds = values.get(at).into_iter().chain(upper.get(at));
                Asked { bounds: bounds.map(|(_, value)| value.clone()).collect(), fixed }
            }
        }
    }
}

/// Whether all keys below `upper`, from one that begins with `prefix` on, begin with it.
fn lies_within(upper: Option<&KeyBuf>, prefix: &[u8]) -> bool {
    match (upper, prefix_successor(prefix)) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(upper), Some(end)) => **upper <= *end,
    }
}

/// The values of a row's columns.
pub(super) fn values_of_row(columns: &[StoredColumn], row: &[u8]) -> Vec<Option<Value>> {
    let types: Vec<Part> = columns.iter().map(|column| part_of_row(&column.ty)).collect();
    let fixed_bytes = |part: &Part| match *part {
        Part::Unsigned(bytes) | Part::Signed(bytes) | Part::Bytes(bytes) => bytes,
        // The only column of fixed size that is not compared is a floating-point number.
        Part::Unknown => 8,
        Part::Text => 0,
    };
    let mut fixed = 0;
    let mut variable = types.iter().map(fixed_bytes).sum::<usize>();
    types
        .iter()
        .map(|part| {
            let bytes = fixed_bytes(part);
            let field = row.get(fixed..fixed + bytes)?;
            fixed += bytes;
            let mut little_endian = field.to_vec();
            little_endian.reverse();
            match part {
                Part::Unsigned(bytes) if *bytes <= 16 => Some(Value::Number(big_endian(&little_endian))),
                Part::Signed(bytes) if (1..=16).contains(bytes) => {
                    Some(Value::signed(sign_extended(big_endian(&little_endian), *bytes)))
                }
                Part::Bytes(_) => Some(Value::bytes(field)),
                Part::Text => {
                    let length: [u8; 2] = row.get(variable..variable + 2)?.try_into().ok()?;
                    let start = variable + 2;
                    variable = start + usize::from(u16::from_le_bytes(length));
                    row.get(start..variable).map(Value::bytes)
                }
                _ => None,
            }
        })
        .collect()
}

fn part_of_row(ty: &str) -> Part {
    let sized = |prefix: &str| ty.strip_prefix(prefix)?.strip_suffix(')')?.parse::<usize>().ok();
    if let Some(bytes) = sized("Unsigned(") {
        return Part::Unsigned(bytes);
    }
    if let Some(bytes) = sized("Signed(") {
        return Part::Signed(bytes);
    }
    if let Some(bytes) = sized("Bytes(").or_else(|| sized("FixedStr(")) {
        return Part::Bytes(bytes);
    }
    match ty {
        "Bool" => Part::Unsigned(1),
        "String" | "VarBytes" => Part::Text,
        _ => Part::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range::KeyRange;
    use atrapos_storage::{FixedStr, Key, Row, row};

    fn of(name: &str, key: &impl Key) -> Vec<Value> {
        values_of_key(&parts_of_key(name), &key.encode()).into_iter().map(|(_, value)| value).collect()
    }

    fn number(number: u128) -> Value {
        Value::Number(number)
    }

    #[test]
    fn keys_of_all_types_are_taken_apart() {
        assert_eq!(of("u64", &7_u64), [number(7)]);
        assert_eq!(of("(u64, u8, u16)", &(1_u64, 2_u8, 300_u16)), [number(1), number(2), number(300)]);
        assert_eq!(
            of("(i32, (bool, i8))", &(-5_i32, (true, 5_i8))),
            [Value::Negative(-5), number(1), number(5)]
        );
        assert_eq!(
            of("(u128, i128)", &(u128::MAX, i128::MIN)),
            [number(u128::MAX), Value::Negative(i128::MIN)]
        );
        assert_eq!(of("([u8; 3], u8)", &(*b"ab\0", 1_u8)), [Value::Bytes(b"ab".to_vec()), number(1)]);
        let fixed = FixedStr::<6>::new("abc").expect("short");
        assert_eq!(of("(FixedStr<6>,)", &(fixed,)), [Value::Bytes(b"abc".to_vec())]);
        let text = ("a\0b".to_owned(), 9_u32);
        assert_eq!(of("(String, u32)", &text), [Value::Bytes(b"a\0b".to_vec()), number(9)]);
        // A key type of somebody's own is one part.
        assert_eq!(of("Wrapped<(A, B)>", &3_u16), [Value::Bytes(vec![0, 3])]);
        assert_eq!(values_of_key(&parts_of_key("(u64, u8)"), &[0; 8]).len(), 1);
    }

    #[test]
    fn ranges_fix_the_parts_that_all_their_keys_share() {
        let parts = parts_of_key("(u64, u8, u8)");
        let asked = |range: KeyRange| {
            Asked::of(&parts, &LockTarget::Range { lower: range.lower, upper: range.upper })
        };
        assert_eq!(asked(KeyRange::all()), Asked::default());
        assert_eq!(asked(KeyRange::prefix(&5_u64)).fixed, [number(5)]);
        assert_eq!(asked(KeyRange::prefix(&(5_u64, 1_u8))).fixed, [number(5), number(1)]);
        let two = asked(KeyRange::between(&(5_u64, 1_u8, 2_u8), &(5_u64, 1_u8, 9_u8)));
        assert_eq!(two, Asked { fixed: vec![number(5), number(1)], bounds: vec![number(2), number(9)] });
        assert_eq!(asked(KeyRange::between(&5_u64, &7_u64)).fixed, []);
        assert_eq!(asked(KeyRange::from(&5_u64)).fixed, []);
        assert_eq!(asked(KeyRange::prefix(&u64::MAX)).fixed, [number(u128::from(u64::MAX))]);
    }

    row! {
        #[derive(Clone)]
        struct Mixed {
            flag: bool,
            count: i16,
            name: FixedStr<4>,
            ratio: f64,
            text: String,
            id: u64,
        }
    }

    #[test]
    fn rows_are_taken_apart() {
        let row = Mixed {
            flag: true,
            count: -3,
            name: FixedStr::new("ab").expect("short"),
            ratio: 0.5,
            text: "hello".to_owned(),
            id: 77,
        };
        let mut encoded = Vec::new();
        row.encode(&mut encoded);
        let columns: Vec<StoredColumn> = Mixed::COLUMNS
            .iter()
            .map(|column| StoredColumn { name: column.name.to_owned(), ty: format!("{:?}", column.ty) })
            .collect();
        let bytes = |text: &str| Some(Value::Bytes(text.as_bytes().to_vec()));
        let expected =
            [Some(number(1)), Some(Value::Negative(-3)), bytes("ab"), None, bytes("hello"), Some(number(77))];
        assert_eq!(values_of_row(&columns, &encoded), expected);
        for end in 0..encoded.len() {
            assert_eq!(values_of_row(&columns, &encoded[..end]).len(), 6);
        }
    }
}
