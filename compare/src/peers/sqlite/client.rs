//! The transactions of all workloads as SQL.
//!
//! Owns: the statements, and where transactions begin and end. A transaction of one statement that reads begins and ends by
//! itself; one that writes and changes nothing is rolled back.

use std::hint::black_box;
use std::sync::{Mutex, PoisonError};

use atrapos::RowEdit;
use atrapos_workloads::tatp::schema::{CallForwarding, Digits15};
use atrapos_workloads::tpcb::parameters::Request;
use atrapos_workloads::tpcb::schema::History;
use atrapos_workloads::ycsb::mix::Kind;
use atrapos_workloads::ycsb::parameters::Op;
use atrapos_workloads::ycsb::schema::{COLUMN_BYTES, Keys, Record as _, Wide};
use rusqlite::{Connection, Error, OptionalExtension as _, Statement, params};

use super::tables::{INSERT_USER, access_info, insert_user, signed, subscriber, user};
use crate::kv::Ending;
use crate::peer::{Client, PeerError};
use crate::requests::TatpRequest;

/// The prepared statements of TATP.
struct Tatp<'c> {
    subscriber: Statement<'c>,
    access_info: Statement<'c>,
    new_destination: Statement<'c>,
    set_bit_1: Statement<'c>,
    set_data_a: Statement<'c>,
    set_location: Statement<'c>,
    s_id: Statement<'c>,
    facilities: Statement<'c>,
    insert_forwarding: Statement<'c>,
    delete_forwarding: Statement<'c>,
}

/// The prepared statements of TPC-B, YCSB and the update of one row.
struct Others<'c> {
    account: Statement<'c>,
    teller: Statement<'c>,
    branch: Statement<'c>,
    history: Statement<'c>,
    read: Statement<'c>,
    scan: Statement<'c>,
    insert: Statement<'c>,
    fields: Vec<Statement<'c>>,
    set_fields: Vec<Statement<'c>>,
    add_one: Statement<'c>,
}

/// A connection with its statements.
pub(super) struct SqliteClient<'c> {
    turn: &'c Mutex<()>,
    begin_writing: Statement<'c>,
    commit: Statement<'c>,
    rollback: Statement<'c>,
    tatp: Tatp<'c>,
    others: Others<'c>,
    /// The bytes of a record, of which an update computes one column.
    record: Vec<u8>,
}

impl<'c> Tatp<'c> {
    fn prepare(connection: &'c Connection) -> Result<Tatp<'c>, Error> {
        let prepare = |sql| connection.prepare(sql);
        Ok(Tatp {
            subscriber: prepare("SELECT * FROM subscriber WHERE s_id = ?")?,
            access_info: prepare("SELECT * FROM access_info WHERE s_id = ? AND ai_type = ?")?,
            new_destination: prepare(
                "SELECT cf.numberx FROM special_facility AS sf, call_forwarding AS cf
                 WHERE sf.s_id = ?1 AND sf.sf_type = ?2 AND sf.is_active = 1 AND cf.s_id = ?1 AND cf.sf_type = ?2
                 AND cf.start_time <= ?3 AND ?4 < cf.end_time",
            )?,
            set_bit_1: prepare("UPDATE subscriber SET bit_1 = ? WHERE s_id = ?")?,
            set_data_a: prepare("UPDATE special_facility SET data_a = ? WHERE s_id = ? AND sf_type = ?")?,
            set_location: prepare("UPDATE subscriber SET vlr_location = ? WHERE sub_nbr = ?")?,
            s_id: prepare("SELECT s_id FROM subscriber WHERE sub_nbr = ?")?,
            facilities: prepare("SELECT sf_type FROM special_facility WHERE s_id = ?")?,
            insert_forwarding: prepare("INSERT OR IGNORE INTO call_forwarding VALUES (?, ?, ?, ?, ?)")?,
            delete_forwarding: prepare(
                "DELETE FROM call_forwarding WHERE s_id = ? AND sf_type = ? AND start_time = ?",
            )?,
        })
    }
}

impl<'c> Others<'c> {
    fn prepare(connection: &'c Connection) -> Result<Others<'c>, Error> {
        let prepare = |sql: &str| connection.prepare(sql);
        let each = |sql: fn(usize) -> String| -> Result<Vec<_>, Error> {
            (0..10).map(|field| prepare(&sql(field))).collect()
        };
        Ok(Others {
            account: prepare(
                "UPDATE account SET balance = balance + ? WHERE b_id = ? AND a_id = ? RETURNING balance",
            )?,
            teller: prepare(
                "UPDATE teller SET balance = balance + ?, entries = entries + 1 WHERE b_id = ? AND t_id = ?
                 RETURNING entries - 1",
            )?,
            branch: prepare("UPDATE branch SET balance = balance + ? WHERE b_id = ?")?,
            history: prepare("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?, ?)")?,
            read: prepare("SELECT * FROM usertable WHERE key = ?")?,
            scan: prepare("SELECT * FROM usertable WHERE key >= ? ORDER BY key LIMIT ?")?,
            insert: prepare(INSERT_USER)?,
            fields: each(|field| format!("SELECT field{field} FROM usertable WHERE key = ?"))?,
            set_fields: each(|field| format!("UPDATE usertable SET field{field} = ? WHERE key = ?"))?,
            add_one: prepare("UPDATE counters SET count = count + 1 WHERE row = ?")?,
        })
    }
}

impl<'c> SqliteClient<'c> {
    /// Prepares the statements of a client; those that write take turns by `turn`.
    pub(super) fn new(connection: &'c Connection, turn: &'c Mutex<()>) -> Result<SqliteClient<'c>, Error> {
        Ok(SqliteClient {
            turn,
            begin_writing: connection.prepare("BEGIN IMMEDIATE")?,
            commit: connection.prepare("COMMIT")?,
            rollback: connection.prepare("ROLLBACK")?,
            tatp: Tatp::prepare(connection)?,
            others: Others::prepare(connection)?,
            record: vec![0; 10 * COLUMN_BYTES],
        })
    }

