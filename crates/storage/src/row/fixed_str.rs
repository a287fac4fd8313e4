//! [`FixedStr`]: a short string of bounded length without a heap allocation.
//!
//! Owns the padding rule. It never allocates.
//! Invariants: the bytes hold no zero before the end of the string and only zeros behind it, so the zero-padded
//! bytes sort exactly as the strings do and need no length; the string part is UTF-8.

use std::cmp::Ordering;
use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A string of at most `N` bytes, stored inline in exactly `N` bytes. It may not contain the character `\0`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FixedStr<const N: usize>([u8; N]);

/// Reasons for which a string does not fit a [`FixedStr`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FixedStrError {
    /// The string is longer than the type.
    #[error(
        "the string has {bytes} bytes but its column holds at most {max}; shorten it or widen the column"
    )]
    TooLong {
        /// Bytes of the string.
        bytes: usize,
        /// Bytes the type holds.
        max: usize,
    },
    /// The string contains the character that pads shorter strings.
    #[error(
        "the string has a zero character at byte {0}, which a fixed-length column cannot hold; remove it"
    )]
    ZeroCharacter(usize),
}

impl<const N: usize> Serialize for FixedStr<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de, const N: usize> Deserialize<'de> for FixedStr<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FixedStr<N>, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

/// Takes a string from a format that has it in memory, or makes it.
struct TextVisitor<const N: usize>;

impl<const N: usize> Visitor<'_> for TextVisitor<N> {
    type Value = FixedStr<N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a string of at most {N} bytes")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<FixedStr<N>, E> {
        FixedStr::new(text).map_err(E::custom)
    }
}

impl<const N: usize> FixedStr<N> {
    /// The string `text`.
    ///
    /// # Errors
    /// When it is longer than `N` bytes or contains `\0`.
    #[inline]
    pub fn new(text: &str) -> Result<FixedStr<N>, FixedStrError> {
        if text.len() > N {
            return Err(FixedStrError::TooLong { bytes: text.len(), max: N });
        }
        if let Some(at) = text.bytes().position(|byte| byte == 0) {
            return Err(FixedStrError::ZeroCharacter(at));
        }
        let mut bytes = [0; N];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(FixedStr(bytes))
    }

    /// The string in `bytes`, which are padded with zeros; `None` when they break the invariants of the type.
    #[inline]
    #[must_use]
    pub fn from_padded(bytes: [u8; N]) -> Option<FixedStr<N>> {
        let is_padded = is_full_ascii(&bytes) || is_padded_ascii(&bytes) || is_padded_utf8(&bytes);
        is_padded.then_some(FixedStr(bytes))
    }

    /// The string with the zeros behind its end: always `N` bytes.
    #[inline]
    #[must_use]
    pub fn padded(&self) -> &[u8; N] {
        &self.0
    }

    /// The string.
    #[inline]
    #[must_use]
    pub fn as_str(&self) -> &str {
        // The invariant makes the error case impossible, and an empty string is the harmless answer to it.
        std::str::from_utf8(&self.0[..self.len()]).unwrap_or_default()
    }

    /// Bytes in the string.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().position(|&byte| byte == 0).unwrap_or(N)
    }

    /// Returns whether the string is empty.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        N == 0 || self.0[0] == 0
    }
}

/// Returns whether all bytes are ASCII characters but zero: what most strings of a fixed length are. Eight bytes at a
/// time, as every decoding of a row comes here.
#[inline(always)]
fn is_full_ascii<const N: usize>(bytes: &[u8; N]) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
    // Subtracting one sets the high bit of a byte that is zero, and borrows only behind such a byte.
    let unusual = |word: u64| word | word.wrapping_sub(ONES);
    let (words, rest) = bytes.as_chunks::<8>();
    let in_words = words.iter().fold(0, |seen, word| seen | unusual(u64::from_le_bytes(*word)));
    let in_rest = rest.iter().fold(0, |seen, &byte| seen | byte | byte.wrapping_sub(1));
    in_words & HIGH_BITS | u64::from(in_rest & 0x80) == 0
}

