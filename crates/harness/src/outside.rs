//! Clients on threads outside the workers.
//!
//! Owns: the execution of a transaction by such a thread: it hands the transaction over and blocks. Never: chooses what
//! to run.

use std::future::Future;

use atrapos::{Abort, AnyProcedure, AnyResult, Database, Route};
use atrapos_workloads::Blocking;

/// A client on a thread outside the workers: it hands each transaction over through the inbox of its home and blocks
/// until the outcome is there.
#[derive(Debug)]
pub struct Outside<'a> {
    db: &'a Database,
}

impl<'a> Outside<'a> {
    /// Creates a client of `db`. Use it on a thread of its own, never on a worker's.
    #[must_use]
    pub fn new(db: &'a Database) -> Outside<'a> {
        Outside { db }
    }
}

impl Blocking for Outside<'_> {
    fn run(&self, route: &Route, procedure: AnyProcedure) -> Result<AnyResult, Abort> {
        self.db.run_any(route, procedure)
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
