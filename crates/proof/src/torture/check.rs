//! Proves that a recovered database satisfies every promise that its clients were given.
//!
//! Owns: the comparison with the witness. Never: changes anything.
//!
//! The rules for the rows of one client are used by the readers as well, while transactions run.

use std::ops::ControlFlow;

use atrapos::{Abort, Database, KeyRange, Table, TableRef, Tx};
use atrapos_workloads::AuditError;
use atrapos_workloads::tatp::Tatp;
use atrapos_workloads::tatp::schema::{Subscribers, Tables};

use super::made::{self, DEFINERS};
use super::schema::{
    CLIENTS, Handles, Mark, Marks, PURSES, PURSES_TOTAL, Purses, ROWS, Token, mark_key, text,
};
use super::witness::{Part, READERS, Slot, Witness};
use super::{TortureError, Violation};

/// Counts of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Rows of all tables.
    pub rows: u64,
    /// Transactions of the clients whose effects are present: the sum of their newest numbers.
    pub transactions: u64,
    /// Statements that were acknowledged and whose effects are present.
    pub statements: u64,
}

/// Returns true if nothing of a part is loaded. A part is loaded as a whole, so one of its tables is proof enough.
pub(super) fn is_empty_of(db: &Database, part: Part) -> Result<bool, TortureError> {
    let table = match part {
        Part::Tatp => Tables::of(db)?.subscriber.id(),
        Part::Marks => Handles::of(db)?.marks.id(),
    };
    Ok(db.len(table)? == 0)
}

fn audited<T>(checked: Result<T, AuditError>) -> Result<T, TortureError> {
    checked.map_err(|error| Violation::Audit(error).into())
}

pub(super) fn check(tatp: &Tatp, db: &Database, witness: &dyn Witness) -> Result<CheckReport, TortureError> {
    let handles = Handles::of(db)?;
    let loaded = |part| witness.read(Slot::Loaded(part)) > 0;
    let mut report = CheckReport::default();
    if is_empty_of(db, Part::Tatp)? {
        if loaded(Part::Tatp) {
            let expected = tatp.subscribers();
            return Err(Violation::Unloaded { table: Subscribers::NAME, found: 0, expected }.into());
        }
        report.rows = audited(db.verify().map_err(AuditError::from))?.rows;
    } else {
        report.rows = audited(tatp.audit_uncounted(db))?.rows;
    }
    if is_empty_of(db, Part::Marks)? && !loaded(Part::Marks) {
        return Ok(report);
    }
    for (table, name, expected) in [
        (handles.marks.id(), Marks::NAME, (ROWS * CLIENTS) as u64),
        (handles.purses.id(), Purses::NAME, PURSES),
    ] {
        let found = db.len(table)?;
        if found != expected {
            return Err(Violation::Unloaded { table: name, found, expected }.into());
        }
    }
    for client in 0..CLIENTS {
        let route = handles.marks.at(&mark_key(client, 0));
        let seen = db.run(route, async move |tx: &mut Tx<'_>| read_client(tx, handles, client).await)?;
        report.transactions += check_client(client, seen, &Promises::of(witness, client), || {
            witness.read(Slot::Submitted(client))
        })?;
    }
    let total = db.run(handles.purses.at(&0), async move |tx: &mut Tx<'_>| total(tx, handles).await)?;
    check_total(total)?;
    for definer in 0..DEFINERS {
        report.statements += made::check::check(db, witness, definer)?;
    }
    Ok(report)
}

/// All rows of a client that are present.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) marks: Vec<Option<Mark>>,
    pub(super) tokens: Vec<(u64, Token)>,
}

/// Reads all rows of a client.
pub(super) async fn read_client(tx: &mut Tx<'_>, handles: Handles, client: usize) -> Result<Seen, Abort> {
    let marks = tx.join_all((0..ROWS).map(|row| handles.marks.get(mark_key(client, row)))).await?;
    let tokens = rows(tx, handles.tokens, KeyRange::prefix(&(client as u64))).await?;
    Ok(Seen { marks, tokens: tokens.into_iter().map(|((_, number), token)| (number, token)).collect() })
}

async fn rows<T: Table>(
    tx: &mut Tx<'_>,
    table: TableRef<T>,
    range: KeyRange,
) -> Result<Vec<(T::Key, T::Row)>, Abort> {
    let collect = |rows: &mut Vec<(T::Key, T::Row)>, key, row| {
        rows.push((key, row));
        ControlFlow::Continue(())
    };
    tx.fold(table, range, Vec::new(), collect).await
}

/// Promises about a client's transactions, read before its rows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Promises {
    acknowledged: u64,
    observed: u64,
}

impl Promises {
    pub(super) fn of(witness: &dyn Witness, client: usize) -> Promises {
        let observed = (0..READERS).map(|reader| witness.read(Slot::Observed { reader, client })).max();
        Promises {
            acknowledged: witness.read(Slot::Acknowledged(client)),
            observed: observed.unwrap_or_default(),
        }
    }
}

