//! `atrapos`: an in-memory, serializable transaction engine that owns data by thread and adapts itself to *hardware
//! islands*, the groups of cores that communicate fast.
//!
//! A database is opened from a [`Schema`]; a stored procedure is an `async` closure over [`Tx`], passed to
//! [`Database::run`] with the [`Route`] to the data it touches first. See [`Database`] for an example, and `ARCHITECTURE.md`
//! for the steps of a transaction.
//!
//! Owns: the [`Database`] facade, schema statements, loading, verification, checkpoints, recovery and simulation; it
//! exports the public interface of the crates below it. Never: touches a clock, memory or file other than through the
//! runtime, the storage and the durability crate.

#![deny(unsafe_code)]

pub mod activity;
mod assembly;
mod builder;
mod checkpoint;
mod closing;
#[cfg(debug_assertions)]
mod damage;
mod database;
mod ddl;
mod durable;
mod export;
mod instance;
mod load;
mod memory;
mod memos;
mod recording;
mod recovery;
mod refined_costs;
pub mod sim;
mod stored;
mod stored_scheme;
mod sync_costs;
#[cfg(test)]
mod tests;
mod verify;

pub use atrapos_adapt::{ControllerSettings, CoreSettings, CoreSight, Decision, WorkerSight, WorkloadTrace};
pub use atrapos_catalog as catalog;
pub use atrapos_channel as channel;
pub use atrapos_durability::backup::BackupReport;
pub use atrapos_partition::abort::{Abort, AbortReason, Advice};
pub use atrapos_partition::action::{
    Action, CollectKeys, CopiedRows, Delete, DespiteLocks, Edit, Fold, Get, Insert, Lookup, Operation, Read,
    RowOperation, UnlessLocked, Update, View,
};
pub use atrapos_partition::dynamic::{
    DeleteRow, DynRow, GetColumns, GetRow, IndexHandle, InsertRow, ReviseRow, Revision, TableHandle,
    UpdateRow,
};
pub use atrapos_partition::either::Either;
pub use atrapos_partition::range::KeyRange;
pub use atrapos_partition::routing::stored::{StoredFamily, StoredPartition, StoredScheme};
pub use atrapos_partition::routing::{Division, FamilyScheme, InstanceId, KeyRanges, Route, Scheme};
pub use atrapos_partition::schema::{
    Dependency, Index, IndexRef, ParentKey, Schema, SchemaError, Table, TableId, TableRef,
};
pub use atrapos_placement::adaptation::{
    Adaptation, AdaptationEvent, CoreSource, SchemeSearch, Suspension, SystemCores, Threads,
};
pub use atrapos_placement::repartition::{RepartitionReport, SchemeChange};
pub use atrapos_runtime::memory::PreparedStatistics;
pub use atrapos_runtime::{Clock, LocalFuture, ThreadHost, Ticks, WorkerId};
pub use atrapos_storage::lock::LockMode;
pub use atrapos_storage::{
    Column, ColumnRef, ColumnType, Date, Decimal, DisplayKey, Field, FixedStr, Key, KeyBuf, KeyPart,
    MAX_ROW_BYTES, Row, RowEdit, RowView, Timestamp, Uuid, row,
};
pub use atrapos_transaction::central::{ActiveTransaction, CentralState, Scope};
pub use atrapos_transaction::dynamic::AnyTable;
pub use atrapos_transaction::procedure::{AnyProcedure, AnyResult, Procedure};
pub use atrapos_transaction::recording::RecordedRun;
pub use atrapos_transaction::run::Run;
pub use atrapos_transaction::session::{CommitTicket, Session};
pub use atrapos_transaction::stats::Statistics;
pub use atrapos_transaction::stored::{
    CallError, Handles, PreparedCall, Procedures, RegisterError, Registry, StoredProcedure, decode, encode,
};
pub use atrapos_transaction::trace::{Stage, TraceEvent};
pub use atrapos_transaction::transaction::{RowPhase, RunAction, Transaction};
pub use atrapos_transaction::tx::{Phase, Savepoint, Tx};
pub use atrapos_transaction::upcoming::{KnownRoute, UPCOMING_MAX, Upcoming};
pub use atrapos_transaction::wal::Durability;
pub use builder::{Builder, OpenError};
pub use checkpoint::{CheckpointFailure, CheckpointReport};
pub use database::{
    BackupFailure, CloseReport, Database, SessionHandle, Submitted, WalStatistics, WorkerReport,
};
pub use ddl::{DefineError, NewForeignKey, NewTable};
pub use instance::{Unresolved, WorkerLinks};
pub use load::{LoadError, LoadProgress, Loader, Reference};
pub use memory::TreeMemory;
pub use recording::{ClassRecording, RecordedAction, RecordedFlow};
pub use recovery::{RecoveryError, RecoveryProgress, RecoveryReport};
pub use refined_costs::RefinedCosts;
pub use stored_scheme::read_scheme;
pub use sync_costs::{sync_costs_file, sync_costs_machine};
pub use verify::{Verification, VerifyError};

/// The planted bugs by which the tests show that they can fail, and ways to damage a database at rest.
#[cfg(debug_assertions)]
pub mod planted {
    pub use atrapos_partition::planted::{Bug, Damage, plant_everywhere, with};

    pub use atrapos_transaction::distributed::steps::{CommitStep, stopped};

    pub use crate::damage::damage;
}

/// The example in the project's readme, compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
