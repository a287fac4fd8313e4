//! RocksDB: a log-structured merge tree, in C++; with the feature `rocksdb` only.
//!
//! Owns: how it is opened and used. Transactions lock the rows that they are going to write (`TransactionDB`, reads by
//! `get_for_update`), and read others as they were when the transaction began; ranges are not locked. The transactions that are run
//! here are serializable nevertheless: what they scan and then rely on never changes.

use std::path::Path;

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, DBPinnableSlice, Direction, ErrorKind, IteratorMode, Options,
    ReadOptions, SnapshotWithThreadMode, Transaction, TransactionDB, TransactionDBOptions,
    TransactionOptions, WriteOptions,
};

use super::version_of;
use crate::kv::{Ending, KvPeer, Reader, Store, Visit, Writer};
use crate::peer::{Durability, Peer, PeerError, PeerKind};
use crate::record::Table;

/// The store.
struct Rocks {
    db: TransactionDB,
    durability: Durability,
}

/// Bytes of the cache: all data fits.
const CACHE_BYTES: usize = 2 << 30;
/// Milliseconds after which a transaction that waits for a lock runs again.
const LOCK_TIMEOUT_MS: i64 = 1000;

/// Returns what RocksDB is.
#[must_use]
pub fn kind() -> PeerKind {
    let of_c = version_of("librocksdb-sys").split_once('+').map_or("", |(_, version)| version);
    PeerKind {
        name: "rocksdb",
        version: format!("RocksDB {of_c} (rocksdb {})", version_of("rocksdb")),
        isolation: "rows that are written are locked, other reads are of a snapshot; ranges are not locked",
        none: "without a WAL",
        synchronous: Some("WriteOptions::sync: group commit"),
        lacks: &[],
        open,
    }
}

fn open(directory: &Path, durability: Durability) -> Result<Box<dyn Peer>, PeerError> {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(CACHE_BYTES));
    blocks.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_block_based_table_factory(&blocks);
    let mut locks = TransactionDBOptions::default();
    locks.set_default_lock_timeout(LOCK_TIMEOUT_MS);
    locks.set_txn_lock_timeout(LOCK_TIMEOUT_MS);
    let families = Table::NAMES.map(|name| rocksdb::ColumnFamilyDescriptor::new(name, options.clone()));
    let db = TransactionDB::open_cf_descriptors(&options, &locks, directory.join("rocksdb"), families);
    Ok(Box::new(KvPeer(Rocks { db: db.map_err(PeerError::failed)?, durability })))
}

/// Returns the error of a transaction: those of locks are collisions.
fn failed(error: rocksdb::Error) -> PeerError {
    match error.kind() {
        ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::TryAgain => PeerError::Conflict,
        _ => PeerError::failed(error),
    }
}

fn family(db: &TransactionDB, table: Table) -> Result<&ColumnFamily, PeerError> {
    db.cf_handle(table.name()).ok_or_else(|| PeerError::failed("a table is missing"))
}

/// A transaction that reads.
struct Read<'s>(&'s TransactionDB, SnapshotWithThreadMode<'s, TransactionDB>);

fn up_to(end: &[u8]) -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_iterate_upper_bound(end);
    options
}

impl Reader for Read<'_> {
    fn get<R>(
        &self,
        table: Table,
        key: &[u8],
        with: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, PeerError> {
        let found: Option<DBPinnableSlice<'_>> =
            self.1.get_pinned_cf(family(self.0, table)?, key).map_err(failed)?;
        Ok(found.map(|value| with(&value)))
    }

    fn scan(&self, table: Table, first: &[u8], end: &[u8], visit: Visit<'_>) -> Result<(), PeerError> {
        let mode = IteratorMode::From(first, Direction::Forward);
        for entry in self.1.iterator_cf_opt(family(self.0, table)?, up_to(end), mode) {
            let (key, value) = entry.map_err(failed)?;
            if !visit(&key, &value) {
                break;
            }
        }
        Ok(())
    }
}

/// A transaction that writes.
struct Write<'s>(&'s TransactionDB, Transaction<'s, TransactionDB>);

impl Reader for Write<'_> {
    fn get<R>(
        &self,
        table: Table,
        key: &[u8],
        with: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, PeerError> {
        let found = self.1.get_pinned_cf(family(self.0, table)?, key).map_err(failed)?;
        Ok(found.map(|value| with(&value)))
    }

    fn scan(&self, table: Table, first: &[u8], end: &[u8], visit: Visit<'_>) -> Result<(), PeerError> {
        let mode = IteratorMode::From(first, Direction::Forward);
        for entry in self.1.iterator_cf_opt(family(self.0, table)?, up_to(end), mode) {
            let (key, value) = entry.map_err(failed)?;
            if !visit(&key, &value) {
                break;
            }
        }
        Ok(())
    }
}

impl Writer for Write<'_> {
    fn get_for_update<R>(
        &self,
        table: Table,
        key: &[u8],
        with: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, PeerError> {
        let found = self.1.get_pinned_for_update_cf(family(self.0, table)?, key, true).map_err(failed)?;
        Ok(found.map(|value| with(&value)))
    }

    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), PeerError> {
        self.1.put_cf(family(self.0, table)?, key, value).map_err(failed)
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool, PeerError> {
        let is_there = self.get_for_update(table, key, |_| ())?.is_some();
        if is_there {
            self.1.delete_cf(family(self.0, table)?, key).map_err(failed)?;
        }
        Ok(is_there)
    }
}

impl Store for Rocks {
    type Read<'s> = Read<'s>;
    type Write<'s> = Write<'s>;

    fn read<R>(&self, body: impl FnOnce(&Read<'_>) -> Result<R, PeerError>) -> Result<R, PeerError> {
        body(&Read(&self.db, self.db.snapshot()))
    }

    fn write<R>(
        &self,
        body: impl FnOnce(&mut Write<'_>) -> Result<Ending<R>, PeerError>,
    ) -> Result<R, PeerError> {
        let mut options = WriteOptions::default();
        match self.durability {
            Durability::None => options.disable_wal(true),
            Durability::Synchronous => options.set_sync(true),
        }
        let transaction = self.db.transaction_opt(&options, &TransactionOptions::default());
        let mut transaction = Write(&self.db, transaction);
        let (keep, result) = body(&mut transaction)?.parts();
        if keep { transaction.1.commit() } else { transaction.1.rollback() }.map_err(failed)?;
        Ok(result)
    }

    fn read_one<R>(
        &self,
        table: Table,
        key: &[u8],
        with: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, PeerError> {
        let found = self.db.get_pinned_cf(family(&self.db, table)?, key).map_err(failed)?;
        Ok(found.map(|value| with(&value)))
    }
}
