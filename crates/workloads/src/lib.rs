//! The workloads of `atrapos`: schema, generator, procedures and auditor of each, and the drivers that run them.
//!
//! A [`Workload`] is everything a benchmark, a test or an experiment needs to run one: which tables there are, how they are
//! filled, what one client does next, and how to prove afterwards that the database is what the transactions made of it. The
//! [`driver`] runs any workload by sessions that live on the workers or by threads outside, with the same procedures.
//!
//! - [`tatp`]: the Telecom Application Transaction Processing benchmark, complete.
//! - [`tpcc`]: TPC-C, complete but for prices.
//! - [`micro`]: reads or updates of a few rows, local or multisite (`Islands §3.2`).
//! - [`tpcb`]: TPC Benchmark B, a bank whose branches, tellers, accounts and history must agree.
//! - [`ycsb`]: the Yahoo! Cloud Serving Benchmark, A to F, with one operation per transaction or several.
//! - [`smallbank`]: SmallBank, short transactions on popular customers, known to show write skew.
//! - [`experiment`]: workloads that change while they run, on a database that adapts and on one that does not.
//! - [`torture`]: what a process runs that is killed again and again, and what must hold each time it comes back.
//! - [`histories`]: random transactions that write down what they saw, for a proof of their isolation.
//! - [`flows`](flows()): the flow graphs of a workload's transaction classes, recorded from its procedures.
//! - [`raw`]: no transactions at all, but the physical limits of the machine to measure the others against.
//!
//! Owns: workloads, their generators and auditors, drivers and what they record. Never: reaches below the public interface
//! of the engine (except in [`raw`], which measures what is below), prints, or reads the command line.

#![forbid(unsafe_code)]

mod auditing;
#[cfg(test)]
mod chi_square;
mod client;
mod digits;
pub mod driver;
pub mod experiment;
mod flows;
pub mod histories;
mod keys;
pub mod latency;
pub mod micro;
mod popularity;
mod random;
pub mod raw;
mod recorder;
mod room;
pub mod smallbank;
pub mod tatp;
pub mod torture;
pub mod tpcb;
pub mod tpcc;
mod workload;
pub mod ycsb;
mod zipf;

pub use client::{Client, Outside};
pub use flows::{FlowError, flows};
pub use keys::{KeyChoice, KeySet};
pub use random::Random;
pub use recorder::{ClassTally, Ledger};
pub use room::NotEnoughMemory;
pub use workload::{AuditError, AuditReport, ClassId, Outcome, Reach, SetupError, Workload};
pub use zipf::Zipf;
