//! A sharded concurrent hash map without transactions: the upper mark.
//!
//! Owns: a map for each table, with typed rows that are changed in place. Each access of a row is atomic, a transaction is not:
//! others see half of it, and nothing is undone but by what would not have been written at all. Maps have no order, so that YCSB E,
//! which scans, is not run.

use std::hash::Hash;
use std::hint::black_box;
use std::path::Path;

use atrapos::RowEdit;
use atrapos_workloads::micro::Counter;
use atrapos_workloads::tatp::generator::{START_TIMES, TYPES};
use atrapos_workloads::tatp::schema::{AccessInfo, CallForwarding, Digits15, SpecialFacility, Subscriber};
use atrapos_workloads::tpcb::parameters::Request;
use atrapos_workloads::tpcb::schema::{Account, Branch, History, Teller};
use atrapos_workloads::ycsb::mix::Kind;
use atrapos_workloads::ycsb::parameters::Op;
use atrapos_workloads::ycsb::schema::{Keys, Record as _, Wide};
use dashmap::{DashMap, Entry};
use rustc_hash::FxBuildHasher;

use super::version_of;
use crate::peer::{Client, Durability, Peer, PeerError, PeerKind, WorkName};
use crate::record::Record;
use crate::requests::TatpRequest;

type Map<K, V> = DashMap<K, V, FxBuildHasher>;

/// The maps.
#[derive(Debug, Default)]
struct Maps {
    subscriber: Map<u64, Subscriber>,
    by_number: Map<Digits15, u64>,
    access_info: Map<(u64, u8), AccessInfo>,
    special_facility: Map<(u64, u8), SpecialFacility>,
    call_forwarding: Map<(u64, u8, u8), CallForwarding>,
    branch: Map<u64, Branch>,
    teller: Map<(u64, u8), Teller>,
    account: Map<(u64, u32), Account>,
    history: Map<(u64, u8, u64), History>,
    /// The bytes of records: an update writes one column in place.
    usertable: Map<u64, Box<[u8]>>,
    counters: Map<u64, Counter>,
}

/// Returns what the map is.
#[must_use]
pub fn kind() -> PeerKind {
    PeerKind {
        name: "map",
        version: format!("dashmap {}", version_of("dashmap")),
        isolation: "none: single rows are atomic, transactions are not",
        none: "in memory",
        synchronous: None,
        lacks: &[(WorkName::YcsbE, "has no order to scan in")],
        open,
    }
}

fn open(_: &Path, _: Durability) -> Result<Box<dyn Peer>, PeerError> {
    Ok(Box::new(Maps::default()))
}

/// Adds a row to a map, over one with the same key.
fn add<K: Eq + Hash, V>(map: &Map<K, V>, key: K, row: V) {
    map.insert(key, row);
}

/// Hands over all rows of a map.
fn all<K: Eq + Hash + Copy, V: Clone>(
    map: &Map<K, V>,
    sink: &mut dyn FnMut(Record) -> Result<(), PeerError>,
    record: impl Fn(K, V) -> Record,
) -> Result<(), PeerError> {
    map.iter().try_for_each(|entry| sink(record(*entry.key(), entry.value().clone())))
}

fn missing(what: &str) -> PeerError {
    PeerError::failed(format!("{what} is missing"))
}

impl Peer for Maps {
    fn load(&self, records: &mut dyn Iterator<Item = Record>) -> Result<(), PeerError> {
        for record in records {
            match record {
                Record::Subscriber(key, row) => add(&self.subscriber, key, row),
                Record::SubscriberByNumber(number, s_id) => add(&self.by_number, number, s_id),
                Record::AccessInfo(key, row) => add(&self.access_info, key, row),
                Record::SpecialFacility(key, row) => add(&self.special_facility, key, row),
                Record::CallForwarding(key, row) => add(&self.call_forwarding, key, row),
                Record::Branch(key, row) => add(&self.branch, key, row),
                Record::Teller(key, row) => add(&self.teller, key, row),
                Record::Account(key, row) => add(&self.account, key, row),
                Record::History(key, row) => add(&self.history, key, row),
                Record::Usertable(key, row) => add(&self.usertable, key, bytes_of(&row)),
                Record::Counters(key, row) => add(&self.counters, key, *row),
            }
        }
        Ok(())
    }

    fn with_client(
        &self,
        body: &mut dyn FnMut(&mut dyn Client) -> Result<(), PeerError>,
    ) -> Result<(), PeerError> {
        body(&mut MapClient(self))
    }

    fn dump(&self, sink: &mut dyn FnMut(Record) -> Result<(), PeerError>) -> Result<(), PeerError> {
        all(&self.subscriber, sink, Record::Subscriber)?;
        all(&self.by_number, sink, Record::SubscriberByNumber)?;
        all(&self.access_info, sink, Record::AccessInfo)?;
        all(&self.special_facility, sink, Record::SpecialFacility)?;
        all(&self.call_forwarding, sink, Record::CallForwarding)?;
        all(&self.branch, sink, Record::Branch)?;
        all(&self.teller, sink, Record::Teller)?;
        all(&self.account, sink, Record::Account)?;
        all(&self.history, sink, Record::History)?;
        all(&self.counters, sink, |key, row| Record::Counters(key, Box::new(row)))?;
        self.usertable.iter().try_for_each(|entry| {
            let row = row_of(entry.value())?;
            sink(Record::Usertable(*entry.key(), Box::new(row)))
        })
    }
}

fn bytes_of(row: &Wide) -> Box<[u8]> {
    let mut bytes = Vec::new();
    atrapos::Row::encode(row, &mut bytes);
    bytes.into()
}

