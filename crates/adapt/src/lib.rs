//! Plans of the partitions and of the worker that owns each: the cost model and the searches of ATraPos as pure
//! functions of (statistics, topology) (`ATraPos §V`, `thesis §4.3`).
//!
//! A [`WorkloadTrace`] holds what a database has observed of itself: the cost of actions by sub-partition, the
//! synchronization points with their partners, the flow of each transaction class. It becomes a [`Workload`]; a machine
//! and the processing units of the workers become a [`Platform`]. [`evaluate`] computes the cost of a
//! [`PlannedScheme`], [`plan`] proposes a better one, and [`steps_between`] lists the steps to it.
//!
//! ```
//! use atrapos_adapt::{Platform, Settings, WorkloadTrace, plan};
//! use atrapos_topology::Machine;
//!
//! let trace = WorkloadTrace::from_json(r#"{
//!     "format": "atrapos-trace 1", "seconds": 1.0, "workers": 2,
//!     "tables": [{"name": "account", "partitions": [
//!         {"worker": 0, "cost_cycles": [900, 100]},
//!         {"worker": 1, "cost_cycles": [50, 50]}]}],
//!     "sync_points": [], "classes": []
//! }"#)?;
//! let platform = Platform::for_workers(&Machine::synthetic("core:2 pu:1")?, trace.workers)?;
//! let plan = plan(&trace.workload()?, &platform, &trace.scheme()?, &Settings::default())?;
//! assert!(plan.after.imbalance_cycles < plan.before.imbalance_cycles);
//! assert_eq!(plan.scheme.tables()[0].cuts(), [1]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Owns: the statistics' form, the cost model, the searches, the differences between schemes, their presentation; and
//! the [`Controller`], which says when to evaluate, and whether to act; and [`CoreWatch`], which says whose core is lost.
//!
//! Never: reads a clock, a file or the environment, starts a thread, knows an engine, or acts: the driver of the
//! controller does.
//!
//! Invariants: the same arguments give the same result on every machine; a proposed scheme is never costlier than the
//! naive one, nor than today's where today's is possible.

#![forbid(unsafe_code)]

mod anticipate;
mod attribution;
mod controller;
mod cores;
mod cost;
mod error;
mod extents;
mod flow;
mod ids;
mod mix;
mod plan;
mod platform;
mod price;
mod report;
mod saturation;
mod scheme;
mod search;
mod sharing;
mod spread;
mod steps;
mod sync_costs;
mod thresholds;
mod trace;
mod what_if;
mod workload;

pub use anticipate::{AnticipatedTable, anticipate};
pub use attribution::{Attributed, attribute};
pub use controller::{
    Cause, Considered, ControlAction, Controller, ControllerSettings, Decision, KeepReason, Observation,
    Predicted, Rules, Setting, Trigger, Verdict, WaitReason,
};
pub use cores::{CoreChange, CoreLoss, CoreSettings, CoreSight, CoreWatch, WorkerSight};
pub use cost::{CYCLES_PER_NS, Cost, PerUnit, SyncCycles, Weights, evaluate};
pub use error::AdaptError;
pub use extents::{Extents, TraceKey};
pub use flow::{ClassFlow, FlowAction, FlowDependency, FlowOperation, FlowSyncPoint};
pub use ids::{SliceIndex, TableIndex, WorkerIndex};
pub use mix::Mix;
pub use plan::{Plan, plan, plan_from, plan_of_necessity};
pub use platform::{Platform, UniformLevel, WORKERS_MAX};
pub use price::Prices;
pub use report::{render_plan, render_scheme, render_steps, shade};
pub use saturation::{WorkerTime, busy_per_recorded};
pub use scheme::{Partition, PlannedScheme, TableScheme};
pub use search::{Annealing, Settings, choose_partitioning, choose_placement, search};
pub use sharing::{ReadsSeen, SharingChange, SharingReason, TableReads};
pub use steps::{Step, apply_steps, steps_between};
pub use sync_costs::{PairCost, SyncCosts};
pub use thresholds::Thresholds;
pub use trace::{PartitionTrace, SubPartition, SyncPointTrace, TRACE_FORMAT, TableTrace, WorkloadTrace};
pub use what_if::expected;
pub use workload::{SLICES_MAX, SyncPoint, Workload};
