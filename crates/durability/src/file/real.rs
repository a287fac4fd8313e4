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

use std::fs::{self, File as OsFile, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
#[cfg(target_os = "linux")]
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::{Errno, ReadWriteFlags};

use super::{DirectoryLock, File, FileSystem};

/// Number of zeros written at a time where room cannot be reserved.
const ZEROS_BYTES: usize = 1 << 20;

/// The pieces that one call to the kernel takes (`IOV_MAX`).
const SLICES_MAX: usize = 1024;

/// The files of the operating system.
///
/// A write that is to be synced is one call to the kernel, where that has it; otherwise two.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFiles;

impl RealFiles {
    /// The files of the operating system.
    #[must_use]
    pub fn new() -> RealFiles {
        RealFiles
    }
}

fn wrap(file: OsFile, path: &Path) -> Box<dyn File> {
    Box::new(RealFile { file, path: path.to_path_buf() })
}

impl FileSystem for RealFiles {
    fn create(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        Ok(wrap(file, path))
    }

    fn open(&self, path: &Path, write: bool) -> io::Result<Box<dyn File>> {
        let file = OpenOptions::new().read(true).write(write).open(path)?;
        Ok(wrap(file, path))
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

#[derive(Debug)]
struct RealFile {
    file: OsFile,
    path: PathBuf,
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
    fn drop_cached(&self, len: u64) {
        // A hint: where it is refused, memory is taken as for any other file.
        let _ = rustix::fs::fadvise(&self.file, 0, NonZeroU64::new(len), rustix::fs::Advice::DontNeed);
    }

    #[cfg(target_os = "linux")]
    fn write_and_sync(&mut self, offset: u64, pieces: &[&[u8]]) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let (mut rest, mut at) = (slices.as_mut_slice(), offset);
        // Without the pieces that are empty.
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let slices = &rest[..rest.len().min(SLICES_MAX)];
            let write = || rustix::io::pwritev2(&self.file, slices, at, ReadWriteFlags::DSYNC);
            match rustix::io::retry_on_intr(write) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    at += written as u64;
                    IoSlice::advance_slices(&mut rest, written);
                }
                // A kernel or file system without it.
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    for slice in rest {
                        self.file.write_all_at(slice, at)?;
                        at += slice.len() as u64;
                    }
                    return self.sync();
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
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
