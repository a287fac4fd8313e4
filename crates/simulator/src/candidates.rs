//! The best fixed scheme of a phase: layouts of several makings, each of them run, the fastest of which counts.
//!
//! Owns: the makings. Never: judges a layout by a formula; the simulation does.
//!
//! 1. The naive layout, and the one that the database begins with.
//! 2. Equal loads: every table cut at the same positions, so that each part has an equal share of the processor time.
//! 3. Mirrored pairs: two parts per worker, as far from the beginning as from the end, of equal loads or of equally many rows.
//! 4. Schemes that the planner's search finds for the exact loads of many small slices, with synchronization weighed 1, 4, 16 and 64
//!    times as much as by default: as the weight is varied, its constants do not matter.
//!
//! 5. The scheme that the adaptive side has at the end of the phase: what is better than all of the above counts, whoever found it.
//!
//! "Best" is the best of these: an upper bound is not known.

use atrapos_adapt::{
    AdaptError, Annealing, PlannedScheme, Platform, Settings, SyncPoint, TableIndex, Workload, search,
};
use std::collections::BTreeMap;

use crate::driver::{cycles, run_fixed};
use crate::hardware::MachineKind;
use crate::layout::{Layout, TableLayout};
use crate::load::Load;
use crate::scenario::Scenario;

/// Transactions drawn to know the loads of a phase.
const DRAWN: usize = 60_000;
/// Slices of a table per worker for the search.
const SLICES_PER_WORKER: usize = 8;
const SLICES_MIN: usize = 64;
/// Time for which each candidate is run, in seconds.
const CANDIDATE_S: f64 = 2.0;
/// Weights of synchronization, over the default.
const SYNC_WEIGHTS: [f64; 4] = [1.0, 4.0, 16.0, 64.0];

/// Loads of a phase by many slices.
struct Exact {
    /// First key of each slice by table.
    starts: Vec<Vec<u64>>,
    costs: Vec<Vec<f64>>,
    points: BTreeMap<Vec<u32>, (f64, f64)>,
}

fn slice_of(starts: &[u64], key: u64) -> usize {
    starts.partition_point(|start| *start <= key) - 1
}

fn measure(scenario: &Scenario, phase: usize, workers: usize, seed: u64) -> Exact {
    let spec = &scenario.phases[phase];
    let mut load = Load::new(scenario, 1, seed);
    let draws: Vec<_> =
        (0..DRAWN).map(|at| load.draw(spec, spec.seconds * at as f64 / DRAWN as f64)).collect();
    let slices = (workers * SLICES_PER_WORKER).max(SLICES_MIN);
    let mut positions: Vec<f64> = Vec::with_capacity(DRAWN);
    for access in draws.iter().flat_map(|transaction| &transaction.accesses) {
        positions.push(access.key as f64 / load.rows[access.table as usize] as f64);
    }
    positions.sort_by(f64::total_cmp);
    // Half of the cuts at equal numbers of accesses, half at equal numbers of keys, the same in all tables.
    let quantiles = (0..slices / 2).map(|at| positions[at * positions.len() / (slices / 2)]);
    let mut cuts: Vec<f64> =
        quantiles.chain((0..slices / 2).map(|at| at as f64 / (slices / 2) as f64)).collect();
    cuts.push(0.0);
    cuts.sort_by(f64::total_cmp);
    let starts: Vec<Vec<u64>> = load
        .rows
        .iter()
        .map(|rows| {
            let mut starts: Vec<u64> = cuts.iter().map(|cut| (cut * *rows as f64).round() as u64).collect();
            starts.dedup();
            starts.retain(|start| start < rows);
            starts
        })
        .collect();
    let mut costs: Vec<Vec<f64>> = starts.iter().map(|starts| vec![0.0; starts.len()]).collect();
    let offsets: Vec<usize> = starts
        .iter()
        .scan(0, |at, starts| {
            *at += starts.len();
            Some(*at - starts.len())
        })
        .collect();
    let mut points: BTreeMap<Vec<u32>, (f64, f64)> = BTreeMap::new();
    for transaction in &draws {
        let class = &scenario.classes[transaction.class];
        let mut partners = Vec::new();
        for (at, access) in transaction.accesses.iter().enumerate() {
            let table = access.table as usize;
            let slice = slice_of(&starts[table], access.key);
            let base = if at == 0 { class.base_ns } else { 0.0 };
            costs[table][slice] += cycles((access.ns + base) * transaction.factor);
            partners.push((offsets[table] + slice) as u32);
        }
        partners.sort_unstable();
        partners.dedup();
        if partners.len() > 1 {
            let sum = points.entry(partners).or_default();
            *sum = (sum.0 + class.bytes, sum.1 + 1.0);
        }
    }
    Exact { starts, costs, points }
}

