//! Reading a stream back.
//!
//! Owns the decision what the bytes of a stream mean: its frames, a torn tail (a frame that was never reported written), or
//! damage. It changes nothing: it never holds more than one chunk or
//! one frame in memory, and believes no length before the checksum beside it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::frame::{
    FRAME_HEADER_BYTES, FrameHeader, SEGMENT_HEADER_BYTES, SegmentHeader, SegmentHeaderError, SegmentId,
};
use super::segment::{list_segments, segment_path};
use super::{Epoch, Incarnation, StreamEnd, StreamId, WalError};
use crate::file::{File, FileSystem};

mod scan;
mod tail;

pub use scan::{SegmentSummary, StreamSummary, scan, settle};

/// Bytes read at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// One frame as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// No record of this epoch or an older one follows in the stream.
    pub sealed: Epoch,
    /// Its records: for [`Records::new`](super::Records::new).
    pub payload: &'a [u8],
    /// The number of the frame within the stream, from 1.
    pub number: u64,
    /// The segment it is in.
    pub segment: u32,
    /// Offset of its header in that segment, in bytes.
    pub offset: u64,
}

/// The part of a frame being written that a crash left. In a file that was a segment before, only one with a valid header can
/// be told from what was there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The segment.
    pub path: PathBuf,
    /// Offset at which the stream ends, in bytes.
    pub offset: u64,
    /// Number of bytes passed over from there on.
    pub bytes: u64,
}

/// A segment of a stream that is read.
struct Segment {
    path: PathBuf,
    header: SegmentHeader,
    seed: u32,
}

/// Reads the frames of one stream in order, and verifies everything on the way.
pub struct StreamReader {
    fs: Arc<dyn FileSystem>,
    segments: Vec<Segment>,
    /// The place in `segments` that is being read.
    place: usize,
    file: Option<Box<dyn File>>,
    /// Offset at which the next frame is expected.
    offset: u64,
    buffer: Vec<u8>,
    /// The offset of the first byte of `buffer` in the file.
    buffer_offset: u64,
    next_frame: u64,
    sealed: Epoch,
    torn: Option<TornTail>,
    ended: bool,
}

impl fmt::Debug for StreamReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamReader")
            .field("path", &self.segments.get(self.place).map(|segment| &segment.path))
            .field("offset", &self.offset)
            .field("next_frame", &self.next_frame)
            .finish_non_exhaustive()
    }
}

impl StreamReader {
    /// Opens a stream in the database directory `dir` and verifies the headers of its segments. A stream without segments
    /// has no frames. First segments may have been removed: [`first_sealed`](StreamReader::first_sealed) says up to where.
    ///
    /// # Errors
    /// When a file cannot be read, a segment is missing between others, a header is damaged, belongs to another database or
    /// has another version, or a file is shorter than it was.
    pub fn open(
        fs: Arc<dyn FileSystem>,
        dir: &Path,
        database: u128,
        incarnation: Incarnation,
        stream: StreamId,
    ) -> Result<StreamReader, WalError> {
        let mut segments: Vec<Segment> = Vec::new();
        for number in list_segments(&*fs, dir, incarnation, stream)? {
            if let Some(last) = segments.last()
                && last.header.id.segment + 1 != number
            {
                let missing = last.header.id.segment + 1;
                return Err(WalError::Missing { file: segment_path(dir, incarnation, stream, missing) });
            }
            let id = SegmentId { database, incarnation, stream, segment: number };
            let segment = open_segment(&*fs, segment_path(dir, incarnation, stream, number), id)?;
            if let Some(before) = segments.last() {
                check_successor(before, &segment)?;
            }
            segments.push(segment);
        }
        let first = segments.first().map(|segment| segment.header);
        Ok(StreamReader {
            fs,
            place: 0,
            file: None,
            offset: SEGMENT_HEADER_BYTES as u64,
            buffer: Vec::new(),
            buffer_offset: 0,
            next_frame: first.map_or(1, |header| header.first_frame),
            sealed: first.map_or(Epoch(0), |header| header.sealed),
            torn: None,
            ended: segments.is_empty(),
            segments,
        })
    }

    /// The epoch sealed before the first frame that is still there: records of that epoch and older ones may have been
    /// removed, no newer ones. `None` when nothing was removed.
    #[must_use]
    pub fn first_sealed(&self) -> Option<Epoch> {
        self.segments.first().map(|segment| segment.header.sealed).filter(|sealed| *sealed > Epoch(0))
    }

