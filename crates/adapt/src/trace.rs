//! Recorded statistics, and their form as JSON.
//!
//! Owns: the format `atrapos-trace 1`: one JSON object with
//! - `format`, `seconds` (how long was recorded), `workers` (how many there were), optionally `machine` (what
//!   `atrapos topology` calls the machine; for people), `samples` (how many actions were timed), `dispersion` (how much they differ) and
//!   `busy_cycles` (how long each worker was busy for what it owns), `in_place_cycles` (what the workers' accesses to lent partitions took);
//! - `tables`: `name`, and `partitions` in key order, each with its `worker` and `cost_cycles`, the cost of the actions
//!   on each of its sub-partitions (`ATraPos §V-D`, the first array), and optionally their extents: `starts`, their first keys, and
//!   `rows`;
//! - `sync_points`: `partners` as `[table, partition, sub-partition]`, `bytes` exchanged in all, `count`, and optionally `again`, the
//!   part of `count` in which the partners had met before in the same transaction (the second array, folded over the partitions that recorded it);
//! - `classes`: the flow graphs, see [`ClassFlow`].
//!
//! Never: opens a file. Invariant: a trace that became a [`Workload`](crate::Workload) does not contradict itself.

use crate::error::AdaptError;
use crate::extents::TraceKey;
use crate::flow::ClassFlow;
use crate::ids::WorkerIndex;
use serde::{Deserialize, Serialize};

/// The format that [`WorkloadTrace::to_json`] writes and [`WorkloadTrace::from_json`] reads.
pub const TRACE_FORMAT: &str = "atrapos-trace 1";

/// Observations of a database of itself under one scheme.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadTrace {
    /// Always [`TRACE_FORMAT`].
    pub format: String,
    /// Duration of the recording, in seconds.
    pub seconds: f64,
    /// Number of workers, retired ones included.
    pub workers: usize,
    /// Description of the machine, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Number of actions that the costs are from, when only some were timed and stand for all; `None` when all were. It
    /// bounds how far the costs can be trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// The mean square of the cost of a sample over the square of its mean: 1 when all cost the same, and so many times more samples are needed for the
    /// same certainty.
    #[serde(default = "even", skip_serializing_if = "is_even")]
    pub dispersion: f64,
    /// Cycles that each worker was busy for what it owns; empty where only the recorded costs are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub busy_cycles: Vec<u64>,
    /// Cycles that accesses to partitions that others have lent took on all workers: whoever owns the partitions, the same.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub in_place_cycles: u64,
    /// The tables, or families of tables with common boundaries.
    pub tables: Vec<TableTrace>,
    /// The synchronization points; equal partners may appear more than once.
    pub sync_points: Vec<SyncPointTrace>,
    /// The transaction classes that ran; a database gives them without flow graphs.
    pub classes: Vec<ClassFlow>,
}

const fn even() -> f64 {
    1.0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_even(dispersion: &f64) -> bool {
    *dispersion == 1.0
}

/// The partitions of a table and what their actions cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableTrace {
    /// Its name.
    pub name: String,
    /// Its partitions, in key order.
    pub partitions: Vec<PartitionTrace>,
}

/// One partition's array of costs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionTrace {
    /// The worker that owns it.
    pub worker: WorkerIndex,
    /// Cost of the actions on each of its sub-partitions, in cycles ([`CYCLES_PER_NS`](crate::CYCLES_PER_NS)) and in key order.
    pub cost_cycles: Vec<u64>,
    /// First key of each sub-partition; empty where keys are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<TraceKey>,
    /// Number of rows of each sub-partition; empty where they are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<u64>,
}

/// A sub-partition of a partition of a table; in JSON `[table, partition, sub-partition]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(u32, u32, u32)", into = "(u32, u32, u32)")]
pub struct SubPartition {
    /// Position of the table in [`WorkloadTrace::tables`].
    pub table: u32,
    /// Position of the partition in the table.
    pub partition: u32,
    /// Position of the sub-partition in the partition.
    pub sub_partition: u32,
}

impl From<(u32, u32, u32)> for SubPartition {
    fn from((table, partition, sub_partition): (u32, u32, u32)) -> Self {
        Self { table, partition, sub_partition }
    }
}

impl From<SubPartition> for (u32, u32, u32) {
    fn from(place: SubPartition) -> Self {
        (place.table, place.partition, place.sub_partition)
    }
}

/// Synchronization points between the same partners.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SyncPointTrace {
    /// Sub-partitions of the actions that met. Partners on one worker exchange nothing, but may not stay so.
    pub partners: Vec<SubPartition>,
    /// Bytes exchanged, summed over `count` occurrences.
    pub bytes: u64,
    /// Number of times that it happened.
    pub count: u64,
    /// Number of these times at which all partners but the first had taken part in an earlier synchronization point of the same transaction: no
    /// end of the transaction is sent to them for this one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub again: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl WorkloadTrace {
    /// Number of samples of equal cost that would say as much as those of this trace; `None` when its costs are no samples.
    #[must_use]
    pub fn samples_effective(&self) -> Option<f64> {
        self.samples.map(|samples| samples as f64 / self.dispersion.max(1.0))
    }

    /// Reads a trace and checks that it does not contradict itself.
    ///
    /// # Errors
    /// [`AdaptError::NotATrace`] with line and column, [`AdaptError::Format`], or what [`WorkloadTrace::workload`] and
    /// [`WorkloadTrace::scheme`] refuse.
    pub fn from_json(text: &str) -> Result<Self, AdaptError> {
        let trace: Self = serde_json::from_str(text)
            .map_err(|error| AdaptError::NotATrace { detail: error.to_string() })?;
        trace.workload()?;
        trace.scheme()?;
        Ok(trace)
    }

    /// The trace as one line of JSON.
    ///
    /// # Panics
    /// Never: everything in a trace has a JSON form.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("everything in a trace has a JSON form")
    }
}
