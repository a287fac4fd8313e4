//! Conflicts of a request in one lock table: with holders, and with waiters that have an earlier place in the queue. It
//! changes nothing.

use super::{
    Asked, LockMode, LockTable, LockTarget, LockTicket, Queue, RangeHolder, TxnId, contains, overlap,
};
use crate::KeyBuf;

impl LockTable {
    /// Returns whether a held lock or a waiting request conflicts with `owner` doing `mode` to `target` right now. A
    /// transaction that never suspends asks only this and enters nothing. The conflict may be with a request that waits
    /// for `owner` itself: only [`request`](LockTable::request) passes such a one.
    #[must_use]
    pub fn conflicts(&self, owner: TxnId, target: &LockTarget, mode: LockMode) -> bool {
        match target {
            LockTarget::Key(key) => self.key_blocked(owner, key, mode, u64::MAX),
            LockTarget::Range { lower, upper } => {
                self.range_blocked(owner, lower, upper.as_deref(), mode, u64::MAX)
            }
        }
    }

    /// Returns whether another owner holds a lock that conflicts with `owner` doing `mode` to `target`; waiting
    /// requests do not count.
    #[must_use]
    pub fn is_held_against(&self, owner: TxnId, target: &LockTarget, mode: LockMode) -> bool {
        match target {
            LockTarget::Key(key) => {
                let holders = self.keys.get(key).is_some_and(|lock| lock.holders.conflict(owner, mode));
                let mut ranges =
                    self.ranges.iter().filter(|held| held.owner != owner && held.mode.conflicts(mode));
                holders || ranges.any(|held| contains(&held.lower, held.upper.as_deref(), key))
            }
            LockTarget::Range { lower, upper } => {
                let upper = upper.as_deref();
                self.keys_within(owner, lower, upper, mode, 0).next().is_some()
                    || self.ranges_across(owner, lower, upper, mode, 0).next().is_some()
            }
        }
    }

    /// The owners that the request `ticket` of `owner` waits for: conflicting holders and earlier conflicting
    /// waiters. Empty when no such request waits. These are the edges of the waits-for graph, but for those that follow from
    /// others: a waiter that wants the key for itself waits for everybody ahead of it, so it stands for them.
    pub fn blockers(&self, owner: TxnId, target: &LockTarget, ticket: LockTicket, blockers: &mut Vec<TxnId>) {
        match target {
            LockTarget::Key(key) => {
                let Some(lock) = self.keys.get(key) else { return };
                let Some(at) = self.place_of(owner, key, &lock.queue, ticket) else { return };
                let (mode, rank) = (lock.queue[at].mode, lock.queue[at].rank);
                let mut stood_for = false;
                for waiter in lock.queue.iter().take(at).rev() {
                    if waiter.owner != owner && waiter.mode.conflicts(mode) {
                        blockers.push(waiter.owner);
                    }
                    if waiter.owner != owner && waiter.mode == LockMode::Exclusive {
                        stood_for = true;
                        break;
                    }
                }
                if !stood_for {
                    blockers.extend(lock.holders.conflicting(owner, mode));
                }
                blockers.extend(self.ranges_against(owner, key, mode, rank));
            }
            LockTarget::Range { lower, upper } => {
                let Some(me) = self
                    .range_waiters
                    .iter()
                    .find(|range| range.waiter.owner == owner && range.waiter.ticket == ticket)
                else {
                    return;
                };
                let (upper, mode, rank) = (upper.as_deref(), me.waiter.mode, me.waiter.rank);
                blockers.extend(self.keys_within(owner, lower, upper, mode, rank));
                blockers.extend(self.ranges_across(owner, lower, upper, mode, rank));
            }
        }
    }

    /// The place of a request in the queue of a key, found by the rank of what its owner has asked for: queues of thousands are asked for each
    /// of their places.
    fn place_of(&self, owner: TxnId, key: &KeyBuf, queue: &Queue, ticket: LockTicket) -> Option<usize> {
        let of_key = |asked: &&Asked| matches!(&asked.target, LockTarget::Key(asked) if asked == key);
        self.asked.get(&owner)?.iter().filter(of_key).find_map(|asked| {
            let place = queue.partition_point(|waiter| waiter.rank < asked.rank);
            queue.get(place).is_some_and(|waiter| waiter.ticket == ticket).then_some(place)
        })
    }

    /// Owners of ranges around `key`, held or waited for with a place before `rank`.
    pub(super) fn ranges_around<'a>(&'a self, key: &'a [u8], rank: u64) -> impl Iterator<Item = TxnId> + 'a {
        let held = self
            .ranges
            .iter()
            .filter(move |held| contains(&held.lower, held.upper.as_deref(), key))
            .map(|held| held.owner);
        let waiting = self
            .range_waiters
            .iter()
            .take_while(move |range| range.waiter.rank < rank)
            .filter(move |range| contains(&range.lower, range.upper.as_deref(), key))
            .map(|range| range.waiter.owner);
        held.chain(waiting)
    }

