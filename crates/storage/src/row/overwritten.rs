//! The bytes of a row that an edit has overwritten: what it takes to have the row before it again, and to know what changed.
//!
//! Owns: their encoding. Never: changes a row but to restore it.
//!
//! A wide row of which a few columns are set needs no copy of all of it: each column's old bytes are appended to a log before
//! they are overwritten, `[old bytes][offset: u32][length: u32]`, with zeros behind old bytes that are fewer than eight. They are
//! read backwards, so a column that was set twice is restored to its first value.
//!
//! Invariant: restoring the row after the edit, from all that was appended, gives the row before it, also when the edit was
//! broken off half-way. What is appended for one edit is no longer than a few times its row, however often columns are set.

use std::ops::Range;

/// Bytes of the offset and the length.
const PLACE_BYTES: usize = 8;
/// Bytes that old bytes take at least: most columns have no more, and are appended with their place as one piece.
const OLD_BYTES_MIN: usize = 8;

/// The log that receives what one edit overwrites.
#[derive(Debug)]
pub struct Overwritten<'a> {
    log: &'a mut Vec<u8>,
    start: usize,
    /// Bytes of the log beyond which it is to have the whole row.
    limit: usize,
    /// True if the whole row is in the log.
    is_whole: bool,
}

impl<'a> Overwritten<'a> {
    /// Appends to `log` from its end on what is overwritten of a row of `row_bytes`.
    #[inline]
    #[must_use]
    pub fn new(log: &'a mut Vec<u8>, row_bytes: usize) -> Overwritten<'a> {
        let start = log.len();
        Overwritten { log, start, limit: start + 2 * row_bytes + PLACE_BYTES, is_whole: false }
    }

    /// Appends bytes of `row` that are about to be overwritten.
    #[inline(always)]
    pub fn add(&mut self, row: &[u8], offset: usize, len: usize) {
        if self.log.len() > self.limit {
            return self.condense(row);
        }
        push(self.log, row, offset, len);
    }

    /// Replaces what was appended by the whole row as it was before the edit, unless that was done.
    #[cold]
    fn condense(&mut self, row: &[u8]) {
        if self.is_whole {
            return;
        }
        let mut old = row.to_vec();
        OverwrittenBytes::of(&self.log[self.start..]).restore(&mut old);
        self.log.truncate(self.start);
        push(self.log, &old, 0, old.len());
        (self.is_whole, self.limit) = (true, 0);
    }
}

#[inline(always)]
fn push(log: &mut Vec<u8>, row: &[u8], offset: usize, len: usize) {
    let old = &row[offset..offset + len];
    let place = (offset as u64 | (len as u64) << 32).to_le_bytes();
    if len <= OLD_BYTES_MIN {
        let mut piece = [0; OLD_BYTES_MIN + PLACE_BYTES];
        piece[..len].copy_from_slice(old);
        piece[OLD_BYTES_MIN..].copy_from_slice(&place);
        log.extend_from_slice(&piece);
        return;
    }
    log.reserve(len + PLACE_BYTES);
    log.extend_from_slice(old);
    log.extend_from_slice(&place);
}

/// The places of a row that an edit has overwritten, with the old bytes, the last one first.
#[derive(Clone, Debug)]
pub struct OverwrittenBytes<'a>(&'a [u8]);

impl<'a> OverwrittenBytes<'a> {
    /// Reads what one edit has appended to its log.
    #[inline]
    #[must_use]
    pub fn of(log: &'a [u8]) -> OverwrittenBytes<'a> {
        OverwrittenBytes(log)
    }

    /// Restores the row before the edit from the row after it.
    #[inline]
    pub fn restore(self, row: &mut [u8]) {
        for (place, old) in self {
            row[place].copy_from_slice(old);
        }
    }

    /// The places with their old bytes, behind which zeros fill a word of eight where they are fewer.
    #[inline]
    pub fn padded(mut self) -> impl Iterator<Item = (Range<usize>, &'a [u8])> {
        std::iter::from_fn(move || self.next_padded())
    }

    #[inline(always)]
    fn next_padded(&mut self) -> Option<(Range<usize>, &'a [u8])> {
        let (rest, place) = self.0.split_last_chunk::<PLACE_BYTES>()?;
        let place = u64::from_le_bytes(*place);
        let (offset, len) = ((place as u32) as usize, (place >> 32) as usize);
        let (rest, old) = rest.split_at(rest.len() - len.max(OLD_BYTES_MIN));
        self.0 = rest;
        Some((offset..offset + len, old))
    }
}

impl<'a> Iterator for OverwrittenBytes<'a> {
    type Item = (Range<usize>, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.next_padded().map(|(place, old)| (place.clone(), &old[..place.len()]))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(crate::testing::config(256, 4))]

        #[test]
        fn what_was_overwritten_restores_the_row(
            row in proptest::collection::vec(any::<u8>(), 1..40),
            writes in proptest::collection::vec((any::<usize>(), 0..9_usize, any::<u8>()), 0..60),
        ) {
            let mut log = vec![1, 2, 3];
            let mut changed = row.clone();
            let mut overwritten = Overwritten::new(&mut log, row.len());
            for (at, len, value) in writes {
                let offset = at % row.len();
                let len = len.min(row.len() - offset);
                overwritten.add(&changed, offset, len);
                changed[offset..offset + len].fill(value);
            }
            prop_assert!(log.len() <= 3 + 2 * row.len() + 9 + 4 * PLACE_BYTES);
            prop_assert_eq!(&log[..3], &[1, 2, 3]);
            let places: Vec<_> = OverwrittenBytes::of(&log[3..]).collect();
            for ((place, old), (padded_place, padded)) in places.iter().zip(OverwrittenBytes::of(&log[3..]).padded()) {
                prop_assert_eq!((place, *old), (&padded_place, &padded[..place.len()]));
                prop_assert!(padded.len() >= 8 && padded[place.len()..].iter().all(|byte| *byte == 0));
            }
            for (at, (old, new)) in row.iter().zip(&changed).enumerate() {
                prop_assert!(old == new || places.iter().any(|(place, _)| place.contains(&at)));
            }
            OverwrittenBytes::of(&log[3..]).restore(&mut changed);
            prop_assert_eq!(changed, row);
        }
    }
}
