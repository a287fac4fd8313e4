//! The database directory: who has it open, which of its files count, and how it goes from one state to the next.
//!
//! Owns the lock, the places of files, publication of manifests, and the removal of what no manifest names. It never reads
//! or writes a WAL segment or a checkpoint part; it only removes them. The layout is in `docs/directory-format.md`.
//!
//! Invariants:
//! - A file counts if the manifest names it (or its incarnation). Everything else that bears one of our names is a leftover
//!   of a crash, and is removed when the directory is opened.
//! - Whatever a manifest names is durable, names included, before the manifest is.
//! - After a failed publication nothing is known about the directory: it refuses further ones.

mod error;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use error::DirectoryError;

use atrapos_catalog::Definitions;

use crate::file::{DirectoryLock, FileSystem};
use crate::manifest::{MANIFEST, MANIFEST_NEW, Manifest};
use crate::wal::{self, Epoch, Incarnation, WalError};

/// The name of the lock file.
pub const LOCK: &str = "LOCK";
/// The name of the directory of WAL segments.
pub const WAL: &str = "wal";
/// The name of the directory of checkpoints.
pub const CHECKPOINT: &str = "checkpoint";
/// The name of the file that a backup has until it is complete.
pub const BACKUP_UNFINISHED: &str = "BACKUP-UNFINISHED";

/// A database directory, locked for this process until dropped.
#[derive(Debug)]
pub struct Directory {
    fs: Arc<dyn FileSystem>,
    path: PathBuf,
    /// Held for its drop.
    _lock: Box<dyn DirectoryLock>,
    /// Set by a publication that failed.
    stopped: AtomicBool,
}

impl Directory {
    /// Creates a database: the directory, which may be there if it is empty, and in it the manifest of incarnation 1 with
    /// `streams` streams and first epoch 1. After a crash within, or an error, calling it again goes on from there; unless
    /// the manifest was published already, which opening finds complete.
    ///
    /// # Errors
    /// [`DirectoryError::Exists`], [`DirectoryError::NotEmpty`], [`DirectoryError::UnfinishedBackup`],
    /// [`DirectoryError::InUse`], [`DirectoryError::Invalid`], [`DirectoryError::BadPath`] and [`DirectoryError::Io`].
    pub fn create(
        fs: Arc<dyn FileSystem>,
        path: &Path,
        schema: Definitions,
        streams: u16,
    ) -> Result<(Directory, Manifest), DirectoryError> {
        let manifest = Manifest {
            database: random_id(),
            incarnation: Incarnation(1),
            streams,
            past: Vec::new(),
            first_epoch: Epoch(1),
            checkpoint: None,
            closed: None,
            instance: None,
            schema,
        };
        if let Some(what) = manifest.contradiction() {
            return Err(DirectoryError::Invalid { path: path.to_owned(), what });
        }
        let directory = Directory::prepare(fs, path)?;
        directory.make_inner()?;
        directory.publish(&manifest)?;
        Ok((directory, manifest))
    }

    /// Makes and locks a directory for a database that is not there yet. What a creation that was cut off left is fine.
    pub(crate) fn prepare(fs: Arc<dyn FileSystem>, path: &Path) -> Result<Directory, DirectoryError> {
        if path.file_name().is_none() {
            let what = "it has no name of its own";
            return Err(DirectoryError::BadPath { path: path.to_owned(), what });
        }
        // Looked at before the lock is taken, which would leave a LOCK in a directory of someone else's.
        check_empty(&*fs, path)?;
        fs.create_dir(path).map_err(DirectoryError::io(path, "create directory"))?;
        let parent = parent(path);
        fs.sync_dir(&parent).map_err(DirectoryError::io(&parent, "sync"))?;
        let directory = Directory::lock(fs, path)?;
        check_empty(&*directory.fs, path)?;
        Ok(directory)
    }

    /// Makes the directories in it and makes their names durable.
    pub(crate) fn make_inner(&self) -> Result<(), DirectoryError> {
        for inner in [self.wal_dir(), self.checkpoints_dir()] {
            self.fs.create_dir(&inner).map_err(DirectoryError::io(&inner, "create directory"))?;
        }
        self.fs.sync_dir(&self.path).map_err(DirectoryError::io(&self.path, "sync"))
    }

