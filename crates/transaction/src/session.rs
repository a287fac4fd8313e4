//! Sessions: clients that live on a worker ([`Session`]), and the stored procedures that they send to other workers ([`on_stored`]).
//!
//! Owns: the way from a route to the home, and the choice between a direct transaction, one with a footprint, and another worker.
//! Never: polls a procedure itself ([`crate::procedure`]).

use std::cell::Cell;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;

use atrapos_durability::wal::Epoch;
use atrapos_partition::abort::{Abort, AbortReason, Advice};
use atrapos_partition::dynamic::{IndexHandle, TableHandle};
use atrapos_partition::routing::{Destination, InstanceId, Route};
use atrapos_partition::schema::{Index, IndexRef, SchemaError, Table, TableRef};
use atrapos_runtime::{Lost, Reply, WorkerId};
use atrapos_storage::Key;

use crate::admission::admit;
use crate::lending;
use crate::lookups::{LookupTicket, RouteHint, turn};
use crate::messages::{call_procedure, call_stored};
use crate::procedure::{
    Again, AnyFuture, AnyProcedure, Given, Lent, Procedure, ProcedureReply, Runnable, complete, needs_more,
    poll_to_end, result_of, run_again, yield_once,
};
use crate::shard::EngineWorker;
use crate::stored::StoredProcedure;
use crate::tx::{TxnGuard, attempt};
use crate::upcoming::{KnownRoute, Upcoming};

/// A long-lived client that lives on a worker: it runs one transaction after the other without leaving the worker's
/// thread, except for those whose home is another worker. Get one with `Database::spawn_session`.
///
/// # Futures in a session
///
/// Between its transactions, a session may await any future: its own operations, the outcome of a submitted
/// transaction, a channel or any other future that is completed by another thread and calls its waker. (A transaction
/// awaits its own operations only.) A future that needs an executor of its own, such as a socket or timer of an
/// asynchronous runtime, needs that runtime to run on another thread. A session whose future is never completed ends
/// when the database closes.
///
/// The session's own operations wake the session as a whole, not the waker they are polled with: of several futures
/// at once, poll all (as `join!` and `select!` do), not only those whose own waker was called (as `FuturesUnordered` does).
///
/// Dropping an operation that is under way aborts its transaction, unless its outcome was decided already.
pub struct Session {
    worker: Rc<EngineWorker>,
    /// True if outcomes are returned before they are durable.
    is_pipelined: Cell<bool>,
    /// The epoch that has to be durable for the outcomes that were returned before they were, since the last ticket.
    told: Cell<Epoch>,
    /// The class of its transactions that are no stored procedures.
    class: Cell<&'static str>,
}

/// The right to be told when transactions of a [pipelined](Session::set_pipelined) session are durable: those that were returned
/// between the ticket before it and this one. Eight bytes, and nothing is kept in the database for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[must_use = "a transaction of a pipelined session may be acknowledged only when its ticket is"]
pub struct CommitTicket(Epoch);

/// The way from a route to the home.
enum RouteStart {
    /// The home is this worker, and nothing is to be waited for.
    Here,
    /// The home is this worker, and the look-up of the key that the route names is deferred, or the turn of others comes first.
    Deferred(LookupTicket),
    /// The home is another worker. `asks` if the transaction reads there what might be lent to this one.
    Elsewhere { home: WorkerId, asks: bool },
}

/// The rest of a stored procedure that a session has begun ([`Session::begin_stored`]).
#[must_use = "the procedure may have run, and is not finished"]
pub struct Unfinished<'a>(Rest<'a>);

impl std::fmt::Debug for Unfinished<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unfinished").finish_non_exhaustive()
    }
}