fn row_of(bytes: &[u8]) -> Result<Wide, PeerError> {
    atrapos::Row::decode(bytes).map_err(PeerError::failed)
}

/// A client of the maps.
struct MapClient<'m>(&'m Maps);

impl MapClient<'_> {
    fn get_new_destination(&self, s_id: u64, sf_type: u8, start_time: u8, end_time: u8) -> Vec<Digits15> {
        let is_active = self.0.special_facility.get(&(s_id, sf_type)).is_some_and(|row| row.is_active);
        let begun = START_TIMES.into_iter().filter(|begin| is_active && *begin <= start_time);
        let rows = begun.filter_map(|begin| self.0.call_forwarding.get(&(s_id, sf_type, begin)));
        rows.filter(|row| end_time < row.end_time).map(|row| row.numberx).collect()
    }

    fn update_subscriber_data(&self, s_id: u64, bit: u8, sf_type: u8, data_a: u8) -> bool {
        // The facility comes first: without one, nothing is changed.
        let Some(mut facility) = self.0.special_facility.get_mut(&(s_id, sf_type)) else { return false };
        facility.data_a = data_a;
        drop(facility);
        self.0.subscriber.get_mut(&s_id).map(|mut row| row.bit[0] = bit).is_some()
    }

    fn insert_call_forwarding(
        &self,
        number: &Digits15,
        (sf_type, start_time): (u8, u8),
        row: &CallForwarding,
    ) -> bool {
        let Some(s_id) = self.s_id(number) else { return false };
        let types = (1..=TYPES).filter(|of| self.0.special_facility.contains_key(&(s_id, *of)));
        if black_box(types.collect::<Vec<_>>()).iter().all(|of| *of != sf_type) {
            return false;
        }
        match self.0.call_forwarding.entry((s_id, sf_type, start_time)) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(row.clone());
                true
            }
        }
    }

    fn s_id(&self, number: &Digits15) -> Option<u64> {
        self.0.by_number.get(number).map(|s_id| *s_id)
    }
}

impl Client for MapClient<'_> {
    fn tatp(&mut self, request: &TatpRequest) -> Result<bool, PeerError> {
        let maps = self.0;
        Ok(match *request {
            TatpRequest::GetSubscriberData { s_id } => {
                black_box(maps.subscriber.get(&s_id).map(|row| row.clone())).is_some()
            }
            TatpRequest::GetAccessData { s_id, ai_type } => {
                black_box(maps.access_info.get(&(s_id, ai_type)).map(|row| row.clone())).is_some()
            }
            TatpRequest::GetNewDestination { s_id, sf_type, start_time, end_time } => {
                !black_box(self.get_new_destination(s_id, sf_type, start_time, end_time)).is_empty()
            }
            TatpRequest::UpdateSubscriberData { s_id, bit, sf_type, data_a } => {
                self.update_subscriber_data(s_id, bit, sf_type, data_a)
            }
            TatpRequest::UpdateLocation { ref number, location } => {
                let row = self.s_id(number).and_then(|s_id| maps.subscriber.get_mut(&s_id));
                row.map(|mut row| row.vlr_location = location).is_some()
            }
            TatpRequest::InsertCallForwarding { ref number, sf_type, start_time, ref row } => {
                self.insert_call_forwarding(number, (sf_type, start_time), row)
            }
            TatpRequest::DeleteCallForwarding { ref number, sf_type, start_time } => {
                let key = self.s_id(number).map(|s_id| (s_id, sf_type, start_time));
                key.and_then(|key| maps.call_forwarding.remove(&key)).is_some()
            }
        })
    }

    fn tpcb(&mut self, request: &Request, time_ns: u64) -> Result<i64, PeerError> {
        let Request { b_id, t_id, account, delta } = *request;
        let mut row = self.0.account.get_mut(&account).ok_or_else(|| missing("an account"))?;
        row.balance += delta;
        let balance = row.balance;
        drop(row);
        let mut row = self.0.teller.get_mut(&(b_id, t_id)).ok_or_else(|| missing("a teller"))?;
        let entry = row.entries;
        row.balance += delta;
        row.entries += 1;
        drop(row);
        self.0.branch.get_mut(&b_id).ok_or_else(|| missing("a branch"))?.balance += delta;
        let row = History {
            account_branch: account.0,
            account: account.1,
            delta: delta as i32,
            time_ns,
            filler: History::FILLER,
        };
        add(&self.0.history, (b_id, t_id, entry), row);
        Ok(balance)
    }

    fn ycsb(&mut self, op: Op, _: Keys) -> Result<(), PeerError> {
        match op.kind {
            Kind::Read => {
                let row = self.0.usertable.get(&op.key).ok_or_else(|| missing("a record"))?;
                black_box(row_of(&row)?);
            }
            Kind::Update | Kind::ReadModifyWrite => {
                let mut row = self.0.usertable.get_mut(&op.key).ok_or_else(|| missing("a record"))?;
                let mut row = RowEdit::new(&mut row).map_err(PeerError::failed)?;
                Wide::write_column(&mut row, op.key, op.detail);
            }
            Kind::Insert => add(&self.0.usertable, op.key, bytes_of(&Wide::new(op.key))),
            Kind::Scan => return Err(PeerError::failed("a map has no order to scan in")),
        }
        Ok(())
    }

    fn update(&mut self, row: u64) -> Result<(), PeerError> {
        self.0.counters.get_mut(&row).ok_or_else(|| missing("a row"))?.count += 1;
        Ok(())
    }
}
