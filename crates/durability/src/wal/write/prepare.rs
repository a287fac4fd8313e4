//! Spares: files with durable room that are no segments yet. They get their header, and then their name.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};

use super::{Current, PAGE_BYTES, SegmentInfo, ZEROS};
use crate::file::{File, FileSystem};
use crate::wal::WalError;
use crate::wal::frame::{SEGMENT_HEADER_BYTES, SegmentHeader};

/// The bytes of zeros that are written at a time.
const FILL_BYTES: usize = 1 << 20;

/// The contents of a spare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// Nothing was written yet; it reads as zeros.
    Allocated,
    /// Zeros, which were written.
    Zeroed,
    /// An earlier segment.
    Reused,
}

/// A file that has its room, but not the name of a segment. It is not open: there may be many.
pub(super) struct Spare {
    path: PathBuf,
    pub(super) reserved: u64,
    pub(super) room: Room,
}

/// Makes a file with so many bytes of durable room.
pub(super) fn prepare(
    fs: &dyn FileSystem,
    path: PathBuf,
    reserved: u64,
    room: Room,
) -> Result<Spare, WalError> {
    let mut file = fs.create(&path).map_err(WalError::io(&path, "create"))?;
    let prepared = file
        .reserve(reserved)
        .map_err(WalError::io(&path, "reserve room for"))
        .and_then(|()| if room == Room::Zeroed { fill(&mut *file, &path, reserved) } else { Ok(()) })
        .and_then(|()| file.sync().map_err(WalError::io(&path, "sync")));
    match prepared {
        Ok(()) => {
            file.drop_cached(reserved);
            Ok(Spare { path, reserved, room })
        }
        Err(error) => {
            // The room is given back if that is possible; the first failure is the one to report.
            drop(file);
            let _ = fs.remove(&path);
            Err(error)
        }
    }
}

/// Writes zeros.
fn fill(file: &mut dyn File, path: &Path, bytes: u64) -> Result<(), WalError> {
    let zeros = vec![0; FILL_BYTES];
    let mut at = 0;
    while at < bytes {
        let part = (bytes - at).min(FILL_BYTES as u64);
        file.write_at(at, &zeros[..part as usize]).map_err(WalError::io(path, "fill"))?;
        at += part;
    }
    Ok(())
}

/// Makes so many files of `bytes` that are filled with zeros, for the paths that `path` tells; all of them, or none.
pub(super) fn fill_spares(
    fs: &dyn FileSystem,
    path: impl Fn(u32) -> PathBuf,
    count: u32,
    bytes: u64,
) -> Result<VecDeque<Spare>, WalError> {
    let mut spares = VecDeque::new();
    for number in 1..=count {
        match prepare(fs, path(number), bytes, Room::Zeroed) {
            Ok(spare) => spares.push_back(spare),
            Err(error) => {
                // The next opening removes what stays.
                spares.iter().for_each(|spare: &Spare| drop(fs.remove(&spare.path)));
                return Err(error);
            }
        }
    }
    Ok(spares)
}

/// Makes the segment at `segment`, which nothing needs any more, the spare at `path`. It may be overwritten once it is certain
/// not to be found as a segment again.
pub(super) fn reuse(
    fs: &dyn FileSystem,
    segment: &Path,
    path: PathBuf,
    reserved: u64,
) -> Result<Spare, WalError> {
    fs.rename(segment, &path).map_err(WalError::io(segment, "rename"))?;
    let wal = path.parent().unwrap_or(Path::new(""));
    if let Err(error) = fs.sync_dir(wal) {
        // Nobody may write to it now. Its room is given back if that is possible.
        let _ = fs.remove(&path);
        return Err(WalError::io(wal, "sync the directory")(error));
    }
    Ok(Spare { path, reserved, room: Room::Reused })
}

/// Returns whether a file was not there.
pub(super) fn is_not_found(error: &WalError) -> bool {
    matches!(error, WalError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

/// Makes a spare the segment at `path`. The header is durable before the name is.
pub(super) fn activate(
    fs: &dyn FileSystem,
    path: PathBuf,
    spare: Spare,
    header: SegmentHeader,
) -> Result<Current, WalError> {
    let Spare { path: spare_path, reserved, room } = spare;
    let mut file = fs.open(&spare_path, true).map_err(WalError::io(&spare_path, "open for writing"))?;
    let page = (PAGE_BYTES as u64).min(reserved) as usize;
    let zeros = if room == Room::Allocated { 0 } else { page - SEGMENT_HEADER_BYTES };
    file.write_and_sync(0, &[&header.encode(), &ZEROS[..zeros]])
        .map_err(WalError::io(&path, "write and sync"))?;
    fs.rename(&spare_path, &path).map_err(WalError::io(&path, "rename the prepared file to"))?;
    let wal = path.parent().unwrap_or(Path::new(""));
    fs.sync_dir(wal).map_err(WalError::io(wal, "sync the directory"))?;
    let info = SegmentInfo {
        segment: header.id.segment,
        newest_epoch: None,
        sealed: header.sealed,
        bytes: reserved,
    };
    Ok(Current { file, path, info, seed: header.id.seed(), length: SEGMENT_HEADER_BYTES as u64, room })
}
