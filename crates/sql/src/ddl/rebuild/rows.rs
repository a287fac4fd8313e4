//! Encoded rows in the order of their keys.
//!
//! Owns: the order, and the shares of workers. Never: knows what is in a row.
//!
//! Rows stay in the parts that they came in. If they did not come in order, the places of rows are sorted, in runs by several threads.

use std::ops::Range;

/// The rows of a slice, as the new table has them.
#[derive(Debug)]
pub(super) struct Part {
    /// Keys and rows, each row behind its key.
    pub(super) bytes: Vec<u8>,
    /// The end of each key, and of the row behind it.
    pub(super) ends: Vec<(u32, u32)>,
    /// Set if each key is greater than the one before it.
    pub(super) ascends: bool,
}

impl Part {
    pub(super) fn row(&self, at: usize) -> (&[u8], &[u8]) {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before].1) as usize;
        let (key_end, end) = (self.ends[at].0 as usize, self.ends[at].1 as usize);
        (&self.bytes[start..key_end], &self.bytes[key_end..end])
    }
}

/// The place of a row, with the first bytes of its key as a number.
#[derive(Clone, Copy, Debug)]
struct Place {
    first: u64,
    part: u32,
    row: u32,
}

/// The rows of a table in the order of their keys.
#[derive(Debug, Default)]
pub(super) struct Rows {
    parts: Vec<Part>,
    /// For each part the number of rows before it.
    starts: Vec<usize>,
    pub(super) count: usize,
    /// The order of their keys; `None` if they came in it.
    order: Option<Vec<Place>>,
}

impl Rows {
    pub(super) fn new(parts: Vec<Part>, threads: usize) -> Rows {
        let mut rows = Rows::default();
        for part in &parts {
            rows.starts.push(rows.count);
            rows.count += part.ends.len();
        }
        rows.parts = parts;
        if !rows.ascend() {
            rows.order = Some(rows.sorted(threads));
        }
        rows
    }

    /// Returns true if each key is greater than the one before it.
    fn ascend(&self) -> bool {
        let filled = || self.parts.iter().filter(|part| !part.ends.is_empty());
        let follows = |(before, part): (&Part, &Part)| before.row(before.ends.len() - 1).0 < part.row(0).0;
        self.parts.iter().all(|part| part.ascends) && filled().zip(filled().skip(1)).all(follows)
    }

    /// The places of the rows in the order of their keys.
    fn sorted(&self, threads: usize) -> Vec<Place> {
        let mut places = Vec::with_capacity(self.count);
        for (number, part) in (0..).zip(&self.parts) {
            let place =
                |row: usize| Place { first: first_of(part.row(row).0), part: number, row: row as u32 };
            places.extend((0..part.ends.len()).map(place));
        }
        let run = places.len().div_ceil(threads).max(1);
        let in_order = |one: &Place, other: &Place| {
            one.first.cmp(&other.first).then_with(|| self.row_at(one).0.cmp(self.row_at(other).0))
        };
        std::thread::scope(|scope| {
            for run in places.chunks_mut(run) {
                scope.spawn(move || run.sort_unstable_by(in_order));
            }
        });
        // This sort finds the runs, and merges them.
        places.sort_by(in_order);
        places
    }

    fn row_at(&self, place: &Place) -> (&[u8], &[u8]) {
        self.parts[place.part as usize].row(place.row as usize)
    }

    /// The first key that two rows have.
    pub(super) fn duplicate(&self) -> Option<&[u8]> {
        let is_same = |pair: &&[Place]| {
            pair[0].first == pair[1].first && self.row_at(&pair[0]).0 == self.row_at(&pair[1]).0
        };
        let found = self.order.as_ref()?.windows(2).find(is_same)?;
        Some(self.row_at(&found[0]).0)
    }

    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.bytes.len()).sum()
    }

    /// The key of the row at a position.
    pub(super) fn key(&self, position: usize) -> Option<&[u8]> {
        if position >= self.count {
            return None;
        }
        if let Some(order) = &self.order {
            return Some(self.row_at(&order[position]).0);
        }
        let part = self.starts.partition_point(|start| *start <= position) - 1;
        Some(self.parts[part].row(position - self.starts[part]).0)
    }

    /// The positions of the rows, cut into parts as long as each other.
    pub(super) fn shares(&self, shares: usize) -> Vec<Range<usize>> {
        if self.count < shares * 2 {
            return std::iter::once(0..self.count).collect();
        }
        let cut = |share: usize| self.count * share / shares;
        (0..shares).map(|share| cut(share)..cut(share + 1)).collect()
    }

    /// The keys at which a table is cut so that all workers get as many rows.
    pub(super) fn splits(&self, workers: usize) -> Vec<Vec<u8>> {
        let shares = self.shares(workers);
        shares.iter().skip(1).filter_map(|share| self.key(share.start)).map(<[u8]>::to_vec).collect()
    }

    /// Visits the keys and rows at some positions, in the order of the keys.
    pub(super) fn each<E>(
        &self,
        positions: Range<usize>,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Some(order) = &self.order {
            return order[positions].iter().try_for_each(|place| {
                let (key, row) = self.row_at(place);
                visit(key, row)
            });
        }
        for (part, start) in self.parts.iter().zip(&self.starts) {
            let from = positions.start.saturating_sub(*start);
            let to = positions.end.saturating_sub(*start).min(part.ends.len());
            for at in from..to {
                let (key, row) = part.row(at);
                visit(key, row)?;
            }
        }
        Ok(())
    }
}

