//! Loads of YCSB on single data structures, by design: used directly by all threads, or delegated to virtual domains ("Robust
//! Performance of Main Memory Data Structures by Configuration", SIGMOD 2020, §7).
//!
//! A [`Load`] names a structure, a [`Mix`] of operations, and the records; an [`Arrangement`] says which threads use the structure and
//! how, by a [`Design`]. [`run`] measures one, [`run_alternating`] several in rounds that alternate, [`choose`] finds the best arrangement, [`judge_designs`] sets all designs beside it,
//! and [`measure_curve`] measures the throughput over growing domains, for `atrapos-composition` to calibrate. What that crate composes becomes
//! the configuration of domains ([`configuration`]), and [`run_configuration`] uses all structures of such a one at once (as [`run_directly`] does without delegation), and may
//! let the controller of that crate change the domains meanwhile. [`run_tpcc`] runs New-Order and Payment of TPC-C on tables that are
//! structures. [`run_service`] measures how long a client waits while domains change.
//!
//! Threads that use a structure directly are workers of one domain, too: each has a task that lasts for a round. So placement and memory policy are
//! those of domains in all designs, and the operations are the same code.
//!
//! Owns: loads, the threads that drive them, their measurements and their audit. Never: prints, reads the command line, or judges a
//! design beyond its throughput.
//!
//! Invariants: an operation of YCSB allocates nothing and is dispatched statically; every reply is checked, and after a run every record is.

#![forbid(unsafe_code)]

mod adapt;
mod arrangement;
mod audit;
mod composed;
mod configured;
mod control;
mod curve;
mod delegate;
mod design;
mod error;
mod handle;
mod jobs;
mod judged;
mod lanes;
mod load;
mod many;
mod measure;
mod mix;
mod prepared;
mod records;
mod service;
mod stream;
#[cfg(test)]
mod tests;
mod tpcc;

pub use adapt::{Adaptation, AdaptationSettings};
pub use arrangement::{Access, Arrangement, Threads};
pub use audit::{Audit, Wrong};
pub use composed::{check_owned, configuration};
pub use configured::{
    ConfiguredRun, ConfiguredSettings, DomainRun, StructureRun, clients_beside, run_configuration,
};
pub use curve::{default_sizes, is_oversubscribed, measure_curve};
pub use delegate::{Delegation, PerOperation};
pub use design::{Design, UnknownDesign};
pub use error::LoadError;
pub use judged::{Candidate, Judgement, candidates_of, judge_designs};
pub use load::{Length, Load};
pub use many::run_directly;
pub use measure::{Choice, Measurement, Run, Step, choose, run, run_alternating};
pub use mix::{Class, Mix, UnknownMix};
pub use prepared::Round;
pub use service::{Disturbance, Gaps, ServiceRun, ServiceSettings, run_service};
pub use tpcc::{Finding, GROUP_MAX, TpccLoad, TpccRound, TpccRun, run_tpcc};
