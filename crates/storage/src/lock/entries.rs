//! What a lock table notes: who holds a key or a range, and who waits for one.
//!
//! Owns the lists of holders. It never decides who may hold what.

use std::collections::VecDeque;

use arrayvec::ArrayVec;

use super::{LockMode, LockTarget, LockTicket, TxnId, contains, overlap};
use crate::key::KeyBuf;

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) owner: TxnId,
    pub(super) mode: LockMode,
    pub(super) ticket: LockTicket,
    /// Place in the order of those who wait, over the whole partition: that of arrival, but where order yields to locks.
    pub(super) rank: u64,
}

/// A request that waits, as its owner sees it.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) target: LockTarget,
    pub(super) mode: LockMode,
    pub(super) rank: u64,
}

/// Holders kept inline; more spill to the heap (many readers of one hot key).
#[derive(Debug, Default)]
pub(super) struct Holders {
    pub(super) inline: ArrayVec<(TxnId, LockMode), 2>,
    pub(super) spilled: Vec<(TxnId, LockMode)>,
}

impl Holders {
    pub(super) fn iter(&self) -> impl Iterator<Item = (TxnId, LockMode)> + '_ {
        self.inline.iter().chain(self.spilled.iter()).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.inline.is_empty() && self.spilled.is_empty()
    }

    pub(super) fn mode_of(&self, owner: TxnId) -> Option<LockMode> {
        self.iter().find(|(holder, _)| *holder == owner).map(|(_, mode)| mode)
    }

    /// Enters `owner`, or raises the mode it has. Returns whether it was not a holder before.
    pub(super) fn enter(&mut self, owner: TxnId, mode: LockMode) -> bool {
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

    pub(super) fn remove(&mut self, owner: TxnId) -> bool {
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
    pub(super) fn conflicting(&self, owner: TxnId, mode: LockMode) -> impl Iterator<Item = TxnId> + '_ {
        let conflicts = move |(holder, held): &(TxnId, LockMode)| *holder != owner && held.conflicts(mode);
        self.iter().filter(conflicts).map(|(holder, _)| holder)
    }

    pub(super) fn conflict(&self, owner: TxnId, mode: LockMode) -> bool {
        self.conflicting(owner, mode).next().is_some()
    }
}

#[derive(Debug, Default)]
pub(super) struct KeyLock {
    pub(super) holders: Holders,
    /// In the order of their ranks.
    pub(super) queue: VecDeque<Waiter>,
}

impl KeyLock {
    pub(super) fn is_unused(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty()
    }
}

#[derive(Debug)]
pub(super) struct RangeHolder {
    pub(super) owner: TxnId,
    pub(super) mode: LockMode,
    pub(super) lower: KeyBuf,
    pub(super) upper: Option<KeyBuf>,
}

impl RangeHolder {
    /// Whether it allows what a lock of this mode allows.
    pub(super) fn covers(&self, mode: LockMode) -> bool {
        self.mode == LockMode::Exclusive || mode == LockMode::Shared
    }
}

#[derive(Debug)]
pub(super) struct RangeWaiter {
    pub(super) waiter: Waiter,
    pub(super) lower: KeyBuf,
    pub(super) upper: Option<KeyBuf>,
}

impl RangeWaiter {
    /// Whether it wants something of a range.
    pub(super) fn overlaps(&self, lower: &[u8], upper: Option<&[u8]>) -> bool {
        overlap(&self.lower, self.upper.as_deref(), lower, upper)
    }

    /// Whether it wants something of `target`.
    pub(super) fn covers_some_of(&self, target: &LockTarget) -> bool {
        match target {
            LockTarget::Key(key) => contains(&self.lower, self.upper.as_deref(), key),
            LockTarget::Range { lower, upper } => self.overlaps(lower, upper.as_deref()),
        }
    }
}
