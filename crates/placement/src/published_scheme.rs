//! Today's scheme, for those who hand in requests from outside.
//!
//! Owns: the newest scheme as a whole, and what each thread has seen of it last. Never: is asked by a worker that runs a
//! transaction (workers have schemes of their own, [`atrapos_partition::routing`]).
//!
//! A request reads what its own thread has seen, after it has compared one number that is written only when the scheme changes
//! ([`Published`]): it takes no lock, counts no reference and writes no cache line of another thread, however many threads
//! hand in requests. (`ATraPos §IV` keeps every state that all sockets access off the critical path.) A thread that asks
//! first after a change takes a lock, once.
//!
//! Invariants: when a change of the scheme has returned, every request is routed by it; what a thread has seen lives as long as
//! the database at most, and there is one scheme per thread at most (threads that have ended leave theirs to later ones).

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use atrapos_partition::routing::{FamilyScheme, Route, Scheme};
use atrapos_runtime::{Published, Snapshot, WorkerId};
use thread_local::ThreadLocal;

/// See the module's introduction.
#[derive(Debug)]
pub struct PublishedScheme {
    newest: Published<Scheme>,
    seen: ThreadLocal<OwnLine<RefCell<Snapshot<Scheme>>>>,
    /// How often a thread has taken the lock to route a request.
    pub refreshes: AtomicU64,
}

/// What one thread writes, on cache lines of its own.
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

    /// The worker a transaction with this route has its home at.
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

    /// The scheme, to be looked at. Takes a lock: not for requests.
    pub fn scheme(&self) -> Arc<Scheme> {
        Arc::clone(self.newest.snapshot().value())
    }

    /// Publishes another scheme of a database whose families have changed.
    pub fn replace(&self, scheme: &Scheme) {
        self.newest.replace(|_| scheme.clone());
    }

    /// Publishes another scheme of one family.
    pub(crate) fn replace_family(&self, family: usize, scheme: &Arc<FamilyScheme>) {
        self.newest.replace(|before| before.with_family(family, Arc::clone(scheme)));
    }
}
