//! An agent: the transactions of one thread, one after the other, and the locks of the one that runs.
//!
//! Owns: the requests of the agent, the locks that the running transaction holds, and those that it has inherited. Never:
//! releases a lock of a running transaction; touches the lock table for a lock that it has.
//!
//! Invariants: an agent has at most one request for each name; `present` lists the slots that have a request; a request
//! that waits is neither in the cache nor, if it is a new one, usable in its slot.

use std::sync::Arc;

use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::schema::TableId;

use super::cache::Cache;
use super::mode::Mode;
use super::name::Name;
use super::planted::{Bug, planted};
use super::pool::{Handle, Pool};
use super::queue::{Outcome, Patience, Wakes};
use super::request::Owner;
use super::signal::Answer;
use super::{KeyMode, KeyOrEnd, LockManager, TableMode, search};
use crate::primitives::Ordering;

/// An inherited lock is released when this many transactions in a row have not used it. To keep one costs a few instructions for
/// each transaction, to request it again some hundred and a latch that others want, too.
const IDLE_MAX: u8 = 16;

/// What an agent has done so far.
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
    /// Whether the running transaction has it; otherwise it is inherited, or has been invalidated.
    in_use: bool,
    /// The number of transactions in a row that have not used it.
    idle: u8,
}

/// A request that waits.
#[derive(Clone, Copy)]
struct Pending {
    request: Handle,
    name: Name,
    /// Where it belongs when it is granted.
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
        Agent {
            manager,
            owner: Arc::new(Owner::new(number)),
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
            let latched = self.manager.bucket(self.bucket_of(request.name.get())).latch();
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

    /// What the agent has done so far.
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
        if outcome == Outcome::Waits {
            self.search();
        }
        outcome == Outcome::Granted
    }

    /// The answer to a request that waits, if it is there.
    #[doc(hidden)]
    pub fn poll(&mut self) -> Option<Result<(), Abort>> {
        let answer = self.owner.signal.take()?;
        Some(self.finish(answer))
    }

    /// Returns what is left to do for an outcome: true if the lock is granted, perhaps after waiting.
    #[inline(always)]
    fn settle(&mut self, outcome: Outcome) -> Result<bool, Abort> {
        match outcome {
            Outcome::Granted => Ok(true),
            Outcome::Refused => Ok(false),
            Outcome::Waits => self.wait().map(|()| true),
        }
    }

    #[inline(always)]
    fn lock_with(
        &mut self,
        table: TableId,
        key: KeyOrEnd<'_>,
        mode: Mode,
        patience: Patience,
    ) -> Result<bool, Abort> {
        let intention = TableMode::intention(mode);
        let mut above = self.slot_mode(table.at() + 1);
        // Both are looked at: an inherited lock of the table may be stronger than what the database is locked for.
        if !(above.covers(intention) && self.slot_mode(0).covers(intention)) {
            match self.lock_table_with(table, intention, patience)? {
                Some(held) => above = held,
                None => return Ok(false),
            }
        }
        if above.covers_below(mode) {
            return Ok(true);
        }
        let outcome = self.request_key(Name::of_key(table, key), mode, patience);
        self.settle(outcome)
    }

    /// Locks a table. Returns the mode that is held on it, or on the database if that makes a lock of the table needless;
    /// nothing if the lock is refused.
    fn lock_table_with(
        &mut self,
        table: TableId,
        mode: Mode,
        patience: Patience,
    ) -> Result<Option<Mode>, Abort> {
        let database = self.lock_slot_with(0, TableMode::intention(mode), patience)?;
        match database {
            Some(above) if !above.covers_below(mode) => self.lock_slot_with(table.at() + 1, mode, patience),
            _ => Ok(database),
        }
    }

    /// Locks a slot. Returns the mode that is held on it; nothing if the lock is refused.
    #[inline(always)]
    fn lock_slot_with(&mut self, slot: usize, mode: Mode, patience: Patience) -> Result<Option<Mode>, Abort> {
        if let Some(Slot { request: Some(request), in_use, idle }) = self.slots.get_mut(slot) {
            let held = request.granted.get();
            if held.covers(mode) && (*in_use || request.reclaim()) {
                self.counts.reclaimed += u64::from(!*in_use);
                (*in_use, *idle) = (true, 0);
                return Ok(Some(held));
            }
        }
        let outcome = self.request_slot(slot, mode, patience);
        Ok(if self.settle(outcome)? { Some(self.slot_mode(slot)) } else { None })
    }

