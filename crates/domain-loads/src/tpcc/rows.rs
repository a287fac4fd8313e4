//! [`Rows`]: the encoded rows of a table, by the numbers that its structure keeps as values.
//!
//! Owns: the memory of rows, and the latch of each where several workers share them. Never: knows a key or a column.
//!
//! Invariant: a number is given out once, and its row is there before anybody can learn the number.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Rows of a segment; a multiple of [`RUN`].
const SEGMENT: usize = 1 << 13;
/// Segments of a table at most.
const SEGMENTS: usize = 1 << 15;
/// Numbers that a worker takes at a time, so that workers that insert rows seldom meet.
const RUN: usize = 64;

type Row = Box<[u8]>;
type Segment = Box<[Mutex<Row>]>;

/// Rows that workers share.
#[derive(Debug)]
pub(super) struct Segments {
    segments: Box<[OnceLock<Segment>]>,
    /// The first number that no worker has taken.
    next: AtomicUsize,
}

impl Segments {
    pub(super) fn new() -> Segments {
        Segments { segments: (0..SEGMENTS).map(|_| OnceLock::new()).collect(), next: AtomicUsize::new(0) }
    }

    fn row(&self, number: usize) -> Option<&Mutex<Row>> {
        let segment = self.segments.get(number / SEGMENT)?;
        segment.get_or_init(|| (0..SEGMENT).map(|_| Mutex::default()).collect()).get(number % SEGMENT)
    }
}

/// The rows of a table, as one worker has them.
#[derive(Debug)]
pub(super) enum Rows {
    /// Of one owner, which needs no latches.
    Owned(Vec<Row>),
    /// Shared by workers: a latch for each row, and numbers from `next` to `end` (excluded) that this worker has taken.
    Shared { rows: Arc<Segments>, next: usize, end: usize },
}

impl Rows {
    /// A worker's reach of rows that others share.
    pub(super) fn shared(rows: &Arc<Segments>) -> Rows {
        Rows::Shared { rows: Arc::clone(rows), next: 0, end: 0 }
    }

    /// Adds a row; returns its number, or `None` if there are too many.
    pub(super) fn add(&mut self, row: Row) -> Option<u64> {
        match self {
            Rows::Owned(rows) => {
                rows.push(row);
                Some(rows.len() as u64 - 1)
            }
            Rows::Shared { rows, next, end } => {
                if next == end {
                    *next = rows.next.fetch_add(RUN, Ordering::Relaxed);
                    *end = *next + RUN;
                }
                *rows.row(*next)?.lock().unwrap_or_else(PoisonError::into_inner) = row;
                *next += 1;
                Some(*next as u64 - 1)
            }
        }
    }

    /// Runs `run` on the row of a number that was given out: atomically, where workers share it.
    #[inline]
    pub(super) fn with<R>(&mut self, number: u64, run: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        match self {
            Rows::Owned(rows) => rows.get_mut(number as usize).map(|row| run(row)),
            Rows::Shared { rows, .. } => {
                let row = rows.row(number as usize)?;
                Some(run(&mut row.lock().unwrap_or_else(PoisonError::into_inner)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_out_once_and_lead_to_their_rows() {
        let segments = Arc::new(Segments::new());
        let mut sharers = [Rows::shared(&segments), Rows::shared(&segments)];
        let mut owner = [Rows::Owned(Vec::new())];
        for workers in [&mut sharers[..], &mut owner[..]] {
            let mut numbers = Vec::new();
            for count in 0..3 * SEGMENT {
                let at = count % workers.len();
                numbers.push(workers[at].add(Box::from(count.to_ne_bytes())).expect("there is room"));
            }
            for (count, number) in numbers.iter().enumerate() {
                let last = workers.len() - 1;
                let found = workers[last].with(*number, |row| *row == count.to_ne_bytes());
                assert_eq!(found, Some(true), "row {count}");
            }
            numbers.sort_unstable();
            assert!(numbers.windows(2).all(|two| two[0] < two[1]));
        }
    }
}
