//! The workloads of `atrapos`: schema, generator, procedures and auditor of each.
//!
//! A [`Workload`] has all that a benchmark, a test or an experiment needs of one: the tables, their population, the
//! next transaction of a client, and the proof that the database afterwards is the result of the transactions.
//!
//! - [`tatp`]: the Telecom Application Transaction Processing benchmark, complete.
//! - [`tpcc`]: TPC-C, complete but for prices.
//! - [`micro`]: reads or updates of a few rows, local or multisite (`Islands §3.2`).
//! - [`tpcb`]: TPC Benchmark B, a bank whose branches, tellers, accounts and history must agree.
//! - [`ycsb`]: the Yahoo! Cloud Serving Benchmark, A to F, with one operation per transaction or several.
//! - [`smallbank`]: SmallBank, short transactions on popular customers, known to show write skew.
//!
//! [`registry`] lists them all with their options, so that generic code names none of them. [`pair`] is in no list: an experiment's
//! own, a transaction of two reads.
//!
//! Owns: workloads, their generators and auditors, and the random choices they share. Never: runs a client or measures
//! one (the harness does), reaches below the public interface of the engine, prints, or reads the command line (it only
//! declares the options).

#![forbid(unsafe_code)]

mod auditing;
#[cfg(test)]
mod chi_square;
mod client;
mod digits;
mod keys;
mod ledger;
pub mod micro;
pub mod pair;
mod popularity;
mod random;
pub mod registry;
pub mod room;
mod shares;
pub mod smallbank;
pub mod tatp;
mod text;
pub mod tpcb;
pub mod tpcc;
mod workload;
pub mod ycsb;
mod zipf;

pub use client::{Blocking, Client};
pub use keys::{KeyChoice, KeySet};
pub use ledger::{ClassTally, Ledger};
pub use random::{Random, mixed};
pub use room::NotEnoughMemory;
pub use shares::NoShare;
pub use text::count;
pub use workload::{AuditError, AuditReport, ClassId, Outcome, Reach, SetupError, Workload};
pub use zipf::Zipf;