    /// The mode that the running transaction has in a slot.
    #[inline(always)]
    fn slot_mode(&self, slot: usize) -> Mode {
        match self.slots.get(slot) {
            Some(Slot { request: Some(request), in_use: true, .. }) => request.granted.get(),
            _ => Mode::NONE,
        }
    }

    #[inline(always)]
    fn bucket_of(&self, name: Name) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "there are at most 2^30 buckets")]
        let bucket = name.bucket(self.manager.bucket_bits) as u32;
        bucket
    }

    /// Requests the lock of a key.
    #[inline(always)]
    fn request_key(&mut self, name: Name, mode: Mode, patience: Patience) -> Outcome {
        if let Some(request) = self.cache.find(name) {
            return self.strengthen(request, name, mode, patience);
        }
        let request = self.pool.take();
        let outcome = self.acquire(request, name, mode, Place::Cache, patience);
        if outcome == Outcome::Refused {
            self.pool.give_back(request);
        }
        outcome
    }

    /// Requests the lock of a slot: of a table or of the database.
    #[inline(never)]
    fn request_slot(&mut self, slot: usize, mode: Mode, patience: Patience) -> Outcome {
        let name = match slot.checked_sub(1).map(u16::try_from) {
            Some(Ok(table)) => Name::of_table(TableId(table)),
            _ => Name::DATABASE,
        };
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, Slot::default());
        }
        let Slot { request: Some(request), in_use, .. } = self.slots[slot] else {
            let request = self.pool.take();
            return self.acquire_slot(request, name, mode, slot, patience);
        };
        if in_use {
            return self.strengthen(request, name, mode, patience);
        }
        if !request.reclaim() {
            // Another agent has invalidated it; the latch, which comes next, says that it is done with it.
            self.forget_slot(slot);
            return self.acquire_slot(request, name, mode, slot, patience);
        }
        if request.granted.get().covers(mode) {
            self.counts.reclaimed += 1;
            self.slots[slot] = Slot { request: Some(request), in_use: true, idle: 0 };
            return Outcome::Granted;
        }
        // What is inherited is too weak. The transaction has no claim to it, so it does not hold on to it while it waits
        // for more, as an upgrade would: that would make deadlocks.
        self.forget_slot(slot);
        self.manager.bucket(self.bucket_of(name)).latch().release(&request, &mut self.wakes);
        self.wake();
        self.acquire_slot(request, name, mode, slot, patience)
    }

    /// Requests the lock of an empty slot.
    fn acquire_slot(
        &mut self,
        request: Handle,
        name: Name,
        mode: Mode,
        slot: usize,
        patience: Patience,
    ) -> Outcome {
        let outcome = self.acquire(request, name, mode, Place::Slot(slot), patience);
        if outcome == Outcome::Refused {
            self.pool.give_back(request);
        }
        outcome
    }

    #[inline(always)]
    fn acquire(
        &mut self,
        request: Handle,
        name: Name,
        mode: Mode,
        place: Place,
        patience: Patience,
    ) -> Outcome {
        debug_assert!(self.pending.is_none(), "an agent waits for one lock at a time");
        let bucket = self.bucket_of(name);
        let latched = self.manager.bucket(bucket).latch();
        let outcome = latched.acquire(&request, &self.owner, (name, bucket), mode, patience);
        drop(latched);
        self.counts.acquired += 1;
        match outcome {
            Outcome::Granted => self.put(request, name, place),
            Outcome::Waits => self.pending = Some(Pending { request, name, place }),
            Outcome::Refused => {}
        }
        outcome
    }

    /// Asks for a mode of a lock that is held.
    #[inline(always)]
    fn strengthen(&mut self, request: Handle, name: Name, mode: Mode, patience: Patience) -> Outcome {
        if request.granted.get().covers(mode) {
            return Outcome::Granted;
        }
        let bucket = self.bucket_of(name);
        let outcome = self.manager.bucket(bucket).latch().upgrade(&request, bucket, mode, patience);
        self.counts.acquired += 1;
        if outcome == Outcome::Waits {
            self.pending = Some(Pending { request, name, place: Place::Upgrade });
        }
        outcome
    }

    /// Puts a granted request where it is found again.
    #[inline(always)]
    fn put(&mut self, request: Handle, name: Name, place: Place) {
        match place {
            Place::Cache => self.cache.insert(name, request),
            Place::Slot(slot) => {
                self.slots[slot] = Slot { request: Some(request), in_use: true, idle: 0 };
                self.present.push(slot);
            }
            Place::Upgrade => {}
        }
    }

    /// Waits for the answer to the pending request.
    #[cold]
    #[inline(never)]
    fn wait(&mut self) -> Result<(), Abort> {
        let answer = match self.owner.signal.spin() {
            Some(answer) => answer,
            None => {
                self.search();
                self.owner.signal.park()
            }
        };
        self.finish(answer)
    }

    /// Breaks the cycles that the pending request closes.
    fn search(&mut self) {
        let Some(pending) = self.pending else { return };
        if planted(Bug::UpgradeNotSearched) && pending.place == Place::Upgrade {
            return;
        }
        let bucket = self.bucket_of(pending.name);
        if search::holders_wait(&self.manager, &self.owner, bucket) {
            self.counts.cycles += search::break_cycles(&self.manager, &self.owner, bucket, &mut self.wakes);
            self.wake();
        }
    }

    /// Takes note of the answer to the pending request.
    fn finish(&mut self, answer: Answer) -> Result<(), Abort> {
        self.counts.waits += 1;
        let Some(Pending { request, name, place }) = self.pending.take() else { return Ok(()) };
        match answer {
            Answer::Granted => {
                self.put(request, name, place);
                Ok(())
            }
            Answer::Victim => {
                if place != Place::Upgrade {
                    self.pool.give_back(request);
                }
                self.counts.victims += 1;
                Err(Abort::because(
                    AbortReason::Deadlock,
                    "transactions waited for each other's locks, and this one was the youngest; run it again",
                ))
            }
        }
    }

    /// Takes back a request that waits. It may have been answered meanwhile.
    #[cold]
    fn give_up(&mut self) {
        let Some(pending) = self.pending else { return };
        let bucket = self.bucket_of(pending.name);
        let latched = self.manager.bucket(bucket).latch();
        if let Some(request) = self.owner.waits_with(bucket) {
            latched.withdraw(request, &mut self.wakes);
        }
        drop(latched);
        self.wake();
        if let Some(answer) = self.owner.signal.take() {
            // Granted, it is released with the others; otherwise it is gone.
            let _ = self.finish(answer);
        }
    }

    #[inline(always)]
    fn wake(&mut self) {
        if !self.wakes.is_empty() {
            self.wakes.drain(..).for_each(|thread| thread.unpark());
        }
    }

    /// Passes the lock of a slot on to the next transaction, if that is allowed and nobody waits for it.
    #[inline(always)]
    fn passes_on(&mut self, slot: usize) -> bool {
        let slot = &mut self.slots[slot];
        let Some(request) = slot.request else { return false };
        if !slot.in_use {
            slot.idle += 1;
            return slot.idle < IDLE_MAX;
        }
        slot.in_use = false;
        self.manager.inherit && request.granted.get().is_shared_on_table() && request.pass_on()
    }

    /// Releases the lock of a slot, unless another agent has invalidated it.
    fn release_slot(&mut self, slot: usize) {
        let Some(request) = self.slots[slot].request.take() else { return };
        self.slots[slot] = Slot::default();
        let latched = self.manager.bucket(self.bucket_of(request.name.get())).latch();
        if !request.is_invalid() {
            latched.release(&request, &mut self.wakes);
        }
        drop(latched);
        self.wake();
        self.pool.give_back(request);
    }

    fn forget_slot(&mut self, slot: usize) {
        self.slots[slot] = Slot::default();
        self.present.retain(|present| *present != slot);
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
