//! The buffer in which one worker collects the records of its commits, until its flusher takes them.
//!
//! A full buffer refuses records, so that a stalled device does not exhaust the memory.
//!
//! The lock is held for the reading of the epoch and the copying of one record, or for the exchange of two vectors. It
//! ensures that sealed epochs are complete (see [`super`], invariant 1).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use atrapos_durability::wal::{Epoch, push_record};
use atrapos_partition::planted::{Bug, planted};
use atrapos_runtime::prefetch_to_write;

/// Bytes that are asked for ahead of a record, at most.
const AHEAD_MAX: usize = 1024;

/// See the module's introduction.
#[derive(Debug)]
#[repr(align(128))]
pub struct CommitBuffer {
    records: Mutex<Waiting>,
    /// The bytes from which on it is full: it exceeds them by at most one record, and by those that it must take.
    bytes_max: usize,
}

/// The result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Its epoch.
    pub(super) epoch: Epoch,
    /// True if the buffer has become half full.
    pub(super) is_filling: bool,
}

/// The refusal of a record, since the buffer is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// The epoch of the newest record in the buffer: when it is durable, there is room.
    pub(super) newest: Epoch,
}

#[derive(Debug, Default)]
struct Waiting {
    records: Vec<u8>,
    /// The epoch of the newest record, and the offset at which the records of that epoch begin.
    newest: Epoch,
    newest_begins: usize,
}

impl CommitBuffer {
    /// Creates an empty buffer that takes so many bytes.
    pub(super) fn new(bytes_max: usize) -> CommitBuffer {
        CommitBuffer { records: Mutex::default(), bytes_max: bytes_max.max(1) }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Under the lock only an allocation can fail, which ends the process.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends the record of a transaction, unless the buffer is full and the record is not one that `must` be taken.
    #[inline]
    pub(super) fn append(&self, epoch: &AtomicU64, changes: &[u8], must: bool) -> Result<Appended, Full> {
        let early = Epoch(epoch.load(Ordering::Relaxed));
        if planted(Bug::EpochReadBeforeLock) {
            // Extends the window that the planted bug opens, so that the test hits it.
            std::thread::yield_now();
        }
        let mut waiting = self.lock();
        let epoch =
            if planted(Bug::EpochReadBeforeLock) { early } else { Epoch(epoch.load(Ordering::Relaxed)) };
        let before = waiting.records.len();
        if before >= self.bytes_max && !must {
            return Err(Full { newest: waiting.newest });
        }
        if epoch != waiting.newest {
            waiting.newest = epoch;
            waiting.newest_begins = waiting.records.len();
        }
        push_record(&mut waiting.records, epoch, changes);
        let (half, len) = (self.bytes_max / 2, waiting.records.len());
        let room = waiting.records.spare_capacity_mut();
        let (next, next_max) = (room.as_ptr().cast(), room.len().min(AHEAD_MAX));
        drop(waiting);
        // The lines that a record as long as this one takes next: the flusher has read them on another core since they were written last,
        // and the release of the lock would wait until this core may write them.
        prefetch_to_write(next, next_max.min(len - before));
        Ok(Appended { epoch, is_filling: before <= half && len > half })
    }

    /// Takes the records of `sealed` and older epochs in exchange for the empty vector in `records`. The epoch must
    /// have been advanced beyond `sealed`; records committed since stay.
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

    /// Returns true if there are no records.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().records.is_empty()
    }

    /// Waits until no commit that began before is under way.
    pub(super) fn wait_for_commit(&self) {
        drop(self.lock());
    }
}

#[cfg(test)]
mod tests {
    use atrapos_durability::wal::Records;

    use std::sync::Barrier;

    use super::*;

    fn epochs(records: &[u8]) -> Vec<u64> {
        Records::new(records).map(|record| record.map_or(0, |record| record.epoch.0)).collect()
    }

