//! Keys: order-preserving encoding of typed keys as byte strings.
//!
//! Owns the [`Key`] trait, its implementations (`types`, `composite`), and helpers on encoded keys. It never looks at rows or trees.
//! Invariants, for every implementation: `a < b` exactly when `a.encode() < b.encode()` byte by byte; encodings
//! are self-delimiting, so the encoding of a tuple is the concatenation of its parts; decoding an encoding gives
//! the value back.

mod buf;
mod composite;
mod types;

pub use buf::{DisplayKey, INLINE_KEY_BYTES, KeyBuf};
pub use types::{decode_delimited, encode_delimited, from_ordered_bits, ordered_bits};

use crate::row::ColumnType;
use thiserror::Error;

/// The longest encoded key a tree accepts, in bytes.
pub const MAX_KEY_BYTES: usize = 512;

/// Reasons for which bytes are not the encoding of a key of the wanted type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The bytes end inside a part of the key.
    #[error(
        "the key ends {missing} byte(s) too early to be a {wanted}; it was written with another key type"
    )]
    TooShort {
        /// Bytes that are missing.
        missing: usize,
        /// Type that was being decoded.
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
    /// Type of its values.
    pub ty: ColumnType,
    /// Set if greater values come first: its bytes are inverted then.
    pub descending: bool,
    /// Set if it may be NULL: then a byte before each value says whether there is one.
    pub nullable: bool,
}

impl KeyPart {
    /// A part that is not NULL and whose smaller values come first.
    #[must_use]
    pub const fn ascending(ty: ColumnType) -> KeyPart {
        KeyPart { ty, descending: false, nullable: false }
    }
}

/// A typed key with an order-preserving byte encoding.
///
/// Implemented for all integer widths, `f64`, `bool`, `[u8; N]`, [`FixedStr`](crate::FixedStr), `String`, `Vec<u8>`,
/// [`Decimal`](crate::Decimal), [`Date`](crate::Date), [`Timestamp`](crate::Timestamp), [`Uuid`](crate::Uuid), an `Option` of
/// one of these (in keys of indexes), [`Reverse`](std::cmp::Reverse) of a key, and tuples of up to sixteen keys.
pub trait Key: Sized + Clone + Send + 'static {
    /// Set for a single, ascending part that is never NULL: only of such a key an `Option` may be made.
    const IS_PLAIN: bool = false;

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

/// The first eight bytes of a key, or fewer with zeros behind, as an integer: keys sort as these integers where the
/// integers differ. Short keys are read in two overlapping parts, without a loop or a call.
#[inline(always)]
#[must_use]
pub fn first_eight(key: &[u8]) -> u64 {
    if let Some(first) = key.first_chunk() {
        return u64::from_be_bytes(*first);
    }
    let len = key.len();
    if let (Some(first), Some(last)) = (key.first_chunk::<4>(), key.last_chunk::<4>()) {
        let (first, last) = (u32::from_be_bytes(*first), u32::from_be_bytes(*last));
        return u64::from(first) << 32 | u64::from(last) << (8 * (8 - len));
    }
    let at = |index: usize| u64::from(key[index]) << (8 * (7 - index));
    if len == 0 { 0 } else { at(0) | at(len / 2) | at(len - 1) }
}

/// The number of leading bytes `a` and `b` share.
#[inline]
pub(crate) fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::FixedStr;
    use crate::scalars::{Date, Decimal, Timestamp, Uuid};
    use proptest::prelude::*;
    use std::cmp::Reverse;

    #[test]
    fn the_first_eight_bytes_have_zeros_behind() {
        let bytes: Vec<u8> = (1..=9).collect();
        for len in 0..=bytes.len() {
            let mut padded = [0; 16];
            padded[..len].copy_from_slice(&bytes[..len]);
            assert_eq!(Some(&first_eight(&bytes[..len]).to_be_bytes()), padded.first_chunk(), "{len}");
        }
    }

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

    fn decimal<const P: u8, const S: u8>() -> impl Strategy<Value = Decimal<P, S>> {
        let bound = 10_i128.pow(u32::from(P));
        (1 - bound..bound).prop_map(|digits| Decimal::new(digits).expect("below the bound"))
    }

    pairs! {
        dates: any::<i32>().prop_map(Date);
        timestamps: any::<i64>().prop_map(Timestamp);
        uuids: any::<[u8; 16]>().prop_map(Uuid);
        small_decimals: decimal::<3, 2>();
        decimals: decimal::<18, 0>();
        large_decimals: decimal::<38, 10>();
        optional_numbers: any::<Option<i8>>();
        optional_texts: proptest::option::of(text());
        nulls_last: any::<Option<u8>>().prop_map(Reverse);
        nulls_among_others: (proptest::option::of(text()), any::<Option<u16>>(), any::<u8>());
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
    fn numbers_sort_as_numbers() {
        let ascending =
            [f64::NEG_INFINITY, f64::MIN, -1.5, -f64::MIN_POSITIVE, 0.0, 1e-300, 2.0, f64::INFINITY];
        for pair in ascending.windows(2) {
            assert!(pair[0].encode() < pair[1].encode(), "{pair:?}");
        }
        for number in ascending {
            assert_eq!(f64::decode(&number.encode()), Ok(number));
            assert!(number.encode() < f64::NAN.encode());
        }
        assert_eq!((-0.0_f64).encode(), 0.0_f64.encode());
        assert_eq!((-f64::NAN).encode(), f64::NAN.encode());
        assert_eq!(f64::decode(&[0xff; 8]), Err(KeyError::Malformed("f64")));
    }

    #[test]
    fn other_bytes_are_no_optional_key() {
        assert_eq!(Option::<u8>::decode(&[2, 0]), Err(KeyError::Malformed("key that may be NULL")));
        assert_eq!(Option::<u8>::decode(&[0, 0]), Err(KeyError::TrailingBytes(1)));
        assert!(Decimal::<3, 0>::decode(&1_000_i32.encode()).is_err());
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
