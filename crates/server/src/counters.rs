//! Counters of a server since it started.
//!
//! Owns: counting. Never: decides anything by a count.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of a server's connections; statements are not among it, so that sessions share no counter.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Connections taken from sockets.
    pub(crate) connections: Count,
    /// Sessions begun.
    pub(crate) sessions: Count,
    /// Sessions that are served on the thread of a worker.
    pub(crate) beside_workers: Count,
    /// Log-ins that failed.
    pub(crate) failed_logins: Count,
    /// Clients refused for want of a place.
    pub(crate) too_many: Count,
    /// Cancel requests.
    pub(crate) cancel_requests: Count,
}