    /// The number of the first frame that is still there (or would be the first).
    #[must_use]
    pub fn first_frame(&self) -> u64 {
        self.segments.first().map_or(1, |segment| segment.header.first_frame)
    }

    /// The epoch sealed by the newest frame read so far (or the one sealed before the first frame).
    #[must_use]
    pub fn sealed(&self) -> Option<Epoch> {
        Some(self.sealed).filter(|sealed| *sealed > Epoch(0))
    }

    /// The end of the frames read so far.
    #[must_use]
    pub fn position(&self) -> StreamEnd {
        match self.segments.get(self.place) {
            Some(segment) => StreamEnd {
                segment: segment.header.id.segment,
                length: self.offset,
                frame: self.next_frame - 1,
            },
            None => StreamEnd::default(),
        }
    }

    /// The torn tail, once [`next_frame`](StreamReader::next_frame) has reached it.
    #[must_use]
    pub fn torn(&self) -> Option<&TornTail> {
        self.torn.as_ref()
    }

    /// The next frame; `None` after the last one.
    ///
    /// # Errors
    /// When a file cannot be read, or the bytes are not what was written. Every later call then says the same or `None`,
    /// never another frame.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, WalError> {
        loop {
            if self.ended {
                return Ok(None);
            }
            let end = self.segment_end();
            if self.place + 1 < self.segments.len() && self.offset == end {
                self.enter_next_segment()?;
                continue;
            }
            let Some(header) = self.valid_frame(end)? else {
                self.decide_on_tail(end)?;
                continue;
            };
            let offset = self.offset;
            self.offset += (FRAME_HEADER_BYTES + header.padded_bytes()) as u64;
            self.next_frame += 1;
            self.sealed = header.sealed;
            let from =
                usize::try_from(offset - self.buffer_offset).unwrap_or(usize::MAX) + FRAME_HEADER_BYTES;
            return Ok(Some(Frame {
                sealed: header.sealed,
                payload: &self.buffer[from..from + header.payload_bytes as usize],
                number: header.number,
                segment: self.segments[self.place].header.id.segment,
                offset,
            }));
        }
    }

    /// Offset at which the frames of the segment being read end at the latest; for all but the last one exactly there.
    fn segment_end(&self) -> u64 {
        match self.segments.get(self.place + 1) {
            Some(next) => next.header.previous_length,
            None => self.segments[self.place].header.reserved,
        }
    }

    fn enter_next_segment(&mut self) -> Result<(), WalError> {
        let next = &self.segments[self.place + 1];
        if next.header.first_frame != self.next_frame || next.header.sealed != self.sealed {
            let what = format!(
                "it begins with frame {} and epoch {} sealed, and the segment before it ends with frame {} and epoch {}",
                next.header.first_frame,
                next.header.sealed,
                self.next_frame - 1,
                self.sealed
            );
            return Err(WalError::damaged(&next.path, 40, what));
        }
        self.place += 1;
        self.file = None;
        self.buffer.clear();
        self.buffer_offset = 0;
        self.offset = SEGMENT_HEADER_BYTES as u64;
        Ok(())
    }

    /// The header of the frame at `offset`, which then is in the buffer whole; `None` when there is no valid frame.
    fn valid_frame(&mut self, end: u64) -> Result<Option<FrameHeader>, WalError> {
        let seed = self.segments[self.place].seed;
        let Some(bytes) = self.load(FRAME_HEADER_BYTES, end)? else { return Ok(None) };
        let header = FrameHeader::decode(bytes, seed);
        let Some(header) = header else { return Ok(None) };
        let segment = &self.segments[self.place];
        if header.number != self.next_frame {
            let what = format!("frame {} is where frame {} should be", header.number, self.next_frame);
            return Err(WalError::damaged(&segment.path, self.offset, what));
        }
        if header.sealed < self.sealed {
            let what = format!("it seals epoch {} after epoch {}", header.sealed, self.sealed);
            return Err(WalError::damaged(&segment.path, self.offset, what));
        }
        let frame_bytes = FRAME_HEADER_BYTES + header.padded_bytes();
        let Some(bytes) = self.load(frame_bytes, end)? else { return Ok(None) };
        let matches = crc32fast::hash(&bytes[FRAME_HEADER_BYTES..]) == header.payload_crc;
        Ok(matches.then_some(header))
    }

    /// Loads `bytes` bytes from `offset` on; `None` when they reach past `end`.
    fn load(&mut self, bytes: usize, end: u64) -> Result<Option<&[u8]>, WalError> {
        if self.offset + bytes as u64 > end {
            return Ok(None);
        }
        let loaded_to = self.buffer_offset + self.buffer.len() as u64;
        if self.offset < self.buffer_offset || self.offset + bytes as u64 > loaded_to {
            let rest = usize::try_from(end - self.offset).unwrap_or(usize::MAX);
            let chunk = bytes.max(CHUNK_BYTES.min(rest));
            let path = &self.segments[self.place].path;
            if self.file.is_none() {
                self.file = Some(self.fs.open(path, false).map_err(WalError::io(path, "open"))?);
            }
            self.buffer.resize(chunk, 0);
            self.buffer_offset = self.offset;
            let file = self.file.as_ref().expect("opened above");
            let read = file.read_at(self.offset, &mut self.buffer).map_err(WalError::io(path, "read"))?;
            self.buffer.truncate(read);
            if read < bytes {
                return Err(WalError::damaged(
                    path,
                    self.offset + read as u64,
                    "the file has been cut short",
                ));
            }
        }
        let from = usize::try_from(self.offset - self.buffer_offset).unwrap_or(usize::MAX);
        Ok(Some(&self.buffer[from..from + bytes]))
    }
}

