//! A proposal: what there is, what there should be, and the way there.
//!
//! Owns: what is kept of today's scheme although it does not matter for the cost: idle tables stay as they are, and of
//! workers that are equally far from everything, each keeps what it has. Never: decides whether the gain is worth the way;
//! that is the controller's hysteresis.
//!
//! Invariants: the proposed scheme gives nothing to a retired worker; it is not costlier than today's, as [`Cost::judged`] has it, unless a
//! retired worker owns something today; the steps lead from today's scheme to it.

use crate::cost::{Cost, Weights, evaluate};
use crate::error::AdaptError;
use crate::ids::{TableIndex, WorkerIndex};
use crate::platform::Platform;
use crate::scheme::{Partition, PlannedScheme, TableScheme};
use crate::search::{Found, Settings};
use crate::steps::{Step, steps_between};
use crate::workload::Workload;
use atrapos_topology::Level;
use serde::Serialize;

/// A proposed change of scheme.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// Today's scheme.
    pub today: PlannedScheme,
    /// The proposed one; equal to today's when nothing better was found.
    pub scheme: PlannedScheme,
    /// Cost of today's scheme.
    pub before: Cost,
    /// Cost of the proposed scheme.
    pub after: Cost,
    /// Cost of the naive scheme, for comparison.
    pub naive: Cost,
    /// The way from today's to the proposed one; empty when they are equal.
    pub steps: Vec<Step>,
}

impl Plan {
    /// By how much [`Cost::judged`] falls, as a share of the work. Never negative, unless a worker was retired.
    #[must_use]
    pub fn gain(&self) -> f64 {
        self.before.judged - self.after.judged
    }

    /// The same plan with every slice that costs more than `hot` times the mean of the workers in a partition of its own;
    /// `None` if there is none that is not in one today. The last slice of a table does not count where that `is_end` of keys that grow: it has
    /// what comes after it is cut, in however many parts it is seen.
    ///
    /// This gains nothing by itself. But sub-partitions are cut anew for every new partition, so that afterwards the slice is
    /// seen in parts, which can be given to several workers.
    pub(crate) fn with_hot_slices_alone(
        &self,
        workload: &Workload,
        platform: &Platform,
        hot: f64,
        weights: &Weights,
        is_end: impl Fn(TableIndex) -> bool,
    ) -> Result<Option<Self>, AdaptError> {
        let limit = hot * workload.all_cycles() / platform.available_count() as f64;
        let looked_at = |table: TableIndex| {
            let costs = workload.table_costs(table);
            &costs[..costs.len() - usize::from(is_end(table))]
        };
        let is_hot = |costs: &[f64], at: u32| costs.get(at as usize).is_some_and(|cost| *cost > limit);
        let is_new = (0..).map(TableIndex).zip(self.today.tables()).any(|(table, partitions)| {
            let costs = looked_at(table);
            partitions.partitions(workload.slice_count(table)).any(|part| {
                part.to.0 - part.from.0 > 1 && (part.from.0..part.to.0).any(|at| is_hot(costs, at))
            })
        });
        if !is_new {
            return Ok(None);
        }
        let tables = (0..).map(TableIndex).zip(self.scheme.tables()).map(|(table, partitions)| {
            let costs = looked_at(table);
            let (mut cuts, mut owners) = (Vec::new(), Vec::new());
            for part in partitions.partitions(workload.slice_count(table)) {
                let inside = part.from.0 + 1..part.to.0;
                let is_cut = |at: &u32| is_hot(costs, *at) || is_hot(costs, *at - 1);
                let begins = std::iter::once(part.from.0).chain(inside.filter(is_cut));
                for begin in begins {
                    owners.push(part.owner);
                    if begin > 0 {
                        cuts.push(begin);
                    }
                }
            }
            TableScheme::new(cuts, owners)
        });
        let scheme = PlannedScheme::new(tables.collect());
        let after = evaluate(workload, platform, &scheme, weights)?;
        let steps = steps_between(&self.today, &scheme, workload)?;
        Ok(Some(Self { scheme, after, steps, ..self.clone() }))
    }
}