/// It is copied wherever the procedure goes on, so that it has but words.
#[derive(Clone, Copy)]
enum Rest<'a> {
    /// The look-up of the key that its route names is deferred.
    Deferred(&'a Route, LookupTicket),
    /// Its home is another worker. `asks` if it reads there what might be lent to this one.
    Elsewhere { home: WorkerId, asks: bool },
    /// It is no direct transaction, and has changed nothing. The look-up of the key that its route names was made, if there is one.
    NotDirect(Option<(&'a Route, LookupTicket)>),
    /// It has ended, and its outcome waits for this epoch, or it has to run again.
    Untold(Epoch),
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("worker", &self.worker.id()).finish_non_exhaustive()
    }
}

impl Session {
    /// Creates a session on this worker.
    #[doc(hidden)]
    pub fn new(worker: Rc<EngineWorker>) -> Session {
        Session { worker, is_pipelined: Cell::new(false), told: Cell::new(Epoch(0)), class: Cell::new("") }
    }

    /// Sets whether transactions are pipelined: their outcomes are returned when they have committed, before they are durable,
    /// so that the session runs the next one meanwhile (off at first).
    ///
    /// A crash may take back such a transaction, and with it all that have seen it. So nobody outside may be told of an outcome
    /// before the [ticket](Session::take_ticket) that is taken after it is [acknowledged](Session::acknowledged).
    pub fn set_pipelined(&self, pipelined: bool) {
        self.is_pipelined.set(pipelined);
    }

    /// Names the class of the session's transactions, under which the database counts those that are no
    /// [stored procedures](StoredProcedure::CLASS) and do not [say themselves](crate::tx::Tx::set_class): a constant of the program, of which 64 are
    /// told apart. Empty at first, for no class.
    pub fn set_class(&self, class: &'static str) {
        self.class.set(class);
    }

    /// Returns the ticket of the outcomes that were returned to this session since the last one was taken.
    #[inline]
    pub fn take_ticket(&self) -> CommitTicket {
        CommitTicket(self.told.replace(Epoch(0)))
    }

    /// Returns true if the outcomes that a ticket stands for may be acknowledged now.
    #[inline]
    #[must_use]
    pub fn is_acknowledged(&self, ticket: CommitTicket) -> bool {
        let waiters = &self.worker.shard().commit_waiters;
        waiters.as_ref().is_none_or(|waiters| waiters.may_tell(&self.worker, ticket.0))
    }

    /// Waits until the outcomes that a ticket stands for may be acknowledged.
    ///
    /// # Errors
    /// [`AbortReason::NotDurable`]: the WAL has failed, and it is not known which of the outcomes survive.
    pub async fn acknowledged(&self, ticket: CommitTicket) -> Result<(), Abort> {
        match &self.worker.shard().commit_waiters {
            Some(waiters) => waiters.wait(&self.worker, ticket.0).await,
            None => Ok(()),
        }
    }

    /// The worker the session lives on.
    #[must_use]
    pub fn worker(&self) -> WorkerId {
        self.worker.id()
    }

    /// Number of workers of the database.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.worker.workers()
    }

    /// Returns true if the database is being closed: a session should end then.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.worker.is_stopping()
    }

    /// The time on the worker's clock, in ticks.
    #[inline]
    #[must_use]
    pub fn now(&self) -> atrapos_runtime::Ticks {
        self.worker.now()
    }

    /// The handle of table `T`.
    ///
    /// # Errors
    /// Fails if the database has no such table.
    pub fn table<T: Table>(&self) -> Result<TableRef<T>, SchemaError> {
        self.worker.shard().published.visible().table()
    }

    /// The handle of index `I`.
    ///
    /// # Errors
    /// Fails if the database has no such index.
    pub fn index<I: Index>(&self) -> Result<IndexRef<I>, SchemaError> {
        self.worker.shard().published.visible().index()
    }

    /// The handle of the table with this name in the session's database.
    ///
    /// # Errors
    /// Fails if the database has no such table.
    pub fn table_named(&self, name: &str) -> Result<TableHandle, SchemaError> {
        self.worker.shard().published.visible().table_named(name)
    }

    /// The handle of the index with this name in the session's database.
    ///
    /// # Errors
    /// Fails if the database has no such index.
    pub fn index_named(&self, name: &str) -> Result<IndexHandle, SchemaError> {
        self.worker.shard().published.visible().index_named(name)
    }

    /// Returns true if the session's worker owns this key of a table.
    #[must_use]
    pub fn owns<T: Table>(&self, table: TableRef<T>, key: &T::Key) -> bool {
        let key = key.encode();
        self.worker.shard().tables.borrow().locate(table.id(), &key).1 == self.worker.id()
    }

    /// Runs a procedure as a transaction: here if the route leads to this worker, otherwise at its home.
    ///
    /// A transaction that was the victim of a deadlock is run again.
    ///
    /// # Errors
    /// The reason for which the transaction aborted.
    #[inline]
    pub fn run<'a, R: Send + 'static>(
        &'a self,
        route: &'a Route,
        procedure: impl Procedure<R>,
    ) -> impl Future<Output = Result<R, Abort>> {
        self.run_runnable(route, Given(procedure))
    }

    /// Runs a stored procedure like [`run`](Session::run). `route` is the way to its home, and `tables` are its handles. The
    /// procedure stays where it is unless its home is elsewhere: the fastest way to run one.
    ///
    /// # Errors
    /// As [`run`](Session::run).
    #[inline]
    pub fn run_stored<'a, P: StoredProcedure>(
        &'a self,
        route: &'a Route,
        tables: &'a P::Tables,
        procedure: &'a P,
    ) -> impl Future<Output = Result<P::Result, Abort>> {
        self.run_to_end(
            move |outcome| self.begin_stored(route, tables, procedure, outcome),
            tables,
            procedure,
        )
    }

    /// Runs a stored procedure that `begin` begins.
    #[inline(always)]
    #[expect(clippy::manual_async_fn, reason = "an `async fn` copies what it is given, see `poll_to_end`")]
    fn run_to_end<'a, P: StoredProcedure>(
        &'a self,
        begin: impl FnOnce(&mut Result<P::Result, Abort>) -> Option<Unfinished<'a>>,
        tables: &'a P::Tables,
        procedure: &'a P,
    ) -> impl Future<Output = Result<P::Result, Abort>> {
        async move {
            let mut outcome = Err(Abort::UNFINISHED);
            if let Some(rest) = begin(&mut outcome) {
                self.finish_stored(rest, tables, procedure, &mut outcome).await;
            }
            outcome
        }
    }

    /// Begins to run a stored procedure like [`run_stored`](Session::run_stored), and ends it if it need not wait for anything:
    /// then `outcome` is its outcome. Otherwise returns what is left to do by [`finish_stored`](Session::finish_stored), which
    /// has to be called with the same arguments, or the transaction may have run without anybody being told.
    ///
    /// Without a future around it, a short transaction takes an eighth fewer instructions.
    #[inline(always)]
    pub fn begin_stored<'a, P: StoredProcedure>(
        &'a self,
        route: &'a Route,
        tables: &P::Tables,
        procedure: &P,
        outcome: &mut Result<P::Result, Abort>,
    ) -> Option<Unfinished<'a>> {
        match self.start(route) {
            RouteStart::Here => self.begin_here(route, None, None, tables, procedure, outcome),
            RouteStart::Deferred(ticket) => Some(Unfinished(Rest::Deferred(route, ticket))),
            RouteStart::Elsewhere { home, asks } => Some(Unfinished(Rest::Elsewhere { home, asks })),
        }
    }

    /// Looks up the keys that the routes of `upcoming` name and this worker has, together, so that their cache misses overlap.
    pub fn look_up(&self, upcoming: &Upcoming) {
        self.worker.shard().lookups.look_up(&self.worker, upcoming);
    }

    /// Runs a stored procedure like [`run_stored`](Session::run_stored), whose route was [looked up](Session::look_up).
    ///
    /// # Errors
    /// As [`run`](Session::run).
    #[inline]
    pub fn run_known<'a, P: StoredProcedure>(
        &'a self,
        known: &'a KnownRoute,
        tables: &'a P::Tables,
        procedure: &'a P,
    ) -> impl Future<Output = Result<P::Result, Abort>> {
        self.run_to_end(move |outcome| self.begin_known(known, tables, procedure, outcome), tables, procedure)
    }

    /// Begins to run a stored procedure like [`begin_stored`](Session::begin_stored), whose route was [looked up](Session::look_up).
    #[inline(always)]
    pub fn begin_known<'a, P: StoredProcedure>(
        &'a self,
        known: &'a KnownRoute,
        tables: &P::Tables,
        procedure: &P,
        outcome: &mut Result<P::Result, Abort>,
    ) -> Option<Unfinished<'a>> {
        let shard = self.worker.shard();
        let Some(hint) = known.hint(shard) else {
            return self.begin_stored(&known.route, tables, procedure, outcome);
        };
        if shard.lookups.is_turn_over(&self.worker) {
            return Some(Unfinished(Rest::Deferred(&known.route, shard.lookups.defer_nothing(&self.worker))));
        }
        shard.lookups.fetch_ahead();
        self.begin_here(&known.route, Some(&hint), None, tables, procedure, outcome)
    }

    /// Runs a stored procedure whose route leads here, or to data that is lent here, as far as it gets as a direct transaction.
    #[inline(always)]
    fn begin_here<'a, P: StoredProcedure>(
        &self,
        route: &'a Route,
        routed: Option<&RouteHint<'_>>,
        looked_up: Option<LookupTicket>,
        tables: &P::Tables,
        procedure: &P,
        outcome: &mut Result<P::Result, Abort>,
    ) -> Option<Unfinished<'a>> {
        if !procedure.stays_home() {
            return Some(Unfinished(self.not_direct(route, looked_up)));
        }
        match attempt(&self.worker, procedure, tables, routed, outcome) {
            None => Some(Unfinished(self.not_direct(route, looked_up))),
            Some(Epoch(0)) if outcome.is_ok() => None,
            Some(wait_epoch) => Some(Unfinished(Rest::Untold(wait_epoch))),
        }
    }

    /// Returns what is left to do of a stored procedure that is no direct transaction here: it runs at the owner of its data, if that
    /// is only lent here.
    #[inline(never)]
    fn not_direct<'a>(&self, route: &'a Route, looked_up: Option<LookupTicket>) -> Rest<'a> {
        if route.reads
            && let Destination::Owner(table, key) = &route.to
        {
            let shard = self.worker.shard();
            let located = shard.tables.borrow().locate_checked(*table, key);
            if let Some((_, home)) = located
                && home != self.worker.id()
                && InstanceId::of_owner(home).is_none()
            {
                lending::note_refused_in_place(shard, *table);
                return Rest::Elsewhere { home, asks: false };
            }
        }
        Rest::NotDirect(looked_up.map(|ticket| (route, ticket)))
    }

    /// Finishes a stored procedure that was begun by [`begin_stored`](Session::begin_stored).
    #[inline(always)]
    #[expect(clippy::manual_async_fn, reason = "an `async fn` copies what it is given, see `poll_to_end`")]
    pub fn finish_stored<'a, P: StoredProcedure>(
        &'a self,
        Unfinished(mut rest): Unfinished<'a>,
        tables: &'a P::Tables,
        procedure: &'a P,
        outcome: &'a mut Result<P::Result, Abort>,
    ) -> impl Future<Output = ()> {
        async move {
            if let Rest::Deferred(route, ticket) = rest {
                turn().await;
                match self.begin_found(route, ticket, tables, procedure, outcome) {
                    None => return,
                    Some(Unfinished(left)) => rest = left,
                }
            }
            self.end_stored(rest, tables, procedure, outcome).await;
        }
    }

    /// Begins a stored procedure whose key is looked up now, with others.
    #[inline(always)]
    fn begin_found<'a, P: StoredProcedure>(
        &self,
        route: &'a Route,
        ticket: LookupTicket,
        tables: &P::Tables,
        procedure: &P,
        outcome: &mut Result<P::Result, Abort>,
    ) -> Option<Unfinished<'a>> {
        match self.hint(route, ticket) {
            Ok(hint) => self.begin_here(route, hint.as_ref(), Some(ticket), tables, procedure, outcome),
            Err(home) => Some(Unfinished(Rest::Elsewhere { home, asks: false })),
        }
    }

    /// Does what is left of a stored procedure whose key is not to be looked up.
    #[inline(always)]
    #[expect(clippy::manual_async_fn, reason = "an `async fn` copies what it is given, see `poll_to_end`")]
    fn end_stored<'a, P: StoredProcedure>(
        &'a self,
        rest: Rest<'a>,
        tables: &'a P::Tables,
        procedure: &'a P,
        outcome: &'a mut Result<P::Result, Abort>,
    ) -> impl Future<Output = ()> {
        async move {
            let worker = &self.worker;
            match &rest {
                Rest::Elsewhere { home, asks } => {
                    worker.shard().stats.forwarded.add(1);
                    let with = SentWith { is_early: self.is_pipelined.get(), asks: *asks };
                    let call = call_stored(worker, *home, procedure.clone(), *tables, with);
                    *outcome = self.returned(call.await);
                }
                Rest::NotDirect(looked_up) => {
                    // Nothing has happened since it was begun, so that its home is here still.
                    let routed =
                        looked_up.and_then(|(route, ticket)| self.hint(route, ticket).ok().flatten());
                    *outcome = self.run_at_home(Lent { procedure, tables }, routed.as_ref()).await;
                }
                Rest::Untold(wait_epoch) => {
                    self.complete_direct(*wait_epoch, Lent { procedure, tables }, outcome).await;
                }
                Rest::Deferred(..) => unreachable!("a look-up that was deferred has been made"),
            }
        }
    }

    /// Does what is left of a stored procedure, in a box: slower by an allocation, but its code is no part of the caller's.
    #[cold]
    #[inline(never)]
    fn end_stored_apart<'a, P: StoredProcedure>(
        &'a self,
        rest: Rest<'a>,
        tables: &'a P::Tables,
        procedure: &'a P,
        outcome: &'a mut Result<P::Result, Abort>,
    ) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        Box::pin(self.end_stored(rest, tables, procedure, outcome))
    }

    /// Finishes a stored procedure like [`finish_stored`](Session::finish_stored), in a box unless it is a direct transaction whose key
    /// is looked up: for procedures that are rare, or of which there are many to compile.
    pub async fn finish_stored_apart<P: StoredProcedure>(
        &self,
        rest: Unfinished<'_>,
        tables: &P::Tables,
        procedure: &P,
        outcome: &mut Result<P::Result, Abort>,
    ) {
        if let Some(Unfinished(rest)) = self.looked_up(rest, tables, procedure, outcome).await {
            self.end_stored_apart(rest, tables, procedure, outcome).await;
        }
    }

    /// Waits for the look-up of a stored procedure, if it is deferred, and begins it then. Returns what is left to do.
    async fn looked_up<'a, P: StoredProcedure>(
        &self,
        rest: Unfinished<'a>,
        tables: &P::Tables,
        procedure: &P,
        outcome: &mut Result<P::Result, Abort>,
    ) -> Option<Unfinished<'a>> {
        let Unfinished(Rest::Deferred(route, ticket)) = rest else { return Some(rest) };
        turn().await;
        self.begin_found(route, ticket, tables, procedure, outcome)
    }

    /// Completes a direct transaction that has ended: waits until its outcome may be told, or runs its procedure again.
    async fn complete_direct<P: StoredProcedure>(
        &self,
        wait_epoch: Epoch,
        lent: Lent<'_, P>,
        outcome: &mut Result<P::Result, Abort>,
    ) {
        let worker = &self.worker;
        let early = self.is_pipelined.get().then_some(&self.told);
        if wait_epoch > Epoch(0) && needs_more(worker, wait_epoch, early) {
            complete(worker, wait_epoch, early, outcome).await;
        }
        if let Err(abort) = &outcome
            && abort.reason().advice() == Advice::Retry
        {
            let abort = abort.clone();
            *outcome = run_again(worker, &Again(&lent, PhantomData), abort).await.map(result_of);
        }
    }

    #[inline(always)]
    #[expect(clippy::manual_async_fn, reason = "an `async fn` copies what it is given, see `poll_to_end`")]
    fn run_runnable<'a, R: Send + 'static>(
        &'a self,
        route: &'a Route,
        procedure: impl Runnable<R>,
    ) -> impl Future<Output = Result<R, Abort>> {
        async move {
            let worker = &self.worker;
            let (mut routed, mut home) = (None, worker.id());
            match self.start(route) {
                RouteStart::Here => {}
                RouteStart::Elsewhere { home: owner, .. } => home = owner,
                RouteStart::Deferred(ticket) => {
                    turn().await;
                    match self.hint(route, ticket) {
                        Ok(hint) => routed = hint,
                        Err(owner) => home = owner,
                    }
                }
            }
            if home == worker.id() {
                self.run_at_home(procedure, routed.as_ref()).await
            } else {
                self.forward(home, procedure.into_procedure()).await
            }
        }
    }

    /// Runs a procedure on its home, which is here.
    #[inline(always)]
    #[expect(clippy::manual_async_fn, reason = "an `async fn` copies what it is given, see `poll_to_end`")]
    fn run_at_home<'a, R: Send + 'static>(
        &'a self,
        procedure: impl Runnable<R> + 'a,
        routed: Option<&'a RouteHint<'a>>,
    ) -> impl Future<Output = Result<R, Abort>> {
        async move {
            let worker = &self.worker;
            let early = self.is_pipelined.get().then_some(&self.told);
            let mut outcome = Err(Abort::UNFINISHED);
            admit(worker, false).await;
            let guard = TxnGuard::begin(worker);
            guard.state().class.set(Some(self.class.get()));
            poll_to_end(guard, &procedure, routed, early, &mut outcome).await;
            if let Err(abort) = &outcome
                && abort.reason().advice() == Advice::Retry
            {
                let abort = abort.clone();
                outcome = run_again(worker, &Again(&procedure, PhantomData), abort).await.map(result_of);
            }
            outcome
        }
    }

    /// Runs a procedure on its home, another worker.
    #[inline(always)]
    #[expect(clippy::manual_async_fn, reason = "an `async fn` copies what it is given, see `poll_to_end`")]
    fn forward<R: Send + 'static>(
        &self,
        home: WorkerId,
        procedure: impl Procedure<R>,
    ) -> impl Future<Output = Result<R, Abort>> {
        async move {
            let worker = &self.worker;
            worker.shard().stats.forwarded.add(1);
            let class = self.class.get();
            self.returned(call_procedure(worker, home, procedure, self.is_pipelined.get(), class).await)
        }
    }

    /// Returns the outcome of a procedure that has run on another worker.
    #[inline(always)]
    fn returned<R>(&self, reply: Result<ProcedureReply<R>, Lost>) -> Result<R, Abort> {
        match reply {
            Ok((outcome, told)) => {
                self.told.set(self.told.get().max(told));
                outcome
            }
            Err(Lost) => {
                Err(Abort::because(AbortReason::ShuttingDown, "the worker that ran the transaction is gone"))
            }
        }
    }

    /// Finds the home that a route leads to. If that is this worker, the key that the route names is looked up by its first access, or
    /// in a moment with those of others.
    #[inline(never)]
    fn start(&self, route: &Route) -> RouteStart {
        let (worker, shard) = (&self.worker, self.worker.shard());
        match &route.to {
            Destination::Owner(table, key) => {
                let located = shard.tables.borrow().locate_checked(*table, key);
                // The handle may belong to another database, which the procedure's actions report.
                let Some((partition, home)) = located else { return RouteStart::Here };
                if home != worker.id() {
                    // The data of another instance is as far from all workers.
                    if InstanceId::of_owner(home).is_some() {
                        return RouteStart::Here;
                    }
                    if !route.reads {
                        return RouteStart::Elsewhere { home, asks: false };
                    }
                    if !lending::admits_in_place(shard, partition) {
                        let asks = lending::count_sent(shard, *table);
                        return RouteStart::Elsewhere { home, asks };
                    }
                }
                // Without a look-up there is nothing to hint at: to compare keys would take longer than to locate one.
                if shard.lookups.pays(worker) {
                    return RouteStart::Deferred(shard.lookups.defer(worker, partition, key));
                }
            }
            Destination::Worker(home) => {
                let home = WorkerId(home.0 % worker.workers() as u16);
                if home != worker.id() {
                    return RouteStart::Elsewhere { home, asks: false };
                }
            }
        }
        if shard.lookups.is_turn_over(worker) {
            return RouteStart::Deferred(shard.lookups.defer_nothing(worker));
        }
        RouteStart::Here
    }

    /// Returns what the look-up of a route's key has found, which was deferred and is made now unless it was made before; or the
    /// worker that is the home by now.
    #[inline(never)]
    fn hint<'a>(&self, route: &'a Route, ticket: LookupTicket) -> Result<Option<RouteHint<'a>>, WorkerId> {
        let shard = self.worker.shard();
        let (Destination::Owner(table, key), Some((partition, position))) =
            (&route.to, shard.lookups.take(&self.worker, ticket))
        else {
            return Ok(None);
        };
        if shard.lookups.is_stale(ticket) {
            let (_, home) = shard.tables.borrow().locate(*table, key);
            return if home == self.worker.id() { Ok(None) } else { Err(home) };
        }
        // The position is a hint, which the tree checks.
        Ok(Some(RouteHint { partition, key, position, scheme_changes: shard.scheme_changes.get() }))
    }

    /// Runs a procedure like [`run`](Session::run), in boxes: slower by some allocations, but compiled once for all procedures
    /// that run like this. For transactions that are rare, or long.
    ///
    /// # Errors
    /// As [`run`](Session::run).
    pub fn run_boxed<R: Send + 'static>(
        &self,
        route: &Route,
        procedure: impl Procedure<R>,
    ) -> impl Future<Output = Result<R, Abort>> {
        self.run_any_as(route, AnyProcedure::new(procedure))
    }

    /// Runs a procedure whose type is erased, and whose results are of type `R`, like [`run_boxed`](Session::run_boxed).
    ///
    /// # Errors
    /// As [`run`](Session::run).
    ///
    /// # Panics
    /// Panics if the results are of another type.
    pub async fn run_any_as<R: 'static>(&self, route: &Route, procedure: AnyProcedure) -> Result<R, Abort> {
        self.run_any(route, procedure).await.map(result_of)
    }

    fn run_any<'a>(&'a self, route: &'a Route, procedure: AnyProcedure) -> AnyFuture<'a> {
        Box::pin(self.run(route, async move |tx| procedure.erased().call(tx).await))
    }

    /// Waits until `ticks` on the worker's clock.
    pub async fn sleep_until(&self, ticks: atrapos_runtime::Ticks) {
        self.worker.sleep_until(ticks).await;
    }

    /// Returns true if other workers have asked this one for something that it has not seen yet: they wait until this session
    /// [yields](Session::yield_now) or suspends. Of more than eight workers a part is looked at each time.
    #[inline]
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.worker.has_messages()
    }

    /// Lets other sessions of this worker run, and the worker answer others. Transactions do so now and then; a session that works for
    /// long between them has to call this itself: its worker does nothing else meanwhile.
    pub async fn yield_now(&self) {
        yield_once(&self.worker).await;
    }
}

