//! Scanning a stream: reading all of it once, for a summary, and making durable what was found.
//!
//! Owns the summary. It changes nothing, except that [`settle`] writes the last frame once more and syncs it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{StreamReader, TornTail};
use crate::file::FileSystem;
use crate::wal::frame::{FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES};
use crate::wal::record::Records;
use crate::wal::segment::{WAL_DIRECTORY, segment_path};
use crate::wal::{Epoch, Incarnation, StreamEnd, StreamId, WalError};

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
        file.write_and_sync(offset, &[&frame]).map_err(WalError::io(path, "write and sync"))?;
    } else {
        file.sync().map_err(WalError::io(path, "sync"))?;
    }
    let wal = dir.join(WAL_DIRECTORY);
    fs.sync_dir(&wal).map_err(WalError::io(&wal, "sync the directory"))
}
