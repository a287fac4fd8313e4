//! `fp-tree-fallback`: optimistic attempts that fall back to one lock, as an FP-Tree does whose hardware transactions abort (Table 1 of the
//! paper: "HTM + global lock for fallback").
//!
//! Owns: the lock, and the decision to take it. Never: depends on it for correctness: whoever has it still latches what it changes.
//!
//! An attempt subscribes to the lock as a hardware transaction does: it reads the lock first, waits while somebody has it, and is
//! given up if somebody has taken it since. After a number of failed attempts an operation takes the lock itself, which ends
//! the attempts of all others; they begin again when it is free. So contention makes everybody wait for one, which is what the
//! paper measures, and [`Contention`] counts it.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

use crossbeam_utils::CachePadded;

use crate::key::{Key, refuse_long};
use crate::optimistic::{
    Attempt, Contention, GROUP, Independent, Interruption, Keep, Page, Replace, Restart, Spin, Subscription,
    Tree, scan_pages,
};
use crate::structure::{PointAccess, Refused, Shared, Unordered, access_one};

/// Attempts that may fail before an operation falls back to the lock, unless [`FallbackTree::with_attempts`] says otherwise.
pub const DEFAULT_ATTEMPTS: u32 = 8;

/// See the module's introduction. Byte strings have [`Keep::BYTES_MAX`] bytes at most.
pub struct FallbackTree<K: Key + ?Sized> {
    tree: Tree<K::Kept>,
    /// Odd while somebody has the lock.
    lock: CachePadded<AtomicU64>,
    attempts: u32,
}

/// A lock that was free when an attempt began.
struct Free<'l> {
    lock: &'l AtomicU64,
    was: u64,
}

impl Subscription for Free<'_> {
    #[inline]
    fn holds(&self) -> bool {
        fence(Acquire);
        self.lock.load(Relaxed) == self.was
    }
}

/// The lock, while one operation has it.
struct Held<'l> {
    lock: &'l AtomicU64,
    was: u64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.lock.store(self.was + 2, Release);
    }
}

/// Attempts at one operation, by what they depend on.
trait Operation<R> {
    fn attempt(&mut self, subscription: &impl Subscription) -> Attempt<R>;
}

impl<K: Key + ?Sized> FallbackTree<K> {
    /// Creates an empty tree that falls back after [`DEFAULT_ATTEMPTS`].
    #[must_use]
    pub fn new() -> FallbackTree<K> {
        FallbackTree::with_attempts(DEFAULT_ATTEMPTS)
    }

    /// Creates an empty tree whose operations fall back after so many failed attempts; with 0 all of them use the lock.
    #[must_use]
    pub fn with_attempts(attempts: u32) -> FallbackTree<K> {
        FallbackTree { tree: Tree::new(), lock: CachePadded::new(AtomicU64::new(0)), attempts }
    }

    #[inline]
    fn run<R>(&self, contention: &mut Contention, mut operation: impl Operation<R>) -> R {
        contention.operations += 1;
        let (mut failed, mut spin) = (0, Spin::default());
        while failed < self.attempts {
            let was = self.lock.load(Acquire);
            if was % 2 == 1 {
                contention.busy += 1;
                spin.wait();
                continue;
            }
            match operation.attempt(&Free { lock: &self.lock, was }) {
                Ok(result) => return result,
                Err(Restart::Split) => {}
                Err(restart) => {
                    contention.note(restart);
                    failed += 1;
                }
            }
        }
        contention.fallbacks += 1;
        self.fall_back(operation)
    }

    #[cold]
    fn fall_back<R>(&self, mut operation: impl Operation<R>) -> R {
        let mut spin = Spin::default();
        let _held = loop {
            let was = self.lock.load(Relaxed);
            let free = was.is_multiple_of(2);
            if free && self.lock.compare_exchange(was, was + 1, Acquire, Relaxed).is_ok() {
                break Held { lock: &self.lock, was };
            }
            spin.wait();
        };
        // Attempts that have latched a node before may still end.
        loop {
            match operation.attempt(&Independent) {
                Ok(result) => return result,
                Err(_) => spin.wait(),
            }
        }
    }
}