    fn lock(fs: Arc<dyn FileSystem>, path: &Path) -> Result<Directory, DirectoryError> {
        let file = path.join(LOCK);
        match fs.lock(&file) {
            Ok(lock) => {
                Ok(Directory { fs, path: path.to_owned(), _lock: lock, stopped: AtomicBool::new(false) })
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(DirectoryError::InUse { path: path.to_owned(), pid: holder(&*fs, &file) })
            }
            Err(error) => Err(DirectoryError::io(&file, "lock")(error)),
        }
    }

    /// Opens a database: locks it, reads the manifest, and removes what the manifest does not name: a manifest that was
    /// not published, checkpoints and segments of incarnations that it does not name.
    ///
    /// # Errors
    /// [`DirectoryError::Missing`], [`DirectoryError::UnfinishedBackup`], [`DirectoryError::UnfinishedCreation`],
    /// [`DirectoryError::InUse`], [`DirectoryError::Newer`], [`DirectoryError::Damaged`] and [`DirectoryError::Io`].
    pub fn open(fs: Arc<dyn FileSystem>, path: &Path) -> Result<(Directory, Manifest), DirectoryError> {
        // Looked at first, so that a mistyped path does not get a lock file.
        missing(&*fs, path)?;
        let directory = Directory::lock(fs, path)?;
        let Some(manifest) = Manifest::read(&*directory.fs, path)? else {
            missing(&*directory.fs, path)?;
            return Err(DirectoryError::Missing { path: path.to_owned() });
        };
        // Both were durable before the manifest was. Without a checkpoint nobody misses the one of checkpoints (a copy made
        // by hand may lack empty directories), but one of segments that is gone took transactions with it.
        if list(&*directory.fs, &directory.wal_dir())?.is_none() {
            let what = "the directory is missing, with the WAL in it".to_owned();
            return Err(DirectoryError::Damaged { file: directory.wal_dir(), offset: 0, what });
        }
        directory.make_inner()?;
        let mut removed = false;
        for leftover in [MANIFEST_NEW, BACKUP_UNFINISHED] {
            removed |= remove_if_there(&*directory.fs, &path.join(leftover))?;
        }
        if removed {
            directory.fs.sync_dir(path).map_err(DirectoryError::io(path, "sync"))?;
        }
        directory.remove_unnamed_checkpoints(&manifest)?;
        directory.remove_unnamed_segments(&manifest)?;
        remove_spares(&*directory.fs, path)?;
        Ok((directory, manifest))
    }

