//! Files of records: the log on disk, and the population under it.
//!
//! Owns: the bytes of a file around the records, its writing, and the decision what they mean when they are read: records, a torn
//! tail, or damage. Never: knows what is in a record, or appends to a file again whose write has failed.
//!
//! # Format
//! ```text
//! file   ┌────────────┬──────────────┬──────────────┬────────────────┬─────────────────┬──────────────┬─────────┐
//!        │ magic: [8] │ version: u32 │ zero: u32    │ identity: u128 │ crc: u32, 0: u32│ frame        │ frame … │
//!        └────────────┴──────────────┴──────────────┴────────────────┴─────────────────┴──────────────┴─────────┘
//! frame  ┌───────────┬────────────┬──────────┬───────────┬──────────────────────────────┐
//!        │ from: u64 │ bytes: u64 │ crc: u32 │ zero: u32 │ records, `bytes` bytes of them │   little-endian
//!        └───────────┴────────────┴──────────┴───────────┴──────────────────────────────┘
//! ```
//! A frame is what was made durable at once. `from` is the position of its first record, at which the frame before it ends; the
//! checksum (CRC-32) covers the identity of the database and both numbers. Records have checksums of their own.
//!
//! # Torn tails
//! A frame is written only after the one before it has been synced. So an invalid frame that is followed by the header of a valid
//! one is damage, and is refused; one that is followed by none was never acknowledged, and is cut off. What it was is not looked
//! into: records of it may be whole, and nobody was told of them.
//!
//! Invariant: what was cut off is gone from the file, durably, before anything is appended in its place.

use std::io;
use std::path::Path;

use atrapos_durability::directory::DirectoryError;
use atrapos_durability::file::{File, FileSystem};

use super::record::{HEADER_BYTES, LogReader, push_record};
use super::sink::LogSink;
use super::{LogRecord, Lsn};
use crate::planted::{Bug, planted};

const MAGIC: [u8; 8] = *b"ATRASHAR";
const VERSION: u32 = 1;
const FILE_HEADER_BYTES: usize = 40;
const FRAME_HEADER_BYTES: usize = 24;
/// Bytes read at a time in search of a valid frame.
const CHUNK_BYTES: usize = 1 << 20;

/// The identity of a database, in all files of it.
pub(crate) type Identity = u128;

/// Reads a number.
fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut number = [0; N];
    number.copy_from_slice(&bytes[at..at + N]);
    number
}

/// Wraps an error of the file layer.
pub(crate) fn io_error(file: &Path, operation: &'static str) -> impl FnOnce(io::Error) -> DirectoryError {
    let file = file.to_owned();
    move |source| DirectoryError::Io { file, operation, source }
}

/// Says that bytes are not what was written.
pub(crate) fn damaged(file: &Path, offset: u64, what: impl Into<String>) -> DirectoryError {
    DirectoryError::Damaged { file: file.to_owned(), offset, what: what.into() }
}

fn encode_file_header(identity: Identity) -> [u8; FILE_HEADER_BYTES] {
    let mut header = [0; FILE_HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[16..32].copy_from_slice(&identity.to_le_bytes());
    let crc = crc32fast::hash(&header[..32]);
    header[32..36].copy_from_slice(&crc.to_le_bytes());
    header
}

/// The header of a frame: where its records begin, and how many bytes they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FrameHeader {
    from: u64,
    bytes: u64,
}

impl FrameHeader {
    fn encode(self, identity: Identity) -> [u8; FRAME_HEADER_BYTES] {
        let mut header = [0; FRAME_HEADER_BYTES];
        header[..8].copy_from_slice(&self.from.to_le_bytes());
        header[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        let mut crc = crc32fast::Hasher::new();
        crc.update(&identity.to_le_bytes());
        crc.update(&header[..16]);
        header[16..20].copy_from_slice(&crc.finalize().to_le_bytes());
        header
    }

    /// The header at the front of some bytes; none if there is no valid one.
    fn decode(bytes: &[u8], identity: Identity) -> Option<FrameHeader> {
        let bytes = bytes.get(..FRAME_HEADER_BYTES)?;
        let header = FrameHeader {
            from: u64::from_le_bytes(number(bytes, 0)),
            bytes: u64::from_le_bytes(number(bytes, 8)),
        };
        (header.bytes > 0 && header.encode(identity) == *bytes).then_some(header)
    }
}

/// The place at which a file of records ends: the offset in the file, and the position of the next record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileEnd {
    pub(crate) offset: u64,
    pub(crate) position: Lsn,
}

