//! The central lock manager of the engine with strict two-phase locking.
//!
//! Owns: the lock table, the modes, the rules by which locks are granted, waiting for locks, and the search for deadlocks.
//! Never: knows a tree, a row or a log; releases a lock before [`Agent::release_all`].
//!
//! # What is locked
//! The database and each table, in the modes of hierarchical locking ([`TableMode`]); and each key together with the gap
//! below it, down to the next smaller key of the table ([`KeyMode`]). The gap below the end of a table belongs to a pseudo
//! key ([`KeyOrEnd::End`]). Key and gap are two independent parts of one lock: that is key-range locking (Lomet, "Key Range
//! Locking Strategies for Improved Concurrency", VLDB 1993) in the orthogonal form of Graefe, and was chosen over
//! ARIES/KVL because one request serves both parts of a scanned row, and because no lock is held for an instant only,
//! which would need reasoning about undo. A lock of a key says nothing about rows: absent keys can be locked.
//!
//! Locks of a transaction that is to be strictly serializable, ranges and absent rows included (`K` is a key, `N` the next greater
//! one in the tree, or the end of the table; all locks are held until the transaction ends):
//!
//! | operation                       | locks                                                                            |
//! |---------------------------------|----------------------------------------------------------------------------------|
//! | read of a row that is there     | `K: READ` (`K: WRITE` if it is going to change)                                    |
//! | read that finds nothing         | `K: READ`: insertions lock their key, so it stays absent                           |
//! | scan                            | each visited `K: READ \| PROTECT`, and `PROTECT` of the first key behind the range    |
//! | insertion of `K`                | `K: WRITE \| PROTECT \| INSERT`, `N: INSERT` before `K` is there and after           |
//! | removal of `K`                  | `K: WRITE \| PROTECT \| INSERT`, `N: PROTECT \| INSERT`                             |
//!
//! The next key is found without a lock, so after each lock on it the caller looks again whether it still is the next one, and
//! otherwise locks the one it finds then. A gap has its name from the key above it, so it matters who makes names and who takes
//! them away:
//! - An insertion divides a gap. Its transaction has the part below `K` for itself: nobody protects it as long as `K` may vanish by an
//!   undo, and nobody inserts there by the name of `K` before the insertion of `K` has its own right at the key that is the next one by
//!   then. (Where keys and locks are looked at under one latch, it is enough to take on `K` what is held on `N`, [`Agent::held`].)
//! - A removal joins two gaps. Its transaction has both for itself: a lock that somebody else had on the gap of `K` would be
//!   on nothing once `K` is gone, and one who is allowed to insert at `N` could remove or take back `N`, and with it the only trace
//!   that `K` has been there.
//!
//! # Speculative lock inheritance
//! Locks of tables and of the database are wanted by every transaction, in modes that go together. When a transaction ends, its
//! [`Agent`] keeps them for its next one (Johnson et al., "Improving OLTP Scalability using Speculative Lock
//! Inheritance", VLDB 2009): both steps are one compare-and-swap on a word of the request (`request`), and the lock table is
//! not touched. A transaction that needs a conflicting mode invalidates inherited locks that nobody uses. In the paper, only
//! locks whose latches are contended are passed on; here all are, because to pass one on costs less than to release it. A
//! lock that several transactions of the agent in a row have not used is released.
//!
//! # Structure
//! `name` hashes what is locked; `queue` has the buckets of the table, each with a `latch` and queues of requests that lie
//! in a `pool` of their agent; `signal` hands a lock over to the thread that waits for it; `search` breaks cycles; `cache`
//! holds what a transaction has locked.
//!
//! Invariants: two transactions never hold conflicting modes of one lock; a request is not overtaken by a conflicting
//! one that has come later, upgrades excepted; of each cycle of waiting transactions, the youngest is aborted with
//! [`AbortReason::Deadlock`](atrapos_partition::abort::AbortReason::Deadlock), and nobody else for this reason, unless cycles are prevented
//! ([`Deadlocks::Prevented`]), where whoever waits is older than all that it waits for; nothing here depends on time.

mod agent;
mod cache;
mod latch;
mod mode;
mod name;
mod pool;
mod queue;
mod request;
mod search;
mod signal;

#[cfg(all(test, loom))]
mod loom_models;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::primitives::Mutex;

