//! A scheme for loads that move: narrow stripes of every table in turn on all workers, so that wherever the load is, all have a part of it.
//!
//! Owns: the stripes. Never: judges whether the load moves.
//!
//! Invariants: stripes of all tables at the same relative position, counted in rows, have one owner, so that rows of equal positions that
//! are used together stay together; a stripe ends where a slice does.

use crate::ids::{TableIndex, WorkerIndex};
use crate::platform::Platform;
use crate::scheme::{PlannedScheme, TableScheme};
use crate::workload::Workload;

/// Stripes of each table per worker: as many as a partition of the first scheme has sub-partitions by default.
const STRIPES_PER_WORKER: usize = 10;

/// Stripes of equally many rows, as far as slices allow; of equally many slices where rows are not known.
pub(crate) fn spread(workload: &Workload, platform: &Platform) -> PlannedScheme {
    let workers: Vec<WorkerIndex> =
        platform.available_ranks().iter().map(|rank| platform.worker(*rank)).collect();
    let stripes = workers.len() * STRIPES_PER_WORKER;
    let rows = workload.all_rows();
    let tables = (0..).take(workload.table_count()).map(|table| {
        let slices = workload.range(TableIndex(table));
        let weight = |slice: usize| rows.get(slice).map_or(1.0, |rows| rows.max(1e-9));
        let total: f64 = slices.clone().map(weight).sum();
        let mut before = 0.0;
        let owners: Vec<WorkerIndex> = slices
            .map(|slice| {
                let middle = (before + weight(slice) / 2.0) / total;
                before += weight(slice);
                workers[((middle * stripes as f64) as usize).min(stripes - 1) % workers.len()]
            })
            .collect();
        TableScheme::from_owners(&owners)
    });
    PlannedScheme::new(tables.collect())
}
