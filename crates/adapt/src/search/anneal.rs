//! Simulated annealing for small cases, where a few thousand random changes cover what the ordered searches miss.
//!
//! Owns: the random changes and the schedule. Never: draws from anything but its own fixed seed, nor returns something
//! costlier than it was given.

use super::{Annealing, Settings, refine, state::State};
use std::ops::Range;

/// Slices times workers up to which a case is small.
const SMALL: usize = 1024;
/// Random changes in all descents together, for each unit of [`Settings::effort`], when it is long.
const CHANGES_PER_EFFORT: usize = 33_334;
/// Divisor of that number when it is short.
const SHORT: usize = 4;
/// Synchronization points that are looked at in all descents together, for each unit of [`Settings::effort`], when it is short. The workers of a
/// machine that has no core to spare wait while their controller searches: slices that meet many others make a random change dear.
const POINTS_PER_EFFORT: u64 = 25_000;
/// Random changes in one descent, for each slice and worker: few for small cases, which are begun again more often.
const CHANGES_PER_SLICE_AND_WORKER: usize = 500;
/// Bounds of that number, and so of how often it is begun again.
const CHANGES_PER_DESCENT: std::ops::RangeInclusive<usize> = 5_000..=25_000;
/// Synchronization points looked at when the end of a descent is refined, at most.
const REFINED_MAX: u64 = 50_000;

/// The best of `start` and what annealing finds from it, if that is better by more than a trifle.
pub(crate) fn improve<'p>(start: State<'p>, settings: &Settings) -> State<'p> {
    let (per_effort, points_per_effort, trifle) = match settings.annealing {
        Annealing::None => return start,
        Annealing::Short => (CHANGES_PER_EFFORT / SHORT, POINTS_PER_EFFORT, settings.thresholds.annealed_min),
        Annealing::Long => (CHANGES_PER_EFFORT, u64::MAX, super::GAIN_MIN),
    };
    let workers = start.problem.available.len();
    if workers < 2 || start.owner.len() * workers > SMALL {
        return start;
    }
    let changes = (start.owner.len() * workers * CHANGES_PER_SLICE_AND_WORKER)
        .clamp(*CHANGES_PER_DESCENT.start(), *CHANGES_PER_DESCENT.end());
    let descents = per_effort.saturating_mul(settings.effort as usize) / changes;
    let points = points_per_effort.saturating_mul(u64::from(settings.effort)) / descents.max(1) as u64;
    let (mut best, mut effort) = (start.clone(), start.effort);
    for descent in 0..descents {
        let mut from = best.clone();
        from.effort = effort;
        let mut state = descend(from, descent as u64, Length { changes, points });
        refine::improve(&mut state, points.min(REFINED_MAX));
        effort = state.effort;
        state.recompute();
        if state.objective < best.objective - super::GAIN_MIN {
            best = state;
        }
    }
    let mut found = if best.objective < start.objective - trifle { best } else { start };
    found.effort = effort;
    found
}

/// The length of a descent, by what is used up first.
#[derive(Clone, Copy)]
struct Length {
    changes: usize,
    /// Synchronization points looked at.
    points: u64,
}

impl Length {
    /// The share that is used up.
    fn share(self, changes: usize, points: u64) -> f64 {
        (changes as f64 / self.changes as f64).max(points as f64 / self.points as f64)
    }
}

