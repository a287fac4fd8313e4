//! Machines as atrapos sees them: nested hardware islands, cores, memory nodes, and the distances between them.
//!
//! An *island* is a group of cores that share a last-level cache or a memory node: they talk to each other fast and to
//! the rest slowly. Islands nest: L3 within memory node within socket within machine.
//!
//! A [`Machine`] comes from the files of the live machine ([`Machine::live`]), from a description in hwloc's synthetic
//! notation ([`Machine::synthetic`]), from a machine file ([`Machine::from_toml`]) or, with the feature `hwloc`, from an
//! hwloc XML file. [`parse_spec`] takes what a user writes for any of them.
//!
//! ```
//! use atrapos_topology::{CpuId, Level, Machine};
//!
//! let machine = Machine::synthetic("pack:8 l3:2 core:5 pu:1")?;
//! assert_eq!(machine.cores().len(), 80);
//! assert_eq!(machine.islands(Level::L3).count(), 16);
//! // Workers fill one island before they touch the next.
//! assert_eq!(machine.placement(3), [CpuId(0), CpuId(1), CpuId(2)]);
//! assert!(machine.distance(CpuId(0), CpuId(4)) < machine.distance(CpuId(0), CpuId(5)));
//! # Ok::<(), atrapos_topology::TopologyError>(())
//! ```
//!
//! Owns: the model, its sources, and its presentation ([`report`]).
//!
//! Never: starts a thread, pins one, measures a time, or changes anything. It reads files only below a root directory or
//! at a path that the caller gives.
//!
//! Invariants: the live machine always gives a model, and lists what it refused to believe; a description that
//! contradicts itself gives an error and no model. The invariants of the model are in [`Machine`]'s module.

#![forbid(unsafe_code)]

mod build;
mod cgroup;
mod cluster;
mod cpuset;
mod distance;
mod error;
mod facts;
mod files;
#[cfg(feature = "hwloc")]
mod hwloc_xml;
mod ids;
mod latency;
mod live;
mod machine;
mod machine_file;
mod measured;
mod memory_limit;
mod placement;
mod processor_time;
pub mod report;
mod source;
mod synthetic;
mod synthetic_indexes;

pub use cluster::{DerivedIslands, DerivedLevel, LEVEL_GAP_RATIO_MIN, derive_islands};
pub use cpuset::{CPU_COUNT_MAX, CpuListError, CpuSet};
pub use distance::{
    OTHER_SOCKET_NOMINAL, Relation, SAME_L3_NOMINAL, SAME_NODE_NOMINAL, SAME_SOCKET_NOMINAL,
    SMT_SIBLINGS_NOMINAL,
};
pub use error::{LatencyError, TopologyError};
pub use facts::{Fact, MemoryNode, Origin, Provenance, Refusal};
pub use ids::{CoreId, CpuId, IslandId, NodeId, SocketId};
pub use latency::{ASYMMETRY_RATIO_MAX, LatencyMatrix};
pub use live::LiveOptions;
pub use machine::{Core, Cpu, Island, Level, Machine};
pub use memory_limit::available_memory_bytes;
pub use processor_time::{ProcessorFiles, Quota, ThreadTime, UnitTime};
pub use source::{TopologySource, parse_spec};