/// Flags that are sent with a stored procedure to its home.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentWith {
    /// True if its outcome is returned before it is durable.
    is_early: bool,
    /// True if it reads what might be lent to the worker that sends it.
    asks: bool,
}

/// Runs a stored procedure here that another worker has sent: at once, or with others that have come with it.
pub(crate) fn on_stored<P: StoredProcedure>(
    worker: &Rc<EngineWorker>,
    procedure: P,
    tables: P::Tables,
    SentWith { is_early, asks }: SentWith,
    reply: Reply<ProcedureReply<P::Result>>,
) {
    let shard = worker.shard();
    if !procedure.stays_home() {
        return run_forwarded(worker, procedure, tables, is_early, None, reply);
    }
    let is_far = shard.lookups.is_far();
    let route = (asks || is_far).then(|| procedure.home(&tables));
    if asks && let Some(route) = &route {
        lending::note_sent(worker, reply.home(), route);
    }
    if is_far && let Some(route) = route {
        shard.sent.hold(worker, route, move |worker| {
            run_sent(worker, procedure, tables, is_early, reply);
        });
    } else {
        run_sent(worker, procedure, tables, is_early, reply);
    }
}

/// Runs a stored procedure here that another worker has sent: at once if it is a direct transaction and that pays, otherwise as a
/// task, whose key is looked up together with those of others.
#[inline(never)]
fn run_sent<P: StoredProcedure>(
    worker: &Rc<EngineWorker>,
    procedure: P,
    tables: P::Tables,
    is_early: bool,
    reply: Reply<ProcedureReply<P::Result>>,
) {
    let shard = worker.shard();
    let mut outcome = Err(Abort::UNFINISHED);
    let ran = shard.sent.with_route(|known| {
        let hint = known.and_then(|known| known.hint(shard));
        if hint.is_some() {
            shard.lookups.fetch_ahead();
        }
        let admitted = shard.lookups.admits_sent(worker);
        admitted.then(|| attempt(worker, &procedure, &tables, hint.as_ref(), &mut outcome))
    });
    let rest = match ran {
        Some(Some(Epoch(0))) if outcome.is_ok() => return reply.send(worker, (outcome, Epoch(0))),
        Some(Some(wait_epoch)) => Some((Unfinished(Rest::Untold(wait_epoch)), outcome)),
        Some(None) => Some((Unfinished(Rest::NotDirect(None)), outcome)),
        None => None,
    };
    run_forwarded(worker, procedure, tables, is_early, rest, reply);
}