pub use agent::{Agent, LockCounts, Lockable};
pub use mode::{KeyMode, TableMode};

use mode::Holders;
use queue::{Bucket, Latched};

/// A key of a table, or the end of it, as the upper boundary of a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrEnd<'a> {
    /// An encoded key.
    Key(&'a [u8]),
    /// The end of the table.
    End,
}

/// The treatment of transactions that wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadlocks {
    /// A cycle is found when its last transaction begins to wait.
    Found,
    /// There are none: a transaction waits for younger ones only, and is aborted where it would wait for an older one (*wait-die*:
    /// Rosenkrantz, Stearns and Lewis, "System Level Concurrency Control for Distributed Database Systems", TODS 1978). For
    /// transactions that wait in several lock managers, whose stamps are comparable and unique.
    Prevented,
}

/// The settings of a lock manager.
#[derive(Clone, Copy, Debug)]
pub struct LockOptions {
    /// The size of the lock table, rounded up to a power of two. Several times the number of locks that are held at once.
    pub buckets: usize,
    /// True if locks of tables and of the database are passed on to the next transaction of the same agent.
    pub inherit: bool,
    /// The treatment of transactions that wait for each other.
    pub deadlocks: Deadlocks,
}

impl Default for LockOptions {
    fn default() -> Self {
        LockOptions { buckets: 1 << 16, inherit: true, deadlocks: Deadlocks::Found }
    }
}

/// The lock manager. Each thread that runs transactions has an [`Agent`] of it.
pub struct LockManager {
    buckets: Box<[Bucket]>,
    /// The binary logarithm of the number of buckets.
    bucket_bits: u32,
    inherit: bool,
    deadlocks: Deadlocks,
    /// True if one thread at a time uses it and its agents: buckets are not latched.
    for_one_thread: bool,
    /// The number of searches for cycles so far; whoever holds it searches.
    searches: Mutex<u64>,
    agents: AtomicU32,
    agents_so_far: AtomicU32,
}

impl std::fmt::Debug for LockManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockManager").field("buckets", &self.buckets.len()).finish_non_exhaustive()
    }
}

impl LockManager {
    /// Makes a lock manager.
    #[must_use]
    pub fn new(options: LockOptions) -> Arc<LockManager> {
        LockManager::make(options, false)
    }

    /// Makes a lock manager that takes no latches.
    ///
    /// # Safety
    /// No two threads use it or its agents at the same time.
    #[cfg(not(loom))]
    pub(crate) unsafe fn for_one_thread(options: LockOptions) -> Arc<LockManager> {
        LockManager::make(options, true)
    }

    fn make(options: LockOptions, for_one_thread: bool) -> Arc<LockManager> {
        let buckets = options.buckets.clamp(2, 1 << 30).next_power_of_two();
        Arc::new(LockManager {
            buckets: (0..buckets).map(|_| Bucket::new()).collect(),
            bucket_bits: buckets.trailing_zeros(),
            inherit: options.inherit,
            deadlocks: options.deadlocks,
            for_one_thread,
            searches: Mutex::new(0),
            agents: AtomicU32::new(0),
            agents_so_far: AtomicU32::new(0),
        })
    }

    /// Makes an agent, for one thread at a time.
    ///
    /// # Panics
    /// If there are more agents than holders of a lock can be counted (65535).
    #[must_use]
    pub fn agent(self: &Arc<Self>) -> Agent {
        let others = self.agents.fetch_add(1, Ordering::Relaxed);
        assert!((others as usize) < Holders::MAX, "a lock manager has at most {} agents", Holders::MAX);
        Agent::new(Arc::clone(self), self.agents_so_far.fetch_add(1, Ordering::Relaxed))
    }

    /// Forgets an agent that has released everything.
    fn leave(&self) {
        self.agents.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes the latch of a bucket, unless nobody else can be there.
    #[inline(always)]
    fn latch(&self, bucket: u32) -> Latched<'_> {
        let bucket = &self.buckets[bucket as usize];
        // SAFETY: whoever has made it `for_one_thread` promises that nobody else is in the bucket.
        if self.for_one_thread { unsafe { bucket.enter() } } else { bucket.latch() }
    }
}

impl Drop for LockManager {
    fn drop(&mut self) {
        self.buckets.iter_mut().for_each(Bucket::free);
    }
}
