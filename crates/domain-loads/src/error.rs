//! [`LoadError`]: reasons for which a load is not run to its end.
//!
//! Owns: the sentences. Never: reports what an audit finds in a run that came to its end; see [`Wrong`].

use atrapos_domains::{BURST_MAX, DomainError, TaskError, Why};
use atrapos_structures::{Kind, Refused, UnknownKind};
use atrapos_workloads::NotEnoughMemory;
use atrapos_workloads::tpcc::BadTpcc;

use crate::audit::Wrong;
use crate::design::Design;
use crate::mix::UnknownMix;

/// Reasons for which a load is not run to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// There are no records.
    #[error("a load without records has nothing to read; load at least 1")]
    NoRecords,
    /// More records than there are numbers for.
    #[error("{0} records are too many; load at most {max}", max = crate::load::RECORDS_MAX)]
    TooManyRecords(u64),
    /// The records do not fit in memory.
    #[error(transparent)]
    Memory(#[from] NotEnoughMemory),
    /// The exponent is none of a distribution.
    #[error("the exponent {0} gives no Zipf distribution; use 0 (all records alike) or more, such as 0.99")]
    Theta(f64),
    /// The length is nothing to measure.
    #[error("a round of {0} leaves nothing to measure; use at least one operation or some milliseconds")]
    Length(String),
    /// Zero rounds.
    #[error("zero rounds leave nothing to measure; use at least 1")]
    NoRounds,
    /// Sizes of domains that make no curve.
    #[error(
        "these sizes of domains make no curve; give at least one, from 1 up, each larger than the one before"
    )]
    Sizes,
    /// A size of bursts that cannot be.
    #[error("a burst of {0} tasks is not possible; use 1 to {BURST_MAX}")]
    Burst(usize),
    /// Zero threads of some kind.
    #[error("zero {0} can do nothing; use at least 1")]
    NoThreads(&'static str),
    /// Larger domains than there are workers.
    #[error(
        "domains of {size} workers are not possible with {workers} workers; use at most {workers}, or more workers"
    )]
    DomainSize {
        /// Workers of a domain.
        size: usize,
        /// Workers of all domains.
        workers: usize,
    },
    /// Fewer workers than memory nodes.
    #[error(
        "sn-numa has a domain on each of {nodes} memory nodes, but there are only {workers} workers; use at least {nodes}"
    )]
    FewerWorkersThanNodes {
        /// Usable memory nodes.
        nodes: usize,
        /// Workers.
        workers: usize,
    },
    /// A size of domains was given to a design that has its own.
    #[error("{0} has domains of its own size; leave the size out, or use configured")]
    SizeIsGiven(Design),
    /// Parts that are used directly, of a design that has none.
    #[error("{0} has no parts that threads could use directly; use sn-numa or sn-thread")]
    NoParts(Design),
    /// The size of configured domains is not known.
    #[error("the size of configured domains is missing: give one, or let it be found by measuring")]
    SizeIsMissing,
    /// More clients than a worker has slots for.
    #[error("{clients} clients are more than a worker has slots for; use at most {max}")]
    Clients {
        /// Clients.
        clients: usize,
        /// Clients for which there are slots.
        max: usize,
    },
    /// An owned structure where several workers would share it.
    #[error(
        "{kind} belongs to one worker, but {design} has {workers} workers share it; use sn-thread, or configured with domains of 1"
    )]
    Owned {
        /// The structure.
        kind: Kind,
        /// The design.
        design: Design,
        /// Workers that would share it.
        workers: usize,
    },
    /// A configuration without a structure.
    #[error("the configuration has no structure to use; name the domain of each in [structures]")]
    NoStructures,
    /// Parts of structures in domains that adapt.
    #[error(
        "structures in parts stay where they are, so that their domains cannot adapt; leave out one of the two"
    )]
    PartsAdapt,
    /// A structure whose kind nobody knows.
    #[error(
        "structure '{0}' has no load; add [loads.{0}] with its kind and mix, or write the configuration with `domains compose`"
    )]
    NoLoad(String),
    /// A load with which a structure has no share of the operations.
    #[error("structure '{structure}' has a load of {load}; a load is a finite positive number")]
    Share {
        /// The structure.
        structure: String,
        /// Its load.
        load: f64,
    },
    /// A kind that is none.
    #[error("structure '{structure}': {unknown}")]
    Kind {
        /// The structure.
        structure: String,
        /// The kind, and those that there are.
        unknown: UnknownKind,
    },
    /// A mix that is none.
    #[error("structure '{structure}': {unknown}")]
    Mix {
        /// The structure.
        structure: String,
        /// The mix, and those that there are.
        unknown: UnknownMix,
    },
    /// An owned structure that several threads are to use directly.
    #[error(
        "structure '{structure}' is of the kind {kind}, which belongs to one worker, and cannot be used by all threads directly; use sn-thread or configured"
    )]
    OwnedByThreads {
        /// The structure.
        structure: String,
        /// Its kind.
        kind: Kind,
    },
    /// An owned structure in a domain of several workers.
    #[error(
        "structure '{structure}' is of the kind {kind}, which belongs to one worker, but domain '{domain}' has {workers}; give it a domain of one"
    )]
    OwnedInDomain {
        /// The structure.
        structure: String,
        /// Its kind.
        kind: Kind,
        /// Its domain.
        domain: String,
        /// Workers of the domain.
        workers: usize,
    },
    /// More bursts than the workers of a domain have slots for.
    #[error(
        "domain '{domain}' has {clients} clients, with two bursts each, more than its workers have slots for; use fewer clients, or give the domain more workers"
    )]
    Bursts {
        /// The domain.
        domain: String,
        /// Clients, each with a burst for structures that workers own and one for those that they share.
        clients: usize,
    },
    /// A configuration of TPC-C that is not possible.
    #[error(transparent)]
    Tpcc(#[from] BadTpcc),
    /// A share of remote transactions that is none.
    #[error("the share {0} of remote transactions is not possible; use 0 to 1")]
    RemoteShare(f64),
    /// Domains without a warehouse.
    #[error(
        "{parts} domains would share {warehouses} warehouses, so that some have nothing to do; use fewer domains, or at least {parts} warehouses"
    )]
    Parts {
        /// Domains.
        parts: usize,
        /// Warehouses.
        warehouses: u64,
    },
    /// A number of transactions that cannot be run together.
    #[error("a group of {0} transactions is not possible; use 1 to {max}", max = crate::tpcc::GROUP_MAX)]
    Group(usize),
    /// Domains did not start.
    #[error(transparent)]
    Domains(#[from] DomainError),
    /// A task was not submitted.
    #[error("an operation could not be delegated: {0}")]
    Submission(#[from] Why),
    /// A task did not end well.
    #[error("an operation failed: {0}")]
    Task(#[from] TaskError),
    /// The structure refused a record.
    #[error("a record could not be inserted: {0}")]
    Refused(#[from] Refused),
    /// The curve would be of a structure that does what it should not.
    #[error("the audit failed: {0}")]
    Wrong(#[from] Wrong),
    /// Somebody asked for the end.
    #[error("interrupted")]
    Interrupted,
}

impl LoadError {
    /// Returns whether what was asked for makes no sense, rather than having failed.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        match self {
            LoadError::Domains(error) => matches!(error, DomainError::Configuration(_)),
            LoadError::Submission(_)
            | LoadError::Task(_)
            | LoadError::Refused(_)
            | LoadError::Wrong(_)
            | LoadError::Interrupted => false,
            _ => true,
        }
    }
}
