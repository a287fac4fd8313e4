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

mod conflict;
mod grant;
mod holders;
mod order;

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use crate::key::KeyBuf;
use holders::Holders;

/// The number of a transaction that holds or requests locks, unique among those alive. Its low sixteen bits are the
/// number of the transaction's home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TxnId(pub u64);

impl TxnId {
    /// The transaction number `sequence` of those with this home.
    #[inline]
    #[must_use]
    pub fn new(sequence: u64, home: u16) -> TxnId {
        TxnId(sequence << 16 | u64::from(home))
    }

    /// The transaction's number among those with its home.
    #[inline]
    #[must_use]
    pub fn sequence(self) -> u64 {
        self.0 >> 16
    }

    /// The number of the transaction's home.
    #[inline]
    #[must_use]
    pub fn home(self) -> u16 {
        self.0 as u16
    }
}

/// The holder of the mark of [`LockTable::gate`]: no transaction has this number.
const GATE: TxnId = TxnId(u64::MAX);

/// Identifies a queued request; returned to the caller when the request is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockTicket(pub u64);

/// Modes of a lock.
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

impl LockTarget {
    /// The key, or the first one of the range.
    #[inline(always)]
    #[must_use]
    pub fn first_key(&self) -> &KeyBuf {
        match self {
            LockTarget::Key(key) => key,
            LockTarget::Range { lower, .. } => lower,
        }
    }
}

fn contains(lower: &[u8], upper: Option<&[u8]>, key: &[u8]) -> bool {
    lower <= key && upper.is_none_or(|upper| key < upper)
}

/// Returns whether two ranges have keys in common.
fn overlap(lower: &[u8], upper: Option<&[u8]>, from: &[u8], until: Option<&[u8]>) -> bool {
    upper.is_none_or(|upper| from < upper) && until.is_none_or(|until| lower < until)
}

/// Outcome of a request.
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

#[derive(Debug, Default)]
struct KeyLock {
    holders: Holders,
    queue: Queue,
}

impl KeyLock {
    fn is_unused(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty()
    }
}

/// Waiters in the order of their ranks. Nobody waits for nearly all keys: then it takes one word.
#[derive(Debug, Default)]
#[expect(clippy::box_collection, reason = "a word instead of four in nearly all entries")]
struct Queue(Option<Box<VecDeque<Waiter>>>);

impl Deref for Queue {
    type Target = VecDeque<Waiter>;

    fn deref(&self) -> &VecDeque<Waiter> {
        static NOBODY: VecDeque<Waiter> = VecDeque::new();
        self.0.as_deref().unwrap_or(&NOBODY)
    }
}

impl DerefMut for Queue {
    fn deref_mut(&mut self) -> &mut VecDeque<Waiter> {
        self.0.get_or_insert_default()
    }
}

const _: () = assert!(size_of::<(KeyBuf, KeyLock)>() <= 64, "an entry is within a cache line");

#[derive(Debug)]
struct RangeHolder {
    owner: TxnId,
    mode: LockMode,
    lower: KeyBuf,
    upper: Option<KeyBuf>,
}

impl RangeHolder {
    /// Returns whether it allows what a lock of this mode allows.
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
    /// Returns whether it requests a key or range inside this range.
    fn overlaps(&self, lower: &[u8], upper: Option<&[u8]>) -> bool {
        overlap(&self.lower, self.upper.as_deref(), lower, upper)
    }

    /// Returns whether it requests a part of `target`.
    fn covers_some_of(&self, target: &LockTarget) -> bool {
        match target {
            LockTarget::Key(key) => contains(&self.lower, self.upper.as_deref(), key),
            LockTarget::Range { lower, upper } => self.overlaps(lower, upper.as_deref()),
        }
    }
}

/// Returns the number of exclusive holders more after an owner with the mode `before` was entered in `mode`.
fn more_exclusive(before: Option<LockMode>, mode: LockMode) -> usize {
    usize::from(mode == LockMode::Exclusive && before != Some(LockMode::Exclusive))
}

/// The locks of one partition. See the module's introduction.
#[derive(Debug, Default)]
pub struct LockTable {
    keys: HashMap<KeyBuf, KeyLock, FxBuildHasher>,
    /// Number of locks on keys that are held exclusively.
    exclusive: usize,
    ranges: Vec<RangeHolder>,
    /// Waiters for ranges in the order of their ranks.
    range_waiters: Vec<RangeWaiter>,
    /// The requests of those who wait, each owner's in the order of their ranks.
    asked: HashMap<TxnId, Vec<Asked>, FxBuildHasher>,
    /// Requests that wait.
    waiting: usize,
    /// The greatest rank that was given.
    ranks: u64,
    /// Set while owners wait for each other in a cycle that only an abort breaks: when it is broken, order may have to
    /// yield once more.
    tangled: bool,
}

