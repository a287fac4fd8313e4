//! [`Shared`] and [`Owned`]: the operations of a structure, for workers that share it and for one that owns it.
//!
//! Owns: what each operation promises. Never: does one.
//!
//! Every operation but a scan is atomic: it takes effect at one moment between its call and its return. A scan is not a snapshot: the
//! entries come in the order of their keys, each as it was at some moment of the scan, and one that is there all the time is not left out.

use std::ops::Deref;

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

/// An access to a key that changes no other key and moves nothing.
#[derive(Debug, PartialEq, Eq)]
pub enum PointAccess<'k, K: ?Sized> {
    /// Reads its value.
    Read(&'k K),
    /// Replaces its value, if it is there.
    Update(&'k K, u64),
}

impl<'k, K: ?Sized> PointAccess<'k, K> {
    /// Returns the key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &'k K {
        match *self {
            PointAccess::Read(key) | PointAccess::Update(key, _) => key,
        }
    }
}

impl<K: ?Sized> Clone for PointAccess<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: ?Sized> Copy for PointAccess<'_, K> {}

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

    /// Makes several accesses, as [`read`](Shared::read) and [`update`](Shared::update) do, with the same effects as one after the other;
    /// their cache misses may overlap. The value that the key of access `i` has after it goes to place `i` of `found`; accesses
    /// without a place are not made.
    fn access_many(
        &self,
        session: &mut Self::Session,
        accesses: &[PointAccess<'_, K>],
        found: &mut [Option<u64>],
    ) {
        for (access, found) in accesses.iter().zip(found) {
            *found = access_one(self, session, *access);
        }
    }

    /// Returns the contention that a session has met, if the structure can tell.
    fn contention(session: &Self::Session) -> Option<Contention> {
        let _ = session;
        None
    }
}

/// Makes one access; returns the value that its key has after it.
#[inline]
pub(crate) fn access_one<K: Key + ?Sized, S: Shared<K> + ?Sized>(
    structure: &S,
    session: &mut S::Session,
    access: PointAccess<'_, K>,
) -> Option<u64> {
    match access {
        PointAccess::Read(key) => structure.read(session, key),
        PointAccess::Update(key, value) => structure.update(session, key, value).then_some(value),
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

    /// Makes several accesses, as [`read`](Owned::read) and [`update`](Owned::update) do, with the same effects as one after the other;
    /// their cache misses may overlap. The value that the key of access `i` has after it goes to place `i` of `found`; accesses
    /// without a place are not made.
    fn access_many(&mut self, accesses: &[PointAccess<'_, K>], found: &mut [Option<u64>]) {
        for (access, found) in accesses.iter().zip(found) {
            *found = match *access {
                PointAccess::Read(key) => self.read(key),
                PointAccess::Update(key, value) => self.update(key, value).then_some(value),
            };
        }
    }

    /// Returns the contention that was met, if the structure can tell.
    fn contention(&self) -> Option<Contention> {
        None
    }
}

/// A shared structure with one session of it, as a worker has it; the structure is borrowed or counted.
pub struct Opened<K: Key + ?Sized, P: Deref<Target: Shared<K>>> {
    session: <P::Target as Shared<K>>::Session,
    structure: P,
}

impl<K: Key + ?Sized, P: Deref<Target: Shared<K>>> Opened<K, P> {
    /// Begins a session of `structure`.
    pub fn new(structure: P) -> Opened<K, P> {
        Opened { session: structure.session(), structure }
    }
}

impl<K, P> Owned<K> for Opened<K, P>
where
    K: Key + ?Sized,
    P: Deref<Target: Shared<K>> + Send,
{
    const ORDERED: bool = P::Target::ORDERED;

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
    fn access_many(&mut self, accesses: &[PointAccess<'_, K>], found: &mut [Option<u64>]) {
        self.structure.access_many(&mut self.session, accesses, found);
    }

    fn contention(&self) -> Option<Contention> {
        P::Target::contention(&self.session)
    }
}
