//! A value that many threads read all the time and that is replaced now and then.
//!
//! Owns: the newest value. Never: makes a reader write anything that other threads read, as long as the value stays. No
//! unsafe code.
//!
//! # Protocol
//! Values are numbered. A reader keeps a [`Snapshot`], a reference to a value with its number, and compares that number with
//! the newest one before it reads: one load of a cache line that nobody writes while the value stays, so that it lies in
//! every cache. Only when the numbers differ does the reader take the lock and a reference to the newest value.
//!
//! Value and number change together under the lock, and are taken together under the lock: so the value of a snapshot is the
//! one of its number, and the load need not order anything. Whoever has heard of a replacement, by whatever orders
//! memory between threads, sees its number or a later one. (loom: `published_*`.)

use std::ops::Deref;

use crossbeam_utils::CachePadded;

use crate::planted::{Bug, planted};
use crate::sync::{Arc, AtomicUsize, Mutex, Ordering, lock};

/// See the module's introduction.
#[derive(Debug)]
pub struct Published<T> {
    /// Number of the newest value. Written under the lock.
    number: CachePadded<AtomicUsize>,
    newest: Mutex<Arc<T>>,
}

/// The version of a [`Published`] value that a reader has seen last.
#[derive(Debug)]
pub struct Snapshot<T> {
    number: usize,
    value: Arc<T>,
}

impl<T> Published<T> {
    /// Publishes a first value.
    #[must_use]
    pub fn new(value: Arc<T>) -> Self {
        Self { number: CachePadded::new(AtomicUsize::new(0)), newest: Mutex::new(value) }
    }

    /// The newest value. Takes the lock.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<T> {
        let newest = lock(&self.newest);
        Snapshot { number: self.number.load(Ordering::Relaxed), value: Arc::clone(&newest) }
    }

    /// Makes a snapshot of this value the newest one. Returns whether it was not: only then is the lock taken, or anything
    /// written.
    #[inline]
    pub fn refresh(&self, snapshot: &mut Snapshot<T>) -> bool {
        let outdated = self.number.load(Ordering::Relaxed) != snapshot.number;
        if outdated {
            self.refresh_slowly(snapshot);
        }
        outdated
    }

    #[cold]
    fn refresh_slowly(&self, snapshot: &mut Snapshot<T>) {
        *snapshot = self.snapshot();
    }

    /// Replaces the value by what `change` makes of it. Those who do so at once take turns.
    pub fn replace(&self, change: impl FnOnce(&T) -> T) {
        let number_first = planted(Bug::PublishedNumberFirst);
        if number_first {
            self.number.fetch_add(1, Ordering::Relaxed);
        }
        let mut newest = lock(&self.newest);
        let changed = Arc::new(change(&newest));
        *newest = changed;
        if !number_first {
            self.number.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<T> Snapshot<T> {
    /// The value, to be kept.
    #[must_use]
    pub fn value(&self) -> &Arc<T> {
        &self.value
    }
}

impl<T> Deref for Snapshot<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_refreshed_once_per_replacement_at_most() {
        let published = Published::new(Arc::new(1));
        let (mut early, mut late) = (published.snapshot(), published.snapshot());
        assert!(!published.refresh(&mut early));
        for value in 2..5 {
            published.replace(|before| before + 1);
            assert!(published.refresh(&mut early));
            assert!(!published.refresh(&mut early));
            assert_eq!(*early, value);
        }
        assert_eq!(*late, 1, "who does not look keeps what it has");
        assert!(published.refresh(&mut late));
        assert_eq!(*late, 4);
        assert!(Arc::ptr_eq(early.value(), late.value()));
        drop(published);
        assert_eq!(Arc::strong_count(early.value()), 2);
    }

    #[test]
    fn readers_see_values_in_order_and_the_last_one_in_the_end() {
        let (readers, values) = (4, if cfg!(miri) { 20 } else { 2_000 });
        let published = Published::new(Arc::new(0_usize));
        std::thread::scope(|scope| {
            for _ in 0..readers {
                scope.spawn(|| {
                    let mut snapshot = published.snapshot();
                    let mut refreshed = 0;
                    while *snapshot < values {
                        let before = *snapshot;
                        refreshed += usize::from(published.refresh(&mut snapshot));
                        assert!(*snapshot >= before);
                        std::thread::yield_now();
                    }
                    assert!(refreshed <= values);
                });
            }
            for _ in 0..values {
                published.replace(|before| before + 1);
            }
        });
    }
}
