//! Clients on threads outside the workers.
//!
//! Owns: how such a thread runs a transaction: it hands it over and blocks. Never: chooses what to run.

use std::future::Future;

use atrapos::{Abort, Database, Procedure, Route};
use atrapos_workloads::Client;

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
