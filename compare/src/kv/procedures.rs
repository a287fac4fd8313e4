//! The transactions of all workloads on a store of bytes, statement by statement like the procedures of `atrapos`.
//!
//! Owns: the reads and writes of each. Never: draws a random number, commits, or tries again.

use std::hint::black_box;

use atrapos::{Key, Row, RowEdit};
use atrapos_workloads::micro::Counter;
use atrapos_workloads::tatp::generator::TYPES;
use atrapos_workloads::tatp::schema::{AccessInfo, CallForwarding, Digits15, SpecialFacility, Subscriber};
use atrapos_workloads::tpcb::parameters::Request;
use atrapos_workloads::tpcb::schema::{Account, Branch, History, Teller};
use atrapos_workloads::ycsb::parameters::Op;
use atrapos_workloads::ycsb::schema::{Keys, Record as _, Wide};

use super::{Ending, Reader, Store, Writer};
use crate::peer::PeerError;
use crate::record::{Table, s_id_of};

type Ended<R> = Result<Ending<R>, PeerError>;

/// Reads a row as a transaction of its own.
fn read_row<R: Row>(store: &impl Store, table: Table, key: &impl Key) -> Result<Option<R>, PeerError> {
    store.read_one(table, &key.encode(), R::decode)?.transpose().map_err(PeerError::failed)
}

/// Changes a row in place, as bytes. Returns what `change` returns; `None` if there is no such row.
fn edit<R: Row, T>(
    tx: &mut impl Writer,
    table: Table,
    key: &impl Key,
    change: impl FnOnce(&mut RowEdit<'_, R>) -> T,
) -> Result<Option<T>, PeerError> {
    let edited =
        tx.update(table, &key.encode(), |bytes| RowEdit::new(bytes).map(|mut row| change(&mut row)))?;
    edited.transpose().map_err(PeerError::failed)
}

/// Inserts a row. Returns false if its key is taken.
fn insert_row(tx: &mut impl Writer, table: Table, key: &impl Key, row: &impl Row) -> Result<bool, PeerError> {
    let mut bytes = Vec::with_capacity(row.encoded_len());
    row.encode(&mut bytes);
    tx.insert(table, &key.encode(), &bytes)
}

fn missing(what: &str) -> PeerError {
    PeerError::failed(format!("{what} is missing"))
}

pub(super) fn get_subscriber_data(store: &impl Store, s_id: u64) -> Result<bool, PeerError> {
    read_row::<Subscriber>(store, Table::Subscriber, &s_id).map(|row| black_box(row).is_some())
}

pub(super) fn get_access_data(store: &impl Store, s_id: u64, ai_type: u8) -> Result<bool, PeerError> {
    read_row::<AccessInfo>(store, Table::AccessInfo, &(s_id, ai_type)).map(|row| black_box(row).is_some())
}

pub(super) fn get_new_destination(
    tx: &impl Reader,
    s_id: u64,
    sf_type: u8,
    start_time: u8,
    end_time: u8,
) -> Result<Vec<Digits15>, PeerError> {
    let mut found = Vec::new();
    let facility = tx.get(Table::SpecialFacility, &(s_id, sf_type).encode(), SpecialFacility::decode)?;
    let facility = facility.transpose().map_err(PeerError::failed)?;
    if !facility.is_some_and(|facility| facility.is_active) {
        return Ok(found);
    }
    let (first, end) = ((s_id, sf_type).encode(), (s_id, sf_type, start_time + 1).encode());
    let mut damage = None;
    tx.scan(Table::CallForwarding, &first, &end, &mut |_, bytes| {
        match CallForwarding::decode(bytes) {
            Ok(row) if end_time < row.end_time => found.push(row.numberx),
            Ok(_) => {}
            Err(error) => damage = Some(error),
        }
        damage.is_none()
    })?;
    damage.map_or(Ok(found), |error| Err(PeerError::failed(error)))
}

pub(super) fn update_subscriber_data(
    tx: &mut impl Writer,
    s_id: u64,
    bit: u8,
    sf_type: u8,
    data_a: u8,
) -> Ended<bool> {
    let set_bit_1 = |row: &mut RowEdit<'_, Subscriber>| {
        row.change(
            |column| column.bit,
            |bits| std::array::from_fn(|at| if at == 0 { bit } else { bits[at] }),
        );
    };
    let set_data_a = |row: &mut RowEdit<'_, SpecialFacility>| row.set(|column| column.data_a, data_a);
    let subscriber = edit(tx, Table::Subscriber, &s_id, set_bit_1)?;
    let facility = edit(tx, Table::SpecialFacility, &(s_id, sf_type), set_data_a)?;
    Ok(if subscriber.and(facility).is_some() { Ending::Commit(true) } else { Ending::Rollback(false) })
}

/// Returns the subscriber with a number.
fn s_id_by(tx: &impl Reader, number: &Digits15) -> Result<Option<u64>, PeerError> {
    tx.get(Table::SubscriberByNumber, number, s_id_of)?.transpose()
}

