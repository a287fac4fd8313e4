//! Saturation: what the time that workers were busy says of what they have recorded.
//!
//! Owns: the scale from records to time. Never: measures either.
//!
//! A worker that is not saturated spends a part of its busy time looking for work, which costs as much however little it finds; what it
//! has recorded is scaled as that of the saturated ones. Where none is saturated, records stand for themselves.

/// The time of a worker since statistics began, and what it has recorded meanwhile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorkerTime {
    /// The time that it was busy, in any unit.
    pub busy: f64,
    /// The time that it was idle, in the same unit.
    pub idle: f64,
    /// Number of workers that share its thread, itself included.
    pub of_thread: usize,
    /// The cost of what it has recorded, in any unit.
    pub recorded: f64,
}

/// Returns the time that each worker was busy over what it has recorded; `None` if no worker was saturated, which is busy for at least a share
/// of `saturated` ([`Rules::saturated`](crate::Rules::saturated)) of its time. Workers that share threads are saturated together.
#[must_use]
pub fn busy_per_recorded(workers: &[WorkerTime], saturated: f64) -> Option<Vec<f64>> {
    let shares = |worker: &&WorkerTime| worker.of_thread > 1;
    let in_turns = is_saturated(workers.iter().filter(shares), saturated);
    let of_saturated = |worker: &WorkerTime| {
        let is_full =
            if shares(&worker) { in_turns } else { is_saturated(std::iter::once(worker), saturated) };
        (is_full && worker.busy > 0.0 && worker.recorded > 0.0).then_some((worker.busy, worker.recorded))
    };
    let known: Vec<Option<(f64, f64)>> = workers.iter().map(of_saturated).collect();
    let sums = known.iter().flatten().copied().reduce(|sums, worker| (sums.0 + worker.0, sums.1 + worker.1));
    let (busy, recorded) = sums?;
    let scale = |own: Option<(f64, f64)>| own.map_or(busy / recorded, |(busy, recorded)| busy / recorded);
    Some(known.into_iter().map(scale).collect())
}

/// Returns true if these workers spent nearly all time of their threads on work.
fn is_saturated<'w>(workers: impl Iterator<Item = &'w WorkerTime>, saturated: f64) -> bool {
    let (busy, time) = workers.fold((0.0, 0.0), |(busy, time), worker| {
        (busy + worker.busy, time + (worker.busy + worker.idle) / worker.of_thread as f64)
    });
    busy > 0.0 && busy >= saturated * time
}
