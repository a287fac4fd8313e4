//! The audit of a run: every reply was right, and the structure has every record it should have, and no other.
//!
//! Owns: the findings, and their sentences. Never: reads a structure (`jobs` does).

use crate::handle::{MISSING, PRESENT, REFUSED};

/// Extent of an audit that found nothing wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Records that were loaded or inserted, each found with a value of its own.
    pub records: u64,
    /// Set if a scan besides found these records in order and no others; `None` of structures without an order.
    pub scanned: Option<u64>,
}

/// A reply that is not right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WrongReply {
    Missing,
    Present,
    Refused,
    Malformed,
}

impl WrongReply {
    /// The meaning of a reply that is not right.
    pub(crate) fn of(reply: u64) -> WrongReply {
        match reply {
            MISSING => WrongReply::Missing,
            PRESENT => WrongReply::Present,
            REFUSED => WrongReply::Refused,
            _ => WrongReply::Malformed,
        }
    }

    fn words(self) -> &'static str {
        match self {
            WrongReply::Missing => "a record that is there was not found",
            WrongReply::Present => "a new record was said to be there already",
            WrongReply::Refused => "a new record was refused",
            WrongReply::Malformed => "a record had a value that is not its own",
        }
    }
}

/// A finding of an audit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Wrong {
    /// Replies were not right.
    #[error("{count} operations had a wrong reply; of the last: {what}")]
    Replies {
        /// Number of such operations.
        count: u64,
        /// The last of them, in words.
        what: &'static str,
    },
    /// Records are not there.
    #[error("{missing} of {expected} records that were loaded or inserted are not there")]
    Missing {
        /// Records that are not there.
        missing: u64,
        /// Records that should be.
        expected: u64,
    },
    /// Records have values that nobody wrote for them.
    #[error("{0} records have values that are not their own")]
    Malformed(u64),
    /// Records are there that nobody inserted.
    #[error("{0} records are there that nobody has inserted")]
    Extra(u64),
    /// A scan found other records than there are.
    #[error("a scan found {found} records in order, but there are {expected}")]
    Scan {
        /// Records that the scan found in order, each with a value of its own.
        found: u64,
        /// Records that there are.
        expected: u64,
    },
}

/// Findings of one worker, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    pub(crate) found: u64,
    pub(crate) missing: u64,
    pub(crate) malformed: u64,
    pub(crate) extra: u64,
    /// Records that scans found in order, if the structure has an order.
    pub(crate) scanned: Option<u64>,
}

impl Findings {
    pub(crate) fn add(&mut self, other: &Findings) {
        self.found += other.found;
        self.missing += other.missing;
        self.malformed += other.malformed;
        self.extra += other.extra;
        self.scanned = [self.scanned, other.scanned].into_iter().flatten().reduce(|all, more| all + more);
    }

    /// The conclusion; `expected` is the number of records that were loaded and inserted.
    pub(crate) fn conclude(&self, expected: u64) -> Result<Audit, Wrong> {
        if self.missing > 0 || self.found + self.malformed != expected {
            return Err(Wrong::Missing { missing: expected.abs_diff(self.found + self.malformed), expected });
        }
        if self.malformed > 0 {
            return Err(Wrong::Malformed(self.malformed));
        }
        if self.extra > 0 {
            return Err(Wrong::Extra(self.extra));
        }
        if let Some(found) = self.scanned.filter(|found| *found != expected) {
            return Err(Wrong::Scan { found, expected });
        }
        Ok(Audit { records: expected, scanned: self.scanned })
    }
}

/// The conclusion from wrong replies of a round.
pub(crate) fn replies(count: u64, last: Option<WrongReply>) -> Result<(), Wrong> {
    last.map_or(Ok(()), |last| Err(Wrong::Replies { count, what: last.words() }))
}
