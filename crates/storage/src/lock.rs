//! The lock table of one partition: who may read or change which keys while transactions are suspended.
//!
//! It owns the set of locks held on one partition and the queues of those who wait for one. It is a plain data
//! structure: it never blocks, never wakes anybody and knows nothing of threads. A request that cannot be granted is
//! queued under a *ticket* of the caller's choosing, and the call that makes room for it reports the ticket.
//!
//! Two kinds of things are locked: a *key*, present or absent, and a *range* of keys, which covers the keys that are not
//! there as well, so that a scan cannot be surprised by an insertion (no phantoms). An exclusive range keeps everybody else out
//! of it: a change of all rows in it needs no further lock.
//!
//! Invariants:
//! - Two locks of different owners on overlapping things are never held together unless both are shared.
//! - Queues are fair: a request waits behind every earlier waiter that it conflicts with, so shared requests cannot
//!   starve an exclusive one. Who asks for what it holds, as one who reads a range again, waits for nobody.
//! - Order yields to locks: nobody waits, because of the order of arrival, for somebody who waits for it, directly or through
//!   others. An owner that asks for more of what it holds passes those who wait for that; a scan passes a writer that waits
//!   for a key which the scan's owner has read; and so does a request of a third owner whose lock these two need. Where such a
//!   cycle would close, its members queue again, each behind those whose locks it needs (`order`). This starves nobody: whoever is
//!   passed could not have been granted anything before the end of who passes it. Who holds nothing here and waits for nothing
//!   else here passes nobody.
//! - An entry without holders and without waiters is removed: an empty table costs its reader one comparison.

mod order;

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use arrayvec::ArrayVec;
use rustc_hash::{FxBuildHasher, FxHasher};

use crate::key::KeyBuf;

/// Who holds or wants a lock: the number of a transaction, unique among those alive. Its low sixteen bits are the number of
/// the transaction's home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TxnId(pub u64);

impl TxnId {
    /// The transaction number `sequence` of those with this home.
    #[inline]
    #[must_use]
    pub fn new(sequence: u64, home: u16) -> TxnId {
        TxnId(sequence << 16 | u64::from(home))
    }

    /// The number of the transaction's home.
    #[inline]
    #[must_use]
    pub fn home(self) -> u16 {
        self.0 as u16
    }
}

/// What the caller gets back when a queued request is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockTicket(pub u64);

/// What may be done under a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Reading; compatible with other readers.
    Shared,
    /// Changing, inserting or deleting; compatible with nothing.
    Exclusive,
}

impl LockMode {
    fn conflicts(self, other: LockMode) -> bool {
        self == LockMode::Exclusive || other == LockMode::Exclusive
    }
}

/// The thing that is locked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockTarget {
    /// One key, whether or not a row is there.
    Key(KeyBuf),
    /// Every key from `lower` (included) to `upper` (excluded; `None` means the end of the partition).
    Range {
        /// First key covered.
        lower: KeyBuf,
        /// First key not covered.
        upper: Option<KeyBuf>,
    },
}

fn contains(lower: &[u8], upper: Option<&[u8]>, key: &[u8]) -> bool {
    lower <= key && upper.is_none_or(|upper| key < upper)
}

