//! Drivers of the workloads of `atrapos`, and their measurements.
//!
//! - [`driver`]: runs any workload by sessions that live on the workers or by threads outside, with the same
//!   procedures.
//! - [`registry`]: every workload by its name, for programs that treat them all alike.
//! - [`flows`](flows()): the flow graphs of a workload's transaction classes, recorded from its procedures.
//! - [`raw`]: measurements without transactions: the physical limits of the machine, to compare the others with.
//!
//! Owns: clients, their records, and the conclusions from them. Never: knows a workload, or instantiates a driver for one
//! (`atrapos-standard-benchmarks` and `atrapos-research-benchmarks` do), reaches below the public interface of the engine
//! (except in [`raw`], which measures the layers below), prints, or reads the command line.

#![forbid(unsafe_code)]

pub mod driver;
mod flows;
pub mod latency;
mod median;
mod outside;
pub mod raw;
pub mod recorder;
pub mod registry;

pub use flows::{FlowError, flows};
pub use median::median;
pub use outside::Outside;
