//! Costs of actions alone: what was observed of workers, less what their synchronization costs under the scheme of the trace.
//!
//! Owns: the division of observed time. Never: plans.
//!
//! An event that is timed contains messages where a transaction has left its worker, and so does the time that a worker is busy. Under
//! another scheme they are others, so the cost model needs the rest: of each worker, its observed time (busy time where the trace has it, and the recorded costs
//! scaled to it) less what the model says that its synchronization points cost today. What is left is divided among its sub-partitions as
//! it was recorded.
//!
//! The trace corrects what the model adds for distance: work does not depend on how far the partners of a worker are, so that the slope of
//! the observed time over the modelled premium says by which factor the model is wrong.
//!
//! Invariant: no sub-partition that cost something costs nothing afterwards. Where the model says that synchronization takes
//! nearly all of the time, it is the model that is wrong, and its costs are lowered until they leave time for the work
//! ([`sync_share_max`](Thresholds::sync_share_max)).

use crate::cost::{Weights, for_each_meeting};
use crate::error::AdaptError;
use crate::ids::WorkerIndex;
use crate::platform::{Platform, Span};
use crate::search::Settings;
use crate::thresholds::Thresholds;
use crate::trace::WorkloadTrace;
use crate::workload::Workload;

/// Statistics whose costs are those of actions alone, and the weights by which their synchronization is costed.
#[derive(Debug, Clone)]
pub struct Attributed {
    /// The statistics.
    pub workload: Workload,
    /// The weights of the settings, with costs of synchronization that the observed time has room for.
    pub weights: Weights,
}

/// Divides the observed time of a trace into work and synchronization.
///
/// A trace of more workers than the platform has is taken as it is: its scheme cannot be placed there.
///
/// # Errors
/// As [`WorkloadTrace::workload`] and [`WorkloadTrace::scheme`]; a weight that is no weight.
pub fn attribute(
    trace: &WorkloadTrace,
    platform: &Platform,
    settings: &Settings,
) -> Result<Attributed, AdaptError> {
    let Settings { weights, thresholds, .. } = settings;
    weights.check()?;
    let (mut workload, scheme) = (trace.workload()?, trace.scheme()?);
    if trace.workers > platform.worker_count() {
        return Ok(Attributed { workload, weights: *weights });
    }
    let owners = scheme.slice_owners(&workload);
    let mut recorded = vec![0.0; trace.workers];
    for (owner, cost) in owners.iter().zip(workload.all_costs()) {
        recorded[owner.index()] += cost;
    }
    let observed = |worker: usize| match trace.busy_cycles.get(worker) {
        Some(busy) if recorded[worker] > 0.0 => *busy as f64,
        _ => recorded[worker],
    };
    let observed: Vec<f64> = (0..trace.workers).map(observed).collect();
    let modelled = modelled(&workload, platform, &owners, weights, trace.workers);
    let premium = premium_factor(&observed, &modelled, thresholds);
    let weights = weights.with_premium(premium, workload.sync_points());
    let mut of_worker: Vec<f64> =
        modelled.iter().map(|modelled| modelled.near + premium * modelled.premium).collect();
    let (total, sync_total): (f64, f64) = (observed.iter().sum(), of_worker.iter().sum());
    let factor =
        if sync_total > 0.0 { (thresholds.sync_share_max * total / sync_total).min(1.0) } else { 1.0 };
    of_worker.iter_mut().for_each(|cycles| *cycles *= factor);
    // What is left for the work of each worker, over what was recorded of it.
    let scale: Vec<f64> = (0..trace.workers)
        .map(|worker| {
            let observed = observed[worker];
            let left = (observed - of_worker[worker]).max((1.0 - thresholds.sync_share_max) * observed);
            if recorded[worker] > 0.0 { left / recorded[worker] } else { 1.0 }
        })
        .collect();
    workload.scale_costs(owners.iter().map(|owner| scale[owner.index()]));
    Ok(Attributed { workload, weights: weights.with_sync_factor(factor) })
}

/// Synchronization of a worker under the scheme of a trace, in cycles as the model has them.
#[derive(Debug, Clone, Copy, Default)]
struct Modelled {
    /// As if all that meet were in one L3 island.
    near: f64,
    /// Cycles that the distance adds.
    premium: f64,
}

/// Synchronization by worker: a point is shared equally by the workers that take part.
fn modelled(
    workload: &Workload,
    platform: &Platform,
    owners: &[WorkerIndex],
    weights: &Weights,
    workers: usize,
) -> Vec<Modelled> {
    let mut modelled = vec![Modelled::default(); workers];
    for_each_meeting(workload, platform, owners, |point, workers, span| {
        let cycles = weights.sync_cycles(point);
        let near = cycles.of(Span { distance: span.distance.min(f64::from(span.others)), ..span });
        let premium = cycles.of(span) - near;
        for worker in workers {
            let modelled = &mut modelled[worker.index()];
            modelled.near += near / workers.len() as f64;
            modelled.premium += premium / workers.len() as f64;
        }
    });
    modelled
}

/// The factor on what distance costs by which the work of workers, as far as it can be told, does not depend on how far they are from those
/// that they meet: the slope of a line through the workers, as a normal prior of mean 1 and the deviation of the thresholds lets it count.
fn premium_factor(observed: &[f64], modelled: &[Modelled], thresholds: &Thresholds) -> f64 {
    let of_workers = observed.iter().zip(modelled).filter(|(observed, _)| **observed > 0.0);
    let points: Vec<(f64, f64)> =
        of_workers.map(|(observed, modelled)| (modelled.premium, observed - modelled.near)).collect();
    let count = points.len() as f64;
    if points.len() < thresholds.premium_workers as usize {
        return 1.0;
    }
    let mean = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(&|point| point.0), mean(&|point| point.1));
    let variance = mean(&|point| (point.0 - x).powi(2));
    if variance <= 1e-9 * y * y {
        return 1.0;
    }
    let slope = mean(&|point| (point.0 - x) * (point.1 - y)) / variance;
    let left = mean(&|point| (point.1 - y - slope * (point.0 - x)).powi(2));
    let error = left / (variance * (count - 2.0));
    let prior = thresholds.premium_deviation.powi(2);
    (1.0 + (slope - 1.0) * prior / (prior + error)).clamp(thresholds.premium_min, thresholds.premium_max)
}
