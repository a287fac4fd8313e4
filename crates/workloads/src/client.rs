//! Who runs transactions: a session on a worker, or whoever else implements [`Client`].
//!
//! Owns: the one interface to all of them, so that a workload writes each transaction once. Never: chooses what to run.

use std::future::Future;

use atrapos::{Abort, Procedure, Route, Session};

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
