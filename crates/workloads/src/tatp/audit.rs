//! Proves that a TATP database is the result of its population and of the committed transactions.
//!
//! Owns: the rules. Never: changes a row.
//!
//! Three things are checked. The engine's own proof ([`Database::verify`]): trees, indexes in both directions,
//! references, no lock left. The numbers of rows: the population's, and for call forwarding those inserted and deleted
//! by committed transactions (if they were counted). And every row by itself: the population is generated again from
//! the seed, subscriber by subscriber; a column that no transaction changes must equal it, and a changed one must have
//! a value that a transaction writes.
//!
//! Each worker audits the subscribers it owns, some hundreds per transaction.

use std::ops::ControlFlow;

use atrapos::{Abort, Database, KeyRange, Session, SessionHandle, TableRef, Tx, WorkerId};

use super::generator::{END_TIME_MAX, Population, START_TIMES};
use super::parameters::Class;
use super::schema::{CallForwarding, CallForwardings, SpecialFacility, Subscriber, Tables};
use crate::keys::KeySet;
use crate::ledger::Ledger;
use crate::workload::{AuditError, AuditReport};

/// Subscribers audited in one transaction: bounds both memory and the pause of the worker.
const SLICE: u64 = 256;

pub(super) fn audit(
    subscribers: u64,
    seed: u64,
    db: &Database,
    ledger: Option<&Ledger>,
) -> Result<AuditReport, AuditError> {
    let verified = db.verify()?;
    let tables = Tables::of(db)?;
    // One scheme for all workers: partitions may move meanwhile.
    let (scheme, mut sessions) = (db.scheme(), Vec::new());
    for worker in (0..db.workers()).map(|worker| WorkerId(worker as u16)) {
        if let Some(own) = KeySet::owned_by(&scheme, tables.subscriber.id(), 1, subscribers, worker) {
            sessions.push(
                db.spawn_session(worker, async move |session| audit_own(&session, tables, seed, &own).await)?,
            );
        }
    }
    let mut loaded = Loaded::default();
    // Every session is awaited before the first error is reported.
    let parts: Vec<_> = sessions.into_iter().map(SessionHandle::join).collect();
    for part in parts {
        let part = part??;
        loaded.access += part.access;
        loaded.facilities += part.facilities;
        loaded.forwarding += part.forwarding;
    }
    let forwarding = ledger.map(|ledger| {
        let inserted = ledger.committed(Class::InsertCallForwarding.id());
        let deleted = ledger.committed(Class::DeleteCallForwarding.id());
        // More deletions than rows that ever existed are as wrong as any other difference.
        (loaded.forwarding + inserted).saturating_sub(deleted)
    });
    for (table, name, expected) in [
        (tables.subscriber.id(), "subscriber", Some(subscribers)),
        (tables.access_info.id(), "access_info", Some(loaded.access)),
        (tables.special_facility.id(), "special_facility", Some(loaded.facilities)),
        (tables.call_forwarding.id(), "call_forwarding", forwarding),
    ] {
        let Some(expected) = expected else { continue };
        let found = db.len(table)?;
        if found != expected {
            return Err(AuditError::Count { table: name, expected, found });
        }
    }
    Ok(AuditReport { rows: verified.rows, entries: verified.entries, references: verified.references })
}

/// Numbers of rows of the population.
#[derive(Clone, Copy, Debug, Default)]
struct Loaded {
    access: u64,
    facilities: u64,
    forwarding: u64,
}

async fn audit_own(session: &Session, tables: Tables, seed: u64, own: &KeySet) -> Result<Loaded, AuditError> {
    let mut loaded = Loaded::default();
    let mut at = 0;
    while at < own.len() {
        let first = own.nth(at);
        // A slice ends with the run of numbers in which it begins.
        let count =
            (1..SLICE.min(own.len() - at)).take_while(|next| own.nth(at + next) == first + next).count();
        let last = first + count as u64;
        let slice = read_slice(session, tables, first, last).await?;
        check_slice(seed, first, last, slice, &mut loaded)?;
        at += last - first + 1;
    }
    Ok(loaded)
}

/// All rows of some subscribers.
#[derive(Debug, Default)]
struct Slice {
    subscribers: Vec<(u64, Subscriber)>,
    access: Vec<((u64, u8), super::AccessInfo)>,
    facilities: Vec<((u64, u8), SpecialFacility)>,
    forwarding: Vec<((u64, u8, u8), CallForwarding)>,
}

