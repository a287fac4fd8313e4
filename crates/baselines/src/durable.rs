//! Durability of the engines with shared data: any of them over one central log, in a directory.
//!
//! Owns: which record a commit writes when, what is waited for before an outcome is told, and what a directory holds. Never: knows
//! how an engine protects rows, or writes the log itself ([`log`](crate::log)).
//!
//! # A commit
//! An engine that has decided to commit hands its changes over ([`CommitLog`]): after the last lock (two-phase locking) or the
//! validation (optimistic), and *before anybody else may see one of the changes*: all locks are held. The changes go into the
//! log's buffer as one record. Then the engine installs them and releases its locks at once, without waiting for the disk: the
//! early lock release of Aether.
//!
//! # Why the durable part of the log is a sound state
//! If B depends on A (it has read or overwritten something of A, or found something absent that A has removed), it has seen a
//! change of A, which is after A's record got its position. B's record gets its position later, and positions only grow. So B is
//! behind A in the log; the log becomes durable from its beginning, so whatever is durable has everything that it depends on,
//! and changes of one row are replayed in the order in which they were made. Where B has only overwritten what A has read, and
//! A has not been told its outcome, B may be ahead of A and survive it: it does not depend on A. So positions are no
//! serialization order, and need not be one: what survives is closed under dependencies, and a serialization order of all
//! transactions, without those that have vanished, is one of those that have survived.
//!
//! # What is waited for
//! A transaction is acknowledged when its record is durable: everything before it is, too. One without changes waits for everything
//! that had a position when it ended, as its reads may have seen that; so does one that aborts for its own reasons, for
//! the reason tells what it has read. One that is to be run again waits for nothing. More precise would be
//! the newest position that was read, at the price of a word for each row.
//!
//! A pipelined client ([`EngineClient::set_pipelined`]) goes on before, and asks later: the flush pipelining of Aether.
//!
//! # The directory
//! - `population`: the rows from before the first transaction, as records of the log's format behind the definitions of the tables. It gets
//!   its name when it is complete and durable; a directory without it is no database.
//! - `log`: one record for each transaction that has changed something, and in an instance those of transactions over several
//!   ([`distributed`]). Opening replays it on the population, cuts off its torn tail
//!   and writes on where it ended. It is never shortened: these engines run measurements, not for years.
//! - `LOCK`: keeps other processes out.
//!
//! Invariants: no outcome is told before it, and what it depends on, is durable ([`Acknowledge::Durable`]); after a write that has
//! failed nothing is acknowledged; what is replayed was logged whole.

mod directory;
pub(crate) mod distributed;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use atrapos_catalog::Definitions;
use atrapos_durability::file::{DirectoryLock, FileSystem};
use atrapos_partition::abort::{Abort, AbortReason, Advice};
use atrapos_partition::schema::TableId;
use atrapos_storage::KeyBuf;

use crate::log::{Log, LogOptions, LogSink, Lsn, Ticket};
use crate::planted::{Bug, Place, at, planted};
use crate::redo::{CommitLog, RecordKind, RedoRecord};
use crate::rows::Visit;
use crate::session::{Attempt, BranchBody, Engine, EngineClient, Written};

pub use directory::StoreError;
pub(crate) use directory::replay;

use directory::Opened;
use distributed::Resumed;

/// The moment at which a client is told that its transaction has committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledge {
    /// As soon as the transaction, and all that it depends on, survives a crash of process and machine.
    Durable,
    /// At once. A crash loses the last transactions, from the end: those of `flush_every` and of the write that goes on then.
    AtOnce {
        /// The time after which the log is written.
        flush_every: Duration,
    },
}

/// The directory of a durable engine, and what its clients wait for.
#[derive(Clone, Debug)]
pub struct DurableOptions {
    /// The file system.
    pub files: Arc<dyn FileSystem>,
    /// The directory.
    pub path: PathBuf,
    /// The moment at which outcomes are told.
    pub acknowledge: Acknowledge,
    /// Bytes by which the file of the log grows ahead of what is written ([`ROOM_BYTES`] is a good number); 0 if it does not.
    pub room_bytes: u64,
}

/// Bytes by which the file of a log may grow: a sync that need not note another length is faster.
pub const ROOM_BYTES: u64 = 64 << 20;

/// An engine whose transactions survive: another engine over a log.
#[derive(Debug)]
pub struct DurableEngine {
    engine: Box<dyn Engine>,
    store: Store,
    /// State of transactions over several instances, if it is the engine of one.
    resumed: Resumed,
}

