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

use crate::durable::ClientLog;
use crate::instance::InstanceEngine;
use crate::log::Ticket;
use crate::rows::{Branch, RowTransaction, Visit};
use crate::transaction::{Scratch, SharedTx};

/// The body of one attempt of a transaction: what it does with its rows.
pub type Attempt<'a> = dyn FnMut(&mut dyn RowTransaction) -> Result<(), Abort> + 'a;

/// The life of a part of a transaction, which it ends itself; the part is aborted if it does not.
pub type BranchBody<'a> = dyn FnMut(&mut dyn Branch) -> Result<(), Abort> + 'a;

/// An engine whose threads share the data.
pub trait Engine: std::fmt::Debug + Send + Sync {
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

    /// Returns how much log has been written up to now; none for an engine in memory.
    fn written(&self) -> Option<Written> {
        None
    }

    /// Returns the instance that it is, if it is one of a deployment.
    fn as_instance(&self) -> Option<&InstanceEngine> {
        None
    }

    /// Ends it; one that is durable writes what its log has.
    ///
    /// # Errors
    /// Fails if the log could not be written.
    fn close(self: Box<Self>) -> Result<(), Abort> {
        Ok(())
    }
}

/// An amount of log that was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Bytes of records.
    pub bytes: u64,
    /// Writes, each of them synced.
    pub writes: u64,
}

/// A client of an engine, which runs one transaction after the other on its thread.
pub trait EngineClient {
    /// Begins a transaction, runs `body`, and commits, or aborts if that fails.
    ///
    /// # Errors
    /// Fails with the reason of `body`, or the one for which the transaction cannot commit.
    fn attempt(&mut self, body: &mut Attempt<'_>) -> Result<(), Abort>;

    /// Runs a transaction like [`attempt`](Self::attempt), and logs its changes before others may see them.
    ///
    /// # Errors
    /// Fails as [`attempt`](Self::attempt) does, and if the log could not be written.
    fn attempt_logged(&mut self, body: &mut Attempt<'_>, log: &mut ClientLog<'_>) -> Result<(), Abort>;

    /// Begins a transaction that is the part of one over several instances, of an age that these compare, and runs `body`, which
    /// ends it. The older of two has the smaller age.
    ///
    /// # Errors
    /// Fails with the reason of `body`, or if the engine has no such parts.
    fn run_branch(&mut self, age: u64, body: &mut BranchBody<'_>) -> Result<(), Abort>;

    /// Waits a little before attempt number `attempt` of a transaction, counted from 1, that others were in the way of.
    fn back_off(&mut self, attempt: u32);

    /// Says whether transactions return at their commit, before they are durable: outcomes may be told when the ticket that is taken
    /// afterwards is acknowledged. Without durability everything is acknowledged at once.
    fn set_pipelined(&mut self, _pipelined: bool) {}

    /// Takes the ticket of the last transaction.
    fn take_ticket(&mut self) -> Ticket {
        Ticket::default()
    }

    /// Returns true if the outcomes that a ticket stands for may be told now.
    fn is_acknowledged(&self, _ticket: Ticket) -> bool {
        true
    }

    /// Waits until the outcomes that a ticket stands for may be told.
    ///
    /// # Errors
    /// [`AbortReason::NotDurable`]: the log has failed, and it is not known which of the outcomes survive.
    fn acknowledged(&self, _ticket: Ticket) -> Result<(), Abort> {
        Ok(())
    }
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

    /// Has transactions return before they are durable, or not, as [`EngineClient::set_pipelined`] does.
    fn set_pipelined(&self, pipelined: bool);

    /// Takes the ticket of the last transaction.
    fn take_ticket(&self) -> Ticket;

    /// Returns true if the outcomes that a ticket stands for may be told now.
    fn is_acknowledged(&self, ticket: Ticket) -> bool;

    /// Waits until the outcomes that a ticket stands for may be told.
    ///
    /// # Errors
    /// [`AbortReason::NotDurable`]: the log has failed, and it is not known which of the outcomes survive.
    fn acknowledged(&self, ticket: Ticket) -> Result<(), Abort>;
}

impl SharedClient for RefCell<SharedSession<'_>> {
    fn run_body(&self, body: &mut Body<'_>) -> Result<(), Abort> {
        self.borrow_mut().run(body)
    }

    fn set_pipelined(&self, pipelined: bool) {
        self.borrow_mut().client.set_pipelined(pipelined);
    }

    fn take_ticket(&self) -> Ticket {
        self.borrow_mut().client.take_ticket()
    }

    fn is_acknowledged(&self, ticket: Ticket) -> bool {
        self.borrow().client.is_acknowledged(ticket)
    }

    fn acknowledged(&self, ticket: Ticket) -> Result<(), Abort> {
        self.borrow().client.acknowledged(ticket)
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