/// A file of records that is being written.
#[derive(Debug)]
pub(crate) struct LogFile {
    file: Box<dyn File>,
    identity: Identity,
    end: FileEnd,
    /// The length up to which the file has room.
    reserved: u64,
    /// Room by which it grows ahead of what is written: a sync need not note another length then.
    room_bytes: u64,
}

impl LogFile {
    /// Creates a file that is not there. Nothing of it is durable yet.
    pub(crate) fn create(
        files: &dyn FileSystem,
        path: &Path,
        identity: Identity,
    ) -> Result<LogFile, DirectoryError> {
        let mut file = files.create(path).map_err(io_error(path, "create"))?;
        file.write_at(0, &encode_file_header(identity)).map_err(io_error(path, "write"))?;
        let end = FileEnd { offset: FILE_HEADER_BYTES as u64, position: Lsn(0) };
        Ok(LogFile { file, identity, end, reserved: 0, room_bytes: 0 })
    }

    /// Takes a file up again where it ends, and cuts off what follows, durably.
    pub(crate) fn resume(
        files: &dyn FileSystem,
        path: &Path,
        identity: Identity,
        end: FileEnd,
    ) -> Result<LogFile, DirectoryError> {
        let mut file = files.open(path, true).map_err(io_error(path, "open"))?;
        file.truncate(end.offset).map_err(io_error(path, "truncate"))?;
        file.sync().map_err(io_error(path, "sync"))?;
        Ok(LogFile { file, identity, end, reserved: end.offset, room_bytes: 0 })
    }

    /// Makes the file grow by so many bytes at a time.
    pub(crate) fn with_room(self, room_bytes: u64) -> LogFile {
        LogFile { room_bytes, ..self }
    }

    /// Appends a record as a frame of its own, which [`sync`](Self::sync) makes durable.
    pub(crate) fn append(&mut self, record: &[u8]) -> Result<(), DirectoryError> {
        let mut frame = vec![0; FRAME_HEADER_BYTES];
        push_record(&mut frame, self.end.position, record);
        let bytes = (frame.len() - FRAME_HEADER_BYTES) as u64;
        let header = FrameHeader { from: self.end.position.0, bytes }.encode(self.identity);
        frame[..FRAME_HEADER_BYTES].copy_from_slice(&header);
        self.file.write_at(self.end.offset, &frame).map_err(io_error(self.file.path(), "write"))?;
        self.advance(bytes);
        Ok(())
    }

    /// Makes everything durable that was written so far.
    pub(crate) fn sync(&mut self) -> Result<(), DirectoryError> {
        self.file.sync().map_err(io_error(self.file.path(), "sync"))
    }

    fn advance(&mut self, bytes: u64) {
        self.end.offset += FRAME_HEADER_BYTES as u64 + bytes;
        self.end.position.0 += bytes;
    }
}

impl LogSink for LogFile {
    fn write(&mut self, [first, second]: [&[u8]; 2]) -> io::Result<()> {
        let bytes = (first.len() + second.len()) as u64;
        let until = self.end.offset + FRAME_HEADER_BYTES as u64 + bytes;
        if until > self.reserved && self.room_bytes > 0 {
            self.reserved = until.next_multiple_of(self.room_bytes);
            // Where there is no room ahead, there may be some for this frame: the write will tell.
            let _ = self.file.reserve(self.reserved);
        }
        let header = FrameHeader { from: self.end.position.0, bytes }.encode(self.identity);
        self.file.write_and_sync(self.end.offset, &[&header, first, second])?;
        self.advance(bytes);
        Ok(())
    }
}

/// A file of records that is being read.
pub(crate) struct LogFileReader {
    file: Box<dyn File>,
    identity: Identity,
    /// The beginning of the frame that was read last.
    last: FileEnd,
    end: FileEnd,
    len: u64,
}

