//! Schemes for loads that move: narrow stripes of every table in turn on all workers, so that wherever the load is, all have a part of it.
//!
//! Owns: the stripes. Never: judges whether the load moves.
//!
//! Stripes of equally many rows ([`spread`]) are for a load that may be anywhere. For one whose places are known, and only which of them is
//! busy at a time is not, slices of the table that has most of the load are dealt in the order of keys, each to the worker that has
//! least so far ([`deal`]): over all, workers have the same, and each place is dealt to all of them.
//!
//! Invariants: stripes of all tables at the same relative position, counted in rows, have one owner, so that rows of equal positions that
//! are used together stay together; a stripe ends where a slice does.

use crate::controller::Rules;
use crate::ids::{TableIndex, WorkerIndex};
use crate::platform::Platform;
use crate::scheme::{PlannedScheme, TableScheme};
use crate::workload::Workload;

fn tables(workload: &Workload) -> impl Iterator<Item = TableIndex> {
    (0..).take(workload.table_count()).map(TableIndex)
}

fn workers(platform: &Platform) -> Vec<WorkerIndex> {
    platform.available_ranks().iter().map(|rank| platform.worker(*rank)).collect()
}

/// The slices of a table: the relative position of the middle of each, counted in rows, or in slices where rows are not known; and its share of them.
fn places(workload: &Workload, table: TableIndex) -> Vec<(f64, f64)> {
    let rows = workload.all_rows();
    let slices = workload.range(table);
    let weight = |slice: usize| rows.get(slice).map_or(1.0, |rows| rows.max(1e-9));
    let total: f64 = slices.clone().map(weight).sum();
    let mut before = 0.0;
    let place = |slice: usize| {
        let share = weight(slice) / total;
        before += share;
        (before - share / 2.0, share)
    };
    slices.map(place).collect()
}

/// Stripes of equally many rows, as far as slices allow.
pub(crate) fn spread(workload: &Workload, platform: &Platform, rules: &Rules) -> PlannedScheme {
    let workers = workers(platform);
    let stripes = workers.len() * rules.stripes_per_worker as usize;
    let owner = |(middle, _): &(f64, f64)| {
        workers[((middle * stripes as f64) as usize).min(stripes - 1) % workers.len()]
    };
    let table = |table| {
        let owners: Vec<WorkerIndex> = places(workload, table).iter().map(owner).collect();
        TableScheme::from_owners(&owners)
    };
    PlannedScheme::new(tables(workload).map(table).collect())
}

/// Slices dealt by their load.
pub(crate) fn deal(workload: &Workload, platform: &Platform, rules: &Rules) -> PlannedScheme {
    let workers = workers(platform);
    let load = |table: &TableIndex| workload.table_costs(*table).iter().sum::<f64>();
    let Some(first) = tables(workload).max_by(|a, b| load(a).total_cmp(&load(b))) else {
        return spread(workload, platform, rules);
    };
    let dealt = places(workload, first);
    // The end of each of its slices, by which those of other tables find their place.
    let ends: Vec<f64> = dealt.iter().map(|(middle, share)| middle + share / 2.0).collect();
    let at = |middle: f64| ends.partition_point(|end| *end <= middle).min(ends.len() - 1);
    let total = workload.work_cycles();
    let mut weights: Vec<f64> = dealt.iter().map(|(_, share)| rules.rows_part * share * total).collect();
    for table in tables(workload) {
        for ((middle, _), cost) in places(workload, table).into_iter().zip(workload.table_costs(table)) {
            weights[at(middle)] += cost;
        }
    }
    let mut has = vec![0.0_f64; workers.len()];
    let deal = |weight: &f64| {
        let least = (0..workers.len()).min_by(|a, b| has[*a].total_cmp(&has[*b])).unwrap_or(0);
        has[least] += weight;
        workers[least]
    };
    let owners: Vec<WorkerIndex> = weights.iter().map(deal).collect();
    let table = |table| {
        let of_table: Vec<WorkerIndex> =
            places(workload, table).iter().map(|(middle, _)| owners[at(*middle)]).collect();
        TableScheme::from_owners(&of_table)
    };
    PlannedScheme::new(tables(workload).map(table).collect())
}

#[cfg(test)]
mod tests {
    use super::{deal, spread};
    use crate::controller::Rules;
    use crate::cost::{Weights, evaluate};
    use crate::platform::Platform;
    use crate::workload::Workload;
    use atrapos_topology::Machine;

    #[test]
    fn each_hot_place_is_dealt_to_all_workers_and_the_whole_is_even() {
        let machine = Machine::synthetic("core:4 pu:1").expect("a machine");
        let platform = Platform::for_workers(&machine, 4).expect("a platform");
        // Two hot places of sixteen slices of uneven cost among cold ones; of the second table the same in coarser slices.
        let hot = |slice: usize| (20..36).contains(&slice) || (60..76).contains(&slice);
        let cost = |slice: usize| if hot(slice) { 60.0 + (slice * 37 % 80) as f64 } else { 1.0 };
        let fine: Vec<f64> = (0..100).map(cost).collect();
        let coarse: Vec<f64> = fine.chunks(2).map(|two| two.iter().sum::<f64>() / 4.0).collect();
        let tables = vec![("fine".to_owned(), fine.clone()), ("coarse".to_owned(), coarse)];
        let workload = Workload::new(tables, Vec::new(), 1.0).expect("a workload");
        let ratio = |scheme| {
            evaluate(&workload, &platform, &scheme, &Weights::default()).expect("a cost").load_max_ratio()
        };
        let dealt = deal(&workload, &platform, &Rules::DEFAULT);
        let owners = dealt.slice_owners(&workload);
        for place in [20..36, 60..76] {
            let mut has = [0.0; 4];
            place.clone().for_each(|slice| has[owners[slice].index()] += fine[slice]);
            let mean = has.iter().sum::<f64>() / 4.0;
            assert!(has.iter().all(|of| (0.6..1.4).contains(&(of / mean))), "{place:?}: {has:?}");
        }
        assert!(ratio(dealt) < 1.1);
        assert!(
            ratio(spread(&workload, &platform, &Rules::DEFAULT)) > 1.2,
            "stripes of rows know nothing of the load"
        );
    }
}