/// The log of an engine, and its directory.
#[derive(Debug)]
pub(crate) struct Store {
    // Before the lock of the directory: the log is written until it is dropped.
    pub(crate) log: Log,
    acknowledge: Acknowledge,
    /// The directory, or nothing if somebody else keeps the sink.
    pub(crate) path: PathBuf,
    _lock: Option<Box<dyn DirectoryLock>>,
}

impl Store {
    fn start(
        sink: impl LogSink,
        first: Lsn,
        acknowledge: Acknowledge,
        (path, lock): (PathBuf, Option<Box<dyn DirectoryLock>>),
    ) -> Result<Store, StoreError> {
        let flush_every = match acknowledge {
            Acknowledge::Durable => None,
            Acknowledge::AtOnce { flush_every } => Some(flush_every),
        };
        let options = LogOptions { first, flush_every, ..LogOptions::default() };
        let log = Log::start(sink, options).map_err(StoreError::Thread)?;
        Ok(Store { log, acknowledge, path, _lock: lock })
    }

    /// Returns the way of a new client to the log.
    pub(crate) fn client(&self) -> ClientLog<'_> {
        ClientLog {
            log: &self.log,
            waits: self.acknowledge == Acknowledge::Durable,
            redo: RedoRecord::default(),
            written: None,
            pipelined: false,
            outcome: Ticket::default(),
        }
    }

    pub(crate) fn written(&self) -> Written {
        Written { bytes: self.log.durable().0, writes: self.log.writes() }
    }
}

impl DurableEngine {
    /// Makes a directory for an engine that has its population, in so many trees, and nothing else yet. A creation that was
    /// cut off can be repeated.
    ///
    /// # Errors
    /// Fails if there is a database or something else in the directory, or a file cannot be written.
    pub fn create(
        engine: Box<dyn Engine>,
        trees: usize,
        definitions: &Definitions,
        options: &DurableOptions,
    ) -> Result<DurableEngine, StoreError> {
        let (file, lock) = directory::create(&*engine, trees, definitions, options)?;
        let (file, place) = (file.with_room(options.room_bytes), (options.path.clone(), Some(lock)));
        let store = Store::start(file, Lsn(0), options.acknowledge, place)?;
        Ok(DurableEngine { engine, store, resumed: Resumed::default() })
    }

    /// Opens a directory: gives an empty engine, made for as many trees as `definitions` has, the population and all transactions
    /// that have survived.
    ///
    /// # Errors
    /// Fails if there is no database, or one with other tables, if another process has it open, or a file is damaged
    /// or cannot be read.
    pub fn open(
        engine: Box<dyn Engine>,
        definitions: &Definitions,
        options: &DurableOptions,
    ) -> Result<DurableEngine, StoreError> {
        let Opened { file, first, lock, resumed } = directory::open(&*engine, definitions, options)?;
        let (file, place) = (file.with_room(options.room_bytes), (options.path.clone(), Some(lock)));
        let store = Store::start(file, first, options.acknowledge, place)?;
        Ok(DurableEngine { engine, store, resumed })
    }

    /// Writes the log of an engine to a sink, for who keeps the sink himself.
    ///
    /// # Errors
    /// Fails if the thread of the log cannot be started.
    pub fn over(
        engine: Box<dyn Engine>,
        sink: impl LogSink,
        acknowledge: Acknowledge,
    ) -> Result<DurableEngine, StoreError> {
        let store = Store::start(sink, Lsn(0), acknowledge, (PathBuf::new(), None))?;
        Ok(DurableEngine { engine, store, resumed: Resumed::default() })
    }

    /// Returns the engine, its log, and the transactions over several instances that have not ended, for an instance.
    pub(crate) fn into_parts(self) -> (Box<dyn Engine>, Store, Resumed) {
        (self.engine, self.store, self.resumed)
    }

    /// Refuses the directory of an instance for a database of its own.
    pub(crate) fn check_alone(self) -> Result<DurableEngine, StoreError> {
        match self.resumed.place {
            None => Ok(self),
            Some(_) => Err(StoreError::OtherPlace {
                path: self.store.path,
                is: "is an instance of a deployment",
                cure: "there",
            }),
        }
    }
}

impl Engine for DurableEngine {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn client(&self) -> Box<dyn EngineClient + '_> {
        Box::new(DurableClient { client: self.engine.client(), log: self.store.client() })
    }

    fn load(&self, _table: TableId, _rows: &[(KeyBuf, Box<[u8]>)]) -> Result<(), Abort> {
        let why = "rows are loaded before the directory of a database is made; insert these by a transaction";
        Err(Abort::because(AbortReason::Misuse, why))
    }

    fn walk(&self, table: TableId, visit: &mut Visit<'_>) -> Result<(), Abort> {
        self.engine.walk(table, visit)
    }

    fn memory_bytes(&self) -> u64 {
        self.engine.memory_bytes()
    }

    fn check(&self) -> Result<(), String> {
        self.engine.check()
    }

    fn written(&self) -> Option<Written> {
        Some(self.store.written())
    }

    fn close(self: Box<Self>) -> Result<(), Abort> {
        self.store.log.close()
    }
}

