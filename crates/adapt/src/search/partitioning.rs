//! Algorithm 1's loop: sub-partitions go to under-utilized workers (`ATraPos §V-C, Alg. 1`).
//!
//! Owns: which sub-partition goes where for the sake of balance. Never: makes the objective worse.

use super::state::{GAIN_MIN, State};

/// Number of the most loaded workers on which a sub-partition is looked for.
const DONORS: usize = 3;
/// Number of times that workers which could not be helped are looked at again.
const PASSES_MAX: usize = 4;

/// Gives sub-partitions to under-utilized workers until none gains, or until `effort` evaluations are spent.
///
/// The paper looks at all workers again after each change. Here one that could not be helped is looked at again only when
/// all others were: changes elsewhere rarely help it, and looking is what the search spends its time on.
pub(crate) fn improve(state: &mut State<'_>, effort: u64) {
    let end = state.effort + effort;
    for _ in 0..PASSES_MAX {
        if state.effort >= end || !pass(state, end) {
            break;
        }
    }
}

fn pass(state: &mut State<'_>, end: u64) -> bool {
    let mut slices_of = slices_by_owner(state);
    let mut given_up = vec![false; state.load.len()];
    let mut changed = false;
    while state.effort < end {
        // The worker with the least load among those that a sub-partition may still help.
        let mut receiver: Option<u32> = None;
        for rank in &state.problem.available {
            let load = state.load[*rank as usize];
            let least = receiver.map_or(state.problem.load_mean, |least| state.load[least as usize]);
            if !given_up[*rank as usize] && load < least {
                receiver = Some(*rank);
            }
        }
        let Some(receiver) = receiver else { break };
        match best_gift(state, &mut slices_of, receiver) {
            Some(slice) => {
                let _ = state.try_move(slice..slice + 1, receiver);
                state.commit();
                slices_of[receiver as usize].push(slice as u32);
                changed = true;
            }
            None => given_up[receiver as usize] = true,
        }
    }
    changed
}

fn slices_by_owner(state: &State<'_>) -> Vec<Vec<u32>> {
    let mut slices_of = vec![Vec::new(); state.load.len()];
    for (slice, owner) in (0_u32..).zip(&state.owner) {
        slices_of[*owner as usize].push(slice);
    }
    slices_of
}

/// The sub-partition at an end of a partition of one of the most loaded workers that lowers the objective most, and RU.
fn best_gift(state: &mut State<'_>, slices_of: &mut [Vec<u32>], receiver: u32) -> Option<usize> {
    let mean = state.problem.load_mean;
    let mut donors: Vec<u32> =
        state.problem.available.iter().copied().filter(|rank| state.load[*rank as usize] > mean).collect();
    donors.sort_by(|a, b| state.load[*b as usize].total_cmp(&state.load[*a as usize]).then(a.cmp(b)));
    donors.truncate(DONORS);
    let mut best: Option<(f64, usize)> = None;
    for donor in donors {
        // What has moved on is still listed.
        slices_of[donor as usize].retain(|slice| state.owner[*slice as usize] == donor);
        state.effort += slices_of[donor as usize].len() as u64 / 4;
        for slice in slices_of[donor as usize].iter().map(|slice| *slice as usize) {
            let table = state.problem.table_of(slice);
            let is_at_an_end = slice == table.start
                || slice + 1 == table.end
                || state.owner[slice - 1] != donor
                || state.owner[slice + 1] != donor;
            if !is_at_an_end || !lowers_imbalance(state, slice, donor, receiver) {
                continue;
            }
            let delta = state.try_move(slice..slice + 1, receiver);
            if delta < best.map_or(-GAIN_MIN, |(least, _)| least) {
                best = Some((delta, slice));
            }
        }
    }
    best.map(|(_, slice)| slice)
}

fn lowers_imbalance(state: &State<'_>, slice: usize, donor: u32, receiver: u32) -> bool {
    let moved = state.problem.load(slice..slice + 1);
    let deviation = |load: f64| (load - state.problem.load_mean).abs();
    let (from, to) = (state.load[donor as usize], state.load[receiver as usize]);
    deviation(from - moved) + deviation(to + moved) < deviation(from) + deviation(to)
}
