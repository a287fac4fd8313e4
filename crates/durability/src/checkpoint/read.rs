//! Reads part files, checking everything.
//!
//! Owns the reader of a part and the entries of a block. A reader may be used by several threads at once: each takes an
//! open file out of a small pool for the time of one read. Invariant: no byte reaches a caller before the checksum over it
//! was found right, and nothing is allocated on the word of unchecked bytes.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::checkpoint::{
    BLOCK_HEADER_BYTES, BLOCK_MAGIC, BlockInfo, CheckpointError, FILE_HEADER_BYTES, FILE_MAGIC,
    PART_FORMAT_VERSION, PartId, Section, TRAILER_BYTES, TRAILER_MAGIC, checksum, u32_at, u64_at,
};
use crate::file::{File, FileSystem};
use crate::manifest::PartRecord;

/// A part open for reading. `Sync`: several threads may read blocks of it at once.
#[derive(Debug)]
pub struct PartReader {
    fs: Arc<dyn FileSystem>,
    path: PathBuf,
    seed: u32,
    sections: Vec<Section>,
    /// Open files that nobody is reading from; there are never more than there were readers at one time.
    idle: Mutex<Vec<Box<dyn File>>>,
}

/// A row of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// The version its owner gave it.
    pub version: u64,
    /// Its bytes.
    pub row: &'a [u8],
}

