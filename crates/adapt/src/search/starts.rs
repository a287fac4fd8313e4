//! Initial assignments of searches.
//!
//! Owns: their choice. Never: improves one.
//!
//! Invariant: every slice has an available owner; equal arguments give equal starts.

use super::state::Problem;
use crate::scheme::PlannedScheme;

/// Every start; today's comes first, because the first of equal results is kept.
pub(crate) fn all(problem: &Problem<'_>, today: Option<&PlannedScheme>, group_max: f64) -> Vec<Vec<u32>> {
    let mut starts = Vec::new();
    starts.extend(today.map(|scheme| current(problem, scheme)));
    starts.push(ranks_of(problem, &PlannedScheme::naive(problem.workload, problem.platform)));
    starts.push(table_by_table(problem));
    starts.push(in_a_row(problem));
    starts.push(together(problem));
    starts.push(in_groups(problem, group_max));
    // Different ways to the same start are one start.
    let mut distinct: Vec<Vec<u32>> = Vec::new();
    for start in starts {
        if !distinct.contains(&start) {
            distinct.push(start);
        }
    }
    distinct
}

fn ranks_of(problem: &Problem<'_>, scheme: &PlannedScheme) -> Vec<u32> {
    scheme.slice_owners(problem.workload).into_iter().map(|owner| problem.platform.rank(owner)).collect()
}

/// Today's scheme; each partition of a retired worker goes to the available one with the least load.
fn current(problem: &Problem<'_>, scheme: &PlannedScheme) -> Vec<u32> {
    let mut owner = ranks_of(problem, scheme);
    let mut load = vec![0.0; problem.platform.worker_count()];
    for (rank, cost) in owner.iter().zip(problem.workload.all_costs()) {
        load[*rank as usize] += cost;
    }
    let is_available = |rank: u32| problem.available.binary_search(&rank).is_ok();
    for table in problem.tables() {
        let mut from = table.start;
        while from < table.end {
            let rank = owner[from];
            let to = (from..table.end).find(|at| owner[*at] != rank).unwrap_or(table.end);
            if !is_available(rank) {
                let heir = least_loaded(problem, &load);
                load[heir as usize] += problem.load(from..to);
                owner[from..to].fill(heir);
            }
            from = to;
        }
    }
    owner
}

fn least_loaded(problem: &Problem<'_>, load: &[f64]) -> u32 {
    let mut least = problem.available[0];
    for rank in &problem.available {
        if load[*rank as usize] < load[least as usize] {
            least = *rank;
        }
    }
    least
}

/// Gives `order` to the available workers one after the other, so that each has its share of the whole cost. A slice goes
/// where its middle falls, which is nearer to equal than stopping where the share is exceeded.
fn deal(problem: &Problem<'_>, order: &[usize], owner: &mut [u32]) {
    let costs = problem.workload.all_costs();
    let total: f64 = order.iter().map(|slice| costs[*slice]).sum();
    let workers = problem.available.len();
    let mut before = 0.0;
    for (at, slice) in order.iter().enumerate() {
        let cost = costs[*slice];
        let share = if total > 0.0 { (before + cost / 2.0) / total } else { at as f64 / order.len() as f64 };
        let turn = ((share * workers as f64) as usize).min(workers - 1);
        owner[*slice] = problem.available[turn];
        before += cost;
    }
}

/// Each table by itself in equal loads: the naive scheme without its imbalance.
fn table_by_table(problem: &Problem<'_>) -> Vec<u32> {
    let mut owner = vec![0; problem.slice_count()];
    for table in problem.tables() {
        deal(problem, &table.collect::<Vec<_>>(), &mut owner);
    }
    owner
}

/// All tables in a row in equal loads (`ATraPos §V-C`): most workers have one partition, of one table.
pub(crate) fn in_a_row(problem: &Problem<'_>) -> Vec<u32> {
    let mut owner = vec![0; problem.slice_count()];
    deal(problem, &(0..problem.slice_count()).collect::<Vec<_>>(), &mut owner);
    owner
}

/// Slices of all tables in an order in which those that synchronize are near each other, in equal loads: what meets is on
/// one worker or on neighbours, whatever the skew.
fn together(problem: &Problem<'_>) -> Vec<u32> {
    let position = positions(problem);
    let mut order: Vec<usize> = (0..problem.slice_count()).collect();
    order.sort_by(|a, b| position[*a].total_cmp(&position[*b]).then(a.cmp(b)));
    let mut owner = vec![0; problem.slice_count()];
    deal(problem, &order, &mut owner);
    owner
}

