//! The directory of a durable engine: its creation, and its opening.
//!
//! Owns: the names of the files, the order in which they come into being, the records of the population, and the replay.
//! Never: writes the log; the log's daemon does.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use atrapos_catalog::Definitions;
use atrapos_durability::directory::{DirectoryError, LOCK};
use atrapos_durability::file::{DirectoryLock, FileSystem};
use atrapos_durability::wal::{Change, Changes, Op};
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::schema::TableId;
use atrapos_storage::KeyBuf;

use super::DurableOptions;
use super::distributed::Resumed;
use crate::log::Lsn;
use crate::log::file::{Identity, LogFile, LogFileReader, damaged, io_error};
use crate::redo::{RecordKind, RedoRecord};
use crate::rows::{Intent, RowTransaction};
use crate::session::Engine;

const POPULATION: &str = "population";
const POPULATION_NEW: &str = "population.new";
const LOG: &str = "log";

/// Bytes of rows from which on they go on in another record of the population.
const ROWS_BYTES: usize = 1 << 20;

/// Reasons for which the directory of a durable engine could not be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory or a file of it could not be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The path has no database.
    #[error(
        "{} holds no database of an engine with shared data (it has no file `{POPULATION}`); give the path of one, or create it there",
        path.display()
    )]
    Missing {
        /// The directory.
        path: PathBuf,
    },
    /// The database has other tables.
    #[error("the database in {} has other tables: {difference}; open it with those that it was created with", path.display())]
    OtherTables {
        /// The directory.
        path: PathBuf,
        /// The first difference.
        difference: String,
    },
    /// The directory is of an instance, and was to be opened as a database of its own, or the other way round, or of another instance.
    #[error("the database in {} {is}; open it {cure}", path.display())]
    OtherPlace {
        /// The directory.
        path: PathBuf,
        /// The kind of directory that it is.
        is: &'static str,
        /// The way to open it.
        cure: &'static str,
    },
    /// A transaction in doubt could not lock its rows again.
    #[error("a transaction that was prepared in {} cannot lock its rows again: {abort}; the log is damaged", path.display())]
    InDoubt {
        /// The directory.
        path: PathBuf,
        /// The reason.
        abort: Abort,
    },
    /// The other instances cannot be reached.
    #[error(transparent)]
    Channel(#[from] atrapos_channel::ChannelError),
    /// Rows could not be read from the engine, or given to it.
    #[error("the rows could not be copied: {0}")]
    Aborted(#[from] Abort),
    /// The thread of the log could not be started.
    #[error("the thread of the log could not be started: {0}; end other processes and try again")]
    Thread(io::Error),
}

/// A directory that was opened.
pub(super) struct Opened {
    pub(super) file: LogFile,
    /// The position at which the log goes on.
    pub(super) first: Lsn,
    pub(super) lock: Box<dyn DirectoryLock>,
    /// Transactions over several instances that have not ended.
    pub(super) resumed: Resumed,
}

/// A random number for a database. The hasher of the standard library is keyed by the operating system's randomness.
fn random_identity() -> Identity {
    let half = |salt: u64| {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u64(salt);
        Identity::from(hasher.finish())
    };
    half(1) << 64 | half(2)
}

fn lock(files: &dyn FileSystem, path: &Path) -> Result<Box<dyn DirectoryLock>, DirectoryError> {
    let file = path.join(LOCK);
    files.lock(&file).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => DirectoryError::InUse { path: path.to_owned(), pid: None },
        _ => io_error(&file, "lock")(error),
    })
}

/// The names in a directory; none if there is no such directory.
fn names(files: &dyn FileSystem, path: &Path) -> Result<Vec<String>, DirectoryError> {
    match files.list(path) {
        Ok(names) => Ok(names),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(io_error(path, "list")(error)),
    }
}

/// Refuses a directory with anything in it that a creation which was cut off does not leave. Returns what such a one has left.
fn check_empty(files: &dyn FileSystem, path: &Path) -> Result<Vec<String>, DirectoryError> {
    let mut found = names(files, path)?;
    found.retain(|name| name != LOCK);
    if found.iter().any(|name| name == POPULATION) {
        return Err(DirectoryError::Exists { path: path.to_owned() });
    }
    match found.iter().find(|name| ![POPULATION_NEW, LOG].contains(&name.as_str())) {
        Some(other) => Err(DirectoryError::NotEmpty { path: path.to_owned(), found: other.clone() }),
        None => Ok(found),
    }
}

