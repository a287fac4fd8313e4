//! The format of records, and the reader of a log.
//!
//! Owns: the header of a record and its checksum. Never: knows what is in a record.
//!
//! # Format
//! ```text
//! ┌──────────────┬────────────────┬──────────────────┬─────────────────────────┐
//! │ length: u32  │ checksum: u32  │ `length` bytes   │ zeros to a multiple of 8  │   little-endian
//! └──────────────┴────────────────┴──────────────────┴─────────────────────────┘
//! ```
//! The position of a record, its [`Lsn`], is its offset in the log. The checksum (CRC-32) covers the bytes, the position and
//! the length, so a whole record that lies where it was not written, left by an earlier use of the space, is not
//! taken for one. A record is not empty, so zeros are not a record.

use std::io::{self, Read};

use super::Lsn;
use crate::planted::{Bug, planted};

/// The size of a header; what is reserved is a multiple of it.
pub(super) const HEADER_BYTES: u64 = 8;
/// The longest record that a reader takes for one, whatever the log's buffer was.
const RECORD_BYTES_MAX: u32 = 1 << 30;

/// The bytes that a record of this length takes, header included.
pub(super) const fn occupied(length: u32) -> u64 {
    HEADER_BYTES + (length as u64).next_multiple_of(8)
}

/// The checksum of a record, whose bytes are known before its position is.
#[derive(Clone)]
pub(super) struct Checksum(crc32fast::Hasher);

impl Checksum {
    pub(super) fn of(bytes: &[u8]) -> Checksum {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(bytes);
        Checksum(hasher)
    }

    /// The header of the record at a position.
    pub(super) fn header(mut self, position: u64, length: u32) -> u64 {
        let position = if planted(Bug::PositionNotChecked) { 0 } else { position };
        let mut place = [0; 12];
        place[..8].copy_from_slice(&position.to_le_bytes());
        place[8..].copy_from_slice(&length.to_le_bytes());
        self.0.update(&place);
        u64::from(length) | u64::from(self.0.finalize()) << 32
    }
}

/// The length in a header.
pub(super) const fn length_of(header: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
    let length = header as u32;
    length
}

/// Appends a whole record, as it lies in the log at a position, to some bytes.
#[cfg(not(loom))]
pub(super) fn push_record(bytes: &mut Vec<u8>, position: Lsn, record: &[u8]) {
    let length = u32::try_from(record.len()).expect("a record is shorter than 4 GiB");
    bytes.extend_from_slice(&Checksum::of(record).header(position.0, length).to_le_bytes());
    bytes.extend_from_slice(record);
    let padding = occupied(length) as usize - HEADER_BYTES as usize - record.len();
    bytes.resize(bytes.len() + padding, 0);
}

/// A record that was read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// Its position.
    pub lsn: Lsn,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Reads the records of a log in their order, up to the first one that is not whole.
///
/// That is where the log ends: a crash may have cut the last write, or written a part of it only. An error of the file
/// is returned, and ends the iteration as well.
#[derive(Debug)]
pub struct LogReader<R> {
    reader: R,
    position: u64,
    ended: bool,
}

impl<R: Read> LogReader<R> {
    /// Makes a reader of a log that begins at `first`.
    pub fn new(reader: R, first: Lsn) -> LogReader<R> {
        LogReader { reader, position: first.0, ended: false }
    }

    /// The position behind the last record that was read.
    pub fn end(&self) -> Lsn {
        Lsn(self.position)
    }

    /// Reads up to `bytes` bytes: fewer only where the file ends. So a wrong length costs no memory.
    fn read(&mut self, bytes: u64) -> io::Result<Vec<u8>> {
        let mut read = Vec::new();
        self.reader.by_ref().take(bytes).read_to_end(&mut read)?;
        Ok(read)
    }

    /// Reads a header; nothing where the file ends before it does.
    fn read_header(&mut self) -> io::Result<Option<u64>> {
        let mut header = [0; HEADER_BYTES as usize];
        let mut read = 0;
        while read < header.len() {
            match self.reader.read(&mut header[read..]) {
                Ok(0) => return Ok(None),
                Ok(bytes) => read += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(u64::from_le_bytes(header)))
    }

    fn read_record(&mut self) -> io::Result<Option<LogRecord>> {
        let Some(header) = self.read_header()? else { return Ok(None) };
        let length = length_of(header);
        if length == 0 || length > RECORD_BYTES_MAX {
            return Ok(None);
        }
        let mut bytes = self.read(occupied(length) - HEADER_BYTES)?;
        if bytes.len() < length as usize {
            return Ok(None);
        }
        bytes.truncate(length as usize);
        if Checksum::of(&bytes).header(self.position, length) != header {
            return Ok(None);
        }
        let lsn = Lsn(self.position);
        self.position += occupied(length);
        Ok(Some(LogRecord { lsn, bytes }))
    }
}

impl<R: Read> Iterator for LogReader<R> {
    type Item = io::Result<LogRecord>;

    fn next(&mut self) -> Option<io::Result<LogRecord>> {
        if self.ended {
            return None;
        }
        let record = self.read_record().transpose();
        self.ended = !matches!(record, Some(Ok(_)));
        record
    }
}
