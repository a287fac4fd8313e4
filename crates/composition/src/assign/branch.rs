//! Branch and bound over the assignments of items to domains.
//!
//! Owns: the exhaustive search. Never: reads a clock: it is limited by steps, one for each domain that is looked at for
//! an item.
//!
//! Items are assigned heaviest first. A partial assignment is given up when what is left cannot fit into the domains
//! that may take it (room that is smaller than every item left is no room), when too little is left for the domains that
//! have no item or less than their minimum, or when a domain is beyond the best known peak. Of domains of one size and
//! equal loads only the first is tried, and items that are alike go to domains of ascending numbers: the
//! lexicographically first of all equally good assignments is never cut off by either.
//!
//! Invariant: a search that is `complete` has proven that nothing is better than its best by more than the tolerance.

use super::Bin;
use crate::problem::Item;

/// Goals of a search.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Goal {
    /// Peak that must be undercut; infinite for any assignment within the bounds.
    pub(crate) below: f64,
    /// Peak at which the search ends: a lower bound, or infinite if the first assignment found is enough.
    pub(crate) enough: f64,
    /// Relative improvement below which nothing is looked for.
    pub(crate) tolerance: f64,
}

/// Outcome of a search.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// By item, the position of its bin; and the peak. `None` when nothing was found below the goal.
    pub(crate) best: Option<(Vec<u32>, f64)>,
    /// Whether nothing was left out, up to the tolerance or to `enough`.
    pub(crate) complete: bool,
}

/// A search over assignments.
pub(crate) struct Branch<'a> {
    bins: &'a [Bin],
    items: &'a [Item],
    classes: usize,
    /// Items, heaviest first; the level of an item is its position here.
    order: Vec<usize>,
    /// By level and class: load of the items left of this class and below.
    load_up_to: Vec<f64>,
    /// By level and class: number and load of the items left of this class and above.
    count_from: Vec<u32>,
    load_from: Vec<f64>,
    /// By class: level of the lightest item of this class and above, if there is one.
    lightest: Vec<Option<usize>>,
    loads: Vec<f64>,
    counts: Vec<u32>,
    /// By bin: the greatest load now looked for.
    caps: Vec<f64>,
    /// By level: the bin of its item, the bins still to be tried, last first.
    chosen: Vec<u32>,
    candidates: Vec<Vec<u32>>,
    /// By level: load of that bin before.
    load_before: Vec<f64>,
}

impl<'a> Branch<'a> {
    /// A search over the assignments of `items` to `bins`, which are in ascending order of classes.
    pub(crate) fn new(bins: &'a [Bin], items: &'a [Item]) -> Self {
        let classes = items.iter().map(|item| item.class).chain(bins.iter().map(|bin| bin.class));
        let classes = classes.max().map_or(0, |class| class + 1);
        let mut order: Vec<usize> = (0..items.len()).collect();
        let key = |at: usize| (items[at].load, items[at].class);
        order.sort_by(|a, b| {
            let (a_key, b_key) = (key(*a), key(*b));
            b_key.0.total_cmp(&a_key.0).then(a_key.1.cmp(&b_key.1)).then(a.cmp(b))
        });
        let levels = items.len() + 1;
        let mut branch = Self {
            bins,
            items,
            classes,
            load_up_to: vec![0.0; levels * classes],
            count_from: vec![0; levels * classes],
            load_from: vec![0.0; levels * classes],
            lightest: vec![None; classes],
            loads: vec![0.0; bins.len()],
            counts: vec![0; bins.len()],
            caps: Vec::new(),
            chosen: vec![0; items.len()],
            load_before: vec![0.0; items.len()],
            candidates: vec![Vec::new(); items.len()],
            order,
        };
        branch.sum_up();
        branch
    }

    fn sum_up(&mut self) {
        for level in (0..self.items.len()).rev() {
            let item = self.items[self.order[level]];
            for class in 0..self.classes {
                let (here, next) = (level * self.classes + class, (level + 1) * self.classes + class);
                let (up_to, from) = (item.class <= class, item.class >= class);
                self.load_up_to[here] = self.load_up_to[next] + if up_to { item.load } else { 0.0 };
                self.load_from[here] = self.load_from[next] + if from { item.load } else { 0.0 };
                self.count_from[here] = self.count_from[next] + u32::from(from);
                if from && self.lightest[class].is_none() {
                    self.lightest[class] = Some(level);
                }
            }
        }
    }

    /// Searches until nothing better is left, `goal.enough` is reached, or `steps` are used up.
    pub(crate) fn search(&mut self, goal: &Goal, steps: &mut u64) -> Found {
        let mut best: Option<(Vec<u32>, f64)> = None;
        self.set_caps(goal.below, goal.tolerance);
        let levels = self.items.len();
        let mut level = 0;
        self.expand(0, steps);
        loop {
            if level == levels {
                if let Some(peak) = self.peak_within_bounds() {
                    let mut bin_of = vec![0; levels];
                    (0..levels).for_each(|at| bin_of[self.order[at]] = self.chosen[at]);
                    best = Some((bin_of, peak));
                    if peak <= goal.enough * (1.0 + goal.tolerance) {
                        return Found { best, complete: true };
                    }
                    self.set_caps(peak, goal.tolerance);
                }
                level -= 1;
                self.take_back(level);
                continue;
            }
            if let Some(bin) = self.candidates[level].pop() {
                if *steps == 0 {
                    return Found { best, complete: false };
                }
                if self.assign(level, bin as usize) {
                    level += 1;
                    if level < levels {
                        self.expand(level, steps);
                    }
                }
            } else if level == 0 {
                return Found { best, complete: true };
            } else {
                level -= 1;
                self.take_back(level);
            }
        }
    }