/// Slices that synchronize most in groups, wherever in their tables they are, and the groups in equal loads: pairs of rows that are
/// used together in any order are on one worker. The load of a group is at most `group_max` times a worker's share.
fn in_groups(problem: &Problem<'_>, group_max: f64) -> Vec<u32> {
    let mut group: Vec<usize> = (0..problem.slice_count()).collect();
    let mut load: Vec<f64> = problem.workload.all_costs().to_vec();
    let root = |group: &[usize], mut slice: usize| {
        while group[slice] != slice {
            slice = group[slice];
        }
        slice
    };
    let mut points: Vec<u32> = (0..).take(problem.workload.sync_points().len()).collect();
    points.sort_by(|a, b| problem.size(*b).total_cmp(&problem.size(*a)).then(a.cmp(b)));
    for point in points {
        let mut partners = problem.partners(point).iter().map(|slice| *slice as usize);
        let Some(first) = partners.next() else { continue };
        for partner in partners {
            let (a, b) = (root(&group, first), root(&group, partner));
            if a != b && load[a] + load[b] <= group_max * problem.load_mean {
                // The root is the first slice, so that groups are in the order of their first slices.
                let (first, other) = (a.min(b), a.max(b));
                group[other] = first;
                load[first] += load[other];
            }
        }
    }
    let mut order: Vec<usize> = (0..problem.slice_count()).collect();
    order.sort_by_key(|slice| (root(&group, *slice), *slice));
    let mut owner = vec![0; problem.slice_count()];
    deal(problem, &order, &mut owner);
    owner
}

/// A position for every slice: its place in its own table for the table that synchronizes most; for others the weighted
/// mean of the positions of those it meets, tables that meet the placed ones most coming first.
fn positions(problem: &Problem<'_>) -> Vec<f64> {
    let tables: Vec<_> = problem.tables().collect();
    let table_of = {
        let mut table_of = vec![0; problem.slice_count()];
        for (at, table) in tables.iter().enumerate() {
            table_of[table.clone()].fill(at);
        }
        table_of
    };
    // How much every two tables exchange.
    let mut exchange = vec![vec![0.0; tables.len()]; tables.len()];
    let points = u32::try_from(problem.workload.sync_points().len()).expect("points are numbered in 32 bits");
    for point in 0..points {
        let partners = problem.partners(point);
        let mut met: Vec<usize> = partners.iter().map(|slice| table_of[*slice as usize]).collect();
        met.dedup();
        for (at, a) in met.iter().enumerate() {
            for b in met[at + 1..].iter().filter(|b| *b != a) {
                exchange[*a][*b] += problem.size(point);
                exchange[*b][*a] += problem.size(point);
            }
        }
    }
    let mut position: Vec<f64> = Vec::with_capacity(problem.slice_count());
    for table in &tables {
        position.extend((0..table.len()).map(|at| (at as f64 + 0.5) / table.len() as f64));
    }
    let mut placed = vec![false; tables.len()];
    for _ in 0..tables.len() {
        let pull = |table: usize| -> f64 {
            (0..tables.len()).filter(|other| placed[*other]).map(|other| exchange[table][other]).sum()
        };
        let sum = |table: usize| exchange[table].iter().sum::<f64>();
        let next = (0..tables.len())
            .filter(|table| !placed[*table])
            .max_by(|a, b| pull(*a).total_cmp(&pull(*b)).then(sum(*a).total_cmp(&sum(*b))).then(b.cmp(a)))
            .expect("one table is not placed");
        if pull(next) > 0.0 {
            for slice in tables[next].clone() {
                let (mut weighted, mut weights) = (0.0, 0.0);
                for point in problem.incident(slice) {
                    for partner in problem.partners(*point).iter().map(|partner| *partner as usize) {
                        if placed[table_of[partner]] {
                            weighted += position[partner] * problem.size(*point);
                            weights += problem.size(*point);
                        }
                    }
                }
                if weights > 0.0 {
                    position[slice] = weighted / weights;
                }
            }
        }
        placed[next] = true;
    }
    position
}
