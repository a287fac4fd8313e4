//! Keys of values: the order-preserving encoding of what a definition describes.
//!
//! Owns the encoding of every type as a part of a key, ascending and descending, NULL included. It never looks at rows.
//!
//! Invariants: byte order is the order of the values (NULL before everything, and what is not a number after every number);
//! encodings are self-delimiting, so the encoding of a key is that of its parts one after another; a type that the types of
//! Rust have as a [`Key`](atrapos_storage::Key) too has the same bytes there.
//!
//! ```text
//! integer, decimal, date, timestamp   big-endian, the sign bit flipped if there is one
//! f64                                 big-endian, the sign bit flipped, or all bits of a negative number
//! bool, uuid, bytes(n), text(n)       as they are, text(n) with the zeros behind its end
//! text, bytes                         with 00 written as 00 FF, ended by 00 00
//! NULL, where it may be               00; a value that may be NULL follows a byte 01
//! descending                          all of these bytes inverted
//! ```

use std::fmt;

use atrapos_storage::{
    ColumnType, KeyBuf, KeyPart, decode_delimited, encode_delimited, from_ordered_bits, ordered_bits,
};

use crate::definition::{IndexDef, TableDef};
use crate::value::{Value, ValueError, unpadded};

/// A part of a key, as the place of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyField {
    /// Its type, direction and nullability.
    pub part: KeyPart,
}

impl fmt::Display for KeyField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let null = if self.part.nullable { " or NULL" } else { "" };
        let direction = if self.part.descending { " descending" } else { "" };
        write!(f, "{}{null}{direction}", self.part.ty)
    }
}

impl KeyField {
    /// Appends a value to a key.
    ///
    /// # Errors
    /// When the value does not fit; the key is then as it was.
    #[inline]
    pub fn encode(&self, value: &Value, out: &mut KeyBuf) -> Result<(), ValueError> {
        // Most keys are numbers of eight bytes: for them nothing has to be told apart but this.
        if let KeyPart { ty: ColumnType::Unsigned(8), descending: false, nullable: false } = self.part
            && let Value::Unsigned(number) = value
            && let Ok(number) = u64::try_from(*number)
        {
            out.extend_from_slice(&number.to_be_bytes());
            return Ok(());
        }
        self.encode_any(value, out)
    }

    fn encode_any(&self, value: &Value, out: &mut KeyBuf) -> Result<(), ValueError> {
        let before = out.len();
        let mut ascending = KeyBuf::new();
        let target = if self.part.descending { &mut ascending } else { &mut *out };
        let encoded = match (self.part.nullable, value) {
            (true, Value::Null) => {
                target.push(0);
                Ok(())
            }
            (nullable, _) => {
                if nullable {
                    target.push(1);
                }
                encode_value(self.part.ty, value, target)
            }
        };
        ascending.iter().for_each(|byte| out.push(!byte));
        encoded.inspect_err(|_| out.truncate(before))
    }

    /// Takes a value from the front of `input` and moves `input` behind it.
    ///
    /// # Errors
    /// When `input` does not begin with a value of this part.
    pub fn decode(&self, input: &mut &[u8]) -> Result<Value, ValueError> {
        if !self.part.descending {
            return self.decode_ascending(input);
        }
        let inverted: Vec<u8> = input.iter().map(|byte| !byte).collect();
        let mut rest = &inverted[..];
        let value = self.decode_ascending(&mut rest)?;
        *input = &input[input.len() - rest.len()..];
        Ok(value)
    }

    fn decode_ascending(&self, input: &mut &[u8]) -> Result<Value, ValueError> {
        let mut rest = *input;
        if self.part.nullable {
            let (tag, behind) = rest.split_first().ok_or(ValueError::OtherLength)?;
            rest = behind;
            match tag {
                0 => {
                    *input = rest;
                    return Ok(Value::Null);
                }
                1 => {}
                _ => return Err(ValueError::Malformed(self.part.ty)),
            }
        }
        let value = decode_value(self.part.ty, &mut rest)?;
        *input = rest;
        Ok(value)
    }
}

fn encode_value(ty: ColumnType, value: &Value, out: &mut KeyBuf) -> Result<(), ValueError> {
    match ty {
        ColumnType::Unsigned(bytes) => push_last(out, value.as_unsigned(ty, bytes)?, bytes.into()),
        ColumnType::Signed(bytes) => push_signed(out, value.as_signed(ty, bytes)?, bytes.into()),
        ColumnType::Decimal { precision, scale } => {
            push_signed(out, value.as_decimal(ty, precision, scale)?, ty.width().unwrap_or(16));
        }
        ColumnType::Date => push_signed(out, value.as_date(ty)?.into(), 4),
        ColumnType::Timestamp => push_signed(out, value.as_timestamp(ty)?.into(), 8),
        ColumnType::F64 => out.extend_from_slice(&ordered_bits(value.as_f64(ty)?).to_be_bytes()),
        ColumnType::Bool => out.push(u8::from(value.as_bool(ty)?)),
        ColumnType::Bytes(_) | ColumnType::Uuid => out.extend_from_slice(value.as_fixed_bytes(ty)?),
        ColumnType::FixedStr(width) => {
            let text = value.as_fixed_bytes(ty)?;
            out.extend_from_slice(text);
            (text.len()..width).for_each(|_| out.push(0));
        }
        ColumnType::String | ColumnType::VarBytes => encode_delimited(value.as_bytes(ty)?, out),
        ColumnType::Opaque => return value.check(ty),
    }
    Ok(())
}

