//! redb: a copy-on-write B-tree in one file, in Rust.
//!
//! Owns: how it is opened and used. One transaction writes at a time; readers have snapshots.

use std::path::Path;

use redb::{
    Database, ReadTransaction, ReadableDatabase as _, ReadableTable as _, TableDefinition, WriteTransaction,
};

use super::version_of;
use crate::kv::{Ending, KvPeer, Reader, Store, Visit, Writer};
use crate::peer::{Durability, Peer, PeerError, PeerKind};
use crate::record::Table;

type Bytes = &'static [u8];

fn definition(table: Table) -> TableDefinition<'static, Bytes, Bytes> {
    TableDefinition::new(table.name())
}

/// The store.
#[derive(Debug)]
struct Redb {
    db: Database,
    durability: redb::Durability,
}

/// Bytes of the cache: all data fits.
const CACHE_BYTES: usize = 2 << 30;

/// Returns what redb is.
#[must_use]
pub fn kind() -> PeerKind {
    PeerKind {
        name: "redb",
        version: format!("redb {}", version_of("redb")),
        isolation: "serializable: one writer at a time",
        none: "Durability::None",
        synchronous: Some("Durability::Immediate, one sync for each commit"),
        lacks: &[],
        open,
    }
}

fn open(directory: &Path, durability: Durability) -> Result<Box<dyn Peer>, PeerError> {
    let db = Database::builder().set_cache_size(CACHE_BYTES).create(directory.join("data.redb"));
    let db = db.map_err(PeerError::failed)?;
    let create = db.begin_write().map_err(PeerError::failed)?;
    for table in Table::ALL {
        create.open_table(definition(table)).map_err(PeerError::failed)?;
    }
    create.commit().map_err(PeerError::failed)?;
    let durability = match durability {
        Durability::None => redb::Durability::None,
        Durability::Synchronous => redb::Durability::Immediate,
    };
    Ok(Box::new(KvPeer(Redb { db, durability })))
}

/// A transaction that reads.
struct Read(ReadTransaction);

impl Reader for Read {
    fn get<R>(
        &self,
        table: Table,
        key: &[u8],
        with: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, PeerError> {
        let table = self.0.open_table(definition(table)).map_err(PeerError::failed)?;
        let found = table.get(key).map_err(PeerError::failed)?;
        Ok(found.map(|value| with(value.value())))
    }

    fn scan(&self, table: Table, first: &[u8], end: &[u8], visit: Visit<'_>) -> Result<(), PeerError> {
        let table = self.0.open_table(definition(table)).map_err(PeerError::failed)?;
        for entry in table.range(first..end).map_err(PeerError::failed)? {
            let (key, value) = entry.map_err(PeerError::failed)?;
            if !visit(key.value(), value.value()) {
                break;
            }
        }
        Ok(())
    }
}

/// A transaction that writes.
struct Write(WriteTransaction);

impl Reader for Write {
    fn get<R>(
        &self,
        table: Table,
        key: &[u8],
        with: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, PeerError> {
        let table = self.0.open_table(definition(table)).map_err(PeerError::failed)?;
        let found = table.get(key).map_err(PeerError::failed)?;
        Ok(found.map(|value| with(value.value())))
    }

    fn scan(&self, table: Table, first: &[u8], end: &[u8], visit: Visit<'_>) -> Result<(), PeerError> {
        let table = self.0.open_table(definition(table)).map_err(PeerError::failed)?;
        for entry in table.range(first..end).map_err(PeerError::failed)? {
            let (key, value) = entry.map_err(PeerError::failed)?;
            if !visit(key.value(), value.value()) {
                break;
            }
        }
        Ok(())
    }
}

impl Writer for Write {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), PeerError> {
        let mut table = self.0.open_table(definition(table)).map_err(PeerError::failed)?;
        table.insert(key, value).map(drop).map_err(PeerError::failed)
    }

    // To open a table is not free: these open it once.

    fn update<R>(
        &mut self,
        table: Table,
        key: &[u8],
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<Option<R>, PeerError> {
        let mut table = self.0.open_table(definition(table)).map_err(PeerError::failed)?;
        let found = table.get(key).map_err(PeerError::failed)?.map(|value| value.value().to_vec());
        let Some(mut bytes) = found else { return Ok(None) };
        let result = change(&mut bytes);
        table.insert(key, &*bytes).map_err(PeerError::failed)?;
        Ok(Some(result))
    }

    fn insert(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<bool, PeerError> {
        let mut table = self.0.open_table(definition(table)).map_err(PeerError::failed)?;
        if table.get(key).map_err(PeerError::failed)?.is_some() {
            return Ok(false);
        }
        table.insert(key, value).map(|_| true).map_err(PeerError::failed)
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool, PeerError> {
        let mut table = self.0.open_table(definition(table)).map_err(PeerError::failed)?;
        table.remove(key).map(|removed| removed.is_some()).map_err(PeerError::failed)
    }
}

impl Store for Redb {
    type Read<'s> = Read;
    type Write<'s> = Write;

    fn read<R>(&self, body: impl FnOnce(&Read) -> Result<R, PeerError>) -> Result<R, PeerError> {
        body(&Read(self.db.begin_read().map_err(PeerError::failed)?))
    }

    fn write<R>(
        &self,
        body: impl FnOnce(&mut Write) -> Result<Ending<R>, PeerError>,
    ) -> Result<R, PeerError> {
        let mut transaction = self.db.begin_write().map_err(PeerError::failed)?;
        transaction.set_durability(self.durability).map_err(PeerError::failed)?;
        let mut transaction = Write(transaction);
        let (keep, result) = body(&mut transaction)?.parts();
        if keep {
            transaction.0.commit().map_err(PeerError::failed)?;
        } else {
            transaction.0.abort().map_err(PeerError::failed)?;
        }
        Ok(result)
    }
}
