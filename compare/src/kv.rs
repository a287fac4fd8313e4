//! Stores of bytes by key: the interface they have in common, and the workloads on top of it.
//!
//! Owns: the traits that a store implements, and that a collision is tried again. The procedures are in a module of that name.
//! Never: knows one store from another.
//!
//! Keys and rows have the bytes that they have in `atrapos`: keys sort as their values do, columns are in fixed places.

mod procedures;

use std::hint::black_box;

use atrapos_workloads::{tpcb, ycsb};

use crate::peer::{Client, Peer, PeerError};
use crate::record::{Record, Table};
use crate::requests::TatpRequest;

/// The end of a transaction, with its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending<R> {
    /// Its changes are to be kept.
    Commit(R),
    /// It has changed nothing, or its changes are to be undone.
    Rollback(R),
}

impl<R> Ending<R> {
    /// Returns whether the changes are to be kept, and the result.
    pub fn parts(self) -> (bool, R) {
        match self {
            Ending::Commit(result) => (true, result),
            Ending::Rollback(result) => (false, result),
        }
    }
}

/// Called with entries of a scan, in order; returns false to end it.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> bool;

/// Reads in a transaction.
#[expect(clippy::missing_errors_doc, reason = "each returns the failures of its store")]
pub trait Reader {
    /// Calls `with` with the value of a key, if there is one.
    fn get<R>(&self, table: Table, key: &[u8], with: impl FnOnce(&[u8]) -> R)
    -> Result<Option<R>, PeerError>;

    /// Visits the entries from `first` on, up to `end`, which is not among them.
    fn scan(&self, table: Table, first: &[u8], end: &[u8], visit: Visit<'_>) -> Result<(), PeerError>;
}

/// Reads and writes in a transaction.
#[expect(clippy::missing_errors_doc, reason = "each returns the failures of its store")]
pub trait Writer: Reader {
    /// Reads like [`get`](Reader::get) a key that the transaction is going to write.
    fn get_for_update<R>(
        &self,
        table: Table,
        key: &[u8],
        with: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, PeerError> {
        self.get(table, key, with)
    }

    /// Writes a value, over the one that is there.
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), PeerError>;

