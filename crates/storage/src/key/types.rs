//! The types that are one part of a key.
//!
//! Owns the encoding of each. It never looks at rows or trees.

use super::{Key, KeyBuf, KeyError, KeyPart};
use crate::row::{ColumnType, FixedStr};
use crate::scalars::{Date, Decimal, Timestamp, Uuid};

#[inline]
pub(super) fn take<const N: usize>(input: &mut &[u8], wanted: &'static str) -> Result<[u8; N], KeyError> {
    match input.split_first_chunk::<N>() {
        Some((head, rest)) => {
            *input = rest;
            Ok(*head)
        }
        None => Err(KeyError::TooShort { missing: N - input.len(), wanted }),
    }
}

macro_rules! unsigned_keys {
    ($($ty:ty),*) => {$(
        /// Big-endian bytes.
        impl Key for $ty {
            const IS_PLAIN: bool = true;

            fn push_parts(parts: &mut Vec<KeyPart>) {
                parts.push(KeyPart::ascending(ColumnType::Unsigned(size_of::<$ty>() as u8)));
            }

            #[inline]
            fn encode_into(&self, out: &mut KeyBuf) {
                out.extend_from_slice(&self.to_be_bytes());
            }

            #[inline]
            fn decode_from(input: &mut &[u8]) -> Result<Self, KeyError> {
                take(input, stringify!($ty)).map(<$ty>::from_be_bytes)
            }
        }
    )*};
}

macro_rules! signed_keys {
    ($($ty:ty as $unsigned:ty),*) => {$(
        /// Big-endian bytes with the sign bit flipped, so that negative numbers come first.
        impl Key for $ty {
            const IS_PLAIN: bool = true;

            fn push_parts(parts: &mut Vec<KeyPart>) {
                parts.push(KeyPart::ascending(ColumnType::Signed(size_of::<$ty>() as u8)));
            }

            #[inline]
            fn encode_into(&self, out: &mut KeyBuf) {
                out.extend_from_slice(&(*self ^ <$ty>::MIN).to_be_bytes());
            }

            #[inline]
            fn decode_from(input: &mut &[u8]) -> Result<Self, KeyError> {
                take(input, stringify!($ty)).map(|bytes| <$ty>::from_be_bytes(bytes) ^ <$ty>::MIN)
            }
        }
    )*};
}

unsigned_keys!(u8, u16, u32, u64, u128);
signed_keys!(i8 as u8, i16 as u16, i32 as u32, i64 as u64, i128 as u128);

/// One byte, 0 or 1.
impl Key for bool {
    const IS_PLAIN: bool = true;

    fn push_parts(parts: &mut Vec<KeyPart>) {
        parts.push(KeyPart::ascending(ColumnType::Bool));
    }

    #[inline]
    fn encode_into(&self, out: &mut KeyBuf) {
        out.push(u8::from(*self));
    }

    #[inline]
    fn decode_from(input: &mut &[u8]) -> Result<Self, KeyError> {
        match take::<1>(input, "bool")? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(KeyError::Malformed("bool")),
        }
    }
}

/// The raw bytes: their number is fixed, so no delimiter is needed.
impl<const N: usize> Key for [u8; N] {
    const IS_PLAIN: bool = true;

    fn push_parts(parts: &mut Vec<KeyPart>) {
        parts.push(KeyPart::ascending(ColumnType::Bytes(N)));
    }

    #[inline]
    fn encode_into(&self, out: &mut KeyBuf) {
        out.extend_from_slice(self);
    }

    #[inline]
    fn decode_from(input: &mut &[u8]) -> Result<Self, KeyError> {
        take(input, "byte array")
    }
}

/// The `N` bytes of the inline string, zeros behind its end: it holds no zero byte itself, so this preserves order.
impl<const N: usize> Key for FixedStr<N> {
    const IS_PLAIN: bool = true;

    fn push_parts(parts: &mut Vec<KeyPart>) {
        parts.push(KeyPart::ascending(ColumnType::FixedStr(N)));
    }

    #[inline]
    fn encode_into(&self, out: &mut KeyBuf) {
        out.extend_from_slice(self.padded());
    }

    #[inline]
    fn decode_from(input: &mut &[u8]) -> Result<Self, KeyError> {
        let bytes = take::<N>(input, "fixed-length string")?;
        FixedStr::from_padded(bytes).ok_or(KeyError::Malformed("fixed-length string"))
    }
}

