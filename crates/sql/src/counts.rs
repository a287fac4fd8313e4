//! Counts of executions by statement, as `pg_stat_statements` tells of them.
//!
//! Owns: which statements are counted together: those of one text, in which lifted literals are parameters. Never: keeps a literal of
//! a text that was lifted.
//!
//! Each connection counts in memory of its own, so that connections do not write to each other's; whoever reads adds up.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The most texts that are counted; statements that come later are not.
const MAX_TEXTS: usize = 5000;
/// The longest text that is counted, in bytes.
const MAX_TEXT: usize = 4096;
/// The counts of one text after which those of connections that have ended are added up.
const MANY: usize = 32;

/// Counts of one statement on one connection.
#[derive(Debug, Default)]
pub(crate) struct Count {
    calls: AtomicU64,
    rows: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Count {
    /// Counts an execution.
    pub(crate) fn add(&self, rows: usize, took: Duration) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    fn read(&self) -> Total {
        Total {
            calls: self.calls.load(Ordering::Relaxed),
            rows: self.rows.load(Ordering::Relaxed),
            nanoseconds: self.nanoseconds.load(Ordering::Relaxed),
        }
    }
}

/// Counts of one statement on all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Total {
    pub(crate) calls: u64,
    pub(crate) rows: u64,
    pub(crate) nanoseconds: u64,
}

impl Total {
    fn plus(self, other: Total) -> Total {
        Total {
            calls: self.calls + other.calls,
            rows: self.rows + other.rows,
            nanoseconds: self.nanoseconds + other.nanoseconds,
        }
    }
}

#[derive(Debug, Default)]
struct Counted {
    /// Of connections that have forgotten their plans.
    ended: Total,
    counts: Vec<Arc<Count>>,
}

impl Counted {
    fn total(&self) -> Total {
        self.counts.iter().fold(self.ended, |sum, count| sum.plus(count.read()))
    }
}

/// The counts of all statements.
#[derive(Debug, Default)]
pub(crate) struct Counts(Mutex<HashMap<Box<str>, Counted>>);

impl Counts {
    /// A place in which a connection counts a statement; `None` if it is not counted.
    pub(crate) fn place(&self, text: &str) -> Option<Arc<Count>> {
        let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if text.len() > MAX_TEXT || (texts.len() >= MAX_TEXTS && !texts.contains_key(text)) {
            return None;
        }
        let counted = texts.entry(text.into()).or_default();
        if counted.counts.len() >= MANY {
            let (ended, counts): (Vec<_>, Vec<_>) =
                counted.counts.drain(..).partition(|count| Arc::strong_count(count) == 1);
            counted.ended = ended.iter().fold(counted.ended, |sum, count| sum.plus(count.read()));
            counted.counts = counts;
        }
        let count = Arc::new(Count::default());
        counted.counts.push(Arc::clone(&count));
        Some(count)
    }

    /// The texts and their counts, in the order of the texts.
    pub(crate) fn all(&self) -> Vec<(String, Total)> {
        let texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> =
            texts.iter().map(|(text, counted)| (text.to_string(), counted.total())).collect();
        all.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_many_connections_are_added_up_and_kept() {
        let counts = Counts::default();
        for _ in 0..3 * MANY {
            counts.place("SELECT 1").unwrap().add(2, Duration::from_nanos(5));
        }
        let kept = counts.place("SELECT 1").unwrap();
        kept.add(1, Duration::ZERO);
        let calls = 3 * MANY as u64;
        let wanted = Total { calls: calls + 1, rows: 2 * calls + 1, nanoseconds: 5 * calls };
        assert_eq!(counts.all(), [("SELECT 1".to_owned(), wanted)]);
        assert!(counts.place(&"x".repeat(MAX_TEXT + 1)).is_none());
    }
}
