//! [`OccClient`]: a thread's access to the engine, with the buffers that its transactions use again.
//!
//! Owns: the buffers, the last TID of the client, and the back-off between attempts. Never: is used by two threads.

use std::ptr::NonNull;
use std::sync::Arc;

use atrapos_partition::abort::{Abort, Advice};
use atrapos_partition::schema::TableId;
use crossbeam_epoch::LocalHandle;
use crossbeam_utils::CachePadded;

use super::engine::Shared;
use super::sets::{NodeRead, Read, Writes};
use super::statistics::Counters;
use super::transaction::OccTransaction;
use crate::redo::{CommitLog, InMemory};
use crate::tree::record::{Header, RowBuffer};

/// Rows that were read last, to be replaced without another search.
const REMEMBERED: usize = 4;

/// A client of an engine. It stays on the thread that has created it, and runs one transaction after the other.
pub struct OccClient {
    // Before `shared`: a handle that is dropped after its collector frees itself while it is borrowed.
    pub(super) handle: LocalHandle,
    pub(super) shared: Arc<Shared>,
    pub(super) counters: Arc<CachePadded<Counters>>,
    pub(super) buffers: Buffers,
    pub(super) last_tid: u64,
    random: u64,
}

/// Lists of a running transaction, in memory that the next one uses again.
#[derive(Default)]
pub(super) struct Buffers {
    pub(super) reads: Vec<Read>,
    pub(super) nodes: Vec<NodeRead>,
    pub(super) writes: Writes,
    /// The copy of the row that was read last.
    pub(super) row: RowBuffer,
    /// The key at which a scan goes on.
    pub(super) cursor: Vec<u8>,
    /// The records of the leaf that a scan is in.
    pub(super) page: Vec<*mut Header>,
    remembered: [Option<(TableId, NonNull<Header>)>; REMEMBERED],
    next_remembered: usize,
}

impl Buffers {
    /// Remembers the record of a row that is going to be replaced.
    #[inline]
    pub(super) fn remember(&mut self, table: TableId, record: NonNull<Header>) {
        self.remembered[self.next_remembered % REMEMBERED] = Some((table, record));
        self.next_remembered += 1;
    }

    /// The records of a table that were read last, the last one first.
    #[inline]
    pub(super) fn recent(&self, table: TableId) -> impl Iterator<Item = NonNull<Header>> {
        let last = self.next_remembered + REMEMBERED;
        let recent = (1..=REMEMBERED).filter_map(move |back| self.remembered[(last - back) % REMEMBERED]);
        recent.filter(move |(of, _)| *of == table).map(|(_, record)| record)
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.reads.clear();
        self.nodes.clear();
        self.writes.clear();
        self.remembered = [None; REMEMBERED];
    }
}

impl OccClient {
    pub(super) fn new(shared: Arc<Shared>) -> OccClient {
        let (handle, counters) = (shared.collector.register(), shared.counters.of_client());
        // Different for each client that is alive at once; all that depends on it is who tries again first.
        let random = (&raw const **counters).addr() as u64 | 1;
        OccClient { handle, shared, counters, buffers: Buffers::default(), last_tid: 0, random }
    }

    /// Begins a transaction.
    #[inline]
    pub fn begin(&mut self) -> OccTransaction<'_> {
        let guard = self.handle.pin();
        OccTransaction::new(self, guard)
    }

    /// Runs a procedure as a transaction and commits it; tries again, after a random time that grows with the number of
    /// attempts up to a bound, when it aborts for a reason with the advice [`Advice::Retry`]. The errors of the procedure
    /// are believed only if what it has read was there at one moment; it must not panic if it was not.
    ///
    /// # Errors
    /// Fails if the procedure does, or the transaction has to abort, for a reason with other advice.
    pub fn run<R>(
        &mut self,
        mut procedure: impl FnMut(&mut OccTransaction<'_>) -> Result<R, Abort>,
    ) -> Result<R, Abort> {
        for attempt in 0_u32.. {
            match self.attempt(&mut procedure, &mut InMemory) {
                Err(abort) if abort.reason().advice() == Advice::Retry => self.back_off(attempt),
                ended => return ended,
            }
        }
        unreachable!("a transaction is not tried four billion times")
    }

    pub(super) fn attempt<R>(
        &mut self,
        procedure: &mut impl FnMut(&mut OccTransaction<'_>) -> Result<R, Abort>,
        log: &mut impl CommitLog,
    ) -> Result<R, Abort> {
        let mut transaction = self.begin();
        match procedure(&mut transaction) {
            Ok(result) => transaction.commit_to(log).map(|()| result),
            Err(abort) => {
                let cause = transaction.validate().err().unwrap_or(abort);
                transaction.fail(&cause);
                Err(cause)
            }
        }
    }

    /// Waits for a random time, which is longer after more attempts.
    pub(super) fn back_off(&mut self, attempt: u32) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let rounds = self.random & ((64 << attempt.min(7)) - 1);
        for _ in 0..rounds {
            std::hint::spin_loop();
        }
        // Whoever is in the way may wait for this core.
        if attempt >= 2 {
            std::thread::yield_now();
        }
    }
}

impl std::fmt::Debug for OccClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OccClient").field("last_tid", &self.last_tid).finish_non_exhaustive()
    }
}