    /// Others that hold a range around `key`, or wait for one with a place before `rank`, which conflicts with `mode`.
    pub(super) fn ranges_against<'a>(
        &'a self,
        owner: TxnId,
        key: &'a [u8],
        mode: LockMode,
        rank: u64,
    ) -> impl Iterator<Item = TxnId> + 'a {
        let held = self
            .ranges
            .iter()
            .filter(move |held| {
                held.mode.conflicts(mode) && contains(&held.lower, held.upper.as_deref(), key)
            })
            .map(|held| held.owner);
        held.chain(self.range_waiters_against(key, mode, 0, rank)).filter(move |other| *other != owner)
    }

    /// Owners that wait, with a place from `from` on and before `rank`, for a range around `key` that conflicts with `mode`.
    pub(super) fn range_waiters_against<'a>(
        &'a self,
        key: &'a [u8],
        mode: LockMode,
        from: u64,
        rank: u64,
    ) -> impl Iterator<Item = TxnId> + 'a {
        self.range_waiters
            .iter()
            .take_while(move |range| range.waiter.rank < rank)
            .filter(move |range| range.waiter.rank >= from && range.waiter.mode.conflicts(mode))
            .filter(move |range| contains(&range.lower, range.upper.as_deref(), key))
            .map(|range| range.waiter.owner)
    }

    /// Others that hold a range that overlaps this one, or wait for one with a place before `rank`, which conflicts with `mode`.
    pub(super) fn ranges_across<'a>(
        &'a self,
        owner: TxnId,
        lower: &'a [u8],
        upper: Option<&'a [u8]>,
        mode: LockMode,
        rank: u64,
    ) -> impl Iterator<Item = TxnId> + 'a {
        let held = self
            .ranges
            .iter()
            .filter(move |held| {
                held.mode.conflicts(mode) && overlap(&held.lower, held.upper.as_deref(), lower, upper)
            })
            .map(|held| held.owner);
        let waiting = self
            .range_waiters
            .iter()
            .take_while(move |range| range.waiter.rank < rank)
            .filter(move |range| range.waiter.mode.conflicts(mode) && range.overlaps(lower, upper))
            .map(|range| range.waiter.owner);
        held.chain(waiting).filter(move |other| *other != owner)
    }

    /// Others that hold, or wait with a place before `rank` for, a lock on a key in the range which conflicts with `mode`.
    pub(super) fn keys_within<'a>(
        &'a self,
        owner: TxnId,
        lower: &'a [u8],
        upper: Option<&'a [u8]>,
        mode: LockMode,
        rank: u64,
    ) -> impl Iterator<Item = TxnId> + 'a {
        self.keys
            .iter()
            .filter(move |(key, _)| contains(lower, upper, key))
            .flat_map(move |(_, lock)| {
                let ahead = lock.queue.iter().take_while(move |waiter| waiter.rank < rank);
                let ahead = ahead.map(|waiter| (waiter.owner, waiter.mode));
                lock.holders.iter().chain(ahead)
            })
            .filter(move |(other, theirs)| *other != owner && theirs.conflicts(mode))
            .map(|(other, _)| other)
    }

    /// The mode in which `owner` holds ranges around `key`, if it does.
    pub(super) fn mode_of_ranges_around(&self, owner: TxnId, key: &[u8]) -> Option<LockMode> {
        let around =
            |held: &&RangeHolder| held.owner == owner && contains(&held.lower, held.upper.as_deref(), key);
        let mut found = None;
        for held in self.ranges.iter().filter(around) {
            if held.mode == LockMode::Exclusive {
                return Some(held.mode);
            }
            found = Some(held.mode);
        }
        found
    }

    /// Returns whether the ranges that `owner` holds in at least `mode` cover this one, so that it needs no further
    /// lock. There may be several adjacent ones: a range is cut where its partition is.
    pub(super) fn has_ranges_over(
        &self,
        owner: TxnId,
        lower: &[u8],
        upper: Option<&[u8]>,
        mode: LockMode,
    ) -> bool {
        let mut from = lower;
        loop {
            let mut around = self
                .ranges
                .iter()
                .filter(|held| held.owner == owner && held.covers(mode))
                .filter(|held| contains(&held.lower, held.upper.as_deref(), from));
            let Some(held) = around.next() else { return false };
            match (held.upper.as_deref(), upper) {
                (None, _) => return true,
                (Some(covered), Some(upper)) if upper <= covered => return true,
                (Some(covered), _) => from = covered,
            }
        }
    }

    /// Returns whether a holder, or a waiter ranked before `rank`, conflicts with `owner` doing `mode` to `key`.
    pub(super) fn key_blocked(&self, owner: TxnId, key: &[u8], mode: LockMode, rank: u64) -> bool {
        let around = if self.ranges.is_empty() { None } else { self.mode_of_ranges_around(owner, key) };
        if around == Some(LockMode::Exclusive) {
            return false;
        }
        let lock = self.keys.get(key);
        if let Some(lock) = lock
            && lock.holders.conflict(owner, mode)
        {
            return true;
        }
        let held = lock.and_then(|lock| lock.holders.mode_of(owner));
        // Nobody who waits for the key can be granted before it.
        let upgrades = held.is_some() || around.is_some();
        // What it wants it has.
        if held == Some(LockMode::Exclusive) || (upgrades && mode == LockMode::Shared) {
            return false;
        }
        if let Some(lock) = lock
            && !upgrades
            && lock
                .queue
                .iter()
                .take_while(|waiter| waiter.rank < rank)
                .any(|waiter| waiter.owner != owner && waiter.mode.conflicts(mode))
        {
            return true;
        }
        if self.ranges.is_empty() && self.range_waiters.is_empty() {
            return false;
        }
        self.ranges_against(owner, key, mode, rank).next().is_some()
    }

    pub(super) fn range_blocked(
        &self,
        owner: TxnId,
        lower: &[u8],
        upper: Option<&[u8]>,
        mode: LockMode,
        rank: u64,
    ) -> bool {
        if self.has_ranges_over(owner, lower, upper, mode) {
            return false;
        }
        self.keys_within(owner, lower, upper, mode, rank).next().is_some()
            || self.ranges_across(owner, lower, upper, mode, rank).next().is_some()
    }
}
