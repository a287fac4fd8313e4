//! Reading a stream back.
//!
//! Owns the decision what the bytes of a stream mean: its frames, a torn tail (a frame that was never reported written), or
//! damage. It changes nothing, except that [`settle`] makes durable what was found. It never holds more than one chunk or
//! one frame in memory, and believes no length before the checksum beside it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::frame::{
    FRAME_ALIGNMENT, FRAME_HEADER_BYTES, FRAME_MAGIC, FrameHeader, SEGMENT_HEADER_BYTES, SegmentHeader,
    SegmentHeaderError, SegmentId,
};
use super::record::Records;
use super::segment::{WAL_DIRECTORY, list_segments, segment_path};
use super::{Epoch, Incarnation, StreamEnd, StreamId, WalError};
use crate::file::{File, FileSystem};

/// Bytes read at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// One frame as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// No record of this epoch or an older one follows in the stream.
    pub sealed: Epoch,
    /// Its records: for [`Records::new`].
    pub payload: &'a [u8],
    /// The number of the frame within the stream, from 1.
    pub number: u64,
    /// The segment it is in.
    pub segment: u32,
    /// Offset of its header in that segment, in bytes.
    pub offset: u64,
}

/// The part of a frame being written that a crash left.
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

    /// Tells the end of the stream from damage, when no frame at `offset` is valid.
    fn decide_on_tail(&mut self, end: u64) -> Result<(), WalError> {
        let segment = &self.segments[self.place];
        if self.place + 1 < self.segments.len() {
            let what =
                format!("frame {} is not valid, and the stream goes on in the next segment", self.next_frame);
            return Err(WalError::damaged(&segment.path, self.offset, what));
        }
        let mut last_used = None;
        let mut at = self.offset;
        let mut chunk = Vec::new();
        while at < end {
            let overlap = FRAME_HEADER_BYTES - FRAME_ALIGNMENT;
            // The tail is mostly zeros: small chunks first, as the next frame is near if there is one.
            let wanted = if at == self.offset { 4096 } else { CHUNK_BYTES };
            let bytes = usize::try_from(end - at).map_or(wanted, |rest| rest.min(wanted));
            chunk.resize(bytes, 0);
            let path = &segment.path;
            if self.file.is_none() {
                self.file = Some(self.fs.open(path, false).map_err(WalError::io(path, "open"))?);
            }
            let file = self.file.as_ref().expect("opened above");
            let read = file.read_at(at, &mut chunk).map_err(WalError::io(path, "read"))?;
            if read < bytes {
                return Err(WalError::damaged(path, at + read as u64, "the file has been cut short"));
            }
            if let Some(place) = last_nonzero(&chunk) {
                last_used = Some(at + place as u64);
                if let Some((place, header)) = self.find_later_frame(&chunk) {
                    let what = format!(
                        "frame {} is not valid, but frame {} at byte {} is, and was written after it",
                        self.next_frame,
                        header.number,
                        at + place as u64
                    );
                    return Err(WalError::damaged(path, self.offset, what));
                }
            }
            if at + bytes as u64 == end {
                break;
            }
            at += (bytes - overlap) as u64;
        }
        self.torn = last_used.map(|last| TornTail {
            path: segment.path.clone(),
            offset: self.offset,
            bytes: last + 1 - self.offset,
        });
        self.ended = true;
        Ok(())
    }

    /// The header of a frame in `chunk` that was written after the one expected. Its payload does not matter: not even the
    /// header is written before the frame before it has been synced. A number that is not greater proves nothing: rows may
    /// hold copies of older frames.
    fn find_later_frame(&self, chunk: &[u8]) -> Option<(usize, FrameHeader)> {
        let seed = self.segments[self.place].seed;
        let (words, _) = chunk.as_chunks::<FRAME_ALIGNMENT>();
        for (place, word) in words.iter().enumerate() {
            if word[..4] == FRAME_MAGIC
                && let Some(header) = FrameHeader::decode(&chunk[place * FRAME_ALIGNMENT..], seed)
                && header.number > self.next_frame
            {
                return Some((place * FRAME_ALIGNMENT, header));
            }
        }
        None
    }
}

/// The place of the last byte that is not zero.
fn last_nonzero(bytes: &[u8]) -> Option<usize> {
    let (words, tail) = bytes.as_chunks::<8>();
    if let Some(place) = tail.iter().rposition(|byte| *byte != 0) {
        return Some(words.len() * 8 + place);
    }
    let place = words.iter().rposition(|word| u64::from_le_bytes(*word) != 0)?;
    words[place].iter().rposition(|byte| *byte != 0).map(|byte| place * 8 + byte)
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

/// Summary of a segment, by [`scan`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentSummary {
    /// Its number within the stream, from 1.
    pub segment: u32,
    /// The path of its file.
    pub path: PathBuf,
    /// The newest epoch of a record in it; `None` when it has none.
    pub newest_epoch: Option<Epoch>,
    /// The length of the file in bytes.
    pub bytes: u64,
    /// Frames in it.
    pub frames: u64,
}