    /// Runs a transaction that writes.
    fn write<R>(
        &mut self,
        body: impl FnOnce(&mut SqliteClient<'c>) -> Result<Ending<R>, Error>,
    ) -> Result<R, PeerError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.begin_writing.execute([]).map_err(PeerError::failed)?;
        let (keep, result) = body(self).map_err(PeerError::failed)?.parts();
        let end = if keep { &mut self.commit } else { &mut self.rollback };
        end.execute([]).map_err(PeerError::failed)?;
        Ok(result)
    }

    /// Runs a statement that is a transaction of its own and changes one row. Returns whether it found that row.
    fn write_one(
        &mut self,
        statement: impl FnOnce(&mut SqliteClient<'c>) -> Result<usize, Error>,
    ) -> Result<bool, PeerError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        statement(self).map(|changed| changed == 1).map_err(PeerError::failed)
    }

    fn get_new_destination(&mut self, s_id: u64, sf_type: u8, start: u8, end: u8) -> Result<bool, Error> {
        let arguments = params![s_id.cast_signed(), sf_type, start, end];
        let found = self.tatp.new_destination.query_map(arguments, |row| row.get::<_, Digits15>(0))?;
        Ok(!black_box(found.collect::<Result<Vec<_>, _>>()?).is_empty())
    }

    fn insert_call_forwarding(
        &mut self,
        number: &Digits15,
        (sf_type, start_time): (u8, u8),
        row: &CallForwarding,
    ) -> Result<Ending<bool>, Error> {
        let Some(s_id) = self.s_id(number)? else { return Ok(Ending::Rollback(false)) };
        let types = self.tatp.facilities.query_map([s_id], |row| row.get::<_, u8>(0))?;
        if !types.collect::<Result<Vec<_>, _>>()?.contains(&sf_type) {
            return Ok(Ending::Rollback(false));
        }
        let arguments = params![s_id, sf_type, start_time, row.end_time, row.numberx];
        let inserted = self.tatp.insert_forwarding.execute(arguments)?;
        Ok(if inserted == 1 { Ending::Commit(true) } else { Ending::Rollback(false) })
    }

    fn s_id(&mut self, number: &Digits15) -> Result<Option<i64>, Error> {
        self.tatp.s_id.query_row([number], |row| row.get(0)).optional()
    }

    fn account_update(&mut self, request: &Request, time_ns: u64) -> Result<Ending<i64>, Error> {
        let Request { b_id, t_id, account, delta } = *request;
        let b_id = b_id.cast_signed();
        let (of_branch, number) = (account.0.cast_signed(), account.1);
        let balance = self.others.account.query_row(params![delta, of_branch, number], |row| row.get(0))?;
        let entry: i64 = self.others.teller.query_row(params![delta, b_id, t_id], |row| row.get(0))?;
        if self.others.branch.execute(params![delta, b_id])? != 1 {
            return Err(Error::QueryReturnedNoRows);
        }
        let time_ns = time_ns.cast_signed();
        let filler = &History::FILLER[..];
        self.others.history.execute(params![b_id, t_id, entry, of_branch, number, delta, time_ns, filler])?;
        Ok(Ending::Commit(balance))
    }

