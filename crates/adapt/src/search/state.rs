//! A scheme under change: who owns each slice, and what any change would cost, without evaluating everything again.
//!
//! Owns: the incremental form of the objective. Never: decides which change to try.
//!
//! Invariants: the running totals agree with [`evaluate`](crate::evaluate) up to rounding; owners are available ranks.

use super::busiest::Busiest;
use crate::cost::{PerUnit, SyncCycles, Weights};
use crate::ids::TableIndex;
use crate::platform::{Platform, Span};
use crate::scheme::PlannedScheme;
use crate::workload::Workload;
use std::ops::Range;

/// The part of a search that does not change.
pub(crate) struct Problem<'a> {
    pub(crate) workload: &'a Workload,
    pub(crate) platform: &'a Platform,
    /// Cost of each synchronization point by its extent.
    sync: Vec<SyncCycles>,
    per_unit: PerUnit,
    /// Synchronization points of slice `i` are `incident[incident_start[i]..incident_start[i + 1]]`.
    incident_start: Vec<u32>,
    incident: Vec<u32>,
    /// Slices of synchronization point `i` are `partners[partners_start[i]..partners_start[i + 1]]`: one vector for all, as walking
    /// through them is most of what a search does.
    partners_start: Vec<u32>,
    partners: Vec<u32>,
    /// Table of each slice.
    table: Vec<u32>,
    pub(crate) available: Vec<u32>,
    pub(crate) load_mean: f64,
}

impl<'a> Problem<'a> {
    pub(crate) fn new(workload: &'a Workload, platform: &'a Platform, weights: &Weights) -> Self {
        let slices = workload.all_costs().len();
        let mut incident_start = vec![0_u32; slices + 1];
        for slice in workload.sync_points().iter().flat_map(|point| &point.partners) {
            incident_start[*slice as usize + 1] += 1;
        }
        for slice in 0..slices {
            incident_start[slice + 1] += incident_start[slice];
        }
        let mut next = incident_start.clone();
        let mut incident = vec![0; incident_start[slices] as usize];
        for (at, point) in (0_u32..).zip(workload.sync_points()) {
            for slice in &point.partners {
                incident[next[*slice as usize] as usize] = at;
                next[*slice as usize] += 1;
            }
        }
        let sync = workload.sync_points().iter().map(|point| weights.sync_cycles(point));
        let mut partners_start = vec![0];
        let mut partners = Vec::with_capacity(incident.len());
        for point in workload.sync_points() {
            partners.extend_from_slice(&point.partners);
            partners_start.push(partners.len() as u32);
        }
        let mut table = vec![0; slices];
        for at in 0..workload.table_count() as u32 {
            table[workload.range(TableIndex(at))].fill(at);
        }
        let available = platform.available_ranks();
        let load_mean = workload.work_cycles() / available.len() as f64;
        Self {
            workload,
            platform,
            sync: sync.collect(),
            per_unit: weights.per_unit(workload, platform),
            incident_start,
            incident,
            partners_start,
            partners,
            table,
            available,
            load_mean,
        }
    }

    pub(crate) fn slice_count(&self) -> usize {
        self.workload.all_costs().len()
    }

    pub(crate) fn incident(&self, slice: usize) -> &[u32] {
        &self.incident[self.incident_start[slice] as usize..self.incident_start[slice + 1] as usize]
    }

    pub(crate) fn partners(&self, point: u32) -> &[u32] {
        let point = point as usize;
        &self.partners[self.partners_start[point] as usize..self.partners_start[point + 1] as usize]
    }

    /// The cost of a synchronization point of two workers at distance 1, in cycles.
    pub(crate) fn size(&self, point: u32) -> f64 {
        self.sync[point as usize].of(Span { others: 1, distance: 1.0 })
    }

    /// The slices of the table that `slice` is in.
    pub(crate) fn table_of(&self, slice: usize) -> Range<usize> {
        self.workload.range(TableIndex(self.table[slice]))
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        (0..).take(self.workload.table_count()).map(|table| self.workload.range(TableIndex(table)))
    }

    /// Cost that `cycles` of imbalance add to the objective, if the busiest worker has them.
    pub(crate) fn imbalance_cost(&self, cycles: f64) -> f64 {
        cycles * (self.per_unit.imbalance + self.per_unit.busiest)
    }

    /// Cost of an average synchronization point between two workers at distance 1.
    pub(crate) fn parting_cost(&self) -> f64 {
        let points = self.sync.len() as u32;
        let cycles: f64 = (0..points).map(|point| self.size(point)).sum();
        cycles * self.per_unit.sync / f64::from(points.max(1))
    }

    pub(crate) fn load(&self, slices: Range<usize>) -> f64 {
        self.workload.all_costs()[slices].iter().sum()
    }
}

/// Changes smaller than this are rounding.
pub(crate) const GAIN_MIN: f64 = 1e-12;

