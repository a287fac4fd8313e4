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

/// Pushes the ranges in which `new` differs from `old`, which is as long; false, with any of them pushed, when the whole row is
/// shorter. `LONG` is for rows of more than 65,535 bytes.
#[inline]
pub(super) fn push_ranges<const LONG: bool>(out: &mut Vec<u8>, old: &[u8], new: &[u8]) -> bool {
    let mut ranges = Ranges::<LONG>::begin(out, new);
    let mut last: Option<Range<usize>> = None;
    let fits = each_difference(old, new, |found| match &mut last {
        // A range goes on to the last difference that has no more than the merged gap before it.
        Some(range) if found.start - range.end <= range_bytes(LONG) => {
            range.end = found.end;
            true
        }
        _ => last.replace(found).is_none_or(|range| ranges.push(range)),
    });
    fits && last.take().is_none_or(|range| ranges.push(range)) && ranges.end()
}

/// The ranges of a row that are pushed.
struct Ranges<'a, const LONG: bool> {
    out: &'a mut Vec<u8>,
    new: &'a [u8],
    count_at: usize,
    count: u8,
}

impl<'a, const LONG: bool> Ranges<'a, LONG> {
    #[inline]
    fn begin(out: &'a mut Vec<u8>, new: &'a [u8]) -> Ranges<'a, LONG> {
        let count_at = out.len();
        out.push(0);
        Ranges { out, new, count_at, count: 0 }
    }

    /// Counts a range of so many bytes; false if the whole row is shorter.
    #[inline(always)]
    fn count(&mut self, len: usize) -> bool {
        let limit = self.count_at + 4 + self.new.len();
        if self.count == u8::MAX || self.out.len() + range_bytes(LONG) + len > limit {
            return false;
        }
        self.count += 1;
        true
    }

    /// Pushes a range; false if the whole row is shorter.
    #[inline]
    fn push(&mut self, range: Range<usize>) -> bool {
        let fits = self.count(range.len());
        if fits {
            self.out.extend_from_slice(&head::<LONG>(range.start, range.len())[..range_bytes(LONG)]);
            self.out.extend_from_slice(&self.new[range]);
        }
        fits
    }

    /// Pushes what differs of a word at `at`; false if the whole row is shorter.
    #[inline(always)]
    fn push_word(&mut self, at: usize, old: u64, new: u64) -> bool {
        let Some(changed) = differing(old, new) else { return true };
        let fits = self.count(changed.len());
        if fits {
            // As one piece of fixed length, of which the rest is taken away again.
            let mut piece = [0; 16];
            piece[..8].copy_from_slice(&head::<LONG>(at + changed.start, changed.len()));
            let bytes = (new >> (8 * changed.start)).to_le_bytes();
            piece[range_bytes(LONG)..range_bytes(LONG) + 8].copy_from_slice(&bytes);
            let end = self.out.len() + range_bytes(LONG) + changed.len();
            self.out.extend_from_slice(&piece);
            self.out.truncate(end);
        }
        fits
    }

    /// Writes their number; returns true.
    #[inline]
    fn end(self) -> bool {
        self.out[self.count_at] = self.count;
        true
    }
}

/// Bytes that are compared at once where most are equal.
const BLOCK: usize = 32;

/// The bytes of a word from the first to the last that differ.
#[inline(always)]
fn differing(old: u64, new: u64) -> Option<Range<usize>> {
    let difference = old ^ new;
    let first = difference.trailing_zeros() as usize / 8;
    (difference != 0).then(|| first..8 - difference.leading_zeros() as usize / 8)
}

/// Hands the places where two rows of one length differ to `each`, in order, until it returns false; returns what it returned
/// last. A place is within a word of eight bytes: from the first byte that differs to the last.
#[inline(always)]
fn each_difference(old: &[u8], new: &[u8], mut each: impl FnMut(Range<usize>) -> bool) -> bool {
    let mut word = |at: usize, old: u64, new: u64| {
        differing(old, new).is_none_or(|bytes| each(at + bytes.start..at + bytes.end))
    };
    let mut words = |at: usize, old: &[[u8; 8]], new: &[[u8; 8]]| {
        let mut pairs = old.iter().zip(new).enumerate();
        pairs.all(|(place, (old, new))| {
            word(at + 8 * place, u64::from_le_bytes(*old), u64::from_le_bytes(*new))
        })
    };
    let ((old_blocks, old_rest), (new_blocks, new_rest)) =
        (old.as_chunks::<BLOCK>(), new.as_chunks::<BLOCK>());
    for (block, (old, new)) in old_blocks.iter().zip(new_blocks).enumerate() {
        if old != new && !words(BLOCK * block, old.as_chunks().0, new.as_chunks().0) {
            return false;
        }
    }
    let at = BLOCK * old_blocks.len();
    let ((old_words, old_tail), (new_words, new_tail)) =
        (old_rest.as_chunks::<8>(), new_rest.as_chunks::<8>());
    if !words(at, old_words, new_words) {
        return false;
    }
    // Fewer than eight bytes, as the low ones of a word.
    let low = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    word(at + 8 * old_words.len(), low(old_tail), low(new_tail))
}

/// Pushes the ranges of `new` at these places, less the bytes at their ends that are equal to the old ones; false, with any of
/// them pushed, when the whole row is shorter. Places of up to eight bytes, whose old ones are padded with zeros to a word, are
/// compared as words. `LONG` is for rows of more than 65,535 bytes.
#[inline]
pub(super) fn push_places<'a, const LONG: bool>(
    out: &mut Vec<u8>,
    places: impl Iterator<Item = (Range<usize>, &'a [u8])>,
    new: &[u8],
) -> bool {
    let mut ranges = Ranges::<LONG>::begin(out, new);
    for (place, old) in places {
        let len = place.len();
        let words = (old.first_chunk(), new.get(place.start..).and_then(<[u8]>::first_chunk));
        let fits = match words {
            (Some(old), Some(new)) if (1..=8).contains(&len) => {
                let changed = u64::from_le_bytes(*new) & u64::MAX >> (64 - 8 * len);
                ranges.push_word(place.start, u64::from_le_bytes(*old), changed)
            }
            _ => push_place(&mut ranges, place.start, &old[..len], &new[place]),
        };
        if !fits {
            return false;
        }
    }
    ranges.end()
}

/// Pushes the bytes of one place from the first to the last that differ.
#[inline(never)]
fn push_place<const LONG: bool>(ranges: &mut Ranges<'_, LONG>, at: usize, old: &[u8], new: &[u8]) -> bool {
    let mut changed = new.len()..0;
    each_difference(old, new, |found| {
        changed = changed.start.min(found.start)..found.end;
        true
    });
    changed.is_empty() || ranges.push(at + changed.start..at + changed.end)
}

/// Offset and length of a range, the former in the low half: [`range_bytes`] of them count.
#[inline(always)]
fn head<const LONG: bool>(offset: usize, len: usize) -> [u8; 8] {
    (offset as u64 | (len as u64) << (4 * range_bytes(LONG))).to_le_bytes()
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
