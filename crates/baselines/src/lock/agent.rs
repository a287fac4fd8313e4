//! An agent: the transactions of one thread, one after the other, and the locks of the one that runs.
//!
//! Owns: the requests of the agent, the locks that the running transaction holds, and those that it has inherited. Never:
//! releases a lock of a running transaction; touches the lock table for a lock that it has.
//!
//! Invariants: an agent has at most one request for each name; `present` lists the slots that have a request; a request
//! that waits is neither in the cache nor, if it is a new one, usable in its slot.

mod requests;

use std::sync::Arc;

use atrapos_partition::abort::Abort;
use atrapos_partition::schema::TableId;

use super::cache::Cache;
use super::mode::Mode;
use super::name::Name;
use super::pool::{Handle, Pool};
use super::queue::{Outcome, Patience, Wakes};
use super::request::Owner;
use super::{Deadlocks, KeyMode, KeyOrEnd, LockManager, TableMode};
use crate::primitives::Ordering;

/// Counts of what an agent has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockCounts {
    /// Locks requested from the lock table.
    pub acquired: u64,
    /// Locks taken over from an earlier transaction.
    pub reclaimed: u64,
    /// Requests that had to wait.
    pub waits: u64,
    /// Transactions of the agent that were chosen to break a cycle.
    pub victims: u64,
    /// Victims, of whichever agent, of the cycles that this one has found.
    pub cycles: u64,
}

/// One lock and its mode.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub enum Lockable<'a> {
    Database(TableMode),
    Table(TableId, TableMode),
    Key(TableId, KeyOrEnd<'a>, KeyMode),
}

/// The lock of a table, or of the database.
#[derive(Clone, Copy, Default)]
struct Slot {
    request: Option<Handle>,
    /// True if the running transaction has it; otherwise it is inherited, or has been invalidated.
    in_use: bool,
    /// The number of transactions in a row that have not used it.
    idle: u8,
}

/// A request that waits.
#[derive(Clone, Copy)]
struct Pending {
    request: Handle,
    name: Name,
    /// The place where it belongs when it is granted.
    place: Place,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Slot(usize),
    Cache,
    /// It has a place already, and gets a stronger mode.
    Upgrade,
}

/// The locks of one thread's transactions. See the module for what an operation has to lock.
///
/// After an error the transaction has to end: [`release_all`](Self::release_all), after its undo.
///
/// ```
/// use atrapos_baselines::lock::{KeyMode, KeyOrEnd, LockManager, LockOptions};
/// use atrapos_baselines::log::{Log, LogOptions, LogSink};
/// # struct Nowhere;
/// # impl LogSink for Nowhere {
/// #     fn write(&mut self, _: [&[u8]; 2]) -> std::io::Result<()> { Ok(()) }
/// # }
/// # let orders = atrapos_partition::schema::TableId(0);
/// # let log = Log::start(Nowhere, LogOptions::default())?;
/// let locks = LockManager::new(LockOptions::default());
/// let mut agent = locks.agent();
/// agent.begin(1);
/// // A scan that has visited `b` and found nothing behind it.
/// agent.lock(orders, KeyOrEnd::Key(b"b"), KeyMode::READ | KeyMode::PROTECT)?;
/// agent.lock(orders, KeyOrEnd::End, KeyMode::PROTECT)?;
/// // The insertion of `c`. The tree is asked again after the first lock whether the end is still what follows `c`.
/// agent.lock(orders, KeyOrEnd::End, KeyMode::INSERT)?;
/// let gap = agent.held(orders, KeyOrEnd::End).gap();
/// agent.lock(orders, KeyOrEnd::Key(b"c"), KeyMode::WRITE | gap)?;
/// // The commit, with early lock release: the answer to the client waits for the ticket, the next transaction does not.
/// let ticket = log.commit(b"redo: insert c")?;
/// agent.release_all();
/// log.wait(ticket)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Agent {
    manager: Arc<LockManager>,
    owner: Arc<Owner>,
    pool: Pool,
    cache: Cache,
    /// The lock of the database, and behind it those of the tables.
    slots: Vec<Slot>,
    present: Vec<usize>,
    pending: Option<Pending>,
    wakes: Wakes,
    counts: LockCounts,
}

// SAFETY: the requests that an agent's handles refer to are its own, wherever it is; others reach them under latches.
unsafe impl Send for Agent {}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("number", &self.owner.number).finish_non_exhaustive()
    }
}

impl Agent {
    pub(super) fn new(manager: Arc<LockManager>, number: u32) -> Agent {
        let waits_for_younger = manager.deadlocks == Deadlocks::Prevented;
        Agent {
            manager,
            owner: Arc::new(Owner::new(number, waits_for_younger)),
            pool: Pool::default(),
            cache: Cache::new(),
            slots: vec![Slot::default()],
            present: Vec::new(),
            pending: None,
            wakes: Wakes::new(),
            counts: LockCounts::default(),
        }
    }