    /// Changes a value in a copy of its bytes, which then replaces it. Returns what `change` returns; `None` without a value.
    fn update<R>(
        &mut self,
        table: Table,
        key: &[u8],
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<Option<R>, PeerError> {
        let Some(mut bytes) = self.get_for_update(table, key, <[u8]>::to_vec)? else { return Ok(None) };
        let result = change(&mut bytes);
        self.put(table, key, &bytes)?;
        Ok(Some(result))
    }

    /// Writes a value unless there is one. Returns whether it did.
    fn insert(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<bool, PeerError> {
        if self.get_for_update(table, key, |_| ())?.is_some() {
            return Ok(false);
        }
        self.put(table, key, value).map(|()| true)
    }

    /// Removes an entry. Returns whether there was one.
    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool, PeerError>;
}

/// A store of bytes by key, with transactions.
#[expect(clippy::missing_errors_doc, reason = "each returns the failures of its store")]
pub trait Store: Sync {
    /// A transaction that reads.
    type Read<'s>: Reader
    where
        Self: 's;
    /// A transaction that reads and writes.
    type Write<'s>: Writer
    where
        Self: 's;

    /// Runs a transaction that reads.
    fn read<R>(&self, body: impl FnOnce(&Self::Read<'_>) -> Result<R, PeerError>) -> Result<R, PeerError>;

    /// Runs a transaction that writes. [`PeerError::Conflict`] says that it has changed nothing and may run again.
    fn write<R>(
        &self,
        body: impl FnOnce(&mut Self::Write<'_>) -> Result<Ending<R>, PeerError>,
    ) -> Result<R, PeerError>;

    /// Runs a transaction that reads one key, as the store does it best.
    fn read_one<R>(
        &self,
        table: Table,
        key: &[u8],
        with: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, PeerError> {
        self.read(|transaction| transaction.get(table, key, with))
    }

    /// Ends a load: what was written is durable when it returns, if the store was opened so.
    fn loaded(&self) -> Result<(), PeerError> {
        Ok(())
    }

    /// Waits for work that was left to threads of the store.
    fn settle(&self) -> Result<(), PeerError> {
        Ok(())
    }
}

/// A store of bytes as a peer.
#[derive(Debug)]
pub struct KvPeer<S>(pub S);

/// Rows that a transaction loads.
const LOAD_BATCH: usize = 20_000;

impl<S: Store> Peer for KvPeer<S> {
    fn load(&self, records: &mut dyn Iterator<Item = Record>) -> Result<(), PeerError> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut more = true;
        while more {
            self.0.write(|transaction| {
                for _ in 0..LOAD_BATCH {
                    let Some(record) = records.next() else {
                        more = false;
                        break;
                    };
                    let table = record.encode(&mut key, &mut value);
                    transaction.put(table, &key, &value)?;
                }
                Ok(Ending::Commit(()))
            })?;
        }
        self.0.loaded()
    }

    fn with_client(
        &self,
        body: &mut dyn FnMut(&mut dyn Client) -> Result<(), PeerError>,
    ) -> Result<(), PeerError> {
        body(&mut KvClient(&self.0))
    }

    fn dump(&self, sink: &mut dyn FnMut(Record) -> Result<(), PeerError>) -> Result<(), PeerError> {
        self.0.read(|transaction| {
            for table in Table::ALL {
                let mut result = Ok(());
                // No key is so long, or begins with so many ones.
                transaction.scan(table, &[], &[0xff; 32], &mut |key, value| {
                    result = Record::decode(table, key, value).and_then(&mut *sink);
                    result.is_ok()
                })?;
                result?;
            }
            Ok(())
        })
    }

    fn settle(&self) -> Result<(), PeerError> {
        self.0.settle()
    }
}

/// A client of a store of bytes.
struct KvClient<'s, S>(&'s S);

impl<S: Store> KvClient<'_, S> {
    /// Runs a transaction that writes, again and again until it collides with no other.
    fn write<R>(
        &self,
        body: impl Fn(&mut S::Write<'_>) -> Result<Ending<R>, PeerError>,
    ) -> Result<R, PeerError> {
        loop {
            match self.0.write(&body) {
                Err(PeerError::Conflict) => std::thread::yield_now(),
                ended => return ended,
            }
        }
    }
}

impl<S: Store> Client for KvClient<'_, S> {
    fn tatp(&mut self, request: &TatpRequest) -> Result<bool, PeerError> {
        match *request {
            TatpRequest::GetSubscriberData { s_id } => procedures::get_subscriber_data(self.0, s_id),
            TatpRequest::GetAccessData { s_id, ai_type } => {
                procedures::get_access_data(self.0, s_id, ai_type)
            }
            TatpRequest::GetNewDestination { s_id, sf_type, start_time, end_time } => self
                .0
                .read(|tx| procedures::get_new_destination(tx, s_id, sf_type, start_time, end_time))
                .map(|found| !black_box(found).is_empty()),
            TatpRequest::UpdateSubscriberData { s_id, bit, sf_type, data_a } => {
                self.write(|tx| procedures::update_subscriber_data(tx, s_id, bit, sf_type, data_a))
            }
            TatpRequest::UpdateLocation { ref number, location } => {
                self.write(|tx| procedures::update_location(tx, number, location))
            }
            TatpRequest::InsertCallForwarding { ref number, sf_type, start_time, ref row } => {
                self.write(|tx| procedures::insert_call_forwarding(tx, number, (sf_type, start_time), row))
            }
            TatpRequest::DeleteCallForwarding { ref number, sf_type, start_time } => {
                self.write(|tx| procedures::delete_call_forwarding(tx, number, (sf_type, start_time)))
            }
        }
    }

    fn tpcb(&mut self, request: &tpcb::parameters::Request, time_ns: u64) -> Result<i64, PeerError> {
        self.write(|tx| procedures::account_update(tx, request, time_ns))
    }

    fn ycsb(&mut self, op: ycsb::parameters::Op, keys: ycsb::schema::Keys) -> Result<(), PeerError> {
        use ycsb::mix::Kind;
        match op.kind {
            Kind::Read => procedures::read(self.0, op.key),
            Kind::Update | Kind::ReadModifyWrite => self.write(|tx| procedures::write_column(tx, op)),
            Kind::Insert => self.write(|tx| procedures::insert(tx, op.key)),
            Kind::Scan => {
                let found = self.0.read(|tx| procedures::scan(tx, op, keys))?;
                black_box(found);
                Ok(())
            }
        }
    }

    fn update(&mut self, row: u64) -> Result<(), PeerError> {
        self.write(|tx| procedures::update(tx, row))
    }
}
