//! Waiting inside tasks: which worker waits for which buffer, so that cycles are refused before they close.
//!
//! Owns: the graph. A task that delegates to another domain and blocks stops its own worker; if the other domain does the same in
//! the other direction, neither ever goes on. Such calls are rare and slow anyway, so one lock guards them all.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::inbox::Buffer;
use crate::sync::Arc;

/// The workers that wait, each for the server of a buffer.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    edges: Mutex<HashMap<u32, Arc<Buffer>>>,
}

/// The server of a buffer now.
fn server(buffer: &Buffer) -> u32 {
    // SAFETY: whoever holds a buffer holds the domains, which keep all their workers.
    unsafe { (*buffer.server()).index }
}

impl Waits {
    fn edges(&self) -> MutexGuard<'_, HashMap<u32, Arc<Buffer>>> {
        self.edges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a worker waits for a buffer, unless that would close a cycle. Returns whether it may wait.
    pub(crate) fn begin(&self, worker: u32, buffer: &Arc<Buffer>) -> bool {
        let mut edges = self.edges();
        let mut at = server(buffer);
        // A chain of waiting workers has no cycle yet, so it ends.
        loop {
            if at == worker {
                return false;
            }
            match edges.get(&at) {
                Some(next) => at = server(next),
                None => break,
            }
        }
        edges.insert(worker, Arc::clone(buffer));
        true
    }

    /// Notes that a worker goes on.
    pub(crate) fn end(&self, worker: u32) {
        self.edges().remove(&worker);
    }

    /// Returns whether a worker waits inside a task.
    pub(crate) fn is_waiting(&self, worker: u32) -> bool {
        self.edges().contains_key(&worker)
    }
}
