//! fjall: a log-structured merge tree, in Rust.
//!
//! Owns: how it is opened and used. One transaction writes at a time: in a short trial of each, the store's optimistic transactions were
//! slower in every workload, if only by a tenth where most transactions read. Readers have snapshots.

use std::path::Path;

use fjall::{
    KeyspaceCreateOptions, PersistMode, Readable, SingleWriterTxDatabase, SingleWriterTxKeyspace,
    SingleWriterWriteTx, Snapshot,
};

use super::version_of;
use crate::kv::{Ending, KvPeer, Reader, Store, Visit, Writer};
use crate::peer::{Durability, Peer, PeerError, PeerKind};
use crate::record::Table;

/// The store.
struct Fjall {
    db: SingleWriterTxDatabase,
    tables: Vec<SingleWriterTxKeyspace>,
    persist: Option<PersistMode>,
}

/// Bytes of the cache: all data fits.
const CACHE_BYTES: u64 = 2 << 30;

/// Returns what fjall is.
#[must_use]
pub fn kind() -> PeerKind {
    PeerKind {
        name: "fjall",
        version: format!("fjall {}", version_of("fjall")),
        isolation: "serializable: one writer at a time",
        none: "a journal that is not flushed at commits",
        synchronous: Some("PersistMode::SyncData, one sync for each commit"),
        lacks: &[],
        open,
    }
}

fn open(directory: &Path, durability: Durability) -> Result<Box<dyn Peer>, PeerError> {
    let builder = SingleWriterTxDatabase::builder(directory.join("fjall")).cache_size(CACHE_BYTES);
    let db = builder.manual_journal_persist(true).open().map_err(PeerError::failed)?;
    let tables = Table::ALL.iter().map(|table| db.keyspace(table.name(), KeyspaceCreateOptions::default));
    let tables = tables.collect::<Result<_, _>>().map_err(PeerError::failed)?;
    let persist = (durability == Durability::Synchronous).then_some(PersistMode::SyncData);
    Ok(Box::new(KvPeer(Fjall { db, tables, persist })))
}

fn get<R>(
    reader: &impl Readable,
    table: &SingleWriterTxKeyspace,
    key: &[u8],
    with: impl FnOnce(&[u8]) -> R,
) -> Result<Option<R>, PeerError> {
    Ok(reader.get(table, key).map_err(PeerError::failed)?.map(|value| with(&value)))
}

fn scan(
    reader: &impl Readable,
    table: &SingleWriterTxKeyspace,
    (first, end): (&[u8], &[u8]),
    visit: Visit<'_>,
) -> Result<(), PeerError> {
    for entry in reader.range(table, first..end) {
        let (key, value) = entry.into_inner().map_err(PeerError::failed)?;
        if !visit(&key, &value) {
            break;
        }
    }
    Ok(())
}

/// A transaction that reads.
struct Read<'s>(Snapshot, &'s [SingleWriterTxKeyspace]);

impl Reader for Read<'_> {
    fn get<R>(
        &self,
        table: Table,
        key: &[u8],
        with: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, PeerError> {
        get(&self.0, &self.1[table as usize], key, with)
    }

    fn scan(&self, table: Table, first: &[u8], end: &[u8], visit: Visit<'_>) -> Result<(), PeerError> {
        scan(&self.0, &self.1[table as usize], (first, end), visit)
    }
}

/// A transaction that writes.
struct Write<'s>(SingleWriterWriteTx<'s>, &'s [SingleWriterTxKeyspace]);

impl Reader for Write<'_> {
    fn get<R>(
        &self,
        table: Table,
        key: &[u8],
        with: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, PeerError> {
        get(&self.0, &self.1[table as usize], key, with)
    }

    fn scan(&self, table: Table, first: &[u8], end: &[u8], visit: Visit<'_>) -> Result<(), PeerError> {
        scan(&self.0, &self.1[table as usize], (first, end), visit)
    }
}

impl Writer for Write<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), PeerError> {
        self.0.insert(&self.1[table as usize], key, value);
        Ok(())
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool, PeerError> {
        let table = &self.1[table as usize];
        let is_there = self.0.contains_key(table, key).map_err(PeerError::failed)?;
        if is_there {
            self.0.remove(table, key);
        }
        Ok(is_there)
    }
}

impl Store for Fjall {
    type Read<'s> = Read<'s>;
    type Write<'s> = Write<'s>;

    fn read<R>(&self, body: impl FnOnce(&Read<'_>) -> Result<R, PeerError>) -> Result<R, PeerError> {
        body(&Read(self.db.read_tx(), &self.tables))
    }

    fn write<R>(
        &self,
        body: impl FnOnce(&mut Write<'_>) -> Result<Ending<R>, PeerError>,
    ) -> Result<R, PeerError> {
        let transaction = self.db.write_tx().durability(self.persist);
        let mut transaction = Write(transaction, &self.tables);
        let (keep, result) = body(&mut transaction)?.parts();
        if !keep {
            transaction.0.rollback();
            return Ok(result);
        }
        transaction.0.commit().map_err(PeerError::failed)?;
        Ok(result)
    }

    fn read_one<R>(
        &self,
        table: Table,
        key: &[u8],
        with: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, PeerError> {
        let found = self.tables[table as usize].get(key).map_err(PeerError::failed)?;
        Ok(found.map(|value| with(&value)))
    }

    fn loaded(&self) -> Result<(), PeerError> {
        self.persist.map_or(Ok(()), |mode| self.db.persist(mode).map_err(PeerError::failed))
    }

    fn settle(&self) -> Result<(), PeerError> {
        while self.db.inner().outstanding_flushes() > 0 || self.db.inner().active_compactions() > 0 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Ok(())
    }
}
