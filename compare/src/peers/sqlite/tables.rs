//! The tables of SQLite, and the conversion of their rows.
//!
//! Owns: definitions, insertion and reading of whole tables. Never: runs a transaction of a workload.

use atrapos::Row as _;
use atrapos_workloads::micro::Counter;
use atrapos_workloads::tatp::schema::{AccessInfo, CallForwarding, Digits15, SpecialFacility, Subscriber};
use atrapos_workloads::tpcb::schema::{Account, Branch, History, Teller};
use atrapos_workloads::ycsb::schema::{COLUMN_BYTES, Wide};
use rusqlite::{Connection, Error, Row, Statement, params};

use crate::peer::PeerError;
use crate::record::{Record, Table};

/// Creates all tables. Of the groups of ten columns in TATP, `bit_1`, which transactions write, is one of its own.
pub(super) const CREATE: &str = "
    CREATE TABLE subscriber (
        s_id INTEGER PRIMARY KEY, sub_nbr BLOB NOT NULL, bit_1 INTEGER NOT NULL, bits BLOB NOT NULL,
        hex BLOB NOT NULL, byte2 BLOB NOT NULL, msc_location INTEGER NOT NULL, vlr_location INTEGER NOT NULL);
    CREATE UNIQUE INDEX subscriber_by_sub_nbr ON subscriber (sub_nbr);
    CREATE TABLE access_info (
        s_id INTEGER NOT NULL, ai_type INTEGER NOT NULL, data1 INTEGER NOT NULL, data2 INTEGER NOT NULL,
        data3 BLOB NOT NULL, data4 BLOB NOT NULL, PRIMARY KEY (s_id, ai_type)) WITHOUT ROWID;
    CREATE TABLE special_facility (
        s_id INTEGER NOT NULL, sf_type INTEGER NOT NULL, is_active INTEGER NOT NULL, error_cntrl INTEGER NOT NULL,
        data_a INTEGER NOT NULL, data_b BLOB NOT NULL, PRIMARY KEY (s_id, sf_type)) WITHOUT ROWID;
    CREATE TABLE call_forwarding (
        s_id INTEGER NOT NULL, sf_type INTEGER NOT NULL, start_time INTEGER NOT NULL, end_time INTEGER NOT NULL,
        numberx BLOB NOT NULL, PRIMARY KEY (s_id, sf_type, start_time)) WITHOUT ROWID;
    CREATE TABLE branch (b_id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, filler BLOB NOT NULL);
    CREATE TABLE teller (
        b_id INTEGER NOT NULL, t_id INTEGER NOT NULL, balance INTEGER NOT NULL, entries INTEGER NOT NULL,
        filler BLOB NOT NULL, PRIMARY KEY (b_id, t_id)) WITHOUT ROWID;
    CREATE TABLE account (
        b_id INTEGER NOT NULL, a_id INTEGER NOT NULL, balance INTEGER NOT NULL, filler BLOB NOT NULL,
        PRIMARY KEY (b_id, a_id)) WITHOUT ROWID;
    CREATE TABLE history (
        b_id INTEGER NOT NULL, t_id INTEGER NOT NULL, entry INTEGER NOT NULL, account_branch INTEGER NOT NULL,
        account INTEGER NOT NULL, delta INTEGER NOT NULL, time_ns INTEGER NOT NULL, filler BLOB NOT NULL,
        PRIMARY KEY (b_id, t_id, entry)) WITHOUT ROWID;
    CREATE TABLE usertable (
        key INTEGER PRIMARY KEY, field0 BLOB NOT NULL, field1 BLOB NOT NULL, field2 BLOB NOT NULL, field3 BLOB NOT NULL,
        field4 BLOB NOT NULL, field5 BLOB NOT NULL, field6 BLOB NOT NULL, field7 BLOB NOT NULL, field8 BLOB NOT NULL,
        field9 BLOB NOT NULL);
    CREATE TABLE counters (row INTEGER PRIMARY KEY, count INTEGER NOT NULL, padding BLOB NOT NULL);
";

/// Inserts a record of YCSB.
pub(super) const INSERT_USER: &str = "INSERT INTO usertable VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

/// Returns a key of YCSB as SQLite's signed number, in the same order.
pub(super) fn signed(key: u64) -> i64 {
    (key ^ (1 << 63)).cast_signed()
}

fn unsigned(key: i64) -> u64 {
    key.cast_unsigned() ^ (1 << 63)
}

/// The statements that fill the tables.
pub(super) struct Inserts<'c>(Vec<(Table, Statement<'c>)>);

