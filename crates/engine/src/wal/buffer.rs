//! The buffer in which one worker collects the records of what it commits, until its flusher takes them.
//!
//! The lock is held for the reading of the epoch and the copying of one record, or for the exchange of two vectors. It is
//! what makes "sealed" mean "complete" (see [`super`], invariant 1).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use atrapos_durability::wal::{Epoch, push_record};

use crate::planted::{Bug, planted};

/// See the module's introduction.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CommitBuffer {
    records: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    records: Vec<u8>,
    /// The epoch of the newest record, and where the records of that epoch begin.
    newest: Epoch,
    newest_begins: usize,
}

impl CommitBuffer {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // A panic in between could only be one of running out of memory, in which case the process ends.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends the record of a transaction. Returns its epoch.
    #[inline]
    pub(super) fn append(&self, epoch: &AtomicU64, changes: &[u8]) -> Epoch {
        let early = Epoch(epoch.load(Ordering::Relaxed));
        let mut waiting = self.lock();
        let epoch =
            if planted(Bug::EpochReadBeforeLock) { early } else { Epoch(epoch.load(Ordering::Relaxed)) };
        if epoch != waiting.newest {
            waiting.newest = epoch;
            waiting.newest_begins = waiting.records.len();
        }
        push_record(&mut waiting.records, epoch, changes);
        epoch
    }

    /// Takes the records of `sealed` and older epochs in exchange for the empty vector in `records`. The epoch must have been
    /// advanced beyond `sealed`; what was committed since stays.
    pub(super) fn take(&self, sealed: Epoch, records: &mut Vec<u8>) {
        debug_assert!(records.is_empty(), "only empty vectors are exchanged");
        let mut waiting = self.lock();
        std::mem::swap(&mut waiting.records, records);
        let begins = std::mem::take(&mut waiting.newest_begins);
        if waiting.newest > sealed {
            waiting.records.extend_from_slice(&records[begins..]);
            records.truncate(begins);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().records.is_empty()
    }

    /// Returns when no commit is under way that began before.
    pub(super) fn wait_for_commit(&self) {
        drop(self.lock());
    }
}

#[cfg(test)]
mod tests {
    use atrapos_durability::wal::Records;

    use super::*;

    fn epochs(records: &[u8]) -> Vec<u64> {
        Records::new(records).map(|record| record.map_or(0, |record| record.epoch.0)).collect()
    }

    #[test]
    fn what_was_committed_after_the_sealing_stays() {
        let (buffer, epoch) = (CommitBuffer::default(), AtomicU64::new(5));
        let mut taken = Vec::new();
        for at in [5, 5, 6, 6] {
            epoch.store(at, Ordering::Relaxed);
            buffer.append(&epoch, b"");
        }
        buffer.take(Epoch(5), &mut taken);
        assert_eq!(epochs(&taken), [5, 5]);
        assert!(!buffer.is_empty());
        taken.clear();
        buffer.append(&epoch, b"");
        buffer.take(Epoch(6), &mut taken);
        assert_eq!(epochs(&taken), [6, 6, 6]);
        taken.clear();
        buffer.take(Epoch(7), &mut taken);
        assert!(taken.is_empty() && buffer.is_empty());
    }
}