impl LogFileReader {
    /// Opens a file and checks its header; `identity` is that of the database, if it is known.
    pub(crate) fn open(
        files: &dyn FileSystem,
        path: &Path,
        identity: Option<Identity>,
    ) -> Result<LogFileReader, DirectoryError> {
        let file = files.open(path, false).map_err(io_error(path, "open"))?;
        let len = file.len().map_err(io_error(path, "find the length of"))?;
        let mut header = [0; FILE_HEADER_BYTES];
        let read = file.read_at(0, &mut header).map_err(io_error(path, "read"))?;
        if read < FILE_HEADER_BYTES || header[..8] != MAGIC {
            return Err(damaged(path, 0, "it does not begin as a file of records"));
        }
        if crc32fast::hash(&header[..32]).to_le_bytes() != header[32..36] {
            return Err(damaged(path, 0, "its header does not match its checksum"));
        }
        let version = u32::from_le_bytes(number(&header, 8));
        if version != VERSION {
            return Err(DirectoryError::Newer { file: path.to_owned(), version, known: VERSION });
        }
        let found = u128::from_le_bytes(number(&header, 16));
        if identity.is_some_and(|identity| identity != found) {
            return Err(damaged(path, 16, "it belongs to another database"));
        }
        let end = FileEnd { offset: FILE_HEADER_BYTES as u64, position: Lsn(0) };
        Ok(LogFileReader { file, identity: found, last: end, end, len })
    }

    /// The identity of the database that the file belongs to.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// The end of the frames that were read.
    pub(crate) fn end(&self) -> FileEnd {
        self.end
    }

    /// The offset of a record of the frame that was read last.
    pub(crate) fn offset_of(&self, record: Lsn) -> u64 {
        self.last.offset + FRAME_HEADER_BYTES as u64 + (record.0 - self.last.position.0)
    }

    /// Returns true if all bytes of the file were read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.end.offset == self.len
    }

    /// The records of the next frame; none where the file ends, with a torn tail or without.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or is damaged.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Vec<LogRecord>>, DirectoryError> {
        if let Some((bytes, records)) = self.read_frame()? {
            self.last = self.end;
            self.end.offset += FRAME_HEADER_BYTES as u64 + bytes;
            self.end.position.0 += bytes;
            return Ok(Some(records));
        }
        match self.find_later_frame()? {
            None => Ok(None),
            Some(later) => Err(damaged(
                self.file.path(),
                self.end.offset,
                format!("there is no valid frame here, and there is one behind it, at byte {later}"),
            )),
        }
    }

    fn read(&self, offset: u64, bytes: usize) -> Result<Vec<u8>, DirectoryError> {
        let mut read = vec![0; bytes];
        let count = self.file.read_at(offset, &mut read).map_err(io_error(self.file.path(), "read"))?;
        read.truncate(count);
        Ok(read)
    }

    /// Reads the frame at the end, if a valid one is there: the bytes of its records, and the records.
    fn read_frame(&self) -> Result<Option<(u64, Vec<LogRecord>)>, DirectoryError> {
        let FileEnd { offset, position } = self.end;
        let header = FrameHeader::decode(&self.read(offset, FRAME_HEADER_BYTES)?, self.identity);
        let room = self.len.saturating_sub(offset + FRAME_HEADER_BYTES as u64);
        let Some(FrameHeader { bytes, .. }) =
            header.filter(|header| header.from == position.0 && header.bytes <= room)
        else {
            return Ok(None);
        };
        // It is in the file, so it is a length that memory can have.
        let read =
            self.read(offset + FRAME_HEADER_BYTES as u64, usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let mut reader = LogReader::new(read.as_slice(), position);
        let records: Vec<LogRecord> = reader.by_ref().map_while(Result::ok).collect();
        let is_whole = reader.end().0 == position.0 + bytes;
        Ok((is_whole || planted(Bug::TornTailAccepted)).then_some((bytes, records)))
    }

    /// The offset of the header of a valid frame behind the end, if there is one.
    fn find_later_frame(&self) -> Result<Option<u64>, DirectoryError> {
        let FileEnd { offset, position } = self.end;
        let mut at = offset + HEADER_BYTES;
        while at < self.len {
            let chunk = self.read(at, CHUNK_BYTES + FRAME_HEADER_BYTES)?;
            for within in (0..chunk.len().min(CHUNK_BYTES)).step_by(HEADER_BYTES as usize) {
                let found = FrameHeader::decode(&chunk[within..], self.identity);
                // A position is not further from ours than its place: by chance nothing looks like this.
                let is_ours = |header: &FrameHeader| {
                    (position.0..=position.0 + (self.len - offset)).contains(&header.from)
                };
                if found.filter(is_ours).is_some() {
                    return Ok(Some(at + within as u64));
                }
            }
            at += CHUNK_BYTES as u64;
        }
        Ok(None)
    }
}
