//! Structures: what names them, and where they are. The handles are in [`target`], the values in `value`, those that one worker can reach in
//! `reach`, and the list of all in `registry`.
//!
//! Owns: keys and places. Never: knows of slots or threads.
//!
//! A structure is *owned* (one worker has it, closures get `&mut`), *shared* (`Sync`: every worker of its domain reaches it,
//! closures get `&`), or shared *with sessions* (each worker has a session of it as well, such as an epoch pin or a
//! reclamation handle, made on that worker and never sent anywhere).
//!
//! # Invariants
//! - The key of a structure is never used again in this process, by other domains neither: an index with a generation that all registries
//!   count together. So a handle that is used with a client of other domains finds nothing there.
//! - An owned value is in exactly one place: in the [`Reach`] of one worker, or in a message between two.
//! - A shared value lives as long as the registry or any worker's reach has it.

mod reach;
mod registry;
mod target;
mod value;

use std::sync::atomic::{AtomicU32, Ordering};

pub use reach::Reach;
pub(crate) use registry::{Known, Registry};
pub(crate) use target::Missing;
pub use target::{Owned, Sessioned, Shared, Target};
pub(crate) use value::{OwnedValue, SendValue, SharedValue};

/// The number of a structure among all that ever were: what its handles have in common, also when its name is another's by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Key {
    /// The key as one word, which threads can share.
    #[inline(always)]
    pub(crate) fn to_word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    #[inline(always)]
    pub(crate) fn from_word(word: u64) -> Self {
        Self { index: word as u32, generation: (word >> 32) as u32 }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

/// One structure that a change is about: by its name (the structure that has it now), or by its handle or [`Key`] (that very structure).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Structure<'a>(pub(crate) By<'a>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By<'a> {
    Name(&'a str),
    Key(Key),
}

impl<'a> From<&'a str> for Structure<'a> {
    fn from(name: &'a str) -> Self {
        Self(By::Name(name))
    }
}

impl<'a> From<&'a String> for Structure<'a> {
    fn from(name: &'a String) -> Self {
        Self(By::Name(name))
    }
}

impl From<Key> for Structure<'_> {
    fn from(key: Key) -> Self {
        Self(By::Key(key))
    }
}

/// A shared structure of which every worker has a session of its own.
pub trait Sessions: Send + Sync + 'static {
    /// State of one worker: an epoch pin, a handle for reclamation, a cache.
    type Session: 'static;
    /// Makes the session of the calling worker.
    fn session(&self) -> Self::Session;

    /// Returns the contention that a session has met, if it counts that.
    fn retries(session: &Self::Session) -> Option<Retries> {
        let _ = session;
        None
    }
}

/// Contention that a session, or several, have met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retries {
    /// Operations that were done.
    pub operations: u64,
    /// Attempts that were given up because of other workers: failed validations, and latches that were taken.
    pub retries: u64,
}

/// Counts of one worker about one structure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) key: Key,
    pub(crate) tasks: u64,
    pub(crate) retries: Option<Retries>,
}

/// The place of one structure, shared by its handles.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) key: Key,
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// The worker of an owned structure, the domain of a shared one, or [`REMOVED`].
    route: AtomicU32,
}

const REMOVED: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Owned,
    Shared,
}

/// The destination of tasks on a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// To this worker: it has the owned structure.
    Worker(u32),
    /// To any worker of this domain.
    Domain(u32),
    /// Nowhere: the structure was removed.
    Removed,
}

impl Place {
    pub(crate) fn route(&self) -> Route {
        self.route_of(self.route.load(Ordering::Acquire))
    }

    fn route_of(&self, number: u32) -> Route {
        match (number, self.kind) {
            (REMOVED, _) => Route::Removed,
            (worker, Kind::Owned) => Route::Worker(worker),
            (domain, Kind::Shared) => Route::Domain(domain),
        }
    }

    /// Sends tasks to another worker or domain from now on, unless the structure was removed. Returns whether it was not.
    pub(crate) fn set_route(&self, to: u32) -> bool {
        let change = |old| (old != REMOVED).then_some(to);
        self.route.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).is_ok()
    }
}
