//! The search for a profile and an assignment: the first profile in order that has an assignment, then its best one.
//!
//! Owns: how much is searched, and what is proven. Never: knows names.
//!
//! Invariant: a solution meets the bounds. `profile_bound` and `peak_bound` are no worse than the optimum.

use crate::assign::{self, Assignment, Bin, Branch, Goal};
use crate::problem::{Item, Problem};
use crate::profile::{Profile, visit_profiles};
use std::ops::ControlFlow;

/// Effort of a search. A step is a domain that is looked at for a structure, so a result does not depend on the speed of
/// the machine.
///
/// At most 2,000,000 partial choices of the numbers of domains by size are looked at, with any effort. A search that
/// reaches this limit without having found a composition ends with
/// [`CompositionError::Unresolved`](crate::CompositionError::Unresolved).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effort {
    /// Steps of all searches together, apart from the first construction for each choice of sizes.
    pub steps_max: u64,
    /// Steps of the branch and bound for one choice of sizes, as far as it looks for any assignment within the bounds.
    pub steps_per_sizes_max: u64,
    /// Of the steps that are left, one choice of sizes gets at most one in so many (at least 1), so that choices which can
    /// neither be filled nor excluded leave some for those after them.
    pub sizes_part: u64,
    /// Relative difference in the greatest load per worker that is not worth searching for; at least 1e-9.
    pub tolerance: f64,
}

impl Effort {
    /// The fast heuristic: construction, local search, and a branch and bound that ends soon.
    #[must_use]
    pub const fn fast() -> Self {
        Self { steps_max: 10_000_000, steps_per_sizes_max: 500_000, sizes_part: 16, tolerance: 1e-6 }
    }

    /// The same, with a branch and bound that goes on until the optimum is proven or `steps_max` steps are made.
    #[must_use]
    pub const fn exact(steps_max: u64) -> Self {
        Self { steps_max, steps_per_sizes_max: steps_max, sizes_part: 1, tolerance: 1e-6 }
    }
}

impl Default for Effort {
    fn default() -> Self {
        Self::fast()
    }
}

/// A profile with an assignment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Solution {
    /// Number of domains by class.
    pub(crate) profile: Profile,
    /// By item: its domain, counted by ascending class.
    pub(crate) bin_of: Vec<u32>,
    pub(crate) peak: f64,
    /// The best profile that was not proven impossible.
    pub(crate) profile_bound: Profile,
    /// A peak that no assignment to this profile stays below.
    pub(crate) peak_bound: f64,
    /// Steps that were made.
    pub(crate) steps: u64,
}

/// Outcomes without a solution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsolved {
    /// There is no solution.
    Impossible,
    /// None was found in this many steps.
    Unknown(u64),
}

/// The best solution within the given effort.
pub(crate) fn solve(problem: &Problem, effort: &Effort) -> Result<Solution, Unsolved> {
    let mut search = Search { items: &problem.items, effort, steps: effort.steps_max, unresolved: None };
    let mut found = None;
    let visited_all = visit_profiles(problem, effort.steps_max.min(PARTIAL_PROFILES_MAX), |profile| {
        let bins = assign::bins_of(problem, profile);
        match search.first_assignment(&bins) {
            First::Found(assignment) => found = Some((profile.clone(), bins, assignment)),
            First::None => return ControlFlow::Continue(()),
            First::Unknown => {
                search.unresolved.get_or_insert_with(|| profile.clone());
                if search.steps > 0 {
                    return ControlFlow::Continue(());
                }
            }
        }
        ControlFlow::Break(())
    });
    let Some((profile, bins, mut assignment)) = found else {
        let impossible = visited_all && search.unresolved.is_none();
        let steps = effort.steps_max - search.steps;
        return Err(if impossible { Unsolved::Impossible } else { Unsolved::Unknown(steps) });
    };
    let peak_bound = search.balance(&bins, &mut assignment);
    Ok(Solution {
        peak: assignment.peak(&bins),
        peak_bound,
        profile_bound: search.unresolved.unwrap_or_else(|| profile.clone()),
        profile,
        bin_of: assignment.bin_of,
        steps: effort.steps_max - search.steps,
    })
}

/// Greatest number of partial profiles that are looked at.
const PARTIAL_PROFILES_MAX: u64 = 2_000_000;

struct Search<'a> {
    items: &'a [Item],
    effort: &'a Effort,
    /// Steps that are left.
    steps: u64,
    /// The best profile for which nothing was found and nothing proven.
    unresolved: Option<Profile>,
}

/// Outcome of the search for any assignment to a profile.
enum First {
    Found(Assignment),
    None,
    Unknown,
}

impl Search<'_> {
    /// An assignment within the bounds.
    fn first_assignment(&mut self, bins: &[Bin]) -> First {
        let part = self.steps.div_ceil(self.effort.sizes_part.max(1));
        let given = part.min(self.effort.steps_per_sizes_max);
        let mut steps = given;
        let (assignment, meets) = assign::quickly(bins, self.items, &mut steps);
        if meets {
            self.steps -= given - steps;
            return First::Found(assignment);
        }
        let goal = Goal { below: f64::INFINITY, enough: f64::INFINITY, tolerance: self.effort.tolerance };
        let found = Branch::new(bins, self.items).search(&goal, &mut steps);
        self.steps -= given - steps;
        match found.best {
            Some((bin_of, _)) => First::Found(Assignment::new(bins, self.items, bin_of)),
            None if found.complete => First::None,
            None => First::Unknown,
        }
    }

    /// Lowers the peak of an assignment as far as the steps allow. Returns a peak that none stays below.
    fn balance(&mut self, bins: &[Bin], assignment: &mut Assignment) -> f64 {
        let enough = assign::peak_bound(bins, self.items);
        assign::reassign(bins, self.items, assignment, enough, &mut self.steps);
        let peak = assignment.peak(bins);
        let tolerance = self.effort.tolerance;
        if peak <= enough * (1.0 + tolerance) {
            return enough.min(peak);
        }
        let goal = Goal { below: peak, enough, tolerance };
        let found = Branch::new(bins, self.items).search(&goal, &mut self.steps);
        if let Some((bin_of, _)) = found.best {
            *assignment = Assignment::new(bins, self.items, bin_of);
        }
        if found.complete { assignment.peak(bins) } else { enough }
    }
}
