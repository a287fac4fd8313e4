//! The owners that hold one key, and in which mode.

use arrayvec::ArrayVec;

use super::{LockMode, TxnId};

/// Holders kept inline; more spill to the heap (many readers of one hot key).
#[derive(Debug, Default)]
pub(super) struct Holders {
    inline: ArrayVec<(TxnId, LockMode), 2>,
    spilled: Vec<(TxnId, LockMode)>,
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