/// Runs a stored procedure here that another worker has sent, or what is left of it, as a task.
#[inline(never)]
fn run_forwarded<P: StoredProcedure>(
    worker: &Rc<EngineWorker>,
    procedure: P,
    tables: P::Tables,
    is_early: bool,
    rest: Option<(Unfinished<'static>, Result<P::Result, Abort>)>,
    reply: Reply<ProcedureReply<P::Result>>,
) {
    let own = Rc::clone(worker);
    worker.spawn(async move {
        let session = Session::new(own);
        session.set_pipelined(is_early);
        let route = procedure.home(&tables);
        let mut outcome = Err(Abort::UNFINISHED);
        let mut rest = match rest {
            Some((rest, ended)) => {
                outcome = ended;
                Some(rest)
            }
            None => session.begin_stored(&route, &tables, &procedure, &mut outcome),
        };
        if let Some(deferred) = rest {
            rest = session.looked_up(deferred, &tables, &procedure, &mut outcome).await;
        }
        if let Some(Unfinished(rest)) = rest {
            // A home that no longer owns the key runs it all the same: sent on, it could meet the partition on its way.
            let rest = if matches!(rest, Rest::Elsewhere { .. }) { Rest::NotDirect(None) } else { rest };
            session.end_stored_apart(rest, &tables, &procedure, &mut outcome).await;
        }
        reply.send(&session.worker, (outcome, session.told.get()));
    });
}