/// Proposes a scheme for `workload` on `platform`, coming from `today`.
///
/// # Errors
/// A scheme that does not fit (see [`PlannedScheme::check`]), or a weight that is no weight.
pub fn plan(
    workload: &Workload,
    platform: &Platform,
    today: &PlannedScheme,
    settings: &Settings,
) -> Result<Plan, AdaptError> {
    let Found { best, near, aligned } = Found::by(workload, platform, Some(today), settings)?;
    let price = |plan: &Plan| {
        let owners: Vec<u32> = plan.scheme.slice_owners(workload).iter().map(|owner| owner.0).collect();
        let workers = platform.available_count();
        let crowding = settings.prices.of_crowding(workload, &owners, workers);
        let way = settings.prices.of_way(workload, platform, today, &plan.scheme, plan.steps.len());
        plan.after.judged + crowding + way
    };
    let mut planned = plan_from(workload, platform, today, best, settings)?;
    // A scheme far away must be worth the way; one near today's, or today's itself, may be as good for less.
    let possible =
        today.tables().iter().flat_map(TableScheme::owners).all(|owner| platform.is_available(*owner));
    for other in near.into_iter().chain(aligned).chain(possible.then(|| today.clone())) {
        let other = plan_from(workload, platform, today, other, settings)?;
        if price(&other) <= price(&planned) {
            planned = other;
        }
    }
    Ok(planned)
}

/// The plan that leads from `today` to `found`, a scheme that was found by whatever means, for instance by the exact
/// program; today's scheme stays where `found` is not better.
///
/// # Errors
/// A scheme that does not fit (see [`PlannedScheme::check`]), or a weight that is no weight.
pub fn plan_from(
    workload: &Workload,
    platform: &Platform,
    today: &PlannedScheme,
    found: PlannedScheme,
    settings: &Settings,
) -> Result<Plan, AdaptError> {
    let Settings { weights, thresholds, .. } = settings;
    let before = evaluate(workload, platform, today, weights)?;
    let naive = evaluate(workload, platform, &PlannedScheme::naive(workload, platform), weights)?;
    let mut best = (evaluate(workload, platform, &found, weights)?, found);
    // What follows must not cost anything but what a quiet table has; where rounding or uneven distances say otherwise, the found
    // scheme stays.
    let quiet_max = thresholds.quiet_max;
    let keep_quiet: Change<'_> = &|found| keep_quiet_tables(workload, platform, today, found, quiet_max);
    let keep_owners: Change<'_> = &|found| keep_owners(workload, platform, today, found);
    for (changed, share) in [(keep_quiet, 2.0 * quiet_max), (keep_owners, 0.0)] {
        let scheme = changed(&best.1);
        let cost = evaluate(workload, platform, &scheme, weights)?;
        let same = |a: f64, b: f64, whole: f64| a <= b + share * whole + 1e-9 * b.abs().max(1.0);
        if same(cost.imbalance_cycles, best.0.imbalance_cycles, workload.work_cycles())
            && same(cost.sync_byte_distance, best.0.sync_byte_distance, before.sync_byte_distance)
            && cost.judged <= naive.judged.max(best.0.judged) + 1e-9
        {
            best = (cost, scheme);
        }
    }
    let possible =
        today.tables().iter().flat_map(TableScheme::owners).all(|owner| platform.is_available(*owner));
    let (after, scheme) = if possible && before.judged <= best.0.judged + 1e-12 {
        (before.clone(), today.clone())
    } else {
        best
    };
    let steps = steps_between(today, &scheme, workload)?;
    Ok(Plan { today: today.clone(), scheme, before, after, naive, steps })
}

/// The plan that only brings away what is on retired workers, each partition to the available one that has least, and
/// leaves all else alone: for when there are no statistics that a better one could be made from.
///
/// # Errors
/// A scheme that does not fit (see [`PlannedScheme::check`]), or a weight that is no weight.
pub fn plan_of_necessity(
    workload: &Workload,
    platform: &Platform,
    today: &PlannedScheme,
    weights: &Weights,
) -> Result<Plan, AdaptError> {
    today.check(workload, platform)?;
    // Load first, partitions second: without any load they are spread all the same.
    let mut has = vec![(0.0, 0_usize); platform.worker_count()];
    let parts_of = |table: TableIndex| today.tables()[table.index()].partitions(workload.slice_count(table));
    let load_of = |table: TableIndex, part: &Partition| -> f64 {
        workload.table_costs(table)[part.from.index()..part.to.index()].iter().sum()
    };
    let tables = || (0..).map(TableIndex).take(today.tables().len());
    for (table, part) in tables().flat_map(|table| parts_of(table).map(move |part| (table, part))) {
        has[part.owner.index()].0 += load_of(table, &part);
        has[part.owner.index()].1 += 1;
    }
    let mut scheme = Vec::new();
    for table in tables() {
        let mut owners = Vec::new();
        for part in parts_of(table) {
            let mut owner = part.owner;
            if !platform.is_available(owner) {
                let heirs = (0_u32..).map(WorkerIndex).take(platform.worker_count());
                owner = heirs
                    .filter(|heir| platform.is_available(*heir))
                    .min_by(|a, b| {
                        let (a, b) = (has[a.index()], has[b.index()]);
                        a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
                    })
                    .expect("a platform has an available worker");
                has[owner.index()].0 += load_of(table, &part);
                has[owner.index()].1 += 1;
            }
            owners.push(owner);
        }
        scheme.push(TableScheme::new(today.tables()[table.index()].cuts().to_vec(), owners));
    }
    plan_to(workload, platform, today, PlannedScheme::new(scheme), weights)
}