/// Checks the rows of a client against the promises read before, and against the transactions handed over until now
/// (the witness is asked for those last). Returns the newest transaction found.
pub(super) fn check_client(
    client: usize,
    seen: Seen,
    promises: &Promises,
    submitted: impl FnOnce() -> u64,
) -> Result<u64, Violation> {
    let mark = check_marks(client, &seen.marks)?;
    for (how, promised) in [("acknowledged", promises.acknowledged), ("shown to a reader", promises.observed)]
    {
        if mark.value < promised {
            return Err(Violation::Lost { client, found: mark.value, promised, how });
        }
    }
    let submitted = submitted();
    if mark.value > submitted {
        return Err(Violation::Invented { client, found: mark.value, submitted });
    }
    let expected: Vec<u64> = [mark.token].into_iter().filter(|number| *number > 0).collect();
    let found: Vec<u64> = seen.tokens.iter().map(|(number, _)| *number).collect();
    if found != expected {
        return Err(Violation::Token { client, expected, found });
    }
    match seen.tokens.iter().find(|(number, token)| token.text != text(client, *number)) {
        Some((number, _)) => Err(Violation::Garbled { client, value: *number }),
        None => Ok(mark.value),
    }
}

/// Checks that all marks of a client are of one transaction, and returns one of them.
pub(super) fn check_marks(client: usize, marks: &[Option<Mark>]) -> Result<Mark, Violation> {
    let values = || marks.iter().map(|mark| mark.as_ref().map(|mark| mark.value)).collect();
    let Some(Some(first)) = marks.first() else {
        return Err(Violation::Partial { client, found: values() });
    };
    if marks.iter().any(|mark| mark.as_ref().is_none_or(|mark| mark.value != first.value)) {
        return Err(Violation::Partial { client, found: values() });
    }
    let sound = |mark: &Mark| mark.text == text(client, mark.value) && mark.token == first.token;
    if !marks.iter().flatten().all(sound) {
        return Err(Violation::Garbled { client, value: first.value });
    }
    Ok(first.clone())
}

/// Returns the sum of all purses.
pub(super) async fn total(tx: &mut Tx<'_>, handles: Handles) -> Result<i64, Abort> {
    let add = |sum: &mut i64, _, purse: super::Purse| {
        *sum += purse.balance;
        ControlFlow::Continue(())
    };
    tx.fold(handles.purses, KeyRange::all(), 0, add).await
}

pub(super) fn check_total(found: i64) -> Result<(), Violation> {
    if found == PURSES_TOTAL { Ok(()) } else { Err(Violation::Total { found, expected: PURSES_TOTAL }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the rows of a client whose last transactions have these numbers, by row, and whose token is `token`.
    fn seen(values: [u64; ROWS], token: u64) -> Seen {
        let mark = |value| Some(Mark { value, token, text: text(1, value) });
        let tokens = if token == 0 { vec![] } else { vec![(token, Token { text: text(1, token) })] };
        Seen { marks: values.map(mark).to_vec(), tokens }
    }

    fn checked(seen: Seen) -> Result<u64, Violation> {
        check_client(1, seen, &Promises { acknowledged: 7, observed: 8 }, || 10)
    }

    #[test]
    fn what_lies_between_promise_and_submission_is_right() {
        for value in 8..=10 {
            assert_eq!(checked(seen([value; ROWS], 6)), Ok(value));
            assert_eq!(checked(seen([value; ROWS], 0)), Ok(value));
        }
    }

    #[test]
    fn every_broken_promise_is_found() {
        let broken = |seen| checked(seen).expect_err("a violation");
        assert!(matches!(broken(seen([9, 9, 8], 6)), Violation::Partial { .. }));
        let mut missing = seen([9; ROWS], 6);
        missing.marks[2] = None;
        assert!(matches!(broken(missing), Violation::Partial { .. }));
        assert!(matches!(broken(seen([6; ROWS], 6)), Violation::Lost { promised: 7, .. }));
        assert!(matches!(broken(seen([7; ROWS], 6)), Violation::Lost { promised: 8, .. }));
        assert!(matches!(broken(seen([11; ROWS], 6)), Violation::Invented { submitted: 10, .. }));
        let mut lost = seen([9; ROWS], 6);
        lost.tokens.clear();
        assert!(matches!(broken(lost), Violation::Token { .. }));
        let mut resurrected = seen([9; ROWS], 6);
        resurrected.tokens.insert(0, (3, Token { text: text(1, 3) }));
        assert!(matches!(broken(resurrected), Violation::Token { .. }));
        let mut garbled = seen([9; ROWS], 6);
        if let Some(mark) = &mut garbled.marks[1] {
            mark.text.push('!');
        }
        assert!(matches!(broken(garbled), Violation::Garbled { .. }));
        let mut garbled = seen([9; ROWS], 6);
        garbled.tokens[0].1.text.push('!');
        assert!(matches!(broken(garbled), Violation::Garbled { .. }));
        assert!(matches!(check_total(PURSES_TOTAL - 1), Err(Violation::Total { .. })));
        assert_eq!(check_total(PURSES_TOTAL), Ok(()));
    }
}
