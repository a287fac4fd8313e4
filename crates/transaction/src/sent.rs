//! Stored procedures that other workers have sent ([`Sent`]), whose keys are looked up together.
//!
//! A worker runs such a procedure at once if that pays ([`crate::lookups`]). Where its data is large, it first takes in what has arrived with
//! it: the procedures are held, the keys of their routes are looked up so that the cache misses overlap, and then they run one
//! after another.
//!
//! Owns: the procedures that are held, and their routes. Never: decides which run at once, or keeps one past the step in which it
//! came.
//!
//! # Invariants
//! - A procedure that is held runs before the step polls a task ([`Shard::after_messages`](atrapos_runtime::Shard::after_messages)):
//!   at rest nothing is held.
//! - There are as many routes as closures in the ring, in one order.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use atrapos_partition::routing::Route;
use atrapos_runtime::ring::{Consumer, Producer, ring};

use crate::shard::EngineWorker;
use crate::upcoming::{KnownRoute, UPCOMING_MAX, Upcoming};

/// Bytes of the closures that are held: room for as many as are looked up together, of the longest arguments that workloads have.
const HELD_BYTES: usize = 32 << 10;

/// The stored procedures that a worker holds.
pub struct Sent {
    routes: RefCell<Upcoming>,
    /// Number of those that were run, of the procedures that are held.
    ran: Cell<usize>,
    into: Producer<Rc<EngineWorker>>,
    out: Consumer<Rc<EngineWorker>>,
}

impl std::fmt::Debug for Sent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sent").field("routes", &self.routes).finish_non_exhaustive()
    }
}

impl Sent {
    /// Creates the list of a worker that holds nothing.
    pub(crate) fn new() -> Sent {
        let (into, out) = ring(HELD_BYTES);
        Sent { routes: RefCell::new(Upcoming::new()), ran: Cell::new(0), into, out }
    }

    /// Holds a procedure with its route, until as many are held as are looked up together, or all messages have come in. `run` asks
    /// for its route by [`with_route`](Sent::with_route).
    #[inline(always)]
    pub(crate) fn hold(
        &self,
        worker: &Rc<EngineWorker>,
        route: Route,
        run: impl FnOnce(&Rc<EngineWorker>) + Send + 'static,
    ) {
        if let Err(run) = self.into.push(run) {
            // There is no room: it runs without a look-up, after those before it.
            self.run_held(worker);
            return run(worker);
        }
        let mut routes = self.routes.borrow_mut();
        routes.push(route);
        if routes.len() == UPCOMING_MAX {
            drop(routes);
            self.run_held(worker);
        }
    }

    /// Hands the route of the procedure that runs to `with`, if it was held.
    #[inline(always)]
    pub(crate) fn with_route<R>(&self, with: impl FnOnce(Option<&KnownRoute>) -> R) -> R {
        let at = self.ran.get();
        self.ran.set(at + 1);
        with(self.routes.borrow().get(at))
    }

    /// Looks up the keys of the procedures that are held, and runs them.
    #[inline]
    pub(crate) fn run(&self, worker: &Rc<EngineWorker>) {
        if !self.into.is_published() {
            self.run_held(worker);
        }
    }

    #[inline(never)]
    fn run_held(&self, worker: &Rc<EngineWorker>) {
        worker.shard().lookups.look_up(worker, &self.routes.borrow());
        self.ran.set(0);
        self.into.publish();
        self.out.drain(worker, UPCOMING_MAX);
        self.routes.borrow_mut().clear();
    }
}
