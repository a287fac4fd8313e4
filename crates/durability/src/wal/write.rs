//! Writing a stream.
//!
//! Owns the files of one stream while it is written: frames are appended and synced one by one, segments are prepared before
//! they are needed, and become spares or are removed when the caller says that nothing in them is needed. It never reads back
//! what it wrote, and never touches a stream again after a failure.
//!
//! Invariants:
//! - What seals an epoch is in one segment, however many frames it takes; only the last of them seals the epoch. So a segment
//!   ends with a frame that seals what is in it, and a stream that was cut off in between has not sealed it.
//! - A segment becomes a spare when the loss of its name is durable, and not before: a spare is overwritten.
//!
//! A block that has been written before takes a device sync a third less than one that was only allocated, as the file system
//! need not note that it is in use now. So a stream writes its spares anew with zeros where it is told to
//! ([`StreamOptions::filled_bytes`]), and keeps segments that nothing needs as spares ([`StreamOptions::kept_bytes`]). Pages of
//! such files are written whole: the system would read them first otherwise.

use std::collections::VecDeque;
use std::fmt;
use std::iter::once;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::frame::{
    FRAME_ALIGNMENT, FRAME_HEADER_BYTES, FrameHeader, MAX_PAYLOAD_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader,
    SegmentId,
};
use super::record::{RECORD_HEADER_BYTES, Records};
use super::segment::{WAL_DIRECTORY, list_segments, remove_segment, segment_path, spare_path};
use super::{Epoch, Incarnation, StreamEnd, StreamId, WalError};
use crate::file::{File, FileSystem};

mod prepare;

use prepare::{Room, Spare, activate, fill_spares, is_not_found, prepare, reuse};

/// The bytes written between two hints to drop what is cached of them.
const DROPPED_BYTES: u64 = 64 << 10;

/// The bytes of a payload that are summed before the records in them are looked at: they are in the cache then.
const SUMMED_BYTES: usize = 32 << 10;

/// The bytes of a page of the system's cache of files.
const PAGE_BYTES: usize = 4096;

/// Zeros for the end of a frame, and for the rest of its last page.
static ZEROS: [u8; FRAME_ALIGNMENT + PAGE_BYTES] = [0; FRAME_ALIGNMENT + PAGE_BYTES];

/// Settings of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// The length of a segment in bytes, reserved in full when it is prepared. What seals one epoch gets a longer segment
    /// where it needs one.
    pub segment_bytes: u64,
    /// Bytes of records from which on they go on in another frame. A record that is longer has a frame of its own.
    pub frame_bytes: usize,
    /// Bytes of spares that are made, and filled with zeros, when the stream is begun.
    pub filled_bytes: u64,
    /// Bytes of spares up to which segments become spares, instead of being removed.
    pub kept_bytes: u64,
}

impl Default for StreamOptions {
    /// Segments and frames of 64 MiB.
    fn default() -> StreamOptions {
        StreamOptions::of_segments(64 << 20)
    }
}

impl StreamOptions {
    /// The default options with segments of another length. No spares are filled or kept.
    #[must_use]
    pub const fn of_segments(segment_bytes: u64) -> StreamOptions {
        StreamOptions { segment_bytes, frame_bytes: FRAME_BYTES, filled_bytes: 0, kept_bytes: 0 }
    }
}

/// Long enough for a sync to be cheap beside the writing of it; short, since a frame is put together in memory, and read
/// back, as a whole.
const FRAME_BYTES: usize = 64 << 20;

const _: () = assert!(FRAME_BYTES <= MAX_PAYLOAD_BYTES, "a reader refuses longer frames");

/// A segment of a stream being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its number within the stream, from 1.
    pub segment: u32,
    /// The newest epoch of a record in it; `None` when it has none.
    pub newest_epoch: Option<Epoch>,
    /// The epoch sealed by the newest frame in it.
    pub sealed: Epoch,
    /// The length of the file in bytes.
    pub bytes: u64,
}

