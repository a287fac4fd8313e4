//! Errors of starting a runtime.

use thiserror::Error;

use super::{INBOX_SLOTS_MAX, WORKERS_MAX};
use crate::WorkerId;
use crate::ring::{RING_BYTES_MAX, RING_BYTES_MIN};

/// Reasons for which a runtime did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// No worker, or an absurd number.
    #[error("cannot start {workers} workers: choose from 1 to {WORKERS_MAX}, about one per core")]
    Workers {
        /// The number that was asked for.
        workers: usize,
    },
    /// The list of processing units does not match the workers.
    #[error("{cpus} processing units are given for {workers} workers: give one entry per worker, or no list")]
    Cpus {
        /// Entries in the list.
        cpus: usize,
        /// Workers asked for.
        workers: usize,
    },
    /// No thread to run workers.
    #[error("cannot run workers on 0 threads: choose at least 1, or leave the number to the machine")]
    Threads,
    /// An impossible size of the rings.
    #[error(
        "rings cannot have {bytes} bytes: choose a power of two from {RING_BYTES_MIN} to {RING_BYTES_MAX}"
    )]
    RingBytes {
        /// The size that was asked for.
        bytes: usize,
    },
    /// An impossible size of the inboxes.
    #[error("inboxes cannot have {slots} slots: choose a power of two from 2 to {INBOX_SLOTS_MAX}")]
    InboxSlots {
        /// The number that was asked for.
        slots: usize,
    },
    /// The operating system refused a thread.
    #[error(
        "the system refuses a thread for worker {worker} ({error}): start fewer workers or raise the limit on threads"
    )]
    Thread {
        /// The worker of the thread.
        worker: WorkerId,
        /// The error of the system.
        error: std::io::Error,
    },
}