/// A scheme, by the rank that owns each slice.
#[derive(Clone)]
pub(crate) struct State<'a> {
    pub(crate) problem: &'a Problem<'a>,
    pub(crate) owner: Vec<u32>,
    pub(crate) load: Vec<f64>,
    busiest: Busiest,
    /// Cost of each synchronization point, in cycles.
    sync: Vec<f64>,
    pub(crate) objective: f64,
    /// Number of synchronization points looked at: the measure of effort.
    pub(crate) effort: u64,
    seen: Vec<u32>,
    stamp: u32,
    ranks: Vec<u32>,
    trial: Trial,
}

/// The change that was evaluated last.
#[derive(Clone, Default)]
struct Trial {
    slices: Range<usize>,
    to: u32,
    delta: f64,
    sync: Vec<(u32, f64)>,
}

impl<'a> State<'a> {
    pub(crate) fn new(problem: &'a Problem<'a>, owner: Vec<u32>) -> Self {
        let points = problem.sync.len();
        let mut state = Self {
            problem,
            owner,
            load: vec![0.0; problem.platform.worker_count()],
            busiest: Busiest::new(),
            sync: vec![0.0; points],
            objective: 0.0,
            effort: 0,
            seen: vec![0; points],
            stamp: 0,
            ranks: Vec::new(),
            trial: Trial::default(),
        };
        state.recompute();
        state
    }

    /// Sets all totals from the owners; the rounding of many small changes is gone afterwards.
    pub(crate) fn recompute(&mut self) {
        let problem = self.problem;
        self.load.fill(0.0);
        for (owner, cost) in self.owner.iter().zip(problem.workload.all_costs()) {
            self.load[*owner as usize] += cost;
        }
        self.busiest.find(&problem.available, &self.load);
        let imbalance: f64 =
            problem.available.iter().map(|rank| (self.load[*rank as usize] - problem.load_mean).abs()).sum();
        let mut sync = 0.0;
        for point in 0..problem.sync.len() {
            self.sync[point] = self.cycles_of(point as u32);
            sync += self.sync[point];
        }
        let cuts: usize = problem
            .tables()
            .map(|table| self.owner[table].windows(2).filter(|pair| pair[0] != pair[1]).count())
            .sum();
        let PerUnit { imbalance: per_imbalance, busiest, sync: per_sync, cut } = problem.per_unit;
        self.objective = imbalance * per_imbalance
            + (self.busiest.greatest() - problem.load_mean) * busiest
            + sync * per_sync
            + cuts as f64 * cut;
    }

    fn cycles_of(&mut self, point: u32) -> f64 {
        let (owner, problem) = (&self.owner, self.problem);
        let cost = problem.sync[point as usize];
        let partners = problem.partners(point);
        // Most points are of two slices, and most of those that are not are on one worker by now.
        if let [a, b] = partners {
            return cost.of(problem.platform.span_of_two(owner[*a as usize], owner[*b as usize]));
        }
        let first = owner[partners[0] as usize];
        if partners.iter().all(|slice| owner[*slice as usize] == first) {
            return 0.0;
        }
        self.ranks.clear();
        self.ranks.extend(partners.iter().map(|slice| owner[*slice as usize]));
        cost.of(problem.platform.span_of_ranks(&mut self.ranks))
    }

    /// Cost that a synchronization point adds to the objective.
    pub(crate) fn sync_cost(&self, point: u32) -> f64 {
        self.sync[point as usize] * self.problem.per_unit.sync
    }

    /// The slices around `slice` that are one partition.
    pub(crate) fn partition_around(&self, slice: usize) -> Range<usize> {
        let table = self.problem.table_of(slice);
        let owner = self.owner[slice];
        let mut from = slice;
        while from > table.start && self.owner[from - 1] == owner {
            from -= 1;
        }
        let mut to = slice + 1;
        while to < table.end && self.owner[to] == owner {
            to += 1;
        }
        from..to
    }

    /// By how much the objective changes when `slices`, all of one table and one owner, go to `to`. Remembered for
    /// [`State::commit`].
    pub(crate) fn try_move(&mut self, slices: Range<usize>, to: u32) -> f64 {
        let problem = self.problem;
        let from = self.owner[slices.start];
        self.trial.sync.clear();
        self.trial.slices = slices.clone();
        self.trial.to = to;
        self.trial.delta = 0.0;
        if from == to {
            return 0.0;
        }
        let moved = problem.load(slices.clone());
        let deviation = |load: f64| (load - problem.load_mean).abs();
        let (load_from, load_to) = (self.load[from as usize], self.load[to as usize]);
        let imbalance = deviation(load_from - moved) - deviation(load_from) + deviation(load_to + moved)
            - deviation(load_to);
        let greatest = self.busiest.greatest_with([(from, load_from - moved), (to, load_to + moved)]);
        let most = greatest - self.busiest.greatest();
        let table = problem.table_of(slices.start);
        let mut cuts = 0_i32;
        let neighbours = [
            (slices.start > table.start).then(|| self.owner[slices.start - 1]),
            (slices.end < table.end).then(|| self.owner[slices.end]),
        ];
        for neighbour in neighbours.into_iter().flatten() {
            cuts += i32::from(neighbour != to) - i32::from(neighbour != from);
        }
        self.owner[slices.clone()].fill(to);
        self.stamp += 1;
        let mut sync = 0.0;
        for slice in slices.clone() {
            for &point in problem.incident(slice) {
                if self.seen[point as usize] != self.stamp {
                    self.seen[point as usize] = self.stamp;
                    let cycles = self.cycles_of(point);
                    let change = cycles - self.sync[point as usize];
                    if change != 0.0 {
                        sync += change;
                        self.trial.sync.push((point, cycles));
                    }
                    self.effort += 1;
                }
            }
        }
        self.effort += 1 + slices.len() as u64 / 4;
        self.owner[slices].fill(from);
        let per_unit = &problem.per_unit;
        self.trial.delta = imbalance * per_unit.imbalance
            + most * per_unit.busiest
            + sync * per_unit.sync
            + f64::from(cuts) * per_unit.cut;
        self.trial.delta
    }

