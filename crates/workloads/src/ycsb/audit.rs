//! Proves that a YCSB database is the result of the load and of the committed transactions.
//!
//! Owns: the rules. Never: changes a record.
//!
//! Every loaded record exists; every record, loaded or inserted, has a content that writes of its key produce; and the
//! sum of the numbers of writes stored in the records, plus one for each record inserted, is the number of writes that
//! committed transactions made. Insertions that were transactions of their own are also counted separately.

use std::ops::ControlFlow;

use atrapos::{Database, KeyRange, Session, Table, TableRef, Tx};

use super::Ycsb;
use super::mix::Kind;
use super::schema::{Keys, Record};
use crate::auditing::{by_owners, slices};
use crate::keys::KeySet;
use crate::ledger::Ledger;
use crate::workload::{AuditError, AuditReport};

/// Sums over the records of some slots.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    writes: u64,
    inserted: u64,
    /// Number of loaded records.
    loaded: u64,
    /// Key of a record whose content is wrong.
    wrong: Option<u64>,
}

pub(super) fn audit<R: Record>(
    workload: &Ycsb<R>,
    db: &Database,
    ledger: &Ledger,
) -> Result<AuditReport, AuditError> {
    let verified = db.verify()?;
    let table = db.table::<R::Table>()?;
    let keys = workload.keys;
    let audit_own =
        async move |session: &Session, own: &KeySet| audit_slots::<R>(session, table, keys, own).await;
    let parts = by_owners(db, table.id(), 0, keys.last(), audit_own)?;
    let (writes, inserted) =
        parts.iter().fold((0, 0), |sum, part| (sum.0 + part.writes, sum.1 + part.inserted));
    let single = workload.config.operations == 1;
    let expected = if single { ledger.committed(Kind::Insert.id()) } else { inserted };
    for expected in [expected, inserted] {
        let (expected, found) = (keys.rows() + expected, db.len(table.id())?);
        if found != expected {
            return Err(AuditError::Count { table: R::Table::NAME, expected, found });
        }
    }
    let (expected, found) = (ledger.moved().cast_unsigned(), writes + inserted);
    if found != expected {
        return Err(AuditError::Sum { what: "the number of writes and insertions", expected, found });
    }
    Ok(AuditReport { rows: verified.rows, entries: verified.entries, references: verified.references })
}

/// Walks the slots that begin with a key of `own`.
async fn audit_slots<R: Record>(
    session: &Session,
    table: TableRef<R::Table>,
    keys: Keys,
    own: &KeySet,
) -> Result<Found, AuditError> {
    let mut sum = Found::default();
    let Some(slots) = own.blocks(keys.shift()) else { return Ok(sum) };
    for (first, last) in slices(&slots) {
        let read = async move |tx: &mut Tx<'_>| {
            let range = KeyRange::between(&keys.loaded(first), &keys.loaded(last + 1));
            let check = move |found: &mut Found, key: u64, record: R| {
                let Some(writes) = record.writes(key) else {
                    found.wrong = Some(key);
                    return ControlFlow::Break(());
                };
                found.writes += writes;
                if keys.is_loaded(key) {
                    if key != keys.loaded(first + found.loaded) {
                        return ControlFlow::Break(());
                    }
                    found.loaded += 1;
                } else {
                    found.inserted += 1;
                }
                ControlFlow::Continue(())
            };
            tx.fold(table, range, Found::default(), check).await
        };
        let found = session.run_boxed(&table.at(&keys.loaded(first)), read).await?;
        if let Some(key) = found.wrong {
            return Err(refuse::<R>(key, "the content is none that writes make"));
        }
        if found.loaded != last - first + 1 {
            return Err(refuse::<R>(keys.loaded(first + found.loaded), "the record is missing"));
        }
        sum.writes += found.writes;
        sum.inserted += found.inserted;
    }
    Ok(sum)
}

fn refuse<R: Record>(key: u64, what: &'static str) -> AuditError {
    AuditError::Row { table: R::Table::NAME, key: key.to_string(), what }
}
