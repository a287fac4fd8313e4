//! What runs the workloads of `atrapos`: drivers, what they measure, and the experiments and proofs that are made with them.
//!
//! - [`driver`]: runs any workload by sessions that live on the workers or by threads outside, with the same procedures.
//! - [`registry`]: every workload by its name, for programs that treat them all alike.
//! - [`experiment`]: workloads that change while they run, on a database that adapts and on one that does not.
//! - [`torture`]: what a process runs that is killed again and again, and what must hold each time it comes back.
//! - [`histories`]: random transactions that write down what they saw, for a proof of their isolation.
//! - [`flows`](flows()): the flow graphs of a workload's transaction classes, recorded from its procedures.
//! - [`raw`]: no transactions at all, but the physical limits of the machine to measure the others against.
//!
//! Owns: clients, what they record, and what is concluded from it. Never: knows what a transaction of a workload does (but for
//! experiments, which choose theirs), reaches below the public interface of the engine (except in [`raw`], which measures what is
//! below), prints, or reads the command line.

#![forbid(unsafe_code)]

pub mod driver;
pub mod experiment;
mod flows;
pub mod histories;
pub mod latency;
mod median;
mod outside;
pub mod raw;
mod recorder;
pub mod registry;
pub mod torture;

pub use flows::{FlowError, flows};
pub use median::median;
pub use outside::Outside;