/// Whether two ranges have keys in common.
fn overlap(lower: &[u8], upper: Option<&[u8]>, from: &[u8], until: Option<&[u8]>) -> bool {
    upper.is_none_or(|upper| from < upper) && until.is_none_or(|until| lower < until)
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOutcome {
    /// The owner holds the lock now.
    Granted,
    /// The request waits; the ticket will be reported when it is granted.
    Queued,
}

#[derive(Debug)]
struct Waiter {
    owner: TxnId,
    mode: LockMode,
    ticket: LockTicket,
    /// Place in the order of those who wait, over the whole partition: that of arrival, but where order yields to locks.
    rank: u64,
}

/// A request that waits, as its owner sees it.
#[derive(Debug)]
struct Asked {
    target: LockTarget,
    mode: LockMode,
    rank: u64,
}

/// Holders kept inline; more spill to the heap (many readers of one hot key).
#[derive(Debug, Default)]
struct Holders {
    inline: ArrayVec<(TxnId, LockMode), 2>,
    spilled: Vec<(TxnId, LockMode)>,
}

impl Holders {
    fn iter(&self) -> impl Iterator<Item = (TxnId, LockMode)> + '_ {
        self.inline.iter().chain(self.spilled.iter()).copied()
    }

    fn is_empty(&self) -> bool {
        self.inline.is_empty() && self.spilled.is_empty()
    }

    fn mode_of(&self, owner: TxnId) -> Option<LockMode> {
        self.iter().find(|(holder, _)| *holder == owner).map(|(_, mode)| mode)
    }

    /// Enters `owner`, or raises the mode it has. Returns whether it was not a holder before.
    fn enter(&mut self, owner: TxnId, mode: LockMode) -> bool {
        if let Some(held) = self.inline.iter_mut().chain(self.spilled.iter_mut()).find(|held| held.0 == owner)
        {
            if mode == LockMode::Exclusive {
                held.1 = mode;
            }
            return false;
        }
        if self.inline.try_push((owner, mode)).is_err() {
            self.spilled.push((owner, mode));
        }
        true
    }

    fn remove(&mut self, owner: TxnId) -> bool {
        if let Some(at) = self.inline.iter().position(|(holder, _)| *holder == owner) {
            self.inline.swap_remove(at);
            if let Some(moved) = self.spilled.pop() {
                self.inline.push(moved);
            }
            true
        } else if let Some(at) = self.spilled.iter().position(|(holder, _)| *holder == owner) {
            self.spilled.swap_remove(at);
            true
        } else {
            false
        }
    }

    /// The others who keep `owner` from `mode`.
    fn conflicting(&self, owner: TxnId, mode: LockMode) -> impl Iterator<Item = TxnId> + '_ {
        let conflicts = move |(holder, held): &(TxnId, LockMode)| *holder != owner && held.conflicts(mode);
        self.iter().filter(conflicts).map(|(holder, _)| holder)
    }

    fn conflict(&self, owner: TxnId, mode: LockMode) -> bool {
        self.conflicting(owner, mode).next().is_some()
    }
}

#[derive(Debug, Default)]
struct KeyLock {
    holders: Holders,
    /// In the order of their ranks.
    queue: VecDeque<Waiter>,
}

impl KeyLock {
    fn is_unused(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty()
    }
}

#[derive(Debug)]
struct RangeHolder {
    owner: TxnId,
    mode: LockMode,
    lower: KeyBuf,
    upper: Option<KeyBuf>,
}

impl RangeHolder {
    /// Whether it allows what a lock of this mode allows.
    fn covers(&self, mode: LockMode) -> bool {
        self.mode == LockMode::Exclusive || mode == LockMode::Shared
    }
}

#[derive(Debug)]
struct RangeWaiter {
    waiter: Waiter,
    lower: KeyBuf,
    upper: Option<KeyBuf>,
}

impl RangeWaiter {
    /// Whether it wants something of a range.
    fn overlaps(&self, lower: &[u8], upper: Option<&[u8]>) -> bool {
        overlap(&self.lower, self.upper.as_deref(), lower, upper)
    }

    /// Whether it wants something of `target`.
    fn covers_some_of(&self, target: &LockTarget) -> bool {
        match target {
            LockTarget::Key(key) => contains(&self.lower, self.upper.as_deref(), key),
            LockTarget::Range { lower, upper } => self.overlaps(lower, upper.as_deref()),
        }
    }
}

/// The locks of one partition. See the module's introduction.
#[derive(Debug, Default)]
pub struct LockTable {
    keys: HashMap<KeyBuf, KeyLock, BuildHasherDefault<FxHasher>>,
    ranges: Vec<RangeHolder>,
    /// In the order of their ranks.
    range_waiters: Vec<RangeWaiter>,
    /// The requests of those who wait, each owner's in the order of their ranks.
    asked: HashMap<TxnId, Vec<Asked>, FxBuildHasher>,
    /// Requests that wait.
    waiting: usize,
    /// The greatest rank that was given.
    ranks: u64,
    /// Whether owners wait for each other in a cycle that only an abort breaks: then order may have to yield once more when it
    /// is broken.
    tangled: bool,
}

impl LockTable {
    /// An empty table.
    #[must_use]
    pub fn new() -> LockTable {
        LockTable::default()
    }

