//! Costs of actions alone: what was observed of workers, less what their synchronization costs under the scheme of the trace.
//!
//! Owns: the division of observed time. Never: plans.
//!
//! An event that is timed contains messages where a transaction has left its worker, and so does the time that a worker is busy. Under
//! another scheme they are others, so the cost model needs the rest: of each worker, its observed time (busy time where the trace has it, and the recorded costs
//! scaled to it) less what the model says that its synchronization points cost today. What is left is divided among its sub-partitions as
//! it was recorded.
//!
//! Invariant: no sub-partition that cost something costs nothing afterwards. Where the model says that synchronization takes
//! nearly all of the time, it is the model that is wrong, and its costs are lowered until a fifth of the time is left for the work.

use crate::cost::Weights;
use crate::error::AdaptError;
use crate::platform::Platform;
use crate::trace::WorkloadTrace;
use crate::workload::Workload;

/// Greatest share of the observed time that is taken for synchronization.
const SYNC_SHARE_MAX: f64 = 0.8;

/// Statistics whose costs are those of actions alone, and the weights by which their synchronization is costed.
#[derive(Debug, Clone)]
pub struct Attributed {
    /// The statistics.
    pub workload: Workload,
    /// The given weights, with costs of synchronization that the observed time has room for.
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
    weights: &Weights,
) -> Result<Attributed, AdaptError> {
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
    // Cycles of synchronization by slice: a worker's part of a point is shared by its slices that take part.
    let mut sync = vec![0.0; owners.len()];
    let mut ranks = Vec::new();
    for point in workload.sync_points() {
        ranks.clear();
        ranks.extend(point.partners.iter().map(|slice| platform.rank(owners[*slice as usize])));
        let span = platform.span_of_ranks(&mut ranks);
        if span.others == 0 {
            continue;
        }
        let of_worker = weights.sync_cycles(point).of(span) / f64::from(span.others + 1);
        for slice in &point.partners {
            let owner = owners[*slice as usize];
            let same = point.partners.iter().filter(|other| owners[**other as usize] == owner).count();
            sync[*slice as usize] += of_worker / same as f64;
        }
    }
    let observed = |worker: usize| match trace.busy_cycles.get(worker) {
        Some(busy) if recorded[worker] > 0.0 => *busy as f64,
        _ => recorded[worker],
    };
    let (total, sync_total): (f64, f64) = ((0..trace.workers).map(observed).sum(), sync.iter().sum());
    let factor = if sync_total > 0.0 { (SYNC_SHARE_MAX * total / sync_total).min(1.0) } else { 1.0 };
    let mut of_worker = vec![0.0; trace.workers];
    for (owner, cycles) in owners.iter().zip(&sync) {
        of_worker[owner.index()] += factor * cycles;
    }
    // What is left for the work of each worker, over what was recorded of it.
    let scale: Vec<f64> = (0..trace.workers)
        .map(|worker| {
            let left = (observed(worker) - of_worker[worker]).max((1.0 - SYNC_SHARE_MAX) * observed(worker));
            if recorded[worker] > 0.0 { left / recorded[worker] } else { 1.0 }
        })
        .collect();
    workload.scale_costs(owners.iter().map(|owner| scale[owner.index()]));
    Ok(Attributed { workload, weights: weights.with_sync_factor(factor) })
}
