//! Engines in which threads share the data: the designs that partitioned ones are compared with (Islands §3, ATraPos §III).
//!
//! A client's thread runs its own transactions, on any row, and blocks when it has to wait. All engines run the procedures
//! that partitioned engines run, on the same tables and rows. In one of them ([`domains`]) threads reach the rows by tasks for
//! the workers of virtual domains.
//!
//! The models of `loom` are of the parts below transactions; what stands on the partitioned engine is not compiled for them.
//!
//! Owns: the engines. Never: knows a workload, or the type of a row.

#![allow(rustdoc::private_intra_doc_links, reason = "readers of these documents work on the crate")]

#[cfg(not(loom))]
mod database;
#[cfg(not(loom))]
pub mod domains;
#[cfg(not(loom))]
pub mod durable;
#[cfg(not(loom))]
pub mod instance;
pub mod lock;
pub mod log;
pub mod occ;
pub mod planted;
mod primitives;
mod redo;
#[cfg(not(loom))]
mod registry;
mod rows;
#[cfg(not(loom))]
mod session;
#[cfg(not(loom))]
mod transaction;
mod tree;
#[cfg(not(loom))]
pub mod two_phase;

#[cfg(not(loom))]
pub use database::{CopyError, SharedDatabase, compare_all_entries};
#[cfg(not(loom))]
pub use registry::{SharedCall, SharedRegistry};
#[cfg(not(loom))]
pub use rows::Branch;
pub use rows::{Intent, RowTransaction, Visit, VisitChange};
#[cfg(not(loom))]
pub use session::{
    Attempt, Body, BranchBody, Engine, EngineClient, SharedClient, SharedSession, Written, run_stored,
};
#[cfg(not(loom))]
pub use transaction::SharedTx;