    /// Whether nothing is held and nobody waits: then nothing can be in anybody's way.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.ranges.is_empty() && self.range_waiters.is_empty()
    }

    /// Whether anything held or waited for conflicts with `owner` doing `mode` to `target` right now. A transaction
    /// that never suspends asks only this and enters nothing. It may be told of somebody who waits for itself: that one only
    /// [`request`](LockTable::request) passes.
    #[must_use]
    pub fn conflicts(&self, owner: TxnId, target: &LockTarget, mode: LockMode) -> bool {
        match target {
            LockTarget::Key(key) => self.key_blocked(owner, key, mode, u64::MAX),
            LockTarget::Range { lower, upper } => {
                self.range_blocked(owner, lower, upper.as_deref(), mode, u64::MAX)
            }
        }
    }

    /// Enters a lock that cannot conflict: that of a transaction which did the access while no lock conflicted
    /// and nothing else ran since. Returns whether this is a new entry.
    ///
    /// # Panics
    /// In builds with debug assertions, when another owner holds a conflicting lock: the caller broke the rule.
    pub fn enter(&mut self, owner: TxnId, target: &LockTarget, mode: LockMode) -> bool {
        match target {
            LockTarget::Key(key) => {
                let lock = self.keys.entry(key.clone()).or_default();
                debug_assert!(!lock.holders.conflict(owner, mode), "entered lock conflicts with a holder");
                lock.holders.enter(owner, mode)
            }
            LockTarget::Range { lower, upper } => {
                debug_assert!(
                    mode == LockMode::Shared || !self.is_held_against(owner, target, mode),
                    "entered lock conflicts with a holder"
                );
                self.enter_range(owner, mode, lower, upper)
            }
        }
    }

    /// Notes a range, or raises the mode in which its owner has it. Returns whether it is a new entry.
    fn enter_range(&mut self, owner: TxnId, mode: LockMode, lower: &KeyBuf, upper: &Option<KeyBuf>) -> bool {
        let is_it =
            |held: &&mut RangeHolder| held.owner == owner && held.lower == *lower && held.upper == *upper;
        if let Some(held) = self.ranges.iter_mut().find(is_it) {
            if mode == LockMode::Exclusive {
                held.mode = mode;
            }
            return false;
        }
        self.ranges.push(RangeHolder { owner, mode, lower: lower.clone(), upper: upper.clone() });
        true
    }

    /// Whether somebody else holds what keeps `owner` from doing `mode` to `target`, whoever waits.
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

    /// Asks for a lock: granted at once when nothing conflicts, queued under `ticket` otherwise. Where order yields to
    /// locks on account of it, the tickets of others that could be granted are reported in `granted`.
    pub fn request(
        &mut self,
        owner: TxnId,
        target: &LockTarget,
        mode: LockMode,
        ticket: LockTicket,
        granted: &mut Vec<LockTicket>,
    ) -> LockOutcome {
        let nobody_waits = self.waiting == 0;
        if self.request_in_order(owner, target, mode, ticket) == LockOutcome::Granted {
            return LockOutcome::Granted;
        }
        if nobody_waits || !self.closes_cycle(owner) {
            return LockOutcome::Queued;
        }
        self.reorder();
        let before = granted.len();
        self.grant_everywhere(granted);
        match granted[before..].iter().position(|other| *other == ticket) {
            Some(at) => {
                granted.remove(before + at);
                LockOutcome::Granted
            }
            None => LockOutcome::Queued,
        }
    }

    /// Like [`request`](LockTable::request), but order never yields: for a planted bug.
    #[doc(hidden)]
    pub fn request_in_order(
        &mut self,
        owner: TxnId,
        target: &LockTarget,
        mode: LockMode,
        ticket: LockTicket,
    ) -> LockOutcome {
        if !self.conflicts(owner, target, mode) {
            self.enter(owner, target, mode);
            return LockOutcome::Granted;
        }
        self.ranks += 1;
        self.waiting += 1;
        let rank = self.ranks;
        self.asked.entry(owner).or_default().push(Asked { target: target.clone(), mode, rank });
        let waiter = Waiter { owner, mode, ticket, rank };
        match target {
            LockTarget::Key(key) => self.keys.entry(key.clone()).or_default().queue.push_back(waiter),
            LockTarget::Range { lower, upper } => {
                self.range_waiters.push(RangeWaiter { waiter, lower: lower.clone(), upper: upper.clone() });
            }
        }
        LockOutcome::Queued
    }

    /// A request waits no more.
    fn forget_asked(&mut self, owner: TxnId, rank: u64) {
        self.waiting -= 1;
        let Some(asked) = self.asked.get_mut(&owner) else { return };
        asked.retain(|asked| asked.rank != rank);
        if asked.is_empty() {
            self.asked.remove(&owner);
        }
    }

    /// Whether `owner` holds `target` in at least `mode`.
    #[must_use]
    pub fn holds(&self, owner: TxnId, target: &LockTarget, mode: LockMode) -> bool {
        match target {
            LockTarget::Key(key) => self
                .keys
                .get(key)
                .and_then(|lock| lock.holders.mode_of(owner))
                .is_some_and(|held| held == LockMode::Exclusive || mode == LockMode::Shared),
            LockTarget::Range { lower, upper } => {
                let mut own = self.ranges.iter().filter(|held| held.owner == owner && held.covers(mode));
                own.any(|held| held.lower == *lower && held.upper == *upper)
            }
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
                    if let Some(lock) = self.keys.get_mut(key) {
                        lock.holders.remove(owner);
                        if lock.is_unused() {
                            self.keys.remove(key);
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

    /// The owners that the request `ticket` of `owner` waits for: conflicting holders and earlier conflicting
    /// waiters. Empty when no such request waits. These are the edges of the waits-for graph, but for those that follow from
    /// others: a waiter that wants the key for itself waits for everybody ahead of it, so it stands for them.
    pub fn blockers(&self, owner: TxnId, target: &LockTarget, ticket: LockTicket, blockers: &mut Vec<TxnId>) {
        match target {
            LockTarget::Key(key) => {
                let Some(lock) = self.keys.get(key) else { return };
                let Some(at) =
                    lock.queue.iter().position(|waiter| waiter.owner == owner && waiter.ticket == ticket)
                else {
                    return;
                };
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

    /// Number of locks held, for statistics and tests.
    #[must_use]
    pub fn held_len(&self) -> usize {
        self.ranges.len() + self.keys.values().map(|lock| lock.holders.iter().count()).sum::<usize>()
    }

    /// Number of requests that wait, for statistics and tests.
    #[must_use]
    pub fn waiting_len(&self) -> usize {
        self.waiting
    }

    /// Owners of ranges around `key`, held or waited for with a place before `rank`.
    fn ranges_around<'a>(&'a self, key: &'a [u8], rank: u64) -> impl Iterator<Item = TxnId> + 'a {
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
    fn ranges_against<'a>(
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
    fn range_waiters_against<'a>(
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
    fn ranges_across<'a>(
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
    fn keys_within<'a>(
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
    fn mode_of_ranges_around(&self, owner: TxnId, key: &[u8]) -> Option<LockMode> {
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

    /// Whether the ranges that `owner` holds in at least `mode` cover this one: what it wants it has. There may be several, one
    /// next to the other: a range is cut where its partition is.
    fn has_ranges_over(&self, owner: TxnId, lower: &[u8], upper: Option<&[u8]>, mode: LockMode) -> bool {
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

    /// Whether `owner` may not do `mode` to `key` because of a holder or of a waiter with a place before `rank`.
    fn key_blocked(&self, owner: TxnId, key: &[u8], mode: LockMode, rank: u64) -> bool {
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

    fn range_blocked(
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

    /// Grants what can be granted now that something around `target` was given up.
    fn grant_around(&mut self, target: &LockTarget, granted: &mut Vec<LockTicket>) {
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
    fn grant_everywhere(&mut self, granted: &mut Vec<LockTicket>) {
        self.grant_around(&LockTarget::Range { lower: KeyBuf::new(), upper: None }, granted);
    }

    fn grant_key(&mut self, key: &KeyBuf, granted: &mut Vec<LockTicket>) {
        while let Some(at) = self.next_for_key(key) {
            let lock = self.keys.get_mut(key).expect("the lock was just read");
            let next = lock.queue.remove(at).expect("the queue was just read");
            lock.holders.enter(next.owner, next.mode);
            granted.push(next.ticket);
            self.forget_asked(next.owner, next.rank);
        }
    }

    /// The place in the queue of a key of a request that can be granted, if there is one: the first, or, when that only waits for
    /// an exclusive range, one of whoever has or wants that range. Others wait behind the first, or for what it waits for.
    fn next_for_key(&self, key: &KeyBuf) -> Option<usize> {
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
    fn grant_ranges(&mut self, target: &LockTarget, granted: &mut Vec<LockTicket>) {
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

#[cfg(test)]
#[path = "lock_tests.rs"]
mod tests;