/// Returns whether the bytes are ASCII without a zero, and zeros behind it: eight at a time.
#[inline]
fn is_padded_ascii<const N: usize>(bytes: &[u8; N]) -> bool {
    const LOW_BITS: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let (words, rest) = bytes.as_chunks::<8>();
    // Not zero once something was found that does not belong there, and once the string has ended.
    let (mut wrong, mut ended) = (0, 0);
    let mut look_at = |word: u64| {
        // The high bit of each byte that is in use; the first byte is the lowest.
        let used = (((word & LOW_BITS) + LOW_BITS) | word) & !LOW_BITS;
        // All bits of these bytes. They are the first ones if adding one leaves none of them set.
        let used = (used >> 7).wrapping_mul(0xff);
        wrong |= (used & used.wrapping_add(1)) | (word & ended) | (word & !LOW_BITS);
        ended |= (used >> 63).wrapping_sub(1);
    };
    words.iter().for_each(|word| look_at(u64::from_le_bytes(*word)));
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        look_at(u64::from_le_bytes(last));
    }
    wrong == 0
}

/// Returns whether the bytes are UTF-8 without a zero, and zeros behind it.
#[cold]
#[inline(never)]
fn is_padded_utf8<const N: usize>(bytes: &[u8; N]) -> bool {
    let behind = bytes.get(1..).unwrap_or_default();
    let ends_and_goes_on = |(&byte, &next): (&u8, &u8)| u8::from(byte == 0) & u8::from(next != 0);
    let used_again = bytes.iter().zip(behind).map(ends_and_goes_on).fold(0, |any, one| any | one);
    let not_ascii = bytes.iter().fold(0, |any, byte| any | byte) & 0x80;
    used_again == 0 && (not_ascii == 0 || begins_with_utf8(bytes))
}

/// Returns whether the bytes before the first zero are UTF-8.
#[cold]
#[inline(never)]
fn begins_with_utf8(padded: &[u8]) -> bool {
    padded.split(|&byte| byte == 0).next().is_some_and(|bytes| std::str::from_utf8(bytes).is_ok())
}

impl<const N: usize> Default for FixedStr<N> {
    fn default() -> Self {
        FixedStr([0; N])
    }
}

impl<const N: usize> PartialOrd for FixedStr<N> {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<const N: usize> Ord for FixedStr<N> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

impl<const N: usize> AsRef<str> for FixedStr<N> {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl<const N: usize> PartialEq<str> for FixedStr<N> {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl<const N: usize> TryFrom<&str> for FixedStr<N> {
    type Error = FixedStrError;

    fn try_from(text: &str) -> Result<Self, FixedStrError> {
        FixedStr::new(text)
    }
}

impl<const N: usize> fmt::Display for FixedStr<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl<const N: usize> fmt::Debug for FixedStr<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_up_to_the_width_fit() {
        let full = FixedStr::<3>::new("abc").unwrap();
        assert_eq!((full.as_str(), full.len(), full.is_empty()), ("abc", 3, false));
        assert!(FixedStr::<3>::default().is_empty());
        assert_eq!(format!("[{full:>5}] {full:?}"), "[  abc] \"abc\"");
        assert_eq!(FixedStr::<3>::new("abcd"), Err(FixedStrError::TooLong { bytes: 4, max: 3 }));
        assert_eq!(FixedStr::<3>::new("a\0"), Err(FixedStrError::ZeroCharacter(1)));
    }

    #[test]
    fn padded_bytes_are_checked() {
        assert!(FixedStr::from_padded(*b"ab\0").is_some());
        assert!(FixedStr::from_padded(*b"a\0b").is_none());
        assert!(FixedStr::from_padded([0xff, 0, 0]).is_none());
        assert!(FixedStr::from_padded([0xff; 8]).is_none() && FixedStr::from_padded([0x80; 11]).is_none());
        // Every pattern of used and unused bytes of a string of two words and a bit.
        for pattern in 0..1u32 << 18 {
            let bytes: [u8; 18] =
                std::array::from_fn(|i| if pattern >> i & 1 == 1 { b'a' + i as u8 } else { 0 });
            assert_eq!(
                FixedStr::from_padded(bytes).is_some(),
                (pattern + 1).is_power_of_two(),
                "{pattern:b}"
            );
            if cfg!(miri) && pattern > 200 {
                break;
            }
        }
        assert_eq!(
            FixedStr::from_padded(*"aaaaaaa\u{e9}z".as_bytes().first_chunk::<10>().unwrap()).unwrap().len(),
            10
        );
        assert_eq!(FixedStr::from_padded([0xc3, 0xa9, 0]).unwrap().as_str(), "é");
    }
}