/// The segment being written.
struct Current {
    file: Box<dyn File>,
    path: PathBuf,
    info: SegmentInfo,
    seed: u32,
    /// Offset of the next frame.
    length: u64,
    room: Room,
}

impl Current {
    /// The bytes from the end of the next frame, of so many bytes, to the end of its page, if pages are written whole.
    fn rest_of_page(&self, frame_bytes: u64) -> usize {
        let end = self.length + frame_bytes;
        let until = match self.room {
            Room::Allocated => end,
            Room::Zeroed | Room::Reused => end.next_multiple_of(PAGE_BYTES as u64).min(self.info.bytes),
        };
        // At most a page.
        (until - end) as usize
    }
}

/// Writes one stream of one incarnation. There is exactly one writer per stream: the flusher of the island.
pub struct StreamWriter {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    id: SegmentId,
    options: StreamOptions,
    current: Current,
    /// Full segments, the oldest first.
    full: Vec<SegmentInfo>,
    /// Files for the next segments, each of `options.segment_bytes`.
    spares: VecDeque<Spare>,
    /// The number of the last spare.
    spare_number: u32,
    /// The length of the current segment at which the next spare is prepared (again, if that failed before).
    spare_due: u64,
    /// The length of the current segment, or of one before, up to which the system was told to drop what it has cached.
    dropped_at: u64,
    next_frame: u64,
    sealed: Epoch,
    bytes_written: u64,
    failed: Option<WalError>,
}

