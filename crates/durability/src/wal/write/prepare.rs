//! Preparing segments: a file gets its durable room first, then its header, and its name last.

use std::io;
use std::path::{Path, PathBuf};

use super::{Current, SegmentInfo};
use crate::file::{File, FileSystem};
use crate::wal::WalError;
use crate::wal::frame::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::wal::segment::spare_path;

/// A segment that has its room but no name yet.
pub(super) struct Spare {
    pub(super) file: Box<dyn File>,
    pub(super) reserved: u64,
}

/// Makes a file with durable room for the segment that will be at `path`.
pub(super) fn prepare(fs: &dyn FileSystem, path: &Path, reserved: u64) -> Result<Spare, WalError> {
    let spare = spare_path(path);
    let mut file = match fs.create(&spare) {
        // Left by a preparation that failed, or found too short: no part of the stream.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs.remove(&spare).map_err(WalError::io(&spare, "remove"))?;
            fs.create(&spare)
        }
        other => other,
    }
    .map_err(WalError::io(&spare, "create"))?;
    let prepared = file
        .reserve(reserved)
        .map_err(WalError::io(&spare, "reserve room for"))
        .and_then(|()| file.sync().map_err(WalError::io(&spare, "sync")));
    match prepared {
        Ok(()) => Ok(Spare { file, reserved }),
        Err(error) => {
            // The room is given back if that is possible; the first failure is the one to report.
            drop(file);
            let _ = fs.remove(&spare);
            Err(error)
        }
    }
}

/// Makes a prepared file the segment at `path`. The header is durable before the name is.
pub(super) fn activate(
    fs: &dyn FileSystem,
    path: PathBuf,
    spare: Spare,
    header: SegmentHeader,
) -> Result<Current, WalError> {
    let mut file = spare.file;
    file.write_and_sync(0, &[&header.encode()]).map_err(WalError::io(&path, "write and sync"))?;
    fs.rename(&spare_path(&path), &path).map_err(WalError::io(&path, "rename the prepared file to"))?;
    let wal = path.parent().unwrap_or(Path::new(""));
    fs.sync_dir(wal).map_err(WalError::io(wal, "sync the directory"))?;
    let info = SegmentInfo {
        segment: header.id.segment,
        newest_epoch: None,
        sealed: header.sealed,
        bytes: spare.reserved,
    };
    Ok(Current { file, path, info, seed: header.id.seed(), length: SEGMENT_HEADER_BYTES as u64 })
}
