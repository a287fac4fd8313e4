//! The owners that hold one key, and in which mode.

use super::{LockMode, TxnId};

/// One owner, which nearly all keys have at most, is kept inline; the others (many readers of one hot key) are on the heap. An
/// entry of a lock table with its key is then no longer than a cache line.
#[derive(Debug, Default)]
pub(super) struct Holders {
    /// `None` if there is no holder at all.
    first: Option<(TxnId, LockMode)>,
    /// Boxed because it is nearly always `None`.
    #[expect(clippy::box_collection, reason = "a list takes three words")]
    others: Option<Box<Vec<(TxnId, LockMode)>>>,
}

impl Holders {
    pub(super) fn iter(&self) -> impl Iterator<Item = (TxnId, LockMode)> + '_ {
        self.first.iter().chain(self.others.iter().flat_map(|others| others.iter())).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn mode_of(&self, owner: TxnId) -> Option<LockMode> {
        self.iter().find(|(holder, _)| *holder == owner).map(|(_, mode)| mode)
    }

    /// Enters `owner`, or raises the mode it has. Returns the mode that it had before.
    pub(super) fn enter(&mut self, owner: TxnId, mode: LockMode) -> Option<LockMode> {
        let others = self.others.iter_mut().flat_map(|others| others.iter_mut());
        if let Some(held) = self.first.iter_mut().chain(others).find(|held| held.0 == owner) {
            let before = held.1;
            if mode == LockMode::Exclusive {
                held.1 = mode;
            }
            return Some(before);
        }
        match self.first {
            None => self.first = Some((owner, mode)),
            Some(_) => self.others.get_or_insert_default().push((owner, mode)),
        }
        None
    }

    /// Removes `owner`. Returns the mode that it had, if it was a holder.
    pub(super) fn remove(&mut self, owner: TxnId) -> Option<LockMode> {
        let others = self.others.as_deref_mut();
        if let Some((holder, mode)) = self.first
            && holder == owner
        {
            self.first = others.and_then(Vec::pop);
            return Some(mode);
        }
        let others = others?;
        let at = others.iter().position(|(holder, _)| *holder == owner)?;
        Some(others.swap_remove(at).1)
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
