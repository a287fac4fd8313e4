//! Locks that are given up, requests that are taken back, and who is granted something because of it.
//!
//! Owns the end of every lock and every request. It never makes a request wait.

use hashbrown::hash_map::EntryRef;

use super::{
    KeyBuf, KeyLock, LockMode, LockTable, LockTarget, LockTicket, RangeWaiter, TxnId, Waiter, contains,
    more_exclusive,
};

impl LockTable {
    /// A request waits no more.
    pub(super) fn forget_asked(&mut self, owner: TxnId, rank: u64) {
        self.waiting -= 1;
        let Some(asked) = self.asked.get_mut(&owner) else { return };
        asked.retain(|asked| asked.rank != rank);
        if asked.is_empty() {
            self.asked.remove(&owner);
        }
    }

    /// Gives up everything in `targets` that `owner` holds here, and reports in `granted` the tickets of the
    /// requests that could be granted because of it, in the order in which they were granted.
    pub fn release<'a>(
        &mut self,
        owner: TxnId,
        targets: impl Iterator<Item = &'a LockTarget> + Clone,
        granted: &mut Vec<LockTicket>,
    ) {
        // Two passes: everything is given up before anything is granted, so that nobody is granted a key only to
        // find the next one of the same owner still held.
        let mut anybody_waits = !self.range_waiters.is_empty();
        for target in targets.clone() {
            match target {
                LockTarget::Key(key) => {
                    if let EntryRef::Occupied(mut entry) = self.keys.entry_ref(key) {
                        let lock = entry.get_mut();
                        if lock.holders.remove(owner) == Some(LockMode::Exclusive) {
                            self.exclusive -= 1;
                        }
                        if lock.is_unused() {
                            entry.remove();
                        } else {
                            anybody_waits |= !lock.queue.is_empty();
                        }
                    }
                }
                LockTarget::Range { lower, upper } => {
                    self.ranges.retain(|held| {
                        !(held.owner == owner && held.lower == *lower && held.upper == *upper)
                    });
                    anybody_waits = anybody_waits || !self.keys.is_empty();
                }
            }
        }
        if self.tangled {
            self.reorder();
            self.grant_everywhere(granted);
        } else if anybody_waits {
            for target in targets {
                self.grant_around(target, granted);
            }
        }
    }

    /// Takes back a request that is still waiting. Returns whether it was there; tickets that could be granted
    /// because it is gone are reported in `granted`.
    pub fn cancel(
        &mut self,
        owner: TxnId,
        target: &LockTarget,
        ticket: LockTicket,
        granted: &mut Vec<LockTicket>,
    ) -> bool {
        let is_it = |waiter: &Waiter| waiter.owner == owner && waiter.ticket == ticket;
        let found = match target {
            LockTarget::Key(key) => self.keys.get_mut(key).and_then(|lock| {
                let at = lock.queue.iter().position(is_it)?;
                lock.queue.remove(at)
            }),
            LockTarget::Range { .. } => {
                let at = self.range_waiters.iter().position(|range| is_it(&range.waiter));
                at.map(|at| self.range_waiters.remove(at).waiter)
            }
        };
        let Some(waiter) = found else { return false };
        self.forget_asked(owner, waiter.rank);
        if let LockTarget::Key(key) = target
            && self.keys.get(key).is_some_and(KeyLock::is_unused)
        {
            self.keys.remove(key);
        }
        if self.tangled {
            self.reorder();
            self.grant_everywhere(granted);
        } else {
            self.grant_around(target, granted);
        }
        true
    }

    /// Grants what can be granted now that something around `target` was given up.
    pub(super) fn grant_around(&mut self, target: &LockTarget, granted: &mut Vec<LockTicket>) {
        match target {
            LockTarget::Key(key) => self.grant_key(key, granted),
            LockTarget::Range { lower, upper } => {
                // Writers that waited for the range, in order. Rare: a linear search over the waiting keys.
                let mut waiting: Vec<(u64, KeyBuf)> = self
                    .keys
                    .iter()
                    .filter(|(key, _)| contains(lower, upper.as_deref(), key))
                    .filter_map(|(key, lock)| lock.queue.front().map(|first| (first.rank, key.clone())))
                    .collect();
                waiting.sort_unstable_by_key(|(rank, _)| *rank);
                for (_, key) in waiting {
                    self.grant_key(&key, granted);
                }
            }
        }
        self.grant_ranges(target, granted);
    }

    /// Grants what can be granted now that the order has changed.
    pub(super) fn grant_everywhere(&mut self, granted: &mut Vec<LockTicket>) {
        self.grant_around(&LockTarget::Range { lower: KeyBuf::new(), upper: None }, granted);
    }

    pub(super) fn grant_key(&mut self, key: &KeyBuf, granted: &mut Vec<LockTicket>) {
        while let Some(place) = self.grantable(key) {
            let lock = self.keys.get_mut(key).expect("the lock was just read");
            let waiter = lock.queue.remove(place).expect("the queue was just read");
            let before = lock.holders.enter(waiter.owner, waiter.mode);
            self.exclusive += more_exclusive(before, waiter.mode);
            granted.push(waiter.ticket);
            self.forget_asked(waiter.owner, waiter.rank);
        }
    }

    /// The place in the queue of a key of a request that can be granted, if there is one: the first, or, when that only waits for
    /// an exclusive range, one of whoever has or wants that range. Others wait behind the first, or for what it waits for.
    pub(super) fn grantable(&self, key: &KeyBuf) -> Option<usize> {
        let lock = self.keys.get(key)?;
        let first = lock.queue.front()?;
        let is_free = |waiter: &Waiter| !self.key_blocked(waiter.owner, key, waiter.mode, waiter.rank);
        if is_free(first) {
            return Some(0);
        }
        if first.mode == LockMode::Exclusive || lock.holders.conflict(first.owner, first.mode) {
            return None;
        }
        let in_whose_range = self.ranges_against(first.owner, key, first.mode, first.rank).next()?;
        lock.queue.iter().position(|waiter| waiter.owner == in_whose_range && is_free(waiter))
    }

    /// Grants the ranges that can be granted now that something around `target` was given up: ranges that have nothing in common
    /// with it are as blocked as before, but for those that another range of their owner covers now.
    pub(super) fn grant_ranges(&mut self, target: &LockTarget, granted: &mut Vec<LockTicket>) {
        let mut at = 0;
        let mut owners: Vec<TxnId> = Vec::new();
        while let Some(range) = self.range_waiters.get(at) {
            let (owner, rank) = (range.waiter.owner, range.waiter.rank);
            let is_concerned = range.covers_some_of(target) || owners.contains(&owner);
            if !is_concerned
                || self.range_blocked(owner, &range.lower, range.upper.as_deref(), range.waiter.mode, rank)
            {
                at += 1;
                continue;
            }
            let RangeWaiter { waiter, lower, upper } = self.range_waiters.remove(at);
            granted.push(waiter.ticket);
            self.forget_asked(waiter.owner, waiter.rank);
            self.enter_range(owner, waiter.mode, &lower, &upper);
            if self.asked.contains_key(&owner) {
                owners.push(owner);
                at = 0;
            }
        }
    }
}
