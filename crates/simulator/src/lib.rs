//! Machines in virtual time: a discrete-event simulation on which the real controller, planner and steps of
//! `atrapos-adapt` adapt the scheme of a database to loads that the planner did not make.
//!
//! A [`Scenario`] is a file that says what clients ask for. [`compare`] runs it on a [`MachineKind`] three times: on a database that adapts
//! itself, on one that keeps the naive scheme, and, phase by phase, on ones with the best fixed scheme that is known.
//!
//! ```
//! use atrapos_adapt::ControllerSettings;
//! use atrapos_simulator::{MachineKind, Scenario, compare};
//!
//! let scenario = Scenario::from_toml(r#"
//!     name = "a hot fifth"
//!     about = "half of the requests go to a fifth of the rows"
//!     table = [{ name = "rows", rows = 100000 }]
//!     class = [{ name = "read", base_ns = 300.0, stages = [[{ table = "rows", key = "same", ns = 300.0 }]] }]
//!     phase = [{ name = "hot", seconds = 6.0, mix = { read = 1.0 }, hot = [{ from = 0.0, to = 0.2, share = 0.5 }] }]
//! "#)?;
//! let result = compare(&scenario, MachineKind::Two, 1, ControllerSettings::default())?;
//! assert!(result.phases[0].over_static > 1.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Owns: machines, their processing units, messages, queues, noise, and the loop around the controller. Never: starts a thread, reads a clock or a file, knows the
//! engine, or uses the planner's formulas to say what anything costs.
//!
//! Invariant: the same scenario, machine, seed and settings give the same result.

#![forbid(unsafe_code)]

mod builtin;
mod candidates;
mod comparison;
mod cores;
mod driver;
mod hardware;
mod layout;
mod load;
mod monitor;
mod scenario;
mod world;

pub use builtin::scenarios;
pub use comparison::{Comparison, PhaseComparison, Reference, compare, compare_with};
pub use driver::{PhaseResult, Promise, Side};
pub use hardware::MachineKind;
pub use scenario::{
    AccessSpec, ClassSpec, HotRange, KeyRelation, PhaseSpec, Scenario, ScenarioError, TableSpec,
};
