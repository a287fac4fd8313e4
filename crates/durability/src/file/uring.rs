//! One call to the kernel for a write and the sync that follows it, by io_uring.
//!
//! Owns the rings and the unsafe code of handing the kernel a buffer. It never decides what a failure means: what was not
//! done is reported and left to plain calls. Invariant: while the kernel may still read a buffer, the call that lent it has
//! not returned.
#![expect(unsafe_code, reason = "the kernel is given addresses: io_uring has no safe interface")]
#![expect(clippy::disallowed_types, reason = "this belongs to `real`, the files of the operating system")]

use std::fs::File as OsFile;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};

use io_uring::{IoUring, Probe, opcode, squeue, types};

/// Greatest write by io_uring; longer ones go by plain calls: the length of one io_uring write has 32 bits, and the
/// kernel moves less than 2 GiB at a time.
const MAX_WRITE_BYTES: usize = 1 << 30;

const WRITE: u64 = 1;
const SYNC: u64 = 2;

/// Outcome of a write and its sync.
pub(super) enum Done {
    /// Both are done.
    Synced,
    /// The number of bytes written; the rest and the sync are to be done.
    Written(usize),
    /// The number of bytes written, as in `Written`; the ring is not to be used again.
    RingLost(usize),
}

/// The rings of one file system object, so that a file opened later takes over the ring of one that was closed.
#[derive(Clone)]
pub(super) struct RingPool {
    state: Arc<Mutex<PoolState>>,
}

struct PoolState {
    free: Vec<Ring>,
    /// The kernel has refused a ring: it is not asked again.
    refused: bool,
}

impl RingPool {
    pub(super) fn new() -> RingPool {
        RingPool { state: Arc::new(Mutex::new(PoolState { free: Vec::new(), refused: false })) }
    }

    /// A ring, or `None` when this kernel gives none (too old, forbidden by a sandbox, locked memory used up).
    pub(super) fn take(&self) -> Option<Ring> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ring) = state.free.pop() {
            return Some(ring);
        }
        if state.refused {
            return None;
        }
        match Ring::new() {
            Ok(ring) => Some(ring),
            Err(_) => {
                state.refused = true;
                None
            }
        }
    }

    pub(super) fn give_back(&self, ring: Ring) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).free.push(ring);
    }
}

/// One ring, used by one file at a time, with nothing in flight between calls.
pub(super) struct Ring {
    ring: IoUring,
}

impl Ring {
    fn new() -> io::Result<Ring> {
        let ring = IoUring::new(4)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Write::CODE) || !probe.is_supported(opcode::Fsync::CODE) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Ring { ring })
    }

    /// Writes `bytes` at `offset` and syncs the data of the file, as far as one call to the kernel does that.
    ///
    /// # Errors
    /// The error of the write or the sync.
    pub(super) fn write_and_sync(&mut self, file: &OsFile, offset: u64, bytes: &[u8]) -> io::Result<Done> {
        if bytes.is_empty() || bytes.len() > MAX_WRITE_BYTES {
            return Ok(Done::Written(0));
        }
        let fd = types::Fd(file.as_raw_fd());
        #[expect(clippy::cast_possible_truncation, reason = "at most MAX_WRITE_BYTES")]
        let write = opcode::Write::new(fd, bytes.as_ptr(), bytes.len() as u32)
            .offset(offset)
            .build()
            .flags(squeue::Flags::IO_LINK)
            .user_data(WRITE);
        let sync = opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build().user_data(SYNC);
        // SAFETY: `bytes` and `file` outlive the operations: below, this function returns only when the kernel has
        // reported the end of everything it has accepted, or has accepted nothing.
        let pushed = unsafe { self.ring.submission().push_multiple(&[write, sync]) };
        if pushed.is_err() {
            return Ok(Done::RingLost(0));
        }
        let accepted = loop {
            match self.ring.submit_and_wait(2) {
                Ok(accepted) => break accepted,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Nothing was accepted: an error after the kernel has accepted something is reported as a count. The
                // two entries stay in the ring, so it is thrown away.
                Err(_) => return Ok(Done::RingLost(0)),
            }
        };

        let mut write_result: Option<i32> = None;
        let mut sync_result: Option<i32> = None;
        let mut ended = 0;
        while ended < accepted {
            for end in self.ring.completion() {
                ended += 1;
                match end.user_data() {
                    WRITE => write_result = Some(end.result()),
                    _ => sync_result = Some(end.result()),
                }
            }
            if ended < accepted {
                // An error is a signal, or nothing that could be answered by returning: the kernel still has `bytes`.
                let _ = self.ring.submitter().submit_and_wait(1);
            }
        }

        let written = match write_result {
            None => 0,
            Some(result) if result < 0 => {
                let error = io::Error::from_raw_os_error(-result);
                if accepted == 2 && !is_refusal(&error) {
                    return Err(error);
                }
                return Ok(Done::RingLost(0));
            }
            Some(result) => result.unsigned_abs() as usize,
        };
        match sync_result {
            // Half of the pair is still in the ring: it must not be sent with the next one.
            _ if accepted < 2 => Ok(Done::RingLost(written)),
            // The link is cut by a short write; the sync was not tried.
            _ if written < bytes.len() => Ok(Done::Written(written)),
            Some(0) => Ok(Done::Synced),
            Some(result) => Err(io::Error::from_raw_os_error(-result)),
            None => Ok(Done::RingLost(written)),
        }
    }
}

/// Returns whether the kernel refused the request in favour of a plain call, so that the write has not failed.
fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted
            | io::ErrorKind::WouldBlock
            | io::ErrorKind::Unsupported
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::PermissionDenied
    ) || error.raw_os_error() == Some(rustix::io::Errno::CANCELED.raw_os_error())
}