/// Appends `bytes` with `00` written as `00 FF`, ended by `00 00`: a string sorts before every longer one it begins.
#[inline]
pub fn encode_delimited(bytes: &[u8], out: &mut KeyBuf) {
    let mut rest = bytes;
    while let Some(zero) = rest.iter().position(|&byte| byte == 0) {
        out.extend_from_slice(&rest[..zero]);
        out.extend_from_slice(&[0, 0xff]);
        rest = &rest[zero + 1..];
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(&[0, 0]);
}

/// Takes what [`encode_delimited`] wrote from the front of `input`, and moves `input` behind it.
///
/// # Errors
/// When `input` does not begin with that; `wanted` says what it should be.
pub fn decode_delimited(input: &mut &[u8], wanted: &'static str) -> Result<Vec<u8>, KeyError> {
    let mut bytes = Vec::new();
    let mut rest = *input;
    loop {
        let Some(zero) = rest.iter().position(|&byte| byte == 0) else {
            return Err(KeyError::TooShort { missing: 2, wanted });
        };
        bytes.extend_from_slice(&rest[..zero]);
        let after = rest.get(zero + 1).ok_or(KeyError::TooShort { missing: 1, wanted })?;
        rest = &rest[zero + 2..];
        match after {
            0 => break,
            0xff => bytes.push(0),
            _ => return Err(KeyError::Malformed(wanted)),
        }
    }
    *input = rest;
    Ok(bytes)
}

/// The bytes with `00` written as `00 FF`, ended by `00 00`.
impl Key for String {
    const IS_PLAIN: bool = true;

    fn push_parts(parts: &mut Vec<KeyPart>) {
        parts.push(KeyPart::ascending(ColumnType::String));
    }

    #[inline]
    fn encode_into(&self, out: &mut KeyBuf) {
        encode_delimited(self.as_bytes(), out);
    }

    fn decode_from(input: &mut &[u8]) -> Result<Self, KeyError> {
        let mut rest = *input;
        let bytes = decode_delimited(&mut rest, "string")?;
        let string = String::from_utf8(bytes).map_err(|_| KeyError::Malformed("string"))?;
        *input = rest;
        Ok(string)
    }
}

/// Encodes like a `String` of these bytes.
impl Key for Vec<u8> {
    const IS_PLAIN: bool = true;

    fn push_parts(parts: &mut Vec<KeyPart>) {
        parts.push(KeyPart::ascending(ColumnType::VarBytes));
    }

    #[inline]
    fn encode_into(&self, out: &mut KeyBuf) {
        encode_delimited(self, out);
    }

    fn decode_from(input: &mut &[u8]) -> Result<Self, KeyError> {
        decode_delimited(input, "byte string")
    }
}

/// The bits of a number such that their order is that of numbers: the sign bit flipped, or all bits of a negative number. Zero has
/// one sign, and what is not a number comes last.
#[inline]
#[must_use]
pub fn ordered_bits(number: f64) -> u64 {
    let bits = if number.is_nan() {
        f64::NAN.to_bits() & !SIGN
    } else if number == 0.0 {
        0
    } else {
        number.to_bits()
    };
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

/// The number of which these are the [`ordered_bits`]; `None` when they are of none.
#[must_use]
pub fn from_ordered_bits(bits: u64) -> Option<f64> {
    let number = f64::from_bits(if bits & SIGN == 0 { !bits } else { bits & !SIGN });
    (ordered_bits(number) == bits).then_some(number)
}

const SIGN: u64 = 1 << 63;

/// Its [`ordered_bits`], big-endian: a negative zero comes back as zero.
impl Key for f64 {
    const IS_PLAIN: bool = true;

    fn push_parts(parts: &mut Vec<KeyPart>) {
        parts.push(KeyPart::ascending(ColumnType::F64));
    }

    #[inline]
    fn encode_into(&self, out: &mut KeyBuf) {
        out.extend_from_slice(&ordered_bits(*self).to_be_bytes());
    }

    #[inline]
    fn decode_from(input: &mut &[u8]) -> Result<Self, KeyError> {
        let bits = u64::from_be_bytes(take(input, "f64")?);
        from_ordered_bits(bits).ok_or(KeyError::Malformed("f64"))
    }
}

macro_rules! wrapped_keys {
    ($($ty:ident($inner:ty) => $column:expr;)*) => {$(
        /// Encodes like the type it wraps.
        impl Key for $ty {
            const IS_PLAIN: bool = true;

            fn push_parts(parts: &mut Vec<KeyPart>) {
                parts.push(KeyPart::ascending($column));
            }

            #[inline]
            fn encode_into(&self, out: &mut KeyBuf) {
                self.0.encode_into(out);
            }

            #[inline]
            fn decode_from(input: &mut &[u8]) -> Result<Self, KeyError> {
                <$inner>::decode_from(input).map($ty)
            }
        }
    )*};
}

wrapped_keys! {
    Date(i32) => ColumnType::Date;
    Timestamp(i64) => ColumnType::Timestamp;
    Uuid([u8; 16]) => ColumnType::Uuid;
}

/// The integer that holds its digits.
impl<const PRECISION: u8, const SCALE: u8> Key for Decimal<PRECISION, SCALE> {
    const IS_PLAIN: bool = true;

    fn push_parts(parts: &mut Vec<KeyPart>) {
        parts.push(KeyPart::ascending(Self::COLUMN));
    }

    #[inline]
    fn encode_into(&self, out: &mut KeyBuf) {
        let flipped = self.unscaled() ^ (1 << (8 * Self::WIDTH - 1));
        out.extend_from_slice(&flipped.to_be_bytes()[16 - Self::WIDTH..]);
    }

    fn decode_from(input: &mut &[u8]) -> Result<Self, KeyError> {
        let digits = match Self::WIDTH {
            4 => i128::from(i32::decode_from(input)?),
            8 => i128::from(i64::decode_from(input)?),
            _ => i128::decode_from(input)?,
        };
        Decimal::new(digits).ok_or(KeyError::Malformed("decimal"))
    }
}
