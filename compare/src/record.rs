//! The rows of all workloads as one type, and the tables they are in.
//!
//! Owns: tables by name, and the bytes of rows and keys in stores of bytes, which are those of `atrapos` itself. Never: makes
//! a row or judges one.

use atrapos::{Key, Row};
use atrapos_workloads::micro::Counter;
use atrapos_workloads::tatp::schema::{AccessInfo, CallForwarding, Digits15, SpecialFacility, Subscriber};
use atrapos_workloads::tpcb::schema::{Account, Branch, History, Teller};
use atrapos_workloads::ycsb::schema::Wide;

use crate::peer::PeerError;

/// A table of any workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is named after its table")]
pub enum Table {
    Subscriber,
    SubscriberByNumber,
    AccessInfo,
    SpecialFacility,
    CallForwarding,
    Branch,
    Teller,
    Account,
    History,
    Usertable,
    Counters,
}

impl Table {
    /// Every table, in the order of their discriminants.
    pub const ALL: [Table; 11] = [
        Table::Subscriber,
        Table::SubscriberByNumber,
        Table::AccessInfo,
        Table::SpecialFacility,
        Table::CallForwarding,
        Table::Branch,
        Table::Teller,
        Table::Account,
        Table::History,
        Table::Usertable,
        Table::Counters,
    ];

    /// The names of the tables, in the same order.
    pub const NAMES: [&'static str; 11] = [
        "subscriber",
        "subscriber_by_sub_nbr",
        "access_info",
        "special_facility",
        "call_forwarding",
        "branch",
        "teller",
        "account",
        "history",
        "usertable",
        "counters",
    ];

    /// Returns the table's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Table::NAMES[self as usize]
    }
}

/// A row with its key, or an entry of the index over the subscribers' numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is named after its table; the parts are the key and the row")]
pub enum Record {
    Subscriber(u64, Subscriber),
    SubscriberByNumber(Digits15, u64),
    AccessInfo((u64, u8), AccessInfo),
    SpecialFacility((u64, u8), SpecialFacility),
    CallForwarding((u64, u8, u8), CallForwarding),
    Branch(u64, Branch),
    Teller((u64, u8), Teller),
    Account((u64, u32), Account),
    History((u64, u8, u64), History),
    Usertable(u64, Box<Wide>),
    Counters(u64, Box<Counter>),
}

/// Replaces the contents of `key` and `value` by those of a row.
fn put(key: &mut Vec<u8>, value: &mut Vec<u8>, key_of: &impl Key, row: &impl Row) {
    key.clear();
    key.extend_from_slice(&key_of.encode());
    value.clear();
    row.encode(value);
}

/// Returns the key and the row of an entry.
fn take<K: Key, R: Row>(table: Table, key: &[u8], value: &[u8]) -> Result<(K, R), PeerError> {
    let damaged = |why: &dyn std::fmt::Display| PeerError::Failed(format!("table {}: {why}", table.name()));
    Ok((K::decode(key).map_err(|why| damaged(&why))?, R::decode(value).map_err(|why| damaged(&why))?))
}

impl Record {
    /// Writes key and row as bytes over `key` and `value`, and returns the table they belong to.
    pub fn encode(&self, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Table {
        match self {
            Record::Subscriber(k, row) => put(key, value, k, row),
            Record::AccessInfo(k, row) => put(key, value, k, row),
            Record::SpecialFacility(k, row) => put(key, value, k, row),
            Record::CallForwarding(k, row) => put(key, value, k, row),
            Record::Branch(k, row) => put(key, value, k, row),
            Record::Teller(k, row) => put(key, value, k, row),
            Record::Account(k, row) => put(key, value, k, row),
            Record::History(k, row) => put(key, value, k, row),
            Record::Usertable(k, row) => put(key, value, k, &**row),
            Record::Counters(k, row) => put(key, value, k, &**row),
            Record::SubscriberByNumber(number, s_id) => {
                key.clear();
                key.extend_from_slice(number);
                value.clear();
                value.extend_from_slice(&s_id.encode());
            }
        }
        self.table()
    }

    /// Returns the record that bytes of a table encode.
    ///
    /// # Errors
    /// Fails if they encode none.
    pub fn decode(table: Table, key: &[u8], value: &[u8]) -> Result<Record, PeerError> {
        Ok(match table {
            Table::Subscriber => take(table, key, value).map(|(k, row)| Record::Subscriber(k, row))?,
            Table::AccessInfo => take(table, key, value).map(|(k, row)| Record::AccessInfo(k, row))?,
            Table::SpecialFacility => {
                take(table, key, value).map(|(k, row)| Record::SpecialFacility(k, row))?
            }
            Table::CallForwarding => {
                take(table, key, value).map(|(k, row)| Record::CallForwarding(k, row))?
            }
            Table::Branch => take(table, key, value).map(|(k, row)| Record::Branch(k, row))?,
            Table::Teller => take(table, key, value).map(|(k, row)| Record::Teller(k, row))?,
            Table::Account => take(table, key, value).map(|(k, row)| Record::Account(k, row))?,
            Table::History => take(table, key, value).map(|(k, row)| Record::History(k, row))?,
            Table::Usertable => {
                take(table, key, value).map(|(k, row)| Record::Usertable(k, Box::new(row)))?
            }
            Table::Counters => take(table, key, value).map(|(k, row)| Record::Counters(k, Box::new(row)))?,
            Table::SubscriberByNumber => Record::SubscriberByNumber(
                Digits15::try_from(key).map_err(|_| PeerError::failed("a number does not have 15 digits"))?,
                s_id_of(value)?,
            ),
        })
    }

    /// Returns the table the record belongs to.
    #[must_use]
    pub fn table(&self) -> Table {
        match self {
            Record::Subscriber(..) => Table::Subscriber,
            Record::SubscriberByNumber(..) => Table::SubscriberByNumber,
            Record::AccessInfo(..) => Table::AccessInfo,
            Record::SpecialFacility(..) => Table::SpecialFacility,
            Record::CallForwarding(..) => Table::CallForwarding,
            Record::Branch(..) => Table::Branch,
            Record::Teller(..) => Table::Teller,
            Record::Account(..) => Table::Account,
            Record::History(..) => Table::History,
            Record::Usertable(..) => Table::Usertable,
            Record::Counters(..) => Table::Counters,
        }
    }
}

/// Returns the subscriber that an entry of the index over their numbers leads to.
///
/// # Errors
/// Fails if the bytes are no subscriber.
pub fn s_id_of(value: &[u8]) -> Result<u64, PeerError> {
    u64::decode(value).map_err(PeerError::failed)
}
