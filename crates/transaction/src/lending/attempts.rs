//! Attempts to run procedures that only read where their data is lent: whether they most often come to their end.
//!
//! Owns: the counts and the rule. Never: runs a procedure, or knows what is lent.
//!
//! A procedure that needs more than is lent gives up, and has run for nothing. Of each table, attempts are judged [`JUDGED`] at a time; if more
//! than half of them gave up, the next ones are left out: [`LEFT_OUT`], twice as many the next time, and so on up to [`LEFT_OUT_MAX`]. So what
//! never succeeds costs one attempt in `LEFT_OUT_MAX / JUDGED` at last, and what succeeds again is found.

use std::cell::RefCell;

use atrapos_partition::schema::TableId;

/// Attempts that are judged together.
const JUDGED: u32 = 32;

/// Procedures that are not attempted after too many have given up, at first and at most.
const LEFT_OUT: u32 = 512;
const LEFT_OUT_MAX: u32 = 1 << 16;

/// The attempts of one table.
#[derive(Clone, Copy, Debug)]
struct Table {
    attempted: u32,
    refused: u32,
    /// Procedures that are not attempted from now on.
    left_out: u32,
    /// The number of those after the next judgement against it.
    next: u32,
}

impl Table {
    const NEW: Table = Table { attempted: 0, refused: 0, left_out: 0, next: LEFT_OUT };

    fn admit(&mut self) -> bool {
        if self.left_out > 0 {
            self.left_out -= 1;
            return false;
        }
        if self.attempted == JUDGED {
            let fails = self.refused > JUDGED / 2;
            (self.attempted, self.refused) = (0, 0);
            if fails {
                self.left_out = self.next;
                self.next = (self.next * 2).min(LEFT_OUT_MAX);
                return false;
            }
            self.next = LEFT_OUT;
        }
        self.attempted += 1;
        true
    }
}

/// The attempts of one worker, by table.
#[derive(Debug, Default)]
pub(super) struct Attempts(RefCell<Vec<Table>>);

impl Attempts {
    /// Returns true if a procedure is to be attempted, and counts it.
    pub(super) fn admit(&self, table: TableId) -> bool {
        let mut tables = self.0.borrow_mut();
        if tables.len() <= table.at() {
            tables.resize(table.at() + 1, Table::NEW);
        }
        tables[table.at()].admit()
    }

    /// Counts that one which was admitted has given up.
    pub(super) fn note_refused(&self, table: TableId) {
        if let Some(table) = self.0.borrow_mut().get_mut(table.at()) {
            table.refused += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many of `count` procedures are attempted, of which those that `gives_up` says do.
    fn attempted(attempts: &Attempts, count: u32, gives_up: impl Fn(u32) -> bool) -> u32 {
        let mut attempted = 0;
        for at in 0..count {
            if attempts.admit(TableId(1)) {
                attempted += 1;
                if gives_up(at) {
                    attempts.note_refused(TableId(1));
                }
            }
        }
        attempted
    }

    #[test]
    fn what_never_succeeds_is_hardly_attempted() {
        let attempts = Attempts::default();
        let first = attempted(&attempts, 10_000, |_| true);
        assert!((JUDGED..500).contains(&first), "{first}");
        let later = attempted(&attempts, 1_000_000, |_| true);
        assert!(later < 1_000, "{later}");
    }

    #[test]
    fn what_succeeds_more_often_than_not_is_always_attempted() {
        let attempts = Attempts::default();
        assert_eq!(attempted(&attempts, 100_000, |at| at % 5 < 2), 100_000);
    }

    #[test]
    fn what_succeeds_again_is_attempted_again() {
        let attempts = Attempts::default();
        attempted(&attempts, 1_000_000, |_| true);
        attempted(&attempts, 2 * LEFT_OUT_MAX, |_| false);
        assert_eq!(attempted(&attempts, 10_000, |_| false), 10_000);
    }

    #[test]
    fn tables_are_judged_apart() {
        let attempts = Attempts::default();
        attempted(&attempts, 1_000, |_| true);
        assert!(attempts.admit(TableId(0)) && attempts.admit(TableId(2)));
        assert!(!attempts.admit(TableId(1)));
    }
}
