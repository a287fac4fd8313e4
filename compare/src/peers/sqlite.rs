//! SQLite, compiled in, with a write-ahead log.
//!
//! Owns: how it is opened. The tables and their rows are in `tables`, the transactions in `client`.
//!
//! Every client has a connection and prepares its statements once. Tables have typed columns and, where their key has several
//! parts, no row number (`WITHOUT ROWID`). Transactions that write take turns by a lock in the process: left to its own
//! means, a connection that finds another one writing sleeps for a millisecond or more.

mod client;
mod tables;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, OpenFlags};

use self::client::SqliteClient;
use super::version_of;
use crate::peer::{Client, Durability, Peer, PeerError, PeerKind};
use crate::record::Record;

/// The store.
#[derive(Debug)]
struct Sqlite {
    path: PathBuf,
    durability: Durability,
    /// Held by a transaction that writes.
    turn: Mutex<()>,
}

/// Returns what SQLite is.
#[must_use]
pub fn kind() -> PeerKind {
    PeerKind {
        name: "sqlite",
        version: format!("SQLite {} (rusqlite {})", rusqlite::version(), version_of("rusqlite")),
        isolation: "serializable: one writer at a time",
        none: "WAL, synchronous=OFF",
        synchronous: Some("WAL, synchronous=FULL: one sync for each commit"),
        lacks: &[],
        open,
    }
}

fn open(directory: &Path, durability: Durability) -> Result<Box<dyn Peer>, PeerError> {
    let sqlite = Sqlite { path: directory.join("data.sqlite"), durability, turn: Mutex::new(()) };
    sqlite.connect()?.execute_batch(tables::CREATE).map_err(PeerError::failed)?;
    Ok(Box::new(sqlite))
}

/// What every connection is told: all data fits its cache and its map, and the log is carried over to the file every 64 MiB.
const SETTINGS: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA wal_autocheckpoint = 16384;
    PRAGMA cache_size = -1048576;
    PRAGMA mmap_size = 4294967296;
    PRAGMA temp_store = MEMORY;
";

impl Sqlite {
    fn connect(&self) -> Result<Connection, PeerError> {
        // A connection is used by one thread.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags).map_err(PeerError::failed)?;
        connection.busy_timeout(std::time::Duration::from_secs(60)).map_err(PeerError::failed)?;
        connection.execute_batch(SETTINGS).map_err(PeerError::failed)?;
        let synchronous = match self.durability {
            Durability::None => "PRAGMA synchronous = OFF",
            Durability::Synchronous => "PRAGMA synchronous = FULL",
        };
        connection.execute_batch(synchronous).map_err(PeerError::failed)?;
        Ok(connection)
    }
}

impl Peer for Sqlite {
    fn load(&self, records: &mut dyn Iterator<Item = Record>) -> Result<(), PeerError> {
        let connection = self.connect()?;
        let load = || -> Result<(), rusqlite::Error> {
            connection.execute_batch("BEGIN IMMEDIATE")?;
            let mut inserts = tables::Inserts::prepare(&connection)?;
            for record in records {
                inserts.add(&record)?;
            }
            connection.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")
        };
        load().map_err(PeerError::failed)
    }

    fn with_client(
        &self,
        body: &mut dyn FnMut(&mut dyn Client) -> Result<(), PeerError>,
    ) -> Result<(), PeerError> {
        let connection = self.connect()?;
        let mut client = SqliteClient::new(&connection, &self.turn).map_err(PeerError::failed)?;
        body(&mut client)
    }

    fn dump(&self, sink: &mut dyn FnMut(Record) -> Result<(), PeerError>) -> Result<(), PeerError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = self.connect()?;
        let sound: String = connection
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .map_err(PeerError::failed)?;
        if sound != "ok" {
            return Err(PeerError::failed(format!("SQLite finds its file damaged: {sound}")));
        }
        tables::dump(&connection, sink)
    }
}