impl LockTable {
    /// An empty table.
    #[must_use]
    pub fn new() -> LockTable {
        LockTable::default()
    }

    /// Returns whether no lock is held and no request waits, so that no access can conflict.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.ranges.is_empty() && self.range_waiters.is_empty()
    }

    /// Returns whether an access in this mode conflicts with nothing, whatever its key is: it reads, and nobody waits or holds more than
    /// a shared lock on a key, or the partition is read elsewhere as well. Many readers that are suspended, as those with rows in other instances are, so cost others no
    /// look-up of their keys.
    #[inline]
    #[must_use]
    pub fn admits_all(&self, mode: LockMode) -> bool {
        mode == LockMode::Shared
            && self.exclusive == 0
            && self.waiting == 0
            && self.ranges.iter().all(|held| held.owner == GATE)
    }

    /// Marks the partition as one that is read elsewhere as well, so that an access which changes it has to wait until it is not.
    /// The table is then not [empty](LockTable::is_empty): so the path of an access to any other partition does not look for the mark.
    pub fn gate(&mut self) {
        if !self.is_gated() {
            // A range without any key, which conflicts with nothing.
            let (lower, upper) = (KeyBuf::new(), Some(KeyBuf::new()));
            self.ranges.push(RangeHolder { owner: GATE, mode: LockMode::Shared, lower, upper });
        }
    }

    /// Removes the mark of [`gate`](LockTable::gate).
    pub fn ungate(&mut self) {
        self.ranges.retain(|held| held.owner != GATE);
    }

    /// Returns whether the partition is read elsewhere as well.
    #[must_use]
    pub fn is_gated(&self) -> bool {
        self.ranges.iter().any(|held| held.owner == GATE)
    }

    /// Returns whether nobody waits, and everything that is held is shared.
    #[must_use]
    pub fn is_only_read(&self) -> bool {
        let is_shared = |mode: LockMode| mode == LockMode::Shared;
        self.waiting == 0
            && self.ranges.iter().all(|held| is_shared(held.mode))
            && self.keys.values().all(|lock| lock.holders.iter().all(|(_, mode)| is_shared(mode)))
    }

    /// Enters a lock that cannot conflict: that of a transaction which did the access while no lock conflicted
    /// and nothing else ran since. Returns whether this is a new entry.
    ///
    /// # Panics
    /// In builds with debug assertions, when another owner holds a conflicting lock: the caller broke the rule.
    pub fn enter(&mut self, owner: TxnId, target: &LockTarget, mode: LockMode) -> bool {
        match target {
            LockTarget::Key(key) => {
                let lock = self.keys.entry_ref(key).or_default();
                debug_assert!(!lock.holders.conflict(owner, mode), "entered lock conflicts with a holder");
                let before = lock.holders.enter(owner, mode);
                self.exclusive += more_exclusive(before, mode);
                before.is_none()
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

    /// Requests like [`request`](LockTable::request), but order never yields: for a planted bug.
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
            LockTarget::Key(key) => self.keys.entry_ref(key).or_default().queue.push_back(waiter),
            LockTarget::Range { lower, upper } => {
                self.range_waiters.push(RangeWaiter { waiter, lower: lower.clone(), upper: upper.clone() });
            }
        }
        LockOutcome::Queued
    }

    /// Returns whether `owner` holds `target` in at least `mode`.
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

    /// Number of locks held, for statistics and tests.
    #[must_use]
    pub fn held_len(&self) -> usize {
        self.ranges.iter().filter(|held| held.owner != GATE).count()
            + self.keys.values().map(|lock| lock.holders.iter().count()).sum::<usize>()
    }

    /// Number of keys and ranges for which there are locks or requests; unlike [`held_len`](LockTable::held_len) it is known without a
    /// walk over the keys.
    #[must_use]
    pub fn locked_len(&self) -> usize {
        self.keys.len() + self.ranges.iter().filter(|held| held.owner != GATE).count()
    }

    /// Number of requests that wait, for statistics and tests.
    #[must_use]
    pub fn waiting_len(&self) -> usize {
        self.waiting
    }
}

#[cfg(test)]
mod tests;
