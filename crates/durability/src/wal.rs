//! WAL streams: what one island has written, in order, and how it is read back.
//!
//! Owns the bytes of records, frames and segments (`docs/wal-format.md` in the repository describes them one by one) and
//! the writing and reading of the files they are in. It knows tables, keys and rows as numbers and bytes only; who decides
//! when to write, when an epoch is durable and what to replay is elsewhere.
//!
//! Invariants:
//! - A frame is written only after the one before it has been synced. So an invalid frame that any valid frame follows is
//!   damage, and is refused; an invalid last frame was never reported written, and is cut.
//! - A segment gets its final name only after its header and its full length are durable. So a segment that is shorter than
//!   its header says, or has no valid header, is damage.
//! - A stream that has failed once never touches its files again: after a failed sync nothing is known about them.

mod frame;
mod note;
mod patch;
mod read;
mod record;
mod segment;
#[cfg(test)]
mod tests;
mod write;

pub use note::{GlobalId, Note};
pub use patch::{Patch, PatchRange, PatchRanges};
pub use read::{Frame, SegmentSummary, StreamReader, StreamSummary, TornTail, scan, settle};
pub use record::{
    CHANGES_BYTES_MAX, Change, Changes, FormatError, Op, Record, Records, push_edit, push_put, push_record,
    push_remove, push_update,
};
pub use segment::{
    SegmentFile, StreamFiles, WAL_DIRECTORY, list_streams, remove_leftovers, remove_stream, segment_path,
};
pub use write::{SegmentInfo, StreamOptions, StreamWriter};

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A point in the time of a database: transactions of one epoch become durable together. Epochs grow through all
/// incarnations; epoch 0 is before all of them and no record carries it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A number of one WAL stream within an incarnation: one per island.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StreamId(pub u16);

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One life of a database, from an opening to the close or crash; each has WAL streams of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation(pub u32);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The end of a stream, as the mark of a clean close records it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StreamEnd {
    /// The segment the last frame is in; segments count from 1, and 0 is a stream without any.
    pub segment: u32,
    /// The offset in that segment just after the last frame, in bytes.
    pub length: u64,
    /// The number of the last frame; frames count from 1 through all segments of a stream.
    pub frame: u64,
}

/// Reasons for which a WAL stream could not be written or read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WalError {
    /// The operating system refused a call.
    #[error(
        "could not {operation} {}: {source}; clear the cause (a full or failing device, missing permissions), \
         then open the database again", file.display()
    )]
    Io {
        /// The file or directory.
        file: PathBuf,
        /// The operation that failed, as a verb.
        operation: &'static str,
        /// The answer of the operating system.
        source: Arc<io::Error>,
    },
    /// The bytes are not what was written.
    #[error(
        "{} is damaged at byte {offset}: {what}; restore the database from a backup", file.display()
    )]
    Damaged {
        /// The segment.
        file: PathBuf,
        /// The offset of the damage, in bytes from the start of the file.
        offset: u64,
        /// The contradiction found there.
        what: String,
    },
    /// A whole segment is not there.
    #[error("{} is missing; put the file back or restore the database from a backup", file.display())]
    Missing {
        /// The segment.
        file: PathBuf,
    },
    /// The segment belongs to another database.
    #[error(
        "{} belongs to database {found:032x}, not to {expected:032x}; remove the file or put back the one that was there",
        file.display()
    )]
    Foreign {
        /// The segment.
        file: PathBuf,
        /// The database the segment names.
        found: u128,
        /// The database it was opened for.
        expected: u128,
    },
    /// The segment has a format this version of the program does not know.
    #[error(
        "{} has WAL format version {version}, and this program reads versions 1 and 2; open the database with the program that \
         wrote it", file.display()
    )]
    Unsupported {
        /// The segment.
        file: PathBuf,
        /// The format version it states.
        version: u32,
    },
    /// The input to a write is not a frame of this stream; nothing of it was written.
    #[error("the frame given to {} was refused: {what}; report this as a defect of the engine", file.display())]
    Refused {
        /// The segment it was to go to.
        file: PathBuf,
        /// The defect of the input.
        what: String,
    },
}

impl WalError {
    pub(crate) fn io(file: &Path, operation: &'static str) -> impl FnOnce(io::Error) -> WalError {
        let file = file.to_path_buf();
        move |source| WalError::Io { file, operation, source: Arc::new(source) }
    }

    pub(crate) fn damaged(file: &Path, offset: u64, what: impl Into<String>) -> WalError {
        WalError::Damaged { file: file.to_path_buf(), offset, what: what.into() }
    }

    /// The file (or directory) the error is about.
    #[must_use]
    pub fn file(&self) -> &Path {
        match self {
            WalError::Io { file, .. }
            | WalError::Damaged { file, .. }
            | WalError::Missing { file }
            | WalError::Foreign { file, .. }
            | WalError::Unsupported { file, .. }
            | WalError::Refused { file, .. } => file,
        }
    }
}
