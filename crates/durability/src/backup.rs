//! Backup: copies a database that may be running, in this process or another, without its help.
//!
//! Owns the order of the copying. It never writes to the original, takes no lock on it, and verifies what it has copied, as
//! the original may write to a file while it is read: a segment that is not needed any more. The copy opens as the database
//! would after a crash at some moment while the backup ran.
//!
//! Invariants:
//! - Everything that was durable when the backup began is in the copy: the manifest is read first, and every stream is
//!   copied up to its end at a later moment. Streams copied at different moments only mean an older durable epoch, as
//!   recovery takes the oldest end.
//! - Until the copy is complete and durable it has no manifest, and a file that says that it is unfinished.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use thiserror::Error;

use crate::checkpoint::{CheckpointError, PartReader};
use crate::directory::{self, BACKUP_UNFINISHED, CHECKPOINT, Directory, DirectoryError, WAL, checkpoint_dir};
use crate::file::{File, FileSystem};
use crate::manifest::{Manifest, PartRecord};
use crate::memo::{Memo, SCHEME};
use crate::verify::{ATTEMPTS, named_streams, part_id, read_frames, read_manifest};
use crate::wal::{Epoch, Incarnation, StreamId, WalError};

/// Bytes copied at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Summary of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BackupReport {
    /// The copy.
    pub path: PathBuf,
    /// The incarnation of the original that was copied.
    pub incarnation: Incarnation,
    /// The number of the checkpoint copied, if there was one.
    pub checkpoint: Option<u32>,
    /// Number of checkpoint files copied.
    pub parts: u64,
    /// Their bytes.
    pub checkpoint_bytes: u64,
    /// Number of WAL segments copied.
    pub segments: u64,
    /// Their bytes.
    pub wal_bytes: u64,
    /// Number of attempts: a backup begins anew when the original published a checkpoint or was opened meanwhile.
    pub attempts: u32,
}