/// Makes the directory and locks it, and removes what a creation that was cut off has left.
fn prepare(files: &dyn FileSystem, path: &Path) -> Result<Box<dyn DirectoryLock>, DirectoryError> {
    // Looked at before the lock is taken, which would leave a file in a directory of somebody else.
    check_empty(files, path)?;
    files.create_dir(path).map_err(io_error(path, "create the directory"))?;
    let parent = path.parent().unwrap_or(Path::new(""));
    files.sync_dir(parent).map_err(io_error(parent, "sync the directory"))?;
    let lock = lock(files, path)?;
    for name in check_empty(files, path)? {
        let left = path.join(name);
        files.remove(&left).map_err(io_error(&left, "remove"))?;
    }
    Ok(lock)
}

/// Makes the directory of an engine: the log first, and the population under its name at last.
pub(super) fn create(
    engine: &dyn Engine,
    trees: usize,
    definitions: &Definitions,
    DurableOptions { files, path, .. }: &DurableOptions,
) -> Result<(LogFile, Box<dyn DirectoryLock>), StoreError> {
    let files = &**files;
    let lock = prepare(files, path)?;
    let identity = random_identity();
    let mut log = LogFile::create(files, &path.join(LOG), identity)?;
    log.sync()?;
    let new = path.join(POPULATION_NEW);
    write_population(LogFile::create(files, &new, identity)?, engine, trees, definitions)?;
    // The names of both files, before that of the population says that there is a database.
    files.sync_dir(path).map_err(io_error(path, "sync the directory"))?;
    files.rename(&new, &path.join(POPULATION)).map_err(io_error(&new, "rename"))?;
    files.sync_dir(path).map_err(io_error(path, "sync the directory"))?;
    Ok((log, lock))
}

