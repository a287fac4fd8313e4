//! The values in encoded keys and rows, by their definitions.
//!
//! Owns: decoding of keys and rows, so that a number in a row can be recognized in a key. Never: fails; values that cannot
//! be decoded are left out.

use atrapos_catalog::{self as catalog, KeyField, RowLayout};
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

/// Returns the form in which a value is compared.
fn compared(value: catalog::Value) -> Value {
    match value {
        catalog::Value::Bool(value) => Value::Number(value.into()),
        catalog::Value::Signed(number) | catalog::Value::Decimal { unscaled: number, .. } => {
            Value::signed(number)
        }
        catalog::Value::Unsigned(number) => Value::Number(number),
        catalog::Value::Date(days) => Value::signed(days.into()),
        catalog::Value::Timestamp(micros) => Value::signed(micros.into()),
        catalog::Value::F64(number) => Value::Bytes(number.to_be_bytes().to_vec()),
        catalog::Value::Text(text) => Value::bytes(text.as_bytes()),
        catalog::Value::Bytes(bytes) => Value::bytes(&bytes),
        catalog::Value::Uuid(uuid) => Value::Bytes(uuid.to_vec()),
        catalog::Value::Null => Value::Bytes(Vec::new()),
    }
}

/// Returns the values of a key, or of its beginning, each with the offset of its end.
pub(super) fn values_of_key(parts: &[KeyField], key: &[u8]) -> Vec<(usize, Value)> {
    let mut values = Vec::new();
    let mut rest = key;
    for part in parts {
        if rest.is_empty() {
            break;
        }
        let Ok(value) = part.decode(&mut rest) else { break };
        values.push((key.len() - rest.len(), compared(value)));
    }
    values
}

/// Key or range of an access, by part of the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// The leading parts that have one value.
    pub(super) fixed: Vec<Value>,
    /// The bounds of the part after them, in a range.
    pub(super) bounds: Vec<Value>,
}

impl Asked {
    /// Decodes a key or the bounds of a range.
    pub(super) fn of(parts: &[KeyField], target: &LockTarget) -> Asked {
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

/// Returns true if all keys from `prefix` up to `upper` begin with `prefix`.
fn lies_within(upper: Option<&KeyBuf>, prefix: &[u8]) -> bool {
    match (upper, prefix_successor(prefix)) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(upper), Some(end)) => **upper <= *end,
    }
}

/// Returns the values of a row's columns. Floating-point numbers and NULLs are not compared.
pub(super) fn values_of_row(layout: &RowLayout, row: &[u8]) -> Vec<Option<Value>> {
    let value = |column| match layout.get(row, column).ok()? {
        catalog::Value::F64(_) | catalog::Value::Null => None,
        value => Some(compared(value)),
    };
    (0..layout.columns()).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Reverse;

    use atrapos_catalog::ColumnDef;
    use atrapos_storage::{ColumnType, FixedStr, Key, KeyPart, Row, row};

    use atrapos_partition::range::KeyRange;

    fn parts_of<K: Key>() -> Vec<KeyField> {
        K::parts().into_iter().map(|part| KeyField { part }).collect()
    }

    fn of<K: Key>(key: &K) -> Vec<Value> {
        values_of_key(&parts_of::<K>(), &key.encode()).into_iter().map(|(_, value)| value).collect()
    }

    fn number(number: u128) -> Value {
        Value::Number(number)
    }

    #[test]
    fn keys_of_all_types_are_taken_apart() {
        assert_eq!(of(&7_u64), [number(7)]);
        assert_eq!(of(&(1_u64, 2_u8, 300_u16)), [number(1), number(2), number(300)]);
        assert_eq!(of(&(-5_i32, (true, 5_i8))), [Value::Negative(-5), number(1), number(5)]);
        assert_eq!(of(&(u128::MAX, i128::MIN)), [number(u128::MAX), Value::Negative(i128::MIN)]);
        assert_eq!(of(&(*b"ab\0", 1_u8)), [Value::Bytes(b"ab".to_vec()), number(1)]);
        let fixed = FixedStr::<6>::new("abc").expect("short");
        assert_eq!(of(&(fixed,)), [Value::Bytes(b"abc".to_vec())]);
        let text = ("a\0b".to_owned(), 9_u32);
        assert_eq!(of(&text), [Value::Bytes(b"a\0b".to_vec()), number(9)]);
        let descending = Reverse(("b".to_owned(), -1_i16));
        assert_eq!(of(&(1_u8, descending)), [number(1), Value::Bytes(b"b".to_vec()), Value::Negative(-1)]);
        // A key in a user-defined encoding is one part.
        let own = KeyField { part: KeyPart::ascending(ColumnType::Opaque) };
        assert_eq!(values_of_key(&[own], &[0, 3]), [(2, Value::Bytes(vec![0, 3]))]);
        assert_eq!(values_of_key(&parts_of::<(u64, u8)>(), &[0; 8]).len(), 1);
    }

    #[test]
    fn ranges_fix_the_parts_that_all_their_keys_share() {
        let parts = parts_of::<(u64, u8, u8)>();
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
        let columns: Vec<ColumnDef> =
            Mixed::COLUMNS.iter().map(|column| ColumnDef::new(column.name, column.ty)).collect();
        let layout = RowLayout::new(&columns);
        let bytes = |text: &str| Some(Value::Bytes(text.as_bytes().to_vec()));
        let expected =
            [Some(number(1)), Some(Value::Negative(-3)), bytes("ab"), None, bytes("hello"), Some(number(77))];
        assert_eq!(values_of_row(&layout, &encoded), expected);
        for end in 0..encoded.len() {
            assert_eq!(values_of_row(&layout, &encoded[..end]).len(), 6);
        }
    }
}
