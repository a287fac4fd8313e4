//! Keys: order-preserving encoding of typed keys as byte strings.
//!
//! Owns the [`Key`] trait, its implementations, and helpers on encoded keys. It never looks at rows or trees.
//! Invariants, for every implementation: `a < b` exactly when `a.encode() < b.encode()` byte by byte; encodings
//! are self-delimiting, so the encoding of a tuple is the concatenation of its parts; decoding an encoding gives
//! the value back.

mod buf;

pub use buf::{DisplayKey, INLINE_KEY_BYTES, KeyBuf};

use crate::row::{ColumnType, FixedStr};
use std::cmp::Reverse;
use thiserror::Error;

/// The longest encoded key a tree accepts, in bytes.
pub const MAX_KEY_BYTES: usize = 512;

/// Why bytes are not the encoding of a key of the wanted type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The bytes end inside a part of the key.
    #[error(
        "the key ends {missing} byte(s) too early to be a {wanted}; it was written with another key type"
    )]
    TooShort {
        /// Bytes that are missing.
        missing: usize,
        /// What was being decoded.
        wanted: &'static str,
    },
    /// Bytes are left after the whole key was decoded.
    #[error("the key has {0} byte(s) more than its type; it was written with another key type")]
    TrailingBytes(usize),
    /// A byte that the encoding of this type never holds.
    #[error("the key holds bytes that are not a {0}; it was written with another key type")]
    Malformed(&'static str),
}

/// A part of a key, as a stored definition describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyPart {
    /// What it holds.
    pub ty: ColumnType,
    /// Whether greater values come first: its bytes are inverted then.
    pub descending: bool,
}

impl KeyPart {
    /// A part whose smaller values come first.
    #[must_use]
    pub const fn ascending(ty: ColumnType) -> KeyPart {
        KeyPart { ty, descending: false }
    }
}

/// A typed key with an order-preserving byte encoding.
///
/// Implemented for all integer widths, `bool`, `[u8; N]`, [`FixedStr`], `String`, `Vec<u8>`, [`Reverse`] of a key, and tuples of
/// up to sixteen keys.
pub trait Key: Sized + Clone + Send + 'static {
    /// Appends what a stored definition says of this type: its parts, in the order of their bytes. Types with the same parts
    /// have the same encodings. Parts of somebody's own encoding are one [`ColumnType::Opaque`].
    fn push_parts(parts: &mut Vec<KeyPart>);

    /// The parts of this type. See [`push_parts`](Key::push_parts).
    #[must_use]
    fn parts() -> Vec<KeyPart> {
        let mut parts = Vec::new();
        Self::push_parts(&mut parts);
        parts
    }

    /// Appends the encoding of `self` to `out`.
    fn encode_into(&self, out: &mut KeyBuf);

    /// Takes one key from the front of `input` and moves `input` behind it.
    ///
    /// # Errors
    /// When `input` does not begin with an encoding of this type.
    fn decode_from(input: &mut &[u8]) -> Result<Self, KeyError>;

    /// The encoding of `self`.
    #[inline]
    fn encode(&self) -> KeyBuf {
        let mut out = KeyBuf::new();
        self.encode_into(&mut out);
        out
    }

    /// The key that `bytes`, all of them, encode.
    ///
    /// # Errors
    /// When `bytes` are not exactly one encoding of this type.
    #[inline]
    fn decode(bytes: &[u8]) -> Result<Self, KeyError> {
        let mut rest = bytes;
        let key = Self::decode_from(&mut rest)?;
        if rest.is_empty() { Ok(key) } else { Err(KeyError::TrailingBytes(rest.len())) }
    }
}

