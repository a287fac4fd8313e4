//! The exact solution of small cases, as a mixed-integer linear program.
//!
//! Owns: the program. Never: serves a running database; it is what the search is compared with, in tests and by
//! `atrapos plan --exact`.
//!
//! With `x[i, w] = 1` when slice `i` is on worker `w`, in the words of `cost`:
//!
//! ```text
//! minimise  balance' x sum d[w]  +  busiest' x m  +  sync' x sum over s of sum z[s, g] (C(s, parent of g) - C(s, g))
//!           +  partitions' x sum b[i]
//! where     sum over w of x[i, w] = 1                                          every slice has one owner
//!           d[w] >= +-(sum over i of cost(i) x[i, w] - RU_avg)                 RU
//!           m >= sum over i of cost(i) x[i, w] - RU_avg                        the busiest worker
//!           z[s, g] >= sum over w in g of x[i, w], for each partner i of s     s takes part in group g
//!           b[i] >= x[i, w] - x[i - 1, w]                                      a cut before slice i of its table
//! ```
//!
//! Groups are workers, cores, L3 islands, nodes, sockets. `C(s, g)` is what one byte's way among the children of `g` costs the bytes of `s`,
//! and what one more worker costs; 0 for a worker.
//! A point that takes part in `n` children of `g` pays `C(s, g)` for each and gets one back as it takes part in `g`: that is
//! `(n - 1) x C(s, g)` summed over nested islands. Only `x` is integral; all else follows. Workers that are alone on their
//! cores in one L3 island are interchangeable, and are used in the order of the first slice that they have.
//!
//! Invariants: the distances among the children of an island are equal and grow outwards, or the program is refused; a
//! result is a proven optimum, to the tolerances of the solver, or an error.

#![forbid(unsafe_code)]

use atrapos_adapt::{AdaptError, PlannedScheme, Platform, Settings, WorkerIndex, Workload, evaluate, search};
use good_lp::constraint::{eq, geq, leq};
use good_lp::solvers::{SolutionStatus, WithTimeLimit};
use good_lp::{Constraint, Expression, ProblemVariables, Solution, SolverModel, Variable, microlp, variable};

/// Slices times available workers up to which an exact solution is tried.
pub const SLICES_TIMES_WORKERS_MAX: usize = 256;

/// A proven optimum.
#[derive(Debug, Clone, PartialEq)]
pub struct ExactPlan {
    /// The scheme.
    pub scheme: PlannedScheme,
    /// Its objective, as [`evaluate`] computes it.
    pub objective: f64,
}

/// The best scheme there is for `workload` on `platform`, or an error after about `seconds_max` seconds.
///
/// # Errors
/// [`AdaptError::TooLarge`] beyond [`SLICES_TIMES_WORKERS_MAX`]; [`AdaptError::UnevenDistances`] for a machine on which the
/// cost is not linear in this form; [`AdaptError::ExactUnfinished`]; a weight that is no weight.
pub fn solve_exactly(
    workload: &Workload,
    platform: &Platform,
    settings: &Settings,
    seconds_max: f64,
) -> Result<ExactPlan, AdaptError> {
    settings.weights.check()?;
    let unfinished = |detail: String| AdaptError::ExactUnfinished { detail };
    if !(seconds_max.is_finite() && seconds_max > 0.0) {
        return Err(unfinished(format!("it was given {seconds_max} seconds")));
    }
    let found = workload.all_costs().len() * platform.available_count();
    if found > SLICES_TIMES_WORKERS_MAX {
        let (what, cure) = ("sub-partitions times workers", "fewer sub-partitions or workers");
        return Err(AdaptError::TooLarge { what, found, max: SLICES_TIMES_WORKERS_MAX, cure });
    }
    // What the search found bounds what is worth looking at.
    let known = search(workload, platform, None, settings)?;
    let known = evaluate(workload, platform, &known, &settings.weights)?.objective;
    let mut program = Program::new(workload, platform);
    program.add_ownership();
    program.add_balance(settings);
    program.add_cuts(settings);
    program.add_synchronization(settings)?;
    program.add_order_of_equals();
    let owners = program.solve(known, seconds_max).map_err(unfinished)?;
    let scheme = PlannedScheme::from_slice_owners(workload, &owners);
    let objective = evaluate(workload, platform, &scheme, &settings.weights)?.objective;
    Ok(ExactPlan { scheme, objective })
}

struct Program<'a> {
    workload: &'a Workload,
    platform: &'a Platform,
    /// Available ranks, ascending.
    ranks: Vec<u32>,
    variables: ProblemVariables,
    /// By slice and position in `ranks`.
    x: Vec<Vec<Variable>>,
    objective: Expression,
    constraints: Vec<Constraint>,
}

impl<'a> Program<'a> {
    fn new(workload: &'a Workload, platform: &'a Platform) -> Self {
        let ranks = platform.available_ranks();
        let mut variables = ProblemVariables::new();
        let x = (0..workload.all_costs().len())
            .map(|_| ranks.iter().map(|_| variables.add(variable().binary())).collect())
            .collect();
        let (objective, constraints) = (Expression::default(), Vec::new());
        Self { workload, platform, ranks, variables, x, objective, constraints }
    }

    fn add_ownership(&mut self) {
        for of_slice in &self.x {
            self.constraints.push(eq(of_slice.iter().copied().sum::<Expression>(), 1.0));
        }
    }

