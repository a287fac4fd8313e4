//! `bw-tree`: nodes are copied and installed by compare-and-swap through an indirection (Table 1 of the paper: the Open BW-Tree,
//! "Copy-On-Write + atomic CAS"), by the crate `concurrent-map`.
//!
//! Owns: the handle from which those of the workers are made. Never: clones one for an operation: a handle holds the garbage of a worker.

use std::borrow::Borrow;
use std::ops::Bound;
use std::sync::{Mutex, PoisonError};

use concurrent_map::ConcurrentMap;

use crate::key::Key;
use crate::structure::{Refused, Shared, Unordered};

/// See the module's introduction.
pub struct BwTree<K: Key + ?Sized> {
    /// Handles are not `Sync`, so this one is only used under its lock, to clone it.
    handle: Mutex<ConcurrentMap<K::Stored, u64>>,
}

impl<K: Key + ?Sized> BwTree<K> {
    /// Creates an empty tree.
    #[must_use]
    pub fn new() -> BwTree<K> {
        BwTree { handle: Mutex::new(ConcurrentMap::new()) }
    }
}

impl<K: Key + ?Sized> Default for BwTree<K> {
    fn default() -> BwTree<K> {
        BwTree::new()
    }
}

impl<K: Key + ?Sized> Shared<K> for BwTree<K> {
    /// A clone of the handle, by which a worker reclaims memory without atomic operations.
    type Session = ConcurrentMap<K::Stored, u64>;

    const ORDERED: bool = true;

    fn session(&self) -> Self::Session {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    #[inline]
    fn read(&self, tree: &mut Self::Session, key: &K) -> Option<u64> {
        tree.get(key)
    }

    fn update(&self, tree: &mut Self::Session, key: &K, value: u64) -> bool {
        let Some(mut old) = tree.get(key) else { return false };
        loop {
            // The crate copies the leaf for every attempt, so the first one is made with the value that is probably there.
            match tree.cas(key.stored(), Some(&old), Some(value)) {
                Ok(_) => return true,
                Err(failure) => match failure.actual {
                    Some(actual) => old = actual,
                    None => return false,
                },
            }
        }
    }

    fn insert(&self, tree: &mut Self::Session, key: &K, value: u64) -> Result<bool, Refused> {
        Ok(tree.cas(key.stored(), None::<&u64>, Some(value)).is_ok())
    }

    fn remove(&self, tree: &mut Self::Session, key: &K) -> bool {
        tree.remove(key).is_some()
    }

    fn scan(
        &self,
        tree: &mut Self::Session,
        from: &K,
        limit: usize,
        visit: &mut dyn FnMut(&K, u64),
    ) -> Result<usize, Unordered> {
        let entries = tree.range::<K, _>((Bound::Included(from), Bound::Unbounded)).take(limit);
        Ok(entries.map(|(key, value)| visit(key.borrow(), value)).count())
    }
}
