//! The place that the log is written to, as the daemon sees it.
//!
//! Owns: the interface. Never: retries what has failed: after a failed sync nobody knows what is on the disk.

use std::io;

/// A place to which the log is appended. The daemon alone calls it.
pub trait LogSink: Send + 'static {
    /// Appends both parts, the first one first, and makes them durable. The second one may be empty.
    ///
    /// # Errors
    /// Fails if that is not known to have happened to all of it. The log is not written any more then.
    fn write(&mut self, parts: [&[u8]; 2]) -> io::Result<()>;
}