impl<K: Key + ?Sized> Default for FallbackTree<K> {
    fn default() -> FallbackTree<K> {
        FallbackTree::new()
    }
}

struct Read<'t, K: Keep>(&'t Tree<K>, &'t K::Key);
struct Update<'t, K: Keep>(&'t Tree<K>, &'t K::Key, u64);
struct Insert<'t, K: Keep>(&'t Tree<K>, &'t K::Key, u64);
struct Remove<'t, K: Keep>(&'t Tree<K>, &'t K::Key);
struct NextPage<'t, K: Keep>(&'t Tree<K>, &'t K::Key, &'t mut Page<K>);

impl<K: Keep> Operation<Option<u64>> for Read<'_, K> {
    #[inline]
    fn attempt(&mut self, subscription: &impl Subscription) -> Attempt<Option<u64>> {
        self.0.try_read(self.1, subscription)
    }
}

impl<K: Keep> Operation<bool> for Update<'_, K> {
    #[inline]
    fn attempt(&mut self, subscription: &impl Subscription) -> Attempt<bool> {
        self.0.try_update(self.1, self.2, Replace::UnderLatch, subscription)
    }
}

impl<K: Keep> Operation<bool> for Insert<'_, K> {
    fn attempt(&mut self, subscription: &impl Subscription) -> Attempt<bool> {
        self.0.try_insert(self.1, self.2, subscription)
    }
}

impl<K: Keep> Operation<bool> for Remove<'_, K> {
    fn attempt(&mut self, subscription: &impl Subscription) -> Attempt<bool> {
        self.0.try_remove(self.1, subscription)
    }
}

impl<K: Keep> Operation<Option<K::Copied>> for NextPage<'_, K> {
    fn attempt(&mut self, subscription: &impl Subscription) -> Attempt<Option<K::Copied>> {
        self.0.try_page(self.1, self.2, subscription)
    }
}

impl<K: Key + ?Sized> Shared<K> for FallbackTree<K> {
    type Session = Contention;

    const ORDERED: bool = true;

    fn session(&self) -> Contention {
        Contention::default()
    }

    #[inline]
    fn read(&self, session: &mut Contention, key: &K) -> Option<u64> {
        self.run(session, Read(&self.tree, key))
    }

    #[inline]
    fn update(&self, session: &mut Contention, key: &K, value: u64) -> bool {
        self.run(session, Update(&self.tree, key, value))
    }

    fn insert(&self, session: &mut Contention, key: &K, value: u64) -> Result<bool, Refused> {
        refuse_long(key)?;
        Ok(self.run(session, Insert(&self.tree, key, value)))
    }

    fn remove(&self, session: &mut Contention, key: &K) -> bool {
        self.run(session, Remove(&self.tree, key))
    }

    fn scan(
        &self,
        session: &mut Contention,
        from: &K,
        limit: usize,
        visit: &mut dyn FnMut(&K, u64),
    ) -> Result<usize, Unordered> {
        let next_page =
            |from: &K, page: &mut Page<K::Kept>| self.run(session, NextPage(&self.tree, from, page));
        Ok(scan_pages::<K::Kept>(from, limit, visit, next_page))
    }

    fn access_many(
        &self,
        session: &mut Contention,
        accesses: &[PointAccess<'_, K>],
        found: &mut [Option<u64>],
    ) {
        for (accesses, found) in accesses.chunks(GROUP).zip(found.chunks_mut(GROUP)) {
            let was = self.lock.load(Acquire);
            let free = Free { lock: &self.lock, was };
            let places = self.tree.places(accesses);
            for ((access, place), found) in accesses.iter().zip(places).zip(found) {
                // Somebody who has the lock is waited for, as by any operation.
                let attempt = |place| match was.is_multiple_of(2) {
                    true => self.tree.try_access_at(place, *access, Replace::UnderLatch, &free),
                    false => Err(Interruption::Latched.into()),
                };
                *found = match place.and_then(attempt) {
                    Ok(value) => {
                        session.operations += 1;
                        value
                    }
                    Err(_) => access_one(self, session, *access),
                };
            }
        }
    }

    fn contention(session: &Contention) -> Option<Contention> {
        Some(*session)
    }
}

#[cfg(all(test, debug_assertions))]
mod tests;
