//! The body of an update: the ranges of bytes in which a row has changed.
//!
//! Owns their encoding and decoding. Decoding never panics, allocates nothing and reads nothing outside the bytes it was given.

use std::ops::Range;

use super::record::{Cursor, FormatError};

/// Bytes that a range takes besides those of the row. Equal bytes between two differences are cheaper to repeat than to leave
/// out, if they are no more than that.
const fn range_bytes(is_long: bool) -> usize {
    if is_long { 8 } else { 4 }
}

/// Pushes the ranges in which `new` differs from `old`; false, with any of them pushed, when the whole row is shorter.
/// `LONG` is for rows of more than 65,535 bytes.
#[inline]
pub(super) fn push_ranges<const LONG: bool>(out: &mut Vec<u8>, old: &[u8], new: &[u8]) -> bool {
    let count_at = out.len();
    let limit = count_at + 4 + new.len();
    out.push(0);
    let mut ranges = 0_u8;
    let mut from = next_difference(old, new, 0);
    while from < new.len() {
        // The range goes on to the last difference that has no more than the merged gap before it.
        let mut to = from + 1;
        let next = loop {
            let next = next_difference(old, new, to);
            if next == new.len() || next - to > range_bytes(LONG) {
                break next;
            }
            to = next + 1;
        };
        if ranges == u8::MAX || out.len() + range_bytes(LONG) + (to - from) > limit {
            return false;
        }
        ranges += 1;
        push_range::<LONG>(out, from, &new[from..to]);
        from = next;
    }
    out[count_at] = ranges;
    true
}

/// Pushes the ranges of `new` at these places, less the bytes at their ends that are equal to the old ones; false, with any of
/// them pushed, when the whole row is shorter. `LONG` is for rows of more than 65,535 bytes.
#[inline]
pub(super) fn push_places<'a, const LONG: bool>(
    out: &mut Vec<u8>,
    places: impl Iterator<Item = (Range<usize>, &'a [u8])>,
    new: &[u8],
) -> bool {
    let count_at = out.len();
    let limit = count_at + 4 + new.len();
    out.push(0);
    let mut ranges = 0_u8;
    for (place, old) in places {
        let bytes = &new[place.clone()];
        let from = next_difference(old, bytes, 0);
        if from == bytes.len() {
            continue;
        }
        let equal = old.iter().zip(bytes).rev().take_while(|(old, new)| old == new).count();
        let bytes = &bytes[from..bytes.len() - equal];
        if ranges == u8::MAX || out.len() + range_bytes(LONG) + bytes.len() > limit {
            return false;
        }
        ranges += 1;
        push_range::<LONG>(out, place.start + from, bytes);
    }
    out[count_at] = ranges;
    true
}

#[inline]
fn push_range<const LONG: bool>(out: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if LONG {
        out.extend_from_slice(&(offset as u32).to_le_bytes());
        out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    } else {
        out.extend_from_slice(&(offset as u16).to_le_bytes());
        out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    }
    out.extend_from_slice(bytes);
}

/// The first place from `at` on where the two differ; their length when there is none.
#[inline]
fn next_difference(old: &[u8], new: &[u8], at: usize) -> usize {
    let (old_rest, new_rest) = (&old[at..], &new[at..]);
    let (old_words, old_tail) = old_rest.as_chunks::<8>();
    let (new_words, new_tail) = new_rest.as_chunks::<8>();
    for (place, (old, new)) in old_words.iter().zip(new_words).enumerate() {
        let difference = u64::from_le_bytes(*old) ^ u64::from_le_bytes(*new);
        if difference != 0 {
            return at + place * 8 + difference.trailing_zeros() as usize / 8;
        }
    }
    let tail_at = at + old_words.len() * 8;
    for (place, (old, new)) in old_tail.iter().zip(new_tail).enumerate() {
        if old != new {
            return tail_at + place;
        }
    }
    new.len()
}

/// The bytes of a row that an update changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch<'a> {
    /// Whole ranges: decoding has walked through them.
    ranges: &'a [u8],
    /// Set if offsets and lengths have four bytes, not two.
    is_long: bool,
}

impl<'a> Patch<'a> {
    #[inline]
    pub(super) fn decode(cursor: &mut Cursor<'a>, is_long: bool) -> Result<Patch<'a>, FormatError> {
        let [count] = cursor.array("an update is cut short")?;
        let from = cursor.at;
        for _ in 0..count {
            decode_range(cursor, is_long)?;
        }
        Ok(Patch { ranges: &cursor.bytes[from..cursor.at], is_long })
    }

    /// The ranges, in any order; those that overlap have the same bytes there.
    #[must_use]
    pub fn ranges(&self) -> PatchRanges<'a> {
        PatchRanges { cursor: Cursor { bytes: self.ranges, at: 0 }, is_long: self.is_long }
    }

    /// Turns the row before the update into the row after it.
    ///
    /// # Errors
    /// When a range lies outside `row`, which then is unchanged.
    #[inline]
    pub fn apply(&self, row: &mut [u8]) -> Result<(), FormatError> {
        for range in self.ranges() {
            if range.offset + range.bytes.len() > row.len() {
                return Err(FormatError {
                    at: range.offset,
                    what: "an update reaches past the end of the row it is for",
                });
            }
        }
        for range in self.ranges() {
            let offset = range.offset;
            row[offset..offset + range.bytes.len()].copy_from_slice(range.bytes);
        }
        Ok(())
    }
}

/// Adjacent bytes of a row that an update changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchRange<'a> {
    /// Offset in the row.
    pub offset: usize,
    /// The new bytes.
    pub bytes: &'a [u8],
}

/// The ranges of a [`Patch`].
pub struct PatchRanges<'a> {
    cursor: Cursor<'a>,
    is_long: bool,
}

impl std::fmt::Debug for PatchRanges<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PatchRanges").field("at", &self.cursor.at).finish_non_exhaustive()
    }
}

impl<'a> Iterator for PatchRanges<'a> {
    type Item = PatchRange<'a>;

    #[inline]
    fn next(&mut self) -> Option<PatchRange<'a>> {
        decode_range(&mut self.cursor, self.is_long).ok()
    }
}

#[inline]
fn decode_range<'a>(cursor: &mut Cursor<'a>, is_long: bool) -> Result<PatchRange<'a>, FormatError> {
    const SHORT: &str = "a range of an update is cut short";
    let mut number = || -> Result<usize, FormatError> {
        Ok(if is_long {
            u32::from_le_bytes(cursor.array(SHORT)?) as usize
        } else {
            usize::from(u16::from_le_bytes(cursor.array(SHORT)?))
        })
    };
    let (offset, len) = (number()?, number()?);
    let bytes = cursor.take(len, SHORT)?;
    Ok(PatchRange { offset, bytes })
}
