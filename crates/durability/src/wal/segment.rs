//! The files segments are in: their names, and what is in the directory.
//!
//! Owns the naming rule and the removal of whole streams and of files a crash left half made. It never looks into a file.

use std::io;
use std::path::{Path, PathBuf};

use super::{Incarnation, StreamId, WalError};
use crate::file::FileSystem;

/// The directory of the segments within the database directory.
pub const WAL_DIRECTORY: &str = "wal";

/// Suffix of the file name of a spare: a file that is no segment of its stream yet, or no longer.
const SPARE_SUFFIX: &str = ".new";

/// The path of a segment of a stream, given the database directory.
#[must_use]
pub fn segment_path(dir: &Path, incarnation: Incarnation, stream: StreamId, segment: u32) -> PathBuf {
    dir.join(WAL_DIRECTORY).join(format!("{:08x}-{:04x}-{segment:08x}.wal", incarnation.0, stream.0))
}

/// The path of a spare of a stream. Its number has nothing to do with those of segments.
pub(crate) fn spare_path(dir: &Path, incarnation: Incarnation, stream: StreamId, spare: u32) -> PathBuf {
    let mut name = segment_path(dir, incarnation, stream, spare).into_os_string();
    name.push(SPARE_SUFFIX);
    PathBuf::from(name)
}

/// A segment as the directory shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFile {
    /// Its number within the stream, from 1.
    pub segment: u32,
    /// The path of its file.
    pub path: PathBuf,
    /// The length of the file in bytes, which is reserved in full from the start.
    pub bytes: u64,
}

/// The segments of one stream as the directory shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamFiles {
    /// The incarnation that wrote the stream.
    pub incarnation: Incarnation,
    /// The stream that it belongs to.
    pub stream: StreamId,
    /// The segments, in order.
    pub segments: Vec<SegmentFile>,
}

/// Parses a file name, when it is that of a segment.
fn parse_name(name: &str) -> Option<(Incarnation, StreamId, u32)> {
    let mut parts = name.strip_suffix(".wal")?.split('-');
    let incarnation = parse_hex(parts.next()?, 8)?;
    let stream = parse_hex(parts.next()?, 4)?;
    let segment = parse_hex(parts.next()?, 8)?;
    if parts.next().is_some() {
        return None;
    }
    Some((Incarnation(incarnation), StreamId(u16::try_from(stream).ok()?), segment))
}

/// A number in exactly so many lower-case hexadecimal digits: a name that is not the one we would write is not ours.
fn parse_hex(text: &str, digits: usize) -> Option<u32> {
    let ours = text.len() == digits && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    if ours { u32::from_str_radix(text, 16).ok() } else { None }
}

/// The names in the WAL directory of the database directory `dir`; none when there is no such directory.
fn names(fs: &dyn FileSystem, dir: &Path) -> Result<Vec<String>, WalError> {
    let wal = dir.join(WAL_DIRECTORY);
    match fs.list(&wal) {
        Ok(names) => Ok(names),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(WalError::io(&wal, "list")(error)),
    }
}

/// The numbers of the segments of one stream, in order.
pub(crate) fn list_segments(
    fs: &dyn FileSystem,
    dir: &Path,
    incarnation: Incarnation,
    stream: StreamId,
) -> Result<Vec<u32>, WalError> {
    let mut segments: Vec<u32> = names(fs, dir)?
        .iter()
        .filter_map(|name| parse_name(name))
        .filter(|found| (found.0, found.1) == (incarnation, stream))
        .map(|found| found.2)
        .collect();
    segments.sort_unstable();
    Ok(segments)
}

/// The streams whose segments are in the database directory `dir`, in order of incarnation and stream. Files of other
/// names are passed over.
///
/// # Errors
/// When the directory cannot be listed or a file not be opened.
pub fn list_streams(fs: &dyn FileSystem, dir: &Path) -> Result<Vec<StreamFiles>, WalError> {
    let mut found: Vec<_> = names(fs, dir)?.iter().filter_map(|name| parse_name(name)).collect();
    found.sort_unstable();
    let mut streams: Vec<StreamFiles> = Vec::new();
    for (incarnation, stream, segment) in found {
        let path = segment_path(dir, incarnation, stream, segment);
        let bytes = fs
            .open(&path, false)
            .and_then(|file| file.len())
            .map_err(WalError::io(&path, "find the length of"))?;
        let file = SegmentFile { segment, path, bytes };
        match streams.last_mut() {
            Some(last) if (last.incarnation, last.stream) == (incarnation, stream) => {
                last.segments.push(file);
            }
            _ => streams.push(StreamFiles { incarnation, stream, segments: vec![file] }),
        }
    }
    Ok(streams)
}

/// Removes the spares of streams that are no longer written, half made or not. No stream may be being written.
///
/// # Errors
/// When the directory cannot be listed or a file not be removed.
pub fn remove_leftovers(fs: &dyn FileSystem, dir: &Path) -> Result<(), WalError> {
    let wal = dir.join(WAL_DIRECTORY);
    for name in names(fs, dir)? {
        if name.strip_suffix(SPARE_SUFFIX).and_then(parse_name).is_some() {
            let path = wal.join(&name);
            fs.remove(&path).map_err(WalError::io(&path, "remove"))?;
        }
    }
    Ok(())
}

/// Removes a whole stream of an earlier incarnation, the oldest segment first. Crashed on the way, it leaves a stream that
/// begins later. Returns the bytes removed.
///
/// # Errors
/// When the directory cannot be listed or synced, or a file not be removed.
pub fn remove_stream(
    fs: &dyn FileSystem,
    dir: &Path,
    incarnation: Incarnation,
    stream: StreamId,
) -> Result<u64, WalError> {
    let mut bytes = 0;
    for segment in list_segments(fs, dir, incarnation, stream)? {
        bytes += remove_segment(fs, &segment_path(dir, incarnation, stream, segment))?;
    }
    Ok(bytes)
}

/// Removes one segment for good, so that the next may be removed: did a crash undo the removal of an older segment but not
/// that of a newer one, the stream would have a hole. Returns the bytes removed.
pub(crate) fn remove_segment(fs: &dyn FileSystem, path: &Path) -> Result<u64, WalError> {
    let bytes =
        fs.open(path, false).and_then(|file| file.len()).map_err(WalError::io(path, "find the length of"))?;
    fs.remove(path).map_err(WalError::io(path, "remove"))?;
    let wal = path.parent().unwrap_or(Path::new(""));
    fs.sync_dir(wal).map_err(WalError::io(wal, "sync the directory"))?;
    Ok(bytes)
}
