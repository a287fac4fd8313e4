//! The key locks of a running transaction, by name.
//!
//! Owns: an open-addressed table, and the list of what is in it. Never: looks at the lock table, so asking for a lock again
//! costs no latch.
//!
//! Invariant: at least half of the table is empty; it is emptied entry by entry, so a small transaction does not pay for a
//! large one before it.

use super::name::Name;
use super::pool::Handle;

/// The smallest table.
const ENTRIES_MIN: usize = 64;
/// A larger table is given up when its transaction has ended.
const ENTRIES_KEPT: usize = 1 << 16;

/// The held key locks.
pub(super) struct Cache {
    entries: Vec<Option<(Name, Handle)>>,
    /// The held locks in the order of their acquisition, with their entries' places.
    held: Vec<(Handle, usize)>,
}

impl Cache {
    pub(super) fn new() -> Cache {
        Cache { entries: vec![None; ENTRIES_MIN], held: Vec::with_capacity(ENTRIES_MIN / 2) }
    }

    /// The lock of the name, if it is held.
    #[inline(always)]
    pub(super) fn find(&self, name: Name) -> Option<Handle> {
        let mask = self.entries.len() - 1;
        let mut at = name.slot(mask);
        while let Some((of, handle)) = self.entries[at] {
            if of == name {
                return Some(handle);
            }
            at = (at + 1) & mask;
        }
        None
    }

    /// Enters a lock that is not there.
    #[inline(always)]
    pub(super) fn insert(&mut self, name: Name, handle: Handle) {
        if (self.held.len() + 1) * 2 > self.entries.len() {
            self.grow();
        }
        let at = self.place(name, handle);
        self.held.push((handle, at));
    }

    #[inline(always)]
    fn place(&mut self, name: Name, handle: Handle) -> usize {
        let mask = self.entries.len() - 1;
        let mut at = name.slot(mask);
        while self.entries[at].is_some() {
            at = (at + 1) & mask;
        }
        self.entries[at] = Some((name, handle));
        at
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        self.entries = vec![None; self.entries.len() * 2];
        let mut held = std::mem::take(&mut self.held);
        for (handle, at) in &mut held {
            *at = self.place(handle.name.get(), *handle);
        }
        self.held = held;
    }

    /// Takes out the lock that was entered last.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<Handle> {
        let (handle, at) = self.held.pop()?;
        self.entries[at] = None;
        if self.held.is_empty() && self.entries.len() > ENTRIES_KEPT {
            *self = Cache::new();
        }
        Some(handle)
    }

    /// The number of held locks.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use atrapos_partition::schema::TableId;

    use super::super::KeyOrEnd;
    use super::super::pool::Pool;
    use super::*;

    #[test]
    fn locks_are_found_until_they_are_taken_out() {
        let mut pool = Pool::default();
        let mut cache = Cache::new();
        let name = |number: u64| Name::of_key(TableId(0), KeyOrEnd::Key(&number.to_be_bytes()));
        for round in [10, 1000, 40_000, 10] {
            let handles: Vec<Handle> = (0..round).map(|_| pool.take()).collect();
            for (handle, number) in handles.iter().zip(0..round) {
                assert!(cache.find(name(number)).is_none());
                handle.name.set(name(number));
                cache.insert(name(number), *handle);
            }
            for (handle, number) in handles.iter().zip(0..round) {
                assert!(cache.find(name(number)) == Some(*handle));
            }
            for (handle, number) in handles.iter().rev().zip((0..round).rev()) {
                assert!(cache.pop() == Some(*handle), "the newest first");
                assert!(cache.find(name(number)).is_none());
                pool.give_back(*handle);
            }
            assert!(cache.pop().is_none() && cache.entries.len() <= ENTRIES_KEPT);
        }
    }
}
