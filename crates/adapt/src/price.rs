//! Prices of what the cost model does not have: the way from one scheme to another, and cold rows that are crowded on few workers.
//!
//! Owns: the formula. Never: decides.
//!
//! ```text
//! way(S, S')  = (steps x step_us + rows that move x row_ns) / (time of all workers within horizon)
//! crowding(S) = spread x (rows of the worker that has most / mean - 1)
//! ```
//!
//! A worker pauses for each step, and rows that have moved are in no cache of their new worker, and may be in memory of another node; that is
//! paid once, and a scheme brings its gain for as long as loads usually last. Of schemes that are equal otherwise, one is better whose rows
//! are spread: most of them are cold, and where the load jumps to is not known.
//!
//! Invariant: both are 0 for the scheme that there is with rows spread evenly, and without rows only steps have a price.

use crate::scheme::PlannedScheme;
use crate::workload::Workload;
use serde::{Deserialize, Serialize};

/// Prices beside the cost model. See the module's introduction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Time for which a worker pauses for a step, in microseconds. Default 100.
    pub step_us: f64,
    /// Time that a row costs its new worker, in nanoseconds. Default 100: a line that no cache has, from memory.
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
    /// The price of `steps` steps from `today` to `wanted`, as a share of the time of `workers` workers.
    pub(crate) fn of_way(
        &self,
        workload: &Workload,
        today: &PlannedScheme,
        wanted: &PlannedScheme,
        steps: usize,
        workers: usize,
    ) -> f64 {
        let (old, new) = (today.slice_owners(workload), wanted.slice_owners(workload));
        let moved = old.iter().zip(&new).zip(workload.all_rows()).filter(|((old, new), _)| old != new);
        let rows: f64 = moved.map(|(_, rows)| rows).sum();
        (steps as f64 * self.step_us * 1e-6 + rows * self.row_ns * 1e-9) / (workers as f64 * self.horizon)
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

    #[test]
    fn steps_rows_and_crowds_have_a_price() {
        let trace = r#"{"format": "atrapos-trace 1", "seconds": 1.0, "workers": 2, "tables": [{"name": "t", "partitions": [
            {"worker": 0, "cost_cycles": [1, 1], "rows": [900, 50]}, {"worker": 1, "cost_cycles": [1, 1], "rows": [25, 25]}]}],
            "sync_points": [], "classes": []}"#;
        let workload = WorkloadTrace::from_json(trace).and_then(|trace| trace.workload()).expect("a trace");
        let scheme =
            |cut| PlannedScheme::new(vec![TableScheme::new(vec![cut], vec![WorkerIndex(0), WorkerIndex(1)])]);
        let prices = Prices { step_us: 1e6, row_ns: 1e9, horizon: 10.0, spread: 0.5 };
        assert_eq!(prices.of_way(&workload, &scheme(2), &scheme(2), 0, 2), 0.0);
        // Two steps of a second and fifty rows of a second, of two workers for ten seconds.
        assert!((prices.of_way(&workload, &scheme(2), &scheme(1), 2, 2) - 52.0 / 20.0).abs() < 1e-9);
        assert!((prices.of_crowding(&workload, &[0, 1, 1, 1], 2) - 0.5 * 0.8).abs() < 1e-9);
        assert_eq!(prices.of_crowding(&workload.with_costs(vec![0.0; 4]), &[0, 0, 0, 0], 1), 0.0);
    }
}