impl PartReader {
    /// Opens the part that the manifest describes as `expected` in `dir`, the directory of its checkpoint, and checks
    /// header, trailer and footer. Blocks are checked as they are read.
    ///
    /// # Errors
    /// [`CheckpointError::Io`], [`CheckpointError::Damaged`], [`CheckpointError::Newer`].
    pub fn open(
        fs: Arc<dyn FileSystem>,
        dir: &Path,
        id: PartId,
        expected: &PartRecord,
    ) -> Result<PartReader, CheckpointError> {
        let path = dir.join(&expected.name);
        let file = fs.open(&path, false).map_err(CheckpointError::io(&path, "open"))?;
        let seed = check_header(&*file, id, expected)?;
        let sections = read_footer(&*file, seed, expected)?;
        check_sections(&path, &sections, expected)?;
        Ok(PartReader { fs, path, seed, sections, idle: Mutex::new(vec![file]) })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The key ranges of the part and their blocks, in the order in which they were written.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// Reads a block into `buffer` and checks it. The buffer may be used again for the next block.
    ///
    /// # Errors
    /// [`CheckpointError::Io`], [`CheckpointError::Damaged`], [`CheckpointError::NoSuchBlock`].
    pub fn read_block<'a>(
        &'a self,
        section: usize,
        block: usize,
        buffer: &'a mut Vec<u8>,
    ) -> Result<Entries<'a>, CheckpointError> {
        let found = self.sections.get(section).and_then(|found| Some((found, found.blocks.get(block)?)));
        let Some((within, info)) = found else {
            return Err(CheckpointError::NoSuchBlock { file: self.path.clone(), section, block });
        };
        let file = self.take_file()?;
        buffer.resize(info.len as usize, 0);
        let read = read_exact(&*file, info.offset, buffer);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(file);
        read?;
        self.check_block(info, section, block, buffer)?;
        Ok(Entries {
            path: &self.path,
            offset: info.offset,
            bytes: &buffer[..],
            at: BLOCK_HEADER_BYTES,
            rows_left: info.rows,
            first_key: &info.first_key,
            last_key: None,
            beyond: within
                .blocks
                .get(block + 1)
                .map(|next| next.first_key.as_slice())
                .or(within.upper.as_deref()),
            failed: false,
        })
    }

    fn take_file(&self) -> Result<Box<dyn File>, CheckpointError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match idle {
            Some(file) => Ok(file),
            None => self.fs.open(&self.path, false).map_err(CheckpointError::io(&self.path, "open")),
        }
    }

    fn check_block(
        &self,
        info: &BlockInfo,
        section: usize,
        block: usize,
        bytes: &[u8],
    ) -> Result<(), CheckpointError> {
        let damaged = |what: &str| Err(damage(&self.path, info.offset, what.to_owned()));
        if u32_at(bytes, 0) != BLOCK_MAGIC {
            return damaged("a block should begin here");
        }
        if checksum(self.seed, &[&bytes[..20], &bytes[BLOCK_HEADER_BYTES..]]) != u32_at(bytes, 20) {
            return damaged("the checksum of the block that begins here does not match its bytes");
        }
        let expected =
            [bytes.len() as u32 - BLOCK_HEADER_BYTES as u32, info.rows, section as u32, block as u32];
        if [4, 8, 12, 16].map(|at| u32_at(bytes, at)) != expected {
            return damaged("the block that begins here is not the one that the footer lists");
        }
        Ok(())
    }

    /// The blocks that may hold keys from `lower` (inclusive) to `upper` (exclusive, or open) of a table: sections with
    /// the ranges of their blocks, none of them empty.
    pub fn overlapping(&self, table: u16, lower: &[u8], upper: Option<&[u8]>) -> Vec<(usize, Range<usize>)> {
        self.sections
            .iter()
            .enumerate()
            .filter(|(_, section)| section.table == table)
            .map(|(place, section)| (place, section.blocks_overlapping(lower, upper)))
            .filter(|(_, blocks)| !blocks.is_empty())
            .collect()
    }

    /// Hands every row of a table with a key from `lower` (inclusive) to `upper` (exclusive, or open) to `each`, reading
    /// only the blocks that may hold such rows. Rows of one section come in the order of their keys.
    ///
    /// # Errors
    /// Those of [`read_block`](PartReader::read_block) and whatever `each` returns; rows before the error were handed over.
    pub fn for_each_in<E: From<CheckpointError>>(
        &self,
        table: u16,
        lower: &[u8],
        upper: Option<&[u8]>,
        buffer: &mut Vec<u8>,
        mut each: impl FnMut(Entry<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for (section, blocks) in self.overlapping(table, lower, upper) {
            for block in blocks {
                for entry in self.read_block(section, block, buffer)? {
                    let entry = entry?;
                    if entry.key >= lower && upper.is_none_or(|upper| entry.key < upper) {
                        each(entry)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads and checks every block.
    ///
    /// # Errors
    /// The first damage found, or [`CheckpointError::Io`].
    pub fn check(&self) -> Result<(), CheckpointError> {
        let mut buffer = Vec::new();
        for (place, section) in self.sections.iter().enumerate() {
            for block in 0..section.blocks.len() {
                self.read_block(place, block, &mut buffer)?.try_for_each(|entry| entry.map(|_| ()))?;
            }
        }
        Ok(())
    }
}

impl Section {
    /// The blocks that may hold keys from `lower` (inclusive) to `upper` (exclusive, or open).
    pub fn blocks_overlapping(&self, lower: &[u8], upper: Option<&[u8]>) -> Range<usize> {
        // The last block that begins at or before `lower` may reach into the range.
        let start =
            self.blocks.partition_point(|block| block.first_key.as_slice() <= lower).saturating_sub(1);
        let end = match upper {
            Some(upper) => self.blocks.partition_point(|block| block.first_key.as_slice() < upper),
            None => self.blocks.len(),
        };
        start..end.max(start)
    }
}

fn damage(path: &Path, offset: u64, what: String) -> CheckpointError {
    CheckpointError::Damaged { file: path.to_owned(), offset, what }
}

fn read_exact(file: &dyn File, offset: u64, bytes: &mut [u8]) -> Result<(), CheckpointError> {
    let read = file.read_at(offset, bytes).map_err(CheckpointError::io(file.path(), "read"))?;
    if read < bytes.len() {
        return Err(damage(file.path(), offset + read as u64, "the file ends here, too early".to_owned()));
    }
    Ok(())
}

/// Checks the length of the file and its header; returns the checksum of the header, the seed of the others.
fn check_header(file: &dyn File, id: PartId, expected: &PartRecord) -> Result<u32, CheckpointError> {
    let path = file.path();
    let len = file.len().map_err(CheckpointError::io(path, "measure"))?;
    let mut header = [0; FILE_HEADER_BYTES];
    if len >= header.len() as u64 {
        read_exact(file, 0, &mut header)?;
        if header[..8] != FILE_MAGIC {
            return Err(damage(path, 0, "it does not begin as a part of a checkpoint does".to_owned()));
        }
        if crc32fast::hash(&header[..36]) != u32_at(&header, 36) {
            return Err(damage(path, 36, "the checksum of its header does not match".to_owned()));
        }
        let version = u32_at(&header, 8);
        if version > PART_FORMAT_VERSION {
            return Err(CheckpointError::Newer { file: path.clone(), version, known: PART_FORMAT_VERSION });
        }
    }
    if len != expected.bytes || len < (FILE_HEADER_BYTES + TRAILER_BYTES) as u64 {
        let what = format!("it is {len} bytes long and should have {}", expected.bytes);
        return Err(damage(path, len.min(expected.bytes), what));
    }
    if header != id.header() {
        let what = "it belongs to another database, checkpoint or part".to_owned();
        return Err(damage(path, 12, what));
    }
    Ok(u32_at(&header, 36))
}

fn read_footer(file: &dyn File, seed: u32, expected: &PartRecord) -> Result<Vec<Section>, CheckpointError> {
    let path = file.path();
    let trailer_at = expected.bytes - TRAILER_BYTES as u64;
    let mut trailer = [0; TRAILER_BYTES];
    read_exact(file, trailer_at, &mut trailer)?;
    if checksum(seed, &[&trailer[..24]]) != u32_at(&trailer, 24) || u32_at(&trailer, 20) != TRAILER_MAGIC {
        return Err(damage(path, trailer_at, "the checksum of its trailer does not match".to_owned()));
    }
    let (offset, len, crc) = (u64_at(&trailer, 0), u64_at(&trailer, 8), u32_at(&trailer, 16));
    if offset < FILE_HEADER_BYTES as u64 || offset.checked_add(len) != Some(trailer_at) {
        return Err(damage(path, trailer_at, "its trailer points to a footer that cannot be".to_owned()));
    }
    let mut footer = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    read_exact(file, offset, &mut footer)?;
    if crc != expected.crc || checksum(seed, &[&footer]) != crc {
        return Err(damage(path, offset, "the checksum of its footer does not match".to_owned()));
    }
    let unreadable = |what: String| damage(path, offset, format!("its footer cannot be read ({what})"));
    let (sections, rest) =
        postcard::take_from_bytes::<Vec<Section>>(&footer).map_err(|error| unreadable(error.to_string()))?;
    if !rest.is_empty() {
        return Err(unreadable(format!("{} bytes follow it", rest.len())));
    }
    let end = sections.iter().flat_map(|section| &section.blocks).try_fold(
        FILE_HEADER_BYTES as u64,
        |at, block| {
            (block.offset == at && block.len as usize > BLOCK_HEADER_BYTES)
                .then_some(at + u64::from(block.len))
        },
    );
    if end != Some(offset) {
        return Err(unreadable("its blocks do not fill the file".to_owned()));
    }
    Ok(sections)
}

/// Checks a footer beyond the places of the blocks: its sections must agree with the record in the manifest.
fn check_sections(path: &Path, sections: &[Section], expected: &PartRecord) -> Result<(), CheckpointError> {
    let mut rows = 0_u64;
    for section in sections {
        let listed: u64 = section.blocks.iter().map(|block| u64::from(block.rows)).sum();
        let firsts = || section.blocks.iter().map(|block| block.first_key.as_slice());
        let in_range = firsts().all(|key| {
            key >= section.lower.as_slice()
                && section.upper.as_ref().is_none_or(|upper| key < upper.as_slice())
        });
        if listed != section.rows || !in_range || !firsts().is_sorted_by(|one, next| one < next) {
            let what = format!("its footer contradicts itself about table {}", section.table);
            return Err(damage(path, expected.bytes, what));
        }
        rows = rows.saturating_add(listed);
    }
    if rows != expected.rows {
        let what = format!("it holds {rows} rows and should have {}", expected.rows);
        return Err(damage(path, expected.bytes, what));
    }
    Ok(())
}

/// The rows of a block, by key. After an error there is nothing more.
#[derive(Debug)]
pub struct Entries<'a> {
    path: &'a Path,
    /// Offset of the block in the file.
    offset: u64,
    bytes: &'a [u8],
    at: usize,
    rows_left: u32,
    first_key: &'a [u8],
    last_key: Option<&'a [u8]>,
    /// No key of the block may reach this.
    beyond: Option<&'a [u8]>,
    failed: bool,
}

impl<'a> Entries<'a> {
    /// Decodes the entry at `at`, or nothing if its bytes are not there.
    #[inline]
    fn decode(&mut self) -> Option<Entry<'a>> {
        let mut key_len = 0_usize;
        let mut shift = 0;
        loop {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            key_len |= usize::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
            // A length of 32 bits takes five bytes.
            if shift > 28 {
                return None;
            }
        }
        let key = self.take(key_len)?;
        let version = u64_at(self.take(8)?, 0);
        let row_len = u32_at(self.take(4)?, 0);
        let row = self.take(row_len as usize)?;
        Some(Entry { key, version, row })
    }

    #[inline]
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let bytes = self.bytes.get(self.at..)?.get(..len)?;
        self.at += len;
        Some(bytes)
    }

    fn fail(&mut self, at: usize, what: &str) -> Option<Result<Entry<'a>, CheckpointError>> {
        self.failed = true;
        Some(Err(damage(self.path, self.offset + at as u64, what.to_owned())))
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, CheckpointError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let start = self.at;
        if self.rows_left == 0 {
            if start != self.bytes.len() {
                return self.fail(start, "bytes follow the last row of the block");
            }
            return None;
        }
        let Some(entry) = self.decode() else {
            return self.fail(start, "a row reaches beyond its block");
        };
        // The checksum says that these bytes were written; this says that they were written in the right order.
        let in_order = match self.last_key {
            Some(last) => last < entry.key,
            None => entry.key == self.first_key,
        };
        if !in_order || (self.rows_left == 1 && self.beyond.is_some_and(|beyond| entry.key >= beyond)) {
            return self.fail(start, "a key is out of order");
        }
        self.last_key = Some(entry.key);
        self.rows_left -= 1;
        Some(Ok(entry))
    }
}

#[cfg(test)]
mod tests;
