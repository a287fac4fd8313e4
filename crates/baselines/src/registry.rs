//! Stored procedures of an engine with shared data that others call by name ([`SharedRegistry`]): with the names and bytes that a
//! partitioned database has for them.
//!
//! Owns: calls that are ready to run on a client. Never: chooses the instance or the thread of a call.

use atrapos_partition::abort::Abort;
use atrapos_partition::routing::Route;
use atrapos_transaction::stored::{
    ByName, CallError, Handles, Procedures, RegisterError, StoredProcedure, encode_result,
};

use crate::session::{SharedClient, run_stored};

/// A call of a procedure, ready to run.
pub struct SharedCall {
    /// The way to its home.
    pub route: Route,
    run: Box<Run>,
}

/// Runs a procedure by a client, and returns its encoded result.
type Run = dyn FnOnce(&dyn SharedClient) -> Result<Vec<u8>, Abort>;

impl std::fmt::Debug for SharedCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedCall").field("route", &self.route).finish_non_exhaustive()
    }
}

impl SharedCall {
    /// Runs it as a transaction of a client, and again if others were in its way. Returns its encoded result.
    ///
    /// # Errors
    /// The reason for which the transaction aborted.
    pub fn run(self, client: &dyn SharedClient) -> Result<Vec<u8>, Abort> {
        (self.run)(client)
    }
}

/// Procedures that are called by their names, with encoded arguments.
#[derive(Debug, Default)]
pub struct SharedRegistry(ByName<SharedCall>);

impl Procedures for SharedRegistry {
    fn register<P: StoredProcedure>(&mut self, handles: &impl Handles) -> Result<(), RegisterError> {
        self.0.add(handles, |procedure: P, tables| {
            let route = procedure.home(&tables);
            let run =
                move |client: &dyn SharedClient| encode_result(&run_stored(client, &tables, &procedure)?);
            SharedCall { route, run: Box::new(run) }
        })
    }
}

impl SharedRegistry {
    /// Decodes the arguments of a call.
    ///
    /// # Errors
    /// Fails if there is no such procedure, or the bytes are no arguments of it.
    pub fn prepare(&self, name: &str, arguments: &[u8]) -> Result<SharedCall, CallError> {
        self.0.prepare(name, arguments)
    }
}