/// The first bytes of a key as a number that is in the order of keys; a shorter key is filled with zeros.
fn first_of(key: &[u8]) -> u64 {
    let mut first = [0; 8];
    let length = key.len().min(8);
    first[..length].copy_from_slice(&key[..length]);
    u64::from_be_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows with these keys, in parts of these lengths; each row is its key twice.
    fn rows(keys: &[&str], lengths: &[usize]) -> Rows {
        let mut keys = keys.iter();
        let mut part = |length: &usize| {
            let mut part = Part { bytes: Vec::new(), ends: Vec::new(), ascends: true };
            for key in keys.by_ref().take(*length) {
                let last = part.ends.len().checked_sub(1);
                part.ascends &= last.is_none_or(|last| part.row(last).0 < key.as_bytes());
                part.bytes.extend_from_slice(key.as_bytes());
                let key_end = part.bytes.len() as u32;
                part.bytes.extend_from_slice(key.repeat(2).as_bytes());
                part.ends.push((key_end, part.bytes.len() as u32));
            }
            part
        };
        Rows::new(lengths.iter().map(&mut part).collect(), 2)
    }

    /// The keys at some positions; each with its own row.
    fn visited(rows: &Rows, positions: Range<usize>) -> Vec<String> {
        let mut visited = Vec::new();
        let done: Result<(), ()> = rows.each(positions, |key, row| {
            assert_eq!(row, [key, key].concat());
            visited.push(String::from_utf8(key.to_vec()).unwrap());
            Ok(())
        });
        done.unwrap();
        visited
    }

    #[test]
    fn rows_that_come_in_order_are_not_sorted() {
        let rows = rows(&["a", "b", "ba", "c", "d"], &[2, 0, 3]);
        assert!(rows.order.is_none() && rows.duplicate().is_none());
        assert_eq!(rows.shares(2), [0..2, 2..5]);
        assert_eq!(
            (visited(&rows, 0..2), visited(&rows, 2..5)),
            (vec!["a".into(), "b".into()], vec!["ba".into(), "c".into(), "d".into()])
        );
        assert_eq!(rows.splits(2), [b"ba".to_vec()]);
        assert_eq!((rows.key(4), rows.key(5)), (Some(&b"d"[..]), None));
    }

    #[test]
    fn rows_are_sorted_by_all_of_their_keys() {
        let keys = ["same-start-2", "b", "same-start-1", "a", "same-start-10", "c"];
        let rows = rows(&keys, &[4, 1, 1]);
        let mut wanted = keys.to_vec();
        wanted.sort_unstable();
        assert_eq!(visited(&rows, 0..6), wanted);
        assert_eq!(rows.splits(3), [wanted[2].as_bytes().to_vec(), wanted[4].as_bytes().to_vec()]);
        assert_eq!(rows.duplicate(), None);
    }

    #[test]
    fn a_key_that_two_rows_have_is_found_wherever_they_are() {
        for (keys, lengths) in
            [(["a", "b", "b"], [3, 0]), (["a", "b", "b"], [2, 1]), (["b", "a", "b"], [2, 1])]
        {
            assert_eq!(rows(&keys, &lengths).duplicate(), Some(&b"b"[..]), "{keys:?}");
        }
        // A key and a longer one whose first bytes are the same.
        assert_eq!(rows(&["a\0", "a"], &[1, 1]).duplicate(), None);
    }

    #[test]
    fn few_rows_are_not_cut() {
        assert_eq!(rows(&["a", "b", "c"], &[3]).shares(2), std::iter::once(0..3).collect::<Vec<_>>());
        assert!(rows(&[], &[]).splits(2).is_empty());
    }
}
