//! Checkpoint files: the rows of key ranges, each part written by one worker, in blocks that are checked one by one.
//!
//! Owns the format of part files (`docs/directory-format.md`), encoding, writing and reading them. It never decides what
//! belongs in a checkpoint, never publishes one (that is [`Directory::publish`](crate::directory::Directory::publish)), and
//! the encoder does no I/O, so that one thread may encode while another writes.
//!
//! Invariants:
//! - Every byte of a part is under a checksum, and every checksum is tied to the database, the checkpoint and the part, so
//!   that a block copied from elsewhere is damage and not data.
//! - Keys ascend within a section and lie in its range.

mod encode;
mod read;
mod write;

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use encode::{FinishedPart, PartEncoder};
pub use read::{Entries, Entry, PartReader};
pub use write::{PartFile, PartWriter};

/// The format of part files this program writes, and the newest it reads.
pub const PART_FORMAT_VERSION: u32 = 1;
/// A block is closed before an entry that would make its entries longer than this, unless it has none yet.
pub const BLOCK_BYTES: usize = 128 << 10;

const FILE_MAGIC: [u8; 8] = *b"ATRAPART";
const FILE_HEADER_BYTES: usize = 40;
const BLOCK_MAGIC: u32 = u32::from_le_bytes(*b"CBLK");
const BLOCK_HEADER_BYTES: usize = 24;
const TRAILER_MAGIC: u32 = u32::from_le_bytes(*b"CEND");
const TRAILER_BYTES: usize = 28;

/// Reasons for which a part could not be written or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The file layer refused.
    #[error("cannot {operation} {}: {source}; put that right and try again", file.display())]
    Io {
        /// The part file.
        file: PathBuf,
        /// The operation that failed, as a verb.
        operation: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Bytes are not what was written.
    #[error("{} is damaged at byte {offset}: {what}; restore the database from a backup", file.display())]
    Damaged {
        /// The part file.
        file: PathBuf,
        /// The offset at which the damage was noticed.
        offset: u64,
        /// The contradiction found.
        what: String,
    },
    /// The format is of a later version.
    #[error("{} was written by a newer atrapos (format {version}, this one knows up to {known}); use that", file.display())]
    Newer {
        /// The part file.
        file: PathBuf,
        /// The version in the file.
        version: u32,
        /// The newest version this build can read.
        known: u32,
    },
    /// The encoder was given something that has no place; nothing was encoded.
    #[error(
        "a row of table {table} has no place in the checkpoint, because {what}; hand rows over by section and by key"
    )]
    Misplaced {
        /// The table of the present section.
        table: u16,
        /// The contradiction found.
        what: &'static str,
    },
    /// The encoder was given a row that is too long; nothing was encoded.
    #[error(
        "a row of table {table} is {bytes} bytes long with its key, and a checkpoint takes rows below 4 GiB; store it in pieces"
    )]
    TooLong {
        /// The table of the present section.
        table: u16,
        /// The length of key and row.
        bytes: u64,
    },
    /// The reader was asked for a block that the part does not have.
    #[error("{} has no block {block} in section {section}; ask for blocks that its sections list", file.display())]
    NoSuchBlock {
        /// The part file.
        file: PathBuf,
        /// The section asked for.
        section: usize,
        /// The block asked for.
        block: usize,
    },
}

impl CheckpointError {
    fn io(file: &Path, operation: &'static str) -> impl FnOnce(io::Error) -> CheckpointError {
        let file = file.to_owned();
        move |source| CheckpointError::Io { file, operation, source }
    }
}

/// Identifies a part: the part of a checkpoint of a database that a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartId {
    /// The identity of the database.
    pub database: u128,
    /// The number of the checkpoint.
    pub checkpoint: u32,
    /// The number of the part within the checkpoint.
    pub part: u16,
}

/// A key range of one table within a part: `lower` inclusive to `upper` exclusive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// The number of the table.
    pub table: u16,
    /// The first key that belongs to the range.
    pub lower: Vec<u8>,
    /// The first key beyond the range, or none if it is open.
    pub upper: Option<Vec<u8>>,
    /// Number of rows in it.
    pub rows: u64,
    /// Its blocks, by key.
    pub blocks: Vec<BlockInfo>,
}

/// A block of a section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockInfo {
    /// Offset of its header in the file.
    pub offset: u64,
    /// Its length in bytes, header included.
    pub len: u32,
    /// Number of rows in it.
    pub rows: u32,
    /// Its smallest key.
    pub first_key: Vec<u8>,
}

/// The file name of a part.
pub fn part_name(part: u16) -> String {
    format!("{part:04x}.part")
}

/// The number of a part from its file name, if it is one.
pub fn part_number(name: &str) -> Option<u16> {
    let number = u16::from_str_radix(name.strip_suffix(".part")?, 16).ok()?;
    (part_name(number) == name).then_some(number)
}

impl PartId {
    /// The first bytes of the file; the last four of them, a checksum, are the seed of all other checksums of the file.
    fn header(&self) -> [u8; FILE_HEADER_BYTES] {
        let mut header = [0; FILE_HEADER_BYTES];
        header[..8].copy_from_slice(&FILE_MAGIC);
        header[8..12].copy_from_slice(&PART_FORMAT_VERSION.to_le_bytes());
        header[12..16].copy_from_slice(&self.checkpoint.to_le_bytes());
        header[16..20].copy_from_slice(&u32::from(self.part).to_le_bytes());
        header[20..36].copy_from_slice(&self.database.to_le_bytes());
        let crc = crc32fast::hash(&header[..36]);
        header[36..].copy_from_slice(&crc.to_le_bytes());
        header
    }
}

/// A checksum of pieces of a file, tied to the file by the checksum of its header.
fn checksum(seed: u32, pieces: &[&[u8]]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&seed.to_le_bytes());
    for piece in pieces {
        crc.update(piece);
    }
    crc.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}
