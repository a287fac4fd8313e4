//! `b-tree`: atomic values, and one lock for inserts (Table 1 of the paper: the STX B-tree, "atomic load/store + global lock for
//! inserts").
//!
//! Owns: the lock. Never: takes it to read, update or scan.
//!
//! The paper's tree lets readers meet half-made changes of its structure, and calls that an unfair upper bound. Here they
//! validate versions, and an update announces itself in its leaf, so that it cannot write where a value has just been moved
//! from: readers are not held up by it.

use std::sync::{Mutex, PoisonError};

use crate::key::{Key, refuse_long};
#[cfg(doc)]
use crate::optimistic::Keep;
use crate::optimistic::{Attempt, Contention, GROUP, Independent, Page, Replace, Spin, Tree, scan_pages};
use crate::structure::{PointAccess, Refused, Shared, Unordered, access_one};

/// See the module's introduction. Byte strings have [`Keep::BYTES_MAX`] bytes at most.
pub struct BTree<K: Key + ?Sized> {
    tree: Tree<K::Kept>,
    /// Held by whoever inserts or removes.
    changes: Mutex<()>,
}

impl<K: Key + ?Sized> BTree<K> {
    /// Creates an empty tree.
    #[must_use]
    pub fn new() -> BTree<K> {
        BTree { tree: Tree::new(), changes: Mutex::default() }
    }
}

impl<K: Key + ?Sized> Default for BTree<K> {
    fn default() -> BTree<K> {
        BTree::new()
    }
}

/// Repeats an attempt until it succeeds.
#[inline]
fn repeat<R>(contention: &mut Contention, mut attempt: impl FnMut() -> Attempt<R>) -> R {
    let mut spin = Spin::default();
    loop {
        match attempt() {
            Ok(result) => {
                contention.operations += 1;
                return result;
            }
            Err(restart) => {
                contention.note(restart);
                spin.wait();
            }
        }
    }
}

impl<K: Key + ?Sized> Shared<K> for BTree<K> {
    type Session = Contention;

    const ORDERED: bool = true;

    fn session(&self) -> Contention {
        Contention::default()
    }

    #[inline]
    fn read(&self, session: &mut Contention, key: &K) -> Option<u64> {
        repeat(session, || self.tree.try_read(key, &Independent))
    }

    #[inline]
    fn update(&self, session: &mut Contention, key: &K, value: u64) -> bool {
        repeat(session, || self.tree.try_update(key, value, Replace::InPlace, &Independent))
    }

    fn insert(&self, session: &mut Contention, key: &K, value: u64) -> Result<bool, Refused> {
        refuse_long(key)?;
        let _changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(repeat(session, || self.tree.try_insert(key, value, &Independent)))
    }

    fn remove(&self, session: &mut Contention, key: &K) -> bool {
        let _changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        repeat(session, || self.tree.try_remove(key, &Independent))
    }

    fn scan(
        &self,
        session: &mut Contention,
        from: &K,
        limit: usize,
        visit: &mut dyn FnMut(&K, u64),
    ) -> Result<usize, Unordered> {
        let next_page = |from: &K, page: &mut Page<K::Kept>| {
            repeat(session, || self.tree.try_page(from, page, &Independent))
        };
        Ok(scan_pages::<K::Kept>(from, limit, visit, next_page))
    }

    fn access_many(
        &self,
        session: &mut Contention,
        accesses: &[PointAccess<'_, K>],
        found: &mut [Option<u64>],
    ) {
        for (accesses, found) in accesses.chunks(GROUP).zip(found.chunks_mut(GROUP)) {
            let places = self.tree.places(accesses);
            for ((access, place), found) in accesses.iter().zip(places).zip(found) {
                let attempt = |place| self.tree.try_access_at(place, *access, Replace::InPlace, &Independent);
                *found = match place.and_then(attempt) {
                    Ok(value) => {
                        session.operations += 1;
                        value
                    }
                    Err(restart) => {
                        session.note(restart);
                        access_one(self, session, *access)
                    }
                };
            }
        }
    }

    fn contention(session: &Contention) -> Option<Contention> {
        Some(*session)
    }
}