/// The last `bytes` bytes of a number, big-endian.
fn push_last(out: &mut KeyBuf, number: u128, bytes: usize) {
    let all = number.to_be_bytes();
    out.extend_from_slice(&all[all.len() - bytes.min(all.len())..]);
}

fn push_signed(out: &mut KeyBuf, number: i128, bytes: usize) {
    push_last(out, number as u128 ^ sign_bit(bytes), bytes);
}

fn sign_bit(bytes: usize) -> u128 {
    1 << (8 * bytes.clamp(1, 16) - 1)
}

fn take<'a>(input: &mut &'a [u8], bytes: usize) -> Result<&'a [u8], ValueError> {
    let (taken, rest) = input.split_at_checked(bytes).ok_or(ValueError::OtherLength)?;
    *input = rest;
    Ok(taken)
}

fn take_unsigned(input: &mut &[u8], bytes: usize) -> Result<u128, ValueError> {
    Ok(take(input, bytes)?.iter().fold(0, |number, byte| number << 8 | u128::from(*byte)))
}

fn take_signed(input: &mut &[u8], bytes: usize) -> Result<i128, ValueError> {
    let unused = 128 - 8 * bytes.clamp(1, 16) as u32;
    let number = take_unsigned(input, bytes)? ^ sign_bit(bytes);
    Ok(((number << unused) as i128) >> unused)
}

fn decode_value(ty: ColumnType, input: &mut &[u8]) -> Result<Value, ValueError> {
    let malformed = || ValueError::Malformed(ty);
    Ok(match ty {
        ColumnType::Unsigned(bytes) => Value::Unsigned(take_unsigned(input, bytes.into())?),
        ColumnType::Signed(bytes) => Value::Signed(take_signed(input, bytes.into())?),
        ColumnType::Decimal { scale, .. } => {
            let value = Value::Decimal { unscaled: take_signed(input, ty.width().unwrap_or(16))?, scale };
            value.check(ty).map_err(|_| malformed())?;
            value
        }
        ColumnType::Date => Value::Date(take_signed(input, 4)? as i32),
        ColumnType::Timestamp => Value::Timestamp(take_signed(input, 8)? as i64),
        ColumnType::F64 => {
            let bits = take_unsigned(input, 8)? as u64;
            Value::F64(from_ordered_bits(bits).ok_or_else(malformed)?)
        }
        ColumnType::Bool => match take(input, 1)? {
            [0] => Value::Bool(false),
            [1] => Value::Bool(true),
            _ => return Err(malformed()),
        },
        ColumnType::Bytes(bytes) => Value::Bytes(take(input, bytes)?.to_vec()),
        ColumnType::FixedStr(bytes) => {
            Value::Text(unpadded(take(input, bytes)?).ok_or_else(malformed)?.to_owned())
        }
        ColumnType::Uuid => Value::Uuid(take(input, 16)?.try_into().map_err(|_| malformed())?),
        ColumnType::String => {
            let bytes = decode_delimited(input, "text").map_err(|_| malformed())?;
            Value::Text(String::from_utf8(bytes).map_err(|_| malformed())?)
        }
        ColumnType::VarBytes => Value::Bytes(decode_delimited(input, "bytes").map_err(|_| malformed())?),
        ColumnType::Opaque => Value::Bytes(std::mem::take(input).to_vec()),
    })
}

/// Keys by their definition: lists of values to bytes and back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyCodec {
    fields: Vec<KeyField>,
}

impl KeyCodec {
    /// The codec of keys with these parts.
    #[must_use]
    pub fn new(fields: Vec<KeyField>) -> KeyCodec {
        KeyCodec { fields }
    }

    /// The codec of the keys of a table.
    #[must_use]
    pub fn of_table(table: &TableDef) -> KeyCodec {
        KeyCodec::new(table.key_fields())
    }

    /// The codec of the keys of an index of `table`, without the primary key that may follow them in entries.
    #[must_use]
    pub fn of_index(index: &IndexDef, table: &TableDef) -> KeyCodec {
        KeyCodec::new(index.key_fields(Some(table)))
    }

    /// The parts.
    #[must_use]
    pub fn fields(&self) -> &[KeyField] {
        &self.fields
    }

    /// The key of these values, one for each part.
    ///
    /// # Errors
    /// When they do not fit.
    #[inline]
    pub fn encode(&self, values: &[Value]) -> Result<KeyBuf, ValueError> {
        if values.len() != self.fields.len() {
            return Err(ValueError::Count { got: values.len(), wanted: self.fields.len() });
        }
        self.encode_beginning(values)
    }

    /// The beginning that all keys with these values in their first parts have in common.
    ///
    /// # Errors
    /// When there are more values than parts, or they do not fit.
    #[inline]
    pub fn encode_beginning(&self, values: &[Value]) -> Result<KeyBuf, ValueError> {
        if values.len() > self.fields.len() {
            return Err(ValueError::Count { got: values.len(), wanted: self.fields.len() });
        }
        let mut key = KeyBuf::new();
        for (field, value) in self.fields.iter().zip(values) {
            field.encode(value, &mut key)?;
        }
        Ok(key)
    }

    /// The values of a key.
    ///
    /// # Errors
    /// When `bytes`, all of them, are not a key of these parts.
    pub fn decode(&self, bytes: &[u8]) -> Result<Vec<Value>, ValueError> {
        let mut rest = bytes;
        let mut values = Vec::with_capacity(self.fields.len());
        for field in &self.fields {
            values.push(field.decode(&mut rest)?);
        }
        if rest.is_empty() { Ok(values) } else { Err(ValueError::OtherLength) }
    }
}
