//! `dashmap`: shards with a reader-writer lock each, by the crate of that name; for comparison.
//!
//! Owns: the map. Never: hands out a guard: one that is held during another operation of its thread deadlocks with a writer of the shard.

use dashmap::{DashMap, Entry};

use crate::hash::FoldedHash;
use crate::key::Key;
use crate::structure::{Refused, Shared};

/// See the module's introduction.
pub struct ShardedMap<K: Key + ?Sized> {
    map: DashMap<K::Stored, u64, FoldedHash>,
}

impl<K: Key + ?Sized> ShardedMap<K> {
    /// Creates an empty map.
    #[must_use]
    pub fn new() -> ShardedMap<K> {
        ShardedMap { map: DashMap::with_hasher(FoldedHash) }
    }
}

impl<K: Key + ?Sized> Default for ShardedMap<K> {
    fn default() -> ShardedMap<K> {
        ShardedMap::new()
    }
}

impl<K: Key + ?Sized> Shared<K> for ShardedMap<K> {
    type Session = ();

    const ORDERED: bool = false;

    fn session(&self) {}

    #[inline]
    fn read(&self, (): &mut (), key: &K) -> Option<u64> {
        self.map.get(key).map(|entry| *entry)
    }

    #[inline]
    fn update(&self, (): &mut (), key: &K, value: u64) -> bool {
        self.map.get_mut(key).map(|mut entry| *entry = value).is_some()
    }

    fn insert(&self, (): &mut (), key: &K, value: u64) -> Result<bool, Refused> {
        match self.map.entry(key.stored()) {
            Entry::Occupied(_) => Ok(false),
            Entry::Vacant(place) => {
                place.insert(value);
                Ok(true)
            }
        }
    }

    fn remove(&self, (): &mut (), key: &K) -> bool {
        self.map.remove(key).is_some()
    }
}