    /// Begins a transaction. The older of two has the smaller stamp; one that is run again after a deadlock should keep its
    /// stamp, so that it is not chosen for ever.
    #[inline]
    pub fn begin(&mut self, stamp: u64) {
        debug_assert!(
            self.cache.len() == 0 && self.pending.is_none(),
            "the transaction before has not ended"
        );
        self.owner.stamp.store(stamp, Ordering::Relaxed);
    }

    /// Locks the whole database.
    ///
    /// # Errors
    /// Fails if the transaction has to abort to break a deadlock.
    pub fn lock_database(&mut self, mode: TableMode) -> Result<(), Abort> {
        let outcome = self.request_slot(0, mode.0, Patience::Waits);
        self.settle(outcome).map(drop)
    }

    /// Locks a table, and the database with the intention.
    ///
    /// # Errors
    /// Fails if the transaction has to abort to break a deadlock.
    pub fn lock_table(&mut self, table: TableId, mode: TableMode) -> Result<(), Abort> {
        self.lock_table_with(table, mode.0, Patience::Waits).map(drop)
    }

    /// Locks a key and the gap below it, each as `mode` says, and the table and the database with the intention.
    ///
    /// # Errors
    /// Fails if the transaction has to abort to break a deadlock.
    #[inline]
    pub fn lock(&mut self, table: TableId, key: KeyOrEnd<'_>, mode: KeyMode) -> Result<(), Abort> {
        self.lock_with(table, key, mode.0, Patience::Waits).map(drop)
    }

    /// Locks like [`lock`](Self::lock), but returns false instead of waiting. For callers that hold a latch of a tree.
    #[must_use]
    pub fn try_lock(&mut self, table: TableId, key: KeyOrEnd<'_>, mode: KeyMode) -> bool {
        self.lock_with(table, key, mode.0, Patience::Refuses).unwrap_or(false)
    }

    /// The mode in which the transaction has locked the key and the gap below it, be it by the lock of a table.
    #[must_use]
    pub fn held(&self, table: TableId, key: KeyOrEnd<'_>) -> KeyMode {
        let mut held = self.cache.find(Name::of_key(table, key)).map_or(KeyMode::NONE, |request| {
            let granted = request.granted.get();
            KeyMode(granted)
        });
        let above = [0, table.at() + 1].map(|slot| self.slot_mode(slot));
        for mode in [KeyMode::READ, KeyMode::PROTECT, KeyMode::WRITE, KeyMode::INSERT] {
            if above.iter().any(|above| above.covers_below(mode.0)) {
                held = held | mode;
            }
        }
        held
    }

    /// The mode in which the transaction has locked the table, or the database.
    #[doc(hidden)]
    #[must_use]
    pub fn held_table(&self, table: Option<TableId>) -> Option<TableMode> {
        let mode = self.slot_mode(table.map_or(0, |table| table.at() + 1));
        (!mode.is_none()).then_some(TableMode(mode))
    }

    /// Ends the transaction: releases its locks, or passes them on to the next transaction of this agent. A
    /// transaction that committed may call it before its log is durable (early lock release), if it and all that read
    /// its data are acknowledged only when it is.
    #[inline]
    pub fn release_all(&mut self) {
        if self.pending.is_some() {
            self.give_up();
        }
        while let Some(request) = self.cache.pop() {
            let latched = self.manager.latch(self.bucket_of(request.name.get()));
            latched.release(&request, &mut self.wakes);
            drop(latched);
            self.wake();
            self.pool.give_back(request);
        }
        let mut at = 0;
        while at < self.present.len() {
            let slot = self.present[at];
            if self.passes_on(slot) {
                at += 1;
            } else {
                self.release_slot(slot);
                self.present.swap_remove(at);
            }
        }
    }

    /// Returns counts of what the agent has done so far.
    #[must_use]
    pub fn counts(&self) -> LockCounts {
        self.counts
    }

    /// The number of key locks that the transaction holds.
    #[must_use]
    pub fn key_locks(&self) -> usize {
        self.cache.len()
    }

    /// Requests one lock, and none above it, without waiting for it. Returns true if it is granted; otherwise
    /// [`poll`](Self::poll) has to be called until it is. For tests that run several agents on one thread.
    #[doc(hidden)]
    pub fn start(&mut self, lockable: Lockable<'_>) -> bool {
        let outcome = match lockable {
            Lockable::Database(mode) => self.request_slot(0, mode.0, Patience::Waits),
            Lockable::Table(table, mode) => self.request_slot(table.at() + 1, mode.0, Patience::Waits),
            Lockable::Key(table, key, mode) => {
                self.request_key(Name::of_key(table, key), mode.0, Patience::Waits)
            }
        };
        match outcome {
            Outcome::Waits => self.search(),
            Outcome::Dies => drop(self.die()),
            Outcome::Granted | Outcome::Refused => {}
        }
        outcome == Outcome::Granted
    }

    /// The answer to a request that waits, if it is there.
    #[doc(hidden)]
    pub fn poll(&mut self) -> Option<Result<(), Abort>> {
        let answer = self.owner.signal.take()?;
        Some(self.finish(answer))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.release_all();
        while let Some(slot) = self.present.pop() {
            self.release_slot(slot);
        }
        self.manager.leave();
    }
}
