//! Transactions to come: the routes of a session's next stored procedures ([`Upcoming`]), whose keys are looked up together.
//!
//! A session that has several transactions at hand need not give way to others for its cache misses to overlap
//! ([`crate::lookups`]): it looks up the keys of all their routes at once ([`Session::look_up`](crate::session::Session::look_up)), and
//! runs them one after another, without a turn between them.
//!
//! Owns: the routes, and where their keys were found. Never: runs a transaction, or keeps data where it is.
//!
//! Invariant: what was found is a hint. A position is checked by its tree, and is used only while the scheme is the one under which
//! it was found; otherwise the route is followed from its beginning.

use std::cell::Cell;

use arrayvec::ArrayVec;
use atrapos_partition::partition::PartitionId;
use atrapos_partition::routing::{Destination, Route};
use atrapos_storage::Position;

use crate::lookups::{BATCH, RouteHint};
use crate::shard::Shard;

/// The greatest number of transactions whose keys a session looks up together.
pub const UPCOMING_MAX: usize = BATCH;

/// The routes of the next transactions of a session, in their order.
///
/// A client draws as many transactions as it has at hand, [pushes](Upcoming::push) the route of each, has the session
/// [look them up](crate::session::Session::look_up), and runs them with the routes that [`take`](Upcoming::take) returns one after another.
#[derive(Debug, Default)]
pub struct Upcoming {
    routes: ArrayVec<KnownRoute, UPCOMING_MAX>,
    /// Number of routes that were taken.
    taken: usize,
}

/// A route, and where its key was found if it was looked up.
#[derive(Debug)]
pub struct KnownRoute {
    pub(crate) route: Route,
    /// The place of the key, and the value of [`Shard::scheme_changes`] when it was looked up.
    pub(crate) found: Cell<Option<(PartitionId, Position, u64)>>,
}

impl Upcoming {
    /// Creates a list without routes.
    #[must_use]
    pub fn new() -> Upcoming {
        Upcoming::default()
    }

    /// Adds the route of the transaction after those whose routes it has.
    ///
    /// # Panics
    /// Panics if it has [`UPCOMING_MAX`] routes.
    #[inline]
    pub fn push(&mut self, route: Route) {
        self.routes.push(KnownRoute { route, found: Cell::new(None) });
    }

    /// Returns the route of the next transaction, if there is one.
    #[inline]
    pub fn take(&mut self) -> Option<&KnownRoute> {
        let next = self.routes.get(self.taken)?;
        self.taken += 1;
        Some(next)
    }

    /// Returns true if all its routes were taken.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.taken == self.routes.len()
    }

    /// Returns the number of its routes, those that were taken included.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.routes.len()
    }

    /// Returns one of its routes.
    #[inline(always)]
    pub(crate) fn get(&self, at: usize) -> Option<&KnownRoute> {
        self.routes.get(at)
    }

    /// Forgets all routes.
    #[inline]
    pub fn clear(&mut self) {
        self.routes.clear();
        self.taken = 0;
    }

    /// Returns the routes that were not taken.
    pub(crate) fn rest(&self) -> &[KnownRoute] {
        &self.routes[self.taken..]
    }
}

impl KnownRoute {
    /// Returns the route.
    #[inline]
    #[must_use]
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// Returns where the key is, if it was looked up and the scheme has not changed since.
    #[inline(always)]
    pub(crate) fn hint(&self, shard: &Shard) -> Option<RouteHint<'_>> {
        let (partition, position, scheme_changes) = self.found.get()?;
        let Destination::Owner(_, key) = &self.route.to else { return None };
        (scheme_changes == shard.scheme_changes.get()).then_some(RouteHint {
            partition,
            key,
            position,
            scheme_changes,
        })
    }
}
