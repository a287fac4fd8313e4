//! Engines in which threads share the data: the designs that partitioned ones are compared with (Islands §3, ATraPos §III).
//!
//! A client's thread runs its own transactions, on any row, and blocks when it has to wait. Both engines run the procedures
//! that partitioned engines run, on the same tables and rows.
//!
//! Owns: the engines. Never: knows a workload, or the type of a row.

#![allow(rustdoc::private_intra_doc_links, reason = "readers of these documents work on the crate")]

mod database;
pub mod lock;
pub mod log;
pub mod occ;
mod primitives;
mod rows;
mod session;
mod transaction;
mod tree;
pub mod two_phase;

pub use database::{CopyError, SharedDatabase};
pub use rows::{Intent, RowTransaction, Visit};
pub use session::{Attempt, Body, Engine, EngineClient, SharedClient, SharedSession, run_stored};
pub use transaction::SharedTx;
