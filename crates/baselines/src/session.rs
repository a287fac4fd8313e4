//! Clients of an engine with shared data that run stored procedures ([`SharedSession`]), and what an engine offers them.
//!
//! Owns: the run of a procedure from its first attempt to its outcome. Never: protects a row, or decides a commit.

use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use atrapos_partition::abort::{Abort, AbortReason, Advice};
use atrapos_partition::action::panicked;
use atrapos_partition::schema::{Catalog, TableId};
use atrapos_storage::KeyBuf;
use atrapos_transaction::stored::StoredProcedure;

use crate::rows::{RowTransaction, Visit};
use crate::transaction::{Scratch, SharedTx};

/// The body of one attempt of a transaction: what it does with its rows.
pub type Attempt<'a> = dyn FnMut(&mut dyn RowTransaction) -> Result<(), Abort> + 'a;

/// An engine whose threads share the data.
pub trait Engine: Send + Sync {
    /// Returns its name on the command line and in results.
    fn name(&self) -> &'static str;

    /// Creates a client, for one thread.
    fn client(&self) -> Box<dyn EngineClient + '_>;

    /// Adds rows, sorted by their keys, that no transaction sees being added: before the first one begins.
    ///
    /// # Errors
    /// Fails if a key is taken, or a key or row is too long.
    fn load(&self, table: TableId, rows: &[(KeyBuf, Box<[u8]>)]) -> Result<(), Abort>;

    /// Visits all rows of a table in the order of their keys, while no transaction runs.
    ///
    /// # Errors
    /// Fails if `visit` does.
    fn walk(&self, table: TableId, visit: &mut Visit<'_>) -> Result<(), Abort>;

    /// Returns the bytes of memory that rows and trees take, while no transaction runs.
    fn memory_bytes(&self) -> u64;

    /// Checks the structures, while no transaction runs.
    ///
    /// # Errors
    /// Describes what is wrong: the program is broken.
    fn check(&self) -> Result<(), String>;
}

/// A client of an engine, which runs one transaction after the other on its thread.
pub trait EngineClient {
    /// Begins a transaction, runs `body`, and commits, or aborts if that fails.
    ///
    /// # Errors
    /// Fails with the reason of `body`, or the one for which the transaction cannot commit.
    fn attempt(&mut self, body: &mut Attempt<'_>) -> Result<(), Abort>;

    /// Waits a little before attempt number `attempt` of a transaction, counted from 1, that others were in the way of.
    fn back_off(&mut self, attempt: u32);
}

/// Attempts of a transaction before its abort is returned: as many as the partitioned engine makes.
const ATTEMPTS: u32 = 1024;

/// A client that runs stored procedures.
pub struct SharedSession<'e> {
    client: Box<dyn EngineClient + 'e>,
    catalog: Arc<Catalog>,
    scratch: Scratch,
    /// Counts the attempts that all clients of the database make again.
    retried: &'e AtomicU64,
}

impl std::fmt::Debug for SharedSession<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedSession").finish_non_exhaustive()
    }
}

impl<'e> SharedSession<'e> {
    /// Creates a client of an engine whose trees have the numbers of a catalog.
    pub(crate) fn new(
        engine: &'e dyn Engine,
        catalog: Arc<Catalog>,
        retried: &'e AtomicU64,
    ) -> SharedSession<'e> {
        SharedSession { client: engine.client(), catalog, scratch: Scratch::default(), retried }
    }

    /// Runs `body` as a transaction, and again if others were in its way.
    ///
    /// # Errors
    /// The reason for which the transaction aborted.
    pub fn run(&mut self, body: &mut Body<'_>) -> Result<(), Abort> {
        let SharedSession { client, catalog, scratch, retried } = self;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let done = client.attempt(&mut |rows: &mut dyn RowTransaction| {
                let mut tx = SharedTx::new(rows, catalog, scratch);
                body(&mut tx)?;
                // A body may go on after an operation that has failed; its transaction may not.
                tx.failure().map_or(Ok(()), |abort| Err(abort.clone()))
            });
            match done {
                Err(abort) if abort.reason().advice() == Advice::Retry && attempt < ATTEMPTS => {
                    retried.fetch_add(1, Ordering::Relaxed);
                    client.back_off(attempt);
                }
                done => return done,
            }
        }
    }
}

/// The body of a transaction.
pub type Body<'a> = dyn FnMut(&mut SharedTx<'_>) -> Result<(), Abort> + 'a;

/// A client whose type is erased.
pub trait SharedClient {
    /// Runs `body` as [`SharedSession::run`] does.
    ///
    /// # Errors
    /// The reason for which the transaction aborted.
    fn run_body(&self, body: &mut Body<'_>) -> Result<(), Abort>;
}

impl SharedClient for RefCell<SharedSession<'_>> {
    fn run_body(&self, body: &mut Body<'_>) -> Result<(), Abort> {
        self.borrow_mut().run(body)
    }
}

/// Runs a stored procedure as a transaction, and again if others were in its way.
///
/// # Errors
/// The reason for which the transaction aborted.
pub fn run_stored<P: StoredProcedure>(
    client: &dyn SharedClient,
    tables: &P::Tables,
    procedure: &P,
) -> Result<P::Result, Abort> {
    let mut result = None;
    client.run_body(&mut |tx| {
        result = Some(run_once(tx, tables, procedure)?);
        Ok(())
    })?;
    result.ok_or_else(|| Abort::because(AbortReason::Misuse, "the engine has not run the transaction"))
}

/// Runs a procedure once. Its future is ready when it is first polled, since operations block.
fn run_once<P: StoredProcedure>(
    tx: &mut SharedTx<'_>,
    tables: &P::Tables,
    procedure: &P,
) -> Result<P::Result, Abort> {
    let poll = || pin!(procedure.run(tx, tables)).poll(&mut Context::from_waker(Waker::noop()));
    match catch_unwind(AssertUnwindSafe(poll)) {
        Ok(Poll::Ready(ended)) => ended,
        Ok(Poll::Pending) => Err(Abort::because(
            AbortReason::Misuse,
            "a procedure may await only operations of its transaction; remove the other await",
        )),
        Err(panic) => Err(panicked(panic.as_ref())),
    }
}