impl<'c> Inserts<'c> {
    pub(super) fn prepare(connection: &'c Connection) -> Result<Inserts<'c>, Error> {
        let tables = Table::ALL.into_iter().filter(|table| *table != Table::SubscriberByNumber);
        let insert = |table: Table| {
            let columns = connection.prepare(&format!("SELECT * FROM {}", table.name()))?.column_count();
            let places = vec!["?"; columns].join(", ");
            let statement = connection.prepare(&format!("INSERT INTO {} VALUES ({places})", table.name()))?;
            Ok((table, statement))
        };
        Ok(Inserts(tables.map(insert).collect::<Result<_, Error>>()?))
    }

    /// Inserts a record. SQLite itself makes the entries of the index.
    pub(super) fn add(&mut self, record: &Record) -> Result<(), Error> {
        let table = record.table();
        let Some((_, statement)) = self.0.iter_mut().find(|(of, _)| *of == table) else { return Ok(()) };
        insert(statement, record)
    }
}

fn insert(statement: &mut Statement<'_>, record: &Record) -> Result<(), Error> {
    let inserted = match record {
        Record::SubscriberByNumber(..) => Ok(0),
        Record::Subscriber(s_id, row) => statement.execute(params![
            s_id.cast_signed(),
            row.sub_nbr,
            row.bit[0],
            &row.bit[1..],
            row.hex,
            row.byte2,
            row.msc_location,
            row.vlr_location
        ]),
        Record::AccessInfo((s_id, ai_type), row) => statement.execute(params![
            s_id.cast_signed(),
            ai_type,
            row.data1,
            row.data2,
            row.data3,
            row.data4
        ]),
        Record::SpecialFacility((s_id, sf_type), row) => statement.execute(params![
            s_id.cast_signed(),
            sf_type,
            row.is_active,
            row.error_cntrl,
            row.data_a,
            row.data_b
        ]),
        Record::CallForwarding((s_id, sf_type, start), row) => {
            statement.execute(params![s_id.cast_signed(), sf_type, start, row.end_time, row.numberx])
        }
        Record::Branch(b_id, row) => {
            statement.execute(params![b_id.cast_signed(), row.balance, &row.filler[..]])
        }
        Record::Teller((b_id, t_id), row) => statement.execute(params![
            b_id.cast_signed(),
            t_id,
            row.balance,
            row.entries.cast_signed(),
            &row.filler[..]
        ]),
        Record::Account((b_id, a_id), row) => {
            statement.execute(params![b_id.cast_signed(), a_id, row.balance, &row.filler[..]])
        }
        Record::History((b_id, t_id, entry), row) => statement.execute(params![
            b_id.cast_signed(),
            t_id,
            entry.cast_signed(),
            row.account_branch.cast_signed(),
            row.account,
            row.delta,
            row.time_ns.cast_signed(),
            &row.filler[..]
        ]),
        Record::Usertable(key, row) => insert_user(statement, *key, row),
        Record::Counters(number, row) => {
            statement.execute(params![number.cast_signed(), row.count.cast_signed(), &row.padding[..]])
        }
    };
    inserted.map(drop)
}

/// Inserts a record of YCSB by a prepared [`INSERT_USER`].
pub(super) fn insert_user(statement: &mut Statement<'_>, key: u64, row: &Wide) -> Result<usize, Error> {
    let fields = [
        &row.field0,
        &row.field1,
        &row.field2,
        &row.field3,
        &row.field4,
        &row.field5,
        &row.field6,
        &row.field7,
        &row.field8,
        &row.field9,
    ];
    statement.raw_bind_parameter(1, signed(key))?;
    for (at, field) in (2..).zip(fields) {
        statement.raw_bind_parameter(at, &field[..])?;
    }
    statement.raw_execute()
}

/// Returns a column of bytes, which all have the same length in a table.
fn bytes<const N: usize>(row: &Row<'_>, column: usize) -> Result<[u8; N], Error> {
    let value = row.get_ref(column)?;
    let found = value.as_blob()?;
    found
        .try_into()
        .map_err(|_| Error::InvalidColumnType(column, format!("{} bytes", found.len()), value.data_type()))
}

fn number(row: &Row<'_>, column: usize) -> Result<u64, Error> {
    row.get(column).map(i64::cast_unsigned)
}

/// Returns a row of `SELECT *` of table `subscriber`.
pub(super) fn subscriber(row: &Row<'_>) -> Result<(u64, Subscriber), Error> {
    let mut bit = [row.get(2)?; 10];
    bit[1..].copy_from_slice(&bytes::<9>(row, 3)?);
    let (hex, byte2) = (bytes(row, 4)?, bytes(row, 5)?);
    let (msc_location, vlr_location) = (row.get(6)?, row.get(7)?);
    Ok((number(row, 0)?, Subscriber { sub_nbr: bytes(row, 1)?, bit, hex, byte2, msc_location, vlr_location }))
}

/// Returns a row of `SELECT *` of table `access_info`.
pub(super) fn access_info(row: &Row<'_>) -> Result<((u64, u8), AccessInfo), Error> {
    let info =
        AccessInfo { data1: row.get(2)?, data2: row.get(3)?, data3: bytes(row, 4)?, data4: bytes(row, 5)? };
    Ok(((number(row, 0)?, row.get(1)?), info))
}

/// Returns a row of `SELECT *` of table `usertable`.
pub(super) fn user(row: &Row<'_>) -> Result<(u64, Wide), Error> {
    let mut encoded = Vec::with_capacity(10 * COLUMN_BYTES);
    for column in 1..=10 {
        encoded.extend_from_slice(row.get_ref(column)?.as_blob()?);
    }
    let wide = Wide::decode(&encoded).map_err(|_| Error::InvalidQuery)?;
    Ok((unsigned(row.get(0)?), wide))
}

/// Returns the record of a row of `SELECT *` of a table, or of an entry of the index.
fn record(table: Table, row: &Row<'_>) -> Result<Record, Error> {
    let first = || number(row, 0);
    Ok(match table {
        Table::Subscriber => subscriber(row).map(|(key, row)| Record::Subscriber(key, row))?,
        Table::SubscriberByNumber => {
            Record::SubscriberByNumber(bytes::<15>(row, 0)? as Digits15, number(row, 1)?)
        }
        Table::AccessInfo => access_info(row).map(|(key, row)| Record::AccessInfo(key, row))?,
        Table::SpecialFacility => {
            let (is_active, error_cntrl) = (row.get(2)?, row.get(3)?);
            let facility =
                SpecialFacility { is_active, error_cntrl, data_a: row.get(4)?, data_b: bytes(row, 5)? };
            Record::SpecialFacility((first()?, row.get(1)?), facility)
        }
        Table::CallForwarding => {
            let forwarding = CallForwarding { end_time: row.get(3)?, numberx: bytes(row, 4)? };
            Record::CallForwarding((first()?, row.get(1)?, row.get(2)?), forwarding)
        }
        Table::Branch => Record::Branch(first()?, Branch { balance: row.get(1)?, filler: bytes(row, 2)? }),
        Table::Teller => {
            let teller = Teller { balance: row.get(2)?, entries: number(row, 3)?, filler: bytes(row, 4)? };
            Record::Teller((first()?, row.get(1)?), teller)
        }
        Table::Account => {
            let account = Account { balance: row.get(2)?, filler: bytes(row, 3)? };
            Record::Account((first()?, row.get(1)?), account)
        }
        Table::History => {
            let history = History {
                account_branch: number(row, 3)?,
                account: row.get(4)?,
                delta: row.get(5)?,
                time_ns: number(row, 6)?,
                filler: bytes(row, 7)?,
            };
            Record::History((first()?, row.get(1)?, number(row, 2)?), history)
        }
        Table::Usertable => user(row).map(|(key, row)| Record::Usertable(key, Box::new(row)))?,
        Table::Counters => {
            let counter = Counter { count: number(row, 1)?, padding: bytes(row, 2)? };
            Record::Counters(first()?, Box::new(counter))
        }
    })
}

/// Hands over every row of every table, and every entry of the index.
pub(super) fn dump(
    connection: &Connection,
    sink: &mut dyn FnMut(Record) -> Result<(), PeerError>,
) -> Result<(), PeerError> {
    for table in Table::ALL {
        let query = match table {
            Table::SubscriberByNumber => {
                "SELECT sub_nbr, s_id FROM subscriber INDEXED BY subscriber_by_sub_nbr ORDER BY sub_nbr"
                    .to_owned()
            }
            _ => format!("SELECT * FROM {}", table.name()),
        };
        let mut statement = connection.prepare(&query).map_err(PeerError::failed)?;
        let mut rows = statement.query([]).map_err(PeerError::failed)?;
        while let Some(row) = rows.next().map_err(PeerError::failed)? {
            sink(record(table, row).map_err(PeerError::failed)?)?;
        }
    }
    Ok(())
}