#[inline]
fn take<const N: usize>(input: &mut &[u8], wanted: &'static str) -> Result<[u8; N], KeyError> {
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

/// As a `String` of these bytes.
impl Key for Vec<u8> {
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

/// The bytes of the key, inverted: no encoding is the beginning of another, so this turns the order round.
impl<K: Key> Key for Reverse<K> {
    fn push_parts(parts: &mut Vec<KeyPart>) {
        let first = parts.len();
        K::push_parts(parts);
        for part in &mut parts[first..] {
            part.descending = !part.descending;
        }
    }

    #[inline]
    fn encode_into(&self, out: &mut KeyBuf) {
        for byte in self.0.encode().iter() {
            out.push(!byte);
        }
    }

    fn decode_from(input: &mut &[u8]) -> Result<Self, KeyError> {
        let inverted: Vec<u8> = input.iter().map(|byte| !byte).collect();
        let mut rest = &inverted[..];
        let key = K::decode_from(&mut rest)?;
        *input = &input[input.len() - rest.len()..];
        Ok(Reverse(key))
    }
}

macro_rules! tuple_keys {
    ($(($($part:ident . $index:tt),+);)*) => {$(
        /// The encodings of the parts one after another.
        impl<$($part: Key),+> Key for ($($part,)+) {
            fn push_parts(parts: &mut Vec<KeyPart>) {
                $($part::push_parts(parts);)+
            }

            #[inline]
            fn encode_into(&self, out: &mut KeyBuf) {
                $(self.$index.encode_into(out);)+
            }

            #[inline]
            fn decode_from(input: &mut &[u8]) -> Result<Self, KeyError> {
                let mut rest = *input;
                let key = ($($part::decode_from(&mut rest)?,)+);
                *input = rest;
                Ok(key)
            }
        }
    )*};
}

tuple_keys! {
    (A.0);
    (A.0, B.1);
    (A.0, B.1, C.2);
    (A.0, B.1, C.2, D.3);
    (A.0, B.1, C.2, D.3, E.4);
    (A.0, B.1, C.2, D.3, E.4, F.5);
    (A.0, B.1, C.2, D.3, E.4, F.5, G.6);
    (A.0, B.1, C.2, D.3, E.4, F.5, G.6, H.7);
    (A.0, B.1, C.2, D.3, E.4, F.5, G.6, H.7, I.8);
    (A.0, B.1, C.2, D.3, E.4, F.5, G.6, H.7, I.8, J.9);
    (A.0, B.1, C.2, D.3, E.4, F.5, G.6, H.7, I.8, J.9, K.10);
    (A.0, B.1, C.2, D.3, E.4, F.5, G.6, H.7, I.8, J.9, K.10, L.11);
    (A.0, B.1, C.2, D.3, E.4, F.5, G.6, H.7, I.8, J.9, K.10, L.11, M.12);
    (A.0, B.1, C.2, D.3, E.4, F.5, G.6, H.7, I.8, J.9, K.10, L.11, M.12, N.13);
    (A.0, B.1, C.2, D.3, E.4, F.5, G.6, H.7, I.8, J.9, K.10, L.11, M.12, N.13, O.14);
    (A.0, B.1, C.2, D.3, E.4, F.5, G.6, H.7, I.8, J.9, K.10, L.11, M.12, N.13, O.14, P.15);
}

/// The smallest key greater than every key that begins with `prefix`: the end of a range over a prefix.
///
/// `None` when there is no such key (`prefix` is empty or all `FF`): the range is then unbounded above.
#[must_use]
pub fn prefix_successor(prefix: &[u8]) -> Option<KeyBuf> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut successor = KeyBuf::from_slice(&prefix[..last]);
    successor.push(prefix[last] + 1);
    Some(successor)
}

/// The number of leading bytes `a` and `b` share.
#[inline]
pub(crate) fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ordered_and_back<K: Key + Ord + std::fmt::Debug>(a: &K, b: &K) -> Result<(), TestCaseError> {
        let (ea, eb) = (a.encode(), b.encode());
        prop_assert_eq!(
            a.cmp(b),
            ea.cmp(&eb),
            "{:?} and {:?} sort otherwise than {:?} and {:?}",
            a,
            b,
            ea,
            eb
        );
        prop_assert_eq!(&K::decode(&ea), &Ok(a.clone()));
        let mut longer = ea.clone();
        longer.push(9);
        prop_assert_eq!(K::decode(&longer).err(), Some(KeyError::TrailingBytes(1)));
        if let Some(shorter) = ea.len().checked_sub(1) {
            prop_assert!(K::decode(&ea[..shorter]).is_err());
        }
        Ok(())
    }

    fn text() -> impl Strategy<Value = String> {
        // Zero bytes and shared beginnings are what breaks an encoding.
        "[\u{0}\u{1}ab\u{7f}\u{e9}]{0,6}"
    }

    fn fixed() -> impl Strategy<Value = FixedStr<6>> {
        "[\u{1}ab]{0,6}".prop_map(|s| FixedStr::new(&s).expect("at most six bytes, none zero"))
    }

    macro_rules! pairs {
        ($($name:ident: $strategy:expr;)*) => {
            proptest! {
                #![proptest_config(crate::testing::config(512, 2))]
                $(#[test]
                fn $name(a in $strategy, b in $strategy) {
                    ordered_and_back(&a, &b)?;
                })*
            }
        };
    }

    pairs! {
        u8_keys: any::<u8>();
        u16_keys: any::<u16>();
        u32_keys: any::<u32>();
        u64_keys: any::<u64>();
        u128_keys: any::<u128>();
        i8_keys: any::<i8>();
        i16_keys: any::<i16>();
        i32_keys: any::<i32>();
        i64_keys: any::<i64>();
        i128_keys: any::<i128>();
        bool_keys: any::<bool>();
        array_keys: any::<[u8; 3]>();
        string_keys: text();
        fixed_string_keys: fixed();
        singles: (any::<u64>(),);
        pairs: (text(), any::<i16>());
        triples: (-2i32..2, text(), text());
        quadruples: (0u8..2, any::<bool>(), text(), any::<[u8; 2]>());
        quintuples: (0u64..2, 0u8..2, 0u8..2, 0u32..2, -1i64..1);
        sextuples: (0u64..2, fixed(), 0u8..2, text(), -1i64..1, any::<bool>());
        nested: ((0u8..2, text()), (text(), 0u16..2));
        byte_string_keys: proptest::collection::vec(prop_oneof![Just(0u8), Just(0xff), any::<u8>()], 0..6);
        sixteen_parts: sixteen();
        descending_numbers: (any::<i32>(), 0u8..2).prop_map(|(a, b)| (Reverse(a), b));
        descending_strings: (text(), 0u8..2).prop_map(|(a, b)| (Reverse(a), b));
        descending_within_descending: (text(), -1i8..1, text()).prop_map(|(a, b, c)| Reverse((a, Reverse(b), c)));
    }

    type First = (u8, u8, u8, u8, u8, u8, u8, u8);
    type Last = (u8, String, u8, String, u8, u16, i8, bool);
    type Sixteens = (u8, u8, u8, u8, u8, u8, u8, u8, u8, String, u8, String, u8, u16, i8, bool);

    /// A key of sixteen parts in two halves, as the tuples of Rust are compared only up to twelve.
    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Sixteen(First, Last);

    impl Key for Sixteen {
        fn push_parts(parts: &mut Vec<KeyPart>) {
            Sixteens::push_parts(parts);
        }

        fn encode_into(&self, out: &mut KeyBuf) {
            let Sixteen((a, b, c, d, e, f, g, h), (i, j, k, l, m, n, o, p)) = self.clone();
            (a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p).encode_into(out);
        }

        fn decode_from(input: &mut &[u8]) -> Result<Self, KeyError> {
            let (a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) = Sixteens::decode_from(input)?;
            Ok(Sixteen((a, b, c, d, e, f, g, h), (i, j, k, l, m, n, o, p)))
        }
    }

    fn sixteen() -> impl Strategy<Value = Sixteen> {
        let bit = || 0u8..2;
        let first = (bit(), bit(), bit(), bit(), bit(), bit(), bit(), bit());
        let last = (bit(), text(), bit(), text(), bit(), 0u16..2, -1i8..1, any::<bool>());
        (first, last).prop_map(|(first, last)| Sixteen(first, last))
    }

    #[test]
    fn types_say_of_what_parts_they_are() {
        let of = |types: &[ColumnType]| types.iter().copied().map(KeyPart::ascending).collect::<Vec<_>>();
        use ColumnType::{Bool, Bytes, FixedStr as Text, Signed, String as Str, Unsigned, VarBytes};
        assert_eq!(u64::parts(), of(&[Unsigned(8)]));
        assert_eq!(<(u8, (i128, bool), [u8; 4])>::parts(), of(&[Unsigned(1), Signed(16), Bool, Bytes(4)]));
        assert_eq!(<(String, Vec<u8>, FixedStr<9>)>::parts(), of(&[Str, VarBytes, Text(9)]));
        assert_eq!(Sixteen::parts().len(), 16);
        let directions = <(u8, Reverse<(u8, Reverse<u8>)>)>::parts();
        let directions: Vec<bool> = directions.iter().map(|part| part.descending).collect();
        assert_eq!(directions, [false, true, false]);
    }

    proptest! {
        #![proptest_config(crate::testing::config(1024, 4))]

        #[test]
        fn successor_is_the_end_of_the_prefix_range(prefix in proptest::collection::vec(0xfdu8.., 0..4), key in proptest::collection::vec(0xfcu8.., 0..6)) {
            match prefix_successor(&prefix) {
                Some(end) => {
                    prop_assert!(prefix.as_slice() < &end[..]);
                    prop_assert_eq!(key.starts_with(&prefix), key >= prefix && key.as_slice() < &end[..]);
                }
                None => prop_assert_eq!(key.starts_with(&prefix), key >= prefix),
            }
        }

        #[test]
        fn decoding_any_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = <(String, u64, bool)>::decode(&bytes);
            let _ = FixedStr::<4>::decode(&bytes);
            let _ = String::decode(&bytes);
            let _ = <(Reverse<String>, Reverse<u32>)>::decode(&bytes);
        }
    }

    #[test]
    fn errors_name_the_cure() {
        assert!(u64::decode(&[1]).unwrap_err().to_string().contains("7 byte(s) too early to be a u64"));
        assert_eq!(bool::decode(&[2]), Err(KeyError::Malformed("bool")));
        assert_eq!(String::decode(&[b'a', 0, 7]), Err(KeyError::Malformed("string")));
        assert_eq!(String::decode(&[0xff, 0, 0]), Err(KeyError::Malformed("string")));
    }
}
