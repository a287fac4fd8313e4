//! `papaya`: a hash map whose readers take no lock, by the crate of that name; for comparison.
//!
//! Owns: the map. Never: replaces an entry to update it: values are atomic words, because the crate is slow where entries are replaced.
//!
//! An update stores into the entry that it has found. If the entry is removed meanwhile, the update took effect before the removal:
//! whoever still reads the entry began before, too, and a removal does not say what the value was.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::hash::FoldedHash;
use crate::key::Key;
use crate::structure::{Refused, Shared};

/// See the module's introduction.
pub struct PapayaMap<K: Key + ?Sized> {
    map: papaya::HashMap<K::Stored, AtomicU64, FoldedHash>,
}

impl<K: Key + ?Sized> PapayaMap<K> {
    /// Creates an empty map.
    #[must_use]
    pub fn new() -> PapayaMap<K> {
        PapayaMap { map: papaya::HashMap::with_hasher(FoldedHash) }
    }
}

impl<K: Key + ?Sized> Default for PapayaMap<K> {
    fn default() -> PapayaMap<K> {
        PapayaMap::new()
    }
}

impl<K: Key + ?Sized> Shared<K> for PapayaMap<K> {
    type Session = ();

    const ORDERED: bool = false;

    fn session(&self) {}

    #[inline]
    fn read(&self, (): &mut (), key: &K) -> Option<u64> {
        self.map.pin().get(key).map(|value| value.load(Acquire))
    }

    #[inline]
    fn update(&self, (): &mut (), key: &K, value: u64) -> bool {
        self.map.pin().get(key).map(|old| old.store(value, Release)).is_some()
    }

    fn insert(&self, (): &mut (), key: &K, value: u64) -> Result<bool, Refused> {
        Ok(self.map.pin().try_insert(key.stored(), AtomicU64::new(value)).is_ok())
    }

    fn remove(&self, (): &mut (), key: &K) -> bool {
        self.map.pin().remove(key).is_some()
    }
}
