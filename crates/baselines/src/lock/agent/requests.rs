//! The requests of an agent: from the inherited locks and the cache to the lock table, and the wait for an answer.
//!
//! Owns: nothing of its own. Never: looks at a request of another agent.
//!
//! Invariant: a lock above comes before the locks below it; each is asked for where that is cheapest, in the slots and the cache
//! first.

use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::schema::TableId;

use super::super::search;
use super::super::signal::Answer;
use super::{Agent, Handle, KeyOrEnd, Mode, Name, Outcome, Patience, Pending, Place, Slot, TableMode};
use crate::planted::{Bug, planted};

/// An inherited lock is released when this many transactions in a row have not used it. To keep one costs a few instructions for
/// each transaction, to request it again some hundred and a latch that others want, too.
const IDLE_MAX: u8 = 16;

impl Agent {
    /// Returns what is left to do for an outcome: true if the lock is granted, perhaps after waiting.
    #[inline(always)]
    pub(super) fn settle(&mut self, outcome: Outcome) -> Result<bool, Abort> {
        match outcome {
            Outcome::Granted => Ok(true),
            Outcome::Refused => Ok(false),
            Outcome::Waits => self.wait().map(|()| true),
            Outcome::Dies => Err(self.die()),
        }
    }

    #[inline(always)]
    pub(super) fn lock_with(
        &mut self,
        table: TableId,
        key: KeyOrEnd<'_>,
        mode: Mode,
        patience: Patience,
    ) -> Result<bool, Abort> {
        // A request for nothing would be taken for one that waits.
        if mode.is_none() {
            return Ok(true);
        }
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
    pub(super) fn lock_table_with(
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
    pub(super) fn slot_mode(&self, slot: usize) -> Mode {
        match self.slots.get(slot) {
            Some(Slot { request: Some(request), in_use: true, .. }) => request.granted.get(),
            _ => Mode::NONE,
        }
    }

    #[inline(always)]
    pub(super) fn bucket_of(&self, name: Name) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "there are at most 2^30 buckets")]
        let bucket = name.bucket(self.manager.bucket_bits) as u32;
        bucket
    }

    /// Requests the lock of a key.
    #[inline(always)]
    pub(super) fn request_key(&mut self, name: Name, mode: Mode, patience: Patience) -> Outcome {
        if let Some(request) = self.cache.find(name) {
            return self.strengthen(request, name, mode, patience);
        }
        let request = self.pool.take();
        let outcome = self.acquire(request, name, mode, Place::Cache, patience);
        if outcome.is_refusal() {
            self.pool.give_back(request);
        }
        outcome
    }

    /// Requests the lock of a slot: of a table or of the database.
    #[inline(never)]
    pub(super) fn request_slot(&mut self, slot: usize, mode: Mode, patience: Patience) -> Outcome {
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
        self.manager.latch(self.bucket_of(name)).release(&request, &mut self.wakes);
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
        if outcome.is_refusal() {
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
        let latched = self.manager.latch(bucket);
        let outcome = latched.acquire(&request, &self.owner, (name, bucket), mode, patience);
        drop(latched);
        self.counts.acquired += 1;
        match outcome {
            Outcome::Granted => self.put(request, name, place),
            Outcome::Waits => self.pending = Some(Pending { request, name, place }),
            Outcome::Refused | Outcome::Dies => {}
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
        let outcome = self.manager.latch(bucket).upgrade(&request, bucket, mode, patience, &mut self.wakes);
        self.wake();
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
    pub(super) fn search(&mut self) {
        let Some(pending) = self.pending else { return };
        if self.owner.waits_for_younger {
            return;
        }
        if planted(Bug::UpgradeNotSearched) && pending.place == Place::Upgrade {
            return;
        }
        let bucket = self.bucket_of(pending.name);
        if search::holders_wait(&self.manager, &self.owner, bucket) {
            self.counts.cycles += search::break_cycles(&self.manager, &self.owner, bucket, &mut self.wakes);
            self.wake();
        }
    }

    /// Returns the reason for which a transaction aborts that may not wait.
    #[cold]
    pub(super) fn die(&mut self) -> Abort {
        self.counts.victims += 1;
        Abort::because(
            AbortReason::Deadlock,
            "a transaction would have waited for an older one, and they could have waited for each other; run it again",
        )
    }

    /// Takes note of the answer to the pending request.
    pub(super) fn finish(&mut self, answer: Answer) -> Result<(), Abort> {
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
    pub(super) fn give_up(&mut self) {
        let Some(pending) = self.pending else { return };
        let bucket = self.bucket_of(pending.name);
        let latched = self.manager.latch(bucket);
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
    pub(super) fn wake(&mut self) {
        if !self.wakes.is_empty() {
            self.wakes.drain(..).for_each(|thread| thread.unpark());
        }
    }

    /// Passes the lock of a slot on to the next transaction, if that is allowed and nobody waits for it.
    #[inline(always)]
    pub(super) fn passes_on(&mut self, slot: usize) -> bool {
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
    pub(super) fn release_slot(&mut self, slot: usize) {
        let Some(request) = self.slots[slot].request.take() else { return };
        self.slots[slot] = Slot::default();
        let latched = self.manager.latch(self.bucket_of(request.name.get()));
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