    #[test]
    fn what_was_committed_after_the_sealing_stays() {
        let (buffer, epoch) = (CommitBuffer::new(1 << 20), AtomicU64::new(5));
        let mut taken = Vec::new();
        for at in [5, 5, 6, 6] {
            epoch.store(at, Ordering::Relaxed);
            buffer.append(&epoch, b"", false).unwrap();
        }
        buffer.take(Epoch(5), &mut taken);
        assert_eq!(epochs(&taken), [5, 5]);
        assert!(!buffer.is_empty());
        taken.clear();
        buffer.append(&epoch, b"", false).unwrap();
        buffer.take(Epoch(6), &mut taken);
        assert_eq!(epochs(&taken), [6, 6, 6]);
        taken.clear();
        buffer.take(Epoch(7), &mut taken);
        assert!(taken.is_empty() && buffer.is_empty());
    }

    #[test]
    fn a_full_buffer_refuses_until_it_is_taken() {
        let (buffer, epoch) = (CommitBuffer::new(100), AtomicU64::new(5));
        let append =
            || buffer.append(&epoch, &[0; 28], false).map(|appended| (appended.epoch.0, appended.is_filling));
        assert_eq!((append(), append(), append()), (Ok((5, false)), Ok((5, true)), Ok((5, false))));
        assert_eq!((append(), append()), (Err(Full { newest: Epoch(5) }), Err(Full { newest: Epoch(5) })));
        epoch.store(6, Ordering::Relaxed);
        assert_eq!(append(), Err(Full { newest: Epoch(5) }), "what there is room for is in no newer epoch");
        let mut taken = Vec::new();
        buffer.take(Epoch(5), &mut taken);
        assert_eq!(epochs(&taken), [5, 5, 5]);
        // A record that is longer than all the room is taken by an empty buffer.
        assert!(buffer.append(&epoch, &[0; 1000], false).is_ok_and(|appended| appended.is_filling));
        assert_eq!(append(), Err(Full { newest: Epoch(6) }));
    }

    /// Runs threads that commit while another seals epochs. Returns true if a record came after its epoch had been
    /// sealed.
    fn comes_late(commit: impl Fn(&CommitBuffer, &AtomicU64) + Sync) -> bool {
        const ROUNDS: u64 = 20_000;
        // The buffer is bounded, since commits may be faster than the thread that checks them.
        let (buffer, epoch) = (CommitBuffer::new(1 << 16), AtomicU64::new(1));
        let (ended, begun) = (AtomicU64::new(0), Barrier::new(3));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    begun.wait();
                    while ended.load(Ordering::Relaxed) == 0 {
                        commit(&buffer, &epoch);
                    }
                });
            }
            let mut late = false;
            let (mut taken, mut before) = (Vec::new(), 0);
            begun.wait();
            for _ in 0..ROUNDS {
                let sealed = epoch.fetch_add(1, Ordering::SeqCst);
                buffer.take(Epoch(sealed), &mut taken);
                late |= epochs(&taken).iter().any(|epoch| *epoch <= before);
                taken.clear();
                before = sealed;
            }
            ended.store(1, Ordering::Relaxed);
            late
        })
    }

    /// Commits a record, unless there is no room.
    fn commit(buffer: &CommitBuffer, epoch: &AtomicU64) {
        if buffer.append(epoch, b"", false).is_err() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn nothing_follows_an_epoch_that_was_sealed() {
        assert!(!comes_late(commit));
    }

    #[cfg(debug_assertions)]
    #[test]
    fn planted_reading_the_epoch_before_the_lock_is_caught() {
        let commit = |buffer: &CommitBuffer, epoch: &AtomicU64| {
            atrapos_partition::planted::with(Bug::EpochReadBeforeLock, || commit(buffer, epoch));
        };
        // One run may miss the race, or on a loaded machine have nobody commit meanwhile; many do not.
        assert!((0..1_000).any(|_| comes_late(commit)));
    }
}