/// Reasons for which a backup failed. The copy, as far as it got, is marked as unfinished.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The original cannot be read.
    #[error("cannot back up: {0}")]
    Original(DirectoryError),
    /// The copy cannot be written.
    #[error("cannot write the backup: {0}")]
    Copy(DirectoryError),
    /// A checkpoint file of the original is damaged or cannot be read.
    #[error("cannot back up: {0}")]
    Checkpoint(#[from] CheckpointError),
    /// The WAL of the original is damaged or cannot be read.
    #[error("cannot back up: {0}")]
    Wal(#[from] WalError),
    /// The original kept changing.
    #[error("{} published checkpoints faster than it could be copied, {attempts} times; make the backup at a quieter time", path.display())]
    Restless {
        /// The original.
        path: PathBuf,
        /// Number of attempts.
        attempts: u32,
    },
}

/// Copies the database at `from` to `to`, which must not exist or be empty. The database may be open and working.
///
/// # Errors
/// [`BackupError`]. The copy then says of itself that it is unfinished, and must be removed.
pub fn backup(fs: Arc<dyn FileSystem>, from: &Path, to: &Path) -> Result<BackupReport, BackupError> {
    // The original is looked at first, so that nothing is left at `to` if there is nothing to copy.
    read_manifest(&*fs, from).map_err(BackupError::Original)?;
    let copy = Directory::prepare(Arc::clone(&fs), to).map_err(BackupError::Copy)?;
    mark_unfinished(&*fs, to).map_err(BackupError::Copy)?;
    copy.make_inner().map_err(BackupError::Copy)?;
    let (manifest, mut report) = copy_while_it_changes(&fs, from, to)?;
    copy_scheme(&fs, from, to)?;
    copy.publish(&manifest).map_err(BackupError::Copy)?;
    finish(&*fs, to).map_err(BackupError::Copy)?;
    report.path = to.to_owned();
    Ok(report)
}

/// Copies until an attempt has seen one state of the original from its beginning to its end.
fn copy_while_it_changes(
    fs: &Arc<dyn FileSystem>,
    from: &Path,
    to: &Path,
) -> Result<(Manifest, BackupReport), BackupError> {
    let mut failed: Option<BackupError> = None;
    for attempts in 1..=ATTEMPTS {
        let before = read_manifest(&**fs, from).map_err(BackupError::Original)?;
        if attempts > 1 {
            clear(&**fs, to).map_err(BackupError::Copy)?;
        }
        let copied = copy_once(fs, from, to, &before, attempts);
        let after = read_manifest(&**fs, from).map_err(BackupError::Original)?;
        let unchanged = same_files(&before, &after);
        match copied {
            Ok(report) if unchanged => return Ok((Manifest { closed: None, ..before }, report)),
            Ok(_) => failed = None,
            Err(error) if error.is_final() => return Err(error),
            // A file may vanish, or look torn, because the original works on it: what is still so the next time is real.
            Err(error) => {
                let repeated = failed.as_ref().is_some_and(|failed| failed.to_string() == error.to_string());
                if unchanged && repeated {
                    return Err(error);
                }
                failed = Some(error);
            }
        }
    }
    Err(failed.unwrap_or_else(|| BackupError::Restless { path: from.to_owned(), attempts: ATTEMPTS }))
}

/// Copies the scheme that the database has adapted itself to: a copy may be opened on another machine, and takes of it what fits there. One that cannot be read is
/// none, as for an opening.
fn copy_scheme(fs: &Arc<dyn FileSystem>, from: &Path, to: &Path) -> Result<(), BackupError> {
    match Memo::new(fs, from, SCHEME).read() {
        Ok(Some(scheme)) => {
            let copy = Memo::new(fs, to, SCHEME);
            copy.write(&scheme).map_err(copy_error(copy.path(), "write"))
        }
        _ => Ok(()),
    }
}

/// Returns whether two manifests name the same files.
fn same_files(one: &Manifest, other: &Manifest) -> bool {
    (one.incarnation, &one.past, &one.checkpoint) == (other.incarnation, &other.past, &other.checkpoint)
}

impl BackupError {
    /// Returns whether trying again cannot help.
    fn is_final(&self) -> bool {
        matches!(self, BackupError::Copy(_))
    }
}

fn copy_once(
    fs: &Arc<dyn FileSystem>,
    from: &Path,
    to: &Path,
    manifest: &Manifest,
    attempts: u32,
) -> Result<BackupReport, BackupError> {
    let mut report = BackupReport {
        path: to.to_owned(),
        incarnation: manifest.incarnation,
        checkpoint: manifest.checkpoint.as_ref().map(|checkpoint| checkpoint.number),
        parts: 0,
        checkpoint_bytes: 0,
        segments: 0,
        wal_bytes: 0,
        attempts,
    };
    let mut buffer = vec![0; PIECE_BYTES];
    if let Some(checkpoint) = &manifest.checkpoint {
        let target = checkpoint_dir(to, checkpoint.number);
        fs.create_dir(&target).map_err(copy_error(&target, "create directory"))?;
        for part in &checkpoint.parts {
            let source = checkpoint_dir(from, checkpoint.number).join(&part.name);
            copy_file(&**fs, &source, &target.join(&part.name), part.bytes, &mut buffer)?;
            check_part(fs, from, to, manifest, checkpoint.number, part)?;
            report.parts += 1;
            report.checkpoint_bytes += part.bytes;
        }
    }
    for stream in named_streams(manifest) {
        let original = read_frames(fs, from, manifest, stream, |_| Ok(()))?;
        for (source, len) in &original.segments {
            let Some(name) = source.file_name() else { continue };
            copy_file(&**fs, source, &to.join(WAL).join(name), *len, &mut buffer)?;
            report.segments += 1;
            report.wal_bytes += len;
        }
        check_stream(fs, to, manifest, stream, original.sealed)?;
    }
    // The directories of the checkpoint are synced by the publication.
    let wal = to.join(WAL);
    fs.sync_dir(&wal).map_err(copy_error(&wal, "sync"))?;
    Ok(report)
}

/// Checks the copy of a part; damage is reported of the original, from which it came.
fn check_part(
    fs: &Arc<dyn FileSystem>,
    from: &Path,
    to: &Path,
    manifest: &Manifest,
    number: u32,
    part: &PartRecord,
) -> Result<(), BackupError> {
    let id = part_id(manifest, number, part);
    let read =
        PartReader::open(Arc::clone(fs), &checkpoint_dir(to, number), id, part).and_then(|copy| copy.check());
    match read {
        Err(CheckpointError::Damaged { offset, what, .. }) => {
            let file = checkpoint_dir(from, number).join(&part.name);
            Err(CheckpointError::Damaged { file, offset, what }.into())
        }
        other => Ok(other?),
    }
}

/// Checks the copy of a stream: it seals what the original did when it was read.
fn check_stream(
    fs: &Arc<dyn FileSystem>,
    to: &Path,
    manifest: &Manifest,
    stream: (Incarnation, StreamId),
    sealed: Option<Epoch>,
) -> Result<(), BackupError> {
    let copy = read_frames(fs, to, manifest, stream, |_| Ok(()))?;
    if copy.sealed == sealed {
        return Ok(());
    }
    let what = "the copy of the stream ends before its original; the original changed meanwhile".to_owned();
    let file = copy.segments.last().map_or_else(|| to.join(WAL), |(last, _)| last.clone());
    Err(WalError::Damaged { file, offset: 0, what }.into())
}

/// Copies the first `len` bytes of a file and makes them durable. The copy gets the length of the original: segments have
/// theirs from the start, and one that is shorter is not believed.
fn copy_file(
    fs: &dyn FileSystem,
    source: &Path,
    target: &Path,
    len: u64,
    buffer: &mut [u8],
) -> Result<(), BackupError> {
    let original = |operation| {
        let wrap = DirectoryError::io(source, operation);
        move |error: io::Error| BackupError::Original(wrap(error))
    };
    let reader: Box<dyn File> = fs.open(source, false).map_err(original("open"))?;
    let reserved = reader.len().map_err(original("measure"))?;
    let mut writer = fs.create(target).map_err(copy_error(target, "create"))?;
    writer.reserve(reserved.max(len)).map_err(copy_error(target, "reserve room for"))?;
    let mut at = 0;
    while at < len {
        let wanted = usize::try_from(len - at).map_or(buffer.len(), |rest| rest.min(buffer.len()));
        let read = reader.read_at(at, &mut buffer[..wanted]).map_err(original("read"))?;
        if read < wanted {
            return Err(BackupError::Original(DirectoryError::Damaged {
                file: source.to_owned(),
                offset: at + read as u64,
                what: format!("the file ends here and should have {len} bytes"),
            }));
        }
        writer.write_at(at, &buffer[..wanted]).map_err(copy_error(target, "write"))?;
        at += wanted as u64;
    }
    writer.sync().map_err(copy_error(target, "sync"))
}

fn copy_error(path: &Path, operation: &'static str) -> impl FnOnce(io::Error) -> BackupError {
    let wrap = DirectoryError::io(path, operation);
    move |error| BackupError::Copy(wrap(error))
}

/// Leaves the file that says that the copy is unfinished.
fn mark_unfinished(fs: &dyn FileSystem, to: &Path) -> Result<(), DirectoryError> {
    let path = to.join(BACKUP_UNFINISHED);
    let mut file = fs.create(&path).map_err(DirectoryError::io(&path, "create"))?;
    let text = b"A backup is being written here, or one was cut off: then remove this directory.\n";
    file.write_at(0, text).map_err(DirectoryError::io(&path, "write"))?;
    file.sync().map_err(DirectoryError::io(&path, "sync"))?;
    fs.sync_dir(to).map_err(DirectoryError::io(to, "sync"))
}

/// Removes what an attempt before copied.
fn clear(fs: &dyn FileSystem, to: &Path) -> Result<(), DirectoryError> {
    let checkpoints = to.join(CHECKPOINT);
    for name in directory::list(fs, &checkpoints)?.unwrap_or_default() {
        directory::remove_tree(fs, &checkpoints.join(name))?;
    }
    let wal = to.join(WAL);
    for name in directory::list(fs, &wal)?.unwrap_or_default() {
        directory::remove_if_there(fs, &wal.join(name))?;
    }
    Ok(())
}

/// Removes the file that says that the copy is unfinished. The manifest is durable by now, so that the copy is complete
/// whether the file goes or stays.
fn finish(fs: &dyn FileSystem, to: &Path) -> Result<(), DirectoryError> {
    directory::remove_if_there(fs, &to.join(BACKUP_UNFINISHED))?;
    fs.sync_dir(to).map_err(DirectoryError::io(to, "sync"))
}
