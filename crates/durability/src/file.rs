//! The file layer: everything this crate and the engine do to files goes through [`FileSystem`] and [`File`], so that every
//! call can be made to fail and every crash can be played.
//!
//! Invariants a caller may rely on, and an implementation must keep:
//! - What was written is certain to survive a crash of the machine only after [`File::sync`] has returned without error.
//! - A name (created, renamed, removed) is certain to survive only after [`FileSystem::sync_dir`] of its directory.
//! - After an error of `sync` nothing is known about the unsynced bytes of that file: the caller must never sync again
//!   and believe the result.

mod model;
mod power;
mod real;

pub use model::{CallKind, Fault, FaultKind, ModelFiles, Times, is_crash};
pub use power::cut_power;
pub use real::RealFiles;

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};

/// A directory tree with files in it.
pub trait FileSystem: Debug + Send + Sync + 'static {
    /// Creates a file for reading and writing; one that is there already is an error.
    ///
    /// # Errors
    /// As the operating system says.
    fn create(&self, path: &Path) -> io::Result<Box<dyn File>>;

    /// Opens a file for reading and, when `write`, for writing.
    ///
    /// # Errors
    /// As the operating system says.
    fn open(&self, path: &Path, write: bool) -> io::Result<Box<dyn File>>;

    /// Gives a file another name, replacing what had that name.
    ///
    /// # Errors
    /// As the operating system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// As the operating system says.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Creates a directory; one that is there already is fine.
    ///
    /// # Errors
    /// As the operating system says.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As the operating system says.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// The names in a directory, in order.
    ///
    /// # Errors
    /// As the operating system says; `NotFound` when there is no such directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// As the operating system says.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes the database directory for this process; held until the guard is dropped. `WouldBlock` when another process
    /// (or another guard of this one) has it. `path` is the lock file: it is created where there is none, has the number of
    /// the process written in, and stays.
    ///
    /// # Errors
    /// As said, and as the operating system says.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirectoryLock>>;
}

/// Keeps others out of a database directory until it is dropped.
pub trait DirectoryLock: Debug + Send + Sync {
    /// The lock file.
    fn path(&self) -> &Path;
}

/// An open file. Positions are absolute; there is no cursor.
pub trait File: Debug + Send {
    /// The path of the file.
    fn path(&self) -> &PathBuf;

    /// Its length in bytes.
    ///
    /// # Errors
    /// As the operating system says.
    fn len(&self) -> io::Result<u64>;

    /// Returns whether it has no bytes.
    ///
    /// # Errors
    /// As the operating system says.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads up to `bytes.len()` bytes from `offset`; fewer only at the end of the file.
    ///
    /// # Errors
    /// As the operating system says.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize>;

    /// Writes all of `bytes` at `offset`, or fails (then any prefix of them may have been written).
    ///
    /// # Errors
    /// As the operating system says.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes everything written so far survive a crash of the machine.
    ///
    /// # Errors
    /// As the operating system says; see the module's invariants.
    fn sync(&mut self) -> io::Result<()>;

    /// Writes the pieces, one behind the other, and makes these bytes survive a crash of the machine, with what it takes to find
    /// them; not what other calls have written without syncing it. One call to the kernel where that is possible.
    ///
    /// # Errors
    /// As for [`write_at`](File::write_at) and [`sync`](File::sync).
    fn write_and_sync(&mut self, offset: u64, pieces: &[&[u8]]) -> io::Result<()> {
        self.write_at(offset, &pieces.concat())?;
        self.sync()
    }

    /// Hints that the first `len` bytes, which are durable, will not be read soon, so that the system keeps no memory for
    /// them. They can be read all the same.
    fn drop_cached(&self, _len: u64) {}

    /// Reserves room for the file to grow to `len` bytes, so that later writes within it cannot fail for want of space. Bytes
    /// never written read as zeros.
    ///
    /// # Errors
    /// As the operating system says, `StorageFull` above all.
    fn reserve(&mut self, len: u64) -> io::Result<()>;

    /// Cuts the file to `len` bytes.
    ///
    /// # Errors
    /// As the operating system says.
    fn truncate(&mut self, len: u64) -> io::Result<()>;
}