pub(super) fn update_location(tx: &mut impl Writer, number: &Digits15, location: u32) -> Ended<bool> {
    let Some(s_id) = s_id_by(tx, number)? else { return Ok(Ending::Rollback(false)) };
    let set = |row: &mut RowEdit<'_, Subscriber>| row.set(|column| column.vlr_location, location);
    let updated = edit(tx, Table::Subscriber, &s_id, set)?;
    Ok(if updated.is_some() { Ending::Commit(true) } else { Ending::Rollback(false) })
}

pub(super) fn insert_call_forwarding(
    tx: &mut impl Writer,
    number: &Digits15,
    (sf_type, start_time): (u8, u8),
    row: &CallForwarding,
) -> Ended<bool> {
    let Some(s_id) = s_id_by(tx, number)? else { return Ok(Ending::Rollback(false)) };
    // The specification's second statement reads the types of all facilities of the subscriber.
    let mut types = [false; TYPES as usize + 1];
    let (first, end) = (s_id.encode(), (s_id + 1).encode());
    tx.scan(Table::SpecialFacility, &first, &end, &mut |key, _| {
        let found = key.last().and_then(|sf_type| types.get_mut(usize::from(*sf_type)));
        found.map(|found| *found = true).is_some()
    })?;
    if !types[usize::from(sf_type)] {
        return Ok(Ending::Rollback(false));
    }
    let inserted = insert_row(tx, Table::CallForwarding, &(s_id, sf_type, start_time), row)?;
    Ok(if inserted { Ending::Commit(true) } else { Ending::Rollback(false) })
}

pub(super) fn delete_call_forwarding(
    tx: &mut impl Writer,
    number: &Digits15,
    (sf_type, start_time): (u8, u8),
) -> Ended<bool> {
    let Some(s_id) = s_id_by(tx, number)? else { return Ok(Ending::Rollback(false)) };
    let deleted = tx.delete(Table::CallForwarding, &(s_id, sf_type, start_time).encode())?;
    Ok(if deleted { Ending::Commit(true) } else { Ending::Rollback(false) })
}

pub(super) fn account_update(tx: &mut impl Writer, request: &Request, time_ns: u64) -> Ended<i64> {
    let Request { b_id, t_id, account, delta } = *request;
    let put = |row: &mut RowEdit<'_, Account>| {
        row.change(|column| column.balance, |balance| balance + delta);
        row.get(|column| column.balance)
    };
    let count = |row: &mut RowEdit<'_, Teller>| {
        let entry = row.get(|column| column.entries);
        row.change(|column| column.balance, |balance| balance + delta);
        row.set(|column| column.entries, entry + 1);
        entry
    };
    let add = |row: &mut RowEdit<'_, Branch>| row.change(|column| column.balance, |balance| balance + delta);
    let balance = edit(tx, Table::Account, &account, put)?.ok_or_else(|| missing("an account"))?;
    let entry = edit(tx, Table::Teller, &(b_id, t_id), count)?.ok_or_else(|| missing("a teller"))?;
    edit(tx, Table::Branch, &b_id, add)?.ok_or_else(|| missing("a branch"))?;
    let row = History {
        account_branch: account.0,
        account: account.1,
        delta: delta as i32,
        time_ns,
        filler: History::FILLER,
    };
    if !insert_row(tx, Table::History, &(b_id, t_id, entry), &row)? {
        return Err(PeerError::failed("an entry of the history exists already"));
    }
    Ok(Ending::Commit(balance))
}

pub(super) fn read(store: &impl Store, key: u64) -> Result<(), PeerError> {
    let row: Option<Wide> = read_row(store, Table::Usertable, &key)?;
    black_box(row).map(drop).ok_or_else(|| missing("a record"))
}

pub(super) fn write_column(tx: &mut impl Writer, op: Op) -> Ended<()> {
    let write = |row: &mut RowEdit<'_, Wide>| Wide::write_column(row, op.key, op.detail);
    edit(tx, Table::Usertable, &op.key, write)?.ok_or_else(|| missing("a record"))?;
    Ok(Ending::Commit(()))
}

pub(super) fn insert(tx: &mut impl Writer, key: u64) -> Ended<()> {
    if insert_row(tx, Table::Usertable, &key, &Wide::new(key))? {
        return Ok(Ending::Commit(()));
    }
    Err(PeerError::failed("a record exists already"))
}

pub(super) fn scan(tx: &impl Reader, op: Op, keys: Keys) -> Result<Vec<Wide>, PeerError> {
    let mut found = Vec::with_capacity(op.detail as usize);
    let mut damage = None;
    tx.scan(Table::Usertable, &op.key.encode(), &keys.loaded(keys.rows()).encode(), &mut |_, bytes| {
        match Wide::decode(bytes) {
            Ok(row) => found.push(row),
            Err(error) => damage = Some(error),
        }
        damage.is_none() && found.len() < op.detail as usize
    })?;
    damage.map_or(Ok(found), |error| Err(PeerError::failed(error)))
}

pub(super) fn update(tx: &mut impl Writer, row: u64) -> Ended<()> {
    let add_one = |row: &mut RowEdit<'_, Counter>| row.change(|column| column.count, |count| count + 1);
    edit(tx, Table::Counters, &row, add_one)?.ok_or_else(|| missing("a row"))?;
    Ok(Ending::Commit(()))
}