/// The plan that leads from `today` to exactly `scheme`, better or not.
///
/// # Errors
/// A scheme that does not fit (see [`PlannedScheme::check`]), or a weight that is no weight.
pub(crate) fn plan_to(
    workload: &Workload,
    platform: &Platform,
    today: &PlannedScheme,
    scheme: PlannedScheme,
    weights: &Weights,
) -> Result<Plan, AdaptError> {
    let before = evaluate(workload, platform, today, weights)?;
    let after = evaluate(workload, platform, &scheme, weights)?;
    let naive = evaluate(workload, platform, &PlannedScheme::naive(workload, platform), weights)?;
    let steps = steps_between(today, &scheme, workload)?;
    Ok(Plan { today: today.clone(), scheme, before, after, naive, steps })
}

/// Changes a scheme that was found.
type Change<'a> = &'a dyn Fn(&PlannedScheme) -> PlannedScheme;

/// Keeps the partitions of a table of which next to nothing is known: to merge them would save next to nothing, and the
/// accesses to come would find them all on a few workers.
fn keep_quiet_tables(
    workload: &Workload,
    platform: &Platform,
    today: &PlannedScheme,
    found: &PlannedScheme,
    quiet_max: f64,
) -> PlannedScheme {
    let naive = PlannedScheme::naive(workload, platform);
    let tables = workload.quiet_tables(quiet_max).into_iter().enumerate().map(|(at, quiet)| {
        let possible = today.tables()[at].owners().iter().all(|owner| platform.is_available(*owner));
        match (quiet, possible) {
            (true, true) => today.tables()[at].clone(),
            (true, false) => naive.tables()[at].clone(),
            (false, _) => found.tables()[at].clone(),
        }
    });
    PlannedScheme::new(tables.collect())
}

/// Exchanges workers of one L3 island in `found` so that each keeps as many slices of today's as possible, weighed by
/// their cost: between them it makes no difference to the objective, but a great one to the number of moves.
fn keep_owners(
    workload: &Workload,
    platform: &Platform,
    today: &PlannedScheme,
    found: &PlannedScheme,
) -> PlannedScheme {
    let (old, new) = (today.slice_owners(workload), found.slice_owners(workload));
    let mut renamed: Vec<WorkerIndex> = (0..).take(platform.worker_count()).map(WorkerIndex).collect();
    let mut overlaps = std::collections::BTreeMap::new();
    for ((old, new), cost) in old.iter().zip(&new).zip(workload.all_costs()) {
        *overlaps.entry((*new, *old)).or_insert(0.0) += cost + 1.0;
    }
    for (_, first, count) in platform.islands().iter().filter(|(level, ..)| *level == Level::L3) {
        let workers: Vec<WorkerIndex> = (*first..*first + *count)
            .map(|rank| platform.worker(rank))
            .filter(|worker| platform.is_available(*worker))
            .collect();
        let mut pairs = Vec::new();
        for new in &workers {
            let of_new = overlaps.range((*new, WorkerIndex(0))..=(*new, WorkerIndex(u32::MAX)));
            pairs.extend(
                of_new
                    .filter(|((_, old), _)| workers.contains(old))
                    .map(|((_, old), cost)| (*cost, *new, *old)),
            );
        }
        pairs.sort_by(|a: &(f64, _, _), b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
        let mut left: Vec<WorkerIndex> = workers.clone();
        let mut free: Vec<WorkerIndex> = workers;
        for (_, new, old) in pairs {
            if left.contains(&new) && free.contains(&old) {
                left.retain(|worker| *worker != new);
                free.retain(|worker| *worker != old);
                renamed[new.index()] = old;
            }
        }
        for (new, old) in left.into_iter().zip(free) {
            renamed[new.index()] = old;
        }
    }
    let tables = found.tables().iter().map(|table| {
        let owners = table.owners().iter().map(|owner| renamed[owner.index()]).collect();
        TableScheme::new(table.cuts().to_vec(), owners)
    });
    PlannedScheme::new(tables.collect())
}