/// Writes the definitions, all rows, and the number of rows.
fn write_population(
    mut file: LogFile,
    engine: &dyn Engine,
    trees: usize,
    definitions: &Definitions,
) -> Result<(), StoreError> {
    let mut record = RedoRecord::default();
    record.begin(RecordKind::Definitions);
    let invalid = |error: atrapos_catalog::DefinitionError| DirectoryError::Invalid {
        path: PathBuf::from(POPULATION),
        what: error.to_string(),
    };
    record.push(&definitions.encode().map_err(invalid)?);
    file.append(record.bytes())?;
    let mut rows: u64 = 0;
    for table in (0..trees).map(|at| TableId(at as u16)) {
        record.begin(RecordKind::Rows);
        // The visitor returns aborts; an error of the file ends the walk by itself.
        let mut failed = None;
        engine.walk(table, &mut |key, row| {
            record.put(table, key, row);
            rows += 1;
            if record.bytes().len() >= ROWS_BYTES {
                failed = file.append(record.bytes()).err();
                record.begin(RecordKind::Rows);
            }
            Ok(if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        failed.map_or(Ok(()), Err)?;
        file.append(record.bytes())?;
    }
    record.begin(RecordKind::End);
    record.push(&rows.to_le_bytes());
    file.append(record.bytes())?;
    Ok(file.sync()?)
}

/// Opens a directory: gives an empty engine everything that is in it.
pub(super) fn open(
    engine: &dyn Engine,
    definitions: &Definitions,
    DurableOptions { files, path, .. }: &DurableOptions,
) -> Result<Opened, StoreError> {
    let files = &**files;
    if !names(files, path)?.iter().any(|name| name == POPULATION) {
        return Err(StoreError::Missing { path: path.clone() });
    }
    let lock = lock(files, path)?;
    let identity = load_population(files, path, engine, definitions)?;
    let log = path.join(LOG);
    let mut reader = LogFileReader::open(files, &log, Some(identity))?;
    let (mut client, mut resumed) = (engine.client(), Resumed::default());
    while let Some(records) = reader.next_frame()? {
        for record in records {
            let malformed = |what| damaged(&log, reader.offset_of(record.lsn), what);
            let changes = resumed.take(&record.bytes).map_err(malformed)?;
            let changes = Changes::new(&changes).collect::<Result<Vec<_>, _>>();
            let changes = changes.map_err(|error| malformed(error.to_string()))?;
            if !changes.is_empty() {
                client.attempt(&mut |tx| changes.iter().try_for_each(|change| replay(tx, change)))?;
            }
        }
    }
    drop(client);
    let end = reader.end();
    Ok(Opened { file: LogFile::resume(files, &log, identity, end)?, first: end.position, lock, resumed })
}

/// The contents of a record of a kind.
fn body(record: &[u8], wanted: RecordKind) -> Result<&[u8], String> {
    match RecordKind::split(record) {
        Ok((kind, body)) if kind == wanted => Ok(body),
        Ok((kind, _)) => Err(format!("a record is of kind {kind:?}, where one of kind {wanted:?} should be")),
        Err(Some(kind)) => Err(format!("a record is of kind {kind}, which this program does not know")),
        Err(None) => Err("a record has no kind".to_owned()),
    }
}

/// Makes a change again.
pub(crate) fn replay(tx: &mut dyn RowTransaction, change: &Change<'_>) -> Result<(), Abort> {
    let table = TableId(change.table);
    match change.op {
        Op::Put(row) if tx.read(table, change.key, Intent::Write)?.is_some() => {
            tx.replace(table, change.key, row)
        }
        Op::Put(row) => tx.insert(table, change.key, row).map(drop),
        Op::Remove => tx.remove(table, change.key).map(drop),
        Op::Patch(_) => {
            Err(Abort::because(AbortReason::Corruption, "the log has a part of a row where a row should be"))
        }
    }
}

/// Gives an engine its population. Returns the identity of the database.
fn load_population(
    files: &dyn FileSystem,
    path: &Path,
    engine: &dyn Engine,
    definitions: &Definitions,
) -> Result<Identity, StoreError> {
    let file = path.join(POPULATION);
    let mut reader = LogFileReader::open(files, &file, None)?;
    let (mut rows, mut end, mut is_first) = (0_u64, None, true);
    while let Some(records) = reader.next_frame()? {
        for record in records {
            let malformed = |what: String| damaged(&file, reader.offset_of(record.lsn), what);
            if std::mem::take(&mut is_first) {
                let stored = body(&record.bytes, RecordKind::Definitions).map_err(malformed)?;
                let stored = Definitions::decode(stored).map_err(|error| malformed(error.to_string()))?;
                if let Some(difference) = stored.difference(definitions) {
                    return Err(StoreError::OtherTables { path: path.to_owned(), difference });
                }
            } else if let Ok((RecordKind::End, count)) = RecordKind::split(&record.bytes) {
                end = Some(count.to_vec());
            } else {
                rows +=
                    load_rows(body(&record.bytes, RecordKind::Rows).map_err(malformed)?, engine, malformed)?;
            }
        }
    }
    if end != Some(rows.to_le_bytes().to_vec()) || !reader.is_at_end() {
        return Err(damaged(&file, reader.end().offset, "it ends before all rows have come").into());
    }
    Ok(reader.identity())
}

/// Gives an engine the rows of one record, and returns their number.
fn load_rows(
    changes: &[u8],
    engine: &dyn Engine,
    malformed: impl Fn(String) -> DirectoryError,
) -> Result<u64, StoreError> {
    let (mut table, mut rows) = (None, Vec::new());
    for change in Changes::new(changes) {
        let Change { table: of, key, op, .. } = change.map_err(|error| malformed(error.to_string()))?;
        match op {
            Op::Put(row) if *table.get_or_insert(of) == of => rows.push((KeyBuf::from(key), Box::from(row))),
            _ => return Err(malformed("rows of one table should be here".to_owned()).into()),
        }
    }
    if let Some(table) = table {
        engine.load(TableId(table), &rows)?;
    }
    Ok(rows.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_other_kinds_are_refused_with_a_sentence() {
        let mut record = RedoRecord::default();
        record.begin(RecordKind::Rows);
        record.push(b"rows");
        assert_eq!(body(record.bytes(), RecordKind::Rows), Ok(&b"rows"[..]));
        let other = body(record.bytes(), RecordKind::Commit).expect_err("it is of another kind");
        assert!(other.contains("Rows") && other.contains("Commit"), "{other}");
        assert!(body(&[99, 1], RecordKind::Rows).expect_err("there is no such kind").contains("kind 99"));
        assert!(body(&[], RecordKind::Rows).is_err());
    }
}
