//! Who runs transactions: a session on a worker, or a thread outside.
//!
//! Owns: the one interface to both, so that a workload writes each transaction once. Never: chooses what to run.

use std::future::Future;

use atrapos::{Abort, Database, Procedure, Route, Session};

/// Somebody who runs procedures one after the other and waits for each.
pub trait Client {
    /// Runs a procedure as a transaction at the home its route names.
    ///
    /// # Errors
    /// The reason for which the transaction aborted.
    fn run<R: Send + 'static>(
        &self,
        route: &Route,
        procedure: impl Procedure<R>,
    ) -> impl Future<Output = Result<R, Abort>>;
}

impl Client for Session {
    /// The session's own future: one of ours around it would only be another copy of it.
    #[inline(always)]
    fn run<R: Send + 'static>(
        &self,
        route: &Route,
        procedure: impl Procedure<R>,
    ) -> impl Future<Output = Result<R, Abort>> {
        Session::run(self, route, procedure)
    }
}

/// A client on a thread outside the workers: it hands each transaction over through the inbox of its home and blocks until
/// the outcome is there.
#[derive(Debug)]
pub struct Outside<'a> {
    db: &'a Database,
}

impl<'a> Outside<'a> {
    /// A client of `db`. Use it on a thread of its own, never on a worker's.
    #[must_use]
    pub fn new(db: &'a Database) -> Outside<'a> {
        Outside { db }
    }
}

impl Client for Outside<'_> {
    /// The future is ready when it is polled for the first time: it blocks.
    async fn run<R: Send + 'static>(&self, route: &Route, procedure: impl Procedure<R>) -> Result<R, Abort> {
        self.db.run(route.clone(), procedure)
    }
}

/// Polls the transaction of an [`Outside`] client to its end: one poll, since it blocks and never suspends.
pub(crate) fn block_on<R>(transaction: impl Future<Output = R>) -> R {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(transaction).poll(&mut context) {
        std::task::Poll::Ready(result) => result,
        std::task::Poll::Pending => {
            unreachable!("a transaction awaits its client only, and an outside client blocks")
        }
    }
}
