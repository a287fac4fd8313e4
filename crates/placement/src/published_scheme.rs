//! The current scheme, for threads that submit requests from outside the workers.
//!
//! Owns: the newest scheme as a whole, and the snapshot of it that each thread has read last. Never: is used by a worker that
//! runs a transaction (workers have schemes of their own, [`atrapos_partition::routing`]).
//!
//! A request reads the snapshot of its own thread, after comparing one version number that is written only when the scheme
//! changes ([`Published`]): it takes no lock, counts no reference and writes no cache line of another thread, however many
//! threads submit requests. (`ATraPos §IV` keeps every state that all sockets access off the critical path.) After a change,
//! the first request of a thread takes a lock, once.
//!
//! Invariants: after a change of the scheme has returned, every request is routed by it; a thread's snapshot lives as long as
//! the database at most, and there is one per thread at most (threads that have ended leave theirs to later ones).

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use atrapos_partition::routing::{FamilyScheme, Route, Scheme};
use atrapos_runtime::{Published, Snapshot, WorkerId};
use thread_local::ThreadLocal;

/// The newest scheme and the snapshots of the threads. See the module's introduction.
#[derive(Debug)]
pub struct PublishedScheme {
    newest: Published<Scheme>,
    seen: ThreadLocal<OwnLine<RefCell<Snapshot<Scheme>>>>,
    /// The number of times that a thread has taken the lock to route a request.
    pub refreshes: AtomicU64,
}

/// State of one thread, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct OwnLine<T>(T);

impl PublishedScheme {
    /// Publishes the first scheme.
    pub fn new(scheme: Arc<Scheme>) -> PublishedScheme {
        PublishedScheme {
            newest: Published::new(scheme),
            seen: ThreadLocal::new(),
            refreshes: AtomicU64::new(0),
        }
    }

    /// Returns the worker that is the home of a transaction with this route.
    pub fn home(&self, route: &Route, workers: usize) -> WorkerId {
        let seen = self.seen.get_or(|| {
            self.refreshes.fetch_add(1, Ordering::Relaxed);
            OwnLine(RefCell::new(self.newest.snapshot()))
        });
        let mut seen = seen.0.borrow_mut();
        if self.newest.refresh(&mut seen) {
            self.refreshes.fetch_add(1, Ordering::Relaxed);
        }
        seen.home(route, workers)
    }

    /// Returns the scheme. Takes a lock: not for requests.
    pub fn scheme(&self) -> Arc<Scheme> {
        Arc::clone(self.newest.snapshot().value())
    }

    /// Publishes the scheme of a database whose families have changed.
    pub fn replace(&self, scheme: &Scheme) {
        self.newest.replace(|_| scheme.clone());
    }

    /// Publishes a new scheme of one family.
    pub(crate) fn replace_family(&self, family: usize, scheme: &Arc<FamilyScheme>) {
        self.newest.replace(|before| before.with_family(family, Arc::clone(scheme)));
    }
}
