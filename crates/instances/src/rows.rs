//! The rows of instances as files, so that one database can be made of all and audited.
//!
//! A file has, for each row, the number of its table (2 bytes), the length of its key (2), that of the row (4), little-endian, and
//! both.
//!
//! Owns: these files. Never: looks into a row.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use atrapos::{Abort, Database, KeyBuf, LoadError, LoadProgress, TableId};

/// Reasons for which rows could not be copied.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// The file could not be written or read.
    #[error("the rows of an instance could not be kept in {path}: {why}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        why: io::Error,
    },
    /// The file is damaged.
    #[error("{0} has no rows of an instance, or only a part of them")]
    Damaged(PathBuf),
    /// A database could not be read.
    #[error("the rows of an instance could not be read: {0}")]
    Aborted(#[from] Abort),
    /// The rows do not fit in one database.
    #[error("the rows of the instances do not fit in one database: {0}")]
    Load(#[from] LoadError),
}

/// Writes the rows that an instance owns to a new file. Returns their number.
///
/// # Errors
/// Fails if the file cannot be written, or a row cannot be read.
pub fn write_rows(db: &Database, path: &Path) -> Result<u64, RowsError> {
    write_visited(path, |visit| {
        for (table, _) in db.table_names().filter(|(table, _)| !db.columns(*table).is_empty()) {
            db.visit_encoded(table, |key, row| visit(table, key, row))?;
        }
        Ok(())
    })
}

/// A function that is called with the table, the key and the bytes of each row.
pub type VisitRow<'a> = dyn FnMut(TableId, &[u8], &[u8]) -> Result<(), Abort> + 'a;

/// Writes the rows that `visit_all` visits to a new file. Returns their number.
///
/// # Errors
/// Fails if the file cannot be written, or `visit_all` fails.
pub fn write_visited(
    path: &Path,
    visit_all: impl FnOnce(&mut VisitRow<'_>) -> Result<(), Abort>,
) -> Result<u64, RowsError> {
    let failed = |why: io::Error| RowsError::File { path: path.to_owned(), why };
    let mut file = BufWriter::new(File::create_new(path).map_err(failed)?);
    let (mut rows, mut error) = (0, None);
    let visited = visit_all(&mut |table, key, row| {
        rows += 1;
        let written = write_row(&mut file, table, key, row);
        written.map_err(|why| {
            error.get_or_insert(why);
            Abort::user("the file could not be written")
        })
    });
    visited.map_err(|abort| error.take().map_or(RowsError::Aborted(abort), failed))?;
    file.flush().map_err(failed)?;
    Ok(rows)
}

/// The table, the key and the bytes of a row.
pub type ReadRow = (TableId, KeyBuf, Box<[u8]>);

/// Reads what [`write_visited`] has written.
///
/// # Errors
/// Fails if the file cannot be read, or is damaged.
pub fn read_visited(path: &Path) -> Result<Vec<ReadRow>, RowsError> {
    let bytes = std::fs::read(path).map_err(|why| RowsError::File { path: path.to_owned(), why })?;
    let rows = rows_of(&bytes).map(|row| row.map(|(table, key, row)| (table, KeyBuf::from(key), row.into())));
    rows.collect::<Option<_>>().ok_or_else(|| RowsError::Damaged(path.to_owned()))
}

fn write_row(file: &mut impl Write, table: TableId, key: &[u8], row: &[u8]) -> io::Result<()> {
    file.write_all(&table.0.to_le_bytes())?;
    file.write_all(&(key.len() as u16).to_le_bytes())?;
    file.write_all(&(row.len() as u32).to_le_bytes())?;
    file.write_all(key)?;
    file.write_all(row)
}

/// Loads the rows of all files into an empty database with the same tables, which makes its index entries from them. Returns
/// their number.
///
/// # Errors
/// Fails if a file cannot be read, or a row is in two of them.
pub fn load_rows(db: &Database, paths: &[PathBuf]) -> Result<u64, RowsError> {
    let files = paths.iter().map(|path| {
        let bytes = std::fs::read(path).map_err(|why| RowsError::File { path: path.clone(), why })?;
        // Read once before, so that a damaged file is a sentence.
        if rows_of(&bytes).any(|row| row.is_none()) {
            return Err(RowsError::Damaged(path.clone()));
        }
        Ok(bytes)
    });
    let files = Arc::new(Mutex::new(files.collect::<Result<Vec<_>, _>>()?));
    let loaded = db.load(&LoadProgress::default(), move |loader| {
        // One worker adds them all: whoever takes them first.
        let files = std::mem::take(&mut *files.lock().unwrap_or_else(PoisonError::into_inner));
        let mut rows = files.iter().flat_map(|file| rows_of(file)).flatten();
        rows.try_for_each(|(table, key, row)| loader.add_encoded(table, &KeyBuf::from(key), row))
    })?;
    Ok(loaded)
}

/// Returns the rows of a file; the last one is `None` if the file is damaged.
fn rows_of(mut bytes: &[u8]) -> impl Iterator<Item = Option<(TableId, &[u8], &[u8])>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let row = take_row(&mut bytes);
        if row.is_none() {
            bytes = &[];
        }
        Some(row)
    })
}

fn take_row<'a>(bytes: &mut &'a [u8]) -> Option<(TableId, &'a [u8], &'a [u8])> {
    let table = u16::from_le_bytes(bytes.split_off(..2)?.try_into().ok()?);
    let key_len = u16::from_le_bytes(bytes.split_off(..2)?.try_into().ok()?);
    let row_len = u32::from_le_bytes(bytes.split_off(..4)?.try_into().ok()?);
    let key = bytes.split_off(..usize::from(key_len))?;
    Some((TableId(table), key, bytes.split_off(..row_len as usize)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_and_cut_off_files_are_noticed() {
        let mut file = Vec::new();
        write_row(&mut file, TableId(3), b"key", b"row").expect("memory takes it");
        write_row(&mut file, TableId(4), b"", b"").expect("memory takes it");
        let rows: Option<Vec<_>> = rows_of(&file).collect();
        assert_eq!(rows, Some(vec![(TableId(3), &b"key"[..], &b"row"[..]), (TableId(4), b"", b"")]));
        for len in (1..file.len()).filter(|len| *len != 14) {
            assert_eq!(rows_of(&file[..len]).last(), Some(None), "{len}");
        }
    }
}
