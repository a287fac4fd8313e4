//! [`LockingClient`]: a thread's access to the engine, with the buffers that its transactions use again.
//!
//! Owns: the buffers, the lock manager's agent, and the age of the transaction. Never: is used by two threads.

use std::sync::Arc;

use atrapos_partition::abort::Abort;
use crossbeam_epoch::LocalHandle;

use super::engine::{STAMPS, Shared};
use super::transaction::LockingTransaction;
use super::undo::Undo;
use crate::lock::{Agent, LockCounts};
use crate::redo::{CommitLog, InMemory};
use crate::tree::record::{Header, RowBuffer};

/// A client of an engine. It stays on the thread that has created it, and runs one transaction after the other.
pub struct LockingClient {
    // Before `shared`: the handle must not be the last to know the collector.
    pub(super) handle: LocalHandle,
    pub(super) shared: Arc<Shared>,
    pub(super) agent: Agent,
    pub(super) buffers: Buffers,
    /// The age of the transaction.
    stamp: u64,
    /// True if the next transaction is another attempt of the last one.
    tries_again: bool,
}

/// Lists of a running transaction, in memory that the next one uses again.
#[derive(Default)]
pub(super) struct Buffers {
    pub(super) undo: Undo,
    /// The copy of the row that was read last.
    pub(super) row: RowBuffer,
    /// The key at which a scan goes on.
    pub(super) cursor: Vec<u8>,
    /// The next key that was found last.
    pub(super) next: Vec<u8>,
    /// The records of a leaf.
    pub(super) page: Vec<*mut Header>,
}

impl LockingClient {
    pub(super) fn new(shared: Arc<Shared>) -> LockingClient {
        let (handle, agent) = (shared.collector.register(), shared.locks.agent());
        let stamp = shared.take_stamps();
        LockingClient { shared, agent, handle, buffers: Buffers::default(), stamp, tries_again: false }
    }

    /// Begins a transaction.
    #[inline]
    pub fn begin(&mut self) -> LockingTransaction<'_> {
        if !std::mem::take(&mut self.tries_again) {
            self.stamp += 1;
            if self.stamp.is_multiple_of(STAMPS) {
                self.stamp = self.shared.take_stamps();
            }
        }
        self.begin_at(self.stamp)
    }

    /// Begins a transaction of an age.
    #[inline]
    pub(super) fn begin_at(&mut self, stamp: u64) -> LockingTransaction<'_> {
        self.agent.begin(stamp);
        let guard = self.handle.pin();
        LockingTransaction::new(self, guard)
    }

    /// Makes the next transaction another attempt of the last one: it is as old.
    pub fn try_again(&mut self) {
        self.tries_again = true;
    }

    /// Runs a procedure as a transaction once, and commits or aborts it.
    ///
    /// # Errors
    /// Fails if the procedure or one of its operations does.
    pub fn attempt<R>(
        &mut self,
        procedure: impl FnOnce(&mut LockingTransaction<'_>) -> Result<R, Abort>,
    ) -> Result<R, Abort> {
        self.attempt_to(procedure, &mut InMemory)
    }

    /// Runs a procedure like [`attempt`](Self::attempt), and logs what it changes.
    #[inline]
    pub(super) fn attempt_to<R>(
        &mut self,
        procedure: impl FnOnce(&mut LockingTransaction<'_>) -> Result<R, Abort>,
        log: &mut impl CommitLog,
    ) -> Result<R, Abort> {
        let mut transaction = self.begin();
        let result = procedure(&mut transaction)?;
        transaction.commit_to(log)?;
        Ok(result)
    }

    /// Returns counts of what the client's transactions have locked and waited for.
    #[must_use]
    pub fn lock_counts(&self) -> LockCounts {
        self.agent.counts()
    }
}

impl std::fmt::Debug for LockingClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockingClient").field("stamp", &self.stamp).finish_non_exhaustive()
    }
}
