//! The files of the operating system.
//!
//! Owns the calls to the kernel and what is repeated of them: calls that a signal interrupted, the rest of short writes,
//! and zeros written by hand where the file system cannot reserve room. It never repeats a sync that failed: what that
//! would report is worth nothing (see the invariants of [`crate::file`]).
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "this is the one file that may call the operating system; everything else goes through `FileSystem`"
)]

use std::fmt;
use std::fs::{self, File as OsFile, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::Errno;

use super::{DirectoryLock, File, FileSystem};

#[cfg(target_os = "linux")]
use super::uring::{Ring, RingPool};

/// Number of zeros written at a time where room cannot be reserved.
const ZEROS_BYTES: usize = 1 << 20;

/// The files of the operating system.
///
/// A write that is to be synced goes to the kernel in one call through io_uring, unless the kernel has none or refuses it
/// (found out once, with the first such write); then, and from [`RealFiles::without_io_uring`], plain calls do the same.
#[derive(Clone)]
pub struct RealFiles {
    #[cfg(target_os = "linux")]
    rings: Option<RingPool>,
}

impl RealFiles {
    /// The files of the operating system, with io_uring where the kernel has it.
    #[must_use]
    pub fn new() -> RealFiles {
        RealFiles {
            #[cfg(target_os = "linux")]
            rings: Some(RingPool::new()),
        }
    }

    /// The files of the operating system by plain calls only.
    #[must_use]
    pub fn without_io_uring() -> RealFiles {
        RealFiles {
            #[cfg(target_os = "linux")]
            rings: None,
        }
    }

    /// Returns whether [`File::write_and_sync`] of the files opened from here uses io_uring. Asks the kernel for a ring
    /// the first time.
    #[must_use]
    pub fn uses_io_uring(&self) -> bool {
        #[cfg(target_os = "linux")]
        if let Some(rings) = &self.rings
            && let Some(ring) = rings.take()
        {
            rings.give_back(ring);
            return true;
        }
        false
    }

    fn wrap(&self, file: OsFile, path: &Path) -> Box<dyn File> {
        Box::new(RealFile {
            file,
            path: path.to_path_buf(),
            #[cfg(target_os = "linux")]
            rings: self.rings.clone(),
            #[cfg(target_os = "linux")]
            ring: None,
        })
    }
}

impl Default for RealFiles {
    fn default() -> RealFiles {
        RealFiles::new()
    }
}

impl fmt::Debug for RealFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RealFiles").finish_non_exhaustive()
    }
}

impl FileSystem for RealFiles {
    fn create(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        Ok(self.wrap(file, path))
    }

    fn open(&self, path: &Path, write: bool) -> io::Result<Box<dyn File>> {
        let file = OpenOptions::new().read(true).write(write).open(path)?;
        Ok(self.wrap(file, path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            other => other,
        }
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        // The current directory has no name of its own in a relative path.
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        OsFile::open(dir)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirectoryLock>> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match rustix::io::retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive))
        {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                // Who it is helps, but is only a help: the text may be missing or stale.
                let mut holder = String::new();
                let holder = match (&file).take(32).read_to_string(&mut holder) {
                    Ok(_) if !holder.trim().is_empty() => format!("process {}", holder.trim()),
                    _ => "another process".to_owned(),
                };
                return Err(io::Error::new(io::ErrorKind::WouldBlock, format!("{holder} holds it")));
            }
            Err(error) => return Err(error.into()),
        }
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Box::new(RealLock { path: path.to_path_buf(), _file: file }))
    }
}

/// The lock goes with the file descriptor, so even a killed process leaves none behind. The file itself stays: removing it
/// would let two processes hold locks on two files of that name.
#[derive(Debug)]
struct RealLock {
    path: PathBuf,
    _file: OsFile,
}

impl DirectoryLock for RealLock {
    fn path(&self) -> &Path {
        &self.path
    }
}

struct RealFile {
    file: OsFile,
    path: PathBuf,
    #[cfg(target_os = "linux")]
    rings: Option<RingPool>,
    /// The ring taken from `rings` with the first [`File::write_and_sync`], given back when the file is closed.
    #[cfg(target_os = "linux")]
    ring: Option<Ring>,
}

impl fmt::Debug for RealFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RealFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl RealFile {
    fn write_zeros_up_to(&mut self, len: u64) -> io::Result<()> {
        let mut at = self.len()?;
        let zeros = vec![0; ZEROS_BYTES];
        while at < len {
            let bytes = usize::try_from(len - at).map_or(ZEROS_BYTES, |rest| rest.min(ZEROS_BYTES));
            self.file.write_all_at(&zeros[..bytes], at)?;
            at += bytes as u64;
        }
        Ok(())
    }
}

impl File for RealFile {
    fn path(&self) -> &PathBuf {
        &self.path
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            match self.file.read_at(&mut bytes[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    #[cfg(target_os = "linux")]
    fn write_and_sync(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        use super::uring::Done;

        if self.ring.is_none() {
            self.ring = self.rings.as_ref().and_then(RingPool::take);
        }
        let done = match &mut self.ring {
            Some(ring) => ring.write_and_sync(&self.file, offset, bytes)?,
            None => Done::Written(0),
        };
        match done {
            Done::Synced => Ok(()),
            Done::Written(written) => {
                self.write_at(offset + written as u64, &bytes[written..])?;
                self.sync()
            }
            Done::RingLost(written) => {
                self.ring = None;
                self.rings = None;
                self.write_at(offset + written as u64, &bytes[written..])?;
                self.sync()
            }
        }
    }

    fn reserve(&mut self, len: u64) -> io::Result<()> {
        match rustix::io::retry_on_intr(|| rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, len))
        {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => self.write_zeros_up_to(len),
            Err(error) => Err(error.into()),
        }
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
}

#[cfg(target_os = "linux")]
impl Drop for RealFile {
    fn drop(&mut self) {
        if let (Some(rings), Some(ring)) = (&self.rings, self.ring.take()) {
            rings.give_back(ring);
        }
    }
}