    fn set_caps(&mut self, peak: f64, tolerance: f64) {
        let below = peak * (1.0 - tolerance);
        self.caps = self.bins.iter().map(|bin| bin.load_max.min(below * bin.workers)).collect();
    }

    /// Assigns the item of a level, unless it does not fit any more.
    fn assign(&mut self, level: usize, bin: usize) -> bool {
        let load = self.items[self.order[level]].load;
        if self.loads[bin] + load > self.caps[bin] {
            return false;
        }
        self.load_before[level] = self.loads[bin];
        self.loads[bin] += load;
        self.counts[bin] += 1;
        self.chosen[level] = bin as u32;
        true
    }

    fn take_back(&mut self, level: usize) {
        let bin = self.chosen[level] as usize;
        self.counts[bin] -= 1;
        // Not by subtraction: rounding would add up.
        self.loads[bin] = self.load_before[level];
    }

    /// The peak of a full assignment; `None` if a domain has no item or a load outside of its bounds, or the peak is no
    /// better than what is known.
    fn peak_within_bounds(&self) -> Option<f64> {
        let mut peak = 0.0_f64;
        for (at, bin) in self.bins.iter().enumerate() {
            let load = self.loads[at];
            if self.counts[at] == 0 || load < bin.load_min || load > self.caps[at] {
                return None;
            }
            peak = peak.max(load / bin.workers);
        }
        Some(peak)
    }

    /// Lists the bins for the item of a level, the least loaded last; none if what is left cannot be assigned.
    fn expand(&mut self, level: usize, steps: &mut u64) {
        *steps = steps.saturating_sub(self.bins.len() as u64);
        let mut list = std::mem::take(&mut self.candidates[level]);
        list.clear();
        if self.may_complete(level) {
            let item = self.items[self.order[level]];
            let least = self.alike_before(level);
            let fits = |bin: &u32| {
                let at = *bin as usize;
                self.bins[at].class <= item.class && self.loads[at] + item.load <= self.caps[at]
            };
            list.extend((0..self.bins.len() as u32).filter(fits));
            let key = |bin: u32| (self.bins[bin as usize].class, self.loads[bin as usize]);
            list.sort_by(|a, b| {
                let (a_key, b_key) = (key(*a), key(*b));
                a_key.0.cmp(&b_key.0).then(a_key.1.total_cmp(&b_key.1)).then(a.cmp(b))
            });
            list.dedup_by(|later, first| key(*later) == key(*first));
            list.retain(|bin| *bin >= least);
            let after = |bin: u32| (self.loads[bin as usize] + item.load) / self.bins[bin as usize].workers;
            list.sort_by(|a, b| after(*b).total_cmp(&after(*a)).then(b.cmp(a)));
        }
        self.candidates[level] = list;
    }

    /// The bin of the item before, if that is alike.
    fn alike_before(&self, level: usize) -> u32 {
        match level.checked_sub(1) {
            Some(before) if self.items[self.order[before]] == self.items[self.order[level]] => {
                self.chosen[before]
            }
            _ => 0,
        }
    }

    /// Returns whether the items from a level on may be assigned: necessary conditions, by nested classes.
    fn may_complete(&self, level: usize) -> bool {
        let row = level * self.classes;
        let lightest = |class: usize| match self.lightest[class] {
            Some(last) if last >= level => self.items[self.order[last]].load,
            _ => f64::INFINITY,
        };
        // Upwards: room of the bins of a class and below, for the items that can be nowhere else.
        let (mut room, mut at) = (0.0, 0);
        for class in 0..self.classes {
            let least = lightest(class);
            while at < self.bins.len() && self.bins[at].class == class {
                let free = self.caps[at] - self.loads[at];
                if free < -f64::EPSILON * self.loads[at] {
                    return false;
                }
                room += if free >= least { free } else { 0.0 };
                at += 1;
            }
            if room * (1.0 + 1e-12) < self.load_up_to[row + class] {
                return false;
            }
        }
        // Downwards: what the bins of a class and above lack, which only items of this class and above can bring.
        let (mut lacking, mut empty) = (0.0, 0);
        for class in (0..self.classes).rev() {
            while at > 0 && self.bins[at - 1].class == class {
                at -= 1;
                lacking += (self.bins[at].load_min - self.loads[at]).max(0.0);
                empty += u32::from(self.counts[at] == 0);
            }
            if empty > self.count_from[row + class] || lacking > self.load_from[row + class] * (1.0 + 1e-12) {
                return false;
            }
        }
        true
    }
}
