//! `owned-hash-map`: a hash table of one owner, by the crate `hashbrown`.
//!
//! Owns: the table, and the order in which many keys are looked up. Never: synchronizes.

use std::borrow::Borrow;

use arrayvec::ArrayVec;
use atrapos_storage::prefetch_value;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::hash::FoldedHash;
use crate::key::Key;
use crate::structure::{Owned, PointAccess, Refused};

/// Keys that are looked up together.
const GROUP: usize = 16;

/// See the module's introduction.
pub struct OwnedHashMap<K: Key + ?Sized> {
    table: HashTable<(K::Stored, u64)>,
}

impl<K: Key + ?Sized> OwnedHashMap<K> {
    /// Creates an empty map.
    #[must_use]
    pub fn new() -> OwnedHashMap<K> {
        OwnedHashMap { table: HashTable::new() }
    }

    #[inline]
    fn find(&self, hash: u64, key: &K) -> Option<u64> {
        self.table.find(hash, |(stored, _)| stored.borrow() == key).map(|(_, value)| *value)
    }

    #[inline]
    fn replace(&mut self, hash: u64, key: &K, value: u64) -> bool {
        let entry = self.table.find_mut(hash, |(stored, _)| stored.borrow() == key);
        entry.map(|(_, old)| *old = value).is_some()
    }
}

impl<K: Key + ?Sized> Default for OwnedHashMap<K> {
    fn default() -> OwnedHashMap<K> {
        OwnedHashMap::new()
    }
}

impl<K: Key + ?Sized> Owned<K> for OwnedHashMap<K> {
    const ORDERED: bool = false;

    #[inline]
    fn read(&mut self, key: &K) -> Option<u64> {
        self.find(FoldedHash::of(key), key)
    }

    #[inline]
    fn update(&mut self, key: &K, value: u64) -> bool {
        self.replace(FoldedHash::of(key), key, value)
    }

    fn insert(&mut self, key: &K, value: u64) -> Result<bool, Refused> {
        let is_equal = |(stored, _): &(K::Stored, u64)| stored.borrow() == key;
        let hash = |(stored, _): &(K::Stored, u64)| FoldedHash::of(stored.borrow());
        self.table.try_reserve(1, hash).map_err(|_| Refused::OutOfMemory)?;
        match self.table.entry(FoldedHash::of(key), is_equal, hash) {
            Entry::Occupied(_) => Ok(false),
            Entry::Vacant(place) => {
                place.insert((key.stored(), value));
                Ok(true)
            }
        }
    }

    fn remove(&mut self, key: &K) -> bool {
        let entry = self.table.find_entry(FoldedHash::of(key), |(stored, _)| stored.borrow() == key);
        entry.map(hashbrown::hash_table::OccupiedEntry::remove).is_ok()
    }

    fn access_many(&mut self, accesses: &[PointAccess<'_, K>], found: &mut [Option<u64>]) {
        for (accesses, found) in accesses.chunks(GROUP).zip(found.chunks_mut(GROUP)) {
            let hashes: ArrayVec<u64, GROUP> =
                accesses.iter().map(|access| FoldedHash::of(access.key())).collect();
            // The tags of a hash tell where its entry probably is, without a look at the entry.
            for hash in &hashes {
                self.table.iter_hash(*hash).take(1).for_each(prefetch_value);
            }
            for ((access, hash), found) in accesses.iter().zip(&hashes).zip(found) {
                *found = match *access {
                    PointAccess::Read(key) => self.find(*hash, key),
                    PointAccess::Update(key, value) => self.replace(*hash, key, value).then_some(value),
                };
            }
        }
    }
}