/// The way of one client to the log.
#[derive(Debug)]
pub struct ClientLog<'l> {
    pub(crate) log: &'l Log,
    /// Set if outcomes are told when they are durable.
    waits: bool,
    pub(crate) redo: RedoRecord,
    /// The part of the log that has the running transaction, if it has changed something.
    written: Option<Ticket>,
    /// Set if transactions return before they are durable.
    pub(crate) pipelined: bool,
    /// The ticket of the last outcome.
    pub(crate) outcome: Ticket,
}

impl ClientLog<'_> {
    /// Takes the ticket of a transaction that has ended.
    fn take_ticket(&mut self) -> Ticket {
        match self.written.take() {
            Some(_) if planted(Bug::CommitToldEarly) => Ticket::default(),
            Some(written) => written,
            None if planted(Bug::ReaderToldEarly) => Ticket::default(),
            None => self.log.ticket_of_everything(),
        }
    }

    /// Notes that the running transaction has been made durable up to a position, or has nothing in this log.
    pub(crate) fn note_written(&mut self, ticket: Ticket) {
        self.written = Some(ticket);
    }

    /// Waits until the last transaction, and everything it has read, is durable, whoever waits for outcomes otherwise.
    ///
    /// # Errors
    /// Fails if the log could not be written.
    pub(crate) fn harden(&mut self) -> Result<(), Abort> {
        let ticket = self.written.take().unwrap_or_else(|| self.log.ticket_of_everything());
        self.log.wait(ticket)
    }

    /// Returns the outcome of a transaction when it may be told.
    ///
    /// # Errors
    /// Fails as the transaction has, or if the log could not be written.
    pub(crate) fn ended(&mut self, ended: Result<(), Abort>) -> Result<(), Abort> {
        if ended.as_ref().is_err_and(|abort| abort.reason().advice() == Advice::Retry) {
            return ended;
        }
        let ticket = self.take_ticket();
        if !self.waits {
            // Nobody waits, but after a failure nothing is acknowledged.
            self.log.is_durable(self.log.ticket_of_everything())?;
        } else if self.pipelined {
            self.outcome = ticket;
        } else {
            self.log.wait(ticket)?;
        }
        ended
    }
}

impl CommitLog for ClientLog<'_> {
    fn commit(&mut self, write: impl FnOnce(&mut RedoRecord)) -> Result<(), Abort> {
        at(Place::BeforeLog);
        self.redo.begin(RecordKind::Commit);
        write(&mut self.redo);
        self.written = Some(if self.waits {
            self.log.commit(self.redo.bytes())?
        } else {
            self.log.append(self.redo.bytes())?;
            Ticket::default()
        });
        Ok(())
    }
}

/// A client of an engine that logs its commits.
struct DurableClient<'e> {
    client: Box<dyn EngineClient + 'e>,
    log: ClientLog<'e>,
}

impl EngineClient for DurableClient<'_> {
    fn attempt(&mut self, body: &mut Attempt<'_>) -> Result<(), Abort> {
        let ended = self.client.attempt_logged(body, &mut self.log);
        self.log.ended(ended)
    }

    fn attempt_logged(&mut self, body: &mut Attempt<'_>, log: &mut ClientLog<'_>) -> Result<(), Abort> {
        self.client.attempt_logged(body, log)
    }

    fn run_branch(&mut self, _age: u64, _body: &mut BranchBody<'_>) -> Result<(), Abort> {
        let why =
            "a database of its own has no parts of transactions over several instances; make it one of them";
        Err(Abort::because(AbortReason::Misuse, why))
    }

    fn back_off(&mut self, attempt: u32) {
        self.client.back_off(attempt);
    }

    fn set_pipelined(&mut self, pipelined: bool) {
        self.log.pipelined = pipelined;
    }

    fn take_ticket(&mut self) -> Ticket {
        std::mem::take(&mut self.log.outcome)
    }

    fn is_acknowledged(&self, ticket: Ticket) -> bool {
        self.log.log.durable() >= ticket.lsn()
    }

    fn acknowledged(&self, ticket: Ticket) -> Result<(), Abort> {
        self.log.log.wait(ticket)
    }
}