    /// Writes a column of a record: its new value depends on the old one.
    fn write_column(&mut self, op: Op) -> Result<Ending<()>, Error> {
        let field = op.detail as usize;
        let place = field * COLUMN_BYTES..(field + 1) * COLUMN_BYTES;
        let record = &mut self.record;
        self.others.fields[field].query_row([signed(op.key)], |row| {
            record[place.clone()].copy_from_slice(row.get_ref(0)?.as_blob()?);
            Ok(())
        })?;
        let mut row = RowEdit::new(&mut self.record).map_err(|_| Error::InvalidQuery)?;
        Wide::write_column(&mut row, op.key, op.detail);
        self.others.set_fields[field].execute(params![&self.record[place], signed(op.key)])?;
        Ok(Ending::Commit(()))
    }

    fn scan(&mut self, op: Op) -> Result<(), Error> {
        let found = self.others.scan.query_map(params![signed(op.key), op.detail], user)?;
        black_box(found.collect::<Result<Vec<_>, _>>()?);
        Ok(())
    }
}

impl Client for SqliteClient<'_> {
    fn tatp(&mut self, request: &TatpRequest) -> Result<bool, PeerError> {
        let kept = |changed: usize| if changed == 1 { Ending::Commit(true) } else { Ending::Rollback(false) };
        match *request {
            TatpRequest::GetSubscriberData { s_id } => {
                let row = self.tatp.subscriber.query_row([s_id.cast_signed()], subscriber).optional();
                row.map(|row| black_box(row).is_some()).map_err(PeerError::failed)
            }
            TatpRequest::GetAccessData { s_id, ai_type } => {
                let key = params![s_id.cast_signed(), ai_type];
                let row = self.tatp.access_info.query_row(key, access_info).optional();
                row.map(|row| black_box(row).is_some()).map_err(PeerError::failed)
            }
            TatpRequest::GetNewDestination { s_id, sf_type, start_time, end_time } => {
                self.get_new_destination(s_id, sf_type, start_time, end_time).map_err(PeerError::failed)
            }
            TatpRequest::UpdateSubscriberData { s_id, bit, sf_type, data_a } => self.write(|client| {
                let subscriber = client.tatp.set_bit_1.execute(params![bit, s_id.cast_signed()])?;
                let facility =
                    client.tatp.set_data_a.execute(params![data_a, s_id.cast_signed(), sf_type])?;
                Ok(kept(subscriber.min(facility)))
            }),
            TatpRequest::UpdateLocation { ref number, location } => {
                self.write_one(|client| client.tatp.set_location.execute(params![location, number]))
            }
            TatpRequest::InsertCallForwarding { ref number, sf_type, start_time, ref row } => {
                self.write(|client| client.insert_call_forwarding(number, (sf_type, start_time), row))
            }
            TatpRequest::DeleteCallForwarding { ref number, sf_type, start_time } => self.write(|client| {
                let Some(s_id) = client.s_id(number)? else { return Ok(Ending::Rollback(false)) };
                client.tatp.delete_forwarding.execute(params![s_id, sf_type, start_time]).map(kept)
            }),
        }
    }

    fn tpcb(&mut self, request: &Request, time_ns: u64) -> Result<i64, PeerError> {
        self.write(|client| client.account_update(request, time_ns))
    }

    fn ycsb(&mut self, op: Op, _: Keys) -> Result<(), PeerError> {
        match op.kind {
            Kind::Read => {
                let row = self.others.read.query_row([signed(op.key)], user);
                row.map(|row| _ = black_box(row)).map_err(PeerError::failed)
            }
            Kind::Update | Kind::ReadModifyWrite => self.write(|client| client.write_column(op)),
            Kind::Insert => self.write(|client| {
                insert_user(&mut client.others.insert, op.key, &Wide::new(op.key))?;
                Ok(Ending::Commit(()))
            }),
            Kind::Scan => self.scan(op).map_err(PeerError::failed),
        }
    }

    fn update(&mut self, row: u64) -> Result<(), PeerError> {
        match self.write_one(|client| client.others.add_one.execute([row.cast_signed()]))? {
            true => Ok(()),
            false => Err(PeerError::failed("a row is missing")),
        }
    }
}
