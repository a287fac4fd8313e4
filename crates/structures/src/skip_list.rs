//! `skiplist`: a skip list without locks, by the crate `crossbeam-skiplist`; for comparison.
//!
//! Owns: the list. Never: replaces an entry to update it: values are atomic words (`papaya_map` says why that is atomic).

use std::borrow::Borrow;
use std::ops::Bound;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crossbeam_skiplist::SkipMap;

use crate::key::Key;
use crate::structure::{Refused, Shared, Unordered};

/// A value, with the insertion that has brought it: the crate does not tell whose entry it hands out.
struct Value {
    value: AtomicU64,
    insertion: u64,
}

/// See the module's introduction.
pub struct SkipList<K: Key + ?Sized> {
    map: SkipMap<K::Stored, Value>,
    sessions: AtomicU64,
}

/// The number that the next insertion of a session has, which no other one has: sessions are 2^40 apart.
pub struct NextInsertion(u64);

impl<K: Key + ?Sized> SkipList<K> {
    /// Creates an empty list.
    #[must_use]
    pub fn new() -> SkipList<K> {
        SkipList { map: SkipMap::new(), sessions: AtomicU64::new(0) }
    }
}

impl<K: Key + ?Sized> Default for SkipList<K> {
    fn default() -> SkipList<K> {
        SkipList::new()
    }
}

impl<K: Key + ?Sized> Shared<K> for SkipList<K> {
    type Session = NextInsertion;

    const ORDERED: bool = true;

    fn session(&self) -> NextInsertion {
        NextInsertion(self.sessions.fetch_add(1, Relaxed) << 40)
    }

    #[inline]
    fn read(&self, _: &mut NextInsertion, key: &K) -> Option<u64> {
        self.map.get(key).map(|entry| entry.value().value.load(Acquire))
    }

    #[inline]
    fn update(&self, _: &mut NextInsertion, key: &K, value: u64) -> bool {
        self.map.get(key).map(|entry| entry.value().value.store(value, Release)).is_some()
    }

    fn insert(&self, next: &mut NextInsertion, key: &K, value: u64) -> Result<bool, Refused> {
        let insertion = next.0;
        next.0 += 1;
        let entry = self.map.get_or_insert(key.stored(), Value { value: AtomicU64::new(value), insertion });
        Ok(entry.value().insertion == insertion)
    }

    fn remove(&self, _: &mut NextInsertion, key: &K) -> bool {
        // Not `SkipMap::remove`: in version 0.1.3 it returns the entry also to who was not the one that removed it.
        self.map.get(key).is_some_and(|entry| entry.remove())
    }

    fn scan(
        &self,
        _: &mut NextInsertion,
        from: &K,
        limit: usize,
        visit: &mut dyn FnMut(&K, u64),
    ) -> Result<usize, Unordered> {
        let entries = self.map.range::<K, _>((Bound::Included(from), Bound::Unbounded)).take(limit);
        Ok(entries.map(|entry| visit(entry.key().borrow(), entry.value().value.load(Acquire))).count())
    }
}
