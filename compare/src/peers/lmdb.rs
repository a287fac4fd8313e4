//! LMDB, by the crate heed: a copy-on-write B-tree in a file that is mapped into memory, in C.
//!
//! Owns: how it is opened and used, which is `unsafe` because nobody else may change the file. One transaction writes at a time;
//! readers have snapshots and never wait.

#![expect(unsafe_code, reason = "LMDB maps a file, and trusts that nobody changes it")]

use std::ops::Bound;
use std::path::Path;

use heed::types::Bytes;
use heed::{
    CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, MdbError, PutFlags, RoTxn, RwTxn, WithTls,
};

use super::version_of;
use crate::kv::{Ending, KvPeer, Reader, Store, Visit, Writer};
use crate::peer::{Durability, Peer, PeerError, PeerKind};
use crate::record::Table;

type Bytewise = Database<'static, Bytes, Bytes>;
type Tables = [Bytewise; Table::ALL.len()];

/// The store.
struct Lmdb {
    env: Env,
    tables: Tables,
}

/// Bytes of the map: far more than all data takes; the file is sparse.
const MAP_BYTES: usize = 16 << 30;
/// Threads that read at one moment.
const READERS_MAX: u32 = 1024;

/// Returns what LMDB is.
#[must_use]
pub fn kind() -> PeerKind {
    let (of_heed, of_c) = (version_of("heed"), heed::lmdb_version());
    PeerKind {
        name: "lmdb",
        version: format!("LMDB {}.{}.{} (heed {of_heed})", of_c.major, of_c.minor, of_c.patch),
        isolation: "serializable: one writer at a time",
        none: "MDB_NOSYNC, MDB_WRITEMAP",
        synchronous: Some("the default: one sync for each commit"),
        lacks: &[],
        open,
    }
}

fn open(directory: &Path, durability: Durability) -> Result<Box<dyn Peer>, PeerError> {
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES).max_readers(READERS_MAX).max_dbs(Table::ALL.len() as u32);
    if durability == Durability::None {
        // SAFETY: these flags give up durability; the file of a crashed machine is not opened again.
        unsafe { options.flags(EnvFlags::NO_SYNC | EnvFlags::WRITE_MAP) };
    }
    // SAFETY: the directory was made for this run, so that nothing else maps or changes the file.
    let env = unsafe { options.open(directory) }.map_err(PeerError::failed)?;
    let transaction = env.write_txn().map_err(PeerError::failed)?;
    let created = env.create_databases_and_commit(transaction, |opener, transaction| {
        let mut create =
            |table: Table| opener.create_database::<Bytes, Bytes>(transaction, Some(table.name()));
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(Table::ALL.map(&mut create)))
    });
    // Each result keeps its own error.
    let created = created.map_err(PeerError::failed)?.unwrap_commit();
    let created: Result<Vec<Bytewise>, heed::Error> = created.into_iter().collect();
    let tables = Tables::try_from(created.map_err(PeerError::failed)?);
    let tables = tables.map_err(|_| PeerError::failed("LMDB has not created all tables"))?;
    Ok(Box::new(KvPeer(Lmdb { env, tables })))
}

fn get<R>(
    transaction: &RoTxn<'_>,
    table: Bytewise,
    key: &[u8],
    with: impl FnOnce(&[u8]) -> R,
) -> Result<Option<R>, PeerError> {
    Ok(table.get(transaction, key).map_err(PeerError::failed)?.map(with))
}

fn scan(
    transaction: &RoTxn<'_>,
    table: Bytewise,
    (first, end): (&[u8], &[u8]),
    visit: Visit<'_>,
) -> Result<(), PeerError> {
    // An empty key is none.
    let from = if first.is_empty() { Bound::Unbounded } else { Bound::Included(first) };
    let range: (Bound<&[u8]>, Bound<&[u8]>) = (from, Bound::Excluded(end));
    for entry in table.range(transaction, &range).map_err(PeerError::failed)? {
        let (key, value) = entry.map_err(PeerError::failed)?;
        if !visit(key, value) {
            break;
        }
    }
    Ok(())
}

/// A transaction that reads.
struct Read<'s>(RoTxn<'s, WithTls>, &'s Tables);

impl Reader for Read<'_> {
    fn get<R>(
        &self,
        table: Table,
        key: &[u8],
        with: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, PeerError> {
        get(&self.0, self.1[table as usize], key, with)
    }

    fn scan(&self, table: Table, first: &[u8], end: &[u8], visit: Visit<'_>) -> Result<(), PeerError> {
        scan(&self.0, self.1[table as usize], (first, end), visit)
    }
}

/// A transaction that writes.
struct Write<'s>(RwTxn<'s>, &'s Tables);

impl Reader for Write<'_> {
    fn get<R>(
        &self,
        table: Table,
        key: &[u8],
        with: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, PeerError> {
        get(&self.0, self.1[table as usize], key, with)
    }

    fn scan(&self, table: Table, first: &[u8], end: &[u8], visit: Visit<'_>) -> Result<(), PeerError> {
        scan(&self.0, self.1[table as usize], (first, end), visit)
    }
}

impl Writer for Write<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), PeerError> {
        self.1[table as usize].put(&mut self.0, key, value).map_err(PeerError::failed)
    }

    fn insert(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<bool, PeerError> {
        let table = self.1[table as usize];
        match table.put_with_flags(&mut self.0, PutFlags::NO_OVERWRITE, key, value) {
            Ok(()) => Ok(true),
            Err(heed::Error::Mdb(MdbError::KeyExist)) => Ok(false),
            Err(error) => Err(PeerError::failed(error)),
        }
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool, PeerError> {
        self.1[table as usize].delete(&mut self.0, key).map_err(PeerError::failed)
    }
}

impl Store for Lmdb {
    type Read<'s> = Read<'s>;
    type Write<'s> = Write<'s>;

    fn read<R>(&self, body: impl FnOnce(&Read<'_>) -> Result<R, PeerError>) -> Result<R, PeerError> {
        body(&Read(self.env.read_txn().map_err(PeerError::failed)?, &self.tables))
    }

    fn write<R>(
        &self,
        body: impl FnOnce(&mut Write<'_>) -> Result<Ending<R>, PeerError>,
    ) -> Result<R, PeerError> {
        let mut transaction = Write(self.env.write_txn().map_err(PeerError::failed)?, &self.tables);
        let (keep, result) = body(&mut transaction)?.parts();
        if keep {
            transaction.0.commit().map_err(PeerError::failed)?;
        } else {
            transaction.0.abort();
        }
        Ok(result)
    }
}
