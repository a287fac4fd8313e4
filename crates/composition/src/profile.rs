//! Profiles: how many domains of each size there are.
//!
//! Owns: the order of profiles, and the necessary conditions that a profile must meet. Never: assigns anything.
//!
//! The printed objective `max Σ P^{b_d} y_d` with a large `P` orders profiles by the number of the largest domains, then
//! of the second largest, and so on; `P^{b_d}` overflows, so profiles are compared in just this way. They are visited
//! from the best on, so that the first one with an assignment is the optimum.

use crate::problem::Problem;
use std::ops::ControlFlow;

/// Number of domains of each class, by ascending size.
pub(crate) type Profile = Vec<u32>;

/// Visits the profiles that meet the necessary conditions, the best first, until `visit` breaks or more than `steps_max`
/// partial profiles were looked at. Returns whether none was left out.
pub(crate) fn visit_profiles<F>(problem: &Problem, steps_max: u64, visit: F) -> bool
where
    F: FnMut(&Profile) -> ControlFlow<()>,
{
    let classes = problem.sizes.len();
    let mut walk = Walk { problem, steps: steps_max, counts: vec![0; classes], visit, complete: true };
    let _ = walk.descend(classes, problem.workers, 0);
    walk.complete
}

struct Walk<'a, F> {
    problem: &'a Problem,
    /// Partial profiles that may still be looked at.
    steps: u64,
    counts: Profile,
    visit: F,
    complete: bool,
}

impl<F: FnMut(&Profile) -> ControlFlow<()>> Walk<'_, F> {
    /// Chooses the numbers of domains of the classes below `class`, with `workers` workers left and `domains` domains
    /// chosen.
    fn descend(&mut self, class: usize, workers: u32, domains: u32) -> ControlFlow<()> {
        if self.steps == 0 {
            self.complete = false;
            return ControlFlow::Break(());
        }
        self.steps -= 1;
        let Some(class) = class.checked_sub(1) else {
            return if self.problem.admits(&self.counts) {
                (self.visit)(&self.counts)
            } else {
                ControlFlow::Continue(())
            };
        };
        let size = self.problem.sizes[class].workers;
        // A domain of the smallest size must remain for the items that fit nowhere else.
        let kept = if class > 0 { self.problem.sizes[0].workers } else { 0 };
        let by_workers = workers.saturating_sub(kept) / size;
        let items = self.problem.count_from[class].min(self.problem.count_from[0] - u32::from(class > 0));
        let most = by_workers.min(items.saturating_sub(domains));
        for count in (0..=most).rev() {
            self.counts[class] = count;
            if self.problem.may_complete(&self.counts, class, workers - count * size) {
                self.descend(class, workers - count * size, domains + count)?;
            }
        }
        self.counts[class] = 0;
        ControlFlow::Continue(())
    }
}

impl Problem {
    /// Returns whether the classes from `class` on may be part of a profile, with `workers` workers for those below.
    fn may_complete(&self, counts: &Profile, class: usize, workers: u32) -> bool {
        let chosen = |range: std::ops::Range<usize>, load: fn(&crate::problem::Size) -> f64| -> f64 {
            range.map(|at| f64::from(counts[at]) * load(&self.sizes[at])).filter(|load| !load.is_nan()).sum()
        };
        let classes = self.sizes.len();
        if chosen(class..classes, |size| size.load_min) > self.load_from[class] * (1.0 + 1e-9) {
            return false;
        }
        // What the workers that are left can carry at most.
        let per_worker = |below: usize| {
            let rates = self.sizes[..below].iter().map(|size| size.load_max / f64::from(size.workers));
            rates.fold(0.0, f64::max)
        };
        let carried = |below: usize| if workers == 0 { 0.0 } else { f64::from(workers) * per_worker(below) };
        (0..classes).all(|up_to| {
            let below = class.min(up_to + 1);
            let own = if up_to >= class { chosen(class..up_to + 1, |size| size.load_max) } else { 0.0 };
            own + carried(below) >= self.load_up_to[up_to]
        })
    }

    /// Returns whether a profile meets all necessary conditions: the items of every class and above are enough for the
    /// domains that only they can be in, in number and in load, and every item fits some domain.
    fn admits(&self, counts: &Profile) -> bool {
        let mut domains = 0;
        for class in (0..counts.len()).rev() {
            domains += counts[class];
            if domains > self.count_from[class] {
                return false;
            }
        }
        counts[0] > 0
            && self.items.iter().all(|item| {
                (0..=item.class).any(|class| counts[class] > 0 && self.sizes[class].load_max >= item.load)
            })
    }
}
