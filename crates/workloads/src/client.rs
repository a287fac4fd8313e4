//! Clients, which run transactions: a session on a worker, or any other implementation of [`Blocking`].
//!
//! Owns: the common interface of all clients, so that a workload writes each transaction once. Never: chooses
//! transactions.
//!
//! A client is one type for all of them. A type parameter would compile every procedure of every workload again for
//! each kind of client, which is most of the code to compile. Procedures of a session are still part of its own future;
//! those of other clients are boxed.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use atrapos::{Abort, AnyProcedure, AnyResult, Route, Session, StoredProcedure};
use atrapos_baselines::{SharedClient, run_stored};
use pin_project_lite::pin_project;

/// A client that runs procedures one after the other and waits for each.
#[derive(Clone, Copy)]
pub enum Client<'a> {
    /// A session.
    Session(&'a Session),
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
    /// Runs a procedure as a transaction at the home its route names.
    ///
    /// # Errors
    /// The reason for which the transaction aborted.
    #[inline(always)]
    pub fn run<P: StoredProcedure>(
        self,
        route: &'a Route,
        tables: &'a P::Tables,
        procedure: &'a P,
    ) -> impl Future<Output = Result<P::Result, Abort>> {
        match self {
            Client::Session(session) => {
                Running::Session { running: session.run_stored(route, tables, procedure) }
            }
            Client::Blocking(client) => {
                let procedure = AnyProcedure::new(procedure.clone().into_closure(*tables));
                Running::Ended { outcome: Some(block(client, route, procedure)) }
            }
            Client::Shared(client) => Running::Ended { outcome: Some(run_shared(client, tables, procedure)) },
        }
    }

    /// Runs a procedure like [`run`](Client::run), boxed in a session, too: for transactions so long that the boxes
    /// cost nothing in comparison, and of which there are many to compile.
    ///
    /// # Errors
    /// The errors of [`run`](Client::run).
    pub fn run_boxed<P: StoredProcedure>(
        self,
        route: &'a Route,
        tables: &P::Tables,
        procedure: P,
    ) -> impl Future<Output = Result<P::Result, Abort>> {
        let erase = |procedure: P| AnyProcedure::new(procedure.into_closure(*tables));
        match self {
            Client::Session(session) => {
                Running::Session { running: session.run_any_as(route, erase(procedure)) }
            }
            Client::Blocking(client) => {
                Running::Ended { outcome: Some(block(client, route, erase(procedure))) }
            }
            Client::Shared(client) => {
                Running::Ended { outcome: Some(run_shared(client, tables, &procedure)) }
            }
        }
    }
}

impl std::fmt::Debug for Client<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Client::Session(_) => "Session",
            Client::Blocking(_) => "Blocking",
            Client::Shared(_) => "Shared",
        })
    }
}

pin_project! {
    /// A running transaction of a client. That of a session is polled in place and returns its result directly to the
    /// caller: an `async fn` around it would copy both.
    #[project = Projected]
    enum Running<F, R> {
        Session {
            #[pin]
            running: F,
        },
        Ended {
            outcome: Option<Result<R, Abort>>,
        },
    }
}

impl<R, F: Future<Output = Result<R, Abort>>> Future for Running<F, R> {
    type Output = Result<R, Abort>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<R, Abort>> {
        match self.project() {
            Projected::Session { running } => running.poll(context),
            Projected::Ended { outcome } => Poll::Ready(outcome.take().expect("a future ends once")),
        }
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
fn block<R: 'static>(client: &dyn Blocking, route: &Route, procedure: AnyProcedure) -> Result<R, Abort> {
    let result = client.run(route, procedure)?;
    Ok(*result.downcast().expect("a procedure returns what its type says"))
}