    /// Makes the change that was tried last.
    pub(crate) fn commit(&mut self) {
        let Trial { slices, to, delta, .. } = &self.trial;
        let from = self.owner[slices.start];
        if from == *to {
            return;
        }
        let moved = self.problem.load(slices.clone());
        self.load[from as usize] -= moved;
        self.load[*to as usize] += moved;
        self.owner[slices.clone()].fill(*to);
        for (point, cycles) in &self.trial.sync {
            self.sync[*point as usize] = *cycles;
        }
        self.objective += delta;
        self.busiest.follow([from, *to], &self.problem.available, &self.load);
    }

    /// Moves `slices` to `to` if the objective falls; says whether it did.
    pub(crate) fn move_if_better(&mut self, slices: Range<usize>, to: u32) -> bool {
        let better = self.try_move(slices, to) < -GAIN_MIN;
        if better {
            self.commit();
        }
        better
    }

    /// By how much the objective changes when two disjoint ranges, each of one table and one owner, change owners. The
    /// change is made.
    pub(crate) fn swap(&mut self, a: Range<usize>, b: Range<usize>) -> f64 {
        let (owner_a, owner_b) = (self.owner[a.start], self.owner[b.start]);
        let first = self.try_move(a, owner_b);
        self.commit();
        let second = self.try_move(b, owner_a);
        self.commit();
        first + second
    }

    /// Swaps if the objective falls; says whether it did.
    pub(crate) fn swap_if_better(&mut self, a: Range<usize>, b: Range<usize>) -> bool {
        let better = self.swap(a.clone(), b.clone()) < -GAIN_MIN;
        if !better {
            self.swap(a, b);
        }
        better
    }

    pub(crate) fn scheme(&self) -> PlannedScheme {
        let owners: Vec<_> = self.owner.iter().map(|rank| self.problem.platform.worker(*rank)).collect();
        PlannedScheme::from_slice_owners(self.problem.workload, &owners)
    }
}

#[cfg(test)]
mod tests {
    use super::{Problem, State};
    use crate::cost::{Weights, evaluate};
    use crate::platform::Platform;
    use crate::workload::{SyncPoint, Workload};
    use atrapos_topology::Machine;

    #[test]
    fn the_running_objective_is_the_evaluated_one() {
        let machine = Machine::synthetic("pack:2 l3:2 core:2 pu:1").expect("a machine");
        let platform = Platform::for_workers(&machine, 8).expect("a platform");
        let tables = (0..3_u32).map(|table| {
            let costs = (0..10_u32).map(|slice| f64::from(100 + (table * 37 + slice * 61) % 400)).collect();
            (table.to_string(), costs)
        });
        let points = (0..40_u32).map(|at| SyncPoint {
            partners: vec![(at * 7) % 30, (at * 11 + 3) % 30, (at * 13 + 1) % 30],
            bytes: f64::from(at % 5),
            count: 0.01 * f64::from(1 + at),
            again: 0.0,
        });
        let workload = Workload::new(tables.collect(), points.collect(), 1.0).expect("a workload");
        let weights = Weights { partitions: 0.3, ..Weights::default() };
        let problem = Problem::new(&workload, &platform, &weights);
        let mut state = State::new(&problem, vec![0; 30]);
        for change in 0..500_usize {
            let slice = (change * 17) % 30;
            let mut range = state.partition_around(slice);
            if change % 3 == 0 {
                range.start = slice;
            }
            if change % 7 < 4 {
                range.end = slice + 1;
            }
            let other = state.partition_around((slice + 11) % 30);
            let disjoint = range.end <= other.start || other.end <= range.start;
            if change % 5 == 0 && disjoint && state.owner[range.start] != state.owner[other.start] {
                state.swap(range, other);
            } else {
                state.try_move(range, (change * 5 % 8) as u32);
                state.commit();
            }
            let cost = evaluate(&workload, &platform, &state.scheme(), &weights).expect("a cost");
            let difference = (cost.objective - state.objective).abs();
            assert!(difference < 1e-9, "after change {change}: {} for {}", state.objective, cost.objective);
        }
    }
}
