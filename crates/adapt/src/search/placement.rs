//! Algorithm 2's loop: what meets at a costly synchronization point is brought together (`ATraPos §V-C, Alg. 2`).
//!
//! Owns: which partitions are moved or switched for the sake of synchronization. Never: makes the objective worse.
//!
//! The paper begins again at the costliest point after each change; here a pass goes through all of them in the order of
//! cost it found, and passes are repeated until one changes nothing: the same fixed points, far fewer evaluations.

use super::state::State;
use std::collections::BTreeSet;
use std::ops::Range;

/// Number of partitions of the other worker that are tried as the other half of a switch.
const SWITCHES: usize = 3;
/// Greatest number of passes.
const PASSES_MAX: usize = 16;

/// Moves and switches partitions until no synchronization point gains, or until `effort` evaluations are spent.
pub(crate) fn improve(state: &mut State<'_>, effort: u64) {
    passes(state, effort, bring);
}

/// Switches partitions with those of workers near the ones they meet, until no synchronization point gains, or until `effort`
/// evaluations are spent. Where every worker has one partition this is how the paper brings what meets to one socket; the full
/// search brings it to one worker and needs no such switches.
pub(crate) fn gather(state: &mut State<'_>, effort: u64) {
    passes(state, effort, bring_near);
}

/// Brings the partition around a slice to a worker; returns true if it did.
type Bring = fn(&mut State<'_>, &mut [Vec<u32>], usize, u32) -> bool;

fn passes(state: &mut State<'_>, effort: u64, bring: Bring) {
    let end = state.effort + effort;
    for _ in 0..PASSES_MAX {
        if state.effort >= end || !pass(state, end, bring) {
            break;
        }
    }
}

fn pass(state: &mut State<'_>, end: u64, bring: Bring) -> bool {
    let points =
        u32::try_from(state.problem.workload.sync_points().len()).expect("points are numbered in 32 bits");
    let mut costly: Vec<(f64, u32)> =
        (0..points).map(|point| (state.sync_cost(point), point)).filter(|(cost, _)| *cost > 0.0).collect();
    costly.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    // Many points lie between the same two partitions; each pair of a partition and a worker is tried once in a pass.
    let mut tried: BTreeSet<(usize, u32)> = BTreeSet::new();
    let mut slices_of = by_owner(state);
    let mut changed = false;
    for (_, point) in costly {
        if state.effort >= end {
            break;
        }
        if state.sync_cost(point) == 0.0 {
            continue;
        }
        let partners = state.problem.partners(point);
        for &slice in partners {
            let partition = state.partition_around(slice as usize);
            for &other in partners {
                let target = state.owner[other as usize];
                let from = state.owner[slice as usize];
                if target == from || !tried.insert((partition.start, target)) {
                    continue;
                }
                if bring(state, &mut slices_of, slice as usize, target) {
                    changed = true;
                    break;
                }
            }
        }
    }
    changed
}

fn by_owner(state: &State<'_>) -> Vec<Vec<u32>> {
    let mut slices_of = vec![Vec::new(); state.load.len()];
    for (slice, owner) in (0_u32..).zip(&state.owner) {
        slices_of[*owner as usize].push(slice);
    }
    slices_of
}

/// Brings the partition around `slice`, or `slice` alone, to `target`, or switches the partition with one from there.
fn bring(state: &mut State<'_>, slices_of: &mut [Vec<u32>], slice: usize, target: u32) -> bool {
    let partition = state.partition_around(slice);
    for moved in [partition.clone(), slice..slice + 1] {
        if state.move_if_better(moved.clone(), target) {
            slices_of[target as usize].extend(moved.map(|slice| slice as u32));
            return true;
        }
    }
    switch(state, slices_of, partition, target)
}

/// Switches the partition around `slice` with one of a worker that shares with `target` the largest island that the partition is not
/// in.
fn bring_near(state: &mut State<'_>, slices_of: &mut [Vec<u32>], slice: usize, target: u32) -> bool {
    let from = state.owner[slice];
    let islands = state.problem.platform.islands().iter();
    let ranks = islands.map(|(_, first, count)| *first..*first + *count);
    let around = ranks.filter(|ranks| ranks.contains(&target) && !ranks.contains(&from));
    let Some(near) = around.max_by_key(ExactSizeIterator::len) else { return false };
    let available = |rank: &u32| state.problem.available.contains(rank) && *rank != target;
    let near: Vec<u32> = near.filter(available).collect();
    let partition = state.partition_around(slice);
    near.into_iter().any(|rank| switch(state, slices_of, partition.clone(), rank))
}

/// Switches a partition with one of `target` of about the same load, if that is better.
fn switch(state: &mut State<'_>, slices_of: &mut [Vec<u32>], partition: Range<usize>, target: u32) -> bool {
    let (from, load) = (state.owner[partition.start], state.problem.load(partition.clone()));
    for other in candidates(state, slices_of, target, load) {
        if state.swap_if_better(partition.clone(), other.clone()) {
            slices_of[target as usize].extend(partition.map(|slice| slice as u32));
            slices_of[from as usize].extend(other.map(|slice| slice as u32));
            return true;
        }
    }
    false
}

/// The partitions of `rank` whose load is nearest to `load`.
fn candidates(state: &mut State<'_>, slices_of: &mut [Vec<u32>], rank: u32, load: f64) -> Vec<Range<usize>> {
    let slices = &mut slices_of[rank as usize];
    slices.retain(|slice| state.owner[*slice as usize] == rank);
    slices.sort_unstable();
    slices.dedup();
    state.effort += slices.len() as u64 / 4;
    let mut partitions: Vec<Range<usize>> = Vec::new();
    for slice in slices.iter().map(|slice| *slice as usize) {
        if partitions.last().is_none_or(|last| slice >= last.end) {
            partitions.push(state.partition_around(slice));
        }
    }
    let mut by_nearness: Vec<(f64, Range<usize>)> = partitions
        .into_iter()
        .map(|partition| ((state.problem.load(partition.clone()) - load).abs(), partition))
        .collect();
    by_nearness.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.start.cmp(&b.1.start)));
    by_nearness.into_iter().take(SWITCHES).map(|(_, partition)| partition).collect()
}