impl Exact {
    /// Layouts with cuts at these slices of every table, `parts` of equal load; part `at` belongs to `owner(at)`.
    fn equal_loads(&self, parts: usize, owner: impl Fn(usize) -> u32) -> Layout {
        let table = |(starts, costs): (&Vec<u64>, &Vec<f64>)| {
            let total: f64 = costs.iter().sum();
            let (mut begins, mut owners, mut passed) = (vec![0], vec![owner(0)], 0.0);
            for (start, cost) in starts.iter().zip(costs) {
                let part = ((passed + cost / 2.0) / total.max(1e-9) * parts as f64) as usize;
                let next = owner(part.min(parts - 1));
                if *start > 0 && owners.last() != Some(&next) {
                    begins.push(*start);
                    owners.push(next);
                }
                passed += cost;
            }
            TableLayout { begins, owners }
        };
        Layout { tables: self.starts.iter().zip(&self.costs).map(table).collect() }
    }

    fn layout(&self, scheme: &PlannedScheme) -> Layout {
        let table = |(starts, table): (&Vec<u64>, &atrapos_adapt::TableScheme)| TableLayout {
            begins: std::iter::once(0).chain(table.cuts().iter().map(|cut| starts[*cut as usize])).collect(),
            owners: table.owners().iter().map(|owner| owner.0).collect(),
        };
        Layout { tables: self.starts.iter().zip(scheme.tables()).map(table).collect() }
    }

    fn workload(&self, scenario: &Scenario) -> Result<Workload, AdaptError> {
        let tables = scenario.tables.iter().zip(&self.costs);
        let tables = tables.map(|(table, costs)| (table.name.clone(), costs.clone())).collect();
        let points = self.points.iter().map(|(partners, (bytes, count))| SyncPoint {
            partners: partners.clone(),
            bytes: *bytes,
            count: *count,
            again: 0.0,
        });
        Workload::new(tables, points.collect(), 1.0)
    }
}

/// Equally many rows in mirrored pairs of parts, for each of these workers.
fn mirrored_rows(rows: &[u64], workers: &[u32]) -> Layout {
    let parts = 2 * workers.len();
    let mut layout = Layout::naive(rows, parts, 0);
    for table in &mut layout.tables {
        table.owners = (0..parts).map(|part| workers[part.min(parts - 1 - part)]).collect();
    }
    layout
}

/// Throughput of a phase under the best fixed scheme, settled. `found` is one that was found by other means, and may not fit.
///
/// # Errors
/// [`AdaptError`] when the machine is none that can be planned for.
pub(crate) fn best_fixed(
    scenario: &Scenario,
    phase: usize,
    kind: MachineKind,
    seed: u64,
    found: &Layout,
) -> Result<f64, AdaptError> {
    let mut alone = scenario.clone();
    let mut spec = scenario.phases[phase].clone();
    let is_steady = spec.flip_seconds == 0.0 && spec.wander_per_s == 0.0 && spec.arrivals_per_s.is_none();
    let lost = spec.offline_island.take().or(spec.busy_island.take());
    if is_steady {
        spec.seconds = spec.seconds.min(CANDIDATE_S);
    }
    alone.phases = vec![spec];
    let workers: Vec<u32> = (0..kind.workers() as u32)
        .filter(|worker| lost != Some(*worker as usize / kind.island_workers()))
        .collect();
    let exact = measure(&alone, 0, workers.len(), seed);
    let count = workers.len();
    let equal = exact.equal_loads(count, |part| workers[part]);
    let mirrored = exact.equal_loads(2 * count, |part| workers[part.min(2 * count - 1 - part)]);
    let rows: Vec<u64> = scenario.tables.iter().map(|table| table.rows).collect();
    let mut layouts = vec![equal, mirrored, mirrored_rows(&rows, &workers)];
    if found.is_of(&rows, &workers) {
        layouts.push(found.clone());
    }
    if lost.is_none() {
        layouts.push(Layout::naive(&rows, count, scenario.shifted_by));
        layouts.push(Layout::naive(&rows, count, 0));
    }
    let workload = exact.workload(&alone)?;
    let absent =
        (0..kind.workers() as u32).filter(|worker| !workers.contains(worker)).map(atrapos_adapt::WorkerIndex);
    let platform =
        Platform::for_workers(&kind.machine(), kind.workers())?.without(&absent.collect::<Vec<_>>())?;
    for weight in SYNC_WEIGHTS {
        let mut settings = Settings { annealing: Annealing::None, ..Settings::default() };
        settings.weights.synchronization *= weight;
        let scheme = search(&workload, &platform, None, &settings)?;
        debug_assert_eq!(scheme.tables().len(), workload.table_count());
        debug_assert!(workload.slice_count(TableIndex(0)) > 0);
        layouts.push(exact.layout(&scheme));
    }
    layouts.dedup();
    let runs = layouts.into_iter().map(|layout| {
        let side = run_fixed(&alone, kind, seed, Some(layout));
        side.phases.first().map_or(0.0, |phase| phase.settled_tps)
    });
    Ok(runs.fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrored_rows_are_on_one_worker() {
        let layout = mirrored_rows(&[1_000, 500], &[4, 7]);
        assert_eq!(layout.tables[0].begins, [0, 250, 500, 750]);
        assert!(layout.tables.iter().all(|table| table.owners == [4, 7, 7, 4]));
        assert!(layout.is_of(&[1_000, 500], &[4, 5, 7]));
        assert!(!layout.is_of(&[1_000, 500], &[4, 5]), "a worker is not there");
        assert!(!layout.is_of(&[750, 500], &[4, 7]), "a row is not there");
    }
}