    fn add_balance(&mut self, settings: &Settings) {
        let work = self.workload.work_cycles();
        if work == 0.0 {
            return;
        }
        let per_unit = settings.weights.per_unit(self.workload, self.platform);
        // In units of the mean, so that all coefficients are of one size.
        let mean = work / self.ranks.len() as f64;
        let most = self.variables.add(variable().min(0.0));
        self.objective.add_mul(per_unit.busiest * mean, most);
        for worker in 0..self.ranks.len() {
            let mut load = Expression::from(-1.0);
            for (of_slice, cost) in self.x.iter().zip(self.workload.all_costs()) {
                load.add_mul(cost / mean, of_slice[worker]);
            }
            let deviation = self.variables.add(variable().min(0.0));
            self.objective.add_mul(per_unit.imbalance * mean, deviation);
            self.constraints.push(geq(most, load.clone()));
            self.constraints.push(geq(deviation, load.clone()));
            self.constraints.push(geq(deviation, -load));
        }
    }

    fn add_cuts(&mut self, settings: &Settings) {
        let per_cut = settings.weights.per_unit(self.workload, self.platform).cut;
        for table in self.workload.starts().windows(2) {
            for slice in table[0] + 1..table[1] {
                let cut = self.variables.add(variable().min(0.0).max(1.0));
                self.objective.add_mul(per_cut, cut);
                for (here, before) in self.x[slice].iter().zip(&self.x[slice - 1]) {
                    self.constraints.push(geq(cut, *here - *before));
                }
            }
        }
    }

    fn add_synchronization(&mut self, settings: &Settings) -> Result<(), AdaptError> {
        let levels = self.platform.uniform_levels()?;
        // The group of every available worker on the present level, and the distance among the children of each group.
        let mut group_of: Vec<u32> = self.ranks.clone();
        let mut own = vec![0.0; self.platform.worker_count()];
        let mut is_worker = 1.0;
        for (parent, distance) in levels {
            for (group, of_parent) in parent.iter().enumerate() {
                let members: Vec<usize> =
                    (0..self.ranks.len()).filter(|at| group_of[*at] as usize == group).collect();
                // Each worker that takes part is paid for, whatever it is near.
                let span = (distance[*of_parent as usize] - own[group], is_worker);
                if !members.is_empty() && (span.0 > 0.0 || span.1 > 0.0) {
                    self.add_group(&members, span, settings);
                }
            }
            for group in &mut group_of {
                *group = parent[*group as usize];
            }
            own = distance;
            is_worker = 0.0;
        }
        // Every point takes part in the machine, and gets that distance and one worker back once.
        let per_cycle = settings.weights.per_unit(self.workload, self.platform).sync;
        for point in self.workload.sync_points() {
            let cycles = settings.weights.sync_cycles(point);
            self.objective += -per_cycle * (own[0] * cycles.per_distance + cycles.per_worker);
        }
        Ok(())
    }

    /// Lets points pay for taking part in a group: so much distance, and so many workers.
    fn add_group(&mut self, members: &[usize], (distance, workers): (f64, f64), settings: &Settings) {
        let per_cycle = settings.weights.per_unit(self.workload, self.platform).sync;
        for point in self.workload.sync_points() {
            let cycles = settings.weights.sync_cycles(point);
            let cost = per_cycle * (distance * cycles.per_distance + workers * cycles.per_worker);
            let takes_part = self.variables.add(variable().min(0.0).max(1.0));
            self.objective.add_mul(cost, takes_part);
            for slice in &point.partners {
                let here: Expression = members.iter().map(|at| self.x[*slice as usize][*at]).sum();
                self.constraints.push(geq(takes_part, here));
            }
        }
    }

    /// Of interchangeable workers, the later one may own a slice only if the earlier one owns a slice before it.
    fn add_order_of_equals(&mut self) {
        for pair in 1..self.ranks.len() {
            if self.platform.are_interchangeable(self.ranks[pair - 1], self.ranks[pair]) {
                let mut before = Expression::default();
                for of_slice in &self.x {
                    self.constraints.push(leq(of_slice[pair], before.clone()));
                    before += of_slice[pair - 1];
                }
            }
        }
    }

    /// The owner of every slice, or why there is none.
    fn solve(self, known: f64, seconds_max: f64) -> Result<Vec<WorkerIndex>, String> {
        let Self { platform, ranks, variables, x, objective, constraints, .. } = self;
        let mut model = variables.minimise(objective.clone()).using(microlp).with_time_limit(seconds_max);
        for constraint in constraints {
            model.add_constraint(constraint);
        }
        // The slack keeps rounding from cutting off what the search found.
        model.add_constraint(leq(objective, known * (1.0 + 1e-4) + 1e-7));
        let solution = model.solve().map_err(|error| error.to_string())?;
        if !matches!(solution.status(), SolutionStatus::Optimal) {
            return Err(format!("the best known was not proven best within {seconds_max} seconds"));
        }
        let owner_of = |of_slice: &Vec<Variable>| {
            let values = of_slice.iter().map(|x| solution.value(*x));
            let (at, _) =
                values.enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).expect("a worker is available");
            platform.worker(ranks[at])
        };
        Ok(x.iter().map(owner_of).collect())
    }
}