    /// Returns whether there is a database at `path`: a directory with a manifest.
    ///
    /// # Errors
    /// [`DirectoryError::Io`] if that cannot be found out.
    pub fn exists(fs: &dyn FileSystem, path: &Path) -> Result<bool, DirectoryError> {
        Ok(list(fs, path)?.is_some_and(|names| names.iter().any(|name| name == MANIFEST)))
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file system it is in.
    pub fn file_system(&self) -> &Arc<dyn FileSystem> {
        &self.fs
    }

    /// The directory of WAL segments.
    pub fn wal_dir(&self) -> PathBuf {
        self.path.join(WAL)
    }

    fn checkpoints_dir(&self) -> PathBuf {
        self.path.join(CHECKPOINT)
    }

    /// The directory of a checkpoint.
    pub fn checkpoint_dir(&self, number: u32) -> PathBuf {
        checkpoint_dir(&self.path, number)
    }

    /// Makes an empty directory for the parts of a checkpoint that is not published yet; what an earlier attempt at the
    /// same number left is removed. Nothing is durable before [`publish`](Directory::publish).
    ///
    /// # Errors
    /// [`DirectoryError::Io`].
    pub fn begin_checkpoint(&self, number: u32) -> Result<PathBuf, DirectoryError> {
        let dir = self.checkpoint_dir(number);
        remove_tree(&*self.fs, &dir)?;
        self.fs.create_dir(&dir).map_err(DirectoryError::io(&dir, "create directory"))?;
        Ok(dir)
    }

    /// Makes `manifest` the manifest of the directory, durably. The parts of its checkpoint must be finished; their names
    /// are made durable here. One call at a time, please: the last one wins.
    ///
    /// After an error it is not known which manifest is there, so every later call fails; the database must stop, and the
    /// next opening finds either the one or the other.
    ///
    /// # Errors
    /// [`DirectoryError::Invalid`], after which the directory is as it was, [`DirectoryError::Io`] and
    /// [`DirectoryError::Stopped`].
    pub fn publish(&self, manifest: &Manifest) -> Result<(), DirectoryError> {
        if let Err(what) = manifest.encode() {
            return Err(DirectoryError::Invalid { path: self.path.clone(), what });
        }
        // Acquire and release: whoever sees the flag sees what was done before it was set. The flag stays up while a
        // publication is under way, so that one that panics counts as failed.
        if self.stopped.swap(true, Ordering::AcqRel) {
            return Err(DirectoryError::Stopped { path: self.path.join(MANIFEST) });
        }
        if let Some(checkpoint) = &manifest.checkpoint {
            for dir in [self.checkpoint_dir(checkpoint.number), self.checkpoints_dir()] {
                self.fs.sync_dir(&dir).map_err(DirectoryError::io(&dir, "sync"))?;
            }
        }
        manifest.write(&*self.fs, &self.path)?;
        self.stopped.store(false, Ordering::Release);
        Ok(())
    }

    /// Removes a checkpoint that the published manifest no longer names, or that was given up. One that is not there is
    /// fine.
    ///
    /// # Errors
    /// [`DirectoryError::Io`]; what is left is removed when the directory is opened next.
    pub fn remove_checkpoint(&self, number: u32) -> Result<(), DirectoryError> {
        if remove_tree(&*self.fs, &self.checkpoint_dir(number))? {
            let dir = self.checkpoints_dir();
            self.fs.sync_dir(&dir).map_err(DirectoryError::io(&dir, "sync"))?;
        }
        Ok(())
    }

    /// Removes the checkpoints that `manifest` does not name.
    fn remove_unnamed_checkpoints(&self, manifest: &Manifest) -> Result<(), DirectoryError> {
        let named = manifest.checkpoint.as_ref().map(|checkpoint| checkpoint.number);
        let names = list(&*self.fs, &self.checkpoints_dir())?.unwrap_or_default();
        for number in names.iter().filter_map(|name| checkpoint_number(name)) {
            if Some(number) != named {
                self.remove_checkpoint(number)?;
            }
        }
        Ok(())
    }

    /// Removes the segments of incarnations that `manifest`, which must be the published one, does not name, and returns
    /// how many bytes they had. For use when a checkpoint has made past incarnations unnecessary; opening does it, too.
    ///
    /// # Errors
    /// [`DirectoryError::Io`]; what is left is removed when the directory is opened next.
    pub fn remove_unnamed_segments(&self, manifest: &Manifest) -> Result<u64, DirectoryError> {
        let dir = self.wal_dir();
        let named: BTreeSet<u32> =
            manifest.past.iter().map(|past| past.incarnation.0).chain([manifest.incarnation.0]).collect();
        let mut bytes = 0;
        let mut removed = false;
        for name in list(&*self.fs, &dir)?.unwrap_or_default() {
            if segment_incarnation(&name).is_none_or(|incarnation| named.contains(&incarnation)) {
                continue;
            }
            let path = dir.join(&name);
            let file = self.fs.open(&path, false).map_err(DirectoryError::io(&path, "open"))?;
            bytes += file.len().map_err(DirectoryError::io(&path, "measure"))?;
            drop(file);
            self.fs.remove(&path).map_err(DirectoryError::io(&path, "remove"))?;
            removed = true;
        }
        if removed {
            self.fs.sync_dir(&dir).map_err(DirectoryError::io(&dir, "sync"))?;
        }
        Ok(bytes)
    }
}

/// Removes the spares of incarnations that have ended: files that were prepared, half made or not, or segments no longer.
fn remove_spares(fs: &dyn FileSystem, path: &Path) -> Result<(), DirectoryError> {
    wal::remove_leftovers(fs, path).map_err(|error| match error {
        WalError::Io { file, operation, source } => {
            let source = io::Error::new(source.kind(), source);
            DirectoryError::Io { file, operation, source }
        }
        other => {
            DirectoryError::Damaged { file: other.file().to_owned(), offset: 0, what: other.to_string() }
        }
    })
}

/// The directory of a checkpoint of the database at `path`.
pub fn checkpoint_dir(path: &Path, number: u32) -> PathBuf {
    path.join(CHECKPOINT).join(format!("{number:08x}"))
}

/// The number of a checkpoint from the name of its directory, if it is one.
fn checkpoint_number(name: &str) -> Option<u32> {
    let number = u32::from_str_radix(name, 16).ok()?;
    (format!("{number:08x}") == name).then_some(number)
}

/// The incarnation that a file in the directory of segments belongs to, if it bears the name of a segment.
fn segment_incarnation(name: &str) -> Option<u32> {
    let mut fields = name.strip_suffix(".wal")?.split('-');
    let mut field = |digits: usize| {
        let field = fields.next().filter(|field| field.len() == digits)?;
        field.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(field)
    };
    let (incarnation, _, _) = (field(8)?, field(4)?, field(8)?);
    fields.next().is_none().then(|| u32::from_str_radix(incarnation, 16).ok()).flatten()
}

/// The names in a directory, or nothing if there is no such directory.
pub(crate) fn list(fs: &dyn FileSystem, dir: &Path) -> Result<Option<Vec<String>>, DirectoryError> {
    match fs.list(dir) {
        Ok(names) => Ok(Some(names)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(DirectoryError::io(dir, "list")(error)),
    }
}

/// Removes a file; returns whether it was there.
pub(crate) fn remove_if_there(fs: &dyn FileSystem, path: &Path) -> Result<bool, DirectoryError> {
    match fs.remove(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(DirectoryError::io(path, "remove")(error)),
    }
}

/// Removes a directory of files; returns whether it was there.
pub(crate) fn remove_tree(fs: &dyn FileSystem, dir: &Path) -> Result<bool, DirectoryError> {
    let Some(names) = list(fs, dir)? else { return Ok(false) };
    for name in names {
        remove_if_there(fs, &dir.join(name))?;
    }
    fs.remove_dir(dir).map_err(DirectoryError::io(dir, "remove directory"))?;
    Ok(true)
}

/// The directory that a path's last name is in.
fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Refuses a directory with anything in it that a creation which was cut off does not leave.
fn check_empty(fs: &dyn FileSystem, path: &Path) -> Result<(), DirectoryError> {
    let names = list(fs, path)?.unwrap_or_default();
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    if has(MANIFEST) {
        return Err(DirectoryError::Exists { path: path.to_owned() });
    }
    if has(BACKUP_UNFINISHED) {
        return Err(DirectoryError::UnfinishedBackup { path: path.to_owned() });
    }
    for name in names {
        let found = match name.as_str() {
            LOCK | MANIFEST_NEW => None,
            // With anything in them they are those of a database that has lost its manifest.
            WAL | CHECKPOINT => list(fs, &path.join(&name))?
                .and_then(|inner| inner.first().map(|inner| format!("{name}/{inner}"))),
            _ => Some(name),
        };
        if let Some(found) = found {
            return Err(DirectoryError::NotEmpty { path: path.to_owned(), found });
        }
    }
    Ok(())
}

/// Says why there is no database, if there is none.
pub(crate) fn missing(fs: &dyn FileSystem, path: &Path) -> Result<(), DirectoryError> {
    if Directory::exists(fs, path)? {
        return Ok(());
    }
    let path = path.to_owned();
    match check_empty(fs, &path) {
        Err(DirectoryError::UnfinishedBackup { path }) => Err(DirectoryError::UnfinishedBackup { path }),
        Ok(()) if list(fs, &path)?.is_some_and(|names| !names.is_empty()) => {
            Err(DirectoryError::UnfinishedCreation { path })
        }
        Ok(()) | Err(DirectoryError::NotEmpty { .. }) => Err(DirectoryError::Missing { path }),
        // Another process published the manifest meanwhile.
        Err(DirectoryError::Exists { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The process that the lock file names.
fn holder(fs: &dyn FileSystem, lock: &Path) -> Option<u32> {
    let file = fs.open(lock, false).ok()?;
    let mut text = [0; 16];
    let read = file.read_at(0, &mut text).ok()?;
    std::str::from_utf8(&text[..read])
        .ok()?
        .trim_matches(|end: char| end.is_whitespace() || end == '\0')
        .parse()
        .ok()
}

/// A random number for a database. The hasher of the standard library is keyed by the operating system's randomness.
fn random_id() -> u128 {
    let half = |salt: u64| {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u64(salt);
        u128::from(hasher.finish())
    };
    half(1) << 64 | half(2)
}