/// Summary of a stream, by [`scan`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamSummary {
    /// All records of this epoch and older ones that the stream ever had are in it, or were removed after a checkpoint.
    /// `None` when nothing was sealed.
    pub sealed: Option<Epoch>,
    /// The epoch sealed before the first frame that is still there; see [`StreamReader::first_sealed`].
    pub first_sealed: Option<Epoch>,
    /// The newest epoch of any record; `None` when there is none.
    pub newest_epoch: Option<Epoch>,
    /// The end of the stream.
    pub end: StreamEnd,
    /// Offset of the last frame, when it is in the last segment.
    pub last_frame_offset: Option<u64>,
    /// The part that a crash left of a frame that was never reported written.
    pub torn: Option<TornTail>,
    /// The segments, in order.
    pub segments: Vec<SegmentSummary>,
    /// Bytes of headers and frames.
    pub bytes: u64,
    /// Frames that are there.
    pub frames: u64,
    /// Records that are there.
    pub records: u64,
}

/// Reads a whole stream once and says what is in it. With `expected_end`, from the mark of a clean close, a stream that does
/// not end exactly there is damaged.
///
/// # Errors
/// As for [`StreamReader::open`] and [`StreamReader::next_frame`], when the records of a frame are malformed or older than
/// what was sealed before, and when the end is not the expected one.
pub fn scan(
    fs: Arc<dyn FileSystem>,
    dir: &Path,
    database: u128,
    incarnation: Incarnation,
    stream: StreamId,
    expected_end: Option<StreamEnd>,
) -> Result<StreamSummary, WalError> {
    let mut reader = StreamReader::open(fs, dir, database, incarnation, stream)?;
    let mut summary = StreamSummary { first_sealed: reader.first_sealed(), ..StreamSummary::default() };
    for segment in &reader.segments {
        summary.bytes += SEGMENT_HEADER_BYTES as u64;
        summary.segments.push(SegmentSummary {
            segment: segment.header.id.segment,
            path: segment.path.clone(),
            newest_epoch: None,
            bytes: segment.header.reserved,
            frames: 0,
        });
    }
    loop {
        let sealed_before = reader.sealed;
        let first = reader.segments.first().map_or(0, |first| first.header.id.segment);
        let Some(frame) = reader.next_frame()? else { break };
        let segment = &mut summary.segments[(frame.segment - first) as usize];
        let mut newest = segment.newest_epoch;
        for record in Records::new(frame.payload) {
            let at = frame.offset + FRAME_HEADER_BYTES as u64;
            let record =
                record.map_err(|error| WalError::damaged(&segment.path, at + error.at as u64, error.what))?;
            if record.epoch <= sealed_before {
                let what = format!(
                    "a record of epoch {} follows after epoch {sealed_before} was sealed",
                    record.epoch
                );
                return Err(WalError::damaged(&segment.path, at, what));
            }
            newest = newest.max(Some(record.epoch));
            summary.records += 1;
        }
        segment.newest_epoch = newest;
        segment.frames += 1;
        summary.newest_epoch = summary.newest_epoch.max(newest);
        summary.frames += 1;
        summary.last_frame_offset = Some(frame.offset);
        let frame_at = frame.offset;
        summary.bytes += reader.offset - frame_at;
    }
    summary.sealed = reader.sealed();
    summary.end = reader.position();
    if summary.segments.last().is_none_or(|last| last.frames == 0) {
        summary.last_frame_offset = None;
    }
    summary.torn = reader.torn;
    if let Some(expected) = expected_end {
        check_end(dir, incarnation, stream, &summary, expected)?;
    }
    Ok(summary)
}

fn check_end(
    dir: &Path,
    incarnation: Incarnation,
    stream: StreamId,
    summary: &StreamSummary,
    expected: StreamEnd,
) -> Result<(), WalError> {
    if summary.end.segment < expected.segment {
        return Err(WalError::Missing { file: segment_path(dir, incarnation, stream, expected.segment) });
    }
    if summary.end != expected || summary.torn.is_some() {
        let file = segment_path(dir, incarnation, stream, summary.end.segment);
        let what = format!(
            "the stream ends with frame {}, and was closed with frame {} at byte {} of segment {}",
            summary.end.frame, expected.frame, expected.length, expected.segment
        );
        return Err(WalError::damaged(&file, summary.end.length, what));
    }
    Ok(())
}

/// Makes durable what [`scan`] has found, before anybody is told of it. After the process was killed, the last frame may have
/// been read from memory only; and after a failed sync, the system may think that it has been written although it has not. So
/// it is written once more and synced. Everything before it was synced when it was written.
///
/// # Errors
/// When the last segment cannot be read, written or synced.
pub fn settle(fs: &dyn FileSystem, dir: &Path, summary: &StreamSummary) -> Result<(), WalError> {
    let Some(segment) = summary.segments.last() else { return Ok(()) };
    let path = &segment.path;
    let mut file = fs.open(path, true).map_err(WalError::io(path, "open for writing"))?;
    if let Some(offset) = summary.last_frame_offset {
        let mut frame = vec![0; usize::try_from(summary.end.length - offset).unwrap_or(usize::MAX)];
        let read = file.read_at(offset, &mut frame).map_err(WalError::io(path, "read"))?;
        if read < frame.len() {
            return Err(WalError::damaged(path, offset + read as u64, "the file has been cut short"));
        }
        file.write_and_sync(offset, &frame).map_err(WalError::io(path, "write and sync"))?;
    } else {
        file.sync().map_err(WalError::io(path, "sync"))?;
    }
    let wal = dir.join(WAL_DIRECTORY);
    fs.sync_dir(&wal).map_err(WalError::io(&wal, "sync the directory"))
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
