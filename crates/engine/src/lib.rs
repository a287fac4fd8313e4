//! `atrapos`: an in-memory, serializable transaction engine that owns data by thread and adapts itself to *hardware
//! islands*, the groups of cores that talk to each other fast.
//!
//! A database is opened from a [`Schema`]; a stored procedure is an `async` closure over [`Tx`], handed to
//! [`Database::run`] with the [`Route`] to the data it touches first. See [`Database`] for an example, and `ARCHITECTURE.md`
//! for where a transaction goes.
//!
//! Owns: transactions, their isolation and undo, the schema, routing, loading, what makes commits durable (epochs, the
//! flushers of the WAL, checkpoints, recovery), and the [`Database`] facade. Never: touches a clock, memory or file other than
//! through the runtime, the storage and the durability crate.

#![deny(unsafe_code)]

mod abort;
mod action;
mod adaptation;
mod age;
mod assembly;
mod branch;
mod builder;
mod checkpoint;
mod closing;
#[cfg(debug_assertions)]
mod damage;
mod database;
mod ddl;
mod deadlock;
mod durable;
mod dynamic;
mod either;
mod jobs;
mod load;
mod lock_waits;
mod lookups;
mod memory;
mod messages;
mod monitor;
mod panic_guard;
mod partition;
#[cfg(debug_assertions)]
pub mod planted;
#[cfg(not(debug_assertions))]
mod planted;
mod procedure;
mod published_scheme;
mod range;
mod recording;
mod recovery;
mod repartition;
mod routing;
mod run;
mod schema;
mod shard;
pub mod sim;
mod snapshot;
mod stats;
mod trace;
mod tx;
mod verify;
mod wal;

pub use abort::{Abort, AbortReason, Advice};
pub use action::{Action, CollectKeys, Delete, Fold, Get, Insert, Lookup, Operation, Read, Update};
pub use adaptation::{Adaptation, AdaptationEvent};
pub use atrapos_adapt::{ControllerSettings, Decision};
pub use atrapos_catalog as catalog;
pub use atrapos_durability::backup::BackupReport;
pub use atrapos_runtime::{Ticks, WorkerId};
pub use atrapos_storage::{
    Column, ColumnType, Date, Decimal, Field, FixedStr, Key, KeyBuf, KeyPart, MAX_ROW_BYTES, Row, Timestamp,
    Uuid, row,
};
pub use builder::{Builder, OpenError};
pub use checkpoint::{CheckpointFailure, CheckpointReport};
pub use database::{
    BackupFailure, CloseReport, Database, SessionHandle, Submitted, WalStatistics, WorkerReport,
};
pub use ddl::{DefineError, NewForeignKey, NewTable};
pub use dynamic::{
    AnyTable, DeleteRow, DynRow, GetColumns, GetRow, IndexHandle, InsertRow, TableHandle, UpdateRow,
};
pub use either::Either;
pub use load::{LoadError, LoadProgress, Loader};
pub use memory::TreeMemory;
pub use procedure::{AnyProcedure, AnyResult, Procedure, Session};
pub use range::KeyRange;
pub use recording::{ClassRecording, RecordedAction, RecordedFlow, RecordedRun};
pub use recovery::{RecoveryError, RecoveryProgress, RecoveryReport};
pub use repartition::{RepartitionReport, SchemeChange};
pub use routing::{FamilyScheme, Route, Scheme};
pub use run::Run;
pub use schema::{Dependency, Index, IndexRef, ParentKey, Schema, SchemaError, Table, TableId, TableRef};
pub use stats::Statistics;
pub use trace::{Stage, TraceEvent};
pub use tx::{Phase, Savepoint, Tx};
pub use verify::{Verification, VerifyError};
pub use wal::Durability;

/// The example in the project's readme, compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