impl fmt::Debug for StreamWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamWriter")
            .field("path", &self.current.path)
            .field("position", &self.position())
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl StreamWriter {
    /// Begins a stream in the database directory `dir`, with its first segment durable.
    ///
    /// # Errors
    /// When the stream is there already, or the files cannot be made.
    pub fn create(
        fs: Arc<dyn FileSystem>,
        dir: &Path,
        database: u128,
        incarnation: Incarnation,
        stream: StreamId,
        options: StreamOptions,
    ) -> Result<StreamWriter, WalError> {
        let wal = dir.join(WAL_DIRECTORY);
        fs.create_dir(&wal).map_err(WalError::io(&wal, "create the directory"))?;
        fs.sync_dir(dir).map_err(WalError::io(dir, "sync the directory"))?;
        let id = SegmentId { database, incarnation, stream, segment: 1 };
        let path = segment_path(dir, incarnation, stream, 1);
        if !list_segments(&*fs, dir, incarnation, stream)?.is_empty() {
            let what = "its stream has been written before, and a stream is never taken up again".to_owned();
            return Err(WalError::Refused { file: path, what });
        }
        let smallest = (SEGMENT_HEADER_BYTES + FRAME_HEADER_BYTES) as u64;
        let options = StreamOptions {
            segment_bytes: options.segment_bytes.max(smallest),
            frame_bytes: options.frame_bytes.min(MAX_PAYLOAD_BYTES),
            ..options
        };
        let filled = u32::try_from(options.filled_bytes.div_ceil(options.segment_bytes)).unwrap_or(u32::MAX);
        let path_of_spare = |spare| spare_path(dir, incarnation, stream, spare);
        let mut spares = fill_spares(&*fs, path_of_spare, filled, options.segment_bytes)?;
        let (spare, spare_number) = match spares.pop_front() {
            Some(spare) => (spare, filled),
            None => (prepare(&*fs, path_of_spare(1), options.segment_bytes, Room::Allocated)?, 1),
        };
        let header = SegmentHeader {
            id,
            first_frame: 1,
            sealed: Epoch(0),
            previous_length: 0,
            reserved: spare.reserved,
            reused: false,
        };
        let current = activate(&*fs, path, spare, header)?;
        let mut writer = StreamWriter {
            fs,
            dir: dir.to_path_buf(),
            id,
            options,
            spare_due: 0,
            dropped_at: 0,
            current,
            full: Vec::new(),
            spares,
            spare_number,
            next_frame: 1,
            sealed: Epoch(0),
            bytes_written: SEGMENT_HEADER_BYTES as u64,
            failed: None,
        };
        writer.spare_due = writer.current.info.bytes / 4 * 3;
        Ok(writer)
    }

    /// Writes `payloads` (whole records, put together in this order) and syncs them: as one frame, or as several where they
    /// are longer than one is to be. `sealed` promises that no record of that epoch or an older one follows in the stream;
    /// it never goes back, and epoch 0 promises nothing. The promise is in the last of the frames: a crash between two of
    /// them leaves the epoch unsealed.
    ///
    /// When this has returned without error, all of it survives any crash. After an error the stream has failed: every later
    /// call returns the same error and touches no file, and what of it survives is unknown.
    ///
    /// # Errors
    /// When a file cannot be written or synced, and when the bytes are not whole records, have a record longer than a frame
    /// takes ([`CHANGES_BYTES_MAX`](super::CHANGES_BYTES_MAX)), or break an earlier promise.
    pub fn seal(&mut self, sealed: Epoch, payloads: &[&[u8]]) -> Result<(), WalError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let written = self.try_seal(sealed, payloads);
        if let Err(error) = &written {
            self.failed = Some(error.clone());
        }
        written
    }

    fn try_seal(&mut self, sealed: Epoch, payloads: &[&[u8]]) -> Result<(), WalError> {
        let mut crc = crc32fast::Hasher::new();
        let newest = self.check(sealed, payloads, &mut crc)?;
        let payload_bytes = payloads.iter().map(|payload| payload.len()).sum();
        if payload_bytes <= self.options.frame_bytes {
            self.make_room(frame_bytes(payload_bytes))?;
            self.write_frame(sealed, payloads, crc)?;
        } else {
            self.write_frames(sealed, payloads)?;
        }
        self.current.info.newest_epoch = self.current.info.newest_epoch.max(newest);
        self.current.info.sealed = sealed;
        self.sealed = sealed;
        Ok(())
    }

    /// Writes records that are too many for one frame. All frames but the last seal what was sealed before.
    #[cold]
    fn write_frames(&mut self, sealed: Epoch, payloads: &[&[u8]]) -> Result<(), WalError> {
        let frames = split(payloads, self.options.frame_bytes);
        let bytes = |frame: &Vec<&[u8]>| frame_bytes(frame.iter().map(|piece| piece.len()).sum());
        self.make_room(frames.iter().map(bytes).sum())?;
        for (at, frame) in frames.iter().enumerate() {
            let seals = if at + 1 == frames.len() { sealed } else { self.sealed };
            let mut crc = crc32fast::Hasher::new();
            frame.iter().for_each(|piece| crc.update(piece));
            self.write_frame(seals, frame, crc)?;
        }
        Ok(())
    }

    /// Goes on to the next segment when the present one has no room for so many bytes of frames.
    fn make_room(&mut self, bytes: u64) -> Result<(), WalError> {
        if self.current.length + bytes > self.current.info.bytes {
            return self.next_segment(bytes);
        }
        self.prepare_next();
        Ok(())
    }

    /// Writes a frame of the pieces, of which `crc` has the checksum.
    fn write_frame(
        &mut self,
        seals: Epoch,
        pieces: &[&[u8]],
        mut crc: crc32fast::Hasher,
    ) -> Result<(), WalError> {
        let payload_bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        let too_long = || WalError::Refused {
            file: self.current.path.clone(),
            what: format!("its {payload_bytes} bytes are more than {MAX_PAYLOAD_BYTES}"),
        };
        let mut header = FrameHeader {
            payload_bytes: u32::try_from(payload_bytes)
                .ok()
                .filter(|_| payload_bytes <= MAX_PAYLOAD_BYTES)
                .ok_or_else(too_long)?,
            number: self.next_frame,
            sealed: seals,
            payload_crc: 0,
        };
        let padding = header.padded_bytes() - payload_bytes;
        let frame_bytes = frame_bytes(payload_bytes);
        let zeros = &ZEROS[..padding + self.current.rest_of_page(frame_bytes)];
        crc.update(&zeros[..padding]);
        header.payload_crc = crc.finalize();
        // The segment that the frame is for is known by now.
        let header = header.encode(self.current.seed);
        let whole: Vec<&[u8]> =
            once(header.as_slice()).chain(pieces.iter().copied()).chain(once(zeros)).collect();
        self.current
            .file
            .write_and_sync(self.current.length, &whole)
            .map_err(WalError::io(&self.current.path, "write and sync"))?;
        self.current.length += frame_bytes;
        self.next_frame += 1;
        self.bytes_written += frame_bytes;
        Ok(())
    }

    /// Refuses what a reader would refuse, and finds the newest epoch; sums the payloads on the way.
    fn check(
        &self,
        sealed: Epoch,
        payloads: &[&[u8]],
        crc: &mut crc32fast::Hasher,
    ) -> Result<Option<Epoch>, WalError> {
        let refused = |what: String| WalError::Refused { file: self.current.path.clone(), what };
        if sealed < self.sealed {
            return Err(refused(format!("it seals epoch {sealed} after epoch {}", self.sealed)));
        }
        let mut newest = None;
        for payload in payloads {
            let (mut records, mut summed) = (Records::new(payload), 0);
            for piece in payload.chunks(SUMMED_BYTES) {
                crc.update(piece);
                summed += piece.len();
                while let Some(record) = records.next_before(summed) {
                    let epoch = record.map_err(|error| refused(error.what.to_owned()))?.epoch;
                    if epoch <= self.sealed {
                        return Err(refused(format!(
                            "it has a record of epoch {epoch}, and epoch {} is sealed",
                            self.sealed
                        )));
                    }
                    newest = newest.max(Some(epoch));
                }
            }
        }
        Ok(newest)
    }

    /// Hints to the system that what was written is not going to be read, now and then: memory that it takes for each new
    /// page of a file is cold, and that of pages it has dropped is warm.
    pub fn drop_cached(&mut self) {
        let length = self.current.length;
        if length.abs_diff(self.dropped_at) >= DROPPED_BYTES {
            self.dropped_at = length;
            self.current.file.drop_cached(length);
        }
    }

    /// Prepares the next segment when the present one is nearly full, so that [`seal`](StreamWriter::seal)
    /// need not. It does this itself if nobody else does; a flusher with a moment to spare does better to call it after its
    /// frame is reported. A failure is no failure of the stream yet: it is tried again, at the latest when the segment is
    /// needed.
    pub fn prepare_next(&mut self) {
        if self.failed.is_some() || !self.spares.is_empty() || self.current.length < self.spare_due {
            return;
        }
        match self.prepare(self.options.segment_bytes) {
            Ok(spare) => self.spares.push_back(spare),
            Err(_) => self.spare_due = self.current.length + self.options.segment_bytes / 32,
        }
    }

    /// Prepares a file that has so many bytes.
    fn prepare(&mut self, reserved: u64) -> Result<Spare, WalError> {
        self.spare_number += 1;
        prepare(&*self.fs, self.path_of_spare(), reserved, Room::Allocated)
    }

    /// Goes on to the next segment, which has room for so many bytes of frames.
    fn next_segment(&mut self, bytes: u64) -> Result<(), WalError> {
        let segment = self.current.info.segment + 1;
        let path = self.path_of(segment);
        let reserved = self.options.segment_bytes.max(SEGMENT_HEADER_BYTES as u64 + bytes);
        let fits = reserved == self.options.segment_bytes;
        let spare = match self.spares.pop_front_if(|_| fits) {
            Some(spare) => spare,
            None => self.prepare(reserved)?,
        };
        let header = SegmentHeader {
            id: SegmentId { segment, ..self.id },
            first_frame: self.next_frame,
            sealed: self.sealed,
            previous_length: self.current.length,
            reserved: spare.reserved,
            reused: spare.room == Room::Reused,
        };
        let next = activate(&*self.fs, path, spare, header)?;
        self.bytes_written += SEGMENT_HEADER_BYTES as u64;
        self.spare_due = next.info.bytes / 4 * 3;
        self.full.push(self.current.info);
        self.current = next;
        Ok(())
    }

    fn path_of(&self, segment: u32) -> PathBuf {
        segment_path(&self.dir, self.id.incarnation, self.id.stream, segment)
    }

    /// The path of the last spare.
    fn path_of_spare(&self) -> PathBuf {
        spare_path(&self.dir, self.id.incarnation, self.id.stream, self.spare_number)
    }

    /// The segments of the stream that are still there, the oldest first; the last is the one being written.
    #[must_use]
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let mut segments = self.full.clone();
        segments.push(self.current.info);
        segments
    }

    /// Takes whole segments from the front of the stream that have sealed only epochs before `epoch` (so all their records
    /// are older, and what is left says that nothing of `epoch` is missing), and never the one being written. They become
    /// spares, or are removed where there are enough. Each is gone from the stream for good before the next one goes (it takes
    /// a directory sync for each): did a crash bring back an older one but not a newer one, the stream would have a hole.
    /// Returns the bytes taken.
    ///
    /// # Errors
    /// When a file cannot be renamed or removed or the directory not be synced; the stream itself has not failed then.
    pub fn remove_before(&mut self, epoch: Epoch) -> Result<u64, WalError> {
        let mut bytes = 0;
        while let Some(oldest) = self.full.first().filter(|segment| segment.sealed < epoch).copied() {
            match self.retire(oldest) {
                Ok(()) => bytes += oldest.bytes,
                // An earlier try took it and failed to sync the directory.
                Err(error) if is_not_found(&error) => {
                    let wal = self.dir.join(WAL_DIRECTORY);
                    self.fs.sync_dir(&wal).map_err(WalError::io(&wal, "sync the directory"))?;
                }
                Err(error) => return Err(error),
            }
            self.full.remove(0);
        }
        Ok(bytes)
    }

    /// Makes a segment that is not needed a spare, or removes it.
    fn retire(&mut self, segment: SegmentInfo) -> Result<(), WalError> {
        let path = self.path_of(segment.segment);
        let spare_bytes = (self.spares.len() as u64 + 1) * self.options.segment_bytes;
        if segment.bytes == self.options.segment_bytes && spare_bytes <= self.options.kept_bytes {
            self.spare_number += 1;
            self.spares.push_back(reuse(&*self.fs, &path, self.path_of_spare(), segment.bytes)?);
            Ok(())
        } else {
            remove_segment(&*self.fs, &path).map(drop)
        }
    }

    /// Bytes written to the stream so far: headers, frames and their padding, not reserved room.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    /// Frames written so far.
    #[must_use]
    pub fn frames_written(&self) -> u64 {
        self.next_frame - 1
    }

    /// The present end of the stream: for the mark of a clean close.
    #[must_use]
    pub fn position(&self) -> StreamEnd {
        StreamEnd {
            segment: self.current.info.segment,
            length: self.current.length,
            frame: self.next_frame - 1,
        }
    }

    /// The error that the stream failed with, if it has.
    #[must_use]
    pub fn failure(&self) -> Option<&WalError> {
        self.failed.as_ref()
    }
}

/// The length of a frame with so many bytes of records.
fn frame_bytes(payload_bytes: usize) -> u64 {
    (FRAME_HEADER_BYTES + payload_bytes.next_multiple_of(FRAME_ALIGNMENT)) as u64
}

/// Divides payloads of whole records, in their order, into frames of at most `frame_bytes` each; a longer record has one of
/// its own.
fn split<'a>(payloads: &[&'a [u8]], frame_bytes: usize) -> Vec<Vec<&'a [u8]>> {
    let mut frames = vec![Vec::new()];
    let mut filled = 0;
    for payload in payloads {
        let (mut from, mut at) = (0, 0);
        for record in Records::new(payload).map_while(Result::ok) {
            let bytes = RECORD_HEADER_BYTES + record.contents_len();
            if filled > 0 && filled + bytes > frame_bytes {
                frames.last_mut().expect("there is always one").push(&payload[from..at]);
                frames.push(Vec::new());
                (from, filled) = (at, 0);
            }
            at += bytes;
            filled += bytes;
        }
        frames.last_mut().expect("there is always one").push(&payload[from..at]);
    }
    frames
}
