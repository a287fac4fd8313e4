//! Statistics that are expected before any were taken: from the flow graphs of the transaction classes alone.
//!
//! Owns: the assumption that actions which depend on each other through a key access the same relative position of their
//! tables, that other actions access all of theirs equally, and that accesses are spread as the caller says. Never:
//! pretends to have measured.
//!
//! Used for a first scheme that is better than the naive one before the first transaction, and for plans of machines and
//! workloads that nobody has at hand.

use crate::error::AdaptError;
use crate::flow::ClassFlow;
use crate::ids::{SliceIndex, TableIndex};
use crate::workload::{SyncPoint, Workload};

/// The load expected of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct AnticipatedTable {
    /// Its name.
    pub name: String,
    /// Cost of one action on it, in cycles.
    pub action_cycles: f64,
    /// Distribution of accesses over its sub-partitions: one weight per sub-partition, of any sum.
    pub spread: Vec<f64>,
}

/// The statistics that `classes`, each run as often as it says, would leave in `seconds` seconds.
///
/// The place of a transaction is the position of its first action; an action that is connected to it by dependencies has
/// the sub-partition at the same relative position of its own table. An action that is not is spread over its table, its
/// partners in a synchronization point rotating through `spread_partners` sub-partitions.
///
/// # Errors
/// [`AdaptError::Contradiction`] for a class or table that contradicts itself.
pub fn anticipate(
    tables: &[AnticipatedTable],
    classes: &[ClassFlow],
    spread_partners: u32,
    seconds: f64,
) -> Result<Workload, AdaptError> {
    let mut costs: Vec<(String, Vec<f64>)> =
        tables.iter().map(|table| (table.name.clone(), vec![0.0; table.spread.len()])).collect();
    // Checks names, lengths and weights before they are used.
    let weights = tables.iter().map(|table| (table.name.clone(), table.spread.clone())).collect();
    let shape = Workload::new(weights, Vec::new(), seconds)?;
    let mut points = Vec::new();
    for class in classes {
        class.check(tables.len())?;
        let Some(first) = class.actions.first() else { continue };
        let connected = connected_to_first(class);
        let root = first.table.index();
        let total: f64 = tables[root].spread.iter().sum();
        for (at, weight) in tables[root].spread.iter().enumerate() {
            let share = if total > 0.0 { weight / total } else { 1.0 / tables[root].spread.len() as f64 };
            let count = class.count as f64 * share;
            if count == 0.0 {
                continue;
            }
            let place = (at as f64 + 0.5) / tables[root].spread.len() as f64;
            for (action, connected) in class.actions.iter().zip(&connected) {
                let table = action.table.index();
                let cycles = count * action.repeat_mean() * tables[table].action_cycles;
                let of_table = &mut costs[table].1;
                if *connected {
                    let slice = slice_at(of_table.len(), place);
                    of_table[slice] += cycles;
                } else {
                    let sum: f64 = tables[table].spread.iter().sum();
                    let even = 1.0 / of_table.len() as f64;
                    for (cost, weight) in of_table.iter_mut().zip(&tables[table].spread) {
                        *cost += cycles * if sum > 0.0 { weight / sum } else { even };
                    }
                }
            }
            let turns = if connected.iter().all(|connected| *connected) { 1 } else { spread_partners.max(1) };
            for point in &class.sync_points {
                for turn in 0..turns {
                    let partners = point.actions.iter().map(|action| {
                        let table = class.actions[*action as usize].table;
                        let slices = shape.slice_count(table) as usize;
                        let slice = if connected[*action as usize] {
                            slice_at(slices, place)
                        } else {
                            // Steps that share no divisor with usual sizes visit all sub-partitions alike.
                            (at * 7 + turn as usize * 31) % slices
                        };
                        shape.slice(table, SliceIndex(u32::try_from(slice).expect("a slice of this table")))
                    });
                    let count = count / f64::from(turns);
                    points.push(SyncPoint {
                        partners: partners.collect(),
                        bytes: point.bytes as f64 * count,
                        count,
                        again: 0.0,
                    });
                }
            }
        }
    }
    let mut workload = Workload::new(costs, points, seconds)?;
    workload.set_classes(classes.to_vec());
    Ok(workload)
}

fn slice_at(slices: usize, place: f64) -> usize {
    ((place * slices as f64) as usize).min(slices - 1)
}

/// Actions that a chain of dependencies, in either direction, connects to the first one.
fn connected_to_first(class: &ClassFlow) -> Vec<bool> {
    let mut connected = vec![false; class.actions.len()];
    connected[0] = true;
    for _ in 0..class.actions.len() {
        for edge in &class.dependencies {
            let (from, to) = (edge.from as usize, edge.to as usize);
            let either = connected[from] || connected[to];
            connected[from] = either;
            connected[to] = either;
        }
    }
    connected
}

impl AnticipatedTable {
    /// A table of `slices` sub-partitions that are accessed equally.
    #[must_use]
    pub fn uniform(name: &str, slices: usize, action_cycles: f64) -> Self {
        Self { name: name.into(), action_cycles, spread: vec![1.0; slices] }
    }

    /// The place of this table in a list, for building flow graphs.
    #[must_use]
    pub fn index_in(tables: &[Self], name: &str) -> Option<TableIndex> {
        let at = tables.iter().position(|table| table.name == name)?;
        u32::try_from(at).ok().map(TableIndex)
    }
}
