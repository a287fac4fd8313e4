//! Prices of what the cost model does not have: the way from one scheme to another, and cold rows that are crowded on few workers.
//!
//! Owns: the formula. Never: decides.
//!
//! ```text
//! way(S, S')  = (steps x step_us + sum over rows that move of row_ns x distance) / (time of all workers within horizon)
//! crowding(S) = spread x (rows of the worker that has most / mean - 1)
//! ```
//!
//! A worker pauses for each step, and rows that have moved are in no cache of their new worker, but in one of their old worker or in memory of its
//! node: the distance is that of the two workers, over that within an island. That is
//! paid once, and a scheme brings its gain for as long as loads usually last. Of schemes that are equal otherwise, one is better whose rows
//! are spread: most of them are cold, and where the load jumps to is not known.
//!
//! Invariant: both are 0 for the scheme that there is with rows spread evenly, and without rows only steps have a price.

use crate::platform::Platform;
use crate::scheme::PlannedScheme;
use crate::workload::Workload;
use atrapos_topology::SAME_L3_NOMINAL;
use serde::{Deserialize, Serialize};

/// Prices beside the cost model. See the module's introduction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Time for which a worker pauses for a step, in microseconds. Default 100.
    pub step_us: f64,
    /// Time that a row costs its new worker, in nanoseconds, where it comes from a worker of the same island: from further away it costs as many times more as
    /// that is further. Default 100: a line that no cache has, from memory.
    pub row_ns: f64,
    /// Time in which a way must pay, in seconds. Default 64: eight of the longest intervals.
    pub horizon: f64,
    /// Weight of crowded rows. Default 0.02: all rows on one of two workers are as bad as 2% of the work.
    pub spread: f64,
}

impl Default for Prices {
    fn default() -> Self {
        Self { step_us: 100.0, row_ns: 100.0, horizon: 64.0, spread: 0.02 }
    }
}

impl Prices {
    /// The price of `steps` steps from `today` to `wanted` on a platform, as a share of the time of its workers.
    pub(crate) fn of_way(
        &self,
        workload: &Workload,
        platform: &Platform,
        today: &PlannedScheme,
        wanted: &PlannedScheme,
        steps: usize,
    ) -> f64 {
        let (old, new) = (today.slice_owners(workload), wanted.slice_owners(workload));
        let moved = old.iter().zip(&new).zip(workload.all_rows()).filter(|((old, new), _)| old != new);
        let row_distances: f64 = moved
            .map(|((old, new), rows)| {
                let distance = platform.span_of_two(platform.rank(*old), platform.rank(*new)).distance;
                rows * (distance / SAME_L3_NOMINAL).max(1.0)
            })
            .sum();
        let time = platform.available_count() as f64 * self.horizon;
        (steps as f64 * self.step_us * 1e-6 + row_distances * self.row_ns * 1e-9) / time
    }

    /// The price of rows that are crowded on some of `workers` workers: `owner` is that of each slice.
    pub(crate) fn of_crowding(&self, workload: &Workload, owner: &[u32], workers: usize) -> f64 {
        let most = owner.iter().copied().max().unwrap_or(0) as usize;
        let mut has = vec![0.0; most + 1];
        for (owner, rows) in owner.iter().zip(workload.all_rows()) {
            has[*owner as usize] += rows;
        }
        let total: f64 = has.iter().sum();
        if total <= 0.0 {
            return 0.0;
        }
        let ratio = has.into_iter().fold(0.0, f64::max) * workers as f64 / total;
        self.spread * (ratio - 1.0).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::WorkerIndex;
    use crate::scheme::TableScheme;
    use crate::trace::WorkloadTrace;
    use atrapos_topology::{Machine, OTHER_SOCKET_NOMINAL};

    #[test]
    fn steps_rows_and_crowds_have_a_price() {
        let trace = r#"{"format": "atrapos-trace 1", "seconds": 1.0, "workers": 2, "tables": [{"name": "t", "partitions": [
            {"worker": 0, "cost_cycles": [1, 1], "rows": [900, 50]}, {"worker": 1, "cost_cycles": [1, 1], "rows": [25, 25]}]}],
            "sync_points": [], "classes": []}"#;
        let workload = WorkloadTrace::from_json(trace).and_then(|trace| trace.workload()).expect("a trace");
        let scheme =
            |cut| PlannedScheme::new(vec![TableScheme::new(vec![cut], vec![WorkerIndex(0), WorkerIndex(1)])]);
        let prices = Prices { step_us: 1e6, row_ns: 1e9, horizon: 10.0, spread: 0.5 };
        let platform = |machine| {
            let machine = Machine::synthetic(machine).expect("a description");
            Platform::for_workers(&machine, 2).expect("two workers")
        };
        let near = platform("core:2 pu:1");
        assert_eq!(prices.of_way(&workload, &near, &scheme(2), &scheme(2), 0), 0.0);
        // Two steps of a second and fifty rows of a second, of two workers for ten seconds.
        assert!((prices.of_way(&workload, &near, &scheme(2), &scheme(1), 2) - 52.0 / 20.0).abs() < 1e-9);
        // The same rows from another socket.
        let far = prices.of_way(&workload, &platform("pack:2 core:1 pu:1"), &scheme(2), &scheme(1), 2);
        assert!((far - (2.0 + 50.0 * OTHER_SOCKET_NOMINAL) / 20.0).abs() < 1e-9, "{far}");
        assert!((prices.of_crowding(&workload, &[0, 1, 1, 1], 2) - 0.5 * 0.8).abs() < 1e-9);
        assert_eq!(prices.of_crowding(&workload.with_costs(vec![0.0; 4]), &[0, 0, 0, 0], 1), 0.0);
    }
}
