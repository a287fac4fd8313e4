//! `hash-map`: buckets with a lock each (Table 1 of the paper: "Fine-grained locking + spin lock"), by the crate `scc`, with the paper's
//! better hash.
//!
//! Owns: the map. Never: keeps an entry locked after an operation.

use crate::hash::FoldedHash;
use crate::key::Key;
use crate::structure::{Refused, Shared};

/// See the module's introduction.
pub struct HashMap<K: Key + ?Sized> {
    map: scc::HashMap<K::Stored, u64, FoldedHash>,
}

impl<K: Key + ?Sized> HashMap<K> {
    /// Creates an empty map.
    #[must_use]
    pub fn new() -> HashMap<K> {
        HashMap { map: scc::HashMap::with_hasher(FoldedHash) }
    }
}

impl<K: Key + ?Sized> Default for HashMap<K> {
    fn default() -> HashMap<K> {
        HashMap::new()
    }
}

impl<K: Key + ?Sized> Shared<K> for HashMap<K> {
    type Session = ();

    const ORDERED: bool = false;

    fn session(&self) {}

    #[inline]
    fn read(&self, (): &mut (), key: &K) -> Option<u64> {
        self.map.read_sync(key, |_, value| *value)
    }

    #[inline]
    fn update(&self, (): &mut (), key: &K, value: u64) -> bool {
        self.map.update_sync(key, |_, old| *old = value).is_some()
    }

    fn insert(&self, (): &mut (), key: &K, value: u64) -> Result<bool, Refused> {
        Ok(self.map.insert_sync(key.stored(), value).is_ok())
    }

    fn remove(&self, (): &mut (), key: &K) -> bool {
        self.map.remove_sync(key).is_some()
    }
}