/// Reads and verifies the header of a segment.
fn open_segment(fs: &dyn FileSystem, path: PathBuf, id: SegmentId) -> Result<Segment, WalError> {
    let file = fs.open(&path, false).map_err(WalError::io(&path, "open"))?;
    let length = file.len().map_err(WalError::io(&path, "find the length of"))?;
    let mut bytes = [0; SEGMENT_HEADER_BYTES];
    let read = file.read_at(0, &mut bytes).map_err(WalError::io(&path, "read"))?;
    let header = SegmentHeader::decode(&bytes[..read]).map_err(|error| match error {
        SegmentHeaderError::Short => WalError::damaged(&path, length, "the file has been cut short"),
        SegmentHeaderError::Magic => WalError::damaged(&path, 0, "it does not begin as a WAL segment"),
        SegmentHeaderError::Checksum => {
            WalError::damaged(&path, 0, "the header of the segment does not match its checksum")
        }
        SegmentHeaderError::Version(version) => WalError::Unsupported { file: path.clone(), version },
    })?;
    if header.id.database != id.database {
        return Err(WalError::Foreign { file: path, found: header.id.database, expected: id.database });
    }
    if header.id != id {
        let what = format!(
            "it is segment {} of stream {} of incarnation {}, under the name of another",
            header.id.segment, header.id.stream, header.id.incarnation
        );
        return Err(WalError::damaged(&path, 12, what));
    }
    if header.first_frame == 0 || header.reserved < SEGMENT_HEADER_BYTES as u64 {
        return Err(WalError::damaged(&path, 40, "the header of the segment contradicts itself"));
    }
    if length < header.reserved {
        let what = format!("the file has been cut short, it had {} bytes", header.reserved);
        return Err(WalError::damaged(&path, length, what));
    }
    Ok(Segment { seed: id.seed(), path, header })
}

/// Checks what the header of a segment says of the one before it.
fn check_successor(before: &Segment, next: &Segment) -> Result<(), WalError> {
    let fits = next.header.previous_length >= SEGMENT_HEADER_BYTES as u64
        && next.header.previous_length <= before.header.reserved
        && next.header.first_frame >= before.header.first_frame
        && next.header.sealed >= before.header.sealed;
    if fits {
        Ok(())
    } else {
        Err(WalError::damaged(&next.path, 40, "its header does not fit the segment before it"))
    }
}

#[cfg(test)]
impl StreamReader {
    /// Goes back to where an earlier frame begins, forgetting what was read.
    pub(super) fn restart_at(&mut self, offset: u64, next_frame: u64, sealed: Epoch) {
        self.buffer.clear();
        self.buffer_offset = 0;
        self.offset = offset;
        self.next_frame = next_frame;
        self.sealed = sealed;
        self.torn = None;
        self.ended = false;
    }
}
