//! Places that the log is written to.
//!
//! Owns: the interface, and the file. Never: retries what has failed: after a failed sync nobody knows what is on the disk.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::path::Path;

/// A place to which the log is appended. The daemon alone calls it.
pub trait LogSink: Send + 'static {
    /// Appends both parts, the first one first. Each may be empty.
    ///
    /// # Errors
    /// Fails if not everything could be written. The log is not written any more then.
    fn append(&mut self, parts: [&[u8]; 2]) -> io::Result<()>;

    /// Makes what was appended durable.
    ///
    /// # Errors
    /// Fails if that is not known to have happened. The log is not written any more then.
    fn sync(&mut self) -> io::Result<()>;
}

/// A file that the log is appended to.
#[derive(Debug)]
pub struct FileSink {
    file: File,
}

impl FileSink {
    /// Creates a file that does not exist, and makes its name durable.
    ///
    /// # Errors
    /// Fails if the file exists or cannot be created.
    pub fn create(path: &Path) -> io::Result<FileSink> {
        let file = OpenOptions::new().append(true).create_new(true).open(path)?;
        if let Some(directory) = path.parent() {
            let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
            File::open(directory)?.sync_all()?;
        }
        Ok(FileSink { file })
    }
}

impl LogSink for FileSink {
    fn append(&mut self, parts: [&[u8]; 2]) -> io::Result<()> {
        let mut slices = parts.map(IoSlice::new);
        let mut rest = &mut slices[..];
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match self.file.write_vectored(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => IoSlice::advance_slices(&mut rest, bytes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }
}