async fn read_slice(session: &Session, tables: Tables, first: u64, last: u64) -> Result<Slice, Abort> {
    let route = tables.subscriber.at(&first);
    let read = async move |tx: &mut Tx<'_>| {
        Ok(Slice {
            subscribers: rows(tx, tables.subscriber, first, last).await?,
            access: rows(tx, tables.access_info, first, last).await?,
            facilities: rows(tx, tables.special_facility, first, last).await?,
            forwarding: rows(tx, tables.call_forwarding, first, last).await?,
        })
    };
    session.run_boxed(&route, read).await
}

/// Reads the rows of `table` whose keys begin with a number from `first` to `last`.
async fn rows<T: atrapos::Table>(
    tx: &mut Tx<'_>,
    table: TableRef<T>,
    first: u64,
    last: u64,
) -> Result<Vec<(T::Key, T::Row)>, Abort> {
    let collect = |rows: &mut Vec<(T::Key, T::Row)>, key, row| {
        rows.push((key, row));
        ControlFlow::Continue(())
    };
    tx.fold(table, KeyRange::through(&first, &last), Vec::new(), collect).await
}

fn refuse(table: &'static str, key: impl std::fmt::Debug, what: &'static str) -> AuditError {
    AuditError::Row { table, key: format!("{key:?}"), what }
}

fn check_slice(
    seed: u64,
    first: u64,
    last: u64,
    slice: Slice,
    loaded: &mut Loaded,
) -> Result<(), AuditError> {
    let mut subscribers = slice.subscribers.into_iter();
    let mut access = slice.access.into_iter().peekable();
    let mut facilities = slice.facilities.into_iter().peekable();
    for s_id in first..=last {
        let population = Population::of(seed, s_id);
        match subscribers.next() {
            Some((found, row)) if found == s_id => check_subscriber(s_id, row, population.subscriber)?,
            _ => return Err(refuse("subscriber", s_id, "the row is missing")),
        }
        for (ai_type, row) in population.access {
            loaded.access += 1;
            if access.next_if_eq(&((s_id, ai_type), row)).is_none() {
                return Err(refuse("access_info", (s_id, ai_type), "the row is not the population's"));
            }
        }
        for facility in population.facilities {
            loaded.facilities += 1;
            loaded.forwarding += facility.forwarding.len() as u64;
            let key = (s_id, facility.sf_type);
            let unchanged = |(found, row): &((u64, u8), SpecialFacility)| {
                *found == key
                    && SpecialFacility { data_a: facility.row.data_a, ..row.clone() } == facility.row
            };
            if facilities.next_if(unchanged).is_none() {
                return Err(refuse("special_facility", key, "the row is not the population's, data_a apart"));
            }
        }
    }
    if let Some((key, _)) = access.next() {
        return Err(refuse("access_info", key, "the population has no such row"));
    }
    if let Some((key, _)) = facilities.next() {
        return Err(refuse("special_facility", key, "the population has no such row"));
    }
    slice.forwarding.iter().try_for_each(|(key, row)| check_forwarding(*key, row))
}

fn check_subscriber(s_id: u64, row: Subscriber, expected: Subscriber) -> Result<(), AuditError> {
    if row.bit[0] > 1 {
        return Err(refuse("subscriber", s_id, "bit_1 is neither 0 nor 1"));
    }
    if row.vlr_location == 0 {
        return Err(refuse("subscriber", s_id, "vlr_location is 0"));
    }
    let mut before = row;
    before.bit[0] = expected.bit[0];
    before.vlr_location = expected.vlr_location;
    if before == expected {
        return Ok(());
    }
    Err(refuse("subscriber", s_id, "a column that no transaction changes differs from the population"))
}

fn check_forwarding(
    key: <CallForwardings as atrapos::Table>::Key,
    row: &CallForwarding,
) -> Result<(), AuditError> {
    let refuse = |what| Err(refuse("call_forwarding", key, what));
    if !START_TIMES.contains(&key.2) {
        return refuse("start_time is none of 0, 8 and 16");
    }
    if !(1..=END_TIME_MAX).contains(&row.end_time) {
        return refuse("end_time is not from 1 to 24");
    }
    if !row.numberx.iter().all(u8::is_ascii_digit) {
        return refuse("numberx is not 15 digits");
    }
    Ok(())
}
