//! [`Shared`] and [`Owned`]: the operations of a structure, for workers that share it and for one that owns it.
//!
//! Owns: what each operation promises. Never: does one.
//!
//! Every operation but a scan is atomic: it takes effect at one moment between its call and its return. A scan is not a snapshot: the
//! entries come in the order of their keys, each as it was at some moment of the scan, and one that is there all the time is not left out.

use crate::key::Key;
use crate::optimistic::Contention;

/// Failure of a scan: the structure has no order of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this structure keeps no order of keys and cannot be scanned; use an ordered one, such as b-tree, fp-tree or bw-tree"
)]
pub struct Unordered;

/// Failure of an insertion: the structure cannot take the key, and has not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The key is too long for this structure.
    #[error(
        "the key has {bytes} bytes but this structure takes at most {max}; shorten the key or use another structure"
    )]
    KeyTooLong {
        /// Bytes of the key.
        bytes: usize,
        /// Bytes that the structure takes.
        max: usize,
    },
    /// Memory is out.
    #[error("there is no memory for another key; remove some, or give the process more memory")]
    OutOfMemory,
}

/// A structure that several workers use at once, each by a session of its own.
pub trait Shared<K: Key + ?Sized>: Send + Sync {
    /// The state of one worker: counters, or a handle to the memory reclamation of the structure. It pins nothing between two
    /// operations, so a worker that rests does not keep others from freeing memory.
    type Session: Send;

    /// Set if keys have an order, so that [`scan`](Shared::scan) works.
    const ORDERED: bool;

    /// Begins a session, which is good for this structure alone.
    fn session(&self) -> Self::Session;

    /// Returns the value of a key.
    fn read(&self, session: &mut Self::Session, key: &K) -> Option<u64>;

    /// Replaces the value of a key that is there; returns whether it is.
    fn update(&self, session: &mut Self::Session, key: &K, value: u64) -> bool;

    /// Inserts a key that is not there; returns whether it was not. One that is there keeps its value.
    ///
    /// # Errors
    /// The structure cannot take the key, and has not changed.
    fn insert(&self, session: &mut Self::Session, key: &K, value: u64) -> Result<bool, Refused>;

    /// Removes a key; returns whether it was there.
    fn remove(&self, session: &mut Self::Session, key: &K) -> bool;

    /// Visits at most `limit` entries from the key `from` on, in ascending order, and returns their number. `visit` must not
    /// use the structure: it may be called under a latch.
    ///
    /// # Errors
    /// The structure keeps no order of keys.
    fn scan(
        &self,
        session: &mut Self::Session,
        from: &K,
        limit: usize,
        visit: &mut dyn FnMut(&K, u64),
    ) -> Result<usize, Unordered> {
        let _ = (session, from, limit, visit);
        Err(Unordered)
    }

    /// Reads several keys, each as [`read`](Shared::read) does; the cache misses of several may overlap. The value of key `i` goes to place `i`
    /// of `found`; keys without a place are not read.
    fn read_many(&self, session: &mut Self::Session, keys: &[&K], found: &mut [Option<u64>]) {
        for (key, found) in keys.iter().zip(found) {
            *found = self.read(session, key);
        }
    }

    /// Returns the contention that a session has met, if the structure can tell.
    fn contention(session: &Self::Session) -> Option<Contention> {
        let _ = session;
        None
    }
}

/// A structure that one worker has to itself. The operations promise what those of [`Shared`] do.
pub trait Owned<K: Key + ?Sized>: Send {
    /// Set if keys have an order, so that [`scan`](Owned::scan) works.
    const ORDERED: bool;

    /// Returns the value of a key.
    fn read(&mut self, key: &K) -> Option<u64>;

    /// Replaces the value of a key that is there; returns whether it is.
    fn update(&mut self, key: &K, value: u64) -> bool;

    /// Inserts a key that is not there; returns whether it was not. One that is there keeps its value.
    ///
    /// # Errors
    /// The structure cannot take the key, and has not changed.
    fn insert(&mut self, key: &K, value: u64) -> Result<bool, Refused>;

    /// Removes a key; returns whether it was there.
    fn remove(&mut self, key: &K) -> bool;

    /// Visits at most `limit` entries from the key `from` on, in ascending order, and returns their number.
    ///
    /// # Errors
    /// The structure keeps no order of keys.
    fn scan(&mut self, from: &K, limit: usize, visit: &mut dyn FnMut(&K, u64)) -> Result<usize, Unordered> {
        let _ = (from, limit, visit);
        Err(Unordered)
    }

    /// Reads several keys, each as [`read`](Owned::read) does; the cache misses of several may overlap. The value of key `i` goes to place `i`
    /// of `found`; keys without a place are not read.
    fn read_many(&mut self, keys: &[&K], found: &mut [Option<u64>]) {
        for (key, found) in keys.iter().zip(found) {
            *found = self.read(key);
        }
    }

    /// Returns the contention that was met, if the structure can tell.
    fn contention(&self) -> Option<Contention> {
        None
    }
}

/// A shared structure with one session of it, as a worker has it.
pub struct Opened<'s, K: Key + ?Sized, S: Shared<K>> {
    structure: &'s S,
    session: S::Session,
}

impl<'s, K: Key + ?Sized, S: Shared<K>> Opened<'s, K, S> {
    /// Begins a session of `structure`.
    pub fn new(structure: &'s S) -> Opened<'s, K, S> {
        Opened { structure, session: structure.session() }
    }
}

impl<K: Key + ?Sized, S: Shared<K>> Owned<K> for Opened<'_, K, S> {
    const ORDERED: bool = S::ORDERED;

    #[inline]
    fn read(&mut self, key: &K) -> Option<u64> {
        self.structure.read(&mut self.session, key)
    }

    #[inline]
    fn update(&mut self, key: &K, value: u64) -> bool {
        self.structure.update(&mut self.session, key, value)
    }

    #[inline]
    fn insert(&mut self, key: &K, value: u64) -> Result<bool, Refused> {
        self.structure.insert(&mut self.session, key, value)
    }

    #[inline]
    fn remove(&mut self, key: &K) -> bool {
        self.structure.remove(&mut self.session, key)
    }

    #[inline]
    fn scan(&mut self, from: &K, limit: usize, visit: &mut dyn FnMut(&K, u64)) -> Result<usize, Unordered> {
        self.structure.scan(&mut self.session, from, limit, visit)
    }

    #[inline]
    fn read_many(&mut self, keys: &[&K], found: &mut [Option<u64>]) {
        self.structure.read_many(&mut self.session, keys, found);
    }

    fn contention(&self) -> Option<Contention> {
        S::contention(&self.session)
    }
}
