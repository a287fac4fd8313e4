//! Algorithm 1's loop: sub-partitions go to under-utilized workers (`ATraPos §V-C, Alg. 1`).
//!
//! Owns: which sub-partition goes where for the sake of balance. Never: makes the objective worse.

use super::state::{GAIN_MIN, State};
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;

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
    let mut by_load = ByLoad::of(state);
    let mut changed = false;
    while state.effort < end {
        let Some(receiver) = by_load.least_loaded(state.problem.load_mean) else { break };
        match best_gift(state, &mut slices_of, &by_load, receiver) {
            Some(slice) => {
                let donor = state.owner[slice];
                let before = [donor, receiver].map(|rank| (rank, state.load[rank as usize]));
                let _ = state.try_move(slice..slice + 1, receiver);
                state.commit();
                slices_of[receiver as usize].push(slice as u32);
                for (rank, load) in before {
                    by_load.follow(rank, load, state.load[rank as usize]);
                }
                changed = true;
            }
            None => by_load.give_up(receiver, state.load[receiver as usize]),
        }
    }
    changed
}

/// A load in the order of numbers.
#[derive(Debug, Clone, Copy)]
struct Load(f64);

impl Ord for Load {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Load {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Load {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Load {}

/// The available workers in the order of their loads, kept while sub-partitions are given away: with a thousand workers, to look
/// through all of them for each gift takes longer than to evaluate it.
struct ByLoad {
    /// Of equally loaded ones the first comes last, since donors are taken from the end.
    all: BTreeSet<(Load, Reverse<u32>)>,
    /// Those that a sub-partition may still help.
    receivers: BTreeSet<(Load, u32)>,
}

impl ByLoad {
    fn of(state: &State<'_>) -> Self {
        let loaded = |rank: &u32| (Load(state.load[*rank as usize]), *rank);
        let receivers: BTreeSet<_> = state.problem.available.iter().map(loaded).collect();
        Self { all: receivers.iter().map(|(load, rank)| (*load, Reverse(*rank))).collect(), receivers }
    }

    /// The worker with the least load that may still be helped, if that is below the mean.
    fn least_loaded(&self, mean: f64) -> Option<u32> {
        self.receivers.first().filter(|(load, _)| load.0 < mean).map(|(_, rank)| *rank)
    }

    /// The most loaded workers above the mean, the most loaded first.
    fn donors(&self, mean: f64) -> impl Iterator<Item = u32> + '_ {
        let most = self.all.iter().rev().take(DONORS);
        most.take_while(move |(load, _)| load.0 > mean).map(|(_, Reverse(rank))| *rank)
    }

    fn follow(&mut self, rank: u32, before: f64, after: f64) {
        self.all.remove(&(Load(before), Reverse(rank)));
        self.all.insert((Load(after), Reverse(rank)));
        if self.receivers.remove(&(Load(before), rank)) {
            self.receivers.insert((Load(after), rank));
        }
    }

    fn give_up(&mut self, rank: u32, load: f64) {
        self.receivers.remove(&(Load(load), rank));
    }
}

fn slices_by_owner(state: &State<'_>) -> Vec<Vec<u32>> {
    let mut slices_of = vec![Vec::new(); state.load.len()];
    for (slice, owner) in (0_u32..).zip(&state.owner) {
        slices_of[*owner as usize].push(slice);
    }
    slices_of
}

/// The sub-partition at an end of a partition of one of the most loaded workers that lowers the objective most, and RU.
fn best_gift(
    state: &mut State<'_>,
    slices_of: &mut [Vec<u32>],
    by_load: &ByLoad,
    receiver: u32,
) -> Option<usize> {
    let mut best: Option<(f64, usize)> = None;
    for donor in by_load.donors(state.problem.load_mean) {
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