fn descend(mut state: State<'_>, seed: u64, length: Length) -> State<'_> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ seed.wrapping_mul(0xd134_2543_de82_ef95));
    let mut best = (state.objective, state.owner.clone());
    // Hot enough to move an average slice to the wrong worker, or to part the slices of an average point; every third descent stays
    // near where it began.
    let average = 2.0 * state.problem.load(0..state.owner.len()) / state.owner.len() as f64;
    let hottest = match seed % 3 {
        0 => state.problem.imbalance_cost(average),
        1 => best.0 * 0.3,
        _ => state.problem.parting_cost(),
    }
    .max(1e-3);
    let (begin, mut changes) = (state.effort, 0);
    loop {
        let share = length.share(changes, state.effort - begin);
        if share >= 1.0 {
            break;
        }
        changes += 1;
        let temperature = hottest * (1e-3_f64).powf(share);
        let allowed = -temperature * random.unit().max(1e-12).ln();
        let kind = random.below(4);
        if kind == 1 {
            gather(&mut state, &mut random, allowed);
        } else if kind == 0 {
            let (a, b) = (random_range(&state, &mut random), random_range(&state, &mut random));
            let overlap = a.start < b.end && b.start < a.end;
            if !overlap
                && state.owner[a.start] != state.owner[b.start]
                && state.swap(a.clone(), b.clone()) > allowed
            {
                state.swap(a, b);
            }
        } else {
            let slices = random_range(&state, &mut random);
            let to = state.problem.available[random.below(state.problem.available.len())];
            if state.try_move(slices, to) <= allowed {
                state.commit();
            }
        }
        if state.objective < best.0 - super::GAIN_MIN {
            best = (state.objective, state.owner.clone());
        }
    }
    let mut found = State::new(state.problem, best.1);
    found.effort = state.effort;
    found
}

/// Brings the slices of a random synchronization point to one random worker, unless that costs more than is allowed.
fn gather(state: &mut State<'_>, random: &mut Random, allowed: f64) {
    let problem = state.problem;
    let points = problem.incident(random.below(state.owner.len()));
    if points.is_empty() {
        return;
    }
    let point = points[random.below(points.len())];
    let to = problem.available[random.below(problem.available.len())];
    let partners = problem.partners(point);
    let owners: Vec<u32> = partners.iter().map(|slice| state.owner[*slice as usize]).collect();
    let mut delta = 0.0;
    for slice in partners.iter().map(|slice| *slice as usize) {
        delta += state.try_move(slice..slice + 1, to);
        state.commit();
    }
    if delta > allowed {
        for (slice, owner) in partners.iter().map(|slice| *slice as usize).zip(owners) {
            state.try_move(slice..slice + 1, owner);
            state.commit();
        }
    }
}

/// A partition, or a part of one.
fn random_range(state: &State<'_>, random: &mut Random) -> Range<usize> {
    let slice = random.below(state.owner.len());
    let partition = state.partition_around(slice);
    match random.below(5) {
        0 => partition,
        1 => slice..partition.end,
        2 => partition.start..slice + 1,
        3 => slice..slice + 1 + random.below(partition.end - slice),
        _ => slice..slice + 1,
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::Platform;
    use crate::search::state::Problem;
    use crate::workload::{SyncPoint, Workload};
    use atrapos_topology::Machine;

    /// The number of synchronization points looked at for 40 slices, each of which meets all others.
    fn effort(annealing: Annealing) -> u64 {
        let machine = Machine::synthetic("pack:1 core:2 pu:1").expect("a machine");
        let platform = Platform::for_workers(&machine, 2).expect("a platform");
        let tables = vec![("a".to_owned(), vec![100.0; 20]), ("b".to_owned(), vec![100.0; 20])];
        let pairs = (0..40_u32).flat_map(|a| (a + 1..40).map(move |b| vec![a, b]));
        let points = pairs.map(|partners| SyncPoint { partners, bytes: 1.0, count: 1.0, again: 0.0 });
        let workload = Workload::new(tables, points.collect(), 1.0).expect("a workload");
        let settings = Settings { annealing, ..Settings::default() };
        let problem = Problem::new(&workload, &platform, &settings.weights);
        improve(State::new(&problem, vec![0; 40]), &settings).effort
    }

    #[test]
    fn a_short_annealing_is_bounded_by_what_it_looks_at() {
        let bound = POINTS_PER_EFFORT * u64::from(Settings::default().effort);
        // The change and the refinement with which a descent ends may go beyond, by what they look at.
        let short = effort(Annealing::Short);
        assert!((bound / 2..2 * bound).contains(&short), "{short} of {bound}");
        assert!(effort(Annealing::Long) > 8 * bound, "else the case tells nothing");
        assert_eq!(effort(Annealing::None), 0);
    }
}
