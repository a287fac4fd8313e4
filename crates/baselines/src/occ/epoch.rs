//! The global epoch, and the thread that advances it.
//!
//! Owns: the number. Never: lets it go back, or makes anybody wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_utils::CachePadded;

/// The time from one epoch to the next one, as in Silo.
pub const EPOCH_PERIOD: Duration = Duration::from_millis(40);

/// See the module's introduction. Epoch 0 has no transactions.
#[derive(Clone, Debug)]
pub(crate) struct Epoch(Arc<CachePadded<AtomicU64>>);

impl Epoch {
    pub(crate) fn new() -> Epoch {
        Epoch(Arc::new(CachePadded::new(AtomicU64::new(1))))
    }

    /// The epoch now. A commit reads it after a fence that follows its locks.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn advance(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// The thread that advances an epoch until it is dropped.
#[derive(Debug)]
pub(crate) struct Ticker {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    pub(crate) fn start(epoch: Epoch, period: Duration) -> Ticker {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let tick = move || {
            while !stopped.load(Ordering::Acquire) {
                thread::park_timeout(period);
                epoch.advance();
            }
        };
        // Without the thread the epoch stays, which nothing here depends on.
        let thread = thread::Builder::new().name("occ-epoch".to_owned()).spawn(tick).ok();
        Ticker { stop, thread }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It cannot have panicked, and there is nothing to do if it has.
            let _ = thread.join();
        }
    }
}
