//! The interface of every store that is compared.
//!
//! Owns: the traits, the errors, and what a store promises as text. Never: knows one store from another.

use std::fmt;
use std::path::Path;

use atrapos_workloads::{tpcb, ycsb};

use crate::record::Record;
use crate::requests::TatpRequest;

/// Failures of a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The transaction collided with another one; it has changed nothing and may run again.
    #[error("the transaction collided with another one")]
    Conflict,
    /// Anything else: the run cannot go on.
    #[error("{0}")]
    Failed(String),
}

impl PeerError {
    /// Creates an error after which a run cannot go on.
    pub fn failed(why: impl fmt::Display) -> PeerError {
        PeerError::Failed(why.to_string())
    }
}

/// The promise of a store about an acknowledged transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Durability {
    /// Nothing: no sync of the device is waited for.
    None,
    /// It is on the device.
    Synchronous,
}

impl Durability {
    /// Returns the name of the durability.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Durability::None => "none",
            Durability::Synchronous => "synchronous",
        }
    }
}

/// Runs the transactions of one client thread.
///
/// Every method runs one transaction, to its commit, and again if the store says that it collided with another one.
#[expect(clippy::missing_errors_doc, reason = "each returns the failures of its store")]
pub trait Client {
    /// Runs a transaction of TATP. Returns false if it found no row, or its key taken, and has changed nothing.
    fn tatp(&mut self, request: &TatpRequest) -> Result<bool, PeerError>;

    /// Runs the transaction of TPC-B. Returns the new balance of the account.
    fn tpcb(&mut self, request: &tpcb::parameters::Request, time_ns: u64) -> Result<i64, PeerError>;

    /// Runs an operation of YCSB on records of a thousand bytes.
    fn ycsb(&mut self, op: ycsb::parameters::Op, keys: ycsb::schema::Keys) -> Result<(), PeerError>;

    /// Adds one to the counter of a row.
    fn update(&mut self, row: u64) -> Result<(), PeerError>;
}

/// An open store.
pub trait Peer: Sync {
    /// Fills the empty store. What was loaded is there when it returns, and durable if the store was opened so.
    ///
    /// # Errors
    /// The failures of the store.
    fn load(&self, records: &mut dyn Iterator<Item = Record>) -> Result<(), PeerError>;

    /// Calls `body` with a client that belongs to the calling thread.
    ///
    /// # Errors
    /// The failures of the store, and those of `body`.
    fn with_client(
        &self,
        body: &mut dyn FnMut(&mut dyn Client) -> Result<(), PeerError>,
    ) -> Result<(), PeerError>;

    /// Hands over everything that the store holds, for the audit. No client runs meanwhile.
    ///
    /// # Errors
    /// The failures of the store, and those of `sink`.
    fn dump(&self, sink: &mut dyn FnMut(Record) -> Result<(), PeerError>) -> Result<(), PeerError>;

    /// Waits for work that the store has left to threads of its own, so that it does not disturb the next measurement.
    ///
    /// # Errors
    /// The failures of the store.
    fn settle(&self) -> Result<(), PeerError> {
        Ok(())
    }
}

/// A workload by name, for stores that cannot run all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum WorkName {
    /// TATP, the standard mix.
    Tatp,
    /// TPC-B.
    Tpcb,
    /// YCSB A: half reads, half updates.
    YcsbA,
    /// YCSB C: reads.
    YcsbC,
    /// YCSB E: scans of up to 100 records, and insertions.
    YcsbE,
    /// Updates of one row.
    Update,
}

impl WorkName {
    /// Every workload, in the order in which they are run.
    pub const ALL: [WorkName; 6] =
        [WorkName::Tatp, WorkName::Tpcb, WorkName::YcsbA, WorkName::YcsbC, WorkName::YcsbE, WorkName::Update];

    /// Returns the name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            WorkName::Tatp => "tatp",
            WorkName::Tpcb => "tpcb",
            WorkName::YcsbA => "ycsb-a",
            WorkName::YcsbC => "ycsb-c",
            WorkName::YcsbE => "ycsb-e",
            WorkName::Update => "update",
        }
    }
}

/// Opens an empty store in an empty directory.
pub type Open = fn(&Path, Durability) -> Result<Box<dyn Peer>, PeerError>;

/// A store that can be compared: what it is, what it promises, and how it is opened.
#[derive(Clone, Debug)]
pub struct PeerKind {
    /// Its name on the command line and in results.
    pub name: &'static str,
    /// Its version, and that of what is inside.
    pub version: String,
    /// The isolation of its transactions from each other.
    pub isolation: &'static str,
    /// Its settings without durability.
    pub none: &'static str,
    /// Its way to make a transaction durable before it is acknowledged; `None` if it cannot.
    pub synchronous: Option<&'static str>,
    /// Workloads that it cannot run, with the reason.
    pub lacks: &'static [(WorkName, &'static str)],
    /// Opens it.
    pub open: Open,
}

impl PeerKind {
    /// Returns the reason for which it cannot run a workload with this durability, if there is one.
    #[must_use]
    pub fn refusal(&self, work: WorkName, durability: Durability) -> Option<&'static str> {
        if durability == Durability::Synchronous && self.synchronous.is_none() {
            return Some("makes nothing durable");
        }
        self.lacks.iter().find(|(lacking, _)| *lacking == work).map(|(_, why)| *why)
    }
}
