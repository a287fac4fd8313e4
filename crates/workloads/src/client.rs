//! Clients, which run transactions: a session on a worker, or any other implementation of [`Blocking`].
//!
//! Owns: the common interface of all clients, so that a workload writes each transaction once. Never: chooses
//! transactions.
//!
//! A client is one type for all of them. A type parameter would compile every procedure of every workload again for
//! each kind of client, which is most of the code to compile. Procedures of a session are still part of its own future;
//! those of other clients are boxed.

use std::future::Future;

use atrapos::{Abort, AnyProcedure, AnyResult, KnownRoute, Route, Session, StoredProcedure};
use atrapos_baselines::{SharedClient, run_stored};

/// A client that runs procedures one after the other and waits for each.
#[derive(Clone, Copy)]
pub enum Client<'a> {
    /// A session. If it has looked up the route of the next transaction before, that is known.
    Session(&'a Session, Option<&'a KnownRoute>),
    /// A client that blocks its thread.
    Blocking(&'a dyn Blocking),
    /// A client of an engine with shared data, which runs its transactions on its own thread.
    Shared(&'a dyn SharedClient),
}

/// Runs procedures, blocking until each has ended.
pub trait Blocking {
    /// Runs a procedure as a transaction at the home its route names.
    ///
    /// # Errors
    /// The reason for which the transaction aborted.
    fn run(&self, route: &Route, procedure: AnyProcedure) -> Result<AnyResult, Abort>;
}

impl<'a> Client<'a> {
    /// Runs a procedure as a transaction at its home.
    ///
    /// # Errors
    /// The reason for which the transaction aborted.
    #[inline(always)]
    #[expect(
        clippy::manual_async_fn,
        reason = "an `async fn` copies what it is given when it is first polled"
    )]
    pub fn run<P: StoredProcedure>(
        &'a self,
        tables: &'a P::Tables,
        procedure: &'a P,
    ) -> impl Future<Output = Result<P::Result, Abort>> {
        async move {
            let mut outcome = Err(Abort::UNFINISHED);
            match *self {
                Client::Session(session, known) => {
                    let route;
                    let rest = if let Some(known) = known {
                        session.begin_known(known, tables, procedure, &mut outcome)
                    } else {
                        route = procedure.home(tables);
                        session.begin_stored(&route, tables, procedure, &mut outcome)
                    };
                    if let Some(rest) = rest {
                        session.finish_stored(rest, tables, procedure, &mut outcome).await;
                    }
                }
                Client::Blocking(client) => outcome = block(client, tables, procedure),
                Client::Shared(client) => outcome = run_shared(client, tables, procedure),
            }
            outcome
        }
    }

    /// Runs a procedure like [`run`](Client::run), in a box unless it is a direct transaction: for procedures of which there are
    /// many to compile, and which are rare.
    ///
    /// # Errors
    /// The errors of [`run`](Client::run).
    pub async fn run_apart<P: StoredProcedure>(
        &self,
        tables: &P::Tables,
        procedure: &P,
    ) -> Result<P::Result, Abort> {
        let mut outcome = Err(Abort::UNFINISHED);
        match *self {
            Client::Session(session, _) => {
                let route = procedure.home(tables);
                if let Some(rest) = session.begin_stored(&route, tables, procedure, &mut outcome) {
                    session.finish_stored_apart(rest, tables, procedure, &mut outcome).await;
                }
                outcome
            }
            Client::Blocking(client) => block(client, tables, procedure),
            Client::Shared(client) => run_shared(client, tables, procedure),
        }
    }

    /// Lets the worker answer others that wait for it: between the transactions of a request that consists of several, which would
    /// all run before otherwise.
    #[inline]
    pub async fn give_way(&self) {
        if let Client::Session(session, _) = *self
            && session.is_awaited()
        {
            session.yield_now().await;
        }
    }
}

impl std::fmt::Debug for Client<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Client::Session(..) => "Session",
            Client::Blocking(_) => "Blocking",
            Client::Shared(_) => "Shared",
        })
    }
}

/// Runs a procedure by a client of an engine with shared data.
#[inline(never)]
fn run_shared<P: StoredProcedure>(
    client: &dyn SharedClient,
    tables: &P::Tables,
    procedure: &P,
) -> Result<P::Result, Abort> {
    run_stored(client, tables, procedure)
}

/// Runs a procedure by a client that blocks.
#[cold]
#[inline(never)]
fn block<P: StoredProcedure>(
    client: &dyn Blocking,
    tables: &P::Tables,
    procedure: &P,
) -> Result<P::Result, Abort> {
    let result =
        client.run(&procedure.home(tables), AnyProcedure::new(procedure.clone().into_closure(*tables)))?;
    Ok(*result.downcast().expect("a procedure returns what its type says"))
}
